"""Spark DataFrames in local mode: the bits of `rankbound.evaluate`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest

import rankbound as rb

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore"),  # of pyspark and its dependencies
    pytest.mark.full("starts a JVM"),
]

MEASURES = ["nDCG@10", "AP", "ERR", "EM(nDCG@10)"]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for all tests, because a JVM takes seconds to start."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    locale = pytest.MonkeyPatch()
    locale.setenv("LC_ALL", "C.UTF-8")  # in the locale C, a JVM fails in a folder whose name is not ASCII
    builder = SparkSession.builder.master("local[2]").appName("rankbound")
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "3", "spark.driver.host": "127.0.0.1"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    locale.undo()
    yield session
    session.stop()


def tables(queries: int = 30) -> tuple[pl.DataFrame, pl.DataFrame]:
    random = np.random.default_rng(0)
    qid, docid = np.repeat(np.arange(queries), 8), np.tile(np.arange(8), queries)
    qrels = pl.DataFrame({"qid": qid, "docid": docid, "label": random.integers(0, 3, len(qid))})
    run = pl.DataFrame({"qid": qid, "docid": docid + 2, "score": random.integers(0, 5, len(qid)) / 7})
    return qrels.filter(pl.col("qid") != 3), run.filter(pl.col("qid") != 5)


def test_bits_are_those_of_one_machine(spark: Any) -> None:
    qrels, run = tables()
    frames = [spark.createDataFrame(table.to_pandas()) for table in (qrels, run)]
    whole = rb.evaluate(qrels, run, MEASURES, bounds=True, missing="zero")
    for partitions in (3, 4):
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        result = rb.evaluate(*frames, MEASURES, bounds=True, missing="zero")
        assert result.to_dict() == whole.to_dict()
        assert result.interval(resamples=100) == whole.interval(resamples=100)
        assert result.coverage == whole.coverage
        assert result.coverage.judged == whole.coverage.judged
        by_text = whole.per_query.with_columns(pl.col("qid").cast(pl.String)).sort("qid")
        assert result.per_query.equals(by_text)
    scored = qrels.join(run, on=["qid", "docid"]).drop("docid")
    expected = rb.evaluate(rb.Lists.from_frame(scored), measures=MEASURES)
    assert rb.evaluate(spark.createDataFrame(scored.to_pandas()), measures=MEASURES).mean() == expected.mean()
    with pytest.raises(rb.errors.DataError, match="no column for score"):
        rb.evaluate(*frames[:1], frames[0], MEASURES)
    other = spark.createDataFrame(run.with_columns(pl.col("qid") + 1000).to_pandas())
    with pytest.raises(rb.errors.DataError, match="there are no queries to evaluate"):
        rb.evaluate(frames[0], other, MEASURES)


def test_arguments_are_checked(spark: Any) -> None:
    qrels, run = tables()
    judged, ranked = (spark.createDataFrame(table.to_pandas()) for table in (qrels, run))
    with pytest.raises(rb.errors.ArgumentError, match="candidates must be 'judged' or 'returned'"):
        rb.evaluate(judged, ranked, "AP", candidates="column:pool")
    with pytest.raises(rb.errors.ArgumentError, match="must both be Spark DataFrames"):
        rb.evaluate(qrels, ranked, "AP")
    with pytest.raises(rb.errors.ArgumentError, match="STD"):
        rb.evaluate(judged, ranked, "STD(AP)")


def test_several_runs_are_evaluated_and_compared(spark: Any) -> None:
    qrels, run = tables()
    frames = [spark.createDataFrame(table.to_pandas()) for table in (qrels, run, run.filter(pl.col("docid") > 3))]
    results = rb.evaluate(frames[0], {"all": frames[1], "some": frames[2]}, MEASURES)
    assert results["all"].mean() == rb.evaluate(qrels, run, MEASURES).mean()
    ours = rb.compare(frames[1], frames[2], qrels=frames[0], measures=["AP"])
    theirs = rb.compare(run, run.filter(pl.col("docid") > 3), qrels=qrels, measures=["AP"])
    assert ours.scores.means("AP").tolist() == theirs.scores.means("AP").tolist()
