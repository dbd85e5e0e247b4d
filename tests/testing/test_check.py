"""check_measure: right functions pass, every seeded mistake is caught, shrunk and named, bad behavior is reported."""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
import threading
import time

import numpy as np
import pytest

import rankbound as rb
from rankbound.errors import ArgumentError, MeasureError
from rankbound.measures import definitions, parse_measure
from rankbound.testing import CheckReport, check_measure, oracles
from rankbound.testing._categories import CATEGORIES, Generator, applicable_categories
from rankbound.testing._examples import Example, Query, expected_values

from . import implementations as own

# ---- right functions -------------------------------------------------------------------------------------------------

RIGHT = [
    (own.ndcg, "nDCG@10", {}),
    (own.ndcg_exp, "nDCG(dcg='exp-log2')@10", {}),
    (own.ndcg_input_order, "nDCG@10", {"ties": "input"}),
    (own.ndcg_input_order, "nDCG@3", {"ties": "input"}),
    (own.precision_at_10, "P@10", {}),
    (own.reciprocal_rank, "RR", {}),
    (own.average_precision, "AP", {}),
    (own.mean_average_precision, "AP", {"ties": "input"}),
    (own.average_precision_per_query, "AP", {"ties": "input"}),
    (own.err, "ERR@10", {"ties": "input"}),
    (own.rbp, "RBP(p=0.8)", {}),
    (own.ap_over_min, "AP(div='min')@10", {}),
    (own.empty_is_one, "nDCG@10", {"empty": "one"}),
    (own.empty_is_nan, "nDCG@10", {"empty": "skip"}),
    (own.exponential_gain, "nDCG(dcg='exp-log2')@10", {"ties": "input"}),
    pytest.param(functools.partial(own.ndcg, k=10), "nDCG@10", {"signature": "labels,scores"}, id="partial"),
]


@pytest.mark.parametrize(
    ("function", "measure", "options"), RIGHT, ids=lambda value: getattr(value, "__name__", None) or str(value)
)
def test_right_functions_agree(function, measure, options):
    report = check_measure(function, measure, **options)
    assert report.ok, str(report)
    assert report.disagreements == {}
    assert report.complete
    assert min(report.agreements.values()) > 0
    assert "agrees with" in str(report)


def test_scikit_learn_agrees_where_it_takes_the_input():
    from sklearn.metrics import ndcg_score

    rejected = ["single document", "negative labels"]
    report = check_measure(ndcg_score, "nDCG@10", skip=rejected)
    assert report.ok, str(report)
    assert report.signature == "y_true,y_score,k"
    assert report.skipped == tuple(rejected)
    whole = check_measure(ndcg_score, "nDCG@10")
    assert set(whole.disagreements) == set(rejected)
    assert "raises ValueError" in whole.disagreements["negative labels"].returned


def test_ties_of_scikit_learn_are_named():
    from sklearn.metrics import ndcg_score

    report = check_measure(ndcg_score, "nDCG@10", ties="input", skip=["single document", "negative labels"])
    assert set(report.disagreements) == {"ties"}
    assert report.conventions == (
        "Ties are averaged over all orders of the tied documents. That is ties='average' (--ties average).",
    )


@pytest.mark.parametrize(
    ("measure", "name"),
    [("nDCG@10", "ndcg_cut_10"), ("AP", "map"), ("P@5", "P_5"), ("RR", "recip_rank"), ("R@5", "recall_5")],
)
def test_pytrec_eval_agrees(measure, name):
    pytrec_eval = pytest.importorskip("pytrec_eval")

    def wrapped(qrels, run):
        return pytrec_eval.RelevanceEvaluator(qrels, {name}).evaluate(run)

    report = check_measure(wrapped, measure, ties="docid")
    assert report.ok, str(report)
    averaged = check_measure(wrapped, measure)
    assert averaged.disagreements["ties"].is_convention
    assert "docid" in averaged.disagreements["ties"].cause


