"""The outcome of a trial: equal every time, and equal to that of the same calls of the library by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankbound.data import read_letor, read_ratings, sample_lists, user_folds
from rankbound.data.synthetic import synthetic_images, synthetic_interactions
from rankbound.errors import DataError
from rankbound.evaluation import evaluate, evaluate_lists
from rankbound.evaluation.query_sets import expected_scores
from rankbound.evaluation.score_tables import measures_of
from rankbound.lists import Lists
from rankbound.models import EASE, AdaRank, MatrixFactorization, Monitoring, evaluate_recommender
from rankbound.studies import trial as trials
from rankbound.studies.expansion import expand, make_quick, select
from rankbound.studies.store import open_store
from rankbound.studies.study_files import load_study
from rankbound.studies.trial import run_trial

from .conftest import ROWS, USERS


def test_rows_are_what_the_model_gives_by_hand(plan, folder):
    text = "title = 'x'\n[[tables]]\ndata = { letor = 'letor' }\nmodel = 'AdaRank'\nmeasures = ['nDCG', 'AP']\n"
    (slot,) = plan(text)
    outcome = run_trial(slot.trial)
    train, valid, test = (read_letor(folder / "letor" / f"{name}.txt") for name in ("train", "vali", "test"))
    columns = [(part.features, part.lists.labels, part.lists.query_of_item) for part in (train, valid)]
    ranker = AdaRank(measure="nDCG").fit(*columns[0][:2], qid=columns[0][2], eval_set=columns[1])
    expected = evaluate_lists(test.lists.with_scores(ranker.predict(test.features)), ["nDCG", "AP"])
    for name in ("nDCG", "AP"):
        np.testing.assert_array_equal(outcome.scores[name].fill_null(np.nan).to_numpy(), expected.values[name])
    assert outcome.scores["items"].to_list() == test.lists.sizes.tolist()
    assert outcome.scores["qid"].to_list() == [str(name) for name in test.lists.query_ids]
    relevant = [int((labels >= 1).sum()) for labels in np.split(test.lists.labels, test.lists.offsets[1:-1])]
    assert outcome.scores["relevant"].to_list() == relevant
    assert outcome.metadata["eval_score"] == ranker.eval_score_


@pytest.mark.parametrize("selection", ["test", "last"])
def test_rows_of_the_validation_part_can_be_trained_on(plan, folder, selection):
    text = "title = 'x'\n[[tables]]\ndata = { letor = 'letor' }\nmodel = 'AdaRank'\nmeasures = ['nDCG']\n"
    (without,) = plan(f"{text}selection = '{selection}'\n")
    (slot,) = plan(f"{text}selection = '{selection}'\ntrain_on_validation = true\n")
    assert without.trial.identified().id != slot.trial.identified().id
    outcome = run_trial(slot.trial)
    train, valid, test = (read_letor(folder / "letor" / f"{name}.txt") for name in ("train", "vali", "test"))
    X = np.concatenate((train.features, valid.features))
    y = np.concatenate((train.lists.labels, valid.lists.labels))
    qid = np.concatenate((train.lists.query_of_item, valid.lists.query_of_item + len(train.lists)))
    held_out = (test.features, test.lists.labels, test.lists.query_of_item) if selection == "test" else None
    ranker = AdaRank(measure="nDCG").fit(X, y, qid=qid, eval_set=held_out)
    expected = evaluate_lists(test.lists.with_scores(ranker.predict(test.features)), ["nDCG"])
    np.testing.assert_array_equal(outcome.scores["nDCG"].fill_null(np.nan).to_numpy(), expected.values["nDCG"])
    assert outcome.metadata["queries"] == len(train.lists) + len(valid.lists)


def test_preparation_of_rows(plan):
    text = ROWS.replace("measures", "prepare = { binarize = 2, scale = 'min-max', relevant = 1, first = 5 }\nmeasures")
    scores = run_trial(plan(text)[0].trial).scores
    assert scores.height == 5
    assert scores["relevant"].min() >= 1


def test_users_choose_within_the_training_folds_and_are_trained_again(plan, folder):
    slot = plan(USERS.replace("folds = 2", "folds = 3"))[0]
    assert (slot.trial.spec.loss, slot.trial.spec.params["learning_rate"], slot.trial.spec.fold) == (
        "nDCG",
        0.01,
        0,
    )
    outcome = run_trial(slot.trial)
    table = read_ratings(folder / "ratings.csv")
    fold = user_folds(table, 3, 0)

    def columns(part):
        return np.repeat(part.users, part.lists.sizes), part.items, part.lists.labels

    learn, choose = sample_lists(table.rows(fold == 2), table.rows(fold == 1), seed=0)
    common = {"factors": 4, "learning_rate": 0.01, "measure": "nDCG"}
    first = MatrixFactorization(epochs=4, monitoring=Monitoring(eval_every=1), **common).fit(
        *columns(learn), eval_set=columns(choose)
    )
    train, test = sample_lists(table.rows(fold != 0), table.rows(fold == 0), seed=0)
    again = MatrixFactorization(epochs=first.kept_epoch_, **common).fit(*columns(train))
    users, items, _ = columns(test)
    expected = evaluate_lists(test.lists.with_scores(again.predict(users, items)), ["nDCG"]).values["nDCG"]
    np.testing.assert_array_equal(outcome.scores["nDCG"].to_numpy(), expected)
    assert outcome.metadata["eval_score"] == first.eval_score_
    assert outcome.history.filter(quantity="validation nDCG").height == 4


def test_other_ways_to_choose_and_to_split(plan):
    tested = USERS.replace("versus", "selection = 'test'\nchoose = 'each'\nprotocol = 'published'\nversus")
    outcome = run_trial(plan(tested)[0].trial)
    assert outcome.scores["nDCG"].mean() == pytest.approx(outcome.metadata["eval_score"], abs=1e-12)
    last = USERS.replace(
        "grid = { learning_rate = [0.01, 0.1] }", "selection = 'last'\nsplit = 'monte-carlo'\ntest_fraction = 0.3"
    )
    outcome = run_trial(plan(last)[0].trial)
    assert outcome.metadata["kept_epoch"] == 4
    assert "eval_score" not in outcome.metadata
    more = run_trial(plan(last.replace("nsr = 1", "nsr = 1\ntest_nsr = 2"))[0].trial)
    assert more.scores["items"].sum() == 1.5 * outcome.scores["items"].sum()
    assert more.scores["relevant"].to_list() == outcome.scores["relevant"].to_list()


def test_users_are_tested_on_the_whole_catalog(plan, folder):
    text = USERS.replace("folds = 2", "folds = 3").replace("nsr = 1", "nsr = 1\ntest = ['sampled', 'full']")
    text = text.replace('["nDCG", "AP"]\ngrid', '["nDCG@10", "EM(AP)"]\ngrid')
    slots = [slot for slot in plan(text) if slot.trial.spec.fold == 0 and slot.trial.spec.loss == "nDCG"]
    sampled, full = (next(s for s in slots if s.trial.spec.users.test == test) for test in ("sampled", "full"))
    assert (sampled.variant, full.variant) == ("NSR 1", "NSR 1, full ranking")
    assert "test" not in sampled.setting
    assert full.setting["test"] == "full"
    outcome = run_trial(full.trial)
    table = read_ratings(folder / "ratings.csv")
    fold = user_folds(table, 3, 0)
    train, test = table.rows(fold != 0), table.rows(fold == 0)
    held_out = table.rows(fold == 2), table.rows(fold == 1)
    lists, learn = sample_lists(train, test, seed=0)[0], sample_lists(*held_out, seed=0)[0]

    def fitted(part, epochs):
        model = MatrixFactorization(epochs=epochs, factors=4, learning_rate=0.01)
        return model.fit(np.repeat(part.users, part.lists.sizes), part.items, part.lists.labels)

    def values(ranker, part, train, test):
        trained, scores = set(part.items.tolist()), {}
        for user in np.unique(test.users).tolist():
            seen, relevant = (set(part.items[part.users == user].tolist()) for part in (train, test))
            candidates = [item for item in range(len(table.item_names)) if item not in seen]
            known = [item for item in candidates if item in trained]
            own = dict(zip(known, ranker.predict(user, known).tolist(), strict=True))
            labels = [int(item in relevant) for item in candidates]
            ranking = Lists(labels, [0, len(labels)], [own.get(item, -1e9) for item in candidates])
            scores[user] = evaluate_lists(ranking, ["nDCG@10", "EM(AP)"]).mean()
        return scores

    # the epoch is selected by full ranking as well, not on lists with sampled negatives
    by_epoch = [
        np.mean([scores["nDCG@10"] for scores in values(fitted(learn, epochs), learn, *held_out).values()])
        for epochs in range(1, 5)
    ]
    assert outcome.metadata["kept_epoch"] == 1 + int(np.argmax(by_epoch))
    assert outcome.metadata["eval_score"] == pytest.approx(max(by_epoch), abs=1e-6)
    expected = values(fitted(lists, outcome.metadata["kept_epoch"]), lists, train, test)
    assert outcome.scores["qid"].to_list() == [str(table.user_names[user]) for user in expected]
    for name in ("nDCG@10", "EM(AP)"):
        by_hand = [scores[name] for scores in expected.values()]
        np.testing.assert_allclose(outcome.scores[name].to_numpy(), by_hand, atol=1e-6)
    assert outcome.scores["items"].to_list() == (len(table.item_names) - train.per_user[list(expected)]).tolist()
    assert outcome.scores["relevant"].to_list() == test.per_user[list(expected)].tolist()


@pytest.mark.parametrize("test", ["sampled", "full"])
def test_other_recommenders_learn_from_the_choices_alone(plan, folder, test):
    text = f"""
