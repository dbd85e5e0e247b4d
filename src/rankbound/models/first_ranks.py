"""Values of measures that depend on nothing but the first items of a ranking and the label counts of the query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankbound.difficulty.bounding import get_bounding
from rankbound.difficulty.ties import bounded_values
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, Ranked, values
from rankbound.measures.additive import Additive
from rankbound.measures.cascade import Cascade
from rankbound.measures.precision_sum import PrecisionSum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rankbound.difficulty.bounding import Difficulty
    from rankbound.measures.measure import Measure

__all__ = ["first_items_kernel", "needs_first_ranks_only", "ranked_first_items", "value_of_ranking"]

_SMALL_CUTOFF = 100  # up to which selecting the first items is faster than sorting all


def needs_first_ranks_only(measure: Measure) -> bool:
    """Whether the value depends on nothing but the items down to a small cutoff, their ties, and the label counts.

    >>> from rankbound.measures.measure import parse_measure
    >>> [needs_first_ranks_only(parse_measure(name)) for name in ("nDCG@10", "EM(AP@10)", "AP", "DB(P@5)")]
    [True, True, False, False]
    """
    definition, bounding = measure.plain.definition, measure.bounding
    if measure.cutoff is None or measure.cutoff > _SMALL_CUTOFF:
        return False
    if bounding != "none" and not get_bounding(bounding).affine:
        return False  # it is averaged over the orders of ties, for which the whole query counts
    if isinstance(definition, Additive):
        return not definition.depends_on_returned
    return isinstance(definition, (Cascade, PrecisionSum))


def first_items_kernel() -> Any:
    """Return the kernel that selects the first items of queries; None if numba is missing, which only costs time."""
    try:
        from rankbound.models.top_kernel import first_items
    except ImportError:
        return None
    return first_items


def ranked_first_items(
    labels: NDArray[Any], scores: NDArray[Any], offsets: NDArray[np.int64], counts: LabelCounts
) -> Ranked:
    """Return the first items of queries, in ranked order, as a ranking; ``counts`` are those of the whole queries."""
    ordered = Lists.of_checked_arrays(labels=labels, offsets=offsets, scores=scores)
    ranked = Ranked(ordered, is_complete=True)
    ranked.__dict__["counts"] = counts
    return ranked


def value_of_ranking(measure: Measure, ranked: Ranked, difficulty: Difficulty | None) -> NDArray[np.float64]:
    """Return the value of each query, with the bounding of the measure, for which ``difficulty`` is needed."""
    value = values(ranked, measure.plain)
    if measure.bounding == "none":
        return value
    assert difficulty is not None, "a bounding needs the difficulty of the queries"
    return bounded_values(get_bounding(measure.bounding), measure.plain, ranked, value, difficulty)
