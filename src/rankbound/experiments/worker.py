"""The code that runs in a worker process: one trial at a time, on one thread."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from rankbound.errors import RankboundError
from rankbound.experiments.trial import Outcome, run_trial
from rankbound.experiments.trial_spec import Trial

__all__ = ["Failure", "attempt", "become_worker", "one_thread"]


@dataclass(frozen=True)
class Failure:
    """Why a trial failed: the first line is a message for people, the rest the traceback."""

    error: str
    seconds: float = 0.0


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


def become_worker(parent: int) -> None:
    """Leave Ctrl-C to the runner, and exit when the runner is gone: a killed runner leaves no processes behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit this process to one thread, as workers are, while trials run in it."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    before = os.environ.get("RANKBOUND_THREADS")
    os.environ["RANKBOUND_THREADS"] = "1"
    try:
        with threadpool_limits(1):
            yield
    finally:
        if before is None:
            del os.environ["RANKBOUND_THREADS"]
        else:
            os.environ["RANKBOUND_THREADS"] = before
