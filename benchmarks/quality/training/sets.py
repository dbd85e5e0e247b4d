"""The data sets of the comparison and their folds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.training.simulators import web_search
from rankbound.data import LetorData, load_fold, load_set, read_letor, synthetic_letor
from rankbound.data.splits import random_parts
from rankbound.errors import ArgumentError, DataError

__all__ = [
    "CONFIRMATION",
    "DEVELOPMENT",
    "ROLES",
    "SETS",
    "SIMULATORS",
    "DataSet",
    "Parts",
    "chosen_sets",
    "load_parts",
]

FOLDS, REPEATS = 5, 2
SIMULATED = (300, 150, 1000)  # training, validation and test queries of a simulator; a fold is a seed


@dataclass(frozen=True, eq=False)
class Parts:
    """One fold: data for training, for selection and for testing, and names of the test queries.

    Queries of different folds that have the same name are the same query; its values are averaged.
    """

    train: LetorData
    validation: LetorData
    test: LetorData
    test_queries: NDArray[np.str_]

    def without_nan(self) -> Parts:
        """Return the fold with missing features replaced by the mean of the column over the training rows."""
        parts = (self.train, self.validation, self.test)
        if not any(np.isnan(part.features).any() for part in parts):
            return self
        with np.errstate(invalid="ignore"):
            known = np.where(np.isnan(self.train.features), 0.0, 1.0).sum(axis=0)
            mean = np.nansum(self.train.features.astype(np.float64), axis=0) / np.maximum(known, 1)

        def filled(part: LetorData) -> LetorData:
            features = np.where(np.isnan(part.features), mean.astype(np.float32), part.features)
            return LetorData(part.lists, features)

        return Parts(filled(self.train), filled(self.validation), filled(self.test), self.test_queries)


@dataclass(frozen=True)
class DataSet:
    """A data set by name: number of folds, training rows of a fold (to estimate times), what it is, and its loader."""

    name: str
    folds: int
    rows: int
    note: str
    load: Callable[[int], Parts]


# ---- folds -----------------------------------------------------------------------------------------------------------


def _published_folds(name: str, number: int) -> Parts:
    fold = load_fold(name, number)
    assert fold.validation is not None
    return _parts(fold.train, fold.validation, fold.test)


def _letor2_folds(folder: str, number: int) -> Parts:
    """Read a fold of LETOR 2.0, which the catalog does not have, from RANKBOUND_DATA."""
    root = os.environ.get("RANKBOUND_DATA")
    if not root:
        raise DataError(f"{folder}: RANKBOUND_DATA must name the folder of the data sets, got {root!r}")
    return _parts(
        *(read_letor(_file(Path(root) / folder / f"Fold{number}", role)) for role in ("train", "vali", "test"))
    )


def _file(folder: Path, role: str) -> Path:
    files = sorted(folder.glob(f"{role}*.txt*"))
    if len(files) != 1:
        raise DataError(f"{folder}: must hold exactly one file {role}*.txt*, got {[file.name for file in files]}")
    return files[0]


@lru_cache(maxsize=1)
def _whole(name: str) -> LetorData:
    data = load_set(name)
    assert isinstance(data, LetorData)
    return data


def _random_folds(name: str, number: int) -> Parts:
    """Split all queries of a set without published folds: part i of 5 tests, i + 1 validates, three train.

    The queries are those of both files of the set. Folds 6 to 10 are those of a second random split.
    """
    data = _whole(name)
    repeat, part = divmod(number - 1, FOLDS)
    part_of = random_parts(np.asarray(data.lists.query_ids), FOLDS, seed=repeat)
    test, validation = part_of == part, part_of == (part + 1) % FOLDS
    return _parts(*(data.take(np.flatnonzero(rows)) for rows in (~(test | validation), validation, test)))


def _simulated(generate: Callable[[int, int], LetorData], number: int) -> Parts:
    """Generate the queries of a seed and split them in order, which is random."""
    ends = np.cumsum(SIMULATED)
    data = generate(int(ends[-1]), number)
    parts = _parts(*(data.take(np.arange(end - count, end)) for end, count in zip(ends, SIMULATED, strict=True)))
    return Parts(parts.train, parts.validation, parts.test, np.char.add(f"seed {number}: ", parts.test_queries))


def _parts(train: LetorData, validation: LetorData, test: LetorData) -> Parts:
    return Parts(train, validation, test, np.asarray(test.lists.query_ids).astype(np.str_))


# ---- the sets --------------------------------------------------------------------------------------------------------


def _additive(queries: int, seed: int) -> LetorData:
    return synthetic_letor(queries=queries, seed=seed)


def _web(queries: int, seed: int) -> LetorData:
    return web_search(queries=queries, seed=seed)


_RANDOM = f"{REPEATS} random splits of all queries into {FOLDS} folds"
_SEEDS = "{} training, {} validation and {} test queries from each of 5 seeds".format(*SIMULATED)
_ALL = (
    DataSet("mq2008", 5, 9_100, "LETOR 4.0, 46 features, published folds", partial(_published_folds, "mq2008")),
    DataSet(
        "simulator-additive", 5, 11_000, f"rankbound.data.synthetic_letor, {_SEEDS}", partial(_simulated, _additive)
    ),
    DataSet(
        "mq2007", 5, 35_500, "LETOR 4.0, 46 features, published folds; a copy with 59,135 of the 69,623 rows (85 %)",
        partial(_published_folds, "mq2007"),
    ),
    DataSet(
        "mq2007-agg", 5, 41_800, "LETOR 4.0, ranks by 21 runs (35 % missing), published folds",
        partial(_published_folds, "mq2007-agg"),
    ),
    DataSet("ohsumed", 5, 9_700, "LETOR 3.0, 45 features, published folds", partial(_published_folds, "ohsumed")),
    DataSet(
        "ohsumed-letor2", 5, 9_700, "LETOR 2.0, 25 features, published folds", partial(_letor2_folds, "ohsumed-letor2")
    ),
    DataSet(
        "mslr-sample", FOLDS * REPEATS, 6_000, f"first 5,000 rows of train and test of MSLR-WEB10K Fold1, {_RANDOM}",
        partial(_random_folds, "mslr-sample"),
    ),
    DataSet(
        "lightgbm-lambdarank", FOLDS * REPEATS, 2_300, f"LightGBM's ranking example, 300 features, {_RANDOM}",
        partial(_random_folds, "lightgbm-lambdarank"),
    ),
    DataSet("simulator-web", 5, 15_500, f"simulators.web_search, {_SEEDS}", partial(_simulated, _web)),
)  # fmt: skip
SETS = {dataset.name: dataset for dataset in _ALL}

# Named before the first run: results on these two sets may be used to choose defaults, results on all others may not.
DEVELOPMENT = ("mq2008", "simulator-additive")
CONFIRMATION = tuple(name for name in SETS if name not in DEVELOPMENT)
SIMULATORS = ("simulator-additive", "simulator-web")
ROLES = {"development": DEVELOPMENT, "confirmation": CONFIRMATION}


def chosen_sets(names: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the sets of names and roles, in the order of `SETS`; without any, all sets.

    >>> chosen_sets(["development"])
    ('mq2008', 'simulator-additive')
    """
    chosen: set[str] = set()
    for name in names or SETS:
        if name not in SETS and name not in ROLES:
            raise ArgumentError(f"sets must be among {', '.join((*ROLES, *SETS))}, got {name!r}")
        chosen |= set(ROLES.get(name, (name,)))
    return tuple(name for name in SETS if name in chosen)


@lru_cache(maxsize=2)
def load_parts(name: str, number: int) -> Parts:
    """Return a fold of a set, counted from 1."""
    return SETS[name].load(number)
