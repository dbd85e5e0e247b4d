"""Ranker: the common base of all models, and the queries that they are trained on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rankbound.arrays import array_of, weights_of
from rankbound.display import TrainingHistory, plot_of
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.models.measuring import mean_measure, score_measure
from rankbound.models.options import OptionGroup, group_options
from rankbound.models.parameters import LARGEST_SEED, check_parameters
from rankbound.packages import needed_by

with needed_by("rankbound.models"):
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted, validate_data

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rankbound.measures.measure import Measure
    from rankbound.report.display.plot import Plot

_LARGEST_FEATURE = 1e150
_MIN_WEIGHT = 1e-30  # weights that are all smaller count as zero


class _FeatureTypeError(DataError, TypeError):
    """Features that are not numbers; scikit-learn's estimator checks require a TypeError."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Features with labels; the rows of each query are contiguous.

    ``features`` has one row per item of ``lists``, float32 or float64 and finite. ``weights`` has one number per row,
    or is None.
    """

    features: NDArray[np.floating]
    lists: Lists
    weights: NDArray[np.float64] | None = None

    @property
    def labels(self) -> NDArray[Any]:
        """Labels; unjudged items (below 0) count as not relevant."""
        return np.asarray(np.maximum(self.lists.labels, 0))

    @property
    def query_weights(self) -> NDArray[np.float64]:
        """The mean weight of each query's rows; 1 without weights."""
        if self.weights is None:
            return np.ones(len(self.lists))
        sums = np.bincount(self.lists.query_of_item, self.weights, minlength=len(self.lists))
        return np.asarray(sums / np.maximum(self.lists.sizes, 1))

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """One weight per row; 1 without weights."""
        return np.ones(len(self.lists.labels)) if self.weights is None else self.weights


@dataclass(frozen=True)
class FittedState:
    """The content of a fitted model, in forms that files preserve bit for bit.

    ``arrays`` are stored as safetensors, ``texts`` (file name -> content) as they are, ``metadata`` as JSON values.
    """

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


