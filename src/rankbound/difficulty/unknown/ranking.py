"""UnknownRanking: the ranking of a run, of which some documents have labels that nobody knows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.measures import Measure, Ranked, rank, values
from rankbound.measures.discounts import Discounted
from rankbound.protocol import TIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

MOST_GRADES = 64

Labels: TypeAlias = "NDArray[np.int64] | NDArray[np.float64]"


def check_grades(grades: ArrayLike) -> Labels:
    """The labels that a document without a judgment may have: ascending, 0 among them; or ArgumentError."""
    given = np.asarray(grades)
    if given.ndim != 1 or len(given) == 0 or given.dtype.kind not in "iuf" or not np.isfinite(given).all():
        raise ArgumentError(f"grades must be finite numbers, at least one, got {grades!r}")
    if given.min() < 0:
        raise ArgumentError(f"grades must not be negative, got {given.min():g}")
    distinct = np.unique(np.append(given, 0))
    if len(distinct) > MOST_GRADES:
        raise ArgumentError(f"grades must be at most {MOST_GRADES} different labels, got {len(distinct)}")
    return distinct


def grades_of(labels: Sequence[Labels] | Labels) -> Labels:
    """The grades of judgments: 0 and every label above it; 0 and 1 where nothing has such a label."""
    distinct = np.unique(np.maximum(np.concatenate(labels) if isinstance(labels, list) else labels, 0))
    if len(distinct) > MOST_GRADES:
        raise DataError(
            f"the judgments have {len(distinct)} different labels; give the grades that a document without a judgment "
            f"may have, at most {MOST_GRADES}"
        )
    return np.append(distinct, 1) if distinct.max(initial=0) == 0 else np.union1d(distinct, [0])


class UnknownRanking:
    """A run in ranked order, in flat arrays with one entry per document.

    The labels of returned documents without a judgment are unknown, down to the depth and what ties with it; their
    entries in ``labels`` are 0. ``position`` is that in the lists it was made from. Documents tie in blocks: ``above``
    counts the documents above a document's block and ``size`` those inside it. ``plain`` gives the values of measures
    for the run as it is, where somebody has them already.
    """

    def __init__(
        self,
        lists: Lists,
        ties: str = TIES[0],
        depth: int | None = None,
        plain: Callable[[Measure], NDArray[np.float64]] | None = None,
    ) -> None:
        kept = np.arange(len(lists.labels))
        if lists.candidates is not None:  # candidates that are neither returned nor judged are no part of the ranking
            if lists.depths is not None and lists.judged is not None:
                kept = np.flatnonzero(lists.returned | lists.judged)
            lists = lists.without_added_candidates()
        distinct = Lists.of_checked_arrays(
            labels=np.arange(len(lists.labels)),  # so that every tie counts, whatever the labels are
            offsets=lists.offsets,
            scores=lists.scores,
            ids=lists.ids,
            qids=lists.qids,
            depths=lists.depths,
        )
        probe = rank(distinct, ties, depth)
        assert probe.order is not None
        self.order = probe.order
        self.position = kept[self.order]
        self.offsets, self.sizes, self.depths = probe.offsets, probe.sizes, probe.depths
        self.labels = np.maximum(lists.labels[self.order], 0)
        self.query = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.rank = np.arange(1, len(self.order) + 1) - self.offsets[self.query]
        known = np.ones(len(self.order), dtype=bool) if lists.judged is None else lists.judged[self.order]
        self.ranked = probe.with_labels(self.labels)
        self._with_label: dict[float, Ranked] = {0: self.ranked}  # unknown ones have label 0 there
        self.ties, self.depth, self._lists, self._plain = ties, depth, lists, plain
        self.above, self.size = self.rank - 1, np.ones(len(self.order), dtype=np.int64)
        if probe.tied is not None:
            tied = probe.tied
            self.above = self.above.copy()
            self.above[tied.items] = (tied.start - self.offsets[tied.query])[tied.block_of_item]
            self.size[tied.items] = tied.size[tied.block_of_item]
        self.has_ties = probe.tied is not None
        self.is_unknown = ~known & (self.above < self.depths[self.query])
        self.unknown = np.flatnonzero(self.is_unknown)

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def judgments(self) -> Ranked:
        """The same ranking with what it knows about judgments."""
        return rank(self._lists, self.ties, self.depth)

    def values_with_zero(self, measure: Measure) -> NDArray[np.float64]:
        """Values with label 0 for the unknown documents; 0 where the measure is not defined."""
        return values(self.judgments, measure) if self._plain is None else self._plain(measure)

    @cached_property
    def unknown_counts(self) -> NDArray[np.int64]:
        """Documents of each query whose labels are unknown."""
        return np.bincount(self.unknown_query, minlength=len(self))

    @cached_property
    def unknown_starts(self) -> NDArray[np.int64]:
        """Where the unknown documents of each query begin among all of them."""
        return np.concatenate(([0], np.cumsum(self.unknown_counts)))

    @cached_property
    def unknown_query(self) -> NDArray[np.int64]:
        """The query of each unknown document."""
        return self.query[self.unknown]

    @cached_property
    def unknown_nth(self) -> NDArray[np.int64]:
        """How many unknown documents of its query come before each of them."""
        return np.arange(len(self.unknown)) - self.unknown_starts[self.unknown_query]

    def sum(self, terms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum per query of one number per document."""
        return np.bincount(self.query, terms, minlength=len(self)).astype(np.float64, copy=False)

    def filled(self, labels: ArrayLike) -> Labels:
        """All labels, with these (one, or one per unknown document) for the unknown ones."""
        every = self.labels.astype(np.result_type(self.labels, np.asarray(labels)))
        every[self.unknown] = labels
        return np.asarray(every)

    def with_unknown(self, labels: ArrayLike) -> Ranked:
        """The ranking in which the unknown documents have these labels; that of a single label is kept."""
        if np.ndim(labels) > 0:
            return self.ranked.with_labels(self.filled(labels))
        label = np.asarray(labels).item()
        if label not in self._with_label:
            self._with_label[label] = self.ranked.with_labels(self.filled(label))
        return self._with_label[label]

    def weights(self, measure: Measure, items: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """Mean discount of each document (or of some) over the orders of its block; 0 beyond depth and cutoff."""
        definition = cast(Discounted, measure.definition)
        cut = self.depths if measure.cutoff is None else np.minimum(self.depths, measure.cutoff)
        table = definition.discount.table(int(cut.max(initial=0)), definition.discount_parameter(measure))
        every = slice(None) if items is None else items
        above, size, cut = self.above[every], self.size[every], cut[self.query[every]]
        if not self.has_ties:
            return np.asarray(np.where(above < cut, np.append(table, 0.0)[np.minimum(above, len(table))], 0.0))
        sums = np.concatenate(([0.0], np.cumsum(table)))
        single = np.append(table, 0.0)[np.minimum(above, len(table))] * (above < cut)
        shared = (sums[np.minimum(above + size, cut)] - sums[np.minimum(above, cut)]) / size
        return np.asarray(np.where(size == 1, single, shared))  # a difference of sums has a larger rounding error
