"""EvaluationSummary: what is known about the queries of an evaluation without the values of each query.

Summaries of different queries can be added. All of their parts are integers, exact sums, minima, maxima and sorted
values, so that the sum is the same to the last bit however the queries are divided and in whatever order they come.
The size of a summary does not grow with the number of queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import is_between
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Coverage
from rankbound.measures import parse_measure
from rankbound.parallel import ExactSum, Moments

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.evaluation.result import Evaluation

__all__ = [
    "LARGE",
    "EvaluationSummary",
    "MeasureSummary",
    "Sketch",
    "WithCoverage",
    "aggregation",
    "coverage_warnings",
    "summarize",
]

LARGE = 5_000  # queries from which on the bootstrap gives Student's interval, only slower, and values are not kept
_LEAST = 0.00001  # trec_eval's floor under values of a geometric mean
_DROPPED = 52 - 10  # bits of a value that the sketch does not keep: its bins are 2^-10 of a value wide


def aggregation(name: str) -> str:
    """How the values of a measure are put together over queries: "mean", "sum" or "geometric"."""
    measure = parse_measure(name)
    return measure.definition.aggregate(measure) if measure.bounding == "none" else "mean"


def coverage_warnings(coverage: Coverage) -> tuple[str, ...]:
    """Sentences on what makes the values doubtful: a run without any judged document, labels taken as equal."""
    return () if coverage.warning is None else (coverage.warning,)


@dataclass(frozen=True, eq=False)
class Sketch:
    """Quantiles of any number of values: the values themselves below `LARGE`, and above a histogram of leading bits.

    A bin holds the values that agree in sign, exponent and the first 10 bits of the fraction.

    >>> sketch = Sketch.of(np.array([0.5, 0.25])) + Sketch.of(np.array([1.0]))
    >>> sketch.quantile(0.5), sketch.values.tolist()
    (0.5, [0.25, 0.5, 1.0])
    """

    count: int = 0
    values: NDArray[np.float64] | None = None
    """All values in ascending order; None from `LARGE` values on."""
    bins: NDArray[np.int64] | None = None
    counts: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Sketch:
        """The sketch of an array."""
        if len(values) < LARGE:
            return cls(len(values), np.sort(values))
        bins, counts = np.unique(_bin(values), return_counts=True)
        return cls(len(values), None, bins, counts)

    def __add__(self, other: Sketch) -> Sketch:
        if self.count == 0 or other.count == 0:
            return other if self.count == 0 else self
        count = self.count + other.count
        if count < LARGE:
            assert self.values is not None
            assert other.values is not None
            return Sketch(count, np.sort(np.concatenate((self.values, other.values))))
        both = [sketch._histogram() for sketch in (self, other)]
        bins, index = np.unique(np.concatenate([bins for bins, _ in both]), return_inverse=True)
        counts = np.bincount(index, weights=np.concatenate([counts for _, counts in both]))
        return Sketch(count, None, bins, counts.astype(np.int64))

    def _histogram(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self.bins is None or self.counts is None:
            assert self.values is not None
            bins, counts = np.unique(_bin(self.values), return_counts=True)
            return bins, counts.astype(np.int64)
        return self.bins, self.counts

    def quantile(self, level: float) -> float:
        """The smallest value that at least this fraction of the values does not exceed; NaN without values.

        From `LARGE` values on, it is accurate to 2^-10 of its size.
        """
        if self.count == 0:
            return float("nan")
        rank = max(1, int(np.ceil(level * self.count)))
        if self.values is not None:
            return float(self.values[rank - 1])
        bins, counts = self._histogram()
        return _end(int(bins[np.searchsorted(np.cumsum(counts), rank)]))


def _bin(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of the values, of their leading bits."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    ordered = np.where(bits < 0, -(bits & np.int64(2**63 - 1)), bits)
    return np.asarray(ordered >> _DROPPED)


def _end(number: int) -> float:
    """The number that a bin begins with: its value with the smallest size, or the largest if values are negative."""
    size = float(np.array(abs(number) << _DROPPED, dtype=np.int64).view(np.float64))
    return -size if number < 0 else size


@dataclass(frozen=True, eq=False)
class MeasureSummary:
    """The values of one measure over the queries that count."""

    moments: Moments = Moments()  # noqa: RUF009  # immutable
    logarithms: ExactSum = ExactSum()  # noqa: RUF009
    """Sum of the logarithms, for a geometric mean."""
    sketch: Sketch = field(default_factory=Sketch)
    bounds: Mapping[str, ExactSum] = field(default_factory=dict)
    """Sums of worst, expected, best and complete over the same queries, where they were requested."""

    def __add__(self, other: MeasureSummary) -> MeasureSummary:
        sides = dict.fromkeys((*self.bounds, *other.bounds))
        zero = ExactSum()
        return MeasureSummary(
            self.moments + other.moments,
            self.logarithms + other.logarithms,
            self.sketch + other.sketch,
            {side: self.bounds.get(side, zero) + other.bounds.get(side, zero) for side in sides},
        )


class WithCoverage:
    """What results say of the policy and the coverage that they were computed with."""

    policy: Mapping[str, str]
    coverage: Coverage

    @property
    def candidates(self) -> str:
        """Which documents bounds and normalized measures are about: "judged", "returned", a file, or "explicit"."""
        return self.policy.get("candidates", "judged")

    @property
    def missing_queries(self) -> int:
        """Queries that are judged but not in the run."""
        return self.coverage.missing_queries

    @property
    def unjudged_queries(self) -> int:
        """Queries that are in the run but not judged."""
        return self.coverage.unjudged_queries

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on what makes the values doubtful: a run without any judged document, labels taken as equal."""
        return coverage_warnings(self.coverage)


