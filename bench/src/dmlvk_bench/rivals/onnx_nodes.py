"""A problem's operator as an ONNX node, where ONNX has one, and some of ONNX Runtime's own.

At opset 18 where that is enough: WebGPU has no kernels for the newer issues of some operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlvk.spec.enums import (
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    DepthSpaceOrder,
    InterpolationMode,
    MatrixTransform,
    PaddingMode,
    ReduceFunction,
    RoundingMode,
    TensorDataType,
    TensorFlags,
)
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, packed_strides
from dmlvk.verify.cases.model import NUMPY_TYPES
from dmlvk_bench.rivals.base import Array, logical

OPSET, IR_VERSION = 18, 9
MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""

Sizes = tuple[int, ...]


class _NotInOnnxError(Exception):
    """ONNX cannot say this."""


@dataclass(frozen=True)
class Fed:
    """An input that is one of the desc's.

    Attributes:
        position: Among those that are present.
        sizes: The sizes of the ONNX input: as many elements as the tensor has, in the same order.
        dtype: The type of its elements.
        constant: Whether it is a constant of the model, as weights are.
    """

    position: int
    sizes: Sizes
    dtype: np.dtype[Any]
    constant: bool


@dataclass(frozen=True)
class Node:
    """The ONNX node that computes a desc.

    Attributes:
        op_type, domain, attributes: The node's.
        inputs: Inputs of the desc, constants, or None for one that is left out.
        outputs: The number of outputs of the node; they are the desc's, as far as ``compared``.
        compared: The number of outputs, from the first, that are defined for every element.
        opset: The oldest one that has it.
    """

    op_type: str
    inputs: tuple[Fed | Array | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    outputs: int = 1
    compared: int = 1
    opset: int = OPSET


def node_of(desc: OperatorDesc) -> Node | None:
    """The node that computes a desc; None where ONNX has none for its operator, its layouts or its attributes."""
    make = _NODES.get(type(desc).__name__)
    if make is None or getattr(desc, "scale_bias", None) is not None or getattr(desc, "fused_activation", None) is not None:
        return None
    try:
        if type(desc).__name__ != "ElementWiseIdentity":
            for slot in desc.output_slots():
                _require(slot.tensor is None or _is_packed(slot.tensor))
        return make(desc)
    except _NotInOnnxError:
        return None


def model_of(node: Node, inputs: list[Array], desc: OperatorDesc) -> tuple[bytes, dict[str, Array]]:
    """The ONNX file of a node, with its constants, and what a run is fed.

    Args:
        node: The node, from ``node_of``.
        inputs: The memory of each input slot that is present.
        desc: The desc that the node computes.
    """
    names: list[str] = []
    feeds: dict[str, Array] = {}
    initializers = []
    for at, given in enumerate(node.inputs):
        names.append("" if given is None else f"x{at}")
        if isinstance(given, Fed):
            memory = np.ascontiguousarray(inputs[given.position]).reshape(-1).view(np.uint8)
            array = memory[: math.prod(given.sizes) * given.dtype.itemsize].view(given.dtype).reshape(given.sizes)
            if given.constant:
                initializers.append(numpy_helper.from_array(array, names[-1]))
            else:
                feeds[names[-1]] = array
        elif given is not None:
            initializers.append(numpy_helper.from_array(given, names[-1]))
    kind_of = helper.np_dtype_to_tensor_dtype
    outputs = [f"y{at}" for at in range(node.outputs)]
    made = helper.make_node(node.op_type, names, outputs, "node", domain=node.domain, **node.attributes)
    graph = helper.make_graph(
        [made],
        type(desc).__name__,
        [helper.make_tensor_value_info(name, kind_of(array.dtype), array.shape) for name, array in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        initializers,
    )
    opsets = [helper.make_opsetid("", node.opset), helper.make_opsetid(MICROSOFT, 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(model.SerializeToString()), feeds


def our_outputs(ours: list[Array], tensors: list[TensorDesc]) -> list[Array]:
    """Our outputs' memory as ONNX has its own: packed; what is stored as channels last has its sizes in that order."""
    return [logical(memory, tensor).transpose(_memory_order(tensor)) for memory, tensor in zip(ours, tensors, strict=True)]


def _require(holds: bool) -> None:
    if not holds:
        raise _NotInOnnxError


