"""Options of MLPRanker: transformed inputs, noise, normalization, self-attention, schedules, and their files."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankbound.checkpoints import Checkpoints
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.models import DirectRanker, ListNet, MLPRanker, Ranker, RankNet, export_onnx, load_ranker
from rankbound.models.options import flat_parameters
from rankbound.models.rankers import networks
from rankbound.models.rankers.networks import PaddedLists, SelfAttention
from rankbound.models.rankers.weighted_features import find_heavy_tails, signed_log1p
from rankbound.training import Settings

DATA = synthetic_letor(queries=70, features=6, seed=4, documents=(3, 25))
TRAIN, TEST = DATA.take(range(45)), DATA.take(range(45, 70))
THESIS: dict[str, Any] = {
    "loss": "nDCG", "hidden": (46,), "dropout": 0.0, "input_noise": 0.0, "input_transform": "none", "batch_size": 32,
    "optimizer": "adam", "weight_decay": 0.0, "patience": None,
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "normalized": {"layer_norm": True, "input_transform": "log1p", "schedule": "cosine"},
    "attention": {"attention_blocks": 1, "attention_heads": 2},
    "deep attention": {"hidden": (), "attention_blocks": 2, "attention_heads": 3, "input_transform": "log1p"},
}
every_option = pytest.mark.parametrize("name", OPTIONS)


def columns(data: Any) -> tuple[Any, Any, Any]:
    return data.features, data.lists.labels, data.lists.query_of_item


def ranker(**options: Any) -> MLPRanker:
    return MLPRanker(**({"hidden": (8,), "epochs": 4, "learning_rate": 0.01} | options))


@functools.cache
def fitted(name: str) -> MLPRanker:
    X, y, qid = columns(TRAIN)
    return ranker(**OPTIONS[name]).fit(X, y, qid=qid, eval_set=columns(TEST))


@parametrize_with_checks(
    [MLPRanker(hidden=(4,), epochs=2, attention_blocks=1, layer_norm=True)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "a network is trained in steps of some queries",
        "check_methods_subset_invariance": "the rows of a call are the context of each other",
    },
)
def test_scikit_learn_checks(estimator: Ranker, check: Any) -> None:
    check(estimator)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def test_the_transformation_is_odd_and_increasing() -> None:
    values = np.array([-1e30, -3.0, -0.5, 0.0, 0.5, 3.0, 1e30])
    np.testing.assert_allclose(signed_log1p(values)[4:], [math.log(1.5), math.log(4), 30 * math.log(10)])
    np.testing.assert_array_equal(signed_log1p(-values), -signed_log1p(values))
    assert (np.diff(signed_log1p(values)) > 0).all()


def test_heavy_tails_are_those_that_the_logarithm_shortens() -> None:
    rng = np.random.default_rng(1)
    tail = rng.lognormal(1, 2, 2000)
    sparse = np.where(rng.random(2000) < 0.05, tail, 0)
    light = {"normal": rng.normal(0, 9, 2000), "uniform": rng.uniform(0, 100, 2000), "constant": np.full(2000, 1e9)}
    light |= {"scaled to 1": tail / tail.max(), "rare word": (rng.random(2000) < 0.01) * 1.0}
    heavy = {"counts": np.floor(tail), "negative": -tail, "both tails": rng.standard_cauchy(2000), "sparse": sparse}
    heavy |= {"huge": tail**20}
    for expected, features in ((False, light), (True, heavy)):
        chosen = find_heavy_tails(np.stack(list(features.values()), axis=1))
        assert dict(zip(features, chosen.tolist(), strict=True)) == dict.fromkeys(features, expected)


def test_the_rule_is_applied_to_the_training_rows_and_can_be_overruled() -> None:
    rng = np.random.default_rng(2)
    X = np.stack((rng.normal(size=400), rng.lognormal(3, 2, 400)), axis=1)
    y = (X[:, 1] > 20).astype(int)
    for choice, expected in (("auto", [False, True]), ("log1p", [True, True]), ("none", [False, False])):
        model = ranker(epochs=1, input_transform=choice).fit(X, y, qid=np.arange(400) // 20)
        assert model.log_features_.tolist() == expected
        column = np.log1p(X[:, 1]) if expected[1] else X[:, 1]
        assert model.mean_[1] == pytest.approx(column.mean())
        assert model.scale_[1] == pytest.approx(column.std())


def heavy_tails(queries: int, seed: int) -> tuple[Any, Any, Any]:
    """Queries whose labels depend on the logarithms of the features, as counts and lengths of documents do."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, 2, (queries * 12, 8))
    relevance = logs[:, 0] + np.abs(logs[:, 1]) - logs[:, 2] + rng.normal(0, 0.5, len(logs))
    return np.exp(logs + 2), (relevance > 1).astype(int) + (relevance > 3), np.repeat(np.arange(queries), 12)


