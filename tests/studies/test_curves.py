"""Curves of bounds, distributions and cutoffs; training paths and images."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

pytest.importorskip("altair")

from rankbound.difficulty import bounds
from rankbound.difficulty.distribution import distribution
from rankbound.errors import ArgumentError, DataError
from rankbound.report.figures import catalog
from rankbound.studies import curves
from rankbound.studies.learning import coefficient_images, coefficients_of_history, training_paths


def test_lower_bounds_are_those_of_the_worst_ranking():
    table = curves.lower_bounds(["nDCG"], [25])
    row = table.filter(pl.col("fraction") == 0.2).row(0, named=True)
    discounts = 1 / np.log2(np.arange(1, 26) + 1)
    assert row["worst"] == pytest.approx(discounts[-5:].sum() / discounts[:5].sum())
    assert table["worst"][-1] == 1.0  # all relevant
    assert len(curves.lower_bounds(["AP"], [200])) == 50


def test_expected_losses_are_negative_measures_and_positive_u():
    table = curves.expectation_curves(["AP", "U"], [2], 4)
    found = {name: rows["expected"].to_list() for (name,), rows in table.group_by("measure", maintain_order=True)}
    assert found["AP"] == pytest.approx([-bounds("AP", n=3 * p, relevant=p).expected for p in (1, 2, 3, 4)])
    assert found["U"] == pytest.approx([p * 2 * p / 2 for p in (1, 2, 3, 4)])


@pytest.mark.parametrize(
    ("bounding", "measure", "ends"),
    [
        ("min-max", "nDCG", (-1, 0)),
        ("min-max", "U", (-1, 0)),
        ("expectation-max", "AP", (-1, None)),
        ("expectation", "U", (0, 2)),
    ],
)
def test_bounded_losses_run_from_best_to_worst(bounding, measure, ends):
    table = curves.bounded_losses(bounding, [measure], {"one": [(12, 4)]}, points=9)
    assert table["loss"].is_sorted()
    assert table["bounded"].is_sorted()
    assert table["bounded"][0] == pytest.approx(ends[0], abs=1e-12)
    if ends[1] is not None:
        assert table["bounded"][-1] == pytest.approx(ends[1], abs=1e-12)


def test_smooth_distributions_near_the_distribution_as_their_gain_grows():
    table = curves.smooth_distributions(["nDCG"], [(8, 4)], gains=(1, 64, 4096), points=40)
    null = distribution("nDCG", n=8, relevant=4)
    fractions = {name: rows for (name,), rows in table.group_by("distribution", maintain_order=True)}
    exact = null.cdf(fractions["exact"]["score"].to_numpy())
    assert fractions["exact"]["fraction"].to_numpy() == pytest.approx(exact)
    gaps = [np.abs(fractions[f"a = {gain}"]["fraction"].to_numpy() - exact).mean() for gain in (1, 64, 4096)]
    assert gaps[0] > gaps[1] > gaps[2]


def test_distribution_curves_are_smooth_distributions_with_their_own_gain():
    table = curves.distribution_curves(["AP"], {"one": [(12, 4)]}, points=5)
    null = distribution("AP", n=12, relevant=4)
    assert table["fraction"].to_numpy() == pytest.approx(null.smooth_cdf(table["score"].to_numpy()))


def test_cutoff_curves_are_means_at_each_cutoff(score_table):
    table = score_table({"a": [0.2, 0.4]}, measure="nDCG@1").with_columns((pl.col("nDCG@1") + 0.1).alias("nDCG@5"))
    found = catalog.cutoff_curves(table)
    assert found.select("k", "mean").rows() == [(1, pytest.approx(0.3)), (5, pytest.approx(0.4))]
    with pytest.raises(DataError, match="two cutoffs at least"):
        catalog.cutoff_curves(table.drop("nDCG@5"))


def test_the_histogram_counts_each_query_once(score_table):
    sizes = {"items": [4, 10, 10], "relevant": [2, 1, 9]}
    table = score_table({"a": [0.5, 0.5, 0.9], "b": [0.5, 0.5, 0.9]}, measure="AP", **sizes)
    bars = catalog.expected_histogram(table, "AP", bins=10)
    expected = [bounds("AP", n=n, relevant=p).expected for n, p in zip(*sizes.values(), strict=True)]
    assert bars["queries"].to_list() == np.histogram(expected, 10, (0, 1))[0].tolist()
    assert bars["fraction"].sum() == pytest.approx(1)
    with pytest.raises(ArgumentError, match="bins must be"):
        catalog.expected_histogram(table, "AP", bins=0)


# ---- training --------------------------------------------------------------------------------------------------------


def make_history(quantity, values, **fixed):
    columns = {"data": "d", "variant": "", "system": "s", "fold": 0, "seed": 0, "quantity": quantity} | fixed
    return pl.DataFrame(
        {"epoch": np.arange(1, len(values) + 1), "value": np.asarray(values, dtype=float)}
    ).with_columns(*(pl.lit(value).alias(name) for name, value in columns.items()))


def test_paths_join_folds_and_keep_their_ends():
    history = pl.concat([make_history("loss", [3.0, 1.0]), make_history("loss", [1.0, 0.0], fold=1)], how="diagonal")
    found = training_paths(history)
    assert found.select("epoch", "mean", "low", "high").rows() == [(1, 2.0, 1.0, 3.0), (2, 0.5, 0.0, 1.0)]


def test_long_paths_are_thinned_but_keep_first_and_last():
    history = pl.concat([make_history("loss", np.arange(5000.0)), make_history("AP", np.arange(10.0))], how="diagonal")
    found = training_paths(history, limit=200)
    assert len(found) <= 200
    loss = found.filter(pl.col("quantity") == "loss")
    assert (loss["epoch"].min(), loss["epoch"].max()) == (1, 5000)
    assert found.filter(pl.col("quantity") == "AP")["epoch"].to_list() == list(range(1, 11))


def test_quantities_that_a_history_lacks_are_named():
    with pytest.raises(DataError, match="no approximation error; it has loss"):
        training_paths(make_history("loss", [1.0]), ["approximation error"])
    with pytest.raises(DataError, match="missing: epoch"):
        training_paths(make_history("loss", [1.0]).drop("epoch"))


def test_images_shrink_to_means_over_areas_and_are_scaled_to_one():
    image = np.arange(16.0).reshape(4, 4)
    small = coefficient_images({"m": image.ravel()}, (4, 4), limit=4)
    assert small["weight"].to_numpy() * 12.5 == pytest.approx([2.5, 4.5, 10.5, 12.5])
    whole = coefficient_images({"m": -image}, (4, 4))
    assert whole["weight"].to_numpy() == pytest.approx(-image.ravel() / 15)
    with pytest.raises(DataError, match="m has 3 coefficients, an image of 2 x 2 has 4"):
        coefficient_images({"m": [1, 2, 3]}, (2, 2))


def test_a_learned_image_comes_back_from_the_history():
    names = [f"coefficient {r},{c}" for r in range(2) for c in range(3)]
    history = pl.concat([make_history(name, [9.0, float(i)]) for i, name in enumerate(names)])
    images, shape = coefficients_of_history(history)
    assert shape == (2, 3)
    assert images["s"].tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(DataError, match="no quantity 'coefficient ROW,COLUMN'"):
        coefficients_of_history(make_history("loss", [1.0]))
    with pytest.raises(DataError, match="must be 'coefficient ROW,COLUMN', got 'coefficient x'"):
        coefficients_of_history(make_history("coefficient x", [1.0]))
