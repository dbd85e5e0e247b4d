"""Compact letter display: systems share a letter iff they do not differ significantly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.errors import ArgumentError
from rankbound.evaluation.letters import compact_letters, letter, letter_groups
from tests.tiers import examples


@st.composite
def relations(draw):
    """Any symmetric relation between up to 12 systems."""
    count = draw(st.integers(1, 12))
    bits = draw(st.lists(st.booleans(), min_size=count * (count - 1) // 2, max_size=count * (count - 1) // 2))
    matrix = np.zeros((count, count), bool)
    matrix[np.triu_indices(count, k=1)] = bits
    return matrix | matrix.T


@given(relations())
@examples(300)
def test_two_systems_share_a_letter_iff_they_do_not_differ(different):
    groups = letter_groups(different)
    count = len(different)
    for i in range(count):
        assert any(i in group for group in groups), "every system has a letter"
        for j in range(count):
            share = any(i in group and j in group for group in groups)
            assert share == (i == j or not different[i, j])


@given(relations())
@examples(100)
def test_no_letter_is_superfluous(different):
    groups = letter_groups(different)
    assert len(groups) <= max(len(different), len(different) * (len(different) - 1) // 2)
    for dropped in groups:
        rest = [group for group in groups if group is not dropped]
        pairs = {(i, j) for group in rest for i in group for j in group}
        assert not {(i, j) for i in dropped for j in dropped} <= pairs


def test_letters_of_ranges_are_the_maximal_ranges():
    means = np.arange(6) / 10
    different = np.abs(means[:, None] - means) > 0.25
    assert letter_groups(different) == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert compact_letters(different) == ["a", "ab", "abc", "bcd", "cd", "d"]


def test_extremes():
    assert compact_letters(np.zeros((4, 4))) == ["a"] * 4
    assert compact_letters(~np.eye(4, dtype=bool)) == ["a", "b", "c", "d"]
    assert compact_letters([[0]]) == ["a"]


def test_a_relation_with_exponentially_many_cliques_is_covered_by_few_groups():
    """Pairs that differ within, none between: the maximal cliques number 2^20, an edge cover needs few of them."""
    different = np.kron(np.eye(20, dtype=bool), ~np.eye(2, dtype=bool)).astype(bool)
    groups = letter_groups(different)
    assert len(groups) < 400
    shared = np.zeros((40, 40), bool)
    for group in groups:
        shared[np.ix_(group, group)] = True
    np.testing.assert_array_equal(shared, ~different)


def test_letters_go_on_after_the_alphabets():
    assert len({letter(number) for number in range(1000)}) == 1000
    letters = compact_letters(~np.eye(60, dtype=bool))
    assert letters[:2] == ["a", "b"]
    assert letters[52:54] == ["a1", "b1"]


def test_a_relation_must_be_symmetric():
    with pytest.raises(ArgumentError, match="significant must be a symmetric matrix"):
        compact_letters([[0, 1], [0, 0]])
    with pytest.raises(ArgumentError, match="significant must be a symmetric matrix"):
        compact_letters([[0, 1]])
