"""Softmax and its logarithm in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.ops.activation import ActivationLogSoftmax, ActivationLogSoftmax1, ActivationSoftmax, ActivationSoftmax1
from dmlvk.oracle import Scaled

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


def activation_softmax(desc: ActivationSoftmax, x: Array) -> Array:
    return _softmax(x, (x.ndim - 1,))


def activation_log_softmax1(desc: ActivationLogSoftmax1, x: Array) -> Scaled:
    return _log_softmax(x, desc.axes)


def activation_log_softmax(desc: ActivationLogSoftmax, x: Array) -> Scaled:
    return _log_softmax(x, (x.ndim - 1,))
