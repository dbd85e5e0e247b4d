"""Searches of scikit-learn over rankers of four libraries: queries are not split, and every fold is scored by query."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("catboost")
pytest.importorskip("lightgbm")
pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("xgboost")

import catboost
import lightgbm
import pandas as pd
import sklearn
import xgboost
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rankbound as rb
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.integrations import QueryRanker, ranking_scorer
from rankbound.models import LambdaMART, MLPRanker, QueryKFold

DATA = synthetic_letor(queries=36, features=5, seed=3, documents=(4, 12))
X, Y = np.asarray(DATA.features), DATA.lists.labels
QID = np.array([f"query {index:02}" for index in DATA.lists.query_of_item])
MIXED = np.random.default_rng(0).permutation(len(Y))  # rows in no order

LIGHTGBM = QueryRanker(lightgbm.LGBMRanker(n_estimators=8, min_child_samples=5, verbose=-1, n_jobs=1))
XGBOOST = QueryRanker(xgboost.XGBRanker(n_estimators=8, n_jobs=1))
CATBOOST = QueryRanker(
    catboost.CatBoostRanker(iterations=8, verbose=False, allow_writing_files=False, thread_count=1, random_seed=0)
)
RANKERS = {
    "LGBMRanker": (LIGHTGBM, {"estimator__num_leaves": [2, 15]}),
    "XGBRanker": (XGBOOST, {"estimator__max_depth": [1, 4]}),
    "CatBoostRanker": (CATBOOST, {"estimator__depth": [1, 4]}),
    "LambdaMART": (LambdaMART(n_estimators=8, min_child_samples=5, n_jobs=1), {"num_leaves": [2, 15]}),
    "MLPRanker": (MLPRanker(hidden=(4,), epochs=12), {"learning_rate": [1e-4, 3e-2]}),
}


@pytest.fixture(autouse=True)
def _routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def mean_of(measure, scores, rows):
    return rb.evaluate(rb.Lists.from_qid(Y[rows], QID[rows], scores), measures=[measure]).mean()[measure]


@pytest.mark.parametrize("kind", [GridSearchCV, RandomizedSearchCV])
@pytest.mark.parametrize("name", RANKERS)
def test_searches_choose_the_parameters_that_rank_held_out_queries_best(name, kind):
    ranker, grid = RANKERS[name]
    options = {"n_iter": 2, "random_state": 0} if kind is RandomizedSearchCV else {}
    folds = QueryKFold(2)
    search = kind(ranker, grid, scoring=ranking_scorer("EM(nDCG@10)"), cv=folds, error_score="raise", **options)
    search.fit(X[MIXED], Y[MIXED], qid=QID[MIXED])
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) == 2  # the parameter matters
    assert search.best_score_ == scores.max()
    assert mean_of("EM(nDCG@10)", search.predict(X), slice(None)) > 0
    # the score of a fold is what the same training without scikit-learn gives
    train, test = next(folds.split(X[MIXED], groups=QID[MIXED]))
    train, test = MIXED[train], MIXED[test]
    by_hand = clone(ranker).set_params(**search.cv_results_["params"][0]).fit(X[train], Y[train], qid=QID[train])
    expected = mean_of("EM(nDCG@10)", by_hand.predict(X[test]), test)
    assert search.cv_results_["split0_test_score"][0] == pytest.approx(expected, abs=1e-12)


def test_xgb_ranker_works_without_the_adapter_on_sorted_rows():
    ranker = xgboost.XGBRanker(n_estimators=5, n_jobs=1).set_fit_request(qid=True)
    search = GridSearchCV(ranker, {"max_depth": [1, 4]}, scoring=ranking_scorer("nDCG@10"), cv=QueryKFold(2))
    search.fit(X, Y, qid=DATA.lists.query_of_item)
    assert np.isfinite(search.best_score_)


def test_several_scorers_pipelines_and_frames():
    pipeline = make_pipeline(StandardScaler(), LambdaMART(n_estimators=5, min_child_samples=5, n_jobs=1))
    scorers = {"nDCG": ranking_scorer("nDCG"), "U": ranking_scorer("U")}
    scores = cross_validate(
        pipeline, pd.DataFrame(X, columns=list("abcde")), Y, scoring=scorers, cv=QueryKFold(3), params={"qid": QID}
    )
    assert scores["test_nDCG"].shape == (3,)
    assert (scores["test_U"] < 0).all()  # lower is better, so the score is negative
    frame = pd.DataFrame(X, columns=list("abcde"))
    of_frame, of_array = (clone(LIGHTGBM).fit(data, Y[MIXED], qid=QID[MIXED]) for data in (frame.iloc[MIXED], X[MIXED]))
    np.testing.assert_allclose(of_frame.predict(frame), of_array.predict(X))


@pytest.mark.parametrize("ranker", [LIGHTGBM, XGBOOST, CATBOOST], ids=["LightGBM", "XGBoost", "CatBoost"])
def test_the_adapter_trains_what_the_ranker_alone_trains(ranker):
    query, sizes = DATA.lists.query_of_item, DATA.lists.sizes
    weights = rb.difficulty_weights(Y, QID, per="row")
    by_query = rb.difficulty_weights(Y, QID)
    alone = clone(ranker.estimator)
    alone.fit(X, Y, **{
        "LGBMRanker": {"group": sizes, "sample_weight": weights},
        "XGBRanker": {"qid": query, "sample_weight": by_query},
        "CatBoostRanker": {"group_id": query, "group_weight": weights},
    }[type(alone).__name__])  # fmt: skip
    adapted = clone(ranker).fit(X, Y, qid=QID, sample_weight=weights)
    np.testing.assert_allclose(adapted.predict(X), alone.predict(X), rtol=1e-6)
    assert adapted.score(X, Y, qid=QID) == pytest.approx(mean_of("nDCG@10", adapted.predict(X), slice(None)), abs=1e-12)


def test_the_splitter_accepts_qid_or_groups():
    folds = QueryKFold(3)
    by_qid, by_groups = (list(folds.split(X, Y, **{name: QID})) for name in ("qid", "groups"))
    for (train, test), (same_train, same_test) in zip(by_qid, by_groups, strict=True):
        assert (train.tolist(), test.tolist()) == (same_train.tolist(), same_test.tolist())
        assert not set(QID[train]) & set(QID[test])


def test_bad_input_has_one_clear_error():
    fitted = clone(LIGHTGBM).fit(X, Y, qid=QID)
    scorer = ranking_scorer("nDCG@10")
    with pytest.raises(DataError, match=r"ranking_scorer requires qid, got None: call sklearn\.set_config"):
        scorer(fitted, X, Y)
    with pytest.raises(DataError, match=r"fit requires qid, got None; in a search, call sklearn\.set_config"):
        clone(LIGHTGBM).fit(X, Y)
    with pytest.raises(DataError, match="score requires qid, got None"):
        fitted.score(X, Y)
    with pytest.raises(DataError, match=f"qid must have {len(Y)} entries, got {len(Y) - 1}"):
        clone(LIGHTGBM).fit(X, Y, qid=QID[1:])
    with pytest.raises(DataError, match="nDCG@10 is not defined for any of the 36 queries"):
        scorer(fitted, X, np.zeros(len(Y)), qid=QID)
    with pytest.raises(
        ArgumentError, match="estimator must be a ranker whose fit has qid, group_id or group, got Ridge"
    ):
        QueryRanker(Ridge()).fit(X, Y, qid=QID)
    with pytest.raises(ArgumentError, match="predict requires a fitted estimator"):
        clone(LIGHTGBM).predict(X)
    with pytest.raises(DataError, match="groups must be the query of each row, got None"):
        GridSearchCV(fitted, {"measure": ["AP"]}, cv=QueryKFold(2)).fit(X, Y)
    with pytest.raises(ArgumentError, match="must not need reference runs"):
        ranking_scorer("STD(nDCG@10)")
    assert repr(scorer) == "ranking_scorer('nDCG@10')"