@dataclass(frozen=True, eq=False)
class EvaluationSummary(WithCoverage):
    """Means, intervals, quantiles and counts of an evaluation, without the values of each query.

    `rankbound.evaluate` returns it for tables in several parts. Its methods are those of `rankbound.Evaluation`, with
    the same results to the last bit. ``per_query_path`` is the file of the values of each query, if it was requested.

    >>> from rankbound import Lists, evaluate
    >>> halves = [evaluate(Lists([1, 0], [0, 2], [[2.0, 1.0], [1.0, 2.0]][i]), measures="RR").summary for i in (0, 1)]
    >>> sum(halves, EvaluationSummary())
    EvaluationSummary(RR=0.7500; queries=2, empty=0)
    """

    by_measure: Mapping[str, MeasureSummary] = field(default_factory=dict)
    queries: int = 0
    """Queries that were evaluated, empty ones included."""
    empty_queries: int = 0
    """Queries that are empty for at least one of the measures."""
    no_choice_queries: int = 0
    """Queries whose candidates score the same in every order for at least one measure whose bounds are known."""
    coverage: Coverage = field(default_factory=Coverage)
    policy: Mapping[str, str] = field(default_factory=dict)
    per_query_path: str | None = None

    def __add__(self, other: EvaluationSummary) -> EvaluationSummary:
        names = dict.fromkeys((*self.by_measure, *other.by_measure))
        nothing = MeasureSummary()
        return EvaluationSummary(
            {name: self.by_measure.get(name, nothing) + other.by_measure.get(name, nothing) for name in names},
            self.queries + other.queries,
            self.empty_queries + other.empty_queries,
            self.no_choice_queries + other.no_choice_queries,
            self.coverage + other.coverage,
            self.policy or other.policy,
            self.per_query_path or other.per_query_path,
        )

    @staticmethod
    def merged(summaries: Iterable[EvaluationSummary]) -> EvaluationSummary:
        """The sum of summaries of different queries."""
        return reduce(add, summaries, EvaluationSummary())

    def with_policy(self, policy: Mapping[str, str]) -> EvaluationSummary:
        """The same summary with a description of how ties, empty and missing queries were treated."""
        return replace(self, policy=policy)

    def to_json(self) -> str:
        """The whole state as JSON, from which `from_json` restores it to the last bit."""
        return json.dumps(
            {
                "by_measure": {name: _measure_state(summary) for name, summary in self.by_measure.items()},
                "queries": self.queries,
                "empty_queries": self.empty_queries,
                "no_choice_queries": self.no_choice_queries,
                "coverage": asdict(self.coverage),
                "policy": dict(self.policy),
                "per_query_path": self.per_query_path,
            },
            default=str,
        )

    @classmethod
    def from_json(cls, text: str) -> EvaluationSummary:
        """Restore a summary from the text of `to_json`.

        >>> from rankbound import Lists, evaluate
        >>> summary = evaluate(Lists([1, 0], [0, 2], [1.0, 2.0]), measures="RR").summary
        >>> EvaluationSummary.from_json(summary.to_json()) + summary
        EvaluationSummary(RR=0.5000; queries=2, empty=0)
        """
        state = json.loads(text)
        coverage = state["coverage"]
        for name in ("sum_of_fractions", "sum_at_cutoff"):
            coverage[name] = ExactSum(**coverage[name])
        for name in ("merging_measures", "first_ids"):
            coverage[name] = None if coverage[name] is None else tuple(coverage[name])
        state["coverage"] = Coverage(**coverage)
        state["by_measure"] = {name: _restored(of) for name, of in state["by_measure"].items()}
        return cls(**state)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names."""
        return tuple(self.by_measure)

    @property
    def bounds(self) -> dict[str, dict[str, float]]:
        """`mean_bounds`, empty if no bounds were requested."""
        return self.mean_bounds()

    @property
    def p_values(self) -> dict[str, Any]:
        """Always empty: p-values of queries are not summarized."""
        return {}

    def counted_queries(self) -> dict[str, int]:
        """Queries that each mean is over."""
        return {name: summary.moments.count for name, summary in self.by_measure.items()}

    def mean(self) -> dict[str, float]:
        """Mean of each measure over the queries that count; see `rankbound.Evaluation.mean`."""
        return {name: _aggregated(name, summary) for name, summary in self.by_measure.items()}

    def mean_bounds(self) -> dict[str, dict[str, float]]:
        """Worst, expected, best and the value as a complete ranking, in the mean over the queries that count."""
        return {
            name: {side: total.over(summary.moments.count) for side, total in summary.bounds.items()}
            for name, summary in self.by_measure.items()
            if summary.bounds
        }

    def quantile(self, level: float) -> dict[str, float]:
        """The quantile of each measure over the queries that count, at a level between 0 and 1.

        It is exact below 5,000 queries, and above accurate to 2^-10 of its size.
        """
        if not is_between(level, 0, 1) and level not in (0, 1):
            raise ArgumentError(f"level must lie between 0 and 1, got {level!r}")
        return {name: summary.sketch.quantile(level) for name, summary in self.by_measure.items()}

    def interval(
        self, confidence: float = 0.95, *, method: str = "bca", resamples: int = 10_000, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Confidence interval of each mean over the queries that count; see `rankbound.Evaluation.interval`."""
        from rankbound.analysis.inference import Inference, warn

        policy = Inference(confidence=confidence, interval=method, resamples=resamples, seed=seed)
        chosen = {name: summary for name, summary in self.by_measure.items() if aggregation(name) == "mean"}
        intervals = {
            name: policy.interval_of(summary.moments, summary.sketch.values) for name, summary in chosen.items()
        }
        warn(policy.notes({name: summary.moments.count for name, summary in chosen.items()}))
        return intervals

    @property
    def per_query(self) -> pl.DataFrame:
        """The values of each query, read from ``per_query_path``; DataError if they were not written."""
        if self.per_query_path is None:
            raise DataError("the values of each query were not kept; pass per_query=PATH to evaluate")
        from rankbound.data.frames import read_frame

        return read_frame(self.per_query_path)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, ready for JSON; None in place of NaN."""
        from rankbound.report.display.conversion import plain_values

        summary: dict[str, Any] = {
            "mean": self.mean(),
            "queries": self.queries,
            "empty_queries": self.empty_queries,
            "no_choice_queries": self.no_choice_queries,
            "counted_queries": self.counted_queries(),
            "missing_queries": self.missing_queries,
            "unjudged_queries": self.unjudged_queries,
            "coverage": self.coverage.to_dict(),
            "warnings": list(self.warnings),
            **self.policy,
        }
        means = self.mean_bounds()
        summary |= {"bounds": means} if means else {}
        return plain_values(summary)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={mean:.4f}" for name, mean in self.mean().items())
        return f"EvaluationSummary({means}; queries={self.queries}, empty={self.empty_queries})"


def _measure_state(summary: MeasureSummary) -> dict[str, Any]:
    sketch = {name: None if array is None else array.tolist() for name, array in vars(summary.sketch).items()
              if name != "count"}  # fmt: skip
    return {
        "moments": asdict(summary.moments),
        "logarithms": asdict(summary.logarithms),
        "sketch": {"count": summary.sketch.count, **sketch},
        "bounds": {side: asdict(total) for side, total in summary.bounds.items()},
    }


def _restored(state: Mapping[str, Any]) -> MeasureSummary:
    moments, sketch = dict(state["moments"]), state["sketch"]
    moments["sum"] = ExactSum(**moments["sum"])
    kinds = {"values": np.float64, "bins": np.int64, "counts": np.int64}
    arrays: dict[str, Any] = {
        name: None if sketch[name] is None else np.array(sketch[name], kind) for name, kind in kinds.items()
    }
    return MeasureSummary(
        Moments(**moments),
        ExactSum(**state["logarithms"]),
        Sketch(sketch["count"], **arrays),
        {side: ExactSum(**total) for side, total in state["bounds"].items()},
    )


def summarize(result: Evaluation) -> EvaluationSummary:
    """Summarize the values of an evaluation: a pure function of a partition of whole queries."""
    by_measure = {}
    for name, values in result.values.items():
        counted = ~np.isnan(values)
        kept = values if counted.all() else values[counted]
        sides = {}
        if name in result.bounds:
            columns = {side: getattr(result.bounds[name], side) for side in ("worst", "expected", "best")}
            if name in result.complete:
                columns["complete"] = result.complete[name]
            sides = {side: ExactSum.of(array[counted]) for side, array in columns.items()}
        is_geometric = aggregation(name) == "geometric"
        by_measure[name] = MeasureSummary(
            Moments.of(kept),
            ExactSum.of(np.log(np.maximum(kept, _LEAST))) if is_geometric else ExactSum(),
            Sketch.of(kept),
            sides,
        )
    return EvaluationSummary(
        by_measure,
        len(result.query_ids),
        _any_of(result.empty),
        _any_of(result.no_choice),
        result.coverage,
        result.policy,
    )


def _any_of(marks: Mapping[str, NDArray[np.bool_]]) -> int:
    """Queries that at least one of the measures marks."""
    return int(np.any([*marks.values()], axis=0).sum()) if marks else 0


def _aggregated(name: str, summary: MeasureSummary) -> float:
    how = aggregation(name)
    if how == "sum":
        return float(summary.moments.sum)
    if how == "geometric":
        return float(np.exp(summary.logarithms.over(summary.moments.count)))
    return summary.moments.mean
