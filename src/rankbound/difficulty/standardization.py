"""Score standardization: normalize a value by what reference systems score on the same query.

The boundings of `rankbound.difficulty.bounding` are computed from the judgments alone. Standardization estimates the
difficulty of a query from runs instead. With the mean m and the standard deviation s of the plain measure over the
reference runs of a query (s has the divisor R - 1 for R runs) and z = (x - m) / s:

========  ==========  =======================================================================  =======================
wrapper   name        standardized value of x                                                  source
========  ==========  =======================================================================  =======================
STD       normal      Phi(z), the distribution function of the standard normal distribution    Webber, Moffat & Zobel
STDU      uniform     0.5 + 0.15 z, cut off at 0 and 1                                         Sakai
ECDF      empirical   the fraction of the reference runs that score no more than x             Urbano, Lima & Hanjalic
========  ==========  =======================================================================  =======================

Sources: Webber, Moffat & Zobel, Score standardization for inter-collection comparison of retrieval systems (2008);
Sakai, A simple and effective approach to score standardisation (2016); Urbano, Lima & Hanjalic, A new perspective on
score standardization (2019), who show that all three are distribution functions of the scores of a query: normal,
uniform on m - s / 0.3 to m + s / 0.3, and empirical. For a measure where lower is better (U), z changes its sign and
ECDF counts the runs that score no less than x, so that higher standardized values are always better.

A query has no standardized value if fewer than two of the reference runs have a value there, or if all of them have
the same one: there is no scale to standardize by.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.io import atomic_write
from rankbound.measures import STANDARDIZATIONS, Measure, parse_measure

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike, NDArray

LEAST_REFERENCES = 2
_ROUNDING = 1e-12  # scores that differ by less are equal up to the rounding of floating-point sums
_MOST = 1e100  # the squares of larger scores overflow
_SLOPE, _CENTER = 0.15, 0.5  # Sakai's constants A and B
_FORMAT = "rankbound reference scores"


def standardize(
    values: ArrayLike, references: ArrayLike, method: str = "normal", *, lower_is_better: bool = False
) -> NDArray[np.float64]:
    """Standardize values by the scores of reference systems on the same queries.

    Parameters
    ----------
    values:
        One value per query, or systems x queries; NaN where there is none.
    references:
        The scores of the reference systems: systems x queries, NaN where a system has no score.
    method:
        ``"normal"`` (STD), ``"uniform"`` (STDU) or ``"empirical"`` (ECDF); the formulas stand at the top of
        `rankbound.difficulty.standardization`.
    lower_is_better:
        Whether lower values are better; standardized values are better when higher.

    Returns
    -------
    An array of the shape of ``values``, with numbers from 0 to 1. It is NaN where the value is, where fewer than two
    reference systems have a score, and where all of them have the same one.

    >>> standardize([0.5, 0.2], [[0.1, 0.2], [0.3, 0.2], [0.5, 0.2]], "empirical")
    array([ 1., nan])
    >>> standardize([0.3], [[0.1], [0.3], [0.5]])  # the mean of the reference systems
    array([0.5])
    """
    if method not in STANDARDIZATIONS.values():
        raise ArgumentError(f"method must be one of {', '.join(STANDARDIZATIONS.values())}, got {method!r}")
    x = floats("values", values, ndim=None, finite=False, most=_MOST)
    scores = floats("references", references, ndim=2, finite=False, most=_MOST)
    if x.ndim not in (1, 2) or x.shape[-1] != scores.shape[1]:
        raise ArgumentError(
            f"values must have one entry for each of the {scores.shape[1]} queries of references, got shape {x.shape}"
        )
    if lower_is_better:
        x, scores = -x, -scores
    count = np.isfinite(scores).sum(axis=0)
    defined = (count >= LEAST_REFERENCES) & _differ(scores)
    if method == "empirical":
        below = np.zeros(x.shape)
        for row in scores:  # a loop over the systems; NaN compares as False
            below += row <= x + _ROUNDING
        value = below / np.maximum(count, 1)
    else:
        mean, deviation = _moments(scores)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (x - mean) / deviation
        value = _normal_cdf(z) if method == "normal" else np.clip(_CENTER + _SLOPE * z, 0, 1)
    return np.where(defined & np.isfinite(x), value, np.nan)


def _differ(scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Columns in which there are two scores that differ by more than rounding."""
    known = np.isfinite(scores)
    least = np.where(known, scores, np.inf).min(axis=0, initial=np.inf)
    most = np.where(known, scores, -np.inf).max(axis=0, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        return np.asarray(most - least > _ROUNDING * np.maximum(1, np.abs(most)))


def _moments(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column over the rows that have a value; NaN where there are too few."""
    known = np.isfinite(scores)
    count = known.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(known, scores, 0).sum(axis=0) / count
        variance = np.where(known, (scores - mean) ** 2, 0).sum(axis=0) / (count - 1)
    return mean, np.sqrt(variance)


def _normal_cdf(z: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import ndtr

    return np.asarray(ndtr(z), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ReferenceScores:
    """Scores of reference runs, by which `rankbound.evaluate` standardizes measures such as ``STD(nDCG@10)``.

    `rankbound.evaluate_references` computes them from runs. They can be saved as a JSON file and published, so that
    others standardize by the same systems.

    Attributes
    ----------
    systems, query_ids:
        Names of the reference runs, at least two, and ids of the queries.
    values:
        For each plain measure an array of shape (systems, queries); NaN where a run has no value.

    >>> references = ReferenceScores(("a", "b"), ("q1", "q2"), {"RR": np.array([[0.25, 1.0], [0.75, 0.5]])})
    >>> references.standardize("ECDF(RR)", ["q2", "q3"], [0.5, 0.5])
    array([0.5, nan])
    """

    systems: tuple[str, ...]
    query_ids: tuple[Any, ...]
    values: Mapping[str, NDArray[np.float64]]

    def __post_init__(self) -> None:
        if len(self.systems) < LEAST_REFERENCES:
            raise ArgumentError(f"references must be at least {LEAST_REFERENCES} runs, got {len(self.systems)}")
        if len(set(self.systems)) < len(self.systems):
            raise ArgumentError(f"references must have different names, got {', '.join(self.systems)}")
        shape = (len(self.systems), len(self.query_ids))
        for name, value in self.values.items():
            if value.shape != shape:
                raise DataError(
                    f"reference scores of {name} must have the shape {shape}, systems x queries, got {value.shape}"
                )

    @property
    def measures(self) -> tuple[str, ...]:
        """The plain measures."""
        return tuple(self.values)

    @property
    def incomplete_queries(self) -> int:
        """Queries for which some of the reference runs have no value of some measure, and others have one."""
        known = [np.isfinite(value) for value in self.values.values()]
        return int(np.any([each.any(axis=0) & ~each.all(axis=0) for each in known], axis=0).sum()) if known else 0

    @property
    def flat_queries(self) -> int:
        """Queries on which at least two reference runs have a value of some measure, and all have the same one."""
        flat = [
            (np.isfinite(value).sum(axis=0) >= LEAST_REFERENCES) & ~_differ(value) for value in self.values.values()
        ]
        return int(np.any(flat, axis=0).sum()) if flat else 0

    def standardize(self, measure: str | Measure, query_ids: ArrayLike, values: ArrayLike) -> NDArray[np.float64]:
        """Standardized values of a wrapped measure, from the plain values on these queries (one, or one per system).

        NaN where a value or its scale does not exist; see `rankbound.difficulty.standardization`.
        """
        measure = parse_measure(measure)
        if not measure.is_standardized:
            raise ArgumentError(f"measure must have one of the wrappers {', '.join(STANDARDIZATIONS)}, got {measure}")
        column = self._columns(query_ids)
        known = np.where(column >= 0, self._scores(measure)[:, np.maximum(column, 0)], np.nan)
        lower_is_better = measure.definition.lower_is_better
        return standardize(values, known, measure.bounding, lower_is_better=lower_is_better)

    def check(self, measures: Iterable[Measure]) -> None:
        """Raise ArgumentError unless the scores of these measures, without their wrappers, are there."""
        for measure in measures:
            self._scores(measure)

    def covers(self, query_ids: ArrayLike) -> NDArray[np.bool_]:
        """Which of these queries the reference runs have."""
        return self._columns(query_ids) >= 0

    def check_covers(self, query_ids: ArrayLike) -> None:
        """Raise DataError unless the reference runs have one of these queries."""
        if not self.covers(query_ids).any():
            first = np.asarray(query_ids).tolist()[:1]
            raise DataError(
                "the reference runs must have a query in common with the run; their first queries are "
                f"{list(self.query_ids[:1])} and {first}"
            )

    def describe(self) -> str:
        """The number of runs, and on how many queries some of them lack or all of them score the same, in words.

        >>> values = np.array([[1.0, 0.5, 1.0], [np.nan, 0.5, 0.25]])
        >>> ReferenceScores(("a", "b"), ("q1", "q2", "q3"), {"RR": values}).describe()
        '2 runs, some without a value on 1 query, all with the same value on 1 query'
        """
        counts = {"some without a value": self.incomplete_queries, "all with the same value": self.flat_queries}
        parts = [
            f"{words} on {count} {'query' if count == 1 else 'queries'}" for words, count in counts.items() if count
        ]
        return ", ".join([f"{len(self.systems)} runs", *parts])

    @property
    def digest(self) -> str:
        """Eight characters that stand for runs, queries and scores in signatures."""
        content = hashlib.sha256(repr((self.systems, self.query_ids, self.measures)).encode())
        for values in self.values.values():
            content.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
        return content.hexdigest()[:8]

    def __repr__(self) -> str:
        return (
            f"ReferenceScores({len(self.systems)} runs, {len(self.query_ids)} queries, measures={list(self.measures)})"
        )

    def _scores(self, measure: Measure) -> NDArray[np.float64]:
        name = str(measure.plain)
        if name not in self.values:
            known = ", ".join(self.measures) or "none"
            raise ArgumentError(f"references must have the scores of {name}; they have {known}")
        return self.values[name]

    @cached_property
    def _sorted_ids(self) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
        names = _texts(self.query_ids)
        order = np.argsort(names, kind="stable")
        return names[order], order

    def _columns(self, query_ids: ArrayLike) -> NDArray[np.int64]:
        """The column of each query, compared as text because files have ids as text; -1 where there is none."""
        names, order = self._sorted_ids
        wanted = _texts(query_ids)
        if len(names) == 0:
            return np.full(len(wanted), -1)
        index = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
        return np.where(names[index] == wanted, order[index], -1)

    # ---- files -------------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the scores as a JSON file, with the mean and the standard deviation of each query and measure."""
        factors = {}
        for name, value in self.values.items():
            mean, deviation = _moments(value)
            factors[name] = {"mean": _jsonable(mean), "standard_deviation": _jsonable(deviation)}
        content = {
            "format": _FORMAT,
            "version": 1,
            "systems": list(self.systems),
            "queries": _texts(self.query_ids).tolist(),
            "factors": factors,
            "scores": {name: [_jsonable(row) for row in value] for name, value in self.values.items()},
        }
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ReferenceScores:
        """Read a file that `save` wrote; DataError if it is not one."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["format"] != _FORMAT or content["version"] != 1:
                raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
            values = {
                str(parse_measure(name).plain): np.array(
                    [[np.nan if score is None else float(score) for score in row] for row in rows], np.float64
                ).reshape(len(content["systems"]), len(content["queries"]))
                for name, rows in content["scores"].items()
            }
            return cls(tuple(map(str, content["systems"])), tuple(map(str, content["queries"])), values)
        except OSError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}: expected a file of reference scores as ReferenceScores.save writes it, got {error}"
            ) from error


def missing_references(measure: Measure) -> MeasureError:
    """The error for a standardized measure without reference runs; it says how to give them."""
    return MeasureError(
        f"{measure} needs reference runs: references={{name: run, ...}} in Python, --reference PATH at the command line"
    )


def _texts(ids: ArrayLike) -> NDArray[np.str_]:
    array = np.asarray(ids)
    return (
        array.astype(np.str_) if array.dtype.kind != "O" else np.array([str(name) for name in array.tolist()], np.str_)
    )


def _jsonable(values: NDArray[np.float64]) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]
