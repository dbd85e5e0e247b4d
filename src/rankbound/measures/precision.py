"""Measures of relevant or not: AP, SP, P, R, RR, Success, Rprec, RBP and nRBP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.names import Measure
    from rankbound.measures.ranked import Hits, Ranked

__all__ = [
    "average_precision",
    "first_relevant_probabilities",
    "log_factorials",
    "mean_precision_of_retrieved",
    "normalized_rank_biased_precision",
    "precision",
    "precision_divisor",
    "r_precision",
    "rank_biased_precision",
    "ratio",
    "recall",
    "reciprocal_rank",
    "success",
    "sum_of_precisions",
]


def ratio(top: NDArray[Any], bottom: NDArray[Any]) -> NDArray[np.float64]:
    """top / bottom, and 0 where bottom is 0."""
    return np.asarray(np.divide(top, bottom, out=np.zeros(len(top)), where=bottom > 0))


def _visible(ranked: Ranked, hits: Hits, values: NDArray[np.float64], cut: NDArray[np.int64]) -> NDArray[np.float64]:
    if cut is ranked.sizes:
        return ranked.sum(hits.query, values)
    seen = hits.rank <= ranked.spread(cut, hits.query)
    return ranked.sum(hits.query[seen], values[seen])


def precision(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """P@k = relevant items among the first k, over k (also where the list is shorter)."""
    hits = ranked.hits(measure.rel)
    assert measure.cutoff is not None
    return _visible(ranked, hits, hits.probability, ranked.cut(measure.cutoff)) / measure.cutoff


def recall(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """R@k = share of the relevant items that are among the first k."""
    hits = ranked.hits(measure.rel)
    return ratio(
        _visible(ranked, hits, hits.probability, ranked.cut(measure.cutoff)), ranked.counts.relevant(measure.rel)
    )


def r_precision(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """Precision at the number of relevant items."""
    hits, relevant = ranked.hits(measure.rel), ranked.counts.relevant(measure.rel)
    return ratio(_visible(ranked, hits, hits.probability, np.minimum(relevant, ranked.depths)), relevant)


def sum_of_precisions(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """SP@k = sum over the relevant items at ranks i <= k of precision at i."""
    hits = ranked.hits(measure.rel)
    return _visible(ranked, hits, hits.probability * hits.nth / hits.rank, ranked.cut(measure.cutoff))


def average_precision(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """AP@k = SP@k over the divisor that ``div`` names."""
    total = sum_of_precisions(ranked, measure)
    if measure["div"] != "retrieved":
        return ratio(total, precision_divisor(ranked.counts, measure))
    hits, cut = ranked.hits(measure.rel), ranked.cut(measure.cutoff)
    value = ratio(total, _visible(ranked, hits, hits.probability, cut))
    if ranked.tied is not None:  # where a tied block lies across the cutoff, the divisor hangs on its order
        tied = ranked.tied
        above = tied.start - ranked.offsets[tied.query]
        across = (above < cut[tied.query]) & (above + tied.size > cut[tied.query])
        query = tied.query[across]
        found = tied.sum(ranked.labels >= measure.rel)[across].astype(np.int64)
        clear = (hits.rank <= cut[hits.query]) & (hits.rank <= _at_query(ranked, query, above[across])[hits.query])
        before = ranked.sum(hits.query[clear], (hits.probability * hits.nth / hits.rank)[clear])[query]
        count = np.rint(ranked.sum(hits.query[clear], hits.probability[clear])[query]).astype(np.int64)
        value[query] = mean_precision_of_retrieved(
            tied.size[across], found, cut[query] - above[across], above[across], count, before
        )
    return value


def _at_query(ranked: Ranked, query: NDArray[np.int64], value: NDArray[np.int64]) -> NDArray[np.int64]:
    full = np.full(len(ranked), np.iinfo(np.int64).max)
    full[query] = value
    return full


def precision_divisor(counts: LabelCounts, measure: Measure) -> NDArray[np.int64]:
    """What AP divides the sum of precisions by, for the divisors that the query alone decides."""
    relevant = counts.relevant(measure.rel)
    if measure["div"] == "k":
        return np.full(len(counts), measure.cutoff)
    return relevant if measure["div"] == "R" else np.minimum(relevant, measure.cutoff or 0)


def mean_precision_of_retrieved(
    size: NDArray[np.int64],
    relevant: NDArray[np.int64],
    window: NDArray[np.int64],
    above: NDArray[np.int64],
    found: NDArray[np.int64],
    total: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Mean over all orders of a block of (sum of precisions) / (relevant retrieved), where only a window of it is seen.

    The block has ``size`` items, ``relevant`` of them relevant; the first ``window`` of them are seen, after ``above``
    items with ``found`` relevant ones and precision sum ``total``. Given that m relevant items fall into the window
    (hypergeometric), they stand at random places there.
    """
    value = np.zeros(len(size))
    lf = log_factorials(int(size.max(initial=0)))
    inverse = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, int((above + window).max(initial=0)) + 1))))
    harmonic = inverse[above + window] - inverse[above]  # sum of 1 / rank over the window
    for m in range(int(np.minimum(relevant, window).max(initial=0)) + 1):
        possible = (m <= relevant) & (m <= window) & (window - m <= size - relevant)
        s, r, w, a, f, h = (x[possible] for x in (size, relevant, window, above, found, harmonic))
        probability = np.exp(_log_choose(lf, r, m) + _log_choose(lf, s - r, w - m) - _log_choose(lf, s, w))
        # precision sum in the window: sum over t of m/w * (f + 1 + (t-1)(m-1)/(w-1)) / (a + t)
        step = (m - 1) / np.maximum(w - 1, 1)
        inside = m / np.maximum(w, 1) * ((f + 1 - step * (a + 1)) * h + step * w)
        value[possible] += probability * ratio(total[possible] + inside, f + m)
    return value


