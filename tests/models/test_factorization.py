"""MatrixFactorization: its steps are torch's, its results depend on seed and data alone, and it learns."""

from __future__ import annotations

import functools
import sys
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import torch
from sklearn.base import clone

from rankbound.data import load_fold, load_set, sample_lists, user_folds
from rankbound.data.preparation import prepare_movielens
from rankbound.data.synthetic import synthetic_interactions
from rankbound.errors import ArgumentError, DataError, UnknownUserWarning
from rankbound.losses import NDCGLoss, get_loss, set_threads
from rankbound.models import MatrixFactorization, Monitoring, load_ranker
from rankbound.models.recommenders.factorization.representation import Representation
from tests.killing import kill_when, last_epoch

Columns = tuple[Any, Any, Any]


def columns(part: Any) -> Columns:
    return np.repeat(part.users, part.lists.sizes), part.items, np.array(part.lists.labels)


@functools.cache
def data() -> tuple[Columns, Columns]:
    """Lists to learn from and lists to be judged on."""
    ratings = prepare_movielens(synthetic_interactions(users=150, items=400, seed=3))
    fold = user_folds(ratings, 4, seed=1)
    train, test = sample_lists(ratings.rows(fold != 0), ratings.rows(fold == 0), seed=2)
    return columns(train), columns(test)


def small(users: int = 7, items: int = 12, rows: int = 40, seed: int = 0) -> Columns:
    rng = np.random.default_rng(seed)
    chosen = rng.choice(users * items, rows, replace=False)
    return chosen // items, chosen % items, rng.integers(0, 2, rows)


def factorization(**parameters: Any) -> MatrixFactorization:
    """A model with options next to the other parameters."""
    return MatrixFactorization(**parameters)


def few(**parameters: Any) -> MatrixFactorization:
    return factorization(**{"factors": 8, "epochs": 6, "loss": "nDCG", **parameters})


# ---- the step --------------------------------------------------------------------------------------------------------


def by_torch(columns: Columns, start: MatrixFactorization, **settings: Any) -> tuple[Any, Any]:
    """Three epochs of full batches with embeddings and autograd on the loss of float64 scores."""
    order = np.lexsort((columns[1], columns[0]))
    users, items, labels = (torch.as_tensor(np.asarray(column)[order]) for column in columns)
    _, sizes = np.unique(users.numpy(), return_counts=True)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    user_table = torch.tensor(start.user_vectors_, dtype=torch.float64, requires_grad=True)
    item_table = torch.tensor(start.item_vectors_, dtype=torch.float64, requires_grad=True)
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[settings["optimizer"]]
    optimizer = make([user_table, item_table], lr=settings["learning_rate"])
    shrink = 1 - settings["learning_rate"] * settings.get("l2", 0.0)
    bounding = {"bounding": settings["bounding"]} if "bounding" in settings else {}
    loss = get_loss(settings["loss"], reduction="none", **bounding)
    for _ in range(3):
        optimizer.zero_grad()
        scores = (user_table[users] * item_table[items]).sum(1)
        values = loss(scores, labels, offsets)
        (values.sum() if settings.get("reduction", "sum") == "sum" else values.mean()).backward()
        with torch.no_grad():
            for table in (user_table, item_table):
                table *= shrink
        optimizer.step()
    return user_table.detach().numpy(), item_table.detach().numpy()


