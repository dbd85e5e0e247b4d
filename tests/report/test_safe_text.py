"""Texts from files in terminals, spreadsheets, figures and headlines."""

from __future__ import annotations

import csv
import os
import re
import xml.etree.ElementTree

import polars as pl
import pytest

from rankbound import compare
from rankbound.cli import output
from rankbound.cli.main import run as command
from rankbound.report.findings import find_words
from rankbound.report.page_tables import means_table
from rankbound.report.safe_text import escape_controls, shorten, without_formulas
from rankbound.report.system_tests import judge_systems
from rankbound.report.tables import Table, write_tables

FORMULAS = ["=HYPERLINK(1)", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1"]


@pytest.mark.parametrize("text", ["a\x1b[31mb", "\x9b31m", "\a", "b\u202ea", "\x00", "\ud800", "a\tb", "\u2028"])
def test_control_characters_are_written_out(text):
    shown = escape_controls(text)
    assert "\\" in shown
    assert shown.isprintable()
    assert escape_controls(shown) == shown


@pytest.mark.parametrize("text", ["plain", "q-1", "Größe", "日本語", "two\nlines", "a b"])
def test_other_texts_are_shown_as_they_are(text):
    assert escape_controls(text) == text


def test_tables_notes_and_warnings_of_the_terminal_are_escaped(capsys):
    bad = "q\x1b]0;title\x07"
    output.print_table(bad, [bad, "value"], [[bad, "1"]], note=bad)
    output.print_warnings([bad])
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert captured.out.count(r"q\x1b]0;title\x07") == 4
    assert r"q\x1b]0;title\x07" in captured.err


@pytest.mark.parametrize("text", FORMULAS)
def test_cells_that_spreadsheets_run_begin_with_an_apostrophe(text, tmp_path):
    frame = pl.DataFrame({"qid": [text, "q1"], text: [1.0, -2.0]})
    write_tables([Table("t", "title", ("qid",), 1, (), "", frame)], tmp_path)
    kept = pl.read_csv(tmp_path / "t.csv")
    assert kept["qid"].to_list() == [f"'{text}", "q1"]
    assert kept.columns[1] == f"'{text}"
    assert kept.to_series(1).to_list() == [1.0, -2.0]


@pytest.mark.parametrize("text", FORMULAS)
def test_data_files_keep_what_spreadsheets_run(text, tmp_path):
    output.write_table(pl.DataFrame({"qid": [text, "q1"], text: [1.0, -2.0]}), str(tmp_path / "t.csv"))
    with (tmp_path / "t.csv").open(newline="") as stream:
        assert [*csv.reader(stream)] == [["qid", text], [text, "1.0"], ["q1", "-2.0"]]


@pytest.mark.parametrize("text", ["-1", "+2.5", "-1e-3", "a=b", "", "1-2"])
def test_numbers_and_other_texts_stay_as_they_are(text):
    assert without_formulas(pl.DataFrame({"qid": [text, None]}))["qid"].to_list() == [text, None]


def test_long_names_with_a_common_prefix_stay_different():
    names = [f"{'a-common-prefix-' * 4}system-{number:02d}" for number in range(25)]
    assert len({shorten(name, 24) for name in names}) == 25
    assert all(len(shorten(name, 24)) == 24 for name in names)
    assert shorten("short", 24) == "short"


@pytest.fixture
def scores():
    """Three runs of 30 queries with one relevant document: the baseline ranks it third, the others second and first."""
    qrels = {f"q{query}": {"a": 1, "b": 0, "c": 0, "d": 0} for query in range(30)}
    orders = {"baseline": "bcad", "second": "bacd", "first": "abcd"}
    runs = [
        {query: {name: float(-rank) for rank, name in enumerate(order)} for query in qrels} for order in orders.values()
    ]
    runs[2]["q0"] = {"b": 3.0, "c": 2.0, "a": 1.0, "d": 0.0}
    return compare(*runs, qrels=qrels, measures=["RR"], names=list(orders)).scores


def test_the_headline_compares_the_best_run_with_the_runner_up(scores):
    findings = find_words(scores, judge_systems(scores, "baseline"))
    best = (29 * 1 + 1 / 3) / 30
    assert findings.headline.startswith(f"first is best by RR: {best:.4f} in the mean over 30 queries, ")
    assert f"{best - 1 / 2:.4f} above the next, second (95 % interval" in findings.headline
    assert findings.sentences[0].startswith(f"first is {best - 1 / 3:.4f} above the baseline baseline")


def test_marks_say_better_or_worse(scores):
    means = {cells[0].text: cells[-1].mark for cells in means_table(judge_systems(scores, "second")).rows}
    assert means == {"first": "↑", "second": "", "baseline": "↓"}
    table = means_table(judge_systems(scores, "second"))
    assert "↑ significantly better and ↓ significantly worse than second" in table.note
    assert r"$^{\uparrow}$" in table.to_latex()


@pytest.mark.parametrize(
    "name", ["\U0001f600 run", "a\u2028b", "a\x00b", "a\x1b[2Jb", "\u202ex", "\ufffe", "]]>", "x" * 5_000]
)
@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "html", "json"])
def test_figures_are_drawn_whatever_runs_are_called(name, ending, tmp_path):
    """A NUL in a name ended the process without a word: the converter refused it as no character of XML."""
    pytest.importorskip("vl_convert")
    alt = pytest.importorskip("altair")
    from rankbound.report.figures.saving import save_chart

    frame = pl.DataFrame({"run": [name, "other"], "value": [1.0, 2.0]})
    path = save_chart(alt.Chart(frame).mark_bar().encode(x="value:Q", y="run:N"), tmp_path / f"figure.{ending}")
    assert len(path.read_bytes()) > 500
    if ending == "svg":
        shown = " ".join(xml.etree.ElementTree.fromstring(path.read_text()).itertext())
        assert all(letter.isprintable() or letter.isspace() for letter in shown)


def test_names_in_another_encoding_are_refused_in_one_line(tmp_path, capsys):
    run = "q1 Q0 a 1 2 t\nq1 Q0 b 2 1 t\n"
    qrels, other = tmp_path / "qrels.txt", tmp_path / "other.txt"
    qrels.write_text("q1 0 a 1\nq1 0 b 0\n")
    other.write_text(run)
    latin = tmp_path / os.fsdecode(b"caf\xe9.txt")
    try:
        latin.write_text(run)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    assert command(["compare", str(qrels), str(other), str(latin), "-m", "RR"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"rankbound: names of runs must be valid Unicode text, got '.*caf\\+udce9\.txt'\n", err), err
    assert command(["evaluate", str(qrels), str(latin), "-m", "RR", "--json"]) == 0
