"""Dicts, frames and score tables with hostile entries: a sound result, or an error of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("pandas")

import pandas as pd

import rankbound as rb
from rankbound.errors import RankboundError
from rankbound.evaluation import query_sets, score_tables
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.report.figures import catalog, contrasts
from rankbound.studies import learning, marginal_means, meta_evaluation

from .callables import LABELS, QID, SCORES
from .test_arrays import outcome
from .variations import FORMS, REFUSED, SAME, VALUES, Variation

DOCUMENTS = [f"d{i}" for i in range(len(LABELS))]
MEASURES = ["nDCG@3", "AP", "UL2(nDCG)"]


# ---- dicts and frames of rows ----------------------------------------------------------------------------------------


def dicts_of(_: str, values: Any) -> dict[Any, dict[str, Any]]:
    found: dict[Any, dict[str, Any]] = {}
    for query, document, value in zip(QID.tolist(), DOCUMENTS, values, strict=True):
        found.setdefault(query, {})[document] = value
    return found


def evaluate(qrels: Any, run: Any) -> Any:
    return rb.evaluate(qrels, run, MEASURES, empty="zero")


@functools.cache
def clean() -> Any:
    return evaluate(dicts_of("label", LABELS), dicts_of("score", SCORES)).mean()


def varied(variation: Variation, values: np.ndarray) -> Any:
    """The variation as a column; None where it has no such form."""
    given = variation.make(values)
    if given is None or not hasattr(given, "__len__") or isinstance(given, (str, dict)) or np.ndim(given) != 1:
        return None
    return given if len(given) == len(values) else None


COLUMNS = [each for each in (*FORMS, *VALUES) if "tensor" not in each.name and each.name != "sparse matrix"]
# polars has no numbers of 128 bits and none that are objects; numbers in dicts may be whatever float() reads
LESS_STRICT = {
    "dict": ("complex", "text", "list of text", "bytes", "2^70", "dates", "durations", "beyond float64", "records")
}
DATES_IN_PANDAS = ("dates", "durations")  # of a resolution that polars refuses with an error of its own
NOT_IN_FRAMES = ("objects", "as longdouble")


@pytest.mark.parametrize("side", ["label", "score"])
@pytest.mark.parametrize("kind", ["dict", "pandas", "polars"])
def test_columns_of_every_kind(kind: str, side: str) -> None:
    make = {"dict": dicts_of, "pandas": _pandas, "polars": _polars}[kind]
    clean_values = {"label": LABELS, "score": SCORES}
    for variation in COLUMNS:
        column = varied(variation, clean_values[side])
        if column is None or (kind == "dict" and variation.name in ("complex", "masked entry")):  # NumPy warns
            continue
        if kind == "pandas" and variation.name in DATES_IN_PANDAS:
            continue
        try:
            data = {name: make(name, column if name == side else values) for name, values in clean_values.items()}
        except Exception:  # the library itself has no such column
            continue
        found = outcome(lambda data=data: evaluate(data["label"], data["score"]).mean(), side)
        if variation.expect == SAME and (kind == "dict" or variation.name not in NOT_IN_FRAMES):
            assert found == pytest.approx(clean(), abs=1e-12), variation.name
        if variation.expect == REFUSED and variation.name not in LESS_STRICT.get(kind, ()):
            assert found is None, variation.name


def _pandas(name: str, values: Any) -> pd.DataFrame:
    plain = values.reset_index(drop=True) if isinstance(values, pd.Series) else values
    return pd.DataFrame({"qid": QID, "docid": DOCUMENTS, name: plain}).set_index(np.arange(10)[::-1] + 3)


def _polars(name: str, values: Any) -> pl.DataFrame:
    return pl.DataFrame({"qid": QID, "docid": DOCUMENTS, name: pl.Series(values)})


NO_FRAMES = [None, 3, "", [], [1, 2], (), {}, {"q": 3}, {"q": None}, {"q": []}, np.zeros(3), object(),
             pl.DataFrame(), pd.DataFrame(), pl.Series([1]),
             pl.DataFrame({"qid": [], "docid": [], "label": [], "score": []})]  # fmt: skip


@pytest.mark.parametrize("thing", NO_FRAMES, ids=lambda value: type(value).__name__)
def test_what_is_no_data_is_refused(thing: Any) -> None:
    labels, scores = dicts_of("label", LABELS), dicts_of("score", SCORES)
    for call in (
        lambda: evaluate(thing, scores),
        lambda: evaluate(labels, thing),
        lambda: rb.Lists.from_frame(thing),
        lambda: rb.Lists.from_dicts(thing, scores),
        lambda: rb.Lists.from_dicts(labels, thing),
        lambda: rb.compare(scores, thing, qrels=labels, measures=MEASURES),
        lambda: rb.compare(scores, scores, qrels=thing, measures=MEASURES),
    ):
        with pytest.raises(RankboundError):
            call()


# ---- score tables ----------------------------------------------------------------------------------------------------


def table() -> pl.DataFrame:
    random = np.random.default_rng(4)
    rows = [
        (data, "", system, 0, seed, str(query), 20, 1 + query % 9)
        for data in ("one", "two") for system in ("a", "b", "c") for seed in (0, 1) for query in range(12)
    ]  # fmt: skip
    names = ["data", "variant", "system", "fold", "seed", "qid", "items", "relevant"]
    scores = {name: random.uniform(0.1, 0.9, len(rows)) for name in ("nDCG", "nDCG@5", "nDCG@10")}
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(**scores)


CONTRAST = score_tables.Contrast("", "nDCG", "a", ("b", "c"), ("b", "c"))
ANALYSES: dict[str, Callable[[Any], Any]] = {
    "check_scores": lambda t: score_tables.check_scores(t, ["nDCG"]),
    "systems_of": score_tables.systems_of,
    "query_scores": lambda t: score_tables.query_scores(t, ["nDCG"]),
    "paired scores": lambda t: ScoreMatrix.from_table(t, ["nDCG"], least=2).paired("nDCG").means("nDCG"),
    "trial_means": lambda t: score_tables.trial_means(t, ["nDCG"]),
    "mean_scores": lambda t: score_tables.mean_scores(t, ["nDCG"]),
    "contrasts": lambda t: str(score_tables.contrasts(t)),
    "expected_scores": lambda t: query_sets.expected_scores(t, "nDCG"),
    "query_map": lambda t: query_sets.query_map(t, "nDCG"),
    "type_queries": lambda t: query_sets.type_queries(t, ["nDCG"]),
    "instance_scores": lambda t: contrasts.instance_scores(t, CONTRAST),
    "activity_curves": lambda t: contrasts.activity_curves(t, CONTRAST),
    "score_distributions": lambda t: contrasts.score_distributions(t, CONTRAST)[0],
    "asl_curves": lambda t: meta_evaluation.asl_curves(t, ["nDCG"], test="t"),
    "tau_between_measures": lambda t: meta_evaluation.tau_between_measures(t, ["nDCG"]),
    "meta_evaluation": lambda t: meta_evaluation.meta_evaluation(t, {"nDCG": ["nDCG"]}),
    "cutoff_curves": catalog.cutoff_curves,
    "expected_histogram": lambda t: catalog.expected_histogram(t, "nDCG"),
    "system_marginal_means": lambda t: marginal_means.system_marginal_means(score_tables.trial_means(t, ["nDCG"])),
    "best_counts": lambda t: marginal_means.best_counts(score_tables.trial_means(t, ["nDCG"])),
    "fit_linear_model": lambda t: marginal_means.fit_linear_model(t, "nDCG", ["system"]).coefficients,
    "training_paths": learning.training_paths,
}
TABLES: dict[str, Callable[[], Any]] = {
    "no rows": lambda: table().clear(),
    "no columns": pl.DataFrame,
    "one row": lambda: table()[:1],
    "one system": lambda: table().filter(pl.col("system") == "a"),
    "one query": lambda: table().filter(pl.col("qid") == "0"),
    "NaN": lambda: table().with_columns(
        pl.when(pl.col("qid") == "3").then(float("nan")).otherwise("nDCG").alias("nDCG")
    ),
    "all NaN": lambda: table().with_columns(nDCG=pl.lit(float("nan"))),
    "null": lambda: table().with_columns(pl.when(pl.col("qid") != "3").then("nDCG").alias("nDCG")),
    "all null": lambda: table().with_columns(nDCG=pl.lit(None, dtype=pl.Float64)),
    "inf": lambda: table().with_columns(
        pl.when(pl.col("qid") == "3").then(float("inf")).otherwise("nDCG").alias("nDCG")
    ),
    "equal": lambda: table().with_columns(nDCG=pl.lit(0.5)),
    "float32": lambda: table().with_columns(pl.col("nDCG").cast(pl.Float32)),
    "integers": lambda: table().with_columns(nDCG=pl.lit(1)),
    "text": lambda: table().with_columns(nDCG=pl.lit("x")),
    "qid as numbers": lambda: table().with_columns(pl.col("qid").cast(pl.Int64)),
    "system as category": lambda: table().with_columns(pl.col("system").cast(pl.Categorical)),
    "null system": lambda: table().with_columns(system=pl.lit(None, dtype=pl.String)),
    "text items": lambda: table().with_columns(items=pl.lit("x")),
    "negative items": lambda: table().with_columns(items=pl.lit(-5)),
    "huge items": lambda: table().with_columns(items=pl.lit(2**62)),
    "more relevant than items": lambda: table().with_columns(relevant=pl.lit(30)),
    "null relevant": lambda: table().with_columns(relevant=pl.lit(None, dtype=pl.Int64)),
    "pandas": lambda: pd.DataFrame(table().to_dict(as_series=False)),
    "lazy": lambda: table().lazy(),
    "dict": lambda: table().to_dict(as_series=False),
    "None": lambda: None,
    "array": lambda: np.zeros((3, 3)),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_score_tables(name: str) -> None:
    faults = {}
    for kind, make in TABLES.items():
        try:
            ANALYSES[name](make())
        except RankboundError:
            pass
        except Exception as error:  # whatever it is, it is not ours
            faults[kind] = f"{type(error).__name__}: {str(error)[:90]}"
    assert not faults
