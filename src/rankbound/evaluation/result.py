"""Evaluation: the values of measures for each query of a run, and what is known about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.bounding import Bounds
from rankbound.difficulty.p_values import PValues
from rankbound.evaluation.summary import EvaluationSummary, WithCoverage, summarize
from rankbound.lists import Coverage
from rankbound.measures import Measure

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.report.display.plot import Plot

__all__ = ["Evaluation", "Evaluations", "concatenated", "in_order"]

_SIDES = ("worst", "expected", "best")


@dataclass(frozen=True, eq=False)
class Evaluation(WithCoverage):
    """Values of measures for each query; the measures keep the names that they were requested by.

    ``values[name]`` has one number per query, NaN where the measure has no value and such queries are skipped.
    ``empty[name]`` marks the queries with nothing relevant, whatever the policy was, and ``no_choice[name]`` those
    whose candidates score the same in every order, which MM, EM, DB and UL2 are not defined for. ``bounds[name]`` has
    worst, expected and best of the candidates' rankings where they were requested, and ``complete[name]`` the value of
    the run read as a complete ranking of the candidates, which always lies between them. ``coverage`` says how
    far judgments and run cover each other, and ``policy`` which candidates were used and how ties, empty and missing
    queries were treated. ``p_values[name]`` has the p-values of each query against random rankings by the plain
    measures, where they were requested; `rankbound.against_random` summarizes them.
    """

    query_ids: Any
    values: Mapping[str, NDArray[np.float64]]
    empty: Mapping[str, NDArray[np.bool_]]
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    policy: Mapping[str, str] = field(default_factory=dict)
    no_choice: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    complete: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    p_values: Mapping[str, PValues] = field(default_factory=dict)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names."""
        return tuple(self.values)

    @cached_property
    def summary(self) -> EvaluationSummary:
        """Means, intervals, quantiles and counts without the values of each query, which can be added to others."""
        return summarize(self)

    @property
    def queries(self) -> int:
        """Queries that were evaluated, empty ones included."""
        return len(self.query_ids)

    @property
    def empty_queries(self) -> int:
        """Queries that are empty for at least one of the measures."""
        return self.summary.empty_queries

    @property
    def no_choice_queries(self) -> int:
        """Queries whose candidates score the same in every order for at least one measure whose bounds are known."""
        return self.summary.no_choice_queries

    def counted_queries(self) -> dict[str, int]:
        """Queries that each mean is over."""
        return self.summary.counted_queries()

    def mean(self) -> dict[str, float]:
        """Mean of each measure over the queries that count; NaN only where no query counts.

        Some measures are aggregated as trec_eval does: counts such as NumRet are summed, and
        ``AP(mean='geometric')`` is the geometric mean of max(AP, 0.00001).
        """
        return self.summary.mean()

    def mean_bounds(self) -> dict[str, dict[str, float]]:
        """Worst, expected, best and the value as a complete ranking, in the mean over the queries that count."""
        return self.summary.mean_bounds()

    def interval(
        self, confidence: float = 0.95, *, method: str = "bca", resamples: int = 10_000, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Confidence interval of each mean over the queries that count: (low, high), by the policy of `compare`.

        ``method`` is "bca" (bias-corrected and accelerated bootstrap), "percentile" (bootstrap) or "t" (Student's); see
        `rankbound.Inference`. (NaN, NaN) with fewer than two queries; fewer than 10 raise an `InferenceWarning`.

        >>> from rankbound import evaluate
        >>> labels = {f"q{i}": {"a": 1, "b": 0} for i in range(20)}
        >>> run = {f"q{i}": {"a": 0.5, "b": 0.9 if i % 2 else 0.1} for i in range(20)}
        >>> low, high = evaluate(labels, run, "RR").interval(method="t")["RR"]
        >>> round(low, 4), round(high, 4)  # 0.75 -+ 2.093 * 0.2565 / sqrt(20)
        (0.63, 0.87)
        """
        return self.summary.interval(confidence, method=method, resamples=resamples, seed=seed)

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per query: qid, a column per measure (null where skipped), and the bounds if there are any.

        With bounds there is also the value of the run read as a complete ranking of the candidates: "AP complete".
        """
        import polars as pl

        columns = {"qid": pl.Series(self.query_ids)}
        for name, value in self.values.items():
            columns[name] = pl.Series(value, nan_to_null=True)
        for name, bounds in self.bounds.items():
            for side in _SIDES:
                columns[f"{name} {side}"] = pl.Series(getattr(bounds, side))
            if name in self.complete:
                columns[f"{name} complete"] = pl.Series(self.complete[name])
        for name, p in self.p_values.items():
            columns[f"{name} p better"], columns[f"{name} p worse"] = pl.Series(p.better), pl.Series(p.worse)
        return pl.DataFrame(columns)

    def to_pandas(self) -> Any:
        """`per_query` as a pandas frame; NaN where a query is skipped."""
        from rankbound.report.display.conversion import pandas_frame

        return pandas_frame(self.per_query)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, ready for JSON; None in place of NaN."""
        return self.summary.to_dict()

    def plot(self, measure: str | Measure | None = None) -> Plot:
        """Plot the values of the queries, for notebooks and files; needs the extra ``report``.

        Without a measure there is a histogram of each. With the name of a measure the plot is about its queries: a
        histogram or, if the evaluation has ``bounds``, a point for each query, its value against the expected value of
        a random ranking. DataError if there is no value, ArgumentError for a measure that was not evaluated.

        >>> from rankbound import Lists, evaluate
        >>> evaluate(Lists([1, 0, 1, 0], [0, 2, 4], [2.0, 1.0, 1.0, 2.0]), measures=["RR", "AP"]).plot()
        Plot('Evaluation of 2 queries')
        """
        from rankbound.report.display.plots import plot_evaluation

        return plot_evaluation(self, measure)

    def _repr_html_(self) -> str:
        from rankbound.report.display.tables import evaluation_table

        return evaluation_table(self)

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={mean:.4f}" for name, mean in self.mean().items())
        return f"Evaluation({means}; queries={self.queries}, empty={self.empty_queries})"


class Evaluations(dict[str, Evaluation]):
    """The results of several runs, by the name of the run: the dict that `evaluate` returns for ``{name: run}``."""

    def mean(self) -> dict[str, dict[str, float]]:
        """The means of each run, see `Evaluation.mean`."""
        return {run: result.mean() for run, result in self.items()}

    def table(self) -> pl.DataFrame:
        """One row per run: its name in the column ``run``, and the mean of each measure in a column of its own.

        >>> from rankbound import evaluate
        >>> qrels = {"q": {"a": 1, "b": 0}}
        >>> evaluate(qrels, {"good": qrels, "bad": {"q": {"a": 1, "b": 2}}}, ["RR", "EM(RR)"]).table().rows()
        [('good', 1.0, 1.0), ('bad', 0.5, -1.0)]
        """
        import polars as pl

        rows = [{"run": run, **means} for run, means in self.mean().items()]
        measures = [name for result in self.values() for name in result.measures]
        return pl.DataFrame(rows, schema={"run": pl.String, **dict.fromkeys(measures, pl.Float64)})

    def long(self) -> pl.DataFrame:
        """One row per run, query and measure: run, qid, measure, value, which is null where the query is skipped."""
        measures = list(dict.fromkeys(name for result in self.values() for name in result.measures))
        names = {"variable_name": "measure", "value_name": "value"}
        return self.per_query.unpivot(on=measures, index=["run", "qid"], **names)

    @property
    def per_query(self) -> pl.DataFrame:
        """`Evaluation.per_query` of all runs, with the name of the run in the first column."""
        import polars as pl

        parts = [
            result.per_query.select(pl.lit(run, dtype=pl.String).alias("run"), pl.all()) for run, result in self.items()
        ]
        return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()

    def to_pandas(self) -> Any:
        """`per_query` as a pandas frame."""
        from rankbound.report.display.conversion import pandas_frame

        return pandas_frame(self.per_query)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """`Evaluation.to_dict` of each run, ready for JSON."""
        return {run: result.to_dict() for run, result in self.items()}

    def plot(self, measure: str | Measure | None = None) -> Plot:
        """Plot the means of all runs with their 95 % intervals; with the name of a measure, its values by run."""
        from rankbound.report.display.plots import plot_evaluations

        return plot_evaluations(self, measure)

    def _repr_html_(self) -> str:
        from rankbound.report.display.tables import evaluations_table

        return evaluations_table(self)


def concatenated(results: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of the queries of several."""
    if len(results) == 1:
        return results[0]
    first = results[0]
    return Evaluation(
        np.concatenate([result.query_ids for result in results]),
        {name: np.concatenate([result.values[name] for result in results]) for name in first.values},
        {name: np.concatenate([result.empty[name] for result in results]) for name in first.empty},
        {
            name: Bounds(*(np.concatenate([getattr(result.bounds[name], side) for result in results])
                           for side in _SIDES))
            for name in first.bounds
        },
        no_choice={name: np.concatenate([result.no_choice[name] for result in results]) for name in first.no_choice},
        complete={name: np.concatenate([result.complete[name] for result in results]) for name in first.complete},
        p_values={name: PValues.concatenated([result.p_values[name] for result in results]) for name in first.p_values},
    )  # fmt: skip


def in_order(result: Evaluation, queries: NDArray[np.int64]) -> Evaluation:
    """The evaluation with its queries in another order, given by their indices."""
    return replace(
        result,
        query_ids=np.asarray(result.query_ids)[queries],
        values={name: values[queries] for name, values in result.values.items()},
        empty={name: marks[queries] for name, marks in result.empty.items()},
        bounds={
            name: Bounds(*(getattr(bounds, side)[queries] for side in _SIDES)) for name, bounds in result.bounds.items()
        },
        no_choice={name: marks[queries] for name, marks in result.no_choice.items()},
        complete={name: values[queries] for name, values in result.complete.items()},
        p_values={name: p.take(queries) for name, p in result.p_values.items()},
    )
