"""compare: is one ranker better than another, by how much, on which queries, and could it be noise?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.analysis import significance
from rankbound.analysis.runs import align_evaluations, align_lists, align_runs
from rankbound.analysis.scores import ScoreMatrix, difference, is_lower_better
from rankbound.difficulty import QUERY_TYPES
from rankbound.errors import ArgumentError
from rankbound.evaluation import Evaluation
from rankbound.lists import Lists
from rankbound.measures import Measure

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["Comparison", "Difference", "TypeDifference", "compare", "run_names"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure, one pair of runs; ``difference`` is the mean of ``run`` minus the mean of ``baseline``.

    ``wins`` are the queries on which ``run`` is better, whichever direction is better for the measure. Means,
    difference and interval are None where no query counts; the interval also with a single query; ``effect_size`` (mean
    over standard deviation of the differences) and its interval where there is no spread. ``_holm`` p-values are
    corrected over all rows of the comparison.
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
    p_t: float
    p_t_holm: float
    p_wilcoxon: float
    p_wilcoxon_holm: float
    p_randomization: float
    p_randomization_holm: float
    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, slots=True)
class TypeDifference:
    """The difference on the queries of one type. No p-values: types are drawn by outcome, so tests would mislead."""

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


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found: a row per measure and pair of runs, and the same by type of query."""

    runs: tuple[str, ...]
    rows: tuple[Difference, ...]
    by_type: tuple[TypeDifference, ...]
    queries: int
    left_out: int
    confidence: float
    resamples: int
    seed: int
    scores: ScoreMatrix

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names, as they were asked for."""
        return tuple(self.scores.values)

    @property
    def empty_queries(self) -> int:
        """Shared queries that do not count for at least one of the measures."""
        return int((~np.all([self.scores.counted(name) for name in self.measures], axis=0)).sum())

    def mean(self) -> dict[str, dict[str, float | None]]:
        """Mean of every measure for each run, over the queries that count for all runs."""
        means: dict[str, dict[str, float | None]] = {run: {} for run in self.runs}
        for name in self.measures:
            counted = self.scores.counted(name)
            for run, value in zip(self.runs, self.scores.values[name], strict=True):
                means[run][name] = float(value[counted].mean()) if counted.any() else None
        return means

    @cached_property
    def table(self) -> pl.DataFrame:
        """The rows as a frame."""
        return _frame(self.rows, Difference)

    @cached_property
    def type_table(self) -> pl.DataFrame:
        """The rows by type of query as a frame."""
        return _frame(self.by_type, TypeDifference)

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per measure and query: measure, qid, type, the value of each run; null where it does not count."""
        import polars as pl

        parts = []
        for name, value in self.scores.values.items():
            kind = self.scores.types.get(name)
            columns = {
                "measure": pl.Series([name] * len(self.scores.query_ids), dtype=pl.String),
                "qid": pl.Series(self.scores.query_ids),
                "type": pl.Series([None] * value.shape[1] if kind is None else kind, dtype=pl.String).replace("", None),
            }
            for run, row in zip(self.runs, value, strict=True):
                columns[run] = pl.Series(row, nan_to_null=True)
            parts.append(pl.DataFrame(columns))
        return pl.concat(parts)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, ready for JSON."""
        return {
            "runs": list(self.runs),
            "mean": self.mean(),
            "queries": self.queries,
            "empty_queries": self.empty_queries,
            "left_out_queries": self.left_out,
            "confidence": self.confidence,
            "resamples": self.resamples,
            "seed": self.seed,
            "differences": [asdict(row) for row in self.rows],
            "by_type": [asdict(row) for row in self.by_type],
        }

    def __repr__(self) -> str:
        return f"Comparison(runs={list(self.runs)}, measures={list(self.measures)}, queries={self.queries})"


def compare(
    *runs: Any,
    qrels: Any = None,
    measures: Iterable[str | Measure] | str | Measure | None = None,
    names: Sequence[str] | None = None,
    baseline: int | None = 0,
    ties: str = "average",
    empty: str = "skip",
    missing: str = "ignore",
    judged_only: bool = False,
    depth: int | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two or more runs on the queries that all of them have.

    Parameters
    ----------
    runs, qrels:
        Runs as paths, dicts or frames with the judgments in ``qrels``; or, without qrels, `Lists` that carry scores,
        or results of `evaluate`. With qrels all runs share one set of candidates per query (everything judged or
        returned by any of them), so bounded values can differ slightly from those of `evaluate`, which sees one run at
        a time.
    measures:
        Names such as ``"nDCG@10"``, ``"UL2(nDCG@10)"``; for evaluations, those they have in common if not given.
    names:
        What to call the runs; else paths by their name, others "run 1", "run 2", ...
    baseline:
        Position of the run that the others are compared with; None compares all pairs.
    ties, empty, missing, judged_only, depth:
        As in `evaluate`; not for evaluations, which have their values already.
    confidence, resamples, seed:
        Of the bootstrap interval and the randomization test.

    >>> qrels = {q: {"a": 1, "b": 0, "c": 0} for q in "pqrs"}
    >>> good, bad = ({q: {"a": a, "b": 0.5, "c": 0.1} for q in "pqrs"} for a in (0.9, 0.3))
    >>> row = compare(bad, good, qrels=qrels, measures="RR").rows[0]
    >>> row.difference, row.wins, row.p_randomization
    (0.5, 4, 0.125)
    """
    if len(runs) < 2:
        raise ArgumentError(f"compare needs at least two runs, got {len(runs)}")
    if baseline is not None and not 0 <= baseline < len(runs):
        raise ArgumentError(f"baseline must be None or between 0 and {len(runs) - 1}, got {baseline}")
    asked = [measures] if isinstance(measures, (str, Measure)) else None if measures is None else list(measures)
    if any(isinstance(run, (Lists, Evaluation)) for run in runs) and qrels is not None:
        raise ArgumentError("qrels go with paths, dicts and frames; Lists and evaluations have their labels already")
    titles = run_names(runs) if names is None else _checked_names(names, len(runs))
    if all(isinstance(run, Evaluation) for run in runs):
        scores = align_evaluations(runs, asked, names=titles)
    elif asked is None:
        raise ArgumentError("compare needs measures, such as ['nDCG@10', 'AP']")
    elif all(isinstance(run, Lists) for run in runs):
        scores = align_lists(runs, asked, names=titles, ties=ties, empty=empty, depth=depth)
    elif qrels is None:
        raise ArgumentError("compare needs qrels, or runs that are all Lists with scores or all results of evaluate")
    else:
        scores = align_runs(
            qrels, runs, asked, names=titles, data=_data_name(qrels), ties=ties, empty=empty, missing=missing,
            judged_only=judged_only, depth=depth,
        )  # fmt: skip
    pairs = list(combinations(range(len(runs)), 2))
    if baseline is not None:
        pairs = [(baseline, other) for other in range(len(runs)) if other != baseline]
    sampling = _Sampling(confidence, resamples, seed)
    return Comparison(
        runs=titles,
        rows=_rows(scores, titles, pairs, sampling),
        by_type=_rows_by_type(scores, titles, pairs, sampling),
        queries=len(scores),
        left_out=scores.left_out,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
        scores=scores,
    )


