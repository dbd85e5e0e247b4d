"""Case: everything that the distribution of a measure depends on.

Fill the ranks one by one. A document at rank r adds to the measure's total an amount that depends only on the rank and
on how many documents of each level are above it; at the end the total is scaled and shifted, depending on the final
counts. The measure's definition provides both (`growth`, `scale_and_shift`). Enumeration, sampling and the dynamic
programs are all built on these sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankbound.measures import LabelCounts, Measure
from rankbound.measures.combinatorics import log_factorials

Counts = Any  # sequence over levels, highest first, of how many stand so far: numbers, or arrays that broadcast


def case_of(
    measure: Measure, levels: Sequence[float], counts: Sequence[int], depth: int, ranker_strength: float = 0.5
) -> Case:
    """The case of a query with ``counts[i]`` documents of ``levels[i]``, as the definition's ``levels`` gives them.

    Queries with the same distribution get equal cases: levels are merged and scaled, settings without effect dropped.
    """
    definition = measure.definition
    merged: dict[float, int] = {}
    for level, count in sorted(zip(levels, counts, strict=True), reverse=True):
        if count:
            merged[float(level)] = merged.get(float(level), 0) + int(count)
    merged, depth = definition.without_passed_over(merged, depth)
    n = sum(merged.values())
    relevant = sum(count for level, count in merged.items() if level > 0)
    values = definition.canonical_levels(measure, list(merged))
    ranks = definition.ranks_seen(measure, n, relevant, depth)
    slim = replace(
        measure.plain,
        cutoff=measure.cutoff if definition.keeps_cutoff(measure, n) else None,
        settings=definition.case_settings(measure, n, ranks),
    )
    numbers = list(merged.values())
    if values and values[-1] > 0 and definition.has_walk and definition.rank_weights(measure, 0) is None:
        values, numbers = [*values, 0.0], [*numbers, 0]  # the dynamic program expects a lowest level that adds nothing
    return Case(slim, tuple(values), tuple(numbers), ranks, ranker_strength)


@dataclass(frozen=True)
class Case:
    """A plain measure on ``counts[i]`` documents of level ``labels[i]``, highest first; ``ranks`` ranks are seen.

    ``ranker_strength`` = w: the next item is drawn from those left with weight w for a relevant one (label above 0) and
    1 - w for another; 0.5 is the random order.
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
        levels = np.array(self.labels)
        bounds = self.measure.definition.bounds_of_levels(self.measure, self.label_counts, levels)
        worst, expected, best = (float(np.asarray(array)[0]) for array in bounds)
        return worst, expected, best

    @cached_property
    def normalizer(self) -> float:
        """What an additive measure divides by on this query."""
        definition: Any = self.measure.definition
        return float(definition.normalizer(self.measure, self.label_counts, np.array(self.labels))[0])

    @cached_property
    def log_arrangements(self) -> float:
        """log of the number of distinguishable ways to fill the ranks that are seen."""
        if not self.measure.definition.has_walk:  # it needs whole orders
            table = log_factorials(self.n)
            return float(table[self.n] - sum(table[count] for count in self.counts))
        ranks = np.arange(self.ranks + 1)
        lf = log_factorials(self.ranks)
        log_sequences = np.full(self.ranks + 1, -np.inf)  # log of (sequences of length d) / d!
        log_sequences[0] = 0.0
        for count in sorted(self.counts)[:-1]:
            wider = log_sequences.copy()
            for j in range(1, min(count, self.ranks) + 1):
                wider[j:] = np.logaddexp(wider[j:], log_sequences[: self.ranks + 1 - j] - lf[j])
            log_sequences = wider
        rest = self.ranks - ranks  # ranks left to the commonest level
        fits = rest <= max(self.counts, default=0)
        return float(np.logaddexp.reduce((log_sequences - lf[rest])[fits]) + lf[self.ranks])

    # ---- the walk over ranks -----------------------------------------------------------------------------------------

    @cached_property
    def rank_weights(self) -> NDArray[np.float64] | None:
        """For sums of level * weight(rank): the weights of the seen ranks; else None."""
        return self.measure.definition.rank_weights(self.measure, self.ranks)

    def probabilities(self, filled: Any, so_far: Counts) -> list[Any]:
        """Probability of each label to come next, after ``filled`` items of which ``so_far[l]`` have label l."""
        left = [count - seen for count, seen in zip(self.counts, so_far, strict=True)]
        if self.random:
            return [each / (self.n - filled) for each in left]
        weights = [
            each * (self.ranker_strength if label > 0 else 1 - self.ranker_strength)
            for label, each in zip(self.labels, left, strict=True)
        ]
        total = sum(weights)
        safe = np.where(total > 0, total, 1.0)
        return [each / safe for each in weights]

    def growth(self, rank: Any, level: int, so_far: Counts) -> Any:
        """By how much a document of ``labels[level]`` at this rank increases the total."""
        return self.measure.definition.growth(self, rank, level, so_far)

    def value(self, so_far: Counts) -> tuple[Any, Any]:
        """Scale and shift that turn the total into the measure's value, once all seen ranks are filled."""
        return self.measure.definition.scale_and_shift(self, so_far)
