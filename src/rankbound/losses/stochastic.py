"""The base class of losses that can be averaged over noisy scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rankbound.arrays import check_finite
from rankbound.errors import ArgumentError
from rankbound.losses.base import Evaluated, RankingLoss
from rankbound.losses.noise import check_seed, generator_for, gumbel_noise, noise_for

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rankbound.losses.padded import Layout
    from rankbound.losses.plans import Plan


@dataclass(frozen=True, kw_only=True)
class StochasticLoss(RankingLoss):
    """A loss whose scores can carry Gumbel noise.

    Parameters
    ----------
    noise:
        With 0, the default, the loss is that of the scores. With more, it is the mean over ``draws`` draws of the loss
        at scores + noise * Gumbel(0, 1), whose order is a sample of the Plackett-Luce model of scores / noise.
    draws:
        Number of draws per call. One is enough where a training visits every query many times.
    seed:
        Seed of the draws. They are a function of the seed, the scores and the offsets (see `rankbound.losses.noise`).

    Source: Bruch et al., A stochastic treatment of learning to rank scoring functions. Boundings apply to each draw,
    before the mean. The gradient is that of the mean with the noise held fixed, and so is the hessian.
    """

    noise: float = 0.0
    draws: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        not_negative("noise", self.noise)
        whole_and_positive("draws", self.draws)
        check_seed(self.seed)
        super().__post_init__()

    @cached_property
    def _without_noise(self) -> Self:
        """The loss of the scores themselves."""
        return replace(self, noise=0.0)

    def _run_bounded(self, scores: NDArray[Any], plan: Plan, with_hessian: bool, scale: float) -> Evaluated:
        if self.noise == 0:
            return super()._run_bounded(scores, plan, with_hessian, scale)
        generator, parts = generator_for(self.seed, scores, plan.offsets), []
        for _ in range(self.draws):
            with np.errstate(over="ignore"):
                noisy = scores + scores.dtype.type(self.noise) * gumbel_noise(generator, scores)
            check_finite("scores", noisy)
            parts.append(self._without_noise._run_bounded(noisy, plan, with_hessian, scale / self.draws))
        losses, gradient, hessian = (sum(part[1:], part[0]) for part in zip(*parts, strict=True))
        return Evaluated(losses / self.draws, gradient, hessian)

    def _by_formula(
        self, scores: Tensor, layout: Layout, with_gradient: bool, with_hessian: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if self.noise == 0:
            return super()._by_formula(scores, layout, with_gradient, with_hessian)
        noise, parts = noise_for(self.seed, scores, layout), []
        for _ in range(self.draws):
            noisy = scores + self.noise * noise.gumbel()
            parts.append(self._without_noise._by_formula(noisy, layout, with_gradient, with_hessian))
        losses, gradient, hessian = (
            None if part[0] is None else sum(part[1:], part[0]) / self.draws for part in zip(*parts, strict=True)
        )
        assert losses is not None
        return losses, gradient, hessian


def not_negative(name: str, value: float) -> None:
    """Raise ArgumentError unless a parameter is a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ArgumentError(f"{name} must be a number of at least 0, got {value!r}")


def whole_and_positive(name: str, value: int) -> None:
    """Raise ArgumentError unless a parameter is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, got {value!r}")
