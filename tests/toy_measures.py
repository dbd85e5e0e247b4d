"""Three measures of a user, one for each structure, with the oracles that the tests of the catalog compare them with.

Everything that is said about them stands in this file; every test of the whole catalog then covers them.
"""

from __future__ import annotations

import math

import numpy as np

import rankbound as rb
from rankbound.testing import oracles


def register() -> None:
    rb.measures.additive("ToyDCG", gain=np.sqrt, discount=lambda rank: 1 / (rank + 1) ** 0.7, replace=True)
    rb.measures.cascade(
        "ToyCascade", stop=lambda label: label / (label + 1), discount=lambda rank: 0.9**rank, replace=True
    )
    rb.measures.pairwise("ToyPairs", weight=lambda high, low: high - low, replace=True)
    oracles.add("ToyDCG", toy_dcg)
    oracles.add("ToyCascade", toy_cascade)
    oracles.add("ToyPairs", toy_pairs)


def toy_sum(labels, seen):
    return sum(math.sqrt(label) / (i + 2) ** 0.7 for i, label in enumerate(labels[:seen]))


def toy_dcg(measure, labels, depth):
    seen = measure.cutoff or len(labels)
    best = toy_sum(sorted(labels, reverse=True), seen)
    return toy_sum(labels, min(seen, depth)) / best if best else 0.0


def toy_cascade(measure, labels, depth):
    reading, total = 1.0, 0.0
    for i, label in enumerate(labels[: min(depth, measure.cutoff or len(labels))]):
        stop = label / (label + 1)
        total += reading * stop * 0.9 ** (i + 1)
        reading *= 1 - stop
    return total


def toy_pairs(measure, labels, depth):
    right = everything = 0.0
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            weight = abs(labels[i] - labels[j])
            everything += weight
            right += weight * (0.5 if i >= depth else labels[i] > labels[j])
    return right / everything if everything else 0.0
