"""Scores of pairs of query and document by a cross-encoder or an encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.packages import import_package

if TYPE_CHECKING:
    from numpy.typing import NDArray


def model_scores(
    model: Any,
    queries: Sequence[Any],
    query_of_item: NDArray[np.int64],
    documents: Sequence[Any],
    prompt_name: str | None,
    settings: Mapping[str, Any],
) -> NDArray[np.float64]:
    """Score of each document for its query; ``settings`` are passed to the model, the prompt to cross-encoders only."""
    if hasattr(model, "predict"):
        check_one_output(model)
        identity = import_package("torch").nn.Identity()  # a sigmoid in 32 bits makes ties of high scores
        pairs = [(queries[query], text) for query, text in zip(query_of_item, documents, strict=True)]
        scores = model.predict(pairs, prompt_name=prompt_name, activation_fn=identity, **settings)
        return np.asarray(scores, dtype=np.float64).reshape(-1)
    if hasattr(model, "encode_query") and hasattr(model, "similarity"):
        return _similarities(model, queries, query_of_item, documents, settings)
    raise ArgumentError(f"model must be a cross-encoder or an encoder, got {type(model).__name__}")


def _similarities(
    model: Any,
    queries: Sequence[Any],
    query_of_item: NDArray[np.int64],
    documents: Sequence[Any],
    settings: Mapping[str, Any],
) -> NDArray[np.float64]:
    """Similarity of each document and its query; a text that several queries have is encoded once."""
    row_of = {text: row for row, text in enumerate(dict.fromkeys(documents))}
    encoded_queries = model.encode_query(list(queries), convert_to_tensor=True, **settings)
    encoded = model.encode_document(list(row_of), convert_to_tensor=True, **settings)
    rows = encoded.new_tensor([row_of[text] for text in documents]).long()
    scores = np.empty(len(documents))
    starts = np.flatnonzero(np.diff(query_of_item, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(documents)], strict=True):
        query = encoded_queries[int(query_of_item[start])].unsqueeze(0)
        similarity = model.similarity(query, encoded.index_select(0, rows[start:end]))
        scores[start:end] = similarity.reshape(-1).float().numpy(force=True)
    return scores


def check_one_output(model: Any) -> None:
    """Raise ArgumentError unless the model is a cross-encoder that gives one score to a pair."""
    outputs = getattr(model, "num_labels", None)
    if outputs != 1:
        came = type(model).__name__ + ("" if outputs is None else f" with {outputs}")
        raise ArgumentError(f"model must be a CrossEncoder with one output, got {came}")
