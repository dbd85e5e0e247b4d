"""Does bounding help recommenders? Losses x boundings x negatives on five data sets, with resumable fits.

    python -m benchmarks.quality.bounding_recommenders run --store DIR [WORDS...]     fit what is missing
    python -m benchmarks.quality.bounding_recommenders report --store DIR            write docs/results/bounding-*

Every fit is a record of the store, written atomically: a run that was interrupted continues with the first fit that is
missing, and WORDS restrict a run to the fits whose names have all of them. The data sets are reduced so that one fit
takes a second or two of one core (see `SETS`). Of each user's interactions 20 % are for testing and 16 % for
validation; models learn from the rest. There are three random splits, each with its own seed of the models. Each method
has two settings. Setting and epoch are selected by nDCG@10 on the validation part: the epoch under full ranking, the
setting under the protocol of the test, which is full ranking, or lists with 5 sampled items per relevant one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.training.store import Job, Record, Store, versions
from rankbound import models
from rankbound.data import Interactions, k_core, load_set, relevant_only, sample_lists, user_folds
from rankbound.evaluation import evaluate_lists
from rankbound.models.recommenders.full_ranking import evaluate_full_ranking

MEASURE, PROTOCOLS, TEST_RATIO, SPLITS = "nDCG@10", ("full", "sampled"), 5, (0, 1, 2)
LOSSES, BOUNDINGS = ("nDCG", "AP", "nRBP", "RR"), ("none", "min-max", "expectation", "expectation-max")
NEGATIVES: tuple[str | int, ...] = (5, "all")
# Boundings whose weights of users differ by more than a tenth on some set; see the table of weights in the report. The
# three boundings of nRBP's loss have the same weights, up to a factor.
CELLS: dict[tuple[str, str | int], tuple[str, ...]] = {
    ("nDCG", 5): BOUNDINGS[1:],
    ("nDCG", "all"): BOUNDINGS[1:],
    ("AP", 5): ("expectation",),
    ("AP", "all"): ("expectation", "expectation-max"),
    ("nRBP", 5): ("min-max",),
    ("nRBP", "all"): ("min-max",),
    ("RR", 5): (),
    ("RR", "all"): ("expectation", "expectation-max"),
}
TEMPERATURES = (0.1, 0.25)
PEERS = ("EASE", "ImplicitALS", "BPR")
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@dataclass(frozen=True)
class Reduced:
    """A data set: ratings from 4 if it has ratings, their k-core, and at most so many of its users, at random."""

    core: int
    users: int = 1000


SETS = {
    "ml-100k": Reduced(5),
    "ml-1m": Reduced(5),
    "citeulike-a": Reduced(13),
    "epinions-tang": Reduced(15),
    "amazon-sports": Reduced(8),
}


# ---- methods ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A model with two settings; the fields below name the cell of the study, if it is in one."""

    name: str
    make: Callable[..., Any]
    settings: tuple[dict[str, Any], ...]
    loss: str = ""
    bounding: str = ""
    negatives: str | int = ""


def _factorization(**fixed: Any) -> Callable[..., Any]:
    common: dict[str, Any] = {"measure": MEASURE, "factors": 64, "batch_size": 128}
    common |= {"epochs": 40, "eval_every": 2, "patience": 4}
    kind = models.MatrixFactorization
    return lambda **settings: kind(**(common | fixed | settings))


def _cell(loss: str, bounding: str, negatives: str | int) -> Method:
    name = f"{loss}, {bounding}, {'all' if negatives == 'all' else f'1 to {negatives}'}"
    settings = tuple({"temperature": temperature} for temperature in TEMPERATURES)
    make = _factorization(loss=loss, bounding=bounding, negatives=negatives)
    return Method(name, make, settings, loss, bounding, negatives)


METHODS = {
    method.name: method
    for method in (
        Method("EASE", models.EASE, tuple({"l2": l2} for l2 in (200.0, 600.0))),
        Method(
            "ImplicitALS",
            models.ImplicitALS,
            tuple({"unobserved_weight": weight, "l2": 0.01} for weight in (0.1, 0.3)),
        ),
        Method(
            "BPR",
            _factorization(loss="RankNet", similarity="dot", negatives=5),
            tuple({"l2": l2} for l2 in (0.1, 1.0)),
        ),
        *(_cell("softmax", "none", negatives) for negatives in NEGATIVES),
        _cell("RankNet", "none", 5),  # pairs of a whole catalog take too long
        *(
            _cell(loss, bounding, negatives)
            for (loss, negatives), boundings in CELLS.items()
            for bounding in ("none", *boundings)
        ),
    )
}


