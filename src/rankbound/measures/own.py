"""Measures of your own: a few formulas in, a registered measure out.

>>> import numpy as np
>>> import rankbound as rb
>>> zipf = rb.measures.additive("ZipfDCG", gain=lambda label: label, discount=lambda rank: 1 / rank)
>>> rb.bounds("ZipfDCG@2", labels=[1, 0, 0])  # normalized: the best order has 1
Bounds(worst=0.0, expected=0.5, best=1.0)
>>> rb.evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 0.1, "b": 0.9}}, ["ZipfDCG"]).mean()
{'ZipfDCG': 0.5}
>>> rb.measures.unregister("ZipfDCG")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError, MeasureError
from rankbound.measures.additive import Additive
from rankbound.measures.cascade import Cascade
from rankbound.measures.definition import Value
from rankbound.measures.discounts import BUILT_IN, Discount
from rankbound.measures.label_counts import ratio
from rankbound.measures.pairwise import Pairwise
from rankbound.measures.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.definition import Definition
    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure

_CHECKED_RANKS = 1_000  # ranks at which a discount is checked
_CHECKED_LABELS = 5  # labels 0..4, at which gains, stop probabilities and weights are checked
_DISCOUNTS = {discount.name: discount for discount in BUILT_IN if discount.name != "geometric"}


def additive(
    name: str,
    *,
    gain: Callable[[Any], Any],
    discount: Callable[[Any], Any] | str = "log2",
    slope: Callable[[Any], Any] | None = None,
    normalize: bool = True,
    summary: str = "",
    formula: str = "",
    citation: str = "",
    aliases: tuple[str, ...] = (),
    replace: bool = False,
) -> Definition:
    """Define and register a position-based measure: the sum over ranks of gain(label) * discount(rank).

    Parameters
    ----------
    name:
        The name of the measure, as in ``"MyDCG@10"``: a letter, then letters, digits and underscores.
    gain:
        Function of an array of labels (0 and more): gains of 0 and more that never decrease with the label.
    discount:
        Function of an array of real ranks from 1 on: finite values of 0 and more that never increase with the rank.
        Or the name of a built-in discount: "log2", "constant", "reciprocal".
    slope:
        Derivative of the discount, for the smooth loss; by default central differences of the discount.
    normalize:
        Divide by the sum of the best order, so that the best value is 1, as nDCG does with DCG.
    summary, formula, citation, aliases:
        For the list of measures.
    replace:
        Replace a measure of your own that has the same name.

    The measure then works by name wherever a measure does: values, bounds (worst and best by the rearrangement
    inequality, expected in closed form), the exact distribution, normalizations, smooth and lambda losses, tree
    objectives, studies.
    """
    _check_name(name)
    _check_gain(gain)
    definition = _OwnAdditive(gain, _discount(discount, slope), normalize)
    return _registered(definition, name, summary or "a position-based measure", formula, citation, aliases, replace)


def cascade(
    name: str,
    *,
    stop: Callable[[Any], Any],
    discount: Callable[[Any], Any] | str = "reciprocal",
    slope: Callable[[Any], Any] | None = None,
    summary: str = "",
    formula: str = "",
    citation: str = "",
    aliases: tuple[str, ...] = (),
    replace: bool = False,
) -> Definition:
    """Define and register a cascade measure: the expected discount of the rank at which a user stops, as in ERR.

    ``stop`` is a function of an array of labels: the probability, from 0 to 1, that a user who sees such a document is
    satisfied; it must not decrease with the label. For the other parameters see `additive`.
    """
    _check_name(name)
    stops = _numbers_at_labels("stop", stop)
    if (stops > 1).any() or (np.diff(stops) < 0).any():
        raise MeasureError(f"stop must give probabilities that do not decrease with the label, got {stops.tolist()}")
    definition = _OwnCascade(stop, _discount(discount, slope))
    return _registered(definition, name, summary or "a cascade measure", formula, citation, aliases, replace)


def pairwise(
    name: str,
    *,
    weight: Callable[[Any, Any], Any],
    summary: str = "",
    formula: str = "",
    citation: str = "",
    aliases: tuple[str, ...] = (),
    replace: bool = False,
) -> Definition:
    """Define and register a measure of pairs: the weight of the pairs in the right order over that of all pairs.

    ``weight`` is a function of two arrays of labels, high > low: a positive weight that does not decrease with the
    higher label and does not increase with the lower one, such as ``lambda high, low: high - low``. For the other
    parameters see `additive`.
    """
    _check_name(name)
    _check_weight(weight)
    definition = _OwnPairwise(weight)
    return _registered(definition, name, summary or "a measure of pairs", formula, citation, aliases, replace)


def _registered(
    definition: Any,
    name: str,
    summary: str,
    formula: str,
    citation: str,
    aliases: tuple[str, ...],
    replace: bool,
) -> Definition:
    definition.name, definition.summary, definition.formula, definition.citation = name, summary, formula, citation
    no_settings: Mapping[str, Value] = {}
    definition.aliases = dict.fromkeys(aliases, no_settings)
    definition.built_in = False
    register(definition, replace=replace)
    return definition  # type: ignore[no-any-return]


class _OwnAdditive(Additive):
    def __init__(self, gain: Callable[[Any], Any], discount: Discount, normalize: bool) -> None:
        self._gain, self.discount, self._normalize = gain, discount, normalize

    def gains(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        return _checked_numbers(self.name, "gain", self._gain, labels)

    def normalizer(
        self, measure: Measure, counts: LabelCounts, gains: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        return self.ideal(measure, counts, gains) if self._normalize else super().normalizer(measure, counts, gains)

    def is_normalized(self, measure: Measure) -> bool:
        return self._normalize

    def range_form(self, measure: Measure) -> str:
        return "ideal" if self._normalize else "rises"

    def keeps_cutoff(self, measure: Measure, n: int) -> bool:
        return self._normalize and measure.cutoff is not None and measure.cutoff < n


class _OwnCascade(Cascade):
    def __init__(self, stop: Callable[[Any], Any], discount: Discount) -> None:
        self._stop, self.discount = stop, discount

    def stops(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        stops = _checked_numbers(self.name, "stop", self._stop, labels)
        if stops.max(initial=0) > 1:
            raise DataError(
                f"stop of {self.name} must give probabilities, got {stops.max():g} for the labels of this data"
            )
        return stops


class _OwnPairwise(Pairwise):
    def __init__(self, weight: Callable[[Any, Any], Any]) -> None:
        self._weight = weight

    def weights(self, measure: Measure, high: Any, low: Any) -> Any:
        shape = np.broadcast_shapes(np.shape(high), np.shape(low))
        return np.broadcast_to(np.asarray(self._weight(high, low), dtype=np.float64), shape)

    def affine(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        pairs = self.all_pairs(measure, counts, levels)
        return -ratio(np.ones(len(pairs)), pairs), (pairs > 0).astype(float)


# ---- checks ----------------------------------------------------------------------------------------------------------


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name):
        raise MeasureError(f"name must be a letter followed by letters, digits or underscores, got {name!r}")


def _check_gain(gain: Any) -> None:
    gains = _numbers_at_labels("gain", gain)
    if (np.diff(gains) < 0).any():
        raise MeasureError(f"gain must not decrease with the label, got {gains.tolist()} for the labels 0 to 4")


def _check_weight(weight: Any) -> None:
    if not callable(weight):
        raise MeasureError(f"weight must be a function of two arrays of labels, got {weight!r}")
    high, low = (index.astype(float) for index in np.tril_indices(_CHECKED_LABELS, -1))
    weights = np.full((_CHECKED_LABELS, _CHECKED_LABELS), np.nan)
    try:
        weights[high.astype(int), low.astype(int)] = weight(high, low)
    except Exception as error:
        raise MeasureError(f"weight must be a function of two arrays of labels, got the error: {error}") from error
    numbers = weights[high.astype(int), low.astype(int)]
    if not (np.isfinite(numbers) & (numbers > 0)).all():
        raise MeasureError(f"weight must give positive finite numbers, got {numbers.tolist()}")
    with np.errstate(invalid="ignore"):
        falls, rises = (np.diff(weights, axis=0) < 0).any(), (np.diff(weights, axis=1) > 0).any()
    if falls or rises:
        raise MeasureError("weight must not decrease with the higher label nor increase with the lower one")


def _discount(discount: Any, slope: Any) -> Discount:
    if isinstance(discount, str):
        if discount not in _DISCOUNTS:
            raise MeasureError(f"discount must be a function or one of {', '.join(_DISCOUNTS)}, got {discount!r}")
        return _DISCOUNTS[discount]
    if not callable(discount) or (slope is not None and not callable(slope)):
        raise MeasureError(f"discount and slope must be functions of an array of ranks, got {discount!r} and {slope!r}")
    ranks = np.arange(1.0, _CHECKED_RANKS + 1)
    functions = {"discount": discount} | ({} if slope is None else {"slope": slope})
    tables = {}
    for name, function in functions.items():
        try:
            tables[name] = np.broadcast_to(np.asarray(function(ranks), dtype=np.float64), ranks.shape)
        except Exception as error:
            raise MeasureError(f"{name} must be a function of an array of ranks, got the error: {error}") from error
        wrong = np.flatnonzero(~np.isfinite(tables[name]))
        if len(wrong):
            raise MeasureError(f"{name} must be finite, got {tables[name][wrong[0]]} at rank {wrong[0] + 1}")
    table = tables["discount"]
    if (table < 0).any():
        rank = int(np.argmax(table < 0)) + 1
        raise MeasureError(f"discount must not be negative, got {table[rank - 1]:g} at rank {rank}")
    if (np.diff(table) > 0).any():
        rank = int(np.argmax(np.diff(table) > 0)) + 1
        here, after = table[rank - 1], table[rank]
        raise MeasureError(
            f"discount must not increase with the rank, got {here:g} at rank {rank} and {after:g} after it"
        )

    def value(rank: Any, parameter: float) -> Any:
        return np.broadcast_to(np.asarray(discount(rank), dtype=np.float64), np.shape(rank))

    def derivative(rank: Any, parameter: float) -> Any:
        return np.broadcast_to(np.asarray(slope(rank), dtype=np.float64), np.shape(rank))

    return Discount("own", value, None if slope is None else derivative)


def _numbers_at_labels(name: str, function: Any) -> NDArray[np.float64]:
    """What a function gives for the labels 0..4: finite numbers of 0 and more, or MeasureError."""
    if not callable(function):
        raise MeasureError(f"{name} must be a function of an array of labels, got {function!r}")
    labels = np.arange(float(_CHECKED_LABELS))
    try:
        numbers = np.broadcast_to(np.asarray(function(labels), dtype=np.float64), labels.shape)
    except Exception as error:
        raise MeasureError(f"{name} must be a function of an array of labels, got the error: {error}") from error
    if not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise MeasureError(
            f"{name} must return finite, non-negative numbers, got {numbers.tolist()} for the labels 0 to 4"
        )
    return numbers


def _checked_numbers(
    measure: str, name: str, function: Callable[[Any], Any], labels: NDArray[Any]
) -> NDArray[np.float64]:
    """What a user's function gives for labels of the data, checked again: they may be beyond 4."""
    numbers = np.array(np.broadcast_to(np.asarray(function(labels), dtype=np.float64), labels.shape))
    if not (np.isfinite(numbers).all() and numbers.min(initial=0) >= 0):
        wrong = numbers[~np.isfinite(numbers) | (numbers < 0)][0]
        raise DataError(
            f"{name} of {measure} must return finite, non-negative numbers for the labels of this data, got {wrong:g}"
        )
    return numbers
