"""Evaluation: the values of measures for each query of a run, and what is known about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.bounding import Bounds
from rankbound.difficulty.p_values import PValues
from rankbound.difficulty.unknown.expected import LabelDraws
from rankbound.difficulty.unknown.ranges import LabelRange, range_of_mean, range_with_stand_in
from rankbound.display import pandas_frame, plain_values, plot_of, table_of
from rankbound.errors import ArgumentError
from rankbound.evaluation.group_tests import GroupMean, group_means
from rankbound.evaluation.groups import QueryGroups, read_groups
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.resampling import check_confidence
from rankbound.lists import Coverage
from rankbound.measures import Measure, parse_measure
from rankbound.protocol import EXPLICIT, Protocol
from rankbound.sums import exact_sum, mean_of

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.report.display.plot import Plot

_SIDES = ("worst", "expected", "best")
_LEAST = 0.00001  # trec_eval's floor under values of a geometric mean


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Values of measures for each query; the measures keep the names that they were requested by.

    ``values[name]`` has one number per query, NaN where the measure has no value and such queries are skipped.
    ``empty[name]`` marks the queries with nothing relevant, whatever the policy was, and ``no_choice[name]`` those
    whose candidates score the same in every order, which MM, EM, DB and UL2 are not defined for. ``bounds[name]`` has
    worst, expected and best of the candidates' rankings where they were requested, and ``complete[name]`` the value of
    the run read as a complete ranking of the candidates, which always lies between them. ``coverage`` says how far
    judgments and run cover each other, and ``remarks`` what else outputs say of how the run was evaluated: why its rows
    were shuffled, and by which references. ``p_values[name]`` has the p-values of each query against random rankings by
    the plain measures, where they were requested; `rankbound.against_random` summarizes them. ``groups`` are the user's
    groups of queries, where there are any. ``items`` and ``relevant`` are the numbers of candidates and of relevant
    candidates of each query, where bounds were requested. ``ranges[name]`` has the smallest and largest value of each
    query over the labels of unjudged documents, for ``unjudged="range"``, and ``label_draws[name]`` the values by drawn
    labels, where ``unjudged`` gives their probabilities.
    """

    query_ids: Any
    values: Mapping[str, NDArray[np.float64]]
    empty: Mapping[str, NDArray[np.bool_]]
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    remarks: Mapping[str, str] = field(default_factory=dict)
    no_choice: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    complete: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    p_values: Mapping[str, PValues] = field(default_factory=dict)
    protocol: Protocol = Protocol()  # noqa: RUF009  # immutable
    groups: QueryGroups | None = None
    items: NDArray[np.int64] | None = None
    relevant: NDArray[np.int64] | None = None
    ranges: Mapping[str, LabelRange] = field(default_factory=dict)
    label_draws: Mapping[str, LabelDraws] = field(default_factory=dict)

    @property
    def signature(self) -> dict[str, str]:
        """The signature of each measure: what determines its values, besides the data.

        >>> from rankbound import Lists, evaluate
        >>> text = evaluate(Lists([1, 0], [0, 2], [2.0, 1.0]), measures="RR", empty="zero").signature["RR"]
        >>> text.rpartition("|")[0]
        'RR|ties:average|empty:zero|cand:judged'
        """
        return {name: self.protocol.signature(parse_measure(name)) for name in self.measures}

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names."""
        return tuple(self.values)

    @property
    def policy(self) -> dict[str, str]:
        """Which candidates were used, how ties, empty and missing queries were treated, and the remarks."""
        return {**self.protocol.describe(), **self.remarks}

    @property
    def candidates(self) -> str:
        """Which documents bounds and normalized measures are about: "judged", "returned", a file, or "explicit"."""
        return self.policy["candidates"]

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
        warning = self.coverage.warning
        return () if warning is None else (warning,)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what can be done about normalized measures that have no value on any query.

        >>> from rankbound import evaluate
        >>> evaluate({"q": {"a": 1}}, {"q": {"x": 2.0, "a": 1.0}}, "EM(RR)").notes[0].partition(":")[0]
        'EM(RR) has no value on any query, because all candidates of a query have the same label'
        """
        without = [name for name, marks in self.no_choice.items() if self._has_no_value(name, marks)]
        if not without or self.candidates != "judged":
            return ()
        return (
            f"{', '.join(without)} {'has' if len(without) == 1 else 'have'} no value on any query, because all "
            "candidates of a query have the same label: where only relevant documents are judged, name more "
            "candidates, such as the documents that a run returned (candidates=RUN and judged_outside='add', or "
            "--candidates RUN --judged-outside add)",
        )

    def _has_no_value(self, name: str, no_choice: NDArray[np.bool_]) -> bool:
        is_bounded = parse_measure(name).bounding != "none"
        return is_bounded and bool(no_choice.any() and (no_choice | self.empty[name]).all())

    @property
    def queries(self) -> int:
        """Queries that were evaluated, empty ones included."""
        return len(self.query_ids)

    @property
    def empty_queries(self) -> int:
        """Queries that are empty for at least one of the measures."""
        return _count_marked(self.empty)

    @property
    def no_choice_queries(self) -> int:
        """Queries whose candidates score the same in every order for at least one measure whose bounds are known."""
        return _count_marked(self.no_choice)

    def counted_queries(self) -> dict[str, int]:
        """Queries that each mean is over."""
        return {name: int((~np.isnan(values)).sum()) for name, values in self.values.items()}

    def mean(self) -> dict[str, float]:
        """Mean of each measure over the queries that count; NaN only where no query counts.

        Some measures are aggregated as trec_eval does: counts such as NumRet are summed, and
        ``AP(mean='geometric')`` is the geometric mean of max(AP, 0.00001).
        """
        return dict(self._means)

    def __getitem__(self, measure: str) -> float:
        """The mean of one measure.

        >>> from rankbound import evaluate
        >>> evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 1, "b": 2}}, ["AP", "RR"])["RR"]
        0.5
        """
        if measure not in self.values:
            raise KeyError(f"{measure!r} is not among the measures, which are {', '.join(self.measures)}")
        return self._means[measure]

    @cached_property
    def _means(self) -> dict[str, float]:
        return {name: _aggregate(name, values[~np.isnan(values)]) for name, values in self.values.items()}

    def with_groups(self, groups: Any) -> Evaluation:
        """The evaluation with groups of queries: ``{query: group}``, or a table with ``qid`` and their attributes."""
        known = read_groups(groups)
        list(known.masks(self.query_ids))  # ids that do not match are reported now
        return replace(self, groups=known)

    @cached_property
    def by_group(self) -> tuple[GroupMean, ...]:
        """The mean of each measure by group with intervals and tests, the lowest first; empty without groups.

        >>> from rankbound import evaluate
        >>> labels = {f"q{i}": {"a": 1, "b": 0} for i in range(10)}
        >>> run = {f"q{i}": {"a": 0.5, "b": 0.9 if i > 5 else 0.1} for i in range(10)}
        >>> result = evaluate(labels, run, "RR", groups={f"q{i}": "new" if i > 4 else "old" for i in range(10)})
        >>> [(row.group, row.queries, row.mean) for row in result.by_group]
        [('new', 5, 0.6), ('old', 5, 1.0)]
        """
        return () if self.groups is None else group_means(self.values, self.query_ids, self.groups, Inference())

    def mean_bounds(self) -> dict[str, dict[str, float]]:
        """Worst, expected, best and the value as a complete ranking, in the mean over the queries that count."""
        means = {}
        for name, bounds in self.bounds.items():
            counted = ~np.isnan(self.values[name])
            means[name] = {side: mean_of(getattr(bounds, side)[counted]) for side in _SIDES}
            if name in self.complete:
                means[name]["complete"] = mean_of(self.complete[name][counted])
        return means

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
        from rankbound.evaluation.inference import Inference, warn

        policy = Inference(confidence=confidence, interval=method, resamples=resamples, seed=seed)
        counted = {name: self.values[name] for name in self.values if _how_to_aggregate(name) == "mean"}
        counted = {name: values[~np.isnan(values)] for name, values in counted.items()}
        intervals = {name: policy.interval_of(values) for name, values in counted.items()}
        warn(policy.notes({name: len(values) for name, values in counted.items()}))
        return intervals

    def range(self, confidence: float = 0.95) -> dict[str, tuple[float, float]]:
        """What the unjudged documents leave open of each mean: (low, high).

        With ``unjudged="range"`` these are its smallest and largest value over all labels of unjudged documents. With
        probabilities they are the interval that holds it with this confidence, by the draws of labels; unlike
        `interval`, it says nothing about other queries. ArgumentError for evaluations without either.

        >>> from rankbound import evaluate
        >>> qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"x": 3.0, "a": 2.0, "b": 1.0}}  # x has no judgment
        >>> result = evaluate(qrels, run, ["RR", "P@2"], unjudged="range")
        >>> result.mean(), result.range()
        ({'RR': 0.5, 'P@2': 0.5}, {'RR': (0.5, 1.0), 'P@2': (0.5, 1.0)})
        """
        check_confidence(confidence)
        if not self.ranges and not self.label_draws:
            raise ArgumentError("a range needs evaluate(..., unjudged='range') or probabilities of relevance")
        found = {name: range_of_aggregate(name, ends, self.protocol.empty) for name, ends in self.ranges.items()}
        return found | {name: draws.interval_of_mean(confidence) for name, draws in self.label_draws.items()}

    def mean_with_range(self) -> dict[str, float]:
        """The means, and where unjudged documents leave them open ``MEASURE low`` and ``MEASURE high``."""
        result = self.mean()
        for name, (low, high) in (self.range() if self.ranges or self.label_draws else {}).items():
            result |= {f"{name} low": low, f"{name} high": high}
        return result

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
        for name, ends in self.ranges.items():
            columns[f"{name} low"] = pl.Series(ends.low, nan_to_null=True)
            columns[f"{name} high"] = pl.Series(ends.high, nan_to_null=True)
        for name, p in self.p_values.items():
            columns[f"{name} p better"], columns[f"{name} p worse"] = pl.Series(p.better), pl.Series(p.worse)
        return pl.DataFrame(columns)

    def to_pandas(self) -> Any:
        """`per_query` as a pandas frame; NaN where a query is skipped."""
        return pandas_frame(self.per_query)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, ready for JSON; None in place of NaN."""
        content: dict[str, Any] = {
            "mean": self.mean(),
            "queries": self.queries,
            "empty_queries": self.empty_queries,
            "no_choice_queries": self.no_choice_queries,
            "counted_queries": self.counted_queries(),
            "missing_queries": self.missing_queries,
            "unjudged_queries": self.unjudged_queries,
            "coverage": self.coverage.to_dict(),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            **self.policy,
            "signature": self.signature,
        }
        content |= {"bounds": self.mean_bounds()} if self.bounds else {}
        content |= {"by_group": [asdict(row) for row in self.by_group]} if self.groups is not None else {}
        if self.ranges or self.label_draws:
            content |= {
                "unjudged": _unjudged_text(self.protocol),
                "range": {n: list(e) for n, e in self.range().items()},
            }
        if self.label_draws:
            content |= {"draw_error": {name: draws.error_of_mean for name, draws in self.label_draws.items()}}
        return plain_values(content)  # type: ignore[no-any-return]

    def to_markdown(self) -> str:
        """Measures, means and numbers of queries as a Markdown table."""
        return table_of(self, complete=True).to_markdown()

    def to_latex(self) -> str:
        """Measures, means and numbers of queries as a LaTeX table for the package booktabs."""
        return table_of(self, complete=True).to_latex()

    def plot(self, measure: str | Measure | None = None) -> Plot:
        """Plot the values of the queries, for notebooks and files; needs the extra ``report``.

        Without a measure there is a histogram of each. With the name of a measure the plot is about its queries: a
        histogram or, if the evaluation has ``bounds``, a point for each query, its value against the expected value of
        a random ranking. DataError if there is no value, ArgumentError for a measure that was not evaluated.

        >>> from rankbound import Lists, evaluate
        >>> evaluate(Lists([1, 0, 1, 0], [0, 2, 4], [2.0, 1.0, 1.0, 2.0]), measures=["RR", "AP"]).plot()
        Plot('Evaluation of 2 queries')
        """
        return plot_of(self, measure=measure)

    def _repr_html_(self) -> str:
        return table_of(self).to_html()

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={mean:.4f}" for name, mean in self.mean().items())
        return f"Evaluation({means}; queries={self.queries}, empty={self.empty_queries})"


def _unjudged_text(protocol: Protocol) -> str:
    """How unjudged documents were treated, as signatures say it."""
    given = protocol.unjudged
    return str(given) if isinstance(given, (str, float, int)) else str(getattr(given, "name", EXPLICIT))


def range_of_aggregate(name: str, ends: LabelRange, empty: str) -> tuple[float, float]:
    """The range of a measure's mean over queries, or of what it has in place of the mean."""
    if _how_to_aggregate(name) == "mean":
        return range_of_mean(ends, empty)
    filled = range_with_stand_in(ends, empty)
    low, high = (_aggregate(name, end[~np.isnan(end)]) for end in (filled.low, filled.high))
    return low, high


