"""The page of a search: the chosen model in words, the table of trials, the best value over time, the parameters."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.evaluation.inference import Inference
from rankbound.packages import DRAWING, find_missing
from rankbound.report.findings import Findings
from rankbound.report.numbers import show_interval, show_number
from rankbound.report.page import Report, write_report
from rankbound.report.tables import Cell, Table

if TYPE_CHECKING:
    import polars as pl

    from rankbound.report.figures.drawing import FigureOutcome
    from rankbound.tuning.result import TuneResult

_PARAMETER = "param."
COLUMNS = ("trial", "model", "value", "95 % interval", "difference", "95 % interval", "steps", "seconds", "status")


def write_tuning_page(path: str | PathLike[str], result: TuneResult, *, title: str, inference: Inference) -> Path:
    """Write the page of a search to one HTML file and return its path."""
    about = {
        "Measure": result.measure,
        "Queries": ", ".join(f"{number:,} in {role}" for role, number in result.queries.items()),
        "Duration of the search": f"{result.seconds:.0f} s in all runs",
        "Intervals": f"{100 * inference.confidence:g} %, {inference.interval}, {inference.resamples:,} resamples over "
        f"the validation queries, not corrected for the number of trials, seed {inference.seed}",
    }
    report = Report(None, (), _findings(result), (_table(result),))
    return write_report(path, report, figures=_figures(result), title=title, about=about)


def describe_params(params: Any) -> str:
    """Return parameters as text.

    >>> describe_params({"learning_rate": 0.0312345, "hidden": [64, 32]})
    'learning_rate=0.03123, hidden=64,32'
    """

    def show(value: Any) -> str:
        if isinstance(value, list):
            return ",".join(map(show, value))
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name}={show(value)}" for name, value in params.items())


def describe_test(result: TuneResult) -> str:
    """Return a sentence about the test queries, or ""."""
    if result.test is None:
        return ""
    interval = show_interval(result.test["low"], result.test["high"])
    return (
        f"On {result.queries['test']:,} test queries, which no trial used, {result.measure} of the chosen model is "
        f"{show_number(result.test['mean'])} ({interval})."
    )


def trials_rows(result: TuneResult) -> list[list[str]]:
    """Return the cells of the table of trials, for the columns `COLUMNS` and the parameters."""
    params = {record.number: _varied_params(record.params, result) for record in result.records}
    rows = []
    for row in result.table.iter_rows(named=True):
        gap = show_number(row["difference"], sign=True) if row["difference_low"] is not None else ""
        gap_interval = show_interval(row["difference_low"], row["difference_high"], sign=True) if gap else ""
        value = [show_number(row["value"]), show_interval(row["low"], row["high"])]
        cost = ["" if row["steps"] is None else str(row["steps"]), f"{row['seconds']:.1f}"]
        setting = row["error"] or describe_params(params[row["trial"]])
        rows.append([str(row["trial"]), row["model"], *value, gap, gap_interval, *cost, row["status"], setting])
    return rows


def _varied_params(params: Any, result: TuneResult) -> dict[str, Any]:
    """Return the parameters of a trial without those that have one value in all trials."""
    fixed = [
        name for name, value in params.items() if all(record.params.get(name) == value for record in result.records)
    ]
    return dict(params) if len(result.records) == 1 else {n: v for n, v in params.items() if n not in fixed}


def _findings(result: TuneResult) -> Findings:
    best, first = result.best, result.table.row(0, named=True)
    headline = (
        f"Of {len(result.records)} trials, trial {best.number} ({best.model}) ranks the validation queries best: "
        f"{result.measure} {show_number(best.value)} ({show_interval(first['low'], first['high'])})."
    )
    sentences = [f"Its parameters: {describe_params(best.params)}."]
    if best.steps is not None:
        sentences.append(f"It keeps {best.steps:,} steps, which the validation queries selected.")
    if result.refitted:
        sentences.append("The saved model was fitted again with these, on training and validation queries together.")
    others = result.table.filter(result.table["difference_high"].is_not_null())
    if others.height:
        level = int((others["difference_high"] >= 0).sum())
        sentences.append(
            f"{level} of the {others.height} other trials cannot be distinguished from it: the paired 95 % interval "
            "of their difference contains 0."
        )
    if result.test is not None:
        sentences.append(describe_test(result))
    return Findings(headline, tuple(sentences), result.notes)


def _table(result: TuneResult) -> Table:
    rows = [tuple(map(Cell, (row[0], row[1], row[8], *row[2:8], row[9]))) for row in trials_rows(result)]
    return Table(
        "trials",
        "Trials, best first",
        ("trial", "model", "status", *COLUMNS[2:8], "parameters"),
        3,
        tuple(rows),
        f"{result.measure} on {result.queries['validation']:,} validation queries. Differences are to the best trial, "
        "paired by query. A pruned trial ended early because it fell behind the median of those before; a stopped one "
        "when the time was over. Parameters with the same value in all trials are not shown.",
        result.table,
        ends_with_text=True,
    )


# ---- figures ---------------------------------------------------------------------------------------------------------


def _figures(result: TuneResult) -> dict[str, FigureOutcome]:
    if find_missing(*DRAWING):
        return {}
    from rankbound.report.figures.drawing import FigureOutcome

    table = result.table.filter(result.table["value"].is_not_null())
    figures = [
        FigureOutcome(
            "best-so-far",
            "Best value over time",
            "Each point is a trial; the line is the best value so far.",
            _best_so_far(table, result.measure),
        )
    ]
    if (by_parameter := _melt_parameters(table)).height:
        figures.append(
            FigureOutcome(
                "parameters",
                "Parameters and value",
                "Each point is a trial. Ended early: pruned or stopped.",
                _parameters(by_parameter, result.measure),
            )
        )
    return {figure.name: figure for figure in figures}


def _best_so_far(table: pl.DataFrame, measure: str) -> Any:
    import polars as pl

    from rankbound.report.figures.panels import color, grid, tips
    from rankbound.report.figures.theme import alt

    table = (
        table.sort("elapsed")
        .with_columns(pl.col("value").cum_max().alias("best"), (pl.col("elapsed") / 60).alias("minutes"))
        .select("trial", "model", "status", "value", "best", "minutes", "seconds")
    )
    x = alt.X("minutes:Q", title="minutes")
    scale = alt.Scale(zero=False)
    point = (
        alt.Chart()
        .mark_point(opacity=0.7)
        .encode(
            x=x,
            y=alt.Y("value:Q", title=measure, scale=scale),
            color=color(table, "model", "model"),
            tooltip=tips(trial="trial #", model="model *", status="status *", value=measure, seconds="seconds"),
        )
    )
    line = alt.Chart().mark_line(interpolate="step-after").encode(x=x, y=alt.Y("best:Q", title=measure, scale=scale))
    return grid([line, point], table, size=(420, 220))


def _melt_parameters(table: pl.DataFrame) -> pl.DataFrame:
    """A row per trial and numeric parameter that varies; text parameters are left to the table."""
    import polars as pl

    frames = []
    for name in (name for name in table.columns if name.startswith(_PARAMETER)):
        column = table[name]
        if column.dtype.is_numeric() and column.drop_nulls().n_unique() > 1:
            frames.append(
                table.filter(column.is_not_null()).select(
                    *("trial", "model", "status", "value"),
                    pl.lit(name.removeprefix(_PARAMETER)).alias("parameter"),
                    pl.col(name).cast(pl.Float64).alias("at"),
                )
            )
    return pl.concat(frames) if frames else pl.DataFrame()


def _parameters(table: pl.DataFrame, measure: str) -> Any:
    from rankbound.report.figures.panels import color, grid, tips
    from rankbound.report.figures.theme import alt

    point = (
        alt.Chart()
        .mark_point(opacity=0.7)
        .encode(
            x=alt.X("at:Q", title=None, scale=alt.Scale(zero=False)),
            y=alt.Y("value:Q", title=measure, scale=alt.Scale(zero=False)),
            color=color(table, "status", "status"),
            tooltip=tips(trial="trial #", model="model *", parameter="parameter *", at="value", value=measure),
        )
    )
    return grid([point], table, column="parameter", size=(190, 140), independent=["x"])
