"""Pages of results, made from the tables in docs/results: an overview, a page for each paper, and all other tables.

``papers.toml`` names the papers and the tables of each, ``coverage.csv`` lists every table and figure of the papers
with the data that it needs, and ``claims.toml`` the findings that are no part of a study's file. All numbers come from
the CSV files that ``rankbound reproduce STUDY --results docs/results`` writes.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from metric_bounding import pooled_effects

from rankbound.experiments.claims import Verdict, claim_rows, judge_claims
from rankbound.experiments.spec import Study, known_studies, load_study
from rankbound.report.figures import FIGURES, Figure, FigureOutcome, all_figures
from rankbound.report.figures.systems import cutoff_curves
from rankbound.report.figures.training import approximation_error
from rankbound.report.numbers import show_number

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
INPUTS = ("coverage",)  # tables that are not results
PAPERS_DATA, OTHER_DATA, NO_DATA = "done on the paper's data", "done on other data", "done, needs no data"
NOTHING, IMPOSSIBLE, WAITING = "nothing to compute", "impossible here", "not run yet"
SHORT = {  # status -> heading of its column in the overview
    PAPERS_DATA: "paper's data", OTHER_DATA: "other data", NO_DATA: "no data needed", NOTHING: "definitions",
    IMPOSSIBLE: "impossible", WAITING: "not run",
}  # fmt: skip
ELSEWHERE = "published number is of "  # begins a note on a row whose published number is of other data
MARKER = "<!-- overview -->"


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
    """A verdict on a claim of a paper, with the numbers behind it and the table that they are from."""

    verdict: Verdict
    evidence: str
    table: str


def load_papers(folder: Path) -> list[Paper]:
    """The papers of ``papers.toml``."""
    return [Paper(**entry) for entry in tomllib.loads((folder / "papers.toml").read_text("utf-8"))["papers"]]


@cache
def read_table(path: Path) -> pl.DataFrame:
    """A table of results; settings are text, so that 1 and "1" are the same NSR."""
    table = pl.read_csv(path, infer_schema_length=None)
    settings = table.columns[: table.columns.index("measure")] if "measure" in table.columns else []
    return table.with_columns(
        pl.col(name).cast(pl.String).fill_null("") for name in table.columns if name in TEXT or name in settings
    )


# ---- pages -----------------------------------------------------------------------------------------------------------


def result_pages(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Markdown of all pages but the overview by their path, and charts by the path of their SVG file."""
    papers = load_papers(folder)
    charts: dict[str, Any] = {}
    pages = {}
    for paper in papers:
        pages[f"results/{paper.key}.md"] = paper_page(folder, paper, charts)
    pages["results/metric-bounding.md"] = bounding_page(folder, charts)
    pages["results/other.md"] = other_page(folder, papers)
    return pages, charts


def overview(folder: Path) -> str:
    """What came of the five papers, on one page."""
    verdicts, headlines, covered = [], [], []
    for paper in load_papers(folder):
        found = findings(folder, paper)
        words = Counter(finding.verdict.word for finding in found)
        headlines += [
            [paper.short, finding.verdict.claim, f"**{finding.verdict.word}**", finding.evidence]
            for finding in found
            if finding.verdict.claim in paper.headlines
        ]
        name = f"[{paper.short}]({paper.key}.md)"
        verdicts.append([name, paper.question, str(sum(words.values())), _counts(words)])
        statuses = Counter(row["status"] for row in coverage(folder) if row["paper"] == paper.key)
        covered.append([name, *(str(statuses[status] or "") for status in SHORT)])
    pooled = pooled_effects(folder)
    lines = [
        "## Do the papers' claims hold?",
        "",
        *_markdown(["paper", "question", "claims", "verdicts"], verdicts),
        "",
        "A claim is *confirmed* if the 95 % intervals of all rows that it is about agree with it, *partly confirmed* "
        "if some agree and the others show no clear difference, *mixed* if some agree and some disagree, *refuted* "
        "if none agrees and some disagree, and *unclear* if no interval decides.",
        "",
        "Claims that matter most, each with the number behind it:",
        "",
        *_markdown(["paper", "claim", "verdict", "evidence"], headlines),
        "",
        "## Does metric bounding help?",
        "",
        pooled.answer,
        "",
        "[The meta-analysis](metric-bounding.md) shows the effect on every data set.",
        "",
        "## How much of the papers is here?",
        "",
        "Tables and figures of each paper:",
        "",
        *_markdown(["paper", *SHORT.values()], covered),
        "",
        "## More results",
        "",
        "- [Other tables](other.md): our training methods compared with those of LightGBM, XGBoost and CatBoost, "
        "recommenders, and searches for hyperparameters.",
        "- [Does bounding help recommenders?](bounding-recommenders.md) Five data sets, full ranking and sampled "
        "lists.",
        "- [How stable are normalized measures?](covid-stability.md) 143 official runs of TREC-COVID.",
        "- [Speed](../how-fast.md), compared with other libraries.",
    ]
    return "\n".join(lines)


