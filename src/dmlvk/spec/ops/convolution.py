"""Convolution."""

from __future__ import annotations

import math as _math
from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import ConvolutionDirection, ConvolutionMode, OperatorType
from dmlvk.spec.tensor import TensorDesc

__all__ = ["Convolution"]

_SPATIAL_ARRAYS = ("strides", "dilations", "start_padding", "end_padding", "output_padding")


def _forward_sizes(desc: Convolution, inputs: tuple[int, ...]) -> tuple[int, ...]:
    """Windows that fit in spatial sizes ``inputs``, a dimension; below 1 where not even one does."""
    windows = desc.tensor("filter_tensor").sizes[2:]
    return tuple(
        (size + start + end - ((window - 1) * dilation + 1)) // stride + 1
        for size, window, stride, dilation, start, end in zip(
            inputs, windows, desc.strides, desc.dilations, desc.start_padding, desc.end_padding, strict=True
        )
    )


def _backward_sizes(desc: Convolution, inputs: tuple[int, ...]) -> tuple[int, ...]:
    """The smallest sizes, at least 1, into which ``inputs`` windows fit, a dimension."""
    windows = desc.tensor("filter_tensor").sizes[2:]
    return tuple(
        max((size - 1) * stride + (window - 1) * dilation + 1 - start - end, 1)
        for size, window, stride, dilation, start, end in zip(
            inputs, windows, desc.strides, desc.dilations, desc.start_padding, desc.end_padding, strict=True
        )
    )


def _computed_sizes(desc: Convolution) -> tuple[int, ...]:
    """The output's spatial sizes without output padding, the smallest in direction BACKWARD."""
    infer = _forward_sizes if desc.direction == ConvolutionDirection.FORWARD else _backward_sizes
    return infer(desc, desc.tensor("input_tensor").sizes[2:])


def _output_channels(desc: Convolution) -> int:
    filters = desc.tensor("filter_tensor").sizes
    return filters[0] if desc.direction == ConvolutionDirection.FORWARD else filters[1] * desc.group_count


@_c.constraint("spatial_arrays", "must have one entry for each spatial dimension (the dimension count less 2)")
def _spatial_arrays(desc: Convolution) -> _s.Violation | None:
    count = desc.tensor("input_tensor").dimension_count - 2
    for name in _SPATIAL_ARRAYS:
        if len(getattr(desc, name)) != count:
            return _s.Violation(name, getattr(desc, name))
    return None


@_c.constraint("steps", "no entry may be 0")
def _steps(desc: Convolution) -> _s.Violation | None:
    for name in ("strides", "dilations"):
        if 0 in getattr(desc, name):
            return _s.Violation(name, getattr(desc, name))
    return None


def sum_flops(ends: TensorDesc, filters: TensorDesc) -> int:
    """The floating-point operations of a tensor's elements, each a sum over a filter's taps and channels."""
    return 2 * ends.element_count * _math.prod(filters.sizes[1:])


@_c.constraint("groups", "must be at least 1 and divide the input's channels, and the filter's too in direction FORWARD")
def _groups(desc: Convolution) -> _s.Violation | None:
    count = desc.group_count
    forward = desc.direction == ConvolutionDirection.FORWARD
    split = (desc.tensor("input_tensor").sizes[1], *((desc.tensor("filter_tensor").sizes[0],) if forward else ()))
    return None if count and not any(channels % count for channels in split) else _s.Violation("group_count", count)


@_c.constraint(
    "filter_channels",
    "must have the sizes {OutC, InC / GroupCount, ...} in direction FORWARD, {InC, OutC / GroupCount, ...} else",
)
def _filter_channels(desc: Convolution) -> _s.Violation | None:
    channels = desc.tensor("input_tensor").sizes[1]
    filters = desc.tensor("filter_tensor").sizes
    if desc.direction == ConvolutionDirection.FORWARD:
        good = filters[1] * desc.group_count == channels
    else:
        good = filters[0] == channels
    return None if good else _s.Violation("filter_tensor", filters)


@_c.constraint("bias_sizes", "must have the sizes {1, OutC, 1, ...}")
def bias_sizes(desc: Convolution) -> _s.Violation | None:
    if desc.bias_tensor is None:
        return None
    sizes = desc.bias_tensor.sizes
    wanted = (1, _output_channels(desc)) + (1,) * (len(sizes) - 2)
    return None if sizes == wanted else _s.Violation("bias_tensor", sizes, wanted)


@_c.constraint(
    "window_fits",
    "the dilated window must fit the padded input in direction FORWARD, so that every output size is at least 1",
)
def _window_fits(desc: Convolution) -> _s.Violation | None:
    sizes = _computed_sizes(desc)
    return None if all(size >= 1 for size in sizes) else _s.Violation("filter_tensor", sizes)


@_c.constraint(
    "output_sizes", "must have the input's N, the filter's channels and the spatial sizes that the direction implies"
)
def _output_sizes(desc: Convolution) -> _s.Violation | None:
    found = desc.tensor("output_tensor").sizes
    inferred = desc.inferred_output_sizes()[0]
    if desc.direction == ConvolutionDirection.FORWARD:
        good = found == inferred
    else:
        unpadded = tuple(size - padding for size, padding in zip(found[2:], desc.output_padding, strict=True))
        good = found[:2] == inferred[:2] and min(unpadded) > 0
        good = good and _forward_sizes(desc, unpadded) == desc.tensor("input_tensor").sizes[2:]
    return None if good else _s.Violation("output_tensor", found, inferred)


