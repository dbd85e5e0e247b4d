"""Metrics in boosting: the time of `lightgbm_metric` and `xgboost_metric` compared with that of a boosting round.

The metric evaluates as many rows as the trees are trained on. Both times are those of one process, in turn: a round
with the metric of the libraries' own switched off, then the metric on the scores of that round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rankbound as rb
from benchmarks.comparison import is_installed, missing
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.records import Finding, Row
from benchmarks.timing import Work
from rankbound.integrations import lightgbm_metric, xgboost_metric

__all__ = ["CURVES", "INPUTS", "MEASURES", "run"]

INPUTS = (
    "1,000,000 generated rows with 20 features in 10,000 queries of 20 to 180 documents, labels 0 to 4; default "
    "settings of LightGBM (lambdarank) and XGBoost (rank:ndcg), all threads; the metric evaluates all rows"
)
MEASURES: dict[str, float | None] = {
    "nDCG@10": 20.0,
    "EM(nDCG@10)": 20.0,
    "RR@10": 20.0,
    "AP": 20.0,
}  # with the bar: 1/20 is 5 % of a round
_FEATURES = 20


class Timing(NamedTuple):
    """Seconds of a round and of the metric after it, the scores, and the value of the metric."""

    round: float
    metric: float
    scores: Any
    value: float


def run(quick: bool) -> Iterator[Finding]:
    """Yield a row per library and measure, then the growth with the number of queries."""
    yield from _rows(quick)
    yield from growth_of(__name__, CURVES, quick)


def _rows(quick: bool) -> Iterator[Finding]:
    features, labels, sizes = _data(50 if quick else 10_000)
    lists = rb.Lists(labels, np.concatenate(([0], np.cumsum(sizes))))
    for library, boost in (("lightgbm", _lightgbm), ("xgboost", _xgboost)):
        if not is_installed(library):
            yield missing(library)
            continue
        for measure, bar in MEASURES.items():
            timings = list(boost(features, lists, measure, quick))
            value = rb.evaluate(lists.with_scores(timings[-1].scores), measures=[measure]).mean()[measure]
            counted = timings[1:]  # the first round includes the set-up of both
            metric, of_round = min(timing.metric for timing in counted), min(timing.round for timing in counted)
            yield Row(
                f"{measure} in {library}", metric, f"a round of {library}", of_round, bar,
                difference=abs(timings[-1].value - value), tolerance=1e-12,
                note=f"{metric / of_round:.1%} of the time of a round",
            )  # fmt: skip


def _data(queries: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    sizes = rng.integers(20, 181, queries)
    features = rng.normal(size=(int(sizes.sum()), _FEATURES)).astype(np.float32)
    relevance = features[:, 0] + features[:, 1] * features[:, 2] + rng.normal(size=len(features))
    return features, np.clip(np.round(relevance), 0, 4).astype(np.int32), sizes


def _lightgbm(features: Any, lists: rb.Lists, measure: str, quick: bool) -> Iterator[Timing]:
    import lightgbm

    data = lightgbm.Dataset(features, lists.labels, group=lists.sizes)
    threads = 1 if quick else 0  # 0 uses all
    settings = {"objective": "lambdarank", "metric": "None", "verbose": -1, "num_threads": threads}
    booster = lightgbm.Booster(settings, data)
    metric = lightgbm_metric(measure)
    for _ in range(_rounds(quick)):
        of_round = _seconds(booster.update)
        yield _timed(of_round, _training_scores(booster), lambda scores: metric(scores, data)[1])


def _training_scores(booster: Any) -> Any:
    """Return the scores of the training data that LightGBM passes to a metric."""
    seen = []

    def keep(scores: Any, _: Any) -> tuple[str, float, bool]:
        seen.append(scores)
        return "", 0.0, True

    booster.eval_train(keep)
    return seen[0]


def _xgboost(features: Any, lists: rb.Lists, measure: str, quick: bool) -> Iterator[Timing]:
    import xgboost

    matrix = xgboost.DMatrix(features, lists.labels, qid=lists.query_of_item)
    booster = xgboost.Booster({"objective": "rank:ndcg", "nthread": 1 if quick else 0}, [matrix])
    metric = xgboost_metric(measure)
    for number in range(_rounds(quick)):
        of_round = _seconds(partial(booster.update, matrix, number))
        scores = booster.predict(matrix, output_margin=True)  # XGBoost passes them to a metric
        yield _timed(of_round, scores, lambda scores: metric(scores, matrix)[1])


def _rounds(quick: bool) -> int:
    return 3 if quick else 8


def _timed(of_round: float, scores: Any, metric: Callable[[Any], float]) -> Timing:
    values: list[float] = []
    # the threads of a library wait actively for a moment after a round, and slow down what comes first
    seconds = min(_seconds(lambda: values.append(metric(scores))) for _ in range(3))
    return Timing(of_round, seconds, scores, values[0])


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# ---- growth ----------------------------------------------------------------------------------------------------------

_MEASURE = "nDCG@10"
Scored = tuple[rb.Lists, Any]


def _scored(queries: int, _: Path) -> Scored:
    features, labels, sizes = _data(queries)
    return rb.Lists(labels, np.concatenate(([0], np.cumsum(sizes)))), features[:, 0].astype(np.float64)


def _by_metric(made: Scored) -> Work:
    lists, scores = made
    metric, sizes = lightgbm_metric(_MEASURE), lists.sizes
    return lambda: metric(lists.labels, scores, None, sizes)


def _by_evaluate(made: Scored) -> Work:
    lists, scores = made
    return lambda: rb.evaluate(lists.with_scores(scores), measures=[_MEASURE]).mean()


CURVES = (
    Curve(
        f"{_MEASURE} of one round", "queries", (1_250, 2_500, 5_000, 10_000), (20, 40), _scored,
        {OURS: Implementation(_by_metric), f"{OURS}, evaluate in every round": Implementation(_by_evaluate)},
    ),
)  # fmt: skip