def _is_packed(tensor: TensorDesc) -> bool:
    steps = zip(tensor.sizes, tensor.effective_strides, packed_strides(tensor.sizes), strict=True)
    return all(size == 1 or step == packed for size, step, packed in steps)


def _memory_order(tensor: TensorDesc) -> Sizes:
    """The dimensions from the one whose neighbours lie furthest apart; those of one element stay where they are."""
    steps = packed_strides(tensor.sizes) if _is_packed(tensor) else tensor.effective_strides
    return tuple(sorted(range(tensor.dimension_count), key=lambda axis: -steps[axis]))


def _fed(desc: OperatorDesc, name: str, sizes: Sizes | None = None, *, element: int = 0, broadcast: bool = False) -> Fed:
    """An input of a desc.

    Args:
        desc: The desc with the input.
        name: The field.
        sizes: The sizes of the ONNX input; None for the tensor's own.
        element: The position in an array of tensors.
        broadcast: Whether dimensions of stride 0 become dimensions of one element.
    """
    slots = [slot for slot in desc.input_slots() if slot.tensor is not None]
    at = next(at for at, slot in enumerate(slots) if slot.field.name == name and slot.element == element)
    tensor = slots[at].tensor
    assert tensor is not None
    own = tensor.sizes
    if broadcast:
        own = tuple(size if step else 1 for size, step in zip(own, tensor.effective_strides, strict=True))
        kept = [(size, step) for size, step in zip(own, tensor.effective_strides, strict=True) if size > 1]
        _require([step for _, step in kept] == list(packed_strides([size for size, _ in kept])))
    else:
        _require(_is_packed(tensor))
    if sizes is not None:
        _require(math.prod(sizes) == math.prod(own))
        own = sizes
    kind = NUMPY_TYPES[tensor.data_type]
    return Fed(at, own, kind, bool(tensor.flags & TensorFlags.OWNED_BY_DML))


def _indices(desc: OperatorDesc, name: str, sizes: Sizes | None = None) -> Fed:
    """Indices, which ONNX has signed."""
    fed = _fed(desc, name, sizes)
    return Fed(fed.position, fed.sizes, np.dtype(f"i{fed.dtype.itemsize}"), fed.constant)


def _longs(*values: int) -> Array:
    return np.array(values, np.int64)


def _plain(op_type: str, *names: str, **attributes: str) -> Callable[[Any], Node]:
    """A node of the same inputs, which broadcast, and of attributes that are named otherwise or the same."""

    def make(desc: Any) -> Node:
        inputs = tuple(_fed(desc, name, broadcast=len(names) > 1) for name in names or ("input_tensor",))
        _require(np.broadcast_shapes(*(fed.sizes for fed in inputs)) == desc.tensor("output_tensor").sizes)
        return Node(op_type, inputs, {own: getattr(desc, name) for own, name in attributes.items()})

    return make


def _identity(desc: Any) -> Node:
    """A copy; from one order of dimensions to another, a transposition."""
    source, target = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    orders = _memory_order(source), _memory_order(target)
    for tensor, order in zip((source, target), orders, strict=True):
        ordered = [tensor.sizes[axis] for axis in order]
        steps = [tensor.effective_strides[axis] for axis in order]
        kept = [(size, step) for size, step in zip(ordered, steps, strict=True) if size > 1]
        _require([step for _, step in kept] == list(packed_strides([size for size, _ in kept])))
    fed = Fed(0, tuple(source.sizes[axis] for axis in orders[0]), NUMPY_TYPES[source.data_type], False)
    perm = [orders[0].index(axis) for axis in orders[1]]
    return Node("Identity", (fed,)) if perm == sorted(perm) else Node("Transpose", (fed,), {"perm": perm})


def _clip(desc: Any) -> Node:
    kind = NUMPY_TYPES[desc.tensor("input_tensor").data_type]
    return Node("Clip", (_fed(desc, "input_tensor"), np.array(desc.min, kind), np.array(desc.max, kind)))


def _constant_power(desc: Any) -> Node:
    kind = NUMPY_TYPES[desc.tensor("input_tensor").data_type]
    return Node("Pow", (_fed(desc, "input_tensor"), np.array(desc.exponent, kind)))


def _round(desc: Any) -> Node:
    _require(desc.rounding_mode == RoundingMode.HALVES_TO_NEAREST_EVEN)
    return Node("Round", (_fed(desc, "input_tensor"),))


