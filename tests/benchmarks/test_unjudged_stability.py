"""The study of runs with documents that nobody judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.quality import unjudged_stability as study
from rankbound.cli.output import show_number

PAGE = Path(__file__).parents[2] / "docs" / "results" / "unjudged-stability.md"
STABILITY = ("Kendall tau", "swap rate", "significant fraction")
DECISIONS = ("pairs decided", "significant by t", "of these stand", "of these may be reversed")


def test_the_page_has_the_numbers_of_its_file():
    checked = 0
    rows = {(row["measure"], row["unjudged"]): row for row in pl.read_csv(PAGE.with_suffix(".csv")).rows(named=True)}
    for line in PAGE.read_text().splitlines():
        measure, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if measure not in study.MEASURES:
            continue
        named = (measure, cells[0]) in rows
        row = rows[measure, cells.pop(0) if named else "label 0"]
        assert cells == [show_number(row[name], digits=3) for name in (STABILITY if named else DECISIONS)]
        checked += 1
    assert checked == 5 * len(study.MEASURES)


def test_complete_judgments_decide_all_pairs(monkeypatch):
    monkeypatch.setattr(study, "SPLITS", 5)
    rng = np.random.default_rng(4)
    qrels = {f"q{i}": {f"d{j}": int(rng.random() < 0.4) for j in range(12)} for i in range(12)}
    runs = {f"run{r}": {q: {d: rng.random() + 0.5 * r * label for d, label in of.items()} for q, of in qrels.items()}
            for r in range(4)}  # fmt: skip
    judged = study.stability_table(qrels, runs)
    assert len(judged) == 4 * len(study.MEASURES)
    for row in judged:
        same = next(other for other in judged if (other["measure"], other["unjudged"]) == (row["measure"], "label 0"))
        assert [row[name] for name in STABILITY] == [same[name] for name in STABILITY]
    first = [row for row in judged if row["unjudged"] == "label 0"]
    found = [[row[name] for name in ("pairs decided", "of these stand", "of these may be reversed")] for row in first]
    assert found == [[1, 1, 0]] * len(study.MEASURES)
    open_runs = {name: {q: of | {f"x{i}{name}": 9.0 for i in range(9)} for q, of in run.items()}
                 for name, run in runs.items()}  # fmt: skip
    decided = [row["pairs decided"] for row in study.stability_table(qrels, open_runs)]
    assert {part for part in decided if part is not None} == {0}
