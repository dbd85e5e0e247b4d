"""Score tables of runs that were just evaluated: what `write_page` takes, without a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.difficulty import bounds_of
from rankbound.measures import LabelCounts, parse_measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from rankbound.analysis.runs import SharedQueries

__all__ = ["candidate_counts", "score_table"]


def score_table(shared: SharedQueries, names: Sequence[str], counts: LabelCounts, data: str) -> pl.DataFrame:
    """The score table of runs on the queries that they share; ``counts`` are the labels of these queries."""
    import polars as pl

    first = next(iter(shared.values))
    types = shared.types.get(first)
    queries = {
        "qid": [str(name) for name in shared.query_ids],
        "items": counts.sizes,
        "relevant": counts.relevant(1),
        "type": None if types is None else types,
        "expected": bounds_of(parse_measure(first).plain, counts).expected,
    }
    return pl.concat(
        pl.DataFrame(queries | {measure: value[place] for measure, value in shared.values.items()}).select(
            pl.lit(data).alias("data"),
            pl.lit("").alias("variant"),
            pl.lit(name).alias("system"),
            pl.lit(0).alias("fold"),
            pl.lit(0).alias("seed"),
            pl.all(),
        )
        for place, name in enumerate(names)
    )


def candidate_counts(
    qrels: pl.DataFrame,
    runs: Sequence[pl.DataFrame],
    query_ids: Sequence[object],
    *,
    judged_only: bool = False,
    depth: int | None = None,
) -> LabelCounts:
    """Labels of the candidates of each query, what was judged or returned by any run, as `compare` sees them."""
    import polars as pl

    text = [pl.col(name).cast(pl.String) for name in ("qid", "docid")]
    parts = [qrels.select(*text, pl.col("label").cast(pl.Float64))]
    if not judged_only:
        parts += [run.select(*text, pl.lit(0.0).alias("label")) for run in runs]
    queries = pl.DataFrame({"qid": [str(name) for name in query_ids]}).with_row_index("place")
    candidates = (
        pl.concat(parts)
        .unique(["qid", "docid"], keep="first", maintain_order=True)
        .join(queries, on="qid", how="inner")
        .sort("place", maintain_order=True)
    )
    sizes = np.bincount(candidates["place"].to_numpy(), minlength=len(queries))
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    depths = None if depth is None else np.minimum(sizes, depth)
    return LabelCounts.from_labels(candidates["label"].to_numpy(), offsets, depths)
