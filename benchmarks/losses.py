"""Losses, value and gradient: against torch per query and padded, rax, keras-rs, and each other.

Everything runs on one thread: on a shared machine, threads that wait for each other would measure the load of other
processes. Queries are independent, so more threads would help us no less than the peers.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.comparison import Peer, compare_with_peers
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.records import Finding, Growth, Row
from benchmarks.timing import MIN_SECONDS, Work, best_of
from rankbound.losses import (
    APLoss,
    KendallTauLoss,
    LambdaRankLoss,
    ListMLELoss,
    NDCGLoss,
    NRBPLoss,
    PrecisionLoss,
    RankingLoss,
    RankNetLoss,
    RRLoss,
    set_threads,
    vectorized,
    warm_up,
)

__all__ = ["CURVES", "HALF", "INPUTS", "Lists", "LiveTensors", "equal_lists", "one_thread", "ours", "run"]

INPUTS = (
    "generated: 412 users like those of MovieLens (22 to 980 relevant items, 1 or 3 others for each), lists of equal "
    "length with a tenth relevant, graded lists with a fifth relevant; loss and gradient, float32, one thread"
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
    **{f"LambdaRankLoss({m!r})": LambdaRankLoss(m) for m in ("nDCG", "AP", "RR", "nRBP(p=0.95)", "P@10", "ERR")},
}
_TOLERANCE = 2e-4  # of float32
_FEW = slice(2, None, 80)  # users of a quick run


# ---- lists -----------------------------------------------------------------------------------------------------------


class Lists(NamedTuple):
    """Flat scores that require a gradient, labels, and offsets."""

    scores: Any
    labels: Any
    offsets: Any


def users(negatives: int, every: slice = slice(None)) -> Lists:
    """Return lists like those of MovieLens users: few relevant items in most, up to 980; the first is the longest."""
    rng = np.random.default_rng(0)
    relevant = np.clip(np.exp(rng.normal(4.15, 0.95, 412)).astype(int), 22, 980)
    relevant[:2] = 980, 22
    relevant = relevant[every]
    return lists(relevant, relevant * (1 + negatives))


def lists(relevant: Any, sizes: Any, top: int = 1) -> Lists:
    """Return lists of these sizes; ``relevant`` items of each have labels from 1 to ``top``, the others 0."""
    rng = np.random.default_rng(1)
    labels = []
    for hits, size in zip(relevant, sizes, strict=True):
        labels.append(np.zeros(size, np.int64))
        labels[-1][rng.permutation(size)[:hits]] = rng.integers(1, top + 1, hits)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    scores = torch.tensor(rng.normal(size=offsets[-1]), dtype=torch.float32, requires_grad=True)
    return Lists(scores, torch.tensor(np.concatenate(labels)), torch.tensor(offsets))


def equal_lists(queries: int, size: int, relevant: int, top: int = 1) -> Lists:
    """Return lists of one size."""
    return lists(np.full(queries, relevant), np.full(queries, size), top)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run our kernels and those of torch on one thread."""
    before = torch.get_num_threads()
    warm_up("nDCG")
    torch.set_num_threads(1)
    set_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        set_threads(None)


# ---- implementations -------------------------------------------------------------------------------------------------


def ours(made: Lists, loss: RankingLoss | None = None) -> Work:
    """Prepare one of our losses, smooth nDCG by default."""
    loss = NDCGLoss() if loss is None else loss

    def work() -> float:
        made.scores.grad = None
        value = loss(*made)
        value.backward()
        return float(value.detach())

    return work


def in_torch_operations(made: Lists) -> Work:
    """Prepare smooth nDCG in torch operations, as it is computed on other devices."""
    work = ours(made)

    def forced() -> float:
        with vectorized():
            return float(work())

    return forced


def smooth_ndcg_of_table(scores: Any, labels: Any, where: Any) -> Any:
    """Compute smooth nDCG of the rows of a padded table from full pair matrices, the obvious way in torch."""
    size = scores.shape[1]
    pairs = torch.sigmoid(scores[:, None, :] - scores[:, :, None]) * where[:, None, :]
    ranks = 0.5 + pairs.sum(2)
    gains = (torch.exp2(labels.float()) - 1) * where
    discounts = 1 / torch.log2(torch.arange(2, size + 2))
    ideal = (torch.sort(gains, descending=True, dim=1).values * discounts).sum(1)
    return -(gains / torch.log2(1 + ranks)).sum(1) / ideal


