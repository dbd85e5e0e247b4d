"""Run every kernel on small lists and print values and gradients as JSON. Called by test_interpreted.py.

The first argument is the type of the scores, float32 or float64. With a second one, "reference", the program prints
what torch computes for the losses, without any kernel and without hessians.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import torch

import rankbound.measures
from rankbound.losses import get_loss, long_lists, loss_names, set_threads
from rankbound.models import MatrixFactorization

SIZES = (1, 2, 5, 33, 70)


def losses():
    for name in loss_names(3):
        yield name, get_loss(name)
    for name in ("nDCG", "AP", "RR", "ERR", "nRBP(p=0.8)", "Tau"):
        for sigmoid in ("tanh", "arctan", "erf", "relu"):
            yield f"{name} by {sigmoid}", get_loss(name, sigmoid=sigmoid)
    for name in ("nDCG@3", "AP@3", "lambda-nDCG@3", "lambda-AP@3"):
        yield name, get_loss(name)
    for name in ("nDCG", "nDCG@3", "AP", "RR", "Tau"):
        yield f"{name}, noisy", get_loss(f"noisy-lambda-{name}", truncation=4, bounding="log-distribution")
        yield f"{name}, lightgbm", get_loss(f"lambda-{name}", truncation=4, normalization="lightgbm")
    for name, loss in own_measures():
        yield name, loss
    yield "AP of ranks", get_loss("AP", form="ranks")
    yield "RR of ranks", get_loss("RR", form="ranks")
    yield "RR@3 of ranks", get_loss("RR@3", form="ranks")
    yield "DirectRanker by tanh", get_loss("DirectRanker", cost="tanh")


def own_measures():
    """Losses of measures that a user defines: a discount that is not compiled, certain stops, weighted pairs."""
    rankbound.measures.additive("Own", gain=lambda label: label, discount=lambda rank: 1 / (1 + rank))
    rankbound.measures.cascade("OwnCascade", stop=lambda label: label / (1 + label), discount=lambda rank: rank**-0.5)
    rankbound.measures.cascade("OwnStop", stop=lambda label: np.minimum(label / 2, 1))
    rankbound.measures.pairwise("OwnPairs", weight=lambda high, low: high - low)
    for name in ("Own", "Own@3", "OwnCascade", "OwnStop", "OwnPairs"):
        yield name, get_loss(name)
        yield f"lambda-{name}", get_loss(f"lambda-{name}")


def batch(dtype, spread):
    rng = np.random.default_rng(0)
    offsets = np.concatenate(([0], np.cumsum(SIZES)))
    labels = rng.integers(0, 3, offsets[-1])
    labels[:1] = 1
    return (spread * rng.normal(size=offsets[-1])).astype(dtype), labels, offsets


def results(dtype):
    for name, loss in losses():
        for spread in (1.0, 200.0):  # the second is too wide for exponentials of the scores
            scores, labels, offsets = batch(dtype, spread)
            for with_hessian in (False, True):  # without a hessian other code paths run
                result = loss.value_and_gradient(scores, loss.plan(labels, offsets), with_hessian=with_hessian)
                case = f"{name}, {spread}, {with_hessian}"
                yield case, result.values, result.gradient, result.hessian if with_hessian else []
    scores, labels, offsets = batch(np.float64, 3.0)
    long_lists.LONG = 1
    for name in ("nDCG", "AP", "nRBP", "nRBP(p=0.8)", "Own"):
        loss = get_loss(name)
        result = loss.value_and_gradient(scores, loss.plan(labels, offsets))
        yield f"{name} by series", result.values, result.gradient
    long_lists.LONG = 2**62
    for optimizer in ("sgd", "adam"):
        for loss in ("nDCG", "lambda-nDCG", "nRBP"):
            model = MatrixFactorization(4, loss, optimizer=optimizer, epochs=2, random_state=0)
            users, items = np.divmod(np.arange(24), 6)
            model.fit(users, items, np.arange(24) % 5 % 2)
            yield f"factors, {loss}, {optimizer}", model.user_vectors_, model.item_vectors_
    users, items = np.repeat(np.arange(6), 40), (7 * np.arange(240)) % 90  # long enough for series
    for loss, negatives, candidates in (("nDCG", "all", 1), ("AP", 1, 1), ("nRBP", 5, 1), ("softmax", 1, 3)):
        model = MatrixFactorization(
            4, loss, epochs=2, init=1.0, negatives=negatives, negative_candidates=candidates, temperature=0.5
        )
        model.fit((users, items))
        yield f"factors from interactions, {loss}", model.user_vectors_, model.item_vectors_


def references(dtype):
    """Values and gradients of the cases above that have a reference, under the same names."""
    for name, loss in losses():
        for spread in (1.0, 200.0):
            values = of_reference(loss, *batch(dtype, spread))
            for with_hessian in (False, True):
                yield f"{name}, {spread}, {with_hessian}", *values
    for name in ("nDCG", "AP", "nRBP", "nRBP(p=0.8)", "Own"):
        yield f"{name} by series", *of_reference(get_loss(name), *batch(np.float64, 3.0))


def of_reference(loss, scores, labels, offsets):
    leaf = torch.tensor(scores, requires_grad=True)
    values = loss.reference(leaf, loss.plan(labels, offsets))
    values.sum().backward()
    return values.detach().numpy(), leaf.grad.numpy()


if __name__ == "__main__":
    set_threads(1)
    torch.set_num_threads(1)
    found = (references if "reference" in sys.argv else results)(np.dtype(sys.argv[1]))
    json.dump({name: [np.ravel(array).tolist() for array in arrays] for name, *arrays in found}, sys.stdout)
