"""Ranked: the labels of every query in the order that the scores give, with what ties leave open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.lists import sort_within_queries
from rankbound.measures.label_counts import LabelCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists

__all__ = ["TIES", "Hits", "Ranked", "TiedBlocks"]

TIES = ("average", "input", "docid")


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Ranks at which a relevant item can stand, one entry per rank.

    Without ties these are the relevant items: ``probability`` is 1 and ``nth`` counts the relevant items up to this
    one.
    In a block of tied items every order is equally likely: ``probability`` is the share of relevant items in the block,
    and ``nth`` the mean count of relevant items up to this rank given that a relevant one stands there.
    """

    query: NDArray[np.int64]
    rank: NDArray[np.int64]  # from 1
    probability: NDArray[np.float64]
    nth: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TiedBlocks:
    """Runs of items with one score but different labels; positions are those in the ranked flat arrays."""

    query: NDArray[np.int64]
    start: NDArray[np.int64]  # flat position of the block's first item
    size: NDArray[np.int64]
    items: NDArray[np.int64]  # flat positions of all items in blocks, block after block
    block_of_item: NDArray[np.int64]

    def sum(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sum per block of one number per ranked item."""
        return np.bincount(self.block_of_item, values[self.items], minlength=len(self.size)).astype(np.float64)

    def mean_over(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values with each tied block replaced by its mean."""
        averaged = values.copy()
        averaged[self.items] = (self.sum(values) / self.size)[self.block_of_item]
        return averaged


class Ranked:
    """Lists in ranked order. One sort serves all measures; what several measures need is computed once and kept.

    ``ties = "average"``: a measure is the mean over all orders of tied items. ``"input"``: tied items keep the order
    in which they came. ``"docid"``: as trec_eval does it, scores compared as 32-bit numbers and ties by item id,
    descending.
    """

    def __init__(self, lists: Lists, ties: str = "average", depth: int | None = None) -> None:
        if ties not in TIES:
            raise ArgumentError(f"ties must be one of {', '.join(TIES)}, got {ties!r}")
        if depth is not None and (not isinstance(depth, (int, np.integer)) or depth < 1):
            raise ArgumentError(f"depth must be a positive integer or None, got {depth!r}")
        if lists.scores is None:
            raise DataError("these lists carry no scores; give them with Lists(..., scores=) or lists.with_scores()")
        self.offsets = lists.offsets
        self.sizes = lists.sizes
        ranked = self.sizes if lists.depths is None else lists.depths
        self.depths = ranked if depth is None else np.minimum(ranked, depth)
        self._lists, self._depth = lists, depth

        scores = lists.scores
        if ties == "docid":
            largest = np.finfo(np.float32).max  # beyond it is as good as at it
            scores = np.clip(scores, -largest, largest).astype(np.float32)
        if lists.depths is not None:  # items that were not returned come last, whatever their score says
            scores = np.where(self._place() < np.repeat(lists.depths, self.sizes), scores, -np.inf)
        order = sort_within_queries(-scores, lists.offsets, stable=ties != "average")
        labels = lists.labels[order]
        self.labels = np.maximum(labels, 0) if labels.min(initial=0) < 0 else labels
        self.tied = None
        if ties != "input":
            blocks = _tied_blocks(scores[order], self.labels, self.offsets, self._query_of_item)
            if ties == "docid":
                if blocks is not None:
                    self.labels = _by_descending_id(self.labels, order, blocks, lists)
            else:
                self.tied = blocks
        self._hits: dict[float, Hits] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def counts(self) -> LabelCounts:
        """Label counts of each query."""
        return LabelCounts.from_lists(self._lists, self._depth)

    @cached_property
    def _query_of_item(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self)), self.sizes)

    def _place(self) -> NDArray[np.int64]:
        """Position of each item within its query, from 0."""
        return np.arange(len(self._query_of_item)) - self.offsets[self._query_of_item]

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Query and rank of flat positions."""
        query = self._query_of_item[positions]
        return query, positions - self.offsets[query] + 1

    def sum(self, query: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum per query of one number per entry."""
        return np.bincount(query, values, minlength=len(self)).astype(np.float64, copy=False)

    def cut(self, cutoff: int | None) -> NDArray[np.int64]:
        """Ranks per query that a measure with this cutoff can see."""
        return self.depths if cutoff is None else np.minimum(self.depths, cutoff)

    def spread(self, per_query: NDArray[np.int64], query: NDArray[np.int64]) -> Any:
        """One number per query, at each entry; a plain number where all queries have the same."""
        return per_query[query] if per_query.min(initial=0) != per_query.max(initial=0) else per_query[0]

    def weights(
        self, weigh: Callable[[NDArray[Any]], NDArray[np.float64]], cutoff: int | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Query, rank and weight of what stands within the cutoff and weighs something; ties are averaged."""
        cut = self.cut(cutoff)
        if self.tied is not None:
            averaged = self.tied.mean_over(weigh(self.labels))
            positions = np.flatnonzero(averaged != 0)
            query, rank = self.locate(positions)
            seen = rank <= cut[query]
            return query[seen], rank[seen], averaged[positions[seen]]
        if 4 * int(cut.sum()) < len(self.labels):  # few ranks are seen: look only there
            query = np.repeat(np.arange(len(self)), cut)
            rank = np.arange(1, len(query) + 1) - np.repeat(np.cumsum(cut) - cut, cut)
            labels = self.labels[self.offsets[query] + rank - 1]
            found = labels > 0
            return query[found], rank[found], weigh(labels[found])
        positions = np.flatnonzero(self.labels > 0)
        query, rank = self.locate(positions)
        if cut is not self.sizes:
            seen = rank <= self.spread(cut, query)
            positions, query, rank = positions[seen], query[seen], rank[seen]
        return query, rank, weigh(self.labels[positions])

    def hits(self, rel: float) -> Hits:
        """Where items with at least this label stand, over the whole list."""
        if rel not in self._hits:
            self._hits[rel] = self._find_hits(rel)
        return self._hits[rel]

    def _find_hits(self, rel: float) -> Hits:
        relevant = self.labels >= rel
        positions = np.flatnonzero(relevant)
        query, rank = self.locate(positions)
        first = np.searchsorted(positions, self.offsets[:-1])
        nth = np.arange(1, len(positions) + 1) - first[query]
        if self.tied is None:
            return Hits(query, rank, np.ones(len(rank)), nth.astype(np.float64))
        # leave out what stands in tied blocks, then put in every rank of the blocks that hold something relevant
        tied, block = self.tied, self.tied.block_of_item
        found = tied.sum(relevant)
        inside = np.zeros(len(self.labels), dtype=bool)
        inside[tied.items] = True
        clear = ~inside[positions]
        before = np.searchsorted(positions, tied.start) - first[tied.query]  # relevant items above the block
        open_ = found[block] > 0
        items, block = tied.items[open_], block[open_]
        among, size = found[block], tied.size[block]
        step = items - tied.start[block]  # 0 for the block's first rank
        return Hits(
            np.concatenate((query[clear], tied.query[block])),
            np.concatenate((rank[clear], items - self.offsets[tied.query[block]] + 1)),
            np.concatenate((np.ones(clear.sum()), among / size)),
            np.concatenate((nth[clear], before[block] + 1 + step * (among - 1) / np.maximum(size - 1, 1))),
        )


# ---- ties ------------------------------------------------------------------------------------------------------------


def _tied_blocks(
    scores: NDArray[Any], labels: NDArray[Any], offsets: NDArray[np.int64], query_of_item: NDArray[np.int64]
) -> TiedBlocks | None:
    """Blocks of neighbors with one score that hold different labels; equal labels in a tie change nothing."""
    if len(scores) < 2:
        return None
    with np.errstate(invalid="ignore"):
        same = scores[1:] == scores[:-1]
    same[offsets[(offsets > 0) & (offsets < len(scores))] - 1] = False  # across queries
    same &= scores[1:] != -np.inf  # items that were not returned have no rank
    if not same.any():
        return None
    mixed = same & (labels[1:] != labels[:-1])
    if not mixed.any():
        return None
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    start, stop = edges[0::2], edges[1::2] + 1  # items start..stop-1 share a score
    holds = np.searchsorted(np.flatnonzero(mixed), [start, stop - 1])
    start, stop = start[holds[1] > holds[0]], stop[holds[1] > holds[0]]
    size = stop - start
    block = np.repeat(np.arange(len(size)), size)
    items = np.arange(len(block)) - np.repeat(np.cumsum(size) - size, size) + start[block]
    return TiedBlocks(query_of_item[start], start, size, items, block)


def _by_descending_id(labels: NDArray[Any], order: NDArray[np.int64], blocks: TiedBlocks, lists: Lists) -> NDArray[Any]:
    """Labels with the items of each tied block in descending order of id."""
    if lists.ids is None:
        raise DataError("ties='docid' needs item ids, which these lists do not carry")
    ids = np.asarray(lists.ids[order[blocks.items]])
    _, code = np.unique(ids, return_inverse=True)
    inside = np.lexsort((-code, blocks.block_of_item))
    result = labels.copy()
    result[blocks.items] = labels[blocks.items[inside]]
    return result
