"""Casts between all types, powers, choices, means and gradients, against numpy, Python's integers and PyTorch."""

from __future__ import annotations

import math
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from crossed import crossed
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType, eager
from dmlvk.spec import ops
from dmlvk.verify.cases.model import NUMPY_TYPES, generator
from dmlvk.verify.check import ulp_errors

Array = NDArray[Any]
TYPES = {data_type.name: NUMPY_TYPES[data_type] for data_type in ops.Cast.fields[0].data_types}


def cast(x: Array, name: str) -> Array:
    return np.asarray(eager.cast(x, output_data_types=TensorDataType[name]))


def same(actual: Array, expected: Array) -> bool:
    """Whether all bits agree, the sign of 0 included; any NaN equals any NaN."""
    bits = f"u{expected.itemsize}"
    nan = (np.isnan(actual) & np.isnan(expected)) if expected.dtype.kind == "f" else np.zeros(expected.shape, bool)
    return actual.dtype == expected.dtype and bool(np.all((actual.view(bits) == expected.view(bits)) | nan))


def edges(kind: np.dtype[Any]) -> Array:
    """Numbers around every limit and every rounding of another type, and any bits."""
    rng = generator("edges", kind)
    bits = rng.integers(0, 2 ** (8 * kind.itemsize), 2000, dtype=np.uint64, endpoint=False).astype(f"u{kind.itemsize}")
    anything = bits.view(kind)
    if kind.kind != "f":
        info = np.iinfo(kind)
        near = [sign * 2**n + offset for n in range(65) for offset in range(-3, 4) for sign in (1, -1)]
        # Halfway between two floats of 24 bits, and one beside it: what a second rounding gets wrong.
        near += [((2 * int(rng.integers(2**23, 2**24)) + 1) << n) + offset for n in range(40) for offset in (-1, 0, 1)]
        fitting = np.array([value for value in near if info.min <= value <= info.max], kind)
        return np.concatenate([fitting, anything, anything >> rng.integers(0, 8 * kind.itemsize, 2000).astype(kind)])
    ends, parts = (7, 8, 15, 16, 24, 31, 32, 53, 63, 64), (31, 32, 63, 64, 0, -14, -24, -25, -126, -149)
    limits = [2.0**n + offset for n in ends for offset in (-1, -0.5, 0, 0.5, 1)]
    beside = [2.0**n * (1 + sign * 2.0**-k) for n in parts for k in (11, 12, 23, 24, 25, 40, 52) for sign in (1, -1)]
    ties = [1 + j * 2.0**-k + tiny for j in (1, 3) for k in (11, 24) for tiny in (-(2.0**-52), 0.0, 2.0**-52)]
    special = [
        0.0,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
        65504,
        65519.99,
        65520,
        3.4028235e38,
        3.4028236e38,
        1e300,
        5e-324,
        -1e-310,
    ]
    with np.errstate(over="ignore"):
        known = np.array([*limits, *beside, *ties, *special]).astype(kind)
        spread = (rng.standard_normal(2000) * np.exp2(rng.uniform(-160, 130, 2000))).astype(kind)
        return np.concatenate([known, -known, spread, anything])


def converted(x: Array, kind: np.dtype[Any]) -> Array:
    """numpy's conversion, where it is defined; float to integer by Python's integers."""
    with np.errstate(all="ignore"):
        if x.dtype.kind != "f" or kind.kind == "f":
            return x.astype(kind)
    info = np.iinfo(kind)
    bounded = [
        0 if math.isnan(v) else info.max if v > info.max else info.min if v < info.min else int(v) for v in x.tolist()
    ]
    return np.array(bounded, kind)


@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_every_cast_is_numpys_to_the_last_bit(device: dmlvk.Device, source: str, target: str) -> None:
    x = edges(TYPES[source])
    actual, expected = cast(x, target), converted(x, TYPES[target])
    assert same(actual, expected), [(v, p, q) for v, p, q in zip(x, actual, expected, strict=True) if p != q][:5]


def test_casts_agree_with_torch(device: dmlvk.Device, torch: ModuleType) -> None:
    rng = generator("torch casts")
    for source in ("int64", "int32", "int8", "uint8", "float64", "float32"):
        x = np.trunc(rng.standard_normal(1000) * 100).clip(0, 127).astype(source)
        for target in ("float16", "float32", "float64", "int64", "int32", "int16", "int8", "uint8"):
            expected = torch.from_numpy(x).to(getattr(torch, target)).numpy()
            assert same(cast(x, target.upper()), expected), (source, target)


@pytest.mark.quick
def test_a_64_bit_integer_is_rounded_once(device: dmlvk.Device) -> None:
    # Through float64 the first would become a tie, and round down to even.
    x = np.array([2**60 + 2**36 + 1, 2**60 + 2**36, 2**60 + 3 * 2**36, -(2**60) - 2**36 - 1], np.int64)
    expected = [2**60 + 2**37, 2**60, 2**60 + 2**38, -(2**60) - 2**37]
    assert cast(x, "FLOAT32").tolist() == expected
    assert cast(np.array([2**53 + 1, 2**53 + 3], np.uint64), "FLOAT64").tolist() == [2**53, 2**53 + 4]