@dataclass(frozen=True, slots=True)
class _Sampling:
    confidence: float
    resamples: int
    seed: int

    def intervals(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        return significance.bootstrap_interval_columns(
            differences, confidence=self.confidence, resamples=self.resamples, seed=self.seed
        )

    def randomization(self, differences: NDArray[np.float64]) -> NDArray[np.float64]:
        return significance.randomization_columns(differences, resamples=self.resamples, seed=self.seed)


Pairs = Sequence[tuple[int, int]]


def _rows(scores: ScoreMatrix, titles: Sequence[str], pairs: Pairs, sampling: _Sampling) -> tuple[Difference, ...]:
    # measures that count the same queries are resampled together: drawing is what takes the time
    together: dict[bytes, list[str]] = {}
    for name in scores.values:
        together.setdefault(scores.counted(name).tobytes(), []).append(name)
    parts: dict[tuple[str, int, int], dict[str, Any]] = {}
    for names in together.values():
        counted = scores.counted(names[0])
        keys = [(name, first, second) for name in names for first, second in pairs]
        if not counted.any():
            parts |= {key: _no_queries() for key in keys}
            continue
        columns = np.stack([_differences(scores, *key)[counted] for key in keys], axis=1)
        intervals, flips = sampling.intervals(columns), sampling.randomization(columns)
        for column, key in enumerate(keys):
            d = columns[:, column]
            parts[key] = _summary(scores, key, counted, d, intervals[:, column]) | {
                "effect_size": _number(significance.effect_size(d)),
                **_effect_size_ends(d, sampling.confidence),
                "p_t": significance.paired_t(d),
                "p_wilcoxon": significance.wilcoxon(d),
                "p_randomization": float(flips[column]),
            }
    ordered = [(name, first, second) for name in scores.values for first, second in pairs]
    for test in ("p_t", "p_wilcoxon", "p_randomization"):
        for key, p in zip(ordered, significance.holm([parts[key][test] for key in ordered]), strict=True):
            parts[key][f"{test}_holm"] = float(p)
    return tuple(
        Difference(measure=name, baseline=titles[first], run=titles[second], **parts[name, first, second])
        for name, first, second in ordered
    )


def _rows_by_type(
    scores: ScoreMatrix, titles: Sequence[str], pairs: Pairs, sampling: _Sampling
) -> tuple[TypeDifference, ...]:
    rows = []
    for name, types in scores.types.items():
        for kind in QUERY_TYPES:
            chosen = types == kind
            if not chosen.any():
                continue
            keys = [(name, first, second) for first, second in pairs]
            columns = np.stack([_differences(scores, *key)[chosen] for key in keys], axis=1)
            intervals = sampling.intervals(columns)
            for column, key in enumerate(keys):
                summary = _summary(scores, key, chosen, columns[:, column], intervals[:, column])
                rows.append(TypeDifference(name, titles[key[1]], titles[key[2]], kind, **summary))
    return tuple(rows)


def _differences(scores: ScoreMatrix, name: str, first: int, second: int) -> NDArray[np.float64]:
    value = scores.values[name]
    return difference(value[second], value[first])


def _summary(
    scores: ScoreMatrix,
    key: tuple[str, int, int],
    chosen: NDArray[np.bool_],
    differences: NDArray[np.float64],
    interval: NDArray[np.float64],
) -> dict[str, Any]:
    """What rows over all queries and rows by type have in common."""
    name, first, second = key
    count = significance.win_tie_loss(-differences if is_lower_better(name) else differences)
    return {
        "queries": int(chosen.sum()),
        "mean_baseline": float(scores.values[name][first][chosen].mean()),
        "mean_run": float(scores.values[name][second][chosen].mean()),
        "difference": float(differences.mean()),
        "ci_low": _number(interval[0]),
        "ci_high": _number(interval[1]),
        "wins": count.wins,
        "ties": count.ties,
        "losses": count.losses,
    }


def _effect_size_ends(differences: NDArray[np.float64], confidence: float) -> dict[str, float | None]:
    low, high = significance.effect_size_interval(differences, confidence=confidence)
    return {"effect_size_low": _number(low), "effect_size_high": _number(high)}


def _no_queries() -> dict[str, Any]:
    nothing = dict.fromkeys(("mean_baseline", "mean_run", "difference", "ci_low", "ci_high"))
    nothing |= dict.fromkeys(("effect_size", "effect_size_low", "effect_size_high"))
    return nothing | dict.fromkeys(("queries", "wins", "ties", "losses"), 0) | dict.fromkeys(_TESTS, 1.0)


_TESTS = ("p_t", "p_wilcoxon", "p_randomization")


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _data_name(qrels: Any) -> str:
    """What to call the data set: the file of the judgments, if it is one."""
    return Path(qrels).name if isinstance(qrels, (str, PathLike)) else "queries"


def _checked_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    if len(names) != count or len(set(names)) != len(names):
        raise ArgumentError(f"names must be {count} different names, got {list(names)}")
    return tuple(names)


def run_names(runs: Sequence[Any]) -> tuple[str, ...]:
    """What to call runs: files by their names, by their paths where names are not enough, others by number.

    >>> run_names(["runs/a.txt", "runs/b.txt"]), run_names(["x/run.txt", "y/run.txt"]), run_names([{}, {}])
    (('a.txt', 'b.txt'), ('x/run.txt', 'y/run.txt'), ('run 1', 'run 2'))
    """
    paths = [str(run) if isinstance(run, (str, PathLike)) else None for run in runs]
    found = [f"run {i}" if path is None else Path(path).name for i, path in enumerate(paths, start=1)]
    if len(set(found)) < len(found):  # files of one name in different folders
        found = [path or name for path, name in zip(paths, found, strict=True)]
    return tuple(name if found.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(found, start=1))


def _frame(rows: Sequence[Any], kind: type[Any]) -> pl.DataFrame:
    import polars as pl

    types = {"str": pl.String, "int": pl.Int64, "float": pl.Float64, "float | None": pl.Float64}
    schema = {field.name: types[str(field.type)] for field in fields(kind)}
    return pl.DataFrame([asdict(row) for row in rows], schema=schema)
