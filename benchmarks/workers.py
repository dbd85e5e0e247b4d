"""Evaluate generated parquet tables on 1, 2, ... workers: seconds, memory of the workers, and a cost model.

    python -m benchmarks.workers --rows 1e6 1e7 1e8 --workers 1 2
    python -m benchmarks.workers --rows 1e9 --workers 2 --tables scored
    python -m benchmarks.workers --rows 2e7 --workers 1 --tables strings

Queries have 100 items. ``scored`` is one table of qid, label and score; ``two`` are judgments and a run with integer
ids; ``strings`` are judgments and a run with ids as text, which are not in alphabetical order. The files repeat one
block of a million rows under new query ids, so that the means must be those of the block.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import rankbound as rb
from rankbound.parallel import open_client

__all__ = ["CostModel", "Measurement", "fit", "generate", "measure"]

MEASURES = ("nDCG@10", "AP", "RR", "P@10", "R@100", "EM(nDCG@10)")
_ITEMS, _BLOCK, _FILE = 100, 1_000_000, 10_000_000


@dataclass(frozen=True)
class Measurement:
    """One evaluation."""

    tables: str
    rows: int
    workers: int
    seconds: float
    worker_megabytes: float
    """The largest resident memory of any worker."""
    client_megabytes: float
    read_bytes: int


@dataclass(frozen=True)
class CostModel:
    """seconds = start + rows * per_row / workers^efficiency."""

    start: float
    per_row: float
    efficiency: float
    bytes_per_row: float

    def seconds(self, rows: float, workers: int) -> float:
        """The predicted time."""
        return float(self.start + rows * self.per_row / workers**self.efficiency)


def fit(measurements: Sequence[Measurement]) -> CostModel:
    """Fit the model by least squares of relative errors; the efficiency is a grid search over 0.5 to 1."""
    rows, workers, seconds = (
        np.array([getattr(found, name) for found in measurements], dtype=np.float64)
        for name in ("rows", "workers", "seconds")
    )
    best: tuple[float, CostModel] | None = None
    for efficiency in np.linspace(0.5, 1.0, 51) if len(set(workers.tolist())) > 1 else [1.0]:
        design = np.stack([np.ones_like(rows), rows / workers**efficiency], axis=1) / seconds[:, None]
        (start, per_row), *_ = np.linalg.lstsq(design, np.ones_like(rows), rcond=None)
        error = float(((design @ [start, per_row] - 1) ** 2).sum())
        size = sum(found.read_bytes for found in measurements) / rows.sum()
        if best is None or error < best[0]:
            best = error, CostModel(max(float(start), 0.0), float(per_row), float(efficiency), float(size))
    assert best is not None
    return best[1]


def block(tables: str) -> dict[str, pl.DataFrame]:
    """The block that the tables repeat; queries are numbered from 0."""
    random = np.random.default_rng(0)
    queries = _BLOCK // _ITEMS
    everything = pl.DataFrame({
        "qid": np.repeat(np.arange(queries), _ITEMS),
        "docid": np.tile(np.arange(_ITEMS), queries),
        "label": random.choice(np.arange(4, dtype=np.int8), _BLOCK, p=(0.7, 0.15, 0.1, 0.05)),
        "score": random.random(_BLOCK).astype(np.float32),
    })  # fmt: skip
    if tables == "scored":
        return {"scored": everything.select("qid", "label", "score")}
    return {"qrels": everything.select("qid", "docid", "label"), "run": everything.select("qid", "docid", "score")}


def generate(tables: str, rows: int, folder: Path) -> list[str]:
    """Write the tables as files of up to ten million rows, and return the pattern of each; what exists is kept."""
    patterns = []
    for name, frame in block(tables).items():
        target = folder / f"{tables}-{rows}" / name
        patterns.append(str(target / "part-*.parquet"))
        if target.exists():
            continue
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for number, start in enumerate(range(0, rows, _FILE)):
            copies = []
            for offset in range(start, min(start + _FILE, rows), _BLOCK):
                copy = frame[: rows - offset].with_columns(pl.col("qid") + offset // _ITEMS)
                if tables == "strings":
                    copy = copy.with_columns(pl.format("query-{}", "qid"), pl.format("document-{}", "docid"))
                copies.append(copy)
            pl.concat(copies).write_parquet(partial / f"part-{number:05d}.parquet", row_group_size=250_000)
        partial.rename(target)
    return patterns


def measure(tables: str, rows: int, workers: int, folder: Path) -> Measurement:
    """Evaluate on so many workers; the start of the workers is not part of the time."""
    patterns = generate(tables, rows, folder)
    size = sum(path.stat().st_size for pattern in patterns for path in Path(pattern).parent.iterdir())
    with open_client(f"local:{workers}") as (client, _):
        client.run(_warm_up)
        began = time.perf_counter()
        qrels, run = (*patterns, None)[:2]
        result = rb.evaluate(qrels, run, list(MEASURES), cluster=client, scratch=folder)
        seconds = time.perf_counter() - began
        peaks = client.run(_megabytes)
    assert result.queries == math.ceil(rows / _ITEMS)
    if rows % _BLOCK == 0:
        parts = block(tables)
        if tables == "scored":
            expected = rb.evaluate(rb.Lists.from_frame(parts["scored"]), measures=list(MEASURES)).mean()
        else:
            expected = rb.evaluate(parts["qrels"], parts["run"], list(MEASURES)).mean()
        assert result.mean() == expected, (result.mean(), expected)  # exact sums: a multiple of a sum has its mean
    return Measurement(tables, rows, workers, seconds, max(peaks.values()), _megabytes(), size)


def _warm_up() -> None:
    rb.evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 1.0, "b": 2.0}}, measures=list(MEASURES))


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure, print a table, and print the model with its error on the largest run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=lambda text: int(float(text)), default=[10**6, 10**7])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tables", choices=("scored", "two", "strings"), default="scored")
    parser.add_argument("--folder", type=Path, help="keep the generated tables here (default: a temporary folder)")
    parser.add_argument("--output", type=Path, help="add the measurements to this file, one JSON object per line")
    parser.add_argument("--model", action="store_true", help="fit the cost model to all measurements of --output")
    options = parser.parse_args()
    measurements = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for rows in options.rows:
            for workers in options.workers:
                found = measure(options.tables, rows, workers, folder)
                measurements.append(found)
                _print(
                    f"{found.tables:8} {rows:>14,} rows  {workers} workers  {found.seconds:8.1f} s  worker "
                    f"{found.worker_megabytes:6.0f} MB  client {found.client_megabytes:6.0f} MB  read "
                    f"{found.read_bytes / 1e9:.2f} GB"
                )
                if options.output is not None:
                    with options.output.open("a") as file:
                        file.write(json.dumps(asdict(found)) + "\n")
    _summarize(measurements)
    if options.model and options.output is not None:
        lines = options.output.read_text().splitlines()
        known = [Measurement(**json.loads(line)) for line in lines]
        _model([found for found in known if found.tables == options.tables])


def _summarize(measurements: Sequence[Measurement]) -> None:
    by_size: dict[int, dict[int, float]] = {}
    for found in measurements:
        by_size.setdefault(found.rows, {})[found.workers] = found.seconds
    for rows, times in by_size.items():
        for workers, seconds in times.items():
            if workers > 1 and 1 in times:
                _print(f"{rows:,} rows: {workers} workers take {seconds / times[1]:.2f} of the time of one")
    for workers in sorted({found.workers for found in measurements}):
        sizes = sorted(rows for rows, times in by_size.items() if workers in times)
        if len(sizes) > 1:
            ratio = by_size[sizes[-1]][workers] / by_size[sizes[0]][workers]
            exponent = math.log(ratio) / math.log(sizes[-1] / sizes[0])
            _print(f"{workers} workers: growth exponent {exponent:.3f} from {sizes[0]:,} to {sizes[-1]:,} rows")


def _model(measurements: Sequence[Measurement]) -> None:
    """Fit the model without the largest run, and print its error there and what it predicts for a cluster."""
    largest = max(measurements, key=lambda found: (found.rows, found.workers))
    rest = [found for found in measurements if found.rows < largest.rows]
    if len(rest) < 2:
        _print("a cost model needs at least two measurements besides the largest")
        return
    model = fit(rest)
    predicted = model.seconds(largest.rows, largest.workers)
    _print(
        f"model: {model.start:.2f} s + rows * {1e6 * model.per_row:.3f} s per million / workers^{model.efficiency:.2f}"
    )
    _print(f"largest run: {largest.seconds:.1f} s, predicted {predicted:.1f} s: {predicted / largest.seconds - 1:+.0%}")
    _print(
        f"10^10 rows on 100 workers: {model.seconds(1e10, 100):,.0f} s, {1e10 * model.bytes_per_row / 1e9:,.0f} GB read"
    )


def _print(line: Any) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
