"""Results as files: STUDY.csv, STUDY.md with the context that readers need, and the additional tables of the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from rankbound.experiments.claims import judge_claims
from rankbound.experiments.spec import Study
from rankbound.experiments.trial_spec import TrialSlot
from rankbound.io import atomic_write
from rankbound.report.safe_text import without_formulas

__all__ = ["about_results", "write_results"]


def write_results(
    folder: Path, study: Study, slots: Sequence[TrialSlot], results: pl.DataFrame, derived: Mapping[str, pl.DataFrame]
) -> list[Path]:
    """Write the tables and the text about them, each file atomically."""
    tables = {study.name: results} | {f"{study.name}-{name}": table for name, table in derived.items()}
    written = []
    for name, table in tables.items():
        path = folder / f"{name}.csv"
        with atomic_write(path) as temporary:
            without_formulas(table).write_csv(temporary, float_precision=6)
        written.append(path)
    path = folder / f"{study.name}.md"
    with atomic_write(path) as temporary:
        temporary.write_text(about_results(study, slots, results), encoding="utf-8")
    return [*written, path]


def about_results(study: Study, slots: Sequence[TrialSlot], results: pl.DataFrame) -> str:
    """The origin of the numbers and their differences from the published ones, in Markdown."""
    from rankbound import __version__

    data = dict(sorted({slot.trial.source.name: slot.trial.digest for slot in slots}.items()))
    specs = [slot.trial.spec for slot in slots]
    protocols = sorted({spec.users.protocol for spec in specs if spec.user_options is not None})
    selected_on = {
        "validation": "epoch and parameters selected on held-out training data",
        "test": "epoch and parameters selected on the test data, as published: such numbers are too high",
        "last": "last epoch, nothing selected",
    }
    metadata = {
        "made": f"{datetime.now(UTC):%Y-%m-%d}, rankbound {__version__}, `rankbound reproduce {study.name}`",
        "data (sha256 of the content)": "; ".join(f"{name} {digest[:12]}" for name, digest in data.items()),
        "selection": "; ".join(f"{name}: {selected_on[name]}" for name in sorted({spec.selection for spec in specs})),
        "sampling of negatives": ", ".join(protocols),
        "folds": ", ".join(str(fold) for fold in sorted({slot.fold for slot in slots})),
        "seeds": ", ".join(str(seed) for seed in sorted({slot.seed for slot in slots})),
    }
    lines = [f"# {study.name}: {study.title}", "", *([study.about.strip(), ""] if study.about else [])]
    lines += [f"- {name}: {value}" for name, value in metadata.items() if value]
    lines += ["", *_gaps(results)]
    if study.claims:
        lines += ["", "Findings of the paper, tested by 95 % intervals of paired differences:", ""]
        lines += [f"- {verdict.sentence}" for verdict in judge_claims(study.claims, results)]
    return "\n".join(lines) + "\n"


def _gaps(results: pl.DataFrame) -> list[str]:
    compared = results.filter(pl.col("published").is_not_null() & pl.col("ours").is_not_null())
    if compared.is_empty():
        return [f"{results.height} rows, none of them with a published number."]
    inside = compared.filter(pl.col("published").is_between(pl.col("ci_low"), pl.col("ci_high"))).height
    away = compared["difference"].to_numpy()
    worst = compared[int(abs(away).argmax())]
    setting = ", ".join(str(worst[name][0]) for name in _names(compared) if worst[name][0])
    return [
        f"{compared.height} rows have a published number, which lies within our 95 % interval in {inside} of them. "
        f"Ours minus published is {away.mean():+.4f} on average, from {away.min():+.4f} to {away.max():+.4f}; the "
        f"largest difference is {worst['difference'][0]:+.4f} ({setting})."
    ]


def _names(table: pl.DataFrame) -> list[str]:
    return [*table.columns[: table.columns.index("measure") + 1]]
