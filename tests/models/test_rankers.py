"""Distributions that hold for every ranker."""

from __future__ import annotations

import functools
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")

import pandas as pd
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankbound.data.letor import LetorData
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.models import (
    RANKERS,
    RECOMMENDERS,
    AdaRank,
    BoostingRanker,
    CoordinateAscent,
    LambdaMART,
    LogisticRanker,
    QueryKFold,
    RandomForestRanker,
    RankBoost,
    Ranker,
    RegressionRanker,
    SVMmap,
    load_ranker,
)
from rankbound.models.measuring import mean_measure

FEW = {"n_estimators": 15, "min_child_samples": 2}
CATALOG: dict[str, Ranker] = {
    "AdaRank": AdaRank(n_estimators=30),
    "AdaRank AP": AdaRank("AP", n_estimators=30, standardize=False),
    "RankBoost": RankBoost(n_estimators=60),
    "CoordinateAscent": CoordinateAscent(n_restarts=1, max_sweeps=3),
    "SVMmap": SVMmap(max_planes=40),
    "LambdaMART": LambdaMART(**FEW),
    "LambdaMART bounded": LambdaMART(bounding="expectation-max", **FEW),
    "LambdaMART lambdarank": LambdaMART("lambdarank", "expectation-max", **FEW),
    "LambdaMART RankNet": LambdaMART("RankNet", **FEW),
    "LambdaMART nDCG bounded": LambdaMART("nDCG", "min-max", **FEW),
    "BoostingRanker": BoostingRanker(**FEW),
    "BoostingRanker classification": BoostingRanker("classification", **FEW),
    "RandomForestRanker": RandomForestRanker(**FEW),
    "RandomForestRanker classification": RandomForestRanker("classification", **FEW),
    "LogisticRanker": LogisticRanker(),
    "LogisticRanker l1": LogisticRanker("l1", C=0.5),
    "RegressionRanker linear-l1": RegressionRanker("linear-l1"),
    "RegressionRanker linear-l2": RegressionRanker("linear-l2"),
    "RegressionRanker forest": RegressionRanker("forest", options=FEW),
    "RegressionRanker boosting": RegressionRanker("boosting", options=FEW),
}
every_ranker = pytest.mark.parametrize("name", CATALOG)


@functools.cache
def data() -> tuple[LetorData, LetorData]:
    """Queries to learn from and queries to be judged on."""
    whole = synthetic_letor(queries=110, features=10, seed=5, documents=(5, 40))
    return whole.take(range(70)), whole.take(range(70, 110))


def columns(part: LetorData) -> tuple[Any, Any, Any]:
    return part.features, part.lists.labels, part.lists.query_of_item


@functools.cache
def fitted(name: str) -> Ranker:
    X, y, qid = columns(data()[0])
    return clone(CATALOG[name]).fit(X, y, qid=qid)


def test_catalog_has_every_ranker_of_the_registry_that_needs_no_torch_model() -> None:
    neural = {"LinearRanker", "MLPRanker", "RankNet", "DirectRanker", "ListNet", "RankCNN"}
    assert {type(ranker).__name__ for ranker in CATALOG.values()} == set(RANKERS) - neural - set(RECOMMENDERS)


# ---- scikit-learn's own checks ---------------------------------------------------------------------------------------

_EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"
_BY_QUERY = "weights belong to queries: a document twice in a list is another list"
_LABELS = "AP takes every label of at least 1 as relevant, and the check's labels are all of that kind"


def expected_failures(ranker: Ranker) -> dict[str, str]:
    if ranker._learns_from == "queries":
        reasons = {_EQUIVALENCE: _BY_QUERY}
    elif isinstance(ranker, LogisticRanker):
        reasons = {_EQUIVALENCE: "liblinear stops at its tolerance"} if ranker.penalty == "l1" else {}
    elif isinstance(ranker, (BoostingRanker, RandomForestRanker)):
        reasons = {_EQUIVALENCE: "LightGBM counts rows for bins, leaves and bags, whatever they weigh"}
    else:
        reasons = {}
    if isinstance(ranker, SVMmap):
        for name in ("dtypes", "fit2d_1feature"):
            reasons[f"check_{'estimators_' if name == 'dtypes' else ''}{name}"] = _LABELS
        for name in ("pandas_series", "not_an_array", "shape", "not_overwritten"):
            reasons[f"check_sample_weights_{name}"] = _LABELS
    return reasons


TINY = {"n_estimators": 4, "min_child_samples": 1}


