"""Trials of queries with a vector of features per document, for any ranker of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists
from rankbound.studies.sources import Source, letor_fold
from rankbound.studies.trial import Fitted, Outcome, history_frame, ranker_of, recorded_by, score_frame
from rankbound.studies.trial_spec import TrialSpec

if TYPE_CHECKING:
    from rankbound.data.letor import LetorData


def run(spec: TrialSpec, source: Source) -> Outcome:
    """Fit on the training part, keep the epoch that is best on the held-out part, and measure on the test part."""
    fold = letor_fold(source, spec)
    held_out = {"validation": fold.validation, "test": fold.test, "last": None}[spec.selection]
    last = spec.selection == "last"
    ranker = ranker_of(spec)
    if last and hasattr(ranker, "selection"):
        ranker.selection = "last"
    assert fold.validation is not None  # see `letor_fold`
    train = _joined(fold.train, fold.validation) if spec.train_on_validation else fold.train
    X, y, qid = _columns(train)
    ranker.fit(X, y, qid=qid, eval_set=None if held_out is None else _columns(held_out))
    scored = fold.test.lists.with_scores(ranker.predict(fold.test.features, qid=fold.test.lists.query_of_item))
    values = evaluate_lists(scored, spec.measures).values
    metadata: dict[str, Any] = {"queries": len(train.lists)}
    metadata |= {} if held_out is None else {"eval_score": float(ranker.eval_score_)}
    metadata |= {"kept_epoch": int(ranker.kept_epoch_)} if hasattr(ranker, "kept_epoch_") else {}
    parts = {"train": train, "validation": fold.validation, "test": fold.test}
    recorded = recorded_by(Fitted(spec, ranker, parts, lambda **changes: ranker_of(spec, **changes)))
    history = history_frame(list(getattr(ranker, "history_", [])), spec.selection, recorded)
    return Outcome(score_frame(fold.test.lists, values), history, metadata)


def _joined(first: LetorData, second: LetorData) -> LetorData:
    """The queries of both."""
    a, b = first.lists, second.lists
    lists = Lists(np.concatenate((a.labels, b.labels)), np.concatenate((a.offsets, b.offsets[1:] + a.offsets[-1])))
    return type(first)(lists, np.concatenate((first.features, second.features)))


def _columns(data: LetorData) -> tuple[Any, Any, Any]:
    return data.features, data.lists.labels, data.lists.query_of_item