@pytest.mark.quick
def test_a_double_is_rounded_to_float16_once(device: dmlvk.Device) -> None:
    # Through float32 the first would become a tie, and round down to even.
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-40, 65520 - 2.0**-30, 65520])
    assert cast(x, "FLOAT16").tolist() == [1 + 2.0**-10, 1.0, 1.0, 65504.0, np.inf]


def test_a_cast_reads_and_writes_any_strides(device: dmlvk.Device) -> None:
    x = generator("strides").integers(-1000, 1000, (6, 50, 7)).astype(np.int16)
    for view in (x[:, ::3, 1:], x.transpose(2, 0, 1), np.broadcast_to(x[:, :1], x.shape)):
        for name in ("UINT8", "FLOAT64", "INT64", "FLOAT16"):
            assert same(cast(view, name), view.astype(TYPES[name]))


# -- powers


def integer_power(base: int, exponent: int, bits: int, *, signed: bool) -> int:
    """The power's low bits; a negative one as a quotient toward zero, 0 for that of 0."""
    whole = pow(base, exponent, 2**bits) if exponent >= 0 else 0
    value = whole if exponent >= 0 or base == 0 else math.trunc(Fraction(base) ** exponent)
    value %= 2**bits
    return value - 2**bits if signed and value >= 2 ** (bits - 1) else value


@pytest.mark.parametrize(
    ("kind", "exponents"),
    crossed(["int32", "uint32", "int16", "uint8"], ["int32", "uint32", "int8", "uint16", "float32", "float16"]),
)
def test_whole_powers_of_integers_are_exact(device: dmlvk.Device, kind: str, exponents: str) -> None:
    info = np.iinfo(kind)
    bases = [0, 1, 2, 3, 5, 7, 10, 46341, info.max, info.max - 1, *((-1, -2, -3, info.min) if info.min else ())]
    powers = [0, 1, 2, 3, 5, 8, 31, 32, 33, 64, *((-1, -2, -3) if np.dtype(exponents).kind != "u" else ())]
    pairs = [(base, power) for base in bases if base <= info.max for power in powers]
    x, e = np.array([p for p, _ in pairs], kind), np.array([q for _, q in pairs], exponents)
    bits, signed = 8 * x.itemsize, info.min < 0
    result = eager.element_wise_pow(x, e)
    assert result.dtype == x.dtype
    assert result.tolist() == [integer_power(base, power, bits, signed=signed) for base, power in pairs]


@pytest.mark.parametrize(
    ("exponents", "power"),
    [
        ("int32", 2**31 - 1),
        ("int32", 2**24 + 1),
        *(("float32", 2.0**n + extra) for n, extra in ((32, 512), (40, 0), (60, 0), (100, 0))),
    ],
)
def test_huge_whole_powers_of_integers(device: dmlvk.Device, exponents: str, power: float) -> None:
    x = np.array([3, -3, 2, -1, 1, 5], np.int32)
    expected = [integer_power(base, int(power), 32, signed=True) for base in x.tolist()]
    assert eager.element_wise_pow(x, np.full(6, power, exponents)).tolist() == expected


def test_broken_powers_of_integers_are_cast(device: dmlvk.Device) -> None:
    x = np.array([4, 9, 2, 10, -4, 0, 0, 2, 1, 2, -1], np.int32)
    e = np.array([0.5, 1.5, 0.5, 9.5, 0.5, 0.5, -0.5, np.inf, np.nan, np.nan, np.inf], np.float32)
    largest = 2**31 - 1
    assert eager.element_wise_pow(x, e).tolist() == [2, 27, 1, largest, 0, 0, largest, largest, 1, 0, 1]


def test_integer_exponents_keep_their_parity(device: dmlvk.Device) -> None:
    x = np.array([-1.0, -1.0, -2.0, -0.0, -0.0, -np.inf, np.nan, np.nan], np.float32)
    e = np.array([2**24 + 1, 2**31 - 2, 2**24 + 1, 2**24 + 1, -(2**24) - 1, 3, 0, 1], np.int32)
    result = eager.element_wise_pow(x, e)
    assert same(result, np.array([-1, 1, -np.inf, -0.0, -np.inf, -np.inf, 1, np.nan], np.float32))


@pytest.mark.parametrize(
    ("kind", "exponents"),
    crossed(["float32", "float16"], ["float32", "float16", "int32", "int16", "int8", "uint32", "uint16", "uint8"]),
)
def test_powers_of_floats(device: dmlvk.Device, kind: str, exponents: str) -> None:
    rng = generator("powers", kind, exponents)
    e = (rng.uniform(-8, 8, 5000) if np.dtype(exponents).kind != "u" else rng.uniform(0, 16, 5000)).astype(exponents)
    x = rng.uniform(-3, 3, 5000).astype(kind)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), e.astype(np.float64))
    errors = ulp_errors(eager.element_wise_pow(x, e), expected, 2.0**-102 if kind == "float32" else 0.0)
    assert errors.max() <= (1 if kind == "float32" else 0.52), (x[errors.argmax()], e[errors.argmax()])


