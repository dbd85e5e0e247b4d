"""Scores of losses: tensors of every kind, the same loss and gradient or an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from .callables import LABELS, LOSSES, OFFSETS, SCORES
from .test_arrays import outcome

CLEAN = torch.tensor(SCORES, dtype=torch.float32)


class _Sub(torch.Tensor):
    """A tensor of another class."""


def last(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    changed = CLEAN.to(dtype, copy=True)
    changed[-1] = value
    return changed


FORMS: dict[str, Callable[[], Any]] = {
    "strided": lambda: torch.repeat_interleave(CLEAN, 2)[::2],
    "column": lambda: torch.stack([CLEAN, CLEAN], dim=1)[:, 1],
    "parameter": lambda: torch.nn.Parameter(CLEAN.clone()),
    "subclass": lambda: CLEAN.clone().as_subclass(_Sub),
    "of read-only memory": lambda: torch.from_numpy(SCORES.astype(np.float32)),
    "negated view": lambda: torch._neg_view(-CLEAN),
    "half": lambda: CLEAN.half(),
    "bfloat16": lambda: CLEAN.bfloat16(),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "array": lambda: SCORES,
    "list": SCORES.tolist,
    "None": lambda: None,
    "NaN": lambda: last(float("nan")),
    "inf": lambda: last(float("inf")),
    "-inf": lambda: last(-float("inf")),
    "half inf": lambda: last(float("inf"), torch.float16),
    "complex": lambda: CLEAN.to(torch.complex64),
    "meta": lambda: CLEAN.to("meta"),
    "sparse": CLEAN.to_sparse,
    "too few": lambda: CLEAN[:-1],
    "0-d": lambda: CLEAN[0],
    "two dimensions": lambda: CLEAN[None],
    "empty": lambda: CLEAN[:0],
}
SOUND: dict[str, Callable[[], Any]] = {
    "-0.0": lambda: last(-0.0),
    "subnormal": lambda: last(1e-45),
    "3e38": lambda: last(3e38),
    "-3e38": lambda: last(-3e38),
    "both ends": lambda: torch.tensor([3e38, -3e38] * 5),
    "1e308": lambda: last(1e308, torch.float64),
    "both ends in float64": lambda: torch.tensor([1e308, -1e308] * 5, dtype=torch.float64),
    "all equal": lambda: torch.ones(10),
    "all subnormal": lambda: torch.full((10,), 1e-45),
    "expanded": lambda: torch.ones(1).expand(10),
    "integers": lambda: torch.arange(10),
    "bytes": lambda: torch.arange(10, dtype=torch.uint8),
    "booleans": lambda: torch.arange(10) % 2 == 0,
}

every_loss = pytest.mark.parametrize("name", LOSSES)


def value_and_gradient(name: str, scores: Any) -> tuple[Any, Any]:
    if not isinstance(scores, torch.Tensor) or not scores.is_floating_point():
        return LOSSES[name](scores, LABELS, OFFSETS), torch.zeros(1)
    scores = scores.detach().requires_grad_()
    value = LOSSES[name](scores, LABELS, OFFSETS)
    (gradient,) = torch.autograd.grad(value, scores)
    return value.detach(), gradient


@every_loss
def test_other_forms_of_the_same_scores_give_the_same_loss(name: str) -> None:
    value, gradient = value_and_gradient(name, CLEAN.clone())
    for form, make in FORMS.items():
        scores = make()
        found, slope = value_and_gradient(name, scores)
        assert torch.equal(found, value), form
        torch.testing.assert_close(slope.float(), gradient, rtol=1e-2, atol=1e-3, msg=form, check_dtype=False)
        assert torch.equal(scores.detach().float(), CLEAN), f"{form} was changed"


@every_loss
def test_what_is_no_score_is_refused(name: str) -> None:
    for kind, make in REFUSED.items():
        assert outcome(lambda make=make: value_and_gradient(name, make()), "scores") is None, f"{kind} was taken"


@every_loss
def test_extreme_scores_give_finite_losses_and_gradients_or_are_refused(name: str) -> None:
    for kind, make in SOUND.items():
        found = outcome(lambda make=make: value_and_gradient(name, make()), "scores must not be so large")
        assert found is not None or "e3" in kind or "both ends" in kind, f"{kind} was refused"
