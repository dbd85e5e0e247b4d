"""Evaluate runs: measures of rankings, per query and averaged over queries."""

from rankbound.evaluation.coverage import judged_coverage, warn_of_coverage
from rankbound.evaluation.lists import EMPTY, evaluate_lists
from rankbound.evaluation.references import evaluate_references, references_of
from rankbound.evaluation.result import Evaluation, Evaluations
from rankbound.evaluation.runs import evaluate, evaluate_runs
from rankbound.evaluation.summary import EvaluationSummary

__all__ = [
    "EMPTY",
    "Evaluation",
    "EvaluationSummary",
    "Evaluations",
    "evaluate",
    "evaluate_lists",
    "evaluate_references",
    "evaluate_runs",
    "judged_coverage",
    "references_of",
    "warn_of_coverage",
]
