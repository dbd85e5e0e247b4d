"""Processes that are ended in the middle of their work, by force or politely."""

from __future__ import annotations

import contextlib
import http.server
import os
import pty
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rankbound.data.array_cache import read_cached
from rankbound.data.download import fetch
from rankbound.data.letor import LetorData, read_letor

from .conftest import COMMAND, LONG, wait_for

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="signals of POSIX"),
    pytest.mark.full("kills processes and takes away what they need"),
]

# the command, whose write stops halfway, reports that, and waits for input that never comes
STUCK = """
import sys
from pathlib import Path
from rankbound.cli.main import run

def half(path, content, **_):
    with path.open("w") as stream:
        stream.write("half")
    print("half", flush=True)
    sys.stdin.read()

write_text, Path.write_bytes = Path.write_text, half
Path.write_text = lambda path, *text, **options: (half if ".html." in path.name else write_text)(path, *text, **options)
sys.exit(run())
"""
POLITE = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize("ending", ["csv", "html"])
def test_kill_while_a_result_is_written(start, runs, ending):
    """The file is unchanged; at most a hidden temporary file remains next to it."""
    target = runs / f"result.{ending}"
    target.write_text("as it was")
    command = ["evaluate", "qrels", "run", "--per-query", target.name]
    if ending == "html":
        command = ["report", "qrels", "run", "-m", "AP", "-o", target.name]
    writer = start(sys.executable, "-c", STUCK, *command, cwd=runs)
    assert writer.stdout.readline() == b"half\n"
    writer.send_signal(signal.SIGKILL)
    assert writer.wait(LONG) == -signal.SIGKILL
    assert target.read_text() == "as it was"
    left = {file.name for file in runs.iterdir()} - {"qrels", "run", target.name}
    assert all(name.startswith(f".result.{ending}.") for name in left)


WRITING = [(number, "evaluate qrels run --per-query result.csv") for number in POLITE]
WRITING.append((signal.SIGINT, "weights qrels -o result.csv"))


@pytest.mark.parametrize(("number", "command"), WRITING)
def test_a_signal_while_a_result_is_written(start, runs, number, command):
    """Ctrl-C, the end of a batch job and a closed terminal leave nothing at all, and say so in one line."""
    (runs / "result.csv").write_text("as it was")
    writer = start(
        sys.executable, "-c", STUCK, *command.split(), cwd=runs,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup and background jobs ignore some
    )  # fmt: skip
    assert writer.stdout.readline() == b"half\n"
    writer.send_signal(number)
    out, err = writer.communicate(timeout=LONG)
    assert (writer.returncode, out, err.strip()) == (POLITE[number], b"", b"rankbound: interrupted")
    assert (runs / "result.csv").read_text() == "as it was"
    assert {file.name for file in runs.iterdir()} == {"qrels", "run", "result.csv"}


LONG_COMPUTATIONS = {
    "distribution AP --n 3000 --relevant 900 --method sampled --samples 5000000": "computing the distribution",
    "compare qrels run other --resamples 10000000 -m AP": "comparing",
    "stability qrels run other third fourth --splits 100000 -m AP": "comparing normalizations",
}


@pytest.mark.parametrize("command", LONG_COMPUTATIONS)
def test_ctrl_c_in_a_long_computation(start, runs, command):
    """In a terminal, the work is shown on stderr; Ctrl-C ends it with one line."""
    rows = [line.split() for line in (runs / "run").read_text().splitlines()]
    for factor, name in enumerate(("other", "third", "fourth"), start=7):
        scores = [len(q) + int(d[1:]) * factor % 10 for q, _, d, *_ in rows]
        lines = [f"{q} Q0 {d} 1 {score} {name}\n" for (q, _, d, *_), score in zip(rows, scores, strict=True)]
        (runs / name).write_text("".join(lines))
    terminal, stderr = pty.openpty()
    process = start(*COMMAND, *command.split(), cwd=runs, stderr=stderr, env=os.environ | {"TERM": "xterm"})
    os.close(stderr)
    shown = b""
    wanted = LONG_COMPUTATIONS[command].encode()
    while wanted not in shown:
        shown += os.read(terminal, 4096)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    # Python loses an interrupt in a callback of the import system: press Ctrl-C once more
    again = threading.Timer(5, lambda: process.poll() is None and process.send_signal(signal.SIGINT))
    again.start()
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    code = process.wait(LONG)
    again.cancel()
    assert code == 130, shown.decode()
    assert process.stdout.read() == b""
    assert b"Traceback" not in shown or b"Exception ignored" in shown
    said = [line for line in shown.splitlines() if b"rankbound: " in line]
    assert [line[line.index(b"rankbound") :] for line in said] == [b"rankbound: interrupted"]


