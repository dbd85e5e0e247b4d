"""How many judgments decide which of two runs is better? Simulation on TREC-COVID, round 1.

Run ``python -m benchmarks.quality.judging`` with RANKBOUND_DATA; it writes docs/results/judging.csv.

All labels are hidden at first. A document without an official judgment is known to be not relevant from the start, so
that every pair of runs can be decided in the end. Documents are judged in batches by `rankbound judge` (its importance,
computed anew for each batch), by depth (all first ranks of all topics, then all second ranks, ...), and by an oracle
that knows the labels and takes the documents that push the pairs towards their outcome most: no order does much better.
A pair is decided when the order of the two means is the same whatever the hidden labels are. Runs are drawn from all
runs, or pairs from those whose names begin with the same five characters: variants of one system by one group.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np

from rankbound.data.judged import from_frames
from rankbound.data.sources import to_frame
from rankbound.difficulty.unknown.ranking import UnknownRanking
from rankbound.evaluation.judge import importance_of_documents, relevance_probabilities
from rankbound.measures import parse_measure

TARGET = Path("docs/results/judging.csv")
LEVELS = (0.5, 0.8, 0.9, 1.0)
VARIANTS, PREFIX = "two of a group", 5
CASES = (
    *((name, VARIANTS, 40) for name in ("P@10", "DCG@10", "RBP")),
    *((name, number, samples) for number, samples in ((2, 20), (10, 5)) for name in ("P@10", "DCG@10", "RBP")),
    ("P@10", 40, 2),
)  # measure, runs, samples


class Contest:
    """Pairs of runs with the ranges of their differences, which judgments narrow."""

    def __init__(self, weights: np.ndarray, gains: np.ndarray, queries: np.ndarray) -> None:
        self.weights, self.gains, self.queries, self.largest = weights, gains, queries, float(gains.max())
        self.pairs = np.array(list(combinations(range(weights.shape[1]), 2)))
        self.labels = np.full(len(weights), np.nan)
        delta = self._deltas(np.arange(len(weights)))
        self.low = self.largest * np.minimum(delta, 0).sum(axis=0)
        self.high = self.largest * np.maximum(delta, 0).sum(axis=0)

    def _deltas(self, documents: np.ndarray) -> np.ndarray:
        return self.weights[documents][:, self.pairs[:, 1]] - self.weights[documents][:, self.pairs[:, 0]]

    def judge(self, documents: np.ndarray) -> None:
        """Take the documents' labels into account."""
        delta = self._deltas(documents)
        part = (self.gains[documents][:, None] * delta).sum(axis=0)
        self.low += part - self.largest * np.minimum(delta, 0).sum(axis=0)
        self.high += part - self.largest * np.maximum(delta, 0).sum(axis=0)
        self.labels[documents] = self.gains[documents] > 0

    @property
    def is_open(self) -> np.ndarray:
        """Pairs that are not decided."""
        return (self.low <= 1e-9) & (self.high >= -1e-9) & (self.high - self.low > 1e-9)

    def importance(self, documents: np.ndarray) -> np.ndarray:
        """That of `rankbound judge`."""
        chosen = self.is_open
        effects = self.weights[documents] * self.largest
        probability = relevance_probabilities((self.weights > 0).mean(axis=1), self.queries, self.labels)[documents]
        ends = self.low[chosen], self.high[chosen]
        return importance_of_documents(effects, probability, self.pairs[chosen], *ends)[0]

    def importance_to_oracle(self, documents: np.ndarray) -> np.ndarray:
        """How far the labels push the open pairs towards their outcome."""
        chosen, everything = np.flatnonzero(self.is_open), np.arange(len(self.weights))
        delta = self._deltas(documents)[:, chosen]
        outcome = np.sign((self.gains[everything][:, None] * self._deltas(everything)[:, chosen]).sum(axis=0))
        missing = np.where(outcome > 0, -self.low[chosen], self.high[chosen])
        gains = self.gains[documents][:, None]
        push = np.where(delta * outcome > 0, gains, self.largest - gains) * np.abs(delta)
        return push @ (1 / np.maximum(missing, 1e-3))


