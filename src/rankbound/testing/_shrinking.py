"""Shrinking: the smallest example of a category that a function still fails on.

Hypothesis shrinks as well, but only what its strategies draw, and it is a test dependency; examples are small enough
for a greedy search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rankbound.testing._examples import Example, Query

__all__ = ["complexity", "shrink"]


def shrink(example: Example, fails: Callable[[Example], bool], *, free: bool, attempts: int = 600) -> Example:
    """Replace the example by a simpler one that fails too, until there is none or the attempts are used up.

    ``free`` says whether the cutoff can be chosen. What is simpler, `complexity` says.
    """
    seen = {example}
    improved = True
    while improved and attempts > 0:
        improved = False
        for candidate in _simpler(example, free):
            if candidate in seen or complexity(candidate) >= complexity(example):
                continue
            seen.add(candidate)
            attempts -= 1
            if fails(candidate):
                example, improved = candidate, True
                break
            if attempts <= 0:
                break
    return example


def complexity(example: Example) -> tuple[float, ...]:
    """What is compared: fewer queries, documents, unjudged ones, small labels, a small cutoff, and simple scores."""
    queries = example.queries
    return (
        len(queries),
        example.documents,
        sum(query.known().count(False) for query in queries),
        sum(abs(label) + (label < 0) for query in queries for label in (*query.labels, *query.not_retrieved)),
        example.k or 0,
        sum(_disorder(query) for query in queries),
        sum(len(query) - len(set(query.scores)) for query in queries),
        sum(10 * (score != int(score)) + len(repr(score)) for query in queries for score in query.scores),
        sum(abs(score) for query in queries for score in query.scores),
    )


def _disorder(query: Query) -> int:
    """Pairs of documents that the input has in the wrong order."""
    return sum(query.scores[i] < query.scores[j] for j in range(len(query)) for i in range(j)) if len(query) < 50 else 0


def _simpler(example: Example, free: bool) -> Iterator[Example]:
    for index in range(len(example.queries)):
        if len(example.queries) > 1:
            yield replace(example, queries=(*example.queries[:index], *example.queries[index + 1 :]))
    for index, query in enumerate(example.queries):
        for smaller in _simpler_queries(query):
            yield replace(example, queries=(*example.queries[:index], smaller, *example.queries[index + 1 :]))
    if len(example.queries) > 1:  # the rows of a 2-D array get shorter together
        for i in range(min(map(len, example.queries))):
            yield replace(example, queries=tuple(_without(query, i, 1) for query in example.queries))
    if free and example.k is not None:
        for k in range(1, example.k):
            yield replace(example, k=k)
            # a cutoff and a document less at once: either alone may leave the category
            if len(example.queries) == 1 and len(example.query) > 1 and k == example.k - 1:
                for i in range(len(example.query)):
                    yield replace(example, queries=(_without(example.query, i, 1),), k=k)


def _simpler_queries(query: Query) -> Iterator[Query]:
    size = len(query) // 2
    while size >= 1:
        for start in range(0, len(query), size):
            yield _without(query, start, size)
        size //= 2
    for i in range(len(query.not_retrieved)):
        yield replace(query, not_retrieved=query.not_retrieved[:i] + query.not_retrieved[i + 1 :])
    if query.judged:
        yield replace(query, judged=())
        for i, known in enumerate(query.judged):
            if not known:
                yield replace(query, judged=(*query.judged[:i], True, *query.judged[i + 1 :]))
    for i, label in enumerate(query.labels):
        for smaller in dict.fromkeys((0, 1, -1, label - 1, label + 1)):
            yield replace(query, labels=(*query.labels[:i], smaller, *query.labels[i + 1 :]))
    for smaller in range(1, max(query.labels, default=0)):  # all labels together, as where they must be equal
        yield replace(query, labels=tuple(min(label, smaller) for label in query.labels))
    order = sorted(range(len(query)), key=lambda i: -query.scores[i])
    yield query.take(order)
    for i in range(len(query) - 1):
        yield query.take([*range(i), i + 1, i, *range(i + 2, len(query))])
    levels = sorted(set(query.scores))
    yield replace(query, scores=tuple(float(levels.index(score) + 1) for score in query.scores))
    if not query.ids:
        distinct = sorted(range(len(query)), key=lambda i: (-query.scores[i], i))
        yield replace(query, scores=tuple(float(len(query) - distinct.index(i)) for i in range(len(query))))
        for i, score in enumerate(query.scores):
            for simple in dict.fromkeys((1.0, 2.0, float(int(score)), score + 1, 0.5, -1.0)):
                yield replace(query, scores=(*query.scores[:i], simple, *query.scores[i + 1 :]))


def _without(query: Query, start: int, size: int) -> Query:
    return query.take([*range(start), *range(start + size, len(query))])
