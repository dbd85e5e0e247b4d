"""Neural rankers: learning, the losses they take, pairs as an ordinal model, files, and ONNX."""

from __future__ import annotations

import functools
import itertools
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankbound.data.letor import LetorData
from rankbound.data.synthetic import synthetic_images, synthetic_letor
from rankbound.errors import ArgumentError, DataError
from rankbound.losses import APLoss, DirectRankerLoss, NDCGLoss, PointwiseLoss, RankNetLoss
from rankbound.models import (
    AdaRank,
    DirectRanker,
    LinearRanker,
    ListNet,
    LogisticRanker,
    MLPRanker,
    RankCNN,
    Ranker,
    RankNet,
    RegressionRanker,
    export_onnx,
    load_ranker,
)
from rankbound.models.export import export_ranklib
from rankbound.models.measuring import mean_measure
from rankbound.models.rankers.networks import make_objective
from rankbound.packages import MissingPackageError

FEW: dict[str, Any] = {"epochs": 12, "learning_rate": 0.02, "batch_size": 16}
CATALOG: dict[str, Ranker] = {
    "LinearRanker": LinearRanker(**FEW),
    "LinearRanker AP": LinearRanker(APLoss(form="ranks", alpha=2.0), measure="AP", **FEW),
    "LinearRanker RankNet": LinearRanker("RankNet", **FEW),
    "LinearRanker regression": LinearRanker("regression", **FEW),
    "LinearRanker SoftRank": LinearRanker("SoftRank", "expectation-max", **FEW),
    "MLPRanker": MLPRanker(hidden=(16,), **FEW),
    "MLPRanker bounded": MLPRanker("nDCG@10", "min-max", hidden=(16,), **FEW),
    "MLPRanker lambda": MLPRanker("lambda-nDCG", hidden=(16, 8), activation="tanh", dropout=0.1, **FEW),
    "MLPRanker regression": MLPRanker("regression", hidden=(16,), **FEW),
    "MLPRanker classification": MLPRanker("classification", hidden=(16,), activation="elu", **FEW),
    "MLPRanker is relevant": MLPRanker(PointwiseLoss("classification", rel=1), hidden=(16,), **FEW),
    "RankNet": RankNet(hidden=(16,), **FEW),
    "DirectRanker": DirectRanker(hidden=(16,), activation="sigmoid", **FEW),
    "DirectRanker tanh": DirectRanker(cost="tanh", hidden=(16,), **FEW),
    "ListNet": ListNet(hidden=(16,), **FEW),
}
every_ranker = pytest.mark.parametrize("name", CATALOG)


@functools.cache
def data() -> tuple[LetorData, LetorData]:
    whole = synthetic_letor(queries=110, features=10, seed=5, documents=(5, 40))
    return whole.take(range(70)), whole.take(range(70, 110))


def columns(part: LetorData) -> tuple[Any, Any, Any]:
    return part.features, part.lists.labels, part.lists.query_of_item


@functools.cache
def fitted(name: str) -> Ranker:
    X, y, qid = columns(data()[0])
    return clone(CATALOG[name]).fit(X, y, qid=qid)


# ---- scikit-learn's own checks ---------------------------------------------------------------------------------------

_BY_STEP = "a network is trained in steps of some queries, so a row twice is not a row of twice the weight"


@parametrize_with_checks(
    [
        LinearRanker(epochs=3),
        LinearRanker("regression", epochs=3),
        MLPRanker(hidden=(4,), epochs=3),
        MLPRanker("classification", hidden=(4,), epochs=3),
        RankNet(hidden=(4,), epochs=3),
        DirectRanker(hidden=(4,), epochs=3),
        ListNet(hidden=(4,), epochs=3),
    ],
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": _BY_STEP},
)
def test_scikit_learn_checks(estimator: Ranker, check: Any) -> None:
    check(estimator)


# ---- learning --------------------------------------------------------------------------------------------------------


