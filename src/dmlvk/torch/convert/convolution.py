"""Convolutions and their gradients, which are convolutions, too."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlvk.engine.values import Value
from dmlvk.graph.views import Sizes
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection, ReduceFunction
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.convert.reductions import reduced
from dmlvk.torch.registry import converter


def per_dimension(values: Sequence[int], count: int) -> Sizes:
    """One number a spatial dimension; one alone counts for all."""
    return tuple(values) * count if len(values) == 1 else tuple(values)


def _convolved(
    node: Conversion,
    x: Value,
    weight: Value,
    bias: Value | None,
    sizes: Sizes,
    *,
    stride: Sizes,
    dilation: Sizes,
    start: Sizes,
    end: Sizes,
    groups: int,
    direction: ConvolutionDirection = ConvolutionDirection.FORWARD,
) -> Value:
    y = node.new(sizes, x.dtype)
    if bias is not None:
        bias = node.reshape(bias, (1, sizes[1]) + (1,) * (x.rank - 2))
    if 0 in x.sizes or 0 in weight.sizes:  # windows of padding alone
        return node.fill(sizes, x.dtype.type(0)) if bias is None else node.copy(bias.broadcast_to(sizes))
    return node.launch(
        ops.Convolution,
        x,
        weight,
        bias,
        output_tensor=y,
        direction=direction,
        strides=stride,
        dilations=dilation,
        start_padding=start,
        end_padding=end,
        output_padding=(0,) * (x.rank - 2),
        group_count=groups,
    )


@converter("aten.convolution.default")
def convolution(
    node: Conversion,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    if x.dtype.kind != "f":
        raise node.unsupported(f"a convolution of {x.dtype} is not supported, only of floating-point types")
    count = x.rank - 2
    stride, padding, dilation = (per_dimension(item, count) for item in (stride, padding, dilation))
    direction = ConvolutionDirection.BACKWARD if transposed else ConvolutionDirection.FORWARD
    return _convolved(
        node,
        x,
        weight,
        bias,
        node.sizes,
        stride=stride,
        dilation=dilation,
        start=padding,
        end=padding,
        groups=groups,
        direction=direction,
    )


@converter("aten.convolution_backward.default")
def convolution_backward(
    node: Conversion,
    gradient: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """The gradients of input, filter and bias, as far as the mask asks for them."""
    count = x.rank - 2
    stride, padding, dilation = (per_dimension(item, count) for item in (stride, padding, dilation))
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        of_input = _convolved(
            node,
            gradient,
            weight,
            None,
            x.sizes,
            stride=stride,
            dilation=dilation,
            start=padding,
            end=padding,
            groups=groups,
            direction=ConvolutionDirection.FORWARD if transposed else ConvolutionDirection.BACKWARD,
        )
    if output_mask[1]:
        images, filters = (gradient, x) if transposed else (x, gradient)
        of_weight = _filter_gradient(node, images, filters, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        axes = (0, *range(2, gradient.rank))
        of_bias = node.reshape(reduced(node, gradient, ReduceFunction.SUM, axes), (gradient.sizes[1],))
    return of_input, of_weight, of_bias


def _filter_gradient(
    node: Conversion,
    x: Value,
    gradient: Value,
    weight: Value,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Value:
    """The convolution of the images with the gradient of what was made of them: channels count as images and images as
    channels, strides as dilations and the reverse."""
    if 0 in x.sizes or 0 in gradient.sizes:
        return node.fill(weight.sizes, weight.dtype.type(0))
    ends = []
    for axis, taps in enumerate(weight.sizes[2:], 2):
        at = axis - 2
        reach = (taps - 1) * dilation[at] + (gradient.sizes[axis] - 1) * stride[at] + 1
        missing = reach - x.sizes[axis] - padding[at]
        if missing < 0:  # elements that no window has reached
            x = x.shorten(axis, x.sizes[axis] + missing)
        ends.append(max(missing, 0))
    batch, channels, inner = x.sizes[0], x.sizes[1] // groups, x.sizes[2:]
    rest = tuple(range(2, x.rank))
    if groups == 1:
        images = x.transpose((1, 0, *rest))
    else:
        split = node.reshape(x, (batch, groups, channels, *inner))
        turned = split.transpose((2, 1, 0, *range(3, split.rank)))
        images = node.reshape(turned, (channels, groups * batch, *inner))
    filters = gradient.transpose((1, 0, *rest))
    sizes = (channels, weight.sizes[0], *weight.sizes[2:])
    made = _convolved(
        node,
        images,
        filters,
        None,
        sizes,
        stride=dilation,
        dilation=stride,
        start=padding,
        end=tuple(ends),
        groups=groups,
    )
    return made.transpose((1, 0, *rest))


@converter("aten.col2im.default")
def col2im(
    node: Conversion,
    x: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Blocks put back where they came from, and added up where they overlap."""
    batch = x if x.rank == 3 else node.reshape(x, (1, *x.sizes))
    sizes = (batch.sizes[0], batch.sizes[1] // math.prod(kernel_size), *output_size)
    y = node.launch(
        ops.Fold,
        batch,
        output_tensor=node.new(sizes, x.dtype),
        window_sizes=tuple(kernel_size),
        strides=tuple(stride),
        dilations=tuple(dilation),
        start_padding=tuple(padding),
        end_padding=tuple(padding),
    )
    return node.reshape(y, node.sizes)


@converter("aten.im2col.default")
def im2col(
    node: Conversion,
    x: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Every sliding block as a column."""
    batch = x if x.rank == 4 else node.reshape(x, (1, *x.sizes))
    sizes = node.sizes if x.rank == 4 else (1, *node.sizes)
    y = node.launch(
        ops.Unfold,
        batch,
        output_tensor=node.new(sizes, x.dtype),
        window_sizes=tuple(kernel_size),
        strides=tuple(stride),
        dilations=tuple(dilation),
        start_padding=tuple(padding),
        end_padding=tuple(padding),
    )
    return node.reshape(y, node.sizes)
