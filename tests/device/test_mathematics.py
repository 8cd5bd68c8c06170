"""The mathematical functions over the whole of their ranges: dense accuracy, special values, exact results.

The references are float64 functions, whose own error is far below a float32's last place; the sine, cosine and tangent
among them, which must know pi to many digits for a large argument, are checked with those digits. Each test prints the
largest error it saw, and holds it to the tolerance that the operator's cases state.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import eager
from dmlvk.spec import ops
from dmlvk.spec.enums import RoundingMode, TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import generator
from dmlvk.verify.check import ulp_errors
from dmlvk.verify.oracle import oracle, snake_case

Array = NDArray[Any]
Function = Callable[[Array], Array]
COUNT = 1 << 17
LEAST_NORMAL = float(np.finfo(np.float32).tiny)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """The references meet infinities and NaN on purpose."""
    with np.errstate(all="ignore"):
        yield


def run(operator: type[OperatorDesc], *arrays: Array, **attributes: object) -> Array:
    return np.asarray(getattr(eager, snake_case(operator.__name__))(*arrays, **attributes))


def any_bits(*key: object) -> Array:
    """float32 values of every size and sign, infinities and NaN among them, but no subnormals, which a device may flush."""
    values = generator(*key).integers(0, 2**32, COUNT, dtype=np.uint32).view(np.float32)
    values[:4] = np.inf, -np.inf, np.nan, 0.0
    return np.where(np.abs(values) < LEAST_NORMAL, np.float32(0), values)


def neighbours(*centres: float) -> Array:
    """The 256 floats on either side of each centre."""
    bits = np.array(centres, np.float32).view(np.int32)[:, None] + np.arange(-256, 257, dtype=np.int32)
    return bits.view(np.float32).ravel()


def check(operator: type[OperatorDesc], actual: Array, expected: Array, *inputs: Array) -> None:
    """Holds the errors to the operator's stated tolerance and prints the largest."""
    kind = TensorDataType.FLOAT16 if actual.dtype == np.float16 else TensorDataType.FLOAT32
    tolerance = all_cases()[operator].tolerance[kind]
    errors = ulp_errors(actual, expected, tolerance.magnitude)
    worst = int(errors.argmax())
    print(f"{operator.__name__} {kind.name}: at most {errors[worst]:.3f} ULP")
    where = [float(x.ravel()[worst]) for x in inputs]
    assert errors[worst] <= tolerance.ulp, f"{errors[worst]} ULP at {where}: {actual[worst]!r}, expected {expected[worst]!r}"


def of_finite(function: Callable[[float], float]) -> Function:
    """A function of math over an array, NaN where it refuses an infinity."""
    return np.vectorize(lambda x: function(x) if math.isfinite(x) else math.nan, otypes=[np.float64])


CIRCULAR: dict[type[OperatorDesc], Callable[[float], float]] = {
    ops.ElementWiseSin: math.sin,
    ops.ElementWiseCos: math.cos,
    ops.ElementWiseTan: math.tan,
}


@pytest.mark.parametrize("operator", CIRCULAR)
def test_circular_functions_of_any_float(device: dmlvk.Device, operator: type[OperatorDesc]) -> None:
    rng = generator("angles")
    quadrants = np.concatenate([np.arange(20000), rng.integers(0, 2**40, 20000), 2 ** np.arange(60)])
    near_zeros = (quadrants * (math.pi / 2)).astype(np.float32)
    hardest = np.array([16367173.0 * 2.0**72, 1.0e38, 3.4028235e38, 6143.9995, 6144.0], np.float32)
    x = np.concatenate([any_bits("angles"), near_zeros, hardest, rng.uniform(-10000, 10000, COUNT).astype(np.float32)])
    check(operator, run(operator, x), of_finite(CIRCULAR[operator])(x.astype(np.float64)), x)


def pi(digits: int) -> decimal.Decimal:
    """The digits of pi by Machin's formula: pi / 4 = 4 atan(1 / 5) - atan(1 / 239)."""

    def arctangent(divisor: int) -> int:
        power, total, term = 10 ** (digits + 10) // divisor, 0, 1
        while power:
            total += power // term if term % 4 == 1 else -(power // term)
            power //= divisor**2
            term += 2
        return total

    return decimal.Decimal(4 * (4 * arctangent(5) - arctangent(239))).scaleb(-digits - 10)


