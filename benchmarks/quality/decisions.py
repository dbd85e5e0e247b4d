"""What audits, gates and leaderboards cost: processor time and memory, each in a process of its own.

Run ``python -m benchmarks.quality.decisions``.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

_AUDIT = """
import polars as pl, rankbound as rb
qrels, run = pl.read_parquet("qrels.parquet"), {run}
print(rb.audit(qrels, run))
"""
_LEADERBOARD = """
import numpy as np
from rankbound.evaluation.leaderboards import leaderboard_of
from rankbound.evaluation.scores import ScoreMatrix
systems, sets, queries = 180, 41, 300
random, index = np.random.default_rng(1), np.repeat(np.arange(sets), queries)
values = random.normal(0, 0.3, (systems, sets * queries)) - 0.01 * np.arange(systems)[:, None]
for system, part in zip(*np.nonzero(random.random((systems, sets)) < {missing})):
    values[system, index == part] = np.nan
names, sources = tuple(f"s{{i}}" for i in range(systems)), tuple((f"d{{i}}", "") for i in range(sets))
scores = ScoreMatrix(names, tuple(range(len(index))), {{"EM(nDCG@10)": values}}, sources=sources, source_index=index)
print(len(leaderboard_of(scores, "EM(nDCG@10)", over="{over}").tied_for_first), "tied for first")
"""


def write_tables(folder: Path) -> None:
    """A million judgments with a run, and the files of a gate on 200 x 100."""
    random = np.random.default_rng(0)
    queries, documents = 10_000, 100
    label = (random.random(queries * documents) < 0.1) * random.integers(1, 3, queries * documents)
    columns = {
        "qid": [f"q{query}" for query in range(queries) for _ in range(documents)],
        "docid": [f"d{name}" for _ in range(queries) for name in random.permutation(100_000)[:documents]],
    }
    pl.DataFrame(columns | {"label": label}).write_parquet(folder / "qrels.parquet")
    pl.DataFrame(columns | {"score": label + random.normal(size=len(label))}).write_parquet(folder / "run.parquet")
    rows = [(query, document, int(random.random() < 0.1)) for query in range(200) for document in range(100)]
    (folder / "qrels").write_text("".join(f"q{q} 0 d{d} {label}\n" for q, d, label in rows))
    for name in ("old", "new"):
        lines = (f"q{q} Q0 d{d} 1 {label + random.normal():.6f} t\n" for q, d, label in rows)
        (folder / name).write_text("".join(lines))


def measure(name: str, arguments: list[str], folder: Path) -> str:
    """Processor seconds of a command, and the largest memory of any so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, check=False)
    assert done.returncode in {0, 1, 3}, done.stderr.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{name:45} {seconds:6.2f} s   at most {after.ru_maxrss // 1024:,} MB"


def main() -> None:
    """Print a line for each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        gate = ["-m", "rankbound", "gate", "qrels", "old", "new", "--margin", "0.02"]
        print(measure("gate, 200 x 100, from process start", gate, folder))
        for over in ("queries", "data sets"):
            for missing in (0.0, 0.05):
                script = _LEADERBOARD.format(missing=missing, over=over)
                title = f"leaderboard, 180 x 41, over {over}, {missing:.0%} missing"
                print(measure(title, ["-c", script], folder))
        for run in ("None", 'pl.read_parquet("run.parquet")'):
            title = f"audit of 1 M rows {'without runs' if run == 'None' else 'with a run'}"
            print(measure(title, ["-c", _AUDIT.format(run=run)], folder))


if __name__ == "__main__":
    main()
