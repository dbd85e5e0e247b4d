"""Shared by all tests."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest

from rankbound.measures.registry import definitions, unregister
from tests import tiers, toy_measures

# threads of LightGBM and torch that wait must not take the cores from the other worker of a parallel run
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
toy_measures.register()  # before any test asks for the catalog of measures


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the tier of all tests."""
    parser.addoption("--everything", action="store_true", help="run all tests, not the fast ones alone")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier, and give the run a cache folder of its own, shared by its workers and removed at the end.

    No test reads or writes the user's cache.
    """
    tiers.choose(config)
    if not hasattr(config, "workerinput"):
        config.rankbound_cache = tempfile.mkdtemp(prefix="rankbound-tests-")
        os.environ["RANKBOUND_CACHE"] = config.rankbound_cache


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the cache folder."""
    if hasattr(config, "rankbound_cache"):
        shutil.rmtree(config.rankbound_cache, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other tests out of the fast tier; a case that is named on the command line always runs."""
    if config.getoption("--everything") or any("::" in argument for argument in config.args):
        return
    kept = tiers.fast_cases(items)
    chosen = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept


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


@pytest.fixture(autouse=True)
def _same_measures_for_all():
    """A page or a command may define measures, and not all undo it: the tests that come after it must not see them."""
    before = {definition.name for definition in definitions()}
    yield
    for name in [definition.name for definition in definitions() if definition.name not in before]:
        unregister(name)


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


@pytest.fixture
def score_table() -> Callable[..., pl.DataFrame]:
    """A score table from the values of each system: ``score_table({"a": [0.5, 0.4]}, measure="nDCG")``."""

    def make(
        values: Mapping[str, Sequence[float | None]],
        measure: str = "nDCG",
        items: Sequence[int] | int = 10,
        relevant: Sequence[int] | int = 3,
        **fixed: object,
    ) -> pl.DataFrame:
        parts = []
        for system, scores in values.items():
            count = len(scores)
            columns = {"data": "d", "variant": "", "system": system, "fold": 0, "seed": 0} | fixed
            sizes = {"items": items, "relevant": relevant}
            parts.append(
                pl.DataFrame(
                    {"qid": [f"q{i}" for i in range(count)]}
                    | {name: [size] * count if isinstance(size, int) else size for name, size in sizes.items()}
                    | {measure: pl.Series(list(scores), dtype=pl.Float64)}
                ).select(*(pl.lit(value).alias(name) for name, value in columns.items()), pl.all())
            )
        return pl.concat(parts)

    return make
