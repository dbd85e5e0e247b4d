"""Exact expected values by the probabilities of unknown labels, which are independent of each other.

==============  ======================================================================================================
measures        expected value, with p the probability of a label
==============  ======================================================================================================
DCG, P, RBP     the sum of expected gains times discounts
ERR, RR         the value of a user who stops at each document with the expected probability
AP, R, nRBP     if all documents of a query have the same probabilities: the number of relevant documents is binomial
                and any of the documents are equally likely to be them, so that the numerator given the number c is
                A + B c/u + C c (c-1)/(u (u-1)); the mean over c of numerator / divisor
nDCG            the same with numbers per grade, from the highest to the lowest, each binomial given those before
==============  ======================================================================================================

Numbers that have a probability below 1e-17 are left out, and those that no longer change the best order (beyond a
cutoff) are taken together. Values are 0 where the measure is not defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.difficulty.unknown.hits import divide_by_hits, has_fixed_cut, precision_gains, sums_with_known_hits
from rankbound.difficulty.unknown.ranges import ideal_levels
from rankbound.measures import Measure, is_defined
from rankbound.measures.additive import Additive, Binary
from rankbound.measures.cascade import Cascade
from rankbound.measures.precision_sum import PrecisionSum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.unknown.ranking import Labels, UnknownRanking

_RARE = 40.0  # minus the logarithm of a probability that is left out
_MOST_STATES = 300_000  # combinations of numbers of a query; more are left to draws
_MOST_CELLS = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class LabelProbabilities:
    """For each unknown document of a ranking (a row) the probabilities of the ``grades``, which are above 0."""

    rows: NDArray[np.float64]
    grades: NDArray[np.float64] | NDArray[np.int64]

    def of_levels(self, measure: Measure) -> NDArray[np.float64]:
        """The expected level (gain or stop probability) of each document."""
        levels = measure.definition.levels(measure, np.append(self.grades, 0))
        return np.asarray(self.rows @ levels[:-1] + (1 - self.rows.sum(axis=1)) * levels[-1])

    def of_relevance(self, measure: Measure) -> NDArray[np.float64]:
        """The probability of each document that it makes the measure defined."""
        return np.asarray(self.rows @ (measure.definition.levels(measure, self.grades) > 0).astype(np.float64))


def probability_of_empty(ranking: UnknownRanking, measure: Measure, given: LabelProbabilities) -> NDArray[np.float64]:
    """The probability of each query that the measure is not defined."""
    never = np.ones(len(ranking))
    np.multiply.at(never, ranking.unknown_query, 1 - given.of_relevance(measure))
    return np.where(is_defined(ranking.ranked.counts, measure), 0.0, never)


def exact_values(ranking: UnknownRanking, measure: Measure, given: LabelProbabilities) -> NDArray[np.float64]:
    """The expected value of each query, with 0 for labels that do not define it; NaN where it is left to draws."""
    definition = measure.definition
    form = definition.range_form(measure)
    if isinstance(definition, Additive) and form == "rises":
        gains = definition.levels(measure, ranking.labels)
        gains[ranking.unknown] = given.of_levels(measure)
        sums = ranking.sum(gains * ranking.weights(measure))
        return np.asarray(sums / definition.normalizer(measure, ranking.ranked.counts))
    if isinstance(definition, Cascade):
        stops = definition.stops(measure, ranking.labels)
        stops[ranking.unknown] = given.of_levels(measure)
        return definition.values_of_stops(measure, ranking.ranked, stops)
    is_shared = _have_equal_documents(ranking, given.rows)
    counts_hits = form == "hits" and isinstance(definition, Binary) and has_fixed_cut(definition)
    if counts_hits or isinstance(definition, PrecisionSum):
        return np.where(is_shared, _values_by_number(ranking, measure, given), np.nan)
    if form == "ideal" and definition.levels(measure, np.zeros(1, dtype=np.int64))[0] == 0:
        return _values_by_numbers_per_grade(ranking, measure, given, is_shared)
    return np.full(len(ranking), np.nan)


def _have_equal_documents(ranking: UnknownRanking, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Queries whose unknown documents have the same probabilities."""
    result = np.ones(len(ranking), dtype=bool)
    first = ranking.unknown_starts[ranking.unknown_query]
    result[ranking.unknown_query[(rows != rows[first]).any(axis=1)]] = False
    return result


