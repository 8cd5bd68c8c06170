"""Conv and ConvTranspose, and the window arithmetic that they share with pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection
from dmlvk.spec.schema import FLOATS

CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
"""The attributes of a convolution."""


@dataclass(frozen=True)
class Window:
    """A window that slides over the spatial dimensions; each field has one entry a dimension.

    Attributes:
        kernel: The taps of the window.
        strides, dilations: Steps between windows and between taps.
        start, end: Padding.
        output: Windows.
    """

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    start: Sizes
    end: Sizes
    output: Sizes

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that DirectML's convolutions and poolings share."""
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "start_padding": self.start,
            "end_padding": self.end,
        }

    def turned_round(self) -> Window:
        """The window over the spatial dimensions in reverse order."""
        parts = (self.kernel, self.strides, self.dilations, self.start, self.end, self.output)
        return Window(*(part[::-1] for part in parts))


def spatial(node: Conversion, name: str, count: int, default: int) -> Sizes:
    """An attribute with one integer a spatial dimension."""
    values = tuple(node.attribute(name, [default] * count))
    if len(values) != count:
        raise node.invalid(f"{name} must have one entry for each of the {count} spatial dimensions", values)
    return values


def sliding_window(node: Conversion, sizes: Sizes, kernel: Sizes) -> Window:
    """The window that the node's attributes describe, over inputs of these spatial sizes.

    With ``ceil_mode`` the last window may hang over the end padding, but must start inside the input or the start
    padding, as onnxruntime has it for every opset; padding that no window reaches is then left out, and so are taps of a
    window that is larger than input and padding.
    """
    count = len(sizes)
    if len(kernel) != count:
        raise node.invalid(f"the window must have one entry for each of the {count} spatial dimensions", kernel)
    strides = spatial(node, "strides", count, 1)
    dilations = spatial(node, "dilations", count, 1)
    reach = tuple((taps - 1) * dilation + 1 for taps, dilation in zip(kernel, dilations, strict=True))
    start, end = _padding(node, node.attribute("pads", None), sizes, strides, reach)
    ceil = bool(node.attribute("ceil_mode", 0)) and node.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    output = []
    taps, reached = list(kernel), list(end)
    for i in range(count):
        padded = sizes[i] + start[i] + end[i]
        room = padded - reach[i]
        if room < 0 and ceil and padded > 0 and -room < strides[i]:
            taps[i] = (padded - 1) // dilations[i] + 1
            room = 0
        if room < 0:
            rule = f"the window, with dilations, must fit the spatial sizes {sizes} padded by {start} and {end}"
            raise node.invalid(rule, reach)
        windows = room // strides[i] + 1
        if ceil:
            windows = -(-room // strides[i]) + 1
            if (windows - 1) * strides[i] >= sizes[i] + start[i]:
                windows -= 1
            reached[i] = min(end[i], max(0, (windows - 1) * strides[i] + reach[i] - sizes[i] - start[i]))
        output.append(windows)
    return Window(tuple(taps), strides, dilations, start, tuple(reached), tuple(output))


def _padding(
    node: Conversion, given: Sequence[int] | None, sizes: Sizes, strides: Sizes, reach: Sizes
) -> tuple[Sizes, Sizes]:
    """The padding before and after each dimension; what is given counts where ``auto_pad`` does not say it."""
    count = len(sizes)
    auto = node.attribute("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = (0,) * 2 * count if given is None else tuple(given)
        if len(pads) != 2 * count or min(pads, default=0) < 0:
            raise node.invalid(f"pads must have two integers of at least 0 for each of the {count} spatial dimensions", pads)
        return pads[:count], pads[count:]
    if auto == "VALID":
        return (0,) * count, (0,) * count
    total = tuple(
        max((-(-size // stride) - 1) * stride + extent - size, 0)
        for size, stride, extent in zip(sizes, strides, reach, strict=True)
    )
    return split_padding(total, auto)


def split_padding(total: Sizes, auto: str) -> tuple[Sizes, Sizes]:
    """The padding of auto_pad SAME_UPPER, with the odd one at the end, or SAME_LOWER, with it at the start."""
    small, large = tuple(both // 2 for both in total), tuple(both - both // 2 for both in total)
    return (small, large) if auto == "SAME_UPPER" else (large, small)


@converts("Conv", 1, 11, 22, types=FLOATS)
def conv(node: Conversion) -> Value:
    return convolve(node, node[0], node[1])


def convolve(node: Conversion, x: Value, w: Value) -> Value:
    """The convolution that the node's attributes describe, with its third input, the bias."""
    _check_dimensions(node, x, w)
    window = sliding_window(node, x.sizes[2:], spatial_kernel(node, w))
    sizes, bias = (x.sizes[0], w.sizes[0], *window.output), _bias(node, node.get(2), w.sizes[0], x.rank)
    if 0 in x.sizes:  # windows of padding alone
        return _of_nothing(node, sizes, x.dtype, bias)
    return node.launch(
        ops.Convolution,
        x,
        w,
        bias,
        output_tensor=node.new(sizes, x.dtype),
        output_padding=(0,) * (x.rank - 2),
        group_count=node.attribute("group", 1),
        **window.fields,
    )


@converts("ConvTranspose", 1, 11, 22, types=FLOATS)
def conv_transpose(node: Conversion) -> Value:
    return convolve_transposed(node, node.attribute("pads", None), node.get(2))


def convolve_transposed(node: Conversion, pads: Sequence[int] | None, bias: Value | None) -> Value:
    """The transposed convolution that the node's attributes describe. ONNX's output padding adds computed positions at the
    end, which DirectML expresses as a larger output."""
    x, w = node[0], node[1]
    _check_dimensions(node, x, w)
    count, group = x.rank - 2, node.attribute("group", 1)
    strides = spatial(node, "strides", count, 1)
    dilations = spatial(node, "dilations", count, 1)
    added = spatial(node, "output_padding", count, 0)
    kernel = spatial_kernel(node, w)
    full = tuple((x.sizes[2 + i] - 1) * strides[i] + added[i] + (kernel[i] - 1) * dilations[i] + 1 for i in range(count))
    auto = node.attribute("auto_pad", "NOTSET")
    if "output_shape" in node.node.attributes:
        output = spatial(node, "output_shape", count, 0)
        start, end = split_padding(
            tuple(max(size - wanted, 0) for size, wanted in zip(full, output, strict=True)),
            "SAME_UPPER" if auto == "SAME_UPPER" else "SAME_LOWER",
        )
    elif auto in ("NOTSET", "VALID"):
        start, end = _padding(node, pads, x.sizes[2:], strides, kernel)
        output = tuple(size - before - after for size, before, after in zip(full, start, end, strict=True))
    else:
        output = tuple(size * stride for size, stride in zip(x.sizes[2:], strides, strict=True))
        start, end = split_padding(tuple(max(size - wanted, 0) for size, wanted in zip(full, output, strict=True)), auto)
    if min(output) < 1:
        raise node.invalid("every output size that the attributes give must be at least 1", output)
    channels = w.sizes[1] * group
    sizes, bias = (x.sizes[0], channels, *output), _bias(node, bias, channels, x.rank)
    if 0 in x.sizes:
        return _of_nothing(node, sizes, x.dtype, bias)
    return node.launch(
        ops.Convolution,
        x,
        w,
        bias,
        output_tensor=node.new(sizes, x.dtype),
        direction=ConvolutionDirection.BACKWARD,
        strides=strides,
        dilations=dilations,
        start_padding=start,
        end_padding=end,
        output_padding=(0,) * count,
        group_count=group,
    )


def _of_nothing(node: Conversion, sizes: Sizes, dtype: np.dtype[Any], bias: Value | None) -> Value:
    """The convolution of an input without elements: the bias, or zeros."""
    return node.fill(sizes, dtype.type(0)) if bias is None else node.copy(bias.broadcast_to(sizes))


def _check_dimensions(node: Conversion, x: Value, w: Value) -> None:
    if x.rank < 3 or w.rank != x.rank:
        rule = "input and filter must have the same number of dimensions, at least 3"
        raise node.invalid(rule, (x.sizes, w.sizes))


def channels_first(x: Value) -> Value:
    """Images with their channels last, as ONNX has them."""
    return x.transpose((0, x.rank - 1, *range(1, x.rank - 1)))


def channels_last(x: Value) -> Value:
    """ONNX's images with their channels last."""
    return x.transpose((0, *range(2, x.rank), 1))


def new_images(node: Conversion, sizes: Sizes, dtype: np.dtype[Any], last: bool) -> Value:
    """Images to be written by a launch, of these sizes; their channels may lie last."""
    if not last:
        return node.new(sizes, dtype)
    return channels_first(node.new((sizes[0], *sizes[2:], sizes[1]), dtype))


def spatial_kernel(node: Conversion, w: Value) -> Sizes:
    """The filter's spatial sizes, which kernel_shape repeats if it is there."""
    if tuple(node.attribute("kernel_shape", w.sizes[2:])) != w.sizes[2:]:
        given = tuple(node.attribute("kernel_shape", ()))
        raise node.invalid("kernel_shape must be the filter's spatial sizes", given, w.sizes[2:])
    return w.sizes[2:]


def _bias(node: Conversion, bias: Value | None, channels: int, rank: int) -> Value | None:
    if bias is None:
        return None
    if bias.sizes != (channels,):
        raise node.invalid("the bias must have one element for each output channel", bias.sizes, (channels,))
    return node.reshape(bias, (1, channels) + (1,) * (rank - 2))
