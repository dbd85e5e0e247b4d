"""The display of progress: what is done, how much, and the time that is left."""

from __future__ import annotations

import sys

import pytest

from rankbound.io import progress, progress_display, report_progress, watched_progress
from rankbound.io.progress import ProgressDisplay


class Clock:
    """Time that passes when the test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


def test_the_time_left_is_that_of_the_same_speed(clock):
    shown: list[str] = []
    display = ProgressDisplay("fitting ...", shown.append, shown.append)
    display("epoch", 0, 20)
    clock.now += 8
    display("epoch", 4, 20)  # 2 seconds each, 16 are left
    clock.now += 2
    display("epoch", 5, 20, "best 0.5")
    assert shown == [
        "fitting ... epoch 0 of 20",
        "fitting ... epoch 4 of 20, about 32 s left",
        "fitting ... epoch 5 of 20, about 30 s left; best 0.5",
    ]


def test_another_step_or_file_begins_anew(clock):
    shown: list[str] = []
    display = ProgressDisplay("", shown.append, shown.append)
    display("reading", 500_000, 1_000_000)
    clock.now += 300
    display("reading", 750_000, 1_000_000)
    display("reading", 0, 1_000_000)
    display("sorting", 3, 4)
    assert shown == ["reading 50 %", "reading 75 %, about 5 min left", "reading 0 %", "sorting 3 of 4"]


def test_without_a_terminal_there_are_occasional_lines_or_none(clock, capsys):
    for lines in (False, True):
        with progress_display("fitting ...", lines=lines) as display:
            display("epoch", 1, 9)
            clock.now += 31
            display("epoch", 2, 9)
            display("epoch", 3, 9)
            display.say("a note")
        expected = "fitting ... epoch 2 of 9, about 217 s left\na note\n".replace("217 s", "4 min")
        assert capsys.readouterr().err == (expected if lines else "")


def test_a_terminal_shows_a_line_that_is_removed(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_display("[fitting]") as display:
        display("epoch", 1, 9)
        display.say("a note [of] mine")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "a note [of] mine" in printed.err


def test_a_display_inside_another_is_the_same(capsys):
    with progress_display("outer", lines=True) as outer, watched_progress(outer):
        with progress_display("inner") as inner:
            assert inner is outer
        report_progress("reading", 1, 2)
    with progress_display(shown=False) as alone:
        assert alone is not outer
    assert capsys.readouterr().err == ""
