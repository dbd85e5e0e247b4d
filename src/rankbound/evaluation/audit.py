"""audit: what can a test set show, and what is wrong with it?

Judgments, candidates and runs are checked for what makes numbers mean something else than they seem to. Findings are
sentences with a number, ordered by severity: a *fault* makes numbers wrong, a *warning* limits what they show, and a
*note* does neither.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.candidates import read_candidates
from rankbound.data.frames import with_equal_id_types
from rankbound.data.sources import is_source, to_frame
from rankbound.difficulty.bounding import difficulty_of
from rankbound.display import page_of, plain_values, plural
from rankbound.errors import ArgumentError, CoverageWarning, DataError
from rankbound.evaluation import audit_judgments as judgments_checks
from rankbound.evaluation.audit_judgments import FAULT, NOTE, SEVERITIES, Finding, JudgedSet
from rankbound.evaluation.audit_runs import AuditedRun
from rankbound.evaluation.inference import Inference
from rankbound.evaluation.power import minimum_detectable_difference, queries_needed
from rankbound.measures import Measure, is_defined, parse_measures

if TYPE_CHECKING:
    import polars as pl

DEFAULT_MEASURES = ("nDCG@10", "AP", "RR")
DIFFERENCES = (0.01, 0.02, 0.05)


@dataclass(frozen=True, slots=True)
class Reference:
    """What rankings that know nothing, or everything, have by a measure, in the mean over the queries that count.

    ``random`` is the mean over all rankings, which a constant scorer has where ties are averaged; where ties are broken
    by an order, it has anything from ``worst`` to ``best``, which are also the values of the reversed and the perfect
    ranking. ``file_order`` is what it has where ties keep the order of the rows. ``ceiling`` is the best that
    re-ranking the candidates reaches.
    """

    measure: str
    queries: int
    worst: float | None
    random: float | None
    file_order: float | None
    best: float | None
    ceiling: float | None


@dataclass(frozen=True, slots=True)
class Detectable:
    """The smallest true difference that a paired t test finds with these queries, and the queries that others need.

    ``deviation`` is the standard deviation of the differences of a query, ``source`` where it comes from.
    """

    measure: str
    queries: int
    deviation: float | None
    source: str
    difference: float | None
    needed: Mapping[str, int | None]


@dataclass(frozen=True, eq=False)
class Audit:
    """The result of `audit`: findings, the most severe first, and the tables behind them."""

    findings: tuple[Finding, ...]
    queries: int
    documents: int
    labels: Mapping[str, int]
    references: tuple[Reference, ...]
    detectable: Detectable
    runs: tuple[Mapping[str, Any], ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings of the severity "fault"."""
        return tuple(finding for finding in self.findings if finding.severity == FAULT)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; None in place of NaN."""
        content = {
            "queries": self.queries,
            "documents": self.documents,
            "labels": dict(self.labels),
            "findings": [asdict(finding) for finding in self.findings],
            "references": [asdict(reference) for reference in self.references],
            "detectable": asdict(self.detectable) | {"needed": dict(self.detectable.needed)},
            "runs": [dict(run) for run in self.runs],
        }
        return plain_values(content)  # type: ignore[no-any-return]

    def page(self, path: str | PathLike[str], *, title: str = "Audit of a test set") -> Path:
        """Write findings and tables to one HTML file, and return its path; needs the extra ``report``."""
        return page_of(self, path, title=title)

    def __repr__(self) -> str:
        counts = [plural(sum(one.severity == severity for one in self.findings), severity) for severity in SEVERITIES]
        return f"Audit({', '.join(counts)}; queries={self.queries}, documents={self.documents})"


def audit(
    qrels: Any,
    runs: Any = None,
    measures: Any = DEFAULT_MEASURES,
    *,
    candidates: Any = None,
    inference: Inference | None = None,
) -> Audit:
    """Say what a test set can show, and what is wrong with it, its candidates and runs on it.

    Parameters
    ----------
    qrels, runs:
        Judgments and runs as in `rankbound.evaluate`: ``{name: run}``, a sequence of runs, or one run. Rows that repeat
        a document of a query are a finding here, not an error.
    measures:
        Names such as ``"nDCG@10"``; findings are about the first one without its bounding.
    candidates:
        The documents that are ranked for each query, in a form of ``candidates`` of `rankbound.evaluate`; by default
        the judged ones.
    inference:
        Level and power of the differences that can be detected, see `rankbound.Inference`.

    >>> qrels = {f"q{i}": {"a": 1, "b": 0, "c": 0} for i in range(20)}
    >>> found = audit(qrels, measures="nDCG@10")
    >>> [finding.topic for finding in found.faults]
    ['order of the rows', 'document ids', 'fixed position']
    >>> found.references[0].random  # (1 + 1 / log2(3) + 1 / log2(4)) / 3
    0.7103099178571526
    """
    requested = parse_measures(measures)
    lead = next(iter(requested.values())).plain
    given = to_frame(qrels, "label").select("qid", "docid", "label")
    if given.is_empty():
        raise DataError("the judgments have no rows to audit")
    tables = _runs_by_name(runs)
    source = None if candidates is None else read_candidates(candidates)
    if source is not None and source.table is None:
        raise ArgumentError(f"candidates of an audit must be a table or a file of documents, got {candidates!r}")
    others = [to_frame(run, "score") for run in tables.values()]
    if source is not None and source.table is not None:
        others.append(source.table.select("qid", "docid"))
    given, *others = with_equal_id_types([given, *others])
    judgments = judgments_checks.drop_repeated(given)
    listed = None if source is None else others.pop()
    judged = JudgedSet(
        judgments if listed is None else _with_candidates(judgments, listed),
        lead,
        None if listed is None else judgments,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # they are findings here
        audited = [AuditedRun(name, run, judgments, dict(requested)) for name, run in zip(tables, others, strict=True)]
        findings = [
            *judgments_checks.check_repeated_rows(given, judgments),
            *judgments_checks.check_labels(judged),
            *judgments_checks.check_queries(judged),
            *judgments_checks.check_orders(judged),
            *judgments_checks.check_ceiling(judged),
            *(finding for run in audited for finding in run.findings()),
        ]
        references = tuple(_reference(judged, name, measure) for name, measure in requested.items())
        summaries = tuple(run.summary() for run in audited)
    detectable = _detectable(judged, audited, inference or Inference())
    findings += _describe_detectable(detectable)
    values, counts = np.unique(judged.labels, return_counts=True)
    return Audit(
        tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))),
        judged.queries,
        len(judged.labels),
        {f"{value:g}": int(count) for value, count in zip(values[:20], counts[:20], strict=True)},
        references,
        detectable,
        summaries,
    )


def _runs_by_name(runs: Any) -> dict[str, Any]:
    if runs is None:
        return {}
    if is_source(runs):
        return {_name_of(runs, 1): runs}
    if isinstance(runs, Mapping):
        first = next(iter(runs.values()), None)
        documents = next(iter(first.values()), None) if isinstance(first, Mapping) else None
        is_one_run = isinstance(first, Mapping) and not isinstance(documents, Mapping)
        return {"run": runs} if is_one_run else {str(name): run for name, run in runs.items()}
    return {_name_of(run, number): run for number, run in enumerate(runs, start=1)}


def _name_of(run: Any, number: int) -> str:
    return Path(run).name if isinstance(run, (str, PathLike)) else f"run {number}"


def _with_candidates(judgments: pl.DataFrame, listed: pl.DataFrame) -> pl.DataFrame:
    """The candidates of the judged queries with their labels, 0 where they are not judged."""
    import polars as pl

    rows = listed.unique(maintain_order=True).filter(pl.col("qid").is_in(judgments["qid"].unique().implode()))
    if rows.is_empty():
        raise DataError("the candidates and the judgments have no query in common")
    joined = rows.join(judgments, on=["qid", "docid"], how="left", maintain_order="left")
    return joined.with_columns(pl.col("label").fill_null(0))


def _reference(judged: JudgedSet, name: str, measure: Measure) -> Reference:
    plain = measure.plain
    counted = is_defined(judged.counts, plain)
    count = int(counted.sum())
    if count == 0:
        return Reference(name, 0, None, None, None, None, None)
    known = judged.difficulty if plain == judged.lead else difficulty_of(plain, judged.counts)
    in_file_order = judged.values_in(np.zeros(len(judged.labels)), plain)
    worst, expected, rows, best = (
        float(value[counted].mean()) for value in (known.worst, known.expected, in_file_order, known.best)
    )
    ceiling = judgments_checks.ceiling(judged) if judged.every_judgment is not None and plain == judged.lead else None
    return Reference(str(plain), count, worst, expected, rows, best, ceiling)


def _detectable(judged: JudgedSet, runs: list[AuditedRun], inference: Inference) -> Detectable:
    """By the differences of the runs; without runs, by the spread of two random rankings."""
    name = str(judged.lead)
    values = [
        dict(zip(np.asarray(run.evaluation.query_ids).tolist(), run.evaluation.values[key].tolist(), strict=True))
        for run in runs
        if run.evaluation is not None
        for key in (next(key for key, measure in run.measures.items() if measure.plain == judged.lead),)
        if run.measures[key].bounding == "none"
    ]
    deviations = []
    for first, second in combinations(values, 2):
        d = np.array([second[query] - value for query, value in first.items() if query in second])
        d = d[np.isfinite(d)]
        if len(d) > 1 and d.any():
            deviations.append(float(d.std(ddof=1)))
    count = int(judged.defined.sum())
    if deviations:
        deviation: float | None = float(np.median(deviations))
        source = f"the median over {len(deviations)} pairs of runs" if len(deviations) > 1 else "the two runs"
    else:
        known = judged.difficulty
        chosen = judged.defined & known.informative
        # of a quarter of the range, a common guess where nothing is known of the systems
        deviation = float(np.abs(known.best - known.worst)[chosen].mean() / 4) if chosen.any() else None
        source = "a quarter of the mean range from worst to best, a guess"
    if deviation is None or count < 2:
        return Detectable(name, count, deviation, source, None, {f"{d:g}": None for d in DIFFERENCES})
    alpha, power = inference.alpha, inference.power
    smallest = minimum_detectable_difference(sd=deviation, queries=count, alpha=alpha, power=power)
    needed = {f"{d:g}": queries_needed(d, sd=deviation, alpha=alpha, power=power) for d in DIFFERENCES}
    return Detectable(name, count, deviation, source, smallest, needed)


def _describe_detectable(known: Detectable) -> list[Finding]:
    if known.difference is None:
        return []
    needed = ", ".join(f"{count:,} for {name}" for name, count in known.needed.items() if count is not None)
    text = (
        f"With {plural(known.queries, 'query')} a true difference in {known.measure} is found from "
        f"{known.difference:.4f} on; needed are {needed} (by the spread of {known.source})."
    )
    return [Finding(NOTE, "detectable difference", text, known.difference)]
