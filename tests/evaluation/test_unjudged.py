"""Decisions that no label can change, what to judge next, and predicted labels."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import optimize, stats

from rankbound import Lists, Protocol, compare, evaluate, parse_measure
from rankbound.cli.main import run
from rankbound.difficulty.unknown.differences import RunsWithUnknown
from rankbound.errors import ArgumentError, DataError, FileFormatError, InferenceWarning, MeasureError
from rankbound.evaluation.alignment import lists_on_shared_queries
from rankbound.evaluation.judge import (
    _probabilities,
    importance_of_documents,
    next_judgments,
    read_filled,
    relevance_probabilities,
    with_judgments,
)
from rankbound.evaluation.predicted import evaluate_predicted, predicted_mean
from rankbound.evaluation.unjudged import decide
from rankbound.report.figures.drawing import Tables, draw_figures
from rankbound.report.numbers import show_interval
from rankbound.report.unjudged import ranges_of_means

DOCUMENTS = [f"d{i}" for i in range(12)]


def _data(seed, queries=4, judged=0.7):
    rng = np.random.default_rng(seed)
    qrels = {
        f"q{i}": {"z": 1} | {d: int(rng.integers(0, 2)) for d in DOCUMENTS if rng.random() < judged}
        for i in range(queries)
    }
    runs = {
        name: {q: {str(d): 10.0 - i for i, d in enumerate(rng.permutation(DOCUMENTS)[:6])} for q in qrels}
        for name in ("one", "two", "three")
    }
    return qrels, runs


def _all_labelings(qrels, first, second):
    """Every way to label the documents that either run returned without a judgment."""
    unknown = sorted({(q, d) for run in (first, second) for q in run for d in run[q] if d not in qrels[q]})
    for labels in itertools.product((0, 1), repeat=len(unknown)):
        filled = {q: dict(documents) for q, documents in qrels.items()}
        for (q, d), label in zip(unknown, labels, strict=True):
            filled[q][d] = label
        yield filled


@pytest.mark.parametrize("measure", ["P@3", "nDCG@4", "RBP", "AP"])
def test_decisions_hold_for_every_labeling(measure):
    seen = set()
    for seed in range(8):
        qrels, runs = _data(seed, queries=2, judged=0.8)
        both = RunsWithUnknown(lists_on_shared_queries(qrels, [runs["one"], runs["two"]]))
        (row,) = decide(both, {measure: parse_measure(measure)}, ["one", "two"], [(0, 1)])
        means, signs = [], []
        for filled in _all_labelings(qrels, runs["one"], runs["two"]):
            one, two = (evaluate(filled, runs[name], measure).values[measure] for name in ("one", "two"))
            means.append((two - one).mean())
            signs.append(np.sign(np.round(two - one, 12)))
        if row.is_exact:
            assert row.low == pytest.approx(min(means), abs=1e-12)
            assert row.high == pytest.approx(max(means), abs=1e-12)
            assert row.decided_queries == int((np.ptp(signs, axis=0) == 0).sum())
        assert row.low <= min(means) + 1e-12
        assert max(means) <= row.high + 1e-12
        if row.is_decided:
            assert len(set(np.sign(np.round(means, 12)))) == 1
        seen.add(row.is_decided)
    assert measure in ("AP", "P@3") or len(seen) == 2  # the cases are of both kinds


def test_significance_names_what_labels_can_do():
    def decision(one, two, queries=8, judged=("a", "b")):
        qrels = {f"q{i}": dict.fromkeys(judged, 0) | {"a": 1} for i in range(queries)}
        runs = [{q: {d: 9.0 - i for i, d in enumerate(run)} for q in qrels} for run in (one, two)]
        lists = lists_on_shared_queries(qrels, runs)
        return decide(RunsWithUnknown(lists), {"P@1": parse_measure("P@1")}, ["one", "two"], [(0, 1)])[0]

    assert decision("ba", "ab").significance == "stands"  # no document is unjudged
    assert decision("xa", "ab").significance == "may be lost"  # x can be as good as a
    assert decision("xb", "yb").significance == "may appear"
    assert decision("ab", "ab").significance == "absent"
    qrels = {f"q{i}": {"a": 1} for i in range(8)}
    runs = [{q: {"x": 2.0, "a": 1.0} for q in qrels}, {q: {"a": 2.0, "y": 1.0} for q in qrels}]
    both = RunsWithUnknown(lists_on_shared_queries(qrels, runs))
    (row,) = decide(both, {"DCG@2": parse_measure("DCG@2")}, ["one", "two"], [(0, 1)])
    assert row.significance == "may be reversed"
    assert {document.docid for document in row.documents} == {"x", "y"}


def test_deciding_documents_are_those_with_the_largest_effect():
    qrels = {"q": {"a": 1}, "r": {"a": 1}}
    runs = [{q: {"a": 3.0, "x": 2.0, "y": 1.0} for q in qrels}, {q: {"a": 3.0, "y": 2.0} for q in qrels}]
    (row,) = decide(
        RunsWithUnknown(lists_on_shared_queries(qrels, runs)),
        {"RBP(p=0.5)": parse_measure("RBP(p=0.5)")},
        "AB",
        [(0, 1)],
    )
    effects = {(document.qid, document.docid): document.effect for document in row.documents}
    # x: 0.5 * 0.5 in one run; y: 0.5 * (0.5 - 0.25); over two queries
    assert effects == {(q, d): pytest.approx(e) for q in qrels for d, e in (("x", 0.125), ("y", 0.0625))}


# ---- what to judge next ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["P@3", "nDCG@4", "RBP", "AP", "ERR@3"])
def test_judging_what_is_listed_decides_everything(measure):
    qrels, runs = _data(3)
    for _ in range(60):
        plan = next_judgments(qrels, runs, measure, budget=5)
        if not plan.documents:
            break
        assert len({(document.qid, document.docid) for document in plan.documents}) == len(plan.documents) <= 5
        for document in plan.documents:
            assert document.docid not in qrels[document.qid]
            qrels[document.qid][document.docid] = 0
    assert plan.decided == plan.comparisons == 3


def test_expected_reduction_is_that_of_the_width():
    qrels, runs = _data(5)
    plan = next_judgments(qrels, runs, "P@3", budget=1)
    document = plan.documents[0]
    for label in (0, 1):
        filled = {q: dict(documents) for q, documents in qrels.items()}
        filled[document.qid][document.docid] = label
        both = RunsWithUnknown(lists_on_shared_queries(filled, list(runs.values())))
        found = both.differences(parse_measure("P@3"), [(0, 1), (0, 2), (1, 2)])
        assert (found.high - found.low).mean(axis=1).sum() == pytest.approx(plan.width - document.reduction)


def test_importance_is_the_expected_progress_of_the_ends():
    rng = np.random.default_rng(4)
    effects, p = rng.random((6, 3)) * (rng.random((6, 3)) > 0.3), rng.random(6)
    pairs = np.array([(0, 1), (0, 2), (1, 2)])
    delta = effects[:, pairs[:, 1]] - effects[:, pairs[:, 0]]
    low, high = np.minimum(delta, 0).sum(axis=0) + 0.1, np.maximum(delta, 0).sum(axis=0) + 0.1  # 0.1 is known
    importance, reduction, number = importance_of_documents(effects, p, pairs, low, high)
    for document in range(6):
        expected = 0.0
        for pair in range(3):
            d = delta[document, pair]
            mean, variance = 0.1 + p @ delta[:, pair], (p * (1 - p)) @ delta[:, pair] ** 2
            wins = stats.norm.cdf(mean / variance**0.5)
            for label, probability in ((1, p[document]), (0, 1 - p[document])):
                of_low, of_high = label * d - min(d, 0), max(d, 0) - label * d
                expected += probability * (wins * of_low / -low[pair] + (1 - wins) * of_high / high[pair])
        assert importance[document] == pytest.approx(expected)
    assert reduction == pytest.approx(np.abs(delta).sum(axis=1))
    assert number.tolist() == (delta != 0).sum(axis=1).tolist()


def test_probabilities_of_relevance_are_the_most_likely_ones():
    rng = np.random.default_rng(6)
    pooled, query = rng.integers(1, 6, 80) / 5, rng.integers(0, 4, 80)
    label = np.where(rng.random(80) < 0.6, rng.random(80) < pooled * (query + 1) / 5, np.nan)
    found = relevance_probabilities(pooled, query, label)
    known = ~np.isnan(label)

    def loss(w):
        logits = w[0] + w[1] * np.log(pooled) + w[2:][query]
        likelihood = label[known] * logits[known] - np.logaddexp(0, logits[known])
        return (w[0] ** 2 + (w[1] - 1) ** 2 + (w[2:] ** 2).sum()) / 2 - likelihood.sum()

    best = optimize.minimize(loss, np.zeros(6), method="BFGS").x
    expected = 1 / (1 + np.exp(-(best[0] + best[1] * np.log(pooled) + best[2:][query])))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_documents_like_the_relevant_ones_are_likely_relevant():
    qrels = {"good": {f"r{i}": 1 for i in range(6)}, "bad": {f"n{i}": 0 for i in range(6)} | {"z": 1}}
    ranks = {"good": [f"r{i}" for i in range(6)], "bad": [f"n{i}" for i in range(6)]}
    runs = {
        name: {q: {d: 9.0 - i for i, d in enumerate([f"{name}-{q}", *documents])} for q, documents in ranks.items()}
        for name in ("one", "two")
    }
    both = RunsWithUnknown(lists_on_shared_queries(qrels, list(runs.values())))
    measure = parse_measure("P@5")
    codes, _ = both.effects(measure)
    found = dict(zip([both.name_of(int(code))[0] for code in codes], _probabilities(both, measure, codes), strict=True))
    assert found["good"] > 0.5 > 0.2 > found["bad"]  # 1/3 before any judgment


def test_files_are_filled_in_and_read_again(tmp_path):
    qrels, runs = _data(1)
    path = tmp_path / "next.txt"
    path.write_text(next_judgments(qrels, runs, budget=4).lines())
    assert read_filled(path) == []
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0].replace("?", "2"), "", *lines[1:]]))
    (read,) = read_filled(path)
    assert read == (lines[0].split()[0], lines[0].split()[2], 2.0)
    more = with_judgments(qrels, [read])
    assert len(more) == sum(map(len, qrels.values())) + 1
    with pytest.raises(DataError, match="more than once"):
        with_judgments(more, [read])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q 0 d\n", "next.txt:1: a judgment must have 4 fields, got 3"),
        ("q 0 d ?\nq 0 e x", "next.txt:2: a label must be"),
    ],
)
def test_wrong_lines(tmp_path, text, message):
    (tmp_path / "next.txt").write_text(text)
    with pytest.raises(FileFormatError, match=message):
        read_filled(tmp_path / "next.txt")


@pytest.mark.parametrize("budget", [0, -1, 2.5, True, "many"])
def test_wrong_budgets(budget):
    qrels, runs = _data(1)
    with pytest.raises(ArgumentError, match="budget must be a positive integer"):
        next_judgments(qrels, runs, budget=budget)


def test_what_cannot_be_planned():
    qrels, runs = _data(1)
    with pytest.raises(ArgumentError, match="at least two"):
        next_judgments(qrels, {"one": runs["one"]})
    with pytest.raises(MeasureError, match="no exact range"):
        next_judgments(qrels, runs, "Bpref")
    with pytest.raises(DataError, match="no query in common"):
        next_judgments({"other": {"a": 1}}, runs)


# ---- predicted labels ------------------------------------------------------------------------------------------------


def test_perfect_predictions_give_the_mean_of_all_queries():
    values = np.random.default_rng(0).random(40)
    found = predicted_mean(values[:10], values[:10], values[10:])
    weight = np.cov(values[:10], values[:10])[0, 1] / ((1 + 10 / 30) * values.var(ddof=1))
    assert found.weight == pytest.approx(min(weight, 1.0))
    assert found.mean == pytest.approx((1 - found.weight) * values[:10].mean() + found.weight * values[10:].mean())
    assert found.predicted_mean == pytest.approx(values.mean())


def test_useless_predictions_give_the_interval_of_human_labels():
    rng = np.random.default_rng(1)
    human = rng.random(12)
    found = predicted_mean(human, np.ones(12), np.ones(20))
    t = stats.t.interval(0.9, 11, human.mean(), human.std(ddof=1) / 12**0.5)
    found = predicted_mean(human, np.ones(12), np.ones(20), confidence=0.9)
    assert (found.low, found.high) == pytest.approx(t)
    assert (found.human_low, found.human_high, found.weight) == (pytest.approx(t[0]), pytest.approx(t[1]), 0.0)


@pytest.mark.parametrize("error", [0.1, 1.0])
def test_intervals_cover_whatever_the_predictions_are(error):
    rng = np.random.default_rng(7)
    covered, shorter = 0, []
    for _ in range(1_000):
        truth = rng.beta(2, 3, 60)
        predicted = truth * (1 - error) + error * rng.random(60) + 0.2  # biased as well
        found = predicted_mean(truth[:20], predicted[:20], predicted[20:])
        covered += found.low <= 0.4 <= found.high
        shorter.append((found.high - found.low) / (found.human_high - found.human_low))
    assert 925 <= covered <= 970  # 950 with a standard error of 7
    assert np.mean(shorter) < (0.75 if error < 1 else 1.02)


def _predicted_data():
    rng = np.random.default_rng(2)
    truth = {f"q{i}": {d: int(rng.random() < 0.4) for d in DOCUMENTS} for i in range(30)}
    model = {q: {d: label if rng.random() < 0.9 else 1 - label for d, label in ds.items()} for q, ds in truth.items()}
    runs = {
        name: {q: {d: float(rng.random() + w * label) for d, label in ds.items()} for q, ds in truth.items()}
        for name, w in (("weak", 0.2), ("strong", 0.8))
    }
    sample = {q: truth[q] for q in rng.permutation(sorted(truth))[:12]}
    return truth, model, runs, sample


def test_runs_with_predicted_labels():
    _, model, runs, sample = _predicted_data()
    result = evaluate_predicted(sample, model, runs, ["P@3", "nDCG@5"])
    rows = {(row.measure, row.run, row.baseline): row.result for row in result.rows}
    assert set(rows) == {(m, r, b) for m in ("P@3", "nDCG@5") for r, b in
                         (("weak", None), ("strong", None), ("strong", "weak"))}  # fmt: skip
    for measure in ("P@3", "nDCG@5"):
        x = {name: evaluate(sample, run, measure, empty="zero") for name, run in runs.items()}
        y = {name: evaluate(model, run, measure, empty="zero") for name, run in runs.items()}
        d_x = x["strong"].values[measure] - x["weak"].values[measure]
        d_y = y["strong"].values[measure] - y["weak"].values[measure]
        ids = [str(q) for q in x["weak"].query_ids]
        inside = np.array([str(q) in ids for q in y["weak"].query_ids])
        order = [ids.index(str(q)) for q in y["weak"].query_ids if str(q) in ids]
        expected = predicted_mean(d_x[order], d_y[inside], d_y[~inside])
        assert rows[measure, "strong", "weak"].mean == pytest.approx(expected.mean)
        assert rows[measure, "strong", "weak"].low == pytest.approx(expected.low)
    assert result.mean()["weak"]["P@3"] == rows["P@3", "weak", None].mean
    assert json.loads(json.dumps(result.to_dict()))["agreement"]["documents"] == 12 * 12
    table = np.zeros((2, 2))
    for q, documents in sample.items():
        for d, label in documents.items():
            table[label, model[q][d]] += 1
    assert result.agreement.confusion == tuple(tuple(row) for row in table.astype(int).tolist())
    p = table / table.sum()
    chance = float(p.sum(0) @ p.sum(1))
    assert result.agreement.kappa == pytest.approx((np.trace(p) - chance) / (1 - chance))


def test_a_sample_that_is_not_random_is_noticed():
    truth, model, runs, _ = _predicted_data()
    first = {q: truth[q] for q in sorted(truth, key=lambda name: int(name[1:]))[:12]}
    with pytest.warns(InferenceWarning, match="not spread over the order"):
        evaluate_predicted(first, model, runs, "P@3")
    easiest = sorted(
        truth, key=lambda q: -sum(model[q][d] for d in sorted(runs["weak"][q], key=runs["weak"][q].get)[-3:])
    )
    with pytest.warns(InferenceWarning, match="differ from the others"):
        evaluate_predicted({q: truth[q] for q in easiest[:12]}, model, runs, "P@3")


@pytest.mark.parametrize("queries", [0, 1])
def test_samples_that_are_too_small(queries):
    truth, model, runs, _ = _predicted_data()
    sample = {q: truth[q] for q in list(truth)[:queries]}
    with pytest.raises((ArgumentError, DataError)) as error:
        evaluate_predicted(sample, model, runs, "P@3")
    assert "\n" not in str(error.value)


def test_wrong_predictions():
    truth, model, runs, sample = _predicted_data()
    with pytest.raises(DataError, match=r"grades of the human labels \(0, 1\), got 3"):
        evaluate_predicted(sample, model | {"q0": {"d0": 3}}, runs, "P@3")
    with pytest.raises(DataError, match="do their ids match"):
        evaluate_predicted(sample, {q: {"other": 1} for q in truth}, runs, "P@3")
    with pytest.raises(ArgumentError, match="empty must be"):
        evaluate_predicted(sample, model, runs, "P@3", empty="skip")
    with pytest.raises(ArgumentError, match="a value for each query"):
        predicted_mean([1, 2, 3], [1, 2], [1])
    with pytest.raises(ArgumentError, match="at least 3 queries, got 2"):
        predicted_mean([1, 2], [1, 2], [1])


def test_lists_need_scores_of_the_same_queries():
    lists = Lists.from_dicts({"q": {"a": 1}}, {"q": {"a": 1.0}})
    with pytest.raises(ArgumentError, match="at least two"):
        RunsWithUnknown([lists])


# ---- evaluate and compare --------------------------------------------------------------------------------------------


def test_evaluate_bounds_every_mean():
    qrels, runs = _data(2, queries=2, judged=0.8)
    names = ["nDCG@4", "AP", "P@3", "ERR@3"]
    result = evaluate(qrels, runs["one"], names, unjudged="range")
    every = [evaluate(filled, runs["one"], names) for filled in _all_labelings(qrels, runs["one"], {})]
    for name, (low, high) in result.range().items():
        means = [other.mean()[name] for other in every]
        assert (low, high) == (pytest.approx(min(means), abs=1e-12), pytest.approx(max(means), abs=1e-12))
        per_query = np.array([other.values[name] for other in every])
        np.testing.assert_allclose(result.ranges[name].low, per_query.min(axis=0), atol=1e-12)
        np.testing.assert_allclose(result.per_query[f"{name} high"], per_query.max(axis=0), atol=1e-12)
    assert result.mean() == evaluate(qrels, runs["one"], names).mean()
    assert json.loads(json.dumps(result.to_dict()))["unjudged"] == "range:0,1"
    assert all("|unjudged:range:0,1|" in text for text in result.signature.values())


@pytest.mark.parametrize("empty", ["skip", "zero", "one"])
def test_means_over_queries_that_may_be_empty(empty):
    qrels = {"p": {"a": 0}, "q": {"a": 1, "b": 1}, "r": {"a": 0}}
    run = {"p": {"x": 2.0, "a": 1.0}, "q": {"a": 2.0, "y": 1.0}, "r": {"a": 2.0, "z": 1.0}}
    found = evaluate(qrels, run, "nDCG@2", empty=empty, unjudged="range").range()["nDCG@2"]
    means = [evaluate(filled, run, "nDCG@2", empty=empty).mean()["nDCG@2"] for filled in _all_labelings(qrels, run, {})]
    assert found == (pytest.approx(np.nanmin(means), abs=1e-12), pytest.approx(np.nanmax(means), abs=1e-12))


def test_expected_values_by_probabilities():
    qrels, runs = _data(6, queries=3, judged=0.6)
    unknown = [(q, d) for q in qrels for d in runs["one"][q] if d not in qrels[q]]
    result = evaluate(qrels, runs["one"], ["P@3", "AP"], unjudged=0.3)
    exact = 0.0
    for labels in itertools.product((0, 1), repeat=len(unknown)):
        filled = {q: dict(documents) for q, documents in qrels.items()}
        for (q, d), label in zip(unknown, labels, strict=True):
            filled[q][d] = label
        exact += (
            np.prod([0.3 if label else 0.7 for label in labels]) * evaluate(filled, runs["one"], "P@3").mean()["P@3"]
        )
    assert result.mean()["P@3"] == pytest.approx(exact, abs=1e-12)
    assert result.label_draws["P@3"].error_of_mean == result.label_draws["AP"].error_of_mean == 0
    low, high = result.range()["AP"]
    assert low < result.mean()["AP"] < high
    drawn = evaluate(qrels, runs["one"], "Rprec", unjudged=0.3)
    assert drawn.to_dict()["draw_error"]["Rprec"] > 0
    by_function = evaluate(qrels, runs["one"], "P@3", unjudged=lambda queries, ids, ranks: np.full(len(ids), 0.3))
    assert by_function.mean()["P@3"] == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("per_grade", [False, True])
def test_probabilities_of_single_documents(tmp_path, capsys, per_grade):
    qrels, runs = _data(6, queries=2, judged=0.6)
    qrels["q1"]["d0"] = 2
    rng = np.random.default_rng(0)
    unknown = [(q, d) for q in qrels for d in runs["one"][q] if d not in qrels[q]]
    p = rng.dirichlet([3, 1, 1], len(unknown))[:, 1:]
    if not per_grade:
        labels = [label for q in qrels for d, label in qrels[q].items() if label > 0]
        p = p.sum(axis=1)[:, None] * np.array([labels.count(1), labels.count(2)]) / len(labels)
    expected = 0.0
    for labels in itertools.product((0, 1, 2), repeat=len(unknown)):
        filled = {q: dict(documents) for q, documents in qrels.items()}
        for (q, d), label in zip(unknown, labels, strict=True):
            filled[q][d] = label
        probability = np.prod(np.column_stack((1 - p.sum(axis=1), p))[np.arange(len(p)), labels])
        expected += probability * evaluate(filled, runs["one"], "DCG@3").mean()["DCG@3"]
    columns = dict(zip(("qid", "docid"), zip(*unknown, strict=True), strict=True))
    columns |= {"p_1": p[:, 0], "p_2": p[:, 1]} if per_grade else {"probability": p.sum(axis=1)}
    frame = pl.DataFrame(columns)
    path = tmp_path / "probabilities.csv"
    frame.sample(fraction=1.0, shuffle=True, seed=1).write_csv(path)
    tables = [frame, frame.with_columns(other=pl.lit("x")).to_pandas(), path, str(path)]
    if not per_grade:
        tables.append(
            {q: {d: float(x) for (of, d), x in zip(unknown, p.sum(axis=1), strict=True) if of == q} for q in qrels}
        )
    for given in tables:
        result = evaluate(qrels, runs["one"], "DCG@3", unjudged=given)
        assert result.mean()["DCG@3"] == pytest.approx(expected, abs=1e-12)
        name = str(path) if isinstance(given, (str, Path)) else "explicit"
        assert f"|unjudged:{name}|" in result.signature["DCG@3"]
        assert result.to_dict()["unjudged"] == name
    lists = Lists.from_dicts(qrels, runs["one"])
    assert evaluate(lists, "DCG@3", unjudged=frame).mean() == result.mean()
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {d} {x}\n" for q in qrels for d, x in qrels[q].items()))
    (tmp_path / "run").write_text("".join(f"{q} Q0 {d} 1 {x} A\n" for q in qrels for d, x in runs["one"][q].items()))
    capsys.readouterr()
    assert (
        run(["evaluate", f"{tmp_path}/qrels", f"{tmp_path}/run", "-m", "DCG@3", "--unjudged", f"{path}", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["mean"] == {"DCG@3": pytest.approx(expected, abs=1e-9)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"probability": [1.5]}, "unjudged: probabilities must be from 0 to 1, got 1.5 for document 'x' of query 'q'"),
        ({"probability": [float("nan")]}, "must be from 0 to 1, got nan"),
        ({"probability": [None]}, "must hold probabilities|must be from 0 to 1, got nan"),
        ({"p_1": [0.7], "p_2": [0.6]}, "must add up to at most 1, got 1.3"),
        ({"p_0": [0.7], "p_1": [0.6]}, "must add up to at most 1, got 1.3"),
        ({"p_-1": [0.7], "p_1": [0.6]}, "grades of columns must be finite and not negative, got 'p_-1'"),
        ({"probability": ["high"]}, "column 'probability' must hold probabilities"),
        ({"probability": [0.1], "p_1": [0.1]}, "in a column 'probability' or in a column per grade"),
        ({"p": [0.1]}, "in a column 'probability' or in a column per grade"),
        ({"docid": ["y"], "probability": [0.1]}, "1 of 1 have none, such as document 'x' of query 'q'"),
        ({"qid": ["q", "q"], "docid": ["x", "x"], "probability": [0.1, 0.2]}, "must have one row, got several"),
    ],
)
def test_wrong_tables_of_probabilities(columns, message):
    with pytest.raises(DataError, match=message) as error:
        evaluate(
            {"q": {"a": 1}}, {"q": {"x": 1.0}}, "P@1", unjudged=pl.DataFrame({"qid": ["q"], "docid": ["x"]} | columns)
        )
    assert "\n" not in str(error.value)


def test_what_is_no_table_of_probabilities(tmp_path):
    with pytest.raises(DataError, match=r"p\.csv: no such file"):
        evaluate({"q": {"a": 1}}, {"q": {"x": 1.0}}, "P@1", unjudged=tmp_path / "p.csv")
    with pytest.raises(ArgumentError, match="unjudged must be a table of probabilities"):
        evaluate({"q": {"a": 1}}, {"q": {"x": 1.0}}, "P@1", unjudged=[0.1])
    with pytest.raises(ArgumentError, match="not by probabilities"):
        compare({"q": {"x": 1.0}}, {"q": {"a": 1.0}}, qrels={"q": {"a": 1}}, measures="P@1", unjudged="p.csv")
    with pytest.raises(ArgumentError, match="does not hold the unjudged themselves"):
        Protocol.parse("P@1|ties:average|unjudged:explicit")
    for given in (0.25, 1e-05, "range:0,1", "p.csv"):
        protocol = Protocol(unjudged=given)
        assert Protocol.parse(protocol.signature(parse_measure("P@1"))) == protocol


@pytest.mark.parametrize("value", [-0.1, 1.5, "some", "range:x", "range:", True, None])
def test_wrong_treatments_of_unjudged_documents(value):
    with pytest.raises(ArgumentError, match="unjudged must be zero, range"):
        evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, "P@1", unjudged=value)


def test_what_goes_not_with_unjudged_documents():
    qrels, runs = _data(0)
    with pytest.raises(ArgumentError, match="judged_only leaves out"):
        evaluate(qrels, runs["one"], "P@1", unjudged="range", judged_only=True)
    with pytest.raises(MeasureError, match="candidates that list documents"):
        evaluate(qrels, runs["one"], "EM(P@1)", unjudged="range")
    with pytest.raises(ArgumentError, match="from 0 to 1, got 3"):
        evaluate(qrels, runs["one"], "P@1", unjudged=lambda queries, ids, ranks: np.full(len(ids), 3.0))
    with pytest.raises(ArgumentError, match="not by probabilities"):
        compare(runs["one"], runs["two"], qrels=qrels, measures="P@1", unjudged=0.5)
    with pytest.raises(ArgumentError, match=r"evaluate\(\.\.\., unjudged"):
        evaluate(qrels, runs["one"], "P@1").range()
    results = [evaluate(qrels, runs[name], "P@1") for name in ("one", "two")]
    with pytest.raises(ArgumentError, match="needs the documents"):
        compare(*results, unjudged="range")


def test_compare_decides():
    qrels, runs = _data(4, queries=12)
    comparison = compare(runs, qrels=qrels, measures=["P@3", "AP"], unjudged="range", resamples=100)
    assert [(row.measure, row.baseline, row.run) for row in comparison.decisions] == [
        (row.measure, row.baseline, row.run) for row in comparison.rows
    ]
    for row, difference in zip(comparison.decisions, comparison.rows, strict=True):
        assert row.low - 1e-12 <= difference.difference <= row.high + 1e-12
    assert len(json.loads(json.dumps(comparison.to_dict()))["decisions"]) == 4
    lists = [Lists.from_dicts(qrels, runs[name]) for name in ("one", "two")]
    (row,) = compare(*lists, measures="P@3", unjudged="range", resamples=100).decisions
    assert (row.low, row.high) == (comparison.decisions[0].low, comparison.decisions[0].high)


def test_tables_and_pages_show_what_labels_leave_open(tmp_path):
    qrels, runs = _data(4, queries=12)
    names = ["P@3", "AP"]
    results = evaluate(qrels, runs, names, unjudged="range")
    comparison = compare(runs, qrels=qrels, measures=names, unjudged="range", resamples=100)
    assert comparison.label_ranges == {name: result.range() for name, result in results.items()}
    assert comparison.to_dict()["range"]["two"]["AP"] == list(results["two"].range()["AP"])
    low, high = results["two"].range()["AP"]
    row = results.table().row(1, named=True)
    assert (row["AP"], row["AP low"], row["AP high"]) == (results["two"].mean()["AP"], low, high)
    assert f"({low:.4f} to {high:.4f})" in results.to_markdown()
    assert f"| {low:.4f} to {high:.4f} |" in results["two"].to_markdown()
    decision = comparison.decisions[0]
    assert f"| {show_interval(decision.low, decision.high, sign=True)} |" in comparison.to_markdown()
    page = comparison.page(tmp_path / "page.html").read_text()
    assert "Whatever the unjudged documents are" in page
    drawn = draw_figures(Tables(comparison.scores.to_table(), label_ranges=ranges_of_means(comparison.label_ranges)))
    for chart in (drawn["system-means"].chart, results.plot().chart):
        found = {
            (row["measure"], row["system"]): (row["label_low"], row["label_high"])
            for rows in chart.to_dict()["datasets"].values()
            for row in rows
        }
        expected = {(name, run): of[name] for run, of in comparison.label_ranges.items() for name in names}
        assert found.keys() == expected.keys()
        for key, ends in expected.items():
            assert found[key] == pytest.approx(ends, abs=1e-6)
    without = draw_figures(Tables(comparison.scores.to_table()))["system-means"].chart
    assert "label_low" not in json.dumps(without.to_dict())


def test_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qrels").write_text("q1 0 a 1\nq1 0 b 0\nq2 0 c 1\n")
    (tmp_path / "A").write_text("q1 Q0 a 1 3 A\nq1 Q0 x 2 2 A\nq2 Q0 y 1 2 A\nq2 Q0 c 2 1 A\n")
    (tmp_path / "B").write_text("q1 Q0 x 1 3 B\nq1 Q0 z 2 2 B\nq2 Q0 c 1 2 B\nq2 Q0 w 2 1 B\n")
    assert run(["evaluate", "qrels", "A", "--unjudged", "range", "-m", "RR", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["range"] == {"RR": [0.75, 1.0]}
    assert run(["evaluate", "qrels", "A", "--unjudged", "range"]) == 0
    assert "0.7500 to 1.0000" in capsys.readouterr().out
    assert run(["compare", "qrels", "A", "B", "--unjudged", "range", "-m", "RR", "--resamples", "100"]) == 0
    assert "Whatever the unjudged documents are" in capsys.readouterr().out
    assert run(["judge", "qrels", "A", "B", "--budget", "1", "-o", "next", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (tmp_path / "next").read_text() == "".join(f"{d['qid']} 0 {d['docid']} ?\n" for d in plan["documents"])
    (tmp_path / "next").write_text((tmp_path / "next").read_text().replace("?", "0"))
    assert run(["judge", "qrels", "A", "B", "--filled", "next"]) == 0
    left = capsys.readouterr().out.split()
    assert left
    assert plan["documents"][0]["docid"] not in left
    for line in ("judge qrels A B --budget -1", "judge qrels A", "evaluate qrels A --unjudged 2"):
        assert run(line.split()) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
