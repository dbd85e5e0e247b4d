"""The rows of a comparison: differences of pairs of systems by every measure, on all queries and by type of query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty import QUERY_TYPES
from rankbound.evaluation.inference import FEWEST_FOR_INTERVALS, TESTS, Inference
from rankbound.evaluation.intervals import effect_size_interval_columns
from rankbound.evaluation.scores import ScoreMatrix, is_lower_better
from rankbound.evaluation.significance import effect_size_columns, smallest_randomization_p

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure, one pair of runs; ``difference`` is the mean of ``run`` minus the mean of ``baseline``.

    ``wins`` counts the queries on which ``run`` is better, whichever direction is better for the measure. ``p_t``,
    ``p_wilcoxon`` and ``p_randomization`` are the p-values of the three tests, and the names that end in ``_holm`` the
    same after Holm's correction over all rows of the comparison that have a p-value. ``p_value`` is that of the test
    that the policy names, and ``p_corrected`` the same after the policy's correction; ``ci_low_corrected`` and
    ``ci_high_corrected`` are the ends of the interval at the corrected level (`Inference.corrected_alpha`).
    ``minimum_detectable_difference`` is the smallest true difference that a t test on these queries would find with
    the policy's power, and ``minimum_detectable_difference_corrected`` the same at the corrected level.

    Means, difference, interval and p-values are None where no query counts; the interval also with a single query;
    ``effect_size`` (mean over standard deviation of the differences) and its interval where there is no spread.
    """

    measure: str
    baseline: str
    run: str
    queries: int
    mean_baseline: float | None
    mean_run: float | None
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    effect_size: float | None
    effect_size_low: float | None
    effect_size_high: float | None
    p_t: float | None
    p_t_holm: float | None
    p_wilcoxon: float | None
    p_wilcoxon_holm: float | None
    p_randomization: float | None
    p_randomization_holm: float | None
    wins: int
    ties: int
    losses: int
    p_value: float | None
    p_corrected: float | None
    ci_low_corrected: float | None
    ci_high_corrected: float | None
    minimum_detectable_difference: float | None
    minimum_detectable_difference_corrected: float | None


@dataclass(frozen=True, slots=True)
class TypeDifference:
    """The difference on the queries of one type. No p-values: types depend on the outcome, so tests would mislead."""

    measure: str
    baseline: str
    run: str
    type: str
    queries: int
    mean_baseline: float
    mean_run: float
    difference: float
    ci_low: float | None
    ci_high: float | None
    wins: int
    ties: int
    losses: int


def difference_columns(scores: ScoreMatrix, pairs: Pairs, policy: Inference) -> dict[str, Any]:
    """The fields of `Difference`, each for all measures and pairs."""
    baselines, systems = np.array(pairs).T
    raw: dict[str, list[NDArray[np.float64]]] = {test: [] for test in TESTS}
    for name in scores.measures:
        d = scores.differences(name, systems, baselines)[scores.counted(name)]
        for test in TESTS:
            raw[test].append(policy.p_values(d, test) if len(d) else np.full(len(pairs), np.nan))
    p = {test: np.concatenate(values) for test, values in raw.items()}
    corrected_alpha = policy.corrected_alpha(p[policy.test])
    parts = [_measure_columns(scores, name, systems, baselines, policy, corrected_alpha) for name in scores.measures]
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    holm = replace(policy, correction="holm")
    for test in TESTS:
        columns |= {f"p_{test}": p[test], f"p_{test}_holm": holm.correct(p[test])}
    columns |= {"p_value": p[policy.test], "p_corrected": policy.correct(p[policy.test])}
    columns["measure"] = [name for name in scores.measures for _ in pairs]
    columns["baseline"] = [scores.systems[first] for first, _ in pairs] * len(scores.measures)
    columns["run"] = [scores.systems[second] for _, second in pairs] * len(scores.measures)
    return columns


