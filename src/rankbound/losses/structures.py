"""What a loss needs of a measure, by the structure of the measure alone.

Every measure with a loss has one of four structures (see `rankbound.measures.definition`). Its gains, discounts, stop
probabilities, weights and normalizers come from its definition; this module turns them into plans for the kernels and
into the arguments of the reference forms, and never asks which measure it has.

=============  ==============================================  ====================================================
structure      rows of the smooth loss, with their weights     pairs of the lambda loss, with what weights them
=============  ==============================================  ====================================================
additive       items with gain; gain / normalizer              pairs of different gain; gains and discounts
cascade        items that can stop the user; stop probability  pairs of different stop probability; these, discounts
precision sum  relevant items; 1 / divisor                     relevant and other items; 1 / divisor and 1 / rank
pairwise       items above the lowest label; scale             pairs of different label; their weights, scale
=============  ==============================================  ====================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import expit

from rankbound.errors import ArgumentError
from rankbound.losses.plans import Form, SmoothPlan, Swap, count_true, differs, plan_levels, sort_by_level
from rankbound.measures.additive import Additive
from rankbound.measures.cascade import Cascade
from rankbound.measures.discounts import BUILT_IN, GEOMETRIC, RECIPROCAL
from rankbound.measures.label_counts import LabelCounts
from rankbound.measures.measure import Measure, parse_measure
from rankbound.measures.pairwise import Pairwise
from rankbound.measures.precision_sum import PrecisionSum
from rankbound.measures.registry import definitions

if TYPE_CHECKING:
    from numpy.typing import NDArray


GIVEN = -1  # in place of the index of a built-in discount: the kernel gets values and derivatives


class Terms(NamedTuple):
    """What a structure of ranks makes of labels: items that need a rank, and weights; per query the rest."""

    relevant: NDArray[np.bool_]
    weights: NDArray[np.float64]
    cuts: NDArray[np.float64]
    matters: NDArray[np.bool_]  # whether the order of the query matters


@dataclass(frozen=True)
class Structure(ABC):
    """A measure as the losses see it."""

    measure: Measure
    form: ClassVar[Form]  # of the smooth measure
    swap: ClassVar[Swap]  # of the lambda loss
    discount: int = 0  # index of the built-in discount, or GIVEN; only some structures have a discount
    parameter: float = 0.0  # of the discount

    @property
    def definition(self) -> Any:
        """The definition of the measure."""
        return self.measure.definition

    @abstractmethod
    def smooth_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> SmoothPlan:
        """Make the plan of the smooth loss."""

    def discount_table(self, n: int) -> NDArray[np.float64]:
        """The discounts of the ranks 1..n, without cutoff."""
        return np.ones(n)

    def levels(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Labels as the measure distinguishes them, in a type that sorts fast."""
        if self.definition.is_binary(self.measure):
            return (labels >= self.measure.rel).astype(np.int8)
        return labels


@dataclass(frozen=True)
class RankedStructure(Structure):
    """A structure whose terms are those of single items at their ranks."""

    @abstractmethod
    def terms(self, labels: NDArray[Any], offsets: NDArray[np.int64], counts: LabelCounts) -> Terms:
        """The terms of labels, which ``counts`` counts."""

    def smooth_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> SmoothPlan:
        """What the formula and the kernel need besides scores: the relevant items of queries are rows."""
        counts = LabelCounts.from_labels(labels, offsets)
        terms = self.terms(labels, offsets, counts)
        order = sort_by_level(terms.relevant.astype(np.uint8), offsets)
        total = count_true(terms.relevant, offsets)
        return SmoothPlan(
            labels=labels,
            offsets=offsets,
            order=order,
            rows=np.where(terms.matters, total, 0),
            cuts=terms.cuts,
            weights=terms.weights[order + np.repeat(offsets[:-1], counts.sizes)],
            kept={"counts": counts, "relevant": total},
        )

    def _cuts(self, counts: LabelCounts) -> NDArray[np.float64]:
        """The cutoff of each query, 0 for none."""
        return np.full(len(counts), float(self.measure.cutoff or 0))


