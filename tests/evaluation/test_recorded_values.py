"""Means of the whole catalog under every protocol are those of version 0.2, which recorded.csv has.

Version 0.2 wrote the file, on the queries below. Bpref, infAP and IPrec are left out: 0.3 changed them on purpose.
"""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

import pytest

import rankbound as rb
from rankbound.measures.registry import definitions
from rankbound.protocol import EMPTY, TIES

RECORDED = Path(__file__).with_name("recorded.csv")
CHANGED = {"Bpref", "infAP", "IPrec"}
QUERIES = range(12)
QRELS = {f"q{q}": {f"d{d}": (q * d + d * d // 3) % (4 if q % 4 else 1) for d in range(2 + q % 7)} for q in QUERIES}
RUN = {
    f"q{q}": {f"d{d}": float((3 * q + d * d) % 4) for d in range(2 + q % 9) if (q + d) % 5}
    for q in QUERIES
    if q % 6 != 5
}
EXPLICIT = {query: [*documents, "d11", "d8"] for query, documents in QRELS.items()}
CANDIDATES = {"judged": "judged", "returned": "returned", "explicit": EXPLICIT}


def rows() -> list[list[str]]:
    with RECORDED.open(newline="") as file:
        return list(csv.reader(file))


def means(measure: str) -> list[str]:
    """The mean of a measure for all ties, policies of empty queries and candidates, one after the other."""
    found = []
    for ties, empty, candidates in product(TIES, EMPTY, CANDIDATES):
        result = rb.evaluate(QRELS, RUN, measure, ties=ties, empty=empty, candidates=CANDIDATES[candidates])
        found.append(f"{result.mean()[measure]:.10g}")
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_means_are_those_of_version_0_2(row):
    name, *recorded = row
    expected = [float(mean) for mean in recorded]
    assert [float(mean) for mean in means(name)] == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_every_measure_is_recorded():
    recorded = {rb.parse_measure(name).name for name, *_ in rows()}
    assert recorded == {one.name for one in definitions() if one.built_in} - CHANGED
