"""One epoch of MatrixFactorization against the same model in torch, padded and flat, and how it grows with the pairs.

Real data (RANKBOUND_DATA) where they are there, otherwise generated users with as many positives and items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.timing import Row, best_of, row
from rankbound.data import Interactions, load_fold, load_set, prepare_movielens, sample_lists, user_folds
from rankbound.errors import RankboundError
from rankbound.losses import get_loss
from rankbound.models.factorization import MatrixFactorization
from rankbound.models.factorization_kernel import Batch
from rankbound.models.factorization_state import Pairs, State

RATE, FACTORS = 0.001, 32


# ---- data ------------------------------------------------------------------------------------------------------------


def generated(users: int, items: int, typical: float, spread: float) -> Interactions:
    """Users with at least 25 positives each, long-tailed in activity and in popularity."""
    rng = np.random.default_rng(0)
    counts = np.clip(rng.lognormal(np.log(typical), spread, users), 25, items // 4).astype(np.int64)
    user = np.repeat(np.arange(users), counts)
    item = (items * rng.random(len(user)) ** 2).astype(np.int64)
    return Interactions.from_columns(user, item)


def movielens() -> tuple[str, Interactions, Interactions]:
    try:
        ratings, name = prepare_movielens(load_set("ml-latest-small")), "ml-latest-small"
    except RankboundError:
        ratings, name = generated(412, 9724, 70, 0.9), "generated like ml-latest-small"
    fold = user_folds(ratings, 5, seed=0)
    return name, ratings.rows(fold != 0), ratings.rows(fold == 0)


def citeulike() -> tuple[str, Interactions, Interactions]:
    try:
        fold = load_fold("citeulike-a", 0)
    except RankboundError:
        choices = generated(2465, 16702, 50, 0.6)
        part = user_folds(choices, 5, seed=0)
        return "generated like CiteULike-a", choices.rows(part != 0), choices.rows(part == 0)
    return "CiteULike-a", fold.train, fold.test


def pairs_of(train: Interactions, test: Interactions, ratio: float = 1) -> Pairs:
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
        self.model._epoch(self.loss, self.batches, None, self.state)
        return self.state.history[-1]["loss"]


class Torch:
    """Embeddings from the same start, dense Adam, the same batches."""

    def __init__(self, ours: Ours) -> None:
        vectors = (ours.state.users.values, ours.state.items.values)
        tables = [torch.nn.Embedding.from_pretrained(torch.tensor(one), freeze=False) for one in vectors]
        self.users, self.items = tables
        self.optimizer = torch.optim.Adam([table.weight for table in tables], lr=RATE)
        self.batches = [self.prepared(batch) for batch in ours.batches]

    def prepared(self, batch: Batch) -> Any:
        raise NotImplementedError

    def cost(self, batch: Any) -> Any:
        raise NotImplementedError

    def __call__(self) -> float:
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

    loss = get_loss("nRBP", reduction="sum")

    def prepared(self, batch: Batch) -> Any:
        codes = (torch.as_tensor(rows.astype(np.int64)) for rows in (batch.row_users, batch.row_items))
        return (*codes, batch.plan.labels, batch.plan.offsets)

    def cost(self, batch: Any) -> Any:
        users, items, labels, offsets = batch
        return self.loss((self.users(users) * self.items(items)).sum(1), labels, offsets)


class Padded(Torch):
    """Users x longest list of the batch; smooth nDCG by all differences of scores, as papers' code has it."""

    def prepared(self, batch: Batch) -> Any:
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
        users, items, labels, mask, ideal = batch
        scores = (self.users(users)[:, None, :] * self.items(items)).sum(2)
        above = torch.sigmoid(scores[:, None, :] - scores[:, :, None]) * mask[:, None, :]
        ranks = above.sum(2) + 0.5  # an item stands half above itself
        return -((labels / torch.log2(1 + ranks)).sum(1) / ideal).sum()


# ---- rows ------------------------------------------------------------------------------------------------------------


def run() -> list[Row]:
    name, train, test = movielens()
    pairs = pairs_of(train, test)
    rows = [
        against(f"MF epoch, {name}, nDCG, Adam, batches of 32", Ours(pairs, "nDCG", 32), Padded, "torch padded", 40.0)
    ]
    rows.append(growth(name, train, test))
    name, train, test = citeulike()
    ours = Ours(pairs_of(train, test), "nRBP", None)
    rows.append(against(f"MF epoch, {name}, nRBP, Adam", ours, Flat, "torch flat, fused loss", 4.0))
    return rows


def against(name: str, ours: Ours, peer: Callable[[Ours], Torch], peer_name: str, bar: float) -> Row:
    """Time epochs of both; they start from the same vectors and must see the same first loss."""
    theirs = peer(ours)
    if len(ours.batches) == 1:  # with more of them the order differs, and Adam carries other vectors along
        first, other = ours(), theirs()
        assert abs(first - other) < 1e-4 * abs(first), f"{peer_name} starts from the loss {other}, we from {first}"
    times = best_of({"ours": ours, "theirs": theirs}, 5)
    return row(name, times["ours"], peer_name, times["theirs"], bar)


def growth(name: str, train: Interactions, test: Interactions) -> Row:
    """Four times the negatives are four times the pairs of the nRBP loss; a tenth more time than that is allowed."""
    times = best_of({str(ratio): Ours(pairs_of(train, test, ratio), "nRBP", None) for ratio in (1, 4)}, 15)
    return row(f"MF epoch, {name}, 4 x the pairs", times["4"], "4.4 x the pairs once", 4.4 * times["1"], 1.0)


if __name__ == "__main__":
    for one in run():
        times = f"{one['ours_seconds']:.5f} {one['peer']:24s} {one['peer_seconds']:.5f}"
        print(f"{one['name']:62s} {times} {one['ratio']:.2f} {one['bar']}")
