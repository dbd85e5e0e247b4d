"""Leaderboards: which systems may be first over several data sets, and between which ranks does each of them lie?

The score of a system is the mean over data sets of its mean over queries, on a scale that data sets share: chance-
corrected measures such as EM(nDCG@10), for which 0 is a random ranking and 1 the best one everywhere. All pairs of
systems are tested together by the largest of their statistics in random draws, step by step (Westfall and Young 1993),
which bounds the probability of any false rejection and takes into account how similar the systems are. Two questions
can be asked:

===================  ===============================================================================================
over                 what is a sample, and how its noise is drawn
===================  ===============================================================================================
``"queries"``        The data sets are given, and their queries are samples: is the order on these data sets noise?
                     Welch's t statistics of differences, with normal multipliers of the queries' deviations.
``"data sets"``      The data sets are a sample: would the order be the same on other data sets like these? Sums of
                     differences with random signs, which is exact where differences are symmetric.
===================  ===============================================================================================

Where a system lacks a data set, it is compared with each other system on the data sets that both have, and its score
is completed by the sum of what its row and column say (least squares).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankbound.display import plain_values, plural, table_of
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.alignment import align_evaluations
from rankbound.evaluation.inference import Inference, pair_statistics
from rankbound.evaluation.resampling import ROUNDING, draws
from rankbound.evaluation.scores import ScoreMatrix, is_lower_better, join_data_sets
from rankbound.measures import parse_measure

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.evaluation.result import Evaluation

    Floats = NDArray[np.float64]

SAMPLES = ("queries", "data sets")


@dataclass(frozen=True, slots=True)
class RankInterval:
    """A system with its mean, its rank by the mean, and the interval of its rank; ranks begin at 1, the best."""

    system: str
    mean: float
    rank: int
    low: int
    high: int

    @property
    def may_be_first(self) -> bool:
        """Whether no system beats it significantly: it is not separable from the best."""
        return self.low == 1

    def show(self) -> str:
        """The ranks as text, such as "2–5"; a single one if there is no other."""
        return f"{self.low}" if self.low == self.high else f"{self.low}–{self.high}"


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Systems over several data sets, the best first.

    ``ranks`` has the mean of each system over all data sets with its rank and the interval of its rank; all true ranks
    lie in their intervals at once with the confidence of ``inference``. ``cells[system]`` has its mean on each data
    set, None where it lacks one. ``queries`` counts the queries of each data set that all systems there have.
    """

    measure: str
    over: str
    ranks: tuple[RankInterval, ...]
    cells: Mapping[str, Mapping[str, float | None]]
    queries: Mapping[str, int]
    inference: Inference
    notes: tuple[str, ...]

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The names of the data sets."""
        return tuple(self.queries)

    @property
    def tied_for_first(self) -> tuple[str, ...]:
        """The systems that no other system beats significantly."""
        return tuple(row.system for row in self.ranks if row.may_be_first)

    @property
    def missing(self) -> dict[str, tuple[str, ...]]:
        """The data sets that systems lack, for those that lack any."""
        return _missing(self.cells)

    @property
    def table(self) -> pl.DataFrame:
        """One row per system: system, mean, rank, low, high, and a column per data set."""
        import polars as pl

        return pl.DataFrame([asdict(row) | dict(self.cells[row.system]) for row in self.ranks])

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        content = {
            "measure": self.measure,
            "over": self.over,
            "confidence": self.inference.confidence,
            "resamples": self.inference.resamples,
            "seed": self.inference.seed,
            "queries": dict(self.queries),
            "systems": [asdict(row) | {"cells": dict(self.cells[row.system])} for row in self.ranks],
            "tied_for_first": list(self.tied_for_first),
            "missing": self.missing,
            "notes": list(self.notes),
        }
        return plain_values(content)  # type: ignore[no-any-return]

    def to_markdown(self) -> str:
        """A row per system and a column per data set as a Markdown table."""
        return table_of(self, complete=True).to_markdown()

    def to_latex(self) -> str:
        """A row per system and a column per data set as a LaTeX table for the package booktabs."""
        return table_of(self, complete=True).to_latex()

    def _repr_html_(self) -> str:
        return table_of(self).to_html()

    def __repr__(self) -> str:
        first = ", ".join(self.tied_for_first)
        sizes = f"{plural(len(self.ranks), 'system')}, {plural(len(self.queries), 'data set')}"
        return f"Leaderboard({sizes}; tied for first: {first})"


def rank_systems(
    evaluations: Mapping[str, Mapping[str, Evaluation]],
    measure: str | None = None,
    *,
    over: str = "queries",
    inference: Inference | None = None,
) -> Leaderboard:
    """Rank systems over several data sets: ``{data set: {system: evaluation}}``.

    Parameters
    ----------
    evaluations:
        The results of `rankbound.evaluate` for several runs, by the name of the data set. Not every system must have
        every data set. On a data set, the queries that all of its systems have count.
    measure:
        A measure that all evaluations have; by default the first of them that is normalized as EM is.
    over:
        ``"queries"`` or ``"data sets"``: what is a sample, see `rankbound.evaluation.leaderboards`.
    inference:
        Confidence, resamples and seed.

    >>> from rankbound import evaluate
    >>> labels = {f"q{i}": {"a": 1, "b": 0, "c": 0} for i in range(20)}
    >>> good = {q: {"a": 2.0, "b": 1.0 + 2 * (i % 4 == 0), "c": 0.0} for i, q in enumerate(labels)}
    >>> bad = {q: {"a": 2.0 if i % 4 == 0 else 0.5, "b": 1.0, "c": 0.0} for i, q in enumerate(labels)}
    >>> sets = {name: evaluate(labels, {"good": good, "bad": bad}, "EM(RR)") for name in ("one", "two")}
    >>> rank_systems(sets)
    Leaderboard(2 systems, 2 data sets; tied for first: good)
    """
    if not evaluations or not all(evaluations.values()):
        raise ArgumentError("rank_systems needs {data set: {system: evaluation}} with at least one system for each")
    name = common_measure([result for results in evaluations.values() for result in results.values()], measure)
    matrices = {
        data: align_evaluations([*results.values()], [name], names=[*results], data=data)
        for data, results in evaluations.items()
    }
    return leaderboard_of(join_data_sets(matrices), name, over=over, inference=inference)


def common_measure(results: Sequence[Evaluation], measure: str | None = None) -> str:
    """The measure of a leaderboard: the given one, or the first chance-corrected one that all evaluations have."""
    shared = [name for name in results[0].measures if all(name in result.values for result in results)]
    if measure is not None and measure not in shared:
        raise ArgumentError(f"measure must be one that all evaluations have, {', '.join(shared)}; got {measure!r}")
    found = measure or chance_corrected(shared)
    if found is None:
        raise ArgumentError(
            "a leaderboard needs a measure on a scale that data sets share, such as EM(nDCG@10), in every evaluation; "
            f"they have {', '.join(shared) or 'none in common'}. Name one of them to use it nevertheless"
        )
    return found


def chance_corrected(measures: Iterable[str]) -> str | None:
    """The first of the measures that is 0 for random rankings and 1 for the best ones, on every data set."""
    return next((name for name in measures if parse_measure(name).bounding == "expectation-max"), None)


def leaderboard_of(
    scores: ScoreMatrix, measure: str, *, over: str = "queries", inference: Inference | None = None
) -> Leaderboard:
    """The leaderboard of a score matrix with several data sets; see `rank_systems`."""
    if over not in SAMPLES:
        raise ArgumentError(f"over must be one of {', '.join(SAMPLES)}, got {over!r}")
    policy = inference or Inference()
    cells = _read_cells(scores, measure, over)
    first, second = np.triu_indices(len(scores.systems), k=1)
    gaps, p = _test_pairs(cells, first, second, over, policy)
    means = _complete_means(cells.means, measure)
    ranks = _ranks(scores.systems, means, measure, (first, second, gaps, p < policy.alpha))
    rows = {
        system: {name: None if np.isnan(mean) else float(mean) for name, mean in zip(cells.queries, row, strict=True)}
        for system, row in zip(scores.systems, cells.means, strict=True)
    }
    by_rank = {row.system: rows[row.system] for row in ranks}
    notes = _notes(measure, by_rank, cells.without_values)
    return Leaderboard(measure, over, ranks, by_rank, cells.queries, policy, tuple(notes))


def rank_intervals(
    scores: ScoreMatrix, measure: str, policy: Inference | None = None, source: int = 0
) -> tuple[RankInterval, ...]:
    """The rank of each system on one data set with its interval, by the policy's tests of all pairs, the best first.

    ``source`` is the index of the data set, whose queries that all systems have count.

    Where the correction bounds the probability of any false rejection (Holm, Bonferroni), all true ranks lie in their
    intervals at once with at least the policy's confidence, because a rank is outside of its interval only if a test
    rejects falsely.

    >>> values = np.array([[0.9, 0.8, 0.9, 0.7, 0.9], [0.8, 0.9, 0.9, 0.8, 0.8], [0.1, 0.2, 0.1, 0.0, 0.2]])
    >>> scores = ScoreMatrix(("a", "b", "c"), tuple("12345"), {"AP": values})
    >>> [(row.system, row.low, row.high) for row in rank_intervals(scores, "AP")]
    [('b', 1, 2), ('a', 1, 2), ('c', 3, 3)]
    """
    tests = policy or Inference()
    means = scores.select(scores.in_data_set(source)).means(measure)
    first, second = np.triu_indices(len(means), k=1)
    p = tests.correct(pair_statistics(scores, measure, source, second, first, tests.p_values))
    return _ranks(scores.systems, means, measure, (first, second, means[first] - means[second], p < tests.alpha))


def _ranks(
    systems: Sequence[str], means: Floats, measure: str, tests: tuple[NDArray[Any], ...]
) -> tuple[RankInterval, ...]:
    """Ranks by tests of pairs: first and second system, their difference, and whether it is significant.

    A rank lies between 1 + (systems that beat it) and the number of systems minus (systems that it beats).
    """
    first, second, gaps, significant = tests
    sign, count = -1.0 if is_lower_better(measure) else 1.0, len(systems)
    first_is_better = sign * gaps > 0
    winner, loser = np.where(first_is_better, first, second), np.where(first_is_better, second, first)
    beaten_by = np.bincount(loser[significant], minlength=count)
    beats = np.bincount(winner[significant], minlength=count)
    order = np.argsort(-sign * means, kind="stable")
    return tuple(
        RankInterval(systems[i], float(means[i]), rank, int(1 + beaten_by[i]), int(count - beats[i]))
        for rank, i in enumerate(order.tolist(), start=1)
    )


# ---- cells -----------------------------------------------------------------------------------------------------------


class _Cells(NamedTuple):
    """Means, systems x data sets, NaN where a system lacks one; and for each data set rows x systems of numbers whose
    sums with random factors vary as the mean of each system does."""

    means: Floats
    parts: list[Floats]
    queries: dict[str, int]
    without_values: list[str]


def _read_cells(scores: ScoreMatrix, measure: str, over: str) -> _Cells:
    cells = _Cells(np.empty((len(scores.systems), 0)), [], {}, [])
    means = []
    for index, name in enumerate(scores.data_sets):
        values = scores.values[measure][:, scores.in_data_set(index)]
        present = np.asarray(np.isfinite(values).any(axis=1))
        if not present.any():
            cells.without_values.append(name)
            continue
        counted = np.isfinite(values[present]).all(axis=0)
        count = int(counted.sum())
        if count < (2 if over == "queries" else 1):
            raise DataError(f"{name}: its systems share {count} queries that count for {measure}, too few for a test")
        shared = np.where(present[:, None], values[:, counted], 0.0)
        mean = shared.mean(axis=1)
        deviations = (shared - mean[:, None]).T / np.sqrt(count * max(1, count - 1))
        cells.parts.append(_condense(deviations) if over == "queries" else mean[None, :])
        means.append(np.where(present, mean, np.nan))
        cells.queries[name] = count
    if len(means) < (1 if over == "queries" else 2):
        raise DataError(f"a leaderboard over {over} needs more data sets with values of {measure}, got {len(means)}")
    return cells._replace(means=np.stack(means, axis=1))


def _condense(part: Floats) -> Floats:
    """No more rows than columns, with the same products of columns: what normal multipliers of the rows depend on."""
    return np.asarray(np.linalg.qr(part, mode="r")) if len(part) > part.shape[1] else part


def _complete_means(means: Floats, measure: str) -> Floats:
    """The mean of each system over all data sets; missing cells are the sum of an effect of the row and the column."""
    present = np.isfinite(means)
    if present.all():
        return np.asarray(means.mean(axis=1))
    rows, columns = np.nonzero(present)
    effects = np.concatenate([np.eye(len(means))[rows], np.eye(means.shape[1])[columns]], axis=1)
    found, _, rank, _ = np.linalg.lstsq(effects, means[present])
    if rank < sum(means.shape) - 1:
        raise DataError(f"the systems and data sets fall apart into groups without a common cell of {measure}")
    fitted = found[: len(means), None] + found[None, len(means) :]
    return np.asarray(np.where(present, means, fitted).mean(axis=1))


def _notes(measure: str, cells: Mapping[str, Mapping[str, float | None]], without_values: list[str]) -> list[str]:
    notes = []
    if without_values:
        notes.append(f"{measure} has no value on {', '.join(without_values)}, which are left out.")
    if missing := _missing(cells):
        count, total = sum(map(len, missing.values())), sum(map(len, cells.values()))
        named = "; ".join(f"{system} lacks {', '.join(names)}" for system, names in missing.items())
        notes.append(
            f"{count:,} of {total:,} cells {'is' if count == 1 else 'are'} missing: {named}. Such systems are compared "
            "with others on the data sets that both have, and their means are completed by least squares."
        )
    return notes


def _missing(cells: Mapping[str, Mapping[str, float | None]]) -> dict[str, tuple[str, ...]]:
    lacking = {system: tuple(name for name, mean in row.items() if mean is None) for system, row in cells.items()}
    return {system: names for system, names in lacking.items() if names}


# ---- tests of all pairs ----------------------------------------------------------------------------------------------


def _test_pairs(
    cells: _Cells, first: NDArray[np.int64], second: NDArray[np.int64], over: str, policy: Inference
) -> tuple[Floats, Floats]:
    """The sum of differences of each pair over the data sets that both have, and its corrected p-value."""
    present = np.asarray(np.isfinite(cells.means))
    both = present[first] & present[second]
    gaps = np.where(both, np.nan_to_num(cells.means[first] - cells.means[second]), 0.0).sum(axis=1)
    gaps[np.abs(gaps) < ROUNDING * np.maximum(1.0, np.abs(np.nan_to_num(cells.means)).max())] = 0.0
    parts = cells.parts
    squares = [_squared_differences(part, first, second) for part in parts]
    variances = np.where(both, np.stack(squares, axis=1), 0.0)
    spread = np.sqrt(variances.sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = np.where(gaps == 0, 0.0, np.abs(gaps) / spread)
        inverse = np.where((gaps == 0) & (spread < ROUNDING) | (spread == 0), 0.0, 1 / spread)
    if over == "queries":
        observed = _as_normal(observed, variances, np.array([*cells.queries.values()]) - 1.0)
    if present.all():  # all pairs have the same data sets, which can be drawn together
        joined = np.concatenate(parts)
        parts, present = [_condense(joined) if over == "queries" else joined], np.ones((len(present), 1), bool)
    order = np.argsort(-observed, kind="stable")
    sums = _draw_sums(parts, over, policy, len(order))
    ordered = _step_down(sums, present, (first[order], second[order]), inverse[order], observed[order])
    p = np.empty(len(order))
    p[order] = ordered
    return gaps, p


def _squared_differences(part: Floats, first: NDArray[np.int64], second: NDArray[np.int64]) -> Floats:
    """The squared length of the difference of each pair of columns; 0 for columns that are equal but for rounding."""
    if len(part) == 1:
        return np.asarray((part[0, first] - part[0, second]) ** 2)
    products = part.T @ part
    lengths = np.diag(products)[first] + np.diag(products)[second]
    squares = lengths - 2 * products[first, second]
    return np.where(squares > ROUNDING * lengths, squares, 0.0)


def _as_normal(t: Floats, variances: Floats, freedom: Floats) -> Floats:
    """The normal quantiles of t statistics with the degrees of freedom of Welch and Satterthwaite."""
    from scipy.special import ndtri, stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        total = variances.sum(axis=1) ** 2 / (variances**2 / freedom).sum(axis=1)
    return np.asarray(-ndtri(stdtr(np.where(np.isfinite(total), total, 1.0), -t)))


def _draw_sums(parts: list[Floats], over: str, policy: Inference, pairs: int) -> Iterator[Floats]:
    """Blocks of draws: draws x systems x data sets, sums of the rows of each data set with random factors."""
    random = np.random.default_rng(policy.seed)
    for rows in draws(policy.resamples, max(1, pairs // 2)):
        if over == "queries":
            blocks = [random.standard_normal((rows, len(part))) @ part for part in parts]
        else:
            blocks = [(2.0 * random.integers(2, size=(rows, len(part))) - 1) @ part for part in parts]
        yield np.stack(blocks, axis=2)


def _step_down(
    sums: Iterator[Floats],
    present: NDArray[np.bool_],
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]],
    inverse: Floats,
    observed: Floats,
) -> Floats:
    """p-values of pairs in descending order of what was observed (Westfall and Young 1993, algorithm 2.8).

    Each draw counts against a pair if the largest of its statistics, over this pair and all that follow, reaches it.
    """
    first, second = pairs
    known, total = present.astype(np.float64), len(present)
    forth, back = first * total + second, second * total + first
    reached, count = np.zeros(len(observed), np.int64), 0
    for block in sums:
        # of system i over the data sets that it shares with j: draws x (i, j)
        shared = ((block * known).reshape(-1, known.shape[1]) @ known.T).reshape(len(block), -1)
        drawn = np.abs(np.take(shared, forth, axis=1) - np.take(shared, back, axis=1))
        drawn *= inverse
        largest = np.maximum.accumulate(drawn[:, ::-1], axis=1)[:, ::-1]
        reached += (largest >= observed * (1 - ROUNDING)).sum(axis=0)
        count += len(block)
    return np.asarray(np.maximum.accumulate((1 + reached) / (1 + count)))
