"""Case: all that the distribution of a measure depends on, and every measure as a sum over ranks.

Put items down rank by rank. When a label is put at rank r after c_l items of each label l, the measure grows by an
amount that r and the counts c decide; at the end the total is scaled and shifted by what the final counts decide:

========  ===============================================  =======================================
measure   growth by an item with label l at rank r          value of the total T
========  ===============================================  =======================================
DCG       gain(l) / log2(r + 1)                             T, for nDCG over the best DCG
RBP       p^(r-1) if relevant (or label / largest label)    (1 - p) T, for nRBP over 1 - p^min(k, P)
SP, AP    (relevant so far) / r if relevant                 T over the divisor
ERR       stop(l) / r * prod over earlier (1 - stop)        T
RR        1 / r if the first relevant                       T
P, R ...  1 if relevant                                     T over the divisor
U, pairs  items with lower labels so far (wrong pairs)      T + pairs among and below unranked items
========  ===============================================  =======================================

Enumeration, sampling and the dynamic programs all walk through these sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.difficulty.bounds import bounds_of
from rankbound.measures import LabelCounts, Measure, gains, precision

__all__ = ["Case", "Counts", "case_of", "is_binary", "labels_that_matter"]

Counts = Any  # sequence over labels, highest first, of how many stand so far: numbers, or arrays that broadcast
_BINARY = frozenset({"AP", "SP", "P", "R", "RR", "Success", "Rprec", "nRBP", "U"})
_PAIRS = frozenset({"PairAcc", "Tau"})
_KEEPS_CUTOFF = frozenset({"P", "nDCG", "nRBP"})  # the cutoff is part of the scale, not only of the ranks seen


def labels_that_matter(measure: Measure, labels: NDArray[Any]) -> NDArray[np.float64]:
    """Labels as the measure tells them apart: 1 and 0 where only relevance counts, gains for DCG, else the labels."""
    if is_binary(measure):
        return (labels >= measure.rel).astype(np.float64)
    if measure.family in ("DCG", "nDCG"):
        return gains.gain_of(np.asarray(labels), measure["dcg"])
    if measure.family == "ERR":
        gains.stop_probability(np.asarray(labels), measure)  # refuses labels above max_rel
    return np.asarray(labels, dtype=np.float64)


def is_binary(measure: Measure) -> bool:
    """Whether the measure only knows relevant and not relevant."""
    return measure.family in _BINARY or (measure.family == "RBP" and measure["gain"] == "binary")


def case_of(
    measure: Measure, labels: Sequence[float], counts: Sequence[int], depth: int, ranker_strength: float = 0.5
) -> Case:
    """The case of a query with ``counts[i]`` items of ``labels[i]`` (as `labels_that_matter` gives them).

    Queries with the same distribution get equal cases: labels are merged and scaled, parameters without influence
    dropped.
    """
    merged: dict[float, int] = {}
    for label, count in sorted(zip(labels, counts, strict=True), reverse=True):
        if count:
            merged[float(label)] = merged.get(float(label), 0) + int(count)
    values, numbers, n = list(merged), tuple(merged.values()), sum(merged.values())
    if measure.family in _PAIRS:
        values = [float(i) for i in range(len(values) - 1, -1, -1)]
    elif measure.family in ("nDCG", "RBP") and values and values[0] > 0:
        values = [value / values[0] for value in values]
    ranks = min(depth, n) if measure.cutoff is None else min(depth, n, measure.cutoff)
    if measure.family == "Rprec":
        ranks = min(ranks, merged.get(1.0, 0))
    keep = measure.family in _KEEPS_CUTOFF or (measure.family == "AP" and measure["div"] in ("min", "k"))
    if measure.family in ("nDCG", "nRBP") and measure.cutoff is not None and measure.cutoff >= n:
        keep = False
    settings = tuple((key, value) for key, value in measure.settings if key not in ("rel", "variant", "dcg"))
    if measure.family == "AP" and measure["div"] == "retrieved" and ranks == n:
        settings = ()  # everything is retrieved
    slim = replace(measure.plain, cutoff=measure.cutoff if keep else None, settings=settings)
    return Case(slim, tuple(values), numbers, ranks, ranker_strength)


@dataclass(frozen=True)
class Case:
    """A plain measure on ``counts[i]`` items of ``labels[i]``, highest first, of which ``ranks`` ranks are seen.

    ``ranker_strength`` = w: the next item is drawn from those left with weight w for a relevant one (label above 0)
    and 1 - w
    for another; 0.5 is the random order.
    """

    measure: Measure
    labels: tuple[float, ...]
    counts: tuple[int, ...]
    ranks: int
    ranker_strength: float = 0.5

    @cached_property
    def n(self) -> int:
        """Items of the query."""
        return sum(self.counts)

    @cached_property
    def relevant(self) -> int:
        """Items with a label above 0."""
        return sum(count for label, count in zip(self.labels, self.counts, strict=True) if label > 0)

    @property
    def random(self) -> bool:
        """Whether every order is equally likely."""
        return self.ranker_strength == 0.5

    @cached_property
    def label_counts(self) -> LabelCounts:
        """The query as the measures see it."""
        n = np.array([self.n])
        return LabelCounts(
            np.array(self.labels),
            np.array(self.counts, dtype=np.int64),
            np.array([0, len(self.labels)]),
            n,
            np.array([self.ranks]),
        )

    @cached_property
    def bounds(self) -> tuple[float, float, float]:
        """Worst, expected under a random order, best."""
        three = bounds_of(self.measure, self.label_counts)
        return float(three.worst[0]), float(three.expected[0]), float(three.best[0])

    @cached_property
    def log_arrangements(self) -> float:
        """log of the number of distinguishable ways to fill the ranks that are seen."""
        ranks = np.arange(self.ranks + 1)
        lf = precision.log_factorials(self.ranks)
        ways = np.full(self.ranks + 1, -np.inf)  # log of (sequences of length d) / d!
        ways[0] = 0.0
        for count in sorted(self.counts)[:-1]:
            wider = ways.copy()
            for j in range(1, min(count, self.ranks) + 1):
                wider[j:] = np.logaddexp(wider[j:], ways[: self.ranks + 1 - j] - lf[j])
            ways = wider
        rest = self.ranks - ranks  # places left to the commonest label
        fits = rest <= max(self.counts, default=0)
        return float(np.logaddexp.reduce((ways - lf[rest])[fits]) + lf[self.ranks])

    # ---- the walk over ranks -----------------------------------------------------------------------------------------

    @cached_property
    def rank_weights(self) -> NDArray[np.float64] | None:
        """For measures that are a sum of (label) * (weight of the rank): the weights of the seen ranks; else None."""
        if self.measure.family in ("DCG", "nDCG"):
            return gains.discounts(self.ranks)
        if self.measure.family in ("RBP", "nRBP"):
            return np.asarray(self.measure.number("p") ** np.arange(self.ranks))
        return None

    def probabilities(self, placed: Any, so_far: Counts) -> list[Any]:
        """Probability of each label to come next, after ``placed`` items of which ``so_far[l]`` have label l."""
        left = [count - seen for count, seen in zip(self.counts, so_far, strict=True)]
        if self.random:
            return [each / (self.n - placed) for each in left]
        pull = [
            each * (self.ranker_strength if label > 0 else 1 - self.ranker_strength)
            for label, each in zip(self.labels, left, strict=True)
        ]
        total = sum(pull)
        safe = np.where(total > 0, total, 1.0)
        return [each / safe for each in pull]

    def growth(self, rank: Any, level: int, so_far: Counts) -> Any:
        """What the total gains when the label ``labels[level]`` is put at this rank."""
        label, family = self.labels[level], self.measure.family
        if self.rank_weights is not None:
            return label * self.rank_weights[rank - 1]
        if family in ("U", "PairAcc", "Tau"):
            return sum(so_far[level + 1 :]) if level + 1 < len(self.labels) else 0.0
        if label <= 0:
            return 0.0
        if family in ("AP", "SP"):
            return (so_far[level] + 1) / rank
        if family == "ERR":
            return self._stop[level] / rank * math.prod((1 - s) ** c for s, c in zip(self._stop, so_far, strict=True))
        if family == "RR":
            return np.where(so_far[level] == 0, 1 / rank, 0.0)
        if family == "Success":
            return np.where(so_far[level] == 0, 1.0, 0.0)
        return 1.0  # P, R, Rprec count

    @cached_property
    def _stop(self) -> list[float]:
        return [float(s) for s in gains.stop_probability(np.array(self.labels), self.measure)]

    def value(self, so_far: Counts) -> tuple[Any, Any]:
        """Scale and shift that turn the total into the measure's value, once all seen ranks are filled."""
        family, counts = self.measure.family, self.label_counts
        if family == "nDCG":
            return _inverse(gains.ideal_dcg(counts, self.measure)[0]), 0.0
        if family in ("RBP", "nRBP"):
            top = precision.best_rank_biased_precision(counts, self.measure)[0] if family == "nRBP" else 1.0
            return (1 - self.measure.number("p")) * _inverse(top), 0.0
        if family == "AP" and self.measure["div"] == "retrieved":
            found = np.asarray(so_far[0] if self.relevant else 0.0)
            return np.divide(1.0, found, out=np.zeros(found.shape), where=found > 0), 0.0
        if family == "AP":
            return _inverse(precision.precision_divisor(counts, self.measure)[0]), 0.0
        if family == "P":
            assert self.measure.cutoff is not None
            return 1 / self.measure.cutoff, 0.0
        if family in ("R", "Rprec"):
            return _inverse(self.relevant), 0.0
        if family in ("U", "PairAcc", "Tau"):
            wrong = self._pairs_out_of_sight(so_far)
            n = self.n
            unequal = (n * n - sum(count * count for count in self.counts)) / 2
            if family == "U":
                return 1.0, wrong
            if family == "PairAcc":
                return -_inverse(unequal), (1.0 if unequal else 0.0) - wrong * _inverse(unequal)
            scale = _inverse(math.sqrt(unequal * (n * (n - 1) / 2)))
            return -2 * scale, (unequal - 2 * wrong) * scale
        return 1.0, 0.0

    def _pairs_out_of_sight(self, so_far: Counts) -> Any:
        """Wrong pairs of an unranked item: with lower labels that are ranked, and half of those with one another."""
        left = [count - seen for count, seen in zip(self.counts, so_far, strict=True)]
        wrong: Any = 0.0
        for i in range(len(left)):
            for j in range(i + 1, len(left)):
                wrong = wrong + left[i] * so_far[j] + left[i] * left[j] / 2
        return wrong


def _inverse(x: Any) -> float:
    return 1 / float(x) if x > 0 else 0.0
