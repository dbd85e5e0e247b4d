"""Shared by all tests."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import toy_measures

# threads of LightGBM, torch and numba that wait must not take the cores from the other worker of a parallel run
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
toy_measures.register()  # before any test asks for the catalog of measures


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a cache folder of its own, shared by its workers: no test reads or writes the user's cache.

    A developer who runs parts of the suite again and again can keep the compiled kernels in RANKBOUND_TEST_CACHE.
    """
    if hasattr(config, "workerinput"):
        return
    if kept := os.environ.get("RANKBOUND_TEST_CACHE"):
        os.environ["RANKBOUND_CACHE"] = kept
    else:
        config.rankbound_cache = tempfile.mkdtemp(prefix="rankbound-tests-")
        os.environ["RANKBOUND_CACHE"] = config.rankbound_cache


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it again."""
    if hasattr(config, "rankbound_cache"):
        shutil.rmtree(config.rankbound_cache, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect no garbage while tests are collected, and never search what is loaded by then, which stays to the end.

    These are more than a million objects, and Python takes a second each time that it searches them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _same_data_for_all():
    """A command with --data points its whole process there: not so the tests that come after it."""
    before = os.environ.get("RANKBOUND_DATA")
    yield
    os.environ.pop("RANKBOUND_DATA", None)
    if before is not None:
        os.environ["RANKBOUND_DATA"] = before


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that ask for it are skipped where it is absent."""
    folder = os.environ.get("RANKBOUND_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("RANKBOUND_DATA does not point to the folder of real data sets")
    return Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say whether the tests on real data ran, so that a green run cannot hide that they did not."""
    counts = {}
    for outcome in ("passed", "failed", "skipped"):
        reports = terminalreporter.stats.get(outcome, [])
        counts[outcome] = sum("real_data" in getattr(report, "keywords", {}) for report in reports)
    if any(counts.values()):
        terminalreporter.write_line(
            "tests on real data: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items())
        )
