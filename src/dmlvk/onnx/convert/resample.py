"""Resize and Upsample: ONNX's coordinate transformations as the scales and pixel offsets of Resample3.

What DirectML does not interpolate (cubic kernels, filters cut off at the border or widened by another scale than the one
between pixels) is a product with a matrix of weights a dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.matmul import multiply
from dmlvk.onnx.model import Array
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import IN_BLOCKS, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, InterpolationMode, TensorDataType
from dmlvk.spec.ops.resample import ResampleWeights
from dmlvk.spec.schema import FLOATS

_TYPES = ops.Resample3.fields[0].data_types
_NEAREST = InterpolationMode.NEAREST_NEIGHBOR
_EXACT = 2**24
"""Up to here float32 has every whole number."""
_STANDSTILL = 2.0**100
"""A scale at which all outputs lie at one position."""

_ROUNDINGS = {
    "round_prefer_floor": (AxisDirection.INCREASING, 0.5),
    "round_prefer_ceil": (AxisDirection.DECREASING, -0.5),
    "floor": (AxisDirection.DECREASING, 0.0),
    "ceil": (AxisDirection.INCREASING, 0.0),
}
"""nearest_mode -> rounding direction and what it adds to the input offset."""


class _Axis(NamedTuple):
    """The resampling of a dimension: output o lies at (o - after) / scale - before.

    Attributes:
        inputs, outputs: Its sizes.
        given: ONNX's scale.
        scale, before, after: DirectML's, and its input and output pixel offsets.
        inside: The outputs that lie on the input; the others take extrapolation_value. None if that does not count.
    """

    inputs: int
    outputs: int
    given: float
    scale: float
    before: float
    after: float
    inside: Array | None = None

    @property
    def is_identity(self) -> bool:
        """Whether each output is the input element of its number."""
        at_itself = self.inputs == 1 or (self.scale == 1 and self.before + self.after == 0)
        return self.inputs == self.outputs and at_itself


_BY_WEIGHTS = "interpolation by weights takes"


def _refuse_resize(node: NodeFacts) -> None:
    mode = node.attribute("mode", "nearest")
    if mode == "cubic" or (mode == "linear" and node.attribute("exclude_outside", 0)):
        node.takes(0, FLOATS, _BY_WEIGHTS)


@converts("Resize", 11, 13, 18, 19, types=_TYPES, host_inputs=(1, 2, 3), check=_refuse_resize)
def resize(node: Conversion) -> Value:
    x, mode = node[0], node.attribute("mode", "nearest")
    transformation = node.attribute("coordinate_transformation_mode", "half_pixel")
    axes = [node.axis(axis, x.rank) for axis in node.attribute("axes", range(x.rank))]
    scales, sizes = _scales_and_sizes(node, x, axes)
    starts, ends = _regions(node, x, axes) if transformation == "tf_crop_and_resize" else ((0.0,) * x.rank,) * 2
    found = [_axis(transformation, *of) for of in zip(x.sizes, sizes, scales, starts, ends, strict=True)]
    antialiased = bool(node.attribute("antialias", 0)) and mode != "nearest"
    cut_off = bool(node.attribute("exclude_outside", 0)) and mode != "nearest"
    other_scale = any(axis.scale != axis.given for axis in found if not axis.is_identity)
    if mode == "cubic" or cut_off or (antialiased and other_scale):
        return _extrapolated(node, _weighed(node, x, found, antialiased, cut_off), found)
    rounding, shift = AxisDirection.INCREASING, 0.0
    if mode == "nearest":
        rounding, shift = _ROUNDINGS[node.attribute("nearest_mode", "round_prefer_floor")]
    y = _resampled(node, x, found, _mode(node), rounding, shift, antialiased)
    return _extrapolated(node, y, found)


def _refuse_cubic(node: NodeFacts) -> None:
    if node.attribute("mode", "nearest") == "cubic":
        raise node.invalid("mode 'cubic' must be of version 11 or newer", node.node.version)


@converts("Resize", 10, types=_TYPES, host_inputs=(1,), check=_refuse_cubic)
def resize_10(node: Conversion) -> Value:
    """Asymmetric. ONNX does not say how coordinates round; as in ONNX Runtime, down, but up where a dimension shrinks."""
    scales = [float(scale) for scale in node.known(1)]
    shrinks = {scale < 1 for scale in scales if scale != 1}
    if _mode(node) == _NEAREST and len(shrinks) == 2:
        raise node.unsupported(
            "some dimensions grow and some shrink, which round in two directions, and that is not supported"
        )
    return _asymmetric(node, scales, AxisDirection.INCREASING if True in shrinks else AxisDirection.DECREASING)


@converts("Upsample", 7, types=_TYPES)
def upsample_7(node: Conversion) -> Value:
    return _asymmetric(node, node.attribute("scales", ()), AxisDirection.DECREASING)


@converts("Upsample", 9, types=_TYPES, host_inputs=(1,))
def upsample_9(node: Conversion) -> Value:
    return _asymmetric(node, [float(scale) for scale in node.known(1)], AxisDirection.DECREASING)


@converts(
    "Upsample",
    1,
    types=(TensorDataType.FLOAT32,),
    domain=IN_BLOCKS,
    declared=Declared(1, 1, ("scales", "mode", "coordinate_transformation_mode")),
)
def upsample_of_blocks(node: Conversion) -> Value:
    """ONNX Runtime's, by whole numbers; to the nearest without half pixels."""
    x, scales = node[0], node.attribute("scales", ())
    if _mode(node) == _NEAREST:
        return _asymmetric(node, scales, AxisDirection.DECREASING)
    if len(scales) != x.rank:
        raise node.invalid(f"there must be a scale for each dimension of {x.sizes}", list(scales))
    transformation = node.attribute("coordinate_transformation_mode", "asymmetric")
    found = [_axis(transformation, size, size * scale, scale, 0.0, 1.0) for size, scale in zip(x.sizes, scales, strict=True)]
    return _resampled(node, x, found, InterpolationMode.LINEAR, AxisDirection.INCREASING, 0.0, False)


