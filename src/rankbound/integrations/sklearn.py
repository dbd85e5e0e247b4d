"""scikit-learn: searches and cross-validation of rankers, where queries are not split and reach `fit` and the scorer.

scikit-learn passes ``qid`` to estimators, splitters and scorers that request it if metadata routing is enabled::

    sklearn.set_config(enable_metadata_routing=True)
    search = GridSearchCV(QueryRanker(LGBMRanker()), grid, scoring=ranking_scorer("nDCG@10"), cv=QueryKFold(5))
    search.fit(X, y, qid=qid)
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rankbound.arrays import labels_of, names_of, weights_of
from rankbound.errors import ArgumentError, DataError
from rankbound.integrations.measured_lists import MeasuredLists, metric_measure
from rankbound.lists import Lists
from rankbound.packages import needed_by

with needed_by("this integration"):
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
    from sklearn.utils import _safe_indexing
    from sklearn.utils.metadata_routing import MetadataRequest

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rankbound.measures.measure import Measure

_ROUTING = "call sklearn.set_config(enable_metadata_routing=True) and pass qid= to the fit of the search"


def ranking_scorer(measure: str | Measure = "nDCG@10") -> RankingScorer:
    """Make a scorer of any measure for ``scoring=`` of GridSearchCV, RandomizedSearchCV, cross_validate and so on.

    It requests ``qid``: the search passes on the queries of each fold if metadata routing is enabled. The score is the
    mean over the queries for which the measure is defined, with a minus sign if lower values are better, as in
    scikit-learn. Rows of a query need not be adjacent.

    >>> class FirstFeature:
    ...     def predict(self, X):
    ...         return X[:, 0]
    >>> ranking_scorer("RR")(FirstFeature(), np.array([[0.1], [0.9], [0.8], [0.2]]), [1, 0, 1, 0], qid=[1, 1, 2, 2])
    0.75
    """
    return RankingScorer(metric_measure(measure))


@dataclass(frozen=True)
class RankingScorer:
    """The result of `ranking_scorer`, called as ``scorer(estimator, X, y, qid=qid)``."""

    measure: Measure

    def __call__(self, estimator: Any, X: Any, y: Any, qid: Any = None) -> float:
        """Return the mean of the measure for the scores that the estimator predicts."""
        if qid is None:
            raise DataError(f"ranking_scorer requires qid, got None: {_ROUTING}")
        in_context = {"qid": qid} if "qid" in _parameters(estimator.predict) else {}
        value = _mean(self.measure, np.asarray(estimator.predict(X, **in_context)), y, qid)
        return -value if self.measure.is_lower_better else value

    def get_metadata_routing(self) -> Any:
        """Request ``qid``; scikit-learn calls it."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="qid", alias=True)
        return request

    def __repr__(self) -> str:
        return f"ranking_scorer({str(self.measure)!r})"


class QueryRanker(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types we follow
    """The ranker of another library as an estimator with ``qid``, as searches of scikit-learn need it.

    `LGBMRanker` has group sizes, which a search cannot split into folds, `XGBRanker` has a sorted ``qid`` of integers,
    and `CatBoostRanker` has ``group_id``. This estimator takes ``qid`` for all of them: any numbers or texts, with rows
    in any order. It sorts the rows by query and passes on what the ranker requires. Its parameters in a search are
    those of the ranker with the prefix ``estimator__``.

    Parameters
    ----------
    estimator:
        A ranker whose `fit` has the parameter ``qid``, ``group_id`` or ``group``.
    measure:
        The measure that `score` reports.

    >>> from lightgbm import LGBMRanker
    >>> ranker = QueryRanker(LGBMRanker(n_estimators=5, min_child_samples=1, min_data_in_bin=1, verbose=-1))
    >>> X, y, qid = np.array([[0.0], [0.2], [1.0], [0.9]]), [0, 0, 1, 1], ["a", "b", "a", "b"]
    >>> ranker.fit(X, y, qid=qid).score(X, y, qid=qid)
    1.0
    """

    # read by scikit-learn: the metadata that the methods request, without a call of set_fit_request
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"qid": True, "sample_weight": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"qid": True}

    def __init__(self, estimator: Any, measure: str | Measure = "nDCG@10") -> None:
        self.estimator = estimator
        self.measure = measure

    def fit(
        self, X: Any, y: ArrayLike, *, qid: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train a clone of the estimator, ``estimator_``, on rows of features.

        Parameters
        ----------
        X:
            Features, a row per item, in any form that the estimator accepts.
        y:
            Relevance label of each row.
        qid:
            The query of each row, numbers or texts; rows of a query need not be adjacent.
        sample_weight:
            One weight per row, such as ``rankbound.difficulty_weights(..., per="row")``. XGBoost and CatBoost weight
            queries: they get the mean over the rows of each query.
        """
        metric_measure(self.measure)
        if qid is None:
            raise DataError(f"fit requires qid, got None; in a search, {_ROUTING}")
        labels = labels_of(y, "y")
        lists = Lists.from_qid(labels, names_of("qid", qid, length=len(labels)), ids=np.arange(len(labels)))
        order = lists.ids
        if (order[1:] < order[:-1]).any():
            X = _safe_indexing(X, order)
        else:
            order = slice(None)
        weights = None if sample_weight is None else weights_of("sample_weight", sample_weight, len(labels))[order]
        self.estimator_ = clone(self.estimator)
        self.estimator_.fit(X, lists.labels, **_query_arguments(self.estimator_, lists, weights))
        self.n_queries_ = len(lists)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each row."""
        if not self.__sklearn_is_fitted__():
            raise ArgumentError("predict requires a fitted estimator: call fit first")
        return np.asarray(self.estimator_.predict(X), dtype=np.float64)

    def score(self, X: Any, y: ArrayLike, qid: ArrayLike | None = None) -> float:
        """Return the mean of ``measure`` over the queries for which it is defined."""
        if qid is None:
            raise DataError(f"score requires qid, got None; in a search, {_ROUTING}")
        return _mean(metric_measure(self.measure), self.predict(X), y, qid)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_queries_")


def _query_arguments(estimator: Any, lists: Lists, weights: NDArray[np.float64] | None) -> dict[str, Any]:
    """Return what the `fit` of a ranker takes for the queries of adjacent rows, and for weights of the rows."""
    parameters = _parameters(estimator.fit)
    arguments: dict[str, Any]
    if "qid" in parameters:  # XGBRanker, our rankers
        arguments = {"qid": lists.query_of_item}
    elif "group_id" in parameters:  # CatBoostRanker
        arguments = {"group_id": lists.query_of_item}
    elif "group" in parameters:  # LGBMRanker
        arguments = {"group": lists.sizes}
    else:
        raise ArgumentError(
            f"estimator must be a ranker whose fit has qid, group_id or group, got {type(estimator).__name__}"
        )
    if weights is None:
        return arguments
    of_queries = np.add.reduceat(weights, lists.offsets[:-1]) / lists.sizes
    if "group_weight" in parameters:
        return arguments | {"group_weight": np.repeat(of_queries, lists.sizes)}
    if "eval_qid" in parameters:  # XGBRanker has one weight per query
        return arguments | {"sample_weight": of_queries}
    return arguments | {"sample_weight": weights}


def _mean(measure: Measure, scores: NDArray[Any], y: Any, qid: Any) -> float:
    labels = labels_of(y, "y")
    lists = Lists.from_qid(labels, names_of("qid", qid, length=len(labels)), scores)
    assert lists.scores is not None
    return MeasuredLists(lists, measure).mean(lists.scores)


def _parameters(function: Any) -> Any:
    return inspect.signature(function).parameters
