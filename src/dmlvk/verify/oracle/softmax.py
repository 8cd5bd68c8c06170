"""Softmax and its relatives in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.activation import (
    ActivationHardmax,
    ActivationHardmax1,
    ActivationLogSoftmax,
    ActivationLogSoftmax1,
    ActivationSoftmax,
    ActivationSoftmax1,
    SoftmaxOrZero,
)
from dmlvk.spec.ops.normalization import LpNormalization
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


def _shifted(x: Array, axes: tuple[int, ...]) -> Array:
    """x less the largest of its set, which changes neither result."""
    wide: Array = x.astype(np.float64)
    shifted: Array = wide - wide.max(axis=axes, keepdims=True)
    return shifted


def _softmax(x: Array, axes: tuple[int, ...]) -> Array:
    powers: Array = np.exp(_shifted(x, axes))
    result: Array = powers / powers.sum(axis=axes, keepdims=True)
    return result


def _log_softmax(x: Array, axes: tuple[int, ...]) -> Scaled:
    """A difference: its error is counted at the magnitude of the two terms.

    The largest elements are counted apart from the sum of the others, which may be smaller than the last place of 1.
    """
    shifted = _shifted(x, axes)
    largest = np.sum(shifted == 0, axis=axes, keepdims=True)
    others = np.where(shifted == 0, 0.0, np.exp(shifted)).sum(axis=axes, keepdims=True)
    logarithm = np.log(largest) + np.log1p(others / largest)
    return Scaled(shifted - logarithm, np.abs(shifted) + np.abs(logarithm))


def activation_softmax1(desc: ActivationSoftmax1, x: Array) -> Array:
    return _softmax(x, desc.axes)


def softmax_or_zero(desc: SoftmaxOrZero, x: Array) -> Array:
    result = _softmax(x, desc.axes)
    nothing = np.all(x == -np.inf, axis=desc.axes, keepdims=True) if desc.keeps_nan else np.isnan(result)
    return np.where(nothing, 0.0, result)


def activation_softmax(desc: ActivationSoftmax, x: Array) -> Array:
    return _softmax(x, (x.ndim - 1,))


def activation_log_softmax1(desc: ActivationLogSoftmax1, x: Array) -> Scaled:
    return _log_softmax(x, desc.axes)


def activation_log_softmax(desc: ActivationLogSoftmax, x: Array) -> Scaled:
    return _log_softmax(x, (x.ndim - 1,))


def _hardmax(x: Array, axes: tuple[int, ...]) -> Array:
    """numpy's argmax takes the first of equal elements, and NaN for the largest, too."""
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    turned = np.transpose(x, (*rest, *sorted(axes)))
    rows = turned.reshape(*turned.shape[: len(rest)], -1)
    ones = np.zeros(rows.shape, np.float64)
    np.put_along_axis(ones, rows.argmax(axis=-1)[..., None], 1.0, axis=-1)
    result: Array = np.transpose(ones.reshape(turned.shape), np.argsort((*rest, *sorted(axes))))
    return result


def activation_hardmax1(desc: ActivationHardmax1, x: Array) -> Array:
    return _hardmax(x, desc.axes)


def activation_hardmax(desc: ActivationHardmax, x: Array) -> Array:
    return _hardmax(x, (x.ndim - 1,))


def lp_normalization(desc: LpNormalization, x: Array) -> Array:
    wide = x.astype(np.float64)
    if desc.p == 1:
        norm = np.abs(wide).sum(axis=desc.axis, keepdims=True)
    else:
        norm = np.sqrt((wide * wide).sum(axis=desc.axis, keepdims=True))
    norm = np.maximum(norm, desc.epsilon)
    result: Array = np.where(norm == 0, 0.0, wide / np.where(norm == 0, 1.0, norm))
    return result
