"""rankbound report: one page with words, tables, figures and every query, from a store or from runs."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rankbound.cli import options, output
from rankbound.cli.protocol_options import takes_protocol
from rankbound.display import plural, table_of
from rankbound.errors import ArgumentError, DataError
from rankbound.packages import DRAWING, check_packages
from rankbound.protocol import DEFAULT_MEASURES, Protocol

if TYPE_CHECKING:
    import polars as pl

    from rankbound.evaluation.inference import Inference
    from rankbound.evaluation.leaderboards import Leaderboard
    from rankbound.evaluation.scores import ScoreMatrix
    from rankbound.report.figures.drawing import FigureOutcome, Tables
    from rankbound.studies.store import Store


class Sample(StrEnum):
    """What is a sample, where systems are ranked over several data sets."""

    queries = "queries"
    data_sets = "data sets"


@takes_protocol()
def report(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE | QRELS RUN... | DATA_SET...",
            help="A folder of results; judgments and one or more runs; or a folder with qrels and runs per data set.",
        ),
    ],
    page: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The page, an .html file.")],
    measures: options.Measures = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="System to compare the others with.  [default: the best of each data set]"),
    ] = None,
    study: Annotated[str | None, typer.Option(metavar="NAME", help="One study of the store; all if not given.")] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Of the page.")] = None,
    figures: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write every figure there too, as .svg and .html.")
    ] = None,
    tables: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write the tables there too, as .md, .csv and .tex.")
    ] = None,
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    type_quota: options.TypeQuota = None,
    over: Annotated[
        Sample, typer.Option(help="What is a sample, for the ranks of systems over several data sets.")
    ] = Sample.queries,
    confidence: options.Confidence = 0.95,
    interval: options.Interval = options.IntervalMethod.bca,
    test: options.Test = options.TestName.t,
    correction: options.Correction = options.CorrectionName.holm,
    resamples: options.Resamples = 10_000,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Write one self-contained page: what was found in words, tables, figures, and a list of all queries.

    From a folder that reproduce has filled, or from judgments and runs. Nothing on the page is fetched from elsewhere.

    Several data sets are folders with a file named qrels (with any ending) and runs, which have the same name in each.
    The page then begins with a leaderboard: the mean of each system over all data sets by a chance-corrected measure,
    the ranks that it can have, and which systems are tied for first.

    \b
    Examples:
      rankbound report results/ -o report.html --figures figures/
      rankbound report qrels.txt bm25.txt dense.txt -m nDCG@10 -o report.html --tables tables/
      rankbound report scifact/ nfcorpus/ trec-covid/ -m "EM(nDCG@10)" -o report.html
    """
    if figures is not None:
        check_packages("report", "jinja2", *DRAWING)
    check_page_path(page)
    for folder in (figures, tables):
        if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
            raise ArgumentError(f"{folder}: is a file, expected a folder")
    policy = options.inference(confidence, interval, test, correction, resamples, seed)
    with output.working("reading ..."):
        if any(map(_judgments_in, inputs)):
            found = _from_data_sets(inputs, measures or list(DEFAULT_MEASURES), protocol, type_quota, (over, policy))
        elif len(inputs) == 1:
            found = _from_store(inputs[0], study, measures)
        else:
            found = _from_runs(inputs, measures or list(DEFAULT_MEASURES), protocol, type_quota)
    with output.working("writing the page ..."):
        written = _write(found, page, title or found.title, baseline, policy, figures, tables)
    output.print_warnings(written.get("warnings", ()))
    if as_json:
        output.print_json(written)
        return
    if found.board is not None:
        output.show_table(table_of(found.board))
        output.print_note("")
    output.print_note("\n".join([written["headline"], *written["findings"], *written["cautions"]]))
    for name, reason in written["not_drawn"].items():
        output.print_note(f"Not drawn: {name}: {reason}")
    for kind, folder in (("figures", figures), ("tables", tables)):
        if folder is not None:
            output.print_note(f"{len(written[kind])} files of {kind} in {folder}")
    output.print_note(f"Page: {page}")


def check_page_path(path: str | None) -> None:
    """Refuse a page that cannot be written before any work is done for it."""
    if path is None:
        return
    from rankbound.report.page import check_can_render

    check_can_render()
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"{path}: a page is an .html file; choose this ending")
    if Path(path).is_dir():
        raise ArgumentError(f"{path}: is a folder, expected a file name")