def _first_rows(ranking: UnknownRanking, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The row of the first unknown document of each query; zeros where there is none."""
    result = np.zeros((len(ranking), rows.shape[1]))
    some = ranking.unknown_counts > 0
    result[some] = rows[ranking.unknown_starts[:-1][some]]
    return result


# ---- one number per query --------------------------------------------------------------------------------------------


def _values_by_number(ranking: UnknownRanking, measure: Measure, given: LabelProbabilities) -> NDArray[np.float64]:
    probability = _first_rows(ranking, given.of_relevance(measure)[:, None])[:, 0]
    unknown = ranking.unknown_counts
    query, number, weight = _binomial_numbers(unknown, probability)
    denominator, _ = divide_by_hits(ranking, measure, query, number)
    one = _ratio_of(number, unknown[query])
    two = one * _ratio_of(number - 1, unknown[query] - 1)
    known = sums_with_known_hits(ranking, measure)
    if isinstance(measure.definition, PrecisionSum):
        alone, after_others = (_sums(ranking, precision_gains(ranking, measure, sign)) for sign in (0, 1))
        top = known[query] + one * alone[query] + two * (after_others - alone)[query]
    else:
        top = known[query] + one * _sums(ranking, ranking.weights(measure, ranking.unknown))[query]
    terms = weight * np.where(np.isnan(denominator), 0.0, top / denominator)
    return np.bincount(query, terms, minlength=len(ranking)).astype(np.float64, copy=False)


def _sums(ranking: UnknownRanking, values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(ranking.unknown_query, values, minlength=len(ranking)).astype(np.float64, copy=False)


def _ratio_of(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(whole > 0, part / np.maximum(whole, 1), 0.0)


def _half_width(total: Labels, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far a binomial number is from its mean at most, by Bernstein's inequality."""
    return _RARE / 3 + np.sqrt((_RARE / 3) ** 2 + 2 * _RARE * total * probability * (1 - probability))


def _binomial_numbers(
    total: NDArray[np.int64], probability: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The numbers of each row that are not too rare: the row, the number, and its probability."""
    half = _half_width(total, probability)
    low = np.maximum(np.floor(total * probability - half), 0).astype(np.int64)
    high = np.minimum(np.ceil(total * probability + half), total).astype(np.int64)
    row, number = _expand(low, high)
    return row, number, _binomial(number, total[row], probability[row])


def _expand(low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All integers from ``low`` to ``high`` of each row, and the rows."""
    width = high - low + 1
    row = np.repeat(np.arange(len(low)), width)
    return row, low[row] + np.arange(len(row)) - (np.cumsum(width) - width)[row]


def _binomial(number: Labels, total: Labels, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy import special  # here, because it takes long to import and few evaluations need it

    logs = special.gammaln(total + 1) - special.gammaln(number + 1) - special.gammaln(total - number + 1)
    logs += special.xlogy(number, probability) + special.xlog1py(total - number, -probability)
    return np.asarray(np.exp(logs))


# ---- numbers per grade -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _States:
    """Numbers of the grades so far, from the highest: their probability, documents, gain and denominator."""

    query: NDArray[np.int64]
    probability: NDArray[np.float64]
    documents: NDArray[np.float64]
    gain: NDArray[np.float64]
    denominator: NDArray[np.float64]


def _values_by_numbers_per_grade(
    ranking: UnknownRanking, measure: Measure, given: LabelProbabilities, is_shared: NDArray[np.bool_]
) -> NDArray[np.float64]:
    definition = measure.definition
    rows, unknown = _first_rows(ranking, given.rows), ranking.unknown_counts
    _, levels, sums, fixed = ideal_levels(ranking, measure, np.append(0, given.grades))
    gains = definition.levels(measure, given.grades)
    room = np.zeros((len(gains), len(ranking)))  # documents, from which on lower grades no longer change the best order
    for grade in range(len(gains)):
        lower = [counts for at, _, counts in levels if at <= grade]
        room[grade] = np.maximum(len(sums) - 1 - lower[-1], 0) if lower else 0.0
    states = np.ones(len(ranking))
    for grade in range(len(gains)):
        states *= 1 + np.minimum(2 * _half_width(unknown, rows[:, grade]), np.minimum(unknown, room[grade]))
    weights = ranking.weights(measure)
    known = ranking.sum(np.where(ranking.is_unknown, 0.0, definition.levels(measure, ranking.labels) * weights))
    mean_weight = _sums(ranking, weights[ranking.unknown]) / np.maximum(unknown, 1)
    result = np.full(len(ranking), np.nan)
    chosen = np.flatnonzero(is_shared & (states <= _MOST_STATES))
    for part in np.split(chosen, np.flatnonzero(np.diff(np.cumsum(states[chosen]) // _MOST_CELLS)) + 1):
        zero = np.zeros(len(part))
        found = _States(part, np.ones(len(part)), zero, zero, fixed[part].astype(np.float64))
        for grade in range(len(gains) - 1, -1, -1):
            above = 1 - rows[:, grade + 1 :].sum(axis=1)
            chance = np.clip(np.divide(rows[:, grade], above, out=np.zeros(len(rows)), where=above > 0), 0, 1)
            found = _add_grade(found, unknown, chance, room[grade], gains[grade])
            for at, gap, counts in levels:
                if at == grade:
                    seen = np.minimum(counts[found.query] + np.rint(found.documents).astype(np.int64), len(sums) - 1)
                    found.denominator[:] += gap * sums[seen]
        top = known[found.query] + mean_weight[found.query] * found.gain
        terms = np.divide(top, found.denominator, out=np.zeros(len(top)), where=found.denominator > 0)
        result[part] = np.bincount(found.query, found.probability * terms, minlength=len(ranking))[part]
    return result


def _add_grade(
    states: _States,
    unknown: NDArray[np.int64],
    probability: NDArray[np.float64],
    room: NDArray[np.float64],
    gain: float,
) -> _States:
    """The states with every number of documents of one more grade.

    All numbers from ``room`` on are one state, in which the number is its mean: gains are linear in it.
    """
    from scipy import special  # here, because it takes long to import and few evaluations need it

    chance = probability[states.query]
    left = unknown[states.query] - states.documents
    free = np.maximum(np.rint(room[states.query] - states.documents), 0)
    half = _half_width(left, chance)
    high = np.where(free > 0, np.minimum(np.minimum(np.ceil(left * chance + half), left), free), 0)
    low = np.minimum(np.maximum(np.floor(left * chance - half), 0), high)
    row, number = _expand(low.astype(np.int64), high.astype(np.int64))
    left, chance = left[row], chance[row]
    at_least = special.betainc(np.maximum(number, 1), np.maximum(left - number + 1, 1), chance)
    at_least = np.where(number > 0, at_least, 1.0)
    of_others = special.betainc(np.maximum(number - 1, 1), np.maximum(left - number + 1, 1), chance)
    mean = left * chance * np.where(number > 1, of_others, 1.0) / np.where(at_least > 0, at_least, 1.0)
    is_last = number >= free[row]
    weight = np.where(is_last, at_least, _binomial(number, np.maximum(left, number), chance))
    added = np.where(is_last, mean, number)
    return _States(
        states.query[row],
        states.probability[row] * weight,
        states.documents[row] + added,
        states.gain[row] + gain * added,
        states.denominator[row],
    )
