"""RankCNN: a small convolutional network that scores images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import array_of
from rankbound.errors import ArgumentError, DataError
from rankbound.models.rankers.networks import RandomLayer, dense_layers, new_layer, positive_integers
from rankbound.models.rankers.neural import NeuralRanker
from rankbound.packages import needed_by

with needed_by("a neural ranker"):
    import torch
    from torch import nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models.base import FittedState

_COLORS = 3


@dataclass(eq=False, repr=False, kw_only=True)
class RankCNN(NeuralRanker):
    """A convolutional network that scores images: "RankCNN" of Li and Wu, "Application of Neural Networks in Ranking".

    Blocks of convolution, ReLU and 2 x 2 max pooling are followed by hidden layers with ReLU and by the score. With
    ``loss="classification"`` or ``"regression"`` it is the "Class CNN" of the paper and its regression.

    Parameters
    ----------
    channels:
        Channels of each block. Each block halves height and width.
    kernel_size:
        Side of the filters, an odd number.
    padding:
        Pad images with zeros, so that filters do not shrink them. Without padding, a filter of side s makes an image
        s - 1 pixels smaller.
    hidden, dropout:
        As in `MLPRanker`.
    image_shape:
        Height and width of images that are passed as rows of pixels, for color images followed by 3; None means
        square and gray. Images can also be passed as an array of count x height x width, or count x height x width x 3.
    list_size:
        A query of thousands of images is split into random lists of this size in each epoch, see
        `rankbound.training.Settings`. A list of n images has n (n - 1) / 2 pairs for n passes of the network.
    flip:
        Mirror each image horizontally at random in training.

    The other parameters are those of `NeuralRanker`.

    >>> images = np.random.default_rng(0).random((40, 8, 8)).astype(np.float32)
    >>> ranker = RankCNN(channels=(4,), hidden=(8,), epochs=2).fit(images, images.mean(axis=(1, 2)) > 0.5)
    >>> ranker.predict(images).shape
    (40,)
    """

    loss: Any = field(default="RankNet", kw_only=False)
    channels: tuple[int, ...] = (16, 32, 64)
    kernel_size: int = 3
    padding: bool = True
    hidden: tuple[int, ...] = (64,)
    dropout: float = 0.0
    image_shape: tuple[int, ...] | None = None
    flip: bool = False
    epochs: int = 10
    batch_size: int = 1
    list_size: int | None = 64
    _dtype: ClassVar[torch.dtype] = torch.float32

    def _features(self, X: Any, *, reset: bool) -> NDArray[Any]:
        pixels = X if hasattr(X, "columns") else array_of("X", X)
        if getattr(pixels, "ndim", 2) == 3 or (getattr(pixels, "ndim", 2) == 4 and pixels.shape[3] == _COLORS):
            if reset:
                self.image_shape_ = tuple(pixels.shape[1:])
            elif pixels.shape[1:] != self.image_shape_:
                raise DataError(f"images must have {self.image_shape_} pixels, got {pixels.shape[1:]}")
            pixels = pixels.reshape(len(pixels), -1)
        elif reset:
            self.image_shape_ = self._shape_of(pixels.shape[1])
        if getattr(pixels, "dtype", None) == np.uint8:
            pixels = pixels.astype(np.float32)
        return super()._features(pixels, reset=reset)

    def _shape_of(self, width: int) -> tuple[int, ...]:
        side = round(width**0.5)
        shape = (side, side) if self.image_shape is None else tuple(self.image_shape)
        is_image = len(positive_integers("image_shape", shape)) == 2 or (len(shape) == 3 and shape[2] == _COLORS)
        if not is_image or math.prod(shape) != width:
            got = " x ".join(map(str, shape))
            raise DataError(f"image_shape must have a product of {width}, the pixels of a row, got {got}")
        return tuple(int(length) for length in shape)

    def _center_and_spread(
        self, features: NDArray[Any], transform: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Use one mean and one deviation for all pixels, so that filters see the same values at every position."""
        if not self.standardize:
            return super()._center_and_spread(features, transform)
        spread = float(features.std(dtype=np.float64)) or 1.0
        return np.full(features.shape[1], features.mean(dtype=np.float64)), np.full(features.shape[1], spread)

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator | None) -> list[nn.Module]:
        height, width = self.image_shape_[:2]
        channels = positive_integers("channels", self.channels)
        if not isinstance(self.kernel_size, (int, np.integer)) or self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ArgumentError(f"kernel_size must be an odd positive integer, got {self.kernel_size!r}")
        size = f"{height} x {width}"
        is_color = len(self.image_shape_) == 3
        layers: list[nn.Module] = [nn.Unflatten(1, self.image_shape_ if is_color else (1, height, width))]
        if is_color:
            layers.append(ChannelsFirst())
        if self.flip:
            layers.append(_Flip(generator))
        inputs, padding = _COLORS if is_color else 1, self.kernel_size // 2 if self.padding else 0
        for count in channels:
            convolution = new_layer(nn.Conv2d, generator, inputs, count, self.kernel_size, padding=padding)
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(2)]
            lost = self.kernel_size - 1 - 2 * padding
            inputs, height, width = count, (height - lost) // 2, (width - lost) // 2
            if min(height, width) < 1:
                verb = "halve" if self.padding else "shrink"
                raise ArgumentError(f"{len(channels)} blocks {verb} an image of {size} pixels to nothing")
        dense = dense_layers(
            inputs * height * width, self.hidden, outputs, generator, dropout=self.dropout, head_bias=bias
        )
        return [*layers, nn.Flatten(), *dense]

    def _is_small(self) -> bool:
        return False  # it has few weights, but uses each at every pixel

    def _restore_state(self, state: FittedState) -> None:
        self.image_shape_ = tuple(state.metadata["image_shape"])
        if math.prod(self.image_shape_) != self.n_features_in_:
            raise DataError(f"images of {self.image_shape_} pixels do not have {self.n_features_in_} features")
        super()._restore_state(state)

    def _fitted_state(self) -> FittedState:
        state = super()._fitted_state()
        state.metadata["image_shape"] = list(self.image_shape_)
        return state


class ChannelsFirst(nn.Module):  # type: ignore[misc]  # torch ships no types we follow
    """Turns images of height x width x colors into colors x height x width, which convolutions take."""

    order = (0, 3, 1, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images with the colors first."""
        return images.permute(*self.order)


class _Flip(RandomLayer):
    """Mirrors a random half of the images in training."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images, in training some of them mirrored."""
        if not self.training:
            return images
        mirrored = self.draw_rows(torch.rand, (len(images), 1, 1, 1)) < 0.5
        return torch.where(mirrored, images.flip(-1), images)
