"""Tables of results as Markdown: the rows of a CSV file, published numbers first, with charts."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from rankbound.report.figures.drawing import Tables, draw_figures
from rankbound.report.figures.systems import cutoff_curves
from rankbound.report.numbers import show_number
from rankbound.studies.figures.catalog import FIGURES
from rankbound.studies.figures.papers import approximation_error
from rankbound.studies.spec import Study
from rankbound.studies.study_files import known_studies, load_study

OPEN_ROWS = 40  # longer tables are collapsed
NOT_SHOWN = ("seconds", "chosen", "epochs", "p_value")  # columns that are only in the CSV file
TEXT = (
    "table",
    "data",
    "model",
    "loss",
    "bounding",
    "nsr",
    "test_nsr",
    "test",
    "measure",
    "versus",
    "selection",
    "note",
)
ELSEWHERE = "published number is of "  # begins a note on a row whose published number is of other data


@cache
def read_table(path: Path) -> pl.DataFrame:
    """A table of results; settings are text, so that 1 and "1" are the same NSR."""
    table = pl.read_csv(path, infer_schema_length=None)
    settings = table.columns[: table.columns.index("measure")] if "measure" in table.columns else []
    return table.with_columns(
        pl.col(name).cast(pl.String).fill_null("") for name in table.columns if name in TEXT or name in settings
    )


@cache
def find_study(name: str) -> Study | None:
    """The study of this name, if there is one."""
    return load_study(name) if name in known_studies() else None


def find_figure(name: str) -> str:
    """The name of the figure of a file, whose name can end in that of a case."""
    return max((key for key in FIGURES if f"{name}-".startswith(f"{key}-")), key=len)


def draw_charts(path: Path, table: pl.DataFrame) -> dict[str, Any]:
    """Charts that a table of results allows."""
    drawn = {}
    if {"published", "ours", "ci_low", "measure"} <= set(table.columns) and table["published"].count() > 5:
        outcome = draw_figures(Tables(results=table.filter(pl.col("ours").is_not_null())))["published-and-ours"]
        if outcome.chart is not None:
            drawn[f"{path.stem}-published-and-ours"] = outcome.chart
    if path.stem == "thesis-5.1-k":
        drawn[f"{path.stem}-cutoff-curves"] = cutoff_curves(select_cutoffs(table), "nDCG")
    if {"epoch", "system", "train"} <= set(table.columns):
        paths = table.select(
            pl.col("table").str.strip_prefix("approximation error, ").alias("data"),  # titles of panels are short
            pl.lit("").alias("variant"),
            "system",
            pl.lit("approximation error").alias("quantity"),
            "epoch",
            *(pl.col("train").alias(name) for name in ("mean", "low", "high")),
        )
        drawn[f"{path.stem}-by-epoch"] = approximation_error(paths)
    return drawn


def select_cutoffs(table: pl.DataFrame) -> pl.DataFrame:
    """Rows of nDCG@k as `cutoff_curves` takes them: a case for each loss, a system for each bounding."""
    return table.filter(pl.col("nsr").is_in(["", "1"]) & (pl.col("table") != "MQ2008 highest label")).select(
        "data",
        pl.when(pl.col("nsr") == "").then(pl.lit("")).otherwise("NSR " + pl.col("nsr")).alias("variant"),
        pl.col("bounding").alias("system"),
        pl.col("loss").alias("case"),
        pl.col("measure").str.extract(r"@(\d+)").cast(pl.Int64).alias("k"),
        pl.col("ours").alias("mean"),
        "ci_low",
        "ci_high",
    )


def result_section(path: Path) -> list[str]:
    """A heading, links to details and to the file, and the rows of a table."""
    table = pl.read_csv(path, infer_schema_length=None)
    study = find_study(path.stem)
    shown = [name for name in table.columns if name not in NOT_SHOWN and table[name].null_count() < table.height]
    about = f"[How these numbers were obtained]({path.stem}.md). " if path.with_suffix(".md").is_file() else ""
    lines = [f"## {path.stem}", ""]
    lines += [f"{study.title}.", ""] if study is not None else []
    lines += [f"{about}{table.height} rows; [CSV file]({path.name}).", ""]
    lines += show_published(table)
    rows = [_row(name.replace("_", " ") for name in shown), _row(_align(table[name]) for name in shown)]
    rows += [_row(_cell(value) for value in row) for row in table.select(shown).rows()]
    if table.height > OPEN_ROWS or show_published(table):
        rows = collapsed(f"All {table.height} rows", rows)
    return [*lines, *rows]


def collapsed(summary: str, lines: list[str]) -> list[str]:
    """Lines that are shown on demand, on code hosts and on the site."""
    return ['<details markdown="1">', f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def link_to(heading: str) -> str:
    """The link to a heading of the same page: without its dots, as on code hosts and on the site."""
    return f"[{heading}](#{re.sub(r'[^a-z0-9_-]', '', heading.lower())})"


def show_published(table: pl.DataFrame) -> list[str]:
    """The rows with a published number, in few columns."""
    if not {"published", "ours", "difference", "measure", "data"} <= set(table.columns):
        return []
    rows = table.drop_nulls(["published", "ours"])
    if not rows.height:
        return []
    before = table.columns[: table.columns.index("measure")]
    settings = [name for name in before if name not in ("table", "data") and rows[name].n_unique() > 1]
    cells, elsewhere = [], {}
    for row in rows.iter_rows(named=True):
        interval = (
            f"{show_number(row['ci_low'])} to {show_number(row['ci_high'])}" if row.get("ci_low") is not None else ""
        )
        where = ", ".join(str(row[name]) for name in ("table", "data") if row.get(name) is not None).replace("|", r"\|")
        for part in str(row.get("note") or "").split("; "):
            if part.startswith(ELSEWHERE):
                elsewhere.setdefault(part.removeprefix(ELSEWHERE), {})[where] = None
        cells.append(
            [
                where,
                ", ".join(f"{row[name]}" for name in settings if row[name] not in (None, "")),
                str(row["measure"]),
                *(show_number(row[name]) for name in ("published", "ours", "difference")),
                interval,
                str(row.get("selection") or ""),
            ]
        )
    head = [
        "table, data", "setting", "measure", "published", "ours", "difference", "95 % interval of ours", "selected on",
    ]  # fmt: skip
    lines = markdown_table(head, cells)
    if rows.height > OPEN_ROWS:
        lines = collapsed(f"The {rows.height} rows with a published number", lines)
    notes = [f"Published numbers next to *{'; '.join(places)}* are of {data}." for data, places in elsewhere.items()]
    return [*lines, "", *(line for note in notes for line in (note, ""))]


def markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table; columns of numbers are aligned to the right."""
    numeric = [all(re.fullmatch(r"[-−+\d.%]*", row[at]) for row in rows) for at in range(len(head))]
    return [_row(head), _row("---:" if is_number else "---" for is_number in numeric), *(_row(row) for row in rows)]


def _align(column: pl.Series) -> str:
    return "---:" if column.dtype.is_numeric() else "---"


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return show_number(value) if isinstance(value, float) else str(value).replace("|", r"\|").replace("<", "&lt;")
