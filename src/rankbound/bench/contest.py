"""Our work against that of peers: the same values first, then the time of each, taking turns."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankbound.bench.records import Missing, Row
from rankbound.bench.timing import LONG_ENOUGH, Work, best_of

__all__ = ["PACKAGES", "Peer", "contest", "is_installed", "missing"]

# module that a peer is imported by -> what pip installs
PACKAGES = {
    "pytrec_eval": "pytrec_eval-terrier",
    "ir_measures": "ir_measures",
    "ranx": "ranx",
    "sklearn": "scikit-learn",
    "rax": "rax jax",
    "keras_rs": "keras-rs",
    "lightgbm": "lightgbm",
    "xgboost": "xgboost",
    "torch": "'rankbound[train]'",
    "numba": "'rankbound[train]'",
}
# what keras-rs and rax look at when they are imported: the tensors to work on, and one thread as for all
_SETTINGS = {
    "KERAS_BACKEND": "torch",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def is_installed(module: str) -> bool:
    """Whether a peer can be imported, with everything that it needs itself."""
    for name, setting in _SETTINGS.items():
        os.environ.setdefault(name, setting)
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def missing(module: str) -> Missing:
    """The finding that a peer is not there."""
    return Missing(module, PACKAGES[module])


@dataclass(frozen=True)
class Peer:
    """Somebody to be compared with: ``prepare`` imports and sets up what is not timed, and gives the work.

    ``module`` has to be installed for it; ``values`` gives what the work computed as numbers in our order.
    """

    name: str
    prepare: Callable[[], Work]
    bar: float | None = None
    module: str | None = None
    values: Callable[[Any], Any] | None = None
    against: Literal["peer", "ourselves"] = "peer"


def contest(
    name: str,
    work: Work,
    peers: Sequence[Peer],
    *,
    turns: int = 5,
    values: Callable[[Any], Any] | None = None,
    tolerance: float = 1e-6,
) -> Iterator[Row | Missing]:
    """A row for each peer; where both it and we have ``values``, their largest difference is in it."""
    yield from (missing(peer.module) for peer in peers if peer.module and not is_installed(peer.module))
    present = [peer for peer in peers if peer.module is None or is_installed(peer.module)]
    if not present:
        return
    works = [peer.prepare() for peer in present]
    mine = work()  # the first run compiles what there is to compile, here and at the peers; it is not counted
    differences = []
    for peer, theirs in zip(present, works, strict=True):
        other = theirs()
        both = values is not None and peer.values is not None
        differences.append(_difference(values(mine), peer.values(other)) if both else None)  # type: ignore[misc]
    times = best_of(dict(enumerate([work, *works])), turns, at_least=LONG_ENOUGH)
    for place, (peer, difference) in enumerate(zip(present, differences, strict=True), start=1):
        yield Row(
            name, times[0], peer.name, times[place], peer.bar, against=peer.against, difference=difference,
            tolerance=tolerance if difference is not None else 0.0,
        )  # fmt: skip


def _difference(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    return float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else float("inf")
