"""Expected values by the probabilities of unknown labels, and draws of the labels.

The expected value of a query is exact where `rankbound.difficulty.unknown.exact` has a closed form, and otherwise the
mean over seeded draws of the labels, whose standard error `LabelDraws` has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankbound.difficulty.unknown.exact import LabelProbabilities, exact_values, probability_of_empty
from rankbound.difficulty.unknown.ranges import defined_values
from rankbound.errors import MeasureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.unknown.ranking import UnknownRanking
    from rankbound.measures import Measure

DRAWS = 500


@dataclass(frozen=True, slots=True, eq=False)
class LabelDraws:
    """Values of one measure by draws of the unknown labels.

    ``values`` has a row per query and a column per draw, NaN where the measure is not defined; ``expected`` is the
    expected value of each query given that it is, exact where ``is_exact``; ``empty`` is the probability that it is
    not.
    """

    values: NDArray[np.float64]
    expected: NDArray[np.float64]
    is_exact: NDArray[np.bool_]
    empty: NDArray[np.float64]

    def expected_or(self, empty: str) -> NDArray[np.float64]:
        """The expected values, with what `rankbound.Protocol.empty` puts in place of values that are not defined."""
        if empty == "skip":
            return self.expected
        return np.asarray(np.nan_to_num(self.expected) * (1 - self.empty) + self.empty * (empty == "one"))

    def interval_of_mean(self, confidence: float) -> tuple[float, float]:
        """The interval that holds the mean over queries with this confidence, by the draws of labels."""
        means = _means_of_draws(self.values)
        if len(means) == 0:
            return float("nan"), float("nan")
        low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
        return float(low), float(high)

    @property
    def error_of_mean(self) -> float:
        """The standard error that the draws leave in the expected mean over queries; 0 where it is exact."""
        counted = ~np.isnan(self.expected)
        drawn = counted & ~self.is_exact
        means = _means_of_draws(self.values[drawn])
        if len(means) < 2:
            return 0.0
        return float(np.std(means, ddof=1) / len(means) ** 0.5 * drawn.sum() / counted.sum())


def _means_of_draws(values: NDArray[np.float64]) -> NDArray[np.float64]:
    counted = ~np.isnan(values)
    number = counted.sum(axis=0)
    return np.asarray(np.nansum(values, axis=0)[number > 0] / number[number > 0])


def draw_labels(
    ranking: UnknownRanking,
    requested: Mapping[str, Measure],
    given: LabelProbabilities,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, LabelDraws]:
    """Expected values of measures, and values by draws of labels, independent for each unknown document."""
    for measure in requested.values():
        if measure.bounding != "none" or measure.definition.range_form(measure) in ("", "exchange", "constant"):
            raise MeasureError(f"{measure} has no expected value over unknown labels; leave it out, or unjudged='zero'")
    rng = np.random.default_rng(seed)
    rows: dict[str, list[NDArray[np.float64]]] = {name: [] for name in requested}
    labels_by_number = np.append(given.grades, 0)
    at_most = np.cumsum(given.rows, axis=1)
    for _ in range(draws if len(ranking.unknown) else 1):
        drawn = (rng.random((len(at_most), 1)) >= at_most).sum(axis=1)
        for name, measure in requested.items():
            rows[name].append(defined_values(ranking, measure, labels_by_number[drawn]))
    return {
        name: _with_expected_values(ranking, measure, given, np.stack(rows[name], axis=1))
        for name, measure in requested.items()
    }


def _with_expected_values(
    ranking: UnknownRanking, measure: Measure, given: LabelProbabilities, values: NDArray[np.float64]
) -> LabelDraws:
    number = (~np.isnan(values)).sum(axis=1)
    drawn = np.where(number > 0, np.nansum(values, axis=1) / np.maximum(number, 1), np.nan)
    empty = probability_of_empty(ranking, measure, given)
    exact = np.where(empty < 1, exact_values(ranking, measure, given) / np.where(empty < 1, 1 - empty, 1.0), np.nan)
    is_exact = ~np.isnan(exact) | (empty == 1)
    return LabelDraws(values, np.where(is_exact, exact, drawn), is_exact, empty)
