"""Definition: everything that defines a measure, in one object.

Each built-in measure has a file of its own with one subclass. Most derive from one of four structures, which turn a few
formulas into values, bounds, distributions and losses:

==========================  ==============================================================  ==========================
structure                   value of a ranking                                              measures
==========================  ==============================================================  ==========================
`additive.Additive`         sum of gain(label) * discount(rank), over a normalizer          DCG, nDCG, P, R, RBP, ...
`cascade.Cascade`           the same, while the user has not been satisfied yet             ERR, RR, Success
`pairwise.Pairwise`         weighted pairs in the wrong order, scaled and shifted           U, PairAcc, Tau
`precision_sum.PrecisionSum`  sum of the precisions at the ranks of relevant documents      AP, SP
==========================  ==============================================================  ==========================

A measure of any other form derives from `Definition` itself and needs `values_in_order` only: its bounds and
distribution then come from enumerating or sampling orders.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.errors import MeasureError
from rankbound.measures.combinatorics import arrangements, random_orders

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

Value = int | float | str
BoundsTuple = tuple[Any, Any, Any]  # worst, expected, best: arrays over queries
_ENUMERATED = 1_000  # up to this many distinguishable orders of one query are enumerated
SAMPLED_ORDERS = 1_000  # orders that are drawn, with a fixed seed, where there are more


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a measure: its default and the rule that its values obey."""

    default: Value
    rule: str
    choices: tuple[str, ...] = ()
    least: float = 0.0
    most: float = 2.0**31  # labels are smaller
    least_included: bool = False
    most_included: bool = True

    def check(self, measure: str, name: str, value: Value) -> Value:
        """The value in its proper type, or MeasureError."""
        if self.choices:
            fits = value in self.choices
        elif isinstance(value, str):
            fits = False
        else:
            above = value >= self.least if self.least_included else value > self.least
            fits = above and (value <= self.most if self.most_included else value < self.most)
            if isinstance(self.default, float):
                value = float(value)
        if not fits:
            raise MeasureError(f"{name} of {measure} must be {self.rule}, got {value!r}")
        return value


REL = Parameter(1, "a positive number up to 2^31")
VARIANT = Parameter("exact", "'exact' or 'published'", ("exact", "published"))


