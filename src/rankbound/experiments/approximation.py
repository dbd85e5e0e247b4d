"""How far a smooth measure lies from the measure that it stands for while it is trained (direct optimization paper)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.evaluation import evaluate_lists
from rankbound.experiments.store import Placed, Store
from rankbound.experiments.trial import Fitted
from rankbound.models.by_name import make_loss

if TYPE_CHECKING:
    import polars as pl

    from rankbound.data.letor import LetorData

__all__ = ["ERROR", "approximation_error", "error_along_training"]

ERROR = "approximation error"
_STEPS = 20  # stops along a training


def approximation_error(fitted: Fitted) -> Iterator[tuple[int, str, float]]:
    """Mean over queries of |smooth measure - measure|, of training and test queries, some 20 times along the training.

    The model is trained anew and stopped every few epochs; each time it goes on from its checkpoint.
    """
    spec = fitted.spec
    loss = make_loss(spec["loss"], "none", spec["loss_options"])
    epochs = int(fitted.model.epochs)
    stops = sorted({max(1, round(epochs * step / _STEPS)) for step in range(1, _STEPS + 1)})
    train = fitted.parts["train"]
    with tempfile.TemporaryDirectory(prefix="rankbound-") as folder:
        for epoch in stops:
            model = fitted.make(epochs=epoch, selection="last", patience=None, checkpoint=folder)
            model.fit(train.features, train.lists.labels, qid=train.lists.query_of_item)
            for name in ("train", "test"):
                part: LetorData = fitted.parts[name]
                yield epoch, f"{name} {ERROR}", _mean_error(loss, part, model.predict(part.features))


def _mean_error(loss: Any, part: LetorData, scores: Any) -> float:
    plan = loss.plan(part.lists.labels, part.lists.offsets)
    smooth = -loss.value_and_gradient(np.asarray(scores, dtype=np.float64), plan).values
    target = str(loss.target)
    true = evaluate_lists(part.lists.with_scores(scores), [target]).values[target]
    return float(np.abs(smooth - true)[plan.active].mean())


def error_along_training(store: Store, placed: Sequence[Placed], results: pl.DataFrame) -> pl.DataFrame:
    """The approximation errors of all trials that recorded them: table, data, system, fold, epoch, train, test."""
    import polars as pl

    from rankbound.experiments.results import history_table

    tables = {(one.setting["data"], one.system): one.setting["table"] for one in placed}
    history = history_table(store, placed)
    if history.is_empty():
        return pl.DataFrame()
    part = pl.col("quantity").str.strip_suffix(f" {ERROR}").alias("part")
    errors = history.filter(pl.col("quantity").str.ends_with(ERROR)).with_columns(part)
    named = [tables[key] for key in errors.select("data", "system").iter_rows()]
    return (
        errors.with_columns(pl.Series("table", named, dtype=pl.String))
        .pivot(on="part", index=["table", "data", "system", "fold", "epoch"], values="value")
        .sort("table", "data", "system", "fold", "epoch", maintain_order=True)
    )