title = "Users"

[[tables]]
data = {{ ratings = "ratings.csv" }}
model = "EASE"
nsr = 1
test = "{test}"
folds = 3
measures = ["nDCG", "AP"]
grid = {{ l2 = [5, 50] }}
"""
    slot = plan(text)[0]
    outcome = run_trial(slot.trial)
    table = read_ratings(folder / "ratings.csv")
    fold = user_folds(table, 3, 0)
    train, held_out = table.rows(fold != 0), table.rows(fold == 0)
    model = EASE(l2=5).fit(train)
    if test == "full":
        expected = evaluate_recommender(model, held_out, "nDCG").values["nDCG"]
    else:
        lists = sample_lists(train, held_out, seed=0)[1]
        users = np.repeat(lists.users, lists.lists.sizes)
        scores = model.predict(table.user_names[users], table.item_names[lists.items])
        expected = evaluate_lists(lists.lists.with_scores(scores), ["nDCG"]).values["nDCG"]
    np.testing.assert_allclose(outcome.scores["nDCG"].to_numpy(), expected, atol=1e-6)
    assert 0 < outcome.metadata["eval_score"] < 1


def test_graded_queries_keep_their_bounds(plan, folder):
    (slot,) = plan(ROWS.replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0]").replace('"AP"]', '"AP", "UL2(nDCG)"]'))
    scores = run_trial(slot.trial).scores
    bounds = [f"{part} {name}" for name in ("AP", "nDCG") for part in ("worst", "expected", "best")]
    assert scores.columns == ["qid", "items", "relevant", "AP", "UL2(nDCG)", "nDCG", *bounds]
    test = read_letor(folder / "letor" / "test.txt").lists
    truth = evaluate(test.with_scores(np.zeros(test.offsets[-1])), measures=["nDCG"], bounds=True).bounds["nDCG"]
    for part in ("worst", "expected", "best"):
        assert scores[f"{part} nDCG"].to_numpy() == pytest.approx(np.asarray(getattr(truth, part)))
    with open_store(folder / "store", create=True) as store:
        store.register("mine", [slot])
        store.put(slot.trial, run_trial(slot.trial))
        assert set(store.metadata()[slot.trial.id]["mean"]) == {"AP", "UL2(nDCG)", "nDCG"}
        table = store.score_table("mine")
    assert measures_of(table) == ["AP", "UL2(nDCG)", "nDCG"]
    counted = scores.filter(pl.col("nDCG").is_not_null())
    assert expected_scores(table, "nDCG")["expected"].to_list() == counted["expected nDCG"].to_list()


def test_binary_queries_need_no_bounds(plan):
    scores = run_trial(plan(USERS.replace("folds = 2", "folds = 3"))[0].trial).scores
    assert not any(name.startswith("expected") for name in scores.columns)


def test_faces_are_pairs(plan, folder):
    faces = synthetic_images(count=200, size=12, seed=2)
    np.savez(folder / "faces.npz", images=faces.images, age=faces.ages)
    text = """
