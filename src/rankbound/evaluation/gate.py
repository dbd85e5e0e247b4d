"""gate: may this change be merged? Pass, fail, or cannot tell, with the number of queries that would be needed.

Of the paired differences d of n queries (new minus baseline; signs are turned where lower values are better) and a
margin m > 0, Student's one-sided tests say

=========== =========================================================================================================
pass        a loss of m or more is ruled out: H0 "mean d <= -m" is rejected (the lower limit is above -m)
fail        a loss is established, and one of m is not ruled out: H0 "mean d >= 0" is rejected (the upper limit is < 0)
cannot tell neither
=========== =========================================================================================================

each at the level 1 - confidence, which bounds both errors: failing a change that loses nothing, and passing one that
loses m or more. Several measures are corrected together, and so are groups: tests of a loss over all rows, tests of the
margin over the rows of all queries and over those of groups. The change passes if every measure passes over all
queries, and fails if any row fails. A group alone never keeps a change from passing, because groups are small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import is_between
from rankbound.data.frames import with_equal_id_types
from rankbound.data.sources import queries_without_documents, to_frame
from rankbound.display import plain_values
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.baselines import Baseline, fingerprint
from rankbound.evaluation.groups import read_groups
from rankbound.evaluation.inference import FEWEST_FOR_INTERVALS, FEWEST_QUERIES, Inference
from rankbound.evaluation.power import queries_needed
from rankbound.evaluation.resampling import standard_deviations
from rankbound.evaluation.runs import evaluate
from rankbound.evaluation.scores import difference, is_lower_better
from rankbound.measures import parse_measures

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


PASS, FAIL, CANNOT_TELL = "pass", "fail", "cannot tell"


@dataclass(frozen=True, slots=True)
class GateRow:
    """One measure over all queries, or over one group of them.

    ``change`` is positive where the new run is better, whichever direction is better for the measure. ``lower`` and
    ``upper`` are its one-sided limits at the corrected level; ``p_margin`` and ``p_loss`` the corrected p-values of
    "the loss is the margin or more" and "nothing is lost". ``queries_needed`` is the number of queries with which a
    change that loses nothing would pass with the policy's power, for the spread of these differences.
    """

    measure: str
    attribute: str | None
    group: str | None
    queries: int
    mean_baseline: float | None
    mean_run: float | None
    change: float | None
    lower: float | None
    upper: float | None
    p_margin: float | None
    p_loss: float | None
    outcome: str
    queries_needed: int | None


@dataclass(frozen=True, eq=False)
class Gate:
    """The result of `gate`: an outcome, a row per measure (and group), and the change of every query, worst first."""

    outcome: str
    margin: float
    baseline: str
    run: str
    rows: tuple[GateRow, ...]
    groups: tuple[GateRow, ...]
    per_query: pl.DataFrame
    signatures: Mapping[str, str]
    inference: Inference
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether a loss of the margin or more is ruled out for every measure."""
        return self.outcome == PASS

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values of all queries, ready for JSON; ``worst`` has the ten queries that lost most."""
        return {
            "outcome": self.outcome,
            "margin": self.margin,
            "confidence": self.inference.confidence,
            "power": self.inference.power,
            "baseline": self.baseline,
            "run": self.run,
            "signatures": dict(self.signatures),
            "measures": [asdict(row) for row in self.rows],
            "groups": [asdict(row) for row in self.groups],
            "worst": [row for rows in self.worst().values() for row in rows],
            "notes": list(self.notes),
        }

    def worst(self, number: int = 10) -> dict[str, list[dict[str, Any]]]:
        """The queries that lost most by each measure."""
        import polars as pl

        lost = self.per_query.filter(pl.col("change") < 0)
        return {row.measure: lost.filter(measure=row.measure).head(number).to_dicts() for row in self.rows}

    def __repr__(self) -> str:
        changes = ", ".join(
            f"{row.measure}: {'-' if row.change is None else format(row.change, '+.4f')}" for row in self.rows
        )
        return f"Gate({self.outcome}; {changes}; margin={self.margin:g})"


def gate(
    qrels: Any,
    baseline: Any,
    run: Any,
    measures: Any = "nDCG@10",
    *,
    margin: float,
    groups: Any = None,
    inference: Inference | None = None,
    **policy: Any,
) -> Gate:
    """Say whether a run may replace a baseline: a test of non-inferiority, by measure and by group of queries.

    Parameters
    ----------
    qrels, baseline, run:
        Judgments and runs as in `rankbound.evaluate`; the baseline can be the path of a ``.json`` file that
        `store_baseline` or ``rankbound gate --save`` wrote. The queries are those of the baseline that are judged. A
        query that the new run lacks counts as one for which it returned nothing.
    measures:
        Names such as ``"nDCG@10"``, one or several.
    margin:
        The loss that would matter, in units of the measure: a positive number.
    groups:
        Attributes of queries: ``{query: group}``, a frame with a column ``qid`` and a column per attribute, or the path
        of one (csv, parquet, jsonl).
    inference:
        Confidence, correction and power, see `rankbound.Inference`; the tests are one-sided t tests whatever its
        ``test``.
    **policy:
        ``ties``, ``empty``, ``missing``, ``judged_only``, ``depth``, ``candidates``, ``judged_outside`` of
        `rankbound.evaluate`; ``missing`` is ``"zero"`` unless it is given.

    With fewer than 5 queries no row has an outcome other than "cannot tell". See `rankbound.evaluation.gate` for the
    tests and their correction.

    >>> qrels = {f"q{i}": {"a": 1, "b": 0} for i in range(30)}
    >>> good = {f"q{i}": {"a": 0.9, "b": 0.8 if i % 10 else 0.95} for i in range(30)}
    >>> worse = {f"q{i}": {"a": 0.9, "b": 0.8 if i % 3 else 0.95} for i in range(30)}
    >>> gate(qrels, good, good, "RR", margin=0.02).outcome, gate(qrels, good, worse, "RR", margin=0.02)
    ('pass', Gate(fail; RR: -0.1167; margin=0.02))
    """
    if not is_between(margin, 0, math.inf):
        raise ArgumentError(f"margin must be a positive number, got {margin}")
    requested = parse_measures(measures)
    chosen = {"missing": "zero"} | policy
    tests = inference or Inference()
    known = None if groups is None else read_groups(groups)
    judgments = to_frame(qrels, "label")
    if _is_stored(baseline):
        stored = Baseline.load(baseline)
        evaluated = _evaluate_queries(judgments, [run], requested, stored.query_ids, chosen)[0]
        signatures = evaluated.signature
        stored.check(signatures, fingerprint(judgments))
        names, left_out = (stored.name, _name(run, "run")), 0
    else:
        frames = [to_frame(baseline, "score"), to_frame(run, "score")]
        queries = [*frames[0]["qid"].unique().to_list(), *queries_without_documents(baseline)]
        first, evaluated = _evaluate_queries(judgments, frames, requested, queries, chosen)
        names = (_name(baseline, "baseline"), _name(run, "run"))
        stored = Baseline.of(first, names[0], "")
        signatures = dict(stored.signatures)
        left_out = len(set(map(str, frames[1]["qid"].unique())) - set(map(str, queries)))
    tested = []
    for name in requested:
        old, new = stored.values_for(name, evaluated.query_ids), evaluated.values[name]
        counted = np.isfinite(old) & np.isfinite(new)
        if not counted.any():
            raise DataError(f"no query counts for {name}")
        tested.append(PairedValues(name, np.asarray(evaluated.query_ids)[counted], old[counted], new[counted]))
    rows, by_group = gate_rows(tested, known, margin, tests)
    notes = _notes(rows, left_out, margin, tests)
    return Gate(
        _overall_outcome(rows, by_group),
        float(margin),
        *names,
        tuple(rows),
        tuple(by_group),
        _per_query(tested, known),
        signatures,
        tests,
        tuple(notes),
    )


def store_baseline(
    path: str | PathLike[str], qrels: Any, run: Any, measures: Any = "nDCG@10", **policy: Any
) -> Baseline:
    """Write the values of a run for each query to a JSON file, as a baseline of `gate`, by its policy."""
    chosen = {"missing": "zero"} | policy
    judgments, frame = to_frame(qrels, "label"), to_frame(run, "score")
    queries = [*frame["qid"].unique().to_list(), *queries_without_documents(run)]
    evaluated = _evaluate_queries(judgments, [frame], parse_measures(measures), queries, chosen)
    stored = Baseline.of(evaluated[0], _name(run, "baseline"), fingerprint(judgments))
    stored.save(path)
    return stored


# ---- values ----------------------------------------------------------------------------------------------------------


def _is_stored(baseline: Any) -> bool:
    return isinstance(baseline, (str, PathLike)) and str(baseline).endswith(".json")


def _name(run: Any, otherwise: str) -> str:
    return Path(run).name if isinstance(run, (str, PathLike)) else otherwise


def _evaluate_queries(
    judgments: pl.DataFrame, runs: Iterable[Any], measures: Any, queries: Iterable[Any], policy: Mapping[str, Any]
) -> list[Any]:
    """Evaluate runs on the judged ones of some queries."""
    import polars as pl

    judged, *returned = with_equal_id_types([judgments, *(to_frame(run, "score") for run in runs)])
    names = pl.Series([str(query) for query in queries], dtype=pl.String)
    judged = judged.filter(pl.col("qid").cast(pl.String).is_in(names.implode()))
    if judged.is_empty():
        raise DataError("the judgments and the baseline have no query in common")
    return [evaluate(judged, run, list(measures.values()), **policy) for run in returned]


# ---- tests -----------------------------------------------------------------------------------------------------------


class PairedValues:
    """The values of one measure for the queries that count, or for some of them."""

    def __init__(
        self,
        measure: str,
        query_ids: NDArray[Any],
        old: NDArray[np.float64],
        new: NDArray[np.float64],
        attribute: str | None = None,
        group: str | None = None,
    ) -> None:
        self.measure, self.query_ids, self.old, self.new = measure, query_ids, old, new
        self.attribute, self.group = attribute, group
        self.change = difference(old, new) if is_lower_better(measure) else difference(new, old)

    def select(self, chosen: NDArray[np.bool_], attribute: str, group: str) -> PairedValues:
        """The same for the queries of a group."""
        parts = (self.query_ids[chosen], self.old[chosen], self.new[chosen])
        return PairedValues(self.measure, *parts, attribute, group)


def loss_p_values(change: NDArray[np.float64], margin: float) -> tuple[float, float]:
    """One-sided p-values of "the loss is the margin or more" and of "nothing is lost"; NaN with fewer than 5 queries.

    >>> [round(p, 4) for p in loss_p_values(np.array([0.1, 0.2, -0.1, 0.0, 0.1]), 0.05)]
    [0.0486, 0.8477]
    """
    from scipy.special import stdtr

    if len(change) < FEWEST_FOR_INTERVALS:
        return math.nan, math.nan
    error = standard_deviations(change[:, None])[0] / math.sqrt(len(change))
    above, below = (_ratio(change.mean() + shift, error) for shift in (margin, 0.0))
    return float(stdtr(len(change) - 1, -above)), float(stdtr(len(change) - 1, below))


def _ratio(value: float, error: float) -> float:
    if error > 0:
        return value / error
    return 0.0 if value == 0 else math.copysign(math.inf, value)


def gate_rows(
    tested: list[PairedValues], groups: Any, margin: float, tests: Inference
) -> tuple[list[GateRow], list[GateRow]]:
    """A row for each measure, and one for each measure and group, the worst first."""
    parts = (
        []
        if groups is None
        else [
            whole.select(chosen, attribute, group)
            for whole in tested
            for attribute, group, chosen in groups.masks(whole.query_ids)
        ]
    )
    p = np.array([loss_p_values(part.change, margin) for part in [*tested, *parts]]).reshape(-1, 2)
    count = len(tested)
    p_margin = np.concatenate([tests.correct(p[:count, 0]), tests.correct(p[count:, 0])])
    p_loss = tests.correct(p[:, 1])
    levels = [tests.corrected_alpha(p[:count, 0]), tests.corrected_alpha(p[count:, 0]), tests.corrected_alpha(p[:, 1])]
    rows = [
        _row(part, margin, tests, (levels[index >= count], levels[2]), (p_margin[index], p_loss[index]))
        for index, part in enumerate([*tested, *parts])
    ]
    by_group = sorted(rows[count:], key=lambda row: (row.change is None, row.change))
    return rows[:count], by_group


def _row(
    part: PairedValues, margin: float, tests: Inference, levels: tuple[float, float], p: tuple[float, float]
) -> GateRow:
    from scipy.special import stdtrit

    count = len(part.change)
    p_margin, p_loss = p
    outcome = PASS if p_margin < tests.alpha else FAIL if p_loss < tests.alpha else CANNOT_TELL
    lower = upper = needed = None
    mean = float(part.change.mean())
    if count >= FEWEST_FOR_INTERVALS:
        sd = float(standard_deviations(part.change[:, None])[0])
        lower, upper = (
            mean + sign * float(stdtrit(count - 1, 1 - level)) * sd / math.sqrt(count)
            for sign, level in zip((-1, 1), levels, strict=True)
        )
        needed = _queries_needed(margin, sd, levels[0], tests.power)
    return GateRow(
        part.measure,
        part.attribute,
        part.group,
        count,
        float(part.old.mean()),
        float(part.new.mean()),
        mean,
        lower,
        upper,
        plain_values(p_margin),
        plain_values(p_loss),
        outcome,
        needed,
    )


def _queries_needed(margin: float, sd: float, level: float, power: float) -> int | None:
    """Queries with which a change that loses nothing passes with this power; None if they are beyond all reason."""
    if sd == 0:
        return FEWEST_FOR_INTERVALS
    try:  # a one-sided test is half of a two-sided one of twice the level
        return max(FEWEST_FOR_INTERVALS, queries_needed(margin, sd=sd, alpha=min(2 * level, 0.999), power=power))
    except ArgumentError:
        return None


def _overall_outcome(rows: list[GateRow], groups: list[GateRow]) -> str:
    if any(row.outcome == FAIL for row in [*rows, *groups]):
        return FAIL
    return PASS if all(row.outcome == PASS for row in rows) else CANNOT_TELL


def _notes(rows: list[GateRow], left_out: int, margin: float, tests: Inference) -> list[str]:
    notes = []
    fewest = min(row.queries for row in rows)
    if fewest < FEWEST_FOR_INTERVALS:
        notes.append(f"With fewer than {FEWEST_FOR_INTERVALS} queries there is nothing to test.")
    elif fewest < FEWEST_QUERIES:
        notes.append(f"The limits rest on {fewest} queries; with fewer than {FEWEST_QUERIES} they are not reliable.")
    notes += [
        f"A loss by {row.measure} is established, but a loss of {margin:g} or more is ruled out."
        for row in rows
        if row.outcome == PASS and row.p_loss is not None and row.p_loss < tests.alpha
    ]
    if left_out:
        notes.append(f"Queries of the new run that the baseline lacks are left out: {left_out}.")
    return notes


def _per_query(tested: list[PairedValues], groups: Any) -> pl.DataFrame:
    """A row per measure and query, those that lost most first, with the attributes of the query."""
    import polars as pl

    parts = []
    for part in tested:
        order = np.argsort(part.change, kind="stable")
        columns: dict[str, Any] = {
            "measure": pl.Series([part.measure] * len(order), dtype=pl.String),
            "qid": pl.Series([str(query) for query in part.query_ids[order].tolist()], dtype=pl.String),
            "baseline": part.old[order],
            "run": part.new[order],
            "change": part.change[order],
        }
        for attribute, known in ({} if groups is None else groups.attributes).items():
            title = f"{attribute} (group)" if attribute in columns else attribute
            columns[title] = columns["qid"].replace_strict(known, default=None, return_dtype=pl.String)
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts)
