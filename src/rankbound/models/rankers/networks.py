"""Parts of neural rankers: layers initialized from a generator, and objectives that interpret the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from rankbound.arrays import is_between
from rankbound.errors import ArgumentError
from rankbound.models.parameters import check_choice
from rankbound.models.rankers.levels import expected_label, label_levels
from rankbound.packages import needed_by
from rankbound.parallel import current_workers

with needed_by("a neural ranker"):
    import torch
    from torch import nn

    from rankbound.losses import DirectRankerLoss, PointwiseLoss, RankingLoss, RankNetLoss, get_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.base import Evaluated
    from rankbound.losses.modules import LossModule
    from rankbound.losses.swaps import PairPlan

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "elu": nn.ELU}
_LARGEST_LAYER = 100_000_000  # units; products of two such numbers stay below 2^63
_MAX_INPUTS = 1 << 22  # input values of one pass without gradients
_MAX_PAIRS = 1 << 22  # pairs of rows of one list in one pass without gradients


# ---- layers ----------------------------------------------------------------------------------------------------------


def new_layer(kind: type[nn.Module], generator: torch.Generator | None, *sizes: int, **options: Any) -> nn.Module:
    """Create a linear or convolution layer with weights from U(-1/√n, 1/√n), n the inputs of a unit, as torch does.

    torch's constructors draw from its global generator, whose state belongs to the user. Without a generator, the
    layer has shapes but no memory, to be filled from a file.
    """
    if generator is None:
        return kind(*sizes, device="meta", **options)
    layer = nn.utils.skip_init(kind, *sizes, **options)
    bound = 1 / math.sqrt(layer.weight[0].numel())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer


def new_layer_norm(units: int, generator: torch.Generator | None) -> nn.Module:
    """Create a layer normalization, which starts with weights of 1 and biases of 0; see `new_layer`."""
    return nn.LayerNorm(units, device="meta" if generator is None else "cpu")


class RandomLayer(nn.Module):  # type: ignore[misc]  # torch ships no types we follow
    """A layer that draws random numbers in training, from the generator of the training.

    Several processes that share a batch set ``rows_of_batch``: the first row of this process, and the rows of the
    whole batch. They draw the numbers of all rows, and each uses those of its own.
    """

    training_only = True  # exported models leave it out
    rows_of_batch: tuple[int, int] | None = None

    def __init__(self, generator: torch.Generator | None) -> None:
        super().__init__()
        self.generator = generator

    def draw_rows(self, draw: Callable[..., torch.Tensor], shape: Sequence[int]) -> torch.Tensor:
        """Draw random numbers of a shape whose first dimension are the rows of a batch."""
        if self.rows_of_batch is None:
            return draw(shape, generator=self.generator)
        first, rows = self.rows_of_batch
        return draw((rows, *shape[1:]), generator=self.generator)[first : first + shape[0]]


class Dropout(RandomLayer):
    """Sets a random fraction of the inputs to 0 in training."""

    def __init__(self, fraction: float, generator: torch.Generator | None) -> None:
        super().__init__(generator)
        self.fraction = fraction

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the inputs, in training some of them set to 0 and the others scaled so that the mean is unchanged."""
        if not self.training:
            return inputs
        kept = self.draw_rows(torch.rand, inputs.shape) >= self.fraction
        return inputs * kept / (1 - self.fraction)


