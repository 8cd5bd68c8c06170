"""Pooling over windows and over shares of an image, and the gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.graph.views import Sizes
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.convert.convolution import per_dimension
from dmlvk.torch.convert.elementwise import scaled
from dmlvk.torch.convert.products import multiplied
from dmlvk.torch.convert.reductions import reduced
from dmlvk.torch.registry import converter

_INDEX: Final = np.dtype(np.int64)


class _Window(NamedTuple):
    """A window over two or three spatial dimensions; each field has one entry a dimension.

    Attributes:
        size, strides, dilations: Its taps, and the steps between windows and between taps.
        start, end: Padding.
    """

    size: Sizes
    strides: Sizes
    dilations: Sizes
    start: Sizes
    end: Sizes

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that the operators share."""
        return {
            "window_size": self.size,
            "strides": self.strides,
            "dilations": self.dilations,
            "start_padding": self.start,
            "end_padding": self.end,
        }


def _window(
    count: int,
    sizes: Sizes,
    output: Sizes,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> _Window:
    """The window of PyTorch's arguments over inputs and outputs of these spatial sizes. Where the last window reaches
    beyond the padding, as ``ceil_mode`` lets it, there is more at the end; what no window reaches is left out. One
    dimension has a second one of size 1 before it."""
    size = per_dimension(kernel, count)
    strides = per_dimension(stride, count) if stride else size
    start, dilations = per_dimension(padding, count), per_dimension(dilation, count)
    end = []
    for axis in range(count):
        reach = (output[axis] - 1) * strides[axis] + (size[axis] - 1) * dilations[axis] + 1
        end.append(max(reach - sizes[axis] - start[axis], 0))
    window = _Window(size, strides, dilations, start, tuple(end))
    if count > 1:
        return window
    return _Window((1, *size), (1, *strides), (1, *dilations), (0, *start), (0, *end))


def _images(node: Conversion, x: Value, count: int) -> Value:
    """(N, C, and at least two spatial dimensions)."""
    batched = x if x.rank == count + 2 else node.reshape(x, (1, *x.sizes))
    return batched if count > 1 else node.reshape(batched, (*batched.sizes[:2], 1, batched.sizes[2]))


def _pooled_sizes(x: Value, output: Sizes, count: int) -> Sizes:
    spatial = output[-count:]
    return (*x.sizes[:2], *spatial) if count > 1 else (*x.sizes[:2], 1, *spatial)


@converter("aten.max_pool2d_with_indices.default")
def max_pool2d(
    node: Conversion,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    return _max_pool(node, x, 2, kernel_size, stride, padding, dilation)


@converter("aten.max_pool3d_with_indices.default")
def max_pool3d(
    node: Conversion,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    return _max_pool(node, x, 3, kernel_size, stride, padding, dilation)


def _max_pool(
    node: Conversion,
    x: Value,
    count: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[Value, Value]:
    """The largest elements, and their places in each plane."""
    sizes = node.results[0][1]
    window = _window(count, x.sizes[-count:], sizes[-count:], kernel, stride, padding, dilation)
    images = _images(node, x, count)
    y = node.new(_pooled_sizes(images, sizes, count), x.dtype)
    places = node.new(y.sizes, _INDEX)
    node.launch(
        ops.MaxPooling2,
        images,
        output_tensor=y,
        output_indices_tensor=places.reinterpret(np.dtype(np.uint64)),
        **window.fields,
    )
    plane = node.tensor(math.prod(images.sizes[2:]), _INDEX)
    places = node.elementwise(ops.ElementWiseModulusTruncate, places, plane)
    return node.reshape(y, sizes), node.reshape(places, sizes)


@converter("aten.max_pool2d_with_indices_backward.default")
def max_pool2d_backward(
    node: Conversion,
    gradient: Value,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Value,
) -> Value:
    """Of equal elements of a window the first counts, as in the places."""
    window = _window(2, x.sizes[-2:], gradient.sizes[-2:], kernel_size, stride, padding, dilation)
    images = _images(node, x, 2)
    made = node.new(images.sizes, x.dtype)
    node.launch(ops.MaxPoolingGrad, images, _images(node, gradient, 2), output_gradient_tensor=made, **window.fields)
    return node.reshape(made, x.sizes)


def _average_pool(count: int) -> Any:
    def convert(
        node: Conversion,
        x: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        """With a divisor of its own, a mean over all taps times the taps over the divisor."""
        window = _window(count, x.sizes[-count:], node.sizes[-count:], kernel_size, stride, padding)
        padding = per_dimension(padding, count)
        images = _images(node, x, count)
        if divisor_override is not None or (count_include_pad and any(padding)):
            return _summed_windows(node, images, window, padding, divisor_override)
        y = node.new(_pooled_sizes(images, node.sizes, count), x.dtype)
        node.launch(ops.AveragePooling1, images, output_tensor=y, include_padding=False, **window.fields)
        return node.reshape(y, node.sizes)

    return convert


def _summed_windows(node: Conversion, images: Value, window: _Window, padding: Sizes, divisor: int | None) -> Value:
    """Means in which padding counts as zeros, or with a divisor of their own. What hangs over the padding does not count:
    a window's elements are fewer there."""
    count = len(padding)
    output = node.sizes[-count:]
    y = node.new(_pooled_sizes(images, node.sizes, count), images.dtype)
    node.launch(ops.AveragePooling1, images, output_tensor=y, include_padding=True, **window.fields)
    factor = _shares(window, images.sizes[2:], output, padding, divisor)
    if (factor == 1).all():
        return node.reshape(y, node.sizes)
    if (factor == factor.flat[0]).all():
        return node.reshape(scaled(node, y, float(factor.flat[0])), node.sizes)
    share = node.upload(factor.astype(images.dtype))
    return node.reshape(node.elementwise(ops.ElementWiseMultiply, y, share), node.sizes)


def _shares(window: _Window, sizes: Sizes, output: Sizes, padding: Sizes, divisor: int | None) -> np.ndarray[Any, Any]:
    """The taps of a window over what PyTorch divides by, for each window."""
    taps = math.prod(window.size)
    counts = np.ones((), np.float64)
    for axis in range(len(sizes)):
        own = len(sizes) - len(padding)
        pad = padding[axis - own] if axis >= own else 0
        windows = output[axis - own] if axis >= own else 1
        starts = np.arange(windows) * window.strides[axis] - pad
        ends = np.minimum(starts + window.size[axis], sizes[axis] + pad)
        counts = counts[..., None] * (ends - starts)
    return taps / (counts if divisor is None else np.full(counts.shape, float(divisor)))


for _count in (1, 2, 3):
    converter(f"aten.avg_pool{_count}d.default")(_average_pool(_count))


@converter("aten.avg_pool2d_backward.default")
def avg_pool2d_backward(
    node: Conversion,
    gradient: Value,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    window = _window(2, x.sizes[-2:], gradient.sizes[-2:], kernel_size, stride, padding)
    given, images = _images(node, gradient, 2), _images(node, x, 2)
    whole = divisor_override is not None or (count_include_pad and any(padding))
    if whole:
        factor = _shares(window, x.sizes[-2:], gradient.sizes[-2:], per_dimension(padding, 2), divisor_override)
        given = node.elementwise(ops.ElementWiseMultiply, given, node.upload(factor.astype(x.dtype)))
    fields = {name: value for name, value in window.fields.items() if name != "dilations"}
    made = node.new(images.sizes, x.dtype)
    node.launch(ops.AveragePoolingGrad, given, output_gradient_tensor=made, include_padding=whole, **fields)
    return node.reshape(made, x.sizes)


# -- means of shares of an image


def _share_matrix(inputs: int, outputs: int) -> np.ndarray[Any, Any]:
    """A row an output with the weights of the inputs that it is the mean of."""
    matrix = np.zeros((outputs, inputs))
    for place in range(outputs):
        start, end = place * inputs // outputs, -(-(place + 1) * inputs // outputs)
        matrix[place, start:end] = 1 / (end - start)
    return matrix


def weighed(node: Conversion, x: Value, matrices: Sequence[np.ndarray[Any, Any]]) -> Value:
    """x with the last dimensions multiplied by a matrix each."""
    for place, matrix in enumerate(matrices):
        axis = x.rank - len(matrices) + place
        if matrix.shape[0] == matrix.shape[1] and (matrix == np.eye(len(matrix))).all():
            continue
        order = (*(at for at in range(x.rank) if at != axis), axis)
        turned = x.transpose(order)
        rows = node.reshape(turned, (math.prod(turned.sizes[:-1]), turned.sizes[-1]))
        made = multiplied(node, rows, node.upload(np.ascontiguousarray(matrix.T).astype(x.dtype)))
        made = node.reshape(made, (*turned.sizes[:-1], matrix.shape[0]))
        x = made.transpose(tuple(order.index(at) for at in range(x.rank)))
    return x


@converter("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default", "aten.adaptive_avg_pool1d.default")
def adaptive_average_pool(node: Conversion, x: Value, output_size: Sequence[int]) -> Value:
    """The mean of all, equal windows, or a matrix of weights a dimension."""
    count = len(output_size)
    inputs = x.sizes[-count:]
    if all(size == 1 for size in output_size):
        return reduced(node, x, ReduceFunction.AVERAGE, tuple(range(x.rank - count, x.rank)))
    if count > 1 and all(size % out == 0 for size, out in zip(inputs, output_size, strict=True)):
        kernel = tuple(size // out for size, out in zip(inputs, output_size, strict=True))
        pooled: Value = _average_pool(count)(node, x, kernel)
        return pooled
    matrices = [_share_matrix(size, out) for size, out in zip(inputs, output_size, strict=True)]
    return weighed(node, x, matrices)


@converter("aten._adaptive_avg_pool2d_backward.default")
def adaptive_average_pool_backward(node: Conversion, gradient: Value, x: Value) -> Value:
    pairs = zip(x.sizes[-2:], gradient.sizes[-2:], strict=True)
    matrices = [_share_matrix(size, out).T for size, out in pairs]
    if gradient.sizes[-2:] == (1, 1):
        share = scaled(node, gradient, 1 / math.prod(x.sizes[-2:]))
        return share.broadcast_to(x.sizes)
    return weighed(node, gradient, matrices)