def _modulus_floor(desc: Any) -> Node:
    """ONNX has the sign of the divisor for integers only."""
    _require(NUMPY_TYPES[desc.tensor("a_tensor").data_type].kind != "f")
    return _plain("Mod", "a_tensor", "b_tensor")(desc)


def _modulus_truncate(desc: Any) -> Node:
    return Node("Mod", _plain("Mod", "a_tensor", "b_tensor")(desc).inputs, {"fmod": 1})


def _hard_swish(desc: Any) -> Node:
    """ONNX's has its numbers built in."""
    _require(math.isclose(desc.alpha, 1 / 6, rel_tol=1e-6) and desc.beta == 0.5)
    return Node("HardSwish", (_fed(desc, "input_tensor"),))


def _gelu(desc: Any) -> Node:
    return Node("Gelu", (_fed(desc, "input_tensor"),), opset=20)


def _softplus(desc: Any) -> Node:
    _require(desc.steepness == 1)
    return Node("Softplus", (_fed(desc, "input_tensor"),))


def _cast(desc: Any) -> Node:
    target = helper.np_dtype_to_tensor_dtype(NUMPY_TYPES[desc.tensor("output_tensor").data_type])
    return Node("Cast", (_fed(desc, "input_tensor"),), {"to": target})


def _along_one_axis(op_type: str) -> Callable[[Any], Node]:
    def make(desc: Any) -> Node:
        _require(len(desc.axes) == 1)
        return Node(op_type, (_fed(desc, "input_tensor"),), {"axis": desc.axes[0]})

    return make


def _gemm(desc: Any) -> Node:
    a, b = (_fed(desc, name) for name in ("a_tensor", "b_tensor"))
    flips = [int(trans == MatrixTransform.TRANSPOSE) for trans in (desc.trans_a, desc.trans_b)]
    if math.prod(a.sizes[:-2]) == 1:
        a, b = (_fed(desc, name, fed.sizes[-2:]) for name, fed in (("a_tensor", a), ("b_tensor", b)))
        inputs: tuple[Fed, ...] = (a, b)
        if desc.c_tensor is not None:
            c = _fed(desc, "c_tensor", broadcast=True)
            inputs = (a, b, _fed(desc, "c_tensor", c.sizes[-2:], broadcast=True))
        given = {"alpha": desc.alpha, "beta": desc.beta, "transA": flips[0], "transB": flips[1]}
        return Node("Gemm", inputs, given)
    _require(desc.c_tensor is None)
    if desc.alpha == 1 and not any(flips):
        return Node("MatMul", (a, b))
    fused = {"alpha": desc.alpha, "transA": flips[0], "transB": flips[1]}
    return Node("FusedMatMul", (a, b), fused, MICROSOFT)


def _integer_product(desc: Any) -> Node:
    zeros = [
        None if tensor is None else tensor.element_count for tensor in (desc.a_zero_point_tensor, desc.b_zero_point_tensor)
    ]
    _require(all(count in (None, 1) for count in zeros))
    points = [
        None if count is None else _fed(desc, f"{name}_zero_point_tensor", ())
        for name, count in zip("ab", zeros, strict=True)
    ]
    return Node("MatMulInteger", (_fed(desc, "a_tensor"), _fed(desc, "b_tensor"), *points))


def _integer_convolution(desc: Any) -> Node:
    points = []
    for name in ("input_zero_point_tensor", "filter_zero_point_tensor"):
        tensor = getattr(desc, name)
        _require(tensor is None or tensor.element_count == 1)
        points.append(None if tensor is None else _fed(desc, name, ()))
    inputs = (_fed(desc, "input_tensor"), _fed(desc, "filter_tensor"), *points)
    return Node("ConvInteger", inputs, {**_window(desc), "group": desc.group_count})


def _window(desc: Any) -> dict[str, Any]:
    """The attributes that convolutions share."""
    return {
        "kernel_shape": desc.tensor("filter_tensor").sizes[2:],
        "strides": desc.strides,
        "dilations": desc.dilations,
        "pads": (*desc.start_padding, *desc.end_padding),
    }


