"""Rankers made of trees, grown by LightGBM: LambdaMART, boosting and random forests.

Forests use LightGBM too (its ``rf`` mode), so that one text format, one fast predictor and one set of exporters serves
every tree model. A tree of the forest sees a share of the rows (drawn without replacement, where Breiman draws with)
and a random subset of the features at every split; leaves hold means.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.difficulty.queries import difficulty_weights
from rankbound.errors import ArgumentError, DataError
from rankbound.models.base import FittedState, Queries, Ranker
from rankbound.models.levels import expected_label, label_levels
from rankbound.models.measuring import mean_measure
from rankbound.models.tree_text import check_trees, trees_alone
from rankbound.parallel import threads

try:
    import lightgbm
except ImportError as error:
    raise ImportError(
        f"tree rankers need LightGBM, and {error.name} is missing: pip install 'rankbound[train]'"
    ) from error

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BoostingRanker", "LambdaMART", "RandomForestRanker"]

_TASKS = ("regression", "classification")
_MOST_LEVELS = 1_000  # of labels, each with trees of its own
_VALUES_PER_THREAD = 250_000


class _TreeRanker(Ranker):
    """What rankers made of LightGBM models share: growing, predicting, saving."""

    n_estimators: int
    early_stopping_rounds: int | None = None
    random_state: int | None
    n_jobs: int | None
    boosters_: list[Any]

    def _grow(
        self,
        parameters: dict[str, Any],
        queries: Queries,
        targets: NDArray[Any],
        held_out: Queries | None,
        weights: NDArray[np.float64] | None,
        by_query: bool = False,
    ) -> Any:
        """One LightGBM model; with held-out queries cut where its own ranking of them was best."""
        seed = 0 if self.random_state is None else self.random_state
        if not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ArgumentError(f"random_state must be an integer of at least 0 or None, got {self.random_state!r}")
        _positive("n_estimators", self.n_estimators)
        num_threads = _threads(queries.features) if self.n_jobs is None else self.n_jobs
        common = {
            "verbosity": -1,
            "seed": int(seed),
            "num_threads": num_threads,
            "force_row_wise": True,
            "metric": "None",
        }
        # same trees whatever the number of threads
        parameters = {**common, "deterministic": True, "feature_pre_filter": False, "min_data_in_bin": 1, **parameters}
        groups = queries.lists.sizes if by_query else None
        train = lightgbm.Dataset(queries.features, targets, weight=weights, group=groups)
        history: dict[str, Any] = {}
        callbacks, valid, judge = [], [], None
        if held_out is not None:
            valid = [train.create_valid(held_out.features, np.zeros(len(held_out.features)))]
            lists = held_out.lists

            def judge(scores: NDArray[Any], _: Any) -> tuple[str, float, bool]:
                return "measure", mean_measure(lists, np.asarray(scores, dtype=np.float64), self.measure), True

            callbacks.append(lightgbm.record_evaluation(history))
            if self.early_stopping_rounds is not None:
                _positive("early_stopping_rounds", self.early_stopping_rounds)
                callbacks.append(lightgbm.early_stopping(self.early_stopping_rounds, verbose=False))
        try:
            booster = lightgbm.train(
                parameters, train, int(self.n_estimators), valid_sets=valid, feval=judge, callbacks=callbacks
            )
        except lightgbm.basic.LightGBMError as error:
            raise ArgumentError(f"LightGBM refuses: {error}") from error
        best = None
        if held_out is not None:
            best = int(np.argmax(history["valid_0"]["measure"])) + 1
        # What is kept is what a file can hold, so that scores are the same before and after
        return lightgbm.Booster(model_str=trees_alone(booster.model_to_string(num_iteration=best)))

    def _keep(self, boosters: list[Any]) -> None:
        self.boosters_ = boosters
        if all(booster.num_trees() == 0 or not booster.feature_importance().any() for booster in boosters):
            warnings.warn(
                f"{type(self).__name__} found no split worth making, so every row gets the same score; "
                "the features are constant, or min_child_samples is too large for the data",
                UserWarning,
                stacklevel=4,
            )

    def _predicted(self, booster: Any, features: NDArray[Any]) -> NDArray[np.float64]:
        num_threads = _threads(features) if self.n_jobs is None else self.n_jobs
        scores = booster.predict(features, num_threads=num_threads, validate_features=False)
        return np.asarray(scores, dtype=np.float64)

    def _fitted_state(self) -> FittedState:
        count = len(self.boosters_)
        texts = {_file(at, count): trees_alone(one.model_to_string()) for at, one in enumerate(self.boosters_)}
        return FittedState(texts=texts, metadata={"models": count})

    def _restore_state(self, state: FittedState) -> None:
        count = state.metadata["models"]
        if not 1 <= count <= _MOST_LEVELS:
            raise DataError(f"models must be from 1 to {_MOST_LEVELS}, got {count}")
        texts = [trees_alone(state.texts[_file(at, count)]) for at in range(count)]
        for text in texts:
            check_trees(text, self.n_features_in_)
        try:
            self.boosters_ = [lightgbm.Booster(model_str=text) for text in texts]
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"LightGBM cannot read the trees: {error}") from error


class LambdaMART(_TreeRanker):
    """Boosted trees on lambdas or on any ranking loss, bounded by what each query allows.

    Parameters
    ----------
    objective:
        ``"lambdarank"`` is LightGBM's own LambdaMART (Burges 2010) for nDCG with the gain 2^label - 1. Otherwise a loss
        of `rankbound.losses`, by name (``"nDCG"``, ``"lambda-AP"``, ``"RankNet"``, ...) or as an object: its gradient
        and hessian grow the trees. Smooth measures bound their curvature from above, so their steps are cautious:
        give them a ``learning_rate`` of about 0.3.
    bounding:
        ``none``, ``min-max``, ``expectation``, ``expectation-max``; for losses also ``distribution`` and
        ``log-distribution``. The first three bend a loss by a factor per query, which is how LightGBM's own objective
        gets them.
    n_estimators, learning_rate, num_leaves, max_depth, min_child_samples, reg_lambda, subsample, colsample_bytree:
        As in LightGBM, with its defaults.
    truncation_level:
        lambdarank only: pairs count whose better item stands this high.
    early_stopping_rounds:
        Stop when the measure on ``eval_set`` has not risen for so many rounds. The best round is kept in any case.
    measure:
        What `score` and the choice on ``eval_set`` go by.
    random_state:
        Seed of subsampling.
    n_jobs:
        Threads; None takes the budget of `rankbound.set_threads`, less for small data. Trees do not depend on it.

    >>> ranker = LambdaMART(n_estimators=5, min_child_samples=1)
    >>> ranker.fit([[0.0], [1.0], [0.2], [0.9]], [0, 1, 0, 1], qid=[1, 1, 2, 2]).score([[0.1], [0.8]], [0, 1], [7, 7])
    1.0
    """

    def __init__(
        self,
        objective: Any = "lambdarank",
        bounding: str = "none",
        *,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        max_depth: int = -1,
        min_child_samples: int = 20,
        reg_lambda: float = 0.0,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        truncation_level: int = 30,
        early_stopping_rounds: int | None = None,
        measure: Any = "nDCG",
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.objective = objective
        self.bounding = bounding
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.max_depth = max_depth
        self.min_child_samples = min_child_samples
        self.reg_lambda = reg_lambda
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.truncation_level = truncation_level
        self.early_stopping_rounds = early_stopping_rounds
        self.measure = measure
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        weights = None if queries.weights is None else queries.query_weights
        if isinstance(self.objective, str) and self.objective == "lambdarank":
            special: dict[str, Any] = {
                "objective": "lambdarank",
                "lambdarank_truncation_level": self.truncation_level,
            }
            bounded = self._query_factors(queries)
            if bounded is not None:
                weights = bounded if weights is None else bounded * weights
        else:
            from rankbound.losses import lightgbm_objective

            options = {} if self.bounding == "none" else {"bounding": self.bounding}
            special = {"objective": lightgbm_objective(self.objective, **options)}
        rows = None if weights is None else np.repeat(weights, queries.lists.sizes)
        parameters = {**_boosting_parameters(self), **special}
        self._keep([self._grow(parameters, queries, queries.labels, held_out, rows, by_query=True)])

    def _query_factors(self, queries: Queries) -> NDArray[np.float64] | None:
        """What an affine bounding multiplies each query by; LightGBM's own objective wants whole labels, too."""
        labels = queries.labels
        if labels.dtype.kind == "f" or labels.max() > 30:
            raise DataError(
                "lambdarank takes whole labels from 0 to 30; objective='nDCG' or another loss takes any, "
                f"got {labels[labels != np.rint(labels)][0] if labels.dtype.kind == 'f' else labels.max()}"
            )
        if self.bounding == "none":
            return None
        if self.bounding not in ("min-max", "expectation", "expectation-max"):
            raise ArgumentError(
                "bounding of lambdarank must be none, min-max, expectation or expectation-max, got "
                f"{self.bounding!r}; objective='lambda-nDCG' takes the others"
            )
        return difficulty_weights(
            labels,
            queries.lists.query_of_item,
            measure="nDCG(dcg='exp-log2')",
            bounding=self.bounding,
            normalize=True,
        )

    def _scores(self, features: NDArray[Any]) -> NDArray[np.float64]:
        return self._predicted(self.boosters_[0], features)


