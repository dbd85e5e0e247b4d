"""Every public callable that takes arrays, with clean arrays for it and the names that its errors may use."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")

import torch

import rankbound as rb
import rankbound.losses as losses
from rankbound import evaluation, models, testing
from rankbound.difficulty import difficulty_of
from rankbound.evaluation import combined_p_values, intervals, power, significance
from rankbound.measures import LabelCounts, parse_measure
from rankbound.report.figures import contrasts
from rankbound.studies import curves, image_pairs, learning, marginal_means, meta_evaluation
from rankbound.testing import oracles

from .variations import CLOSE, EITHER, FORMS, VALUES

__all__ = ["ENTRIES", "NO_ARRAYS", "Argument", "Entry", "public_names"]

# ---- what an argument allows besides the rule ------------------------------------------------------------------------

Rule = Mapping[str, str]  # name of a variation -> what may come of it here

WHOLE: Rule = {
    f"as {name}": EITHER for name in ("bool", "float16", "float32", "float64", "longdouble")
}  # only integers
ANY_LENGTH: Rule = dict.fromkeys(("one too few", "one too many"), EITHER)
NUMBER_TOO: Rule = dict.fromkeys(("0-d", "number"), EITHER)  # one number stands for an array of one, or for all
ANY_SHAPE: Rule = dict.fromkeys(
    ("0-d", "number", "a dimension more", "no entries in two dimensions", "matrix", "pandas frame", "polars frame"),
    EITHER,
)
OPTIONAL: Rule = {"None": EITHER}
NOT_FINITE_TOO: Rule = dict.fromkeys(
    ("NaN", "float32 NaN", "all NaN", "inf", "-inf", "float16 inf", "beyond float64", "polars null"), "anything"
)
# names of things: whatever can be told apart is a name, missing ones are refused
NAMES: Rule = {variation.name: "anything" for variation in VALUES} | dict.fromkeys(
    ("masked entry", "polars null", "pandas NA", "object None", "object list", "NaN", "all NaN", "complex", "records"),
    "refused",
)
NAMES |= dict.fromkeys(("meta tensor", "sparse tensor", "complex tensor", "sparse matrix"), "refused")
NAMES |= {
    f"as {name}": "anything"
    for name in "bool int8 uint8 int16 int32 uint32 uint64 float16 float32 float64 longdouble".split()
}
NAMES |= {"objects": "anything"}
# ids of items are looked up and printed, nothing more: all that has the right length will do
IDS: Rule = NAMES | dict.fromkeys(
    ("NaN", "all NaN", "polars null", "pandas NA", "object None", "object list"), "anything"
)
IDS |= dict.fromkeys(("complex", "records", "complex tensor"), "anything")


@dataclass(frozen=True)
class Argument:
    """A clean array, what variations of it may do other than usual, and what errors may call it."""

    clean: np.ndarray
    rule: Rule = field(default_factory=dict)
    called: tuple[str, ...] = ()
    says: tuple[str, ...] = ("got", "has", "have", "carry")  # one of these introduces the value


@dataclass(frozen=True)
class Entry:
    """A public callable: ``call`` takes the arrays by name; ``covers`` are the public names that it stands for."""

    name: str
    covers: tuple[str, ...]
    call: Callable[..., Any]
    arrays: Mapping[str, Argument]
    only: frozenset[str] | None = None  # variations to try; all if None


def argument(values: Any, *rules: Rule, called: Iterable[str] = (), says: Iterable[str] = ()) -> Argument:
    rule = {name: end for rule in rules for name, end in rule.items()}
    return Argument(np.asarray(values), rule, tuple(called), (*Argument.says, *says))


# callables that share their checks with one that is tried with everything are tried with what reaches them
_FEW_VARIATIONS = frozenset(
    (
        "strided",
        "Fortran",
        "read-only",
        "big-endian",
        "NaN",
        "1e150",
        "1e308",
        "float32 3e38",
        "all subnormal",
        "masked entry",
    )
)
_SOME_VARIATIONS = _FEW_VARIATIONS | frozenset(
    ("reversed", "list", "objects", "pandas Series", "torch tensor with gradient", "as float32", "inf", "all 1e308",
     "5000", "2^64 - 1", "complex", "dates", "meta tensor", "empty", "one entry", "one too few", "0-d",
     "a dimension more", "None", "generator")
)  # fmt: skip


# ---- clean arrays: exact in half precision, three queries of which one is dull ---------------------------------------

LABELS = np.array([1, 0, 2, 0, 1, 0, 0, 3, 0, 1])
SCORES = np.array([0.5, 1.5, 0.5, 2.0, 0.125, -3.0, 0.75, 0.25, 0.75, -1.0])
OFFSETS = np.array([0, 4, 6, 10])
QID = np.repeat([3, 1, 2], [4, 2, 4])
ITEM_IDS = np.arange(20, 30)
MEASURES = [
    "nDCG@3",
    "nDCG(dcg='exp-log2')",
    "ERR",
    "AP",
    "RR",
    "P@2",
    "RBP(gain='graded')",
    "nRBP",
    "U",
    "Tau",
    "UL2(nDCG)",
]


def _entries() -> Iterable[Entry]:
    yield from _front_door()
    yield from _difficulty()
    yield from _losses()
    yield from _models()
    yield from _statistics()
    yield from _testing()


# ---- lists and evaluation --------------------------------------------------------------------------------------------


def _front_door() -> Iterable[Entry]:
    labels, offsets = argument(LABELS), argument(OFFSETS, WHOLE, called=["offsets", "depths"])
    scores, qid = argument(SCORES, OPTIONAL), argument(QID, NAMES)
    ids = argument(ITEM_IDS, IDS, OPTIONAL)
    qids = argument(np.array([3, 1, 2]), IDS, OPTIONAL)
    depths = argument([2, 2, 4], WHOLE, OPTIONAL)
    judged = argument(np.arange(len(LABELS)) % 3 > 0, {"as float16": EITHER, "all equal": EITHER}, OPTIONAL)
    flat = {"labels": labels, "offsets": offsets, "scores": scores, "ids": ids, "qids": qids, "depths": depths}
    flat |= {"judged": judged, "candidates": judged}
    yield Entry(
        "Lists", ("Lists", "Lists.sizes", "Lists.query_of_item", "Lists.query_ids", "Lists.returned"), rb.Lists, flat
    )
    must = flat | {"scores": argument(SCORES)}

    def evaluated(ties: str, **arrays: Any) -> Any:
        return rb.evaluate(rb.Lists(**arrays), MEASURES, ties=ties, empty="zero", bounds=True)

    yield Entry("evaluate", ("evaluate",), functools.partial(evaluated, "average"), must)
    for ties in ("input", "docid"):
        arrays = {"scores": argument(SCORES)} | ({"ids": argument(ITEM_IDS, IDS)} if ties == "docid" else {})
        find = functools.partial(evaluated, ties, labels=LABELS, offsets=OFFSETS)
        yield Entry(f"evaluate, ties={ties}", ("evaluate",), find, arrays)
    rows = {"labels": labels, "qid": qid, "scores": scores, "ids": ids}
    yield Entry("Lists.from_qid", ("Lists.from_qid",), rb.Lists.from_qid, rows)
    mixed = np.argsort(np.tile([0, 1], 5), kind="stable")  # rows of a query that are no neighbors
    rows = {"labels": argument(LABELS[mixed]), "qid": argument(QID[mixed], NAMES)}
    rows |= {"scores": argument(SCORES[mixed], OPTIONAL), "ids": argument(ITEM_IDS[mixed], IDS, OPTIONAL)}
    yield Entry("Lists.from_qid, mixed", ("Lists.from_qid",), rb.Lists.from_qid, rows)
    square = {"labels": argument(LABELS[:8].reshape(2, 4)), "scores": argument(SCORES[:8].reshape(2, 4), OPTIONAL)}
    mask = argument([[True, True, False, True], [True, True, True, True]], {"as float16": EITHER, "all equal": EITHER})
    yield Entry("Lists.from_padded", ("Lists.from_padded",), rb.Lists.from_padded, square | {"mask": mask})
    lists = rb.Lists(LABELS, OFFSETS)
    yield Entry("Lists.with_scores", ("Lists.with_scores",), lists.with_scores, {"scores": argument(SCORES, OPTIONAL)})

    def compared(first: Any, second: Any) -> Any:
        found = rb.compare(lists.with_scores(first), lists.with_scores(second), measures=["nDCG", "AP"], resamples=50)
        return found.table

    pair = {name: argument(values, called=["scores"]) for name, values in (("first", SCORES), ("second", -SCORES))}
    yield Entry("compare", ("compare",), compared, pair)


# ---- difficulty ------------------------------------------------------------------------------------------------------


def _difficulty() -> Iterable[Entry]:
    counts = {
        "n": argument([4, 6, 9], WHOLE, ANY_LENGTH, ANY_SHAPE),
        "relevant": argument([1, 2, 3], WHOLE, ANY_LENGTH, ANY_SHAPE),
    }
    for measure in ("nDCG", "AP", "RR", "Success@2", "U", "RBP"):
        only = None if measure == "nDCG" else _SOME_VARIATIONS
        yield Entry(f"bounds, {measure} n", ("bounds",), functools.partial(rb.bounds, measure), counts, only)
    one = {"labels": argument([0, 1, 2, 0, 1], ANY_LENGTH, called=["labels", "n and relevant", "n must"])}
    for measure in ("nDCG", "nDCG(dcg='exp-log2')", "ERR", "AP", "PairAcc", "RBP(gain='graded')"):
        yield Entry(f"bounds, {measure} labels", ("bounds",), functools.partial(rb.bounds, measure), one)
    for measure in ("nDCG", "AP", "U"):
        find = functools.partial(rb.distribution, measure, cache=False)
        yield Entry(f"distribution, {measure}", ("distribution",), find, one)
    distribution = rb.distribution("nDCG", n=6, relevant=2, cache=False)
    at = argument([0.5, 0.25, 1.0], ANY_LENGTH, ANY_SHAPE, NOT_FINITE_TOO)
    for name in ("cdf", "survival", "smooth_cdf", "smooth_slope"):
        yield Entry(f"Distribution.{name}", (f"Distribution.{name}",), getattr(distribution, name), {"x": at})
    q = argument([0.5, 0.25, 1.0], ANY_LENGTH, ANY_SHAPE)
    yield Entry("Distribution.quantile", ("Distribution.quantile",), distribution.quantile, {"q": q})
    rows = {"labels": argument(LABELS), "qid": argument(QID, NAMES)}
    for per in ("query", "row"):
        weigh = functools.partial(rb.difficulty_weights, per=per)
        yield Entry(f"difficulty_weights, {per}", ("difficulty_weights",), weigh, rows)
    one_per_query = {"weights": argument([1.0, 2.0, 5.0], ANY_LENGTH, {"empty": "anything", "empty list": "anything"})}
    fraction = rb.effective_sample_fraction
    yield Entry("effective_sample_fraction", ("effective_sample_fraction",), fraction, one_per_query)
    values = {"value": argument([0.5, 0.25, 0.75, 1.0]), "expected": argument([0.25, 0.25, 0.5, 0.125])}
    values |= {"best": argument([1.0, 0.5, 1.0, 1.0]), "worst": argument([0.0, 0.125, 0.25, 0.0])}
    values = {
        name: Argument(each.clean, {**each.rule, **NUMBER_TOO, "one entry": EITHER}) for name, each in values.items()
    }
    for rule, quota in ("gain", None), ("quota", 0.25):
        classify = functools.partial(rb.query_types, quota=quota)
        yield Entry(f"query_types, {rule}", ("query_types",), classify, values)
    difficulty = difficulty_of(parse_measure("nDCG"), LabelCounts.binary([4, 6, 9], [1, 2, 3]))
    huge = dict.fromkeys(("1e308", "-1e308", "all 1e308"), "anything")  # beyond what any measure gives
    for name in ("min-max", "distribution", "UL1", "UL2"):
        bound = functools.partial(rb.difficulty.get_bounding(name).apply, difficulty=difficulty)
        x = {"x": argument([0.5, 0.25, 1.0], NUMBER_TOO, NOT_FINITE_TOO, huge)}
        yield Entry(f"Bounding.apply, {name}", ("Bounding.apply",), bound, x)


# ---- losses ----------------------------------------------------------------------------------------------------------

LOSSES = {
    "APLoss": losses.APLoss(bounding="min-max"),
    "DirectRankerLoss": losses.DirectRankerLoss(),
    "DistillationLoss": losses.DistillationLoss("pairwise"),
    "ERRLoss": losses.ERRLoss(),
    "KendallTauLoss": losses.KendallTauLoss(),
    "LambdaLoss": losses.LambdaLoss(bounding="min-max"),
    "LambdaRankLoss": losses.LambdaRankLoss(bounding="expectation-max"),
    "ListMLELoss": losses.ListMLELoss(),
    "ListNetLoss": losses.ListNetLoss(),
    "NDCGLoss": losses.NDCGLoss(),
    "NRBPLoss": losses.NRBPLoss(bounding="distribution"),
    "PointwiseLoss": losses.PointwiseLoss(),
    "PrecisionLoss": losses.PrecisionLoss(2),
    "RRLoss": losses.RRLoss(),
    "RankNetLoss": losses.RankNetLoss(),
    "SmoothMeasureLoss": losses.SmoothMeasureLoss("R@2"),
    "SoftRankLoss": losses.SoftRankLoss(),
    "SoftmaxLoss": losses.SoftmaxLoss(),
    "XENDCGLoss": losses.XENDCGLoss(),
}


class _Matrix:
    """What an objective asks an XGBoost matrix for."""

    def __init__(self, labels: Any, weights: Any) -> None:
        self.get_label, self.get_weight = (lambda: labels), (lambda: weights)

    def get_uint_info(self, _: str) -> Any:
        return OFFSETS.astype(np.uint32)


def _losses() -> Iterable[Entry]:
    given = {"labels": argument(LABELS), "offsets": argument(OFFSETS, WHOLE, called=["offsets", "weights"])}
    weights = {"weights": argument([2.0, 2.0, 2.0], OPTIONAL)}
    for name, loss in LOSSES.items():

        def value(loss: Any = loss, **arrays: Any) -> Any:
            scores = torch.tensor(SCORES, dtype=torch.float32, requires_grad=True)
            found = loss(scores, **arrays)
            found.backward()
            return found, scores.grad

        only = None if name == "NDCGLoss" else _SOME_VARIATIONS
        yield Entry(name, (f"losses.{name}",), value, given | weights, only)
        numbers = given | {"scores": argument(SCORES, {"as float32": CLOSE})} | weights
        gradient = functools.partial(losses.gradient_and_hessian, loss)
        yield Entry(f"gradient_and_hessian, {name}", ("losses.gradient_and_hessian",), gradient, numbers, only)

    def padded(labels: Any, mask: Any, weights: Any) -> Any:
        return LOSSES["NDCGLoss"].padded(torch.tensor(SCORES[:8].reshape(2, 4)), labels, mask, weights)

    mask = argument([[True, True, False, True], [True, True, True, True]], {"as float16": EITHER})
    square = {"labels": argument(LABELS[:8].reshape(2, 4)), "mask": mask, "weights": argument([2.0, 2.0], OPTIONAL)}
    yield Entry("padded", ("losses.RankingLoss",), padded, square)
    groups = {"group": argument([4, 2, 4], WHOLE), "weight": argument(np.full(10, 2.0), OPTIONAL)}
    groups |= {"labels": argument(LABELS), "scores": argument(SCORES, called=["scores", "group"])}

    def lightgbm(labels: Any, scores: Any, weight: Any, group: Any) -> Any:
        return losses.lightgbm_objective("nDCG")(labels, scores, weight, group)

    def xgboost(labels: Any, scores: Any, weight: Any) -> Any:
        return losses.xgboost_objective("nDCG")(scores, _Matrix(labels, weight))

    yield Entry("lightgbm_objective", ("losses.lightgbm_objective",), lightgbm, groups)
    weight = argument(np.full(10, 2.0), {"empty": EITHER, "empty list": EITHER})
    rows = {"labels": groups["labels"], "scores": groups["scores"], "weight": weight}
    yield Entry("xgboost_objective", ("losses.xgboost_objective",), xgboost, rows)


# ---- models ----------------------------------------------------------------------------------------------------------

_FEW = {"n_estimators": 2, "min_child_samples": 1}
_NET = {"epochs": 1, "batch_size": 3}
MODELS = {
    "AdaRank": lambda: models.AdaRank(n_estimators=2),
    "BoostingRanker": lambda: models.BoostingRanker(**_FEW),
    "CoordinateAscent": lambda: models.CoordinateAscent(n_restarts=1, max_sweeps=1),
    "DirectRanker": lambda: models.DirectRanker(hidden=(2,), **_NET),
    "LambdaMART": lambda: models.LambdaMART(**_FEW),
    "LinearRanker": lambda: models.LinearRanker(**_NET),
    "ListNet": lambda: models.ListNet(hidden=(2,), **_NET),
    "LogisticRanker": lambda: models.LogisticRanker(),
    "MLPRanker": lambda: models.MLPRanker(hidden=(2,), **_NET),
    "RandomForestRanker": lambda: models.RandomForestRanker(**_FEW),
    "RankBoost": lambda: models.RankBoost(n_estimators=2),
    "RankCNN": lambda: models.RankCNN(channels=(2,), hidden=(2,), **_NET),
    "RankNet": lambda: models.RankNet(hidden=(2,), **_NET),
    "RegressionRanker": lambda: models.RegressionRanker(),
    "SVMmap": lambda: models.SVMmap(max_planes=2),
}
_THOROUGH = "RankBoost"  # the fastest
_SLOW = ("LambdaMART", "LogisticRanker", "RankCNN")


@functools.cache
def _rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    features = random.integers(-8, 9, (24, 4)) / 4
    y = np.clip(np.rint(features[:, 0] + random.normal(0, 0.3, 24)), 0, 2).astype(np.int64)
    return features, y, np.repeat([5, 2, 9, 4], 6)


# trees take NaN as a missing value
_MISSING_TOO: Rule = dict.fromkeys(("NaN", "float32 NaN", "all NaN", "polars null"), "anything")


def _models() -> Iterable[Entry]:
    X, y, qid = _rows()
    wide = {"one entry": EITHER}
    arrays = {
        # text that reads as a number, and objects that do, are scikit-learn's business, and so are some of the words
        "X": argument(
            X,
            wide,
            dict.fromkeys(("text", "bytes", "list of text", "2^70"), EITHER),
            called=["X", "features"],
            says=["Found", "not supported", "passed", "convert", "setting", "Reshape"],
        ),
        "y": argument(y, {"matrix": EITHER}, called=["y", "labels", "relevant"], says=["rows", "None", "relevant"]),
        "qid": argument(qid, NAMES, OPTIONAL, says=["needs qid"]),
        "sample_weight": argument(np.full(len(y), 2.0), OPTIONAL, called=["sample_weight"]),
    }
    for name, make in MODELS.items():

        def fit(make: Any = make, **given: Any) -> Any:
            return make().fit(given.pop("X"), given.pop("y"), **given).predict(X)

        rule = arrays["X"].rule | (_MISSING_TOO if make()._accepts_nan else {})
        features = dataclasses.replace(arrays["X"], rule=rule)
        only = None if name == _THOROUGH else _FEW_VARIATIONS if name in _SLOW else _SOME_VARIATIONS
        yield Entry(f"{name}.fit", (f"models.{name}", "models.Ranker"), fit, arrays | {"X": features}, only)
        fitted = functools.cache(lambda make=make: make().fit(X, y, qid=qid))

        def predict(X: Any, fitted: Any = fitted) -> Any:
            return fitted().predict(X)

        rows = dataclasses.replace(features, rule=rule | ANY_LENGTH)
        yield Entry(f"{name}.predict", (f"models.{name}",), predict, {"X": rows}, only)

    ranker = MODELS[_THOROUGH]().fit(X, y, qid=qid)

    def score(**given: Any) -> Any:
        return ranker.score(given["X"], given["y"], qid=given["qid"])

    yield Entry(
        "Ranker.score",
        ("models.Ranker",),
        score,
        {name: arrays[name] for name in ("X", "y")} | {"qid": argument(qid, NAMES, says=["needs qid"])},
    )
    users, items, labels = np.repeat([0, 1, 2], 3), np.tile([0, 1, 3], 3), np.array([1, 0, 0, 0, 2, 0, 0, 1, 1])
    codes = {name: argument(each, WHOLE, called=[name[:-1]]) for name, each in (("users", users), ("items", items))}
    codes |= {"labels": argument(labels)}

    def factorize(**given: Any) -> Any:
        model = models.MatrixFactorization(factors=2, epochs=2, learning_rate=0.1).fit(**given)
        return model.predict(users, items)

    yield Entry("MatrixFactorization.fit", ("models.MatrixFactorization",), factorize, codes)

    def folds(groups: Any) -> Any:
        return [part for fold in models.QueryKFold(2).split(np.zeros((24, 1)), groups=groups) for part in fold]

    groups = {"groups": argument(qid, NAMES, called=["groups", "n_splits"])}
    yield Entry("QueryKFold", ("models.QueryKFold",), folds, groups)


# ---- statistics ------------------------------------------------------------------------------------------------------


def _statistics() -> Iterable[Entry]:
    d = np.array([0.5, -0.25, 0.75, 1.0, 0.125, 0.0])
    short = {"resamples": 50}
    no_spread = dict.fromkeys(
        ("all 1000", "all -2^63", "all 2^64 - 1", "all negative", "all equal", "one entry"), "anything"
    )  # NaN on purpose
    both_columns = np.stack([d, d[::-1]], axis=1)
    for name, options in {
        "effect_size": {}, "effect_size_interval": {}, "paired_t": {}, "wilcoxon": {}, "randomization": short,
        "bootstrap_interval": short, "studentized_bootstrap": short, "win_tie_loss": {},
        "minimum_detectable_difference": {},
    }.items():  # fmt: skip
        module = next(each for each in (significance, intervals, power) if hasattr(each, name))
        test = functools.partial(getattr(module, name), **options)
        d_rule = no_spread if name.startswith(("effect", "boot", "minimum")) else {}
        known = (f"{module.__name__.removeprefix('rankbound.')}.{name}",)
        yield Entry(name, known, test, {"differences": argument(d, ANY_LENGTH, d_rule)})
    for name, options in {
        "paired_t_columns": {}, "wilcoxon_columns": {}, "randomization_columns": short,
        "bootstrap_interval_columns": short, "studentized_bootstrap_columns": short, "effect_size_columns": {},
        "effect_size_interval_columns": {}, "student_interval_columns": {}, "smallest_randomization_p": {},
    }.items():  # fmt: skip
        module = significance if hasattr(significance, name) else intervals
        test = functools.partial(getattr(module, name), **options)
        rule = no_spread if name.startswith("effect") else {"one entry": "anything"}
        many = {"differences": argument(both_columns, ANY_LENGTH, rule)}
        yield Entry(name, (f"{module.__name__.removeprefix('rankbound.')}.{name}",), test, many)
    p = {"p_values": argument([0.5, 0.25, 0.125], ANY_LENGTH)}
    for name in ("holm", "benjamini_hochberg", "bonferroni"):
        yield Entry(name, (f"evaluation.significance.{name}",), getattr(significance, name), p)
    for name in ("fisher", "harmonic_mean", "higher_criticism"):
        yield Entry(name, (f"evaluation.combined_p_values.{name}",), getattr(combined_p_values, name), p)
    means = np.array([0.5, 0.25, 0.75, 1.0])
    both = {
        "first": argument(means, called=["first", "means"]),
        "second": argument(means[[1, 0, 2, 3]], called=["second", "means"]),
    }
    for name in ("kendall_tau", "swap_rate"):
        test = getattr(meta_evaluation, name)
        yield Entry(name, (f"studies.meta_evaluation.{name}",), test, both)
    pad = meta_evaluation.percentage_absolute_difference
    yield Entry(
        "PAD", ("studies.meta_evaluation.percentage_absolute_difference",), pad, {"means": argument(means, ANY_LENGTH)}
    )
    x = np.arange(12) / 4
    curve = {"x": argument(x), "y": argument(x**2), "at": argument([0.5, 1.5], ANY_LENGTH)}
    yield Entry("penalized_spline", ("report.figures.contrasts.penalized_spline",), contrasts.penalized_spline, curve)

    def image(values: Any) -> Any:
        return learning.coefficient_images({"model": values}, (2, 3))

    layout = {
        "values": argument([0.5, -0.25, 1.0, 0.0, 0.125, 2.0], {"matrix": EITHER}, called=["model", "coefficients"])
    }
    yield Entry("coefficient_images", ("studies.learning.coefficient_images",), image, layout)
    gray = np.arange(24).reshape(4, 2, 3) * 8
    four = {"images": argument(gray), "labels": argument([1, 0, 2, 0]), "scores": argument([0.5, 0.25, -1.0, 2.0])}
    four["pairs"] = argument([[0, 1], [2, 3], [1, 2]], WHOLE, ANY_LENGTH)
    four = {name: dataclasses.replace(each, called=(name, *four)) for name, each in four.items()}
    pick = functools.partial(image_pairs.example_pairs, count=1)
    yield Entry("example_pairs", ("studies.image_pairs.example_pairs",), pick, four)
    table = pl.DataFrame({"loss": ["AP", "AP", "RR", "RR"], "y": [1.0, 3.0, 5.0, 5.0]})
    fit = marginal_means.fit_linear_model(table, "y", ["loss"])
    weights = {"weights": argument([[1.0, 0.0], [1.0, 1.0]], ANY_LENGTH)}
    yield Entry("LinearFit.combine", ("studies.marginal_means.LinearFit",), fit.combine, weights)


# ---- testing ---------------------------------------------------------------------------------------------------------


def _testing() -> Iterable[Entry]:
    # plain loops over Python numbers: they look up by label in a Series, and count in the precision they are given
    apart = {"array protocol", "torch tensor", "torch tensor with gradient", "pandas Series", "nullable pandas Series"}
    forms = frozenset(variation.name for variation in FORMS) - apart - {"as float16", "as float32", "as longdouble"}
    labels = {"labels": argument([0, 2, 1, 0])}
    both = labels | {"scores": argument([0.5, 0.5, 1.0, 0.25])}
    yield Entry("oracles.value", ("testing.oracles.value",), functools.partial(oracles.value, "nDCG"), labels, forms)
    mean = functools.partial(oracles.mean_over_tie_breaks, "AP")
    yield Entry("oracles.mean_over_tie_breaks", ("testing.oracles.mean_over_tie_breaks",), mean, both, forms)
    orders = {"labels": argument([0, 2, 1])}
    yield Entry(
        "oracles.all_orders",
        ("testing.oracles.all_orders",),
        lambda labels: list(oracles.all_orders(labels)),
        orders,
        forms,
    )


ENTRIES = list(_entries())


# ---- are these all? --------------------------------------------------------------------------------------------------

_TABLES = "takes tables of scores: see test_tables"
_NAMES = "takes names and settings: see test_names"
_FILES = "takes paths, and what is in the files is tested where they are read"
_MADE = "is made by other callables, from what they have checked"
NO_ARRAYS = {
    **dict.fromkeys(("parse_measure", "losses.get_loss"), _NAMES),
    **dict.fromkeys(("set_threads", "losses.set_threads", "losses.threads", "losses.warm_up"), _NAMES),
    **dict.fromkeys(("losses.pair_memory", "losses.set_pair_memory", "losses.vectorized"), _NAMES),
    **dict.fromkeys(("losses.MeasureLoss", "losses.SmoothLoss"), "is abstract: its subclasses are tried"),
    "Lists.without_added_candidates": "takes nothing: see tests/test_candidates.py",
    "Lists.of_checked_arrays": "takes what other Lists have checked",
    **dict.fromkeys(("Lists.from_trec", "Lists.from_letor", "models.load_ranker"), _FILES),
    **dict.fromkeys(("Lists.from_dicts", "Lists.from_frame"), "takes dicts and frames: see test_tables"),
    **{f"models.export_{name}": _MADE for name in "formats onnx ranker".split()},
    "models.backbone_features": "needs the file of a network: see tests/models/test_neural_backbone.py",
    **{f"models.{name}": "takes a table of interactions: see tests/data/test_interactions_input.py"
       for name in "Blend EASE ImplicitALS ItemKNN Popularity Recommender".split()},
    **{f"models.{name}": "takes no arrays: see tests/models/test_options.py"
       for name in """Comparisons ImageNetwork Monitoring Negatives Network NetworkOptimizer Optimizer TreeOptions
           VectorModel""".split()},
    **{f"Distribution.{name}": _MADE for name in ("mean", "std")},
    **{f"{owner}.{name}": "shows what is checked already: see tests/test_display.py"
       for owner in ("Distribution", "Lists") for name in ("plot", "to_dict", "to_pandas")},
    "Bounding.weight": "takes the Difficulty of queries, which is ours",
    **{f"evaluation.score_tables.{name}": _TABLES for name in """Contrast check_frame check_scores
        contrasts data_label mean_scores measures_of query_scores systems_of trial_means""".split()},
    **{f"evaluation.query_sets.{name}": _TABLES for name in """expected_scores in_query_set query_map
        type_queries""".split()},
    **{f"report.figures.contrasts.{name}": _TABLES for name in """activity_curves instance_scores score_distributions
        thin_out""".split()},
    **{f"studies.meta_evaluation.{name}": _TABLES for name in """asl_curves conflict_cases discriminative_power
        measure_families meta_evaluation tau_between_measures""".split()},
    **{f"studies.marginal_means.{name}": _TABLES for name in """best_counts fit_linear_model marginal_means
        standardize system_marginal_means""".split()},
    **{f"studies.curves.{name}": _NAMES for name in """bounded_losses expectation_curves distribution_curves
        lower_bounds smooth_distributions""".split()},
    **{f"evaluation.comparison.{name}": _MADE for name in ("Comparison",)},
    "evaluation.against_random.AgainstRandom": _MADE,
    "against_random": "is evaluate with p-values: see tests/evaluation/test_against_random.py",
    "evaluation.against_random.against_random": "is the against_random of the front door",
    "evaluation.against_random.systems_against_random": _MADE,
    **{f"evaluation.alignment.{name}": _MADE for name in "align_evaluations align_lists align_runs".split()},
    **{f"evaluation.stability.{name}": _MADE for name in """compare_normalizations disjoint_references stability
        with_standardized""".split()},
    **{f"evaluation.scores.{name}": _MADE for name in "QueryDifficulty ScoreMatrix difference is_lower_better".split()},
    **{f"evaluation.recommendations.{name}": _TABLES for name in ("activity_groups", "recommendation_profile")},
    "evaluation.recommendations.RecommendationProfile": _MADE,
    **{f"models.evaluate_{name}": "takes interactions and a model: see tests/models/test_full_ranking.py"
       for name in ("full_ranking", "recommender")},
    **{f"studies.learning.{name}": _TABLES for name in """approximation_error coefficients coefficients_of_history
        training_paths shrink_image""".split()},
    **{f"studies.image_pairs.{name}": _TABLES for name in "check_examples pictures_of".split()},
    **{f"evaluation.judge.{name}": _TABLES for name in """JudgmentPlan NextJudgment importance_of_documents
        next_judgments read_filled with_judgments""".split()},
    **{f"evaluation.predicted.{name}": _TABLES for name in """Agreement PredictedEvaluation PredictedMean PredictedRow
        agreement_of evaluate_predicted predicted_mean""".split()},
    **{f"evaluation.unjudged.{name}": _MADE for name in "DecidingDocument Decision decide".split()},
    "Lists.of_read_arrays": "gets arrays that a reader has made",
    "losses.StochasticLoss": "is the base class of losses that are tried",
    "models.NeuralRanker": "is the base class of rankers that are tried",
    **{f"evaluation.{name}": _TABLES for name in """label_uncertainty.ProbabilityTable
        label_uncertainty.read_probabilities leaderboards.Leaderboard leaderboards.rank_systems
        spark.evaluate_spark_frames""".split()},
    **{f"evaluation.{name}": _MADE for name in """differences.Difference differences.TypeDifference
        leaderboards.RankInterval""".split()},
    **{f"evaluation.{name}": "gets what other modules have checked" for name in """alignment.lists_on_shared_queries
        differences.difference_columns differences.note_on_sign_flips differences.plain_list differences.row_schema
        differences.type_differences judge.relevance_probabilities label_uncertainty.with_probability_table
        leaderboards.chance_corrected leaderboards.common_measure leaderboards.leaderboard_of
        leaderboards.rank_intervals scores.join_data_sets unjudged.ranges_of_runs
        comparison.compare_scores inference.caution_about_wilcoxon inference.warn intervals.bootstrap_intervals
        intervals.non_centralities letters.letter power.detectable query_sets.bound_column query_sets.is_bound_column
        query_sets.types_of score_tables.without_unmeasured""".split()},
    **{f"evaluation.label_uncertainty.{name}": _MADE for name in """Unjudged given_grades labels_of_unjudged
        with_grades""".split()},
    "evaluation.comparison.compare": "is the compare of the front door",
    "evaluation.alignment.run_names": _NAMES,
    "evaluation.significance.WinTieLoss": _MADE,
    **{f"evaluation.power.{name}": _NAMES for name in "detection_power queries_needed".split()},
    **{f"evaluation.letters.{name}": "takes a relation of systems: see tests/evaluation/test_letters.py"
       for name in "compact_letters letter_groups".split()},
    **{f"evaluation.inference.{name}": _MADE for name in "group_letters mean_intervals pair_statistics".split()},
    **dict.fromkeys(("Inference", "evaluation.inference.Inference"), _NAMES),
    "Protocol": "takes options and no arrays: see tests/test_protocol.py",
    **{f"testing.strategies.{name}": "makes arrays and takes none" for name in """catalog labels measures
        scored_lists""".split()},
    **{f"testing.check.{name}": "takes a function: see tests/testing" for name in ("check_measure",)},
    **{f"testing.report.{name}": _MADE for name in ("CheckReport", "Disagreement")},
    **{f"testing.oracles.{name}": "keeps a function for tests" for name in ("add", "remove")},
    "evaluate_references": "takes runs: see tests/test_references.py",
    "audit": "takes judgments and runs: see tests/evaluation/test_audit.py",
    "gate": "takes runs: see tests/evaluation/test_gate.py",
    "testing.assertions.assert_no_regression": "is gate with an assertion: see tests/evaluation/test_gate.py",
    "run_study": "takes studies: see tests/studies/test_study.py",
    "losses.loss_names": _NAMES,
}  # fmt: skip


# modules of the pipeline of evaluate, whose public names are those of rankbound
PIPELINE = {
    "audit",
    "group_tests",
    "rank_intervals",
    "ranks",
    "risk",
    "audit_judgments",
    "audit_runs",
    "baselines",
    "coverage",
    "gate",
    "groups",
    "large",
    "lists",
    "references",
    "resampling",
    "result",
    "runs",
}


def public_names() -> set[str]:
    """Functions and classes that users can call, by the module they are in; errors, constants and modules left out."""
    sources: dict[str, ModuleType] = {"": rb, "losses.": losses, "models.": models}
    for module in (contrasts, curves, image_pairs, learning, marginal_means, meta_evaluation):
        sources[f"{module.__name__.removeprefix('rankbound.')}."] = module
    for package in (evaluation, testing):
        short = package.__name__.removeprefix("rankbound.")
        for module in pkgutil.iter_modules(package.__path__):
            if module.name.startswith("_") or (package is evaluation and module.name in PIPELINE):
                continue
            sources[f"{short}.{module.name}."] = importlib.import_module(f"{package.__name__}.{module.name}")
    found = set()
    for prefix, source in sources.items():
        for name in names_of(source):
            value = getattr(source, name)
            if callable(value) and not (inspect.isclass(value) and issubclass(value, BaseException)):
                found.add(prefix + name)
    for owner in (rb.Lists, rb.difficulty.Distribution, rb.difficulty.Bounding):
        methods = {name for name, value in vars(owner).items() if not name.startswith("_") and _is_ours(value)}
        found |= {f"{owner.__name__}.{name}" for name in methods}
    return found


def names_of(module: ModuleType) -> list[str]:
    """The names that a package lists, or the functions and classes that a module defines."""
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return getattr(module, "__all__", None) or [name for name in defined if not name.startswith("_")]


def _is_ours(value: Any) -> bool:
    return callable(value) or isinstance(value, (classmethod, property, functools.cached_property))
