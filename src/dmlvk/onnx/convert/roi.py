"""Regions of interest."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.sampling import split, taps_along
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction, TensorDataType
from dmlvk.spec.schema import FLOATS, ScaleBias, Size2D

_FLOAT, _INT = np.dtype(np.float32), np.dtype(np.int32)
_UINT_MAX = 2**32 - 1


def _refuse_roi_align(node: NodeFacts) -> None:
    if node.attribute("mode", "avg") == "max" and node.attribute("sampling_ratio", 0) < 1:
        raise node.unsupported(
            "mode 'max' is not supported with sampling_ratio 0, where the number of samples follows from the regions"
        )


@converts("RoiAlign", 10, 16, 22, types=FLOATS, check=_refuse_roi_align)
def roi_align(node: Conversion) -> Value:
    """ONNX's own words are in the row, ``ops.RoiAlign1``. Before opset 16 the transformation is output_half_pixel."""
    mode = node.attribute("mode", "avg")
    transformation = node.attribute("coordinate_transformation_mode", "half_pixel")
    half_pixel = node.node.version >= 16 and transformation == "half_pixel"
    scale, ratio = float(node.attribute("spatial_scale", 1.0)), node.attribute("sampling_ratio", 0)
    x, rois, indices = node[0], node[1], node[2]
    if x.rank != 4 or rois.rank != 2 or rois.sizes[1] != 4 or indices.sizes != rois.sizes[:1]:
        rule = "the input must have 4 dimensions, rois the sizes (regions, 4) and batch_indices (regions,)"
        raise node.invalid(rule, (x.sizes, rois.sizes, indices.sizes))
    sizes = (rois.sizes[0], x.sizes[1], node.attribute("output_height", 1), node.attribute("output_width", 1))
    rois = rois if half_pixel else _widened(node, rois, 1 / scale)
    if mode == "max":
        return _largest(node, sizes, ScaleBias(scale, -0.5 if half_pixel else 0.0), rois)
    return node.launch(
        ops.RoiAlign1,
        x,
        rois,
        indices.reinterpret(np.dtype(np.uint64)),
        output_tensor=node.new(sizes, x.dtype),
        spatial_scale_x=scale,
        spatial_scale_y=scale,
        input_pixel_offset=0.5 if half_pixel else 0.0,
        output_pixel_offset=-0.5,
        minimum_samples_per_output=ratio or 1,
        maximum_samples_per_output=ratio or _UINT_MAX,
    )


def _largest(node: Conversion, sizes: Sizes, scale_bias: ScaleBias, rois: Value) -> Value:
    """ONNX's mode 'max' takes the largest of the weighted elements around a cell's samples; DirectML's would take the
    largest interpolated sample. So the elements are read one by one, with their weights: 4 of each sample, which moves
    more than 5 times the bytes of an operator that would keep them in registers."""
    x, samples = node[0], node.attribute("sampling_ratio", 0)
    count, channels, *cells = sizes
    batch, image = x.sizes[0], x.sizes[2:]
    if batch * math.prod(image) >= np.iinfo(_INT).max:
        raise node.unsupported(f"an input of sizes {x.sizes} has more elements than int32 can number")
    scaled = node.elementwise(ops.ElementWiseIdentity, cast_to(node, rois, _FLOAT), scale_bias=scale_bias)
    left, top, right, bottom = split(node, scaled, 1)
    rows = _around_samples(node, top, bottom, cells[0] * samples, image[0])
    columns = _around_samples(node, left, right, cells[1] * samples, image[1])
    # Both axes as (regions, taps along y, taps along x, samples along y, samples along x).
    full = (count, 2, 2, cells[0] * samples, cells[1] * samples)
    places, weights = [], []
    for (place, weight), kept in ((rows, (0, 1, 3)), (columns, (0, 2, 4))):
        spread = tuple(size if axis in kept else 1 for axis, size in enumerate(full))
        places.append(node.reshape(place, spread))
        weights.append(node.reshape(weight, spread))
    row_starts = node.elementwise(ops.ElementWiseMultiply, places[0], node.upload(np.array(image[1], _INT)))
    images = node.elementwise(
        ops.ElementWiseMultiply, cast_to(node, node[2], _INT), node.upload(np.array(math.prod(image), _INT))
    )
    starts = node.elementwise(ops.ElementWiseAdd, row_starts, node.reshape(images, (count, 1, 1, 1, 1)))
    numbers = node.elementwise(ops.ElementWiseAdd, starts, places[1])
    weight = node.elementwise(ops.ElementWiseMultiply, *weights)
    x = node.reshape(cast_to(node, x, _FLOAT).transpose((1, 0, 2, 3)), (channels, batch * math.prod(image)))
    total = math.prod(full)
    read = node.launch(
        ops.Gather,
        x,
        node.reshape(numbers, (1, total)),
        output_tensor=node.new((channels, total), _FLOAT),
        axis=1,
        index_dimensions=1,
    )
    weighted = node.elementwise(ops.ElementWiseMultiply, read, node.reshape(weight, (1, total)))
    parts = (channels, count, 4, cells[0], samples, cells[1], samples)
    y = node.new(tuple(1 if axis in (2, 4, 6) else size for axis, size in enumerate(parts)), _FLOAT)
    node.launch(ops.Reduce, node.reshape(weighted, parts), output_tensor=y, function=ReduceFunction.MAX, axes=(2, 4, 6))
    return cast_to(node, node.reshape(y, (channels, count, *cells)).transpose((1, 0, 2, 3)), node[0].dtype)


