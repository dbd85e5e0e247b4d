"""Sample 1 to 1000 negatives per positive on every data set of interactions, and train an epoch on them.

    python -m benchmarks.quality.negative_ratios                        all sets that are on this machine
    python -m benchmarks.quality.negative_ratios epinions-tang 1000     some sets, some ratios

Each row runs in a process of its own, so that the peak memory is that of the row. Lists are those of
`rankbound.data.sample_lists`; the epoch is one of `MatrixFactorization` on interactions, whose negatives are drawn
batch by batch. Ratings are not filtered; a fifth of each user's interactions is for testing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from rankbound.data import load_set, sample_lists, user_folds
from rankbound.data.catalog import known_sets
from rankbound.data.set_files import present_files

RATIOS = (1, 10, 100, 1000)


def measure(name: str, ratio: int) -> dict[str, Any]:
    """Return seconds, peak memory, sizes and notes of one set and ratio."""
    from rankbound.models import MatrixFactorization

    table = load_set(name)
    fold = user_folds(table, 5, seed=0)
    train, test = table.rows(fold != 0), table.rows(fold == 0)
    began = time.perf_counter()
    lists = sample_lists(train, test, train_ratio=ratio)
    sampled = time.perf_counter() - began
    rows, notes = len(lists[0].items), [note for part in lists for note in part.notes]
    memory = _peak()
    del lists
    began = time.perf_counter()
    model = MatrixFactorization(epochs=1, negatives=ratio).fit(train)
    trained = time.perf_counter() - began
    return {
        "set": name, "ratio": ratio, "rows": rows, "sampling_seconds": sampled, "sampling_mb": memory,
        "epoch_seconds": trained, "peak_mb": _peak(), "notes": [*notes, *model.notes_],
    }  # fmt: skip


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="SET|RATIO")
    parser.add_argument("--one", nargs=2, metavar=("SET", "RATIO"), help="measure one of them in this process")
    options = parser.parse_args(arguments)
    words = options.words
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return 0
    here = [name for name, entry in known_sets().items() if entry.kind == "ratings" and present_files(entry)]
    sets = [word for word in words if not word.isdigit()] or here
    ratios = [int(word) for word in words if word.isdigit()] or RATIOS
    table = Table("set", "ratio", "training rows", "sampling s", "sampling MB", "epoch s", "peak MB", "notes")
    failed = 0
    for name in sets:
        for ratio in ratios:
            command = [sys.executable, "-m", "benchmarks.quality.negative_ratios", "--one", name, str(ratio)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                failed += 1
                table.add_row(name, str(ratio), "failed: " + (run.stderr.strip().splitlines() or [""])[-1])
                continue
            row = json.loads(run.stdout.splitlines()[-1])
            numbers = [f"{row[key]:,.1f}" for key in ("sampling_seconds", "sampling_mb", "epoch_seconds", "peak_mb")]
            table.add_row(name, str(ratio), f"{row['rows']:,}", *numbers, "\n".join(row["notes"]))
            print(f"{name} {ratio}: {', '.join(numbers)}", file=sys.stderr, flush=True)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
