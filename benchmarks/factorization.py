"""One epoch of MatrixFactorization against the same model in torch, padded and flat.

The data are real where RANKBOUND_DATA has them, otherwise generated with similar numbers of users and items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.comparison import Peer, compare_with_peers
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.datasets import is_available
from benchmarks.records import Finding, Row
from benchmarks.timing import MIN_SECONDS, Work, best_of
from rankbound.data import Interactions, load_fold, load_set, sample_lists, user_folds
from rankbound.data.preparation import prepare_movielens
from rankbound.losses import get_loss, set_threads
from rankbound.models.recommenders.factorization.lists import GivenLists, Pairs
from rankbound.models.recommenders.factorization.losses import interaction_loss
from rankbound.models.recommenders.factorization.model import MatrixFactorization
from rankbound.models.recommenders.factorization.steps import Batch
from rankbound.models.recommenders.factorization.training import Training

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = (
    "ml-latest-small and CiteULike-a where available, otherwise generated users like theirs; as many negatives as "
    "positives, 32 factors, Adam"
)
RATE, FACTORS = 0.001, 32


# ---- data ------------------------------------------------------------------------------------------------------------

Split = tuple[str, Interactions, Interactions]  # name, training and test part


def generated(users: int, items: int, typical: float, spread: float) -> Interactions:
    """Generate users with at least 25 positives each; activity and popularity are long-tailed."""
    rng = np.random.default_rng(0)
    counts = np.clip(rng.lognormal(np.log(typical), spread, users), 25, items // 4).astype(np.int64)
    user = np.repeat(np.arange(users), counts)
    item = (items * rng.random(len(user)) ** 2).astype(np.int64)
    return Interactions.from_columns(user, item)


def _split(name: str, table: Interactions) -> Split:
    fold = user_folds(table, 5, seed=0)
    return name, table.rows(fold != 0), table.rows(fold == 0)


def movielens(quick: bool) -> Split:
    """Return MovieLens, or generated users like those of MovieLens."""
    if quick:
        return _split("generated", generated(20, 200, 30, 0.5))
    if is_available("ml-latest-small"):
        return _split("ml-latest-small", prepare_movielens(load_set("ml-latest-small")))
    return _split("generated like ml-latest-small", generated(412, 9724, 70, 0.9))


def citeulike(quick: bool) -> Split:
    """Return CiteULike, or generated users like those of CiteULike."""
    if quick:
        return _split("generated", generated(30, 300, 30, 0.5))
    if is_available("citeulike-a"):
        fold = load_fold("citeulike-a", 0)
        return "CiteULike-a", fold.train, fold.test
    return _split("generated like CiteULike-a", generated(2465, 16702, 50, 0.6))


def pairs_of(train: Interactions, test: Interactions, ratio: float = 1) -> Pairs:
    """Return positives with ``ratio`` negatives for each."""
    lists, _ = sample_lists(train, test, train_ratio=ratio, test_ratio=1, protocol="published")
    return Pairs.from_rows(np.repeat(lists.users, lists.lists.sizes), lists.items, lists.lists.labels)


# ---- implementations -------------------------------------------------------------------------------------------------


class Ours:
    """Epochs of the estimator, without evaluation."""

    def __init__(self, pairs: Pairs, loss: str, batch_size: int | None) -> None:
        self.model = MatrixFactorization(FACTORS, loss, learning_rate=RATE, batch_size=batch_size)
        self.loss = get_loss(loss)
        lists = GivenLists(pairs, self.loss)
        self.training = Training(self.model._settings("dot"), self.loss, lists.interactions(), lists=lists)
        self.batches, self.state = self.training.batches, self.training.new_state()

    def __call__(self) -> float:
        """Run one epoch; return the loss before it."""
        return self.training.epoch(self.state)


class Torch:
    """The same initial embeddings and batches, with dense Adam."""

    def __init__(self, ours: Ours) -> None:
        vectors = (ours.state.values[name] for name in ("users", "items"))
        tables = [torch.nn.Embedding.from_pretrained(torch.tensor(table), freeze=False) for table in vectors]
        self.users, self.items = tables
        self.optimizer = torch.optim.Adam([table.weight for table in tables], lr=RATE)
        self.batches = [self.prepared(batch) for batch in ours.batches]

    def prepared(self, batch: Batch) -> Any:
        """Prepare the parts of a batch that do not change from epoch to epoch."""
        raise NotImplementedError

    def cost(self, batch: Any) -> Any:
        """Return the summed loss of a batch."""
        raise NotImplementedError

    def __call__(self) -> float:
        """Run one epoch; return the loss before it, if there is one batch."""
        total = 0.0
        for batch in self.batches:
            self.optimizer.zero_grad()
            cost = self.cost(batch)
            cost.backward()
            self.optimizer.step()
            total += float(cost.detach())
        return total


class Flat(Torch):
    """Embeddings looked up row by row; rankbound's loss on the flat scores."""

    def __init__(self, ours: Ours) -> None:
        self.loss = get_loss(str(ours.model.loss), reduction="sum")
        super().__init__(ours)

    def prepared(self, batch: Batch) -> Any:
        """Return codes of users and items of each row, labels and offsets."""
        codes = (torch.as_tensor(rows.astype(np.int64)) for rows in (batch.row_users, batch.row_items))
        return (*codes, batch.plan.labels, batch.plan.offsets)

    def cost(self, batch: Any) -> Any:
        """Compute scores as dot products of rows, then the loss."""
        users, items, labels, offsets = batch
        return self.loss((self.users(users) * self.items(items)).sum(1), labels, offsets)


