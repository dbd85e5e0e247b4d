"""Lists: the one shape of ranking data inside rankbound, flat arrays cut into queries by offsets."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.arrays import array_of, floats, integers, labels_of, mask_of, names_of, offsets_of
from rankbound.errors import DataError

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Lists", "check_dicts", "sort_within_queries"]


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
        from judgments alone and their scores are ignored. Not given: everything was ranked.

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
        labels, offsets = labels_of(self.labels), offsets_of(self.offsets)
        if offsets[-1] != len(labels):
            raise DataError(
                f"offsets must end with the number of items, {len(labels)}, got {offsets[-1]}: labels has one for each"
            )
        queries = len(offsets) - 1
        _set(self, "labels", _frozen(labels))
        _set(self, "offsets", _frozen(offsets))
        if self.depths is not None:
            depths = integers("depths", self.depths, length=queries, least=0)
            if (beyond := depths > np.diff(offsets)).any():
                raise DataError(f"depths must lie between 0 and the size of each query, got {depths[beyond][0]}")
            _set(self, "depths", _frozen(depths))
        if self.scores is not None:
            _set(self, "scores", _frozen(_scores(self.scores, len(labels), self)))
        for name, length in (("ids", len(labels)), ("qids", queries)):
            if getattr(self, name) is not None:
                _set(self, name, _ids(name, getattr(self, name), length))

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
        """From one row per item with the query it belongs to; rows of a query need not be neighbors.

        Queries keep the order of their first row, items the order of their rows.

        >>> Lists.from_qid([1, 0, 0, 1], ["b", "a", "b", "a"]).qids.tolist()
        ['b', 'a']
        """
        labels, qid = labels_of(labels), names_of("qid", qid)
        if qid.shape != labels.shape:
            raise DataError(f"qid must have one entry per label, got {len(qid)} for {len(labels)} labels")
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
            None if scores is None else floats("scores", scores, length=len(qid))[order],
            None if ids is None else _ids("ids", ids, len(qid))[order],
            qid[np.sort(first)],
        )

    @classmethod
    def from_padded(cls, labels: ArrayLike, mask: ArrayLike, scores: ArrayLike | None = None) -> Self:
        """From 2-D arrays (queries x longest list) and a mask that is true where an item stands.

        >>> Lists.from_padded([[1, 0, 9], [0, 1, 1]], [[True, True, False], [True, True, True]])
        Lists(queries=2, items=5)
        """
        labels, mask = array_of("labels", labels), mask_of("mask", mask)
        if labels.shape != mask.shape:
            raise DataError(f"labels and mask must be 2-D of one shape, got {labels.shape} and {mask.shape}")
        if scores is not None:
            scores = array_of("scores", scores)
            if scores.shape != mask.shape:
                raise DataError(f"scores must have the shape of mask, {mask.shape}, got {scores.shape}")
            scores = scores[mask]
        return cls(labels[mask], np.concatenate(([0], np.cumsum(mask.sum(axis=1)))), scores)

    @classmethod
    def from_dicts(
        cls, qrels: Mapping[Any, Mapping[Any, Any]], run: Mapping[Any, Mapping[Any, Any]], **policy: Any
    ) -> Lists:
        """From ``{query: {document: label}}`` and ``{query: {document: score}}``; see `rankbound.data.judged`."""
        from rankbound.data.judged import from_dicts

        check_dicts(qrels=qrels, run=run)
        with np.errstate(over="ignore"):  # of a longdouble: an infinity is refused with the others
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


def check_dicts(**data: Any) -> None:
    """Refuse what is not ``{query: {document: number}}``; the numbers are looked at when they are read."""
    for side, queries in data.items():
        if not isinstance(queries, Mapping):
            raise DataError(f"{side} must be a dict of queries, got {type(queries).__name__}")
        if all(issubclass(kind, Mapping) for kind in set(map(type, queries.values()))):
            continue
        name, wrong = next(entry for entry in queries.items() if not isinstance(entry[1], Mapping))
        raise DataError(f"query {name!r} of {side} must map documents to numbers, got {wrong!r:.60}")


# ---- validation ------------------------------------------------------------------------------------------------------


def _set(lists: Lists, name: str, value: object) -> None:
    object.__setattr__(lists, name, value)  # frozen for users, filled once here


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _ids(name: str, values: Any, length: int) -> Any:
    """Names as they are, in an array or a polars Series: they are looked up, printed and compared, not counted with."""
    polars = sys.modules.get("polars")
    ids = values if polars is not None and isinstance(values, polars.Series) else array_of(name, values)
    if np.ndim(ids) != 1 or len(ids) != length:
        raise DataError(f"{name} must have {length} entries, got {len(ids) if np.ndim(ids) == 1 else np.shape(ids)}")
    return ids


def _scores(values: ArrayLike, items: int, lists: Lists) -> NDArray[np.float64]:
    scores = floats("scores", values, length=items, finite=False)
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
