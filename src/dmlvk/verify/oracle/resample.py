"""Resampling in float64 at exact coordinates, from the rules in the docstring of ``Resample3``.

Every output's elements and weights are listed along each dimension as a matrix; the result is the product of the input
with one matrix a dimension.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import AxisDirection, InterpolationMode
from dmlvk.spec.ops.resample import Resample, Resample1, Resample2, Resample3, ResampleWeights, Upsample2d
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


def _rounds_to(fraction: Fraction, number: np.float32) -> bool:
    return bool(np.float32(float(fraction)) == number)


def _simplest(value: float) -> Fraction:
    """The fraction of the smallest denominator that float32 rounds to the value; of a small one by its reciprocal's."""
    number = np.float32(value)
    exact = Fraction(float(number))
    if exact.denominator == 1:
        return exact
    inverted = abs(exact) < 1
    wanted = 1 / exact if inverted else exact
    for denominator in itertools.count(1):
        found = Fraction(round(wanted * denominator), denominator)
        if _rounds_to(1 / found if inverted else found, number):
            return 1 / found if inverted else found
    raise AssertionError("the number itself is such a fraction")


def _scale(value: float, inputs: int, outputs: int) -> Fraction:
    number = np.float32(value)
    pairs = [(outputs, inputs), (outputs - 1, inputs - 1)]
    ratios = [Fraction(high, low) for high, low in pairs if high and low]
    return next((ratio for ratio in ratios if _rounds_to(ratio, number)), None) or _simplest(value)


def weights(desc: Resample3, axis: int) -> Array:
    """(outputs, inputs): what each output takes of each input element along an axis."""
    inputs, outputs = desc.tensor("input_tensor").sizes[axis], desc.tensor("output_tensor").sizes[axis]
    scale = _scale(desc.scales[axis], inputs, outputs)
    before, after = (_simplest(offsets[axis]) for offsets in (desc.input_pixel_offsets, desc.output_pixel_offsets))
    matrix = np.zeros((outputs, inputs))
    for o in range(outputs):
        x = (o - after) / scale - before
        if desc.interpolation_mode == InterpolationMode.NEAREST_NEIGHBOR:
            index = math.ceil(x) if desc.rounding_direction == AxisDirection.INCREASING else math.floor(x)
            matrix[o, min(max(index, 0), inputs - 1)] = 1
            continue
        width = min(abs(scale), Fraction(1)) if desc.antialiased else Fraction(1)
        taps = range(math.floor(x - 1 / width) + 1, math.ceil(x + 1 / width))
        shares = [1 - abs(tap - x) * width for tap in taps]
        total = sum(shares)
        for tap, share in zip(taps, shares, strict=True):
            matrix[o, min(max(tap, 0), inputs - 1)] += float(share / total)
    return matrix


def product(values: Array, matrix: Array, axis: int) -> Array:
    """The values with an axis taken through a matrix; elements of weight 0 do not count."""
    moved = np.moveaxis(values, axis, -1)
    rows = [np.sum(np.where(row == 0, 0.0, row * moved), axis=-1) for row in matrix]
    return np.moveaxis(np.stack(rows, axis=-1), -1, axis)


def resample3(desc: Resample3, x: Array) -> Scaled | Array:
    """``Resample3``."""
    result = x.astype(np.float64)
    magnitude = np.abs(result)
    for axis in range(x.ndim):
        matrix = weights(desc, axis)
        result, magnitude = product(result, matrix, axis), product(magnitude, matrix, axis)
    if x.dtype.kind == "f":
        return Scaled(result, magnitude)
    rounded: Array = np.rint(np.rint(result * 1024) / 1024).astype(x.dtype)
    return rounded


def resample2(desc: Resample2, x: Array) -> Scaled | Array:
    """``Resample2``."""
    return resample3(desc.upgrade(), x)


def resample1(desc: Resample1, x: Array) -> Scaled | Array:
    """``Resample1``: the nearest element is ceil(x - 0.5)."""
    half = 0.5 * (desc.interpolation_mode == InterpolationMode.NEAREST_NEIGHBOR)
    return resample2(
        Resample2(
            **{spec.name: getattr(desc, spec.name) for spec in desc.fields if spec.name != "input_pixel_offsets"},
            rounding_direction=AxisDirection.INCREASING,
            input_pixel_offsets=tuple(offset + half for offset in desc.input_pixel_offsets),
        ),
        x,
    )


def resample(desc: Resample, x: Array) -> Scaled | Array:
    """``Resample``."""
    return resample1(desc.upgrade(), x)


def upsample2d(desc: Upsample2d, x: Array) -> Scaled | Array:
    """``Upsample2d``."""
    return resample(desc.upgrade(), x)


def _cubic(distance: float, a: float) -> float:
    """The cubic convolution kernel."""
    if distance <= 1:
        return ((a + 2) * distance - (a + 3)) * distance**2 + 1
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a if distance < 2 else 0.0


def resample_weights(desc: ResampleWeights) -> Scaled:
    """``ResampleWeights``. Errors count at the size of the kernel's terms, divided by what a row's weights are."""
    outputs, inputs = desc.tensor("output_tensor").sizes
    scale = _scale(desc.scale, inputs, outputs)
    before, after = (_simplest(offset) for offset in (desc.input_pixel_offset, desc.output_pixel_offset))
    reach = math.ceil((2 if desc.cubic else 1) / desc.filter_scale)
    matrix = np.zeros((outputs, inputs))
    sizes = np.ones_like(matrix)
    for o in range(outputs):
        x = (o - after) / scale - before
        first = math.floor(x)
        for tap in range(first + 1 - reach, first + reach + 1):
            if desc.inside_only and not 0 <= tap < inputs:
                continue
            distance = abs(float(tap - x)) * desc.filter_scale
            weight = _cubic(distance, desc.coefficient) if desc.cubic else max(1 - distance, 0.0)
            matrix[o, min(max(tap, 0), inputs - 1)] += weight
        if desc.normalized:
            total = matrix[o].sum()
            matrix[o], sizes[o] = matrix[o] / total, sizes[o] / abs(total)
    return Scaled(matrix, sizes)
