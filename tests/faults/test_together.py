"""Several processes that use one folder at the same moment."""

from __future__ import annotations

import http.server
import json
import os
import threading

import numpy as np
import pytest

from rankbound.data.catalog import DataFile, Entry
from rankbound.data.letor import read_letor
from rankbound.data.set_files import check, obtain
from rankbound.models import load_ranker

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked"),
    pytest.mark.full("kills processes and takes away what they need"),
]

# `work(number)` runs in eight processes that begin together; each must end well
RACE = """
import os, sys

def race(work, processes=8):
    ready, go = os.pipe(), os.pipe()
    children = []
    for number in range(processes):
        if (child := os.fork()) == 0:
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            code = 1
            try:
                work(number)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    for _ in children:
        os.read(ready[0], 1)
    os.write(go[1], b"x" * processes)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * processes
"""


def test_one_distribution(python, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path))
    code = """
import numpy as np
from rankbound.difficulty.distribution import cache as distribution_cache
distribution = (np.linspace(0, 1, 20_000), np.full(20_000, 1 / 20_000), "dynamic")
def work(number):
    for turn in range(20):
        loaded = distribution_cache.load(turn)
        assert loaded is None or np.array_equal(loaded[0], distribution[0])
        distribution_cache.store(turn, distribution)
        assert np.array_equal(distribution_cache.load(turn)[1], distribution[1])
race(work)
"""
    python(RACE + code)
    assert sorted({path.suffix for path in (tmp_path / "distributions").iterdir()}) == [".npz"]


def test_one_conversion(python, letor, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    code = """
from pathlib import Path
import numpy as np
from rankbound.data.array_cache import read_cached
from rankbound.data.letor import LetorData, read_letor
file = Path(sys.argv[1])
def work(number):
    table = read_cached([file], lambda: read_letor(file), LetorData)
    os.write(1, f"{float(table.features.sum())} {len(table.notes)}\\n".encode())
race(work)
"""
    answers = set(python(RACE + code, letor).splitlines())
    assert answers == {f"{float(read_letor(letor).features.sum())} 0"}
    kept = tmp_path / "cache" / "converted"
    assert len([path for path in kept.iterdir() if path.name != "checksums"]) == 1


def test_one_model_folder(python, tmp_path):
    """Every process that loads gets one of the models, complete; no save fails."""
    code = """
import numpy as np
from rankbound.models import AdaRank, load_ranker
X, y = np.random.default_rng(0).random((30, 3)), np.tile([0, 1, 0], 10)
rankers = [AdaRank(n_estimators=number).fit(X, y) for number in range(1, 5)]
rankers[0].save(sys.argv[1])
def work(number):
    for _ in range(15):
        if number < 4:
            rankers[number].save(sys.argv[1])
        assert load_ranker(sys.argv[1]).n_estimators in (1, 2, 3, 4)
race(work)
"""
    python(RACE + code, tmp_path / "model")
    assert load_ranker(tmp_path / "model").n_estimators in (1, 2, 3, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_one_checkpoint_folder(python, tmp_path):
    """The same training several times at once: each step that loads is complete."""
    code = """
import numpy as np
from rankbound.checkpoints import Checkpoints
def work(number):
    steps = Checkpoints(sys.argv[1], {"seed": 0})
    for epoch in range(1, 16):
        steps.save(epoch, {"weights": np.full(1000, float(epoch))}, {"epoch": epoch})
        arrays, metadata = steps.load()
        assert set(arrays["weights"]) == {float(metadata["epoch"])}
race(work, 4)
"""
    python(RACE + code, tmp_path / "steps")
    assert [path.name for path in (tmp_path / "steps").iterdir()] == ["epoch-000015"]


def test_one_result_file(python, tmp_path):
    code = """
from rankbound.io import atomic_write
def work(number):
    for _ in range(30):
        with atomic_write(sys.argv[1]) as temporary:
            temporary.write_text(str(number) * 50_000)
race(work)
"""
    python(RACE + code, tmp_path / "result")
    assert len(set((tmp_path / "result").read_text())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_one_download(tmp_path, monkeypatch):
    """One fetches, the others wait and find it. Threads here: the lock belongs to an open folder, not to a process."""
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path))
    monkeypatch.delenv("RANKBOUND_DATA", raising=False)
    content, requests = np.random.default_rng(0).bytes(500_000), []

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        entry = Entry(
            name="mine", kind="letor", folder="mine", title="", origin="", license="", citation="",
            download=(f"http://127.0.0.1:{server.server_port}/data.bin",), files=(DataFile("data.bin"),),
        )  # fmt: skip
        results = []
        getters = [threading.Thread(target=lambda: results.append(obtain(entry))) for _ in range(6)]
        for getter in getters:
            getter.start()
        for getter in getters:
            getter.join()
        server.shutdown()
    assert results == [[tmp_path / "data" / "mine" / "data.bin"]] * 6
    assert results[0][0].read_bytes() == content
    assert requests == ["/data.bin"]
    assert [state.state for state in check(entry)] == ["ok"]
    assert list(json.loads((tmp_path / "checksums.json").read_text())) == ["mine/data.bin"]
