"""The effect of a factor when all others are balanced: linear models with categorical factors, and their means.

The recommendation paper's figures 2 to 4: how often each system is best, and the estimated marginal means of systems
with confidence intervals (what to expect on average) and prediction intervals (what to expect of one run).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankbound.arrays import floats, is_between
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.score_tables import check_frame, data_label
from rankbound.evaluation.scores import is_lower_better

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRIAL = ("data", "variant", "fold", "seed")


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Least squares on categorical factors: an intercept, a column for each level but the first, and their products."""

    levels: Mapping[str, tuple[Any, ...]]
    terms: tuple[tuple[str, ...], ...]
    coefficients: NDArray[np.float64]
    spread: NDArray[np.float64]  # (X'X)^-1: the covariance of the coefficients over the variance of the errors
    error_variance: float
    degrees_of_freedom: int

    def predict(self, table: pl.DataFrame, *, confidence: float = 0.95) -> pl.DataFrame:
        """Mean of each row with its confidence and prediction interval: mean, std_error, ci_*, pi_*."""
        return self.combine(_design(table, self.levels, self.terms), confidence=confidence)

    def combine(self, weights: NDArray[np.float64], *, confidence: float = 0.95) -> pl.DataFrame:
        """The same for linear combinations of the coefficients, one for each row of ``weights``."""
        from scipy.special import stdtrit

        if not is_between(confidence, 0, 1):
            raise ArgumentError(f"confidence must lie between 0 and 1, got {confidence}")
        weights = floats("weights", weights, ndim=2, most=1e90)  # they are squared
        if weights.shape[1] != len(self.coefficients):
            raise DataError(f"weights must have {len(self.coefficients)} columns, got {weights.shape[1]}")
        mean = weights @ self.coefficients
        variance = self.error_variance * ((weights @ self.spread) * weights).sum(axis=1)
        width = stdtrit(self.degrees_of_freedom, 0.5 + confidence / 2)
        error = np.sqrt(variance)
        single = np.sqrt(variance + self.error_variance)
        return pl.DataFrame(
            {
                "mean": mean,
                "std_error": error,
                "ci_low": mean - width * error,
                "ci_high": mean + width * error,
                "pi_low": mean - width * single,
                "pi_high": mean + width * single,
            }
        )


def fit_linear_model(
    table: pl.DataFrame, response: str, factors: Sequence[str], interactions: Sequence[tuple[str, str]] = ()
) -> LinearFit:
    """Ordinary least squares of a column on categorical factors and interactions of two of them.

    >>> table = pl.DataFrame({"loss": ["AP", "AP", "RR", "RR"], "y": [1.0, 3.0, 5.0, 5.0]})
    >>> fit_linear_model(table, "y", ["loss"]).predict(table)["mean"].round(9).to_list()
    [2.0, 2.0, 5.0, 5.0]
    """
    check_frame("a table", table)
    missing = [name for name in (response, *factors) if name not in table.columns]
    if missing:
        raise ArgumentError(f"the table has no column {', '.join(missing)}; its columns are {', '.join(table.columns)}")
    for pair in interactions:
        if len(set(pair) & set(factors)) != 2:
            raise ArgumentError(f"an interaction must be of two different factors, got {pair}")
    y = floats(f"column {response!r}", table[response])
    levels = {name: tuple(table[name].unique(maintain_order=True)) for name in factors}
    terms = (*((name,) for name in factors), *(tuple(pair) for pair in interactions))
    design = _design(table, levels, terms)
    rows, columns = design.shape
    if np.linalg.matrix_rank(design) < columns:
        raise DataError(f"the model cannot be fitted: {_why_deficient(table, factors, interactions)}")
    if rows <= columns:
        raise DataError(
            f"the model has {columns} coefficients and {rows} rows: intervals need repeats, such as folds or seeds"
        )
    q, r = np.linalg.qr(design)
    coefficients = np.linalg.solve(r, q.T @ y)
    inverse = np.linalg.inv(r)
    residuals = y - design @ coefficients
    freedom = rows - columns
    return LinearFit(levels, terms, coefficients, inverse @ inverse.T, float(residuals @ residuals) / freedom, freedom)


def marginal_means(
    table: pl.DataFrame,
    response: str,
    factor: str,
    *,
    by: Sequence[str] = (),
    others: Sequence[str] = (),
    interactions: Sequence[tuple[str, str]] = (),
    confidence: float = 0.95,
) -> pl.DataFrame:
    """Estimated marginal means of a factor's levels: predictions averaged evenly over all levels of the other factors.

    One row per level (and per level of the factors in ``by``) with mean, std_error, ci_low, ci_high, pi_low, pi_high.
    """
    fit = fit_linear_model(table, response, [factor, *by, *others], interactions)
    shown = [factor, *by]
    grid = pl.DataFrame(list(product(*fit.levels.values())), schema=list(fit.levels), orient="row")
    design = _design(grid, fit.levels, fit.terms)
    cells = int(np.prod([len(fit.levels[name]) for name in others], initial=1))
    weights = design.reshape(-1, cells, design.shape[1]).mean(axis=1)  # `others` vary fastest in the grid
    return pl.concat([grid.select(shown)[::cells], fit.combine(weights, confidence=confidence)], how="horizontal")


