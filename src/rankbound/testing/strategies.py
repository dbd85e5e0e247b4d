"""Hypothesis strategies for lists, labels and measures. Needs hypothesis, which rankbound does not install."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from rankbound.lists import Lists
from rankbound.measures.names import FAMILIES, Measure, parse_measure

__all__ = ["CATALOGUE", "labels", "measures", "scored_lists"]

_VARIANTS = {
    "nDCG": ("nDCG", "nDCG(dcg='exp-log2')"),
    "DCG": ("DCG", "DCG(dcg='exp-log2')"),
    "AP": ("AP", "AP(rel=2)", "AP(div='retrieved')"),
    "RBP": ("RBP", "RBP(gain='graded')", "RBP(p=0.95)"),
}
_VARIANTS_AT = {"AP": ("AP", "AP(rel=2)", "AP(div='retrieved')", "AP(div='min')", "AP(div='k')")}


def _catalog(cutoffs: range) -> tuple[Measure, ...]:
    names = []
    for family, info in FAMILIES.items():
        if info.cutoff != "required":
            names += list(_VARIANTS.get(family, (family,)))
        if info.cutoff != "none":
            names += [
                f"{name}@{k}" for name in _VARIANTS_AT.get(family, _VARIANTS.get(family, (family,))) for k in cutoffs
            ]
    return tuple(parse_measure(name) for name in names)


CATALOGUE = _catalog(range(1, 9))  # every family, its variants, uncut and with cutoffs 1..8


def measures() -> st.SearchStrategy[Measure]:
    """Any measure of the catalog."""
    return st.sampled_from(CATALOGUE)


def labels(max_size: int = 12, max_label: int = 3) -> st.SearchStrategy[list[int]]:
    """Labels of one query, negative ones among them."""
    return st.lists(st.integers(-1, max_label), min_size=1, max_size=max_size)


@st.composite
def scored_lists(
    draw: st.DrawFn, max_queries: int = 5, max_items: int = 12, max_label: int = 3, ties: bool = True
) -> Lists:
    """Queries with labels and scores; scores collide often if ``ties``, and never otherwise."""
    queries = draw(st.lists(labels(max_items, max_label), min_size=1, max_size=max_queries))
    offsets = np.concatenate(([0], np.cumsum([len(query) for query in queries])))
    count = int(offsets[-1])
    if ties:
        scores = draw(st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0]), min_size=count, max_size=count))
    else:
        scores = draw(st.permutations([float(i) for i in range(count)]))
    return Lists(np.concatenate([np.asarray(query) for query in queries]), offsets, scores)  # type: ignore[arg-type]
