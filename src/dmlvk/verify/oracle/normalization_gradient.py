"""Gradients of normalizations in float64, from the formulas of the specification."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.normalization_gradient import BatchNormalizationGrad, BatchNormalizationTrainingGrad
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.normalization import _finite

Array = NDArray[Any]


def batch_normalization_grad(
    desc: BatchNormalizationGrad, x: Array, dy: Array, mean: Array, variance: Array, scale: Array
) -> tuple[Scaled, Scaled, Scaled]:
    """dx = dy * scale * c with c = 1 / sqrt(variance + epsilon), the sum of dy * (x - mean) * c, and that of dy."""
    with np.errstate(all="ignore"):
        x, dy, mean, variance, scale = (array.astype(np.float64) for array in (x, dy, mean, variance, scale))
        reciprocal = 1 / np.sqrt(variance + desc.epsilon)
        dx = dy * (scale * reciprocal)
        return Scaled(dx, _finite(np.abs(dx))), *_sums(x, dy, mean, reciprocal)


def batch_normalization_training_grad(
    desc: BatchNormalizationTrainingGrad, x: Array, dy: Array, mean: Array, variance: Array, scale: Array
) -> tuple[Scaled, Scaled, Scaled]:
    """dx = scale * c * (dy - mean(dy) - (x - mean) * c * c * mean(dy * (x - mean))), and the sums."""
    with np.errstate(all="ignore"):
        x, dy, mean, variance, scale = (array.astype(np.float64) for array in (x, dy, mean, variance, scale))
        reciprocal = 1 / np.sqrt(variance + desc.epsilon)
        scale_sum, bias_sum = _sums(x, dy, mean, reciprocal)
        count = x.size // mean.size
        normalized = (x - mean) * reciprocal
        dx = scale * reciprocal * (dy - bias_sum.value / count - normalized * scale_sum.value / count)
        # Every term of the difference has the roundings of its own size, and the sums bring those of theirs.
        terms = np.abs(dy) + bias_sum.magnitude / count + np.abs(normalized) * scale_sum.magnitude / count
        return Scaled(dx, _finite(np.abs(scale * reciprocal) * terms)), scale_sum, bias_sum


def _sums(x: Array, dy: Array, mean: Array, reciprocal: Array) -> tuple[Scaled, Scaled]:
    """The gradients of scale and bias; their errors count at the size of all that was added."""
    axes = tuple(axis for axis, size in enumerate(mean.shape) if size == 1)
    terms = dy * (x - mean) * reciprocal
    return (
        Scaled(terms.sum(axes, keepdims=True), _finite(np.abs(terms).sum(axes, keepdims=True))),
        Scaled(dy.sum(axes, keepdims=True), _finite(np.abs(dy).sum(axes, keepdims=True))),
    )
