"""Networks: MLPRanker with its defaults but for loss, bounding and learning rate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.quality.training.ndcg import MEASURE
from benchmarks.quality.training.protocols import NETWORKS, Fit, Setting, Settings
from benchmarks.quality.training.sets import Parts

__all__ = ["Network"]


@dataclass(frozen=True)
class Network:
    """MLPRanker with some parameters. A round is an epoch; missing features are replaced by the mean of the column."""

    name: str
    parameters: dict[str, Any]
    references: tuple[str, ...] = ("network softmax", "lambdarank")
    settings: Settings = field(default_factory=lambda: NETWORKS)
    cost: float = 15.0  # of an epoch

    def definition(self) -> str:
        """Return all parameters of the ranker."""
        from rankbound.models import MLPRanker

        return f"MLPRanker {sorted(MLPRanker(**self.parameters).get_params(deep=False).items())}"

    def fit(self, parts: Parts, setting: Setting, seed: int) -> Fit:
        """Train; the ranker itself keeps the weights of the epoch that the protocol selects."""
        from rankbound.models import MLPRanker

        parts = parts.without_nan()
        ranker = MLPRanker(
            **self.parameters, learning_rate=setting.learning_rate, epochs=setting.rounds, patience=setting.patience,
            selection="last" if setting.patience is None else "validation", measure=MEASURE, random_state=seed,
        )  # fmt: skip
        (X, y, qid), held_out = (
            (part.features, part.lists.labels, part.lists.query_of_item) for part in (parts.train, parts.validation)
        )
        ranker.fit(X, y, qid=qid, eval_set=held_out)
        curve = [float(epoch[MEASURE]) for epoch in ranker.history_]
        test = parts.test
        return Fit(curve, lambda _: ranker.predict(test.features, qid=test.lists.query_of_item))
