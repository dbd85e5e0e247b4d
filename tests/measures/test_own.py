"""Measures that users define: they work everywhere by name, and wrong definitions raise MeasureError."""

from __future__ import annotations

import pickle
import textwrap

import numpy as np
import pytest

import rankbound as rb
from rankbound.cli.main import run
from rankbound.errors import DataError, MeasureError
from rankbound.testing import oracles

LABELS = {"q1": {"a": 2, "b": 0, "c": 1, "d": 0}, "q2": {"a": 0, "b": 1, "c": 0, "d": 3}}
RUN = {"q1": {"a": 0.1, "b": 0.4, "c": 0.3, "d": 0.2}, "q2": {"a": 0.1, "b": 0.4, "c": 0.3, "d": 0.2}}


@pytest.fixture
def measure():
    yield rb.measures.additive("OwnDCG", gain=lambda label: label, discount=lambda rank: 1 / np.log2(1 + rank))
    rb.measures.unregister("OwnDCG")


@pytest.mark.usefixtures("measure")
def test_a_copy_of_ndcg_equals_the_built_in_measure():
    for name in ("{}", "{}@2", "EM({}@3)", "UL2({})", "DB({}@2)", "MM({})"):
        own, built_in = name.format("OwnDCG"), name.format("nDCG")
        values = rb.evaluate(LABELS, RUN, [own, built_in])
        np.testing.assert_allclose(values.values[own], values.values[built_in], atol=1e-12)
    own, built_in = (rb.distribution(name, n=12, relevant=4) for name in ("OwnDCG@5", "nDCG@5"))
    np.testing.assert_allclose(own.scores, built_in.scores, atol=1e-12)
    own, built_in = (rb.difficulty_weights([2, 0, 1, 0], [1] * 4, measure=name) for name in ("OwnDCG", "nDCG"))
    np.testing.assert_allclose(own, built_in)


@pytest.mark.usefixtures("measure")
def test_own_measures_compare_runs():
    other = {query: {doc: -score for doc, score in docs.items()} for query, docs in RUN.items()}
    with pytest.warns(rb.errors.InferenceWarning):
        comparison = rb.compare(RUN, other, qrels=LABELS, measures=["OwnDCG", "EM(OwnDCG)"])
    assert comparison.measures == ("OwnDCG", "EM(OwnDCG)")


def test_distributions_of_own_measures_leave_no_files(measure, tmp_path, monkeypatch):
    """A file of another session could belong to another measure of the same name."""
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path))
    rb.distribution(measure.name, n=60, relevant=20)
    assert not list(tmp_path.rglob("*.npz"))


def test_a_measure_can_be_defined_anew_on_request(measure):
    before = rb.evaluate(LABELS, RUN, "OwnDCG@1").mean()["OwnDCG@1"]
    with pytest.raises(MeasureError, match="'OwnDCG' is taken; give replace=True"):
        rb.measures.additive("OwnDCG", gain=np.sqrt)
    rb.measures.additive("OwnDCG", gain=lambda label: (label > 0) * 1.0, normalize=False, replace=True)
    assert rb.evaluate(LABELS, RUN, "OwnDCG@1").mean()["OwnDCG@1"] != before
    assert rb.parse_measure("OwnDCG").definition is not measure


def test_a_measure_survives_pickling_by_its_name(measure):
    parsed = rb.parse_measure("EM(OwnDCG@5)")
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    assert pickle.loads(pickle.dumps(rb.parse_measure("AP(rel=2)"))) == rb.parse_measure("AP(rel=2)")


def test_aliases(measure):
    definition = rb.measures.cascade("OwnERR", stop=lambda label: label / 8, aliases=("own_err",))
    try:
        assert str(rb.parse_measure("own_err@5")) == "OwnERR@5"
        with pytest.raises(MeasureError, match="the name 'own_err' is taken by the measure OwnERR"):
            rb.measures.pairwise("OwnPairs", weight=lambda high, low: high - low, aliases=("own_err",))
    finally:
        rb.measures.unregister(definition.name)
    with pytest.raises(MeasureError, match="unknown measure 'own_err@5'"):
        rb.parse_measure("own_err@5")


