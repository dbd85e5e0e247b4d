"""Data sets of ir_datasets by their ids, such as ``irds:beir/scifact/test``: judgments, scored documents and texts.

PyTerrier writes such ids in the same way. What is on disk is read from there; ir_datasets itself downloads the rest if
it may. The package is imported when an id is first used (extra ``ir-datasets``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rankbound.errors import DataError
from rankbound.lists import Lists
from rankbound.packages import import_package

if TYPE_CHECKING:
    import polars as pl

_PREFIX = "irds:"
_PARTS = ("docs", "queries", "qrels", "scoreddocs")


@dataclass(frozen=True, eq=False)
class IrDataset:
    """A data set of ir_datasets. Each part is read when it is first used, and an error names the one that is missing.

    Attributes
    ----------
    name:
        The id with its prefix.
    parts:
        What the data set has of docs, queries, qrels and scoreddocs.
    """

    name: str
    parts: tuple[str, ...]
    _source: Any = field(repr=False)

    @cached_property
    def lists(self) -> Lists:
        """The judged documents of each query, with their labels."""
        judgments = self.qrels
        return Lists.from_qid(judgments["label"].to_numpy(), judgments["qid"].to_numpy(), ids=judgments["docid"])

    @cached_property
    def qrels(self) -> pl.DataFrame:
        """The judgments, with the columns qid, docid and label."""
        return self._table("qrels", {"query_id": "qid", "doc_id": "docid", "relevance": "label"})

    @cached_property
    def run(self) -> pl.DataFrame:
        """The scored documents of data sets for re-ranking, with the columns qid, docid and score."""
        return self._table("scoreddocs", {"query_id": "qid", "doc_id": "docid", "score": "score"})

    @cached_property
    def queries(self) -> pl.DataFrame:
        """The texts of the queries, with the columns id and text."""
        return self._texts("queries", "query_id")

    @cached_property
    def corpus(self) -> pl.DataFrame:
        """The texts of all documents, with the columns id and text."""
        return self._texts("docs", "doc_id")

    def _table(self, part: str, names: dict[str, str]) -> pl.DataFrame:
        import polars as pl

        fields = attrgetter(*names)
        present: Sequence[str] = self._call(part, "cls")._fields
        absent = [name for name in names if name not in present]
        if absent:
            raise DataError(f"{self.name}: {part} must have the field {absent[0]}, got {', '.join(present)}")
        with self._explained(part):
            rows = [fields(row) for row in self._call(part, "iter")]
            if not rows:
                raise DataError(f"{self.name}: {part} must have at least one row, got none")
            kinds = {"qid": pl.String, "docid": pl.String, "label": pl.Int64, "score": pl.Float64}
            return pl.DataFrame(rows, schema={name: kinds[name] for name in names.values()}, orient="row")

    def _texts(self, part: str, identifier: str) -> pl.DataFrame:
        import polars as pl

        with self._explained(part):
            rows = [(getattr(row, identifier), row.default_text()) for row in self._call(part, "iter")]
        return pl.DataFrame(rows, schema={"id": pl.String, "text": pl.String}, orient="row")

    def _call(self, part: str, method: str) -> Any:
        if part not in self.parts:
            raise DataError(f"{self.name}: the data set has no {part}; it has {', '.join(self.parts) or 'nothing'}")
        return getattr(self._source, f"{part}_{method}")()

    @contextmanager
    def _explained(self, part: str) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except Exception as error:  # missing files, failed downloads and damaged files raise errors of a dozen types
            what = error.args[0] if error.args else ""  # the message of a failed download, without its attempts
            reason = " ".join(f"{type(error).__name__}: {what}".split())
            raise DataError(f"{self.name}: {part} cannot be read: {reason:.300}") from error


def is_ir_dataset(source: object) -> bool:
    """Whether the source is an id of ir_datasets: text that begins with "irds:".

    >>> is_ir_dataset("irds:beir/scifact/test"), is_ir_dataset("qrels.txt")
    (True, False)
    """
    return isinstance(source, str) and source.startswith(_PREFIX)


def read_ir_dataset(name: str) -> IrDataset:
    """Find a data set of ir_datasets by its id, with or without the prefix ``irds:``; nothing is read yet.

    >>> read_ir_dataset("irds:vaswani")
    IrDataset(name='irds:vaswani', parts=('docs', 'queries', 'qrels'))
    >>> read_ir_dataset("irds:vaswany")
    Traceback (most recent call last):
    rankbound.errors.DataError: irds:vaswany: ir_datasets knows no data set of this id; nearest ids: vaswani...
    """
    identifier = name.removeprefix(_PREFIX)
    name = _PREFIX + identifier
    ir_datasets = import_package("ir_datasets", name)
    try:
        source = ir_datasets.load(identifier)
    except KeyError:
        nearest = ", ".join(get_close_matches(identifier, list(ir_datasets.registry), n=3))
        hint = f"; nearest ids: {nearest}" if nearest else ""
        raise DataError(f"{name}: ir_datasets knows no data set of this id{hint}") from None
    return IrDataset(name, tuple(part for part in _PARTS if source.has(part)), source)
