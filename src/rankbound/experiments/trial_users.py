"""Trials of users and items: matrix factorization on lists of chosen and sampled items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.data.sampling import UserLists, sample_lists
from rankbound.evaluation import evaluate_lists
from rankbound.experiments.sources import Source, users_fold
from rankbound.experiments.trial import Fitted, Outcome, history_frame, ranker_of, recorded_by, score_frame
from rankbound.experiments.trial_spec import TrialSpec
from rankbound.models.factorization import MatrixFactorization

__all__ = ["run"]

_SEED_STEP = 7919  # every fold and every seed of the study draws its own negatives


def run(spec: TrialSpec, source: Source) -> Outcome:
    """Train on the lists of users and measure on their test lists.

    With selection "validation" the epoch is selected on held-out training choices; with ``refit`` the model is then
    trained for that many epochs on all training choices. With "test" the epoch is selected on the test lists, and with
    "last" the last epoch is used.
    """
    data, options = users_fold(source, spec), spec.users

    def lists_of(train: Any, test: Any) -> tuple[UserLists, UserLists]:
        return sample_lists(
            train, test, train_ratio=options.nsr, test_ratio=options.test_nsr, protocol=options.protocol,
            seed=spec.fold + _SEED_STEP * spec.seed,
        )  # fmt: skip

    train, test = lists_of(data.train, data.test)
    model: MatrixFactorization
    if spec.selection == "validation":
        learn, choose = lists_of(data.learn, data.choose)
        chosen = model = ranker_of(spec).fit(*_columns(learn), eval_set=_columns(choose))
        if options.refit:
            model = ranker_of(spec, epochs=chosen.kept_epoch_, patience=None).fit(*_columns(train))
    elif spec.selection == "test":
        chosen = model = ranker_of(spec, selection="test").fit(*_columns(train), eval_set=_columns(test))
    else:
        chosen = model = ranker_of(spec, selection="last", patience=None).fit(*_columns(train))
    metadata: dict[str, Any] = {"kept_epoch": int(chosen.kept_epoch_), "users": len(train.users)}
    if spec.selection != "last":
        metadata["eval_score"] = float(chosen.eval_score_)
    parts = {"train": train, "test": test}
    recorded = recorded_by(Fitted(spec, model, parts, lambda **changes: ranker_of(spec, **changes)))
    history = history_frame(chosen.history_, spec.selection, recorded)
    return Outcome(score_frame(test.lists, _values(model, test, spec.measures)), history, metadata)


def _values(model: MatrixFactorization, data: UserLists, measures: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    users, items, _ = _columns(data)
    return dict(evaluate_lists(data.lists.with_scores(model.predict(users, items)), measures).values)


def _columns(data: UserLists) -> tuple[Any, Any, Any]:
    return np.repeat(data.users, data.lists.sizes), data.items, data.lists.labels
