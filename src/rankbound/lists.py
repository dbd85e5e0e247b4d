"""Lists: the one shape of ranking data inside rankbound, flat arrays cut into queries by offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.errors import DataError

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Lists", "sort_within_queries"]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Lists:
    """Queries with their items, as flat arrays.

    Query ``q`` owns the items ``offsets[q]:offsets[q + 1]``. Arrays are validated once, here, and read-only from then
    on; they are not copied where their type already fits.

    Parameters
    ----------
    labels:
        Relevance of each item. Whole numbers are kept as int32, others as float64.
    offsets:
        Where each query begins, and at the end the number of items: ``queries + 1`` integers that never decrease.
    scores:
        What a ranker gave each item; higher is ranked first.
    ids:
        Name of each item (NumPy array or polars Series).
    qids:
        Name of each query; 0, 1, 2, ... if not given.
    depths:
        For queries of which a run returned only a part: the first ``depths[q]`` items were ranked, the others are known
        from judgements alone and their scores are ignored. Not given: everything was ranked.

    >>> lists = Lists([2, 0, 1, 0, 1], [0, 3, 5], scores=[0.3, 0.9, 0.1, 0.2, 0.7])
    >>> lists
    Lists(queries=2, items=5, scored)
    >>> lists.sizes
    array([3, 2])
    """

    labels: NDArray[Any]
    offsets: NDArray[np.int64]
    scores: NDArray[np.float64] | None = None
    ids: Any = None
    qids: Any = None
    depths: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        labels = _labels(self.labels)
        offsets = _offsets(self.offsets, len(labels))
        queries = len(offsets) - 1
        _set(self, "labels", _frozen(labels))
        _set(self, "offsets", _frozen(offsets))
        if self.depths is not None:
            depths = _integers("depths", self.depths, queries)
            if queries and (depths.min() < 0 or (depths > np.diff(offsets)).any()):
                raise DataError("depths must lie between 0 and the size of each query")
            _set(self, "depths", _frozen(depths))
        if self.scores is not None:
            _set(self, "scores", _frozen(_scores(self.scores, len(labels), self)))
        for name, length in (("ids", len(labels)), ("qids", queries)):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, (list, tuple)):
                value = np.asarray(value)
            if len(value) != length:
                raise DataError(f"{name} must have {length} entries, got {len(value)}")
            _set(self, name, value)

    # ---- shape -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        extra = ", scored" if self.scores is not None else ""
        return f"Lists(queries={len(self)}, items={len(self.labels)}{extra})"

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Items per query."""
        return np.diff(self.offsets)

    @property
    def query_of_item(self) -> NDArray[np.int64]:
        """Index of the query that each item belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def query_ids(self) -> Any:
        """Names of the queries; positions where none were given."""
        return np.arange(len(self)) if self.qids is None else self.qids

    def with_scores(self, scores: ArrayLike) -> Lists:
        """The same lists as another ranker scored them."""
        return Lists(self.labels, self.offsets, scores, self.ids, self.qids, self.depths)  # type: ignore[arg-type]

    # ---- constructors ------------------------------------------------------------------------------------------------

    @classmethod
    def from_qid(cls, labels: ArrayLike, qid: ArrayLike, scores: ArrayLike | None = None, ids: Any = None) -> Self:
        """From one row per item with the query it belongs to; rows of a query need not be neighbours.

        Queries keep the order of their first row, items the order of their rows.

        >>> Lists.from_qid([1, 0, 0, 1], ["b", "a", "b", "a"]).qids.tolist()
        ['b', 'a']
        """
        qid = np.asarray(qid)
        labels = np.asarray(labels)
        if qid.ndim != 1 or qid.shape != labels.shape:
            raise DataError(f"qid must have one entry per label, got shapes {qid.shape} and {labels.shape}")
        new = np.flatnonzero(qid[1:] != qid[:-1]) + 1
        starts = np.concatenate(([0], new)) if len(qid) else np.zeros(0, np.int64)
        names = qid[starts]
        if len(np.unique(names)) == len(names):  # every query is one run of rows already
            return cls(labels, np.append(starts, len(qid)), scores, ids, names)  # type: ignore[arg-type]
        _, first, code = np.unique(qid, return_index=True, return_inverse=True)
        place = np.argsort(np.argsort(first))  # position of each query by its first row
        order = np.argsort(place[code], kind="stable")
        sizes = np.bincount(place[code])
        return cls(
            labels[order],
            np.concatenate(([0], np.cumsum(sizes))),
            None if scores is None else np.asarray(scores)[order],
            None if ids is None else np.asarray(ids)[order],
            qid[np.sort(first)],
        )

    @classmethod
    def from_padded(cls, labels: ArrayLike, mask: ArrayLike, scores: ArrayLike | None = None) -> Self:
        """From 2-D arrays (queries x longest list) and a mask that is true where an item stands.

        >>> Lists.from_padded([[1, 0, 9], [0, 1, 1]], [[True, True, False], [True, True, True]])
        Lists(queries=2, items=5)
        """
        labels, mask = np.asarray(labels), np.asarray(mask, dtype=bool)
        if labels.ndim != 2 or labels.shape != mask.shape:
            raise DataError(f"labels and mask must be 2-D of one shape, got {labels.shape} and {mask.shape}")
        if scores is not None:
            scores = np.asarray(scores)
            if scores.shape != mask.shape:
                raise DataError(f"scores must have the shape of mask, {mask.shape}, got {scores.shape}")
            scores = scores[mask]
        return cls(labels[mask], np.concatenate(([0], np.cumsum(mask.sum(axis=1)))), scores)  # type: ignore[arg-type]

    @classmethod
    def from_dicts(
        cls, qrels: Mapping[Any, Mapping[Any, Any]], run: Mapping[Any, Mapping[Any, Any]], **policy: Any
    ) -> Lists:
        """From ``{query: {document: label}}`` and ``{query: {document: score}}``; see `rankbound.data.judged`."""
        from rankbound.data.judged import from_dicts

        return from_dicts(qrels, run, **policy)

    @classmethod
    def from_frame(cls, frame: Any, **columns: Any) -> Lists:
        """From a polars or pandas frame, or a parquet or csv path, a row per item; see `rankbound.data.frames`."""
        from rankbound.data.frames import lists_from_frame

        return lists_from_frame(frame, **columns)

    @classmethod
    def from_trec(cls, qrels: str | PathLike[str], run: str | PathLike[str], **policy: Any) -> Lists:
        """From TREC files (plain, gz, zst, or "-" for standard input); see `rankbound.data.trec`."""
        from rankbound.data.trec import lists_from_trec

        return lists_from_trec(qrels, run, **policy)

    @classmethod
    def from_letor(cls, path: str | PathLike[str]) -> Lists:
        """Labels and document ids of a LETOR or SVMlight file; `rankbound.data.read_letor` gives the features too."""
        from rankbound.data.letor import read_letor

        return read_letor(path).lists


def sort_within_queries(keys: NDArray[Any], offsets: NDArray[np.int64], stable: bool = True) -> NDArray[np.int64]:
    """Flat positions in ascending order of key within each query, query after query.

    Queries of similar length are put into one padded matrix and sorted row by row, which is several times faster than
    one sort by (query, key). Padding wastes at most an eighth: lengths are rounded up to their four highest bits.

    >>> sort_within_queries(np.array([3, 1, 2, 9, 8]), np.array([0, 3, 5])).tolist()
    [1, 2, 0, 4, 3]
    """
    sizes = np.diff(offsets)
    if len(keys) == 0:
        return np.empty(0, dtype=np.int64)
    if (sizes == sizes[0]).all():
        order = np.argsort(keys.reshape(len(sizes), -1), axis=1, kind="stable" if stable else None)
        order += offsets[:-1, None]
        return order.ravel()
    largest = np.inf if keys.dtype.kind == "f" else np.iinfo(keys.dtype).max
    step = 1 << np.maximum(np.frexp(np.maximum(sizes, 1))[1] - 4, 0)
    width_of = -(-sizes // step) * step
    order = np.empty(len(keys), dtype=np.int64)
    for width in np.unique(width_of[sizes > 0]):
        rows = np.flatnonzero((width_of == width) & (sizes > 0))
        place = np.arange(width)
        real = place < sizes[rows, None]
        flat = offsets[rows, None] + place
        matrix = np.full(real.shape, largest, dtype=keys.dtype)
        matrix[real] = keys[flat[real]]
        # stable, so that padding stays behind an item whose own key is the largest there is
        ranked = offsets[rows, None] + np.argsort(matrix, axis=1, kind="stable")
        order[flat[real]] = ranked[real]
    return order


# ---- validation ------------------------------------------------------------------------------------------------------


def _set(lists: Lists, name: str, value: object) -> None:
    object.__setattr__(lists, name, value)  # frozen for users, filled once here


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _labels(values: ArrayLike) -> NDArray[Any]:
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise DataError(f"labels must be 1-D, got shape {labels.shape}")
    if labels.dtype == np.int32:
        return labels
    if labels.dtype.kind in "biu":
        if labels.dtype.itemsize >= 4 and len(labels) and np.abs(labels).max() > 2**31 - 1:
            raise DataError("labels must be below 2^31")
        return labels.astype(np.int32)
    if labels.dtype.kind != "f":
        if len(labels):
            raise DataError(f"labels must be numbers, got {labels.dtype} such as {labels[0]!r}")
        return labels.astype(np.int32)
    if not np.isfinite(labels).all():
        at = int(np.flatnonzero(~np.isfinite(labels))[0])
        raise DataError(f"labels must be finite, got {labels[at]} at position {at}")
    if len(labels) == 0 or np.abs(labels).max() < 2**31:
        whole = labels.astype(np.int32)
        if (whole == labels).all():
            return whole
    return labels.astype(np.float64)


def _integers(name: str, values: ArrayLike, length: int | None = None) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
        raise DataError(f"{name} must be 1-D integers, got {array.dtype} of shape {array.shape}")
    if length is not None and len(array) != length:
        raise DataError(f"{name} must have {length} entries, got {len(array)}")
    return array.astype(np.int64, copy=False)


def _offsets(values: ArrayLike, items: int) -> NDArray[np.int64]:
    offsets = _integers("offsets", values)
    if len(offsets) == 0 or offsets[0] != 0:
        raise DataError(f"offsets must begin with 0, got {offsets[:1].tolist()}")
    if offsets[-1] != items:
        raise DataError(f"offsets must end with the number of items, {items}, got {offsets[-1]}")
    if (np.diff(offsets) < 0).any():
        at = int(np.flatnonzero(np.diff(offsets) < 0)[0])
        raise DataError(f"offsets must never decrease, got {offsets[at]} then {offsets[at + 1]}")
    return offsets


def _scores(values: ArrayLike, items: int, lists: Lists) -> NDArray[np.float64]:
    scores = np.asarray(values)
    if scores.shape != (items,):
        raise DataError(f"scores must have {items} entries in one dimension, got shape {scores.shape}")
    if scores.dtype.kind not in "fiub":
        raise DataError(f"scores must be numbers, got {scores.dtype}")
    scores = scores.astype(np.float64, copy=False)
    finite = np.isfinite(scores)
    if lists.depths is not None and not finite.all():  # items that no ranker returned have no score
        rank = np.arange(items) - np.repeat(lists.offsets[:-1], lists.sizes)
        finite |= rank >= np.repeat(lists.depths, lists.sizes)
    if not finite.all():
        at = int(np.flatnonzero(~finite)[0])
        query = int(np.searchsorted(lists.offsets, at, side="right")) - 1
        name = lists.query_ids[query]
        raise DataError(f"scores must be finite, got {scores[at]} at position {at} (query {name})")
    return scores
