"""Wall-clock timing on a shared machine: implementations take turns, and the best run of each one counts.

Short work is repeated within its turn, as a training loop would repeat it. Otherwise the first run after another
implementation's turn would measure the state in which that one left the processor's caches.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

__all__ = ["MIN_SECONDS", "Work", "best_of"]

Work = Callable[[], Any]
Key = TypeVar("Key", bound=Hashable)

MIN_SECONDS = 4.0  # of the slowest implementation in a comparison; load from other processes varies within 1 or 2 s
_TURN_SECONDS = 0.05  # minimum length of a turn
_MAX_SECONDS = 10.0  # an implementation that has used this much gets no turn after its second


def best_of(works: Mapping[Key, Work], turns: int = 5, min_seconds: float = 0.0) -> dict[Key, float]:
    """Return the wall-clock seconds of the best run of each implementation; all take turns on the same input.

    Each gets ``turns`` turns. Unless ``turns`` is 1, turns are added until the slowest has run for ``min_seconds``.
    """
    best, spent = dict.fromkeys(works, float("inf")), dict.fromkeys(works, 0.0)
    turn = 0
    while turn < turns or (turns > 1 and max(spent.values()) < min_seconds):
        gc.collect()
        for name, work in works.items():
            used = 0.0
            while used < _TURN_SECONDS and (turn < 2 or spent[name] < _MAX_SECONDS):
                start = time.perf_counter()
                work()
                seconds = time.perf_counter() - start
                best[name] = min(best[name], seconds)
                used += seconds
            spent[name] += used
        turn += 1
    return best
