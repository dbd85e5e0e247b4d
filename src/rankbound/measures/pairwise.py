"""Pairwise measures: weighted pairs of documents with different labels that stand in the wrong order. U, PairAcc, Tau.

With W the sum of weight(high label, low label) over the pairs whose lower label stands above the higher one (a tie, and
a pair of documents without rank, count half), and scale and offset numbers of the query:

=========  ===========================================================================================================
value      x = offset + scale * W
best       no wrong pair (W = 0): labels in descending order
worst      every pair is wrong (W = sum of all weights): labels in ascending order
expected   W = half of all weights: every pair is equally likely to stand either way
growth     a document adds the weights of the documents with lower labels above it to W
smooth     sum over pairs of weight * sigma(f_low - f_high)
swap       with f(x, m) = weight(x, m) if x > m, -weight(m, x) if m > x, and S_x(r) the sum over ranks <= r of
           f(x, label):
           a document of label i at rank a and one of label j at rank b > a change W by
           f(i, j) + (S_i(b-1) - S_i(a)) - (S_j(b-1) - S_j(a))
=========  ===========================================================================================================

Where only some documents are ranked, the pairs among those without rank count half. For bounds in that case a weight
must not decrease with the higher label and not increase with the lower one.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError
from rankbound.measures.definition import BoundsTuple, Walked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

_MOST_LEVELS = 64  # distinct labels of a measure with weights: the work grows with their square


class Pairwise(Walked):
    """A measure of pairs in the right order. Without `weights` of its own every pair counts 1."""

    cutoff = "none"

    @abstractmethod
    def affine(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Scale and offset of each query; ``levels`` has one number per run of ``counts``."""

    def weights(self, measure: Measure, high: Any, low: Any) -> Any:
        """Weight of a pair with these levels, high > low; arrays that broadcast."""
        return np.ones(np.broadcast_shapes(np.shape(high), np.shape(low)))

    @property
    def is_weighted(self) -> bool:
        """Whether pairs have weights of their own."""
        return type(self).weights is not Pairwise.weights

    def orders_labels(self, measure: Measure) -> bool:
        """True, unless the measure only distinguishes relevant documents from others."""
        return not self.is_binary(measure)

    # ---- what the structure gives ------------------------------------------------------------------------------------

    def is_defined(self, measure: Measure, counts: LabelCounts) -> NDArray[np.bool_]:
        """Queries with a pair of different labels."""
        return self.all_pairs(measure, counts) > 0

    def all_pairs(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Sum of the weights of all pairs of documents with different labels."""
        levels = self.levels(measure, counts.values) if levels is None else levels
        return self._pairs_among(measure, counts, levels, counts.counts)

    def _pairs_among(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64], number: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The same for ``number`` documents of each run."""
        if not self.is_weighted:
            return (counts.sum(number) ** 2 - self._sum_of_squares(counts, levels, number)) / 2
        distinct = _few(np.unique(levels))
        table = np.zeros((len(counts), len(distinct)))
        np.add.at(table, (counts.query_of_run, np.searchsorted(distinct, levels)), number)
        return np.asarray(np.einsum("qi,ij,qj->q", table, self._weight_matrix(measure, distinct), table))

    @staticmethod
    def _sum_of_squares(
        counts: LabelCounts, levels: NDArray[np.float64], number: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Sum over the distinct levels of a query of (documents of this level)^2; adjacent runs may be equal."""
        if len(levels) == 0:
            return np.zeros(len(counts))
        new = np.ones(len(levels), dtype=bool)
        new[1:] = (levels[1:] != levels[:-1]) | (counts.query_of_run[1:] != counts.query_of_run[:-1])
        first = np.flatnonzero(new)
        squares = np.add.reduceat(number, first).astype(np.float64) ** 2
        return np.bincount(counts.query_of_run[first], squares, minlength=len(counts)).astype(np.float64, copy=False)

    def _weight_matrix(self, measure: Measure, distinct: NDArray[np.float64]) -> NDArray[np.float64]:
        """weight[i, j] of levels i > j (ascending), else 0."""
        high, low = np.tril_indices(len(distinct), -1)
        matrix = np.zeros((len(distinct), len(distinct)))
        matrix[high, low] = self.weights(measure, distinct[high], distinct[low])
        return matrix

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Offset plus scale times the weight of the wrong pairs."""
        scale, offset = self.affine(measure, ranked.counts)
        return offset + scale * self.wrong_pairs(measure, ranked)

    def wrong_pairs(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Weight of the pairs in the wrong order; ties and pairs without rank count half."""
        if self.is_binary(measure) and not self.is_weighted:
            return self._wrong_pairs_of_hits(measure, ranked)
        levels = self.levels(measure, ranked.labels)
        if not self.is_weighted:
            code = (
                levels.astype(np.int64)
                if ranked.labels.dtype.kind == "i"
                else np.unique(levels, return_inverse=True)[1]
            )
            return self.all_pairs(measure, ranked.counts) - _concordant(ranked, code)
        distinct, code = np.unique(levels, return_inverse=True)
        matrix = self._weight_matrix(measure, _few(distinct))
        query = ranked.tie_blocks[0]
        total = np.zeros(len(ranked))
        for high in range(1, len(distinct)):
            for low in range(high):
                members = (code == high) | (code == low)
                is_high = (code == high).astype(np.int64)
                pairs = _unequal(is_high[members], query[members], len(ranked))
                total += matrix[high, low] * (pairs - _concordant(ranked, is_high, members))
        return total

    def _wrong_pairs_of_hits(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """With two levels: the sum of (rank - 1) over the relevant documents less P(P - 1)/2."""
        hits, relevant = ranked.hits(measure.rel), ranked.counts.relevant(measure.rel)
        seen = hits.rank <= ranked.depths[hits.query]
        query = hits.query[seen]
        total = ranked.sum(query, hits.probability[seen] * (hits.rank[seen] - 1))
        unseen = relevant - ranked.sum(query, hits.probability[seen])
        total += unseen * (ranked.depths + (ranked.sizes - ranked.depths - 1) / 2)  # they share the last ranks
        return np.asarray(total - relevant * (relevant - 1) / 2)

    def range_form(self, measure: Measure) -> str:
        """Every exchange of a lower label above a higher one sets pairs right."""
        return "exchange"

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """All pairs wrong, half of them, none; but for half of the pairs among documents without rank."""
        scale, offset = self.affine(measure, counts, levels)
        everything = self._pairs_among(measure, counts, levels, counts.counts)

        def hidden(ends: NDArray[np.int64]) -> NDArray[np.float64]:
            below = np.clip(ends - counts.depths[counts.query_of_run], 0, counts.counts)
            return self._pairs_among(measure, counts, levels, below)

        worst, best = everything - hidden(counts.worst_ends) / 2, hidden(counts.best_ends) / 2
        return offset + scale * worst, offset + scale * everything / 2, offset + scale * best

    def canonical_levels(self, measure: Measure, levels: list[float]) -> list[float]:
        """Without weights only the order of the levels matters."""
        return levels if self.is_weighted else [float(i) for i in range(len(levels) - 1, -1, -1)]

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """The weights of the pairs with lower labels above."""
        below = range(level + 1, len(case.labels))
        if not self.is_weighted:
            return sum(so_far[lower] for lower in below) if below else 0.0
        return sum((self._weight_of(case, level, lower) * so_far[lower] for lower in below), 0.0)

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """Scale and offset; the offset includes the wrong pairs that have documents without rank."""
        scale, offset = (float(part[0]) for part in self.affine(case.measure, case.label_counts, np.array(case.labels)))
        left = [count - seen for count, seen in zip(case.counts, so_far, strict=True)]
        wrong: Any = 0.0
        for high in range(len(left)):
            for low in range(high + 1, len(left)):
                pairs = left[high] * so_far[low] + left[high] * left[low] / 2
                wrong = wrong + self._weight_of(case, high, low) * pairs
        return scale, offset + scale * wrong

    def _weight_of(self, case: Any, high: int, low: int) -> float:
        return float(self.weights(case.measure, np.float64(case.labels[high]), np.float64(case.labels[low])))

    def total_range(self, case: Any) -> tuple[float, float, float]:
        """From no wrong pair to all of them; whole numbers without weights."""
        everything = float(self.all_pairs(case.measure, case.label_counts, np.array(case.labels))[0])
        return 0.0, everything, 0.0 if self.is_weighted else 1.0

    def closed_form(self, measure: Measure) -> str:
        """Without weights the coefficients of a Gaussian multinomial."""
        return "" if self.is_weighted else "wrong pairs"


def _few(distinct: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(distinct) > _MOST_LEVELS:
        raise DataError(
            f"a pairwise measure with weights takes up to {_MOST_LEVELS} distinct labels, got {len(distinct)}"
        )
    return distinct


def _concordant(
    ranked: Ranked, labels: NDArray[np.int64], chosen: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Pairs in the right order, those within a tie counted half; ``labels`` are whole numbers in ranked order.

    Documents without rank tie with one another. A block of ties that lies across the depth has a part of its documents
    among them: then a document of the block stands above another one without rank with probability (1 + q)/2, where q
    is the ranked fraction of the block.
    """
    query, block = ranked.tie_blocks
    if chosen is not None:
        labels, query, block = labels[chosen], query[chosen], block[chosen]
    total = _falling_pairs(labels, query, len(ranked))
    tied = np.flatnonzero(block >= 0)
    if len(tied) == 0:
        return total
    total += _half_minus_falling(labels[tied], block[tied], query[tied], len(ranked))
    across, fraction = ranked.ties_across_depth
    if len(across):
        # pairs (block across the depth, document without rank): counted as if the block stood above
        queries = np.isin(query, across)
        hidden, partly = queries & (block == query), queries & (block == len(ranked) + ranked.block_across_depth[query])
        right = np.zeros(len(ranked))
        unequal = np.zeros(len(ranked))
        for sign, members in ((1, hidden | partly), (-1, hidden), (-1, partly)):
            right += sign * _falling_pairs(labels[members], query[members], len(ranked))
            unequal += sign * _unequal(labels[members], query[members], len(ranked))
        slack = np.zeros(len(ranked))
        slack[across] = (1 - fraction) / 2
        total += slack * (unequal - 2 * right)
    return total


def _half_minus_falling(
    labels: NDArray[np.int64], block: NDArray[np.int64], query: NDArray[np.int64], queries: int
) -> NDArray[np.float64]:
    """Half of the unequal pairs within each block, less those that fall in the order at hand; summed per query."""
    name, code = np.unique(block, return_inverse=True)
    query_of_block = np.empty(len(name), dtype=np.int64)
    query_of_block[code] = query
    order = np.argsort(code, kind="stable")
    falling = _falling_pairs(labels[order], code[order], len(name))
    fair = _unequal(labels, code, len(name)) / 2
    return np.bincount(query_of_block, fair - falling, minlength=queries).astype(np.float64, copy=False)


def _unequal(labels: NDArray[Any], group: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    if len(labels) == 0:
        return np.zeros(groups)
    size = np.bincount(group, minlength=groups)
    keys, counts = np.unique(np.stack((group, labels)), axis=1, return_counts=True)
    return (size**2 - np.bincount(keys[0], counts**2, minlength=groups)) / 2


def _falling_pairs(labels: NDArray[Any], group: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    """Per group the pairs i < j with labels[i] > labels[j], in O(items * bits of the largest label).

    From the highest bit down: among neighbors that agree in all higher bits, a pair falls when a 1 comes before a 0.
    Then the 0s and 1s part, each keeping its order, and the next bit decides within them. ``group`` must not decrease.
    """
    total = np.zeros(groups)
    if len(labels) == 0:
        return total
    bits = max(int(labels.max(initial=0)), 0).bit_length()
    shared = group.astype(np.int64)  # group and higher bits seen so far, as one number
    owner = group
    for bit in range(bits - 1, -1, -1):
        one = (labels >> bit) & 1
        ones = np.cumsum(one)
        first = np.flatnonzero(np.concatenate(([True], shared[1:] != shared[:-1])))
        before = np.repeat((ones - one)[first], np.diff(np.append(first, len(labels))))
        total += np.bincount(owner, np.where(one == 0, ones - before, 0), minlength=groups)
        key = shared * 2 + one
        order = np.argsort(key, kind="stable")
        labels, shared, owner = labels[order], key[order], owner[order]
    return total
