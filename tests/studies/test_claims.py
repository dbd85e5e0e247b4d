"""Claims of a paper, tested on the intervals of differences."""

from __future__ import annotations

import polars as pl
import pytest

from rankbound.errors import ArgumentError
from rankbound.studies.claims import judge_claims
from rankbound.studies.spec import Claim
from rankbound.studies.study_files import load_study

RESULTS = pl.DataFrame(
    {
        "loss": ["nDCG", "nDCG", "AP", "AP", "RR"],
        "nsr": ["1", "2", "1", "2", "1"],
        "versus_low": [0.1, 0.2, -0.1, -0.5, None],
        "versus_high": [0.3, 0.4, 0.1, -0.2, None],
    }
)


@pytest.mark.parametrize(
    ("where", "expect", "word", "counts"),
    [
        ({"loss": ["nDCG"]}, "above", "confirmed", (2, 0, 0)),
        ({"loss": ["nDCG"]}, "below", "refuted", (0, 2, 0)),
        ({"nsr": [1], "loss": ["nDCG", "AP"]}, "above", "partly confirmed", (1, 0, 1)),
        ({"loss": ["AP"], "nsr": [1]}, "above", "unclear", (0, 0, 1)),
        ({"loss": ["AP"]}, "above", "refuted", (0, 1, 1)),
        ({"nsr": [2]}, "above", "mixed", (1, 1, 0)),
        ({"loss": ["RR"]}, "above", "not tested", (0, 0, 0)),
        ({"model": ["any"]}, "above", "not tested", (0, 0, 0)),
    ],
)
def test_verdicts(where, expect, word, counts):
    (verdict,) = judge_claims([Claim(claim="It is so", where=where, expect=expect)], RESULTS)
    assert (verdict.agree, verdict.disagree, verdict.unclear) == counts
    assert verdict.word == word
    assert verdict.sentence.startswith("It is so: ")


def test_similar_rows_lie_within_the_margin():
    """Intervals 0.1 to 0.3, 0.2 to 0.4, -0.1 to 0.1 and -0.5 to -0.2."""
    for margin, counts in ((0.35, (2, 0, 2)), (0.15, (1, 2, 1)), (0.05, (0, 3, 1))):
        (verdict,) = judge_claims([Claim(claim="x", expect="similar", margin=margin)], RESULTS)
        assert (verdict.agree, verdict.disagree, verdict.unclear) == counts


def test_results_without_tests():
    (verdict,) = judge_claims([Claim(claim="x")], pl.DataFrame({"loss": ["nDCG"]}))
    assert verdict.word == "not tested"


def test_claims_come_from_the_file(tmp_path):
    text = 'title = "t"\n[[tables]]\ndata = "mq2008"\nmodel = "AdaRank"\nmeasures = ["AP"]\n[[claims]]\nclaim = "c"\n'
    (tmp_path / "s.toml").write_text(text + 'where = { model = "AdaRank" }\n')
    assert load_study(str(tmp_path / "s.toml")).claims == [Claim(claim="c", where={"model": ["AdaRank"]})]
    (tmp_path / "s.toml").write_text(text + 'expected = "above"\n')
    with pytest.raises(ArgumentError, match=r"claims\[0\].expected: unknown key; did you mean expect"):
        load_study(str(tmp_path / "s.toml"))
