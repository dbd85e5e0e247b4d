"""Laws of measures against 300,000 sampled orders."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import rankbound as rb
from bench.timing import Row, best_of, row

SAMPLES = 300_000
CASES = [(100, 25, 20.0), (400, 100, 10.0)]  # items, relevant, how many times faster the law has to be
MEASURES = ["nDCG", "AP", "RBP"]
_CHUNK = 8_192


def weights(measure: str, n: int, relevant: int) -> tuple[NDArray[np.float64], float]:
    """What a relevant item adds at each rank (for AP, times its number), and the divisor."""
    rank = np.arange(1, n + 1)
    weight = {"nDCG": 1 / np.log2(rank + 1), "AP": 1 / rank, "RBP": 0.2 * 0.8 ** (rank - 1.0)}[measure]
    return weight, {"nDCG": weight[:relevant].sum(), "AP": relevant, "RBP": 1.0}[measure]


def permutations(measure: str, n: int, relevant: int, seed: int = 0) -> NDArray[np.float64]:
    """Random permutations; of each only the ranks of the relevant items are looked at, which argpartition finds."""
    rng = np.random.default_rng(seed)
    weight, divisor = weights(measure, n, relevant)
    values = np.empty(SAMPLES)
    for start in range(0, SAMPLES, _CHUNK):
        size = min(_CHUNK, SAMPLES - start)
        ranks = np.argpartition(rng.random((size, n), dtype=np.float32), relevant - 1, axis=1)[:, :relevant]
        if measure == "AP":
            ranks.sort(axis=1)
            total = weight[ranks] @ np.arange(1.0, relevant + 1)
        else:
            total = weight[ranks].sum(axis=1)
        values[start : start + size] = total / divisor
    return values


def rank_by_rank(measure: str, n: int, relevant: int, seed: int = 0) -> NDArray[np.float64]:
    """The fastest sampler we know, which draws no permutation: is the item at this rank relevant, given the past?

    All that is kept per order is two numbers, which stay in the processor's cache.
    """
    rng = np.random.default_rng(seed)
    weight, divisor = weights(measure, n, relevant)
    values = np.empty(SAMPLES)
    for start in range(0, SAMPLES, _CHUNK):
        size = min(_CHUNK, SAMPLES - start)
        left = np.full(size, relevant, dtype=np.float32)
        total = np.zeros(size)
        for r in range(n):
            hit = rng.random(size, dtype=np.float32) * (n - r) < left
            left -= hit
            total += hit * ((relevant - left) * weight[r]) if measure == "AP" else hit * weight[r]
        values[start : start + size] = total / divisor
    return values


def run() -> list[Row]:
    rows = []
    for n, relevant, bar in CASES:
        for measure in MEASURES:
            case = (measure, n, relevant)
            times = best_of(
                {
                    "law": lambda c=case: rb.distribution(c[0], n=c[1], relevant=c[2], cache=False),
                    "permutations": lambda c=case: permutations(*c),
                    "rank by rank": lambda c=case: rank_by_rank(*c),
                },
                turns=7,
            )
            name = f"law of {measure} ({n}, {relevant})"
            rows += [
                row(name, times["law"], f"{SAMPLES:,} permutations", times["permutations"], bar),
                row(name, times["law"], f"{SAMPLES:,} drawn rank by rank", times["rank by rank"]),
            ]
    return rows
