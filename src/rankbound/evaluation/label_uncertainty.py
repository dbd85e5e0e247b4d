"""What `rankbound.Protocol.unjudged` asks for: ranges over the labels of unjudged documents, or draws of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.sources import to_frame
from rankbound.difficulty.candidates import rule_of
from rankbound.difficulty.unknown.expected import LabelDraws, draw_labels
from rankbound.difficulty.unknown.ranges import LabelRange, label_ranges
from rankbound.difficulty.unknown.ranking import UnknownRanking, check_grades, grades_of
from rankbound.errors import ArgumentError
from rankbound.lists import Lists
from rankbound.protocol import RANGE_OF, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures import Measure


@dataclass(frozen=True, eq=False)
class Unjudged:
    """Ranges or draws by measure; both are empty where unjudged documents count as not relevant."""

    ranges: Mapping[str, LabelRange] = field(default_factory=dict)
    by_draws: Mapping[str, LabelDraws] = field(default_factory=dict)


def with_grades(protocol: Protocol, qrels: Any) -> Protocol:
    """The protocol with the grades of the judgments, where it asks for a range over them."""
    if protocol.unjudged != "range":
        return protocol
    if isinstance(qrels, Lists):
        labels = qrels.labels
    else:
        labels = to_frame(qrels, "label")["label"].unique().to_numpy()
    return protocol.changed(unjudged=RANGE_OF + ",".join(f"{grade:g}" for grade in grades_of(np.asarray(labels))))


def given_grades(protocol: Protocol) -> NDArray[Any] | None:
    """The grades that a protocol names; None if it names none."""
    if not isinstance(protocol.unjudged, str) or not protocol.unjudged.startswith(RANGE_OF):
        return None
    grades = np.array([float(part) for part in protocol.unjudged.removeprefix(RANGE_OF).split(",")])
    return check_grades(grades.astype(np.int64) if (grades == np.floor(grades)).all() else grades)


def labels_of_unjudged(lists: Lists, requested: Mapping[str, Measure], protocol: Protocol) -> Unjudged:
    """Ranges or draws of the measures, as the protocol asks for; it must not be that unjudged counts as 0."""
    if isinstance(protocol.unjudged, str):
        rule = rule_of(protocol.candidates)
        grades = given_grades(protocol)
        found = label_ranges(lists, requested, ties=protocol.ties, depth=protocol.depth, grades=grades, candidates=rule)
        return Unjudged(ranges=found)
    ranking = UnknownRanking(lists, protocol.ties, protocol.depth)
    probability = _probabilities(ranking, lists, protocol.unjudged)
    relevant = np.maximum(lists.labels, 0)[lists.labels > 0]
    grades, number = np.unique(relevant, return_counts=True) if len(relevant) else (np.ones(1, np.int64), np.ones(1))
    return Unjudged(by_draws=draw_labels(ranking, requested, probability, grades, number / number.sum()))


def _probabilities(ranking: UnknownRanking, lists: Lists, unjudged: Any) -> NDArray[np.float64]:
    """The probability of a label above 0 for each unknown document."""
    if not callable(unjudged):
        return np.full(len(ranking.unknown), float(unjudged))
    if lists.ids is None:
        raise ArgumentError("a function of unjudged documents needs runs with ids of their documents")
    position = ranking.position[ranking.unknown]
    names = np.asarray(lists.query_ids)[ranking.query[ranking.unknown]]
    result = np.asarray(unjudged(names, np.asarray(lists.ids[position]), ranking.rank[ranking.unknown]))
    if result.dtype.kind not in "biuf" or result.shape not in ((), position.shape):
        raise ArgumentError(
            f"unjudged must return a probability for each of {len(position)} documents, got {result!r:.60}"
        )
    return np.broadcast_to(result.astype(np.float64), position.shape)
