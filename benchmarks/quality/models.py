"""Quality of rankers of rows and images beside the bars and the published numbers: docs/results/models.csv.

    python -m benchmarks.quality.models                 all rows
    python -m benchmarks.quality.models faces CNN       the rows whose name has all these words; others stay

MQ2008 and OHSUMED (QueryLevelNorm): the five folds that they come with; the step of every model, and where several
settings are tried the setting, chosen in each fold on its validation part, seed 0. A value is the mean over folds of
the mean over test queries that have something to find, its interval the 2.5 and 97.5 percentiles when the queries of
each fold are drawn anew; the note compares with the single feature that ranks the training queries best. MQ2008: labels
from 1 on are relevant; the thesis says that only the highest label counts, which does not fit its numbers (the study
thesis-5.1 has all its settings). OHSUMED: gain 2^label - 1; its published numbers are of 25 older features.

Faces (All-Age-Faces, 48 x 48 gray): persons dealt into 70 % to learn from, 10 % to choose the epoch by (Kendall's tau)
and 20 % to test on; 10,000 test pairs more than 5 years apart, the share in the right order, its interval by drawing
persons anew. Ranking learns from pairs more than 5 years apart, regression from ages, classification as in the paper
from which face of a pair was the older. All learn from mirrored faces too. The lines at the end say whether ranking
beats the other two with the same kind of model.
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

from rankbound.data import age_pairs, binarized, load_fold, load_set, random_parts
from rankbound.data.letor import LetorData
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
# name -> ranker, measures with their bars, published
MQ2008: dict[str, tuple[Any, dict[str, float | None], float | None]] = {
    "mq2008 best single feature": (None, {"nDCG": None}, None),
    "mq2008 MLPRanker(46) nDCG": (MLPRanker("nDCG"), {"nDCG": 0.775}, 0.7940),
    "mq2008 MLPRanker(46) nDCG min-max": (MLPRanker("nDCG", "min-max"), {"nDCG": None}, 0.7932),
    "mq2008 MLPRanker(46) nDCG expectation": (MLPRanker("nDCG", "expectation"), {"nDCG": None}, 0.7940),
    "mq2008 MLPRanker(46) nDCG expectation-max": (MLPRanker("nDCG", "expectation-max"), {"nDCG": None}, 0.7963),
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
    found = [load_fold(name, number) for number in range(1, 6)]
    prepare: Callable[[LetorData], LetorData] = (lambda part: binarized(part, 1)) if name == "mq2008" else (lambda p: p)
    return [(prepare(fold.train), prepare(fold.validation), prepare(fold.test)) for fold in found]


def best_feature(train: LetorData, measure: str) -> Callable[[Any], Any]:
    """The scores of the single feature, up or down, that ranks the training queries best."""
    signed = [(sign, k) for sign in (1.0, -1.0) for k in range(train.features.shape[1])]
    sign, k = max(signed, key=lambda one: mean_measure(train.lists, one[0] * train.features[:, one[1]], measure))
    return lambda features: sign * features[:, k]


def best_of_grid(
    grid: tuple[Ranker, ...], train: LetorData, validation: LetorData, measure: str
) -> Callable[[Any], Any]:
    """The scores of the ranker that, fitted to the training queries, ranks the validation queries best."""
    X, y, qid = columns(train)
    fitted = [ranker.fit(X, y, qid=qid, eval_set=columns(validation)) for ranker in grid]
    best: Ranker = max(
        fitted, key=lambda one: mean_measure(validation.lists, one.predict(validation.features), measure)
    )
    return best.predict


def test_values(
    dataset: str, ranker: Ranker | tuple[Ranker, ...] | None, measures: tuple[str, ...]
) -> dict[str, list[NDArray[np.float64]]]:
    """Values of the test queries of each fold; no ranker stands for the best single feature."""
    values: dict[str, list[NDArray[np.float64]]] = {measure: [] for measure in measures}
    for train, validation, test in folds(dataset):
        if ranker is None:
            predict = best_feature(train, measures[0])
        else:
            predict = best_of_grid(ranker if isinstance(ranker, tuple) else (ranker,), train, validation, measures[0])
        found = evaluate_lists(test.lists.with_scores(predict(test.features)), measures)
        for measure in measures:
            per_query = found.values[measure]
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
    beside = single_feature(dataset, tuple(bars))
    values = beside if ranker is None else test_values(dataset, ranker, tuple(bars))
    seconds = time.perf_counter() - began
    for place, (measure, bar) in enumerate(bars.items()):
        ours = float(np.mean([fold.mean() for fold in values[measure]]))
        low, high = interval_over_folds(values[measure])
        note = ""
        if ranker is not None:
            ahead = [one - other for one, other in zip(values[measure], beside[measure], strict=True)]
            spread = "{:+.4f} to {:+.4f}".format(*interval_over_folds(ahead))
            note = f"{np.mean([fold.mean() for fold in ahead]):+.4f} on the best single feature ({spread})"
        yield Line(
            name, measure, "training queries" if ranker is None else "validation", ours, low, high, bar,
            None if bar is None else ours >= bar, published if place == 0 else None, seconds, note,
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
    "faces NN regression": (MLPRanker("regression", **NET), None, 0.5785),
    "faces NN classification": (MLPRanker(WON, **NET), None, None),
    "faces CNN ranking": (RankCNN(min_gap=GAP, **CNN), 0.82, 0.6483),
    "faces CNN regression": (RankCNN("regression", **CNN), None, None),
    "faces CNN classification": (RankCNN(WON, **CNN), None, 0.3283),
}
CONTESTS = (
    ("faces LR ranking", "faces LR regression", "faces LR classification"),
    ("faces NN RankNet", "faces NN regression", "faces NN classification"),
    ("faces CNN ranking", "faces CNN regression", "faces CNN classification"),
)


@dataclass(frozen=True, eq=False)
class FaceData:
    """Pixels, ages, the rows of each part, and the test pairs with which of each is the older."""

    pixels: NDArray[np.float32]
    mirrored: NDArray[np.float32]
    ages: NDArray[np.int64]
    parts: tuple[NDArray[np.int64], ...]
    pairs: NDArray[np.int64]
    first_is_older: NDArray[np.bool_]

    def learned_from(self, ranker: Any) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Rows and labels of the training part; a convolution mirrors faces by itself."""
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
    found = load_set("all-age-faces")
    ages = found.ages.astype(np.int64)
    part = random_parts(found.ids, (0.7, 0.1, 0.2), seed=SEED)
    parts = tuple(np.flatnonzero(part == number) for number in range(3))
    pairs, older = age_pairs(ages[parts[2]], found.ids[parts[2]], 10_000, min_gap=int(GAP) + 1, seed=SEED)
    flat = [images.reshape(len(found), -1).astype(np.float32) for images in (found.images, found.images[:, :, ::-1])]
    return FaceData(flat[0], flat[1], ages, parts, pairs, older == 1)


