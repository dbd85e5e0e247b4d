"""The report page: one HTML file with what was found in words, tables, figures, and every query."""

from __future__ import annotations

import html
import importlib.util
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound import __version__
from rankbound.analysis.score_tables import measures_of, without_unmeasured
from rankbound.data.files import atomic_write
from rankbound.errors import ArgumentError, DataError
from rankbound.measures import parse_measure
from rankbound.report.findings import Findings, find_words, published_words, rival
from rankbound.report.lined_up import QUERY_TYPE_CODES, LinedUp, line_up
from rankbound.report.packing import deflate, json_for_script, pack_measures, pack_queries
from rankbound.report.system_tests import Verdict, judge_systems
from rankbound.report.tables import Table, differences_table, means_table, published_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import polars as pl

    from rankbound.report.figures import FigureOutcome

__all__ = ["Report", "draw_figures", "make_report", "write_page", "write_report"]

_SCRIPTS = ("data.js", "panels.js", "scatter.js", "list.js", "figures.js", "main.js")
_OPEN_ROWS = 12  # longer tables of differences are folded away at first
_LARGEST_CHART = 3_000_000  # characters of a chart's data; a larger chart goes in as a picture
_ROOM = 9_000_000  # characters for the values of all queries; measures beyond are left out, and the page says so


@dataclass(frozen=True, eq=False)
class Report:
    """What a report says, before it takes a form: words, tables, and the scores they come from."""

    scores: LinedUp | None
    verdicts: tuple[Verdict, ...]
    findings: Findings
    tables: tuple[Table, ...]


def make_report(
    scores: pl.DataFrame | None, results: pl.DataFrame | None = None, *, baseline: str | None = None
) -> Report:
    """Find words and tables for a score table, for results beside published numbers, or for both.

    Systems are compared with ``baseline``, or with the best one of each data set.
    """
    published = (published_table(results),) if results is not None and results.height else ()
    if scores is None or scores.height == 0 or (published and not measures_of(scores)):  # such as pairs of images only
        if not published:
            raise DataError("there is nothing to report: no score of any query, and no results")
        return Report(None, (), published_words(results), published)
    scores = without_unmeasured(scores)
    lined_up = line_up(_reported_first(scores, results))
    verdicts = judge_systems(lined_up, baseline)
    repeated = bool(published) and scores.select("fold", "seed").n_unique() > 1
    compared = (means_table(verdicts, repeated=repeated),) if verdicts else ()
    differences = differences_table(verdicts)
    tables = (*published, *compared, *((differences,) if differences.rows else ()))
    return Report(lined_up, verdicts, find_words(lined_up, verdicts, results), tables)


def _reported_first(scores: pl.DataFrame, results: pl.DataFrame | None) -> pl.DataFrame:
    """The table with the measures of the results before others: the first one leads."""
    measures = measures_of(scores)
    reported = results["measure"].unique(maintain_order=True).to_list() if results is not None else []
    first = [name for name in reported if name in measures]
    rest = [name for name in measures if name not in first]
    return scores.select(*(name for name in scores.columns if name not in measures), *first, *rest)


def write_page(
    path: str | PathLike[str],
    *,
    scores: pl.DataFrame | None,
    results: pl.DataFrame | None = None,
    history: pl.DataFrame | None = None,
    examples: pl.DataFrame | None = None,
    title: str = "Ranking report",
    about: Mapping[str, str] | None = None,
    baseline: str | None = None,
) -> Path:
    """Write the page of a score table (and results, history, examples) to one HTML file; give back where it is.

    ``about`` are metadata for the end of the page: data and checksums, seed, protocol. The same input gives the same
    file,
    byte for byte.
    """
    report = make_report(scores, results, baseline=baseline)
    figures = draw_figures(scores, results, history, examples)
    return write_report(path, report, figures=figures, title=title, about=about)


