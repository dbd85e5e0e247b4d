"""What became of the claims, tables and figures of the papers: verdicts, and how much is computed on which data."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from results_tables import find_study, link_to, read_table

from rankbound.report.numbers import show_number
from rankbound.studies.claims import Verdict, claim_rows, judge_claims

PAPERS_DATA, OTHER_DATA, NO_DATA = "on the paper's data", "on other data", "needs no data"
NOTHING, IMPOSSIBLE, WAITING = "nothing to compute", "data not available", "not run yet"
POINT_WORDS = ("point estimates agree", "point estimates are mixed", "point estimates disagree")
SHORT = {  # status -> heading of its column in the overview
    PAPERS_DATA: "paper's data", OTHER_DATA: "other data", NO_DATA: "no data needed", NOTHING: "definitions",
    IMPOSSIBLE: "data not available", WAITING: "not run",
}  # fmt: skip


@dataclass(frozen=True)
class Paper:
    """A paper: its page is results/KEY.md; ``tables`` are patterns of the files with its results.

    ``headlines`` are the claims that the overview shows.
    """

    key: str
    short: str
    citation: str
    question: str
    tables: list[str] = field(default_factory=list)
    headlines: list[str] = field(default_factory=list)

    def files(self, folder: Path) -> list[Path]:
        """The CSV files with results of this paper."""
        return [path for pattern in self.tables for path in sorted(folder.glob(f"{pattern}.csv"))]


class Finding(NamedTuple):
    """A verdict on a claim of a paper, with the numbers behind it, and the data and the table that they are from.

    Without intervals, means are compared, and the verdict says so.
    """

    verdict: Verdict
    evidence: str
    table: str
    data: str = ""
    has_intervals: bool = True

    @property
    def word(self) -> str:
        """The verdict; only differences with intervals confirm or refute a claim."""
        if self.has_intervals or self.verdict.word == "not tested":
            return self.verdict.word
        agree, mixed, disagree = POINT_WORDS
        return {"confirmed": agree, "refuted": disagree}.get(self.verdict.word, mixed)


def load_papers(folder: Path) -> list[Paper]:
    """The papers of ``papers.toml``."""
    return [Paper(**entry) for entry in tomllib.loads((folder / "papers.toml").read_text("utf-8"))["papers"]]


def findings(folder: Path, paper: Paper) -> list[Finding]:
    """The verdicts on the claims of a paper: those of its studies, and those of ``claims.toml``."""
    found = []
    for path in paper.files(folder):
        study = find_study(path.stem)
        for claim in () if study is None else study.claims:
            rows = claim_rows(claim, read_table(path))
            (verdict,) = judge_claims([claim], read_table(path))
            found.append(Finding(verdict, describe_rows(verdict, rows), path.stem, names_of_data(rows)))
    for entry in tomllib.loads((folder / "claims.toml").read_text("utf-8"))["claims"]:
        if entry["paper"] == paper.key:
            path = folder / f"{entry['table']}.csv"
            found.append(judge_entry(entry, read_table(path) if path.is_file() else pl.DataFrame()))
    return found


def judge_entry(entry: dict[str, Any], table: pl.DataFrame) -> Finding:
    """Test a claim of ``claims.toml``: rows against a limit, or the rows of one measure against those of another."""
    above, column = entry.get("expect", "above") == "above", entry["column"]
    needed = {column, *entry.get("where", {}), *entry.get("by", [])}
    if not needed <= set(table.columns):
        return Finding(Verdict(entry["claim"], 0, 0, 0), "", entry["table"])
    rows = table.drop_nulls(column)
    for key, values in entry.get("where", {}).items():
        rows = rows.filter(pl.col(key).cast(pl.String).is_in(values))
    if "limit" in entry:
        margin = rows[column] - entry["limit"]
        numbers = f"from {show_number(rows[column].min())} to {show_number(rows[column].max())}" if rows.height else ""
    else:
        ((key, (first, second)),) = entry["than"].items()
        one, other = (rows.filter(pl.col(key) == name).select(*entry["by"], column) for name in (first, second))
        both = one.join(other, on=entry["by"], suffix="_other")
        margin = both[column] - both[f"{column}_other"]
        means = [show_number(both[name].mean()) for name in (column, f"{column}_other")] if both.height else []
        numbers = f"on average {means[0]} against {means[1]}" if means else ""
    agree, disagree = int((margin > 0).sum()), int((margin < 0).sum())
    if not above:
        agree, disagree = disagree, agree
    verdict = Verdict(entry["claim"], agree, disagree, len(margin) - agree - disagree)
    counts = f"{agree} of {len(margin)} rows agree, {disagree} disagree" if len(margin) else ""
    evidence = "; ".join(filter(None, (counts, numbers)))
    return Finding(verdict, evidence, entry["table"], names_of_data(rows), has_intervals=False)


def names_of_data(rows: pl.DataFrame) -> str:
    """The data sets of some rows."""
    if "data" not in rows.columns:
        return ""
    return ", ".join(dict.fromkeys(part for data in rows["data"] for part in str(data).split(" | ")))


def describe_rows(verdict: Verdict, rows: pl.DataFrame) -> str:
    """The differences behind a verdict, in words."""
    if not rows.height:
        return ""
    away = rows["versus_difference"]
    spread = (
        f"{away.mean():+.4f} on average, {away.min():+.4f} to {away.max():+.4f}"
        if rows.height > 1
        else f"{away[0]:+.4f}"
    )
    if rows.height == 1:
        spread += f" ({rows['versus_low'][0]:+.4f} to {rows['versus_high'][0]:+.4f})"
    counts = f"{verdict.agree} of {rows.height} rows agree, {verdict.disagree} disagree, {verdict.unclear} are unclear"
    return f"difference {spread}; {counts}"


# ---- coverage --------------------------------------------------------------------------------------------------------


@cache
def coverage(folder: Path) -> list[dict[str, Any]]:
    """Every table and figure of the papers, with the status on each data set: it follows from the results that exist.

    ``status`` maps each data set of the paper, and each other one that is used, to a status; items without data have
    one status, under an empty name.
    """
    rows: list[dict[str, Any]] = pl.read_csv(folder / "coverage.csv", infer_schema=False).fill_null("").to_dicts()
    for row in rows:
        row["status"], row["details"] = judge_item(folder, row)
    return rows


def show_status(status: dict[str, str]) -> str:
    """The status of an item in words, data set by data set."""
    by_word: dict[str, list[str]] = {}
    for data, word in status.items():
        by_word.setdefault(word, []).append(data)
    return "; ".join(f"{word}: {', '.join(sets)}" if any(sets) else word for word, sets in by_word.items())


def judge_item(folder: Path, row: dict[str, str]) -> tuple[dict[str, str], str]:
    """The status of a table or figure on each data set, and where its numbers are."""
    kind, _, name = row["how"].partition(":")
    if not row["results"]:
        if kind == "notation":
            return {"": NOTHING}, ""
        shown = {"test": f"tested in `{name}`", "figure": f"figure `{name}`", "command": f"`{name}`"}[kind]
        return {"": NO_DATA}, shown
    pattern, _, table = row["results"].partition("::")
    done, lacking = find_results(folder, pattern, table)
    is_replaced = bool(table and row["reason"])  # computed from other features than the paper's
    status = {}
    for data in row["paper_data"].split():
        own = OTHER_DATA if is_replaced else PAPERS_DATA
        status[data] = own if data in done else IMPOSSIBLE if row["reason"] else WAITING
    status |= {data: OTHER_DATA for data in row["other_data"].split() if data in done}
    tables = sorted({stem for data in status for stem in done.get(data, ())})
    parts = [f"{lacking[data]} rows of {data} are not run yet" for data in status if data in done and lacking[data]]
    figure = f"figure `{name}` of the study" if kind == "figure" else ""
    waiting = f"`rankbound reproduce {pattern}`" if WAITING in status.values() and "*" not in pattern else ""
    return status, "; ".join(filter(None, (", ".join(map(link_to, tables)), *parts, figure, waiting, row["reason"])))


def find_results(folder: Path, pattern: str, table: str) -> tuple[dict[str, set[str]], Counter[str]]:
    """For each data set the files with finished rows, and how many of its rows are not finished."""
    done: dict[str, set[str]] = {}
    lacking: Counter[str] = Counter()
    for path in sorted(folder.glob(f"{pattern}.csv")):
        results = read_table(path)
        if "data" not in results.columns:
            continue
        chosen = results.filter(pl.col("table") == table) if table else results
        if "ours" in chosen.columns:
            lacking.update(chosen.filter(pl.col("ours").is_null())["data"])
            chosen = chosen.drop_nulls("ours")
        for part in {part for data in chosen["data"] for part in data.split(" | ")}:
            done.setdefault(part, set()).add(path.stem)
    return done, lacking
