"""The store: complete, locked, and never repaired silently."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys

import polars as pl
import pytest

from rankbound.errors import ArgumentError, DataError
from rankbound.experiments.store import open_store
from rankbound.experiments.trial import Outcome

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
from rankbound.experiments.store import open_store
with open_store(sys.argv[1]) as store, store.locked():
    print("held", flush=True)
    sys.stdin.read()
"""


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
