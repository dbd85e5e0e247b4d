"""Judgements (qrels) and a run, brought together into Lists.

The conventions are trec_eval's. Documents of a run that nobody judged count as label 0, or are left out with
``judged_only`` (its -J). Judged documents that the run did not return belong to the query all the same: they count towards
what could have been found. Queries that only one of the two has are ignored; with ``missing="zero"`` (its -c) judged
queries that the run lacks are kept as rankings of nothing. The items of a query are the union of both sides.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from itertools import chain, compress, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists, sort_within_queries

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["MISSING", "from_dicts", "from_frames"]

MISSING = ("ignore", "zero")
_UNJUDGED = -1e300  # stands for "no label" while labels are being looked up


def from_dicts(
    qrels: Mapping[Any, Mapping[Any, Any]],
    run: Mapping[Any, Mapping[Any, Any]],
    *,
    missing: str = "ignore",
    judged_only: bool = False,
    keep_ids: bool = True,
) -> Lists:
    """From ``{query: {document: label}}`` and ``{query: {document: score}}``, the shape of pytrec_eval.

    >>> lists = from_dicts({"q": {"a": 1, "b": 0, "c": 2}}, {"q": {"b": 0.9, "a": 0.5, "x": 0.1}})
    >>> lists.labels.tolist(), lists.depths.tolist(), lists.ids.tolist()
    ([0, 1, 0, 2], [3], ['b', 'a', 'x', 'c'])
    """
    _check_policy(missing)
    names = [q for q in qrels if q in run] if missing == "ignore" else list(qrels)
    if not any(q in run for q in names):
        raise _nothing_in_common(next(iter(qrels), None), next(iter(run), None))
    judged = [qrels[q] for q in names]
    ranked: list[Mapping[Any, Any]] = [run.get(q, {}) for q in names]
    depths = np.fromiter(map(len, ranked), np.int64, len(names))
    total = int(depths.sum())
    # the loops over documents run inside chain, map and fromiter
    try:
        scores = np.fromiter(chain.from_iterable(r.values() for r in ranked), np.float64, total)
    except (TypeError, ValueError) as error:
        raise _not_a_number("score", zip(names, ranked, strict=True)) from error
    lookups = (map(j.get, r, repeat(_UNJUDGED)) for j, r in zip(judged, ranked, strict=True))
    known = np.fromiter(map(len, judged), np.int64, len(names))
    try:
        labels = np.fromiter(chain.from_iterable(lookups), np.float64, total)
        query = np.repeat(np.arange(len(names)), depths)
        unjudged = labels == _UNJUDGED
        found = depths - np.bincount(query[unjudged], minlength=len(names))
        # labels of judged documents that the run does not have
        partial = np.flatnonzero(found < known).tolist()
        absent = (map(operator.not_, map(ranked[q].__contains__, judged[q])) for q in partial)
        left = chain.from_iterable(compress(judged[q].values(), mask) for q, mask in zip(partial, absent, strict=True))
        left_labels = np.fromiter(left, np.float64, int((known - found).sum()))
    except (TypeError, ValueError) as error:
        raise _not_a_number("label", zip(names, judged, strict=True)) from error
    ids = None
    if keep_ids:
        ids = _objects(chain.from_iterable(ranked), total)
        left_ids = _objects((d for q in partial for d in judged[q] if d not in ranked[q]), len(left_labels))
        ids = np.concatenate((ids, left_ids))
    if judged_only:
        keep = np.concatenate((~unjudged, np.ones(len(left_labels), bool)))
        ids = None if ids is None else ids[keep]
        labels, scores, depths = labels[~unjudged], scores[~unjudged], found
    else:
        labels[unjudged] = 0
    return _assemble(_objects(names, len(names)), depths, scores, labels, known - found, left_labels, ids)


def from_frames(qrels: pl.DataFrame, run: pl.DataFrame, *, missing: str = "ignore", judged_only: bool = False) -> Lists:
    """From frames with the columns ``qid, docid, label`` and ``qid, docid, score``; rows may come in any order."""
    _check_policy(missing)
    qid_q, qid_r, names = _codes(qrels["qid"], run["qid"])
    doc_q, doc_r, documents = _codes(qrels["docid"], run["docid"])
    in_run = np.zeros(len(names), dtype=bool)
    in_run[qid_r] = True
    judged = np.zeros(len(names), dtype=bool)
    judged[qid_q] = True
    wanted = judged & in_run if missing == "ignore" else judged
    if not (judged & in_run).any():
        raise _nothing_in_common(*(frame["qid"][0] if len(frame) else None for frame in (qrels, run)))
    q = _Side(qid_q, doc_q, wanted, "qrels", names, documents)
    r = _Side(qid_r, doc_r, wanted, "run", names, documents)
    labels_q = _numbers(qrels["label"], "label")[q.rows]
    scores = _numbers(run["score"], "score")[r.rows]
    if np.array_equal(q.keys, r.keys):
        labels, unjudged, left = labels_q, np.zeros(len(r.keys), bool), np.zeros(len(q.keys), bool)
    else:
        at = np.minimum(np.searchsorted(q.keys, r.keys), max(len(q.keys) - 1, 0))
        unjudged = q.keys[at] != r.keys if len(q.keys) else np.ones(len(r.keys), bool)
        labels = np.where(unjudged, 0, labels_q[at])
        left = np.ones(len(q.keys), dtype=bool)
        left[at[~unjudged]] = False
    seen = ~unjudged if judged_only else np.ones(len(unjudged), dtype=bool)
    number = np.cumsum(wanted) - 1  # code of a query -> its place among the wanted
    count = int(wanted.sum())
    depths = np.bincount(number[r.query[seen]], minlength=count)
    tails = np.bincount(number[q.query[left]], minlength=count)
    docids = np.concatenate((r.document[seen], q.document[left]))
    return _assemble(
        np.asarray(names)[wanted], depths, scores[seen], labels[seen], tails, labels_q[left], docids, documents
    )


class _Side:
    """One frame's rows of the wanted queries, sorted by query and document."""

    def __init__(
        self, query: NDArray[Any], document: NDArray[Any], wanted: NDArray[np.bool_], frame: str, names: Any, docs: Any
    ) -> None:
        rows = np.arange(len(query)) if wanted.all() else np.flatnonzero(wanted[query])
        query, document = query[rows], document[rows]
        if (query[1:] < query[:-1]).any():
            small = query.astype(np.uint16) if len(names) <= 1 << 16 else query  # 16 bits are sorted by radix
            order = np.argsort(small, kind="stable")
            rows, query, document = rows[order], query[order], document[order]
        offsets = np.concatenate(([0], np.cumsum(np.bincount(query, minlength=len(names)))))
        if not ((document[1:] > document[:-1]) | (query[1:] != query[:-1])).all():
            order = sort_within_queries(document, offsets, stable=False)
            rows, query, document = rows[order], query[order], document[order]
            twice = np.flatnonzero((document[1:] == document[:-1]) & (query[1:] == query[:-1]))
            if len(twice):
                doc, q = docs[int(document[twice[0]])], names[int(query[twice[0]])]
                raise DataError(f"{frame}: document {doc!r} occurs more than once in query {q!r}")
        self.rows, self.query, self.document = rows, query, document
        self.keys = query.astype(np.int64) * len(docs) + document


