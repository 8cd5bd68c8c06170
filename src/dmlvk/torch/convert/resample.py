"""Images made larger or smaller."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, InterpolationMode
from dmlvk.spec.schema import FLOATS
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.convert.movement import taken
from dmlvk.torch.convert.pooling import weighed
from dmlvk.torch.registry import converter

_TYPES: Final = ops.Resample3.fields[0].data_types
_KEYS: Final = -0.75
"""The coefficient of PyTorch's cubic kernel."""


def _factors(count: int, given: Sequence[Any]) -> list[float | None]:
    """The factor of each dimension, None where the sizes say it: given as one list, or one by one."""
    if len(given) == 1 and (given[0] is None or isinstance(given[0], list | tuple)):
        given = given[0] or ()
    return list(given) or [None] * count


def _nearest_places(inputs: int, outputs: int, factor: float | None, *, exact: bool) -> np.ndarray[Any, Any]:
    """The input of each output, in float32 as PyTorch computes it."""
    scale = np.float32(1 / factor) if factor else np.float32(inputs) / np.float32(outputs)
    shift = np.float32(0.5 if exact else 0)
    places = np.floor((np.arange(outputs, dtype=np.float32) + shift) * scale).astype(np.int32)
    clamped: np.ndarray[Any, Any] = np.minimum(places, inputs - 1)
    return clamped


def _nearest(count: int, *, exact: bool) -> Callable[..., Value]:
    def convert(node: Conversion, x: Value, output_size: Sequence[int] | None, *scales: Any) -> Value:
        """Each element a whole number of times is one operator; others are taken by their places, a dimension each."""
        inputs, outputs = x.sizes[-count:], node.sizes[-count:]
        places = [_nearest_places(*item, exact=exact) for item in zip(inputs, outputs, _factors(count, scales), strict=True)]
        whole = _whole_times(places, inputs, outputs)
        if whole is not None and data_type_of(x.dtype) in _TYPES:
            return _resampled(node, x, whole, InterpolationMode.NEAREST_NEIGHBOR)
        for axis, own in enumerate(places, x.rank - count):
            if not np.array_equal(own, np.arange(x.sizes[axis])):
                x = taken(node, x, node.upload(own), axis)
        return x

    return convert


class _Positions(NamedTuple):
    """Where the outputs of a dimension lie: output o at (o - after) / scale - before, as Resample3 has it."""

    scale: float
    before: float
    after: float


def _linear_positions(inputs: int, outputs: int, factor: float | None, align_corners: bool) -> _Positions:
    if align_corners:
        return _Positions((outputs - 1) / (inputs - 1) if outputs > 1 and inputs > 1 else 1.0, 0.0, 0.0)
    return _Positions(factor or outputs / inputs, 0.5, -0.5)


def _resampled(
    node: Conversion, x: Value, positions: Sequence[_Positions], mode: InterpolationMode, *, back: bool = False
) -> Value:
    """The last dimensions by one operator, with all before them as one.

    Args:
        node: The node.
        x: The image, or with ``back`` the gradient of what is made of it.
        positions: Those of each of the dimensions.
        mode: Its interpolation.
        back: Whether the gradient of the image is wanted.
    """
    if node.sizes == x.sizes and all(own.scale == 1 for own in positions):
        return x
    count, others = len(positions), math.prod(x.sizes[: -len(positions)])
    all_positions = (_Positions(1.0, 0.0, 0.0), *positions)
    y = node.new((others, *node.sizes[-count:]), x.dtype)
    own: dict[str, Any] = {"output_gradient_tensor": y} if back else {"output_tensor": y, "antialiased": False}
    node.launch(
        ops.ResampleGrad1 if back else ops.Resample3,
        node.reshape(x, (others, *x.sizes[-count:])),
        interpolation_mode=mode,
        rounding_direction=AxisDirection.DECREASING,
        scales=tuple(float(item.scale) for item in all_positions),
        input_pixel_offsets=tuple(item.before for item in all_positions),
        output_pixel_offsets=tuple(item.after for item in all_positions),
        **own,
    )
    return node.reshape(y, node.sizes)