@pytest.mark.parametrize("measure", ["nDCG@10", "AP", "P@10", "RR", "Bpref", "Rprec"])
def test_ir_measures_agrees(measure):
    ir_measures = pytest.importorskip("ir_measures")

    def wrapped(qrels, run):
        return ir_measures.calc_aggregate([ir_measures.parse_measure(measure)], qrels, run)

    report = check_measure(wrapped, measure, ties="docid", examples=60, skip=["negative labels"])
    assert report.ok, str(report)


@pytest.mark.slow  # ranx compiles its functions for every type of input, for a minute
def test_ranx_agrees():
    ranx = pytest.importorskip("ranx")

    def wrapped(qrels, run):
        return ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), "ndcg@10")

    report = check_measure(wrapped, "nDCG@10", ties="input", skip=["ties", "negative labels"], examples=60)
    assert report.ok, str(report)


# ---- mistakes --------------------------------------------------------------------------------------------------------

INPUT = {"ties": "input"}
MISTAKES = [  # function, measure, options, a category that must fail, largest example, words of the cause
    (own.exponential_gain, "nDCG@10", INPUT, "graded labels", 2, "gain 2^label - 1. Compare it with nDCG(dcg="),
    (own.ndcg, "nDCG(dcg='exp-log2')@10", {}, "graded labels", 2, "linear gain. Compare it with nDCG@10"),
    (own.exponential_gain_without_minus_one, "nDCG@10", INPUT, "binary labels", 2, "2^label, without - 1"),
    (own.off_by_one_strong, "nDCG@10", INPUT, "binary labels", 2, "as log2(r + 2) in place of log2(r + 1)"),
    (own.off_by_one_weak, "nDCG@10", INPUT, "binary labels", 2, "as log2(r) in place of log2(r + 1)"),
    (own.log_of_rank, "nDCG@10", INPUT, "binary labels", 2, "A rank or a discount is 0 at rank 1"),
    (own.no_discount, "nDCG@10", INPUT, "binary labels", 2, "There is no discount"),
    (own.natural_log_above, "nDCG@10", INPUT, "binary labels", 2, "1.4427 times the right one: natural logarithms"),
    (own.natural_log_below, "nDCG@10", INPUT, "binary labels", 2, "in the ideal ranking only (factor ln 2)"),
    (own.ideal_of_top_k, "nDCG@10", INPUT, "more documents than k", 3, "Only the first k documents"),
    (own.ideal_without_cutoff, "nDCG@10", INPUT, "more documents than k", 2, "ideal ranking is not cut off at rank k"),
    (own.without_ideal, "nDCG@10", INPUT, "binary labels", 3, "The values are those of DCG@10"),
    (own.negative_gains, "nDCG@10", INPUT, "negative labels", 2, "Labels below 0 should count as 0"),
    (own.not_sorted, "nDCG@10", INPUT, "unsorted input", 2, "taken in input order; they must be sorted"),
    (own.ascending, "nDCG@10", INPUT, "binary labels", 2, "sorted by ascending score"),
    (own.ndcg_input_order, "nDCG@10", {}, "ties", 2, "Ties are broken by input order. That is ties='input'"),
    (own.ties_in_reverse, "nDCG@10", {}, "ties", 2, "reverse input order"),
    (own.ties_by_label, "nDCG@10", {}, "ties", 2, "ranked by descending label"),
    (own.empty_is_one, "nDCG@10", {}, "no relevant documents", 2, "has the value 1. That is empty='one'"),
    (own.empty_is_nan, "nDCG@10", {}, "no relevant documents", 2, "has the value NaN. That is empty='skip'"),
    (own.all_relevant_is_zero, "nDCG@10", {}, "all documents relevant", 2, "exactly where all documents are relevant"),
    (own.ignores_k, "nDCG@10", {}, "more documents than k", 2, "The cutoff k is ignored"),
    (own.k_plus_one, "nDCG@10", {}, "more documents than k", 2, "k + 1 in place of k"),
    (own.needs_k_documents, "nDCG@10", INPUT, "fewer documents than k", 2, "cannot handle input of this kind: fewer"),
    (own.one_minus, "nDCG@10", {}, "binary labels", 2, "1 minus the measure"),
    (own.ignores_negative_scores, "nDCG@10", {}, "negative scores", 2, "Scores below 0 are valid"),
    (own.integer_scores, "nDCG@10", {}, "fractional scores", 2, "converted to integers"),
    (own.precision_of_n, "P@10", {}, "fewer documents than k", 2, "min(k, number of documents) in place of k"),
    (own.ap_over_hits, "AP@10", {}, "more documents than k", 2, "Compare it with AP(div='retrieved')@10"),
    (own.ap_over_min, "AP@10", {}, "more documents than k", 2, "Compare it with AP(div='min')@10"),
    (own.ap_over_min, "AP(div='k')@10", {}, "fewer documents than k", 2, "Compare it with AP(div='min')@10"),
    (own.ap_not_divided, "AP@10", {}, "binary labels", 3, "The values are those of SP@10"),
    (own.ap_without_missing, "AP", INPUT, "relevant documents not retrieved", 3, "Compare it with AP(div='retrieved')"),
    (own.ap_of_judged, "AP", INPUT, "unjudged documents", 2, "Documents without a judgment are removed"),
    (own.sum_over_queries, "AP", INPUT, "several queries", 4, "added, not averaged"),
    (own.counts_repeats, "AP", {}, "repeated documents", 2, "counted each time"),
    (own.rr_of_index, "RR", {}, "binary labels", 2, "Ranks are too small by 1"),
    (own.rr_of_index, "RR", {}, "all documents relevant", 2, "ranks start at 0"),
    (own.rr_too_low, "RR", {}, "binary labels", 2, "Ranks are too large by 1"),
    (own.err_of_largest_label, "ERR@10", INPUT, "binary labels", 2, "largest label of each query is used as max_rel"),
    (own.err_without_divisor, "ERR@10", INPUT, "binary labels", 2, "its divisor is missing"),
    (own.err_without_reading, "ERR@10", INPUT, "binary labels", 3, "probability that the user comes so far"),
    (own.rbp_without_factor, "RBP(p=0.8)", {}, "binary labels", 2, "the factor 1 - p = 0.2 is missing"),
    (own.rbp_from_p, "RBP(p=0.8)", {}, "binary labels", 2, "powers of p that start with p"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "measure", "options", "category", "documents", "cause"),
    MISTAKES,
    ids=[f"{entry[0].__name__}-{entry[1]}-{entry[3]}" for entry in MISTAKES],
)
def test_a_mistake_is_caught_shrunk_and_named(function, measure, options, category, documents, cause):
    report = check_measure(function, measure, examples=150, **options)
    assert not report.ok
    smallest = report.disagreements[category]
    assert cause in smallest.cause, str(report)
    rows = smallest.labels if smallest.labels and isinstance(smallest.labels[0], list) else [smallest.labels]
    assert sum(map(len, rows)) <= documents, smallest.call
    assert 0 < smallest.failed <= smallest.examples
    if isinstance(smallest.returned, float) and not math.isnan(smallest.returned):  # the call in the report gives that
        call = smallest.call.replace(f"{function.__name__}(", "function(", 1)
        assert eval(call, {"np": np, "function": function}) == pytest.approx(smallest.returned)
        assert smallest.returned != pytest.approx(smallest.expected)
    assert cause in str(report) or len(report.disagreements) > 4


