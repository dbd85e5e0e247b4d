"""Reading: a LETOR file of 200,000 x 136 against scikit-learn, its converted cache, and the memory it takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.datasets import load_svmlight_file

from bench.timing import Row, best_of, row
from rankbound.data.converted import converted
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.sampling import sample_lists
from rankbound.data.splits import monte_carlo
from rankbound.data.synthetic import synthetic_interactions

ROWS, FEATURES = 200_000, 136


def write_letor(path: Path, rows: int = ROWS, features: int = FEATURES, seed: int = 0) -> None:
    """Dense rows like MSLR's: labels 0 to 4, about 100 documents per query, two values in five are zero."""
    rng = np.random.default_rng(seed)
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


def peak_megabytes(path: Path) -> tuple[float, float]:
    """What reading adds to the peak memory of a fresh process, and the size of the arrays that come of it."""
    code = (  # VmHWM, because ru_maxrss begins with what the parent process had
        "import re, sys, pathlib, polars, rankbound.data.letor as letor\n"
        "status = pathlib.Path('/proc/self/status')\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', status.read_text())[1]) / 1024\n"
        "before = peak(); data = letor.read_letor(sys.argv[1]); print(peak() - before, data.features.nbytes / 2**20)"
    )
    found = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    peak, arrays = map(float, found.stdout.split())
    return peak, arrays


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "letor.txt"
        write_letor(path)
        os.environ["RANKBOUND_CACHE"] = folder

        def scikit_learn():
            return load_svmlight_file(str(path), query_id=True, dtype=np.float32, n_features=FEATURES)

        def cached() -> LetorData:
            return converted([path], lambda: read_letor(path), LetorData)

        cached()
        times = best_of({"ours": lambda: read_letor(path), "cached": cached, "scikit-learn": scikit_learn}, turns=2)
        theirs, labels, queries = scikit_learn()
        for ours in (read_letor(path), cached()):
            assert np.array_equal(ours.features, theirs.toarray())
            assert np.array_equal(ours.lists.labels, labels)
            assert np.array_equal(np.asarray(ours.lists.qids)[ours.lists.query_of_item], queries)
        memory = ""
        if Path("/proc/self/status").exists():
            peak, arrays = peak_megabytes(path)
            assert peak <= 2 * arrays, f"reading took {peak:.0f} MB for arrays of {arrays:.0f} MB"
            memory = f" ({peak:.0f} MB at peak for {arrays:.0f} MB)"
        shape, peer = f"LETOR {ROWS:,} x {FEATURES}", "load_svmlight_file"
        return [
            row(f"{shape}, read{memory}", times["ours"], peer, times["scikit-learn"], 5),
            row(f"{shape}, opened from the cache", times["cached"], peer, times["scikit-learn"], 100),
            _sampling(),
        ]


def _sampling() -> Row:
    """Negatives for 2,000 users at once, against choosing from what is left user by user as is usual."""
    table = synthetic_interactions(users=2_000, items=3_000, seed=0)
    test = monte_carlo(table, repeats=1)[0]
    train, held_out = table.rows(~test), table.rows(test)

    def usual() -> list[np.ndarray]:
        rng, every, offsets = np.random.default_rng(0), np.arange(len(table.item_names)), table.offsets
        lists = []
        for counts in (train.per_user, held_out.per_user):
            for user in range(len(table.user_names)):
                mine = table.items[offsets[user] : offsets[user + 1]]
                lists.append(rng.choice(np.setdiff1d(every, mine), counts[user], replace=False))
        return lists

    times = best_of({"ours": lambda: sample_lists(train, held_out, protocol="published"), "usual": usual}, turns=2)
    return row("negatives for 2,000 users", times["ours"], "rng.choice user by user", times["usual"], None)


if __name__ == "__main__":
    for result in run():
        print(result)
