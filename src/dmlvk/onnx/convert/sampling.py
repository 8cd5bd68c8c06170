"""Images read at computed positions: grids, their making, and what samples under a convolution's window.

DirectML has no operator for it. Positions become the numbers of the elements around them, and weights, by elementwise
operators over the positions alone, which all channels share; one gather then reads all those elements, and a product and
a sum weigh them. With several elements an output (4 of an image, 8 of a volume, 16 or 64 where it is cubic) that moves
more than 5 times the bytes of a kernel that would keep them in registers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.matmul import multiply
from dmlvk.onnx.model import Array, data_type_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import PaddingMode, ReduceFunction, RoundingMode, TensorDataType
from dmlvk.spec.schema import FLOATS, NUMERIC, OperatorDesc, ScaleBias

_BOOL, _FLOAT, _INT = np.dtype(np.bool_), np.dtype(np.float32), np.dtype(np.int32)
_EXACT = 2**24
"""Positions are float32: further elements have no number of their own."""

_A = -0.75
"""The parameter of the cubic kernel (Keys), as PyTorch and ONNX have it."""

_OFFSETS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
_WEIGHTS = {
    "linear": ((-1.0, 1.0), (1.0, 0.0)),
    "cubic": ((_A, _A + 2, -_A - 2, -_A), (-2 * _A, -_A - 3, 2 * _A + 3, _A), (_A, 0.0, -_A, 0.0), (0.0, 1.0, 0.0, 0.0)),
}
"""Each element's weight as a polynomial of how far the position is past an element, the highest power first."""

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""The modes' names in version 16, with those since version 20."""


class Taps(NamedTuple):
    """The elements that are read along one dimension.

    Attributes:
        places: Element numbers (batch, taps, positions), all inside.
        weights: Their weights, in float32; None if all are 1.
        inside: Whether they stand for an element; None where all do.
    """

    places: Value
    weights: Value | None
    inside: Value | None


def _refuse_grid_sample(node: NodeFacts) -> None:
    mode = node.attribute("mode", "linear")
    if mode != "nearest":
        node.takes(0, FLOATS, f"mode {mode!r} takes")


@converts("GridSample", 16, 20, 22, types=NUMERIC, check=_refuse_grid_sample)
def grid_sample(node: Conversion) -> Value:
    """The grid has positions from -1 to 1, the last dimension's first."""
    x, grid = node[0], node[1]
    mode = node.attribute("mode", "linear" if node.node.version >= 20 else "bilinear")
    mode, padding = _MODES.get(mode, mode), node.attribute("padding_mode", "zeros")
    image, rank = x.sizes[2:], x.rank - 2
    if rank < 1 or grid.rank != x.rank or grid.sizes[0] != x.sizes[0] or grid.sizes[-1] != rank:
        rule = f"for an input of sizes {x.sizes} the grid must have the sizes (batch, the output's, {rank})"
        raise node.invalid(rule, grid.sizes)
    sizes = (*x.sizes[:2], *grid.sizes[1:-1])
    if 0 in sizes:
        return node.new(sizes, x.dtype)
    if 0 in image:
        raise node.invalid("the input must have elements to sample", x.sizes)
    aligned = bool(node.attribute("align_corners", 0))
    grid = node.elementwise(ops.ElementWiseIdentity, cast_to(node, grid, _FLOAT), scale_bias=ScaleBias(1, 1))
    grid = node.reshape(grid, (x.sizes[0], math.prod(grid.sizes[1:-1]), rank))
    taps = []
    for numbers, size in zip(split(node, grid, 2)[::-1], image, strict=True):
        scale = ScaleBias((size - 1) / 2, 0) if aligned else ScaleBias(size / 2, -0.5)
        positions = node.elementwise(ops.ElementWiseIdentity, numbers, scale_bias=scale)
        taps.append(taps_along(node, node.reshape(positions, grid.sizes[:2]), size, mode, padding, aligned))
    return node.reshape(sample(node, x, taps), sizes)