title = "Faces"
[[tables]]
data = { faces = "faces.npz" }
model = "LinearRanker"
loss = ["RankNet", "regression", { loss = "classification", options = { rel = 1 } }]
params = { epochs = 8, batch_size = 1, list_size = 64, learning_rate = 0.01 }
pairs = 300
measures = "pairwise accuracy"
"""
    outcomes = [run_trial(slot.trial) for slot in plan(text)]
    assert [outcome.scores.height for outcome in outcomes] == [300] * 3
    assert all(set(outcome.scores["pairwise accuracy"].unique()) <= {0.0, 0.5, 1.0} for outcome in outcomes)
    assert outcomes[0].scores["pairwise accuracy"].mean() > 0.6  # the older the larger the disc
    assert outcomes[0].scores["qid"].equals(outcomes[1].scores["qid"])


def epochs_twice(fitted):
    """A recorder, as a study may name one."""
    assert set(fitted.parts) == {"train", "validation", "test"}
    return [(1, "weights", float(np.abs(fitted.model.predict(fitted.parts["test"].features)).sum()))]


def test_a_recorder_adds_to_the_history(plan, monkeypatch):
    monkeypatch.setitem(trials.RECORDERS, "weights", epochs_twice)
    outcome = run_trial(plan(ROWS.replace("measures", "record = ['weights']\nmeasures"))[0].trial)
    assert outcome.history.row(0)[:2] == (1, "weights")


def test_data_that_changed_meanwhile_are_refused(plan, folder):
    slot = plan(ROWS)[0]
    with (folder / "letor" / "test.txt").open("a") as stream:
        stream.write("1 qid:99 1:0.5\n0 qid:99 1:0.25\n")
    with pytest.raises(DataError, match="letor: its files on this machine are not those that the study"):
        run_trial(slot.trial)


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("insights-epinions", "epinions/trust_data.txt", "{} {} 1\n"),
        ("insights-amazon", "amazon-sports-2018/Sports_and_Outdoors.csv", "B{1:09d},A{0:013d},5.0,1400000000\n"),
    ],
)
def test_studies_of_data_that_few_have_run_on_files_of_their_form(folder, monkeypatch, name, file, line):
    table = synthetic_interactions(users=40, items=500, seed=3)
    (folder / file).parent.mkdir()
    rows = zip(table.user_names[table.users], table.item_names[table.items], strict=True)
    (folder / file).write_text("".join(line.format(user, item) for user, item in rows))
    monkeypatch.setenv("RANKBOUND_DATA", str(folder))
    study = load_study(name)
    tables = [table for table in study.tables if table.data in file]
    quick = make_quick(study.model_copy(update={"tables": tables}))
    slot = select(expand(quick), {"loss": "nRBP", "nsr": 1, "fold": 1, "learning_rate": 0.1})[0]
    scores = run_trial(slot.trial).scores
    active = table.per_user[table.per_user >= 25]
    assert scores.height == len(active) > 2
    assert scores["relevant"].to_list() == [round(0.2 * count) for count in active]  # a fifth of each user's choices
    assert scores["items"].sum() == 2 * scores["relevant"].sum()


@pytest.mark.real_data
def test_a_trial_of_the_thesis_on_movielens(data_dir):
    wanted = {"table": "MovieLens", "loss": "nDCG", "bounding": "none", "nsr": 1, "fold": 0, "learning_rate": 0.03}
    (slot,) = select(expand(load_study("thesis-5.1")), wanted)
    outcome = run_trial(slot.trial)
    assert outcome.scores.height == 412  # users with 25 ratings from 4 on
    assert outcome.scores["nDCG"].mean() > 0.964  # published 0.9659
