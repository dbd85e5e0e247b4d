"""rankbound store: list, export and import the results of studies."""

from __future__ import annotations

from typing import Annotated

import typer

from rankbound.cli import options, output

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="List, export and import the results of studies.")

Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of a store, as rankbound reproduce creates it.")]


@app.command("list")
def list_studies(folder: Folder, as_json: options.Json = False) -> None:
    """List the studies of a store, and how many of their trials are done.

    \b
    Example:
      rankbound store list rankbound-results/thesis-5.1
    """
    from rankbound.studies import open_store

    with open_store(folder) as store:
        states = store.states()
        studies = {}
        for name in store.studies():
            trials = {slot.id for slot in store.slots(name)}
            done = [states[trial] for trial in trials if trial in states]
            counts = {state: done.count(state) for state in ("done", "failed")}
            studies[name] = {"trials": len(trials), **counts, "waiting": len(trials) - len(done)}
    if as_json:
        output.print_json({"store": folder, "studies": [{"name": name, **counts} for name, counts in studies.items()]})
        return
    columns = ["trials", "done", "failed", "waiting"]
    rows = [[name, *(f"{counts[column]:,}" for column in columns)] for name, counts in studies.items()]
    output.print_table(f"studies in {folder}", ["study", *columns], rows)


@app.command("export")
def export(
    folder: Folder,
    file: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The .zip file to write.")],
    as_json: options.Json = False,
) -> None:
    """Write the finished trials of a store to one file, to keep them or to continue the study on another machine.

    \b
    Example:
      rankbound store export rankbound-results/thesis-5.1 -o thesis-5.1.zip
    """
    from rankbound.studies import export_store

    with output.working(f"writing {file} ..."):
        written = export_store(folder, file)
    if as_json:
        output.print_json({"store": folder, "file": file, **written.to_dict()})
        return
    output.print_note(f"{written.trials:,} trials of {', '.join(written.studies) or 'no study'} written to {file}")


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of rankbound store export.")],
    folder: Annotated[
        str, typer.Option("--store", metavar="DIR", help="The store to add to; it is created if there is none.")
    ],
    as_json: options.Json = False,
) -> None:
    """Add the trials of an exported store to a store; trials that are done there stay as they are.

    \b
    Example:
      rankbound store import thesis-5.1.zip --store rankbound-results/thesis-5.1
    """
    from rankbound.studies import import_store

    with output.working(f"reading {file} ..."):
        found = import_store(file, folder)
    if as_json:
        output.print_json({"store": folder, "file": file, **found.to_dict()})
        return
    output.print_note(
        f"{found.added:,} of {found.trials:,} trials of {', '.join(found.studies) or 'no study'} added to {folder}"
    )
