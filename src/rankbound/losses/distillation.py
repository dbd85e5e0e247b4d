"""Distillation: a student learns from the scores of a teacher, as soft labels, in place of relevance labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import ArgumentError
from rankbound.losses.base import KernelResult, RankingLoss
from rankbound.losses.compiling import threads_for
from rankbound.losses.distillation_kernel import soft_pair_pass
from rankbound.losses.lazy_torch import torch
from rankbound.losses.softmax import (
    check_temperature,
    cross_entropy,
    per_query,
    run_softmax,
    unsorted_plan,
    vectorized_softmax,
)
from rankbound.losses.workers import run_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.buckets import Layout, Result
    from rankbound.losses.plans import Plan

__all__ = ["DistillationLoss"]

_MOST_SCORE = 1e30  # of a teacher: differences and quotients of scores stay far from overflow


@dataclass(frozen=True)
class DistillationLoss(RankingLoss):
    """Cross entropy between what a teacher's scores t, passed as ``labels``, and the student's scores f say of a list.

    Parameters
    ----------
    kind:
        "listwise": -sum_i softmax(t / teacher_temperature)_i log softmax(f / temperature)_i. "pairwise": the mean over
        all pairs of the binary cross entropy of σ((f_i - f_j) / temperature) and the target
        σ((t_i - t_j) / teacher_temperature).
    temperature:
        Divides the scores of the student. A higher temperature makes the student attend more to the items that the
        teacher ranks low.
    teacher_temperature:
        Divides the scores of the teacher; None for the temperature of the student.

    Source: Hinton, Vinyals & Dean, Distilling the knowledge in a neural network; Reddi et al., RankDistil: knowledge
    distillation for ranking. The listwise kind is the Kullback-Leibler divergence from the teacher plus the teacher's
    entropy, which is constant. Both kinds are smallest, with a gradient of 0, where f and t differ by a constant (with
    equal temperatures). Gradients shrink with 1/temperature²; Hinton et al. multiply the loss by temperature² where it
    is added to another.

    The teacher's scores are any finite numbers, negative ones included, and no label is cut off at 0. Every query with
    at least two items is informative, even if its teacher's scores are equal: these pull the student's scores together.
    The hessians are p_i (1 - p_i) / temperature² with p the softmax of the student, and the mean over pairs of
    σ (1 - σ) / temperature².

    >>> import torch
    >>> teacher, student = [2.5, -1.0, 0.3], torch.tensor([2.5, -1.0, 0.3], requires_grad=True)
    >>> DistillationLoss("pairwise")(student, teacher, [0, 3]).backward()
    >>> bool(student.grad.abs().max() < 1e-6)
    True
    """

    kind: str = "listwise"
    temperature: float = field(default=1.0, kw_only=True)
    teacher_temperature: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in ("listwise", "pairwise"):
            raise ArgumentError(f"kind must be 'listwise' or 'pairwise', got {self.kind!r}")
        check_temperature("temperature", self.temperature)
        if self.teacher_temperature is not None:
            check_temperature("teacher_temperature", self.teacher_temperature)
        super().__post_init__()

    @property
    def _softening(self) -> float:
        return self.temperature if self.teacher_temperature is None else self.teacher_temperature

    def _checked_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        return floats("labels", labels, most=_MOST_SCORE)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = unsorted_plan(labels, offsets, np.diff(offsets) > 1)
        highest = plan.per_item(per_query(np.maximum, labels, offsets))
        if self.kind == "listwise":
            probabilities = np.exp((labels - highest) / self._softening)
            plan.weights = probabilities / plan.per_item(per_query(np.add, probabilities, offsets))
        else:
            lowest = plan.per_item(per_query(np.minimum, labels, offsets))
            plan.weights = (labels - (lowest + highest) / 2) / self._softening
        return plan

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        if self.kind == "listwise":
            return run_softmax(scores, plan.weights, plan, self.temperature)
        exact = scores.astype(np.float64)
        values, gradient, hessian = np.zeros(len(plan.rows)), np.zeros_like(exact), np.zeros_like(exact)
        run_blocks(
            soft_pair_pass, plan.blocks(threads_for(plan.pairs)), exact, plan.offsets, plan.weights, plan.rows > 0,
            1 / self.temperature, with_hessian, values, gradient, hessian,
        )  # fmt: skip
        return KernelResult(values, gradient.astype(scores.dtype), hessian.astype(scores.dtype))

    @property
    def _by_pairs(self) -> bool:  # type: ignore[override]
        return self.kind == "pairwise"

    @property
    def _tables(self) -> float:  # type: ignore[override]
        return 6.0 if self.kind == "pairwise" else 20.0

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:
        if self.kind == "listwise":
            return vectorized_softmax(scores, layout, self.temperature)
        from rankbound.losses.vector_pairs import run_soft_pairs  # needs torch

        table, scale = layout.with_padding(scores), 1 / self.temperature
        return layout.run(
            lambda bucket, memory: run_soft_pairs(bucket, table[bucket.items], scale, with_gradient, memory)
        )

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        teacher = torch.as_tensor(labels, dtype=torch.float64, device=scores.device) / self._softening
        if self.kind == "listwise":
            return cross_entropy(scores, torch.softmax(teacher, 0).cpu().numpy(), self.temperature), 0.0
        i, j = torch.triu_indices(len(labels), len(labels), 1)
        target = torch.sigmoid(teacher[i] - teacher[j]).to(scores.dtype)
        return torch.nn.functional.binary_cross_entropy_with_logits(
            (scores[i] - scores[j]) / self.temperature, target
        ), 0.0
