"""The distribution of every measure of the catalog, users' own included, against all orders valued by the oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rankbound.difficulty import bounds_of
from rankbound.difficulty.distribution import distribution
from rankbound.measures import LabelCounts
from rankbound.testing import oracles
from rankbound.testing.strategies import catalog

MEASURES = catalog(range(2, 5, 2))
QUERIES = [[1, 0, 0], [2, 1, 0, 0], [1, 1, 1, 0, 0], [2, 2, 1], [3, 1, 1, 0, 0]]


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_distribution_is_that_of_all_orders(measure):
    for labels in QUERIES:
        orders = list(oracles.all_orders(labels))
        values = np.array([oracles.value(measure, order) for order in orders])
        null = distribution(measure, labels=labels, cache=False)
        bounds = bounds_of(measure, LabelCounts.from_labels(labels, [0, len(labels)]))
        assert null.mean == pytest.approx(math.fsum(values) / len(values), abs=1e-12)
        assert null.mean == pytest.approx(bounds.expected[0], abs=1e-12)
        for x in values:
            assert null.cdf(x) == pytest.approx(np.mean(values <= x + 1e-9), abs=1e-12)
            assert null.survival(x) == pytest.approx(np.mean(values >= x - 1e-9), abs=1e-12)


@pytest.mark.parametrize("measure", [m for m in MEASURES if m.definition.has_walk], ids=str)
def test_dynamic_program_has_the_mean_of_the_closed_form(measure):
    """Long lists, with and without documents of label 0."""
    for labels in ([2] * 9 + [1] * 9, [2] * 4 + [1] * 5 + [0] * 14):
        null = distribution(measure, labels=labels, cache=False)
        bounds = bounds_of(measure, LabelCounts.from_labels(labels, [0, len(labels)]))
        assert null.mean == pytest.approx(bounds.expected[0], abs=1e-9 * max(1.0, abs(bounds.best[0])))
