"""Distributions of measures against 300,000 sampled orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rankbound as rb
from rankbound.bench.contest import Peer, contest
from rankbound.bench.growth import OURS, Curve, Way, growth_of
from rankbound.bench.records import Finding
from rankbound.bench.timing import Work

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = "queries of n items, some of them relevant; the distribution from nothing, without its cache"
SAMPLES = 300_000
MEASURES = ("nDCG", "AP", "RBP")
_CHUNK = 8_192
_NEAR = 5.0  # standard errors of the sampled mean


class Case(NamedTuple):
    """A measure of a query."""

    measure: str
    n: int
    relevant: int
    samples: int = SAMPLES


def weights(case: Case) -> tuple[NDArray[np.float64], float]:
    """What a relevant item adds at each rank (for AP, times its number), and the divisor."""
    rank = np.arange(1.0, case.n + 1)
    weight = {"nDCG": 1 / np.log2(rank + 1), "AP": 1 / rank, "RBP": 0.2 * 0.8 ** (rank - 1)}[case.measure]
    return weight, {"nDCG": float(weight[: case.relevant].sum()), "AP": case.relevant, "RBP": 1.0}[case.measure]


def distribution(case: Case) -> Work:
    return lambda: rb.distribution(case.measure, n=case.n, relevant=case.relevant, cache=False)


def permutations(case: Case) -> Work:
    """Random permutations; of each only the ranks of the relevant items are looked at, which argpartition finds."""

    def draw(rng: np.random.Generator, size: int, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        keys = rng.random((size, case.n), dtype=np.float32)
        ranks = np.argpartition(keys, case.relevant - 1, axis=1)[:, : case.relevant]
        if case.measure == "AP":
            ranks.sort(axis=1)
            return np.asarray(weight[ranks] @ np.arange(1.0, case.relevant + 1))
        return np.asarray(weight[ranks].sum(axis=1))

    return partial(_sampled, case, draw)


def rank_by_rank(case: Case) -> Work:
    """The fastest sampler we know, which draws no permutation: is the item at this rank relevant, given the past?

    All that is kept per order is two numbers, which stay in the processor's cache.
    """

    def draw(rng: np.random.Generator, size: int, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        left = np.full(size, case.relevant, dtype=np.float32)
        total = np.zeros(size)
        for r in range(case.n):
            hit = rng.random(size, dtype=np.float32) * (case.n - r) < left
            left -= hit
            total += hit * ((case.relevant - left) * weight[r]) if case.measure == "AP" else hit * weight[r]
        return total

    return partial(_sampled, case, draw)


def _sampled(case: Case, draw: Callable[..., NDArray[np.float64]]) -> NDArray[np.float64]:
    """Values of random orders, drawn by chunks."""
    rng = np.random.default_rng(0)
    weight, divisor = weights(case)
    starts = range(0, case.samples, _CHUNK)
    return np.concatenate([draw(rng, min(_CHUNK, case.samples - start), weight) for start in starts]) / divisor


def mean(found: Any) -> float:
    """Of a distribution, or of values that were drawn."""
    return float(found.mean()) if isinstance(found, np.ndarray) else float(found.mean)


def run(quick: bool) -> Iterator[Finding]:
    """Rows of three measures and two queries, and the growth curves."""
    samples = 3_000 if quick else SAMPLES
    for n, relevant, bar in ((12, 3, None),) if quick else ((100, 25, 20.0), (400, 100, 10.0)):
        for measure in MEASURES:
            case = Case(measure, n, relevant, samples)

            error = float(permutations(case)().std()) / samples**0.5
            peers = [
                Peer(f"{samples:,} permutations", partial(permutations, case), bar, values=mean),
                Peer(f"{samples:,} drawn rank by rank", partial(rank_by_rank, case), values=mean),
            ]
            name = f"distribution of {measure} ({n}, {relevant})"
            turns = 1 if quick else 7
            yield from contest(name, distribution(case), peers, turns=turns, values=mean, tolerance=_NEAR * error)
    yield from growth_of(__name__, CURVES, quick)


_WAYS = {OURS: Way(distribution), "permutations": Way(permutations)}
CURVES = (
    Curve(
        "distribution of nDCG, a quarter relevant", "items", (25, 50, 100, 200, 400), (8, 16, 32),
        lambda size, _: Case("nDCG", size, size // 4), _WAYS,
    ),
    Curve(
        "distribution of nDCG, 100 items", "relevant items", (3, 6, 12, 25, 50), (1, 3),
        lambda size, _: Case("nDCG", 100, size), _WAYS,
    ),
)  # fmt: skip
