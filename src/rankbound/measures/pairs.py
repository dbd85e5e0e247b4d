"""Measures of pairs in the right order: U, pairwise accuracy and Kendall's tau. All look at the whole list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.measures.precision import ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.names import Measure
    from rankbound.measures.ranked import Ranked

__all__ = ["kendall_tau", "mann_whitney", "pairwise_accuracy", "unequal_pairs"]


def mann_whitney(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """U = sum over relevant items of (rank - 1) - P(P - 1)/2 = pairs (relevant, other) in the wrong order.

    A tie counts half, and items that were not returned share the last ranks. Thesis eq. 2.12.
    """
    hits, relevant = ranked.hits(measure.rel), ranked.counts.relevant(measure.rel)
    seen = hits.rank <= ranked.depths[hits.query]
    query = hits.query[seen]
    total = ranked.sum(query, hits.probability[seen] * (hits.rank[seen] - 1))
    unseen = relevant - ranked.sum(query, hits.probability[seen])
    total += unseen * (ranked.depths + (ranked.sizes - ranked.depths - 1) / 2)
    return total - relevant * (relevant - 1) / 2


def pairwise_accuracy(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """Share of the pairs with different labels of which the higher label is ranked first; a tie counts half."""
    return ratio(_concordant(ranked), unequal_pairs(ranked.counts))


def kendall_tau(ranked: Ranked, measure: Measure) -> NDArray[np.float64]:
    """(concordant - discordant) / sqrt(pairs with different labels * all pairs).

    This is tau-b with every tie of scores broken both ways: scipy's value where scores are distinct, and 0, not
    undefined, for a constant scorer.
    """
    unequal, n = unequal_pairs(ranked.counts), ranked.sizes
    return ratio(2 * _concordant(ranked) - unequal, np.sqrt(unequal * (n * (n - 1) / 2)))


def unequal_pairs(counts: LabelCounts) -> NDArray[np.float64]:
    """Pairs of items with different labels."""
    return (counts.sizes**2 - counts.sum(counts.counts**2.0)) / 2


def _concordant(ranked: Ranked) -> NDArray[np.float64]:
    """Pairs in the right order, those within a tie counted half."""
    labels = ranked.labels
    if labels.dtype.kind == "f":
        labels = np.unique(labels, return_inverse=True)[1]
    query = np.repeat(np.arange(len(ranked)), ranked.sizes)
    total = _falling_pairs(labels, query, len(ranked))
    # items beyond the ranked depth tie with one another, and so do the blocks of equal scores that begin above it
    rank = np.arange(len(labels)) - ranked.offsets[query]
    block = np.where(rank >= ranked.depths[query], query, -1)
    if ranked.tied is not None:
        within = ranked.tied.items[block[ranked.tied.items] < 0]
        block[within] = len(ranked) + ranked.tied.block_of_item[block[ranked.tied.items] < 0]
    tied = np.flatnonzero(block >= 0)
    if len(tied) == 0:
        return total
    name, code = np.unique(block[tied], return_inverse=True)
    owner = np.empty(len(name), dtype=np.int64)
    owner[code] = query[tied]
    order = np.argsort(code, kind="stable")
    fixed = _falling_pairs(labels[tied][order], code[order], len(name))
    fair = _unequal(labels[tied], code, len(name)) / 2
    return total + np.bincount(owner, fair - fixed, minlength=len(ranked))


def _unequal(labels: NDArray[Any], group: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    size = np.bincount(group, minlength=groups)
    (keys, counts) = np.unique(np.stack((group, labels)), axis=1, return_counts=True)
    return (size**2 - np.bincount(keys[0], counts**2, minlength=groups)) / 2


def _falling_pairs(labels: NDArray[Any], group: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    """Per group the pairs i < j with labels[i] > labels[j], in O(items * bits of the largest label).

    From the highest bit down: among neighbors that agree in all higher bits, a pair falls when a 1 comes before a 0.
    Then the 0s and 1s part, each keeping its order, and the next bit decides within them. ``group`` must not decrease.
    """
    total = np.zeros(groups)
    bits = max(int(labels.max(initial=0)), 0).bit_length()
    shared = group.astype(np.int64)  # group and higher bits seen so far, as one number
    owner = group
    for bit in range(bits - 1, -1, -1):
        one = (labels >> bit) & 1
        ones = np.cumsum(one)
        first = np.flatnonzero(np.concatenate(([True], shared[1:] != shared[:-1])))
        before = np.repeat((ones - one)[first], np.diff(np.append(first, len(labels))))
        total += np.bincount(owner, np.where(one == 0, ones - before, 0), minlength=groups)
        key = shared * 2 + one
        order = np.argsort(key, kind="stable")
        labels, shared, owner = labels[order], key[order], owner[order]
    return total
