"""Exact distributions of measures against 300,000 sampled rankings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rankbound as rb
from benchmarks.comparison import Peer, compare_with_peers
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.records import Finding
from benchmarks.timing import Work

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = "queries of n items, some of them relevant; the distribution computed anew, without its cache"
SAMPLES = 300_000
MEASURES = ("nDCG", "AP", "RBP")
_CHUNK = 8_192
_TOLERANCE = 5.0  # standard errors of the sampled mean


class Case(NamedTuple):
    """A measure of a query with binary labels."""

    measure: str
    n: int
    relevant: int
    samples: int = SAMPLES


def weights(case: Case) -> tuple[NDArray[np.float64], float]:
    """Return the gain of a relevant item at each rank (for AP, to be multiplied by its number) and the divisor."""
    rank = np.arange(1.0, case.n + 1)
    weight = {"nDCG": 1 / np.log2(rank + 1), "AP": 1 / rank, "RBP": 0.2 * 0.8 ** (rank - 1)}[case.measure]
    return weight, {"nDCG": float(weight[: case.relevant].sum()), "AP": case.relevant, "RBP": 1.0}[case.measure]


def distribution(case: Case) -> Work:
    return lambda: rb.distribution(case.measure, n=case.n, relevant=case.relevant, cache=False)


def permutations(case: Case) -> Work:
    """Sample random permutations; argpartition yields the ranks of the relevant items, which is all that is needed."""

    def draw(rng: np.random.Generator, size: int, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        keys = rng.random((size, case.n), dtype=np.float32)
        ranks = np.argpartition(keys, case.relevant - 1, axis=1)[:, : case.relevant]
        if case.measure == "AP":
            ranks.sort(axis=1)
            return np.asarray(weight[ranks] @ np.arange(1.0, case.relevant + 1))
        return np.asarray(weight[ranks].sum(axis=1))

    return partial(_sampled, case, draw)


def rank_by_rank(case: Case) -> Work:
    """Sample whether the item at each rank is relevant, given the ranks above it: the fastest sampler we know.

    It draws no permutation and holds two numbers per ranking, which stay in the processor's cache.
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
    """Return the values of random rankings, drawn in chunks."""
    rng = np.random.default_rng(0)
    weight, divisor = weights(case)
    starts = range(0, case.samples, _CHUNK)
    return np.concatenate([draw(rng, min(_CHUNK, case.samples - start), weight) for start in starts]) / divisor


def mean(result: Any) -> float:
    """Return the mean of a distribution or of sampled values."""
    return float(result.mean()) if isinstance(result, np.ndarray) else float(result.mean)


def run(quick: bool) -> Iterator[Finding]:
    """Yield rows of three measures and two queries, then the growth curves."""
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
            yield from compare_with_peers(
                name, distribution(case), peers, turns=turns, values=mean, tolerance=_TOLERANCE * error
            )
    yield from growth_of(__name__, CURVES, quick)


_IMPLEMENTATIONS = {OURS: Implementation(distribution), "permutations": Implementation(permutations)}
CURVES = (
    Curve(
        "distribution of nDCG, a quarter relevant", "items", (25, 50, 100, 200, 400), (8, 16, 32),
        lambda size, _: Case("nDCG", size, size // 4), _IMPLEMENTATIONS,
    ),
    Curve(
        "distribution of nDCG, 100 items", "relevant items", (3, 6, 12, 25, 50), (1, 3),
        lambda size, _: Case("nDCG", 100, size), _IMPLEMENTATIONS,
    ),
)  # fmt: skip
