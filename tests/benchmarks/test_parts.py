"""Every part runs at small sizes, with and without its peers, and computes the same values as the peers."""

from __future__ import annotations

import sys

import pytest

from benchmarks import scale
from benchmarks.records import Growth, Row
from benchmarks.runner import PARTS, run_parts, select_parts
from rankbound.errors import ArgumentError

pytestmark = pytest.mark.full("tests of the benchmarks")

OPTIONAL = ("ranx", "rax", "keras_rs")  # peers that are usually absent where the tests run
PEERS = {
    "evaluation": {"pytrec_eval", "ir_measures", "scikit-learn ndcg_score, with ties", "python -c 'import numpy'"},
    "distributions": {"3,000 permutations", "3,000 drawn rank by rank", "3,000 graded permutations", "10 seconds"},
    "losses": {"torch N x N per query", "torch padded", "NDCGLoss", "direct sums", "1 second"},
    "objectives": {"lambdarank of lightgbm", "rank:ndcg of xgboost"},
    "metrics": {"a round of lightgbm", "a round of xgboost"},
    "reading": {"load_svmlight_file", "rng.choice user by user"},
    "factorization": {"torch padded", "torch flat, fused loss", "4.4 x the pairs once"},
    "scale": {"ours, whole table at once", "1 second per million", "1 second"},
    "torch_metrics": {"RetrievalNormalizedDCG of torchmetrics"},
}
SLOW = ("evaluation", "distributions", "losses")  # half a minute each, even at small sizes
MISSING = {"evaluation": {"ranx"}, "losses": {"rax", "keras_rs"}}
COMPARED = {
    "evaluation": 7,
    "distributions": 7,
    "losses": 9,
    "objectives": 0,
    "metrics": 8,
    "reading": 2,
    "factorization": 2,
    "scale": 2,
    "torch_metrics": 1,
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Without the peers that compile, and without processes for memory, which are tested on their own."""
    for module in OPTIONAL:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("benchmarks.curves.peaks", lambda module, curve, way, sizes, folder: (2.0,) * len(sizes))


@pytest.mark.parametrize("part", [pytest.param(part, marks=pytest.mark.slow if part in SLOW else ()) for part in PARTS])
def test_a_part_agrees_with_its_peers(part):
    reported = []
    outcome = run_parts([part], quick=True, scale_rows=20_000, on_finding=lambda _, finding: reported.append(finding))
    rows, growth = outcome.rows[part], outcome.growth[part]
    assert PEERS[part] <= {row.peer for row in rows}
    assert [row for row in rows if row.differs] == []
    assert sum(row.difference is not None for row in rows) == COMPARED[part]
    assert all(row.ours > 0 and row.theirs > 0 and row.bar is None for row in rows)
    assert {peer.peer for peer in outcome.missing} == MISSING.get(part, set())
    assert {line.way for line in growth} >= {"rankbound"}
    assert all(len(line.seconds) == len(line.sizes) >= 2 and min(line.seconds) > 0 for line in growth)
    assert outcome.inputs[part]
    assert [finding for finding in reported if isinstance(finding, Growth)] == growth
    assert len([finding for finding in reported if isinstance(finding, Row)]) == len(rows)


def test_a_part_reports_a_missing_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = run_parts(["losses"], quick=True)
    assert [str(peer) for peer in outcome.missing] == ["torch is not installed: pip install torch"]
    assert outcome.rows == {"losses": []}


def test_parts_are_run_in_their_order_and_once():
    assert select_parts([]) == PARTS
    assert select_parts(["reading", "distributions", "distributions"]) == ("distributions", "reading")
    with pytest.raises(ArgumentError, match="unknown part distribution; the parts are evaluation, distributions"):
        select_parts(["distribution"])


def test_sizes_of_the_large_file_are_whole_blocks():
    assert scale.sizes_up_to(10_000_000) == (1_250_000, 2_500_000, 5_000_000, 10_000_000)
    assert scale.sizes_up_to(100_000_000)[-1] == 100_000_000
    assert scale.sizes_up_to(1) == (2_500, 5_000, 10_000, 20_000)
