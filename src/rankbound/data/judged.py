"""Combine judgments (qrels) and a run into Lists, by the conventions of trec_eval.

The items of a query are the documents that the run returned, followed by the judged documents that it did not return,
which count towards what could have been found. Documents without a judgment have label 0 and are marked in
``Lists.judged``; ``judged_only`` (trec_eval -J) removes them. Queries that only one side has are ignored; with
``missing="zero"`` (trec_eval -c) judged queries that the run lacks become empty rankings. ``Lists.coverage`` counts the
queries and documents that both sides have and those that only one has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.frames import id_text, is_table, with_equal_id_types
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Coverage, Lists
from rankbound.protocol import MISSING, Protocol

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.data.candidates import CandidateSource

CHUNK = 200_000  # documents of dicts that are evaluated at once: enough for speed, few enough for the cache


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


def from_dicts(qrels: Mapping[Any, Mapping[Any, Any]], run: Mapping[Any, Mapping[Any, Any]], **policy: Any) -> Lists:
    """Combine ``{query: {document: label}}`` and ``{query: {document: score}}``, the form that pytrec_eval uses.

    ``missing``, ``judged_only`` and ``keep_ids`` are those of `dict_chunks`.

    >>> lists = from_dicts({"q": {"a": 1, "b": 0, "c": 2}}, {"q": {"b": 0.9, "a": 0.5, "x": 0.1}})
    >>> lists.labels.tolist(), lists.depths.tolist(), lists.ids.tolist()
    ([0, 1, 0, 2], [3], ['b', 'a', 'x', 'c'])
    """
    Protocol(missing=policy.get("missing", MISSING[0]))  # which checks it
    (lists,) = dict_chunks(qrels, run, most=sys.maxsize // 2, **policy)
    return lists


def dict_chunks(
    qrels: Mapping[Any, Mapping[Any, Any]],
    run: Mapping[Any, Mapping[Any, Any]],
    *,
    missing: str = MISSING[0],
    judged_only: bool = False,
    keep_ids: bool = True,
    most: int | None = None,
) -> Iterator[Lists]:
    """Yield judgments and a run in parts of about ``most`` documents (`CHUNK`), which need less memory than the whole.

    The coverages of the parts add up to that of the whole. The policy is that of a `rankbound.Protocol`.
    """
    check_dicts(qrels=qrels, run=run)
    names = [*filter(run.__contains__, qrels)]
    if not names:
        raise nothing_in_common(next(iter(qrels), None), next(iter(run), None))
    one_sided, names = (len(qrels) - len(names), len(run) - len(names)), names if missing == "ignore" else [*qrels]
    judged, ranked = [*map(qrels.__getitem__, names)], [*map(run.get, names, repeat({}))]
    documents = np.cumsum([*map(len, judged)]) + np.cumsum([*map(len, ranked)])
    chunk = (documents - 1) // (2 * (CHUNK if most is None else most))
    for start, end in pairwise([0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(names)]):
        coverage = Coverage(*one_sided, sum(map(run.__contains__, names[start:end])))
        part = slice(start, end)
        yield _lists_of_dicts(names[part], judged[part], ranked[part], coverage, judged_only, keep_ids)
        one_sided = (0, 0)  # the first part counts the queries that only one side has


def _lists_of_dicts(
    names: list[Any],
    judged: list[Any],
    ranked: list[Any],
    coverage: Coverage,
    judged_only: bool,
    keep_ids: bool,
) -> Lists:
    """Combine the documents of these queries.

    ``run | qrels`` of a query has its documents in the order of `Lists`: those of the run and then the others, with
    the label of a judged document and the score of one without a judgment. Merging dicts takes the hashes that they
    hold already, which is faster than a lookup for each document.
    """
    if {*map(type, judged), *map(type, ranked)} != {dict}:  # other mappings may merge in another way
        judged, ranked = [*map(dict, judged)], [*map(dict, ranked)]
    depths, known = np.array([*map(len, ranked)], np.int64), np.array([*map(len, judged)], np.int64)
    counts: list[int] = []
    documents: list[Any] = []

    def merge() -> Iterator[Any]:
        for returned, labeled in zip(ranked, judged, strict=True):
            merged = returned | labeled
            counts.append(len(merged))
            if keep_ids:
                documents.extend(merged)
            yield merged.values()

    with np.errstate(over="ignore"):  # a longdouble that overflows is refused as any infinity
        try:
            scores = np.fromiter(chain.from_iterable(map(dict.values, ranked)), np.float64, int(depths.sum()))
        except (TypeError, ValueError) as error:
            raise _not_a_number("score", zip(names, ranked, strict=True)) from error
        try:
            labels = _labels_of([*chain.from_iterable(merge())])
        except (TypeError, ValueError) as error:
            raise _not_a_number("label", zip(names, judged, strict=True)) from error
    sizes = np.array(counts, np.int64)
    judged_depths = depths + known - sizes
    if len(labels) > len(scores):
        is_returned = np.repeat(np.tile([True, False], len(names)), np.column_stack((depths, sizes - depths)).ravel())
        of_returned, scores = scores, np.full(len(labels), -np.inf)
        scores[is_returned] = of_returned
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    coverage = coverage.with_documents(depths, judged_depths)
    ids = np.fromiter(documents, object, len(documents)) if keep_ids else None
    is_judged = None
    if (judged_depths < depths).any():
        is_judged = labels != scores
        found, some = np.zeros(len(names), np.int64), sizes > 0
        found[some] = np.add.reduceat(is_judged, offsets[:-1][some], dtype=np.int64)
        for query in np.flatnonzero(found != known).tolist():  # where a label equals the score
            every = ranked[query] | judged[query]
            is_judged[offsets[query] : offsets[query + 1]] = [*map(judged[query].__contains__, every)]
        if not judged_depths.any():
            first = next(query for query in range(len(names)) if ranked[query])
            coverage = replace(coverage, first_ids=(next(iter(judged[first]), None), next(iter(ranked[first]))))
        if judged_only:
            labels, scores, ids = labels[is_judged], scores[is_judged], None if ids is None else ids[is_judged]
            offsets, depths, is_judged = np.concatenate(([0], np.cumsum(known))), judged_depths, None
        else:
            labels = np.where(is_judged, labels, 0)
    are_all_returned = len(labels) == depths.sum()
    return Lists.of_read_arrays(
        labels=labels,
        offsets=offsets,
        scores=scores,
        ids=ids,
        qids=np.fromiter(names, object, len(names)),
        depths=None if are_all_returned else depths,
        judged=is_judged,
        coverage=coverage,
    )


def _labels_of(numbers: list[Any]) -> NDArray[Any]:
    """The numbers of dicts as an array; labels are small integers mostly, for which `bytes` is the fastest."""
    with suppress(TypeError, ValueError):
        return np.frombuffer(bytes(numbers), np.uint8).astype(np.int32)
    return np.fromiter(numbers, np.float64, len(numbers))


def from_frames(
    qrels: pl.DataFrame,
    run: pl.DataFrame,
    *,
    missing: str = MISSING[0],
    judged_only: bool = False,
    keep_ids: bool = True,
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
    number_r = np.bincount(query_r, minlength=len(names))  # of rows of each query
    judged = np.bincount(query_q if is_judged is None else query_q[is_judged], minlength=len(names)) > 0
    ranked = number_r > 0
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
    is_matched = match >= 0
    if np.count_nonzero(is_matched) == len(query_q):
        rows_left: NDArray[np.int64] | slice = np.empty(0, np.int64)
    else:
        left = wanted[query_q]
        left[match[is_matched]] = False
        rows_left = _by_query(query_q, left, len(names))
    rows = _by_query(query_r, keep, len(names))
    label = _numbers(qrels["label"], "label")
    match = match[rows]
    unjudged = ~is_matched[rows]
    marked = None
    if is_judged is not None and is_candidate is not None:
        marked = np.concatenate((is_candidate[match] & ~unjudged, is_candidate[rows_left]))
        unjudged = unjudged | ~is_judged[match]
    depths = number_r if keep.all() else np.bincount(query_r[rows], minlength=len(names))
    shared = judged & ranked
    coverage = Coverage(int((judged & ~ranked).sum()), int((ranked & ~judged).sum()), int(shared.sum()))
    coverage = coverage.with_documents(
        (number_r if judged_only else depths)[shared],
        depths[shared] if not unjudged.any() else np.bincount(query_r[rows][~unjudged], minlength=len(names))[shared],
    )
    if coverage.has_no_common_document:
        first = int(np.flatnonzero(shared)[0])
        sides = ((query_q, doc_q), (query_r, doc_r))
        judged_id, returned_id = (documents[int(doc[np.argmax(query == first)])] for query, doc in sides)
        coverage = replace(coverage, first_ids=(judged_id, returned_id))
    left_counts = np.bincount(query_q[rows_left], minlength=len(names))[wanted]
    place = _placement(depths[wanted], left_counts)
    number_left = int(left_counts.sum())
    has_labels = is_judged[rows_left] if is_judged is not None else np.ones(number_left, dtype=bool)
    ids = None
    if keep_ids:
        codes = place(doc_r[rows], doc_q[rows_left])
        ids = documents.gather(codes) if hasattr(documents, "gather") else documents[codes]
    returned_labels = np.where(unjudged, 0, label[match]) if unjudged.any() else label[match]
    return Lists(
        place(returned_labels, label[rows_left]),
        np.concatenate(([0], np.cumsum(depths[wanted] + left_counts))),
        place(_numbers(run["score"], "score")[rows], np.full(number_left, -np.inf)),
        ids,
        np.asarray(names)[wanted],
        depths[wanted] if number_left else None,
        place(~unjudged, has_labels) if unjudged.any() or not has_labels.all() else None,
        coverage,
        None if marked is None else place(marked[: len(match)], marked[len(match) :]),
    )


def _placement(
    depths: NDArray[np.int64], left_counts: NDArray[np.int64]
) -> Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]:
    """A function that puts arrays of returned and of other documents together, query by query, the returned first."""
    if not left_counts.any():
        return lambda returned, _: returned
    start = np.cumsum(depths + left_counts) - depths - left_counts
    index = np.concatenate((_ranges(start, depths), _ranges(start + depths, left_counts)))

    def place(returned: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
        joined = np.concatenate((returned, others))
        placed = np.empty_like(joined)
        placed[index] = joined
        return placed

    return place


def _with_candidates(
    qrels: pl.DataFrame, candidates: pl.DataFrame
) -> tuple[pl.DataFrame, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the judgments with the other candidates as label 0, and which rows are judged and which are candidates."""
    import polars as pl

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
        twice_q, twice_r = _repeated_keys(key_q, span), _repeated_keys(key_r, span)
        table = np.full(span, -1, dtype=np.int32)
        table[key_q] = np.arange(len(key_q), dtype=np.int32)
        return table[key_r], twice_q, twice_r
    order_q, order_r = np.argsort(key_q), np.argsort(key_r)
    key_q, key_r = key_q[order_q], key_r[order_r]
    twice_q = order_q[:-1][key_q[1:] == key_q[:-1]]
    twice_r = order_r[:-1][key_r[1:] == key_r[:-1]]
    at = np.minimum(np.searchsorted(key_q, key_r), len(key_q) - 1)
    match = np.empty(len(key_r), dtype=np.int64)
    match[order_r] = np.where(key_q[at] == key_r, order_q[at], -1)
    return match, twice_q, twice_r


