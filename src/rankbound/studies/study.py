"""The Python entry to studies: `run_study` runs one, `plan_study` estimates one without running it.

>>> from rankbound.studies import known_studies
>>> known_studies()["thesis-5.1"][:28]
'Westerborg (2022), table 5.1'
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rankbound.data.catalog import look_for_data_in
from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.parallel import module_digests
from rankbound.report.figures.drawing import Tables
from rankbound.studies.claims import Verdict, judge_claims
from rankbound.studies.derived import DERIVED
from rankbound.studies.expansion import expand_tables, make_quick, select, with_files
from rankbound.studies.figures import check_figure_names, draw_study_figures, write_study_figures
from rankbound.studies.progress import ProgressCallback, StudyProgress
from rankbound.studies.results import examples_table, history_table, read_published, results_table, score_table
from rankbound.studies.runner import Tally, estimated_seconds, run_trials, tally_of, unfinished_slots, worker_count
from rankbound.studies.spec import Study
from rankbound.studies.store import Store, open_store
from rankbound.studies.study_files import load_study
from rankbound.studies.trial_spec import TrialSlot
from rankbound.studies.writing import write_results

if TYPE_CHECKING:
    from rankbound.studies.trial import Outcome
    from rankbound.studies.worker import Failure


@dataclass(frozen=True, eq=False)
class StudyResult:
    """The results of a study.

    Attributes
    ----------
    study:
        The study that was run; with ``quick`` the reduced one.
    tally:
        Numbers of trials: in total, done before this run, done by this run, and failed.
    results:
        A row per setting and measure: published, ours, difference, ci_low, ci_high, and a test against another setting.
    claims:
        Findings of the paper, each with the numbers of rows that agree, disagree or remain unclear.
    store:
        The folder in which the results of all trials are stored; `rankbound.studies.open_store` reads it.
    page:
        The HTML page, if one was written.
    files:
        The files that were written to the folder ``results``.
    notes:
        Messages about this run, such as tables that were left out because their data are absent.
    """

    study: Study
    tally: Tally
    results: pl.DataFrame
    claims: tuple[Verdict, ...]
    store: Path
    page: Path | None = None
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def selections(self) -> list[str]:
        """The data on which epochs and grid points were selected: validation, test or last."""
        return _selections(self.results)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, as ``rankbound reproduce --json`` prints them."""
        from rankbound import __version__

        return {
            "study": self.study.name,
            "title": self.study.title,
            "version": __version__,
            "store": str(self.store),
            "page": None if self.page is None else str(self.page),
            "trials": {
                "total": self.tally.total,
                "before": self.tally.before,
                "ran": self.tally.ran,
                "failed": self.tally.failed,
            },
            "claims": [verdict._asdict() | {"verdict": verdict.word} for verdict in self.claims],
            "rows": self.results.to_dicts(),
        }


