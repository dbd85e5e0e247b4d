"""Evaluate the reference runs of standardized measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from rankbound.difficulty.standardization import LEAST_REFERENCES, ReferenceScores, missing_references
from rankbound.errors import ArgumentError
from rankbound.measures import STANDARDIZATIONS, Measure, parse_measures
from rankbound.protocol import Protocol, as_protocol


def evaluate_references(
    qrels: Any,
    references: Any,
    measures: Any,
    protocol: Protocol | None = None,
    **fields: Any,
) -> ReferenceScores:
    """Evaluate reference runs, by which measures such as ``STD(nDCG@10)`` are standardized.

    ``evaluate(..., references=...)`` takes the result in place of the runs, and its method ``save`` writes a file that
    can be published.

    Parameters
    ----------
    qrels:
        Judgments, as `evaluate` takes them; None if the references are `Lists` that carry scores, or parquet files with
        ``qid, label, score``.
    references:
        At least two runs, as ``{name: run}`` or a sequence. Scores that were computed before, or the path of a
        ``.json`` file of them, are returned if they have all measures.
    measures:
        Plain measures, or standardized ones, of which the plain measure is taken.
    protocol, fields:
        As in `evaluate`; of the fields, ties, missing, judged_only, depth and unjudged matter.

    >>> qrels = {"q": {"a": 1, "b": 0, "c": 0}}
    >>> runs = {"good": {"q": {"a": 3, "b": 2, "c": 1}}, "bad": {"q": {"a": 1, "b": 2, "c": 3}}}
    >>> evaluate_references(qrels, runs, "RR").values["RR"].round(4).tolist()
    [[1.0], [0.3333]]
    """
    from rankbound.evaluation.large import Settings
    from rankbound.evaluation.runs import evaluate, evaluate_runs  # which needs the references of its measures

    protocol = reference_protocol(as_protocol(protocol, fields))
    requested = measures if isinstance(measures, Mapping) else parse_measures(measures)
    plain = {str(measure.plain): measure.plain for measure in requested.values()}
    if isinstance(references, (str, PathLike)):
        if not str(references).endswith(".json"):
            raise ArgumentError(f"references must be runs, or a .json file of their scores, got {str(references)!r}")
        references = ReferenceScores.load(references)
    if isinstance(references, ReferenceScores):
        references.check(plain.values())
        return references
    runs = _reference_runs(references)
    if qrels is None:
        results = {name: evaluate(run, measures=plain, protocol=protocol) for name, run in runs.items()}
    else:
        results = evaluate_runs(qrels, runs, Settings(plain, protocol))
    query_ids = list(dict.fromkeys(qid for result in results.values() for qid in np.asarray(result.query_ids).tolist()))
    column = {qid: index for index, qid in enumerate(query_ids)}
    scores = {name: np.full((len(runs), len(query_ids)), np.nan) for name in plain}
    for row, result in enumerate(results.values()):
        columns = [column[qid] for qid in np.asarray(result.query_ids).tolist()]
        for name in plain:
            scores[name][row, columns] = result.values[name]
    return ReferenceScores(tuple(runs), tuple(query_ids), scores)


def reference_protocol(protocol: Protocol) -> Protocol:
    """The protocol by which the runs of standardized measures are evaluated: they have no candidates and references."""
    default = Protocol()
    return replace(
        protocol,
        empty=default.empty,
        candidates=default.candidates,
        judged_outside=default.judged_outside,
        references=None,
    )


def references_of(qrels: Any, measures: Mapping[str, Measure], protocol: Protocol) -> ReferenceScores | None:
    """The scores that the standardized measures need; None if there are no such measures and no references."""
    references = protocol.references
    standardized = {}
    for name, measure in measures.items():
        if measure.bounding in STANDARDIZATIONS.values():
            standardized[name] = measure
            if references is None:
                raise missing_references(measure)
    if references is None:
        return None
    if not standardized:
        raise ArgumentError(
            f"references are for standardized measures, such as STD(nDCG@10); got {', '.join(measures)}"
        )
    return evaluate_references(qrels, references, standardized, protocol)


def _reference_runs(references: Any) -> dict[str, Any]:
    """Reference runs by name; those of a sequence are called by their path or their number."""
    if isinstance(references, Mapping):
        runs = {str(name): run for name, run in references.items()}
    elif isinstance(references, Sequence):
        runs = {
            str(run) if isinstance(run, (str, PathLike)) else f"reference {number}": run
            for number, run in enumerate(references, start=1)
        }
    else:
        raise ArgumentError(f"references must be runs by name or a list of runs, got {type(references).__name__}")
    if len(runs) < LEAST_REFERENCES:
        raise ArgumentError(f"references must be at least {LEAST_REFERENCES} different runs, got {len(runs)}")
    return runs
