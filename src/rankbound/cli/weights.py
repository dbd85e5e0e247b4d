"""rankbound weights: difficulty weights for trainers that accept query or sample weights."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["weights"]


class Per(StrEnum):
    """The unit of a weight."""

    query = "query"
    row = "row"


class Format(StrEnum):
    """Format of the input."""

    auto = "auto"
    letor = "letor"
    qrels = "qrels"


def weights(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="LETOR or SVMlight file, TREC qrels, or csv/parquet with columns qid and label."
        ),
    ],
    measure: Annotated[str, typer.Option("-m", "--measure", metavar="MEASURE", help="Measure to train for.")] = "nDCG",
    bounding: Annotated[
        str, typer.Option(metavar="NAME", help="min-max, expectation or expectation-max.")
    ] = "expectation-max",
    per: Annotated[
        Per, typer.Option(help="One weight per query, or the weight of its query for each row.")
    ] = Per.query,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Scale to mean 1 over queries with a non-zero weight.")
    ] = False,
    file_format: Annotated[
        Format, typer.Option("--format", help="Format of FILE; auto: by its name and first line.")
    ] = Format.auto,
    out: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help=".txt: one weight per line; .csv, .parquet: with a column qid."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compute weights that make a trainer difficulty-aware: 1/(B-W), 1/E or 1/(B-E) of each query.

    Pass them to LightGBM, XGBoost, CatBoost or scikit-learn as query or sample weights. Queries without a choice,
    on which all rankings have the same value, get 0; their number is reported.

    \b
    Example:
      rankbound weights train.txt -m nDCG --bounding expectation-max --per row -o train.txt.weight.txt
    """
    from rankbound.difficulty.queries import difficulty_weights

    if out is not None and not out.endswith(".txt"):
        output.check_table_path(out)
    rows = _read(file, file_format, per)
    result = difficulty_weights(
        rows.labels, rows.qid, measure=measure, bounding=bounding, per=per.value, normalize=normalize
    )
    qid = rows.qid if per is Per.row else _first_appearances(rows.qid)
    if out is not None:
        _write(out, qid, result)
    queries = len(_first_appearances(rows.qid))
    no_choice = len(_first_appearances(qid[result == 0]))  # all other weights are greater than 0
    if as_json:
        summary = {
            "measure": measure,
            "bounding": bounding,
            "per": per.value,
            "queries": queries,
            "no_choice_queries": no_choice,
            "rows": len(rows.qid),
        }
        values = {} if out is not None else {"qid": qid.tolist(), "weights": result.tolist()}
        output.print_json(summary | values, indent=None)
        return
    text = f"{no_choice} of {queries} queries without a choice (all rankings have the same {measure}): weight 0"
    if out is None:
        typer.echo("\n".join(f"{name}\t{weight:.9g}" for name, weight in zip(qid.tolist(), result, strict=True)))
        typer.echo(text, err=True)
    else:
        output.print_note(f"{len(result)} weights written to {out}; {text}")


class _Rows(NamedTuple):
    labels: NDArray[Any]
    qid: NDArray[Any]


def _read(path: str, file_format: Format, per: Per) -> _Rows:
    import numpy as np

    from rankbound.data import frames, letor, trec

    if path.endswith((".csv", ".tsv", ".parquet")):
        lists_frame = frames.rename_columns(frames.read_frame(path), {}, required=("qid", "label"))
        frames.lists_from_frame(lists_frame)  # raises an error for empty and non-numeric entries
        return _Rows(lists_frame["label"].to_numpy(), lists_frame["qid"].to_numpy())
    if file_format is Format.auto:
        file_format = _format_of(path)
    if file_format is Format.qrels:
        frame = trec.read_qrels(path)
        return _Rows(frame["label"].to_numpy(), frame["qid"].to_numpy())
    data = letor.read_letor(path)
    if data.notes and per is Per.row:
        raise DataError(f"{path}: rows of a query must be contiguous for weights per row, but {data.notes[0]}")
    return _Rows(data.lists.labels, np.repeat(data.lists.query_ids, data.lists.sizes))


def _format_of(path: str) -> Format:
    """Detect the format: qrels have four fields without a colon, everything else is LETOR or SVMlight."""
    from rankbound.io import open_bytes

    if path == "-":
        raise ArgumentError("--format must be letor or qrels for standard input, which can be read only once, got auto")
    with open_bytes(path) as stream:
        for line in stream:
            fields = line.split()
            if fields and not line.startswith(b"#"):
                return Format.qrels if len(fields) == 4 and b":" not in fields[1] + fields[3] else Format.letor
    raise DataError(f"{path}: is empty")


def _first_appearances(qid: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    _, first = np.unique(qid, return_index=True)
    return np.asarray(qid[np.sort(first)])


def _write(path: str, qid: NDArray[Any], values: NDArray[Any]) -> None:
    if path.endswith(".txt"):
        from rankbound.io import atomic_write

        with atomic_write(path) as temporary:
            temporary.write_text("".join(f"{value:.9g}\n" for value in values))
        return
    import polars as pl

    output.write_table(pl.DataFrame({"qid": qid, "weight": values}), path)
