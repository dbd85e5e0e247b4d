"""RankCNN: a small convolutional network that gives images a score."""

from __future__ import annotations

import math
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import array_of
from rankbound.errors import ArgumentError, DataError
from rankbound.models.network_ranker import NeuralRanker, keep_parameters
from rankbound.models.networks import dense_layers, new_layer, positive_integers

try:
    import torch
    from torch import nn
except ImportError as error:
    raise ImportError(
        f"neural rankers need torch, and {error.name} is missing: pip install 'rankbound[train]'"
    ) from error

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RankCNN"]


class RankCNN(NeuralRanker):
    """A convolutional network on gray images, ranked by any loss: "RankCNN" of the neural ranking paper.

    Blocks of convolution, ReLU and 2 x 2 maximum, then hidden layers with ReLU, then the score. With
    ``loss="classification"`` or ``"regression"`` it is the paper's "Class CNN" and its regression.

    Parameters
    ----------
    channels:
        Of each block; the images shrink to half after each.
    kernel_size:
        Side of the filters, an odd number; images are padded by zeros, so that filters do not shrink them.
    hidden, dropout:
        As in `MLPRanker`.
    image_shape:
        Height and width, for images that come as rows of pixels; None takes them to be square. Images may also come
        as an array of count x height x width.
    list_size:
        One query of thousands of images is dealt into lists of so many in each epoch, see
        `rankbound.training.Settings`: a list of n images teaches n (n - 1) / 2 pairs for n passes of the network.
    min_gap:
        For RankNet's loss: pairs count whose labels (ages) lie more than this apart.
    flip:
        Mirror each image from left to right at random while training.

    For the others see `NeuralRanker`.

    >>> images = np.random.default_rng(0).random((40, 8, 8)).astype(np.float32)
    >>> ranker = RankCNN(channels=(4,), hidden=(8,), epochs=2).fit(images, images.mean(axis=(1, 2)) > 0.5)
    >>> ranker.predict(images).shape
    (40,)
    """

    channels: Any
    kernel_size: int
    hidden: Any
    dropout: float
    image_shape: tuple[int, int] | None
    flip: bool
    _dtype: ClassVar[Any] = torch.float32

    def __init__(
        self,
        loss: Any = "RankNet",
        bounding: str = "none",
        *,
        channels: tuple[int, ...] = (16, 32, 64),
        kernel_size: int = 3,
        hidden: tuple[int, ...] = (64,),
        dropout: float = 0.0,
        image_shape: tuple[int, int] | None = None,
        flip: bool = False,
        epochs: int = 10,
        batch_size: int = 1,
        optimizer: str = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        selection: str = "validation",
        patience: int | None = None,
        list_size: int | None = 64,
        min_gap: float = 0.0,
        standardize: bool = True,
        measure: Any = "nDCG",
        watch: tuple[Any, ...] = (),
        random_state: int | None = 0,
        checkpoint: str | PathLike[str] | None = None,
        verbose: bool = False,
    ) -> None:
        keep_parameters(self, locals())

    def _features(self, X: Any, *, reset: bool) -> NDArray[Any]:
        pixels = X if hasattr(X, "columns") else array_of("X", X)
        if getattr(pixels, "ndim", 2) == 3:
            if reset:
                self.image_shape_ = pixels.shape[1], pixels.shape[2]
            elif pixels.shape[1:] != self.image_shape_:
                raise DataError(f"images must be of {self.image_shape_} pixels, got {pixels.shape[1:]}")
            pixels = pixels.reshape(len(pixels), -1)
        elif reset:
            self.image_shape_ = self._shape_of(pixels.shape[1])
        if getattr(pixels, "dtype", None) == np.uint8:
            pixels = pixels.astype(np.float32)
        return super()._features(pixels, reset=reset)

    def _shape_of(self, width: int) -> tuple[int, int]:
        side = round(width**0.5)
        shape = (side, side) if self.image_shape is None else tuple(self.image_shape)
        if len(positive_integers("image_shape", shape)) != 2 or shape[0] * shape[1] != width:
            raise DataError(f"rows of {width} pixels are no images of {shape[0]} x {shape[-1]}; give image_shape")
        return int(shape[0]), int(shape[1])

    def _center_and_spread(self, features: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One mean and deviation for all pixels: what a filter sees must not depend on where it stands."""
        if not self.standardize:
            return super()._center_and_spread(features)
        spread = float(features.std(dtype=np.float64)) or 1.0
        return np.full(features.shape[1], features.mean(dtype=np.float64)), np.full(features.shape[1], spread)

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator) -> list[Any]:
        height, width = self.image_shape_
        channels = positive_integers("channels", self.channels)
        if not isinstance(self.kernel_size, (int, np.integer)) or self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ArgumentError(f"kernel_size must be an odd positive integer, got {self.kernel_size!r}")
        if min(height, width) < 2 ** len(channels):
            raise ArgumentError(f"{len(channels)} blocks halve an image of {height} x {width} pixels to nothing")
        layers: list[Any] = [nn.Unflatten(1, (1, height, width))]
        if self.flip:
            layers.append(_Flip(generator))
        before, pad = 1, self.kernel_size // 2
        for count in channels:
            convolution = new_layer(nn.Conv2d, generator, before, count, self.kernel_size, padding=pad)
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(2)]
            before, height, width = count, height // 2, width // 2
        dense = dense_layers(
            before * height * width, self.hidden, outputs, generator, dropout=self.dropout, head_bias=bias
        )
        return [*layers, nn.Flatten(), *dense]

    def _is_small(self) -> bool:
        return False  # few weights, each used at every pixel

    def _restore_state(self, state: Any) -> None:
        self.image_shape_ = tuple(state.metadata["image_shape"])
        if math.prod(self.image_shape_) != self.n_features_in_:
            raise DataError(f"images of {self.image_shape_} pixels do not have {self.n_features_in_}")
        super()._restore_state(state)

    def _fitted_state(self) -> Any:
        state = super()._fitted_state()
        state.metadata["image_shape"] = list(self.image_shape_)
        return state


class _Flip(nn.Module):  # type: ignore[misc]  # torch ships no types we follow
    """Mirrors half of the images while training, as the coins of the training's generator fall."""

    only_trains = True  # files for other runtimes leave it out

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, images: Any) -> Any:
        """Images, perhaps mirrored."""
        if not self.training:
            return images
        coins = torch.rand(len(images), 1, 1, 1, generator=self.generator) < 0.5
        return torch.where(coins, images.flip(-1), images)
