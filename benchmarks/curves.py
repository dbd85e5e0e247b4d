"""Growth of time and memory with the size of the input, for rankbound and its peers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison import is_installed, missing
from benchmarks.memory import peaks
from benchmarks.records import Growth, Missing
from benchmarks.timing import Work, best_of

__all__ = ["OURS", "Curve", "Implementation", "growth_of"]

OURS = "rankbound"


@dataclass(frozen=True)
class Implementation:
    """One line of a curve: its work on an input, the largest size it can run, and the module it needs."""

    prepare: Callable[[Any], Work]
    largest: int | None = None
    module: str | None = None


@dataclass(frozen=True)
class Curve:
    """Sizes, a function that makes the input of a size, and the implementations by name, ours first.

    ``make(size, folder)`` must return the same input on every call. It writes files into the folder and reuses those
    that exist. ``quick`` holds the sizes of a quick run.
    """

    name: str
    over: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    make: Callable[[int, Path], Any]
    ways: Mapping[str, Implementation]
    turns: int = 4


def growth_of(module: str, curves: Sequence[Curve], quick: bool) -> Iterator[Growth | Missing]:
    """Measure the curves of a part, which are the constant CURVES of its module."""
    for curve in curves:
        # a quick run measures memory once per part, because each process takes seconds to start
        memory_of = list(curve.ways) if not quick else [OURS] if curve is curves[0] else []
        with tempfile.TemporaryDirectory() as folder:
            yield from _measure(module, curve, quick, memory_of, Path(folder))


def _measure(
    module: str, curve: Curve, quick: bool, memory_of: Sequence[str], folder: Path
) -> Iterator[Growth | Missing]:
    all_sizes = curve.quick if quick else curve.sizes
    sizes_of: dict[str, tuple[int, ...]] = {}
    for name, way in curve.ways.items():
        if way.module is not None and not is_installed(way.module):
            yield missing(way.module)
        elif not quick or name == OURS or way.module is None:  # peers may compile for half a minute
            sizes_of[name] = tuple(size for size in all_sizes if way.largest is None or size <= way.largest)
    works: dict[tuple[str, int], Work] = {}
    for size in all_sizes:  # all sizes take turns too, so that a busy minute cannot distort one end of a curve
        made = curve.make(size, folder)
        works |= {(name, size): curve.ways[name].prepare(made) for name, sizes in sizes_of.items() if size in sizes}
    times = best_of(works, 1 if quick else curve.turns)  # the best run is not the first, which compiles
    del works
    for name, sizes in sizes_of.items():
        seconds = tuple(times[name, size] for size in sizes)
        megabytes = peaks(module, curve.name, name, sizes, folder) if name in memory_of else None
        yield Growth(curve.name, curve.over, name, sizes, seconds, megabytes)
