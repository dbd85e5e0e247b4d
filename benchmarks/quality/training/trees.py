"""Boosted trees of LightGBM, XGBoost and CatBoost, with their own objectives or with ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.training.ndcg import FastNDCG
from benchmarks.quality.training.protocols import TREES, Fit, Setting, Settings
from benchmarks.quality.training.sets import Parts
from rankbound.data import LetorData

__all__ = ["CatBoost", "LightGBM", "Ours", "XGBoost"]

FEATURE_FRACTION = 0.9  # of the features of each tree, for all libraries
WEIGHT_MEASURE = "nDCG(dcg='exp-log2')"


@dataclass(frozen=True)
class Ours:
    """An objective of rankbound.losses, made when it is needed: arguments of lightgbm_objective or xgboost_objective.

    ``loss`` is the name of a class of rankbound.losses, which is called with ``options``; without it, ``options`` are
    those of the default objective. A loss with a seed gets the seed of the training.
    """

    loss: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def make(self, library: str, seed: int) -> Any:
        """Return the objective for a library."""
        losses = importlib.import_module("rankbound.losses")
        objective = getattr(losses, f"{library}_objective")
        made = objective(**self.options) if self.loss is None else objective(getattr(losses, self.loss)(**self.options))
        return objective(replace(made.loss, seed=seed)) if hasattr(made.loss, "seed") else made


@dataclass(frozen=True)
class LightGBM:
    """LightGBM with an objective of its own, by name, or with ours; ``weights`` adds weights by difficulty."""

    name: str
    objective: str | Ours
    references: tuple[str, ...] = ("lambdarank",)
    weights: dict[str, Any] | None = None
    settings: Settings = field(default_factory=lambda: TREES)
    cost: float = 1.0

    def definition(self) -> str:
        """Return objective and weights."""
        return _definition("lightgbm", self.objective, self.weights)

    def fit(self, parts: Parts, setting: Setting, seed: int) -> Fit:
        """Train; the validation scores of a round come from the library, which keeps them up to date."""
        import lightgbm

        parameters = {
            "objective": _objective("lightgbm", self.objective, seed), "metric": "None", "seed": seed,
            "learning_rate": setting.learning_rate, "num_leaves": setting.leaves, "feature_fraction": FEATURE_FRACTION,
            "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1,
        }  # fmt: skip
        weight = _weights(parts.train, self.weights, "row")
        train = lightgbm.Dataset(
            parts.train.features, parts.train.lists.labels, group=parts.train.lists.sizes, weight=weight
        )
        held_out, ndcg = parts.validation.lists, FastNDCG(parts.validation.lists)
        curve: list[float] = []

        def evaluate(scores: NDArray[Any], _: Any) -> tuple[str, float, bool]:
            curve.append(ndcg.mean(scores))
            return "nDCG@10", curve[-1], True

        stop = [] if setting.patience is None else [lightgbm.early_stopping(setting.patience, verbose=False)]
        booster = lightgbm.train(
            parameters, train, setting.rounds, feval=evaluate, callbacks=stop,
            valid_sets=[train.create_valid(parts.validation.features, held_out.labels, group=held_out.sizes)],
        )  # fmt: skip
        return Fit(curve, lambda rounds: booster.predict(parts.test.features, num_iteration=rounds, num_threads=1))


@dataclass(frozen=True)
class XGBoost:
    """XGBoost with an objective of its own, by name, or with ours.

    Trees grow leaf by leaf to the same number of leaves as LightGBM's, without a limit of depth.
    """

    name: str
    objective: str | Ours
    references: tuple[str, ...] = ("XGBoost rank:ndcg", "lambdarank")
    weights: dict[str, Any] | None = None
    settings: Settings = field(default_factory=lambda: TREES)
    cost: float = 1.0

    def definition(self) -> str:
        """Return objective and weights."""
        return _definition("xgboost", self.objective, self.weights)

    def fit(self, parts: Parts, setting: Setting, seed: int) -> Fit:
        """Train; the validation scores of a round come from the library, which caches them."""
        import xgboost

        objective = _objective("xgboost", self.objective, seed)
        parameters = {
            "tree_method": "hist", "grow_policy": "lossguide", "max_leaves": setting.leaves, "max_depth": 0,
            "learning_rate": setting.learning_rate, "colsample_bytree": FEATURE_FRACTION, "seed": seed, "nthread": 1,
            "disable_default_eval_metric": True, **({"objective": objective} if isinstance(objective, str) else {}),
        }  # fmt: skip
        train, validation, test = (
            xgboost.DMatrix(part.features, part.lists.labels, group=part.lists.sizes, nthread=1)
            for part in (parts.train, parts.validation, parts.test)
        )
        if (weight := _weights(parts.train, self.weights, "query")) is not None:
            train.set_weight(weight)
        ndcg, curve = FastNDCG(parts.validation.lists), []

        def evaluate(scores: NDArray[Any], _: Any) -> tuple[str, float]:
            curve.append(ndcg.mean(scores))
            return "nDCG@10", curve[-1]

        patience = setting.patience
        stop = [] if patience is None else [xgboost.callback.EarlyStopping(rounds=patience, maximize=True)]
        booster = xgboost.train(
            parameters, train, setting.rounds, evals=[(validation, "validation")], custom_metric=evaluate,
            obj=None if isinstance(objective, str) else objective, callbacks=stop, verbose_eval=False,
        )  # fmt: skip
        return Fit(curve, lambda rounds: booster.predict(test, iteration_range=(0, rounds)))


@dataclass(frozen=True)
class CatBoost:
    """CatBoost with an objective of its own. Its trees are symmetric and have its default depth of 6.

    Rounds are evaluated after the training, so that all rounds are trained; the rule that selects one is the same.
    """

    name: str
    objective: str
    references: tuple[str, ...] = ("lambdarank",)
    settings: Settings = field(default_factory=lambda: TREES)
    cost: float = 3.0

    def definition(self) -> str:
        """Return the objective."""
        return _definition("catboost", self.objective, None)

    def fit(self, parts: Parts, setting: Setting, seed: int) -> Fit:
        """Train all rounds, then compute the validation scores of each."""
        import catboost  # type: ignore[import-untyped]

        def pool(part: LetorData) -> Any:
            return catboost.Pool(part.features, part.lists.labels, group_id=part.lists.query_of_item)

        model = catboost.CatBoost(
            {
                "loss_function": self.objective, "iterations": setting.rounds, "learning_rate": setting.learning_rate,
                "rsm": FEATURE_FRACTION, "random_seed": seed,
                "thread_count": 1, "allow_writing_files": False, "logging_level": "Silent",
            }
        )  # fmt: skip
        model.fit(pool(parts.train))
        validation, ndcg = pool(parts.validation), FastNDCG(parts.validation.lists)
        curve = [ndcg.mean(scores) for scores in model.staged_predict(validation, thread_count=1)]
        return Fit(curve, lambda rounds: model.predict(pool(parts.test), ntree_end=rounds, thread_count=1))


def _objective(library: str, objective: str | Ours, seed: int) -> str | Callable[..., Any]:
    return objective if isinstance(objective, str) else objective.make(library, seed)


def _definition(library: str, objective: str | Ours, weights: dict[str, Any] | None) -> str:
    shown = objective if isinstance(objective, str) else repr(objective.make(library, seed=0))
    return f"{library} {shown}" + ("" if weights is None else f" weights {weights}")


def _weights(data: LetorData, options: dict[str, Any] | None, per: str) -> NDArray[np.float64] | None:
    """Return weights by difficulty with the defaults of the package but for ``options``."""
    if options is None:
        return None
    from rankbound.difficulty import difficulty_weights

    lists = data.lists
    return difficulty_weights(lists.labels, lists.query_of_item, per=per, **{"measure": WEIGHT_MEASURE, **options})
