"""Parts of neural rankers: layers initialized from a generator, and objectives that interpret the outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from rankbound.errors import ArgumentError
from rankbound.models.levels import expected_label, label_levels

try:
    import torch
    from torch import nn

    from rankbound.losses import DirectRankerLoss, PointwiseLoss, RankingLoss, RankNetLoss, get_loss
except ImportError as error:
    raise ImportError(
        f"neural rankers need torch, and {error.name} is missing: pip install 'rankbound[train]'"
    ) from error

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.plans import Plan

__all__ = ["ACTIVATIONS", "Objective", "dense_layers", "make_objective", "network_outputs", "new_layer"]

ACTIVATIONS: dict[str, type[Any]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "elu": nn.ELU}
_MAX_INPUTS = 1 << 22  # input values of one pass without gradients


# ---- layers ----------------------------------------------------------------------------------------------------------


def new_layer(kind: type[Any], generator: torch.Generator, *sizes: int, **options: Any) -> Any:
    """Create a linear or convolution layer with weights from U(-1/√n, 1/√n), n the inputs of a unit, as torch does.

    torch's constructors draw from its global generator, whose state belongs to the user.
    """
    layer = nn.utils.skip_init(kind, *sizes, **options)
    bound = 1 / math.sqrt(layer.weight[0].numel())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer


class Dropout(nn.Module):  # type: ignore[misc]  # torch ships no types we follow
    """Sets a random fraction of the inputs to 0 in training, drawn from the generator of the training."""

    training_only = True  # exported models leave it out

    def __init__(self, fraction: float, generator: torch.Generator) -> None:
        super().__init__()
        self.fraction, self.generator = fraction, generator

    def forward(self, inputs: Any) -> Any:
        """Return the inputs, in training some of them set to 0 and the others scaled so that the mean is unchanged."""
        if not self.training:
            return inputs
        kept = torch.rand(inputs.shape, generator=self.generator) >= self.fraction
        return inputs * kept / (1 - self.fraction)


def dense_layers(
    inputs: int,
    hidden: Sequence[int],
    outputs: int,
    generator: torch.Generator,
    *,
    activation: str = "relu",
    dropout: float = 0.0,
    head_bias: bool = False,
) -> list[Any]:
    """Create linear layers with an activation after each hidden one; the head has a bias only with ``head_bias``."""
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout must be in [0, 1), got {dropout!r}")
    layers: list[Any] = []
    for units in positive_integers("hidden", hidden):
        layers += [new_layer(nn.Linear, generator, inputs, units), ACTIVATIONS[activation]()]
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


def network_outputs(network: Any, features: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return outputs (rows x outputs), computed with the given precision and rounded to float32, in chunks of rows.

    In a matrix product, equal rows can get results that differ in the last bit, depending on their position. Computed
    in float64 and rounded, equal rows have equal outputs, so that ties remain ties.
    """
    network.eval()
    weights = {name: value.to(dtype) for name, value in network.state_dict().items()}
    step = max(1, _MAX_INPUTS // max(features.shape[1], 1))
    outputs = []
    with torch.no_grad():
        for first in range(0, len(features), step):
            chunk = torch.from_numpy(np.ascontiguousarray(features[first : first + step])).to(dtype)
            outputs.append(torch.func.functional_call(network, weights, (chunk,)).float().numpy())
    return np.concatenate(outputs).reshape(len(features), -1)


# ---- objectives ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """A loss of the network's outputs, and the score that follows from them.

    Ranking losses use one output per row, the score. Regression fits labels in units of their standard deviation.
    Classification has one output for each label level above the lowest, the logit of P(label >= level); the score is
    the expected label, see `rankbound.models.levels`.
    """

    losses: tuple[RankingLoss, ...]
    levels: NDArray[np.float64] | None = None
    spread: float = 1.0
    center: float = 0.0

    @property
    def pointwise(self) -> bool:
        """Whether outputs predict labels, so that a constant added to all of them matters."""
        return isinstance(self.losses[0], PointwiseLoss)

    def __call__(self, outputs: Any, labels: NDArray[Any], offsets: NDArray[np.int64], weights: Any) -> Any:
        """Return the loss to minimize."""
        if self.spread != 1.0:
            labels = labels / self.spread
        columns = outputs.reshape(len(labels), -1).unbind(dim=1)
        values = [loss(column, labels, offsets, weights) for loss, column in zip(self.losses, columns, strict=True)]
        return values[0] if len(values) == 1 else torch.stack(values).sum()

    def fresh(self) -> Objective:
        """Return a copy whose losses have no cached plans."""
        return replace(self, losses=tuple(replace(loss) for loss in self.losses))

    def scores(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        """Return the scores that follow from outputs (rows x outputs)."""
        if self.levels is not None:
            return expected_label(expit(outputs.astype(np.float64)), self.levels)
        return np.asarray(outputs[:, 0].astype(np.float64) * self.spread)


def make_objective(loss: Any, bounding: str, labels: NDArray[Any], min_gap: float = 0.0) -> Objective:
    """Return the objective of a loss, given by name or as an object, for these labels."""
    options = {} if bounding == "none" else {"bounding": bounding}
    resolved = get_loss(loss, **options)
    if resolved.reduction == "none":
        raise ArgumentError("reduction of a training loss must be 'mean' or 'sum', got 'none'")
    if min_gap:
        return Objective((_with_gap(resolved, min_gap),))
    if not isinstance(resolved, PointwiseLoss):
        return Objective((resolved,))
    if resolved.kind == "regression":
        return Objective((resolved,), spread=float(labels.std()), center=float(labels.mean()))
    if not isinstance(loss, str):
        return Objective((resolved,), levels=np.array([0.0, 1.0]))  # the loss object defines the one level
    levels = label_levels(labels)
    return Objective(tuple(PointwiseLoss("classification", rel=float(level)) for level in levels[1:]), levels=levels)


def _with_gap(loss: RankingLoss, gap: float) -> RankingLoss:
    if not isinstance(gap, (int, float, np.number)) or not 0 < gap < float("inf"):
        raise ArgumentError(f"min_gap must be a number of at least 0, got {gap!r}")
    if type(loss) is RankNetLoss:
        return _RankNetWithGap(alpha=loss.alpha, reduction=loss.reduction, gap=float(gap))
    if type(loss) is DirectRankerLoss:
        return _DirectRankerWithGap(alpha=loss.alpha, cost=loss.cost, reduction=loss.reduction, gap=float(gap))
    raise ArgumentError(f"min_gap requires the loss RankNet or DirectRanker, got {type(loss).__name__}")


@dataclass(frozen=True)
class _RankNetWithGap(RankNetLoss):
    """RankNet's loss of the pairs whose labels differ by more than ``gap``."""

    gap: float = field(default=0.0, kw_only=True)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        return _wide_pairs(super()._plan(labels, offsets), self.gap)


@dataclass(frozen=True)
class _DirectRankerWithGap(DirectRankerLoss):
    """DirectRanker's loss of the pairs whose labels differ by more than ``gap``."""

    gap: float = field(default=0.0, kw_only=True)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        return _wide_pairs(super()._plan(labels, offsets), self.gap)


def _wide_pairs(plan: Plan, gap: float) -> Plan:
    """Restrict a plan to pairs whose labels differ by more than the gap; a query without one has no gradient."""
    descending = plan.sorted(plan.labels).astype(np.float64)  # within each query
    query = plan.per_item(np.arange(len(plan.sizes)))
    # one ascending key for all queries, in which queries are further apart than labels, allows a single search
    key = query * (2 * (descending.max(initial=0.0) + gap) + 1) - descending
    plan.columns_from = np.searchsorted(key, key + gap, side="right") - plan.offsets[query]
    below = plan.per_item(plan.sizes) - plan.columns_from
    plan.rows = np.bincount(query, below > 0, minlength=len(plan.sizes)).astype(np.int64)
    plan.constants = 1 / np.maximum(np.bincount(query, below, minlength=len(plan.sizes)), 1)
    return plan
