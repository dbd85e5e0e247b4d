"""Variances over all orders, z-scores and pooled indices, against enumeration and the formulas of PyKEEN."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import rankbound as rb
from rankbound.difficulty.pooled import adjusted_rank_metrics, pooled_index, z_scores
from rankbound.errors import ArgumentError
from rankbound.testing import oracles
from rankbound.testing.strategies import catalog

LABELS = [
    [1, 0], [1, 0, 0], [1, 1, 0, 0, 0], [2, 1, 0, 0], [1, 1, 1, 0, 0, 0], [3, 2, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0],
    [2, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0], [2, 1, 0, 0, 0, 0, 0, 0],
]  # fmt: skip


@pytest.mark.parametrize("measure", catalog(range(1, 9, 3)), ids=str)
def test_mean_and_variance_are_those_of_all_orders(measure):
    for labels, depth in itertools.product(LABELS, (None, 3)):
        values = np.array([oracles.value(measure, order, depth) for order in oracles.all_orders(labels)])
        bounds = rb.bounds(measure, labels=labels, depth=depth)
        if not np.isfinite(values).all():
            continue
        assert bounds.expected == pytest.approx(values.mean(), abs=1e-12)
        assert bounds.variance == pytest.approx(values.var(), abs=1e-12)


def test_shapes_and_bounds_without_a_query():
    assert isinstance(rb.bounds("AP", n=5, relevant=2).variance, float)
    found = rb.bounds("nDCG@3", n=[[5, 6], [7, 8]], relevant=2).variance
    assert found.shape == (2, 2)
    assert found[1, 0] == pytest.approx(rb.bounds("nDCG@3", n=7, relevant=2).variance, abs=1e-15)
    with pytest.raises(ArgumentError, match="to have a variance"):
        rb.difficulty.Bounds(0, 0.5, 1).variance  # noqa: B018


def pykeen(ranks, sizes, value):
    """Adjusted index and z of a mean over queries with one relevant document: (x - E) / (1 - E), (x - E) / sd.

    E and sd are those of a rank that is uniform on 1, ..., n for each query, as in Hoyt et al. 2022.
    """
    every = [[value(rank) for rank in range(1, n + 1)] for n in sizes]
    expected = sum(sum(values) / len(values) for values in every) / len(sizes)
    variances = [sum(v * v for v in values) / len(values) - (sum(values) / len(values)) ** 2 for values in every]
    mean = sum(value(rank) for rank in ranks) / len(ranks)
    return (mean - expected) / (1 - expected), (mean - expected) / math.sqrt(sum(variances) / len(sizes) ** 2)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("measure", "value"), [("RR", lambda rank: 1 / rank), ("Success@3", lambda rank: rank <= 3),
                                                ("Success@10", lambda rank: rank <= 10)])  # fmt: skip
def test_one_relevant_document_gives_the_adjusted_measures_of_pykeen(measure, value, seed):
    random = np.random.default_rng(seed)
    sizes = random.integers(12, 200, 30)
    ranks = [int(random.integers(1, n + 1)) for n in sizes]
    bounds = rb.bounds(measure, n=sizes, relevant=1)
    found = pooled_index([float(value(rank)) for rank in ranks], bounds)
    assert (found.index, found.z) == pytest.approx(pykeen(ranks, sizes.tolist(), value), abs=1e-10)
    for rank, n, z in zip(ranks, sizes.tolist(), z_scores([float(value(rank)) for rank in ranks], bounds), strict=True):
        assert z == pytest.approx(pykeen([rank], [n], value)[1], abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_all_adjusted_metrics_by_their_names(seed):
    """A rank of 1.5 is that of an answer that ties with another one."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 90, 40).tolist()
    ranks = [int(random.integers(1, n)) + float(random.choice([0.0, 0.5])) for n in sizes]
    found = adjusted_rank_metrics(ranks, sizes, k=5)
    expected_rank = sum((n + 1) / 2 for n in sizes) / len(sizes)
    mean, sd = sum(ranks) / len(ranks), math.sqrt(sum((n * n - 1) / 12 for n in sizes)) / len(sizes)
    reciprocal, hits = pykeen(ranks, sizes, lambda rank: 1 / rank), pykeen(ranks, sizes, lambda rank: rank <= 5)
    assert found == pytest.approx(
        {
            "adjusted_arithmetic_mean_rank": mean / expected_rank,
            "adjusted_arithmetic_mean_rank_index": 1 - (mean - 1) / (expected_rank - 1),
            "z_arithmetic_mean_rank": (expected_rank - mean) / sd,
            "adjusted_inverse_harmonic_mean_rank": reciprocal[0],
            "z_inverse_harmonic_mean_rank": reciprocal[1],
            "adjusted_hits_at_5": hits[0],
            "z_hits_at_5": hits[1],
        },
        abs=1e-10,
    )


def test_the_wrapper_z_is_the_z_of_each_query():
    qrels = {"a": {"x": 1, **{f"d{i}": 0 for i in range(9)}}, "b": {"x": 1, "y": 0}, "c": {"x": 1, "y": 1}}
    run = {"a": {f"d{i}": 9.0 - i for i in range(2)} | {"x": 5.0}, "b": {"x": 1.0, "y": 2.0}, "c": {"x": 1.0, "y": 2.0}}
    values = rb.evaluate(qrels, run, ["Z(RR)", "Z(U)"]).values
    for name, value in (("RR", lambda rank: 1 / rank), ("U", lambda rank: 1 - rank)):  # U falls where ranks do
        expected = [pykeen([rank], [n], value)[1] for rank, n in ((3, 10), (2, 2))]
        assert values[f"Z({name})"] == pytest.approx([*expected, math.nan], abs=1e-10, nan_ok=True)


def test_ranks_beyond_the_candidates_are_refused():
    for ranks, candidates in (([3], [2]), ([0.5], [2]), ([1, 2], [3])):
        with pytest.raises(ArgumentError, match="ranks must lie between 1 and the number of candidates"):
            adjusted_rank_metrics(ranks, candidates)


def test_lower_is_better_and_no_choice():
    bounds = rb.bounds("U", n=5, relevant=2)
    assert pooled_index([0.0], bounds).index == 1
    assert pooled_index([0.0], bounds).z > 0
    assert np.isnan(z_scores([1.0], rb.bounds("RR", n=2, relevant=2))[0])
    assert np.isnan(pooled_index([1.0], rb.bounds("RR", n=2, relevant=2)).index)
    with pytest.raises(ArgumentError, match="one number per query"):
        pooled_index([1.0, 2.0], rb.bounds("RR", n=[2, 2, 2], relevant=1))
