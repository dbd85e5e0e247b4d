"""The protocol: validation, signatures, and one place for each default."""

from __future__ import annotations

import ast
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.cli.main import run as command
from rankbound.cli.protocol_options import OPTIONS
from rankbound.errors import ArgumentError
from rankbound.protocol import EMPTY, JUDGED_OUTSIDE, MISSING, TIES, Protocol, ProtocolFields

QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"a": 0, "b": 1}, "q3": {"a": 0}, "q4": {"a": 1}}
RUN = {"q1": {"a": 0.5, "b": 0.5, "x": 0.9, "c": 0.1}, "q2": {"a": 0.1, "b": 0.1}, "q3": {"a": 1.0}}
SOURCE = Path(rb.__file__).parent

protocols = st.builds(
    Protocol,
    ties=st.sampled_from(TIES),
    empty=st.sampled_from(EMPTY),
    missing=st.sampled_from(MISSING),
    judged_only=st.booleans(),
    depth=st.none() | st.integers(1, 10**6),
    candidates=st.sampled_from(["judged", "returned", "column:sampled", "pool.txt", "a|b%.txt"]),
    judged_outside=st.sampled_from(JUDGED_OUTSIDE),
)


@pytest.fixture
def write(tmp_path):
    def write_file(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write_file


# ---- signatures ------------------------------------------------------------------------------------------------------


@given(protocols, st.sampled_from(["nDCG@10", "EM(AP(rel=2))", "RBP(p=0.5)@20", "nDCG(dcg='exp-log2')"]))
def test_every_signature_reads_back_as_its_protocol(protocol, name):
    measure = rb.parse_measure(name)
    signature = protocol.signature(measure)
    assert Protocol.parse(signature) == protocol
    assert signature.startswith(f"{measure}|")
    assert signature.endswith(f"|v:{rb.__version__}")


@pytest.mark.parametrize(
    ("name", "changes", "signature"),
    [
        ("nDCG@10", {}, "nDCG@10|gain:linear|ties:average|empty:skip|cand:judged"),
        ("ndcg_cut_10", {}, "nDCG@10|gain:linear|ties:average|empty:skip|cand:judged"),
        ("ndcg_burges", {}, "nDCG(dcg='exp-log2')|gain:exponential|ties:average|empty:skip|cand:judged"),
        ("LetorNDCG@5", {}, "LetorNDCG@5|gain:exponential|ties:average|empty:skip|cand:judged"),
        ("AP", {"ties": "docid", "empty": "zero"}, "AP|ties:docid|empty:zero|cand:judged"),
        ("AP", {"missing": "zero", "depth": 5}, "AP|ties:average|empty:skip|missing:zero|depth:5|cand:judged"),
        ("AP", {"judged_only": True}, "AP|ties:average|empty:skip|judged_only:true|cand:judged"),
        ("AP", {"candidates": {"q": ["a"]}}, "AP|ties:average|empty:skip|cand:explicit"),
    ],
)
def test_signatures(name, changes, signature):
    assert Protocol(**changes).signature(rb.parse_measure(name)) == f"{signature}|v:{rb.__version__}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trec", "a protocol must be trec_eval or a signature, got 'trec'"),
        ("AP|ties:best", "ties must be one of"),
        ("AP|ties:docid|ties:docid", "each once"),
        ("AP|depth:many", "depth must be a positive integer, got 'many'"),
        ("AP|judged_only:1", "judged_only must be true or false"),
        ("AP|tie:docid", "a signature has the parts ties, empty, missing"),
        ("AP|cand:explicit", "does not hold the candidates themselves"),
        ("STD(AP)|refs:0a1b2c3d", "does not hold the references themselves"),
        (7, "a signature must be text, got 7"),
    ],
)
def test_wrong_signatures_are_refused(text, message):
    with pytest.raises(ArgumentError, match=message):
        Protocol.parse(text)


