"""Export of networks and linear models to ONNX files, for inference without rankbound.

An ONNX file is a protocol-buffer message. The few message types needed are encoded here, without a dependency on onnx;
torch's exporter needs two more packages.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from rankbound import __version__
from rankbound.errors import ArgumentError
from rankbound.io import atomic_write

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models.base import Ranker

__all__ = ["export_onnx", "onnx_content"]

_IR_VERSION, _OPSET = 8, 17
_FLOAT, _INT64, _DOUBLE = 1, 7, 11  # codes of element types
_TYPES = {np.dtype(np.float32): _FLOAT, np.dtype(np.int64): _INT64, np.dtype(np.float64): _DOUBLE}


def export_onnx(ranker: Ranker, path: str | PathLike[str]) -> None:
    """Write a neural or linear ranker as an ONNX model (opset 17).

    The input ``features`` is float32, rows x features of the training data (images as rows of pixels); the output
    ``score`` is float32, one per row. The transformation and standardization of features are part of the model and
    computed in float64, the rest in float32, so that scores agree with `Ranker.predict` to about six digits. The
    metadata hold the feature names. A network with attention is refused, because its scores depend on the other
    documents of the query, which the rows of such a model do not name.
    """
    check_is_fitted(ranker)
    content = onnx_content(ranker)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def onnx_content(ranker: Ranker) -> bytes:
    """Return the bytes of the file that `export_onnx` writes."""
    if ranker._in_context:
        raise ArgumentError(
            "export_onnx requires a ranker that scores each row alone, got one with attention over the documents of a "
            "query; train with attention_blocks=0, or save it and load it with load_ranker"
        )
    graph = _Graph()
    if hasattr(ranker, "network_"):
        _add_network(graph, ranker)
    else:
        _add_weighted_sum(graph, getattr(ranker, "model_", ranker))
    names = getattr(ranker, "feature_names_in_", None)
    metadata = {
        "ranker": type(ranker).__name__,
        "features": json.dumps([] if names is None else [str(n) for n in names]),
    }
    return graph.model(int(ranker.n_features_in_), metadata)


def _add_network(graph: _Graph, ranker: Any) -> None:
    from torch import nn

    simple = {nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid", nn.ELU: "Elu", nn.Flatten: "Flatten"}
    graph.add("Cast", to=_DOUBLE)
    if getattr(ranker, "log_features_", np.zeros(1)).any():
        _add_log1p(graph, ranker.log_features_)
    graph.add("Sub", ranker.mean_)
    graph.add("Div", ranker.scale_)
    graph.add("Cast", to=_FLOAT)
    for layer in ranker.network_:
        if type(layer) in simple:
            graph.add(simple[type(layer)])
        elif isinstance(layer, nn.Linear):
            graph.add("Gemm", *_parameters(layer), transB=1)
        elif isinstance(layer, nn.LayerNorm):
            graph.add("LayerNormalization", *_parameters(layer))  # torch and ONNX have the same default of epsilon
        elif isinstance(layer, nn.Conv2d):
            graph.add("Conv", *_parameters(layer), pads=[*layer.padding, *layer.padding])
        elif isinstance(layer, nn.MaxPool2d):
            graph.add("MaxPool", kernel_shape=[layer.kernel_size] * 2, strides=[layer.kernel_size] * 2)
        elif isinstance(layer, nn.Unflatten):
            graph.add("Reshape", np.array([-1, *layer.unflattened_size]))
        elif hasattr(layer, "order"):  # ChannelsFirst
            graph.add("Transpose", perm=list(layer.order))
        elif not getattr(layer, "training_only", False):
            raise AssertionError(f"no ONNX form of {layer}")
    objective = ranker.objective_
    if objective.levels is not None:  # the expected label
        graph.add("Sigmoid")
        graph.add("MatMul", np.diff(objective.levels).astype(np.float32)[:, None])
        graph.add("Add", objective.levels[:1].astype(np.float32))
    else:
        graph.add("Mul", np.array([objective.spread], dtype=np.float32))


def _add_log1p(graph: _Graph, chosen: NDArray[np.bool_]) -> None:
    """Replace the chosen columns x by sign(x) log(1 + |x|)."""
    features, select = graph.last, chosen.astype(np.float64)
    graph.add("Sign")
    sign = graph.last
    graph.add("Abs", first=features)
    graph.add("Add", np.ones(1))
    graph.add("Log")
    graph.add("Mul", second=sign)
    graph.add("Mul", select)
    transformed = graph.last
    graph.add("Mul", 1 - select, first=features)
    graph.add("Add", second=transformed)


def _add_weighted_sum(graph: _Graph, ranker: Any) -> None:
    coef = getattr(ranker, "coef_", None)
    if coef is None or coef.ndim != 1:
        raise ArgumentError(f"export_onnx requires a neural or linear ranker, got {type(ranker).__name__}")
    graph.add("Cast", to=_DOUBLE)
    graph.add("MatMul", coef[:, None])
    graph.add("Add", np.array([float(getattr(ranker, "intercept_", 0.0))]))
    graph.add("Cast", to=_FLOAT)


def _parameters(layer: Any) -> list[NDArray[Any]]:
    return [parameter.detach().numpy() for parameter in (layer.weight, layer.bias) if parameter is not None]


# ---- the file format -------------------------------------------------------------------------------------------------
# Field numbers are those of onnx.proto.


class _Graph:
    """Operators, each by default with the output of the previous one as its first input."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self.last = "features"

    def add(
        self,
        operator: str,
        *constants: NDArray[Any],
        first: str | None = None,
        second: str | None = None,
        **attributes: int | list[int],
    ) -> None:
        """Append an operator with further constant inputs; ``first`` and ``second`` name outputs of other operators."""
        inputs, step = [self.last if first is None else first], len(self._nodes)
        if second is not None:
            inputs.append(second)
        for number, constant in enumerate(constants):
            inputs.append(f"constant_{step}_{number}")
            self._constants.append(_tensor(inputs[-1], constant))
        self.last = f"step_{step}"
        node = b"".join(_text(1, name) for name in inputs) + _text(2, self.last) + _text(4, operator)
        self._nodes.append(node + b"".join(_part(5, _attribute(name, value)) for name, value in attributes.items()))

    def model(self, features: int, metadata: dict[str, str]) -> bytes:
        """Return the file; the last output becomes the score."""
        self.add("Reshape", np.array([-1]))
        self._nodes[-1] = self._nodes[-1].replace(_text(2, self.last), _text(2, "score"))
        graph = b"".join(_part(1, node) for node in self._nodes) + _text(2, "rankbound")
        graph += b"".join(_part(5, constant) for constant in self._constants)
        graph += _part(11, _value("features", ["rows", features])) + _part(12, _value("score", ["rows"]))
        model = _number(1, _IR_VERSION) + _text(2, "rankbound") + _text(3, __version__) + _part(7, graph)
        model += _part(8, _number(2, _OPSET))
        return model + b"".join(_part(14, _text(1, key) + _text(2, value)) for key, value in metadata.items())


def _tensor(name: str, array: NDArray[Any]) -> bytes:
    dims = b"".join(_number(1, size) for size in array.shape)
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    return dims + _number(2, _TYPES[array.dtype]) + _text(8, name) + _part(9, raw)


def _attribute(name: str, value: int | list[int]) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + b"".join(_number(8, entry) for entry in value) + _number(20, 7)


def _value(name: str, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(_part(1, _text(2, size) if isinstance(size, str) else _number(1, size)) for size in shape)
    return _text(1, name) + _part(2, _part(1, _number(1, _FLOAT) + _part(2, dims)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _part(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, content: str) -> bytes:
    return _part(field, content.encode())


def _varint(value: int) -> bytes:
    """Encode seven bits per byte, lowest first, with the eighth bit set if more follow.

    >>> _varint(300).hex()
    'ac02'
    """
    encoded = []
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return struct.pack(f"{len(encoded) + 1}B", *encoded, value)