@every_ranker
def test_ranks_new_queries_far_better_than_probability(name: str) -> None:
    test = data()[1]
    X, y, qid = columns(test)
    measure = fitted(name).measure
    assert fitted(name).score(X, y, qid=qid) > mean_measure(test.lists, np.zeros(len(y)), measure) + 0.15


@pytest.mark.full("takes seconds")
@every_ranker
def test_odd_data_give_a_clear_error_or_a_sound_model(name: str) -> None:
    X, y, qid = columns(data()[0])
    broken = X.copy()
    broken[7, 3] = np.nan
    with pytest.raises(DataError, match="features must be finite, got NaN at row 7, column 3"):
        clone(CATALOG[name]).fit(broken, y, qid=qid)
    for labels in (np.zeros_like(y), np.full_like(y, -1)):
        with pytest.raises(DataError, match="labels must differ"):
            clone(CATALOG[name]).fit(X, labels, qid=qid)
    constant = np.full((len(X), 1), 0.1, dtype=X.dtype)
    assert np.ptp(clone(CATALOG[name]).fit(constant, y, qid=qid).predict(constant)) == 0
    twice = fitted(name).predict(np.concatenate((X, X[::-1], X[:7])))
    np.testing.assert_array_equal(twice[: len(X)], twice[len(X) : 2 * len(X)][::-1])  # equal rows are ties
    largest = qid == np.argmax(np.bincount(qid, y))
    assert clone(CATALOG[name]).fit(X[largest], y[largest]).score(X[largest], y[largest]) > 0.6
    huge = clone(CATALOG[name]).fit(X.astype(np.float64) * 1e30, y, qid=qid)
    assert np.isfinite(huge.predict(X * np.float64(1e30))).all()


def test_labels_that_differ_only_between_queries_are_for_pointwise_rankers() -> None:
    X, _, qid = columns(data()[0])
    assert np.isfinite(MLPRanker("regression", hidden=(4,), epochs=2).fit(X, qid % 2, qid=qid).predict(X)).all()
    with pytest.raises(DataError, match="labels must differ within at least one query"):
        MLPRanker("nDCG", epochs=2).fit(X, qid % 2, qid=qid)


@pytest.mark.full("takes seconds")
def test_regression_and_classification_predict_labels_on_their_scale() -> None:
    X, y, qid = columns(data()[0])
    for loss in ("regression", "classification"):
        scores = MLPRanker(loss, hidden=(16,), epochs=40, learning_rate=0.01).fit(X, 10 * y + 3, qid=qid).predict(X)
        assert scores.mean() == pytest.approx((10 * y + 3).mean(), rel=0.15)
        assert scores.min() > -5
        assert scores.max() < 30
    with pytest.raises(DataError, match="at most 32 distinct labels, got 50; use regression"):
        MLPRanker("classification", epochs=1).fit(X, np.arange(len(X)) % 50, qid=qid)


def test_a_query_of_weight_zero_has_no_effect() -> None:
    X, y, qid = columns(data()[0])
    ranker = LinearRanker(NDCGLoss(reduction="sum"), epochs=5, batch_size=1000, standardize=False)
    weights = (qid < 50).astype(float)
    one = ranker.fit(X, y, qid=qid, sample_weight=weights).coef_
    other = ranker.fit(X, np.where(qid < 50, y, 2 - y), qid=qid, sample_weight=weights).coef_
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_linear_weights_undo_the_standardizing_and_make_ranklib_text(tmp_path: Any) -> None:
    X, _, _ = columns(data()[0])
    for name in ("LinearRanker", "LinearRanker regression"):
        scores = fitted(name).predict(X)
        difference = scores - X.astype(np.float64) @ fitted(name).coef_
        assert np.ptp(difference) < 1e-5  # a constant changes no ranking
    export_ranklib(fitted("LinearRanker"), tmp_path / "model.txt")
    assert (tmp_path / "model.txt").read_text().startswith("## Coordinate Ascent")