def paper_page(folder: Path, paper: Paper, charts: dict[str, Any]) -> str:
    """Verdicts, coverage, figures and tables of a paper."""
    lines = ["---", "hide: [navigation]", "---", "", f"# {paper.short}: results", "", f"{paper.citation}.", ""]
    lines += [f"**Question.** {paper.question}", "", "## Verdicts", ""]
    found = findings(folder, paper)
    if found:
        rows = [
            [
                finding.verdict.claim,
                f"**{finding.verdict.word}**",
                finding.evidence,
                f"[{finding.table}](#{finding.table})",
            ]
            for finding in found
        ]
        lines += _markdown(["claim", "verdict", "evidence", "table"], rows)
    else:
        lines += ["No claim has been tested yet."]
    lines += ["", "## Tables and figures of the paper", ""]
    rows = [
        [row["item"], row["shows"], row["status"], row["details"]]
        for row in coverage(folder)
        if row["paper"] == paper.key
    ]
    lines += _markdown(["item", "shows", "status", "how"], rows)
    for path in paper.files(folder):
        lines += ["", *study_section(path, charts)]
    drawn = {
        outcome.name: outcome
        for row in coverage(folder)
        if row["paper"] == paper.key and row["how"].startswith("figure:")
        for outcome in _without_data(row["how"].removeprefix("figure:"))
    }
    if drawn:
        lines += ["", "## Figures that need no data", ""]
        for outcome in drawn.values():
            lines += [f"![{outcome.title}](../figures/{outcome.name}.svg)", "", outcome.caption, ""]
    return "\n".join(lines) + "\n"


def _without_data(name: str) -> list[FigureOutcome]:
    """The figure of this name, or its cases, if it needs no data."""
    outcomes = figures_without_data().values()
    return [outcome for outcome in outcomes if outcome.name == name or outcome.name.startswith(f"{name}-")]


@cache
def figures_without_data() -> dict[str, FigureOutcome]:
    """The figures that hold for any data."""
    drawn = all_figures(pl.DataFrame())
    return {name: outcome for name, outcome in drawn.items() if outcome.chart is not None}


_HOW_POOLED = """\
The {differences} differences are from the tables {sources}: all losses, boundings, ratios of negative items, protocols
and measures that these tables have, except rows that were selected on test data, means over several data sets,
simulated data, and second measures of the same models (nDCG@k). The loss of nRBP is not normalized: all its affine
boundings (min-max, expectation, expectation-max) divide it by the number of pairs, up to a constant factor, and they
are one group. *Sampled* lists have a few sampled negative items for each relevant one in training, *complete* ones all
judged documents, or all items of the catalog; this division was made after results without it had been seen. Trees are
trained by LightGBM on the lambda loss of nDCG.

Differences on the same data set share their queries or users and are correlated. They are averaged first, and their
mean gets the largest standard error that it can have, that of a correlation of 1. Data sets are then pooled by a
random-effects model: the variance between data sets is estimated by the method of DerSimonian and Laird, the interval
of the mean is that of Hartung and Knapp (Student's distribution, suited to few data sets), and the interval for 95 % of
data sets is a prediction interval. I² is the fraction of the variance that is due to differences between data sets.
`rankbound.analysis.random_effects` computes all of it.

Limits: the intervals of single data sets do not cover other splits and seeds; some data sets are alike (three are from
MovieLens); a single data set has no interval between data sets; and intervals are not corrected for the number of
groups."""


