"""Results as files: STUDY.csv, STUDY.md with the context that readers need, and the additional tables of the study.

A long study can be run in pieces, on several machines: rows of an earlier file remain where the store has no results of
their own for them. They have a note that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from rankbound.data.frames import polars_explained
from rankbound.errors import DataError
from rankbound.io import atomic_write
from rankbound.studies.claims import judge_claims
from rankbound.studies.results import RESULT_COLUMNS, without_empty_texts
from rankbound.studies.spec import Study
from rankbound.studies.trial_spec import TrialSlot

_EARLIER = "of an earlier run"


def write_results(
    folder: Path,
    study: Study,
    slots: Sequence[TrialSlot],
    results: pl.DataFrame,
    derived: Mapping[str, pl.DataFrame],
    planned: Sequence[TrialSlot],
) -> list[Path]:
    """Write the tables and the text about them, each file atomically.

    ``planned`` are the slots of the whole study: rows of an earlier file that are none of them are dropped.
    """
    results = _with_earlier_rows(results, folder / f"{study.name}.csv", planned)
    tables = {study.name: results}
    for name, table in derived.items():
        tables[f"{study.name}-{name}"] = _with_earlier_parts(table, folder / f"{study.name}-{name}.csv", planned)
    written = []
    for name, table in tables.items():
        path = folder / f"{name}.csv"
        with atomic_write(path) as temporary:
            table.write_csv(temporary, float_precision=6)
        written.append(path)
    path = folder / f"{study.name}.md"
    with atomic_write(path) as temporary:
        temporary.write_text(about_results(study, slots, results), encoding="utf-8")
    return [*written, path]


def _with_earlier_rows(results: pl.DataFrame, path: Path, planned: Sequence[TrialSlot]) -> pl.DataFrame:
    """Add the rows of an earlier file for settings and measures of the study that have no result of their own."""
    if not path.exists() or results.is_empty():
        return results
    earlier = _read(path)
    if not {"measure", "ours"} <= set(earlier.columns):
        raise DataError(f"{path}: must be a table of results with the columns measure and ours, or be removed")
    settings = list(dict.fromkeys((*_names(results)[:-1], *_names(earlier)[:-1])))
    with polars_explained(path):
        earlier = _complete_columns(earlier, settings).drop_nulls("ours")
    current = _complete_columns(results, settings)
    order: dict[tuple[str, ...], int] = {}
    for slot in planned:
        for measure in slot.rule.report:
            order.setdefault((*(slot.setting.get(name, "") for name in settings), measure), len(order))

    def keys(table: pl.DataFrame) -> list[tuple[str, ...]]:
        return table.select(*settings, "measure").rows()

    done = set(keys(current.drop_nulls("ours")))
    earlier = earlier.filter([key in order and key not in done for key in keys(earlier)])
    replaced = set(keys(earlier))
    current = current.filter([key not in replaced for key in keys(current)])
    joined = pl.concat([current, earlier.with_columns(_mark_note(pl.col("note")))])
    return without_empty_texts(joined[np.argsort([order[key] for key in keys(joined)], kind="stable")])


def _complete_columns(table: pl.DataFrame, settings: Sequence[str]) -> pl.DataFrame:
    """The table with all columns of results, after those of the settings."""
    columns = pl.Schema({**dict.fromkeys(settings, pl.String()), **RESULT_COLUMNS})
    missing = [pl.lit(None, kind).alias(name) for name, kind in columns.items() if name not in table.columns]
    return table.with_columns(missing).select(*columns).cast(columns).with_columns(pl.col(pl.String).fill_null(""))


def _with_earlier_parts(table: pl.DataFrame, path: Path, planned: Sequence[TrialSlot]) -> pl.DataFrame:
    """Add the rows of an earlier file for data sets of the study that an additional table has no row of."""
    if not path.exists() or "data" not in table.columns:
        return table
    earlier = _read(path)
    if earlier.columns != table.columns:
        return table  # of another version
    names = {slot.setting["data"] for slot in planned} - set(table["data"])
    with polars_explained(path):
        earlier = earlier.cast(dict(table.schema))  # type: ignore[arg-type]
    return pl.concat([table, earlier.filter(pl.col("data").is_in(names))])


def _read(path: Path) -> pl.DataFrame:
    with polars_explained(path):
        return pl.read_csv(path, infer_schema=False)


def _mark_note(note: pl.Expr) -> pl.Expr:
    """A note that says that its row is of an earlier run."""
    joined = pl.when(note == "").then(pl.lit(_EARLIER)).otherwise(pl.concat_str(note, pl.lit(f"; {_EARLIER}")))
    return pl.when(note.str.contains(_EARLIER, literal=True)).then(note).otherwise(joined).alias("note")


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
    if earlier := _earlier(results):
        lines.append(
            f"- rows of an earlier run: {earlier} of {results.height}; this one has no finished trials for them"
        )
    lines += ["", *_gaps(results)]
    if study.claims:
        lines += ["", "Findings of the paper, tested by 95 % intervals of paired differences:", ""]
        lines += [f"- {verdict.sentence}" for verdict in judge_claims(study.claims, results)]
    return "\n".join(lines) + "\n"


def _earlier(results: pl.DataFrame) -> int:
    """The number of rows that are not of this run."""
    if "note" not in results.columns:
        return 0
    return int(results["note"].str.contains(_EARLIER, literal=True).sum())


def _gaps(results: pl.DataFrame) -> list[str]:
    compared = results.filter(pl.col("published").is_not_null() & pl.col("ours").is_not_null())
    if compared.is_empty():
        return [f"{results.height} rows, none of them with a published number."]
    inside = compared.filter(pl.col("published").is_between(pl.col("ci_low"), pl.col("ci_high"))).height
    away = compared["difference"].to_numpy()
    worst = compared[int(abs(away).argmax())]
    setting = ", ".join(str(worst[name][0]) for name in _names(compared) if worst[name][0])
    return [
        f"{inside} of {compared.height} published values lie in our 95 % intervals. Ours minus published: "
        f"mean {away.mean():+.4f}, mean absolute {abs(away).mean():.4f}, from {away.min():+.4f} to {away.max():+.4f}; "
        f"the largest is {worst['difference'][0]:+.4f} ({setting})."
    ]


def _names(table: pl.DataFrame) -> list[str]:
    return [*table.columns[: table.columns.index("measure") + 1]]