def test_an_evaluation_by_the_protocol_of_a_signature_is_the_same():
    first = rb.evaluate(QRELS, RUN, ["AP", "EM(nDCG@10)"], ties="input", empty="one", missing="zero", depth=2)
    again = rb.evaluate(QRELS, RUN, ["AP", "EM(nDCG@10)"], Protocol.parse(first.signature["AP"]))
    assert again.to_dict() == first.to_dict()
    assert again.protocol == first.protocol


def test_explicit_candidates_are_in_the_signature_by_name():
    candidates = {"q1": ["a", "b", "c"], "q2": ["a", "b"], "q3": ["a"]}
    result = rb.evaluate(QRELS, RUN, "EM(AP)", candidates=candidates)
    assert result.signature["EM(AP)"] == f"EM(AP)|ties:average|empty:skip|cand:explicit|v:{rb.__version__}"
    with pytest.raises(ArgumentError, match="must be given again"):
        rb.evaluate(QRELS, RUN, "EM(AP)", result.protocol)


def test_reference_runs_are_in_the_signature_by_their_scores():
    def signature(references):
        return rb.evaluate(QRELS, RUN, ["STD(AP)", "AP"], references=references).signature

    first, other = {"a": RUN, "b": QRELS}, {"a": QRELS, "b": RUN}
    assert signature(first) == signature(dict(first))
    assert signature(first)["STD(AP)"] != signature(other)["STD(AP)"]
    assert signature(first)["AP"] == signature(other)["AP"]
    scores = rb.evaluate_references(QRELS, first, "AP")
    assert signature(scores)["STD(AP)"] == signature(first)["STD(AP)"]
    assert f"|refs:{scores.digest}|" in signature(scores)["STD(AP)"]
    assert np.isfinite(scores.values["AP"][:, :2]).all()


# ---- fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ties": "best"}, "ties must be one of average, input, docid, got 'best'"),
        ({"empty": "nan"}, "empty must be one of skip, zero, one, got 'nan'"),
        ({"missing": None}, "missing must be one of ignore, zero, got None"),
        ({"judged_outside": "drop"}, "judged_outside must be one of error, add, ignore, got 'drop'"),
        (
            {"unjudged": "ignore"},
            "unjudged must be zero, range, range:GRADES, a probability from 0 to 1, a table or file of probabilities, "
            "or a function, got 'ignore'",
        ),
        ({"judged_only": "yes"}, "judged_only must be True or False, got 'yes'"),
        ({"depth": 0}, "depth must be a positive integer or None, got 0"),
        ({"depth": 2.0}, "depth must be a positive integer or None, got 2.0"),
    ],
)
def test_wrong_fields_are_refused_by_the_protocol_and_by_evaluate(changes, message):
    for make in (Protocol, lambda **given: rb.evaluate(QRELS, RUN, "AP", **given)):
        with pytest.raises(ArgumentError) as raised:
            make(**changes)
        assert str(raised.value) == message


@pytest.mark.filterwarnings("ignore::rankbound.errors.InferenceWarning")
def test_keyword_arguments_replace_fields_of_the_protocol():
    result = rb.evaluate(QRELS, RUN, "AP", Protocol.trec_eval(), missing="zero")
    assert result.protocol == Protocol(ties="docid", empty="zero", missing="zero")
    comparison = rb.compare(RUN, RUN, qrels=QRELS, measures="AP", protocol=Protocol.trec_eval(), resamples=10)
    assert comparison.signature == {"AP": f"AP|ties:docid|empty:zero|cand:judged|v:{rb.__version__}"}
    with pytest.raises(ArgumentError, match=r"protocol must be a rankbound\.Protocol, got 'trec_eval'"):
        rb.evaluate(QRELS, RUN, "AP", "trec_eval")
    with pytest.raises(TypeError, match="unexpected keyword argument 'tie'"):
        rb.evaluate(QRELS, RUN, "AP", tie="docid")