def _asymmetric(node: Conversion, scales: Sequence[float], rounding: AxisDirection) -> Value:
    x = node[0]
    if len(scales) != x.rank:
        raise node.invalid(f"there must be a scale for each dimension of {x.sizes}", list(scales))
    sizes = map(_scaled, x.sizes, scales)
    found = [_Axis(*of, of[2], 0.0, 0.0) for of in zip(x.sizes, sizes, scales, strict=True)]
    return _resampled(node, x, found, _mode(node), rounding, 0.0, False)


def _mode(node: Conversion) -> InterpolationMode:
    return InterpolationMode.LINEAR if node.attribute("mode", "nearest") == "linear" else _NEAREST


def _scaled(size: int, scale: float) -> int:
    """The size of a scaled dimension, in float32 as ONNX's shape inference has it."""
    whole = int(scale)
    if whole == scale and size * whole <= _EXACT:
        return size * whole
    return math.floor(np.float32(size) * np.float32(scale))


def _scales_and_sizes(node: Conversion, x: Value, axes: Sequence[int]) -> tuple[list[float], list[int]]:
    """Each dimension's scale and output size."""
    given, wanted = (None if found is None or found.size == 0 else found for found in (node.host(2), node.host(3)))
    if (given is None) == (wanted is None):
        found = "neither" if given is None else "both"
        raise node.invalid("one of scales and sizes must be given", found)
    chosen = [float(scale) for scale in given] if given is not None else []
    targets = wanted.tolist() if wanted is not None else []
    if len(chosen or targets) != len(axes):
        raise node.invalid(f"there must be a scale or a size for each of the axes {list(axes)}", chosen or targets)
    scales, sizes = [1.0] * x.rank, list(x.sizes)
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if targets:
        chosen = [size / x.sizes[axis] if x.sizes[axis] else 1.0 for axis, size in zip(axes, targets, strict=True)]
        if policy != "stretch":
            chosen = [min(chosen) if policy == "not_larger" else max(chosen)] * len(axes)
            targets = [math.floor(x.sizes[axis] * scale + 0.5) for axis, scale in zip(axes, chosen, strict=True)]
    else:
        targets = [_scaled(x.sizes[axis], scale) for axis, scale in zip(axes, chosen, strict=True)]
    for axis, scale, size in zip(axes, chosen, targets, strict=True):
        if scale <= 0:
            raise node.invalid("scales must be above 0", chosen)
        scales[axis], sizes[axis] = scale, size
    return scales, sizes


def _regions(node: Conversion, x: Value, axes: Sequence[int]) -> tuple[list[float], list[float]]:
    """The start and the end of each dimension's region, as a share of the dimension; roi is [starts..., ends...]."""
    roi = node.host(1)
    if roi is None or roi.size != 2 * len(axes):
        raise node.invalid(
            "roi must have two numbers for each axis with tf_crop_and_resize",
            None if roi is None else roi.size,
            2 * len(axes),
        )
    starts, ends = [0.0] * x.rank, [1.0] * x.rank
    for i, axis in enumerate(axes):
        starts[axis], ends[axis] = float(roi[i]), float(roi[i + len(axes)])
    return starts, ends


