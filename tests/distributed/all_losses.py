"""Every loss with every bounding, of one process and of one of two processes."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from rankbound.losses import LOSS_BOUNDINGS, LambdaRankLoss, SoftmaxLoss, XENDCGLoss
from rankbound.losses.device_settings import vectorized
from tests.losses.test_properties import CASES, NOISY, under

STOCHASTIC = [
    *NOISY,
    (XENDCGLoss, {}),
    (SoftmaxLoss, {"noise": 0.5, "draws": 2}),
    (LambdaRankLoss, {"measure": "nDCG", "noise": 2.0, "truncation": 30, "normalization": "sqrt"}),
]


def batch(seed):
    """Lists with ties and negative labels; some of them are not informative: a single item, all labels equal."""
    rng = np.random.default_rng(seed)
    sizes = np.array([3, 1, 6, 4, 2, 5])
    labels = np.concatenate([rng.integers(-1, 3, n) for n in sizes])
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    labels[offsets[3] : offsets[4]] = 1
    labels[offsets[2] : offsets[2] + 2] = 0, 2  # one that is informative whatever was drawn
    return rng.normal(size=(offsets[-1], 3)), labels, offsets, rng.uniform(0.5, 2, len(sizes))


def linear(process_group=None):
    model = torch.nn.Linear(3, 1, dtype=torch.float64)
    with torch.no_grad():
        model.weight[:] = torch.tensor([[0.7, -0.4, 0.2]])
        model.bias[:] = 0.1
    return model if process_group is None else DistributedDataParallel(model, process_group=process_group)


def step(model, criterion, features, labels, offsets, weights):
    model.zero_grad()
    value = criterion(model(torch.from_numpy(features)).ravel(), labels, offsets, weights=weights)
    value.backward()
    return np.concatenate([[value.item()], *(p.grad.numpy().ravel() for p in model.parameters())])


def values_and_gradients(group=None):
    """Value and gradients of all losses under all boundings; of one process if there is no group."""
    model = linear(None if group is None else group.group)
    found = {}
    for number, (cls, options) in enumerate([*CASES, *STOCHASTIC]):
        features, labels, offsets, weights = batch(number)
        for index, loss in enumerate(under(cls, options, LOSS_BOUNDINGS, ("mean", "sum")[number % 2])):
            cut = (0, 1, 3, 6)[(number + index) % 4]  # lists of the first process: none, one, half, all
            chosen = range(len(offsets) - 1)
            if group is not None:
                chosen = chosen[:cut] if group.rank == 0 else chosen[cut:]
            rows = slice(offsets[chosen.start], offsets[chosen.stop])
            own_offsets = offsets[chosen.start : chosen.stop + 1] - offsets[chosen.start]
            own_weights = None if number % 3 else weights[chosen.start : chosen.stop]
            for path in (nullcontext, vectorized) if index == 0 else (nullcontext,):
                with path():
                    criterion = loss if group is None else loss.as_module(group.group)
                    values = step(model, criterion, features[rows], labels[rows], own_offsets, own_weights)
                found[f"{number} {loss} cut at {cut} {path.__name__}"] = values.tolist()
    return found
