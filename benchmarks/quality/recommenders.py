"""Quality of recommenders under full ranking: a table, and docs/results/recommenders.csv.

    python -m benchmarks.quality.recommenders                       all rows
    python -m benchmarks.quality.recommenders ml-100k softmax       the rows whose name has all these words
    python -m benchmarks.quality.recommenders --store FILE ...      keep the result of each fit, and continue from it
    python -m benchmarks.quality.recommenders --store FILE --differences
                                                                    compare the rows of FILE with implicit's ALS

Ratings of at least 4, users with at least 5 of them; of each user's interactions 20 % are for testing, and 20 % of the
rest for validation. All items but the user's training items are ranked; the measure is nDCG@10. The settings of each
model, and the epoch of those that are trained in epochs, are selected on the validation part; then the model is trained
on all but the test part, with three seeds, and tested once. No row has more fits than the first one of implicit's ALS.
Intervals are over users, of values that are averaged over seeds. The seconds are those of a machine with other work.
The rows "implicit's ALS" need the library implicit.

The grids have ranges that were found with further fits. For implicit's ALS these were 48 settings on ml-100k, evaluated
on its validation part. For ImplicitALS they were 132, and for the row "activity weights" about 65 on ml-100k and 8 on
ml-1m, each evaluated on one to three other divisions of the training part, after earlier rows had been tested. The row
"ImplicitALS, the library's grid" has the settings, epochs and steps of implicit's ALS, and so the same objective; only
initial vectors differ. It was added after all other rows had been tested, and before any of its test values was known.
The row "activity weights" trains for a fixed number of epochs with a learning rate that falls to 0: no epoch is
selected. The rows "ml-100k/21" and "ml-100k/22" are further splits for the same grids, because one test part of 938
users is small; the fits that found our ranges had seen interactions of their test parts. On ml-1m the best setting of
implicit's ALS is at the end of its ranges, so that it has a second row, with stronger regularization.

The row "Blend of EASE and ImplicitALS" selects EASE and ImplicitALS by themselves, on the grid of EASE and on the
library's grid without 32 factors, fits the two selected ones once more, and compares 11 settings of weights by these
two fits on the validation part: 26 fits. It was designed after all other rows had been tested, and before any of its
test values was known, with 141 fits on four divisions of the training part of ml-100k and 3 on one of ml-1m, which also
tried blends with frequency-scaled ImplicitALS and with MatrixFactorization. The library's grid was chosen knowing that
on the test parts of ml-100k it is better than the grid of the row "ImplicitALS", which is better on validation parts,
and MatrixFactorization was left out knowing its test values. The rows "ml-100k/23" to "ml-100k/25", of implicit's ALS
and the blend alone, are splits that were added when the design of the blend was fixed and tested.

--differences subtracts the values of implicit's ALS, user by user, on the same split. The rows "ml-100k/pooled" and
"ml-100k/later" average the differences of each user over the first and the last three splits. These intervals are over
users; they do not contain what another choice of settings, from another validation part, would change.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
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
from rankbound.models.recommenders.base import interaction_matrix
from rankbound.models.recommenders.full_ranking import evaluate_full_ranking

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "recommenders.csv"
DIFFERENCES = RESULTS.with_name("recommenders-differences.csv")
_SPLIT = 20  # a split that played no part in the design of the models and their defaults
POOLED = {  # splits of one data set, whose differences are averaged for each user
    "ml-100k/pooled": ("ml-100k", "ml-100k/21", "ml-100k/22"),
    "ml-100k/later": ("ml-100k/23", "ml-100k/24", "ml-100k/25"),
}
SETS = ("ml-100k", "ml-1m", "ml-100k/21", "ml-100k/22", *POOLED["ml-100k/later"])
SEEDS, MEASURE = (0, 1, 2), "nDCG@10"


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


@dataclass(frozen=True)
class Difference:
    """The measure of a row minus that of implicit's ALS, averaged over users, with a 95 % interval over them."""

    name: str
    users: int
    difference: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class Outcome:
    """What the fits of a row gave: settings, their value in validation, and the test values of each seed and user."""

    settings: dict[str, Any]
    fits: int
    validation: float
    per_seed: NDArray[np.float64]
    seconds: float

    @property
    def values(self) -> NDArray[np.float64]:
        """Return the test value of each user, averaged over seeds."""
        return self.per_seed.mean(axis=0)


# ---- data ------------------------------------------------------------------------------------------------------------


