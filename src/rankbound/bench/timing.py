"""Timing that a shared machine does not decide: the contestants take turns, and the best run of each counts.

A run takes the smaller of wall-clock and processor time. Processor time leaves out the waiting for a core that
neighbors hold, which would hit long work harder than short work; the clock on the wall gives work on several threads
its due. Short work is repeated within its turn, as a training loop would: else the first run after somebody else's
measures the caches that they left.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

__all__ = ["LONG_ENOUGH", "Work", "best_of"]

Work = Callable[[], Any]
Key = TypeVar("Key", bound=Hashable)

LONG_ENOUGH = 4.0  # seconds of the slowest in a contest: neighbors come and go within one or two
_TURN = 0.05  # seconds at least
_PATIENCE = 10.0  # seconds after which a contestant gets no further turn, if it had two


def best_of(contestants: Mapping[Key, Work], turns: int = 5, at_least: float = 0.0) -> dict[Key, float]:
    """Seconds of the best run of each contestant, all of them taking turns on the same input.

    There are so many turns and, unless that is one, more until the slowest has had ``at_least`` so many seconds.
    """
    best, spent = dict.fromkeys(contestants, float("inf")), dict.fromkeys(contestants, 0.0)
    turn = 0
    while turn < turns or (turns > 1 and max(spent.values()) < at_least):
        gc.collect()
        for name, work in contestants.items():
            used = 0.0
            while used < _TURN and (turn < 2 or spent[name] < _PATIENCE):
                wall, processor = _clocks()
                work()
                wall_after, processor_after = _clocks()
                seconds = min(wall_after - wall, processor_after - processor)
                best[name] = min(best[name], seconds)
                used += wall_after - wall
            spent[name] += used
        turn += 1
    return best


def _clocks() -> tuple[float, float]:
    """Wall-clock time, and processor time of this process and of the children that it has waited for."""
    wall = time.perf_counter()
    if sys.platform == "win32":  # the time of child processes is not known there
        return wall, wall
    import resource

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, time.process_time() + children.ru_utime + children.ru_stime
