"""Blend: several recommenders as one, whose scores are weighted sums of the standardized scores of its models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.packages import needed_by

with needed_by("rankbound.models"):
    from sklearn.base import clone

from rankbound import models as public_models
from rankbound.errors import ArgumentError, DataError
from rankbound.models.base import FittedState, seed_of
from rankbound.models.parameters import check_in_range
from rankbound.models.recommenders.base import Recommender
from rankbound.models.recommenders.full_ranking import evaluate_variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.data.interactions import Interactions
    from rankbound.measures.measure import Measure

_MOST_WEIGHTS = 10_000  # settings of weights that are compared on an eval_set


@dataclass(eq=False, repr=False)
class Blend(Recommender):
    """Several recommenders as one: the score of an item is the weighted sum of its standardized scores.

    Every model learns from the same interactions. The scores of a model for a user are standardized to mean 0 and
    standard deviation 1 over the candidates: the items with training interactions, without those of the user. So each
    model has an influence according to its weight, whatever the scale of its scores is for this user. Weights are
    divided by their sum. Models of weight 0 are not computed, and a single model of weight above 0 keeps its scores.

    With an ``eval_set`` and without ``weights``, those weights are selected that have the highest mean of ``measure``
    on it. They are compared in one pass over the users, without a further fit; the weights of each single model are
    among them, so that ``eval_score_`` is at least that of every model.

    Sources: Fox & Shaw 1994, "Combination of Multiple Searches", for sums of scores (CombSUM); Vogt & Cottrell 1999,
    "Fusion Via a Linear Combination of Scores", for weights; Montague & Aslam 2001, "Relevance Score Normalization for
    Metasearch", for the standardization. Reciprocal rank fusion (Cormack, Clarke & Büttcher 2009) needs no common
    scale, but discards by how much a model prefers an item, and needs the rank of every item.

    Parameters
    ----------
    models:
        Recommenders, which are cloned before they are fitted, or names such as ``"EASE"`` for models with default
        parameters and the ``measure`` of the blend.
    weights:
        One number of at least 0 per model, which are kept as they are. None: selected on the ``eval_set``, and equal
        without one.
    weight_steps:
        Weights to select from are multiples of 1 / weight_steps: with 10 steps 11 settings for two models, and 66 for
        three.
    measure:
        The measure that `score` reports, and by which weights are selected.
    random_state:
        Seed of every model that has one; None leaves each model its own.

    Attributes after `fit`: ``models_``, the fitted models, and ``weights_``, their weights, whose sum is 1. The
    ``eval_set`` is passed to the models, too, and `MatrixFactorization` selects its epoch by it. The parameters of
    models are those of the blend for `set_params` and searches: ``EASE__l2``, or ``EASE-1__l2`` for the first of
    several with this class.

    >>> users, items = ["ann", "ann", "bob", "bob", "cid", "dan"], ["tea", "jam", "tea", "jam", "tea", "ink"]
    >>> from rankbound.models import EASE, ItemKNN
    >>> model = Blend([EASE(l2=1), ItemKNN()], weights=[2, 1]).fit((users, items))
    >>> model.recommend("cid", k=1)["item"].to_list()
    ['jam']
    >>> model.set_params(EASE__l2=5.0).models[0]
    EASE(l2=5.0)
    """

    models: Any = ("EASE", "ImplicitALS")
    weights: Any = None
    weight_steps: int = 10
    measure: str | Measure = "nDCG@10"
    random_state: int | None = None

    # ---- parameters --------------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep``, also the models by name and their parameters, as in ``EASE__l2``."""
        params: dict[str, Any] = super().get_params(deep=False)
        for name, index in self._names().items() if deep else ():
            params[name] = self.models[index]
            params |= {f"{name}__{key}": value for key, value in self.models[index].get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the blend, models by name (``EASE=EASE(l2=5)``), and their parameters (``EASE__l2=5``)."""
        if "models" in params:
            self.models = params.pop("models")
        names = self._names()
        replaced = {names[name]: params.pop(name) for name in list(params) if name in names}
        if replaced:
            self.models = [replaced.get(index, model) for index, model in enumerate(self.models)]
        super().set_params(**params)
        return self

    def _names(self) -> dict[str, int]:
        """Return the index of each model that is an object, by its class, with a number if there are several."""
        entries = self.models if isinstance(self.models, (list, tuple)) else ()
        kinds = [(type(model).__name__, index) for index, model in enumerate(entries) if isinstance(model, Recommender)]
        indices: dict[str, list[int]] = {}
        for kind, index in kinds:
            indices.setdefault(kind, []).append(index)
        return {
            kind if len(same) == 1 else f"{kind}-{number}": index
            for kind, same in indices.items()
            for number, index in enumerate(same, 1)
        }

    def _unfitted_models(self) -> list[Recommender]:
        """Return new models, not yet fitted, with the seed of the blend if there is one."""
        if not isinstance(self.models, (list, tuple)) or not self.models:
            raise ArgumentError(f"models must be a list of recommenders or of their names, got {self.models!r}")
        seed = None if self.random_state is None else seed_of(self.random_state)
        unfitted: list[Recommender] = []
        for entry in self.models:
            if isinstance(entry, Recommender):
                model = clone(entry)
            elif isinstance(entry, str) and entry in public_models.RECOMMENDERS:
                model = getattr(public_models, entry)(measure=self.measure)
            else:
                known = ", ".join(public_models.RECOMMENDERS)
                raise ArgumentError(f"models must be recommenders or names of them ({known}), got {entry!r}")
            if seed is not None and "random_state" in model.get_params(deep=False):
                model.set_params(random_state=seed)
            unfitted.append(model)
        return unfitted

    # ---- training ----------------------------------------------------------------------------------------------------

    def _fit_interactions(
        self,
        train: Interactions,
        held_out: Interactions | None,
        weights: NDArray[np.float32] | None,  # noqa: ARG002 - refused by `fit`
    ) -> None:
        check_in_range("weight_steps", self.weight_steps, 1, np.inf)
        models = self._unfitted_models()
        equal = np.full(len(models), 1 / len(models))
        fixed = equal if self.weights is None else _normalize_weights(self.weights, len(models))
        is_selected = self.weights is None and held_out is not None
        grid = simplex_grid(len(models), self.weight_steps) if is_selected else fixed[None]
        self.models_ = tuple(model.fit(train, eval_set=held_out) for model in models)
        self.weights_ = fixed
        if held_out is not None and is_selected:
            evaluations = evaluate_variants(
                lambda users: self._blend_blocks(users, grid), train, held_out, [self.measure]
            )
            values = np.array([evaluation.mean()[str(self.measure)] for evaluation in evaluations])
            best = int(np.argmax(np.nan_to_num(values, nan=-np.inf)))  # the first, most even one, if several are best
            self.weights_, self.eval_score_ = grid[best], float(values[best])

    # ---- scores ------------------------------------------------------------------------------------------------------

    def _score_block(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        return next(self._blend_blocks(users, [self.weights_]))

    def _blend_blocks(
        self, users: NDArray[np.int32], weights: Iterable[NDArray[np.float64]]
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the scores of all items for users with each of several weights [users, items]."""
        settings = np.array(list(weights))
        used = np.flatnonzero(settings.any(axis=0))
        blocks = {index: self.models_[index]._writable_scores(users) for index in used}
        if len(blocks) > 1:
            is_candidate = self._candidate_cells(users)
            moments = {index: _mean_and_deviation(block, is_candidate) for index, block in blocks.items()}
        for chosen in settings:
            indices = np.flatnonzero(chosen)
            if len(indices) == 1:  # without rounding, which could make scores equal that are not
                yield blocks[indices[0]]
                continue
            scores, shift = np.zeros_like(blocks[indices[0]]), np.zeros(len(users))
            for index in indices:
                mean, deviation = moments[index]
                factor = chosen[index] / deviation
                scores += blocks[index] * factor[:, None].astype(np.float32)
                shift += mean * factor
            scores -= shift[:, None].astype(np.float32)
            yield scores

    def _candidate_cells(self, users: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which items have training interactions, but not of the user [users, items]."""
        _, has_training_data = self._has_training_data()
        cells: NDArray[np.bool_] = np.tile(has_training_data, (len(users), 1))
        seen = self._seen_matrix()[users]
        cells[np.repeat(np.arange(len(users)), np.diff(seen.indptr)), seen.indices] = False
        return cells

    # ---- saving ------------------------------------------------------------------------------------------------------

    def _fitted_state(self) -> FittedState:
        arrays: dict[str, NDArray[np.generic]] = {"weights": self.weights_}
        texts: dict[str, str] = {}
        metadata = []
        for number, model in enumerate(self.models_):
            state = model._fitted_state()
            arrays |= {f"{number}.{name}": array for name, array in state.arrays.items()}
            texts |= {f"{number}.{name}": text for name, text in state.texts.items()}
            metadata.append({"eval_score": getattr(model, "eval_score_", None), "metadata": state.metadata})
        return FittedState(arrays, texts, {"models": metadata})

    def _restore_state(self, state: FittedState) -> None:
        models, stored = self._unfitted_models(), state.metadata["models"]
        weights = state.arrays["weights"].copy()
        if weights.dtype != np.float64 or weights.shape != (len(models),) or len(stored) != len(models):
            raise DataError(f"weights must be one float64 for each of {len(models)} models, got {weights.dtype}")
        self.weights_ = _normalize_weights(weights, len(models))
        for number, (model, entry) in enumerate(zip(models, stored, strict=True)):
            prefix = f"{number}."
            arrays = {key.removeprefix(prefix): a for key, a in state.arrays.items() if key.startswith(prefix)}
            texts = {key.removeprefix(prefix): text for key, text in state.texts.items() if key.startswith(prefix)}
            model.user_ids_, model.item_ids_, model.seen_ = self.user_ids_, self.item_ids_, self.seen_
            model._restore_state(FittedState(arrays, texts, entry["metadata"]))
            model.n_features_in_, model.n_queries_ = 2, int((self.seen_.per_user > 0).sum())
            if entry["eval_score"] is not None:
                model.eval_score_ = float(entry["eval_score"])
        self.models_ = tuple(models)


def simplex_grid(count: int, steps: int) -> NDArray[np.float64]:
    """Return all weights of ``count`` models that are multiples of 1 / steps and sum to 1, the most even ones first.

    >>> simplex_grid(2, 4).tolist()
    [[0.5, 0.5], [0.25, 0.75], [0.75, 0.25], [0.0, 1.0], [1.0, 0.0]]
    """
    size = math.comb(steps + count - 1, count - 1)
    if size > _MOST_WEIGHTS:
        raise ArgumentError(
            f"weight_steps must give at most {_MOST_WEIGHTS:,} weights to select from, got {size:,} with "
            f"{steps} steps and {count} models"
        )
    rows = [[steps]]
    for _ in range(count - 1):  # divide what the last model has between it and a further one
        rows = [[*row[:-1], first, row[-1] - first] for row in rows for first in range(row[-1] + 1)]
    grid = np.array(rows)
    return np.asarray(grid[np.argsort((grid**2).sum(axis=1), kind="stable")] / steps)


def _normalize_weights(weights: Any, count: int) -> NDArray[np.float64]:
    """Return the weights divided by their sum; ArgumentError unless there is one of at least 0 for each model."""
    rule = f"weights must be {count} numbers of at least 0, one for each model and not all of them 0"
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{rule}, got {weights!r}") from error
    if values.shape != (count,) or not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise ArgumentError(f"{rule}, got {weights!r}")
    values = values / values.max()  # so that the sum cannot overflow
    return np.asarray(values / math.fsum(values))  # which does not depend on the order of the models


def _mean_and_deviation(
    scores: NDArray[np.float32], is_candidate: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of the scores of each user's candidates; 1 if the deviation is 0."""
    count = np.maximum(np.count_nonzero(is_candidate, axis=1), 1)
    mean = np.add.reduce(scores, axis=1, dtype=np.float64, where=is_candidate) / count
    centered = np.where(is_candidate, scores - mean[:, None].astype(np.float32), np.float32(0))
    deviation = np.sqrt(np.einsum("ij,ij->i", centered, centered, dtype=np.float64) / count)
    return mean, np.where(deviation > 0, deviation, 1.0)
