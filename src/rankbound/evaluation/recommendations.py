"""What lists of recommendations have in common, and how users of different activity are served.

With K the first k items of all lists together, n the number of items in the catalog, c_i how often item i is in K,
and p_i the fraction of the training users that interacted with item i:

===================  =================================================================================================
coverage             (items that are in K at least once) / n
novelty              mean over K of -log2(p_i): bits of surprise, more for items that few users know
mean popularity      mean over K of p_i
Gini of exposure     sum over i of (2i - n - 1) c_i / (n sum of c_i), the c_i of the whole catalog in ascending order:
                     0 if all items are recommended equally often, near 1 if few items are in all lists
===================  =================================================================================================

Coverage, novelty: Vargas & Castells, Rank and relevance in novelty and diversity metrics, RecSys 2011. An item without
training users counts as known by one. Exposure: Fleder & Hosanagar, Blockbuster culture's next rise or fall, 2009.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankbound.data.interaction_sources import as_interactions, find_codes
from rankbound.data.sources import to_frame
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.inference import Inference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.evaluation import Evaluation


@dataclass(frozen=True)
class RecommendationProfile:
    """Numbers of all lists of recommendations together; `rankbound.evaluation.recommendations` defines them."""

    users: int
    items: int
    """Different items in the lists."""
    catalog: int
    coverage: float
    novelty: float
    mean_popularity: float
    gini: float

    def to_dict(self) -> dict[str, float]:
        """The numbers, ready for JSON."""
        return asdict(self)


def recommendation_profile(recommendations: Any, train: Any, k: int = 10) -> RecommendationProfile:
    """Compute coverage, novelty, popularity and the Gini coefficient of exposure of lists of recommendations.

    Parameters
    ----------
    recommendations:
        A run, as `rankbound.evaluate` takes it: a file or table with the columns user, item and score or rank.
    train:
        The training interactions, from which popularity and catalog come: whatever `rankbound.data.as_interactions`
        takes. Items without an interaction that `Interactions` name belong to the catalog as well.
    k:
        How many items of each list count.

    >>> from rankbound.data import Interactions
    >>> train = Interactions.from_columns(["al", "al", "bo", "bo"], ["x", "y", "x", "z"])
    >>> recommendation_profile({"al": {"z": 1.0}, "bo": {"y": 1.0}}, train, k=1)
    ... # doctest: +NORMALIZE_WHITESPACE
    RecommendationProfile(users=2, items=2, catalog=3, coverage=0.6666666666666666, novelty=1.0,
                          mean_popularity=0.5, gini=0.3333333333333333)
    """
    _check_positive("k", k)
    table = as_interactions(train)
    run = to_frame(recommendations, "score")
    position = pl.col("score").rank("ordinal", descending=True).over("qid")
    top = run.filter(position <= k)
    if top.is_empty():
        raise DataError("recommendations must have at least one item, got none")
    shown = top["docid"].to_numpy()
    code = find_codes(table.item_names, top["docid"])
    known_by = np.bincount(table.items, minlength=len(table.item_names))
    popularity = np.where(code >= 0, np.maximum(known_by[code], 1), 1) / max(1, np.count_nonzero(table.per_user))
    of_new_items = np.unique(shown[code < 0].astype(np.str_), return_counts=True)[1]  # they extend the catalog
    exposure = np.concatenate((np.bincount(code[code >= 0], minlength=len(table.item_names)), of_new_items))
    items = int(np.count_nonzero(exposure))
    return RecommendationProfile(
        users=top["qid"].n_unique(),
        items=items,
        catalog=len(exposure),
        coverage=items / len(exposure),
        novelty=float(-np.log2(popularity).mean()),
        mean_popularity=float(popularity.mean()),
        gini=_gini(exposure),
    )


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, got {value!r}")


def _gini(counts: NDArray[Any]) -> float:
    n = len(counts)
    return float(((2 * np.arange(1, n + 1) - n - 1) * np.sort(counts)).sum() / (n * counts.sum()))


def activity_groups(
    result: Evaluation,
    train: Any,
    *,
    groups: int = 4,
    versus: Evaluation | None = None,
    inference: Inference | None = None,
) -> pl.DataFrame:
    """Compute the means of groups of users with similar numbers of training interactions, with intervals.

    Users are sorted by activity and divided into groups of nearly equal size; users of equal activity stay together, so
    that there can be fewer groups. Li, Urbano and Hanjalic show the same as curves in figure 5 of "New Insights into
    Metric Optimization for Ranking-based Recommendation".

    Parameters
    ----------
    result:
        The evaluation of a recommender.
    train:
        The training interactions: whatever `rankbound.data.as_interactions` takes. Users without any have activity 0.
    groups:
        The number of groups.
    versus:
        The evaluation of another recommender; the values are then the differences for each user that both have.
    inference:
        How the intervals are computed.

    Returns
    -------
    polars.DataFrame
        A row per group and measure: least and most interactions, users, measure, mean, low and high.

    >>> from rankbound import evaluate
    >>> from rankbound.data import Interactions
    >>> train = Interactions.from_columns(["a", "b", "b", "c", "c", "d", "d", "d"], [1, 1, 2, 1, 3, 1, 2, 3])
    >>> run = {user: {4: 1.0} for user in "abcd"}
    >>> result = evaluate({user: {4: 1, 5: 1} for user in "abcd"}, run, "R@1")
    >>> activity_groups(result, train, groups=2).select("least", "most", "users", "mean").rows()
    [(1, 2, 3, 0.5), (3, 3, 1, 0.5)]
    """
    _check_positive("groups", groups)
    policy = inference or Inference()
    table = as_interactions(train)
    names = np.asarray(result.query_ids)
    values = {name: np.asarray(value, dtype=np.float64) for name, value in result.values.items()}
    if versus is not None:
        index = find_codes(np.asarray(versus.query_ids), pl.Series(names))
        names, index, both = names[index >= 0], index[index >= 0], index >= 0
        values = {name: values[name][both] - versus.values[name][index] for name in values if name in versus.values}
        if not values or len(names) == 0:
            raise DataError("result and versus must have a measure and a user in common, got none")
    code = find_codes(table.user_names, pl.Series(names))
    activity = np.where(code >= 0, table.per_user[code], 0)
    group = _groups(activity, groups)
    rows = []
    for number in np.unique(group):
        inside = group == number
        for name, value in values.items():
            counted = value[inside & ~np.isnan(value)]
            low, high = policy.intervals(counted[:, None])[:, 0] if len(counted) > 1 else (np.nan, np.nan)
            mean = float(counted.mean()) if len(counted) else float("nan")
            least, most = int(activity[inside].min()), int(activity[inside].max())
            rows.append((least, most, len(counted), name, mean, float(low), float(high)))
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


_COLUMNS = {
    "least": pl.Int64,
    "most": pl.Int64,
    "users": pl.Int64,
    "measure": pl.String,
    "mean": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


def _groups(activity: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Return the group of each user: groups of nearly equal size in the order of activity, equal ones together.

    >>> _groups(np.array([1, 2, 2, 2, 3, 9]), 3).tolist()
    [0, 1, 1, 1, 2, 2]
    """
    ordered = np.sort(activity)
    middle = (np.searchsorted(ordered, activity, "left") + np.searchsorted(ordered, activity, "right") - 1) / 2
    return np.floor(middle * groups / len(activity)).astype(np.int64)
