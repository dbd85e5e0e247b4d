"""RunValues: plain and normalized values of one run, with the difficulty of its queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rankbound.difficulty.bounding import Difficulty, get_bounding
from rankbound.difficulty.candidates import candidate_mask
from rankbound.difficulty.p_values import PValues, p_values_of
from rankbound.difficulty.queries import difficulty_of
from rankbound.difficulty.standardization import ReferenceScores, missing_references
from rankbound.difficulty.ties import bounded_values
from rankbound.measures import BOUNDINGS, LabelCounts, Measure, Ranked
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists

_STAND_INS = {"skip": np.nan, "zero": 0.0, "one": 1.0}


class QueryValues(NamedTuple):
    """The values of a measure for the queries of one run."""

    value: NDArray[np.float64]
    """With what the protocol puts where the measure has no value: NaN, 0 or 1."""
    is_empty: NDArray[np.bool_]
    """Queries for which the measure is not defined because they have nothing relevant."""
    has_no_choice: NDArray[np.bool_] | None
    """For a normalized measure, the others whose candidates have the same value in every order."""


class RunValues:
    """The values of measures for the queries of one run, computed when they are first used and then kept.

    Plain measures are those of the run as it is, as trec_eval computes them. Normalized measures, and everything that
    is compared with the worst, expected and best value, are those of the run read as a complete ranking of the
    candidates: see `rankbound.difficulty.candidates`.

    Standardized measures are those of the plain values, by the scores of the protocol's references. The protocol's
    candidates are a rule: explicit ones are part of the lists.

    ``difficulties`` are those of another run on the same queries with the same candidates: they are used again, and
    what is missing is added.

    >>> from rankbound.lists import Lists
    >>> from rankbound.measures import parse_measure
    >>> run = RunValues(Lists.from_dicts({"q": {"a": 1, "b": 1, "c": 0}}, {"q": {"a": 2.0, "x": 1.0}}))
    >>> ap = parse_measure("AP")
    >>> run.plain(ap).tolist(), run.complete(ap).round(4).tolist(), run.difficulty(ap).worst.round(4).tolist()
    ([0.5], [0.9167], [0.5833])
    """

    def __init__(
        self,
        lists: Lists,
        protocol: Protocol = Protocol(),  # noqa: B008  # immutable
        difficulties: dict[Measure, Difficulty] | None = None,
    ) -> None:
        ties, depth = protocol.ties, protocol.depth
        self.query_ids = lists.query_ids
        self._protocol = protocol
        self._mask = candidate_mask(lists, protocol.candidates)
        all_ranked = self._mask is None and lists.depths is None
        if lists.candidates is None:
            self._ranked = Ranked(lists, ties, depth, keep_order=not all_ranked)
            self._every: Ranked = self._ranked
        else:  # candidates that are neither returned nor judged are no part of the plain ranking
            self._ranked = Ranked(lists.without_added_candidates(), ties, depth)
            self._every = Ranked(lists, ties, depth, keep_order=True)
        self._complete: Ranked | None = self._ranked if all_ranked else None
        self._plain: dict[Measure, NDArray[np.float64]] = {}
        self._complete_values: dict[Measure, NDArray[np.float64]] = {}
        self.difficulties = {} if difficulties is None else difficulties

    @property
    def ranking(self) -> Ranked:
        """The run as a complete ranking of the candidates."""
        if self._complete is None:
            self._complete = self._every.complete(self._mask)
        return self._complete

    @property
    def counts(self) -> LabelCounts:
        """Labels of the candidates of each query."""
        return self.ranking.counts

    def plain(self, measure: Measure) -> NDArray[np.float64]:
        """Values of a plain measure for the run as it is; 0 where the measure is not defined."""
        if measure not in self._plain:
            self._plain[measure] = measure.definition.values(measure, self._ranked)
        return self._plain[measure]

    def complete(self, measure: Measure) -> NDArray[np.float64]:
        """Values of a plain measure for the run read as a complete ranking of the candidates."""
        ranking = self.ranking
        if ranking is self._ranked:
            return self.plain(measure)
        if measure not in self._complete_values:
            self._complete_values[measure] = measure.definition.values(measure, ranking)
        return self._complete_values[measure]

    def difficulty(self, measure: Measure) -> Difficulty:
        """What any complete ranking of the candidates could score under a plain measure."""
        if measure not in self.difficulties:
            self.difficulties[measure] = difficulty_of(measure, self.ranking.counts)
        return self.difficulties[measure]

    def p_values(self, measure: Measure) -> PValues:
        """p-values of the complete ranking against random rankings of the candidates by a plain measure."""
        return p_values_of(self.ranking, measure, self.difficulty(measure), self.complete(measure))

    def of_queries(self, measure: Measure) -> QueryValues:
        """Values of a measure with its bounding, averaged over the orders of ties, and which queries have one."""
        plain, stand_in = measure.plain, _STAND_INS[self._protocol.empty]
        if measure.bounding in BOUNDINGS.values():
            ranking = self.ranking
            defined = plain.definition.is_defined(plain, ranking.counts)
            bounding, difficulty, value = get_bounding(measure.bounding), self.difficulty(plain), self.complete(plain)
            bounded = bounded_values(bounding, plain, ranking, value, difficulty)
            has_value = defined & bounding.defined(difficulty)
            return QueryValues(np.where(has_value, bounded, stand_in), ~defined, defined & ~difficulty.informative)
        defined = plain.definition.is_defined(plain, self._ranked.counts)
        if measure.bounding == "none":
            return QueryValues(np.where(defined, self.plain(measure), stand_in), ~defined, None)
        references: ReferenceScores | None = self._protocol.references
        if references is None:
            raise missing_references(measure)
        standardized = references.standardize(measure, self.query_ids, self.plain(plain))
        return QueryValues(np.where(defined & np.isfinite(standardized), standardized, stand_in), ~defined, None)

    def has_no_choice(self, measure: Measure) -> NDArray[np.bool_]:
        """Queries that are not empty but whose candidates have the same value in every order."""
        plain = measure.plain
        return plain.definition.is_defined(plain, self.counts) & ~self.difficulty(plain).informative
