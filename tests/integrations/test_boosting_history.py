"""Values of every query in every round of LightGBM and XGBoost, and early stopping of XGBRanker by them."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")

import lightgbm
import xgboost

import rankbound as rb
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.integrations import LightGBMRecorder, QueryHistory, lightgbm_metric, xgboost_metric, xgboost_recorder
from rankbound.integrations import xgboost as xgboost_module

DATA = synthetic_letor(queries=60, features=6, seed=4, documents=(5, 20))
TRAIN, VALID, TEST = DATA.take(range(30)), DATA.take(range(30, 45)), DATA.take(range(45, 60))
TREES = {"objective": "lambdarank", "num_leaves": 7, "verbose": -1, "num_threads": 1, "metric": "None"}
BOOSTER = {"objective": "rank:ndcg", "max_depth": 3, "nthread": 1, "disable_default_eval_metric": 1}


def matrix(part):
    return xgboost.DMatrix(part.features, part.lists.labels, qid=part.lists.query_of_item, nthread=1)


def values_of(measure, scores, part):
    return rb.evaluate(part.lists.with_scores(np.asarray(scores, dtype=np.float64)), measures=[measure]).values[measure]


def train_lightgbm(recorder, rounds=6):
    train = lightgbm.Dataset(TRAIN.features, TRAIN.lists.labels, group=TRAIN.lists.sizes)
    sets = [train.create_valid(part.features, part.lists.labels, group=part.lists.sizes) for part in (VALID, TEST)]
    logged = {}
    booster = lightgbm.train(
        TREES, train, rounds, valid_sets=sets, valid_names=["valid", "test"], feval=lightgbm_metric(recorder.measure),
        callbacks=[recorder, lightgbm.record_evaluation(logged)],
    )  # fmt: skip
    return booster, logged


@pytest.mark.parametrize("measure", ["nDCG@10", "EM(AP)"])
def test_every_round_and_query_of_lightgbm_train(measure):
    recorder = LightGBMRecorder(measure)
    booster, logged = train_lightgbm(recorder)
    assert recorder.data == ["valid", "test"]
    for name, part in (("valid", VALID), ("test", TEST)):
        values = recorder.values(name)
        assert values.shape == (6, 15)
        for step in (1, 6):
            scores = booster.predict(part.features, num_iteration=step)
            np.testing.assert_allclose(values[step - 1], values_of(measure, scores, part), rtol=0, atol=1e-9)
        np.testing.assert_allclose(recorder.mean(name), logged[name][measure], rtol=0, atol=1e-12)
    train_lightgbm(recorder, rounds=2)  # a new training starts anew
    assert recorder.values("test").shape == (2, 15)


@pytest.mark.filterwarnings("ignore:The argument .eval_set. is deprecated")  # by LightGBM 4.7
def test_every_round_and_query_of_lgbm_ranker_with_early_stopping():
    recorder = LightGBMRecorder("nDCG@10")
    ranker = lightgbm.LGBMRanker(n_estimators=60, num_leaves=7, learning_rate=0.3, verbose=-1, n_jobs=1)
    ranker.fit(
        TRAIN.features, TRAIN.lists.labels, group=TRAIN.lists.sizes,
        eval_set=[(VALID.features, VALID.lists.labels)], eval_group=[VALID.lists.sizes],
        eval_metric=lightgbm_metric("nDCG@10"), callbacks=[lightgbm.early_stopping(3, verbose=False), recorder],
    )  # fmt: skip
    rounds = len(ranker.evals_result_["valid_0"]["nDCG@10"])
    assert recorder.values().shape == (rounds, 15)
    best = recorder.values()[ranker.best_iteration_ - 1]
    np.testing.assert_allclose(best, values_of("nDCG@10", ranker.predict(VALID.features), VALID), rtol=0, atol=1e-9)


def test_every_round_and_query_of_xgboost_train():
    held_out, logged = matrix(VALID), {}
    recorder = xgboost_recorder("EM(nDCG@10)", held_out, "valid")
    booster = xgboost.train(
        BOOSTER, matrix(TRAIN), 5, evals=[(held_out, "other")], custom_metric=xgboost_metric("EM(nDCG@10)"),
        callbacks=[recorder], evals_result=logged, verbose_eval=False,
    )  # fmt: skip
    assert isinstance(recorder, QueryHistory)
    assert recorder.values().shape == (5, 15)
    for step in (1, 5):
        scores = booster.predict(matrix(VALID), output_margin=True, iteration_range=(0, step))
        expected = values_of("EM(nDCG@10)", scores, VALID)
        np.testing.assert_allclose(recorder.values()[step - 1], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(logged["valid"]["EM(nDCG@10)"], logged["other"]["EM(nDCG@10)"], rtol=0, atol=1e-6)


def test_xgb_ranker_stops_by_the_recorded_measure():
    recorder = xgboost_recorder("nDCG@10", matrix(VALID))
    stopping = xgboost.callback.EarlyStopping(rounds=4, metric_name="nDCG@10", data_name="valid", maximize=True)
    ranker = xgboost.XGBRanker(n_estimators=60, max_depth=3, callbacks=[recorder, stopping], n_jobs=1)
    ranker.fit(TRAIN.features, TRAIN.lists.labels, qid=TRAIN.lists.query_of_item)
    means = recorder.mean()
    assert ranker.best_iteration == int(np.argmax(means))
    assert len(means) == ranker.best_iteration + 5 < 60
    scores = ranker.predict(VALID.features)
    assert np.nanmean(values_of("nDCG@10", scores, VALID)) == pytest.approx(means.max(), abs=1e-6)


def test_the_frame_has_a_row_per_data_set_round_and_query():
    history = QueryHistory("RR")
    labels, offsets = [1, 0, 0, 0], np.array([0, 2, 4])  # the second query has nothing relevant
    assert history.to_frame().shape == (0, 4)
    for scores in ([2.0, 1.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0]):
        history.record("valid", scores, labels, offsets)
    rows = {"data": ["valid"] * 4, "round": [1, 1, 2, 2], "qid": [0, 1, 0, 1], "value": [1.0, None, 0.5, None]}
    assert history.to_frame().equals(pl.DataFrame(rows))
    assert history.mean().tolist() == [1.0, 0.5]
    assert repr(history) == "QueryHistory(RR; valid: 2 x 2)"


def test_bad_input_has_one_clear_error():
    history = QueryHistory("RR")
    with pytest.raises(ArgumentError, match="data must be one of the recorded data sets, , got None"):
        history.values()
    history.record("valid", [2.0, 1.0], [1, 0], np.array([0, 2]))
    with pytest.raises(ArgumentError, match="data must be one of the recorded data sets, valid, got 'test'"):
        history.values("test")
    with pytest.raises(DataError, match="valid must have the same queries in every round, 1, got 2"):
        history.record("valid", [2.0, 1.0], [1, 1], np.array([0, 1, 2]))
    train = lightgbm.Dataset(TRAIN.features, TRAIN.lists.labels, group=TRAIN.lists.sizes)
    with pytest.raises(ArgumentError, match="LightGBMRecorder needs evaluation data of one booster"):
        lightgbm.train(TREES, train, 2, callbacks=[LightGBMRecorder()])
    regression = lightgbm.Dataset(TRAIN.features, TRAIN.lists.labels)
    valid = regression.create_valid(VALID.features, VALID.lists.labels)
    with pytest.raises(ArgumentError, match="LightGBMRecorder needs the group sizes"):
        lightgbm.train(TREES | {"objective": "l2"}, regression, 2, valid_sets=[valid], callbacks=[LightGBMRecorder()])
    with pytest.raises(ArgumentError, match="xgboost_recorder needs a DMatrix with group= or qid="):
        xgboost_recorder("RR", xgboost.DMatrix(np.zeros((2, 1)), [0, 1]))
    with pytest.raises(ArgumentError, match="xgboost_recorder needs the queries of a DMatrix"):
        xgboost_recorder("RR", VALID.features)
    with pytest.raises(DataError, match="labels of matrix must have 2 entries, got 0"):
        xgboost_recorder("RR", xgboost.DMatrix(np.zeros((2, 1)), qid=[0, 0]))
    with pytest.raises(DataError, match="RR is not defined for any of the 1 queries"):
        xgboost_recorder("RR", xgboost.DMatrix(np.zeros((2, 1)), [0, 0], qid=[0, 0]))


def test_without_xgboost_the_error_names_the_extra(monkeypatch):
    xgboost_module._recorder_class.cache_clear()
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.setitem(sys.modules, "xgboost.callback", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[xgboost\]"'):
        xgboost_recorder("RR", None)
