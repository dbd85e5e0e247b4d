"""Systems compared query by query: where one is better, for whom, and how their scores are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankbound.arrays import floats
from rankbound.errors import DataError
from rankbound.evaluation.score_tables import Contrast, check_scores
from rankbound.evaluation.scores import ScoreMatrix, is_lower_better

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray


_CURVE = 41  # points of a smooth curve
_SEGMENTS = 20  # stretches of the cubic; the penalty, not their number, decides how smooth the curve is
_PENALTIES = np.logspace(-6, 6, 61)  # relative to the data's weight
_FEWEST = 4  # distinct x that a cubic needs
_LARGEST = 1e90  # cubes, and their sums, are numbers


def instance_scores(table: pl.DataFrame, contrast: Contrast, *, limit: int | None = None) -> pl.DataFrame:
    """Score of each system against the baseline's on the same query (Westerborg 2022, figures 5.5 to 5.7).

    Columns: data, variant, system, fold, qid, items, relevant, baseline, score, difference. With a ``limit`` at most so
    many rows: the same fraction of every data set and system, spread evenly over the baseline's scores.
    """
    parts = []
    for keys, scores, row in _panels(table, contrast):
        parts.append(
            scores.queries.select(
                *keys,
                "fold",
                "qid",
                "items",
                "relevant",
                pl.Series("baseline", scores.values[scores.lead][0]),
                pl.Series("score", scores.values[scores.lead][row]),
                pl.Series("difference", scores.differences(scores.lead, [row], [0])[:, 0]),
            )
        )
    return thin_out(pl.concat(parts), ["data", "variant", "system"], "baseline", limit)


def activity_curves(table: pl.DataFrame, contrast: Contrast, *, confidence: float = 0.95) -> pl.DataFrame:
    """Gain over the baseline as a smooth function of the number of relevant items, with a band.

    Li, Urbano & Hanjalic 2021, figure 5; Westerborg 2022, figures 5.8 to 5.10; the spline is fitted over log(relevant).
    Columns: data, variant, system, relevant, gain, low, high. Data sets with too few queries for a curve have no rows.
    """
    parts = []
    for keys, scores, row in _panels(table, contrast):
        relevant = scores.queries["relevant"].to_numpy()
        counted = relevant > 0
        if not counted.any():
            continue
        activity = np.log(relevant[counted])
        at = np.linspace(activity.min(), activity.max(), _CURVE)
        try:
            gain, low, high = penalized_spline(
                activity, scores.differences(scores.lead, [row], [0])[counted, 0], at, confidence=confidence
            )
        except DataError:
            continue
        parts.append(
            pl.DataFrame({"relevant": np.exp(at), "gain": gain, "low": low, "high": high}).select(*keys, pl.all())
        )
    names = dict.fromkeys(("data", "variant", "system"), pl.String)
    empty = pl.DataFrame(schema=names | dict.fromkeys(("relevant", "gain", "low", "high"), pl.Float64))
    return pl.concat([empty, *parts])


def score_distributions(
    table: pl.DataFrame, contrast: Contrast, *, points: int = 100
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fraction of queries with at most each score, by system and baseline (Westerborg 2022, figures 5.2 to 5.4).

    The first table holds data, variant, system, score, fraction, baseline (the baseline's fraction); at most ``points``
    scores for each data set and system, evenly spread over all that occur. The second holds the intervals where the
    system does better, that is where fewer of its queries score so low: data, variant, system, low, high.
    """
    curves, intervals = [], []
    for keys, scores, row in _panels(table, contrast):
        sign = -1.0 if is_lower_better(scores.lead) else 1.0
        ours, base = (np.sort(sign * scores.values[scores.lead][index]) for index in (row, 0))
        at = np.unique(np.concatenate([ours, base]))
        at = at[np.unique(np.linspace(0, len(at) - 1, points).round().astype(np.int64))] if len(at) > points else at
        fractions = [np.searchsorted(each, at, side="right") / len(each) for each in (ours, base)]
        curve = {"score": sign * at, "fraction": fractions[0], "baseline": fractions[1]}
        curves.append(pl.DataFrame(curve).select(*keys, pl.all()))
        low, high = _better(at, fractions[0] < fractions[1])
        ends = {"low": np.minimum(sign * low, sign * high), "high": np.maximum(sign * low, sign * high)}
        intervals.append(pl.DataFrame(ends, schema={"low": pl.Float64, "high": pl.Float64}).select(*keys, pl.all()))
    return pl.concat(curves), pl.concat(intervals)


