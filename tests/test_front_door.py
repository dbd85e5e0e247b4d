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
from rankbound import losses, models
from rankbound.models.options import OptionGroup
from rankbound.packages import find_missing

PUBLIC = """Inference Lists Protocol __version__ against_random audit bounds compare data difficulty
difficulty_weights distribution effective_sample_fraction errors evaluate evaluate_references evaluation gate losses
measures models parse_measure query_types run_study set_threads""".split()
SOURCE = Path(rb.__file__).parent
LOSS_CLASSES = {name for name in losses.__all__ if isinstance(value := getattr(losses, name), type)}
# packages with names for the other packages of rankbound alone
NOT_DOCUMENTED = {"rankbound.io", "rankbound.kernels", "rankbound.parallel"}
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
    public -= {"Ranker", "NeuralRanker", "Recommender", "QueryKFold"}
    assert set(models.RANKERS) == public


def test_the_version_stands_in_one_more_place_only():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["version"] == rb.__version__


def test_importing_and_evaluating_load_no_torch():
    code = """
import sys
import rankbound as rb
from rankbound.packages import find_missing
assert not {"numpy", "polars", "scipy"} & set(sys.modules), "import rankbound must stay fast"
rb.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["nDCG", "UL2(nDCG)"])
rb.bounds("AP", n=5, relevant=2)
rb.distribution("nDCG", n=5, relevant=2)
assert not {"torch", "sklearn", "lightgbm", "pandas"} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def public_names() -> dict[str, dict[str, str]]:
    """The module of each public function, class and constant of each package, read from its source."""
    found = {}
    for path in [SOURCE / "__init__.py", *SOURCE.rglob("*/__init__.py")]:
        package = ".".join(("rankbound", *path.parent.relative_to(SOURCE).parts))
        stub = path.with_suffix(".pyi")
        modules, public = {}, None
        for node in ast.parse((stub if stub.exists() else path).read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module != package:
                modules |= {name.name: str(node.module) for name in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                modules[node.name] = package
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                modules[node.target.id] = package
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                public = ast.literal_eval(node.value)
        names = public or (modules if stub.exists() else ())
        if package not in NOT_DOCUMENTED:
            found[package] = {name: modules[name] for name in names if name != "__version__"}
    return found


def test_public_names_are_few():
    """At most 25 in a package, besides the classes of a catalog: one for each loss, one for each model."""
    catalogs = {"rankbound.losses": LOSS_CLASSES, "rankbound.models": set(models.RANKERS)}
    assert catalogs["rankbound.models"] <= set(models.__all__)
    for package, names in public_names().items():
        assert len(set(names) - catalogs.get(package, set())) <= 25, package


def test_the_reference_has_every_public_name_by_its_short_path():
    """Other entries are classes of what public functions return, without their paths."""
    documented, others = set(), set()
    for page in (SOURCE.parents[1] / "docs" / "reference").glob("*.md"):
        for entry in page.read_text().split("\n::: ")[1:]:
            path, _, options = entry.partition("\n\n")[0].partition("\n")
            (others if "show_root_full_path: false" in options else documented).add(path)
    packages = public_names()
    shortest: dict[str, str] = {}  # of several public paths of one function or class
    for package in sorted(packages, key=lambda package: package.count(".")):
        for name, origin in packages[package].items():
            while origin != (further := packages.get(origin, {}).get(name, origin)):
                origin = further
            if not name.isupper() or name in models.RANKERS:
                shortest.setdefault(f"{origin}.{name}", f"{package}.{name}")
    assert documented == {*shortest.values(), "rankbound.errors"}
    for path in others:
        module, _, name = path.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), name), type), path


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
