"""Which measure tells systems apart? Meta-evaluation of measures, as in Karmaker & Feng.

A *family* is a name and its measures (the same measure at several cutoffs); counts are summed over them and means
averaged, as in the paper. Every quantity can be computed for all queries, or for those where systems do hardly better
than a random order (uninformative) or much better (ideal).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl

from rankbound.arrays import floats
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import significance
from rankbound.evaluation.query_sets import QUERY_SETS, in_query_set, type_queries
from rankbound.evaluation.score_tables import QUERY, check_scores, measures_of
from rankbound.evaluation.scores import ScoreMatrix, is_lower_better
from rankbound.measures import parse_measure

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

TESTS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = MappingProxyType(
    {"t": significance.paired_t_columns, "bootstrap": significance.studentized_bootstrap_columns}
)

Row: TypeAlias = dict[str, str | float | None]


# ---- on the systems' means -------------------------------------------------------------------------------------------


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's tau-b between two rankings of systems, given as their means.

    >>> round(kendall_tau([0.3, 0.2, 0.1], [0.5, 0.1, 0.4]), 4)  # of three pairs one is reversed: (2 - 1) / 3
    0.3333
    """
    a, b = _signs(first), _signs(second)
    _same_systems(a, b)
    if not a.any() or not b.any():
        raise DataError("Kendall's tau needs systems that differ; all means are equal in one of the rankings we got")
    return float((a * b).sum() / np.sqrt(float((a**2).sum()) * float((b**2).sum())))


def swap_rate(first: ArrayLike, second: ArrayLike) -> float:
    """Share of the pairs of systems that two experiments order in opposite ways (ties are no contradiction).

    >>> round(swap_rate([0.3, 0.2, 0.1], [0.5, 0.1, 0.4]), 4)
    0.3333
    """
    a, b = _signs(first), _signs(second)
    _same_systems(a, b)
    return float((a * b < 0).mean())


def percentage_absolute_difference(means: ArrayLike) -> float:
    """Mean over all pairs of systems of 100 |a - b| / |max(a, b)|; pairs whose larger mean is 0 are left out.

    >>> percentage_absolute_difference([0.5, 0.25])
    50.0
    """
    values = _means(means)
    first, second = np.triu_indices(len(values), k=1)
    larger = np.abs(np.maximum(values[first], values[second]))
    counted = larger > 0
    if not counted.any():
        raise DataError("a percentage absolute difference needs a mean other than 0, got others: all means are 0")
    with np.errstate(over="ignore"):
        percentage = float(100 * (np.abs(values[first] - values[second])[counted] / larger[counted]).mean())
    if not np.isfinite(percentage):
        raise DataError(f"means must not lie so far apart that their ratio is infinite, got {values.tolist()}")
    return percentage


def _means(values: ArrayLike) -> NDArray[np.float64]:
    array = floats("means", values, ndim=None)
    if array.ndim != 1 or len(array) < 2:
        raise DataError(f"a comparison needs the means of at least 2 systems, got shape {array.shape}")
    return array


def _signs(values: ArrayLike) -> NDArray[np.float64]:
    """Which of each pair of systems is better: -1, 0, 1."""
    means = _means(values)
    first, second = np.triu_indices(len(means), k=1)
    return np.sign(means[first] - means[second])


def _same_systems(a: NDArray[np.float64], b: NDArray[np.float64]) -> None:
    if len(a) != len(b):
        raise DataError(f"both means must be of the same systems, got {len(a)} and {len(b)} pairs")


# ---- on scores per query ---------------------------------------------------------------------------------------------


def conflict_cases(
    first: ScoreMatrix, second: ScoreMatrix, *, significance_level: float = 0.05, test: str = "t"
) -> int:
    """Pairs of systems on which two measures disagree: significant by one and not by the other, or in opposite ways."""
    if first.systems != second.systems:
        raise DataError("both measures must be of the same systems")
    outcomes = [_outcomes(scores, significance_level, test) for scores in (first, second)]
    return int((outcomes[0] != outcomes[1]).sum())


