"""Clocks that jump, and files whose times say nothing."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from rankbound.data.array_cache import read_cached
from rankbound.data.letor import LetorData, read_letor
from rankbound.difficulty.distribution import cache as distribution_cache
from rankbound.errors import DataError

pytestmark = pytest.mark.full("kills processes and takes away what they need")

HOUR = 3600


@pytest.fixture
def features(letor, tmp_path, monkeypatch):
    """The features of the file, by way of the cache, and how often it was read."""
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    read = []

    def get():
        def reader():
            read.append(letor)
            return read_letor(letor)

        table = read_cached([letor], reader, LetorData)
        assert np.array_equal(table.features, read_letor(letor).features)
        return len(read)

    return get


def test_a_file_that_changes_and_keeps_its_size_and_time(features, letor):
    """As `cp -p` and `touch -r` leave it, or a clock that was set back."""
    assert features() == 1
    before, text = letor.stat(), letor.read_text()
    letor.write_text(text.replace("2:1", "2:7"))
    os.utime(letor, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert letor.stat().st_mtime_ns == before.st_mtime_ns
    assert letor.stat().st_size == before.st_size
    assert features() == 2


@pytest.mark.parametrize("hours", [-24 * 365 * 60, 24 * 365 * 60])
def test_files_from_the_past_and_the_future(features, letor, hours):
    os.utime(letor, (time.time() + hours * HOUR,) * 2)
    assert features() == 1
    assert features() == 1


def test_a_file_that_is_changed_while_it_is_read(letor, tmp_path, monkeypatch):
    """Half of one content and half of another must not be kept as either."""
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    text = letor.read_text()

    def reader():
        table = read_letor(letor)
        letor.write_text(text + "1 qid:99 1:1 2:1\n")
        return table

    with pytest.raises(DataError, match="was changed while it was being read"):
        read_cached([letor], reader, LetorData)
    letor.write_text(text)
    assert len(read_cached([letor], lambda: read_letor(letor), LetorData).lists) == 12


def test_distributions_when_the_clock_jumps_back(tmp_path, monkeypatch):
    """The newest distribution may be taken for the oldest and dropped: it is computed again, nothing else happens."""
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path))
    monkeypatch.setattr(distribution_cache, "_MOST_FILES", 5)
    distribution = (np.zeros(1), np.ones(1), "closed")
    for key in range(12):
        distribution_cache.store(key, distribution)
        for file in (tmp_path / "distributions").iterdir():
            os.utime(file, (time.time() + (HOUR if key % 2 else -HOUR),) * 2)
    assert 0 < len(list((tmp_path / "distributions").iterdir())) <= 6
    assert all(distribution_cache.load(key) in (None, distribution) for key in range(12))


TRIALS = """
title = "T"
[[tables]]
data = { letor = "letor.txt" }
model = "AdaRank"
folds = 3
measures = ["AP"]
"""


def test_a_store_when_the_clock_jumps(letor, tmp_path, monkeypatch):
    """Trials are known by what they are, not by when they ran: none is lost or run twice, none takes negative time."""
    from rankbound.studies import store as store_module
    from rankbound.studies.expansion import expand
    from rankbound.studies.runner import unfinished_slots
    from rankbound.studies.store import open_store
    from rankbound.studies.study_files import load_study
    from rankbound.studies.worker import attempt

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(TRIALS)
    planned = [slot.identified() for slot in expand(load_study("mine.toml"))]
    assert len(planned) == 3
    clock = [datetime(2030, 1, 1, tzinfo=UTC)]

    class Jumping(datetime):
        @classmethod
        def now(cls, zone=None):
            clock[0] -= timedelta(days=400)
            return clock[0]

    monkeypatch.setattr(store_module, "datetime", Jumping)
    monkeypatch.setattr(time, "time", lambda: clock[0].timestamp())
    with open_store(tmp_path / "store", create=True) as store, store.locked():
        for one in planned:
            store.put(one.trial, attempt(one.trial))
        assert unfinished_slots(planned, store) == []
    with open_store(tmp_path / "store") as store:
        trials = store.trials()
        assert trials.height == 3
        assert trials["seconds"].min() >= 0
        assert sorted(trials["finished"].str.slice(0, 4)) == ["2026", "2027", "2028"]
