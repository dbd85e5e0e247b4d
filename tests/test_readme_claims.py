"""Every number of README and of the start page that comes from a study equals the committed table of that study."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = " ".join((ROOT / "README.md").read_text().split())


def row_of(table, **cells):
    """The only row of a table in docs/results with these cells."""
    with (ROOT / "docs" / "results" / table).open() as file:
        (row,) = [row for row in csv.DictReader(file) if all(row[name] == cell for name, cell in cells.items())]
    return row


def signed(text, digits, plus=""):
    return f"{float(text):{plus}.{digits}f}".replace("-", "−")


def pooled(method, reference, protocol="tuned"):
    return row_of("training-pooled.csv", protocol=protocol, group="confirmation", method=method, reference=reference)


def test_the_gain_of_the_objective_with_tuned_rounds():
    row = pooled("ours", "lambdarank")
    low, high = signed(row["ci_low"], 3), signed(row["ci_high"], 3)
    assert f"it gains {signed(row['difference'], 3)} nDCG@10 (95 % interval {low} to {high})" in README
    assert (row["sets"], row["wins"]) == ("7", "2")
    assert "on the seven confirmation sets" in README
    assert "significantly on two of them" in README


def test_there_is_no_gain_with_fixed_rounds():
    row = pooled("ours", "lambdarank", protocol="equal rounds")
    assert f"With a fixed 100 rounds there is no gain ({signed(row['difference'], 4)})" in README


def test_the_difference_to_yetirank():
    row = pooled("CatBoost YetiRank", "ours")
    low, high = signed(row["ci_low"], 3), signed(row["ci_high"], 3, "+")
    assert f"{signed(row['difference'], 3)} above ours ({low} to {high}) on four sets" in README
    assert row["sets"] == "4"


def test_the_difference_that_bounding_makes():
    row = pooled("ours, bounding", "ours")
    low, high = signed(row["ci_low"], 4), signed(row["ci_high"], 4, "+")
    assert f"by {signed(row['difference'], 4)} (95 % interval {low} to {high})" in README


def test_the_stability_of_normalized_measures():
    row = row_of("covid-stability.csv", references="all runs", quantity="Kendall tau", measure="EM(nDCG@10)")
    assert f"[{row['systems']} runs of TREC-COVID]" in README
    assert f"nDCG@10 loses {signed(row['difference'].removeprefix('-'), 3)} of Kendall's tau" in README


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_no_speed_is_stated_without_its_version(page):
    assert "times faster" not in (ROOT / page).read_text()
    assert "speed-up" not in (ROOT / page).read_text()
