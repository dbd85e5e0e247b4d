"""The folder of a search: one file per finished trial, and the best model so far.

===================  ==================================================================================================
``tune.json``        what is searched: data, measure, spaces, seed; another search is refused
``trials/N.json``    a finished trial, written once and atomically
``best/N``           the model of the best trial so far, written before its trial counts as finished
``model``            the chosen model
===================  ==================================================================================================

A process that is killed at any moment loses at most the trials that were running.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.io import atomic_write, locked_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models import Ranker

__all__ = ["STATUSES", "TrialLog", "TrialRecord"]

STATUSES = ("done", "pruned", "stopped", "failed")
_NUMBER = re.compile(r"(\d+)\.json")
_INDEX = "tune.json"


@dataclass(frozen=True, eq=False)
class TrialRecord:
    """A finished trial.

    Parameters
    ----------
    number:
        Its number, from 1.
    model, params:
        The class of the ranker and its parameters, as plain data.
    status:
        "done", "pruned" (ended because it fell behind), "stopped" (the time budget was spent) or "failed".
    value:
        Mean of the measure over the validation queries; NaN if the trial failed.
    values:
        The measure of each validation query; NaN where it is not defined.
    steps:
        Number of rounds or epochs that the model keeps; None for models without steps.
    curve:
        The best value at each rung, see `rankbound.tuning.pruning`.
    seconds, elapsed:
        Duration of the trial, and of the search up to its end, over all runs.
    error:
        Why the trial failed.
    """

    number: int
    model: str
    params: Mapping[str, Any]
    status: str
    value: float
    values: NDArray[np.float64]
    steps: int | None = None
    curve: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0
    elapsed: float = 0.0
    error: str = ""

    def to_json(self) -> str:
        """Return the record as JSON; the values of the queries are float64 in base64."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "values"}
        fields["value"] = None if np.isnan(self.value) else self.value
        values = np.ascontiguousarray(self.values, dtype="<f8").tobytes()
        return json.dumps(fields | {"values": base64.b64encode(values).decode()}, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TrialRecord:
        """Read a record; raise ValueError, KeyError or TypeError for anything else."""
        fields = json.loads(text)
        values = np.frombuffer(base64.b64decode(fields.pop("values"), validate=True), dtype="<f8")
        fields["value"] = float("nan") if fields["value"] is None else float(fields["value"])
        fields["curve"] = tuple((int(rung), float(value)) for rung, value in fields["curve"])
        record = cls(**fields, values=values.astype(np.float64))
        if record.status not in STATUSES or not isinstance(record.params, dict):
            raise ValueError(f"unknown status {record.status!r}")
        return record


class TrialLog:
    """Finished trials by number, in memory and, with a folder, on disk.

    Parameters
    ----------
    folder:
        The folder, or None. It is created by `opened`.
    identity:
        What is searched, in plain data.
    """

    def __init__(self, folder: str | PathLike[str] | None, identity: Mapping[str, Any]) -> None:
        self.folder = None if folder is None else Path(folder)
        self.identity = json.loads(json.dumps(identity))
        self.records: dict[int, TrialRecord] = {}
        self._ranker: Ranker | None = None

    @contextmanager
    def opened(self) -> Iterator[TrialLog]:
        """Hold the folder during the block, after reading the trials it has."""
        if self.folder is None:
            yield self
            return
        self._check_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            conflict = f"is tuning in {self.folder}; wait until it is done, or choose another folder"
            with locked_file(self.folder / "lock", conflict):
                self._read()
                yield self
        except OSError as error:
            raise DataError(f"{self.folder}: cannot be used: {error.strerror or error}") from error

    def _check_folder(self) -> None:
        folder = self.folder
        assert folder is not None
        if folder.exists() and not folder.is_dir():
            raise ArgumentError(f"{folder}: is a file, expected a folder for the search")
        if folder.is_dir() and not (folder / _INDEX).exists() and any(p.name != "lock" for p in folder.iterdir()):
            raise ArgumentError(f"{folder}: exists and is not the folder of a search; choose another folder")

    def _read(self) -> None:
        assert self.folder is not None
        index = self.folder / _INDEX
        if not index.exists():
            self._write(index, json.dumps(self.identity, indent=1))
            return
        try:
            known = json.loads(index.read_text(encoding="utf-8"))
            changed = sorted(
                name for name in known.keys() | self.identity.keys() if known.get(name) != self.identity.get(name)
            )
        except (ValueError, AttributeError, RecursionError) as error:
            raise DataError(f"{index}: is damaged: {error}; choose another folder") from error
        if changed:
            raise DataError(
                f"{self.folder}: contains another search, which differs in {', '.join(changed)}; choose another folder"
            )
        for path in sorted((self.folder / "trials").glob("*.json")):
            match = _NUMBER.fullmatch(path.name)
            if match is None:
                continue
            try:
                record = TrialRecord.from_json(path.read_text(encoding="utf-8"))
                if record.number != int(match[1]):
                    raise ValueError(f"it has the number {record.number}")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise DataError(
                    f"{path}: is damaged: {type(error).__name__}: {error}; remove it, and the trial runs again"
                ) from error
            self.records[record.number] = record

    def _write(self, path: Path, text: str) -> None:
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    @property
    def elapsed(self) -> float:
        """Seconds that the search took in all runs, up to the last finished trial."""
        return max((record.elapsed for record in self.records.values()), default=0.0)

    @property
    def best(self) -> TrialRecord | None:
        """The trial with the highest value; of equal ones, that with the lowest number."""
        usable = [record for record in self.records.values() if record.status != "failed"]
        return min(usable, key=lambda record: (-record.value, record.number), default=None)

    def add(self, record: TrialRecord, ranker: Ranker | None) -> None:
        """Record a finished trial, after its model if that is the best so far."""
        before = self.best
        is_best = ranker is not None and (
            before is None or (-record.value, record.number) < (-before.value, before.number)
        )
        if self.folder is not None:
            if is_best and ranker is not None:
                ranker.save(self.folder / "best" / str(record.number))
            self._write(self.folder / "trials" / f"{record.number}.json", record.to_json())
        self.records[record.number] = record
        if is_best:
            self._ranker = ranker
            self._sweep(record.number)

    def _sweep(self, number: int) -> None:
        """Remove the models of trials that are no longer the best."""
        if self.folder is not None:
            for path in (self.folder / "best").iterdir():
                if path.name != str(number):
                    shutil.rmtree(path, ignore_errors=True)

    def best_ranker(self) -> Ranker | None:
        """Return the model of the best trial; None if its file is missing, as after manual changes of the folder."""
        best = self.best
        if best is None or self.folder is None or self._ranker is not None:
            return self._ranker
        from rankbound.models import load_ranker

        path = self.folder / "best" / str(best.number)
        return load_ranker(path) if path.exists() else None
