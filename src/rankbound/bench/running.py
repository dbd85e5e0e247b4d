"""Running parts of the benchmark, and everything that they found."""

from __future__ import annotations

import importlib
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rankbound.bench.contest import is_installed, missing
from rankbound.bench.records import Finding, Growth, Missing, Row
from rankbound.errors import ArgumentError

__all__ = ["PARTS", "SCALE_ROWS", "Outcome", "check_parts", "run_parts"]

PARTS = ("evaluation", "distributions", "losses", "objectives", "reading", "factorization", "scale")
SCALE_ROWS = 10_000_000
_WITHOUT_TRAINING = ("evaluation", "distributions", "reading")
_PACKAGES = (
    "rankbound", "numpy", "scipy", "polars", "torch", "numba", "lightgbm", "xgboost", "scikit-learn",
    "pytrec_eval-terrier", "ir_measures", "ranx", "rax", "jax", "keras-rs",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What was found, by part, on which machine and with which versions."""

    machine: dict[str, Any]
    versions: dict[str, str]
    quick: bool
    inputs: dict[str, str]
    rows: dict[str, list[Row]]
    growth: dict[str, list[Growth]]
    missing: list[Missing]

    @property
    def shortfalls(self) -> list[str]:
        """Bars that were missed, values that differ, and where a peer is better; in words."""
        return [f"{part}: {text}" for part in self.rows for text in self._shortfalls_of(part)]

    @property
    def failed(self) -> bool:
        """Whether less was reached than asked for, or values differ."""
        return any(row.missed or row.differs for rows in self.rows.values() for row in rows)

    def _shortfalls_of(self, part: str) -> Iterator[str]:
        for row in self.rows[part]:
            if row.differs:
                yield f"{row.name}: the value differs from that of {row.peer} by {row.difference:.2g}"
            if row.missed:
                yield f"{row.name}: {row.ratio:.2f} times {row.peer}, asked for {row.bar:.2f}"
            elif row.lost:
                yield f"{row.name}: {row.peer} is {1 / row.ratio:.2f} times as fast"
        for ours, theirs in _rivals(self.growth[part]):
            yield from _behind(ours, theirs)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "machine": self.machine,
            "versions": self.versions,
            "quick": self.quick,
            "inputs": self.inputs,
            "rows": [{"part": part, **row.to_dict()} for part, rows in self.rows.items() for row in rows],
            "growth": [{"part": part, **one.to_dict()} for part, found in self.growth.items() for one in found],
            "missing": [{"peer": one.peer, "install": one.install} for one in self.missing],
            "shortfalls": self.shortfalls,
        }


# ---- where a peer grows past us --------------------------------------------------------------------------------------

_STEEPER = 0.15  # of an exponent: less is noise
_NOISE = 1.05  # times: less is noise


def _rivals(found: Sequence[Growth]) -> Iterator[tuple[Growth, Growth]]:
    """Ours beside each peer's of the same curve; ways of ours have our name in front and are no peers."""
    own = {one.curve: one for one in reversed(found) if one.way.startswith("rankbound")}
    yield from ((own[one.curve], one) for one in found if one.curve in own and not one.way.startswith("rankbound"))


def _behind(ours: Growth, theirs: Growth) -> Iterator[str]:
    """Where the peer takes less time or memory, and whether ours grows faster."""
    sizes = [size for size in ours.sizes if size in theirs.sizes]
    for what, verb in (("seconds", "faster"), ("megabytes", "smaller")):
        factors = _factors(ours, theirs, what, sizes)
        lost = [size for size in sizes if factors.get(size, 0.0) > _NOISE]
        if lost:
            where = f"{lost[0]:,}" if len(lost) == 1 else f"{lost[0]:,} to {lost[-1]:,}"
            most = max(factors[size] for size in lost)
            yield f"{ours.curve}, {where} {ours.over}: {theirs.way} is up to {most:.2f} times {verb}"
    steep, their_steep = ours.time_exponent, theirs.time_exponent
    if steep is not None and their_steep is not None and steep > their_steep + _STEEPER:
        yield f"{ours.curve}: time grows as {ours.over}^{steep:.2f}, that of {theirs.way} as ^{their_steep:.2f}"


def _factors(ours: Growth, theirs: Growth, what: str, sizes: Sequence[int]) -> dict[int, float]:
    """How many times more we take, by size; memory counts from a megabyte on."""
    mine, other = getattr(ours, what), getattr(theirs, what)
    if mine is None or other is None:
        return {}
    least = 1.0 if what == "megabytes" else 0.0
    amounts = {size: (mine[ours.sizes.index(size)], other[theirs.sizes.index(size)]) for size in sizes}
    return {size: max(least, a) / max(least, b) for size, (a, b) in amounts.items()}


# ---- running ---------------------------------------------------------------------------------------------------------


def check_parts(parts: Sequence[str], scale_rows: int) -> tuple[str, ...]:
    """The parts to run, all of them if none is named."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise ArgumentError(f"unknown part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    if scale_rows < 1:
        raise ArgumentError(f"--scale-rows must be at least 1, got {scale_rows}")
    return tuple(part for part in PARTS if part in parts) or PARTS


def run_parts(
    parts: Sequence[str],
    *,
    quick: bool = False,
    scale_rows: int = SCALE_ROWS,
    tell: Callable[[str, Finding], None] = lambda *_: None,
) -> Outcome:
    """Run parts one after the other; ``tell`` hears of every finding as it is made.

    In a quick run sizes are small and nothing is asked for: it shows that everything works, not how fast.
    """
    outcome = Outcome(_machine(), _versions(), quick, {}, {}, {}, [])
    for part in parts:
        outcome.rows[part], outcome.growth[part] = [], []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers have many
            for finding in _findings(part, quick, scale_rows, outcome.inputs):
                tell(part, finding)
                if isinstance(finding, Row):
                    outcome.rows[part].append(replace(finding, bar=None) if quick else finding)
                elif isinstance(finding, Growth):
                    outcome.growth[part].append(finding)
                elif finding not in outcome.missing:
                    outcome.missing.append(finding)
    return outcome


def _findings(part: str, quick: bool, scale_rows: int, inputs: dict[str, str]) -> Iterator[Finding]:
    absent = [module for module in ("torch", "numba") if part not in _WITHOUT_TRAINING and not is_installed(module)]
    if absent:
        yield from map(missing, absent)
        return
    module = importlib.import_module(f"rankbound.bench.{part}")
    inputs[part] = module.INPUTS
    yield from module.run(quick, scale_rows) if part == "scale" else module.run(quick)


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "processor": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