def _measure_columns(
    scores: ScoreMatrix,
    measure: str,
    systems: NDArray[np.int64],
    baselines: NDArray[np.int64],
    policy: Inference,
    corrected_alpha: float,
) -> dict[str, NDArray[Any]]:
    counted = scores.counted(measure)
    d = scores.differences(measure, systems, baselines)[counted]
    columns: dict[str, NDArray[Any]] = {"queries": np.full(len(systems), len(d))}
    means = scores.means(measure)
    columns |= {"mean_baseline": means[baselines], "mean_run": means[systems]}
    names = (
        "difference",
        "ci_low",
        "ci_high",
        "ci_low_corrected",
        "ci_high_corrected",
        "effect_size",
        "effect_size_low",
        "effect_size_high",
        "minimum_detectable_difference",
        "minimum_detectable_difference_corrected",
    )
    if len(d) == 0:
        columns |= {name: np.full(len(systems), np.nan) for name in names}
        return columns | {name: np.zeros(len(systems), np.int64) for name in ("wins", "ties", "losses")}
    ends = policy.intervals_at(d, [policy.confidence, 1 - corrected_alpha])
    effect = effect_size_interval_columns(d, confidence=policy.confidence)
    detectable = [policy.minimum_detectable_differences(d, alpha) for alpha in (policy.alpha, corrected_alpha)]
    values = (d.mean(axis=0), *ends[0], *ends[1], effect_size_columns(d), *effect, *detectable)
    return columns | dict(zip(names, values, strict=True)) | _outcomes(d, measure)


def _outcomes(d: NDArray[np.float64], measure: str) -> dict[str, NDArray[Any]]:
    """On how many queries the system is better, equal and worse."""
    above, below = (d > 0).sum(axis=0), (d < 0).sum(axis=0)
    wins, losses = (below, above) if is_lower_better(measure) else (above, below)
    return {"wins": wins, "ties": len(d) - above - below, "losses": losses}


def type_differences(scores: ScoreMatrix, pairs: Pairs, policy: Inference) -> tuple[TypeDifference, ...]:
    """A row per measure, type of query and pair; without an interval where a type has fewer than 5 queries."""
    baselines, systems = np.array(pairs).T
    rows = []
    for name, known in scores.difficulty.items():
        for kind in QUERY_TYPES:
            chosen = (known.types == kind) & scores.counted(name)
            if not chosen.any():
                continue
            d = scores.differences(name, systems, baselines)[chosen]
            means = scores.values[name][:, chosen].mean(axis=1)
            outcomes = _outcomes(d, name)
            ends = policy.intervals(d) if len(d) >= FEWEST_FOR_INTERVALS else np.full((2, len(pairs)), np.nan)
            columns = [means[baselines], means[systems], d.mean(axis=0), *ends, *outcomes.values()]
            for (first, second), values in zip(
                pairs, zip(*(plain_list(column) for column in columns), strict=True), strict=True
            ):
                queries = int(chosen.sum())
                rows.append(TypeDifference(name, scores.systems[first], scores.systems[second], kind, queries, *values))
    return tuple(rows)


def note_on_sign_flips(scores: ScoreMatrix, pairs: Pairs, policy: Inference) -> list[str]:
    """Say it if no randomization test can be significant after correction, whatever the values."""
    baselines, systems = np.array(pairs).T
    smallest = [
        smallest_randomization_p(d)
        for name in scores.measures
        if len(d := scores.differences(name, systems, baselines)[scores.counted(name)])
    ]
    if not smallest:
        return []
    p = np.concatenate(smallest)
    p = p[p < 1]  # pairs that differ on no more than one query have nothing to be tested
    if not len(p) or policy.correct(p).min() < policy.alpha:
        return []
    return [
        f"No randomization test can be significant: {'' if policy.correction == 'none' else 'after correction '}its "
        f"p-value is at least {policy.correct(p).min():.2g} with so few queries on which the runs differ."
    ]


def plain_list(values: Any) -> list[Any]:
    """Python numbers, None in place of NaN."""
    if not isinstance(values, np.ndarray):
        return list(values)
    if values.dtype.kind != "f" or not np.isnan(values).any():
        return list(values.tolist())
    return [None if math.isnan(value) else value for value in values.tolist()]


def row_schema(kind: type[Any]) -> dict[str, Any]:
    """The columns of a frame with a row per object of one of the classes above."""
    import polars as pl

    types = {"str": pl.String, "int": pl.Int64, "float": pl.Float64, "float | None": pl.Float64}
    return {field.name: types[str(field.type)] for field in fields(kind)}
