"""Kinds of examples that a user's measure is checked on. Hypothesis draws them, and shrinks those that fail.

All random choices are made of Hypothesis's booleans: its integers depend on the constants in the modules of the user,
which it collects in a folder ``.hypothesis``, so that equal seeds would give other examples elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from rankbound.errors import DataError
from rankbound.evaluation import evaluate
from rankbound.lists import Lists
from rankbound.measures import Measure
from rankbound.testing._examples import Example, Query

_LARGE = 300  # documents of the longest list
_MOST = 8  # documents of the other lists; all orders of their ties are enumerated
_LARGEST_LABEL = 4
_MORE_BITS = 3  # than a range needs, so that its numbers are about equally probable
_FEW = 5  # examples of categories that have few different ones, or slow ones
_QUIET = settings(
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
    report_multiple_bugs=False,
    print_blob=False,
)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How to draw one example: Hypothesis's ``draw``, the label of relevant documents where labels are binary, the
    largest label, the cutoff of the measure, and whether the function takes k, so that examples can have other cutoffs.
    """

    draw: Callable[[st.SearchStrategy[Any]], Any]
    relevant: int
    top: int
    cutoff: int | None
    takes_k: bool

    @property
    def is_free(self) -> bool:
        """Whether the example can have any cutoff."""
        return self.takes_k and self.cutoff is not None

    def flags(self, low: int, high: int) -> list[bool]:
        """From low to high random booleans; the simplest are few and False."""
        flags: list[bool] = self.draw(st.lists(st.booleans(), min_size=low, max_size=high))
        return flags

    def integer(self, low: int, high: int) -> int:
        """A random integer from low to high, both included; the simplest is low."""
        (number,) = self.integers(low, high, 1, 1)
        return number

    def integers(self, low: int, high: int, fewest: int, most: int) -> list[int]:
        """From ``fewest`` to ``most`` random integers from low to high; the simplest are few and low."""
        bits = (high - low).bit_length() + _MORE_BITS if high > low else 0
        flags = st.lists(st.booleans(), min_size=bits, max_size=bits)
        return [
            low + sum(flag << place for place, flag in enumerate(reversed(drawn))) % (high - low + 1)
            for drawn in self.draw(st.lists(flags, min_size=fewest, max_size=most))
        ]

    def order(self, count: int) -> list[int]:
        """A random permutation; the simplest is the identity."""
        rest = list(range(count))
        return [rest.pop(self.integer(0, len(rest) - 1)) for _ in range(count)]

    @property
    def most(self) -> int:
        """The largest number of documents, at least 2, which the cutoff covers if possible."""
        return max(2, _MOST if self.takes_k or self.cutoff is None else min(self.cutoff, _MOST))

    def binary(self, low: int = 2, high: int = 0, *, mixed: bool = True) -> list[int]:
        """Labels of from low to high documents (as many as the cutoff covers), at least one relevant.

        ``mixed`` says that at least one is not.
        """
        flags = self.flags(low, high or max(low, self.most))
        if not any(flags) or (mixed and all(flags)):
            flags[-1] = not flags[-1]
        return [self.relevant if flag else 0 for flag in flags]

    def example(self, query: Query) -> Example:
        """The query with a cutoff that covers all its documents, where the cutoff can be chosen."""
        return Example((query,), max(len(query), 1) if self.is_free else self.cutoff)


@dataclass(frozen=True, slots=True)
class Category:
    """One kind of input: how to draw an example, and where it applies.

    ``needs`` names the arguments of which a function must take one for the category to apply ("scores" stands for
    everything that scores can be read from); ``cutoff`` is the smallest that the measure must have.
    """

    name: str
    draw: Callable[[Drawing], Example]
    needs: frozenset[str] = frozenset()
    cutoff: int = 0
    graded: bool = False
    few: bool = False

    @property
    def hint(self) -> str:
        """What probably goes wrong where nothing more specific is known."""
        return " ".join((self.draw.__doc__ or "").split())


