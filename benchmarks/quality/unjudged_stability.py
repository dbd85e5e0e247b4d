"""How stable is the order of 143 runs if documents without a judgment are not taken for not relevant? TREC-COVID.

``python -m benchmarks.quality.unjudged_stability`` with RANKBOUND_DATA writes docs/results/unjudged-stability.csv.

The runs and judgments are those of docs/results/covid-stability.md. Documents without a judgment count as label 0, are
left out of the runs, or make each value the smallest or the largest that their labels allow. For each of the four the
table has Kendall's tau and the swap rate between random halves of the topics, and the fraction of pairs of runs that
differ significantly (Holm's correction over all pairs). Its last columns are about the labels themselves: the fraction
of the pairs whose mean difference has the same sign whatever the labels are, and what labels could do to those pairs
that differ by a t test at the level of 5 % without correction.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np

from rankbound.data.sources import to_frame
from rankbound.difficulty.unknown.differences import RunsWithUnknown
from rankbound.evaluation import evaluate
from rankbound.evaluation.alignment import lists_on_shared_queries
from rankbound.evaluation.scores import ScoreMatrix
from rankbound.evaluation.stability import stability
from rankbound.evaluation.unjudged import decide
from rankbound.measures import parse_measures

TARGET = Path("docs/results/unjudged-stability.csv")
MEASURES = ("nDCG@10", "P@10", "RBP")  # ranges of differences are exact for them
SPLITS = 200


def stability_table(qrels: object, runs: dict[str, object]) -> list[dict[str, float | str | None]]:
    """A row for every measure and treatment of documents without a judgment."""
    zero = evaluate(qrels, runs, MEASURES, unjudged="range")
    left_out = evaluate(qrels, runs, MEASURES, judged_only=True)
    names, topics = tuple(runs), tuple(zero[next(iter(runs))].query_ids)
    if any(tuple(results[name].query_ids) != topics for results in (zero, left_out) for name in names):
        raise ValueError("all runs must have the same topics")
    decisions = decisions_by_measure(qrels, runs)
    rows: list[dict[str, float | str | None]] = []
    for measure in MEASURES:
        treatments = {
            "label 0": [zero[name].values[measure] for name in names],
            "left out": [left_out[name].values[measure] for name in names],
            "smallest value": [zero[name].ranges[measure].low for name in names],
            "largest value": [zero[name].ranges[measure].high for name in names],
        }
        for treatment, values in treatments.items():
            found = stability(ScoreMatrix(names, topics, {measure: np.array(values)}), splits=SPLITS)
            by_quantity = dict(zip(found["quantity"], found["value"], strict=True))
            row = {key: round(value, 4) for key, value in by_quantity.items()}
            own = decisions[measure] if treatment == "label 0" else dict.fromkeys(decisions[measure])
            rows.append({"measure": measure, "unjudged": treatment, **row, **own})
    return rows


def decisions_by_measure(qrels: object, runs: dict[str, object]) -> dict[str, dict[str, float]]:
    """Fractions of the pairs of runs that labels cannot reorder, and of those whose significance they cannot change."""
    together = RunsWithUnknown(lists_on_shared_queries(qrels, list(runs.values())))
    pairs = list(combinations(range(len(runs)), 2))
    result = {}
    for name, measure in parse_measures(MEASURES).items():
        found = decide(together, {name: measure}, list(runs), pairs)
        kinds = Counter(decision.significance for decision in found)
        significant = kinds["stands"] + kinds["may be lost"] + kinds["may be reversed"]
        result[name] = {
            "pairs decided": round(float(np.mean([decision.is_decided for decision in found])), 4),
            "significant by t": round(significant / len(pairs), 4),
            "of these stand": round(kinds["stands"] / significant, 4),
            "of these may be reversed": round(kinds["may be reversed"] / significant, 4),
        }
    return result


if __name__ == "__main__":
    folder = Path(os.environ["RANKBOUND_DATA"]) / "trec-covid-round1"
    judgments = to_frame(folder / "qrels.covid-round1.txt.gz", "label")
    results = stability_table(
        judgments, {path.name: to_frame(path, "score") for path in sorted((folder / "runs").glob("*.gz"))}
    )
    with TARGET.open("w", newline="") as file:
        writer = csv.DictWriter(file, results[0].keys())
        writer.writeheader()
        writer.writerows(results)
