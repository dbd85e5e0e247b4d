"""Learned images: what the recorder writes is what the figure reads."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from rankbound.errors import ArgumentError
from rankbound.studies.learning import coefficients, coefficients_of_history
from rankbound.studies.trial import Fitted


def fitted(**attributes):
    return Fitted({}, SimpleNamespace(**attributes), {})


def test_an_image_comes_back_as_it_was():
    weights = np.random.default_rng(0).normal(size=36)
    rows = list(coefficients(fitted(coef_=weights, kept_epoch_=7)))
    assert {epoch for epoch, _, _ in rows} == {7}
    history = pl.DataFrame(rows, schema=["epoch", "quantity", "value"], orient="row").with_columns(
        pl.lit("LR").alias("system"), pl.lit(0).alias("fold"), pl.lit(0).alias("seed")
    )
    images, shape = coefficients_of_history(history)
    assert shape == (6, 6)
    np.testing.assert_array_equal(images["LR"], weights.reshape(6, 6))


def test_the_colors_of_a_pixel_are_added():
    weights = np.random.default_rng(0).normal(size=(4, 4, 3))
    rows = list(coefficients(fitted(coef_=weights.ravel())))
    assert [name for _, name, _ in rows][:5] == [f"coefficient {at}" for at in ("0,0", "0,1", "0,2", "0,3", "1,0")]
    np.testing.assert_allclose([value for *_, value in rows], weights.sum(axis=2).ravel())


@pytest.mark.parametrize(
    ("attributes", "message"), [({}, "no coefficients"), ({"coef_": np.ones(5)}, "got 5 coefficients")]
)
def test_what_is_no_image_is_refused(attributes, message):
    with pytest.raises(ArgumentError, match=message):
        list(coefficients(fitted(**attributes)))