def _convolution(desc: Any) -> Node:
    _require(desc.mode == ConvolutionMode.CROSS_CORRELATION and not any(desc.output_padding))
    inputs: tuple[Fed, ...] = (_fed(desc, "input_tensor"), _fed(desc, "filter_tensor"))
    channels = desc.tensor("output_tensor").sizes[1]
    if desc.bias_tensor is not None:
        inputs = (*inputs, _fed(desc, "bias_tensor", (channels,)))
    attributes = {**_window(desc), "group": desc.group_count}
    if desc.direction == ConvolutionDirection.FORWARD:
        return Node("Conv", inputs, attributes)
    smallest = desc.inferred_output_sizes()[0][2:]
    more = tuple(size - least for size, least in zip(desc.tensor("output_tensor").sizes[2:], smallest, strict=True))
    return Node("ConvTranspose", inputs, {**attributes, "output_padding": more})


def _pooling(op_type: str) -> Callable[[Any], Node]:
    def make(desc: Any) -> Node:
        _require(getattr(desc, "output_indices_tensor", None) is None)
        attributes = {
            "kernel_shape": desc.window_size,
            "strides": desc.strides,
            "dilations": desc.dilations,
            "pads": (*desc.start_padding, *desc.end_padding),
            "ceil_mode": int(desc.tensor("output_tensor").sizes != desc.inferred_output_sizes()[0]),
        }
        opset = OPSET
        if op_type == "AveragePool":
            attributes["count_include_pad"] = int(desc.include_padding)
            if set(desc.dilations) == {1}:
                del attributes["dilations"]
            else:
                opset = 19
        elif op_type == "LpPool":
            attributes["p"] = desc.p
        return Node(op_type, (_fed(desc, "input_tensor"),), attributes, opset=opset)

    return make


_REDUCTIONS = {
    ReduceFunction.AVERAGE: "ReduceMean",
    ReduceFunction.L1: "ReduceL1",
    ReduceFunction.L2: "ReduceL2",
    ReduceFunction.LOG_SUM: "ReduceLogSum",
    ReduceFunction.LOG_SUM_EXP: "ReduceLogSumExp",
    ReduceFunction.MAX: "ReduceMax",
    ReduceFunction.MIN: "ReduceMin",
    ReduceFunction.MULTIPLY: "ReduceProd",
    ReduceFunction.SUM: "ReduceSum",
    ReduceFunction.SUM_SQUARE: "ReduceSumSquare",
}


def _reduction(desc: Any) -> Node:
    x = _fed(desc, "input_tensor")
    _require(len(desc.axes) > 0)  # without any, ONNX reduces all
    if desc.function in _REDUCTIONS:
        return Node(_REDUCTIONS[desc.function], (x, _longs(*desc.axes)), {"keepdims": 1})
    _require(len(desc.axes) == 1)
    name = "ArgMax" if desc.function == ReduceFunction.ARGMAX else "ArgMin"
    return Node(name, (x,), {"axis": desc.axes[0], "keepdims": 1})


def _mean_variance(desc: Any) -> Node:
    """The norm by the first normalized axis: an instance norm, which has numbers a channel, a layer norm, or a norm by the
    root of the mean square, which is ONNX Runtime's own."""
    x = _fed(desc, "input_tensor")
    rank, first = len(x.sizes), len(x.sizes) - len(desc.axes)
    _require(desc.use_variance and tuple(desc.axes) == tuple(range(first, rank)))
    by_channel = first == 2 and rank == 4 and desc.use_mean
    own = x.sizes[1:2] if by_channel else x.sizes[first:]
    sides: list[Fed | Array] = []
    for name, value in (("scale_tensor", 1.0), ("bias_tensor", 0.0)):
        tensor = getattr(desc, name)
        if tensor is None:
            sides.append(np.full(own, value, x.dtype))
            continue
        sides.append(_fed(desc, name, own, broadcast=True))
        wanted = (1, own[0], 1, 1) if by_channel else (*(1,) * first, *own)
        _require(_fed(desc, name, broadcast=True).sizes == wanted)
    if by_channel:
        return Node("InstanceNormalization", (x, *sides), {"epsilon": desc.epsilon})
    if desc.use_mean:
        return Node("LayerNormalization", (x, *sides), {"epsilon": desc.epsilon, "axis": first})
    _require(desc.bias_tensor is None)
    return Node("SimplifiedLayerNormalization", (x, sides[0]), {"epsilon": desc.epsilon, "axis": first})


