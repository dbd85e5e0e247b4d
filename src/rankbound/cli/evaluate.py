"""rankbound evaluate: measures of one or more runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output

if TYPE_CHECKING:
    from rankbound.evaluation import Evaluation

__all__ = ["evaluate"]


def evaluate(
    qrels: options.Qrels,
    runs: Annotated[list[str], typer.Argument(help="Runs: TREC files, csv or parquet.", metavar="RUN")],
    measures: options.Measures = None,
    ties: options.Ties = options.TiesPolicy.average,
    empty: options.Empty = options.EmptyPolicy.skip,
    missing: options.Missing = options.MissingPolicy.ignore,
    missing_zero: options.MissingZero = False,
    judged_only: options.JudgedOnly = False,
    depth: options.Depth = None,
    bounds: Annotated[bool, typer.Option("--bounds", help="Add worst, expected and best of every measure.")] = False,
    per_query: options.PerQuery = None,
    as_json: options.Json = False,
) -> None:
    """Evaluate runs against judgments.

    A measure can be seen against what any ranking of the query could score: MM(...), EB(...), EM(...), DB(...),
    UL1(...) or UL2(...) around its name.

    \b
    Example:
      rankbound evaluate qrels.txt run.txt -m nDCG@10 -m "UL2(nDCG@10)" --per-query values.csv
    """
    options.check_inputs(qrels, *runs)
    output.check_table_path(per_query)
    with output.working("evaluating ..."):
        results = _evaluate_runs(
            qrels,
            runs,
            measures or list(options.DEFAULT_MEASURES),
            ties=ties.value,
            empty=empty.value,
            missing="zero" if missing_zero else missing.value,
            judged_only=judged_only,
            depth=depth,
            bounds=bounds,
        )
    if per_query is not None:
        _write_per_query(results, per_query)
    if as_json:
        summaries = {name: result.to_dict() for name, result in results.items()}
        output.print_json(summaries[runs[0]] if len(runs) == 1 else {"runs": summaries})
    elif len(runs) == 1 or bounds:
        for name, result in results.items():
            _print_one(name, result)
    else:
        _print_many(results)


class _Result:
    """An evaluation, with the queries that only one side has."""

    def __init__(self, evaluation: Evaluation, missing: int, unjudged: int, policy: dict[str, Any]) -> None:
        self.evaluation, self.missing, self.unjudged, self.policy = evaluation, missing, unjudged, policy

    def mean_bounds(self) -> dict[str, dict[str, float]]:
        """Worst, expected and best in the mean over the queries that count."""
        import numpy as np

        found = {}
        for name, three in self.evaluation.bounds.items():
            counted = ~np.isnan(self.evaluation.values[name])
            found[name] = {
                part: float(getattr(three, part)[counted].mean()) if counted.any() else float("nan")
                for part in ("worst", "expected", "best")
            }
        return found

    def counted(self) -> dict[str, int]:
        """Queries that each mean is over."""
        return {name: int((value == value).sum()) for name, value in self.evaluation.values.items()}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        result: dict[str, Any] = {
            "mean": self.evaluation.mean(),
            "queries": self.evaluation.queries,
            "empty_queries": self.evaluation.empty_queries,
            "counted_queries": self.counted(),
            "missing_queries": self.missing,
            "unjudged_queries": self.unjudged,
            **{name: self.policy[name] for name in ("ties", "empty", "missing")},
        }
        return result | ({"bounds": self.mean_bounds()} if self.evaluation.bounds else {})

    def note(self) -> str:
        """What was counted and what was not."""
        fate = {"skip": "left out of its mean", "zero": "counted as 0", "one": "counted as 1"}[self.policy["empty"]]
        lost = "counted as 0" if self.policy["missing"] == "zero" else "ignored"
        parts = [f"{self.evaluation.queries} queries"]
        if self.evaluation.empty_queries:
            parts.append(f"{self.evaluation.empty_queries} empty for some measure ({fate})")
        if self.missing:
            parts.append(f"{self.missing} judged but not in the run ({lost})")
        if self.unjudged:
            parts.append(f"{self.unjudged} in the run but not judged (ignored)")
        return "; ".join(parts) + f"; ties: {self.policy['ties']}"


def _evaluate_runs(qrels: str, runs: list[str], measures: list[str], **policy: Any) -> dict[str, _Result]:
    from rankbound.data.table_chunks import queries_of
    from rankbound.errors import DataError
    from rankbound.evaluation import evaluate, to_frame
    from rankbound.measures.measure import parse_measure

    for name in measures:
        parse_measure(name)  # a slip in a name is told before large files are read
    judged = to_frame(qrels, "label")
    results = {}
    for path in runs:
        streamed = path.endswith(".parquet")  # it may be larger than memory
        run: Any = path if streamed else to_frame(path, "score")
        try:
            evaluation = evaluate(judged, run, measures, **policy)
        except DataError as error:
            raise error if str(error).startswith(path) else DataError(f"{path}: {error}") from error
        returned = queries_of(path) if streamed else run["qid"].unique()
        here, there = (set(names.cast(str)) for names in (judged["qid"].unique(), returned))
        results[path] = _Result(evaluation, len(here - there), len(there - here), policy)
    return results


def _write_per_query(results: dict[str, _Result], path: str) -> None:
    import polars as pl

    frames = [result.evaluation.per_query for result in results.values()]
    if len(frames) > 1:
        frames = [
            frame.select(pl.lit(name).alias("run"), pl.all()) for name, frame in zip(results, frames, strict=True)
        ]
    output.write_table(pl.concat(frames, how="vertical_relaxed"), path)


def _print_one(name: str, result: _Result) -> None:
    bounds, counted = result.mean_bounds(), result.counted()
    rows = []
    for measure, mean in result.evaluation.mean().items():
        row = [measure, output.show_number(mean)]
        if bounds:
            row += [output.show_number(bounds.get(measure, {}).get(part)) for part in ("worst", "expected", "best")]
        rows.append([*row, str(counted[measure])])
    columns = ["measure", "mean", *(["worst", "expected", "best"] if bounds else []), "queries"]
    output.print_table(name, columns, rows, note=result.note())


def _print_many(results: dict[str, _Result]) -> None:
    measures = next(iter(results.values())).evaluation.measures
    rows = [
        [name, *(output.show_number(mean) for mean in result.evaluation.mean().values())]
        for name, result in results.items()
    ]
    output.print_table("mean over queries", ["run", *measures], rows)
    for name, result in results.items():
        output.print_note(f"{name}: {result.note()}")