def _repeated_keys(keys: NDArray[np.int64], span: int) -> NDArray[np.int64]:
    """The rows whose key occurs again below them."""
    seen = np.zeros(span, dtype=bool)
    seen[keys] = True
    if np.count_nonzero(seen) == len(keys):
        return np.empty(0, np.int64)
    last = np.empty(span, np.int64)
    last[keys] = np.arange(len(keys))
    return np.flatnonzero(last[keys] != np.arange(len(keys)))


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


def _ranges(start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return start, start + 1, ..., start + length - 1 for each pair, one after the other."""
    return np.arange(int(length.sum())) + np.repeat(start - np.cumsum(length) + length, length)


def check_dicts(**data: Any) -> None:
    """Raise DataError unless the arguments are ``{query: {document: number}}``; the numbers are checked when read."""
    for side, queries in data.items():
        if not isinstance(queries, Mapping):
            raise DataError(f"{side} must be a dict of queries, got {type(queries).__name__}")
        kinds = set(map(type, queries.values()))
        if kinds <= {dict} or all(issubclass(kind, Mapping) for kind in kinds):
            continue
        name, wrong = next(entry for entry in queries.items() if not isinstance(entry[1], Mapping))
        if is_table(wrong):  # such as those of a DatasetDict
            raise DataError(f"{side} must be one table, got several by name: {', '.join(map(str, queries))}")
        raise DataError(f"query {name!r} of {side} must map documents to numbers, got {wrong!r:.60}")


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
