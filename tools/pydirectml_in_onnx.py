"""PyDirectML over ONNX Runtime's CPU: what the samples' functions mean, told once more and apart from dmlvk's kernels.

tools/run_pydirectml.py compares dmlvk with it. It has the functions that the published samples call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper

from dmlvk.pydirectml import (  # noqa: F401  # the words, which compute nothing
    Binding,
    ConvolutionDirection,
    ConvolutionMode,
    ExecutionFlags,
    FusedActivation,
    OperatorType,
    PaddingMode,
    TensorDataType,
    TensorDesc,
    TensorFlags,
)

FUSED = {"ActivationRelu": "Relu", "ActivationTanh": "Tanh"}
NO_ACTIVATION = FusedActivation(OperatorType.INVALID)


class GraphBuilder:
    """Nodes and inputs of a model."""

    def __init__(self, device: Device) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def constant(self, values: npt.ArrayLike) -> str:
        array = np.asarray(values)
        name = f"constant{len(self.initializers)}"
        self.initializers.append(onnx.numpy_helper.from_array(array, name))
        return name

    def build(self, flags: ExecutionFlags, outputs: list[Expression]) -> onnxruntime.InferenceSession:
        made = [helper.make_tensor_value_info(item.name, TensorProto.FLOAT, item.sizes) for item in outputs]
        graph = helper.make_graph(self.nodes, "sample", self.inputs, made, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


class Expression:
    """A value of a model, with the sizes that ONNX infers."""

    def __init__(self, builder: GraphBuilder, name: str, sizes: Sequence[int]) -> None:
        self.builder, self.name, self.sizes = builder, name, list(sizes)

    def get_output_desc(self) -> TensorDesc:
        return TensorDesc(TensorDataType.FLOAT32, self.sizes)


class Input(Expression):
    """An input, as it was described."""

    def __init__(self, builder: GraphBuilder, name: str, desc: TensorDesc) -> None:
        super().__init__(builder, name, desc.sizes)
        self.desc = desc

    def get_output_desc(self) -> TensorDesc:
        return self.desc


class Device:
    """A session's runs."""

    def __init__(self, use_gpu: bool = True, use_debug_layer: bool = False) -> None:
        pass

    def compute(
        self, model: onnxruntime.InferenceSession, inputs: list[Binding], outputs: list[Expression]
    ) -> list[npt.NDArray[Any]]:
        feeds = {f"input{index}": np.ascontiguousarray(binding._array()) for index, binding in enumerate(inputs)}
        read = {item.name for item in model.get_inputs()}
        results: list[npt.NDArray[Any]] = model.run(None, {name: feeds[name] for name in read})
        return results


def node(kind: str, *operands: Expression | str, sizes: Sequence[int], **attributes: Any) -> Expression:
    builder = next(item.builder for item in operands if isinstance(item, Expression))
    name = f"value{len(builder.nodes)}"
    names = [item.name if isinstance(item, Expression) else item for item in operands]
    builder.nodes.append(helper.make_node(kind, names, [name], **attributes))
    return Expression(builder, name, sizes)


def activated(result: Expression, activation: FusedActivation) -> Expression:
    desc = activation._desc
    return result if desc is None else node(FUSED[type(desc).__name__], result, sizes=result.sizes)


def column(item: Expression) -> Expression:
    """A vector of a tensor {1, C, 1, 1}."""
    return reinterpret(item, TensorDataType.FLOAT32, [max(item.sizes)], None)


def input_tensor(scope: GraphBuilder, input_index: int, tensor_desc: TensorDesc) -> Expression:
    name = f"input{input_index}"
    scope.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, tensor_desc.sizes))
    return Input(scope, name, tensor_desc)


