"""Groups of options: next to the other parameters in text, objects in Python, and the same in files."""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("sklearn")
pytest.importorskip("lightgbm")
pytest.importorskip("torch")
pytest.importorskip("safetensors")

import sklearn
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from rankbound import models
from rankbound.errors import ArgumentError, DataError
from rankbound.models import (
    Comparisons,
    ImageNetwork,
    LambdaMART,
    LinearRanker,
    MatrixFactorization,
    MLPRanker,
    Monitoring,
    Negatives,
    Network,
    NetworkOptimizer,
    Optimizer,
    QueryKFold,
    RankCNN,
    RankNet,
    TreeOptions,
    VectorModel,
    load_ranker,
)
from rankbound.models.by_name import check_ranker, make_ranker, parameters_of
from rankbound.models.options import flat_parameters, group_options, show_training

# ---- text ------------------------------------------------------------------------------------------------------------

FLAT = {
    "factors": 8, "optimizer": "sgd", "l2": 0.5, "schedule": "cosine", "reduction": "mean", "activity_exponent": 0.5,
    "negatives": 3, "negative_candidates": 2, "sampling": "popularity", "user_model": "both", "dropout": 0.1,
    "similarity": "dot", "temperature": 0.3, "biases": True, "init": 0.2, "warm_start": True, "selection": "last",
    "eval_every": 2, "patience": 4, "watch": ("AP",), "checkpoint": "folder", "checkpoint_every": 7, "verbose": True,
}  # fmt: skip
GROUPED = {
    "factors": 8,
    "optimizer": Optimizer("sgd", 0.5, "cosine", "mean", 0.5),
    "negatives": Negatives(3, 2, "popularity"),
    "vectors": VectorModel("both", 0.1, "dot", 0.3, True, 0.2, True),
    "monitoring": Monitoring("last", 2, 4, ("AP",), "folder", 7, True),
}


def test_options_are_collected_in_their_groups() -> None:
    assert group_options(MatrixFactorization, FLAT) == GROUPED
    assert group_options(MatrixFactorization, {}) == {}
    plain = {"negatives": 3, "optimizer": "sgd", "monitoring": "last"}
    assert group_options(MatrixFactorization, plain) == plain
    changed = group_options(MatrixFactorization, {"negatives": Negatives(5), "sampling": "popularity"})
    assert changed == {"negatives": Negatives(5, sampling="popularity")}


