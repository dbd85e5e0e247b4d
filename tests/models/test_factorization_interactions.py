"""MatrixFactorization from interactions: its steps are torch's, and results depend on seed and data alone."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import torch
from sklearn.base import clone

from rankbound.data import Interactions, keep_users, read_ratings, relevant_only, user_folds
from rankbound.data.synthetic import synthetic_interactions
from rankbound.errors import ArgumentError, DataError
from rankbound.losses import ListNetLoss, NDCGLoss, SoftmaxLoss, get_loss, set_threads
from rankbound.models import MatrixFactorization, Monitoring, load_ranker
from rankbound.models.recommenders.factorization.losses import Objective, interaction_loss
from rankbound.models.recommenders.factorization.negatives import draw_candidates, keep_best_negatives
from rankbound.models.recommenders.factorization.training import Training
from tests.killing import kill_when, last_epoch


@functools.cache
def data() -> tuple[Interactions, Interactions]:
    """Interactions to learn from and to be judged on, with text ids."""
    ratings = synthetic_interactions(users=80, items=120, seed=3)
    table = Interactions.from_columns([f"u{u}" for u in ratings.users], [f"i{i}" for i in ratings.items])
    fold = user_folds(table, 4, seed=1)
    return table.rows(fold != 0), table.rows(fold == 0)


def small() -> Interactions:
    rng = np.random.default_rng(1)
    chosen = rng.choice(7 * 12, 30, replace=False)
    return Interactions.from_columns(chosen // 12, chosen % 12)


def few(**parameters: Any) -> MatrixFactorization:
    options = {"factors": 8, "epochs": 4, "measure": "nDCG@10", **parameters}
    return MatrixFactorization(**options)


def assert_same(model: MatrixFactorization, other: MatrixFactorization) -> None:
    assert_array_equal(model.user_vectors_, other.user_vectors_)
    assert_array_equal(model.item_vectors_, other.item_vectors_)
    assert model.history_ == other.history_
    assert model.kept_epoch_ == other.kept_epoch_


# ---- draws -----------------------------------------------------------------------------------------------------------


def positives(users: int = 30, catalog: int = 50, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, catalog // 2, users)
    items = np.concatenate([np.sort(rng.choice(catalog, size, replace=False)) for size in sizes])
    return np.concatenate(([0], np.cumsum(sizes))), items.astype(np.int32)


@pytest.mark.parametrize("popular", [False, True])
@pytest.mark.parametrize("ratio", [0.3, 0.9])
def test_lists_have_the_positives_and_distinct_others(ratio: float, popular: bool) -> None:
    starts, items = positives()
    sizes = np.diff(starts)
    counts = ((50 - sizes) * ratio * (0.5 if popular else 1)).astype(np.int64)
    users = np.arange(30, dtype=np.int32)
    lists, offsets = draw_candidates(users, starts, items, counts, 50, seed=4, popular=popular)
    assert_array_equal(np.diff(offsets), sizes + counts)
    for user in users:
        own = lists[offsets[user] : offsets[user + 1]]
        assert_array_equal(own[: sizes[user]], items[starts[user] : starts[user + 1]])
        assert len(set(own.tolist())) == len(own)
    # the draws of a user depend neither on the other users nor on the threads, but on the seed
    chosen = users[[20, 3]]
    part, cuts = draw_candidates(chosen, starts, items, counts[chosen], 50, seed=4, popular=popular)
    assert_array_equal(part[cuts[1] :], lists[offsets[3] : offsets[4]])
    set_threads(1)
    try:
        assert_array_equal(draw_candidates(users, starts, items, counts, 50, seed=4, popular=popular)[0], lists)
    finally:
        set_threads(None)
    assert not np.array_equal(draw_candidates(users, starts, items, counts, 50, seed=5, popular=popular)[0], lists)


@pytest.mark.parametrize("count", [2, 6])  # by rejection, and by selection sampling
def test_uniform_draws_prefer_no_item(count: int) -> None:
    starts, items = np.array([0, 2]), np.array([1, 4], np.int32)
    drawn = np.zeros(10)
    repeats = 1500
    for seed in range(repeats):
        lists, _ = draw_candidates(np.zeros(1, np.int32), starts, items, np.array([count]), 10, seed=seed)
        drawn[lists[2:]] += 1
    expected = repeats * count / 8
    assert_array_equal(drawn[[1, 4]], 0)
    deviation = np.sqrt(expected * (1 - count / 8))
    assert (np.abs(drawn[[0, 2, 3, 5, 6, 7, 8, 9]] - expected) < 4.5 * deviation).all()


def test_hard_negatives_are_the_best_of_their_candidates() -> None:
    scores = np.array([9, 1, 5, 3, 7, 2, 8, 4], np.float32)  # one positive and four candidates; one and two
    chosen, offsets = keep_best_negatives(scores, np.array([0, 5, 8]), np.array([1, 1]), 2)
    assert chosen.tolist() == [0, 2, 4, 5, 6]
    assert offsets.tolist() == [0, 3, 5]


# ---- losses ----------------------------------------------------------------------------------------------------------

LOSSES = [
    ("nDCG", {}), ("nDCG", {"alpha": 3.0}), ("nDCG@5", {"beta": 2.0}), ("nDCG", {"bounding": "expectation-max"}),
    ("AP", {}), ("AP", {"bounding": "min-max"}), ("AP", {"form": "ranks"}),
    ("nRBP", {}), ("nRBP", {"bounding": "min-max"}), ("nRBP(p=0.9)", {}), ("RR", {}), ("P@5", {}),
    ("lambda-nDCG", {}), ("RankNet", {}), ("softmax", {"normalize": True}), ("softmax", {"temperature": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), LOSSES, ids=lambda value: str(value))
@pytest.mark.parametrize("spread", [1.0, 30.0, 3000.0])
def test_losses_equal_those_of_the_plans(name: str, options: dict[str, Any], spread: float) -> None:
    """The whole catalog, and lists that begin with the positives, against the kernels of `rankbound.losses`."""
    loss, catalog, users = get_loss(name, **options), 400, 12
    rng = np.random.default_rng(2)
    sizes = np.array([1, 2, 3, 5, 8, 13, 21, 34, 60, 100, 200, 399])
    items = np.concatenate([np.sort(rng.choice(catalog, size, replace=False)) for size in sizes]).astype(np.int32)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    scores = (spread * rng.normal(size=(users, catalog)) / 2).astype(np.float32)
    labels = np.zeros((users, catalog), np.int32)
    labels[np.repeat(np.arange(users), sizes), items] = 1
    offsets = np.arange(users + 1) * catalog
    expected = loss.value_and_gradient(scores.ravel(), loss.plan(labels.ravel(), offsets))
    gradient = expected.gradient.reshape(scores.shape)
    codes = np.arange(users, dtype=np.int32)
    objective = Objective(loss, starts, items, None)
    block = scores.copy()
    close = {"rtol": 2e-4, "atol": 1e-4 * np.abs(gradient).max() + 1e-7}
    assert_allclose(objective.evaluate_catalog(block, codes), expected.values, rtol=1e-4, atol=1e-5)
    assert_allclose(block, gradient, **close)
    order = np.argsort(-labels, axis=1, kind="stable")
    values, flat = objective.evaluate_drawn_lists(np.take_along_axis(scores, order, 1).ravel(), offsets, codes)
    assert_allclose(values, expected.values, rtol=1e-4, atol=1e-5)
    assert_allclose(flat.reshape(scores.shape), np.take_along_axis(gradient, order, 1), **close)


def test_names_of_softmax_normalize_the_labels() -> None:
    for name in ("softmax", "ListNet", ListNetLoss()):
        assert interaction_loss(name, "none") == SoftmaxLoss(normalize=True)
    assert interaction_loss("nDCG", "min-max") == NDCGLoss(bounding="min-max")


@pytest.mark.parametrize("sampling", ["uniform", "popularity"])
def test_drawn_softmax_estimates_that_of_the_catalog(sampling: str) -> None:
    """The mean gradient over many draws of corrected lists is near the gradient of the whole catalog."""
    table = small()
    settings = few(init=0.5, temperature=1.0, negatives=0.7, sampling=sampling)._settings("cosine")
    training = Training(settings, SoftmaxLoss(normalize=True), table)
    values = training.new_state().values
    users = training.model.normalize(values["users"][training.users]).vectors
    expected = training._catalog_gradients(values, training.users, users).of_users
    draws = [training._drawn_list_gradients(values, training.users, users, epoch).of_users for epoch in range(400)]
    assert np.corrcoef(np.mean(draws, axis=0).ravel(), expected.ravel())[0, 1] > 0.98


# ---- the step --------------------------------------------------------------------------------------------------------


def by_torch(table: Interactions, start: MatrixFactorization, features: Any, settings: dict[str, Any]) -> Any:
    """Three steps of SGD on the softmax of all users with the whole catalog, by autograd."""
    tables = {
        name: torch.tensor(values, dtype=torch.float64, requires_grad=True)
        for name, values in start.parameters_.items()
    }
    users, items = len(table.user_names), len(table.item_names)
    seen = torch.zeros(users, items, dtype=torch.float64)
    seen[table.users.astype(np.int64), table.items.astype(np.int64)] = 1
    counts = seen.sum(1, keepdim=True)
    weights = (counts / counts.mean()) ** settings.get("activity_exponent", 0.0)
    optimizer = torch.optim.SGD(tables.values(), lr=settings["learning_rate"])
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 if settings.get("schedule") == "cosine" else 10**9)
    for _ in range(3):
        optimizer.zero_grad()
        scores = scores_by_torch(tables, seen, counts, features, settings)
        loss = -(weights * seen / counts * torch.log_softmax(scores, 1)).sum()
        loss.backward()
        with torch.no_grad():
            for values in tables.values():
                values *= 1 - decay.get_last_lr()[0] * settings.get("l2", 0.0)
        optimizer.step()
        decay.step()
    return {name: values.detach().numpy() for name, values in tables.items()}, scores_by_torch(
        tables, seen, counts, features, settings
    ).detach().numpy()


def scores_by_torch(tables: Any, seen: Any, counts: Any, features: Any, settings: dict[str, Any]) -> Any:
    users, items = torch.zeros(1, dtype=torch.float64), tables["items"]
    if "users" in tables:
        users = users + tables["users"]
    if "history" in tables:
        users = users + seen / counts.sqrt() @ tables["history"]
    if "user_features" in tables:
        users = users + torch.tensor(features[0]) @ tables["user_features"]
    if "item_features" in tables:
        items = items + torch.tensor(features[1]) @ tables["item_features"]
    scores = users @ items.T
    if settings["similarity"] == "cosine":
        scores = scores / users.norm(dim=1, keepdim=True) / items.norm(dim=1) / settings["temperature"]
    return scores + tables["biases"][:, 0] if "biases" in tables else scores


@pytest.mark.parametrize("options", [{}, {"schedule": "cosine", "activity_exponent": 0.5}], ids=["", "decay"])
@pytest.mark.parametrize("with_features", [False, True])
@pytest.mark.parametrize("user_model", ["vectors", "history", "both"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_three_epochs_are_those_of_torch(
    similarity: str, user_model: str, with_features: bool, options: dict[str, Any]
) -> None:
    table, rng = small(), np.random.default_rng(0)
    settings = {"similarity": similarity, "temperature": 0.4, "learning_rate": 0.1, "l2": 0.3} | options
    numbers = [rng.normal(size=(len(names), 2)) for names in (table.user_names, table.item_names)]
    frames = {
        f"{side}_features": pl.DataFrame({side: names, "a": values[:, 0], "b": values[:, 1]})
        for side, names, values in zip(("user", "item"), (table.user_names, table.item_names), numbers, strict=True)
    }
    extra = frames if with_features else {}
    model = few(
        epochs=3,
        batch_size=None,
        init=0.5,
        optimizer="sgd",
        user_model=user_model,
        dropout=0.0,
        biases=True,
        **settings,
    )
    start = clone(model).set_params(learning_rate=1e-30).fit(table, **extra)
    parameters, scores = by_torch(table, start, numbers, settings)
    model.fit(table, **extra)
    assert set(model.parameters_) == set(parameters)
    for name, values in parameters.items():
        assert_allclose(model.parameters_[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
    assert_allclose(model._score_block(np.arange(len(table.user_names))), scores, rtol=1e-3, atol=1e-3)


def test_l2_depends_neither_on_the_scale_of_the_loss_nor_on_adam() -> None:
    table = small()
    sums = few(l2=0.5, reduction="sum").fit(table)
    means = few(l2=0.5, reduction="mean").fit(table)
    assert_allclose(sums.user_vectors_, means.user_vectors_, rtol=2e-3, atol=2e-4)


# ---- what the result depends on --------------------------------------------------------------------------------------


def title(parameters: dict[str, Any]) -> str:
    return "-".join(map(str, parameters.values())) or "default"


CASES = [
    {}, {"negatives": 3}, {"negatives": 2, "negative_candidates": 4, "loss": "nDCG"},
    {"negatives": 1.5, "sampling": "popularity"},
    {"user_model": "both", "biases": True}, {"user_model": "history", "negatives": 4, "loss": "AP"},
    {"loss": "nRBP", "similarity": "dot", "optimizer": "sgd", "learning_rate": 1e-4, "l2": 0.1},
    {"user_model": "history", "activity_exponent": 0.5},
]  # fmt: skip


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    "parameters", CASES, ids=lambda parameters: "-".join(map(str, parameters.values())) or "default"
)
def test_same_seed_same_vectors_whatever_the_threads_and_the_order_of_rows(parameters: dict[str, Any]) -> None:
    train, test = data()
    first = few(**parameters).fit(train, eval_set=test)
    order = np.random.default_rng(0).permutation(len(train))
    names = train.user_names[train.users][order], train.item_names[train.items][order]
    again = few(**parameters).fit(names)
    if len(again.item_ids_) == len(first.item_ids_):
        assert_array_equal(again.user_vectors_, few(**parameters).fit(train.compact()).user_vectors_)
    set_threads(1)
    try:
        assert_same(first, few(**parameters).fit(train, eval_set=test))
    finally:
        set_threads(None)
    other = few(random_state=1, **parameters).fit(train, eval_set=test)
    assert not np.array_equal(first.user_vectors_, other.user_vectors_)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    "parameters", CASES, ids=lambda parameters: "-".join(map(str, parameters.values())) or "default"
)
def test_a_resumed_fit_ends_like_an_uninterrupted_one(tmp_path: Path, parameters: dict[str, Any]) -> None:
    train, test = data()
    settings = {"eval_every": 2, "checkpoint_every": 1, "batch_size": 16, **parameters}
    whole = few(**settings).fit(train, eval_set=test)
    few(**settings | {"epochs": 2}, checkpoint=tmp_path / "state").fit(train, eval_set=test)
    assert_same(whole, few(**settings, checkpoint=tmp_path / "state").fit(train, eval_set=test))
    with pytest.raises(DataError, match="differs in data"):
        few(**settings, checkpoint=tmp_path / "state").fit(test, eval_set=test)
    with pytest.raises(DataError, match="differs in temperature"):
        few(**settings, temperature=0.7, checkpoint=tmp_path / "state").fit(train, eval_set=test)


@pytest.mark.parametrize("parameters", [{"schedule": "cosine"}, {"schedule": "cosine", "user_model": "history"}])
def test_a_resumed_fit_with_a_schedule_requires_the_same_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any]
) -> None:
    train, _ = data()
    settings = {"checkpoint_every": 1, "batch_size": 16, **parameters}
    whole = few(**settings).fit(train)
    epoch = Training.epoch

    def interrupted(training: Training, state: Any) -> float:
        if state.epoch == 2:
            raise KeyboardInterrupt
        return epoch(training, state)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            few(**settings, checkpoint=tmp_path / "state").fit(train)
    assert last_epoch(tmp_path / "state") == 2
    with pytest.raises(DataError, match="differs in epochs"):
        few(**settings | {"epochs": 5}, checkpoint=tmp_path / "state").fit(train)
    assert_same(whole, few(**settings, checkpoint=tmp_path / "state").fit(train))


KILLED = """
import sys, numpy as np
from rankbound.models import MatrixFactorization, Monitoring
rows = np.load(sys.argv[1])
monitoring = Monitoring(checkpoint=sys.argv[2], checkpoint_every=1)
MatrixFactorization(factors=8, epochs=100000, negatives=3, monitoring=monitoring).fit(tuple(rows))
"""


@pytest.mark.full("takes seconds")
def test_kill_in_the_middle_of_training(tmp_path: Path) -> None:
    train, _ = data()
    rows = np.stack((train.users, train.items))
    np.save(tmp_path / "rows.npy", rows)
    folder = tmp_path / "state"
    command = [sys.executable, "-c", KILLED, tmp_path / "rows.npy", folder]
    kill_when(command, lambda: list(folder.glob("epoch-*")), pause=0.1)
    more = {"factors": 8, "epochs": last_epoch(folder) + 2, "negatives": 3}
    resumed = MatrixFactorization(**more, monitoring=Monitoring(checkpoint=str(folder))).fit(tuple(rows))
    assert_same(MatrixFactorization(**more).fit(tuple(rows)), resumed)


# ---- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    "parameters",
    [
        {}, {"loss": "nDCG"}, {"loss": "AP"}, {"loss": "nRBP"}, {"loss": "nDCG", "bounding": "min-max"},
        {"loss": "ListNet"}, {"negatives": 5}, {"negatives": 1, "negative_candidates": 5, "loss": "RankNet"},
        {"negatives": 5, "sampling": "popularity"}, {"user_model": "history"}, {"similarity": "dot"},
    ],
    ids=title,
)  # fmt: skip
def test_trained_vectors_rank_better_than_random_ones(parameters: dict[str, Any]) -> None:
    train, test = data()
    model = few(epochs=20, factors=16, learning_rate=0.03, **parameters).fit(train, eval_set=test)
    untrained = few(epochs=1, factors=16, learning_rate=1e-30, optimizer="sgd", **parameters).fit(train)
    assert model.score(test) > untrained.score(test) + 0.04
    assert model.eval_score_ == pytest.approx(model.score(test))
    evaluated = {entry["epoch"]: entry["nDCG@10"] for entry in model.history_ if "nDCG@10" in entry}
    assert set(evaluated) == {5, 10, 15, 20}
    assert model.kept_epoch_ == max(evaluated, key=lambda epoch: evaluated[epoch])


def test_so_many_negatives_that_users_run_out_of_items() -> None:
    train, _ = data()
    model = few(negatives=1000, epochs=1).fit(train)
    assert model.notes_ == (f"{model.n_queries_} users have fewer other items than negatives=1000 requires",)
    assert few(negatives=1, epochs=1, loss="nDCG").fit(train).notes_ == ()
    popular = few(negatives=1000, sampling="popularity", epochs=1).fit(train)
    assert len(popular.notes_) == 1


def test_items_without_interactions_come_last() -> None:
    train = data()[0].compact()
    wider = Interactions(train.users, train.items, train.user_names, np.append(train.item_names, "zzz"))
    model = few().fit(wider)
    scores = model._score_block(np.arange(3, dtype=np.int32))
    assert (scores[:, -1] < scores[:, :-1].min(axis=1)).all()
    assert_array_equal(model.user_vectors_, few().fit(train).user_vectors_)
    assert "zzz" not in model.recommend(k=200, exclude_seen=False)["item"]
    assert model.predict([train.user_names[0]], ["zzz"]).tolist() == [0.0]


# ---- weights, warm starts, features ----------------------------------------------------------------------------------


def test_weights_scale_the_loss_and_a_weight_of_zero_removes_a_user() -> None:
    train = small()
    plain = {"optimizer": "sgd", "epochs": 2, "batch_size": None}
    doubled = few(**plain, learning_rate=0.1).fit(train, sample_weight=np.full(len(train), 2.0))
    assert_allclose(
        doubled.user_vectors_, few(**plain, learning_rate=0.2).fit(train).user_vectors_, rtol=1e-4, atol=1e-5
    )
    for loss in ("softmax", "nDCG"):
        weights = np.where(train.users == 0, 0.0, 1.0)
        model = few(**plain, loss=loss, similarity="dot").fit(train, sample_weight=weights)
        start = few(**plain, loss=loss, similarity="dot", learning_rate=1e-30).fit(train)
        assert_array_equal(model.user_vectors_[0], start.user_vectors_[0])
        assert not np.array_equal(model.user_vectors_[1], start.user_vectors_[1])


@pytest.mark.parametrize("parameters", [{}, {"negatives": 2}, {"loss": "nDCG"}, {"loss": "AP", "negatives": 2}])
def test_the_activity_exponent_weights_users_by_their_interactions(parameters: dict[str, Any]) -> None:
    train, _ = data()
    counts = np.bincount(train.users)
    weights = (counts / counts[counts > 0].mean()) ** 0.7
    expected = few(**parameters).fit(train, sample_weight=weights[train.users])
    model = few(**parameters, activity_exponent=0.7).fit(train)
    assert_allclose(model.user_vectors_, expected.user_vectors_, rtol=1e-3, atol=1e-3)
    assert_allclose(model.history_[-1]["loss"], expected.history_[-1]["loss"], rtol=1e-4)
    assert not np.allclose(model.user_vectors_, few(**parameters).fit(train).user_vectors_, rtol=1e-3, atol=1e-3)


def test_a_warm_start_begins_with_the_vectors_of_known_ids() -> None:
    train, _ = data()
    model = few(warm_start=True, similarity="dot").fit(train)
    before, ids = model.user_vectors_.copy(), model.user_ids_
    wider = Interactions.from_columns(
        [*train.user_names[train.users], "new", "new"], [*train.item_names[train.items], "i1", "fresh"]
    )
    model.set_params(epochs=1, learning_rate=1e-30, optimizer="sgd").fit(wider)
    assert_array_equal(model.user_vectors_[np.isin(model.user_ids_, ids)], before)
    assert model.user_vectors_[model.user_ids_ == "new"].any()
    cold = few(similarity="dot").fit(train)
    assert_array_equal(cold.user_vectors_, before)


def test_partial_fit_changes_the_users_of_the_new_interactions() -> None:
    train, test = data()
    model = few(similarity="dot").fit(train)
    before, seen = model.user_vectors_.copy(), len(model.seen_)
    known = model.user_ids_[0]
    missing = next(item for item in model.item_ids_ if item not in train.item_names[train.items[train.users == 0]])
    model.partial_fit(([known, "new"], [missing, missing]))
    assert len(model.seen_) == seen + 2
    kept = np.isin(model.user_ids_, [known, "new"], invert=True)
    assert_array_equal(model.user_vectors_[kept], before[1:])
    assert not np.array_equal(model.user_vectors_[model.user_ids_ == known][0], before[0])
    assert missing not in model.recommend([known], k=500)["item"]
    assert len(model.recommend("new", k=3)) == 3
    assert_same(few().partial_fit(train), few().fit(train))
    with pytest.raises(ArgumentError, match="partial_fit takes no checkpoint"):
        model.set_params(monitoring=Monitoring(checkpoint="x")).partial_fit(test)


def test_features_give_vectors_to_new_users_and_items() -> None:
    """Items of two kinds and users who like one of them; a new item is ranked by its kind."""
    rng = np.random.default_rng(0)
    users, items = np.repeat(np.arange(40), 6), np.empty(240, np.int64)
    for user in range(40):
        items[users == user] = rng.choice(20, 6, replace=False) * 2 + user % 2
    features = {"item": np.arange(42), "even": np.arange(42) % 2 == 0, "odd": np.arange(42) % 2 == 1}
    likes = {"user": [0, 1, 98, 99], "even": [1.0, 0, 1, 0], "odd": [0.0, 1, 0, 1]}
    model = few(epochs=30).fit((users, items), item_features=features, user_features=likes)
    assert model.item_ids_.tolist() == list(range(42))  # 40 and 41 are in no interaction
    scores = {user: model.predict([user], [40, 41]) for user in (0, 1, 98, 99)}
    for user in (0, 98):
        assert scores[user][0] > scores[user][1], user
    for user in (1, 99):
        assert scores[user][1] > scores[user][0], user
    assert 40 in model.recommend(98, k=21)["item"]
    with pytest.raises(DataError, match="item_features must have a column 'item'"):
        few().fit((users, items), item_features={"id": [1], "x": [2.0]})
    with pytest.raises(DataError, match="must consist of numbers, got String in the column 'x'"):
        few().fit((users, items), item_features={"item": [1], "x": ["a"]})
    with pytest.raises(DataError, match="distinct ids"):
        few().fit((users, items), item_features={"item": [1, 1], "x": [1, 2]})
    with pytest.raises(DataError, match="must be finite"):
        few().fit((users, items), user_features={"user": [1, 2], "x": [1.0, float("nan")]})


# ---- files and errors ------------------------------------------------------------------------------------------------


def test_save_and_load_are_equal_bit_for_bit(tmp_path: Path) -> None:
    train, test = data()
    options = {"user_model": "both", "biases": True, "schedule": "cosine", "activity_exponent": 0.5}
    model = few(**options, negatives=2).fit(train, eval_set=test)
    model.save(tmp_path / "model")
    loaded = load_ranker(tmp_path / "model")
    assert isinstance(loaded, MatrixFactorization)
    assert_same(model, loaded)
    assert loaded.get_params() == model.get_params()
    assert loaded.eval_score_ == model.eval_score_
    assert loaded.recommend(k=3).equals(model.recommend(k=3))
    assert_same(loaded.partial_fit(test), model.partial_fit(test))


def test_a_model_of_codes_and_a_model_of_interactions_do_not_mix() -> None:
    train, _ = data()
    model = few().fit(train)
    model.fit([0, 0, 1, 1], [0, 1, 0, 1], [1, 0, 0, 1])
    assert model.recommend(0, k=1, exclude_seen=False)["item"].to_list() == [0]
    assert model.recommend(0, k=1)["item"].to_list() == [1]  # 0 is in the list of the user, with label 1
    assert model.item_ids_.tolist() == [0, 1]
    with pytest.raises(ArgumentError, match="labels must have one entry per row of users and items, got None"):
        model.score([0, 1], [0, 1])
    with pytest.raises(ArgumentError, match="labels must have one entry per row of users and items, got None"):
        model.fit([0, 1], [0, 1])
    with pytest.raises(ArgumentError, match="sample_weight is for interactions"):
        model.fit([0, 0], [0, 1], [1, 0], sample_weight=[1, 1])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"negatives": "some"}, "negatives must be 'all' or a positive number, got 'some'"),
        ({"negatives": 0}, "negatives must be 'all' or a positive number, got 0"),
        ({"negative_candidates": 0}, "negative_candidates must be a positive integer, got 0"),
        ({"sampling": "zipf"}, "sampling must be one of uniform, popularity"),
        ({"user_model": "x"}, "user_model must be one of vectors, history, both"),
        ({"similarity": "l2"}, "similarity must be one of cosine, dot"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"dropout": 1.0}, "dropout must be from 0 to below 1, got 1.0"),
        ({"patience": 3}, "need an eval_set"),
        ({"loss": "nope"}, "loss must be one of"),
        ({"biases": "yes"}, "biases must be True or False, got 'yes'"),
        ({"schedule": "linear"}, "schedule must be one of constant, cosine"),
        ({"activity_exponent": -0.5}, "activity_exponent must be from 0 to 10, got -0.5"),
    ],
)
def test_parameters_that_make_no_sense(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        few(**parameters).fit(small())


def test_interactions_that_leave_nothing_to_learn() -> None:
    with pytest.raises(DataError, match="both positive and other items"):
        few().fit((["a", "b"], ["x", "x"]))


def test_divergence_is_reported() -> None:
    with pytest.raises(DataError, match="training diverged in epoch"):
        few(similarity="dot", optimizer="sgd", learning_rate=1e30).fit(data()[0])


@pytest.mark.real_data
def test_movielens_comes_near_the_best_models_under_full_ranking(data_dir: Path) -> None:
    """EASE and implicit ALS, with settings selected on validation data, reach 0.31 on this split."""
    table = keep_users(relevant_only(read_ratings(data_dir / "ml-100k" / "ml-100k.inter.gz"), 4), 5).compact()
    fold = user_folds(table, 5, seed=0)
    train, test = table.rows(fold != 0), table.rows(fold == 0)
    model = few(factors=64, temperature=0.25, batch_size=128, epochs=40).fit(train)
    assert model.score(test) > 0.29
