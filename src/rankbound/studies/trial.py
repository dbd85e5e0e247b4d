"""Running a trial: a pure function of a spec and its data that returns scores per query and the training history.

To add a kind of trial (`KINDS`), something to record besides the scores (`RECORDERS`) or a table for one study
(`rankbound.studies.derived.DERIVED`), write a function and enter it in the table; a module of your own does so when
workers import it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from rankbound.errors import DataError
from rankbound.evaluation import evaluate_lists
from rankbound.lists import Lists
from rankbound.models.by_name import make_ranker
from rankbound.parallel import import_modules
from rankbound.studies.sources import Source, digest_of, letor_fold
from rankbound.studies.trial_spec import Trial, TrialSpec

if TYPE_CHECKING:
    from rankbound.data.letor import LetorData


HistoryRow: TypeAlias = tuple[int, str, float]  # epoch, quantity, value


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a trial.

    ``scores`` has a row per query with qid, items, relevant and a column per measure, null where the measure is not
    defined for the query; columns of bounds may follow. ``history`` has the columns epoch, quantity and value.
    ``metadata`` are plain values about the trial, among them ``eval_score`` where held-out data selected the epoch.
    ``examples`` are pairs of images, see `rankbound.studies.image_pairs`.
    """

    scores: pl.DataFrame
    history: pl.DataFrame
    metadata: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    examples: pl.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """The argument of a recorder: the spec, the fitted model, and the parts of the data."""

    spec: TrialSpec
    model: Any
    parts: Mapping[str, Any]

    def make(self, **changes: Any) -> Any:
        """The model, not yet fitted; ``changes`` replace some of its parameters."""
        return ranker_of(self.spec, **changes)


def run_trial(trial: Trial) -> Outcome:
    """Run a trial in this process, after importing the modules that its spec names."""
    began = time.perf_counter()
    import_modules(trial.spec.modules)
    if trial.digest and digest_of(trial.source) != trial.digest:
        raise DataError(f"{trial.source.name}: its files on this machine are not those that the study was started with")
    outcome = KINDS[trial.spec.kind](trial.spec, trial.source)
    return replace(outcome, seconds=time.perf_counter() - began)


# ---- for the kinds of trials -----------------------------------------------------------------------------------------


def ranker_of(spec: TrialSpec, **changes: Any) -> Any:
    """The model of a spec, not yet fitted; ``changes`` replace some of its parameters."""
    return make_ranker(
        spec.model,
        {**spec.params, **changes},
        loss=spec.loss,
        bounding=spec.bounding,
        loss_options=spec.loss_options,
        seed=spec.seed,
        measure=spec.select_by,
        verbose=False,
        n_jobs=1,
    )


def score_frame(lists: Lists, values: Mapping[str, Any]) -> pl.DataFrame:
    """A row per query: qid, items, relevant, the values of each measure, and bounds where labels are graded."""
    relevant = np.bincount(lists.query_of_item, weights=lists.labels >= 1, minlength=len(lists))
    columns = {
        "qid": pl.Series(np.asarray(lists.query_ids).astype(np.str_).tolist(), dtype=pl.String),
        "items": pl.Series(lists.sizes),
        "relevant": pl.Series(relevant.astype(np.int64)),
    }
    numbers = {**values, **_graded_bounds(lists, values)}
    return pl.DataFrame(columns | {name: pl.Series(np.asarray(v), nan_to_null=True) for name, v in numbers.items()})


def _graded_bounds(lists: Lists, measures: Iterable[str]) -> dict[str, Any]:
    """Worst, expected and best value of measures without a bounding, where the labels are graded.

    With binary labels the bounds follow from the numbers of items and of relevant items, which the table has.
    """
    from rankbound.difficulty import bounds_of
    from rankbound.evaluation.query_sets import BOUNDS, bound_column
    from rankbound.measures import LabelCounts, parse_measure

    if np.isin(lists.labels, (0, 1)).all():
        return {}
    counts = LabelCounts.from_labels(lists.labels, lists.offsets)
    plain = {name: measure for name in measures if (measure := parse_measure(name)).bounding == "none"}
    bounds = {name: bounds_of(measure, counts) for name, measure in plain.items()}
    return {bound_column(bound, name): getattr(values, bound) for name, values in bounds.items() for bound in BOUNDS}


