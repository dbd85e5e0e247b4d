"""Quality of recommenders under full ranking: a table, and docs/results/recommenders.csv.

    python -m benchmarks.quality.recommenders                       all rows
    python -m benchmarks.quality.recommenders ml-100k softmax       the rows whose name has all these words

Ratings of at least 4, users with at least 5 of them; of each user's interactions 20 % are for testing, and 20 % of the
rest for validation. All items but the user's training items are ranked; the measure is nDCG@10. The settings of each
model, and the epoch of those that are trained in epochs, are selected on the validation part; then the model is trained
on all but the test part, with three seeds, and tested once. No model has more fits than implicit ALS. Intervals are
over users, of values that are averaged over seeds. The rows "implicit's ALS" need the library implicit.
"""

from __future__ import annotations

import csv
import itertools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rankbound import models
from rankbound.data import Interactions, keep_users, load_set, relevant_only, user_folds
from rankbound.models.full_ranking import evaluate_full_ranking
from rankbound.models.recommender import interaction_matrix

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "recommenders.csv"
_SPLIT = 20  # a split that played no part in the design of the models and their defaults
SETS, SEEDS, MEASURE = ("ml-100k", "ml-1m"), (0, 1, 2), "nDCG@10"


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    name: str
    settings: str
    fits: int
    validation: float
    test: float
    ci_low: float
    ci_high: float
    seeds: str
    seconds: float


# ---- data ------------------------------------------------------------------------------------------------------------


@cache
def parts(name: str) -> tuple[Interactions, Interactions, Interactions, Interactions]:
    """Return the parts for fitting and validation, both together, and the test part."""
    table = keep_users(relevant_only(load_set(name), 4), 5).compact()
    fold = user_folds(table, 5, seed=_SPLIT)
    train, test = table.rows(fold != 0), table.rows(fold == 0)
    inner = user_folds(train, 5, seed=_SPLIT + 1)
    return train.rows(inner != 0), train.rows(inner == 0), train, test


def values_of(model: Any, train: Interactions, test: Interactions) -> NDArray[np.float64]:
    """Return the measure of each user under full ranking."""
    return evaluate_full_ranking(model._score_block, train, test, [MEASURE]).values[MEASURE]


# ---- models ----------------------------------------------------------------------------------------------------------


def factorization(**fixed: Any) -> Callable[..., Any]:
    """Return a maker of factorizations, trained for up to 150 epochs or for as many as were selected."""
    common = {"measure": MEASURE, "factors": 256, "batch_size": 128, "epochs": 150, "eval_every": 3, "patience": 21}
    return lambda **settings: models.MatrixFactorization(**common | fixed | settings)


class LibraryALS:
    """The ALS of the library implicit, as far as this benchmark needs a model; its confidence is 1 + alpha."""

    def __init__(self, **settings: Any) -> None:
        self.settings = {"random_state": 0} | settings

    def get_params(self) -> dict[str, Any]:
        return self.settings

    def set_params(self, **settings: Any) -> LibraryALS:
        self.settings |= settings
        return self

    def fit(self, train: Interactions, eval_set: Interactions | None = None) -> LibraryALS:  # noqa: ARG002
        from implicit.als import AlternatingLeastSquares

        settings = self.settings | {"alpha": 1 + self.settings["alpha"]}
        model = AlternatingLeastSquares(**settings, iterations=15, num_threads=1, use_gpu=False)
        model.fit(interaction_matrix(train), show_progress=False)
        self.users, self.items = np.asarray(model.user_factors), np.asarray(model.item_factors)
        return self

    def _score_block(self, users: NDArray[Any]) -> NDArray[np.float32]:
        return self.users[users] @ self.items.T


LIBRARY = "implicit's ALS"
GRIDS: dict[str, tuple[Callable[..., Any], dict[str, tuple[Any, ...]]]] = {
    "Popularity": (lambda **settings: models.Popularity(**settings), {}),
    "ItemKNN": (lambda **settings: models.ItemKNN(**settings), {"neighbors": (20, 50, 100, 200)}),
    "EASE": (lambda **settings: models.EASE(**settings), {"l2": (50.0, 100.0, 200.0, 300.0, 500.0, 1000.0)}),
    "ImplicitALS": (
        lambda **settings: models.ImplicitALS(**settings),
        {"factors": (32, 64, 128), "unobserved_weight": (0.05, 0.1, 0.3), "l2": (0.003, 0.01, 0.03)},
    ),
    # the ranges are from 48 further fits on ml-100k, evaluated on its validation part
    LIBRARY: (LibraryALS, {"factors": (32, 64, 128), "alpha": (1.0, 3.0, 10.0), "regularization": (10.0, 30.0, 100.0)}),
    "MF softmax": (factorization(), {"factors": (128, 256, 512), "temperature": (0.15, 0.2, 0.25, 0.3)}),
    "MF softmax, item biases": (
        factorization(biases=True, learning_rate=0.005),
        {"factors": (256, 512), "temperature": (0.2, 0.25, 0.3)},
    ),
    "MF softmax, item biases, more factors": (  # from a design split of MovieLens 1M, where 512 beat 256
        factorization(biases=True, learning_rate=0.005, patience=9),
        {"factors": (512, 1024), "temperature": (0.2, 0.25)},
    ),
    "MF softmax, history": (factorization(user_model="history"), {"temperature": (0.15, 0.2, 0.25, 0.3)}),
    "MF softmax, 20 negatives": (factorization(negatives=20), {"temperature": (0.15, 0.2, 0.25, 0.3)}),
    "MF nDCG": (factorization(loss="nDCG"), {"temperature": (0.1, 0.15, 0.2, 0.3)}),
    "MF nDCG expectation-max": (
        factorization(loss="nDCG", bounding="expectation-max"),
        {"temperature": (0.1, 0.15, 0.2, 0.3)},
    ),
    "MF AP": (factorization(loss="AP"), {"temperature": (0.1, 0.15, 0.2, 0.3)}),
    "MF nRBP": (factorization(loss="nRBP"), {"temperature": (0.05, 0.1, 0.2, 0.3)}),
}


# A fit on MovieLens 1M takes a minute and more: fewer of them, with lower temperatures, because there is more data.
FEWER = {("ml-1m", "MF softmax, item biases"): {"factors": (256,), "temperature": (0.15, 0.2, 0.25)}}


def line(data: str, kind: str) -> Line:
    """Select settings and epoch on the validation part, and test the model with three seeds."""
    began = time.perf_counter()
    fitting, validation, train, test = parts(data)
    make, grid = GRIDS[kind]
    grid = FEWER.get((data, kind), grid)
    best, best_value, epochs, fits = {}, -1.0, None, 0
    for choice in itertools.product(*grid.values()):
        settings = dict(zip(grid, choice, strict=True))
        model = make(**settings).fit(fitting, eval_set=validation)
        value = float(values_of(model, fitting, validation).mean())
        print(f"{data} {kind} {settings}: {value:.4f}", file=sys.stderr, flush=True)
        fits += 1
        if value > best_value:
            best, best_value, epochs = settings, value, getattr(model, "kept_epoch_", None)
    per_seed = []
    for seed in SEEDS if "random_state" in make(**best).get_params() else SEEDS[:1]:
        model = make(**best)
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        if epochs is not None:
            model.set_params(epochs=epochs, patience=None)
        per_seed.append(values_of(model.fit(train), train, test))
    means = np.mean(per_seed, axis=0)
    margin = 1.96 * float(means.std(ddof=1)) / math.sqrt(len(means))
    chosen = ", ".join(f"{name}={value}" for name, value in (best | ({"epochs": epochs} if epochs else {})).items())
    return Line(
        f"{data} {kind}", chosen, fits, round(best_value, 4), round(float(means.mean()), 4),
        round(float(means.mean()) - margin, 4), round(float(means.mean()) + margin, 4),
        " ".join(f"{values.mean():.4f}" for values in per_seed), round(time.perf_counter() - began, 1),
    )  # fmt: skip


# ---- the table -------------------------------------------------------------------------------------------------------


def stored_lines() -> dict[str, dict[str, str]]:
    if not RESULTS.exists():
        return {}
    with RESULTS.open(newline="") as stream:
        return {row["name"]: row for row in csv.DictReader(stream)}


def main(words: list[str]) -> int:
    names = {f"{data} {kind}": (data, kind) for data in SETS for kind in GRIDS}
    rows = stored_lines()
    for name in names:
        if not all(word in name for word in words):
            continue
        if name.endswith(LIBRARY) and find_spec("implicit") is None:
            print(f"left out, because implicit is not installed: {name}", file=sys.stderr)
            continue
        result = line(*names[name])
        rows[name] = {key: str(value) for key, value in asdict(result).items()}
        with RESULTS.open("w", newline="") as stream:  # after each row, so that an interrupted run loses at most one
            writer = csv.DictWriter(stream, list(rows[name]))
            writer.writeheader()
            writer.writerows(rows[key] for key in names if key in rows)
    table = Table("row", "settings", "fits", "validation", "test", "95 % interval", "seeds", "seconds")
    for row in rows.values():
        interval = f"{row['ci_low']} {row['ci_high']}"
        table.add_row(
            *(row[key] for key in ("name", "settings", "fits", "validation", "test")),
            interval,
            row["seeds"],
            row["seconds"],
        )
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
