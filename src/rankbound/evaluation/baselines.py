"""Baselines: the values of a run for each query, in a JSON file that says how they were computed.

A change is compared with the stored values only if it is measured in the same way: the same measure, policy and
version (the signature), and the same judgments (their SHA-256).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.frames import id_text
from rankbound.errors import DataError
from rankbound.io import atomic_write, read_bytes

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.evaluation.result import Evaluation


_KIND = "rankbound baseline"


@dataclass(frozen=True, eq=False)
class Baseline:
    """The values of a run for each query: ``values[measure]`` has a number per query, NaN where there is none."""

    name: str
    query_ids: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]
    signatures: Mapping[str, str]
    qrels_hash: str

    @classmethod
    def of(cls, result: Evaluation, name: str, qrels_hash: str) -> Baseline:
        """The values of an evaluation; ``qrels_hash`` is the `fingerprint` of its judgments."""
        query_ids = tuple(str(query) for query in np.asarray(result.query_ids).tolist())
        return cls(name, query_ids, result.values, result.signature, qrels_hash)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the baseline as JSON."""
        rows = {
            measure: [None if math.isnan(value) else value for value in values.tolist()]
            for measure, values in self.values.items()
        }
        content = {
            "kind": _KIND,
            "run": self.name,
            "signatures": dict(self.signatures),
            "qrels_hash": self.qrels_hash,
            "queries": list(self.query_ids),
            "values": rows,
        }
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Baseline:
        """Read a baseline that `save` wrote; DataError for any other file."""
        try:
            content = json.loads(read_bytes(path).decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: is not JSON: {error}") from error
        if not isinstance(content, dict) or content.get("kind") != _KIND:
            raise DataError(f"{path}: is no stored baseline; `rankbound gate QRELS RUN --save FILE` writes one")
        try:
            queries = [_text(query) for query in content["queries"]]
            signatures = {_text(measure): _text(text) for measure, text in content["signatures"].items()}
            values = {measure: _values(content["values"][measure], len(queries)) for measure in signatures}
            if len(set(queries)) < len(queries) or not signatures:
                raise ValueError("a query occurs twice, or there is no measure")
            return cls(_text(content["run"]), tuple(queries), values, signatures, _text(content["qrels_hash"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{path}: is a damaged baseline: {error!r}") from error

    def check(self, signatures: Mapping[str, str], qrels_hash: str) -> None:
        """Raise DataError unless the measures have these signatures, and the judgments are the same."""
        again = "; store the baseline again with --save"
        for measure, wanted in signatures.items():
            known = self.signatures.get(measure)
            if known is None:
                raise DataError(f"{self.name}: the baseline has no {measure}, only {', '.join(self.values)}{again}")
            if known != wanted:
                raise DataError(f"{self.name}: the baseline has the signature {known}, the run {wanted}{again}")
        if self.qrels_hash != qrels_hash:
            raise DataError(f"{self.name}: the baseline was measured with other judgments{again}")

    def values_for(self, measure: str, query_ids: Any) -> NDArray[np.float64]:
        """The values for these queries; NaN for those that the baseline lacks."""
        index = {query: row for row, query in enumerate(self.query_ids)}
        rows = [index.get(str(query), -1) for query in np.asarray(query_ids).tolist()]
        return np.append(self.values[measure], np.nan)[rows]


def fingerprint(qrels: pl.DataFrame) -> str:
    """SHA-256 of judgments (qid, docid, label), whatever the order of their rows.

    >>> import polars as pl
    >>> rows = pl.DataFrame({"qid": [1, 1], "docid": ["a", "b"], "label": [1, 0]})
    >>> fingerprint(rows) == fingerprint(rows.reverse())
    True
    """
    import polars as pl

    names = [id_text(qrels[name]).alias(name) for name in ("qid", "docid")]
    rows = pl.DataFrame([*names, qrels["label"].cast(pl.Float64)]).sort("qid", "docid")
    lines = rows.select(pl.concat_str(pl.all(), separator="\t"))[rows.columns[0]]
    return hashlib.sha256("\n".join(lines.to_list()).encode("utf-8", "surrogatepass")).hexdigest()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r}")
    return value


def _values(values: Any, count: int) -> NDArray[np.float64]:
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"expected {count} values")
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise TypeError(f"expected a number, got {value!r}")
    array = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    if np.isinf(array).any():
        raise ValueError("a value is infinite")
    return array
