"""Difficulty of the queries at hand: bounds now, distributions when asked for."""

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
    """What any ranking of each query could score under the measure (its bounding, if it has one, is left out).

    ``ranker_strength`` replaces the random order of the distributions by a ranker whose relevant items win a comparison
    with this probability.
    """
    plain = measure.plain
    found = bounds_of(plain, counts)

    @lru_cache(maxsize=1)
    def distributions() -> NullDistributions:
        from rankbound.difficulty.distribution.many import distributions_of

        return distributions_of(plain, counts, ranker_strength=0.5 if ranker_strength is None else ranker_strength)

    return Difficulty(
        found.worst,
        found.expected,
        found.best,
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
    """Weights that make any trainer difficulty-aware: 1/(B-W), 1/E or 1/(B-E) of each query.

    An affine bounding of a loss is the loss times this weight plus a constant, so the weights can go to whatever takes
    query or sample weights (LightGBM, XGBoost, CatBoost, scikit-learn). Queries with nothing to learn get 0.

    ``per="query"`` gives one weight per query in order of first appearance, ``per="row"`` one per row. ``normalize``
    scales them to mean 1 over the queries that teach something, so that a trainer's step size keeps its meaning.

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
    share: float = 0.1,
    low: float = 1 / 3,
    high: float = 2 / 3,
) -> NDArray[Any]:
    """Type of each query by how a reasonable ranker (``value``, the mean over systems) does against a random one.

    Of the gaps value - expected, the largest ``share`` are *ideal* and the smallest ``share`` *uninformative*; the
    latter are *hard* where value and expected both lie below ``low`` of the best, *easy* where both lie above
    ``high``. All others are *informative*. The upper & lower bound paper draws the sets this way (1,000 of 10,000
    queries) and the picture of hard and easy without numbers; low and high are ours.

    >>> query_types([0.9, 0.5, 0.1, 0.95], [0.2, 0.3, 0.1, 0.9], share=0.25).tolist()
    ['ideal', 'informative', 'hard', 'informative']
    """
    if not is_between(share, 0, 1) or share > 0.5:
        raise ArgumentError(f"share must lie above 0 and at most at 0.5, got {share}")
    given = {"value": value, "expected": expected, "best": best}
    arrays = [floats(name, part, ndim=None) for name, part in given.items()]
    try:
        value, expected, best = np.broadcast_arrays(*arrays)
    except ValueError:
        shapes = [part.shape for part in arrays]
        raise ArgumentError(f"value, expected and best must have one entry per query, got shapes {shapes}") from None
    if value.ndim != 1:
        raise ArgumentError(f"value, expected and best must have one number per query, got shape {value.shape}")
    gap = value - expected
    order = np.argsort(gap, kind="stable")
    few = round(share * len(gap))
    types = np.full(len(gap), "informative", dtype="<U13")
    types[order[len(gap) - few :]] = "ideal"
    dull = order[:few]
    types[dull] = "uninformative"
    types[dull[np.maximum(value, expected)[dull] < low * best[dull]]] = "hard"
    types[dull[np.minimum(value, expected)[dull] > high * best[dull]]] = "easy"
    return types
