"""Real processes: the same numbers from any number of workers, nothing lost when one of them, or all, are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankbound.data.catalog import look_for_data_in
from rankbound.parallel import module_digests
from rankbound.studies.runner import run_trials, unfinished_slots
from rankbound.studies.sources import load_whole, moved_files, source_of
from rankbound.studies.store import open_store
from rankbound.studies.trial import RECORDERS, run_trial

from .conftest import ROWS

SLOW = ROWS.replace("n_restarts = 1", "n_restarts = 3")
RUN = "import sys; from rankbound.cli.main import run; sys.exit(run())"


known = {}


def expected(slots):
    """The scores of an undisturbed run in this process."""
    for slot in slots:
        if slot.trial.id not in known:  # equal ids are equal trials, whatever folder their data are in
            known[slot.trial.id] = run_trial(slot.trial).scores
    return {slot.trial.id: known[slot.trial.id] for slot in slots}


def check(store, slots, wanted):
    assert store.states() == dict.fromkeys((slot.trial.id for slot in slots), "done")
    for name, scores in wanted.items():
        assert store.scores(name).equals(scores)


def done_in(folder: Path) -> dict[str, str]:
    """Finished trials and when they were finished, read while the runner writes."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'trials.sqlite'}?mode=ro", uri=True)) as connection:
            return dict(connection.execute("SELECT id, finished || seconds FROM trials WHERE status = 'done'"))
    except sqlite3.OperationalError:
        return {}


def wait_for(true, seconds: float = 60.0):
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    direct = [int(child) for file in tasks for child in file.read_text().split()]
    return direct + [deeper for child in direct for deeper in children(child)]


def alive(process: int) -> bool:
    """Whether it runs; one that has ended and was not asked how does not count."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


DEADLY = """
import os
from rankbound.studies.trial import RECORDERS
RECORDERS["exit"] = lambda fitted: os._exit(1)
"""


@pytest.mark.full("takes seconds")
def test_results_do_not_depend_on_workers_or_on_failing_trials(plan, tmp_path, monkeypatch):
    """Eight good trials alone, and then with a trial that fails and another one that kills its worker process."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(RECORDERS, "exit", lambda fitted: ())
    slots = plan(ROWS)
    wanted = expected(slots)
    with open_store(tmp_path / "alone", create=True) as store, store.locked():
        tally = run_trials(slots, store, jobs=1)
        assert (tally.total, tally.before, tally.ran, tally.failed) == (8, 0, 8, 0)
        check(store, slots, wanted)
        assert run_trials(slots, store, jobs=1).ran == 0  # nothing is run twice
    failing, _ = plan(ROWS.replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[-7, 8]"))
    (deadly,) = plan(ROWS.replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[8]") + 'record = ["exit"]')
    deadly.trial.spec.modules.update(module_digests(["deadly"]))  # a frozen spec can hold it all the same
    reported = []
    with open_store(tmp_path / "beside", create=True) as store, store.locked():
        together = [failing, deadly, *slots]
        tally = run_trials(together, store, jobs=2, on_result=lambda slot, result: reported.append(slot.trial.id))
        assert (tally.ran, tally.failed) == (8, 2)
        assert sorted(reported) == sorted(slot.trial.id for slot in together)
        errors = store.failures()
        assert "random_state" in errors[failing.trial.id] or "seed" in errors[failing.trial.id]
        assert "worker process died twice while it ran this trial" in errors[deadly.trial.id]
        for name, scores in wanted.items():
            assert store.scores(name).equals(scores)
        assert unfinished_slots(together, store) == []
        assert unfinished_slots(together, store, retry_failed=True) == [failing, deadly]


@pytest.mark.full("takes seconds")
def test_a_killed_runner_resumes_where_it_stopped(plan, folder):
    slots = plan(SLOW)
    store_folder = folder / "kept"
    command = [
        sys.executable,
        "-c",
        RUN,
        "reproduce",
        "mine.toml",
        "--jobs",
        "2",
        "--store",
        "kept",
        "--no-page",
        "--json",
    ]
    runner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(done_in(store_folder)) >= 2)
    workers = children(runner.pid)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    before = done_in(store_folder)
    assert 2 <= len(before) < len(slots)
    assert workers
    wait_for(lambda: not any(alive(worker) for worker in workers))  # nobody is left behind
    with open_store(store_folder) as store, store.locked():
        tally = run_trials(slots, store, jobs=1)
        assert (tally.before, tally.ran) == (len(before), len(slots) - len(before))
        check(store, slots, expected(slots))
    after = done_in(store_folder)
    assert {name: after[name] for name in before} == before  # not repeated: not even its time has changed


@pytest.mark.full("takes seconds")
@pytest.mark.filterwarnings("ignore")  # distributed has some of its own when a worker is killed
def test_a_killed_dask_worker_loses_no_trial(plan, tmp_path):
    slots = plan(ROWS)
    wanted = expected(slots)
    killed = []

    def kill_one(slot, result):
        if not killed:
            workers = [child for child in children(os.getpid()) if b"spawn_main" in cmdline(child)]
            killed.append(workers[-1])
            os.kill(workers[-1], signal.SIGKILL)

    pytest.importorskip("cryptography")
    with open_store(tmp_path / "store", create=True) as store, store.locked():
        tally = run_trials(slots, store, cluster="local:2", on_result=kill_one)
        assert killed
        assert (tally.ran, tally.failed) == (8, 0)
        check(store, slots, wanted)


def cmdline(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def test_files_are_sent_to_workers_that_lack_them(plan, folder, monkeypatch):
    """The work of the plugin on a worker of another machine, whose files are elsewhere or missing."""
    from rankbound.studies import cluster

    slot = plan(ROWS)[0]
    wanted = run_trial(slot.trial).scores
    parcel, empty = cluster.pack(slot.trial.source), cluster.pack(slot.trial.source, limit=10)
    cluster._received_folder.cache_clear()
    try:
        assert cluster.receive(empty)  # the files are here, under the same path
        assert run_trial(slot.trial).scores.equals(wanted)
        moved_files.clear()
        cluster._received_folder.cache_clear()
        (folder / "letor").rename(folder / "gone")
        assert not cluster.receive(empty)
        assert cluster.receive(parcel)
        monkeypatch.chdir("/")
        assert run_trial(slot.trial).scores.equals(wanted)
    finally:
        moved_files.clear()


def test_data_sets_are_sent_to_workers_that_lack_them(folder, monkeypatch):
    from rankbound.studies import cluster

    for name in ("epinions", "ml-1m"):
        (folder / "data" / name).mkdir(parents=True)
    (folder / "data" / "epinions" / "trust_data.txt").write_text("1 2 1\n2 1 1\n")
    (folder / "data" / "ml-1m" / "ratings.dat").write_text("1::2::4::10\n2::3::5::10\n")
    monkeypatch.setenv("RANKBOUND_DATA", str(folder / "data"))
    parcels = [cluster.pack(source_of(name, folder)) for name in ("epinions", "ml-1m")]
    cluster._received_folder.cache_clear()
    (folder / "data" / "epinions" / "trust_data.txt").unlink()
    try:
        assert all(cluster.receive(parcel) for parcel in parcels)
        assert [len(load_whole(parcel.source)) for parcel in parcels] == [2, 2]
    finally:
        moved_files.clear()
        look_for_data_in(None)
