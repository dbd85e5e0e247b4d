"""Success: whether a relevant document is among the first k."""

from __future__ import annotations

from rankbound.measures.cascade import FirstHit
from rankbound.measures.definition import REL
from rankbound.measures.discounts import CONSTANT


class Success(FirstHit):
    """Success@k = 1 if a relevant document is among the first k, else 0. Also called hit rate."""

    name = "Success"
    summary = "hit rate: 1 if a relevant document is among the first k"
    formula = "1 if a relevant document is among the first k, else 0"
    citation = "Shah & Croft, Evaluating high accuracy retrieval techniques, SIGIR 2004"
    parameters = {"rel": REL}
    aliases = {"hit_rate": {}, "hr": {}, "hit": {}, "hitrate": {}}
    cutoff = "required"
    discount = CONSTANT
