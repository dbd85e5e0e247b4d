"""Rankers made of trees, trained by LightGBM: LambdaMART, boosting and random forests.

Forests also use LightGBM (its ``rf`` mode), so that one text format, one fast predictor and one set of exporters serve
all tree models. A tree of the forest is trained on a fraction of the rows (drawn without replacement, where Breiman
draws with replacement) and a random subset of the features at every split; leaves hold means.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.difficulty.queries import difficulty_weights
from rankbound.difficulty.weights import warn_of_two_weightings
from rankbound.errors import ArgumentError, DataError
from rankbound.io import report_progress
from rankbound.models.base import FittedState, Queries, Ranker, seed_of
from rankbound.models.measuring import mean_measure
from rankbound.models.options import OptionGroup, accept_options, flat_parameters
from rankbound.models.parameters import check_choice, check_count, check_in_range
from rankbound.models.rankers.levels import expected_label, label_levels
from rankbound.models.rankers.options import TreeOptions
from rankbound.models.rankers.weighted_features import row_blocks
from rankbound.models.tree_text import check_trees, trees_alone
from rankbound.packages import needed_by
from rankbound.parallel import threads

with needed_by("a ranker of trees"):
    import lightgbm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses import RankingLoss
    from rankbound.measures.measure import Measure

DEFAULT_OBJECTIVE = "noisy-lambda-nDCG"  # also that of rankbound.losses.lightgbm_objective, whose import takes longer
_LARGEST = 2**31 - 1
_RANGES = {  # of LightGBM's parameters: least value, greatest value, whether the least is excluded
    "n_estimators": (1, _LARGEST, False),
    "num_leaves": (2, 131_072, False),
    "max_depth": (-_LARGEST, _LARGEST, False),
    "min_child_samples": (0, _LARGEST, False),
    "subsample": (0, 1, True),
    "colsample_bytree": (0, 1, True),
    "max_features": (0, 1, True),
    "learning_rate": (0, 1e38, True),
    "reg_lambda": (0, 1e300, False),
    "truncation_level": (1, _LARGEST, False),
}
_MAX_CATEGORY = 1_000_000  # LightGBM keeps a bit for every category up to the largest one
_ZERO = 1e-35  # smaller values are 0 to LightGBM
_MAX_MODELS = 1_000  # one for each level of the labels
_VALUES_PER_THREAD = 250_000
# LightGBM keeps a histogram of all features for each leaf, 39 GB for a forest on 37,632 pixels. Those beyond this size
# are computed again.
_HISTOGRAM_MEGABYTES = 4096


@dataclass(eq=False, repr=False, kw_only=True)
class _TreeRanker(Ranker):
    """The common base of rankers made of LightGBM models: parameters of trees, training, prediction, files."""

    n_estimators: int = 100
    num_leaves: int = 31
    categorical_features: tuple[Any, ...] = ()
    measure: str | Measure = "nDCG"
    random_state: int | None = 0
    n_jobs: int | None = None
    boosters_: list[Any] = field(init=False)
    _accepts_nan: ClassVar[bool] = True

    def _stopping_rounds(self) -> int | None:
        return None

    def _check_ranges(self) -> None:
        """Refuse what LightGBM would refuse, because it prints a line of its own before it raises."""
        for name, value in flat_parameters(self).items():
            if name in _RANGES:
                low, high, open_low = _RANGES[name]
                check_in_range(name, value, low, high, open_low=open_low)

    def _lightgbm_parameters(self, special: dict[str, Any]) -> dict[str, Any]:
        """Return all parameters of LightGBM but the number of threads, on which trees do not depend."""
        common = {
            "verbosity": -1,
            "seed": seed_of(self.random_state),
            "force_row_wise": True,
            "metric": "None",
            "deterministic": True,
            "feature_pre_filter": False,
            "min_data_in_bin": 1,
            "histogram_pool_size": _HISTOGRAM_MEGABYTES,
        }
        return {**common, **special}

    def _grow(
        self,
        parameters: dict[str, Any],
        queries: Queries,
        targets: Iterable[NDArray[Any]],
        held_out: Queries | None,
        weights: NDArray[np.float64] | None,
        by_query: bool = False,
    ) -> list[Any]:
        """Train one LightGBM model for each array of targets; the features are sorted into bins once for all of them.

        With held-out queries, keep the number of trees that ranks them best.
        """
        check_count("n_estimators", self.n_estimators)
        self._check_ranges()
        if self.n_jobs is not None:
            check_in_range("n_jobs", self.n_jobs, -_LARGEST, _LARGEST)
        num_threads = _threads(queries.features) if self.n_jobs is None else self.n_jobs
        parameters = {**self._lightgbm_parameters(parameters), "num_threads": num_threads}
        groups = queries.lists.sizes if by_query else None
        categories = self._categories(queries.features)
        features = queries.features
        if not any(
            (np.abs(features[rows]) > _ZERO).any() for rows in row_blocks(features)
        ):  # LightGBM refuses such data, although constant features are accepted
            features = np.ones_like(features)
        train = lightgbm.Dataset(features, weight=weights, group=groups, categorical_feature=categories)
        valid = None
        if held_out is not None:
            valid = train.create_valid(held_out.features, np.zeros(len(held_out.features)))
        return [self._grow_one(parameters, train.set_label(target), valid, held_out) for target in targets]

    def _grow_one(self, parameters: dict[str, Any], train: Any, valid: Any, held_out: Queries | None) -> Any:
        """Train a model on the labels that the data set has."""
        history: dict[str, Any] = {}
        callbacks: list[Callable[[Any], None]] = [_report_round]
        evaluate = None
        if held_out is not None:
            lists = held_out.lists

            def evaluate(scores: NDArray[np.floating], _: Any) -> tuple[str, float, bool]:
                return "measure", mean_measure(lists, np.asarray(scores, dtype=np.float64), self.measure), True

            callbacks.append(lightgbm.record_evaluation(history))
            if self._on_step is not None:
                callbacks.append(_stopping_callback(self._on_step))
            if (rounds := self._stopping_rounds()) is not None:
                check_count("early_stopping_rounds", rounds)
                callbacks.append(lightgbm.early_stopping(rounds, verbose=False))
        try:
            booster = lightgbm.train(
                parameters,
                train,
                int(self.n_estimators),
                valid_sets=[valid] if valid is not None else [],
                feval=evaluate,
                callbacks=callbacks,
            )
        except lightgbm.basic.LightGBMError as error:  # rules of LightGBM that _RANGES does not have
            raise ArgumentError(f"LightGBM refuses the parameters: {error}") from error
        best = None
        if held_out is not None:
            best = int(np.argmax(history["valid_0"]["measure"])) + 1
        # keep what a file can hold, so that scores are the same before and after saving
        return lightgbm.Booster(model_str=trees_alone(booster.model_to_string(num_iteration=best)))

    def _categories(self, features: NDArray[np.floating]) -> list[int]:
        """Return the columns of the categorical features, by index or name, whose values must be small integers."""
        names = list(getattr(self, "feature_names_in_", ()))
        columns = []
        for feature in self.categorical_features:
            column = names.index(feature) if feature in names else feature
            if not isinstance(column, (int, np.integer)) or not 0 <= column < features.shape[1]:
                raise ArgumentError(
                    f"categorical_features must be columns, by name or index below {features.shape[1]}, got {feature!r}"
                )
            values = features[:, column]
            values = values[~np.isnan(values)]
            wrong = values[(values != np.rint(values)) | (values < 0) | (values > _MAX_CATEGORY)]
            if len(wrong):
                raise DataError(
                    f"a categorical feature must have integers from 0 to {_MAX_CATEGORY}, got {wrong[0]} in {feature!r}"
                )
            columns.append(int(column))
        return columns

    def _keep(self, boosters: list[Any]) -> None:
        self.boosters_ = boosters
        if all(booster.num_trees() == 0 or not booster.feature_importance().any() for booster in boosters):
            warnings.warn(
                f"{type(self).__name__} found no useful split, so that every row has the same score; "
                "the features are constant, or min_child_samples is too large for the data",
                UserWarning,
                stacklevel=4,
            )

    def _predict_rows(self, booster: Any, features: NDArray[np.floating]) -> NDArray[np.float64]:
        num_threads = _threads(features) if self.n_jobs is None else self.n_jobs
        scores = booster.predict(features, num_threads=num_threads, validate_features=False)
        return np.asarray(scores, dtype=np.float64)

    def _fitted_state(self) -> FittedState:
        count = len(self.boosters_)
        texts = {
            _file(index, count): trees_alone(booster.model_to_string()) for index, booster in enumerate(self.boosters_)
        }
        return FittedState(texts=texts, metadata={"models": count})

    def _restore_state(self, state: FittedState) -> None:
        count = state.metadata["models"]
        if not 1 <= count <= _MAX_MODELS:
            raise DataError(f"models must be from 1 to {_MAX_MODELS}, got {count}")
        texts = [trees_alone(state.texts[_file(index, count)]) for index in range(count)]
        for text in texts:
            check_trees(text, self.n_features_in_)
        try:
            self.boosters_ = [lightgbm.Booster(model_str=text) for text in texts]
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"LightGBM cannot read the trees: {error}") from error


@dataclass(eq=False, repr=False, kw_only=True)
class _BoostedTrees(_TreeRanker):
    """The parameters of gradient boosting."""

    learning_rate: float = 0.1
    trees: TreeOptions | None = None
    early_stopping_rounds: int | None = None
    _groups: ClassVar[dict[str, OptionGroup]] = {"trees": TreeOptions()}

    def _stopping_rounds(self) -> int | None:
        return self.early_stopping_rounds

    def _boosting_parameters(self) -> dict[str, Any]:
        trees = TreeOptions.from_model(self, "trees")
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "max_depth": trees.max_depth,
            "min_data_in_leaf": trees.min_child_samples,
            "lambda_l2": trees.reg_lambda,
            "bagging_fraction": trees.subsample,
            "bagging_freq": 0 if trees.subsample == 1 else 1,
            "feature_fraction": trees.colsample_bytree,
        }


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class LambdaMART(_BoostedTrees):
    """Gradient boosted trees on lambdas or on any ranking loss, with or without bounding.

    Parameters
    ----------
    objective:
        A loss of `rankbound.losses`, by name (``"noisy-lambda-nDCG"``, ``"lambda-AP"``, ``"nDCG"``, ``"RankNet"``, ...)
        or as an object, whose gradient and hessian are used. The default is LambdaRank for nDCG with noisy ranks, see
        `rankbound.losses.lightgbm_objective`. ``"lambdarank"`` is LightGBM's own LambdaMART (Burges, "From RankNet to
        LambdaRank to LambdaMART", 2010) for nDCG. Both have the gain 2^label - 1.
    bounding:
        ``none``, ``min-max``, ``expectation``, ``expectation-max``; for losses also ``distribution`` and
        ``log-distribution``. The first three multiply the loss by a factor per query, which LightGBM's own objective
        receives as weights. Together with difficulty weights in ``sample_weight``, difficulty would count twice; a
        warning says so. The study of training methods found no use for a bounding of the default objective.
    n_estimators, learning_rate, num_leaves:
        As in LightGBM, with its defaults.
    trees:
        `TreeOptions`, further parameters of LightGBM: ``max_depth``, ``min_child_samples``, ``subsample``,
        ``colsample_bytree`` and ``reg_lambda``. Each can also be given by its own name, ``min_child_samples=5``.
    categorical_features:
        Columns that hold categories, small integers from 0 on, by index or, for a frame, by name. A split divides
        categories into two sets. NaN in any feature means missing.
    truncation_level:
        For lambdarank and noisy-lambda-...: pairs count if one of their items is ranked at least this high.
    early_stopping_rounds:
        Stop when the measure on ``eval_set`` has not improved for this many rounds. The best round is kept in any case.
    measure:
        The measure that `score` reports and that selects the round on ``eval_set``.
    random_state:
        Seed of subsampling and of noisy ranks; None is 0.
    n_jobs:
        Threads; None takes the budget of `rankbound.set_threads`, less for small data. Trees do not depend on it.

    >>> ranker = LambdaMART(n_estimators=5, min_child_samples=1)
    >>> ranker.fit([[0.0], [1.0], [0.2], [0.9]], [0, 1, 0, 1], qid=[1, 1, 2, 2]).score([[0.1], [0.8]], [0, 1], [7, 7])
    1.0
    """

    objective: str | RankingLoss = field(default=DEFAULT_OBJECTIVE, kw_only=False)
    bounding: str = field(default="none", kw_only=False)
    truncation_level: int = 30

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        weights = None if queries.weights is None else queries.query_weights
        if isinstance(self.objective, str) and self.objective == "lambdarank":
            special: dict[str, Any] = {
                "objective": "lambdarank",
                "lambdarank_truncation_level": self.truncation_level,
            }
            bounded = self._query_factors(queries)
            if bounded is not None:
                if weights is not None:
                    warn_of_two_weightings(self.bounding, weights[bounded > 0])
                weights = bounded if weights is None else bounded * weights
        else:
            from rankbound.losses import lightgbm_objective

            special = {"objective": lightgbm_objective(self.objective, **self._loss_options())}
        rows = None if weights is None else np.repeat(weights, queries.lists.sizes)
        parameters = {**self._boosting_parameters(), **special}
        self._keep(self._grow(parameters, queries, [queries.labels], held_out, rows, by_query=True))

    def _loss_options(self) -> dict[str, Any]:
        """Return the options of the loss that are parameters of the ranker."""
        options: dict[str, Any] = {} if self.bounding == "none" else {"bounding": self.bounding}
        if isinstance(self.objective, str) and self.objective.startswith("noisy-lambda-"):
            options |= {"truncation": self.truncation_level, "seed": seed_of(self.random_state)}
        return options

    def _query_factors(self, queries: Queries) -> NDArray[np.float64] | None:
        """Return the factor of each query under an affine bounding; refuse labels that LightGBM does not accept."""
        labels = queries.labels
        if labels.dtype.kind == "f" or labels.max() > 30:
            raise DataError(
                "lambdarank requires integer labels from 0 to 30 (other objectives accept any), "
                f"got {labels[labels != np.rint(labels)][0] if labels.dtype.kind == 'f' else labels.max()}"
            )
        if self.bounding == "none":
            return None
        if self.bounding not in ("min-max", "expectation", "expectation-max"):
            raise ArgumentError(
                "bounding of lambdarank must be none, min-max, expectation or expectation-max (objective='lambda-nDCG' "
                f"accepts the others), got {self.bounding!r}"
            )
        return difficulty_weights(
            labels,
            queries.lists.query_of_item,
            measure="nDCG(dcg='exp-log2')",
            bounding=self.bounding,
            form="plain",  # a bounding is this factor exactly, however uneven it is
            effective=None,
            normalize=True,
        )

    def _scores(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        return self._predict_rows(self.boosters_[0], features)


@dataclass(eq=False, repr=False, kw_only=True)
class _PointwiseTrees(_TreeRanker):
    """Trees that predict the label of each row."""

    _learns_from: ClassVar[str] = "rows"
    _mode: ClassVar[str]
    task: str = field(default="regression", kw_only=False)
    levels_: NDArray[np.float64] = field(init=False)

    def _parameters(self) -> dict[str, Any]:
        raise NotImplementedError

    def _fit(self, queries: Queries, held_out: Queries | None) -> None:
        check_choice("task", self.task, ("regression", "classification"))
        labels, weights = queries.labels, queries.weights
        parameters = {**self._parameters(), "boosting": self._mode}
        if self.task == "regression":
            self.levels_ = np.zeros(0)
            targets, parameters["objective"] = [labels.astype(np.float64)], "regression"
        else:
            self.levels_ = label_levels(labels)
            targets = [(labels >= level).astype(np.float64) for level in self.levels_[1:]]
            # The mean of 0/1 in a leaf is the fraction of 1, and the variance is half of the Gini index: a regression
            # forest on 0/1 is Breiman's classification forest. Boosting needs the logistic loss.
            parameters["objective"] = "regression" if self._mode == "rf" else "binary"
        self._keep(self._grow(parameters, queries, targets, held_out, weights))

    def _scores(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        if self.task == "regression":
            return self._predict_rows(self.boosters_[0], features)
        at_least = [self._predict_rows(booster, features) for booster in self.boosters_]
        return expected_label(np.stack(at_least, axis=1), self.levels_)

    def _fitted_state(self) -> FittedState:
        state = super()._fitted_state()
        state.arrays["levels"] = self.levels_
        return state

    def _restore_state(self, state: FittedState) -> None:
        super()._restore_state(state)
        self.levels_ = state.arrays["levels"]


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class BoostingRanker(_PointwiseTrees, _BoostedTrees):
    """Gradient boosting on the labels: "Reg. Boost" and "Class Boost" of the neural ranking paper (Köppel et al. 2019).

    Parameters
    ----------
    task:
        ``"regression"`` (squared error) or ``"classification"`` (a logistic model per label level; the score is the
        expected label, see `rankbound.models.rankers.levels`).

    The other parameters are those of `LambdaMART`.
    """

    _mode: ClassVar[str] = "gbdt"

    def _parameters(self) -> dict[str, Any]:
        return self._boosting_parameters()


@dataclass(eq=False, repr=False, kw_only=True)
class RandomForestRanker(_PointwiseTrees):
    """A random forest on the labels: "Reg. RF" and "Class RF" of the neural ranking paper (Köppel et al. 2019).

    Parameters
    ----------
    task:
        ``"regression"`` or ``"classification"`` (a forest per label level; the score is the expected label, see
        `rankbound.models.rankers.levels`). With two levels of labels both are the same.
    n_estimators, num_leaves, max_depth, min_child_samples:
        Number of trees and limits of their size; leaves are small and many, as in Breiman, "Random forests" (2001).
    subsample:
        Fraction of the rows that a tree is trained on, below 1; a draw with replacement contains 0.632 of them.
    max_features:
        Fraction of the features that each split considers.
    measure, random_state, n_jobs:
        As in `LambdaMART`. With an ``eval_set`` the number of trees that ranks it best is kept.
    """

    n_estimators: int = 300
    num_leaves: int = 255
    max_depth: int = -1
    min_child_samples: int = 5
    subsample: float = 0.632
    max_features: float = 1 / 3
    _mode: ClassVar[str] = "rf"

    def _parameters(self) -> dict[str, Any]:
        if not 0 < self.subsample < 1:
            raise ArgumentError(f"subsample of a forest must be between 0 and 1, got {self.subsample!r}")
        return {
            "num_leaves": self.num_leaves,
            "max_depth": self.max_depth,
            "min_data_in_leaf": self.min_child_samples,
            "min_sum_hessian_in_leaf": 1e-6,  # a leaf needs some weight
            "bagging_fraction": self.subsample,
            "bagging_freq": 1,
            "feature_fraction_bynode": self.max_features,
        }


def _report_round(state: Any) -> None:
    """Called by LightGBM after every round."""
    report_progress("growing trees", state.iteration + 1, state.end_iteration)


def _stopping_callback(on_step: Callable[[int, float], bool]) -> Callable[[Any], None]:
    """Return a callback of LightGBM that ends the training when ``on_step(round, measure)`` is true."""

    def stop(state: Any) -> None:
        if on_step(state.iteration + 1, float(state.evaluation_result_list[0][2])):
            raise lightgbm.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

    stop.order = 25  # type: ignore[attr-defined]  # after record_evaluation (20)
    return stop


def _threads(features: NDArray[np.floating]) -> int:
    """Return the thread budget, reduced where the data are so few that threads would only wait."""
    return max(1, min(threads(), features.size // _VALUES_PER_THREAD))


def _file(index: int, count: int) -> str:
    return "trees.txt" if count == 1 else f"trees_{index + 1}.txt"
