"""The battery: the categories of examples that a user's measure is checked on, and how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rankbound.errors import DataError
from rankbound.evaluation import evaluate
from rankbound.lists import Lists
from rankbound.measures import Measure
from rankbound.testing._examples import Example, Query

__all__ = ["CATEGORIES", "Category", "battery"]

_LARGE = 300  # documents of a large list
_MOST = 8  # documents of the other lists; all orders of their ties are enumerated
_LARGEST_LABEL = 4


# ---- categories ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Category:
    """One kind of input: how to draw an example, what all its examples have in common, and where it applies.

    ``needs`` names the arguments of which a function must take one for the category to apply ("scores" stands for
    everything that scores can be read from); ``cutoff`` says that the measure must have a cutoff. ``hint`` is what
    probably goes wrong where nothing more specific is known.
    """

    name: str
    draw: Callable[[Drawing], Example]
    holds: Callable[[Example], bool]
    hint: str
    needs: frozenset[str] = frozenset()
    cutoff: bool = False
    graded: bool = False
    few: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """How to draw examples: the random generator, the label of relevant documents where labels are binary, the largest
    label, the cutoff of the measure, and whether the function takes k, so that examples can have other cutoffs."""

    random: np.random.Generator
    relevant: int
    top: int
    cutoff: int | None
    free: bool

    def integer(self, low: int, high: int) -> int:
        """A random integer from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def size(self) -> int:
        """A number of documents, at least 2, that the cutoff covers if possible."""
        return self.integer(2, max(2, _MOST if self.free or self.cutoff is None else min(self.cutoff, _MOST)))

    def binary(self, n: int) -> list[int]:
        """Binary labels, both kinds at least once."""
        relevant = self.random.permutation(n) < self.integer(1, n - 1)
        return [self.relevant if flag else 0 for flag in relevant]

    def example(self, query: Query) -> Example:
        """The query with a cutoff that covers all its documents, where the cutoff can be chosen."""
        return Example((query,), max(len(query), 1) if self.free and self.cutoff is not None else self.cutoff)


def _plain(labels: Iterable[Any]) -> Query:
    """A query whose documents come in ranked order, with the scores n, n - 1, ..., 1."""
    items = tuple(int(label) for label in labels)
    return Query(items, tuple(float(len(items) - i) for i in range(len(items))))


def _draw_binary(draw: Drawing) -> Example:
    return draw.example(_plain(draw.binary(draw.size())))


def _draw_graded(draw: Drawing) -> Example:
    n = draw.size()
    labels = draw.random.integers(0, draw.top + 1, n)
    labels[draw.integer(0, n - 1)] = draw.integer(min(2, draw.top), draw.top)
    return draw.example(_plain(labels))


def _draw_unsorted(draw: Drawing) -> Example:
    query = _plain(draw.binary(draw.size()))
    return draw.example(query.take([int(i) for i in draw.random.permutation(len(query))]))


