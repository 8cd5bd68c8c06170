"""Cases of the activations."""

from __future__ import annotations

from typing import Final

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.verify.cases.elementwise import binary, floats, unary
from dmlvk.verify.cases.model import Array, normal, uniform


def wide(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Floats from -12 to 12, where activations bend and saturate; integers over their full range."""
    return (uniform(-12, 12) if data_type.name.startswith("FLOAT") else normal)(rng, sizes, data_type)


CASES: Final = (
    unary(ops.ActivationElu, floats(3, 0.52), wide, {"alpha": 1.75}),
    unary(ops.ActivationCelu, floats(4, 0.52), wide, {"alpha": 0.5}, {"alpha": -2.0}),
    unary(ops.ActivationGelu, floats(10, 0.52), wide),
    unary(ops.ActivationHardSigmoid, floats(2, 0.52), wide, alpha=0.25, beta=0.375),
    unary(ops.ActivationHardSwish, floats(3, 0.52), wide, alpha=0.125, beta=0.5),
    unary(ops.ActivationIdentity, {}),
    unary(ops.ActivationLeakyRelu, floats(1, 0.52), wide, {"alpha": 0.3}),
    unary(ops.ActivationLinear, floats(2, 0.52), wide, {"alpha": -0.75, "beta": 2.5}, alpha=0.5, beta=1.0),
    binary(ops.ActivationParameterizedRelu, floats(1, 0.52)),
    unary(ops.ActivationParametricSoftplus, floats(5, 0.52), wide, {"alpha": 2.0, "beta": 0.25}, alpha=1.5, beta=1.0),
    unary(ops.ActivationRelu, {}),
    unary(ops.ActivationScaledElu, floats(4, 0.52), wide, {"alpha": 1.5, "gamma": 2.0}),
    unary(ops.ActivationScaledTanh, floats(5, 0.52), wide, {"alpha": 1.5, "beta": 0.25}),
    unary(
        ops.ActivationShrink,
        {},
        wide,
        {"bias": 3.0, "threshold": 5.0},
        {"bias": 3.0, "threshold": -128.0},  # which has no positive counterpart in INT8
        bias=1.0,
        threshold=2.0,
    ),
    unary(ops.ActivationSigmoid, floats(5, 0.52), wide),
    unary(ops.ActivationSoftplus, floats(5, 0.52), wide, {"steepness": 2.0}, {"steepness": 0.5}),
    unary(ops.ActivationSoftsign, floats(4, 0.52), wide),
    unary(ops.ActivationSwish, floats(6, 0.52), wide, {"sigmoid_input_scale": 1.75}),
    unary(ops.ActivationTanh, floats(5, 0.52), wide),
    unary(ops.ActivationThresholdedRelu, {}, wide, {"alpha": 1.5}),
)
