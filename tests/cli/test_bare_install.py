"""Every command where only the core packages are installed: it works, or one line says what is missing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sklearn")  # the commands get models
pytest.importorskip("safetensors")

from rankbound.data.synthetic import synthetic_letor
from rankbound.models import RANKERS, AdaRank, ItemKNN
from rankbound.models.by_name import packages_of
from rankbound.packages import PACKAGES, MissingPackageError, check_packages, find_missing, import_package, needed_by
from rankbound.studies import open_store

from .test_commands import EVERY_COMMAND

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

# Python finds no package of these names, as if they were not installed.
HIDE = """
import json, sys

class Hider:
    def __init__(self, hidden):
        self.hidden = hidden

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

hidden, given = json.load(sys.stdin)
sys.meta_path.insert(0, Hider(hidden))
"""
# Runs the commands in one process, and prints the exit code, output and new files of each.
RUN_COMMANDS = """
import contextlib, io
from pathlib import Path
from rankbound.cli.main import run

def files():
    return {str(path) for path in Path().rglob("*") if "__pycache__" not in path.parts}

answers = []
for arguments in given:
    before, out, err = files(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(arguments)
        except BaseException as error:
            code = repr(error)
    answers.append([code, out.getvalue(), err.getvalue(), sorted(files() - before)])
json.dump(answers, sys.stdout)
"""
MAKE_MODELS = "import rankbound.models.saving\nfor name in given: getattr(rankbound.models, name)()"

# extras of each command line; none where it works without any
CASES = {
    "evaluate": [("evaluate qrels run", "")],
    "compare": [("compare qrels run other", ""), ("compare qrels run other --page page.html", "report")],
    "audit": [("audit qrels run", ""), ("audit qrels run --page page.html", "report")],
    "gate": [("gate judged run0 run1 --margin 0.9", "")],
    "judge": [("judge qrels run other", "")],
    "references": [("references qrels run other -o references.json", "")],
    "stability": [("stability judged run0 run1 run2 run3", "")],
    "bounds": [("bounds AP --n 5 --relevant 2", "")],
    "distribution": [("distribution nDCG@3 --n 5 --relevant 2", "")],
    "measures": [("measures", "")],
    "check": [("check own_rr:rr --measure RR --signature labels,scores --ties input", "testing")],
    "weights": [("weights letor.txt -o weights.txt", "")],
    "train": [
        ("train letor.txt -o model", "train"),
        ("train letor.txt --model LambdaMART --json -o model", "train"),
        ("train letor.txt --model AdaRank -o model", "train"),
        ("train ratings.csv --model ItemKNN -o model", "train"),
        ("train letor.txt --workers 2 -o model", "train"),
    ],
    "tune": [
        ("tune letor.txt --trials 1 -o tuned", "train,tune,report"),
        ("tune letor.txt", "train,tune,report"),
        ("tune letor.txt --no-page --cluster local:2 --trials 1 -o tuned", "train,tune,cluster"),
    ],
    "rank": [("rank ranker letor.txt -o run.txt", "train")],
    "recommend": [("recommend items -o top.csv", "train")],
    "export": [("export ranker --format ranklib -o model.txt", "train")],
    "data list": [("data list", "")],
    "data get": [("data get mq2008", "")],
    "data describe": [("data describe letor.txt", ""), ("data describe letor.txt --plot plot.svg", "report")],
    "data verify": [("data verify", "")],
    "data split": [("data split ratings.csv -o parts", "")],
    "reproduce": [
        ("reproduce --list", ""),
        ("reproduce study.toml", "train,report"),
        ("reproduce study.toml --dry-run", "train"),
        ("reproduce study.toml --no-page --cluster local:2", "train,cluster"),
        ("reproduce thesis-5.1 --quick", "train,report"),
        ("reproduce --all --dry-run", "train"),
    ],
    "store list": [("store list results", "")],
    "store export": [("store export results -o results.zip", "")],
    "store import": [("store import results.zip --store copy", "")],
    "report": [("report qrels run -o page.html", "report"), ("report qrels run -o page.html --figures f", "report")],
    "demo": [("demo -o demo", "trees,report")],
}
OWN_MEASURE = """
def rr(labels, scores):
    order = sorted(range(len(labels)), key=lambda item: -scores[item])
    return next((1 / at for at, item in enumerate(order, 1) if labels[item] > 0), 0.0)
"""
STUDY = """
title = "A study"

[[tables]]
data = { letor = "." }
model = "MLPRanker"
loss = "nDCG"
measures = ["nDCG@10"]
"""


def test_every_command_has_a_case():
    assert sorted(CASES) == sorted(EVERY_COMMAND)


@pytest.fixture
def inputs(files):
    """Good input for every command, in the working folder."""
    random = np.random.default_rng(0)
    for system in range(4):
        scored = [(f"q{query}", document, random.random()) for query in range(8) for document in "abc"]
        (files / f"run{system}").write_text("".join(f"{q} Q0 {d} 1 {score} t\n" for q, d, score in scored))
    judged = [(query, document) for query in range(8) for document in range(3)]
    (files / "judged").write_text("".join(f"q{q} 0 {'abc'[d]} {int(q % 3 == d)}\n" for q, d in judged))
    letor = synthetic_letor(queries=12, features=4, seed=1)
    rows = zip(letor.lists.query_of_item, letor.lists.labels, np.asarray(letor.features), strict=True)
    texts = (f"{y:g} qid:{q} 1:{x[0]} 2:{x[1]} 3:{x[2]} 4:{x[3]}\n" for q, y, x in rows)
    (files / "letor.txt").write_text("".join(texts))
    pairs = [f"u{user},i{item},5\n" for user in range(12) for item in range(10) if (user + item) % 3]
    (files / "ratings.csv").write_text("user,item,rating\n" + "".join(pairs))
    (files / "own_rr.py").write_text(OWN_MEASURE)
    (files / "study.toml").write_text(STUDY)
    ranker = AdaRank().fit(letor.features, letor.lists.labels, qid=letor.lists.query_of_item)
    ranker.save(files / "ranker")
    ItemKNN().fit(pl.read_csv(files / "ratings.csv")).save(files / "items")
    open_store(files / "results", create=True).close()
    return files


def _core_modules():
    """The modules that a bare installation has: the dependencies of rankbound without extras, and theirs."""
    distributions, waiting = set(), ["rankbound"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in distributions:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # needed on other systems only
                requirements = importlib.metadata.requires(name) or []
                waiting += [re.match(r"[\w.-]+", line)[0] for line in requirements if "extra ==" not in line]
            distributions.add(name)
    found = importlib.metadata.packages_distributions().items()
    return {module for module, names in found if {re.sub(r"[-_.]+", "-", n).lower() for n in names} & distributions}


def _run_without(hidden, program, given):
    environment = {name: value for name, value in os.environ.items() if name != "RANKBOUND_DATA"}
    done = subprocess.run(
        [sys.executable, "-c", HIDE + program],
        input=json.dumps([sorted(hidden), given]),
        capture_output=True,
        text=True,
        env=environment | {"RANKBOUND_DATA": str(Path("no data").absolute())},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run_bare(cases):
    hidden = {*importlib.metadata.packages_distributions(), *PACKAGES} - _core_modules() - {"coverage"}
    return json.loads(_run_without(hidden, RUN_COMMANDS, cases))


def test_every_command_works_or_says_in_one_line_what_to_install(inputs):
    lines = [(line, extras) for cases in CASES.values() for line, extras in cases]
    answers = _run_bare([line.split() for line, _ in lines])
    for (line, extras), (code, out, err, written) in zip(lines, answers, strict=True):
        about = f"{line}\n{code} {out} {err} {written}"
        if extras:
            assert (code, out, written) == (2, "", []), about
            assert err.count("\n") == 1, about
            named = re.search(r'pip install "\.\[(.*)\]" in a checkout', err)
            assert named, about
            assert sorted(named[1].split(",")) == sorted(extras.split(",")), about
        else:
            assert code == (2 if line == "data get mq2008" else 0), about  # which no program can download
            assert not re.search("Traceback|pip install", err), about


def test_help_and_version_need_no_extra(files):
    answers = _run_bare([["--version"], ["--help"], *([*name.split(), "--help"] for name in EVERY_COMMAND)])
    assert [(code, err, written) for code, _, err, written in answers] == [(0, "", [])] * len(answers)


def test_a_command_is_refused_for_its_missing_packages_together_and_once(files):
    """What the line tells a user to install is all that the command needs."""
    ((_, _, err, _),) = _run_bare([["demo", "-o", "demo"]])
    assert err == (
        'rankbound: demo needs lightgbm and jinja2: pip install ".[trees,report]" in a checkout of rankbound, or pip '
        "install lightgbm jinja2\n"
    )


# ---- the table of packages -------------------------------------------------------------------------------------------


def test_the_table_names_the_packages_of_every_extra():
    """pip's name and the extra of each package are those of pyproject.toml, and no package of an extra is missing."""
    required = {
        extra: {re.match(r"[\w.-]+(?:\[\w+\])?", line)[0] for line in lines if not line.startswith("rankbound[")}
        for extra, lines in EXTRAS.items()
    }
    for package in PACKAGES.values():
        assert package.extra is None or package.name in required[package.extra], package
    assert set().union(*required.values()) <= {package.name for package in PACKAGES.values()}


@pytest.mark.cases(1)
@pytest.mark.parametrize("needed", sorted({tuple(packages_of(model)) for model in RANKERS}), ids="-".join)
def test_models_need_the_packages_that_they_are_said_to_need(needed):
    """They can be created where no other package of the extra is installed."""
    hidden = [module for module, package in PACKAGES.items() if package.extra == "train" and module not in needed]
    _run_without(hidden, MAKE_MODELS, [model for model in RANKERS if tuple(packages_of(model)) == needed])


def test_an_error_inside_an_installed_package_stays_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "optuna.py").write_text("import a_package_that_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "optuna", raising=False)
    with pytest.raises(ModuleNotFoundError, match="No module named 'a_package_that_it_needs'"):
        import_package("optuna")
    with pytest.raises(ImportError, match="cannot import name 'nothing' from 'math'"), needed_by("a test"):
        from math import nothing  # noqa: F401


def test_all_missing_packages_are_named_with_their_extras(monkeypatch):
    for module in ("torch", "jinja2"):
        monkeypatch.setitem(sys.modules, module, None)
    assert find_missing("numpy", "torch", "jinja2", "torch") == ["torch", "jinja2"]
    text = 'x needs torch and jinja2: pip install ".[train,report]" in a checkout of rankbound, or '
    text += "pip install torch jinja2"
    with pytest.raises(MissingPackageError, match=f"^{re.escape(text)}$"):
        check_packages("x", "numpy", "torch", "jinja2")
    check_packages("x", "numpy")
