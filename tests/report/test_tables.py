"""Tables in each of their forms."""

from __future__ import annotations

import csv
import io
import sys

import numpy as np
import polars as pl
import pytest

from rankbound.evaluation.leaderboards import rank_intervals
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.report.page import make_report
from rankbound.report.page_tables import means_table, published_table
from rankbound.report.system_tests import judge_systems
from rankbound.report.tables import Cell, Table, write_tables


@pytest.fixture
def table() -> Table:
    """Characters that each form must escape."""
    rows = ((Cell("a|b_c & 5%"), Cell("−0.5000", bold=True, mark="†")), (Cell("<i>{x}$"), Cell("–")))
    return Table("t", "T_1", ("name", "value"), 1, rows, "Note: 100 %.", pl.DataFrame({"name": ["a"], "value": [-0.5]}))


def test_markdown(table):
    assert table.to_markdown() == (
        "**T\\_1**\n\n| name | value |\n| --- | ---: |\n| a\\|b\\_c & 5% | **−0.5000**† |\n"
        "| &lt;i&gt;{x}$ | – |\n\nNote: 100 %.\n"
    )


def test_latex(table):
    lines = [line.strip() for line in table.to_latex().splitlines()]
    assert r"\begin{tabular}{lr}" in lines
    assert [rule for rule in lines if rule.endswith("rule")] == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert r"a|b\_c \& 5\% & \textbf{$-$0.5000}$^{\dagger}$ \\" in lines
    assert r"$<$i$>$\{x\}\$ & -- \\" in lines
    assert r"\caption{T\_1. Note: 100 \%.}" in lines


WIDE = Table.of_texts(
    "Wide",
    ["run", *(f"measure {k}" for k in range(12))],
    [["a run with a long name in several words", *(["0.1234"] * 12)], ["b", *(["–"] * 12)]],
)


@pytest.mark.parametrize("width", [30, 40, 80, 100, 200])
def test_text_fits_its_width_and_names_the_columns_left_out(width):
    text = WIDE.to_text(width)
    assert max(map(len, text.splitlines())) <= width
    drawn, too_narrow, names = text.partition("Too narrow for:")
    header = " ".join(drawn.splitlines()[1].split())
    shown = [name for name in WIDE.columns if name in header]
    left_out = list(WIDE.columns)[len(shown) :]
    assert shown == list(WIDE.columns)[: len(shown)]
    assert len(shown) >= 2 or width < 40
    assert bool(left_out) == bool(too_narrow) == (width < 200)
    assert " ".join(names.split()).startswith(f"{', '.join(left_out)}.") or not left_out


def test_a_long_title_is_wrapped():
    text = Table.of_texts("a long-winded title of a table", ["x"], [["1"]]).to_text(20)
    assert text.splitlines()[:2] == ["a long-winded title", "of a table"]


def test_text_without_a_width_is_whole():
    header, _, first, _ = WIDE.to_text().splitlines()[1:]
    assert header.split()[-2:] == ["measure", "11"]
    assert first.split()[-12:] == ["0.1234"] * 12


def test_a_terminal_decides_on_the_width(capsys, monkeypatch):
    from rankbound.cli.output import print_table

    rows = [[cell.text for cell in row] for row in WIDE.rows]
    print_table("Wide", WIDE.columns, rows)
    assert "measure 11" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table("Wide", WIDE.columns, rows)
    out = capsys.readouterr().out
    assert "Too narrow for: " in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_has_the_bare_numbers_or_the_texts(table):
    assert table.to_dict() == {"title": "T_1", "rows": [{"name": "a", "value": -0.5}], "note": "Note: 100 %."}
    assert WIDE.to_dict()["rows"][1] == {"run": "b"} | {f"measure {k}": "–" for k in range(12)}


def test_html_shows_marks_and_every_line_of_the_note(table):
    text = table.to_html()
    assert "−0.5000†" in text
    assert "<p>Note: 100 %.</p>" in text
    assert Table.of_texts("T", ["a"], [], notes=["One.", "Two."]).to_html().count("<p>") == 2


