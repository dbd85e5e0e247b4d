"""Names of measures: parse, print, hash, aliases, and errors that help."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from rankbound import parse_measure
from rankbound.errors import MeasureError
from rankbound.measures import Measure, definitions, get_definition, parse_measures
from rankbound.measures.description import reference_page
from rankbound.testing.strategies import CATALOG, measures


@given(measures())
def test_every_name_reads_back_as_itself(measure):
    assert parse_measure(str(measure)) == measure
    assert hash(parse_measure(str(measure))) == hash(measure)
    bounded = parse_measure(f"UL2({measure})")
    assert bounded.plain == measure
    assert parse_measure(str(bounded)) == bounded


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("map", "AP"),
        ("MAP", "AP"),
        ("mrr@10", "RR@10"),
        ("recip_rank", "RR"),
        ("ndcg", "nDCG"),
        ("NDCG@10", "nDCG@10"),
        ("ndcg_cut_10", "nDCG@10"),
        ("ndcg_cut.10", "nDCG@10"),
        ("ndcg_burges@5", "nDCG(dcg='exp-log2')@5"),
        ("P_5", "P@5"),
        ("precision@5", "P@5"),
        ("recall_100", "R@100"),
        ("Recall@100", "R@100"),
        ("hit_rate@3", "Success@3"),
        ("HR@3", "Success@3"),
        ("Hit@3", "Success@3"),
        ("HitRate@3", "Success@3"),
        ("AUC", "PairAcc"),
        ("MAP_min@3", "AP(div='min')@3"),
        ("EM(HR@3)", "EM(Success@3)"),
        ("success_3", "Success@3"),
        ("r_precision", "Rprec"),
        ("map_cut_20", "AP@20"),
        ("rbp", "RBP(gain='graded', p=0.9)"),
        ("rbp.95", "RBP(p=0.95)"),
        (" UL2( nDCG @ 10 ) ", "UL2(nDCG@10)"),
        ('nDCG(dcg="exp-log2")@5', "nDCG(dcg='exp-log2')@5"),
        ("AP(rel=1)", "AP"),
    ],
)
def test_aliases(alias, name):
    assert str(parse_measure(alias)) == name


@pytest.mark.parametrize(
    "name", ["nDCG@10", "AP(rel=2)@100", "RBP(p=0.9)", "nDCG(dcg='exp-log2')@5", "RR@10", "ERR@20"]
)
def test_our_names_are_names_of_ir_measures(name):
    ir_measures = pytest.importorskip("ir_measures")
    assert str(ir_measures.parse_measure(name)) == str(parse_measure(name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nDGC@10", r"unknown measure 'nDGC@10'; nearest names: nDCG"),
        ("precison@5", "nearest names: P"),
        ("nDCG@-3", "the cutoff k must be a positive integer, got -3"),
        ("nDCG@0", "the cutoff k must be a positive integer, got 0"),
        ("nDCG@ten", "the cutoff k must be a positive integer, got ten"),
        ("P", "P needs a cutoff"),
        ("U@5", "U takes no cutoff"),
        ("AP(p=0.5)", "AP has no parameter 'p'"),
        ("RBP(p=1.5)", "p of RBP must be a number between 0 and 1, got 1.5"),
        ("RBP(p='x')", "p of RBP must be a number between 0 and 1, got 'x'"),
        ("AP(rel=0)", r"rel of AP must be a positive number up to 2\^31, got 0"),
        ("AP(div='half')@5", "div of AP must be"),
        ("AP(div='k')", "needs a cutoff"),
        ("AP(variant='published')@5", "div='k' only"),
        ("nDCG(dcg=)@5", "cannot read the parameters"),
        ("UL2(MM(AP))", "one bounding, got two"),
        ("", "cannot read measure ''"),
        ("nDCG@10; import os", "cannot read measure"),
    ],
)
def test_errors_in_names_say_what_is_wrong(name, message):
    with pytest.raises(MeasureError, match=message):
        parse_measure(name)


def test_only_names_and_measures_are_measures():
    with pytest.raises(MeasureError, match="a measure must be a name such as 'nDCG@10', got 10"):
        parse_measure(10)


def test_a_measure_built_by_hand_equals_the_parsed_one():
    assert Measure(get_definition("AP"), 5, (("rel", 2),)) == parse_measure("AP(rel=2)@5")


def test_the_catalog_of_tests_has_every_measure():
    assert {measure.name for measure in CATALOG} == {definition.name for definition in definitions()}


def test_the_reference_page_is_the_one_that_the_definitions_give():
    """After a change, write it again: python -m rankbound.measures.description > docs/reference/measures.md"""
    page = Path(__file__).parents[1] / "docs" / "reference" / "measures.md"
    assert page.read_text() == reference_page()


@pytest.mark.parametrize(
    ("ranx", "ours"),
    {
        "hits@10": "NumRet(rel=1)@10", "hit_rate@10": "Success@10", "precision@10": "P@10", "recall@10": "R@10",
        "f1@10": "SetF@10", "r-precision": "Rprec", "bpref": "Bpref", "rbp.95": "RBP(p=0.95)", "mrr@10": "RR@10",
        "map@10": "AP@10", "dcg@10": "DCG@10", "dcg_burges@10": "DCG(dcg='exp-log2')@10", "ndcg@10": "nDCG@10",
        "ndcg_burges@10": "nDCG(dcg='exp-log2')@10",
    }.items(),
)  # fmt: skip
def test_names_of_ranx(ranx, ours):
    assert str(parse_measure(ranx)) == ours


def test_one_measure_or_an_iterable_of_them():
    assert list(parse_measures("nDCG@10")) == ["nDCG@10"]
    assert list(parse_measures(name for name in ("map", "P_5"))) == ["map", "P_5"]
    with pytest.raises(MeasureError, match="measures must be names such as 'nDCG@10', got 3"):
        parse_measures(3)