@cache
def parts(name: str) -> tuple[Interactions, Interactions, Interactions, Interactions]:
    """Return the parts for fitting and validation, both together, and the test part; "ml-100k/21" is split 21."""
    name, _, split = name.partition("/")
    seed = int(split) if split else _SPLIT
    table = keep_users(relevant_only(load_set(name), 4), 5).compact()
    fold = user_folds(table, 5, seed=seed)
    train, test = table.rows(fold != 0), table.rows(fold == 0)
    inner = user_folds(train, 5, seed=seed + 1)
    return train.rows(inner != 0), train.rows(inner == 0), train, test


def values_of(model: Any, train: Interactions, test: Interactions) -> NDArray[np.float64]:
    """Return the measure of each user under full ranking."""
    return evaluate_full_ranking(model._score_block, train, test, [MEASURE]).values[MEASURE]


# ---- models ----------------------------------------------------------------------------------------------------------


def factorization(**fixed: Any) -> Callable[..., Any]:
    """Return a maker of factorizations, trained for up to 150 epochs or for as many as were selected."""
    common = {"measure": MEASURE, "factors": 256, "batch_size": 128, "epochs": 150, "eval_every": 3, "patience": 21}
    kind = models.MatrixFactorization
    return lambda **settings: kind(**(common | fixed | settings))


def settled(**fixed: Any) -> Callable[..., Any]:
    """Return a maker of factorizations whose learning rate falls to 0, so that the last epoch is kept."""
    common = {
        "biases": True, "learning_rate": 0.005, "schedule": "cosine", "activity_exponent": 0.5, "selection": "last",
        "factors": 128, "batch_size": 64, "epochs": 40, "eval_every": 40, "patience": None,
    }  # fmt: skip
    return factorization(**common | fixed)


def als(regularization: tuple[float, float], **settings: Any) -> Any:
    """Return our ALS, with l2 and how it grows with the number of interactions as one setting."""
    l2, exponent = regularization
    return models.ImplicitALS(factors=128, l2=l2, l2_exponent=exponent, **settings)


def mapped_als(alpha: float, regularization: float, **settings: Any) -> Any:
    """Return our ALS with the objective, the epochs and the steps of `LibraryALS` with these settings."""
    l2 = regularization / (1 + alpha)
    return models.ImplicitALS(unobserved_weight=1 / alpha, l2=l2, l2_exponent=0.0, epochs=15, steps=3, **settings)


def blend(l2: float, weights: Any = None, **settings: Any) -> Any:
    """Return a blend of EASE with this l2 and of `mapped_als` with these settings."""
    return models.Blend([models.EASE(l2=l2), mapped_als(**settings)], weights=weights, measure=MEASURE)


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


