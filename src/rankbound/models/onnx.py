"""Export of networks and linear models to ONNX files, for inference without rankbound; needs the extra ``onnx``."""

from __future__ import annotations

import json
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.packages import needed_by

with needed_by("rankbound.models"):
    from sklearn.utils.validation import check_is_fitted

from rankbound import __version__
from rankbound.errors import ArgumentError
from rankbound.io import atomic_write

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto, TensorProto

    from rankbound.models.base import Ranker

_IR_VERSION, _OPSET = 8, 17  # read by runtimes since 2022


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
    weighted = getattr(ranker, "model_", ranker)
    is_network = hasattr(ranker, "network_")
    if not is_network and np.ndim(getattr(weighted, "coef_", 0.0)) != 1:
        raise ArgumentError(f"export_onnx requires a neural or linear ranker, got {type(weighted).__name__}")
    with needed_by("export_onnx"):
        graph = _Graph()
    if is_network:
        _add_network(graph, ranker)
    else:
        _add_weighted_sum(graph, weighted)
    names = getattr(ranker, "feature_names_in_", None)
    metadata = {
        "ranker": type(ranker).__name__,
        "features": json.dumps([] if names is None else [str(n) for n in names]),
    }
    return graph.serialize(int(ranker.n_features_in_), metadata)


def _add_network(graph: _Graph, ranker: Any) -> None:
    from torch import nn

    simple = {nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid", nn.ELU: "Elu", nn.Flatten: "Flatten"}
    graph.add("Cast", to=graph.double)
    if getattr(ranker, "log_features_", np.zeros(1)).any():
        _add_log1p(graph, ranker.log_features_)
    graph.add("Sub", ranker.mean_)
    graph.add("Div", ranker.scale_)
    graph.add("Cast", to=graph.single)
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
    graph.add("Cast", to=graph.double)
    graph.add("MatMul", ranker.coef_[:, None])
    graph.add("Add", np.array([float(getattr(ranker, "intercept_", 0.0))]))
    graph.add("Cast", to=graph.single)


def _parameters(layer: Any) -> list[NDArray[Any]]:
    return [parameter.detach().numpy() for parameter in (layer.weight, layer.bias) if parameter is not None]


class _Graph:
    """Operators, each by default with the output of the previous one as its first input."""

    def __init__(self) -> None:
        import onnx

        self._onnx = onnx
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self.last = "features"
        self.single, self.double = int(onnx.TensorProto.FLOAT), int(onnx.TensorProto.DOUBLE)

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
            array = np.ascontiguousarray(constant)
            self._constants.append(self._onnx.numpy_helper.from_array(array, inputs[-1]))
        self.last = f"step_{step}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [self.last], **attributes))

    def serialize(self, features: int, metadata: dict[str, str]) -> bytes:
        """Return the file; the last output becomes the score."""
        helper = self._onnx.helper
        self.add("Reshape", np.array([-1]))
        self._nodes[-1].output[0] = "score"
        graph = helper.make_graph(
            self._nodes,
            "rankbound",
            [helper.make_tensor_value_info("features", self.single, ["rows", features])],
            [helper.make_tensor_value_info("score", self.single, ["rows"])],
            initializer=self._constants,
        )
        model = helper.make_model(
            graph,
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            producer_name="rankbound",
            producer_version=__version__,
        )
        helper.set_model_props(model, metadata)
        content: bytes = model.SerializeToString()
        return content
