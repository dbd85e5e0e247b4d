"""Rankers that are sums of trees, as text for other programs: XGBoost's JSON dump and RankLib's XML ensemble.

=============  ===============  ==============================  =====================================================
program        goes left where  a missing value                 numbers
=============  ===============  ==============================  =====================================================
LightGBM       x <= t           has a side of its own, or is 0  64 bits
XGBoost        x < t            has a side of its own           32 bits
RankLib        x <= t           is 0                            32 bits
=============  ===============  ==============================  =====================================================

Every 32-bit x takes the same branch in all three: the threshold for XGBoost is the smallest 32-bit number above t, that
for RankLib the largest one that is not above t.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rankbound.errors import ArgumentError

_LARGEST = float(np.finfo(np.float32).max)


class Node(NamedTuple):
    """A leaf (``left`` is 0) or a split: rows with x <= threshold go to ``left``, others to ``left + 1``."""

    value: float = 0.0
    feature: int = 0
    threshold: float = 0.0
    left: int = 0
    missing_left: bool = True


Tree: TypeAlias = list[Node]  # level by level, so that children follow their parents


def has_trees(ranker: Any) -> bool:
    """Whether a fitted ranker is made of trees."""
    ranker = getattr(ranker, "model_", ranker)  # a RegressionRanker wraps another ranker
    return hasattr(ranker, "boosters_") or hasattr(ranker, "thresholds_")


def trees_of(ranker: Any) -> Iterator[Tree]:
    """Yield trees whose sum is the score of a fitted ranker, or its logit if the score is a probability."""
    if not has_trees(ranker):
        raise ArgumentError(f"the format requires a tree ranker, got {type(ranker).__name__}")
    ranker = getattr(ranker, "model_", ranker)
    if hasattr(ranker, "thresholds_"):  # RankBoost: every round is a tree of one split
        for column, threshold, alpha in zip(ranker.columns_, ranker.thresholds_, ranker.alphas_, strict=True):
            split = Node(feature=int(column), threshold=float(threshold), left=1, missing_left=bool(threshold >= 0))
            yield [split, Node(0.0), Node(float(alpha))]
        return
    dumps = [booster.dump_model() for booster in ranker.boosters_]
    levels = getattr(ranker, "levels_", np.zeros(0))
    if len(levels) == 0 or not dumps[0]["average_output"]:
        if len(dumps) > 1:
            raise ArgumentError(
                "the format requires a sum of trees, got boosting by classification of more than two labels"
            )
        levels = np.array([0.0, 1.0])
    for dump, step in zip(dumps, np.diff(levels), strict=True):
        count = len(dump["tree_info"]) if dump["average_output"] else 1
        yield from (_flat(tree["tree_structure"], float(step) / count) for tree in dump["tree_info"])
    if levels[0] != 0:  # the expected label is at least the lowest label
        yield [Node(float(levels[0]))]


def _flat(root: dict[str, Any], factor: float) -> Tree:
    """Convert a tree of LightGBM's dump; leaves are multiplied by the factor."""
    tree: Tree = []
    waiting = [root]
    for node in waiting:  # which grows by the children
        if "leaf_value" in node:
            tree.append(Node(float(node["leaf_value"]) * factor))
            continue
        if node["decision_type"] != "<=":
            raise ArgumentError("the format requires numeric features, got a split by categories")
        if node["missing_type"] == "Zero":
            raise ArgumentError("the format requires zeros that are numbers, got a split for which 0 means missing")
        threshold = float(node["threshold"])
        # a model that was trained without NaN reads a missing value as 0
        missing_left = bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0
        tree.append(Node(0.0, int(node["split_feature"]), threshold, len(waiting), missing_left))
        waiting += [node["left_child"], node["right_child"]]
    return tree