def torch_per_query(made: Lists) -> Work:
    """Prepare a loop over queries with a pair matrix each."""
    scores, labels, offsets = made
    spans = list(itertools.pairwise(offsets.tolist()))

    def work() -> float:
        scores.grad = torch.empty_like(scores)
        total = 0.0
        for lo, hi in spans:  # backward per query: the pair matrices of all queries would take gigabytes
            row = scores.detach()[None, lo:hi].requires_grad_()
            loss = smooth_ndcg_of_table(row, labels[None, lo:hi], torch.ones(1, hi - lo)).sum() / len(spans)
            loss.backward()
            scores.grad[lo:hi] = row.grad[0]
            total += float(loss.detach())
        return total

    return work


def torch_padded(made: Lists, chunk: int = 4) -> Work:
    """Prepare lists padded to the longest, in chunks of queries because all together do not fit into memory."""
    scores, labels, offsets = made
    sizes = torch.diff(offsets)
    mask = torch.arange(int(sizes.max()))[None, :] < sizes[:, None]
    table = torch.zeros(mask.shape, dtype=torch.int64)
    table[mask] = labels

    def work() -> float:
        padded = torch.zeros(mask.shape)
        padded[mask] = scores.detach()
        padded.requires_grad_()
        total = 0.0
        for lo in range(0, len(mask), chunk):
            rows = slice(lo, lo + chunk)
            loss = smooth_ndcg_of_table(padded[rows], table[rows], mask[rows].float()).sum() / len(mask)
            loss.backward()
            total += float(loss.detach())
        assert padded.grad is not None
        scores.grad = padded.grad[mask]
        return total

    return work


def rax_ndcg(made: Lists) -> Work:
    """Prepare rax's smooth nDCG of lists of one size, compiled."""
    import jax
    import rax

    loss = rax.approx_t12n(rax.ndcg_metric)
    step = jax.jit(jax.value_and_grad(lambda s, y: loss(s, y)))
    scores, labels = (_table(flat, made).detach().numpy().astype(np.float32) for flat in (made.scores, made.labels))

    def work() -> float:
        value, gradient = step(scores, labels)
        gradient.block_until_ready()
        return float(value)

    return work


def keras_loss(name: str, made: Lists) -> Work:
    """Prepare a loss of keras-rs on torch, for lists of one size."""
    import keras_rs

    loss = getattr(keras_rs.losses, name)()
    labels = _table(made.labels, made).float()

    def work() -> float:
        made.scores.grad = None
        value = loss(labels, _table(made.scores, made))
        value.backward()
        return float(value.detach())

    return work


def _table(flat: Any, made: Lists) -> Any:
    return flat.reshape(len(made.offsets) - 1, -1)


class LiveTensors(TorchDispatchMode):  # type: ignore[misc]  # torch ships no types we follow
    """Inside the block: the largest number of bytes, ``peak``, that tensors which were made there held at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.peak = 0, 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count the memory of its results."""
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and (key := tensor.untyped_storage()._cdata) not in self._sizes:
                self._sizes[key] = tensor.untyped_storage().nbytes()
                self.live += self._sizes[key]
                self.peak = max(self.peak, self.live)
                weakref.finalize(tensor.untyped_storage(), self._release, key)
        return result

    def _release(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)


def megabytes_of(work: Work) -> float:
    """Peak memory of the tensors of a call; the first call, which may prepare something, is not counted."""
    work()
    with LiveTensors() as tensors:
        work()
    return float(tensors.peak / 2**20)


# ---- rows ------------------------------------------------------------------------------------------------------------


def run(quick: bool) -> Iterator[Finding]:
    """Yield rows of smooth nDCG, other losses, long lists and the first loss, then the growth curves."""
    with one_thread():
        yield from _smooth_ndcg(quick)
        yield from _other_losses(quick)
        yield from _measure_losses(users(1, _FEW if quick else slice(None)), quick)
        yield from _long_lists(quick)
        yield from _torch_operations(quick)
        if not quick:
            yield _first_loss()
        for finding in growth_of(__name__, CURVES, quick):
            yield finding
            if isinstance(finding, Growth) and not quick:
                yield from _memory_rows(finding)


