"""Decided or not: whether the order of two runs is the same whatever their unjudged documents are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from rankbound.difficulty.unknown.differences import RunsWithUnknown, have_one_sign
from rankbound.difficulty.unknown.ranges import LabelRange, range_of_mean
from rankbound.evaluation.resampling import t_statistics
from rankbound.evaluation.result import range_of_aggregate
from rankbound.measures import Measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MOST_DOCUMENTS = 10  # of one comparison
_SWEEPS = 50
_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class DecidingDocument:
    """A document without a judgment, and by how much its label can change the mean difference."""

    qid: Any
    docid: Any
    effect: float


@dataclass(frozen=True, slots=True)
class Decision:
    """One measure, one pair of runs: what the labels of their unjudged documents could change.

    ``low`` and ``high`` are the ends of the range of the mean difference, run minus baseline; some labels attain them
    if ``is_exact``, else they are bounds. ``decided_queries`` counts the queries with the same sign whatever the labels
    are, and ``is_decided`` says it of the mean. ``significance`` says what the labels could do to a paired t test at
    the policy's level: "stands", "may be lost", "may be reversed", "absent" or "may appear"; differences of queries are
    taken as free within their ranges, so that "may" is not "can". ``documents`` are those whose labels can change the
    mean difference most.
    """

    measure: str
    baseline: str
    run: str
    queries: int
    decided_queries: int
    low: float
    high: float
    is_exact: bool
    is_decided: bool
    significance: str
    documents: tuple[DecidingDocument, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return asdict(self) | {"documents": [asdict(document) for document in self.documents]}


def ranges_of_runs(
    runs: RunsWithUnknown, requested: Mapping[str, Measure], names: Sequence[str], empty: str
) -> dict[str, dict[str, tuple[float, float]]]:
    """The range of each run's mean over the labels of its own unjudged documents, by run and measure."""
    found = {name: runs.ranges_of_each(measure) for name, measure in requested.items()}
    return {
        run: {name: range_of_aggregate(name, ranges[row], empty) for name, ranges in found.items()}
        for row, run in enumerate(names)
    }


def decide(
    runs: RunsWithUnknown,
    requested: Mapping[str, Measure],
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    *,
    empty: str = "skip",
    alpha: float = 0.05,
) -> tuple[Decision, ...]:
    """A decision for every measure and pair of runs (baseline, run)."""
    return tuple(
        decision
        for name, measure in requested.items()
        for decision in _decisions_by(runs, name, measure, names, pairs, empty, alpha)
    )


def _decisions_by(
    runs: RunsWithUnknown,
    name: str,
    measure: Measure,
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    empty: str,
    alpha: float,
) -> list[Decision]:
    found = runs.differences(measure, pairs)
    zero_labels = runs.values_with_zero(measure)
    codes, effects = runs.effects(measure)
    decided = found.is_decided
    result = []
    for row, (first, second) in enumerate(pairs):
        ends = LabelRange(found.low[row], found.high[row], found.may_be_empty[row])
        if empty != "skip":  # the difference of two stand-ins is 0
            low, high = (
                np.where(ends.may_be_empty, reduce(end, 0.0), end)
                for reduce, end in ((np.fmin, ends.low), (np.fmax, ends.high))
            )
            ends = LabelRange(low, high, np.zeros_like(ends.may_be_empty))
        low_mean, high_mean = range_of_mean(ends)
        counted = ~np.isnan(ends.low)
        known = zero_labels[second] - zero_labels[first]
        low, high = ends.low[counted], ends.high[counted]
        result.append(
            Decision(
                name,
                names[first],
                names[second],
                int(counted.sum()),
                int(decided[row][counted].sum()),
                low_mean,
                high_mean,
                found.is_exact,
                bool(have_one_sign(low_mean, high_mean)),
                _significance(np.clip(np.nan_to_num(known[counted]), low, high), low, high, alpha),
                _deciding_documents(runs, codes, effects[:, second] - effects[:, first], int(counted.sum())),
            )
        )
    return result


def _deciding_documents(
    runs: RunsWithUnknown, codes: NDArray[np.int64], effect: NDArray[np.float64], queries: int
) -> tuple[DecidingDocument, ...]:
    size = np.abs(effect) / max(queries, 1)
    order = np.lexsort((codes, -size))[:MOST_DOCUMENTS]
    return tuple(
        DecidingDocument(*runs.name_of(int(codes[at])), float(size[at])) for at in order.tolist() if size[at] > 0
    )


# ---- significance ----------------------------------------------------------------------------------------------------


def _significance(known: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], alpha: float) -> str:
    """What labels could do to the paired t test of differences that lie between ``low`` and ``high``."""
    n = len(known)
    if n < 2:
        return "absent"
    critical = float(special.stdtrit(n - 1, 1 - alpha / 2))
    t = _t(known)
    most, least = _largest_t(low, high), -_largest_t(-high, -low)
    if abs(t) < critical:
        return "may appear" if most >= critical or least <= -critical else "absent"
    if (least <= -critical) if t > 0 else (most >= critical):
        return "may be reversed"
    smallest = _smallest_t(low, high, known) if t > 0 else _smallest_t(-high, -low, -known)
    return "stands" if smallest >= critical else "may be lost"


def _t(d: NDArray[np.float64]) -> float:
    return float(t_statistics(d[:, None])[0])


def _largest_t(low: NDArray[np.float64], high: NDArray[np.float64]) -> float:
    """The largest t of differences within their ranges, if it is positive; else that of the upper ends.

    t rises with a difference up to sum of squares / sum, and falls beyond it, so that the best differences are this
    threshold cut to their ranges.
    """
    best = high
    if high.sum() <= 0:
        return _t(high)
    for _ in range(_SWEEPS):
        threshold = float((best**2).sum() / best.sum())
        new = np.clip(threshold, low, high)
        if new.sum() <= 0 or _t(new) <= _t(best):
            break
        best = new
    return _t(best)


def _smallest_t(low: NDArray[np.float64], high: NDArray[np.float64], start: NDArray[np.float64]) -> float:
    """The smallest t that a descent from ``start`` finds, one difference after the other moved to one of its ends."""
    if low.sum() <= 0:
        return 0.0
    d = start.copy()
    value = _t(d)
    for _ in range(_SWEEPS):
        before = value
        for q in np.flatnonzero(high - low > _TOLERANCE).tolist():
            for end in (low[q], high[q]):
                old, d[q] = d[q], end
                new = _t(d)
                if new < value:
                    value = new
                else:
                    d[q] = old
        if value >= before:
            break
    return value
