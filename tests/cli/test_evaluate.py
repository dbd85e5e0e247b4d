"""rankbound evaluate."""

from __future__ import annotations

import gzip
import json
from math import log2

import numpy as np
import polars as pl
import pytest

import rankbound as rb
from rankbound.data.letor import read_letor
from rankbound.data.synthetic import synthetic_letor
from rankbound.evaluation import evaluate
from rankbound.models import AdaRank, load_ranker

NDCG_Q1 = (2 / log2(3) + 1 / log2(4)) / (2 + 1 / log2(3))


def test_json_of_one_run_is_flat_and_keyed_by_the_names_given(cli, files):
    answer = cli("evaluate", "qrels", "run", "-m", "ndcg_cut_10", "-m", "AP", "-m", "UL2(AP)", "--json").json
    assert list(answer["mean"]) == ["ndcg_cut_10", "AP", "UL2(AP)"]
    assert answer["mean"]["ndcg_cut_10"] == pytest.approx((NDCG_Q1 + 1) / 2)
    assert answer["mean"]["AP"] == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1) / 2)
    assert (answer["queries"], answer["empty_queries"]) == (3, 1)
    assert (answer["missing_queries"], answer["unjudged_queries"]) == (1, 1)
    assert answer["counted_queries"] == {"ndcg_cut_10": 2, "AP": 2, "UL2(AP)": 2}


def test_json_of_several_runs_has_the_same_object_for_each(cli, files):
    answer = cli("evaluate", "qrels", "run", "other", "-m", "AP", "--json").json
    assert answer["runs"]["run"] == cli("evaluate", "qrels", "run", "-m", "AP", "--json").json
    assert list(answer["runs"]) == ["run", "other"]


def test_a_mean_over_no_query_is_null(cli, files):
    (files / "nothing").write_text("q1 0 a 0\n")
    answer = cli("evaluate", "nothing", "run", "-m", "AP", "--json").json
    assert answer["mean"] == {"AP": None}
    assert answer["empty_queries"] == 1
    assert "–" in cli("evaluate", "nothing", "run", "-m", "AP").out


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--ties", "docid"], {"ties": "docid"}),
        (["--empty", "one"], {"empty": "one"}),
        (["--missing", "zero"], {"missing": "zero"}),
        (["-c"], {"missing": "zero"}),
        (["--judged-only", "--depth", "2"], {"judged_only": True, "depth": 2}),
    ],
)
def test_policies_reach_the_library(cli, files, flags, options):
    answer = cli("evaluate", "qrels", "run", "-m", "nDCG", "-m", "AP", *flags, "--json").json
    assert answer["mean"] == evaluate("qrels", "run", ["nDCG", "AP"], **options).mean()


def test_table_shows_means_and_counts_and_is_not_cut(cli, files):
    long = files / ("r" * 150)
    (files / "run").rename(long)
    answer = cli("evaluate", "qrels", long.name)
    assert "EM(nDCG@10)" in answer.out
    assert long.name in answer.out
    assert (
        "3 queries; 1 empty for some measure (left out of its mean); 1 judged but not in the run (ignored)"
        in answer.out
    )
    assert all(line == line.rstrip() for line in answer.out.splitlines())
    both = cli("evaluate", "qrels", long.name, "other")
    assert any(line.split()[:1] == ["other"] for line in both.out.splitlines())


def test_judged_at_k_is_shown_where_documents_are_unjudged(cli, files):
    assert "Judged@" not in cli("evaluate", "qrels", "run", "-m", "P@2").out
    (files / "new").write_text("q1 Q0 a 1 3.0 u\nq1 Q0 x 2 2.0 u\nq1 Q0 y 3 1.0 u\nq2 Q0 b 1 1.0 u\n")
    shown = "Judged@2: 0.7500 (2 of 4 returned documents have no judgment)"
    assert shown in cli("evaluate", "qrels", "new", "-m", "P@2").out
    several = cli("evaluate", "qrels", "run", "new", "-m", "P@2").out.splitlines()
    assert [shown in line for line in several if line.startswith(("run:", "new:"))] == [False, True]
    answer = cli("evaluate", "qrels", "new", "-m", "P@2", "--json").json
    assert answer["coverage"] == {
        "judged_queries": 4,
        "returned_queries": 2,
        "shared_queries": 2,
        "missing_queries": 2,
        "unjudged_queries": 0,
        "queries_without_judged": 0,
        "returned_documents": 4,
        "judged_documents": 2,
        "judged": (1 / 3 + 1) / 2,
        "cutoff": 2,
        "judged_at_cutoff": (1 / 2 + 1) / 2,
    }
    assert answer["warnings"] == []


