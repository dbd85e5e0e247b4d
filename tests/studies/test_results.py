"""From scores to tables: choice, means, intervals, differences and published numbers, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from rankbound.errors import DataError
from rankbound.evaluation.inference import Inference
from rankbound.studies.results import estimate, read_published, results_table
from rankbound.studies.store import open_store
from rankbound.studies.trial import Outcome

from .conftest import USERS

RNG = np.random.default_rng(3)


def test_an_interval_over_folds_of_the_same_users_is_that_of_their_means():
    values = RNG.random((3, 40))
    names = [f"u{at}" for at in range(40)]
    found = estimate([(names, fold) for fold in values])
    per_user = values.mean(axis=0)
    assert found.mean == pytest.approx(per_user.mean())
    assert found.error == pytest.approx(per_user.std(ddof=1) / math.sqrt(40))


def test_an_interval_over_folds_of_different_queries_adds_their_variances():
    first, second = RNG.random(30), RNG.random(50)
    found = estimate([([f"a{at}" for at in range(30)], first), ([f"b{at}" for at in range(50)], second)])
    assert found.mean == pytest.approx((first.mean() + second.mean()) / 2)
    expected = math.sqrt((first.var() / 30 + second.var() / 50) / 4 * 80 / 79)
    assert found.error == pytest.approx(expected)


def test_an_interval_over_pairs_is_that_of_drawing_persons_anew():
    people = 60
    pairs = np.array([(a, b) for a in range(people) for b in range(a)])
    strength = RNG.normal(size=people)
    values = (strength[pairs[:, 0]] + strength[pairs[:, 1]] + RNG.normal(size=len(pairs)) > 0).astype(float)
    found = estimate([([f"{a}|{b}" for a, b in pairs], values)], pairs=True)
    means = []
    for _ in range(3000):
        times = np.bincount(RNG.integers(0, people, people), minlength=people)
        means.append(np.average(values, weights=times[pairs[:, 0]] * times[pairs[:, 1]]))
    assert found.error == pytest.approx(np.std(means), rel=0.1)


def test_p_values_and_degenerate_parts():
    found = estimate([(["a", "b", "c"], [1.0, 2.0, 3.0])])
    theirs = stats.ttest_1samp([1.0, 2.0, 3.0], 0.0)
    assert found.p_value == pytest.approx(theirs.pvalue)
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval()))
    assert found.p_value == pytest.approx(Inference().p_values([[1.0], [2.0], [3.0]])[0])
    assert estimate([(["a", "b"], [1.0, 1.0])]).p_value == 1.0
    assert math.isnan(estimate([]).mean)


@pytest.fixture
def made(plan, tmp_path):
    """A store in which the rate 0.1 won on validation in fold 0 and 0.01 in fold 1; scores tell all apart."""
    planned = plan(USERS)
    with open_store(tmp_path / "store", create=True) as store:
        for one in planned:
            fold, rate, loss = one.trial.spec.fold, one.trial.spec.params["learning_rate"], one.trial.spec.loss
            base = 0.5 + 0.1 * (rate == 0.1) + 0.01 * fold + 0.001 * (one.setting["bounding"] == "min-max")
            names = [f"u{at}" for at in range(4)]
            scores = pl.DataFrame({"qid": names, "items": 2, "relevant": 1, "nDCG": [base, base, base + 0.2, None],
                                   "AP": [base / 2] * 4})  # fmt: skip
            won = (rate == 0.1) == (fold == 0)
            if one is planned[-1]:
                store.put_failure(one.trial, "it went astray\ntraceback")
            else:
                store.put(one.trial, Outcome(scores, pl.DataFrame(), {"eval_score": float(won)}, 1.0))
            assert loss in ("nDCG", "AP")
        store.register("mine", planned)
        yield store, planned


def test_rows_have_the_chosen_trial_of_each_fold(made):
    store, _ = made
    table = store.results("mine")
    assert table.height == 4 * 2
    row = table.row(0, named=True)
    assert (row["loss"], row["bounding"], row["measure"], row["published"]) == ("nDCG", "none", "nDCG", None)
    third = 0.2 / 3
    assert row["ours"] == pytest.approx(((0.6 + third) + (0.51 + third)) / 2)  # null is left out
    assert row["chosen"] == "learning_rate=0.1 x1; learning_rate=0.01 x1"
    tested = table.filter(bounding="min-max", loss="nDCG", measure="nDCG").row(0, named=True)
    assert tested["versus"] == "nDCG · none"
    assert tested["versus_difference"] == pytest.approx(0.001)
    failed = table.filter(bounding="min-max", loss="AP", measure="nDCG").row(0, named=True)
    assert failed["note"] == "1 of 4 trials failed; first error: it went astray"
    assert failed["ours"] == pytest.approx(((0.601 + third) + (0.511 + third)) / 2)
    scores = store.score_table("mine").filter(system="nDCG · none")
    assert scores["nDCG"].to_list() == [0.6, 0.6, pytest.approx(0.8), None, 0.51, 0.51, pytest.approx(0.71), None]


def test_published_numbers_are_compared_with_ours(made, tmp_path):
    store, _ = made
    slots = store.slots("mine")
    keys = {key for one in slots for key in one.setting}
    path = tmp_path / "p.csv"
    path.write_text("loss,bounding,fold,measure,published\nnDCG,none,0,nDCG,0.5\nnDCG,none,1,nDCG,0.7\nAP,,,AP,0.25\n")
    table = results_table(store, slots, read_published(path, keys))
    row = table.row(0, named=True)
    assert row["published"] == pytest.approx(0.6)
    assert row["difference"] == pytest.approx(row["ours"] - 0.6)
    assert table.filter(loss="AP", measure="AP")["published"].to_list() == [0.25, 0.25]  # an empty cell fits all
    assert table.filter(loss="AP", measure="nDCG")["published"].null_count() == 2
    one_fold = [one for one in slots if one.fold == 1]
    assert results_table(store, one_fold, read_published(path, keys))["published"][0] == pytest.approx(0.7)
    path.write_text("losses,measure,published\nnDCG,nDCG,0.5\n")
    with pytest.raises(DataError, match=r"p.csv: columns must be measure, published and settings of the study"):
        read_published(path, keys)
    path.write_text("loss,measure,published\nnDCG,nDCG,0.5\nnDCG,nDCG,0.6\n")
    with pytest.raises(DataError, match="2 rows match the setting"):
        results_table(store, slots, read_published(path, keys))


def test_each_measure_can_have_its_own_grid_point(plan, tmp_path):
    text = USERS.replace("versus", "selection = 'test'\nchoose = 'each'\nversus")
    planned = plan(text)
    with open_store(tmp_path / "store", create=True) as store:
        for one in planned:
            high = one.trial.spec.params["learning_rate"] == 0.1
            scores = pl.DataFrame({"qid": ["a", "b"], "items": 2, "relevant": 1, "nDCG": 0.9 if high else 0.8,
                                   "AP": 0.3 if high else 0.4})  # fmt: skip
            store.put(one.trial, Outcome(scores, pl.DataFrame(), {"eval_score": 0.9 if high else 0.8}, 1.0))
        store.register("mine", planned)
        table = store.results("mine").filter(loss="nDCG", bounding="none")
        assert table["ours"].to_list() == pytest.approx([0.9, 0.4])
        assert table["chosen"].to_list() == ["learning_rate=0.1 x2", "learning_rate=0.01 x2"]
        assert store.score_table("mine")["AP"].unique().to_list() == [0.4]
