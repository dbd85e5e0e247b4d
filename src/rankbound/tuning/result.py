"""What a search found: the chosen model, and a table of all trials with intervals over the validation queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.evaluation.inference import Inference

if TYPE_CHECKING:
    import polars as pl

    from rankbound.models import Ranker
    from rankbound.tuning.study import TrialRecord

STATUSES = ("done", "pruned", "stopped", "failed")


@dataclass(frozen=True, eq=False)
class TuneResult:
    """The result of `rankbound.tuning.tune`.

    Parameters
    ----------
    ranker:
        The chosen model, fitted.
    best:
        The trial that it comes from.
    records:
        All finished trials, by number.
    table:
        A row per trial, best first: trial, model, status, value with its interval (``low``, ``high``), ``difference``
        to the best trial with its paired interval (``difference_low``, ``difference_high``), steps, seconds, elapsed,
        error, and a column for each parameter.
    measure:
        The measure of the validation queries.
    queries:
        Number of queries in training, validation and test.
    test:
        ``mean``, ``low`` and ``high`` of the chosen model on the test queries, or None.
    refitted:
        Whether the model was fitted again, on training and validation queries.
    seconds:
        Duration of the search over all runs.
    ran:
        Trials of this call; the others were in the folder.
    notes:
        Remarks for the user.
    folder, page:
        Folder of the search and path of its page, or None.
    """

    ranker: Ranker
    best: TrialRecord
    records: tuple[TrialRecord, ...]
    table: pl.DataFrame
    measure: str
    queries: Mapping[str, int]
    test: Mapping[str, float] | None
    refitted: bool
    seconds: float
    ran: int
    notes: tuple[str, ...]
    folder: Path | None = None
    page: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data, ready for JSON."""
        params = {record.number: dict(record.params) for record in self.records}
        trials = [
            {name: value for name, value in row.items() if not name.startswith(_PARAMETER)}
            | {"params": params[row["trial"]]}
            for row in self.table.iter_rows(named=True)
        ]
        best = {name: trials[0][name] for name in ("trial", "model", "params", "steps", "value", "low", "high")}
        counts = {status: sum(record.status == status for record in self.records) for status in STATUSES}
        return {
            "measure": self.measure,
            "queries": dict(self.queries),
            "best": best,
            "test": None if self.test is None else dict(self.test),
            "refitted": self.refitted,
            "counts": counts | {"ran": self.ran},
            "seconds": self.seconds,
            "folder": None if self.folder is None else str(self.folder),
            "model": None if self.folder is None else str(self.folder / "model"),
            "page": None if self.page is None else str(self.page),
            "notes": list(self.notes),
            "trials": trials,
        }


_PARAMETER = "param."


def trials_table(records: Sequence[TrialRecord], best: TrialRecord, inference: Inference) -> pl.DataFrame:
    """Return the table of trials, best first, failed ones last; see `TuneResult`.

    Intervals of values and of paired differences are over the validation queries, by the policy for inference, and are
    not corrected for the number of trials.
    """
    import polars as pl

    measured = sorted((r for r in records if r.status != "failed"), key=lambda record: (-record.value, record.number))
    failed = [record for record in records if record.status == "failed"]
    values = np.stack([record.values for record in measured], axis=1)
    values = values[~np.isnan(values).any(axis=1)]
    gaps = values - values[:, [measured.index(best)]]
    bounds = np.full((4, len(records)), np.nan)
    if len(values) > 1:
        bounds[:2, : len(measured)] = inference.intervals(values)
        bounds[2:, : len(measured)] = inference.intervals(gaps)
        bounds[2:, measured.index(best)] = np.nan
    names = sorted({name for record in records for name in record.params})
    rows = [
        {
            "trial": record.number,
            "model": record.model,
            "status": record.status,
            "value": record.value,
            "low": low,
            "high": high,
            "difference": record.value - best.value,
            "difference_low": gap_low,
            "difference_high": gap_high,
            "steps": record.steps,
            "seconds": record.seconds,
            "elapsed": record.elapsed,
            "error": record.error.partition("\n")[0] or None,
        }
        | {f"{_PARAMETER}{name}": _as_cell(record.params.get(name)) for name in names}
        for record, (low, high, gap_low, gap_high) in zip([*measured, *failed], bounds.T, strict=True)
    ]
    schema = {"steps": pl.Int64, "error": pl.String}
    frame = pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None, strict=False)
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def _as_cell(value: Any) -> Any:
    """Convert a parameter to a value of a table: numbers stay, lists become text."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def optimism_note(trials: int) -> str:
    """Say why the validation value of the chosen trial is too good.

    >>> optimism_note(1)
    'The step of the model was chosen on the validation queries, so that its validation value is optimistic.'
    """
    if trials == 1:
        return "The step of the model was chosen on the validation queries, so that its validation value is optimistic."
    return (
        f"The validation value of the best of {trials} trials is optimistic: it was selected because it is high. "
        "Queries that no trial has seen give a fair value."
    )
