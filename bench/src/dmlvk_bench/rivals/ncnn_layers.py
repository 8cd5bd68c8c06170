"""A problem's operator as a layer of ncnn, where ncnn has one: float32, of images a batch of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlvk.spec.enums import ConvolutionDirection, ConvolutionMode, MatrixTransform, TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, packed_strides
from dmlvk_bench.rivals.base import Array

Sizes = tuple[int, ...]
Weight = tuple[int, bool]
"""The position of an input that is a weight, and whether ncnn's file of weights has a word before it that says its type."""


class _NotInNcnnError(Exception):
    """ncnn cannot say this."""


@dataclass(frozen=True)
class Layer:
    """The ncnn layer that computes a desc.

    Attributes:
        kind: ncnn's name.
        inputs: The positions of the desc's present inputs that are blobs.
        sizes: The sizes of each of them for ncnn: three dimensions at most, as many elements in the same order.
        parameters: The layer's parameters by their numbers.
        weights: The desc's inputs that are the layer's own weights.
        in_place: Whether the layer writes over its input.
    """

    kind: str
    inputs: tuple[int, ...]
    sizes: tuple[Sizes, ...]
    parameters: Mapping[int, int | float] = field(default_factory=dict)
    weights: tuple[Weight, ...] = ()
    in_place: bool = False


def layer_of(desc: OperatorDesc) -> Layer | None:
    """The layer that computes a desc; None where ncnn has none for its operator, its layouts or its attributes."""
    make = _LAYERS.get(type(desc).__name__)
    tensors = [slot.tensor for slot in (*desc.input_slots(), *desc.output_slots()) if slot.tensor is not None]
    plain = getattr(desc, "scale_bias", None) is None and getattr(desc, "fused_activation", None) is None
    if make is None or not plain or not all(map(_is_packed_float32, tensors)):
        return None
    try:
        return make(desc)
    except _NotInNcnnError:
        return None


def _is_packed_float32(tensor: TensorDesc) -> bool:
    steps = zip(tensor.sizes, tensor.effective_strides, packed_strides(tensor.sizes), strict=True)
    return tensor.data_type == TensorDataType.FLOAT32 and all(size == 1 or own == step for size, own, step in steps)


def _require(holds: bool) -> None:
    if not holds:
        raise _NotInNcnnError


