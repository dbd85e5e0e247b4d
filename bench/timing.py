"""Timing that a shared machine does not decide: the contestants take turns, and the best turn of each counts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]


def best_of(contestants: Mapping[str, Callable[[], object]], turns: int = 5) -> dict[str, float]:
    """Seconds of the best turn of each contestant, all of them taking turns on the same input."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(turns):
        for name, work in contestants.items():
            gc.collect()
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def row(name: str, ours: float, peer: str, theirs: float, bar: float | None = None) -> Row:
    """One line of the table: how many times faster than the peer, and the least that is asked for."""
    return {
        "name": name,
        "ours_seconds": ours,
        "peer": peer,
        "peer_seconds": theirs,
        "ratio": theirs / ours,
        "bar": bar,
    }