def bounding_page(folder: Path, charts: dict[str, Any]) -> str:
    """The answer to the question of the thesis over all data sets, with a forest plot."""
    pooled = pooled_effects(folder)
    charts["results/metric-bounding.svg"] = pooled.chart
    rows = [
        [
            row["group"],
            str(row["sets"]),
            str(row["rows"]),
            f"{row['mean']:+.4f}",
            f"{row['low']:+.4f} to {row['high']:+.4f}",
            "" if row["prediction_low"] is None else f"{row['prediction_low']:+.4f} to {row['prediction_high']:+.4f}",
            f"{row['i2']:.0%}",
            row["verdict"],
        ]
        for row in pooled.groups.iter_rows(named=True)
    ]
    head = [
        "loss, bounding, lists",
        "data sets",
        "differences",
        "mean effect",
        "95 % interval",
        "95 % of data sets",
        "I²",
        "verdict",
    ]
    sources = ", ".join(f"[{name}]({name}.csv)" for name in pooled.sources)
    lines = [
        *("---", "hide: [navigation]", "---", "", "# Does metric bounding help?", ""),
        pooled.answer,
        "",
        "A bounded loss relates the value of a query to the values that its documents allow, so that easy and hard "
        "queries count alike. The effect is the mean of the measure after training with the bounded loss, minus that "
        "with the same loss, unbounded; +0.01 is one point of a measure from 0 to 1.",
        "",
        *_markdown(head, rows),
        "",
        "![Forest plot of the effect of bounding on every data set](metric-bounding.svg)",
        "",
        "Each line is a data set, the last one of each panel the mean over data sets. Lines are 95 % confidence "
        "intervals.",
        "",
        "## How it was computed",
        "",
        _HOW_POOLED.format(differences=pooled.effects.height, sources=sources),
    ]
    return "\n".join(lines) + "\n"


def other_page(folder: Path, papers: list[Paper]) -> str:
    """The tables that belong to no paper."""
    taken = {path for paper in papers for path in paper.files(folder)}
    lines = ["---", "hide: [toc]", "---", "", "# Other tables", ""]
    lines += [
        "`training` compares our training methods with those of LightGBM, XGBoost and CatBoost, `training-expectation` "
        "shows what expectation bounding does to trees, and `training-networks` compares losses of networks (`make "
        "models-report`). `tuning` compares `rankbound tune` with LightGBM tuned by Optuna (`python -m "
        "benchmarks.quality.tuning`), `recommenders` compares recommenders (`python -m "
        "benchmarks.quality.recommenders`), `recommenders-differences` has their differences to implicit's ALS, "
        "and `bounding-recommenders` shows what bounding does to them. `sampled-metrics` repeats what Walid "
        "Krichene and "
        "Steffen Rendle found in [On Sampled Metrics for Item Recommendation](https://doi.org/10.1145/3394486.3403226) "
        "(KDD 2020).",
    ]
    for path in sorted(folder.glob("*.csv")):
        if path not in taken and path.stem not in INPUTS:
            lines += ["", *result_section(path)]
    return "\n".join(lines) + "\n"


# ---- claims ----------------------------------------------------------------------------------------------------------


def findings(folder: Path, paper: Paper) -> list[Finding]:
    """The verdicts on the claims of a paper: those of its studies, and those of ``claims.toml``."""
    found = []
    for path in paper.files(folder):
        study = _study(path.stem)
        for claim in () if study is None else study.claims:
            rows = claim_rows(claim, read_table(path))
            (verdict,) = judge_claims([claim], read_table(path))
            found.append(Finding(verdict, _evidence(verdict, rows), path.stem))
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
    return Finding(
        verdict, "; ".join(filter(None, (counts, numbers))) + (" (no intervals)" if counts else ""), entry["table"]
    )


