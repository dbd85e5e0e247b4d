"""The training loop of all neural rankers.

Lists are flat arrays with offsets: a batch consists of the rows of some queries, without padding. All randomness
(weights, order of queries, dropout, noise) comes from one torch.Generator, so that a seed gives the same model on the
same machine with the same number of threads, and no global random state changes. Computation is in float32.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from rankbound.arrays import is_between
from rankbound.checkpoints import Checkpoints
from rankbound.errors import ArgumentError, DataError
from rankbound.io import progress_display
from rankbound.parallel import current_workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("constant", "cosine")
SELECTIONS = ("validation", "test", "last")
Evaluator = Callable[[], dict[str, float]]
_LARGEST = 1e38  # of a step size, which torch stores in single precision
_WARMUP = 0.05  # fraction of the epochs in which the cosine schedule increases the step size


@dataclass(frozen=True)
class Settings:
    """Settings of the training loop.

    Parameters
    ----------
    epochs:
        Maximum number of passes over all queries.
    batch_size:
        Queries per step of the optimizer.
    optimizer, learning_rate, weight_decay:
        "adam", "adamw" or "sgd" (with momentum 0.9), its step size, and the weight decay: "adam" and "sgd" add this
        factor times half the squared weights to the loss, "adamw" multiplies the weights by 1 - learning_rate *
        weight_decay in each step (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).
    schedule:
        Step size over the epochs. "constant": ``learning_rate``. "cosine": it increases linearly over the first 20th of
        the epochs, then decreases to 0 along half a period of the cosine. The step size depends on nothing but the
        number of the epoch and ``epochs``.
    selection:
        Which epoch is kept. "validation": the best one on the held-out queries, or the last one if there are none.
        "test": the same, but the held-out queries are those that results are reported for, as in some papers; the name
        is stored with the history. "last": the last one.
    eval_every, checkpoint_every:
        Epochs between evaluations of the held-out queries, and between checkpoints; both also take place at the end.
    patience:
        Stop after this many epochs without improvement on the held-out queries; None: never.
    list_size:
        Queries with more items are split at random into lists of at most this size, anew in each epoch. This is useful
        for a few very long lists; over the epochs, every pair of items contributes.
    seed:
        Seed of the generator of all random numbers.
    """

    epochs: int = 100
    batch_size: int = 32
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "constant"
    selection: str = "validation"
    eval_every: int = 1
    patience: int | None = None
    checkpoint_every: int = 1
    list_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        counts = ("epochs", "batch_size", "eval_every", "patience", "checkpoint_every")
        for name, least in (*((name, 1) for name in counts), ("list_size", 2), ("seed", 0)):
            value = getattr(self, name)
            if value is None and name in ("patience", "list_size"):
                continue
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise ArgumentError(f"{name} must be an integer of at least {least}, got {value!r}")
        for name, choices in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("selection", SELECTIONS)):
            if getattr(self, name) not in choices:
                raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if not is_between(self.learning_rate, 0, _LARGEST):
            raise ArgumentError(f"learning_rate must be a positive number below 1e38, got {self.learning_rate!r}")
        if self.weight_decay != 0 and not is_between(self.weight_decay, 0, _LARGEST):
            raise ArgumentError(f"weight_decay must be a number from 0 to 1e38, got {self.weight_decay!r}")

    def rate(self, epoch: int) -> float:
        """Return the step size in an epoch; the first epoch is 1.

        >>> settings = Settings(epochs=40, learning_rate=0.1, schedule="cosine")
        >>> [round(settings.rate(epoch), 4) for epoch in (1, 2, 3, 21, 40)]
        [0.05, 0.1, 0.1, 0.0541, 0.0002]
        """
        if self.schedule == "constant":
            return self.learning_rate
        warmup = math.ceil(_WARMUP * self.epochs)
        if epoch <= warmup:
            return self.learning_rate * epoch / warmup
        progress = (epoch - warmup - 1) / (self.epochs - warmup)
        return self.learning_rate * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True, eq=False)
class Examples:
    """Training data: a float32 row of features per item, labels, offsets, and a weight per query or None.

    ``features`` is an array or, for features that may be larger than memory, an object that returns rows by index and
    all of them, in order, by its method ``blocks``.
    """

    features: Any
    labels: NDArray[np.number]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    def digest(self) -> str:
        """Return a digest of the content, by which a checkpoint identifies its data."""
        digest = hashlib.blake2b(digest_size=16)
        if isinstance(self.features, np.ndarray):
            digest.update(np.ascontiguousarray(self.features).data)
        else:
            for block in self.features.blocks():
                digest.update(np.ascontiguousarray(block).data)
        for array in (self.labels, self.offsets, self.weights):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class Trained:
    """Result of a training: a dict per epoch (epoch, loss, measures of held-out queries), and the kept epoch."""

    history: list[dict[str, float]]
    kept_epoch: int


@dataclass(frozen=True)
class Surroundings:
    """What happens around the steps of a training.

    Parameters
    ----------
    evaluator:
        Called after an epoch; returns measures of the held-out queries by name. The first is used for the selection.
    checkpoint:
        A folder to which the state is written, atomically. If it holds the state of the same training, the training
        resumes from it and ends with the same model as without the interruption; with the schedule "constant",
        ``epochs`` may be larger than before. The folder of another training is refused.
    identity:
        Further plain values that a checkpoint must match, such as the parameters of a ranker.
    threads:
        Threads of torch during the training; small networks are fastest with 1. None uses the thread budget.
    verbose:
        Show the progress on standard error if that is a terminal.
    on_step:
        Called after each evaluation with the number of the epoch and the first measure; True ends the training.
    """

    evaluator: Evaluator | None = None
    checkpoint: str | PathLike[str] | None = None
    identity: Mapping[str, object] | None = None
    threads: int | None = None
    verbose: bool = False
    on_step: Callable[[int, float], bool] | None = None


def train(
    network: torch.nn.Module,
    examples: Examples,
    loss: Callable[..., torch.Tensor],
    settings: Settings,
    generator: torch.Generator,
    around: Surroundings = Surroundings(),
) -> Trained:
    """Train a torch module in place.

    Inside `rankbound.parallel.workers`, every process computes the gradient of a part of the lists of each batch, and
    DistributedDataParallel adds the gradients; ``loss`` must then be that of the lists of all processes.

    Parameters
    ----------
    network:
        Maps rows of features to the input of ``loss``: one or several numbers per row. If it has the attribute
        ``takes_lists``, which is True for networks that relate the rows of a list to each other, it is called with
        the rows and the offsets of the lists.
    examples:
        The training data.
    loss:
        Called as ``loss(outputs, labels, offsets, weights)``; returns the number to minimize.
    settings:
        Epochs, optimizer, selection and so on.
    generator:
        The source of all random numbers; ``network`` may use the same one.
    around:
        Evaluation, checkpoints, threads, progress.
    """
    state = _State(network, _make_optimizer(network, settings), generator)
    checkpoints = None
    if around.checkpoint is not None:
        checkpoints = Checkpoints(around.checkpoint, _identity(examples, settings, around))
        state.resume(checkpoints)
        if len(state.history) > settings.epochs:
            done = f"{around.checkpoint}: has {len(state.history)} epochs already"
            raise DataError(f"{done}, more than epochs={settings.epochs}")
    together = current_workers()
    replica = network
    if together is not None:
        replica = torch.nn.parallel.DistributedDataParallel(network, process_group=together.group)
    kept = _best_epoch(state.history, settings)
    with _torch_threads(around.threads), _show_epochs(settings.epochs, around.verbose) as advance:
        for epoch in range(len(state.history) + 1, settings.epochs + 1):
            if settings.patience is not None and around.evaluator is not None and epoch - 1 - kept >= settings.patience:
                break
            replica.train()
            for group in state.optimizer.param_groups:
                group["lr"] = settings.rate(epoch)
            mean = _run_epoch(replica, state, examples, loss, settings)
            replica.eval()
            is_last = epoch == settings.epochs
            row = {"epoch": epoch, "loss": mean}
            if around.evaluator is not None and (is_last or epoch % settings.eval_every == 0):
                row |= around.evaluator()
            state.history.append(row)
            kept = _best_epoch(state.history, settings)
            if kept == epoch:
                state.best = {name: value.detach().clone() for name, value in network.state_dict().items()}
            if checkpoints is not None and (is_last or epoch % settings.checkpoint_every == 0):
                checkpoints.save(epoch, state.arrays(), {"history": state.history})
            advance(epoch, row)
            if around.on_step is not None and len(row) > 2 and around.on_step(epoch, list(row.values())[2]):
                break
    network.load_state_dict(state.best)
    network.eval()
    return Trained(state.history, kept)


def _identity(examples: Examples, settings: Settings, around: Surroundings) -> dict[str, object]:
    """Return what a checkpoint must match."""
    free = {"checkpoint_every"} | ({"epochs"} if settings.schedule == "constant" else set())
    known: dict[str, object] = {name: str(value) for name, value in asdict(settings).items() if name not in free}
    return known | dict(around.identity or {}) | {"data": examples.digest()}


def _run_epoch(
    replica: torch.nn.Module,
    state: _State,
    examples: Examples,
    loss: Callable[..., torch.Tensor],
    settings: Settings,
) -> float:
    """Make the steps of an epoch and return the mean loss of the lists."""
    takes_lists = getattr(state.network, "takes_lists", False)
    total, lists = 0.0, 0
    for batch in _batches(examples, settings, state.generator):
        count = len(batch.offsets) - 1
        rows, offsets, weights = _take_own_part(state.network, batch)
        inputs = torch.from_numpy(examples.features[rows])
        outputs = replica(inputs, offsets) if takes_lists else replica(inputs)
        if not torch.isfinite(outputs).all():
            raise DataError(
                f"training diverged in epoch {len(state.history) + 1}: scores are not finite; "
                "use a smaller learning_rate, or standardize the features"
            )
        cost = loss(outputs, examples.labels[rows], offsets, weights)
        state.optimizer.zero_grad(set_to_none=True)
        cost.backward()
        state.optimizer.step()
        total, lists = total + float(cost.detach()) * count, lists + count
    return total / lists


class Batch(NamedTuple):
    """Rows of a batch, the offsets of its lists, and their weights."""

    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float64] | None


def _batches(examples: Examples, settings: Settings, generator: torch.Generator) -> Iterator[Batch]:
    """Yield the batches of an epoch."""
    row, offsets, query = _split_lists(examples.offsets, settings.list_size, generator)
    filled = np.flatnonzero(np.diff(offsets) > 0)
    order = filled[torch.randperm(len(filled), generator=generator).numpy()]
    for first in range(0, len(order), settings.batch_size):
        chosen = order[first : first + settings.batch_size]
        sizes = offsets[chosen + 1] - offsets[chosen]
        ends = np.cumsum(sizes)
        positions = np.arange(ends[-1]) + np.repeat(offsets[chosen] - (ends - sizes), sizes)
        weights = None if examples.weights is None else examples.weights[query[chosen]]
        yield Batch(row[positions], np.concatenate(([0], ends)), weights)


def _take_own_part(network: torch.nn.Module, batch: Batch) -> Batch:
    """Return the rows, offsets and weights of the lists of this process; random layers draw for the whole batch."""
    together = current_workers()
    if together is None:
        return batch
    rows, offsets, weights = batch
    part = together.part(np.diff(offsets))
    own = offsets[part.start : part.stop + 1]
    for layer in network.modules():
        if hasattr(layer, "rows_of_batch"):
            layer.rows_of_batch = int(own[0]), len(rows)
    return Batch(rows[own[0] : own[-1]], own - own[0], None if weights is None else weights[part])


def _split_lists(
    offsets: NDArray[np.int64], list_size: int | None, generator: torch.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return rows in the order of lists, the offsets of the lists, and the query of each list."""
    sizes = np.diff(offsets)
    query = np.arange(len(sizes))
    rows = np.arange(offsets[-1])
    if list_size is None or sizes.max(initial=0) <= list_size:
        return rows, offsets, query
    of_row = np.repeat(query, sizes)
    shuffled = rows[np.lexsort((torch.rand(len(rows), generator=generator, dtype=torch.float64).numpy(), of_row))]
    pieces = np.maximum(-(-sizes // list_size), 1)
    # the j-th of n rows belongs to piece floor(j p / n), so that the sizes of p pieces differ by at most one
    piece = (rows - offsets[of_row]) * pieces[of_row] // sizes[of_row] + np.repeat(np.cumsum(pieces) - pieces, sizes)
    filled = np.bincount(piece, minlength=pieces.sum())
    return shuffled, np.concatenate(([0], np.cumsum(filled))), np.repeat(query, pieces)


def _make_optimizer(network: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
    common = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.optimizer != "sgd":
        kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
        return kind(network.parameters(), **common)
    return torch.optim.SGD(network.parameters(), momentum=0.9, **common)


def _best_epoch(history: list[dict[str, float]], settings: Settings) -> int:
    """Return the epoch to keep so far: the first with the best value of the first measure, or the last."""
    measured = [row for row in history if len(row) > 2]
    if not measured or settings.selection == "last":
        return len(history)
    measure = list(measured[0])[2]
    return int(measured[int(np.argmax([row[measure] for row in measured]))]["epoch"])


# ---- the state on disk -----------------------------------------------------------------------------------------------


@dataclass
class _State:
    """A training after some epochs: the network with its optimizer, the history, and the weights of the best epoch."""

    network: torch.nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, torch.Tensor] = field(default_factory=dict)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the tensors of the state by name."""
        arrays = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        arrays |= {f"best.{name}": value for name, value in self.best.items()}
        for parameter, state in self.optimizer.state_dict()["state"].items():
            arrays |= {f"optimizer.{parameter}.{name}": value for name, value in state.items() if value is not None}
        arrays["generator"] = self.generator.get_state()
        return {name: np.array(value.detach().numpy()) for name, value in arrays.items()}

    def resume(self, checkpoints: Checkpoints) -> None:
        """Restore the newest state of a folder, if it has one."""
        if (stored := checkpoints.load()) is None:
            return
        arrays, metadata = stored
        sections: dict[str, dict[str, torch.Tensor]] = {"network": {}, "best": {}, "optimizer": {}}
        for name, array in arrays.items():
            section, _, rest = name.partition(".")
            if rest:
                sections[section][rest] = torch.from_numpy(np.array(array))
        self.network.load_state_dict(sections["network"])
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in sections["optimizer"].items():
            parameter, _, entry = name.partition(".")
            state.setdefault(int(parameter), {})[entry] = value
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.generator.set_state(torch.from_numpy(np.array(arrays["generator"])))
        self.history, self.best = metadata["history"], sections["best"]


# ---- threads ---------------------------------------------------------------------------------------------------------


@contextmanager
def _torch_threads(count: int | None) -> Iterator[None]:
    """Set torch's number of threads within a block.

    For the tiny operations of a small network, more than one thread is slower, on a busy machine by a factor of up to a
    thousand.
    """
    from rankbound.parallel import threads

    before = torch.get_num_threads()
    torch.set_num_threads(threads() if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---- progress --------------------------------------------------------------------------------------------------------


@contextmanager
def _show_epochs(epochs: int, verbose: bool) -> Iterator[Callable[[int, dict[str, float]], None]]:
    together = current_workers()
    with progress_display(shown=verbose and (together is None or together.is_first)) as display:

        def advance(epoch: int, row: dict[str, float]) -> None:
            numbers = (f"{name} {value:.4f}" for name, value in row.items() if name != "epoch")
            display("epoch", epoch, epochs, "  ".join(numbers))

        yield advance
