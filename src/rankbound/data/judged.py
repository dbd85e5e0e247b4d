"""Combine judgments (qrels) and a run into Lists, by the conventions of trec_eval.

The items of a query are the documents that the run returned, followed by the judged documents that it did not return,
which count towards what could have been found. Documents without a judgment have label 0 and are marked in
``Lists.judged``; ``judged_only`` (trec_eval -J) removes them. Queries that only one side has are ignored; with
``missing="zero"`` (trec_eval -c) judged queries that the run lacks become empty rankings. ``Lists.coverage`` counts the
queries and documents that both sides have and those that only one has.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain, compress, pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Coverage, Lists
from rankbound.protocol import MISSING, Protocol

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.data.candidates import CandidateSource

CHUNK = 100_000  # documents of dicts that are evaluated at once: enough for speed, few enough for the cache
_UNJUDGED = -1e300  # stands for "no label" while labels are looked up


class DuplicateError(DataError):
    """A document occurs twice in a query; ``side`` is ``qrels`` or ``run``."""

    def __init__(self, side: str, message: str, query: Any = None, document: Any = None) -> None:
        super().__init__(f"{side}: {message}")
        self.side, self._message, self.query, self.document = side, message, query, document

    def __reduce__(self) -> tuple[Any, ...]:
        # to be pickled when a worker process returns it
        return type(self), (self.side, self._message, self.query, self.document)


class CandidatesError(DataError):
    """Candidates lack judged documents; the message names where the candidates come from."""


def from_dicts(
    qrels: Mapping[Any, Mapping[Any, Any]],
    run: Mapping[Any, Mapping[Any, Any]],
    *,
    missing: str = MISSING[0],
    judged_only: bool = False,
    keep_ids: bool = True,
) -> Lists:
    """Combine ``{query: {document: label}}`` and ``{query: {document: score}}``, the form that pytrec_eval uses.

    >>> lists = from_dicts({"q": {"a": 1, "b": 0, "c": 2}}, {"q": {"b": 0.9, "a": 0.5, "x": 0.1}})
    >>> lists.labels.tolist(), lists.depths.tolist(), lists.ids.tolist()
    ([0, 1, 0, 2], [3], ['b', 'a', 'x', 'c'])
    """
    Protocol(missing=missing)  # which checks it
    names, coverage = _queries_of_dicts(qrels, run, missing)
    return _lists_of_dicts(qrels, run, names, coverage, judged_only, keep_ids)


def dict_chunks(
    qrels: Mapping[Any, Mapping[Any, Any]],
    run: Mapping[Any, Mapping[Any, Any]],
    *,
    missing: str = MISSING[0],
    judged_only: bool = False,
    keep_ids: bool = True,
) -> Iterator[Lists]:
    """Yield what `from_dicts` returns in parts of about `CHUNK` documents, which need less memory than all at once.

    The coverages of the parts add up to that of the whole. The policy is that of a `rankbound.Protocol`.
    """
    names, coverage = _queries_of_dicts(qrels, run, missing)
    documents = (len(qrels[q]) + len(run.get(q, ())) for q in names)
    chunk = np.cumsum(np.fromiter(documents, np.int64, len(names))) // (2 * CHUNK)
    starts = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(names)]
    for start, end in pairwise(starts):
        part = names[start:end]
        coverage = replace(coverage, shared_queries=sum(q in run for q in part))
        with np.errstate(over="ignore"):  # a longdouble that overflows is refused as any infinity
            lists = _lists_of_dicts(qrels, run, part, coverage, judged_only, keep_ids)
        yield lists
        coverage = Coverage()  # the first part counts the queries that only one side has


def _queries_of_dicts(
    qrels: Mapping[Any, Mapping[Any, Any]], run: Mapping[Any, Mapping[Any, Any]], missing: str
) -> tuple[list[Any], Coverage]:
    """Return the queries to evaluate, and how many each side has."""
    shared = [q for q in qrels if q in run]
    if not shared:
        raise nothing_in_common(next(iter(qrels), None), next(iter(run), None))
    coverage = Coverage(len(qrels) - len(shared), len(run) - len(shared), len(shared))
    return shared if missing == "ignore" else list(qrels), coverage


def _lists_of_dicts(
    qrels: Mapping[Any, Mapping[Any, Any]],
    run: Mapping[Any, Mapping[Any, Any]],
    names: list[Any],
    coverage: Coverage,
    judged_only: bool,
    keep_ids: bool,
) -> Lists:
    """Combine the documents of these queries."""
    judged = [qrels[q] for q in names]
    ranked: list[Mapping[Any, Any]] = [run.get(q, {}) for q in names]
    depths = np.fromiter(map(len, ranked), np.int64, len(names))
    total = int(depths.sum())
    # chain, map and fromiter loop over the documents in C
    try:
        scores = np.fromiter(chain.from_iterable(r.values() for r in ranked), np.float64, total)
    except (TypeError, ValueError) as error:
        raise _not_a_number("score", zip(names, ranked, strict=True)) from error
    known = np.fromiter(map(len, judged), np.int64, len(names))
    try:
        labels = _labels_of_ranked(judged, ranked, total)
        unjudged, judged_depths = labels == _UNJUDGED, depths
        if unjudged.any():
            query = np.repeat(np.arange(len(names)), depths)
            judged_depths = depths - np.bincount(query[unjudged], minlength=len(names))
        # labels of judged documents that the run does not have
        partial = np.flatnonzero(judged_depths < known).tolist()
        absent = (map(operator.not_, map(ranked[q].__contains__, judged[q])) for q in partial)
        left = chain.from_iterable(compress(judged[q].values(), mask) for q, mask in zip(partial, absent, strict=True))
        left_labels = np.fromiter(left, np.float64, int((known - judged_depths).sum()))
    except (TypeError, ValueError) as error:
        raise _not_a_number("label", zip(names, judged, strict=True)) from error
    coverage = coverage.with_documents(depths, judged_depths)
    if total and not coverage.judged_documents:
        first = next(q for q in names if run.get(q))
        coverage = replace(coverage, first_ids=(next(iter(qrels[first]), None), next(iter(run[first]))))
    ids = None
    if keep_ids:
        ids = _objects(chain.from_iterable(ranked), total)
        left_ids = _objects((d for q in partial for d in judged[q] if d not in ranked[q]), len(left_labels))
        ids = np.concatenate((ids, left_ids))
    if judged_only:
        keep = np.concatenate((~unjudged, np.ones(len(left_labels), bool)))
        ids = None if ids is None else ids[keep]
        labels, scores, depths = labels[~unjudged], scores[~unjudged], judged_depths
    else:
        labels[unjudged] = 0
    return _assemble(
        names=_objects(names, len(names)),
        depths=depths,
        scores=scores,
        labels=labels,
        unjudged=None if judged_only else unjudged,
        left_counts=known - judged_depths,
        left_labels=left_labels,
        ids=ids,
        coverage=coverage,
    )


def _labels_of_ranked(
    judged: list[Mapping[Any, Any]], ranked: list[Mapping[Any, Any]], total: int
) -> NDArray[np.float64]:
    """Return the label of each document of the run, `_UNJUDGED` where there is none."""
    if set(map(type, judged)) == {dict}:  # other mappings may return, or even store, values for keys they lack
        with suppress(KeyError):  # two faster ways, if every document is judged
            if min(map(len, ranked)) > 1:  # of a single key, itemgetter returns no tuple
                with suppress(TypeError, ValueError):  # and if labels are integers from 0 to 255
                    grades = (bytes(operator.itemgetter(*r)(j)) for j, r in zip(judged, ranked, strict=True))
                    return np.frombuffer(b"".join(grades), np.uint8).astype(np.float64)
            certain = (map(j.__getitem__, r) for j, r in zip(judged, ranked, strict=True))
            return np.fromiter(chain.from_iterable(certain), np.float64, total)
    lookups = (map(j.get, r, repeat(_UNJUDGED)) for j, r in zip(judged, ranked, strict=True))
    return np.fromiter(chain.from_iterable(lookups), np.float64, total)


def from_frames(
    qrels: pl.DataFrame,
    run: pl.DataFrame,
    *,
    missing: str = MISSING[0],
    judged_only: bool = False,
    disjoint: bool = False,
    candidates: CandidateSource | None = None,
    returned_nothing: Collection[str] = (),
) -> Lists:
    """Combine frames with the columns ``qid, docid, label`` and ``qid, docid, score``; rows may have any order.

    Frames without a shared query raise DataError, unless ``disjoint`` is True. ``returned_nothing`` are queries for
    which the run returned no document, which a frame cannot say; they are empty rankings. ``candidates`` that list
    documents are marked in ``Lists.candidates``; those that are neither judged nor returned become items, too. Judged
    documents that they lack raise DataError unless their ``judged_outside`` is "ignore" or "add".
    """
    Protocol(missing=missing)  # which checks it
    is_judged = is_candidate = None
    if candidates is not None and candidates.table is not None:
        if judged_only:
            raise ArgumentError("judged_only removes documents that candidates may list; pass one of the two")
        qrels, is_judged, is_candidate = _with_candidates(qrels, candidates.table)
    query_q, query_r, names = _codes(qrels["qid"], run["qid"])
    doc_q, doc_r, documents = _codes(qrels["docid"], run["docid"])
    known = query_q if is_judged is None else query_q[is_judged]
    judged, ranked = (np.bincount(query, minlength=len(names)) > 0 for query in (known, query_r))
    if returned_nothing:
        ranked |= np.isin(np.asarray(names).astype(np.str_), list(returned_nothing))
    if not disjoint and not (judged & ranked).any():
        raise nothing_in_common(*(frame["qid"][0] if len(frame) else None for frame in (qrels, run)))
    span = len(names) * len(documents)

    def not_twice(frame: str, query: NDArray[Any], doc: NDArray[Any], twice: NDArray[np.int64]) -> None:
        if len(twice):
            document, name = documents[int(doc[twice[0]])], names[int(query[twice[0]])]
            message = f"document {document!r} occurs more than once in query {name!r}"
            raise DuplicateError(frame, message, name, document)

    key_q, key_r = query_q * len(documents) + doc_q, query_r * len(documents) + doc_r
    match, twice_q, twice_r = _match(key_q, key_r, span)
    not_twice("qrels", query_q, doc_q, twice_q)
    not_twice("run", query_r, doc_r, twice_r)
    wanted = judged & ranked if missing == "ignore" else judged
    keep = wanted[query_r] if not wanted[ranked].all() else np.ones(len(query_r), dtype=bool)
    if judged_only:
        keep &= match >= 0
    if candidates is not None and candidates.judged_outside == "add" and is_candidate is not None:
        is_candidate[is_judged] = True
    if candidates is not None and is_judged is not None and is_candidate is not None:
        outside = np.flatnonzero(is_judged & ~is_candidate & wanted[query_q])
        if len(outside) and candidates.judged_outside == "error":
            document, name = documents[int(doc_q[outside[0]])], names[int(query_q[outside[0]])]
            raise CandidatesError(
                f"{candidates.name}: candidates must contain every judged document, got {len(outside)} that they lack, "
                f"the first is {document!r} of query {name!r}; judged_outside='add' adds them, 'ignore' leaves them out"
            )
    left = wanted[query_q]
    left[match[match >= 0]] = False
    rows, rows_left = _by_query(query_r, keep, len(names)), _by_query(query_q, left, len(names))
    label = _numbers(qrels["label"], "label")
    match = match[rows]
    unjudged = match < 0
    marked = None
    if is_judged is not None and is_candidate is not None:
        marked = np.concatenate((is_candidate[match] & ~unjudged, is_candidate[rows_left]))
        unjudged = unjudged | ~is_judged[match]
    depths = np.bincount(query_r[rows], minlength=len(names))
    shared = judged & ranked
    coverage = Coverage(int((judged & ~ranked).sum()), int((ranked & ~judged).sum()), int(shared.sum()))
    coverage = coverage.with_documents(
        (np.bincount(query_r, minlength=len(names)) if judged_only else depths)[shared],
        depths[shared] if not unjudged.any() else np.bincount(query_r[rows][~unjudged], minlength=len(names))[shared],
    )
    if coverage.has_no_common_document:
        first = int(np.flatnonzero(shared)[0])
        sides = ((query_q, doc_q), (query_r, doc_r))
        judged_id, returned_id = (documents[int(doc[np.argmax(query == first)])] for query, doc in sides)
        coverage = replace(coverage, first_ids=(judged_id, returned_id))
    return _assemble(
        names=np.asarray(names)[wanted],
        depths=depths[wanted],
        scores=_numbers(run["score"], "score")[rows],
        labels=np.where(unjudged, 0, label[match]),
        unjudged=unjudged,
        left_counts=np.bincount(query_q[rows_left], minlength=len(names))[wanted],
        left_labels=label[rows_left],
        left_unjudged=None if is_judged is None else ~is_judged[rows_left],
        candidates=marked,
        ids=np.concatenate((doc_r[rows], doc_q[rows_left])),
        id_names=documents,
        coverage=coverage,
    )


def _with_candidates(
    qrels: pl.DataFrame, candidates: pl.DataFrame
) -> tuple[pl.DataFrame, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the judgments with the other candidates as label 0, and which rows are judged and which are candidates."""
    import polars as pl

    from rankbound.data.frames import with_equal_id_types

    judgments, candidates = with_equal_id_types([qrels.select("qid", "docid", "label"), candidates])
    candidates = candidates.filter(candidates["qid"].is_in(judgments["qid"].unique().implode()))
    marked = candidates.unique(maintain_order=True).with_columns(pl.lit(value=True).alias("candidate"))
    is_candidate = (
        judgments.join(marked, on=["qid", "docid"], how="left", maintain_order="left")["candidate"]
        .fill_null(value=False)
        .to_numpy()
    )
    added = marked.join(judgments, on=["qid", "docid"], how="anti", maintain_order="left")
    zero = pl.lit(0).cast(judgments["label"].dtype).alias("label")
    every = pl.concat([judgments, added.select("qid", "docid", zero)])
    is_judged = np.arange(len(every)) < len(judgments)
    return every, is_judged, np.concatenate((is_candidate, np.ones(len(added), dtype=bool)))


