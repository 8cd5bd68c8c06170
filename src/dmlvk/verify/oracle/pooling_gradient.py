"""Gradients of pooling in float64, window by window: each hands its dy out to its elements."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.ops.pooling_gradient import AveragePoolingGrad, MaxPoolingGrad
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.pooling import Array, max_pooling2, windows


def average_pooling_grad(desc: AveragePoolingGrad, dy: Array) -> Scaled:
    """``AveragePoolingGrad``; the error counts at the sum of the absolute values."""
    result = np.zeros(desc.tensor("output_gradient_tensor").sizes)
    magnitude = np.zeros_like(result)
    axes = tuple(range(2, result.ndim))
    for output, window, elements, padded in windows(desc.forward(), result.shape[2:]):
        divisor = padded if desc.include_padding else elements
        if elements:
            share = np.expand_dims(dy[output].astype(np.float64), axes) / divisor
            result[window] += share
            magnitude[window] += np.abs(share)
    return Scaled(result, magnitude)


def max_pooling_grad(desc: MaxPoolingGrad, x: Array, dy: Array) -> Scaled:
    """``MaxPoolingGrad``; the error counts at the sum of the absolute values."""
    forward = desc.forward()
    _, indices = max_pooling2(forward, x)
    result, magnitude = np.zeros(x.size), np.zeros(x.size)
    for output, _, elements, _ in windows(forward, x.shape[2:]):
        if elements:
            share = dy[output].astype(np.float64)
            np.add.at(result, indices[output].astype(np.int64), share)
            np.add.at(magnitude, indices[output].astype(np.int64), np.abs(share))
    return Scaled(result.reshape(x.shape), magnitude.reshape(x.shape))
