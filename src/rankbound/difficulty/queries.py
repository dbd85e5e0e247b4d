"""Difficulty of the queries of a data set, weights that follow from it, and types of queries."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import floats, is_between, names_of
from rankbound.difficulty.bounding import Difficulty, NullDistributions, get_bounding
from rankbound.difficulty.bounds import bounds_of, plain_measure
from rankbound.errors import ArgumentError
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, Measure

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["QUERY_TYPES", "difficulty_of", "difficulty_weights", "query_types"]


def difficulty_of(measure: Measure, counts: LabelCounts, ranker_strength: float | None = None) -> Difficulty:
    """What any ranking of each query could score under the plain measure, without its bounding.

    With ``ranker_strength`` the distributions are those of a ranker that prefers a relevant item to another with this
    probability, instead of those of random ranking. They are computed when they are first used.
    """
    plain = measure.plain
    bounds = bounds_of(plain, counts)

    @lru_cache(maxsize=1)
    def distributions() -> NullDistributions:
        from rankbound.difficulty.distribution.many import distributions_of

        return distributions_of(plain, counts, ranker_strength=0.5 if ranker_strength is None else ranker_strength)

    return Difficulty(
        bounds.worst,
        bounds.expected,
        bounds.best,
        distributions,
        plain.definition.lower_is_better,
        plain.definition.floor,
    )


def difficulty_weights(
    labels: ArrayLike,
    qid: ArrayLike,
    *,
    measure: str | Measure = "nDCG",
    bounding: str = "expectation-max",
    per: str = "query",
    normalize: bool = False,
) -> NDArray[np.float64]:
    """Weights that make any trainer difficulty-aware: 1/(B-W), 1/E or 1/(B-E) for each query.

    An affine bounding of a loss is the loss times this weight plus a constant. So the weights work in every trainer
    that accepts query or sample weights (LightGBM, XGBoost, CatBoost, scikit-learn). Uninformative queries get 0.

    ``per="query"`` returns one weight per query in order of first appearance, ``per="row"`` one per row. ``normalize``
    scales the weights to mean 1 over the informative queries, which leaves the trainer's step size as it is.

    >>> difficulty_weights([1, 0, 1, 1, 1, 0, 0, 0], ["a"] * 2 + ["b"] * 2 + ["c"] * 4, measure="P@1").round(3).tolist()
    [2.0, 0.0, 1.333]
    """
    if per not in ("query", "row"):
        raise ArgumentError(f"per must be 'query' or 'row', got {per!r}")
    qid = names_of("qid", qid)
    lists = Lists.from_qid(labels, qid)
    difficulty = difficulty_of(plain_measure(measure), LabelCounts.from_lists(lists))
    weights = get_bounding(bounding).weight(difficulty)
    if normalize and (weights > 0).any():
        weights = weights / weights[weights > 0].mean()
    if per == "query":
        return weights
    names = np.asarray(lists.query_ids)
    order = np.argsort(names, kind="stable")
    return weights[order[np.searchsorted(names, qid, sorter=order)]]


QUERY_TYPES = ("ideal", "informative", "uninformative", "hard", "easy")


def query_types(
    value: ArrayLike,
    expected: ArrayLike,
    best: ArrayLike = 1.0,
    *,
    fraction: float = 0.1,
    low: float = 1 / 3,
    high: float = 2 / 3,
) -> NDArray[Any]:
    """Type of each query by how a reasonable ranker (``value``, the mean over systems) compares with a random one.

    Queries are sorted by the gap value - expected. The ``fraction`` with the largest gaps is *ideal* and the
    ``fraction`` with the smallest is *uninformative*; of the latter, a query is *hard* if value and expected are both
    below ``low`` times the best value, and *easy* if both are above ``high`` times it. All others are *informative*.

    Source: Karmaker & Feng, Joint upper & lower bound normalization for IR evaluation. They take 1,000 of 10,000
    queries and show hard and easy queries in a figure without numbers; the defaults of ``low`` and ``high`` are ours.

    >>> query_types([0.9, 0.5, 0.1, 0.95], [0.2, 0.3, 0.1, 0.9], fraction=0.25).tolist()
    ['ideal', 'informative', 'hard', 'informative']
    """
    if not is_between(fraction, 0, 1) or fraction > 0.5:
        raise ArgumentError(f"fraction must be greater than 0 and at most 0.5, got {fraction}")
    inputs = {"value": value, "expected": expected, "best": best}
    arrays = [floats(name, numbers, ndim=None) for name, numbers in inputs.items()]
    try:
        value, expected, best = np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = [array.shape for array in arrays]
        raise ArgumentError(f"value, expected and best must have one entry per query, got shapes {shapes}") from None
    if value.ndim != 1:
        raise ArgumentError(f"value, expected and best must have one number per query, got shape {value.shape}")
    gap = value - expected
    order = np.argsort(gap, kind="stable")
    count = round(fraction * len(gap))
    types = np.full(len(gap), "informative", dtype="<U13")
    types[order[len(gap) - count :]] = "ideal"
    smallest = order[:count]
    types[smallest] = "uninformative"
    types[smallest[np.maximum(value, expected)[smallest] < low * best[smallest]]] = "hard"
    types[smallest[np.minimum(value, expected)[smallest] > high * best[smallest]]] = "easy"
    return types
