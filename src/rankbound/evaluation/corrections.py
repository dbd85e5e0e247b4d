"""Corrections of p-values for several tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def bonferroni(p_values: ArrayLike) -> NDArray[np.float64]:
    """Bonferroni's correction: m p-values times m, at most 1; bounds the probability of any false rejection.

    >>> bonferroni([0.01, 0.04, 0.5]).tolist()
    [0.03, 0.12, 1.0]
    """
    p = _p_values(p_values)
    return np.minimum(p * len(p), 1.0)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down correction (1979): the i-th smallest of m p-values times m - i + 1, made monotone, at most 1.

    Bounds the probability of any false rejection, as Bonferroni's correction does, and rejects at least as often.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = _p_values(p_values)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return corrected


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Benjamini and Hochberg's correction (1995), which bounds the false discovery rate.

    The i-th smallest of m p-values times m / i, made monotone from the largest down.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    p = _p_values(p_values)
    order = np.argsort(-p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    return corrected


def _p_values(values: ArrayLike) -> NDArray[np.float64]:
    p = floats("p_values", values)
    if ((p < 0) | (p > 1)).any():
        raise ArgumentError(f"p_values must be numbers between 0 and 1 in one dimension, got {values!r}")
    return p