def _count_marked(marks: Mapping[str, NDArray[np.bool_]]) -> int:
    """Queries that at least one of the measures marks."""
    return int(np.any([*marks.values()], axis=0).sum()) if marks else 0


def _how_to_aggregate(name: str) -> str:
    """How the values of a measure are put together over queries: "mean", "sum" or "geometric"."""
    measure = parse_measure(name)
    return measure.definition.aggregate(measure) if measure.bounding == "none" else "mean"


def _aggregate(name: str, values: NDArray[np.float64]) -> float:
    how = _how_to_aggregate(name)
    if how == "sum":
        return float(exact_sum(values))
    if how == "geometric":
        return float(np.exp(mean_of(np.log(np.maximum(values, _LEAST)))))
    return mean_of(values)


class Evaluations(dict[str, Evaluation]):
    """The results of several runs, by the name of the run: the dict that `evaluate` returns for ``{name: run}``."""

    def mean(self) -> dict[str, dict[str, float]]:
        """The means of each run, see `Evaluation.mean`."""
        return {run: result.mean() for run, result in self.items()}

    def with_groups(self, groups: Any) -> Evaluations:
        """The evaluations with groups of queries, see `Evaluation.with_groups`."""
        return Evaluations({run: result.with_groups(groups) for run, result in self.items()})

    def table(self) -> pl.DataFrame:
        """One row per run: its name in the column ``run``, and the mean of each measure in a column of its own.

        Where unjudged documents leave means open there are the columns ``MEASURE low`` and ``MEASURE high``, too.

        >>> from rankbound import evaluate
        >>> qrels = {"q": {"a": 1, "b": 0}}
        >>> evaluate(qrels, {"good": qrels, "bad": {"q": {"a": 1, "b": 2}}}, ["RR", "EM(RR)"]).table().rows()
        [('good', 1.0, 1.0), ('bad', 0.5, -1.0)]
        """
        import polars as pl

        rows = [{"run": run, **result.mean_with_range()} for run, result in self.items()]
        measures = [name for row in rows for name in row if name != "run"]
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
        return pandas_frame(self.per_query)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """`Evaluation.to_dict` of each run, ready for JSON."""
        return {run: result.to_dict() for run, result in self.items()}

    def to_markdown(self) -> str:
        """A row per run and a column per measure as a Markdown table."""
        return table_of(self, complete=True).to_markdown()

    def to_latex(self) -> str:
        """A row per run and a column per measure as a LaTeX table for the package booktabs."""
        return table_of(self, complete=True).to_latex()

    def plot(self, measure: str | Measure | None = None) -> Plot:
        """Plot the means of all runs with their 95 % intervals; with the name of a measure, its values by run."""
        return plot_of(self, measure=measure)

    def _repr_html_(self) -> str:
        return table_of(self).to_html()