@pytest.mark.parametrize("others", [[], ["run"]])
def test_a_run_without_a_judged_document_is_named_on_stderr(cli, files, others):
    (files / "strange").write_text("q1 Q0 doc-a 1 3.0 u\nq2 Q0 doc-b 1 1.0 u\n")
    warning = (
        "qrels and run have no document in common in any shared query (the first of qrels is 'a', the first of the "
        "run 'doc-a'): do their document ids match?"
    )
    answer = cli("evaluate", "qrels", "strange", *others, "-m", "AP")
    assert (answer.code, answer.err) == (0, f"rankbound: warning: strange: {warning}\n")
    assert "0.0000" in answer.out
    answer = cli("evaluate", "qrels", "strange", *others, "-m", "AP", "--json")
    assert answer.err == f"rankbound: warning: strange: {warning}\n"
    result = answer.json["runs"]["strange"] if others else answer.json
    assert result["warnings"] == [warning]
    assert result["mean"] == {"AP": 0.0}


@pytest.mark.full("takes seconds")
def test_warnings_stay_one_line_where_python_raises_them_as_errors(shell, files):
    (files / "strange").write_text("q1 Q0 A 1 3.0 u\n")
    for command in ("evaluate qrels strange", "compare qrels run strange"):
        answer = shell(*command.split(), "-m", "AP", cwd=files)
        assert answer.code == 0, answer.err
        assert len(answer.err.splitlines()) == 1


def test_bounds_are_added(cli, files):
    answer = cli("evaluate", "qrels", "run", "-m", "AP", "-m", "MM(AP)", "--bounds", "--json").json
    assert answer["bounds"]["AP"]["worst"] == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1 / 2) / 2)
    assert answer["bounds"]["AP"]["best"] == 1.0
    assert "expected" in cli("evaluate", "qrels", "run", "-m", "AP", "--bounds").out


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_values_per_query_are_written(cli, files, ending):
    path = files / "new folder" / f"values.{ending}"
    assert cli("evaluate", "qrels", "run", "-m", "AP", "-m", "nDCG@10", "--per-query", path).code == 0
    frame = getattr(pl, f"read_{ending}")(path)
    assert frame.columns == ["qid", "AP", "nDCG@10"]
    assert dict(zip(frame["qid"], frame["AP"], strict=True)) == {"q1": pytest.approx(7 / 12), "q2": 1.0, "q3": None}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_values_per_query_of_several_runs_say_which_run(cli, files):
    assert cli("evaluate", "qrels", "run", "other", "-m", "AP", "--per-query", "values.csv", "--json").code == 0
    assert pl.read_csv("values.csv")["run"].to_list() == ["run"] * 3 + ["other"] * 3


def test_compressed_files_are_read(cli, files):
    zstandard = pytest.importorskip("zstandard")
    (files / "qrels.gz").write_bytes(gzip.compress((files / "qrels").read_bytes()))
    (files / "run.zst").write_bytes(zstandard.ZstdCompressor().compress((files / "run").read_bytes()))
    plain = cli("evaluate", "qrels", "run", "--json").json
    assert cli("evaluate", "qrels.gz", "run.zst", "--json").json == plain


def test_frames_are_read(cli, files):
    pl.DataFrame({"qid": ["q1", "q1"], "docid": ["a", "b"], "label": [0, 1]}).write_parquet("judged.parquet")
    pl.DataFrame({"qid": ["q1", "q1"], "docid": ["a", "b"], "score": [2, 1]}).write_csv("run.csv")
    assert cli("evaluate", "judged.parquet", "run.csv", "-m", "RR", "--json").json["mean"] == {"RR": 0.5}


@pytest.mark.full("takes seconds")
def test_standard_input_in_a_process_of_its_own(shell, files):
    answer = shell("evaluate", "qrels", "-", "-m", "AP", "--json", stdin=gzip.compress((files / "run").read_bytes()))
    assert answer.json["mean"]["AP"] == pytest.approx((7 / 12 + 1) / 2)
    assert answer.err == ""


