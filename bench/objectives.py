"""LightGBM on MQ2008 fold 1 with our nDCG objective, plain and bounded, against its own lambdarank.

Time and test nDCG@10; same trees, same rounds. Needs the LETOR 4.0 files in the folder ``mq2008`` of RANKBOUND_DATA;
without them there are no rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from bench.timing import Row, best_of, row
from rankbound.data.letor import read_letor
from rankbound.losses import LambdaLoss, NDCGLoss, RankingLoss, lightgbm_objective

ROUNDS = 100
TREES = {
    "num_leaves": 31,
    "learning_rate": 0.05,
    "min_data_in_leaf": 20,
    "verbose": -1,
    "seed": 0,
    "deterministic": True,
}
OBJECTIVES: dict[str, RankingLoss] = {
    "NDCGLoss": NDCGLoss(),
    "NDCGLoss(bounding='expectation-max')": NDCGLoss(bounding="expectation-max"),
    "NDCGLoss(bounding='min-max')": NDCGLoss(bounding="min-max"),
    "LambdaLoss('nDCG')": LambdaLoss("nDCG"),
    "LambdaLoss('nDCG', bounding='expectation-max')": LambdaLoss("nDCG", bounding="expectation-max"),
}


def fold_1() -> tuple[Any, Any] | None:
    """Training and test lists of fold 1, or None if the data is not here."""
    folder = Path(os.environ.get("RANKBOUND_DATA", "")) / "mq2008"
    if "RANKBOUND_DATA" not in os.environ or not folder.is_dir():
        return None
    parts = [folder / f"S{i}.txt.gz" for i in range(1, 6)]
    return read_letor(parts[:3]), read_letor(parts[4])


def train(data: Any, objective: Any, **settings: Any) -> Any:
    lists = data.lists
    dataset = lightgbm.Dataset(np.asarray(data.features), lists.labels, group=lists.sizes)
    return lightgbm.train({**TREES, "objective": objective, **settings}, dataset, num_boost_round=ROUNDS)


def test_ndcg(booster: Any, data: Any) -> float:
    """True nDCG@10 with gain 2^label - 1, queries without relevant items left out."""
    loss = NDCGLoss(10, alpha=1e6, beta=1e6)
    plan = loss.plan(data.lists.labels, data.lists.offsets)
    values = -loss.fused(booster.predict(np.asarray(data.features)), plan).values
    return float(values[plan.active].mean())


def run() -> list[Row]:
    data = fold_1()
    if data is None:
        print("objectives: set RANKBOUND_DATA to a folder with mq2008 to run this part", file=sys.stderr)
        return []
    training, test = data
    contestants: dict[str, Callable[[], Any]] = {"lambdarank": lambda: train(training, "lambdarank")}
    for name, loss in OBJECTIVES.items():
        contestants[name] = lambda loss=loss: train(training, lightgbm_objective(loss), min_sum_hessian_in_leaf=1e-4)
    scores = {name: test_ndcg(work(), test) for name, work in contestants.items()}
    times = best_of(contestants, 4)
    peer = f"lambdarank (test nDCG@10 {scores['lambdarank']:.4f})"
    return [
        row(f"{name} in LightGBM (test nDCG@10 {scores[name]:.4f})", times[name], peer, times["lambdarank"], 0.5)
        for name in OBJECTIVES
    ]


if __name__ == "__main__":
    for line in run():
        print(f"{line['name']:80s} {line['ours_seconds']:.3f} s  {line['peer']} {line['peer_seconds']:.3f} s")
