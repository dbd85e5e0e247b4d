"""What a benchmark finds: a row against a peer, a growth curve, or a peer that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["Finding", "Growth", "Missing", "Row", "fit_exponent"]


@dataclass(frozen=True)
class Row:
    """Ours against a peer's on the same input, in seconds or megabytes.

    ``against`` says what the peer is: a "peer", another way of "ourselves", or a "limit" that was set. ``bar`` is the
    least ratio that is asked for. ``difference`` is that of the values both computed, at most ``tolerance``.
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
        """How many times more the peer takes."""
        return self.theirs / self.ours

    @property
    def differs(self) -> bool:
        """Whether the two did not compute the same."""
        return self.difference is not None and not self.difference <= self.tolerance

    @property
    def missed(self) -> bool:
        """Whether less was reached than asked for."""
        return self.bar is not None and not self.ratio >= self.bar

    @property
    def lost(self) -> bool:
        """Whether a peer is better."""
        return self.against == "peer" and self.ratio < 1

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return found | {"ratio": self.ratio, "missed": self.missed, "lost": self.lost, "differs": self.differs}


@dataclass(frozen=True)
class Growth:
    """Time and memory of one contestant over growing sizes; ``megabytes`` is None where they cannot be measured."""

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
        """The b of megabytes = a size^b; None where memory is too little to say."""
        return None if self.megabytes is None else fit_exponent(self.sizes, self.megabytes, least=_LEAST_MEGABYTES)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return found | {"time_exponent": self.time_exponent, "memory_exponent": self.memory_exponent}


@dataclass(frozen=True)
class Missing:
    """A peer that is not installed, and how to get it."""

    peer: str
    install: str

    def __str__(self) -> str:
        return f"{self.peer} not installed: pip install {self.install}"


Finding = Row | Growth | Missing

_LEAST_MEGABYTES = 0.5  # less is lost among the pages of the interpreter


def fit_exponent(sizes: Sequence[float], amounts: Sequence[float], least: float = 0.0) -> float | None:
    """The b of amount = a size^b by least squares on logarithms, over the upper half of the sizes.

    None where fewer than two amounts there are above ``least``.

    >>> fit_exponent([1, 10, 100, 1000], [9.0, 3.0, 30.0, 300.0])
    1.0
    """
    half = max(2, (len(sizes) + 1) // 2)
    upper = [(size, amount) for size, amount in list(zip(sizes, amounts, strict=True))[-half:] if amount > least]
    if len(upper) < 2:
        return None
    x, y = np.log(np.array(upper, dtype=np.float64)).T
    return round(float(np.polyfit(x, y, 1)[0]), 6)
