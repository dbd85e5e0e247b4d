"""The store of a study's results: a folder with trials.sqlite, and Parquet files for every trial.

Each trial has a file of scores and one of its training history; a trial of images may also have one of example pairs.

A trial counts as done when its row has been committed, and its files are on disk before that: a process that is killed
at any moment loses the trial in progress and nothing else. Only one runner may write at a time. It holds a lock of the
operating system, which is released when the process ends, however it ends. Readers need no lock.

The row has the SHA-256 of each file, and `Store` refuses to read a file that has changed since it was written: its
numbers could be wrong, and some damaged Parquet files crash polars together with the process.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rankbound.data.frames import polars_failures
from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.io import atomic_write, locked_file
from rankbound.studies.trial_spec import Trial, TrialSlot

if TYPE_CHECKING:
    from rankbound.studies.trial import Outcome

SCHEMA = 3
_OLDER = ("1", "2")
FRAMES = ("scores", "history", "examples")  # folders with a Parquet file per trial
_FRAME_COLUMNS = {
    "scores": {"qid": "text", "items": "integers", "relevant": "integers"},
    "history": {"epoch": "integers", "quantity": "text", "value": "numbers"},
}
_OURS = (*FRAMES, "lock", "trials.sqlite", "trials.sqlite-wal", "trials.sqlite-shm")
_TEXTS = ("status", "kind", "model", "data", "digest", "spec", "metadata", "files")
_COLUMNS = {  # of the table of trials
    "id": "TEXT PRIMARY KEY",
    **dict.fromkeys(_TEXTS, "TEXT NOT NULL"),
    "error": "TEXT",
    "seconds": "REAL",
    **dict.fromkeys(("finished", "version"), "TEXT NOT NULL"),
}
_TABLES = f"""
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials ({", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())});
CREATE TABLE slots (
    study TEXT NOT NULL, position INTEGER NOT NULL, trial TEXT NOT NULL, slot TEXT NOT NULL,
    PRIMARY KEY (study, position)
);
"""


def open_store(path: str | os.PathLike[str], *, create: bool = False) -> Store:
    """Open the store in a folder; with ``create``, make one if there is none.

    Raises DataError if the store is damaged or was written by an incompatible version. A damaged store is neither
    repaired nor changed.
    """
    folder = Path(path)
    file = folder / "trials.sqlite"
    for name in _OURS:
        if (folder / name).is_symlink():
            raise DataError(f"{folder / name}: a store must not contain symbolic links {_SAFE}")
    if not file.exists() or file.stat().st_size == 0:
        if folder.exists() and not folder.is_dir():
            raise ArgumentError(f"{folder}: is a file, expected the folder of a store")
        if any((folder / "scores").glob("*.parquet")):
            raise DataError(
                f"{file}: is missing or empty, although the folder has scores; the store is damaged {_SAFE}"
            )
        if not create:
            raise ArgumentError(f"{folder}: contains no results; rankbound reproduce creates such a folder")
        if not file.exists() and folder.is_dir() and any(folder.iterdir()) and not _is_begun(folder):
            raise ArgumentError(f"{folder}: contains other files and no store; choose an empty or new folder")
    with _explain_errors(file):
        for name in FRAMES if create else ():
            (folder / name).mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK) and os.access(file, os.W_OK)
        if not create and not writable:
            return Store(folder, _connect_to_read(file))
        return Store(folder, _connect(file, create=create and (not file.exists() or _is_begun(folder))))


_SAFE = "(nothing was changed: restore a copy, or move the folder away and run the study again)"


def _is_begun(folder: Path) -> bool:
    """Whether a folder looks as a runner leaves it that was killed before its first commit."""
    return {file.name for file in folder.iterdir()} <= set(_OURS)


def _connect(file: Path, *, create: bool) -> sqlite3.Connection:
    connection = _check_connection(sqlite3.connect(file, timeout=30, isolation_level=None), file, create=create)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _connect_to_read(file: Path) -> sqlite3.Connection:
    """Connect to a store in a read-only folder, which cannot change unless a runner left its log there."""
    unchanging = not file.with_name(f"{file.name}-wal").exists()
    address = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if unchanging else ''}"
    return _check_connection(sqlite3.connect(address, timeout=30, isolation_level=None, uri=True), file, create=False)


def _check_connection(connection: sqlite3.Connection, file: Path, *, create: bool) -> sqlite3.Connection:
    """The connection of a store; with ``create``, a database without tables becomes one. No other file is changed."""
    try:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not names and create:
            connection.executescript(
                f"BEGIN IMMEDIATE;{_TABLES}INSERT INTO about VALUES ('schema', '{SCHEMA}');COMMIT;"  # noqa: S608
            )
            return connection
        if not {"about", "trials"} <= names:
            raise DataError(f"{file}: is a database, but not a store of rankbound {_SAFE}")
        (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise DataError(f"{file}: is damaged: {damage} {_SAFE}")
        (schema,) = connection.execute("SELECT value FROM about WHERE key = 'schema'").fetchone() or ("none",)
        if schema != str(SCHEMA):
            writer = "an older" if schema in _OLDER else "another"
            raise DataError(
                f"{file}: has schema {schema}, but this version of rankbound reads schema {SCHEMA} only. The store was "
                f"written by {writer} version and was not changed; read it with that version, or run the study again "
                "into another folder (--store)"
            )
        if "slots" not in names:
            raise DataError(f"{file}: is damaged: it has no table of slots {_SAFE}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _explain_errors(file: Path) -> Iterator[None]:
    """Raise errors of the database and of the disk as DataError with the name of the file."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:  # a damaged file may claim any size
        if "full" in str(error):
            raise _no_space(file) from error
        if "readonly" in str(error):
            raise DataError(f"{file}: cannot be written: the file or its folder is read-only") from error
        reason = str(error) or "it claims more memory than is available"
        raise DataError(f"{file}: is damaged or cannot be used: {reason} {_SAFE}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise _no_space(file) from error
        raise DataError(f"{file}: cannot be used: {error.strerror or error}") from error


def _no_space(file: Path) -> DataError:
    return DataError(
        f"{file}: there is no space left to write; finished trials are kept, and the same command resumes once there "
        "is space"
    )


class Store:
    """Results of trials, and the slots of studies. Use `open_store`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._connection = connection

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- writing -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only writer during the block; raise DataError at once if another process writes to the store."""
        conflict = f"is writing to the store {self.folder}; wait until it is done, or choose another folder (--store)"
        with _explain_errors(self.folder / "lock"), locked_file(self.folder / "lock", conflict):
            self._sweep()
            yield

    def _sweep(self) -> None:
        """Remove files that a killed writer left incomplete."""
        for name in FRAMES:
            for file in (self.folder / name).glob(".*"):
                file.unlink()

    def register(self, study: str, slots: Iterable[TrialSlot], partial: bool = False) -> None:
        """Record the slots of a study, finished or not, in place of those recorded before.

        With ``partial``, slots of other tables or data sets that were recorded before remain.
        """
        slots = list(slots)
        if partial and study in self.studies():
            renewed = {_table_of(slot) for slot in slots}
            slots += [slot for slot in self.slots(study) if _table_of(slot) not in renewed]
        rows = [(study, position, slot.id, slot.to_json()) for position, slot in enumerate(slots)]
        with self._transaction():
            self._connection.execute("DELETE FROM slots WHERE study = ?", (study,))
            self._connection.executemany("INSERT INTO slots VALUES (?, ?, ?, ?)", rows)

    def put(self, trial: Trial, outcome: Outcome) -> None:
        """Record the outcome of a trial."""
        from rankbound.evaluation.query_sets import is_bound_column

        self._check_exists()
        files = {name: self._write(name, trial.id, getattr(outcome, name)) for name in ("scores", "history")}
        others = ("qid", "items", "relevant")
        measures = [name for name in outcome.scores.columns if name not in others and not is_bound_column(name)]
        means = {name: outcome.scores[name].mean() for name in measures}
        metadata = outcome.metadata | {"queries": outcome.scores.height, "mean": means}
        if outcome.examples is not None:
            files["examples"] = self._write("examples", trial.id, outcome.examples)
            metadata["examples"] = outcome.examples.height
        self._record(trial, "done", metadata=metadata, files=files, seconds=outcome.seconds)

    def put_failure(self, trial: Trial, error: str, seconds: float = 0.0) -> None:
        """Record why a trial failed."""
        self._check_exists()
        self._record(trial, "failed", error=error, seconds=seconds)

    def _check_exists(self) -> None:
        """SQLite continues to write to a file that has been deleted, and everything would be lost in the end."""
        file = self.folder / "trials.sqlite"
        if not file.exists():
            raise DataError(f"{file}: was removed while trials were running; their results cannot be kept")

    def _path(self, name: str, trial: str) -> Path:
        return self.folder / name / f"{trial}.parquet"

    def _write(self, name: str, trial: str, frame: pl.DataFrame) -> str:
        """Write a file of a trial and return its SHA-256."""
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        content = buffer.getvalue()  # a view of the buffer, kept alive by an error's traceback, would keep it locked
        self._write_content(name, trial, content)
        return hashlib.sha256(content).hexdigest()

    def _write_content(self, name: str, trial: str, content: bytes) -> None:
        path = self._path(name, trial)
        with _explain_errors(path):
            try:
                with atomic_write(path) as temporary, temporary.open("wb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())  # on disk before the row is committed
            except DataError as error:
                raise (error.__cause__ if isinstance(error.__cause__, OSError) else error) from error

    def _record(
        self,
        trial: Trial,
        status: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        error: str | None = None,
        seconds: float,
    ) -> None:
        from rankbound import __version__

        row = {"id": trial.id, "status": status, "kind": trial.spec.kind, "model": trial.spec.model}
        row |= {"data": trial.source.name, "digest": trial.digest, "spec": trial.spec.to_json()}
        row |= {"metadata": _text(metadata or {}), "files": _text(files or {})}
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        self._insert(row | {"error": error, "seconds": seconds, "finished": finished, "version": __version__})

    def _insert(self, row: Mapping[str, Any]) -> None:
        values = [row[name] for name in _COLUMNS]
        with self._transaction():
            self._connection.execute(
                f"INSERT OR REPLACE INTO trials VALUES ({', '.join('?' * len(values))})",  # noqa: S608 - placeholders
                values,
            )

    # ---- exchange: see `rankbound.studies.exchange` --------------------------------------------------------------

    def records(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The rows of all trials and of all slots, as dicts."""
        trials = self._rows(f"SELECT {', '.join(_COLUMNS)} FROM trials ORDER BY finished, rowid")  # noqa: S608 - our own names
        slots = self._rows("SELECT study, trial, slot FROM slots ORDER BY study, position")
        names = ("study", "trial", "slot")
        return (
            [dict(zip(_COLUMNS, row, strict=True)) for row in trials],
            [dict(zip(names, row, strict=True)) for row in slots],
        )

    def content(self, name: str, trial: str) -> bytes:
        """The bytes of a file of a trial; DataError if they are not those that were written."""
        path = self._path(name, trial)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise DataError(
                f"{path}: is missing, although its trial is recorded as done; the store is damaged {_SAFE}"
            ) from None
        if hashlib.sha256(content).hexdigest() != self._written_digest(name, trial):
            raise DataError(f"{path}: is damaged: its SHA-256 is not the one recorded when it was written {_SAFE}")
        return content

    def add(self, trial: Mapping[str, Any], frames: Mapping[str, bytes]) -> None:
        """Add a trial of another store: its row and its files."""
        self._check_exists()
        for name, content in frames.items():
            self._write_content(name, trial["id"], content)
        self._insert(trial)

    def add_slots(self, slots: Iterable[Mapping[str, Any]]) -> None:
        """Add slots of studies after those that are known."""
        with self._transaction():
            known = set(self._connection.execute("SELECT study, trial, slot FROM slots").fetchall())
            last = dict(self._connection.execute("SELECT study, MAX(position) FROM slots GROUP BY study").fetchall())
            for slot in slots:
                study, row = slot["study"], (slot["study"], slot["trial"], slot["slot"])
                if row not in known:
                    last[study] = last.get(study, -1) + 1
                    self._connection.execute("INSERT INTO slots VALUES (?, ?, ?, ?)", (study, last[study], *row[1:]))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explain_errors(self.folder / "trials.sqlite"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    # ---- reading -----------------------------------------------------------------------------------------------------

    def states(self) -> dict[str, str]:
        """Id -> "done" or "failed", of every trial that was run."""
        return dict(self._rows("SELECT id, status FROM trials"))

    def studies(self) -> list[str]:
        """Names of the studies in this store."""
        return [name for (name,) in self._rows("SELECT DISTINCT study FROM slots ORDER BY study")]

    def slots(self, study: str | None = None) -> list[TrialSlot]:
        """The slots of a study in its order, finished or not; without ``study``, those of all studies."""
        query = "SELECT trial, slot FROM slots WHERE study = ? OR ? IS NULL ORDER BY study, position"
        slots = []
        with self._sound():
            for trial, text in self._rows(query, (study, study)):
                slot = TrialSlot.from_json(text)
                if slot.id != trial:
                    raise DataError(
                        f"{self.folder / 'trials.sqlite'}: is damaged: the slot of trial {trial} describes the trial "
                        f"{slot.id} {_SAFE}"
                    )
                slots.append(slot)
        if not slots and study is not None:
            known = ", ".join(self.studies()) or "none"
            raise ArgumentError(f"{self.folder}: contains no study {study!r}; it has {known}")
        return slots

    def metadata(self) -> dict[str, dict[str, Any]]:
        """Id -> metadata of every finished trial: eval_score, mean of each measure, kept_epoch, ..."""
        rows = self._rows("SELECT id, metadata FROM trials WHERE status='done'")
        with self._sound():
            return {name: json.loads(metadata) for name, metadata in rows}

    def failures(self) -> dict[str, str]:
        """Id -> error of every trial that failed."""
        return dict(self._rows("SELECT id, error FROM trials WHERE status='failed'"))

    def seconds(self) -> dict[str, float]:
        """Id -> duration, of every finished trial."""
        return dict(self._rows("SELECT id, seconds FROM trials WHERE status='done'"))

    def scores(self, trial: str) -> pl.DataFrame:
        """Scores of a trial, a row per query."""
        return self._read("scores", trial)

    def history(self, trial: str) -> pl.DataFrame:
        """Training history of a trial: epoch, quantity, value."""
        return self._read("history", trial)

    def examples(self, trial: str) -> pl.DataFrame:
        """Example pairs of images of a trial whose metadata have ``examples``."""
        return self._read("examples", trial)

    def trials(self) -> pl.DataFrame:
        """A row per trial that was run: id, status, kind, model, data, digest, seconds, error, finished, version."""
        names = ("id", "status", "kind", "model", "data", "digest", "seconds", "error", "finished", "version")
        rows = self._rows(f"SELECT {', '.join(names)} FROM trials ORDER BY finished, rowid")  # noqa: S608 - our own names
        types = {name: pl.Float64 if name == "seconds" else pl.String for name in names}
        with self._sound():
            return pl.DataFrame(rows, schema=types, orient="row")

    def score_table(self, study: str | None = None) -> pl.DataFrame:
        """The score table of a study: a row per selected trial x query, see `rankbound.studies.results`."""
        from rankbound.studies.results import score_table

        with self._sound():
            return score_table(self, self.slots(study))

    def history_table(self, study: str | None = None) -> pl.DataFrame:
        """The training history of the selected trials of a study."""
        from rankbound.studies.results import history_table

        with self._sound():
            return history_table(self, self.slots(study))

    def examples_table(self, study: str | None = None) -> pl.DataFrame:
        """Example pairs of images of the trials of a study; empty if they kept none."""
        from rankbound.studies.results import examples_table

        with self._sound():
            return examples_table(self, self.slots(study))

    def results(self, study: str, published: pl.DataFrame | None = None) -> pl.DataFrame:
        """The results table of a study, with published numbers if there are any."""
        from rankbound.studies.results import results_table

        with self._sound():
            return results_table(self, self.slots(study), published)

    @contextlib.contextmanager
    def _sound(self) -> Iterator[None]:
        """Report rows and files that are not as `Store` wrote them as damage, whatever error they lead to."""
        try:
            yield
        except RankboundError:
            raise
        except (Exception, pl.exceptions.PanicException) as error:
            raise DataError(f"{self.folder}: is damaged: {type(error).__name__}: {error} {_SAFE}") from error

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with _explain_errors(self.folder / "trials.sqlite"):
            return self._connection.execute(query, values).fetchall()

    def _read(self, name: str, trial: str) -> pl.DataFrame:
        content = self.content(name, trial)
        try:
            return read_trial_frame(name, content)
        except DataError as error:
            raise DataError(f"{self._path(name, trial)}: is damaged: {error} {_SAFE}") from error

    def _written_digest(self, name: str, trial: str) -> str | None:
        """SHA-256 of a trial's file, as recorded when it was written."""
        rows = self._rows("SELECT files FROM trials WHERE id = ?", (trial,))
        with self._sound():
            return json.loads(rows[0][0]).get(name) if rows else None


def read_trial_frame(name: str, content: bytes) -> pl.DataFrame:
    """Read the Parquet file of a trial, one of `FRAMES`; DataError unless it has the columns that a trial writes."""
    from rankbound.studies.image_pairs import check_examples

    try:
        frame = pl.read_parquet(content)
    except polars_failures() as error:
        raise DataError(str(error)) from error
    if name == "examples":
        check_examples(frame)
        return frame
    known = _FRAME_COLUMNS[name]
    numbers = [column for column in frame.columns if column not in known] if name == "scores" else []
    for column, kind in (known | dict.fromkeys(numbers, "numbers")).items():
        got = frame.schema.get(column)
        fits = got is not None and {"text": got == pl.String, "integers": got.is_integer()}.get(kind, got.is_numeric())
        if not fits and not (column in numbers and got == pl.Null):
            raise DataError(f"{name} must have {kind} in the column {column!r}, got {got}")
        if column in known and frame[column].null_count():
            raise DataError(f"{name} must have a value in every row of the column {column!r}")
    return frame


def _table_of(slot: TrialSlot) -> tuple[str, str]:
    return slot.setting["table"], slot.setting["data"]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
