"""Ranks with numbers of candidates: the values of the same rankings as lists, and the adjusted indices by formula."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound.cli.main import run as command
from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.testing.strategies import catalog

ROWS = [(1, 10), (2, 10), (10, 10), (3, 7), (1, 1), (4, 250), (120, 250)]


def lists_of(rows):
    """Every ranking as labels and scores."""
    labels = np.concatenate([np.eye(size)[rank - 1] for rank, size in rows])
    offsets = np.cumsum([0, *(size for _, size in rows)])
    return rb.Lists(labels, offsets, -np.arange(len(labels), dtype=float))


@pytest.fixture
def table():
    return pl.DataFrame(ROWS, schema=["rank", "candidates"], orient="row")


def wrapped(name):
    for wrapper in ("{}", "EM({})", "MM({})", "UL2({})", "DB({})"):
        try:
            yield str(rb.parse_measure(wrapper.format(name)))
        except RankboundError:
            continue


@pytest.mark.parametrize("name", [str(measure) for measure in catalog(range(3, 4))])
@pytest.mark.cases(12)
def test_values_are_those_of_the_rankings(name, table):
    names = list(wrapped(name))
    expected = rb.evaluate(lists_of(ROWS), names, bounds=True)
    result = rb.evaluate(table, measures=names, bounds=True)
    for measure in names:
        np.testing.assert_allclose(result.values[measure], expected.values[measure], atol=1e-12)
        assert result.empty[measure].tolist() == expected.empty[measure].tolist()
    for measure, bounds in expected.bounds.items():
        for side in ("worst", "expected", "best"):
            np.testing.assert_allclose(getattr(result.bounds[measure], side), getattr(bounds, side), atol=1e-12)


def test_adjusted_indices_are_those_of_their_formulas():
    """(mean - E) / (1 - E) with E of random ranks: (1 + 1/2 + ... + 1/N) / N for reciprocal ranks, k / N for hits."""
    table = pl.DataFrame({"rank": [1, 3, 40], "candidates": [50, 4, 200]})
    result = rb.evaluate(table, measures=["RR", "Success@10", "EM(RR)"], bounds=True)
    sizes = [50, 4, 200]
    random_rr = [sum(Fraction(1, rank) for rank in range(1, size + 1)) / size for size in sizes]
    random_hits = [min(Fraction(10, size), Fraction(1)) for size in sizes]
    rr = [Fraction(1), Fraction(1, 3), Fraction(1, 40)]
    expected = {
        "RR": (sum(rr) - sum(random_rr)) / (3 - sum(random_rr)),
        "Success@10": (Fraction(2) - sum(random_hits)) / (3 - sum(random_hits)),
    }
    means, sides = result.mean(), result.mean_bounds()
    for name, index in expected.items():
        side = sides[name]
        assert (means[name] - side["expected"]) / (side["best"] - side["expected"]) == pytest.approx(float(index))
    each = [(value - mean) / (1 - mean) for value, mean in zip(rr, random_rr, strict=True)]
    assert means["EM(RR)"] == pytest.approx(float(sum(each) / 3))


def test_a_realistic_rank_is_the_mean_of_the_ranks_next_to_it(table):
    tied = rb.evaluate(pl.DataFrame({"rank": [1.5], "candidates": [9]}), measures=["RR", "Success@1", "EM(RR)"])
    assert tied.mean()["RR"] == (1 + 1 / 2) / 2
    assert tied.mean()["Success@1"] == (1 + 0) / 2
    lists = rb.Lists([1] + [0] * 8, [0, 9], [5.0, 5.0, 4, 3, 2, 1, 0, -1, -2])
    assert tied.mean()["EM(RR)"] == pytest.approx(rb.evaluate(lists, "EM(RR)").mean()["EM(RR)"])


def test_many_ranks_among_many_candidates(table):
    rng = np.random.default_rng(0)
    sizes = rng.integers(10_000, 15_000, 5_000)
    ranks = np.minimum(rng.geometric(0.002, 5_000), sizes)
    result = rb.evaluate(pl.DataFrame({"rank": ranks, "candidates": sizes}), measures=["RR", "Success@10", "EM(RR)"])
    assert result.mean()["RR"] == pytest.approx(math.fsum(1 / ranks) / 5_000)
    assert result.mean()["Success@10"] == np.mean(ranks <= 10)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_command_reads_ranks(ending, tmp_path, table, capsys):
    path = tmp_path / f"ranks.{ending}"
    named = table.with_columns(query=pl.format("q{}", pl.int_range(pl.len())))
    named.write_csv(path) if ending == "csv" else named.write_parquet(path)
    assert command(["evaluate", str(path), "-m", "RR", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["mean"]["RR"] == pytest.approx(sum(1 / rank for rank, _ in ROWS) / len(ROWS))
    assert list(rb.evaluate(path, measures="RR").query_ids)[:2] == ["q0", "q1"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"rank": [1, 0], "candidates": [5, 5]},
            r"rank must be 1, 1\.5, 2, ... up to the number of .*, got 0 in row 2",
        ),
        ({"rank": [6], "candidates": [5]}, "got 6 in row 1"),
        ({"rank": [1.2], "candidates": [5]}, r"got 1\.2 in row 1"),
        ({"rank": [float("nan")], "candidates": [5]}, "got nan in row 1"),
        ({"rank": [1], "candidates": [0]}, "candidates must be 1, 2, ... 10,000,000, got 0"),
        ({"rank": [1], "candidates": [1.5]}, r"candidates must be .*, got 1\.5"),
        ({"rank": [1], "candidates": [10**9]}, "candidates must be .*, got 1e.09"),
        ({"rank": ["x"], "candidates": [5]}, "column 'rank' must hold a number in every row, got String"),
        ({"rank": [None, 1], "candidates": [5, 5]}, "column 'rank' must hold a number in every row"),
        ({"rank": [1, 1], "candidates": [5, 5], "qid": ["a", "a"]}, "column 'qid' must name each query once"),
        ({"rank": pl.Series([], dtype=pl.Int64), "candidates": pl.Series([], dtype=pl.Int64)}, "has no row"),
    ],
)
@pytest.mark.cases(11)
def test_rows_that_break_a_rule_are_named(rows, message):
    with pytest.raises(DataError, match=message):
        rb.evaluate(pl.DataFrame(rows), measures="RR")


def test_what_ranks_cannot_have(table):
    with pytest.raises(ArgumentError, match="depth, ties must be left out for a table of ranks"):
        rb.evaluate(table, measures="RR", ties="docid", depth=3)
    with pytest.raises(ArgumentError, match="against_random needs runs"):
        rb.evaluate(table, measures="RR", against_random=True)
    with pytest.raises(RankboundError, match="STD"):
        rb.evaluate(table, measures="STD(RR)")
