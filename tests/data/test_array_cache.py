"""The cache of converted files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rankbound.data import array_cache as module
from rankbound.data import loading
from rankbound.data.array_cache import read_cached
from rankbound.data.interactions import Interactions
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.ratings import read_ratings


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data.txt"
    path.write_text("1 qid:3 1:0.5 #a\n0 qid:4 1:1 #bc\n1 qid:3 1:2 #d\n")
    return path


def never() -> LetorData:
    raise AssertionError("the file must not be read again")


def test_second_opening_maps_the_same_arrays_and_reads_nothing(source: Path) -> None:
    first = read_cached([source], lambda: read_letor(source), LetorData)
    second = read_cached([source], never, LetorData)
    plain = read_letor(source)
    for data in (first, second):
        np.testing.assert_array_equal(data.features, plain.features)
        np.testing.assert_array_equal(data.lists.labels, plain.lists.labels)
        np.testing.assert_array_equal(data.lists.ids, plain.lists.ids)
        np.testing.assert_array_equal(data.lists.qids, plain.lists.qids)
        assert data.notes == plain.notes
    assert isinstance(second.features, np.memmap)


def test_interactions_are_kept_too(tmp_path: Path) -> None:
    path = tmp_path / "u.data"
    path.write_text("1\ta\t3\t4\n2\tb\t5\t6\n")
    plain = read_cached([path], lambda: read_ratings(path), Interactions)
    again = read_cached([path], lambda: Interactions.from_columns([0], [0]), Interactions)
    assert again.item_names.tolist() == plain.item_names.tolist() == ["a", "b"]
    assert again.timestamps is not None
    assert again.timestamps.tolist() == [4, 6]


def test_changed_content_options_or_reader_are_read_anew(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def read() -> LetorData:
        calls.append(1)
        return read_letor(source)

    read_cached([source], read, LetorData)
    read_cached([source], read, LetorData, options="other")
    assert len(calls) == 2
    source.write_text("1 qid:1 1:0.25\n")
    os.utime(source, ns=(1, 1))
    assert read_cached([source], read, LetorData).features.tolist() == [[0.25]]
    monkeypatch.setattr(module, "READER_VERSION", 999)
    read_cached([source], read, LetorData)
    assert len(calls) == 4


def test_a_touched_file_with_the_same_content_is_not_read_again(source: Path) -> None:
    read_cached([source], lambda: read_letor(source), LetorData)
    os.utime(source, ns=(1, 1))
    read_cached([source], never, LetorData)


def test_a_damaged_entry_is_replaced(source: Path, own_cache: Path) -> None:
    read_cached([source], lambda: read_letor(source), LetorData)
    for file in own_cache.rglob("features.npy"):
        file.write_bytes(b"rubbish")
    data = read_cached([source], lambda: read_letor(source), LetorData)
    assert data.features.shape == (3, 1)
    read_cached([source], never, LetorData)


def test_a_full_disk_gives_the_data_with_a_note_and_leaves_nothing(
    source: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Path, *_: object, **__: object) -> None:
        Path(file).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    data = read_cached([source], lambda: read_letor(source), LetorData)
    assert data.features.shape == (3, 1)
    assert data.notes[-1] == "not kept in the cache: No space left on device"
    assert list(own_cache.rglob("*.npy")) == []


def test_large_sets_go_through_the_cache(own_data: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_data / "ml-1m").mkdir()
    (own_data / "ml-1m" / "ratings.dat").write_text("1::2::3::4\n")
    monkeypatch.setattr(loading, "_LARGE", 1)
    assert len(loading.load_set("ml-1m")) == 1
    assert list(own_cache.rglob("users.npy"))
    assert len(loading.load_set("ml-1m")) == 1