_SCORES = frozenset({"scores"})
CATEGORIES: list[Category] = []


def _category(name: str, **options: Any) -> Callable[[Callable[[Drawing], Example]], Callable[[Drawing], Example]]:
    """Add a category whose examples the function draws, and whose hint is its docstring."""

    def add(draw: Callable[[Drawing], Example]) -> Callable[[Drawing], Example]:
        CATEGORIES.append(Category(name, draw, **options))
        return draw

    return add


def _plain(labels: Iterable[Any]) -> Query:
    """A query whose documents come in ranked order, with the scores n, n - 1, ..., 1."""
    items = tuple(int(label) for label in labels)
    return Query(items, tuple(float(len(items) - i) for i in range(len(items))))


@_category("binary labels")
def _draw_binary(draw: Drawing) -> Example:
    """The value is wrong for a plain ranking with labels 0 and 1; check the formula, the ranks, which start at 1, and
    the cutoff."""
    return draw.example(_plain(draw.binary()))


@_category("graded labels", graded=True)
def _draw_graded(draw: Drawing) -> Example:
    """Labels above 1 do not count as they should; check the gain of a label."""
    labels = draw.integers(0, draw.top, 2, draw.most)
    if max(labels) < 2:
        labels[-1] = min(2, draw.top)
    if len(set(labels)) == 1:
        labels[0] = 0
    return draw.example(_plain(labels))


@_category("unsorted input", needs=_SCORES)
def _draw_unsorted(draw: Drawing) -> Example:
    """The documents are probably not sorted by descending score."""
    query = _plain(draw.binary())
    order = draw.order(len(query))
    return draw.example(query.take(order[::-1] if order == sorted(order) else order))


@_category("fewer documents than k", cutoff=3)
def _draw_fewer(draw: Drawing) -> Example:
    """The list has fewer than k documents; check loops and slices up to k, and divisors that should be k."""
    k = draw.integer(3, _MOST) if draw.takes_k and draw.integer(0, 1) else max(draw.cutoff or 0, 3)
    return Example((_plain(draw.binary(2, min(k - 1, _MOST), mixed=False)),), k)


@_category("more documents than k", cutoff=1)
def _draw_more(draw: Drawing) -> Example:
    """There are documents below rank k; check that the sum stops at rank k and that all documents count where the ideal
    ranking or the number of relevant documents is computed."""
    if not draw.takes_k:
        k = draw.cutoff or 0
        return Example((_plain(draw.binary(k + 1, k + 5, mixed=False)),), k)
    k, labels = draw.integer(1, 5), draw.binary(2, _MOST, mixed=False)
    return Example((_plain(labels),), min(k, len(labels) - 1))


@_category("ties", needs=_SCORES)
def _draw_ties(draw: Drawing) -> Example:
    """Documents with equal scores are ranked by another rule."""
    if draw.cutoff is not None and draw.integer(0, 1):
        return _draw_ties_across(draw)
    labels = draw.binary(2, min(draw.most, 6))  # so few that all orders of ties can be enumerated
    n = len(labels)
    scores = draw.integers(1, 3, n, n)
    scores[labels.index(0)] = scores[labels.index(draw.relevant)]
    order = sorted(range(n), key=lambda i: -scores[i])
    query = Query(tuple(labels[i] for i in order), tuple(float(scores[i]) for i in order))
    return Example((query,), min(draw.integer(1, 6), n) if draw.is_free else draw.cutoff)


def _draw_ties_across(draw: Drawing) -> Example:
    """The documents at the ranks k and k + 1 are tied and have different labels."""
    k = draw.integer(1, 4) if draw.takes_k else draw.cutoff or 1
    query = _plain(draw.binary(k + 1, k + 3))
    labels, scores = list(query.labels), list(query.scores)
    labels[k] = draw.relevant - labels[k - 1]
    scores[k] = scores[k - 1]
    return Example((Query(tuple(labels), tuple(scores)),), k)