def _whole_times(
    places: Sequence[np.ndarray[Any, Any]], inputs: Sequence[int], outputs: Sequence[int]
) -> list[_Positions] | None:
    """The positions where each element stands a whole number of times, one after the other; else None."""
    times = [max(out // max(size, 1), 1) for size, out in zip(inputs, outputs, strict=True)]
    if all(np.array_equal(own, np.arange(len(own)) // each) for own, each in zip(places, times, strict=True)):
        return [_Positions(each, 0.0, 0.0) for each in times]
    return None


def _nearest_backward(count: int, *, exact: bool) -> Callable[..., Value]:
    def convert(
        node: Conversion,
        gradient: Value,
        output_size: Sequence[int],
        input_size: Sequence[int],
        *scales: Any,
    ) -> Value:
        """What each input has been copied to, added up."""
        inputs = input_size[2:]
        sizes = zip(inputs, output_size, _factors(count, scales), strict=True)
        places = [_nearest_places(*item, exact=exact) for item in sizes]
        whole = _whole_times(places, inputs, output_size)
        if whole is not None and data_type_of(gradient.dtype) in FLOATS:
            return _resampled(node, gradient, whole, InterpolationMode.NEAREST_NEIGHBOR, back=True)
        matrices = [np.zeros((size, len(own))) for size, own in zip(inputs, places, strict=True)]
        for matrix, own in zip(matrices, places, strict=True):
            matrix[own, np.arange(len(own))] = 1
        return weighed(node, gradient, matrices)

    return convert


def _linear_matrix(inputs: int, outputs: int, factor: float | None, align_corners: bool) -> np.ndarray[Any, Any]:
    """A row an output with the weights of the inputs between which it lies."""
    places = np.arange(outputs, dtype=np.float64)
    if align_corners:
        positions = places * ((inputs - 1) / (outputs - 1) if outputs > 1 else 0.0)
    else:
        scale = 1 / factor if factor else inputs / outputs
        positions = np.maximum((places + 0.5) * scale - 0.5, 0.0)
    before = np.minimum(np.floor(positions).astype(int), inputs - 1)
    behind, share = np.minimum(before + 1, inputs - 1), positions - before
    matrix = np.zeros((outputs, inputs))
    np.add.at(matrix, (np.arange(outputs), before), 1 - share)
    np.add.at(matrix, (np.arange(outputs), behind), share)
    return matrix


def _cubic_matrix(inputs: int, outputs: int, factor: float | None, align_corners: bool) -> np.ndarray[Any, Any]:
    """A row an output with the weights of the four inputs around it, by Keys' kernel; those outside are the edge's."""
    scale, before, after = _linear_positions(inputs, outputs, factor, align_corners)
    positions = (np.arange(outputs) - after) / scale - before if outputs > 1 or not align_corners else np.zeros(1)
    first = np.floor(positions).astype(int)
    matrix = np.zeros((outputs, inputs))
    for step in range(-1, 3):
        away = np.abs(positions - (first + step))
        near = ((_KEYS + 2) * away - (_KEYS + 3)) * away**2 + 1
        far = ((away - 5) * away + 8) * away * _KEYS - 4 * _KEYS
        np.add.at(matrix, (np.arange(outputs), np.clip(first + step, 0, inputs - 1)), np.where(away <= 1, near, far))
    return matrix


def _linear(count: int) -> Callable[..., Value]:
    def convert(node: Conversion, x: Value, output_size: Sequence[int] | None, align_corners: bool, *scales: Any) -> Value:
        if x.dtype.kind != "f":
            raise node.unsupported(f"interpolation of {x.dtype} is not supported, only of floating-point types")
        sizes = list(zip(x.sizes[-count:], node.sizes[-count:], _factors(count, scales), strict=True))
        if data_type_of(x.dtype) not in _TYPES:
            return weighed(node, x, [_linear_matrix(*item, align_corners) for item in sizes])
        return _resampled(node, x, [_linear_positions(*item, align_corners) for item in sizes], InterpolationMode.LINEAR)

    return convert


@converter("aten.upsample_bicubic2d.vec", "aten.upsample_bicubic2d.default")
def cubic(node: Conversion, x: Value, output_size: Sequence[int] | None, align_corners: bool, *scales: Any) -> Value:
    """A product with a matrix of weights a dimension."""
    if x.dtype.kind != "f":
        raise node.unsupported(f"interpolation of {x.dtype} is not supported, only of floating-point types")
    sizes = zip(x.sizes[-2:], node.sizes[-2:], _factors(2, scales), strict=True)
    return weighed(node, x, [_cubic_matrix(*item, align_corners) for item in sizes])


@converter("aten.upsample_bicubic2d_backward.default")
def cubic_backward(
    node: Conversion,
    gradient: Value,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: Any,
) -> Value:
    sizes = zip(input_size[2:], output_size, _factors(2, scales), strict=True)
    return weighed(node, gradient, [_cubic_matrix(*item, align_corners).T for item in sizes])


def _linear_backward(count: int) -> Callable[..., Value]:
    def convert(
        node: Conversion,
        gradient: Value,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        *scales: Any,
    ) -> Value:
        sizes = list(zip(input_size[2:], output_size, _factors(count, scales), strict=True))
        if data_type_of(gradient.dtype) not in FLOATS:
            return weighed(node, gradient, [_linear_matrix(*item, align_corners).T for item in sizes])
        positions = [_linear_positions(*item, align_corners) for item in sizes]
        return _resampled(node, gradient, positions, InterpolationMode.LINEAR, back=True)

    return convert


for _count, _name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    converter(f"aten.upsample_{_name}.vec", f"aten.upsample_{_name}.default")(_linear(_count))
    converter(f"aten.upsample_{_name}_backward.default")(_linear_backward(_count))
    for _name, _exact in ((f"upsample_nearest{_count}d", False), (f"_upsample_nearest_exact{_count}d", True)):
        converter(f"aten.{_name}.vec", f"aten.{_name}.default", moves=True)(_nearest(_count, exact=_exact))
        converter(f"aten.{_name}_backward.default")(_nearest_backward(_count, exact=_exact))