class _PointwiseTrees(_TreeRanker):
    """Trees that learn each row's label by itself."""

    _learns_from: ClassVar[str] = "rows"
    _mode: ClassVar[str]
    task: str
    levels_: NDArray[np.float64]

    def _parameters(self) -> dict[str, Any]:
        raise NotImplementedError

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        if self.task not in _TASKS:
            raise ArgumentError(f"task must be one of {', '.join(_TASKS)}, got {self.task!r}")
        labels, weights = queries.labels, queries.weights
        parameters = {**self._parameters(), "boosting": self._mode}
        if self.task == "regression":
            self.levels_ = np.zeros(0)
            targets, parameters["objective"] = [labels.astype(np.float64)], "regression"
        else:
            self.levels_ = label_levels(labels)
            targets = [(labels >= level).astype(np.float64) for level in self.levels_[1:]]
            # The mean of 0/1 in a leaf is its share of 1, and variance is half of Gini's index: a regression forest on
            # 0/1 is Breiman's classification forest. Boosting needs the logistic.
            parameters["objective"] = "regression" if self._mode == "rf" else "binary"
        self._keep([self._grow(parameters, queries, target, held_out, weights) for target in targets])

    def _scores(self, features: NDArray[Any]) -> NDArray[np.float64]:
        if self.task == "regression":
            return self._predicted(self.boosters_[0], features)
        at_least = [self._predicted(booster, features) for booster in self.boosters_]
        return expected_label(np.stack(at_least, axis=1), self.levels_)

    def _fitted_state(self) -> FittedState:
        state = super()._fitted_state()
        state.arrays["levels"] = self.levels_
        return state

    def _restore_state(self, state: FittedState) -> None:
        super()._restore_state(state)
        self.levels_ = state.arrays["levels"]


