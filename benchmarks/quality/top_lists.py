"""Time and memory of top-10 lists for many users: python -m benchmarks.quality.top_lists [USERS] [ITEMS]

Vectors and interactions are random; the memory is what `recommend` needs beyond them.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from rankbound.data import Interactions
from rankbound.models import ImplicitALS

FACTORS, PER_USER = 64, 50


def fitted(users: int, items: int) -> ImplicitALS:
    """A model with random vectors, as if it had been fitted on 50 interactions of each user."""
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.integers(0, items, (users, PER_USER), dtype=np.int32), axis=1).ravel()
    rows = np.repeat(np.arange(users, dtype=np.int32), PER_USER)
    model = ImplicitALS(factors=FACTORS)
    model.seen_ = Interactions(rows, chosen, np.arange(users), np.arange(items))
    model.user_ids_, model.item_ids_ = model.seen_.user_names, model.seen_.item_names
    model.user_vectors_ = rng.normal(size=(users, FACTORS)).astype(np.float32)
    model.item_vectors_ = rng.normal(size=(items, FACTORS)).astype(np.float32)
    model.n_queries_, model.n_features_in_ = users, 2
    return model


def main(users: int = 200_000, items: int = 50_000) -> None:
    model = fitted(users, items)
    model.recommend([0, 1])  # compiles or loads the kernel
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    rows = len(model.recommend(k=10))
    seconds = time.perf_counter() - start
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    print(f"{users:,} users x {items:,} items: {seconds:.1f} s, {more:.2f} GB more, {rows:,} rows")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
