"""The fast tier has a case of every property, and no test depends on what only some machines have."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
READING = ("get", "getenv", "pop", "setdefault")


def reads_data_folder(tree: ast.AST) -> list[int]:
    """Lines that read RANKBOUND_DATA from the environment: ``os.environ["..."]``, ``.get("...")`` and the like."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            name = node.slice
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in READING:
            name = node.args[0] if node.args else None
        else:
            continue
        if isinstance(name, ast.Constant) and name.value == "RANKBOUND_DATA":
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('Path(os.environ["RANKBOUND_DATA"]) / "sets"', [1]),
        ('x = 1\nos.environ.get("RANKBOUND_DATA", "")', [2]),
        ('os.getenv("RANKBOUND_DATA")', [1]),
        ('monkeypatch.setenv("RANKBOUND_DATA", "x"); environment["RANKBOUND_DATA"] = "x"', []),
    ],
)
def test_readers_of_the_data_folder_are_found(code, found):
    assert reads_data_folder(ast.parse(code)) == found


def test_real_data_are_read_through_the_fixture_that_skips():
    """Without data, a test that reads the variable itself fails on every machine but ours."""
    readers = {
        str(path.relative_to(TESTS)): lines
        for path in sorted(TESTS.rglob("*.py"))
        if (lines := reads_data_folder(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert list(readers) == ["conftest.py"]


MODULE = """
import pytest
from tests.tiers import examples

@pytest.mark.parametrize("case", range(100))
def test_many(case): pass

@pytest.mark.cases(7)
@pytest.mark.parametrize("case", range(100))
def test_more(case): pass

@pytest.mark.parametrize("case", range(3))
def test_few(case): pass

@pytest.mark.full("slow")
def test_slow(): pass

def test_examples(): assert examples(100).max_examples == {examples}
"""


@pytest.mark.parametrize(("options", "tests", "examples"), [((), 4 + 7 + 3 + 1, 20), (("--everything",), 205, 100)])
def test_each_function_keeps_cases_in_the_fast_tier(tmp_path, options, tests, examples):
    (tmp_path / "test_it.py").write_text(MODULE.replace("{examples}", str(examples)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(TESTS.parent / "pyproject.toml"),
    ]
    done = subprocess.run(
        [*command, "-p", "tests.conftest", "-n", "0", *options, str(tmp_path / "test_it.py")],
        cwd=TESTS.parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout
