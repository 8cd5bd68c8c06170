"""Regions of interest."""

from __future__ import annotations

import numpy as np

from dmlvk import ops
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.schema import FLOATS, Size2D

_UINT_MAX = 2**32 - 1


@converts("RoiAlign", 10, 16, 22, types=FLOATS)
def roi_align(node: Conversion) -> Value:
    """ONNX's own words are in the row, ``ops.RoiAlign1``. Before opset 16 the transformation is output_half_pixel."""
    if node.attribute("mode", "avg") != "avg":
        raise node.unsupported("mode 'max' takes the largest weighted pixel, DirectML the largest interpolated sample")
    transformation = node.attribute("coordinate_transformation_mode", "half_pixel")
    half_pixel = node.node.version >= 16 and transformation == "half_pixel"
    scale, ratio = float(node.attribute("spatial_scale", 1.0)), node.attribute("sampling_ratio", 0)
    x, rois, indices = node[0], node[1], node[2]
    if x.rank != 4 or rois.rank != 2 or rois.sizes[1] != 4 or indices.sizes != rois.sizes[:1]:
        raise node.invalid(f"input {x.sizes}, rois {rois.sizes} and batch_indices {indices.sizes}")
    sizes = (rois.sizes[0], x.sizes[1], node.attribute("output_height", 1), node.attribute("output_width", 1))
    return node.launch(
        ops.RoiAlign1,
        x,
        rois if half_pixel else _widened(node, rois, 1 / scale),
        indices.reinterpret(np.dtype(np.uint64)),
        output_tensor=node.new(sizes, x.dtype),
        spatial_scale_x=scale,
        spatial_scale_y=scale,
        input_pixel_offset=0.5 if half_pixel else 0.0,
        output_pixel_offset=-0.5,
        minimum_samples_per_output=ratio or 1,
        maximum_samples_per_output=ratio or _UINT_MAX,
    )


@converts("MaxRoiPool", 1, 22, types=FLOATS)
def max_roi_pool(node: Conversion) -> Value:
    x, rois = node[0], node[1]
    height, width = node.attribute("pooled_shape", (0, 0))
    if x.rank != 4 or rois.rank != 2 or rois.sizes[1] != 5 or min(height, width) < 1:
        raise node.invalid(f"input {x.sizes}, rois {rois.sizes} and pooled_shape {[height, width]}")
    return node.launch(
        ops.RoiPooling,
        x,
        node.reshape(rois, (1, 1, *rois.sizes)),
        spatial_scale=float(node.attribute("spatial_scale", 1.0)),
        pooled_size=Size2D(width, height),
    )


def _widened(node: Conversion, rois: Value, least: float) -> Value:
    """Boxes (x1, y1, x2, y2) with x2 at least x1 + ``least``, y2 likewise: the maximum of each box and (x1, y1,
    x1 + least, y1 + least), which is a product with a matrix of zeros and ones."""
    spread = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]], rois.dtype)
    shift = node.upload(np.array([[0, 0, least, least]], rois.dtype)).broadcast_to(rois.sizes)
    floor = node.launch(ops.Gemm, rois, node.upload(spread), shift)
    return node.elementwise(ops.ElementWiseMax, rois, floor)
