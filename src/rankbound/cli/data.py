"""rankbound data: list, download, describe, verify and split data sets."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rankbound.data.catalog import Entry
    from rankbound.data.download import Progress

__all__ = ["app"]

app = typer.Typer(
    rich_markup_mode=None, no_args_is_help=True, help="List, download, describe, verify and split data sets."
)


class SplitBy(StrEnum):
    """How interactions are split."""

    user = "user"
    time = "time"
    leave_one_out = "leave-one-out"


class SplitFormat(StrEnum):
    """The format of the files of a split."""

    csv = "csv"
    parquet = "parquet"


@app.command("list")
def list_sets(as_json: options.Json = False) -> None:
    """List the data sets that rankbound knows by name, and whether they are on this machine.

    \b
    Example:
      rankbound data list
    """
    from rankbound.data.catalog import known_sets
    from rankbound.data.set_files import present_files

    here = {entry.name: present_files(entry) is not None for entry in known_sets().values()}
    if as_json:
        output.print_json({"sets": [_summary(entry) | {"here": here[entry.name]} for entry in known_sets().values()]})
        return
    rows = [
        [entry.name, "yes" if here[entry.name] else "no", entry.kind, _how(entry), _counts(entry), entry.title]
        for entry in known_sets().values()
    ]
    note = "Sets are looked for in RANKBOUND_DATA and in the cache. manual: rankbound data get NAME explains how."
    output.print_table("data sets", ["name", "here", "kind", "get", "counts", "title"], rows, text_columns=6, note=note)


@app.command("get")
def get_set(
    name: Annotated[str, typer.Argument(help="A data set of `rankbound data list`.", metavar="NAME")],
    as_json: options.Json = False,
) -> None:
    """Find the files of a data set, or download them to the cache.

    \b
    Example:
      rankbound data get ml-latest-small
    """
    from rankbound.data.catalog import find_entry
    from rankbound.data.set_files import obtain, present_files

    entry = find_entry(name)
    before = present_files(entry)
    with _download_bars() as bars:
        files = obtain(entry, bars)
    if as_json:
        output.print_json({"name": name, "downloaded": before is None, "files": [str(file) for file in files]})
        return
    output.print_table(f"{name}: {entry.title}", ["file"], [[str(file)] for file in files])
    output.print_note(f"License: {entry.license}\nCite: {entry.citation}")
    if entry.missing:
        output.print_note(f"Note: {entry.missing}")


@app.command("describe")
def describe_set(
    target: Annotated[str, typer.Argument(help="The name of a data set, or a file or folder.", metavar="NAME|PATH")],
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Save the histograms to an .html, .svg, .png or .pdf file.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show counts, labels, list sizes, and how hard the queries are.

    The expected nDCG of a query is the mean over all rankings of its documents. A query has no choice if all rankings
    have the same value. Interactions have no lists: one negative item per interaction is assumed.

    \b
    Example:
      rankbound data describe mq2008
      rankbound data describe train.txt.gz --json
    """
    if plot is not None:
        _check_plot(plot)
    options.check_inputs(target)
    from rankbound.analysis.datasets import describe_data

    with output.working(f"reading {target} ..."):
        summary = describe_data(target)
    if plot is not None:
        _draw(summary, plot)
    if as_json:
        output.print_json({"name": target} | summary)
    else:
        _print_description(target, summary)