def count_judgments(contest: Contest, choose: Callable[[Contest, np.ndarray], np.ndarray], batch: int) -> list[int]:
    """Judgments until these parts of the pairs are decided."""
    left = np.arange(len(contest.weights))
    pairs, number, result = len(contest.pairs), 0, []
    while len(result) < len(LEVELS):
        decided = 1 - contest.is_open.sum() / pairs
        while len(result) < len(LEVELS) and decided >= LEVELS[len(result)] - 1e-12:
            result.append(number)
        if len(left) == 0:
            break
        chosen = left[choose(contest, left)[:batch]]
        contest.judge(chosen)
        number += len(chosen)
        left = np.setdiff1d(left, chosen)
    return result + [number] * (len(LEVELS) - len(result))


def simulate() -> list[dict[str, float | str]]:
    """A row for every measure, number of runs and part of the pairs: the mean over samples of runs."""
    folder = Path(os.environ["RANKBOUND_DATA"]) / "trec-covid-round1"
    qrels = to_frame(folder / "qrels.covid-round1.txt.gz", "label")
    files = sorted((folder / "runs").glob("*.gz"))
    rows = []
    for name, number, samples in CASES:
        rng = np.random.default_rng(0)
        counts: list[list[list[int]]] = []
        while len(counts) < samples:
            arrays = _documents(qrels, _draw_runs(rng, files, number), name)
            if np.abs(arrays[0] - arrays[0][:, :1]).max() > 0:  # two files can hold the same run
                counts.append(_count_by_all_orders(*arrays))
        means = np.mean(counts, axis=0)
        for level, (judge, depth, oracle) in zip(LEVELS, means.T, strict=True):
            if level < 1 and number in (2, VARIANTS):
                continue
            row = {"measure": name, "runs": number, "decided": level, "samples": samples}
            row |= {"judge": round(judge), "by depth": round(depth), "oracle": round(oracle)}
            rows.append(
                row | {"saved": round(1 - judge / depth, 3), "saved by the oracle": round(1 - oracle / depth, 3)}
            )
    return rows


def _draw_runs(rng: np.random.Generator, files: list[Path], number: int | str) -> list[Path]:
    if number != VARIANTS:
        return [files[i] for i in rng.choice(len(files), number, replace=False)]
    pairs = [pair for pair in combinations(files, 2) if len({path.name[:PREFIX].lower() for path in pair}) == 1]
    return list(pairs[rng.integers(len(pairs))])


def _documents(qrels: object, files: list[Path], name: str) -> tuple[np.ndarray, ...]:
    """Discounts of the judged documents in the runs, their gains, first ranks and queries."""
    measure = parse_measure(name)
    entries: dict[tuple[int, str], dict[int, float]] = {}
    level_and_rank: dict[tuple[int, str], tuple[float, int]] = {}
    for run, path in enumerate(files):
        lists = from_frames(qrels, to_frame(path, "score"))
        ranking = UnknownRanking(lists)
        weights = ranking.weights(measure)
        for at in np.flatnonzero((weights > 0) & ~ranking.is_unknown).tolist():
            key = (int(ranking.query[at]), str(lists.ids[int(ranking.position[at])]))
            entries.setdefault(key, {})[run] = float(weights[at])
            rank = min(int(ranking.rank[at]), level_and_rank.get(key, (0, 10**9))[1])
            level_and_rank[key] = float(measure.definition.levels(measure, ranking.labels[at : at + 1])[0]), rank
    keys = list(entries)
    table = np.zeros((len(keys), len(files)))
    for row, key in enumerate(keys):
        table[row, list(entries[key])] = list(entries[key].values())
    gains, ranks = np.array([level_and_rank[key] for key in keys]).T
    return table, gains, ranks, np.array([query for query, _ in keys])


def _count_by_all_orders(
    weights: np.ndarray, gains: np.ndarray, ranks: np.ndarray, queries: np.ndarray
) -> list[list[int]]:
    batch = max(1, len(weights) // 60)
    depth_first = np.lexsort((queries, ranks))
    place = np.argsort(depth_first)
    orders: list[Callable[[Contest, np.ndarray], np.ndarray]] = [
        lambda contest, left: np.argsort(-contest.importance(left), kind="stable"),
        lambda _, left: np.argsort(place[left], kind="stable"),
        lambda contest, left: np.argsort(-contest.importance_to_oracle(left), kind="stable"),
    ]
    return [count_judgments(Contest(weights, gains, queries), choose, batch) for choose in orders]


if __name__ == "__main__":
    results = simulate()
    with TARGET.open("w", newline="") as file:
        writer = csv.DictWriter(file, results[0].keys())
        writer.writeheader()
        writer.writerows(results)
