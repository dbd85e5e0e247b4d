"""Compact letter display: groups of systems that do not differ significantly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def letter_groups(significant: ArrayLike) -> list[list[int]]:
    """Groups of systems, as lists of indices: two systems are in a common group iff they do not differ significantly.

    ``significant`` is a symmetric matrix, systems x systems. A group is a clique of the graph that joins systems which
    do not differ, and every edge of that graph must lie in a group: an edge clique cover (Gramm et al. 2007). The
    smallest cover is NP-hard, and the insert-and-absorb algorithm of Piepho (2004) lists all maximal cliques, of which
    there can be exponentially many. This function takes the pairs in order, grows a group around each pair that has
    none yet, the nearest systems first, and drops groups that others make superfluous: at most one group per pair.
    Where groups are ranges of the order, as they are when the pairwise tests agree with the order of the means, these
    are exactly the maximal ranges.

    >>> letter_groups([[0, 0, 1], [0, 0, 0], [1, 0, 0]])  # only the first and the last differ
    [[0, 1], [1, 2]]
    """
    matrix = np.asarray(significant, dtype=bool)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or (matrix != matrix.T).any():
        raise ArgumentError(f"significant must be a symmetric matrix, systems x systems, got shape {matrix.shape}")
    count = len(matrix)
    # sets of systems as bits of an integer: bit j of alike[i] says that i and j do not differ
    alike = [sum(1 << j for j in range(count) if j == i or not matrix[i, j]) for i in range(count)]
    covered = [1 << i for i in range(count)]
    groups: list[int] = []
    for i in range(count):
        for j in range(i + 1, count):
            if not alike[i] >> j & 1 or covered[i] >> j & 1:
                continue
            group, allowed = (1 << i) | (1 << j), alike[i] & alike[j]
            for k in sorted(range(count), key=lambda k, i=i: (abs(k - i), k)):  # type: ignore[misc]
                if allowed >> k & 1:
                    group |= 1 << k
                    allowed &= alike[k]
            groups.append(group)
            for k in _members(group):
                covered[k] |= group
    groups += [1 << i for i in range(count) if not any(group >> i & 1 for group in groups)]
    return sorted(_members(group) for group in _without_superfluous(groups, count))


def compact_letters(significant: ArrayLike) -> list[str]:
    """The letters of each system: two systems share a letter iff they do not differ significantly (Piepho 2004).

    The systems should come best first; then "a" is the group of the best one. After "z" follow "A" to "Z", and then
    numbered letters: "a1", "b1", ...

    >>> compact_letters([[0, 0, 1], [0, 0, 0], [1, 0, 0]])
    ['a', 'ab', 'b']
    """
    groups = letter_groups(significant)
    letters: list[list[str]] = [[] for _ in range(len(np.asarray(significant)))]
    for number, group in enumerate(groups):
        for system in group:
            letters[system].append(letter(number))
    return ["".join(each) for each in letters]


def letter(number: int) -> str:
    """The name of a group.

    >>> [letter(number) for number in (0, 25, 26, 51, 52, 105)]
    ['a', 'z', 'A', 'Z', 'a1', 'b2']
    """
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    alphabet += alphabet.upper()
    turn, index = divmod(number, len(alphabet))
    return alphabet[index] + (str(turn) if turn else "")


def _members(group: int) -> list[int]:
    return [index for index in range(group.bit_length()) if group >> index & 1]


def _without_superfluous(groups: Sequence[int], count: int) -> list[int]:
    """The groups without those whose pairs all lie in other groups, the smallest groups first."""
    cover = np.zeros((count, count), np.int64)  # in how many groups a pair lies
    members = {group: np.ix_(_members(group), _members(group)) for group in groups}
    for pairs in members.values():
        cover[pairs] += 1
    kept = list(members)
    for group in sorted(members, key=lambda group: (group.bit_count(), group)):
        if cover[members[group]].min() > 1:
            cover[members[group]] -= 1
            kept.remove(group)
    return kept
