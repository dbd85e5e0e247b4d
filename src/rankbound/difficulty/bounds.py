"""Worst, expected and best value of every measure: closed forms in the label counts, one pass over the runs of labels.

N items, P of them relevant, c = ranks that are seen (cutoff, depth and list size taken together). The expected value
is the mean over all N! orders; it is also what a constant scorer gets when ties are averaged, and the tests hold the
two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import labels_of, numbers
from rankbound.difficulty.bounding import Bounds
from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.measures import LabelCounts, Measure, gains, pairs, parse_measure, precision
from rankbound.measures.precision import ratio

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["bounds", "bounds_of"]

Three = tuple[Any, Any, Any]  # worst, expected, best
MOST_ITEMS = 100_000_000  # of one query: sums over ranks take memory for each


def bounds(
    measure: str | Measure,
    *,
    n: ArrayLike | None = None,
    relevant: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> Bounds:
    """What any ranking of a query could score.

    Give ``n`` items of which ``relevant`` are relevant (numbers, or arrays of one shape for many queries), or the
    ``labels`` of one query.

    >>> b = bounds("AP", n=3, relevant=2)
    >>> print(f"{b.worst:.4f} {b.expected:.4f} {b.best:.4f}")  # 7/12, 29/36, 1
    0.5833 0.8056 1.0000
    >>> bounds("P@2", labels=[0, 2, 0, 1])
    Bounds(worst=0.0, expected=0.5, best=1.0)
    >>> bounds("RR", n=[2, 3], relevant=1).expected
    array([0.75      , 0.61111111])
    """
    measure = plain_measure(measure)
    if labels is not None:
        if n is not None or relevant is not None:
            raise ArgumentError("give n and relevant, or labels, not both")
        counts = LabelCounts.from_labels(*one_query(labels))
        shape: tuple[int, ...] = ()
    else:
        sizes, hits = counts_of("n", n), counts_of("relevant", relevant)
        try:
            shape = np.broadcast_shapes(sizes.shape, hits.shape)
        except ValueError:
            raise ArgumentError(f"n and relevant must be of one shape, got {sizes.shape} and {hits.shape}") from None
        if (hits > sizes).any():
            raise ArgumentError(f"relevant must not exceed n, got {hits.max()} at most, of {sizes.max()}")
        counts = LabelCounts.binary(sizes, hits, label=max(1, int(np.ceil(measure.rel))))
    three = bounds_of(measure, counts)
    parts = [np.reshape(part, shape) for part in (three.worst, three.expected, three.best)]
    return Bounds(*(float(part) if shape == () else part for part in parts))


def plain_measure(measure: str | Measure) -> Measure:
    """The measure, which must not be bounded already."""
    measure = parse_measure(measure)
    if measure.bounding != "none":
        raise MeasureError(f"bounds and distributions are those of the plain measure, {measure.plain}; got {measure}")
    return measure


def one_query(labels: ArrayLike) -> tuple[NDArray[Any], list[int]]:
    """Labels of one query, checked, with their offsets."""
    try:
        array = labels_of(labels)
    except DataError as error:
        raise ArgumentError(f"labels must be the finite numbers of one query: {error}") from error
    if len(array) == 0:
        raise ArgumentError(f"labels must be the finite numbers of one query, got {labels!r}")
    return array, [0, len(array)]


def counts_of(name: str, value: ArrayLike | None) -> NDArray[np.int64]:
    """Non-negative integers of any shape, checked."""
    array = np.zeros(1) if value is None else numbers(name, value, ndim=None)
    if array.dtype.kind not in "iu" or (array < 0).any():
        raise ArgumentError(f"{name} must be non-negative integers, got {value!r}")
    if (array > MOST_ITEMS).any():
        raise ArgumentError(f"{name} must be at most {MOST_ITEMS:,}, got {array.max()}")
    return array.astype(np.int64)


def bounds_of(measure: Measure, counts: LabelCounts) -> Bounds:
    """Worst, expected and best of a plain measure for each query."""
    worst, expected, best = _BOUNDS[measure.family](measure, counts)
    return Bounds(*(np.asarray(part, dtype=np.float64) for part in (worst, expected, best)))


# ---- one function per family -----------------------------------------------------------------------------------------


def _weighted(counts: LabelCounts, gain: NDArray[np.float64], weights: NDArray[np.float64], cut: Any) -> Three:
    """sum of gain * weight(rank): runs of equal gain take up stretches of ranks, from the top or from the bottom."""
    total = np.concatenate(([0.0], np.cumsum(weights)))
    limit = cut[counts.query_of_run]

    def of(ends: NDArray[np.int64]) -> NDArray[np.float64]:
        stretch = total[np.minimum(ends, limit)] - total[np.minimum(ends - counts.counts, limit)]
        return counts.sum(gain * stretch)

    mean_gain = ratio(counts.sum(gain * counts.counts), counts.sizes)
    return of(counts.worst_ends), mean_gain * total[cut], of(counts.best_ends)


def _dcg(measure: Measure, counts: LabelCounts) -> Three:
    cut = counts.cut(measure.cutoff)
    gain = gains.gain_of(counts.values, measure["dcg"])
    return _weighted(counts, gain, gains.discounts(int(cut.max(initial=0))), cut)


def _ndcg(measure: Measure, counts: LabelCounts) -> Three:
    ideal = gains.ideal_dcg(counts, measure)
    worst, expected, best = _dcg(measure, counts)
    return ratio(worst, ideal), ratio(expected, ideal), ratio(best, ideal)


def _err(measure: Measure, counts: LabelCounts) -> Three:
    cut = counts.cut(measure.cutoff)
    stop = gains.stop_probability(counts.values, measure)
    offsets = np.concatenate(([0], np.cumsum(counts.sizes)))
    falling = np.repeat(stop, counts.counts)
    mirror = np.repeat(offsets[:-1] + offsets[1:] - 1, counts.sizes) - np.arange(len(falling))
    best = gains.stopping_value(falling, offsets, cut)
    worst = gains.stopping_value(falling[mirror], offsets, cut)
    order = np.argsort(-counts.sizes, kind="stable")
    width, upto = int(counts.sizes.max(initial=0)), int(cut.max(initial=0))
    keep = np.ones((len(counts), width))
    inside = np.arange(width) < counts.sizes[:, None]
    keep[inside] = 1 - falling
    average = gains.mean_products(keep[order], counts.sizes[order], upto)
    seen = np.arange(upto) < cut[order, None]
    expected = np.empty(len(counts))
    expected[order] = np.sum((average[:, :-1] - average[:, 1:]) / np.arange(1, upto + 1) * seen, axis=1)
    return worst, expected, best


def _binary(measure: Measure, counts: LabelCounts) -> tuple[Any, Any, Any, Any, Any]:
    """N, P, c, and the relevant items among the seen ranks at the best and at the worst."""
    n, p, c = counts.sizes, counts.relevant(measure.rel), counts.cut(measure.cutoff)
    return n, p, c, np.minimum(c, p), np.maximum(c - (n - p), 0)


def _precision(measure: Measure, counts: LabelCounts) -> Three:
    n, p, c, most, least = _binary(measure, counts)
    k = measure.cutoff
    return least / k, ratio(p * c, n * k), most / k


def _recall(measure: Measure, counts: LabelCounts) -> Three:
    n, p, c, most, least = _binary(measure, counts)
    return ratio(least, p), np.where(p > 0, ratio(c, n), 0.0), ratio(most, p)


def _r_precision(measure: Measure, counts: LabelCounts) -> Three:
    n, p, _, _, _ = _binary(measure, counts)
    c = np.minimum(p, counts.depths)
    return ratio(np.maximum(c - (n - p), 0), p), ratio(c, n), ratio(c, p)


def _success(measure: Measure, counts: LabelCounts) -> Three:
    n, p, c, most, least = _binary(measure, counts)
    lf = precision.log_factorials(int(n.max(initial=0)))
    other = n - p
    possible = c <= other  # all seen ranks can be taken by other items
    seen = np.where(possible, c, 0)
    none = np.exp(lf[other] - lf[other - seen] - lf[n] + lf[n - seen])  # C(n - p, c) / C(n, c)
    expected = np.where(p > 0, np.where(possible, 1 - none, 1.0), 0.0)
    return least > 0, expected, most > 0


def _harmonic(n: int) -> NDArray[np.float64]:
    return np.concatenate(([0.0], np.cumsum(1 / np.arange(1, n + 1))))


def _sum_of_precisions(measure: Measure, counts: LabelCounts) -> Three:
    n, p, c, most, least = _binary(measure, counts)
    h = _harmonic(int(n.max(initial=0)))
    # at the worst the seen relevant items stand at ranks N-P+1..c: sum of (r - (N-P)) / r
    worst = least - (n - p) * np.where(least > 0, h[c] - h[n - p], 0.0)
    expected = ratio(p, n) * (h[c] + ratio(p - 1, n - 1) * (c - h[c]))
    if measure["variant"] == "published":  # takes precision and relevance at a rank as independent, and k as the top
        k = n if measure.cutoff is None else np.full(len(counts), measure.cutoff)
        return worst, k * ratio(p, n) ** 2, k
    return worst, expected, most


def _average_precision(measure: Measure, counts: LabelCounts) -> Three:
    worst, expected, best = _sum_of_precisions(measure, counts)
    if measure["div"] != "retrieved":
        divisor = precision.precision_divisor(counts, measure)
        return ratio(worst, divisor), ratio(expected, divisor), ratio(best, divisor)
    n, p, c, most, least = _binary(measure, counts)
    zero = np.zeros_like(n)
    expected = precision.mean_precision_of_retrieved(n, p, c, zero, zero, np.zeros(len(n)))
    return ratio(worst, least), expected, most > 0


def _reciprocal_rank(measure: Measure, counts: LabelCounts) -> Three:
    n, p, c, most, least = _binary(measure, counts)
    # many queries share (N, P, c); the distribution of the first relevant rank is made once for each
    cases, back = np.unique(np.stack((n, p, c)), axis=1, return_inverse=True)
    owner, rank, probability = precision.first_relevant_probabilities(*cases)
    expected = np.bincount(owner, probability / rank, minlength=cases.shape[1])[back.ravel()]
    return np.where(least > 0, 1 / (n - p + 1), 0.0), expected, most > 0


def _rank_biased_precision(measure: Measure, counts: LabelCounts) -> Three:
    q = measure.number("p")
    if measure.family == "RBP" and measure["gain"] == "graded":
        cut, largest = counts.cut(measure.cutoff), precision.largest_label(counts)
        weights = (1 - q) * np.power(q, np.arange(int(cut.max(initial=0)), dtype=np.float64))
        three = _weighted(counts, counts.values.astype(np.float64), weights, cut)
        return ratio(three[0], largest), ratio(three[1], largest), ratio(three[2], largest)
    n, p, c, most, least = _binary(measure, counts)
    return q ** (n - p) * (1 - q**least), ratio(p, n) * (1 - q**c), 1 - q**most


def _normalized_rank_biased_precision(measure: Measure, counts: LabelCounts) -> Three:
    ideal = precision.best_rank_biased_precision(counts, measure)
    worst, expected, best = _rank_biased_precision(measure, counts)
    return ratio(worst, ideal), ratio(expected, ideal), ratio(best, ideal)


def _mann_whitney(measure: Measure, counts: LabelCounts) -> Three:
    n, p, _, _, _ = _binary(measure, counts)
    unranked = n - counts.depths  # these items share the last ranks, so their pairs count half either way
    few, many = np.maximum(p - counts.depths, 0), np.minimum(p, unranked)  # relevant ones among them, best and worst
    return p * (n - p) - many * (unranked - many) / 2, p * (n - p) / 2, few * (unranked - few) / 2


def _concordant(counts: LabelCounts) -> Three:
    """Pairs in the right order: all or none of those with different labels, but for pairs of unranked items."""
    unequal = pairs.unequal_pairs(counts)
    unranked = counts.sizes - counts.depths

    def hidden(ends: NDArray[np.int64]) -> NDArray[np.float64]:
        below = np.clip(ends - counts.depths[counts.query_of_run], 0, counts.counts)
        return (unranked**2 - counts.sum(below**2.0)) / 2

    return hidden(counts.worst_ends) / 2, unequal / 2, unequal - hidden(counts.best_ends) / 2


def _pairwise_accuracy(measure: Measure, counts: LabelCounts) -> Three:
    worst, expected, best = _concordant(counts)
    unequal = pairs.unequal_pairs(counts)
    return ratio(worst, unequal), ratio(expected, unequal), ratio(best, unequal)


def _kendall_tau(measure: Measure, counts: LabelCounts) -> Three:
    worst, _, best = _concordant(counts)
    unequal, n = pairs.unequal_pairs(counts), counts.sizes
    scale = np.sqrt(unequal * (n * (n - 1) / 2))
    return ratio(2 * worst - unequal, scale), np.zeros(len(counts)), ratio(2 * best - unequal, scale)


_BOUNDS: Mapping[str, Callable[[Measure, LabelCounts], Three]] = MappingProxyType(
    {
        "nDCG": _ndcg,
        "DCG": _dcg,
        "ERR": _err,
        "AP": _average_precision,
        "SP": _sum_of_precisions,
        "P": _precision,
        "R": _recall,
        "RR": _reciprocal_rank,
        "Success": _success,
        "Rprec": _r_precision,
        "RBP": _rank_biased_precision,
        "nRBP": _normalized_rank_biased_precision,
        "U": _mann_whitney,
        "PairAcc": _pairwise_accuracy,
        "Tau": _kendall_tau,
    }
)
