"""Results as files: STUDY.csv, STUDY.md with what one must know to read it, and the study's further tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from rankbound.experiments.claims import judge_claims
from rankbound.experiments.expansion import Planned
from rankbound.experiments.spec import Study
from rankbound.io import atomic_write

__all__ = ["about_results", "write_results"]


def write_results(
    folder: Path, study: Study, planned: Sequence[Planned], results: pl.DataFrame, derived: Mapping[str, pl.DataFrame]
) -> list[Path]:
    """Write the tables and the text about them; each file whole or not at all."""
    tables = {study.name: results} | {f"{study.name}-{name}": table for name, table in derived.items()}
    written = []
    for name, table in tables.items():
        path = folder / f"{name}.csv"
        with atomic_write(path) as temporary:
            table.write_csv(temporary, float_precision=6)
        written.append(path)
    path = folder / f"{study.name}.md"
    with atomic_write(path) as temporary:
        temporary.write_text(about_results(study, planned, results), encoding="utf-8")
    return [*written, path]


def about_results(study: Study, planned: Sequence[Planned], results: pl.DataFrame) -> str:
    """Where the numbers come from, and how far they lie from the published ones."""
    from rankbound import __version__

    data = dict(sorted({one.trial.source.name: one.trial.digest for one in planned}.items()))
    selections = sorted({one.rule.selection for one in planned})
    protocols = sorted({one.trial.spec["protocol"] for one in planned if "protocol" in one.trial.spec})
    chosen = {
        "validation": "epoch and parameters chosen on held-out training data",
        "test": "epoch and parameters chosen on the test data, as published: such numbers are too high",
        "last": "nothing chosen",
    }
    metadata = {
        "made": f"{datetime.now(UTC):%Y-%m-%d}, rankbound {__version__}, `rankbound reproduce {study.name}`",
        "data (sha256 of the content)": "; ".join(f"{name} {digest[:12]}" for name, digest in data.items()),
        "selection": "; ".join(f"{name}: {chosen[name]}" for name in selections),
        "protocol of negatives": ", ".join(protocols),
        "folds": ", ".join(str(fold) for fold in sorted({one.trial.spec["fold"] for one in planned})),
        "seeds": ", ".join(str(seed) for seed in sorted({one.trial.spec["seed"] for one in planned})),
    }
    lines = [f"# {study.name}: {study.title}", "", *([study.about.strip(), ""] if study.about else [])]
    lines += [f"- {name}: {value}" for name, value in metadata.items() if value]
    lines += ["", *_gaps(results)]
    if study.claims:
        lines += ["", "What the paper found, tested (95 % intervals of paired differences):", ""]
        lines += [f"- {verdict.sentence}" for verdict in judge_claims(study.claims, results)]
    return "\n".join(lines) + "\n"


def _gaps(results: pl.DataFrame) -> list[str]:
    beside = results.filter(pl.col("published").is_not_null() & pl.col("ours").is_not_null())
    if beside.is_empty():
        return [f"{results.height} rows; there are no published numbers beside them."]
    inside = beside.filter(pl.col("published").is_between(pl.col("ci_low"), pl.col("ci_high"))).height
    away = beside["difference"].to_numpy()
    worst = beside[int(abs(away).argmax())]
    setting = ", ".join(str(worst[name][0]) for name in _names(beside) if worst[name][0])
    return [
        f"{beside.height} rows have a published number, which lies within our 95 % interval in {inside} of them. Ours "
        f"minus published is {away.mean():+.4f} in the mean, from {away.min():+.4f} to {away.max():+.4f}; the "
        f"largest gap is {worst['difference'][0]:+.4f} ({setting})."
    ]


def _names(table: pl.DataFrame) -> list[str]:
    return [*table.columns[: table.columns.index("measure") + 1]]
