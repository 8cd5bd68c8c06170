"""Pooling."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.convolution import Window, channels_first, channels_last, new_images, sliding_window, spatial
from dmlvk.onnx.registry import IN_BLOCKS, MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import FLOATS, OperatorDesc

_MAX_TYPES = ops.MaxPooling2.fields[0].data_types
_BYTES = ops.QuantizedLinearAveragePooling.fields[0].data_types


_POOLING = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


@converts("MaxPool", 1, types=FLOATS, domain=IN_BLOCKS, declared=Declared(1, 1, (*_POOLING, "storage_order")))
@converts("MaxPool", 1, 8, 10, 11, 12, 22, types=_MAX_TYPES)
def max_pool(node: Conversion) -> tuple[Value, Value | None]:
    """With ``storage_order`` 1 indices count the first spatial dimension fastest, as they do when all of them are turned
    round; of equal elements the first in that order counts then."""
    x, window = _pooled(node, node[0])
    y = node.new((*x.sizes[:2], *window.output), x.dtype)
    indices = node.new(y.sizes, np.dtype(np.int64)) if node.wants(1) else None
    outputs = {"output_tensor": y}
    if indices is not None:
        outputs["output_indices_tensor"] = indices.reinterpret(np.dtype(np.uint64))
        if node.attribute("storage_order", 0):
            turned = (0, 1, *reversed(range(2, x.rank)))
            x, outputs = x.transpose(turned), {name: value.transpose(turned) for name, value in outputs.items()}
            window = window.turned_round()
    node.launch(ops.MaxPooling2, x, window_size=window.kernel, **window.fields, **outputs)
    return _restored(node, y), None if indices is None else _restored(node, indices)


@converts("AveragePool", 1, types=FLOATS, domain=IN_BLOCKS, declared=Declared(1, 1, (*_POOLING, "count_include_pad")))
@converts("AveragePool", 1, 7, 10, 11, 19, 22, types=FLOATS)
def average_pool(node: Conversion) -> Value:
    """Padding counts as zeros with ``count_include_pad``. What hangs over it with ``ceil_mode`` never counts."""
    include_padding = bool(node.attribute("count_include_pad", 0))
    return _pool(node, ops.AveragePooling1, *_pooled(node, node[0]), include_padding=include_padding)


@converts("LpPool", 2, 11, 18, 22, types=FLOATS)
def lp_pool(node: Conversion) -> Value:
    return _pool(node, ops.LpPooling1, *_pooled(node, node[0]), p=_norm_order(node))


@converts("GlobalAveragePool", 1, types=FLOATS, domain=IN_BLOCKS, declared=Declared(1, 1))
@converts("GlobalAveragePool", 1, 22, types=FLOATS)
def global_average_pool(node: Conversion) -> Value:
    return _global_pool(node, ops.AveragePooling1, include_padding=False)


@converts("GlobalMaxPool", 1, types=FLOATS, domain=IN_BLOCKS, declared=Declared(1, 1))
@converts("GlobalMaxPool", 1, 22, types=FLOATS)
def global_max_pool(node: Conversion) -> Value:
    return _global_pool(node, ops.MaxPooling2)


@converts("GlobalLpPool", 2, 22, types=FLOATS)
def global_lp_pool(node: Conversion) -> Value:
    return _global_pool(node, ops.LpPooling1, p=_norm_order(node))


_QUANTIZED = Declared(5, 1, (*_POOLING, "channels_last", "count_include_pad"))


@converts("QLinearAveragePool", 1, types=_BYTES, domain=MICROSOFT, declared=_QUANTIZED)
def quantized_average_pool(node: Conversion) -> Value:
    """ONNX Runtime's operator, channels first or with ``channels_last`` last."""
    source, (scale, zero_point, output_scale, output_zero_point) = node[0], _quantization(node)
    last = bool(node.attribute("channels_last", 0))
    x, window = _pooled(node, channels_first(source) if last else source)
    y = new_images(node, (*x.sizes[:2], *window.output), x.dtype, last)
    node.launch(
        ops.QuantizedLinearAveragePooling,
        x,
        scale,
        zero_point,
        output_scale,
        output_zero_point,
        output_tensor=y,
        window_size=window.kernel,
        include_padding=bool(node.attribute("count_include_pad", 0)),
        **window.fields,
    )
    y = _restored(node, y)
    return channels_last(y) if last else y


def _quantization(node: Conversion) -> tuple[Value, Value | None, Value, Value | None]:
    """Scale and zero point of the input and of the output, one element each."""

    def one(index: int) -> Value | None:
        value = node.get(index)
        return None if value is None else node.reshape(value, (1,))

    scale, output_scale = one(1), one(3)
    if scale is None or output_scale is None:
        raise node.invalid("the scales of input and output must be given", None)
    return scale, one(2), output_scale, one(4)


