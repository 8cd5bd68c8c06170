"""Cases of the optimizers: every way that tensors lie, steps from the first to the last, and rates at their ends."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, OperatorCases, Tolerance, constant, normal, uniform

_TENSORS: Final = ("input_parameters_tensor", "input_first_moment_tensor", "input_second_moment_tensor", "gradient_tensor")


def _special(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Zeros, ordinary numbers, infinities and NaN, but none whose square overflows float32 and not float64."""
    return rng.choice(np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 60000.0], NUMPY_TYPES[data_type]), sizes)


def _special_squares(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    return np.abs(_special(rng, sizes, data_type))


def _adam(name: str, sizes: tuple[int, ...], step: int, *, special: bool = False, **more: Any) -> Case:
    flags = {key: more.pop(key) for key in ("quick", "layouts") if key in more}
    return Case(
        name,
        {**dict.fromkeys(_TENSORS, sizes), "training_step_tensor": (1, 1, 1, 1)},
        {"learning_rate": 0.01, **more},
        data_types={"training_step_tensor": T.UINT32},
        domains={
            "": _special if special else normal,
            "input_second_moment_tensor": _special_squares if special else uniform(0, 4),
            "training_step_tensor": constant(step),
        },
        **flags,
    )


CASES: Final = (
    OperatorCases(
        ops.AdamOptimizer,
        # At the size of the terms of each sum: the parameters have the errors of two expm1 (2 ULP each), two square roots,
        # two quotients and three products. 5.3 seen over a million values; the moments have 1.7. Of FLOAT16 there is the
        # rounding of the result and little else.
        {T.FLOAT32: Tolerance(6), T.FLOAT16: Tolerance(0.52)},
        (
            _adam("first step", (2, 3, 5, 7), 1, quick=True),
            _adam("a row of whole groups", (3, 5, 4, 8), 10),
            _adam("more than a workgroup", (1, 1, 7, 331), 117, layouts=False),
            _adam("one element", (1, 1, 1, 1), 2),
            _adam("no step", (2, 3, 5, 7), 0, layouts=False, quick=True),
            _adam("a late step", (1, 3, 5, 7), 2**32 - 1, layouts=False),
            _adam("rates of nothing", (1, 3, 5, 7), 3, beta1=0.0, beta2=0.0, layouts=False),
            _adam("rates of almost everything", (1, 3, 5, 7), 7, beta1=1 - 2.0**-24, beta2=1 - 2.0**-23, layouts=False),
            _adam("a large epsilon and a step back", (1, 3, 5, 7), 5, learning_rate=-2.0, epsilon=0.25, layouts=False),
            _adam("special values", (2, 7, 11, 13), 4, special=True, layouts=False),
        ),
    ),
)
