"""Smooth measures as losses: a measure with its ranks replaced by R_i = 1 + sum over j ≠ i of σ(alpha (f_j - f_i)).

`SmoothMeasureLoss` makes the loss of any measure that has one, users' own included. The classes named after measures
are the same loss with the options that their papers vary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import is_between
from rankbound.errors import ArgumentError
from rankbound.kernels import ARRAY, FLOAT, INTEGER, Arguments, kernel, run
from rankbound.losses.base import Evaluated, MeasureLoss, RankingLoss, positive
from rankbound.losses.plans import Form, SmoothPlan, sort_by_level
from rankbound.losses.stochastic import StochasticLoss
from rankbound.losses.structures import GIVEN, structure_of
from rankbound.measures.label_counts import LabelCounts
from rankbound.measures.measure import Measure, parse_measure

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rankbound.losses.padded import Bucket

_DCG_OF_GAIN = {"exp": "exp-log2", "linear": "log2"}
# name: the sigmoid, and the factor of its argument; tanh is (1 + tanh x) / 2 = logistic(2 x). Sources: logistic, Qin,
# Liu & Li, ApproxNDCG, eq. 19, and Westerborg 2022, eq. 2.9; tanh, arctan and erf, ibid., footnote 3; relu, Liang et
# al., Top-N-Rank, which is not bounded by 1, and 0 rather than 1/2 at ties. The logistic alone has a kernel: for the
# others, a compiled loop was faster than torch operations on short lists alone.
SIGMOIDS = {
    "logistic": ("logistic", 1.0),
    "tanh": ("logistic", 2.0),
    "arctan": ("arctan", 1.0),
    "erf": ("erf", 1.0),
    "relu": ("relu", 1.0),
}
LONG = 2_000_000  # rows x items of a query from which sums of logistics are computed by series
_DISCOUNTED = (Form.ADDITIVE, Form.CASCADE, Form.FIRST_HIT)


class _SmoothArguments(Arguments):
    """The struct of the kernels of smooth measures, see ``smooth.hpp``."""

    _fields_ = (
        ("form", INTEGER),
        ("discount", INTEGER),
        *((name, FLOAT) for name in ("alpha", "beta", "parameter")),
        *((name, ARRAY) for name in ("queries", "offsets", "order", "rows", "weights", "cuts", "columns_from")),
        ("levels", ARRAY),
        ("pair_weights", ARRAY),
        ("level_count", INTEGER),
        ("at_zero", ARRAY),
        ("slope", ARRAY),
        ("scale", FLOAT),
        ("long_pairs", FLOAT),
        ("tables", ARRAY),
        ("scores", ARRAY),
        ("given", ARRAY),
        ("items", INTEGER),
        ("losses", ARRAY),
        ("gradient", ARRAY),
        ("hessian", ARRAY),
        ("ranks", ARRAY),
    )


@cache
def series_tables() -> NDArray[np.float64]:
    """Coefficients of the logistic of source - target as a double Chebyshev series, by interpolation at its nodes.

    The axes are: value or derivative, distance of the boxes + 20, term of the source, term of the target.
    """
    terms, width, far = 12, 2.0, 20
    angles = (np.arange(terms) + 0.5) * np.pi / terms
    nodes = np.cos(angles)
    transform = 2 / terms * np.cos(np.outer(np.arange(terms), angles))
    transform[0] /= 2
    distance = width * np.arange(-far, far + 1)
    d = distance[:, None, None] + nodes[None, None, :] - nodes[None, :, None]
    value = 1 / (1 + np.exp(-d))
    both = np.stack((value, value * (1 / (1 + np.exp(d)))))
    return np.ascontiguousarray(np.einsum("ka,vdab,lb->vdlk", transform, both, transform, optimize=True))


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
        "logistic", "tanh", "arctan", "erf" or "relu". The last three have no kernel, so that they need torch.
    """

    alpha: float = field(default=1.0, kw_only=True)
    beta: float = field(default=1.0, kw_only=True)
    sigmoid: str = field(default="logistic", kw_only=True)

    def __post_init__(self) -> None:
        positive("alpha", self.alpha)
        positive("beta", self.beta)
        if not isinstance(self.sigmoid, str) or self.sigmoid not in SIGMOIDS:
            raise ArgumentError(f"sigmoid must be one of {', '.join(SIGMOIDS)}, got {self.sigmoid!r}")
        super().__post_init__()

    @cached_property
    def _structure(self) -> Any:
        return structure_of(self.target)

    @property
    def _form(self) -> Form:
        """The form of the measure."""
        return self._structure.form  # type: ignore[no-any-return]

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> SmoothPlan:
        return self._structure.smooth_plan(labels, offsets)  # type: ignore[no-any-return]

    @property
    def _tables(self) -> float:  # type: ignore[override]
        return 8.0 if self._form is Form.ADDITIVE else 12.0

    @property
    def _step(self) -> tuple[str, float]:
        """The sigmoid, and its slope with alpha in it."""
        sigmoid, factor = SIGMOIDS[self.sigmoid]
        return sigmoid, float(self.alpha * factor)

    def _formula(self, bucket: Bucket, x: Tensor) -> Tensor:
        from rankbound.losses.formulas import SmoothOptions, smooth_measure  # needs torch

        structure = self._structure
        is_given = structure.discount == GIVEN and self._form in _DISCOUNTED
        discount = structure.discounts_and_slopes if is_given else structure.discount
        options = SmoothOptions(self._form, *self._step, float(self.beta), discount, structure.parameter)
        return self._bound_formula(smooth_measure(bucket, x, options), bucket)

    # ---- kernel ------------------------------------------------------------------------------------------------------

    def _run_bounded(self, scores: NDArray[Any], plan: Any, with_hessian: bool, factor: float) -> Evaluated:
        if self.noise != 0:
            return super()._run_bounded(scores, plan, with_hessian, factor)
        name = "f32" if scores.dtype == np.float32 else "f64"
        function = kernel(f"smooth_{name}", _SmoothArguments) if self._step[0] == "logistic" else None
        if function is None:
            return self._run_formula(scores, plan, with_hessian, factor)
        is_affine = plan.bounding is None or plan.bounding.slope is not None
        template = plan.kept.get("smooth")
        if template is None:
            template = plan.kept["smooth"] = self._arguments(plan, is_affine)
        losses, gradient = np.zeros(len(plan.rows)), np.zeros(len(scores), scores.dtype)
        hessian = np.zeros(len(scores), scores.dtype) if with_hessian else None
        arguments = template.copy(scores=scores, losses=losses, gradient=gradient, hessian=hessian, scale=factor)
        if arguments.discount == GIVEN and self._form in _DISCOUNTED:
            self._give_discounts(arguments, scores, plan, kernel(f"smooth_ranks_{name}", _SmoothArguments))
        run(function, arguments, len(plan.by_cost), plan.pairs)
        curved = scores[:0] if hessian is None else hessian
        result = Evaluated(losses, gradient, curved)
        return result if is_affine else self._bound_measured(result, plan)

    def _arguments(self, plan: SmoothPlan, is_affine: bool) -> _SmoothArguments:
        """What the kernel needs of the plan; its results are losses where the bounding is affine, else measures."""
        structure, queries = self._structure, len(plan.rows)
        at_zero, slope = np.zeros(queries), np.ones(queries)
        if plan.bounding is not None and plan.bounding.slope is not None and plan.bounding.at_zero is not None:
            at_zero, slope = plan.bounding.at_zero, plan.bounding.slope
        if plan.constants is not None:
            at_zero = at_zero + slope * plan.constants
        sign = self._sign if is_affine else 1.0
        return _SmoothArguments(
            form=self._form,
            discount=structure.discount,
            alpha=self._step[1],
            beta=float(self.beta),
            parameter=structure.parameter,
            queries=plan.by_cost,
            offsets=plan.offsets,
            order=plan.order,
            rows=plan.rows,
            weights=plan.weights,
            cuts=plan.cuts,
            columns_from=plan.columns_from,
            levels=plan.levels,
            pair_weights=plan.pair_weights,
            level_count=0 if plan.pair_weights is None else len(plan.pair_weights),
            at_zero=sign * at_zero,
            slope=sign * slope,
            long_pairs=LONG,
            tables=series_tables(),
            items=len(plan.labels),
        )

    def _give_discounts(
        self, arguments: _SmoothArguments, scores: NDArray[Any], plan: SmoothPlan, ranks_of: Any
    ) -> None:
        """Compute the discounts of a user's own measure, and their slopes, at the smooth ranks of the rows."""
        ranks = np.ones(len(scores))
        arguments.set(ranks=ranks)
        run(ranks_of, arguments, len(plan.by_cost), plan.pairs)
        given = self._structure.truncated_discounts(ranks, plan.per_item(plan.cuts), self.beta)
        arguments.set(given=np.concatenate(given))


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
    _form_of_ranks: ClassVar[Form]

    def __post_init__(self) -> None:
        if self.form not in ("scores", "ranks"):
            raise ArgumentError(f"form must be 'scores' or 'ranks', got {self.form!r}")
        super().__post_init__()

    @property
    def _form(self) -> Form:
        return self._form_of_ranks if self.form == "ranks" else super()._form


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
    _form_of_ranks: ClassVar[Form] = Form.COUPLED

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
    _form_of_ranks: ClassVar[Form] = Form.FIRST_HIT

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


