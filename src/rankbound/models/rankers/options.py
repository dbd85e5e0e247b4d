"""Options of rankers, in groups that travel together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rankbound.models.options import OptionGroup


@dataclass(frozen=True)
class Network(OptionGroup):
    """The network of an `MLPRanker`: its layers, and what happens to its inputs.

    Parameters
    ----------
    hidden:
        Units of each hidden layer.
    activation, dropout:
        Applied after each hidden layer: ``relu``, ``tanh``, ``sigmoid`` or ``elu``, and the fraction of units that are
        set to 0 in training.
    layer_norm:
        Normalize the units of each hidden layer to mean 0 and variance 1 within each row, before the activation.
    input_transform:
        ``"log1p"`` replaces every feature by sign(x) log(1 + |x|) before the standardization; ``"auto"`` does so for
        the features with heavy tails: those whose kurtosis over the training rows is above 6 and at most half as large
        afterwards. ``"none"`` leaves all features as they are. The transformed features are stored in
        ``log_features_`` and saved with the model.
    input_noise:
        Standard deviation of the Gaussian noise that is added to the inputs in training.
    attention_blocks, attention_heads:
        Number of self-attention blocks between the last hidden layer and the score, and heads of each; the heads must
        divide the units of that layer. A query of n documents costs n² operations.

    >>> Network((64, 32), dropout=0.1).activation
    'relu'
    """

    hidden: tuple[int, ...] = (256, 128)
    activation: str = "relu"
    dropout: float = 0.5
    layer_norm: bool = False
    input_transform: str = "auto"
    input_noise: float = 0.3
    attention_blocks: int = 0
    attention_heads: int = 4
    _main: ClassVar[str | None] = "hidden"


@dataclass(frozen=True)
class ImageNetwork(OptionGroup):
    """The network of a `RankCNN`.

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
        As in `Network`.
    image_shape:
        Height and width of images that are passed as rows of pixels, for color images followed by 3; None means
        square and gray. Images can also be passed as an array of count x height x width, or count x height x width x 3.
    flip:
        Mirror each image horizontally at random in training.

    >>> ImageNetwork((8, 16), kernel_size=5).hidden
    (64,)
    """

    channels: tuple[int, ...] = (16, 32, 64)
    kernel_size: int = 3
    padding: bool = True
    hidden: tuple[int, ...] = (64,)
    dropout: float = 0.0
    image_shape: tuple[int, ...] | None = None
    flip: bool = False
    _main: ClassVar[str | None] = "channels"


@dataclass(frozen=True)
class NetworkOptimizer(OptionGroup):
    """How the steps of a network's training are made; see `rankbound.training.Settings`.

    Parameters
    ----------
    method, weight_decay:
        ``"adam"``, ``"adamw"`` or ``"sgd"``, and the weight decay.
    schedule:
        The learning rate is ``"constant"`` or follows a ``"cosine"``.

    >>> NetworkOptimizer("adamw", 0.01)
    NetworkOptimizer(method='adamw', weight_decay=0.01, schedule='constant')
    """

    method: str = "adam"
    weight_decay: float = 0.0
    schedule: str = "constant"
    _main: ClassVar[str | None] = "method"
    _names: ClassVar[Mapping[str, str]] = {"method": "optimizer"}


@dataclass(frozen=True)
class Comparisons(OptionGroup):
    """Which documents of a query are compared with each other in training.

    Parameters
    ----------
    list_size:
        A query with more documents is split into random lists of at most this size in each epoch, see
        `rankbound.training.Settings`; None: never. A list of n images has n (n - 1) / 2 pairs for n passes of the
        network.
    min_gap:
        For the losses of RankNet and DirectRanker: only pairs whose labels differ by more than this count.

    >>> Comparisons(list_size=64)
    Comparisons(list_size=64, min_gap=0.0)
    """

    list_size: int | None = None
    min_gap: float = 0.0
    _main: ClassVar[str | None] = "list_size"


@dataclass(frozen=True)
class TreeOptions(OptionGroup):
    """Further parameters of boosted trees, with the names and defaults of LightGBM.

    Parameters
    ----------
    max_depth, min_child_samples:
        Greatest depth of a tree (-1: any), and the fewest rows in a leaf.
    subsample, colsample_bytree:
        Fractions of the rows and of the features that a tree is trained on.
    reg_lambda:
        L2 regularization of the values in the leaves.

    >>> TreeOptions(min_child_samples=5, subsample=0.8).colsample_bytree
    1.0
    """

    max_depth: int = -1
    min_child_samples: int = 20
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    reg_lambda: float = 0.0
