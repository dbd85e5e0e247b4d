"""Checkpoints of a training: arrays in safetensors, metadata in JSON, one complete folder per kept step.

A step is written under another name, brought to disk and renamed, and only then is the step before it removed: a kill
at any moment leaves a complete step or none at all. Never pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.errors import DataError
from rankbound.io import locked_folder, remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Checkpoints"]

_STEP = re.compile(r"epoch-(\d{6})$")
_ARRAYS, _FACTS = "state.safetensors", "state.json"


class Checkpoints:
    """The newest step of one training in a folder of its own.

    Parameters
    ----------
    folder:
        Made if it is not there.
    training:
        What the training is, as plain values (settings, a digest of the data). A folder that holds the steps of
        another training is refused.
    """

    def __init__(self, folder: str | PathLike[str], training: Mapping[str, Any]) -> None:
        self.folder, self.training = Path(folder), dict(training)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError(f"{self.folder}: is a file, expected a folder for checkpoints")

    def load(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """Arrays and metadata of the newest complete step; None if there is none."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        with locked_folder(self.folder, create=False):
            newest = max(self._steps(), default=None)
            if newest is None:
                return None
            try:
                text, content = (newest / _FACTS).read_bytes(), (newest / _ARRAYS).read_bytes()
            except OSError as error:
                raise DataError(f"{newest}: this checkpoint cannot be read: {error.strerror}") from error
        try:
            record = json.loads(text)
            if record.pop("sha256", None) != _digest(record, content):
                raise ValueError("the sha256 of its content is another one")
            arrays = load(content)
            training, metadata = dict(record["training"]), dict(record["metadata"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, SafetensorError) as error:
            raise DataError(f"{newest}: this checkpoint cannot be read: {error}; remove it to begin anew") from error
        changed = sorted(
            name
            for name in training.keys() | self.training.keys()
            if training.get(name) != json.loads(json.dumps(self.training.get(name)))
        )
        if changed:
            raise DataError(
                f"{self.folder}: holds the checkpoint of another training, other in {', '.join(changed)}; "
                "choose another folder or remove this one"
            )
        return arrays, metadata

    def save(self, epoch: int, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> None:
        """Make this the newest step."""
        from safetensors.numpy import save

        content = save(dict(arrays))
        record = {"training": self.training, "metadata": metadata}
        sealed = record | {"sha256": _digest(record, content)}
        files = {_ARRAYS: content, _FACTS: json.dumps(sealed, allow_nan=False).encode()}
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
            if _STEP.match(older.name) and older != step:  # also one that a killed process had half removed
                shutil.rmtree(older, ignore_errors=True)

    def _steps(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if _STEP.match(path.name) and (path / _FACTS).is_file()]


def _digest(record: Mapping[str, Any], content: bytes) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode() + content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