# ---- fits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts for fitting and validation, both together, the test part, and sampled lists of the held-out parts."""

    fitting: Interactions
    validation: Interactions
    train: Interactions
    test: Interactions
    validation_lists: Any
    test_lists: Any


@cache
def parts(name: str, split: int = 0) -> Parts:
    """Return the parts of a reduced data set; all splits have the same users."""
    table = load_set(name)
    if table.ratings is not None:
        table = relevant_only(table, 4)
    reduced = SETS[name]
    table = k_core(table, reduced.core, reduced.core)
    chosen = np.random.default_rng(0).permutation(len(table.user_names))[: reduced.users]
    table = table.rows(np.isin(table.users, chosen)).compact()
    fold = user_folds(table, 5, seed=2 * split)
    train, test = table.rows(fold != 0), table.rows(fold == 0)
    inner = user_folds(train, 5, seed=2 * split + 1)
    fitting, validation = train.rows(inner != 0), train.rows(inner == 0)
    lists = [
        sample_lists(known, held_out, test_ratio=TEST_RATIO, seed=split)[1]
        for known, held_out in ((fitting, validation), (train, test))
    ]
    return Parts(fitting, validation, train, test, *lists)


def jobs(words: list[str]) -> Iterator[tuple[Job, Method, dict[str, Any]]]:
    """Yield all fits, methods first, so that an incomplete store has the same methods for all sets."""
    for split in SPLITS:
        for method in METHODS.values():
            for dataset in SETS:
                for number, settings in enumerate(method.settings):
                    if all(word in f"{dataset} {method.name}" for word in words):
                        yield job_of(dataset, "full", method, number, split), method, settings


def job_of(dataset: str, protocol: str, method: Method, setting: int, split: int) -> Job:
    """Return the key of a record: the seed is the number of the split."""
    return Job(dataset, protocol, f"{method.name}, setting {setting}", split, split)


def fit(job: Job, method: Method, settings: dict[str, Any]) -> dict[str, Record]:
    """Fit a model and return a record for each protocol."""
    data = parts(job.dataset, job.fold)
    began, cpu = time.perf_counter(), time.process_time()
    model = method.make(**settings)
    if "random_state" in model.get_params():
        model.set_params(random_state=job.seed)
    model.fit(data.fitting, eval_set=data.validation)
    about = {"settings": settings, "epoch": getattr(model, "kept_epoch_", None), "versions": versions()}
    about |= {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    scores = model._score_block(np.arange(len(data.train.user_names), dtype=np.int32))
    full = [
        evaluate_full_ranking(scores.__getitem__, known, held_out, [MEASURE])
        for known, held_out in ((data.fitting, data.validation), (data.train, data.test))
    ]
    sampled = [_of_lists(lists, scores) for lists in (data.validation_lists, data.test_lists)]
    return {
        protocol: Record(
            np.asarray(test.query_ids).astype(np.str_), test.values[MEASURE],
            about | {"validation": float(np.nanmean(validation.values[MEASURE]))},
        )
        for protocol, (validation, test) in zip(PROTOCOLS, (full, sampled), strict=True)
    }  # fmt: skip


def _of_lists(user_lists: Any, scores: NDArray[Any]) -> Any:
    row_users = np.repeat(user_lists.users, user_lists.lists.sizes)
    return evaluate_lists(user_lists.lists.with_scores(scores[row_users, user_lists.items]), [MEASURE])


def run(store: Store, words: list[str]) -> None:
    """Fit what the store does not have."""
    planned = list(jobs(words))
    missing = [entry for entry in planned if not store.has(_of_protocol(entry[0], PROTOCOLS[-1]))]
    print(f"{len(planned)} fits, {len(missing)} of them are missing", file=sys.stderr)
    for number, (job, method, settings) in enumerate(missing, 1):
        records = fit(job, method, settings)
        for protocol, record in records.items():  # the last one marks the fit as done
            store.write(_of_protocol(job, protocol), record)
        values = ", ".join(f"{protocol} {np.nanmean(record.values):.4f}" for protocol, record in records.items())
        done = f"{number}/{len(missing)} {job.dataset}, split {job.fold}, {job.method}"
        print(f"{done}: {values}", file=sys.stderr, flush=True)


def _of_protocol(job: Job, protocol: str) -> Job:
    return Job(job.dataset, protocol, job.method, job.fold, job.seed)


# ---- command ---------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "report"))
    parser.add_argument("words", nargs="*", help="run only the fits whose names have all these words")
    parser.add_argument("--store", type=Path, required=True, help="folder of the fits")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the report")
    options = parser.parse_args(arguments)
    store = Store(options.store)
    if options.action == "run":
        run(store, options.words)
        return 0
    from benchmarks.quality.bounding_report import write_report

    for path in write_report(store, options.output):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
