"""A network as an ONNX file, spelled as PyTorch's exporter spells it at opset 17."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlvk_bench.models.layers import (
    EPSILON,
    MASKED,
    Array,
    Weights,
    batch_norm_weights,
    convolution_weights,
    layer_norm_weights,
    linear_weights,
    table_weights,
)
from dmlvk_bench.models.networks import Network


class OnnxLayers:
    """Layers that write nodes; a value is its name."""

    def __init__(self, weights: Weights, dtype: np.dtype[Any]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self._weights = weights
        self._dtype = dtype

    def node(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Adds a node of one output."""
        name = f"/{op_type}_{len(self.nodes)}"
        output = output or f"{name}_output_0"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name, **attributes))
        return output

    def constant(self, name: str, array: Array) -> str:
        """Adds an initializer; floats become of the network's type."""
        if name not in self.initializers:
            kept = array.astype(self._dtype) if array.dtype.kind == "f" else array
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(kept).reshape(array.shape), name)
        return name

    def _number(self, value: float) -> str:
        return self.constant(f"number {value:.9g}", np.array(value, np.float32))

    def convolution(self, x: str, name: str, inputs: int, outputs: int, kernel: int, stride: int) -> str:
        (weight,) = convolution_weights(self._weights, name, inputs, outputs, kernel)
        window: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return self.node("Conv", x, self.constant(f"{name}.weight", weight), dilations=[1, 1], group=1, **window)

    def batch_norm(self, x: str, name: str, channels: int, scale: float) -> str:
        arrays = batch_norm_weights(self._weights, name, channels, scale)
        kinds = ("weight", "bias", "running_mean", "running_var")
        names = [self.constant(f"{name}.{kind}", array) for kind, array in zip(kinds, arrays, strict=True)]
        return self.node("BatchNormalization", x, *names, epsilon=EPSILON)

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def tanh(self, x: str) -> str:
        return self.node("Tanh", x)

    def gelu(self, x: str) -> str:
        erf = self.node("Erf", self.node("Div", x, self._number(math.sqrt(2))))
        return self.node("Mul", self.node("Mul", x, self.node("Add", erf, self._number(1.0))), self._number(0.5))

    def add(self, x: str, y: str) -> str:
        return self.node("Add", x, y)

    def max_pooling(self, x: str) -> str:
        return self.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])

    def image_means(self, x: str) -> str:
        return self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        matrix, bias = linear_weights(self._weights, name, inputs, outputs)
        if name in ("fc", "pooler"):  # the exporter's form where rows are no sequence
            weight = self.constant(f"{name}.weight", matrix)
            return self.node("Gemm", x, weight, self.constant(f"{name}.bias", bias), transB=1)
        product = self.node("MatMul", x, self.constant(f"{name}.weight transposed", matrix.T))
        return self.node("Add", self.constant(f"{name}.bias", bias), product)

    def embedding(self, indices: str, name: str, count: int, width: int) -> str:
        (table,) = table_weights(self._weights, name, count, width)
        return self.node("Gather", self.constant(f"{name}.weight", table), indices)

    def positions(self, name: str, count: int, width: int) -> str:
        return self.embedding(self.constant("positions", np.arange(count)[None]), name, count, width)

    def layer_norm(self, x: str, name: str, width: int) -> str:
        scale, bias = layer_norm_weights(self._weights, name, width)
        names = self.constant(f"{name}.weight", scale), self.constant(f"{name}.bias", bias)
        return self.node("LayerNormalization", x, *names, axis=-1, epsilon=EPSILON)

    def mask_bias(self, mask: str) -> str:
        axes = self.constant("mask axes", np.array([1, 2]))
        kept = self.node("Cast", self.node("Unsqueeze", mask, axes), to=helper.np_dtype_to_tensor_dtype(self._dtype))
        return self.node("Mul", self.node("Sub", self._number(1.0), kept), self._number(MASKED))

    def attention(self, query: str, key: str, value: str, bias: str, heads: int, sequence: int, width: int) -> str:
        apart = self.constant("heads apart", np.array([1, sequence, heads, width]))
        together = self.constant("heads together", np.array([1, sequence, heads * width]))

        def head(x: str, perm: list[int]) -> str:
            return self.node("Transpose", self.node("Reshape", x, apart), perm=perm)

        scores = self.node("MatMul", head(query, [0, 2, 1, 3]), head(key, [0, 2, 3, 1]))
        scores = self.node("Add", self.node("Div", scores, self._number(math.sqrt(width))), bias)
        attended = self.node("MatMul", self.node("Softmax", scores, axis=-1), head(value, [0, 2, 1, 3]))
        return self.node("Reshape", self.node("Transpose", attended, perm=[0, 2, 1, 3]), together)

    def first(self, x: str) -> str:
        return self.node("Gather", x, self.constant("first", np.array(0)), axis=1)


def onnx_model(network: Network, weights: Weights) -> onnx.ModelProto:
    """The ONNX file of a network."""
    layers = OnnxLayers(weights, network.dtype)
    for result, name in zip(network.build(layers, *network.inputs), network.outputs, strict=True):
        layers.node("Identity", result, output=name)
    kind_of = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info(name, kind_of(dtype), sizes) for name, (dtype, sizes) in network.inputs.items()]
    outputs = [helper.make_tensor_value_info(name, kind_of(network.dtype), sizes) for name, sizes in network.outputs.items()]
    graph = helper.make_graph(layers.nodes, network.name, inputs, outputs, list(layers.initializers.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
