"""The table of docs/reference/faults.md and the tests agree, and the source keeps what docs/security.md promises."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytest.importorskip("altair")

import altair as alt

from rankbound.report.figures.saving import save_chart

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in (ROOT / "docs" / "reference" / "faults.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "::test_" in line
]


def names_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_row_has_a_test():
    for *_, test in ROWS:
        file, _, name = test.strip("`").partition("::")
        assert name in names_in(ROOT / "tests" / file), test


def test_every_test_has_a_row():
    named = [test.strip("`") for *_, test in ROWS]
    assert len(named) == len(set(named)) == len({tuple(row[:2]) for row in ROWS})
    ours = {
        f"faults/{file.name}::{name}"
        for file in Path(__file__).parent.glob("test_*.py")
        if file != Path(__file__)
        for name in names_in(file)
    }
    assert ours <= set(named)


def test_the_table_is_long_and_complete():
    assert len(ROWS) >= 25
    assert all(len(row) == 5 and all(row) for row in ROWS)


FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "code", "runpy"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "joblib.load"}


def test_nothing_is_executed():
    """The source has no module and no call that executes what it reads, and no shell."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules, call, keywords = set(), "", {}
            if isinstance(node, ast.Import):
                modules = {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules = {(node.module or "").partition(".")[0]}
            elif isinstance(node, ast.Call):
                call = ast.unparse(node.func)
                keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
            assert not modules & FORBIDDEN_MODULES, file
            is_safe = call == "torch.load" and keywords.get("weights_only") == "True"  # reads tensors alone
            assert call not in FORBIDDEN_CALLS or is_safe, file
            assert keywords.get("allow_pickle", "False") == keywords.get("shell", "False") == "False", file


def test_names_in_figures_cannot_become_markup(tmp_path):
    """The page of a figure contains its data in a script, which no text in the data may end."""
    evil = "</script><img src=x onerror=alert(1)>"
    chart = alt.Chart(alt.Data(values=[{"name": evil, "value": 1}])).mark_bar().encode(x="name:N", y="value:Q")
    page = save_chart(chart.properties(title=evil), tmp_path / "figure.html").read_text(encoding="utf-8")
    assert page.count("\\u003c/script>\\u003cimg src=x") == 2
    assert "<img src=x" not in page
    drawing = save_chart(chart.properties(title=evil), tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "<img" not in drawing
    assert "&lt;img" in drawing
