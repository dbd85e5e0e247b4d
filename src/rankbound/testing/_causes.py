"""Probable causes of wrong values: variations of the measure and of its input that give what the function returned.

A variation changes the measure (its settings, cutoff or discount, or another measure), the order of the documents, or
the documents themselves. Each is evaluated on examples of every category, right and wrong ones; a variation that gives
all the values that the function returned for a category is the probable cause there. No variation looks at which
measure is checked: they follow from its parameters and its structure.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rankbound.errors import DataError, MeasureError
from rankbound.measures import Definition, Measure, Ranked, definitions, rank, values
from rankbound.measures.additive import Additive
from rankbound.measures.cascade import Cascade
from rankbound.measures.discounts import CONSTANT, LOG2, RECIPROCAL, Discount, Discounted
from rankbound.testing._examples import Query, to_lists

_COMBINED = 2  # categories for which combinations of two variations are tried; each takes about half a second
_CUTOFFS = (1, 3, 5, 10, 20, 50, 100)  # usual cutoffs
_NUMBERS = (1, 2, 3, 4, 5, 0.5, 0.8, 0.85, 0.9, 0.95)  # usual values of numeric parameters


@dataclass(frozen=True, slots=True)
class Cause:
    """A sentence on what the function probably does, and the options under which it would agree, if there are any."""

    sentence: str
    advice: str = ""
    is_convention: bool = False
    parts: tuple[Cause, ...] = ()  # of which it is a combination

    def __str__(self) -> str:
        return " ".join(map(str, self.parts)) or f"{self.sentence} {self.advice}".strip()

    def conventions(self) -> list[str]:
        """What of it is a convention."""
        return [str(cause) for cause in self.parts or (self,) if cause.is_convention]


@dataclass(frozen=True, slots=True)
class Result:
    """One query with its cutoff, the value that is right and the value that the function returned."""

    query: Query
    k: int | None
    expected: float
    returned: float


@dataclass(frozen=True, slots=True)
class _State:
    """What a variation changes: the queries, the measure of each, and the treatment of ties."""

    queries: tuple[Query, ...]
    measures: tuple[Measure, ...]
    ties: str


@dataclass(frozen=True, slots=True)
class _Variation:
    """A variation. Two of one ``group`` are not combined; one that is ``complete`` must explain most categories."""

    group: str
    cause: Cause
    apply: Callable[[_State], _State]
    complete: bool = False


def find_causes(
    results: Mapping[str, Sequence[Result]], measure: Measure, ties: str, policies: Sequence[str]
) -> dict[str, Cause]:
    """The cause for each category of ``results`` that has wrong values and a cause that explains them.

    A cause must also give the right values in all categories in which the function is right. ``policies`` are the
    treatments of ties that the function can have.
    """
    categories = {name: list(group) for name, group in results.items() if group}
    flat = [result for group in categories.values() for result in group]
    spans = _spans(categories)
    wrong = {name for name, group in categories.items() if any(not _equal(r.expected, r.returned) for r in group)}
    causes: dict[str, Cause] = {}
    if not wrong:
        return causes
    variations = list(_variations(measure, ties, policies))
    returned = np.array([result.returned for result in flat])
    explained: list[tuple[Cause, set[str]]] = []
    for cause, predicted, complete in itertools.chain(
        _arithmetic(flat, measure),
        ((v.cause, _predict(flat, measure, ties, [v]), v.complete) for v in variations),
    ):
        fits = np.isclose(predicted, returned, rtol=1e-4, atol=1e-5)
        names = {name for name, span in spans.items() if fits[span].all()}
        if (
            names & wrong
            and names | wrong >= set(categories)
            and (not complete or len(names) >= 0.75 * len(categories))
        ):
            explained.append((cause, names))
    # the variation that explains most goes first, so that one mistake is named in one way
    explained.sort(key=lambda pair: -len(pair[1]))
    for cause, names in explained:
        for name in names & wrong:
            causes.setdefault(name, cause)
    right = [result for name, group in categories.items() if name not in wrong for result in group]
    left = [name for name in categories if name in wrong and name not in causes]
    for name in left[:_COMBINED]:
        pair = _combination(categories[name], right, variations, measure, ties) if name not in causes else None
        if pair is not None:
            parts = (pair[0].cause, pair[1].cause)
            cause = Cause("", is_convention=all(cause.is_convention for cause in parts), parts=parts)
            causes |= {
                other: cause
                for other in left
                if other not in causes and _explains(categories[other], measure, ties, pair)
            }
    return causes


def _spans(categories: Mapping[str, Sequence[Result]]) -> dict[str, slice]:
    ends = list(itertools.accumulate(len(group) for group in categories.values()))
    return {name: slice(end - len(group), end) for (name, group), end in zip(categories.items(), ends, strict=True)}


def _equal(first: float, second: float) -> bool:
    return bool(np.isclose(first, second, rtol=1e-4, atol=1e-5))


def _combination(
    results: Sequence[Result], right: Sequence[Result], variations: Sequence[_Variation], measure: Measure, ties: str
) -> tuple[_Variation, _Variation] | None:
    """Two variations that together explain a category and change nothing where the function is ``right``."""
    usable = [variation for variation in variations if not variation.complete]
    pairs = ((a, b) for a, b in itertools.combinations(usable, 2) if a.group != b.group)
    groups = (results[:1], results, right)  # most pairs fail on the first result
    return next((p for p in pairs if all(_explains(group, measure, ties, p) for group in groups)), None)


def _explains(results: Sequence[Result], measure: Measure, ties: str, variations: Sequence[_Variation]) -> bool:
    returned = [result.returned for result in results]
    return bool(np.allclose(_predict(results, measure, ties, variations), returned, rtol=1e-4, atol=1e-5))


def _predict(results: Sequence[Result], measure: Measure, ties: str, variations: Iterable[_Variation]) -> Any:
    """The values of the measure under variations; NaN where they cannot be applied."""
    queries, cutoffs = tuple(result.query for result in results), [result.k for result in results]
    state = _State(queries, tuple(replace(measure, cutoff=k) for k in cutoffs), ties)
    predicted = np.full(len(results), np.nan)
    for variation in variations:
        state = variation.apply(state)
    groups: dict[Measure, list[int]] = {}
    for index, each in enumerate(state.measures):
        groups.setdefault(each, []).append(index)
    for each, indices in groups.items():
        try:
            predicted[indices] = _values(state, each, indices)
        except DataError:  # a label is too large for the measure; others may do
            for index in indices:
                with contextlib.suppress(DataError):
                    predicted[index] = _values(state, each, [index])[0]
    return predicted


def _values(state: _State, measure: Measure, indices: Sequence[int]) -> Any:
    return values(rank(to_lists([state.queries[i] for i in indices]), state.ties), measure)


# ---- arithmetic: the values are right up to a factor -----------------------------------------------------------------


def _arithmetic(results: Sequence[Result], measure: Measure) -> Iterator[tuple[Cause, Any, bool]]:
    expected = np.array([result.expected for result in results])
    returned = np.array([result.returned for result in results])
    yield Cause("The function returns 1 minus the measure, as a loss does."), 1 - expected, True
    yield Cause("The function returns the measure with the opposite sign."), -expected, True
    positive = (expected > 0) & (returned != 0)
    if not positive.any():
        return
    for factor in dict.fromkeys(np.round(returned[positive] / expected[positive], 6).tolist()):
        if factor == 1:
            continue
        sentence = _factor_sentence(factor, measure)
        exact = float(np.median((returned / np.where(expected == 0, 1, expected))[positive]))
        scale = exact if math.isclose(exact, factor, rel_tol=1e-5) else factor
        yield Cause(sentence), expected * scale, True


def _factor_sentence(factor: float, measure: Measure) -> str:
    text = f"Every value is {factor:.5g} times the right one"
    near = [
        (1 / math.log(2), "natural logarithms where log2 belongs, in the sum over the ranking only (factor 1 / ln 2)"),
        (math.log(2), "natural logarithms where log2 belongs, in the ideal ranking only (factor ln 2)"),
        (100.0, "a value in per cent"),
    ]
    for name in measure.definition.parameters:
        number = measure[name]
        if isinstance(number, (int, float)) and 0 < number < 1:
            near += [
                (1 / (1 - number), f"the factor 1 - {name} = {1 - number:g} is missing"),
                (number, f"powers of {name} that start with {name} in place of 1"),
                (number / (1 - number), f"the factor 1 - {name} is missing, and powers of {name} start with {name}"),
            ]
    reasons = [reason for value, reason in near if math.isclose(value, factor, rel_tol=1e-4)]
    return f"{text}: {reasons[0]}." if reasons else f"{text}; check for a missing or additional factor."


# ---- the table of known variations -----------------------------------------------------------------------------------

QueryChange = Callable[[Query, Measure], Query]
MeasureChange = Callable[[Measure, Query], Measure]


def _variations(measure: Measure, ties: str, policies: Sequence[str]) -> Iterator[_Variation]:
    for policy in policies:
        if policy != ties:
            cause = Cause(_TIES[policy], f"That is ties={policy!r} (--ties {policy}).", is_convention=True)
            yield _Variation("order", cause, partial(replace, ties=policy))
    yield from (_of_queries("order", sentence, partial(_ranked_by, key=key)) for sentence, key in _ORDERS)
    yield from _settings(measure)
    yield from _cutoffs(measure)
    yield from (_of_queries(*row) for row in _DOCUMENTS)
    yield from _formulas(measure)
    yield from _other_measures(measure)


def _of_queries(group: str, sentence: str, change: QueryChange, is_convention: bool = False) -> _Variation:
    return _Variation(
        group,
        Cause(sentence, is_convention=is_convention),
        lambda state: replace(state, queries=tuple(map(change, state.queries, state.measures))),
    )


def _of_measures(group: str, cause: Cause, change: MeasureChange, complete: bool = False) -> _Variation:
    return _Variation(
        group,
        cause,
        lambda state: replace(state, measures=tuple(map(change, state.measures, state.queries))),
        complete,
    )


def _ranked_by(query: Query, _: Measure, key: Callable[[Query, int], Any]) -> Query:
    """The documents in the order of a key, without ties."""
    ordered = query.take(sorted(range(len(query)), key=lambda i: key(query, i)))
    return replace(ordered, scores=tuple(float(len(query) - i) for i in range(len(query))))


_TIES = {
    "average": "Ties are averaged over all orders of the tied documents.",
    "input": "Ties are broken by input order.",
    "docid": "Ties are broken by descending document id.",
}
_ORDERS: tuple[tuple[str, Callable[[Query, int], Any]], ...] = (
    ("Ties are broken by reverse input order, as in argsort(scores)[::-1].", lambda q, i: (-q.scores[i], -i)),
    (
        "Tied documents are ranked by descending label, which favors the system; a sort of (score, label) pairs does "
        "that.",
        lambda q, i: (-q.scores[i], -q.labels[i]),
    ),
    (
        "Tied documents are ranked by ascending label, which is the worst case for the system.",
        lambda q, i: (-q.scores[i], q.labels[i]),
    ),
    ("The documents are taken in input order; they must be sorted by descending score.", lambda _, i: i),
    ("The documents are sorted by ascending score; the highest score must come first.", lambda q, i: q.scores[i]),
    ("The documents are ranked by label, not by score.", lambda q, i: -q.labels[i]),
    ("Scores are rounded down or converted to integers.", lambda q, i: -math.floor(q.scores[i])),
)


# ---- settings and cutoffs --------------------------------------------------------------------------------------------


def _settings(measure: Measure) -> Iterator[_Variation]:
    definition = measure.definition
    for name, parameter in definition.parameters.items():
        for choice in parameter.choices or _NUMBERS:
            with contextlib.suppress(MeasureError):
                other = _with_setting(measure, name, parameter.check(definition.name, name, choice))
                definition.check_settings(other.cutoff, dict(other.settings), str(measure))
                if other.settings == measure.settings:
                    continue
                sentence = f"The function computes {other}: {_meaning(other, name)}."
                change = partial(_take_settings, settings=other.settings)
                yield _of_measures("settings", Cause(sentence, f"Compare it with {other}.", True), change)
        if not parameter.choices and isinstance(parameter.default, int):
            sentence = f"The largest label of each query is used as {name}, which must be {measure[name]!r} everywhere."
            yield _of_measures("settings", Cause(sentence), partial(_take_largest_label, name=name))


def _with_setting(measure: Measure, name: str, value: Any) -> Measure:
    settings = {**dict(measure.settings), name: value}
    if value == measure.definition.parameters[name].default:
        del settings[name]
    return replace(measure, settings=tuple(sorted(settings.items())))


def _take_settings(measure: Measure, _: Query, settings: tuple[tuple[str, Any], ...]) -> Measure:
    return replace(measure, settings=settings)


def _take_largest_label(measure: Measure, query: Query, name: str) -> Measure:
    return _with_setting(measure, name, max((*query.labels, *query.not_retrieved, 1)))


def _meaning(measure: Measure, name: str) -> str:
    """What a setting means, in the words of its rule if that explains its choices."""
    parameter, value = measure.definition.parameters[name], repr(measure[name])
    for choice in parameter.rule.replace(" or ", ", ").split(", "):
        if choice.startswith(value) and "(" in choice:
            return choice[len(value) :].strip(" ()") if choice.count("(") == 1 else f"{name} is {value}"
    return f"{name} is {value} ({measure.definition.summary})"


def _take_cutoff(measure: Measure, query: Query, change: Callable[[int, int], int | None]) -> Measure:
    return replace(measure, cutoff=change(measure.cutoff or 1, len(query)))


def _always(k: int) -> Callable[[int, int], int]:
    return lambda _k, _n: k


def _cutoffs(measure: Measure) -> Iterator[_Variation]:
    if measure.definition.cutoff == "none":
        return
    for k in _CUTOFFS:
        if k != measure.cutoff:
            advice = f"Compare it with {replace(measure, cutoff=k)}."
            cause = Cause(f"Only the first {k} ranks count, at any k.", advice, is_convention=True)
            yield _of_measures("cutoff", cause, partial(_take_cutoff, change=_always(k)))
    if measure.cutoff is None:
        return
    sentence = (
        "Only the first k documents of the ranking count where the ideal ranking or the number of relevant documents "
        "is computed; all documents must count there."
    )
    yield _of_queries("documents", sentence, _first_documents)
    for sentence, change in _CHANGED_CUTOFFS.items():
        if sentence != _IGNORED or measure.definition.cutoff == "optional":
            yield _of_measures("cutoff", Cause(sentence), partial(_take_cutoff, change=change))


_IGNORED = "The cutoff k is ignored."
_CHANGED_CUTOFFS: dict[str, Callable[[int, int], int | None]] = {
    "The divisor or cutoff is min(k, number of documents) in place of k.": lambda k, n: max(min(k, n), 1),
    _IGNORED: lambda _k, _n: None,
    "The cutoff is k + 1 in place of k.": lambda k, _n: k + 1,
    "The cutoff is k - 1 in place of k.": lambda k, _n: max(k - 1, 1),
}


# ---- documents and labels --------------------------------------------------------------------------------------------


def _first_documents(query: Query, measure: Measure) -> Query:
    first = query.ranked().take(range(min(len(query), measure.cutoff or len(query))))
    return replace(first, not_retrieved=())


def _one_rank_lower(query: Query, _: Measure) -> Query:
    ranked = query.ranked()
    return replace(
        ranked,
        labels=(0, *ranked.labels),
        scores=(max(query.scores, default=0.0) + 1, *ranked.scores),
        judged=(True, *ranked.judged) if ranked.judged else (),
        ids=(max(ranked.ids) + 1, *ranked.ids) if ranked.ids else (),
    )


def _relabeled(query: Query, _: Measure, change: Callable[[int], int]) -> Query:
    labels, not_retrieved = (tuple(map(change, part)) for part in (query.labels, query.not_retrieved))
    return replace(query, labels=labels, not_retrieved=not_retrieved)


_DOCUMENTS: tuple[tuple[str, str, QueryChange] | tuple[str, str, QueryChange, bool], ...] = (
    (
        "documents",
        "Relevant documents that were not retrieved do not count; they belong to the ideal ranking and to the number "
        "of relevant documents.",
        lambda query, _: replace(query, not_retrieved=()),
    ),
    (
        "judged",
        "Documents without a judgment are removed; they must keep their rank and count as not relevant.",
        lambda query, _: query.take([i for i, known in enumerate(query.known()) if known]),
    ),
    ("rank", "Ranks are too large by 1: the first document counts as if it stood at rank 2.", _one_rank_lower),
    (
        "rank",
        "Ranks are too small by 1: the first document is ignored, or ranks start at 0.",
        lambda query, _: query.ranked().take(range(1, len(query))),
    ),
    (
        "repeats",
        "Repeated documents are removed before ranks are counted; here they keep their rank and count as not relevant.",
        lambda query, _: (
            query.take([i for i, name in enumerate(query.ids) if name not in query.ids[:i]]) if query.ids else query
        ),
        True,
    ),
    (
        "labels",
        "Graded labels are treated as binary: every positive label counts as 1.",
        partial(_relabeled, change=lambda label: min(label, 1)),
    ),
    (
        "labels",
        "The gain is 2^label, without - 1, so that documents with label 0 have a gain as well.",
        partial(_relabeled, change=lambda label: 2 ** max(label, 0)),
    ),
    ("labels", "The absolute value of negative labels counts; they must count as 0.", partial(_relabeled, change=abs)),
)


# ---- discount, normalizer, stop probability --------------------------------------------------------------------------


def _formulas(measure: Measure) -> Iterator[_Variation]:
    """Other discounts, normalizers and stop probabilities, for measures that have them."""
    definition = measure.definition
    if isinstance(definition, Discounted) and definition.discount is not CONSTANT:
        for sentence, shape in _discounts(definition.discount).items():
            yield _redefined("discount", sentence, definition, discount=Discount("changed", shape))
    if isinstance(definition, Additive) and definition.is_normalized(measure) and measure.cutoff is not None:
        ideal = definition.ideal

        def without_cutoff(measure: Measure, counts: Any, gains: Any = None) -> Any:
            return ideal(replace(measure, cutoff=None), counts, gains)

        sentence = "The ideal ranking is not cut off at rank k, but the ranking is."
        yield _redefined("normalizer", sentence, definition, normalizer=without_cutoff)
    if isinstance(definition, Cascade) and not definition.is_binary(measure):
        stops, discounts = definition.stops, definition.discounts

        def without_earlier(measure: Measure, ranked: Ranked) -> Any:
            query, rank, stop = ranked.weights(lambda labels: stops(measure, labels), measure.cutoff)
            return ranked.sum(query, stop * discounts(measure, rank))

        def certain(measure: Measure, labels: Any) -> Any:
            return np.minimum(stops(measure, labels) / stops(measure, np.array([1])), 1.0)

        sentence = (
            "The documents above a rank make no difference: the probability that the user comes so far is missing."
        )
        yield _redefined("stops", sentence, definition, values=without_earlier)
        sentence = "The probability to stop at a document of label 1 is 1: its divisor is missing."
        yield _redefined("stops", sentence, definition, stops=certain)


def _discounts(known: Discount) -> dict[str, Callable[[Any, float], Any]]:
    shapes: dict[str, Callable[[Any, float], Any]] = {
        "The discount is off by one: rank r has that of rank r + 1, as log2(r + 2) in place of log2(r + 1).": (
            lambda rank, parameter: known.value(rank + 1, parameter)
        ),
        "The discount is off by one: rank r has that of rank r - 1, as log2(r) in place of log2(r + 1).": (
            lambda rank, parameter: known.value(np.maximum(rank - 1, 1), parameter)
        ),
        "There is no discount: all ranks count the same.": CONSTANT.value,
        "The discount is 1 / rank.": RECIPROCAL.value,
        "The discount is 1 / log2(rank + 1).": LOG2.value,
    }
    return {sentence: shape for sentence, shape in shapes.items() if shape != known.value}


def _redefined(group: str, sentence: str, definition: Definition, **attributes: Any) -> _Variation:
    """The definition with other attributes or methods."""
    changed = object.__new__(type(definition))  # copy.copy would return the registered definition itself
    vars(changed).update(vars(definition), **attributes)
    return _of_measures(group, Cause(sentence), lambda each, _: replace(each, definition=changed))


def _other_measures(measure: Measure) -> Iterator[_Variation]:
    """Other measures of the catalog; they must explain most categories, because some agree on many rankings."""
    for definition in definitions():
        if definition is measure.definition or (definition.cutoff == "required" and measure.cutoff is None):
            continue
        name = _as_other(measure, None, definition)
        cause = Cause(f"The values are those of {name}: {definition.summary}.", f"Compare it with {name}.")
        yield _of_measures("settings", cause, partial(_as_other, definition=definition), complete=True)


def _as_other(measure: Measure, _: Query | None, definition: Definition) -> Measure:
    return Measure(definition, measure.cutoff if definition.cutoff != "none" else None)