class _Found(NamedTuple):
    """What a page is made from; several studies are told together, and drawn one by one."""

    title: str
    about: dict[str, str]
    whole: Tables
    studies: dict[str, Tables]
    matrix: ScoreMatrix | None = None  # of runs
    board: Leaderboard | None = None  # of several data sets


# endings of runs that are not part of the name of a system
_ENDINGS = (".gz", ".zst", ".run", ".txt", ".trec", ".csv", ".tsv", ".parquet", ".json", ".jsonl")


def _judgments_in(folder: str) -> list[Path]:
    """The files named qrels, with any ending, in a folder; nothing for what is no folder."""
    if "\0" in folder or not Path(folder).is_dir():
        return []
    return sorted(file for file in Path(folder).iterdir() if file.name.partition(".")[0] == "qrels" and file.is_file())


def _system_name(file: Path) -> str:
    name = file.name
    while name.endswith(_ENDINGS):
        name = name.rpartition(".")[0]
    return name


def _from_data_sets(
    folders: list[str],
    measures: list[str],
    protocol: Protocol,
    type_quota: float | None,
    policy: tuple[str, Inference],
) -> _Found:
    from rankbound.evaluation.alignment import align_runs
    from rankbound.evaluation.leaderboards import chance_corrected, leaderboard_of
    from rankbound.evaluation.scores import join_data_sets
    from rankbound.measures.measure import parse_measure
    from rankbound.report.figures.drawing import Tables

    names = [str(parse_measure(name)) for name in measures]
    if (common := chance_corrected(names)) is None:
        common = f"EM({parse_measure(names[0]).plain})"
        measures = [*measures, str(parse_measure(common))]
    matrices = {}
    for folder in folders:
        judgments = _judgments_in(folder)
        if len(judgments) != 1:
            raise ArgumentError(f"{folder}: a data set is a folder with one file named qrels, got {len(judgments)}")
        files = [Path(file) for file in options.files_in([folder]) if Path(file) != judgments[0]]
        runs = {_system_name(file): str(file) for file in files}
        if not runs or len(runs) < len(files):
            raise ArgumentError(f"{folder}: needs runs of different names next to {judgments[0].name}")
        data = Path(folder).resolve().name
        if data in matrices:
            raise ArgumentError(f"{folder}: two data sets are named {data}")
        matrix = align_runs(
            str(judgments[0]), [*runs.values()], measures, protocol, names=[*runs], data=data, type_quota=type_quota
        )
        matrices[data] = matrix.with_common_queries()
    scores = join_data_sets(matrices)
    over, inference = policy
    board = leaderboard_of(scores, common, over=over, inference=inference)
    about = {"Data sets": ", ".join(folders)}
    about |= {"Signature of " + name: signature for name, signature in scores.signature.items()}
    tables = Tables(scores.to_table())
    title = f"Leaderboard of {plural(len(matrices), 'data set')}"
    return _Found(title, about, tables, {title: tables}, scores, board)


def _from_store(folder: str, study: str | None, measures: list[str] | None) -> _Found:
    import polars as pl

    from rankbound.report.figures.drawing import Tables
    from rankbound.studies.store import open_store

    if not Path(folder).is_dir():
        raise ArgumentError(f"{folder}: is no folder of results; with a file of judgments, name one or more runs too")
    with open_store(folder) as store:
        names = [study] if study is not None else store.studies()
        studies = {name: _of_study(store, name, measures) for name in names}
    studies = {name: tables for name, tables in studies.items() if tables.scores is not None}
    if not studies:
        raise DataError(f"{folder}: has no finished trial yet; rankbound reproduce runs them")
    whole = Tables(
        *(
            pl.concat([getattr(tables, name) for tables in studies.values()], how="diagonal_relaxed")
            for name in ("scores", "results", "history", "examples")
        )
    )
    return _Found(", ".join(studies), {"Results from": folder}, whole, studies)


def _of_study(store: Store, study: str, measures: list[str] | None) -> Tables:
    """The tables of a study; without scores if it has no finished trial."""
    from rankbound.report.figures.drawing import Tables

    scores = store.score_table(study)
    if scores.is_empty():
        return Tables()
    if measures:
        scores = _select_measures(scores, measures)
    results = store.results(study, _read_published(store, study)).drop_nulls("ours")
    return Tables(scores, results, store.history_table(study), store.examples_table(study))