class Ranker(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types we follow
    """A model that computes a score for every item; items with higher scores rank first.

    Rankers follow the conventions of scikit-learn: the constructor only stores its parameters, `fit` returns self,
    fitted attributes end in an underscore, and `clone`, `get_params`, pipelines and searches work.

    A subclass implements ``_fit(queries, held_out)``, ``_scores(features)``, ``_fitted_state()`` and
    ``_restore_state(state)``. If its scores depend on the other items of the query, it also implements
    ``_list_scores(features, offsets)`` and sets ``_in_context``. It sets ``_learns_from`` to ``"rows"`` if it can be
    trained on labels that differ only between queries (regression, classification); other rankers need labels that
    differ within a query.

    Every ranker has the parameter ``measure``, which `score` reports and which selects among steps on ``eval_set``.

    In GridSearchCV and similar tools, queries must not be split and their ids must reach `fit` and `score`. Rankers
    request ``qid``; scikit-learn passes it if metadata routing is enabled::

        sklearn.set_config(enable_metadata_routing=True)
        GridSearchCV(AdaRank(), {"n_estimators": [50, 100]}, cv=QueryKFold(5)).fit(X, y, qid=qid, groups=qid)
    """

    measure: str | Measure
    n_features_in_: int
    _learns_from: ClassVar[str] = "queries"  # or "rows"
    _in_context: bool = False  # whether a score depends on the other items of the query
    _groups: ClassVar[dict[str, OptionGroup]] = {}  # parameters that are groups of options, and their defaults
    _params_of_older_files: ClassVar[dict[str, Any]] = {}  # values of parameters that older saved models do not have
    # called after each step of a training with eval_set, with its number and measure; True ends the training there
    _on_step: Callable[[int, float], bool] | None = None
    _accepts_nan: ClassVar[bool] = False  # whether a missing value may be NaN

    # read by scikit-learn: the metadata that the methods request, without a call of set_fit_request
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"qid": True, "sample_weight": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"qid": True}
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
        """Train on rows of features.

        Parameters
        ----------
        X:
            Features, a row per item: NumPy array, polars or pandas frame. Infinity is refused, and so is NaN except by
            rankers made of trees, for which it means missing. The column names of a frame are stored as
            ``feature_names_in_``.
        y:
            Relevance label of each row; higher is better, below 0 means unjudged.
        qid:
            The query of each row, numbers or strings; rows of a query need not be contiguous. None: all rows belong to
            one query.
        eval_set:
            ``(X, y, qid)`` or ``(X, y)``, held out. Rankers that are trained in steps keep the step that is best on it;
            ``eval_score_`` is the mean measure on it.
        sample_weight:
            One weight per row. Rankers that are trained on queries use the mean over the rows of each query
            (`difficulty_weights(..., per="row")` returns such weights).
        """
        self.__dict__.pop("n_queries_", None)  # a fit that fails must not leave a partly fitted model
        check_parameters(self)
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
                raise DataError(
                    f"training produced values of {name} that are not finite; scale the features to a moderate range"
                )
        self.n_queries_ = len(queries.lists)
        self.__dict__.pop("eval_score_", None)
        if held_out is not None:
            scores = _check_finite(self._list_scores(held_out.features, held_out.lists.offsets))
            self.eval_score_ = mean_measure(held_out.lists, scores, self.measure)
        return self

    def predict(self, X: Any, qid: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return a score for each row; higher scores rank first. Scores are comparable within a query.

        ``qid`` is the query of each row. Rankers that score a document in the context of its query (networks with
        attention) require it unless they were trained on a single query or X is a single row; the scores of other
        rankers do not depend on it.
        """
        check_is_fitted(self)
        features = self._features(X, reset=False)
        column = None if qid is None else _read_column("qid", qid, len(features))
        if not self._in_context:
            return _check_finite(self._scores(features))
        if column is None:
            if self.n_queries_ > 1 and len(features) > 1:
                raise DataError(
                    f"predict requires qid, got None: this ranker scores a document in the context of its query and "
                    f"was trained on {self.n_queries_} queries"
                )
            return _check_finite(self._list_scores(features, np.array([0, len(features)])))
        lists, order = _make_lists(np.zeros(len(features), dtype=np.int64), column)
        if order is None:
            return _check_finite(self._list_scores(features, lists.offsets))
        scores = np.empty(len(features))
        scores[order] = self._list_scores(features[order], lists.offsets)
        return _check_finite(scores)

    def score(self, X: Any, y: ArrayLike, qid: ArrayLike | None = None) -> float:
        """Return the mean of the ranker's ``measure`` over the queries for which it is defined."""
        check_is_fitted(self)
        if qid is None and self.n_queries_ > 1:
            raise DataError(
                f"score requires qid, got None: this ranker was trained on {self.n_queries_} queries, and without qid "
                "all rows would count as one; in GridSearchCV call sklearn.set_config(enable_metadata_routing=True) "
                "and pass qid= and groups= to its fit"
            )
        queries = self._queries(X, y, qid, None, reset=False)
        scores = _check_finite(self._list_scores(queries.features, queries.lists.offsets))
        return mean_measure(queries.lists, scores, self.measure)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, or options of the groups that are parameters by their own names."""
        super().set_params(**group_options(type(self), params, self.get_params(deep=False)))
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a folder, atomically; see `rankbound.models.saving`."""
        from rankbound.models.saving import save_ranker

        check_is_fitted(self)
        save_ranker(self, path)

    def plot(self) -> Plot:
        """Plot loss and measures by epoch, from ``history_``; needs the extra ``report``.

        ArgumentError for rankers that are not trained in epochs, such as those made of trees.
        """
        check_is_fitted(self)
        history, kept = getattr(self, "history_", None), getattr(self, "kept_epoch_", None)
        return plot_of(TrainingHistory(type(self).__name__, history, kept))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_queries_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self._accepts_nan
        return tags

    # ---- for subclasses ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        """Check the parameters and train."""

    @abstractmethod
    def _scores(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the scores of checked features, float32 or float64, C order."""

    def _list_scores(self, features: NDArray[np.floating], offsets: NDArray[np.int64]) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the scores of checked features whose queries are contiguous."""
        return self._scores(features)

    @abstractmethod
    def _fitted_state(self) -> FittedState:
        """Return everything that `_scores` needs besides the parameters."""

    @abstractmethod
    def _restore_state(self, state: FittedState) -> None:
        """Restore what `_fitted_state` returned; a missing entry may raise KeyError."""

    def _common_state(self) -> FittedState:
        """Return what all models of a family save besides `_fitted_state`."""
        return FittedState()

    def _restore_common(self, state: FittedState) -> None:
        """Restore what `_common_state` returned; called before `_restore_state`."""

    # ---- checks ------------------------------------------------------------------------------------------------------

    def _queries(self, X: Any, y: Any, qid: Any, sample_weight: Any, *, reset: bool) -> Queries:
        features = self._features(X, reset=reset)
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        labels = _read_column("y", y, len(features))
        lists, order = _make_lists(labels, None if qid is None else _read_column("qid", qid, len(features)))
        weights = None
        if sample_weight is not None:
            weights = _read_weights(sample_weight, len(features))
        if order is not None:
            features, weights = features[order], None if weights is None else weights[order]
        return Queries(features, lists, weights)

    def _features(self, X: Any, *, reset: bool) -> NDArray[Any]:
        if not hasattr(X, "columns") and not hasattr(
            X, "tocsr"
        ):  # frames have column names; sparse matrices are refused below
            X = array_of("X", X)
            if X.dtype.kind in "mMV":
                raise DataError(f"X must be numeric, got {X.dtype}")
        try:
            with np.errstate(over="ignore"):  # a longdouble may become infinite, which is refused below
                features: NDArray[np.floating] = validate_data(
                    self, X, reset=reset, dtype=[np.float64, np.float32], order="C", ensure_all_finite=False
                )
        except TypeError as error:
            raise _FeatureTypeError(f"X: {error}") from error
        except ValueError as error:
            raise DataError(f"X: {error}") from error
        # one sum of squares detects values that are not finite or too large, without a mask of the whole matrix
        flat = features.ravel()
        if np.isfinite(np.vdot(flat, flat)):
            return features
        if self._accepts_nan:
            finite = ~np.isinf(features)
        else:
            finite = np.isfinite(features)
        if not finite.all():
            row, column = (int(indices[0]) for indices in np.nonzero(~finite))
            value = "NaN" if np.isnan(features[row, column]) else str(features[row, column])
            name = f" ({self.feature_names_in_[column]})" if hasattr(self, "feature_names_in_") else ""
            raise DataError(
                f"features must be finite, got {value} at row {row}, column {column}{name}; "
                + ("NaN means missing" if self._accepts_nan else "impute missing values before fitting")
            )
        if features.dtype == np.float64:  # float32 has no such values
            largest = np.fmax.reduce(np.abs(features), axis=None)  # NaN is ignored
            if largest >= _LARGEST_FEATURE:
                raise DataError(f"features must be below {_LARGEST_FEATURE:g} in magnitude, got {largest}")
        return features

    def _check_labels(self, queries: Queries) -> None:
        labels, lists = queries.labels, queries.lists
        if labels.min() < labels.max():
            if self._learns_from == "rows":
                return
            filled = lists.offsets[:-1][lists.sizes > 0]
            if (np.minimum.reduceat(labels, filled) < np.maximum.reduceat(labels, filled)).any():
                return
        where = "" if self._learns_from == "rows" else " within at least one query"
        samples = "1 sample" if len(labels) == 1 else f"{len(labels)} rows"
        raise DataError(f"labels must differ{where}, got equal ones ({samples}, {len(lists)} queries)")


def seed_of(random_state: Any) -> int:
    """Return the seed of a ``random_state``, 0 for None; raise ArgumentError unless it is an integer below 2^64."""
    if random_state is None:
        return 0
    if not isinstance(random_state, (int, np.integer)) or isinstance(random_state, bool) or random_state < 0:
        raise ArgumentError(f"random_state must be an integer of at least 0 or None, got {random_state!r}")
    if random_state > LARGEST_SEED:
        raise ArgumentError(f"random_state must be an integer from 0 to 2^64 - 1 or None, got {random_state}")
    return int(random_state)


def _make_lists(labels: NDArray[np.number], qid: NDArray[Any] | None) -> tuple[Lists, NDArray[Any] | None]:
    """Return the lists of a column of queries, one list for None, and the new order of the rows, None if unchanged."""
    if qid is None:
        return Lists(labels, np.array([0, len(labels)])), None
    # item ids are row numbers here, which give the new order of the rows
    lists = Lists.from_qid(labels, qid, ids=np.arange(len(labels)))
    return lists, None if (lists.ids[1:] > lists.ids[:-1]).all() else lists.ids


def _check_finite(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise DataError(f"features must give finite scores, got {scores[row]} for row {row}")
    return scores


def _read_column(name: str, values: Any, rows: int) -> NDArray[Any]:
    column = array_of(name, values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.shape != (rows,):
        raise DataError(f"{name} must have one entry per row of X, {rows}, got shape {column.shape}")
    return column


def _read_weights(values: Any, rows: int) -> NDArray[np.float64]:
    weights = weights_of("sample_weight", _read_column("sample_weight", values, rows))
    if rows and weights.max() < _MIN_WEIGHT:
        raise DataError(f"sample_weight must not be zero for all rows, got a maximum of {weights.max()}")
    return weights
