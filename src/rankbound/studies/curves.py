"""Curves that depend on no data: bounds, distributions and normalizations over the size of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankbound.difficulty import bounds, difficulty_of, get_bounding
from rankbound.difficulty.distribution import distribution
from rankbound.evaluation.scores import is_lower_better
from rankbound.measures import LabelCounts, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The instances of Westerborg 2022: three with two other items for each relevant one, three with one, two and three
INSTANCES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "NSR 2": ((12, 4), (24, 8), (48, 16)),
    "NSR 1, 2, 3": ((16, 8), (24, 8), (32, 8)),
}
_LOSSES = ("nDCG", "AP", "U")


def lower_bounds(measures: Sequence[str] = ("nDCG", "AP"), sizes: Sequence[int] = (25, 50, 100, 200)) -> pl.DataFrame:
    """Worst possible score over the fraction of relevant items (Westerborg 2022, figure 1.1).

    Columns: measure, items, fraction, worst.
    """
    parts = []
    for measure in measures:
        for n in sizes:
            relevant = np.arange(1, n + 1)
            relevant = relevant[np.unique(np.linspace(0, n - 1, min(n, 50)).round().astype(np.int64))]
            worst = bounds(measure, n=np.full_like(relevant, n), relevant=relevant).worst
            parts.append(
                pl.DataFrame({"fraction": relevant / n, "worst": worst}).select(
                    pl.lit(measure).alias("measure"), pl.lit(n).alias("items"), pl.all()
                )
            )
    return pl.concat(parts)


def expectation_curves(
    measures: Sequence[str] = _LOSSES, ratios: Sequence[int] = (1, 2, 3), most: int = 100
) -> pl.DataFrame:
    """Expected loss of a random order over the number of relevant items (Westerborg 2022, figure 3.2).

    A loss is the measure where lower is better and its negative elsewhere; ``ratio`` is the number of other items for
    each relevant one. Columns: measure, ratio, relevant, expected.
    """
    relevant = np.arange(1, most + 1)
    parts = []
    for measure in measures:
        sign = 1.0 if is_lower_better(measure) else -1.0
        for ratio in ratios:
            expected = sign * bounds(measure, n=relevant * (1 + ratio), relevant=relevant).expected
            parts.append(
                pl.DataFrame({"relevant": relevant, "expected": expected}).select(
                    pl.lit(measure).alias("measure"), pl.lit(ratio).alias("ratio"), pl.all()
                )
            )
    return pl.concat(parts)


def bounded_losses(
    bounding: str,
    measures: Sequence[str] = _LOSSES,
    instances: Mapping[str, Sequence[tuple[int, int]]] = INSTANCES,
    points: int = 41,
) -> pl.DataFrame:
    """Bounded loss over the unbounded one, from best to worst ranking (Westerborg 2022, figures 3.1, 3.3, 3.4, 3.7).

    Columns: measure, group, instance (N items, P relevant), loss, bounded.
    """
    method = get_bounding(bounding)
    parts = []
    for name in measures:
        measure = parse_measure(name)
        # losses go down; a bounding that turns the measure upwards is turned back
        bounded_sign = 1.0 if measure.definition.lower_is_better and bounding in ("none", "expectation") else -1.0
        sign = 1.0 if measure.definition.lower_is_better else -1.0
        for group, cases in instances.items():
            for n, relevant in cases:
                difficulty = difficulty_of(measure, LabelCounts.binary([n] * points, [relevant] * points))
                value = np.linspace(difficulty.best[0], difficulty.worst[0], points)
                bounded = method.apply(value, difficulty, smooth=True)[0]
                parts.append(
                    pl.DataFrame({"loss": sign * value, "bounded": bounded_sign * bounded}).select(
                        pl.lit(name).alias("measure"),
                        pl.lit(group).alias("group"),
                        pl.lit(_instance(n, relevant)).alias("instance"),
                        pl.all(),
                    )
                )
    return pl.concat(parts)


def smooth_distributions(
    measures: Sequence[str] = ("nDCG", "AP", "nRBP(p=0.95)"),
    instances: Sequence[tuple[int, int]] = ((8, 4), (15, 5)),
    gains: Sequence[float] = (1, 4, 16, 64),
    points: int = 121,
) -> pl.DataFrame:
    """The distribution of a measure and its smooth forms with several gains (Westerborg 2022, figure 3.5).

    F~(s) = sum of p_k sigma(a (s - x_k)). Columns: measure, instance, distribution ("exact" or the gain a), score,
    fraction.
    """
    from scipy.special import expit

    parts = []
    for name in measures:
        for n, relevant in instances:
            null = distribution(name, n=n, relevant=relevant)
            at = np.linspace(null.scores[0], null.scores[-1], points)
            fractions = {"exact": null.cdf(at)}
            fractions |= {
                f"a = {gain:g}": expit(gain * (at[:, None] - null.scores)) @ null.probabilities for gain in gains
            }
            parts += [_distribution(name, n, relevant, kind, at, fraction) for kind, fraction in fractions.items()]
    return pl.concat(parts)


def distribution_curves(
    measures: Sequence[str] = ("nDCG", "AP", "nRBP(p=0.95)"),
    instances: Mapping[str, Sequence[tuple[int, int]]] = INSTANCES,
    points: int = 61,
) -> pl.DataFrame:
    """Smooth distributions of several instances with the gain that fits each (Westerborg 2022, figure 3.6).

    Columns: measure, group, instance, score, fraction.
    """
    parts = []
    for name in measures:
        for group, cases in instances.items():
            for n, relevant in cases:
                null = distribution(name, n=n, relevant=relevant)
                at = np.linspace(null.scores[0], null.scores[-1], points)
                rows = _distribution(name, n, relevant, "", at, null.smooth_cdf(at)).drop("distribution")
                parts.append(rows.select(pl.lit(group).alias("group"), pl.all()))
    return pl.concat(parts)


def _distribution(
    measure: str, n: int, relevant: int, kind: str, at: NDArray[np.float64], fraction: NDArray[np.float64]
) -> pl.DataFrame:
    return pl.DataFrame({"score": at, "fraction": fraction}).select(
        pl.lit(measure).alias("measure"),
        pl.lit(_instance(n, relevant)).alias("instance"),
        pl.lit(kind).alias("distribution"),
        pl.all(),
    )


def _instance(n: int, relevant: int) -> str:
    return f"N = {n}, P = {relevant}"