def _read_published(store: Store, study: str) -> pl.DataFrame | None:
    """The numbers that a study is compared with; None for a study whose file is not known here."""
    from rankbound.studies.results import read_published
    from rankbound.studies.study_files import load_study

    try:
        path = load_study(study.removesuffix("-quick")).published_path
    except ArgumentError:
        return None
    return read_published(path, {key for slot in store.slots(study) for key in slot.setting})


def _select_measures(scores: pl.DataFrame, measures: list[str]) -> pl.DataFrame:
    """The table with these measures alone, in this order."""
    from rankbound.evaluation.score_tables import measures_of

    known = measures_of(scores)
    unknown = [name for name in measures if name not in known]
    if unknown:
        raise ArgumentError(f"the results have no {', '.join(unknown)}; they have {', '.join(known)}")
    return scores.select(*(name for name in scores.columns if name not in known), *measures)


def _from_runs(paths: list[str], measures: list[str], protocol: Protocol, type_quota: float | None) -> _Found:
    from rankbound.data.sources import to_frame
    from rankbound.evaluation.alignment import align_runs, run_names
    from rankbound.measures.measure import parse_measure
    from rankbound.report.figures.drawing import Tables

    options.check_inputs(*paths)
    for name in measures:
        parse_measure(name)  # a slip in a name is told before large files are read
    runs = [to_frame(path, "score") for path in paths[1:]]
    names = run_names(paths[1:])
    scores = align_runs(
        paths[0],
        runs,
        measures,
        protocol,
        names=names,
        data=Path(paths[0]).name,
        type_quota=type_quota,
        against_random=True,
    )
    about = {"Judgments": paths[0], "Runs": ", ".join(paths[1:])}
    about |= {"Signature of " + name: signature for name, signature in scores.signature.items()}
    if scores.standardized_by:
        about["References"] = scores.standardized_by
    if type_quota is not None:
        about["Type quota"] = str(type_quota)
    if scores.left_out:
        about["Left out"] = f"{scores.left_out} queries that some runs lack"
    title = "Comparison of runs" if len(names) > 1 else names[0]
    scores = scores.with_common_queries()
    tables = Tables(scores.to_table())
    return _Found(title, about, tables, {title: tables}, scores)


def _write(
    found: _Found,
    page: str,
    title: str,
    baseline: str | None,
    inference: Inference,
    figures: str | None,
    tables: str | None,
) -> dict[str, Any]:
    from rankbound.report.figures.drawing import write_figures
    from rankbound.report.numbers import describe_inference
    from rankbound.report.page import make_report, write_report
    from rankbound.report.tables import write_tables

    scores = found.whole.scores if found.matrix is None else found.matrix
    report = make_report(scores, found.whole.results, baseline=baseline, inference=inference, board=found.board)
    drawn = _draw(found.studies)
    write_report(page, report, figures=drawn, title=title, about=found.about | describe_inference(inference))
    return {
        "page": page,
        "headline": report.findings.headline,
        "findings": list(report.findings.sentences),
        "cautions": list(report.findings.cautions),
        **({} if found.matrix is None else _coverage(found.matrix)),
        **({} if found.board is None else {"leaderboard": found.board.to_dict()}),
        "figures": [str(file) for file in write_figures(drawn, figures)] if figures else [],
        "not_drawn": {outcome.title: outcome.reason for outcome in drawn.values() if outcome.chart is None},
        "tables": [str(file) for file in write_tables(report.tables, tables)] if tables else [],
    }


def _coverage(scores: ScoreMatrix) -> dict[str, Any]:
    return {
        "coverage": {run: coverage.to_dict() for run, coverage in scores.coverage_by_system.items()},
        "left_out_queries": scores.left_out,
        "never_returned_queries": scores.never_returned,
        "warnings": list(scores.coverage_warnings()),
    }


def _draw(studies: dict[str, Tables]) -> dict[str, FigureOutcome]:
    """The figures of every study, with its name before theirs where there are several."""
    from rankbound.studies.figures import draw_study_figures

    drawn = {}
    for study, tables in studies.items():
        for name, outcome in draw_study_figures(tables).items():
            if len(studies) > 1:
                outcome = replace(outcome, name=f"{study}-{name}", title=f"{study}: {outcome.title}")
            drawn[outcome.name] = outcome
    return drawn
