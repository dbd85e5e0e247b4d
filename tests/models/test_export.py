"""Files for search engines, read back by a few lines that do what those engines do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError
from rankbound.models import (
    AdaRank,
    BoostingRanker,
    CoordinateAscent,
    LambdaMART,
    LogisticRanker,
    RandomForestRanker,
    RankBoost,
    Ranker,
    RegressionRanker,
    SVMmap,
    export_ranklib,
    export_xgboost_json,
)

DATA = synthetic_letor(queries=25, features=6, seed=3, documents=(4, 15))
X, Y, QID = DATA.features, DATA.lists.labels, DATA.lists.query_of_item
FEW = {"n_estimators": 6, "min_child_samples": 2}


def walk(node: dict[str, Any], row: dict[str, np.float32]) -> float:
    """XGBoost's tree on one document, in 32-bit numbers."""
    while "leaf" not in node:
        left = row[node["split"]] < np.float32(node["split_condition"])
        node = next(child for child in node["children"] if child["nodeid"] == node["yes" if left else "no"])
    return node["leaf"]


@pytest.mark.parametrize(
    "ranker",
    [
        LambdaMART(**FEW),
        BoostingRanker(**FEW),
        RandomForestRanker(**FEW),
        RandomForestRanker("classification", **FEW),
        RankBoost(n_estimators=8),
        RegressionRanker("boosting", options=FEW),
    ],
    ids=lambda ranker: type(ranker).__name__,
)
def test_trees_written_for_xgboost_score_alike(ranker: Ranker, tmp_path: Path) -> None:
    ranker.fit(X, Y, qid=QID)
    names = [f"title_{k}" for k in range(6)]
    export_xgboost_json(ranker, tmp_path / "model.json", names)
    trees = json.loads((tmp_path / "model.json").read_text())
    scores = [sum(walk(tree, dict(zip(names, row, strict=True))) for tree in trees) for row in X]
    np.testing.assert_allclose(np.diff(scores), np.diff(ranker.predict(X)), atol=1e-5)
    for tree in trees:  # what the plugin of Elasticsearch insists on
        if "leaf" not in tree:
            assert [child["nodeid"] for child in tree["children"]] == [tree["yes"], tree["no"]]
            assert tree["depth"] == 0


def test_names_come_from_the_frame_and_must_be_complete(tmp_path: Path) -> None:
    ranker = LambdaMART(**FEW).fit(X, Y, qid=QID)
    export_xgboost_json(ranker, tmp_path / "model.json")
    assert '"split": "f' in (tmp_path / "model.json").read_text()
    with pytest.raises(ArgumentError, match="feature_names must have 6 entries, got 2"):
        export_xgboost_json(ranker, tmp_path / "model.json", ["a", "b"])


@pytest.mark.parametrize(
    "ranker",
    [AdaRank(), CoordinateAscent(n_restarts=1, max_sweeps=1), SVMmap(max_planes=10), RegressionRanker()],
    ids=lambda ranker: type(ranker).__name__,
)
def test_weights_written_for_ranklib_score_alike(ranker: Ranker, tmp_path: Path) -> None:
    ranker.fit(X, Y, qid=QID)
    export_ranklib(ranker, tmp_path / "model.txt")
    text = (tmp_path / "model.txt").read_text()
    assert text.startswith("## Coordinate Ascent\n")
    fields = [field.split(":") for field in text.splitlines()[-1].split()]
    assert [int(number) for number, _ in fields] == [1, 2, 3, 4, 5, 6]
    scores = X.astype(np.float64) @ [float(weight) for _, weight in fields]
    np.testing.assert_allclose(np.diff(scores), np.diff(ranker.predict(X)), atol=1e-12)


def test_two_labels_of_a_logistic_model_rank_alike(tmp_path: Path) -> None:
    ranker = LogisticRanker().fit(X, Y > 0, qid=QID)
    export_ranklib(ranker, tmp_path / "model.txt")
    weights = [float(field.split(":")[1]) for field in (tmp_path / "model.txt").read_text().splitlines()[-1].split()]
    np.testing.assert_array_equal(np.argsort(X.astype(np.float64) @ weights), np.argsort(ranker.predict(X)))


def test_models_of_another_form_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="export_ranklib requires a linear ranker, got RankBoost"):
        export_ranklib(RankBoost(n_estimators=2).fit(X, Y, qid=QID), tmp_path / "m")
    with pytest.raises(ArgumentError, match="requires a linear ranker, got LogisticRanker"):
        export_ranklib(LogisticRanker().fit(X, Y, qid=QID), tmp_path / "m")
    with pytest.raises(ArgumentError, match="export_xgboost_json requires a tree ranker, got AdaRank"):
        export_xgboost_json(AdaRank().fit(X, Y, qid=QID), tmp_path / "m")
    with pytest.raises(ArgumentError, match="requires a sum of trees"):
        export_xgboost_json(BoostingRanker("classification", **FEW).fit(X, Y, qid=QID), tmp_path / "m")
    assert not list(tmp_path.iterdir())
