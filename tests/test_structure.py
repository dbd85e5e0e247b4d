"""How the sources are built: sizes, names and types, with limits that may only go down."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "rankbound"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
# public functions, whose keywords are sugar for the fields of Protocol, Inference and other options
SUGAR = set(
    "evaluate compare tune run_study plan_study run_all_studies distribution difficulty_weights weights_of_parts "
    "query_types compare_normalizations additive cascade check_measure __init__".split()
)
LONG = {"lists.py": 530, "ranked.py": 540, "ties.py": 580, "smooth.py": 670}  # may only shrink


def lines_with(pattern: str) -> int:
    return sum(bool(re.search(pattern, line)) for path in FILES for line in path.read_text("utf-8").splitlines())


def functions():
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield path, node


def test_lines_are_formatted_without_exceptions():
    assert lines_with(r"# fmt: (skip|off)") == 0


def test_lines_with_any():
    assert lines_with(r"\bAny\b") <= 1520


def test_no_module_is_long():
    lines = {path: path.read_text("utf-8").count("\n") for path in FILES}
    assert {path.name: count for path, count in lines.items() if count > LONG.get(path.name, 500)} == {}


def test_public_names_are_listed_by_packages_alone():
    listing = [path.name for path in FILES if re.search(r"^__all__", path.read_text("utf-8"), re.MULTILINE)]
    assert set(listing) == {"__init__.py"}


def test_functions_are_short():
    lengths = sorted(node.end_lineno - node.body[0].lineno + 1 for _, node in functions())
    assert lengths[len(lengths) // 2] <= 8


def test_functions_have_few_parameters():
    many = Counter()
    for path, node in functions():
        if path.parent.name == "cli" or node.name in SUGAR:
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if sum(one.arg not in ("self", "cls") for one in arguments) > 8:
            many[f"{path.relative_to(SOURCE)}: {node.name}"] += 1
    assert not many


@pytest.mark.parametrize("word", ["numba"])
def test_what_is_gone_stays_gone(word):
    sources = [*FILES, SOURCE.parents[1] / "pyproject.toml"]
    assert [path.name for path in sources if word in path.read_text("utf-8")] == []
