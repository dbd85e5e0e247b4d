"""How many modules a study passes through from the command line to its results: short paths are quick to read."""

from __future__ import annotations

import sys
from pathlib import Path

import rankbound as rb
from rankbound.cli.main import run

from .conftest import ROWS

PACKAGE = str(Path(rb.__file__).parent)
QUICK = """
[quick]
only = { random_state = 0 }
"""


def stops_of(work) -> list[str]:
    """The modules of the command line and of studies whose functions a call runs, in the order of the first call."""
    seen: dict[str, None] = {}

    def count(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith((f"{PACKAGE}/cli", f"{PACKAGE}/studies")):
            seen.setdefault(name.removeprefix(PACKAGE))

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return list(seen)


def test_a_quick_study_takes_a_short_path(folder, capsys):
    (folder / "mine.toml").write_text(ROWS + QUICK)
    command = ["reproduce", "mine.toml", "--quick", "--jobs", "0", "--no-page", "--json"]
    assert run(command) == 0
    stops = stops_of(lambda: run([*command, "--store", "again"]))
    assert len(stops) <= 18, stops