def rightly_ordered(ranker: Ranker) -> NDArray[np.float64]:
    """Fit, and give 1 for each test pair in the right order, 1/2 for a tie."""
    data = faces()
    X, y = data.learned_from(ranker)
    _, valid, test = data.parts
    ranker.fit(X, y, eval_set=(data.pixels[valid], data.ages[valid]))
    scores = ranker.predict(data.pixels[test])
    ahead = np.sign(scores[data.pairs[:, 0]] - scores[data.pairs[:, 1]])
    return np.asarray(0.5 + 0.5 * np.where(data.first_is_older, ahead, -ahead))


def interval_over_persons(per_pair: NDArray[np.float64]) -> tuple[float, float]:
    """Percentiles of the mean over pairs when the persons are drawn anew: a pair counts as often as both were drawn."""
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
    outcomes[name] = rightly_ordered(ranker)
    seconds, ours = time.perf_counter() - began, float(outcomes[name].mean())
    low, high = interval_over_persons(outcomes[name])
    met = None if bar is None else ours >= bar
    return Line(name, "pairwise accuracy", "validation", ours, low, high, bar, met, published, seconds)


def contest_lines(outcomes: dict[str, NDArray[np.float64]]) -> Iterator[Line]:
    for ranking, *others in CONTESTS:
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
    yield from contest_lines(outcomes)


def shown(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def keep(found: list[Line]) -> None:
    """Write the lines to the file of results, in the place of those of the same name."""
    fresh = {(line.name, line.measure): {k: cell(v) for k, v in asdict(line).items()} for line in found}
    known = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as stream:
            known = {(row["name"], row["measure"]): row for row in csv.DictReader(stream)}
    order = {name: place for place, name in enumerate((*MQ2008, *OHSUMED, *FACES))}
    rows = sorted((known | fresh).values(), key=lambda row: order.get(row["name"], len(order)))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    words = sys.argv[1:]
    table = Table("what", "measure", "ours", "95 % interval", "asked for", "published", "seconds", "note")
    found = []
    for line in lines(words):
        found.append(line)
        keep(found)
        print(f"{line.name}: {line.measure} {line.ours:.4f} ({line.seconds:.0f} s)", file=sys.stderr, flush=True)
        bar = "" if line.bar is None else f"{line.bar:.3f} {'ok' if line.met else 'MISSED'}"
        spread = f"{line.ci_low:.4f} to {line.ci_high:.4f}"
        cells = (line.name, line.measure, shown(line.ours), spread, bar, shown(line.published), shown(line.seconds, 0))
        table.add_row(*cells, line.note)
    Console(width=None if sys.stdout.isatty() else 190).print(table)
    missed = [line.name for line in found if line.met is False]
    if missed:
        print("missed: " + "; ".join(missed))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
