"""Measured lists: the values of every round are those of `rankbound.evaluate`, for every measure and wrapper."""

from __future__ import annotations

import numpy as np
import pytest

import rankbound as rb
from rankbound import kernels
from rankbound.errors import ArgumentError, DataError
from rankbound.integrations import measured_lists
from rankbound.integrations.measured_lists import MeanMeasure, MeasuredLists
from rankbound.measures.measure import BOUNDINGS
from rankbound.testing.strategies import catalog

RNG = np.random.default_rng(7)
SIZES = np.concatenate((RNG.integers(1, 25, 15), [0, 1, 2]))  # one query is empty
OFFSETS = np.concatenate(([0], np.cumsum(SIZES)))
LABELS = {
    "graded": RNG.integers(0, 4, OFFSETS[-1]),
    "negative": RNG.integers(-1, 3, OFFSETS[-1]),
    "real": RNG.integers(0, 7, OFFSETS[-1]) / 2,
    "few": 2 * (RNG.random(OFFSETS[-1]) < 0.05),
}
SCORES = {
    "distinct": RNG.normal(size=OFFSETS[-1]),
    "tied": np.round(RNG.normal(size=OFFSETS[-1])),
    "constant": np.zeros(OFFSETS[-1]),
    "float32": RNG.normal(size=OFFSETS[-1]).astype(np.float32),
}


def agree(measure: str, labels: np.ndarray) -> None:
    lists = rb.Lists(labels, OFFSETS)
    measured = MeasuredLists(lists, rb.parse_measure(measure))
    for scores in SCORES.values():
        expected = rb.evaluate(lists.with_scores(scores), measures=[measure])
        np.testing.assert_allclose(measured.values(scores), expected.values[measure], rtol=0, atol=1e-12)
        assert measured.mean(scores) == pytest.approx(expected.mean()[measure], abs=1e-12)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("kind", LABELS)
def test_every_plain_measure_has_the_values_of_evaluate(kind):
    for measure in map(str, catalog(range(3, 4))):
        agree(measure, LABELS[kind])


@pytest.mark.parametrize("wrapper", BOUNDINGS)
@pytest.mark.parametrize("measure", ["nDCG@10", "AP", "ERR@3", "RR@10", "P@5"])
def test_normalized_measures_have_the_values_of_evaluate(wrapper, measure):
    agree(f"{wrapper}({measure})", LABELS["negative" if measure == "P@5" else "graded"])


@pytest.mark.parametrize("levels", [1, 2, 7, 60, 10**9])
@pytest.mark.parametrize("measure", ["nDCG", "DCG", "AP", "RR", "P", "Rprec", "RBP", "AP(div='min')", "SP", "R"])
def test_long_lists_with_any_number_of_ties_have_the_values_of_evaluate(measure, levels):
    rng = np.random.default_rng(levels)
    sizes = np.array([300, 0, 41, 40, 39, 205, 17, 16, 1])
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    lists = rb.Lists(rng.choice(4, offsets[-1], p=[0.7, 0.1, 0.1, 0.1]), offsets)
    scores = rng.integers(0, levels, offsets[-1]).astype(np.float64)
    names = [measure] if measure == "Rprec" else [f"{measure}@{k}" for k in (1, 8, 20, 99, 150)]
    for name in [*names, *([] if "(" in measure or measure in ("P", "R") else [measure])]:
        measured = MeasuredLists(lists, rb.parse_measure(name))
        assert (measured._sums is None) == (kernels.active() == "none")
        expected = rb.evaluate(lists.with_scores(scores), measures=[name]).values[name]
        np.testing.assert_allclose(measured.values(scores), expected, rtol=0, atol=1e-12)


def test_very_long_lists_are_sorted():
    rng = np.random.default_rng(0)
    lists = rb.Lists(rng.integers(0, 2, 3000), [0, 3000])
    scores = rng.integers(0, 500, 3000).astype(np.float64)
    measured = MeasuredLists(lists, rb.parse_measure("AP"))
    assert measured._sums is None
    assert measured.mean(scores) == pytest.approx(rb.evaluate(lists.with_scores(scores), measures=["AP"]).mean()["AP"])


def test_a_metric_remembers_several_data_sets(monkeypatch):
    built = []

    class Counting(MeasuredLists):
        def __init__(self, *arguments):
            built.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(measured_lists, "MeasuredLists", Counting)
    mean = MeanMeasure.of("nDCG@10")
    for _ in range(3):  # rounds
        for kind in ("graded", "few"):
            labels = LABELS[kind].astype(np.float32)  # a booster copies the labels
            value = mean(SCORES["tied"], labels, OFFSETS.copy())
            expected = rb.evaluate(rb.Lists(LABELS[kind], OFFSETS, SCORES["tied"]), measures=["nDCG@10"]).mean()
            assert value == pytest.approx(expected["nDCG@10"], abs=1e-12)
    assert len(built) == 2


def test_the_same_labels_in_other_queries_are_other_data():
    mean, labels, scores = MeanMeasure.of("RR"), np.array([1, 0, 0, 1]), np.array([1.0, 2.0, 1.0, 2.0])
    assert mean(scores, labels, np.array([0, 2, 4])) == (1 / 2 + 1) / 2
    assert mean(scores, labels, np.array([0, 4])) == (1 + 1 / 2) / 2  # the relevant item is one of two tied at the top


def test_bad_input_has_one_clear_error():
    mean = MeanMeasure.of("nDCG@10")
    with pytest.raises(DataError, match="nDCG@10 is not defined for any of the 2 queries"):
        mean([0.1, 0.2, 0.3], [0, 0, 0], np.array([0, 2, 3]))
    with pytest.raises(DataError, match=r"EM\(nDCG\) is not defined for any of the 1 queries"):
        MeanMeasure.of("EM(nDCG)")([0.1, 0.2], [1, 1], np.array([0, 2]))  # no choice
    with pytest.raises(DataError, match="scores must be finite, got nan at position 1"):
        mean([0.1, np.nan, 0.3], [0, 1, 0], np.array([0, 2, 3]))
    with pytest.raises(DataError, match="scores must have 3 entries, got 2"):
        mean([0.1, 0.2], [0, 1, 0], np.array([0, 2, 3]))
    with pytest.raises(ArgumentError, match=r"must not need reference runs.*got STD\(nDCG@10\)"):
        MeanMeasure.of("STD(nDCG@10)")
