"""rankbound weights: difficulty weights for trainers that accept query or sample weights."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rankbound.cli import options, output
from rankbound.difficulty.weights import DEFAULT_FORM, LEAST_EFFECTIVE
from rankbound.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Per(StrEnum):
    """The unit of a weight."""

    query = "query"
    row = "row"


class Form(StrEnum):
    """Form of a weight."""

    plain = "plain"
    sqrt = "sqrt"


_DEFAULT_FORM = Form(DEFAULT_FORM)


class Format(StrEnum):
    """Format of the input."""

    auto = "auto"
    letor = "letor"
    qrels = "qrels"


def weights(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="LETOR or SVMlight file, TREC qrels, or csv/parquet with columns qid and label; a "
            "quoted pattern, as 'train-*.parquet', names the parts of one table.",
        ),
    ],
    measure: Annotated[str, typer.Option("-m", "--measure", metavar="MEASURE", help="Measure to train for.")] = "nDCG",
    bounding: Annotated[
        str, typer.Option(metavar="NAME", help="min-max, expectation (not for tree ensembles) or expectation-max.")
    ] = "expectation-max",
    per: Annotated[
        Per, typer.Option(help="One weight per query, or the weight of its query for each row.")
    ] = Per.query,
    form: Annotated[Form, typer.Option(help="The weight itself (plain) or its square root.")] = _DEFAULT_FORM,
    cap: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Cut weights at this multiple of their median.")
    ] = None,
    effective: Annotated[
        float,
        typer.Option(
            metavar="FRACTION", help="Cut weights to have at least this effective sample fraction; 0: do not."
        ),
    ] = LEAST_EFFECTIVE,
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
    cluster: options.Cluster = None,
    shuffle: options.Shuffle = True,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
) -> None:
    """Compute weights that make a trainer difficulty-aware: from 1/(B-W), 1/E or 1/(B-E) of each query.

    Pass them to LightGBM, XGBoost, CatBoost or scikit-learn as query or sample weights. Queries without a choice,
    on which all rankings have the same value, get 0; their number is reported. Very large weights are cut so that
    the effective sample size, (sum w)^2 / sum w^2, is at least half of the number of queries with a weight.

    \b
    Examples:
      rankbound weights train.txt -m nDCG --per row -o train.txt.weight.txt
      rankbound weights train.txt -m nDCG --form plain --effective 0   # exactly 1/(B-E)
    """
    from rankbound.data.large import is_in_parts
    from rankbound.difficulty.queries import query_weights, weights_of_parts

    if out is not None and not out.endswith(".txt"):
        output.check_table_path(out)
    settings: dict[str, Any] = {
        "measure": measure,
        "bounding": bounding,
        "form": form.value,
        "cap": cap,
        "effective": effective or None,
        "normalize": normalize,
    }
    in_parts = cluster is not None or is_in_parts(file)
    if in_parts and per is Per.row:
        raise ArgumentError("--per must be query for a table in parts, got row")
    rows = None if in_parts else _read(file, file_format, per)
    with output.working("computing weights ..."):
        if rows is None:
            result = weights_of_parts(file, **settings, cluster=cluster, shuffle=shuffle, scratch=scratch)
        else:
            result = query_weights(rows.labels, rows.qid, **settings)
    qid, values = result.qids, result.weights
    if rows is not None and per is Per.row:
        qid, values = rows.qid, result.per_row(rows.qid)
    if out is not None:
        _write(out, qid, values)
    if result.warning is not None:
        output.print_warnings([result.warning])
    queries, no_choice = len(result.weights), int((result.weights == 0).sum())
    summary = result.summary()
    if as_json:
        settings |= {"per": per.value, "queries": queries, "no_choice_queries": no_choice}
        settings["rows"] = None if rows is None else len(rows.qid)
        listed = {} if out is not None else {"qid": qid.tolist(), "weights": values.tolist()}
        warning = {"warnings": [] if result.warning is None else [result.warning]}
        output.print_json(settings | summary | warning | listed, indent=None)
        return
    notes = [f"{no_choice} of {queries} queries without a choice (all rankings have the same {measure}): weight 0"]
    if no_choice < queries:
        notes.append(
            f"effective sample fraction {summary['effective_sample_fraction']:.3f}; median weight "
            f"{summary['median']:.4g}, maximum {summary['maximum']:.4g}, {summary['capped']} capped"
        )
    if out is None:
        typer.echo("\n".join(f"{name}\t{weight:.9g}" for name, weight in zip(qid.tolist(), values, strict=True)))
        for note in notes:
            typer.echo(note, err=True)
    else:
        output.print_note(f"{len(values)} weights written to {out}")
        for note in notes:
            output.print_note(note)


class _Rows(NamedTuple):
    labels: NDArray[Any]
    qid: NDArray[Any]


def _read(path: str, file_format: Format, per: Per) -> _Rows:
    import numpy as np

    from rankbound.data import frames, letor, trec

    if frames.is_table_path(path):
        lists_frame = frames.rename_columns(frames.read_frame(path), {}, required=("qid", "label"), source=path)
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


def _write(path: str, qid: NDArray[Any], values: NDArray[Any]) -> None:
    if path.endswith(".txt"):
        from rankbound.io import atomic_write

        with atomic_write(path) as temporary:
            temporary.write_text("".join(f"{value:.9g}\n" for value in values))
        return
    import polars as pl

    output.write_table(pl.DataFrame({"qid": qid, "weight": values}), path)