def test_csv_has_bare_numbers(scores):
    means, differences = make_report(scores).tables
    kept = pl.read_csv(io.StringIO(means.to_csv()))
    expected = scores.filter((pl.col("data") == "set B") & (pl.col("system") == "alike"))["AP"].mean()
    assert kept.filter((pl.col("data") == "set B") & (pl.col("system") == "alike"))["AP"].item() == pytest.approx(
        expected
    )
    assert next(csv.reader(io.StringIO(differences.to_csv())))[:4] == ["data", "measure", "system", "versus"]


def test_the_best_is_bold_and_what_differs_is_marked(scores):
    means = make_report(scores).tables[0]
    row = {cells[1].text: cells for cells in means.rows if cells[0].text == "set A"}
    assert means.columns == ("data set", "system", "groups", "nDCG@10", "AP")
    assert row["high"][3].bold
    assert not row["high"][3].mark
    assert (row["low"][3].bold, row["low"][3].mark) == (False, "↓")
    assert (row["high"][2].text, row["low"][2].text) == ("a", "b")


def test_published_beside_ours(results):
    table = published_table(results)
    assert table.columns == (
        "bounding", "measure", "published", "ours", "95 % interval", "difference", "against", "ahead by", "p",
    )  # fmt: skip
    first, second = table.rows
    assert [cell.text for cell in first][:6] == ["none", "nDCG@10", "0.6100", "0.6000", "0.5800 to 0.6200", "−0.0100"]
    assert (first[5].mark, second[5].mark) == ("", "∗")  # outside the interval
    assert second[-1].text == "0.0100"
    assert table.data_sets == ("set A", "set A")


def test_p_values_of_results_are_corrected(results):
    again = results.with_columns(p_value=pl.Series([0.03, 0.01]))
    assert [row[-1].text for row in published_table(again).rows] == ["0.0300", "0.0200"]


def test_results_without_published_numbers(results):
    bare = results.with_columns(published=pl.lit(None, pl.Float64), difference=pl.lit(None, pl.Float64)).drop(
        "p_value", "versus"
    )
    assert [cell.text for cell in published_table(bare).rows[0]][2:] == ["–", "0.6000", "0.5800 to 0.6200", "–"]


def test_means_of_repeats_say_that_results_are_taken_in_another_order(scores, results):
    def note(table, results):
        return next(one.note for one in make_report(table, results).tables if one.name == "means")

    folds = pl.concat([scores, scores.with_columns(pl.lit(1).alias("fold"))])
    assert "averaged first" in note(folds, results)
    assert "averaged first" not in note(folds, None)  # there is nothing beside
    assert "averaged first" not in note(scores, results)  # there are no repeats


def test_files(scores, results, tmp_path):
    files = write_tables(make_report(scores, results).tables, tmp_path / "new")
    names = {f"{name}{suffix}" for name in ("published", "means", "differences") for suffix in (".md", ".csv", ".tex")}
    assert {file.name for file in files} == names == {file.name for file in (tmp_path / "new").iterdir()}


@pytest.mark.parametrize("systems", [20, 21])
def test_more_than_20_systems_have_ranks_in_place_of_letters(systems):
    random = np.random.default_rng(0)
    values = random.normal(0, 0.1, (systems, 40)) + 0.1 * np.arange(systems)[:, None]
    names = tuple(f"s{i}" for i in range(systems))
    scores = ScoreMatrix(names, tuple(range(40)), {"AP": values})
    table = means_table(judge_systems(scores))
    cells = {str(row[0]): str(row[1]) for row in table.rows}
    if systems == 20:
        assert (table.columns[1], cells["s19"]) == ("groups", "a")
        assert "share a letter" in table.note
        return
    assert table.columns[1] == "ranks"
    assert cells == {row.system: row.show() for row in rank_intervals(scores, "AP")}
    assert "share a letter" not in table.note
    assert "not separable from the best" in table.note