class _Range:
    """The integers from ``start`` on, as if they were an array of names."""

    def __init__(self, start: int, length: int) -> None:
        self.start, self.length = start, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.start + index

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ARG002
        return np.arange(self.start, self.start + self.length, dtype=dtype)


def _codes(left: pl.Series, right: pl.Series) -> tuple[NDArray[Any], NDArray[Any], Any]:
    """Integer codes for the values of two columns, alike in both, and what the codes stand for."""
    import polars as pl

    if left.dtype.is_integer() and right.dtype.is_integer():
        a, b = left.to_numpy(), right.to_numpy()
        parts = [part for part in (a, b) if len(part)]
        low = min((int(part.min()) for part in parts), default=0)
        span = max((int(part.max()) for part in parts), default=0) - low + 1
        if span <= 4 * (len(a) + len(b)) + 1024:
            return a.astype(np.int64) - low, b.astype(np.int64) - low, _Range(low, span)
    if left.dtype != right.dtype:
        left, right = left.cast(pl.String), right.cast(pl.String)
    both = pl.concat([left, right])
    if both.null_count():
        raise DataError(f"column {left.name!r} must have no empty entries")
    run = both.rle_id()  # neighbours that agree; for query ids that leaves little to look up
    if len(both) and run[-1] + 1 < len(both) // 2:
        first = np.flatnonzero(np.diff(run.to_numpy(), prepend=np.uint32(2**32 - 1)))
        names = both.gather(first)
        values, code = _unique(names)
        code = code[run.to_numpy()]
    else:
        values, code = _unique(both)
    return code[: len(left)], code[len(left) :], values


