"""Read the candidates of queries: the documents whose rankings bounds and normalized measures are about.

`rankbound.difficulty.candidates` explains the rules. Here candidates that are listed explicitly, in a file, a frame, a
dict or a column, become a frame with the columns qid and docid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from rankbound.data import frames
from rankbound.data.ir_datasets import is_ir_dataset, read_ir_dataset
from rankbound.data.json_lines import is_json_lines, read_json_lines
from rankbound.data.result_files import is_json, read_json
from rankbound.data.text_chunks import read_text
from rankbound.errors import ArgumentError, DataError, FileFormatError
from rankbound.protocol import CANDIDATES, EXPLICIT, JUDGED_OUTSIDE

if TYPE_CHECKING:
    import polars as pl

_COLUMN = "column:"


@dataclass(frozen=True, eq=False)
class CandidateSource:
    """Candidates by a rule, as a table with qid and docid, or as a column of a table that is still to be read."""

    rule: str = CANDIDATES[0]
    table: pl.DataFrame | None = None
    column: str | None = None
    judged_outside: str = JUDGED_OUTSIDE[0]
    name: str = CANDIDATES[0]
    """What outputs say: the rule, the file, ``column:NAME``, or "explicit"."""

    @property
    def is_rule(self) -> bool:
        """Whether the candidates follow from judgments and run alone."""
        return self.table is None and self.column is None

    def take_column(self, judgments: pl.DataFrame) -> tuple[pl.DataFrame, CandidateSource]:
        """Separate judgments from candidates where a column of the judgments marks the candidates.

        Rows without a label are candidates without a judgment.
        """
        if self.column is None or "candidate" not in judgments.columns:
            return judgments, self
        marked = judgments.filter("candidate").select("qid", "docid")
        judged = judgments.drop_nulls("label").drop("candidate")
        return judged, replace(self, table=marked, column=None, judged_outside="ignore")

    def of_queries(self, queries: pl.Series) -> CandidateSource:
        """The candidates of some queries."""
        import polars as pl

        if self.table is None:
            return self
        table = self.table
        if table["qid"].dtype != queries.dtype:
            table, queries = table.with_columns(frames.id_text(table["qid"])), frames.id_text(queries)
        return replace(self, table=table.filter(pl.col("qid").is_in(queries.implode())))


def read_candidates(candidates: Any, judged_outside: str = JUDGED_OUTSIDE[0]) -> CandidateSource:
    """Read candidates: a rule, ``column:NAME``, a path, a table, or ``{query: documents}``.

    An id of ir_datasets (``irds:...``) stands for the scored documents of that data set.

    >>> read_candidates({"q": ["a", "b"]}).table.rows()
    [('q', 'a'), ('q', 'b')]
    >>> read_candidates("returned").rule
    'returned'
    >>> read_candidates({"q": ["a", "b"]}).name
    'explicit'
    """
    if isinstance(candidates, CandidateSource):
        return candidates
    if isinstance(candidates, str):
        if candidates in CANDIDATES:
            return CandidateSource(candidates, name=candidates)
        if candidates == EXPLICIT:
            raise ArgumentError("candidates that were given as a table must be given again, got their name 'explicit'")
        if candidates.startswith(_COLUMN):
            return CandidateSource(column=candidates.removeprefix(_COLUMN), name=candidates)
    if isinstance(candidates, Mapping):
        table = _from_dict(candidates)
    elif is_ir_dataset(candidates):
        table = read_ir_dataset(candidates).run.select("qid", "docid")
    elif isinstance(candidates, (str, PathLike)):
        if is_json_lines(candidates):
            table = _from_dict(read_json_lines(candidates, "score"))
        elif is_json(candidates):
            table = _from_dict(read_json(candidates, "score"))
        elif frames.is_table_path(candidates):
            table = _columns(frames.read_frame(candidates), candidates)
        else:
            table = _read_text(candidates)
    elif frames.is_table(candidates):
        table = _columns(frames.as_polars(candidates), "candidates")
    else:
        raise ArgumentError(
            "candidates must be 'judged', 'returned', 'column:NAME', a path, a frame with qid and docid, or "
            f"{{query: documents}}, got {candidates!r:.60}"
        )
    name = str(fspath(candidates)) if isinstance(candidates, (str, PathLike)) else EXPLICIT
    return CandidateSource(table=table.unique(maintain_order=True), judged_outside=judged_outside, name=name)


def _columns(table: pl.DataFrame, source: Any) -> pl.DataFrame:
    try:
        table = frames.rename_columns(table, {}, required=("qid", "docid")).select("qid", "docid")
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    for column in table:
        if column.null_count():
            raise DataError(f"{source}: column {column.name!r} must have no empty entries, got {column.null_count()}")
    return table


def _from_dict(candidates: Mapping[Any, Any]) -> pl.DataFrame:
    import polars as pl

    for query, documents in candidates.items():
        if isinstance(documents, (str, bytes)) or not hasattr(documents, "__iter__"):
            raise DataError(f"query {query!r} of candidates must have a collection of documents, got {documents!r:.60}")
    rows = [(query, document) for query, documents in candidates.items() for document in documents]
    try:
        return pl.DataFrame(rows, schema=["qid", "docid"], orient="row")
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DataError(f"candidates must have query and document ids of one kind each, got: {error}") from error


def _read_text(path: str | PathLike[str]) -> pl.DataFrame:
    """Read lines of text: a TREC run (6 fields), TREC qrels (4 fields), or "query document" (2 fields)."""
    from rankbound.data import trec

    line, fields = _first_line_and_fields(path)
    if fields == 2:
        return trec.read_pairs(path)
    if fields == 4 or fields >= 6:  # a run may have words after its tag
        return (trec.read_qrels(path) if fields == 4 else trec.read_run(path)).select("qid", "docid")
    raise FileFormatError(
        path,
        line,
        "expected lines of a TREC run (6 fields), of TREC qrels (4 fields) or of query and document",
        f"got {fields} fields",
    )


def _first_line_and_fields(path: str | PathLike[str]) -> tuple[int, int]:
    """The number of the first line that is neither empty nor a comment, and its number of fields."""
    for number, line in enumerate(read_text(path).split(b"\n"), start=1):
        if (fields := line.split()) and not fields[0].startswith(b"#"):
            return number, len(fields)
    return 1, 0