def xgboost_tree(tree: Tree, names: Sequence[str]) -> dict[str, Any]:
    """Return a tree as an object of XGBoost's JSON dump.

    >>> xgboost_tree([Node(feature=0, threshold=1.5, left=1), Node(-1.0), Node(2.0)], ["bm25"])["children"]
    [{'nodeid': 1, 'leaf': -1.0}, {'nodeid': 2, 'leaf': 2.0}]
    """
    depth = [0] * len(tree)
    for node, level in zip(tree, depth, strict=True):
        if node.left:
            depth[node.left] = depth[node.left + 1] = level + 1
    written: list[dict[str, Any]] = [{}] * len(tree)
    for number in range(len(tree) - 1, -1, -1):  # children before their parents
        node, yes = tree[number], tree[number].left
        written[number] = (
            {"nodeid": number, "leaf": node.value}
            if not yes
            else {
                "nodeid": number,
                "depth": depth[number],
                "split": names[node.feature],
                "split_condition": next_above(node.threshold),
                "yes": yes,
                "no": yes + 1,
                "missing": yes if node.missing_left else yes + 1,
                "children": [written[yes], written[yes + 1]],
            }
        )
    return written[0]


def ranklib_ensemble(trees: Sequence[Tree]) -> str:
    """Return trees as the XML of a RankLib model of the type "LambdaMART"; features are numbered from 1.

    A missing value is 0 to RankLib. A tree that sends missing values to another side than 0 is refused.

    >>> print(ranklib_ensemble([[Node(feature=0, threshold=1.5, left=1), Node(-1.0), Node(2.0)]]), end="")
    <ensemble>
    <tree id="1" weight="1.0">
    <split>
    <feature> 1 </feature>
    <threshold> 1.5 </threshold>
    <split pos="left">
    <output> -1.0 </output>
    </split>
    <split pos="right">
    <output> 2.0 </output>
    </split>
    </split>
    </tree>
    </ensemble>
    """
    lines = ["<ensemble>"]
    for number, tree in enumerate(trees, 1):
        lines += [f'<tree id="{number}" weight="1.0">', "<split>", *_ranklib_tree(tree), "</split>", "</tree>"]
    return "\n".join([*lines, "</ensemble>"]) + "\n"


def _ranklib_tree(tree: Tree) -> list[str]:
    """Return the lines inside the outer split; RankLib's reader wants one element per line."""
    written: list[list[str]] = [[]] * len(tree)
    for number in range(len(tree) - 1, -1, -1):
        node = tree[number]
        if not node.left:
            written[number] = [f"<output> {node.value!r} </output>"]
            continue
        if node.missing_left != (node.threshold >= 0):
            raise ArgumentError(
                "ranklib requires trees that read a missing value as 0, got some that were trained with missing values"
            )
        written[number] = [
            f"<feature> {node.feature + 1} </feature>",
            f"<threshold> {next_not_above(node.threshold)!r} </threshold>",
            *('<split pos="left">', *written[node.left], "</split>"),
            *('<split pos="right">', *written[node.left + 1], "</split>"),
        ]
    return written[0]


def next_above(threshold: float) -> float:
    """Return the smallest 32-bit number above a threshold, or the largest one if there is none.

    >>> next_above(0.1) == float(np.float32(0.1)), 0.1 < next_above(0.1), next_above(1.0) > 1.0
    (True, True, True)
    """
    near = np.float32(np.clip(threshold, -_LARGEST, _LARGEST))
    if float(near) > threshold or float(near) == _LARGEST:
        return float(near)
    return float(np.nextafter(near, np.float32(np.inf)))


def next_not_above(threshold: float) -> float:
    """Return the largest 32-bit number that is not above a threshold, or the smallest one if there is none.

    >>> next_not_above(0.1) < 0.1, next_not_above(1.0)
    (True, 1.0)
    """
    near = np.float32(np.clip(threshold, -_LARGEST, _LARGEST))
    if float(near) <= threshold or float(near) == -_LARGEST:
        return float(near)
    return float(np.nextafter(near, np.float32(-np.inf)))