def start_of(model: MatrixFactorization, columns: Columns) -> MatrixFactorization:
    """The model before its first step: a step too small to see."""
    return clone(model).set_params(epochs=1, learning_rate=1e-30, optimizer="sgd").fit(*columns)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "sgd", "learning_rate": 0.5, "loss": "nDCG"},
        {"optimizer": "sgd", "learning_rate": 0.1, "loss": "nRBP", "l2": 0.1, "reduction": "mean"},
        {"optimizer": "adam", "learning_rate": 0.05, "loss": "nDCG", "bounding": "expectation-max"},
        {"optimizer": "adam", "learning_rate": 0.05, "loss": "AP", "l2": 0.01, "reduction": "mean"},
    ],
    ids=lambda settings: f"{settings['optimizer']}-{settings['loss']}",
)
def test_three_epochs_are_those_of_torch(settings: dict[str, Any]) -> None:
    rows = small()
    model = factorization(factors=5, init=0.5, epochs=3, batch_size=None, **settings)
    expected = by_torch(rows, start_of(model, rows), **settings)
    model.fit(*rows)
    assert_allclose(model.user_vectors_, expected[0], rtol=2e-4, atol=2e-5)
    assert_allclose(model.item_vectors_, expected[1], rtol=2e-4, atol=2e-5)


def test_adam_on_batches_is_torch_sparse_adam() -> None:
    rows = small()
    model = factorization(factors=4, init=0.5, epochs=3, batch_size=3, learning_rate=0.05)
    start = start_of(model, rows)
    model.fit(*rows)
    tables = [
        torch.nn.Embedding.from_pretrained(torch.tensor(table), freeze=False, sparse=True)
        for table in (start.user_vectors_, start.item_vectors_)
    ]
    optimizer = torch.optim.SparseAdam([table.weight for table in tables], lr=0.05)
    users, items, labels = rows
    loss = get_loss("nDCG", reduction="sum")
    shuffled = np.unique(users)[model._settings("dot").random(0).permutation(len(np.unique(users)))]
    dealt = [np.sort(shuffled[first : first + 3]) for first in range(0, len(shuffled), 3)]
    for epoch in (1, 2, 3):
        for at in model._settings("dot").random(2, epoch).permutation(len(dealt)):
            chosen = np.concatenate([np.flatnonzero(users == user) for user in dealt[at]])
            sizes = [int((users == user).sum()) for user in dealt[at]]
            optimizer.zero_grad()
            pair = [table(torch.as_tensor(c[chosen])) for table, c in zip(tables, (users, items), strict=True)]
            loss(pair[0].mul(pair[1]).sum(1), labels[chosen], np.concatenate(([0], np.cumsum(sizes)))).backward()
            optimizer.step()
    assert_allclose(model.user_vectors_, tables[0].weight.detach().numpy(), rtol=2e-4, atol=2e-5)
    assert_allclose(model.item_vectors_, tables[1].weight.detach().numpy(), rtol=2e-4, atol=2e-5)


