"""report, compare --page and demo: pages, tables and figures as files."""

from __future__ import annotations

import json
import re
from html import escape

import numpy as np
import polars as pl
import pytest
from scipy import stats

import rankbound as rb
from rankbound.evaluation import evaluate
from rankbound.report.figures.drawing import FigureOutcome
from rankbound.report.numbers import show_p


@pytest.fixture
def no_figures(monkeypatch):
    """Figures have tests of their own, and take their time."""
    monkeypatch.setattr("rankbound.studies.figures.draw_figures", lambda *_: {})


def headline(path) -> str:
    return re.search(r'class="headline">(.*?)</p>', path.read_text()).group(1)


# ---- from runs -------------------------------------------------------------------------------------------------------


def test_report_of_runs(cli, files, no_figures):
    answer = cli(
        "report", "qrels", "run", "other", "-m", "AP", "-m", "RR", "-o", "page.html", "--tables", "t", "--json"
    )
    found = answer.json
    assert found["page"] == "page.html"
    assert headline(files / "page.html") == found["headline"]
    # other is better on q1 by 5/12 and worse on q2 by 1/2: a mean of 0.75 against 19/24
    assert found["headline"].startswith("No system is clearly best by AP. run has 0.7917 in the mean over 2 queries")
    assert {file.name for file in (files / "t").iterdir()} == {
        f"{name}.{suffix}" for name in ("means", "random", "differences", "coverage") for suffix in ("md", "csv", "tex")
    }
    means = pl.read_csv("t/means.csv")
    assert dict(zip(means["system"], means["AP"], strict=True)) == pytest.approx({"run": 19 / 24, "other": 0.75})


def test_report_prints_what_the_page_says(cli, files, no_figures):
    answer = cli("report", "qrels", "run", "other", "-m", "AP", "-o", "page.html")
    assert answer.code == 0, answer.err
    assert answer.out.startswith(headline(files / "page.html"))
    assert answer.out.rstrip().endswith("Page: page.html")


def test_report_of_one_run(cli, files, no_figures):
    answer = cli("report", "qrels", "run", "-m", "AP", "-o", "page.html", "--json").json
    assert answer["headline"].startswith("run has a mean AP of 0.7917 over 2 queries")
    assert "There is a single system: nothing to compare it with." in answer["cautions"]


def test_report_compares_a_random_ranking_with_complete_rankings(cli, files, no_figures):
    """The run returns the second of two relevant documents only, and a document that nobody judged before it."""
    (files / "judged").write_text("q 0 a 1\nq 0 b 1\nq 0 c 0\n")
    (files / "short").write_text("q Q0 x 1 2.0 t\nq Q0 b 2 1.0 t\n")
    said = cli("report", "judged", "short", "-m", "AP", "-o", "page.html", "--json").json["findings"]
    complete = (1 + (1 + 2 / 3) / 2) / 2  # b first, then a and c in either order
    assert said[0].startswith(
        f"Read as a complete ranking of the judged documents, short has a mean AP of {complete:.4f}; "
        f"a random ranking of them would have {29 / 36:.4f}."
    )


def test_report_knows_what_a_random_order_scores(cli, files, no_figures):
    # q1: labels 2, 0, 1; q2: 0, 1; the expected AP of 2 of 3 and of 1 of 2 relevant
    answer = cli("report", "qrels", "run", "-m", "AP", "-o", "page.html", "--json").json
    expected = (29 / 36 + 3 / 4) / 2
    assert f"A random ranking of the judged documents would have a mean AP of {expected:.4f}." in answer["findings"]


@pytest.mark.full("takes seconds")
def test_figures_are_written_with_the_reasons_of_others(cli, files):
    pytest.importorskip("altair")
    answer = cli("report", "qrels", "run", "other", "-m", "AP", "-o", "page.html", "--figures", "f", "--json").json
    names = {file.name for file in (files / "f").iterdir()}
    drawn = {name.removesuffix(".svg") for name in names if name.endswith(".svg")}
    assert drawn
    assert names == {f"{name}{suffix}" for name in drawn for suffix in (".svg", ".html")} | {"figures.md"}
    assert answer["not_drawn"]
    listed = (files / "f" / "figures.md").read_text()
    assert all(f"{title}: {reason}" in listed for title, reason in answer["not_drawn"].items())