def standardize(table: pl.DataFrame, value: str, within: Sequence[str]) -> pl.DataFrame:
    """The table with a column made mean 0 and standard deviation 1 within each group, so that groups can be pooled."""
    mean, spread = pl.col(value).mean().over(*within), pl.col(value).std().over(*within)
    result = table.with_columns(((pl.col(value) - mean) / spread).alias(value), spread.alias("_spread"))
    flat = result.filter(~(pl.col("_spread") > 0) | pl.col("_spread").is_null())
    if len(flat):
        group = ", ".join(f"{name}={flat[name][0]!r}" for name in within)
        raise DataError(f"scores that are all equal cannot be standardized ({group})")
    return result.drop("_spread")


def system_marginal_means(trials: pl.DataFrame, *, by_data: bool = False, confidence: float = 0.95) -> pl.DataFrame:
    """Marginal means of the systems' standardized scores, measure by measure, from `score_tables.trial_means`.

    Scores are standardized within data set and variant; the model is system + data_label and their interaction,
    data_label being data set and variant together. Without repeats (folds, seeds) the interaction is left out, and
    ``model`` says so. ``by_data`` gives a mean for each data set and variant instead of one over all of them.
    """
    if trials["system"].n_unique() < 2:
        raise DataError("marginal means compare systems; the table has only one")
    trials = trials.with_columns(data_label())
    parts = []
    for (measure,), rows in trials.group_by("measure", maintain_order=True):
        scores = standardize(rows, "value", ["data", "variant"])
        scores = scores.with_columns(-pl.col("value")) if is_lower_better(str(measure)) else scores
        data_labels = scores["data_label"].n_unique()
        cells = data_labels * scores["system"].n_unique()
        crossed = data_labels > 1 and len(scores) > cells
        means = marginal_means(
            scores,
            "value",
            "system",
            by=["data_label"] if by_data else [],
            others=[] if by_data else ["data_label"],
            interactions=[("system", "data_label")] if crossed else [],
            confidence=confidence,
        )
        if by_data:
            means = means.join(
                scores.select("data_label", "data", "variant").unique(), on="data_label", maintain_order="left"
            )
        model = "system * data_label" if crossed else "system + data_label" if data_labels > 1 else "system"
        parts.append(means.select(pl.lit(measure).alias("measure"), pl.all(), pl.lit(model).alias("model")))
    return pl.concat(parts)


def best_counts(trials: pl.DataFrame) -> pl.DataFrame:
    """How often each system is the best by each measure, over data, variant, fold and seed; ties count for each.

    Columns: measure, system, count, cases (how often it could have been). Takes `score_tables.trial_means`.
    """
    upward = pl.col("value") * pl.col("measure").map_elements(_direction, return_dtype=pl.Float64)
    won = trials.with_columns((upward == upward.max().over("measure", *_TRIAL)).alias("won"))
    return won.group_by("measure", "system", maintain_order=True).agg(
        pl.col("won").sum().cast(pl.Int64).alias("count"), pl.len().cast(pl.Int64).alias("cases")
    )


def _direction(measure: str) -> float:
    return -1.0 if is_lower_better(measure) else 1.0


def _design(
    table: pl.DataFrame, levels: Mapping[str, tuple[Any, ...]], terms: Sequence[tuple[str, ...]]
) -> NDArray[np.float64]:
    """Rows x coefficients: 1, then an indicator for each level but the first of each factor, then their products."""
    indicators = {}
    for name, known in levels.items():
        codes = table[name].replace_strict(
            {level: i for i, level in enumerate(known)}, default=None, return_dtype=pl.Int64
        )
        if codes.null_count():
            unknown = table[name].filter(codes.is_null())[0]
            raise ArgumentError(f"{name} must be one of {list(known)}, got {unknown!r}")
        indicators[name] = (codes.to_numpy()[:, None] == np.arange(1, len(known))).astype(np.float64)
    columns = [np.ones((len(table), 1))]
    for term in terms:
        block = indicators[term[0]]
        for name in term[1:]:
            block = (block[:, :, None] * indicators[name][:, None, :]).reshape(len(table), -1)
        columns.append(block)
    return np.hstack(columns)


def _why_deficient(table: pl.DataFrame, factors: Sequence[str], interactions: Sequence[tuple[str, str]]) -> str:
    for pair in interactions:
        known = set(table.select(pair).unique().iter_rows())
        every = product(*(table[name].unique(maintain_order=True) for name in pair))
        missing = next((cell for cell in every if cell not in known), None)
        if missing:
            return f"no rows with {pair[0]}={missing[0]!r} and {pair[1]}={missing[1]!r}"
    return f"the factors {', '.join(factors)} cannot be distinguished in these rows"
