"""Tables, files, the chart and the command, from findings written by hand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.compare import Change, compare_results
from benchmarks.records import Growth, Missing, Row
from benchmarks.runner import Outcome
from benchmarks.tables import tables_of
from benchmarks.writing import markdown, write_outcome

pytestmark = pytest.mark.full("tests of the benchmarks")

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
    versions = {"rankbound": "0.2.0", "ranx": "0.3"}
    growth, missing = {"distributions": [OURS, THEIRS]}, [Missing("rax", "rax jax")]
    return Outcome(machine, versions, False, {"distributions": "queries"}, {"distributions": ROWS}, growth, missing)


def test_the_outcome_lists_where_we_lose(outcome):
    assert outcome.shortfalls == [
        "distributions: short of it: 5.00 times peer, the bar is 10.00",
        "distributions: slow: other is 2.00 times as fast",
        "distributions: wrong: the value differs from that of peer by 0.5",
        "distributions: evaluate, 40 items: peer is up to 2.00 times faster",  # 0.016 s against 0.008 s
        "distributions: evaluate, 20 to 40 items: peer is up to 4.00 times smaller",
        "distributions: evaluate: time grows as items^2.00, that of peer as ^1.00",
    ]
    assert outcome.failed


def test_there_are_no_shortfalls_where_every_bar_is_met(outcome):
    fine = Outcome(
        outcome.machine, {}, False, {"distributions": ""}, {"distributions": ROWS[:1]}, {"distributions": [OURS]}, []
    )
    assert fine.shortfalls == []
    assert not fine.failed
    assert "Nowhere in these tables." in markdown(fine)


def test_tables_have_a_line_for_each_finding(outcome):
    rows, growth = tables_of(outcome)
    assert [list(row[2:]) for row in rows.rows] == [
        ["1.0 ms", "20.0 ms", "20.00", "10.00", "ok", ""],
        ["1.00 s", "5.00 s", "5.00", "10.00", "MISSED", ""],
        ["1.00 s", "500.0 ms", "0.50", "", "slower", ""],
        ["1.00 s", "2.00 s", "2.00", "", "VALUES DIFFER", "5e-01"],
        ["120.0 MB", "100.0 MB", "0.83", "", "", ""],
        ["1.00 s", "2.00 s", "2.00", "", "", ""],
    ]
    assert rows.rows[-1][0] == "noted (quality 0.5)"
    assert [list(row[2:]) for row in growth.rows] == [
        ["rankbound", "10 to 80", "64.0 ms", "2.00", "8.0 MB", "1.00"],
        ["peer", "10 to 40", "8.0 ms", "1.00", "1.0 MB", "0.00"],
    ]


def test_files(outcome, tmp_path):
    files = write_outcome(outcome, tmp_path / "new")
    assert [file.name for file in files] == ["bench.json", "bench.md", "bench.svg", "bench.html"]
    assert {file.name for file in (tmp_path / "new").iterdir()} == {file.name for file in files}
    written = json.loads(files[0].read_text())
    assert set(written) == {"machine", "versions", "quick", "inputs", "rows", "growth", "missing", "shortfalls"}
    assert (
        written["rows"][0] | {"part": "distributions", "name": "fast", "ratio": 20.0, "bar": 10.0} == written["rows"][0]
    )
    assert written["growth"][0]["time_exponent"] == pytest.approx(2.0)
    assert written["missing"] == [{"peer": "rax", "install": "rax jax"}]
    text = files[1].read_text()
    assert "rankbound 0.2.0, ranx 0.3" in text
    assert "- distributions: slow: other is 2.00 times as fast" in text
    assert "rax is not installed: pip install rax jax" in text
    picture = files[2].read_text()
    assert all(row.name in picture for row in ROWS)
    assert "evaluate" in picture


def test_without_altair_there_is_no_chart(outcome, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    assert [file.name for file in write_outcome(outcome, tmp_path)] == ["bench.json", "bench.md"]
    assert "bench.svg" not in (tmp_path / "bench.md").read_text()


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def requested(outcome, monkeypatch, tmp_path):
    """Replace the measurements; the fixture's value holds what the command requested."""
    monkeypatch.chdir(tmp_path)
    requested = {}

    def run_parts(parts, **options):
        requested.update(options, parts=parts)
        options["on_finding"]("distributions", ROWS[0])
        return outcome

    monkeypatch.setattr("benchmarks.runner.run_parts", run_parts)
    return requested


def test_the_command_prints_tables_and_writes_files(requested, capsys, tmp_path):
    assert main(["distributions"]) == 1  # a bar was missed
    out, err = capsys.readouterr()
    assert "distributions: fast: 20.00 times peer" in err
    assert "distributions: against peers" in out
    assert "MISSED" in out
    assert "slow: other is 2.00 times as fast" in out
    assert (tmp_path / "bench-results" / "bench.svg").exists()
    assert (requested["parts"], requested["quick"], requested["scale_rows"]) == (("distributions",), False, 10_000_000)


