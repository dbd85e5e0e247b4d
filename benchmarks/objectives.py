"""Boosting objectives: ours in LightGBM against its lambdarank, ours in XGBoost against its rank:ndcg.

The trees and rounds are the same. Compared are the time and the nDCG@10 of test queries with gain 2^label - 1. LETOR
4.0's MQ2008, fold 1, is included where RANKBOUND_DATA has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import rankbound as rb
from benchmarks.comparison import is_installed, missing
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.datasets import is_available
from benchmarks.losses import one_thread
from benchmarks.records import Finding, Row
from benchmarks.timing import Work, best_of
from rankbound.data import load_fold
from rankbound.data.letor import LetorData
from rankbound.data.synthetic import synthetic_letor
from rankbound.losses import (
    LambdaRankLoss,
    NDCGLoss,
    RankingLoss,
    get_loss,
    lightgbm_objective,
    xgboost_objective,
)
from rankbound.losses.objectives import DEFAULT_OBJECTIVE

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = (
    "300 generated queries, and as many to test on, of 5 to 120 documents with 46 features, labels 0 to 2; MQ2008 fold "
    "1 where available; 100 rounds of trees with 31 leaves (LightGBM) or of depth 5 (XGBoost), learning rate 0.05, "
    "set-up of the data included; one thread"
)
ROUNDS = 100
LIGHTGBM = {
    "num_leaves": 31, "learning_rate": 0.05, "min_data_in_leaf": 20, "verbose": -1, "seed": 0, "deterministic": True,
    "num_threads": 1,
}  # fmt: skip
XGBOOST = {"max_depth": 5, "eta": 0.05, "tree_method": "hist", "seed": 0, "nthread": 1}
_MEASURE = "nDCG(dcg='exp-log2')@10"
LOSSES: dict[str, RankingLoss] = {
    "our default": get_loss(DEFAULT_OBJECTIVE),
    "NDCGLoss": NDCGLoss(),
    "NDCGLoss(bounding='expectation-max')": NDCGLoss(bounding="expectation-max"),
    "NDCGLoss(bounding='min-max')": NDCGLoss(bounding="min-max"),
    "LambdaRankLoss('nDCG')": LambdaRankLoss("nDCG"),
    "LambdaRankLoss('nDCG', bounding='expectation-max')": LambdaRankLoss("nDCG", bounding="expectation-max"),
}

Scorer = Callable[[LetorData], Any]  # the trained model: scores of other data


def in_lightgbm(data: LetorData, loss: RankingLoss | None, rounds: int = ROUNDS) -> Work:
    """Train LightGBM with a loss of ours, or with its own lambdarank."""
    import lightgbm

    objective = "lambdarank" if loss is None else lightgbm_objective(loss)
    features, lists = np.asarray(data.features), data.lists

    def work() -> Scorer:
        dataset = lightgbm.Dataset(features, lists.labels, group=lists.sizes)
        booster = lightgbm.train({**LIGHTGBM, "objective": objective}, dataset, num_boost_round=rounds)
        return lambda test: booster.predict(np.asarray(test.features))

    return work


def in_xgboost(data: LetorData, loss: RankingLoss | None, rounds: int = ROUNDS) -> Work:
    """Train XGBoost with a loss of ours, or with its own rank:ndcg."""
    import xgboost

    settings: dict[str, Any] = {"objective": "rank:ndcg"} if loss is None else {}
    objective = None if loss is None else xgboost_objective(loss)
    features, lists = np.asarray(data.features), data.lists

    def work() -> Scorer:
        matrix = xgboost.DMatrix(features, lists.labels, nthread=1)
        matrix.set_group(lists.sizes)
        booster = xgboost.train({**XGBOOST, **settings}, matrix, num_boost_round=rounds, obj=objective)
        return lambda test: booster.predict(xgboost.DMatrix(np.asarray(test.features)), output_margin=True)

    return work


# module, training function, built-in objective, bar of our default
LIBRARIES = (("lightgbm", in_lightgbm, "lambdarank", 0.5), ("xgboost", in_xgboost, "rank:ndcg", 1.0))


def quality_of(scorer: Scorer, test: LetorData) -> float:
    """Return the mean nDCG@10 with gain 2^label - 1 over the queries with relevant items."""
    lists = rb.Lists(test.lists.labels, test.lists.offsets, np.asarray(scorer(test), dtype=np.float64))
    return rb.evaluate(lists, measures=[_MEASURE]).mean()[_MEASURE]


def sets(quick: bool) -> Iterator[tuple[str, LetorData, LetorData]]:
    """Yield name, training data and test data."""
    queries = 20 if quick else 300
    data = synthetic_letor(2 * queries, 46)  # one seed for both, because it also draws what makes a document relevant
    yield "generated", data.take(range(queries)), data.take(range(queries, 2 * queries))
    if not quick and is_available("mq2008"):
        fold = load_fold("mq2008", 1)
        yield "MQ2008", fold.train, fold.test


def run(quick: bool) -> Iterator[Finding]:
    """Yield rows of each library and data set, then the growth with the number of queries."""
    with one_thread():
        yield from _rows(quick)
        yield from growth_of(__name__, CURVES, quick)


def _rows(quick: bool) -> Iterator[Finding]:
    rounds = 3 if quick else ROUNDS
    for name, training, test in sets(quick):
        for library, train, own, bar in LIBRARIES:
            if not is_installed(library):
                yield missing(library)
                continue
            chosen = LOSSES if library == "lightgbm" and not quick else dict(list(LOSSES.items())[:2])
            works = {loss: train(training, loss, rounds) for loss in (None, *chosen.values())}
            quality = {loss: quality_of(work(), test) for loss, work in works.items()}
            times = best_of(works, 1 if quick else 3)
            for title, loss in chosen.items():
                is_default = title == "our default"
                yield Row(
                    f"{title} in {library}, {name}", times[loss], f"{own} of {library}", times[None],
                    bar if is_default else None,
                    note=f"test nDCG@10 {quality[loss]:.4f}, peer {quality[None]:.4f}",
                )  # fmt: skip


def _curve(library: str, train: Callable[..., Work], own: str) -> Curve:
    ways = {OURS: get_loss(DEFAULT_OBJECTIVE), f"{own} of {library}": None}
    return Curve(
        f"20 rounds of {library}", "queries", (125, 250, 500, 1_000, 2_000), (5, 10),
        lambda size, _: synthetic_letor(size, 46),
        {name: Implementation(partial(train, loss=loss, rounds=20), module=library) for name, loss in ways.items()},
    )  # fmt: skip


CURVES = tuple(_curve(library, train, own) for library, train, own, _ in LIBRARIES)
