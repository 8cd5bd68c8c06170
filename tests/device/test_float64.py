"""Arithmetic with 64-bit floats, which DirectML does not have: every door but ``directml`` takes them.

The references are numpy's long doubles, whose error is a small part of a float64's last place where they have 64 bits of
significand or more; elsewhere they are float64 themselves, and the tolerance has one ULP more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import AxisDirection, ReduceFunction, RoundingMode, TensorDataType, TensorDesc, eager
from dmlvk.spec import ops
from dmlvk.verify.cases.model import generator
from dmlvk.verify.oracle import snake_case

Array = NDArray[Any]
COUNT = 1 << 12
LONG = np.longdouble
WITHIN = 0.01 if np.finfo(LONG).nmant > 60 else 1.0
"""What a long double's own error adds, in ULP."""
TINY = float(np.finfo(np.float64).tiny)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 3.5, -2.5, 1e308, -1e308, 1e-300])


@pytest.fixture(autouse=True)
def where_there_are_doubles(device: dmlvk.Device) -> Iterator[None]:
    if "float64" not in device.capabilities.features:
        pytest.skip("the device does not compute with 64-bit floats")
    with np.errstate(all="ignore"):
        yield


def run(row: type[ops.OperatorDesc], *arrays: Array, **attributes: Any) -> Array:
    return np.asarray(getattr(eager, snake_case(row.__name__))(*arrays, **attributes))


def any_numbers(row: object, least: float, most: float) -> Array:
    """float64 of every sign, their exponents to base 10 spread over an interval; and special values."""
    rng = generator("float64", row)
    return np.concatenate([SPECIAL, rng.choice([-1.0, 1.0], COUNT) * 10 ** rng.uniform(least, most, COUNT)])


def check(actual: Array, expected: Array, ulp: float) -> None:
    """Holds results to a tolerance; subnormal ones a device may take for 0."""
    wanted = expected.astype(np.float64)
    counts = np.isfinite(wanted) & (np.abs(wanted) >= TINY)
    same = (actual == wanted) | (np.isnan(actual) & np.isnan(wanted)) | ((np.abs(wanted) < TINY) & (np.abs(actual) < TINY))
    assert actual.dtype == np.float64
    assert same[~counts].all(), (actual[~counts & ~same][:4], wanted[~counts & ~same][:4])
    errors = np.abs(actual.astype(LONG) - expected)[counts] / np.spacing(np.abs(wanted[counts]))
    assert errors.max(initial=0) <= ulp + WITHIN, f"{errors.max()} at {wanted[counts][errors.argmax()]!r}"


def each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Of a function of Python's, whose own error is within half an ULP of a float64."""
    return lambda x: np.array([function(float(item)) for item in x], LONG)


# fmt: off
FUNCTIONS: list[tuple[type[ops.OperatorDesc], Callable[[Array], Array], float, float, float]] = [
    # operator, reference, exponents of the numbers, tolerance in ULP
    (ops.ElementWiseExp,       np.exp,                                     -6,   2.85, 1),
    (ops.ElementWiseLog,       np.log,                                     -307, 308,  1),
    (ops.ElementWiseSin,       np.sin,                                     -8,   15,   1),
    (ops.ElementWiseCos,       np.cos,                                     -8,   15,   1),
    (ops.ElementWiseTan,       np.tan,                                     -8,   15,   2.5),
    (ops.ElementWiseAsin,      np.arcsin,                                  -8,   0,    1),
    (ops.ElementWiseAcos,      np.arccos,                                  -8,   0,    1),
    (ops.ElementWiseAtan,      np.arctan,                                  -8,   8,    2),
    (ops.ElementWiseSinh,      np.sinh,                                    -8,   2.85, 3),
    (ops.ElementWiseCosh,      np.cosh,                                    -8,   2.85, 2),
    (ops.ElementWiseTanh,      np.tanh,                                    -8,   1.5,  3),
    (ops.ElementWiseAsinh,     np.arcsinh,                                 -8,   300,  3),
    (ops.ElementWiseAcosh,     np.arccosh,                                 0,    300,  3),
    (ops.ElementWiseAtanh,     np.arctanh,                                 -8,   0,    3),
    (ops.ElementWiseErf,       each(math.erf),                             -8,   1,    3),
    (ops.ElementWiseSqrt,      np.sqrt,                                    -300, 300,  0.5),
    (ops.ElementWiseRecip,     lambda x: 1 / x,                            -300, 300,  0.5),
    (ops.ActivationSigmoid,    lambda x: 1 / (1 + np.exp(-x)),             -8,   2.85, 3),
    (ops.ActivationSoftplus,   lambda x: np.logaddexp(x, LONG(0)),         -8,   2.85, 2),
    (ops.ActivationSoftsign,   lambda x: x / (1 + np.abs(x)),              -8,   8,    1.5),
    (ops.ActivationElu,        lambda x: np.where(x >= 0, x, np.expm1(x)), -8,   2.85, 2),
]
# fmt: on


