"""ROI align in float64 at float32 coordinates, and ROI pooling, from the rules in the rows' docstrings."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import InterpolationMode, ReduceFunction
from dmlvk.spec.ops.roi import RoiAlign, RoiAlign1, RoiPooling
from dmlvk.spec.ops.roi_gradient import RoiAlignGrad
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


class Samples(NamedTuple):
    """Samples along one axis, all outputs' in a row: two pixels and weights each, whether inside the border, and the
    fraction of the way from the box's start to its end."""

    each: int
    low: Array
    high: Array
    weight_low: Array
    weight_high: Array
    inside: Array
    fraction: Array


def axis_samples(
    desc: RoiAlign1 | RoiAlignGrad, start: Array, end: Array, scale: float, outputs: int, pixels: int
) -> Samples:
    """The samples of a region along an axis, given the two coordinates of its box."""
    one = np.float32
    scaled_start, scaled_end = start.astype(one) * one(scale), end.astype(one) * one(scale)
    size = scaled_end - scaled_start
    least, most = max(1, desc.minimum_samples_per_output), desc.maximum_samples_per_output
    needed = math.ceil(float(size) / outputs) if math.isfinite(size) and size > 0 else (most if size > 0 else least)
    count = min(max(needed, least), most)
    assert outputs * count < 2**20, "the oracle lists every sample"
    numbers = np.arange(outputs * count, dtype=one)
    total = outputs * count
    corners = desc.align_regions_to_corners
    steps = max(total - 1, 1) if corners else total
    first = one(0.5) if corners and total == 1 else one(-desc.output_pixel_offset)
    position = ((numbers + first) * (size / one(steps)) + scaled_start) - one(desc.input_pixel_offset)
    inside = (position >= -1) & (position <= pixels)
    position = np.where(inside, np.clip(position, 0, pixels - 1), 0).astype(np.float64)
    if desc.interpolation_mode == InterpolationMode.NEAREST_NEIGHBOR:
        low = np.ceil(position - 0.5).astype(int)
        weight = np.zeros(total)
    else:
        low = np.floor(position).astype(int)
        weight = position - low
    fraction = (numbers.astype(np.float64) + first) / steps
    return Samples(count, low, np.minimum(low + 1, pixels - 1), 1 - weight, weight, inside, fraction)


def _interpolated(first: Array, second: Array, samples: Samples, axis: int) -> Array:
    """Weighted sums of pixel pairs; a pixel of weight 0 does not count."""
    shape = [1] * first.ndim
    shape[axis] = -1
    low, high = samples.weight_low.reshape(shape), samples.weight_high.reshape(shape)
    return np.where(low == 0, 0, low * first) + np.where(high == 0, 0, high * second)


def roi_align1(desc: RoiAlign1, image: Array, rois: Array, batch_indices: Array) -> Scaled:
    """``RoiAlign1``."""
    _, channels, height, width = desc.tensor("output_tensor").sizes
    boxes, batches = rois.reshape(-1, 4), batch_indices.reshape(-1)
    outside = float(np.float32(desc.out_of_bounds_input_value))
    average = desc.reduction_function == ReduceFunction.AVERAGE
    result = np.full((len(boxes), channels, height, width), outside)
    magnitude = np.abs(result)
    for index, (box, batch) in enumerate(zip(boxes, batches, strict=True)):
        if batch >= image.shape[0]:
            continue
        x = axis_samples(desc, box[0], box[2], desc.spatial_scale_x, width, image.shape[3])
        y = axis_samples(desc, box[1], box[3], desc.spatial_scale_y, height, image.shape[2])
        for values, target in ((image[batch].astype(np.float64), result), (np.abs(image[batch]), magnitude)):
            rows = values.astype(np.float64)
            low, high = rows[:, y.low], rows[:, y.high]
            below = _interpolated(low[:, :, x.low], low[:, :, x.high], x, 2)
            above = _interpolated(high[:, :, x.low], high[:, :, x.high], x, 2)
            samples = _interpolated(below, above, y, 1)
            inside = y.inside[:, None] & x.inside[None, :]
            samples = np.where(inside, samples, outside if target is result else abs(outside))
            grouped = samples.reshape(channels, height, y.each, width, x.each)
            target[index] = grouped.mean((2, 4)) if average else grouped.max((2, 4))
    return Scaled(result, magnitude)


def roi_align(desc: RoiAlign, image: Array, rois: Array, batch_indices: Array) -> Scaled:
    """``RoiAlign``."""
    return roi_align1(desc.upgrade(), image, rois, batch_indices)


def _pixel(coordinate: np.float32) -> int:
    """The nearest whole pixel, halves away from 0."""
    if np.isnan(coordinate):
        return 0
    magnitude = min(float(abs(coordinate)), 2.0**30)
    return int(math.copysign(math.floor(magnitude + 0.5), coordinate))


def _cells(first: int, last: int, cells: int, pixels: int) -> list[slice]:
    """The pixels of each cell of an axis."""
    size = max(last - first, 0) + 1
    ends = ((o * size // cells, ((o + 1) * size + cells - 1) // cells) for o in range(cells))
    return [slice(*(min(max(first + end, 0), pixels) for end in pair)) for pair in ends]


def roi_pooling(desc: RoiPooling, image: Array, rois: Array) -> Array:
    """``RoiPooling``."""
    width, height = desc.pooled_size
    result = np.zeros((rois.shape[2], image.shape[1], height, width))
    for index, (batch, *corners) in enumerate(rois.reshape(-1, 5).astype(np.float32)):
        if not -1 < batch < image.shape[0]:
            continue
        with np.errstate(over="ignore"):
            x1, y1, x2, y2 = (_pixel(corner * np.float32(desc.spatial_scale)) for corner in corners)
        for oy, rows in enumerate(_cells(y1, y2, height, image.shape[2])):
            for ox, columns in enumerate(_cells(x1, x2, width, image.shape[3])):
                cell = image[int(batch), :, rows, columns].astype(np.float64)
                if cell.size:
                    result[index, :, oy, ox] = cell.max((1, 2))
    return result
