"""Tables larger than memory: chunks of whole queries give what the whole table gives."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankbound import evaluate
from rankbound.data import large
from rankbound.errors import DataError

MEASURES = ["nDCG@5", "AP", "UL2(nDCG@5)", "RR"]


@pytest.fixture
def table():
    """Queries of 1 to 40 rows, some without anything relevant."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 40, 60)
    qid = np.repeat([f"q{k:02d}" for k in rng.permutation(60)], sizes)
    return pl.DataFrame(
        {
            "qid": qid,
            "docid": np.concatenate([np.arange(size) for size in sizes]),
            "label": rng.integers(0, 3, len(qid)) * (rng.random(len(qid)) < 0.3),
            "score": rng.normal(size=len(qid)).round(1),
        }
    )


def same(one, other):
    left, right = one.per_query.sort("qid"), other.per_query.sort("qid")
    assert left.equals(right, null_equal=True)
    assert one.mean() == pytest.approx(other.mean())


@pytest.mark.parametrize("rows", [1, 7, 50, 10_000])
def test_scored_table(table, tmp_path, monkeypatch, rows):
    table.write_parquet(tmp_path / "scored.parquet")
    from rankbound import Lists

    whole = evaluate(Lists.from_frame(table), measures=MEASURES, bounds=True)
    monkeypatch.setattr(large, "ROWS", rows)
    same(evaluate(tmp_path / "scored.parquet", measures=MEASURES, bounds=True), whole)


@pytest.mark.parametrize("missing", ["ignore", "zero"])
@pytest.mark.parametrize("rows", [1, 50, 10_000])
def test_run_with_judgments_apart(table, tmp_path, monkeypatch, rows, missing):
    queries = table["qid"].unique().sort()
    qrels = table.filter(pl.col("label") > 0, pl.col("qid") != queries[3]).select("qid", "docid", "label")
    run = table.filter(pl.col("qid") != queries[8]).select("qid", "docid", "score")
    run.write_parquet(tmp_path / "run.parquet")
    whole = evaluate(qrels, run, MEASURES, missing=missing)
    monkeypatch.setattr(large, "ROWS", rows)
    same(evaluate(qrels, str(tmp_path / "run.parquet"), MEASURES, missing=missing), whole)


def test_numbers_and_names_of_queries_meet(tmp_path, monkeypatch):
    run = pl.DataFrame({"qid": [1, 1, 2], "docid": ["a", "b", "a"], "score": [0.1, 0.2, 0.3]})
    run.write_parquet(tmp_path / "run.parquet")
    monkeypatch.setattr(large, "ROWS", 2)
    result = evaluate({"1": {"a": 1}, "2": {"a": 1}}, tmp_path / "run.parquet", ["RR"])
    assert result.values["RR"].tolist() == [0.5, 1.0]


@pytest.mark.parametrize("again", [0, 1, 17, 39, 58])
def test_scattered_queries_are_shuffled_or_refused(tmp_path, monkeypatch, again):
    path = tmp_path / "t.parquet"
    names = [*(f"q{i}" for i in range(60)), f"q{again}"]
    pl.DataFrame({"qid": names, "label": 1, "score": 1.0}).write_parquet(path)
    monkeypatch.setattr(large, "ROWS", 3)
    rows = rf"t\.parquet \(row {again + 1}\) and \S+t\.parquet \(row 61\)"
    with pytest.raises(DataError, match=rf"the rows of query 'q{again}' are split over \S+{rows}: sort the table"):
        evaluate(path, measures="AP", shuffle=False)
    assert evaluate(path, measures="AP").queries == 60
    pl.read_parquet(path)[:-1].write_parquet(path)
    assert evaluate(path, measures="AP", shuffle=False).queries == 60


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not parquet", "cannot be read"),
        (None, "no such file"),
        ({"qid": [1], "score": [0.5]}, "no column for label"),
        ({"qid": [], "label": [], "score": []}, "no queries"),
    ],
)
def test_bad_tables(tmp_path, content, message):
    path = tmp_path / "t.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        pl.DataFrame(content, schema_overrides={name: pl.Float64 for name in ("label", "score") if name in content}
                     ).write_parquet(path)  # fmt: skip
    with pytest.raises(DataError, match=message):
        evaluate(path, measures=["AP"])


def test_no_query_in_common(tmp_path):
    pl.DataFrame({"qid": ["x"], "docid": ["a"], "score": [1.0]}).write_parquet(tmp_path / "run.parquet")
    with pytest.raises(DataError, match="common"):
        evaluate({"y": {"a": 1}}, tmp_path / "run.parquet", ["AP"])
