"""The base class of losses that can be averaged over noisy scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import check_finite
from rankbound.errors import ArgumentError
from rankbound.losses.base import KernelResult, RankingLoss
from rankbound.losses.lazy_torch import torch
from rankbound.losses.noise import check_seed, generator_for, gumbel_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.buckets import Layout
    from rankbound.losses.plans import Plan

__all__ = ["StochasticLoss", "not_negative", "whole_and_positive"]


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

    def _run_bounded(
        self, scores: NDArray[Any], plan: Plan, with_hessian: bool = False
    ) -> tuple[KernelResult, NDArray[np.float64], NDArray[Any]]:
        if self.noise == 0:
            return super()._run_bounded(scores, plan, with_hessian)
        check_finite("scores", scores)
        generator = generator_for(self.seed, scores, plan.offsets)
        values, losses = np.zeros(len(plan.rows)), np.zeros(len(plan.rows))
        gradient = np.zeros_like(scores)
        hessian = np.zeros_like(scores) if with_hessian else scores[:0].copy()
        for _ in range(self.draws):
            result, drawn, slopes = super()._run_bounded(self._noisy(scores, generator), plan, with_hessian)
            values += result.values / self.draws
            losses += drawn / self.draws
            slopes = slopes / self.draws
            gradient += result.gradient * plan.per_item(slopes)
            if with_hessian:
                hessian += result.hessian * plan.per_item(np.abs(slopes))
        return KernelResult(values, gradient, hessian), losses, np.ones(len(plan.rows), scores.dtype)

    def _vectorized_losses(self, scores: Any, layout: Layout, with_gradient: bool) -> tuple[Any, Any]:
        if self.noise == 0:
            return super()._vectorized_losses(scores, layout, with_gradient)
        from rankbound.losses.device_noise import noise_for  # needs torch

        noise, losses, gradient = noise_for(self.seed, scores, layout), 0.0, None
        for _ in range(self.draws):
            drawn, slopes = super()._vectorized_losses(scores + self.noise * noise.gumbel(), layout, with_gradient)
            losses = losses + drawn / self.draws
            if slopes is not None:
                gradient = slopes / self.draws if gradient is None else gradient + slopes / self.draws
        return losses, gradient

    def reference(self, scores: Any, plan: Plan) -> Any:
        """Compute the loss per query in torch operations, with the same noise as the kernel."""
        if self.noise == 0:
            return super().reference(scores, plan)
        plain = scores.detach().cpu().numpy()
        generator, total = generator_for(self.seed, plain, plan.offsets), 0.0
        for _ in range(self.draws):
            noise = torch.from_numpy(self._noisy(np.zeros_like(plain), generator)).to(scores.device)
            total = total + super().reference(scores + noise, plan)
        return total / self.draws

    def _noisy(self, scores: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
        with np.errstate(over="ignore"):  # an infinite score raises DataError later
            noisy: NDArray[Any] = scores + scores.dtype.type(self.noise) * gumbel_noise(generator, scores)
        return noisy


def not_negative(name: str, value: float) -> None:
    """Raise ArgumentError unless a parameter is a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ArgumentError(f"{name} must be a number of at least 0, got {value!r}")


def whole_and_positive(name: str, value: int) -> None:
    """Raise ArgumentError unless a parameter is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, got {value!r}")
