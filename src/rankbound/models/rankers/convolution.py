"""RankCNN: a small convolutional network that scores images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import array_of
from rankbound.errors import ArgumentError, DataError
from rankbound.models.options import OptionGroup, accept_options
from rankbound.models.rankers.networks import RandomLayer, dense_layers, new_layer, positive_integers
from rankbound.models.rankers.neural import NeuralRanker
from rankbound.models.rankers.options import Comparisons, ImageNetwork
from rankbound.packages import needed_by

with needed_by("a neural ranker"):
    import torch
    from torch import nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses import RankingLoss
    from rankbound.models.base import FittedState

_COLORS = 3


@accept_options
@dataclass(eq=False, repr=False, kw_only=True)
class RankCNN(NeuralRanker):
    """A convolutional network that scores images: "RankCNN" of Li and Wu, "Application of Neural Networks in Ranking".

    Blocks of convolution, ReLU and 2 x 2 max pooling are followed by hidden layers with ReLU and by the score. With
    ``loss="classification"`` or ``"regression"`` it is the "Class CNN" of the paper and its regression.

    Parameters
    ----------
    network:
        An `ImageNetwork`, or the channels of its blocks: filters, hidden layers, the shape of the images.
    comparisons:
        By default a query of thousands of images is split into random lists of 64, see `Comparisons`.

    The other parameters are those of `NeuralRanker`.

    >>> images = np.random.default_rng(0).random((40, 8, 8)).astype(np.float32)
    >>> ranker = RankCNN(channels=(4,), hidden=(8,), epochs=2).fit(images, images.mean(axis=(1, 2)) > 0.5)
    >>> ranker.predict(images).shape
    (40,)
    """

    loss: str | RankingLoss = field(default="RankNet", kw_only=False)
    network: tuple[int, ...] | ImageNetwork = (16, 32, 64)
    epochs: int = 10
    batch_size: int = 1
    comparisons: int | Comparisons | None = 64
    _groups: ClassVar[dict[str, OptionGroup]] = NeuralRanker._groups | {
        "network": ImageNetwork(),
        "comparisons": Comparisons(list_size=64),
    }
    _dtype: ClassVar[torch.dtype] = torch.float32

    @property
    def _options(self) -> ImageNetwork:
        return ImageNetwork.from_model(self, "network")

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
        side, given = round(width**0.5), self._options.image_shape
        shape = (side, side) if given is None else tuple(given)
        is_image = len(positive_integers("image_shape", shape)) == 2 or (len(shape) == 3 and shape[2] == _COLORS)
        if not is_image or math.prod(shape) != width:
            got = " x ".join(map(str, shape))
            raise DataError(f"image_shape must have a product of {width}, the pixels of a row, got {got}")
        return tuple(int(length) for length in shape)

    def _center_and_spread(
        self, features: NDArray[np.floating], transform: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Use one mean and one deviation for all pixels, so that filters see the same values at every position."""
        if not self.standardize:
            return super()._center_and_spread(features, transform)
        spread = float(features.std(dtype=np.float64)) or 1.0
        return np.full(features.shape[1], features.mean(dtype=np.float64)), np.full(features.shape[1], spread)

    def _layers(self, outputs: int, bias: bool, generator: torch.Generator | None) -> list[nn.Module]:
        options = self._options
        height, width = self.image_shape_[:2]
        channels, side = positive_integers("channels", options.channels), options.kernel_size
        if not isinstance(side, (int, np.integer)) or side < 1 or side % 2 == 0:
            raise ArgumentError(f"kernel_size must be an odd positive integer, got {side!r}")
        size = f"{height} x {width}"
        is_color = len(self.image_shape_) == 3
        layers: list[nn.Module] = [nn.Unflatten(1, self.image_shape_ if is_color else (1, height, width))]
        if is_color:
            layers.append(ChannelsFirst())
        if options.flip:
            layers.append(_Flip(generator))
        inputs, padding = _COLORS if is_color else 1, side // 2 if options.padding else 0
        for count in channels:
            convolution = new_layer(nn.Conv2d, generator, inputs, count, side, padding=padding)
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(2)]
            lost = side - 1 - 2 * padding
            inputs, height, width = count, (height - lost) // 2, (width - lost) // 2
            if min(height, width) < 1:
                verb = "halve" if options.padding else "shrink"
                raise ArgumentError(f"{len(channels)} blocks {verb} an image of {size} pixels to nothing")
        dense = dense_layers(
            inputs * height * width, options.hidden, outputs, generator, dropout=options.dropout, head_bias=bias
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
