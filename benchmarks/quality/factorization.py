"""Quality of matrix factorization compared with published numbers: a table, and docs/results/factorization.csv.

    python -m benchmarks.quality.factorization                      all rows
    python -m benchmarks.quality.factorization citeulike nRBP       the rows whose name has all these words

MovieLens latest-small follows the protocol of the "Metric bounding" thesis (ratings of at least 4, users with 25 of
them, five folds by user, negative sampling ratio 1, Adam, 32 users per batch); rate and epochs are selected within the
training folds. CiteULike-a follows that of the "Metric optimization" paper (its own splits, ratio 1, SGD on the summed
loss); the epoch is selected on the test set as published, which the column `selection` states.

On CiteULike-a, the learning rate of SGD must fit the size of the summed loss: 3 for nDCG (as in the paper), 0.1 for
LambdaRank, and 0.001 for nRBP, whose loss counts pairs (with 0.01 or 0.1 all pairs are saturated within a few epochs,
and training stays at 0.93 or 0.88).
"""

from __future__ import annotations

import csv
import math
import sys
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rankbound import Lists
from rankbound.data import load_fold, load_set, sample_lists, user_folds
from rankbound.data.preparation import prepare_movielens
from rankbound.data.sampling import UserLists
from rankbound.evaluation import evaluate_lists
from rankbound.models import MatrixFactorization

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "factorization.csv"
FOLDS, SEED = 5, 0


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    name: str
    measure: str
    selection: str
    setting: str
    published: float
    ours: float
    difference: float
    ci_low: float
    ci_high: float
    bar: str
    met: bool
    epochs: str
    seconds: float


def columns(lists: UserLists) -> tuple[Any, Any, Any]:
    return np.repeat(lists.users, lists.lists.sizes), lists.items, lists.lists.labels


def values_of(model: MatrixFactorization, part: UserLists, measure: str) -> NDArray[np.float64]:
    """Return the measure of each user's list."""
    users, items, labels = columns(part)
    lists = Lists(labels, part.lists.offsets, model.predict(users, items))
    return evaluate_lists(lists, [measure]).values[measure]


def line(
    name: str, measure: str, selection: str, setting: str, values: NDArray[np.float64],
    published: float, least: float, most: float, epochs: str, began: float,
) -> Line:  # fmt: skip
    """Return the mean over users with a 95 % interval, next to the published number and the bar."""
    mean, margin = float(values.mean()), 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values))
    bar = f">= {least}" if most == 1 else f"{least:.3f} to {most:.3f}"
    return Line(
        name, measure, selection, setting, published, round(mean, 4), round(mean - published, 4),
        round(mean - margin, 4), round(mean + margin, 4), bar, least <= mean <= most, epochs,
        round(time.perf_counter() - began, 1),
    )  # fmt: skip


# ---- MovieLens -------------------------------------------------------------------------------------------------------

RATES = (0.003, 0.01, 0.03)
MOVIELENS = (("nDCG", "nDCG", 0.9659, 0.964), ("AP", "AP", 0.8960, 0.890), ("nRBP", "nRBP(p=0.95)", 0.9349, 0.940))


@cache
def movielens() -> tuple[Any, Any]:
    ratings = prepare_movielens(load_set("ml-latest-small"))
    return ratings, user_folds(ratings, FOLDS, SEED)


def movielens_line(loss: str, measure: str, published: float, bar: float) -> Line:
    """Five folds: three train and the next selects rate and epochs; then four train with these and one tests."""
    began = time.perf_counter()
    ratings, fold = movielens()
    model = MatrixFactorization(loss=loss, measure=measure, random_state=SEED)
    values, settings = [], []
    for test in range(FOLDS):
        held_out = (test + 1) % FOLDS
        learn, choose = sample_lists(
            ratings.rows((fold != test) & (fold != held_out)), ratings.rows(fold == held_out), seed=test
        )
        candidates = [replaced(model, learning_rate=rate, epochs=100, eval_every=1, patience=20) for rate in RATES]
        best = max(
            (candidate.fit(*columns(learn), eval_set=columns(choose)) for candidate in candidates),
            key=lambda fitted: fitted.eval_score_,
        )
        train, held = sample_lists(ratings.rows(fold != test), ratings.rows(fold == test), seed=test)
        again = replaced(model, learning_rate=best.learning_rate, epochs=best.kept_epoch_)
        values.append(values_of(again.fit(*columns(train)), held, measure))
        settings.append(f"{best.learning_rate:g}x{best.kept_epoch_}")
    setting = f"adam, batch {model.batch_size}, {model.factors} factors"
    means = np.mean(values, axis=0)
    return line(
        f"movielens {loss}", measure, "validation", setting, means, published, bar, 1.0, " ".join(settings), began
    )


