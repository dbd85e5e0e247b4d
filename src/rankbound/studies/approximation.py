"""The difference between a smooth measure and the measure that it approximates, along a training.

Figures 1 to 3 of Qin, Liu and Li, "A general approximation framework for direct optimization of information retrieval
measures" (2010).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.evaluation import evaluate_lists
from rankbound.models.by_name import make_loss
from rankbound.studies.store import Store
from rankbound.studies.trial import Fitted
from rankbound.studies.trial_spec import TrialSlot

if TYPE_CHECKING:
    import polars as pl

    from rankbound.data.letor import LetorData

ERROR = "approximation error"
_STEPS = 20  # number of epochs at which the error is measured


def approximation_error(fitted: Fitted) -> Iterator[tuple[int, str, float]]:
    """Mean over queries of abs(smooth measure - measure), on training and test queries, at about 20 epochs.

    The model is trained again and stopped every few epochs; each time it resumes from its checkpoint.
    """
    spec = fitted.spec
    if spec.loss is None:
        raise ArgumentError(f"the approximation error is that of a smooth loss; {spec.model} has none here")
    loss = make_loss(spec.loss, "none", spec.loss_options)
    epochs = int(fitted.model.epochs)
    stops = sorted({max(1, round(epochs * step / _STEPS)) for step in range(1, _STEPS + 1)})
    train = fitted.parts["train"]
    with tempfile.TemporaryDirectory(prefix="rankbound-") as folder:
        for epoch in stops:
            model = fitted.make(epochs=epoch, selection="last", patience=None, checkpoint=folder)
            model.fit(train.features, train.lists.labels, qid=train.lists.query_of_item)
            for name in ("train", "test"):
                data: LetorData = fitted.parts[name]
                scores = model.predict(data.features, qid=data.lists.query_of_item)
                yield epoch, f"{name} {ERROR}", _mean_error(loss, data, scores)


def _mean_error(loss: Any, data: LetorData, scores: Any) -> float:
    plan = loss.plan(data.lists.labels, data.lists.offsets)
    smooth = -loss.value_and_gradient(np.asarray(scores, dtype=np.float64), plan).values
    target = str(loss.target)
    true = evaluate_lists(data.lists.with_scores(scores), [target]).values[target]
    return float(np.abs(smooth - true)[plan.active].mean())


def error_along_training(store: Store, slots: Sequence[TrialSlot], results: pl.DataFrame) -> pl.DataFrame:
    """The approximation errors of the trials that recorded them: table, data, system, fold, epoch, train, test."""
    import polars as pl

    from rankbound.studies.results import history_table

    split = pl.col("quantity").str.strip_suffix(f" {ERROR}").alias("split")
    parts = []
    for table in dict.fromkeys(slot.setting["table"] for slot in slots):  # two tables may have the same systems
        history = history_table(store, [slot for slot in slots if slot.setting["table"] == table])
        if not history.is_empty():
            errors = history.filter(pl.col("quantity").str.ends_with(ERROR))
            parts.append(errors.with_columns(split, pl.lit(table).alias("table")))
    errors = pl.concat(parts) if parts else pl.DataFrame()
    if errors.is_empty():
        return pl.DataFrame()
    return errors.pivot(on="split", index=["table", "data", "system", "fold", "epoch"], values="value").sort(
        "table", "data", "system", "fold", "epoch", maintain_order=True
    )
