"""Quality of rankers compared with published numbers, on queries with features and on images.

The results are written to docs/results/models.csv.

    python -m benchmarks.quality.models                 all rows
    python -m benchmarks.quality.models faces CNN       the rows whose name has all these words; others stay

MQ2008 and OHSUMED (QueryLevelNorm) have five folds. In each, the validation part selects the step of every model and,
where several settings are tried, the setting; the seed is 0. A value is the mean over folds of the mean over test
queries for which the measure is defined. Its interval is the 2.5 and 97.5 percentiles of a bootstrap over queries in
each fold. The note compares with the single feature that ranks the training queries best. MQ2008: labels of at least 1
are relevant; according to the "Metric bounding" thesis only the highest label is, which does not agree with its numbers
(the study thesis-5.1 has all its settings). OHSUMED: gain 2^label - 1; the published numbers are for 25 older features.

Faces (All-Age-Faces, 48 x 48 gray): persons are split into 70 % for training, 10 % to select the epoch (Kendall's tau)
and 20 % for testing. The value is the fraction of 10,000 test pairs more than 5 years apart in the right order, its
interval a bootstrap over persons. Ranking is trained on pairs more than 5 years apart, regression on ages, and
classification, as in the paper, on which face of a pair is older. All are trained on mirrored faces too. The lines at
the end say whether ranking is better than the other two with the same kind of model.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rankbound.data import load_fold, load_set
from rankbound.data.letor import LetorData
from rankbound.data.preparation import binarize_queries
from rankbound.data.sampling import age_pairs
from rankbound.data.splits import random_parts
from rankbound.evaluation import evaluate_lists
from rankbound.losses import APLoss, NDCGLoss, PointwiseLoss
from rankbound.models import (
    AdaRank,
    CoordinateAscent,
    DirectRanker,
    LambdaMART,
    LinearRanker,
    MLPRanker,
    RankBoost,
    RankCNN,
    Ranker,
    RankNet,
)
from rankbound.models.measuring import mean_measure

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "models.csv"
NDCG = "nDCG(dcg='exp-log2')"
RESAMPLES, SEED = 2000, 0


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    name: str
    measure: str
    selection: str
    ours: float
    ci_low: float
    ci_high: float
    bar: float | None
    met: bool | None
    published: float | None
    seconds: float
    note: str = ""


# ---- queries with features -------------------------------------------------------------------------------------------

EARLY: dict[str, Any] = {"n_estimators": 300, "early_stopping_rounds": 50}
PUBLISHED: dict[str, Any] = {  # networks of the papers have no noise, no transformation of features, and Adam
    "optimizer": "adam", "input_noise": 0.0, "input_transform": "none", "patience": None,
}  # fmt: skip
THESIS: dict[str, Any] = {"hidden": (46,), "dropout": 0.0, "batch_size": 32, "weight_decay": 0.0, **PUBLISHED}
# name -> ranker, measures with their bars, published
MQ2008: dict[str, tuple[Any, dict[str, float | None], float | None]] = {
    "mq2008 best single feature": (None, {"nDCG": None}, None),
    "mq2008 MLPRanker(46) nDCG": (MLPRanker("nDCG", **THESIS), {"nDCG": 0.775}, 0.7940),
    "mq2008 MLPRanker(46) nDCG min-max": (MLPRanker("nDCG", "min-max", **THESIS), {"nDCG": None}, 0.7932),
    "mq2008 MLPRanker(46) nDCG expectation": (MLPRanker("nDCG", "expectation", **THESIS), {"nDCG": None}, 0.7940),
    "mq2008 MLPRanker(46) nDCG expectation-max": (
        MLPRanker("nDCG", "expectation-max", **THESIS), {"nDCG": None}, 0.7963,
    ),
    "mq2008 LambdaMART lambdarank": (LambdaMART(**EARLY), {"nDCG": None}, None),
    "mq2008 LambdaMART lambdarank min-max": (LambdaMART(bounding="min-max", **EARLY), {"nDCG": None}, None),
    "mq2008 LambdaMART lambdarank expectation-max": (
        LambdaMART(bounding="expectation-max", **EARLY), {"nDCG": None}, None,
    ),
    "mq2008 LambdaMART nDCG": (LambdaMART("nDCG", **EARLY), {"nDCG": None}, None),
    "mq2008 LambdaMART nDCG expectation-max": (LambdaMART("nDCG", "expectation-max", **EARLY), {"nDCG": None}, None),
    "mq2008 LambdaMART nDCG distribution": (LambdaMART("nDCG", "distribution", **EARLY), {"nDCG": None}, None),
}  # fmt: skip

LINEAR: dict[str, Any] = {
    "epochs": 200, "batch_size": 16, "learning_rate": 0.01, "standardize": False, "measure": NDCG,
}  # fmt: skip
SMALL_TREES: dict[str, Any] = {  # 63 queries to learn from are few
    "n_estimators": 300, "early_stopping_rounds": 60, "subsample": 0.7, "colsample_bytree": 0.5,
    "truncation_level": 200, "measure": NDCG,
}  # fmt: skip


def small_trees(objective: str, bounding: str = "none") -> tuple[LambdaMART, ...]:
    return tuple(
        LambdaMART(objective, bounding, num_leaves=leaves, learning_rate=rate, min_child_samples=least, **SMALL_TREES)
        for leaves in (4, 8)
        for rate in (0.03, 0.1)
        for least in (50, 200)
    )


BOTH: dict[str, float | None] = {NDCG: None, f"{NDCG}@10": None}
OHSUMED: dict[str, tuple[Any, dict[str, float | None], float | None]] = {
    "ohsumed best single feature": (None, BOTH, None),
    "ohsumed LinearRanker nDCG": (
        LinearRanker(NDCGLoss(alpha=10.0), **LINEAR), {NDCG: 0.69, f"{NDCG}@10": 0.45}, 0.6698,
    ),
    "ohsumed LinearRanker AP (ApproxAP)": (
        LinearRanker(APLoss(alpha=10.0, form="ranks"), **LINEAR | {"learning_rate": 0.03}), BOTH, 0.6693,
    ),
    "ohsumed LinearRanker SoftRank": (
        LinearRanker("SoftRank", **LINEAR | {"epochs": 40, "learning_rate": 0.05}), BOTH, 0.6680,
    ),
    "ohsumed AdaRank nDCG": (AdaRank(NDCG), BOTH, 0.6589),
    "ohsumed RankBoost": (
        tuple(RankBoost(n_thresholds=t, balance=b, measure=NDCG) for t in (3, 5, 10, 30) for b in (False, True)),
        BOTH, None,
    ),
    "ohsumed CoordinateAscent nDCG": (CoordinateAscent(NDCG, n_restarts=1), BOTH, None),
    "ohsumed LambdaMART lambdarank": (small_trees("lambdarank"), BOTH, None),
    "ohsumed LambdaMART nDCG": (small_trees("nDCG"), BOTH, None),
    "ohsumed LambdaMART nDCG expectation-max": (small_trees("nDCG", "expectation-max"), BOTH, None),
}  # fmt: skip


def columns(part: LetorData) -> tuple[Any, Any, Any]:
    return part.features, part.lists.labels, part.lists.query_of_item


@cache
def folds(name: str) -> list[tuple[LetorData, LetorData, LetorData]]:
    all_folds = [load_fold(name, number) for number in range(1, 6)]
    prepare: Callable[[LetorData], LetorData] = (
        (lambda part: binarize_queries(part, 1)) if name == "mq2008" else (lambda p: p)
    )
    return [(prepare(fold.train), prepare(fold.validation), prepare(fold.test)) for fold in all_folds]


def best_feature(train: LetorData, measure: str) -> Callable[[Any], Any]:
    """Return the scores of the single feature, ascending or descending, that ranks the training queries best."""
    signed = [(sign, k) for sign in (1.0, -1.0) for k in range(train.features.shape[1])]
    sign, k = max(signed, key=lambda pair: mean_measure(train.lists, pair[0] * train.features[:, pair[1]], measure))
    return lambda features: sign * features[:, k]


def best_of_grid(
    grid: tuple[Ranker, ...], train: LetorData, validation: LetorData, measure: str
) -> Callable[[Any], Any]:
    """Return the scores of the trained ranker that ranks the validation queries best."""
    X, y, qid = columns(train)
    fitted = [ranker.fit(X, y, qid=qid, eval_set=columns(validation)) for ranker in grid]
    best: Ranker = max(
        fitted, key=lambda ranker: mean_measure(validation.lists, ranker.predict(validation.features), measure)
    )
    return best.predict


def test_values(
    dataset: str, ranker: Ranker | tuple[Ranker, ...] | None, measures: tuple[str, ...]
) -> dict[str, list[NDArray[np.float64]]]:
    """Return the values of the test queries of each fold; without a ranker those of the best single feature."""
    values: dict[str, list[NDArray[np.float64]]] = {measure: [] for measure in measures}
    for train, validation, test in folds(dataset):
        if ranker is None:
            predict = best_feature(train, measures[0])
        else:
            predict = best_of_grid(ranker if isinstance(ranker, tuple) else (ranker,), train, validation, measures[0])
        evaluated = evaluate_lists(test.lists.with_scores(predict(test.features)), measures)
        for measure in measures:
            per_query = evaluated.values[measure]
            values[measure].append(per_query[~np.isnan(per_query)])
    return values


@cache
def single_feature(dataset: str, measures: tuple[str, ...]) -> dict[str, list[NDArray[np.float64]]]:
    return test_values(dataset, None, measures)


def query_rows(
    name: str,
    dataset: str,
    ranker: Ranker | tuple[Ranker, ...] | None,
    bars: dict[str, float | None],
    published: float | None,
) -> Iterator[Line]:
    began = time.perf_counter()
    baseline = single_feature(dataset, tuple(bars))
    values = baseline if ranker is None else test_values(dataset, ranker, tuple(bars))
    seconds = time.perf_counter() - began
    for index, (measure, bar) in enumerate(bars.items()):
        ours = float(np.mean([fold.mean() for fold in values[measure]]))
        low, high = interval_over_folds(values[measure])
        note = ""
        if ranker is not None:
            differences = [ours - theirs for ours, theirs in zip(values[measure], baseline[measure], strict=True)]
            spread = "{:+.4f} to {:+.4f}".format(*interval_over_folds(differences))
            note = f"{np.mean([fold.mean() for fold in differences]):+.4f} on the best single feature ({spread})"
        yield Line(
            name, measure, "training queries" if ranker is None else "validation", ours, low, high, bar,
            None if bar is None else ours >= bar, published if index == 0 else None, seconds, note,
        )  # fmt: skip


def interval_over_folds(values: list[NDArray[np.float64]]) -> tuple[float, float]:
    rng = np.random.default_rng(SEED)
    means = [fold[rng.integers(0, len(fold), (RESAMPLES, len(fold)))].mean(axis=1) for fold in values]
    low, high = np.percentile(np.mean(means, axis=0), (2.5, 97.5))
    return float(low), float(high)


# ---- faces -----------------------------------------------------------------------------------------------------------

WON = PointwiseLoss("classification", rel=1)
SUM: dict[str, Any] = {
    "epochs": 50, "batch_size": 1, "list_size": 1024, "optimizer": "sgd", "learning_rate": 3e-3, "weight_decay": 0.04,
    "measure": "Tau",
}  # fmt: skip
NET: dict[str, Any] = {
    "hidden": (256, 64), "dropout": 0.4, "epochs": 12, "batch_size": 1, "list_size": 128, "learning_rate": 3e-4,
    "weight_decay": 1e-3, "measure": "Tau",
}  # fmt: skip
CNN: dict[str, Any] = {"epochs": 8, "list_size": 32, "flip": True, "dropout": 0.3, "measure": "Tau"}
GAP = 5.0
# name -> ranker, bar, published
FACES: dict[str, tuple[Ranker, float | None, float | None]] = {
    "faces LR ranking": (LinearRanker("RankNet", min_gap=GAP, **SUM), 0.70, 0.6359),
    "faces LR regression": (LinearRanker("regression", **SUM | {"learning_rate": 5e-4}), None, 0.5720),
    "faces LR classification": (LinearRanker(WON, **SUM), None, 0.3165),
    "faces NN RankNet": (RankNet(min_gap=GAP, **NET), 0.73, 0.6745),
    "faces NN DirectRanker": (DirectRanker(min_gap=GAP, **NET), 0.73, 0.6754),
    "faces NN regression": (MLPRanker("regression", **NET, **PUBLISHED), None, 0.5785),
    "faces NN classification": (MLPRanker(WON, **NET, **PUBLISHED), None, None),
    "faces CNN ranking": (RankCNN(min_gap=GAP, **CNN), 0.82, 0.6483),
    "faces CNN regression": (RankCNN("regression", **CNN), None, None),
    "faces CNN classification": (RankCNN(WON, **CNN), None, 0.3283),
}
COMPARISONS = (
    ("faces LR ranking", "faces LR regression", "faces LR classification"),
    ("faces NN RankNet", "faces NN regression", "faces NN classification"),
    ("faces CNN ranking", "faces CNN regression", "faces CNN classification"),
)


@dataclass(frozen=True, eq=False)
class FaceData:
    """Pixels, ages, the rows of each part, and the test pairs with the older face of each."""

    pixels: NDArray[np.float32]
    mirrored: NDArray[np.float32]
    ages: NDArray[np.int64]
    parts: tuple[NDArray[np.int64], ...]
    pairs: NDArray[np.int64]
    first_is_older: NDArray[np.bool_]

    def training_data(self, ranker: Any) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Return rows and labels of the training part; RankCNN mirrors faces itself."""
        train, ages = self.parts[0], self.ages
        rows, labels = train, ages[train]
        if getattr(ranker, "loss", None) is WON:
            pairs, first = age_pairs(ages[train], train, len(train) // 2, min_gap=int(GAP) + 1, seed=SEED)
            rows, labels = train[pairs.ravel()], np.stack((first, 1 - first), axis=1).ravel()
        if isinstance(ranker, RankCNN):
            return self.pixels[rows], labels
        return np.concatenate((self.pixels[rows], self.mirrored[rows])), np.concatenate((labels, labels))


@cache
def faces() -> FaceData:
    dataset = load_set("all-age-faces")
    ages = dataset.ages.astype(np.int64)
    part = random_parts(dataset.ids, (0.7, 0.1, 0.2), seed=SEED)
    parts = tuple(np.flatnonzero(part == number) for number in range(3))
    pairs, older = age_pairs(ages[parts[2]], dataset.ids[parts[2]], 10_000, min_gap=int(GAP) + 1, seed=SEED)
    flat = [
        images.reshape(len(dataset), -1).astype(np.float32) for images in (dataset.images, dataset.images[:, :, ::-1])
    ]
    return FaceData(flat[0], flat[1], ages, parts, pairs, older == 1)


def correct_pairs(ranker: Ranker) -> NDArray[np.float64]:
    """Fit a ranker, and return 1 for each test pair in the right order, 1/2 for a tie."""
    data = faces()
    X, y = data.training_data(ranker)
    _, valid, test = data.parts
    ranker.fit(X, y, eval_set=(data.pixels[valid], data.ages[valid]))
    scores = ranker.predict(data.pixels[test])
    ahead = np.sign(scores[data.pairs[:, 0]] - scores[data.pairs[:, 1]])
    return np.asarray(0.5 + 0.5 * np.where(data.first_is_older, ahead, -ahead))


def interval_over_persons(per_pair: NDArray[np.float64]) -> tuple[float, float]:
    """Return percentiles of the mean over pairs in a bootstrap over persons, in which both persons are drawn."""
    data, rng = faces(), np.random.default_rng(SEED)
    people = len(data.parts[2])
    means = []
    for _ in range(RESAMPLES):
        times = np.bincount(rng.integers(0, people, people), minlength=people)
        weight = times[data.pairs[:, 0]] * times[data.pairs[:, 1]]
        means.append(np.average(per_pair, weights=weight))
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def face_line(name: str, outcomes: dict[str, NDArray[np.float64]]) -> Line:
    ranker, bar, published = FACES[name]
    began = time.perf_counter()
    outcomes[name] = correct_pairs(ranker)
    seconds, ours = time.perf_counter() - began, float(outcomes[name].mean())
    low, high = interval_over_persons(outcomes[name])
    met = None if bar is None else ours >= bar
    return Line(name, "pairwise accuracy", "validation", ours, low, high, bar, met, published, seconds)


def comparison_lines(outcomes: dict[str, NDArray[np.float64]]) -> Iterator[Line]:
    for ranking, *others in COMPARISONS:
        for other in others:
            if ranking in outcomes and other in outcomes:
                difference = outcomes[ranking] - outcomes[other]
                low, high = interval_over_persons(difference)
                verdict = "ranking is better" if low > 0 else "ranking is worse" if high < 0 else "no clear difference"
                yield Line(
                    f"{ranking} minus {other.split()[-1]}", "pairwise accuracy", "validation",
                    float(difference.mean()), low, high, None, None, None, 0.0, verdict,
                )  # fmt: skip


# ---- the table -------------------------------------------------------------------------------------------------------


def lines(words: list[str]) -> Iterator[Line]:
    def wanted(name: str) -> bool:
        return set(words) <= set(name.split())

    for name, (ranker, bars, published) in (MQ2008 | OHSUMED).items():
        if wanted(name):
            yield from query_rows(name, name.split()[0], ranker, bars, published)
    outcomes: dict[str, NDArray[np.float64]] = {}
    for name in filter(wanted, FACES):
        yield face_line(name, outcomes)
    yield from comparison_lines(outcomes)


def shown(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def keep(lines: list[Line]) -> None:
    """Write the lines to the file of results; they replace those of the same name."""
    fresh = {(line.name, line.measure): {k: cell(v) for k, v in asdict(line).items()} for line in lines}
    known = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as stream:
            known = {(row["name"], row["measure"]): row for row in csv.DictReader(stream)}
    order = {name: index for index, name in enumerate((*MQ2008, *OHSUMED, *FACES))}
    rows = sorted((known | fresh).values(), key=lambda row: order.get(row["name"], len(order)))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    words = sys.argv[1:]
    table = Table("row", "measure", "ours", "95 % interval", "bar", "published", "seconds", "note")
    results = []
    for line in lines(words):
        results.append(line)
        keep(results)
        print(f"{line.name}: {line.measure} {line.ours:.4f} ({line.seconds:.0f} s)", file=sys.stderr, flush=True)
        bar = "" if line.bar is None else f"{line.bar:.3f} {'ok' if line.met else 'MISSED'}"
        spread = f"{line.ci_low:.4f} to {line.ci_high:.4f}"
        cells = (line.name, line.measure, shown(line.ours), spread, bar, shown(line.published), shown(line.seconds, 0))
        table.add_row(*cells, line.note)
    Console(width=None if sys.stdout.isatty() else 190).print(table)
    missed = [line.name for line in results if line.met is False]
    if missed:
        print("missed: " + "; ".join(missed))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