GEOMETRY = (_spatial_arrays, _steps, _groups, _filter_channels, _window_fits, _output_sizes)
"""The rules of a convolution's sizes and attributes, for any data types. Only the last one needs an output."""


class Convolution(
    _s.OperatorDesc,
    constraints=(_c.same_data_type(), _c.same_dimension_count(), *GEOMETRY, bias_sizes),
    accepts=(OperatorType.ELEMENT_WISE_CLIP,),
    traits=_s.Traits(alike=("output_tensor",)),
):
    """Convolution over 1 to 3 spatial dimensions; the tensors are {N, C, [D], [H], W}.

    Direction FORWARD, with the filter {OutC, InC / GroupCount, window}, at each output position o:
    y[n, k, o] = activation(bias[k] + sum over c of k's group and taps t of
    x[n, c, o * stride + t * dilation - start] * w[k, c, t]), x being 0 outside.

    Direction BACKWARD is its transpose, with the filter {InC, OutC / GroupCount, window}: each x[n, c, i] * w[c, k, t]
    is added to y[n, k, i * stride + t * dilation - start]. In mode CROSS_CORRELATION that is ONNX's ConvTranspose with
    the same filter. Mode CONVOLUTION reverses the taps of every spatial dimension, in both directions.

    Where the specification is silent:

    - Output sizes. FORWARD: floor((in + start + end - (window - 1) * dilation - 1) / stride) + 1 + output padding.
      BACKWARD: any size that, less its output padding, a FORWARD convolution of the same attributes takes to the input
      size, all of it computed; the smallest is the one inferred.
    - Output padding is what its description says, zeros after the end of each dimension: neither bias nor activation
      reaches them. (The output padding of ONNX's ConvTranspose, which is computed, is a larger output tensor here.)
    - Infinities and NaN. On a GPU, FLOAT32 under 3x3 windows of step 1 may be computed by Winograd's algorithm, in blocks of
      4x4 outputs: an infinity or NaN then reaches the whole block, where plain sums have it under their windows only.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5))
    filter_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5))
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (3, 5))
    mode: ConvolutionMode = _s.enumeration(ConvolutionMode, ConvolutionMode.CROSS_CORRELATION)
    direction: ConvolutionDirection = _s.enumeration(ConvolutionDirection, ConvolutionDirection.FORWARD)
    strides: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    output_padding: tuple[int, ...] = _s.uint_array()
    group_count: int = _s.uint(1)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        for rule in (_spatial_arrays, _steps, _window_fits):
            violation = rule.check(self)
            if violation is not None:
                raise self.broken(rule, violation)
        spatial = tuple(a + b for a, b in zip(_computed_sizes(self), self.output_padding, strict=True))
        return ((self.tensor("input_tensor").sizes[0], _output_channels(self), *spatial),)

    def cuts(self) -> Sequence[_s.Cut]:
        """By images, and by output channels where they have a group, or groups, of their own."""
        outputs = dict.fromkeys(("output_tensor", "addend_tensor"), 1)
        images = _s.Cut({"input_tensor": 0, **dict.fromkeys(outputs, 0)})
        forward = self.direction == ConvolutionDirection.FORWARD
        if self.group_count == 1:
            return [images, _s.Cut({"filter_tensor": 0 if forward else 1, "bias_tensor": 1, **outputs})]
        if self.group_count == self.tensor("filter_tensor").sizes[0] == self.tensor("output_tensor").sizes[1]:
            by_channel = {"input_tensor": 1, "filter_tensor": 0, "bias_tensor": 1, **outputs}
            return [images, _s.Cut(by_channel, lambda first, count: {"group_count": count})]
        return [images]

    def flops(self) -> int:
        """Each output is a sum over a filter's taps and channels; in direction BACKWARD each input goes to as many."""
        ends = self.tensor("output_tensor" if self.direction == ConvolutionDirection.FORWARD else "input_tensor")
        return sum_flops(ends, self.tensor("filter_tensor"))

    def prefers_channels_last(self) -> bool:
        """Cooperative matrices take the channels of one group."""
        return self.group_count == 1


@_c.constraint("addend", "must lie in memory as the output does, and output_padding must be 0")
def _addend(desc: ConvolutionAdd) -> _s.Violation | None:
    addend, output = desc.tensor("addend_tensor"), desc.tensor("output_tensor")
    steps = zip(output.sizes, addend.effective_strides, output.effective_strides, strict=True)
    if addend.sizes != output.sizes or any(size > 1 and own != wanted for size, own, wanted in steps):
        return _s.Violation("addend_tensor", (addend.sizes, addend.effective_strides))
    return _s.Violation("output_padding", desc.output_padding) if any(desc.output_padding) else None


class ConvolutionAdd(
    Convolution,
    internal=True,
    in_place=("addend_tensor",),
    constraints=(*Convolution.constraints, _addend),
    accepts=Convolution.accepts,
    traits=_s.Traits(alike=("addend_tensor", "output_tensor")),
):
    """A Convolution that adds another tensor before its activation: activation(sum + bias + addend). A row of our own, which
    a pass makes of the two operators.

    It rounds to FLOAT16 once, where the two do so twice.
    """

    addend_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5))
