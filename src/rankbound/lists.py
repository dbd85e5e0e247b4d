"""Lists: ranking data as flat arrays that offsets divide into queries, the one internal representation."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.arrays import array_of, floats, integers, labels_of, mask_of, names_of, offsets_of
from rankbound.display import pandas_frame, plain_values, plot_of, table_of
from rankbound.errors import ArgumentError, DataError
from rankbound.sums import exact_sum, ratio

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

    from rankbound.report.display.plot import Plot


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far judgments and a run cover each other: queries, documents, and the fraction of documents judged.

    A *shared* query is judged and in the run. Documents are counted over the shared queries, as the run returned them,
    that is, before ``judged_only`` removes those without a judgment. Coverages of different queries can be added.

    >>> lists = Lists.from_dicts({"p": {"a": 1}, "q": {"a": 1}}, {"p": {"a": 2.0, "b": 1.0}, "r": {"a": 1.0}})
    >>> lists.coverage
    Coverage(missing_queries=1, unjudged_queries=1, shared_queries=1, returned_documents=2, judged_documents=1)
    >>> lists.coverage.judged, (lists.coverage + lists.coverage).returned_documents
    (0.5, 4)
    """

    missing_queries: int = 0
    """Queries that are judged but not in the run."""
    unjudged_queries: int = 0
    """Queries that are in the run but not judged."""
    shared_queries: int = 0
    """Queries that are judged and in the run."""
    returned_documents: int = 0
    """Documents that the run returned for the shared queries."""
    judged_documents: int = 0
    """Those of them that are judged for their query."""
    ranked_queries: int = field(default=0, repr=False)
    """Shared queries with at least one returned document, over which the fractions are averaged."""
    queries_without_judged: int = field(default=0, repr=False)
    """Those of them whose returned documents are all unjudged."""
    cutoff: int | None = field(default=None, repr=False)
    """k of Judged@k; None before a run is evaluated."""
    fractions: tuple[NDArray[np.float64], ...] = field(default=(), repr=False, compare=False)
    """The fraction of the returned documents of each query that are judged."""
    fractions_at_cutoff: tuple[NDArray[np.float64], ...] = field(default=(), repr=False, compare=False)
    """Judged@k of each query."""
    first_ids: tuple[Any, Any] | None = field(default=None, repr=False, compare=False)
    """A judged and a returned document of the first shared query, where no returned document is judged."""
    merged_documents: int = field(default=0, repr=False)
    """Documents with labels below 0 that ``merging_measures`` do not distinguish from others of their query."""
    merging_measures: tuple[str, ...] = field(default=(), repr=False)
    """Measures that compare labels by their order, where labels below 0 count as 0 and the query has others up to 0."""

    @property
    def judged_queries(self) -> int:
        """Queries that are judged."""
        return self.shared_queries + self.missing_queries

    @property
    def returned_queries(self) -> int:
        """Queries that are in the run."""
        return self.shared_queries + self.unjudged_queries

    @property
    def unjudged_documents(self) -> int:
        """Returned documents of the shared queries that have no judgment."""
        return self.returned_documents - self.judged_documents

    @property
    def judged(self) -> float:
        """Mean over queries of the fraction of the returned documents that are judged; NaN without any."""
        return ratio(sum(map(exact_sum, self.fractions), Fraction()), self.ranked_queries)

    @property
    def judged_at_cutoff(self) -> float:
        """Mean over queries of Judged@k, with k = ``cutoff``; NaN before a run is evaluated.

        It is that of the ranking that was evaluated, from which ``judged_only`` removes documents without a judgment.
        """
        if self.cutoff is None:
            return float("nan")
        return ratio(sum(map(exact_sum, self.fractions_at_cutoff), Fraction()), self.ranked_queries)

    @property
    def has_no_common_document(self) -> bool:
        """Whether no returned document is judged for its query, which is usually a mismatch of identifiers."""
        return self.returned_documents > 0 and self.judged_documents == 0

    @property
    def warning(self) -> str | None:
        """The text of `CoverageWarning`, or None where there is nothing to warn of."""
        sentences = []
        if self.returned_documents and not self.judged_documents:
            ids = ""
            if self.first_ids is not None:
                ids = f" (the first of qrels is {self.first_ids[0]!r}, the first of the run {self.first_ids[1]!r})"
            sentences.append(
                f"qrels and run have no document in common in any shared query{ids}: do their document ids match?"
            )
        if self.merged_documents:
            sentences.append(
                f"labels below 0 count as 0 in {', '.join(self.merging_measures)}, which makes {self.merged_documents} "
                "of them equal to other labels of their query: add a constant to all labels if their order matters"
            )
        return "; ".join(sentences) or None

    def to_dict(self) -> dict[str, Any]:
        """Counts and fractions, ready for JSON."""
        return {
            "judged_queries": self.judged_queries,
            "returned_queries": self.returned_queries,
            "shared_queries": self.shared_queries,
            "missing_queries": self.missing_queries,
            "unjudged_queries": self.unjudged_queries,
            "queries_without_judged": self.queries_without_judged,
            "returned_documents": self.returned_documents,
            "judged_documents": self.judged_documents,
            "judged": self.judged,
            "cutoff": self.cutoff,
            "judged_at_cutoff": self.judged_at_cutoff,
        }

    def __add__(self, other: Coverage) -> Coverage:
        cutoffs = {coverage.cutoff for coverage in (self, other) if coverage.ranked_queries}
        if len(cutoffs) > 1:
            raise ArgumentError(
                f"coverages must have the same cutoff to be added, got {self.cutoff} and {other.cutoff}"
            )
        judged = self.judged_documents + other.judged_documents
        return Coverage(
            self.missing_queries + other.missing_queries,
            self.unjudged_queries + other.unjudged_queries,
            self.shared_queries + other.shared_queries,
            self.returned_documents + other.returned_documents,
            judged,
            self.ranked_queries + other.ranked_queries,
            self.queries_without_judged + other.queries_without_judged,
            cutoffs.pop() if cutoffs else self.cutoff if other.cutoff is None else other.cutoff,
            self.fractions + other.fractions,
            self.fractions_at_cutoff + other.fractions_at_cutoff,
            None if judged else self.first_ids or other.first_ids,
            self.merged_documents + other.merged_documents,
            tuple(dict.fromkeys((*self.merging_measures, *other.merging_measures))),
        )

    def with_documents(self, depths: NDArray[np.int64], judged_depths: NDArray[np.int64]) -> Coverage:
        """The same queries, with the numbers of returned documents and of judged ones among them of each query."""
        ranked = depths > 0
        depths, judged_depths = depths[ranked], judged_depths[ranked]
        return replace(
            self,
            returned_documents=int(depths.sum()),
            judged_documents=int(judged_depths.sum()),
            ranked_queries=len(depths),
            queries_without_judged=int((judged_depths == 0).sum()),
            fractions=(judged_depths / depths,),
        )


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Lists:
    """Queries with their items, as flat arrays.

    Query ``q`` has the items ``offsets[q]:offsets[q + 1]``. The arrays are validated once, when Lists are created, and
    are read-only afterwards; an array that already has the right type is not copied.

    Parameters
    ----------
    labels:
        Relevance of each item. Integers are stored as int32, other numbers as float64. Labels below 0 are kept; they
        count as 0, except in Bpref and infAP, for which such documents are in the pool but were not judged.
    offsets:
        Start of each query, followed by the number of items: ``queries + 1`` integers that never decrease.
    scores:
        Score of each item; items with higher scores are ranked first.
    ids:
        Identifier of each item (NumPy array or polars Series).
    qids:
        Identifier of each query; None means 0, 1, 2, ...
    depths:
        Number of items of each query that the run returned. They come first; the other items of the query are known
        from the judgments alone, and their scores are ignored. None means that the run returned every item.
    judged:
        Whether each item has a judgment. Items without one have label 0. None means that every item is judged.
    coverage:
        How far judgments and run cover each other; None if the lists do not come from judgments and a run.
    candidates:
        Whether each item is a candidate of its query, where candidates were given; see
        `rankbound.difficulty.candidates`. Items that are neither returned nor judged are there as candidates only.

    >>> lists = Lists([2, 0, 1, 0, 1], [0, 3, 5], scores=[0.3, 0.9, 0.1, 0.2, 0.7])
    >>> lists
    Lists(queries=2, items=5, scored)
    >>> lists.sizes
    array([3, 2])
    >>> Lists.from_dicts({"q": {"a": -1, "b": 2}}, {"q": {"a": 0.9, "x": 0.5}}).judged
    array([ True, False,  True])
    """

    labels: NDArray[Any]
    offsets: NDArray[np.int64]
    scores: NDArray[np.float64] | None = None
    ids: Any = None
    qids: Any = None
    depths: NDArray[np.int64] | None = None
    judged: NDArray[np.bool_] | None = None
    coverage: Coverage | None = None
    candidates: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        labels, offsets = labels_of(self.labels), offsets_of(self.offsets)
        if offsets[-1] != len(labels):
            raise DataError(
                f"offsets must end with the number of items, {len(labels)}, got {offsets[-1]}: labels has one for each"
            )
        queries, depths, scores, judged, candidates = len(offsets) - 1, None, None, None, None
        if self.depths is not None:
            depths = integers("depths", self.depths, length=queries, least=0)
            if (too_deep := depths > np.diff(offsets)).any():
                raise DataError(f"depths must be between 0 and the size of each query, got {depths[too_deep][0]}")
        if self.judged is not None:
            judged = mask_of("judged", self.judged, ndim=1, length=len(labels))
        if self.candidates is not None:
            candidates = mask_of("candidates", self.candidates, ndim=1, length=len(labels))
        if self.scores is not None:
            scores = floats("scores", self.scores, length=len(labels), finite=False)
        put = object.__setattr__  # the dataclass is frozen; nothing else sets fields
        put(self, "labels", _freeze(labels))
        put(self, "offsets", _freeze(offsets))
        put(self, "depths", None if depths is None else _freeze(depths))
        put(self, "judged", None if judged is None or judged.all() else _freeze(judged))
        put(self, "candidates", None if candidates is None else _freeze(candidates))
        put(self, "scores", None if scores is None else _freeze(scores))
        check_scores(self)
        if self.ids is not None:
            put(self, "ids", _ids("ids", self.ids, len(labels)))
        if self.qids is not None:
            put(self, "qids", _ids("qids", self.qids, queries))

    @classmethod
    def of_checked_arrays(cls, **arrays: Any) -> Self:
        """Create Lists from arrays that come out of other Lists, without validating them again."""
        lists = object.__new__(cls)
        for name in cls.__slots__:
            object.__setattr__(lists, name, arrays.get(name))
        return lists

    @classmethod
    def of_read_arrays(cls, **arrays: Any) -> Self:
        """Create Lists from arrays that a reader has made, whose shapes are right, and check their numbers."""
        arrays["labels"] = labels_of(arrays["labels"])
        lists = object.__new__(cls)
        for name in cls.__slots__:
            value = arrays.get(name)
            if type(value) is np.ndarray and name not in ("ids", "qids"):
                value.flags.writeable = False
            object.__setattr__(lists, name, value)
        check_scores(lists)
        return lists

    # ---- shape -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        extra = ", scored" if self.scores is not None else ""
        return f"Lists(queries={len(self)}, items={len(self.labels)}{extra})"

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of items of each query."""
        return np.diff(self.offsets)

    @property
    def query_of_item(self) -> NDArray[np.int64]:
        """Index of the query of each item."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def returned(self) -> NDArray[np.bool_]:
        """Whether the run returned each item."""
        if self.depths is None:
            return np.ones(len(self.labels), dtype=bool)
        sizes = np.diff(self.offsets)
        index = np.arange(len(self.labels)) - np.repeat(self.offsets[:-1], sizes)
        return np.asarray(index < np.repeat(self.depths, sizes))

    @property
    def query_ids(self) -> Any:
        """Identifiers of the queries; 0, 1, 2, ... if there are none."""
        return np.arange(len(self.offsets) - 1) if self.qids is None else self.qids

    def with_scores(self, scores: ArrayLike) -> Lists:
        """Return the same lists with the scores of another ranker."""
        return replace(self, scores=scores)  # type: ignore[arg-type]

    def without_added_candidates(self) -> Lists:
        """Return the same lists without the items that are neither returned nor judged; candidates are forgotten."""
        if self.candidates is None or self.depths is None or self.judged is None:
            return replace(self, candidates=None)
        query, kept = self.query_of_item, self.returned | self.judged
        return Lists(
            self.labels[kept],
            np.concatenate(([0], np.cumsum(np.bincount(query[kept], minlength=len(self))))),
            None if self.scores is None else self.scores[kept],
            None if self.ids is None else self.ids[np.flatnonzero(kept)],
            self.qids,
            self.depths,
            self.judged[kept],
            self.coverage,
        )

    # ---- for notebooks -----------------------------------------------------------------------------------------------

    def to_pandas(self) -> Any:
        """A pandas frame with a row per item: qid, label and, where they are known, docid and score.

        ``Lists.from_frame`` reads it again. Scores of items that the run did not return are NaN.

        >>> Lists([2, 0, 1], [0, 1, 3], qids=["p", "q"]).to_pandas()["qid"].tolist()
        ['p', 'q', 'q']
        """
        columns = {"qid": self.query_ids[self.query_of_item]}
        columns |= {} if self.ids is None else {"docid": self.ids}
        columns |= {"label": self.labels}
        if self.scores is not None:
            columns["score"] = np.where(self.returned, self.scores, np.nan)
        return pandas_frame(columns)

    def to_dict(self) -> dict[str, Any]:
        """The arrays by name, without those that are None, as lists that are ready for JSON.

        Scores of items that the run did not return are None.

        >>> Lists([2, 0, 1], [0, 1, 3]).to_dict()
        {'labels': [2, 0, 1], 'offsets': [0, 1, 3]}
        """
        names = ("labels", "offsets", "scores", "ids", "qids", "depths", "judged", "candidates")
        arrays = {name: getattr(self, name) for name in names}
        return plain_values({name: array for name, array in arrays.items() if array is not None})  # type: ignore[no-any-return]

    def plot(self) -> Plot:
        """Plot how many items queries have, and how many items have each label; needs the extra ``report``."""
        return plot_of(self)

    def _repr_html_(self) -> str:
        return table_of(self).to_html()

    # ---- constructors ------------------------------------------------------------------------------------------------

    @classmethod
    def from_qid(
        cls,
        labels: ArrayLike,
        qid: ArrayLike,
        scores: ArrayLike | None = None,
        ids: Any = None,
        candidates: ArrayLike | None = None,
    ) -> Self:
        """Create Lists from one row per item and the query of each row; the rows of a query need not be adjacent.

        Queries are ordered by their first row, the items of a query by their rows.

        >>> Lists.from_qid([1, 0, 0, 1], ["b", "a", "b", "a"]).qids.tolist()
        ['b', 'a']
        """
        labels, qid = labels_of(labels), names_of("qid", qid)
        if qid.shape != labels.shape:
            raise DataError(f"qid must have one entry per label, got {len(qid)} for {len(labels)} labels")
        new = np.flatnonzero(qid[1:] != qid[:-1]) + 1
        starts = np.concatenate(([0], new)) if len(qid) else np.zeros(0, np.int64)
        names = qid[starts]
        if len(np.unique(names)) == len(names):  # the rows of every query are adjacent already
            return cls(labels, np.append(starts, len(qid)), scores, ids, names, candidates=candidates)  # type: ignore[arg-type]
        _, first, code = np.unique(qid, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))  # of each query, by its first row
        order = np.argsort(rank[code], kind="stable")
        sizes = np.bincount(rank[code])
        return cls(
            labels[order],
            np.concatenate(([0], np.cumsum(sizes))),
            None if scores is None else floats("scores", scores, length=len(qid))[order],
            None if ids is None else _ids("ids", ids, len(qid))[order],
            qid[np.sort(first)],
            candidates=None if candidates is None else mask_of("candidates", candidates, ndim=1)[order],
        )

    @classmethod
    def from_padded(cls, labels: ArrayLike, mask: ArrayLike, scores: ArrayLike | None = None) -> Self:
        """Create Lists from 2-D arrays (queries x longest list) and a mask that is True for items, False for padding.

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
        """Create Lists from ``{query: {document: label}}`` and ``{query: {document: score}}``.

        See `rankbound.data.judged` for the policies.
        """
        return _read("dicts", qrels, run, **policy)

    @classmethod
    def from_frame(cls, frame: Any, **columns: Any) -> Lists:
        """Create Lists from a frame or a parquet or csv path with one row per item; see `rankbound.data.frames`."""
        return _read("frame", frame, **columns)

    @classmethod
    def from_trec(cls, qrels: str | PathLike[str], run: str | PathLike[str], **policy: Any) -> Lists:
        """Create Lists from TREC files (plain, gz, zst, or "-" for standard input); see `rankbound.data.trec`."""
        return _read("trec", qrels, run, **policy)

    @classmethod
    def from_letor(cls, path: str | PathLike[str]) -> Lists:
        """Create Lists from a LETOR or SVMlight file; `rankbound.data.read_letor` returns the features, too."""
        return _read("letor", path)


_READERS = {
    "dicts": "rankbound.data.judged:from_dicts",
    "frame": "rankbound.data.frames:lists_from_frame",
    "trec": "rankbound.data.trec:lists_from_trec",
    "letor": "rankbound.data.letor:read_letor",
}  # which are in a layer above, and imported when they are needed


def _read(source: str, *inputs: Any, **options: Any) -> Lists:
    module, _, name = _READERS[source].partition(":")
    found: Any = getattr(importlib.import_module(module), name)(*inputs, **options)
    return found if isinstance(found, Lists) else found.lists


def sort_within_queries(keys: NDArray[Any], offsets: NDArray[np.int64], stable: bool = True) -> NDArray[np.int64]:
    """Return the indices that sort the items of each query by ascending key, query after query.

    Queries of similar length are sorted together as the rows of a padded matrix, which is several times faster than
    one sort by (query, key). Lengths are rounded up to their four highest bits, so padding adds at most an eighth.

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
        column = np.arange(width)
        real = column < sizes[rows, None]
        flat = offsets[rows, None] + column
        matrix = np.full(real.shape, largest, dtype=keys.dtype)
        matrix[real] = keys[flat[real]]
        # a stable sort keeps padding behind an item whose key is the largest possible value
        ranked = offsets[rows, None] + np.argsort(matrix, axis=1, kind="stable")
        order[flat[real]] = ranked[real]
    return order


# ---- validation ------------------------------------------------------------------------------------------------------


def _freeze(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _ids(name: str, values: Any, length: int) -> Any:
    """Return identifiers as an array or a polars Series, without converting them."""
    polars = sys.modules.get("polars")
    ids = values if polars is not None and isinstance(values, polars.Series) else array_of(name, values)
    if np.ndim(ids) != 1 or len(ids) != length:
        raise DataError(f"{name} must have {length} entries, got {len(ids) if np.ndim(ids) == 1 else np.shape(ids)}")
    return ids


def check_scores(lists: Lists) -> None:
    """Raise DataError for a score that is not finite; items that the run did not return have none."""
    if lists.scores is None:
        return
    finite = np.isfinite(lists.scores)
    if finite.all() or (lists.depths is not None and np.count_nonzero(finite & lists.returned) == lists.depths.sum()):
        return
    index = int(np.flatnonzero(~finite & lists.returned)[0])
    query = int(np.searchsorted(lists.offsets, index, side="right")) - 1
    raise DataError(
        f"scores must be finite, got {lists.scores[index]} at position {index} (query {lists.query_ids[query]})"
    )
