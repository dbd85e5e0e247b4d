"""No difference to pytrec_eval: every measure of both, with ties, negative labels, unjudged and missing documents."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound.data import large
from rankbound.data.trec import read_qrels, read_run

pytrec_eval = pytest.importorskip("pytrec_eval")
LEVELS = [x / 10 for x in range(11)]
CUTOFFS = (1, 3, 5, 10, 20, 100)
# their name of a value -> ours
NAMES = {
    "map": "AP", "ndcg": "nDCG", "recip_rank": "RR", "Rprec": "Rprec", "bpref": "Bpref", "infAP": "infAP",
    "set_P": "SetP", "set_recall": "SetR", "set_F": "SetF",
    "num_q": "NumQ", "num_ret": "NumRet", "num_rel": "NumRel", "num_rel_ret": "NumRet(rel=1)",
    **{f"iprec_at_recall_{x:.2f}": f"IPrec@{x}" for x in LEVELS},
    **{f"Rprec_mult_{x / 5:.2f}": f"Rprec(mult={x / 5})" for x in range(1, 11)},
    **{f"ndcg_cut_{k}": f"nDCG@{k}" for k in CUTOFFS},
    **{f"map_cut_{k}": f"AP@{k}" for k in CUTOFFS},
    **{f"P_{k}": f"P@{k}" for k in CUTOFFS},
    **{f"recall_{k}": f"R@{k}" for k in CUTOFFS},
    **{f"success_{k}": f"Success@{k}" for k in CUTOFFS},
}  # fmt: skip
WITH_CUTOFF = ("ndcg_cut", "map_cut", "P", "recall", "success")
WITHOUT = ("iprec_at_recall", "Rprec_mult")
REQUESTED = {f"{name}.{','.join(map(str, CUTOFFS))}" for name in WITH_CUTOFF} | set(WITHOUT)
REQUESTED |= {name for name in NAMES if not name.startswith((*(f"{each}_" for each in WITH_CUTOFF), *WITHOUT))}


def generated(seed, queries=60):
    """Few scores, so that most documents tie; a run lacks judged documents and has unjudged ones."""
    rng = np.random.default_rng(seed)
    qrels, run = {}, {}
    for q in range(queries):
        docs = rng.choice(3_000, size=int(rng.integers(1, 60)), replace=False).tolist()
        judged = [d for d in docs if rng.random() < 0.7] or docs[:1]
        labels = rng.choice([-2, -1, 0, 1, 2, 3], size=len(judged), p=[0.05, 0.05, 0.4, 0.25, 0.15, 0.1])
        qrels[q] = dict(zip(judged, labels.tolist(), strict=True))
        returned = [d for d in docs if rng.random() < 0.8] or docs[-1:]
        run[q] = {d: float(rng.integers(0, 8)) / 4 for d in returned}
    return qrels, run


def text_keys(table):
    return {str(q): {str(d): number for d, number in docs.items()} for q, docs in table.items()}


def assert_same(ours, qrels, run, names=NAMES, requested=REQUESTED):
    theirs = pytrec_eval.RelevanceEvaluator(text_keys(qrels), requested).evaluate(text_keys(run))
    rows = {str(row["qid"]): row for row in ours.per_query.iter_rows(named=True)}
    assert rows.keys() == theirs.keys()
    for query, expected in theirs.items():
        for their_name, our_name in names.items():
            assert rows[query][our_name] == pytest.approx(expected[their_name], abs=1e-12), (query, our_name)


@pytest.mark.parametrize("seed", range(6))
def test_no_difference_on_generated_data(seed):
    qrels, run = (text_keys(table) for table in generated(seed))
    assert_same(rb.evaluate(qrels, run, [*NAMES.values()], ties="docid", empty="zero"), qrels, run)


@pytest.mark.parametrize("level", [0.01, 0.05, 0.25, 0.35, 0.55, 0.99])
def test_recall_levels_between_the_usual_ones(level):
    """pytrec_eval rounds x P as version 9 of trec_eval, not upwards: 0.05 * 2 asks for no relevant document."""
    qrels, run = (text_keys(table) for table in generated(7, 200))
    ours = rb.evaluate(qrels, run, [f"IPrec@{level}"], ties="docid", empty="zero")
    names = {f"iprec_at_recall_{level:.2f}": f"IPrec@{level}"}
    assert_same(ours, qrels, run, names, {f"iprec_at_recall.{level}"})


@pytest.mark.parametrize("level", LEVELS)
def test_recall_levels_of_ir_measures(level):
    ir_measures = pytest.importorskip("ir_measures")
    qrels, run = (text_keys(table) for table in generated(8))
    for name in (f"IPrec@{level}", f"IPrec(rel=2)@{level}"):
        theirs = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)}
        ours = rb.evaluate(qrels, run, [name], ties="docid", empty="zero").per_query
        assert {row["qid"]: row[name] for row in ours.iter_rows(named=True)} == pytest.approx(theirs, abs=1e-12)


def test_the_stated_formula_of_interpolated_precision():
    """The number of relevant documents is that of floating-point numbers: 0.7 * 3 + 0.9 is a little less than 3."""
    for relevant in range(1, 40):
        for level in LEVELS:
            needed = int(level * relevant + 0.9)
            labels = [1, 0] * relevant  # the precision after h relevant documents is h / (2 h - 1): it falls
            lists = rb.Lists(labels, [0, len(labels)], np.arange(len(labels), 0, -1.0))
            expected = max(h / (2 * h - 1) for h in range(max(needed, 1), relevant + 1))
            assert rb.evaluate(lists, [f"IPrec@{level}"]).mean()[f"IPrec@{level}"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.real_data
def test_no_difference_on_real_runs(data_dir):
    folder = data_dir / "trec-covid-round1"
    judged = read_qrels(folder / "qrels.covid-round1.txt.gz")
    qrels = as_dicts(judged, "label")
    for path in sorted((folder / "runs").iterdir())[::6]:
        returned = read_run(path)
        ours = rb.evaluate(judged, returned, [*NAMES.values()], ties="docid", empty="zero")
        assert_same(ours, qrels, as_dicts(returned, "score"))


def as_dicts(frame, number):
    groups = frame.partition_by("qid", as_dict=True)
    return {qid: dict(zip(part["docid"], part[number], strict=True)) for (qid,), part in groups.items()}


# ---- ids that are integers -------------------------------------------------------------------------------------------


def as_frame(table, number):
    rows = [(q, d, x) for q, docs in table.items() for d, x in docs.items()]
    return pl.DataFrame(rows, schema=["qid", "docid", number], orient="row")


def evaluate_as(way, qrels, run, folder):
    """Evaluate dicts with integer ids, handed over in this way."""
    options = {"ties": "docid", "empty": "zero"}
    names = [*NAMES.values()]
    if way == "dicts":
        return rb.evaluate(qrels, run, names, **options)
    frames = [as_frame(qrels, "label"), as_frame(run, "score")]
    if way == "polars":
        return rb.evaluate(*frames, names, **options)
    if way == "small integers":
        return rb.evaluate(*(f.with_columns(pl.col("docid").cast(pl.UInt16)) for f in frames), names, **options)
    if way == "pandas":
        return rb.evaluate(*(frame.to_pandas() for frame in frames), names, **options)
    if way == "lists":
        return rb.evaluate(rb.Lists.from_dicts(qrels, run), names, **options)
    for frame, name in zip(frames, ("qrels", "run"), strict=True):
        getattr(frame, f"write_{way}")(folder / f"{name}.{way}")
    return rb.evaluate(folder / f"qrels.{way}", folder / f"run.{way}", names, **options)


WAYS = ("dicts", "polars", "small integers", "pandas", "lists", "csv", "parquet")


@pytest.mark.cases(len(WAYS))
@pytest.mark.parametrize("way", WAYS)
def test_integer_ids_are_compared_as_text(way, tmp_path):
    if way == "pandas":
        pytest.importorskip("pandas")
    qrels, run = generated(9, queries=25)
    ours = evaluate_as(way, qrels, run, tmp_path)
    assert_same(ours, qrels, run)
    assert ours.mean()["RR"] != rb.evaluate(*map(padded, (qrels, run)), ["RR"], ties="docid", empty="zero").mean()["RR"]


def padded(table):
    """Ids whose order as text is that of the numbers."""
    return {q: {f"{d:09}": number for d, number in docs.items()} for q, docs in table.items()}


def test_integer_ids_of_tables_larger_than_memory(tmp_path, monkeypatch):
    """A run that is evaluated part by part, and tables in parts, of which the mean is known."""
    qrels, run = generated(10, queries=25)
    judgments, returned = as_frame(qrels, "label"), as_frame(run, "score")
    returned.write_parquet(tmp_path / "run.parquet", row_group_size=50)
    monkeypatch.setattr(large, "ROWS", 50)
    result = rb.evaluate(judgments, tmp_path / "run.parquet", [*NAMES.values()], ties="docid", empty="zero")
    rows = {str(row["qid"]): row for row in result.per_query.iter_rows(named=True)}
    theirs = pytrec_eval.RelevanceEvaluator(text_keys(qrels), REQUESTED).evaluate(text_keys(run))
    for query, expected in theirs.items():
        assert {name: rows[query][NAMES[name]] for name in NAMES} == pytest.approx(
            {name: expected[name] for name in NAMES}, abs=1e-12
        )
    for number in range(3):
        judgments[number::3].write_parquet(tmp_path / f"qrels-{number}.parquet")
        returned[number::3].write_parquet(tmp_path / f"part-{number}.parquet")
    parts = f"{tmp_path}/qrels-*.parquet", f"{tmp_path}/part-*.parquet"
    names = [name for name in NAMES if not name.startswith("num_")]  # these are sums
    ours = rb.evaluate(*parts, [NAMES[name] for name in names], ties="docid", empty="zero").mean()
    for name in names:
        mean = sum(values[name] for values in theirs.values()) / len(theirs)
        assert ours[NAMES[name]] == pytest.approx(mean, abs=1e-12), name


def test_integer_ids_of_recommendations():
    """Items of a recommender's lists that tie, against held-out interactions."""
    held_out = pl.DataFrame({"user": [1, 1, 2], "item": [9, 30, 10]})
    top = pl.DataFrame({"user": [1, 1, 1, 2, 2], "item": [10, 9, 100, 10, 9], "score": [1.0, 1.0, 1.0, 2.0, 2.0]})
    names = {"map": "AP", "recip_rank": "RR", "ndcg": "nDCG"}
    ours = rb.evaluate(held_out.with_columns(label=1), top, [*names.values()], ties="docid")
    assert_same(
        ours, {1: {9: 1, 30: 1}, 2: {10: 1}}, {1: {10: 1.0, 9: 1.0, 100: 1.0}, 2: {10: 2.0, 9: 2.0}}, names, {*names}
    )
