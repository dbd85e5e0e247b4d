"""Archives are unpacked whole, inside their folder, or not at all."""

from __future__ import annotations

import bz2
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from rankbound.data.archives import unpack
from rankbound.errors import DataError


def tape(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as out:
        for member in members:
            out.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def regular(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = 3
    return info


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return info


def test_the_one_outer_folder_is_left_out(tmp_path: Path) -> None:
    target = tmp_path / "out"
    unpack(tape(tmp_path / "a.tar.gz", regular("set/Fold1/train.txt"), regular("set/Fold2/train.txt")), target)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*.txt")) == [
        "Fold1/train.txt",
        "Fold2/train.txt",
    ]


def test_a_single_packed_file_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "trust_data.txt.bz2").write_bytes(bz2.compress(b"1 2\n"))
    assert unpack(tmp_path / "trust_data.txt.bz2", tmp_path / "out") == [tmp_path / "out" / "trust_data.txt"]
    assert (tmp_path / "out" / "trust_data.txt").read_bytes() == b"1 2\n"


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (regular("../evil"), "must stay inside its folder"),
        (regular("a/../../evil"), "must stay inside its folder"),
        (regular("/evil"), "must stay inside its folder"),
        (regular("a\\..\\evil"), "must stay inside its folder"),
        (regular("C:evil"), "must stay inside its folder"),
        (link("a", tarfile.SYMTYPE), "links and devices are not allowed in an archive, got 'a'"),
        (link("a", tarfile.LNKTYPE), "links and devices are not allowed"),
        (link("a", tarfile.CHRTYPE), "links and devices are not allowed"),
    ],
)
def test_members_that_lead_outside_are_refused(tmp_path: Path, member: tarfile.TarInfo, message: str) -> None:
    target = tmp_path / "deep" / "out"
    with pytest.raises(DataError, match=message):
        unpack(tape(tmp_path / "a.tar.gz", regular("good"), member), target)
    assert list(target.iterdir()) == []
    assert not (tmp_path / "deep" / "evil").exists()


def test_links_in_zip_archives_are_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("a")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as box:
        box.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="links are not allowed in an archive, got 'a'"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    path = tape(tmp_path / "a.tar.gz", *(regular(f"f{k}") for k in range(50)))
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError, match=r"a\.tar\.gz: (is damaged|cannot be unpacked)"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
