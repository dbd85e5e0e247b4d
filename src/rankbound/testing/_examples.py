"""Examples for a user's measure, and the values that rankbound computes for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rankbound.evaluation import evaluate
from rankbound.lists import Lists
from rankbound.measures import Measure


@dataclass(frozen=True, slots=True)
class Query:
    """One query: the documents that were retrieved, in the order of the input, and judged ones that were not.

    ``judged`` is empty if all retrieved documents are judged. ``ids`` is empty if all documents are different;
    otherwise it has one number per document, and equal numbers stand for the same document.
    """

    labels: tuple[int, ...]
    scores: tuple[float, ...]
    judged: tuple[bool, ...] = ()
    not_retrieved: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def known(self) -> tuple[bool, ...]:
        """Whether each retrieved document is judged."""
        return self.judged or (True,) * len(self)

    def counted_labels(self) -> list[int]:
        """Labels as they count: 0 for documents without judgment, and for a document that occurs again."""
        labels = [label if seen else 0 for label, seen in zip(self.labels, self.known(), strict=True)]
        return [0 if self.ids[i] in self.ids[:i] else label for i, label in enumerate(labels)] if self.ids else labels

    def numbers(self) -> list[int]:
        """The documents as numbers from 1: first the retrieved documents, then the others."""
        ids = self.ids or tuple(range(len(self)))
        others = range(max(ids, default=-1) + 1, max(ids, default=-1) + 1 + len(self.not_retrieved))
        return [number + 1 for number in (*ids, *others)]

    def names(self) -> list[str]:
        """The document ids: d1, d2, ..."""
        return [f"d{number}" for number in self.numbers()]

    def ranked(self) -> Query:
        """The query with its documents sorted by descending score; ties keep their order."""
        return self.take(sorted(range(len(self)), key=lambda i: -self.scores[i]))

    def take(self, documents: Sequence[int]) -> Query:
        """The query with these of its retrieved documents, in this order."""
        return replace(
            self,
            labels=tuple(self.labels[i] for i in documents),
            scores=tuple(self.scores[i] for i in documents),
            judged=tuple(self.judged[i] for i in documents) if self.judged else (),
            ids=tuple(self.ids[i] for i in documents) if self.ids else (),
        )


@dataclass(frozen=True, slots=True)
class Example:
    """Input of one call: one query, or several whose mean is expected, and the cutoff."""

    queries: tuple[Query, ...]
    k: int | None

    @property
    def query(self) -> Query:
        """The only query."""
        (query,) = self.queries
        return query

    @property
    def documents(self) -> int:
        """Number of documents, retrieved or not."""
        return sum(len(query) + len(query.not_retrieved) for query in self.queries)


@dataclass(frozen=True, slots=True)
class Expected:
    """The right values of the queries and their mean, NaN where they are left out; and whether all are undefined."""

    per_query: tuple[float, ...]
    mean: float
    undefined: bool


def to_lists(queries: Sequence[Query]) -> Lists:
    """The queries as Lists; documents that were not retrieved come last and have no score."""
    labels = [label for query in queries for label in (*query.counted_labels(), *query.not_retrieved)]
    scores = [score for query in queries for score in (*query.scores, *([0.0] * len(query.not_retrieved)))]
    judged = [known for query in queries for known in (*query.known(), *([True] * len(query.not_retrieved)))]
    sizes = [len(query) + len(query.not_retrieved) for query in queries]
    return Lists(
        np.array(labels, dtype=np.int64),
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        np.array(scores, dtype=np.float64),
        ids=np.array([name for query in queries for name in query.names()], dtype=str),
        depths=np.array([len(query) for query in queries]),
        judged=np.array(judged, dtype=bool),
    )


def expected_values(examples: Sequence[Example], measure: Measure, ties: str, empty: str) -> list[Expected]:
    """The right values of each example."""
    result: dict[int, Expected] = {}
    single = [i for i, example in enumerate(examples) if len(example.queries) == 1]
    groups = [[i for i in single if examples[i].k == k] for k in dict.fromkeys(examples[i].k for i in single)]
    groups += [[i] for i, example in enumerate(examples) if len(example.queries) > 1]
    for group in groups:
        at_k = replace(measure, cutoff=examples[group[0]].k)
        queries = [query for i in group for query in examples[i].queries]
        evaluation = evaluate(to_lists(queries), measures=[at_k], ties=ties, empty=empty)
        values, undefined = evaluation.values[str(at_k)].tolist(), evaluation.empty[str(at_k)].tolist()
        if len(examples[group[0]].queries) == 1:
            result |= {
                i: Expected((value,), value, flag) for i, value, flag in zip(group, values, undefined, strict=True)
            }
        else:
            result[group[0]] = Expected(tuple(values), evaluation.mean()[str(at_k)], all(undefined))
    return [result[i] for i in range(len(examples))]
