"""Profiles of recommendations and groups of users by activity: compared with loops over the definitions."""

from __future__ import annotations

from collections import Counter
from math import log2

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankbound as rb
from rankbound.data.interactions import Interactions
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.recommendations import activity_groups, recommendation_profile
from tests.tiers import examples

TRAIN = Interactions.from_columns(["a", "a", "a", "b", "b", "c"], ["x", "y", "z", "x", "y", "x"])

lists = st.dictionaries(
    st.sampled_from("abcd"),
    st.dictionaries(st.sampled_from("vwxyz"), st.integers(0, 1000), min_size=1, max_size=5),
    min_size=1,
)


@settings(deadline=None)
@given(run=lists, k=st.integers(1, 4))
def test_a_profile_follows_its_definition(run, k):
    run = {  # distinct scores, so that the first items are certain
        user: {item: score + 0.001 * ord(item) for item, score in items.items()} for user, items in run.items()
    }
    profile = recommendation_profile(run, TRAIN, k)
    top = [item for items in run.values() for item in sorted(items, key=items.get, reverse=True)[:k]]
    fraction = {"x": 3 / 3, "y": 2 / 3, "z": 1 / 3, "v": 1 / 3, "w": 1 / 3}  # v and w are new: as if one user knew them
    counts = Counter(top)
    catalog = {"x", "y", "z"} | set(top)
    assert (profile.users, profile.items, profile.catalog) == (len(run), len(counts), len(catalog))
    assert profile.coverage == pytest.approx(len(counts) / len(catalog))
    assert profile.novelty == pytest.approx(np.mean([-log2(fraction[item]) for item in top]))
    assert profile.mean_popularity == pytest.approx(np.mean([fraction[item] for item in top]))
    differences = sum(abs(counts[one] - counts[other]) for one in catalog for other in catalog)
    assert profile.gini == pytest.approx(differences / (2 * len(catalog) * len(top)))


def test_tables_with_ranks_and_ids_of_other_types_are_profiled(tmp_path):
    train = pl.DataFrame({"user": [1, 2], "item": [7, 8]})
    top = pl.DataFrame({"user": ["1", "2"], "item": ["8", "7"], "rank": [1, 1]})
    expected = {
        "users": 2,
        "items": 2,
        "catalog": 2,
        "coverage": 1.0,
        "novelty": 1.0,
        "mean_popularity": 0.5,
        "gini": 0,
    }
    assert recommendation_profile(top, train).to_dict() == expected
    train.write_csv(tmp_path / "train.csv")
    top.write_csv(tmp_path / "top.csv")
    assert recommendation_profile(tmp_path / "top.csv", tmp_path / "train.csv").to_dict() == expected


def test_wrong_arguments_are_named():
    run = {"a": {"x": 1.0}}
    for k in (0, 2.5, True):
        with pytest.raises(ArgumentError, match="k must be a positive integer, got"):
            recommendation_profile(run, TRAIN, k)
    with pytest.raises(DataError, match=r"interactions must be a path, .* got int"):
        recommendation_profile(run, 3)
    with pytest.raises(DataError, match="column for the item"):
        recommendation_profile(run, pl.DataFrame({"user": [1], "thing": [2]}))


# ---- groups ----------------------------------------------------------------------------------------------------------


def _evaluated(values):
    """An evaluation with these values of R@1, out of 1 / (number of relevant items)."""
    qrels = {user: {f"{user}{n}": 1 for n in range(count)} for user, count in values.items()}
    return rb.evaluate(qrels, {user: {f"{user}0": 1.0} for user in values}, ["R@1", "P@1"])


@examples(30)
@given(counts=st.lists(st.integers(0, 8), min_size=2, max_size=25), groups=st.integers(1, 5))
def test_groups_partition_the_users_in_the_order_of_activity(counts, groups):
    users = [f"u{number:02d}" for number in range(len(counts))]
    pairs = [(user, item) for user, count in zip(users, counts, strict=True) for item in range(count)]
    train = Interactions.from_columns(*zip(*[*pairs, ("other", 0)], strict=True))
    result = _evaluated({user: 1 + number % 3 for number, user in enumerate(users)})
    table = activity_groups(result, train, groups=groups, inference=rb.Inference(interval="t"))
    recalls = table.filter(pl.col("measure") == "R@1")
    assert recalls["users"].sum() == len(users)
    assert 1 <= len(recalls) <= groups
    edges = [edge for row in recalls.select("least", "most").rows() for edge in row]
    assert edges == sorted(edges)
    assert len(set(recalls["least"])) == len(recalls)
    for least, most, number, mean in recalls.select("least", "most", "users", "mean").rows():
        inside = [at for at, count in enumerate(counts) if least <= count <= most]
        assert len(inside) == number
        assert mean == pytest.approx(np.mean([1 / (1 + at % 3) for at in inside]))
    if len(set(counts)) == len(counts):
        sizes = recalls["users"].to_list()
        assert max(sizes) - min(sizes) <= 1


def test_differences_of_two_systems_have_the_interval_of_the_policy():
    train = Interactions.from_columns([user for user in "abcd" for _ in range(2)], [1, 2] * 4)
    one, other = _evaluated({"a": 1, "b": 2, "c": 1, "d": 4}), _evaluated({"b": 1, "a": 1, "c": 2, "e": 1})
    policy = rb.Inference(interval="t", confidence=0.9)
    table = activity_groups(one, train, groups=3, versus=other, inference=policy)
    differences = [0.0, -1 / 2, 1 / 2]  # of a, b and c
    low, high = policy.intervals(np.array(differences)[:, None])[:, 0]
    assert table.rows()[0] == (2, 2, 3, "R@1", pytest.approx(0.0), pytest.approx(low), pytest.approx(high))
    with pytest.raises(DataError, match="a measure and a user in common"):
        activity_groups(one, train, versus=_evaluated({"z": 1}))
    with pytest.raises(ArgumentError, match="groups must be a positive integer, got 0"):
        activity_groups(one, train, groups=0)
