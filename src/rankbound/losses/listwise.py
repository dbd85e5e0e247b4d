"""Losses of whole lists and of single items: softmax cross entropy, ListMLE, distillation, regression, classification.

Cross entropies of a softmax differ in their targets: labels, gains, the softmax of the labels (ListNet) or of a
teacher's scores (distillation), or random numbers that belong to the gains (XE-NDCG).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import floats
from rankbound.errors import ArgumentError, DataError
from rankbound.kernels import ARRAY, FLOAT, Arguments, kernel, run
from rankbound.losses.base import Evaluated, RankingLoss, positive
from rankbound.losses.lazy_torch import torch
from rankbound.losses.noise import check_seed, generator_for, noise_for
from rankbound.losses.pairwise import SOFT, PairLoss, PairOptions
from rankbound.losses.plans import Plan, differs, sort_by_level
from rankbound.losses.stochastic import StochasticLoss
from rankbound.losses.swaps import plan_all_pairs
from rankbound.measures.gains import exponential_gain, linear_gain

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rankbound.losses.padded import Bucket, Layout

_GAINS = {"exp": exponential_gain, "linear": linear_gain}
_MOST_TARGET = 1e30  # a loss in float32 must not overflow
_MOST_SCORE = 1e30  # of a teacher: differences and quotients of scores stay far from overflow


# ---- kernels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class ListPlan(Plan):
    """The plan of a loss of lists, and what it makes of the labels: one number per entry of ``order``."""

    target: NDArray[np.float64]


class _ListArguments(Arguments):
    """The struct of the kernels of lists."""

    _fields_ = (
        *((name, ARRAY) for name in ("scores", "queries", "offsets", "order", "target")),
        ("scale", FLOAT),
        ("outer", FLOAT),
        *((name, ARRAY) for name in ("values", "gradient", "hessian")),
    )


@dataclass(frozen=True)
class _ListLoss(RankingLoss):
    """A loss of lists: a kernel, or the formula where there is none."""

    _by_pairs: ClassVar[bool] = False
    _tables: ClassVar[float] = 20.0
    _name: ClassVar[str] = "softmax"  # of the kernel

    @property
    def _scale(self) -> float:
        """What the scores are multiplied by."""
        return 1.0

    def _target(self, scores: NDArray[Any], plan: Any) -> NDArray[np.float64] | None:  # noqa: ARG002
        """One number per item, which the kernel of the softmax needs."""
        return plan.target  # type: ignore[no-any-return]

    def _run_bounded(self, scores: NDArray[Any], plan: Any, with_hessian: bool, factor: float) -> Evaluated:
        function = kernel(f"{self._name}_f{8 * scores.itemsize}", _ListArguments)
        if function is None:
            return self._run_formula(scores, plan, with_hessian, factor)
        losses, gradient = np.zeros(len(plan.rows)), np.zeros_like(scores)
        hessian = np.zeros_like(scores) if with_hessian else None
        arguments = _ListArguments(
            scores=scores,
            queries=plan.by_cost,
            offsets=plan.offsets,
            order=plan.order,
            target=self._target(scores, plan),
            scale=self._scale,
            outer=factor,
            values=losses,
            gradient=gradient,
            hessian=hessian,
        )
        run(function, arguments, len(plan.by_cost), 5 * len(scores))  # an item takes about as long as five pairs
        return Evaluated(losses, gradient, scores[:0] if hessian is None else hessian)

    def _formula(self, bucket: Bucket, x: Tensor) -> Tensor:
        from rankbound.losses.pair_formulas import softmax_cross_entropy  # needs torch

        return softmax_cross_entropy(bucket, x, _target_of(bucket), self._scale)


def _target_of(bucket: Bucket) -> Tensor:
    return bucket.of_items("target", bucket.layout.plan.target, exact=True)


def _plan_lists(
    labels: NDArray[Any], offsets: NDArray[np.int64], informative: NDArray[np.bool_], target: NDArray[np.float64]
) -> ListPlan:
    """Make a plan that keeps the items in their order and has a row for each item of the informative queries."""
    sizes = np.diff(offsets)
    order = np.arange(len(labels)) - np.repeat(offsets[:-1], sizes)
    return ListPlan(
        labels=labels,
        offsets=offsets,
        order=order,
        rows=np.where(informative, sizes, 0),
        target=np.ascontiguousarray(target, np.float64),
    )


def _reduce(function: np.ufunc, values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Reduce one value per item to one per query by np.add, np.maximum or np.minimum; 0 for empty queries."""
    result = np.zeros(len(offsets) - 1, values.dtype)
    full = np.flatnonzero(offsets[1:] > offsets[:-1])
    if len(full):
        result[full] = function.reduceat(values, offsets[:-1][full])
    return result


