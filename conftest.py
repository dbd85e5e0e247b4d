"""What collecting the tests and the doctests has in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Skip a module that cannot be imported because a package of an extra is missing; the reason says which one."""
    report = yield
    excinfo = report.call.excinfo if report.failed else None
    missing = excinfo and excinfo.value.__cause__
    if type(missing).__name__ == "MissingPackageError":
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {missing}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Skip a doctest that shows a package of an extra that is missing; other tests say themselves what they need."""
    report = yield
    if report.failed and isinstance(item, pytest.DoctestItem) and "MissingPackageError: " in str(report.longrepr):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: a package is missing")
    return report
