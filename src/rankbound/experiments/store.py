"""Where results are kept: a folder with trials.sqlite, and Parquet files of scores and of history for every trial.

A trial of images may have a third file, of examples to be looked at.

A trial counts as done when its row is committed, and its files are on disk before that: whoever is killed at any
moment loses the trial at hand and nothing else. One runner may write at a time, which a lock of the operating system
sees to: it goes with the process that holds it, however that ends. Readers need no lock.

The row keeps the SHA-256 of the trial's files, and a file that is not as it was written is not read: its numbers would
be wrong, and polars ends the process over some damaged Parquet files.
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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbound.data.frames import polars_failures
from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.io import atomic_write, locked_file

if TYPE_CHECKING:
    import polars as pl

    from rankbound.experiments.trial import Outcome, Trial

__all__ = ["SCHEMA", "Placed", "Rule", "Store", "open_store"]

SCHEMA = 2
_PARTS = ("scores", "history", "examples")  # folders of a file per trial
_TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials (
    id TEXT PRIMARY KEY, status TEXT NOT NULL, family TEXT NOT NULL, model TEXT NOT NULL, data TEXT NOT NULL,
    digest TEXT NOT NULL, spec TEXT NOT NULL, metadata TEXT NOT NULL, files TEXT NOT NULL, error TEXT, seconds REAL,
    finished TEXT NOT NULL, version TEXT NOT NULL
);
CREATE TABLE plans (
    study TEXT NOT NULL, place INTEGER NOT NULL, trial TEXT NOT NULL, fold INTEGER NOT NULL, seed INTEGER NOT NULL,
    setting TEXT NOT NULL, system TEXT NOT NULL, variant TEXT NOT NULL, rule TEXT NOT NULL, point TEXT NOT NULL,
    PRIMARY KEY (study, place)
);
"""


@dataclass(frozen=True)
class Rule:
    """How one trial among the points of a grid is chosen, and which measures make rows."""

    selection: str
    select_by: str
    choose: str
    report: tuple[str, ...]
    versus: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Placed:
    """The place of a trial in a study: ``setting`` is what makes a row of the results, ``point`` that of the grid."""

    id: str
    fold: int
    seed: int
    setting: Mapping[str, str]
    system: str
    variant: str
    rule: Rule
    point: Mapping[str, str] = field(default_factory=dict)


def open_store(path: str | os.PathLike[str], *, create: bool = False) -> Store:
    """Open the store in a folder; with ``create`` an absent one is made. What is wrong with it is told, not mended."""
    folder = Path(path)
    file = folder / "trials.sqlite"
    if not file.exists() or file.stat().st_size == 0:
        if folder.exists() and not folder.is_dir():
            raise ArgumentError(f"{folder}: is a file, expected the folder of a store")
        if any((folder / "scores").glob("*.parquet")):
            raise DataError(
                f"{file}: is missing or empty, yet there are scores beside it; the store is damaged {_SAFE}"
            )
        if not create:
            raise ArgumentError(f"{folder}: holds no results; rankbound reproduce makes such a folder")
        if not file.exists() and folder.is_dir() and any(folder.iterdir()) and not _begun(folder):
            raise ArgumentError(f"{folder}: holds other files and no store; name an empty or new folder")
    with _explained(file):
        for part in _PARTS if create else ():
            (folder / part).mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK) and os.access(file, os.W_OK)
        return Store(folder, _connected(file) if create or writable else _connected_to_read(file))


_SAFE = "(nothing was changed: bring back a copy, or move the folder away to begin anew)"


def _begun(folder: Path) -> bool:
    """Whether a folder is what a runner leaves that was killed before its first commit."""
    return {file.name for file in folder.iterdir()} <= {*_PARTS, "lock", "trials.sqlite-wal", "trials.sqlite-shm"}


def _connected(file: Path) -> sqlite3.Connection:
    return _checked(sqlite3.connect(file, timeout=30, isolation_level=None), file)


def _connected_to_read(file: Path) -> sqlite3.Connection:
    """A store in a folder that may not be written to: nothing changes there unless a runner left its log behind."""
    unchanging = not file.with_name(f"{file.name}-wal").exists()
    address = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if unchanging else ''}"
    return _checked(sqlite3.connect(address, timeout=30, isolation_level=None, uri=True), file, reading=True)


