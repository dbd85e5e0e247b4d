"""Trials of users and items: matrix factorization on lists of chosen and sampled items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.data.sampling import UserLists, sample_lists
from rankbound.evaluation import evaluate_lists
from rankbound.experiments.sources import Source, users_fold
from rankbound.experiments.trial import Fitted, Outcome, history_frame, ranker_of, recorded_by, score_frame
from rankbound.models.factorization import MatrixFactorization

__all__ = ["run"]

_SEED_STEP = 7919  # folds draw their negatives from seeds of their own, and so does every seed of the study


def run(spec: Mapping[str, Any], source: Source) -> Outcome:
    """Train on users' lists and measure their test lists.

    selection "validation": the epoch is chosen on a part of the training choices, on which the model is not trained;
    with ``refit`` it is then trained for so many epochs on all of them. "test": the epoch is chosen on the test lists.
    "last": nothing is chosen.
    """
    data = users_fold(source, spec)

    def lists_of(train: Any, test: Any) -> tuple[UserLists, UserLists]:
        return sample_lists(
            train, test, train_ratio=spec["nsr"], test_ratio=spec["test_nsr"], protocol=spec["protocol"],
            seed=spec["fold"] + _SEED_STEP * spec["seed"],
        )  # fmt: skip

    train, test = lists_of(data.train, data.test)
    model: MatrixFactorization
    if spec["selection"] == "validation":
        learn, choose = lists_of(data.learn, data.choose)
        chosen = model = ranker_of(spec).fit(*_columns(learn), eval_set=_columns(choose))
        if spec["refit"]:
            model = ranker_of(spec, epochs=chosen.kept_epoch_, patience=None).fit(*_columns(train))
    elif spec["selection"] == "test":
        chosen = model = ranker_of(spec, selection="test").fit(*_columns(train), eval_set=_columns(test))
    else:
        chosen = model = ranker_of(spec, selection="last", patience=None).fit(*_columns(train))
    metadata: dict[str, Any] = {"kept_epoch": int(chosen.kept_epoch_), "users": len(train.users)}
    if spec["selection"] != "last":
        metadata["eval_score"] = float(chosen.eval_score_)
    parts = {"train": train, "test": test}
    recorded = recorded_by(Fitted(spec, model, parts, lambda **changes: ranker_of(spec, **changes)))
    history = history_frame(chosen.history_, spec["selection"], recorded)
    return Outcome(score_frame(test.lists, _values(model, test, spec["measures"])), history, metadata)


def _values(model: MatrixFactorization, part: UserLists, measures: list[str]) -> dict[str, NDArray[np.float64]]:
    users, items, _ = _columns(part)
    return dict(evaluate_lists(part.lists.with_scores(model.predict(users, items)), measures).values)


def _columns(part: UserLists) -> tuple[Any, Any, Any]:
    return np.repeat(part.users, part.lists.sizes), part.items, part.lists.labels
