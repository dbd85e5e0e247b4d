"""Measures of judgments, which tell documents that were judged from those that were not.

Such a measure is a sum over the relevant documents. What a relevant document adds depends on how many documents of each
kind stand above it: relevant ones, others that were judged, those of the pool that were not judged (labels below 0),
and those that have no judgment at all. Where documents tie, the mean of what they add is exact.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.definition import Walked
from rankbound.measures.label_counts import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked


@dataclass(frozen=True, slots=True, eq=False)
class KindCounts:
    """How many documents are relevant, judged not relevant, and in the pool but not judged: arrays."""

    relevant: NDArray[np.int64]
    other: NDArray[np.int64]
    pooled: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TiedGroups:
    """Groups of documents that tie with each other, of which at least one is relevant; a group can be one document.

    All orders of a group are equally likely, and ``visible`` of its ``size`` documents have a rank that counts. Counts
    are those of documents ``inside`` the group, ``above`` it, and of the ``whole`` query.
    """

    query: NDArray[np.int64]
    ranks_above: NDArray[np.int64]
    size: NDArray[np.int64]
    visible: NDArray[np.int64]
    inside: KindCounts
    above: KindCounts
    whole: KindCounts

    @classmethod
    def of_rankings(cls, ranked: Ranked, rel: float) -> TiedGroups:
        """The groups of ranked lists whose ties distinguish judged documents."""
        relevant = ranked.labels >= rel
        start, size = _starts_and_sizes(ranked, relevant)
        query, rank = ranked.locate(start)
        kinds = _kinds_of_documents(ranked, relevant)
        first, last = ranked.offsets[query], ranked.offsets[query + 1]
        return cls(
            query,
            rank - 1,
            size,
            np.minimum(size, ranked.depths[query] - rank + 1),
            _counts_between(kinds, start, start + size),
            _counts_between(kinds, first, start),
            _counts_between(kinds, first, last),
        )

    @classmethod
    def of_random_rankings(cls, counts: KindCounts, sizes: NDArray[np.int64], depths: NDArray[np.int64]) -> TiedGroups:
        """One group for each query, which holds all its documents."""
        none = np.zeros(len(sizes), dtype=np.int64)
        return cls(np.arange(len(sizes)), none, sizes, depths, counts, KindCounts(none, none, none), counts)


def _starts_and_sizes(ranked: Ranked, relevant: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Flat positions and sizes of the groups that have a relevant document with a rank that counts."""
    single = np.flatnonzero(relevant)
    if ranked.tied is None:
        start, size = single, np.ones(len(single), dtype=np.int64)
    else:
        in_block = np.zeros(len(relevant), dtype=bool)
        in_block[ranked.tied.items] = True
        single = single[~in_block[single]]
        block = np.flatnonzero(ranked.tied.sum(relevant))
        start = np.concatenate((single, ranked.tied.start[block]))
        size = np.concatenate((np.ones(len(single), dtype=np.int64), ranked.tied.size[block]))
    query, rank = ranked.locate(start)
    seen = rank <= ranked.depths[query]
    return start[seen], size[seen]


def _kinds_of_documents(ranked: Ranked, relevant: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], ...]:
    """Which documents are relevant, judged not relevant, and in the pool but not judged."""
    below_zero = ranked.raw_labels < 0
    return relevant, ranked.judged & ~below_zero & ~relevant, ranked.judged & below_zero


def _counts_between(
    kinds: tuple[NDArray[np.bool_], ...], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> KindCounts:
    running = (np.concatenate(([0], np.cumsum(kind))) for kind in kinds)
    return KindCounts(*(each[stop] - each[start] for each in running))


class JudgmentMeasure(Walked):
    """A sum over the relevant documents, over their number; labels below 0 are pooled documents without a judgment."""

    cutoff = "none"
    reads_negative_labels = True

    def levels(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """1 for relevant documents, 0 for others, -1 for those of the pool that were not judged."""
        return np.where(labels >= measure.rel, 1.0, np.where(labels < 0, -1.0, 0.0))

    @abstractmethod
    def mean_sums(self, groups: TiedGroups) -> NDArray[np.float64]:
        """Mean over the orders of each group of what its relevant documents add."""

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The exact mean over the orders of ties."""
        if ranked.has_gaps:  # then ties between judged and unjudged documents matter, too
            ranked = ranked.detailed
        return self._means(TiedGroups.of_rankings(ranked, measure.rel), ranked.counts.relevant(measure.rel))

    def values_in_order(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The value of an order without ties, for which every group is one document."""
        return self._means(TiedGroups.of_rankings(ranked, measure.rel), ranked.counts.relevant(measure.rel))

    def expected_values(self, counts: LabelCounts, kinds: KindCounts) -> NDArray[np.float64]:
        """The mean over all orders of each query."""
        return self._means(TiedGroups.of_random_rankings(kinds, counts.sizes, counts.depths), kinds.relevant)

    def _means(self, groups: TiedGroups, relevant: NDArray[np.int64]) -> NDArray[np.float64]:
        sums = np.bincount(groups.query, self.mean_sums(groups), minlength=len(relevant))
        return ratio(sums, relevant)

    def has_loss(self, measure: Measure) -> bool:
        """Judgments that are missing have no gradient."""
        return False


def counts_of_levels(counts: LabelCounts, levels: NDArray[np.float64]) -> KindCounts:
    """How many documents of each kind every query has, from the levels of its runs."""
    return KindCounts(*(counts.sum(counts.counts * (levels == level)).astype(np.int64) for level in (1, 0, -1)))


def count_of_level(case: Any, numbers: Any, level: float) -> Any:
    """The number that belongs to a level of a case, 0 if the case has no such level."""
    return sum(number for label, number in zip(case.labels, numbers, strict=True) if label == level)
