"""Download one file: resume where the last attempt stopped, verify, and rename."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from rankbound.errors import ArgumentError, DataError

Progress = Callable[[int, int | None], None]  # bytes received, total bytes if the server knows
_BLOCK = 1 << 18
_NUMBER, _HEADER = re.compile("[0-9]{1,18}"), re.compile("[ -~]{1,1000}")  # of headers
_RANGE = re.compile("bytes ([0-9]{1,18})-")


def fetch(url: str, target: Path, sha256: str | None = None, progress: Progress | None = None) -> str:
    """Download to ``target`` and return the sha256 of the file.

    If the connection breaks, the received bytes are kept next to the target (``.part``), and the next attempt continues
    them if the file on the server has not changed. A wrong checksum or a full disk leaves no file behind.
    """
    if not url.startswith(("http://", "https://")):
        raise ArgumentError(f"url must be an http or https address, got {url!r}")
    part, mark = target.with_name(target.name + ".part"), target.with_name(target.name + ".part.json")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _transfer(url, part, mark, progress)
        digest = _digest(part)
        if sha256 is not None and digest != sha256:
            raise DataError(f"{url}: wrong checksum, expected sha256 {sha256}, got {digest}")
        part.replace(target)
    except DataError:
        part.unlink(missing_ok=True)
        mark.unlink(missing_ok=True)
        raise
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = getattr(error, "reason", None) or error  # the received bytes are kept for the next attempt
        raise DataError(f"{url}: cannot be downloaded: {reason}") from error  # ValueError: a redirection to no address
    except OSError as error:
        part.unlink(missing_ok=True)
        mark.unlink(missing_ok=True)
        raise DataError(f"{target}: cannot be written: {error.strerror or error}") from error
    mark.unlink(missing_ok=True)
    return digest


def _transfer(url: str, part: Path, mark: Path, progress: Progress | None) -> None:
    headers = {"User-Agent": "rankbound"}
    version = _known_version(mark, url)
    size = part.stat().st_size if part.exists() else 0
    if size and version:
        headers |= {"Range": f"bytes={size}-", "If-Range": version}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  http(s) only, checked by fetch
    try:
        response = urllib.request.urlopen(request, timeout=60)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        part.unlink()  # the received bytes are not a prefix of the file
        mark.unlink(missing_ok=True)
        response = urllib.request.urlopen(url, timeout=60)  # noqa: S310
    with response:
        have = 0
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            have = _first_byte(response)
            if have not in (0, size):
                part.unlink(missing_ok=True)
                raise ConnectionError(f"the server did not say that it sent the bytes from {size} on; try again")
        version = response.headers.get("ETag") or response.headers.get("Last-Modified")
        mark.write_text(json.dumps({"url": url, "version": version}))
        length = response.headers.get("Content-Length") or ""
        total = have + int(length) if _NUMBER.fullmatch(length) else None
        with part.open("ab" if have else "wb") as out:
            _copy(response, out, have, total, progress)
    if total is not None and part.stat().st_size < total:
        raise ConnectionError(f"the connection broke after {part.stat().st_size} of {total} bytes")


def _first_byte(response: http.client.HTTPResponse) -> int:
    """The position of the first byte of a part of a file, as the server says; -1 if it does not."""
    found = _RANGE.match(response.headers.get("Content-Range") or "")
    return -1 if found is None else int(found[1])


def _copy(
    response: http.client.HTTPResponse, out: IO[bytes], have: int, total: int | None, progress: Progress | None
) -> None:
    while block := response.read(_BLOCK):
        out.write(block)
        have += len(block)
        if progress is not None:
            progress(have, total)


def _known_version(mark: Path, url: str) -> str:
    """The version of the file of which some bytes were received; empty if it is unknown or cannot be a header."""
    try:
        state = json.loads(mark.read_text())
    except (OSError, ValueError, RecursionError):
        return ""
    version = state.get("version") if isinstance(state, dict) and state.get("url") == url else None
    return version if isinstance(version, str) and _HEADER.fullmatch(version) else ""


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
