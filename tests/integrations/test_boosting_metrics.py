"""Measures as metrics of LightGBM and XGBoost, and early stopping by them with our objective."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")

import lightgbm
import xgboost

import rankbound as rb
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.integrations import lightgbm_metric, xgboost_metric
from rankbound.losses import lightgbm_objective, xgboost_objective

DATA = synthetic_letor(queries=90, features=8, seed=4, documents=(5, 30))
TRAIN, VALID = DATA.take(range(60)), DATA.take(range(60, 90))
TREES = {"num_leaves": 7, "verbose": -1, "num_threads": 1, "metric": "None", "learning_rate": 0.3}
MEASURES = ["nDCG@10", "EM(nDCG@10)", "AP", "RR", "U"]


def mean_of(measure, scores, part=VALID):
    return rb.evaluate(part.lists.with_scores(np.asarray(scores, dtype=np.float64)), measures=[measure]).mean()[measure]


def lightgbm_data():
    train = lightgbm.Dataset(TRAIN.features, TRAIN.lists.labels, group=TRAIN.lists.sizes)
    return train, train.create_valid(VALID.features, VALID.lists.labels, group=VALID.lists.sizes)


def matrix(part):
    return xgboost.DMatrix(part.features, part.lists.labels, qid=part.lists.query_of_item, nthread=1)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_metric_is_the_mean_that_evaluate_computes(measure):
    scores = np.random.default_rng(1).normal(size=len(VALID.lists.labels)).astype(np.float32)
    name, value, higher = lightgbm_metric(measure)(VALID.lists.labels, scores, None, VALID.lists.sizes)
    assert (name, higher) == (measure, measure != "U")
    assert value == pytest.approx(mean_of(measure, scores), abs=1e-12)
    assert xgboost_metric(measure)(scores, matrix(VALID)) == (name, pytest.approx(value, abs=1e-12))


@pytest.mark.parametrize("measure", ["nDCG@10", "EM(AP)"])
def test_early_stopping_in_lightgbm_train(measure):
    train, valid = lightgbm_data()
    history = {}
    callbacks = [lightgbm.early_stopping(5, verbose=False), lightgbm.record_evaluation(history)]
    booster = lightgbm.train(
        TREES | {"objective": lightgbm_objective()}, train, 200, valid_sets=[valid], feval=lightgbm_metric(measure),
        callbacks=callbacks,
    )  # fmt: skip
    values = history["valid_0"][measure]
    assert booster.best_iteration == int(np.argmax(values)) + 1
    assert len(values) < 200  # it stopped
    scores = booster.predict(VALID.features, num_iteration=booster.best_iteration)
    assert mean_of(measure, scores) == pytest.approx(max(values), abs=1e-9)


@pytest.mark.filterwarnings("ignore:The argument .eval_set. is deprecated")  # by LightGBM 4.7
def test_early_stopping_in_lgbm_ranker():
    # without metric="None", LGBMRanker stops by its own ndcg@1 to ndcg@5, too
    options = {"metric": "None", "n_estimators": 200, "num_leaves": 7, "learning_rate": 0.3, "verbose": -1, "n_jobs": 1}
    ranker = lightgbm.LGBMRanker(objective=lightgbm_objective(), **options)
    ranker.fit(
        TRAIN.features, TRAIN.lists.labels, group=TRAIN.lists.sizes,
        eval_set=[(VALID.features, VALID.lists.labels)], eval_group=[VALID.lists.sizes],
        eval_metric=lightgbm_metric("nDCG@10"), callbacks=[lightgbm.early_stopping(5, verbose=False)],
    )  # fmt: skip
    values = ranker.evals_result_["valid_0"]["nDCG@10"]
    assert ranker.best_iteration_ == int(np.argmax(values)) + 1 < 200
    assert mean_of("nDCG@10", ranker.predict(VALID.features)) == pytest.approx(max(values), abs=1e-9)


def test_early_stopping_in_xgboost_train():
    history = {}
    booster = xgboost.train(
        {"disable_default_eval_metric": 1, "max_depth": 3, "eta": 0.3, "nthread": 1}, matrix(TRAIN), 200,
        obj=xgboost_objective(), evals=[(matrix(VALID), "valid")], custom_metric=xgboost_metric("nDCG@10"),
        maximize=True, early_stopping_rounds=5, evals_result=history, verbose_eval=False,
    )  # fmt: skip
    values = history["valid"]["nDCG@10"]
    assert booster.best_iteration == int(np.argmax(values)) < 199
    scores = booster.predict(matrix(VALID), iteration_range=(0, booster.best_iteration + 1), output_margin=True)
    assert mean_of("nDCG@10", scores) == pytest.approx(max(values), abs=1e-6)


def test_xgb_ranker_refuses_functions_and_ours_say_what_to_use():
    with pytest.raises(ValueError, match="custom objective function not supported by XGBRanker"):
        xgboost.XGBRanker(objective=xgboost_objective())
    with pytest.raises(ArgumentError, match=r"use xgboost\.train, got ndarray"):
        xgboost_objective()(np.zeros(3), np.zeros(3))
    ranker = xgboost.XGBRanker(n_estimators=2, eval_metric=xgboost_metric(), n_jobs=1)
    query = VALID.lists.query_of_item
    with pytest.raises(ArgumentError, match=r"use xgboost\.train, or XGBRanker\(callbacks=.*got ndarray"):
        ranker.fit(
            TRAIN.features, TRAIN.lists.labels, qid=TRAIN.lists.query_of_item,
            eval_set=[(VALID.features, VALID.lists.labels)], eval_qid=[query],
        )  # fmt: skip


def test_groups_are_needed_and_must_add_up():
    with pytest.raises(ArgumentError, match="needs the group sizes of the data"):
        lightgbm_metric()([1, 0], [0.1, 0.2])
    with pytest.raises(DataError, match="group must add up to the number of scores, 2"):
        lightgbm_metric()([1, 0], [0.1, 0.2], None, [3])
    with pytest.raises(ArgumentError, match="DMatrix with group= or qid="):
        xgboost_metric()(np.zeros(2), xgboost.DMatrix(np.zeros((2, 1)), [0, 1]))
    with pytest.raises(DataError, match="nDCG@10 is not defined for any of the 2 queries"):
        lightgbm_metric()([0, 0, 0], [0.1, 0.2, 0.3], None, [2, 1])
