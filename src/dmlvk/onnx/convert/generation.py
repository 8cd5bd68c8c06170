"""Tensors made from a number, a counter, a diagonal or indices.

Where Range and ConstantOfShape only say shapes, they run on the host as all shape arithmetic does (``network``).
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.formats import on_host
from dmlvk.onnx.model import data_type_of, format_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, always, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import NUMERIC
from dmlvk.spec.size import Size

_ANY = (TensorDataType.FLOAT64, *NUMERIC)
_COUNTED = (TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.INT64, TensorDataType.INT32, TensorDataType.INT16)
_INT32, _FARTHEST = np.dtype(np.int32), 2**31 - 1


@converts("ConstantOfShape", 9, 20, 21, 23, 24, 25, types=(TensorDataType.INT64,), host_inputs=(0,))
def constant_of_shape(node: Conversion) -> Value:
    sizes = tuple(node.known(0).tolist())
    if any(size < 0 for size in sizes):
        raise node.invalid("no size may be negative", list(sizes))
    value = node.attribute("value", np.zeros(1, np.float32))
    if format_of(value.dtype) is not None:
        value = on_host(value, np.dtype(np.float32))
    (number,) = value.reshape(-1)
    return node.fill(sizes, number)


def _check_stash(node: NodeFacts) -> None:
    stash = node.attribute("stash_type", onnx.TensorProto.FLOAT)
    if stash not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise node.invalid("stash_type must be FLOAT (1) or DOUBLE (11)", stash)


@converts("Range", 11, 27, types=_COUNTED, host_inputs=(0, 1, 2), check=_check_stash)
def counting(node: Conversion) -> Value:
    """start + i * delta, while that is before the limit. Numbers of 16 bits count in float32, in which their products with
    i are exact as far as they go, so that ``stash_type`` makes no difference."""
    dtype = node.dtype(0)
    is_float = dtype.kind == "f"
    numbers = [node.whole(index) for index in range(3)] if is_float else []
    if any(isinstance(number, Size) for number in numbers) and None not in numbers and numbers[2] != 0:
        first, end, step = (0 if number is None else number for number in numbers)
        whole = node.launch(
            ops.FillValueSequence,
            output_tensor=node.new((max(-((end - first) // -step), 0),), _INT32),
            value_data_type=TensorDataType.INT32,
            value_start=first,
            value_delta=step,
        )
        return cast_to(node, whole, dtype)
    start, limit, delta = (node.known(index).reshape(()) for index in range(3))
    if delta == 0 or (is_float and not np.isfinite([start, limit, delta]).all()):
        raise node.invalid("start, limit and delta must be finite, and delta not 0", (start, limit, delta))
    wide = np.promote_types(dtype, np.float32) if is_float else dtype
    count = (
        math.ceil(float(wide.type(limit) - wide.type(start)) / float(delta))
        if is_float
        else -((limit.item() - start.item()) // -delta.item())
    )
    return node.launch(
        ops.FillValueSequence,
        output_tensor=node.new((max(count, 0),), dtype),
        value_data_type=data_type_of(dtype),
        value_start=start.item(),
        value_delta=delta.item(),
    )


@converts("EyeLike", 9, 22, types=_ANY, check=lambda node: node.element_type("dtype", _INT32))
def eye_like(node: Conversion) -> Value:
    """1 on the k-th diagonal, 0 elsewhere; of the input only type and shape matter."""
    x = node[0]
    dtype = node.element_type("dtype", x.dtype)
    diagonal = _diagonal(node.attribute("k", 0))
    return node.launch(
        ops.DiagonalMatrix1,
        output_tensor=node.new(x.sizes, dtype),
        value_data_type=data_type_of(dtype),
        value=1,
        diagonal_fill_begin=diagonal,
        diagonal_fill_end=diagonal + 1,
    )


@converts("Trilu", 1, types=_ANY, moves=always, host_inputs=(1,), domain=MICROSOFT, declared=Declared(2, 1, ("upper",)))
@converts("Trilu", 14, types=_ANY, moves=always, host_inputs=(1,))
def triangle(node: Conversion) -> Value:
    """Zeros below the k-th diagonal, or with ``upper`` 0 above it, in each matrix of the last two dimensions."""
    x, k = node[0], node.host(1)
    if x.rank < 2:
        raise node.invalid("the input must have at least 2 dimensions", x.sizes)
    diagonal = 0 if k is None else _diagonal(int(k.item()))
    begin, end = (-_FARTHEST, diagonal) if node.attribute("upper", 1) else (diagonal + 1, _FARTHEST)
    matrices = node.reshape(x, (math.prod(x.sizes[:-2]), *x.sizes[-2:]))
    y = node.launch(
        ops.DiagonalMatrix1,
        matrices,
        output_tensor=node.new(matrices.sizes, x.dtype),
        value_data_type=data_type_of(x.dtype),
        value=0,
        diagonal_fill_begin=begin,
        diagonal_fill_end=end,
    )
    return node.reshape(y, x.sizes)


@converts("OneHot", 9, 11, types=NUMERIC, host_inputs=(1,))
def one_hot(node: Conversion) -> Value:
    """The second value at the indices, the first elsewhere, along a new axis. Before opset 11 a negative index was out of
    range, as it is where it is read as an unsigned number."""
    indices, depth, values = node[0], int(node.known(1).item()), node[2]
    if depth < 1:
        raise node.invalid("the depth must be at least 1", depth)
    if values.sizes != (2,):
        raise node.invalid("the values must be two", values.sizes)
    if indices.dtype.kind == "f" or indices.dtype.itemsize < _INT32.itemsize:
        indices = cast_to(node, indices, _INT32)
    if node.node.version < 11:
        indices = indices.reinterpret(np.dtype(f"u{indices.dtype.itemsize}"))
    axis = node.axis(node.attribute("axis", -1), indices.rank + 1)
    outer, inner = indices.sizes[:axis], indices.sizes[axis:]
    return node.launch(
        ops.OneHot,
        node.reshape(indices, (*outer, 1, *inner)),
        node.reshape(values, (*(1,) * indices.rank, 2)),
        output_tensor=node.new((*outer, depth, *inner), values.dtype),
        axis=axis,
    )


def _diagonal(k: int) -> int:
    """The diagonal's number; beyond any matrix for one that does not fit the operator."""
    return max(-_FARTHEST + 1, min(k, _FARTHEST - 1))
