"""The audit: twelve seeded faults, clean test sets, and the numbers behind the findings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound.cli.main import run as run_command
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.audit_judgments import probability_of_ideal, sample_queries
from rankbound.measures import Definition, LabelCounts, parse_measure, register, unregister
from rankbound.testing import oracles

QUERIES, DOCUMENTS = 40, 20


def clean_set(seed=0, queries=QUERIES, documents=DOCUMENTS, rate=0.2):
    """Judgments in random order with ids that say nothing, and a run that is better than random."""
    random = np.random.default_rng(seed)
    rows, run = [], []
    for query in range(queries):
        names = random.permutation(10_000)[:documents]
        labels = (random.random(documents) < rate) * random.integers(1, 3, documents)
        labels[random.integers(documents)] = 1
        rows += [(f"q{query}", f"d{name}", int(label)) for name, label in zip(names, labels, strict=True)]
        scores = labels + random.normal(0, 1, documents)
        run += [(f"q{query}", f"d{names[i]}", float(scores[i])) for i in np.argsort(-scores)]
    return frame(rows, "label"), frame(run, "score")


def frame(rows, number):
    return pl.DataFrame(rows, schema=["qid", "docid", number], orient="row")


def topics(audit, severities=("fault", "warning")):
    return [finding.topic for finding in audit.findings if finding.severity in severities]


# ---- twelve seeded faults: judgments, a run, candidates, and the topics of the findings ------------------------------


def constant_scorer():
    qrels, _ = clean_set()
    qrels = qrels.sort("qid", "label", descending=[False, True], maintain_order=True)
    return qrels, qrels.select("qid", "docid", score=pl.lit(0.5)), None, ["order of the rows", "ties"]


def missing_positives():
    qrels, run = clean_set()
    listed = qrels.filter((pl.col("label") == 0) | (pl.int_range(pl.len()) % 2 == 0)).select("qid", "docid")
    return qrels, run, listed, ["relevant documents missing from the candidates"]


def duplicates():
    qrels, run = clean_set()
    return pl.concat([qrels, qrels.head(7).with_columns(label=2 - pl.col("label"))]), run, None, ["duplicate judgments"]


def values_above_one():
    qrels, run = clean_set()
    best = qrels.filter(pl.col("label") > 0).group_by("qid").first().select("qid", "docid", score=pl.lit(9.0))
    return qrels, pl.concat([best, best, best, best, best, run]), None, ["repeated documents"]


def ids_that_leak():
    qrels, _ = clean_set()
    name = pl.concat_str(pl.when(pl.col("label") > 0).then(pl.lit("pos-")).otherwise(pl.lit("neg-")), "docid")
    return qrels.with_columns(docid=name), None, None, ["document ids"]


def empty_judgments():
    qrels, run = clean_set()
    return qrels.with_columns(label=pl.lit(0)), run, None, ["queries without relevant documents"]


def one_relevant_at_a_fixed_rank():
    qrels, run = clean_set()
    row = pl.int_range(pl.len()).over("qid")
    return qrels.with_columns(label=(row == 7).cast(int)), run, None, ["fixed position"]


def all_relevant():
    qrels, run = clean_set()
    return qrels.with_columns(label=pl.lit(1)), run, None, ["queries without a choice"]


def label_shift():
    qrels, run = clean_set()
    return qrels.with_columns(pl.col("label") + 1), run, None, ["label shift"]


def unknown_ids():
    qrels, run = clean_set()
    return qrels, run.with_columns(docid=pl.concat_str(pl.lit("doc:"), "docid")), None, ["unknown documents"]


def negative_labels():
    qrels, run = clean_set()
    row = pl.int_range(pl.len())
    return qrels.with_columns(label=pl.when(row % 9 == 0).then(-2).otherwise("label")), run, None, ["negative labels"]


def unjudged_top():
    qrels, run = clean_set()
    new = [(f"q{query}", f"x{query}-{i}", 9.0) for query in range(QUERIES) for i in range(6)]
    return qrels, pl.concat([frame(new, "score"), run]), None, ["unjudged documents"]


FAULTS = [
    constant_scorer, missing_positives, duplicates, values_above_one, ids_that_leak, empty_judgments,
    one_relevant_at_a_fixed_rank, all_relevant, label_shift, unknown_ids, negative_labels, unjudged_top,
]  # fmt: skip


@pytest.mark.cases(12)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_seeded_fault_is_named(fault):
    qrels, run, candidates, expected = fault()
    found = rb.audit(qrels, None if run is None else {"run": run}, candidates=candidates)
    for topic in expected:
        assert topic in topics(found)
    before = rb.audit(clean_set()[0], {"run": clean_set()[1]})
    assert not set(expected) & set(topics(before))


@pytest.mark.parametrize("seed", range(30))
def test_clean_sets_have_no_fault(seed):
    random = np.random.default_rng(seed)
    qrels, run = clean_set(seed, int(random.integers(10, 80)), int(random.integers(4, 60)), random.uniform(0.05, 0.5))
    found = rb.audit(qrels, {"run": run})
    assert found.faults == ()


REAL = {
    "MQ2007": "mq2007/S1.txt.gz",
    "MQ2008": "mq2008/S1.txt.gz",
    "OHSUMED": "ohsumed-letor2/Fold1/testset.txt",
    "MSLR": "mslr-sample/msn1.fold1.train.5k.txt.gz",
    "TREC-COVID": "trec-covid-round1/qrels.covid-round1.txt.gz",
    "trec_eval": "trec-eval-test/qrels.test",
}


@pytest.mark.real_data
@pytest.mark.parametrize("name", REAL)
def test_clean_sets_of_the_catalog_have_no_fault(name, data_dir):
    folder = data_dir / REAL[name]
    path = folder if folder.exists() else next(folder.parent.glob("*test*"))
    assert rb.audit(path).faults == ()


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_references_are_means_over_all_rankings():
    qrels = {"a": {"x": 2, "y": 0, "z": 1}, "b": {"x": 0, "y": 1, "z": 0}, "empty": {"x": 0, "y": 0}}
    found = rb.audit(qrels, measures=["nDCG@2", "U"])
    for reference in found.references:
        every = [[oracles.value(reference.measure, order) for order in oracles.all_orders(labels)]
                 for labels in ([2, 0, 1], [0, 1, 0])]  # fmt: skip
        best, worst = (min, max) if reference.measure == "U" else (max, min)
        assert reference.queries == 2
        assert reference.random == pytest.approx(np.mean([np.mean(values) for values in every]), abs=1e-12)
        assert reference.best == pytest.approx(np.mean([best(values) for values in every]), abs=1e-12)
        assert reference.worst == pytest.approx(np.mean([worst(values) for values in every]), abs=1e-12)
        first = np.mean([oracles.value(reference.measure, labels) for labels in ([2, 0, 1], [0, 1, 0])])
        assert reference.file_order == pytest.approx(first, abs=1e-12)
    assert found.labels == {"0": 5, "1": 2, "2": 1}


@pytest.mark.parametrize("measure", ["nDCG@1", "nDCG@3", "nDCG", "DCG@2"])
def test_the_probability_of_the_ideal_ranking_is_that_of_all_orders(measure):
    for labels in ([2, 0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 2, 2, 0], [1, 1, 1]):
        values = [oracles.value(measure, order) for order in oracles.all_orders(labels)]
        expected = np.mean(np.isclose(values, max(values), atol=1e-12))
        counts = LabelCounts.from_labels(labels, [0, len(labels)])
        assert probability_of_ideal(counts, parse_measure(measure))[0] == pytest.approx(expected)


def test_the_detectable_difference_is_that_of_the_runs():
    qrels, run = clean_set()
    other = run.with_columns(score=pl.col("score") + pl.Series(np.random.default_rng(1).normal(0, 1, len(run))))
    found = rb.audit(qrels, {"a": run, "b": other}, measures="nDCG@10").detectable
    values = [rb.evaluate(qrels, each, "nDCG@10").values["nDCG@10"] for each in (run, other)]
    sd = float(np.std(values[1] - values[0], ddof=1))
    assert found.deviation == pytest.approx(sd)
    assert found.difference == pytest.approx(rb.evaluation.minimum_detectable_difference(sd=sd, queries=QUERIES))
    assert list(found.needed) == ["0.01", "0.02", "0.05"]
    assert found.needed["0.05"] == pytest.approx((1.96 + 0.8416) ** 2 * sd**2 / 0.05**2, rel=0.1)


def test_the_ceiling_is_that_of_the_best_re_ranking():
    qrels, _ = clean_set()
    listed = qrels.filter(pl.int_range(pl.len()) % 3 > 0).select("qid", "docid")
    found = rb.audit(qrels, candidates=listed, measures="nDCG@10").references[0]
    best = listed.join(qrels, on=["qid", "docid"]).rename({"label": "score"}).cast({"score": float})
    assert found.ceiling == pytest.approx(rb.evaluate(qrels, best, "nDCG@10", missing="zero").mean()["nDCG@10"])
    assert found.ceiling < 1


def test_unjudged_documents_have_a_range_over_their_labels():
    qrels, run, _, _ = unjudged_top()
    summary = rb.audit(qrels, {"run": run}, ["nDCG@10", "P@10", "Bpref"]).runs[0]
    top = run.sort("score", descending=True).group_by("qid").head(10).join(qrels, on=["qid", "docid"], how="left")
    hits = (top["label"] > 0).sum()
    assert summary["unjudged"]["P@10"]["lowest"] == pytest.approx(hits / QUERIES / 10)
    assert summary["unjudged"]["P@10"]["highest"] == pytest.approx((hits + top["label"].null_count()) / QUERIES / 10)
    assert summary["unjudged"]["nDCG@10"]["lowest"] <= summary["mean"]["nDCG@10"]
    assert "Bpref" not in summary["unjudged"]


def test_ties_of_a_run_have_a_range_around_its_mean():
    qrels, run = clean_set()
    run = run.with_columns(pl.col("score").round(0))
    summary = rb.audit(qrels, {"run": run}).runs[0]
    mean, ties = summary["mean"]["nDCG@10"], summary["ties"]["nDCG@10"]
    assert mean == pytest.approx(rb.evaluate(qrels, run, "nDCG@10").mean()["nDCG@10"])
    for order in ("input", "docid"):
        value = rb.evaluate(qrels, run, "nDCG@10", ties=order).mean()["nDCG@10"]
        assert ties["lowest"] - 1e-9 <= value <= ties["highest"] + 1e-9
    assert ties["lowest"] < mean < ties["highest"]


@pytest.mark.parametrize(
    ("change", "topic"),
    [
        (lambda run: run.sort("qid", "score", maintain_order=True), "scores rise"),
        (lambda run: run.with_columns(score=pl.col("docid").str.slice(1).str.zfill(6).rank("dense").cast(float),
                                      docid=pl.concat_str(pl.lit("d"), pl.col("docid").str.slice(1))),
         "scores follow document ids"),
        (lambda run: run.with_columns(score=-pl.col("score")), "not above random"),
        (lambda run: run.with_columns(qid=pl.concat_str(pl.lit("x"), "qid")), "unknown queries"),
    ],
    ids=["rising", "by id", "reversed", "other queries"],
)  # fmt: skip
def test_orders_that_are_no_ranking_are_named(change, topic):
    qrels, run = clean_set()
    width = pl.col("docid").str.slice(1).str.zfill(5)
    qrels, run = (table.with_columns(docid=pl.concat_str(pl.lit("d"), width)) for table in (qrels, run))
    assert topic not in topics(rb.audit(qrels, {"run": run}))
    assert topic in topics(rb.audit(qrels, {"run": change(run)}))


def test_values_that_no_ranking_should_have_are_named():
    class SecondLabel(Definition):
        """The label at rank 2, which is not largest where the highest labels come first."""

        name = "SecondLabel"
        summary = formula = "label at rank 2"
        built_in = False

        def values_in_order(self, measure, ranked):
            return ranked.labels[ranked.offsets[:-1] + 1].astype(float)

    register(SecondLabel())
    try:
        qrels = {f"q{i}": {"a": 2, "b": 1, "c": 0} for i in range(10)}
        run = {query: {"a": 2.0, "b": 3.0, "c": 1.0} for query in qrels}
        assert topics(rb.audit(qrels, {"run": run}, "SecondLabel"), ("fault",)).count("values above the best") == 1
    finally:
        unregister("SecondLabel")


def test_forms_of_runs_and_wrong_input():
    qrels, run = clean_set(queries=6)
    as_dict = {q: dict(rows.select("docid", "score").iter_rows()) for (q,), rows in run.group_by("qid")}
    for runs, names in (
        (run, ["run 1"]), ([run, run], ["run 1", "run 2"]), (as_dict, ["run"]), ({"a": as_dict}, ["a"]), (None, []),
    ):  # fmt: skip
        assert [each["run"] for each in rb.audit(qrels, runs).runs] == names
    with pytest.raises(ArgumentError, match="candidates of an audit"):
        rb.audit(qrels, candidates="judged")
    with pytest.raises(DataError, match="no query in common"):
        rb.audit(qrels, candidates={"x": ["a"]})
    with pytest.raises(DataError, match="no rows"):
        rb.audit({"q": {}})


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_findings_tables_and_one_json_object(tmp_path, capsys):
    qrels, run, _, _ = constant_scorer()
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {d} {label}\n" for q, d, label in qrels.iter_rows()))
    (tmp_path / "run").write_text("".join(f"{q} Q0 {d} 1 {score} <b>\n" for q, d, score in run.iter_rows()))
    paths = [str(tmp_path / name) for name in ("qrels", "run")]
    assert run_command(["audit", *paths]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "40 queries, 800 documents"
    assert lines[1].startswith("FAULT (")
    assert run_command(["audit", *paths, "-m", "AP", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == json.loads(json.dumps(rb.audit(paths[0], {paths[1]: paths[1]}, ["AP"]).to_dict()))
    assert [finding["severity"] for finding in content["findings"]] == sorted(
        (finding["severity"] for finding in content["findings"]), key=["fault", "warning", "note"].index
    )
    pytest.importorskip("jinja2")
    pytest.importorskip("altair")
    page = str(tmp_path / "page.html")
    assert run_command(["audit", *paths, "--page", page]) == 0
    text = Path(page).read_text()
    assert "order of the rows" in text
    assert "<script" not in text


def test_wrong_uses_of_the_command(tmp_path, capsys):
    (tmp_path / "qrels").write_text("q 0 d 1\n")
    qrels = str(tmp_path / "qrels")
    for arguments in ([qrels, "--page", "page.txt"], [qrels, qrels], [qrels, "-m", "XYZ"], [str(tmp_path / "no")]):
        assert run_command(["audit", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_large_set_is_searched_by_a_part_first_and_described_as_a_whole(monkeypatch):
    """Leaks of a set above the limit, whose number is that of all queries, and which a clean set of its size lacks."""
    qrels, run = clean_set(queries=200)
    name = pl.concat_str(pl.when(pl.col("label") > 0).then(pl.lit("pos-")).otherwise(pl.lit("neg-")), "docid")
    leaking = qrels.with_columns(docid=name).sort("qid", "label", descending=[False, True], maintain_order=True)
    by_id = leaking.with_columns(score=pl.col("docid").rank("dense").cast(float)).select("qid", "docid", "score")
    expected = rb.audit(leaking, {"run": by_id}).to_dict()
    monkeypatch.setattr("rankbound.evaluation.audit_judgments.SAMPLED_ROWS", 400)
    assert len(sample_queries(qrels)) == 400
    assert rb.audit(leaking, {"run": by_id}).to_dict() == expected
    assert {"order of the rows", "document ids", "scores follow document ids"} <= set(topics(rb.audit(leaking, by_id)))
    assert rb.audit(qrels, {"run": run}).faults == ()
