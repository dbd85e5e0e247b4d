"""Recommender: the common base of models of users and items, which learn from a table of interactions."""

from __future__ import annotations

import json
import warnings
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl

from rankbound.packages import needed_by

with needed_by("rankbound.models"):
    from sklearn.utils.validation import check_is_fitted

from rankbound.data.interaction_sources import (
    as_interactions,
    find_codes,
    recode_interactions,
    series_of,
    weighted_interactions,
)
from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError, DataError, UnknownUserWarning
from rankbound.evaluation.large import Settings
from rankbound.evaluation.result import Evaluation
from rankbound.evaluation.runs import evaluate_model
from rankbound.io import atomic_write
from rankbound.models.base import FittedState, Ranker
from rankbound.models.measuring import score_measure
from rankbound.models.parameters import check_parameters
from rankbound.models.recommenders.top_items import LOWEST, top_of_rows
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    from os import PathLike

    import scipy.sparse
    from numpy.typing import ArrayLike, NDArray

    from rankbound.measures.measure import Measure

_BLOCK_SCORES = 1 << 23  # scores of a block of users: 32 MB, and models need a few times as much to compute them


class Recommender(Ranker):
    """A model that scores all items of a catalog for a user.

    It learns from interactions: every row is a positive one, whatever its rating; `rankbound.data.relevant_only` keeps
    those with a high rating. Users and items are named by the ids of the data, text or integers, which are saved with
    the model.

    A subclass implements ``_fit_interactions(train, held_out, weights)`` and ``_score_block(users)``. To be saved, it
    implements ``_fitted_state()`` and ``_restore_state(state)`` for what it has learned; ids and training interactions
    are saved by this class. A model of vectors implements ``_vectors()``, too.

    Attributes after `fit`: ``user_ids_`` and ``item_ids_``, the sorted ids, whose indices are the codes of users and
    items; ``seen_``, the training interactions; ``eval_score_``, if there was an ``eval_set``.
    """

    user_ids_: NDArray[Any]
    item_ids_: NDArray[Any]
    seen_: Interactions
    eval_score_: float
    measure: str | Measure = "nDCG@10"
    _accepts_weights: ClassVar[bool] = False  # whether interactions can have weights

    # ---- for users ---------------------------------------------------------------------------------------------------

    def fit(self, interactions: Any, *, eval_set: Any = None, sample_weight: ArrayLike | None = None) -> Self:  # type: ignore[override]
        """Learn from a table of interactions.

        Parameters
        ----------
        interactions:
            A path, a frame, a sparse matrix, ``(users, items)`` or `Interactions`, as `rankbound.data.as_interactions`
            takes them.
        eval_set:
            Held-out interactions in any of these forms, by which models that are trained in epochs select one. Those of
            users or items that are not in the training data are left out. ``eval_score_`` is the mean of ``measure`` on
            them under full ranking.
        sample_weight:
            One weight per row of a table in memory, for models that support weights (`Popularity`, `ImplicitALS` and
            `MatrixFactorization`).
        """
        self._begin_fit(sample_weight)
        train, weights = weighted_interactions(interactions, sample_weight)
        return self._fit_table(train, weights, eval_set)

    def _begin_fit(self, sample_weight: Any) -> None:
        """Check the parameters, and forget what a previous fit has found."""
        self.__dict__.pop("n_queries_", None)  # a fit that fails must not leave a partly fitted model
        self.__dict__.pop("eval_score_", None)
        check_parameters(self)
        score_measure(self.measure)
        if sample_weight is not None and not self._accepts_weights:
            raise ArgumentError(f"sample_weight must be None, because {type(self).__name__} does not support weights")

    def _fit_table(
        self, train: Interactions, weights: NDArray[np.float32] | None, eval_set: Any, **context: Any
    ) -> Self:
        """Learn from a table; ``context`` is passed to ``_fit_interactions``."""
        if len(train) == 0:
            raise DataError("interactions must have at least one row, got an empty table")
        held_out = None
        if eval_set is not None:
            held_out = recode_interactions(as_interactions(eval_set), train.user_names, train.item_names)
            if len(held_out) == 0:
                raise DataError("eval_set must have interactions of users and items of the training data, got none")
        self.user_ids_, self.item_ids_, self.seen_ = train.user_names, train.item_names, train
        self._fit_interactions(train, held_out, weights, **context)
        for name, array in self._fitted_state().arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DataError(f"training produced values of {name} that are not finite; use other parameters")
        self.n_features_in_, self.n_queries_ = 2, int((train.per_user > 0).sum())
        if held_out is not None and not hasattr(self, "eval_score_"):
            self.eval_score_ = self._mean_measure(held_out)
        return self

    def recommend(
        self, users: Any = None, k: int = 10, *, exclude_seen: bool = True, filter_items: Any = None
    ) -> pl.DataFrame:
        """Return the ``k`` items with the highest scores for each user: columns ``user, item, rank, score``.

        Parameters
        ----------
        users:
            One id, several, or None for all users of the training data; each user occurs once in the result. Users
            without training interactions get the most popular items, with their numbers of interactions as scores, and
            an `UnknownUserWarning` says how many they are.
        k:
            Length of the lists; they are shorter where fewer items are left.
        exclude_seen:
            Leave out the items of the user's training interactions.
        filter_items:
            Ids of the only items to recommend, such as those in stock; None for all. Ids that are not in the training
            data are ignored.

        Equal scores are ordered by the items' ids. Users are scored in blocks, so that memory does not grow with their
        number, apart from the result.
        """
        ids, codes = self._chosen_users(users)
        found = self._top_items(codes, k, exclude_seen=exclude_seen, filter_items=filter_items)
        return self._as_frame(ids, *found)

    def predict(self, users: Any, items: Any) -> NDArray[np.float64]:  # type: ignore[override]
        """Return the score of each pair of user and item, by ids; a single user is paired with all items.

        Users and items that are not in the training data score 0.
        """
        check_is_fitted(self)
        user_codes, item_codes = (
            find_codes(names, _ids(role, given))
            for role, names, given in (("users", self.user_ids_, users), ("items", self.item_ids_, items))
        )
        if len(user_codes) == 1:
            user_codes = np.repeat(user_codes, len(item_codes))
        if len(user_codes) != len(item_codes):
            raise DataError(f"users and items must have one length, got {len(user_codes)} and {len(item_codes)}")
        known = (user_codes >= 0) & (item_codes >= 0)
        scores = np.zeros(len(known))
        scores[known] = self._scores(np.stack((user_codes, item_codes), axis=1)[known])
        return scores

    def score(self, interactions: Any) -> float:  # type: ignore[override]
        """Return the mean of ``measure`` over the users of held-out interactions, under full ranking.

        All items are ranked but those of the user's training interactions; see `evaluate_recommender`.
        """
        from rankbound.models.recommenders.full_ranking import evaluate_recommender

        check_is_fitted(self)
        return float(
            evaluate_recommender(self, as_interactions(interactions), [self.measure]).mean()[str(self.measure)]
        )

    def export_vectors(self, path: str | PathLike[str]) -> None:
        """Write the vectors of users and items with their ids, for an index of nearest neighbors by inner product.

        A name that ends in ``.npz`` gives arrays ``user_ids``, ``user_vectors``, ``item_ids`` and ``item_vectors``; one
        that ends in ``.parquet`` a table with the columns ``kind`` (user or item), ``id`` (as text) and ``vector``. The
        score of a user and an item is the inner product of their vectors. Models without vectors raise ArgumentError.
        """
        check_is_fitted(self)
        vectors = self._vectors()
        if vectors is None:
            raise ArgumentError(f"{type(self).__name__} has no vectors of users and items to export")
        users, items = vectors
        suffix = Path(path).suffix
        if suffix not in (".npz", ".parquet"):
            raise ArgumentError(f"path must end in .npz or .parquet, got {str(path)!r}")
        with atomic_write(path) as temporary:
            if suffix == ".npz":
                arrays: dict[str, Any] = {"user_ids": self.user_ids_, "user_vectors": users}
                arrays |= {"item_ids": self.item_ids_, "item_vectors": items}
                with temporary.open("wb") as stream:
                    np.savez(stream, **arrays)
                return
            kinds = np.repeat(["user", "item"], (len(users), len(items)))
            ids = pl.concat([pl.Series(names).cast(pl.String) for names in (self.user_ids_, self.item_ids_)])
            pl.DataFrame({"kind": kinds, "id": ids, "vector": np.concatenate((users, items))}).write_parquet(temporary)

    # ---- for subclasses ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _fit_interactions(
        self, train: Interactions, held_out: Interactions | None, weights: NDArray[np.float32] | None
    ) -> None:
        """Train; ``held_out`` has the codes of ``train``, and ``weights`` one number per interaction of ``train``."""

    @abstractmethod
    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return a new array with the scores of all items for users, by code [users, items]."""

    def _fitted_state(self) -> FittedState:
        return FittedState()

    def _restore_state(self, state: FittedState) -> None:
        pass

    def _vectors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Return vectors of users and items whose inner products are the scores; None if there are none."""
        return None

    def _has_training_data(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which users the model can score, and which items it can recommend: those with an interaction."""
        users, items = np.zeros(len(self.user_ids_), bool), np.zeros(len(self.item_ids_), bool)
        users[self.seen_.users], items[self.seen_.items] = True, True
        return users, items

    def _seen_matrix(self) -> scipy.sparse.csr_array:
        """Return the training interactions as a sparse matrix of ones [users, items], which is built once."""
        seen, matrix = self.__dict__.get("_matrix", (None, None))
        if seen is not self.seen_:
            matrix = interaction_matrix(self.seen_)
            self._matrix = self.seen_, matrix
        return matrix

    # ---- lists -------------------------------------------------------------------------------------------------------

    def _chosen_users(self, users: Any) -> tuple[pl.Series, NDArray[np.int32]]:
        """Return distinct ids in the order of the argument, and their codes; -1 for users without training data."""
        check_is_fitted(self)
        if users is None:
            ids, codes = pl.Series(self.user_ids_), np.arange(len(self.user_ids_), dtype=np.int32)
        else:
            ids = _ids("users", users).unique(maintain_order=True)
            codes = find_codes(self.user_ids_, ids)
        known, _ = self._has_training_data()
        return ids, np.where((codes >= 0) & known[codes], codes, np.int32(-1))

    def _top_items(
        self,
        codes: NDArray[np.int32],
        k: int,
        *,
        exclude_seen: bool = True,
        filter_items: Any = None,
        on_block: Callable[[int], None] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the codes of the best items of each user and their scores [users, k]; -1 where there is none.

        ``on_block`` is called with the number of users that are done.
        """
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 1:
            raise ArgumentError(f"k must be a positive integer, got {k!r}")
        _, allowed = self._has_training_data()
        if filter_items is not None:
            chosen = find_codes(self.item_ids_, _ids("filter_items", filter_items))
            allowed &= np.isin(np.arange(len(allowed)), chosen)
            if not allowed.any():
                raise DataError("filter_items must have at least one item of the training data, got none")
        candidates = np.flatnonzero(allowed).astype(np.int32)
        k = min(int(k), len(candidates))
        items, scores = np.full((len(codes), k), -1, np.int32), np.full((len(codes), k), LOWEST, np.float32)
        known = np.flatnonzero(codes >= 0)
        offsets = self.seen_.offsets
        size = max(1, _BLOCK_SCORES // len(allowed))
        for start in range(0, len(known), size):
            rows = known[start : start + size]
            block = self._writable_scores(codes[rows])
            if exclude_seen:
                _leave_out(block, codes[rows], offsets, self.seen_.items)
            if len(candidates) < len(allowed):
                block = np.ascontiguousarray(block[:, candidates])
            best, scores[rows] = top_of_rows(block, k)
            items[rows] = np.where(best >= 0, candidates[best], -1)
            if on_block is not None:
                on_block(start + len(rows))
        self._fill_unknown(codes, candidates, items, scores)
        return items, scores

    def _fill_unknown(
        self,
        codes: NDArray[np.int32],
        candidates: NDArray[np.int32],
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
    ) -> None:
        """Recommend the most popular items to users without training interactions, with a warning."""
        unknown = codes < 0
        if not unknown.any():
            return
        counts = np.bincount(self.seen_.items, minlength=len(self.item_ids_))[candidates].astype(np.float32)
        popular = np.argsort(-counts, kind="stable")[: items.shape[1]]
        items[unknown], scores[unknown] = candidates[popular], counts[popular]
        warnings.warn(
            f"{int(unknown.sum())} of {len(codes)} users have no training interactions and get the most popular items",
            UnknownUserWarning,
            stacklevel=4,
        )

    def _writable_scores(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        scores = np.require(self._score_block(users), np.float32, ["C_CONTIGUOUS", "WRITEABLE"])
        if scores.shape != (len(users), len(self.item_ids_)):
            raise DataError(f"the model must score {len(self.item_ids_)} items per user, got shape {scores.shape}")
        return scores

    def _as_frame(self, ids: pl.Series, items: NDArray[np.int32], scores: NDArray[np.float32]) -> pl.DataFrame:
        filled = items >= 0
        row, position = np.nonzero(filled)
        return pl.DataFrame(
            {
                "user": ids.gather(row),
                "item": pl.Series(self.item_ids_).gather(items[filled]),
                "rank": (position + 1).astype(np.int32),
                "score": scores[filled],
            }
        )

    def _scores(self, features: NDArray[np.number]) -> NDArray[np.float64]:
        """Return the scores of rows of a user's and an item's code."""
        users, rows = np.unique(features[:, 0].astype(np.int32), return_inverse=True)
        items = features[:, 1].astype(np.int32)
        order = np.argsort(rows, kind="stable")
        scores = np.zeros(len(rows))
        size = max(1, _BLOCK_SCORES // len(self.item_ids_))
        for start in range(0, len(users), size):
            chosen = order[slice(*np.searchsorted(rows[order], (start, start + size)))]
            block = self._writable_scores(users[start : start + size])
            scores[chosen] = block[rows[chosen] - start, items[chosen]]
        return scores

    def _mean_measure(self, held_out: Interactions) -> float:
        from rankbound.models.recommenders.full_ranking import evaluate_full_ranking

        evaluation = evaluate_full_ranking(self._score_block, self.seen_, held_out, [self.measure])
        return float(evaluation.mean()[str(self.measure)])

    # ---- saving ------------------------------------------------------------------------------------------------------

    def _common_state(self) -> FittedState:
        arrays: dict[str, NDArray[Any]] = {"seen.offsets": self.seen_.offsets, "seen.items": self.seen_.items}
        names = {"users.json": self.user_ids_, "items.json": self.item_ids_}
        return FittedState(arrays, {file: json.dumps(ids.tolist()) for file, ids in names.items()})

    def _restore_common(self, state: FittedState) -> None:
        self.user_ids_, self.item_ids_ = (
            _restore_ids(file, state.texts[file]) for file in ("users.json", "items.json")
        )
        offsets, items = (state.arrays[name].copy() for name in ("seen.offsets", "seen.items"))
        if offsets.dtype != np.int64 or items.dtype != np.int32 or items.ndim != 1:
            raise DataError(f"the training interactions must be integers, got {offsets.dtype} and {items.dtype}")
        if offsets.shape != (len(self.user_ids_) + 1,) or offsets[0] != 0 or offsets[-1] != len(items):
            raise DataError(f"the training interactions must be those of {len(self.user_ids_)} users")
        if (np.diff(offsets) < 0).any() or items.min(initial=0) < 0 or items.max(initial=0) >= len(self.item_ids_):
            raise DataError(f"the training interactions must have items below {len(self.item_ids_)}")
        users = np.repeat(np.arange(len(self.user_ids_), dtype=np.int32), np.diff(offsets))
        self.seen_ = Interactions(users, items, self.user_ids_, self.item_ids_)


def interaction_matrix(table: Interactions, weights: NDArray[np.float32] | None = None) -> scipy.sparse.csr_array:
    """Return a sparse matrix [users, items] in float32 with a weight, or 1, per interaction."""
    from scipy.sparse import csr_array

    values = np.ones(len(table), np.float32) if weights is None else weights
    shape = len(table.user_names), len(table.item_names)
    return csr_array((values, table.items.astype(np.int32), table.offsets), shape=shape)


@evaluate_model.register
def _evaluate_fitted(model: Recommender, qrels: Any, settings: Settings) -> Evaluation:
    """`rankbound.evaluate` of held-out interactions and a model: full ranking."""
    from rankbound.models.recommenders.full_ranking import evaluate_recommender

    protocol = settings.protocol.changed(candidates=settings.source.name)
    if protocol != Protocol() or settings.against_random:
        raise ArgumentError(
            "full ranking of a model takes no options of a protocol and no against_random, "
            f"got {protocol.changes() or 'against_random'}"
        )
    return evaluate_recommender(model, qrels, settings.measures, bounds=settings.bounds)


def restore_array(state: FittedState, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a finite float32 array of a saved model with the shape that its ids require."""
    array: NDArray[np.float32] = state.arrays[name].copy()  # arrays from files may be read-only
    if array.dtype != np.float32 or array.shape != shape or not np.isfinite(array).all():
        raise DataError(f"{name} must be finite float32 of shape {shape}, got {array.dtype} of shape {array.shape}")
    return array


def _ids(role: str, given: Any) -> pl.Series:
    """Return one id or several as a series."""
    if isinstance(given, (str, int, float, np.generic)):
        given = [given]
    try:
        ids = series_of(given)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{role} must be ids, all texts or all numbers, got: {error}") from error
    if ids.dtype.is_nested() or ids.dtype in (pl.Binary, pl.Object, pl.Boolean):
        raise DataError(f"{role} must be ids, all texts or all numbers, got {ids.dtype}")
    if ids.null_count() or (ids.dtype.is_float() and not ids.is_finite().all()):
        raise DataError(f"{role} must be ids without gaps, got a missing or an infinite one")
    if ids.dtype == pl.UInt64 and (ids > 2**63 - 1).any():
        raise DataError(f"{role} must be ids below 2^63, got {ids.max()!r}")
    return ids


def _leave_out(
    scores: NDArray[np.float32], users: NDArray[np.int32], offsets: NDArray[np.int64], items: NDArray[np.int32]
) -> None:
    """Give the items of the training interactions of users the lowest score."""
    counts = offsets[users + 1] - offsets[users]
    ends = np.cumsum(counts)
    rows = np.arange(ends[-1]) + np.repeat(offsets[users] - (ends - counts), counts)
    scores[np.repeat(np.arange(len(users)), counts), items[rows]] = LOWEST


def _restore_ids(file: str, text: str) -> NDArray[Any]:
    """Return ids from JSON; DataError unless they are distinct texts or distinct integers in order."""
    names = json.loads(text)
    kinds = {type(name) for name in names} if isinstance(names, list) else set()
    if kinds not in ({str}, {int}):
        raise DataError(f"{file} must be a list of texts or of integers")
    ids: NDArray[Any] = np.array(names, dtype=np.str_ if kinds == {str} else np.int64)
    if not (ids[1:] > ids[:-1]).all():
        raise DataError(f"{file} must list distinct ids in order")
    return ids
