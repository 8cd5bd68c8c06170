"""Pooling."""

from __future__ import annotations

import math

import numpy as np

from dmlvk import ops
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.convolution import Window, sliding_window
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.schema import FLOATS, OperatorDesc

_MAX_TYPES = ops.MaxPooling2.fields[0].data_types


@converts("MaxPool", 1, 8, 10, 11, 12, 22, types=_MAX_TYPES)
def max_pool(node: Conversion) -> tuple[Value, Value | None]:
    x, window = _pooled(node)
    y = node.new((*x.sizes[:2], *window.output), x.dtype)
    outputs, indices = {"output_tensor": y}, None
    if node.wants(1):
        if node.attribute("storage_order", 0):
            raise node.unsupported("storage_order 1: indices count row-major only")
        indices = node.new(y.sizes, np.dtype(np.int64))
        outputs["output_indices_tensor"] = indices.reinterpret(np.dtype(np.uint64))
    node.launch(ops.MaxPooling2, x, window_size=window.kernel, **window.fields, **outputs)
    return _restored(node, y), None if indices is None else _restored(node, indices)


@converts("AveragePool", 7, 10, 11, 19, 22, types=FLOATS)
def average_pool(node: Conversion) -> Value:
    """Padding counts as zeros with ``count_include_pad``; what hangs over it with ``ceil_mode`` never counts."""
    x, window = _pooled(node)
    y = node.launch(
        ops.AveragePooling1,
        x,
        output_tensor=node.new((*x.sizes[:2], *window.output), x.dtype),
        window_size=window.kernel,
        include_padding=bool(node.attribute("count_include_pad", 0)),
        **window.fields,
    )
    return _restored(node, y)


@converts("GlobalAveragePool", 1, 22, types=FLOATS)
def global_average_pool(node: Conversion) -> Value:
    return _global_pool(node, ops.AveragePooling1, include_padding=False)


@converts("GlobalMaxPool", 1, 22, types=FLOATS)
def global_max_pool(node: Conversion) -> Value:
    return _global_pool(node, ops.MaxPooling2)


def _global_pool(node: Conversion, row: type[OperatorDesc], **fields: object) -> Value:
    """One window over all spatial dimensions, which count as two: the first, and all others."""
    x = node[0]
    if x.rank < 3:
        raise node.invalid(f"the input of sizes {x.sizes} has no spatial dimensions")
    plane = node.reshape(x, (*x.sizes[:2], x.sizes[2], math.prod(x.sizes[3:])))
    none = Window(plane.sizes[2:], (1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
    y = node.new((*x.sizes[:2], 1, 1), x.dtype)
    node.launch(row, plane, output_tensor=y, window_size=none.kernel, **none.fields, **fields)
    return node.reshape(y, x.sizes[:2] + (1,) * (x.rank - 2))


def _pooled(node: Conversion) -> tuple[Value, Window]:
    """The input and its window; one spatial dimension gets a second one of size 1 before it, as DirectML wants two."""
    x = node[0]
    if x.rank < 3 or "kernel_shape" not in node.node.attributes:
        raise node.invalid(f"an input of sizes {x.sizes} and the window {node.attribute('kernel_shape', None)}")
    window = sliding_window(node, x.sizes[2:], tuple(node.attribute("kernel_shape", ())))
    if x.rank > 3:
        return x, window
    flat = Window(
        (1, *window.kernel),
        (1, *window.strides),
        (1, *window.dilations),
        (0, *window.start),
        (0, *window.end),
        (1, *window.output),
    )
    return node.reshape(x, (*x.sizes[:2], 1, x.sizes[2])), flat


def _restored(node: Conversion, y: Value) -> Value:
    """The output without the dimension that ``_pooled`` added."""
    return y if node[0].rank > 3 else node.reshape(y, (*y.sizes[:2], y.sizes[3]))
