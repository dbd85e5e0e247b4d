"""Comparison of our work with that of peers: first the values, then the time of each, in turns."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.records import Missing, Row
from benchmarks.timing import MIN_SECONDS, Work, best_of

__all__ = ["PACKAGES", "Peer", "compare_with_peers", "is_installed", "missing"]

# imported module -> what to pass to `pip install`
PACKAGES = {
    "pytrec_eval": "pytrec_eval-terrier",
    "ir_measures": "ir_measures",
    "ranx": "ranx",
    "sklearn": "scikit-learn",
    "rax": "rax jax",
    "keras_rs": "keras-rs",
    "torchmetrics": "torchmetrics",
    "lightgbm": "lightgbm",
    "xgboost": "xgboost",
    "torch": "torch",
}
# keras-rs and rax read these when they are imported: the backend, and one thread, which all losses are timed with
_ENVIRONMENT = {
    "KERAS_BACKEND": "torch",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def is_installed(module: str) -> bool:
    """Whether a module and everything it needs can be imported."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def missing(module: str) -> Missing:
    """Return the finding that a peer is not installed."""
    return Missing(module, PACKAGES[module])


@dataclass(frozen=True)
class Peer:
    """An implementation to compare with.

    ``prepare`` does the imports and the set-up, which are not timed, and returns the work. ``module`` must be
    installed for it. ``values`` turns the result of the work into numbers in our order. ``bar`` is the ratio that we
    want to reach at least.
    """

    name: str
    prepare: Callable[[], Work]
    bar: float | None = None
    module: str | None = None
    values: Callable[[Any], Any] | None = None
    against: Literal["peer", "ourselves"] = "peer"


def compare_with_peers(
    name: str,
    work: Work,
    peers: Sequence[Peer],
    *,
    turns: int = 5,
    values: Callable[[Any], Any] | None = None,
    tolerance: float = 1e-6,
) -> Iterator[Row | Missing]:
    """Yield a row per peer; where both sides have ``values``, the row holds their largest difference."""
    yield from (missing(peer.module) for peer in peers if peer.module and not is_installed(peer.module))
    present = [peer for peer in peers if peer.module is None or is_installed(peer.module)]
    if not present:
        return
    peer_works = [peer.prepare() for peer in present]
    result = work()  # first runs, which may compile, are not timed
    differences: list[float | None] = []
    for peer, peer_work in zip(present, peer_works, strict=True):
        peer_result = peer_work()
        if values is None or peer.values is None:
            differences.append(None)
        else:
            differences.append(_difference(values(result), peer.values(peer_result)))
    times = best_of(dict(enumerate([work, *peer_works])), turns, MIN_SECONDS)
    for index, (peer, difference) in enumerate(zip(present, differences, strict=True), start=1):
        yield Row(
            name, times[0], peer.name, times[index], peer.bar, against=peer.against, difference=difference,
            tolerance=tolerance if difference is not None else 0.0,
        )  # fmt: skip


def _difference(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    return float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else float("inf")