def _around_samples(node: Conversion, start: Value, end: Value, count: int, size: int) -> tuple[Value, Value]:
    """Of ``count`` samples evenly between starts and ends (regions, 1), the two elements around each, and their weights:
    (regions, 2, count). A sample further than one element outside counts for nothing."""
    shares = node.upload(((np.arange(count) + 0.5) / count).astype(np.float32))
    length = node.elementwise(ops.ElementWiseSubtract, end, start)
    positions = node.elementwise(ops.ElementWiseAdd, node.elementwise(ops.ElementWiseMultiply, length, shares), start)
    taps = taps_along(node, positions, size, "linear", "border", aligned=True)
    near = node.elementwise(
        ops.ElementWiseClip1, positions, min_max_data_type=TensorDataType.FLOAT32, min=-1.0, max=float(size)
    )
    counts = node.elementwise(ops.ElementWiseLogicalEquals, near, positions, dtype=np.dtype(np.bool_))
    counts = node.reshape(counts, (counts.sizes[0], 1, count))
    assert taps.weights is not None, "two elements are weighted"
    zero = node.upload(np.zeros((), np.float32))
    return cast_to(node, taps.places, _INT), node.elementwise(ops.ElementWiseIf, counts, taps.weights, zero, dtype=_FLOAT)


@converts("MaxRoiPool", 1, 22, types=FLOATS)
def max_roi_pool(node: Conversion) -> Value:
    x, rois = node[0], node[1]
    height, width = node.attribute("pooled_shape", (0, 0))
    if x.rank != 4 or rois.rank != 2 or rois.sizes[1] != 5 or min(height, width) < 1:
        rule = "the input must have 4 dimensions, rois the sizes (regions, 5) and pooled_shape sizes of at least 1"
        raise node.invalid(rule, (x.sizes, rois.sizes, (height, width)))
    return node.launch(
        ops.RoiPooling,
        x,
        node.reshape(rois, (1, 1, *rois.sizes)),
        output_tensor=node.new((rois.sizes[0], x.sizes[1], height, width), x.dtype),
        spatial_scale=float(node.attribute("spatial_scale", 1.0)),
        pooled_size=Size2D(width, height),
    )


def _widened(node: Conversion, rois: Value, least: float) -> Value:
    """Boxes (x1, y1, x2, y2) with x2 at least x1 + ``least``, y2 likewise: the maximum of each box and (x1, y1,
    x1 + least, y1 + least), which is a product with a matrix of zeros and ones."""
    spread = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]], rois.dtype)
    shift = node.upload(np.array([[0, 0, least, least]], rois.dtype)).broadcast_to(rois.sizes)
    floor = node.launch(ops.Gemm, rois, node.upload(spread), shift, output_tensor=node.new(rois.sizes, rois.dtype))
    return node.elementwise(ops.ElementWiseMax, rois, floor)
