"""Measures of rankings. Each is defined in a file of its own: `ndcg`, `average_precision`, ...

`definition` is the interface of a measure; `additive`, `cascade`, `pairwise` and `precision_sum` derive values,
bounds, distributions and losses from a few formulas; `judgments` is the structure of Bpref and infAP. `measure` parses
names, `registry` lists the measures, `own` defines new ones, and `ranked` sorts lists and finds their ties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.measures.definition import Definition, Parameter
from rankbound.measures.label_counts import LabelCounts
from rankbound.measures.measure import BOUNDINGS, STANDARDIZATIONS, Measure, parse_measure, parse_measures
from rankbound.measures.own import additive, cascade, pairwise
from rankbound.measures.ranked import Ranked, complete, rank
from rankbound.measures.registry import definitions, get_definition, register, unregister

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BOUNDINGS",
    "STANDARDIZATIONS",
    "Definition",
    "LabelCounts",
    "Measure",
    "Parameter",
    "Ranked",
    "additive",
    "cascade",
    "complete",
    "definitions",
    "get_definition",
    "is_defined",
    "pairwise",
    "parse_measure",
    "parse_measures",
    "rank",
    "register",
    "unregister",
    "values",
]


def values(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """The plain measure's value for each query; 0 where it is not defined."""
    return measure.definition.values(measure, ranked)


def is_defined(counts: LabelCounts, measure: Measure) -> NDArray[np.bool_]:
    """Queries for which the plain measure is defined: something relevant, or for pairs labels that differ."""
    return measure.definition.is_defined(measure, counts)
