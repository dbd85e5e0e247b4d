"""Trials of users and items: recommenders, tested on lists of chosen and sampled items or on the whole catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankbound.data.interactions import Interactions
from rankbound.data.sampling import UserLists, sample_lists
from rankbound.evaluation import evaluate_lists
from rankbound.models.recommenders.factorization.held_out import HeldOutInteractions
from rankbound.models.recommenders.full_ranking import evaluate_full_ranking
from rankbound.studies.sources import Source, Users, users_fold
from rankbound.studies.trial import Fitted, Outcome, history_frame, outcome_of, ranker_of, score_frame
from rankbound.studies.trial_spec import TrialSpec

_SEED_STEP = 7919  # every fold and every seed of the study draws its own negatives

Scores = Callable[[NDArray[Any]], NDArray[np.float32]]  # codes of users -> scores of all items


def run(spec: TrialSpec, source: Source) -> Outcome:
    """Train a recommender on the choices of users and measure it on their test items.

    `MatrixFactorization` learns from lists with sampled negative items. With selection "validation" its epoch is
    selected on such lists of held-out training choices, or by full ranking of them if it is tested so; with ``refit``
    the model is then trained for that many epochs on all training choices. With "test" the epoch is selected on the
    test data, and with "last" the last epoch is used. Other recommenders have no epochs and learn from the choices
    alone.

    With ``test = "full"`` the candidates of a user are all items but those of training, in the scores of the trial and
    in the ``eval_score`` by which grid points are selected.
    """
    data = users_fold(source, spec)
    if spec.model == "MatrixFactorization":
        return _run_on_lists(spec, data)
    model = ranker_of(spec).fit(data.train)
    metadata: dict[str, Any] = {"users": int(np.count_nonzero(data.train.per_user))}
    if spec.selection == "test":
        metadata["eval_score"] = _mean(model._score_block, data.train, data.test, spec)
    elif spec.selection == "validation":
        metadata["eval_score"] = _mean(ranker_of(spec).fit(data.learn)._score_block, data.learn, data.choose, spec)
    scores = _scores(model._score_block, data.train, data.test, spec)
    return Outcome(scores, history_frame([], spec.selection), metadata)


def _run_on_lists(spec: TrialSpec, data: Users) -> Outcome:
    train, test = _lists(data.train, data.test, spec)
    if spec.selection == "validation":
        learn, choose = _lists(data.learn, data.choose, spec)
        held_out: Any = (data.learn, data.choose) if spec.users.select == "full" else _columns(choose)
        chosen = model = ranker_of(spec).fit(*_columns(learn), eval_set=held_out)
        if spec.users.refit:
            model = ranker_of(spec, epochs=chosen.kept_epoch_, patience=None).fit(*_columns(train))
    elif spec.selection == "test":
        held_out = (data.train, data.test) if spec.users.select == "full" else _columns(test)
        chosen = model = ranker_of(spec, selection="test").fit(*_columns(train), eval_set=held_out)
    else:
        chosen = model = ranker_of(spec, selection="last", patience=None).fit(*_columns(train))
    metadata: dict[str, Any] = {"users": len(train.users)}
    if notes := "; ".join(dict.fromkeys((*train.notes, *test.notes))):
        metadata["notes"] = notes
    if spec.users.test == "full":
        products = HeldOutInteractions(data.train, data.test).products(model.user_vectors_, model.item_vectors_)
        scores = _scores(products, data.train, data.test, spec)
    else:
        scores = score_frame(test.lists, _values(model.predict(*_columns(test)[:2]), test, spec.measures))
    fitted = Fitted(spec, model, {"train": train, "test": test})
    return outcome_of(fitted, scores, spec.selection, metadata, chosen=chosen)


def _lists(train: Interactions, test: Interactions, spec: TrialSpec) -> tuple[UserLists, UserLists]:
    options = spec.users
    return sample_lists(
        train,
        test,
        train_ratio=options.nsr,
        test_ratio=options.test_nsr,
        protocol=options.protocol,
        seed=spec.fold + _SEED_STEP * spec.seed,
    )


def _columns(data: UserLists) -> tuple[Any, Any, Any]:
    return np.repeat(data.users, data.lists.sizes), data.items, data.lists.labels


def _values(scores: NDArray[Any], data: UserLists, measures: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    return dict(evaluate_lists(data.lists.with_scores(scores), measures).values)


def _scores(scores: Scores, train: Interactions, test: Interactions, spec: TrialSpec) -> pl.DataFrame:
    """A row per user: qid, items, relevant and the value of each measure, on sampled lists or on the whole catalog."""
    if spec.users.test == "sampled":
        lists = _lists(train, test, spec)[1]
        return score_frame(lists.lists, _values(_sampled_scores(scores, lists), lists, spec.measures))
    result = evaluate_full_ranking(scores, train, test, spec.measures)
    code = np.searchsorted(train.user_names, result.query_ids)
    columns = {
        "qid": pl.Series(np.asarray(result.query_ids).astype(np.str_).tolist(), dtype=pl.String),
        "items": pl.Series(len(train.item_names) - train.per_user[code]),
        "relevant": pl.Series(test.per_user[code]),
    }
    return pl.DataFrame(columns | {name: pl.Series(value, nan_to_null=True) for name, value in result.values.items()})


def _mean(scores: Scores, train: Interactions, test: Interactions, spec: TrialSpec) -> float:
    """The mean of the measure that grid points are selected by."""
    if spec.users.test == "full":
        return float(evaluate_full_ranking(scores, train, test, spec.select_by).mean()[spec.select_by])
    lists = _lists(train, test, spec)[1]
    scored = lists.lists.with_scores(_sampled_scores(scores, lists))
    return float(evaluate_lists(scored, spec.select_by).mean()[spec.select_by])


def _sampled_scores(scores: Scores, lists: UserLists, step: int = 256) -> NDArray[np.float64]:
    """The scores of the items in lists, from those of all items."""
    offsets = lists.lists.offsets
    parts = []
    for start in range(0, len(lists.users), step):
        users = lists.users[start : start + step]
        end = start + len(users)
        rows = np.repeat(np.arange(len(users)), np.diff(offsets[start : end + 1]))
        parts.append(scores(users)[rows, lists.items[offsets[start] : offsets[end]]])
    return np.concatenate(parts).astype(np.float64)
