"""Largest and smallest ratio of two sums over the numbers of unknown documents per label.

For nDCG, with c_l unknown documents of at least the l-th grade, c_1 >= ... >= c_L, W(c) the weights of the c documents
that come first (for the largest value) or last (for the smallest), C(n) the sum of the first n discounts and K_v the
known documents of at least the level v:

    value = (A + sum_l (G_l - G_{l-1}) W(c_l)) / sum_v (v - v') C(K_v + c_{l(v)}),

where v runs over all levels of gain, v' is the level below v, and l(v) the lowest grade of at least v. For a guess of
the ratio, numerator - guess * denominator is a sum over l, and a pass over the grades from the highest to the lowest
finds the best numbers; their ratio is the next guess (Dinkelbach, On nonlinear fractional programming, 1967). The
guesses never get worse, and the last one is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_STEPS = 60  # a handful is enough; this only ends what rounding might keep going
_MOST_CELLS = 4_000_000


@dataclass(frozen=True, eq=False)
class Ratio:
    """The ratio of each row: (known + sum_l steps_l W(c_l)) / (fixed + sum of gaps * C(K + c)).

    ``weights`` has W, a row of W(0), W(1), ... for each row, and ``most`` the largest number of documents. ``levels``
    are (grade, gap, counts): a level of gain of this grade's group, its distance from the level below, and for each row
    the known documents of at least this level. ``sums`` has C.
    """

    known: NDArray[np.float64]
    fixed: NDArray[np.float64]
    weights: NDArray[np.float64]
    most: NDArray[np.int64]
    steps: NDArray[np.float64]
    levels: tuple[tuple[int, float, NDArray[np.int64]], ...]
    sums: NDArray[np.float64]

    def take(self, rows: NDArray[np.int64], width: int) -> Ratio:
        """Some of the rows, and numbers of documents below ``width``."""
        levels = tuple((grade, gap, counts[rows]) for grade, gap, counts in self.levels)
        weights = self.weights[rows, :width]
        return Ratio(self.known[rows], self.fixed[rows], weights, self.most[rows], self.steps, levels, self.sums)


def best_ratios(ratio: Ratio, sign: int) -> NDArray[np.float64]:
    """The largest (``sign=1``) or smallest (``sign=-1``) ratio of each row over all c_1 >= ... >= c_L.

    NaN where no numbers of documents make the denominator positive.
    """
    result = np.full(len(ratio.known), np.nan)
    order = np.argsort(ratio.most, kind="stable")  # rows of similar width together
    start = 0
    while start < len(order):
        widths = ratio.most[order[start:]] + 1
        rows = max(1, int(np.searchsorted(np.arange(1, len(widths) + 1) * widths * len(ratio.steps), _MOST_CELLS)))
        part = order[start : start + rows]
        result[part] = _best_of_part(ratio.take(part, int(ratio.most[part].max()) + 1), sign)
        start += rows
    return result


def _best_of_part(ratio: Ratio, sign: int) -> NDArray[np.float64]:
    rows, grades = len(ratio.known), len(ratio.steps)
    numbers = np.arange(ratio.weights.shape[1])
    last = len(ratio.sums) - 1
    denominators = np.zeros((grades, rows, len(numbers)))
    for grade, gap, counts in ratio.levels:
        denominators[grade] += gap * ratio.sums[np.minimum(counts[:, None] + numbers, last)]
    allowed = numbers <= ratio.most[:, None]
    guess = np.full(rows, np.nan)
    for start in (ratio.most, np.minimum(ratio.most, 1)):  # numbers that make the denominator positive, if any do
        counts = np.tile(start, (grades, 1))
        value = _value(ratio, denominators, counts)
        better = np.isnan(guess) | (sign * value > sign * guess)
        guess = np.where(better & ~np.isnan(value), value, guess)
    none = _value(ratio, denominators, np.zeros((grades, rows), dtype=np.int64))
    guess = np.where(np.isnan(guess) | (sign * none > sign * guess), np.where(np.isnan(none), guess, none), guess)
    active = np.flatnonzero(~np.isnan(guess) & (ratio.most > 0))
    for _ in range(_MOST_STEPS):
        if len(active) == 0:
            break
        part = ratio.take(active, len(numbers))
        counts = _best_numbers(part, denominators[:, active], allowed[active], guess[active], sign)
        value = _value(part, denominators[:, active], counts)
        improved = ~np.isnan(value) & (sign * (value - guess[active]) > 1e-15 * np.maximum(1.0, np.abs(guess[active])))
        guess[active[improved]] = value[improved]
        active = active[improved]
    return guess


def _best_numbers(
    ratio: Ratio,
    denominators: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    guess: NDArray[np.float64],
    sign: int,
) -> NDArray[np.int64]:
    """The numbers that maximize sign * (numerator - guess * denominator), grade by row."""
    grades, rows, width = denominators.shape
    numbers = np.arange(width)
    choices = []
    total = np.zeros((rows, width))
    for grade in range(grades - 1, -1, -1):
        if grade < grades - 1:  # the higher grade has at most as many documents
            best = np.maximum.accumulate(total, axis=1)
            choices.append(np.maximum.accumulate(np.where(total == best, numbers, 0), axis=1))
            total = best
        gain = ratio.steps[grade] * ratio.weights - guess[:, None] * denominators[grade]
        total = total + np.where(allowed, sign * gain, -np.inf)
    counts = np.empty((grades, rows), dtype=np.int64)
    counts[0] = np.argmax(total, axis=1)
    for grade, choice in zip(range(1, grades), reversed(choices), strict=True):
        counts[grade] = choice[np.arange(rows), counts[grade - 1]]
    return counts


def _value(ratio: Ratio, denominators: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The ratio for these numbers; NaN where the denominator is not positive."""
    row = np.arange(len(ratio.known))
    top, bottom = ratio.known.copy(), ratio.fixed.copy()
    for grade, step in enumerate(ratio.steps):
        top += step * ratio.weights[row, counts[grade]]
        bottom += denominators[grade, row, counts[grade]]
    return np.asarray(np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0))