def _checked(connection: sqlite3.Connection, file: Path, reading: bool = False) -> sqlite3.Connection:
    try:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not reading:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        if not names and not reading:
            connection.executescript(
                f"BEGIN IMMEDIATE;{_TABLES}INSERT INTO about VALUES ('schema', '{SCHEMA}');COMMIT;"  # noqa: S608
            )
            return connection
        if not {"about", "trials", "plans"} <= names:
            raise DataError(f"{file}: is a database, but not one of rankbound {_SAFE}")
        (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise DataError(f"{file}: is damaged: {damage} {_SAFE}")
        (schema,) = connection.execute("SELECT value FROM about WHERE key = 'schema'").fetchone() or ("none",)
        if schema != str(SCHEMA):
            raise DataError(f"{file}: has schema {schema}, this version of rankbound reads {SCHEMA} {_SAFE}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Errors of the database and the disk as ours, with the file's name."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:  # what a damaged file claims may need any memory
        if "full" in str(error):
            raise _no_space(file) from error
        if "readonly" in str(error):
            raise DataError(f"{file}: cannot be written: the file or its folder is read-only") from error
        reason = str(error) or "it asks for more memory than there is"
        raise DataError(f"{file}: is damaged or cannot be used: {reason} {_SAFE}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise _no_space(file) from error
        raise DataError(f"{file}: cannot be used: {error.strerror or error}") from error


def _no_space(file: Path) -> DataError:
    return DataError(
        f"{file}: there is no space left to write; the trials that were finished are kept, and the same command goes "
        "on from there once there is room"
    )


class Store:
    """Results of trials, and the places that trials have in studies."""

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
        advice = "is writing to this store; wait until it is done, or give this runner its own --store"
        with _explained(self.folder / "lock"), locked_file(self.folder / "lock", advice):
            self._sweep()
            yield

    def _sweep(self) -> None:
        """Remove what a killed writer left half-written."""
        for part in _PARTS:
            for file in (self.folder / part).glob(".*"):
                file.unlink()

    def register(self, study: str, placed: Iterable[Placed]) -> None:
        """Note all trials of a study and their places in it, done or not, instead of what was noted before."""
        rows = [
            (study, at, one.id, one.fold, one.seed, _text(one.setting), one.system, one.variant,
             _text(vars(one.rule)), _text(one.point))
            for at, one in enumerate(placed)
        ]  # fmt: skip
        with self._transaction():
            self._connection.execute("DELETE FROM plans WHERE study = ?", (study,))
            self._connection.executemany("INSERT INTO plans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def put(self, trial: Trial, outcome: Outcome) -> None:
        """Keep what a trial gave."""
        from rankbound.analysis.query_sets import is_bound_column

        self._must_be_there()
        files = {part: self._write(part, trial.id, getattr(outcome, part)) for part in ("scores", "history")}
        metadata_of_queries = ("qid", "items", "relevant")
        names = [
            name for name in outcome.scores.columns if name not in metadata_of_queries and not is_bound_column(name)
        ]
        means = {name: outcome.scores[name].mean() for name in names}
        metadata = outcome.metadata | {"queries": outcome.scores.height, "mean": means}
        if outcome.examples is not None:
            files["examples"] = self._write("examples", trial.id, outcome.examples)
            metadata["examples"] = outcome.examples.height
        self._note(trial, "done", metadata, files, None, outcome.seconds)

    def put_failure(self, trial: Trial, error: str, seconds: float = 0.0) -> None:
        """Keep why a trial failed."""
        self._must_be_there()
        self._note(trial, "failed", {}, {}, error, seconds)

    def _must_be_there(self) -> None:
        """The database would go on writing to a file that has no name any more, and all would be lost in the end."""
        file = self.folder / "trials.sqlite"
        if not file.exists():
            raise DataError(f"{file}: was taken away while trials were running; what they give cannot be kept")

    def _path(self, part: str, trial: str) -> Path:
        return self.folder / part / f"{trial}.parquet"

    def _write(self, part: str, trial: str, frame: pl.DataFrame) -> str:
        """Write a file of a trial and give its SHA-256."""
        path, buffer = self._path(part, trial), io.BytesIO()
        frame.write_parquet(buffer)
        content = buffer.getvalue()  # a view of the buffer, kept by an error's traceback, would not let go of it
        with _explained(path):
            try:
                with atomic_write(path) as temporary, temporary.open("wb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())  # on disk before the row says that it is there
            except DataError as error:
                raise (error.__cause__ if isinstance(error.__cause__, OSError) else error) from error
        return hashlib.sha256(content).hexdigest()

    def _note(
        self,
        trial: Trial,
        status: str,
        metadata: dict[str, Any],
        files: dict[str, str],
        error: str | None,
        seconds: float,
    ) -> None:
        from rankbound import __version__

        spec = trial.spec
        row = (
            trial.id, status, spec["family"], spec["model"], trial.source.name, trial.digest, _text(spec),
            _text(metadata),
            _text(files), error, seconds, datetime.now(UTC).isoformat(timespec="seconds"), __version__,
        )  # fmt: skip
        with self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self.folder / "trials.sqlite"):
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
        """Id of every trial that was run -> done or failed."""
        return dict(self._rows("SELECT id, status FROM trials"))

    def studies(self) -> list[str]:
        """Names of the studies that have trials here."""
        return [name for (name,) in self._rows("SELECT DISTINCT study FROM plans ORDER BY study")]

    def placed(self, study: str | None = None) -> list[Placed]:
        """The trials of a study in its order, done or not; of all studies if none is named."""
        columns = "trial, fold, seed, setting, system, variant, rule, point"
        query = f"SELECT {columns} FROM plans WHERE study = ? OR ? IS NULL ORDER BY study, place"  # noqa: S608 - ours
        with self._sound():
            found = [
                Placed(
                    trial, fold, seed, json.loads(setting), system, variant, _rule(json.loads(rule)), json.loads(point)
                )
                for trial, fold, seed, setting, system, variant, rule, point in self._rows(query, (study, study))
            ]
        if not found and study is not None:
            raise ArgumentError(
                f"{self.folder}: holds no study {study!r}; it has {', '.join(self.studies()) or 'none'}"
            )
        return found

    def metadata(self) -> dict[str, dict[str, Any]]:
        """Metadata of every trial that is done: eval_score, mean of each measure, kept_epoch, ..."""
        rows = self._rows("SELECT id, metadata FROM trials WHERE status='done'")
        with self._sound():
            return {name: json.loads(metadata) for name, metadata in rows}

    def failures(self) -> dict[str, str]:
        """Id -> error of every trial that failed."""
        return dict(self._rows("SELECT id, error FROM trials WHERE status='failed'"))

    def seconds(self) -> dict[str, float]:
        """Id -> what the trial took, of those that are done."""
        return dict(self._rows("SELECT id, seconds FROM trials WHERE status='done'"))

    def scores(self, trial: str) -> pl.DataFrame:
        """Scores per query of a trial."""
        return self._read("scores", trial)

    def history(self, trial: str) -> pl.DataFrame:
        """How the training of a trial went."""
        return self._read("history", trial)

    def examples(self, trial: str) -> pl.DataFrame:
        """Pairs of images of a trial whose metadata have ``examples``."""
        from rankbound.analysis.image_pairs import check_examples

        found = self._read("examples", trial)
        try:
            check_examples(found)
        except DataError as error:
            raise DataError(f"{self._path('examples', trial)}: is damaged: {error} {_SAFE}") from error
        return found

    def trials(self) -> pl.DataFrame:
        """A row per trial that was run: id, status, model, data, seconds, error, finished, version."""
        import polars as pl

        names = ("id", "status", "family", "model", "data", "digest", "seconds", "error", "finished", "version")
        rows = self._rows(f"SELECT {', '.join(names)} FROM trials ORDER BY finished, id")  # noqa: S608 - our own names
        types = {name: pl.Float64 if name == "seconds" else pl.String for name in names}
        with self._sound():
            return pl.DataFrame(rows, schema=types, orient="row")

    def score_table(self, study: str | None = None) -> pl.DataFrame:
        """The score table of a study: a row per chosen trial x query, see `rankbound.experiments.results`."""
        from rankbound.experiments.results import score_table

        with self._sound():
            return score_table(self, self.placed(study))

    def history_table(self, study: str | None = None) -> pl.DataFrame:
        """The history table of a study's chosen trials."""
        from rankbound.experiments.results import history_table

        with self._sound():
            return history_table(self, self.placed(study))

    def examples_table(self, study: str | None = None) -> pl.DataFrame:
        """Pairs of images that trials of a study kept; no rows if none did."""
        from rankbound.experiments.results import examples_table

        with self._sound():
            return examples_table(self, self.placed(study))

    def results(self, study: str, published: pl.DataFrame | None = None) -> pl.DataFrame:
        """The results table of a study, beside published numbers if they are given."""
        from rankbound.experiments.results import results_table

        with self._sound():
            return results_table(self, self.placed(study), published)

    @contextlib.contextmanager
    def _sound(self) -> Iterator[None]:
        """Refuse rows and files that are not as we wrote them, whatever goes wrong when they are brought together."""
        import polars as pl

        try:
            yield
        except RankboundError:
            raise
        except (Exception, pl.exceptions.PanicException) as error:
            raise DataError(f"{self.folder}: is damaged: {type(error).__name__}: {error} {_SAFE}") from error

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with _explained(self.folder / "trials.sqlite"):
            return self._connection.execute(query, values).fetchall()

    def _read(self, part: str, trial: str) -> pl.DataFrame:
        import polars as pl

        path = self._path(part, trial)
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != self._written(part, trial):
                raise DataError(f"{path}: is damaged: it is not what was written, by its SHA-256 {_SAFE}")
            return pl.read_parquet(content)
        except FileNotFoundError:
            raise DataError(
                f"{path}: is missing, yet its trial is noted as done; the store is damaged {_SAFE}"
            ) from None
        except polars_failures() as error:
            raise DataError(f"{path}: is damaged: {error} {_SAFE}") from error

    def _written(self, part: str, trial: str) -> str | None:
        """SHA-256 of a trial's file when it was written."""
        rows = self._rows("SELECT files FROM trials WHERE id = ?", (trial,))
        with self._sound():
            return json.loads(rows[0][0]).get(part) if rows else None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _rule(found: dict[str, Any]) -> Rule:
    versus = tuple((key, value) for key, value in found["versus"])
    return Rule(found["selection"], found["select_by"], found["choose"], tuple(found["report"]), versus)
