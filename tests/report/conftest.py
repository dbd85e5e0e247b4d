"""Score tables to make pages from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
import pytest


def score_rows(system: str, values: Mapping[str, Sequence[float | None]], **columns: object) -> pl.DataFrame:
    """A system's rows of a score table; queries are q1, q2, ... of 10 items, 3 of them relevant."""
    count = len(next(iter(values.values())))
    fixed = {"data": "set A", "variant": "", "system": system, "fold": 0, "seed": 0} | columns
    return pl.DataFrame(
        {"qid": [f"q{number}" for number in range(1, count + 1)], "items": [10] * count, "relevant": [3] * count}
        | {name: pl.Series(list(value), dtype=pl.Float64) for name, value in values.items()}
    ).select(*(pl.lit(value).alias(name) for name, value in fixed.items()), pl.all())


@pytest.fixture(scope="session")
def rows() -> Callable[..., pl.DataFrame]:
    """`score_rows`."""
    return score_rows


@pytest.fixture(scope="session")
def scores() -> pl.DataFrame:
    """Three systems on two data sets of 60 queries each; the third is clearly best, the first two are alike."""
    random = np.random.default_rng(5)
    frames = []
    for data in ("set A", "set B"):
        size, ease = random.integers(4, 80, 60), random.uniform(0.2, 0.8, 60)
        for system, gain in (("low", 0.0), ("alike", 0.0), ("high", 0.15)):
            value = np.clip(ease + gain + random.normal(0, 0.05, 60), 0, 1)
            frames.append(
                score_rows(system, {"nDCG@10": value, "AP": value**2}, data=data).with_columns(
                    pl.Series("items", size), pl.Series("relevant", np.maximum(1, size // 4))
                )
            )
    return pl.concat(frames)


@pytest.fixture(scope="session")
def results() -> pl.DataFrame:
    """Two settings beside published numbers, one far from ours."""
    return pl.DataFrame(
        {
            "data": ["set A", "set A"],
            "bounding": ["none", "min-max"],
            "measure": ["nDCG@10", "nDCG@10"],
            "published": [0.61, 0.80],
            "ours": [0.60, 0.70],
            "difference": [-0.01, -0.10],
            "ci_low": [0.58, 0.68],
            "ci_high": [0.62, 0.72],
            "versus": [None, "none"],
            "p_value": [None, 0.01],
        }
    )
