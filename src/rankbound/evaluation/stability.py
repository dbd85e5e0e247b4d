"""Which normalization orders systems most reliably? Stability of system rankings over halves of the queries.

Karmaker & Feng compare measures by how consistently they order systems. `stability` asks the same of any measures and
systems, with random halves of one set of queries in place of several data sets. For a measure with a wrapper, such as
``EM(nDCG@10)``, it also computes the difference from the plain measure and a confidence interval of that difference.

Three quantities:

- ``Kendall tau``: tau-b between the orders of the systems by their means on the two halves, averaged over many random
  splits. Higher is more stable.
- ``swap rate``: the fraction of the pairs of systems that the two halves order in opposite ways, averaged likewise.
  Lower is more stable.
- ``significant fraction``: the fraction of the pairs of systems that differ significantly on all queries, by the test
  and the correction of an `Inference` policy (discriminative power, Sakai 2006).

The intervals are jackknife intervals: each query is left out in turn, from whichever half it is in, and the standard
error of the difference is that of a mean over queries, with Student's quantile. They describe the sampling of queries,
for these systems. Measures are compared on the same splits and the same queries left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import polars as pl

from rankbound.difficulty.standardization import LEAST_REFERENCES, standardize
from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.evaluation.alignment import align_runs
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.measures import BOUNDINGS, STANDARDIZATIONS, Measure, parse_measure, parse_measures
from rankbound.protocol import Protocol, ProtocolFields, as_protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUANTITIES = ("Kendall tau", "swap rate", "significant fraction")
LEAST_QUERIES = 4  # two in each half
_ROUNDING = 1e-12  # means that differ by less are tied
_MOST_SPLITS = 100_000


def stability(
    scores: ScoreMatrix | Sequence[ScoreMatrix],
    measures: Iterable[str] | None = None,
    *,
    splits: int = 200,
    seed: int = 0,
    inference: Inference | None = None,
) -> pl.DataFrame:
    """Stability of the order of systems by each measure, and the difference of each wrapped measure from the plain one.

    Parameters
    ----------
    scores:
        The values of the systems; or several matrices with the same queries and measures, over which the quantities
        are averaged (as `disjoint_references` returns them).
    measures:
        The measures, all of the matrix by default.
    splits, seed:
        Number of random splits of the queries into halves, for each matrix, and the seed of the random numbers. With
        an odd number of queries the second half has one more.
    inference:
        Test, correction and level of the significant fraction, and confidence level of the intervals.

    Returns
    -------
    A row per quantity and measure: quantity, measure, plain (the measure without its wrapper), systems (the mean number
    over the matrices), queries (those that count for the measure, the fewest of any matrix), value, and difference,
    ci_low, ci_high: the value minus that of the plain measure, with its interval. They are null for plain measures, and
    where the plain measure is not in the matrix. Kendall's tau is null if all systems are tied in one of the halves of
    every split.

    >>> values = np.arange(3.0)[:, None] + np.linspace(0, 0.1, 8)  # every query orders the systems in the same way
    >>> table = stability(ScoreMatrix(("a", "b", "c"), tuple("12345678"), {"AP": values}))
    >>> dict(zip(table["quantity"], table["value"]))
    {'Kendall tau': 1.0, 'swap rate': 0.0, 'significant fraction': 1.0}
    """
    matrices = [scores] if isinstance(scores, ScoreMatrix) else list(scores)
    if not matrices:
        raise ArgumentError("scores must be at least one matrix, got none")
    names = list(matrices[0].measures) if measures is None else list(measures)
    _check_draws(splits, seed)
    _check(matrices, names)
    policy = Inference() if inference is None else inference
    results = {name: _replicates(matrices, name, splits, seed, policy) for name in names}
    rows: list[dict[str, Any]] = []
    for row, quantity in enumerate(QUANTITIES):
        for name in names:
            plain = _plain_name(name, names)
            value = results[name][row]
            known: dict[str, Any] = {"quantity": quantity, "measure": name, "plain": str(parse_measure(name).plain)}
            known |= {"systems": round(float(np.mean([len(matrix.systems) for matrix in matrices])))}
            known |= {"queries": min(int(matrix.counted(name).sum()) for matrix in matrices)}
            low = high = difference = np.nan
            if plain is not None and plain != name:
                difference, low, high = _jackknife(value - results[plain][row], policy.confidence)
            numbers = {"value": value[0], "difference": difference, "ci_low": low, "ci_high": high}
            rows.append(known | {key: float(number) for key, number in numbers.items()})
    schema = {**dict.fromkeys(("quantity", "measure", "plain"), pl.String), "systems": pl.Int64, "queries": pl.Int64}
    schema |= dict.fromkeys(("value", "difference", "ci_low", "ci_high"), pl.Float64)
    return pl.DataFrame(rows, schema=schema).with_columns(pl.col(pl.Float64).fill_nan(None))


def _check_draws(splits: int, seed: int) -> None:
    if isinstance(splits, bool) or not isinstance(splits, (int, np.integer)) or not 1 <= splits <= _MOST_SPLITS:
        raise ArgumentError(f"splits must be an integer from 1 to {_MOST_SPLITS:,}, got {splits!r}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ArgumentError(f"seed must be an integer of at least 0, got {seed!r}")


def _check(matrices: Sequence[ScoreMatrix], names: Sequence[str]) -> None:
    for matrix in matrices:
        if len(matrix.systems) < 2:
            raise DataError(f"stability needs at least 2 systems, got {len(matrix.systems)}")
        if len(matrix) < LEAST_QUERIES:
            raise DataError(f"stability needs at least {LEAST_QUERIES} queries, got {len(matrix)}")
        if matrix.query_ids != matrices[0].query_ids:
            raise DataError("all matrices must have the same queries in the same order")
        for name in names:
            if name not in matrix.values:
                raise ArgumentError(f"measures must be among {', '.join(matrix.measures)}, got {name!r}")
            if not matrix.counted(name).any():
                raise DataError(f"no query has a value of {name} for every system")


def _plain_name(name: str, names: Sequence[str]) -> str | None:
    """The name under which the plain measure is in the matrix, which may be an alias."""
    plain = parse_measure(name).plain
    return next((other for other in names if parse_measure(other) == plain), None)


def _replicates(
    matrices: Sequence[ScoreMatrix], name: str, splits: int, seed: int, policy: Inference
) -> NDArray[np.float64]:
    """Quantities x (1 + queries): on all queries first, then without each query; averaged over the matrices."""
    rng = np.random.default_rng(seed)
    results = []
    for matrix in matrices:
        in_first = _random_halves(rng, len(matrix), splits)  # the same for every measure, because the seed is
        counted = matrix.counted(name)
        agreement = _agreement(matrix.values[name], counted, in_first)
        results.append([*agreement, _significant_fractions(matrix, name, counted, policy)])
    return np.asarray(np.mean(results, axis=0))


def _random_halves(rng: np.random.Generator, queries: int, splits: int) -> NDArray[np.bool_]:
    """Splits x queries: which queries are in the first half."""
    order = rng.random((splits, queries)).argsort(axis=1)
    return order < queries // 2


def _agreement(
    values: NDArray[np.float64], counted: NDArray[np.bool_], in_first: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean tau and mean swap rate over the splits, on all queries and without each of them: two arrays, 1 + queries.

    Leaving a query out changes the sums of one half only, so the other half's order is computed once.
    """
    value = np.where(counted, values, 0.0)
    halves = [(in_first & counted).astype(np.float64).T, (~in_first & counted).astype(np.float64).T]
    sums = [value @ half for half in halves]  # systems x splits
    counts = [half.sum(axis=0) for half in halves]
    signs = [_signs(total, count) for total, count in zip(sums, counts, strict=True)]
    tau, swaps = (np.empty(1 + len(counted)) for _ in range(2))
    tau[0], swaps[0] = _tau_and_swap_rate(*signs)
    for query in range(len(counted)):
        if not counted[query]:
            tau[1 + query], swaps[1 + query] = tau[0], swaps[0]
            continue
        first = in_first[:, query]
        total = np.where(first, sums[0], sums[1]) - value[:, query, None]
        reduced = _signs(total, np.where(first, counts[0], counts[1]) - 1)
        other = np.where(first, signs[1], signs[0])
        tau[1 + query], swaps[1 + query] = _tau_and_swap_rate(reduced, other)
    return tau, swaps


