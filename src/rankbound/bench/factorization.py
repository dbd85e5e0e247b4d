"""One epoch of MatrixFactorization against the same model in torch, padded and flat.

Real data (RANKBOUND_DATA) where they are here, otherwise generated users with as many positives and items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rankbound.bench.contest import Peer, contest
from rankbound.bench.growth import OURS, Curve, Way, growth_of
from rankbound.bench.real_data import is_here
from rankbound.bench.records import Finding, Row
from rankbound.bench.timing import LONG_ENOUGH, Work, best_of
from rankbound.data import Interactions, load_fold, load_set, prepare_movielens, sample_lists, user_folds
from rankbound.losses import get_loss
from rankbound.models.factorization import MatrixFactorization
from rankbound.models.factorization_kernel import Batch
from rankbound.models.factorization_state import Pairs, State

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = (
    "ml-latest-small and CiteULike-a where they are here, otherwise generated users like theirs; as many negatives as "
    "positives, 32 factors, Adam"
)
RATE, FACTORS = 0.001, 32


# ---- data ------------------------------------------------------------------------------------------------------------

Split = tuple[str, Interactions, Interactions]  # name, training and test part


def generated(users: int, items: int, typical: float, spread: float) -> Interactions:
    """Users with at least 25 positives each, long-tailed in activity and in popularity."""
    rng = np.random.default_rng(0)
    counts = np.clip(rng.lognormal(np.log(typical), spread, users), 25, items // 4).astype(np.int64)
    user = np.repeat(np.arange(users), counts)
    item = (items * rng.random(len(user)) ** 2).astype(np.int64)
    return Interactions.from_columns(user, item)


def _split(name: str, table: Interactions) -> Split:
    fold = user_folds(table, 5, seed=0)
    return name, table.rows(fold != 0), table.rows(fold == 0)


def movielens(quick: bool) -> Split:
    """The users of MovieLens, or such as they are."""
    if quick:
        return _split("generated", generated(20, 200, 30, 0.5))
    if is_here("ml-latest-small"):
        return _split("ml-latest-small", prepare_movielens(load_set("ml-latest-small")))
    return _split("generated like ml-latest-small", generated(412, 9724, 70, 0.9))


def citeulike(quick: bool) -> Split:
    """The users of CiteULike, or such as they are."""
    if quick:
        return _split("generated", generated(30, 300, 30, 0.5))
    if is_here("citeulike-a"):
        fold = load_fold("citeulike-a", 0)
        return "CiteULike-a", fold.train, fold.test
    return _split("generated like CiteULike-a", generated(2465, 16702, 50, 0.6))


def pairs_of(train: Interactions, test: Interactions, ratio: float = 1) -> Pairs:
    """Positives with so many negatives for each."""
    lists, _ = sample_lists(train, test, train_ratio=ratio, test_ratio=1, protocol="published")
    return Pairs.of(np.repeat(lists.users, lists.lists.sizes), lists.items, lists.lists.labels)


# ---- the contestants -------------------------------------------------------------------------------------------------


class Ours:
    """Epochs of the estimator, without evaluation."""

    def __init__(self, pairs: Pairs, loss: str, batch_size: int | None) -> None:
        self.model = MatrixFactorization(FACTORS, loss, learning_rate=RATE, batch_size=batch_size)
        self.loss = get_loss(loss)
        self.batches = pairs.batches(self.loss, batch_size, self.model._random(0))
        self.state = State.new(pairs, FACTORS, self.model.init, self.model._random(1))

    def __call__(self) -> float:
        """One epoch; gives the loss before it."""
        self.model._epoch(self.loss, self.batches, None, self.state)
        return float(self.state.history[-1]["loss"])


class Torch:
    """Embeddings from the same start, dense Adam, the same batches."""

    def __init__(self, ours: Ours) -> None:
        vectors = (ours.state.users.values, ours.state.items.values)
        tables = [torch.nn.Embedding.from_pretrained(torch.tensor(one), freeze=False) for one in vectors]
        self.users, self.items = tables
        self.optimizer = torch.optim.Adam([table.weight for table in tables], lr=RATE)
        self.batches = [self.prepared(batch) for batch in ours.batches]

    def prepared(self, batch: Batch) -> Any:
        """What of a batch does not change from epoch to epoch."""
        raise NotImplementedError

    def cost(self, batch: Any) -> Any:
        """The summed loss of a batch."""
        raise NotImplementedError

    def __call__(self) -> float:
        """One epoch; gives the loss before it, if there is one batch."""
        total = 0.0
        for batch in self.batches:
            self.optimizer.zero_grad()
            cost = self.cost(batch)
            cost.backward()
            self.optimizer.step()
            total += float(cost.detach())
        return total


class Flat(Torch):
    """Embeddings looked up row by row; rankbound's fused loss on the flat scores."""

    def __init__(self, ours: Ours) -> None:
        self.loss = get_loss(ours.model.loss, reduction="sum")
        super().__init__(ours)

    def prepared(self, batch: Batch) -> Any:
        """Codes of users and items of each row, labels, offsets."""
        codes = (torch.as_tensor(rows.astype(np.int64)) for rows in (batch.row_users, batch.row_items))
        return (*codes, batch.plan.labels, batch.plan.offsets)

    def cost(self, batch: Any) -> Any:
        """Scores as dot products of rows."""
        users, items, labels, offsets = batch
        return self.loss((self.users(users) * self.items(items)).sum(1), labels, offsets)


