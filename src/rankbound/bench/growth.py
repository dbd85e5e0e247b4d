"""How time and memory grow with the input, ours and the peers'."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankbound.bench.contest import is_installed, missing
from rankbound.bench.memory import peaks
from rankbound.bench.records import Growth, Missing
from rankbound.bench.timing import Work, best_of

__all__ = ["OURS", "Curve", "Way", "growth_of"]

OURS = "rankbound"


@dataclass(frozen=True)
class Way:
    """One contestant of a curve: the work on an input, up to which size it can be run, and the module it needs."""

    prepare: Callable[[Any], Work]
    largest: int | None = None
    module: str | None = None


@dataclass(frozen=True)
class Curve:
    """Sizes, the input of a size, and the contestants by name, ours first.

    ``make(size, folder)`` gives the same input whenever it is called; files go into the folder, and one that is there
    already is that of this size. ``quick`` are the sizes of a quick run.
    """

    name: str
    over: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    make: Callable[[int, Path], Any]
    ways: Mapping[str, Way]
    turns: int = 4


def growth_of(module: str, curves: Sequence[Curve], quick: bool) -> Iterator[Growth | Missing]:
    """Measure the curves of a part, the constant CURVES of its module."""
    for curve in curves:
        # a quick run looks at memory once in a part: each process for it takes seconds to start
        memory_of = list(curve.ways) if not quick else [OURS] if curve is curves[0] else []
        with tempfile.TemporaryDirectory() as folder:
            yield from _measured(module, curve, quick, memory_of, Path(folder))


def _measured(
    module: str, curve: Curve, quick: bool, memory_of: Sequence[str], folder: Path
) -> Iterator[Growth | Missing]:
    sizes = curve.quick if quick else curve.sizes
    ways = {}
    for name, way in curve.ways.items():
        if way.module is not None and not is_installed(way.module):
            yield missing(way.module)
        elif not quick or name == OURS or way.module is None:  # peers may compile for half a minute
            ways[name] = tuple(size for size in sizes if way.largest is None or size <= way.largest)
    works: dict[tuple[str, int], Work] = {}
    for size in sizes:  # all sizes and contestants take turns: a busy minute must not bend one curve
        made = curve.make(size, folder)
        works |= {(name, size): curve.ways[name].prepare(made) for name, fitting in ways.items() if size in fitting}
    times = best_of(works, 1 if quick else curve.turns)  # what a first run compiles, the best run has not
    del works
    for name, fitting in ways.items():
        seconds = tuple(times[name, size] for size in fitting)
        megabytes = peaks(module, curve.name, name, fitting, folder) if name in memory_of else None
        yield Growth(curve.name, curve.over, name, fitting, seconds, megabytes)