@pytest.mark.parametrize(
    ("row", "function", "least", "most", "ulp"), FUNCTIONS, ids=[item[0].__name__ for item in FUNCTIONS]
)
def test_functions(
    row: type[ops.OperatorDesc], function: Callable[[Array], Array], least: float, most: float, ulp: float
) -> None:
    x = any_numbers(row, least, most)
    if row is ops.ActivationSoftsign:
        x = x[np.isfinite(x)]
    y = run(row, x)
    check(y, function(x.astype(LONG)), ulp)
    assert y.tobytes() == run(row, x).tobytes()


def test_gelu_far_below_zero() -> None:
    """Where x is far below 0, the result is x times erfc to all its digits; 1 + erf is 0 there."""
    wanted = {
        -37.0: -2.1184613523340935e-298,
        -25.1: -6.24151707251339e-138,
        -10.7: -5.44513461487923e-26,
        -5.3: -3.068771041181235e-07,
        -1.1: -0.14923266704102092,
        -0.3: -0.1146265733433142,
        0.7: 0.5306254434438489,
        2.9: 2.8945891414288862,
    }
    check(run(ops.ActivationGelu, np.array(list(wanted))), np.array(list(wanted.values())), 6)


@pytest.mark.parametrize(
    ("x", "sine"),
    [
        (1e22, -0.8522008497671888),
        (6381956970095103.0 * 2.0**797, 1.0),  # the double that is nearest to an odd multiple of pi/2
        (1.7976931348623157e308, 0.0049619549),
        (355.0, -3.0144353359488449e-5),
    ],
)
def test_angles_of_any_size(x: float, sine: float) -> None:
    assert float(run(ops.ElementWiseSin, np.array([x]))[0]) == pytest.approx(sine, rel=1e-7 if abs(sine) < 0.01 else 1e-15)
    if sine == 1.0:
        assert float(run(ops.ElementWiseCos, np.array([x]))[0]) == pytest.approx(-4.687165924254624e-19, rel=1e-15)


@pytest.mark.parametrize(
    ("mode", "function"),
    [
        (RoundingMode.HALVES_TO_NEAREST_EVEN, np.rint),
        (RoundingMode.TOWARD_ZERO, np.trunc),
        (RoundingMode.TOWARD_INFINITY, lambda x: np.copysign(np.floor(np.abs(x)) + (np.abs(x) % 1 >= 0.5), x)),
    ],
)
def test_whole_numbers_of_any_size(mode: RoundingMode, function: Callable[[Array], Array]) -> None:
    """Fractions of numbers beyond 2^24 and 2^31, where whole numbers of 32 bits end, and halves at each size."""
    powers = 2.0 ** np.array([0, 1, 23, 24, 30, 31, 32, 40, 50])
    x = np.concatenate(
        [*(powers + part for part in (-0.75, -0.5, 0.25, 0.5, 0.75, 1.5)), 2.0**52 - np.array([0.5, 1.5]), SPECIAL]
    )
    x = np.concatenate([x, -x, [0.5 - 2**-54]])
    np.testing.assert_array_equal(run(ops.ElementWiseRound, x, rounding_mode=mode), function(x))


EXACT: list[tuple[type[ops.OperatorDesc], Callable[[Array, Array], Array]]] = [
    (ops.ElementWiseAdd, np.add),
    (ops.ElementWiseSubtract, np.subtract),
    (ops.ElementWiseMultiply, np.multiply),
    (ops.ElementWiseDivide, np.divide),
    (ops.ElementWiseMax, np.maximum),
    (ops.ElementWiseMin, np.minimum),
    (ops.ElementWiseModulusTruncate, np.fmod),
    (ops.ElementWiseModulusFloor, np.mod),
]


