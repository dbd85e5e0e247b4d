"""The distributions of all queries of a data set, computed once for the queries that share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.bounds import plain_measure
from rankbound.difficulty.distribution.arrangements import rounding, tolerance
from rankbound.difficulty.distribution.cache import RecentDistributions
from rankbound.difficulty.distribution.case import Case, case_of
from rankbound.difficulty.distribution.choice import (
    SAMPLES,
    ComputedDistribution,
    distribution_of,
    is_enumerated,
    normalized,
    prefers_mixture,
)
from rankbound.difficulty.distribution.closed_form import closed
from rankbound.difficulty.distribution.ends import with_exact_ends
from rankbound.difficulty.distribution.mixture import TOGETHER, mixture_key, mixtures
from rankbound.difficulty.distribution.smoothing import look_up, smooth_table
from rankbound.errors import ArgumentError
from rankbound.io import report_progress
from rankbound.measures import LabelCounts, Measure

_RESOLUTIONS = {"sampled": 1 / SAMPLES, "approximate": 1e-8, "dynamic": 1e-10}


class Distributions:
    """The distributions of one measure for many queries: tables of the distinct ones, looked up with one x per query.

    ``class_of[q]`` is the index in ``distributions`` of query q's distribution.
    """

    def __init__(self, distributions: Sequence[ComputedDistribution], class_of: NDArray[np.int64]) -> None:
        self.distributions = list(distributions)
        self.class_of = class_of
        sizes = np.array([len(distribution[0]) for distribution in self.distributions], dtype=np.int64)
        self._first = (np.cumsum(sizes) - sizes)[class_of]
        self._size = sizes[class_of]
        self._scores = (
            np.concatenate([distribution[0] for distribution in self.distributions])
            if self.distributions
            else np.zeros(0)
        )
        # P(score <= the first i) and P(score >= those from i on), one number more than there are scores
        self._below = _joined([_running(distribution[1]) for distribution in self.distributions])
        self._above = _joined([_running(distribution[1][::-1])[::-1] for distribution in self.distributions])
        ends = np.array([rounding(distribution[0]) for distribution in self.distributions]).reshape(-1, 2)
        self._least_slack, self._greatest_slack = ends[class_of].T

    def __len__(self) -> int:
        return len(self.class_of)

    def __repr__(self) -> str:
        return f"Distributions(queries={len(self)}, distinct={len(self.distributions)})"

    def cdf(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(score of a random ranking <= x), one x per query."""
        x = self._checked(x)
        return np.where(np.isnan(x), np.nan, self._below[self._first + self.class_of + self._count(x + self._slack(x))])

    def survival(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(score of a random ranking >= x), one x per query."""
        x = self._checked(x)
        count = self._count(np.nextafter(x - self._slack(x), -np.inf))
        return np.where(np.isnan(x), np.nan, self._above[self._first + self.class_of + count])

    def _slack(self, x: NDArray[np.float64]) -> Any:
        return tolerance(x, self._least_slack, self._greatest_slack)

    @property
    def resolution(self) -> NDArray[np.float64]:
        """Probability that the tails of each query's distribution do not resolve.

        It is 1 / the number of samples of a sampled distribution, 1e-8 for an approximate one, 1e-10 for a dynamic
        program, and 0 for all others.
        """
        resolutions = [_RESOLUTIONS.get(distribution[2], 0.0) for distribution in self.distributions]
        return np.array(resolutions, dtype=np.float64)[self.class_of]

    def smooth_cdf(self, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Smooth P(score of a random ranking <= x) (algorithm 2 of Westerborg 2022) and its slope, one x per query."""
        x = self._checked(x)
        if not self.distributions:
            return np.zeros(0), np.zeros(0)
        return look_up(x, *self._smooth)

    def take(self, queries: NDArray[np.int64]) -> Distributions:
        """The distributions of some queries, which may repeat."""
        taken = copy(self)
        taken.__dict__.pop("_smooth", None)
        for name in ("class_of", "_first", "_size", "_least_slack", "_greatest_slack"):
            setattr(taken, name, getattr(self, name)[queries])
        return taken

    def expectation(
        self, function: Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Mean of ``function(scores, query)`` over random rankings, for each query.

        It is computed once for the queries that share a distribution, with the first of them as ``query``.
        """
        classes, first, back = np.unique(self.class_of, return_index=True, return_inverse=True)
        distinct = [self.distributions[index] for index in classes]
        index = np.repeat(np.arange(len(classes)), [len(distribution[0]) for distribution in distinct])
        values = function(_joined([distribution[0] for distribution in distinct]), first[index])
        weighted = _joined([distribution[1] for distribution in distinct]) * values
        return np.bincount(index, weighted, minlength=len(classes)).astype(np.float64)[back.ravel()]

    def _checked(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        x = np.asarray(x, dtype=np.float64)
        if x.shape != self.class_of.shape:
            raise ArgumentError(f"x must hold one number per query, {len(self)}, got shape {x.shape}")
        return x

    def _count(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """Scores <= x of each query's distribution: one bisection for all queries side by side."""
        low = np.zeros(len(x), dtype=np.int64)
        high = self._size.copy()
        for _ in range(int(self._size.max(initial=1)).bit_length()):
            middle = (low + high) // 2
            open_ = low < high
            right = open_ & (self._scores[self._first + np.minimum(middle, self._size - 1)] <= x)
            low = np.where(right, middle + 1, low)
            high = np.where(open_ & ~right, middle, high)
        return low

    @cached_property
    def _smooth(self) -> tuple[NDArray[np.float64], ...]:
        tables = [smooth_table(distribution[0], distribution[1]) for distribution in self.distributions]
        sizes = np.array([len(table.values) for table in tables])
        per_class = [
            np.array([table.start for table in tables]),
            np.array([table.spacing for table in tables]),
            np.array([table.gain for table in tables]),
            np.cumsum(sizes) - sizes,
            sizes,
        ]
        values, slopes = _joined([table.values for table in tables]), _joined([table.slopes for table in tables])
        return *(column[self.class_of] for column in per_class), values, slopes


def _running(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """0, the running sums of the probabilities, and exactly 1 at the end."""
    sums = np.cumsum(probabilities)
    sums[-1] = 1.0
    return np.concatenate(([0.0], np.minimum(sums, 1.0)))


def _joined(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate(parts) if parts else np.zeros(0)


def _report_distribution(done: int, total: int) -> None:
    report_progress("distribution", done, total)


def distributions_of(
    measure: Measure,
    counts: LabelCounts,
    *,
    ranker_strength: float = 0.5,
    precise: bool = False,
    cache: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Distributions:
    """The distributions of a plain measure for the queries that the counts describe.

    Queries that differ in nothing the measure sees share one distribution. ``precise`` is for p-values: tails of full
    rankings with graded labels are then precise, too, which takes longer.
    ``progress(done, all)`` is called after each distribution.

    >>> from rankbound.measures import parse_measure
    >>> distributions = distributions_of(parse_measure("P@2"), LabelCounts.binary([4, 3, 4], [2, 1, 2]))
    >>> distributions, distributions.survival(np.array([1.0, 0.5, 0.5])).round(3).tolist()
    (Distributions(queries=3, distinct=2), [0.167, 0.667, 0.833])
    """
    if not 0 < ranker_strength < 1:
        raise ArgumentError(f"ranker_strength must lie between 0 and 1, got {ranker_strength}")
    cases, class_of = _cases(plain_measure(measure), counts, ranker_strength)
    method = "auto" if precise else "fast"
    return Distributions(_computed(cases, method, cache, progress or _report_distribution), class_of)


def _computed(
    cases: Sequence[Case], method: str, cache: bool, progress: Callable[[int, int], None] | None
) -> list[ComputedDistribution]:
    """The distribution of each case: approximations of cases with the same tables together, the others one by one."""
    distributions: list[ComputedDistribution | None] = [None] * len(cases)
    together: dict[Any, list[int]] = {}
    for index, case in enumerate(cases):
        if _is_approximated(case, precise=method == "auto"):
            distributions[index] = _recent.get((case, method)) if cache else None
            if distributions[index] is None:
                together.setdefault(mixture_key(case), []).append(index)
    done = sum(distribution is not None for distribution in distributions)

    def finish(index: int, distribution: ComputedDistribution) -> None:
        nonlocal done
        distributions[index] = distribution
        done += 1
        if progress is not None:
            progress(done, len(cases))

    for members in together.values():
        for start in range(0, len(members), TOGETHER):
            chunk = members[start : start + TOGETHER]
            for index, points in zip(chunk, mixtures([cases[index] for index in chunk], method == "auto"), strict=True):
                if points is not None:
                    distribution = normalized(*with_exact_ends(*points, cases[index]), "approximate")
                    finish(index, distribution)
                    if cache:
                        _recent.put((cases[index], method), distribution)
    for index, case in enumerate(cases):
        if distributions[index] is None:
            finish(index, distribution_of(case, method, cache=cache))
    return [distribution for distribution in distributions if distribution is not None]


def _is_approximated(case: Case, precise: bool) -> bool:
    """Whether the approximation is tried."""
    worst, _, best = case.bounds
    return prefers_mixture(case, precise) and worst != best and not is_enumerated(case) and closed(case) is None


_recent = RecentDistributions(10_000_000)


def _cases(measure: Measure, counts: LabelCounts, ranker_strength: float) -> tuple[list[Case], NDArray[np.int64]]:
    """The distinct cases, and which of them each query is."""
    counts = measure.definition.distinguished_counts(counts)
    labels = measure.definition.levels(measure, counts.values)
    if measure.definition.is_binary(measure):
        levels = np.array([1.0, 0.0])
        code = (labels == 0).astype(np.int64)
    else:
        levels, code = np.unique(labels, return_inverse=True)
    table = np.bincount(
        counts.query_of_run * len(levels) + code, counts.counts, minlength=len(counts) * len(levels)
    ).reshape(len(counts), len(levels))
    rows = np.column_stack((table, counts.cut(measure.cutoff))).astype(np.int64)
    distinct, back = np.unique(rows, axis=0, return_inverse=True)
    index: dict[Case, int] = {}
    case_at = np.zeros(len(distinct), dtype=np.int64)
    for at, row in enumerate(distinct.tolist()):
        case = case_of(measure, levels.tolist(), row[:-1], row[-1], ranker_strength)
        case_at[at] = index.setdefault(case, len(index))
    return list(index), case_at[back.ravel()] if len(distinct) else np.zeros(0, dtype=np.int64)
