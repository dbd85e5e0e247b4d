"""Options of matrix factorization, in groups that travel together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.models.options import OptionGroup
from rankbound.models.parameters import check_choice, check_count, check_flag, check_in_range, check_number


@dataclass(frozen=True)
class Optimizer(OptionGroup):
    """How the steps of a training are made.

    Parameters
    ----------
    method:
        ``"adam"`` or ``"sgd"``. A step changes only vectors (and moments) of users and items in its batch.
    l2:
        Strength of regularization: a step multiplies the vectors that it changes by 1 - learning_rate * l2, apart from
        the gradient, so that l2 depends neither on the scale of the loss nor on the size of batches.
    schedule:
        The learning rate is ``"constant"``, or it falls from ``learning_rate`` towards 0 along half a ``"cosine"`` over
        the epochs. With the second, vectors settle, so that the last epoch is about as good as the best one, and a
        training on more data needs no held-out data to select an epoch. A checkpoint then requires the same ``epochs``;
        `MatrixFactorization.partial_fit` begins the schedule anew.
    reduction:
        ``"sum"`` of the loss over the users of a batch, as in the papers, or their ``"mean"``.
    activity_exponent:
        The loss of a user with n interactions is weighted by (n / mean of n) to this power. 0 weights all users
        equally, 1 all interactions. With 0.5 the vectors of items learn more from users with many interactions.

    >>> Optimizer("sgd", l2=0.1)
    Optimizer(method='sgd', l2=0.1, schedule='constant', reduction='sum', activity_exponent=0.0)
    """

    method: str = "adam"
    l2: float = 0.0
    schedule: str = "constant"
    reduction: str = "sum"
    activity_exponent: float = 0.0
    _main: ClassVar[str | None] = "method"
    _names: ClassVar[Mapping[str, str]] = {"method": "optimizer"}

    def __post_init__(self) -> None:
        check_choice("optimizer", self.method, ("adam", "sgd"))
        check_number("l2", self.l2, zero=True)
        check_choice("schedule", self.schedule, ("constant", "cosine"))
        check_choice("reduction", self.reduction, ("sum", "mean"))
        check_number("activity_exponent", abs(self.activity_exponent), zero=True)
        check_in_range("activity_exponent", self.activity_exponent, 0, 10)


@dataclass(frozen=True)
class Negatives(OptionGroup):
    """The other items in a user's list, if the training data are interactions.

    Parameters
    ----------
    count:
        ``"all"`` other items of the catalog, or a number of them for each positive item, drawn anew in every epoch. A
        user with fewer other items gets all of them; ``notes_`` says how many users that are.
    candidates:
        Draw so many items for each negative and use the one with the highest score (hard negatives). 1: any.
    sampling:
        Draw negatives ``"uniform"`` or in proportion to their ``"popularity"``. With the softmax loss, the scores of
        drawn negatives are corrected by -log of their expected number (logQ correction), so that the loss estimates
        that of the whole catalog.

    >>> Negatives(5, candidates=3)
    Negatives(count=5, candidates=3, sampling='uniform')
    """

    count: int | float | str = "all"
    candidates: int = 1
    sampling: str = "uniform"
    _main: ClassVar[str | None] = "count"
    _names: ClassVar[Mapping[str, str]] = {"count": "negatives", "candidates": "negative_candidates"}

    def __post_init__(self) -> None:
        is_number = isinstance(self.count, (int, float, np.number)) and not isinstance(self.count, bool)
        if self.count != "all" and not (is_number and 0 < float(self.count) < np.inf):
            raise ArgumentError(f"negatives must be 'all' or a positive number, got {self.count!r}")
        check_count("negative_candidates", self.candidates)
        check_choice("sampling", self.sampling, ("uniform", "popularity"))

    @property
    def ratio(self) -> float | None:
        """The number of negatives for each positive; None for all."""
        return None if self.count == "all" else float(self.count)


@dataclass(frozen=True)
class VectorModel(OptionGroup):
    """What the vectors of users and items are made of, and how they give a score.

    Parameters
    ----------
    user_model:
        A user is represented by an own vector (``"vectors"``), by the sum of the vectors of the items in the user's
        ``"history"`` (a second vector per item), or by the sum of ``"both"``.
    dropout:
        Fraction of the history that is left out at random in each step.
    similarity:
        The score is the ``"cosine"`` / temperature or the ``"dot"`` product of the vectors. None means the cosine for
        interactions and the dot product for lists with labels.
    temperature:
        None means 0.2. With the cosine it is the most important parameter to tune: 0.1 to 0.35, higher values for less
        data.
    biases:
        Add a bias for each item. (A bias of a user changes no ranking.)
    init:
        Initial vectors are uniform in [-init, init].
    warm_start:
        Begin with the vectors of the previous fit for the ids that it knew.

    >>> VectorModel("history", biases=True).temperature is None
    True
    """

    user_model: str = "vectors"
    dropout: float = 0.5
    similarity: str | None = None
    temperature: float | None = None
    biases: bool = False
    init: float = 0.01
    warm_start: bool = False

    def __post_init__(self) -> None:
        check_choice("user_model", self.user_model, ("vectors", "history", "both"))
        if not isinstance(self.dropout, (int, float, np.number)) or not 0 <= self.dropout < 1:
            raise ArgumentError(f"dropout must be from 0 to below 1, got {self.dropout!r}")
        if self.similarity is not None:
            check_choice("similarity", self.similarity, ("cosine", "dot"))
        if self.temperature is not None:
            check_number("temperature", abs(self.temperature), zero=True)
            check_in_range("temperature", self.temperature, 0, 1e6, open_low=True)
        check_flag("biases", self.biases)
        check_number("init", self.init)
        check_flag("warm_start", self.warm_start)


class Settings(NamedTuple):
    """The parameters of `MatrixFactorization` that steps depend on; see there."""

    factors: int
    epochs: int
    learning_rate: float
    batch_size: int | None
    seed: int
    optimizer: Optimizer
    negatives: Negatives
    vectors: VectorModel

    @property
    def is_cosine(self) -> bool:
        """Whether vectors are divided by their norms."""
        return self.vectors.similarity == "cosine"

    @property
    def temperature(self) -> np.float32:
        """The number by which the cosine is divided."""
        return np.float32(self.vectors.temperature)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 1."""
        if self.optimizer.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * (epoch - 1) / self.epochs)) / 2

    def random(self, *stream: int) -> np.random.Generator:
        """Return a separate generator for each use, epoch and batch, so that a resumed fit draws the same numbers."""
        return np.random.default_rng([self.seed, *stream])