@pytest.mark.parametrize(
    ("ranker", "message"),
    [
        (MLPRanker("nothing"), "loss must be one of"),
        (MLPRanker("RankNet", "min-max"), "does not take these options"),
        (MLPRanker(NDCGLoss(), "min-max"), "options need the name of a loss"),
        (MLPRanker(NDCGLoss(reduction="none")), "reduction of a training loss must be 'mean' or 'sum', got 'none'"),
        (MLPRanker("nDCG", bounding="sideways"), "bounding must be one of"),
        (MLPRanker(hidden=(4, 0)), r"hidden must be positive integers, got \(4, 0\)"),
        (MLPRanker(activation="swish"), "activation must be one of relu"),
        (MLPRanker(dropout=1.0), r"dropout must be in \[0, 1\)"),
        (MLPRanker(min_gap=1.0), "min_gap requires the loss RankNet or DirectRanker"),
        (RankNet(min_gap=-1.0), "min_gap must be a number of at least 0"),
        (DirectRanker(cost="cube"), "cost must be 'square' or 'tanh'"),
    ],
)
def test_wrong_parameters_are_named(ranker: Ranker, message: str) -> None:
    X, y, qid = columns(data()[0])
    with pytest.raises(ArgumentError, match=message):
        ranker.fit(X, y, qid=qid)


# ---- pairs -----------------------------------------------------------------------------------------------------------

PAIRS = ("LinearRanker RankNet", "RankNet", "DirectRanker", "DirectRanker tanh")
rows = st.lists(st.floats(-100, 100, width=32), min_size=10, max_size=10)


@pytest.mark.parametrize("name", PAIRS)
@given(a=rows, b=rows, c=rows)
@examples(60)
def test_the_probability_of_a_pair_is_an_ordinal_model(name: str, a: list, b: list, c: list) -> None:
    def P(first: list, second: list) -> float:  # noqa: N802 - as in the paper
        return float(fitted(name).pair_probability([first], [second])[0])

    assert P(a, a) == 0.5  # reflexivity
    assert P(a, b) + P(b, a) == pytest.approx(1, abs=1e-15)  # antisymmetry
    if P(a, b) >= 0.5 and P(b, c) >= 0.5:  # transitivity, in its strong form
        assert P(a, c) >= max(P(a, b), P(b, c)) - 1e-15
    if P(a, b) < 0.5 and P(b, c) < 0.5:
        assert P(a, c) < 0.5
    scores = fitted(name).predict([a, b])
    assert np.sign(P(a, b) - 0.5) in (0, np.sign(scores[0] - scores[1]))


def test_only_rankers_of_pairs_have_a_probability() -> None:
    with pytest.raises(ArgumentError, match="pair_probability requires the loss RankNet or DirectRanker"):
        fitted("MLPRanker").pair_probability(np.zeros((1, 10)), np.ones((1, 10)))


@given(
    labels=st.lists(st.integers(0, 12), min_size=1, max_size=14),
    cut=st.integers(0, 14),
    gap=st.sampled_from([0.5, 1.0, 3.0, 5.0]),
    seed=st.integers(0, 99),
)
@examples(80)
def test_a_gap_leaves_the_pairs_that_lie_further_apart(labels: list, cut: int, gap: float, seed: int) -> None:
    import torch

    offsets = np.array([0, min(cut, len(labels)), len(labels)])
    scores = torch.from_numpy(np.random.default_rng(seed).normal(size=len(labels))).requires_grad_()
    objective = make_objective(RankNetLoss(), "none", np.array(labels), gap)
    value = objective(scores, np.array(labels), offsets, None)
    means = []
    for start, end in itertools.pairwise(offsets):
        costs = [
            torch.nn.functional.softplus(scores[j] - scores[i])
            for i in range(start, end)
            for j in range(start, end)
            if labels[i] - labels[j] > gap
        ]
        means += [torch.stack(costs).mean()] if costs else []
    expected = torch.stack(means).mean() if means else torch.zeros(())
    assert float(value.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)
    if means:
        gradient = torch.autograd.grad(expected, scores)[0]
        np.testing.assert_allclose(torch.autograd.grad(value, scores)[0], gradient, atol=1e-6)


