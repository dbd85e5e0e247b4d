"""Ranked: the labels of every query in the order of the scores, and the blocks of tied items."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

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


class Ranked:
    """Lists in ranked order. One sort serves all measures; what several measures need is computed once and kept.

    ``ties = "average"``: a measure is the mean over all orders of tied items. ``"input"``: tied items keep the order
    of the input. ``"docid"``: trec_eval's order, scores compared as 32-bit numbers and ties by item id, descending; ids
    that are numbers are compared as text, as trec_eval reads them.

    ``labels`` are those of 0 and more, in ranked order (negative ones count as 0). With ``detailed`` a tie also counts
    where labels agree but one document is judged and the other is not, and ``raw_labels`` and ``judged`` are there.
    ``keep_order`` is needed for `complete`.
    """

    def __init__(
        self,
        lists: Lists,
        ties: str = TIES[0],
        depth: int | None = None,
        *,
        detailed: bool = False,
        keep_order: bool = False,
        is_complete: bool = False,
    ) -> None:
        if lists.scores is None:
            raise DataError("these lists carry no scores; give them with Lists(..., scores=) or lists.with_scores()")
        self.offsets = lists.offsets
        self.sizes = np.diff(lists.offsets)
        ranked = self.sizes if lists.depths is None or is_complete else lists.depths
        if depth is not None:
            depth = min(int(depth), LARGEST_DEPTH)
        self.depths = ranked if depth is None else np.minimum(ranked, depth)
        self._lists, self._ties, self._depth, self._is_complete = lists, ties, depth, is_complete

        scores = lists.scores
        if ties == "docid" and not is_complete:
            largest = np.finfo(np.float32).max  # a larger score compares as the largest
            scores = np.clip(scores, -largest, largest).astype(np.float32)
        if lists.depths is not None and not is_complete:
            # items that were not returned come last, whatever their score says
            scores = np.where(self._index_in_query < np.repeat(lists.depths, self.sizes), scores, -np.inf)
        if is_complete:  # the items come in ranked order
            order = np.arange(len(scores))
        else:
            order = sort_within_queries(-scores, lists.offsets, stable=ties != "average")
        self.tied = None
        labels = lists.labels if is_complete else lists.labels[order]
        if ties != "input" or is_complete:
            kinds = _kinds(lists)[order] if detailed else np.maximum(labels, 0) if labels.min(initial=0) < 0 else labels
            compared = scores if is_complete else scores[order]
            if is_complete and ties != "average":  # the policy has ordered what the run returned
                compared = np.where(compared == -np.inf, compared, np.nan)
            blocks = _tied_blocks(compared, kinds, self.offsets, self._query_of_item, unreturned=is_complete)
            if ties == "average" or is_complete:
                self.tied = blocks
            elif blocks is not None:
                order = _by_descending_id(order, blocks, lists)
                labels = lists.labels[order]
        # an order that nobody needs would only hold memory
        self._take(order if detailed or keep_order or is_complete else None, labels)

    def complete(self, candidates: NDArray[np.bool_] | None = None) -> Ranked:
        """The same run read as a complete ranking of the candidates of each query.

        ``candidates`` says for every item of the lists whether it is a candidate; None means that all are. Other items
        are taken out. Candidates that the run did not return are tied below those that it did, and measures are
        averaged over their orders, whatever the policy for ties is. Candidates without a judgment count as judged not
        relevant. So the value lies between the worst and the best value of all rankings of the candidates, which is not
        true of a run that lacks some of them.

        >>> from rankbound.lists import Lists
        >>> run = Ranked(Lists([0, 1, 0, 1], [0, 4], [0.9, 0.7, 0, 0], depths=[2]), keep_order=True)
        >>> run.depths.tolist(), run.complete().depths.tolist()
        ([2], [4])
        """
        from rankbound.lists import Lists

        lists = self._lists
        if lists.depths is None and candidates is None:
            return self
        assert self._order is not None, "complete needs keep_order=True"
        order, offsets = self._order, lists.offsets
        depths = self.sizes if lists.depths is None else lists.depths
        if candidates is not None:
            kept = candidates[order]
            before = np.concatenate(([0], np.cumsum(kept)))  # candidates before each position
            order, depths = order[kept], before[offsets[:-1] + depths] - before[offsets[:-1]]  # the returned come first
            offsets = before[offsets]
        assert lists.scores is not None
        scores = lists.scores[order]
        sizes = np.diff(offsets)
        if (depths < sizes).any():
            returned_and_not = np.column_stack((depths, sizes - depths)).ravel()
            scores[np.repeat(np.tile([False, True], len(sizes)), returned_and_not)] = -np.inf
        labels = lists.labels[order]
        ordered = Lists.of_checked_arrays(labels=labels, offsets=offsets, scores=scores, qids=lists.qids, depths=depths)
        return Ranked(ordered, self._ties, self._depth, is_complete=True)

    def _take(self, order: NDArray[np.int64] | None, labels: NDArray[Any]) -> None:
        self._order = order
        self.raw_labels = labels
        self.labels = np.maximum(labels, 0) if labels.min(initial=0) < 0 else labels
        self._hits: dict[float, Hits] = {}

    @classmethod
    def of_orders(cls, orders: NDArray[Any], depth: int) -> Ranked:
        """Orders of one query, a row each, of which the first ``depth`` items are ranked."""
        from rankbound.lists import Lists

        rows, n = orders.shape
        scores = np.tile(np.arange(n, 0, -1.0), rows)
        depths = np.full(rows, min(depth, n))
        return cls(Lists(orders.ravel(), np.arange(rows + 1) * n, scores, depths=depths), "input")

    @classmethod
    def of_labels(
        cls, labels: NDArray[Any], offsets: NDArray[np.int64], counts: LabelCounts, tied: TiedBlocks | None = None
    ) -> Ranked:
        """Labels of complete lists that are in ranked order already, and their tied blocks."""
        ranked = cls.__new__(cls)
        ranked.offsets, ranked.sizes, ranked.tied = offsets, np.diff(offsets), tied
        ranked.depths = ranked.sizes
        ranked._take(None, labels)
        ranked.__dict__["counts"] = counts
        return ranked

    def rows(self, query: NDArray[np.int64], items: NDArray[np.int64], lengths: NDArray[np.int64]) -> Ranked:
        """Orders of these queries' items: row r ranks ``lengths[r]`` items of query[r], at these flat positions.

        A row can end where a measure's cutoff ends. Label counts are those of the whole query.
        """
        rows = Ranked.__new__(Ranked)
        rows.offsets = np.concatenate(([0], np.cumsum(lengths)))
        rows.sizes, rows.depths, rows.tied = lengths, np.minimum(self.depths[query], lengths), None
        rows._take(None, self.raw_labels[items])
        rows.__dict__["counts"] = self.counts.take(query)
        if self._lists.judged is None:
            rows.__dict__["judged"] = np.ones(len(items), dtype=bool)
        elif self._order is not None:
            rows.__dict__["judged"] = self.judged[items]
        return rows

    def with_labels(self, labels: NDArray[Any]) -> Ranked:
        """The same order and ties of documents with other labels, which are given in ranked order.

        For measures that read labels of 0 and more, and the ties of this ranking, alone.
        """
        other = Ranked.__new__(Ranked)
        other.offsets, other.sizes, other.depths, other.tied = self.offsets, self.sizes, self.depths, self.tied
        other._take(None, labels)
        other._depth = self._depth
        limits = None if self._depth is None else np.minimum(self.sizes, self._depth)
        other.__dict__["counts"] = LabelCounts.from_labels(labels, self.offsets, limits)
        other.__dict__["_query_of_item"] = self._query_of_item
        return other

    @property
    def order(self) -> NDArray[np.int64]:
        """Position of each ranked item in the lists; needs ``keep_order=True``."""
        assert self._order is not None, "order needs keep_order=True"
        return self._order

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def counts(self) -> LabelCounts:
        """Label counts of each query."""
        depths = None if self._depth is None else np.minimum(self.sizes, self._depth)
        return LabelCounts.from_labels(self._lists.labels, self._lists.offsets, depths)

    @cached_property
    def returned_counts(self) -> LabelCounts:
        """The same, with the number of items that the run returned as the depth of each query."""
        return replace(self.counts, depths=self.depths)

    @cached_property
    def detailed(self) -> Ranked:
        """The same lists, with ties that distinguish judged from unjudged documents, for measures of judgments."""
        return Ranked(self._lists, self._ties, self._depth, detailed=True, is_complete=self._is_complete)

    @property
    def is_fully_judged(self) -> bool:
        """Whether all documents have a judgment; labels below 0 are judgments, too."""
        return self._lists.judged is None

    @property
    def has_gaps(self) -> bool:
        """Whether there may be documents that are not judged or have a negative label, which few distinguish from 0."""
        return not self.is_fully_judged or bool(self.raw_labels.min(initial=0) < 0)

    @cached_property
    def judgments(self) -> Ranked | None:
        """The same ranking with label 1 for judged documents and 0 for the others; None if all are judged."""
        lists = self._lists
        if lists.judged is None or lists.scores is None:
            return None
        labels = lists.judged.astype(np.int32)
        # ids have ordered only those ties whose labels differ
        if self._order is None or self._ties == "docid" or self._is_complete:
            return Ranked(replace(lists, labels=labels), self._ties, self._depth, is_complete=self._is_complete)
        ranked = Ranked.__new__(Ranked)
        ranked.offsets, ranked.sizes, ranked.depths, ranked.tied = self.offsets, self.sizes, self.depths, None
        ranked.__dict__["_query_of_item"] = self._query_of_item
        ranked._take(None, labels[self._order])
        if self._ties == "average":
            scores = lists.scores[self._order]
            if lists.depths is not None:
                scores = np.where(self._index_in_query < np.repeat(lists.depths, self.sizes), scores, -np.inf)
            ranked.tied = _tied_blocks(scores, ranked.labels, self.offsets, self._query_of_item)
        return ranked

    @cached_property
    def judged(self) -> NDArray[np.bool_]:
        """Whether each item is judged, in ranked order; all are where the lists do not say otherwise."""
        if self._lists.judged is None:
            return np.ones(len(self.labels), dtype=bool)
        return self.detailed.judged if self._order is None else self._lists.judged[self._order]

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
        if self._order is None:
            return self.detailed.mean_over_ties(value, draws, levels)
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
        if self._order is None:
            yield from self.detailed.values_over_ties(value, draws, levels)
            return
        if self.tied is None:
            return
        kinds = _kinds(self._lists, levels)[self._order]
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
        if cut is self.sizes:
            return self.sum(hits.query, values)
        seen = hits.rank <= self.spread(cut, hits.query)
        return self.sum(hits.query[seen], values[seen])

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
        hits_in_block = tied.sum(relevant)
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


def _tied_blocks(
    scores: NDArray[Any],
    labels: NDArray[Any],
    offsets: NDArray[np.int64],
    query_of_item: NDArray[np.int64],
    unreturned: bool = False,
) -> TiedBlocks | None:
    """Blocks of neighbors with one score that hold different labels; equal labels in a tie change nothing.

    Items that the run did not return have the score -inf. They are tied with each other if ``unreturned`` is True;
    else they have no rank.
    """
    if len(scores) < 2:
        return None
    with np.errstate(invalid="ignore"):
        same = scores[1:] == scores[:-1]
    same[offsets[(offsets > 0) & (offsets < len(scores))] - 1] = False  # across queries
    if not unreturned:
        same &= scores[1:] != -np.inf
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


def _kinds(lists: Lists, levels: Callable[[NDArray[Any]], NDArray[Any]] | None = None) -> NDArray[np.int64]:
    """A number for each item; items with the same label, or level, and both judged, or both not, have the same."""
    labels = lists.labels if levels is None else levels(lists.labels)
    code = np.unique(labels, return_inverse=True)[1] * 2
    return code if lists.judged is None else code + lists.judged


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
