"""Which tests are fast: `pytest` runs these, `pytest --everything` all.

A test that needs a browser, a JVM, notebooks, kills, clusters or more than seconds has the marker ``full`` and is left
to ``--everything``. Of every other test function with many cases, the fast tier runs some, evenly spread over their
list, so that each property keeps a case; and property tests draw fewer inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

settings.register_profile("rankbound", deadline=None)  # a test that fails on a busy machine is a defect
settings.load_profile("rankbound")
MOST_CASES = 4  # of one test function in the fast tier
FEWER_EXAMPLES = 5  # times fewer generated inputs in the fast tier
Case = TypeVar("Case")
_everything = False


def choose(config: pytest.Config) -> None:
    """Remember which tier runs: test modules ask for it while they are imported."""
    global _everything
    _everything = config.getoption("--everything")


def examples(number: int, **options: Any) -> settings:
    """Settings of a property test with this many generated inputs, fewer in the fast tier, and no deadline."""
    most = number if _everything else min(number, max(3, number // FEWER_EXAMPLES))
    return settings(max_examples=most, deadline=None, **options)


def some(cases: Sequence[Case], most: int = MOST_CASES) -> list[Case]:
    """The cases of a loop inside one test: all of them, or so many, evenly spread, in the fast tier."""
    if _everything or len(cases) <= most:
        return list(cases)
    return [cases[number * len(cases) // most] for number in range(most)]


def fast_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of the fast tier, in their order."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("full") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    kept = {id(item) for group in cases.values() for item in _spread(group)}
    return [item for item in items if id(item) in kept]


def _spread(group: list[pytest.Item]) -> list[pytest.Item]:
    marker = group[0].get_closest_marker("cases")
    return some(group, marker.args[0] if marker else MOST_CASES)
