"""Measures as metrics of CatBoost, bound to the queries of its pools."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("catboost")
pytest.importorskip("sklearn")

import catboost
from sklearn.base import clone

import rankbound as rb
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.integrations import catboost_metric

pytestmark = pytest.mark.full("needs a tool that only .venv-all has")

DATA = synthetic_letor(queries=60, features=6, seed=4, documents=(5, 20))
TRAIN, VALID = DATA.take(range(40)), DATA.take(range(40, 60))
SETTINGS = {"loss_function": "YetiRank", "verbose": False, "allow_writing_files": False, "thread_count": 1, "depth": 4}


def pool(part, **options):
    return catboost.Pool(part.features, part.lists.labels, group_id=part.lists.query_of_item, **options)


def mean_of(measure, scores, part=VALID):
    return rb.evaluate(part.lists.with_scores(np.asarray(scores, dtype=np.float64)), measures=[measure]).mean()[measure]


@pytest.mark.parametrize("measure", ["nDCG@10", "EM(nDCG(dcg='exp-log2')@10)", "U"])
def test_early_stopping_in_catboost(measure):
    metric = catboost_metric(measure, pool(VALID), pool(TRAIN))
    model = catboost.CatBoost({**SETTINGS, "iterations": 60, "eval_metric": metric, "early_stopping_rounds": 8})
    model.fit(pool(TRAIN), eval_set=pool(VALID))
    logged = model.get_evals_result()
    values = logged["validation"][measure]
    best = int(np.argmin(values) if measure == "U" else np.argmax(values))
    assert model.best_iteration_ == best
    assert model.tree_count_ == best + 1 < len(values) < 60
    assert values[best] == pytest.approx(mean_of(measure, model.predict(VALID.features)), abs=1e-9)
    np.testing.assert_allclose(metric.history.mean("pool 0"), values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(metric.history.mean("pool 1"), logged["learn"][measure], rtol=0, atol=1e-12)


def test_in_catboost_ranker_every_query_is_recorded_and_unbound_training_data_count_as_0():
    metric = catboost_metric("nDCG@10", pool(VALID))
    ranker = catboost.CatBoostRanker(**SETTINGS, iterations=5, eval_metric=metric)
    ranker.fit(pool(TRAIN), eval_set=pool(VALID), use_best_model=False)
    logged = ranker.get_evals_result()
    assert set(logged["learn"]["nDCG@10"]) == {0.0}
    expected = rb.evaluate(VALID.lists.with_scores(ranker.predict(VALID.features)), measures=["nDCG@10"])
    np.testing.assert_allclose(metric.history.values()[-1], expected.values["nDCG@10"], rtol=0, atol=1e-12)
    assert metric.history.to_frame().shape == (5 * len(VALID.lists), 4)
    assert clone(ranker).get_params()["eval_metric"] is metric


def test_labels_and_queries_stand_for_a_pool():
    metric = catboost_metric("RR", (np.array([1, 0, 0, 1]), ["a", "a", "b", "b"]))
    assert metric.evaluate([np.array([0.1, 0.9, 0.2, 0.8])], np.array([1.0, 0.0, 0.0, 1.0]), None) == (0.75, 1.0)


@pytest.mark.parametrize("options", [{"boosting_type": "Ordered"}, {}], ids=["ordered", "categories"])
def test_shuffled_training_data_do_not_disturb_the_evaluation(options):
    features = TRAIN.features.astype(object), VALID.features.astype(object)
    for part in features:
        part[:, 0] = (part[:, 0] > 0).astype(int)
    train, valid = (
        catboost.Pool(X, part.lists.labels, group_id=part.lists.query_of_item, cat_features=[] if options else [0])
        for X, part in zip(features, (TRAIN, VALID), strict=True)
    )
    metric = catboost_metric("nDCG@10", valid, train)
    ranker = catboost.CatBoostRanker(
        **(SETTINGS | {"loss_function": "QueryRMSE"}), iterations=4, eval_metric=metric, **options
    )
    ranker.fit(train, eval_set=valid, use_best_model=False)
    values = ranker.get_evals_result()["validation"]["nDCG@10"]
    assert values[-1] == pytest.approx(mean_of("nDCG@10", ranker.predict(valid)), abs=1e-9)


def test_group_weights_make_a_built_in_loss_aware_of_difficulty():
    weights = rb.difficulty_weights(TRAIN.lists.labels, TRAIN.lists.query_of_item, per="row", normalize=True)
    plain, weighted = (
        catboost.CatBoostRanker(**(SETTINGS | {"loss_function": "QueryRMSE"}), iterations=5).fit(pool(TRAIN, **options))
        for options in ({}, {"group_weight": weights})
    )
    assert not np.allclose(plain.predict(VALID.features), weighted.predict(VALID.features))


def test_an_objective_is_called_for_blocks_that_cut_through_queries():
    """So there is no catboost_objective; if this changes, there can be one."""
    sizes = []

    class Objective:
        no_jit = True

        def calc_ders_range(self, approxes, targets, weights):
            sizes.append(len(approxes))
            return np.stack((np.asarray(targets) - np.asarray(approxes), -np.ones(len(targets))), axis=1)

    X = np.random.default_rng(0).normal(size=(4000, 2))
    data = catboost.Pool(X, X[:, 0], group_id=np.repeat(np.arange(2), 2000))
    catboost.CatBoost({**SETTINGS, "loss_function": Objective(), "eval_metric": "NDCG", "iterations": 1}).fit(data)
    assert max(sizes) <= 1000


def test_data_that_do_not_fit_end_the_training():
    metric = catboost_metric("nDCG@10", pool(TRAIN.take(range(10))))
    model = catboost.CatBoost({**SETTINGS, "iterations": 3, "eval_metric": metric})
    with ThreadPoolExecutor(1) as thread:  # CatBoost leaves the exception as the current one of its thread
        training = thread.submit(model.fit, pool(TRAIN), eval_set=pool(VALID))
        with pytest.raises(catboost.CatBoostError, match=r"DataError: catboost_metric must have all Pools of eval_set"):
            training.result()


def test_bad_input_has_one_clear_error():
    with pytest.raises(ArgumentError, match="needs the Pools of the evaluation data, got none"):
        catboost_metric("nDCG@10")
    with pytest.raises(ArgumentError, match=r"pools must be Pools of CatBoost or \(y, qid\), got ndarray"):
        catboost_metric("nDCG@10", VALID.features)
    with pytest.raises(DataError, match="pools must have group_id"):
        catboost_metric("nDCG@10", catboost.Pool(VALID.features, VALID.lists.labels))
    with pytest.raises(DataError, match="pools must have labels"):
        catboost_metric("nDCG@10", catboost.Pool(VALID.features, group_id=VALID.lists.query_of_item))
    with pytest.raises(DataError, match="got a query whose rows are not adjacent"):
        catboost_metric("nDCG@10", ([1, 0, 1], ["a", "b", "a"]))
    with pytest.raises(DataError, match="qid must have 3 entries, got 2"):
        catboost_metric("nDCG@10", ([1, 0, 1], ["a", "b"]))
    with pytest.raises(DataError, match="nDCG@10 is not defined for any of the 1 queries"):
        catboost_metric("nDCG@10", ([0, 0], ["a", "a"]))


def test_without_catboost_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[catboost\]"'):
        catboost_metric("nDCG@10", VALID)
