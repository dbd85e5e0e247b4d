"""rankbound data: list, download, describe, verify and split data sets."""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError
from rankbound.packages import DRAWING, check_packages
from rankbound.report import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from rankbound.data.catalog import Entry
    from rankbound.data.download import Progress

_NO_CHOICE = 1e-12  # best - worst of a query on which all rankings score the same

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
    with _show_downloads() as bars:
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
        mean = numbers.show_number(difficulty["mean_expected"])
        title = f"expected nDCG of a random ranking: mean {mean}; queries without a choice {fraction:.1%}"
        names = [f"{bar['from']:.1f}-{bar['to']:.1f}" for bar in difficulty["histogram"]]
        _print_bars(title, names, [bar["count"] for bar in difficulty["histogram"]])
    for note in summary["notes"]:
        output.print_note(f"Note: {note}")


def _print_bars(title: str, names: list[str], counts: list[int]) -> None:
    longest = max(counts, default=0)
    if longest == 0:  # for example no query has a choice
        output.print_note(title)
        return
    rows = [[name, "█" * round(40 * count / longest), str(count)] for name, count in zip(names, counts, strict=True)]
    output.print_table(title, ["", "", "lists"], rows, text_columns=2)


def _check_plot(path: str) -> None:
    if Path(path).suffix not in (".html", ".svg", ".png", ".pdf"):
        raise ArgumentError(f"--plot must be an .html, .svg, .png or .pdf file, got {path!r}")
    check_packages("--plot", *DRAWING)


def _draw(summary: dict[str, Any], path: str) -> None:
    from rankbound.report.figures.results import named_histograms
    from rankbound.report.figures.saving import save_chart

    histograms = {"label": list(summary["labels"].items())}
    for title, part in (("items in the list", "list_sizes"), ("expected nDCG", "difficulty")):
        bars = summary.get(part, {}).get("histogram", ())
        histograms[title] = [(f"{bar['from']:g} to {bar['to']:g}", bar["count"]) for bar in bars]
    save_chart(named_histograms(histograms), path)


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
def _show_downloads() -> Iterator[Callable[[str], Progress]]:
    """Show on stderr, if it is a terminal, how much of the file of an address has arrived."""
    from rankbound.io import progress_display

    with progress_display() as display:

        def start(url: str) -> Progress:
            name = url.rsplit("/", 1)[-1]
            return lambda done, total: display(name, done, total) if total else display.show_stage(f"{name} ...")

        yield start


# ---- description of a data set ---------------------------------------------------------------------------------------


def describe_data(source: str | PathLike[str]) -> dict[str, Any]:
    """Describe a data set of the catalog by its name, or a file or folder, as plain Python values.

    The difficulty is that of nDCG: a histogram of the expected value of a random ranking over the queries on which
    rankings can differ, and the number and fraction of the other queries, which have no choice. For interactions, which
    have no lists, one negative item per interaction is assumed. ``notes`` say what a data set of the catalog lacks.
    """
    from rankbound.data.catalog import find_entry, known_sets
    from rankbound.data.describe import describe, read_any

    name = str(source)
    is_known = name in known_sets()
    if not is_known and not Path(name).exists() and not set(name) & set("./\\"):
        find_entry(name)  # raises an error that suggests similar names
    if is_known:
        from rankbound.data.loading import load_set

        data = load_set(name)
    else:
        data = read_any(name)
    difficulty = _describe_difficulty(data)
    summary = describe(data) | ({} if difficulty is None else {"difficulty": difficulty})
    if is_known:
        summary["notes"] += _describe_missing(find_entry(name), summary)
    return summary


def _describe_missing(entry: Entry, summary: dict[str, Any]) -> list[str]:
    """Return what the copy on this machine lacks of a complete one, and what is known to be missing."""
    notes = [
        f"the copy on this machine has {summary[what]:,} of {count:,} {what} ({summary[what] / count:.0%})"
        for what, count in entry.counts.items()
        if summary.get(what, count) != count
    ]
    return [*notes, *([entry.missing] if entry.missing else [])]


def _describe_difficulty(data: Any) -> dict[str, Any] | None:
    import numpy as np

    from rankbound.difficulty import bounds_of
    from rankbound.measures import LabelCounts, parse_measure

    lists = getattr(data, "lists", data)
    if hasattr(data, "per_user"):
        positives = data.per_user[data.per_user > 0]
        counts = LabelCounts.binary(2 * positives, positives)
    elif hasattr(lists, "offsets"):
        counts = LabelCounts.from_lists(lists)
    else:
        return None
    bounds = bounds_of(parse_measure("nDCG"), counts)
    has_choice = bounds.best - bounds.worst > _NO_CHOICE
    expected = bounds.expected[has_choice]
    heights, edges = np.histogram(expected, bins=10, range=(0.0, 1.0))
    return {
        "measure": "nDCG",
        "no_choice_queries": int((~has_choice).sum()),
        "no_choice_fraction": float((~has_choice).mean()) if len(has_choice) else 0.0,
        "mean_expected": float(expected.mean()) if len(expected) else None,
        "histogram": [
            {"from": round(float(low), 10), "to": round(float(high), 10), "count": int(height)}
            for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True)
        ],
    }