class InputNoise(RandomLayer):
    """Adds N(0, deviation²) to every input in training."""

    def __init__(self, deviation: float, generator: torch.Generator | None) -> None:
        super().__init__(generator)
        self.deviation = deviation

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the inputs, in training with noise."""
        if not self.training:
            return inputs
        return inputs + self.deviation * self.draw_rows(torch.randn, inputs.shape)


def dense_layers(
    inputs: int,
    hidden: Sequence[int],
    outputs: int,
    generator: torch.Generator | None,
    *,
    activation: str = "relu",
    dropout: float = 0.0,
    layer_norm: bool = False,
    head_bias: bool = False,
) -> list[nn.Module]:
    """Create linear layers with an activation after each hidden one; the head has a bias only with ``head_bias``.

    ``layer_norm`` normalizes the units of each hidden layer before the activation.
    """
    check_choice("activation", activation, tuple(ACTIVATIONS))
    if dropout != 0 and not is_between(dropout, 0, 1):
        raise ArgumentError(f"dropout must be in [0, 1), got {dropout!r}")
    layers: list[Any] = []
    sizes = positive_integers("hidden", hidden)
    if max(sizes, default=0) > _LARGEST_LAYER:
        raise ArgumentError(f"hidden must be at most {_LARGEST_LAYER:,}, got {hidden!r}")
    for units in sizes:
        layers.append(new_layer(nn.Linear, generator, inputs, units))
        if layer_norm:
            layers.append(new_layer_norm(units, generator))
        layers.append(ACTIVATIONS[activation]())
        if dropout:
            layers.append(Dropout(dropout, generator))
        inputs = units
    return [*layers, new_layer(nn.Linear, generator, inputs, outputs, bias=head_bias)]


def positive_integers(name: str, values: Any) -> tuple[int, ...]:
    """Return a tuple of positive integers; raise ArgumentError for anything else."""
    numbers = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0 for n in numbers):
        raise ArgumentError(f"{name} must be positive integers, got {values!r}")
    return tuple(map(int, numbers))


# ---- lists -----------------------------------------------------------------------------------------------------------


class PaddedLists:
    """The rows of flat lists as a rectangle, lists x longest list.

    ``index`` are the rows, 0 where a list has ended; ``filled`` marks the cells that are rows, and is None if all are.

    >>> lists = PaddedLists(np.array([0, 2, 3]))
    >>> lists.index.tolist(), lists.filled.tolist()
    ([[0, 1], [2, 0]], [[True, True], [True, False]])
    """

    def __init__(self, offsets: NDArray[np.int64]) -> None:
        sizes = np.diff(offsets)
        position = np.arange(sizes.max(initial=0))
        filled = position < sizes[:, None]
        self.index = torch.from_numpy(np.where(filled, offsets[:-1, None] + position, 0))
        self.filled = None if filled.all() else torch.from_numpy(filled)

    def rectangle(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows (rows x columns) as lists x longest list x columns."""
        return rows.index_select(0, self.index.ravel()).reshape(*self.index.shape, rows.shape[1])

    def flat(self, rectangle: torch.Tensor) -> torch.Tensor:
        """Return the rows of a rectangle in their order."""
        return rectangle.flatten(0, 1) if self.filled is None else rectangle[self.filled]


class SelfAttention(nn.Module):  # type: ignore[misc]
    """A block of a transformer, in which the documents of a list attend to each other.

    h + A(LN(h)), followed by h + F(LN(h)): A is attention with several heads, softmax(Q K^T / √d) V over the documents
    of the same list, and F has one hidden layer of twice the width with ReLU. The normalization comes first, as in
    Xiong et al., "On layer normalization in the transformer architecture" (2020). There is no encoding of positions:
    permuting the documents of a list permutes the outputs (Pobrotyn et al., "Context-aware learning to rank with
    self-attention", 2020). Both branches start at 0, so that an untrained block changes nothing.
    """

    takes_lists = True

    def __init__(self, units: int, heads: int, dropout: float, generator: torch.Generator | None) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = (new_layer_norm(units, generator) for _ in range(2))
        self.projection = new_layer(nn.Linear, generator, units, 3 * units)  # to queries, keys and values
        self.mixing = new_layer(nn.Linear, generator, units, units)
        self.expansion = new_layer(nn.Linear, generator, units, 2 * units)
        self.contraction = new_layer(nn.Linear, generator, 2 * units, units)
        self.dropout = Dropout(dropout, generator) if dropout else nn.Identity()
        with torch.no_grad():
            for last in (self.mixing, self.contraction):
                for parameter in last.parameters():
                    parameter.zero_()

    def forward(self, rows: torch.Tensor, lists: PaddedLists) -> torch.Tensor:
        """Return a row of the same width for each row."""
        projected = lists.rectangle(self.projection(self.first_norm(rows))).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = projected.permute(2, 0, 3, 1, 4)  # each lists x heads x positions x units
        mask = None if lists.filled is None else lists.filled[:, None, None, :]
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        rows = rows + self.dropout(self.mixing(lists.flat(mixed.transpose(1, 2).flatten(2))))
        expanded = nn.functional.relu(self.expansion(self.second_norm(rows)))
        return rows + self.dropout(self.contraction(expanded))