@dataclass(frozen=True)
class _Discounted(RankedStructure):
    """A structure with a discount."""

    def discount_table(self, n: int) -> NDArray[np.float64]:
        return np.array(self.definition.discounts(self.measure, np.arange(1.0, n + 1)))  # a copy that may be changed

    def discounts_and_slopes(self, ranks: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Discounts at smooth ranks, and their derivatives."""
        definition = self.definition
        return definition.discounts(self.measure, ranks), definition.discount_slopes(self.measure, ranks)

    def truncated_discounts(
        self, ranks: NDArray[np.float64], cuts: NDArray[np.float64], beta: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Discounts at smooth ranks under a smooth cutoff (0 for none), and their derivatives."""
        value, slope = self.discounts_and_slopes(ranks)
        inside = np.where(cuts > 0, expit(beta * (cuts + 0.5 - ranks)), 1.0)
        d_inside = np.where(cuts > 0, -beta * inside * (1 - inside), 0.0)
        return value * inside, slope * inside + value * d_inside

    def _equal_ranks(self, sizes: NDArray[np.int64]) -> int:
        """How many ranks at the top have the same discount."""
        table = self.discount_table(int(sizes.max(initial=1)))
        changes = np.flatnonzero(table != table[0])
        return int(changes[0]) if len(changes) else len(table)


@dataclass(frozen=True)
class AdditiveStructure(_Discounted):
    """Sum of gain * discount over the ranks, divided by a normalizer."""

    form: ClassVar[Form] = Form.ADDITIVE
    swap: ClassVar[Swap] = Swap.ADDITIVE

    def terms(self, labels: NDArray[Any], offsets: NDArray[np.int64], counts: LabelCounts) -> Terms:
        """Gains over the normalizer; the order matters where gains differ and not all ranks have the same discount."""
        values = np.asarray(self.definition.levels(self.measure, labels))
        normalizer, sizes = self.definition.normalizer(self.measure, counts), counts.sizes
        cuts = self._cuts(counts)
        reach = np.where(cuts > 0, np.minimum(cuts, sizes), sizes)
        matters = differs(values, offsets) & ((reach < sizes) | (sizes > self._equal_ranks(sizes)))
        return Terms(values > 0, values / np.repeat(np.where(normalizer > 0, normalizer, 1.0), sizes), cuts, matters)

    def _cuts(self, counts: LabelCounts) -> NDArray[np.float64]:
        if self.measure.cutoff is not None:
            return super()._cuts(counts)
        ranks = self.definition.cut(self.measure, counts)  # a number of the query can be its cutoff
        return np.where(ranks < counts.sizes, ranks, 0).astype(np.float64)

    @property
    def is_geometric(self) -> bool:
        """Whether the discount is that of rank-biased precision."""
        return self.definition.discount is GEOMETRIC


@dataclass(frozen=True)
class CascadeStructure(_Discounted):
    """Expected discount of the rank at which a user stops."""

    form: ClassVar[Form] = Form.CASCADE
    swap: ClassVar[Swap] = Swap.CASCADE

    def terms(self, labels: NDArray[Any], offsets: NDArray[np.int64], counts: LabelCounts) -> Terms:
        """The stop probabilities.

        The order makes no difference if all items stop the user alike, or if in every order some item stops the user
        for certain within the ranks that have the discount of the first.
        """
        values = np.asarray(self.definition.levels(self.measure, labels))
        sizes, cuts = counts.sizes, self._cuts(counts)
        reach = np.where(cuts > 0, np.minimum(cuts, sizes), sizes)
        alike = np.minimum(reach, self._equal_ranks(sizes))
        certain = count_true(values >= 1, offsets)
        return Terms(values > 0, values, cuts, differs(values, offsets) & (alike < sizes) & (certain <= sizes - alike))


@dataclass(frozen=True)
class PrecisionSumStructure(RankedStructure):
    """Sum of the precisions at the ranks of relevant items, divided by a divisor."""

    form: ClassVar[Form] = Form.PRECISION_SUM
    swap: ClassVar[Swap] = Swap.PRECISION_SUM

    def discount_table(self, n: int) -> NDArray[np.float64]:
        """The discounts of the first n ranks."""
        return RECIPROCAL.table(n)  # a precision is a count of items divided by the rank

    def terms(self, labels: NDArray[Any], offsets: NDArray[np.int64], counts: LabelCounts) -> Terms:
        """Relevance over the divisor."""
        relevant = np.asarray(self.levels(labels) > 0)
        divisor = np.asarray(self.definition.divisor(self.measure, counts))
        weights = relevant / np.repeat(np.where(divisor > 0, divisor, 1.0), counts.sizes)
        return Terms(relevant, weights, self._cuts(counts), differs(relevant, offsets))


@dataclass(frozen=True)
class PairwiseStructure(Structure):
    """Weighted pairs in the wrong order, scaled and shifted."""

    form: ClassVar[Form] = Form.PAIRS
    swap: ClassVar[Swap] = Swap.PAIRS

    def smooth_plan(self, labels: NDArray[Any], offsets: NDArray[np.int64]) -> SmoothPlan:
        """What the formula and the kernel need besides scores."""
        levels = self.levels(labels)
        counts, of_levels = LabelCounts.from_labels(labels, offsets), LabelCounts.from_labels(levels, offsets)
        order, rows, columns_from = plan_levels(levels, offsets, of_levels)
        scale, constants = self.definition.affine(self.measure, counts)
        of_pairs, pair_weights = None, None
        if self.definition.is_weighted:
            distinct, codes = np.unique(levels, return_inverse=True)
            of_pairs = codes[order + np.repeat(offsets[:-1], counts.sizes)]
            pair_weights = self._pair_weights(distinct)
        return SmoothPlan(
            labels=labels,
            offsets=offsets,
            order=order,
            rows=rows,
            columns_from=columns_from,
            weights=np.repeat(np.where(rows > 0, scale, 0.0), counts.sizes),
            cuts=np.zeros(len(rows)),
            constants=np.where(rows > 0, constants, 0.0),
            levels=of_pairs,
            pair_weights=pair_weights,
            kept={"counts": counts, "relevant": count_true(levels > 0, offsets)},
        )

    def _pair_weights(self, distinct: NDArray[Any]) -> NDArray[np.float64]:
        """Weights of a higher and a lower of some levels, which ascend; 0 for other pairs."""
        high, low = np.tril_indices(len(distinct), -1)
        matrix = np.zeros((len(distinct), len(distinct)))
        matrix[high, low] = self.definition.weights(self.measure, distinct[high], distinct[low])
        return matrix


# ---- which measures have a loss --------------------------------------------------------------------------------------

_STRUCTURES: tuple[tuple[type[Any], type[Structure]], ...] = (
    (Additive, AdditiveStructure),
    (Cascade, CascadeStructure),
    (PrecisionSum, PrecisionSumStructure),
    (Pairwise, PairwiseStructure),
)


def has_loss(measure: Measure) -> bool:
    """Whether a measure has a smooth loss and a lambda loss."""
    return measure.bounding == "none" and bool(measure.definition.has_loss(measure))


def measures_with_loss(k: int | None = None) -> list[str]:
    """The names of all registered measures that have a smooth loss and a lambda loss, users' own included.

    Measures that need a cutoff are listed with the cutoff k, or without any if k is None.
    """
    names = []
    for definition in definitions():
        needs_cutoff = definition.cutoff == "required"
        if has_loss(parse_measure(f"{definition.name}@{k or 10}" if needs_cutoff else definition.name)):
            names.append(f"{definition.name}@{k}" if needs_cutoff and k else definition.name)
    return names


def structure_of(measure: Measure) -> Structure:
    """Look at a measure as its structure; ArgumentError if it has no loss."""
    if has_loss(measure):
        for definition, structure in _STRUCTURES:
            if isinstance(measure.definition, definition):
                discount, parameter = 0, 0.0
                if issubclass(structure, _Discounted):
                    discount = next((i for i, d in enumerate(BUILT_IN) if d is measure.definition.discount), GIVEN)
                    parameter = measure.definition.discount_parameter(measure)
                return structure(measure, discount, parameter)
    raise ArgumentError(f"measure must be one that has a loss, {', '.join(measures_with_loss())}; got {str(measure)!r}")
