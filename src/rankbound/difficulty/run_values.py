"""RunValues: plain and normalized values of one run, with the difficulty of its queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankbound.difficulty.bounding import Difficulty, difficulty_of, get_bounding
from rankbound.difficulty.candidates import rule_of
from rankbound.difficulty.p_values import PValues, p_values_of
from rankbound.difficulty.standardization import ReferenceScores, missing_references
from rankbound.difficulty.ties import bounded_values
from rankbound.measures import BOUNDINGS, LabelCounts, Measure, Ranked, complete, rank
from rankbound.protocol import CANDIDATES, Protocol

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
        self.lists = lists
        self._protocol = protocol
        self._mask = candidate_mask(lists, protocol.candidates)
        self._every = rank(lists, ties, depth)
        # candidates that are neither returned nor judged are no part of the plain ranking
        is_plain = lists.candidates is None
        self.ranked = self._every if is_plain else rank(lists.without_added_candidates(), ties, depth)
        self._complete: Ranked | None = None
        if self._mask is None and lists.depths is None:
            self._every.order = None  # a complete ranking as it is; the order would only hold memory
        self._plain: dict[Measure, NDArray[np.float64]] = {}
        self._complete_values: dict[Measure, NDArray[np.float64]] = {}
        self.difficulties = {} if difficulties is None else difficulties

    @property
    def ranking(self) -> Ranked:
        """The run as a complete ranking of the candidates."""
        if self._complete is None:
            self._complete = complete(self._every, self._mask)
        return self._complete

    @property
    def counts(self) -> LabelCounts:
        """Labels of the candidates of each query."""
        return self.ranking.counts

    def plain(self, measure: Measure) -> NDArray[np.float64]:
        """Values of a plain measure for the run as it is; 0 where the measure is not defined."""
        if measure not in self._plain:
            self._plain[measure] = measure.definition.values(measure, self.ranked)
        return self._plain[measure]

    def complete(self, measure: Measure) -> NDArray[np.float64]:
        """Values of a plain measure for the run read as a complete ranking of the candidates."""
        ranking = self.ranking
        if ranking is self.ranked:
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
        plain, stand_in = measure if measure.bounding == "none" else measure.plain, _STAND_INS[self._protocol.empty]
        if measure.bounding in BOUNDINGS.values():
            ranking = self.ranking
            defined = plain.definition.is_defined(plain, ranking.counts)
            difficulty, value, bounding = self.difficulty(plain), self.complete(plain), get_bounding(measure.bounding)
            if bounding.affine:
                bounded = bounding.apply(value, difficulty)[0]
            else:
                bounded = bounded_values(bounding, plain, ranking, value, difficulty)
            has_value, has_choice = defined & bounding.defined(difficulty), difficulty.best != difficulty.worst
            return QueryValues(np.where(has_value, bounded, stand_in), ~defined, defined & ~has_choice)
        defined = plain.definition.is_defined(plain, self.ranked.counts)
        if measure.bounding == "none":
            return QueryValues(np.where(defined, self.plain(measure), stand_in), ~defined, None)
        references: ReferenceScores | None = self._protocol.references
        if references is None:
            raise missing_references(measure)
        standardized = references.standardize(measure, self.lists.query_ids, self.plain(plain))
        return QueryValues(np.where(defined & np.isfinite(standardized), standardized, stand_in), ~defined, None)

    def has_no_choice(self, measure: Measure) -> NDArray[np.bool_]:
        """Queries that are not empty but whose candidates have the same value in every order."""
        plain = measure.plain
        return plain.definition.is_defined(plain, self.counts) & ~self.difficulty(plain).informative


def candidate_mask(lists: Lists, candidates: Any = CANDIDATES[0]) -> NDArray[np.bool_] | None:
    """Whether each item of the lists is a candidate; None if all are.

    ``candidates`` are a rule or candidates that have been read. Lists that carry candidates of their own
    (`Lists.candidates`) keep them, whatever the rule says.

    >>> from rankbound.lists import Lists
    >>> lists = Lists.from_dicts({"q": {"a": 1, "b": 2}}, {"q": {"a": 0.9, "x": 0.5}})  # a, x; b was not returned
    >>> candidate_mask(lists).tolist(), candidate_mask(lists, "returned").tolist()
    ([True, False, True], [True, False, False])
    """
    if lists.candidates is not None:
        return lists.candidates
    rule = candidates if isinstance(candidates, str) else rule_of(candidates)
    if rule == "judged" or lists.depths is None:
        return lists.judged
    return lists.returned if lists.judged is None else lists.returned & lists.judged