def test_the_protocol_of_trec_eval_gives_its_numbers():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    names = {"map": "AP", "ndcg_cut_10": "nDCG@10", "recip_rank": "RR", "P_5": "P@5"}
    theirs = pytrec_eval.RelevanceEvaluator(QRELS, {"map", "ndcg_cut.10", "recip_rank", "P.5"}).evaluate(RUN)
    ours = rb.evaluate(QRELS, RUN, list(names), Protocol.trec_eval())
    for index, query in enumerate(ours.query_ids):
        for name in names:
            assert ours.values[name][index] == pytest.approx(theirs[query][name], abs=1e-12)


@pytest.mark.filterwarnings("ignore::rankbound.errors.InferenceWarning")
def test_runs_by_name_can_be_compared():
    named = rb.compare({"one": RUN, "other": QRELS}, qrels=QRELS, measures="AP", resamples=10)
    given_apart = rb.compare(RUN, QRELS, qrels=QRELS, measures="AP", names=["one", "other"], resamples=10)
    assert named.to_dict() == given_apart.to_dict()
    assert named.runs == ("one", "other")
    with pytest.raises(ArgumentError, match="names are for runs without names"):
        rb.compare({"one": RUN, "other": QRELS}, qrels=QRELS, measures="AP", names=["one", "other"])


# ---- the command line ------------------------------------------------------------------------------------------------


def test_defaults_in_python_are_those_of_the_command_line(write, capsys):
    """A result of `evaluate` without measures has those of `rankbound evaluate`, and the same numbers."""
    qrels = write("qrels.txt", "q1 0 a 1\nq1 0 b 0\nq2 0 a 1\n")
    run = write("run.txt", "q1 Q0 a 1 0.5 t\nq1 Q0 b 2 0.5 t\nq2 Q0 a 1 1 t\n")
    assert command(["evaluate", qrels, run, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["mean"] == rb.evaluate(qrels, run).mean()
    assert printed["signature"] == rb.evaluate(qrels, run).signature


def test_the_command_line_takes_a_protocol_by_name_or_signature(write, capsys):
    qrels = write("qrels.txt", "q1 0 a 1\nq1 0 b 0\nq2 0 a 0\n")
    run = write("run.txt", "q1 Q0 a 1 0.5 t\nq1 Q0 b 2 0.5 t\nq2 Q0 a 1 1 t\n")

    def printed(*options):
        assert command(["evaluate", qrels, run, "-m", "RR", *options, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    trec_eval = printed("--protocol", "trec_eval")
    assert trec_eval["mean"] == {"RR": (1 / 2 + 0) / 2}
    assert printed("--ties", "docid", "--empty", "zero") == trec_eval
    assert printed("--protocol", trec_eval["signature"]["RR"]) == trec_eval
    assert printed("--protocol", "trec_eval", "--empty", "skip")["mean"] == {"RR": 1 / 2}
    assert command(["evaluate", qrels, run, "--protocol", "trec"]) == 2
    assert "a protocol must be trec_eval or a signature, got 'trec'" in capsys.readouterr().err


# ---- one place for each option ---------------------------------------------------------------------------------------


def test_the_keyword_arguments_are_exactly_the_fields():
    assert list(ProtocolFields.__annotations__) == [field.name for field in fields(Protocol)]


def test_every_field_has_one_option_for_all_commands():
    assert set(OPTIONS) == {field.name for field in fields(Protocol)}


def test_the_default_of_ties_stands_in_one_place():
    """No parameter and no field of another module has a default of its own."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arguments):
                positional = [*node.posonlyargs, *node.args]
                pairs = [*zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True)]
                pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
                named = [(argument.arg, default) for argument, default in pairs]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                named = [(node.target.id, node.value)]
            else:
                continue
            found += [
                str(path.relative_to(SOURCE))
                for name, default in named
                if name == "ties" and isinstance(default, ast.Constant) and isinstance(default.value, str)
            ]
    assert found == []
    assert Protocol().ties == TIES[0] == "average"