def _evidence(verdict: Verdict, rows: pl.DataFrame) -> str:
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


@cache
def _study(name: str) -> Study | None:
    return load_study(name) if name in known_studies() else None


# ---- coverage --------------------------------------------------------------------------------------------------------


@cache
def coverage(folder: Path) -> list[dict[str, str]]:
    """Every table and figure of the papers with its status, which follows from the tables of results that exist."""
    rows = pl.read_csv(folder / "coverage.csv", infer_schema=False).fill_null("").to_dicts()
    for row in rows:
        row["status"], row["details"] = _status(folder, row)
    return rows


def _status(folder: Path, row: dict[str, str]) -> tuple[str, str]:
    kind, _, name = row["how"].partition(":")
    if not row["results"]:
        if kind == "notation":
            return NOTHING, ""
        shown = {"test": f"tested in `{name}`", "figure": f"figure `{name}`", "command": f"`{name}`"}[kind]
        return NO_DATA, shown
    pattern, _, table = row["results"].partition("::")
    done: dict[str, set[str]] = {}
    waiting: Counter[str] = Counter()  # rows without a result
    for path in sorted(folder.glob(f"{pattern}.csv")):
        results = read_table(path)
        if "data" in results.columns:
            chosen = results.filter(pl.col("table") == table) if table else results
            if "ours" in chosen.columns:
                waiting.update(chosen.filter(pl.col("ours").is_null())["data"])
                chosen = chosen.drop_nulls("ours")
            for part in {part for data in chosen["data"] for part in data.split(" | ")}:
                done.setdefault(part, set()).add(path.stem)
    own = [data for data in row["paper_data"].split() if data in done]
    other = [data for data in row["other_data"].split() if data in done]
    tables = sorted({stem for data in (own or other) for stem in done[data]})
    where = ", ".join(f"[{stem}](#{stem})" for stem in tables)
    figure = f"figure `{name}` of the study's page" if kind == "figure" else ""
    parts = [f"{waiting[data]} rows of {data} are not run yet" for data in own or other if waiting[data]]
    details = "; ".join(filter(None, (where, ", ".join(own or other), *parts, figure, row["reason"])))
    if own and not (table and row["reason"]):
        lacking = [data for data in row["paper_data"].split() if data not in done]
        return PAPERS_DATA, details + (f"; not run: {', '.join(lacking)}" if lacking else "")
    if own or other:
        return OTHER_DATA, details
    return (IMPOSSIBLE, row["reason"]) if row["reason"] else (WAITING, f"`rankbound reproduce {pattern}`")


# ---- tables ----------------------------------------------------------------------------------------------------------


def study_section(path: Path, charts: dict[str, Any]) -> list[str]:
    """A study's table with its charts."""
    table = read_table(path)
    lines = [*result_section(path), *best_losses(table, _study(path.stem))]
    for name, chart in _charts(path, table).items():
        charts[f"results/{name}.svg"] = chart
        lines += ["", f"![{name}]({name}.svg)"]
    for kept in sorted(path.parent.glob(f"{path.stem}--*.[ps][nv]g")):
        name = kept.stem.removeprefix(f"{path.stem}--")
        figure = _figure_of(name)
        case = name.removeprefix(figure.name).strip("-")  # such as that of a measure
        title = f"{figure.title} ({case})" if case else figure.title
        lines += ["", f"![{title}]({kept.name})", "", f"**{title}.** {figure.caption}"]
    return lines