class Definition(ABC):
    """What defines a measure.

    Class attributes describe it: its ``name``, a one-line ``summary``, the ``formula`` in plain text, the ``citation``
    of its source, its ``parameters``, and ``aliases``, other names in lower case with the settings that they stand for.
    ``cutoff`` says whether ``@k`` is "optional", "required" or "none"; ``at`` names the parameter that the number after
    ``@`` sets where that is not a rank. ``floor`` is the value of a ranking that gets nothing right. ``aggregate`` is
    how values of queries become one number: "mean", "sum" or "geometric".
    """

    name: str
    summary: str
    formula: str
    citation: str = ""
    parameters: Mapping[str, Parameter] = MappingProxyType({})
    aliases: Mapping[str, Mapping[str, Value]] = MappingProxyType({})
    cutoff: str = "optional"
    at: str | None = None
    lower_is_better: bool = False
    floor: float = 0.0
    built_in: bool = True
    reads_negative_labels: bool = False  # whether a label below 0 is not the same as 0; all of them are as -1
    # Parameters whose whole effect is on the levels of the documents: distributions do not depend on them otherwise.
    level_parameters: ClassVar[frozenset[str]] = frozenset({"rel", "variant", "dcg", "max_rel", "mean"})

    def __repr__(self) -> str:
        return f"<measure {self.name}: {self.summary}>"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        from rankbound.measures.registry import get_definition

        return get_definition, (self.name,)  # the process that unpickles it has the same measure under this name

    # ---- names -------------------------------------------------------------------------------------------------------

    def check_settings(self, cutoff: int | None, settings: Mapping[str, Value], text: str) -> None:
        """Raise MeasureError if parameters and cutoff cannot be combined; ``text`` is the name as the user wrote it."""
        return  # most measures take any combination

    def aggregate(self, measure: Measure) -> str:
        """How the values of queries become one number: "mean", "sum" or "geometric"."""
        return "mean"

    def describe_gain(self, measure: Measure) -> str:
        """How labels become gains, for signatures: "linear" or "exponential"; "" where a measure has no such choice."""
        return ""

    # ---- values ------------------------------------------------------------------------------------------------------

    def is_binary(self, measure: Measure) -> bool:
        """Whether the measure only distinguishes relevant documents (label >= rel) from others."""
        return False

    def orders_labels(self, measure: Measure) -> bool:
        """Whether any two labels differ for the measure, so that labels below 0, which count as 0, lose their order."""
        return False

    def levels(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """Labels as the measure distinguishes them: 1 and 0, gains, stop probabilities, or the labels themselves."""
        if self.is_binary(measure):
            return (labels >= measure.rel).astype(np.float64)
        return np.asarray(labels, dtype=np.float64)

    @property
    def lowest_label(self) -> int:
        """The label that lower ones count as: -1 or 0."""
        return -1 if self.reads_negative_labels else 0

    def distinguished_counts(self, counts: LabelCounts) -> LabelCounts:
        """The counts of all labels that the measure distinguishes."""
        return counts.with_labels_below_zero() if self.reads_negative_labels else counts

    def is_defined(self, measure: Measure, counts: LabelCounts) -> NDArray[np.bool_]:
        """Queries for which the measure has a value: by default those with a document of positive level."""
        return counts.sum((self.levels_of_counts(measure, counts) > 0) * counts.counts) > 0

    def levels_of_counts(self, measure: Measure, counts: LabelCounts) -> NDArray[np.float64]:
        """The levels of the labels of counts, which are kept there."""
        levels = counts.levels.get(measure)
        if levels is None:
            levels = counts.levels[measure] = self.levels(measure, counts.values)
        return levels

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Value of each query, 0 where the measure is not defined; the mean over all orders of tied documents.

        Unless a subclass has a closed form, the orders of ties are enumerated where a query has up to 1,000 of them,
        and sampled (1,000 draws with a fixed seed, standard error at most 0.016 for values in [0, 1]) where it has
        more.
        """
        if self.reads_negative_labels:  # ties between judged and unjudged documents matter, too
            ranked = ranked.detailed
        if ranked.tied is None:
            return self.values_in_order(measure, ranked)

        def levels(labels: NDArray[Any]) -> NDArray[Any]:
            return labels if self.reads_negative_labels else self.levels(measure, labels)

        return ranked.mean_over_ties(lambda ordered: self.values_in_order(measure, ordered), SAMPLED_ORDERS, levels)

    def values_in_order(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """Value of each query in the order at hand; ties have been broken."""
        raise NotImplementedError(f"{self.name} has closed forms for ties")

    def is_normalized(self, measure: Measure) -> bool:
        """Whether the best order of every query has the value 1."""
        return False

    # ---- unknown labels ----------------------------------------------------------------------------------------------

    def range_form(self, measure: Measure) -> str:
        """What `rankbound.difficulty.unknown` needs to know to bound the value over the labels of some documents.

        "rises": the value never falls when a label rises. "exchange": for fixed numbers of documents with each label,
        it never falls when a higher label moves to an earlier rank. In addition to this, "hits": a sum over relevant
        documents, divided by a function of their number; "ideal": divided by that of the best order; "largest":
        divided by the largest label. "constant": it does not depend on labels of returned documents. "": no form.
        """
        return ""

    # ---- bounds ------------------------------------------------------------------------------------------------------

    def bounds(self, measure: Measure, counts: LabelCounts) -> BoundsTuple:
        """Worst, expected (mean over all orders) and best value of each query."""
        counts = self.distinguished_counts(counts)
        return self.bounds_of_levels(measure, counts, self._one_label_per_level(measure, counts.values))

    def _one_label_per_level(self, measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
        """The labels, with one for all those that the measure does not distinguish, so that fewer orders differ."""
        if not self.reads_negative_labels:
            _, first, level = np.unique(self.levels(measure, labels), return_index=True, return_inverse=True)
            labels = labels[first][level.ravel()]
        return np.asarray(labels, dtype=np.float64)

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """The same from ``levels``, one number per run of ``counts``, which never increase within a query.

        Unless a subclass has closed forms, high levels first is taken as the best order and high levels last as the
        worst, and the expected value is the mean over all orders where there are up to 1,000, else over 1,000 draws.
        """
        from rankbound.measures.ranked import rank_rows

        result = np.zeros((3, len(counts)))
        known: dict[tuple[Any, ...], tuple[float, float, float]] = {}  # queries with equal labels have equal bounds
        for query in range(len(counts)):
            runs = slice(counts.starts[query], counts.starts[query + 1])
            key = (*levels[runs].tolist(), *counts.counts[runs].tolist(), counts.depths[query])
            if key not in known:
                items = np.repeat(levels[runs], counts.counts[runs])
                frequencies = np.unique(items, return_counts=True)[1][::-1]
                orders = np.concatenate((items[::-1][None], orders_of(items, frequencies), items[None]))
                value = self.values_in_order(measure, rank_rows(orders, int(counts.depths[query])))
                known[key] = value[0], value[1:-1].mean(), value[-1]
            result[:, query] = known[key]
        return result[0], result[1], result[2]

    # ---- distribution: the value as a sum that grows rank by rank ----------------------------------------------------

    has_walk: ClassVar[bool] = False
    grows_by_level: ClassVar[bool] = False  # whether `growth` reads the levels of a case but not its counts

    def canonical_levels(self, measure: Measure, levels: list[float]) -> list[float]:
        """Equivalent levels (highest first) in a standard form, so that more queries share a distribution."""
        return levels

    def without_passed_over(self, counts: dict[float, int], depth: int) -> tuple[dict[float, int], int]:
        """The count of each level, without documents that change no value, and the depth among the others."""
        return counts, depth

    def ranks_seen(self, measure: Measure, n: int, relevant: int, depth: int) -> int:
        """Ranks that can change the value, of ``n`` documents of which ``depth`` are ranked."""
        return min(depth, n) if measure.cutoff is None else min(depth, n, measure.cutoff)

    def keeps_cutoff(self, measure: Measure, n: int) -> bool:
        """Whether the cutoff has an effect beyond the ranks that are seen, such as on the divisor."""
        return False

    def case_settings(self, measure: Measure, n: int, ranks: int) -> tuple[tuple[str, Value], ...]:
        """The settings that the distribution depends on, given the levels."""
        return tuple((key, value) for key, value in measure.settings if key not in self.level_parameters)

    def rank_weights(self, measure: Measure, ranks: int) -> NDArray[np.float64] | None:
        """For sums of level * weight(rank): the weights of the ranks 1..ranks; None for other forms."""
        return None

    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """By how much a document of ``case.labels[level]`` at this rank increases the total.

        ``so_far[l]`` documents of each level stand above; numbers, or arrays that broadcast.
        """
        raise NotImplementedError(f"{self.name} does not grow rank by rank")

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """What turns the total into the value once all seen ranks are filled."""
        return 1.0, 0.0

    def total_range(self, case: Any) -> tuple[float, float, float]:
        """Least and greatest total, and the unit that totals are whole multiples of (0 if there is none)."""
        scale, _ = self.scale_and_shift(case, case.counts)
        return 0.0, case.bounds[2] / scale, 0.0

    def scale_varies(self, measure: Measure) -> bool:
        """Whether `scale_and_shift` has a scale that depends on the counts at the end."""
        return False

    def closed_form(self, measure: Measure) -> str:
        """Which closed form the distribution has: "hit count", "first hit", "wrong pairs", or "" for none."""
        return ""

    def decisive_ranks(self, case: Any) -> int:
        """Number of first ranks after which a random order adds less than 1e-12 to the mean; by default all."""
        return int(case.ranks)

    def is_concentrated(self, measure: Measure) -> bool:
        """Whether a few top ranks carry nearly all the weight."""
        return False

    # ---- losses ------------------------------------------------------------------------------------------------------

    def has_loss(self, measure: Measure) -> bool:
        """Whether there is a smooth loss and a lambda loss."""
        return False


class Walked(Definition):
    """A measure that grows rank by rank, as all four structures do."""

    has_walk: ClassVar[bool] = True

    @abstractmethod
    def growth(self, case: Any, rank: Any, level: int, so_far: Any) -> Any:
        """By how much a document of ``case.labels[level]`` at this rank increases the total."""

    @abstractmethod
    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Worst, expected and best in closed form."""

    def bounds(self, measure: Measure, counts: LabelCounts) -> BoundsTuple:
        """Worst, expected (mean over all orders) and best value of each query."""
        if self.reads_negative_labels:
            counts = counts.with_labels_below_zero()
        return self.bounds_of_levels(measure, counts, self.levels_of_counts(measure, counts))

    def has_loss(self, measure: Measure) -> bool:
        """Every measure of the four structures has its losses unless it says otherwise."""
        return True


def orders_of(
    levels: NDArray[np.float64], counts: NDArray[np.int64], draws: int = SAMPLED_ORDERS
) -> NDArray[np.float64]:
    """All distinguishable orders of levels if there are up to 1,000, else ``draws`` random ones with a fixed seed.

    ``levels`` come in descending order and ``counts`` says how often each distinct one occurs.
    """
    n = len(levels)
    if n == 0:
        return np.zeros((1, 0))  # the one order of nothing
    number = math.factorial(n)
    for count in counts.tolist():
        number //= math.factorial(count)
    if number <= _ENUMERATED and n <= _ENUMERATED:
        return np.array(arrangements(levels.tolist()), dtype=np.float64).reshape(-1, n)
    return levels[random_orders(draws, n)]
