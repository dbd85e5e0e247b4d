"""Measures of rankings. Each has a file of its own that says everything about it: `ndcg`, `average_precision`, ...

`definition` says what makes up a measure, `additive`, `cascade`, `pairwise` and `precision_sum` turn a few formulas
into values, bounds, distributions and losses. `measure` reads names, `registry` knows the measures there are, `own`
defines new ones, `ranked` sorts lists and knows their ties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankbound.measures.definition import Definition, Parameter
from rankbound.measures.label_counts import LabelCounts
from rankbound.measures.measure import BOUNDINGS, Measure, parse_measure, parse_measures
from rankbound.measures.own import additive, cascade, pairwise
from rankbound.measures.ranked import TIES, Ranked
from rankbound.measures.registry import definitions, get_definition, register, unregister

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BOUNDINGS",
    "TIES",
    "Definition",
    "LabelCounts",
    "Measure",
    "Parameter",
    "Ranked",
    "additive",
    "cascade",
    "definitions",
    "get_definition",
    "is_defined",
    "pairwise",
    "parse_measure",
    "parse_measures",
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
