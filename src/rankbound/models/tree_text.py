"""Validation of LightGBM's text of trees before LightGBM reads it, because its native code trusts the text.

A child outside of its tree, a set of categories that does not exist, or a wrong block size would make it read memory
out of bounds. Accepted is the text that our rankers write: one score per row, no linear leaves.
"""

from __future__ import annotations

import itertools
import re

from rankbound.errors import DataError

_HEAD = {
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": r"\d",
    "max_feature_idx": r"\d{1,8}",
    "objective": r"[a-z_0-9:. ]{1,100}",
    "feature_names": r"\S+( \S+)*",
    "feature_infos": r"\S+( \S+)*",
    "tree_sizes": r"\d{1,9}( \d{1,9})*|",
    "version": "v4",
}
_COUNTS, _CHILDREN = r"(\d{1,9}( |$))*", r"(-?\d{1,7}( |$))*"
_FLOAT = r"-?(\d+(\.\d*)?(e[+-]?\d{1,3})?|inf|nan)"
_FLOATS = rf"({_FLOAT}( |$))*"
_PER_SPLIT = {
    "split_feature": _COUNTS,
    "split_gain": _FLOATS,
    "threshold": _FLOATS,
    "decision_type": _COUNTS,
    "left_child": _CHILDREN,
    "right_child": _CHILDREN,
    "internal_value": _FLOATS,
    "internal_weight": _FLOATS,
    "internal_count": _COUNTS,
}
_PER_LEAF = {"leaf_value": _FLOATS, "leaf_weight": _FLOATS, "leaf_count": _COUNTS}
# the sets of categories that go left: where each begins in cat_threshold, which holds 32 categories in each number
_CATEGORIES = {"cat_boundaries": _COUNTS, "cat_threshold": r"(\d{1,10}( |$))*"}
_TREE = (
    {"num_leaves": r"\d{1,7}", "num_cat": r"\d{1,7}", "is_linear": "0", "shrinkage": _FLOAT}
    | _PER_SPLIT
    | _PER_LEAF
    | _CATEGORIES
)
_OPTIONAL = ("objective", "feature_infos", *_CATEGORIES)
_END = "end of trees\n"
_BY_CATEGORY = 1  # the bit of decision_type that marks such a split


def trees_alone(text: str) -> str:
    """Return the text without the feature importances and training parameters that follow the trees.

    Prediction does not need them, and damaged parameters can crash LightGBM.
    """
    trees, end, _ = text.partition(_END)
    return trees + end


def check_trees(text: str, features: int) -> None:
    """Raise DataError unless the text consists of trees over this number of features."""
    head, _, rest = text.partition("\n\n")
    lines = head.split("\n")
    if lines[0] != "tree" or not text.isascii() or "\0" in text:
        raise DataError("the text of trees must begin with the line 'tree' and be ASCII")
    metadata = _metadata([line for line in lines[1:] if line != "average_output"], _HEAD, "the head of the trees")
    if int(metadata["max_feature_idx"]) != features - 1 or metadata["feature_names"].count(" ") != features - 1:
        raise DataError(
            f"the trees must be over {features} features, got max_feature_idx={metadata['max_feature_idx']}"
        )
    for number, size in enumerate(map(int, metadata["tree_sizes"].split())):
        block, rest = rest[:size], rest[size:]
        first, *lines = block.rstrip("\n").split("\n")
        if first != f"Tree={number}" or not block.endswith("\n"):
            raise DataError(f"tree {number} must be at the position of tree_sizes, got {first[:40]!r}")
        _check_tree(_metadata(lines, _TREE, f"tree {number}"), features, f"tree {number}")
    if rest != _END:
        raise DataError(f"the last tree must be followed by 'end of trees', got {rest[:40]!r}")


def _metadata(lines: list[str], known: dict[str, str], where: str) -> dict[str, str]:
    """Return keys and values of lines ``key=value``; each key occurs once and each value has its format."""
    metadata: dict[str, str] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals or key not in known or key in metadata or not re.fullmatch(known[key], value):
            raise DataError(
                f"{where}: a line must be one of {', '.join(known)}, once, with its value; got {line[:60]!r}"
            )
        metadata[key] = value
    missing = [key for key in known if key not in metadata and key not in _OPTIONAL]
    if missing:
        raise DataError(f"{where}: {missing[0]} is missing")
    return metadata


def _check_tree(metadata: dict[str, str], features: int, where: str) -> None:
    leaves = int(metadata["num_leaves"])
    columns = {key: metadata[key].split() for key in (*_PER_SPLIT, *_PER_LEAF)}
    wrong = [key for key, values in columns.items() if len(values) != leaves - (key in _PER_SPLIT)]
    if leaves == 1 and columns["leaf_value"]:  # LightGBM writes only the value of a single leaf
        wrong = [key for key in wrong if columns[key]]
    if leaves < 1 or wrong:
        raise DataError(f"{where}: {', '.join(wrong)} must match num_leaves={leaves}")
    if any(int(feature) >= features for feature in columns["split_feature"]):
        raise DataError(f"{where}: split_feature must be below {features}")
    _check_categories(metadata, columns, where)
    for side in ("left_child", "right_child"):
        for parent, child in enumerate(map(int, columns[side])):
            # nodes follow their parents, leaves are -1, -2, ...
            if not parent < child < leaves - 1 and not 0 <= -child - 1 < leaves:
                raise DataError(f"{where}: {side} of node {parent} must be a later node or a leaf, got {child}")


def _check_categories(metadata: dict[str, str], columns: dict[str, list[str]], where: str) -> None:
    """Raise DataError unless every split by categories refers to a set of categories that exists."""
    sets = int(metadata["num_cat"])
    starts, words = (list(map(int, metadata.get(key, "").split())) for key in _CATEGORIES)
    if not sets:
        starts = [*starts, 0]
    ascending = all(first < second for first, second in itertools.pairwise(starts))
    if len(starts) != sets + 1 or starts[0] != 0 or starts[-1] != len(words) or not ascending:
        raise DataError(f"{where}: cat_boundaries must divide cat_threshold into num_cat={sets} sets")
    if any(word >= 1 << 32 for word in words):
        raise DataError(f"{where}: cat_threshold must have numbers of 32 bits")
    for kind, threshold in zip(columns["decision_type"], columns["threshold"], strict=True):
        if int(kind) & _BY_CATEGORY and not (threshold.isdigit() and int(threshold) < sets):
            raise DataError(
                f"{where}: threshold of a split by categories must be below num_cat={sets}, got {threshold}"
            )
