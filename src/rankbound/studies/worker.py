"""A worker process, ``python -m rankbound.studies.worker``: one trial at a time, on one thread.

It reads lines of JSON from its standard input: first the `Orders` of its runner, then trials. It answers each with a
line of JSON, which the Parquet files of an outcome follow, and ends with its runner, however that ends.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import polars as pl
from pydantic import TypeAdapter

from rankbound.data.catalog import look_for_data_in
from rankbound.errors import RankboundError
from rankbound.parallel import ONE_THREAD, thread_budget
from rankbound.studies.modules import unknown_measures
from rankbound.studies.store import FRAMES
from rankbound.studies.trial import Outcome, run_trial
from rankbound.studies.trial_spec import Trial


@dataclass(frozen=True)
class Failure:
    """Why a trial failed: the first line is a message for people, the rest the traceback."""

    error: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Orders:
    """What a worker is told first: where to look for data, the modules to import, and the measures that they define."""

    data: str | None
    modules: dict[str, str]
    measures: list[str]


def attempt(trial: Trial) -> Outcome | Failure:
    """Run a trial and return its outcome, or a `Failure` if it raises any exception."""
    began = time.perf_counter()
    try:
        return run_trial(trial)
    except RankboundError as error:
        return Failure(str(error), time.perf_counter() - began)
    except Exception as error:  # a failing trial must not stop the others
        text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        return Failure(text, time.perf_counter() - began)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit this process to one thread, as workers are, while trials run in it."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    with thread_budget(1), threadpool_limits(1):
        yield


# ---- the runner's side -----------------------------------------------------------------------------------------------


def start_worker() -> subprocess.Popen[bytes]:
    """Start a worker process, which imports modules from where this process does."""
    environment = os.environ | ONE_THREAD
    environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the runner
    )


def send_orders(worker: subprocess.Popen[bytes], orders: Orders) -> str:
    """Tell a worker its orders; why it cannot follow them, or ""."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    _write(worker.stdin, json.dumps(asdict(orders)).encode())
    return str(json.loads(worker.stdout.readline() or '""'))


def exchange_trial(worker: subprocess.Popen[bytes], trial: Trial) -> Outcome | Failure:
    """Give a trial to a worker and wait for the result; EOFError or OSError if the worker dies."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    _write(worker.stdin, _trials().dump_json(trial))
    line = worker.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    answer = json.loads(line)
    if "failure" in answer:
        return Failure(**answer["failure"])
    contents = {name: worker.stdout.read(size) for name, size in answer["files"].items()}
    if any(len(content) < answer["files"][name] for name, content in contents.items()):
        raise EOFError
    frames = {name: pl.read_parquet(content) for name, content in contents.items()}
    return Outcome(**frames, metadata=answer["metadata"], seconds=answer["seconds"])


@cache
def _trials() -> TypeAdapter[Trial]:
    return TypeAdapter(Trial)


def _write(stream: IO[bytes], line: bytes, content: bytes = b"") -> None:
    stream.write(line + b"\n" + content)
    stream.flush()


# ---- the worker's side -----------------------------------------------------------------------------------------------


def main() -> None:
    """Run the trials that come from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    orders = Orders(**json.loads(lines.get()))
    look_for_data_in(orders.data)
    _write(answers, json.dumps(unknown_measures(orders.modules, orders.measures)).encode())
    while True:
        _answer(answers, attempt(_trials().validate_json(lines.get())))


def _read_lines(lines: SimpleQueue[bytes]) -> None:
    """Pass lines on, and exit when the runner is gone: one that was killed leaves no processes behind."""
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def _answer(stream: IO[bytes], result: Outcome | Failure) -> None:
    """Write what a trial gave: a line of JSON, and the Parquet files of an outcome."""
    if isinstance(result, Failure):
        _write(stream, json.dumps({"failure": asdict(result)}).encode())
        return
    files = {name: _to_bytes(frame) for name in FRAMES if (frame := getattr(result, name)) is not None}
    sizes = {name: len(content) for name, content in files.items()}
    head = {"metadata": result.metadata, "seconds": result.seconds, "files": sizes}
    _write(stream, json.dumps(head).encode(), b"".join(files.values()))


def _to_bytes(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()


if __name__ == "__main__":
    main()
