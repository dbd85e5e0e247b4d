"""How numbers are written on the page and in tables."""

from __future__ import annotations

import math

__all__ = ["in_interval", "show_interval", "show_number", "show_p"]


def show_number(value: float | None, digits: int = 4, sign: bool = False) -> str:
    """A number with a true minus sign; a dash where there is none.

    >>> show_number(0.25), show_number(-0.25, sign=True), show_number(-1e-9, sign=True), show_number(None)
    ('0.2500', '−0.2500', '0.0000', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    rounded = round(value, digits) + 0.0  # -0.0 + 0.0 is 0.0
    text = f"{rounded:+.{digits}f}" if sign and rounded != 0 else f"{rounded:.{digits}f}"
    return text.replace("-", "−")


def show_interval(low: float | None, high: float | None, sign: bool = False) -> str:
    """Both ends; a dash where there is no interval.

    >>> show_interval(0.1, 0.2), show_interval(None, None)
    ('0.1000 to 0.2000', '–')
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "–"
    return f"{show_number(low, sign=sign)} to {show_number(high, sign=sign)}"


def show_p(value: float | None) -> str:
    """A p-value as it follows the letter p.

    >>> show_p(0.0312), show_p(0.00002), show_p(1.0), show_p(None)
    ('= 0.0312', '< 0.0001', '= 1', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if value < 0.0001:
        return "< 0.0001"
    return "= 1" if value == 1 else f"= {value:.4f}"


def in_interval(value: float, low: float | None, high: float | None) -> bool:
    """Whether the value lies between both ends.

    >>> in_interval(0.5, 0.4, 0.6), in_interval(0.5, None, None)
    (True, False)
    """
    return low is not None and high is not None and low <= value <= high