def best_losses(table: pl.DataFrame, study: Study | None) -> list[str]:
    """Which loss is best by each measure, if losses were selected by different measures: by means, without a test."""
    rules = [] if study is None else [each.select_by for each in study.tables if isinstance(each.select_by, dict)]
    measure_of = {loss: measure for rule in rules for loss, measure in rule.items()}
    if "loss" not in table.columns or len(set(measure_of.values()) & set(table["measure"])) < 3:
        return []
    finished = table.drop_nulls("ours").filter(pl.col("loss").is_in(list(measure_of)))
    measures = table["measure"].unique(maintain_order=True).to_list()
    before = table.columns[: table.columns.index("measure")]
    before = [name for name in before if name != "loss" and finished[name].n_unique() > 1] or before[:1]
    rows, own, cases = [], 0, 0
    for key, group in finished.group_by(before, maintain_order=True):
        best = {
            measure: rows_of.sort("ours", descending=True)["loss"][0]
            for (measure,), rows_of in group.group_by(["measure"], maintain_order=True)
            if rows_of.height > 2
        }
        if len(best) < 3:
            continue
        own += sum(measure_of[loss] == measure for measure, loss in best.items())
        cases += len(best)
        setting = [
            f"NSR {value}" if name == "nsr" else str(value) for name, value in zip(before, key, strict=True) if value
        ]
        rows.append([", ".join(setting), *(best.get(measure, "") for measure in measures)])
    if not rows:
        return []
    return [
        "",
        f"The loss with the best mean by each measure, not tested. In {own} of {cases} cases it is one whose epoch was "
        "selected by that measure:",
        "",
        *_markdown(["setting", *measures], rows),
    ]


def _figure_of(name: str) -> Figure:
    """The figure of a file, whose name can end in that of a case."""
    return FIGURES[max((key for key in FIGURES if f"{name}-".startswith(f"{key}-")), key=len)]


def _charts(path: Path, table: pl.DataFrame) -> dict[str, Any]:
    """Charts that a table of results allows."""
    drawn = {}
    if {"published", "ours", "ci_low", "measure"} <= set(table.columns) and table["published"].count() > 5:
        outcome = all_figures(pl.DataFrame(), results=table.filter(pl.col("ours").is_not_null()))["published-and-ours"]
        if outcome.chart is not None:
            drawn[f"{path.stem}-published-and-ours"] = outcome.chart
    if path.stem == "thesis-5.1-k":
        drawn[f"{path.stem}-cutoff-curves"] = cutoff_curves(_by_cutoff(table), "nDCG")
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


def _by_cutoff(table: pl.DataFrame) -> pl.DataFrame:
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
    study = _study(path.stem)
    shown = [name for name in table.columns if name not in NOT_SHOWN and table[name].null_count() < table.height]
    about = f"[How these numbers were obtained]({path.stem}.md). " if path.with_suffix(".md").is_file() else ""
    lines = [f"## {path.stem} {{ #{path.stem} }}", ""]
    lines += [f"{study.title}.", ""] if study is not None else []
    lines += [f"{about}{table.height} rows; [CSV file]({path.name}).", ""]
    lines += _published(table)
    rows = [_row(name.replace("_", " ") for name in shown), _row(_align(table[name]) for name in shown)]
    rows += [_row(_cell(value) for value in row) for row in table.select(shown).rows()]
    if table.height > OPEN_ROWS or _published(table):  # collapsed, in the syntax of pymdownx.details
        rows = [f'??? note "All {table.height} rows"', "", *(f"    {row}" for row in rows)]
    return [*lines, *rows]


def _published(table: pl.DataFrame) -> list[str]:
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
    lines = _markdown(head, cells)
    if rows.height > OPEN_ROWS:
        lines = [f'??? note "The {rows.height} rows with a published number"', "", *(f"    {line}" for line in lines)]
    notes = [f"Published numbers next to *{'; '.join(places)}* are of {data}." for data, places in elsewhere.items()]
    return [*lines, "", *(line for note in notes for line in (note, ""))]


def _counts(words: Counter[str]) -> str:
    order = ("confirmed", "partly confirmed", "mixed", "unclear", "refuted", "not tested")
    return ", ".join(f"{words[word]} {word}" for word in order if words[word])


def _markdown(head: list[str], rows: list[list[str]]) -> list[str]:
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
