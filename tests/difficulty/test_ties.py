"""Wrapped measures of rankings with ties: the mean over the orders of the ties of the wrapped value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbound.difficulty import bounded_values, difficulty_of, get_bounding
from rankbound.errors import MeasureError
from rankbound.measures import BOUNDINGS, Ranked, is_defined, parse_measure, values
from rankbound.testing import oracles
from rankbound.testing.strategies import measures, scored_lists

CURVED = tuple(wrapper for wrapper, name in BOUNDINGS.items() if not get_bounding(name).affine)


def wrapped(wrapper, measure):
    try:
        return parse_measure(f"{wrapper}({measure})")
    except MeasureError:
        return None


def evaluated(measure, lists, depth=None):
    """The wrapped measure of each query, NaN where it is not defined."""
    ranked, bounding = Ranked(lists, depth=depth), get_bounding(measure.bounding)
    difficulty = difficulty_of(measure, ranked.counts)
    value = bounded_values(bounding, measure, ranked, values(ranked, measure.plain), difficulty)
    return np.where(is_defined(ranked.counts, measure.plain) & bounding.defined(difficulty), value, np.nan)


def by_oracle(measure, lists, depth=None):
    return np.array(
        [
            oracles.mean_over_tie_breaks(measure, lists.labels[a:b].tolist(), lists.scores[a:b].tolist(), depth)
            for a, b in zip(lists.offsets[:-1], lists.offsets[1:], strict=True)
        ]
    )


@pytest.mark.parametrize("wrapper", BOUNDINGS)
@given(lists=scored_lists(max_queries=3, max_items=6), measure=measures(), depth=st.none() | st.integers(1, 7))
@settings(max_examples=150, deadline=None)
def test_wrappers_are_means_over_all_orders_of_ties(wrapper, lists, measure, depth):
    measure = wrapped(wrapper, measure)
    if measure is None:
        return
    result, expected = evaluated(measure, lists, depth), by_oracle(measure, lists, depth)
    checked = np.isfinite(result)
    np.testing.assert_allclose(result[checked], expected[checked], atol=1e-9)