def test_a_signal_while_input_is_read(start, runs):
    """More than a pipe holds was taken, so the command is in the middle of reading."""
    reader = start(*COMMAND, "evaluate", "qrels", "-", "--per-query", "result.csv", cwd=runs)
    for q in range(40_000):
        reader.stdin.write(b"q%d Q0 d1 1 0.5 t\n" % q)
    reader.send_signal(signal.SIGTERM)
    out, err = reader.communicate(timeout=LONG)
    assert (reader.returncode, out, err.strip()) == (143, b"", b"rankbound: interrupted")
    assert {file.name for file in runs.iterdir()} == {"qrels", "run"}


def test_a_reader_that_goes_away(start, runs):
    """As in `rankbound ... | head -1`, at its worst: nobody reads at all."""
    command = start(*COMMAND, "evaluate", "qrels", "-", "--json", cwd=runs)
    command.stdout.close()
    command.stdin.write((runs / "run").read_bytes())
    command.stdin.close()
    assert command.wait(LONG) == 141
    assert command.stderr.read() == b""


TRAIN = ("train", "letor.txt", "--param", "hidden=4,", "--checkpoint", "steps", "-o", "model", "--json")


def test_train_that_is_ended_goes_on_from_its_checkpoint(start, rankbound_here, letor, monkeypatch):
    """The epochs before the end are not repeated, and no model is there before it is finished."""
    monkeypatch.chdir(letor.parent)
    training = start(*COMMAND, *TRAIN, "--epochs", "100000")
    wait_for(lambda: training.poll() is not None or list(Path("steps").glob("epoch-*")))
    training.send_signal(signal.SIGTERM)
    training.communicate(timeout=LONG)
    assert training.returncode == 143
    assert not Path("model").exists()
    # two if it was ended between a new step and the removal of the old
    steps = [step.name for step in Path("steps").glob("epoch-*") if (step / "state.json").exists()]
    reached = int(max(steps).removeprefix("epoch-"))
    code, out, err = rankbound_here(*TRAIN, "--epochs", reached + 1)
    assert code == 0, err
    assert f'"epochs": {reached + 1}' in out
    assert [path.name for path in Path("steps").iterdir()] == [f"epoch-{reached + 1:06d}"]


CONVERT = """
import sys
from pathlib import Path
import numpy as np
from rankbound.data.array_cache import read_cached
from rankbound.data.letor import LetorData, read_letor

def half(path, array, **_):
    save(path, array[:1])
    print("half", flush=True)
    sys.stdin.read()

save, np.save = np.save, half
read_cached([Path(sys.argv[1])], lambda: read_letor(sys.argv[1]), LetorData)
"""


def test_kill_while_a_data_set_is_converted(start, letor, tmp_path, monkeypatch):
    """Half an entry is never read, and the next conversion clears it away."""
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    converter = start(sys.executable, "-c", CONVERT, letor)
    assert converter.stdout.readline() == b"half\n"
    converter.kill()
    converter.wait(LONG)
    kept = tmp_path / "cache" / "converted"
    assert list(kept.glob(".new.*"))
    table = read_cached([letor], lambda: read_letor(letor), LetorData)
    assert np.array_equal(table.features, read_letor(letor).features)
    assert table.notes == ()
    assert not list(kept.glob(".new.*"))


def test_kill_in_the_middle_of_a_download(start, tmp_path):
    """The received bytes are kept, and the next attempt requests the rest only."""
    whole = np.random.default_rng(0).bytes(3_000_000)
    requests, go_on = [], threading.Event()

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.headers.get("Range"))
            begin = int(requests[-1].removeprefix("bytes=").removesuffix("-")) if requests[-1] else 0
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(whole) - begin))
            self.send_header("ETag", '"one"')
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(whole) - 1}/{len(whole)}")
            self.end_headers()
            self.wfile.write(whole[begin:2_000_000] if not begin else whole[begin:])
            if not begin:
                self.wfile.flush()
                go_on.wait(LONG)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, target = f"http://127.0.0.1:{server.server_port}/data.txt", tmp_path / "data.txt"
        code = "import sys; from pathlib import Path; from rankbound.data.download import fetch; "
        code += "fetch(sys.argv[1], Path(sys.argv[2]), None, lambda have, total: print(have, flush=True))"
        fetcher = start(sys.executable, "-c", code, url, target)
        while int(fetcher.stdout.readline()) < 1_000_000:
            pass
        fetcher.kill()
        fetcher.wait(LONG)
        go_on.set()
        assert not target.exists()
        kept = Path(f"{target}.part").stat().st_size
        assert kept >= 700_000
        fetch(url, target)
        server.shutdown()
    assert target.read_bytes() == whole
    assert requests == [None, f"bytes={kept}-"]
    assert [path.name for path in tmp_path.iterdir()] == ["data.txt"]
