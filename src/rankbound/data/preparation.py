"""What is done to data before it is split: binarize, filter, scale; and the papers' own preparations.

Every function is pure. What it gives depends on the content of its input and not on the order of rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.data.interactions import Interactions
from rankbound.data.letor import LetorData
from rankbound.errors import ArgumentError, DataError

__all__ = [
    "binarize",
    "binarized",
    "keep_queries",
    "keep_users",
    "prepare_citeulike",
    "prepare_movielens",
    "relevant_only",
    "scale_per_query",
]


def binarize(labels: ArrayLike, at_least: float | str = 1) -> NDArray[np.int32]:
    """1 where a label counts as relevant, else 0; "highest" counts the largest label that occurs and no other.

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


def binarized(data: LetorData, at_least: float | str = 1) -> LetorData:
    """The same queries with labels 0 and 1; see `binarize`."""
    lists = data.lists
    binary = replace(lists, labels=binarize(lists.labels, at_least))
    return LetorData(binary, data.features, data.notes)


def keep_queries(data: LetorData, relevant: int = 1, irrelevant: int = 0, rel: float = 1) -> LetorData:
    """The queries that have at least so many relevant (label >= rel) and so many other items.

    >>> from rankbound.data.synthetic import synthetic_letor
    >>> data = synthetic_letor(queries=50, seed=1)
    >>> kept = keep_queries(data, relevant=1, irrelevant=1)  # those on which rankings can differ at all
    >>> len(kept.lists) <= len(data.lists)
    True
    """
    lists = data.lists
    hits = np.bincount(lists.query_of_item, weights=lists.labels >= rel, minlength=len(lists))
    return data.take(np.flatnonzero((hits >= relevant) & (lists.sizes - hits >= irrelevant)))


def relevant_only(interactions: Interactions, at_least: float) -> Interactions:
    """The interactions with a rating of at least so much; all items remain known."""
    if interactions.ratings is None:
        raise DataError("interactions without ratings cannot be binarized by rating")
    return interactions.rows(interactions.ratings >= at_least)


def keep_users(interactions: Interactions, at_least: int) -> Interactions:
    """The users with at least so many interactions, numbered anew; all items remain known."""
    kept = interactions.rows(interactions.per_user[interactions.users] >= at_least)
    users, codes = np.unique(kept.users, return_inverse=True)
    return Interactions(
        codes.astype(np.int32),
        kept.items,
        kept.user_names[users],
        kept.item_names,
        kept.ratings,
        kept.timestamps,
        kept.notes,
    )


def scale_per_query(features: ArrayLike, offsets: ArrayLike, method: str = "min-max") -> NDArray[np.float32]:
    """Each feature scaled within each query: "min-max" to [0, 1], "standard" to mean 0 and deviation 1.

    A feature that is constant in a query becomes 0 there; NaN (not known) stays NaN.

    >>> scale_per_query([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]], [0, 3]).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """
    if method not in ("min-max", "standard"):
        raise ArgumentError(f'method must be "min-max" or "standard", got {method!r}')
    table = np.asarray(features, dtype=np.float64)
    cuts = np.asarray(offsets, dtype=np.int64)
    sizes = np.diff(cuts)
    starts, rows = cuts[:-1][sizes > 0], sizes[sizes > 0]
    if len(rows) == 0:
        return table.astype(np.float32)
    if method == "min-max":
        center = np.fmin.reduceat(table, starts, axis=0)
        spread = np.fmax.reduceat(table, starts, axis=0) - center
    else:
        known = np.add.reduceat(~np.isnan(table), starts, axis=0, dtype=np.float64)
        center = np.add.reduceat(np.nan_to_num(table), starts, axis=0) / np.maximum(known, 1)
        away = np.nan_to_num(table - np.repeat(center, rows, axis=0))
        spread = np.sqrt(np.add.reduceat(away**2, starts, axis=0) / np.maximum(known, 1))
    spread = np.where(spread > 0, spread, 1.0)
    scaled: NDArray[np.float64] = (table - np.repeat(center, rows, axis=0)) / np.repeat(spread, rows, axis=0)
    return scaled.astype(np.float32)


def prepare_movielens(ratings: Interactions, items: str = "rated") -> Interactions:
    """MovieLens as in the metric-bounding thesis: ratings from 4 on are relevant, users need 25 of them.

    ``items`` says from what negatives may come: every movie that anybody "rated", or only movies "relevant" to somebody
    who was kept. The thesis counts unrated items among the irrelevant ones and does not say more.
    """
    if items not in ("rated", "relevant"):
        raise ArgumentError(f'items must be "rated" or "relevant", got {items!r}')
    kept = keep_users(relevant_only(ratings, 4), 25)
    return kept if items == "rated" else kept.compact()


def prepare_citeulike(choices: Interactions) -> Interactions:
    """CiteULike-a as in "New insights into metric optimization": users with 25 articles, and what they chose."""
    return keep_users(choices, 25).compact()