def merge_evaluations(results: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of the queries of several, which may have none, with the sum of their coverages."""
    if len(results) == 1:
        return results[0]
    coverage = sum((result.coverage for result in results), Coverage())
    found = [result for result in results if result.queries]
    if not found:
        return Evaluation([], {}, {}, coverage=coverage)
    return replace(found[0] if len(found) == 1 else _join_arrays(found, np.concatenate), coverage=coverage)


def reorder_queries(result: Evaluation, queries: NDArray[np.int64]) -> Evaluation:
    """The evaluation with its queries in another order, given by their indices."""
    return _join_arrays([result], lambda arrays: np.asarray(arrays[0])[queries])


def _join_arrays(results: Sequence[Evaluation], join: Callable[[list[Any]], NDArray[Any]]) -> Evaluation:
    """The first evaluation, with every array joined with those of the others."""
    first = results[0]
    arrays: dict[str, Any] = {
        kind: {name: join([getattr(result, kind)[name] for result in results]) for name in getattr(first, kind)}
        for kind in ("values", "empty", "no_choice", "complete")
    }
    for kind in ("bounds", "p_values", "ranges", "label_draws"):
        arrays[kind] = {
            name: replace(
                one,
                **{
                    part.name: join([getattr(getattr(result, kind)[name], part.name) for result in results])
                    for part in fields(one)
                    if getattr(one, part.name) is not None  # a function for the variance
                },
            )
            for name, one in getattr(first, kind).items()
        }
    return replace(first, query_ids=join([result.query_ids for result in results]), **arrays)
