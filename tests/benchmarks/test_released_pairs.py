"""The losses of `benchmarks.quality.released_pairs`: changes by a swap are those of the measures, gradients ours."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("numba")  # the released code is compiled by it

from benchmarks.quality.released_pairs import SWAPS, gradient_of, ranked_terms
from rankbound.losses import get_loss, gradient_and_hessian
from rankbound.testing import oracles

pytestmark = pytest.mark.full("tests of the benchmarks")

LABELS = [labels for labels in itertools.product((0, 1), repeat=5) if 0 < sum(labels) < 5]


@pytest.mark.parametrize("measure", SWAPS)
def test_changes_equal_recomputing_the_measure(measure):
    for labels in LABELS:
        terms = ranked_terms(np.array(labels, float))
        for i, j in itertools.product(range(5), repeat=2):
            if labels[i] and not labels[j]:
                swapped = list(labels)
                swapped[i], swapped[j] = 0, 1
                change = abs(oracles.value(measure, swapped) - oracles.value(measure, labels))
                found = SWAPS[measure](*terms, i, j, False)
                assert found == pytest.approx(change, abs=1e-12), (labels, i, j)


@pytest.mark.parametrize("measure", SWAPS)
def test_pairs_move_as_in_our_loss_by_the_formula(measure):
    scores, labels = np.random.default_rng(0).normal(size=9), np.array([1, 0, 0, 1, 0, 1, 0, 0, 1])
    gradient = np.zeros(9)
    gradient_of(measure, "formula")(scores, labels, 0.0, gradient)
    ours, _ = gradient_and_hessian(get_loss(f"lambda-{measure}"), scores, labels, [0, 9])
    np.testing.assert_allclose(gradient, ours, atol=1e-6)


@pytest.mark.parametrize("measure", SWAPS)
def test_the_code_differentiates_the_sum_of_its_weights(measure):
    scores, labels = np.random.default_rng(0).normal(size=9), np.array([1, 0, 0, 1, 0, 1, 0, 0, 1])
    order = np.argsort(-scores)
    chosen = labels[order].astype(float)
    terms = ranked_terms(chosen)
    weights = np.zeros((9, 9))
    for i, j in itertools.product(range(9), repeat=2):
        if chosen[i] and not chosen[j]:
            weights[order[i], order[j]] = SWAPS[measure](*terms, i, j, True)

    def total(scores: np.ndarray) -> float:
        return float((weights / (1 + np.exp(scores[:, None] - scores[None, :]))).sum())

    differences = [(total(scores + step) - total(scores - step)) / 2e-6 for step in 1e-6 * np.eye(9)]
    gradient = np.zeros(9)
    gradient_of(measure, "code")(scores, labels, 0.0, gradient)
    np.testing.assert_allclose(gradient, differences, atol=1e-8)
    assert np.abs(gradient).max() > 0


def test_weights_of_the_code():
    """DCG is not divided by its ideal value; AP and RR count pairs in the wrong order only, RR of the first item."""
    count, inverse, _ = ranked_terms(np.array([0.0, 1, 0, 1, 0]))
    for name in ("AP", "RR"):
        assert SWAPS[name](count, inverse, 1.0, 1, 2, True) == 0
    assert SWAPS["RR"](count, inverse, 1.0, 3, 0, True) == 0
    assert SWAPS["RR"](count, inverse, 1.0, 1, 0, True) == 1 - 1 / 2
    assert SWAPS["nDCG"](count, inverse, 123.0, 1, 0, True) == pytest.approx(1 - 1 / np.log2(3))
