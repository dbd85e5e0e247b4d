"""What runs in a worker process: one trial at a time, on its share of the machine."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from dataclasses import dataclass

from rankbound.errors import RankboundError
from rankbound.experiments.trial import Outcome, Trial, run_trial

__all__ = ["THREADS", "Failure", "attempt", "become_worker"]

_BUDGETS = ("RANKBOUND", "NUMBA_NUM", "OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "POLARS_MAX")
THREADS = {f"{budget}_THREADS": "1" for budget in _BUDGETS}
"""Environment of a worker: one thread, always, so that numbers do not depend on how many workers there are."""


@dataclass(frozen=True)
class Failure:
    """Why a trial gave nothing; the first line is for people, the rest says where it happened."""

    error: str
    seconds: float = 0.0


def attempt(trial: Trial) -> Outcome | Failure:
    """Run a trial; whatever goes wrong in it comes back as a `Failure`."""
    began = time.perf_counter()
    try:
        return run_trial(trial)
    except RankboundError as error:
        return Failure(str(error), time.perf_counter() - began)
    except Exception as error:  # a trial must not take the others with it
        text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        return Failure(text, time.perf_counter() - began)


def become_worker(parent: int) -> None:
    """Leave Ctrl-C to the runner, and end when it is gone: a killed runner leaves nobody behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