def _draw_ties(draw: Drawing) -> Example:
    if draw.cutoff is not None and draw.integer(0, 1):
        return _draw_ties_across(draw)
    n = min(draw.size(), 6)  # so few that all orders of ties can be enumerated
    labels = draw.binary(n)
    scores = draw.random.integers(1, max(2, n // 2) + 1, n)
    scores[labels.index(0)] = scores[labels.index(draw.relevant)]
    order = np.argsort(-scores, kind="stable")
    query = Query(tuple(labels[i] for i in order), tuple(float(scores[i]) for i in order))
    return Example((query,), draw.integer(1, n) if draw.free and draw.cutoff is not None else draw.cutoff)


def _draw_ties_across(draw: Drawing) -> Example:
    """The documents at the ranks k and k + 1 are tied and have different labels."""
    k = draw.integer(1, 4) if draw.free else draw.cutoff or 1
    query = _plain(draw.binary(k + draw.integer(1, 3)))
    labels, scores = list(query.labels), list(query.scores)
    labels[k] = draw.relevant - labels[k - 1]
    scores[k] = scores[k - 1]
    return Example((Query(tuple(labels), tuple(scores)),), k)


def _draw_no_relevant(draw: Drawing) -> Example:
    return draw.example(_plain([0] * draw.size()))


def _draw_all_relevant(draw: Drawing) -> Example:
    return draw.example(_plain([draw.integer(draw.relevant, draw.top)] * draw.size()))


def _draw_single(draw: Drawing) -> Example:
    return draw.example(_plain([draw.integer(draw.relevant, draw.top)]))


def _draw_no_documents(draw: Drawing) -> Example:
    return Example((Query((), ()),), draw.cutoff)


def _draw_fewer(draw: Drawing) -> Example:
    k = draw.integer(3, _MOST) if draw.free and draw.integer(0, 1) else draw.cutoff or 0
    return Example((_plain(draw.binary(draw.integer(2, max(min(k - 1, _MOST), 2)))),), k)


def _draw_more(draw: Drawing) -> Example:
    k = draw.integer(1, 5) if draw.free else draw.cutoff or 0
    return Example((_plain(draw.binary(k + draw.integer(1, 5))),), k)


def _draw_negative_labels(draw: Drawing) -> Example:
    n = draw.size()
    labels = draw.random.integers(-2, 1, n)
    first, second = draw.random.choice(n, 2, replace=False)
    labels[first], labels[second] = draw.relevant, -1
    return draw.example(_plain(labels))


def _draw_negative_scores(draw: Drawing) -> Example:
    query = _plain(draw.binary(draw.size()))
    shift = draw.integer(2, len(query) + 1)
    return draw.example(replace(query, scores=tuple(score - shift for score in query.scores)))


def _draw_fractional_scores(draw: Drawing) -> Example:
    labels = draw.binary(draw.size())
    scores = sorted((draw.random.permutation(100)[: len(labels)] / 100).tolist(), reverse=True)
    return draw.example(Query(tuple(labels), tuple(scores)))


def _draw_large(draw: Drawing) -> Example:
    labels = draw.random.integers(0, draw.top + 1, _LARGE) * (draw.random.random(_LARGE) < 0.2)
    labels[draw.integer(0, _LARGE - 1)] = draw.top
    return Example((_plain(labels).take([int(i) for i in draw.random.permutation(_LARGE)]),), draw.cutoff)


def _draw_not_retrieved(draw: Drawing) -> Example:
    query = _plain(draw.binary(draw.size()))
    return draw.example(replace(query, not_retrieved=(draw.relevant,) * draw.integer(1, 3)))


def _draw_unjudged(draw: Drawing) -> Example:
    query = _plain(draw.binary(draw.size()))
    judged = [label > 0 or draw.integer(0, 1) == 1 for label in query.labels]
    judged[query.labels.index(0)] = False
    return draw.example(replace(query, judged=tuple(judged)))


def _draw_repeated(draw: Drawing) -> Example:
    n = max(draw.size() // 2, 1)
    labels = [draw.relevant, *(draw.relevant * draw.integer(0, 1) for _ in range(n - 1))]
    ids = [*range(n), 0, *(draw.integer(0, n - 1) for _ in range(n - 1))]
    ids = [ids[i] for i in draw.random.permutation(len(ids))]
    return draw.example(replace(_plain(labels[i] for i in ids), ids=tuple(ids)))


def _draw_several(draw: Drawing) -> Example:
    n = draw.size()  # one length, because the rows of 2-D arrays have one
    queries = tuple(_plain(draw.binary(n)) for _ in range(draw.integer(2, 3)))
    return Example(queries, n if draw.free and draw.cutoff is not None else draw.cutoff)


def _is_sorted(query: Query) -> bool:
    return list(query.scores) == sorted(query.scores, reverse=True)


def _is_plain(query: Query) -> bool:
    """Whether the documents come in ranked order, all retrieved and judged, without ties and negative labels."""
    return _is_sorted(query) and _is_distinct(query) and not query.judged and not query.not_retrieved and not query.ids


def _are_copies(query: Query) -> bool:
    """Whether equal ids have equal labels, and some document is relevant."""
    return len(set(zip(query.ids, query.labels, strict=True))) == len(set(query.ids)) and _any(query)


def _any(query: Query) -> bool:
    return max(query.labels, default=0) > 0


def _is_same(query: Query) -> bool:
    return len(set(query.labels)) == 1


def _is_distinct(query: Query) -> bool:
    return len(set(query.scores)) == len(query) and min(query.labels, default=0) >= 0


def _is_binary(query: Query) -> bool:
    return 0 in query.labels and len(set(query.labels)) == 2 and _is_distinct(query)


_SCORES = frozenset({"scores"})
CATEGORIES: tuple[Category, ...] = (
    Category(
        "binary labels",
        _draw_binary,
        lambda example: _is_plain(example.query) and _is_binary(example.query) and min(example.query.scores) > 0,
        "The value is wrong for a plain ranking with labels 0 and 1; check the formula, the ranks, which start at 1, "
        "and the cutoff.",
    ),
    Category(
        "graded labels",
        _draw_graded,
        lambda example: _is_plain(example.query) and max(example.query.labels) > 1 and not _is_same(example.query),
        "Labels above 1 do not count as they should; check the gain of a label.",
        graded=True,
    ),
    Category(
        "unsorted input",
        _draw_unsorted,
        lambda example: not _is_sorted(example.query) and _is_binary(example.query),
        "The documents are probably not sorted by descending score.",
        needs=_SCORES,
    ),
    Category(
        "fewer documents than k",
        _draw_fewer,
        lambda example: 1 < len(example.query) < (example.k or 0) and _is_plain(example.query) and _any(example.query),
        "The list has fewer than k documents; check loops and slices up to k, and divisors that should be k.",
        cutoff=True,
    ),
    Category(
        "more documents than k",
        _draw_more,
        lambda example: len(example.query) > (example.k or 0) and _is_plain(example.query) and _any(example.query),
        "There are documents below rank k; check that the sum stops at rank k and that all documents count where the "
        "ideal ranking or the number of relevant documents is computed.",
        cutoff=True,
    ),
    Category(
        "ties",
        _draw_ties,
        lambda example: any(
            a == b and x != y
            for i, (a, x) in enumerate(zip(example.query.scores, example.query.labels, strict=True))
            for b, y in zip(example.query.scores[:i], example.query.labels[:i], strict=True)
        ),
        "Documents with equal scores are ranked by another rule.",
        needs=_SCORES,
    ),
    Category(
        "no relevant documents",
        _draw_no_relevant,
        lambda example: len(example.query) > 0 and not any(example.query.labels),
        "The query has no relevant document, so that the measure is not defined.",
    ),
    Category(
        "all documents relevant",
        _draw_all_relevant,
        lambda example: len(example.query) > 1 and len(set(example.query.labels)) == 1 and example.query.labels[0] > 0,
        "All documents have the same positive label; check for a division by the number of other documents, and for a "
        "special case of such queries.",
    ),
    Category(
        "single document",
        _draw_single,
        lambda example: len(example.query) == 1 and example.query.labels[0] > 0,
        "The query has one document; check for a special case of short lists, and for arrays that lose a dimension.",
    ),
    Category(
        "no documents",
        _draw_no_documents,
        lambda example: example.documents == 0,
        "The list is empty, so that the measure is not defined; check for a division by its length, and for its "
        "largest label.",
        few=True,
    ),
    Category(
        "negative labels",
        _draw_negative_labels,
        lambda example: min(example.query.labels) < 0 and max(example.query.labels) > 0,
        "Labels below 0 should count as 0; the function probably uses them as they are, for example as negative gains.",
        graded=True,
    ),
    Category(
        "negative scores",
        _draw_negative_scores,
        lambda example: min(example.query.scores) < 0 and _is_binary(example.query),
        "Scores below 0 are valid; the function probably takes such documents as not retrieved or as padding.",
        needs=_SCORES,
    ),
    Category(
        "fractional scores",
        _draw_fractional_scores,
        lambda example: any(score != int(score) for score in example.query.scores) and _is_binary(example.query),
        "Scores are probably rounded or converted to integers.",
        needs=_SCORES,
    ),
    Category(
        "large list",
        _draw_large,
        lambda example: len(example.query) > _MOST and _any(example.query),
        "Only long lists give a wrong value; check for limits of length and for sums of low precision.",
        few=True,
    ),
    Category(
        "relevant documents not retrieved",
        _draw_not_retrieved,
        lambda example: any(label > 0 for label in example.query.not_retrieved) and _is_binary(example.query),
        "Relevant documents that the run lacks should count in the ideal ranking and in the number of relevant "
        "documents.",
        needs=frozenset({"run", "ranked_ids"}),
    ),
    Category(
        "unjudged documents",
        _draw_unjudged,
        lambda example: not all(example.query.judged) and any(example.query.labels),
        "Documents without a judgment should count as not relevant and keep their rank.",
        needs=frozenset({"run"}),
    ),
    Category(
        "repeated documents",
        _draw_repeated,
        lambda example: 0 < len(set(example.query.ids)) < len(example.query) and _are_copies(example.query),
        "A document that occurs more than once is probably counted each time; only its first rank should count.",
        needs=frozenset({"ranked_ids"}),
    ),
    Category(
        "several queries",
        _draw_several,
        lambda example: len(example.queries) > 1 and all(_is_binary(query) for query in example.queries),
        "The values of several queries are not averaged as they should be.",
        needs=frozenset({"run", "y_score"}),
    ),
)


def battery(
    measure: Measure, roles: Iterable[str], *, seed: int, examples: int, skip: Sequence[str] = ()
) -> dict[Category, list[Example]]:
    """Draw about ``examples`` examples, spread over the categories that apply to the function.

    ``roles`` are the arguments that the function takes; a function that takes ``k`` is checked at other cutoffs, too.
    """
    roles = frozenset(roles)
    available = roles | ({"scores"} if roles & {"run", "y_score"} else set())
    graded = "relevant_ids" not in roles
    chosen = [
        category
        for category in CATEGORIES
        if category.name not in skip
        and (not category.needs or category.needs & available)
        and (not category.cutoff or measure.cutoff is not None)
        and (not category.graded or graded)
        and not (category.name == "no documents" and roles & {"run", "y_score"})  # such a query is not in a run
    ]
    relevant = max(math.ceil(measure.rel), 1)
    top = max(_largest_label(measure), relevant) if graded else relevant
    cases: dict[Category, list[Example]] = {}
    for index, category in enumerate(chosen):
        drawing = Drawing(np.random.default_rng([seed, index]), relevant, top, measure.cutoff, "k" in roles)
        count = max(examples // len(chosen), 1)
        drawn = [category.draw(drawing) for _ in range(min(count, 3) if category.few else count)]
        fitting = [example for example in dict.fromkeys(drawn) if category.holds(example)]
        if fitting:
            cases[category] = fitting
    return cases


def _largest_label(measure: Measure) -> int:
    """The largest label that the measure allows, up to 4."""
    for label in range(_LARGEST_LABEL, 1, -1):
        try:
            evaluate(Lists([label], [0, 1], scores=[1.0]), measures=[measure])  # type: ignore[arg-type]
        except DataError:
            continue
        return label
    return 1
