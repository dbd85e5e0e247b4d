"""Comparison of printed text whose numbers may differ a little, because they depend on the processor.

Functions of NumPy such as powers differ in the last digit between processors. A model that was trained differs more: a
tree that splits elsewhere makes all further trees differ.
"""

from __future__ import annotations

import math
import re

__all__ = ["numbers_masked", "same_within"]

_NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
_LAST_DIGITS = 1e-9  # relative


def numbers_masked(text: str) -> str:
    """The text with a mark in the place of each number, and one space in the place of several.

    >>> numbers_masked("nDCG@10=0.8554;   queries=200")
    'nDCG@#=#; queries=#'
    """
    return re.sub(r" +", " ", _NUMBER.sub("#", text))


def same_within(first: str, second: str, tolerance: float = 0.0) -> bool:
    """Whether two texts are the same but for numbers that differ by at most a tolerance, or in their last digits.

    >>> same_within("nDCG@10=0.855", "nDCG@10=0.853", 0.01), same_within("nDCG@10=0.855", "nDCG@10=0.853")
    (True, False)
    >>> same_within("expected=0.4912678202615908", "expected=0.49126782026159077")
    True
    """
    if _NUMBER.sub("#", first) != _NUMBER.sub("#", second):  # spaces count: tables keep their columns
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    return all(math.isclose(_value(a), _value(b), rel_tol=_LAST_DIGITS, abs_tol=tolerance) for a, b in pairs)


def _value(number: str) -> float:
    return float(number.replace("−", "-"))
