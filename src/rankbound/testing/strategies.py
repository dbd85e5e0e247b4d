"""Hypothesis strategies for lists, labels and measures. Needs hypothesis, which rankbound does not install."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from rankbound.lists import Lists
from rankbound.measures import Measure, definitions, parse_measure

# Settings that are tested too, by the name of the measure; a new measure is tested with its defaults at once.
_VARIANTS = {
    "nDCG": ("nDCG", "nDCG(dcg='exp-log2')"),
    "DCG": ("DCG", "DCG(dcg='exp-log2')"),
    "AP": ("AP", "AP(rel=2)", "AP(div='retrieved')"),
    "RBP": ("RBP", "RBP(gain='graded')", "RBP(p=0.95)"),
    "Rprec": ("Rprec", "Rprec(mult=0.5)"),
    "NumRet": ("NumRet", "NumRet(rel=1)"),
    "IPrec": ("IPrec@0", "IPrec@0.5", "IPrec(rel=2)@1"),
    "SetF": ("SetF", "SetF(beta=2)"),
}
_VARIANTS_AT = {"AP": ("AP", "AP(rel=2)", "AP(div='retrieved')", "AP(div='min')", "AP(div='k')")}


def catalog(cutoffs: range = range(1, 9)) -> tuple[Measure, ...]:
    """Every registered measure, users' own included: its variants, without cutoff and with these cutoffs."""
    names = []
    for definition in definitions():
        name = definition.name
        if definition.cutoff != "required":
            names += list(_VARIANTS.get(name, (name,)))
        if definition.cutoff != "none":
            variants = _VARIANTS_AT.get(name, _VARIANTS.get(name, (name,)))
            names += [f"{variant}@{k}" for variant in variants for k in cutoffs]
    return tuple(parse_measure(name) for name in names)


CATALOG = catalog()


def measures() -> st.SearchStrategy[Measure]:
    """Any measure of the catalog."""
    return st.sampled_from(CATALOG)


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