def _batch_norm(desc: Any) -> Node:
    x = _fed(desc, "input_tensor")
    names = ("scale_tensor", "bias_tensor", "mean_tensor", "variance_tensor")
    _require(len(x.sizes) > 1)
    _require(all(desc.tensor(name).sizes == (1, x.sizes[1], *(1,) * (len(x.sizes) - 2)) for name in names))
    sides = (_fed(desc, name, x.sizes[1:2]) for name in names)
    return Node("BatchNormalization", (x, *sides), {"epsilon": desc.epsilon})


def _local_response(desc: Any) -> Node:
    _require(desc.cross_channel)
    numbers = {"size": desc.local_size, "alpha": desc.alpha, "beta": desc.beta, "bias": desc.bias}
    return Node("LRN", (_fed(desc, "input_tensor"),), numbers)


def _gather(desc: Any) -> Node:
    indices = desc.tensor("indices_tensor").sizes
    meant = indices[len(indices) - desc.index_dimensions :]
    return Node("Gather", (_fed(desc, "input_tensor"), _indices(desc, "indices_tensor", meant)), {"axis": desc.axis})


def _gather_elements(desc: Any) -> Node:
    inputs = (_fed(desc, "input_tensor"), _indices(desc, "indices_tensor"))
    return Node("GatherElements", inputs, {"axis": desc.axis})


def _tuples(desc: Any) -> tuple[Fed, Fed]:
    """Input and indices without their leading ones. ONNX has indices of 64 bits."""
    x, indices = desc.tensor("input_tensor").sizes, desc.tensor("indices_tensor").sizes
    x = x[len(x) - desc.input_dimension_count :]
    indices = indices[len(indices) - desc.indices_dimension_count :]
    fed = _indices(desc, "indices_tensor", indices)
    _require(fed.dtype.itemsize == 8)
    return _fed(desc, "input_tensor", x), fed


def _gather_nd(desc: Any) -> Node:
    return Node("GatherND", _tuples(desc), {"batch_dims": desc.batch_dimension_count})


def _scatter_elements(desc: Any) -> Node:
    inputs = (_fed(desc, "input_tensor"), _indices(desc, "indices_tensor"), _fed(desc, "updates_tensor"))
    return Node("ScatterElements", inputs, {"axis": desc.axis})


def _scatter_nd(desc: Any) -> Node:
    x, indices = _tuples(desc)
    updates = (*indices.sizes[:-1], *x.sizes[indices.sizes[-1] :])
    return Node("ScatterND", (x, indices, _fed(desc, "updates_tensor", updates)))


def _resize(desc: Any) -> Node:
    x, sizes = _fed(desc, "input_tensor"), desc.tensor("output_tensor").sizes
    _require(all(math.isclose(s, new / old, rel_tol=1e-6) for s, new, old in zip(desc.scales, sizes, x.sizes, strict=True)))
    nearest = desc.interpolation_mode == InterpolationMode.NEAREST_NEIGHBOR
    ways = {
        (0.5, -0.5): ("half_pixel", ""),
        (0.0, 0.0): ("asymmetric", ""),
        (1.0, -0.5, AxisDirection.INCREASING): ("half_pixel", "round_prefer_floor"),
        (0.0, -0.5, AxisDirection.DECREASING): ("half_pixel", "round_prefer_ceil"),
        (0.0, 0.0, AxisDirection.DECREASING): ("asymmetric", "floor"),
        (0.0, 0.0, AxisDirection.INCREASING): ("asymmetric", "ceil"),
    }
    offsets = set(zip(desc.input_pixel_offsets, desc.output_pixel_offsets, strict=True))
    _require(len(offsets) == 1)
    way = ways.get((*offsets.pop(), desc.rounding_direction) if nearest else offsets.pop())
    _require(way is not None)
    assert way is not None
    attributes: dict[str, Any] = {"mode": "nearest" if nearest else "linear", "coordinate_transformation_mode": way[0]}
    attributes |= {"nearest_mode": way[1]} if nearest else {"antialias": int(desc.antialiased)}
    return Node("Resize", (x, None, None, _longs(*sizes)), attributes)


def _top_k(desc: Any) -> Node:
    """TopK. Among equal elements ONNX Runtime may choose another one: only the values are compared."""
    largest = int(desc.axis_direction == AxisDirection.DECREASING)
    attributes = {"axis": desc.axis, "largest": largest, "sorted": 1}
    return Node("TopK", (_fed(desc, "input_tensor"), _longs(desc.k)), attributes, outputs=2)


