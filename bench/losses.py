"""Losses, value and gradient: against plain torch per query and padded, rax, keras-rs, and each other.

Every figure of a peer is for the same lists, and where it computes the same loss the values are compared first. Lists
are generated: MovieLens-shaped (412 users, 22 to 980 relevant items, 1 or 3 others for each), 1,000 x 1,000, graded
lists of 120, 500 and 2,000 items, and one list of 100,000.

Everything runs on one thread: where other processes want the cores too, threads that wait for each other measure the
neighbours. Queries are independent, so that more threads help us no less than the peers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np
import torch

from bench.timing import Row, best_of, row
from rankbound.losses import (
    APLoss,
    KendallTauLoss,
    LambdaLoss,
    ListMLELoss,
    NDCGLoss,
    NRBPLoss,
    PrecisionLoss,
    RankingLoss,
    RankNetLoss,
    RRLoss,
    long_lists,
    set_threads,
)

MEASURE_LOSSES = {
    "APLoss": APLoss(),
    "APLoss(form='ranks')": APLoss(form="ranks"),
    "RRLoss": RRLoss(),
    "NRBPLoss": NRBPLoss(),
    "NRBPLoss(p=0.95)": NRBPLoss(p=0.95),
    "PrecisionLoss(10)": PrecisionLoss(10),
    "NDCGLoss(10)": NDCGLoss(10),
    "KendallTauLoss": KendallTauLoss(),
    **{f"LambdaLoss({m!r})": LambdaLoss(m) for m in ("nDCG", "AP", "RR", "nRBP(p=0.95)", "P@10", "ERR")},
}


# ---- lists -----------------------------------------------------------------------------------------------------------


def users(negatives: int, share: int = 1) -> tuple[Any, Any, Any]:
    """MovieLens-shaped: many users with few relevant items, a few with up to 980."""
    rng = np.random.default_rng(0)
    relevant = np.clip(np.exp(rng.normal(4.15, 0.95, 412)).astype(int), 22, 980)
    relevant[:2] = 980, 22
    relevant = relevant[::share]
    return lists(relevant, relevant * (1 + negatives), 1, rng)


def lists(relevant: Any, sizes: Any, top: int, rng: Any) -> tuple[Any, Any, Any]:
    """Scores, labels 0..top, offsets."""
    labels = []
    for hits, size in zip(relevant, sizes, strict=True):
        one = np.zeros(size, np.int64)
        one[rng.permutation(size)[:hits]] = rng.integers(1, top + 1, hits)
        labels.append(one)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    scores = torch.tensor(rng.normal(size=offsets[-1]), dtype=torch.float32, requires_grad=True)
    return scores, torch.tensor(np.concatenate(labels)), torch.tensor(offsets)


# ---- contestants -----------------------------------------------------------------------------------------------------


def ours(loss: RankingLoss, scores: Any, labels: Any, offsets: Any) -> Callable[[], float]:
    def run() -> float:
        scores.grad = None
        value = loss(scores, labels, offsets)
        value.backward()
        return float(value.detach())

    return run


def smooth_ndcg_of_table(scores: Any, labels: Any, where: Any) -> Any:
    """Smooth nDCG of rows of a padded table by full pair matrices: what one writes first in torch."""
    size = scores.shape[1]
    pairs = torch.sigmoid(scores[:, None, :] - scores[:, :, None]) * where[:, None, :]
    ranks = 0.5 + pairs.sum(2)
    gains = (torch.exp2(labels.float()) - 1) * where
    discounts = 1 / torch.log2(torch.arange(2, size + 2))
    ideal = (torch.sort(gains, descending=True, dim=1).values * discounts).sum(1)
    return -(gains / torch.log2(1 + ranks)).sum(1) / ideal


def torch_per_query(scores: Any, labels: Any, offsets: Any) -> Callable[[], float]:
    bounds = list(zip(offsets.tolist(), offsets.tolist()[1:], strict=False))

    def run() -> float:
        scores.grad = torch.empty_like(scores)
        total = 0.0
        for lo, hi in bounds:  # backward at once: the pair matrices of all queries together would take gigabytes
            one = scores.detach()[None, lo:hi].requires_grad_()
            loss = smooth_ndcg_of_table(one, labels[None, lo:hi], torch.ones(1, hi - lo)).sum() / len(bounds)
            loss.backward()
            scores.grad[lo:hi] = one.grad[0]
            total += float(loss.detach())
        return total

    return run


def torch_padded(scores: Any, labels: Any, offsets: Any, chunk: int = 4) -> Callable[[], float]:
    """All lists padded to the longest; in chunks of queries, because the whole does not fit memory."""
    sizes = torch.diff(offsets)
    mask = torch.arange(int(sizes.max()))[None, :] < sizes[:, None]
    table = torch.zeros(mask.shape, dtype=torch.int64)
    table[mask] = labels

    def run() -> float:
        padded = torch.zeros(mask.shape)
        padded[mask] = scores.detach()
        padded.requires_grad_()
        total = 0.0
        for lo in range(0, len(mask), chunk):
            part = slice(lo, lo + chunk)
            loss = smooth_ndcg_of_table(padded[part], table[part], mask[part].float()).sum() / len(mask)
            loss.backward()
            total += float(loss.detach())
        scores.grad = padded.grad[mask]
        return total

    return run


def rax_ndcg(scores: Any, labels: Any, size: int) -> Callable[[], float]:
    import jax
    import rax

    loss = rax.approx_t12n(rax.ndcg_metric)
    step = jax.jit(jax.value_and_grad(lambda s, y: loss(s, y)))
    s, y = (np.asarray(x.detach()).reshape(-1, size).astype(np.float32) for x in (scores, labels))

    def run() -> float:
        value, gradient = step(s, y)
        gradient.block_until_ready()
        return float(value)

    return run


def keras_loss(name: str, scores: Any, labels: Any, size: int) -> Callable[[], float]:
    import keras_rs

    loss = getattr(keras_rs.losses, name)()
    table = labels.reshape(-1, size).float()

    def run() -> float:
        scores.grad = None
        value = loss(table, scores.reshape(-1, size))
        value.backward()
        return float(value.detach())

    return run


# ---- the table -------------------------------------------------------------------------------------------------------


Peers = dict[str, tuple[Callable[[], float], float | None]]  # name -> what it runs, and the ratio asked for


def against(name: str, case: Any, loss: RankingLoss, peers: Peers, turns: int, same: bool = True) -> list[Row]:
    """Time one loss and its peers, taking turns; where they compute the same, check that they do."""
    mine = ours(loss, *case)
    if same:
        for peer, (other, _) in peers.items():
            assert abs(mine() - other()) < 2e-4, f"{peer} computes another loss on {name}"
    times = best_of({"": mine, **{peer: other for peer, (other, _) in peers.items()}}, turns)
    return [row(name, times[""], peer, times[peer], bar) for peer, (_, bar) in peers.items()]


def run() -> list[Row]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    set_threads(1)
    try:
        return list(rows())
    finally:
        torch.set_num_threads(before)
        set_threads(None)


def rows() -> Iterator[Row]:
    """The table, line by line as it comes."""
    plain, rng = NDCGLoss(), np.random.default_rng(1)
    for negatives in (1, 3):
        case = users(negatives)
        peers: Peers = {"torch N x N per query": (torch_per_query(*case), 15.0)}
        yield from against(f"NDCGLoss, 412 users, {negatives} others each", case, plain, peers, 4)
    case = users(1, share=8)  # 412 tables of 1,960 x 1,960 take a minute
    peers = {"torch padded": (torch_padded(*case), 60.0)}
    yield from against("NDCGLoss, an eighth of the users, 1 other each", case, plain, peers, 2)
    case = lists(np.full(1000, 100), np.full(1000, 1000), 1, rng)
    peers = {"torch N x N per query": (torch_per_query(*case), 15.0)}
    yield from against("NDCGLoss, 1,000 x 1,000", case, plain, peers, 3)
    for queries, size in ((256, 120), (64, 500), (16, 2000)):  # about 31,000 items each
        case = lists(np.full(queries, size // 5), np.full(queries, size), 4, rng)
        peers = {"rax": (rax_ndcg(*case[:2], size), 10.0)}
        yield from against(f"NDCGLoss, {queries} graded lists of {size}", case, plain, peers, 8)
    case = lists(np.full(16, 100), np.full(16, 500), 4, rng)
    for loss, name in ((RankNetLoss(), "PairwiseLogisticLoss"), (ListMLELoss(), "ListMLELoss")):
        peers = {f"keras-rs {name}": (keras_loss(name, *case[:2], 500), None)}
        yield from against(f"{type(loss).__name__}, 16 graded lists of 500", case, loss, peers, 8, same=False)
    yield from others_against_ndcg(users(1))
    yield long_list()
    yield series_against_direct()
    yield million_items()
    yield from growth()
    yield first_loss()


def others_against_ndcg(case: Any) -> list[Row]:
    """Every other measure loss takes at most three times as long as NDCGLoss."""
    times = best_of({name: ours(loss, *case) for name, loss in {"": NDCGLoss(), **MEASURE_LOSSES}.items()}, 6)
    return [row(f"{name}, 412 users", times[name], "NDCGLoss", times[""], 1 / 3) for name in MEASURE_LOSSES]


def long_list() -> Row:
    """100,000 items, 100 relevant; the bar is one second."""
    case = lists([100], [100_000], 1, np.random.default_rng(2))
    time = best_of({"": ours(NDCGLoss(), *case)}, 5)[""]
    return row("NDCGLoss, one list of 100,000 items, 100 relevant", time, "1 second", 1.0, 1.0)


def series_against_direct() -> Row:
    """20,000 items, half of them relevant: sums from series, and the same sums one by one."""
    case = lists([10_000], [20_000], 1, np.random.default_rng(3))

    def direct() -> float:
        limit, long_lists.LONG = long_lists.LONG, 2**62
        try:
            return ours(NDCGLoss(), *case)()
        finally:
            long_lists.LONG = limit

    series = ours(NDCGLoss(), *case)
    assert abs(series() - direct()) < 1e-5
    times = best_of({"": series, "direct": direct}, 4)
    return row("NDCGLoss, 20,000 items, half relevant, by series", times[""], "direct sums", times["direct"], 1.0)


def million_items() -> Row:
    """A million items, half of them relevant: 5e11 pairs; the bar is one second."""
    case = lists([500_000], [1_000_000], 1, np.random.default_rng(4))
    time = best_of({"": ours(NDCGLoss(), *case)}, 4)[""]
    return row("NDCGLoss, 1,000,000 items, half relevant", time, "1 second", 1.0, 1.0)


MEMORY = """
import sys, numpy as np, torch
from pathlib import Path
from rankbound.losses import NDCGLoss
def memory(what):
    return int(Path("/proc/self/status").read_text().split(what)[1].split()[0])
