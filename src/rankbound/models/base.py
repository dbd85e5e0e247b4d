"""Ranker: what every model has in common, and the queries that it learns from."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rankbound.arrays import array_of, weights_of
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.models.measuring import mean_measure, score_measure

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"rankbound.models needs scikit-learn, and {error.name} is missing: pip install 'rankbound[train]'"
    ) from error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["FittedState", "Queries", "Ranker"]

_LEAST_WEIGHT = 1e-30  # what is less everywhere is nothing


class _FeatureTypeError(DataError, TypeError):
    """Features that are no numbers at all; scikit-learn's own checks ask for a TypeError there."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Features with labels, the rows of each query side by side.

    ``features`` has one row per item of ``lists``, float32 or float64 and finite. ``weights`` has one number per row,
    or is None.
    """

    features: NDArray[Any]
    lists: Lists
    weights: NDArray[np.float64] | None = None

    @property
    def labels(self) -> NDArray[Any]:
        """Labels, "not judged" (below 0) taken as not relevant."""
        return np.asarray(np.maximum(self.lists.labels, 0))

    @property
    def query_weights(self) -> NDArray[np.float64]:
        """The mean weight of each query's rows; 1 where no weights were given."""
        if self.weights is None:
            return np.ones(len(self.lists))
        sums = np.bincount(self.lists.query_of_item, self.weights, minlength=len(self.lists))
        return np.asarray(sums / np.maximum(self.lists.sizes, 1))

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """One weight per row; 1 where no weights were given."""
        return np.ones(len(self.lists.labels)) if self.weights is None else self.weights


@dataclass(frozen=True)
class FittedState:
    """What a fitted model consists of, in forms that files keep bit for bit.

    ``arrays`` go to safetensors, ``texts`` (file name -> content) are written as they are, ``metadata`` are plain JSON
    values.
    """

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