def thin_out(table: pl.DataFrame, groups: list[str], along: str, limit: int | None) -> pl.DataFrame:
    """At most ``limit`` rows: the same fraction of every group, evenly spread over a column; always the same rows."""
    if limit is None or len(table) <= limit:
        return table
    fraction = limit / len(table)
    rank = pl.col(along).rank("ordinal").over(*groups).cast(pl.Int64)
    return table.filter((rank * fraction).floor() > ((rank - 1) * fraction).floor())


def _panels(table: pl.DataFrame, contrast: Contrast) -> Iterator[tuple[list[pl.Expr], ScoreMatrix, int]]:
    """For each data set, variant and system: these as columns, the scores, the row of the system."""
    check_scores(table, [contrast.measure])
    found = False
    for (data, variant), rows in table.group_by("data", "variant", maintain_order=True):
        here = set(rows["system"])
        systems = [name for name in contrast.systems if name in here]
        if contrast.baseline not in here or not systems:
            continue
        matrix = ScoreMatrix.from_table(rows, [contrast.measure], [contrast.baseline, *systems], by_fold=True, least=2)
        scores = matrix.paired(contrast.measure)
        for row, name in enumerate(systems, start=1):
            found = True
            label = contrast.labels[contrast.systems.index(name)]
            names = {"data": data, "variant": variant, "system": label}
            yield [pl.lit(value).alias(key) for key, value in names.items()], scores, row
    if not found:
        raise DataError(f"no data set has both {contrast.baseline} and another system")


def _better(at: NDArray[np.float64], better: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the runs of scores at which the system is better; a step lasts until the next score."""
    edges = np.diff(np.concatenate(([False], better, [False])).astype(np.int8))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return at[starts], at[np.minimum(ends, len(at) - 1)]


# ---- the smooth curve ------------------------------------------------------------------------------------------------


def penalized_spline(
    x: ArrayLike, y: ArrayLike, at: ArrayLike, *, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """A cubic spline with a penalty on its curvature (Eilers and Marx 1996): fit, low, high at the points ``at``.

    The penalty is chosen by restricted maximum likelihood, which seldom takes noise for wiggles. The band is the
    pointwise interval of the mean from the Bayesian covariance sigma^2 (B'B + penalty)^-1 (Wahba 1983), which allows
    for the smoothing's bias on average. Time is linear in the number of points.
    """
    from scipy.special import stdtrit

    x, y, at = (floats(name, each, most=_LARGEST) for name, each in (("x", x), ("y", y), ("at", at)))
    if len(x) != len(y):
        raise DataError(f"x and y must have one entry per point, got {len(x)} and {len(y)}")
    distinct = len(np.unique(x))
    if distinct < _FEWEST or len(x) < 2 * _FEWEST:
        raise DataError(
            f"a smooth fit needs {2 * _FEWEST} points at {_FEWEST} or more values of x, got {len(x)} at {distinct}"
        )
    low, high = float(x.min()), float(x.max())
    segments = min(_SEGMENTS, distinct - 1)
    basis, basis_at = (_cubic_basis((each - low) / (high - low), segments) for each in (x, at))
    gram, moment = basis.T @ basis, basis.T @ y
    second = np.diff(np.eye(segments + 3), n=2, axis=0)
    penalty = second.T @ second * (np.trace(gram) / np.trace(second.T @ second))
    penalized = gram + _PENALTIES[:, None, None] * penalty
    inverses = np.linalg.inv(penalized)
    coefficients = inverses @ moment
    # y'y - c'B'y: squared residuals plus penalty, without going through the points again for every penalty
    misfit = np.maximum(y @ y - coefficients @ moment, np.finfo(float).tiny)
    free = len(penalty) - 2  # straight lines are not penalized
    likelihood = (len(x) - 2) * np.log(misfit) + np.linalg.slogdet(penalized)[1] - free * np.log(_PENALTIES)
    best = int(np.argmin(likelihood))
    freedom = float((inverses[best] * gram).sum())  # effective number of parameters: the trace of their product
    left = max(len(x) - freedom, 1.0)
    fit = basis_at @ coefficients[best]
    error = float(((y - basis @ coefficients[best]) ** 2).sum()) / left
    spread = np.sqrt(error * ((basis_at @ inverses[best]) * basis_at).sum(axis=1))
    half = stdtrit(left, 0.5 + confidence / 2) * spread
    return fit, fit - half, fit + half


def _cubic_basis(x: NDArray[np.float64], segments: int) -> NDArray[np.float64]:
    """Uniform cubic B-splines on [0, 1], points x (segments + 3); points outside take the nearest end's polynomial."""
    from scipy.interpolate import BSpline

    knots = np.arange(-3, segments + 4) / segments
    return np.asarray(BSpline.design_matrix(x, knots, 3, extrapolate=True).toarray())
