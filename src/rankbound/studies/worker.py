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

from rankbound.data.catalog import look_for_data_in
from rankbound.errors import RankboundError
from rankbound.parallel import thread_budget
from rankbound.studies.trial import Outcome, run_trial
from rankbound.studies.trial_spec import Trial


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


def become_worker(parent: int, data: str | None) -> None:
    """Look for data where the runner does, leave Ctrl-C to it, and exit when it is gone.

    A killed runner leaves no processes behind.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    look_for_data_in(data)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit this process to one thread, as workers are, while trials run in it."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    with thread_budget(1), threadpool_limits(1):
        yield