n = int(sys.argv[1])
labels = np.zeros(n, np.int64); labels[:100] = 1
scores = torch.linspace(0, 1, n, requires_grad=True)
NDCGLoss()(torch.linspace(0, 1, 200, requires_grad=True), labels[:200], [0, 200]).backward()
Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
before = memory("VmRSS:")
NDCGLoss()(scores, labels, [0, n]).backward()
print(memory("VmHWM:") - before)
"""


def peak_megabytes(items: int) -> float:
    """By how much one loss, forward and backward, raises the memory of a fresh process (Linux only)."""
    done = subprocess.run([sys.executable, "-c", MEMORY, str(items)], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def growth() -> Iterator[Row]:
    """Memory, in megabytes where other rows have seconds: below 100, and linear in the items."""
    small, large = peak_megabytes(100_000), peak_megabytes(1_000_000)
    yield row("memory of 100,000 items [MB]", small, "100 MB", 100.0, 1.0)
    yield row("memory of 1,000,000 items [MB]", large, "11 x that of 100,000", 11 * small, 1.0)


FIRST = """
import time, torch
import rankbound.losses as losses
began = time.perf_counter()
losses.NDCGLoss()(torch.tensor([1.0, 0.0]), [0, 1], [0, 2])
print(time.perf_counter() - began)
"""


def first_loss() -> Row:
    """Time to the first loss of a process that compiles, and of the next one, which loads."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", FIRST], capture_output=True, text=True, check=True,
                env=dict(os.environ, NUMBA_CACHE_DIR=folder),
            )  # fmt: skip
            times.append(float(done.stdout))
    return row("first loss of a second process", times[1], "of the first, which compiles", times[0], 5.0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    set_threads(1)
    for line in rows():
        bar = "" if line["bar"] is None else f"{line['bar']:.2f}"
        print(
            f"{line['name']:52s} {line['ours_seconds']:9.5f} {line['peer']:30s} {line['peer_seconds']:9.5f}"
            f" {line['ratio']:8.2f} {bar}",
            flush=True,
        )