@parametrize_with_checks(
    [
        AdaRank(n_estimators=10),
        RankBoost(n_estimators=10),
        CoordinateAscent(n_restarts=1, max_sweeps=1),
        SVMmap(max_planes=20),
        LambdaMART(**TINY),
        BoostingRanker("classification", **TINY),
        RandomForestRanker(**TINY),
        LogisticRanker(),
        LogisticRanker("l1"),
        RegressionRanker(),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore:.*found no useful split")
def test_scikit_learn_checks(estimator: Ranker, check: Any) -> None:
    check(estimator)


# ---- learning --------------------------------------------------------------------------------------------------------


@every_ranker
def test_ranks_new_queries_far_better_than_probability_and_near_the_best_feature(name: str) -> None:
    train, test = data()
    X, y, qid = columns(test)
    values = {
        "ranker": fitted(name).score(X, y, qid=qid),
        "probability": mean_measure(test.lists, np.zeros(len(y)), "nDCG"),
    }
    if fitted(name).measure == "AP":
        values["probability"] = mean_measure(test.lists, np.zeros(len(y)), "AP")
    best = max(range(X.shape[1]), key=lambda k: mean_measure(train.lists, train.features[:, k], fitted(name).measure))
    values["feature"] = mean_measure(test.lists, X[:, best], fitted(name).measure)
    assert values["ranker"] > values["probability"] + 0.15, values
    assert values["ranker"] > values["feature"] - 0.03, values


@every_ranker
def test_the_same_seed_gives_the_same_model_and_the_order_of_rows_does_not_matter_to_queries(name: str) -> None:
    X, y, qid = columns(data()[0])
    again = clone(CATALOG[name]).fit(X, y, qid=qid)
    np.testing.assert_array_equal(again.predict(X), fitted(name).predict(X))
    # deal the rows of different queries into one another, each query keeping its own order
    place = np.argsort(np.arange(len(y)) - data()[0].lists.offsets[qid], kind="stable")
    place = np.concatenate((place[qid[place] == 0], place[qid[place] != 0]))  # the first query stays the first
    mixed = clone(CATALOG[name]).fit(X[place], y[place], qid=qid[place])
    np.testing.assert_allclose(mixed.predict(X), fitted(name).predict(X), rtol=1e-6, atol=1e-9)


@every_ranker
def test_eval_set_is_judged_and_never_leaves_a_worse_model_than_its_best_step(name: str) -> None:
    X, y, qid = columns(data()[0])
    held_out = columns(data()[1])
    chosen = clone(CATALOG[name]).fit(X, y, qid=qid, eval_set=held_out)
    assert chosen.eval_score_ == pytest.approx(chosen.score(*held_out))
    assert chosen.eval_score_ >= fitted(name).score(*held_out) - 1e-9 or "classification" in name  # a model per level


@pytest.mark.parametrize("name", ["AdaRank AP", "RankBoost", "CoordinateAscent", "SVMmap", "LambdaMART"])
def test_queries_of_weight_zero_have_no_effect(name: str) -> None:
    X, y, qid = columns(data()[0])
    kept = qid < 50
    lists = data()[0].lists
    without = clone(CATALOG[name]).fit(X[kept], y[kept], qid=qid[kept]).predict(X)
    wrong = np.where(kept, y, 2 - y)  # what the other queries say is the opposite of the truth
    weighted = clone(CATALOG[name]).fit(X, wrong, qid=qid, sample_weight=kept).predict(X)
    # scales, thresholds and bins are still made from all rows
    assert mean_measure(lists, weighted, "nDCG") == pytest.approx(mean_measure(lists, without, "nDCG"), abs=0.02)


# ---- files -----------------------------------------------------------------------------------------------------------


@every_ranker
def test_saved_and_loaded_rankers_score_bit_for_bit_alike(name: str, tmp_path: Path) -> None:
    X, y, qid = columns(data()[1])
    ranker = fitted(name)
    ranker.save(tmp_path / "model")
    loaded = load_ranker(tmp_path / "model")
    assert type(loaded) is type(ranker)
    assert loaded.get_params() == ranker.get_params()
    np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))
    assert loaded.score(X, y, qid=qid) == ranker.score(X, y, qid=qid)
    assert not [file for file in (tmp_path / "model").iterdir() if b"sklearn" in file.read_bytes()]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(X), ranker.predict(X))  # for joblib


# ---- odd data --------------------------------------------------------------------------------------------------------


