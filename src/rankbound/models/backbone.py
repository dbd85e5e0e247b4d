"""Features of images from a network that others have trained: any TorchScript, torch.export or ONNX file on disk."""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.io import atomic_write, read_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "backbone_features"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of pixels from 0 to 1, what networks trained on ImageNet expect
IMAGENET_STD = (0.229, 0.224, 0.225)
Backbone = Callable[[Any], Any]


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
    """A row of features for each image: what a network from a file makes of it, flattened.

    The neural ranking paper takes the 4,096 numbers before the last layer of VGG16; rankers then learn from them as
    from any other features.

    Parameters
    ----------
    images:
        count x height x width (gray) or count x height x width x 3; uint8, or floats from 0 to 1.
    backbone:
        ``.onnx`` is run by onnxruntime, ``.pt2`` is a program of torch.export, anything else TorchScript. It takes
        float32 images of count x channels x height x width. Such a file is a program: use those you trust.
    size:
        Height and width (or one number for both) that images are scaled to, bilinear; None leaves them as they are.
    mean, std:
        Subtracted from and divided into pixels from 0 to 1, a number per channel. Their count says how many channels
        the network takes: gray images are repeated for each.
    batch_size:
        Images that go through the network at once.
    cache:
        An .npz file. If it holds the features of these images, this file and these settings, they are read from it;
        else it is written, as a whole or not at all.
    """
    pixels = _checked_images(images)
    target = (size, size) if isinstance(size, int) else size
    if batch_size < 1 or (target is not None and min(target) < 1):
        raise ArgumentError(f"batch_size and size must be positive, got {batch_size!r} and {size!r}")
    if len(mean) != len(std) or not mean or min(std) <= 0:
        raise ArgumentError(f"mean and std must have a number per channel, std above 0, got {mean} and {std}")
    if pixels.shape[3] not in (1, len(mean)):
        raise DataError(f"images have {pixels.shape[3]} channels, mean and std {len(mean)}")
    file = Path(backbone)
    try:
        program = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    key = _digest(pixels, program, repr((target, tuple(mean), tuple(std))))
    if cache is not None and (known := _cached(Path(cache), key)) is not None:
        return known
    run = _onnx(file) if file.suffix == ".onnx" else _torch(file)
    parts = []
    for first in range(0, len(pixels), batch_size):
        batch = _prepared(pixels[first : first + batch_size], target, mean, std)
        out = np.asarray(run(batch), dtype=np.float32)
        if len(out) != len(batch):
            raise DataError(f"{file}: gives an output of shape {out.shape} for {len(batch)} images")
        parts.append(out.reshape(len(batch), -1))
    features = np.concatenate(parts)
    if not np.isfinite(features).all():
        raise DataError(f"{file}: gives features that are not finite")
    if cache is not None:
        with atomic_write(cache) as temporary, temporary.open("wb") as stream:
            np.savez(stream, features=features, key=np.array(key))
    return features


def _checked_images(images: Any) -> NDArray[Any]:
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


def _prepared(
    pixels: NDArray[Any], size: tuple[int, int] | None, mean: Sequence[float], std: Sequence[float]
) -> NDArray[np.float32]:
    """Images as networks take them: count x channels x height x width, scaled."""
    scaled = pixels.astype(np.float32) / (255 if pixels.dtype == np.uint8 else 1)
    batch = np.repeat(scaled, len(mean) // scaled.shape[3], axis=3).transpose(0, 3, 1, 2)
    if size is not None and batch.shape[2:] != tuple(size):
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(batch))
        batch = torch.nn.functional.interpolate(
            tensor, size, mode="bilinear", align_corners=False, antialias=True
        ).numpy()
    shift, factor = (np.array(one, dtype=np.float32)[:, None, None] for one in (mean, std))
    return np.ascontiguousarray((batch - shift) / factor, dtype=np.float32)


def _torch(file: Path) -> Backbone:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning)  # TorchScript is old, its files are many
            if file.suffix == ".pt2":
                network = torch.export.load(file).module()
            else:
                network = torch.jit.load(file, map_location="cpu").eval()
    except (RuntimeError, OSError, ValueError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise DataError(
            f"{file}: is no TorchScript file ({first}); a file of weights alone needs its network, see the how-to"
        ) from error

    def run(batch: NDArray[np.float32]) -> Any:
        with torch.no_grad():
            return network(torch.from_numpy(batch)).numpy()

    return run


def _onnx(file: Path) -> Backbone:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ImportError("an ONNX backbone needs onnxruntime: pip install 'rankbound[onnx]'") from error
    try:
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base but this
        raise DataError(f"{file}: onnxruntime cannot load it: {error}") from error
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})[0]


def _digest(pixels: NDArray[Any], program: bytes, settings: str) -> str:
    found = hashlib.sha256(f"{pixels.shape}{pixels.dtype}{settings}".encode())
    found.update(np.ascontiguousarray(pixels).data)
    found.update(program)
    return found.hexdigest()


def _cached(file: Path, key: str) -> NDArray[np.float32] | None:
    """Features in a cache file, if they are those asked for; a file that cannot be read is made anew."""
    try:
        stored = read_arrays(file)
        return stored["features"] if str(stored["key"]) == key else None
    except (DataError, KeyError):
        return None
