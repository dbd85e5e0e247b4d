"""RR: reciprocal rank."""

from __future__ import annotations

from rankbound.measures.cascade import FirstHit
from rankbound.measures.definition import REL
from rankbound.measures.discounts import RECIPROCAL


class ReciprocalRank(FirstHit):
    """RR@k = 1 / (rank of the first relevant document), 0 if it is not among the first k."""

    name = "RR"
    summary = "reciprocal rank of the first relevant document"
    formula = "1 / (rank of the first relevant document), 0 beyond rank k"
    citation = "Kantor & Voorhees, The TREC-5 confusion track, Information Retrieval 2000"
    parameters = {"rel": REL}
    aliases = {"mrr": {}, "recip_rank": {}, "reciprocal_rank": {}}
    discount = RECIPROCAL
