"""Discounts: the weight of each rank. Each formula is written once.

A discount is a function of the rank (from 1) and one parameter, in operations that work on numbers and on arrays, so
that measures, bounds and distributions use it as it stands and the loss kernels compile it. It never increases with the
rank.

============  ================  =========================================
name          value at rank r   used by
============  ================  =========================================
LOG2          1 / log2(1 + r)   DCG, nDCG
GEOMETRIC     p^(r - 1)         RBP, nRBP
CONSTANT      1                 P, R, Rprec, Success, set measures
RECIPROCAL    1 / r             RR, ERR
LETOR         1, 1, 1 / log2 r  LetorNDCG
============  ================  =========================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.measures.definition import Walked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure

_LONGEST_KEPT = 1000  # ranks up to which tables of discounts are kept
_STEP = 1e-4  # of the central differences, if a discount has no slope


@dataclass(frozen=True, slots=True, eq=False)
class Discount:
    """A discount with its derivative in the rank, which the smooth losses need.

    ``value(rank, parameter)`` and ``slope(rank, parameter)`` take real ranks from 1 on. ``total(ranks, parameter)`` is
    the sum over the ranks 1..ranks in closed form, where there is one. ``concentrated`` says that a few top ranks carry
    nearly all the weight, so that the distribution of a sum is rough.
    """

    name: str
    value: Callable[[Any, float], Any]
    slope: Callable[[Any, float], Any] | None = None
    total: Callable[[Any, float], Any] | None = None
    concentrated: bool = False

    def at(self, ranks: NDArray[Any], parameter: float = 0.0) -> NDArray[np.float64]:
        """The discount of each rank."""
        return np.asarray(self.value(np.asarray(ranks, dtype=np.float64), parameter), dtype=np.float64)

    def slope_at(self, ranks: NDArray[Any], parameter: float = 0.0) -> NDArray[np.float64]:
        """The derivative of the discount at each rank; by central differences if the discount has no slope."""
        ranks = np.asarray(ranks, dtype=np.float64)
        if self.slope is not None:
            return np.asarray(self.slope(ranks, parameter), dtype=np.float64)
        low = np.maximum(ranks - _STEP, 1.0)  # a discount is defined from rank 1 on
        return (self.at(ranks + _STEP, parameter) - self.at(low, parameter)) / (ranks + _STEP - low)

    def table(self, ranks: int, parameter: float = 0.0) -> NDArray[np.float64]:
        """The discounts of the ranks 1..ranks."""
        compute = _table if ranks <= _LONGEST_KEPT else _table.__wrapped__
        return compute(self, ranks, parameter)

    def sums(self, ranks: NDArray[np.int64], parameter: float = 0.0) -> Callable[[NDArray[np.int64]], Any]:
        """A function of m, up to the largest of ``ranks``: the sum of the discounts of the ranks 1..m."""
        if self.total is not None:
            total = self.total
            return lambda m: total(m, parameter)
        most = int(ranks.max(initial=0))
        running = _running_sums if most <= _LONGEST_KEPT else _running_sums.__wrapped__
        return running(self, most, parameter).__getitem__


@lru_cache(maxsize=256)
def _table(discount: Discount, ranks: int, parameter: float) -> NDArray[np.float64]:
    table = discount.at(np.arange(1, ranks + 1), parameter)
    table.flags.writeable = False
    return table


@lru_cache(maxsize=256)
def _running_sums(discount: Discount, ranks: int, parameter: float) -> NDArray[np.float64]:
    return np.concatenate(([0.0], np.cumsum(_table.__wrapped__(discount, ranks, parameter))))


# ---- the functions; the loss kernels compile them --------------------------------------------------------------------


def _log2(rank: Any, parameter: float) -> Any:
    return 1.0 / np.log2(1.0 + rank)


def _log2_slope(rank: Any, parameter: float) -> Any:
    log_rank = np.log2(1.0 + rank)
    return -1.0 / (log_rank * log_rank * (1.0 + rank) * 0.6931471805599453)  # ln 2


def _geometric(rank: Any, parameter: float) -> Any:
    return parameter ** (rank - 1.0)


def _geometric_slope(rank: Any, parameter: float) -> Any:
    return parameter ** (rank - 1.0) * np.log(parameter)


def _geometric_total(ranks: Any, parameter: float) -> Any:
    return (1.0 - parameter**ranks) / (1.0 - parameter)


def _constant(rank: Any, parameter: float) -> Any:
    return 0.0 * rank + 1.0


def _constant_slope(rank: Any, parameter: float) -> Any:
    return 0.0 * rank


def _constant_total(ranks: Any, parameter: float) -> Any:
    return 1.0 * ranks


def _reciprocal(rank: Any, parameter: float) -> Any:
    return 1.0 / rank


def _reciprocal_slope(rank: Any, parameter: float) -> Any:
    return -1.0 / (rank * rank)


def _letor(rank: Any, parameter: float) -> Any:
    return 1.0 / np.maximum(1.0, np.log2(rank))


LOG2 = Discount("log2", _log2, _log2_slope)
GEOMETRIC = Discount("geometric", _geometric, _geometric_slope, _geometric_total, concentrated=True)
CONSTANT = Discount("constant", _constant, _constant_slope, _constant_total)
RECIPROCAL = Discount("reciprocal", _reciprocal, _reciprocal_slope)
LETOR = Discount("letor", _letor)
BUILT_IN = (LOG2, GEOMETRIC, CONSTANT, RECIPROCAL)


# ---- measures with a discount ---------------------------------------------------------------------------------------


class Discounted(Walked):
    """A measure with a discount of the rank: the additive and the cascade measures."""

    discount: Discount
    grows_by_level: ClassVar[bool] = True

    def discount_parameter(self, measure: Measure) -> float:
        """The parameter of the discount, such as the persistence of RBP."""
        return 0.0

    def discounts(self, measure: Measure, ranks: NDArray[Any]) -> NDArray[np.float64]:
        """The discount at real ranks from 1 on; the cutoff is not applied."""
        return self.discount.at(ranks, self.discount_parameter(measure))

    def discount_slopes(self, measure: Measure, ranks: NDArray[Any]) -> NDArray[np.float64]:
        """The derivative of `discounts`."""
        return self.discount.slope_at(ranks, self.discount_parameter(measure))