class Padded(Torch):
    """Users x longest list of the batch; smooth nDCG from all score differences, as in the code of papers."""

    def prepared(self, batch: Batch) -> Any:
        """Return tables of items and labels, the mask of the padding, and the ideal DCG."""
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
        """Compute smooth nDCG of the padded table."""
        users, items, labels, mask, ideal = batch
        scores = (self.users(users)[:, None, :] * self.items(items)).sum(2)
        above = torch.sigmoid(scores[:, None, :] - scores[:, :, None]) * mask[:, None, :]
        ranks = above.sum(2) + 0.5  # an item is half above itself
        return -((labels / torch.log2(1 + ranks)).sum(1) / ideal).sum()


# ---- rows ------------------------------------------------------------------------------------------------------------


def run(quick: bool) -> Iterator[Finding]:
    """Yield rows of two data sets and of four times the pairs, then the growth with the number of users."""
    turns = 1 if quick else 5
    name, train, test = movielens(quick)
    batched = Ours(pairs_of(train, test), "nDCG", 32)
    title = f"MF epoch, {name}, nDCG, batches of 32"
    yield from _against(title, batched, Padded, "torch padded", 40.0, turns)
    yield _four_times(name, train, test, 1 if quick else 15)
    name, train, test = citeulike(quick)
    ours = Ours(pairs_of(train, test), "nRBP", None)
    yield from _against(f"MF epoch, {name}, nRBP", ours, Flat, "torch flat, fused loss", 4.0, turns)
    yield from _from_interactions(quick, turns)
    yield from growth_of(__name__, CURVES, quick)


class OursFromInteractions:
    """Epochs of the estimator from interactions, on one thread and without evaluation."""

    def __init__(self, table: Interactions, **parameters: Any) -> None:
        settings: dict[str, Any] = {"batch_size": 128, "similarity": "dot"} | parameters
        model = MatrixFactorization(**settings)
        loss = interaction_loss(model.loss or "softmax", model.bounding)
        self.training = Training(model._settings("cosine"), loss, table)
        self.state = self.training.new_state()

    def __call__(self) -> float:
        """Run one epoch; return the loss before it."""
        set_threads(1)
        try:
            return self.training.epoch(self.state)
        finally:
            set_threads(None)


def _from_interactions(quick: bool, turns: int) -> Iterator[Finding]:
    """Yield epochs on users like those of MovieLens 1M, and on 20 million interactions, within fixed times."""
    table = generated(40, 300, 30, 0.5) if quick else generated(6_034, 3_533, 50, 0.9)
    size = f"{len(table.user_names)} users, {len(table.item_names)} items, {len(table)} interactions"
    cases: tuple[tuple[str, float, dict[str, Any]], ...] = (
        ("nDCG, 5 negatives each", 0.5, {"loss": "nDCG", "negatives": 5}),
        ("nDCG, whole catalog", 1.5, {"loss": "nDCG"}),
        ("softmax, whole catalog, cosine", 1.5, {"similarity": "cosine"}),
    )
    for title, limit, parameters in cases:
        work = OursFromInteractions(table, **parameters)
        time = best_of({title: work}, turns, min_seconds=MIN_SECONDS)[title]
        yield Row(f"MF epoch, {title}, {size}", time, f"{limit:g} seconds", limit, 1.0, against="limit")
    if not quick:
        large = generated(200_000, 50_000, 90, 0.5)
        time = best_of({"": OursFromInteractions(large, loss="nDCG", negatives=1)}, 1)[""]
        title = f"MF epoch, nDCG, 1 negative each, 200,000 users, 50,000 items, {len(large)} interactions"
        yield Row(title, time, "60 seconds", 60.0, 1.0, against="limit")


def _against(
    name: str, ours: Ours, theirs: Callable[[Ours], Work], peer: str, bar: float, turns: int
) -> Iterator[Finding]:
    """Compare epochs from the same initial vectors, whose first losses must agree.

    With several batches the order differs and Adam updates other vectors, so that values are not compared.
    """
    if len(ours.batches) > 1:
        yield from compare_with_peers(name, ours, [Peer(peer, partial(theirs, ours), bar)], turns=turns)
    else:
        per_user = len(ours.batches[0].users)
        peers = [Peer(peer, partial(theirs, ours), bar, values=lambda loss: loss / per_user)]
        yield from compare_with_peers(
            name, ours, peers, turns=turns, values=lambda loss: loss / per_user, tolerance=1e-4
        )


def _four_times(name: str, train: Interactions, test: Interactions, turns: int) -> Row:
    """Time four times the negatives, which are four times the pairs of the nRBP loss; 10 % more time is allowed."""
    works = {ratio: Ours(pairs_of(train, test, ratio), "nRBP", None) for ratio in (1, 4)}
    times = best_of(works, turns, min_seconds=MIN_SECONDS)
    title, peer = f"MF epoch, {name}, nRBP, 4 x the pairs", "4.4 x the pairs once"
    return Row(title, times[4], peer, 4.4 * times[1], 1.0, against="ourselves")


# ---- growth ----------------------------------------------------------------------------------------------------------


def _made(users: int, loss: str, batch_size: int | None) -> Ours:
    return Ours(pairs_of(*_split("", generated(users, 4_000, 50, 0.6))[1:]), loss, batch_size)


CURVES = (
    Curve(
        "MF epoch, nDCG, about 100 pairs each, batches of 32", "users", (32, 64, 128, 256, 512), (4, 8),
        lambda size, _: _made(size, "nDCG", 32),
        {OURS: Implementation(lambda made: made), "torch padded": Implementation(Padded)},
    ),
    Curve(
        "MF epoch, nRBP, about 100 pairs each, one batch", "users", (128, 256, 512, 1_024, 2_048), (4, 8),
        lambda size, _: _made(size, "nRBP", None),
        {OURS: Implementation(lambda made: made), "torch flat": Implementation(Flat)},
    ),
)  # fmt: skip
