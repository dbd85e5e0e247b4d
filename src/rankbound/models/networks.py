"""What neural rankers are made of: layers drawn from a generator, and objectives that say what outputs stand for."""

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
_ROWS_AT_ONCE = 1 << 22  # numbers of input that a pass without gradients holds at a time


# ---- layers ----------------------------------------------------------------------------------------------------------


def new_layer(kind: type[Any], generator: torch.Generator, *sizes: int, **options: Any) -> Any:
    """A linear or convolution layer with weights from U(-1/√n, 1/√n), n the inputs of a unit, as torch draws them.

    torch's own constructors draw from its global generator, which belongs to somebody else.
    """
    layer = nn.utils.skip_init(kind, *sizes, **options)
    bound = 1 / math.sqrt(layer.weight[0].numel())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer


class Dropout(nn.Module):  # type: ignore[misc]  # torch ships no types we follow
    """Sets a share of the inputs to 0 while training, drawn from the generator of the training."""

    only_trains = True  # files for other runtimes leave it out

    def __init__(self, share: float, generator: torch.Generator) -> None:
        super().__init__()
        self.share, self.generator = share, generator

    def forward(self, inputs: Any) -> Any:
        """Inputs with holes, scaled so that their mean stays."""
        if not self.training:
            return inputs
        kept = torch.rand(inputs.shape, generator=self.generator) >= self.share
        return inputs * kept / (1 - self.share)


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
    """Linear layers with an activation after each hidden one; a head without bias unless asked for."""
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout must lie in [0, 1), got {dropout!r}")
    layers: list[Any] = []
    for units in positive_integers("hidden", hidden):
        layers += [new_layer(nn.Linear, generator, inputs, units), ACTIVATIONS[activation]()]
        if dropout:
            layers.append(Dropout(dropout, generator))
        inputs = units
    return [*layers, new_layer(nn.Linear, generator, inputs, outputs, bias=head_bias)]


def positive_integers(name: str, values: Any) -> tuple[int, ...]:
    """A tuple of positive integers, or ArgumentError."""
    given = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    if not all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) and one > 0 for one in given):
        raise ArgumentError(f"{name} must be positive integers, got {values!r}")
    return tuple(int(one) for one in given)


def network_outputs(network: Any, features: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Outputs (rows x outputs), computed in a precision of choice and rounded to float32, some rows at a time.

    Matrix products give equal rows results that differ in the last bit, by where in the matrix they stand. Computed in
    float64 and rounded, equal rows have equal outputs, so that ties stay ties.
    """
    network.eval()
    weights = {name: value.to(dtype) for name, value in network.state_dict().items()}
    step = max(1, _ROWS_AT_ONCE // max(features.shape[1], 1))
    found = []
    with torch.no_grad():
        for first in range(0, len(features), step):
            part = torch.from_numpy(np.ascontiguousarray(features[first : first + step])).to(dtype)
            found.append(torch.func.functional_call(network, weights, (part,)).float().numpy())
    return np.concatenate(found).reshape(len(features), -1)


# ---- objectives ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """A loss on outputs, and the score that outputs stand for.

    Ranking losses look at one output per row, the score. Regression learns labels in units of their spread and gives
    them back. Classification asks for each level of the labels above the lowest, "is the label at least this?", with
    an output each; the score is the expected label, see `rankbound.models.levels`.
    """

    losses: tuple[RankingLoss, ...]
    levels: NDArray[np.float64] | None = None
    spread: float = 1.0
    center: float = 0.0

    @property
    def pointwise(self) -> bool:
        """Whether outputs stand for labels, so that a constant added to all of them matters."""
        return isinstance(self.losses[0], PointwiseLoss)

    def __call__(self, outputs: Any, labels: NDArray[Any], offsets: NDArray[np.int64], weights: Any) -> Any:
        """What is to be made small."""
        if self.spread != 1.0:
            labels = labels / self.spread
        columns = outputs.reshape(len(labels), -1).unbind(dim=1)
        parts = [loss(part, labels, offsets, weights) for loss, part in zip(self.losses, columns, strict=True)]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()

    def fresh(self) -> Objective:
        """The same without what its losses remember of the labels they saw last."""
        return replace(self, losses=tuple(replace(loss) for loss in self.losses))

    def scores(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        """Scores of outputs (rows x outputs)."""
        if self.levels is not None:
            return expected_label(expit(outputs.astype(np.float64)), self.levels)
        return np.asarray(outputs[:, 0].astype(np.float64) * self.spread)


def make_objective(loss: Any, bounding: str, labels: NDArray[Any], min_gap: float = 0.0) -> Objective:
    """The objective of a loss, given by name or as it is, for these labels."""
    options = {} if bounding == "none" else {"bounding": bounding}
    found = get_loss(loss, **options)
    if found.reduction == "none":
        raise ArgumentError("a loss to train with must be reduced by 'mean' or 'sum', got reduction='none'")
    if min_gap:
        return Objective((_with_gap(found, min_gap),))
    if not isinstance(found, PointwiseLoss):
        return Objective((found,))
    if found.kind == "regression":
        return Objective((found,), spread=float(labels.std()), center=float(labels.mean()))
    if not isinstance(loss, str):
        return Objective((found,), levels=np.array([0.0, 1.0]))  # one question, asked by the loss itself
    levels = label_levels(labels)
    return Objective(tuple(PointwiseLoss("classification", rel=float(level)) for level in levels[1:]), levels=levels)


def _with_gap(loss: RankingLoss, gap: float) -> RankingLoss:
    if not isinstance(gap, (int, float, np.number)) or not 0 < gap < float("inf"):
        raise ArgumentError(f"min_gap must be a number from 0 on, got {gap!r}")
    if type(loss) is RankNetLoss:
        return _RankNetApart(alpha=loss.alpha, reduction=loss.reduction, gap=float(gap))
    if type(loss) is DirectRankerLoss:
        return _DirectRankerApart(alpha=loss.alpha, cost=loss.cost, reduction=loss.reduction, gap=float(gap))
    raise ArgumentError(f"min_gap is for the losses of pairs, RankNet and DirectRanker, got {type(loss).__name__}")


@dataclass(frozen=True)
class _RankNetApart(RankNetLoss):
    """RankNet's loss of the pairs whose labels lie more than ``gap`` apart."""

    gap: float = field(default=0.0, kw_only=True)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        return _wide_pairs(super()._plan(labels, offsets), self.gap)


@dataclass(frozen=True)
class _DirectRankerApart(DirectRankerLoss):
    """DirectRanker's loss of the pairs whose labels lie more than ``gap`` apart."""

    gap: float = field(default=0.0, kw_only=True)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        return _wide_pairs(super()._plan(labels, offsets), self.gap)


def _wide_pairs(plan: Plan, gap: float) -> Plan:
    """The plan with only such pairs; a query without one has nothing to teach."""
    falling = plan.sorted(plan.labels).astype(np.float64)  # within each query
    query = plan.per_item(np.arange(len(plan.sizes)))
    # one ascending key for all queries, so that one search serves them: queries lie further apart than labels
    key = query * (2 * (falling.max(initial=0.0) + gap) + 1) - falling
    plan.columns_from = np.searchsorted(key, key + gap, side="right") - plan.offsets[query]
    below = plan.per_item(plan.sizes) - plan.columns_from
    plan.rows = np.bincount(query, below > 0, minlength=len(plan.sizes)).astype(np.int64)
    plan.constants = 1 / np.maximum(np.bincount(query, below, minlength=len(plan.sizes)), 1)
    return plan