def convolution(
    input: Expression,
    filter: Expression,
    bias: Expression | None = None,
    mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
    direction: ConvolutionDirection = ConvolutionDirection.FORWARD,
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    start_padding: Sequence[int] = (),
    end_padding: Sequence[int] = (),
    output_padding: Sequence[int] = (),
    group_count: int = 1,
    fused_activation: FusedActivation = NO_ACTIVATION,
    output_sizes: Sequence[int] = (),
) -> Expression:
    assert mode is ConvolutionMode.CROSS_CORRELATION
    step, apart = strides or (1, 1), dilations or (1, 1)
    before, after = start_padding or (0, 0), end_padding or (0, 0)
    window = [1 + (size - 1) * apart[axis] for axis, size in enumerate(filter.sizes[2:])]
    attributes = {"strides": step, "dilations": apart, "pads": [*before, *after], "group": group_count}
    if direction is ConvolutionDirection.FORWARD:
        kind, channels = "Conv", filter.sizes[0]
        sizes = [(input.sizes[2 + i] + before[i] + after[i] - window[i]) // step[i] + 1 for i in range(2)]
    else:
        kind, channels = "ConvTranspose", filter.sizes[1] * group_count
        sizes = [(input.sizes[2 + i] - 1) * step[i] + window[i] - before[i] - after[i] for i in range(2)]
        wanted = output_sizes[2:] or [sizes[i] + (output_padding or (0, 0))[i] for i in range(2)]
        attributes["output_padding"] = [wanted[i] - sizes[i] for i in range(2)]
        sizes = list(wanted)
    made = [input.sizes[0], channels, *sizes]
    assert not output_sizes or list(output_sizes) == made
    operands = [input, filter] if bias is None else [input, filter, column(bias)]
    return activated(node(kind, *operands, sizes=made, **attributes), fused_activation)


def activation_relu(input: Expression) -> Expression:
    return node("Relu", input, sizes=input.sizes)


def activation_identity(input: Expression) -> Expression:
    return node("Identity", input, sizes=input.sizes)


def activation_linear(input: Expression, alpha: float, beta: float) -> Expression:
    scaled = node("Mul", input, input.builder.constant(np.float32(alpha)), sizes=input.sizes)
    return node("Add", scaled, input.builder.constant(np.float32(beta)), sizes=input.sizes)


def activation_soft_max(input: Expression) -> Expression:
    assert input.sizes[:-1] == [1] * (len(input.sizes) - 1)
    return node("Softmax", input, sizes=input.sizes, axis=-1)


def add(a: Expression, b: Expression, fused_activation: FusedActivation = NO_ACTIVATION) -> Expression:
    return activated(node("Add", a, b, sizes=a.sizes), fused_activation)


def multiply(a: Expression, b: Expression) -> Expression:
    return node("Mul", a, b, sizes=a.sizes)


def padding(
    input: Expression,
    padding_mode: PaddingMode,
    padding_value: float,
    start_padding: Sequence[int],
    end_padding: Sequence[int],
) -> Expression:
    assert padding_mode is PaddingMode.REFLECTION
    pads = input.builder.constant(np.array([*start_padding, *end_padding], np.int64))
    sizes = [sum(item) for item in zip(input.sizes, start_padding, end_padding, strict=True)]
    return node("Pad", input, pads, sizes=sizes, mode="reflect")


def value_scale_2d(input: Expression, scale: float, bias: Sequence[float]) -> Expression:
    scaled = node("Mul", input, input.builder.constant(np.float32(scale)), sizes=input.sizes)
    shift = np.array(bias, np.float32).reshape(1, -1, 1, 1)
    return node("Add", scaled, input.builder.constant(shift), sizes=input.sizes)


def mean_variance_normalization(
    input: Expression,
    scale: Expression,
    bias: Expression,
    axes: Sequence[int],
    normalize_variance: bool,
    epsilon: float,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    assert normalize_variance
    kept = {"axes": list(axes), "keepdims": 1}  # in float64: a mean of many float32 is not exact
    exact = node("Cast", input, sizes=input.sizes, to=TensorProto.DOUBLE)
    few = [1 if axis in axes else size for axis, size in enumerate(input.sizes)]
    centred = node("Sub", exact, node("ReduceMean", exact, sizes=few, **kept), sizes=input.sizes)
    variance = node("ReduceMean", node("Mul", centred, centred, sizes=input.sizes), sizes=few, **kept)
    shifted = node("Add", variance, input.builder.constant(np.array(epsilon)), sizes=few)
    normal = node("Div", centred, node("Sqrt", shifted, sizes=few), sizes=input.sizes)
    single = node("Cast", normal, sizes=input.sizes, to=TensorProto.FLOAT)
    return activated(add(multiply(single, scale), bias), fused_activation)


def slice(
    input: Expression,
    input_window_offsets: Sequence[int],
    input_window_sizes: Sequence[int],
    input_window_strides: Sequence[int],
) -> Expression:
    windows = list(zip(input_window_offsets, input_window_sizes, input_window_strides, strict=True))
    ends = [offset + size for offset, size, _ in windows]
    words = (input_window_offsets, ends, range(len(windows)), input_window_strides)
    operands = [input.builder.constant(np.array(word, np.int64)) for word in words]
    sizes = [(size - 1) // stride + 1 for _, size, stride in windows]
    return node("Slice", input, *operands, sizes=sizes)


def batch_normalization(
    input: Expression,
    mean: Expression,
    variance: Expression,
    scale: Expression,
    bias: Expression,
    spatial: bool,
    epsilon: float,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    operands = [column(item) for item in (scale, bias, mean, variance)]
    return activated(node("BatchNormalization", input, *operands, sizes=input.sizes, epsilon=epsilon), fused_activation)


def gemm(a: Expression, b: Expression) -> Expression:
    return node("MatMul", a, b, sizes=[*a.sizes[:3], b.sizes[3]])


def average_pooling(
    input: Expression,
    strides: Sequence[int],
    window_sizes: Sequence[int],
    start_padding: Sequence[int],
    end_padding: Sequence[int],
    include_padding: bool,
) -> Expression:
    return pooled("AveragePool", input, window_sizes, strides, start_padding, end_padding)


class MaxPoolingOutputs:
    """What max_pooling makes."""

    def __init__(self, values: Expression) -> None:
        self.values = values


def max_pooling(
    input: Expression,
    window_sizes: Sequence[int],
    strides: Sequence[int],
    start_padding: Sequence[int] = (0, 0),
    end_padding: Sequence[int] = (0, 0),
) -> MaxPoolingOutputs:
    return MaxPoolingOutputs(pooled("MaxPool", input, window_sizes, strides, start_padding, end_padding))


def pooled(
    kind: str,
    input: Expression,
    window: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
) -> Expression:
    padded = [input.sizes[2 + i] + before[i] + after[i] for i in range(2)]
    sizes = [*input.sizes[:2], *((padded[i] - window[i]) // strides[i] + 1 for i in range(2))]
    return node(kind, input, sizes=sizes, kernel_shape=window, strides=strides, pads=[*before, *after])


def reinterpret(
    input: Expression, new_type: TensorDataType, new_size: Sequence[int], new_strides: Sequence[int] | None
) -> Expression:
    """Packed, whatever the strides of dimensions of size 1."""
    desc = TensorDesc(new_type, new_size, new_strides)
    assert desc.total_tensor_size_in_bytes == 4 * int(np.prod(new_size))
    return node("Reshape", input, input.builder.constant(np.array(new_size, np.int64)), sizes=new_size)


def join(input: Sequence[Expression], axis: int) -> Expression:
    sizes = list(input[0].sizes)
    sizes[axis] = sum(item.sizes[axis] for item in input)
    return node("Concat", *input, sizes=sizes, axis=axis)
