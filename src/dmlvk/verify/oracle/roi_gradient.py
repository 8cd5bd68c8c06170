"""The gradients of ROI align in float64, sample by sample, from the rules in the row's docstring."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.ops.roi_gradient import RoiAlignGrad
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.roi import Samples, axis_samples

Array = NDArray[Any]


class _Corner(NamedTuple):
    """One of the four pixels of every sample of a region: rows and columns that broadcast to {H, W} samples, its weight (and
    as float32 arithmetic rounds it), and the factors with which it counts in the samples' slopes along x and y."""

    rows: Array
    columns: Array
    weight: Array
    rounded: Array
    slope_x: Array
    slope_y: Array


def _corners(y: Samples, x: Samples) -> list[_Corner]:
    """The pixels of every sample. A slope is the difference of two pixels, where the second has a weight."""
    inside = y.inside[:, None] & x.inside
    corners = []
    for row, row_weight, row_sign in ((y.low, y.weight_low, -1.0), (y.high, y.weight_high, 1.0)):
        for column, column_weight, column_sign in ((x.low, x.weight_low, -1.0), (x.high, x.weight_high, 1.0)):
            slope_x = row_weight[:, None] * (column_sign * (x.weight_high != 0))
            slope_y = (row_sign * (y.weight_high != 0))[:, None] * column_weight
            rounded = row_weight.astype(np.float32)[:, None] * column_weight.astype(np.float32)
            weight = row_weight[:, None] * column_weight
            weights = (np.where(inside, each, 0) for each in (weight, rounded, slope_x, slope_y))
            corners.append(_Corner(row[:, None], column[None, :], *weights))
    return corners


def _product(weight: Array, value: Array) -> Array:
    """A weight of 0 does not count, whatever the value."""
    return np.asarray(np.where(weight == 0, 0, weight * value))


def _winners(values: Array, inside: Array) -> Array:
    """Along the last axis True for the largest value, NaN being larger than any and the first of equal ones; for none
    where one that is not inside, which is 0, is larger."""
    nan = inside & np.isnan(values)
    most = np.where(inside, np.nan_to_num(values, nan=-np.inf, posinf=np.inf, neginf=-np.inf), -np.inf).max(
        -1, keepdims=True
    )
    top = np.where(nan.any(-1, keepdims=True), nan, inside & (values == most))
    outside_wins = ~nan.any(-1) & ~inside.all(-1) & (most[..., 0] < 0)
    winners = np.zeros(values.shape, bool)
    np.put_along_axis(winners, top.argmax(-1)[..., None], (top.any(-1) & ~outside_wins)[..., None], -1)
    return winners


def _shares(desc: RoiAlignGrad, image: Array | None, corners: list[_Corner], y: Samples, x: Samples, shape: Any) -> Array:
    """By how much each sample {C, H, W} counts in its output: an equal part, or for MAX the largest alone, of samples as
    the kernels round them: products and sums of float32."""
    channels, height, width = shape
    if desc.reduction_function == ReduceFunction.AVERAGE:
        return np.full((channels, height * y.each, width * x.each), 1 / (y.each * x.each))
    assert image is not None, "MAX has the images"
    values = np.zeros((channels, height * y.each, width * x.each), np.float32)
    for corner in corners:
        values += _product(corner.rounded, image[:, corner.rows, corner.columns].astype(np.float32))
    inside = np.broadcast_to(y.inside[:, None] & x.inside, values.shape)
    split = (channels, height, y.each, width, x.each)
    by_output = [array.reshape(split).transpose(0, 1, 3, 2, 4) for array in (values, inside)]
    flat = (array.reshape(channels, height, width, -1) for array in by_output)
    winners = _winners(*flat).reshape(by_output[0].shape)
    return winners.transpose(0, 1, 3, 2, 4).reshape(values.shape).astype(np.float64)