@pytest.mark.full("takes seconds")
def test_nothing_but_the_object_is_on_stdout(shell, files):
    answer = shell("evaluate", "qrels", "run", "other", "--json", "--per-query", "v.csv", cwd=files)
    assert json.loads(answer.out)
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.real_data
def test_trec_evals_own_files(cli, data_dir):
    folder = data_dir / "trec-eval-test"
    expected = {}
    for line in (folder / "out.test").read_text().splitlines():
        name, query, value = line.split()
        if query == "all":
            expected[name] = value
    names = {"map": "map", "recip_rank": "recip_rank", "P_5": "P_5", "P_1000": "P_1000", "Rprec": "Rprec"}
    flags = [part for name in names for part in ("-m", name)]
    answer = cli("evaluate", folder / "qrels.test", folder / "results.test", *flags, "--ties", "docid", "--json").json
    for name in names:
        assert answer["mean"][name] == pytest.approx(float(expected[name]), abs=5.1e-5), name


# ---- against random rankings -----------------------------------------------------------------------------------------


def test_against_random_is_what_python_gives(cli, long_lists):
    flags = ["-m", "nDCG@10", "-m", "EM(AP)", "--against-random"]
    answer = cli("evaluate", "qrels", "good", *flags, "--json").json
    python = rb.against_random("qrels", "good", ["nDCG@10", "EM(AP)"])
    assert answer["against_random"] == {name: result.to_dict() for name, result in python.items()}
    assert answer["against_random"]["AP"]["better"] == 12
    both = cli("evaluate", "qrels", "good", "tied", *flags, "--json").json
    assert both["runs"]["good"]["against_random"] == answer["against_random"]
    assert both["runs"]["tied"]["against_random"]["nDCG@10"]["better"] == 0
    assert "against_random" not in cli("evaluate", "qrels", "good", "--json").json


def test_against_random_prints_a_row_per_run_and_measure(cli, long_lists):
    out = cli("evaluate", "qrels", "good", "tied", "-m", "AP", "-m", "P@1", "--against-random").out
    table = out[out.index("Queries compared with random rankings") :].splitlines()
    assert "better   no evidence   worse   no choice" in table[1]
    # C(20, 3) = 1140 sets of ranks: p = 1/1140 on every query, times 12
    assert table[3].split()[:6] == ["good", "AP", "12", "0", "0", "0"]
    assert table[4].split()[:6] == ["good", "P@1", "0", "12", "0", "0"]
    assert table[5].split()[:6] == ["tied", "AP", "0", "12", "0", "0"]
    assert "p < 0.05, Holm-corrected" in table[7]
    assert "even the best ranking is not significantly better (p >= 0.05): 12 of 12 by P@1" in table[8]
    assert "Queries compared" not in cli("evaluate", "qrels", "good").out


def test_level_and_correction_of_against_random(cli, long_lists):
    flags = ["-m", "AP", "--against-random"]
    strict = cli("evaluate", "qrels", "good", *flags, "--confidence", "0.999", "--json").json
    assert strict["against_random"]["AP"]["better"] == 0
    single = ["--confidence", "0.999", "--correction", "none"]
    assert cli("evaluate", "qrels", "good", *flags, *single, "--json").json["against_random"]["AP"]["better"] == 12
    assert "99 % interval" in cli("evaluate", "qrels", "good", "-m", "AP", "--confidence", "0.99").out
    refused = cli("evaluate", "qrels", "good", "--confidence", "2")
    assert (refused.code, refused.out) == (2, "")
    assert "confidence must lie between 0 and 1, got 2.0" in refused.err


def test_p_values_per_query_are_written(cli, long_lists):
    cli("evaluate", "qrels", "good", "-m", "AP", "--against-random", "--per-query", "values.csv")
    frame = pl.read_csv("values.csv")
    assert frame["AP p better"].to_list() == pytest.approx([1 / 1140] * 12)
    assert frame["AP p worse"].to_list() == pytest.approx([1.0] * 12)


# ---- judgments from a LETOR file -------------------------------------------------------------------------------------

LETOR = (
    "2 qid:7 1:0.9 2:0.1 # docid = GX-1 inc = 1\n0 qid:7 1:0.2 2:0.3 # docid = GX-2 inc = 1\n"
    "1 qid:7 1:0.6 # docid = GX-3\n1 qid:12 1:0.7 2:0.5 # docid = GX-1\n0 qid:12 1:0.1 2:0.9 # docid = GX-9\n"
)


