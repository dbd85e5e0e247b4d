"""Every kind of loss, and a small batch: for tests that go through all of them."""

from __future__ import annotations

import numpy as np

import rankbound.measures
from rankbound.losses import get_loss, loss_names

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
