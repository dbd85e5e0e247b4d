"""A disk that is really full: nothing that was there is lost, and the message names the file."""

from __future__ import annotations

import contextlib
import http.server
import sqlite3
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rankbound.checkpoints import Checkpoints
from rankbound.data import large, sources, trec
from rankbound.data.array_cache import read_cached
from rankbound.data.download import fetch
from rankbound.data.letor import LetorData, read_letor
from rankbound.difficulty.distribution import cache as distribution_cache
from rankbound.errors import DataError
from rankbound.models import AdaRank, load_ranker

from .conftest import content

pytestmark = pytest.mark.full("kills processes and takes away what they need")

FREE_BYTES = 8192
X, Y = np.random.default_rng(0).random((30, 3)), np.tile([0, 1, 0], 10)


@pytest.mark.parametrize("ending", ["csv", "parquet", "json"])
def test_results_of_a_command(rankbound_here, runs, small_disk, ending):
    disk = small_disk(FREE_BYTES)
    target = disk / f"result.{ending}"
    target.write_text("as it was")
    before = content(disk)
    measures = [f"--measure=nDCG@{k}" for k in range(1, 11)]
    code, out, err = rankbound_here("evaluate", runs / "qrels", runs / "run", *measures, "--per-query", target)
    assert (code, out) == (2, "")
    assert f"{target}: cannot be written: No space left on device" in err
    assert content(disk) == before


@pytest.mark.parametrize("options", [[], ["--cluster", "local:2"]])
@pytest.mark.parametrize("kind", ["parquet", "txt"])
def test_tables_that_are_shuffled(rankbound_here, tmp_path, small_disk, monkeypatch, kind, options):
    """The folder of what was written before is removed."""
    if options:
        pytest.importorskip("cryptography")
    monkeypatch.setattr(large, "ROWS", 20_000)
    monkeypatch.setattr(sources, "LARGE_TEXT", 1)
    monkeypatch.setattr(trec, "_AT_ONCE", 1 << 19)
    disk = small_disk(300_000)
    order = np.random.default_rng(0).permutation(100_000)
    rows = pl.DataFrame({"qid": order % 10_000, "docid": order}).with_columns(label=pl.lit(1), score=order / 7)
    if kind == "parquet":
        rows.drop("score").write_parquet(tmp_path / "qrels.parquet")
        rows.drop("label").write_parquet(tmp_path / "run.parquet")
    elif options:
        return  # workers read parquet files
    else:
        (tmp_path / "qrels.txt").write_text("0 0 0 1\n")
        lines = rows.select(pl.format("{} Q0 {} 1 {} tag", "qid", "docid", "score")).to_series()
        (tmp_path / "run.txt").write_text("\n".join(lines))
    names = tmp_path / f"qrels.{kind}", tmp_path / f"run.{kind}"
    code, out, err = rankbound_here("evaluate", *names, "-m", "AP", "--scratch", disk, *options)
    assert (code, out) == (2, "")
    assert f"{disk}/rankbound-" in err
    assert "cannot be written: " in err
    assert "No space left on device" in err
    assert len(err.strip().splitlines()) == 1
    assert [path.name for path in disk.iterdir()] == ["filler"]


def test_page(rankbound_here, runs, small_disk):
    disk = small_disk(FREE_BYTES)
    before = content(disk)
    code, _, err = rankbound_here("report", runs / "qrels", runs / "run", "-m", "AP", "-o", disk / "page.html")
    assert code == 2
    assert "page.html: cannot be written: No space left on device" in err
    assert content(disk) == before


def test_saved_model(small_disk):
    disk = small_disk(3 * 4096)  # enough for one model, not for a second one next to it
    AdaRank(n_estimators=1).fit(X, Y).save(disk / "model")
    second = AdaRank(n_estimators=500).fit(X, Y)
    (disk / "more").write_bytes(bytes(4096))
    with pytest.raises(DataError, match="model: cannot be written: No space left on device"):
        second.save(disk / "model")
    assert load_ranker(disk / "model").n_estimators == 1
    assert sorted(path.name for path in disk.iterdir()) == ["filler", "model", "more"]


def test_checkpoint(small_disk):
    """The previous step is still there, and no partial files are next to it."""
    disk = small_disk(6 * 4096)
    steps = Checkpoints(disk / "steps", {"seed": 0})
    steps.save(1, {"weights": np.ones(3)}, {"loss": 0.5})
    with pytest.raises(DataError, match="the checkpoint of epoch 2 cannot be written: No space left on device"):
        steps.save(2, {"weights": np.ones(100_000)}, {"loss": 0.25})
    arrays, metadata = steps.load()
    assert (arrays["weights"].tolist(), metadata) == ([1.0, 1.0, 1.0], {"loss": 0.5})
    assert [path.name for path in (disk / "steps").iterdir()] == ["epoch-000001"]


def test_distributions_are_computed_without_their_cache(small_disk, monkeypatch):
    disk = small_disk(0)
    monkeypatch.setenv("RANKBOUND_CACHE", str(disk))
    distribution = (np.linspace(0, 1, 5_000), np.full(5_000, 1 / 5_000), "dynamic")
    distribution_cache.store("key", distribution)
    assert distribution_cache.load("key") is None
    assert [path.name for path in (disk / "distributions").iterdir()] == []


def test_data_are_read_without_their_cache(small_disk, letor, monkeypatch):
    disk = small_disk(0)
    monkeypatch.setenv("RANKBOUND_CACHE", str(disk))
    table = read_cached([letor], lambda: read_letor(letor), LetorData)
    assert np.array_equal(table.features, read_letor(letor).features)
    assert table.notes[0].startswith("not kept in the cache: ")
    assert [name for name in content(disk) if name != "filler"] == []


def test_store(small_disk):
    """SQLite on a full disk, configured as the store does: committed rows stay, an uncommitted one raises an error."""
    from rankbound.studies.store import open_store

    disk = small_disk(400_000)
    with open_store(disk / "store", create=True) as store, store.locked():
        store.register("kept", [])
        with contextlib.suppress(OSError), (disk / "more").open("wb", buffering=0) as more:
            while more.write(bytes(4096)):
                pass
        with pytest.raises(DataError, match="there is no space left to write"), store._transaction():
            store._connection.execute("INSERT INTO about VALUES ('long', ?)", ("x" * 200_000,))
    (disk / "more").unlink()
    with open_store(disk / "store") as store, contextlib.closing(sqlite3.connect(disk / "store/trials.sqlite")) as db:
        assert store.states() == {}
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_download(small_disk, tmp_path):
    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(bytes(1_000_000))

        def log_message(self, *_):
            pass

    disk = small_disk(FREE_BYTES)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(DataError, match="data: cannot be written: No space left on device"):
            fetch(f"http://127.0.0.1:{server.server_port}/data", disk / "data")
        server.shutdown()
    assert [path.name for path in disk.iterdir()] == ["filler"]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_is_printed(rankbound, runs, stream):
    """/dev/full takes nothing: the exit code says so, or stays what it was when there is nobody to tell."""
    with Path("/dev/full").open("w") as full:
        command = ["bounds", "AP", "--n", "2", "--relevant", "1" if stream == "stdout" else "7"]
        code, _, err = rankbound(*command, **{stream: full})
    assert code == 2
    if stream == "stdout":
        assert "No space left on device" in err
