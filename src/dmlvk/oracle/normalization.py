"""Normalization in float64, from the formulas of the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.ops.normalization import BatchNormalization, MeanVarianceNormalization, MeanVarianceNormalization1
from dmlvk.oracle import Scaled
from dmlvk.oracle.convolution import activated
from dmlvk.schema import OperatorDesc

Array = NDArray[Any]


def _finished(
    normalized: Array, spread: Array, scale: Array | None, bias: Array | None, activation: OperatorDesc | None
) -> Scaled:
    """activation(scale * normalized + bias). Errors count at the size of the terms of that sum, and of the normalized
    data's spread: an element close to the mean has the mean's error, and the mean is known to 48 bits at best."""
    factor = np.ones(()) if scale is None else scale.astype(np.float64)
    offset = np.zeros(()) if bias is None else bias.astype(np.float64)
    magnitude = (np.abs(normalized) + spread) * np.abs(factor) + np.abs(offset)
    finite = np.nan_to_num(magnitude, nan=0.0, posinf=0.0)
    return activated(activation, normalized * factor + offset, finite)


def mean_variance_normalization1(
    desc: MeanVarianceNormalization1, x: Array, scale: Array | None = None, bias: Array | None = None
) -> Scaled:
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias), statistics over the axes."""
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        centred = x - x.mean(axis=desc.axes, keepdims=True)
        variance = np.mean(centred * centred, axis=desc.axes, keepdims=True)
        divisor = np.sqrt(variance + desc.epsilon) if desc.normalize_variance else np.ones(())
        mean_error = np.abs(x).max(axis=desc.axes, keepdims=True) * 2.0**-24
        spread = (np.sqrt(variance) + mean_error) / divisor
        return _finished(centred / divisor, spread, scale, bias, desc.fused_activation)


def mean_variance_normalization(
    desc: MeanVarianceNormalization, x: Array, scale: Array | None = None, bias: Array | None = None
) -> Scaled:
    """Over the axes {2, 3}, or {1, 2, 3} with ``cross_channel``."""
    return mean_variance_normalization1(desc.upgrade(), x, scale, bias)


def batch_normalization(
    desc: BatchNormalization, x: Array, mean: Array, variance: Array, scale: Array, bias: Array
) -> Scaled:
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias), statistics given."""
    with np.errstate(all="ignore"):
        deviation = np.sqrt(variance.astype(np.float64) + desc.epsilon)
        normalized = (x.astype(np.float64) - mean.astype(np.float64)) / deviation
        return _finished(normalized, np.zeros(()), scale, bias, desc.fused_activation)