def test_a_gap_works_for_direct_ranker_too() -> None:
    narrow = make_objective(DirectRankerLoss(cost="tanh"), "none", np.array([0, 1, 4]), 2.0).losses[0]
    assert narrow.cost == "tanh"
    assert narrow.plan([0, 1, 4], [0, 3]).ends.tolist() == [1, 3, 3]


# ---- files -----------------------------------------------------------------------------------------------------------


@every_ranker
def test_saved_and_loaded_rankers_score_bit_for_bit_alike(name: str, tmp_path: Any) -> None:
    X, y, qid = columns(data()[1])
    fitted(name).save(tmp_path / "model")
    loaded = load_ranker(tmp_path / "model")
    assert loaded.get_params() == fitted(name).get_params()
    assert loaded.history_ == fitted(name).history_
    np.testing.assert_array_equal(loaded.predict(X), fitted(name).predict(X))
    assert loaded.score(X, y, qid=qid) == fitted(name).score(X, y, qid=qid)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted(name))).predict(X), fitted(name).predict(X))


def onnx_scores(path: Any, X: Any) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["score"], {"features": np.asarray(X, dtype=np.float32)})[0]


@every_ranker
def test_onnx_scores_are_ours(name: str, tmp_path: Any) -> None:
    pytest.importorskip("onnx")
    X = columns(data()[1])[0]
    export_onnx(fitted(name), tmp_path / "model.onnx")
    np.testing.assert_allclose(onnx_scores(tmp_path / "model.onnx", X), fitted(name).predict(X), rtol=2e-5, atol=2e-5)