@pytest.mark.parametrize("layout", ["packed", "transposed", "broadcast"])
def test_exponents_of_narrow_types_in_any_layout(device: dmlvk.Device, layout: str) -> None:
    x = generator("narrow").integers(0, 20, (11, 37)).astype(np.uint16)
    for kind in (np.uint8, np.int16, np.float16):
        e = generator("exponents").integers(0, 4, (11, 37)).astype(kind)
        if layout == "transposed":
            e = np.ascontiguousarray(e.T).T
        elif layout == "broadcast":
            e = np.broadcast_to(e[:, 1:2], x.shape)
        assert np.array_equal(eager.element_wise_pow(x, e), x ** e.astype(np.uint16))


# -- choices


@pytest.mark.parametrize("kind", TYPES.values(), ids=str)
def test_a_choice_moves_bits(device: dmlvk.Device, kind: np.dtype[Any]) -> None:
    rng = generator("choice", kind)
    shape = (5, 67)
    a, b = (rng.integers(0, 256, (5, 67 * kind.itemsize), np.uint8).view(kind) for _ in range(2))
    condition = rng.integers(0, 2, shape).astype(np.uint8) * rng.integers(1, 256, shape).astype(np.uint8)
    bits = f"u{kind.itemsize}"
    expected = np.where(condition != 0, a.view(bits), b.view(bits))
    assert np.array_equal(eager.element_wise_if(condition, a, b).view(bits), expected)
    column, row = condition[:, :1], np.ascontiguousarray(b[:1])
    spread = eager.element_wise_if(np.broadcast_to(column, shape), a, np.broadcast_to(row, shape))
    assert np.array_equal(spread.view(bits), np.where(column != 0, a.view(bits), row.view(bits)))


# -- means and gradients


def test_a_mean_rounds_toward_zero_and_never_overflows(device: dmlvk.Device) -> None:
    for kind in (np.int32, np.uint32):
        info = np.iinfo(kind)
        values = [0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1, *((-1, -2, -3) if info.min else ())]
        a, b = (x.ravel() for x in np.meshgrid(np.array(values, kind), np.array(values, kind)))
        expected = [math.trunc(Fraction(p + q, 2)) for p, q in zip(a.tolist(), b.tolist(), strict=True)]
        assert eager.element_wise_mean(a, b).tolist() == expected
    large = np.array([3e38, -3.4e38, 3e38, 1e-40], np.float32)
    other = np.array([3.4e38, -3.4e38, -3e38, 1e38], np.float32)
    assert np.allclose(eager.element_wise_mean(large, other), [3.2e38, -3.4e38, 0, 5e37], rtol=1e-7)


def test_gradients_agree_with_torch(device: dmlvk.Device, torch: ModuleType) -> None:
    rng = generator("gradients")
    x, dy = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    x[:2] = [0.0, -0.0]
    for function, result in (
        (torch.relu, eager.activation_relu_grad(x, dy)),
        (lambda t: torch.clamp(t, -0.5, 1.25), eager.element_wise_clip_grad(x, dy, min=-0.5, max=1.25)),
    ):
        leaf = torch.from_numpy(x).clone().requires_grad_()
        function(leaf).backward(torch.from_numpy(dy))
        assert np.array_equal(result, leaf.grad.numpy())


def test_gradients_at_the_bounds_and_of_nan(device: dmlvk.Device) -> None:
    least = float(np.finfo(np.float32).smallest_subnormal)
    x = np.array([-1.0, 2.0, np.nan, 0.0, least, -least, np.inf, -np.inf], np.float32)
    dy = np.full(8, 5, np.float32)
    assert eager.element_wise_clip_grad(x, dy, min=-1.0, max=2.0).tolist() == [0, 0, 5, 5, 5, 5, 0, 0]
    assert eager.element_wise_clip_grad(x, dy, min=0.0, max=2.0).tolist() == [0, 0, 5, 0, 5, 0, 0, 0]
    assert eager.activation_relu_grad(x, dy).tolist() == [0, 5, 0, 0, 5, 0, 5, 0]


# -- ValueScale2d


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("area", [(1, 1), (3, 5), (16, 8)])
def test_a_channel_may_start_anywhere(device: dmlvk.Device, channels: int, kind: type[Any], area: tuple[int, int]) -> None:
    x = generator("image").integers(-8, 8, (2, channels, *area)).astype(kind)
    bias = (0.5, -0.25, 4.0)[:channels]
    expected = 2.5 * x + np.array(bias, kind).reshape(-1, 1, 1)
    for image in (x, np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
        assert np.array_equal(eager.value_scale_2d(image, scale=2.5, bias=bias), expected)


def test_a_bias_serves_one_channel(device: dmlvk.Device) -> None:
    for channels, bias in ((3, (1.0,)), (2, (1.0, 2.0)), (3, (1.0, 2.0, math.nan))):
        with pytest.raises(dmlvk.InvalidArgumentError, match=r"VALUE_SCALE_2D\.Bias: "):
            eager.value_scale_2d(np.zeros((1, channels, 2, 2), np.float32), bias=bias)
