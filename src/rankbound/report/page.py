"""The report page: one HTML file with the findings in words, tables, figures, and every query.

The markup is in ``templates/`` (jinja2, autoescaped), the style sheet and the scripts in ``assets/``.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rankbound import __version__
from rankbound.difficulty import describe_query_types
from rankbound.display import plural
from rankbound.errors import DataError
from rankbound.evaluation.inference import FEWEST_FOR_INTERVALS, Inference
from rankbound.evaluation.score_tables import measures_of, without_unmeasured
from rankbound.evaluation.scores import QUERY_TYPE_CODES, ScoreMatrix
from rankbound.io import atomic_write, cache_folder, is_private_and_writable
from rankbound.measures import parse_measure
from rankbound.packages import DRAWING, check_packages, explain_missing, find_missing
from rankbound.report.against_random import random_table
from rankbound.report.coverage import coverage_cautions, coverage_table
from rankbound.report.figures.drawing import Tables, draw_figures
from rankbound.report.findings import Findings, describe_first, find_words, published_words, rival
from rankbound.report.packing import deflate, json_for_script, pack_measures, pack_pairs, pack_queries
from rankbound.report.page_tables import differences_table, leaderboard_table, means_table, published_table
from rankbound.report.scales import describe_scale
from rankbound.report.system_tests import Verdict, judge_systems
from rankbound.report.tables import BETTER, MARK, OUTSIDE, WORSE, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import polars as pl

    from rankbound.evaluation.leaderboards import Leaderboard
    from rankbound.report.figures.drawing import FigureOutcome

_SCRIPTS = ("data.js", "panels.js", "scatter.js", "pairs.js", "list.js", "figures.js", "main.js")
_MARK_TITLES = {
    BETTER: "significantly better",
    WORSE: "significantly worse",
    MARK: "significant",
    OUTSIDE: "outside our interval",
}
_FOLDED = ("differences", "coverage")  # tables inside a <details> element
# Rows of a table: a folded one starts open up to `unfolded`; `shown` are visible at first; `embedded` are in the page.
# Metadata of more than `metadata` characters, such as the names of many runs, are folded.
_LIMITS = {"unfolded": 12, "shown": 20, "embedded": 1000, "metadata": 400}
_LARGEST_CHART = 3_000_000  # characters of a chart's data; a larger chart is embedded as a picture
_LARGEST_VALUES = 9_000_000  # characters for the values of all queries; the page names the measures left out


@dataclass(frozen=True, eq=False)
class Report:
    """The content of a report, before it is rendered: words, tables, and the scores they come from."""

    scores: ScoreMatrix | None
    verdicts: tuple[Verdict, ...]
    findings: Findings
    tables: tuple[Table, ...]


def make_report(
    scores: pl.DataFrame | ScoreMatrix | None,
    results: pl.DataFrame | None = None,
    *,
    baseline: str | Sequence[str] | None = None,
    inference: Inference | None = None,
    board: Leaderboard | None = None,
) -> Report:
    """Describe scores, results compared with published numbers, or both, in words and tables.

    ``scores`` are a score matrix of runs, or a score table. Systems are compared with ``baseline``, or with the best
    one of each data set. ``inference`` is the policy for intervals and tests, and ``board`` the leaderboard of a matrix
    with several data sets, which comes first.
    """
    published = (published_table(results, inference),) if results is not None and results.height else ()
    if isinstance(scores, ScoreMatrix):
        report = _describe(scores, judge_systems(scores, baseline, inference), results, published, repeated=False)
        return report if board is None else _led_by(board, report)
    if scores is None or scores.height == 0 or (published and not measures_of(scores)):  # such as pairs of images only
        if not published:
            raise DataError("there is nothing to report: no score of any query, and no results")
        return Report(None, (), published_words(results), published)
    scores = without_unmeasured(scores)
    matrix = ScoreMatrix.from_table(_reported_first(scores, results))
    verdicts = judge_systems(matrix, baseline, inference)
    repeated = bool(published) and scores.select("fold", "seed").n_unique() > 1
    return _describe(matrix, verdicts, results, published, repeated=repeated)


def _describe(
    matrix: ScoreMatrix,
    verdicts: tuple[Verdict, ...],
    results: pl.DataFrame | None,
    published: tuple[Table, ...],
    *,
    repeated: bool,
) -> Report:
    differences = differences_table(verdicts)
    by_panel: dict[tuple[str, str], Verdict] = {}
    for verdict in verdicts:  # words, and marks of means, are about the first of several baselines
        by_panel.setdefault((verdict.data_set, verdict.measure), verdict)
    verdicts = tuple(by_panel.values())
    compared = (means_table(verdicts, repeated=repeated),) if verdicts else ()
    coverage = matrix.coverage_by_system
    policy = verdicts[0].inference if verdicts else Inference()
    best_first = [test.system for test in verdicts[0].systems] if verdicts else None
    random = random_table(matrix, policy, best_first)
    further = (table for table in (random, differences, coverage_table(coverage)) if table.rows)
    findings = find_words(matrix, verdicts, results)
    cautions = (*findings.cautions, *coverage_cautions(coverage, matrix.never_returned or 0))
    return Report(matrix, verdicts, replace(findings, cautions=cautions), (*published, *compared, *further))


def _led_by(board: Leaderboard, report: Report) -> Report:
    """The report with the leaderboard before everything else."""
    found = report.findings
    sentences = (found.headline, *found.sentences)
    findings = Findings(describe_first(board), sentences, (*board.notes, *found.cautions))
    return replace(report, findings=findings, tables=(leaderboard_table(board), *report.tables))


def _reported_first(scores: pl.DataFrame, results: pl.DataFrame | None) -> pl.DataFrame:
    """Put the measures of the results before the others: the findings are about the first measure."""
    measures = measures_of(scores)
    reported = results["measure"].unique(maintain_order=True).to_list() if results is not None else []
    first = [name for name in reported if name in measures]
    rest = [name for name in measures if name not in first]
    return scores.select(*(name for name in scores.columns if name not in measures), *first, *rest)


def write_page(
    path: str | PathLike[str],
    *,
    scores: pl.DataFrame | ScoreMatrix | None,
    results: pl.DataFrame | None = None,
    figures: Mapping[str, FigureOutcome] | None = None,
    title: str = "Ranking report",
    about: Mapping[str, str] | None = None,
    baseline: str | None = None,
    inference: Inference | None = None,
) -> Path:
    """Write the page of a score matrix or table (and results) to one HTML file and return its path.

    ``figures`` are by default those that the scores and results allow. ``about`` holds metadata for the end of the
    page, such as data, checksums, seed and protocol. The same input gives the same file, byte for byte.
    """
    report = make_report(scores, results, baseline=baseline, inference=inference)
    if figures is None:
        table = scores.to_table() if isinstance(scores, ScoreMatrix) else scores
        figures = {} if table is None or table.is_empty() else draw_figures(Tables(table, results))
    return write_report(path, report, figures=figures, title=title, about=about)


def write_report(
    path: str | PathLike[str],
    report: Report,
    *,
    figures: Mapping[str, FigureOutcome],
    title: str,
    about: Mapping[str, str] | None = None,
) -> Path:
    """Write the page of an existing report and existing figures."""
    text = _render_page(report, figures, title, about or {})
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def check_can_render() -> None:
    """Raise MissingPackageError where the package that renders pages is missing, before any work is done for a page."""
    check_packages("a page", "jinja2")


# ---- rendering -------------------------------------------------------------------------------------------------------


def _render_page(report: Report, figures: Mapping[str, FigureOutcome], title: str, about: Mapping[str, str]) -> str:
    cards, not_drawn = _figure_cards(figures)
    payload, left_out = _payload(report) if report.scores is not None else (None, ())
    metadata = dict(about)
    if left_out:
        metadata["Values of queries left out"] = f"{', '.join(left_out)}: they would make this page too large"
    if missing := find_missing(*DRAWING):
        metadata["Figures"] = explain_missing("a page with more figures", missing)
    metadata["Made with"] = f"rankbound {__version__}"
    page: str = (
        page_templates()
        .get_template("page.html")
        .render(
            version=__version__,
            title=title,
            scope=_scope(report),
            findings=report.findings,
            tables=report.tables,
            folded=_FOLDED,
            limits=_LIMITS,
            mark_titles=_MARK_TITLES,
            payload=payload,
            types=_type_key(report),
            figures=cards,
            papers=_papers(cards),
            metadata=metadata,
            not_drawn=not_drawn,
            vega=_packed_vega() if any(card.chart for card in (*cards["own"], *cards["general"])) else None,
            scripts=_SCRIPTS,
        )
    )
    return page


@cache
def page_templates() -> Any:
    """The jinja2 environment, which escapes everything except our own style sheet and scripts, and JSON for scripts."""
    check_can_render()
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rankbound.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["asset"] = lambda name: Markup(_asset(name))  # noqa: S704 - a file of this package
    environment.filters["json_for_script"] = lambda value: Markup(json_for_script(value))  # noqa: S704 - has no <, > or &
    return environment


def _asset(name: str) -> str:
    return resources.files("rankbound.report").joinpath("assets", name).read_text(encoding="utf-8").rstrip("\n")


def _scope(report: Report) -> str:
    if report.scores is None:
        return f"{len(report.tables[0].rows)} results"
    scores = report.scores
    parts = [plural(len(scores), "query"), plural(len(scores.systems), "system")]
    if len(scores.data_sets) > 1:
        parts.append(plural(len(scores.data_sets), "data set"))
    measures = scores.measures[:4] + (("…",) if len(scores.measures) > 4 else ())
    return " · ".join([*parts, *(scores.data_sets if len(scores.data_sets) == 1 else ()), ", ".join(measures)])


class _TypeEntry(NamedTuple):
    """A type of query that occurs: its index among the codes, its name, a sentence about it, how many there are."""

    code: int
    name: str
    text: str
    queries: int


def _type_key(report: Report) -> list[_TypeEntry]:
    if report.scores is None:
        return []
    types = report.scores.query_types(report.scores.lead)
    entries = [
        _TypeEntry(QUERY_TYPE_CODES.index(name), name, text, int((types == name).sum()))
        for name, text in describe_query_types(report.scores.type_quota).items()
    ]
    return [entry for entry in entries if entry.queries]


# ---- data inside the page --------------------------------------------------------------------------------------------


class _Payload(NamedTuple):
    """Data for the page's script: a description in JSON; the queries, values and pairs of systems, compressed."""

    page: dict[str, Any]
    queries: str
    values: list[str]
    pairs: list[str]


