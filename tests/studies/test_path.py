"""How many modules a study passes through from the command line to its results: short paths are quick to read."""

from __future__ import annotations

from rankbound.cli.main import run
from tests.calls import calls_of

from .conftest import ROWS

QUICK = """
[quick]
only = { random_state = 0 }
"""


def stops_of(work) -> list[str]:
    """The modules of the command line and of studies whose functions a call runs, in the order of the first call."""
    return [name for name in dict.fromkeys(name for name, _ in calls_of(work)) if name.startswith(("/cli", "/studies"))]


def test_a_quick_study_takes_a_short_path(folder, capsys):
    (folder / "mine.toml").write_text(ROWS + QUICK)
    command = ["reproduce", "mine.toml", "--quick", "--jobs", "0", "--no-page", "--json"]
    assert run(command) == 0
    stops = stops_of(lambda: run([*command, "--store", "again"]))
    assert len(stops) <= 18, stops
