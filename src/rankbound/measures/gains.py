"""Measures that weigh graded labels: DCG, nDCG and ERR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError
from rankbound.measures.precision import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.names import Measure
    from rankbound.measures.ranked import Ranked

__all__ = [
    "dcg",
    "discounts",
    "err",
    "gain_of",
    "ideal_dcg",
    "mean_products",
    "ndcg",
    "stop_probability",
    "stopping_value",
]

_LARGEST_EXPONENT = 1000  # 2^1024 is no number any more, and gains are summed


def gain_of(labels: NDArray[Any], dcg: object) -> NDArray[np.float64]:
    """What a label is worth: the label itself (``log2``) or 2^label - 1 (``exp-log2``)."""
    if dcg != "exp-log2":
        return labels.astype(np.float64)
    if labels.max(initial=0) > _LARGEST_EXPONENT:
        raise DataError(f"labels must be at most {_LARGEST_EXPONENT} for gains of 2^label - 1, got {labels.max():g}")
    return np.asarray(np.exp2(labels) - 1)


def discounts(ranks: int) -> NDArray[np.float64]:
    """1 / log2(rank + 1) for the ranks 1..ranks."""
    return 1 / np.log2(np.arange(2, ranks + 2))


def dcg(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """DCG@k = sum over ranks i <= k of gain_i / log2(i + 1)."""
    query, rank, gains = ranked.weights(lambda labels: gain_of(labels, measure["dcg"]), measure.cutoff)
    return ranked.sum(query, gains * discounts(int(rank.max(initial=0)))[rank - 1])


def ideal_dcg(counts: LabelCounts, measure: Measure) -> NDArray[np.float64]:
    """The DCG@k of the labels in descending order, all items at hand."""
    cut = counts.sizes if measure.cutoff is None else np.minimum(counts.sizes, measure.cutoff)
    total = np.concatenate(([0.0], np.cumsum(discounts(int(cut.max(initial=0))))))
    end = np.minimum(counts.best_ends, cut[counts.query_of_run])
    start = np.minimum(counts.best_ends - counts.counts, end)
    return counts.sum(gain_of(counts.values, measure["dcg"]) * (total[end] - total[start]))


def ndcg(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """DCG@k over the DCG@k of the best order; 0 where no label is above 0."""
    return ratio(dcg(ranked, measure), ideal_dcg(ranked.counts, measure))


def stop_probability(labels: NDArray[Any], measure: Measure) -> NDArray[np.float64]:
    """(2^label - 1) / 2^max_rel, the probability that a user who sees the item is satisfied."""
    largest = measure.number("max_rel")
    if labels.max(initial=0) > largest:
        raise DataError(
            f"ERR(max_rel={largest:g}) takes labels up to {largest:g}, got {labels.max():g}; name a larger max_rel"
        )
    return np.asarray((np.exp2(labels) - 1) / np.exp2(largest), dtype=np.float64)


def err(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """ERR@k = sum over ranks i <= k of 1/i * P(the user stops at i); Chapelle et al. 2009."""
    stop = stop_probability(ranked.labels, measure)
    cut = ranked.cut(measure.cutoff)
    if ranked.tied is None:
        return stopping_value(stop, ranked.offsets, cut)
    # A tied block passes on the user with the product of (1 - stop) whatever its order; inside, average over orders.
    tied = ranked.tied
    clear = stop.copy()
    clear[tied.items] = 0
    passed = np.cumsum(np.log1p(-stop).astype(np.longdouble))
    passed = np.concatenate((np.zeros(1, np.longdouble), passed))
    reach = np.exp(passed[tied.start] - passed[ranked.offsets[tied.query]]).astype(np.float64)
    order = np.argsort(-tied.size, kind="stable")
    width = int(tied.size.max())
    keep = np.ones((len(order), width))
    place = np.argsort(order)[tied.block_of_item]
    keep[place, tied.items - tied.start[tied.block_of_item]] = 1 - stop[tied.items]
    average = mean_products(keep, tied.size[order], width)
    rank = (tied.start - ranked.offsets[tied.query])[order, None] + np.arange(1, width + 1)
    visible = (np.arange(width) < tied.size[order, None]) & (rank <= cut[tied.query[order], None])
    inside = np.sum((average[:, :-1] - average[:, 1:]) / rank * visible, axis=1)
    return stopping_value(clear, ranked.offsets, cut, stop) + ranked.sum(tied.query[order], reach[order] * inside)


def stopping_value(
    stop: NDArray[np.float64],
    offsets: NDArray[np.int64],
    cut: NDArray[np.int64],
    passing: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """sum of 1/i * stop_i * prod_{j<i} (1 - passing_j) per query; ``passing`` is ``stop`` unless given."""
    # extended precision, because one running sum serves all queries
    log_pass = np.cumsum(np.log1p(-(stop if passing is None else passing)).astype(np.longdouble))
    log_pass = np.concatenate((np.zeros(1, np.longdouble), log_pass))
    positions = np.flatnonzero(stop)
    query = np.searchsorted(offsets, positions, side="right") - 1
    rank = positions - offsets[query] + 1
    seen = rank <= cut[query]
    positions, query, rank = positions[seen], query[seen], rank[seen]
    reach = np.exp(log_pass[positions] - log_pass[offsets[query]]).astype(np.float64)
    return np.bincount(query, stop[positions] * reach / rank, minlength=len(cut)).astype(np.float64, copy=False)


def mean_products(factors: NDArray[np.float64], sizes: NDArray[np.int64], upto: int) -> NDArray[np.float64]:
    """a[b, m] = mean over the m-subsets of row b's first ``sizes[b]`` factors of their product, m = 0..upto.

    These are elementary symmetric polynomials over binomials. Rows come in descending order of size. Taking the items
    one by one, a_m after j items is ((j - m) a_m + m f_j a_{m-1}) / j: means of means, so nothing overflows.
    """
    average = np.zeros((len(sizes), upto + 1))
    average[:, 0] = 1
    size_up = sizes[::-1]
    m = np.arange(1, upto + 1)
    for j in range(1, int(sizes.max(initial=0)) + 1):
        rows = len(sizes) - int(np.searchsorted(size_up, j))  # rows that have a j-th item
        top = min(j, upto)
        a = average[:rows]
        a[:, 1 : top + 1] = ((j - m[:top]) * a[:, 1 : top + 1] + m[:top] * factors[:rows, j - 1, None] * a[:, :top]) / j
    return average