def _unique(names: pl.Series) -> tuple[Any, NDArray[np.int64]]:
    import polars as pl

    if names.dtype == pl.String:
        distinct = names.unique(maintain_order=True)
        return distinct, names.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int64)
    values, first, code = np.unique(names.to_numpy(), return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))  # codes in order of first appearance
    return values[np.argsort(first)], place[code]


def _numbers(column: pl.Series, what: str) -> NDArray[Any]:
    if not column.dtype.is_numeric():
        raise DataError(f"column {column.name!r} must hold numbers, got {column.dtype}")
    if column.null_count():
        raise DataError(f"column {column.name!r} must have a {what} in every row, got {column.null_count()} empty")
    return column.to_numpy()


# ---- shared ----------------------------------------------------------------------------------------------------------


def _assemble(
    names: NDArray[Any],
    depths: NDArray[np.int64],
    scores: NDArray[Any],
    labels: NDArray[Any],
    tails: NDArray[np.int64],
    left_labels: NDArray[Any],
    ids: Any,
    id_names: Any = None,
) -> Lists:
    """Put the judged documents that no run returned behind the ranked ones of their query."""
    if len(left_labels) == 0:
        offsets = np.concatenate(([0], np.cumsum(depths)))
        return Lists(labels, offsets, scores, _named(ids, id_names), names)
    offsets = np.concatenate(([0], np.cumsum(depths + tails)))
    place = np.concatenate((_slots(offsets[:-1], depths), _slots(offsets[:-1] + depths, tails)))
    all_labels = np.empty(len(place), dtype=np.result_type(labels, left_labels))
    all_labels[place] = np.concatenate((labels, left_labels))
    all_scores = np.full(len(place), -np.inf)
    all_scores[place[: len(scores)]] = scores
    if ids is not None:
        moved = np.empty_like(ids)
        moved[place] = ids
        ids = moved
    return Lists(all_labels, offsets, all_scores, _named(ids, id_names), names, depths)


def _named(codes: Any, names: Any) -> Any:
    if names is None:
        return codes
    import polars as pl

    return names.gather(codes) if isinstance(names, pl.Series) else names[codes]


def _slots(start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, ... for each stretch."""
    return np.arange(int(length.sum())) + np.repeat(start - np.cumsum(length) + length, length)


def _objects(values: Any, length: int) -> NDArray[Any]:
    return np.fromiter(values, dtype=object, count=length)


def _check_policy(missing: str) -> None:
    if missing not in MISSING:
        raise ArgumentError(f"missing must be one of {', '.join(MISSING)}, got {missing!r}")


def _nothing_in_common(judged: object, ranked: object) -> DataError:
    return DataError(
        f"qrels and run have no query in common (the first of qrels is {judged!r}, the first of the run {ranked!r})"
    )


def _not_a_number(what: str, queries: Any) -> DataError:
    """Find the entry that is to blame; called only after the fast way has failed."""
    for name, documents in queries:
        if not isinstance(documents, Mapping):
            return DataError(f"query {name!r} must map documents to a {what}, got {type(documents).__name__}")
        for document, value in documents.items():
            try:
                float(value)
            except (TypeError, ValueError):
                return DataError(f"{what} of document {document!r} in query {name!r} must be a number, got {value!r}")
    return DataError(f"{what}s must be numbers")