def test_there_are_enough_mistakes():
    assert len({entry[0] for entry in MISTAKES}) >= 35


def test_two_mistakes_at_once_are_both_named():
    def function(labels, scores, k):
        value = own.exponential_gain(labels, scores, k)
        return value if max(labels, default=0) > 0 else 1.0

    report = check_measure(function, "nDCG@10")
    assert set(report.disagreements) == {"graded labels", "ties", "no relevant documents", "no documents", "large list"}
    assert "exp-log2" in report.disagreements["graded labels"].cause
    assert "input order" in report.disagreements["ties"].cause
    assert len(report.conventions) == 3
    assert report.first is report.disagreements["graded labels"]
    allowed = check_measure(function, "nDCG(dcg='exp-log2')@10", ties="input", empty="one")
    assert allowed.ok, str(allowed)


def test_a_mistake_and_a_convention_that_act_together_are_distinguished():
    report = check_measure(own.ideal_of_top_k, "nDCG@10")
    both = report.disagreements["ties"]
    assert both.cause.startswith(
        "Ties are broken by input order. That is ties='input' (--ties input). Only the first k"
    )
    assert not both.is_convention
    assert report.conventions == ("Ties are broken by input order. That is ties='input' (--ties input).",)


def test_hints_that_would_mislead_are_not_given():
    report = check_measure(lambda labels, scores, k: 0.123 + 0.001 * len(labels), "nDCG@10", examples=100)
    assert "check the formula" in report.first.cause
    others = {
        entry.cause for name, entry in report.disagreements.items() if name not in ("binary labels", "no documents")
    }
    assert "Look at binary labels first, where the value is wrong as well." in others
    assert not any("sorted" in cause or "gain" in cause for cause in others)