@dataclass(frozen=True)
class StudyPlan:
    """What running a study would do.

    Attributes
    ----------
    study:
        The study; with ``quick`` the reduced one.
    trials, waiting:
        Number of trials, and of those that remain to be run.
    settings:
        Number of settings, each of which makes a row for every reported measure.
    workers, seconds:
        Number of workers, and the expected duration with them.
    store:
        The folder that the results would be stored in.
    tables:
        Number of trials of each table.
    notes:
        Messages, such as tables that would be left out.
    """

    study: Study
    trials: int
    waiting: int
    settings: int
    workers: int
    seconds: float
    store: Path
    tables: Mapping[str, int]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, as ``rankbound reproduce --dry-run --json`` prints them."""
        return {
            "study": self.study.name,
            "trials": self.trials,
            "waiting": self.waiting,
            "settings": self.settings,
            "workers": self.workers,
            "seconds": round(self.seconds),
            "store": str(self.store),
            "tables": dict(self.tables),
        }


def run_study(
    study: str | PathLike[str] | Study,
    *,
    quick: bool = False,
    only: Mapping[str, Any] | None = None,
    data: str | PathLike[str] | None = None,
    store: str | PathLike[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    modules: Sequence[str] = (),
    retry_failed: bool = False,
    run: bool = True,
    results: str | PathLike[str] | None = None,
    page: str | PathLike[str] | bool = False,
    progress: ProgressCallback | None = None,
) -> StudyResult:
    """Run a study and return its results next to the published numbers.

    Finished trials are stored as soon as they are done. A run that was interrupted at any moment, even by ``kill -9``,
    resumes when the study is run again with the same store. The numbers do not depend on the number of workers.

    Parameters
    ----------
    study:
        Name of a study that comes with the package (`known_studies`), path of a ``.toml`` file, or a `Study`.
    quick:
        Run the small part of the study that its file describes under ``[quick]``.
    only:
        Run these settings only: key -> value or list of values, as in ``{"loss": ["nDCG", "AP"], "fold": 0}``.
    data:
        Folder of the data sets, in place of the variable RANKBOUND_DATA.
    store:
        Folder for the results of the trials; ``rankbound-results/STUDY`` if None.
    jobs:
        Number of worker processes; all cores if None. With 0, trials run in this process: they then see measures that
        were registered in it.
    cluster:
        Run on Dask instead: ``"local:4"``, or the address of a scheduler, as ``"tcp://host:8786"``.
    modules:
        Names of modules to import, here and in every worker, before the study is read. Use it for modules that define
        measures of your own.
    retry_failed:
        Run trials that failed before again.
    run:
        With False, run nothing and report what is in the store.
    results:
        Folder to write ``STUDY.csv``, ``STUDY.md`` and the additional tables of the study to. Rows of an earlier
        ``STUDY.csv`` there remain, with a note, where this run has no result of its own for them.
    page:
        Path of an HTML page to write; with True, ``report.html`` in the store.
    progress:
        Called with a `StudyProgress` at each stage and after each trial; `show_progress` makes one for terminals.

    Returns
    -------
    StudyResult
        The results table, the tested claims, and where everything is stored.

    Raises
    ------
    ArgumentError
        An option or a key of the study is wrong.
    DataError
        Data are missing or damaged, the store is damaged, or another process is writing to it.

    Examples
    --------
    ``rb.run_study("thesis-5.1", quick=True, jobs=2).results``
    """
    report = _Reporter(progress)
    worker_count(jobs, cluster)
    page_path = _page_path(page)
    with data_folder(data):
        prepared = _prepare(study, quick, only, modules, report)
        folder = Path(store) if store is not None else prepared.default_store
        if results is not None and prepared.study.figures:
            check_figure_names(prepared.study.figures)
        if page is True:
            page_path = folder / "report.html"
        report(StudyProgress("data"))
        everything = [slot.identified() for slot in prepared.everything]
        slots = list(compress(everything, prepared.selected))
        published = read_published(prepared.study.published_path, prepared.keys)
        with open_store(folder, create=run) as opened:
            if run:
                with opened.locked():
                    opened.register(prepared.study.name, everything, partial=prepared.partial)
                    tally = _run(slots, opened, jobs, cluster, retry_failed, report)
            else:
                tally = tally_of(slots, opened)
            outputs = _Outputs(prepared, opened, slots, results_table(opened, slots, published))
            files = () if results is None else outputs.write_files(Path(results))
            written = None if page_path is None else outputs.write_page(page_path, report)
        claims = tuple(judge_claims(prepared.study.claims, outputs.table))
    return StudyResult(prepared.study, tally, outputs.table, claims, folder, written, files, tuple(report.notes))


def plan_study(
    study: str | PathLike[str] | Study,
    *,
    quick: bool = False,
    only: Mapping[str, Any] | None = None,
    data: str | PathLike[str] | None = None,
    store: str | PathLike[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    modules: Sequence[str] = (),
    progress: ProgressCallback | None = None,
) -> StudyPlan:
    """Count the trials of a study and estimate their duration, without running any; the data may be absent.

    The parameters are those of `run_study`. Trials that the store has already are counted where the data are present.
    """
    report = _Reporter(progress)
    workers = worker_count(jobs, cluster)
    with data_folder(data):
        prepared = _prepare(study, quick, only, modules, report, fetch=False)
        folder = Path(store) if store is not None else prepared.default_store
        slots = remaining = list(compress(prepared.everything, prepared.selected))
        opened: Store | None = None
        try:
            if (folder / "trials.sqlite").exists():
                opened = open_store(folder)
                slots = [slot.identified() for slot in with_files(slots, prepared.study.path.parent)]
                remaining = unfinished_slots(slots, opened)
        except (RankboundError, OSError) as error:
            report.note(f"note: {error}")
        try:
            seconds = estimated_seconds(remaining, slots, opened, workers)
        finally:
            if opened is not None:
                opened.close()
    tables = dict.fromkeys((slot.setting["table"] or prepared.study.name for slot in slots), 0)
    for slot in slots:
        tables[slot.setting["table"] or prepared.study.name] += 1
    settings = len({tuple(slot.setting.items()) for slot in slots})
    return StudyPlan(
        prepared.study, len(slots), len(remaining), settings, workers, seconds, folder, tables, tuple(report.notes)
    )


# ---- steps -----------------------------------------------------------------------------------------------------------


class _Reporter:
    """Passes reports on to the caller's callback and collects the notes."""

    def __init__(self, progress: ProgressCallback | None) -> None:
        self._progress = progress
        self.notes: list[str] = []

    def __call__(self, report: StudyProgress) -> None:
        if self._progress is not None:
            self._progress(report)

    def note(self, message: str) -> None:
        self.notes.append(message)
        self(StudyProgress("note", message))


@dataclass(frozen=True)
class _Prepared:
    """A study that was read and expanded; a partial one has only the tables that ``only`` selects trials of.

    ``selected`` says which trials those are; ``planned`` are those of the whole study, also of tables whose data are
    absent; ``keys`` are the columns that describe the settings of the whole study.
    """

    study: Study
    everything: list[TrialSlot]
    selected: list[bool]
    planned: list[TrialSlot]
    keys: frozenset[str]
    partial: bool

    @property
    def default_store(self) -> Path:
        return Path("rankbound-results") / self.study.store_name


