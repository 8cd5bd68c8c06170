"""Cases of the elementwise operators."""

from __future__ import annotations

from typing import Final

import numpy as np

from dmlvk import ops
from dmlvk.cases.model import Array, Case, Domain, OperatorCases, Tolerance, normal, special, uniform
from dmlvk.enums import TensorDataType as T
from dmlvk.schema import OperatorDesc, ScaleBias

SHAPES: Final[dict[str, tuple[int, ...]]] = {
    "one element": (1,),
    "a tail after whole words": (2, 3, 5, 7),
    "rows of whole words": (4, 528),
    "one dimension": (521,),
    "eight dimensions": (2, 1, 3, 1, 2, 2, 1, 5),
}
QUICK: Final = "a tail after whole words"
THOROUGH: Final = (ops.ElementWiseIdentity, ops.ElementWiseNegate, ops.ElementWiseModulusFloor, ops.ElementWiseAdd)
"""The operators that run every shape in every layout. The others share their kernels and differ in one line of
arithmetic, so they run one shape in every layout and all else packed."""


def without_subnormals(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """The special values but for subnormals, which Vulkan lets a device flush to 0 wherever it computes."""
    values = special(rng, sizes, data_type)
    if values.dtype.kind == "f":
        values[np.abs(values) < np.finfo(values.dtype).tiny] = 0
    return values


def special_values(operator: type[OperatorDesc]) -> Domain:
    """All special values for what moves bits or computes with them as integers; for the rest those not subnormal."""
    bitwise = (ops.ElementWiseIdentity, ops.ActivationIdentity, ops.ElementWiseModulusTruncate)
    return special if operator in bitwise else without_subnormals


def ratios(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Operands whose quotient has from no to all bits: normal values times powers of two over half the type's range."""
    values = normal(rng, sizes, data_type)
    if values.dtype.kind != "f":
        return values
    reach = 60 if data_type is T.FLOAT32 else 7
    return np.ldexp(values, rng.integers(-reach, reach, sizes)).astype(values.dtype)


def binary(operator: type[OperatorDesc], tolerance: dict[T, Tolerance], *domains: Domain) -> OperatorCases:
    """Every shape with normal values; special values and each further domain on one shape with a tail."""
    inputs = _inputs(operator)
    cases = [Case(name, dict.fromkeys(inputs, sizes), quick=name == QUICK) for name, sizes in _shapes(operator)]
    for domain in (special_values(operator), *domains):
        sizes = dict.fromkeys(inputs, (3, 7, 29))
        cases.append(Case(domain.__name__, sizes, domains={"": domain}, layouts=operator in THOROUGH))
    return OperatorCases(operator, tolerance, tuple(cases))


def unary(
    operator: type[OperatorDesc],
    tolerance: dict[T, Tolerance],
    domain: Domain = normal,
    *variants: dict[str, object],
    **attributes: object,
) -> OperatorCases:
    """Every shape with values of the domain, special values, and variants of the attributes (a ScaleBias, if any)."""
    (name,) = _inputs(operator)
    if "scale_bias" in (field.name for field in operator.fields):
        variants = (*variants, {"scale_bias": ScaleBias(0.75, 0.3125)})
    cases = [
        Case(title, {name: sizes}, attributes, domains={"": domain}, quick=title == QUICK)
        for title, sizes in _shapes(operator)
    ]
    values: Domain = special_values(operator)
    cases.append(Case(values.__name__, {name: (3, 7, 29)}, attributes, domains={"": values}, layouts=False))
    for variant in variants:
        title = ", ".join(f"{key} {value}" for key, value in variant.items())
        values = coarse(domain)
        cases.append(Case(title, {name: (3, 67)}, {**attributes, **variant}, domains={"": values}, layouts=False))
    return OperatorCases(operator, tolerance, tuple(cases))


def coarse(domain: Domain) -> Domain:
    """The domain's floats as multiples of 1/32, of which sums and products with round attributes are exact: otherwise
    their rounding would be measured, enlarged by the function's slope, and not the function."""

    def values(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
        result = domain(rng, sizes, data_type)
        return np.round(result * 32) / result.dtype.type(32) if result.dtype.kind == "f" else result

    return values


def _shapes(operator: type[OperatorDesc]) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, sizes) for name, sizes in SHAPES.items() if name == QUICK or operator in THOROUGH]


def _inputs(operator: type[OperatorDesc]) -> list[str]:
    return [field.name for field in operator.fields if field.kind.is_input]


def floats(float32: float, float16: float) -> dict[T, Tolerance]:
    """Tolerances of the floating types in ULP. A subnormal float32 result may be flushed to 0, so no ULP is smaller than
    that of 2^24 times the least normal number; float16 is computed in float32, where its subnormals are normal."""
    tiny = float(np.finfo(np.float32).tiny)
    return {T.FLOAT32: Tolerance(float32, 2.0**24 * tiny), T.FLOAT16: Tolerance(float16)}


CLIP1_BOUNDS: Final = (
    (T.FLOAT32, -0.3, 0.7),
    (T.FLOAT16, -0.25, 0.75),
    (T.INT64, -(2**62), 2**61 + 1),
    (T.INT32, -(2**30) - 1, 2**29 + 1),
    (T.INT16, -1000, 999),
    (T.INT8, -3, 5),
    (T.UINT64, 2**62 + 1, 2**63 + 2**61 + 1),
    (T.UINT32, 2**30 + 1, 2**31 + 2**29 + 1),
    (T.UINT16, 1000, 50000),
    (T.UINT8, 3, 250),
)
"""Bounds that need all of their type's bits."""

FUSABLE: Final[tuple[OperatorDesc, ...]] = (
    ops.ActivationElu(alpha=1.25),
    ops.ActivationCelu(alpha=0.75),
    ops.ActivationGelu(),
    ops.ActivationHardSigmoid(alpha=0.25, beta=0.375),
    ops.ActivationIdentity(),
    ops.ActivationLeakyRelu(alpha=0.125),
    ops.ActivationLinear(alpha=-1.5, beta=0.25),
    ops.ActivationParametricSoftplus(alpha=1.5, beta=0.75),
    ops.ActivationRelu(),
    ops.ActivationScaledElu(),
    ops.ActivationScaledTanh(alpha=1.5, beta=0.75),
    ops.ActivationShrink(bias=0.25, threshold=0.5),
    ops.ActivationSigmoid(),
    ops.ActivationSoftplus(steepness=1.5),
    ops.ActivationSoftsign(),
    ops.ActivationTanh(),
    ops.ActivationThresholdedRelu(alpha=0.5),
)
"""Every activation that may be fused, its attributes unlike the defaults."""

ROUNDED: Final = floats(0.5, 0.5)
"""Correctly rounded: half a ULP. Division and square root, and what is built on them, have room for the 2.5 ULP that
Vulkan allows them; elsewhere the figures are what lavapipe shows over a million values, rounded up."""

CASES: Final = (
    unary(ops.ElementWiseIdentity, {}),
    unary(ops.ElementWiseAbs, {}),
    unary(ops.ElementWiseCeil, {}),
    unary(ops.ElementWiseErf, floats(5, 0.52)),
    unary(ops.ElementWiseExp, floats(2, 0.52), uniform(-20, 20)),
    unary(ops.ElementWiseFloor, {}),
    unary(ops.ElementWiseLog, floats(2, 0.52), uniform(0.01, 100)),
    unary(ops.ElementWiseNegate, {}),
    unary(ops.ElementWiseRecip, floats(3, 0.52)),
    unary(ops.ElementWiseSqrt, floats(3, 0.52), uniform(0, 100)),
    unary(ops.ElementWiseTanh, floats(5, 0.52)),
    binary(ops.ElementWiseAdd, ROUNDED),
    binary(ops.ElementWiseSubtract, ROUNDED),
    binary(ops.ElementWiseMultiply, ROUNDED),
    binary(ops.ElementWiseDivide, floats(3, 0.52)),
    binary(ops.ElementWiseMax, {}),
    binary(ops.ElementWiseMin, {}),
    binary(ops.ElementWiseModulusFloor, ROUNDED, ratios),
    binary(ops.ElementWiseModulusTruncate, {}, ratios),
    unary(ops.ElementWiseClip, {}, normal, {"min": 0.0, "max": 6.0}, min=-0.5, max=1.25),
    OperatorCases(
        ops.ElementWiseClip1,
        {},
        tuple(
            Case(
                f"{data_type.name} bounds",
                {"input_tensor": (3, 67)},
                {"min_max_data_type": data_type, "min": low, "max": high},
                only=(data_type,),
            )
            for data_type, low, high in CLIP1_BOUNDS
        ),
    ),
    OperatorCases(
        ops.ElementWiseAdd1,
        floats(4, 0.52),
        tuple(
            Case(
                f"{type(activation).__name__} of the sum",
                dict.fromkeys(("a_tensor", "b_tensor"), (5, 7, 11)),
                {"fused_activation": activation},
                domains={"": coarse(normal)},
                layouts=activation is None,
                quick=activation is None,
            )
            for activation in (None, *FUSABLE)
        ),
    ),
)
