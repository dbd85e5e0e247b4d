"""Normalized values where documents tie: the mean over the orders of the ties of the normalized value.

An affine bounding of a mean is the mean of the bounded values, so the tie-averaged value of the measure is all it
needs. UL1, UL2, DB and the logarithmic form are not affine: applied to the tie-averaged value, they would call a
constant scorer better or worse than the random rankings it stands for. `bounded_values` averages them over the orders
of tied documents. Each query takes the first way that fits:

======================================================  ================================================================
query                                                   mean over the orders of its ties
======================================================  ================================================================
no order of a tie changes the value                     the bounded value itself
UL2, all orders on one side of E                        the bounded value of the mean, because UL2 is affine there
UL1, so little effect that it is straight               the bounded value of the mean, with an error below 1e-12
all documents tie                                       sum over the distribution of the measure under random ranking
few distinguishable orders in each tied block           enumeration; blocks of a measure that grows rank by rank are
                                                        independent, so their distributions are convolved
other                                                   draws: up to 256 orders of the blocks that are too large
======================================================  ================================================================

All but the last are exact up to rounding; where convolved distributions would have more than 65,536 points they are
binned first, which keeps their means. Drawn orders come in pairs of an order and its reverse, and the known mean of the
plain measure serves as a control variate. Without the control variate, the standard error of a query's value is at most
1/22 of the distance between the normalized values of its best and its worst order of the ties (128 pairs: 1 / (2 sqrt
128)), or 1/11 (32 pairs) where this distance is below 0.05 or the list is longer than 2,000. The slope of the control
variate is estimated from the same draws, so with it this is no strict bound; the errors that the tests measure are far
below. The draws depend on nothing but the query's own blocks: how many documents of each kind tie, and at which ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from rankbound.difficulty.bounding import Bounding, Difficulty, difficulty_of
from rankbound.measures import Measure, Ranked
from rankbound.measures.combinatorics import log_factorials

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_ORDERS = 5_040  # 7!: orders of one tied block that are enumerated,
_MOST_ITEMS = 36_000  # if these orders hold no more items than this; lists of 7 are always enumerated
_DRAWS, _FEWER_DRAWS = 256, 64  # orders that are drawn; fewer
_NARROW = 0.05  # if the normalized values of the best and the worst order are as close as this
_DRAWN_ITEMS = 512_000  # or if the orders would hold more items than this
_MOST_POINTS = 65_536  # of a convolution
_BINS = 256  # to which distributions are reduced before a larger convolution
_CHUNK = 4_000_000  # items and points that are in memory at a time
_ROUNDING = 1e-12
_SHORT_WINDOW = 12  # ranks up to which the number of fillings is bounded by kinds ** ranks only


def bounded_values(
    bounding: Bounding,
    measure: Measure,
    ranked: Ranked,
    value: NDArray[np.float64],
    difficulty: Difficulty,
) -> NDArray[np.float64]:
    """Bounded value of each query, averaged over the orders of its tied documents; 0 where it is not defined.

    ``value`` and ``difficulty`` are those of the plain measure for the queries of ``ranked``.

    >>> from rankbound import Lists
    >>> from rankbound.difficulty import get_bounding
    >>> from rankbound.measures import parse_measure, rank, values
    >>> measure = parse_measure("P@1")
    >>> constant = rank(Lists([1, 0, 0], [0, 3], [0.0, 0.0, 0.0]))
    >>> difficulty = difficulty_of(measure, constant.counts)
    >>> value = values(constant, measure)  # 1/3, which is E: UL2 of this mean would be 0
    >>> bounded_values(get_bounding("UL2"), measure, constant, value, difficulty).round(4)  # (1 - 1 - 1) / 3
    array([-0.3333])
    """
    result = bounding.apply(value, difficulty)[0]
    if bounding.affine:
        return result
    blocks = TiedOrders.of(measure.plain, ranked)
    if blocks is None:
        return result
    return _averaged(bounding, blocks, value, difficulty, result)


@dataclass(frozen=True, slots=True, eq=False)
class TiedOrders:
    """Tied blocks whose order can change the value of a measure, by query.

    The documents of a block fall into kinds, which are all that the measure distinguishes; kind ``k`` of block ``b``
    has index ``first_kind[b] + k``, the highest label first.
    """

    measure: Measure
    ranked: Ranked
    reads_judgments: bool  # whether the measure distinguishes more than its levels
    query: NDArray[np.int64]
    above: NDArray[np.int64]  # ranks above the block
    size: NDArray[np.int64]
    visible: NDArray[np.int64]  # ranks of the block that count
    first_kind: NDArray[np.int64]
    kinds: NDArray[np.int64]
    kind_count: NDArray[np.int64]
    kind_position: NDArray[np.int64]  # flat position of a document of this kind
    best_first: NDArray[np.int64]  # flat positions with the documents of each block in descending order of kind
    worst_first: NDArray[np.int64]
    length: NDArray[np.int64]  # per query: leading documents that the value depends on, given the label counts

    @property
    def grows_by_rank(self) -> bool:
        """Whether blocks contribute to the value independently of one another."""
        definition = self.measure.definition
        return definition.has_walk and not self.reads_judgments and not definition.scale_varies(self.measure)

    @classmethod
    def of(cls, measure: Measure, ranked: Ranked) -> TiedOrders | None:
        """The blocks of ranked lists; None if there are none."""
        definition = measure.definition
        reads_judgments = ranked.has_gaps and (
            not (definition.has_walk or definition.is_binary(measure))
            or (definition.reads_negative_labels and not (definition.has_walk and ranked.is_fully_judged))
        )
        if reads_judgments:
            ranked = ranked.detailed
        tied = ranked.tied
        if tied is None:
            return None
        labels = np.maximum(ranked.raw_labels[tied.items], definition.lowest_label)
        code = np.unique(definition.levels(measure, labels), return_inverse=True)[1].ravel()
        if reads_judgments:
            code = 4 * code + 2 * (ranked.raw_labels[tied.items] >= 0) + ranked.judged[tied.items]
        best, worst = (np.lexsort((sign * code, tied.block_of_item)) for sign in (-1, 1))
        new = np.ones(len(code), dtype=bool)
        new[1:] = (np.diff(code[best]) != 0) | (np.diff(tied.block_of_item) != 0)
        start = np.flatnonzero(new)
        block_of_kind = tied.block_of_item[start]
        kinds = np.bincount(block_of_kind, minlength=len(tied.size))
        above = tied.start - ranked.offsets[tied.query]
        visible = np.minimum(tied.size, ranked.cut(measure.cutoff)[tied.query] - above)
        kept = np.flatnonzero((kinds > 1) & (visible > 0))
        if len(kept) == 0:
            return None
        orders = []
        for order in (best, worst):
            orders.append(np.arange(len(ranked.labels)))
            orders[-1][tied.items] = tied.items[order]
        length = ranked.sizes
        if definition.has_walk and measure.cutoff is not None:
            length = np.minimum(length, measure.cutoff)
        return cls(
            measure,
            ranked,
            reads_judgments,
            tied.query[kept],
            above[kept],
            tied.size[kept],
            visible[kept],
            (np.cumsum(kinds) - kinds)[kept],
            kinds[kept],
            np.diff(np.append(start, len(code))),
            tied.items[best[start]],
            orders[0],
            orders[1],
            length,
        )

    def fillings(self) -> NDArray[np.float64]:
        """Upper bound of the number of distinguishable ways to fill the visible ranks of each block."""
        table = log_factorials(int(self.size.max()))
        kind = _ranges(self.first_kind, self.kinds)
        block = np.repeat(np.arange(len(self.size)), self.kinds)
        count = self.kind_count[kind]
        orders = table[self.size] - np.bincount(block, table[count])
        sequences = self.visible * np.log(self.kinds)
        most = np.zeros(len(self.size), dtype=np.int64)
        np.maximum.at(most, block, count)
        minority = self.size - most  # documents that are not of the commonest kind
        few = np.zeros(len(self.size))  # sum of C(visible, i) (kinds - 1)^i over the minority documents seen
        term = np.ones(len(self.size))
        for i in range(_SHORT_WINDOW):
            few += np.where(i <= minority, term, 0.0)
            term = term * np.maximum(self.visible - i, 0) / (i + 1) * (self.kinds - 1)
        few = np.where(np.minimum(minority, self.visible) < _SHORT_WINDOW, few, np.inf)
        with np.errstate(over="ignore"):
            return np.minimum(np.minimum(np.exp(orders), np.exp(sequences)), few)

    def values_in_order(self, queries: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.float64]:
        """Value of some queries with all their items in this order."""
        length = self.length[queries]
        return self.values_of_rows(queries, order[_ranges(self.ranked.offsets[queries], length)], length)

    def values_of_rows(
        self, query: NDArray[np.int64], items: NDArray[np.int64], length: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Value of each row of items, which rank documents of these queries."""
        return self.values_of_orders(self.ranked.rows(query, items, length))

    def values_of_orders(self, rows: Ranked) -> NDArray[np.float64]:
        """Value of ranked rows without ties."""
        definition = self.measure.definition
        if definition.reads_negative_labels or not definition.has_walk:
            return definition.values_in_order(self.measure, rows)
        return definition.values(self.measure, rows)