@pytest.mark.parametrize(("row", "function"), EXACT, ids=lambda item: item.__name__)
def test_exact_results(row: type[ops.OperatorDesc], function: Callable[[Array, Array], Array]) -> None:
    a, b = (any_numbers((row, name), -150, 150)[:64] for name in "ab")
    a, b = (array.ravel() for array in np.meshgrid(a, b))
    check(run(row, a, b), function(a, b), 0)


def test_powers() -> None:
    a, b = (array.ravel() for array in np.meshgrid(SPECIAL, SPECIAL))
    check(run(ops.ElementWisePow, a, b), np.power(a, b), 1.5)
    a, b = np.abs(any_numbers("base", -3, 3)[SPECIAL.size :]), generator("exponent").uniform(-90, 90, COUNT)
    check(run(ops.ElementWisePow, a, b), np.power(a.astype(LONG), b.astype(LONG)), 1)
    check(run(ops.ElementWiseConstantPow, a, exponent=0.1), np.power(a.astype(LONG), LONG(0.1)), 1)


def test_comparisons_predicates_and_casts() -> None:
    x = np.concatenate([SPECIAL, [5e-324, -5e-324, 2.5e-324 + TINY]])
    a, b = (array.ravel() for array in np.meshgrid(x, x))
    for row, function in (
        (ops.ElementWiseLogicalEquals, np.equal),
        (ops.ElementWiseLogicalLessThan, np.less),
        (ops.ElementWiseLogicalGreaterThanOrEqual, np.greater_equal),
    ):
        np.testing.assert_array_equal(run(row, a, b), function(a, b))
    np.testing.assert_array_equal(run(ops.ElementWiseIsNan, x), np.isnan(x))
    below = run(ops.ElementWiseIsInfinity, x, infinity_mode=dmlvk.IsInfinityMode.NEGATIVE)
    np.testing.assert_array_equal(below, np.isneginf(x))


def test_numbers_keep_64_bits() -> None:
    """Attributes, scales and bounds are float64 where the tensors are."""
    x = np.linspace(-1, 1, 77).reshape(7, 11)
    scaled = run(ops.ElementWiseIdentity, x.T, scale_bias=dmlvk.ScaleBias(1 / 3, 0.1))
    np.testing.assert_array_equal(scaled, x.T * (1 / 3) + 0.1)
    np.testing.assert_array_equal(run(ops.ActivationLeakyRelu, x, alpha=0.1), np.where(x < 0, 0.1 * x, x))
    bounds = {"min_max_data_type": TensorDataType.FLOAT64, "min": -0.1, "max": 1 / 3}
    np.testing.assert_array_equal(run(ops.ElementWiseClip1, x, **bounds), x.clip(-0.1, 1 / 3))


REDUCTIONS: list[tuple[ReduceFunction, Callable[[Array, int], Array], float]] = [
    (ReduceFunction.SUM, lambda x, axis: x.sum(axis), 0.5),
    (ReduceFunction.AVERAGE, lambda x, axis: x.mean(axis), 1),
    (ReduceFunction.L1, lambda x, axis: np.abs(x).sum(axis), 0.75),
    (ReduceFunction.L2, lambda x, axis: np.sqrt((x * x).sum(axis)), 1),
    (ReduceFunction.LOG_SUM_EXP, lambda x, axis: np.log(np.exp(x).sum(axis)), 2),
    (ReduceFunction.MAX, lambda x, axis: x.max(axis), 0),
    (ReduceFunction.MULTIPLY, lambda x, axis: x.prod(axis), 16),
]


