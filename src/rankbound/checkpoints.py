"""Checkpoints of a training run: arrays in safetensors and metadata in JSON, in one folder per step.

A step is written under a temporary name, flushed to disk and renamed, and only then is the previous step removed: a
process that is killed at any moment leaves a complete step or none. Nothing is pickled. Where several processes train
together, the first one writes, and all of them read the same folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rankbound.errors import DataError
from rankbound.io import locked_folder, remove_leftovers
from rankbound.parallel import current_workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Step: TypeAlias = tuple[dict[str, NDArray[Any]], dict[str, Any]]

_STEP = re.compile(r"epoch-(\d{6})$")
_ARRAYS, _METADATA = "state.safetensors", "state.json"


class Checkpoints:
    """The newest step of one training run, in its own folder.

    Parameters
    ----------
    folder:
        The folder; it is created if it does not exist.
    training:
        A description of the training run in plain values (settings, a digest of the data). `load` refuses a folder with
        the steps of another run.
    """

    def __init__(self, folder: str | PathLike[str], training: Mapping[str, Any]) -> None:
        self.folder, self.training = Path(folder), dict(training)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"{self.folder}: is a file, expected a folder for checkpoints")

    def load(self) -> Step | None:
        """Arrays and metadata of the newest complete step, or None if there is no step.

        Raises DataError if the step is damaged or belongs to another training run, and if processes that train together
        see different steps.
        """
        newest, step = self._load()
        if (together := current_workers()) is not None:
            seen = np.concatenate(together.gather(np.array([newest]))).tolist()
            if len(set(seen)) > 1:
                raise DataError(
                    f"{self.folder}: must be a folder that all workers share, but they see the epochs "
                    f"{', '.join(map(str, seen))} (0: none)"
                )
        return step

    def _load(self) -> tuple[int, Step | None]:
        """The number of the newest step, 0 if there is none, and the step."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        with locked_folder(self.folder, create=False):
            newest = max(self._steps(), default=None)
            if newest is None:
                return 0, None
            try:
                text, content = (newest / _METADATA).read_bytes(), (newest / _ARRAYS).read_bytes()
            except OSError as error:
                raise DataError(f"{newest}: this checkpoint cannot be read: {error.strerror}") from error
        try:
            record = json.loads(text)
            if record.pop("sha256", None) != _digest(record, content):
                raise ValueError("its SHA-256 is not the one recorded when it was written")
            arrays = load(content)
            training, metadata = dict(record["training"]), dict(record["metadata"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, SafetensorError) as error:
            raise DataError(f"{newest}: this checkpoint cannot be read: {error}; remove it to start again") from error
        changed = sorted(
            name
            for name in training.keys() | self.training.keys()
            if training.get(name) != json.loads(json.dumps(self.training.get(name)))
        )
        if changed:
            raise DataError(
                f"{self.folder}: contains the checkpoint of another training run, which differs in "
                f"{', '.join(changed)}; choose another folder or remove this one"
            )
        return int(newest.name.removeprefix("epoch-")), (arrays, metadata)

    def save(self, epoch: int, arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, object]) -> None:
        """Write a step and remove the previous one."""
        together = current_workers()
        if together is None or together.is_first:
            self._save(epoch, arrays, metadata)
        if together is not None:
            together.sum(np.zeros(1))  # the others wait until it is written

    def _save(self, epoch: int, arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, object]) -> None:
        from safetensors.numpy import save

        content = save(dict(arrays))
        record = {"training": self.training, "metadata": metadata}
        sealed = record | {"sha256": _digest(record, content)}
        files = {_ARRAYS: content, _METADATA: json.dumps(sealed, allow_nan=False).encode()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked_folder(self.folder):
                self._replace(f"epoch-{epoch:06d}", files)
        except OSError as error:
            raise DataError(
                f"{self.folder}: the checkpoint of epoch {epoch} cannot be written: {error.strerror or error}"
            ) from error

    def _replace(self, name: str, files: Mapping[str, bytes]) -> None:
        remove_leftovers(self.folder, ".*.partial")
        step, partial = self.folder / name, self.folder / f".{name}.partial"
        partial.mkdir()
        try:
            for file, content in files.items():
                _write(partial / file, content)
            shutil.rmtree(step, ignore_errors=True)
            partial.rename(step)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        for older in self.folder.iterdir():
            if _STEP.match(older.name) and older != step:  # including one that a killed process had removed in part
                shutil.rmtree(older, ignore_errors=True)

    def _steps(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if _STEP.match(path.name) and (path / _METADATA).is_file()]


def _digest(record: Mapping[str, object], content: bytes) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode() + content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
