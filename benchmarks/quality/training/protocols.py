"""How settings and rounds are chosen: the same for every method, so that all have the same tuning budget.

============  ======================================================================================================
protocol      what is trained
============  ======================================================================================================
tuned         two settings, each for up to 300 rounds; the round of each setting and the setting are those with the
              best nDCG@10 of the validation queries; a training ends when 50 rounds bring no improvement
equal rounds  one setting for exactly 100 rounds; nothing is selected
============  ======================================================================================================

Trees have 31 leaves and try the learning rates 0.05 and 0.1; networks try two learning rates, and their rounds are
epochs (up to 100, patience 20). Everything else is the default of the library, except that a tree sees 90 % of
the features, drawn at random: without it some libraries would give the same model for every seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.training.sets import Parts

__all__ = [
    "NETWORKS",
    "PROTOCOLS",
    "TREES",
    "Fit",
    "Method",
    "Outcome",
    "Setting",
    "limited",
    "outcome_of",
    "selected_round",
]

PROTOCOLS = ("tuned", "equal rounds")


@dataclass(frozen=True)
class Setting:
    """One training: learning rate, leaves of a tree (None for networks), most rounds, and rounds without improvement.

    Without ``patience`` exactly ``rounds`` rounds are trained.
    """

    learning_rate: float
    leaves: int | None
    rounds: int
    patience: int | None


Settings = dict[str, tuple[Setting, ...]]
TREES: Settings = {
    "tuned": tuple(Setting(rate, 31, 300, 50) for rate in (0.05, 0.1)),
    "equal rounds": (Setting(0.1, 31, 100, None),),
}
NETWORKS: Settings = {
    "tuned": tuple(Setting(rate, None, 100, 20) for rate in (1e-3, 3e-3)),
    "equal rounds": (Setting(1e-3, None, 100, None),),
}


def limited(settings: Sequence[Setting], rounds: int | None) -> tuple[Setting, ...]:
    """Return the settings with at most so many rounds, for trials of the program itself; None changes nothing."""
    if rounds is None:
        return tuple(settings)
    return tuple(replace(setting, rounds=min(rounds, setting.rounds)) for setting in settings)


class Fit(NamedTuple):
    """A training: the mean nDCG@10 of the validation queries after each round, and test scores after n rounds."""

    curve: list[float]
    test_scores: Callable[[int], NDArray[Any]]


class Method(Protocol):
    """A method of training."""

    @property
    def name(self) -> str:
        """Return the name by which the method is chosen and stored."""

    @property
    def references(self) -> tuple[str, ...]:
        """Return the names of the methods that it is compared with."""

    @property
    def settings(self) -> Settings:
        """Return the settings of each protocol."""

    @property
    def cost(self) -> float:
        """Return the time of a round, relative to one of LightGBM; the time left is estimated by it."""

    def definition(self) -> str:
        """Return what tells the method from others, to recognize records of an earlier definition."""

    def fit(self, parts: Parts, setting: Setting, seed: int) -> Fit:
        """Train on the training part and follow the validation part."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """Test scores of the selected setting and round, with the validation value that selected them."""

    setting: Setting
    round: int
    validation: float
    test_scores: NDArray[Any]


def selected_round(curve: Sequence[float], patience: int | None) -> int:
    """Return the first best round, counted from 1, before ``patience`` rounds bring nothing; without it the last one.

    >>> selected_round([0.1, 0.3, 0.2, 0.2, 0.9], patience=2), selected_round([0.3, 0.2], None)
    (2, 2)
    """
    if patience is None:
        return len(curve)
    best = 0
    for index, value in enumerate(curve):
        if value > curve[best]:
            best = index
        elif index - best >= patience:
            break
    return best + 1


def outcome_of(method: Method, parts: Parts, settings: Sequence[Setting], seed: int) -> Outcome:
    """Train a method with every setting, and return the one that ranks the validation queries best."""
    best: Outcome | None = None
    for setting in settings:
        fit = method.fit(parts, setting, seed)
        chosen = selected_round(fit.curve, setting.patience)
        value = fit.curve[chosen - 1]
        if best is None or value > best.validation:
            best = Outcome(setting, chosen, value, np.asarray(fit.test_scores(chosen)))
    assert best is not None
    return best
