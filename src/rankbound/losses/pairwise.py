"""Losses of pairs with different labels: RankNet, DirectRanker, LambdaRank and the LambdaLoss family."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import check_finite, for_kernel
from rankbound.difficulty.bounding import get_bounding
from rankbound.errors import ArgumentError
from rankbound.losses import reference, swaps
from rankbound.losses.base import KernelResult, MeasureLoss, RankingLoss, positive
from rankbound.losses.compiling import threads_for
from rankbound.losses.lambda_kernel import faster_cases, lambda_pass
from rankbound.losses.lazy_torch import torch
from rankbound.losses.noise import check_seed, generator_for, logistic_noise
from rankbound.losses.pair_kernel import COST_LOGISTIC, COST_SQUARE, COST_TANH, pair_pass_of
from rankbound.losses.plans import Plan, plan_rows
from rankbound.losses.smooth import check_gain, with_gain
from rankbound.losses.stochastic import not_negative
from rankbound.losses.structures import AdditiveStructure, structure_of
from rankbound.losses.workers import run_blocks
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.buckets import Layout, Result

__all__ = ["DirectRankerLoss", "LambdaLoss", "LambdaRankLoss", "PairOptions", "RankNetLoss"]


@dataclass(frozen=True)
class PairOptions:
    """The options of a loss of pairs, in the terms of the kernels."""

    cost: int = COST_LOGISTIC
    alpha: float = 1.0
    mu: float = 1.0
    truncation: int = 0
    normalization: int = 0


def _run_pairs(
    scores: NDArray[Any], plan: Plan, with_hessian: bool, options: PairOptions, ranked_by: NDArray[Any] | None = None,
    needs_measure: bool = True, needs_values: bool = True,
) -> KernelResult:  # fmt: skip
    """Run the kernel; ``ranked_by`` are the scores that swap deltas take their ranks from, if they are not the same.

    Unless they are needed, the measure and the values of the queries are undefined.
    """
    values, measured = np.zeros(len(plan.rows)), np.zeros(len(plan.rows))
    gradient = np.zeros_like(scores)
    hessian = np.zeros_like(scores) if with_hessian else None
    measure_scores = ranked_by is not None and needs_measure
    ranked_by = scores if ranked_by is None else ranked_by
    alpha, truncation, normalization = float(options.alpha), options.truncation, options.normalization
    blocks = plan.blocks(threads_for(plan.pairs))
    if (scores.itemsize, with_hessian) in plan.by_rank:
        run_blocks(
            lambda_pass, blocks, scores, ranked_by, plan.offsets, plan.rows, plan.gains, plan.cuts, plan.discounts,
            alpha, truncation, normalization, measure_scores, needs_values or None,
            values, measured, gradient, hessian,
        )  # fmt: skip
    else:
        levels, pair_weights = plan.levels, plan.pair_weights
        if plan.swap == swaps.SWAP_PAIRS and pair_weights is None:  # empty arrays: the same kernel as with weights
            levels, pair_weights = plan.order[:0], np.zeros((0, 0))
        is_adjusted = truncation > 0 or normalization == swaps.NORMALIZE_LIGHTGBM
        adjusted = truncation if is_adjusted else None  # None compiles no code that adjusts weights
        run_blocks(
            pair_pass_of(options.cost, plan.swap), blocks,
            scores, ranked_by, plan.offsets, plan.order, plan.rows, plan.columns_from, plan.weights,
            plan.constants, plan.cuts, levels, pair_weights, plan.discounts,
            alpha, float(options.mu), adjusted, normalization, measure_scores,
            values, measured, gradient, hessian,
        )  # fmt: skip
    hessian = scores[:0].copy() if hessian is None else hessian
    return KernelResult(values, gradient, hessian, plan.offset + plan.scale * measured)


def _vectorized_pairs(
    scores: Any, layout: Layout, with_gradient: bool, options: PairOptions, ranked_by: Any = None,
    needs_measure: bool = False,
) -> Result:  # fmt: skip
    """The same as `_run_pairs` in torch operations, without a hessian."""
    from rankbound.losses.vector_pairs import run_pairs  # needs torch

    table = layout.with_padding(scores)
    ranked = table if ranked_by is None else layout.with_padding(ranked_by)
    return layout.run(
        lambda bucket, memory: run_pairs(bucket, table, ranked, options, with_gradient, needs_measure, memory)
    )


@dataclass(frozen=True)
class RankNetLoss(RankingLoss):
    """Mean over the pairs l_i > l_j of a query of log(1 + exp(-alpha (f_i - f_j))).

    Source: Burges et al., Learning to rank using gradient descent.

    >>> import torch
    >>> RankNetLoss()(torch.tensor([1.0, 1.0]), [1, 0], [0, 2]).item()  # log(2) for a tie
    0.693147...
    """

    alpha: float = field(default=1.0, kw_only=True)
    _reference_cost: ClassVar[str] = "logistic"

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        super().__post_init__()

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan = plan_rows(labels, offsets, labels, only_gain=False, lower_only=True)
        lower = plan.per_item(plan.sizes) - plan.columns_from
        before = np.concatenate(([0], np.cumsum(lower)))
        pairs = before[plan.offsets[1:]] - before[plan.offsets[:-1]]
        plan.constants = 1 / np.maximum(pairs, 1)
        return plan

    @property
    def _options(self) -> PairOptions:
        return PairOptions(COST_LOGISTIC, self.alpha)

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        return _run_pairs(scores, plan, with_hessian, self._options)

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:
        return _vectorized_pairs(scores, layout, with_gradient, self._options)

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        pairs = torch.as_tensor(labels[:, None] > labels[None, :], device=scores.device)
        differences = (scores[:, None] - scores[None, :])[pairs]
        return reference.pair_costs(self.alpha * differences, self._reference_cost).mean(), 0.0


@dataclass(frozen=True)
class DirectRankerLoss(RankNetLoss):
    """Mean over the pairs l_i > l_j of (1 - tanh(alpha (f_i - f_j)))².

    Source: Köppel et al., Pairwise learning to rank by neural networks revisited: an odd activation is applied to the
    difference of the outputs of one network for the two items; f is this network up to its head without bias.
    ``cost="tanh"`` is log(1 + exp(-tanh(alpha (f_i - f_j)))), the form of a later paper on neural networks in ranking.

    >>> import torch
    >>> DirectRankerLoss()(torch.tensor([1.0, 1.0]), [1, 0], [0, 2]).item()
    1.0
    """

    cost: str = field(default="square", kw_only=True)

    def __post_init__(self) -> None:
        if self.cost not in ("square", "tanh"):
            raise ArgumentError(f"cost must be 'square' or 'tanh', got {self.cost!r}")
        super().__post_init__()

    @property
    def _reference_cost(self) -> str:  # type: ignore[override]
        return self.cost

    @property
    def _options(self) -> PairOptions:
        cost = COST_SQUARE if self.cost == "square" else COST_TANH
        return PairOptions(cost, 2 * self.alpha)  # tanh(d) = 2 σ(2 d) - 1


@dataclass(frozen=True)
class _SwapLoss(MeasureLoss):
    """A loss of pairs l_i > l_j whose weights come from ranks: sum of weight_ij log(1 + exp(-alpha (f_i - f_j)))."""

    alpha: float = field(default=1.0, kw_only=True)
    gain: str = field(default="exp", kw_only=True)

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        check_gain(self.gain)
        super().__post_init__()

    @cached_property
    def _structure(self) -> Any:
        return structure_of(self.target)

    def _apply_bounding(
        self, values: NDArray[np.float64], measured: NDArray[np.float64] | None, plan: Plan
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        active = plan.active.astype(np.float64)
        if plan.difficulty is not None:
            active *= np.abs(get_bounding(self.bounding).apply(measured, plan.difficulty, smooth=True)[1])  # type: ignore[arg-type]
        with np.errstate(over="ignore"):  # an infinite loss raises DataError later
            return active * values, active

    def _bound_tensors(self, values: Any, measured: Any, layout: Layout) -> tuple[Any, Any]:
        active = layout.active.to(values.dtype)
        if self.bounding != "none":
            at = torch.zeros_like(values) if measured is None else measured  # of an affine bounding any will do
            active = torch.where(layout.active, self._bounded(at, layout)[1].abs(), 0.0)
        return active * values, active

    @property
    def _needs_measure(self) -> bool:
        """Whether the bounding depends on the present ranking."""
        return self.bounding.endswith("distribution")

    def _cost_of_pairs(self, scores: Any, labels: NDArray[Any], weights: Any, **options: Any) -> tuple[Any, float]:
        """The reference form for known weights, and the measure of the present ranking."""
        levels = torch.as_tensor(self._structure.levels(labels), device=scores.device)
        value = self._structure.value_of(scores, labels) if self._needs_measure else 0.0
        return reference.lambda_cost(scores, levels, weights, self.alpha, **options), value


@dataclass(frozen=True)
class LambdaRankLoss(_SwapLoss):
    """LambdaRank: sum over pairs l_i > l_j of |ΔM_ij| log(1 + exp(-alpha (f_i - f_j))), ΔM the true change by a swap.

    Parameters
    ----------
    measure:
        Any measure that has a loss, by name or as an object, with or without cutoff; users' own measures too.
    alpha:
        Slope of the logistic cost.
    gain:
        For measures with a parameter ``dcg``, such as nDCG: "exp" (2^label - 1, the default) or "linear", whatever the
        name of the measure says.
    published:
        For rank-biased precision: p^(r_i - 1) in place of the change by a swap, as eq. 10 of Li, Urbano & Hanjalic, New
        insights into metric optimization, has it.
    truncation:
        Only pairs count in which at least one item has a rank of at most ``truncation``; None counts all. This is
        LightGBM's ``lambdarank_truncation_level``; unlike a cutoff of the measure it leaves the changes by a swap as
        they are.
    normalization:
        With |λ| the weight of a pair times alpha σ(alpha (f_j - f_i)), and S the sum of |λ| over pairs, counted twice
        because both items of a pair receive it: "none"; "sqrt" divides the loss of a query by sqrt(S); "lightgbm"
        divides the weight of each pair by 0.01 + |f_i - f_j| (unless all scores of the query are equal) and then
        multiplies the loss of the query by log2(1 + S) / S, as LightGBM's ``lambdarank_norm`` does. S is that of the
        loss before its bounding. Queries with S = 0 stay as they are.
    noise:
        Take ranks, and with them ΔM and the truncation, from scores + noise * Logistic(0, 1). The logistic cost is that
        of the true scores.
    seed:
        Seed of the noise, which is a function of the seed, the scores and the offsets (see `rankbound.losses.noise`):
        the same scores have the same noise, and the scores of the next round have other noise.

    Source: Burges et al., Learning to rank with nonsmooth cost functions; Donmez, Svore & Burges, On the local
    optimality of LambdaRank; Li, Urbano & Hanjalic, eqs. 7-10. ΔM and all factors count as constants when the loss is
    differentiated. Affine boundings multiply the loss of a query by their weight; for the two distribution boundings
    the weight is the slope of the distribution at the present value of the measure (that of the true scores), so that
    the product is, to first order, the change of the bounded measure by a swap.

    ``LambdaRankLoss("nDCG", truncation=30, normalization="lightgbm")`` is LightGBM's lambdarank with its defaults,
    except that LightGBM divides by the ideal DCG of the first 30 ranks only.

    >>> import torch
    >>> loss = LambdaRankLoss("P@1")(torch.tensor([2.0, 2.0, 1.0]), [0, 1, 0], [0, 3])
    >>> loss.item()  # swapping the two tied items changes P@1 by 1; swapping the last two changes nothing
    0.693147...
    """

    measure: str | Measure = "nDCG"
    published: bool = field(default=False, kw_only=True)
    truncation: int | None = field(default=None, kw_only=True)
    normalization: str = field(default="none", kw_only=True)
    noise: float = field(default=0.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        structure = structure_of(parse_measure(self.measure))
        if self.published and not (isinstance(structure, AdditiveStructure) and structure.is_geometric):
            raise ArgumentError(f"published is for rank-biased precision only, got {str(self.measure)!r}")
        positive("truncation", self.truncation, whole=True)
        if self.normalization not in swaps.NORMALIZATIONS:
            raise ArgumentError(
                f"normalization must be one of {', '.join(swaps.NORMALIZATIONS)}, got {self.normalization!r}"
            )
        not_negative("noise", self.noise)
        check_seed(self.seed)
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """The measure whose swaps weight the pairs."""
        return with_gain(parse_measure(self.measure), self.gain)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan: Plan = self._structure.swap_plan(labels, offsets)
        plan.swap = swaps.SWAP_PUBLISHED if self.published else self._structure.swap_form(plan)
        plan.discounts = self._structure.discount_table(int(plan.sizes.max(initial=1)))
        if plan.swap == swaps.SWAP_ADDITIVE:
            plan.gains = np.empty_like(plan.weights)
            plan.gains[plan.order + plan.per_item(offsets[:-1])] = plan.weights
            plan.by_rank = faster_cases(plan, self.truncation or 0)
        return plan

    def _run_kernel(
        self, scores: NDArray[Any], plan: Plan, with_hessian: bool, needs_values: bool = True
    ) -> KernelResult:
        ranked_by = self._noisy(scores, plan) if self.noise > 0 else None
        return _run_pairs(scores, plan, with_hessian, self._options, ranked_by, self._needs_measure, needs_values)

    @property
    def _options(self) -> PairOptions:
        return PairOptions(
            alpha=self.alpha, truncation=self.truncation or 0,
            normalization=swaps.NORMALIZATIONS.index(self.normalization),
        )  # fmt: skip

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:
        ranked_by = None
        if self.noise > 0:
            from rankbound.losses.device_noise import noise_for  # needs torch

            ranked_by = scores + self.noise * noise_for(self.seed, scores, layout).logistic()
        return _vectorized_pairs(scores, layout, with_gradient, self._options, ranked_by, self._needs_measure)

    def gradient_and_hessian(self, scores: NDArray[Any], plan: Plan) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute gradient and hessian without the values, which takes less time."""
        check_finite("scores", scores)
        result = self._run_kernel(for_kernel(scores), plan, with_hessian=True, needs_values=False)
        _, slopes = self._apply_bounding(np.zeros(len(plan.rows)), result.measured, plan)
        per_item = plan.per_item(slopes.astype(scores.dtype))
        return result.gradient * per_item, result.hessian * np.abs(per_item)

    def _noisy(self, scores: NDArray[Any], plan: Plan) -> NDArray[Any]:
        """The scores that ranks are taken from."""
        noise = logistic_noise(generator_for(self.seed, scores, plan.offsets), scores)
        noisy: NDArray[Any] = scores + scores.dtype.type(self.noise) * noise
        return noisy

    def _reference_values(self, scores: Any, plan: Plan) -> tuple[list[Any], NDArray[np.float64]]:
        ranked_by = scores.detach()
        if self.noise > 0:
            ranked_by = torch.from_numpy(self._noisy(scores.numpy(force=True), plan)).to(scores.device)
        return self._reference_by_query(scores, plan, ranked_by)

    def _reference(self, scores: Any, labels: NDArray[Any], ranked_by: Any = None) -> tuple[Any, float]:
        structure, ranked_by = self._structure, scores if ranked_by is None else ranked_by
        deltas = (structure.published_deltas if self.published else structure.swap_deltas)(ranked_by, labels)
        deltas = reference.truncated(deltas, ranked_by, self.truncation)
        return self._cost_of_pairs(scores, labels, deltas, normalization=self.normalization)


