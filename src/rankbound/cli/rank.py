"""rankbound rank: scores of a saved ranker as a TREC run, a table or plain numbers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output
from rankbound.cli.saved_models import check_packages_of_model
from rankbound.errors import ArgumentError
from rankbound.models import RECOMMENDERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists


class Part(StrEnum):
    """Part of a fold."""

    train = "train"
    validation = "validation"
    test = "test"


class Format(StrEnum):
    """Format of the output."""

    auto = "auto"
    trec = "trec"
    table = "table"
    scores = "scores"


def rank(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Folder written by rankbound train.")],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="LETOR or SVMlight file, or a data set such as mq2008 or mq2008/1 (fold 1)."
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="A TREC run, or a table if the name ends in .csv, .parquet or .json."
        ),
    ],
    part: Annotated[Part, typer.Option(help="Part of a fold to rank.")] = Part.test,
    file_format: Annotated[
        Format, typer.Option("--format", help="auto: by the file name; scores: one number per line.")
    ] = Format.auto,
    tag: Annotated[str, typer.Option(metavar="NAME", help="Name of the run in a TREC file.")] = "rankbound",
    as_json: options.Json = False,
) -> None:
    """Rank the documents of each query with a saved model.

    Document ids come from the comments of the file. If it does not have one for each row, row numbers from 1 are used.
    `rankbound evaluate` names the documents of a LETOR file in the same way.

    \b
    Example:
      rankbound rank model test.txt -o run.txt && rankbound evaluate test.txt run.txt
    """
    from rankbound.cli.train import fit_width, read_parts
    from rankbound.data.letor import check_row_order, document_names

    is_table = out.endswith((".csv", ".parquet", ".json"))
    if file_format is Format.auto:
        file_format = Format.table if is_table else Format.trec
    if file_format is Format.table:
        output.check_table_path(out)
    if not tag or len(tag.split()) != 1 or not tag.isprintable():
        raise ArgumentError(f"--tag must be one word of printable characters, got {tag!r}")
    check_packages_of_model("rank", model)
    with output.working("ranking ..."):
        from rankbound.models.saving import load_ranker

        ranker = load_ranker(model)
        if type(ranker).__name__ in RECOMMENDERS:
            raise ArgumentError(f"{model}: holds the recommender {type(ranker).__name__}, use 'rankbound recommend'")
        parts = read_parts(data)
        chosen = parts.train if parts.test is None else getattr(parts, part.value)
        if chosen is None:
            raise ArgumentError(f"{data}: has no {part.value} part")
        scores = ranker.predict(fit_width(chosen, ranker.n_features_in_).features, qid=chosen.lists.query_of_item)
        names, by_row = document_names(chosen, data)
        if file_format is Format.scores:
            check_row_order(chosen, data, "for one score per line")
        _write(out, file_format, chosen.lists, names, scores, tag)
    if as_json:
        output.print_json(
            {
                "output": out,
                "model": type(ranker).__name__,
                "queries": len(chosen.lists),
                "rows": len(scores),
                "format": file_format.value,
                "documents": "rows" if by_row else "ids",
            }
        )
    else:
        how = "; documents are named by their rows" if by_row and file_format is not Format.scores else ""
        output.print_note(f"{len(scores)} documents of {len(chosen.lists)} queries written to {out}{how}")


def _write(path: str, file_format: Format, lists: Lists, names: NDArray[Any], scores: NDArray[Any], tag: str) -> None:
    import numpy as np

    from rankbound.io import atomic_write

    qid = np.repeat(np.asarray(lists.query_ids), lists.sizes)
    if file_format is Format.table:
        import polars as pl

        output.write_table(pl.DataFrame({"qid": qid, "docid": names, "score": scores}), path)
        return
    if file_format is Format.scores:
        lines = [f"{score!r}\n" for score in scores.tolist()]
    else:
        order = np.lexsort((-scores, lists.query_of_item))  # equal scores keep their order
        rank = np.arange(len(order)) - np.repeat(lists.offsets[:-1], lists.sizes) + 1
        fields = zip(qid[order].tolist(), names[order].tolist(), rank.tolist(), scores[order].tolist(), strict=True)
        lines = [f"{query} Q0 {name} {position} {score!r} {tag}\n" for query, name, position, score in fields]
    with atomic_write(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
