"""How many functions of the package a loss runs: short paths are quick for small lists, and for readers."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from rankbound.kernels import active
from rankbound.losses import NDCGLoss
from tests.calls import calls_of


@pytest.mark.skipif(active() == "none", reason="the path with kernels")
def test_a_bounded_loss_takes_a_short_path():
    scores, labels, offsets = torch.arange(6.0, requires_grad=True), torch.tensor([1, 0, 2, 0, 0, 1]), [0, 3, 6]

    def make_loss():
        return NDCGLoss(bounding="min-max")

    def call_and_differentiate():
        loss(scores, labels, offsets).backward()

    loss = make_loss()
    call_and_differentiate()  # makes the plan of these labels, which a training on the same lists uses from then on
    calls = {*calls_of(make_loss), *calls_of(call_and_differentiate)}
    assert len(calls) <= 45, sorted(calls)
    assert len({module for module, _ in calls}) <= 10, sorted({module for module, _ in calls})
    assert ("/losses/smooth.py", "_run_bounded") in calls  # what is counted is the path of the losses
