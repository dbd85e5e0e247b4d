"""Read-only folders, in a process without the powers of root."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from rankbound.models import AdaRank, load_ranker
from rankbound.studies.store import open_store

from .conftest import content

pytestmark = pytest.mark.full("kills processes and takes away what they need")

STATES = """
import json, sys
from rankbound.studies.store import open_store
with open_store(sys.argv[1]) as store:
    print(json.dumps([store.states(), store.studies()]))
"""


def test_cache(rankbound, runs, powerless, read_only, monkeypatch):
    (runs / "cache").mkdir()
    monkeypatch.setenv("RANKBOUND_CACHE", str(read_only(runs / "cache")))
    code, out, err = rankbound("evaluate", "qrels", "run", "-m", "DB(nDCG)", "--json", cwd=runs, before=powerless)
    assert code == 0, err
    assert json.loads(out)["queries"] == 200
    assert content(runs / "cache") == {}


def test_output_folder(rankbound, runs, powerless, read_only):
    (runs / "results").mkdir()
    read_only(runs / "results")
    command = ["evaluate", "qrels", "run", "--per-query", "results/values.csv"]
    code, out, err = rankbound(*command, cwd=runs, before=powerless)
    assert (code, out) == (2, "")
    assert err == "rankbound: results/values.csv: cannot be written: Permission denied\n"


def test_model_folder(python, tmp_path, powerless, read_only):
    """A model in a read-only folder loads; saving is refused, and the old model stays."""
    X, y = np.random.default_rng(0).random((30, 3)), np.tile([0, 1, 0], 10)
    AdaRank(n_estimators=1).fit(X, y).save(tmp_path / "models" / "one")
    read_only(tmp_path / "models")
    code = """
import sys
from rankbound.errors import DataError
from rankbound.models import load_ranker
ranker = load_ranker(sys.argv[1])
try:
    ranker.save(sys.argv[1])
except DataError as error:
    print(error)
"""
    model = tmp_path / "models" / "one"
    assert python(code, model, before=powerless) == f"{model}: cannot be written: Permission denied\n"
    assert load_ranker(model).n_estimators == 1


@pytest.mark.parametrize("left", ["closed", "killed"])
def test_store_is_read(python, tmp_path, powerless, read_only, left):
    """Also one whose runner was killed, with its last commits in the log of the database."""
    code = """
import os, sys
from rankbound.studies.store import open_store
store = open_store(sys.argv[1], create=True)
with store._transaction():
    store._connection.execute("INSERT INTO slots VALUES ('mine', 0, 'a', '{}')")
store.close() if sys.argv[2] == "closed" else os._exit(0)
"""
    python(code, tmp_path / "store", left)
    assert (tmp_path / "store" / "trials.sqlite-wal").exists() == (left == "killed")
    read_only(tmp_path / "store")
    before = content(tmp_path / "store")
    assert json.loads(python(STATES, tmp_path / "store", before=powerless)) == [{}, ["mine"]]
    assert content(tmp_path / "store") == before


def test_store_is_not_run_into(rankbound, letor, powerless, read_only):
    folder = letor.parent
    study = 'title = "T"\n[[tables]]\ndata = { letor = "letor.txt" }\nmodel = "AdaRank"\nmeasures = ["AP"]\n'
    (folder / "mine.toml").write_text(study)
    open_store(folder / "store", create=True).close()
    read_only(folder / "store")
    before = content(folder)
    code, out, err = rankbound("reproduce", "mine.toml", "--store", "store", cwd=folder, before=powerless)
    assert (code, out) == (2, "")
    assert "store/trials.sqlite: cannot be written: the file or its folder is read-only" in err
    assert content(folder) == before


def test_no_home(python, rankbound, runs, tmp_path):
    """A user that the system does not know, as in some containers: only a download needs a cache folder."""
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("only root can become a user that does not exist")
    powers = "+dac_override,+dac_read_search"  # to read the Python installation, wherever it is
    before = ["setpriv", "--reuid=54321", f"--inh-caps={powers}", f"--ambient-caps={powers}"]
    hidden = ("HOME", "XDG_CACHE_HOME", "RANKBOUND_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["TMPDIR"] = str(tmp_path / "tmp")
    code, _, err = rankbound("evaluate", "qrels", "run", "-m", "DB(AP)", cwd=runs, before=before, env=environment)
    assert code == 0, err
    (runs / "tmp").mkdir()
    environment["RANKBOUND_DATA"] = str(tmp_path / "empty")
    code, _, err = rankbound("data", "list", before=before, env=environment)
    assert code == 0, err
    code, _, err = rankbound("data", "get", "ml-1m", before=before, env=environment)
    assert code == 2
    assert "there is no folder to download it to" in err
    assert "name a folder in RANKBOUND_CACHE" in err