def _payload(report: Report) -> tuple[_Payload, tuple[str, ...]]:
    """Pack the data of the page; the second result names the measures that would make it too large."""
    from scipy.special import ndtri

    scores = report.scores
    assert scores is not None
    measures: list[dict[str, Any]] = []
    remaining = _LARGEST_VALUES
    for measure in pack_measures(scores):
        if measures and len(measure["packed"]) > remaining:
            break
        remaining -= len(measure["packed"])
        measures.append(measure)
    x, y = _axes(report)
    policy = report.verdicts[0].inference if report.verdicts else Inference()
    page = {
        "systems": scores.systems,
        "dataSets": scores.data_sets,
        "sources": [{"data": data, "variant": variant} for data, variant in scores.sources],
        "types": list(QUERY_TYPE_CODES),
        "measures": [
            {key: measure[key] for key in ("name", "lower", "digits")} | {"scale": describe_scale(measure["name"])}
            for measure in measures
        ],
        "plainLead": str(parse_measure(scores.lead).plain),
        "confidence": policy.confidence,
        "alpha": policy.alpha,
        "quantile": float(ndtri(0.5 + policy.confidence / 2)),  # of the normal distribution, for intervals of means
        "fewest": FEWEST_FOR_INTERVALS,  # queries of a type that has an interval
        "x": x,
        "y": y,
    }
    values = [measure["packed"] for measure in measures]
    pairs = _packed_pairs(report, scores.measures[: len(measures)])
    if pairs:
        page["pairDigits"] = [pair["digits"] for pair in pairs]
    packed = _Payload(page, pack_queries(scores), values, [pair["packed"] for pair in pairs])
    return packed, scores.measures[len(measures) :]


