"""A trial: a pure function of its spec and its data, which gives scores per query and how training went.

Whoever adds a kind of trial (`FAMILIES`), something to record beside the scores (`RECORDERS`) or a table of a study's
own (`rankbound.experiments.derived.DERIVED`) writes a function and puts its place into the table of names: worker
processes import it from there.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import DataError
from rankbound.experiments.sources import Source, digest_of
from rankbound.models.by_name import make_ranker

if TYPE_CHECKING:
    import polars as pl

    from rankbound.lists import Lists

__all__ = ["FAMILIES", "FORMAT", "RECORDERS", "Fitted", "Outcome", "Trial", "history_frame", "ranker_of", "run_trial",
           "score_frame"]  # fmt: skip

FORMAT = 1  # raise it when the same spec would give other numbers: old trials are then run again

FAMILIES: dict[str, str] = {
    "rows": "rankbound.experiments.trial_rows:run",
    "users": "rankbound.experiments.trial_users:run",
    "faces": "rankbound.experiments.trial_faces:run",
}
"""Name of a kind of trial -> function of (spec, source) that gives an `Outcome`."""

RECORDERS: dict[str, str] = {
    "approximation-error": "rankbound.experiments.approximation:approximation_error",
    "coefficients": "rankbound.experiments.coefficients:coefficients",
}
"""Name -> function of a `Fitted` that gives rows of the history: (epoch, quantity, value)."""


@dataclass(frozen=True)
class Trial:
    """What is run, on which data; ``digest`` names the content of the data once it is known."""

    spec: Mapping[str, Any]
    source: Source
    digest: str = ""

    def identified(self) -> Trial:
        """The trial with the checksum of its data, so that it has an ``id``."""
        return replace(self, digest=digest_of(self.source))

    @cached_property
    def id(self) -> str:
        """A name for spec and data: equal trials have equal names, on every machine."""
        if not self.digest:
            raise AssertionError("a trial has an id once its data are known")
        text = json.dumps([FORMAT, self.spec, self.digest], sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a trial gives.

    ``scores``: a row per query with qid, items, relevant and a column per measure, null where the query is empty for
    it; bounds of measures may stand behind. ``history``: epoch, quantity, value. ``metadata``: plain values about the
    trial, ``eval_score`` among them where something was held out to choose by. ``examples``: pairs of images, see
    `rankbound.analysis.image_pairs`.
    """

    scores: pl.DataFrame
    history: pl.DataFrame
    metadata: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    examples: pl.DataFrame | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a recorder sees: the spec, the fitted model, the parts of the data, and how to make the model anew."""

    spec: Mapping[str, Any]
    model: Any
    parts: Mapping[str, Any]
    make: Callable[..., Any]


def run_trial(trial: Trial) -> Outcome:
    """Run a trial in this process."""
    began = time.perf_counter()
    if trial.digest and digest_of(trial.source) != trial.digest:
        raise DataError(f"{trial.source.name}: its files here are not those that the study was started with")
    outcome: Outcome = _resolve(FAMILIES[trial.spec["family"]])(trial.spec, trial.source)
    return replace(outcome, seconds=time.perf_counter() - began)


# ---- for families ----------------------------------------------------------------------------------------------------


def ranker_of(spec: Mapping[str, Any], **changes: Any) -> Any:
    """The model of a spec; ``changes`` replace parameters of it."""
    return make_ranker(
        spec["model"], {**spec["params"], **changes}, loss=spec["loss"], bounding=spec["bounding"],
        loss_options=spec["loss_options"], seed=spec["seed"], measure=spec["select_by"], verbose=False, n_jobs=1,
    )  # fmt: skip


def score_frame(lists: Lists, values: Mapping[str, Any]) -> pl.DataFrame:
    """A row per query: qid, items, relevant, the values of each measure, and bounds where labels are graded."""
    import polars as pl

    relevant = np.bincount(lists.query_of_item, weights=lists.labels >= 1, minlength=len(lists))
    columns = {
        "qid": pl.Series(np.asarray(lists.query_ids).astype(np.str_).tolist(), dtype=pl.String),
        "items": pl.Series(lists.sizes),
        "relevant": pl.Series(relevant.astype(np.int64)),
    }
    numbers = {**values, **_graded_bounds(lists, values)}
    return pl.DataFrame(columns | {name: pl.Series(np.asarray(v), nan_to_null=True) for name, v in numbers.items()})


def _graded_bounds(lists: Lists, measures: Iterable[str]) -> dict[str, Any]:
    """Worst, expected and best of plain measures; of binary labels, items and relevant ones tell them well enough."""
    from rankbound.analysis.query_sets import BOUNDS, bound_column
    from rankbound.difficulty import bounds_of
    from rankbound.measures import LabelCounts, parse_measure

    if np.isin(lists.labels, (0, 1)).all():
        return {}
    counts = LabelCounts.from_labels(lists.labels, lists.offsets)
    plain = {name: measure for name in measures if (measure := parse_measure(name)).bounding == "none"}
    found = {name: bounds_of(measure, counts) for name, measure in plain.items()}
    return {bound_column(part, name): getattr(bounds, part) for name, bounds in found.items() for part in BOUNDS}


def history_frame(history: list[dict[str, float]], held_out: str, recorded: Any = ()) -> pl.DataFrame:
    """Epoch, quantity, value: from a model's history, whose measures are those of a held-out part, and recorders."""
    import polars as pl

    rows = [
        (int(entry["epoch"]), name if name == "loss" else f"{held_out} {name}", float(value))
        for entry in history
        for name, value in entry.items()
        if name != "epoch"
    ]
    schema = {"epoch": pl.Int64, "quantity": pl.String, "value": pl.Float64}
    return pl.DataFrame([*rows, *recorded], schema=schema, orient="row")


def recorded_by(fitted: Fitted) -> list[tuple[int, str, float]]:
    """What the recorders that a spec names have to add to the history."""
    return [row for name in fitted.spec["record"] for row in _resolve(RECORDERS[name])(fitted)]


def _resolve(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
