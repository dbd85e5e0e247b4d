"""The AP loss of released code: what it is, and the study that compares it with published numbers."""

from __future__ import annotations

import importlib
import itertools
import sys

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")

import torch

from rankbound.losses import get_loss
from rankbound.measures import unregister

pytestmark = pytest.mark.full("tests of the benchmarks")


@pytest.fixture
def module():
    """The module, which defines a measure when it is imported."""
    imported = importlib.import_module("benchmarks.quality.reciprocal_ranks")
    yield imported
    unregister("ReciprocalRanks")
    del sys.modules["benchmarks.quality.reciprocal_ranks"]


@pytest.mark.parametrize("relevant", [1, 2, 4])
def test_counting_items_below_gives_reciprocal_ranks_up_to_a_factor_and_a_constant(relevant):
    n = 5
    for ranks in itertools.permutations(range(1, n + 1), relevant):
        below = [sum(other >= rank for other in range(1, n + 1)) for rank in ranks]  # with the item itself
        by_code = sum(count / rank for count, rank in zip(below, ranks, strict=True))
        assert by_code == pytest.approx((n + 1) * sum(1 / rank for rank in ranks) - relevant)


def test_the_loss_is_minus_the_sum_of_reciprocal_smooth_ranks(module):
    assert module.NAME
    scores, labels = np.array([0.3, -1.2, 2.0, 0.1]), np.array([0, 1, 1, 0])
    ranks = 0.5 + (1 / (1 + np.exp(scores[:, None] - scores))).sum(axis=1)  # 1/2 of an item's step against itself
    value = get_loss("ReciprocalRanks")(torch.tensor(scores), labels, [0, 4]).item()
    assert value == pytest.approx(-(labels / ranks).sum())


def test_the_study_has_the_published_numbers_of_the_ap_loss(module, tmp_path):
    path = module.write_study(tmp_path / "new")
    published = pl.read_csv(path.with_name(f"{module.NAME}.published.csv"))
    assert published.height == 2 * 3 * 6  # splits, negative ratios, measures
    assert set(published["loss"]) == {"ReciprocalRanks"}
    assert published.filter(nsr=5, fold=1, measure="AP")["published"].to_list() == [0.7241]


def test_distances_are_means_over_the_rows_of_both_tables(module, tmp_path):
    rows = {"table": ["listwise"] * 3 + ["pairwise"], "loss": ["nDCG", "AP", "AP", "lambda-AP"]}
    pl.DataFrame(rows | {"difference": [-0.01, 0.03, None, 9.0]}).write_csv(tmp_path / "insights-fig1.csv")
    rows = {"table": ["listwise"], "loss": ["ReciprocalRanks"], "difference": [-0.02]}
    pl.DataFrame(rows).write_csv(tmp_path / f"{module.NAME}.csv")
    found = module.distances(tmp_path)
    assert found["nDCG, RR and nRBP"] == (0.01, 1)
    assert found["all, AP by the formula"] == (pytest.approx((0.01 + 0.03) / 2), 2)
    assert found["all, AP by the code"] == (pytest.approx((0.01 + 0.02) / 2), 2)