@pytest.mark.parametrize("x", [3.4028235e38, 16367173.0 * 2.0**72, 2.0**100, 1e22, 710.0, 6144.0])
def test_the_reference_knows_pi(x: float) -> None:
    with decimal.localcontext(prec=120):
        quadrants = round(decimal.Decimal(x) / (pi(110) / 2))
        rest = float(decimal.Decimal(x) - quadrants * pi(110) / 2)
    s, c = math.sin(rest), math.cos(rest)
    sine, cosine = ((s, c), (c, -s), (-s, -c), (-c, s))[quadrants % 4]
    for actual, expected in ((math.sin(x), sine), (math.cos(x), cosine), (math.tan(x), sine / cosine)):
        assert math.isclose(actual, expected, rel_tol=1e-14)


NEAR_ZEROS = (0.0, 0.5, -0.5, 1.0, -1.0, 0.53, 0.4375, 0.6875, 1.0001, 1.41421356, 2.0, 88.72, 89.41, 4096.0, 1e-30, 1e30)
"""Zeros of the functions and places where they are computed in another way from there on."""

ANY_FLOAT: dict[type[OperatorDesc], Function] = {
    ops.ElementWiseAcos: np.arccos,
    ops.ElementWiseAcosh: np.arccosh,
    ops.ElementWiseAsin: np.arcsin,
    ops.ElementWiseAsinh: np.arcsinh,
    ops.ElementWiseAtan: np.arctan,
    ops.ElementWiseAtanh: np.arctanh,
    ops.ElementWiseCosh: np.cosh,
    ops.ElementWiseExp: np.exp,
    ops.ElementWiseLog: np.log,
    ops.ElementWiseSinh: np.sinh,
    ops.ElementWiseTanh: np.tanh,
}


@pytest.mark.parametrize("operator", ANY_FLOAT)
def test_functions_of_any_float(device: dmlvk.Device, operator: type[OperatorDesc]) -> None:
    rng = generator("floats")
    dense = [rng.uniform(-size, size, COUNT // 2).astype(np.float32) for size in (1, 4, 100)]
    x = np.concatenate([any_bits("floats"), neighbours(*NEAR_ZEROS)[256:], *dense])
    x = np.where(np.abs(x) < LEAST_NORMAL, np.float32(0), x)
    expected = ANY_FLOAT[operator](x.astype(np.float64))
    check(operator, run(operator, x), expected, x)


HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)


def numbers(desc: OperatorDesc) -> dict[str, object]:
    return {field.name: getattr(desc, field.name) for field in desc.fields if not field.kind.is_tensor}


def named(desc: OperatorDesc) -> str:
    return " ".join([type(desc).__name__, *(str(number) for number in numbers(desc).values() if number is not None)])


FLOAT16_ACTIVATIONS: tuple[OperatorDesc, ...] = (
    ops.ActivationCelu(alpha=1.0),
    ops.ActivationElu(alpha=1.0),
    ops.ActivationGelu(),
    ops.ActivationScaledElu(),
    ops.ActivationSigmoid(),
    ops.ActivationSoftplus(steepness=1.0),
    ops.ActivationTanh(),
)
"""The activations that float16 computes in a way of its own."""

FLOAT16_DESCS: tuple[OperatorDesc, ...] = (
    *(operator() for operator in (*CIRCULAR, *ANY_FLOAT)),
    *(ops.ElementWiseRound(rounding_mode=mode) for mode in RoundingMode),
    *(ops.ElementWiseConstantPow(exponent=exponent) for exponent in (3.0, -0.5)),
    ops.ElementWiseErf(),
    ops.ElementWiseSign(),
    *FLOAT16_ACTIVATIONS,
)


@pytest.mark.parametrize("desc", FLOAT16_DESCS, ids=named)
def test_every_float16(device: dmlvk.Device, desc: OperatorDesc) -> None:
    operator = type(desc)
    reference = oracle(operator)
    assert reference is not None
    function = CIRCULAR.get(operator)
    given = desc.replace(input_tensor=TensorDesc(TensorDataType.FLOAT16, HALVES.shape))
    expected = of_finite(function)(HALVES.astype(np.float64)) if function else reference(given, HALVES)
    actual = run(operator, HALVES, **numbers(desc))
    if all_cases()[operator].tolerance:
        check(operator, actual, expected, HALVES)
    else:
        expected = expected.astype(np.float16)
        assert np.array_equal(actual, expected, equal_nan=True)
        assert np.array_equal(np.signbit(actual), np.signbit(expected)) or np.isnan(expected).any()


# That all activations agree in float32, test_elementwise.py shows.
@pytest.mark.parametrize("activation", FLOAT16_ACTIVATIONS, ids=named)
def test_fused_is_unfused_in_float16(device: dmlvk.Device, activation: OperatorDesc) -> None:
    unfused = run(type(activation), HALVES, **numbers(activation))
    fused = run(ops.ElementWiseAdd1, HALVES, np.zeros_like(HALVES), fused_activation=activation)
    assert np.array_equal(np.isnan(fused), np.isnan(unfused))
    compared = (HALVES != 0) & ~np.isnan(unfused)  # the sum of -0 and 0 is 0
    assert np.array_equal(fused[compared].view(np.uint16), unfused[compared].view(np.uint16))


@pytest.mark.parametrize("operator", [ops.ElementWiseSin, ops.ElementWiseTan, ops.ElementWiseTanh, ops.ElementWiseErf])
def test_odd_functions_are_odd_in_float16(device: dmlvk.Device, operator: type[OperatorDesc]) -> None:
    x = HALVES[:0x7C00]  # 0 and all positive numbers
    positive, negative = run(operator, x), run(operator, -x)
    assert np.array_equal(positive.view(np.uint16) ^ np.uint16(0x8000), negative.view(np.uint16))


def test_atan_of_any_two_floats(device: dmlvk.Device) -> None:
    a, b = any_bits("atan a"), any_bits("atan b")
    rng = generator("atan")
    near = (b * rng.uniform(-2, 2, COUNT)).astype(np.float32)
    near = np.where(np.abs(near) < LEAST_NORMAL, np.float32(0), near)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.4e38, 1.2e-38, -1e-30], np.float32)
    y = np.concatenate([a, near, np.repeat(special, special.size)])
    x = np.concatenate([b, b, np.tile(special, special.size)])
    expected = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    actual = run(ops.ElementWiseAtanYx, y, x)
    check(ops.ElementWiseAtanYx, actual, expected, y, x)
    ordered = ~np.isnan(expected)
    assert np.array_equal(np.signbit(actual[ordered]), np.signbit(y[ordered]))