def test_every_parameter_of_0_2_is_an_option() -> None:
    model = MatrixFactorization(**GROUPED)
    flat = flat_parameters(model)
    assert flat | FLAT == flat
    assert set(parameters_of("MatrixFactorization")) == set(flat)
    assert set(flat) == set(FLAT) | {
        "loss", "bounding", "epochs", "learning_rate", "batch_size", "measure", "random_state"
    }  # fmt: skip
    made = make_ranker("MatrixFactorization", FLAT, loss="AP", bounding="min-max", loss_options={}, measure="AP")
    assert made.get_params() == {**model.get_params(), "loss": "AP", "bounding": "min-max", "measure": "AP"}
    check_ranker("MatrixFactorization", FLAT, "AP", "min-max")
    with pytest.raises(ArgumentError, match="MatrixFactorization has no parameter 'momentum'"):
        check_ranker("MatrixFactorization", {"momentum": 0.9}, None, "none")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Optimizer("lbfgs"), "optimizer must be one of adam, sgd, got 'lbfgs'"),
        (lambda: Negatives("some"), "negatives must be 'all' or a positive number, got 'some'"),
        (lambda: Negatives(float("nan")), "negatives must be 'all' or a positive number, got nan"),
        (lambda: VectorModel(init=0), "init must be a positive number, got 0"),
        (lambda: Monitoring(patience=0), "patience must be a positive integer, got 0"),
        (lambda: Monitoring(watch=("nope",)), "nope"),
        (lambda: VectorModel().with_value("history"), r"expected VectorModel\(...\), got 'history'"),
    ],
)
def test_a_group_checks_its_values(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_groups_are_values_for_scikit_learn() -> None:
    model = MatrixFactorization(**GROUPED)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(negatives=2).negatives == 2


def test_progress_is_shown_inside_the_block_only() -> None:
    model = MatrixFactorization(monitoring="last")
    with show_training(model) as has_progress:
        assert has_progress
        assert model.monitoring == Monitoring("last", verbose=True)
    assert model.monitoring == "last"
    with show_training(models.EASE()) as has_progress:
        assert not has_progress


@pytest.mark.parametrize("name", models.RANKERS)
def test_a_model_has_at_most_twelve_parameters(name: str) -> None:
    kind = getattr(models, name)
    assert len(inspect.signature(kind).parameters) == len(kind().get_params(deep=False)) <= 12
    options = [option for group in kind._groups.values() for option in group.names()]
    assert len(options) == len(set(options)), "an option belongs to one group"
    assert set(options) <= set(parameters_of(name))


# ---- options by their own names --------------------------------------------------------------------------------------


def test_an_option_by_its_own_name_leaves_the_others_as_the_model_has_them() -> None:
    ranker = MLPRanker(dropout=0.1, weight_decay=0.5, patience=3)
    assert ranker.network == Network(dropout=0.1)
    assert ranker.optimizer == NetworkOptimizer("adamw", weight_decay=0.5)
    assert ranker.monitoring == Monitoring(patience=3)
    published = RankNet(hidden=(8,)).network
    assert published == Network((8,), dropout=0.0, input_transform="none", input_noise=0.0)
    assert LambdaMART(min_child_samples=5).trees == TreeOptions(min_child_samples=5)
    assert RankCNN(flip=True).network == ImageNetwork(flip=True)
    assert RankCNN(min_gap=2.0).comparisons == Comparisons(list_size=64, min_gap=2.0)
    both = MLPRanker(network=Network((8,), activation="tanh"), dropout=0.1).network
    assert both == Network((8,), activation="tanh", dropout=0.1)


def test_a_plain_value_is_the_main_option_of_a_group() -> None:
    flat = flat_parameters(MLPRanker(network=(8,), optimizer="sgd", comparisons=5, monitoring="last"))
    assert flat == flat_parameters(MLPRanker()) | {
        "hidden": (8,), "optimizer": "sgd", "list_size": 5, "selection": "last"
    }  # fmt: skip


def test_parameters_are_set_by_the_names_of_options() -> None:
    ranker = MLPRanker(hidden=(8,), input_noise=0.0).set_params(dropout=0.2, epochs=3)
    assert (ranker.network, ranker.epochs) == (Network((8,), input_noise=0.0, dropout=0.2), 3)
    assert clone(ranker).get_params() == ranker.get_params()
    with pytest.raises(TypeError, match="unexpected keyword argument 'momentum'"):
        MLPRanker(momentum=0.9)
    with pytest.raises(ValueError, match="Invalid parameter 'momentum'"):
        ranker.set_params(momentum=0.9)


def test_searches_take_the_names_of_options() -> None:
    X, y, qid = np.arange(12.0)[:, None] % 4, np.arange(12) % 4, np.arange(12) // 4
    ranker = LambdaMART(n_estimators=2, min_child_samples=1)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(ranker, {"max_depth": [1, 2]}, cv=QueryKFold(3)).fit(X, y, qid=qid)
    assert search.best_estimator_.trees == TreeOptions(min_child_samples=1, max_depth=search.best_params_["max_depth"])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"dropout": "much"}, "dropout must be a finite number, got 'much'"),
        ({"optimizer": NetworkOptimizer(weight_decay=None)}, "weight_decay must be a finite number, got None"),
        ({"network": Network(activation=3)}, "activation must be a text, got 3"),
        ({"list_size": 1}, "list_size must be an integer of at least 2, got 1"),
    ],
)
def test_values_of_options_are_checked_when_fit_begins(params: dict[str, Any], message: str) -> None:
    ranker = MLPRanker(**params)
    with pytest.raises(ArgumentError, match=message):
        ranker.fit([[0.0], [1.0]], [0, 1])


def test_a_network_is_evaluated_and_stored_as_often_as_monitoring_says(tmp_path: Path) -> None:
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 2])
    folder = tmp_path / "state"
    monitoring = Monitoring(eval_every=2, checkpoint=folder, checkpoint_every=3)
    steps = []
    ranker = LinearRanker(epochs=5, monitoring=monitoring)
    ranker._on_step = lambda step, _: steps.append((step, sorted(path.name for path in folder.glob("epoch-*"))))
    ranker.fit(X, y, eval_set=(X, y))
    assert [row["epoch"] for row in ranker.history_ if "nDCG" in row] == [2, 4, 5]
    assert steps == [(2, []), (4, ["epoch-000003"]), (5, ["epoch-000005"])]
    assert ranker.kept_epoch_ in (2, 4, 5)
    same = LinearRanker(epochs=5).fit(X, y)
    more = LinearRanker(epochs=7, monitoring=monitoring).fit(X, y, eval_set=(X, y))
    assert [row["loss"] for row in more.history_[:5]] == [row["loss"] for row in same.history_]


