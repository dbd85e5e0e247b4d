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

`rankbound.data.candidates` reads candidates from files, and `rankbound.measures.complete` reads a run as a
complete ranking of the candidates.
"""

from __future__ import annotations

from typing import Any

from rankbound.data.candidates import CandidateSource
from rankbound.errors import ArgumentError
from rankbound.protocol import CANDIDATES


def rule_of(candidates: Any) -> str:
    """Return the rule of candidates that have been read, or of their name."""
    return candidates.rule if isinstance(candidates, CandidateSource) else check_rule(candidates)


def check_rule(candidates: Any) -> str:
    """Return the rule if it is one of `CANDIDATES`; raise ArgumentError if it is anything else."""
    if not isinstance(candidates, str) or candidates not in CANDIDATES:
        raise ArgumentError(f"candidates must be 'judged' or 'returned' for lists, got {candidates!r}")
    return candidates