@pytest.mark.full("takes seconds")
def test_the_default_beats_the_network_of_the_thesis_where_features_have_heavy_tails() -> None:
    X, y, qid = heavy_tails(150, seed=0)
    values = []
    for options in ({}, THESIS):
        model = MLPRanker(**{"epochs": 25, "measure": "nDCG@5"} | options)
        model.fit(X, y, qid=qid, eval_set=heavy_tails(40, seed=1))
        values.append(model.score(*heavy_tails(80, seed=2)))
    assert values[0] > values[1] + 0.05


def test_noise_and_dropout_are_in_training_only_and_come_from_the_seed() -> None:
    X, y, qid = columns(TRAIN)
    quiet = {"dropout": 0.0, "input_noise": 0.0}
    models = [
        ranker(**options).fit(X, y, qid=qid) for options in ({}, {}, {"random_state": 1}, quiet, {"dropout": 0.0})
    ]
    scores = [model.predict(X) for model in models]
    np.testing.assert_array_equal(scores[0], scores[1])
    for other in (2, 3, 4):
        assert not np.array_equal(scores[0], scores[other])
    assert not np.array_equal(scores[3], scores[4])


def test_published_networks_have_none_of_the_new_options() -> None:
    for model in (RankNet(), DirectRanker(), ListNet()):
        params = flat_parameters(model)
        expected = {name: value for name, value in THESIS.items() if name not in ("loss", "hidden")}
        assert {name: params[name] for name in expected} == expected
        assert (params["layer_norm"], params["attention_blocks"], params["schedule"]) == (False, 0, "constant")
        assert params["hidden"] == ((46,) if isinstance(model, ListNet) else (100, 30))


# ---- attention -------------------------------------------------------------------------------------------------------


def trained_block(units: int = 6, heads: int = 2) -> SelfAttention:
    """Return a block whose branches are not 0, as after training."""
    generator = torch.Generator().manual_seed(3)
    block = SelfAttention(units, heads, 0.0, generator)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return block.double().eval()


def test_attention_is_that_of_torch_on_each_list_alone() -> None:
    block = trained_block()
    reference = torch.nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, batch_first=True, norm_first=True).double()
    names = {"self_attn.in_proj": "projection", "self_attn.out_proj": "mixing", "linear1": "expansion"}
    names |= {"linear2": "contraction", "norm1": "first_norm", "norm2": "second_norm"}
    state = {}
    for theirs, ours in names.items():
        for kind in ("weight", "bias"):
            separator = "_" if theirs.endswith("in_proj") else "."
            state[f"{theirs}{separator}{kind}"] = getattr(getattr(block, ours), kind)
    reference.load_state_dict(state)
    rows = torch.randn(9, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    offsets = np.array([0, 4, 5, 9])
    outputs = block(rows, PaddedLists(offsets))
    for start, end in itertools.pairwise(offsets):
        expected = reference.train()(rows[None, start:end])[0]  # in training, torch takes no shortcut; dropout is 0
        torch.testing.assert_close(outputs[start:end], expected)


def test_an_untrained_block_changes_nothing() -> None:
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    block = SelfAttention(4, 2, 0.5, torch.Generator().manual_seed(1))
    torch.testing.assert_close(block(rows, PaddedLists(np.array([0, 2, 5]))), rows, rtol=0, atol=0)


@functools.cache
def attentive() -> MLPRanker:
    """Return a ranker whose scores depend on the context clearly."""
    X, y, qid = columns(TRAIN)
    model = ranker(attention_blocks=2, attention_heads=2, epochs=8, learning_rate=0.03).fit(X, y, qid=qid)
    alone = np.concatenate([model.predict(row[None]) for row in TEST.features[:20]])
    assert np.abs(alone - model.predict(*columns(TEST)[::2])[:20]).max() > 0.01
    return model


def test_scores_follow_the_documents_in_any_order_of_the_rows() -> None:
    X, _, qid = columns(TEST)
    scores = attentive().predict(X, qid=qid)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))  # queries are no longer contiguous
        np.testing.assert_array_equal(attentive().predict(X[order], qid=qid[order]), scores[order])


