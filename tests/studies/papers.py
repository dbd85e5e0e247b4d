"""For tests of the studies that come with the package: run a part of one on small data in the real format."""

from __future__ import annotations

from pathlib import Path

from rankbound.data.synthetic import synthetic_letor
from rankbound.studies.expansion import expand, select
from rankbound.studies.spec import Study
from rankbound.studies.store import Store
from rankbound.studies.trial import run_trial
from rankbound.studies.trial_spec import TrialSlot

from .conftest import letor_text


def write_folds(
    folder: Path, *, seed: int, names=("trainingset", "validationset", "testset"), queries: int = 24
) -> None:
    """Fold1 to Fold5 of small queries, as LETOR 3.0 has them."""
    for number in range(1, 6):
        data = synthetic_letor(queries=queries, features=5, seed=seed + number, documents=(6, 14))
        cuts = (0, queries // 2, 3 * queries // 4, queries)
        target = folder / f"Fold{number}"
        target.mkdir(parents=True)
        for name, first, last in zip(names, cuts, cuts[1:], strict=False):
            (target / f"{name}.txt").write_text(letor_text(data.take(range(first, last))))


def run_here(study: Study, only: dict, store: Store) -> list[TrialSlot]:
    """Run the selected trials in this process and put them into the store."""
    slots = [slot.identified() for slot in select(expand(study), only)]
    store.register(study.name, slots)
    for slot in slots:
        store.put(slot.trial, run_trial(slot.trial))
    return slots


def published_without_a_setting(study: Study, published) -> list[dict]:
    """Rows of published numbers that no setting of the study has."""
    settings = [
        (dict(slot.setting), set(slot.rule.report)) for table in study.tables for slot in expand_table(study, table)
    ]
    keys = [name for name in published.columns if name not in ("measure", "published", "note")]
    return [
        row
        for row in published.iter_rows(named=True)
        if not any(
            row["measure"] in report and all(row[key] in ("", setting.get(key, "")) for key in keys)
            for setting, report in settings
        )
    ]


def expand_table(study: Study, table) -> list[TrialSlot]:
    """The slots of one table, whether its data are present or not."""
    return expand(study.model_copy(update={"tables": [table.model_copy(update={"optional": False})]}), fetch=False)
