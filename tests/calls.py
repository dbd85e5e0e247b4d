"""Which functions of the package a call runs: short paths are quick, and quick to read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import rankbound

PACKAGE = str(Path(rankbound.__file__).parent)


def calls_of(work: Callable[[], object]) -> list[tuple[str, str]]:
    """The functions of the package that a call runs, once for each time, as (module, name)."""
    seen = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            seen.append((frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_name))

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen
