"""Which measures distinguish rankers best: tables 6 to 11 and 16 to 21 of the paper behind ``ul-tables``.

The same quantities are computed for real systems, the runs of TREC-COVID, which the paper does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankbound.studies.store import Store
from rankbound.studies.trial_spec import TrialSlot

if TYPE_CHECKING:
    import polars as pl

_PUBLISHED = Path(__file__).with_name("papers") / "ul-tables.meta-evaluation.csv"
_CUTOFFS = (5, 10, 15, 20, 30)
_NDCG = "nDCG(dcg='exp-log2')"
# The first measure of each group is the one that the others are compared with.
_FAMILIES = (
    {"nDCG@k": f"{_NDCG}@{{}}", "UL1(nDCG@k)": f"UL1({_NDCG}@{{}})", "UL2(nDCG@k)": f"UL2({_NDCG}@{{}})"},
    {"AP@k": "AP(div='min')@{}", "UL1(SP@k)": "UL1(SP@{})", "UL2(SP@k)": "UL2(SP@{})"},
)
_QUOTA = {"mq2007": 0.5}  # of the queries are uninformative, and as many ideal: 500 of 1,000 in the paper
_DEFAULT_QUOTA = 0.25
_NOT_PUBLISHED = ("conflict fraction", "significant fraction")
_KEYS = ("quantity", "measure", "versus", "data", "set")
_NOTES = {
    "mslr-sample": "published number is of MSLR-WEB30K, for which the sample stands in",
    "mq2007": "ours is of 85 % of the rows and all 1,692 queries, published of 1,000 queries",
    "mslr-sample | mq2007": "published number is of MSLR-WEB30K, for which the sample stands in, and MQ2007",
}
_RUNS = "trec-covid-round1"


def meta_tables(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """Quantity, measure, versus, data, set; table and number of the paper where it has one; ours and the difference.

    The table is empty where fewer than two rankers have been run.
    """
    import polars as pl

    from rankbound.studies.meta_evaluation import meta_evaluation
    from rankbound.studies.results import score_table

    published = pl.read_csv(_PUBLISHED, schema_overrides={"table": pl.String}).with_columns(
        pl.col("versus").fill_null("")
    )
    scores = _complete(score_table(store, slots))
    tables = []
    for families in _families() if not scores.is_empty() else ():
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
            pl.when(pl.col("published").is_not_null())
            .then(pl.col("data").replace_strict(_NOTES, default=""))
            .otherwise(pl.lit(""))
            .alias("note"),
        )
    )


def real_systems(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """The meta-evaluation of the official runs of TREC-COVID, which needs no trials; empty if the runs are not here."""
    import polars as pl

    from rankbound.data.catalog import find_entry
    from rankbound.data.loading import load_set
    from rankbound.data.set_files import present_files
    from rankbound.evaluation.alignment import align_runs
    from rankbound.studies.meta_evaluation import meta_evaluation

    if present_files(find_entry(_RUNS)) is None:
        return pl.DataFrame(schema=dict.fromkeys(_KEYS, pl.String) | {"value": pl.Float64})
    data = load_set(_RUNS)
    names = [name for families in _families() for family in families.values() for name in family]
    scores = align_runs(data.qrels, list(data.runs.values()), names, names=list(data.runs), data=_RUNS).to_table()
    tables = [meta_evaluation(scores, families, quota=_DEFAULT_QUOTA) for families in _families()]
    return pl.concat(tables).with_columns(pl.col("versus").fill_null(""))


def _families() -> list[dict[str, list[str]]]:
    """The measures of each family of each group, one per cutoff."""
    return [{family: [name.format(k) for k in _CUTOFFS] for family, name in group.items()} for group in _FAMILIES]


def _complete(scores: pl.DataFrame) -> pl.DataFrame:
    """The scores of the data sets on which all rankers of the study were run, if there are at least two rankers."""
    import polars as pl

    if scores.is_empty():
        return scores
    systems = scores["system"].n_unique()
    whole = pl.col("system").n_unique().over("data") == systems
    return scores.filter(whole) if systems > 1 else scores.clear()
