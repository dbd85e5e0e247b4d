"""Quality of `rankbound tune` compared with LightGBM tuned by Optuna in the same time, on folds of MQ2007.

    python -m benchmarks.quality.tuning --minutes 10 --folds 1 2 3

For each fold both searches run at the same time, each with one process of one thread. LightGBM has its own lambdarank,
its own nDCG@10 for early stopping (up to 1,000 rounds, patience 50), and a TPE search over the learning rate, the
number of leaves, the rows of a leaf, the fractions of rows and features, and the L2 penalty, in the ranges of our own
search. The test queries are evaluated once per search, for the model that is best on the validation queries. Written
to docs/results/tuning.csv.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np

from rankbound import set_threads
from rankbound.data import load_fold
from rankbound.data.letor import LetorData
from rankbound.evaluation import evaluate_lists

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "tuning.csv"
MEASURE = "nDCG(dcg='exp-log2')@10"
PATIENCE, MOST_ROUNDS = 50, 1_000


def columns(part: LetorData) -> tuple[Any, Any, Any]:
    return part.features, part.lists.labels, part.lists.query_of_item


def test_values(part: LetorData, scores: Any) -> Any:
    return evaluate_lists(part.lists.with_scores(np.asarray(scores, dtype=np.float64)), [MEASURE]).values[MEASURE]


def ours(fold: Any, minutes: float) -> tuple[Any, int]:
    """Search with `rankbound.tuning.tune`; returns the values of the test queries and the number of trials."""
    from rankbound.tuning import tune

    set_threads(1)
    X, y, qid = columns(fold.train)
    result = tune(
        X, y, qid=qid, eval_set=columns(fold.validation), measure=MEASURE, minutes=minutes, jobs=0, page=False
    )
    return test_values(fold.test, result.ranker.predict(fold.test.features)), len(result.table)


def lightgbm_with_optuna(fold: Any, minutes: float) -> tuple[Any, int]:
    """Search over the parameters of LightGBM's lambdarank."""
    import lightgbm
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    train, valid = fold.train, fold.validation
    best: dict[str, Any] = {"value": -1.0}

    def objective(trial: Any) -> float:
        parameters = {
            "objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "verbosity": -1, "num_threads": 1, "seed": 0,
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.2, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 7, 127, log=True),
            "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 5, 100, log=True),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0), "bagging_freq": 1,
            "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1.0),
            "lambda_l2": trial.suggest_float("lambda_l2", 1e-3, 10.0, log=True),
            "feature_pre_filter": False,
        }  # fmt: skip
        data = lightgbm.Dataset(train.features, train.lists.labels, group=train.lists.sizes)
        held_out = data.create_valid(valid.features, valid.lists.labels, group=valid.lists.sizes)
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        booster = lightgbm.train(parameters, data, MOST_ROUNDS, valid_sets=[held_out], callbacks=[stop])
        value = float(booster.best_score["valid_0"]["ndcg@10"])
        if value > best["value"]:
            best.update(value=value, booster=booster)
        return value

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, timeout=60 * minutes)
    return test_values(fold.test, best["booster"].predict(fold.test.features)), len(study.trials)


SEARCHES = {"rankbound tune": ours, "LightGBM lambdarank, Optuna": lightgbm_with_optuna}


def search(job: tuple[str, str, int, float]) -> tuple[str, int, Any, int, float]:
    name, dataset, number, minutes = job
    fold = load_fold(dataset, number)
    began = time.perf_counter()
    values, trials = SEARCHES[name](fold, minutes)
    return name, number, values, trials, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--folds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--dataset", default="mq2007")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    jobs = [(name, options.dataset, number, options.minutes) for number in options.folds for name in SEARCHES]
    found: dict[str, dict[int, Any]] = {name: {} for name in SEARCHES}
    rows = []
    with multiprocessing.get_context("spawn").Pool(len(SEARCHES), maxtasksperchild=1) as pool:
        for name, number, values, trials, seconds in pool.imap(search, jobs, chunksize=1):
            found[name][number] = values
            rows.append((options.dataset, number, name, f"{np.nanmean(values):.6f}", trials, f"{seconds:.0f}"))
            print(
                f"fold {number}, {name}: test nDCG@10 {np.nanmean(values):.4f}, {trials} trials, {seconds:.0f} s",
                flush=True,
            )
    mine, theirs = (np.concatenate([found[name][number] for number in options.folds]) for name in SEARCHES)
    difference = (mine - theirs)[~np.isnan(mine - theirs)]
    error = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
    print(f"difference over {len(difference)} queries: {difference.mean():+.4f} ± {error:.4f}")
    with options.output.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("dataset", "fold", "search", "test_ndcg_10", "trials", "seconds"))
        writer.writerows(rows)


if __name__ == "__main__":
    main()
