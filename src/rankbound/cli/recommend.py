"""rankbound recommend: the best items for users, by a saved recommender."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.saved_models import check_packages_of_model
from rankbound.errors import ArgumentError, DataError, UnknownUserWarning

if TYPE_CHECKING:
    import polars as pl

    from rankbound.models.recommenders.base import Recommender

_TABLES = (".csv", ".parquet", ".json")


def recommend(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Folder written by rankbound train.")],
    out: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="A table if the name ends in .parquet, .csv or .json, else a TREC run.",
        ),
    ],
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, help="Items per user.")] = 10,
    users: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Users, one id per line, or a csv or parquet file with a column of users.  [default: all]",
        ),
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The only items to recommend, in the same forms, such as those in stock.  [default: all]",
        ),
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Recommend items that the user already has, too.")
    ] = False,
    tag: Annotated[str, typer.Option(metavar="NAME", help="Name of the run in a TREC file.")] = "rankbound",
    as_json: options.Json = False,
) -> None:
    """Recommend the items with the highest scores to each user.

    The table has the columns user, item, rank and score. Users who are not in the training data get the most popular
    items. The file appears when it is complete; the same command writes the same file again.

    \b
    Example:
      rankbound train ratings.csv --model ImplicitALS -o model
      rankbound recommend model -k 10 -o top.parquet
      rankbound recommend model --users new.txt --items stock.csv -o top.csv
    """
    from rankbound.data.interaction_sources import find_codes
    from rankbound.io import progress_display

    if Path(out).suffix in _TABLES:
        output.check_table_path(out)
    if Path(out).is_dir():
        raise ArgumentError(f"{out}: is a folder, expected a file name")
    if not tag or len(tag.split()) != 1:
        raise ArgumentError(f"--tag must be one word, got {tag!r}")
    check_packages_of_model("recommend", model)
    with output.working("loading ..."):
        ranker = _load(model)
        wanted = None if users is None else _read_ids(users, "user")
        allowed = None if items is None else _read_ids(items, "item")
        if allowed is not None and (find_codes(ranker.item_ids_, allowed) < 0).all():
            raise DataError(f"{items}: has no item of the training data, the first is {allowed[0]!r}")
    ids, codes = ranker._chosen_users(wanted)
    unknown = int((codes < 0).sum())
    if wanted is not None and not unknown:
        import polars as pl

        ids = pl.Series(ranker.user_ids_[codes])  # with the type of the training data; files of ids are read as text

    def count_users(done: int) -> None:
        display("users", done, len(codes) - unknown)

    with progress_display() as display, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownUserWarning)  # reported below
        found = ranker._top_items(
            codes,
            k,
            exclude_seen=not include_seen,
            filter_items=allowed,
            on_block=count_users,
        )
    frame = ranker._as_frame(ids, *found)
    notes = []
    if unknown:
        notes.append(f"{unknown} of {len(codes)} users have no training interactions and get the most popular items")
    if Path(out).suffix in _TABLES:
        output.write_table(frame, out)
    else:
        _write_trec(frame, out, tag)
    if as_json:
        output.print_json(
            {
                "output": out,
                "model": type(ranker).__name__,
                "users": len(codes),
                "unknown_users": unknown,
                "rows": len(frame),
                "k": k,
                "notes": notes,
            }
        )
        return
    output.print_note(f"{len(frame):,} items for {len(codes):,} users written to {out}")
    output.print_warnings(notes)


def _load(folder: str) -> Recommender:
    from rankbound.models.recommenders.base import Recommender
    from rankbound.models.saving import load_ranker

    ranker = load_ranker(folder)
    if not isinstance(ranker, Recommender):
        kind = type(ranker).__name__
        raise ArgumentError(f"{folder}: holds {kind}, which ranks rows of features, use 'rankbound rank'")
    return ranker


def _read_ids(path: str, role: str) -> pl.Series:
    """Read ids as text: a column of a table, or one per line."""
    import polars as pl

    from rankbound.data.csv_text import is_csv
    from rankbound.data.frames import id_text, is_table_path, read_frame
    from rankbound.data.ratings import find_roles, first_line
    from rankbound.io import read_bytes

    if is_table_path(path):
        header = first_line(path).replace("\t", ",").replace('"', "").split(",") if is_csv(path) else ()
        frame = read_frame(path, header)  # every column as text
        column = find_roles(frame.columns).get(role)
        if column is None:
            raise DataError(f"{path}: no column for the {role} (such as {role}_id); it has {', '.join(frame.columns)}")
        ids = id_text(frame[column])
        if ids.null_count():
            raise DataError(f"{path}: every {role} must have an id, got {ids.null_count()} without one")
    else:
        try:
            lines = read_bytes(path).decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: must be text in UTF-8, one id per line, got: {error}") from error
        ids = pl.Series([line.strip() for line in lines if line.strip()], dtype=pl.String)
    if ids.is_empty():
        raise DataError(f"{path}: has no {role}")
    return ids


def _write_trec(frame: pl.DataFrame, path: str, tag: str) -> None:
    import polars as pl

    from rankbound.io import atomic_write

    text = frame.select(pl.all().cast(pl.String))
    for column in ("user", "item"):
        spaced = text[column].filter(text[column].str.contains(r"\s"))
        if len(spaced):
            raise DataError(
                f"{path}: ids in a TREC run must have no spaces, got the {column} {spaced[0]!r}; "
                "a name that ends in .parquet or .csv writes a table"
            )
    lines = text.select(pl.format("{} Q0 {} {} {} {}", "user", "item", "rank", "score", pl.lit(tag))).to_series()
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for start in range(0, len(lines), 1 << 20):
            stream.writelines(f"{line}\n" for line in lines[start : start + (1 << 20)])
