"""Measurement in the benchmark: exponents, turns, agreement with peers, memory."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import distributions, memory, timing
from benchmarks.comparison import Peer, compare_with_peers, is_installed
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.records import Growth, Missing, Row, fit_exponent

pytestmark = pytest.mark.full("tests of the benchmarks")

SIZES = (100, 200, 400, 800, 1600, 3200)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_is_recovered(exponent):
    assert fit_exponent(SIZES, [7e-4 * size**exponent for size in SIZES]) == pytest.approx(exponent, abs=1e-5)


def test_only_the_upper_half_of_the_sizes_counts():
    """Fixed costs flatten the lower end of every curve."""
    amounts = [1.0, 1.0, 1.0, *(1e-3 * size**2 for size in SIZES[3:])]
    assert fit_exponent(SIZES, amounts) == pytest.approx(2.0)
    assert fit_exponent((1, 2, 4, 8, 16), [9, 9, 4, 8, 16]) == pytest.approx(1.0)  # the middle one of five counts


def test_a_fit_is_that_of_least_squares():
    x, y = np.log([400, 800, 1600]), np.log([1.0, 3.0, 4.0])
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    assert fit_exponent([100, 200, 400, 800, 1600], [1, 1, 1.0, 3.0, 4.0]) == pytest.approx(slope, abs=1e-5)


def test_amounts_below_the_noise_have_no_exponent():
    grown = Growth("c", "items", OURS, (1, 2, 4, 8), (1, 2, 4, 8), (0.0, 0.0, 0.1, 0.2))
    assert grown.time_exponent == pytest.approx(1.0)
    assert grown.memory_exponent is None
    assert Growth("c", "items", OURS, (1,), (1.0,), None).time_exponent is None


# ---- turns -----------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that advances only when work runs."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def work(self, name, *seconds):
        remaining = list(seconds)

        def run():
            self.now += remaining.pop(0) if len(remaining) > 1 else remaining[0]
            self.log.append(name)

        return run


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    return clock


def test_implementations_take_turns_and_the_best_run_counts(clock):
    best = timing.best_of({"a": clock.work("a", 3.0, 1.0, 2.0), "b": clock.work("b", 4.0, 5.0, 6.0)}, turns=3)
    assert best == {"a": 1.0, "b": 4.0}
    assert clock.log == ["a", "b"] * 3


def test_time_is_wall_clock_time():
    """Sleeping takes no processor time."""
    assert timing.best_of({"sleep": lambda: time.sleep(0.06)}, turns=1)["sleep"] >= 0.06


def test_short_work_is_repeated_within_its_turn(clock):
    assert timing.best_of({"a": clock.work("a", 0.02)}, turns=2) == {"a": pytest.approx(0.02)}
    assert len(clock.log) == 6


def test_turns_are_added_until_the_slowest_has_run_long_enough(clock):
    timing.best_of({"a": clock.work("a", 0.5), "b": clock.work("b", 1.0)}, turns=2, min_seconds=4.0)
    assert clock.log == ["a", "b"] * 4


def test_slow_work_gets_two_turns(clock):
    timing.best_of({"slow": clock.work("slow", 30.0), "fast": clock.work("fast", 1.0)}, turns=5)
    assert (clock.log.count("slow"), clock.log.count("fast")) == (2, 5)


# ---- comparison with peers -------------------------------------------------------------------------------------------


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ranx", None)
    assert not is_installed("ranx")
    peers = [Peer("x", pytest.fail, 10, "ranx")]
    findings = list(compare_with_peers("work", lambda: pytest.fail("no peer to compare with"), peers))
    assert findings == [Missing("ranx", "ranx")]
    assert str(findings[0]) == "ranx is not installed: pip install ranx"


def test_values_of_a_peer_are_compared():
    def against(theirs):
        peer = Peer("peer", lambda: lambda: theirs, 2.0, values=np.asarray)
        return next(compare_with_peers("work", lambda: [1.0, 2.0], [peer], turns=1, values=np.asarray, tolerance=0.01))

    same, other, longer = against([1.0, 2.005]), against([1.0, 2.5]), against([1.0, 2.0, 3.0])
    assert (same.difference, same.differs) == (pytest.approx(0.005), False)
    assert (other.difference, other.differs) == (0.5, True)
    assert longer.differs
    assert against([1.0, float("nan")]).differs


def test_ratio_and_verdict_of_a_row():
    row = Row("work", 2.0, "peer", 3.0, bar=2.0)
    assert (row.ratio, row.missed, row.lost) == (1.5, True, False)
    assert Row("work", 2.0, "peer", 1.0).lost
    assert not Row("work", 2.0, "1 second", 1.0, against="limit").lost
    assert row.to_dict()["ratio"] == 1.5


# ---- growth and memory -----------------------------------------------------------------------------------------------


def test_a_curve_leaves_out_missing_peers_and_sizes_above_a_peers_limit(monkeypatch):
    monkeypatch.setitem(sys.modules, "ranx", None)
    monkeypatch.setattr("benchmarks.curves.peaks", lambda module, curve, way, sizes, folder: (1.0,) * len(sizes))
    ways = {
        OURS: Implementation(lambda n: lambda: n),
        "half": Implementation(lambda n: lambda: n, largest=2),
        "gone": Implementation(None, module="ranx"),
    }
    curve = Curve("c", "items", (1, 2, 4), (1,), lambda size, _: size, ways, turns=1)
    missing, ours, half = growth_of("m", [curve], quick=False)
    assert missing == Missing("ranx", "ranx")
    assert (ours.way, ours.sizes, len(ours.seconds), ours.megabytes) == (OURS, (1, 2, 4), 3, (1.0, 1.0, 1.0))
    assert (half.way, half.sizes) == ("half", (1, 2))


needs_linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="/proc of Linux")


@needs_linux
def test_memory_is_the_growth_at_its_peak():
    before = np.ones(10 * 2**17)  # 10 MB that exist already
    assert memory.peak_of(lambda: float(np.ones(30 * 2**17).sum() + before.sum())) == pytest.approx(30, abs=3)
    assert memory.peak_of(lambda: None) < 3


@needs_linux
def test_memory_of_a_curve_is_measured_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the process must find the package from anywhere
    megabytes = memory.peaks(distributions.__name__, distributions.CURVES[0].name, OURS, (8, 12), tmp_path)
    assert len(megabytes) == 2
    assert all(0 <= amount < 100 for amount in megabytes)


def test_memory_is_none_where_the_system_does_not_report_it(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_RESET", tmp_path / "nowhere")
    assert memory.peaks("module", "curve", OURS, (1,), tmp_path) is None