@app.command("verify")
def verify_sets(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Data sets; by default all that are on this machine.", metavar="[NAME...]"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare files with their checksums; exit with code 2 if one is wrong or a named set is incomplete.

    \b
    Example:
      rankbound data verify mq2008
    """
    from rankbound.data.catalog import find_entry, known_sets
    from rankbound.data.set_files import check, present_files
    from rankbound.errors import DataError

    chosen = [find_entry(name) for name in names or ()]
    chosen = chosen or [entry for entry in known_sets().values() if present_files(entry) is not None]
    with output.working("computing checksums ..."):
        states = {entry.name: check(entry) for entry in chosen}
    flat = [(name, state) for name, of_set in states.items() for state in of_set]
    if as_json:
        files = [
            {"set": name, "file": s.name, "state": s.state, "sha256": s.sha256, "expected": s.expected}
            for name, s in flat
        ]
        output.print_json({"files": files})
    else:
        rows = [[name, s.name, s.state, s.sha256 or "–"] for name, s in flat]
        note = "sha256 of the decompressed content. unknown: no checksum is known; partial: a known incomplete copy."
        output.print_table("checksums", ["set", "file", "state", "sha256"], rows, text_columns=4, note=note)
    bad = [f"{s.path}: wrong checksum, expected {s.expected}, got {s.sha256}" for _, s in flat if s.state == "wrong"]
    bad += [f"{entry.name}: is not here" for entry in chosen if present_files(entry) is None]
    if bad:
        raise DataError("; ".join(bad))


@app.command("split")
def split_set(
    ratings: Annotated[
        str,
        typer.Argument(
            help="Interactions: csv or parquet with columns for user, item and, if there are any, rating and "
            "timestamp; MovieLens, RecBole, Amazon, CiteULike or Epinions files; or the name of a data set.",
            metavar="RATINGS",
        ),
    ],
    folder: Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files of the parts.")],
    by: Annotated[
        SplitBy,
        typer.Option(help="Random interactions of each user, the latest of all users, or the latest one of each user."),
    ] = SplitBy.user,
    test: Annotated[float, typer.Option(metavar="F", help="Fraction for testing.")] = 0.2,
    validation: Annotated[
        float,
        typer.Option(metavar="F", help="Fraction for validation; with leave-one-out one interaction if F is positive."),
    ] = 0.0,
    min_rating: Annotated[
        float | None, typer.Option(metavar="X", help="First drop the interactions with a rating below X.")
    ] = None,
    core: Annotated[
        int | None,
        typer.Option("--k-core", metavar="N", help="Then keep users and items with at least N interactions."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random choices.")] = 0,
    form: Annotated[SplitFormat, typer.Option("--format", help="Format of the files.")] = SplitFormat.csv,
    as_json: options.Json = False,
) -> None:
    """Split interactions into train, validation and test files.

    Each file has the columns user and item, and rating and timestamp where the data have them; ids stay as they are.
    Of a pair of user and item that occurs more than once, the latest interaction is kept.

    \b
    Examples:
      rankbound data split ratings.csv -o split --min-rating 4 --k-core 5
      rankbound data split ratings.csv -o split --by time --test 0.1 --validation 0.1
      rankbound data split ml-100k -o split --by leave-one-out --format parquet
    """
    import numpy as np

    from rankbound.data.preparation import relevant_only
    from rankbound.data.splits import k_core, split_interactions, write_split

    if seed < 0:
        raise ArgumentError(f"--seed must not be negative, got {seed}")
    written = [Path(folder) / f"{part}.{form.value}" for part in ("train", "validation", "test")]
    if Path(ratings).resolve() in [path.resolve() for path in written]:
        raise ArgumentError(f"-o must be a folder in which {ratings} is not replaced, got {folder}")
    with output.working(f"splitting {ratings} ..."):
        table = _interactions(ratings)
        read = len(table)
        if min_rating is not None:
            table = relevant_only(table, min_rating)
        if core is not None:
            table = k_core(table, core, core)
        fold = split_interactions(table, by.value, test=test, validation=validation, seed=seed)
        paths = write_split(fold, folder, form.value)
    parts = {"train": fold.train, "validation": fold.validation, "test": fold.test}
    counts = {
        name: {
            "file": str(paths[name]),
            "interactions": len(part),
            "users": len(np.unique(part.users)),
            "items": len(np.unique(part.items)),
        }
        for name, part in parts.items()
        if part is not None
    }
    if as_json:
        summary = {"by": by.value, "seed": seed, "read": read, "kept": len(table), "parts": counts}
        output.print_json(summary | {"notes": list(table.notes)})
        return
    rows = [[part, *(str(count["file"]), *(f"{count[key]:,}" for key in _COUNTED))] for part, count in counts.items()]
    note = f"{len(table):,} of {read:,} interactions, split by {by.value}"
    output.print_table(f"split of {ratings}", ["part", "file", *_COUNTED], rows, text_columns=2, note=note)
    for remark in table.notes:
        output.print_note(f"Note: {remark}")


_COUNTED = ("interactions", "users", "items")


def _interactions(source: str) -> Any:
    """Read a file of interactions, or a data set by its name."""
    from rankbound.data.catalog import known_sets
    from rankbound.data.loading import load_set
    from rankbound.data.ratings import read_ratings

    if source not in known_sets() or Path(source).exists():
        return read_ratings(source)
    entry = known_sets()[source]
    if entry.kind != "ratings":
        raise ArgumentError(f"{source} must be a data set of interactions to be split, got one of kind {entry.kind}")
    return load_set(source)


# ---- description -----------------------------------------------------------------------------------------------------


def _print_description(target: str, summary: dict[str, Any]) -> None:
    plain = {key: value for key, value in summary.items() if isinstance(value, (int, float, str))}
    rows = [
        [key.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value)] for key, value in plain.items()
    ]
    if summary["labels"] and len(summary["labels"]) <= 12:
        rows.append(["labels", "  ".join(f"{label}: {count:,}" for label, count in summary["labels"].items())])
    output.print_table(target, ["", ""], rows, text_columns=2)
    if "list_sizes" in summary:
        sizes = summary["list_sizes"]
        title = f"list sizes: {sizes['min']} to {sizes['max']}, median {sizes['median']:g}"
        names = [f"{bar['from']}-{bar['to']}" for bar in sizes["histogram"]]
        _print_bars(title, names, [bar["count"] for bar in sizes["histogram"]])
    if difficulty := summary.get("difficulty"):
        fraction = difficulty["no_choice_fraction"]
        mean = output.show_number(difficulty["mean_expected"])
        title = f"expected nDCG of a random ranking: mean {mean}; queries without a choice {fraction:.1%}"
        names = [f"{bar['from']:.1f}-{bar['to']:.1f}" for bar in difficulty["histogram"]]
        _print_bars(title, names, [bar["count"] for bar in difficulty["histogram"]])
    for note in summary["notes"]:
        output.print_note(f"Note: {note}")


def _print_bars(title: str, names: list[str], counts: list[int]) -> None:
    longest = max(counts, default=0) or 1
    rows = [[name, "█" * round(40 * count / longest), str(count)] for name, count in zip(names, counts, strict=True)]
    output.print_table(title, ["", "", "lists"], rows, text_columns=2)


def _check_plot(path: str) -> None:
    import importlib.util

    if Path(path).suffix not in (".html", ".svg", ".png", ".pdf"):
        raise ArgumentError(f"--plot must be an .html, .svg, .png or .pdf file, got {path!r}")
    missing = [name for name in ("altair", "vl_convert") if importlib.util.find_spec(name) is None]
    if missing:
        raise ArgumentError(f"--plot needs {' and '.join(missing)}; install rankbound[report]")


def _draw(summary: dict[str, Any], path: str) -> None:
    import altair as alt
    import polars as pl

    from rankbound.io import atomic_write

    histograms = {"label": [(name, count) for name, count in summary["labels"].items()]}
    for title, part in (("items in the list", "list_sizes"), ("expected nDCG", "difficulty")):
        bars = summary.get(part, {}).get("histogram", ())
        histograms[title] = [(f"{bar['from']:g} to {bar['to']:g}", bar["count"]) for bar in bars]
    charts = []
    for title, counts in histograms.items():
        frame = pl.DataFrame(counts, schema={"range": pl.String, "lists": pl.Int64}, orient="row")
        x = alt.X("range:N", sort=frame["range"].to_list(), title=title)
        y = alt.Y("lists:Q", title="items" if title == "label" else "lists")
        charts += [alt.Chart(frame, width=320, height=220).mark_bar().encode(x=x, y=y)] if counts else []
    form = Path(path).suffix[1:]
    with atomic_write(path) as temporary:
        alt.hconcat(*charts).save(temporary, format=form, inline=form == "html")


# ---- tables and progress ---------------------------------------------------------------------------------------------


def _summary(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "title": entry.title,
        "kind": entry.kind,
        "origin": entry.origin,
        "license": entry.license,
        "citation": entry.citation,
        "get": _how(entry),
        "megabytes": entry.megabytes,
        "folds": list(entry.fold_numbers),
        "counts": dict(entry.counts),
        "missing": entry.missing,
        "files": [{"path": file.path, "sha256": file.sha256} for file in entry.files],
    }


def _how(entry: Entry) -> str:
    return "download" if entry.download else "manual"


def _counts(entry: Entry) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in entry.counts.items()) or "–"


@contextmanager
def _download_bars() -> Iterator[Callable[[str], Progress] | None]:
    """Show a progress bar for each address on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bars:

        def start(url: str) -> Progress:
            task = bars.add_task(url.rsplit("/", 1)[-1], total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield start
