"""Difficulty of queries: worst, expected and best value of a measure, and its distribution under random ranking."""

from rankbound.difficulty.bounding import BOUNDING_NAMES, Bounding, Bounds, Difficulty, difficulty_of, get_bounding
from rankbound.difficulty.bounds import bounds, bounds_of
from rankbound.difficulty.distribution import Distribution
from rankbound.difficulty.pooled import adjusted_rank_metrics, pooled_index, z_scores
from rankbound.difficulty.queries import (
    QUERY_TYPES,
    describe_query_types,
    difficulty_weights,
    query_type_rule,
    query_types,
    query_weights,
    weights_of_parts,
)
from rankbound.difficulty.standardization import ReferenceScores, standardize
from rankbound.difficulty.ties import bounded_values
from rankbound.difficulty.weights import WEIGHT_FORMS, QueryWeights, effective_sample_fraction

__all__ = [
    "BOUNDING_NAMES",
    "QUERY_TYPES",
    "WEIGHT_FORMS",
    "Bounding",
    "Bounds",
    "Difficulty",
    "Distribution",
    "QueryWeights",
    "ReferenceScores",
    "adjusted_rank_metrics",
    "bounded_values",
    "bounds",
    "bounds_of",
    "describe_query_types",
    "difficulty_of",
    "difficulty_weights",
    "effective_sample_fraction",
    "get_bounding",
    "pooled_index",
    "query_type_rule",
    "query_types",
    "query_weights",
    "standardize",
    "weights_of_parts",
    "z_scores",
]