def test_onnx_of_other_rankers_and_metadata_of_the_file(tmp_path: Any) -> None:
    onnx = pytest.importorskip("onnx")
    X, y, qid = columns(data()[0])
    for ranker in (AdaRank(n_estimators=5), RegressionRanker("linear-l2")):
        export_onnx(ranker.fit(X, y, qid=qid), tmp_path / "sum.onnx")
        np.testing.assert_allclose(onnx_scores(tmp_path / "sum.onnx", X), ranker.predict(X), rtol=2e-5, atol=2e-5)
    with pytest.raises(ArgumentError, match="export_onnx requires a neural or linear ranker, got LogisticRanker"):
        export_onnx(LogisticRanker().fit(X, y, qid=qid), tmp_path / "no.onnx")
    assert not (tmp_path / "no.onnx").exists()
    model = onnx.load(tmp_path / "sum.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 10
    assert {entry.key: entry.value for entry in model.metadata_props}["ranker"] == "RegressionRanker"


def test_without_onnx_the_error_names_the_extra(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr("rankbound.packages.find_missing", lambda *modules: list(modules))
    with pytest.raises(MissingPackageError, match=r'export_onnx needs onnx: pip install "\.\[onnx\]"'):
        export_onnx(fitted("LinearRanker"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


# ---- images ----------------------------------------------------------------------------------------------------------


@functools.cache
def faces() -> Any:
    return synthetic_images(count=400, size=16, seed=3)


SMALL: dict[str, Any] = {"channels": (8,), "hidden": (16,), "epochs": 6, "list_size": 32, "measure": "Tau"}


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    "options",
    [{"min_gap": 5.0, "flip": True}, {"loss": "nDCG"}, {"loss": "regression"}, {"dropout": 0.2, "kernel_size": 5}],
)
def test_rank_cnn_orders_images_by_age_and_survives_files(options: dict[str, Any], tmp_path: Any) -> None:
    images, ages = faces().images, faces().ages // (20 if options.get("loss") == "nDCG" else 1)
    ranker = RankCNN(**(SMALL | options)).fit(images[:300], ages[:300])
    assert ranker.score(images[300:], ages[300:]) > 0.4
    flat = images[300:].reshape(100, -1)
    np.testing.assert_array_equal(ranker.predict(flat), ranker.predict(images[300:]))
    ranker.save(tmp_path / "model")
    np.testing.assert_array_equal(load_ranker(tmp_path / "model").predict(images[300:]), ranker.predict(images[300:]))
    pytest.importorskip("onnx")
    export_onnx(ranker, tmp_path / "model.onnx")
    np.testing.assert_allclose(onnx_scores(tmp_path / "model.onnx", flat), ranker.predict(flat), rtol=1e-4, atol=1e-4)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("options", [{"flip": True}, {"channels": (4, 6), "kernel_size": 5, "padding": False}])
def test_rank_cnn_orders_color_images(options: dict[str, Any], tmp_path: Any) -> None:
    gray, ages = faces().images, faces().ages
    noise = np.random.default_rng(0).integers(0, 256, (*gray.shape, 2), dtype=np.uint8)
    images = np.concatenate((noise[..., :1], gray[..., None], noise[..., 1:]), axis=3)  # only green shows the disc
    ranker = RankCNN(**(SMALL | options)).fit(images[:300], ages[:300])
    assert ranker.image_shape_ == (16, 16, 3)
    assert ranker.score(images[300:], ages[300:]) > 0.4
    flat = images[300:].reshape(100, -1)
    np.testing.assert_array_equal(ranker.predict(flat), ranker.predict(images[300:]))
    same = RankCNN(**(SMALL | options), image_shape=(16, 16, 3)).fit(images[:300].reshape(300, -1), ages[:300])
    np.testing.assert_array_equal(same.predict(flat), ranker.predict(flat))
    ranker.save(tmp_path / "model")
    np.testing.assert_array_equal(load_ranker(tmp_path / "model").predict(images[300:]), ranker.predict(images[300:]))
    pytest.importorskip("onnx")
    export_onnx(ranker, tmp_path / "model.onnx")
    np.testing.assert_allclose(onnx_scores(tmp_path / "model.onnx", flat), ranker.predict(flat), rtol=1e-4, atol=1e-4)


def test_rank_cnn_has_the_layers_of_the_paper() -> None:
    """100 x 100 in color: 17 x 17 filters leave 84, pooling 42, then 26 and 13 pixels per side."""
    images = np.random.default_rng(0).integers(0, 256, (4, 100, 100, 3), dtype=np.uint8)
    ranker = RankCNN(channels=(6, 16), kernel_size=17, padding=False, hidden=(300, 60), epochs=1)
    shapes = [
        tuple(weights.shape) for weights in ranker.fit(images, [1, 2, 3, 4]).network_.parameters() if weights.ndim > 1
    ]
    assert shapes == [(6, 3, 17, 17), (16, 6, 17, 17), (300, 16 * 13 * 13), (60, 300), (1, 60)]


def test_rank_cnn_refuses_input_that_is_not_images() -> None:
    images, ages = faces().images[:20], faces().ages[:20]
    with pytest.raises(DataError, match="image_shape must have a product of 10, the pixels of a row, got 3 x 3"):
        RankCNN(epochs=1).fit(images.reshape(20, -1)[:, :10], ages)
    ranker = RankCNN(channels=(2,), hidden=(), epochs=1, image_shape=(8, 32)).fit(images.reshape(20, -1), ages)
    assert ranker.image_shape_ == (8, 32)
    with pytest.raises(DataError, match=r"images must have \(8, 32\) pixels, got \(16, 16\)"):
        ranker.predict(images)
    with pytest.raises(ArgumentError, match="5 blocks halve an image of 16 x 16 pixels to nothing"):
        RankCNN(channels=(2,) * 5, epochs=1).fit(images, ages)
    with pytest.raises(ArgumentError, match="2 blocks shrink an image of 16 x 16 pixels to nothing"):
        RankCNN(channels=(2, 2), kernel_size=9, padding=False, epochs=1).fit(images, ages)
    with pytest.raises(DataError, match="image_shape must have a product of 256, the pixels of a row, got 8 x 16 x 2"):
        RankCNN(image_shape=(8, 16, 2), epochs=1).fit(images.reshape(20, -1), ages)
    with pytest.raises(ArgumentError, match="kernel_size must be an odd positive integer, got 4"):
        RankCNN(kernel_size=4, epochs=1).fit(images, ages)
