"""Losses of pairs with different labels: RankNet, DirectRanker, LambdaRank and the LambdaLoss family."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import check_finite, for_kernel
from rankbound.difficulty.bounding import get_bounding
from rankbound.errors import ArgumentError
from rankbound.kernels import ARRAY, FLOAT, INTEGER, Arguments, kernel, run
from rankbound.losses.base import Evaluated, MeasureLoss, RankingLoss, positive
from rankbound.losses.lazy_torch import torch
from rankbound.losses.noise import check_seed, generator_for, logistic_noise, noise_for
from rankbound.losses.plans import Swap
from rankbound.losses.smooth import check_gain, with_gain
from rankbound.losses.stochastic import not_negative
from rankbound.losses.structures import AdditiveStructure, structure_of
from rankbound.losses.swaps import Normalization, PairPlan, plan_pairs, plan_swaps
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rankbound.losses.padded import Bucket, Layout

_LOGISTIC, _SQUARE, _TANH, SOFT = range(4)  # costs of the kernel, and of `pair_formulas`


class _PairArguments(Arguments):
    _fields_ = (
        ("scores", ARRAY),
        ("ranked_by", ARRAY),
        ("queries", ARRAY),
        ("offsets", ARRAY),
        ("order", ARRAY),
        ("rows", ARRAY),
        ("ends", ARRAY),
        ("weights", ARRAY),
        ("scales", ARRAY),
        ("cuts", ARRAY),
        ("levels", ARRAY),
        ("pair_weights", ARRAY),
        ("level_count", INTEGER),
        ("discounts", ARRAY),
        ("alpha", FLOAT),
        ("mu", FLOAT),
        ("cost", INTEGER),
        ("swap", INTEGER),
        ("truncation", INTEGER),
        ("normalization", INTEGER),
        ("measure_scores", INTEGER),
        ("needs_values", INTEGER),
        ("is_monotone", INTEGER),
        ("factors", ARRAY),
        ("outer", FLOAT),
        ("values", ARRAY),
        ("measured", ARRAY),
        ("gradient", ARRAY),
        ("hessian", ARRAY),
    )


@dataclass(frozen=True)
class PairOptions:
    """The options of a loss of pairs, in the terms of the kernel and of the formula."""

    cost: int = _LOGISTIC
    alpha: float = 1.0
    mu: float = 1.0
    truncation: int = 0
    normalization: int = Normalization.none

    @property
    def is_soft(self) -> bool:
        """Whether a teacher's scores say which item of a pair is the better one, and how likely."""
        return self.cost == SOFT

    def arguments(self, plan: PairPlan) -> _PairArguments:
        """What the kernel needs of a plan; ``factors`` are those of a bounding that does not depend on the scores."""
        slope = None if plan.bounding is None else plan.bounding.slope
        return _PairArguments(
            queries=plan.by_cost,
            offsets=plan.offsets,
            order=plan.order,
            rows=plan.rows,
            ends=plan.ends,
            weights=plan.weights,
            scales=plan.scales,
            cuts=plan.cuts,
            levels=plan.levels,
            pair_weights=plan.pair_weights,
            level_count=0 if plan.pair_weights is None else len(plan.pair_weights),
            discounts=plan.discounts,
            alpha=float(self.alpha),
            mu=float(self.mu),
            cost=self.cost,
            swap=plan.swap,
            truncation=self.truncation,
            normalization=self.normalization,
            is_monotone=plan.is_monotone,
            factors=None if slope is None else np.abs(slope),
            outer=1.0,
        )


