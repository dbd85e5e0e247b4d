"""rankbound reproduce: run a study and print its results next to the published numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError
from rankbound.packages import CLUSTER, check_packages
from rankbound.report import numbers

if TYPE_CHECKING:
    from rankbound.studies import AllStudies, StudyPlan, StudyResult


def reproduce(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Name of a study (see --list), or path of a .toml file.")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the studies that come with rankbound.")] = False,
    run_all: Annotated[
        bool, typer.Option("--all", help="Run all studies whose data can be had, the shortest first.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of trials and the expected time, and run nothing.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small part of the study, in less than two minutes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Run these settings only; repeat a key for several values."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the data sets, in place of RANKBOUND_DATA.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder for the results.  [default: rankbound-results/STUDY]")
    ] = None,
    jobs: options.Jobs = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDR", help="Run on Dask: local:N, or a scheduler's tcp://host:port.")
    ] = None,
    module: options.WorkerModules = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run trials that failed before again.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing, and print the results so far.")] = False,
    results: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Write STUDY.csv and STUDY.md to this folder; rows there that this run has no results for remain.",
        ),
    ] = None,
    page: Annotated[
        str | None, typer.Option(metavar="FILE", help="Path of the HTML page.  [default: report.html in the store]")
    ] = None,
    no_page: options.NoPage = False,
    as_json: options.Json = False,
) -> None:
    """Run a study and print its results next to the published numbers.

    Finished trials are kept: after an interruption, the same command resumes the study.

    \b
    Examples:
      rankbound reproduce --list
      rankbound reproduce thesis-5.1 --quick
      rankbound reproduce --all --dry-run
      rankbound reproduce insights-fig1 --only nsr=1,fold=0 --jobs 2
    """
    if show_list:
        _print_list(as_json)
        return
    from rankbound.studies import plan_study, run_study, show_progress

    where: dict[str, Any] = {"quick": quick, "data": data, "store": store, "jobs": jobs, "cluster": cluster}
    how: dict[str, Any] = {"retry_failed": retry_failed, "run": not no_run, "results": results}
    needed = [*([] if no_page or dry_run else ["jinja2"]), *(CLUSTER if cluster else [])]
    if run_all:
        refused = {"STUDY": study, "--only": only, "--module": module, "--page": page}
        if given := [name for name, value in refused.items() if value]:
            raise ArgumentError(f"--all runs all studies as they are and cannot be combined with {', '.join(given)}")
        _check_packages(None, results is not None, needed)
        _reproduce_all(dry_run, as_json, where, how | {"page": not no_page})
        return
    if study is None:
        raise ArgumentError("a study is required; rankbound reproduce --list shows the known ones")
    _check_packages(study, results is not None, needed)
    from rankbound.cli.user_code import name_modules

    where |= {"only": parse_only(only or []), "modules": name_modules(module)}
    with show_progress() as progress:
        if dry_run:
            plan = plan_study(study, **where, progress=progress)
        else:
            result = run_study(study, **where, **how, page=False if no_page else page or True, progress=progress)
    if dry_run:
        _print_plan(plan, as_json)
    else:
        _print_result(result, as_json)


def _check_packages(study: str | None, figures: bool, needed: list[str]) -> None:
    """Raise MissingPackageError, once for all that the options and a study need, or all studies if it is None."""
    from rankbound.studies.study_files import known_studies, packages_of_study

    if study is None:  # studies whose data are not there are left out, and few have the images
        of_studies = [module for name in known_studies() for module in packages_of_study(name, False, figures)]
    else:
        of_studies = packages_of_study(study, True, figures)
    check_packages("reproduce", *of_studies, *needed)


def _reproduce_all(dry_run: bool, as_json: bool, where: dict[str, Any], how: dict[str, Any]) -> None:
    from rankbound.studies import plan_all_studies, run_all_studies, show_progress

    plan = plan_all_studies(**where)
    if dry_run or not as_json:
        _print_all(plan, as_json)
    if dry_run:
        return
    printed = []
    with show_progress() as progress:
        for result in run_all_studies(plan, **where, **how, progress=progress):
            if as_json:
                printed.append(result.to_dict())
            else:
                _print_result(result, as_json)
    if as_json:
        output.print_json({"studies": printed, "left_out": dict(plan.left_out)})


def parse_only(texts: list[str]) -> dict[str, list[str]]:
    """Settings from texts of the form KEY=VALUE,KEY=VALUE; a comma that no KEY= follows belongs to the value.

    >>> parse_only(["loss=nDCG,nsr=1", "nsr=2"])
    {'loss': ['nDCG'], 'nsr': ['1', '2']}
    >>> parse_only(["table=2: faces, pixels,model=RankNet"])
    {'table': ['2: faces, pixels'], 'model': ['RankNet']}
    """
    settings: dict[str, list[str]] = {}
    for text in texts:
        for pair in re.split(r",(?=[^,=]*=)", text):
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise ArgumentError(f"--only must be KEY=VALUE, with commas between several, got {text!r}")
            settings.setdefault(key.strip(), []).append(value.strip())
    return settings


# ---- output ----------------------------------------------------------------------------------------------------------


def _print_list(as_json: bool) -> None:
    from rankbound.studies import known_studies

    studies = known_studies()
    if as_json:
        output.print_json({"studies": [{"name": name, "title": title} for name, title in studies.items()]})
        return
    output.print_table("studies", ["name", "title"], [[*pair] for pair in studies.items()], text_columns=2)


def _print_plan(plan: StudyPlan, as_json: bool) -> None:
    if as_json:
        output.print_json(plan.to_dict())
        return
    rows = [[name, str(count)] for name, count in plan.tables.items()]
    note = (
        f"{plan.waiting} of {plan.trials} trials ({plan.settings} settings) remain to be run, in about "
        f"{_format_time(plan.seconds)} with {plan.workers} workers. Store: {plan.store}"
    )
    output.print_table(f"{plan.study.name}: {plan.study.title}", ["table", "trials"], rows, note=note)


def _print_all(plan: AllStudies, as_json: bool) -> None:
    if as_json:
        output.print_json(plan.to_dict())
        return
    rows = [
        [study.study.name, str(study.trials), str(study.waiting), _format_time(study.seconds)] for study in plan.plans
    ]
    workers = plan.plans[0].workers if plan.plans else 0
    note = "\n".join(
        [
            f"About {_format_time(plan.seconds)} with {workers} workers for all of them.",
            *(f"left out: {name}: {reason}" for name, reason in plan.left_out.items()),
        ]
    )
    output.print_table("all studies", ["study", "trials", "to run", "time"], rows, note=note)


def _format_time(seconds: float) -> str:
    """A duration for people.

    >>> _format_time(42.0), _format_time(600.0), _format_time(9000.0)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _print_result(result: StudyResult, as_json: bool) -> None:
    if as_json:
        output.print_json(result.to_dict())
        return
    table, study, tally = result.results, result.study, result.tally
    settings = table.columns[: table.columns.index("measure") + 1]
    varying = [name for name in settings if table[name].n_unique() > 1 or name == "measure"]
    has_test, has_note = "versus" in table.columns, "note" in table.columns
    columns = [*varying, "published", "ours", "difference", "95 % interval"]
    columns += (["versus"] if has_test else []) + (["note"] if has_note else [])
    rows = []
    for row in table.iter_rows(named=True):
        cells = [str(row[name]) for name in varying]
        cells += [numbers.show_number(row["published"]), numbers.show_number(row["ours"])]
        cells += [
            numbers.show_number(row["difference"], sign=True),
            numbers.show_interval(row["ci_low"], row["ci_high"]),
        ]
        if has_test:
            difference = numbers.show_number(row["versus_difference"], sign=True)
            cells.append(f"{difference}, {numbers.say_p(row['p_value'])} ({row['versus']})" if row["versus"] else "")
        rows.append([*cells, *([row["note"]] if has_note else [])])
    constant = {name: table[name][0] for name in settings if name not in varying and table[name][0]}
    title = f"{study.name}: {study.title}" + "".join(f"; {name} {value}" for name, value in constant.items())
    selected = f"Selected on {' and '.join(result.selections)} data. " if result.selections != ["last"] else ""
    counts = (
        f"Trials: {tally.ran} run now, {tally.before} done before, {tally.failed} failed; stored in {result.store}."
    )
    page = "" if result.page is None else f" Page: {result.page}"
    note = "\n".join([*(verdict.sentence for verdict in result.claims), f"{selected}{counts}{page}"])
    output.print_table(title, columns, rows, text_columns=len(varying), note=note)