OPTIONS = [
    {"similarity": "cosine", "temperature": 0.4},
    {"user_model": "both", "biases": True, "dropout": 0.0},
    {"user_model": "history", "similarity": "cosine", "temperature": 0.5, "biases": True, "dropout": 0.0, "l2": 0.3},
    {"activity_exponent": 0.5, "schedule": "cosine"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["cosine", "both", "history", "weights"])
def test_given_lists_train_every_kind_of_vectors(options: dict[str, Any]) -> None:
    """Three epochs of full batches against embeddings and autograd on the loss of float64 scores."""
    order = np.lexsort((small()[1], small()[0]))
    users, items, labels = (column[order] for column in small())
    model = factorization(
        factors=5, loss="AP", init=0.5, epochs=3, batch_size=None, optimizer="sgd", learning_rate=0.1, **options
    )
    start = clone(model).set_params(epochs=1, learning_rate=1e-30).fit(users, items, labels)
    tables = {
        name: torch.tensor(table, dtype=torch.float64, requires_grad=True) for name, table in start.parameters_.items()
    }
    sizes = np.unique(users, return_counts=True)[1]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    positives = torch.zeros(len(start.user_vectors_), len(start.item_vectors_), dtype=torch.float64)
    positives[users[labels > 0], items[labels > 0]] = 1
    counts = positives.sum(1)
    weights = (counts[np.unique(users)] / counts[counts > 0].mean()) ** options.get("activity_exponent", 0.0)
    loss = get_loss("AP", reduction="none")

    def vectors() -> Any:
        sums = torch.zeros(len(positives), 5, dtype=torch.float64)
        if "users" in tables:
            sums = sums + tables["users"]
        if "history" in tables:
            sums = sums + positives / counts.clamp(min=1).sqrt()[:, None] @ tables["history"]
        return sums, tables["items"]

    def scores_of_rows() -> Any:
        of_users, of_items = vectors()
        if options.get("similarity") == "cosine":
            of_users = of_users / of_users.norm(dim=1, keepdim=True).clamp(min=1e-12) / options["temperature"]
            of_items = of_items / of_items.norm(dim=1, keepdim=True).clamp(min=1e-12)
        scores = (of_users[users] * of_items[items]).sum(1)
        return scores + tables["biases"][items, 0] if "biases" in tables else scores

    for epoch in range(3):
        rate = 0.1 * (1 + np.cos(np.pi * epoch / 3)) / 2 if options.get("schedule") == "cosine" else 0.1
        gradients = torch.autograd.grad((loss(scores_of_rows(), labels, offsets) * weights).sum(), tables.values())
        with torch.no_grad():
            for table, gradient in zip(tables.values(), gradients, strict=True):
                table *= 1 - rate * options.get("l2", 0.0)
                table -= rate * gradient
    model.fit(users, items, labels)
    assert_allclose(model.predict(users, items), scores_of_rows().detach().numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_steps_on_plain_vectors_are_the_general_ones(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    train, test = data()
    model = few(l2=0.1, optimizer=optimizer, reduction="mean").fit(*train, eval_set=test)
    monkeypatch.setattr(Representation, "is_plain", False)
    other = clone(model).fit(*train, eval_set=test)
    assert_allclose(other.user_vectors_, model.user_vectors_, rtol=1e-3, atol=1e-4)
    assert_allclose(other.item_vectors_, model.item_vectors_, rtol=1e-3, atol=1e-4)


# ---- what the result depends on --------------------------------------------------------------------------------------


def assert_same(one: MatrixFactorization, other: MatrixFactorization) -> None:
    assert_array_equal(one.user_vectors_, other.user_vectors_)
    assert_array_equal(one.item_vectors_, other.item_vectors_)
    assert one.history_ == other.history_
    assert one.kept_epoch_ == other.kept_epoch_


@pytest.mark.parametrize("parameters", [{"batch_size": 16}, {"batch_size": None, "optimizer": "sgd", "l2": 0.1}])
def test_same_seed_same_vectors_whatever_the_threads_and_the_order_of_rows(parameters: dict[str, Any]) -> None:
    train, test = data()
    first = few(**parameters).fit(*train, eval_set=test)
    order = np.random.default_rng(0).permutation(len(train[0]))
    assert_same(first, few(**parameters).fit(*(column[order] for column in train), eval_set=test))
    set_threads(1)
    try:
        assert_same(first, few(**parameters).fit(*train, eval_set=test))
    finally:
        set_threads(None)
    other = few(random_state=1, **parameters).fit(*train, eval_set=test)
    assert not np.array_equal(first.user_vectors_, other.user_vectors_)


def test_users_without_a_gradient_change_nothing() -> None:
    users, items, labels = small()
    more = np.append(users, [50, 50, 51]), np.append(items, [0, 1, 2]), np.append(labels, [0, 0, 1])
    first, second = few().fit(users, items, labels), few().fit(*more)
    assert_array_equal(first.user_vectors_, second.user_vectors_)
    assert second.predict([50, 51], [0, 2]).tolist() == [0.0, 0.0]


# ---- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["nDCG", "AP", "nRBP", NDCGLoss(bounding="min-max")])
def test_trained_vectors_rank_better_than_random_ones(loss: Any) -> None:
    train, test = data()
    model = few(loss=loss, epochs=20, factors=16, learning_rate=0.02, eval_every=2).fit(*train, eval_set=test)
    untrained = start_of(model, train)
    assert model.score(*test) > untrained.score(*test) + 0.04
    assert model.eval_score_ == pytest.approx(model.score(*test))


def test_selection_keeps_the_best_epoch_or_the_last() -> None:
    train, test = data()
    settings = {"epochs": 12, "eval_every": 3, "learning_rate": 0.1, "watch": ("AP",)}
    best = few(**settings, selection="test").fit(*train, eval_set=test)
    evaluated = {entry["epoch"]: entry["nDCG"] for entry in best.history_ if "nDCG" in entry}
    assert set(evaluated) == {3, 6, 9, 12}
    assert all("AP" in best.history_[epoch - 1] for epoch in evaluated)
    assert best.kept_epoch_ == max(evaluated, key=lambda epoch: evaluated[epoch])
    assert best.selection_ == "test"
    assert best.score(*test) == pytest.approx(max(evaluated.values())) == best.eval_score_
    last = few(**settings, selection="last").fit(*train, eval_set=test)
    assert last.kept_epoch_ == 12
    assert last.eval_score_ == pytest.approx(evaluated[12])
    assert few(**settings).fit(*train).selection_ == "last"


def test_patience_stops_when_nothing_gets_better() -> None:
    train, test = data()
    model = few(epochs=200, eval_every=2, patience=6, learning_rate=0.3).fit(*train, eval_set=test)
    assert len(model.history_) == model.kept_epoch_ + 6 < 200


def test_the_epoch_can_be_selected_by_full_ranking(tmp_path: Path) -> None:
    table = synthetic_interactions(users=40, items=60, seed=4)
    fold = user_folds(table, 4, seed=1)
    train, held_out = table.rows(fold != 0), table.rows(fold == 0)
    lists = sample_lists(train, held_out, seed=0)[0]
    rows = np.repeat(lists.users, lists.lists.sizes), lists.items, lists.lists.labels
    settings = {"epochs": 6, "eval_every": 1, "measure": "nDCG@10", "learning_rate": 0.05}
    model = few(**settings, watch=("AP",)).fit(*rows, eval_set=(train, held_out))

    def by_hand(epochs: int) -> float:
        vectors = few(**settings | {"epochs": epochs}).fit(*rows)
        values = []
        for user in np.unique(held_out.users).tolist():
            seen, relevant = (set(part.items[part.users == user].tolist()) for part in (train, held_out))
            scores = vectors.predict(user, np.arange(len(table.item_names)))
            scores[~np.isin(np.arange(len(scores)), lists.items)] = -1e9
            ranked = sorted(set(range(len(scores))) - seen, key=lambda item: -scores[item])[:10]
            ideal = sum(1 / log2(rank + 2) for rank in range(min(10, len(relevant))))
            gain = sum(1 / log2(rank + 2) for rank, item in enumerate(ranked) if item in relevant)
            values.append(gain / ideal)
        return float(np.mean(values))

    expected = [by_hand(epochs) for epochs in range(1, 7)]
    assert_allclose([entry["nDCG@10"] for entry in model.history_], expected, atol=1e-6)
    assert model.kept_epoch_ == 1 + int(np.argmax(expected))
    assert all("AP" in entry for entry in model.history_)
    folder = str(tmp_path / "state")
    few(**settings, watch=("AP",), checkpoint=folder, checkpoint_every=3).fit(*rows, eval_set=(train, held_out))
    with pytest.raises(DataError, match="differs in eval_set"):
        few(**settings, watch=("AP",), checkpoint=folder).fit(*rows, eval_set=(held_out, train))
    with pytest.raises(ArgumentError, match="the codes must be those of eval_set, with 40 users and 58 items"):
        few().fit([40, 40], [0, 1], [0, 1], eval_set=(train, held_out))
    with pytest.raises(ArgumentError, match=r"eval_set must be \(users, items, labels\), or two Interactions"):
        few().fit(*rows, eval_set=(train,))


# ---- checkpoints and files -------------------------------------------------------------------------------------------


def test_a_resumed_fit_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    train, test = data()
    settings = {"batch_size": 16, "eval_every": 2, "checkpoint_every": 2}
    whole = few(**settings, epochs=8).fit(*train, eval_set=test)
    folder = str(tmp_path / "state")
    few(**settings, epochs=4, checkpoint=folder).fit(*train, eval_set=test)
    resumed = few(**settings, epochs=8, checkpoint=folder).fit(*train, eval_set=test)
    assert_same(whole, resumed)
    with pytest.raises(DataError, match="differs in learning_rate"):
        few(**settings, learning_rate=0.5, checkpoint=folder).fit(*train, eval_set=test)
    with pytest.raises(DataError, match="differs in eval_set"):
        few(**settings, checkpoint=folder).fit(*train)
    with pytest.raises(DataError, match="has 8 epochs already, more than epochs=4"):
        few(**settings, epochs=4, checkpoint=folder).fit(*train, eval_set=test)


KILLED = """
import sys, numpy as np
from rankbound.models import MatrixFactorization, Monitoring
rows = np.load(sys.argv[1])
monitoring = Monitoring(checkpoint=sys.argv[2], checkpoint_every=1)
MatrixFactorization(factors=8, epochs=100000, monitoring=monitoring).fit(*rows)
"""


@pytest.mark.full("takes seconds")
def test_kill_in_the_middle_of_training(tmp_path: Path) -> None:
    rows = small(users=40, items=60, rows=900)
    np.save(tmp_path / "rows.npy", np.stack(rows))
    folder = tmp_path / "state"
    command = [sys.executable, "-c", KILLED, tmp_path / "rows.npy", folder]
    kill_when(command, lambda: list(folder.glob("epoch-*")), pause=0.1)
    more = {"factors": 8, "epochs": last_epoch(folder) + 3}
    resumed = MatrixFactorization(**more, monitoring=Monitoring(checkpoint=str(folder))).fit(*rows)
    assert_same(MatrixFactorization(**more).fit(*rows), resumed)


def test_save_and_load_are_equal_bit_for_bit(tmp_path: Path) -> None:
    train, test = data()
    model = few(loss=NDCGLoss(alpha=2.0), watch=("AP",)).fit(*train, eval_set=test)
    model.save(tmp_path / "model")
    loaded = load_ranker(tmp_path / "model")
    assert isinstance(loaded, MatrixFactorization)
    assert_same(model, loaded)
    assert loaded.get_params() == model.get_params()
    assert (loaded.eval_score_, loaded.selection_) == (model.eval_score_, "validation")
    assert_array_equal(loaded.predict(*test[:2]), model.predict(*test[:2]))
    assert loaded.recommend(3, 5).equals(model.recommend(3, 5))


# ---- use -------------------------------------------------------------------------------------------------------------


def test_recommend_gives_the_best_items_without_the_relevant_ones_of_the_lists() -> None:
    users, items, labels = small()
    model = few().fit(users, items, labels)
    known = np.unique(items[np.isin(users, np.flatnonzero(model.user_vectors_.any(axis=1)))])
    found = model.recommend(2, k=100, exclude_seen=False)
    best, scores = found["item"].to_numpy(), found["score"].to_numpy()
    assert sorted(best) == known.tolist()
    assert (np.diff(scores) <= 0).all()
    assert_allclose(scores, model.predict(2, best), rtol=1e-6)
    relevant = items[(users == 2) & (labels > 0)]
    assert model.recommend(2, k=100)["item"].to_list() == [item for item in best if item not in relevant]
    few_items = model.recommend(2, k=3, exclude_seen=False, filter_items=best[2:])
    assert few_items["item"].to_list() == best[2:5].tolist()
    with pytest.warns(UnknownUserWarning, match="1 of 1 users have no training interactions"):
        assert len(model.recommend(99, k=2)) == 2
    with pytest.raises(ArgumentError, match="k must be a positive integer, got 0"):
        model.recommend(2, k=0)


def test_unknown_users_and_items_score_zero() -> None:
    model = few().fit([0, 0, 1, 1], [0, 2, 0, 2], [1, 0, 1, 0])
    assert model.predict([0, 0, 5], [1, 9, 0]).tolist() == [0.0, 0.0, 0.0]
    assert model.predict([0], [0])[0] != 0
    assert model.predict([], []).shape == (0,)
    with pytest.raises(DataError, match="users and items must have one length, got 2 and 3"):
        model.predict([0, 1], [0, 1, 2])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (([0, 0], [0, 1], [0, 0]), "labels must differ"),
        (([0, 0], [0, 1], [1, 1]), "labels must differ"),
        (([0], [0], [1]), "labels must differ"),
        (([], [], []), "at least one row"),
        (([0, -1], [0, 1], [1, 0]), "users must be codes of at least 0, got -1 at position 1"),
        (([0, 0], [-3, 1], [1, 0]), "items must be codes of at least 0, got -3 at position 0"),
        (([0, 0, 0], [0, 1, 1], [1, 0, 1]), "got user 0 with item 1 twice"),
        (([0.5, 1.0], [0, 1], [1, 0]), "users must be integers"),
        (([0, 0], [0, 1], [1, 0, 1]), "one entry per row"),
        (([0, 0], [0, 1], [1, np.nan]), "labels must be finite"),
        (([0, 0], [0, 10**12], [1, 0]), "np.unique"),
    ],
)
def test_rows_that_cannot_be_learned_from(rows: Columns, message: str) -> None:
    model = few()
    with pytest.raises(DataError, match=message):
        model.fit(*rows)
    assert not hasattr(model, "n_queries_")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"factors": 0}, "factors must be a positive integer, got 0"),
        ({"learning_rate": 0}, "learning_rate must be a positive number, got 0"),
        ({"l2": -1}, "l2 must be a number of at least 0, got -1"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of adam, sgd"),
        ({"selection": "test"}, "need an eval_set"),
        ({"loss": "nope"}, "loss must be one of"),
        ({"loss": NDCGLoss(), "bounding": "min-max"}, "bounding must be 'none' with a loss object"),
        ({"measure": "U"}, "higher is better"),
        ({"random_state": -1}, "random_state must be an integer of at least 0 or None, got -1"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        few(**parameters).fit(*small())


def test_a_rate_that_is_too_large_is_said_and_gives_no_model() -> None:
    model = few(learning_rate=1e30, optimizer="sgd", init=1.0, loss="nRBP", epochs=20)
    with pytest.raises(DataError, match="smaller learning_rate"):
        model.fit(*small())
    assert not hasattr(model, "n_queries_")


# ---- real data -------------------------------------------------------------------------------------------------------


@pytest.mark.real_data
def test_lambda_loss_learns_movielens(data_dir: Path) -> None:
    ratings = prepare_movielens(load_set("ml-latest-small"))
    fold = user_folds(ratings, 5)
    train, test = (columns(part) for part in sample_lists(ratings.rows(fold != 0), ratings.rows(fold == 0)))
    model = MatrixFactorization(loss="lambda-nDCG", epochs=10).fit(*train, eval_set=test)
    assert model.eval_score_ > 0.95


@pytest.mark.real_data
def test_citeulike_comes_near_the_published_number_within_a_hundred_epochs(data_dir: Path) -> None:
    fold = load_fold("citeulike-a", 0)
    train, test = (columns(part) for part in sample_lists(fold.train, fold.test, protocol="published"))
    model = factorization(
        loss="nRBP", optimizer="sgd", learning_rate=0.001, batch_size=None, epochs=100, eval_every=50, selection="test"
    )
    assert abs(model.fit(*train, eval_set=test).eval_score_ - 0.9659) < 0.01
