"""Commands that are killed again and again at random moments give, in the end, the files of an undisturbed run."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import polars as pl
import pytest

from tests.killing import COMMAND, finish, kill_after, kill_when

from .conftest import content

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL"),
    pytest.mark.full("kills processes and takes away what they need"),
]

STUDY = """title = "t"
[[tables]]
data = { letor = "letor.txt" }
model = "AdaRank"
measures = ["nDCG", "AP"]
split = "query-folds"
folds = 4
seeds = [0, 1]
"""
REPRODUCE = "reproduce study.toml --store store --results results --no-page"
# command, and the files that must be equal
COMMANDS = {
    "train": ("train letor.txt --param hidden=4, --epochs 30 --checkpoint steps --seed 1 -o result", ["result"]),
    "evaluate": ("evaluate qrels run -m AP -m EM(nDCG) --per-query result/values.csv", ["result"]),
    "recommend": ("recommend model -k 5 -o result/top.csv", ["result"]),
    "reproduce, 1 job": (f"{REPRODUCE} --jobs 1", ["results/study.csv", "store/scores"]),
    "reproduce, 2 jobs": (f"{REPRODUCE} --jobs 2", ["results/study.csv", "store/scores"]),
    "reproduce, local cluster": (f"{REPRODUCE} --cluster local:2", ["results/study.csv", "store/scores"]),
}


@pytest.fixture
def inputs(runs: Path, letor: Path) -> Path:
    """Judgments, a run, features, a study and a saved recommender."""
    from rankbound.models import Popularity

    users, items = range(40), range(30)
    pairs = [(f"u{u}", f"i{i}") for u in users for i in items if (u * i) % 7 < 3]
    Popularity().fit(pl.DataFrame(pairs, schema=["user", "item"], orient="row")).save(runs / "model")
    (runs / "study.toml").write_text(STUDY)
    (runs / "result").mkdir()
    return runs


def results(folder: Path, names: list[str]) -> dict[str, object]:
    """The content of the files, without hidden ones, which a kill may leave."""
    found: dict[str, object] = {}
    for name in names:
        path = folder / name
        files = content(path) if path.is_dir() else {name: path.read_bytes()}
        found |= {file: data for file, data in files.items() if not Path(file).name.startswith(".")}
    return found


def undisturbed(name: str, inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """Run the command in a copy of the inputs; return its words and the copy."""
    if name == "train":
        (inputs / "result").rmdir()
    if "cluster" in name:
        pytest.importorskip("cryptography")
    command = [*COMMAND, *COMMANDS[name][0].split()]
    whole = tmp_path_factory.mktemp("whole") / "folder"
    shutil.copytree(inputs, whole)
    finish(command, whole)
    return command, whole


def test_training_that_was_killed_after_an_epoch(inputs, tmp_path_factory):
    command, whole = undisturbed("train", inputs, tmp_path_factory)
    kill_when(command, lambda: list(inputs.glob("steps/epoch-*")), cwd=inputs)
    assert not (inputs / "result").exists()
    finish(command, inputs)
    assert results(inputs, ["result"]) == results(whole, ["result"])


def kill_at_random(name: str, inputs: Path, tmp_path_factory: pytest.TempPathFactory, moments: int) -> None:
    """Kill the command at moments of its undisturbed duration, and finish it: its result is the undisturbed one.

    What a run has done before it is killed shortens the next one. A run that ends before its moment is compared, too,
    and the next one begins with nothing.
    """
    command, whole = undisturbed(name, inputs, tmp_path_factory)  # has compiled what must be compiled
    seconds, choice = finish(command, _copy(inputs, whole.with_name("again"))), random.Random(name)
    folder, kills, copies = _copy(inputs, whole.with_name("killed-0")), 0, 1
    while kills < moments:
        if kill_after(command, choice.random() * seconds, folder):
            kills += 1
            continue
        assert results(folder, COMMANDS[name][1]) == results(whole, COMMANDS[name][1])
        folder, copies = _copy(inputs, whole.with_name(f"killed-{copies}")), copies + 1
    finish(command, folder)
    assert results(folder, COMMANDS[name][1]) == results(whole, COMMANDS[name][1])


def _copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def test_evaluation_that_was_killed_twice(inputs, tmp_path_factory):
    kill_at_random("evaluate", inputs, tmp_path_factory, moments=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_twenty_moments(name, inputs, tmp_path_factory):
    kill_at_random(name, inputs, tmp_path_factory, moments=20)