def test_causes_leave_the_measures_as_they_were():
    before = {definition.name: dict(vars(definition)) for definition in definitions()}
    check_measure(own.off_by_one_strong, "nDCG@10")
    assert {definition.name: dict(vars(definition)) for definition in definitions()} == before
    assert rb.evaluate(rb.Lists([0, 1], [0, 2], scores=[2.0, 1.0]), measures=["nDCG"]).mean()["nDCG"] == pytest.approx(
        1 / math.log2(3)
    )


# ---- bad behavior ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "returned", "cause"),
    [
        (own.raises, "raises RuntimeError: not today", "on every example"),
        (own.exits, "raises SystemExit: 3", "on every example"),
        (own.returns_none, "returns None", "a return statement is probably missing"),
        (own.returns_array, "returns an array of shape (2,) where a number was expected", "must return one number"),
        (own.returns_text, "where a number was expected", "must return one number"),
        (own.returns_infinity, "returns inf", "on every example"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_results_that_are_no_numbers_are_reported(function, returned, cause):
    report = check_measure(function, "nDCG@10")
    assert not report.ok
    assert returned in report.first.returned
    assert cause in report.first.cause
    assert len(report.first.labels) == 2
    assert returned in str(report)


def test_what_a_function_prints_is_noted_and_not_shown(capsys):
    report = check_measure(own.prints, "nDCG@10", examples=30)
    assert report.ok
    assert report.notes == ("the function prints, which was not shown",)
    assert capsys.readouterr() == ("", "")


def test_warnings_are_noted():
    report = check_measure(own.warns, "nDCG@10", examples=30)
    assert report.ok
    assert "RuntimeWarning: divide by zero" in report.notes[0]


def test_modified_arguments_are_reported():
    report = check_measure(own.sorts_in_place, "nDCG@10")
    assert set(report.disagreements) == {"arguments"}
    assert not report.ok
    assert report.first.returned == "modifies its arguments"
    assert len(report.first.labels) == 2
    assert "must copy them" in report.first.cause


def test_a_function_that_draws_at_random_is_reported():
    random.seed(1)
    report = check_measure(own.breaks_ties_at_random, "nDCG@10")
    assert "not deterministic" in report.disagreements["determinism"].cause
    assert len(report.disagreements["determinism"].labels) == 2


def test_a_function_that_never_ends_is_interrupted():
    report = check_measure(own.never_ends, "nDCG@10", budget=0.3)
    assert not report.ok
    assert not report.complete
    assert "takes too long" in report.first.returned
    assert "time budget of 0.3 s ended the check after 1 of" in report.notes[0]


def test_a_slow_function_is_checked_in_every_category_that_the_budget_allows(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])  # a call takes 20 ms, however busy the machine is

    def slow(labels, scores, k):
        now[0] += 0.02
        return own.ndcg(labels, scores, k)

    seen = []
    report = check_measure(slow, "nDCG@10", budget=3.0, progress=lambda done, total: seen.append((done, total)))
    assert not report.complete
    assert report.ok, str(report)
    assert report.examples < seen[0][1]
    assert report.examples >= 3.0 / 0.02 - 20  # less the calls that find the calling convention
    assert [done for done, _ in seen] == list(range(len(seen)))


def test_it_runs_outside_of_the_main_thread():
    reports = []
    worker = threading.Thread(target=lambda: reports.append(check_measure(own.ndcg, "nDCG@10", examples=30)))
    worker.start()
    worker.join()
    assert reports[0].ok


# ---- calling conventions ---------------------------------------------------------------------------------------------


def _two(first, second):
    return own.ndcg(first, second, 10)


def _lists_only(labels, scores, k):
    return own.ndcg(labels.copy(), scores.copy(), k) if labels else 0.0


def _ids_of_a_set(recommended, relevant, k=10):
    hits = relevant & set(recommended[:k])
    return len(hits) / k


@pytest.mark.parametrize(
    ("function", "measure", "signature"),
    [
        (_two, "nDCG@10", "labels,scores"),
        (lambda x, y: own.ndcg(y, x, 10), "nDCG@10", "scores,labels"),
        (lambda preds, target: own.ndcg(target, preds, 10), "nDCG@10", "scores,labels"),
        (lambda a, b, c: own.ndcg(a, b, c), "nDCG@10", "labels,scores,k"),
        (lambda *arguments: own.ndcg(*arguments, 10), "nDCG@10", "labels,scores"),
        (_lists_only, "nDCG@10", "labels,scores,k"),
        (_ids_of_a_set, "P@10", "ranked_ids,relevant_ids,k"),
        (lambda x: own.reciprocal_rank(x), "RR", "ranked_labels"),
        (own.mean_average_precision, "AP", "qrels,run"),
        (lambda run, qrels: own.mean_average_precision(qrels, run), "AP", "run,qrels"),
        (lambda y_true, y_score, *, k=5: own.ndcg(y_true, y_score, k), "nDCG@5", "labels,scores,k"),
    ],
)
def test_the_calling_convention_is_found(function, measure, signature):
    report = check_measure(
        function, measure, ties="input" if "run" in signature else "average", skip=["repeated documents"]
    )
    assert report.signature == signature
    assert report.ok, str(report)


def test_tensors_are_passed_to_functions_that_need_them():
    torch = pytest.importorskip("torch")

    def function(preds, target, top_k=None):
        gains = target[torch.argsort(preds, descending=True, stable=True)].clamp(min=0).double()
        discounts = 1 / torch.log2(torch.arange(2, len(gains) + 2).double())
        best = (torch.sort(gains, descending=True).values * discounts)[:top_k].sum()
        return (gains * discounts)[:top_k].sum() / best if best > 0 else torch.tensor(0.0)

    report = check_measure(function, "nDCG@10", ties="input", examples=100)
    assert report.ok, str(report)
    assert report.signature == "scores,labels,k"
    wrong = check_measure(lambda preds, target: function(preds, target, 3), "nDCG@10", ties="input", examples=100)
    assert "torch.tensor([" in wrong.first.call
    assert "Compare it with nDCG@3" in wrong.first.cause


def test_an_explicit_signature_is_used():
    def function(k, first, second):
        return own.ndcg(first, second, k)

    assert check_measure(function, "nDCG@10", signature="k, labels, scores").ok
    assert check_measure(lambda x, y: own.ndcg(x, y, 10), "nDCG@10", signature="labels,scores").ok


def test_values_of_several_forms_are_read():
    for convert in (
        np.float32,
        np.asarray,
        lambda value: np.array([value]),
        lambda value: [value],
        lambda v: {"ndcg": v},
    ):
        report = check_measure(
            lambda labels, scores, k, f=convert: f(own.ndcg(labels, scores, k)), "nDCG@10", examples=60
        )
        assert report.ok, str(report)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (3, {}, "function must be callable, got int"),
        (lambda: 0, {}, "function must take labels and scores"),
        (lambda a, b, c, d: 0, {}, "function must take labels and scores"),
        (lambda a, b, *, weight: 0, {}, "so wrap it in a function of these"),
        (lambda a, b: a.frobnicate(b), {}, "fits no calling convention: .labels,scores. raises AttributeError"),
        (lambda a, b, c: 0, {"measure": "AP"}, "measure must have a cutoff, as AP@10"),
        (own.ndcg, {"measure": "nDGC"}, "unknown measure 'nDGC'"),
        (own.ndcg, {"measure": "EM(AP)"}, "measure must be a plain measure, such as AP, got EM"),
        (own.ndcg, {"signature": "labels,documents"}, "signature must be 'auto' or one of labels,scores"),
        (own.ndcg, {"signature": 3}, "signature must be 'auto' or names"),
        (own.ndcg, {"ties": "best"}, "ties must be one of average, input, docid, got 'best'"),
        (own.ndcg, {"ties": "docid"}, "needs a function of qrels and run"),
        (own.ndcg, {"empty": "none"}, "empty must be one of skip, zero, one, got 'none'"),
        (own.ndcg, {"tolerance": -1}, "tolerance must be a number from 0 to 1, got -1"),
        (own.ndcg, {"examples": 0}, "examples must be a positive integer, got 0"),
        (own.ndcg, {"seed": -1}, "seed must be a non-negative integer, got -1"),
        (own.ndcg, {"budget": 0}, "budget must be a positive number of seconds, got 0"),
        (own.ndcg, {"skip": ["everything"]}, "skip must name categories .* got 'everything'"),
        (own.ndcg, {"skip": "ties"}, "skip must be a list of categories"),
        (own.ndcg, {"skip": [category.name for category in CATEGORIES]}, "skip must leave at least one category"),
    ],
)  # fmt: skip
def test_bad_arguments(function, options, message):
    with pytest.raises(ArgumentError, match=message):
        check_measure(function, **options)