class ListNetwork(nn.Sequential):  # type: ignore[misc]
    """Layers in a sequence, some of which relate the rows of a list to each other."""

    takes_lists = True

    def forward(self, inputs: torch.Tensor, offsets: NDArray[np.int64]) -> torch.Tensor:
        """Return the outputs of flat lists of rows."""
        lists = PaddedLists(offsets)
        for layer in self:
            inputs = layer(inputs, lists) if getattr(layer, "takes_lists", False) else layer(inputs)
        return inputs


def network_outputs(
    network: nn.Module, features: NDArray[np.floating], dtype: torch.dtype, offsets: NDArray[np.int64] | None = None
) -> NDArray[Any]:
    """Return outputs (rows x outputs), computed with the given precision and rounded to float32, in chunks.

    In a matrix product, equal rows can get results that differ in the last bit, depending on their position. Computed
    in float64 and rounded, equal rows have equal outputs, so that ties remain ties. For the same reason, the outputs of
    a list do not depend on the chunk and on the other lists in it. ``offsets`` are required if the network takes lists.
    """
    network.eval()
    weights = {name: value.to(dtype) for name, value in network.state_dict().items()}
    takes_lists = getattr(network, "takes_lists", False)
    chunks = _list_chunks(features.shape[1], offsets) if takes_lists else _row_chunks(*features.shape)
    outputs: NDArray[np.floating] | None = None
    with torch.no_grad():
        for rows, cuts in chunks:
            chunk = torch.from_numpy(np.ascontiguousarray(features[rows])).to(dtype)
            arguments = (chunk, cuts) if takes_lists else (chunk,)
            values = torch.func.functional_call(network, weights, arguments).float().numpy().reshape(len(chunk), -1)
            if outputs is None:
                outputs = np.empty((len(features), values.shape[1]), dtype=np.float32)
            outputs[rows] = values
    return np.empty((0, 1), dtype=np.float32) if outputs is None else outputs


