"""How the benchmark measures: exponents, turns, agreement with peers, memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rankbound.bench import distributions, memory, timing
from rankbound.bench.contest import Peer, contest, is_installed
from rankbound.bench.growth import OURS, Curve, Way, growth_of
from rankbound.bench.records import Growth, Missing, Row, fit_exponent

SIZES = (100, 200, 400, 800, 1600, 3200)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_is_found(exponent):
    assert fit_exponent(SIZES, [7e-4 * size**exponent for size in SIZES]) == pytest.approx(exponent, abs=1e-5)


def test_only_the_upper_half_of_the_sizes_counts():
    """A fixed cost bends the lower end of every curve."""
    amounts = [1.0, 1.0, 1.0, *(1e-3 * size**2 for size in SIZES[3:])]
    assert fit_exponent(SIZES, amounts) == pytest.approx(2.0)
    assert fit_exponent((1, 2, 4, 8, 16), [9, 9, 4, 8, 16]) == pytest.approx(1.0)  # the middle one of five counts


def test_a_fit_is_that_of_least_squares():
    x, y = np.log([400, 800, 1600]), np.log([1.0, 3.0, 4.0])
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    assert fit_exponent([100, 200, 400, 800, 1600], [1, 1, 1.0, 3.0, 4.0]) == pytest.approx(slope, abs=1e-5)


def test_amounts_that_are_lost_in_noise_have_no_exponent():
    grown = Growth("c", "items", OURS, (1, 2, 4, 8), (1, 2, 4, 8), (0.0, 0.0, 0.1, 0.2))
    assert grown.time_exponent == pytest.approx(1.0)
    assert grown.memory_exponent is None
    assert Growth("c", "items", OURS, (1,), (1.0,), None).time_exponent is None


# ---- turns -----------------------------------------------------------------------------------------------------------


class Clock:
    """Time that only work makes pass; neighbors make every run wait on the wall's clock."""

    def __init__(self):
        self.now, self.waited, self.log = 0.0, 0.0, []

    def work(self, name, *seconds):
        left = list(seconds)

        def run():
            self.now += left.pop(0) if len(left) > 1 else left[0]
            self.log.append(name)

        return run


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "_clocks", lambda: (clock.now + clock.waited, clock.now))
    return clock


def test_contestants_take_turns_and_the_best_run_counts(clock):
    best = timing.best_of({"a": clock.work("a", 3.0, 1.0, 2.0), "b": clock.work("b", 4.0, 5.0, 6.0)}, turns=3)
    assert best == {"a": 1.0, "b": 4.0}
    assert clock.log == ["a", "b"] * 3


def test_waiting_for_a_core_does_not_count(clock):
    def waiting():
        clock.now += 1.0
        clock.waited += 5.0

    assert timing.best_of({"a": waiting}, turns=1) == {"a": 1.0}


def test_work_on_threads_has_the_time_of_the_wall(monkeypatch):
    clocks = iter([(0.0, 0.0), (1.0, 2.0)])
    monkeypatch.setattr(timing, "_clocks", lambda: next(clocks))
    assert timing.best_of({"two threads": lambda: None}, turns=1) == {"two threads": 1.0}


def test_the_time_of_child_processes_counts():
    command = [sys.executable, "-c", "sum(range(3_000_000))"]
    before = timing._clocks()
    subprocess.run(command, check=True)
    after = timing._clocks()
    assert after[1] - before[1] > 0.02


def test_short_work_is_repeated_within_its_turn(clock):
    assert timing.best_of({"a": clock.work("a", 0.02)}, turns=2) == {"a": pytest.approx(0.02)}
    assert len(clock.log) == 6


def test_a_contest_goes_on_until_it_was_long_enough(clock):
    timing.best_of({"a": clock.work("a", 0.5), "b": clock.work("b", 1.0)}, turns=2, at_least=4.0)
    assert clock.log == ["a", "b"] * 4


def test_slow_work_gets_two_turns(clock):
    timing.best_of({"slow": clock.work("slow", 30.0), "fast": clock.work("fast", 1.0)}, turns=5)
    assert (clock.log.count("slow"), clock.log.count("fast")) == (2, 5)


# ---- contests --------------------------------------------------------------------------------------------------------


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ranx", None)
    assert not is_installed("ranx")
    found = list(contest("work", lambda: pytest.fail("nobody to compare with"), [Peer("x", pytest.fail, 10, "ranx")]))
    assert found == [Missing("ranx", "ranx")]
    assert str(found[0]) == "ranx not installed: pip install ranx"


def test_values_of_a_peer_are_compared():
    def against(theirs):
        peer = Peer("peer", lambda: lambda: theirs, 2.0, values=np.asarray)
        return next(contest("work", lambda: [1.0, 2.0], [peer], turns=1, values=np.asarray, tolerance=0.01))

    same, other, longer = against([1.0, 2.005]), against([1.0, 2.5]), against([1.0, 2.0, 3.0])
    assert (same.difference, same.differs) == (pytest.approx(0.005), False)
    assert (other.difference, other.differs) == (0.5, True)
    assert longer.differs
    assert against([1.0, float("nan")]).differs


def test_what_a_row_says():
    row = Row("work", 2.0, "peer", 3.0, bar=2.0)
    assert (row.ratio, row.missed, row.lost) == (1.5, True, False)
    assert Row("work", 2.0, "peer", 1.0).lost
    assert not Row("work", 2.0, "1 second", 1.0, against="limit").lost
    assert row.to_dict()["ratio"] == 1.5


# ---- growth and memory -----------------------------------------------------------------------------------------------


def test_a_curve_leaves_out_who_is_missing_and_stops_where_a_peer_must(monkeypatch):
    monkeypatch.setitem(sys.modules, "ranx", None)
    monkeypatch.setattr("rankbound.bench.growth.peaks", lambda module, curve, way, sizes, folder: (1.0,) * len(sizes))
    ways = {
        OURS: Way(lambda n: lambda: n),
        "half": Way(lambda n: lambda: n, largest=2),
        "gone": Way(None, module="ranx"),
    }
    curve = Curve("c", "items", (1, 2, 4), (1,), lambda size, _: size, ways, turns=1)
    missing, ours, half = growth_of("m", [curve], quick=False)
    assert missing == Missing("ranx", "ranx")
    assert (ours.way, ours.sizes, len(ours.seconds), ours.megabytes) == (OURS, (1, 2, 4), 3, (1.0, 1.0, 1.0))
    assert (half.way, half.sizes) == ("half", (1, 2))


needs_linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="/proc of Linux")


@needs_linux
def test_memory_is_what_the_work_adds_at_its_peak():
    before = np.ones(10 * 2**17)  # 10 MB that are there already
    assert memory.peak_of(lambda: float(np.ones(30 * 2**17).sum() + before.sum())) == pytest.approx(30, abs=3)
    assert memory.peak_of(lambda: None) < 3


@needs_linux
def test_memory_of_a_curve_is_measured_in_a_process_of_its_own(tmp_path):
    found = memory.peaks(distributions.__name__, distributions.CURVES[0].name, OURS, (8, 12), tmp_path)
    assert len(found) == 2
    assert all(0 <= megabytes < 100 for megabytes in found)


def test_where_memory_cannot_be_measured_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_RESET", tmp_path / "nowhere")
    assert memory.peaks("module", "curve", OURS, (1,), tmp_path) is None