# ---- which way each query takes --------------------------------------------------------------------------------------


def _averaged(
    bounding: Bounding,
    blocks: TiedOrders,
    value: NDArray[np.float64],
    difficulty: Difficulty,
    result: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The bounded values of the means, replaced by means of bounded values where they differ."""
    ranked, measure = blocks.ranked, blocks.measure
    open_ = np.zeros(len(ranked), dtype=bool)
    open_[blocks.query] = True
    open_ &= bounding.defined(difficulty)
    if not open_.any():
        return result
    span = np.full(len(ranked), np.inf)
    if blocks.grows_by_rank:  # descending labels in every block have the best value, ascending ones the worst
        queries = np.flatnonzero(open_)
        ends = np.stack([blocks.values_in_order(queries, order) for order in (blocks.best_first, blocks.worst_first)])
        low, high = ends.min(axis=0), ends.max(axis=0)
        slack = _ROUNDING * np.maximum(1.0, np.abs(ends).max(axis=0))
        settled = high - low <= slack
        if bounding.affine_on_each_side:
            expected = difficulty.expected[queries]
            settled |= (low >= expected - slack) | (high <= expected + slack)
        some = difficulty.take(queries)
        (bounded_low, slope_low), (bounded_high, slope_high) = (bounding.apply(end, some) for end in (low, high))
        if bounding.convex:  # the chord lies above, the tangents below: so far apart can mean and value be
            settled |= (slope_high - slope_low) * (high - low) / 4 <= slack
        open_[queries[settled]] = False
        span[queries] = np.abs(bounded_high - bounded_low)
    if not blocks.reads_judgments and (measure.definition.has_walk or bounding.needs_distribution):
        whole = np.zeros(len(ranked), dtype=bool)
        whole[blocks.query] = blocks.size == ranked.sizes[blocks.query]
        whole &= open_ & (ranked.depths == ranked.counts.depths)
        queries = np.flatnonzero(whole)
        if len(queries):
            result[queries] = _mean_over_random_rankings(bounding, measure, ranked, queries, difficulty)
            open_ &= ~whole
    queries = np.flatnonzero(open_)
    if len(queries):
        result[queries] = _mean_over_orders(bounding, blocks, queries, value, difficulty, span[queries])
    return result


def _mean_over_random_rankings(
    bounding: Bounding, measure: Measure, ranked: Ranked, queries: NDArray[np.int64], difficulty: Difficulty
) -> NDArray[np.float64]:
    """Mean of the bounded value over the null distribution of each query."""
    if bounding.needs_distribution:
        some = difficulty.take(queries)
    else:  # the distributions of these queries only
        some = difficulty_of(measure, ranked.counts.take(queries))
    return some.distribution().expectation(lambda scores, query: bounding.apply(scores, some.take(query))[0])


# ---- all orders, or drawn ones ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """Values with probabilities, of queries or groups that are numbered from 0; sorted by these numbers."""

    owner: NDArray[np.int64]
    value: NDArray[np.float64]
    probability: NDArray[np.float64]


def _mean_over_orders(
    bounding: Bounding,
    blocks: TiedOrders,
    queries: NDArray[np.int64],
    value: NDArray[np.float64],
    difficulty: Difficulty,
    span: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Mean of the bounded value over the orders of ties, chunk by chunk; ``span`` is its range."""
    index = np.full(len(blocks.ranked), -1)
    index[queries] = np.arange(len(queries))
    chosen = np.flatnonzero(index[blocks.query] >= 0)
    owner = index[blocks.query[chosen]]
    length = blocks.length[queries]
    number = blocks.fillings()[chosen]
    most = np.minimum(_MOST_ORDERS, _MOST_ITEMS / np.maximum(length, 1)) * (1 + 1e-9)
    together = np.exp(np.minimum(np.bincount(owner, np.log(number)), 700.0))
    drawn = number > most[owner] if blocks.grows_by_rank else (together > most)[owner]
    has_draws = np.bincount(owner, drawn) > 0
    draws = np.where((span <= _NARROW) | (_DRAWS * length > _DRAWN_ITEMS), _FEWER_DRAWS, _DRAWS)
    enumerated = np.bincount(owner, np.where(drawn, 0.0, number)) if blocks.grows_by_rank else together * ~has_draws
    work = (enumerated + has_draws * draws + 1) * length + np.minimum(together, _MOST_POINTS)
    chunk = np.cumsum(work) // _CHUNK
    edges = np.concatenate(([0], np.flatnonzero(np.diff(chunk)) + 1, [len(queries)]))
    result = np.empty(len(queries))
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        members, some = slice(*np.searchsorted(owner, (start, stop))), queries[start:stop]
        points = _points(blocks, chosen[members], owner[members] - start, some, drawn[members], draws[start:stop])
        result[start:stop] = _mean(bounding, points, value[some], difficulty.take(some), has_draws[start:stop])
    return result


def _mean(
    bounding: Bounding,
    points: _Points,
    value: NDArray[np.float64],
    difficulty: Difficulty,
    has_draws: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Mean of the bounded value; where orders were drawn, corrected by the known mean of the plain value."""
    bounded = bounding.apply(points.value, difficulty.take(points.owner))[0]
    mean = np.bincount(points.owner, points.probability * bounded)
    if has_draws.any():
        plain = np.bincount(points.owner, points.probability * points.value)
        distance = points.value - plain[points.owner]
        variance = np.bincount(points.owner, points.probability * distance**2)
        covariance = np.bincount(points.owner, points.probability * distance * (bounded - mean[points.owner]))
        slope = np.divide(covariance, variance, out=np.zeros(len(mean)), where=variance > _ROUNDING**2)
        first = np.searchsorted(points.owner, np.arange(len(mean)))
        ends = np.minimum.reduceat(bounded, first), np.maximum.reduceat(bounded, first)
        mean = np.where(has_draws, np.clip(mean - slope * (plain - value), *ends), mean)
    return np.asarray(mean, dtype=np.float64)


def _points(
    blocks: TiedOrders,
    chosen: NDArray[np.int64],
    owner: NDArray[np.int64],
    queries: NDArray[np.int64],
    drawn: NDArray[np.bool_],
    draws: NDArray[np.int64],
) -> _Points:
    """The distribution of each query's value over the orders of its ties; ``owner`` says whose the blocks are."""
    fillings = _Fillings.of(blocks, chosen, drawn, draws[owner])
    # blocks of a group are filled together: drawn blocks of a query, and all blocks if they are not independent
    if blocks.grows_by_rank:
        group = np.where(drawn, owner, len(queries) + np.arange(len(owner)))
    else:
        group = owner
    _, first_block, group = np.unique(group, return_index=True, return_inverse=True)
    query_of_group, is_drawn = owner[first_block], drawn[first_block]
    stride, rows_of_group = np.ones(len(owner), dtype=np.int64), np.ones(len(first_block), dtype=np.int64)
    for block in _turns(group):
        stride[block] = rows_of_group[group[block]]
        rows_of_group[group[block]] *= np.where(drawn[block], 1, fillings.number[block])
    rows_of_group = np.where(is_drawn, draws[query_of_group], rows_of_group)
    rows = int(rows_of_group.sum())
    # after the rows of all groups, a row for each query with the order that the others start from
    query_of_row = np.concatenate((np.repeat(query_of_group, rows_of_group), np.arange(len(queries))))
    length = blocks.length[queries][query_of_row]
    items = blocks.best_first[_ranges(blocks.ranked.offsets[queries][query_of_row], length)]

    active = np.repeat(np.arange(len(chosen)), rows_of_group[group])  # a block in a row of its group
    turn = _ranges(np.zeros(len(chosen), dtype=np.int64), rows_of_group[group])
    row = _starts(rows_of_group)[group][active] + turn
    filling = turn // stride[active] % fillings.number[active]
    width = fillings.width[active]
    kind = fillings.kinds[_ranges(fillings.first_kind[active] + filling * width, width)]
    target = _ranges(_starts(length)[row] + blocks.above[chosen][active], width)
    items[target] = blocks.kind_position[np.repeat(blocks.first_kind[chosen][active], width) + kind]
    value = blocks.values_of_rows(queries[query_of_row], items, length)

    probability = np.repeat(np.where(is_drawn, 1 / rows_of_group, 1.0), rows_of_group)
    listed = ~drawn[active]
    np.multiply.at(
        probability, row[listed], fillings.probability[(fillings.first_probability[active] + filling)[listed]]
    )
    points = _Points(np.repeat(np.arange(len(rows_of_group)), rows_of_group), value[:rows], probability)
    return _sum_of_groups(points, query_of_group, value[rows:])


@dataclass(frozen=True, slots=True, eq=False)
class _Fillings:
    """Ways to fill the ranks of tied blocks: the kind at each rank, filling after filling, and probabilities."""

    number: NDArray[np.int64]  # of fillings of each block
    width: NDArray[np.int64]  # ranks of each
    first_kind: NDArray[np.int64]  # where those of a block begin in ``kinds``
    first_probability: NDArray[np.int64]
    kinds: NDArray[np.uint16]
    probability: NDArray[np.float64]

    @classmethod
    def of(
        cls, blocks: TiedOrders, chosen: NDArray[np.int64], drawn: NDArray[np.bool_], draws: NDArray[np.int64]
    ) -> _Fillings:
        """All fillings of the blocks, or draws; blocks with equal counts share them."""
        to_the_end = not (blocks.measure.definition.has_walk and blocks.measure.cutoff is not None)
        tables: dict[tuple[int, ...], int] = {}
        fillings: list[tuple[NDArray[np.uint16], NDArray[np.float64]]] = []
        table = np.empty(len(chosen), dtype=np.int64)
        columns = (blocks.first_kind, blocks.kinds, blocks.visible, blocks.above)
        described = zip(*(column[chosen].tolist() for column in columns), strict=True)
        for at, (first, kinds, visible, above) in enumerate(described):
            counts = tuple(blocks.kind_count[first : first + kinds].tolist())
            key = (int(draws[at]), above, visible, *counts) if drawn[at] else (0, 0, visible, *counts)
            if key not in tables:
                tables[key] = len(fillings)
                draw = _drawn_fillings(counts, visible, above, key[0], to_the_end) if drawn[at] else None
                fillings.append(draw or _all_fillings(counts, visible, to_the_end))
            table[at] = tables[key]
        number, width = np.array([kinds.shape for kinds, _ in fillings], dtype=np.int64).T
        return cls(
            number[table],
            width[table],
            _starts(number * width)[table],
            _starts(number)[table],
            np.concatenate([kinds.ravel() for kinds, _ in fillings]),
            np.concatenate([probability for _, probability in fillings]),
        )


@lru_cache(maxsize=512)
def _all_fillings(
    counts: tuple[int, ...], visible: int, to_the_end: bool
) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """Every distinguishable way to fill the visible ranks of a block with ``counts[k]`` documents of kind k.

    With ``to_the_end`` the other documents follow.

    >>> _all_fillings((1, 2), 2, True)[0].tolist()
    [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    kinds = np.zeros((1, 0), dtype=np.uint16)
    left, probability = np.array([counts]), np.ones(1)
    for filled in range(visible):
        row, kind = np.nonzero(left)
        probability = probability[row] * left[row, kind] / (sum(counts) - filled)
        kinds = np.column_stack((kinds[row], kind.astype(np.uint16)))
        left = left[row]
        left[np.arange(len(row)), kind] -= 1
    if to_the_end:
        rest = np.repeat(np.tile(np.arange(len(counts), dtype=np.uint16), len(left)), left.ravel())
        kinds = np.column_stack((kinds, rest.reshape(len(left), -1)))
    return kinds, probability


def _drawn_fillings(
    counts: tuple[int, ...], visible: int, above: int, draws: int, to_the_end: bool
) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """Random ways to fill the ranks of a block, in pairs of an order and its reverse; they depend on it alone."""
    rng, size = np.random.default_rng((above, visible, *counts)), sum(counts)
    if not to_the_end and visible**2 <= size:  # a few of many documents: repeat draws that have one of them twice
        document = rng.integers(size, size=(draws // 2, visible))
        while len(twice := np.flatnonzero((np.diff(np.sort(document, axis=1), axis=1) == 0).any(axis=1))):
            document[twice] = rng.integers(size, size=(len(twice), visible))
        document = np.concatenate((document, size - 1 - document))
        kinds = np.searchsorted(np.cumsum(counts), document, side="right").astype(np.uint16)
    else:
        kinds = np.repeat(np.arange(len(counts), dtype=np.uint16), counts)
        kinds = rng.permuted(np.tile(kinds, (draws // 2, 1)), axis=1)
        kinds = np.concatenate((kinds, kinds[:, ::-1]))
        kinds = kinds if to_the_end else kinds[:, :visible]
    return kinds, np.full(draws, 1 / draws)


# ---- sums of independent blocks --------------------------------------------------------------------------------------


def _sum_of_groups(points: _Points, query_of_group: NDArray[np.int64], start: NDArray[np.float64]) -> _Points:
    """Distribution of each query's value from those of its groups, which change it independently from ``start``."""
    first, size = _first_and_size(points.owner, len(query_of_group))
    total: _Points | None = None
    for group in _turns(query_of_group):
        at = _ranges(first[group], size[group])
        query = np.repeat(query_of_group[group], size[group])
        if total is None:  # every query has a first group
            total = _Points(query, points.value[at], points.probability[at])
        else:
            total = _convolved(total, _Points(query, points.value[at] - start[query], points.probability[at]))
    assert total is not None
    return total


def _convolved(total: _Points, addend: _Points) -> _Points:
    """Distribution of the sum of two independent variables, for the queries that have an addend."""
    count = int(total.owner[-1]) + 1
    for reduce in (_merged, _binned):
        sizes = [np.bincount(points.owner, minlength=count) for points in (total, addend)]
        large = sizes[0] * sizes[1] > _MOST_POINTS
        if large.any():
            total, addend = (_reduced(points, large, reduce) for points in (total, addend))
    first, size = _first_and_size(addend.owner, count)
    repeats = np.maximum(size, 1)[total.owner]
    left = np.repeat(np.arange(len(total.owner)), repeats)
    right = _ranges(first[total.owner], repeats)
    added = size[total.owner][left] > 0
    right = np.where(added, right, 0)
    return _Points(
        total.owner[left],
        total.value[left] + np.where(added, addend.value[right], 0.0),
        total.probability[left] * np.where(added, addend.probability[right], 1.0),
    )


def _reduced(points: _Points, large: NDArray[np.bool_], reduce: Callable[[_Points], _Points]) -> _Points:
    """The points, with those of some queries reduced in number."""
    chosen = large[points.owner]
    some = [_Points(points.owner[at], points.value[at], points.probability[at]) for at in (chosen, ~chosen)]
    some[0] = reduce(some[0])
    order = np.argsort(np.concatenate([each.owner for each in some]), kind="stable")
    owner, value, probability = (
        np.concatenate([getattr(each, name) for each in some])[order] for name in ("owner", "value", "probability")
    )
    return _Points(owner, value, probability)


def _merged(points: _Points) -> _Points:
    """The points with equal values joined."""
    order = np.lexsort((points.value, points.owner))
    owner, value, probability = points.owner[order], points.value[order], points.probability[order]
    new = np.ones(len(owner), dtype=bool)
    new[1:] = (np.diff(owner) != 0) | (np.diff(value) > _ROUNDING * np.maximum(1.0, np.abs(value[1:])))
    first = np.flatnonzero(new)
    return _Points(owner[first], value[first], np.add.reduceat(probability, first))


def _binned(points: _Points) -> _Points:
    """The points of each query in bins of equal width, each at its mean."""
    count = int(points.owner[-1]) + 1
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, points.owner, points.value)
    np.maximum.at(high, points.owner, points.value)
    width = np.where(high > low, high - low, 1.0)[points.owner]
    fraction = (points.value - low[points.owner]) / width
    bin_ = points.owner * _BINS + np.minimum((fraction * _BINS).astype(np.int64), _BINS - 1)
    probability = np.bincount(bin_, points.probability).astype(np.float64)
    filled = np.flatnonzero(probability)
    mean = np.bincount(bin_, points.probability * points.value)[filled] / probability[filled]
    return _Points(filled // _BINS, mean, probability[filled])


# ---- flat arrays -----------------------------------------------------------------------------------------------------


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(np.cumsum(sizes) - sizes)


def _ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, ..., start + size - 1 for each pair, joined.

    >>> _ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    return np.repeat(starts - _starts(sizes), sizes) + np.arange(int(np.sum(sizes)))


def _first_and_size(owner: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the entries of each owner begin, and how many there are; entries are sorted by owner."""
    size = np.bincount(owner, minlength=count)
    return _starts(size), size


def _turns(group: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Indices of the first entry of every group, then of the second, ...

    >>> [turn.tolist() for turn in _turns(np.array([3, 1, 3, 3]))]
    [[1, 0], [2], [3]]
    """
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], group[order])
    nth = np.arange(len(order)) - first
    for turn in range(int(nth.max(initial=-1)) + 1):
        yield order[nth == turn]
