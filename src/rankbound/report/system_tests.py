"""Which system is better, by how much, and could it be noise: the tests that pages and tables show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.evaluation.inference import Inference, group_letters, mean_intervals, pair_statistics
from rankbound.evaluation.leaderboards import RankInterval, rank_intervals
from rankbound.evaluation.scores import ScoreMatrix, is_lower_better

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST_LETTERS = 20  # systems that have letters; more of them have intervals of their ranks
_COUNTS = ("shared", "wins", "ties", "losses")
# the numbers of a `SystemTest` in the order in which `_Panel.verdict` computes them
_TESTED = (
    "shared",
    "difference",
    *("difference_low", "difference_high", "corrected_low", "corrected_high"),
    "minimum_detectable_difference",
    *("wins", "ties", "losses"),
)


@dataclass(frozen=True, slots=True)
class SystemTest:
    """A system on one data set and measure, and its difference to ``versus`` on the queries that both have.

    ``difference`` is this system minus ``versus``. The fields of the test are None for ``versus`` itself and where the
    two share no query; intervals also where they share only one. ``p_value`` is corrected, see `judge_systems`, and
    ``corrected_low`` and ``corrected_high`` are the interval at the corrected level. ``wins`` counts the queries on
    which this system is better. Systems that share one of the ``letters`` do not differ significantly.
    """

    system: str
    queries: int
    mean: float
    ci_low: float | None
    ci_high: float | None
    letters: str = ""
    shared: int = 0
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    corrected_low: float | None = None
    corrected_high: float | None = None
    p_value: float | None = None
    minimum_detectable_difference: float | None = None
    wins: int = 0
    ties: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The systems of one data set by one measure, the best first, all compared with ``versus``.

    ``inference`` is the policy behind all numbers, and ``family`` says over which tests p-values were corrected.
    Without a baseline, ``pair_p_values`` has the corrected p-values of all pairs of the score matrix's systems, in the
    order of `itertools.combinations`; NaN where two systems share no query. For more than 20 systems with the same
    queries, ``ranks`` has those that each can have, in place of letters.
    """

    data_set: str
    measure: str
    versus: str
    inference: Inference
    family: str
    systems: tuple[SystemTest, ...]
    pair_p_values: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)
    ranks: Mapping[str, RankInterval] = field(default_factory=dict)

    @property
    def best(self) -> SystemTest:
        """The system with the best mean."""
        return self.systems[0]

    def is_significant(self, test: SystemTest) -> bool:
        """Whether a system differs significantly from ``versus``."""
        return test.p_value is not None and test.p_value < self.inference.alpha


def judge_systems(
    scores: ScoreMatrix, baseline: str | Sequence[str] | None = None, inference: Inference | None = None
) -> tuple[Verdict, ...]:
    """Compare all systems with the baseline, or with the best one, for every data set and measure.

    With several baselines there is a verdict for each of them, without tests of the others; all tests are corrected
    together.

    The policy is the one of `rankbound.compare`, and so are the numbers: with a baseline, p-values are corrected over
    the comparisons with it, over all measures and data sets. Without one, the best system is known from the same data,
    so they are corrected over all pairs of systems, as those of ``compare(..., baseline=None)``.
    """
    policy = inference or Inference()
    baselines = [baseline] if baseline is None or isinstance(baseline, str) else list(baseline)
    for name in baselines:
        if name is not None and name not in scores.systems:
            raise ArgumentError(f"baseline must be one of {', '.join(scores.systems)}, got {name!r}")
    every = [
        _Panel(
            scores,
            source,
            measure,
            name,
            {scores.systems.index(other) for other in baselines if other} if name else set(),
        )
        for source in range(len(scores.data_sets))
        for measure in scores.measures
        for name in baselines
    ]
    panels = [panel for panel in every if panel.present]
    raw = [panel.p_values(policy) for panel in panels]
    flat = np.concatenate([*raw, np.empty(0)])
    corrected_alpha, flat = policy.corrected_alpha(flat), policy.correct(flat)
    letters = group_letters(scores, policy, {(panel.source, panel.measure): panel.present for panel in panels})
    verdicts, start = [], 0
    for panel, p in zip(panels, raw, strict=True):
        corrected = flat[start : start + len(p)]
        start += len(p)
        verdicts.append(panel.verdict(corrected, corrected_alpha, letters[panel.source, panel.measure], policy))
    return tuple(verdicts)


