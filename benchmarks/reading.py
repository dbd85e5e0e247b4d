"""Reading of LETOR files against scikit-learn, the converted cache, its memory, and sampling of negatives."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.comparison import Peer, compare_with_peers
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.memory import peaks
from benchmarks.records import Finding, Row
from benchmarks.timing import Work
from rankbound.data.array_cache import read_cached
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.sampling import sample_lists
from rankbound.data.splits import monte_carlo
from rankbound.data.synthetic import synthetic_interactions

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = (
    "a generated LETOR file like MSLR's: labels 0 to 4, 100 documents per query, two values in five zero; "
    "generated interactions of 2,000 users with 3,000 items"
)
ROWS, FEATURES = 200_000, 136


def write_letor(path: Path, rows: int, features: int) -> Path:
    """Write a LETOR file unless it exists."""
    if path.exists():
        return path
    rng = np.random.default_rng(0)
    with path.open("wb") as out:
        for start in range(0, rows, 20_000):
            count = min(20_000, rows - start)
            X = np.round(np.where(rng.random((count, features)) < 0.4, 0, rng.gamma(1, 5, (count, features))), 6)
            columns = {f"{index}": X[:, index - 1] for index in range(1, features + 1)}
            frame = pl.DataFrame(
                {"y": rng.integers(0, 5, count), "q": np.arange(start, start + count) // 100 + 1, **columns}
            )
            pairs = [pl.lit(f" {name}:") + pl.col(name).cast(pl.String) for name in columns]
            line = pl.concat_str([pl.col("y").cast(pl.String), pl.lit(" qid:") + pl.col("q").cast(pl.String), *pairs])
            frame.select(line).write_csv(out, include_header=False, quote_style="never")
    return path


# ---- implementations -------------------------------------------------------------------------------------------------


def ours(path: Path) -> Work:
    return lambda: read_letor(path)


def from_cache(path: Path) -> Work:
    return lambda: read_cached([path], lambda: read_letor(path), LetorData)


def scikit_learn(path: Path) -> Work:
    from sklearn.datasets import load_svmlight_file

    return lambda: load_svmlight_file(str(path), query_id=True, dtype=np.float32)


def _content(data: LetorData) -> Any:
    lists = data.lists
    return np.column_stack((data.features, lists.labels, np.asarray(lists.qids)[lists.query_of_item]))


def _their_content(result: Any) -> Any:
    features, labels, queries = result
    return np.column_stack((features.toarray(), labels, queries))


# ---- rows ------------------------------------------------------------------------------------------------------------


def run(quick: bool) -> Iterator[Finding]:
    """Yield rows of a file and its cache, of memory and of sampling, then the growth curves."""
    rows, features = (200, 10) if quick else (ROWS, FEATURES)
    with tempfile.TemporaryDirectory() as folder, _cache_in(folder):
        path = write_letor(Path(folder) / f"{rows}.txt", rows, features)
        for name, work, bar in (("read", ours(path), 5), ("opened from the cache", from_cache(path), 100)):
            peer = Peer("load_svmlight_file", partial(scikit_learn, path), bar, "sklearn", _their_content)
            title = f"LETOR {rows:,} x {features}, {name}"
            yield from compare_with_peers(title, work, [peer], turns=1 if quick else 2, values=_content, tolerance=0.0)
        if not quick:
            megabytes = peaks(__name__, _OVER_ROWS, OURS, (20_000, rows), Path(folder))
            arrays = 2 * rows * features * 4 / 2**20
            if megabytes is not None:
                title = f"LETOR {rows:,} x {features}, memory"
                yield Row(title, megabytes[-1], "2 x the arrays", arrays, 1.0, "MB", "limit")
    yield from _sampling(50 if quick else 2_000, 1 if quick else 3)
    yield from growth_of(__name__, CURVES, quick)


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    before = os.environ.get("RANKBOUND_CACHE")
    os.environ["RANKBOUND_CACHE"] = folder
    try:
        yield
    finally:
        os.environ.pop("RANKBOUND_CACHE")
        if before is not None:
            os.environ["RANKBOUND_CACHE"] = before


def _sampling(users: int, turns: int) -> Iterator[Finding]:
    """Compare sampling for all users at once with the usual loop that draws from the remaining items of each user."""
    table = synthetic_interactions(users=users, items=3_000, seed=0)
    test = monte_carlo(table, repeats=1)[0]
    train, held_out = table.rows(~test), table.rows(test)

    def usual() -> list[Any]:
        rng, all_items, offsets = np.random.default_rng(0), np.arange(len(table.item_names)), table.offsets
        lists = []
        for counts in (train.per_user, held_out.per_user):
            for user in range(len(table.user_names)):
                own = table.items[offsets[user] : offsets[user + 1]]
                lists.append(rng.choice(np.setdiff1d(all_items, own), counts[user], replace=False))
        return lists

    peer = Peer("rng.choice user by user", lambda: usual)
    work = partial(sample_lists, train, held_out, protocol="published")
    yield from compare_with_peers(f"negatives for {users:,} users", work, [peer], turns=turns)


# ---- growth ----------------------------------------------------------------------------------------------------------

_IMPLEMENTATIONS = {OURS: Implementation(ours), "scikit-learn": Implementation(scikit_learn, module="sklearn")}
_OVER_ROWS = f"LETOR file of {FEATURES} features"
CURVES = (
    Curve(
        _OVER_ROWS, "rows", (5_000, 10_000, 20_000, 40_000, 80_000), (100, 200),
        lambda size, folder: write_letor(folder / f"{size}.txt", size, FEATURES), _IMPLEMENTATIONS, turns=3,
    ),
    Curve(
        "LETOR file of 10,000 rows", "features", (17, 34, 68, 136, 272), (2, 4),
        lambda size, folder: write_letor(folder / f"x{size}.txt", 10_000, size), _IMPLEMENTATIONS, turns=3,
    ),
)  # fmt: skip
