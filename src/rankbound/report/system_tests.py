"""Which system is better, by how much, and could it be noise: tests between the columns of lined-up scores."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from rankbound.analysis import significance
from rankbound.analysis.scores import ScoreMatrix, difference, is_lower_better
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["SystemTest", "Verdict", "judge_systems"]

_OVER_PAIRS = "over all pairs of systems and all data sets, measure by measure"
LARGE = 5_000  # queries from which on an interval is Student's: resampling so many takes long and gives the same


@dataclass(frozen=True, slots=True)
class SystemTest:
    """A system on one data set and measure, and its difference to ``versus`` on the queries that both have.

    ``difference`` is this system minus ``versus``; the test's fields are None for ``versus`` itself, where the two
    share no query, and where one query gives no interval. ``p_value`` is of the paired t test, Holm-corrected, see
    `judge_systems`. ``wins`` count queries on which this system is better.
    """

    system: str
    queries: int
    mean: float
    ci_low: float | None
    ci_high: float | None
    shared: int = 0
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p_value: float | None = None
    wins: int = 0
    ties: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The systems of one data set by one measure, the best first, all compared with ``versus``.

    ``correction`` says what the p-values were corrected over.
    """

    data_set: str
    measure: str
    versus: str
    correction: str
    systems: tuple[SystemTest, ...]

    @property
    def best(self) -> SystemTest:
        """The system with the best mean."""
        return self.systems[0]


def judge_systems(scores: ScoreMatrix, baseline: str | None = None, seed: int = 0) -> tuple[Verdict, ...]:
    """Compare all systems with the baseline, or with the best one, for every data set and measure.

    With a baseline only its pairs are tested, and p-values are corrected over all of them, as `compare` does. Without
    one the best is known from the same data, so they are corrected over all pairs of systems and data sets, measure by
    measure.
    """
    if baseline is not None and baseline not in scores.systems:
        raise ArgumentError(f"baseline must be one of {', '.join(scores.systems)}, got {baseline!r}")
    every = [
        _Group(scores, place, measure, baseline) for place in range(len(scores.data_sets)) for measure in scores.values
    ]
    groups = [group for group in every if group.present]
    families = [groups] if baseline is not None else [[g for g in groups if g.measure == m] for m in scores.values]
    for family in families:
        raw = [p for group in family for p in group.p_values.values()]
        corrected = iter(significance.holm(raw).tolist() if raw else ())
        for group in family:
            group.p_values = dict(zip(group.p_values, corrected, strict=False))
    correction = "over all comparisons with the baseline" if baseline is not None else _OVER_PAIRS
    intervals = _intervals(groups, seed)
    return tuple(group.verdict(intervals, correction) for group in groups)


class _Group:
    """One data set, one measure."""

    def __init__(self, scores: ScoreMatrix, data_set: int, measure: str, baseline: str | None) -> None:
        self.data_set, self.measure, self.systems = scores.data_sets[data_set], measure, scores.systems
        self.values = scores.values[measure][:, scores.in_data_set(data_set)]
        self.known = np.isfinite(self.values)
        self.sign = -1.0 if is_lower_better(measure) else 1.0
        means = {
            s: float(self.values[s][self.known[s]].mean()) for s in range(len(self.systems)) if self.known[s].any()
        }
        self.present = sorted(means, key=lambda s: -self.sign * means[s])  # stable: equal means keep their order
        self.means = means
        if not self.present:
            return
        self.versus = self.systems.index(baseline) if baseline in self.systems else self.present[0]
        self.versus = self.versus if self.versus in means else self.present[0]
        pairs: Sequence[tuple[int, int]] = list(combinations(sorted(self.present), 2))
        if baseline is not None:
            pairs = [pair for pair in pairs if self.versus in pair]
        self.p_values: dict[tuple[int, int], float] = {}
        for pair in pairs:
            d = self.differences(*pair)
            if len(d):
                self.p_values[pair] = significance.paired_t(d)

    def differences(self, system: int, versus: int) -> NDArray[np.float64]:
        """System minus versus on the queries that both have."""
        both = self.known[system] & self.known[versus]
        return difference(self.values[system][both], self.values[versus][both])

    def verdict(
        self, intervals: Mapping[tuple[str, str, int], tuple[float | None, float | None]], correction: str
    ) -> Verdict:
        """The rows, with intervals."""
        rows = []
        for s in self.present:
            value = self.values[s][self.known[s]]
            low, high = _mean_interval(value)
            pair = (min(s, self.versus), max(s, self.versus))
            d = self.differences(s, self.versus) if s != self.versus else np.empty(0)
            if len(d) == 0:
                rows.append(SystemTest(self.systems[s], len(value), self.means[s], low, high))
                continue
            count = significance.win_tie_loss(self.sign * d)
            rows.append(
                SystemTest(
                    self.systems[s],
                    len(value),
                    self.means[s],
                    low,
                    high,
                    len(d),
                    float(d.mean()),
                    *intervals[self.data_set, self.measure, s],
                    self.p_values[pair],
                    count.wins,
                    count.ties,
                    count.losses,
                )
            )
        return Verdict(self.data_set, self.measure, self.systems[self.versus], correction, tuple(rows))


def _intervals(groups: Sequence[_Group], seed: int) -> dict[tuple[str, str, int], tuple[float | None, float | None]]:
    """Intervals of the differences by data set, measure and system: bootstrap, or Student's of very many queries.

    Pairs that share the same queries are resampled together: drawing is what takes the time.
    """
    together: dict[tuple[str, bytes], list[tuple[_Group, int]]] = {}
    for group in groups:
        for s in group.present:
            both = group.known[s] & group.known[group.versus]
            if s != group.versus and both.any():
                together.setdefault((group.data_set, both.tobytes()), []).append((group, s))
    found: dict[tuple[str, str, int], tuple[float | None, float | None]] = {}
    for members in together.values():
        columns = np.stack([group.differences(s, group.versus) for group, s in members], axis=1)
        if 1 < len(columns) < LARGE:
            ends = [(low, high) for low, high in significance.bootstrap_interval_columns(columns, seed=seed).T.tolist()]
        else:
            ends = [_mean_interval(column) for column in columns.T]
        for (group, s), end in zip(members, ends, strict=True):
            found[group.data_set, group.measure, s] = end
    return found


def _mean_interval(value: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Student's 95 % interval of a mean; none of a single query."""
    if len(value) < 2:
        return None, None
    from scipy.special import stdtrit

    half = float(stdtrit(len(value) - 1, 0.975) * value.std(ddof=1) / np.sqrt(len(value)))
    return float(value.mean()) - half, float(value.mean()) + half
