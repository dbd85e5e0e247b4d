"""Cross entropy of a list: softmax of the scores against labels, gains, or the random targets of XE-NDCG."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.losses.base import KernelResult, RankingLoss
from rankbound.losses.compiling import threads_for
from rankbound.losses.lazy_torch import torch
from rankbound.losses.list_kernel import softmax_pass
from rankbound.losses.noise import check_seed, generator_for
from rankbound.losses.plans import Plan
from rankbound.losses.stochastic import StochasticLoss
from rankbound.losses.workers import run_blocks
from rankbound.measures.gains import exponential_gain, linear_gain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.buckets import Layout, Result

__all__ = [
    "SoftmaxLoss",
    "XENDCGLoss",
    "check_temperature",
    "cross_entropy",
    "per_query",
    "run_softmax",
    "unsorted_plan",
    "vectorized_softmax",
]

_GAINS = {"exp": exponential_gain, "linear": linear_gain}
_MOST_TARGET = 1e30  # a loss in float32 must not overflow


@dataclass(frozen=True)
class SoftmaxLoss(StochasticLoss):
    """Softmax cross entropy, -sum_i t_i log softmax(f / temperature)_i, with t the labels or the gains of the items.

    Parameters
    ----------
    target:
        "labels" or "gains".
    gain:
        The gain of a label if the target is the gains: "exp" (2^label - 1) or "linear" (the label).
    normalize:
        Divide t by its sum, so that every query counts alike. By default, as in Rax, t is taken as it is, and queries
        with many relevant items or high labels count more.
    temperature:
        Divides the scores. It matters where other parts of a model use the scores too.

    Source: Bruch et al., An analysis of the softmax cross entropy loss for learning-to-rank with binary relevance,
    where it is shown to bound mean reciprocal rank and nDCG. It differs from `ListNetLoss`, whose target is the softmax
    of the labels and so never 0. Queries without a positive target and queries with equal labels are not informative.
    The hessian is sum_j t_j * p_i (1 - p_i) / temperature², with p the softmax. For ``noise``, ``draws`` and ``seed``
    (Bruch et al., A stochastic treatment of learning to rank scoring functions) see `StochasticLoss`.

    >>> import torch
    >>> SoftmaxLoss()(torch.tensor([0.0, 0.0]), [2, 0], [0, 2]).item()  # 2 log(2)
    1.386294...
    >>> SoftmaxLoss("gains")(torch.tensor([0.0, 0.0]), [2, 0], [0, 2]).item()  # 3 log(2)
    2.079441...
    """

    target: str = "labels"
    gain: str = field(default="exp", kw_only=True)
    normalize: bool = field(default=False, kw_only=True)
    temperature: float = field(default=1.0, kw_only=True)
    _by_pairs: ClassVar[bool] = False
    _tables: ClassVar[float] = 20.0

    def __post_init__(self) -> None:
        if self.target not in ("labels", "gains"):
            raise ArgumentError(f"target must be 'labels' or 'gains', got {self.target!r}")
        _check_gain(self.gain)
        _check_bool("normalize", self.normalize)
        check_temperature("temperature", self.temperature)
        super().__post_init__()

    def _target(self, labels: NDArray[Any]) -> NDArray[np.float64]:
        return linear_gain(labels) if self.target == "labels" else _GAINS[self.gain](labels)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = _plan_of_labels(labels, offsets)
        target = self._target(labels)
        total = per_query(np.add, target, offsets)
        if self.normalize:
            target = target / plan.per_item(np.where(total > 0, total, 1.0))
        elif total.max(initial=0.0) > _MOST_TARGET:
            raise DataError(
                f"labels must have {self.target} that sum to at most {_MOST_TARGET:g} per query, or normalize must be "
                f"True, got {total.max():g}"
            )
        plan.weights = target
        return plan

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:  # noqa: ARG002
        return run_softmax(scores, plan.weights, plan, self.temperature)

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:  # noqa: ARG002
        return vectorized_softmax(scores, layout, self.temperature)

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        target = self._target(labels)
        if self.normalize:
            target = target / target.sum()
        return cross_entropy(scores, target, self.temperature), 0.0


@dataclass(frozen=True)
class XENDCGLoss(RankingLoss):
    """XE-NDCG, the cross entropy of softmax(f) and targets phi_i = (2^l_i - gamma_i) / sum_j (2^l_j - gamma_j).

    Parameters
    ----------
    gain:
        "exp" as above, or "linear" for targets in proportion to l_i + 1 - gamma_i.
    deterministic:
        Take the mean 1/2 for every gamma_i. By default gamma_i is uniform on (0, 1) and drawn anew for other scores.
    seed:
        Seed of the draws. They are a function of the seed, the scores and the offsets (see `rankbound.losses.noise`).

    Source: Bruch, An alternative cross entropy loss for learning-to-rank, where it is shown to bound nDCG; it is the
    objective ``rank_xendcg`` of LightGBM. There gradient and hessian are an approximation of third order; here they are
    those of the cross entropy itself, p_i - phi_i and p_i (1 - p_i). Queries with equal labels are not informative.

    >>> import torch
    >>> XENDCGLoss(deterministic=True)(torch.tensor([0.0, 0.0]), [1, 0], [0, 2]).item()  # log(2), whatever phi
    0.693147...
    """

    gain: str = field(default="exp", kw_only=True)
    deterministic: bool = field(default=False, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    _by_pairs: ClassVar[bool] = False
    _tables: ClassVar[float] = 20.0

    def __post_init__(self) -> None:
        _check_gain(self.gain)
        _check_bool("deterministic", self.deterministic)
        check_seed(self.seed)
        super().__post_init__()

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = _plan_of_labels(labels, offsets)
        plan.weights = _GAINS[self.gain](labels)
        return plan

    def _targets(self, scores: NDArray[Any], plan: Plan) -> NDArray[np.float64]:
        """The target of every item, which belongs to these scores."""
        gamma: Any = 0.5
        if not self.deterministic:
            gamma = generator_for(self.seed, scores, plan.offsets).random(len(scores), dtype=np.float32)
        phi = plan.weights + (1.0 - gamma)  # positive, because gamma is below 1
        return np.asarray(phi / plan.per_item(per_query(np.add, phi, plan.offsets)))

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:  # noqa: ARG002
        return run_softmax(scores, self._targets(scores, plan), plan, 1.0)

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:  # noqa: ARG002
        from rankbound.losses.device_noise import noise_for  # needs torch
        from rankbound.losses.vector_lists import run_softmax as run_bucket

        gamma = torch.full_like(scores, 0.5)
        if not self.deterministic:
            gamma = noise_for(self.seed, scores, layout).uniform()
        table, drawn = layout.with_padding(scores), layout.with_padding(1 - gamma.to(layout.exact))

        def run(bucket: Any, _: Any) -> Result:
            phi = (bucket.exact_weights + drawn[bucket.items]) * bucket.inside
            return run_bucket(bucket, table[bucket.items], phi / phi.sum(1, keepdim=True), 1.0)

        return layout.run(run)

    def reference(self, scores: Any, plan: Plan) -> Any:
        """Compute the loss per query in torch operations, with the same targets as the kernel."""
        targets = self._targets(scores.detach().cpu().numpy(), plan)
        values = []
        for lo, hi, active in zip(plan.offsets[:-1], plan.offsets[1:], plan.active, strict=True):
            value = cross_entropy(scores[lo:hi], targets[lo:hi], 1.0) if active else scores[lo:hi].sum() * 0
            values.append(value)
        return torch.stack(values) if values else scores[:0]

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        return self.reference(scores, self._plan(labels, np.array([0, len(labels)])))[0], 0.0


# ---- shared by the losses of softmax and of distillation -------------------------------------------------------------


def run_softmax(scores: NDArray[Any], target: NDArray[np.float64], plan: Plan, temperature: float) -> KernelResult:
    """Run the kernel of the cross entropy of softmax(scores / temperature) and a target per item."""
    exact = scores.astype(np.float64)
    values, gradient, hessian = np.zeros(len(plan.rows)), np.zeros_like(exact), np.zeros_like(exact)
    blocks = plan.blocks(threads_for(5 * len(scores)))  # an item takes about as long as five pairs
    run_blocks(
        softmax_pass, blocks, exact, plan.offsets, target, plan.rows > 0, 1 / temperature, values, gradient, hessian
    )
    with np.errstate(over="ignore"):
        return KernelResult(values, gradient.astype(scores.dtype), hessian.astype(scores.dtype))


def vectorized_softmax(scores: Any, layout: Layout, temperature: float) -> Result:
    """The cross entropy of softmax(scores / temperature) and the weights of the plan in torch operations."""
    from rankbound.losses.vector_lists import run_softmax as run_bucket  # needs torch

    table = layout.with_padding(scores)
    return layout.run(lambda bucket, _: run_bucket(bucket, table[bucket.items], bucket.exact_weights, 1 / temperature))


def cross_entropy(scores: Any, target: NDArray[np.float64], temperature: float) -> Any:
    """-sum_i target_i log softmax(scores / temperature)_i of one query, in torch."""
    weights = torch.as_tensor(target, dtype=scores.dtype, device=scores.device)
    return -(weights * torch.log_softmax(scores / temperature, 0)).sum()


def unsorted_plan(labels: NDArray[Any], offsets: NDArray[np.int64], informative: NDArray[np.bool_]) -> Plan:
    """Make a plan that keeps the items in their order and has a row for each item of the informative queries."""
    sizes = np.diff(offsets)
    none = np.zeros(len(sizes), np.int64)
    order = np.arange(len(labels)) - np.repeat(offsets[:-1], sizes)
    return Plan(
        labels, offsets, order, np.where(informative, sizes, 0), none, np.zeros(len(labels), np.int64),
        np.ones(len(labels)), np.zeros(len(sizes)), np.zeros(len(sizes)),
    )  # fmt: skip


def per_query(function: np.ufunc, values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Reduce one value per item to one value per query by np.add, np.maximum or np.minimum; 0 for empty queries."""
    result = np.zeros(len(offsets) - 1, values.dtype)
    full = np.flatnonzero(offsets[1:] > offsets[:-1])
    if len(full):
        result[full] = function.reduceat(values, offsets[:-1][full])
    return result


def _plan_of_labels(labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
    """Make a plan whose informative queries are those with different labels (none is negative)."""
    return unsorted_plan(
        labels, offsets, per_query(np.maximum, labels, offsets) > per_query(np.minimum, labels, offsets)
    )


def check_temperature(name: str, value: float) -> None:
    """Raise ArgumentError unless a temperature is a positive number from 1e-6 to 1e6."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-6 <= value <= 1e6:
        raise ArgumentError(f"{name} must be a number from 1e-6 to 1e6, got {value!r}")


def _check_gain(gain: str) -> None:
    if gain not in tuple(_GAINS):
        raise ArgumentError(f"gain must be 'exp' or 'linear', got {gain!r}")


def _check_bool(name: str, value: bool) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False, got {value!r}")