def write_report(
    path: str | PathLike[str],
    report: Report,
    *,
    figures: Mapping[str, FigureOutcome],
    title: str,
    about: Mapping[str, str] | None = None,
) -> Path:
    """Write the page of a report and figures that are made already."""
    text = _page_text(report, figures, title, about or {})
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def draw_figures(
    scores: pl.DataFrame | None,
    results: pl.DataFrame | None = None,
    history: pl.DataFrame | None = None,
    examples: pl.DataFrame | None = None,
    *,
    required: bool = False,
) -> Mapping[str, FigureOutcome]:
    """All figures that the tables allow; none where altair is not installed, unless they are ``required``."""
    if not _can_draw():
        if required:
            raise ArgumentError("figures need altair and vl-convert; install rankbound[report]")
        return {}
    if scores is None or scores.height == 0:
        return {}
    from rankbound.report.figures import all_figures

    return all_figures(scores, results, history, examples)


def _can_draw() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("altair", "vl_convert"))


# ---- the page --------------------------------------------------------------------------------------------------------


def _page_text(report: Report, figures: Mapping[str, FigureOutcome], title: str, about: Mapping[str, str]) -> str:
    drawn, undrawn = _figures(figures)
    payload, left_out = _payload(report) if report.scores is not None else ("", ())
    metadata = dict(about)
    if left_out:
        metadata["Values of queries left out"] = f"{', '.join(left_out)}: they would make this page too large"
    for name, reason in undrawn.items():
        metadata[f"Not drawn: {name}"] = reason
    if not _can_draw():
        metadata["Figures"] = "more of them with altair and vl-convert: pip install 'rankbound[report]'"
    metadata["Made with"] = f"rankbound {__version__}"
    parts = {
        "title": html.escape(title),
        "generator": html.escape(f"rankbound {__version__}"),
        "scope": html.escape(_scope(report)),
        "style": _asset("page.css"),
        "theme": _asset("theme.js"),
        "findings": _words(report.findings),
        "tables": _tables(report.tables),
        "explorer": _asset("explorer.html") if report.scores is not None else "",
        "figures": drawn,
        "about": _definitions(metadata),
        "payload": payload + (_vega() if "data-chart" in drawn else ""),
        "script": "\n".join(_asset(name) for name in _SCRIPTS),
    }
    # in one pass: what is filled in is never looked at again
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match.group(1)], _asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("rankbound.report").joinpath("assets", name).read_text(encoding="utf-8").rstrip("\n")


def _scope(report: Report) -> str:
    if report.scores is None:
        return f"{len(report.tables[0].rows)} results"
    scores = report.scores
    counts = [(len(scores), "query", "queries"), (len(scores.systems), "system", "systems")]
    if len(scores.data_sets) > 1:
        counts.append((len(scores.data_sets), "data set", "data sets"))
    parts = [f"{number:,} {one if number == 1 else many}" for number, one, many in counts]
    measures = scores.measures[:4] + (("…",) if len(scores.measures) > 4 else ())
    return " · ".join([*parts, *(scores.data_sets if len(scores.data_sets) == 1 else ()), ", ".join(measures)])


def _words(findings: Findings) -> str:
    parts = [f'<p class="headline">{html.escape(findings.headline)}</p>']
    if findings.sentences:
        parts.append('<ul class="sentences">')
        parts += [f"<li>{html.escape(sentence)}</li>" for sentence in findings.sentences]
        parts.append("</ul>")
    if findings.cautions:
        parts.append('<div class="cautions" role="note">')
        parts += [f"<p>{html.escape(caution)}</p>" for caution in findings.cautions]
        parts.append("</div>")
    return "\n".join(parts)


def _tables(tables: Sequence[Table]) -> str:
    shown = []
    for table in tables:
        if table.name == "differences":
            unfolded = " open" if len(table.rows) <= _OPEN_ROWS else ""
            shown.append(f"<details{unfolded}><summary>{table.title}</summary>{table.to_html()}</details>")
        else:
            shown.append(f"<div>{table.to_html()}</div>")
    return '<div class="tables">' + "\n".join(shown) + "</div>"


def _definitions(metadata: Mapping[str, str]) -> str:
    pairs = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(text))}</dd>" for name, text in metadata.items())
    return f'<dl class="about">{pairs}</dl>'


# ---- data inside the page --------------------------------------------------------------------------------------------