def discriminative_power(scores: ScoreMatrix, *, significance_level: float = 0.05, test: str = "t") -> int:
    """Pairs of systems that differ significantly (Sakai 2006); the paper counts them with Student's t test."""
    return int((_outcomes(scores, significance_level, test) != 0).sum())


def asl_curves(table: pl.DataFrame, measures: Sequence[str] | None = None, *, test: str = "bootstrap") -> pl.DataFrame:
    """Achieved significance levels of all pairs of systems, the largest first, for each measure (Sakai's curves).

    The lower a curve lies, the more pairs its measure tells apart. ``test`` is "bootstrap" (Sakai's studentized
    bootstrap) or "t". Columns: measure, position (1 is the largest level), pair, level.
    """
    parts = []
    names = measures_of(table) if measures is None else list(measures)
    matrix = ScoreMatrix.from_table(table, names, by_fold=True, least=2)
    for measure in names:
        scores = matrix.paired(measure)
        levels = _test(test)(scores.pair_differences(measure))
        pairs = np.array([f"{a} | {b}" for a, b in combinations(scores.systems, 2)])
        order = np.argsort(-levels, kind="stable")
        parts.append(
            pl.DataFrame(
                {
                    "measure": [measure] * len(levels),
                    "position": np.arange(1, len(levels) + 1),
                    "pair": pairs[order],
                    "level": levels[order],
                }
            )
        )
    return pl.concat(parts)


def tau_between_measures(table: pl.DataFrame, measures: Sequence[str] | None = None) -> pl.DataFrame:
    """Kendall's tau between the rankings of systems by every two measures: first, second, tau.

    The mean of a measure where lower is better is turned round. Tau is null where a measure tells no systems apart.
    """
    names = measures_of(table) if measures is None else list(measures)
    matrix = ScoreMatrix.from_table(table, names, by_fold=True, least=2)
    means = {name: _upward_means(matrix.paired(name)) for name in names}
    rows = []
    for first, a in means.items():
        for second, b in means.items():
            tau = kendall_tau(a, b) if _signs(a).any() and _signs(b).any() else None
            rows.append({"first": first, "second": second, "tau": tau})
    return pl.DataFrame(rows, schema={"first": pl.String, "second": pl.String, "tau": pl.Float64})


def measure_families(table: pl.DataFrame) -> dict[str, list[str]]:
    """The table's measures by what they are apart from the cutoff: {"nDCG@k": ["nDCG@5", "nDCG@10"], "AP": ["AP"]}."""
    families: dict[str, list[str]] = {}
    for name in measures_of(table):
        cutoff = parse_measure(name).cutoff
        families.setdefault(name if cutoff is None else name.replace(f"@{cutoff}", "@k"), []).append(name)
    return {members[0] if len(members) == 1 else family: members for family, members in families.items()}


def meta_evaluation(
    table: pl.DataFrame,
    families: Mapping[str, Sequence[str]] | None = None,
    *,
    base: str | None = None,
    quota: float | Mapping[str, float] = 0.1,
    significance_level: float = 0.05,
    test: str = "t",
) -> pl.DataFrame:
    """Everything at once: quantity, measure, versus, data, set, value.

    Quantities are ``Kendall tau`` and ``conflict cases`` (against ``base``, the first family; conflicts only where both
    have the same cutoffs), ``significant pairs``, ``PAD``, and ``swap rate``: between data sets (``data`` names both)
    and between uninformative and ideal queries. ``conflict fraction`` and ``significant fraction`` are the counts over
    the number of pairs. Of the queries, the fraction ``quota`` is uninformative and as many are ideal, by the base
    family and the quota rule of `rankbound.query_types`; ``quota`` can have a value for each data set. Numbers that do
    not exist (a set without queries, measures that distinguish no systems) are left out.
    """
    families = dict(measure_families(table) if families is None else families)
    if not families:
        raise DataError("the table has no column that is a measure")
    base = next(iter(families)) if base is None else base
    if base not in families:
        raise ArgumentError(f"base must be one of {', '.join(families)}, got {base!r}")
    check_scores(table, [name for members in families.values() for name in members])
    names = list(table["data"].unique(maintain_order=True))
    rows: list[Row] = []
    means: dict[tuple[str, str, str], NDArray[np.float64]] = {}
    every = list(dict.fromkeys(name for members in families.values() for name in members))
    for data in names:
        here = table.filter(pl.col("data") == data)
        matrix = ScoreMatrix.from_table(here, every, by_fold=True, least=2)
        types = type_queries(here, families[base], quota=quota if isinstance(quota, (int, float)) else quota[data])
        marked = matrix.queries.join(types, on=list(QUERY), how="left", maintain_order="left")["type"]
        for kind in QUERY_SETS:
            among = in_query_set(marked, kind)
            if not among.any():
                continue
            scores = {name: [matrix.paired(each, among) for each in members] for name, members in families.items()}
            means |= {(data, kind, name): _family_means(each) for name, each in scores.items()}
            rows += _one_set(scores, base, data, kind, significance_level, test)
    rows += _swaps(means, names, list(families))
    schema = dict.fromkeys(("quantity", "measure", "versus", "data", "set"), pl.String) | {"value": pl.Float64}
    return pl.DataFrame(rows, schema=schema)


