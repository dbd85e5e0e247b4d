"""Ranked: the labels of every query in the order of the scores, and the blocks of tied items.

`rank` sorts lists once for all measures, `complete` reads a ranking as a complete ranking of the candidates of each
query, and `tied_blocks` finds the items that tie. What several measures need is computed once and kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import labels_of
from rankbound.errors import DataError
from rankbound.lists import sort_within_queries
from rankbound.measures.combinatorics import arrangements, random_orders
from rankbound.measures.label_counts import LabelCounts
from rankbound.protocol import TIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists

LARGEST_DEPTH = 2**62  # beyond any list; a larger depth is the same
_BATCH = 2_000_000  # items of orders of ties that are evaluated together


def rank(lists: Lists, ties: str = TIES[0], depth: int | None = None) -> Ranked:
    """Rank the items of each query by their scores, down to a depth.

    ``ties = "average"``: a measure is the mean over all orders of tied items. ``"input"``: tied items keep the order
    of the input. ``"docid"``: trec_eval's order, scores compared as 32-bit numbers and ties by item id, descending; ids
    that are numbers are compared as text, as trec_eval reads them.

    >>> from rankbound.lists import Lists
    >>> rank(Lists([2, 0, 1, 0], [0, 3, 4], [0.1, 0.3, 0.2, 0.5])).labels.tolist()
    [0, 1, 2, 0]
    """
    scores, returned = lists.scores, lists.depths
    if scores is None:
        raise DataError("these lists carry no scores; give them with Lists(..., scores=) or lists.with_scores()")
    if ties == "docid":
        largest = np.finfo(np.float32).max  # a larger score compares as the largest
        scores = np.clip(scores, -largest, largest).astype(np.float32)
    if returned is not None:  # items that were not returned come last, whatever their score says
        scores = np.where(lists.returned, scores, -np.inf)
    order = sort_within_queries(-scores, lists.offsets, stable=ties != "average")
    keys = None if ties == "input" else scores[order]
    if returned is not None and keys is not None:
        keys[keys == -np.inf] = np.nan  # they have no rank, in which they could tie
    judged = None if lists.judged is None else lists.judged[order]
    if ties == "docid" and keys is not None:
        columns = [lists.labels[order]] if judged is None else [lists.labels[order], judged]
        blocks, keys = tied_blocks(keys, columns, lists.offsets), None
        if blocks is not None:
            order = _by_descending_id(order, blocks, lists)
            judged = None if lists.judged is None else lists.judged[order]
    if keys is not None and not (keys[1:] == keys[:-1]).any():
        keys = None  # nothing ties, and they would only hold memory
    limit = None if depth is None else min(int(depth), LARGEST_DEPTH)
    return Ranked(lists.labels[order], lists.offsets, returned, limit, keys, judged, order)


def complete(ranked: Ranked, candidates: NDArray[np.bool_] | None = None) -> Ranked:
    """The same run read as a complete ranking of the candidates of each query.

    ``candidates`` says for every item of the lists whether it is a candidate; None means that all are. Other items are
    taken out. Candidates that the run did not return are tied below those that it did, and measures are averaged over
    their orders, whatever the policy for ties is. Candidates without a judgment count as judged not relevant. So the
    value lies between the worst and the best value of all rankings of the candidates, which is not true of a run that
    lacks some of them.

    >>> from rankbound.lists import Lists
    >>> run = rank(Lists([1, 0, 1, 0, 1], [0, 5], [0.9, 0.7, 0.5, 0, 0], depths=[3]))
    >>> whole = complete(run, np.array([True, False, True, True, True]))
    >>> run.depths.tolist(), whole.depths.tolist(), whole.tied.items.tolist()
    ([3], [4], [2, 3])
    """
    if ranked.returned is None and candidates is None:
        return ranked
    labels, offsets, keys = ranked.raw_labels, ranked.offsets, ranked.keys
    returned = ranked.sizes if ranked.returned is None else ranked.returned
    if candidates is not None:
        assert ranked.order is not None, "candidates are given by the positions in lists"
        kept = candidates[ranked.order]
        before = np.concatenate(([0], np.cumsum(kept)))  # candidates before each position
        returned = before[offsets[:-1] + returned] - before[offsets[:-1]]  # the returned come first
        labels, offsets, keys = labels[kept], before[offsets], None if keys is None else keys[kept]
    sizes = np.diff(offsets)
    if (returned < sizes).any():
        keys = np.full(len(labels), np.nan) if keys is None else keys.copy()
        returned_and_not = np.column_stack((returned, sizes - returned)).ravel()
        keys[np.repeat(np.tile([False, True], len(sizes)), returned_and_not)] = -np.inf
    return Ranked(labels, offsets, None, ranked.limit, keys)


def rank_rows(orders: NDArray[Any], depth: int) -> Ranked:
    """Orders of one query, a row each, of which the first ``depth`` items are ranked."""
    rows, n = orders.shape
    return Ranked(labels_of(orders.ravel()), np.arange(rows + 1) * n, np.full(rows, min(depth, n)))


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Ranks at which a relevant item can stand, one entry per rank.

    Without ties these are the relevant items: ``probability`` is 1, and ``nth`` counts the relevant items up to this
    one. In a block of tied items every order is equally likely: ``probability`` is the fraction of relevant items in
    the block, and ``nth`` the mean count of relevant items up to this rank given that a relevant one stands there.
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


@dataclass(eq=False)
class Ranked:
    """Items of queries in ranked order, in flat arrays with one entry per item.

    ``raw_labels`` are the labels, and ``labels`` those of 0 and more: negative ones count as 0. ``returned`` is the
    number of items of each query that the run returned (None: all of them), and ``limit`` the depth to which they
    count: ``depths`` is the smaller one. Items with the same of the ``keys`` tie, NaN ties with nothing, and without
    keys there are no ties. ``is_judged`` says which items have a judgment (None: all). ``order`` is the position of
    each item in the lists that were ranked, where they come from such. Label counts and ties that are known already
    need not be found again.
    """

    raw_labels: NDArray[Any]
    offsets: NDArray[np.int64]
    returned: NDArray[np.int64] | None = None
    limit: int | None = None
    keys: NDArray[Any] | None = None
    is_judged: NDArray[np.bool_] | None = None
    order: NDArray[np.int64] | None = None
    known_counts: LabelCounts | None = None
    known_ties: TiedBlocks | None = None

    def __post_init__(self) -> None:
        self.sizes = np.diff(self.offsets)
        self.depths = self.sizes if self.returned is None else self.returned
        if self.limit is not None:
            self.depths = np.minimum(self.depths, self.limit)
        labels = self.raw_labels
        self.labels = np.maximum(labels, 0) if labels.min(initial=0) < 0 else labels
        self._hits: dict[float, Hits] = {}
        self._relevant: dict[float, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def rows(self, query: NDArray[np.int64], items: NDArray[np.int64], lengths: NDArray[np.int64]) -> Ranked:
        """Orders of these queries' items: row r ranks ``lengths[r]`` items of query[r], at these flat positions.

        A row can end where a measure's cutoff ends. Label counts are those of the whole query.
        """
        return Ranked(
            self.raw_labels[items],
            np.concatenate(([0], np.cumsum(lengths))),
            np.minimum(self.depths[query], lengths),
            is_judged=None if self.is_judged is None else self.is_judged[items],
            known_counts=self.counts.take(query),
        )

    def with_labels(self, labels: NDArray[Any]) -> Ranked:
        """The same order and ties of documents with other labels, which are given in ranked order.

        For measures that read labels of 0 and more, and the ties of this ranking, alone.
        """
        return Ranked(labels, self.offsets, self.returned, self.limit, known_ties=self.tied)

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def counts(self) -> LabelCounts:
        """Label counts of each query."""
        if self.known_counts is not None:
            return self.known_counts
        depths = None if self.limit is None else np.minimum(self.sizes, self.limit)
        return LabelCounts.from_labels(self.raw_labels, self.offsets, depths)

    @cached_property
    def returned_counts(self) -> LabelCounts:
        """The same, with the number of items that the run returned as the depth of each query."""
        return replace(self.counts, depths=self.depths)

    @cached_property
    def tied(self) -> TiedBlocks | None:
        """The blocks of tied items with different labels; None if there are none."""
        if self.known_ties is not None or self.keys is None:
            return self.known_ties
        return tied_blocks(self.keys, [self.labels], self.offsets)

    @cached_property
    def detailed(self) -> Ranked:
        """The same ranking, with ties that distinguish judged from unjudged documents, for measures of judgments."""
        if self.keys is None or not self.has_gaps:
            return self
        return replace(self, known_ties=tied_blocks(self.keys, [self.raw_labels, self.judged], self.offsets))

    @property
    def is_fully_judged(self) -> bool:
        """Whether all documents have a judgment; labels below 0 are judgments, too."""
        return self.is_judged is None

    @property
    def has_gaps(self) -> bool:
        """Whether there may be documents that are not judged or have a negative label, which few distinguish from 0."""
        return self.is_judged is not None or self.labels is not self.raw_labels

    @cached_property
    def judgments(self) -> Ranked | None:
        """The same ranking with label 1 for judged documents and 0 for the others; None if all are judged."""
        if self.is_judged is None:
            return None
        return Ranked(self.is_judged.astype(np.int32), self.offsets, self.returned, self.limit, self.keys)

    def judged_fractions(self, cutoff: int | None) -> NDArray[np.float64]:
        """The fraction of each query's first documents that are judged; a tied block counts by its fraction."""
        cut = self.depths if cutoff is None else np.minimum(self.depths, cutoff)
        if self.judgments is None:
            return (cut > 0).astype(np.float64)
        query, _, judged = self.judgments.weights(partial(np.asarray, dtype=np.float64), cutoff)
        return self.sum(query, judged) / np.maximum(cut, 1)

    @cached_property
    def judged(self) -> NDArray[np.bool_]:
        """Whether each item is judged."""
        return np.ones(len(self.labels), dtype=bool) if self.is_judged is None else self.is_judged

    def mean_over_ties(
        self,
        value: Callable[[Ranked], NDArray[np.float64]],
        draws: int,
        levels: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    ) -> NDArray[np.float64]:
        """Mean of a function of ordered lists over the orders of tied items.

        All distinguishable orders of a query are gone through where there are no more than ``draws``; else that many
        are drawn with a fixed seed. ``levels`` are the labels as the function distinguishes them, by default as they
        are.
        """
        if self.tied is None:
            return value(self)
        result = value(self.rows(np.arange(len(self)), np.arange(len(self.labels)), self.sizes))
        for queries, starts, values in self.values_over_ties(value, draws, levels):
            numbers = np.diff(np.append(starts, len(values)))
            result[queries] = np.add.reduceat(values, starts) / numbers
        return result

    def values_over_ties(
        self,
        value: Callable[[Ranked], NDArray[np.float64]],
        draws: int,
        levels: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    ) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.float64]]]:
        """The same function of every order: queries with ties, where the orders of each start, and their values."""
        if self.tied is None:
            return
        kinds = _kinds(self, levels)
        everything = np.arange(len(self.labels))
        batch: list[tuple[int, NDArray[np.int64]]] = []  # queries, and a row of flat positions for each of their orders
        queries = np.unique(self.tied.query).tolist()
        for query in queries:
            tied_items, orders = _tie_orders(self.tied, kinds, query, draws)
            items = everything[self.offsets[query] : self.offsets[query + 1]]
            rows = np.tile(items, (len(orders), 1))
            rows[:, tied_items - items[0]] = orders
            batch.append((query, rows))
            if query == queries[-1] or sum(rows.size for _, rows in batch) > _BATCH:
                numbers = np.array([len(rows) for _, rows in batch])
                owner = np.repeat([query for query, _ in batch], numbers)
                of_rows = value(
                    self.rows(owner, np.concatenate([rows.ravel() for _, rows in batch]), self.sizes[owner])
                )
                yield [query for query, _ in batch], np.cumsum(numbers) - numbers, of_rows
                batch = []

    # ---- ties, as the pairwise measures see them ---------------------------------------------------------------------

    @cached_property
    def tie_blocks(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Query of each item, and the block of items that tie with it: -1 for none.

        Items without rank form the block with the number of their query; blocks of equal scores that begin above the
        depth are numbered from the number of queries on.
        """
        query = self._query_of_item
        rank = np.arange(len(query)) - self.offsets[query]
        block = np.where(rank >= self.depths[query], query, -1)
        if self.tied is not None:
            begins = self.tied.start - self.offsets[self.tied.query] < self.depths[self.tied.query]
            inside = begins[self.tied.block_of_item]
            block[self.tied.items[inside]] = len(self) + self.tied.block_of_item[inside]
        return query, block

    @cached_property
    def ties_across_depth(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Queries with a tied block that lies across the depth, and the fraction of the block that is ranked."""
        block = self.block_across_depth
        queries = np.flatnonzero(block >= 0)
        if len(queries) == 0:
            return queries, np.zeros(0)
        assert self.tied is not None
        across = block[queries]
        return queries, (self.depths[queries] - (self.tied.start[across] - self.offsets[queries])) / self.tied.size[
            across
        ]

    @cached_property
    def block_across_depth(self) -> NDArray[np.int64]:
        """Index of the tied block of each query that lies across the depth, -1 where there is none."""
        block = np.full(len(self), -1)
        if self.tied is not None:
            above = self.tied.start - self.offsets[self.tied.query]
            depth = self.depths[self.tied.query]
            across = np.flatnonzero((above < depth) & (above + self.tied.size > depth))
            block[self.tied.query[across]] = across
        return block

    # ---- what the measures sum ---------------------------------------------------------------------------------------

    @cached_property
    def _query_of_item(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def _index_in_query(self) -> NDArray[np.int64]:
        """Index of each item within its query, from 0."""
        return np.arange(len(self._query_of_item)) - self.offsets[self._query_of_item]

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Query and rank of flat positions."""
        query = self._query_of_item[positions]
        return query, positions - self.offsets[query] + 1

    def sum(self, query: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum per query of one number per entry."""
        return np.bincount(query, values, minlength=len(self.sizes)).astype(np.float64, copy=False)

    def sum_of_hits(self, hits: Hits, values: NDArray[np.float64], cut: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum per query of one number per hit, over the hits at ranks up to ``cut``."""
        seen = hits.rank <= self.spread(cut, hits.query)
        if seen.all():
            return self.sum(hits.query, values)
        inside = np.flatnonzero(seen)
        return self.sum(hits.query[inside], values[inside])

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
        cut = self.depths if cutoff is None else np.minimum(self.depths, cutoff)
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
            positive = labels > 0
            return query[positive], rank[positive], weigh(labels[positive])
        positions = np.flatnonzero(self.labels > 0)
        query, rank = self.locate(positions)
        if cut is not self.sizes:
            seen = rank <= cut[query]
            positions, query, rank = positions[seen], query[seen], rank[seen]
        return query, rank, weigh(self.labels[positions])

    def relevant(self, rel: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Flat positions of the items with at least this label, and where those of each query begin among them."""
        if rel not in self._relevant:
            positions = np.flatnonzero(self.labels >= rel)
            self._relevant[rel] = positions, np.searchsorted(positions, self.offsets)
        return self._relevant[rel]

    def hits(self, rel: float) -> Hits:
        """Where items with at least this label stand, over the whole list."""
        if rel not in self._hits:
            self._hits[rel] = self._find_hits(rel)
        return self._hits[rel]

    def _find_hits(self, rel: float) -> Hits:
        positions, first = self.relevant(rel)
        query, rank = self.locate(positions)
        nth = np.arange(1, len(positions) + 1) - first[query]
        if self.tied is None:
            return Hits(query, rank, np.ones(len(rank)), nth.astype(np.float64))
        # leave out what stands in tied blocks, then put in every rank of the blocks that hold something relevant
        tied, block = self.tied, self.tied.block_of_item
        hits_in_block = tied.sum(self.labels >= rel)
        inside = np.zeros(len(self.labels), dtype=bool)
        inside[tied.items] = True
        untied = ~inside[positions]
        before = np.searchsorted(positions, tied.start) - first[tied.query]  # relevant items above the block
        open_ = hits_in_block[block] > 0
        items, block = tied.items[open_], block[open_]
        among, size = hits_in_block[block], tied.size[block]
        step = items - tied.start[block]  # 0 for the block's first rank
        return Hits(
            np.concatenate((query[untied], tied.query[block])),
            np.concatenate((rank[untied], items - self.offsets[tied.query[block]] + 1)),
            np.concatenate((np.ones(untied.sum()), among / size)),
            np.concatenate((nth[untied], before[block] + 1 + step * (among - 1) / np.maximum(size - 1, 1))),
        )


# ---- ties ------------------------------------------------------------------------------------------------------------


def tied_blocks(keys: NDArray[Any], columns: Sequence[NDArray[Any]], offsets: NDArray[np.int64]) -> TiedBlocks | None:
    """Blocks of neighbors with one key that differ in one of the columns; equal items in a tie change nothing."""
    if len(keys) < 2:
        return None
    same = keys[1:] == keys[:-1]
    same[offsets[(offsets > 0) & (offsets < len(keys))] - 1] = False  # across queries
    if not same.any():
        return None
    mixed = np.zeros(len(same), dtype=bool)
    for column in columns:
        mixed |= column[1:] != column[:-1]
    mixed &= same
    if not mixed.any():
        return None
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    start, stop = edges[0::2], edges[1::2] + 1  # items start..stop-1 have the same key
    holds = np.searchsorted(np.flatnonzero(mixed), [start, stop - 1])
    start, stop = start[holds[1] > holds[0]], stop[holds[1] > holds[0]]
    size = stop - start
    block = np.repeat(np.arange(len(size)), size)
    items = np.arange(len(block)) - np.repeat(np.cumsum(size) - size, size) + start[block]
    return TiedBlocks(np.searchsorted(offsets, start, side="right") - 1, start, size, items, block)


def _by_descending_id(order: NDArray[np.int64], blocks: TiedBlocks, lists: Lists) -> NDArray[np.int64]:
    """The order with the items of each tied block sorted by descending id."""
    if lists.ids is None:
        raise DataError("ties='docid' needs item ids, which these lists do not carry")
    _, code = np.unique(_texts_of_ids(np.asarray(lists.ids[order[blocks.items]])), return_inverse=True)
    inside = np.lexsort((-code, blocks.block_of_item))
    result = order.copy()
    result[blocks.items] = order[blocks.items[inside]]
    return result


def _texts_of_ids(ids: NDArray[Any]) -> NDArray[Any]:
    """The ids as text: trec_eval compares 9 and 10 as text, so that 9 is the larger one."""
    if ids.dtype.kind in "US":
        return ids
    if ids.dtype.kind in "iu":
        return ids.astype(np.str_)
    texts = np.empty(
        len(ids), dtype=object
    )  # an array of fixed width would take as much memory for each as the longest
    texts[:] = [str(name) for name in ids.tolist()]
    return texts


def _kinds(ranked: Ranked, levels: Callable[[NDArray[Any]], NDArray[Any]] | None = None) -> NDArray[np.int64]:
    """A number for each item; items with the same label, or level, and both judged, or both not, have the same."""
    labels = ranked.raw_labels if levels is None else levels(ranked.raw_labels)
    code = np.unique(labels, return_inverse=True)[1] * 2
    return code if ranked.is_judged is None else code + ranked.is_judged


def _tie_orders(
    tied: TiedBlocks, kinds: NDArray[np.int64], query: int, draws: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Flat positions of a query's tied items, and a row for each order of them: what stands at these positions.

    There is a row for every distinguishable order, or ``draws`` random ones where there are more. The draws depend on
    nothing but how many items of each kind tie.
    """
    blocks = np.flatnonzero(tied.query == query)
    members = [np.arange(tied.start[block], tied.start[block] + tied.size[block]) for block in blocks]
    number = 1
    for items in members:
        number *= math.factorial(len(items))
        for count in np.unique(kinds[items], return_counts=True)[1].tolist():
            number //= math.factorial(count)
    if number <= draws:
        tie_orders = [
            [_by_kind(items, kinds[items], arrangement) for arrangement in arrangements(kinds[items].tolist())]
            for items in members
        ]
        return np.concatenate(members), np.array([np.concatenate(choice) for choice in itertools.product(*tie_orders)])
    sorted_by_kind = np.concatenate([items[np.argsort(-kinds[items], kind="stable")] for items in members])
    block = np.repeat(np.arange(len(members)), [len(items) for items in members])
    return np.concatenate(members), sorted_by_kind[random_orders(draws, len(block), block)]


def _by_kind(items: NDArray[np.int64], kinds: NDArray[np.int64], arrangement: tuple[int, ...]) -> NDArray[np.int64]:
    """Items arranged so that their kinds come in this order."""
    arranged = np.empty(len(items), dtype=np.int64)
    arranged[np.argsort(arrangement, kind="stable")] = items[np.argsort(kinds, kind="stable")]
    return arranged