def _softmax(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The softmax of the values of each query."""
    sizes = np.diff(offsets)
    exponentials = np.exp(values - np.repeat(_reduce(np.maximum, values, offsets), sizes))
    return np.asarray(exponentials / np.repeat(_reduce(np.add, exponentials, offsets), sizes))


# ---- softmax cross entropy -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ListNetLoss(_ListLoss):
    """Cross entropy of the top-one probabilities of labels and scores: -sum_i softmax(l)_i log softmax(f)_i.

    Source: Cao et al., Learning to rank: from pairwise approach to listwise approach.

    >>> import torch
    >>> ListNetLoss()(torch.tensor([0.0, 0.0]), [1, 0], [0, 2]).item()  # log(2)
    0.693147...
    """

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> ListPlan:
        target = _softmax(np.asarray(labels, np.float64), offsets)
        return _plan_lists(labels, offsets, differs(labels, offsets), target)


@dataclass(frozen=True)
class SoftmaxLoss(StochasticLoss, _ListLoss):
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

    def __post_init__(self) -> None:
        if self.target not in ("labels", "gains"):
            raise ArgumentError(f"target must be 'labels' or 'gains', got {self.target!r}")
        _check_gain(self.gain)
        _check_bool("normalize", self.normalize)
        _check_temperature("temperature", self.temperature)
        super().__post_init__()

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> ListPlan:
        target = linear_gain(labels) if self.target == "labels" else _GAINS[self.gain](labels)
        total = _reduce(np.add, target, offsets)
        if self.normalize:
            target = target / np.repeat(np.where(total > 0, total, 1.0), np.diff(offsets))
        elif total.max(initial=0.0) > _MOST_TARGET:
            raise DataError(
                f"labels must have {self.target} that sum to at most {_MOST_TARGET:g} per query, or normalize must be "
                f"True, got {total.max():g}"
            )
        return _plan_lists(labels, offsets, differs(labels, offsets), target)

    @property
    def _scale(self) -> float:
        return 1 / self.temperature


@dataclass(frozen=True)
class XENDCGLoss(_ListLoss):
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

    def __post_init__(self) -> None:
        _check_gain(self.gain)
        _check_bool("deterministic", self.deterministic)
        check_seed(self.seed)
        super().__post_init__()

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> ListPlan:
        return _plan_lists(labels, offsets, differs(labels, offsets), _GAINS[self.gain](labels))

    def _target(self, scores: NDArray[Any], plan: Any) -> NDArray[np.float64]:
        """The target of every item, which belongs to these scores."""
        gamma: Any = 0.5
        if not self.deterministic:
            gamma = generator_for(self.seed, scores, plan.offsets).random(len(scores), dtype=np.float32)
        phi = plan.target + (1.0 - gamma)  # positive, because gamma is below 1
        return np.asarray(phi / plan.per_item(_reduce(np.add, phi, plan.offsets)))

    def _draw(self, scores: Tensor, layout: Layout) -> Tensor:
        """1 - gamma."""
        if self.deterministic:
            return torch.full_like(scores, 0.5, dtype=layout.exact)
        return 1 - noise_for(self.seed, scores, layout).uniform().to(layout.exact)

    def _formula(self, bucket: Bucket, x: Tensor, drawn: Tensor) -> Tensor:  # type: ignore[override]
        from rankbound.losses.pair_formulas import softmax_cross_entropy  # needs torch

        phi = bucket.fill_padding(_target_of(bucket) + drawn, 0.0)
        return softmax_cross_entropy(bucket, x, phi / phi.sum(1, keepdim=True), 1.0)


# ---- likelihood of an order ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ListMLELoss(_ListLoss):
    """-log likelihood of the order of labels under Plackett-Luce: sum_i log(sum_{j>=i} exp f_j) - f_i.

    Equal labels keep their input order. Source: Xia et al., Listwise approach to learning to rank.

    >>> import torch
    >>> ListMLELoss()(torch.tensor([0.0, 0.0, 0.0]), [2, 1, 0], [0, 3]).item()  # log(3!)
    1.791759...
    """

    _name: ClassVar[str] = "likelihood"

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        rows = np.where(differs(labels, offsets), np.diff(offsets), 0)
        return Plan(labels=labels, offsets=offsets, order=sort_by_level(labels, offsets), rows=rows)

    def _target(self, scores: NDArray[Any], plan: Any) -> None:
        """The order is all that counts."""

    def _formula(self, bucket: Bucket, x: Tensor) -> Tensor:
        from rankbound.losses.pair_formulas import likelihood_of_order  # needs torch

        return likelihood_of_order(bucket, x)


# ---- a teacher's scores ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DistillationLoss(_ListLoss, PairLoss):
    """Cross entropy between what a teacher's scores t, passed as ``labels``, and the student's scores f say of a list.

    Parameters
    ----------
    kind:
        "listwise": -sum_i softmax(t / teacher_temperature)_i log softmax(f / temperature)_i. "pairwise": the mean over
        all pairs of the binary cross entropy of σ((f_i - f_j) / temperature) and the target
        σ((t_i - t_j) / teacher_temperature).
    temperature:
        Divides the scores of the student. A higher temperature makes the student attend more to the items that the
        teacher ranks low.
    teacher_temperature:
        Divides the scores of the teacher; None for the temperature of the student.

    Source: Hinton, Vinyals & Dean, Distilling the knowledge in a neural network; Reddi et al., RankDistil: knowledge
    distillation for ranking. The listwise kind is the Kullback-Leibler divergence from the teacher plus the teacher's
    entropy, which is constant. Both kinds are smallest, with a gradient of 0, where f and t differ by a constant (with
    equal temperatures). Gradients shrink with 1/temperature²; Hinton et al. multiply the loss by temperature² where it
    is added to another.

    The teacher's scores are any finite numbers, negative ones included, and no label is cut off at 0. Every query with
    at least two items is informative, even if its teacher's scores are equal: these pull the student's scores together.
    The hessians are p_i (1 - p_i) / temperature² with p the softmax of the student, and the mean over pairs of
    σ (1 - σ) / temperature².

    >>> import torch
    >>> teacher, student = [2.5, -1.0, 0.3], torch.tensor([2.5, -1.0, 0.3], requires_grad=True)
    >>> DistillationLoss("pairwise")(student, teacher, [0, 3]).backward()
    >>> bool(student.grad.abs().max() < 1e-6)
    True
    """

    kind: str = "listwise"
    temperature: float = field(default=1.0, kw_only=True)
    teacher_temperature: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in ("listwise", "pairwise"):
            raise ArgumentError(f"kind must be 'listwise' or 'pairwise', got {self.kind!r}")
        _check_temperature("temperature", self.temperature)
        if self.teacher_temperature is not None:
            _check_temperature("teacher_temperature", self.teacher_temperature)
        super().__post_init__()

    def _checked_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        return floats("labels", labels, most=_MOST_SCORE)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        softening = self.temperature if self.teacher_temperature is None else self.teacher_temperature
        sizes = np.diff(offsets)
        if self.kind == "listwise":
            highest = np.repeat(_reduce(np.maximum, labels, offsets), sizes)
            return _plan_lists(labels, offsets, sizes > 1, _softmax((labels - highest) / softening, offsets))
        lowest, highest = (_reduce(function, labels, offsets) for function in (np.minimum, np.maximum))
        return plan_all_pairs(labels, offsets, (labels - np.repeat((lowest + highest) / 2, sizes)) / softening)

    @property
    def _scale(self) -> float:
        return 1 / self.temperature

    @property
    def _options(self) -> PairOptions:
        return PairOptions(SOFT, self._scale)

    gradient_and_hessian = RankingLoss.gradient_and_hessian  # that of pairs knows no other kind

    @property
    def _by_pairs(self) -> bool:  # type: ignore[override]
        return self.kind == "pairwise"

    @property
    def _tables(self) -> float:  # type: ignore[override]
        return 6.0 if self.kind == "pairwise" else 20.0

    def _run_bounded(self, scores: NDArray[Any], plan: Any, with_hessian: bool, factor: float) -> Evaluated:
        base = PairLoss if self.kind == "pairwise" else _ListLoss
        return base._run_bounded(self, scores, plan, with_hessian, factor)

    def _formula(self, bucket: Bucket, x: Tensor) -> Tensor:  # type: ignore[override]
        return (PairLoss if self.kind == "pairwise" else _ListLoss)._formula(self, bucket, x)


# ---- items -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PointwiseLoss(RankingLoss):
    """Mean over the items of a query of (f - l)² ("regression") or of the log loss of l >= rel ("classification").

    Every query with at least one item is informative here, even if all its labels are equal.

    >>> import torch
    >>> PointwiseLoss("regression")(torch.tensor([1.0, 3.0]), [0, 3], [0, 2]).item()
    0.5
    """

    kind: str = "regression"
    rel: float = field(default=1, kw_only=True)
    _by_pairs: ClassVar[bool] = False
    _tables: ClassVar[float] = 20.0

    def __post_init__(self) -> None:
        if self.kind not in ("regression", "classification"):
            raise ArgumentError(f"kind must be 'regression' or 'classification', got {self.kind!r}")
        positive("rel", self.rel)
        super().__post_init__()

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> ListPlan:
        target: Any = labels if self.kind == "regression" else labels >= self.rel
        return _plan_lists(labels, offsets, np.diff(offsets) > 0, target)

    def _run_bounded(self, scores: NDArray[Any], plan: Any, with_hessian: bool, factor: float) -> Evaluated:  # noqa: ARG002
        """In NumPy: what a kernel could save is nothing next to what a trainer does with each item."""
        f, weight = scores.astype(np.float64), plan.per_item(1 / np.maximum(plan.sizes, 1))
        if self.kind == "regression":
            with np.errstate(over="ignore"):  # an infinite loss raises DataError later
                error = f - plan.target
                loss, gradient, hessian = error**2, 2 * error, np.full_like(f, 2.0)
        else:
            loss = np.logaddexp(0, np.where(plan.target > 0, -f, f))
            probability = np.exp(-np.logaddexp(0, -f))
            gradient, hessian = probability - plan.target, probability * (1 - probability)
        losses = _reduce(np.add, loss * weight, plan.offsets)
        gradient, hessian = factor * weight * gradient, abs(factor) * weight * hessian
        return Evaluated(losses, gradient.astype(scores.dtype), hessian.astype(scores.dtype))

    def _formula(self, bucket: Bucket, x: Tensor) -> Tensor:
        from rankbound.losses.pair_formulas import classification, regression  # needs torch

        return (regression if self.kind == "regression" else classification)(bucket, x, _target_of(bucket))


# ---- checks ----------------------------------------------------------------------------------------------------------


def _check_temperature(name: str, value: float) -> None:
    """Raise ArgumentError unless a temperature is a positive number from 1e-6 to 1e6."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-6 <= value <= 1e6:
        raise ArgumentError(f"{name} must be a number from 1e-6 to 1e6, got {value!r}")


def _check_gain(gain: str) -> None:
    if gain not in tuple(_GAINS):
        raise ArgumentError(f"gain must be 'exp' or 'linear', got {gain!r}")


def _check_bool(name: str, value: bool) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False, got {value!r}")
