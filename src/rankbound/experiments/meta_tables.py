"""Which measures distinguish rankers best: tables 6 to 11 and 16 to 21 of the paper behind ``ul-tables``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankbound.experiments.store import Store
from rankbound.experiments.trial_spec import TrialSlot

if TYPE_CHECKING:
    import polars as pl

__all__ = ["meta_tables"]

_PUBLISHED = Path(__file__).with_name("papers") / "ul-tables.meta-evaluation.csv"
_CUTOFFS = (5, 10, 15, 20, 30)
_NDCG = "nDCG(dcg='exp-log2')"
# The first measure of each group is the one that the others are compared with.
_FAMILIES = (
    {"nDCG@k": f"{_NDCG}@{{}}", "UL1(nDCG@k)": f"UL1({_NDCG}@{{}})", "UL2(nDCG@k)": f"UL2({_NDCG}@{{}})"},
    {"AP@k": "AP(div='min')@{}", "UL1(SP@k)": "UL1(SP@{})", "UL2(SP@k)": "UL2(SP@{})"},
)
_QUOTA = {"mq2007-agg": 0.5}  # of the queries are uninformative, and as many ideal: 500 of 1,000 in the paper
_DEFAULT_QUOTA = 0.25
_NOT_PUBLISHED = ("conflict fraction", "significant fraction")
_KEYS = ("quantity", "measure", "versus", "data", "set")
_STANDS_IN = "published number is of MSLR-WEB30K or MQ2007, for which these data stand in"


def meta_tables(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """Quantity, measure, versus, data, set; table and number of the paper where it has one; ours and the difference.

    The table is empty where fewer than two rankers have been run.
    """
    import polars as pl

    from rankbound.analysis.meta_evaluation import meta_evaluation
    from rankbound.experiments.results import score_table

    published = pl.read_csv(_PUBLISHED, schema_overrides={"table": pl.String}).with_columns(
        pl.col("versus").fill_null("")
    )
    scores = _complete(score_table(store, slots))
    tables = []
    for group in _FAMILIES if not scores.is_empty() else ():
        families = {family: [name.format(k) for k in _CUTOFFS] for family, name in group.items()}
        quota = {data: _QUOTA.get(data, _DEFAULT_QUOTA) for data in scores["data"].unique()}
        tables.append(meta_evaluation(scores, families, quota=quota))
    if not tables:
        return published.clear()
    return (
        pl.concat(tables)
        .filter(~pl.col("quantity").is_in(_NOT_PUBLISHED))
        .with_columns(pl.col("versus").fill_null(""))
        .join(published, on=list(_KEYS), how="left", maintain_order="left")
        .select(
            pl.col("table").fill_null(""),
            *_KEYS,
            "published",
            pl.col("value").alias("ours"),
            (pl.col("value") - pl.col("published")).alias("difference"),
            pl.when(pl.col("published").is_not_null()).then(pl.lit(_STANDS_IN)).otherwise(pl.lit("")).alias("note"),
        )
    )


def _complete(scores: pl.DataFrame) -> pl.DataFrame:
    """The scores of the data sets on which all rankers of the study were run, if there are at least two rankers."""
    import polars as pl

    if scores.is_empty():
        return scores
    systems = scores["system"].n_unique()
    whole = pl.col("system").n_unique().over("data") == systems
    return scores.filter(whole) if systems > 1 else scores.clear()
