"""Paired differences between methods: means, intervals, corrected tests, wins, ties and losses.

The values of a query are averaged over seeds (and over random splits) first; the difference of two methods is taken
query by query over the folds and seeds that both have. Intervals and tests follow the policy of the package,
`rankbound.evaluation.inference.Inference`: BCa bootstrap over queries, paired t test. p-values are corrected by Holm's
method over the sets of a role for each pair of methods and protocol. The pooled difference is the mean of the means of
the sets; its interval holds the 2.5 and 97.5 percentiles of a bootstrap that draws the queries of each set separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.training.methods import METHODS
from benchmarks.quality.training.sets import ROLES, SIMULATORS
from benchmarks.quality.training.store import Job, Record
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.resampling import resampled_means

__all__ = ["GROUPS", "POLICY", "Comparison", "Mean", "Pooled", "analyze"]

POLICY = Inference()
GROUPS: dict[str, tuple[str, ...]] = {**ROLES, "simulators": SIMULATORS}
Records = Mapping[Job, Record]


@dataclass(frozen=True)
class Mean:
    """nDCG@10 of a method on a set, over all folds and seeds that the store has."""

    protocol: str
    dataset: str
    method: str
    queries: int
    records: int
    value: float


@dataclass(frozen=True)
class Comparison:
    """A method minus a reference on a set."""

    protocol: str
    role: str
    dataset: str
    method: str
    reference: str
    queries: int
    records: int
    mean: float
    reference_mean: float
    difference: float
    low: float
    high: float
    p: float
    corrected_p: float = np.nan

    @property
    def outcome(self) -> str:
        """Return "win" or "loss" if the corrected test rejects equality, else "tie"."""
        if not self.corrected_p < POLICY.alpha:
            return "tie"
        return "win" if self.difference > 0 else "loss"

    @property
    def interval_outcome(self) -> str:
        """Return "win" or "loss" if the interval does not contain 0, else "tie"."""
        return "win" if self.low > 0 else "loss" if self.high < 0 else "tie"


@dataclass(frozen=True)
class Pooled:
    """A method minus a reference over a group of sets: mean of the means, and counts of wins, ties and losses."""

    protocol: str
    group: str
    sets: int
    method: str
    reference: str
    difference: float
    low: float
    high: float
    outcomes: tuple[int, int, int]
    interval_outcomes: tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class _Pair:
    """Differences of the queries of a set, averaged over folds and seeds, and the means of both methods."""

    protocol: str
    dataset: str
    method: str
    reference: str
    records: int
    queries: NDArray[np.str_]
    values: NDArray[np.float64]
    reference_values: NDArray[np.float64]

    @property
    def differences(self) -> NDArray[np.float64]:
        return self.values - self.reference_values


def analyze(records: Records) -> tuple[list[Mean], list[Comparison], list[Pooled]]:
    """Compare every method with its references on every set and protocol of which there are records."""
    by_cell: dict[tuple[str, str, str], dict[tuple[int, int], Record]] = {}
    for job, record in records.items():
        by_cell.setdefault((job.protocol, job.dataset, job.method), {})[job.fold, job.seed] = record
    means = [_mean(*cell, found) for cell, found in by_cell.items()]
    pairs = list(_pairs(by_cell))
    comparisons = _corrected([_compared(pair) for pair in pairs])
    return means, comparisons, list(_pooled(pairs, comparisons))


def _mean(protocol: str, dataset: str, method: str, records: Mapping[tuple[int, int], Record]) -> Mean:
    queries, (values,) = _by_query([records])
    return Mean(protocol, dataset, method, len(queries), len(records), float(values.mean()))


def _pairs(by_cell: Mapping[tuple[str, str, str], Mapping[tuple[int, int], Record]]) -> Iterator[_Pair]:
    for (protocol, dataset, method), records in by_cell.items():
        for reference in METHODS[method].references:
            others = by_cell.get((protocol, dataset, reference), {})
            shared = sorted(records.keys() & others.keys())
            if shared:
                both = [{key: side[key] for key in shared} for side in (records, others)]
                queries, (values, reference_values) = _by_query(both)
                yield _Pair(protocol, dataset, method, reference, len(shared), queries, values, reference_values)


def _by_query(
    sides: Sequence[Mapping[tuple[int, int], Record]],
) -> tuple[NDArray[np.str_], list[NDArray[np.float64]]]:
    """Average the values of each query over folds and seeds; queries without a relevant document are left out."""
    names = [np.concatenate([record.queries for record in side.values()]) for side in sides]
    values = [np.concatenate([record.values for record in side.values()]) for side in sides]
    assert all(np.array_equal(names[0], other) for other in names[1:]), "the test queries of a fold are the same"
    defined = ~np.isnan(values[0])
    queries, index, count = np.unique(names[0][defined], return_inverse=True, return_counts=True)
    return queries, [np.bincount(index, side[defined], minlength=len(queries)) / count for side in values]


def _compared(pair: _Pair) -> Comparison:
    d = pair.differences[:, None]
    low, high = POLICY.intervals(d)[:, 0]
    return Comparison(
        pair.protocol, _role(pair.dataset), pair.dataset, pair.method, pair.reference, len(d), pair.records,
        float(pair.values.mean()), float(pair.reference_values.mean()), float(d.mean()), float(low), float(high),
        float(POLICY.p_values(d)[0]),
    )  # fmt: skip


def _role(dataset: str) -> str:
    return next(role for role, sets in ROLES.items() if dataset in sets)


def _corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    families: dict[tuple[str, ...], list[int]] = {}
    for index, c in enumerate(comparisons):
        families.setdefault((c.protocol, c.role, c.method, c.reference), []).append(index)
    corrected = list(comparisons)
    for family in families.values():
        p_values = POLICY.correct([comparisons[index].p for index in family])
        for index, p in zip(family, p_values, strict=True):
            corrected[index] = replace(comparisons[index], corrected_p=float(p))
    return corrected


def _pooled(pairs: Sequence[_Pair], comparisons: Sequence[Comparison]) -> Iterator[Pooled]:
    draws = _resampled_means(pairs)
    rows: dict[tuple[str, str, str], list[int]] = {}
    for index, pair in enumerate(pairs):
        rows.setdefault((pair.protocol, pair.method, pair.reference), []).append(index)
    for (protocol, method, reference), indices in rows.items():
        for group, sets in GROUPS.items():
            chosen = [index for index in indices if pairs[index].dataset in sets]
            if not chosen:
                continue
            low, high = np.percentile(np.mean([draws[index] for index in chosen], axis=0), (2.5, 97.5))
            members = [comparisons[index] for index in chosen]
            yield Pooled(
                protocol, group, len(chosen), method, reference, float(np.mean([c.difference for c in members])),
                float(low), float(high), _counts([c.outcome for c in members]),
                _counts([c.interval_outcome for c in members]),
            )  # fmt: skip


def _resampled_means(pairs: Sequence[_Pair]) -> list[NDArray[np.float64]]:
    """Return means of bootstrap samples of each pair; pairs with the same queries share the draws."""
    draws: list[NDArray[np.float64]] = [np.empty(0)] * len(pairs)
    alike: dict[tuple[str, bytes], list[int]] = {}
    for index, pair in enumerate(pairs):
        alike.setdefault((pair.dataset, pair.queries.tobytes()), []).append(index)
    datasets = sorted({pair.dataset for pair in pairs})
    for (dataset, _), indices in alike.items():
        rng = np.random.default_rng([POLICY.seed, datasets.index(dataset)])
        columns = np.stack([pairs[index].differences for index in indices], axis=1)
        for index, means in zip(indices, resampled_means(columns, POLICY.resamples, rng), strict=True):
            draws[index] = means
    return draws


def _counts(outcomes: Sequence[str]) -> tuple[int, int, int]:
    return (outcomes.count("win"), outcomes.count("tie"), outcomes.count("loss"))
