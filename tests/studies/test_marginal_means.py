"""Linear models and marginal means against statsmodels, best counts by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest

from rankbound.errors import ArgumentError, DataError
from rankbound.studies.marginal_means import (
    best_counts,
    fit_linear_model,
    marginal_means,
    standardize,
    system_marginal_means,
)

smf = pytest.importorskip("statsmodels.formula.api")


@pytest.fixture(scope="module")
def runs():
    """Four losses on three data sets with two ratios, three folds each; unbalanced, for a row is missing."""
    random = np.random.default_rng(2)
    rows = [
        {"loss": loss, "data": data, "nsr": nsr, "y": random.normal(len(loss) + 0.5 * nsr, 1) + (data == "d2")}
        for loss, data, nsr, _ in product(["AP", "nDCG", "RR", "nRBP"], ["d1", "d2", "d3"], [1, 5], range(3))
    ]
    return pl.DataFrame(rows[:-1])


FORMULA = "y ~ C(loss) + C(data) + C(nsr) + C(loss):C(data) + C(loss):C(nsr)"
INTERACTIONS = [("loss", "data"), ("loss", "nsr")]


def test_predictions_and_both_intervals_are_those_of_statsmodels(runs):
    ours = fit_linear_model(runs, "y", ["loss", "data", "nsr"], INTERACTIONS).predict(runs)
    theirs = smf.ols(FORMULA, runs.to_pandas()).fit().get_prediction(runs.to_pandas()).summary_frame(alpha=0.05)
    names = ["mean", "mean_se", "mean_ci_lower", "mean_ci_upper", "obs_ci_lower", "obs_ci_upper"]
    assert ours.to_numpy() == pytest.approx(theirs[names].to_numpy(), abs=1e-8)


@pytest.mark.parametrize("by", [[], ["data"]], ids=["overall", "by data set"])
def test_marginal_means_are_even_averages_of_statsmodels_predictions(runs, by):
    others = [name for name in ("data", "nsr") if name not in by]
    ours = marginal_means(runs, "y", "loss", by=by, others=others, interactions=INTERACTIONS)
    fit = smf.ols(FORMULA, runs.to_pandas()).fit()
    levels = {"loss": ["AP", "nDCG", "RR", "nRBP"], "data": ["d1", "d2", "d3"], "nsr": [1, 5]}
    grid = pl.DataFrame(list(product(*levels.values())), schema=list(levels), orient="row")
    matrix = smf.ols(FORMULA, grid.with_columns(y=pl.lit(0.0)).to_pandas()).exog
    for row in ours.iter_rows(named=True):
        cells = grid.with_row_index().filter(*(pl.col(key) == row[key] for key in ["loss", *by]))["index"].to_numpy()
        test = fit.t_test(matrix[cells].mean(axis=0))
        low, high = test.conf_int(alpha=0.05)[0]
        theirs = [float(test.effect.item()), float(test.sd.item()), low, high]
        assert [row[key] for key in ("mean", "std_error", "ci_low", "ci_high")] == pytest.approx(theirs, abs=1e-8)
        half = (row["pi_high"] - row["pi_low"]) / 2
        width = (row["ci_high"] - row["ci_low"]) / 2 / row["std_error"]
        assert half == pytest.approx(width * np.sqrt(row["std_error"] ** 2 + fit.scale), abs=1e-8)


def test_the_marginal_mean_of_balanced_rows_is_their_mean():
    table = pl.DataFrame({"system": ["a", "a", "b", "b"], "data_label": ["x", "y"] * 2, "y": [1.0, 3.0, 2.0, 5.0]})
    found = marginal_means(table, "y", "system", others=["data_label"])
    assert found["mean"].to_list() == pytest.approx([2.0, 3.5])


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        (
            lambda t: t.filter(~((pl.col("loss") == "AP") & (pl.col("data") == "d2"))),
            {},
            DataError,
            "no rows with loss",
        ),
        (lambda t: t.with_columns(twin=pl.col("data")), {"factors": ["data", "twin"]}, DataError, "be distinguished"),
        (lambda t: t.unique(["loss", "data"], maintain_order=True), {}, DataError, "12 coefficients and 12 rows"),
        (lambda t: t.with_columns(y=pl.lit(float("nan"))), {}, DataError, "must be finite"),
        (lambda t: t, {"factors": ["fold"]}, ArgumentError, "no column fold"),
        (lambda t: t, {"interactions": [("loss", "loss")]}, ArgumentError, "two different factors"),
    ],
)
def test_models_that_cannot_be_fitted_say_why(runs, change, options, error, message):
    options = {"factors": ["loss", "data"], "interactions": [("loss", "data")]} | options
    if options["factors"] != ["loss", "data"]:
        options["interactions"] = []
    with pytest.raises(error, match=message):
        fit_linear_model(change(runs), "y", **options)


def test_unknown_levels_cannot_be_predicted(runs):
    fit = fit_linear_model(runs, "y", ["loss"])
    with pytest.raises(ArgumentError, match=r"loss must be one of .* got 'ERR'"):
        fit.predict(pl.DataFrame({"loss": ["ERR"]}))


def test_standardized_scores_have_mean_0_and_spread_1_in_each_group(runs):
    groups = standardize(runs, "y", ["data", "nsr"]).group_by("data", "nsr")
    found = groups.agg(pl.col("y").mean().alias("mean"), pl.col("y").std().alias("std"))
    assert found["mean"].to_numpy() == pytest.approx(np.zeros(6), abs=1e-12)
    assert found["std"].to_numpy() == pytest.approx(np.ones(6))
    with pytest.raises(DataError, match="all equal cannot be standardized"):
        standardize(runs.with_columns(y=pl.lit(1.0)), "y", ["data"])


def make_trials(values, measure="nDCG"):
    """Trials from (system, data, variant, fold, value)."""
    names = ["system", "data", "variant", "fold", "value"]
    return pl.DataFrame(values, schema=names, orient="row").with_columns(
        pl.lit(0).alias("seed"), pl.lit(measure).alias("measure")
    )


def test_systems_with_repeats_get_the_full_model_and_others_the_additive_one():
    random = np.random.default_rng(0)
    cells = [(s, d, v, f, float(random.random())) for s in "abc" for d, v in (("x", "1"), ("y", "")) for f in (0, 1)]
    full = system_marginal_means(make_trials(cells))
    assert set(full["model"]) == {"system * data_label"}
    by_data = system_marginal_means(make_trials(cells), by_data=True)
    assert set(by_data["data_label"]) == {"x · 1", "y"}
    assert by_data.group_by("system").agg(pl.col("mean").mean()).sort("system")["mean"].to_list() == pytest.approx(
        full.sort("system")["mean"].to_list()
    )
    single = system_marginal_means(make_trials([cell for cell in cells if cell[3] == 0]))
    assert set(single["model"]) == {"system + data_label"}


def test_a_lower_u_is_a_higher_marginal_mean():
    cells = [(s, d, "", f, u + f / 10) for s, u in (("good", 1.0), ("bad", 5.0)) for d in "xy" for f in (0, 1)]
    found = dict(system_marginal_means(make_trials(cells, "U")).select("system", "mean").rows())
    assert found["good"] > found["bad"]


def test_marginal_means_need_two_systems():
    with pytest.raises(DataError, match="only one"):
        system_marginal_means(make_trials([("a", "x", "", 0, 0.5)]))


def test_best_counts_count_ties_for_each():
    trials = make_trials(
        [("a", "x", "", 0, 0.5), ("b", "x", "", 0, 0.4), ("a", "x", "", 1, 0.3), ("b", "x", "", 1, 0.3)]
    )
    assert best_counts(trials).rows() == [("nDCG", "a", 2, 2), ("nDCG", "b", 1, 2)]
    lower = best_counts(trials.with_columns(measure=pl.lit("U")))
    assert lower["count"].to_list() == [1, 2]