def _packed_pairs(report: Report, measures: Sequence[str]) -> list[dict[str, Any]]:
    """The pairs of systems by each measure; empty where there are fewer than three systems or there is a baseline."""
    scores = report.scores
    assert scores is not None
    levels = {(verdict.data_set, verdict.measure): verdict.pair_p_values for verdict in report.verdicts}
    if len(scores.systems) < 3 or all(p is None for p in levels.values()):
        return []
    return [
        pack_pairs(scores, measure, [levels.get((data_set, measure)) for data_set in scores.data_sets])
        for measure in measures
    ]


def _axes(report: Report) -> tuple[str, str]:
    """The first axes of the scatter plot: the best system against its rival in the findings, or against random."""
    assert report.scores is not None
    if not report.verdicts:
        return "q:items", f"s:{report.scores.systems[0]}"
    first = report.verdicts[0]
    other = rival(first)
    return ("q:expected" if other is None else f"s:{other.system}"), f"s:{first.best.system}"


# ---- figures ---------------------------------------------------------------------------------------------------------


class _Card(NamedTuple):
    """A figure of the page: a compressed Vega-Lite specification, or a PNG in base64 where that would be too large."""

    id: str
    title: str
    caption: str
    chart: str | None
    picture: str | None


def _figure_cards(figures: Mapping[str, FigureOutcome]) -> tuple[dict[str, list[_Card]], dict[str, str]]:
    """The figures of these data and those that hold for any data; then the reasons why others are not drawn."""
    cards: dict[str, list[_Card]] = {"own": [], "general": []}
    not_drawn = {}
    for outcome in figures.values():
        if outcome.chart is None:
            not_drawn[outcome.title] = outcome.reason or "unknown"
        else:
            cards["general" if outcome.holds_for_any_data else "own"].append(_card(outcome))
    return cards, not_drawn


