"""Files for other programs, read back by readers that share no code with the exporter.

`XGBoostDump` and `RankLibEnsemble` do what the learning-to-rank plugins of Elasticsearch and OpenSearch do with
``model/xgboost+json`` and ``model/ranklib``: 32-bit features and thresholds, < in the one and <= in the other. The
first is checked against XGBoost itself.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pytest

pytest.importorskip("lightgbm")

import lightgbm

from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError
from rankbound.models import (
    AdaRank,
    BoostingRanker,
    CoordinateAscent,
    LambdaMART,
    LinearRanker,
    LogisticRanker,
    MatrixFactorization,
    MLPRanker,
    RandomForestRanker,
    RankBoost,
    Ranker,
    RegressionRanker,
    SVMmap,
    export_formats,
    export_ranker,
)
from rankbound.models.export import export_lightgbm, export_ranklib, export_xgboost_json
from rankbound.packages import find_missing

DATA = synthetic_letor(queries=25, features=6, seed=3, documents=(4, 15))
X, Y, QID = DATA.features, DATA.lists.labels, DATA.lists.query_of_item
FEW = {"n_estimators": 6, "min_child_samples": 2}
NAMES = [f"title_{k}" for k in range(6)]

TREES = {
    "LambdaMART": LambdaMART(**FEW),
    "lambdarank": LambdaMART("lambdarank", **FEW),
    "boosting": BoostingRanker(**FEW),
    "forest": RandomForestRanker(**FEW),
    "forest of levels": RandomForestRanker("classification", **FEW),
    "RankBoost": RankBoost(n_estimators=8),
    "regression": RegressionRanker("boosting", options=FEW),
}
LINEAR = {
    "AdaRank": AdaRank(),
    "CoordinateAscent": CoordinateAscent(n_restarts=1, max_sweeps=1),
    "SVMmap": SVMmap(max_planes=10),
    "lasso": RegressionRanker(),
    "LinearRanker": LinearRanker(epochs=2),
}


class XGBoostDump:
    """A list of trees of nested objects: left where x < t, and a child for missing values."""

    def __init__(self, text: str) -> None:
        self.trees = json.loads(text)
        assert isinstance(self.trees, list)

    def score(self, row: dict[str, Any]) -> float:
        return float(sum(self._leaf(tree, row) for tree in self.trees))

    def _leaf(self, node: dict[str, Any], row: dict[str, Any]) -> float:
        while "leaf" not in node:
            value, threshold = np.float32(row[node["split"]]), np.float32(node["split_condition"])
            side = "missing" if np.isnan(value) else "yes" if value < threshold else "no"
            (node,) = (child for child in node["children"] if child["nodeid"] == node[side])
        return node["leaf"]

    def splits(self) -> list[dict[str, Any]]:
        waiting, splits = list(self.trees), []
        while waiting:
            node = waiting.pop()
            if "children" in node:
                splits.append(node)
                waiting += node["children"]
        return splits


class RankLibEnsemble:
    """RankLib's reader takes lines without their indentation, and children by position: left where x <= t."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        assert lines[0] == "## LambdaMART"  # the type of the model
        body = "".join(line.strip() for line in lines if not line.startswith("#"))
        self.trees = [
            (float(np.float32(tree.getAttribute("weight"))), tree.firstChild)
            for tree in minidom.parseString(body).getElementsByTagName("tree")
        ]

    def score(self, row: np.ndarray) -> float:
        return float(sum(weight * self._output(root, row) for weight, root in self.trees))

    def _output(self, split: Any, row: np.ndarray) -> float:
        while split.firstChild.tagName == "feature":
            feature, threshold, left, right = split.childNodes
            value = np.float32(row[int(self._text(feature)) - 1])
            value = np.float32(0) if value != value else value  # missing
            split = left if value <= np.float32(self._text(threshold)) else right
        assert split.firstChild.tagName == "output"
        return float(self._text(split.firstChild))

    def _text(self, element: Any) -> str:
        return element.firstChild.nodeValue.strip()


def xgboost_scores(path: Path, rows: np.ndarray, names: list[str] = NAMES) -> list[float]:
    dump = XGBoostDump(path.read_text())
    return [dump.score(dict(zip(names, row, strict=True))) for row in rows]


def ranklib_scores(path: Path, rows: np.ndarray) -> list[float]:
    ensemble = RankLibEnsemble(path.read_text())
    return [ensemble.score(row) for row in rows]


@functools.cache
def fitted(name: str) -> Ranker:
    return (TREES | LINEAR)[name].fit(X, Y, qid=QID)


