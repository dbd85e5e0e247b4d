"""Export of models to search engines: RankLib text for linear models, XGBoost's JSON dump for trees.

The learning-to-rank plugins of Elasticsearch and OpenSearch load both (``model/ranklib``, ``model/xgboost+json``).
LightGBM's own text is in the folder that `Ranker.save` writes, as ``trees.txt``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from rankbound.errors import ArgumentError
from rankbound.io import atomic_write

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models.base import Ranker

__all__ = ["export_ranklib", "export_xgboost_json"]


def export_ranklib(ranker: Ranker, path: str | PathLike[str]) -> None:
    """Write a linear ranker as a RankLib model of the type "Coordinate Ascent".

    Features are numbered from 1. The intercept is left out, because it changes no ranking. Other models are refused.
    """
    check_is_fitted(ranker)
    weights = _weights(ranker)
    lines = [
        "## Coordinate Ascent",
        f"## Trained as = {type(ranker).__name__}",
        " ".join(f"{feature}:{weight!r}" for feature, weight in enumerate(weights.tolist(), 1)),
    ]
    _write(path, "\n".join(lines) + "\n")


def export_xgboost_json(ranker: Ranker, path: str | PathLike[str], feature_names: Sequence[str] | None = None) -> None:
    """Write a tree ranker in the format of XGBoost's dump: a JSON list of trees whose values are added.

    Numbers are 32-bit, as in XGBoost. LightGBM goes left where x <= t, XGBoost where x < t: the written threshold is
    the next 32-bit number above t, so that every 32-bit x takes the same branch. Scores may differ by a constant and,
    if the score is the probability of one of two labels, by the logistic function; neither changes a ranking.
    Classification by boosting with more than two labels is not a sum of trees and is refused.

    Parameters
    ----------
    feature_names:
        Names in the order of the columns, as in the search engine's feature set. The default is the names of the
        training frame, or f0, f1, ... without a frame.
    """
    check_is_fitted(ranker)
    if feature_names is None:
        feature_names = getattr(ranker, "feature_names_in_", [f"f{k}" for k in range(ranker.n_features_in_)])
    names = [str(name) for name in feature_names]
    if len(names) != ranker.n_features_in_:
        raise ArgumentError(f"feature_names must have {ranker.n_features_in_} entries, got {len(names)}")
    _write(path, json.dumps(list(_trees(ranker, names)), indent=None))


def _weights(ranker: Any) -> NDArray[np.float64]:
    ranker = getattr(ranker, "model_", ranker)  # a RegressionRanker wraps another ranker
    coef = getattr(ranker, "coef_", None)
    if coef is not None and coef.ndim == 2 and len(coef) == 1:
        coef = coef[0]  # logistic: the probability increases with the sum
    if coef is None or coef.ndim != 1:
        raise ArgumentError(f"export_ranklib requires a linear ranker, got {type(ranker).__name__}")
    return np.asarray(coef, dtype=np.float64)


def _trees(ranker: Any, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield all trees, with leaves scaled so that the sum over trees is the score."""
    ranker = getattr(ranker, "model_", ranker)
    if hasattr(ranker, "thresholds_"):  # RankBoost: every round is a tree of one split
        for column, threshold, alpha in zip(ranker.columns_, ranker.thresholds_, ranker.alphas_, strict=True):
            stump = {
                "split_feature": int(column),
                "threshold": float(threshold),
                "left_child": {"leaf_value": 0.0},
                "right_child": {"leaf_value": float(alpha)},
            }
            yield _node(stump, names, 1.0)
        return
    if not hasattr(ranker, "boosters_"):
        raise ArgumentError(f"export_xgboost_json requires a tree ranker, got {type(ranker).__name__}")
    dumps = [booster.dump_model() for booster in ranker.boosters_]
    steps = np.diff(ranker.levels_) if len(getattr(ranker, "levels_", ())) else np.ones(1)
    if len(dumps) > 1 and not dumps[0]["average_output"]:
        raise ArgumentError(
            "export_xgboost_json requires a sum of trees, got boosting by classification of more than two labels"
        )
    for dump, step in zip(dumps, steps, strict=True):
        count = len(dump["tree_info"]) if dump["average_output"] else 1
        for tree in dump["tree_info"]:
            yield _node(tree["tree_structure"], names, float(step) / count)


def _node(root: dict[str, Any], names: list[str], factor: float) -> dict[str, Any]:
    """Convert a LightGBM tree to XGBoost's format; nodes are numbered level by level."""
    result: dict[str, Any] = {}
    level = [(root, result, 0)]
    number = 0
    while level:
        next_level = []
        for node, written, depth in level:
            written["nodeid"] = number
            number += 1
            if "leaf_value" in node:
                written["leaf"] = float(np.float32(node["leaf_value"] * factor))
                continue
            if node.get("decision_type", "<=") != "<=":
                raise ArgumentError("export_xgboost_json requires numeric features, got a split by categories")
            left: dict[str, Any] = {}
            right: dict[str, Any] = {}
            threshold = _next_above(node["threshold"])
            written |= {"depth": depth, "split": names[node["split_feature"]], "split_condition": threshold}
            written["children"] = [left, right]
            # trained with NaN, a missing value has a side of its own; otherwise it counts as 0, as in LightGBM
            goes_left = node["default_left"] if node.get("missing_type") == "NaN" else threshold > 0
            written["missing"] = 0 if goes_left else 1  # which child: the ids are set by `_link`
            next_level += [(node["left_child"], left, depth + 1), (node["right_child"], right, depth + 1)]
        level = next_level
    _link(result)
    return result


def _link(root: dict[str, Any]) -> None:
    """Set the ids of the children of every split, and that of the child for a missing value."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if "children" in node:
            node["yes"], node["no"] = (child["nodeid"] for child in node["children"])
            node["missing"] = node["children"][node["missing"]]["nodeid"]
            waiting += node["children"]


def _next_above(threshold: float) -> float:
    """Return the smallest 32-bit number above a threshold.

    >>> _next_above(0.1) == float(np.float32(0.1)), 0.1 < _next_above(0.1)
    (True, True)
    """
    largest = float(np.finfo(np.float32).max)
    if threshold >= largest:  # all values but missing ones go left
        return largest
    near = np.float32(threshold)
    return float(near if float(near) > threshold else np.nextafter(near, np.float32(np.inf)))


def _write(path: str | PathLike[str], text: str) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
