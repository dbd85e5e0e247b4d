"""What the errata say of the meta-evaluation, recomputed from the means that the paper prints."""

from __future__ import annotations

import polars as pl
import pytest

from rankbound.studies.meta_evaluation import percentage_absolute_difference, swap_rate
from rankbound.studies.study_files import study_path

NDCG, UL1, UL2_SP = "nDCG(dcg='exp-log2')", "UL1(nDCG(dcg='exp-log2')", "UL2(SP"


def printed_means(data: str, family: str) -> list[float]:
    """Mean over the cutoffs of a family of measures, for each of the eight rankers."""
    table = pl.read_csv(study_path("ul-tables").with_suffix("").with_suffix(".published.csv"))
    rows = table.filter(pl.col("data") == data, pl.col("measure").str.starts_with(f"{family}@"))
    means = rows.group_by("model").agg(pl.col("published").mean()).sort("model")["published"].to_list()
    assert len(means) == 8
    return means


@pytest.mark.parametrize("family", [NDCG, UL1])
def test_swap_rate(family):
    rate = swap_rate(printed_means("mslr-sample", family), printed_means("mq2007", family))
    assert rate == pytest.approx(2 / 28)  # the paper prints 0.107, which is 3 / 28


@pytest.mark.parametrize(
    ("data", "family", "recomputed"),
    [("mslr-sample", NDCG, 29.8), ("mq2007", UL1, 2.11), ("mq2007", UL2_SP, 22.9)],
)
def test_percentage_absolute_difference(data, family, recomputed):
    assert percentage_absolute_difference(printed_means(data, family)) == pytest.approx(recomputed, rel=0.01)