class Padded(Torch):
    """Users x longest list of the batch; smooth nDCG by all differences of scores, as papers' code has it."""

    def prepared(self, batch: Batch) -> Any:
        """Tables of items and labels, where they hold something, and the ideal DCG."""
        sizes = np.diff(batch.starts)
        mask = np.arange(sizes.max()) < sizes[:, None]

        def square(values: NDArray[Any]) -> Any:
            table = np.zeros(mask.shape, values.dtype)
            table[mask] = values
            return torch.as_tensor(table)

        labels = square(batch.plan.labels.astype(np.float32))
        ideal = (torch.sort(labels, descending=True).values / torch.log2(torch.arange(mask.shape[1]) + 2.0)).sum(1)
        items = square(batch.row_items.astype(np.int64))
        return torch.as_tensor(batch.users.astype(np.int64)), items, labels, torch.as_tensor(mask), ideal

    def cost(self, batch: Any) -> Any:
        """Smooth nDCG of the padded table."""
        users, items, labels, mask, ideal = batch
        scores = (self.users(users)[:, None, :] * self.items(items)).sum(2)
        above = torch.sigmoid(scores[:, None, :] - scores[:, :, None]) * mask[:, None, :]
        ranks = above.sum(2) + 0.5  # an item stands half above itself
        return -((labels / torch.log2(1 + ranks)).sum(1) / ideal).sum()


# ---- rows ------------------------------------------------------------------------------------------------------------


def run(quick: bool) -> Iterator[Finding]:
    """Rows of two data sets, of four times the pairs, and the growth with the users."""
    turns = 1 if quick else 5
    name, train, test = movielens(quick)
    batched = Ours(pairs_of(train, test), "nDCG", 32)
    title = f"MF epoch, {name}, nDCG, batches of 32"
    yield from _against(title, batched, Padded, "torch padded", 40.0, turns)
    yield _four_times(name, train, test, 1 if quick else 15)
    name, train, test = citeulike(quick)
    ours = Ours(pairs_of(train, test), "nRBP", None)
    yield from _against(f"MF epoch, {name}, nRBP", ours, Flat, "torch flat, fused loss", 4.0, turns)
    yield from growth_of(__name__, CURVES, quick)


def _against(
    name: str, ours: Ours, theirs: Callable[[Ours], Work], peer: str, bar: float, turns: int
) -> Iterator[Finding]:
    """Epochs of both from the same vectors, which must see the same loss first.

    With several batches the order differs, and Adam carries other vectors along: nothing to compare then.
    """
    if len(ours.batches) > 1:
        yield from contest(name, ours, [Peer(peer, partial(theirs, ours), bar)], turns=turns)
    else:
        per_user = len(ours.batches[0].users)
        peers = [Peer(peer, partial(theirs, ours), bar, values=lambda loss: loss / per_user)]
        yield from contest(name, ours, peers, turns=turns, values=lambda loss: loss / per_user, tolerance=1e-4)


def _four_times(name: str, train: Interactions, test: Interactions, turns: int) -> Row:
    """Four times the negatives are four times the pairs of the nRBP loss; a tenth more time than that is allowed."""
    works = {ratio: Ours(pairs_of(train, test, ratio), "nRBP", None) for ratio in (1, 4)}
    times = best_of(works, turns, at_least=LONG_ENOUGH)
    title, peer = f"MF epoch, {name}, nRBP, 4 x the pairs", "4.4 x the pairs once"
    return Row(title, times[4], peer, 4.4 * times[1], 1.0, against="ourselves")


# ---- growth ----------------------------------------------------------------------------------------------------------


def _made(users: int, loss: str, batch_size: int | None) -> Ours:
    return Ours(pairs_of(*_split("", generated(users, 4_000, 50, 0.6))[1:]), loss, batch_size)


CURVES = (
    Curve(
        "MF epoch, nDCG, about 100 pairs each, batches of 32", "users", (32, 64, 128, 256, 512), (4, 8),
        lambda size, _: _made(size, "nDCG", 32), {OURS: Way(lambda made: made), "torch padded": Way(Padded)},
    ),
    Curve(
        "MF epoch, nRBP, about 100 pairs each, one batch", "users", (128, 256, 512, 1_024, 2_048), (4, 8),
        lambda size, _: _made(size, "nRBP", None), {OURS: Way(lambda made: made), "torch flat": Way(Flat)},
    ),
)  # fmt: skip