@every_ranker
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused_by_row_and_column(name: str, value: float) -> None:
    X, y, qid = columns(data()[0])
    frame = pl.DataFrame(X, schema=[f"bm25_{k}" for k in range(X.shape[1])])
    frame[7, 3] = value
    if np.isnan(value) and CATALOG[name]._accepts_nan:  # a missing value
        assert np.isfinite(clone(CATALOG[name]).fit(frame, y, qid=qid).predict(frame)).all()
        return
    with pytest.raises(DataError, match=r"features must be finite, got (NaN|-?inf) at row 7, column 3 \(bm25_3\)"):
        clone(CATALOG[name]).fit(frame, y, qid=qid)
    with pytest.raises(DataError, match="row 7, column 3"):
        fitted(name).predict(frame.to_numpy())


@every_ranker
def test_equal_labels_are_refused(name: str) -> None:
    X, y, qid = columns(data()[0])
    for labels in (np.zeros_like(y), np.full_like(y, 2), np.full_like(y, -1)):
        with pytest.raises(DataError, match="labels must differ"):
            clone(CATALOG[name]).fit(X, labels, qid=qid)


@every_ranker
def test_labels_that_differ_only_between_queries_are_for_pointwise_rankers(name: str) -> None:
    X, _, qid = columns(data()[0])
    if CATALOG[name]._learns_from == "rows":
        assert np.isfinite(clone(CATALOG[name]).fit(X, qid % 2, qid=qid).predict(X)).all()
    else:
        with pytest.raises(DataError, match="labels must differ within at least one query"):
            clone(CATALOG[name]).fit(X, qid % 2, qid=qid)


@every_ranker
def test_constant_features_change_nothing_and_alone_give_equal_scores(name: str) -> None:
    X, y, qid = columns(data()[0])
    with_constant = np.column_stack((X, np.full(len(X), 0.1, dtype=X.dtype)))
    assert np.isfinite(clone(CATALOG[name]).fit(with_constant, y, qid=qid).predict(with_constant)).all()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*found no useful split")
        alone = clone(CATALOG[name]).fit(with_constant[:, -1:], y, qid=qid)
    scores = alone.predict(with_constant[:, -1:])
    assert np.isfinite(scores).all()
    assert np.ptp(scores) == 0


@every_ranker
def test_one_query_is_enough(name: str) -> None:
    X, y, qid = columns(data()[0])
    largest = qid == np.argmax(np.bincount(qid, y))
    ranker = clone(CATALOG[name]).fit(X[largest], y[largest])
    assert ranker.score(X[largest], y[largest]) > 0.6
    np.testing.assert_array_equal(
        ranker.predict(X), clone(CATALOG[name]).fit(X[largest], y[largest], qid=["q"] * largest.sum()).predict(X)
    )


def test_trees_that_find_no_split_say_so() -> None:
    with pytest.warns(UserWarning, match="min_child_samples is too large"):
        LambdaMART().fit([[0.0], [1.0], [2.0]], [0, 1, 2])


# ---- the interface ---------------------------------------------------------------------------------------------------


def test_frames_give_names_that_are_checked_and_saved(tmp_path: Path) -> None:
    X, y, qid = columns(data()[0])
    names = [f"f{k}" for k in range(X.shape[1])]
    plain = AdaRank().fit(X, y, qid=qid)
    for frame in (pl.DataFrame(X, schema=names), pd.DataFrame(X, columns=names)):
        ranker = AdaRank().fit(frame, pl.Series(y), qid=pd.Series(qid).astype(str))
        np.testing.assert_array_equal(ranker.predict(frame), plain.predict(X))
        assert ranker.feature_names_in_.tolist() == names
        assert ranker.n_features_in_ == len(names)
        ranker.save(tmp_path / "model")
        loaded = load_ranker(tmp_path / "model")
        assert loaded.feature_names_in_.tolist() == names
        with pytest.raises(DataError, match="feature names should match"):
            loaded.predict(frame[names[::-1]])
    with pytest.raises(DataError, match="X has 3 features, but AdaRank is expecting 10"):
        plain.predict(X[:, :3])
    with pytest.raises(NotFittedError):
        AdaRank().predict(X)


def test_columns_of_the_wrong_length_or_kind_are_named() -> None:
    X, y, qid = columns(data()[0])
    with pytest.raises(DataError, match=rf"y must have one entry per row of X, {len(y)}, got shape \(3,\)"):
        AdaRank().fit(X, y[:3], qid=qid)
    with pytest.raises(DataError, match="qid must have one entry per row"):
        AdaRank().fit(X, y, qid=qid[:3])
    with pytest.raises(DataError, match="qid must be known for every row, got NaN at row 0"):
        AdaRank().fit(X, y, qid=np.where(qid == 0, np.nan, qid))
    with pytest.raises(DataError, match="qid must be known for every row, got None at row 1"):
        AdaRank().fit(X[:3], y[:3], qid=["a", None, "b"])
    with pytest.raises(DataError, match="labels must be finite, got nan at position 4"):
        AdaRank().fit(X, np.where(np.arange(len(y)) == 4, np.nan, y), qid=qid)
    with pytest.raises(DataError, match="sample_weight must be finite and not negative"):
        AdaRank().fit(X, y, qid=qid, sample_weight=-np.ones(len(y)))
    with pytest.raises(ArgumentError, match="eval_set must be"):
        AdaRank().fit(X, y, qid=qid, eval_set=X)