@pytest.fixture
def letor(tmp_path, monkeypatch):
    """Train and test files with and without ids in their comments, the working folder."""
    data = synthetic_letor(queries=40, features=4, seed=5, documents=(4, 12))
    for name, queries in (("train", range(25)), ("test", range(25, 40))):
        part = data.take(queries)
        qid = np.repeat(part.lists.query_ids, part.lists.sizes)
        rows = [
            f"{label} qid:{query} " + " ".join(f"{k}:{value!r}" for k, value in enumerate(features.tolist(), 1))
            for label, query, features in zip(part.lists.labels, qid, part.features, strict=True)
        ]
        named = [f"{row} # docid = {name}" for row, name in zip(rows, part.lists.ids, strict=True)]
        (tmp_path / f"{name}.txt").write_text("\n".join(named) + "\n")
        (tmp_path / f"{name}.bare").write_text("\n".join(rows) + "\n")
    (tmp_path / "test.gz").write_bytes(gzip.compress((tmp_path / "test.txt").read_bytes()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("test", "named_by"), [("test.txt", "ids"), ("test.gz", "ids"), ("test.bare", "rows")], ids=str
)
def test_train_rank_and_evaluate_from_letor_files_alone(cli, letor, test, named_by):
    assert cli("train", "train.txt", "--model", "LogisticRanker", "-o", "model").code == 0
    assert cli("rank", "model", test, "-o", "run.txt", "--json").json["documents"] == named_by
    measures = ["nDCG@10", "EM(nDCG@10)", "AP"]
    answer = cli("evaluate", test, "run.txt", *(part for name in measures for part in ("-m", name)), "--json").json
    data = read_letor(test)
    scored = data.lists.with_scores(load_ranker("model").predict(data.features))
    assert answer["mean"] == pytest.approx(evaluate(scored, measures=measures).mean(), abs=1e-12)
    assert answer["coverage"]["judged"] == 1.0
    assert answer["queries"] == 15
    assert rb.evaluate(test, "run.txt", measures).mean() == answer["mean"]
    assert cli("rank", "model", test, "-o", "run.csv").code == 0
    assert cli("evaluate", test, "run.csv", "-m", "AP", "--json").json["mean"]["AP"] == answer["mean"]["AP"]


@pytest.mark.full("takes seconds")
def test_compare_and_report_read_letor_too(cli, letor):
    assert cli("train", "train.txt", "--model", "LogisticRanker", "-o", "model").code == 0
    cli("rank", "model", "test.txt", "-o", "new.txt")
    lists = read_letor("test.txt").lists
    qid = np.repeat(lists.query_ids, lists.sizes)
    run = [f"{q} Q0 {d} 1 {k % 5} other" for k, (q, d) in enumerate(zip(qid, lists.ids, strict=True))]
    (letor / "old.txt").write_text("\n".join(run) + "\n")
    both = cli("evaluate", "test.txt", "old.txt", "new.txt", "-m", "nDCG@10", "--json").json["runs"]
    compared = cli("compare", "test.txt", "old.txt", "new.txt", "-m", "nDCG@10", "--json").json
    assert {name: compared["mean"][name]["nDCG@10"] for name in both} == pytest.approx(
        {name: result["mean"]["nDCG@10"] for name, result in both.items()}
    )
    reported = cli("report", "test.txt", "old.txt", "new.txt", "-m", "nDCG@10", "-o", "page.html", "--json").json
    assert [coverage["judged"] for coverage in reported["coverage"].values()] == [1.0, 1.0]


def test_ids_of_comments_and_labels_are_read(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.txt").write_text("# generated\n\n" + LETOR)
    (tmp_path / "run").write_text("7 Q0 GX-2 1 3 t\n7 Q0 GX-1 2 2 t\n7 Q0 GX-3 3 1 t\n12 Q0 GX-1 1 2 t\n")
    answer = cli("evaluate", "test.txt", "run", "-m", "nDCG@10", "-m", "R@1", "--json").json
    assert answer["mean"]["nDCG@10"] == pytest.approx((NDCG_Q1 + 1) / 2)
    assert answer["mean"]["R@1"] == (0 + 1) / 2
    (tmp_path / "half.txt").write_text(LETOR.replace("2 qid:7", "1.5 qid:7"))
    answer = cli("evaluate", "half.txt", "run", "-m", "DCG@10", "--json").json
    assert answer["mean"]["DCG@10"] == pytest.approx((1.5 / log2(3) + 1 / log2(4) + 1) / 2)


@pytest.mark.parametrize(
    "text",
    [
        LETOR.replace("# docid = GX-2 inc = 1", ""),  # a row without an id
        LETOR.replace("GX-2", "GX-1"),  # the same id twice in a query
        LETOR.replace(" # docid = GX-2 inc = 1", " #a\tb"),  # no word of a TREC file
    ],
)
def test_where_ids_cannot_be_used_documents_are_named_by_row(cli, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.txt").write_text(text)
    (tmp_path / "run").write_text("7 Q0 2 1 3 t\n7 Q0 1 2 2 t\n7 Q0 3 3 1 t\n12 Q0 4 1 2 t\n")
    answer = cli("evaluate", "test.txt", "run", "-m", "nDCG@10", "--json").json
    assert answer["mean"]["nDCG@10"] == pytest.approx((NDCG_Q1 + 1) / 2)
    AdaRank(n_estimators=1).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1]).save("model")
    assert cli("rank", "model", "test.txt", "-o", "ranked", "--json").json["documents"] == "rows"
    assert sorted(line.split()[2] for line in (tmp_path / "ranked").read_text().splitlines()) == list("12345")


def test_a_letor_file_without_qids_takes_its_group_file(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rank.test").write_text("1 1:0.5 2:1 3:2\n0 1:0.1 2:1 3:2\n2 3:1\n")
    (tmp_path / "rank.test.query").write_text("2\n1\n")
    (tmp_path / "run").write_text("0 Q0 2 1 3 t\n0 Q0 1 2 2 t\n1 Q0 3 1 1 t\n")
    assert cli("evaluate", "rank.test", "run", "-m", "RR", "--json").json["mean"] == {"RR": (1 / 2 + 1) / 2}


SCATTERED = "1 qid:1 1:0.5\n1 qid:2 1:0.5\n0 qid:1 1:0.4\n"
BAD_JUDGMENTS = [
    ("run run", "run is named twice"),
    ("other run", "other:1: judgments must be TREC qrels (4 fields: qid iteration docid label) or LETOR (label qid:q "
     "index:value ...), got 6 fields: 'q1 Q0 a 1 3.0 u'"),
    ("unlabeled run", "unlabeled:1: a line must begin with a number, the label, got 'qid:1'"),
    ("words run", "words:1: a line must begin with a number, the label, got 'good'"),
    ("late run", "late:2: a line must begin with a number, the label, got 'qid:7'"),
    ("flat run", "flat:1: qid is missing"),
    ("test.txt run", "run: qrels and run have no query in common (the first of qrels is '7', the first of the run "
     "'q1')"),
    ("scattered run", "scattered: rows of a query must be adjacent where documents are named by their rows, but the "
     "rows of 1 queries were not adjacent"),
    ("test.txt run --candidates column:pool", "candidates='column:pool' needs judgments in a frame"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD_JUDGMENTS)
def test_judgments_that_are_neither_qrels_nor_letor_are_refused(cli, files, arguments, message):
    for name, text in (
        ("test.txt", LETOR),
        ("unlabeled", "qid:1 1:0.5 2:0.5\nqid:1 1:0.2\n"),
        ("words", "good qid:1 1:0.5\n"),
        ("late", LETOR.replace("0 qid:7", "qid:7")),
        ("flat", "1 1:0.5\n"),
        ("scattered", SCATTERED),
    ):
        (files / name).write_text(text)
    answer = cli("evaluate", *arguments.split(), "-m", "AP", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert message in answer.err


def test_rows_that_are_not_adjacent_keep_their_ids_and_have_no_numbers(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    AdaRank(n_estimators=1).fit([[0.0], [1.0]], [0, 1]).save("model")
    (tmp_path / "bare").write_text(SCATTERED)
    (tmp_path / "named").write_text(
        SCATTERED.replace("\n", " # a\n", 1).replace("5\n", "5 # b\n").replace("4\n", "4 # c\n")
    )
    answer = cli("rank", "model", "bare", "-o", "run")
    assert (answer.code, answer.err.split(", but")[0]) == (
        2,
        "rankbound: bare: rows of a query must be adjacent where documents are named by their rows",
    )
    assert "adjacent for one score per line" in cli("rank", "model", "named", "-o", "s", "--format", "scores").err
    assert cli("rank", "model", "named", "-o", "run").code == 0
    assert cli("evaluate", "named", "run", "-m", "RR", "--json").json["mean"] == {"RR": 1.0}


def test_a_run_of_other_documents_than_those_of_the_letor_file_is_named_on_stderr(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.txt").write_text(LETOR)
    (tmp_path / "run").write_text("7 Q0 1 1 3 t\n12 Q0 2 2 2 t\n")
    answer = cli("evaluate", "test.txt", "run", "-m", "AP", "--json")
    assert answer.json["mean"] == {"AP": 0.0}
    assert (
        "no document in common in any shared query (the first of qrels is 'GX-1', the first of the run '1')"
        in answer.err
    )


@pytest.mark.real_data
def test_letor_files_of_mq2008(cli, data_dir, tmp_path):
    train, test = data_dir / "mq2008" / "S1.txt.gz", data_dir / "mq2008" / "S5.txt.gz"
    assert cli("train", train, "--model", "LogisticRanker", "-o", tmp_path / "model").code == 0
    assert cli("rank", tmp_path / "model", test, "-o", tmp_path / "run", "--json").json["documents"] == "ids"
    answer = cli("evaluate", test, tmp_path / "run", "-m", "nDCG@10", "-m", "EM(AP)", "--json").json
    data = read_letor(test)
    scored = data.lists.with_scores(load_ranker(tmp_path / "model").predict(data.features))
    assert answer["mean"] == pytest.approx(evaluate(scored, measures=["nDCG@10", "EM(AP)"]).mean())


def test_recommendations_are_evaluated_against_held_out_interactions(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.csv").write_text("user,item,rating\nal,x,5\nal,y,1\nbo,z,4\n")
    (tmp_path / "top.csv").write_text("user,item,rank,score\nal,w,1,3\nal,y,2,2\nbo,z,1,2\n")
    answer = cli("evaluate", "test.csv", "top.csv", "--json", "--per-query", "users.csv").json
    assert list(answer["mean"]) == ["nDCG@10", "R@10", "Success@10", "AP(div='min')@10"]
    assert answer["mean"]["R@10"] == pytest.approx((1 / 2 + 1) / 2)
    assert (tmp_path / "users.csv").read_text().startswith("qid,nDCG@10,R@10,Success@10,AP(div='min')@10\nal,")
    strict = cli("evaluate", "test.csv", "top.csv", "--min-rating", "4", "-m", "Recall@10", "--json").json
    assert strict["mean"] == {"Recall@10": (0 + 1) / 2}
    wrong = cli("evaluate", "test.csv", "none.csv")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)


def test_parts_of_tables_have_the_numbers_of_the_whole(cli, files):
    rows = {"qid": [i // 4 for i in range(80)], "docid": [i % 4 for i in range(80)]}
    qrels = pl.DataFrame(rows | {"label": [i % 3 for i in range(80)]})
    run = pl.DataFrame(rows | {"score": [i * 7 % 11 for i in range(80)]})
    for name, table in (("judged", qrels), ("scored", run)):
        table.write_parquet(f"{name}.parquet")
        table[:31].write_parquet(f"{name}-0.parquet")
        table[31:].write_parquet(f"{name}-1.parquet")
    whole = cli("evaluate", "judged.parquet", "scored.parquet", "--json", "--bounds").json
    parts = ("judged-*.parquet", "scored-*.parquet")
    assert cli("evaluate", *parts, "--json", "--bounds", "--per-query", "values.parquet").json == whole
    assert len(pl.read_parquet("values.parquet")) == 20
    assert "p: Fisher" in cli("evaluate", *parts, "-m", "AP", "--against-random", "--per-query", "values.csv").out
    assert "AP p better" in pl.read_csv("values.csv").columns
    assert "20 queries" in cli("evaluate", *parts).out
    compared = cli("compare", "judged-*.parquet", "scored-*.parquet", "scored.parquet", "-m", "AP", "--json").json
    assert (
        cli("weights", "judged-*.parquet", "--json").json["weights"]
        == cli("weights", "judged.parquet", "--json").json["weights"]
    )
    assert compared["differences"][0]["difference"] == 0
    for arguments, message in [
        (("evaluate", *parts, "-m", "STD(AP)", "--reference=a.txt", "--reference=b.txt"), "parquet files or Dask"),
        (("evaluate", "judged-*.parquet", "none-*.parquet"), "none-*.parquet: no such file"),
        (("evaluate", *parts, "--cluster", "nowhere"), "cluster must be local:N"),
        (("weights", "judged-*.parquet", "--per", "row"), "--per must be query for a table in parts, got row"),
    ]:
        answer = cli(*arguments)
        assert (answer.code, answer.out) == (2, "")
        assert message in answer.err
