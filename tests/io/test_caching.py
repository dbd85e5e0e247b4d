"""One meaning of RANKBOUND_CACHE for everything that keeps files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rankbound.data.array_cache import read_cached
from rankbound.data.catalog import find_entry, set_folders
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.set_files import check, obtain
from rankbound.difficulty.distribution import cache as distribution_cache
from rankbound.errors import DataError
from rankbound.io import cache_folder, caching_is_off, is_private_and_writable

DISTRIBUTION = np.array([0.0, 1.0]), np.array([0.5, 0.5]), "dynamic"


@pytest.fixture
def surroundings(tmp_path, monkeypatch):
    """A home folder of its own, and a LETOR file."""
    for name in ("RANKBOUND_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "letor.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.25\n")
    return tmp_path


def keep_everything(folder: Path) -> None:
    """Let every user of the cache keep something."""
    distribution_cache.store("key", DISTRIBUTION)
    file = folder / "letor.txt"
    table = read_cached([file], lambda: read_letor(file), LetorData)
    assert table.features.tolist() == [[0.5], [0.25]]
    assert table.notes == ()


@pytest.mark.skipif(os.name == "nt", reason="where POSIX systems keep caches")
@pytest.mark.parametrize("named", [False, True])
def test_all_users_keep_their_files_in_one_folder(surroundings, monkeypatch, named):
    monkeypatch.setattr("sys.platform", "linux")
    expected = surroundings / "named" if named else surroundings / "home" / ".cache" / "rankbound"
    if named:
        monkeypatch.setenv("RANKBOUND_CACHE", str(expected))
    else:
        monkeypatch.delenv("RANKBOUND_CACHE", raising=False)
    assert not caching_is_off()
    assert cache_folder() == expected
    keep_everything(surroundings)
    assert distribution_cache.load("key") is not None
    assert {path.name for path in expected.iterdir()} == {"converted", "distributions"}
    assert set_folders(find_entry("mq2008")) == [expected / "data" / "mq2008"]


def test_an_empty_variable_means_that_no_files_are_kept(surroundings, monkeypatch):
    monkeypatch.setenv("RANKBOUND_CACHE", "")
    assert caching_is_off()
    before = sorted(surroundings.rglob("*"))
    assert cache_folder() is None
    keep_everything(surroundings)
    assert distribution_cache.load("key") is None
    assert sorted(surroundings.rglob("*")) == before
    entry = find_entry("ml-1m")
    assert set_folders(entry) == []
    assert {state.state for state in check(entry)} == {"missing"}
    with pytest.raises(DataError, match="RANKBOUND_CACHE is empty or this user has no home folder"):
        obtain(entry)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners of POSIX")
def test_a_folder_that_others_can_write_is_not_private(tmp_path):
    assert is_private_and_writable(tmp_path / "own" / "cache")
    (tmp_path / "own").chmod(0o777)
    assert not is_private_and_writable(tmp_path / "own" / "cache")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    assert not is_private_and_writable(tmp_path / "link")
