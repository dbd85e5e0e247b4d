"""infAP: average precision inferred from a random sample of judgments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.combinatorics import log_choose, log_factorials
from rankbound.measures.definition import REL, BoundsTuple
from rankbound.measures.judgments import JudgmentMeasure, TiedGroups, count_of_level, counts_of_levels
from rankbound.measures.label_counts import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure

_EPSILON = 0.00001  # of trec_eval: keeps the inferred precision defined above the first judged documents
_TOGETHER = 1 << 17  # terms that are in memory at a time
_UNLIKELY = 46.0  # -log of a probability that changes no digit, even where it is divided by _EPSILON
_STEP = 0.7  # standard deviations from one term of a bell curve to the next, which leaves an error of exp(-40)


class InferredAP(JudgmentMeasure):
    """infAP = (1/P) sum over relevant documents of the precision at their rank, inferred from the judged sample above.

    At rank r with R relevant, N judged non-relevant and S pooled but unjudged documents (labels below 0) above, the
    precision is 1/r + (r-1)/r * (R + N + S)/(r - 1) * (R + e)/(R + N + 2 e), with e = 0.00001. With complete judgments
    this is average precision up to e. Documents that have no judgment at all only take up ranks; the rankings that
    bounds and distribution describe have none of them.
    """

    name = "infAP"
    summary = "average precision inferred from sampled judgments; label -1 marks pooled documents outside the sample"
    formula = "(1/P) sum over relevant documents of 1/r + (R + N + S)/r * (R + e)/(R + N + 2 e)"
    citation = "Yilmaz & Aslam, Estimating average precision with incomplete and imperfect judgments, CIKM 2006"
    parameters = {"rel": REL}

    def mean_sums(self, groups: TiedGroups) -> NDArray[np.float64]:
        """The precision is linear in the documents above, given how many of them are judged: a sum over that number.

        Above a relevant document of a group stand t documents of the group, of which j are judged with hypergeometric
        probability. Of these j, the relevant ones, and of the other t - j, the pooled ones have their mean number.
        """
        ranks = _JudgedAbove.of_groups(groups)
        table = log_factorials(int(groups.size.max(initial=0)))
        chunk = np.cumsum(ranks.number) // _TOGETHER
        edges = np.concatenate(([0], np.flatnonzero(np.diff(chunk)) + 1, [len(chunk)]))
        result = np.zeros(len(groups.size))
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            result += _sums_of_ranks(groups, ranks.take(slice(start, stop)), table)
        return result

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Relevant documents last, anywhere, and first."""
        kinds = counts_of_levels(counts, levels)
        others = counts.sizes - kinds.relevant
        none = np.zeros(len(counts), dtype=np.int64)
        worst = _sums_of_run(others, kinds.other, np.clip(counts.depths - others, 0, kinds.relevant))
        best = _sums_of_run(none, none, np.minimum(counts.depths, kinds.relevant))
        return ratio(worst, kinds.relevant), self.expected_values(counts, kinds), ratio(best, kinds.relevant)

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """The precision at this rank, for a relevant document."""
        if case.labels[level] <= 0:
            return 0.0
        return _precision(rank, so_far[level], so_far[level] + count_of_level(case, so_far, 0), rank - 1)

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """One over the number of relevant documents."""
        return (1 / case.relevant if case.relevant else 0.0), 0.0


def _precision(rank: Any, relevant: Any, judged: Any, pooled: Any) -> Any:
    """The inferred precision of a relevant document at this rank, below so many relevant, judged and pooled ones."""
    return (1 + pooled * (relevant + _EPSILON) / (judged + 2 * _EPSILON)) / rank


def _sums_of_run(
    above: NDArray[np.int64], others: NDArray[np.int64], relevant: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Sum for relevant documents that follow each other below ``above`` pooled ones, ``others`` of them judged."""
    query, nth = np.repeat(np.arange(len(relevant)), relevant), _count_up(relevant)
    pooled = above[query] + nth
    precision = _precision(pooled + 1, nth, others[query] + nth, pooled)
    return np.bincount(query, precision, minlength=len(relevant)).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class _JudgedAbove:
    """How many judged documents of its group can stand above a relevant one, for each visible rank of the groups.

    ``above`` documents of the group stand above the rank. Of these ``least``, ``least + step``, ... are judged,
    ``number`` numbers in all. Numbers with a probability that changes no digit are left out: by Hoeffding's inequality,
    those further from the mean than sqrt(c m / 2), of m documents above or below, have at most 2 exp(-c). Where all
    others are possible, the terms follow a bell curve, and the sum over every step-th of them, times the step, differs
    by a factor of about exp(-2 (pi deviation / step)^2) from the sum over all: the trapezoidal rule.
    """

    group: NDArray[np.int64]
    above: NDArray[np.int64]
    least: NDArray[np.int64]
    step: NDArray[np.int64]
    number: NDArray[np.int64]

    @classmethod
    def of_groups(cls, groups: TiedGroups) -> _JudgedAbove:
        """The visible ranks of all groups that have relevant documents."""
        length = np.where(groups.inside.relevant > 0, groups.visible, 0)
        group, above = np.repeat(np.arange(len(length)), length), _count_up(length)
        rest = groups.size[group] - 1
        judged = (groups.inside.relevant + groups.inside.other)[group] - 1
        fraction = judged / np.maximum(rest, 1)
        mean = above * fraction
        spread = np.sqrt(_UNLIKELY * np.minimum(above, rest - above) / 2)
        low, high = np.floor(mean - spread).astype(np.int64), np.ceil(mean + spread).astype(np.int64)
        least, most = np.maximum(0, above - (rest - judged)), np.minimum(above, judged)
        deviation = np.sqrt(mean * (1 - fraction) * (rest - above) / np.maximum(rest - 1, 1))
        step = np.where((low > least) & (high < most), (_STEP * deviation).astype(np.int64), 1)
        step = np.maximum(step, 1)
        least, most = np.maximum(least, low), np.minimum(most, high)
        return cls(group, above, least, step, (most - least) // step + 1)

    def take(self, part: slice) -> _JudgedAbove:
        """Those of some of the ranks."""
        return _JudgedAbove(self.group[part], self.above[part], self.least[part], self.step[part], self.number[part])


def _sums_of_ranks(groups: TiedGroups, ranks: _JudgedAbove, table: NDArray[np.float64]) -> NDArray[np.float64]:
    """What relevant documents at these ranks add in the mean, summed for each group."""
    row = np.repeat(np.arange(len(ranks.group)), ranks.number)
    j = _count_up(ranks.number) * ranks.step[row] + ranks.least[row]
    g, t = ranks.group[row], ranks.above[row]
    inside, before = groups.inside, groups.above
    rest, judged = groups.size[g] - 1, (inside.relevant + inside.other)[g] - 1
    log_probability = (
        log_choose(table, judged, j) + log_choose(table, rest - judged, t - j) - log_choose(table, rest, t)
    )
    relevant = before.relevant[g] + j * (inside.relevant[g] - 1) / np.maximum(judged, 1)
    pooled = (before.relevant + before.other + before.pooled)[g] + j
    pooled = pooled + (t - j) * inside.pooled[g] / np.maximum(rest - judged, 1)
    judged_above = (before.relevant + before.other)[g] + j
    precision = _precision(groups.ranks_above[g] + t + 1, relevant, judged_above, pooled)
    weight = np.exp(log_probability) * ranks.step[row] * inside.relevant[g] / groups.size[g]
    return np.bincount(g, weight * precision, minlength=len(groups.size)).astype(np.float64, copy=False)


def _count_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ..., length - 1 for each length, joined."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
