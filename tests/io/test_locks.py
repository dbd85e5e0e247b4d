"""Locks between threads and processes, by the folder itself and by a lock file as on Windows."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from rankbound.errors import DataError
from rankbound.io import locked_file, locked_folder, locks

HOLD = """
import sys
from rankbound.io import locked_file, locks
locks._FOLDERS_CAN_BE_LOCKED = sys.argv[2] == "folder"
lock = locks.locked_folder(sys.argv[1]) if sys.argv[2] != "file" else locked_file(sys.argv[1], "is busy")
with lock:
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["folder", "lock file"])
def how(request, monkeypatch):
    """How folders are locked: as on POSIX, as on Windows."""
    monkeypatch.setattr(locks, "_FOLDERS_CAN_BE_LOCKED", request.param == "folder")
    return request.param


@pytest.fixture
def hold():
    """Start a process that holds a lock until it is killed."""
    processes = []

    def begin(path, how):
        command = [sys.executable, "-c", HOLD, str(path), how]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def test_threads_exclude_each_other(tmp_path, how):
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        for _ in range(5):
            with locked_folder(tmp_path / "new"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.002)
                inside -= 1

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert most == 1
    left = [path.name for path in (tmp_path / "new").iterdir()]
    assert left == ([] if how == "folder" else [".rankbound.lock"])


def test_a_killed_process_leaves_no_lock(tmp_path, how, hold):
    holder = hold(tmp_path, how)
    entered = threading.Event()

    def enter():
        with locked_folder(tmp_path, create=False):
            entered.set()

    waiting = threading.Thread(target=enter)
    waiting.start()
    assert not entered.wait(0.3)
    holder.kill()
    assert entered.wait(60)
    waiting.join()


def test_a_reader_creates_nothing(tmp_path, how):
    with locked_folder(tmp_path / "absent", create=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_used_without_a_lock(tmp_path, how):
    (tmp_path / "file").write_text("")
    with locked_folder(tmp_path / "file" / "folder"):
        pass


def test_a_lock_file_names_its_holder_until_that_is_gone(tmp_path, hold):
    holder = hold(tmp_path / "lock", "file")
    refused = pytest.raises(DataError, match=rf"another process \({holder.pid} on .*\) is writing")
    with refused, locked_file(tmp_path / "lock", "is writing"):
        pass
    holder.kill()
    holder.communicate()
    with locked_file(tmp_path / "lock", "is writing"):
        assert str(holder.pid) not in (tmp_path / "lock").read_text()
