"""A large parquet file evaluated chunk by chunk, and a smooth loss of one list of a million items."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

import rankbound as rb
from benchmarks import evaluation, losses
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.memory import peaks
from benchmarks.records import Finding, Growth, Row
from benchmarks.timing import Work, best_of

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = (
    "a parquet file of qid, label and score, queries of 100 items, which repeats one block under new qids, so "
    "that its means equal those of the block; a list of a million items with normal scores, half of them relevant"
)
_ITEMS, _BLOCK, _SMALL_BLOCK = 100, 250_000, 2_500
_AT_ONCE = 20_000_000  # rows that fit into memory as one table
_SAMPLE = 200  # items whose sums are computed directly
_NODES = 400


# ---- a large file ----------------------------------------------------------------------------------------------------


def sizes_up_to(rows: int) -> tuple[int, ...]:
    """Return an eighth, a quarter, a half and all of the rows, rounded up to whole blocks."""
    block = _BLOCK if rows >= 8 * _BLOCK else _SMALL_BLOCK
    unit = -(-rows // (8 * block)) * block
    return unit, 2 * unit, 4 * unit, 8 * unit


def block_of(size: int) -> pl.DataFrame:
    """Return the block that a file of this size repeats."""
    rows = _BLOCK if size % _BLOCK == 0 else _SMALL_BLOCK
    labels, scores = evaluation.arrays(rows // _ITEMS, _ITEMS)
    qid = np.repeat(np.arange(rows // _ITEMS), _ITEMS)
    return pl.DataFrame({"qid": qid, "label": labels.ravel().astype(np.int8), "score": scores.ravel()})


def write_copies(size: int, folder: Path) -> Path:
    """Write a file of ``size`` rows as a stream, unless it exists."""
    path, block_path = folder / f"{size}.parquet", folder / "block.parquet"
    if not path.exists():
        block = block_of(size)
        block.write_parquet(block_path)
        queries = len(block) // _ITEMS
        scan = pl.scan_parquet(block_path)
        copies = [scan.with_columns(pl.col("qid") + i * queries) for i in range(size // len(block))]
        pl.concat(copies).sink_parquet(path)
    return path


def in_chunks(path: Path) -> Work:
    return lambda: rb.evaluate(path, measures=evaluation.MEASURES)


def at_once(path: Path) -> Work:
    return lambda: rb.evaluate(rb.Lists.from_frame(pl.read_parquet(path)), measures=evaluation.MEASURES)


_FILE = "evaluate a parquet file"
CURVES = (
    Curve(
        _FILE, "rows", sizes_up_to(10_000_000), sizes_up_to(20_000),
        write_copies,
        {OURS: Implementation(in_chunks), f"{OURS}, whole table at once": Implementation(at_once, largest=_AT_ONCE)},
        turns=2,
    ),
)  # fmt: skip


def run(quick: bool, rows: int = 10_000_000) -> Iterator[Finding]:
    """Yield the rows and the curve of the file, then the rows of the list."""
    sizes = sizes_up_to(rows)
    yield _same_means(max(size for size in sizes if size <= max(_AT_ONCE, sizes[0])), quick)
    for finding in growth_of(__name__, [replace(CURVES[0], sizes=sizes, quick=sizes)], quick):
        yield finding
        if isinstance(finding, Growth) and finding.way == OURS:
            yield from _file_rows(finding)
    yield from _long_list(quick)


def _same_means(size: int, quick: bool) -> Row:
    """Compare evaluation in chunks with that of the whole table; both must give the same means."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_copies(size, Path(folder))
        chunks, whole = in_chunks(path), at_once(path)
        block = rb.evaluate(rb.Lists.from_frame(block_of(size)), measures=evaluation.MEASURES).mean()
        difference = max(abs(chunks().mean()[name] - block[name]) for name in block)
        times = best_of({"chunks": chunks, "whole": whole}, 1 if quick else 2)
    name = f"evaluate {size:,} rows of a parquet file, by chunks"
    return Row(
        name, times["chunks"], "ours, whole table at once", times["whole"], None, "s", "ourselves", difference, 1e-9
    )


def _file_rows(growth: Growth) -> Iterator[Row]:
    rows, seconds = growth.sizes[-1], growth.seconds[-1]
    yield Row(
        f"evaluate {rows:,} rows of a parquet file", seconds, "1 second per million", rows / 1e6, 1.0, "s", "limit"
    )
    if growth.megabytes is not None:
        name = f"evaluate {rows:,} rows of a parquet file, memory"
        yield Row(name, growth.megabytes[-1], "1 GB", 1024.0, 1.0, "MB", "limit")


# ---- a long list -----------------------------------------------------------------------------------------------------


def _long_list(quick: bool) -> Iterator[Finding]:
    """Time smooth nDCG of 10^6 items (5e11 pairs, by series); check ranks and gradient of some against direct sums."""
    items = 10_000 if quick else 1_000_000
    made = losses.equal_lists(1, items, items // 2)
    with losses.one_thread():
        work = losses.ours(made)
        time = best_of({"": work}, 1 if quick else 4)[""]
        difference = _error(made)
    name = f"NDCGLoss, one list of {items:,} items, half relevant"
    note = f"ranks and gradient of {_SAMPLE} items against direct sums"
    yield Row(name, time, "1 second", 1.0, 1.0, "s", "limit", difference, 1e-4, note)
    if quick:
        return
    with tempfile.TemporaryDirectory() as folder:
        megabytes = peaks(losses.__name__, losses.HALF, OURS, (1_000, items), Path(folder))
    if megabytes is not None:
        yield Row(f"{name}, memory", megabytes[-1], "256 MB", 256.0, 1.0, "MB", "limit")


def _error(made: losses.Lists) -> float:
    """Return the larger of two errors: of smooth ranks (relative), and of the gradient (relative to its maximum)."""
    scores = made.scores.detach().numpy().astype(np.float64)
    relevant = np.flatnonzero(made.labels.numpy())
    at = np.linspace(scores.min(), scores.max(), _NODES)  # the sum of logistics is smooth: its error here is 1e-9
    ranks = CubicSpline(at, [_logistic(scores - x).sum() for x in at])(scores[relevant])
    sample = np.random.default_rng(0).choice(len(relevant), min(_SAMPLE, len(relevant)), replace=False)
    direct = np.array([_logistic(scores - scores[relevant[i]]).sum() for i in sample])
    rank_error = float(np.abs(ranks[sample] / direct - 1).max())
    # loss = -(sum of 1 / log2(1 + R) over relevant items) / ideal; R = 1/2 + the sum, which includes the item itself
    ideal = (1 / np.log2(np.arange(2, len(relevant) + 2))).sum()
    slopes = np.log(2) / ((1.5 + ranks) * np.log(1.5 + ranks) ** 2) / ideal
    gradient = made.scores.grad.numpy()
    expected = np.array([_direct_gradient(scores, relevant, slopes, i) for i in sample])
    gradient_error = float(np.abs(gradient[relevant[sample]] - expected).max() / np.abs(expected).max())
    return max(rank_error, gradient_error)


def _direct_gradient(scores: NDArray[Any], relevant: NDArray[Any], slopes: NDArray[Any], index: int) -> float:
    """Sum the effects of one relevant item's score on the ranks of the others and on its own rank."""
    own = scores[relevant[index]]
    return float(slopes @ _slope(own - scores[relevant]) - slopes[index] * _slope(scores - own).sum())


def _logistic(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(1 / (1 + np.exp(-x)))


def _slope(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(_logistic(x) * _logistic(-x))
