"""Activations in float64, from their formulas; integers exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import FieldKind, OperatorDesc
from dmlvk.spec.tensor import cast_scalar

Array = NDArray[Any]

error_function = np.vectorize(math.erf, otypes=[np.float64])
_complement = np.vectorize(math.erfc, otypes=[np.float64])


def _gelu(x: Array) -> Array:
    """0.5 x erfc(-x / sqrt(2)). The complement's argument is known to more digits than a float64 has, because its last one
    counts for the square of x times as much; what it lacks is added by the slope."""
    exact = -x.astype(np.longdouble) / np.sqrt(np.longdouble(2))
    t = exact.astype(np.float64)
    slope = -2 / math.sqrt(math.pi) * np.exp(-t * t)
    lacking = np.where(np.isfinite(t), (exact - t).astype(np.float64), 0.0)
    return np.asarray(0.5 * x * (_complement(t) + slope * lacking))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


FORMULAS: dict[type[OperatorDesc], Callable[..., Array]] = {
    ops.ActivationElu: lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(x)),
    ops.ActivationCelu: lambda x, alpha: np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x / alpha)),
    ops.ActivationGelu: _gelu,
    ops.ActivationHardSigmoid: lambda x, alpha, beta: np.maximum(0, np.minimum(alpha * x + beta, 1)),
    ops.ActivationHardSwish: lambda x, alpha, beta: x * np.maximum(0, np.minimum(alpha * x + beta, 1)),
    ops.ActivationIdentity: lambda x: x,
    ops.ActivationLeakyRelu: lambda x, alpha: np.where(x >= 0, x, alpha * x),
    ops.ActivationLinear: lambda x, alpha, beta: alpha * x + beta,
    ops.ActivationParametricSoftplus: lambda x, alpha, beta: alpha * _softplus(beta * x),
    ops.ActivationRelu: lambda x: np.maximum(x, 0),
    ops.ActivationScaledElu: lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(x)),
    ops.ActivationScaledTanh: lambda x, alpha, beta: alpha * np.tanh(beta * x),
    ops.ActivationShrink: lambda x, bias, threshold: np.where(
        x > threshold, x - bias, np.where(x < -threshold, x + bias, np.where(np.isnan(x), x, 0))
    ),
    ops.ActivationSigmoid: _sigmoid,
    ops.ActivationSoftplus: lambda x, steepness: _softplus(steepness * x) / steepness,
    ops.ActivationSoftsign: lambda x: x / (1 + np.abs(x)),
    ops.ActivationSwish: lambda x, scale: x * _sigmoid(scale * x),
    ops.ActivationTanh: np.tanh,
    ops.ActivationThresholdedRelu: lambda x, alpha: np.where((x > alpha) | np.isnan(x), x, 0),
    ops.ElementWiseClip: lambda x, low, high: np.maximum(low, np.minimum(x, high)),
}
"""The unary activations: float64 values and the float attributes."""


def activated(activation: OperatorDesc, x: Array, kind: type[np.floating[Any]] = np.float32) -> Array:
    """A fused activation applied to float64 values, its attributes rounded to the type that holds them: float32, as in the
    struct, but where tensors are FLOAT64."""
    numbers = [getattr(activation, field.name) for field in activation.fields if field.kind is FieldKind.FLOAT]
    return FORMULAS[type(activation)](x, *(float(kind(number)) for number in numbers))


def _floats(desc: OperatorDesc, x: Array) -> Array:
    is_double = desc.tensor("input_tensor").data_type is TensorDataType.FLOAT64
    return activated(desc, x.astype(np.float64), np.float64 if is_double else np.float32)


activation_elu = activation_celu = activation_gelu = activation_identity = activation_leaky_relu = _floats
activation_hard_sigmoid = activation_hard_swish = activation_linear = activation_parametric_softplus = _floats
activation_scaled_elu = activation_scaled_tanh = activation_sigmoid = activation_softplus = _floats
activation_softsign = activation_swish = activation_tanh = activation_thresholded_relu = _floats


def activation_relu(desc: OperatorDesc, x: Array) -> Array:
    return _floats(desc, x) if x.dtype.kind == "f" else np.maximum(x, 0)


def activation_shrink(desc: Any, x: Array) -> Array:
    if x.dtype.kind == "f":
        return _floats(desc, x)
    bias, threshold = (int(cast_scalar(number, desc.input_tensor.data_type)) for number in (desc.bias, desc.threshold))
    wide = x.astype(np.int64)  # of 32 bits at most
    return np.where(wide > threshold, wide - bias, np.where(wide < -threshold, wide + bias, 0)).astype(x.dtype)


def activation_parameterized_relu(desc: OperatorDesc, x: Array, slope: Array) -> Array:
    if x.dtype.kind == "f":
        x, slope = x.astype(np.float64), slope.astype(np.float64)
    return np.where(x < 0, slope * x, x)
