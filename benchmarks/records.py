"""Findings of a benchmark: a row against a peer, a growth curve, or a peer that is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["Finding", "Growth", "Missing", "Row", "fit_exponent"]


@dataclass(frozen=True)
class Row:
    """Our time (or memory) and that of a peer on the same input, in seconds or megabytes.

    ``against`` says what the peer is: another library ("peer"), another path through rankbound ("ourselves") or a
    fixed "limit". ``bar`` is the smallest ratio that counts as success. ``difference`` is the largest difference
    between the values that both computed; it must not exceed ``tolerance``.
    """

    name: str
    ours: float
    peer: str
    theirs: float
    bar: float | None = None
    unit: Literal["s", "MB"] = "s"
    against: Literal["peer", "ourselves", "limit"] = "peer"
    difference: float | None = None
    tolerance: float = 0.0
    note: str = ""

    @property
    def ratio(self) -> float:
        """The peer's amount divided by ours."""
        return self.theirs / self.ours

    @property
    def differs(self) -> bool:
        """Whether the two computed different values."""
        return self.difference is not None and not self.difference <= self.tolerance

    @property
    def missed(self) -> bool:
        """Whether the ratio is below the bar."""
        return self.bar is not None and not self.ratio >= self.bar

    @property
    def lost(self) -> bool:
        """Whether a peer is better."""
        return self.against == "peer" and self.ratio < 1

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the derived values, for JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {"ratio": self.ratio, "missed": self.missed, "lost": self.lost, "differs": self.differs}


@dataclass(frozen=True)
class Growth:
    """Time and memory of one implementation over growing sizes; ``megabytes`` is None where memory is not measured."""

    curve: str
    over: str
    way: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    megabytes: tuple[float, ...] | None

    @property
    def time_exponent(self) -> float | None:
        """The b of seconds = a size^b."""
        return fit_exponent(self.sizes, self.seconds)

    @property
    def memory_exponent(self) -> float | None:
        """The b of megabytes = a size^b; None where the amounts are too small to fit."""
        return None if self.megabytes is None else fit_exponent(self.sizes, self.megabytes, least=_LEAST_MEGABYTES)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the exponents, for JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {"time_exponent": self.time_exponent, "memory_exponent": self.memory_exponent}


@dataclass(frozen=True)
class Missing:
    """A peer that is not installed, and how to install it."""

    peer: str
    install: str

    def __str__(self) -> str:
        return f"{self.peer} is not installed: pip install {self.install}"


Finding = Row | Growth | Missing

_LEAST_MEGABYTES = 0.5  # smaller amounts cannot be distinguished from the interpreter's own pages


def fit_exponent(sizes: Sequence[float], amounts: Sequence[float], least: float = 0.0) -> float | None:
    """Return the b of amount = a size^b, by least squares on logarithms over the upper half of the sizes.

    The result is None where fewer than two of these amounts exceed ``least``.

    >>> fit_exponent([1, 10, 100, 1000], [9.0, 3.0, 30.0, 300.0])
    1.0
    """
    half = max(2, (len(sizes) + 1) // 2)
    upper = [(size, amount) for size, amount in list(zip(sizes, amounts, strict=True))[-half:] if amount > least]
    if len(upper) < 2:
        return None
    x, y = np.log(np.array(upper, dtype=np.float64)).T
    return round(float(np.polyfit(x, y, 1)[0]), 6)