def outcome_of(
    fitted: Fitted,
    scores: pl.DataFrame,
    selected_on: str,
    metadata: Mapping[str, Any],
    *,
    chosen: Any = None,
    examples: pl.DataFrame | None = None,
) -> Outcome:
    """The outcome of a trial: its scores, what its recorders add, and history and kept epoch of its model.

    ``chosen`` is the model that selected the epoch, if that is another one, by the part ``selected_on``.
    """
    model = fitted.model if chosen is None else chosen
    known: dict[str, Any] = {} if selected_on == "last" else {"eval_score": float(model.eval_score_)}
    known |= {"kept_epoch": int(model.kept_epoch_)} if hasattr(model, "kept_epoch_") else {}
    recorded = [row for name in fitted.spec.record for row in RECORDERS[name](fitted)]
    history = history_frame(getattr(model, "history_", []), selected_on, recorded)
    return Outcome(scores, history, {**metadata, **known}, examples=examples)


def history_frame(history: list[dict[str, float]], held_out: str, recorded: Sequence[HistoryRow] = ()) -> pl.DataFrame:
    """Epoch, quantity and value, from the history of a model (measured on the part ``held_out``) and from recorders."""
    rows = [
        (int(entry["epoch"]), name if name == "loss" else f"{held_out} {name}", float(value))
        for entry in history
        for name, value in entry.items()
        if name != "epoch"
    ]
    schema = {"epoch": pl.Int64, "quantity": pl.String, "value": pl.Float64}
    return pl.DataFrame([*rows, *recorded], schema=schema, orient="row")


# ---- trials of queries with a vector of features per document ------------------------------------------------------


def _run_on_rows(spec: TrialSpec, source: Source) -> Outcome:
    """Fit on the training part, keep the epoch that is best on the held-out part, and measure on the test part."""
    fold = letor_fold(source, spec)
    held_out = {"validation": fold.validation, "test": fold.test, "last": None}[spec.selection]
    last = spec.selection == "last"
    ranker = ranker_of(spec)
    if last and hasattr(ranker, "monitoring"):
        ranker.set_params(selection="last")
    assert fold.validation is not None  # see `letor_fold`
    train = _join(fold.train, fold.validation) if spec.train_on_validation else fold.train
    X, y, qid = _columns(train)
    ranker.fit(X, y, qid=qid, eval_set=None if held_out is None else _columns(held_out))
    scored = fold.test.lists.with_scores(ranker.predict(fold.test.features, qid=fold.test.lists.query_of_item))
    values = evaluate_lists(scored, spec.measures).values
    parts = {"train": train, "validation": fold.validation, "test": fold.test}
    scores = score_frame(fold.test.lists, values)
    return outcome_of(Fitted(spec, ranker, parts), scores, spec.selection, {"queries": len(train.lists)})


def _join(first: LetorData, second: LetorData) -> LetorData:
    """The queries of both."""
    a, b = first.lists, second.lists
    lists = Lists(np.concatenate((a.labels, b.labels)), np.concatenate((a.offsets, b.offsets[1:] + a.offsets[-1])))
    return type(first)(lists, np.concatenate((first.features, second.features)))


def _columns(data: LetorData) -> tuple[Any, Any, Any]:
    return data.features, data.lists.labels, data.lists.query_of_item


# ---- tables of functions, which import what they need when they are called -------------------------------------------


def _run_on_users(spec: TrialSpec, source: Source) -> Outcome:
    from rankbound.studies.trial_users import run

    return run(spec, source)


def _run_on_faces(spec: TrialSpec, source: Source) -> Outcome:
    from rankbound.studies.trial_faces import run

    return run(spec, source)


def _record_approximation_error(fitted: Fitted) -> Iterable[HistoryRow]:
    from rankbound.studies.learning import approximation_error

    return approximation_error(fitted)


def _record_coefficients(fitted: Fitted) -> Iterable[HistoryRow]:
    from rankbound.studies.learning import coefficients

    return coefficients(fitted)


KINDS: dict[str, Callable[[TrialSpec, Source], Outcome]] = {
    "letor": _run_on_rows,
    "ratings": _run_on_users,
    "faces": _run_on_faces,
}
"""Kind of a trial -> the function that runs it."""

RECORDERS: dict[str, Callable[[Fitted], Iterable[HistoryRow]]] = {
    "approximation-error": _record_approximation_error,
    "coefficients": _record_coefficients,
}
"""Name -> function of a `Fitted` that returns rows of the history: (epoch, quantity, value)."""
