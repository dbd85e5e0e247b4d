"""The cost model and the generated tables of benchmarks/workers.py."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.workers import CostModel, Measurement, fit, generate

pytestmark = pytest.mark.full("tests of the benchmarks")


def test_the_model_is_found_from_its_own_times() -> None:
    true = CostModel(start=2.0, per_row=3e-7, efficiency=0.9, bytes_per_row=4.0)
    runs = [
        Measurement("scored", rows, workers, true.seconds(rows, workers), 200.0, 200.0, 4 * rows)
        for rows in (10**6, 10**7, 10**8)
        for workers in (1, 2)
    ]
    model = fit(runs)
    assert model.seconds(1e10, 100) == pytest.approx(true.seconds(1e10, 100), rel=1e-6)
    assert model.bytes_per_row == pytest.approx(4.0)


@pytest.mark.parametrize("tables", ["scored", "two", "strings"])
def test_generated_tables_have_whole_queries(tables: str, tmp_path: Path) -> None:
    patterns = generate(tables, 2_000, tmp_path)
    for pattern in patterns:
        table = pl.read_parquet(pattern)
        assert len(table) == 2_000
        assert table["qid"].n_unique() == 20
    assert generate(tables, 2_000, tmp_path) == patterns  # what exists is kept
