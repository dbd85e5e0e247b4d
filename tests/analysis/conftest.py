"""Score tables to analyze."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pytest


@pytest.fixture
def score_table() -> Callable[..., pl.DataFrame]:
    """A score table from the values of each system: ``score_table({"a": [0.5, 0.4]}, measure="nDCG")``."""

    def make(
        values: Mapping[str, Sequence[float | None]],
        measure: str = "nDCG",
        items: Sequence[int] | int = 10,
        relevant: Sequence[int] | int = 3,
        **fixed: object,
    ) -> pl.DataFrame:
        parts = []
        for system, scores in values.items():
            count = len(scores)
            columns = {"data": "d", "variant": "", "system": system, "fold": 0, "seed": 0} | fixed
            sizes = {"items": items, "relevant": relevant}
            parts.append(
                pl.DataFrame(
                    {"qid": [f"q{i}" for i in range(count)]}
                    | {name: [size] * count if isinstance(size, int) else size for name, size in sizes.items()}
                    | {measure: pl.Series(list(scores), dtype=pl.Float64)}
                ).select(*(pl.lit(value).alias(name) for name, value in columns.items()), pl.all())
            )
        return pl.concat(parts)

    return make