def _row_chunks(rows: int, width: int) -> Iterator[tuple[slice, None]]:
    step = max(1, _MAX_INPUTS // max(width, 1))
    for first in range(0, rows, step):
        yield slice(first, first + step), None


def _list_chunks(
    width: int, offsets: NDArray[np.int64] | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the rows and offsets of some lists, from the shortest to the longest, so that padding is small."""
    if offsets is None:
        raise AssertionError("a network that takes lists requires offsets")
    sizes = np.diff(offsets)
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0]
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order) and _fits(last + 1 - first, int(sizes[order[last]]), width):
            last += 1
        chosen = order[first:last]
        cuts = np.concatenate(([0], np.cumsum(sizes[chosen])))
        yield np.arange(cuts[-1]) + np.repeat(offsets[chosen] - cuts[:-1], sizes[chosen]), cuts
        first = last


def _fits(lists: int, longest: int, width: int) -> bool:
    return lists * longest * width <= _MAX_INPUTS and lists * longest**2 <= _MAX_PAIRS


# ---- objectives ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """A loss of the network's outputs, and the score that follows from them.

    Ranking losses use one output per row, the score. Regression fits labels in units of their standard deviation.
    Classification has one output for each label level above the lowest, the logit of P(label >= level); the score is
    the expected label, see `rankbound.models.rankers.levels`.
    """

    losses: tuple[RankingLoss | LossModule, ...]  # the second while several processes train
    levels: NDArray[np.float64] | None = None
    spread: float = 1.0
    center: float = 0.0

    @property
    def pointwise(self) -> bool:
        """Whether outputs predict labels, so that a constant added to all of them matters."""
        return isinstance(self.losses[0], PointwiseLoss)

    def __call__(
        self,
        outputs: torch.Tensor,
        labels: NDArray[np.number],
        offsets: NDArray[np.int64],
        weights: NDArray[np.float64] | None,
    ) -> torch.Tensor:
        """Return the loss to minimize."""
        if self.spread != 1.0:
            labels = labels / self.spread
        columns = outputs.reshape(len(labels), len(self.losses)).unbind(dim=1)
        values = [
            loss(column, labels, offsets, weights=weights) for loss, column in zip(self.losses, columns, strict=True)
        ]
        return values[0] if len(values) == 1 else torch.stack(values).sum()

    def copy_for_training(self) -> Objective:
        """Return a copy for a training: its losses have no cached plans, and are those of all processes together."""
        losses = tuple(replace(loss) for loss in self.losses)
        if (together := current_workers()) is not None:
            return replace(self, losses=tuple(loss.as_module(together.group) for loss in losses))
        return replace(self, losses=losses)

    def scores(self, outputs: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the scores that follow from outputs (rows x outputs)."""
        if self.levels is not None:
            return expected_label(expit(outputs.astype(np.float64)), self.levels)
        return np.asarray(outputs[:, 0].astype(np.float64) * self.spread)


def make_objective(
    loss: str | RankingLoss, bounding: str, labels: NDArray[np.number], min_gap: float = 0.0
) -> Objective:
    """Return the objective of a loss, given by name or as an object, for these labels."""
    options = {} if bounding == "none" else {"bounding": bounding}
    resolved = get_loss(loss, **options)
    if resolved.reduction == "none":
        raise ArgumentError("reduction of a training loss must be 'mean' or 'sum', got 'none'")
    if min_gap:
        return Objective((_add_gap(resolved, min_gap),))
    if not isinstance(resolved, PointwiseLoss):
        return Objective((resolved,))
    if resolved.kind == "regression":
        return Objective((resolved,), spread=float(labels.std()), center=float(labels.mean()))
    if not isinstance(loss, str):
        return Objective((resolved,), levels=np.array([0.0, 1.0]))  # the loss object defines the one level
    levels = label_levels(labels)
    return Objective(tuple(PointwiseLoss("classification", rel=float(level)) for level in levels[1:]), levels=levels)


def _add_gap(loss: RankingLoss, gap: float) -> RankingLoss:
    if not isinstance(gap, (int, float, np.number)) or not 0 < gap < float("inf"):
        raise ArgumentError(f"min_gap must be a number of at least 0, got {gap!r}")
    if type(loss) is RankNetLoss:
        return _RankNetWithGap(alpha=loss.alpha, reduction=loss.reduction, gap=float(gap))
    if type(loss) is DirectRankerLoss:
        return _DirectRankerWithGap(alpha=loss.alpha, cost=loss.cost, reduction=loss.reduction, gap=float(gap))
    raise ArgumentError(f"min_gap requires the loss RankNet or DirectRanker, got {type(loss).__name__}")


@dataclass(frozen=True)
class _WithGap(RankNetLoss):
    """A loss of pairs whose labels differ by more than ``gap``, by its formula: the kernel compares whole levels."""

    gap: float = field(default=0.0, kw_only=True)

    def _plan(self, labels: NDArray[np.number], offsets: NDArray[np.int64]) -> PairPlan:
        return _wide_pairs(super()._plan(labels, offsets), self.gap)

    def _run_pairs(
        self,
        scores: NDArray[np.floating],
        plan: PairPlan,
        with_hessian: bool,
        scale: float,
        needs_values: bool = True,  # noqa: ARG002
    ) -> Evaluated:
        return self._run_formula(scores, plan, with_hessian, scale)


@dataclass(frozen=True)
class _RankNetWithGap(_WithGap):
    """RankNet's loss of such pairs."""


@dataclass(frozen=True)
class _DirectRankerWithGap(_WithGap, DirectRankerLoss):
    """DirectRanker's loss of such pairs."""


def _wide_pairs(plan: PairPlan, gap: float) -> PairPlan:
    """Restrict a plan to pairs whose labels differ by more than the gap; a query without one has no gradient."""
    descending = plan.sorted(plan.labels).astype(np.float64)  # within each query
    query = plan.per_item(np.arange(len(plan.sizes)))
    # one ascending key for all queries, in which queries are further apart than labels, allows a single search
    key = query * (2 * (descending.max(initial=0.0) + gap) + 1) - descending
    ends = np.searchsorted(key, key + gap, side="right") - plan.offsets[query]
    below = plan.per_item(plan.sizes) - ends
    rows = np.bincount(query, below > 0, minlength=len(plan.sizes)).astype(np.int64)
    pairs = np.bincount(query, below, minlength=len(plan.sizes))
    return replace(plan, ends=ends, rows=rows, scales=1 / np.maximum(pairs, 1))
