"""Reading files, compressed or not."""

from __future__ import annotations

import gzip
import io
import sys

import numpy as np
import pytest
import zstandard

from rankbound.errors import DataError
from rankbound.io import open_bytes, read_arrays, read_bytes

CONTENT = bytes(range(256)) * 5_000
PACKED = {
    "plain": CONTENT,
    "gzip": gzip.compress(CONTENT),
    "gzip in two members": gzip.compress(CONTENT[:1_000]) + gzip.compress(CONTENT[1_000:]),
    "zstandard": zstandard.compress(CONTENT),
    "zstandard in two frames": zstandard.compress(CONTENT[:1_000]) + zstandard.compress(CONTENT[1_000:]),
}


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_compression_is_recognized_by_content(tmp_path, packed):
    (tmp_path / "file.txt").write_bytes(packed)
    assert read_bytes(tmp_path / "file.txt") == CONTENT
    with open_bytes(tmp_path / "file.txt") as stream:
        assert b"".join(iter(lambda: stream.read(777), b"")) == CONTENT


@pytest.mark.parametrize("kind", ["gzip", "zstandard", "zstandard in two frames"])
def test_a_file_that_was_cut_short_is_refused(tmp_path, kind):
    (tmp_path / "cut").write_bytes(PACKED[kind][:-5])
    with pytest.raises(DataError, match="cut: cannot be read"):
        read_bytes(tmp_path / "cut")


def test_missing_files_and_impossible_names_are_refused(tmp_path):
    with pytest.raises(DataError, match="absent: cannot be read: No such file"):
        read_bytes(tmp_path / "absent")
    with pytest.raises(DataError, match="a file name has no NUL character"):
        read_bytes("a\0b")


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PACKED["gzip"])))
    assert read_bytes("-") == CONTENT


def test_arrays_of_objects_and_other_members_are_refused(tmp_path):
    np.savez(tmp_path / "good.npz", a=np.arange(3), b=np.ones((2, 2)))
    arrays = read_arrays(tmp_path / "good.npz")
    assert arrays["a"].tolist() == [0, 1, 2]
    assert arrays["b"].shape == (2, 2)
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    with pytest.raises(DataError, match=r"objects\.npz: cannot be read"):
        read_arrays(tmp_path / "objects.npz")