@_category("no relevant documents")
def _draw_no_relevant(draw: Drawing) -> Example:
    """The query has no relevant document, so that the measure is not defined."""
    return draw.example(_plain([0] * (2 + len(draw.flags(0, draw.most - 2)))))


@_category("all documents relevant")
def _draw_all_relevant(draw: Drawing) -> Example:
    """All documents have the same positive label; check for a division by the number of other documents, and for a
    special case of such queries."""
    return draw.example(_plain([draw.integer(draw.relevant, draw.top)] * (2 + len(draw.flags(0, draw.most - 2)))))


@_category("single document")
def _draw_single(draw: Drawing) -> Example:
    """The query has one document; check for a special case of short lists, and for arrays that lose a dimension."""
    return draw.example(_plain([draw.integer(draw.relevant, draw.top)]))


@_category("no documents", few=True)
def _draw_no_documents(draw: Drawing) -> Example:
    """The list is empty, so that the measure is not defined; check for a division by its length, and for its largest
    label."""
    return Example((Query((), ()),), draw.cutoff)


@_category("negative labels", graded=True)
def _draw_negative_labels(draw: Drawing) -> Example:
    """Labels below 0 should count as 0; the function probably uses them as they are, for example as negative gains."""
    labels = [-label for label in draw.integers(0, 2, 2, draw.most)]
    first = draw.integer(0, len(labels) - 1)
    labels[first], labels[first - draw.integer(1, len(labels) - 1)] = draw.relevant, -1
    return draw.example(_plain(labels))


@_category("negative scores", needs=_SCORES)
def _draw_negative_scores(draw: Drawing) -> Example:
    """Scores below 0 are valid; the function probably takes such documents as not retrieved or as padding."""
    query = _plain(draw.binary())
    shift = draw.integer(2, len(query) + 1)
    return draw.example(replace(query, scores=tuple(score - shift for score in query.scores)))


@_category("fractional scores", needs=_SCORES)
def _draw_fractional_scores(draw: Drawing) -> Example:
    """Scores are probably rounded or converted to integers."""
    labels = draw.binary()
    hundredths = [draw.integer(1, 9) for _ in labels]  # differences of scores, so that all are different
    scores = [sum(hundredths[i:]) / 100 for i in range(len(labels))]
    return draw.example(Query(tuple(labels), tuple(scores)))


@_category("large list", few=True)
def _draw_large(draw: Drawing) -> Example:
    """Only long lists give a wrong value; check for limits of length and for sums of low precision."""
    n = draw.integer(_MOST + 1, _LARGE)
    random = np.random.default_rng(draw.integer(0, 999))  # hundreds of choices, too many for Hypothesis
    labels = random.integers(0, draw.top + 1, n) * (random.random(n) < 0.2)
    labels[random.integers(n)] = draw.top
    return Example((_plain(labels).take(random.permutation(n).tolist()),), draw.cutoff)


@_category("relevant documents not retrieved", needs=frozenset({"run", "ranked_ids"}))
def _draw_not_retrieved(draw: Drawing) -> Example:
    """Relevant documents that the run lacks should count in the ideal ranking and in the number of relevant
    documents."""
    query = _plain(draw.binary())
    return draw.example(replace(query, not_retrieved=(draw.relevant,) * draw.integer(1, 3)))


@_category("unjudged documents", needs=frozenset({"run"}))
def _draw_unjudged(draw: Drawing) -> Example:
    """Documents without a judgment should count as not relevant and keep their rank."""
    query = _plain(draw.binary())
    judged = [label > 0 or draw.integer(0, 1) == 1 for label in query.labels]
    judged[query.labels.index(0)] = False
    return draw.example(replace(query, judged=tuple(judged)))


