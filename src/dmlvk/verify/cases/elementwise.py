"""Cases of the elementwise operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import RoundingMode
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.schema import FLOATS, OperatorDesc, ScaleBias
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance, normal, special, uniform

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
    bitwise = (ops.ElementWiseIdentity, ops.ActivationIdentity, ops.ElementWiseModulusTruncate, ops.ElementWiseSign)
    return special if operator in bitwise else without_subnormals


def ratios(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Operands whose quotient has from no to all bits: normal values times powers of two over half the type's range."""
    values = normal(rng, sizes, data_type)
    if values.dtype.kind != "f":
        return values
    reach = 60 if data_type is T.FLOAT32 else 7
    return np.ldexp(values, rng.integers(-reach, reach, sizes)).astype(values.dtype)


def near_powers_of_two(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Numbers at and next to powers of two, where ranges end, and around the middle between two numbers of a shorter type;
    special values among them."""
    kind = NUMPY_TYPES[data_type]
    bits = 8 * kind.itemsize
    if kind.kind == "f":
        offset = rng.choice(np.array([-1.0, 0.0, 1.0, 3.0]), sizes) * np.exp2(-rng.integers(1, 53, sizes))
        tiny = rng.choice(np.array([-1.0, 0.0, 1.0]), sizes) * 2.0**-50
        exponents = np.where(rng.random(sizes) < 0.8, rng.integers(-27, 66, sizes), rng.integers(-152, 130, sizes))
        with np.errstate(over="ignore"):
            values = np.ldexp(rng.choice(np.array([-1.0, 1.0]), sizes) * (1 + offset + tiny), exponents).astype(kind)
    else:
        leading = rng.integers(0, bits, sizes).astype(kind)
        values = (kind.type(1) << leading) + ((kind.type(1) << leading) >> rng.integers(1, 28, sizes).astype(kind))
        values += rng.integers(-1, 2, sizes).astype(kind)
    return np.where(rng.random(sizes) < 0.2, special(rng, sizes, data_type), values)


def half_of(domain: Domain) -> Domain:
    """The domain's values, but 0 in half of the places."""

    def values(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
        return np.where(rng.random(sizes) < 0.5, domain(rng, sizes, data_type), NUMPY_TYPES[data_type].type(0))

    return values


def whole(low: int, high: int) -> Domain:
    """Whole numbers from low to high, those of them that the type has, in any type."""

    def values(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
        kind = NUMPY_TYPES[data_type]
        return rng.integers(max(low, 0) if kind.kind == "u" else low, high, sizes, endpoint=True).astype(kind)

    return values


def halves(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Multiples of a half from -1 to 4."""
    return (rng.integers(-2, 8, sizes, endpoint=True) / 2).astype(NUMPY_TYPES[data_type])


def binary(operator: type[OperatorDesc], tolerance: dict[T, Tolerance], *domains: Domain) -> OperatorCases:
    """Every shape with normal values; special values and each further domain on one shape with a tail."""
    inputs = input_names(operator)
    cases = [Case(name, dict.fromkeys(inputs, sizes), quick=name == QUICK) for name, sizes in _shapes(operator)]
    for domain in (special_values(operator), *domains):
        sizes = dict.fromkeys(inputs, (3, 7, 29))
        cases.append(Case(domain.__name__, sizes, domains={"": domain}, layouts=operator in THOROUGH))
    return OperatorCases(operator, tolerance, tuple(cases), every_rule=operator in THOROUGH)


def unary(
    operator: type[OperatorDesc],
    tolerance: dict[T, Tolerance],
    domain: Domain = normal,
    *variants: Mapping[str, object],
    **attributes: object,
) -> OperatorCases:
    """Every shape with values of the domain, special values, and variants of the attributes (a ScaleBias, if any)."""
    (name,) = input_names(operator)
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
    return OperatorCases(operator, tolerance, tuple(cases), every_rule=operator in THOROUGH)


def coarse(domain: Domain) -> Domain:
    """The domain's floats as multiples of 1/32, of which sums and products with round attributes are exact: otherwise
    their rounding would be measured, enlarged by the function's slope, and not the function."""

    def values(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
        result = domain(rng, sizes, data_type)
        return np.round(result * 32) / result.dtype.type(32) if result.dtype.kind == "f" else result

    return values


def _shapes(operator: type[OperatorDesc]) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, sizes) for name, sizes in SHAPES.items() if name == QUICK or operator in THOROUGH]


def input_names(operator: type[OperatorDesc]) -> list[str]:
    return [field.name for field in operator.fields if field.kind.is_input]


def floats(float32: float, float16: float) -> dict[T, Tolerance]:
    """Tolerances of the floating types in ULP. A subnormal float32 result may be flushed to 0, so no ULP is smaller than
    that of 2^24 times the least normal number; float16 is computed in float32, where its subnormals are normal.

    FLOAT64 takes the steps of FLOAT32 in float64 and has its tolerance, with one ULP more: here the oracle is no better than
    float64 either, and numpy's own functions are off by up to one. What is correctly rounded is so in both.
    (tests/device/test_float64.py holds the functions to long doubles.)"""
    tiny, tiny64 = (float(np.finfo(kind).tiny) for kind in (np.float32, np.float64))
    return {
        T.FLOAT64: Tolerance(float32 if float32 <= 0.5 else float32 + 1, 2.0**53 * tiny64),
        T.FLOAT32: Tolerance(float32, 2.0**24 * tiny),
        T.FLOAT16: Tolerance(float16),
    }


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

CONDITION: Final = {"condition_tensor": T.UINT8}
SELECTED: Final = ("condition_tensor", "a_tensor", "b_tensor")


def power_cases() -> tuple[Case, ...]:
    """Every type of base in its own type's exponents; every type of exponent with a float and an integer base."""
    shape = dict.fromkeys(("input_tensor", "exponent_tensor"), (3, 67))
    quick = dict.fromkeys(shape, SHAPES[QUICK])
    small = {"input_tensor": uniform(0, 3), "exponent_tensor": whole(-3, 9)}
    wide = {"input_tensor": uniform(0.01, 30), "exponent_tensor": uniform(-20, 20)}
    low_bits = {"input_tensor": whole(-5, 9), "exponent_tensor": whole(-3, 40)}
    roots = {"input_tensor": whole(0, 16), "exponent_tensor": halves}
    biased = {"input_tensor": coarse(uniform(0, 5)), "exponent_tensor": whole(0, 4)}
    return (
        Case(QUICK, quick, domains=small, layouts=False, quick=True),
        Case("any layout", quick, domains=small, only=(T.FLOAT32, T.UINT8)),
        Case("any exponents", shape, domains=wide, layouts=False, only=FLOATS),
        Case("special", shape, domains={"": without_subnormals}, layouts=False, only=FLOATS),
        Case("scale and bias", shape, {"scale_bias": ScaleBias(0.75, 0.3125)}, domains=biased, layouts=False),
        *(
            Case(
                f"whole exponents of {exponent.name}",
                shape,
                data_types={"exponent_tensor": exponent},
                domains=low_bits,
                layouts=False,
                only=(T.FLOAT16, T.INT32),
            )
            for exponent in ops.ElementWisePow.fields[1].data_types
        ),
        *(
            Case(
                f"halves of {exponent.name}",
                shape,
                data_types={"exponent_tensor": exponent},
                domains=roots,
                layouts=False,
                only=(T.INT16, T.UINT32),
            )
            for exponent in FLOATS
        ),
    )


CAST_TYPES: Final = ops.Cast.fields[0].data_types


CASES: Final = (
    unary(ops.ElementWiseIdentity, {}),
    unary(ops.ElementWiseAbs, {}),
    unary(ops.ElementWiseAcos, floats(1, 0.52), uniform(-1, 1)),
    unary(ops.ElementWiseAcosh, floats(4, 0.52), uniform(1, 20)),
    unary(ops.ElementWiseAsin, floats(1, 0.52), uniform(-1, 1)),
    unary(ops.ElementWiseAsinh, floats(4, 0.52), uniform(-20, 20)),
    unary(ops.ElementWiseAtan, floats(4, 0.52), uniform(-8, 8)),
    unary(ops.ElementWiseAtanh, floats(3, 0.52), uniform(-1, 1)),
    unary(ops.ElementWiseCeil, {}),
    unary(
        ops.ElementWiseConstantPow,
        floats(1.2, 0.52),
        normal,
        *({"exponent": exponent} for exponent in (2.0, 0.5, -1.0, -2.5, 0.0, 1e9)),
        exponent=3.0,
    ),
    unary(ops.ElementWiseCos, floats(1, 0.52), uniform(-100, 100)),
    unary(ops.ElementWiseCosh, floats(2, 0.52), uniform(-11, 11)),
    unary(ops.ElementWiseErf, floats(5, 0.52)),
    unary(ops.ElementWiseExp, floats(2, 0.52), uniform(-20, 20)),
    unary(ops.ElementWiseFloor, {}),
    unary(ops.ElementWiseLog, floats(2, 0.52), uniform(0.01, 100)),
    unary(ops.ElementWiseNegate, {}),
    unary(ops.ElementWiseRecip, floats(3, 0.52)),
    unary(ops.ElementWiseRound, {}, coarse(uniform(-5, 5)), *({"rounding_mode": mode} for mode in RoundingMode)),
    unary(ops.ElementWiseSign, {}),
    unary(ops.ElementWiseSin, floats(1, 0.52), uniform(-100, 100)),
    unary(ops.ElementWiseSinh, floats(2, 0.52), uniform(-11, 11)),
    unary(ops.ElementWiseSqrt, floats(3, 0.52), uniform(0, 100)),
    unary(ops.ElementWiseTan, floats(4, 0.52), uniform(-100, 100)),
    unary(ops.ElementWiseTanh, floats(5, 0.52)),
    unary(ops.ElementWiseThreshold, {}, normal, {"min": -1.75}, min=0.25),
    binary(ops.ElementWiseAtanYx, floats(4, 0.52)),
    binary(ops.ElementWiseAdd, ROUNDED),
    binary(ops.ElementWiseSubtract, ROUNDED),
    binary(ops.ElementWiseMultiply, ROUNDED),
    binary(ops.ElementWiseDivide, floats(3, 0.52)),
    binary(ops.ElementWiseDifferenceSquare, floats(2, 0.52)),
    binary(ops.ElementWiseMax, {}),
    binary(ops.ElementWiseMean, ROUNDED),
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
        every_rule=False,
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
        every_rule=False,
    ),
    OperatorCases(
        ops.Cast,
        {},
        (
            *(
                Case(
                    f"to {output.name}",
                    {"input_tensor": (3, 7, 29)},
                    data_types={"output_tensor": output},
                    domains={"": near_powers_of_two},
                    layouts=False,
                    quick=output in (T.FLOAT16, T.INT64),
                )
                for output in CAST_TYPES
            ),
            *(
                Case(
                    f"to {output.name} in any layout",
                    {"input_tensor": SHAPES[QUICK]},
                    data_types={"output_tensor": output},
                    only=(T.FLOAT64, T.INT16, T.UINT8),
                )
                for output in (T.FLOAT16, T.INT32)
            ),
        ),
    ),
    OperatorCases(
        ops.ElementWiseIf,
        {},
        (
            Case(
                QUICK,
                dict.fromkeys(SELECTED, SHAPES[QUICK]),
                data_types=CONDITION,
                domains={"condition_tensor": half_of(normal)},
                quick=True,
            ),
            Case(
                "rows of whole words",
                dict.fromkeys(SELECTED, (4, 528)),
                data_types=CONDITION,
                domains={"condition_tensor": half_of(normal), "": special},
                layouts=False,
            ),
        ),
        ops.ElementWiseIf.fields[1].data_types,
    ),
    OperatorCases(ops.ElementWisePow, floats(1.2, 0.52), power_cases()),
    OperatorCases(
        ops.ValueScale2d,
        floats(1, 0.52),
        tuple(
            Case(
                f"{len(bias)} channels of {height}x{width}",
                {"input_tensor": (2, len(bias), height, width)},
                {"scale": 1.5, "bias": bias},
            )
            for bias in ((0.25,), (-0.5, 0.0, 3.25))
            for height, width in ((5, 7), (16, 32))
        ),
    ),
)
