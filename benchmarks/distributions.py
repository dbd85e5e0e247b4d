"""Distributions of measures against sampled rankings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rankbound as rb
from benchmarks.comparison import Peer, compare_with_peers
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.records import Finding, Row
from benchmarks.timing import Work, best_of
from rankbound.difficulty.distribution.many import Distributions, distributions_of
from rankbound.measures import LabelCounts, parse_measure

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = (
    "queries of n items, some of them relevant, and queries of 50 items with five levels; the distributions computed "
    "anew, without their cache"
)
SAMPLES = 300_000
GRADED_ITEMS = 50
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


def graded_queries(queries: int) -> LabelCounts:
    """Queries of 50 items with labels from 0 to 4: nearly every one has label counts of its own."""
    labels = np.random.default_rng(0).integers(0, 5, queries * GRADED_ITEMS)
    return LabelCounts.from_labels(labels, np.arange(queries + 1) * GRADED_ITEMS)


def graded(measure: str, counts: LabelCounts) -> Work:
    """All distributions of the queries, as DB needs them."""
    return lambda: distributions_of(parse_measure(measure), counts, cache=False)


def graded_permutations(counts: LabelCounts, samples: int) -> Work:
    """The mean DCG@10 of sampled orders of every query: each row of random keys is sorted as far as rank 10."""
    labels = np.repeat(counts.values, counts.counts).reshape(len(counts), GRADED_ITEMS).astype(np.float64)
    weight = 1 / np.log2(np.arange(2.0, 12.0))

    def work() -> NDArray[np.float64]:
        rng = np.random.default_rng(0)
        means = np.empty(len(labels))
        for query, row in enumerate(labels):
            first = np.argpartition(rng.random((samples, GRADED_ITEMS), dtype=np.float32), 10, axis=1)[:, :10]
            means[query] = (row[rng.permuted(first, axis=1)] @ weight).mean()
        return means

    return work


def _means_of_queries(distributions: Distributions) -> NDArray[np.float64]:
    means = np.array([float(scores @ weights) for scores, weights, _ in distributions.distributions])
    return means[distributions.class_of]


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
    yield from _graded_labels(quick)
    yield from growth_of(__name__, CURVES, quick)


def _graded_labels(quick: bool) -> Iterator[Finding]:
    queries, samples = (5, 3_000) if quick else (200, 20_000)
    counts = graded_queries(queries)
    peer = Peer(f"{samples:,} graded permutations", partial(graded_permutations, counts, samples), values=list)
    name = f"distributions of DCG@10 of {queries:,} queries with graded labels"
    largest = 2.5  # no standard deviation of a total exceeds this
    yield from compare_with_peers(
        name, graded("DCG@10", counts), [peer], turns=1, values=_means_of_queries,
        tolerance=_TOLERANCE * largest * samples**-0.5,
    )  # fmt: skip
    for queries, limit in ((4, 10.0),) if quick else ((1_000, 10.0), (10_000, 60.0)):
        counts = graded_queries(queries)
        for measure in ("nDCG@10", "nDCG", "ERR@10"):
            time = best_of({"": graded(measure, counts)}, 1)[""]
            name = f"distributions of {measure} of {queries:,} queries with graded labels"
            yield Row(name, time, f"{limit:g} seconds", limit, 1.0, against="limit")


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
    Curve(
        "distributions of nDCG@10, 50 items with five levels", "queries", (50, 200, 800), (2, 4, 8),
        lambda size, _: graded_queries(size), {OURS: Implementation(partial(graded, "nDCG@10"))}, turns=1,
    ),
    Curve(
        "distributions of nDCG, 50 items with five levels", "queries", (50, 200, 800), (2, 4, 8),
        lambda size, _: graded_queries(size), {OURS: Implementation(partial(graded, "nDCG"))}, turns=1,
    ),
)  # fmt: skip
