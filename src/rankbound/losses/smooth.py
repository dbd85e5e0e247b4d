"""Smooth measures as losses: a measure with its rank function replaced by R_i = 1 + sum_{j≠i} σ(alpha (f_j - f_i))."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import is_between
from rankbound.errors import ArgumentError, DataError
from rankbound.losses import long_lists, reference, smooth_kernel
from rankbound.losses.base import KernelResult, MeasureLoss, positive
from rankbound.losses.compiling import running
from rankbound.losses.list_kernel import soft_rank_pass
from rankbound.losses.plans import Plan, plan_rows
from rankbound.losses.sigmoids import LOGISTIC, Sigmoid, get_sigmoid
from rankbound.measures.discounts import LOG2
from rankbound.measures.label_counts import LabelCounts
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["APLoss", "KendallTauLoss", "NDCGLoss", "NRBPLoss", "PrecisionLoss", "RRLoss", "SmoothLoss", "SoftRankLoss"]

DCG_OF_GAIN = {"exp": "exp-log2", "linear": "log2"}


@dataclass(frozen=True)
class SmoothLoss(MeasureLoss):
    """A measure of smooth ranks.

    Parameters
    ----------
    k:
        Cutoff, made smooth as well: a term counts by σ(beta (k + 1/2 - R)). None looks at the whole list.
    alpha:
        Slope of the steps that make up a rank. Large alpha comes near the true measure and has small gradients away
        from ties.
    beta:
        Slope of the smooth cutoff.
    sigmoid:
        "logistic", "tanh", "arctan", "erf" or "relu".
    """

    k: int | None = None
    alpha: float = field(default=1.0, kw_only=True)
    beta: float = field(default=1.0, kw_only=True)
    sigmoid: str = field(default="logistic", kw_only=True)
    _code: ClassVar[int]

    def __post_init__(self) -> None:
        positive("k", self.k, whole=True)
        positive("alpha", self.alpha)
        positive("beta", self.beta)
        get_sigmoid(self.sigmoid)
        super().__post_init__()

    @property
    def _shape(self) -> Sigmoid:
        return get_sigmoid(self.sigmoid)

    def _persistence(self) -> float:
        return 0.5  # of nRBP; no other kernel looks at it

    def _long_queries(self, plan: Plan) -> NDArray[np.int64]:
        """Queries with so many pairs that sums of logistics are better had from series than one by one."""
        if self._shape.code != LOGISTIC or self._code not in long_lists.MEASURES:
            return np.zeros(0, np.int64)
        found = np.flatnonzero(plan.rows * plan.sizes >= long_lists.LONG)
        if self._code == smooth_kernel.PAIRS:  # of two levels only: Kendall's tau has a start of columns for each label
            found = found[plan.columns_from[plan.offsets[found]] == plan.rows[found]]
        return found

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        values = np.zeros(len(plan.rows))
        gradient = np.zeros_like(scores)
        hessian = np.zeros_like(scores) if with_hessian else scores[:0].copy()
        alpha, beta, k, p = self.alpha * self._shape.scale, float(self.beta), float(self.k or 0), self._persistence()
        long = np.zeros(0, np.int64) if with_hessian else self._long_queries(plan)
        rows = plan.rows
        if len(long):
            rows = plan.rows.copy()
            rows[long] = 0
        with running(plan.pairs) as threads:
            smooth_kernel.smooth_pass(
                scores, plan.offsets, plan.order, rows, plan.relevant, plan.columns_from, plan.weights,
                plan.constants, *plan.blocks(threads), self._code, self._shape.code, alpha, beta, k, p,
                True, with_hessian, values, gradient, hessian,
            )  # fmt: skip
            for q in long:
                part = slice(plan.offsets[q], plan.offsets[q + 1])
                value, gradient[part] = long_lists.long_query(
                    scores[part], plan.order[part], int(plan.rows[q]), plan.weights[part], self._code, alpha, beta, k, p
                )
                values[q] = plan.constants[q] + value
        return KernelResult(values, gradient, hessian)


@dataclass(frozen=True)
class NDCGLoss(SmoothLoss):
    """Minus smooth nDCG, the mean over queries of -(1/ideal) sum_i g_i / log2(1 + R_i).

    Source: Qin, Liu & Li, ApproxNDCG, eq. 21; metric bounding thesis eq. 2.10. ``gain`` is "exp" (2^label - 1, as in
    these papers) or "linear" (as in trec_eval and in plain ``nDCG``); equal for binary labels. Only items with gain
    need a rank, so the cost is items with gain x items. For the parameters see `SmoothLoss`, `MeasureLoss` and
    `RankingLoss`.

    >>> import torch
    >>> scores = torch.tensor([2.0, 0.0, 1.0, 5.0, 5.0], requires_grad=True)
    >>> loss = NDCGLoss(alpha=50.0, reduction="none")(scores, [1, 0, 0, 1, 1], [0, 3, 5])
    >>> loss.tolist()  # the relevant item of the first query stands first; the second query has nothing to teach
    [-1.0, 0.0]
    """

    gain: str = field(default="exp", kw_only=True)
    _code: ClassVar[int] = smooth_kernel.NDCG

    def __post_init__(self) -> None:
        check_gain(self.gain)
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """nDCG with the gain and cutoff of the loss."""
        return ndcg_measure(self.gain, self.k)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        return ndcg_plan(labels, offsets, self.target)

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        return reference.ndcg(scores, labels, self._shape, self.alpha, self.k, self.beta, self.gain), 0.0


@dataclass(frozen=True)
class BinaryLoss(SmoothLoss):
    """A smooth measure of relevant or not: labels of at least ``rel`` are relevant."""

    rel: float = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        positive("rel", self.rel)
        super().__post_init__()

    def _named(self, family: str, **settings: float) -> Measure:
        inner = ", ".join(f"{name}={value!r}" for name, value in {"rel": self.rel, **settings}.items())
        return parse_measure(f"{family}({inner})" + (f"@{self.k}" if self.k else ""))

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        return plan_rows(labels, offsets, (labels >= self.rel).astype(np.int8), only_gain=True)


@dataclass(frozen=True)
class APLoss(BinaryLoss):
    """Minus smooth average precision.

    ``form="scores"`` counts relevant items above by scores, -(1/P) sum_i (1 + sum_j σ(alpha (f_j - f_i))) / R_i over
    relevant i, j (thesis eq. 2.11, metric optimization eq. 15). ``form="ranks"`` counts them by smooth ranks, with
    steps σ(beta (R_i - R_j)) (Qin, Liu & Li, ApproxAP, eq. 22, which tunes beta from 1 to 100). A cutoff keeps the
    divisor P.

    >>> import torch
    >>> APLoss(alpha=50.0)(torch.tensor([3.0, 2.0, 1.0]), [1, 0, 1], [0, 3]).item()  # -(1/1 + 2/3) / 2
    -0.83333...
    """

    form: str = field(default="scores", kw_only=True)

    def __post_init__(self) -> None:
        if self.form not in ("scores", "ranks"):
            raise ArgumentError(f"form must be 'scores' or 'ranks', got {self.form!r}")
        super().__post_init__()

    @property
    def _code(self) -> int:  # type: ignore[override]
        return smooth_kernel.AP if self.form == "scores" else smooth_kernel.COUPLED

    @property
    def target(self) -> Measure:
        """AP with the cutoff of the loss."""
        return self._named("AP")

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = super()._plan(labels, offsets)
        plan.weights = plan.per_item(1 / np.maximum(plan.relevant, 1))
        return plan

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        form = reference.ap if self.form == "scores" else reference.ap_of_ranks
        return form(scores, labels >= self.rel, self._shape, self.alpha, self.k, self.beta), 0.0


@dataclass(frozen=True)
class RRLoss(BinaryLoss):
    """Minus smooth reciprocal rank, -sum_i (1/R_i) prod_j (1 - σ(alpha (f_j - f_i))) over relevant i, j.

    Source: metric optimization eq. 16. Tied relevant items share the product, so a tie at the top falls short of RR.

    >>> import torch
    >>> RRLoss(alpha=50.0)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 1], [0, 3]).item()
    -0.5
    """

    _code: ClassVar[int] = smooth_kernel.RR

    @property
    def target(self) -> Measure:
        """RR with the cutoff of the loss."""
        return self._named("RR")

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        return reference.reciprocal_rank(
            scores, labels >= self.rel, self._shape, self.alpha, self.k, self.beta
        ), 0.0  # fmt: skip


@dataclass(frozen=True)
class NRBPLoss(BinaryLoss):
    """The loss behind nRBP: U = sum over relevant i and other j of σ(alpha (f_j - f_i)).

    With a sigmoid that is symmetric (all but relu) this is sum_i (R_i - 1) - P(P - 1)/2 of the metric optimization
    paper (eq. 19) and of the thesis (eq. 2.12): a lower bound of nRBP(p) for every p, already a loss, and 0 at best.
    With ``p`` given, minus smooth nRBP(p) itself, -(1 - p)/(1 - p^P) sum_i p^(R_i - 1), and only then a cutoff.

    >>> import torch
    >>> NRBPLoss(alpha=50.0)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 0], [0, 3]).item()  # one pair in the wrong order
    1.0
    """

    p: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.p is None and self.k is not None:
            raise ArgumentError(f"U looks at the whole list: a cutoff needs a persistence p, got k={self.k} and p=None")
        if self.p is not None and not is_between(self.p, 0, 1):
            raise ArgumentError(f"p must lie between 0 and 1, got {self.p}")
        super().__post_init__()

    @property
    def _code(self) -> int:  # type: ignore[override]
        return smooth_kernel.PAIRS if self.p is None else smooth_kernel.NRBP

    @property
    def target(self) -> Measure:
        """U, or nRBP(p) with the cutoff of the loss."""
        return self._named("U") if self.p is None else self._named("nRBP", p=self.p)

    def _persistence(self) -> float:
        return self.p or 0.5

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        if self.p is None:
            return plan_rows(labels, offsets, (labels >= self.rel).astype(np.int8), only_gain=True, lower_only=True)
        plan = super()._plan(labels, offsets)
        plan.weights = plan.per_item((1 - self.p) / (1 - self.p ** np.maximum(plan.relevant, 1)))
        return plan

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        relevant = labels >= self.rel
        if self.p is None:
            return reference.u(scores, relevant, self._shape, self.alpha), 0.0
        return reference.nrbp(scores, relevant, self._shape, self.alpha, self.k, self.beta, self.p), 0.0


@dataclass(frozen=True)
class PrecisionLoss(BinaryLoss):
    """Minus smooth precision, -(1/k) sum_i σ(beta (k + 1/2 - R_i)) over relevant i.

    Source: Qin, Liu & Li eq. 13 with its truncation made smooth. Queries of at most k items have nothing to teach.

    >>> import torch
    >>> PrecisionLoss(2, alpha=50.0, beta=50.0)(torch.tensor([3.0, 2.0, 1.0]), [1, 0, 1], [0, 3]).item()
    -0.5
    """

    k: int = 10
    _code: ClassVar[int] = smooth_kernel.PRECISION

    def __post_init__(self) -> None:
        if self.k is None:
            raise ArgumentError("PrecisionLoss needs a cutoff k, got None")
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """P@k."""
        return self._named("P")

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = super()._plan(labels, offsets)
        plan.rows[plan.sizes <= self.k] = 0
        plan.weights /= self.k
        return plan

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        return reference.precision(scores, labels >= self.rel, self._shape, self.alpha, self.k, self.beta), 0.0


@dataclass(frozen=True)
class KendallTauLoss(SmoothLoss):
    """Minus smooth Kendall's tau, -sum over pairs l_i > l_j of (1 - 2 σ(alpha (f_j - f_i))) / sqrt(these pairs * all).

    Its expected value is 0, so expectation bounding is refused. Kendall's tau takes no cutoff.

    >>> import torch
    >>> KendallTauLoss(alpha=50.0)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 2], [0, 3]).item()
    1.0
    """

    _code: ClassVar[int] = smooth_kernel.PAIRS

    def __post_init__(self) -> None:
        if self.k is not None:
            raise ArgumentError(f"Kendall's tau takes no cutoff, got k={self.k}")
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """Tau."""
        return parse_measure("Tau")

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = plan_rows(labels, offsets, labels, only_gain=False, lower_only=True)
        unequal = self.target.definition.all_pairs(self.target, LabelCounts.from_labels(labels, offsets))  # type: ignore[attr-defined]
        norm = np.maximum(np.sqrt(unequal * (plan.sizes * (plan.sizes - 1) / 2)), 1)  # below 1 only where it is 0
        plan.constants = unequal / norm
        plan.weights = plan.per_item(-2 / norm)
        return plan

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        return reference.kendall_tau(scores, labels, self._shape, self.alpha), 0.0


@dataclass(frozen=True)
class SoftRankLoss(MeasureLoss):
    """Minus SoftNDCG, the expected nDCG when each score carries Gaussian noise of standard deviation ``noise``.

    Source: Taylor et al., SoftRank, the baseline of Qin, Liu & Li. The rank of an item is 1 plus one coin flip per
    rival, which wins with probability Φ((f_j - f_i) / (noise √2)). The flips count as independent, which two of them
    are not
    quite; the distribution of their sum costs O(N²) per item with gain.

    >>> import torch
    >>> SoftRankLoss(noise=0.01)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 0], [0, 3]).item()  # -1 / log2(3)
    -0.63092...
    """

    k: int | None = None
    noise: float = field(default=1.0, kw_only=True)
    gain: str = field(default="exp", kw_only=True)

    def __post_init__(self) -> None:
        positive("k", self.k, whole=True)
        positive("noise", self.noise)
        check_gain(self.gain)
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """nDCG with the gain and cutoff of the loss."""
        return ndcg_measure(self.gain, self.k)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        return ndcg_plan(labels, offsets, self.target)

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:  # noqa: ARG002
        exact = scores.astype(np.float64)
        values, gradient, hessian = np.zeros(len(plan.rows)), np.zeros_like(exact), np.zeros_like(exact)
        table = LOG2.table(int(plan.sizes.max(initial=1)))
        with running(plan.pairs * table.size) as threads:
            soft_rank_pass(
                exact, plan.offsets, plan.order, plan.rows, plan.weights, *plan.blocks(threads),
                1 / (2 * self.noise), float(self.k or 0), table, values, gradient, hessian,
            )  # fmt: skip
        return KernelResult(values, gradient.astype(scores.dtype), hessian.astype(scores.dtype))

    def _reference(self, scores: Any, labels: Any) -> tuple[Any, float]:
        return reference.soft_ndcg(scores, labels, self.noise, self.k, self.gain), 0.0


# ---- shared by the losses of nDCG ------------------------------------------------------------------------------------


def check_gain(gain: str) -> None:
    """Refuse a gain that is neither "exp" nor "linear"."""
    if gain not in DCG_OF_GAIN:
        raise ArgumentError(f"gain must be 'exp' or 'linear', got {gain!r}")


def ndcg_measure(gain: str, k: int | None) -> Measure:
    """nDCG with a gain and a cutoff."""
    return parse_measure(f"nDCG(dcg='{DCG_OF_GAIN[gain]}')" + (f"@{k}" if k else ""))


def ndcg_plan(labels: NDArray[Any], offsets: NDArray[np.int64], measure: Measure, by_label: bool = False) -> Plan:
    """Rows for the items with gain, weighed by gain over the ideal DCG; ``by_label`` compares with lower labels."""
    if labels.max(initial=0) > 1000:
        raise DataError(f"labels must be at most 1000 for a loss of nDCG, got {labels.max()}")
    levels = labels if by_label else (labels > 0).astype(np.int8)
    plan = plan_rows(labels, offsets, levels, only_gain=not by_label, lower_only=by_label)
    ideal = measure.definition.normalizer(measure, LabelCounts.from_labels(labels, offsets))  # type: ignore[attr-defined]
    gains = measure.definition.gains(measure, labels)  # type: ignore[attr-defined]
    if not by_label:  # equal gains have nothing to teach, whatever they are
        uneven = np.zeros(len(ideal), dtype=bool)
        full = np.flatnonzero(plan.sizes > 0)
        starts = plan.offsets[:-1][full]
        if len(full):
            uneven[full] = np.maximum.reduceat(labels, starts) > np.minimum.reduceat(labels, starts)
        plan.rows = np.where(uneven, plan.relevant, 0)
    plan.weights = plan.sorted(gains / plan.per_item(np.where(ideal > 0, ideal, 1)))
    return plan
