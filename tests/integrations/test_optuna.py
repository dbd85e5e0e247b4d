"""Pruning of trials of Optuna by any measure, in LightGBM, XGBoost and our rankers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("optuna")
pytest.importorskip("xgboost")

import lightgbm
import optuna
import xgboost

from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError
from rankbound.integrations import (
    lightgbm_metric,
    lightgbm_pruning,
    ranker_pruning,
    xgboost_metric,
    xgboost_pruning,
    xgboost_recorder,
)
from rankbound.models import LambdaMART, MLPRanker, RankBoost

DATA = synthetic_letor(queries=45, features=5, seed=3, documents=(4, 12))
TRAIN, VALID = DATA.take(range(30)), DATA.take(range(30, 45))
MEASURE, ROUNDS = "EM(nDCG@10)", 8
GOOD = [True, True, False, False]  # the last two trials see noise in place of the features


def features(part, good):
    return part.features if good else np.random.default_rng(1).normal(size=part.features.shape)


def matrix(part, good=True):
    return xgboost.DMatrix(features(part, good), part.lists.labels, qid=part.lists.query_of_item, nthread=1)


def in_lightgbm(trial, good):
    train = lightgbm.Dataset(features(TRAIN, good), TRAIN.lists.labels, group=TRAIN.lists.sizes)
    valid = train.create_valid(features(VALID, good), VALID.lists.labels, group=VALID.lists.sizes)
    logged = {}
    lightgbm.train(
        {"objective": "lambdarank", "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1},
        train, ROUNDS, valid_sets=[train, valid], feval=lightgbm_metric(MEASURE),
        callbacks=[lightgbm_pruning(trial, MEASURE), lightgbm.record_evaluation(logged)],
    )  # fmt: skip
    return logged["valid_1"][MEASURE]


def in_xgboost(trial, good):
    logged = {}
    xgboost.train(
        {"objective": "rank:ndcg", "max_depth": 3, "nthread": 1}, matrix(TRAIN, good), ROUNDS,
        evals=[(matrix(TRAIN, good), "train"), (matrix(VALID, good), "valid")], custom_metric=xgboost_metric(MEASURE),
        callbacks=[xgboost_pruning(trial, MEASURE)], evals_result=logged, verbose_eval=False,
    )  # fmt: skip
    return logged["valid"][MEASURE]


def in_xgb_ranker(trial, good):
    recorder = xgboost_recorder(MEASURE, matrix(VALID, good))
    callbacks = [recorder, xgboost_pruning(trial, MEASURE, "valid")]
    ranker = xgboost.XGBRanker(n_estimators=ROUNDS, max_depth=3, callbacks=callbacks, n_jobs=1)
    ranker.fit(features(TRAIN, good), TRAIN.lists.labels, qid=TRAIN.lists.query_of_item)
    return recorder.mean().tolist()


def in_our_trees(trial, good):
    return fitted(trial, LambdaMART(n_estimators=ROUNDS, min_child_samples=5, measure=MEASURE, n_jobs=1), good)


def in_our_network(trial, good):
    return fitted(trial, MLPRanker(hidden=(4,), epochs=ROUNDS, learning_rate=0.1, measure=MEASURE), good)


def fitted(trial, ranker, good):
    parts = [(features(part, good), part.lists.labels, part.lists.query_of_item) for part in (TRAIN, VALID)]
    ranker_pruning(trial, ranker).fit(*parts[0][:2], qid=parts[0][2], eval_set=parts[1])
    return [ranker.eval_score_]  # of the best step


def run(train):
    """Run the trials, and return them and the values of the first."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=2)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    curves = []

    def objective(trial):
        curves.append(train(trial, GOOD[trial.number]))
        return curves[-1][-1]

    study.optimize(objective, n_trials=len(GOOD))
    return study.trials, curves[0]


@pytest.mark.parametrize("train", [in_lightgbm, in_xgboost, in_xgb_ranker, in_our_trees, in_our_network])
def test_trials_that_fall_behind_are_pruned(train):
    trials, curve = run(train)
    assert [trial.state.name for trial in trials] == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED"]
    reported = trials[0].intermediate_values
    assert list(reported) == list(range(ROUNDS))
    if len(curve) == ROUNDS:
        np.testing.assert_allclose(list(reported.values()), curve, rtol=0, atol=1e-12)
    else:
        assert max(reported.values()) == pytest.approx(curve[0], abs=1e-9)
    assert 3 <= len(trials[2].intermediate_values) < ROUNDS  # not within the two steps of the warm-up


def test_bad_input_has_one_clear_error():
    trial = optuna.create_study(direction="minimize").ask()
    for prune in (
        lambda: lightgbm_pruning(trial),
        lambda: xgboost_pruning(trial),
        lambda: ranker_pruning(trial, LambdaMART()),
    ):
        with pytest.raises(ArgumentError, match=r"direction of the study must be maximize for nDCG.*got minimize"):
            prune()
    lightgbm_pruning(trial, "U")  # lower is better
    fixed = optuna.trial.FixedTrial({})
    with pytest.raises(ArgumentError, match=r"ranker must be a ranker of rankbound\.models, got LGBMRanker"):
        ranker_pruning(fixed, lightgbm.LGBMRanker())
    assert ranker_pruning(fixed, RankBoost()).measure == RankBoost().measure
    train = lightgbm.Dataset(TRAIN.features, TRAIN.lists.labels, group=TRAIN.lists.sizes)
    valid = train.create_valid(VALID.features, VALID.lists.labels, group=VALID.lists.sizes)
    for name, message in (
        (None, "the evaluation data, nDCG@10 on valid_0, got AP"),
        ("test", "data 'test', nDCG@10 on"),
    ):
        with pytest.raises(ArgumentError, match=f"measure must be a metric of {message}"):
            lightgbm.train(
                {"objective": "lambdarank", "verbose": -1, "metric": "None", "num_threads": 1}, train, 2,
                valid_sets=[valid], feval=lightgbm_metric("nDCG@10"), callbacks=[lightgbm_pruning(fixed, "AP", name)],
            )  # fmt: skip
    with pytest.raises(
        ArgumentError, match="measure must be a metric of the evaluation data, which log none, got nDCG@10"
    ):
        xgboost.train({"nthread": 1}, matrix(TRAIN), 1, callbacks=[xgboost_pruning(fixed)])


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[tune\]"'):
        lightgbm_pruning(None)
