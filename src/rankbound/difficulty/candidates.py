"""Candidates: the documents of a query whose rankings its difficulty describes.

Worst, expected and best value, distributions and normalized measures compare a run with all rankings of the same
documents. These documents are a property of the query, not of the run:

=============  ============================================================================================
rule           candidates of a query
=============  ============================================================================================
judged         the judged documents (the default)
returned       the judged documents that the run returned; runs that return different ones are not comparable
a file, frame  the documents that it lists, such as those that a first stage retrieved for re-ranking
or column      or those that were sampled for evaluating a recommender
=============  ============================================================================================

`rankbound.data.candidates` reads candidates from files, and `rankbound.measures.Ranked.complete` reads a run as a
complete ranking of the candidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.candidates import CandidateSource
from rankbound.errors import ArgumentError
from rankbound.protocol import CANDIDATES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists


def rule_of(candidates: Any) -> str:
    """Return the rule of candidates that have been read, or of their name."""
    return candidates.rule if isinstance(candidates, CandidateSource) else check_rule(candidates)


def check_rule(candidates: Any) -> str:
    """Return the rule if it is one of `CANDIDATES`; raise ArgumentError if it is anything else."""
    if not isinstance(candidates, str) or candidates not in CANDIDATES:
        raise ArgumentError(f"candidates must be 'judged' or 'returned' for lists, got {candidates!r}")
    return candidates


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
    if rule_of(candidates) == "judged" or lists.depths is None:
        return lists.judged
    return lists.returned if lists.judged is None else lists.returned & lists.judged
