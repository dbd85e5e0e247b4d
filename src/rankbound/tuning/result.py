"""What a search found: the chosen model, and a table of all trials with intervals over the validation queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.analysis.inference import Inference

if TYPE_CHECKING:
    import polars as pl

    from rankbound.models import Ranker
    from rankbound.tuning.log import TrialRecord

__all__ = ["TuneResult", "optimism_note", "trials_table"]

_MOST_VALUES = 20_000_000  # differences held in memory at once


@dataclass(frozen=True, eq=False)
class TuneResult:
    """The result of `rankbound.models.tune`.

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
        first = self.table.row(0, named=True)
        counts = {status: sum(record.status == status for record in self.records) for status in _STATUSES}
        best = {
            "trial": self.best.number, "model": self.best.model, "params": dict(self.best.params),
            "steps": self.best.steps, "value": self.best.value, "low": first["low"], "high": first["high"],
        }  # fmt: skip
        parameters = [name for name in self.table.columns if name.startswith(_PARAMETER)]
        trials = [
            {name: value for name, value in row.items() if name not in parameters}
            | {"params": dict(self._record(row["trial"]).params)}
            for row in self.table.iter_rows(named=True)
        ]
        return {
            "measure": self.measure, "queries": dict(self.queries), "best": best,
            "test": None if self.test is None else dict(self.test), "refitted": self.refitted,
            "counts": counts | {"ran": self.ran}, "seconds": self.seconds,
            "folder": None if self.folder is None else str(self.folder),
            "model": None if self.folder is None else str(self.folder / "model"),
            "page": None if self.page is None else str(self.page), "notes": list(self.notes), "trials": trials,
        }  # fmt: skip

    def _record(self, number: int) -> TrialRecord:
        return next(record for record in self.records if record.number == number)


_STATUSES = ("done", "pruned", "stopped", "failed")
_PARAMETER = "param."


def trials_table(records: Sequence[TrialRecord], best: TrialRecord, inference: Inference) -> pl.DataFrame:
    """Return the table of trials, best first, failed ones last; see `TuneResult`.

    Intervals of values and of paired differences are over the validation queries, by the policy for inference, and are
    not corrected for the number of trials.
    """
    import polars as pl

    ordered = sorted(records, key=lambda r: (r.status == "failed", -r.value if r.status != "failed" else 0, r.number))
    means = _intervals([record.values for record in ordered], inference)
    gaps = _intervals([record.values - best.values for record in ordered], inference)
    names = sorted({name for record in ordered for name in record.params})
    rows = []
    for index, record in enumerate(ordered):
        has_value, is_best = record.status != "failed", record.number == best.number
        low, high = means[:, index] if has_value else (None, None)
        gap_low, gap_high = gaps[:, index] if has_value and not is_best else (None, None)
        rows.append(
            {
                "trial": record.number, "model": record.model, "status": record.status,
                "value": record.value if has_value else None, "low": low, "high": high,
                "difference": record.value - best.value if has_value else None,
                "difference_low": gap_low, "difference_high": gap_high,
                "steps": record.steps, "seconds": record.seconds, "elapsed": record.elapsed,
                "error": record.error.partition("\n")[0] or None,
            }
            | {f"{_PARAMETER}{name}": _cell(record.params.get(name)) for name in names}
        )  # fmt: skip
    numbers = ("value", "low", "high", "difference", "difference_low", "difference_high", "seconds", "elapsed")
    schema: dict[str, Any] = {"trial": pl.Int64, "model": pl.String, "status": pl.String}
    schema |= dict.fromkeys(numbers, pl.Float64) | {"steps": pl.Int64, "error": pl.String}
    frame = pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None, strict=False)
    return frame.with_columns(pl.col(*numbers).fill_nan(None))


def _intervals(columns: Sequence[Any], inference: Inference) -> Any:
    """Return 2 x columns: the interval of the mean of each column over the queries for which all have a value."""
    result = np.full((2, len(columns)), np.nan)
    usable = [index for index, column in enumerate(columns) if not np.isnan(column).all()]
    if not usable:
        return result
    defined = ~np.isnan(columns[usable[0]])
    if defined.sum() < 2:
        return result
    at_once = max(1, _MOST_VALUES // len(defined))
    for first in range(0, len(usable), at_once):
        chosen = usable[first : first + at_once]
        result[:, chosen] = inference.intervals(np.stack([columns[index][defined] for index in chosen], axis=1))
    return result


def _cell(value: Any) -> Any:
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
