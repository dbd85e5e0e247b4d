"""Unusual environments: closed streams, other locales, strange names, few resources, folders that disappear."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess

import pytest

from rankbound.data.letor import read_letor
from rankbound.errors import DataError
from rankbound.io import locks
from rankbound.models import AdaRank, load_ranker
from rankbound.studies.store import open_store

from .conftest import COMMAND, LONG, content

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="surroundings of POSIX"),
    pytest.mark.full("kills processes and takes away what they need"),
]
BOUNDS = ("bounds", "AP", "--n", "2", "--relevant", "1")


def redirected(how: str) -> list[str]:
    return ["sh", "-c", f'exec "$@" {how}', "sh"]


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(rankbound, runs, streams):
    """A file may get the descriptor of a closed stream: nothing may be printed into it."""
    command = ["evaluate", "qrels", "run", "--per-query", "values.csv"]
    code, _, _ = rankbound(*command, before=redirected(streams), cwd=runs)
    assert code == 0
    assert (runs / "values.csv").read_text().count("\n") == 201


def test_closed_stdin_that_is_to_be_read(rankbound, runs):
    code, _, err = rankbound("evaluate", "qrels", "-", before=redirected("<&-"), cwd=runs)
    assert code == 2
    assert err.startswith("rankbound: -: ")


def test_a_locale_without_unicode(rankbound, tmp_path):
    """Output is UTF-8 everywhere, and file names that are not text become valid JSON."""
    name = os.fsdecode(b"r\xc3\xbcn \xff")
    (tmp_path / "qrels").write_text("qé→ 0 dø 1\nqé→ 0 d2 0\n", encoding="utf-8")
    (tmp_path / name).write_text("qé→ Q0 dø 1 2 t\nqé→ Q0 d2 2 1 t\n", encoding="utf-8")
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for environment in (plain, os.environ | {"LC_ALL": "C.UTF-8"}):
        for form in ([], ["--json", "--per-query", "values.csv"]):
            code, out, err = rankbound("evaluate", "qrels", name, "-m", "AP", *form, cwd=tmp_path, env=environment)
            assert code == 0, err
            assert not form or json.loads(out)["mean"] == {"AP": 1.0}
    assert "qé→" in (tmp_path / "values.csv").read_text(encoding="utf-8")


def test_a_ranking_in_a_locale_without_unicode(rankbound, tmp_path):
    lines = [f"{d % 2} qid:{q} 1:{d} 2:{q} #docid = ø{q}-{d}" for q in range(3) for d in range(4)]
    (tmp_path / "letor.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = read_letor(tmp_path / "letor.txt")
    AdaRank().fit(data.features, data.lists.labels, qid=data.lists.query_of_item).save(tmp_path / "model")
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code, _, err = rankbound("rank", "model", "letor.txt", "-o", "run.txt", cwd=tmp_path, env=plain)
    assert code == 0, err
    assert "ø2-3" in (tmp_path / "run.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["with spaces", "zwei\nZeilen", "ünï→", "-dash", "%s{}$HOME"])
def test_strange_names_of_folders(rankbound_here, runs, name, monkeypatch):
    folder = runs / name
    folder.mkdir()
    for file in ("qrels", "run"):
        shutil.copy(runs / file, folder / file)
    monkeypatch.setenv("RANKBOUND_CACHE", str(folder / "cache"))
    command = ["evaluate", folder / "qrels", folder / "run", "-m", "DB(AP)", "--per-query", folder / "values.json"]
    assert rankbound_here(*command)[0] == 0
    assert len(json.loads((folder / "values.json").read_text())) == 200
    code, _, err = rankbound_here("evaluate", folder / "qrels", folder / "absent")
    assert (code, err.count("\n")) == (2, 1)


def test_loops_of_links(rankbound_here, letor, tmp_path, monkeypatch):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for command in (
        ["evaluate", loop, loop],
        ["train", letor, "--model", "AdaRank", "-o", loop],
        ["train", letor, "--model", "AdaRank", "-o", loop / "model"],
        ["rank", loop, letor, "-o", tmp_path / "run.txt"],
        ["report", loop, "-o", tmp_path / "page.html"],
        ["weights", letor, "-o", loop / "weights.txt"],
    ):
        code, out, err = rankbound_here(*command)
        assert (code, out) == (2, ""), command
        assert str(loop) in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letor.txt", "loop"]


def test_a_very_small_terminal(start, runs):
    """One column, two lines: columns that do not fit are named, none is cut, and --json has them."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 2, 1, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = start(*COMMAND, *BOUNDS, stdin=theirs, stdout=theirs, stderr=theirs, env=environment | {"TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65_536):
            shown += part
    except OSError:  # Linux reports the closed other side this way
        pass
    os.close(ours)
    assert command.wait(LONG) == 0
    assert b"".join(shown.split()).count(b"Toonarrowfor:value.--json") == 1
    assert b"Traceback" not in shown