def replaced(model: MatrixFactorization, **parameters: Any) -> MatrixFactorization:
    return MatrixFactorization(**(model.get_params(deep=False) | parameters))


# ---- CiteULike -------------------------------------------------------------------------------------------------------

# loss, learning rate, epochs, published nDCG on splits 0 and 1, tolerance
CITEULIKE = (
    ("nDCG", 3.0, 1000, (0.9432, 0.9428), 0.01),
    ("nRBP", 0.001, 3000, (0.9659, 0.9666), 0.01),
    ("lambda-nRBP(p=0.95)", 0.1, 500, (0.9643, 0.9634), 0.015),
)


def citeulike_line(split: int, loss: str, rate: float, epochs: int, published: float, tolerance: float) -> Line:
    """One split of the paper; negatives and selection of the epoch (on the test set) as published."""
    began = time.perf_counter()
    fold = load_fold("citeulike-a", split)
    train, test = sample_lists(fold.train, fold.test, protocol="published", seed=split)
    model = MatrixFactorization(
        loss=loss,
        optimizer="sgd",
        learning_rate=rate,
        epochs=epochs,
        batch_size=None,
        monitoring="test",
        random_state=SEED,
    )
    model.fit(*columns(train), eval_set=columns(test))
    kept = f"{model.kept_epoch_} of {epochs}"
    values, setting = values_of(model, test, "nDCG"), f"sgd {rate:g}, batch all, {model.factors} factors"
    least, most = published - tolerance, published + tolerance
    return line(f"citeulike split {split} {loss}", "nDCG", "test", setting, values, published, least, most, kept, began)


# ---- the table -------------------------------------------------------------------------------------------------------


def jobs() -> dict[str, Any]:
    """Return the name of each row and the function that computes it."""
    made: dict[str, Any] = {}
    for loss, *rest in MOVIELENS:
        made[f"movielens {loss}"] = lambda loss=loss, rest=rest: movielens_line(loss, *rest)
    for loss, rate, epochs, published, tolerance in CITEULIKE:
        for split, number in enumerate(published):
            made[f"citeulike split {split} {loss}"] = (
                lambda split=split, a=(loss, rate, epochs), number=number, tolerance=tolerance: citeulike_line(
                    split, *a, number, tolerance
                )
            )
    return made


def kept_lines() -> dict[str, dict[str, str]]:
    if not RESULTS.exists():
        return {}
    with RESULTS.open(newline="") as stream:
        return {row["name"]: row for row in csv.DictReader(stream)}


def main(words: list[str]) -> int:
    made = {name: job for name, job in jobs().items() if all(word in name for word in words)}
    table = Table("row", "measure", "selection", "published", "ours", "difference", "95 % interval", "bar", "seconds")
    rows, missed = kept_lines(), []
    for name, job in made.items():
        result: Line = job()
        rows[name] = {key: str(value) for key, value in asdict(result).items()}
        table.add_row(
            name, result.measure, result.selection, f"{result.published:.4f}", f"{result.ours:.4f}",
            f"{result.difference:+.4f}", f"{result.ci_low:.4f} {result.ci_high:.4f}",
            f"{result.bar} {'ok' if result.met else 'MISSED'}", f"{result.seconds:.0f}",
        )  # fmt: skip
        missed += [] if result.met else [name]
        print(f"{name}: {result.ours:.4f}", file=sys.stderr, flush=True)
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with RESULTS.open("w", newline="") as stream:  # after each row, so that an interrupted run loses at most one
            writer = csv.DictWriter(stream, list(rows[name]))
            writer.writeheader()
            writer.writerows(rows[key] for key in jobs() if key in rows)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
