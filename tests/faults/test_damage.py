"""Caches and checkpoints with flipped bits, cut, emptied, or full of something else."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from rankbound.checkpoints import Checkpoints
from rankbound.data.array_cache import read_cached
from rankbound.data.letor import LetorData, read_letor
from rankbound.difficulty.distribution import cache as distribution_cache
from rankbound.errors import DataError


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_distribution_with_any_bit_flipped_is_not_used(own_cache):
    """Every byte of the file in turn: the distribution comes back as it was, or not at all."""
    distribution = (np.array([0.25, 1.0]), np.array([0.5, 0.5]), "closed")
    distribution_cache.store("key", distribution)
    (file,) = (own_cache / "distributions").iterdir()
    whole = file.read_bytes()
    for index in range(len(whole)):
        file.write_bytes(whole[:index] + bytes([whole[index] ^ 0x40]) + whole[index + 1 :])
        loaded = distribution_cache.load("key")
        assert loaded is None or all(np.array_equal(*pair) for pair in zip(loaded, distribution, strict=True)), index


def empty(entry):
    (entry / "features.npy").write_bytes(b"")


def without_labels(entry):
    (entry / "labels.npy").unlink()


def with_a_stranger(entry):
    np.save(entry / "stranger.npy", np.ones(3))


def with_other_notes(entry):
    (entry / "notes.json").write_text("null")


def cut(entry):
    file = entry / "features.npy"
    file.write_bytes(file.read_bytes()[:-8])


def with_objects(entry):
    np.save(entry / "features.npy", np.array([print], dtype=object), allow_pickle=True)


def with_broken_headers(entry):
    whole = (entry / "features.npy").read_bytes()
    (entry / "features.npy").write_bytes(whole[:40] + b"(((" + whole[43:])


def in_the_way(entry):
    shutil.rmtree(entry)
    entry.write_text("a file")


@pytest.mark.parametrize(
    "damage",
    [empty, cut, without_labels, with_a_stranger, with_other_notes, with_objects, with_broken_headers, in_the_way],
)
def test_converted_data_that_are_damaged_are_read_anew(own_cache, letor, damage):
    def features():
        return read_cached([letor], lambda: read_letor(letor), LetorData).features

    expected = np.array(features())
    (entry,) = (path for path in (own_cache / "converted").iterdir() if path.name != "checksums")
    damage(entry)
    assert np.array_equal(features(), expected)
    assert np.array_equal(features(), expected)


@pytest.mark.parametrize("text", ["", "null", "[1]", '{"stamp": 3}', "[" * 100_000, "\xff"])
def test_remembered_checksums_that_are_damaged_are_computed_anew(own_cache, letor, text):
    expected = read_cached([letor], lambda: read_letor(letor), LetorData).features
    (memory,) = (own_cache / "converted" / "checksums").iterdir()
    good = memory.read_bytes()
    memory.write_text(text, encoding="latin-1")
    assert np.array_equal(read_cached([letor], lambda: pytest.fail("it is kept"), LetorData).features, expected)
    assert memory.read_bytes() == good


def test_a_checkpoint_with_any_bit_flipped_is_refused(tmp_path):
    steps = Checkpoints(tmp_path, {"seed": 0})
    steps.save(1, {"weights": np.arange(3.0)}, {"history": [0.5, 0.25]})
    for file in (tmp_path / "epoch-000001").iterdir():
        whole = file.read_bytes()
        for index in range(len(whole)):
            file.write_bytes(whole[:index] + bytes([whole[index] ^ 0x02]) + whole[index + 1 :])
            with pytest.raises(DataError, match=r"epoch-000001: this checkpoint cannot be read"):
                steps.load()
        file.write_bytes(whole)
    assert steps.load()[1] == {"history": [0.5, 0.25]}


def test_a_step_that_was_half_removed_goes_with_the_next(tmp_path):
    steps = Checkpoints(tmp_path, {"seed": 0})
    steps.save(1, {"weights": np.arange(3.0)}, {})
    (tmp_path / "epoch-000001" / "state.json").unlink()
    assert steps.load() is None
    steps.save(2, {"weights": np.arange(3.0)}, {})
    assert [step.name for step in tmp_path.iterdir()] == ["epoch-000002"]


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    steps = Checkpoints(tmp_path, {"seed": 0})
    steps.save(1, {"weights": np.arange(3.0)}, {})
    for record in ([], None, {"sha256": 7}):
        (tmp_path / "epoch-000001" / "state.json").write_text(json.dumps(record))
        with pytest.raises(DataError, match="this checkpoint cannot be read"):
            steps.load()