LIBRARY, MAPPED, BLEND = "implicit's ALS", "ImplicitALS, the library's grid", "Blend of EASE and ImplicitALS"
FREQUENCY = (0.003, 1.0), (0.01, 1.0), (0.03, 1.0)  # l2 that is scaled by frequency
LIBRARY_GRID = {"factors": (32, 64, 128), "alpha": (1.0, 3.0, 10.0), "regularization": (10.0, 30.0, 100.0)}
GRIDS: dict[str, tuple[Callable[..., Any], dict[str, tuple[Any, ...]]]] = {
    "Popularity": (lambda **settings: models.Popularity(**settings), {}),
    "ItemKNN": (lambda **settings: models.ItemKNN(**settings), {"neighbors": (20, 50, 100, 200)}),
    "EASE": (lambda **settings: models.EASE(**settings), {"l2": (50.0, 100.0, 200.0, 300.0, 500.0, 1000.0)}),
    "ImplicitALS": (
        als,
        {
            "unobserved_weight": (0.2, 1 / 3, 0.6),
            "regularization": ((1.0, 0.0), (3.0, 0.0), (7.5, 0.0), (0.1, 0.5), (0.3, 0.5), *FREQUENCY),
        },
    ),
    MAPPED: (mapped_als, LIBRARY_GRID),
    LIBRARY: (LibraryALS, LIBRARY_GRID),
    f"{LIBRARY}, stronger regularization": (
        LibraryALS,
        {"factors": (128,), "alpha": (3.0, 10.0, 30.0), "regularization": (150.0, 250.0, 400.0)},
    ),
    BLEND: (blend, {}),  # whose settings are those of its members
    "MF softmax": (factorization(), {"factors": (128, 256, 512), "temperature": (0.15, 0.2, 0.25, 0.3)}),
    "MF softmax, item biases": (
        factorization(biases=True, learning_rate=0.005),
        {"factors": (256, 512), "temperature": (0.2, 0.25, 0.3)},
    ),
    "MF softmax, item biases, more factors": (  # from a design split of MovieLens 1M, where 512 beat 256
        factorization(biases=True, learning_rate=0.005, patience=9),
        {"factors": (512, 1024), "temperature": (0.2, 0.25)},
    ),
    "MF softmax, activity weights": (
        settled(),
        {"user_model": ("history", "both"), "temperature": (0.25, 0.3, 0.35), "dropout": (0.3, 0.5)},
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
FEWER = {
    ("ml-1m", "MF softmax, item biases"): {"factors": (256,), "temperature": (0.15, 0.2, 0.25)},
    ("ml-1m", "MF softmax, activity weights"): {
        "batch_size": (128,), "epochs": (20,), "user_model": ("history",), "temperature": (0.15, 0.2, 0.25),
        "dropout": (0.3, 0.5),
    },
}  # fmt: skip

# The rows and grids by which the members of a blend are selected; members have different settings.
MEMBERS: dict[str, dict[str, dict[str, tuple[Any, ...]]]] = {
    BLEND: {"EASE": GRIDS["EASE"][1], MAPPED: LIBRARY_GRID | {"factors": (64, 128)}},
}


class Store:
    """The results of fits by row, settings and seed, in a file of JSON lines; without a file they are not kept."""

    def __init__(self, path: Path | None, *, frozen: bool = False) -> None:
        self.path, self.frozen = path, frozen
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.results = dict(map(json.loads, lines))

    def get(self, name: str, settings: dict[str, Any], seed: int | None, compute: Callable[[], Any]) -> Any:
        """Return the result of a fit; one that is not in the file is computed, or a LookupError if that is frozen."""
        key = json.dumps([name, settings, seed], sort_keys=True)
        if key not in self.results:
            if self.frozen:
                raise LookupError(f"{self.path} has no result of {name} with {settings} and seed {seed}")
            self.results[key] = compute()
            if self.path is not None:
                with self.path.open("a") as stream:
                    stream.write(json.dumps([key, self.results[key]]) + "\n")
        return self.results[key]


@dataclass(frozen=True)
class Selection:
    """Settings that were selected on the validation part, their value there, and the number and time of all fits."""

    settings: dict[str, Any]
    fits: int
    validation: float
    seconds: float


def outcome(data: str, kind: str, store: Store) -> Outcome:
    """Select settings and epoch on the validation part, and test the model with three seeds."""
    name = f"{data} {kind}"
    make, grid = GRIDS[kind]
    if kind in MEMBERS:
        chosen = _selected_blend(data, kind, store)
    else:
        chosen = _selected(data, kind, FEWER.get((data, kind), grid), store)
    settings = chosen.settings

    def tested(seed: int) -> tuple[list[float], float]:
        _, _, train, test = parts(data)
        began = time.perf_counter()
        model = make(**settings)
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        values = values_of(model.fit(train), train, test)
        return values.tolist(), time.perf_counter() - began

    seeds = SEEDS if "random_state" in make(**settings).get_params() else SEEDS[:1]
    tests = [store.get(name, settings, seed, lambda seed=seed: tested(seed)) for seed in seeds]
    seconds = chosen.seconds + sum(seconds for _, seconds in tests)
    return Outcome(settings, chosen.fits, chosen.validation, np.array([values for values, _ in tests]), seconds)


def _validated(data: str, kind: str, settings: dict[str, Any]) -> tuple[Any, float, float]:
    """Fit a model without the validation part, and return it with its value there and the seconds."""
    fitting, validation, _, _ = parts(data)
    began = time.perf_counter()
    model = GRIDS[kind][0](**settings).fit(fitting, eval_set=validation)
    value = float(values_of(model, fitting, validation).mean())
    print(f"{data} {kind} {settings}: {value:.4f}", file=sys.stderr, flush=True)
    return model, value, time.perf_counter() - began


def _selected(data: str, kind: str, grid: dict[str, tuple[Any, ...]], store: Store) -> Selection:
    """Fit every setting of the grid, and select the best on the validation part, with its epoch."""
    name = f"{data} {kind}"

    def validated(settings: dict[str, Any]) -> tuple[float, int | None, float]:
        model, value, seconds = _validated(data, kind, settings)
        return value, getattr(model, "kept_epoch_", None), seconds

    choices = [dict(zip(grid, choice, strict=True)) for choice in itertools.product(*grid.values())]
    fits = [store.get(name, choice, None, lambda choice=choice: validated(choice)) for choice in choices]
    best = max(range(len(fits)), key=lambda index: fits[index][0])
    value, epochs, _ = fits[best]
    settings = choices[best] | ({} if epochs is None else {"epochs": epochs, "patience": None})
    return Selection(settings, len(fits), value, sum(fit[-1] for fit in fits))


def _selected_blend(data: str, kind: str, store: Store) -> Selection:
    """Select each member by itself, and then the weights, for which the selected members are fitted once more."""
    members = [_selected(data, member, grid, store) for member, grid in MEMBERS[kind].items()]
    settings = {key: value for member in members for key, value in member.settings.items()}

    def weighted() -> tuple[float, list[float], float]:
        model, value, seconds = _validated(data, kind, settings)
        return value, model.weights_.tolist(), seconds

    value, weights, seconds = store.get(f"{data} {kind}", settings, None, weighted)
    fits, seconds = sum(member.fits + 1 for member in members), seconds + sum(member.seconds for member in members)
    return Selection(settings | {"weights": weights}, fits, value, seconds)


def line(name: str, result: Outcome) -> Line:
    """Return the row of the table."""
    chosen = ", ".join(f"{key}={_short(value)}" for key, value in result.settings.items() if key != "patience")
    per_seed = " ".join(f"{values.mean():.4f}" for values in result.per_seed)
    return Line(
        name, chosen, result.fits, round(result.validation, 4), *_mean_and_interval(result.values), per_seed,
        round(result.seconds, 1),
    )  # fmt: skip


def differences(values: Mapping[tuple[str, str], NDArray[np.float64]]) -> list[Difference]:
    """Return the differences to implicit's ALS on the same split, from the values of users by data set and row.

    A row that has all splits of an entry of POOLED also has a difference over these, of the values of each user
    averaged over the splits: all splits have the same users.
    """
    paired = {
        (data, kind): row - values[data, LIBRARY]
        for (data, kind), row in values.items()
        if kind != LIBRARY and (data, LIBRARY) in values
    }
    for (name, splits), kind in itertools.product(POOLED.items(), GRIDS):
        if all((data, kind) in paired for data in splits):
            paired[name, kind] = np.mean([paired[data, kind] for data in splits], axis=0)
    return [
        Difference(f"{data} {kind}", len(row), *_mean_and_interval(row))
        for data in (*SETS, *POOLED)
        for kind in GRIDS
        if (row := paired.get((data, kind))) is not None
    ]


def _mean_and_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean over users and the ends of its 95 % interval."""
    mean, margin = float(values.mean()), 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values))
    return round(mean, 4), round(mean - margin, 4), round(mean + margin, 4)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace(",", "")


# ---- the table -------------------------------------------------------------------------------------------------------


def stored_rows(path: Path) -> dict[str, dict[str, str]]:
    if not path.exists():
        return {}
    with path.open(newline="") as stream:
        return {row["name"]: row for row in csv.DictReader(stream)}


def store_rows(path: Path, rows: Iterable[dict[str, str]]) -> None:
    first, *others = rows
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(first))
        writer.writeheader()
        writer.writerows([first, *others])


def as_row(result: Line | Difference) -> dict[str, str]:
    return {key: str(value) for key, value in asdict(result).items()}


def show(rows: Iterable[dict[str, str]]) -> None:
    """Print the rows as a table, with the two ends of an interval in one column."""
    rows = [row | {"95 % interval": f"{row['ci_low']} {row['ci_high']}"} for row in rows]
    possible = (
        "name", "settings", "fits", "validation", "test", "users", "difference", "95 % interval", "seeds", "seconds"
    )  # fmt: skip
    columns = [key for key in possible if key in rows[0]]
    table = Table(*columns)
    for row in rows:
        table.add_row(*(row[key] for key in columns))
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def compare_rows(names: dict[str, tuple[str, str]], path: Path) -> None:
    """Print and write the differences to implicit's ALS of the rows of the table whose results are in the file."""
    store, values, lines = Store(path, frozen=True), {}, stored_rows(RESULTS)
    for name, row in names.items():
        if name in lines:
            with suppress(LookupError):
                values[row] = outcome(*row, store).values
    rows = stored_rows(DIFFERENCES) | {row.name: as_row(row) for row in differences(values)}
    order = [f"{data} {kind}" for data in (*SETS, *POOLED) for kind in GRIDS]
    rows = {name: rows[name] for name in order if name in rows}
    store_rows(DIFFERENCES, rows.values())
    show(rows.values())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--differences", action="store_true")
    options = parser.parse_args(arguments)
    names = {f"{data} {kind}": (data, kind) for data in SETS for kind in GRIDS}
    if options.differences:
        if options.store is None or not options.store.exists():
            parser.error("--differences needs --store FILE with the results of the rows")
        compare_rows(names, options.store)
        return 0
    words, store, rows = options.words, Store(options.store), stored_rows(RESULTS)
    for name in names:
        if not all(word in name for word in words):
            continue
        if LIBRARY in name and find_spec("implicit") is None:
            print(f"left out, because implicit is not installed: {name}", file=sys.stderr)
            continue
        rows[name] = as_row(line(name, outcome(*names[name], store)))
        store_rows(RESULTS, [rows[key] for key in names if key in rows])  # an interrupted run loses at most one row
    show(rows.values())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
