"""Distributions with a closed form: counts among the first ranks, the first relevant rank, pairs in the wrong order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.distribution.arrangements import merged
from rankbound.difficulty.distribution.case import Case
from rankbound.measures.cascade import FirstHit

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
MOST_PAIRS = 100_000  # the distribution of the wrong pairs is kept point by point up to this many points


def closed(case: Case) -> Points | None:
    """The exact distribution where a closed form is known, else None."""
    form = case.measure.definition.closed_form(case.measure)
    if form == "hit count":
        return _of_hit_count(case)
    if form == "first hit":
        return _of_first_hit(case)
    if form == "wrong pairs" and case.random and case.ranks == case.n:
        scale, shift = case.value(case.counts)
        pairs = (case.n**2 - sum(count * count for count in case.counts)) // 2
        if pairs >= MOST_PAIRS:
            return None
        probabilities = wrong_pairs(case.counts)
        scores = scale * np.arange(pairs + 1) + shift
        return (scores, probabilities) if scale > 0 else (scores[::-1], probabilities[::-1])
    return None


def _of_hit_count(case: Case) -> Points:
    """Relevant items among the seen ranks: hypergeometric, C(P, i) C(N-P, c-i) / C(N, c)."""
    n, hits, ranks = case.n, case.relevant, case.ranks
    if case.random:
        least, most = max(0, ranks - (n - hits)), min(hits, ranks)
        i = np.arange(least, most)
        steps = np.log((hits - i) * (ranks - i)) - np.log((i + 1) * (n - hits - ranks + i + 1))
        log_probability = np.concatenate(([0.0], np.cumsum(steps)))
        probability = np.exp(log_probability - log_probability.max())
        counts = np.arange(least, most + 1)
    else:
        counts = np.arange(min(hits, ranks) + 1)
        probability = np.zeros(len(counts))
        probability[0] = 1.0
        for filled in range(ranks):
            hit = np.clip(case.probabilities(filled, _binary_counts(case, counts, filled))[0], 0, 1) * probability
            probability -= hit
            probability[1:] += hit[:-1]
    probability = probability / probability.sum()
    scale, _ = case.value(case.counts)
    scores = counts * scale
    if scale == 0:
        scores, probability = np.zeros(1), np.ones(1)
    real = probability > 0
    return scores[real], probability[real]


def _binary_counts(case: Case, hits: NDArray[np.int64], filled: int) -> list[NDArray[np.int64]]:
    """Counts so far per label of a query whose items are relevant or not, or all alike."""
    both = [hits, filled - hits]
    return both if len(case.labels) == 2 else both[: len(case.labels)] if case.relevant else both[1:]


def _of_first_hit(case: Case) -> Points:
    """d(r) with the probability that r - 1 others come first and a relevant document follows; 0 if none is seen."""
    n, hits = case.n, case.relevant
    others = np.arange(n - hits, n - hits - case.ranks, -1)[: n - hits + 1]  # left before each rank
    w = case.ranker_strength
    weight = w * hits + (1 - w) * others
    hit = np.divide(w * hits, weight, out=np.zeros(len(others)), where=weight > 0)
    none_before = np.cumprod(np.concatenate(([1.0], 1 - hit)))
    probability = np.append(none_before[:-1] * hit, none_before[-1] if case.ranks <= n - hits else 0.0)
    definition = case.measure.definition
    assert isinstance(definition, FirstHit)
    discounts = definition.discounts(case.measure, np.arange(1, len(others) + 1))
    scores = np.append(discounts, 0.0)
    real = np.flatnonzero(probability > 0)[::-1]
    scores, probability = scores[real], probability[real] / probability[real].sum()
    return (scores, probability) if (np.diff(scores) > 0).all() else merged(scores, probability)


def wrong_pairs(counts: Sequence[int]) -> NDArray[np.float64]:
    """P(a random order of a multiset has u inversions), u = 0, 1, ..., all pairs of different items.

    The counts are the coefficients of the Gaussian multinomial prod_l binom(m_l, c_l)_q, m_l = c_1 + ... + c_l, and for
    two labels this is the distribution of the Mann-Whitney U. Each factor (1 - q^(m-c+j)) / (1 - q^j) takes one
    Gaussian polynomial to the next. They are symmetric and rise up to their middle, so the lower half is enough and
    rounding stays relative. Source: MacMahon; Mann & Whitney 1947 have the recurrence for two labels.

    >>> wrong_pairs([1, 2]) * 3
    array([1., 1., 1.])
    """
    few_first = sorted(counts)  # the distribution does not depend on the order of the labels
    total = (sum(few_first) ** 2 - sum(count * count for count in few_first)) // 2
    half = total // 2 + 1
    row = np.zeros(half)
    row[0] = 1.0
    before = few_first[-1] if few_first else 0
    for count in few_first[:-1]:
        for j in range(1, count + 1):
            above = before + j
            if above < half:
                row[above:] -= row[:-above].copy()
            if j < half:  # divide by 1 - q^j: running sums with stride j
                padded = np.zeros(-(-half // j) * j)
                padded[:half] = row
                row = np.cumsum(padded.reshape(-1, j), axis=0).ravel()[:half]
            row *= j / above  # keeps the sum of the whole polynomial at 1
        before += count
    np.maximum(row, 0.0, out=row)
    distribution = np.concatenate((row, row[: total + 1 - half][::-1]))
    return np.asarray(distribution / distribution.sum())
