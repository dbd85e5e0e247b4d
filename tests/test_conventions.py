"""The page of naming conventions and the public signatures agree."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator
from sklearn.model_selection import BaseCrossValidator

from rankbound.packages import MissingPackageError

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "conventions.md"
PACKAGES = (
    "rankbound", "rankbound.data", "rankbound.difficulty", "rankbound.studies", "rankbound.integrations",
    "rankbound.losses", "rankbound.measures", "rankbound.models",
    "rankbound.training",
)  # fmt: skip
# modules of the pipeline of evaluate, whose public names are those of the packages
PIPELINE = {
    *"audit audit_judgments audit_runs baselines coverage gate groups large lists ranks references".split(),
    *"group_tests leaderboards resampling result risk runs query_sets".split(),
}
OTHER_DEFAULTS = {  # functions whose default differs, as the page says
    "candidates": {"rankbound.models.Negatives"},
    "groups": {"rankbound.evaluation.recommendations.activity_groups"},
    "protocol": {
        "rankbound.data.sample_lists",  # how negatives are drawn
        "rankbound.evaluation.alignment.align_lists",
        "rankbound.evaluation.alignment.align_runs",
    },
    "bounding": {
        "rankbound.difficulty_weights",
        "rankbound.difficulty.difficulty_weights",
        "rankbound.difficulty.query_weights",
        "rankbound.difficulty.weights_of_parts",
    },
    "patience": {"rankbound.models.MLPRanker"},
    "random_state": {"rankbound.models.Blend"},
    "reduction": {"rankbound.models.Optimizer"},
    "resamples": {
        "rankbound.evaluation.significance.studentized_bootstrap",
        "rankbound.evaluation.significance.studentized_bootstrap_columns",
    },
}
BRITISH = re.compile(r"(?<!s)(is|ys)(e|ed|er|ing|ation)s?$|colour|centre|neighbour|behaviour|catalogue")
BRITISH_LOOKALIKES = {"noise", "precise", "otherwise", "listwise", "pairwise", "pointwise"}


class Row(NamedTuple):
    """One line of the page."""

    default: Any
    has_default: bool
    instead_of: frozenset[str]


class Use(NamedTuple):
    """A parameter of a public function, class or method."""

    owner: str
    target: Any
    parameter: inspect.Parameter


def rows() -> dict[str, Row]:
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 4:
            continue
        name, _, default, others = cells
        value = ast.literal_eval(default.strip("`")) if default else None
        found[name.strip("`")] = Row(value, bool(default), frozenset(re.findall(r"`(\w+)`", others)))
    return found


def uses() -> Iterator[Use]:
    modules = [
        f"{package}.{module.name}"
        for package in ("rankbound.evaluation",)
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
        if module.name not in PIPELINE
    ]
    for package in (*PACKAGES, *modules):
        module = importlib.import_module(package)
        defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", [name for name in defined if not name.startswith("_")]):
            try:
                target = getattr(module, name)
            except MissingPackageError:  # an integration of a tool that is not here
                continue
            if inspect.isclass(target):
                if issubclass(target, BaseException):
                    continue
                yield from parameters(f"{package}.{name}", target, target)
                for member, method in inspect.getmembers(
                    target, lambda one: inspect.isfunction(one) or inspect.ismethod(one)
                ):
                    if not member.startswith("_") and method.__module__.startswith("rankbound"):
                        yield from parameters(f"{package}.{name}.{member}", target, method)
            elif inspect.isfunction(target):
                yield from parameters(f"{package}.{name}", target, target)


def parameters(owner: str, target: Any, function: Any) -> Iterator[Use]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a type alias, or a class written in C
        return
    for parameter in signature.parameters.values():
        if parameter.name not in ("self", "cls"):
            yield Use(owner, target, parameter)


ROWS, USES = rows(), list(uses())


def test_the_page_and_the_signatures_are_read():
    assert len(ROWS) > 40
    assert len(USES) > 500
    assert ROWS["seed"] == Row(0, True, frozenset({"rng", "random_seed"}))


@pytest.mark.parametrize("name", ROWS)
def test_every_name_of_the_page_is_in_use(name):
    assert any(use.parameter.name == name for use in USES)


def test_names_that_the_page_replaces_are_not_used():
    replaced = {other: name for name, row in ROWS.items() for other in row.instead_of}
    assert [f"{use.owner}({use.parameter.name}), not {replaced[use.parameter.name]}" for use in USES
            if use.parameter.name in replaced] == []  # fmt: skip
    assert not set(replaced) & set(ROWS)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.has_default])
def test_defaults_are_those_of_the_page(name):
    """None is allowed too: it means that the context decides, for example the inference policy."""
    allowed = (ROWS[name].default, None)
    wrong = [
        f"{use.owner}: {use.parameter.default!r}"
        for use in USES
        if use.parameter.name == name
        and use.parameter.default is not inspect.Parameter.empty
        and use.parameter.default not in allowed
        and use.owner not in OTHER_DEFAULTS.get(name, ())
    ]
    assert wrong == []


def test_random_state_and_n_jobs_belong_to_estimators_and_seed_to_everything_else():
    for use in USES:
        is_estimator = inspect.isclass(use.target) and issubclass(use.target, (BaseEstimator, BaseCrossValidator))
        if use.parameter.name in ("random_state", "n_jobs"):
            assert is_estimator, use.owner
        if use.parameter.name == "seed":
            assert not is_estimator, use.owner


def test_measure_is_one_and_measures_are_several():
    for use in USES:
        annotation = str(use.parameter.annotation)
        if use.parameter.name == "measures" and annotation != "Any":
            assert re.search(r"Iterable|Sequence|tuple|list", annotation), use.owner
        if use.parameter.name == "measure":
            assert not re.search(r"Iterable|Sequence|tuple\[|list\[", annotation), use.owner


def test_names_are_words_of_american_english():
    def is_british(name: str) -> bool:
        return any(BRITISH.search(word) and word not in BRITISH_LOOKALIKES for word in name.split("_"))

    assert is_british("normalise")
    assert is_british("colour_map")
    assert [f"{use.owner}({use.parameter.name})" for use in USES if is_british(use.parameter.name)] == []


def test_models_accept_what_they_store():
    """The constructors of dataclass models have exactly their fields as parameters."""
    for name in importlib.import_module("rankbound.models").RANKERS:
        model = getattr(importlib.import_module("rankbound.models"), name)
        signature = set(inspect.signature(model).parameters)
        assert set(model().get_params(deep=False)) == signature
        if dataclasses.is_dataclass(model):
            assert {field.name for field in dataclasses.fields(model) if field.init} == signature