@pytest.mark.parametrize(
    ("ranker", "message"),
    [
        (AdaRank("U"), "higher is better"),
        (AdaRank("DCG"), r"values in \[-1, 1\]"),
        (AdaRank(n_estimators=0), "n_estimators must be a positive integer"),
        (AdaRank("nonsense"), "unknown measure"),
        (RankBoost(n_thresholds=0), "n_thresholds must be a positive integer"),
        (CoordinateAscent(step=0), "step must be above 0"),
        (SVMmap("nDCG"), "measure of SVMmap must be AP"),
        (LambdaMART("nothing"), "loss must be one of"),
        (LambdaMART("lambdarank", "distribution"), "bounding of lambdarank must be"),
        (LambdaMART(num_leaves=-1), "num_leaves must be from 2 to 131072, got -1"),
        (BoostingRanker("ranking"), "task must be one of"),
        (RandomForestRanker(subsample=1.0), "subsample of a forest"),
        (LogisticRanker("l3"), "penalty must be"),
        (LogisticRanker(C=0), "C must be above 0"),
        (RegressionRanker("cubic"), "kind must be one of"),
        (RegressionRanker(options={"depth": 3}), "options must be parameters of"),
        (RegressionRanker(options={"alpha": -1}), "alpha must be above 0"),
    ],
)
def test_wrong_parameters_are_named(ranker: Ranker, message: str) -> None:
    X, y, qid = columns(data()[0])
    with pytest.raises(ArgumentError, match=message):
        ranker.fit(X, y, qid=qid)


# ---- searches --------------------------------------------------------------------------------------------------------


def test_query_k_fold_keeps_queries_whole_and_shuffles_by_seed() -> None:
    qid = np.random.default_rng(0).permutation(np.repeat(np.arange(11), 4))
    folds = list(QueryKFold(3, random_state=1).split(np.zeros((44, 1)), groups=qid))
    assert len(folds) == QueryKFold(3).get_n_splits() == 3
    tested = [set(qid[test]) for _, test in folds]
    assert sorted(len(one) for one in tested) == [3, 4, 4]
    assert set.union(*tested) == set(range(11))
    for train, test in folds:
        assert not set(qid[train]) & set(qid[test])
        assert len(train) + len(test) == 44
    again = [test.tolist() for _, test in QueryKFold(3, random_state=1).split(qid[:, None], groups=qid)]
    assert again == [test.tolist() for _, test in folds]
    assert again != [test.tolist() for _, test in QueryKFold(3, random_state=2).split(qid[:, None], groups=qid)]
    with pytest.raises(DataError, match="pass groups=qid"):
        next(QueryKFold(3).split(qid[:, None]))
    with pytest.raises(DataError, match="at most the number of queries, 11"):
        next(QueryKFold(12).split(qid[:, None], groups=qid))
    with pytest.raises(ArgumentError, match="n_splits"):
        QueryKFold(1)


def test_grid_search_over_whole_queries_with_metadata_routing() -> None:
    X, y, qid = columns(data()[0])
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(AdaRank(), {"n_estimators": [1, 20]}, cv=QueryKFold(4), error_score="raise")
        search.fit(X, y, qid=qid, groups=qid)
        scores = cross_val_score(AdaRank(n_estimators=20), X, y, cv=QueryKFold(4), params={"qid": qid, "groups": qid})
    by_hand = []
    for train, test in QueryKFold(4).split(X, groups=qid):
        ranker = AdaRank(n_estimators=20).fit(X[train], y[train], qid=qid[train])
        by_hand.append(ranker.score(X[test], y[test], qid=qid[test]))
    np.testing.assert_allclose(scores, by_hand)
    assert search.cv_results_["mean_test_score"][1] == pytest.approx(np.mean(by_hand))
    assert search.best_estimator_.n_queries_ == 70


def test_a_search_that_loses_the_queries_fails_instead_of_scoring_all_rows_as_one() -> None:
    X, y, qid = columns(data()[0])
    search = GridSearchCV(AdaRank(), {"n_estimators": [2]}, cv=QueryKFold(3), error_score="raise")
    with pytest.raises(DataError, match="enable_metadata_routing=True"):
        search.fit(X, y, qid=qid, groups=qid)