def _concat(desc: Any) -> Node:
    parts = tuple(_fed(desc, "input_tensors", element=at) for at in range(len(desc.input_tensors)))
    return Node("Concat", parts, {"axis": desc.axis})


def _split(desc: Any) -> Node:
    sizes = _longs(*(tensor.sizes[desc.axis] for tensor in desc.output_tensors))
    count = len(desc.output_tensors)
    return Node("Split", (_fed(desc, "input_tensor"), sizes), {"axis": desc.axis}, outputs=count, compared=count)


def _slice(desc: Any) -> Node:
    starts, ends = [], []
    counts = desc.tensor("output_tensor").sizes
    whole = desc.tensor("input_tensor").sizes
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, counts, whole, strict=True)
    for offset, size, step, count, elements in windows:
        starts.append(offset if step > 0 else offset + size - 1)
        end = starts[-1] + step * count
        ends.append(end if end >= 0 else -elements - 1)  # what ONNX counts from the end
    axes, steps = range(len(starts)), desc.input_window_strides
    return Node("Slice", (_fed(desc, "input_tensor"), _longs(*starts), _longs(*ends), _longs(*axes), _longs(*steps)))


_PADDINGS = {
    PaddingMode.CONSTANT: "constant",
    PaddingMode.EDGE: "edge",
    PaddingMode.REFLECTION: "reflect",
    PaddingMode.WRAP: "wrap",
}


def _pad(desc: Any) -> Node:
    _require(desc.padding_mode in _PADDINGS)
    value = np.array(desc.padding_value, NUMPY_TYPES[desc.tensor("input_tensor").data_type])
    pads = _longs(*desc.start_padding, *desc.end_padding)
    opset = 19 if desc.padding_mode == PaddingMode.WRAP else OPSET
    return Node("Pad", (_fed(desc, "input_tensor"), pads, value), {"mode": _PADDINGS[desc.padding_mode]}, opset=opset)


def _tile(desc: Any) -> Node:
    return Node("Tile", (_fed(desc, "input_tensor"), _longs(*desc.repeats)))


def _depth_to_space(desc: Any) -> Node:
    order = "DCR" if desc.order == DepthSpaceOrder.DEPTH_COLUMN_ROW else "CRD"
    return Node("DepthToSpace", (_fed(desc, "input_tensor"),), {"blocksize": desc.block_size, "mode": order})


def _space_to_depth(desc: Any) -> Node:
    _require(desc.order == DepthSpaceOrder.DEPTH_COLUMN_ROW)
    return Node("SpaceToDepth", (_fed(desc, "input_tensor"),), {"blocksize": desc.block_size})


def _running_sum(desc: Any) -> Node:
    way = {"exclusive": int(desc.has_exclusive_sum), "reverse": int(desc.axis_direction == AxisDirection.DECREASING)}
    return Node("CumSum", (_fed(desc, "input_tensor"), np.array(desc.axis, np.int64)), way)


def _linear(op_type: str) -> Callable[[Any], Node]:
    """Quantization by one scale, or one a position along an axis."""

    def make(desc: Any) -> Node:
        given = [name for name in ("scale_tensor", "zero_point_tensor") if getattr(desc, name) is not None]
        sizes = {_fed(desc, name, broadcast=True).sizes for name in given}
        _require(len(sizes) == 1)
        long = [axis for axis, size in enumerate(sizes.pop()) if size > 1]
        _require(len(long) <= 1)
        x = _fed(desc, "input_tensor")
        own = tuple(x.sizes[axis] for axis in long)
        sides = (_fed(desc, name, own, broadcast=True) for name in given)
        return Node(op_type, (x, *sides), {"axis": long[0]} if long else {})

    return make


def _attention(desc: Any) -> Node:
    """ONNX Runtime's own, with queries, keys and values in tensors of their own and as many heads of each."""
    own = ("query_tensor", "key_tensor", "value_tensor", "output_tensor")
    others = (spec.name for spec in desc.fields if spec.kind.is_tensor and spec.name not in own)
    _require(all(getattr(desc, name) is None for name in others))
    _require(all(getattr(desc, name) is not None and desc.tensor(name).dimension_count == 3 for name in own))
    _require(desc.query_head_count == desc.key_value_head_count)
    inputs = tuple(_fed(desc, name) for name in own[:3])
    return Node("MultiHeadAttention", inputs, {"num_heads": desc.query_head_count, "scale": desc.scale}, MICROSOFT)