# ---- lists of two levels, without labels -----------------------------------------------------------------------------


def has_positions(loss: RankingLoss) -> bool:
    """Whether `run_at_positions` computes this loss: nDCG, AP (form "scores") or nRBP of a built-in discount."""
    if not isinstance(loss, (NDCGLoss, APLoss, NRBPLoss)) or loss.noise != 0 or loss._step[0] != "logistic":
        return False
    form = loss._form
    return form in (Form.PRECISION_SUM, Form.PAIRS) or (form is Form.ADDITIVE and loss._structure.discount != GIVEN)


def run_at_positions(
    loss: SmoothLoss,
    scores: NDArray[Any],
    offsets: NDArray[np.int64],
    positions: NDArray[Any],
    counts: NDArray[np.int64],
) -> Evaluated:
    """Compute the loss of lists whose relevant items, ``counts`` each, are at positions from the start of the list."""
    sizes = np.diff(offsets)
    # what a plan has for relevant items does not depend on the number of others: lists with one other are enough
    short = np.concatenate(([0], np.cumsum(counts + 1)))
    labels = np.ones(short[-1], np.int32)
    labels[short[1:] - 1] = 0
    plan = loss._plan(labels, short)
    relevant = np.zeros(len(scores), np.uint8)
    relevant[np.repeat(offsets[:-1], counts) + positions] = 1
    weights = np.zeros(len(scores))  # those of the relevant items come first in each list
    shift = np.repeat(offsets[:-1] - (np.cumsum(counts) - counts), counts)
    weights[np.arange(len(shift)) + shift] = np.repeat(plan.weights[plan.offsets[:-1]], counts)
    plan = SmoothPlan(
        labels=relevant,
        offsets=offsets,
        order=sort_by_level(relevant, offsets),
        rows=np.where((plan.rows > 0) & (counts < sizes), counts, 0),
        cuts=plan.cuts,
        constants=plan.constants,
        weights=weights,
        columns_from=None if plan.columns_from is None else np.repeat(counts, sizes),
        kept={"counts": LabelCounts.binary(sizes, counts)},
    )
    if loss.bounding != "none":
        plan = replace(plan, bounding=loss._bounded_plan(plan))
    return loss._run_bounded(scores, plan, False, 1.0)


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
    _tables: ClassVar[float] = 192.0  # transforms of polynomials in float64, whatever the type of the scores

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

    def _plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> SmoothPlan:
        return self._structure.smooth_plan(labels, offsets)  # type: ignore[no-any-return]

    def _discounts(self, plan: SmoothPlan) -> NDArray[np.float64]:
        """The discounts of the ranks up to the cutoff."""
        return np.asarray(self._structure.discount_table(int(plan.sizes.max(initial=1)))[: self.k])

    def _formula(self, bucket: Bucket, x: Tensor) -> Tensor:
        from rankbound.losses.formulas import soft_rank  # needs torch

        layout = bucket.layout
        discounts = layout.keep("discounts", lambda: layout.on_device(self._discounts(layout.plan), exact=True))
        return self._bound_formula(soft_rank(bucket, x, discounts, self.noise), bucket)

    def _run_bounded(self, scores: NDArray[Any], plan: Any, with_hessian: bool, factor: float) -> Evaluated:
        function = kernel("soft_rank", _SoftRankArguments)
        if function is None:
            return self._run_formula(scores, plan, with_hessian, factor)
        exact, discounts = scores.astype(np.float64), self._discounts(plan)
        values, gradient, hessian = np.zeros(len(plan.rows)), np.zeros(len(exact)), np.zeros(len(exact))
        arguments = _SoftRankArguments(
            queries=plan.by_cost,
            offsets=plan.offsets,
            order=plan.order,
            rows=plan.rows,
            weights=plan.weights,
            discounts=discounts,
            ranks=len(discounts),
            factor=1 / (2 * self.noise),
            scores=exact,
            values=values,
            gradient=gradient,
            hessian=hessian,
        )
        run(function, arguments, len(plan.by_cost), plan.pairs * len(discounts))
        curved = hessian.astype(scores.dtype) if with_hessian else scores[:0]
        return self._bound_measured(Evaluated(values, gradient.astype(scores.dtype), curved), plan, factor)


class _SoftRankArguments(Arguments):
    _fields_ = (
        *((name, ARRAY) for name in ("queries", "offsets", "order", "rows", "weights", "discounts")),
        ("ranks", INTEGER),
        ("factor", FLOAT),
        *((name, ARRAY) for name in ("scores", "values", "gradient", "hessian")),
    )


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
