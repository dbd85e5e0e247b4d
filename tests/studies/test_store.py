"""The store: complete, locked, and never repaired silently."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys

import polars as pl
import pytest

from rankbound.errors import ArgumentError, DataError
from rankbound.studies.store import open_store
from rankbound.studies.trial import Outcome

from .conftest import ROWS


def outcome(value: float = 0.5, rows: int = 2) -> Outcome:
    scores = pl.DataFrame(
        {"qid": [str(at) for at in range(rows)], "items": 3, "relevant": 1, "nDCG": value, "AP": 0.25}
    )
    history = pl.DataFrame({"epoch": [1], "quantity": ["loss"], "value": [0.1]})
    return Outcome(scores, history, {"eval_score": value}, 1.5)


@pytest.fixture
def slots(plan):
    return plan(ROWS)


def test_stored_results_are_read_back(slots, tmp_path):
    with open_store(tmp_path / "store", create=True) as store, store.locked():
        store.register("mine", slots)
        store.put(slots[0].trial, outcome())
        store.put_failure(slots[1].trial, "too bad\nsomewhere")
    with open_store(tmp_path / "store") as store:
        assert store.states() == {slots[0].trial.id: "done", slots[1].trial.id: "failed"}
        assert store.studies() == ["mine"]
        assert [slot.to_json() for slot in store.slots("mine")] == [slot.to_json() for slot in slots]
        assert [slot.id for slot in store.slots()] == [slot.id for slot in slots]
        assert store.metadata()[slots[0].trial.id]["mean"] == {"nDCG": 0.5, "AP": 0.25}
        assert store.failures() == {slots[1].trial.id: "too bad\nsomewhere"}
        assert store.scores(slots[0].trial.id).equals(outcome().scores)
        assert store.trials().select("status", "seconds").rows() == [("done", 1.5), ("failed", 0.0)]
        table = store.score_table("mine")
        assert {"data", "variant", "system", "fold", "seed", "qid", "items", "relevant", "AP"} < set(table.columns)
        assert table["nDCG"].to_list() == [0.5, 0.5]
        assert store.history_table().columns == [
            "data",
            "variant",
            "system",
            "fold",
            "seed",
            "epoch",
            "quantity",
            "value",
        ]
        with pytest.raises(ArgumentError, match="contains no study 'other'; it has mine"):
            store.slots("other")


def test_folders_without_a_store_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="contains no results"):
        open_store(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArgumentError, match="is a file, expected the folder"):
        open_store(tmp_path / "file", create=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(ArgumentError, match="contains other files and no store"):
        open_store(tmp_path / "other", create=True)


@pytest.fixture
def filled(slots, tmp_path):
    with open_store(tmp_path / "store", create=True) as store:
        store.put(slots[0].trial, outcome())
    return tmp_path / "store"


def content(folder):
    return {file.name: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def cut(file):
    file.write_bytes(file.read_bytes()[:3000])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "trials.sqlite: is damaged"),
        (lambda file: file.write_bytes(b"not a database at all" * 100), "trials.sqlite: is damaged or cannot be used"),
        (lambda file: file.write_bytes(b""), "is missing or empty, although the folder has scores"),
        (lambda file: file.unlink(), "is missing or empty, although the folder has scores"),
    ],
)
def test_a_damaged_store_is_reported_and_not_changed(filled, damage, message):
    damage(filled / "trials.sqlite")
    before = content(filled)
    for create in (True, False):
        with pytest.raises(DataError, match=message):
            open_store(filled, create=create)
    assert content(filled) == before


@pytest.mark.parametrize(("schema", "writer"), [("2", "an older version"), ("99", "another version")])
def test_other_schemas_and_databases_are_refused(filled, tmp_path, schema, writer):
    connection = sqlite3.connect(filled / "trials.sqlite")
    connection.execute("UPDATE about SET value = ?", (schema,))
    connection.execute("DROP TABLE slots")  # older stores have other tables
    connection.commit()
    connection.close()
    message = (
        rf"has schema {schema}, but this version of rankbound reads schema 3 only.*by {writer} and was not changed"
    )
    with pytest.raises(DataError, match=message):
        open_store(filled)
    other = tmp_path / "other"
    other.mkdir()
    connection = sqlite3.connect(other / "trials.sqlite")
    connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    with pytest.raises(DataError, match="is a database, but not a store of rankbound"):
        open_store(other, create=True)


def test_damaged_or_missing_scores_are_reported(filled, slots):
    file = filled / "scores" / f"{slots[0].trial.id}.parquet"
    cut(file)
    file.write_bytes(file.read_bytes()[:50])
    with open_store(filled) as store:
        with pytest.raises(DataError, match=r"parquet: is damaged"):
            store.scores(slots[0].trial.id)
        file.unlink()
        with pytest.raises(DataError, match=r"parquet: is missing, although its trial is recorded as done"):
            store.scores(slots[0].trial.id)


def test_files_with_any_bit_flipped_are_reported(filled, slots):
    """Every byte in turn: polars would give other numbers for some of these, and end the process over others."""
    trial = slots[0].trial.id
    with open_store(filled) as store:
        for part, read in (("scores", store.scores), ("history", store.history)):
            file = filled / part / f"{trial}.parquet"
            whole = file.read_bytes()
            for place in range(len(whole)):
                file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
                with pytest.raises(DataError, match=r"parquet: is damaged: its SHA-256 is not the one recorded"):
                    read(trial)
            file.write_bytes(whole)
            assert read(trial).equals(getattr(outcome(), part))


HOLD = """
import sys
from rankbound.studies.store import open_store
with open_store(sys.argv[1]) as store, store.locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.full("takes seconds")
def test_a_second_runner_is_refused_and_a_killed_one_leaves_no_lock(filled):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(filled)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder, open_store(filled) as store:
        assert holder.stdout.readline() == "held\n"
        message = rf"another process \({holder.pid} on .*\) is writing to the store"
        with pytest.raises(DataError, match=message), store.locked():
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        (filled / "scores" / ".half.parquet.x").write_bytes(b"half")  # what a kill can leave
        with store.locked():
            assert not (filled / "scores" / ".half.parquet.x").exists()


