"""Is the difference real? Paired tests of per-query differences, one comparison at a time or many at once.

Every function takes d = (value of one system) - (value of the other), one number per query, and tests its mean;
functions that end in ``_columns`` take queries x comparisons. Where the queries hold no evidence (all differences zero,
a single query for the t test) a p-value is 1, never NaN. All tests are two-sided. At the end are the corrections of
p-values for several tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import ArgumentError
from rankbound.evaluation.resampling import (
    ROUNDING,
    blocks,
    check_differences,
    check_resamples,
    draws,
    resampled_means,
    standard_deviations,
    t_statistics,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

EXACT_RANDOMIZATION = 18  # up to this many non-zero differences all 2^n sign patterns are counted
EXACT_WILCOXON = 50  # up to this many the distribution of the rank sum is computed exactly
_FEW_HITS = 10  # fewer draws as extreme as the data say little about a p-value (Knijnenburg et al. 2009)
_TILTED_DRAWS = 1000


def effect_size(differences: ArrayLike) -> float:
    """Mean difference over the standard deviation of the differences (Cohen's d for pairs, d_z).

    0 where all differences are zero. NaN, on purpose, where there is no standard deviation: fewer than two queries, or
    all differences equal but not zero.

    >>> round(effect_size([0.1, 0.3, 0.2]), 6)  # 0.2 / 0.1
    2.0
    """
    return float(effect_size_columns(check_differences(differences)[:, None])[0])


def effect_size_columns(differences: ArrayLike) -> NDArray[np.float64]:
    """`effect_size` of many comparisons: queries x comparisons, one number for each column."""
    d = check_differences(differences, ndim=2)
    spread = standard_deviations(d)
    size = np.divide(d.mean(axis=0), spread, out=np.full(d.shape[1], np.nan), where=spread > 0)
    return np.where(d.any(axis=0), size, 0.0)


def paired_t(differences: ArrayLike) -> float:
    """p-value of Student's paired t test: t = mean(d) / (s / sqrt(n)) with n - 1 degrees of freedom.

    1 with fewer than two queries or where all differences are zero; 0, the limit, where all are equal and not zero.

    >>> round(paired_t([1.0, 2.0, 3.0]), 6)  # t = 2 sqrt(3), 2 degrees of freedom
    0.07418
    """
    return float(paired_t_columns(check_differences(differences)[:, None])[0])


def paired_t_columns(differences: ArrayLike) -> NDArray[np.float64]:
    """`paired_t` of many comparisons: queries x comparisons, one p-value for each column.

    >>> paired_t_columns([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]).round(6).tolist()
    [0.07418, 1.0]
    """
    from scipy.special import stdtr

    d = check_differences(differences, ndim=2)
    if len(d) < 2:
        return np.ones(d.shape[1])
    return np.asarray(2 * stdtr(len(d) - 1, -np.abs(t_statistics(d))))


def wilcoxon(differences: ArrayLike) -> float:
    """p-value of Wilcoxon's signed-rank test; differences of zero are left out (Wilcoxon 1945).

    W, the sum of the ranks of |d| over positive d, has mean S/2 and variance sum(rank^2)/4 when every sign is a coin
    toss, S the sum of all ranks. Tied |d| share their mean rank. Up to 50 non-zero differences the distribution of W is
    exact, ties included (twice a mean rank is an integer, so the sums lie on a grid); beyond, it is normal without
    continuity correction.

    >>> wilcoxon([0.1, 0.2, 0.3, 0.4, 0.5])  # 2 of the 32 sign patterns are as extreme
    0.0625
    """
    return float(wilcoxon_columns(check_differences(differences)[:, None])[0])


def wilcoxon_columns(differences: ArrayLike) -> NDArray[np.float64]:
    """`wilcoxon` of many comparisons: queries x comparisons, one p-value for each column.

    >>> wilcoxon_columns([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]).tolist()
    [0.25, 1.0]
    """
    from scipy.special import ndtr

    d = check_differences(differences, ndim=2)
    zero = d == 0
    ranks = np.where(zero, 0.0, _mean_ranks(np.abs(d)) - zero.sum(axis=0))  # zeros have the lowest ranks
    positive, total = np.where(d > 0, ranks, 0.0).sum(axis=0), ranks.sum(axis=0)
    gap = np.abs(2 * positive - total)  # |W+ - W-|
    squares = (ranks**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(squares > 0, np.minimum(1.0, 2 * ndtr(-gap / np.sqrt(squares))), 1.0)
    count = len(d) - zero.sum(axis=0)
    exact = np.flatnonzero((count > 0) & (count <= EXACT_WILCOXON))
    if len(exact):
        # comparisons with the same ranks share their distribution; steps are twice the ranks, and so integers
        steps = np.sort(np.rint(2 * ranks[:, exact]).astype(np.int64), axis=0)[-EXACT_WILCOXON:]
        different, shared = np.unique(steps, axis=1, return_inverse=True)
        smaller = np.rint(total[exact] - gap[exact]).astype(np.int64)  # twice the smaller of W+ and W-
        p[exact] = np.minimum(1.0, 2 * _rank_sum_tails(different, shared.ravel(), smaller))
    return np.asarray(p)


def _mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank the values of each column from 1 on; tied values share the mean of their ranks.

    This is scipy.stats.rankdata, whose import takes longer than most comparisons.
    """
    order = np.argsort(values, axis=0)
    ascending = np.take_along_axis(values, order, axis=0)
    differs = ascending[1:] != ascending[:-1]
    edge = np.ones((1, values.shape[1]), bool)
    position = np.arange(1.0, len(values) + 1)[:, None]
    first = np.maximum.accumulate(np.where(np.concatenate((edge, differs)), position, 0.0), axis=0)
    at_ends = np.where(np.concatenate((differs, edge)), position, np.inf)
    last = np.minimum.accumulate(at_ends[::-1], axis=0)[::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, axis=0)
    return ranks


def _rank_sum_tails(
    steps: NDArray[np.int64], columns: NDArray[np.int64], smaller: NDArray[np.int64]
) -> NDArray[np.float64]:
    """P(2 W <= smaller) for each comparison, whose steps are a column of ``steps``."""
    largest = int(smaller.max())  # only the lower tail is needed
    result = np.empty(len(smaller))
    position = np.arange(largest + 1)
    for block in blocks(steps.shape[1], 4 * (largest + 1)):
        chosen = np.flatnonzero((columns >= block.start) & (columns < block.stop))
        if not len(chosen):
            continue
        tail = np.zeros((block.stop - block.start, largest + 1))  # tail[c, w]: fraction of sign patterns with 2 W = w
        tail[:, 0] = 1.0
        for step in steps[:, block]:
            before = position - step[:, None]
            shifted = np.take_along_axis(tail, np.maximum(before, 0), axis=1)
            tail = 0.5 * (tail + np.where(before >= 0, shifted, 0.0))
        result[chosen] = np.cumsum(tail, axis=1)[columns[chosen] - block.start, smaller[chosen]]
    return result


def randomization(differences: ArrayLike, *, resamples: int = 10_000, seed: int | np.random.Generator = 0) -> float:
    """p-value of Fisher's randomization (sign-flip) test of the mean: what if the two systems were exchangeable?

    The fraction of the 2^n ways to flip signs that give a |mean| at least as large. Up to 18 non-zero differences all
    of them are counted. Beyond, ``resamples`` of them are drawn and p = (1 + hits) / (1 + resamples) (Phipson and Smyth
    2010).

    That estimate cannot fall below 1 / (1 + resamples), too much to survive a correction for many tests. Where fewer
    than 10 draws are as extreme as the data, the tail is therefore estimated by importance sampling: signs are drawn
    with the exponentially tilted probabilities exp(t |d_i|) / (2 cosh(t |d_i|)) under which the observed sum is the
    expected one, and every draw is weighted by its likelihood ratio (Siegmund 1976). The relative error is about 5 %
    however small the p-value is.

    >>> randomization([0.1, 0.2, 0.3])  # only +++ and --- are as extreme, of 8
    0.25
    >>> p = randomization([0.1 + 0.001 * i for i in range(40)])  # exactly 2 of the 2^40
    >>> p == 2 / 2**40
    True
    """
    d = check_differences(differences)
    return float(randomization_columns(d[:, None], resamples=resamples, seed=seed)[0])


def randomization_columns(
    differences: ArrayLike, *, resamples: int = 10_000, seed: int | np.random.Generator = 0
) -> NDArray[np.float64]:
    """`randomization` of many comparisons: queries x comparisons, every column tested with the same draws.

    >>> randomization_columns([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]]).tolist()
    [0.25, 1.0]
    """
    d = check_differences(differences, ndim=2)
    check_resamples(resamples)
    random = np.random.default_rng(seed)
    count = (d != 0).sum(axis=0)
    p = np.ones(d.shape[1])
    exact = np.flatnonzero((count > 0) & (count <= EXACT_RANDOMIZATION))
    if len(exact):
        p[exact] = _all_sign_flips(d[:, exact])
    drawn = np.flatnonzero(count > EXACT_RANDOMIZATION)
    if len(drawn):
        hits = _drawn_sign_flips(d[:, drawn], resamples, random)
        p[drawn] = (1 + hits) / (1 + resamples)
        rare = drawn[hits < _FEW_HITS]
        if len(rare):
            p[rare] = _tilted_sign_flips(d[:, rare], random)
    return p


def smallest_randomization_p(differences: ArrayLike) -> NDArray[np.float64]:
    """The smallest p-value that sign flips can give in each column: 2 of the 2^n patterns, n non-zero differences.

    >>> smallest_randomization_p([[0.1, 0.0], [0.2, 0.0], [-0.3, 0.0]]).tolist()
    [0.25, 1.0]
    """
    count = (check_differences(differences, ndim=2) != 0).sum(axis=0)
    return np.asarray(np.minimum(1.0, 2.0 ** (1.0 - count)))


def studentized_bootstrap(
    differences: ArrayLike, *, resamples: int = 1000, seed: int | np.random.Generator = 0
) -> float:
    """Achieved significance level of Sakai's paired bootstrap test (2006): how often resampling gives a |t| as large.

    Queries are drawn from the differences minus their mean, where the hypothesis of no difference holds; t is the mean
    over its standard error in each draw. 1 with fewer than two queries or where all differences are zero; 0, the limit,
    where all are equal and not zero.

    >>> d = [0.12, 0.05, 0.2, -0.03, 0.1, 0.08, 0.15, 0.02]
    >>> 0.001 < studentized_bootstrap(d) < 0.05
    True
    """
    d = check_differences(differences)
    return float(studentized_bootstrap_columns(d[:, None], resamples=resamples, seed=seed)[0])


def studentized_bootstrap_columns(
    differences: ArrayLike, *, resamples: int = 1000, seed: int | np.random.Generator = 0
) -> NDArray[np.float64]:
    """`studentized_bootstrap` of many comparisons: queries x comparisons, every column tested with the same draws."""
    d = check_differences(differences, ndim=2)
    check_resamples(resamples)
    queries = len(d)
    if queries < 2:
        return np.ones(d.shape[1])
    observed = np.abs(t_statistics(d))
    level = np.empty(d.shape[1])
    for block in blocks(d.shape[1], 4 * resamples):
        centered = d[:, block] - d[:, block].mean(axis=0)
        count = centered.shape[1]
        # drawn together with their squares: the variance of a draw is the mean of squares minus the squared mean
        moments = resampled_means(np.hstack([centered, centered**2]), resamples, seed)
        mean, square = moments[:count], moments[count:]
        variance = square - mean**2
        variance[variance <= ROUNDING * (centered**2).mean(axis=0)[:, None]] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = np.abs(mean) / np.sqrt(variance / (queries - 1))
        drawn[np.isnan(drawn)] = 0.0
        level[block] = (drawn >= observed[block, None] * (1 - ROUNDING)).mean(axis=1)
    return np.asarray(np.select([observed == 0, np.isinf(observed)], [1.0, 0.0], level))


@dataclass(frozen=True, slots=True)
class WinTieLoss:
    """On how many queries the difference is positive, zero, negative."""

    wins: int
    ties: int
    losses: int


def win_tie_loss(differences: ArrayLike) -> WinTieLoss:
    """Count the queries with a positive, a zero and a negative difference.

    >>> win_tie_loss([0.2, 0.0, -0.1, 0.3])
    WinTieLoss(wins=2, ties=1, losses=1)
    """
    d = check_differences(differences)
    return WinTieLoss(int((d > 0).sum()), int((d == 0).sum()), int((d < 0).sum()))


# ---- corrections of p-values for several tests ----------------------------------------------------------------------


def bonferroni(p_values: ArrayLike) -> NDArray[np.float64]:
    """Bonferroni's correction: m p-values times m, at most 1; bounds the probability of any false rejection.

    >>> bonferroni([0.01, 0.04, 0.5]).tolist()
    [0.03, 0.12, 1.0]
    """
    p = _check_p_values(p_values)
    return np.minimum(p * len(p), 1.0)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down correction (1979): the i-th smallest of m p-values times m - i + 1, made monotone, at most 1.

    Bounds the probability of any false rejection, as Bonferroni's correction does, and rejects at least as often.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = _check_p_values(p_values)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Benjamini and Hochberg's correction (1995), which bounds the false discovery rate.

    The i-th smallest of m p-values times m / i, made monotone from the largest down.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    p = _check_p_values(p_values)
    order = np.argsort(-p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    return corrected


def _check_p_values(values: ArrayLike) -> NDArray[np.float64]:
    p = floats("p_values", values)
    if ((p < 0) | (p > 1)).any():
        raise ArgumentError(f"p_values must be numbers between 0 and 1 in one dimension, got {values!r}")
    return p


# ---- sign flips ------------------------------------------------------------------------------------------------------


def _thresholds(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """The |sum| of each column; sums that differ from it by rounding only count as equal."""
    return np.asarray(np.abs(d.sum(axis=0)) - ROUNDING * np.abs(d).sum(axis=0))


def _all_sign_flips(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """The fraction of all sign patterns whose |sum| reaches that of the data.

    The largest 18 entries of a column hold all that are not zero. They are split in two halves; every sum is one of a
    first half plus one of a second half, and a binary search in the sorted second halves counts those that reach the
    threshold.
    """
    size = np.sort(np.abs(d), axis=0)[-EXACT_RANDOMIZATION:].T
    threshold = _thresholds(d)
    p = np.empty(len(size))
    for block in blocks(len(size), 1 << (EXACT_RANDOMIZATION // 2 + 2)):
        first, second = (_signed_sums(half) for half in (size[block, ::2], size[block, 1::2]))
        second.sort(axis=1)
        required = threshold[block, None] - first  # of the second half
        reached = second.shape[1] - _search_rows(second, required)
        tail = reached.sum(axis=1) / (first.shape[1] * second.shape[1])
        p[block] = np.where(threshold[block] > 0, 2 * tail, 1.0)  # flipping all signs turns one tail into the other
    return np.minimum(p, 1.0)


def _signed_sums(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """All sums with signs: comparisons x 2^n."""
    sums = np.zeros((len(size), 1))
    for value in size.T:
        sums = np.concatenate((sums + value[:, None], sums - value[:, None]), axis=1)
    return sums


def _search_rows(rows: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many numbers of each sorted row are smaller than each value of the same row."""
    low = np.zeros(values.shape, np.int64)
    high = np.full(values.shape, rows.shape[1], np.int64)
    for _ in range(rows.shape[1].bit_length()):
        middle = (low + high) >> 1
        smaller = (low < high) & (np.take_along_axis(rows, np.minimum(middle, rows.shape[1] - 1), axis=1) < values)
        low = np.where(smaller, middle + 1, low)
        high = np.where(smaller, high, middle)
    return low


def _drawn_sign_flips(d: NDArray[np.float64], resamples: int, random: np.random.Generator) -> NDArray[np.int64]:
    """How many of the drawn sign patterns reach the |sum| of the data, for each column."""
    queries = len(d)
    threshold, total = _thresholds(d), d.sum(axis=0)
    hits = np.zeros(d.shape[1], np.int64)
    for rows in draws(resamples, queries):
        bits = np.unpackbits(np.frombuffer(random.bytes(-(-rows * queries // 8)), np.uint8), count=rows * queries)
        flipped = bits.reshape(rows, queries).astype(np.float64)
        for block in blocks(d.shape[1], rows):
            # sum of d with flipped signs = sum(d) - 2 sum(d where flipped)
            sums = total[block] - 2 * (flipped @ d[:, block])
            hits[block] += (np.abs(sums) >= threshold[block]).sum(axis=0)
    return hits


def _tilted_sign_flips(d: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Tail probabilities of sums with random signs by importance sampling; see `randomization`."""
    size = np.abs(d)
    scale = size.mean(axis=0)
    size = size / scale
    threshold = _thresholds(d) / scale
    tilt = _tilts(size, threshold)
    log_cosh = (tilt * size + np.log1p(np.exp(-2 * tilt * size)) - np.log(2)).sum(axis=0)
    probability = 1 / (1 + np.exp(-2 * tilt * size))  # of a plus sign
    uniform = random.random((_TILTED_DRAWS, len(size)))
    p = np.empty(d.shape[1])
    for block in blocks(d.shape[1], _TILTED_DRAWS * len(size)):
        plus = uniform[:, :, None] < probability[None, :, block]
        sums = 2 * np.einsum("rqc,qc->rc", plus, size[:, block]) - size[:, block].sum(axis=0)
        weights = np.exp(log_cosh[block] - tilt[block] * sums)
        p[block] = 2 * np.where(sums >= threshold[block], weights, 0.0).mean(axis=0)
    one_sided = (d >= 0).all(axis=0) | (d <= 0).all(axis=0)  # then only the data themselves reach their sum
    smallest = smallest_randomization_p(d)
    return np.where(one_sided, smallest, np.clip(p, smallest, 1.0))


def _tilts(size: NDArray[np.float64], threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """The t at which sum(|d_i| tanh(t |d_i|)) equals the threshold, by bisection; any t near it will do."""
    low, high = np.zeros(len(threshold)), np.full(len(threshold), 64.0)
    for _ in range(40):
        middle = (low + high) / 2
        short = (size * np.tanh(middle * size)).sum(axis=0) < threshold
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.asarray((low + high) / 2)
