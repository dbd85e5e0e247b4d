"""Atomic writes."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from rankbound.errors import DataError
from rankbound.io import atomic_write


@pytest.mark.parametrize("durable", [True, False])
def test_the_file_is_replaced_when_the_block_succeeds(tmp_path, durable):
    target = tmp_path / "new" / "result"
    for text in ("first", "second"):
        with atomic_write(target, durable=durable) as temporary:
            temporary.write_text(text)
            assert temporary.parent == target.parent
            assert not target.exists() or target.read_text() == "first"
        assert target.read_text() == text
    assert [file.name for file in target.parent.iterdir()] == ["result"]


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_the_file_stays_as_it_was_when_the_block_raises(tmp_path, error):
    (tmp_path / "result").write_text("before")
    expected = DataError if isinstance(error, OSError) else type(error)

    def write():
        with atomic_write(tmp_path / "result") as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(expected) as caught:
        write()
    if expected is DataError:
        assert str(caught.value) == f"{tmp_path / 'result'}: cannot be written: No space left on device"
    assert (tmp_path / "result").read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["result"]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_result_has_the_permissions_of_an_ordinary_file(tmp_path):
    (tmp_path / "ordinary").write_text("")
    with atomic_write(tmp_path / "result") as temporary:
        temporary.write_text("text")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "result")}
    assert len(modes) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_into_and_stays_one(tmp_path, linked):
    pipe, name = tmp_path / "pipe", tmp_path / ("link" if linked else "pipe")
    os.mkfifo(pipe)
    if linked:
        name.symlink_to(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with atomic_write(name) as temporary:
        temporary.write_bytes(b"x" * 100_000)
        assert temporary.parent != tmp_path  # nothing is made next to a device
    reader.join(timeout=20)
    assert read == [b"x" * 100_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert name.is_symlink() == linked
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted({"pipe", name.name})


@pytest.mark.skipif(os.name == "nt", reason="devices of POSIX")
def test_a_device_is_never_replaced(monkeypatch):
    before = Path(os.devnull).stat()
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: pytest.fail("a device is replaced"))  # tests may run as root
    with atomic_write(os.devnull) as temporary:
        temporary.write_text("text")
    assert not temporary.exists()
    with pytest.raises(ValueError, match="mine"), atomic_write(os.devnull) as temporary:
        raise ValueError("mine")
    assert not temporary.exists()
    after = Path(os.devnull).stat()
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)
