"""Run benchmarks, print one table of ratios, and write it as JSON beside the versions it was made with."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

PARTS = ("evaluation", "laws", "losses", "objectives", "reading", "factorization")
PACKAGES = (
    "rankbound numpy polars scipy torch numba lightgbm scikit-learn pytrec_eval-terrier ir_measures ranx rax keras-rs"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"which of {', '.join(PARTS)} (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench-results.json"))
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    rows = []
    for part in arguments.parts:
        print(f"running {part} ...", file=sys.stderr, flush=True)
        rows += [{"part": part, **row} for row in importlib.import_module(f"bench.{part}").run()]
    table = Table(
        "part", "what", "rankbound", "peer", "peer takes", "times faster", "asked for", title="Speed against peers"
    )
    for row in rows:
        bar, met = row["bar"], row["bar"] is None or row["ratio"] >= row["bar"]
        table.add_row(
            row["part"],
            row["name"],
            _seconds(row["ours_seconds"]),
            row["peer"],
            _seconds(row["peer_seconds"]),
            f"{row['ratio']:.2f}",
            "" if bar is None else f"{bar:.2f} {'ok' if met else 'MISSED'}",
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    arguments.output.write_text(json.dumps({"machine": _machine(), "versions": _versions(), "rows": rows}, indent=1))
    missed = [row["name"] for row in rows if row["bar"] is not None and row["ratio"] < row["bar"]]
    if missed:
        print("missed: " + "; ".join(missed))
    return bool(missed)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def _machine() -> dict[str, str]:
    return {"python": platform.python_version(), "processor": platform.machine(), "system": platform.system()}


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES.split():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
