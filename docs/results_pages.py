"""Pages of results: `python docs/results_pages.py` writes docs/results/*.md and their charts, and docs/figures.

``papers.toml`` names the papers and the tables of each, ``coverage.csv`` lists every table and figure of the papers
with the data that it needs, and ``claims.toml`` the findings that are no part of a study's file. All numbers come from
the CSV files that ``rankbound reproduce STUDY --results docs/results`` writes. The pages are committed, so that readers
of the repository find them; a test compares them with the tables.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from metric_bounding import pooled_effects
from results_claims import POINT_WORDS, SHORT, Paper, coverage, findings, load_papers, show_status
from results_tables import draw_charts, find_figure, find_study, link_to, markdown_table, read_table, result_section

from rankbound.io import atomic_write
from rankbound.report.figures.drawing import FigureOutcome, Tables, draw_figures
from rankbound.report.figures.saving import save_chart
from rankbound.studies.figures.catalog import FIGURES
from rankbound.studies.spec import Study

INPUTS = ("coverage",)  # tables that are not results
BEGIN, END = "<!-- overview -->", "<!-- end of the overview -->"


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
        words = Counter(finding.word for finding in found)
        headlines += [
            [paper.short, finding.verdict.claim, f"**{finding.word}**", finding.data, finding.evidence]
            for finding in found
            if finding.verdict.claim in paper.headlines
        ]
        name = f"[{paper.short}]({paper.key}.md)"
        verdicts.append([name, paper.question, str(sum(words.values())), count_words(words)])
        own = [row for row in coverage(folder) if row["paper"] == paper.key]
        statuses = Counter(word for row in own for word in row["status"].values())
        covered.append([name, *(str(statuses[status] or "") for status in SHORT)])
    pooled = pooled_effects(folder)
    lines = [
        "## Do the papers' claims hold?",
        "",
        *markdown_table(["paper", "question", "claims", "verdicts"], verdicts),
        "",
        "A claim is *confirmed* if the 95 % intervals of all rows that it is about agree with it, *partly confirmed* "
        "if some agree and the others show no clear difference, *mixed* if some agree and some disagree, *refuted* "
        "if none agrees and some disagree, and *unclear* if no interval decides. Where a table has no intervals, means "
        "are compared, and the verdict says that *point estimates* agree or disagree; nothing is confirmed by them.",
        "",
        "Claims that matter most, with the data and the numbers behind each verdict:",
        "",
        *markdown_table(["paper", "claim", "verdict", "data", "evidence"], headlines),
        "",
        "## Does metric bounding help?",
        "",
        pooled.answer,
        "",
        "[The meta-analysis](metric-bounding.md) shows the effect on every data set.",
        "",
        "## How much of the papers is here?",
        "",
        "Tables and figures of each paper, each counted once for every data set that it is about, or that is used in "
        "its place:",
        "",
        *markdown_table(["paper", *SHORT.values()], covered),
        "",
        "## More results",
        "",
        "- [Other tables](other.md): our training methods compared with those of LightGBM, XGBoost and CatBoost, "
        "recommenders, and searches for hyperparameters.",
        "- [Does bounding help recommenders?](bounding-recommenders.md) Five data sets, full ranking and sampled "
        "lists.",
        "- [How stable are normalized measures?](covid-stability.md) 143 official runs of TREC-COVID.",
        "- [Does the order of runs depend on documents that nobody judged?](unjudged-stability.md) The same runs.",
        "- [Speed](../how-fast.md), compared with other libraries.",
    ]
    return "\n".join(lines)


def write_pages(docs: Path) -> list[Path]:
    """Write all pages with their charts, and the figures that need no data; return the files."""
    results = docs / "results"
    pages, charts = result_pages(results)
    pages["results/index.md"] = fill_overview((results / "index.md").read_text("utf-8"), overview(results))
    charts |= {f"figures/{name}.svg": outcome.chart for name, outcome in figures_without_data().items()}
    for name, page in pages.items():
        with atomic_write(docs / name) as temporary:
            temporary.write_text(page, encoding="utf-8")
    for name, chart in charts.items():
        (docs / name).parent.mkdir(exist_ok=True)
        save_chart(chart, docs / name)
    return [docs / name for name in [*pages, *charts]]


def fill_overview(page: str, text: str) -> str:
    """The start page of the results with the overview in its place."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def paper_page(folder: Path, paper: Paper, charts: dict[str, Any]) -> str:
    """Verdicts, coverage, figures and tables of a paper."""
    lines = [f"# {paper.short}: results", "", f"{paper.citation}.", ""]
    lines += [f"**Question.** {paper.question}", "", "## Verdicts", ""]
    found = findings(folder, paper)
    if found:
        rows = [
            [
                finding.verdict.claim,
                f"**{finding.word}**",
                finding.data,
                finding.evidence,
                link_to(finding.table),
            ]
            for finding in found
        ]
        lines += markdown_table(["claim", "verdict", "data", "evidence", "table"], rows)
    else:
        lines += ["No claim has been tested yet."]
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
    rows = [
        [row["item"], row["shows"], show_status(row["status"]), row["details"]]
        for row in coverage(folder)
        if row["paper"] == paper.key
    ]
    lines += ["", "## Tables and figures of the paper", "", *markdown_table(["item", "shows", "status", "how"], rows)]
    return "\n".join(lines) + "\n"