def _axis(transformation: str, inputs: int, outputs: int, given: float, start: float, end: float) -> _Axis:
    scale, before, after = given, 0.0, 0.0
    if transformation == "half_pixel" or (transformation == "pytorch_half_pixel" and outputs > 1):
        before, after = 0.5, -0.5
    elif transformation == "pytorch_half_pixel":
        scale = 1.0
    elif transformation == "half_pixel_symmetric":
        # The output's middle lies at the input's, though the output's size was rounded.
        before, after = 0.5 - inputs / 2 * (1 - outputs / (given * inputs)) if inputs else 0.5, -0.5
    elif transformation == "tf_half_pixel_for_nn":
        after = -0.5
    elif transformation == "align_corners":
        # By the size that was asked for, as ONNX's reference has it: it need not be whole.
        scale = (given * inputs - 1) / (inputs - 1) if inputs > 1 and outputs > 1 else 1.0
    elif transformation == "tf_crop_and_resize":
        return _cropped(inputs, outputs, given, start * (inputs - 1), end * (inputs - 1))
    return _Axis(inputs, outputs, given, scale, before, after)


def _cropped(inputs: int, outputs: int, given: float, start: float, end: float) -> _Axis:
    """Outputs from one position of the input to another; a single one between them."""
    step = (end - start) / (outputs - 1) if outputs > 1 else 0.0
    first = start if outputs > 1 else (start + end) / 2
    positions = first + step * np.arange(outputs)
    inside = (positions >= 0) & (positions <= inputs - 1)
    return _Axis(inputs, outputs, given, 1 / step if step else _STANDSTILL, -first, 0.0, inside)


def _resampled(
    node: Conversion,
    x: Value,
    axes: Sequence[_Axis],
    mode: InterpolationMode,
    rounding: AxisDirection,
    shift: float,
    antialiased: bool,
) -> Value:
    """The launch, over at most four dimensions: neighbours that stay as they are count as one."""
    sizes = tuple(axis.outputs for axis in axes)
    merged: list[_Axis] = []
    for axis in axes:
        if merged and merged[-1].is_identity and axis.is_identity:
            size = merged[-1].inputs * axis.inputs
            merged[-1] = _Axis(size, size, 1.0, 1.0, 0.0, 0.0)
        else:
            merged.append(axis)
    if all(axis.is_identity for axis in axes):
        return x
    y = node.launch(
        ops.Resample3,
        node.reshape(x, tuple(axis.inputs for axis in merged)),
        output_tensor=node.new(tuple(axis.outputs for axis in merged), x.dtype),
        interpolation_mode=mode,
        rounding_direction=rounding,
        scales=tuple(axis.scale for axis in merged),
        input_pixel_offsets=tuple(axis.before + shift for axis in merged),
        output_pixel_offsets=tuple(axis.after for axis in merged),
        antialiased=antialiased,
    )
    return node.reshape(y, sizes)


def _weighed(node: Conversion, x: Value, axes: Sequence[_Axis], antialiased: bool, cut_off: bool) -> Value:
    """One product a dimension, those that shrink most first."""
    node.takes(0, FLOATS, _BY_WEIGHTS)  # of antialiased ones, sizes decide whether they come here
    changed = [axis for axis in range(x.rank) if not axes[axis].is_identity]
    for number in sorted(changed, key=lambda axis: axes[axis].outputs / max(axes[axis].inputs, 1)):
        axis = axes[number]
        weights = _weights(node, axis, x.dtype, antialiased, cut_off)
        if number == x.rank - 1:
            x = multiply(node, x, weights.transpose((1, 0)))
        else:
            rows = node.reshape(x, (math.prod(x.sizes[:number]), axis.inputs, math.prod(x.sizes[number + 1 :])))
            sizes = (*x.sizes[:number], axis.outputs, *x.sizes[number + 1 :])
            x = node.reshape(multiply(node, weights, rows), sizes)
    return x


def _weights(node: Conversion, axis: _Axis, dtype: np.dtype[Any], antialiased: bool, cut_off: bool) -> Value:
    """What each output takes of each input: (outputs, inputs). Elements outside are the edge's, or count for nothing; the
    weights of a filter that is cut off or widened are scaled to a sum of 1."""
    return node.launch(
        ResampleWeights,
        output_tensor=node.new((axis.outputs, axis.inputs), dtype),
        scale=axis.scale,
        input_pixel_offset=axis.before,
        output_pixel_offset=axis.after,
        filter_scale=min(axis.given, 1.0) if antialiased else 1.0,
        cubic=node.attribute("mode", "nearest") == "cubic",
        coefficient=node.attribute("cubic_coeff_a", -0.75),
        inside_only=cut_off,
        normalized=cut_off or antialiased,
    )


def _extrapolated(node: Conversion, y: Value, axes: Sequence[_Axis]) -> Value:
    """The result with extrapolation_value where an output lies outside of the input along any dimension."""
    inside = np.ones((1,) * y.rank, np.bool_)
    for number, axis in enumerate(axes):
        if axis.inside is not None and not axis.inside.all():
            inside = inside & axis.inside.reshape([-1 if number == own else 1 for own in range(y.rank)])
    if inside.all():
        return y
    value = node.upload(np.array(node.attribute("extrapolation_value", 0.0)).astype(y.dtype))
    return node.elementwise(ops.ElementWiseIf, node.upload(inside), y, value, dtype=y.dtype)
