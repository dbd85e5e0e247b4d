"""Figures of the paper on metric optimization for recommendation, from its published tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest

from benchmarks.quality import insights_published as insights

pytestmark = pytest.mark.full("tests of the benchmarks")


@pytest.fixture(scope="module")
def values() -> pl.DataFrame:
    """A table in the form of the authors', where losses differ by 0.1 from one to the next."""
    rng = np.random.default_rng(3)
    names = insights.LOSSES, (0, 1), (1, 2, 5), insights.SETS, insights.MEASURES
    rows = [(*row, list(insights.LOSSES).index(row[0]) / 10 + rng.normal(0, 0.01)) for row in product(*names)]
    return pl.DataFrame(rows, ["metric_optim", "fold", "NSR", "dataset", "metric_eval", "y"], orient="row")


@pytest.fixture
def written(values, tmp_path, monkeypatch):
    monkeypatch.setattr(insights, "RESULTS", tmp_path)
    for kind in insights.KINDS:
        values.sample(fraction=1, shuffle=True, seed=1).write_csv(tmp_path / f"{kind}.csv")
    return [str(tmp_path / f"{kind}.csv") for kind in insights.KINDS]


def test_marginal_means_of_a_balanced_table_are_means_of_standardized_scores(values, written):
    means = insights.effects(insights.read(written[0]))
    groups = values.filter(metric_eval="NDCG").group_by("dataset", "NSR")
    scores = pl.concat([rows.with_columns((pl.col("y") - rows["y"].mean()) / rows["y"].std()) for _, rows in groups])
    for loss, name in insights.LOSSES.items():
        row = means.row(by_predicate=(pl.col("system") == name) & (pl.col("measure") == "nDCG"), named=True)
        assert row["mean"] == pytest.approx(scores.filter(metric_optim=loss)["y"].mean())
        assert row["pi_low"] < row["ci_low"] < row["mean"] < row["ci_high"] < row["pi_high"]


def test_the_page_and_the_figures(written, tmp_path):
    assert insights.main(written) == 0
    page = (tmp_path / "insights-published.md").read_text()
    assert page.count("| nDCG | 0 | 0 | 0 | 0 | 0 | 24 |") == len(insights.KINDS)  # the last loss is always best
    assert page.count("listwise: confirmed.") == page.count("pairwise: confirmed.") == 1
    assert pl.read_csv(tmp_path / "insights-published.csv").height == 2 * 6 * 6
    assert len(list(tmp_path.glob("insights-published--*.svg"))) == 8


def test_claims_are_judged_by_the_intervals_of_differences(values, tmp_path):
    equal = values.with_columns(
        pl.when(pl.col("metric_optim") == "ap", metric_eval="RR").then(pl.col("y") + 0.4).otherwise("y").alias("y")
    )
    equal.write_csv(tmp_path / "other.csv")
    verdict = insights._verdict("listwise", insights.effects(insights.read(str(tmp_path / "other.csv"))))
    assert "confirmed for AP, nDCG, RBP(p=0.8), RBP(p=0.9), RBP(p=0.95) only" in verdict
    assert "by 5 of 6 measures" in verdict