# ---- files -----------------------------------------------------------------------------------------------------------

ROWS = [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 4], [1, 0, 0, 1, 0, 0]


def write_as_0_2(folder: Path, *, of_lists: bool) -> None:
    """Change a saved model into one of 0.2: parameters without groups, and of lists neither ids nor interactions."""
    index = json.loads((folder / "model.json").read_text())
    del index["sha256"]
    model = load_ranker(folder)
    flat = flat_parameters(model) | {"watch": {"tuple": []}, "similarity": "cosine"}
    index["params"] = flat
    if of_lists:
        arrays = load_file(folder / "weights.safetensors")
        save_file({name: arrays[name] for name in ("users", "items")}, folder / "weights.safetensors")
        for name in ("users.json", "items.json"):
            (folder / name).unlink()
            del index["files"][name]
        index["files"]["weights.safetensors"] = hashlib.sha256(
            (folder / "weights.safetensors").read_bytes()
        ).hexdigest()
    index["sha256"] = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(index))


@pytest.mark.parametrize("of_lists", [True, False])
def test_models_of_0_2_load(tmp_path: Path, of_lists: bool) -> None:
    model = MatrixFactorization(4, epochs=2, optimizer=Optimizer(l2=0.1), negatives=Negatives(1), measure="nDCG@10")
    model.fit(*ROWS) if of_lists else model.fit((["a", "a", "b"], ["x", "y", "z"]))
    model.save(tmp_path / "model")
    write_as_0_2(tmp_path / "model", of_lists=of_lists)
    loaded = load_ranker(tmp_path / "model")
    assert isinstance(loaded, MatrixFactorization)
    assert_array_equal(loaded.user_vectors_, model.user_vectors_)
    assert (loaded.optimizer, loaded.negatives) == (Optimizer(l2=0.1), Negatives(1))
    user = 0 if of_lists else "a"
    expected = model.recommend(user, exclude_seen=not of_lists)  # a file of lists says nothing of their items
    assert loaded.recommend(user).equals(expected)
    assert loaded.vectors == VectorModel(similarity=None if of_lists else "cosine")
    loaded.save(tmp_path / "again")
    assert load_ranker(tmp_path / "again").recommend(user).equals(expected)


def test_groups_are_saved_as_they_were_given(tmp_path: Path) -> None:
    grouped = {name: value for name, value in GROUPED.items() if name != "monitoring"}
    for number, params in enumerate((grouped, {"optimizer": "sgd", "negatives": 2})):
        model = MatrixFactorization(**params, epochs=1).fit((["a", "a", "b"], ["x", "y", "z"]))
        model.save(tmp_path / str(number))
        assert load_ranker(tmp_path / str(number)).get_params() == model.get_params()


def test_a_file_cannot_create_anything_but_options(tmp_path: Path) -> None:
    model = MatrixFactorization(4, epochs=1, negatives=Negatives(1)).fit((["a", "a", "b"], ["x", "y", "z"]))
    model.save(tmp_path / "model")
    index = json.loads((tmp_path / "model" / "model.json").read_text())
    index["params"]["negatives"]["object"] = ["rankbound.models", "EASE"]
    del index["sha256"]
    index["sha256"] = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
    (tmp_path / "model" / "model.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"rankbound\.models has no 'EASE'"):
        load_ranker(tmp_path / "model")


def test_the_fitted_vectors_do_not_depend_on_how_options_are_given() -> None:
    rows = np.array(["a", "a", "b"]), np.array(["x", "y", "z"])
    one = MatrixFactorization(4, epochs=2, negatives=1, optimizer="sgd").fit(rows)
    other = MatrixFactorization(4, epochs=2, negatives=Negatives(1), optimizer=Optimizer("sgd")).fit(rows)
    assert_array_equal(one.user_vectors_, other.user_vectors_)