def _one_set(
    scores: Mapping[str, Sequence[ScoreMatrix]], base: str, data: str, kind: str, level: float, test: str
) -> list[Row]:
    rows = []
    outcomes = {name: [_outcomes(each, level, test) for each in of] for name, of in scores.items()}
    means = {name: _family_means(of) for name, of in scores.items()}
    cutoffs = {name: [parse_measure(each.lead).cutoff for each in of] for name, of in scores.items()}

    def add(quantity: str, measure: str, value: float, versus: str | None = None) -> None:
        rows.append(_row(quantity, measure, versus, data, kind, value))

    for name, signs in outcomes.items():
        significant = np.concatenate(signs) != 0
        add("significant pairs", name, float(significant.sum()))
        add("significant fraction", name, float(significant.mean()))
        if means[name].any() and not is_lower_better(scores[name][0].lead):
            add("PAD", name, percentage_absolute_difference(means[name]))
        if name == base:
            continue
        if _signs(means[name]).any() and _signs(means[base]).any():
            add("Kendall tau", name, kendall_tau(means[base], means[name]), base)
        if cutoffs[name] == cutoffs[base]:
            conflicts = np.concatenate(signs) != np.concatenate(outcomes[base])
            add("conflict cases", name, float(conflicts.sum()), base)
            add("conflict fraction", name, float(conflicts.mean()), base)
    return rows


def _swaps(
    means: Mapping[tuple[str, str, str], NDArray[np.float64]], names: Sequence[str], families: Sequence[str]
) -> list[Row]:
    rows = []
    for family in families:
        for first, second in combinations(names, 2):
            for kind in QUERY_SETS:
                a, b = means.get((first, kind, family)), means.get((second, kind, family))
                if a is not None and b is not None:
                    rows.append(_row("swap rate", family, None, f"{first} | {second}", kind, swap_rate(a, b)))
        for data in names:
            a, b = means.get((data, "uninformative", family)), means.get((data, "ideal", family))
            if a is not None and b is not None:
                rows.append(_row("swap rate", family, None, data, "uninformative | ideal", swap_rate(a, b)))
    return rows


def _row(quantity: str, measure: str, versus: str | None, data: str, kind: str, value: float) -> Row:
    return {"quantity": quantity, "measure": measure, "versus": versus, "data": data, "set": kind, "value": value}


def _family_means(scores: Sequence[ScoreMatrix]) -> NDArray[np.float64]:
    return np.asarray(np.mean([_upward_means(each) for each in scores], axis=0))


def _upward_means(scores: ScoreMatrix) -> NDArray[np.float64]:
    means = scores.means(scores.lead)
    return -means if is_lower_better(scores.lead) else means


def _outcomes(scores: ScoreMatrix, level: float, test: str) -> NDArray[np.int64]:
    """For each pair of systems -1 or 1 where the first is significantly worse or better, else 0."""
    d = scores.pair_differences(scores.lead)
    return np.where(_test(test)(d) < level, np.sign(d.mean(axis=0)), 0).astype(np.int64)


def _test(name: str) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    if name not in TESTS:
        raise ArgumentError(f"test must be one of {', '.join(TESTS)}, got {name!r}")
    return TESTS[name]
