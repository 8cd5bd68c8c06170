"""Gradients of resampling in float64: the forward oracle's matrices, transposed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import AxisDirection, InterpolationMode
from dmlvk.spec.ops.resample_gradient import ResampleGrad, ResampleGrad1
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.resample import product, weights

Array = NDArray[Any]


def resample_grad1(desc: ResampleGrad1, dy: Array) -> Scaled:
    """``ResampleGrad1``."""
    forward = desc.forward().upgrade()
    result = dy.astype(np.float64)
    magnitude = np.abs(result)
    for axis in range(dy.ndim):
        matrix = weights(forward, axis).T
        result, magnitude = product(result, matrix, axis), product(magnitude, matrix, axis)
    return Scaled(result, magnitude)


def resample_grad(desc: ResampleGrad, dy: Array) -> Scaled:
    """``ResampleGrad``: the nearest element is ceil(x - 0.5)."""
    half = 0.5 * (desc.interpolation_mode == InterpolationMode.NEAREST_NEIGHBOR)
    return resample_grad1(
        ResampleGrad1(
            **{spec.name: getattr(desc, spec.name) for spec in desc.fields if spec.name != "input_pixel_offsets"},
            rounding_direction=AxisDirection.INCREASING,
            input_pixel_offsets=tuple(offset + half for offset in desc.input_pixel_offsets),
        ),
        dy,
    )
