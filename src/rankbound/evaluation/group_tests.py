"""Means and differences by groups of queries that the user names, with intervals and corrected tests.

Groups are given before anyone looks at the outcome, so they can be tested, unlike types of queries. All rows of a
result are corrected together. A group with fewer than 5 queries has its mean, and neither interval nor p-value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.display import plain_values
from rankbound.evaluation.groups import QueryGroups
from rankbound.evaluation.inference import FEWEST_FOR_INTERVALS, Inference
from rankbound.evaluation.resampling import standard_deviations
from rankbound.measures import parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.evaluation.scores import ScoreMatrix


@dataclass(frozen=True, slots=True)
class GroupMean:
    """The mean of a measure over a group of queries; ``difference`` is that from the other queries, by Student's test.

    The corrected interval is that of the mean at the corrected level.
    """

    measure: str
    attribute: str
    group: str
    queries: int
    mean: float
    ci_low: float | None
    ci_high: float | None
    ci_low_corrected: float | None
    ci_high_corrected: float | None
    difference: float | None
    p_value: float | None
    p_corrected: float | None


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """The difference of two runs (run minus baseline) on a group of queries, by the policy's test."""

    measure: str
    baseline: str
    run: str
    attribute: str
    group: str
    queries: int
    mean_baseline: float
    mean_run: float
    difference: float
    ci_low: float | None
    ci_high: float | None
    ci_low_corrected: float | None
    ci_high_corrected: float | None
    p_value: float | None
    p_corrected: float | None


def group_means(
    values: Mapping[str, NDArray[np.float64]], query_ids: Any, groups: QueryGroups, policy: Inference
) -> tuple[GroupMean, ...]:
    """A row per measure and group, the worst mean of each measure first; queries without a value do not count."""
    parts = []
    for measure, value in values.items():
        counted = np.isfinite(value)
        for attribute, group, chosen in groups.masks(query_ids):
            inside = value[chosen & counted]
            if len(inside):
                parts.append((measure, attribute, group, inside, value[~chosen & counted]))
    p = np.array([student_p_value(inside, outside) for *_, inside, outside in parts])
    corrected = policy.correct(p)
    level = 1 - policy.corrected_alpha(p)
    rows = []
    for (measure, attribute, group, inside, outside), own, adjusted in zip(parts, p, corrected, strict=True):
        difference = None if not len(outside) else float(inside.mean() - outside.mean())
        ends = _intervals(policy, inside, level)
        rows.append(
            GroupMean(
                measure,
                attribute,
                group,
                len(inside),
                float(inside.mean()),
                *ends,
                difference,
                plain_values(own),
                plain_values(adjusted),
            )
        )
    order = {measure: (index, _sign(measure)) for index, measure in enumerate(values)}
    return tuple(sorted(rows, key=lambda row: (order[row.measure], row.attribute, order[row.measure][1] * row.mean)))


def group_differences(
    scores: ScoreMatrix, pairs: Sequence[tuple[int, int]], groups: QueryGroups, policy: Inference
) -> tuple[GroupDifference, ...]:
    """A row per measure, pair of systems and group, the largest loss of each pair first."""
    baselines, systems = np.array(pairs).T
    parts = []
    for measure in scores.measures:
        d, counted = scores.differences(measure, systems, baselines), scores.counted(measure)
        for attribute, group, chosen in groups.masks(scores.query_ids):
            inside = chosen & counted
            if inside.any():
                parts.append((measure, attribute, group, inside, d[inside]))
    tests = [policy.p_values(d) if len(d) >= FEWEST_FOR_INTERVALS else np.full(len(pairs), np.nan) for *_, d in parts]
    p = np.array(tests).reshape(len(parts), len(pairs))
    corrected = policy.correct(p.ravel()).reshape(p.shape)
    level = 1 - policy.corrected_alpha(p.ravel())
    rows = []
    for index, (measure, attribute, group, inside, d) in enumerate(parts):
        means = scores.values[measure][:, inside].mean(axis=1)
        for pair, (first, second) in enumerate(pairs):
            rows.append(
                GroupDifference(
                    measure,
                    scores.systems[first],
                    scores.systems[second],
                    attribute,
                    group,
                    len(d),
                    float(means[first]),
                    float(means[second]),
                    float(d[:, pair].mean()),
                    *_intervals(policy, d[:, pair], level),
                    plain_values(p[index, pair]),
                    plain_values(corrected[index, pair]),
                )
            )
    order = {measure: (index, _sign(measure)) for index, measure in enumerate(scores.measures)}

    def rank(row: GroupDifference) -> tuple[tuple[int, int], str, str, float]:
        return order[row.measure], row.run, row.attribute, order[row.measure][1] * row.difference

    return tuple(sorted(rows, key=rank))


def _sign(measure: str) -> int:
    return -1 if parse_measure(measure).is_lower_better else 1


def student_p_value(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Two-sided p-value of Student's t test of two means; NaN where one has fewer than 5 numbers.

    The variance is pooled: where nothing differs, Welch's test of a small group with skewed values rejects too often.

    >>> round(student_p_value(np.arange(5.0), np.arange(6.0) + 2), 4)
    0.0425
    """
    from scipy.special import stdtr

    counts = np.array([len(first), len(second)])
    if counts.min() < FEWEST_FOR_INTERVALS:
        return math.nan
    variances = np.array([standard_deviations(part[:, None])[0] ** 2 for part in (first, second)])
    gap, freedom = abs(float(first.mean() - second.mean())), int(counts.sum()) - 2
    error = math.sqrt(float((variances * (counts - 1)).sum()) / freedom * float((1 / counts).sum()))
    if error == 0:
        return 1.0 if gap == 0 else 0.0
    return min(1.0, 2 * float(stdtr(freedom, -gap / error)))


Ends = tuple[float | None, float | None, float | None, float | None]


def _intervals(policy: Inference, values: NDArray[np.float64], corrected: float) -> Ends:
    if len(values) < FEWEST_FOR_INTERVALS:
        return None, None, None, None
    ends = policy.intervals_at(values[:, None], [policy.confidence, corrected])[:, :, 0]
    low, high, low_corrected, high_corrected = (plain_values(end) for end in ends.ravel())
    return low, high, low_corrected, high_corrected