class Ranker(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types we follow
    """A model that gives every item a score; higher is ranked first.

    scikit-learn's conventions hold: the constructor stores parameters and nothing else, `fit` returns self, what was
    learned ends in an underscore, `clone`, `get_params`, pipelines and searches work.

    A subclass writes ``_fit(queries, held_out)``, ``_scores(features)``, ``_fitted_state()`` and
    ``_restore_state(state)``, and sets ``_learns_from`` to ``"rows"`` if labels that differ between queries teach it
    something (regression, classification) where others need labels that differ within a query.

    Every ranker has the parameter ``measure``: what `score` reports and what a choice on ``eval_set`` goes by.

    In GridSearchCV and the like, queries must stay whole and their ids must reach `fit` and `score`. Rankers ask for
    ``qid`` by themselves; scikit-learn passes it on when its metadata routing is enabled::

        sklearn.set_config(enable_metadata_routing=True)
        GridSearchCV(AdaRank(), {"n_estimators": [50, 100]}, cv=QueryKFold(5)).fit(X, y, qid=qid, groups=qid)
    """

    measure: Any
    n_features_in_: int
    _learns_from: ClassVar[str] = "queries"  # or "rows"

    # scikit-learn reads these: what the methods ask a search for, without any set_fit_request
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"qid": True, "sample_weight": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"qid": True}

    # ---- for users ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        eval_set: tuple[Any, Any] | tuple[Any, Any, Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from rows of features.

        Parameters
        ----------
        X:
            Features, a row per item: NumPy array, polars or pandas frame. NaN and infinity are refused. Columns of a
            frame are remembered as ``feature_names_in_``.
        y:
            Relevance of each row; higher is better, below 0 means not judged.
        qid:
            The query of each row, numbers or strings; rows of a query need not be neighbors. None: all rows answer
            one query.
        eval_set:
            ``(X, y, qid)`` or ``(X, y)``, held out. Rankers that learn step by step keep the step that is best on it;
            for all of them ``eval_score_`` is their mean measure there.
        sample_weight:
            One weight per row. Rankers that learn from whole queries take the mean over each query's rows
            (`difficulty_weights(..., per="row")` gives such weights).
        """
        self.__dict__.pop("n_queries_", None)  # a fit that fails leaves no half-fitted model
        score_measure(self.measure)
        queries = self._queries(X, y, qid, sample_weight, reset=True)
        self._check_labels(queries)
        held_out = None
        if eval_set is not None:
            if not isinstance(eval_set, (tuple, list)) or len(eval_set) not in (2, 3):
                raise ArgumentError("eval_set must be (X, y, qid) or (X, y)")
            held_out = self._queries(*eval_set[:2], eval_set[2] if len(eval_set) == 3 else None, None, reset=False)
        self._fit(queries, held_out)
        for name, array in self._fitted_state().arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DataError(f"training gave {name} that are not finite; scale the features to a moderate range")
        self.n_queries_ = len(queries.lists)
        self.__dict__.pop("eval_score_", None)
        if held_out is not None:
            self.eval_score_ = mean_measure(held_out.lists, self._checked_scores(held_out.features), self.measure)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """A score for each row; higher is ranked first. Scores compare within a query."""
        check_is_fitted(self)
        return self._checked_scores(self._features(X, reset=False))

    def score(self, X: Any, y: ArrayLike, qid: ArrayLike | None = None) -> float:
        """Mean of the ranker's ``measure`` over the queries that have something to find."""
        check_is_fitted(self)
        if qid is None and self.n_queries_ > 1:
            raise DataError(
                f"score needs qid: this ranker learned from {self.n_queries_} queries, and without qid all rows would "
                "count as one; in GridSearchCV call sklearn.set_config(enable_metadata_routing=True) and pass qid= and "
                "groups= to its fit"
            )
        queries = self._queries(X, y, qid, None, reset=False)
        return mean_measure(queries.lists, self._checked_scores(queries.features), self.measure)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a folder, at once or not at all; see `rankbound.models.saving`."""
        from rankbound.models.saving import save_ranker

        check_is_fitted(self)
        save_ranker(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_queries_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    # ---- for subclasses ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        """Check the parameters and learn."""

    @abstractmethod
    def _scores(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Scores of checked features, float32 or float64, C order."""

    @abstractmethod
    def _fitted_state(self) -> FittedState:
        """All that `_scores` needs besides the parameters."""

    @abstractmethod
    def _restore_state(self, state: FittedState) -> None:
        """The inverse of `_fitted_state`; a missing part may raise KeyError."""

    # ---- checks ------------------------------------------------------------------------------------------------------

    def _queries(self, X: Any, y: Any, qid: Any, sample_weight: Any, *, reset: bool) -> Queries:
        features = self._features(X, reset=reset)
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        labels = _column("y", y, len(features))
        if qid is None:
            lists = Lists(labels, np.array([0, len(labels)]))
            order = None
        else:
            # item ids are row numbers here: they tell where each row went
            lists = Lists.from_qid(labels, _column("qid", qid, len(features)), ids=np.arange(len(labels)))
            order = None if (lists.ids[1:] > lists.ids[:-1]).all() else lists.ids
        weights = None
        if sample_weight is not None:
            weights = _weights(sample_weight, len(features))
        if order is not None:
            features, weights = features[order], None if weights is None else weights[order]
        return Queries(features, lists, weights)

    def _features(self, X: Any, *, reset: bool) -> NDArray[Any]:
        if not hasattr(X, "columns") and not hasattr(X, "tocsr"):  # frames have names; sparse is refused below
            X = array_of("X", X)
            if X.dtype.kind in "mMV":
                raise DataError(f"X must be numbers, got {X.dtype}")
        try:
            with np.errstate(over="ignore"):  # of a longdouble: an infinity is refused below
                features: NDArray[Any] = validate_data(
                    self, X, reset=reset, dtype=[np.float64, np.float32], order="C", ensure_all_finite=False
                )
        except TypeError as error:
            raise _FeatureTypeError(f"X: {error}") from error
        except ValueError as error:
            raise DataError(f"X: {error}") from error
        # one sum of squares finds out whether anything is not finite or huge, without a mask of the whole matrix
        flat = features.ravel()
        if np.isfinite(np.vdot(flat, flat)):
            return features
        if not (finite := np.isfinite(features)).all():
            row, column = (int(at[0]) for at in np.nonzero(~finite))
            value = "NaN" if np.isnan(features[row, column]) else str(features[row, column])
            name = f" ({self.feature_names_in_[column]})" if hasattr(self, "feature_names_in_") else ""
            raise DataError(
                f"features must be finite, got {value} at row {row}, column {column}{name}; "
                "fill what is missing before fitting"
            )
        if features.dtype == np.float64:  # in 32 bits nothing is that large
            raise DataError(f"features must be below 1e150 in magnitude, got {features.min()} to {features.max()}")
        return features

    def _check_labels(self, queries: Queries) -> None:
        labels, lists = queries.labels, queries.lists
        if labels.min() < labels.max():
            if self._learns_from == "rows":
                return
            filled = lists.offsets[:-1][lists.sizes > 0]
            if (np.minimum.reduceat(labels, filled) < np.maximum.reduceat(labels, filled)).any():
                return
        where = "" if self._learns_from == "rows" else " within any query"
        samples = "1 sample" if len(labels) == 1 else f"{len(labels)} rows"
        raise DataError(f"there is nothing to learn: labels do not differ{where} ({samples}, {len(lists)} queries)")

    def _checked_scores(self, features: NDArray[Any]) -> NDArray[np.float64]:
        scores = self._scores(features)
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise DataError(f"row {row} has features so large that its score is {scores[row]}")
        return scores


def _column(name: str, values: Any, rows: int) -> NDArray[Any]:
    column = array_of(name, values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.shape != (rows,):
        raise DataError(f"{name} must have one entry per row of X, {rows}, got shape {column.shape}")
    return column


def _weights(values: Any, rows: int) -> NDArray[np.float64]:
    weights = weights_of("sample_weight", _column("sample_weight", values, rows))
    if rows and weights.max() < _LEAST_WEIGHT:
        raise DataError(f"sample_weight must not be zero for every row, got {weights.max()} at most")
    return weights