def powers() -> tuple[Array, Array]:
    """Bases and exponents of any bits; such whose power is neither 0 nor infinite; negative bases with whole exponents."""
    rng = generator("powers")
    base, exponent = any_bits("base"), any_bits("exponent")
    positive = np.abs(any_bits("positive"))
    positive = np.where((positive > 0) & np.isfinite(positive), positive, np.float32(2))
    near_one = rng.uniform(0.5, 2, COUNT).astype(np.float32)
    near_one = np.where(near_one == 1, np.float32(2), near_one)
    target = rng.uniform(-126, 128, COUNT)
    fitting = [(target / np.log2(values.astype(np.float64))).astype(np.float32) for values in (positive, near_one)]
    special = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 2**24 + 2, 2**24 - 1], np.float32)
    bases = np.concatenate([base, positive, near_one, -near_one, np.repeat(special, special.size)])
    exponents = np.concatenate([exponent, *fitting, np.rint(fitting[1]), np.tile(special, special.size)])
    return bases, np.where(np.abs(exponents) < LEAST_NORMAL, np.float32(0), exponents)


def test_powers_of_any_floats(device: dmlvk.Device) -> None:
    bases, exponents = powers()
    expected = np.power(bases.astype(np.float64), exponents.astype(np.float64))
    actual = run(ops.ElementWisePow, bases, exponents)
    check(ops.ElementWisePow, actual, expected, bases, exponents)
    ordered = ~np.isnan(expected)
    assert np.array_equal(np.signbit(actual[ordered]), np.signbit(expected[ordered]))


def test_powers_of_whole_numbers_are_exact(device: dmlvk.Device) -> None:
    base, exponent = (grid.ravel() for grid in np.meshgrid(np.arange(-300, 301), np.arange(0, 25)))
    exact = np.abs(base.astype(np.float64) ** exponent) <= 2**24
    base, exponent = base[exact].astype(np.float32), exponent[exact].astype(np.float32)
    expected = base.astype(np.float64) ** exponent
    assert np.array_equal(run(ops.ElementWisePow, base, exponent), expected)
    for power, roots in ((0.5, np.arange(1, 4096)), (1.0, np.arange(1, 2**24, 97)), (2.0, np.arange(-4096, 4096))):
        x = (roots**2 if power == 0.5 else roots).astype(np.float32)
        wanted = roots if power == 0.5 else roots.astype(np.float64) ** power
        assert np.array_equal(run(ops.ElementWiseConstantPow, x, exponent=power), wanted)


