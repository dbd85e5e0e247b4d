"""Runs parts of the benchmark and collects their findings."""

from __future__ import annotations

import importlib
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.comparison import is_installed, missing
from benchmarks.records import Finding, Growth, Missing, Row
from rankbound.errors import ArgumentError

__all__ = ["PARTS", "SCALE_ROWS", "Outcome", "run_parts", "select_parts"]

PARTS = (
    "evaluation", "distributions", "losses", "objectives", "metrics", "reading", "factorization", "scale",
    "torch_metrics",
)  # fmt: skip
SCALE_ROWS = 10_000_000
_WITHOUT_TRAINING = ("evaluation", "distributions", "reading")
_PACKAGES = (
    "rankbound", "numpy", "scipy", "polars", "torch", "lightgbm", "xgboost", "scikit-learn",
    "pytrec_eval-terrier", "ir_measures", "ranx", "rax", "jax", "keras-rs", "torchmetrics",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """All findings by part, with the machine and the versions they were made with."""

    machine: dict[str, Any]
    versions: dict[str, str]
    quick: bool
    inputs: dict[str, str]
    rows: dict[str, list[Row]]
    growth: dict[str, list[Growth]]
    missing: list[Missing]

    @property
    def shortfalls(self) -> list[str]:
        """Sentences about missed bars, values that differ, and rows and curves where a peer is better."""
        return [f"{part}: {text}" for part in self.rows for text in self._shortfalls_of(part)]

    @property
    def failed(self) -> bool:
        """Whether a bar was missed or values differ."""
        return any(row.missed or row.differs for rows in self.rows.values() for row in rows)

    def _shortfalls_of(self, part: str) -> Iterator[str]:
        for row in self.rows[part]:
            if row.differs:
                yield f"{row.name}: the value differs from that of {row.peer} by {row.difference:.2g}"
            if row.missed:
                yield f"{row.name}: {row.ratio:.2f} times {row.peer}, the bar is {row.bar:.2f}"
            elif row.lost:
                yield f"{row.name}: {row.peer} is {1 / row.ratio:.2f} times as fast"
        for ours, theirs in _rivals(self.growth[part]):
            yield from _behind(ours, theirs)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "machine": self.machine,
            "versions": self.versions,
            "quick": self.quick,
            "inputs": self.inputs,
            "rows": [{"part": part, **row.to_dict()} for part, rows in self.rows.items() for row in rows],
            "growth": [{"part": part, **line.to_dict()} for part, lines in self.growth.items() for line in lines],
            "missing": [{"peer": peer.peer, "install": peer.install} for peer in self.missing],
            "shortfalls": self.shortfalls,
        }


# ---- curves on which a peer is better --------------------------------------------------------------------------------

_EXPONENT_NOISE = 0.15  # smaller differences of exponents are noise
_RATIO_NOISE = 1.05  # smaller ratios are noise


def _rivals(lines: Sequence[Growth]) -> Iterator[tuple[Growth, Growth]]:
    """Pair our line with that of each peer on the same curve; further lines of ours also start with our name."""
    own = {line.curve: line for line in reversed(lines) if line.way.startswith("rankbound")}
    yield from ((own[line.curve], line) for line in lines if line.curve in own and not line.way.startswith("rankbound"))


def _behind(ours: Growth, theirs: Growth) -> Iterator[str]:
    """Say where the peer takes less time or memory, and whether ours grows faster."""
    sizes = [size for size in ours.sizes if size in theirs.sizes]
    for quantity, comparative in (("seconds", "faster"), ("megabytes", "smaller")):
        factors = _factors(ours, theirs, quantity, sizes)
        lost = [size for size in sizes if factors.get(size, 0.0) > _RATIO_NOISE]
        if lost:
            where = f"{lost[0]:,}" if len(lost) == 1 else f"{lost[0]:,} to {lost[-1]:,}"
            most = max(factors[size] for size in lost)
            yield f"{ours.curve}, {where} {ours.over}: {theirs.way} is up to {most:.2f} times {comparative}"
    exponent, their_exponent = ours.time_exponent, theirs.time_exponent
    if exponent is not None and their_exponent is not None and exponent > their_exponent + _EXPONENT_NOISE:
        yield f"{ours.curve}: time grows as {ours.over}^{exponent:.2f}, that of {theirs.way} as ^{their_exponent:.2f}"


def _factors(ours: Growth, theirs: Growth, quantity: str, sizes: Sequence[int]) -> dict[int, float]:
    """Return our amount divided by theirs, by size; memory counts from one megabyte on."""
    our_amounts, their_amounts = getattr(ours, quantity), getattr(theirs, quantity)
    if our_amounts is None or their_amounts is None:
        return {}
    least = 1.0 if quantity == "megabytes" else 0.0
    amounts = {size: (our_amounts[ours.sizes.index(size)], their_amounts[theirs.sizes.index(size)]) for size in sizes}
    return {size: max(least, a) / max(least, b) for size, (a, b) in amounts.items()}


# ---- running ---------------------------------------------------------------------------------------------------------


def select_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the requested parts in their fixed order, all parts if none is named."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise ArgumentError(f"unknown part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in parts) or PARTS


def run_parts(
    parts: Sequence[str],
    *,
    quick: bool = False,
    scale_rows: int = SCALE_ROWS,
    on_finding: Callable[[str, Finding], None] = lambda *_: None,
) -> Outcome:
    """Run parts one after the other and call ``on_finding(part, finding)`` for each finding as it is made.

    A quick run has small sizes and no bars: it shows that everything works, not how fast it is.
    """
    outcome = Outcome(_machine(), _versions(), quick, {}, {}, {}, [])
    for part in parts:
        outcome.rows[part], outcome.growth[part] = [], []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers raise many
            for finding in _findings(part, quick, scale_rows, outcome.inputs):
                on_finding(part, finding)
                if isinstance(finding, Row):
                    outcome.rows[part].append(replace(finding, bar=None) if quick else finding)
                elif isinstance(finding, Growth):
                    outcome.growth[part].append(finding)
                elif finding not in outcome.missing:
                    outcome.missing.append(finding)
    return outcome


def _findings(part: str, quick: bool, scale_rows: int, inputs: dict[str, str]) -> Iterator[Finding]:
    absent = [module for module in ("torch",) if part not in _WITHOUT_TRAINING and not is_installed(module)]
    if absent:
        yield from map(missing, absent)
        return
    module = importlib.import_module(f"benchmarks.{part}")
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
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