@dataclass(frozen=True)
class PairLoss(RankingLoss):
    """A loss of pairs: the kernel, or the formula where there is none."""

    @property
    def _options(self) -> PairOptions:
        raise NotImplementedError

    def _run_bounded(self, scores: NDArray[Any], plan: Any, with_hessian: bool, factor: float) -> Evaluated:
        return self._run_pairs(scores, plan, with_hessian, factor)

    def gradient_and_hessian(self, scores: NDArray[Any], plan: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute gradient and hessian without the values, which takes less time."""
        check_finite("scores", scores)
        result = self._run_pairs(for_kernel(scores), plan, True, 1.0, needs_values=False)
        return result.gradient, result.hessian

    def _run_pairs(
        self, scores: NDArray[Any], plan: PairPlan, with_hessian: bool, factor: float, needs_values: bool = True
    ) -> Evaluated:
        """Unless they are needed, the values of the queries are undefined."""
        function = kernel("pair_loss_f32" if scores.itemsize == 4 else "pair_loss_f64", _PairArguments)
        if function is None:
            return self._run_formula(scores, plan, with_hessian, factor)
        options = self._options
        known = plan.kept.get(options)
        if known is None:
            known = plan.kept[options] = options.arguments(plan)
        ranked_by = self._ranked_by(scores, plan)
        results, gradient = np.zeros((2, len(plan.rows))), np.zeros_like(scores)
        hessian = np.zeros_like(scores) if with_hessian else None
        arguments = known.copy()  # other threads may use the same plan
        arguments.scores = scores.ctypes.data
        arguments.ranked_by = arguments.scores if ranked_by is None else ranked_by.ctypes.data
        arguments.values = results.ctypes.data
        arguments.measured = arguments.values + results.strides[0]
        arguments.measure_scores, arguments.needs_values = ranked_by is not None and self._needs_measure, needs_values
        arguments.gradient, arguments.outer = gradient.ctypes.data, factor
        if hessian is not None:
            arguments.hessian = hessian.ctypes.data
        run(function, arguments, len(plan.by_cost), plan.pairs)
        result = Evaluated(results[0], gradient, scores[:0] if hessian is None else hessian)
        return self._bound_by_measure(result, results[1], plan) if self._needs_measure else result

    @property
    def _needs_measure(self) -> bool:
        """Whether the bounding depends on the present ranking."""
        return False

    def _bound_by_measure(self, result: Evaluated, measured: NDArray[np.float64], plan: PairPlan) -> Evaluated:  # noqa: ARG002
        return result

    def _ranked_by(self, scores: NDArray[Any], plan: PairPlan) -> NDArray[Any] | None:  # noqa: ARG002
        """The scores that ranks are taken from, if they are others."""
        return None

    def _formula(self, bucket: Bucket, x: Tensor, ranked_by: Tensor | None = None) -> Tensor:
        from rankbound.losses.pair_formulas import pair_loss  # needs torch

        return pair_loss(bucket, x, self._options, ranked_by)[0]


@dataclass(frozen=True)
class RankNetLoss(PairLoss):
    """Mean over the pairs l_i > l_j of a query of log(1 + exp(-alpha (f_i - f_j))).

    Source: Burges et al., Learning to rank using gradient descent.

    >>> import torch
    >>> RankNetLoss()(torch.tensor([1.0, 1.0]), [1, 0], [0, 2]).item()  # log(2) for a tie
    0.693147...
    """

    alpha: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        super().__post_init__()

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> PairPlan:
        return plan_pairs(labels, offsets)

    @property
    def _options(self) -> PairOptions:
        return PairOptions(_LOGISTIC, self.alpha)


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
    def _options(self) -> PairOptions:
        return PairOptions(_SQUARE if self.cost == "square" else _TANH, 2 * self.alpha)  # tanh(d) = 2 σ(2 d) - 1


@dataclass(frozen=True)
class _SwapLoss(PairLoss, MeasureLoss):
    """A loss of pairs l_i > l_j whose weights come from ranks: sum of weight_ij log(1 + exp(-alpha (f_i - f_j)))."""

    alpha: float = field(default=1.0, kw_only=True)
    gain: str = field(default="exp", kw_only=True)
    _tables: ClassVar[float] = 7.0

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        check_gain(self.gain)
        super().__post_init__()

    @cached_property
    def _structure(self) -> Any:
        return structure_of(self.target)

    def _bound_by_measure(self, result: Evaluated, measured: NDArray[np.float64], plan: PairPlan) -> Evaluated:
        """The weight of a distribution bounding is its slope at the measure of the present ranking."""
        assert plan.bounding is not None
        if plan.scale is not None and plan.offset is not None:
            measured = plan.offset + plan.scale * measured
        slopes = np.abs(get_bounding(self.bounding).apply(measured, plan.bounding.difficulty, smooth=True)[1])
        per_item = plan.per_item(np.where(plan.active, slopes, 0.0).astype(result.gradient.dtype))
        with np.errstate(over="ignore"):  # an infinite loss raises DataError later
            losses = np.where(plan.active, slopes * result.values, 0.0)
        hessian = result.hessian * per_item if len(result.hessian) else result.hessian
        return Evaluated(losses, result.gradient * per_item, hessian)

    @property
    def _needs_measure(self) -> bool:
        return self.bounding.endswith("distribution")

    def _formula(self, bucket: Bucket, x: Tensor, ranked_by: Tensor | None = None) -> Tensor:
        from rankbound.losses.formulas import bound_values  # needs torch
        from rankbound.losses.pair_formulas import pair_loss

        value, measured = pair_loss(bucket, x, self._options, ranked_by, self._needs_measure)
        bounding = bucket.layout.plan.bounding
        if bounding is None:
            return value
        if bounding.slope is not None:
            return value * bucket.of_queries("slope", bounding.slope)[:, 0].abs()
        assert measured is not None
        with torch.enable_grad():
            at = measured.requires_grad_()
            (slope,) = torch.autograd.grad(bound_values(self.bounding, at, bucket).sum(), at)
        return value * slope.abs()


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
        if self.normalization not in Normalization.__members__:
            raise ArgumentError(
                f"normalization must be one of {', '.join(Normalization.__members__)}, got {self.normalization!r}"
            )
        not_negative("noise", self.noise)
        check_seed(self.seed)
        super().__post_init__()

    @property
    def target(self) -> Measure:
        """The measure whose swaps weight the pairs."""
        return with_gain(parse_measure(self.measure), self.gain)

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> PairPlan:
        return plan_swaps(self._structure, labels, offsets, Swap.PUBLISHED if self.published else None)

    @property
    def _options(self) -> PairOptions:
        return PairOptions(
            alpha=self.alpha, truncation=self.truncation or 0, normalization=Normalization[self.normalization]
        )

    def _ranked_by(self, scores: NDArray[Any], plan: PairPlan) -> NDArray[Any] | None:
        if self.noise == 0:
            return None
        noise = logistic_noise(generator_for(self.seed, scores, plan.offsets), scores)
        noisy: NDArray[Any] = scores + scores.dtype.type(self.noise) * noise
        return noisy

    def _draw(self, scores: Tensor, layout: Layout) -> Tensor | None:
        if self.noise == 0:
            return None
        return scores + self.noise * noise_for(self.seed, scores, layout).logistic()


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
    forms: ClassVar[dict[str, Swap]] = {"1": Swap.LOSS1, "2": Swap.LOSS2, "2++": Swap.LOSS2PP}

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

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> PairPlan:
        return plan_swaps(self._structure, labels, offsets, self.forms[self.form])

    @property
    def _options(self) -> PairOptions:
        return PairOptions(alpha=self.alpha, mu=self.mu if self.form == "2++" else 1.0, truncation=self.k or 0)