def _match(
    key_q: NDArray[np.int64], key_r: NDArray[np.int64], span: int
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Return for each run row the qrels row with its key, or -1, and the rows of either side whose key occurs again."""
    if span <= 4 * (len(key_q) + len(key_r)) + (1 << 20):  # the keys are dense: use a table
        number_q, number_r = np.arange(len(key_q), dtype=np.int32), np.arange(len(key_r), dtype=np.int32)
        table = np.empty(span, dtype=np.int32)
        table[key_r] = number_r
        twice_r = np.flatnonzero(table[key_r] != number_r)
        table[:] = -1
        table[key_q] = number_q
        return table[key_r], np.flatnonzero(table[key_q] != number_q), twice_r
    order_q, order_r = np.argsort(key_q), np.argsort(key_r)
    key_q, key_r = key_q[order_q], key_r[order_r]
    twice_q = order_q[:-1][key_q[1:] == key_q[:-1]]
    twice_r = order_r[:-1][key_r[1:] == key_r[:-1]]
    at = np.minimum(np.searchsorted(key_q, key_r), len(key_q) - 1)
    match = np.empty(len(key_r), dtype=np.int64)
    match[order_r] = np.where(key_q[at] == key_r, order_q[at], -1)
    return match, twice_q, twice_r


def _by_query(query: NDArray[Any], keep: NDArray[np.bool_], queries: int) -> NDArray[np.int64] | slice:
    """Return the rows to keep, grouped by query; all rows as a slice, which copies nothing."""
    grouped = bool((query[1:] >= query[:-1]).all())
    if grouped:
        return slice(None) if keep.all() else np.flatnonzero(keep)
    rows = np.flatnonzero(keep)
    code = query[rows]
    small = code.astype(np.uint16) if queries <= 1 << 16 else code  # NumPy sorts 16 bits by radix
    return rows[np.argsort(small, kind="stable")]


class _Range:
    """The integers from ``start`` on, used as an array of identifiers."""

    def __init__(self, start: int, length: int) -> None:
        self.start, self.length = start, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.start + index

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.arange(self.start, self.start + self.length, dtype=dtype)


def _codes(left: pl.Series, right: pl.Series) -> tuple[NDArray[Any], NDArray[Any], Any]:
    """Return integer codes for the values of two columns, the same in both, and the values that the codes stand for."""
    import polars as pl

    from rankbound.data.frames import id_text

    if left.null_count() or right.null_count():
        raise DataError(f"column {left.name!r} must have no empty entries")
    if left.dtype.is_integer() and right.dtype.is_integer():
        a, b = left.to_numpy(), right.to_numpy()
        parts = [part for part in (a, b) if len(part)]
        low = min((int(part.min()) for part in parts), default=0)
        span = max((int(part.max()) for part in parts), default=0) - low + 1
        if span <= 4 * (len(a) + len(b)) + 1024 and low + span <= 2**63:
            if low == 0 and a.dtype == b.dtype == np.int64:
                return a, b, _Range(0, span)
            return a.astype(np.int64) - low, b.astype(np.int64) - low, _Range(low, span)
    if left.dtype != right.dtype:
        left, right = id_text(left), id_text(right)
    both = pl.concat([left, right])
    run = both.rle_id()  # of equal neighbors, which leaves few query ids to look up
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
    rank = np.argsort(np.argsort(first))  # codes in order of first appearance
    return values[np.argsort(first)], rank[code]


def _numbers(column: pl.Series, what: str) -> NDArray[Any]:
    if not column.dtype.is_numeric():
        raise DataError(f"column {column.name!r} must hold numbers, got {column.dtype}")
    if column.null_count():
        raise DataError(f"column {column.name!r} must have a {what} in every row, got {column.null_count()} empty")
    return column.to_numpy()


# ---- shared ----------------------------------------------------------------------------------------------------------


def _assemble(
    *,
    names: NDArray[Any],
    depths: NDArray[np.int64],
    scores: NDArray[Any],
    labels: NDArray[Any],
    unjudged: NDArray[np.bool_] | None,
    left_counts: NDArray[np.int64],
    left_labels: NDArray[Any],
    ids: Any,
    id_names: Any = None,
    coverage: Coverage,
    left_unjudged: NDArray[np.bool_] | None = None,
    candidates: NDArray[np.bool_] | None = None,
) -> Lists:
    """Create Lists in which the judged documents that were not returned follow the returned ones of their query."""
    if unjudged is not None and not unjudged.any():
        unjudged = None
    if len(left_labels) == 0:
        offsets, judged = np.concatenate(([0], np.cumsum(depths))), None if unjudged is None else ~unjudged
        return Lists(
            labels,
            offsets,
            scores,
            ids if id_names is None else _named(ids, id_names),
            names,
            None,
            judged,
            coverage,
            candidates,
        )
    offsets = np.concatenate(([0], np.cumsum(depths + left_counts)))
    index = np.concatenate((_ranges(offsets[:-1], depths), _ranges(offsets[:-1] + depths, left_counts)))
    returned = index[: len(scores)]
    all_labels = np.empty(len(index), dtype=np.result_type(labels, left_labels))
    all_labels[index] = np.concatenate((labels, left_labels))
    all_scores = np.full(len(index), -np.inf)
    all_scores[returned] = scores
    judged = None
    if unjudged is not None or left_unjudged is not None:
        judged = np.ones(len(index), dtype=bool)
        judged[returned] = True if unjudged is None else ~unjudged
        if left_unjudged is not None:
            judged[index[len(scores) :]] = ~left_unjudged
    if candidates is not None:
        moved = np.empty_like(candidates)
        moved[index] = candidates
        candidates = moved
    if ids is not None:
        moved = np.empty_like(ids)
        moved[index] = ids
        ids = moved
    return Lists(
        all_labels,
        offsets,
        all_scores,
        ids if id_names is None else _named(ids, id_names),
        names,
        depths,
        judged,
        coverage,
        candidates,
    )


def _named(codes: Any, names: Any) -> Any:
    import polars as pl

    return names.gather(codes) if isinstance(names, pl.Series) else names[codes]


def _ranges(start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return start, start + 1, ..., start + length - 1 for each pair, one after the other."""
    return np.arange(int(length.sum())) + np.repeat(start - np.cumsum(length) + length, length)


def _objects(values: Any, length: int) -> NDArray[Any]:
    return np.fromiter(values, dtype=object, count=length)


def nothing_in_common(judged: object, ranked: object) -> DataError:
    """The error for judgments and a run without a shared query, with the first query of each."""
    return DataError(
        f"qrels and run have no query in common (the first of qrels is {judged!r}, the first of the run {ranked!r})"
    )


def _not_a_number(what: str, queries: Any) -> DataError:
    """Find the entry that caused the failure; called only after the fast way has failed."""
    for name, documents in queries:
        if not isinstance(documents, Mapping):
            return DataError(f"query {name!r} must map documents to a {what}, got {type(documents).__name__}")
        for document, value in documents.items():
            try:
                float(value)
            except (TypeError, ValueError):
                return DataError(f"{what} of document {document!r} in query {name!r} must be a number, got {value!r}")
    return DataError(f"{what}s must be numbers")
