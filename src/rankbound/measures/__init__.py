"""What a ranking is worth: measures by name, and their values per query.

One file per family: `gains` (DCG, nDCG, ERR), `precision` (AP, SP, P, R, RR, Success, Rprec, RBP, nRBP), `pairs` (U,
pairwise accuracy, tau). `names` says which measures there are, `ranked` sorts and knows about ties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from rankbound.measures import gains, pairs, precision
from rankbound.measures.label_counts import LabelCounts
from rankbound.measures.names import BOUNDINGS, FAMILIES, Measure, parse_measure
from rankbound.measures.ranked import TIES, Ranked

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BOUNDINGS",
    "FAMILIES",
    "TIES",
    "LabelCounts",
    "Measure",
    "Ranked",
    "is_defined",
    "parse_measure",
]
__all__ += ["values"]

_VALUE: Mapping[str, Callable[[Ranked, Measure], NDArray[np.float64]]] = MappingProxyType(
    {
        "nDCG": gains.ndcg,
        "DCG": gains.dcg,
        "ERR": gains.err,
        "AP": precision.average_precision,
        "SP": precision.sum_of_precisions,
        "P": precision.precision,
        "R": precision.recall,
        "RR": precision.reciprocal_rank,
        "Success": precision.success,
        "Rprec": precision.r_precision,
        "RBP": precision.rank_biased_precision,
        "nRBP": precision.normalized_rank_biased_precision,
        "U": pairs.mann_whitney,
        "PairAcc": pairs.pairwise_accuracy,
        "Tau": pairs.kendall_tau,
    }
)


def values(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """The plain measure's value for each query; 0 where there is nothing to find."""
    return _VALUE[measure.family](ranked, measure)


def is_defined(counts: LabelCounts, measure: Measure) -> NDArray[np.bool_]:
    """Queries for which the plain measure is defined: something relevant, or for pair measures labels that differ."""
    if measure.family in ("PairAcc", "Tau"):
        return pairs.unequal_pairs(counts) > 0
    if measure.family in ("nDCG", "DCG", "ERR") or measure.settings.count(("gain", "graded")):
        return precision.largest_label(counts) > 0
    relevant = counts.relevant(measure.rel)
    return (relevant > 0) & (relevant < counts.sizes) if measure.family == "U" else relevant > 0
