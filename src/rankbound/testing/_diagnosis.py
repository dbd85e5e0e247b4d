"""The probable cause of a failure that no variation of the measure explains: exceptions, NaN, empty queries, means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankbound.testing._calling import Outcome
from rankbound.testing._categories import Category
from rankbound.testing._causes import Cause
from rankbound.testing._examples import Example, Expected

TOO_LONG = "takes too"  # the kind of the outcome of a call that was interrupted
_FEATURES: dict[str, Callable[[Example], bool]] = {  # of queries for which the measure is defined
    "all documents are relevant": lambda example: min((*example.query.labels, *example.query.not_retrieved)) > 0,
    "some documents are not relevant": lambda example: min((*example.query.labels, *example.query.not_retrieved)) <= 0,
    "no relevant document is among the first k": lambda example: max(example.query.ranked().labels[: example.k]) <= 0,
    "the first document is relevant": lambda example: example.query.ranked().labels[0] > 0,
    "the first document is not relevant": lambda example: example.query.ranked().labels[0] <= 0,
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One call: the example, the right values and the outcome."""

    example: Example
    expected: Expected
    outcome: Outcome

    def agrees(self, tolerance: float) -> bool:
        """Whether the function returned the right values."""
        return self.outcome.agrees(self.expected, tolerance)


def problem_cause(category: Category, entry: Trial, every: Sequence[Trial]) -> Cause | None:
    """The cause of a failure that is not a wrong number, or of one in a query without relevant documents."""
    outcome = entry.outcome
    if outcome.kind == TOO_LONG:
        return Cause("The function is too slow for this example, or never ends.")
    if outcome.problem.startswith("returns") and "expected" in outcome.problem:
        return Cause("The function must return one number for a query.")
    same = [other for other in every if other.outcome.kind == outcome.kind]
    if outcome.kind == "returns None" and len(same) == len(every):
        return Cause("The function always returns None; a return statement is probably missing.")
    undefined = entry.expected.undefined
    if undefined and not outcome.problem:
        return _empty_cause(outcome)
    if not outcome.problem and any(math.isnan(value) for value in outcome.values):
        what = outcome.shown or "NaN"
        return Cause(f"The function returns {what} although the measure is defined. {category.hint}")
    if not outcome.problem:
        return None
    if len(same) == len(every):
        return Cause(f"The function {outcome.problem} on every example; the input may not be what it takes.")
    if any(word in outcome.problem for word in ("ZeroDivision", "returns inf", "returns -inf", "math domain")):
        return _division_cause(undefined, same, every)
    return Cause(f"The function rejects or cannot handle input of this kind: {category.name}.")


def _division_cause(undefined: bool, same: Sequence[Trial], every: Sequence[Trial]) -> Cause:
    """What was divided by 0, from all examples on which a division failed."""
    defined = [entry for entry in same if not entry.expected.undefined]
    at_first = [entry for entry in defined if any(query.ranked().labels[:1] > (0,) for query in entry.example.queries)]
    with_documents = [entry for entry in every if entry.example.documents]
    if defined and (len(at_first) == len(defined) or len(same) >= len(with_documents)):
        return Cause(
            "A rank or a discount is 0 at rank 1: ranks start at 0, or the discount is log2(rank) in place of "
            "log2(rank + 1)."
        )
    if undefined:
        return Cause(
            "The function divides by the value of the ideal ranking, the number of relevant documents or the "
            "number of documents, which is 0 here."
        )
    if all(entry.expected.mean == 0 for entry in defined):
        return Cause("The function divides by the number of relevant documents that it saw, which is 0 here.")
    return Cause("The function divides by a number that is 0 here.")


def _empty_cause(outcome: Outcome) -> Cause:
    value = outcome.values[0]
    if math.isnan(value):
        advice, shown = "That is empty='skip' (--empty skip).", outcome.shown or "NaN"
    else:
        options = {0.0: "That is empty='zero' (--empty zero).", 1.0: "That is empty='one' (--empty one)."}
        advice, shown = options.get(value, ""), f"{value:g}"
    sentence = f"A query for which the measure is not defined has the value {shown}."
    return Cause(sentence, advice, is_convention=bool(advice))


def common_cause(every: Sequence[Trial], tolerance: float) -> Cause | None:
    """What all failing examples have in common and no other example has."""
    defined = [entry for entry in every if entry.example.documents and not entry.expected.undefined]
    single = [entry for entry in defined if len(entry.example.queries) == 1]
    failed = [not entry.agrees(tolerance) for entry in single]
    for text, has in _FEATURES.items():
        if [has(entry.example) for entry in single] == failed:
            return Cause(f"The value is wrong exactly where {text}.")
    return None


def mean_cause(entry: Trial) -> Cause | None:
    """How the values of several queries were combined."""
    if len(entry.outcome.values) != 1 or len(entry.example.queries) == 1:
        return None
    values, returned = entry.expected.per_query, entry.outcome.values[0]
    ways = {
        "The values of the queries are added, not averaged.": sum(values),
        "Only the first query counts.": values[0],
        "Only the last query counts.": values[-1],
        "The largest value of all queries is returned.": max(values),
        "The values of the queries are multiplied.": math.prod(values),
    }
    close = (text for text, value in ways.items() if math.isclose(value, returned, abs_tol=1e-6))
    sentence = next(close, None)
    return Cause(sentence) if sentence else None