@pytest.mark.parametrize(("sizes", "axis"), [((5, 301), 1), ((301, 6), 0), ((2, 20001), 1)])
def test_reductions(sizes: tuple[int, ...], axis: int) -> None:
    """Numbers of one sign, whose sums lose nothing but to rounding: compensation leaves less than an ULP."""
    x = generator("reductions", sizes).uniform(0.5, 1.5, sizes)
    for function, reference, ulp in REDUCTIONS if sizes == (5, 301) else REDUCTIONS[:1]:
        own = x ** (1 / 64) if function is ReduceFunction.MULTIPLY else x
        y = run(ops.Reduce, own, function=function, axes=(axis,))
        check(y.squeeze(axis), reference(own.astype(LONG), axis), ulp)
        assert y.tobytes() == run(ops.Reduce, own, function=function, axes=(axis,)).tobytes()
    places = run(ops.Argmin, x, axes=(axis,), output_data_types=TensorDataType.INT64)
    np.testing.assert_array_equal(places.squeeze(axis), x.argmin(axis))


def test_reductions_of_special_values() -> None:
    x = np.array([[1, np.nan, 3], [np.inf, -np.inf, 0], [np.inf, 1, 2], [-np.inf] * 3, [800, -800, 799], [1e308] * 3])
    cases = ((ReduceFunction.SUM, x.sum(1)), (ReduceFunction.MAX, x.max(1)), (ReduceFunction.MULTIPLY, x.prod(1)))
    for function, wanted in cases:
        np.testing.assert_array_equal(run(ops.Reduce, x, function=function, axes=(1,)).ravel(), wanted)
    sums = run(ops.Reduce, x, function=ReduceFunction.LOG_SUM_EXP, axes=(1,)).ravel()
    np.testing.assert_allclose(sums[2:5], [np.inf, -np.inf, 800 + math.log1p(math.exp(-1))], rtol=1e-16)
    assert np.isnan(sums[0])


@pytest.mark.parametrize(("sizes", "axis", "reverse"), [((3, 701), 1, 0), ((701, 3), 0, 1), ((1, 9001), 1, 0)])
def test_running_sums_and_products(sizes: tuple[int, ...], axis: int, reverse: int) -> None:
    x = generator("scans", sizes).uniform(0.5, 1.5, sizes)
    walk = (lambda values: np.flip(values, axis)) if reverse else (lambda values: values)
    direction = AxisDirection(reverse)
    sums = run(ops.CumulativeSummation, x, axis=axis, axis_direction=direction)
    check(sums, walk(np.cumsum(walk(x.astype(LONG)), axis)), 8)
    near_one = x ** (1 / 64)
    products = run(ops.CumulativeProduct, near_one, axis=axis, axis_direction=direction)
    check(products, walk(np.cumprod(walk(near_one.astype(LONG)), axis)), 64)


def test_running_products_go_on_beyond_the_range() -> None:
    x = np.array([[1e300, 1e300, 1e-300, 1e-300, 1e-300, 2.0]])
    wanted = [[1e300, np.inf, 1e300, 1.0, 1e-300, 2e-300]]
    np.testing.assert_allclose(run(ops.CumulativeProduct, x, axis=1), wanted, rtol=4e-16)


@pytest.mark.parametrize("sizes", [(5, 7, 9), (33, 100, 65), (1, 500, 3), (70, 9, 40)])
def test_products_of_matrices(sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    rng = generator("products", sizes)
    a, b = rng.standard_normal((2, rows, depth)), rng.standard_normal((2, depth, columns))
    exact, bound = a.astype(LONG) @ b.astype(LONG), np.abs(a) @ np.abs(b)
    y = run(ops.Gemm, a, b)
    assert float((np.abs(y - exact) / bound).max()) < 2.0**-53 * (4 + depth**0.5)
    assert y.tobytes() == run(ops.Gemm, a, b).tobytes()
    c = rng.standard_normal((2, rows, columns))
    transposed = dmlvk.MatrixTransform.TRANSPOSE
    turned = run(ops.Gemm, np.swapaxes(a, 1, 2).copy(), b, c, trans_a=transposed, alpha=0.1, beta=1 / 3)
    np.testing.assert_allclose(turned, 0.1 * y + c / 3, rtol=1e-13, atol=1e-14)


def test_the_directml_door_has_directmls_types(device: dmlvk.Device) -> None:
    tensor = TensorDesc(TensorDataType.FLOAT64, (3,))
    desc = ops.ElementWiseSqrt(input_tensor=tensor, output_tensor=tensor)
    desc.validate()
    with pytest.raises(dmlvk.InvalidArgumentError, match=r"must have one of the data types FLOAT32, FLOAT16; got FLOAT64"):
        device.create_operator(desc)
