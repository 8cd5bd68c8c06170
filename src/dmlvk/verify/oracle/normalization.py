"""Normalization in float64, from the formulas of the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.normalization import (
    BatchNormalization,
    BatchNormalizationTraining,
    LocalResponseNormalization,
    MeanVarianceNormalization,
    MeanVarianceNormalization1,
    MeanVarianceNormalization2,
)
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.convolution import activated

Array = NDArray[Any]


def _finished(
    normalized: Array, size: Array, scale: Array | None, bias: Array | None, activation: OperatorDesc | None
) -> Scaled:
    """activation(scale * normalized + bias). Errors count at the size of the terms of that sum; ``size`` is that of the
    normalized data, with its spread where the mean is computed: an element close to the mean has the mean's error, and the
    mean is known to 48 bits at best."""
    factor = np.ones(()) if scale is None else scale.astype(np.float64)
    offset = np.zeros(()) if bias is None else bias.astype(np.float64)
    magnitude = size * np.abs(factor) + np.abs(offset)
    return activated(activation, normalized * factor + offset, _finite(magnitude))


def _deviation(variance: Array, epsilon: float) -> tuple[Array, Array]:
    """sqrt(variance + epsilon), epsilon rounded to float32 as the struct holds it, and how often a rounding counts in it.
    That is once, unless an epsilon below 0 cancels digits of the variance: its own rounding then grows by their ratio to
    the sum, half of which is left by the root. The variance has only float32's digits, so no arithmetic does better."""
    term = float(np.float32(epsilon))
    total = variance + term
    return np.sqrt(total), 1 + 0.5 * ((variance + abs(term)) / np.abs(total) - 1)


def mean_variance_normalization2(
    desc: MeanVarianceNormalization2, x: Array, scale: Array | None = None, bias: Array | None = None
) -> Scaled:
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias), statistics over the axes."""
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        mean = x.mean(axis=desc.axes, keepdims=True) if desc.use_mean else np.zeros(())
        centred = x - mean
        variance = np.mean(centred * centred, axis=desc.axes, keepdims=True)
        divisor, growth = _deviation(variance, desc.epsilon) if desc.use_variance else (np.ones(()), np.ones(()))
        mean_error = np.abs(x).max(axis=desc.axes, keepdims=True) * 2.0**-24 if desc.use_mean else np.zeros(())
        spread = (np.sqrt(variance) + mean_error) / divisor
        size = (np.abs(centred / divisor) + spread) * growth
        return _finished(centred / divisor, size, scale, bias, desc.fused_activation)


def mean_variance_normalization1(
    desc: MeanVarianceNormalization1, x: Array, scale: Array | None = None, bias: Array | None = None
) -> Scaled:
    """The newer operator with UseMean."""
    return mean_variance_normalization2(desc.upgrade(), x, scale, bias)


def mean_variance_normalization(
    desc: MeanVarianceNormalization, x: Array, scale: Array | None = None, bias: Array | None = None
) -> Scaled:
    """Over the axes {2, 3}, or {1, 2, 3} with ``cross_channel``."""
    return mean_variance_normalization2(desc.upgrade(), x, scale, bias)


def batch_normalization_training(
    desc: BatchNormalizationTraining, x: Array, scale: Array, bias: Array, add: Array | None = None
) -> tuple[Scaled, Scaled, Scaled]:
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias + add), with mean and variance over the
    dimensions in which scale has size 1."""
    axes = tuple(axis for axis, size in enumerate(scale.shape) if size == 1)
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        mean = x.mean(axis=axes, keepdims=True)
        centred = x - mean
        variance = np.mean(centred * centred, axis=axes, keepdims=True)
        divisor, growth = _deviation(variance, desc.epsilon)
        largest = np.abs(x).max(axis=axes, keepdims=True)
        mean_error = largest * 2.0**-24
        spread = (np.sqrt(variance) + mean_error) / divisor
        offset = bias.astype(np.float64) + (0.0 if add is None else add.astype(np.float64))
        size = (np.abs(centred / divisor) + spread) * growth
        y = _finished(centred / divisor, size, scale, offset, desc.fused_activation)
        if add is not None:  # the terms of the offset may cancel among themselves
            y = Scaled(y.value, y.magnitude + _finite(np.abs(bias) + np.abs(add)))
        mean_size = np.maximum(np.abs(mean), np.sqrt(variance))
        # Squares are of deviations from the rounded mean, whose own share is taken off again: of rows of equal numbers,
        # whose variance is 0, the roundings of that difference are left.
        return y, Scaled(mean, _finite(mean_size)), Scaled(variance, _finite(variance + 4 * mean_error * mean_error))


def _finite(magnitude: Array) -> Array:
    """0 where a magnitude is infinite or NaN."""
    return np.nan_to_num(magnitude.astype(np.float64), nan=0.0, posinf=0.0)


def region_sums(values: Array, axes: tuple[int, ...], before: int, after: int) -> Array:
    """The sum of the values from so many before each along the axes to so many after it, as far as there are."""
    for axis in axes:
        size = values.shape[axis]
        reach = [(max(i - before, 0), min(i + after + 1, size)) for i in range(size)]
        values = np.concatenate([values.take(range(*ends), axis).sum(axis, keepdims=True) for ends in reach], axis)
    return values


def local_response_normalization(desc: LocalResponseNormalization, x: Array) -> Scaled:
    """y = x / (bias + alpha / local size * sum of x * x over the region) ** beta. Where the two terms cancel, what rounding
    leaves of them grows as the power's slope has it."""
    before, after = (desc.local_size - 1) // 2, desc.local_size // 2
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        sums = region_sums(x * x, (1,) if desc.cross_channel else (2, 3), before, after)
        alpha, beta, bias = (float(np.float32(number)) for number in (desc.alpha, desc.beta, desc.bias))
        terms = alpha / desc.local_size * sums
        base = bias + terms
        result = x / base**beta
        growth = 1 + abs(beta) * ((abs(bias) + np.abs(terms)) / np.abs(base) - 1)
        return Scaled(result, _finite(np.abs(result) * growth))


def batch_normalization(
    desc: BatchNormalization, x: Array, mean: Array, variance: Array, scale: Array, bias: Array
) -> Scaled:
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias), statistics given."""
    with np.errstate(all="ignore"):
        deviation, growth = _deviation(variance.astype(np.float64), desc.epsilon)
        normalized = (x.astype(np.float64) - mean.astype(np.float64)) / deviation
        return _finished(normalized, np.abs(normalized) * growth, scale, bias, desc.fused_activation)
