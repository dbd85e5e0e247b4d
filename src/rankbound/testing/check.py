"""check_measure: whether a user's own implementation of a measure is right, and what is probably wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rankbound.errors import ArgumentError, MeasureError
from rankbound.measures import Measure, parse_measure
from rankbound.packages import needed_by
from rankbound.protocol import EMPTY, TIES
from rankbound.testing.report import CheckReport

with needed_by("check"):
    from rankbound.testing._calling import find_convention
    from rankbound.testing._categories import CATEGORIES, Generator, applicable_categories
    from rankbound.testing._checking import Check, Policy


def check_measure(
    function: Callable[..., Any],
    measure: str | Measure = "nDCG@10",
    *,
    signature: str = "auto",
    ties: str = TIES[0],
    empty: str | None = None,
    tolerance: float = 1e-6,
    seed: int = 0,
    examples: int = 500,
    skip: Sequence[str] = (),
    budget: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Check a user's own implementation of a measure against rankbound's, on examples that Hypothesis generates.

    The examples come by category: binary and graded labels, unsorted input, ties, no and only relevant documents, one
    and no document, fewer and more documents than k, negative labels and scores, fractional scores, a large list; for
    functions of judgments and a run also documents that are unjudged or not retrieved, and several queries; for
    functions of ids also repeated documents. The smallest failing example of each category is reported with the
    probable cause: the variation of the measure that gives the values that the function returned.

    Parameters
    ----------
    function:
        The function to check. It is called with new arguments each time.
    measure:
        The measure that it should compute: any plain measure, such as "nDCG@10" or "AP(rel=2)". A function that takes
        k is checked at other cutoffs as well.
    signature:
        What the function takes: "labels,scores" (documents of one query), "y_true,y_score" (2-D arrays with a row per
        query, as in scikit-learn), "qrels,run" (dicts), "relevant_ids,ranked_ids" or "ranked_labels"; in any order, and
        with ",k" if it takes the cutoff. "auto" finds it from the names of the parameters and a few calls.
    ties:
        How documents with equal scores should be ranked: "average", "input" or "docid" (functions of a run only).
    empty:
        The value of queries for which the measure is not defined: "zero" (the default, as in trec_eval), "one", or
        "skip" (NaN or None, left out of means).
    tolerance:
        Largest difference of two values that agree, relative to values above 1.
    seed, examples:
        Seed of the generator, and the largest number of examples; equal ones are checked once.
    skip:
        Categories to leave out, such as "single document".
    budget:
        Seconds after which no further example is checked. A call that takes longer is interrupted where that is
        possible (in the main thread, not on Windows).
    progress:
        Called with the number of examples that are done and of all examples.

    >>> def precision_at_3(labels, scores):
    ...     ranked = sorted(zip(scores, labels), reverse=True)[:3]
    ...     return sum(label > 0 for _, label in ranked) / len(ranked)
    >>> report = check_measure(precision_at_3, "P@3", skip=["no documents", "ties"])
    >>> report.ok, report.first.labels, report.first.expected, report.first.returned
    (False, [0, 1], 0.3333333333333333, 0.5)
    >>> report.first.cause
    'The divisor or cutoff is min(k, number of documents) in place of k.'
    """
    parsed = parse_measure(measure)
    if parsed.bounding != "none":
        raise MeasureError(f"measure must be a plain measure, such as {parsed.plain}, got {parsed}")
    policy = Policy(parsed, ties, "zero" if empty is None else empty, tolerance)
    _check_options(policy, examples, seed, skip, budget)
    skipped = tuple(dict.fromkeys(_category_name(name) for name in skip))
    convention = find_convention(function, parsed, signature, budget)
    if ties == "docid" and "run" not in convention.roles:
        raise ArgumentError(f"ties='docid' needs a function of qrels and run, got one of ({convention.signature})")
    roles = (*convention.roles, *(["rows"] if convention.takes_queries else []))
    categories = applicable_categories(parsed, roles, skipped)
    if not categories:
        raise ArgumentError("skip must leave at least one category")
    graded = "relevant_ids" not in roles
    generator = Generator(parsed, convention.takes_k, graded, seed, max(examples // len(categories), 1))
    return Check(function, convention, policy, generator, budget).run(categories, skipped, progress)


def _check_options(policy: Policy, examples: int, seed: int, skip: Sequence[str], budget: float) -> None:
    if policy.ties not in TIES:
        raise ArgumentError(f"ties must be one of {', '.join(TIES)}, got {policy.ties!r}")
    if policy.empty not in EMPTY:
        raise ArgumentError(f"empty must be one of {', '.join(EMPTY)}, got {policy.empty!r}")
    if not isinstance(policy.tolerance, (int, float)) or not 0 <= policy.tolerance < 1:
        raise ArgumentError(f"tolerance must be a number from 0 to 1, got {policy.tolerance!r}")
    if not isinstance(examples, int) or isinstance(examples, bool) or examples < 1:
        raise ArgumentError(f"examples must be a positive integer, got {examples!r}")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ArgumentError(f"seed must be a non-negative integer, got {seed!r}")
    if not isinstance(budget, (int, float)) or not budget > 0:
        raise ArgumentError(f"budget must be a positive number of seconds, got {budget!r}")
    if isinstance(skip, str):
        raise ArgumentError(f"skip must be a list of categories, got the string {skip!r}")


def _category_name(name: Any) -> str:
    """The name of a category, which may be written with hyphens."""
    known = {category.name for category in CATEGORIES}
    plain = str(name).replace("-", " ").replace("_", " ").strip().lower()
    if plain not in known:
        raise ArgumentError(f"skip must name categories ({', '.join(sorted(known))}), got {name!r}")
    return plain