def test_the_command_prints_one_json_object(requested, capsys):
    main(["--quick", "--json", "-o", "here"])
    answer = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in answer["rows"]] == [row.name for row in ROWS]
    assert answer["files"] == [f"here/bench.{suffix}" for suffix in ("json", "md", "svg", "html")]
    assert (requested["quick"], requested["scale_rows"]) == (True, 20_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lossez"], "unknown part lossez"),
        (["--scale-rows", "0"], "--scale-rows must be at least 1, got 0"),
        (["-o", "taken"], "--output must be a folder, got the file taken"),
    ],
)
def test_wrong_arguments_are_refused(requested, capsys, tmp_path, arguments, message):
    (tmp_path / "taken").write_text("")
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
    assert not requested


# ---- comparison of two results ---------------------------------------------------------------------------------------


def results(*rows, growth=()):
    outcome = Outcome({}, {}, False, {}, {"losses": list(rows)}, {"losses": list(growth)}, [])
    return outcome.to_dict()


def test_changes_are_those_of_our_own_amounts():
    """A peer that becomes slower changes nothing; a row with several peers counts once."""
    old = results(Row("a", 1.0, "x", 2.0), Row("a", 1.0, "y", 2.0), Row("b", 2.0, "x", 1.0), Row("gone", 1.0, "x", 1.0))
    new = results(Row("a", 1.2, "x", 9.0), Row("a", 1.2, "y", 9.0), Row("b", 1.0, "x", 9.0), Row("new", 1.0, "x", 1.0))
    changes, unmatched = compare_results(old, new)
    assert [(change.name, change.ratio, change.is_worse()) for change in changes] == [
        ("a", 1.2, True),
        ("b", 0.5, False),
    ]
    assert unmatched == ["losses: gone", "losses: new"]


def test_rows_of_one_name_that_were_timed_for_each_peer_are_compared_one_by_one():
    old = results(Row("arrays", 1.0, "with ties", 1.0), Row("arrays", 0.1, "ties ignored", 1.0))
    new = results(Row("arrays", 1.0, "with ties", 1.0), Row("arrays", 0.2, "ties ignored", 1.0))
    assert [change.ratio for change in compare_results(old, new)[0]] == [1.0, 2.0]


def test_a_tolerance_of_ten_percent_is_inclusive():
    assert not Change("losses", "a", "s", 1.0, 1.1).is_worse()
    assert Change("losses", "a", "s", 1.0, 1.11).is_worse()
    assert not Change("losses", "a", "s", 1.0, 1.11).is_worse(0.2)


def test_growth_is_compared_at_the_largest_size():
    old, new = results(growth=[OURS, THEIRS]), results(growth=[replace(OURS, seconds=(9.0, 9.0, 9.0, 0.032)), THEIRS])
    (change,), unmatched = compare_results(old, new)
    assert change.name == "evaluate, 80 items (rankbound)"
    assert change.ratio == pytest.approx(0.5)
    assert unmatched == []


def test_the_command_flags_rows_that_became_slower(tmp_path, capsys):
    for name, seconds in (("old", 1.0), ("new", 1.5)):
        rows = Row("a", seconds, "x", 2.0), Row("memory", seconds, "limit", 2.0, unit="MB"), Row("b", 1.0, "x", 2.0)
        (tmp_path / name).write_text(json.dumps(results(*rows)))
    paths = [str(tmp_path / "old"), str(tmp_path / "new")]
    assert main(["compare", *paths]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("losses")] == [
        ["losses", "a", "1.00", "s", "1.50", "s", "1.50", "SLOWER"],
        ["losses", "memory", "1.0", "MB", "1.5", "MB", "1.50", "LARGER"],
        ["losses", "b", "1.00", "s", "1.00", "s", "1.00"],
    ]
    assert lines[-1] == "2 of 3 rows are worse by more than 10 %."
    assert main(["compare", "--tolerance", "0.6", *paths]) == 0


def test_the_committed_results_can_be_compared(capsys):
    path = str(Path(__file__).parents[2] / "docs" / "results" / "bench.json")
    assert main(["compare", path, path]) == 0
    assert "In one of the files only" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[]", "not a bench.json"), ('{"rows": [], "growth": [], "quick": true}', "a quick run")],
)
def test_files_that_cannot_be_compared_are_refused(tmp_path, capsys, text, message):
    (tmp_path / "file").write_text(text)
    assert main(["compare", str(tmp_path / "file"), str(tmp_path / "file")]) == 2
    assert message in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "absent"), str(tmp_path / "absent")]) == 2
    assert "absent: No such file or directory" in capsys.readouterr().err