def test_a_full_disk_is_reported_and_loses_nothing(filled, slots):
    """A limit on the size of files stands for a disk without room: the kernel refuses the write in both cases."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open_store(filled) as store:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
            with pytest.raises(DataError, match="there is no space left to write; finished trials are kept"):
                store.put(slots[1].trial, outcome(rows=5000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert store.states() == {slots[0].trial.id: "done"}
        assert len(list((filled / "scores").iterdir())) == 1
        store.put(slots[1].trial, outcome(rows=5000))
        assert len(store.states()) == 2


# ---- folders from elsewhere ------------------------------------------------------------------------------------------


@pytest.fixture
def written(slots, tmp_path):
    with open_store(tmp_path / "store", create=True) as store, store.locked():
        store.register("mine", slots[:1])
        store.put(slots[0].trial, outcome())
    return tmp_path / "store"


@pytest.mark.parametrize("name", ["lock", "scores", "history", "examples", "trials.sqlite", "trials.sqlite-wal"])
def test_a_store_with_links_is_refused_and_what_they_point_to_is_kept(name, written, tmp_path):
    """Opening one truncated the file that ``lock`` points to, and deleted dot files of folders."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".profile").write_text("mine")
    (outside / "text").write_text("mine")
    path = written / name
    is_folder = path.is_dir() or name == "examples"
    if path.exists():
        path.rename(tmp_path / "moved")
    path.symlink_to(outside if is_folder else outside / "text")
    for create in (False, True):
        with pytest.raises(DataError, match=f"{name}: a store must not contain symbolic links"):
            open_store(written, create=create)
    assert {file.name: file.read_text() for file in outside.iterdir()} == {".profile": "mine", "text": "mine"}


def test_a_lock_that_is_another_file_is_refused(written, tmp_path):
    (tmp_path / "text").write_text("mine")
    (written / "lock").unlink()
    os.link(tmp_path / "text", written / "lock")
    with open_store(written) as store, pytest.raises(DataError, match="must be a file of its own"), store.locked():
        pass
    assert (tmp_path / "text").read_text() == "mine"


@pytest.mark.parametrize("tables", ["CREATE TABLE mine (x)", "VACUUM"])
@pytest.mark.parametrize("create", [False, True])
def test_databases_of_other_programs_are_not_changed(tables, create, tmp_path):
    """Listing them switched their journal to WAL; one without tables became a store."""
    file = tmp_path / "theirs" / "trials.sqlite"
    file.parent.mkdir()
    (file.parent / "their notes").write_text("")
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute(tables)
    connection.close()
    before = file.read_bytes()
    with pytest.raises(DataError, match="is a database, but not a store of rankbound"):
        open_store(file.parent, create=create)
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir() if path.is_file()) == ["their notes", "trials.sqlite"]


WRONG = {
    "no qid": ("scores", lambda frame: frame.drop("qid"), "scores must have text in the column 'qid', got None"),
    "qid": ("scores", lambda frame: frame.with_columns(qid=pl.lit(1)), "text in the column 'qid', got Int32"),
    "items": ("scores", lambda frame: frame.with_columns(items=pl.lit("3")), "integers in the column 'items'"),
    "empty": (
        "scores",
        lambda frame: frame.with_columns(relevant=pl.lit(None, pl.Int64)),
        "in every row of the column",
    ),
    "measure": ("scores", lambda frame: frame.with_columns(AP=pl.lit([1])), "numbers in the column 'AP', got List"),
    "no epoch": ("history", lambda frame: frame.drop("epoch"), "integers in the column 'epoch', got None"),
    "value": ("history", lambda frame: frame.with_columns(value=pl.lit("x")), "numbers in the column 'value'"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.cases(7)
def test_frames_with_other_columns_are_damage(name, written, slots):
    """Their digests are right, because whoever wrote them wrote the row, too."""
    kind, change, message = WRONG[name]
    trial = slots[0].id
    file = written / kind / f"{trial}.parquet"
    change(pl.read_parquet(file)).write_parquet(file)
    with sqlite3.connect(written / "trials.sqlite") as connection:
        (files,) = connection.execute("SELECT files FROM trials").fetchone()
        digests = json.loads(files) | {kind: hashlib.sha256(file.read_bytes()).hexdigest()}
        connection.execute("UPDATE trials SET files = ?", (json.dumps(digests),))
    connection.close()
    with open_store(written) as store, pytest.raises(DataError, match=message):
        getattr(store, kind)(trial)
