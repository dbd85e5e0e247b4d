"""The public names, and what importing them costs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rankbound as rb
from rankbound import models
from rankbound.models.options import OptionGroup
from rankbound.packages import find_missing

PUBLIC = """Inference Lists Protocol __version__ against_random audit bounds compare data difficulty
difficulty_weights distribution effective_sample_fraction errors evaluate evaluate_references evaluation gate losses
measures models parse_measure query_types run_study set_threads""".split()
STUBS = sorted(Path(rb.__file__).parent.rglob("__init__.pyi"))


def test_the_public_list_is_exactly_what_was_meant():
    assert sorted(rb.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(rb, name) is not None
    assert set(PUBLIC) <= set(dir(rb))
    with pytest.raises(AttributeError, match="has no attribute 'evalute'"):
        rb.evalute  # noqa: B018


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_the_stub_of_a_lazy_package_lists_names_that_exist(stub):
    """A stub is read by type checkers and at run time: both must find the same names."""
    package = importlib.import_module(".".join(("rankbound", *stub.parent.relative_to(STUBS[0].parent).parts)))
    if stub.parent.name == "integrations" and (missing := find_missing("lightning", "torchmetrics")):
        pytest.skip(f"{' and '.join(missing)} are not installed")
    seen = set()
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            (name,) = node.names
            assert name.name == name.asname, "one name in a line, re-exported as itself"
            value = getattr(package, name.name)
            if node.module == package.__name__:
                assert value is importlib.import_module(f"{node.module}.{name.name}")
            else:
                assert value is getattr(importlib.import_module(node.module), name.name)
            seen.add(name.name)
        else:
            assert isinstance(node, ast.AnnAssign), ast.unparse(node)
            assert node.target.id in vars(package)
            seen.add(node.target.id)
    assert seen == set(package.__all__) == set(dir(package))


def test_the_rankers_that_can_be_loaded_are_the_public_ones():
    classes = {name: value for name in models.__all__ if isinstance(value := getattr(models, name), type)}
    public = {name for name, kind in classes.items() if not issubclass(kind, OptionGroup)}
    public -= {"Ranker", "Recommender", "QueryKFold"}
    assert set(models.RANKERS) == public


def test_the_version_stands_in_one_more_place_only():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["version"] == rb.__version__


def test_importing_and_evaluating_load_no_torch():
    code = """
import sys
import rankbound as rb
from rankbound import models
from rankbound.packages import find_missing
assert not {"numpy", "polars", "scipy"} & set(sys.modules), "import rankbound must stay fast"
rb.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["nDCG", "UL2(nDCG)"])
rb.bounds("AP", n=5, relevant=2)
rb.distribution("nDCG", n=5, relevant=2)
assert not {"torch", "sklearn", "lightgbm", "pandas"} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_few():
    for package in (rb, rb.difficulty, rb.evaluation, rb.measures):
        assert len(set(package.__all__) - {"__version__"}) <= 25, package


def test_the_layers_are_shown_in_the_order_of_imports():
    root = Path(__file__).parents[1]
    picture = (root / "CONTRIBUTING.md").read_text().partition("## Layout")[2].split("```")[1]
    shown = [name for line in picture.strip().splitlines() for name in line.split("  ")[0].split(", ")]
    source = root / "src" / "rankbound"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    modules = {path.stem for path in source.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(shown) == sorted(packages | modules)
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [name.removeprefix("rankbound.") for layer in contracts[0]["layers"] for name in layer.split(" | ")]
    assert [name for name in shown if name != "testing"] == layers


def test_help_loads_no_heavy_package():
    code = """
import sys
from rankbound.cli.main import run
assert run(["--help"]) == 0
heavy = {"torch", "polars", "numpy", "scipy", "rich", "pydantic", "filelock"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