@converts("QLinearGlobalAveragePool", 1, types=_BYTES, domain=MICROSOFT, declared=Declared(5, 1, ("channels_last",)))
def quantized_global_average_pool(node: Conversion) -> Value:
    """The mean of all pixels of each channel."""
    last = bool(node.attribute("channels_last", 0))
    x, (scale, zero_point, output_scale, output_zero_point) = node[0], _quantization(node)
    x = channels_first(x) if last else x
    plane = node.reshape(x, (*x.sizes[:2], 1, math.prod(x.sizes[2:])))
    y = node.launch(
        ops.QuantizedLinearAveragePooling,
        plane,
        scale,
        zero_point,
        output_scale,
        output_zero_point,
        output_tensor=node.new((*x.sizes[:2], 1, 1), x.dtype),
        window_size=plane.sizes[2:],
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 0),
    )
    y = node.reshape(y, x.sizes[:2] + (1,) * (x.rank - 2))
    return channels_last(y) if last else y


@converts("NhwcMaxPool", 1, types=_BYTES, domain=MICROSOFT, declared=Declared(1, 1, _POOLING))
def max_pool_of_channels_last(node: Conversion) -> Value:
    x, window = _pooled(node, channels_first(node[0]))
    y = new_images(node, (*x.sizes[:2], *window.output), x.dtype, True)
    node.launch(ops.MaxPooling2, x, output_tensor=y, window_size=window.kernel, **window.fields)
    return channels_last(_restored(node, y))


@converts("MaxUnpool", 9, 11, 22, types=FLOATS, host_inputs=(2,))
def max_unpool(node: Conversion) -> Value:
    """Indices count positions in the sizes that the window implies, as in ONNX's reference; with ``output_shape`` those are
    the first along each dimension of the output, and the others are 0."""
    x, indices = node[0], node[1]
    count = x.rank - 2
    kernel = tuple(node.attribute("kernel_shape", ()))
    if count < 1 or len(kernel) != count or indices.sizes != x.sizes:
        rule = "the indices must have the input's sizes, and kernel_shape one entry for each spatial dimension"
        raise node.invalid(rule, (x.sizes, indices.sizes, kernel))
    strides = spatial(node, "strides", count, 1)
    pads = tuple(node.attribute("pads", (0,) * (2 * count)))
    if len(pads) != 2 * count:
        raise node.invalid(f"pads must have two integers for each of the {count} spatial dimensions", pads)
    implied = tuple(
        (size - 1) * stride + taps - pads[axis] - pads[axis + count]
        for axis, (size, stride, taps) in enumerate(zip(x.sizes[2:], strides, kernel, strict=True))
    )
    sizes = (*x.sizes[:2], *implied)
    given = node.host(2)
    wanted = sizes if given is None else tuple(given.tolist())
    is_empty = any(size < 1 for size in implied)
    if is_empty or len(wanted) != len(sizes) or any(own > full for own, full in zip(sizes, wanted, strict=True)):
        raise node.invalid(f"the output must have at least the sizes that the window implies, {sizes}", wanted)
    if 0 in x.sizes:
        return node.fill(wanted, x.dtype.type(0))
    y = node.new(sizes, x.dtype)
    flat_indices = node.reshape(indices, (1, 1, 1, math.prod(x.sizes)))
    node.launch(
        ops.MaxUnpooling,
        node.reshape(x, (1, 1, 1, math.prod(x.sizes))),
        flat_indices.reinterpret(np.dtype(np.uint64)),
        output_tensor=node.reshape(y, (1, 1, 1, math.prod(sizes))),
    )
    return y if wanted == sizes else _in_corner(node, y, wanted)


def _in_corner(node: Conversion, y: Value, sizes: Sizes) -> Value:
    """The value at the start of larger sizes, zeros after it."""
    whole = node.fill(sizes, y.dtype.type(0))
    corner = whole
    for axis, size in enumerate(y.sizes):
        corner = corner.shorten(axis, size)
    node.launch(ops.ElementWiseIdentity, y, output_tensor=corner)
    return whole


def _norm_order(node: Conversion) -> int:
    return int(node.attribute("p", 2))


def _pool(node: Conversion, row: type[OperatorDesc], x: Value, window: Window, **fields: object) -> Value:
    y = node.launch(
        row,
        x,
        output_tensor=node.new((*x.sizes[:2], *window.output), x.dtype),
        window_size=window.kernel,
        **window.fields,
        **fields,
    )
    return _restored(node, y)


def _global_pool(node: Conversion, row: type[OperatorDesc], **fields: object) -> Value:
    """One window over all spatial dimensions, which count as two: the first, and all others."""
    x = node[0]
    if x.rank < 3:
        raise node.invalid("the input must have spatial dimensions, so at least 3 in all", x.sizes)
    plane = node.reshape(x, (*x.sizes[:2], x.sizes[2], math.prod(x.sizes[3:])))
    none = Window(plane.sizes[2:], (1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
    y = node.new((*x.sizes[:2], 1, 1), x.dtype)
    node.launch(row, plane, output_tensor=y, window_size=none.kernel, **none.fields, **fields)
    return node.reshape(y, x.sizes[:2] + (1,) * (x.rank - 2))


def _pooled(node: Conversion, x: Value) -> tuple[Value, Window]:
    """The input and its window; one spatial dimension gets a second one of size 1 before it, as DirectML wants two."""
    if x.rank < 3 or "kernel_shape" not in node.node.attributes:
        rule = "the input must have at least 3 dimensions, and kernel_shape must be given"
        raise node.invalid(rule, (x.sizes, node.attribute("kernel_shape", None)))
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