def on_the_thresholds(path: Path) -> np.ndarray:
    """Rows with a feature at a written threshold, or one 32-bit number below or above it."""
    rows = []
    for node in XGBoostDump(path.read_text()).splits():
        threshold = np.float32(node["split_condition"])
        for towards in (-np.inf, threshold, np.inf):
            rows.append(X[len(rows) % len(X)].copy())
            rows[-1][NAMES.index(node["split"])] = np.nextafter(threshold, np.float32(towards))
    return np.array(rows, dtype=np.float32)


# ---- trees -----------------------------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("name", TREES)
def test_trees_score_alike_also_on_their_thresholds(name: str, tmp_path: Path) -> None:
    ranker = fitted(name)
    export_xgboost_json(ranker, tmp_path / "model.json", NAMES)
    export_ranklib(ranker, tmp_path / "model.txt")
    rows = np.concatenate((X[:60], on_the_thresholds(tmp_path / "model.json")[:300]))
    expected = ranker.predict(rows)
    np.testing.assert_allclose(xgboost_scores(tmp_path / "model.json", rows), expected, atol=1e-6)
    np.testing.assert_allclose(ranklib_scores(tmp_path / "model.txt", rows), expected, atol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_thresholds_between_neighbors_of_32_bits_divide_them(sign: int, tmp_path: Path) -> None:
    rows = sign * (1 + np.arange(60) * np.finfo(np.float32).eps).astype(np.float32)[:, None]  # neighbors, from 1 on
    ranker = BoostingRanker(n_estimators=5, num_leaves=31, min_child_samples=1).fit(rows, np.arange(60) % 3)
    export_xgboost_json(ranker, tmp_path / "model.json")
    export_ranklib(ranker, tmp_path / "model.txt")
    assert len(np.unique(ranker.predict(rows))) > 10
    np.testing.assert_allclose(xgboost_scores(tmp_path / "model.json", rows, ["f0"]), ranker.predict(rows), atol=1e-6)
    np.testing.assert_allclose(ranklib_scores(tmp_path / "model.txt", rows), ranker.predict(rows), atol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_thresholds_beyond_32_bits_keep_rows_on_one_side(sign: int, tmp_path: Path) -> None:
    ranker = BoostingRanker(n_estimators=2, min_child_samples=1).fit(sign * np.array([[1e40], [3e40]]), [0, 1])
    export_xgboost_json(ranker, tmp_path / "model.json", ["f0"])
    export_ranklib(ranker, tmp_path / "model.txt")
    rows = np.array([[-1e30], [0], [1e30]], dtype=np.float32)
    np.testing.assert_allclose(xgboost_scores(tmp_path / "model.json", rows, ["f0"]), ranker.predict(rows), atol=1e-6)
    np.testing.assert_allclose(ranklib_scores(tmp_path / "model.txt", rows), ranker.predict(rows), atol=1e-6)


def test_a_lowest_label_other_than_0_is_part_of_the_sum(tmp_path: Path) -> None:
    ranker = RandomForestRanker("classification", **FEW).fit(X, Y + 2, qid=QID)
    export_xgboost_json(ranker, tmp_path / "model.json", NAMES)
    export_ranklib(ranker, tmp_path / "model.txt")
    assert ranker.predict(X).min() >= 2
    np.testing.assert_allclose(xgboost_scores(tmp_path / "model.json", X[:50]), ranker.predict(X[:50]), atol=1e-6)
    np.testing.assert_allclose(ranklib_scores(tmp_path / "model.txt", X[:50]), ranker.predict(X[:50]), atol=1e-6)


def test_two_labels_are_exported_as_the_logit(tmp_path: Path) -> None:
    ranker = BoostingRanker("classification", **FEW).fit(X, Y > 1, qid=QID)
    for format in export_formats(ranker):
        export_ranker(ranker, tmp_path / format, format)
    assert export_formats(ranker) == ("xgboost-json", "ranklib", "lightgbm")
    probability = ranker.predict(X[:50])
    logit = np.log(probability / (1 - probability))
    names = [f"f{k}" for k in range(6)]
    np.testing.assert_allclose(xgboost_scores(tmp_path / "xgboost-json", X[:50], names), logit, atol=1e-6)
    np.testing.assert_allclose(ranklib_scores(tmp_path / "ranklib", X[:50]), logit, atol=1e-6)
    np.testing.assert_allclose(lightgbm_scores(tmp_path / "lightgbm", X[:50]), probability, atol=1e-12)


def with_missing() -> np.ndarray:
    rows = X.copy()
    rows[np.random.default_rng(1).random(X.shape) < 0.3] = np.nan
    return rows


def test_missing_values_have_their_side_in_xgboosts_format_and_are_refused_by_ranklibs(tmp_path: Path) -> None:
    rows = with_missing()
    ranker = LambdaMART(**FEW).fit(rows - 0.5, Y, qid=QID)  # 0 is among the values
    export_xgboost_json(ranker, tmp_path / "model.json", NAMES)
    expected = ranker.predict(rows - 0.5)
    np.testing.assert_allclose(xgboost_scores(tmp_path / "model.json", rows - np.float32(0.5)), expected, atol=1e-6)
    message = "ranklib requires trees that read a missing value as 0, got some that were trained with missing values"
    with pytest.raises(ArgumentError, match=f"{message}; this LambdaMART can be exported as xgboost-json, lightgbm"):
        export_ranker(ranker, tmp_path / "model.txt", "ranklib")
    assert not (tmp_path / "model.txt").exists()


def test_a_model_that_never_saw_a_missing_value_reads_it_as_0_everywhere(tmp_path: Path) -> None:
    ranker = LambdaMART(**FEW).fit(X - 0.5, Y, qid=QID)
    export_xgboost_json(ranker, tmp_path / "model.json", NAMES)
    export_ranklib(ranker, tmp_path / "model.txt")
    rows = with_missing()[:60] - np.float32(0.5)
    np.testing.assert_array_equal(ranker.predict(rows), ranker.predict(np.nan_to_num(rows, nan=0.0)))
    np.testing.assert_allclose(xgboost_scores(tmp_path / "model.json", rows), ranker.predict(rows), atol=1e-6)
    np.testing.assert_allclose(ranklib_scores(tmp_path / "model.txt", rows), ranker.predict(rows), atol=1e-6)


def test_zeros_that_mean_missing_are_refused(tmp_path: Path) -> None:
    ranker = LambdaMART(**FEW).fit(X, Y, qid=QID)
    options = {"zero_as_missing": True, "min_data_in_leaf": 2, "verbosity": -1}
    ranker.boosters_ = [lightgbm.train(options, lightgbm.Dataset(X, Y), 3)]
    with pytest.raises(ArgumentError, match=r"got a split for which 0 means missing; .* can be exported as lightgbm"):
        export_ranker(ranker, tmp_path / "model.json", "xgboost-json")


def test_the_reader_and_the_layout_are_those_of_xgboost(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = with_missing()
    matrix = xgboost.DMatrix(rows, Y, feature_names=NAMES, nthread=1)
    booster = xgboost.train({"base_score": 0.0, "max_depth": 3, "nthread": 1}, matrix, 5)
    theirs = tmp_path / "theirs.json"
    theirs.write_text(f"[{','.join(booster.get_dump(dump_format='json'))}]")
    np.testing.assert_allclose(xgboost_scores(theirs, rows[:80]), booster.predict(matrix)[:80], atol=1e-6)
    export_xgboost_json(fitted("LambdaMART"), tmp_path / "ours.json", NAMES)
    for split in XGBoostDump((tmp_path / "ours.json").read_text()).splits():
        assert set(split) == set(XGBoostDump(theirs.read_text()).splits()[0])
        assert [child["nodeid"] for child in split["children"]] == [split["yes"], split["no"]]
        assert split["missing"] in (split["yes"], split["no"])
        assert {child.get("depth", split["depth"] + 1) for child in split["children"]} == {split["depth"] + 1}


def lightgbm_scores(path: Path, rows: np.ndarray) -> np.ndarray:
    return lightgbm.Booster(model_file=path).predict(rows)


@pytest.mark.parametrize("name", ["LambdaMART", "lambdarank", "boosting", "forest", "regression"])
def test_lightgbm_reads_its_own_text(name: str, tmp_path: Path) -> None:
    export_lightgbm(fitted(name), tmp_path / "model.txt")
    np.testing.assert_allclose(lightgbm_scores(tmp_path / "model.txt", X), fitted(name).predict(X), atol=1e-12)


# ---- linear models and networks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LINEAR)
def test_weights_written_for_ranklib_score_alike(name: str, tmp_path: Path) -> None:
    export_ranklib(fitted(name), tmp_path / "model.txt")
    text = (tmp_path / "model.txt").read_text()
    assert text.startswith("## Coordinate Ascent\n")
    fields = [field.split(":") for field in text.splitlines()[-1].split()]
    assert [int(number) for number, _ in fields] == [1, 2, 3, 4, 5, 6]
    scores = X.astype(np.float64) @ [float(weight) for _, weight in fields]
    atol = 1e-5 if name == "LinearRanker" else 1e-12  # which predicts in 32 bits
    np.testing.assert_allclose(np.diff(scores), np.diff(fitted(name).predict(X)), atol=atol)


def test_two_labels_of_a_logistic_model_rank_alike(tmp_path: Path) -> None:
    ranker = LogisticRanker().fit(X, Y > 0, qid=QID)
    export_ranklib(ranker, tmp_path / "model.txt")
    weights = [float(field.split(":")[1]) for field in (tmp_path / "model.txt").read_text().splitlines()[-1].split()]
    np.testing.assert_array_equal(np.argsort(X.astype(np.float64) @ weights), np.argsort(ranker.predict(X)))


@pytest.mark.parametrize("ranker", [MLPRanker(hidden=(8,), epochs=2), LinearRanker(epochs=2), RegressionRanker()])
def test_onnx_scores_are_ours(ranker: Ranker, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    ranker.fit(X, Y, qid=QID)
    export_ranker(ranker, tmp_path / "model.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["score"], {"features": X})[0], ranker.predict(X), rtol=1e-5, atol=1e-5)


# ---- names and refusals ----------------------------------------------------------------------------------------------


def test_names_are_those_of_training_and_must_be_complete(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    export_xgboost_json(fitted("LambdaMART"), tmp_path / "model.json")
    splits = XGBoostDump((tmp_path / "model.json").read_text()).splits()
    assert {node["split"] for node in splits} <= {f"f{k}" for k in range(6)}
    named = LambdaMART(**FEW).fit(pl.DataFrame(X, schema=NAMES), Y, qid=QID)
    export_xgboost_json(named, tmp_path / "model.json")
    assert {node["split"] for node in XGBoostDump((tmp_path / "model.json").read_text()).splits()} <= set(NAMES)
    for names in (["a", "b"], ["a", "a", "c", "d", "e", "f"]):
        with pytest.raises(
            ArgumentError, match=f"feature_names must have 6 different entries, got {len(names)}: .'a', "
        ):
            export_xgboost_json(named, tmp_path / "model.json", names)
    with pytest.raises(ArgumentError, match="feature_names must be None unless format is xgboost-json, got names for"):
        export_ranker(named, tmp_path / "model.txt", "ranklib", NAMES)


FORMATS_OF = [
    (LambdaMART(**FEW), ("xgboost-json", "ranklib", "lightgbm")),
    (RankBoost(n_estimators=2), ("xgboost-json", "ranklib")),
    (RandomForestRanker("classification", **FEW), ("xgboost-json", "ranklib")),
    (BoostingRanker("classification", **FEW), ()),
    (AdaRank(n_estimators=2), ("onnx", "ranklib")),
    (LinearRanker(epochs=1), ("onnx", "ranklib")),
    (LinearRanker("classification", epochs=1), ("onnx",)),
    (MLPRanker(hidden=(4,), epochs=1), ("onnx",)),
    (MLPRanker(hidden=(4,), epochs=1, attention_blocks=1, attention_heads=1), ()),
    (LogisticRanker(), ()),
]


@pytest.mark.parametrize(("ranker", "formats"), FORMATS_OF, ids=lambda value: str(value)[:40])
def test_every_other_format_is_refused_with_those_that_are_possible(
    ranker: Ranker, formats: tuple[str, ...], tmp_path: Path
) -> None:
    ranker.fit(X, Y, qid=QID)
    assert export_formats(ranker) == formats
    for format in ("onnx", "xgboost-json", "ranklib", "lightgbm"):
        if format in formats:
            if format == "onnx" and find_missing("onnx"):
                continue
            export_ranker(ranker, tmp_path / "model", format)
            (tmp_path / "model").unlink()
            continue
        possible = ", ".join(formats) or "none of the formats"
        with pytest.raises(ArgumentError, match=f"; this {type(ranker).__name__} can be exported as {possible}$"):
            export_ranker(ranker, tmp_path / "model", format)
    assert not list(tmp_path.iterdir())


def test_matrix_factorization_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    users, items = np.divmod(np.arange(20), 5)
    factors = MatrixFactorization(factors=2, epochs=1).fit(users, items, np.arange(20) % 3)
    assert export_formats(factors) == ()
    with pytest.raises(ArgumentError, match="format must be one of onnx, xgboost-json, ranklib, lightgbm, got 'pmml'"):
        export_ranker(fitted("boosting"), tmp_path / "model", "pmml")
    with pytest.raises(ArgumentError, match="ranklib requires a linear ranker or a tree ranker, got MatrixFactor"):
        export_ranklib(factors, tmp_path / "model")
    with pytest.raises(ArgumentError, match="the format requires a tree ranker, got AdaRank"):
        export_xgboost_json(fitted("AdaRank"), tmp_path / "model")
    with pytest.raises(ArgumentError, match="lightgbm requires a ranker of one LightGBM model, got RankBoost without"):
        export_lightgbm(fitted("RankBoost"), tmp_path / "model")
    assert not list(tmp_path.iterdir())
