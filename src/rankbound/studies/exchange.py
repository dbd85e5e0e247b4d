"""Export and import the results of a store as one file, so that a long study can go on elsewhere, in pieces.

The file is a zip archive: ``store.json`` has the rows of the store's tables, and next to it are the Parquet files of
the trials. It holds finished and failed trials and the slots of studies, no data set.

Importing adds to a store, it never takes away: a trial that is done there stays as it is, and the slots of a study are
those of both. Files from elsewhere are not trusted: an id must be the digest of its trial, a Parquet file must have the
SHA-256 of its row, and an archive with anything else in it is refused before the store is touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankbound.errors import ArgumentError, DataError
from rankbound.io import atomic_write
from rankbound.studies.store import FRAMES, SCHEMA, open_store, read_trial_frame
from rankbound.studies.trial_spec import TrialSlot, TrialSpec

_INDEX = "store.json"
_LARGEST_INDEX, _LARGEST_FRAME = 1 << 30, 1 << 32  # bytes
_LONGEST = 1e12  # seconds of a trial


@dataclass(frozen=True)
class Exchange:
    """What was written to or read from a file."""

    studies: list[str]
    trials: int
    """Trials in the file."""
    added: int
    """Trials that the store did not have; all of them in an export."""

    def to_dict(self) -> dict[str, Any]:
        """Numbers and names, ready for JSON."""
        return asdict(self)


def export_store(store: str | os.PathLike[str], path: str | os.PathLike[str]) -> Exchange:
    """Write all finished and failed trials of a store, and the slots of its studies, to a zip file.

    Trials may be running at the same time: those that are not finished are left out.
    """
    target = Path(path)
    if target.suffix != ".zip":
        raise ArgumentError(f"the file must be named *.zip, got {target}")
    with open_store(store) as opened:
        trials, slots = opened.records()
        with atomic_write(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            index = {"schema": SCHEMA, "trials": trials, "slots": slots}
            archive.writestr(zipfile.ZipInfo(_INDEX), json.dumps(index, ensure_ascii=False), zipfile.ZIP_DEFLATED)
            for trial in trials:
                for name in sorted(json.loads(trial["files"])):
                    # not compressed, because Parquet is; without a date, so that equal stores give equal files
                    archive.writestr(
                        zipfile.ZipInfo(f"{name}/{trial['id']}.parquet"), opened.content(name, trial["id"])
                    )
        return Exchange(opened.studies(), len(trials), len(trials))


def import_store(path: str | os.PathLike[str], store: str | os.PathLike[str]) -> Exchange:
    """Add the trials and studies of a file of `export_store` to a store, which is created if there is none."""
    source = Path(path)
    if not source.is_file():
        raise DataError(f"{source}: no such file")
    try:
        archive = zipfile.ZipFile(source)
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise DataError(f"{source}: must be a file of rankbound store export, got {error}") from error
    with archive:
        trials, slots = _checked_index(source, archive)
        for trial in trials:
            _check_frames(source, archive, trial)
        studies = sorted({slot["study"] for slot in slots})
        with open_store(store, create=True) as opened, opened.locked():
            states = opened.states()
            new = [trial for trial in trials if states.get(trial["id"], "") not in ("done", trial["status"])]
            for trial in new:
                opened.add(trial, dict(_contents(source, archive, trial)))
            opened.add_slots(slots)
    return Exchange(studies, len(trials), len(new))


def _checked_index(source: Path, archive: zipfile.ZipFile) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of the file, each of which is as a store writes it."""
    try:
        index = json.loads(_read(archive, _INDEX, _LARGEST_INDEX))
        if index["schema"] != SCHEMA:
            raise DataError(f"{source}: must have schema {SCHEMA}, got {index['schema']!r}")
        json.dumps(index, ensure_ascii=False).encode()  # refuses half of a surrogate pair, which SQLite cannot store
        for trial in index["trials"]:
            _check_trial(trial)
        for slot in index["slots"]:
            if TrialSlot.from_json(slot["slot"]).id != slot["trial"] or not isinstance(slot["study"], str):
                raise ValueError(f"the slot of trial {slot['trial']} describes another trial")
        return index["trials"], index["slots"]
    except DataError:
        raise
    except Exception as error:  # a file from elsewhere may hold anything
        raise DataError(
            f"{source}: must be a file of rankbound store export: {error or type(error).__name__}"
        ) from error


_TEXTS = ("id", "status", "kind", "model", "data", "digest", "spec", "metadata", "files", "finished", "version")


def _check_trial(trial: dict[str, Any]) -> None:
    if not all(isinstance(trial[name], str) for name in _TEXTS):
        raise ValueError(f"a trial must have the texts {', '.join(_TEXTS)}")
    spec = TrialSpec.model_validate_json(trial["spec"])
    if hashlib.sha256(f"{spec.to_json()}\n{trial['digest']}".encode()).hexdigest()[:32] != trial["id"]:
        raise ValueError(f"the id of a trial must be the digest of its spec and data, got {trial['id']!r}")
    files, metadata = json.loads(trial["files"]), json.loads(trial["metadata"])
    needed = {"scores", "history"} if trial["status"] == "done" else set()
    if not isinstance(metadata, dict) or not needed <= set(files) <= set(FRAMES):
        raise ValueError(f"trial {trial['id']} must have metadata and the files {', '.join(FRAMES)}, got {files!r}")
    if trial["status"] not in ("done", "failed") or not _is_duration(trial["seconds"]):
        raise ValueError(f"trial {trial['id']} must be done or failed after some seconds, got {trial['status']!r}")
    if not (trial["error"] is None or isinstance(trial["error"], str)):
        raise ValueError(f"the error of trial {trial['id']} must be text, got {trial['error']!r:.60}")
    means = metadata.get("mean", {}) if trial["status"] == "failed" else metadata["mean"]
    for value in (*means.values(), metadata.get("eval_score")):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(f"the means of trial {trial['id']} must be numbers, got {value!r:.60}")


def _is_duration(seconds: object) -> bool:
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds < _LONGEST


def _check_frames(source: Path, archive: zipfile.ZipFile, trial: dict[str, Any]) -> None:
    for name, content in _contents(source, archive, trial):
        try:
            read_trial_frame(name, content)
        except DataError as error:
            raise DataError(f"{source}: {_member(name, trial)} is damaged: {error}") from error


def _contents(source: Path, archive: zipfile.ZipFile, trial: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The names and bytes of the files of a trial, which have the SHA-256 that its row says."""
    for name, digest in json.loads(trial["files"]).items():
        member = _member(name, trial)
        try:
            content = _read(archive, member, _LARGEST_FRAME)
        except Exception as error:
            raise DataError(f"{source}: {member} cannot be read: {error or type(error).__name__}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise DataError(f"{source}: {member} is damaged: its SHA-256 is not the one recorded when it was written")
        yield name, content


def _member(name: str, trial: dict[str, Any]) -> str:
    return f"{name}/{trial['id']}.parquet"


def _read(archive: zipfile.ZipFile, member: str, most: int) -> bytes:
    with archive.open(member) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{member} must have at most {most:,} bytes")
    return content