@_category("repeated documents", needs=frozenset({"ranked_ids"}))
def _draw_repeated(draw: Drawing) -> Example:
    """A document that occurs more than once is probably counted each time; only its first rank should count."""
    labels = [draw.relevant, *(draw.relevant * flag for flag in draw.flags(0, draw.most // 2 - 1))]
    ids = [*range(len(labels)), 0, *draw.integers(0, len(labels) - 1, 0, len(labels) - 1)]
    ids = [ids[i] for i in draw.order(len(ids))]
    return draw.example(replace(_plain(labels[i] for i in ids), ids=tuple(ids)))


@_category("several queries", needs=frozenset({"run", "y_score", "rows"}))
def _draw_several(draw: Drawing) -> Example:
    """The values of several queries are not averaged as they should be."""
    first = draw.binary()
    n = len(first)  # one length, because the rows of 2-D arrays have one
    queries = tuple(_plain(labels) for labels in (first, *(draw.binary(n, n) for _ in range(draw.integer(1, 2)))))
    return Example(queries, n if draw.is_free else draw.cutoff)


@dataclass(frozen=True, slots=True)
class Generator:
    """Draws and shrinks the examples of the categories that apply to a function: ``count`` of each."""

    measure: Measure
    takes_k: bool
    graded: bool
    seed: int
    count: int

    def strategy(self, category: Category) -> st.SearchStrategy[Example]:
        """The examples of a category."""
        relevant = max(math.ceil(self.measure.rel), 1)
        top = max(_largest_label(self.measure), relevant) if self.graded else relevant

        @st.composite
        def examples(draw: Any) -> Example:
            return category.draw(Drawing(draw, relevant, top, self.measure.cutoff, self.takes_k))

        return examples()

    def examples(self, category: Category) -> list[Example]:
        """Draw different examples of a category."""
        drawn: dict[Example, None] = {}
        self._run(category, [Phase.generate], lambda example: drawn.update({example: None}))
        return list(drawn)

    def smallest(self, category: Category, fails: Callable[[Example], bool]) -> Example | None:
        """Find the smallest example of a category that fails, among the drawn ones and what they shrink to."""
        failed: list[Example] = []

        def check(example: Example) -> None:
            if fails(example):
                failed.append(example)
                raise _FailingExampleError

        try:
            self._run(category, [Phase.generate, Phase.shrink], check)
        except _FailingExampleError:
            return failed[-1]
        except Flaky:  # the function is not deterministic, or the time is over
            return min(failed, key=lambda example: (example.documents, example.k or 0))
        return None

    def _run(self, category: Category, phases: list[Phase], body: Callable[[Example], None]) -> None:
        most = min(self.count, _FEW) if category.few else self.count

        @seed(self.seed)
        @settings(_QUIET, max_examples=most, phases=phases)
        @given(self.strategy(category))
        def run(example: Example) -> None:
            body(example)

        run()


class _FailingExampleError(Exception):
    pass


def applicable_categories(measure: Measure, roles: Iterable[str], skip: Sequence[str]) -> list[Category]:
    """Return the categories that apply to a function of these arguments ("rows": one entry per query)."""
    roles = frozenset(roles)
    available = roles | ({"scores"} if roles & {"run", "y_score"} else set())
    return [
        category
        for category in CATEGORIES
        if category.name not in skip
        and (not category.needs or category.needs & available)
        and (not category.cutoff or "k" in roles or (measure.cutoff or 0) >= category.cutoff)
        and (not category.graded or "relevant_ids" not in roles)
        and not (category.name == "no documents" and roles & {"run", "y_score"})  # such a query is not in a run
    ]


def _largest_label(measure: Measure) -> int:
    """The largest label that the measure allows, up to 4."""
    for label in range(_LARGEST_LABEL, 1, -1):
        try:
            evaluate(Lists([label], [0, 1], scores=[1.0]), measures=[measure])  # type: ignore[arg-type]
        except DataError:
            continue
        return label
    return 1