def _without_data(name: str) -> list[FigureOutcome]:
    """The figure of this name, or its cases, if it needs no data."""
    outcomes = figures_without_data().values()
    return [outcome for outcome in outcomes if outcome.name == name or outcome.name.startswith(f"{name}-")]


@cache
def figures_without_data() -> dict[str, FigureOutcome]:
    """The figures that hold for any data."""
    drawn = draw_figures(Tables(), FIGURES)
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
`docs/random_effects.py` computes all of it.

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
        "# Does metric bounding help?",
        "",
        pooled.answer,
        "",
        "A bounded loss relates the value of a query to the values that its documents allow, so that easy and hard "
        "queries count alike. The effect is the mean of the measure after training with the bounded loss, minus that "
        "with the same loss, unbounded; +0.01 is one point of a measure from 0 to 1.",
        "",
        *markdown_table(head, rows),
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
    lines = ["# Other tables", ""]
    lines += [
        "`training` compares our training methods with those of LightGBM, XGBoost and CatBoost, `training-expectation` "
        "shows what expectation bounding does to trees, and `training-networks` compares losses of networks (`make "
        "models-report`). `tuning` compares `rankbound tune` with LightGBM tuned by Optuna (`python -m "
        "benchmarks.quality.tuning`), `recommenders` compares recommenders (`python -m "
        "benchmarks.quality.recommenders`), `recommenders-differences` has their differences to implicit's ALS, "
        "and `bounding-recommenders` shows what bounding does to them. `sampled-metrics` repeats what Walid "
        "Krichene and "
        "Steffen Rendle found in [On Sampled Metrics for Item Recommendation](https://doi.org/10.1145/3394486.3403226) "
        "(KDD 2020). `judging`, `predicted-labels` and `unjudged-stability` are simulations with runs of TREC-COVID "
        "(`python -m benchmarks.quality.judging`, `predicted_labels` and `unjudged_stability`).",
    ]
    for path in sorted(folder.glob("*.csv")):
        if path not in taken and path.stem not in INPUTS:
            lines += ["", *result_section(path)]
    return "\n".join(lines) + "\n"


# ---- the tables of studies -------------------------------------------------------------------------------------------


def study_section(path: Path, charts: dict[str, Any]) -> list[str]:
    """A study's table with its charts."""
    table = read_table(path)
    lines = [*result_section(path), *best_losses(table, find_study(path.stem))]
    for name, chart in draw_charts(path, table).items():
        charts[f"results/{name}.svg"] = chart
        lines += ["", f"![{name}]({name}.svg)"]
    for kept in sorted(path.parent.glob(f"{path.stem}--*.[ps][nv]g")):
        name = kept.stem.removeprefix(f"{path.stem}--")
        found = find_figure(name)
        figure, case = FIGURES[found], name.removeprefix(found).strip("-")  # the case is a measure, for instance
        title = f"{figure.title} ({case})" if case else figure.title
        lines += ["", f"![{title}]({kept.name})", "", f"**{title}.** {figure.caption} {figure.limits}".rstrip()]
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
        *markdown_table(["setting", *measures], rows),
    ]


def count_words(words: Counter[str]) -> str:
    """How many claims have each verdict."""
    order = ("confirmed", "partly confirmed", "mixed", "unclear", "refuted", *POINT_WORDS, "not tested")
    return ", ".join(f"{words[word]} {word}" for word in order if words[word])


if __name__ == "__main__":
    written = write_pages(Path(__file__).parent)
    print(f"{len(written)} files written")  # noqa: T201