class BoostingRanker(_PointwiseTrees):
    """Gradient boosting on the labels themselves: "Reg. Boost" and "Class Boost" of the neural ranking paper.

    Parameters
    ----------
    task:
        ``"regression"`` (squared error) or ``"classification"`` (a logistic model per label level; the score is the
        expected label, see `rankbound.models.levels`).

    The other parameters are those of `LambdaMART`.
    """

    _mode = "gbdt"

    def __init__(
        self,
        task: str = "regression",
        *,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        max_depth: int = -1,
        min_child_samples: int = 20,
        reg_lambda: float = 0.0,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        early_stopping_rounds: int | None = None,
        measure: Any = "nDCG",
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.task = task
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.max_depth = max_depth
        self.min_child_samples = min_child_samples
        self.reg_lambda = reg_lambda
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.early_stopping_rounds = early_stopping_rounds
        self.measure = measure
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _parameters(self) -> dict[str, Any]:
        return _boosting_parameters(self)


class RandomForestRanker(_PointwiseTrees):
    """A random forest on the labels themselves: "Reg. RF" and "Class RF" of the neural ranking paper.

    Parameters
    ----------
    task:
        ``"regression"`` or ``"classification"`` (a forest per label level; the score is the expected label, see
        `rankbound.models.levels`). The same for labels of two kinds.
    n_estimators, num_leaves, max_depth, min_child_samples:
        Trees, and how far each grows; leaves are small and many, as in Breiman (2001).
    subsample:
        Share of the rows that a tree sees, below 1; 0.632 is what a draw with replacement shows.
    max_features:
        Share of the features that a split chooses from.
    measure, random_state, n_jobs:
        As in `LambdaMART`. With an ``eval_set`` the number of trees that ranks it best is kept.
    """

    _mode = "rf"

    def __init__(
        self,
        task: str = "regression",
        *,
        n_estimators: int = 300,
        num_leaves: int = 255,
        max_depth: int = -1,
        min_child_samples: int = 5,
        subsample: float = 0.632,
        max_features: float = 1 / 3,
        measure: Any = "nDCG",
        random_state: int | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.task = task
        self.n_estimators = n_estimators
        self.num_leaves = num_leaves
        self.max_depth = max_depth
        self.min_child_samples = min_child_samples
        self.subsample = subsample
        self.max_features = max_features
        self.measure = measure
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _parameters(self) -> dict[str, Any]:
        if not 0 < self.subsample < 1:
            raise ArgumentError(f"subsample of a forest must lie between 0 and 1, got {self.subsample!r}")
        return {
            "num_leaves": self.num_leaves,
            "max_depth": self.max_depth,
            "min_data_in_leaf": self.min_child_samples,
            "min_sum_hessian_in_leaf": 1e-6,  # a leaf needs some weight
            "bagging_fraction": self.subsample,
            "bagging_freq": 1,
            "feature_fraction_bynode": self.max_features,
        }


def _boosting_parameters(ranker: Any) -> dict[str, Any]:
    return {
        "learning_rate": ranker.learning_rate,
        "num_leaves": ranker.num_leaves,
        "max_depth": ranker.max_depth,
        "min_data_in_leaf": ranker.min_child_samples,
        # custom losses have hessians of any size, so a floor in absolute terms would stop them from splitting
        "min_sum_hessian_in_leaf": 1e-6,
        "lambda_l2": ranker.reg_lambda,
        "bagging_fraction": ranker.subsample,
        "bagging_freq": 0 if ranker.subsample == 1 else 1,
        "feature_fraction": ranker.colsample_bytree,
    }


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, got {value!r}")


def _threads(features: NDArray[Any]) -> int:
    """Return the thread budget, reduced where the data are so few that threads would only wait."""
    return max(1, min(threads(), features.size // _VALUES_PER_THREAD))


def _file(at: int, count: int) -> str:
    return "trees.txt" if count == 1 else f"trees_{at + 1}.txt"