def test_scores_of_a_query_depend_on_no_other_query() -> None:
    X, _, qid = columns(TEST)
    scores = attentive().predict(X, qid=qid)
    for query in range(len(TEST.lists)):
        mine = qid == query
        np.testing.assert_array_equal(attentive().predict(X[mine], qid=qid[mine]), scores[mine])
        np.testing.assert_array_equal(attentive().predict(X[mine], qid=["q"] * int(mine.sum())), scores[mine])
    renamed = np.array([f"query {99 - number}" for number in qid])
    np.testing.assert_array_equal(attentive().predict(X, qid=renamed), scores)


@pytest.mark.parametrize(("inputs", "pairs"), [(1, 1), (600, 1 << 22), (1 << 22, 300)])
def test_scores_do_not_depend_on_chunks(inputs: int, pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, qid = columns(TEST)
    expected = attentive().predict(X, qid=qid), fitted("default").predict(X)
    monkeypatch.setattr(networks, "_MAX_INPUTS", inputs)
    monkeypatch.setattr(networks, "_MAX_PAIRS", pairs)
    np.testing.assert_array_equal(attentive().predict(X, qid=qid), expected[0])
    np.testing.assert_array_equal(fitted("default").predict(X), expected[1])


def test_equal_documents_of_a_query_get_equal_scores() -> None:
    X, _, qid = columns(TEST)
    scores = attentive().predict(np.concatenate((X, X)), qid=np.concatenate((qid, qid)))
    np.testing.assert_array_equal(scores[: len(X)], scores[len(X) :])


def test_attention_requires_the_query_of_each_row() -> None:
    X, y, qid = columns(TEST)
    with pytest.raises(DataError, match=r"predict requires qid, got None: this ranker .* was trained on 45 queries"):
        attentive().predict(X)
    with pytest.raises(DataError, match="qid must have one entry per row of X"):
        attentive().predict(X, qid=qid[1:])
    assert attentive().predict(X[:1]).shape == (1,)
    single = ranker(attention_blocks=1).fit(X, y)
    np.testing.assert_array_equal(single.predict(X), single.predict(X, qid=np.zeros(len(X))))
    plain = fitted("default")
    np.testing.assert_array_equal(plain.predict(X), plain.predict(X, qid=qid[::-1]))
    with pytest.raises(DataError, match="qid must have one entry per row of X"):
        plain.predict(X, qid=qid[1:])


def test_scores_of_the_held_out_queries_are_those_of_score() -> None:
    X, y, qid = columns(TEST)
    for name in OPTIONS:
        model = fitted(name)
        assert model.eval_score_ == pytest.approx(model.history_[model.kept_epoch_ - 1]["nDCG"])
        assert model.score(X, y, qid=qid) == model.eval_score_


def test_attention_has_no_export_and_no_probability_of_pairs(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="export_onnx requires a ranker that scores each row alone"):
        export_onnx(fitted("attention"), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
    X, y, qid = columns(TRAIN)
    pairs = ranker(loss="RankNet", attention_blocks=1).fit(X, y, qid=qid)
    with pytest.raises(ArgumentError, match="pair_probability requires a score for each item alone"):
        pairs.pair_probability(X[:2], X[2:4])


# ---- training --------------------------------------------------------------------------------------------------------


def test_the_cosine_rises_and_falls() -> None:
    settings = Settings(epochs=100, learning_rate=2.0, schedule="cosine")
    rates = [settings.rate(epoch) for epoch in range(1, 101)]
    np.testing.assert_allclose(rates[:6], [0.4, 0.8, 1.2, 1.6, 2.0, 2.0])
    assert (np.diff(rates[5:]) < 0).all()
    assert rates[-1] == pytest.approx(1 + math.cos(math.pi * 94 / 95))
    assert Settings(epochs=1, schedule="cosine").rate(1) == Settings().rate(50) == 1e-3


def test_weight_decay_of_adamw_is_decoupled_from_the_gradient() -> None:
    X, y, qid = columns(TRAIN)
    still = {"learning_rate": 1e-3, "epochs": 1, "batch_size": 1000, "dropout": 0.0, "input_noise": 0.0}
    plain, decayed = (ranker(weight_decay=decay, **still).fit(X, y, qid=qid) for decay in (0.0, 100.0))
    generator = torch.Generator().manual_seed(0)
    start = ranker(**still)
    start.mean_, start.objective_ = plain.mean_, plain.objective_
    initial = start._network(generator).state_dict()
    for name, value in plain.network_.state_dict().items():  # w (1 - 1e-3 * 100) instead of w, and the same step
        torch.testing.assert_close(decayed.network_.state_dict()[name], value - 0.1 * initial[name])


def test_a_fit_with_held_out_queries_stops_early_by_default() -> None:
    X, y, qid = columns(TRAIN)
    model = MLPRanker(hidden=(16,), learning_rate=0.05, batch_size=45, epochs=300).fit(
        X, y, qid=qid, eval_set=columns(TEST)
    )
    assert len(model.history_) == model.kept_epoch_ + 20 < 300


@pytest.mark.parametrize("name", ["normalized", "attention"])
@pytest.mark.parametrize("when", [1, 3])
def test_a_resumed_training_ends_with_the_same_model(
    name: str, when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, qid = columns(TRAIN)
    save = Checkpoints.save

    def dying(self: Any, epoch: int, arrays: Any, metadata: Any) -> None:
        save(self, epoch, arrays, metadata)
        if epoch == when:
            raise KeyboardInterrupt

    model = ranker(checkpoint=tmp_path, **OPTIONS[name])
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", dying)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, qid=qid, eval_set=columns(TEST))
    model.fit(X, y, qid=qid, eval_set=columns(TEST))
    assert model.history_ == fitted(name).history_
    for key, array in fitted(name)._fitted_state().arrays.items():
        np.testing.assert_array_equal(model._fitted_state().arrays[key], array)


def test_a_cosine_has_a_fixed_number_of_epochs(tmp_path: Path) -> None:
    X, y, qid = columns(TRAIN)
    ranker(schedule="cosine", epochs=2, checkpoint=tmp_path).fit(X, y, qid=qid)
    with pytest.raises(DataError, match="another training run, which differs in epochs"):
        ranker(schedule="cosine", epochs=3, checkpoint=tmp_path).fit(X, y, qid=qid)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_transform": "sqrt"}, "input_transform must be one of auto, none, log1p, got 'sqrt'"),
        ({"input_noise": -0.1}, "input_noise must be a number of at least 0, got -0.1"),
        ({"input_noise": math.inf}, "input_noise must be a finite number, got inf"),
        ({"input_noise": "much"}, "input_noise must be a finite number, got 'much'"),
        ({"layer_norm": "yes"}, "layer_norm must be True or False, got 'yes'"),
        ({"attention_blocks": -1}, "attention_blocks must be an integer of at least 0, got -1"),
        ({"attention_blocks": 1.5}, "attention_blocks must be an integer, got 1.5"),
        ({"attention_blocks": 1, "attention_heads": 3}, "attention_heads must divide .* layer, 8, got 3"),
        ({"attention_blocks": 1, "attention_heads": 0}, "attention_heads must be positive integers, got 0"),
        ({"schedule": "linear"}, "schedule must be one of constant, cosine, got 'linear'"),
        ({"bounding": "min-max"}, "does not take these options"),
    ],
)
def test_wrong_parameters_are_named(options: dict[str, Any], message: str) -> None:
    X, y, qid = columns(TRAIN)
    with pytest.raises(ArgumentError, match=message):
        ranker(**options).fit(X, y, qid=qid)


# ---- files -----------------------------------------------------------------------------------------------------------


@every_option
def test_saved_loaded_and_cloned_rankers_are_the_same(name: str, tmp_path: Path) -> None:
    X, _, qid = columns(TEST)
    fitted(name).save(tmp_path / "model")
    loaded = load_ranker(tmp_path / "model")
    assert loaded.get_params() == fitted(name).get_params() == clone(fitted(name)).get_params()
    np.testing.assert_array_equal(loaded.predict(X, qid=qid), fitted(name).predict(X, qid=qid))
    np.testing.assert_array_equal(loaded.log_features_, fitted(name).log_features_)


@pytest.mark.parametrize("name", ["default", "normalized"])
def test_onnx_scores_are_ours(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y, qid = columns(TRAIN)
    signed = 100 * (X.astype(np.float64) - 0.4)  # both branches of the logarithm
    model = ranker(**OPTIONS[name]).fit(signed, y, qid=qid)
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    scores = session.run(["score"], {"features": signed.astype(np.float32)})[0]
    np.testing.assert_allclose(scores, model.predict(signed), rtol=2e-5, atol=2e-5)


def resealed(folder: Path, change: Any) -> Path:
    """Change the index of a saved model, and its own digest so that the change is not seen as damage."""
    index = json.loads((folder / "model.json").read_bytes())
    del index["sha256"]
    change(index)
    index["sha256"] = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(index))
    return folder


def test_a_file_without_the_new_parameters_is_that_of_an_older_version(tmp_path: Path) -> None:
    X, y, qid = columns(TRAIN)
    older = ranker(**THESIS).fit(X, y, qid=qid)
    older.save(tmp_path / "model")

    def forget(index: dict[str, Any]) -> None:
        flat = {name: {"tuple": list(v)} if isinstance(v, tuple) else v for name, v in flat_parameters(older).items()}
        index["params"] = flat
        for name in ("input_transform", "input_noise", "layer_norm", "attention_blocks", "attention_heads", "schedule"):
            del index["params"][name]

    loaded = load_ranker(resealed(tmp_path / "model", forget))
    assert flat_parameters(loaded) == flat_parameters(older)
    np.testing.assert_array_equal(loaded.predict(X), older.predict(X))


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("attention", {"attention_blocks": 10**12}, "attention_blocks must be at most the number of arrays"),
        ("attention", {"attention_blocks": 2}, "Missing key"),
        ("attention", {"attention_blocks": 0}, "Unexpected key"),
        ("attention", {"attention_heads": 5}, "attention_heads must divide"),
        ("attention", {"hidden": {"tuple": [24, 24, 24]}}, "Missing key"),
        ("default", {"layer_norm": True}, "Missing key"),
        ("default", {"hidden": {"tuple": [6]}}, "size mismatch"),
        ("default", {"hidden": 10**12}, "layers of 1000000000000 units do not fit"),
    ],
)
def test_files_whose_parameters_do_not_fit_their_arrays_are_refused(
    name: str, params: dict[str, Any], message: str, tmp_path: Path
) -> None:
    fitted(name).save(tmp_path / "model")
    with pytest.raises(DataError, match=message):
        load_ranker(resealed(tmp_path / "model", lambda index: index["params"].update(params)))


@pytest.mark.parametrize(
    ("key", "array", "message"),
    [
        ("log_features", np.ones(5, dtype=np.bool_), "log_features must have a truth value for each of 6 features"),
        ("log_features", np.ones(6, dtype=np.float32), "log_features must have a truth value for each of 6 features"),
        ("network.1.weight", np.ones((8, 6)), "the weights of a network must be float32"),
        ("network.1.weight", np.ones((8, 7), dtype=np.float32), "size mismatch"),
    ],
)
def test_files_with_arrays_of_another_kind_are_refused(key: str, array: Any, message: str, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save

    fitted("default").save(tmp_path / "model")
    arrays = load_file(tmp_path / "model" / "weights.safetensors")
    assert key in arrays
    content = save(arrays | {key: array})
    (tmp_path / "model" / "weights.safetensors").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    with pytest.raises(DataError, match=message):
        load_ranker(resealed(tmp_path / "model", lambda index: index["files"].update({"weights.safetensors": digest})))
