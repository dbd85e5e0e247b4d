"""Losses of rankbound for the trainer of cross-encoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

import rankbound
from rankbound.errors import ArgumentError, DataError
from rankbound.integrations.sentence_transformers.samples import check_documents
from rankbound.integrations.sentence_transformers.scoring import check_one_output
from rankbound.packages import import_package

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses import RankingLoss
    from rankbound.measures import Measure

torch = import_package("torch")
_SOFTWARE = """
@software{{rankbound,
    title={{rankbound: learning to rank that knows how hard each query is}},
    author={{{{The rankbound developers}}}},
    version={{{version}}}
}}
"""
_BOUNDING = """
@mastersthesis{westerborg2022bounding,
    title={User/Query-wise Metric Bounding in Learning to Rank},
    author={Westerborg, Ties},
    school={TU Delft},
    year={2022}
}
"""


class CrossEncoderRankingLoss(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch ships no types we follow
    """Any loss of rankbound for ``CrossEncoderTrainer``.

    It takes the inputs of the library's listwise losses: a column of queries, a column of lists of documents, and a
    column ``labels`` of lists of numbers, one for each document. Lists may differ in length; nothing is padded.

    Parameters
    ----------
    model:
        The ``CrossEncoder`` to train, with one output.
    loss:
        A name such as ``"softmax"``, ``"nDCG@10"``, ``"AP"`` or ``"lambda-nDCG"``, or an object; see
        `rankbound.losses.get_loss`.
    activation_fn:
        Module that is applied to the outputs of the model first; None takes them as they are.
    mini_batch_size:
        Pairs of query and document in a forward pass of the model; None takes as many as there are queries in the
        batch, and 0 takes all pairs at once, as in the losses of the library.
    options:
        Options of a loss that is given by its name, such as ``bounding="expectation-max"``.

    A query without documents, or with another number of labels than documents, raises DataError. Queries on which all
    rankings are equal have neither loss nor gradient.
    """

    def __init__(
        self,
        model: Any,
        loss: str | Measure | RankingLoss = "softmax",
        *,
        activation_fn: Any = None,
        mini_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        from rankbound.losses import get_loss

        import_package("sentence_transformers.base")  # since 5.4
        check_one_output(model)
        if mini_batch_size is not None and (isinstance(mini_batch_size, bool) or not isinstance(mini_batch_size, int)):
            raise ArgumentError(f"mini_batch_size must be an integer or None, got {mini_batch_size!r}")
        self.model = model
        self.ranking_loss = get_loss(loss, **options)
        if self.ranking_loss.reduction == "none":
            raise ArgumentError("reduction must be 'mean' or 'sum' in training, got 'none'")
        self.activation_fn = torch.nn.Identity() if activation_fn is None else activation_fn
        self.mini_batch_size = mini_batch_size

    def forward(
        self, inputs: Sequence[Sequence[Any]], labels: Sequence[Any], prompt: str | None = None, task: str | None = None
    ) -> Any:
        """Compute the loss of a batch: ``inputs`` are the queries and, for each, its documents."""
        queries, documents, flat_labels = _checked_batch(inputs, labels)
        pairs = [(query, text) for query, texts in zip(queries, documents, strict=True) for text in texts]
        offsets = np.concatenate(([0], np.cumsum([len(texts) for texts in documents])))
        size = len(queries) if self.mini_batch_size is None else self.mini_batch_size
        scores = self._scores(pairs, size if size > 0 else len(pairs), prompt=prompt, task=task)
        return self.ranking_loss(self.activation_fn(scores), flat_labels, offsets)

    def _scores(self, pairs: list[Any], size: int, **settings: str | None) -> Any:
        parts = []
        for start in range(0, len(pairs), size):
            features = self.model.preprocess(pairs[start : start + size], **settings)
            features = {
                key: value.to(self.model.device) if isinstance(value, torch.Tensor) else value
                for key, value in features.items()
            }
            parts.append(self.model(features)["scores"].reshape(-1))
        return torch.cat(parts).float()

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        loss, activation = self.ranking_loss, type(self.activation_fn)
        settings = {field.name: getattr(loss, field.name) for field in fields(loss) if field.init}
        return {
            "loss": type(loss).__name__,
            **{name: value if _is_plain(value) else str(value) for name, value in settings.items()},
            "activation_fn": f"{activation.__module__}.{activation.__qualname__}",
            "mini_batch_size": self.mini_batch_size,
        }

    @property
    def citation(self) -> str:
        """BibTeX of rankbound and, where the loss is bounded, of the source of the boundings."""
        is_bounded = getattr(self.ranking_loss, "bounding", "none") != "none"
        return _SOFTWARE.format(version=rankbound.__version__) + (_BOUNDING if is_bounded else "")


def _checked_batch(inputs: Any, labels: Any) -> tuple[Any, list[list[Any]], NDArray[Any]]:
    """Queries, lists of documents, and the flat labels of a batch; DataError names what does not fit."""
    if len(inputs) != 2:
        raise DataError(f"inputs must be a column of queries and one of lists of documents, got {len(inputs)} columns")
    if labels is None or (isinstance(labels, torch.Tensor) and labels.ndim < 2):
        came = "none" if labels is None else f"one number per query, shape {tuple(labels.shape)}"
        raise DataError(f"labels must be a list of labels for each query, in a column 'labels', got {came}")
    queries, columns = inputs
    if not len(queries) == len(columns) == len(labels):
        counts = f"{len(queries)} queries, {len(columns)} lists of documents and {len(labels)} of labels"
        raise DataError(f"queries, documents and labels must have the same length, got {counts}")
    documents, numbers = [], []
    for query, texts, row in zip(queries, columns, labels, strict=True):
        owner = f"query {str(query)!r:.60}"
        documents.append(check_documents(texts, owner))
        if len(row) != len(texts):
            raise DataError(f"{owner}: labels must have one entry per document, {len(texts)}, got {len(row)}")
        numbers.append(torch.as_tensor(row).numpy(force=True))
    return queries, documents, np.concatenate(numbers)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)