def _payload(report: Report) -> tuple[str, tuple[str, ...]]:
    """Script elements that hold the queries and their values; measures for which there was no room."""
    scores = report.scores
    assert scores is not None
    measures: list[dict[str, Any]] = []
    room = _ROOM
    for measure in pack_measures(scores):
        if measures and len(measure["packed"]) > room:
            break
        room -= len(measure["packed"])
        measures.append(measure)
    x, y = _axes(report)
    page = {
        "systems": scores.systems,
        "dataSets": scores.data_sets,
        "sources": [{"data": data, "variant": variant} for data, variant in scores.sources],
        "types": list(QUERY_TYPE_CODES),
        "measures": [{key: measure[key] for key in ("name", "lower", "digits")} for measure in measures],
        "plainLead": str(parse_measure(scores.lead).plain),
        "x": x,
        "y": y,
    }
    elements = [f'<script type="application/json" id="page">{json_for_script(page)}</script>']
    elements.append(_held("page-queries", pack_queries(scores)))
    elements += [_held(f"page-values-{place}", measure["packed"]) for place, measure in enumerate(measures)]
    return "\n".join(elements), scores.measures[len(measures) :]


def _axes(report: Report) -> tuple[str, str]:
    """What the scatter shows at first: the best system against the one that words set it against, or against
    probability."""
    assert report.scores is not None
    if not report.verdicts:
        return "q:items", f"s:{report.scores.systems[0]}"
    first = report.verdicts[0]
    other = rival(first)
    return ("q:expected" if other is None else f"s:{other.system}"), f"s:{first.best.system}"


def _held(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>'


# ---- figures ---------------------------------------------------------------------------------------------------------


def _figures(figures: Mapping[str, FigureOutcome]) -> tuple[str, dict[str, str]]:
    """The galleries, and the figures that could not be drawn with the reason."""
    own: list[str] = []
    general: list[str] = []
    undrawn = {}
    for outcome in figures.values():
        if outcome.chart is None:
            undrawn[outcome.title] = outcome.reason or "unknown"
        else:
            (general if _holds_for_any_data(outcome) else own).append(_card(outcome))
    if not own and not general:
        return "", undrawn
    parts = ['<section id="figures" aria-labeledby="figures-title"><h2 id="figures-title">Figures</h2>']
    if own:
        parts.append(f'<div class="gallery">{"".join(own)}</div>')
    if general:
        summary = "<summary>Figures that hold for any data: bounds, distributions and boundings of measures</summary>"
        parts.append(f'<details class="general">{summary}<div class="gallery">{"".join(general)}</div></details>')
    return "\n".join((*parts, "</section>")), undrawn


def _holds_for_any_data(outcome: FigureOutcome) -> bool:
    from rankbound.report.figures import FIGURES

    names = (name for name, figure in FIGURES.items() if not figure.needs)
    return any(outcome.name == name or outcome.name.startswith(f"{name}-") for name in names)


def _card(outcome: FigureOutcome) -> str:
    from rankbound.report.figures import themed

    specification = json_for_script(themed(outcome.chart))
    identity = "figure-" + re.sub(r"[^a-z0-9]+", "-", outcome.name.lower()).strip("-")
    title, caption = html.escape(outcome.title), html.escape(outcome.caption)
    large = len(specification) > _LARGEST_CHART
    if large:
        drawing = f'<img alt="{title}" src="data:image/png;base64,{_picture(outcome.chart)}">'
        held, kind = "", ""
    else:
        drawing = '<p class="note">Drawn when it comes into view.</p>'
        held, kind = _held(f"{identity}-chart", deflate(specification.encode())), " data-chart"
    return (
        f'<figure class="panel" id="{identity}"{kind} aria-label="{title}"><figcaption>{title}'
        f'<span class="tag" hidden>filtered</span></figcaption><div class="drawing">{drawing}</div>'
        f'<p class="note">{caption}</p>{held}</figure>'
    )


def _picture(chart: Any) -> str:
    import base64
    import tempfile

    from rankbound.report.figures import save_chart

    with tempfile.TemporaryDirectory() as folder:
        return base64.b64encode(save_chart(chart, Path(folder) / "chart.png").read_bytes()).decode()


def _vega() -> str:
    import vl_convert

    return _held("page-vega", deflate(vl_convert.javascript_bundle("window.rankboundEmbed = vegaEmbed;").encode()))
