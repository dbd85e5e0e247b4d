"""Samples of a reranking task, in the form that the evaluators of sentence-transformers take, as lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError
from rankbound.lists import Lists

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RerankingSamples:
    """Queries with the documents to rank and their labels.

    A sample is ``{"query", "positive", "negative"}``, ``{"query", "positive", "documents"}``, where the documents are
    in the order of a first stage and positive ones that it missed are added at the end, or, with graded labels,
    ``{"query", "documents", "labels"}``.

    Attributes
    ----------
    queries, documents:
        The texts of the queries, and those of all documents, query after query.
    lists:
        Labels of the documents, without scores. The ids of the queries are the keys of a dict of samples, else 0, 1, 2.
    retrieved:
        How many documents of each query the first stage returned; they come first. None without a first stage.

    >>> samples = RerankingSamples.of([{"query": "a", "positive": "b", "documents": ["c", "d"]}])
    >>> samples.documents, samples.lists.labels.tolist(), samples.retrieved.tolist()
    (['c', 'd', 'b'], [0, 0, 1], [2])
    """

    queries: list[Any]
    documents: list[Any]
    lists: Lists
    retrieved: NDArray[np.int64] | None

    @classmethod
    def of(cls, samples: Mapping[Any, Mapping[str, Any]] | Iterable[Mapping[str, Any]]) -> RerankingSamples:
        """Read a list, a dict or a data set of samples; DataError names the first one that is not valid."""
        named = samples.items() if isinstance(samples, Mapping) else enumerate(samples)
        names, queries, documents, labels, sizes, retrieved = [], [], [], [], [0], []
        for name, sample in named:
            items, item_labels, depth = _items(sample, f"sample {name!r}")
            names.append(name)
            queries.append(sample["query"])
            documents += items
            labels += item_labels
            sizes.append(len(items))
            retrieved.append(depth)
        if not names:
            raise DataError("samples must have at least one sample, got none")
        ranked = [depth for depth in retrieved if depth is not None]
        return cls(
            queries,
            documents,
            Lists(np.asarray(labels), np.cumsum(sizes), qids=names if isinstance(samples, Mapping) else None),
            np.asarray(ranked) if len(ranked) == len(names) else None,
        )

    def returned_only(self) -> RerankingSamples:
        """The same, where documents that the first stage missed are judged but not ranked."""
        return replace(self, lists=replace(self.lists, depths=self.retrieved))

    def first_stage(self) -> Lists:
        """The ranking of the first stage; DataError without one."""
        if self.retrieved is None:
            raise DataError("the ranking of a first stage needs samples with 'positive' and 'documents', got others")
        return replace(self.lists, scores=-np.arange(len(self.documents), dtype=np.float64), depths=self.retrieved)

    def with_scores(self, scores: NDArray[Any]) -> Lists:
        """The lists with the scores of the returned documents."""
        everywhere = np.zeros(len(self.documents))
        everywhere[self.lists.returned] = scores
        return self.lists.with_scores(everywhere)


def check_documents(documents: Any, owner: str, name: str = "documents") -> list[Any]:
    """Return the documents of a query as a list; DataError names their owner if there are none."""
    if isinstance(documents, str) or not isinstance(documents, Sequence | np.ndarray):
        raise DataError(f"{owner}: {name} must be a list of documents, got {documents!r:.60}")
    if len(documents) == 0:
        raise DataError(f"{owner}: {name} must have at least one document, got none")
    return list(documents)


def _items(sample: Any, owner: str) -> tuple[list[Any], list[Any], int | None]:
    """Documents and labels of a sample, and how many of the documents a first stage returned."""
    if not isinstance(sample, Mapping) or "query" not in sample:
        raise DataError(f"{owner}: must be a dict with the key 'query', got {sample!r:.60}")
    keys = [key for key in ("positive", "negative", "documents", "labels") if sample.get(key) is not None]
    if keys == ["documents", "labels"]:
        documents, labels = check_documents(sample["documents"], owner), list(sample["labels"])
        if len(labels) != len(documents):
            raise DataError(f"{owner}: labels must have one entry per document, {len(documents)}, got {len(labels)}")
        return documents, labels, None
    if keys not in (["positive", "negative"], ["positive", "documents"]):
        allowed = "'positive' and 'negative', 'positive' and 'documents', or 'documents' and 'labels'"
        raise DataError(f"{owner}: must have the keys {allowed}, got {', '.join(map(repr, keys)) or 'none of them'}")
    positive = [sample["positive"]] if isinstance(sample["positive"], str) else list(sample["positive"])
    if keys == ["positive", "negative"]:
        documents = check_documents([*positive, *sample["negative"]], owner, "positive and negative")
        return documents, [1] * len(positive) + [0] * (len(documents) - len(positive)), None
    retrieved = check_documents(sample["documents"], owner)
    missed = [document for document in positive if document not in retrieved]
    return retrieved + missed, [int(document in positive) for document in retrieved] + [1] * len(missed), len(retrieved)