class _Panel:
    """One data set, one measure."""

    def __init__(
        self, scores: ScoreMatrix, source: int, measure: str, baseline: str | None, baselines: Set[int]
    ) -> None:
        self.scores, self.source, self.measure, self.has_baseline = scores, source, measure, baseline is not None
        self.values = scores.values[measure][:, scores.in_data_set(source)]
        known = np.isfinite(self.values)
        self.queries = known.sum(axis=1)
        self.means = {row: float(self.values[row][known[row]].mean()) for row in np.flatnonzero(self.queries).tolist()}
        sign = 1.0 if is_lower_better(measure) else -1.0
        self.present = sorted(self.means, key=lambda row: sign * self.means[row])  # equal means keep their order
        if not self.present:
            return
        self.family = (
            "over all pairs of systems, all measures and all data sets"
            if baseline is None
            else f"over all comparisons with the baseline{'s' if len(baselines) > 1 else ''}"
        )
        self.versus = self.present[0]
        if baseline is not None and scores.systems.index(baseline) in self.means:
            self.versus = scores.systems.index(baseline)
        self.untested = {self.versus, *(baselines if len(baselines) > 1 else ())}
        rows = np.array(sorted(self.present))
        first, second = rows[np.array(np.triu_indices(len(rows), k=1))]
        if baseline is not None:
            chosen = np.isin(first, [*self.untested]) != np.isin(second, [*self.untested])
            chosen &= (first == self.versus) | (second == self.versus)
            first, second = first[chosen], second[chosen]
        self.first, self.second = first, second

    def p_values(self, policy: Inference) -> NDArray[np.float64]:
        """p-values of the pairs, before correction; NaN where two systems share no query."""
        return pair_statistics(self.scores, self.measure, self.source, self.second, self.first, policy.p_values)

    def verdict(
        self, corrected: NDArray[np.float64], corrected_alpha: float, letters: Mapping[int, str], policy: Inference
    ) -> Verdict:
        """The systems with their intervals and tests, the best first."""
        p = {
            (a, b): value
            for a, b, value in zip(self.first.tolist(), self.second.tolist(), corrected.tolist(), strict=True)
        }
        ends = mean_intervals(self.scores, self.measure, self.source, policy)
        others = [row for row in self.present if row not in self.untested]
        sign = -1.0 if is_lower_better(self.measure) else 1.0

        def statistics(d: NDArray[np.float64]) -> NDArray[np.float64]:
            intervals = policy.intervals_at(d, [policy.confidence, 1 - corrected_alpha])
            counts = [(sign * d > 0).sum(axis=0), (d == 0).sum(axis=0), (sign * d < 0).sum(axis=0)]
            shared = np.full(d.shape[1], len(d))
            detectable = policy.minimum_detectable_differences(d)
            return np.stack([shared, d.mean(axis=0), *intervals[0], *intervals[1], detectable, *counts])

        against = [self.versus] * len(others)
        columns = pair_statistics(self.scores, self.measure, self.source, others, against, statistics)
        tests = dict(zip(others, np.atleast_2d(columns).T.tolist(), strict=True)) if others else {}
        systems = []
        for row in self.present:
            low, high = ends[:, row].tolist()
            name, queries = self.scores.systems[row], int(self.queries[row])
            test = SystemTest(name, queries, self.means[row], _none_if_nan(low), _none_if_nan(high), letters[row])
            if row in tests and not math.isnan(tests[row][0]):
                pair = p[min(row, self.versus), max(row, self.versus)]
                numbers: dict[str, Any] = {
                    name: _none_if_nan(value) for name, value in zip(_TESTED, tests[row], strict=True)
                }
                test = replace(test, p_value=pair, **numbers | {name: int(numbers[name]) for name in _COUNTS})
            systems.append(test)
        versus, data_set = self.scores.systems[self.versus], self.scores.data_sets[self.source]
        pairs = None if self.has_baseline else self._over_all_pairs(corrected)
        ranks = {}
        if len(self.present) > MOST_LETTERS and self._have_the_same_queries():
            ranks = {row.system: row for row in rank_intervals(self.scores, self.measure, policy, self.source)}
        return Verdict(data_set, self.measure, versus, policy, self.family, tuple(systems), pairs, ranks)

    def _have_the_same_queries(self) -> bool:
        known = np.isfinite(self.values)
        return len(self.present) == len(known) and bool((known == known[0]).all())

    def _over_all_pairs(self, corrected: NDArray[np.float64]) -> NDArray[np.float64]:
        """The p-values of the tested pairs among those of all systems of the score matrix."""
        count = len(self.scores.systems)
        square = np.full((count, count), np.nan)
        square[self.first, self.second] = corrected
        return square[np.triu_indices(count, k=1)]


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