@pytest.mark.parametrize("most", [5, 7, 32])
def test_few_open_files(start, runs, most):
    """The command succeeds, refuses, or is ended by a library that needs more files; it never writes half a result."""
    command = ["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh", *COMMAND]
    process = start(*command, "evaluate", "qrels", "run", "--per-query", "values.csv", cwd=runs)
    process.communicate(timeout=LONG)
    assert process.returncode == 0 or most < 32
    assert {file.name for file in runs.iterdir()} == {"qrels", "run", *(["values.csv"] * (process.returncode == 0))}
    if process.returncode == 0:
        assert (runs / "values.csv").read_text().count("\n") == 201


@pytest.mark.parametrize("kilobytes", [400_000, 600_000, 900_000])
def test_little_memory(start, runs, kilobytes):
    """NumPy raises an error, polars aborts the process, at any moment: the file is unchanged, or new and complete.

    The file is replaced before the table is printed, so that a process that ends in between leaves the new one. Rarely,
    a library waits for memory for ever while it starts its threads; such a process has to be ended from outside.
    """
    (runs / "values.csv").write_text("as it was")
    command = ["sh", "-c", f'ulimit -v {kilobytes}; exec "$@"', "sh", *COMMAND]
    environment = os.environ | {"RUST_BACKTRACE": "0"}  # to print a backtrace, polars needs memory that it has not got
    process = start(*command, "evaluate", "qrels", "run", "--per-query", "values.csv", cwd=runs, env=environment)
    try:
        process.communicate(timeout=LONG / 2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    content = (runs / "values.csv").read_text()
    is_complete = content.count("\n") == 201 and content.endswith("\n")
    assert is_complete or (content == "as it was" and process.returncode != 0)
    assert {file.name for file in runs.iterdir()} <= {"qrels", "run", "values.csv", "core"}


def test_no_folder_for_temporary_files(rankbound, runs, small_disk):
    """Temporary files are in the folder of the result: TMPDIR may be full or missing."""
    for folder in (small_disk(0), runs / "absent"):
        environment = os.environ | {"TMPDIR": str(folder)}
        code, _, err = rankbound("evaluate", "qrels", "run", "--per-query", "values.csv", cwd=runs, env=environment)
        assert code == 0, err


def test_the_working_folder_is_gone(start, runs):
    """Absolute paths can be read, but a relative result cannot be written."""
    (runs / "gone").mkdir()
    command = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *COMMAND]
    process = start(*command, "evaluate", runs / "qrels", runs / "run", "--per-query", "v.csv", cwd=runs / "gone")
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == 2, err
    assert out == b""
    assert b"rankbound: v.csv: cannot be written: No such file or directory" in err
    assert b"Traceback" not in err


def test_a_store_that_is_taken_away(tmp_path):
    """The next trial raises an error, because SQLite would write to a deleted file."""

    class Trial:
        id = "a"

    with open_store(tmp_path / "store", create=True) as store, store.locked():
        shutil.rmtree(tmp_path / "store")
        with pytest.raises(DataError, match=r"trials\.sqlite: was removed while trials were running"):
            store.put_failure(Trial(), "no reason")
        with pytest.raises(DataError, match=r"trials\.sqlite: was removed while trials were running"):
            store.put(Trial(), None)
    assert not (tmp_path / "store").exists()


def test_a_system_that_cannot_lock_folders(tmp_path, monkeypatch):
    """On Windows a hidden file in the folder is locked; models and stores work as elsewhere."""
    monkeypatch.setattr(locks, "_FOLDERS_CAN_BE_LOCKED", False)
    AdaRank(n_estimators=1).fit([[0.0], [1.0]], [0, 1]).save(tmp_path / "models" / "one")
    assert load_ranker(tmp_path / "models" / "one").n_estimators == 1
    assert {path.name for path in (tmp_path / "models").iterdir()} == {"one", ".rankbound.lock"}
    with open_store(tmp_path / "store", create=True) as store, store.locked():
        assert store.states() == {}


def test_a_lock_file_of_a_process_that_is_gone(tmp_path):
    """The file names the last holder; the lock itself ended with that process."""
    with open_store(tmp_path / "store", create=True) as store:
        (tmp_path / "store" / "lock").write_text("\n4194304 on elsewhere\n")
        with store.locked():
            assert str(os.getpid()) in (tmp_path / "store" / "lock").read_text()


def test_a_fork_after_kernels_have_run(python):
    """The child computes the same, and the parent continues."""
    code = """
import os, sys
import numpy as np
from rankbound.losses import NDCGLoss
loss, scores = NDCGLoss(), np.random.default_rng(0).random(4_000, dtype=np.float32)
plan = loss.plan(np.tile([0, 1, 2, 0], 1_000), np.arange(0, 4_001, 80))
first = loss.value_and_gradient(scores, plan).gradient
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(loss.value_and_gradient(scores, plan).gradient, first) else 1)
status = os.waitpid(child, 0)[1]
assert np.array_equal(loss.value_and_gradient(scores, plan).gradient, first)
print(status)
"""
    assert int(python(code)) == 0


def test_a_model_that_is_no_folder(tmp_path):
    for name, text in (("file", "x"), ("empty", None)):
        path = tmp_path / name
        path.mkdir() if text is None else path.write_text(text)
        before = content(tmp_path)
        with pytest.raises(DataError, match="is not a model folder"):
            load_ranker(path)
        assert content(tmp_path) == before
