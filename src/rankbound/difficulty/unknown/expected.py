"""Expected values by the probabilities of unknown labels, and draws of the labels.

The expected value of an additive measure without a normalizer is exact: the sum of expected gains times discounts. Of
other measures it is the mean over seeded draws of the labels, whose standard error `LabelDraws` has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.unknown.ranges import defined_values
from rankbound.difficulty.unknown.ranking import UnknownRanking
from rankbound.errors import ArgumentError, MeasureError
from rankbound.measures.additive import Additive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures import Measure

DRAWS = 500


@dataclass(frozen=True, slots=True, eq=False)
class LabelDraws:
    """Values of one measure by draws of the unknown labels.

    ``values`` has a row per query and a column per draw, NaN where the measure is not defined; ``expected`` is the
    expected value of each query given that it is, exact where ``is_exact``.
    """

    values: NDArray[np.float64]
    expected: NDArray[np.float64]
    is_exact: NDArray[np.bool_]

    def expected_or(self, empty: str) -> NDArray[np.float64]:
        """The expected values, with what `rankbound.Protocol.empty` puts in place of values that are not defined."""
        if empty == "skip":
            return self.expected
        part = np.isnan(self.values).mean(axis=1)
        return np.asarray(np.nan_to_num(self.expected) * (1 - part) + part * (empty == "one"))

    def _means(self) -> NDArray[np.float64]:
        counted = ~np.isnan(self.values)
        number = counted.sum(axis=0)
        return np.asarray(np.nansum(self.values, axis=0)[number > 0] / number[number > 0])

    def interval_of_mean(self, confidence: float) -> tuple[float, float]:
        """The interval that holds the mean over queries with this confidence, by the draws of labels."""
        means = self._means()
        if len(means) == 0:
            return float("nan"), float("nan")
        low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
        return float(low), float(high)

    @property
    def error_of_mean(self) -> float:
        """The standard error that the draws leave in the expected mean over queries; 0 where it is exact."""
        means = self._means()
        return 0.0 if self.is_exact.all() or len(means) < 2 else float(np.std(means, ddof=1) / len(means) ** 0.5)


def draw_labels(
    ranking: UnknownRanking,
    requested: Mapping[str, Measure],
    probability: NDArray[np.float64],
    grades: NDArray[Any],
    frequencies: NDArray[np.float64],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, LabelDraws]:
    """Values by draws of labels: above 0 with ``probability`` for each unknown document, independently.

    ``grades`` are the labels above 0, and ``frequencies`` say how often each is drawn among them.
    """
    if len(probability) and not (np.isfinite(probability).all() and 0 <= probability.min() <= probability.max() <= 1):
        wrong = probability[~((probability >= 0) & (probability <= 1))][0]
        raise ArgumentError(f"probabilities of unjudged documents must be from 0 to 1, got {wrong:g}")
    for measure in requested.values():
        if measure.bounding != "none" or measure.definition.range_form(measure) in ("", "exchange", "constant"):
            raise MeasureError(f"{measure} has no expected value over unknown labels; leave it out, or unjudged='zero'")
    rng = np.random.default_rng(seed)
    rows: dict[str, list[NDArray[np.float64]]] = {name: [] for name in requested}
    for _ in range(draws if len(ranking.unknown) else 1):
        labels = rng.choice(grades, size=len(probability), p=frequencies)
        labels = np.where(rng.random(len(probability)) < probability, labels, 0)
        for name, measure in requested.items():
            rows[name].append(defined_values(ranking, measure, labels))
    result = {}
    for name, measure in requested.items():
        values = np.stack(rows[name], axis=1)
        number = (~np.isnan(values)).sum(axis=1)
        expected = np.where(number > 0, np.nansum(values, axis=1) / np.maximum(number, 1), np.nan)
        exact = _exact_values(ranking, measure, probability, grades, frequencies)
        always = number == values.shape[1]
        if exact is not None:
            expected = np.where(always, exact, expected)
        result[name] = LabelDraws(values, expected, always & (exact is not None))
    return result


def _exact_values(
    ranking: UnknownRanking,
    measure: Measure,
    probability: NDArray[np.float64],
    grades: NDArray[Any],
    frequencies: NDArray[np.float64],
) -> NDArray[np.float64] | None:
    """Expected values of an additive measure whose normalizer no label changes; None for others."""
    definition: Any = measure.definition
    if not isinstance(definition, Additive) or definition.range_form(measure) != "rises":
        return None
    gains = definition.levels(measure, ranking.labels)
    zero, *_ = definition.levels(measure, np.zeros(1, dtype=np.int64))
    gains[ranking.unknown] = zero * (1 - probability) + probability * (frequencies @ definition.levels(measure, grades))
    sums = ranking.sum(gains * ranking.weights(measure))
    return np.asarray(sums / definition.normalizer(measure, ranking.ranked.counts))
