"""Downloads from a server on this machine: resumed, checked, whole or not at all."""

from __future__ import annotations

import gc
import hashlib
import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import pytest

from rankbound.data import archives, download
from rankbound.data.catalog import DataFile, Entry, find_entry
from rankbound.data.download import fetch
from rankbound.data.loading import read_files
from rankbound.data.set_files import check, obtain
from rankbound.errors import ArgumentError, DataError


@dataclass
class Site:
    """The files of the server, how often it breaks the connection after how many bytes, and its requests."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: int | None = None
    version: str = '"v1"'
    ranges: list[str | None] = field(default_factory=list)
    misled: int | None = None  # the first byte that the server sends of a part, whatever was asked; -1: it says none
    length: str = ""  # what it says in place of the length
    location: str = ""  # where it redirects to


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range") if self.headers.get("If-Range") == site.version else None
            site.ranges.append(wanted)
            if site.location:
                self.send_response(302)
                self.send_header("Location", site.location)
                self.end_headers()
                return
            content = site.files.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            if wanted and site.misled is not None:
                start = max(site.misled, 0)
            self.send_response(206 if wanted else 200)
            self.send_header("ETag", site.version)
            self.send_header("Content-Length", site.length or str(len(content) - start))
            if wanted and site.misled != -1:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            stop = len(content) if site.break_after is None else start + site.break_after
            self.wfile.write(content[start:stop])

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_port}/"
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


CONTENT = bytes(range(256)) * 4000


def test_a_file_arrives_with_its_checksum_and_progress(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = CONTENT
    seen: list[tuple[int, int | None]] = []
    digest = fetch(site.address + "a.bin", tmp_path / "a.bin", progress=lambda *step: seen.append(step))
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert digest == hashlib.sha256(CONTENT).hexdigest()
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_a_broken_download_is_continued(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"], site.break_after = CONTENT, 500_000
    with pytest.raises(DataError, match="cannot be downloaded: the connection broke after 500000 of 1024000 bytes"):
        fetch(site.address + "a.bin", tmp_path / "a.bin")
    assert not (tmp_path / "a.bin").exists()
    site.break_after = None
    fetch(site.address + "a.bin", tmp_path / "a.bin", hashlib.sha256(CONTENT).hexdigest())
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert site.ranges == [None, "bytes=500000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"], site.break_after = b"old" * 100, 100
    with pytest.raises(DataError, match="the connection broke"):
        fetch(site.address + "a.bin", tmp_path / "a.bin")
    site.files["a.bin"], site.break_after, site.version = b"new" * 100, None, '"v2"'
    fetch(site.address + "a.bin", tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == b"new" * 100


def test_a_wrong_checksum_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.files["a.bin"] = CONTENT
    with pytest.raises(DataError, match="wrong checksum, expected sha256 00, got"):
        fetch(site.address + "a.bin", tmp_path / "a.bin", "00")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files["a.bin"] = CONTENT

    def full(response: Any, out: IO[bytes], *_: Any) -> None:
        out.write(response.read(100))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "_copy", full)
    with pytest.raises(DataError, match=r"a\.bin: cannot be written: No space left on device"):
        fetch(site.address + "a.bin", tmp_path / "a.bin")
    assert list(tmp_path.iterdir()) == []


def test_addresses_that_do_not_answer_are_named(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.bin: cannot be downloaded: Not Found"):
        fetch(site.address + "none.bin", tmp_path / "a.bin")
    with pytest.raises(DataError, match="cannot be downloaded"):
        fetch("http://127.0.0.1:9/", tmp_path / "a.bin")
    with pytest.raises(ArgumentError, match="url must be an http or https address, got 'file:///etc/passwd'"):
        fetch("file:///etc/passwd", tmp_path / "a.bin")


def broken(site: Site, target: Path) -> None:
    """Leave the first half of a file, as after a broken connection."""
    site.files["a.bin"], site.break_after = CONTENT, 500_000
    with pytest.raises(DataError, match="the connection broke"):
        fetch(site.address + "a.bin", target)
    site.break_after = None


def test_a_part_from_the_first_byte_on_is_no_continuation(site: Site, tmp_path: Path) -> None:
    broken(site, tmp_path / "a.bin")
    site.misled = 0
    fetch(site.address + "a.bin", tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("first", [-1, 7, 600_000])
def test_a_part_from_elsewhere_is_refused_and_fetched_anew(site: Site, tmp_path: Path, first: int) -> None:
    broken(site, tmp_path / "a.bin")
    site.misled = first
    with pytest.raises(DataError, match="the server did not say that it sent the bytes from 500000 on; try again"):
        fetch(site.address + "a.bin", tmp_path / "a.bin")
    fetch(site.address + "a.bin", tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("length", ["many", "-5", "\u0661", "9" * 5_000, "1.5"])
def test_a_length_that_is_no_number_is_ignored(site: Site, tmp_path: Path, length: str) -> None:
    site.files["a.bin"], site.length = CONTENT, length.encode().decode("latin-1")
    fetch(site.address + "a.bin", tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[::1", "no scheme:x", "http://a b/", "//", "ftp:"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # urllib leaves its connection open
def test_a_redirection_to_no_address_is_one_error(site: Site, tmp_path: Path, location: str) -> None:
    site.location = location
    with pytest.raises(DataError, match=r"a\.bin: cannot be downloaded: "):
        fetch(site.address + "a.bin", tmp_path / "a.bin")
    gc.collect()
    assert not (tmp_path / "a.bin").exists()


NOTES = ['{"url": URL, "version": 5}', '{"url": URL, "version": "a\\nb: c"}', '{"url": URL, "version": "\\u0661"}']


@pytest.mark.parametrize("note", [*NOTES, "[1]", "[[1, 2]]", "null", "{", "\0", "[" * 100_000])
def test_a_damaged_note_on_a_part_is_ignored(site: Site, tmp_path: Path, note: str) -> None:
    broken(site, tmp_path / "a.bin")
    address = site.address + "a.bin"
    (tmp_path / "a.bin.part.json").write_text(note.replace("URL", f'"{address}"'))
    fetch(address, tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert site.ranges[-1] is None


# ---- whole sets ------------------------------------------------------------------------------------------------------


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as box:
        for name, content in files.items():
            box.writestr(name, content)
    return out.getvalue()


RATINGS = b"1::2::3::4\n1::3::5::6\n"


@pytest.fixture
def entry(site: Site, monkeypatch: pytest.MonkeyPatch) -> Entry:
    monkeypatch.delenv("RANKBOUND_DATA", raising=False)
    return replace(find_entry("ml-1m"), download=(site.address + "ml-1m.zip",))


def test_a_set_is_downloaded_unpacked_noted_and_found_again(site: Site, entry: Entry, own_cache: Path) -> None:
    site.files["ml-1m.zip"] = zipped({"ml-1m/ratings.dat": RATINGS, "ml-1m/README": b"hello"})
    files = obtain(entry)
    assert files == [own_cache / "data" / "ml-1m" / "ratings.dat"]
    assert len(read_files(entry, files)) == 2
    assert [state.state for state in check(entry)] == ["ok", "missing"]  # the csv file, which a copy may have instead
    assert obtain(entry) == files
    assert len(site.ranges) == 1
    files[0].write_bytes(RATINGS + b"2::2::2::2\n")
    assert [state.state for state in check(entry)] == ["wrong", "missing"]


def test_offline_says_which_file_to_put_where(entry: Entry, own_cache: Path) -> None:
    with pytest.raises(DataError) as caught:
        obtain(replace(entry, download=("http://127.0.0.1:9/ml-1m.zip",)))
    message = str(caught.value)
    assert "Download http://127.0.0.1:9/ml-1m.zip on a machine with a network" in message
    assert f"Put ratings.dat (plain, .gz or .zst) into {own_cache / 'data' / 'ml-1m'}" in message


def test_a_downloaded_file_with_a_wrong_checksum_is_removed(site: Site, entry: Entry, own_cache: Path) -> None:
    site.files["ml-1m.zip"] = zipped({"ml-1m/ratings.dat": RATINGS})
    with pytest.raises(DataError, match=r"ratings\.dat: wrong checksum, expected sha256 00.*it was removed"):
        obtain(replace(entry, files=(DataFile("ratings.dat", "00"),)))
    assert not (own_cache / "data" / "ml-1m" / "ratings.dat").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped({"../evil.txt": b"x"}), r"a member of an archive must stay inside its folder, got '\.\./evil\.txt'"),
        (zipped({"/evil.txt": b"x"}), "must stay inside its folder, got '/evil.txt'"),
        (b"no zip at all", "ml-1m.zip: is damaged: File is not a zip file"),
        (zipped({"ml-1m/other.dat": RATINGS}), "the download lacks some of its files"),
    ],
)
def test_bad_archives_are_refused_and_removed(
    site: Site, entry: Entry, own_cache: Path, content: bytes, message: str
) -> None:
    site.files["ml-1m.zip"] = content
    with pytest.raises(DataError, match=message):
        obtain(entry)
    left = [path.name for path in own_cache.rglob("*") if path.is_file()]
    assert set(left) <= {"checksums.json", "other.dat"}
    assert not (own_cache / "evil.txt").exists()


def test_a_disk_that_fills_up_while_unpacking_leaves_nothing(
    site: Site, entry: Entry, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files["ml-1m.zip"] = zipped({"ml-1m/ratings.dat": RATINGS})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archives.shutil, "copyfileobj", full)
    with pytest.raises(DataError, match=r"ml-1m\.zip: cannot be unpacked into .*No space left on device"):
        obtain(entry)
    assert [path for path in own_cache.rglob("*") if path.is_file()] == []