@dataclass(frozen=True)
class LambdaLoss(_SwapLoss):
    """The LambdaLoss family for nDCG: sum over pairs l_i > l_j of weight_ij log(1 + exp(-alpha (f_i - f_j))).

    Parameters
    ----------
    form:
        With G the gain over the ideal DCG, r the rank and D(r) = log2(1 + r), the weight of a pair is

        - "1" (NDCG-Loss1): G_i / D(r_i), a bound that does not count what an item loses in a swap;
        - "2" (NDCG-Loss2): |1/D(m) - 1/D(m + 1)| |G_i - G_j| with m = |r_i - r_j|, a tighter bound;
        - "2++" (NDCG-Loss2++): mu times that of form 2, plus LambdaRank's |1/D(r_i) - 1/D(r_j)| |G_i - G_j|.
    k:
        Cutoff of nDCG: the ideal DCG is that of k ranks, only pairs count in which at least one item has a rank of at
        most k, and 1/D is 0 beyond rank k in LambdaRank's part. None for the whole list.
    mu:
        Weight of form 2 in form 2++.
    alpha:
        Slope of the logistic cost.
    gain:
        "exp" (2^label - 1, as in the paper) or "linear".

    Source: Wang et al., The LambdaLoss framework for ranking metric optimization. The paper has the
    binary logarithm of 1 + exp(-alpha (f_i - f_j)); the natural one, as in the other losses of pairs, is smaller by the
    factor log(2). Weights count as constants when the loss is differentiated. Boundings are those of `LambdaRankLoss`.

    >>> import torch
    >>> loss = LambdaLoss("1")(torch.tensor([1.0, 1.0]), [0, 1], [0, 2])
    >>> loss.item()  # log(2) / log2(3): the relevant item has rank 2
    0.437327...
    """

    form: str = "2++"
    mu: float = field(default=10.0, kw_only=True)
    k: int | None = field(default=None, kw_only=True)
    forms: ClassVar[dict[str, int]] = {"1": swaps.SWAP_LOSS1, "2": swaps.SWAP_LOSS2, "2++": swaps.SWAP_LOSS2PP}

    def __post_init__(self) -> None:
        if not isinstance(self.form, str) or self.form not in self.forms:
            raise ArgumentError(f"form must be one of {', '.join(self.forms)}, got {self.form!r}")
        positive("mu", self.mu)
        positive("k", self.k, whole=True)
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """nDCG with the gain and cutoff of the loss."""
        return with_gain(parse_measure("nDCG" if self.k is None else f"nDCG@{self.k}"), self.gain)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> Plan:
        plan: Plan = self._structure.swap_plan(labels, offsets)
        plan.swap = self.forms[self.form]
        plan.discounts = self._structure.discount_table(int(plan.sizes.max(initial=1)))
        return plan

    def _run_kernel(self, scores: NDArray[Any], plan: Plan, with_hessian: bool) -> KernelResult:
        return _run_pairs(scores, plan, with_hessian, self._options)

    @property
    def _options(self) -> PairOptions:
        return PairOptions(alpha=self.alpha, mu=self.mu if self.form == "2++" else 1.0, truncation=self.k or 0)

    def _vectorized(self, scores: Any, layout: Layout, with_gradient: bool) -> Result:
        return _vectorized_pairs(scores, layout, with_gradient, self._options, needs_measure=self._needs_measure)

    def _reference(self, scores: Any, labels: NDArray[Any]) -> tuple[Any, float]:
        weights = self._structure.lambda_loss_weights(scores, labels, self.form, self.mu)
        return self._cost_of_pairs(scores, labels, reference.truncated(weights, scores, self.k))