def _papers(cards: Mapping[str, list[_Card]]) -> list[str]:
    """The papers that captions refer to."""
    captions = [card.caption for group in cards.values() for card in group]
    if not captions:
        return []
    from rankbound.report.figures.catalog import PAPERS

    return [paper for name, paper in PAPERS.items() if any(f"{name}, " in caption for caption in captions)]


def _card(outcome: FigureOutcome) -> _Card:
    from rankbound.report.figures.theme import apply_theme

    specification = json_for_script(apply_theme(outcome.chart))
    identity = "figure-" + re.sub(r"[^a-z0-9]+", "-", outcome.name.lower()).strip("-")
    large = len(specification) > _LARGEST_CHART
    return _Card(
        identity,
        outcome.title,
        outcome.caption,
        chart=None if large else deflate(specification.encode()),
        picture=_picture(outcome.chart) if large else None,
    )


def _picture(chart: Any) -> str:
    import base64
    import tempfile

    from rankbound.report.figures.saving import save_chart

    with tempfile.TemporaryDirectory() as folder:
        return base64.b64encode(save_chart(chart, Path(folder) / "chart.png").read_bytes()).decode()


@cache
def _packed_vega() -> str:
    """Vega's code, packed. Making it takes longer than a small page, so that it is kept in the cache folder.

    What is kept begins with its SHA-256; a file that is damaged is made again, and where none can be kept, none is.
    """
    import vl_convert

    folder = cache_folder("vega")
    kept = None
    if folder is not None and is_private_and_writable(folder):
        kept = folder / f"{version('vl-convert-python')}.packed"
        with suppress(OSError):
            digest, _, content = kept.read_bytes().partition(b"\n")
            if hashlib.sha256(content).hexdigest().encode() == digest:
                return content.decode("ascii")
    packed = deflate(vl_convert.javascript_bundle("window.rankboundEmbed = vegaEmbed;").encode())
    if kept is not None:
        with suppress(DataError), atomic_write(kept, durable=False) as temporary:
            temporary.write_text(f"{hashlib.sha256(packed.encode()).hexdigest()}\n{packed}", encoding="ascii")
    return packed