def _signs(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float32]:
    """Which of each pair of systems is better: pairs x splits, with -1, 0 and 1; NaN where a half has no query."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means = sums / counts
    first, second = np.triu_indices(len(means), k=1)
    d = means[first] - means[second]
    d[np.abs(d) < _ROUNDING] = 0.0
    return np.sign(d).astype(np.float32)


def _tau_and_swap_rate(a: NDArray[np.float32], b: NDArray[np.float32]) -> tuple[float, float]:
    """Mean over the splits of tau-b and of the swap rate; splits where one of them does not exist are left out."""
    concordance = np.einsum("ps,ps->s", a, b, dtype=np.float64)
    decided = [np.einsum("ps,ps->s", each, each, dtype=np.float64) for each in (a, b)]
    both = np.einsum("ps,ps->s", np.abs(a), np.abs(b), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        tau = concordance / np.sqrt(decided[0] * decided[1])
    return _mean(tau), _mean((both - concordance) / 2 / len(a))


def _mean(values: NDArray[np.float64]) -> float:
    known = np.isfinite(values)
    return float(values[known].mean()) if known.any() else float("nan")


def _significant_fractions(
    matrix: ScoreMatrix, name: str, counted: NDArray[np.bool_], policy: Inference
) -> NDArray[np.float64]:
    """Fraction of the pairs that differ significantly, on all queries and without each of them."""
    d = matrix.pair_differences(name)
    everything = np.flatnonzero(counted)
    result = np.full(1 + len(counted), _significant_fraction(d[everything], policy))
    for query in everything:
        result[1 + query] = _significant_fraction(d[everything[everything != query]], policy)
    return result


def _significant_fraction(d: NDArray[np.float64], policy: Inference) -> float:
    return float((policy.correct(policy.p_values(d)) < policy.alpha).mean()) if len(d) > 1 else 0.0


def _jackknife(replicates: NDArray[np.float64], confidence: float) -> tuple[float, float, float]:
    """The estimate from all queries, and the ends of its interval from those with one query left out."""
    from scipy.special import stdtrit

    estimate, partial = replicates[0], replicates[1:]
    n = len(partial)
    error = np.sqrt((n - 1) / n * ((partial - partial.mean()) ** 2).sum())
    margin = float(stdtrit(n - 1, (1 + confidence) / 2)) * error
    return float(estimate), float(estimate - margin), float(estimate + margin)


# ---- standardized measures -------------------------------------------------------------------------------------------


def with_standardized(
    scores: ScoreMatrix, measures: Iterable[str | Measure], references: ScoreMatrix | None = None
) -> ScoreMatrix:
    """The matrix with standardized measures, such as ``STD(nDCG@10)``, added.

    ``references`` has the plain measures of the reference systems on the same queries. By default they are the
    systems of the matrix themselves, each of which then takes part in its own scale.

    >>> matrix = ScoreMatrix(("a", "b"), ("q",), {"AP": np.array([[0.2], [0.6]])})
    >>> with_standardized(matrix, ["ECDF(AP)"]).values["ECDF(AP)"].tolist()
    [[0.5], [1.0]]
    """
    base = scores if references is None else references
    if base.query_ids != scores.query_ids:
        raise DataError("references must have the same queries as scores, in the same order")
    if len(base.systems) < LEAST_REFERENCES:
        raise DataError(f"references must be at least {LEAST_REFERENCES} systems, got {len(base.systems)}")
    values = dict(scores.values)
    for name in measures:
        measure = parse_measure(name)
        if not measure.is_standardized:
            raise ArgumentError(f"measures must have a wrapper such as STD, got {measure}")
        plain = _plain_name(str(measure), [*scores.measures])
        if plain is None or plain not in base.values:
            raise ArgumentError(f"scores and references must have {measure.plain} for {measure}")
        values[str(name)] = standardize(
            scores.values[plain],
            base.values[plain],
            measure.bounding,
            lower_is_better=measure.definition.lower_is_better,
        )
    return replace(scores, values=values)


def disjoint_references(
    scores: ScoreMatrix,
    measures: Iterable[str | Measure],
    *,
    partitions: int = 5,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
) -> list[ScoreMatrix]:
    """Matrices in which no system is among the references that it is standardized by.

    The systems are divided at random into two halves, ``partitions`` times. Each half is then evaluated, with the other
    half as references: two matrices per partition, with the measures of the matrix and the standardized ones. Systems
    of one group (``groups`` has one entry per system, such as its team) stay together, so that no system is
    standardized by a variant of itself; the halves then have about the same size.
    """
    if isinstance(partitions, bool) or not isinstance(partitions, (int, np.integer)) or partitions < 1:
        raise ArgumentError(f"partitions must be a positive integer, got {partitions!r}")
    if groups is not None and len(groups) != len(scores.systems):
        raise ArgumentError(f"groups must have one entry for each of {len(scores.systems)} systems, got {len(groups)}")
    labels = [*range(len(scores.systems))] if groups is None else [str(group) for group in groups]
    code = np.unique(labels, return_inverse=True)[1].ravel()
    sizes = np.bincount(code)
    if len(sizes) < 2:
        raise DataError("disjoint references need systems of at least 2 groups, got 1")
    wrapped = list(measures)
    rng = np.random.default_rng(seed)
    matrices = []
    for _ in range(partitions):
        order = rng.permutation(len(sizes))
        # the groups up to the one that comes nearest to half of the systems; none of the halves is empty
        total = np.cumsum(sizes[order])[:-1]
        chosen = np.isin(code, order[: int(np.argmin(np.abs(total - len(code) / 2))) + 1])
        halves = [_rows(scores, half) for half in (chosen, ~chosen)]
        for evaluated, references in (halves, halves[::-1]):
            if min(len(evaluated.systems), len(references.systems)) < LEAST_REFERENCES:
                raise DataError(
                    f"disjoint references need at least {LEAST_REFERENCES} systems in each half, got "
                    f"{len(evaluated.systems)} and {len(references.systems)}"
                )
            matrices.append(with_standardized(evaluated, wrapped, references))
    return matrices


def _rows(scores: ScoreMatrix, chosen: NDArray[np.bool_]) -> ScoreMatrix:
    systems = tuple(name for name, kept in zip(scores.systems, chosen.tolist(), strict=True) if kept)
    return replace(scores, systems=systems, values={name: value[chosen] for name, value in scores.values.items()})


# ---- runs ------------------------------------------------------------------------------------------------------------

_REFERENCES = ("all runs", "disjoint halves")


def compare_normalizations(
    qrels: Any,
    runs: Mapping[str, Any],
    measures: Iterable[str | Measure],
    protocol: Protocol | None = None,
    *,
    wrappers: Iterable[str] | None = None,
    splits: int = 200,
    partitions: int = 5,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    inference: Inference | None = None,
    **fields: Unpack[ProtocolFields],
) -> pl.DataFrame:
    """Which normalization of a measure orders these runs most reliably? `stability` of each, by two protocols.

    Parameters
    ----------
    qrels, runs:
        Judgments, and runs by name, as `rankbound.evaluate` takes them. Queries that a run lacks are left out for all
        of them, unless the protocol has ``missing="zero"``.
    measures:
        Plain measures, such as ``["nDCG@10", "AP"]``.
    wrappers:
        Wrappers to compare, such as ``["EM", "STD"]``; all by default. Those that a measure does not have, as UL1 of a
        measure with negative values, are left out for it.
    splits, seed, inference:
        As in `stability`.
    partitions, groups:
        As in `disjoint_references`; with 0 partitions there is no such protocol. Each half of the runs is evaluated on
        splits / partitions splits of the queries.
    protocol, fields:
        As in `rankbound.evaluate`.

    Returns
    -------
    The columns of `stability`, after the column ``references``. Its value ``"all runs"`` says that all runs are
    evaluated and that they are also the reference runs of STD, STDU and ECDF; ``"disjoint halves"`` that the
    reference runs are those that are not evaluated.
    """
    _check_draws(splits, seed)  # before files are read
    known = {**BOUNDINGS, **STANDARDIZATIONS}
    chosen = list(known if wrappers is None else wrappers)
    for wrapper in chosen:
        if wrapper not in known:
            raise ArgumentError(f"wrappers must be among {', '.join(known)}, got {wrapper!r}")
    exact: list[str] = []
    standardized: list[str] = []
    for name, measure in parse_measures(measures).items():
        if measure.bounding != "none":
            raise ArgumentError(f"measures must be plain, because wrappers are given apart; got {name}")
        exact.append(str(measure))
        for wrapper in chosen:
            try:
                wrapped = str(measure.bounded(known[wrapper]))
            except MeasureError:
                continue
            (standardized if wrapper in STANDARDIZATIONS else exact).append(wrapped)
    if len(runs) < 2:
        raise ArgumentError(f"runs must be at least 2, got {len(runs)}")
    scores = align_runs(qrels, [*runs.values()], exact, as_protocol(protocol, fields), names=[*runs])
    references: dict[str, tuple[list[ScoreMatrix], int]] = {
        _REFERENCES[0]: ([with_standardized(scores, standardized)], splits)
    }
    if partitions:
        halves = disjoint_references(scores, standardized, partitions=partitions, groups=groups, seed=seed)
        references[_REFERENCES[1]] = (halves, max(1, splits // partitions))
    order = [str(measure) for measure in parse_measures(measures).values()]
    tables = []
    for reference_runs, (matrices, count) in references.items():
        table = stability(matrices, splits=count, seed=seed, inference=inference)
        rank = pl.col("plain").replace_strict({name: index for index, name in enumerate(order)}, return_dtype=pl.Int64)
        tables.append(
            table.sort(rank, maintain_order=True).select(pl.lit(reference_runs).alias("references"), pl.all())
        )
    return pl.concat(tables)