def _dynamic_quantization(desc: Any) -> Node:
    types = (TensorDataType.FLOAT32, TensorDataType.UINT8)
    _require(tuple(desc.tensor(name).data_type for name in ("input_tensor", "output_tensor")) == types)
    return Node("DynamicQuantizeLinear", (_fed(desc, "input_tensor"),), outputs=3, compared=3)


_NODES: dict[str, Callable[[Any], Node]] = {
    "ElementWiseIdentity": _identity,
    **{
        f"ElementWise{name}": _plain(op_type or name)
        for name, op_type in (
            *(
                (name, "")
                for name in ("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf")
            ),
            *((name, "") for name in ("Exp", "Floor", "Log", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh")),
            ("Negate", "Neg"),
            ("Recip", "Reciprocal"),
        )
    },
    **{
        f"ElementWise{name}": _plain(op_type, "a_tensor", "b_tensor")
        for name, op_type in (
            *(("Add", "Add"), ("Add1", "Add"), ("Subtract", "Sub"), ("Multiply", "Mul"), ("Divide", "Div")),
            *(("Max", "Max"), ("Min", "Min"), ("Mean", "Mean")),
        )
    },
    "ElementWisePow": _plain("Pow", "input_tensor", "exponent_tensor"),
    "ElementWiseConstantPow": _constant_power,
    "ElementWiseClip": _clip,
    "ElementWiseClip1": _clip,
    "ElementWiseRound": _round,
    "ElementWiseModulusFloor": _modulus_floor,
    "ElementWiseModulusTruncate": _modulus_truncate,
    "ElementWiseQuantizeLinear": _linear("QuantizeLinear"),
    "ElementWiseDequantizeLinear": _linear("DequantizeLinear"),
    "Cast": _cast,
    "ActivationRelu": _plain("Relu"),
    "ActivationSigmoid": _plain("Sigmoid"),
    "ActivationTanh": _plain("Tanh"),
    "ActivationGelu": _gelu,
    "ActivationSoftsign": _plain("Softsign"),
    "ActivationElu": _plain("Elu", alpha="alpha"),
    "ActivationCelu": _plain("Celu", alpha="alpha"),
    "ActivationLeakyRelu": _plain("LeakyRelu", alpha="alpha"),
    "ActivationThresholdedRelu": _plain("ThresholdedRelu", alpha="alpha"),
    "ActivationHardSigmoid": _plain("HardSigmoid", alpha="alpha", beta="beta"),
    "ActivationScaledElu": _plain("Selu", alpha="alpha", gamma="gamma"),
    "ActivationParameterizedRelu": _plain("PRelu", "input_tensor", "slope_tensor"),
    "ActivationHardSwish": _hard_swish,
    "ActivationSoftplus": _softplus,
    "ActivationSoftmax1": _along_one_axis("Softmax"),
    "ActivationLogSoftmax1": _along_one_axis("LogSoftmax"),
    "ActivationHardmax1": _along_one_axis("Hardmax"),
    "Gemm": _gemm,
    "MatrixMultiplyInteger": _integer_product,
    "Convolution": _convolution,
    "ConvolutionInteger": _integer_convolution,
    "AveragePooling1": _pooling("AveragePool"),
    "MaxPooling2": _pooling("MaxPool"),
    "LpPooling1": _pooling("LpPool"),
    "Reduce": _reduction,
    "MeanVarianceNormalization2": _mean_variance,
    "BatchNormalization": _batch_norm,
    "LocalResponseNormalization": _local_response,
    "LpNormalization": _plain("LpNormalization", axis="axis", p="p"),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherNd1": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterNd": _scatter_nd,
    "Resample3": _resize,
    "TopK1": _top_k,
    "Join": _concat,
    "Split": _split,
    "Slice1": _slice,
    "Padding1": _pad,
    "Tile": _tile,
    "DepthToSpace1": _depth_to_space,
    "SpaceToDepth1": _space_to_depth,
    "CumulativeSummation": _running_sum,
    "DynamicQuantizeLinear": _dynamic_quantization,
    "MultiheadAttention1": _attention,
}
