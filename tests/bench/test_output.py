"""Tables, files, the chart and the command, of findings made by hand."""

from __future__ import annotations

import json
import sys

import pytest

from rankbound.bench.records import Growth, Missing, Row
from rankbound.bench.running import Outcome
from rankbound.bench.tables import tables_of
from rankbound.bench.writing import markdown, write_outcome
from rankbound.cli.main import run

ROWS = [
    Row("fast", 0.001, "peer", 0.02, bar=10.0),
    Row("short of it", 1.0, "peer", 5.0, bar=10.0),
    Row("slow", 1.0, "other", 0.5),
    Row("wrong", 1.0, "peer", 2.0, difference=0.5, tolerance=0.1),
    Row("memory", 120.0, "100 MB", 100.0, unit="MB", against="limit"),
    Row("noted", 1.0, "peer", 2.0, note="quality 0.5"),
]
SIZES = (10, 20, 40, 80)
OURS = Growth("evaluate", "items", "rankbound", SIZES, tuple(1e-5 * n**2 for n in SIZES), (1.0, 2.0, 4.0, 8.0))
THEIRS = Growth("evaluate", "items", "peer", SIZES[:3], tuple(2e-4 * n for n in SIZES[:3]), (1.0, 1.0, 1.0))


@pytest.fixture
def outcome():
    machine = {"python": "3.11", "processor": "x86_64", "system": "Linux", "cores": 2}
    versions = {"rankbound": "0.1.0", "ranx": "0.3"}
    growth, missing = {"distributions": [OURS, THEIRS]}, [Missing("rax", "rax jax")]
    return Outcome(machine, versions, False, {"distributions": "queries"}, {"distributions": ROWS}, growth, missing)


def test_where_we_lose_is_said(outcome):
    assert outcome.shortfalls == [
        "distributions: short of it: 5.00 times peer, asked for 10.00",
        "distributions: slow: other is 2.00 times as fast",
        "distributions: wrong: the value differs from that of peer by 0.5",
        "distributions: evaluate, 40 items: peer is up to 2.00 times faster",  # 0.016 s against 0.008 s
        "distributions: evaluate, 20 to 40 items: peer is up to 4.00 times smaller",
        "distributions: evaluate: time grows as items^2.00, that of peer as ^1.00",
    ]
    assert outcome.failed


def test_nothing_is_short_where_every_bar_is_met(outcome):
    fine = Outcome(
        outcome.machine, {}, False, {"distributions": ""}, {"distributions": ROWS[:1]}, {"distributions": [OURS]}, []
    )
    assert fine.shortfalls == []
    assert not fine.failed
    assert "Nowhere in these tables." in markdown(fine)


def test_tables_have_a_line_for_each_finding(outcome):
    rows, growth = tables_of(outcome)
    assert [[cell.text for cell in row][2:] for row in rows.rows] == [
        ["1.0 ms", "20.0 ms", "20.00", "10.00", "ok", ""],
        ["1.00 s", "5.00 s", "5.00", "10.00", "MISSED", ""],
        ["1.00 s", "500.0 ms", "0.50", "", "slower", ""],
        ["1.00 s", "2.00 s", "2.00", "", "VALUES DIFFER", "5e-01"],
        ["120.0 MB", "100.0 MB", "0.83", "", "", ""],
        ["1.00 s", "2.00 s", "2.00", "", "", ""],
    ]
    assert rows.rows[-1][0].text == "noted (quality 0.5)"
    assert [[cell.text for cell in row][2:] for row in growth.rows] == [
        ["rankbound", "10 to 80", "64.0 ms", "2.00", "8.0 MB", "1.00"],
        ["peer", "10 to 40", "8.0 ms", "1.00", "1.0 MB", "0.00"],
    ]


def test_files(outcome, tmp_path):
    files = write_outcome(outcome, tmp_path / "new")
    assert [file.name for file in files] == ["bench.json", "bench.md", "bench.svg", "bench.html"]
    assert {file.name for file in (tmp_path / "new").iterdir()} == {file.name for file in files}
    found = json.loads(files[0].read_text())
    assert set(found) == {"machine", "versions", "quick", "inputs", "rows", "growth", "missing", "shortfalls"}
    assert found["rows"][0] | {"part": "distributions", "name": "fast", "ratio": 20.0, "bar": 10.0} == found["rows"][0]
    assert found["growth"][0]["time_exponent"] == pytest.approx(2.0)
    assert found["missing"] == [{"peer": "rax", "install": "rax jax"}]
    text = files[1].read_text()
    assert "rankbound 0.1.0, ranx 0.3" in text
    assert "- distributions: slow: other is 2.00 times as fast" in text
    assert "rax not installed: pip install rax jax" in text
    picture = files[2].read_text()
    assert all(row.name in picture for row in ROWS)
    assert "evaluate" in picture


def test_without_altair_there_is_no_chart(outcome, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    assert [file.name for file in write_outcome(outcome, tmp_path)] == ["bench.json", "bench.md"]
    assert "bench.svg" not in (tmp_path / "bench.md").read_text()


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def found(outcome, monkeypatch, tmp_path):
    """The command, with what it finds given."""
    monkeypatch.chdir(tmp_path)
    asked = {}

    def parts(chosen, **options):
        asked.update(options, parts=chosen)
        options["tell"]("distributions", ROWS[0])
        return outcome

    monkeypatch.setattr("rankbound.bench.running.run_parts", parts)
    return asked


def test_the_command_prints_tables_and_writes_files(found, capsys, tmp_path):
    assert run(["bench", "distributions"]) == 1  # a bar was missed
    out, err = capsys.readouterr()
    assert "distributions: fast: 20.00 times peer" in err
    assert "distributions: against peers" in out
    assert "MISSED" in out
    assert "slow: other is 2.00 times as fast" in out
    assert (tmp_path / "bench-results" / "bench.svg").exists()
    assert (found["parts"], found["quick"], found["scale_rows"]) == (("distributions",), False, 10_000_000)


def test_the_command_prints_one_json_object(found, capsys):
    run(["bench", "--quick", "--json", "-o", "here"])
    answer = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in answer["rows"]] == [row.name for row in ROWS]
    assert answer["files"] == [f"here/bench.{suffix}" for suffix in ("json", "md", "svg", "html")]
    assert (found["quick"], found["scale_rows"]) == (True, 20_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lawz"], "unknown part lawz"),
        (["--scale-rows", "0"], "--scale-rows must be at least 1, got 0"),
        (["-o", "taken"], "taken: is a file, expected a folder"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(found, capsys, tmp_path, arguments, message):
    (tmp_path / "taken").write_text("")
    assert run(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
    assert not found
