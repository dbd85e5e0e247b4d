"""Preparation of data before splitting: binarize labels, filter queries and users, scale features.

The preparations of the papers are here, too. Every function is pure, and its result does not depend on the order of
rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.arrays import is_between
from rankbound.data.interactions import Interactions
from rankbound.data.letor import LetorData
from rankbound.errors import ArgumentError, DataError


def binarize(labels: ArrayLike, at_least: float | str = 1) -> NDArray[np.int32]:
    """Return 1 for relevant labels and 0 for others; "highest" regards only the largest label that occurs as relevant.

    >>> binarize([0, 1, 2, 1]).tolist(), binarize([0, 1, 2, 1], "highest").tolist()
    ([0, 1, 1, 1], [0, 0, 1, 0])
    """
    values = np.asarray(labels)
    if at_least == "highest":
        threshold = values.max() if values.size else 0
    elif isinstance(at_least, str):
        raise ArgumentError(f'at_least must be a number or "highest", got {at_least!r}')
    else:
        threshold = at_least
    relevant: NDArray[np.bool_] = values >= threshold
    return relevant.astype(np.int32)


def binarize_queries(data: LetorData, at_least: float | str = 1) -> LetorData:
    """Return the same queries with labels 0 and 1; see `binarize`."""
    lists = data.lists
    return replace(data, lists=replace(lists, labels=binarize(lists.labels, at_least)))


def keep_queries(data: LetorData, relevant: int = 1, irrelevant: int = 0, rel: float = 1) -> LetorData:
    """Return the queries with at least ``relevant`` relevant (label >= rel) and ``irrelevant`` other items.

    >>> from rankbound.data.synthetic import synthetic_letor
    >>> data = synthetic_letor(queries=50, seed=1)
    >>> kept = keep_queries(data, relevant=1, irrelevant=1)  # queries on which rankings can differ
    >>> len(kept.lists) <= len(data.lists)
    True
    """
    lists = data.lists
    hits = np.bincount(lists.query_of_item, weights=lists.labels >= rel, minlength=len(lists))
    return data.take(np.flatnonzero((hits >= relevant) & (lists.sizes - hits >= irrelevant)))


def check_least_rating(rating: float) -> None:
    """Raise ArgumentError unless the rating is a finite number."""
    if not is_between(rating, -np.inf, np.inf):
        raise ArgumentError(f"the least rating must be a finite number, got {rating}")


def relevant_only(interactions: Interactions, at_least: float) -> Interactions:
    """Return the interactions with a rating of at least ``at_least``; all items keep their codes."""
    if interactions.ratings is None:
        raise DataError("interactions without ratings cannot be binarized by rating")
    check_least_rating(at_least)
    return interactions.rows(interactions.ratings >= at_least)


def keep_users(interactions: Interactions, at_least: int) -> Interactions:
    """Return the users with at least ``at_least`` interactions, with new codes; all items keep their codes."""
    kept = interactions.rows(interactions.per_user[interactions.users] >= at_least)
    users, codes = np.unique(kept.users, return_inverse=True)
    return replace(kept, users=codes.astype(np.int32), user_names=kept.user_names[users])


def scale_per_query(features: ArrayLike, offsets: ArrayLike, method: str = "min-max") -> NDArray[np.float32]:
    """Scale each feature within each query: "min-max" to [0, 1], "standard" to mean 0 and standard deviation 1.

    A feature that is constant in a query becomes 0 there; NaN stays NaN.

    >>> scale_per_query([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]], [0, 3]).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """
    if method not in ("min-max", "standard"):
        raise ArgumentError(f'method must be "min-max" or "standard", got {method!r}')
    table = np.asarray(features, dtype=np.float64)
    ends = np.asarray(offsets, dtype=np.int64)
    sizes = np.diff(ends)
    starts, rows = ends[:-1][sizes > 0], sizes[sizes > 0]
    if len(rows) == 0:
        return table.astype(np.float32)
    if method == "min-max":
        center = np.fmin.reduceat(table, starts, axis=0)
        spread = np.fmax.reduceat(table, starts, axis=0) - center
    else:
        known = np.add.reduceat(~np.isnan(table), starts, axis=0, dtype=np.float64)
        center = np.add.reduceat(np.nan_to_num(table), starts, axis=0) / np.maximum(known, 1)
        deviation = np.nan_to_num(table - np.repeat(center, rows, axis=0))
        spread = np.sqrt(np.add.reduceat(deviation**2, starts, axis=0) / np.maximum(known, 1))
    spread = np.where(spread > 0, spread, 1.0)
    scaled: NDArray[np.float64] = (table - np.repeat(center, rows, axis=0)) / np.repeat(spread, rows, axis=0)
    return scaled.astype(np.float32)


def prepare_movielens(ratings: Interactions, items: str = "rated") -> Interactions:
    """Prepare MovieLens as Westerborg does in "User/Query-wise Metric Bounding in Learning to Rank".

    Ratings of at least 4 are relevant, and users need 25 of them. ``items`` decides which movies can be sampled as
    negatives: every movie that anybody "rated", or only movies that are "relevant" to a user who was kept. Westerborg
    counts unrated items as irrelevant and does not specify more.
    """
    if items not in ("rated", "relevant"):
        raise ArgumentError(f'items must be "rated" or "relevant", got {items!r}')
    kept = keep_users(relevant_only(ratings, 4), 25)
    return kept if items == "rated" else kept.compact()


def prepare_citeulike(choices: Interactions) -> Interactions:
    """Prepare CiteULike-a as Li, Urbano and Hanjalic do in "New Insights into Metric Optimization for Ranking-based
    Recommendation": users with at least 25 articles, and the articles that they chose.
    """
    return keep_users(choices, 25).compact()
