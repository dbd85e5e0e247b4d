"""The score matrix: one value per system, query and measure, with everything that is known about the queries.

Comparisons, reports, figures and studies all start from a `ScoreMatrix`. It is built from a score table
(`ScoreMatrix.from_table`, see `rankbound.evaluation.score_tables`) or from runs, lists and evaluations
(`rankbound.evaluation.alignment`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankbound.difficulty import QUERY_TYPES
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.query_sets import bound_column, query_map
from rankbound.evaluation.score_tables import QUERY, measures_of, query_scores, systems_of
from rankbound.lists import Coverage
from rankbound.measures import Measure, parse_measure
from rankbound.protocol import Protocol
from rankbound.sums import mean_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.difficulty.p_values import PValues

QUERY_TYPE_CODES = ("", *QUERY_TYPES)  # the page stores the type of a query as its index in this tuple
_ROUNDING = 1e-12  # smaller differences are rounding errors of floating-point sums and count as 0
_QUERY = tuple(name for name in QUERY if name != "fold")


def difference(value: NDArray[np.float64], baseline: NDArray[np.float64]) -> NDArray[np.float64]:
    """Value minus baseline, exactly 0 where the two differ by rounding only."""
    d = value - baseline
    return np.where(np.abs(d) < _ROUNDING, 0.0, d)


def is_lower_better(measure: str | Measure) -> bool:
    """Whether lower values of a measure, with its bounding, are better.

    A plain measure and its quotient by the expected value (EB) keep the direction of the measure; after every other
    bounding, higher values are better.

    >>> is_lower_better("nDCG"), is_lower_better("U"), is_lower_better("MM(U)")
    (False, True, False)
    """
    return parse_measure(measure).is_lower_better


@dataclass(frozen=True, eq=False)
class QueryDifficulty:
    """What is known about the queries by one measure without its bounding.

    Attributes
    ----------
    types:
        The type of every query (`rankbound.query_types`); "" where the query does not count.
    expected, worst, best:
        The mean over all orders of the candidates, the lowest and the highest value; the last two where they are known.
    complete:
        Systems x queries: values of the systems as complete rankings of the candidates, from which the types follow;
        None where they are the values of the measure itself.
    """

    types: NDArray[np.str_]
    expected: NDArray[np.float64]
    worst: NDArray[np.float64] | None = None
    best: NDArray[np.float64] | None = None
    complete: NDArray[np.float64] | None = None

    def select(self, queries: NDArray[np.bool_]) -> QueryDifficulty:
        """The same for some of the queries only."""
        arrays = {part.name: getattr(self, part.name) for part in fields(self)}
        chosen = {name: array[..., queries] for name, array in arrays.items() if array is not None}
        return replace(self, **chosen)


@dataclass(frozen=True, eq=False)
class ScoreMatrix:
    """Values of measures for systems x queries.

    Attributes
    ----------
    systems, query_ids:
        Names of the rows and of the columns.
    values:
        For each measure an array of shape (systems, queries); NaN where a system has no value: it lacks the query, or
        the measure is not defined there.
    difficulty:
        Types and bounds of the queries, for each measure for which they are known.
    type_quota:
        The quota of the types, see `rankbound.query_types`; None where they follow from the gain.
    items, relevant:
        Number of candidates and of relevant candidates of every query, where they are known.
    sources, source_index:
        The data sets as pairs (data, variant), and the index of the data set of every query.
    folds:
        The fold of every query where folds are kept apart; else None.
    left_out:
        How many queries were left out because some systems lack them.
    standardized_by:
        The reference runs of standardized measures in words; "" where there are none.
    candidates:
        Which documents normalized measures and difficulty are about (see `rankbound.difficulty.candidates`); None where
        that is not known.
    protocol:
        How the systems were evaluated; None where that is not known, or not the same for all.
    p_values:
        For each system, its p-values against random rankings by the first measure without its bounding; empty where
        they are unknown.
    coverage:
        For each system, how far its run and the judgments cover each other; empty where this is unknown. Its queries
        are those of the whole run, its documents and Judged@k those of the queries that all systems have.
    never_returned:
        How many queries are judged and in none of the runs; None where this is unknown.

    >>> matrix = ScoreMatrix(("a", "b"), ("q1", "q2"), {"AP": np.array([[0.5, 1.0], [0.25, np.nan]])})
    >>> matrix.counted("AP").tolist(), matrix.differences("AP", [0], [1]).tolist()
    ([True, False], [[0.25], [nan]])
    """

    systems: tuple[str, ...]
    query_ids: tuple[Any, ...]
    values: Mapping[str, NDArray[np.float64]]
    difficulty: Mapping[str, QueryDifficulty] = field(default_factory=dict)
    items: NDArray[np.int64] | None = None
    relevant: NDArray[np.int64] | None = None
    sources: tuple[tuple[str, str], ...] = (("", ""),)
    type_quota: float | None = None
    source_index: NDArray[np.int64] | None = None
    folds: NDArray[Any] | None = None
    left_out: int = 0
    candidates: str | None = None
    p_values: tuple[PValues, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    never_returned: int | None = None
    standardized_by: str = ""
    protocol: Protocol | None = None
    _means: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        shape = (len(self.systems), len(self.query_ids))
        for name in self.systems:
            if name.encode("utf-8", "replace").decode() != name:  # such as the name of a file in another encoding
                raise DataError(f"names of runs must be valid Unicode text, got {name!r}")
        for measure, value in self.values.items():
            if value.shape != shape:
                raise DataError(
                    f"values of {measure} must have the shape {shape}, systems x queries, got {value.shape}"
                )
        if self.source_index is None:
            object.__setattr__(self, "source_index", np.zeros(len(self.query_ids), np.int64))

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures, in order."""
        return tuple(self.values)

    @property
    def lead(self) -> str:
        """The first measure: reports describe it in words and order the systems by it."""
        return self.measures[0]

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The data sets as labels, such as ``"ml-1m"`` or ``"ml-1m · NSR 2"``."""
        return tuple(f"{data} · {variant}" if variant else data for data, variant in self.sources)

    @property
    def queries(self) -> pl.DataFrame:
        """One row per query: data, variant, fold (where kept apart), qid, items and relevant (where known)."""
        assert self.source_index is not None
        names = [self.sources[i] for i in self.source_index.tolist()]
        columns: dict[str, Any] = {
            "data": pl.Series([data for data, _ in names], dtype=pl.String),
            "variant": pl.Series([variant for _, variant in names], dtype=pl.String),
            "fold": self.folds,
            "qid": pl.Series(self.query_ids),
            "items": self.items,
            "relevant": self.relevant,
        }
        return pl.DataFrame({name: column for name, column in columns.items() if column is not None})

    @property
    def signature(self) -> dict[str, str]:
        """The signature of each measure; empty if the systems were not evaluated by one known protocol."""
        if self.protocol is None:
            return {}
        return {name: self.protocol.signature(parse_measure(name)) for name in self.measures}

    def in_data_set(self, index: int) -> NDArray[np.bool_]:
        """Which queries belong to a data set, given as its index in `data_sets`."""
        return np.asarray(self.source_index == index)

    def counted(self, measure: str) -> NDArray[np.bool_]:
        """Which queries have a value of the measure for every system."""
        return np.asarray(np.isfinite(self.values[measure]).all(axis=0))

    def query_types(self, measure: str) -> NDArray[np.str_]:
        """The types of the queries by a measure; "" where they are unknown."""
        known = self.difficulty.get(measure)
        return np.full(len(self), "", dtype="<U13") if known is None else known.types

    def expected_values(self, measure: str) -> NDArray[np.float64]:
        """The mean over all orders of the candidates by a measure without its bounding; NaN where it is unknown."""
        known = self.difficulty.get(measure)
        return np.full(len(self), np.nan) if known is None else known.expected

    def means(self, measure: str) -> NDArray[np.float64]:
        """Mean of each system over the queries that count for all systems; NaN where none does."""
        if measure not in self._means:
            counted = self.counted(measure)
            # rounded once, so that the means are those of a single evaluation to the last bit
            rows = self.values[measure][:, counted]
            self._means[measure] = np.array([mean_of(row) for row in rows], dtype=np.float64)
        return self._means[measure].copy()

    def differences(
        self, measure: str, systems: Sequence[int] | NDArray[np.int64], baselines: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Differences of pairs of systems, given by their indices: queries x pairs, system minus baseline."""
        value = self.values[measure]
        return difference(value[np.asarray(systems)], value[np.asarray(baselines)]).T

    def pair_differences(self, measure: str) -> NDArray[np.float64]:
        """Differences of all pairs of systems: queries x pairs, in the order of ``itertools.combinations``."""
        return self.differences(measure, *np.triu_indices(len(self.systems), k=1))

    @property
    def coverage_by_system(self) -> dict[str, Coverage]:
        """The coverage of each system by its name; empty where it is unknown."""
        return dict(zip(self.systems, self.coverage, strict=True)) if self.coverage else {}

    def coverage_warnings(self) -> tuple[str, ...]:
        """A sentence for each system whose run has no document in common with the judgments."""
        covered = self.coverage_by_system.items()
        return tuple(f"{name}: {coverage.warning}" for name, coverage in covered if coverage.warning is not None)

    def select(self, queries: NDArray[np.bool_]) -> ScoreMatrix:
        """The matrix with some of the queries only."""

        def of(array: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if array is None else array[queries]

        return replace(
            self,
            query_ids=tuple(name for name, chosen in zip(self.query_ids, queries.tolist(), strict=True) if chosen),
            values={name: value[:, queries] for name, value in self.values.items()},
            difficulty={name: known.select(queries) for name, known in self.difficulty.items()},
            items=of(self.items),
            relevant=of(self.relevant),
            source_index=of(self.source_index),
            folds=of(self.folds),
            p_values=tuple(p.take(queries) for p in self.p_values),
        )

    def with_common_queries(self) -> ScoreMatrix:
        """The matrix in which a query counts for a measure only if every system has a value there."""
        values = {name: np.where(self.counted(name), value, np.nan) for name, value in self.values.items()}
        return replace(self, values=values)

    def paired(self, measure: str, among: NDArray[np.bool_] | None = None) -> ScoreMatrix:
        """One measure on the queries (of those in ``among``) that have a value for every system.

        Raises DataError if there is no such query.
        """
        counted = self.counted(measure)
        if among is not None:
            counted = np.logical_and(counted, among)
        if not counted.any():
            raise DataError(f"the systems have no query in common that counts for {measure}: {', '.join(self.systems)}")
        return replace(self, values={measure: self.values[measure]}).select(counted)

    def to_table(self) -> pl.DataFrame:
        """The score table: one row per system and query.

        The columns type and expected are about the first measure. Plain measures have columns of their bounds and of
        the values of complete rankings (`bound_column`), where they are known.
        """
        if self.items is None or self.relevant is None:
            raise DataError("a score table needs the numbers of items and relevant items, which are not known here")
        queries = self.queries
        fold = pl.col("fold") if self.folds is not None else pl.lit(0).alias("fold")
        known = [
            pl.Series("type", self.query_types(self.lead), dtype=pl.String).replace("", None),
            pl.Series("expected", self.expected_values(self.lead), nan_to_null=True),
        ]
        parts = []
        for index, system in enumerate(self.systems):
            values = [pl.Series(name, value[index], nan_to_null=True) for name, value in self.values.items()]
            for name, of in self.difficulty.items():
                bounds = {"worst": of.worst, "expected": of.expected, "best": of.best}
                if of.complete is None or of.worst is None or parse_measure(name).bounding != "none":
                    continue
                bounds["complete"] = of.complete[index]
                values += [pl.Series(bound_column(bound, name), array) for bound, array in bounds.items()]
            names = (pl.lit(system).alias("system"), fold, pl.lit(0).alias("seed"))
            parts.append(queries.select("data", "variant", *names, "qid", "items", "relevant", *known, *values))
        return pl.concat(parts)

    @classmethod
    def from_table(
        cls,
        table: pl.DataFrame,
        measures: Sequence[str] | None = None,
        systems: Sequence[str] | None = None,
        *,
        by_fold: bool = False,
        least: int = 1,
    ) -> ScoreMatrix:
        """The matrix of a score table, which has a row per trial and query and a column per measure.

        Repeats of a query with other seeds are averaged. So are its values in several folds, because the query is the
        unit that was sampled, unless ``by_fold`` keeps them apart.

        The optional columns ``type`` and ``expected`` hold the type of each query and the value that a random order has
        by the first measure without its bounding. Where they are missing, both are derived from the numbers of items
        and relevant items.

        Parameters
        ----------
        measures, systems:
            The measures and systems to take, and their order; all of the table by default.
        least:
            The number of systems that there must be; with fewer, DataError is raised.
        """
        names = measures_of(table) if measures is None else list(measures)
        if not names:
            columns = ", ".join(table.columns)
            raise DataError(f"the score table has no column that is a measure; its columns are {columns}")
        chosen = _checked_systems(table, systems, least)
        key = QUERY if by_fold else _QUERY
        scores = query_scores(table, names, None if systems is None else chosen)
        if not by_fold:
            scores = scores.group_by(*key, "system", maintain_order=True).agg(
                pl.col("items", "relevant").max(), pl.col(*names).mean()
            )
        queries = scores.group_by(*key, maintain_order=True).agg(pl.col("items", "relevant").max())
        if not by_fold:
            queries = queries.join(_known(table, names[0]), on=list(key), how="left", nulls_equal=True)
        sources = list(dict.fromkeys(queries.select("data", "variant").iter_rows()))
        codes = pl.DataFrame(
            {"data": [data for data, _ in sources], "variant": [variant for _, variant in sources]},
            schema={"data": pl.String, "variant": pl.String},
        ).with_row_index("source")
        queries = queries.join(codes, on=["data", "variant"], how="left", maintain_order="left")
        queries = queries.sort("source", maintain_order=True)  # one data set after the other
        numbered = queries.select(*key).with_row_index("column")
        scores = scores.join(numbered, on=list(key), how="left", nulls_equal=True, maintain_order="left")
        rows = {name: row for row, name in enumerate(chosen)}
        row = scores["system"].replace_strict(rows, return_dtype=pl.Int64).to_numpy()
        values = {}
        for name in names:
            values[name] = np.full((len(chosen), len(queries)), np.nan)
            values[name][row, scores["column"].to_numpy()] = scores[name].fill_null(float("nan")).to_numpy()
        difficulty = {}
        if not by_fold:
            types = queries["type"].fill_null("").to_numpy().astype(np.str_)
            expected = queries["expected"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
            difficulty[names[0]] = QueryDifficulty(types, expected)
        items, relevant = (queries[name].fill_null(0).cast(pl.Int64).to_numpy() for name in ("items", "relevant"))
        return cls(
            systems=tuple(chosen),
            query_ids=tuple(queries["qid"].to_list()),
            values=values,
            difficulty=difficulty,
            items=items,
            relevant=relevant,
            sources=tuple(sources),
            source_index=queries["source"].to_numpy().astype(np.int64),
            folds=queries["fold"].to_numpy() if by_fold else None,
        )


def join_data_sets(matrices: Mapping[str, ScoreMatrix]) -> ScoreMatrix:
    """One matrix of several data sets, with the systems and measures of all; NaN where a system lacks a data set.

    What is known about the queries is kept where all have it; p-values against random rankings are not.
    """
    parts = [*matrices.values()]
    systems = tuple(dict.fromkeys(name for part in parts for name in part.systems))
    measures = [name for name in parts[0].measures if all(name in part.values for part in parts)]
    rows = [[systems.index(name) for name in part.systems] for part in parts]

    def spread_rows(arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        joined = [np.full((len(systems), array.shape[1]), np.nan) for array in arrays]
        for target, index, array in zip(joined, rows, arrays, strict=True):
            target[index] = array
        return np.concatenate(joined, axis=1)

    def join(arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
        return None if any(array is None for array in arrays) else np.concatenate(arrays)  # type: ignore[arg-type]

    difficulty = {}
    for name in measures:
        known = [part.difficulty[name] for part in parts if name in part.difficulty]
        if len(known) < len(parts):
            continue
        complete = [one.complete for one in known if one.complete is not None]
        difficulty[name] = QueryDifficulty(
            np.concatenate([one.types for one in known]),
            np.concatenate([one.expected for one in known]),
            join([one.worst for one in known]),
            join([one.best for one in known]),
            spread_rows(complete) if len(complete) == len(parts) else None,
        )
    covered = [part.coverage_by_system for part in parts]
    protocols, unknown = [part.protocol for part in parts], [part.never_returned for part in parts]
    is_one = all(one is not None and one.describe() == protocols[0].describe() for one in protocols if protocols[0])
    return ScoreMatrix(
        systems,
        tuple(query for part in parts for query in part.query_ids),
        {name: spread_rows([part.values[name] for part in parts]) for name in measures},
        difficulty,
        join([part.items for part in parts]),
        join([part.relevant for part in parts]),
        tuple((name, "") for name in matrices),
        parts[0].type_quota,
        np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        left_out=sum(part.left_out for part in parts),
        candidates=parts[0].candidates if len({part.candidates for part in parts}) == 1 else "different",
        coverage=tuple(
            sum((known[name] for known in covered if name in known), Coverage()) for name in systems if all(covered)
        ),
        never_returned=None if None in unknown else sum(count for count in unknown if count is not None),
        protocol=protocols[0] if is_one else None,
    )


def _checked_systems(table: pl.DataFrame, systems: Sequence[str] | None, least: int) -> list[str]:
    known = systems_of(table)
    names = known if systems is None else list(systems)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ArgumentError(f"systems must be among {', '.join(known)}; got {', '.join(unknown)}")
    if len(names) < least:
        raise DataError(f"a comparison needs at least {least} systems, the table has {len(names)}: {', '.join(names)}")
    return names


def _known(table: pl.DataFrame, lead: str) -> pl.DataFrame:
    """Type and expected value of each query, from the columns of the table if it has them, else computed."""
    own = [name for name in ("type", "expected") if name in table.columns]
    if len(own) == 2:
        return table.select(*_QUERY, *own).unique(_QUERY, keep="first", maintain_order=True)
    try:
        known = query_map(table, lead).select(*_QUERY, "type", "expected")
    except DataError:  # the table lacks the plain measure, or no query counts for it
        nothing = (pl.lit(None, pl.String).alias("type"), pl.lit(None, pl.Float64).alias("expected"))
        known = table.select(*_QUERY, *nothing)
    return known.unique(_QUERY, keep="first", maintain_order=True)