def _any_sizes(tensor: TensorDesc) -> Sizes:
    """Two dimensions for as many elements, neither of them very long: where no dimension means anything."""
    count = tensor.element_count
    width = math.gcd(count, 4096)
    return (count // width, width) if width > 1 else (count,)


def _around(tensor: TensorDesc, first: int, last: int) -> tuple[Sizes, int]:
    """A tensor with the dimensions first to last as one, those before them as one and those after, and where it is; those of
    one element are left out."""
    sizes = tensor.sizes
    before, own, after = (math.prod(part) for part in (sizes[:first], sizes[first : last + 1], sizes[last + 1 :]))
    return (*(before,) * (before > 1), own, *(after,) * (after > 1)), int(before > 1)


def _pointwise(
    kind: str, parameters: Callable[[Any], Mapping[int, int | float]] = lambda desc: {}
) -> Callable[[Any], Layer]:
    def make(desc: Any) -> Layer:
        return Layer(kind, (0,), (_any_sizes(desc.tensor("input_tensor")),), parameters(desc), in_place=True)

    return make


def _unary(operation: int) -> Callable[[Any], Layer]:
    return _pointwise("UnaryOp", lambda desc: {0: operation})


def _binary(operation: int) -> Callable[[Any], Layer]:
    def make(desc: Any) -> Layer:
        sizes = _any_sizes(desc.tensor("output_tensor"))
        return Layer("BinaryOp", (0, 1), (sizes, sizes), {0: operation})

    return make


def _softmax(desc: Any) -> Layer:
    _require(len(desc.axes) == 1)
    sizes, axis = _around(desc.tensor("input_tensor"), desc.axes[0], desc.axes[0])
    return Layer("Softmax", (0,), (sizes,), {0: axis, 1: 1}, in_place=True)  # 1: the axis counts all dimensions


def _mean_variance(desc: Any) -> Layer:
    """Over the last dimensions: rows, each normalized; without scale and bias."""
    x = desc.tensor("input_tensor")
    first = x.dimension_count - len(desc.axes)
    _require(desc.use_variance and tuple(desc.axes) == tuple(range(first, x.dimension_count)))
    _require(desc.scale_tensor is None and desc.bias_tensor is None)
    sizes, _ = _around(x, first, x.dimension_count - 1)
    kind = "LayerNorm" if desc.use_mean else "RMSNorm"
    return Layer(kind, (0,), (sizes,), {0: sizes[-1], 1: desc.epsilon, 2: 0}, in_place=True)


def _image(tensor: TensorDesc) -> Sizes:
    _require(tensor.dimension_count == 4 and tensor.sizes[0] == 1)
    return tensor.sizes[1:]


def _convolution(desc: Any) -> Layer:
    plain = desc.mode == ConvolutionMode.CROSS_CORRELATION and desc.direction == ConvolutionDirection.FORWARD
    _require(plain and not any(desc.output_padding))
    sizes = _image(desc.tensor("input_tensor"))
    filters = desc.tensor("filter_tensor")
    (top, left), (bottom, right) = desc.start_padding, desc.end_padding
    parameters = {
        0: filters.sizes[0],
        1: filters.sizes[3],
        11: filters.sizes[2],
        2: desc.dilations[1],
        12: desc.dilations[0],
    }
    parameters |= {
        3: desc.strides[1],
        13: desc.strides[0],
        4: left,
        14: top,
        15: right,
        16: bottom,
        6: filters.element_count,
    }
    if desc.group_count > 1:
        parameters[7] = desc.group_count
    weights: tuple[Weight, ...] = ((1, True),)
    if desc.bias_tensor is not None:
        parameters[5] = 1
        weights = (*weights, (2, False))
    return Layer("ConvolutionDepthWise" if desc.group_count > 1 else "Convolution", (0,), (sizes,), parameters, weights)


def _pooling(kind: int) -> Callable[[Any], Layer]:
    """A pooling layer of whole windows; images of a batch are channels of one."""

    def make(desc: Any) -> Layer:
        x = desc.tensor("input_tensor")
        _require(x.dimension_count == 4 and getattr(desc, "output_indices_tensor", None) is None)
        _require(set(desc.dilations) == {1} and desc.tensor("output_tensor").sizes == desc.inferred_output_sizes()[0])
        (top, left), (bottom, right) = desc.start_padding, desc.end_padding
        parameters = {0: kind, 1: desc.window_size[1], 11: desc.window_size[0], 2: desc.strides[1], 12: desc.strides[0]}
        parameters |= {3: left, 13: top, 14: right, 15: bottom, 5: 1, 6: int(getattr(desc, "include_padding", False))}
        return Layer("Pooling", (0,), ((x.sizes[0] * x.sizes[1], *x.sizes[2:]),), parameters)

    return make


def _gemm(desc: Any) -> Layer:
    """The product of two blobs; many small ones are a MatMul, which transposes the second only."""
    a, b = desc.tensor("a_tensor"), desc.tensor("b_tensor")
    _require(desc.c_tensor is None and desc.alpha == 1)
    flips = [int(trans == MatrixTransform.TRANSPOSE) for trans in (desc.trans_a, desc.trans_b)]
    if math.prod(a.sizes[:-2]) == 1:
        return Layer("Gemm", (0, 1), (a.sizes[-2:], b.sizes[-2:]), {2: flips[0], 3: flips[1]})
    _require(not flips[0])
    sizes = tuple((math.prod(tensor.sizes[:-2]), *tensor.sizes[-2:]) for tensor in (a, b))
    return Layer("MatMul", (0, 1), sizes, {0: flips[1]})


_LAYERS: dict[str, Callable[[Any], Layer]] = {
    "ActivationRelu": _pointwise("ReLU"),
    "ActivationLeakyRelu": _pointwise("ReLU", lambda desc: {0: desc.alpha}),
    "ActivationSigmoid": _pointwise("Sigmoid"),
    "ActivationTanh": _pointwise("TanH"),
    "ActivationGelu": _pointwise("GELU"),
    "ActivationElu": _pointwise("ELU", lambda desc: {0: desc.alpha}),
    "ActivationHardSigmoid": _pointwise("HardSigmoid", lambda desc: {0: desc.alpha, 1: desc.beta}),
    "ActivationHardSwish": _pointwise("HardSwish", lambda desc: {0: desc.alpha, 1: desc.beta}),
    "ActivationSoftmax1": _softmax,
    **{
        f"ElementWise{name}": _unary(operation)
        for name, operation in (
            *(("Abs", 0), ("Negate", 1), ("Floor", 2), ("Ceil", 3), ("Sqrt", 5), ("Exp", 7), ("Log", 8), ("Sin", 9)),
            *(("Cos", 10), ("Tan", 11), ("Asin", 12), ("Acos", 13), ("Atan", 14), ("Recip", 15), ("Tanh", 16)),
        )
    },
    **{
        f"ElementWise{name}": _binary(operation)
        for name, operation in (
            *(("Add", 0), ("Add1", 0), ("Subtract", 1), ("Multiply", 2), ("Divide", 3)),
            *(("Max", 4), ("Min", 5)),
        )
    },
    "MeanVarianceNormalization2": _mean_variance,
    "Convolution": _convolution,
    "MaxPooling2": _pooling(0),
    "AveragePooling1": _pooling(1),
    "Gemm": _gemm,
}


def network(layer: Layer, copies: int) -> str:
    """A net of some copies of a layer, as ncnn's text: nothing is uploaded in a run, and one number is read back.

    The blobs are constants on the device. Copies of a layer that writes over its input follow one another; others stand side
    by side. What joins these costs nothing: a crop to the size that a blob has already. ``y0`` is the first copy's output,
    ``out`` one element of what depends on all.
    """
    lines = []
    for at, sizes in enumerate(layer.sizes):
        width, height, channels = (*reversed(sizes), 0, 0)[:3]
        lines.append(f"MemoryData m{at} 0 1 m{at} 0={width} 1={height} 2={channels}")
        if not layer.in_place:
            lines.append(f"Split s{at} 1 {copies} m{at} " + " ".join(f"m{at}_{copy}" for copy in range(copies)))
    given = " ".join(f"{number}={value}" for number, value in layer.parameters.items())
    last = "m0"
    for copy in range(copies):
        inputs = [last] if layer.in_place else [f"m{at}_{copy}" for at in range(len(layer.sizes))]
        lines.append(f"{layer.kind} l{copy} {len(inputs)} 1 {' '.join(inputs)} y{copy} {given}")
        if not layer.in_place and copy:
            lines.append(f"Crop c{copy} 2 1 {last} y{copy} z{copy}")
        last = f"z{copy}" if copy and not layer.in_place else f"y{copy}"
    lines.append(f"Crop end 1 1 {last} out 0=0 1=0 2=0 3=1 4=1 5=1")
    blobs = {name for line in lines for name in _blobs(line)}
    return "\n".join(["7767517", f"{len(lines)} {len(blobs)}", *lines, ""])


def _blobs(line: str) -> list[str]:
    """The blobs that a layer's line names."""
    words = line.split()
    return words[4 : 4 + int(words[2]) + int(words[3])]


def weights_of(layer: Layer, inputs: list[Array], copies: int) -> Array:
    """The bytes that ncnn reads beside ``network``'s text: the blobs, then each copy's weights, in the order of the lines.

    Args:
        layer: The layer.
        inputs: The memory of each input slot that the desc has.
        copies: The number of copies of the layer.
    """
    flat = [np.ascontiguousarray(memory).reshape(-1).view(np.uint8) for memory in inputs]
    blobs = [flat[at][: 4 * math.prod(sizes)] for at, sizes in zip(layer.inputs, layer.sizes, strict=True)]
    own: list[Array] = []
    for at, tagged in layer.weights:
        own += [np.zeros(4 * tagged, np.uint8), flat[at]]
    return np.concatenate([*blobs, *own * copies])