def _against(
    name: str,
    made: Lists,
    peer: str,
    theirs: Callable[[Lists], Work],
    bar: float,
    turns: int,
    module: str | None = None,
) -> Iterator[Finding]:
    """Compare smooth nDCG with a peer that computes the same values."""
    peers = [Peer(peer, partial(theirs, made), bar, module, float)]
    yield from compare_with_peers(name, ours(made), peers, turns=turns, values=float, tolerance=_TOLERANCE)


def _smooth_ndcg(quick: bool) -> Iterator[Finding]:
    each = "torch N x N per query"
    for negatives in (1, 3):
        made = users(negatives, _FEW if quick else slice(None))
        name = f"NDCGLoss, {len(made.offsets) - 1} users, {negatives} others for each relevant item"
        yield from _against(name, made, each, torch_per_query, 15.0, 1 if quick else 4)
    made = users(1, _FEW if quick else slice(None, None, 8))  # 412 tables of 1,960 x 1,960 take a minute
    title, turns = f"NDCGLoss, {len(made.offsets) - 1} users", 1 if quick else 2
    yield from _against(title, made, "torch padded", torch_padded, 60.0, turns)
    queries, size = (5, 100) if quick else (1_000, 1_000)
    made = equal_lists(queries, size, size // 10)
    yield from _against(f"NDCGLoss, {queries:,} x {size:,}", made, each, torch_per_query, 15.0, 1 if quick else 3)
    # a small batch, whose time is that of the calls rather than of the kernels, and three of about 31,000 items
    shapes = ((8, 125, 1.0), (256, 120, 12.0), (64, 500, 10.0), (16, 2_000, 10.0))
    for queries, size, bar in ((4, 20, 1.0),) if quick else shapes:
        made = equal_lists(queries, size, size // 5, top=4)
        name = f"NDCGLoss, {queries} graded lists of {size:,}"
        yield from _against(name, made, "rax", rax_ndcg, bar, 1 if quick else 8, "rax")


def _other_losses(quick: bool) -> Iterator[Finding]:
    """Compare times with keras-rs, which scales its losses differently, so that values are not comparable."""
    size = 50 if quick else 500
    made = equal_lists(16, size, size // 5, top=4)
    for loss, name in ((RankNetLoss(), "PairwiseLogisticLoss"), (ListMLELoss(), "ListMLELoss")):
        peer = Peer(f"keras-rs {name}", partial(keras_loss, name, made), module="keras_rs")
        title = f"{type(loss).__name__}, 16 graded lists of {size}"
        yield from compare_with_peers(title, ours(made, loss), [peer], turns=1 if quick else 8)


def _measure_losses(made: Lists, quick: bool) -> Iterator[Finding]:
    """Check that every other measure loss takes at most three times as long as NDCGLoss."""
    chosen = dict(list(MEASURE_LOSSES.items())[:1]) if quick else MEASURE_LOSSES  # some would load a further kernel
    works = {name: ours(made, loss) for name, loss in {"": NDCGLoss(), **chosen}.items()}
    times = best_of(works, 1 if quick else 6, min_seconds=MIN_SECONDS)
    for name in chosen:
        title = f"{name}, {len(made.offsets) - 1} users"
        yield Row(title, times[name], "NDCGLoss", times[""], 1 / 3, against="ourselves")


def _long_lists(quick: bool) -> Iterator[Finding]:
    items, relevant = (10_000, 10) if quick else (100_000, 100)
    time = best_of({"": ours(equal_lists(1, items, relevant))}, 1 if quick else 5)[""]
    name = f"NDCGLoss, one list of {items:,} items, {relevant} relevant"
    yield Row(name, time, "1 second", 1.0, 1.0, against="limit")
    items = 3_000 if quick else 20_000
    made = equal_lists(1, items, items // 2)
    peer = Peer("direct sums", partial(in_torch_operations, made), 1.0, values=float, against="ourselves")
    name = f"NDCGLoss, one list of {items:,} items, half relevant, by series"
    yield from compare_with_peers(name, ours(made), [peer], turns=1 if quick else 4, values=float, tolerance=1e-5)


def _torch_operations(quick: bool) -> Iterator[Finding]:
    """Compare the path of other devices, on the CPU, with a loop over queries and with padded lists.

    All users together do not fit into a padded table, so that some of them stand for all there.
    """
    some = users(1, _FEW if quick else slice(None, None, 8))
    everyone = some if quick else users(1)
    graded = equal_lists(4, 20, 4, top=4) if quick else equal_lists(256, 120, 24, top=4)

    def loop(made: Lists) -> Peer:
        return Peer("loop over queries", partial(torch_per_query, made), 10.0, values=float, against="ourselves")

    def padded(made: Lists) -> Peer:
        return Peer("torch padded", partial(torch_padded, made), 1.0, values=float)

    for made, name, forms in (
        (graded, "graded lists", (loop, padded)), (everyone, "users", (loop,)), (some, "of the users", (padded,)),
    ):  # fmt: skip
        title, peers = f"NDCGLoss in torch operations, {len(made.offsets) - 1} {name}", [form(made) for form in forms]
        work, turns = in_torch_operations(made), 1 if quick else 6
        yield from compare_with_peers(title, work, peers, turns=turns, values=float, tolerance=_TOLERANCE)
    if not quick:
        ours_, theirs = (megabytes_of(make(some)) for make in (in_torch_operations, torch_padded))
        yield Row("NDCGLoss in torch operations, users, memory", ours_, "torch padded", theirs, 4.0, "MB")


_FIRST = """
import sys, time, torch
from rankbound.losses import get_loss
for _ in range(2):
    began = time.perf_counter()
    loss = get_loss(sys.argv[1])
    loss(torch.tensor([1.0, 0.0, 0.5], requires_grad=True), [0, 1, 0], [0, 3]).sum().backward()
    print(time.perf_counter() - began)
"""


def _first_loss(loss: str = "nDCG") -> Row:
    """Time the first loss of a fresh process, and the second."""
    command = [sys.executable, "-c", _FIRST, loss]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    first, second = map(float, done.stdout.split())
    return Row("second loss of a process", second, "first loss", first, against="ourselves")


# ---- growth ----------------------------------------------------------------------------------------------------------

_IMPLEMENTATIONS = {
    OURS: Implementation(ours),
    "torch N x N": Implementation(torch_per_query),
    "rax": Implementation(rax_ndcg, module="rax"),
}
_LONG, HALF = "NDCGLoss, one list, 100 relevant", "NDCGLoss, one list, half relevant"
CURVES = (
    Curve(
        "NDCGLoss, 8 lists, a fifth relevant", "items per list", (125, 250, 500, 1_000, 2_000), (20, 40, 80),
        lambda size, _: equal_lists(8, size, size // 5, top=4), _IMPLEMENTATIONS,
    ),
    Curve(
        "NDCGLoss, lists of 100, 20 relevant", "lists", (50, 100, 200, 400, 800, 1_600), (2, 4, 8),
        lambda size, _: equal_lists(size, 100, 20, top=4), _IMPLEMENTATIONS,
    ),
    Curve(
        "NDCGLoss, 8 lists of 1,000", "relevant items", (25, 50, 100, 200, 400, 800), (10, 20),
        lambda size, _: equal_lists(8, 1_000, size, top=4), {OURS: Implementation(ours)},
    ),
    Curve(
        _LONG, "items", (10_000, 31_623, 100_000, 316_228, 1_000_000), (1_000, 3_162),
        lambda size, _: equal_lists(1, size, 100), {OURS: Implementation(ours)},
    ),
    Curve(
        HALF, "items", (10_000, 31_623, 100_000, 316_228, 1_000_000), (1_000, 3_162),
        lambda size, _: equal_lists(1, size, size // 2), {OURS: Implementation(ours)},
    ),
)  # fmt: skip


def _memory_rows(growth: Growth) -> Iterator[Row]:
    """Check the memory of long lists: below 100 MB for 100,000 items, and linear in the number of items."""
    if growth.curve == _LONG and growth.megabytes is not None:
        small, large = growth.megabytes[growth.sizes.index(100_000)], growth.megabytes[-1]
        yield Row("NDCGLoss, memory of 100,000 items", small, "100 MB", 100.0, 1.0, "MB", "limit")
        yield Row("NDCGLoss, memory of 1,000,000 items", large, "11 x that", 11 * small, 1.0, "MB", "limit")
