"""Smooth measures as losses: a measure with its ranks replaced by R_i = 1 + sum over j ≠ i of σ(alpha (f_j - f_i)).

`SmoothMeasureLoss` makes the loss of any measure that has one, users' own included. The classes named after measures
are the same loss with the options that their papers vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import is_between
from rankbound.errors import ArgumentError
from rankbound.losses import long_lists, reference, smooth_kernel
from rankbound.losses.base import KernelResult, MeasureLoss, positive
from rankbound.losses.compiling import threads_for
from rankbound.losses.lazy_torch import torch
from rankbound.losses.list_kernel import soft_rank_pass
from rankbound.losses.sigmoids import LOGISTIC, Sigmoid, get_sigmoid
from rankbound.losses.stochastic import StochasticLoss
from rankbound.losses.structures import structure_of
from rankbound.losses.workers import run_blocks
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.buckets import Layout, Result
    from rankbound.losses.plans import Plan

__all__ = [
    "NAMED_LOSSES",
    "APLoss",
    "ERRLoss",
    "KendallTauLoss",
    "NDCGLoss",
    "NRBPLoss",
    "PrecisionLoss",
    "RRLoss",
    "SmoothLoss",
    "SmoothMeasureLoss",
    "SoftRankLoss",
    "check_gain",
    "with_gain",
]

_DCG_OF_GAIN = {"exp": "exp-log2", "linear": "log2"}


@dataclass(frozen=True)
class SmoothLoss(StochasticLoss, MeasureLoss):
    """A measure of smooth ranks, of the scores or, with ``noise``, of scores with Gumbel noise (see `StochasticLoss`).

    Parameters
    ----------
    alpha:
        Slope of the steps that make up a rank. A large alpha approaches the true measure and has small gradients away
        from ties.
    beta:
        Slope of the smooth cutoff: under a cutoff k, a term counts by σ(beta (k + 1/2 - R)).
    sigmoid:
        "logistic", "tanh", "arctan", "erf" or "relu".
    """

    alpha: float = field(default=1.0, kw_only=True)
    beta: float = field(default=1.0, kw_only=True)
    sigmoid: str = field(default="logistic", kw_only=True)

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        positive("beta", self.beta)
        get_sigmoid(self.sigmoid)
        super().__post_init__()

    @cached_property
    def _structure(self) -> Any:
        return structure_of(self.target)

    @property
    def _sigmoid(self) -> Sigmoid:
        return get_sigmoid(self.sigmoid)

    @property
    def _code(self) -> int:
        """The structure as the kernel knows it."""
        return int(self._structure.code)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan: Plan = self._structure.smooth_plan(labels, offsets)
        return plan

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        return self._structure.smooth_value(scores, labels, self._sigmoid, self.alpha, self.beta), 0.0

    @property
    def _tables(self) -> float:  # type: ignore[override]
        return 2.0 if self._code == smooth_kernel.ADDITIVE and self._sigmoid.code == LOGISTIC else 5.0

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:
        from rankbound.losses.vector_discounts import discount_function  # needs torch
        from rankbound.losses.vector_smooth import SmoothForm, run_smooth

        discount = discount_function(self._structure, self._sigmoid.code, layout)
        form = SmoothForm(self._code, self._sigmoid.code, self._slope, float(self.beta), discount)
        table = layout.with_padding(scores)
        return layout.run(lambda bucket, memory: run_smooth(bucket, table[bucket.items], form, with_gradient, memory))

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        values = np.zeros(len(plan.rows))
        gradient = np.zeros_like(scores)
        hessian = np.zeros_like(scores) if with_hessian else None
        long = np.zeros(0, np.int64) if with_hessian else self._long_queries(plan)
        rows = plan.rows
        if len(long):
            rows = plan.rows.copy()
            rows[long] = 0
        structure, code, weights = self._structure, self._code, plan.weights
        given, totals = np.zeros((0, 0)), None
        threads = threads_for(plan.pairs)
        blocks = plan.blocks(threads)
        if structure.discount == smooth_kernel.GIVEN:
            given = self._discounts_of_rows(scores, plan, rows, blocks)
            if code == smooth_kernel.ADDITIVE:  # the derivatives are known: a sum of ranks has the same gradient
                query = plan.per_item(np.arange(len(rows)))
                totals = plan.constants + np.bincount(query, plan.weights * given[0], minlength=len(rows))
                code, weights, given = smooth_kernel.PAIRS, plan.weights * given[1], given[:0]
        run_blocks(
            smooth_kernel.smooth_pass_of(code, structure.discount), blocks,
            scores, plan.offsets, plan.order, rows, plan.relevant, plan.columns_from, weights, plan.constants,
            plan.cuts, plan.levels, plan.pair_weights, given, self._sigmoid.kernel_code,
            self._slope, float(self.beta), structure.parameter, values, gradient, hessian,
        )  # fmt: skip
        if totals is not None:
            values = np.where(rows > 0, totals, 0.0)
        for q in long:
            items = slice(plan.offsets[q], plan.offsets[q + 1])
            value, gradient[items] = self._long_query(scores[items], plan, q, items, threads)
            values[q] = plan.constants[q] + value
        return KernelResult(values, gradient, scores[:0].copy() if hessian is None else hessian)

    @property
    def _slope(self) -> float:
        """Slope of the sigmoid as the kernels have it."""
        return float(self.alpha * self._sigmoid.scale)

    def _discounts_of_rows(
        self, scores: NDArray[Any], plan: Plan, rows: NDArray[np.int64], blocks: Sequence[NDArray[np.int64]]
    ) -> NDArray[np.float64]:
        """Truncated discounts, and their derivatives, at the smooth ranks of the rows, in sorted order."""
        ranks = np.ones(len(scores))
        sigmoid = self._sigmoid.kernel_code
        run_blocks(smooth_kernel.rank_pass, blocks, scores, plan.offsets, plan.order, rows, sigmoid, self._slope, ranks)
        return np.stack(self._structure.truncated_discounts(ranks, plan.per_item(plan.cuts), self.beta))

    def _long_queries(self, plan: Plan) -> NDArray[np.int64]:
        """Queries with so many pairs that sums of logistics are computed faster by series than one by one."""
        if plan.pairs < long_lists.LONG:
            return np.zeros(0, np.int64)
        by_rows_alone = (smooth_kernel.CASCADE, smooth_kernel.COUPLED, smooth_kernel.FIRST_HIT)
        no_series = self._code in by_rows_alone or plan.pair_weights is not None
        if self._sigmoid.code != LOGISTIC or no_series:
            return np.zeros(0, np.int64)
        long = np.flatnonzero(plan.rows * plan.sizes >= long_lists.LONG)
        if self._code == smooth_kernel.PAIRS:  # with two levels only: every further level has columns of its own
            long = long[plan.columns_from[plan.offsets[long]] == plan.rows[long]]
        return long

    def _long_query(
        self, scores: NDArray[Any], plan: Plan, q: int, items: slice, threads: int
    ) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient of one long query."""
        structure, weights, cut, beta = self._structure, plan.weights[items], float(plan.cuts[q]), float(self.beta)
        query = (scores, plan.order[items], int(plan.rows[q]), self._slope, threads)
        if self._code == smooth_kernel.PAIRS:
            return long_lists.long_pairs(*query, weights)
        if self._code == smooth_kernel.PRECISION_SUM:
            return long_lists.long_precision_sum(*query, weights, beta, cut)
        if structure.discount != smooth_kernel.GIVEN:
            terms = long_lists.built_in_terms(structure.discount, weights, beta, cut, structure.parameter)
            return long_lists.long_additive(*query, terms)

        def terms_by_definition(ranks: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            value, slope = structure.truncated_discounts(ranks, np.array(cut), beta)
            return weights[: len(ranks)] * value, weights[: len(ranks)] * slope

        return long_lists.long_additive(*query, terms_by_definition)


@dataclass(frozen=True)
class SmoothMeasureLoss(SmoothLoss):
    """The smooth loss of any measure that has one, by its structure; minus the measure unless lower is better.

    Parameters
    ----------
    measure:
        A measure by name, or as an object; users' own measures too. A cutoff in its name is made smooth as well.
    gain:
        For measures with a parameter ``dcg``: "exp" (2^label - 1) or "linear". None takes the measure as it is.

    With R the smooth rank, the structures are: additive, sum_i g_i d(R_i) over the normalizer; cascade, sum_i q_i
    d(R_i) prod_j (1 - q_j σ(alpha (f_j - f_i))); precision sum, sum_i (1 + sum_j σ(alpha (f_j - f_i))) / R_i over
    relevant i and j and over the divisor; pairwise, the weights of the pairs times σ(alpha (f_low - f_high)).

    >>> import torch
    >>> SmoothMeasureLoss("R@2", alpha=50.0, beta=50.0)(torch.tensor([3.0, 2.0, 1.0]), [1, 0, 1], [0, 3]).item()
    -0.5
    """

    measure: str | Measure = "nDCG"
    gain: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        measure = parse_measure(self.measure)
        if self.gain is not None:
            check_gain(self.gain)
            if "dcg" not in measure.definition.parameters:
                raise ArgumentError(f"gain is for measures with a parameter dcg, got gain={self.gain!r} for {measure}")
        structure_of(measure)
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """The measure, with the gain of the loss."""
        return with_gain(parse_measure(self.measure), self.gain)


# ---- losses named after measures -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _NamedLoss(SmoothLoss):
    """A smooth loss named after a measure, whose parameters are options of the loss."""

    k: int | None = None
    measures: ClassVar[tuple[str, ...]] = ()  # the names under which `get_loss` finds the class

    def __post_init__(self) -> None:
        positive("k", self.k, whole=True)
        super().__post_init__()

    @classmethod
    def options_of(cls, measure: Measure, text: str) -> dict[str, Any] | None:  # noqa: ARG003 - for subclasses
        """Options of the class that stand for a measure of `measures`; None if it has other settings."""
        settings = dict(measure.settings)
        if not set(settings) <= set(cls.__dataclass_fields__):
            return None
        return settings | ({"k": measure.cutoff} if measure.cutoff else {})

    def _named(self, name: str, **settings: Any) -> Measure:
        inner = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        return parse_measure(f"{name}({inner})" + (f"@{self.k}" if self.k else ""))


@dataclass(frozen=True)
class NDCGLoss(_NamedLoss):
    """Minus smooth nDCG, the mean over queries of -(1/ideal) sum_i g_i / log2(1 + R_i).

    Parameters
    ----------
    k:
        Cutoff, made smooth as well; None for the whole list.
    gain:
        "exp" (2^label - 1, as in the papers) or "linear" (as in trec_eval and in the measure ``nDCG``); they are equal
        for binary labels.

    Source: Qin, Liu & Li, A general approximation framework for direct optimization of information retrieval measures
    (ApproxNDCG), eq. 21; Westerborg 2022, eq. 2.10. Only items with gain need a rank, so the cost is items with
    gain x items. For the other parameters see `SmoothLoss`, `MeasureLoss` and `RankingLoss`.

    >>> import torch
    >>> scores = torch.tensor([2.0, 0.0, 1.0, 5.0, 5.0], requires_grad=True)
    >>> loss = NDCGLoss(alpha=50.0, reduction="none")(scores, [1, 0, 0, 1, 1], [0, 3, 5])
    >>> loss.tolist()  # the relevant item of the first query is ranked first; the second query is not informative
    [-1.0, 0.0]
    """

    gain: str = field(default="exp", kw_only=True)
    measures: ClassVar[tuple[str, ...]] = ("nDCG",)

    def __post_init__(self) -> None:
        check_gain(self.gain)
        super().__post_init__()

    @classmethod
    def options_of(cls, measure: Measure, text: str) -> dict[str, Any] | None:  # noqa: ARG003
        """The cutoff; the gain is an option of the loss, whatever the measure says."""
        return {"k": measure.cutoff} if measure.cutoff else {}

    @property
    def target(self) -> Measure:
        """nDCG with the gain and cutoff of the loss."""
        return with_gain(self._named("nDCG"), self.gain)


@dataclass(frozen=True)
class _BinaryLoss(_NamedLoss):
    """A smooth measure of relevant items: those with a label of at least ``rel``."""

    rel: float = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        positive("rel", self.rel)
        super().__post_init__()


@dataclass(frozen=True)
class _TwoFormsLoss(_BinaryLoss):
    """A smooth measure that compares relevant items by their scores, or by their smooth ranks."""

    form: str = field(default="scores", kw_only=True)
    _code_of_ranks: ClassVar[int]

    def __post_init__(self) -> None:
        if self.form not in ("scores", "ranks"):
            raise ArgumentError(f"form must be 'scores' or 'ranks', got {self.form!r}")
        super().__post_init__()

    @property
    def _code(self) -> int:
        return self._code_of_ranks if self.form == "ranks" else super()._code

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        if self.form == "scores":
            return super()._reference(scores, labels)
        return self._structure.coupled_value(scores, labels, self._sigmoid, self.alpha, self.beta), 0.0


@dataclass(frozen=True)
class APLoss(_TwoFormsLoss):
    """Minus smooth average precision.

    ``form="scores"`` counts the relevant items above by scores, -(1/P) sum_i (1 + sum_j σ(alpha (f_j - f_i))) / R_i
    over relevant i and j (Westerborg 2022, eq. 2.11; Li, Urbano & Hanjalic, New insights into metric
    optimization, eq. 15). ``form="ranks"`` counts them by smooth ranks, with steps σ(beta (R_i - R_j)) (Qin, Liu & Li,
    ApproxAP, eq. 22, where beta is tuned from 1 to 100). A cutoff does not change the divisor P.

    >>> import torch
    >>> APLoss(alpha=50.0)(torch.tensor([3.0, 2.0, 1.0]), [1, 0, 1], [0, 3]).item()  # -(1/1 + 2/3) / 2
    -0.83333...
    """

    measures: ClassVar[tuple[str, ...]] = ("AP",)
    _code_of_ranks: ClassVar[int] = smooth_kernel.COUPLED

    @property
    def target(self) -> Measure:
        """AP with the cutoff of the loss."""
        return self._named("AP", rel=self.rel)


@dataclass(frozen=True)
class RRLoss(_TwoFormsLoss):
    """Minus smooth reciprocal rank, -sum_i (1/R_i) prod_j (1 - σ(alpha (f_j - f_i))) over relevant i and j.

    Source: Li, Urbano & Hanjalic, New insights into metric optimization, eq. 16. ``form="ranks"`` has the steps
    σ(beta (R_i - R_j)) between smooth ranks in place of those between scores, as the code of the paper has. The product
    is divided among tied relevant items, so that a tie at the top is smaller than RR.

    >>> import torch
    >>> RRLoss(alpha=50.0)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 1], [0, 3]).item()
    -0.5
    """

    measures: ClassVar[tuple[str, ...]] = ("RR",)
    _code_of_ranks: ClassVar[int] = smooth_kernel.FIRST_HIT

    @property
    def target(self) -> Measure:
        """RR with the cutoff of the loss."""
        return self._named("RR", rel=self.rel)


@dataclass(frozen=True)
class ERRLoss(_NamedLoss):
    """Minus smooth expected reciprocal rank, -sum_i (q_i/R_i) prod_j (1 - q_j σ(alpha (f_j - f_i))).

    q = (2^label - 1) / 2^max_rel is the probability that an item satisfies the user. The measure is that of Chapelle et
    al., Expected reciprocal rank for graded relevance; its ranks and its product are made smooth as in `RRLoss`.

    >>> import torch
    >>> ERRLoss(alpha=50.0, max_rel=1)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 1], [0, 3]).item()  # -(1/4 + 1/12)
    -0.33333...
    """

    max_rel: float = field(default=4, kw_only=True)
    measures: ClassVar[tuple[str, ...]] = ("ERR",)

    def __post_init__(self) -> None:
        positive("max_rel", self.max_rel)
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """ERR with the cutoff of the loss."""
        return self._named("ERR", max_rel=self.max_rel)


@dataclass(frozen=True)
class NRBPLoss(_BinaryLoss):
    """The loss behind nRBP: U = sum over relevant i and other j of σ(alpha (f_j - f_i)).

    With a symmetric sigmoid (all but relu) this is sum_i (R_i - 1) - P(P - 1)/2 of Li, Urbano & Hanjalic, New insights
    into metric optimization (eq. 19), and of Westerborg 2022 (eq. 2.12): a lower bound of nRBP(p) for every
    p, and 0 for the best ranking. Lower values are better. With ``p``, the loss is minus smooth nRBP(p) itself,
    -(1 - p)/(1 - p^P) sum_i p^(R_i - 1), and it takes a cutoff.

    >>> import torch
    >>> NRBPLoss(alpha=50.0)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 0], [0, 3]).item()  # one pair in the wrong order
    1.0
    """

    p: float | None = field(default=None, kw_only=True)
    measures: ClassVar[tuple[str, ...]] = ("nRBP", "U")

    def __post_init__(self) -> None:
        if self.p is None and self.k is not None:
            raise ArgumentError(f"U has no cutoff: a cutoff needs a persistence p, got k={self.k} and p=None")
        if self.p is not None and not is_between(self.p, 0, 1):
            raise ArgumentError(f"p must lie between 0 and 1, got {self.p}")
        super().__post_init__()

    @classmethod
    def options_of(cls, measure: Measure, text: str) -> dict[str, Any] | None:
        """``nRBP`` without persistence or cutoff stands for U."""
        options = super().options_of(measure, text)
        if options is not None and ("p=" in text.replace(" ", "") or "k" in options):
            options["p"] = measure.number("p")
        return options

    @property
    def target(self) -> Measure:
        """U, or nRBP(p) with the cutoff of the loss."""
        return self._named("U", rel=self.rel) if self.p is None else self._named("nRBP", rel=self.rel, p=self.p)


@dataclass(frozen=True)
class PrecisionLoss(_BinaryLoss):
    """Minus smooth precision, -(1/k) sum_i σ(beta (k + 1/2 - R_i)) over relevant i.

    Source: Qin, Liu & Li, eq. 13, with its truncation made smooth. Queries of at most k items are not informative.

    >>> import torch
    >>> PrecisionLoss(2, alpha=50.0, beta=50.0)(torch.tensor([3.0, 2.0, 1.0]), [1, 0, 1], [0, 3]).item()
    -0.5
    """

    k: int = 10
    measures: ClassVar[tuple[str, ...]] = ("P",)

    def __post_init__(self) -> None:
        if self.k is None:
            raise ArgumentError("PrecisionLoss needs a cutoff k, got None")
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """P@k."""
        return self._named("P", rel=self.rel)


@dataclass(frozen=True)
class KendallTauLoss(_NamedLoss):
    """Minus smooth Kendall's tau, -sum over pairs l_i > l_j of (1 - 2 σ(alpha (f_j - f_i))) / sqrt(these pairs * all).

    Its expected value is 0, so that expectation bounding raises ArgumentError. Kendall's tau has no cutoff.

    >>> import torch
    >>> KendallTauLoss(alpha=50.0)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 2], [0, 3]).item()
    1.0
    """

    measures: ClassVar[tuple[str, ...]] = ("Tau",)

    def __post_init__(self) -> None:
        if self.k is not None:
            raise ArgumentError(f"Kendall's tau has no cutoff, got k={self.k}")
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """Tau."""
        return parse_measure("Tau")


NAMED_LOSSES: dict[str, type[_NamedLoss]] = {
    name: loss
    for loss in (NDCGLoss, APLoss, RRLoss, ERRLoss, NRBPLoss, PrecisionLoss, KendallTauLoss)
    for name in loss.measures
}


# ---- SoftRank --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftRankLoss(MeasureLoss):
    """Minus SoftNDCG, the expected nDCG when each score carries Gaussian noise of standard deviation ``noise``.

    Source: Taylor et al., SoftRank: optimizing non-smooth rank metrics; the baseline of Qin, Liu & Li. The rank of an
    item is 1 plus one coin flip per competitor j, which is above with probability Φ((f_j - f_i) / (noise √2)). The
    flips are treated as independent, which is an approximation; the distribution of their sum costs O(N²) per item with
    gain.

    >>> import torch
    >>> SoftRankLoss(noise=0.01)(torch.tensor([3.0, 2.0, 1.0]), [0, 1, 0], [0, 3]).item()  # -1 / log2(3)
    -0.63092...
    """

    k: int | None = None
    noise: float = field(default=1.0, kw_only=True)
    gain: str = field(default="exp", kw_only=True)
    _tables: ClassVar[float] = 32.0  # in float64, whatever the type of the scores

    def __post_init__(self) -> None:
        positive("k", self.k, whole=True)
        positive("noise", self.noise)
        check_gain(self.gain)
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """nDCG with the gain and cutoff of the loss."""
        return NDCGLoss(self.k, gain=self.gain).target

    @cached_property
    def _structure(self) -> Any:
        return structure_of(self.target)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan: Plan = self._structure.smooth_plan(labels, offsets)
        return plan

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:  # noqa: ARG002
        exact = scores.astype(np.float64)
        values, gradient, hessian = np.zeros(len(plan.rows)), np.zeros_like(exact), np.zeros_like(exact)
        discounts = self._structure.discount_table(int(plan.sizes.max(initial=1)))
        run_blocks(
            soft_rank_pass, plan.blocks(threads_for(plan.pairs * len(discounts))),
            exact, plan.offsets, plan.order, plan.rows, plan.weights, 1 / (2 * self.noise), float(self.k or 0),
            discounts, values, gradient, hessian,
        )  # fmt: skip
        return KernelResult(values, gradient.astype(scores.dtype), hessian.astype(scores.dtype))

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:
        from rankbound.losses.vector_lists import run_soft_rank  # needs torch

        longest = int(layout.plan.sizes.max(initial=1))
        discounts = layout.kept(
            "discounts", lambda: layout.on_device(self._structure.discount_table(longest), exact=True)
        )
        table, scale, cutoff = layout.with_padding(scores), 1 / (2 * self.noise), self.k or 0
        return layout.run(
            lambda bucket, _: run_soft_rank(bucket, table[bucket.items], scale, cutoff, discounts, with_gradient)
        )

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        plan = self._plan(labels, np.array([0, len(labels)]))
        weights = np.empty(len(labels))
        weights[plan.order] = plan.weights
        discounts = self._structure.discount_table(len(labels))
        discounts[self.k or len(labels) :] = 0
        like = {"dtype": scores.dtype, "device": scores.device}
        return reference.soft_rank(
            scores, torch.as_tensor(weights, **like), torch.as_tensor(discounts, **like), self.noise
        ), 0.0  # fmt: skip


# ---- gains -----------------------------------------------------------------------------------------------------------


def check_gain(gain: str) -> None:
    """Raise ArgumentError unless a gain is "exp" or "linear"."""
    if gain not in _DCG_OF_GAIN:
        raise ArgumentError(f"gain must be 'exp' or 'linear', got {gain!r}")


def with_gain(measure: Measure, gain: str | None) -> Measure:
    """The measure with this gain, if it has a choice of gains and one is requested."""
    if gain is None or "dcg" not in measure.definition.parameters:
        return measure
    settings = dict(measure.settings) | {"dcg": _DCG_OF_GAIN[gain]}
    if settings["dcg"] == measure.definition.parameters["dcg"].default:
        del settings["dcg"]
    return replace(measure, settings=tuple(sorted(settings.items())))