def _prepare(
    study: str | PathLike[str] | Study,
    quick: bool,
    only: Mapping[str, Any] | None,
    modules: Sequence[str],
    report: _Reporter,
    *,
    fetch: bool = True,
) -> _Prepared:
    report(StudyProgress("study"))
    digests = module_digests(modules)  # first, because the study may name measures that they define
    loaded = study if isinstance(study, Study) else load_study(os.fspath(study))
    wanted = dict(loaded.quick.only) | dict(only or {}) if quick else dict(only or {})
    loaded = make_quick(loaded) if quick else loaded
    expansion = expand_tables(loaded, False, digests, report.note)
    whole = expansion.slots
    chosen = {id(slot) for slot in select(whole, wanted)}  # refuses wrong keys before data are read
    tables = {_table_of(slot) for slot in whole if id(slot) in chosen}
    everything = [slot for slot in whole if _table_of(slot) in tables]  # data sets of other tables may be absent
    selected = [id(slot) in chosen for slot in everything]
    keys = frozenset(key for slot in whole for key in slot.setting)
    located = with_files(everything, loaded.path.parent) if fetch else everything
    return _Prepared(loaded, located, selected, expansion.planned, keys, len(everything) < len(whole))


def _table_of(slot: TrialSlot) -> tuple[str, str]:
    return slot.setting["table"], slot.setting["data"]


@contextmanager
def data_folder(data: str | PathLike[str] | None) -> Iterator[None]:
    """Look for data sets in a folder, in place of RANKBOUND_DATA, for the duration of a study."""
    if data is None:
        yield
        return
    if not Path(data).is_dir():
        raise ArgumentError(f"data: {os.fspath(data)} is not a folder")
    before = look_for_data_in(str(Path(data).resolve()))
    try:
        yield
    finally:
        look_for_data_in(before)


def _page_path(page: str | PathLike[str] | bool) -> Path | None:
    """Check the path of the page before any work is done for it."""
    if isinstance(page, bool):
        return None
    path = Path(page)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"page must be an .html file, got {path}")
    if path.is_dir():
        raise ArgumentError(f"page must be a file, got the folder {path}")
    return path


def _run(
    slots: list[TrialSlot], store: Store, jobs: int | None, cluster: str | None, retry_failed: bool, report: _Reporter
) -> Tally:
    remaining = unfinished_slots(slots, store, retry_failed)
    try:
        on_result = _trial_reports(report, len(remaining))
        return run_trials(slots, store, jobs=jobs, cluster=cluster, retry_failed=retry_failed, on_result=on_result)
    except KeyboardInterrupt:
        done = sum(state == "done" for state in store.states().values())
        report.note(f"interrupted; {done} finished trials are in {store.folder}; running the study again resumes it")
        raise


def _trial_reports(report: _Reporter, total: int) -> Callable[[TrialSlot, Outcome | Failure], None]:
    done = 0

    def on_result(slot: TrialSlot, result: Outcome | Failure) -> None:
        nonlocal done
        done += 1
        report(StudyProgress("trials", done=done, total=total, slot=slot, result=result))

    if total:
        report(StudyProgress("trials", total=total))
    return on_result


@dataclass(frozen=True, eq=False)
class _Outputs:
    """What is written about these slots of a study; the store is read for it once, if at all."""

    prepared: _Prepared
    store: Store
    slots: list[TrialSlot]
    table: pl.DataFrame

    @cached_property
    def tables(self) -> Tables:
        """What pages and figures are made from."""
        store, slots = self.store, self.slots
        results = self.table.drop_nulls("ours")
        return Tables(score_table(store, slots), results, history_table(store, slots), examples_table(store, slots))

    def write_files(self, folder: Path) -> tuple[Path, ...]:
        """Write the tables of results and the figures of the study."""
        study = self.prepared.study
        derived = {name: DERIVED[name](self.store, self.slots, self.table) for name in study.derived}
        files = write_results(folder, study, self.slots, self.table, derived, self.prepared.planned)
        if study.figures:
            files += write_study_figures(study.name, study.figures, folder, self.tables)
        return tuple(files)

    def write_page(self, page: Path, report: _Reporter) -> Path | None:
        """Write the page about these trials; None, with a note, if there are too few results for one."""
        from rankbound.report.page import write_page

        report(StudyProgress("page"))
        study, selected = self.prepared.study, " and ".join(_selections(self.table))
        about = {"Study": study.title, "Results from": str(self.store.folder), "Selected on": selected}
        try:
            tables = self.tables
            figures = draw_study_figures(tables)
            return write_page(
                page, scores=tables.scores, results=tables.results, figures=figures, title=study.name, about=about
            )
        except DataError as error:
            report.note(f"no page was written: {error}")
            return None


def _selections(table: pl.DataFrame) -> list[str]:
    return sorted(set(table["selection"].to_list())) if "selection" in table.columns else []
