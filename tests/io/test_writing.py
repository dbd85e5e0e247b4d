"""Atomic writes."""

from __future__ import annotations

import os
import stat

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