def test_what_was_written_and_what_not_is_printed(cli, files, monkeypatch):
    undrawn = FigureOutcome("swap-rates", "Swap rates", "", None, "one data set only")
    monkeypatch.setattr("rankbound.studies.figures.draw_figures", lambda *_: {"swap-rates": undrawn})
    answer = cli(
        "report", "qrels", "run", "other", "-m", "AP", "--missing", "ignore", "-o", "page.html",
        "--figures", "f", "--tables", "t", "--judged-only",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "Not drawn: Swap rates: one data set only" in answer.out
    assert "1 files of figures in f" in answer.out
    assert "12 files of tables in t" in answer.out
    assert "Swap rates: one data set only" in (files / "f" / "figures.md").read_text()


def test_queries_that_a_run_lacks_are_reported(cli, files, no_figures):
    (files / "short").write_text("q1 Q0 a 1 3.0 u\n")
    answer = cli("report", "qrels", "run", "short", "-m", "AP", "-o", "page.html", "--tables", "t", "--json").json
    page = (files / "page.html").read_text()
    assert "2 queries that some runs lack" in page
    assert "1 judged query is in none of the runs." in answer["cautions"]  # q4
    assert "1 judged query is in none of the runs." in page
    assert (answer["left_out_queries"], answer["never_returned_queries"]) == (2, 1)
    table = pl.read_csv("t/coverage.csv").rows_by_key("system", named=True, unique=True)
    assert (table["run"]["missing_queries"], table["run"]["unjudged_queries"]) == (1, 1)
    assert (table["short"]["missing_queries"], table["short"]["unjudged_queries"]) == (3, 0)
    assert "Coverage of the judgments" in page
    assert "Judged@" not in page  # every returned document is judged
    assert {name: row["shared_queries"] for name, row in answer["coverage"].items()} == {"run": 3, "short": 1}


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_page_warns_of_documents_without_a_judgment(cli, files, no_figures, command):
    (files / "new").write_text("q1 Q0 a 1 3.0 u\nq1 Q0 x 2 2.0 u\nq1 Q0 y 3 1.0 u\nq2 Q0 z 1 1.0 u\n")
    option = "-o" if command == "report" else "--page"
    answer = cli(command, "qrels", "run", "new", "-m", "nDCG@2", option, "page.html", "--json").json
    # Judged@2 is 1/2 for q1 and 0 for q2
    caution = "Judged@2 of new is 0.25: 75 % of its top 2 documents have no judgment, and plain measures count"
    page = (files / "page.html").read_text()
    assert caution in page
    assert "<strong>0.2500</strong>" in page
    assert answer["coverage"]["new"]["judged_at_cutoff"] == 1 / 4
    assert answer["coverage"]["new"]["judged"] == (1 / 3 + 0) / 2
    assert answer["coverage"]["run"]["judged_at_cutoff"] == 1
    if command == "report":
        assert any(sentence.startswith(caution) for sentence in answer["cautions"])
        assert caution in cli("report", "qrels", "run", "new", "-m", "nDCG@2", "-o", "page.html").out


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_page_names_the_run_without_a_judged_document(cli, files, no_figures, command):
    (files / "strange").write_text("q1 Q0 A 1 3.0 u\nq2 Q0 A 2 2.0 u\n")
    option = "-o" if command == "report" else "--page"
    answer = cli(command, "qrels", "run", "strange", "-m", "AP", option, "page.html", "--json")
    warning = "strange: qrels and run have no document in common in any shared query"
    assert answer.err.startswith(f"rankbound: warning: {warning} (the first of qrels is 'a', the first of the run 'A')")
    assert len(answer.err.splitlines()) == 1
    assert [text.startswith(warning) for text in answer.json["warnings"]] == [True]
    assert warning in (files / "page.html").read_text()


def test_a_page_of_complete_judgments_has_no_table_of_coverage(cli, files, no_figures):
    (files / "all").write_text("q1 0 a 1\nq1 0 c 0\nq2 0 a 0\nq2 0 b 1\nq3 0 a 1\n")
    answer = cli("report", "all", "other", "-m", "AP", "-o", "page.html", "--tables", "t", "--json").json
    assert not any(name.startswith("coverage") for name in answer["tables"])
    assert answer["coverage"]["other"]["judged"] == 1
    assert "Coverage of the judgments" not in (files / "page.html").read_text()


BAD = [
    ("report qrels run -o folder.html", "folder.html: is a folder, expected a file name"),
    ("report qrels run -o page.txt", "page.txt: a page is an .html file"),
    ("report qrels run -o .html.d/../", "a page is an .html file"),
    ("report qrels -o page.html", "qrels: is no folder of results"),
    ("report nowhere -o page.html", "nowhere: is no folder of results"),
    ("report empty -o page.html", "empty: contains no results"),
    ("report qrels nowhere -o page.html", "nowhere"),
    ("report qrels run -m nDGC -o page.html", "nDGC"),
    ("report qrels run --baseline other -o page.html", "baseline must be one of run, got 'other'"),
    ("report qrels run --tables qrels -o page.html", "qrels: is a file, expected a folder"),
    ("report qrels strange -o page.html", "no query in common"),
    ("compare qrels run other --page page.pdf", "page.pdf: a page is an .html file"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_bad_input_is_told_and_leaves_nothing(cli, files, line, message):
    (files / "empty").mkdir()
    (files / "folder.html").mkdir()
    (files / "strange").write_text("x1 Q0 a 1 1.0 t\n")
    before = sorted(files.rglob("*"))
    answer = cli(*line.split())
    assert answer.code == 2
    assert message in answer.err
    assert sorted(files.rglob("*")) == before


# ---- from a store ----------------------------------------------------------------------------------------------------


class FakeStore:
    """A store with one study of two systems."""

    def __init__(self, scores, *names):
        self._scores, self._names = scores, names

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def studies(self):
        return list(self._names)

    def slots(self, study):
        return []

    def score_table(self, study=None):
        return self._scores

    def history_table(self, study=None):
        return pl.DataFrame()

    def examples_table(self, study=None):
        return pl.DataFrame()

    def results(self, study, published=None):
        rows = {"system": ["a", "b"], "measure": ["AP", "AP"], "published": [0.4, None], "ours": [0.3, 0.5]}
        rows |= {"difference": [-0.1, None], "ci_low": [0.2, 0.4], "ci_high": [0.35, 0.6]}
        return pl.DataFrame(rows)


def fake_store(monkeypatch, scores, *names):
    monkeypatch.setattr("rankbound.studies.store.open_store", lambda _: FakeStore(scores, *(names or ["mine"])))


def two_systems():
    return pl.concat(
        pl.DataFrame({"qid": ["1", "2", "3"], "items": [9] * 3, "relevant": [3] * 3, "AP": value}).select(
            pl.lit("d").alias("data"), pl.lit("").alias("variant"), pl.lit(name).alias("system"),
            pl.lit(0).alias("fold"), pl.lit(0).alias("seed"), pl.all(),
        )
        for name, value in (("a", [0.1, 0.3, 0.5]), ("b", [0.31, 0.5, 0.69]))
    )  # fmt: skip


def test_report_of_a_store(cli, tmp_path, monkeypatch, no_figures):
    fake_store(monkeypatch, two_systems())
    page = tmp_path / "page.html"
    answer = cli("report", tmp_path, "-o", page, "--tables", tmp_path / "t", "--json").json
    assert "b is best by AP" in answer["headline"]
    assert any("1 number has a published counterpart; 0 of them lie within" in said for said in answer["findings"])
    assert "| a | AP | 0.4000 | 0.3000 | 0.2000 to 0.3500 | −0.1000∗ |" in (tmp_path / "t" / "published.md").read_text()
    assert "<title>mine</title>" in page.read_text()
    wrong = cli("report", tmp_path, "-m", "nDCG", "-o", page)
    assert (wrong.code, "the results have no nDCG; they have AP" in wrong.err) == (2, True)


def test_studies_of_one_store_are_drawn_one_by_one(cli, tmp_path, monkeypatch):
    undrawn = {"swap-rates": FigureOutcome("swap-rates", "Swap rates", "", None, "one data set only")}
    monkeypatch.setattr("rankbound.studies.figures.draw_figures", lambda *_: undrawn)
    fake_store(monkeypatch, two_systems().with_columns(AP2=0.5).rename({"AP2": "RR"}), "first", "second")
    answer = cli("report", tmp_path, "-m", "AP", "-o", tmp_path / "page.html", "--json").json
    assert set(answer["not_drawn"]) == {"first: Swap rates", "second: Swap rates"}
    assert "RR" not in (tmp_path / "page.html").read_text().split("<script")[0]


def test_a_store_without_finished_trials(cli, tmp_path, monkeypatch):
    fake_store(monkeypatch, pl.DataFrame())
    answer = cli("report", tmp_path, "-o", tmp_path / "page.html")
    assert (answer.code, "has no finished trial yet" in answer.err) == (2, True)
    assert not (tmp_path / "page.html").exists()


# ---- compare and demo ------------------------------------------------------------------------------------------------


def test_compare_writes_a_page(cli, files, no_figures):
    plain = cli("compare", "qrels", "run", "other", "-m", "AP", "--json").json
    answer = cli("compare", "qrels", "run", "other", "-m", "AP", "--page", "page.html", "--json").json
    assert answer == plain | {"page": "page.html"}
    assert "other" in headline(files / "page.html")
    assert "Page: page.html" in cli("compare", "qrels", "run", "other", "--page", "page.html").out


def write_positive_judgments(folder, runs):
    """Judgments of relevant documents only, by which EM is undefined, and runs of growing skill."""
    random = np.random.default_rng(3)
    judged = {query: random.choice(20, random.integers(1, 4), replace=False).tolist() for query in range(25)}
    (folder / "judged").write_text("".join(f"q{query} 0 d{d} 1\n" for query in judged for d in judged[query]))
    for skill in range(runs):
        scores = {query: random.normal(size=20) + 0.7 * skill * np.isin(range(20), judged[query]) for query in judged}
        lines = [f"q{query} Q0 d{d} 1 {value} t\n" for query, row in scores.items() for d, value in enumerate(row)]
        (folder / f"r{skill}").write_text("".join(lines))
    return [f"r{skill}" for skill in range(runs)]


def holm_by_hand(p):
    """Each p-value times the number of those that are at least as large, and not below a smaller one's."""
    return {key: min(1.0, max(sum(v >= w for v in p.values()) * w for w in p.values() if w <= p[key])) for key in p}


@pytest.mark.parametrize("runs", [2, 3])
def test_an_undefined_measure_is_no_test_in_any_output(cli, files, no_figures, runs):
    """The terminal, JSON, rows, the page of compare and the report have scipy's p-values, corrected by hand."""
    names, measures = write_positive_judgments(files, runs), ["nDCG@10", "AP", "RR", "EM(nDCG@10)"]
    options = [word for measure in measures for word in ("-m", measure)]
    values = {name: evaluate("judged", name, measures).values for name in names}
    assert np.isnan(values["r0"]["EM(nDCG@10)"]).all()
    differences = {(m, n): values[n][m] - values["r0"][m] for m in measures[:3] for n in names[1:]}
    expected = holm_by_hand({key: stats.ttest_1samp(d, 0).pvalue for key, d in differences.items()})
    answer = cli("compare", "judged", *names, *options, "--rows", "rows.csv", "--page", "compared.html", "--json").json
    for rows in (answer["differences"], pl.read_csv("rows.csv").rows(named=True)):
        found = {(row["measure"], row["run"]): row["p_corrected"] for row in rows if row["p_corrected"] is not None}
        assert found == pytest.approx(expected, rel=1e-6)
    cli("report", "judged", *names, *options, "--baseline", "r0", "-o", "report.html", "--tables", "t")
    table = pl.read_csv("t/differences.csv")
    found = dict(zip(zip(table["measure"], table["system"], strict=True), table["p_value"], strict=True))
    assert found == pytest.approx(expected, rel=1e-6)
    shown = {show_p(p) for p in expected.values()}
    for page in ("compared.html", "report.html"):
        assert all(f">{escape(p)}<" in (files / page).read_text() for p in shown)
    text = cli("compare", "judged", *names, *options).out
    if runs == 2:
        table = text.partition("Difference")[2].partition("p-values are")[0]
        lines = {line.split()[0]: line for line in table.splitlines() if re.search(r"\d / \d", line)}
        for name in measures[:3]:
            assert f" {show_p(expected[name, 'r1'])} " in lines[name]
        assert re.findall(r"\d\.\d+", lines["EM(nDCG@10)"]) == []
    else:
        assert all(show_p(expected["nDCG@10", name]) in text for name in names[1:])
        assert "over the 6 tests of all measures" in text


@pytest.mark.full("takes seconds")
def test_demo_shows_what_the_files_hold(cli, tmp_path, no_figures):
    answer = cli("demo", "-o", tmp_path / "new")
    assert answer.code == 0, answer.err
    assert "EM(nDCG@10) is 0 for a random ranking on average and 1 for the best ranking of each query" in " ".join(
        answer.out.split()
    )
    runs = {"one feature": "one-feature", "feature sum": "feature-sum"}
    runs |= {"lambdarank": "lambdarank", "rankbound": "rankbound"}
    names = {
        "qrels.txt",
        "per_query.csv",
        "summary.json",
        "report.html",
        "queries",
        "study.toml",
        *(f"{tag}.run.txt" for tag in runs.values()),
    }
    assert {file.name for file in (tmp_path / "new").iterdir()} == names
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    for ranker, mean in summary["mean"].items():
        file = tmp_path / "new" / f"{runs[ranker]}.run.txt"
        assert evaluate(tmp_path / "new" / "qrels.txt", file, list(mean)).mean() == pytest.approx(mean, abs=1e-6)
    # the purpose of the demo: nDCG@10 hardly differs, EM(nDCG@10) does
    trained, weak = summary["mean"]["rankbound"], summary["mean"]["one feature"]
    assert weak["nDCG@10"] > 0.8 * trained["nDCG@10"]
    assert weak["EM(nDCG@10)"] < 0.4 * trained["EM(nDCG@10)"]
    assert summary["random_order"]["EM(nDCG@10)"] == pytest.approx(0, abs=1e-9)
    assert headline(tmp_path / "new" / "report.html") in answer.out
    assert f"Page: {tmp_path}/new/report.html" in answer.out


def test_demo_json_is_its_summary(cli, tmp_path, no_figures):
    answer = cli("demo", "-o", tmp_path, "--queries", 20, "--seed", 3, "--json").json
    assert answer == json.loads((tmp_path / "summary.json").read_text())
    assert answer["queries"] == 20


# ---- against random rankings -----------------------------------------------------------------------------------------


def test_the_page_says_on_how_many_queries_systems_are_better_than_random(cli, long_lists, no_figures):
    flags = ["-m", "EM(AP)", "-m", "AP", "-o", "page.html", "--tables", "t", "--json"]
    answer = cli("report", "qrels", "tied", "good", *flags).json
    sentence = (
        "good is significantly better than a random ranking on 12 of 12 queries by AP (5 %, Holm-corrected). "
        "It is better than random on an estimated 100 % of them; Fisher's test of "
        '"no better than random on any query" has p < 0.0001.'
    )
    assert sentence in answer["findings"]
    page = (long_lists / "page.html").read_text()
    assert "Queries compared with random rankings by AP" in page
    table = pl.read_csv("t/random.csv")
    assert table.select("system", "better", "no_evidence", "worse", "no_choice").rows() == [
        ("good", 12, 0, 0, 0),
        ("tied", 0, 12, 0, 0),
    ]
    # the numbers are those of Python and of evaluate
    for name in ("good", "tied"):
        expected = rb.against_random("qrels", name, "AP")["AP"].to_dict()
        row = table.filter(system=name).row(0, named=True)
        assert {key: row[key] for key in expected["combined"]} == pytest.approx(expected["combined"])
        assert row["fraction_better"] == expected["fraction_better"]


def test_the_page_of_compare_has_the_table_too(cli, long_lists, no_figures):
    answer = cli("compare", "qrels", "tied", "good", "-m", "AP", "--page", "page.html", "--correction", "bonferroni")
    assert answer.code == 0, answer.err
    page = (long_lists / "page.html").read_text()
    assert "Queries compared with random rankings by AP" in page
    assert "on 12 of 12 queries by AP (5 %, Bonferroni-corrected)" in page


# ---- from several data sets ------------------------------------------------------------------------------------------


@pytest.fixture
def data_sets(tmp_path, monkeypatch):
    """Two folders with judgments and runs; one of them lacks the run of dense."""
    random = np.random.default_rng(5)
    for name, queries, systems in (("one", 30, ["bm25", "dense", "none"]), ("two", 25, ["bm25", "none"])):
        (tmp_path / name).mkdir()
        rows = [(q, d, int(random.random() < 0.3 or d == 3)) for q in range(queries) for d in range(9)]
        (tmp_path / name / "qrels.txt").write_text("".join(f"{q} 0 d{d} {label}\n" for q, d, label in rows))
        for system in systems:
            weight = {"bm25": 1.5, "dense": 1.6, "none": 0}[system]
            lines = (f"{q} Q0 d{d} 1 {weight * label + random.normal()} s\n" for q, d, label in rows)
            (tmp_path / name / f"{system}.run.txt").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_report_of_data_sets_begins_with_a_leaderboard(cli, data_sets, no_figures):
    answer = cli("report", "one", "two", "-m", "nDCG@10", "-o", "page.html", "--tables", "t", "--json").json
    board = answer["leaderboard"]
    runs = {name: {"bm25": f"{name}/bm25.run.txt", "none": f"{name}/none.run.txt"} for name in ("one", "two")}
    runs["one"]["dense"] = "one/dense.run.txt"
    sets = {name: rb.evaluate(f"{name}/qrels.txt", files, ["EM(nDCG@10)"]) for name, files in runs.items()}
    found = rb.evaluation.rank_systems(sets)
    assert board["measure"] == "EM(nDCG@10)"
    assert {row["system"]: row["mean"] for row in board["systems"]} == pytest.approx(
        {row.system: row.mean for row in found.ranks}
    )
    assert board["missing"] == {"dense": ["two"]}
    assert "none" not in board["tied_for_first"]
    assert answer["headline"] == headline(data_sets / "page.html")
    assert answer["headline"].startswith(f"{found.ranks[0].system} has the best mean over 2 data sets by EM(nDCG@10)")
    assert any("dense lacks two" in caution for caution in answer["cautions"])
    assert "EM(nDCG@10) over 2 data sets" in (data_sets / "page.html").read_text()
    assert pl.read_csv("t/leaderboard.csv")["one"].null_count() == 0
    assert "dense} & " in (data_sets / "t" / "leaderboard.tex").read_text()
    printed = cli("report", "one", "two", "-m", "nDCG@10", "-o", "page.html").out
    assert printed.startswith("EM(nDCG@10) over 2 data sets")
    over = cli("report", "one", "two", "-o", "page.html", "--over", "data sets", "--json").json["leaderboard"]
    assert (over["over"], len(over["tied_for_first"])) == ("data sets", 3)  # two data sets show nothing of others


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "two" / "qrels.gz").write_text(""), "one file named qrels, got 2"),
        (lambda folder: (folder / "two" / "qrels.txt").unlink(), "one file named qrels, got 0"),
        (lambda folder: [file.unlink() for file in (folder / "two").glob("*.run.txt")], "needs runs"),
        (lambda folder: (folder / "two" / "bm25.txt").write_text("0 Q0 d1 1 1.0 x\n"), "runs of different names"),
    ],
)
def test_folders_that_are_no_data_sets_are_refused(cli, data_sets, no_figures, change, message):
    change(data_sets)
    answer = cli("report", "one", "two", "-o", "page.html")
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert not (data_sets / "page.html").exists()