def reciprocal_rank(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """RR@k = 1 / rank of the first relevant item, 0 if it is not among the first k."""
    return _of_first_relevant(ranked, measure, lambda rank: 1 / rank)


def success(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """Success@k (hit rate) = 1 if a relevant item is among the first k, else 0."""
    return _of_first_relevant(ranked, measure, lambda rank: np.ones(len(rank)))


def _of_first_relevant(ranked: Ranked, measure: Measure, worth: Any) -> NDArray[np.float64]:
    relevant = ranked.labels >= measure.rel
    positions = np.flatnonzero(relevant)
    index = np.searchsorted(positions, ranked.offsets[:-1])
    has = index < np.searchsorted(positions, ranked.offsets[1:])
    query = np.flatnonzero(has)
    first = positions[index[has]]
    rank = first - ranked.offsets[query] + 1
    cut = ranked.cut(measure.cutoff)
    value = np.zeros(len(ranked))
    value[query] = np.where(rank <= cut[query], worth(np.maximum(rank, 1)), 0.0)
    if ranked.tied is not None:
        tied = ranked.tied
        block = np.searchsorted(tied.start, first, side="right") - 1
        inside = (block >= 0) & (first < (tied.start + tied.size)[block])
        query, block = query[inside], block[inside]
        above = tied.start[block] - ranked.offsets[query]
        found = tied.sum(relevant)[block].astype(np.int64)
        owner, place, probability = first_relevant_probabilities(tied.size[block], found, cut[query] - above)
        value[query] = np.bincount(owner, probability * worth(above[owner] + place), minlength=len(query))
    return value


def first_relevant_probabilities(
    size: NDArray[np.int64], relevant: NDArray[np.int64], visible: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """P(the first of ``relevant`` items stands at place t) among ``size`` items in random order, for t <= visible.

    C(size - t, relevant - 1) / C(size, relevant). Returns flat arrays: which query, t from 1, probability.
    """
    length = np.where(relevant > 0, np.clip(visible, 0, size - relevant + 1), 0)
    owner = np.repeat(np.arange(len(size)), length)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length) + 1
    lf = log_factorials(int(size.max(initial=0)))
    n, r = size[owner], relevant[owner]
    return owner, place, np.exp(_log_choose(lf, n - place, r - 1) - _log_choose(lf, n, r))


def log_factorials(n: int) -> NDArray[np.float64]:
    """log 0!, ..., log n!"""
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1, dtype=np.longdouble))))).astype(np.float64)


def _log_choose(lf: NDArray[np.float64], n: Any, k: Any) -> Any:
    return lf[n] - lf[k] - lf[n - k]


def rank_biased_precision(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """RBP(p)@k = (1 - p) * sum over relevant items at ranks i <= k of p^(i - 1); Moffat & Zobel 2008."""
    p, cut = measure.number("p"), ranked.cut(measure.cutoff)
    if measure.family == "RBP" and measure["gain"] == "graded":
        query, rank, labels = ranked.weights(lambda labels: labels.astype(np.float64), measure.cutoff)
        return (1 - p) * ratio(ranked.sum(query, labels * p ** (rank - 1.0)), largest_label(ranked.counts))
    hits = ranked.hits(measure.rel)
    return (1 - p) * _visible(ranked, hits, hits.probability * p ** (hits.rank - 1.0), cut)


def normalized_rank_biased_precision(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """nRBP(p)@k = RBP(p)@k over the best possible, 1 - p^min(k, relevant)."""
    return ratio(rank_biased_precision(ranked, measure), best_rank_biased_precision(ranked.counts, measure))


def best_rank_biased_precision(counts: LabelCounts, measure: Measure) -> NDArray[np.float64]:
    """1 - p^min(k, relevant), the RBP of the best order of all items at hand."""
    relevant = counts.relevant(measure.rel)
    seen = relevant if measure.cutoff is None else np.minimum(relevant, measure.cutoff)
    return np.asarray(1 - measure.number("p") ** seen, dtype=np.float64)


def largest_label(counts: LabelCounts) -> NDArray[np.float64]:
    """The largest label of each query; runs come with the largest first."""
    largest = np.zeros(len(counts))
    has = counts.sizes > 0
    largest[has] = counts.values[counts.starts[:-1][has]]
    return largest