@converts("AffineGrid", 20, types=FLOATS, host_inputs=(1,))
def affine_grid(node: Conversion) -> Value:
    """Each point of the output's grid, from -1 to 1 and with a 1 after it, through each image's matrix: the points are a
    constant, the products one launch."""
    theta, size = node[0], tuple(int(number) for number in node.known(1))
    image, rank = size[2:], len(size) - 2
    if rank not in (2, 3) or theta.sizes != (size[0], rank, rank + 1):
        rule = f"theta must have a matrix for each image of the size {size}, which must have 2 or 3 spatial dimensions"
        raise node.invalid(rule, theta.sizes, (size[0], rank, rank + 1))
    ends = [1 if node.attribute("align_corners", 0) else 1 - 1 / max(length, 1) for length in image]
    axes = [np.linspace(-end, end, length) for end, length in zip(ends, image, strict=True)]
    points = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(image)], axis=-1)
    points = points.reshape(math.prod(image), rank + 1).astype(theta.dtype)
    return node.reshape(multiply(node, node.upload(points), theta.transpose((0, 2, 1))), (size[0], *image, rank))


@converts("DeformConv", 19, 22, types=FLOATS)
def deformable_convolution(node: Conversion) -> Value:
    """A convolution whose every window element lies at an offset of its own: the elements are sampled into columns, which
    the filters multiply."""
    x, filters, offsets, bias, mask = node[0], node[1], node[2], node.get(3), node.get(4)
    if x.rank != 4:
        raise node.unsupported(
            f"an input of {x.rank - 2} spatial dimensions is not supported; ONNX defines the operator for 2"
        )
    groups, shared = node.attribute("group", 1), node.attribute("offset_group", 1)
    batch, channels, *image = x.sizes
    window = tuple(node.attribute("kernel_shape", filters.sizes[2:]))
    outputs, count = offsets.sizes[2:], math.prod(window)
    fits = filters.sizes[1:] == (channels // groups, *window) and filters.sizes[0] % groups == 0 == channels % shared
    if not fits or offsets.sizes != (batch, shared * count * 2, *outputs) or _window_outputs(node, image, window) != outputs:
        rule = "input, filters and offsets must fit each other under kernel_shape, group and offset_group"
        raise node.invalid(rule, (x.sizes, filters.sizes, offsets.sizes))
    if mask is not None and mask.sizes != (batch, shared * count, *outputs):
        rule = f"the mask must have an element for each pair of offsets of {offsets.sizes}"
        raise node.invalid(rule, mask.sizes, (batch, shared * count, *outputs))
    points, places = math.prod(outputs), (batch * shared, count * math.prod(outputs))
    offsets = cast_to(node, node.reshape(offsets, (batch * shared, count, 2, points)), _FLOAT)
    taps = []
    for axis, moved in enumerate(split(node, offsets, 2)):
        still = node.upload(_window_positions(node, axis, window, outputs))
        positions = node.elementwise(ops.ElementWiseAdd, node.reshape(moved, (batch * shared, count, points)), still)
        taps.append(taps_along(node, node.reshape(positions, places), image[axis], "linear", "zeros", True))
    columns = sample(node, node.reshape(x, (batch * shared, channels // shared, *image)), taps)
    if mask is not None:
        columns = node.elementwise(ops.ElementWiseMultiply, columns, node.reshape(mask, (batch * shared, 1, places[1])))
    columns = node.reshape(columns, (batch, groups, channels // groups * count, points))
    filters = node.reshape(filters, (1, groups, filters.sizes[0] // groups, channels // groups * count))
    filters = filters.broadcast_to((batch, *filters.sizes[1:]))
    y = node.new((*filters.sizes[:3], points), x.dtype)
    if bias is not None:
        bias = node.reshape(bias, (1, *y.sizes[1:3], 1)).broadcast_to(y.sizes)
    y = node.launch(ops.Gemm, filters, columns, bias, output_tensor=y)
    return node.reshape(y, (batch, groups * y.sizes[2], *outputs))


def _window_outputs(node: Conversion, image: Sequence[int], window: Sequence[int]) -> tuple[int, ...]:
    """The number of times that the window fits."""
    pads, strides = node.attribute("pads", (0,) * 4), node.attribute("strides", (1, 1))
    dilations = node.attribute("dilations", (1, 1))
    return tuple((image[i] + pads[i] + pads[i + 2] - (window[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(2))


def _window_positions(node: Conversion, axis: int, window: Sequence[int], outputs: Sequence[int]) -> Array:
    """The place of each element of the window for each output along an axis, without its offset: (elements, outputs)."""
    first = np.indices(outputs)[axis] * node.attribute("strides", (1, 1))[axis] - node.attribute("pads", (0,) * 4)[axis]
    within = np.indices(window)[axis] * node.attribute("dilations", (1, 1))[axis]
    positions: Array = (within.reshape(-1, 1) + first.reshape(1, -1)).astype(np.float32)
    return positions


def split(node: Conversion, x: Value, axis: int) -> tuple[Value, ...]:
    """The slices along an axis, each of size 1, by one launch."""
    if x.sizes[axis] == 1:
        return (x,)
    pieces = tuple(node.new(x.shorten(axis, 1).sizes, x.dtype) for _ in range(x.sizes[axis]))
    node.launch(ops.Split, x, output_tensors=pieces, axis=axis)
    return pieces


def sample(node: Conversion, x: Value, taps: Sequence[Taps]) -> Value:
    """The weighted sums of the elements (batch, channel, *image) at every combination of the dimensions' taps:
    (batch, channel, positions). What is not inside counts as 0, and is read from an element of 0 behind the image, so
    that an infinity that happens to stand where it is cut off to does no harm."""
    batch, channels, *image = x.sizes
    size = math.prod(image)
    dtype = x.dtype
    places, weights, inside = _combined(node, image, taps)
    if weights is not None:
        x = cast_to(node, x, _FLOAT)
    x = node.reshape(x, (batch, channels, size))
    if inside is not None:
        places = node.elementwise(ops.ElementWiseIf, inside, places, node.upload(np.array(size, _INT)), dtype=_INT)
        x = node.launch(
            ops.Padding1,
            x,
            output_tensor=node.new((batch, channels, size + 1), x.dtype),
            padding_mode=PaddingMode.CONSTANT,
            padding_value_data_type=data_type_of(x.dtype),
            padding_value=0,
            start_padding=(0, 0, 0),
            end_padding=(0, 0, 1),
        )
    _, count, positions = places.sizes
    places = node.reshape(places, (batch, 1, count * positions)).broadcast_to((batch, channels, count * positions))
    read = node.launch(ops.GatherElements, x, places, output_tensor=node.new(places.sizes, x.dtype), axis=2)
    if weights is None:
        return read
    weights = node.reshape(weights, (batch, 1, count * positions))
    read = node.reshape(node.elementwise(ops.ElementWiseMultiply, read, weights), (batch, channels, count, positions))
    total = node.new((batch, channels, 1, positions), x.dtype)
    node.launch(ops.Reduce, read, output_tensor=total, function=ReduceFunction.SUM, axes=(2,))
    return cast_to(node, node.reshape(total, (batch, channels, positions)), dtype)


def _combined(node: Conversion, image: Sequence[int], taps: Sequence[Taps]) -> tuple[Value, Value | None, Value | None]:
    """Of all combinations of taps the element numbers in the image, the weights, and which are inside: (batch, taps,
    positions)."""
    if max(image) > _EXACT or math.prod(image) >= np.iinfo(_INT).max:
        raise node.unsupported(f"an image of sizes {tuple(image)} has more elements than float32 and int32 can number")
    count = len(image)

    def spread(axis: int, value: Value) -> Value:
        """The axis' taps as one of ``count`` dimensions between the batch and the positions."""
        batch, own, positions = value.sizes
        return node.reshape(value, (batch, *(own if i == axis else 1 for i in range(count)), positions))

    def joined(row: type[OperatorDesc], values: Sequence[Value]) -> Value:
        full = functools.reduce(lambda a, b: node.elementwise(row, a, b), values)
        return node.reshape(full, (full.sizes[0], math.prod(full.sizes[1:-1]), full.sizes[-1]))

    steps = [math.prod(image[axis + 1 :]) for axis in range(count)]
    places = []
    for axis, (tap, step) in enumerate(zip(taps, steps, strict=True)):
        place = cast_to(node, tap.places, _INT)
        if step != 1:
            place = node.elementwise(ops.ElementWiseMultiply, place, node.upload(np.array(step, _INT)))
        places.append(spread(axis, place))
    weights = [spread(axis, tap.weights) for axis, tap in enumerate(taps) if tap.weights is not None]
    inside = [spread(axis, tap.inside) for axis, tap in enumerate(taps) if tap.inside is not None]
    return (
        joined(ops.ElementWiseAdd, places),
        joined(ops.ElementWiseMultiply, weights) if weights else None,
        joined(ops.ElementWiseLogicalAnd, inside) if inside else None,
    )


def taps_along(node: Conversion, positions: Value, size: int, mode: str, padding: str, aligned: bool) -> Taps:
    """What is read for positions (batch, positions) along a dimension of ``size`` elements. Where they are not ``aligned``,
    an image ends half an element before its first and after its last element: there it is reflected."""
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if mode == "nearest":
        positions = node.elementwise(ops.ElementWiseRound, positions, rounding_mode=RoundingMode.HALVES_TO_NEAREST_EVEN)
    if padding == "border":
        positions = _inside_border(node, positions, size, low, high, mode)
    elif padding == "reflection":
        positions = _reflected(node, positions, low, high)
    positions = node.reshape(positions, (positions.sizes[0], 1, positions.sizes[1]))
    if mode == "nearest":
        places, weights = positions, None
    else:
        floor = node.elementwise(ops.ElementWiseFloor, positions)
        weights = _polynomials(node, node.elementwise(ops.ElementWiseSubtract, positions, floor), _WEIGHTS[mode])
        places = node.elementwise(ops.ElementWiseAdd, floor, _column(node, _OFFSETS[mode]))
        if padding == "reflection":
            places = _reflected(node, places, low, high)
    within = _clipped(node, places, 0.0, size - 1.0)
    inside = node.elementwise(ops.ElementWiseLogicalEquals, within, places, dtype=_BOOL) if padding == "zeros" else None
    return Taps(within, weights, inside)


def _inside_border(node: Conversion, positions: Value, size: int, low: float, high: float, mode: str) -> Value:
    """Positions outside of the image at its first and last element. Between an image's end and that element, only a cubic
    kernel sees a difference: it reads further ones."""
    nearest = _clipped(node, positions, 0.0, size - 1.0)
    if mode != "cubic":
        return nearest
    same = node.elementwise(ops.ElementWiseLogicalEquals, _clipped(node, positions, low, high), positions, dtype=_BOOL)
    return node.elementwise(ops.ElementWiseIf, same, positions, nearest, dtype=_FLOAT)


def _reflected(node: Conversion, positions: Value, low: float, high: float) -> Value:
    """Positions reflected at both ends until they are between them: a triangle wave, as |x - low| modulo twice the width has
    gone up to the width and comes back."""
    width = high - low
    if width == 0:
        return node.fill(positions.sizes, np.float32(low))
    away = node.elementwise(ops.ElementWiseAbs, positions, scale_bias=ScaleBias(1, -low))
    period = node.upload(np.array(2 * width, np.float32))
    around = node.elementwise(ops.ElementWiseModulusFloor, away, period)
    back = node.elementwise(ops.ElementWiseAbs, around, scale_bias=ScaleBias(1, -width))
    return node.elementwise(ops.ElementWiseIdentity, back, scale_bias=ScaleBias(-1, low + width))


def _polynomials(node: Conversion, x: Value, coefficients: Sequence[Sequence[float]]) -> Value:
    """Polynomials of x (batch, 1, positions), one a tap, by Horner's rule."""
    y = node.elementwise(ops.ElementWiseMultiply, x, _column(node, coefficients[0]))
    for number, row in enumerate(coefficients[1:], 1):
        y = node.elementwise(ops.ElementWiseAdd, y, _column(node, row))
        if number < len(coefficients) - 1:
            y = node.elementwise(ops.ElementWiseMultiply, y, x)
    return y


def _column(node: Conversion, numbers: Sequence[float]) -> Value:
    """A constant a tap."""
    return node.upload(np.array(numbers, np.float32).reshape(-1, 1))


def _clipped(node: Conversion, x: Value, low: float, high: float) -> Value:
    return node.elementwise(ops.ElementWiseClip1, x, min_max_data_type=TensorDataType.FLOAT32, min=low, max=high)
