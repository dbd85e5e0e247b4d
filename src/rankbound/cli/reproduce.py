"""rankbound reproduce: run a study, and print published numbers beside ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output
from rankbound.cli.kernels import ready_kernels
from rankbound.cli.report import check_page_path
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    import polars as pl

    from rankbound.experiments.expansion import Planned
    from rankbound.experiments.runner import Tally
    from rankbound.experiments.spec import Study
    from rankbound.experiments.store import Placed, Store

__all__ = ["parse_only", "reproduce", "selections"]


def reproduce(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="A study's name (--list), or a .toml file of your own.")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="The studies that come with rankbound.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many trials, and about how long.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small part of the study, in under two minutes.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Only these settings; repeat a key for several of its values."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with the data sets, in place of RANKBOUND_DATA.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where results are kept.  [default: rankbound-results/STUDY]")
    ] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Worker processes.  [default: all cores]")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDR", help="Dask: local:N, or a scheduler's tcp://host:port.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run trials again that failed before.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing, show what is done so far.")] = False,
    results: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write STUDY.csv and STUDY.md into this folder.")
    ] = None,
    page: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page about it.  [default: report.html in the store]")
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Write no page.")] = False,
    as_json: options.Json = False,
) -> None:
    """Run a study and print the published numbers beside ours.

    What is finished is kept: stopped at any moment, the same command goes on where it was.

    \b
    Examples:
      rankbound reproduce --list
      rankbound reproduce thesis-5.1 --quick
      rankbound reproduce insights-fig1 --only nsr=1,fold=0 --jobs 2
    """
    if data is not None:
        if not Path(data).is_dir():
            raise ArgumentError(f"--data: {data} is not a folder")
        os.environ["RANKBOUND_DATA"] = str(Path(data).resolve())  # workers look there, too
    if show_list:
        _print_list(as_json)
        return
    if study is None:
        raise ArgumentError("name a study; rankbound reproduce --list shows them")
    from rankbound.experiments.expansion import expand, quickened, select
    from rankbound.experiments.spec import load_study

    wanted: dict[str, Any] = parse_only(only or [])
    with output.working("reading the study ..."):
        chosen = load_study(study)
        asked = dict(chosen.quick.only) | wanted if quick else wanted
        chosen = quickened(chosen) if quick else chosen
        everything = expand(chosen, fetch=not dry_run, tell=lambda text: typer.echo(text, err=True))
        planned = select(everything, asked)
    folder = Path(store) if store is not None else Path("rankbound-results") / chosen.store_name
    check_page_path(page)
    if dry_run:
        _print_dry_run(chosen, planned, folder, jobs, cluster, as_json)
        return
    with output.working("looking at the data ..."):
        everything, planned = _identified(everything), _identified(planned)
    page_path = None if no_page else Path(page) if page is not None else folder / "report.html"
    _run(chosen, everything, planned, folder, jobs, cluster, retry_failed, no_run, results, page_path, as_json)


def _identified(planned: list[Planned]) -> list[Planned]:
    from dataclasses import replace

    return [replace(one, trial=one.trial.identified()) for one in planned]


def _run(
    study: Study, everything: list[Planned], planned: list[Planned], folder: Path, jobs: int | None,
    cluster: str | None, retry_failed: bool, no_run: bool, results: str | None, page: Path | None, as_json: bool,
) -> None:  # fmt: skip
    from rankbound.experiments.derived import derived_table
    from rankbound.experiments.results import read_published, results_table
    from rankbound.experiments.runner import tally_of
    from rankbound.experiments.store import open_store
    from rankbound.experiments.writing import write_results

    placed = [one.placed for one in planned]
    published = read_published(study.published_path, {key for one in everything for key in one.setting})
    with open_store(folder, create=not no_run) as store:
        if no_run:
            tally = tally_of(planned, store)
        else:
            with store.locked():
                store.register(study.name, [one.placed for one in everything])
                tally = _run_trials(planned, store, jobs, cluster, retry_failed)
        table = results_table(store, placed, published)
        if results is not None:
            derived = {name: derived_table(name, store, placed, table) for name in study.derived}
            write_results(Path(results), study, planned, table, derived)
        if page is not None:
            with output.working("writing the page ..."):
                page = _write_page(page, study, store, placed, table)
        _print_results(study, tally, table, store, page, as_json)


def _run_trials(
    planned: list[Planned], store: Store, jobs: int | None, cluster: str | None, retry_failed: bool
) -> Tally:
    from rankbound.experiments.progress import show_progress
    from rankbound.experiments.runner import run_trials, waiting

    todo = waiting(planned, store, retry_failed)
    if cluster is None and any(one.trial.spec["loss"] for one in todo):
        ready_kernels()  # once, here, rather than in every worker at the same time
    try:
        with show_progress(todo) as tell:
            return run_trials(planned, store, jobs=jobs, cluster=cluster, retry_failed=retry_failed, tell=tell)
    except KeyboardInterrupt:
        done = sum(state == "done" for state in store.states().values())
        typer.echo(f"stopped; {done} finished trials are in {store.folder}, the same command goes on", err=True)
        raise


def _write_page(page: Path, study: Study, store: Store, placed: list[Placed], table: pl.DataFrame) -> Path | None:
    """The page about these trials; None, and a word why, if there is too little for one."""
    from rankbound.errors import DataError
    from rankbound.experiments.results import examples_table, history_table, score_table
    from rankbound.report.page import write_page

    about = {"Study": study.title, "Results from": str(store.folder), "Chosen on": " and ".join(selections(table))}
    try:
        return write_page(
            page, scores=score_table(store, placed), results=table.drop_nulls("ours"),
            history=history_table(store, placed), examples=examples_table(store, placed), title=study.name, about=about,
        )  # fmt: skip
    except DataError as error:
        typer.echo(f"no page was written: {error}", err=True)
        return None


def selections(table: pl.DataFrame) -> list[str]:
    """What the trials of a table were chosen on."""
    return sorted(set(table["selection"].to_list())) if "selection" in table.columns else []


# ---- output ----------------------------------------------------------------------------------------------------------


def parse_only(texts: list[str]) -> dict[str, list[str]]:
    """Settings to keep, from KEY=VALUE with commas between; a comma inside brackets belongs to the value.

    >>> parse_only(["loss=nDCG,nsr=1", "nsr=2"])
    {'loss': ['nDCG'], 'nsr': ['1', '2']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        for part in text.split(","):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise ArgumentError(f"--only must be KEY=VALUE with commas between, got {text!r}")
            found.setdefault(key.strip(), []).append(value.strip())
    return found


def _print_list(as_json: bool) -> None:
    from rankbound.experiments.spec import known_studies

    if as_json:
        output.print_json({"studies": [{"name": name, "title": title} for name, title in known_studies().items()]})
        return
    output.print_table("studies", ["name", "title"], [[*pair] for pair in known_studies().items()], text_columns=2)


def _print_dry_run(
    study: Study, planned: list[Planned], folder: Path, jobs: int | None, cluster: str | None, as_json: bool
) -> None:
    from rankbound.errors import RankboundError
    from rankbound.experiments.expansion import with_files
    from rankbound.experiments.runner import estimated_seconds, waiting
    from rankbound.experiments.store import open_store
    from rankbound.parallel import cores

    kind, _, number = (cluster or "").partition(":")
    workers = int(number) if kind == "local" and number.isdecimal() else jobs or cores()
    todo, store = planned, None
    try:  # data and store, as far as they are here, tell what is done already
        if (folder / "trials.sqlite").exists():
            store = open_store(folder)
            planned = _identified([with_files(one, study.path.parent) for one in planned])
            todo = waiting(planned, store)
    except (RankboundError, OSError) as error:
        output.print_note(f"note: {error}")
    seconds = estimated_seconds(todo, planned, store, workers)
    if store is not None:
        store.close()
    tables = {one.setting["table"] or study.name: 0 for one in planned}
    for one in planned:
        tables[one.setting["table"] or study.name] += 1
    settings = len({tuple(one.setting.items()) for one in planned})
    if as_json:
        output.print_json(
            {"study": study.name, "trials": len(planned), "waiting": len(todo), "settings": settings,
             "workers": workers, "seconds": round(seconds), "store": str(folder), "tables": tables}
        )  # fmt: skip
        return
    rows = [[name, str(count)] for name, count in tables.items()]
    note = f"{len(todo)} of {len(planned)} trials ({settings} settings) are to be run: about {_time(seconds)} with "
    note += f"{workers} workers. Store: {folder}"
    output.print_table(f"{study.name}: {study.title}", ["table", "trials"], rows, note=note)


def _time(seconds: float) -> str:
    """A duration for people.

    >>> _time(42.0), _time(600.0), _time(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _print_results(
    study: Study, tally: Tally, table: pl.DataFrame, store: Store, page: Path | None, as_json: bool
) -> None:
    from rankbound import __version__
    from rankbound.experiments.claims import judge_claims

    verdicts = judge_claims(study.claims, table)
    if as_json:
        output.print_json(
            {"study": study.name, "title": study.title, "version": __version__, "store": str(store.folder),
             "page": None if page is None else str(page),
             "trials": {"total": tally.total, "before": tally.before, "ran": tally.ran, "failed": tally.failed},
             "claims": [verdict._asdict() | {"verdict": verdict.word} for verdict in verdicts],
             "rows": table.to_dicts()}
        )  # fmt: skip
        return
    settings = table.columns[: table.columns.index("measure") + 1]
    wide = [name for name in settings if table[name].n_unique() > 1 or name == "measure"]
    columns = [*wide, "published", "ours", "difference", "95 % interval"]
    against = "versus" in table.columns
    rows = []
    for row in table.iter_rows(named=True):
        spread = output.show_interval(row["ci_low"], row["ci_high"])
        cells = [str(row[name]) for name in wide] + [
            output.show_number(row["published"]),
            output.show_number(row["ours"]),
        ]
        cells += [output.show_number(row["difference"], sign=True), spread]
        if against:
            test = (
                f"{output.show_number(row['versus_difference'], sign=True)}, {output.say_p(row['p_value'])}"
                if row["versus"]
                else ""
            )
            cells += [test and f"{test} ({row['versus']})"]
        rows.append([*cells, *([row["note"]] if "note" in table.columns else [])])
    columns += (["versus"] if against else []) + (["note"] if "note" in table.columns else [])
    same = {name: table[name][0] for name in settings if name not in wide and table[name][0]}
    title = f"{study.name}: {study.title}" + "".join(f"; {name} {value}" for name, value in same.items())
    chosen = selections(table)
    note = f"Chosen on {' and '.join(chosen)} data. " if chosen != ["last"] else ""
    note += f"Trials: {tally.ran} run now, {tally.before} done before, {tally.failed} failed; kept in {store.folder}."
    note += "" if page is None else f" Page: {page}"
    note = "\n".join([*(verdict.sentence for verdict in verdicts), note])
    output.print_table(title, columns, rows, text_columns=len(wide), note=note)