class _Terms(NamedTuple):
    """What the gradients of a region are sums of; of magnitudes all is positive, so that nothing cancels.

    Attributes:
        corners: The samples' pixels.
        pixels: Their values {C, H, W}, where boxes have a gradient.
        shares: The weight of each sample in its output, {C, H * samples, W * samples}.
        gradient: dy, {C, H, W}.
        near: The distance that samples move with x1 and with y1.
        far: The distance that samples move with x2 and with y2.
    """

    corners: list[_Corner]
    pixels: Array | None
    shares: Array
    gradient: Array
    near: tuple[Array, Array]
    far: tuple[Array, Array]

    def add_to_image(self, target: Array) -> None:
        rows, columns = (self.shares.shape[axis] // self.gradient.shape[axis] for axis in (1, 2))
        given = _product(self.shares, self.gradient.repeat(rows, 1).repeat(columns, 2))
        for corner in self.corners:
            for own, share in zip(target, _product(corner.weight, given), strict=True):
                np.add.at(own, (corner.rows, corner.columns), share)

    def box(self) -> Array:
        assert self.pixels is not None, "the boxes' gradient has the images"
        values = [self.pixels[:, corner.rows, corner.columns] for corner in self.corners]
        slopes = (
            np.sum([_product(c.slope_x, value) for c, value in zip(self.corners, values, strict=True)], axis=0),
            np.sum([_product(c.slope_y, value) for c, value in zip(self.corners, values, strict=True)], axis=0),
        )
        moves = (*zip(slopes, self.near, strict=True), *zip(slopes, self.far, strict=True))
        channels, height, width = self.gradient.shape
        grouped = (channels, height, self.shares.shape[1] // height, width, self.shares.shape[2] // width)
        outputs = [_product(self.shares, slope * move).reshape(grouped).sum((2, 4)) for slope, move in moves]
        return np.array([np.sum(_product(output, self.gradient)) for output in outputs])


def _terms(desc: RoiAlignGrad, image: Array | None, gradient: Array, x: Samples, y: Samples) -> tuple[_Terms, _Terms]:
    """The terms of the gradient, and the terms of the sums of magnitudes by which its error is judged."""
    corners = _corners(y, x)
    shares = _shares(desc, image, corners, y, x, gradient.shape)
    scale_x, scale_y = (float(np.float32(scale)) for scale in (desc.spatial_scale_x, desc.spatial_scale_y))
    far = (scale_x * x.fraction[None, :], scale_y * y.fraction[:, None])
    values = _Terms(corners, image, shares, gradient, (scale_x - far[0], scale_y - far[1]), far)
    far = (np.abs(far[0]), np.abs(far[1]))
    return values, _Terms(
        [c._replace(slope_x=np.abs(c.slope_x), slope_y=np.abs(c.slope_y)) for c in corners],
        None if image is None else np.abs(image),
        shares,
        np.abs(gradient),
        (abs(scale_x) + far[0], abs(scale_y) + far[1]),
        far,
    )


def roi_align_grad(
    desc: RoiAlignGrad, image: Array | None, gradient: Array, rois: Array, batch_indices: Array
) -> tuple[Scaled | None, Scaled | None]:
    """``RoiAlignGrad``."""
    images = desc.tensor("input_tensor" if desc.output_gradient_tensor is None else "output_gradient_tensor").sizes
    boxes, (_, _, height, width) = rois.reshape(-1, 4), gradient.shape
    pixels, moves = (Scaled(np.zeros(sizes), np.zeros(sizes)) for sizes in (images, boxes.shape))
    for index, (box, batch) in enumerate(zip(boxes, batch_indices.reshape(-1), strict=True)):
        if batch >= images[0]:
            continue
        x = axis_samples(desc, box[0], box[2], desc.spatial_scale_x, width, images[3])
        y = axis_samples(desc, box[1], box[3], desc.spatial_scale_y, height, images[2])
        source = None if image is None else image[batch].astype(np.float64)
        for which, terms in enumerate(_terms(desc, source, gradient[index].astype(np.float64), x, y)):
            if desc.output_gradient_tensor is not None:
                terms.add_to_image(pixels[which][batch])
            if desc.output_roi_gradient_tensor is not None:
                moves[which][index] = terms.box()
    return (
        None if desc.output_gradient_tensor is None else pixels,
        None if desc.output_roi_gradient_tensor is None else Scaled(*(each.reshape(rois.shape) for each in moves)),
    )
