"""Small data sets and studies on them; nothing here needs torch unless a test says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rankbound.data.synthetic import synthetic_interactions, synthetic_letor
from rankbound.studies.expansion import expand
from rankbound.studies.study_files import load_study
from rankbound.studies.trial_spec import TrialSlot


def letor_text(data) -> str:
    lists = data.lists
    qid = np.repeat(lists.query_ids, lists.sizes)
    rows = zip(lists.labels, qid, data.features.tolist(), strict=True)
    return "".join(
        f"{label} qid:{query} {' '.join(f'{k}:{v!r}' for k, v in enumerate(row, 1))}\n" for label, query, row in rows
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: ratings.csv, and queries in letor/train.txt, vali.txt, test.txt."""
    (tmp_path / "letor").mkdir()
    data = synthetic_letor(queries=60, features=6, seed=4, documents=(4, 15))
    for name, queries in (("train", range(36)), ("vali", range(36, 46)), ("test", range(46, 60))):
        (tmp_path / "letor" / f"{name}.txt").write_text(letor_text(data.take(queries)))
    table = synthetic_interactions(users=30, items=200, seed=1)
    rows = zip(table.user_names[table.users], table.item_names[table.items], table.ratings, strict=True)
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


ROWS = """
title = "Queries"

[[tables]]
data = { letor = "letor" }
model = "CoordinateAscent"
params = { n_restarts = 1 }
vary = { random_state = [0, 1, 2, 3, 4, 5, 6, 7] }
measures = ["nDCG", "AP"]
"""

USERS = """
title = "Users"

[[tables]]
data = { ratings = "ratings.csv" }
model = "MatrixFactorization"
params = { factors = 4, epochs = 4, eval_every = 1 }
loss = ["nDCG", "AP"]
bounding = ["none", "min-max"]
nsr = 1
folds = 2
measures = ["nDCG", "AP"]
grid = { learning_rate = [0.01, 0.1] }
versus = { bounding = "none" }
"""


@pytest.fixture
def study(folder: Path):
    """Write a study and read it."""

    def make(text: str, name: str = "mine"):
        (folder / f"{name}.toml").write_text(text)
        return load_study(f"{name}.toml")

    return make


@pytest.fixture
def plan(study):
    """Write a study and return its slots, with ids."""

    def make(text: str, name: str = "mine") -> list[TrialSlot]:
        return [slot.identified() for slot in expand(study(text, name))]

    return make
