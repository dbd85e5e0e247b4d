"""Do intervals from predicted labels hold, and how much shorter are they? Simulation on TREC-COVID, round 1.

Run ``python -m benchmarks.quality.predicted_labels`` with RANKBOUND_DATA; it writes docs/results/predicted-labels.csv.

The population are the 30 topics with their official judgments; 12 of 20 runs, drawn with a fixed seed among those with
an nDCG@10 of at least 0.2, stand for the systems. Predicted labels keep the official label of a document or, with a
probability that is the error rate, have one drawn anew from the distribution of all labels: 60 realizations for each
rate. A draw takes 100 queries, topics with replacement, each with one of the realizations; of a part of them the human
labels are hidden. The truth is the mean over the 30 topics, of one random run, and of the difference of two.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import polars as pl

from rankbound.data.judged import from_frames
from rankbound.data.sources import to_frame
from rankbound.evaluation import evaluate_lists
from rankbound.evaluation.predicted import agreement_of, predicted_mean

MEASURE, SEED = "nDCG@10", 0
QUERIES, DRAWS, REALIZATIONS = 100, 2_000, 60
HIDDEN = (0.6, 0.7, 0.8)
ERRORS = (0.1, 0.35, 1.0)
TARGET = Path("docs/results/predicted-labels.csv")


def simulate() -> list[dict[str, float | str]]:
    """A row for every error rate, hidden part and kind of mean."""
    folder = Path(os.environ["RANKBOUND_DATA"]) / "trec-covid-round1"
    rng = np.random.default_rng(SEED)
    qrels = to_frame(folder / "qrels.covid-round1.txt.gz", "label")
    files = sorted((folder / "runs").glob("*.gz"))
    runs = [to_frame(files[i], "score") for i in rng.choice(len(files), 20, replace=False)]
    truth = _values(qrels, runs)
    kept = np.flatnonzero(truth.mean(axis=1) >= 0.2)[:12]
    runs, truth = [runs[i] for i in kept], truth[kept]
    labels = qrels["label"].to_numpy()
    frequencies = np.bincount(labels) / len(labels)
    rows = []
    for error in ERRORS:
        values, kappas = [], []
        for _ in range(REALIZATIONS):
            drawn = rng.choice(len(frequencies), size=len(labels), p=frequencies)
            predicted = qrels.with_columns(pl.Series("label", np.where(rng.random(len(labels)) < error, drawn, labels)))
            kappas.append(agreement_of(qrels, predicted).kappa)
            values.append(_values(predicted, runs))
        for hidden in HIDDEN:
            rows += _draw(rng, truth, np.array(values), hidden, {"error": error, "kappa": round(np.mean(kappas), 3)})
    return rows


def _values(qrels: pl.DataFrame, runs: list[pl.DataFrame]) -> np.ndarray:
    """Values of the runs, runs x topics."""
    return np.array([evaluate_lists(from_frames(qrels, run), MEASURE).values[MEASURE] for run in runs])


def _draw(
    rng: np.random.Generator, truth: np.ndarray, predicted: np.ndarray, hidden: float, about: dict[str, float]
) -> list[dict[str, float | str]]:
    n = round(QUERIES * (1 - hidden))
    covered: dict[str, list[bool]] = {"mean": [], "difference": []}
    alone: dict[str, list[bool]] = {"mean": [], "difference": []}
    lengths: dict[str, list[float]] = {"mean": [], "difference": []}
    for _ in range(DRAWS):
        topics, which = rng.integers(0, truth.shape[1], QUERIES), rng.integers(0, len(predicted), QUERIES)
        a, b = rng.choice(len(truth), 2, replace=False)
        x, y = truth[a] - truth[b], predicted[:, a] - predicted[:, b]
        for kind, human, model in (("mean", truth[a], predicted[:, a]), ("difference", x, y)):
            seen, guess = human[topics], model[which, topics]
            found = predicted_mean(seen[:n], guess[:n], guess[n:])
            covered[kind].append(found.low <= human.mean() <= found.high)
            alone[kind].append(found.human_low <= human.mean() <= found.human_high)
            lengths[kind].append((found.high - found.low) / (found.human_high - found.human_low))
    return [
        {
            **about,
            "hidden": hidden,
            "human queries": n,
            "of": kind,
            "draws": DRAWS,
            "coverage": round(float(np.mean(covered[kind])), 4),
            "coverage of human labels alone": round(float(np.mean(alone[kind])), 4),
            "length": round(float(np.mean(lengths[kind])), 4),
        }
        for kind in covered
    ]


if __name__ == "__main__":
    results = simulate()
    with TARGET.open("w", newline="") as file:
        writer = csv.DictWriter(file, results[0].keys())
        writer.writeheader()
        writer.writerows(results)