def test_unknown_measures_are_measure_errors():
    with pytest.raises(MeasureError):
        check_measure(own.ndcg, "nope")


# ---- the report ------------------------------------------------------------------------------------------------------


def test_the_report_is_reproducible_and_ready_for_json():
    first, second = (check_measure(own.ideal_of_top_k, "nDCG@10", seed=3) for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert isinstance(first, CheckReport)
    decoded = json.loads(json.dumps(first.to_dict()))
    assert decoded["ok"] is False
    assert (
        decoded["disagreements"]["more documents than k"]["labels"]
        == first.disagreements["more documents than k"].labels
    )
    assert decoded["agreements"].keys() >= decoded["disagreements"].keys()


def test_skipped_categories_can_be_written_with_hyphens():
    assert "ties" in check_measure(own.ndcg, "nDCG@10", examples=30).agreements
    report = check_measure(own.ndcg, "nDCG@10", examples=30, skip=["single-document", "Ties"])
    assert report.skipped == ("single document", "ties")
    assert not {"single document", "ties"} & set(report.agreements)


# ---- the examples ----------------------------------------------------------------------------------------------------


def _brute_force(measure, example: Example) -> float:
    """The mean over all orders of ties, by the oracles; unjudged documents have label -1 where that differs from 0."""
    query = example.query
    unjudged = -1 if measure.definition.reads_negative_labels else 0
    labels = [label if known else unjudged for label, known in zip(query.counted_labels(), query.known(), strict=True)]
    blocks = [list(block) for _, block in itertools.groupby(sorted(range(len(query)), key=lambda i: -query.scores[i]),
                                                            key=lambda i: query.scores[i])]  # fmt: skip
    orders = itertools.product(*(itertools.permutations(block) for block in blocks))
    values = [
        oracles.value(measure, [*(labels[i] for block in order for i in block), *query.not_retrieved], len(query))
        for order in orders
    ]
    return math.fsum(values) / len(values)


MEASURES = [
    definition.name + ("@4" if definition.cutoff == "required" else "")
    for definition in definitions()
    if definition.built_in
] + ["nDCG(dcg='exp-log2')@3", "AP(rel=2)@5", "AP(div='retrieved')@2", "RBP(gain='graded')", "ERR(max_rel=2)@3"]


@pytest.mark.parametrize("roles", [("labels", "scores", "k"), ("qrels", "run"), ("relevant_ids", "ranked_ids")])
@pytest.mark.parametrize("name", MEASURES)
def test_expected_values_are_those_of_brute_force(name, roles):
    measure = parse_measure(name)
    if "k" in roles and measure.cutoff is None:
        roles = roles[:-1]
    generator = Generator(measure, "k" in roles, "relevant_ids" not in roles, seed=5, count=8)
    categories = applicable_categories(measure, roles, [])
    assert len(categories) > 5
    for category in categories:
        examples = generator.examples(category)
        assert 0 < len(examples) <= 8
        if category.name in ("several queries", "no documents"):
            continue
        if category.name == "unjudged documents" and measure.name in ("Judged", "infAP"):
            continue  # their oracles take every document as pooled
        for example, expected in zip(examples, expected_values(examples, measure, "average", "zero"), strict=True):
            at_k = parse_measure(name.partition("@")[0] + f"@{example.k}") if example.k else measure
            assert expected.mean == pytest.approx(_brute_force(at_k, example), abs=1e-9), (category.name, example)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_of_the_catalog_can_be_checked(name):
    def function(ranked_labels):
        return oracles.value(name, [int(label) for label in ranked_labels])

    report = check_measure(function, name, signature="ranked_labels", skip=["no documents"], examples=50)
    assert report.ok, str(report)
    wrong = check_measure(
        lambda ranked_labels: function(ranked_labels) + 0.25, name, signature="ranked_labels", examples=20
    )
    assert not wrong.ok


def test_several_queries_are_averaged_by_rankbound():
    queries = (Query((1, 0), (2.0, 1.0)), Query((0, 1), (2.0, 1.0)), Query((0, 0), (2.0, 1.0)))
    (zero,) = expected_values([Example(queries, None)], parse_measure("RR"), "average", "zero")
    assert zero.per_query == (1.0, 0.5, 0.0)
    assert zero.mean == (1 + 1 / 2 + 0) / 3
    (skip,) = expected_values([Example(queries, None)], parse_measure("RR"), "average", "skip")
    assert math.isnan(skip.per_query[2])
    assert skip.mean == (1 + 1 / 2) / 2


HOLDS = {  # what all examples of a category have in common
    "binary labels": lambda query, k: set(query.labels) == {0, 1} and list(query.scores) == in_order(query),
    "graded labels": lambda query, k: max(query.labels) > 1 and len(set(query.labels)) > 1,
    "unsorted input": lambda query, k: list(query.scores) != in_order(query),
    "fewer documents than k": lambda query, k: 1 < len(query.labels) < k,
    "more documents than k": lambda query, k: len(query.labels) > k,
    "ties": lambda query, k: any(
        query.scores[i] == query.scores[j] and query.labels[i] != query.labels[j]
        for i, j in itertools.combinations(range(len(query.labels)), 2)
    ),
    "no relevant documents": lambda query, k: set(query.labels) == {0},
    "all documents relevant": lambda query, k: len(query.labels) > 1 and min(query.labels) > 0,
    "single document": lambda query, k: len(query.labels) == 1 and query.labels[0] > 0,
    "no documents": lambda query, k: query.labels == (),
    "negative labels": lambda query, k: min(query.labels) < 0 < max(query.labels),
    "negative scores": lambda query, k: min(query.scores) < 0,
    "fractional scores": lambda query, k: any(score % 1 for score in query.scores),
    "large list": lambda query, k: len(query.labels) > 8,
    "relevant documents not retrieved": lambda query, k: min(query.not_retrieved) > 0,
    "unjudged documents": lambda query, k: not all(query.judged) and max(query.labels) > 0,
    "repeated documents": lambda query, k: 0 < len(set(query.ids)) < len(query.labels),
    "several queries": lambda query, k: set(query.labels) == {0, 1},
}


def in_order(query: Query) -> list[float]:
    return sorted(query.scores, reverse=True)


@pytest.mark.parametrize("category", CATEGORIES, ids=lambda category: category.name)
def test_examples_are_of_their_category_and_different(category):
    for takes_k in (False, True):
        examples = Generator(parse_measure("nDCG@4"), takes_k, True, seed=1, count=40).examples(category)
        assert len(set(examples)) == len(examples) >= (1 if category.name in ("no documents", "single document") else 3)
        for example in examples:
            assert all(HOLDS[category.name](query, example.k) for query in example.queries), example
            assert takes_k or example.k == 4


def test_examples_depend_on_the_seed_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where Hypothesis would write what it finds in modules
    ties = next(category for category in CATEGORIES if category.name == "ties")

    def draw(seed):
        return Generator(parse_measure("nDCG@4"), True, True, seed, 30).examples(ties)

    assert draw(1) == draw(1) != draw(2)
    assert not check_measure(own.ideal_of_top_k, "nDCG@10").ok
    assert list(tmp_path.iterdir()) == []


def test_shrinking_finds_the_smallest_example():
    generator = Generator(parse_measure("nDCG@10"), True, True, seed=0, count=30)
    graded = next(category for category in CATEGORIES if category.name == "graded labels")

    def fails(example: Example) -> bool:
        return sum(label >= 2 for label in example.query.labels) >= 2 and (example.k or 0) >= 3

    smallest = generator.smallest(graded, fails)
    assert sorted(smallest.query.labels) == [0, 2, 2]
    assert smallest.k == 3
    assert generator.smallest(graded, lambda example: False) is None


# ---- lists of queries ------------------------------------------------------------------------------------------------


def _mean(values):
    return sum(values) / len(values)


def mapk(actual, predicted, k=10):
    """As on Kaggle: lists with the ids of each query."""

    def apk(relevant, ranked):
        hits, total = 0, 0.0
        for i, document in enumerate(ranked[:k]):
            if document in relevant and document not in ranked[:i]:
                hits += 1
                total += hits / (i + 1)
        return total / min(len(relevant), k) if relevant else 0.0

    return _mean([apk(*pair) for pair in zip(actual, predicted, strict=True)])


def mean_rr(rankings):
    return _mean([own.reciprocal_rank(ranking) for ranking in rankings])


def mean_ndcg(truth, estimates):
    return _mean([own.ndcg(labels[:], scores[:], 10) for labels, scores in zip(truth, estimates, strict=True)])


def rr_of_last(rankings):
    return _mean([own.rr_too_low(ranking) for ranking in rankings])


@pytest.mark.parametrize(
    ("function", "measure", "signature"),
    [
        (mapk, "AP(div='min')@10", "relevant_ids,ranked_ids,k"),
        (mean_rr, "RR", "ranked_labels"),
        (mean_ndcg, "nDCG@10", "y_true,y_score"),
    ],
)
def test_functions_of_lists_of_lists_are_recognized(function, measure, signature):
    report = check_measure(function, measure)
    assert report.signature == signature
    assert report.ok, str(report)
    assert report.agreements["several queries"] > 0


def test_a_mistake_in_a_function_of_lists_of_lists_has_its_cause():
    assert "Ranks are too large by 1" in check_measure(rr_of_last, "RR").first.cause
    causes = {entry.cause for entry in check_measure(mapk, "AP@10").disagreements.values()}
    assert len(causes) == 1
    assert "Compare it with AP(div='min')@10." in causes.pop()
