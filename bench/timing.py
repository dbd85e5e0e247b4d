"""Timing that a shared machine does not decide: the contestants take turns, and the best run of each counts.

Short work is repeated within its turn, as a training loop would: else the first run after somebody else's measures the
caches that they left.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]
_TURN = 0.05  # seconds at least


def best_of(contestants: Mapping[str, Callable[[], object]], turns: int = 5) -> dict[str, float]:
    """Seconds of the best run of each contestant, all of them taking turns on the same input."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(turns):
        for name, work in contestants.items():
            gc.collect()
            until = time.perf_counter() + _TURN
            now = 0.0
            while now < until:
                start = time.perf_counter()
                work()
                now = time.perf_counter()
                best[name] = min(best[name], now - start)
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