def test_the_command_line_imports_a_module_with_measures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "module_with_measure.py").write_text(
        textwrap.dedent("""
            import rankbound as rb
            rb.measures.additive("FileDCG", gain=lambda label: label, discount="reciprocal")
        """)
    )
    try:
        assert run(["--module", "module_with_measure", "bounds", "FileDCG@1", "--labels", "1,0", "--json"]) == 0
        assert '"expected": 0.5' in capsys.readouterr().out
    finally:
        rb.measures.unregister("FileDCG")
    assert run(["--module", "no_such_module_here", "measures"]) == 2
    assert "--module no_such_module_here: cannot be imported" in capsys.readouterr().err


# ---- wrong definitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "name must be a letter followed by letters, digits or underscores, got ''"),
        ({"name": None}, "got None"),
        ({"name": "2DCG"}, "got '2DCG'"),
        ({"name": "My DCG"}, "got 'My DCG'"),
        ({"name": "nDCG"}, "'nDCG' is taken by a built-in measure"),
        ({"name": "MAP"}, "the name 'map' is taken by the measure AP"),
        ({"gain": 3}, "gain must be a function of an array of labels, got 3"),
        ({"gain": lambda label: -label}, r"gain must return finite, non-negative numbers, got \[-?0.0, -1.0"),
        ({"gain": lambda label: 4 - label}, "gain must not decrease with the label"),
        ({"gain": lambda label: label / 0}, "gain must"),
        ({"gain": lambda label: label.no_such_thing}, "gain must be a function of an array of labels, got the error"),
        ({"discount": "linear"}, "discount must be a function or one of log2, constant, reciprocal, got 'linear'"),
        ({"discount": 1.0}, "discount and slope must be functions"),
        ({"discount": lambda rank: 1 / (rank - 1)}, "discount must be finite, got inf at rank 1"),
        ({"discount": lambda rank: np.where(rank > 7, np.nan, 1)}, "discount must be finite, got nan at rank 8"),
        ({"discount": lambda rank: 3.0 - rank}, "discount must not be negative, got -1 at rank 4"),
        ({"discount": lambda rank: rank}, "discount must not increase with the rank, got 1 at rank 1 and 2 after it"),
        ({"discount": lambda rank: 1 / rank, "slope": lambda rank: rank * np.inf}, "slope must be finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_wrong_additive_measures_are_refused(arguments, message):
    arguments = {"name": "Wrong", "gain": lambda label: label, **arguments}
    with pytest.raises(MeasureError, match=message):
        rb.measures.additive(arguments.pop("name"), **arguments)
    assert "Wrong" not in {definition.name for definition in rb.measures.definitions()}


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        (lambda label: label, "stop must give probabilities that do not decrease with the label"),
        (lambda label: 1 - label / 4, "stop must give probabilities that do not decrease with the label"),
        (None, "stop must be a function"),
    ],
)
def test_wrong_cascade_measures_are_refused(stop, message):
    with pytest.raises(MeasureError, match=message):
        rb.measures.cascade("Wrong", stop=stop)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (1, "weight must be a function of two arrays of labels, got 1"),
        (lambda high: high, "weight must be a function of two arrays of labels, got the error"),
        (lambda high, low: low - high, "weight must give positive finite numbers"),
        (lambda high, low: 1 / (high + low), "weight must not decrease with the higher label"),
        (lambda high, low: 1.0 + low, "nor increase with the lower one"),
    ],
)
def test_wrong_pairwise_measures_are_refused(weight, message):
    with pytest.raises(MeasureError, match=message):
        rb.measures.pairwise("Wrong", weight=weight)


def test_labels_that_a_function_cannot_take_are_reported():
    definition = rb.measures.cascade("OwnCascade", stop=lambda label: label / 4)
    try:
        with pytest.raises(DataError, match=r"stop of OwnCascade must give probabilities, got 1\.25"):
            rb.bounds("OwnCascade", labels=[5, 0])
    finally:
        rb.measures.unregister(definition.name)


def test_only_own_measures_can_be_removed():
    with pytest.raises(MeasureError, match="only a measure of your own can be removed, got 'AP'"):
        rb.measures.unregister("AP")


def test_a_measure_without_oracle_says_so(measure):
    with pytest.raises(MeasureError, match="measure must have an oracle, got OwnDCG"):
        oracles.value("OwnDCG", [1, 0])