@pytest.mark.parametrize("mode", RoundingMode)
def test_rounding_is_exact(device: dmlvk.Device, mode: RoundingMode) -> None:
    halves = np.arange(-4097, 4098, dtype=np.float32) / 2
    edges = neighbours(0.5, -0.5, 1.5, 2.5, 2.0**22, -(2.0**22), 2.0**23, -(2.0**23), 2.0**24)
    x = np.concatenate([halves, edges, any_bits("round"), np.array([-0.0, 8388607.5, 4194303.5, -0.2], np.float32)])
    desc = ops.ElementWiseRound(rounding_mode=mode)
    reference = oracle(ops.ElementWiseRound)
    assert reference is not None
    expected = reference(desc, x).astype(np.float32)
    actual = run(ops.ElementWiseRound, x, rounding_mode=mode)
    ordered = ~np.isnan(x)
    assert np.array_equal(np.isnan(actual), ~ordered)
    assert np.array_equal(actual[ordered].view(np.uint32), expected[ordered].view(np.uint32))


def test_the_sign_of_subnormals_and_nan(device: dmlvk.Device) -> None:
    x = np.array([1e-45, -1e-45, 1e-39, -0.0, 0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-38, -3.0], np.float32)
    signs = run(ops.ElementWiseSign, x)
    assert signs.tolist() == [1, -1, 1, 0, 0, 0, 0, 1, -1, 1, -1]
    assert not np.signbit(signs[3])


@pytest.mark.parametrize(
    ("operator", "x", "expected"),
    [
        (ops.ElementWiseAcos, [1, -1, 0, 1.0000001, -2, np.inf], [0, np.pi, np.pi / 2, np.nan, np.nan, np.nan]),
        (ops.ElementWiseAcosh, [1, 0.99999994, -1, 0, np.inf, -np.inf], [0, np.nan, np.nan, np.nan, np.inf, np.nan]),
        (ops.ElementWiseAsin, [1, -1, 0, 1.0000001, -np.inf], [np.pi / 2, -np.pi / 2, 0, np.nan, np.nan]),
        (ops.ElementWiseAsinh, [np.inf, -np.inf, 0, 3.4e38], [np.inf, -np.inf, 0, math.asinh(float(np.float32(3.4e38)))]),
        (ops.ElementWiseAtan, [np.inf, -np.inf, 0, 3.4e38], [np.pi / 2, -np.pi / 2, 0, np.pi / 2]),
        (ops.ElementWiseAtanh, [1, -1, 0, 1.0000001, np.inf], [np.inf, -np.inf, 0, np.nan, np.nan]),
        (ops.ElementWiseCos, [0, np.inf, -np.inf], [1, np.nan, np.nan]),
        (ops.ElementWiseCosh, [0, np.inf, -np.inf, 90, -1e30], [1, np.inf, np.inf, np.inf, np.inf]),
        (ops.ElementWiseSin, [0, np.inf, -np.inf], [0, np.nan, np.nan]),
        (ops.ElementWiseSinh, [0, np.inf, -np.inf, 90, -1e30], [0, np.inf, -np.inf, np.inf, -np.inf]),
        (ops.ElementWiseTan, [0, np.inf, -np.inf], [0, np.nan, np.nan]),
    ],
)
def test_special_values(device: dmlvk.Device, operator: type[OperatorDesc], x: list[float], expected: list[float]) -> None:
    values = np.array([*x, np.nan], np.float32)
    check(operator, run(operator, values), np.array([*expected, np.nan]), values)


ODD = (ops.ElementWiseSin, ops.ElementWiseTan, ops.ElementWiseAsin, ops.ElementWiseAtan, ops.ElementWiseSinh)


@pytest.mark.parametrize("operator", [*ODD, ops.ElementWiseAsinh, ops.ElementWiseAtanh, ops.ElementWiseTanh])
def test_odd_functions_are_odd(device: dmlvk.Device, operator: type[OperatorDesc]) -> None:
    x = np.abs(any_bits("odd"))[:4096]
    x = np.append(x[~np.isnan(x)], np.float32(0))
    x = np.where(x > 1, 1 / x, x) if operator in (ops.ElementWiseAsin, ops.ElementWiseAtanh) else x
    positive, negative = run(operator, x), run(operator, -x)
    ordered = ~np.isnan(positive)
    assert np.array_equal(positive[ordered].view(np.uint32), negative[ordered].view(np.uint32) ^ np.uint32(0x80000000))
