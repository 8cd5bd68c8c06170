"""Formats that no tensor has: every combination of bits read, numbers of every exponent written, any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.kernels.lowering import possible_rules
from dmlvk.spec.formats import FormatRounding, NumberFormat, Scheme
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import run
from dmlvk.verify.oracle.number_format import format_cast, numbers

F32, F16, U8, U16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8, TensorDataType.UINT16
Array = NDArray[Any]


def _bits_type(format_: NumberFormat) -> TensorDataType:
    return U16 if format_.layout.bits > 8 else U8


def _run(device: dmlvk.Device, desc: FormatCast, x: Array) -> Array:
    source, target = GuardedTensor(desc.tensor("input_tensor"), 0), GuardedTensor(desc.tensor("output_tensor"), 0)
    source.view()[...] = x
    return target.view(run(device, Problem(desc, (source,), (target,))).buffers[0])


def _floats() -> Array:
    """Of every exponent of 8-bit floats, and the ends: whole and half steps of up to 7 bits, their neighbours, random ones;
    both signs."""
    halves = np.array([[half - 1, half, half + 1] for half in 1 << np.arange(15, 23)]).reshape(-1)
    mantissas = np.concatenate([[0, 1, 2**23 - 1], halves, halves | 1 << 22, np.random.default_rng(1).integers(0, 2**23, 5)])
    exponents = np.concatenate([np.arange(4), np.arange(95, 150), np.arange(250, 256)])
    bits = (exponents[:, None] << 23 | mantissas).reshape(-1)
    steps = np.arange(-40, 41) / 4  # of whole numbers, and what leaves low bits
    more = np.concatenate([steps, [1e5 + 3, -1e5 - 3, 2.0**24 + 2, 2.0**31, 1e10]]).astype(np.float32)
    return np.concatenate([np.concatenate([bits, bits | 1 << 31]).astype(np.uint32).view(np.float32), more])


FLOATS = _floats()


@pytest.mark.parametrize("format_", NumberFormat, ids=lambda format_: format_.name)
def test_every_combination_of_bits(device: dmlvk.Device, format_: NumberFormat) -> None:
    kind = _bits_type(format_)
    codes = np.arange(1 << (16 if kind is U16 else 8))
    for target in (F32, F16):
        desc = FormatCast(
            input_tensor=TensorDesc(kind, codes.shape), output_tensor=TensorDesc(target, codes.shape), format=format_
        )
        with np.errstate(over="ignore"):
            expected = format_cast(desc, codes).astype(np.float32 if target is F32 else np.float16)
        found = _run(device, desc, codes)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found) & ~np.isnan(found), np.signbit(expected) & ~np.isnan(expected))


def _ways() -> list[tuple[NumberFormat, bool, FormatRounding]]:
    return [
        (format_, saturate, rounding)
        for format_ in NumberFormat
        for saturate in (False, True)
        for rounding in FormatRounding
        if rounding is FormatRounding.NEAREST or format_.layout.scheme is Scheme.EXPONENT
    ]


@pytest.mark.parametrize("way", _ways(), ids=lambda way: f"{way[0].name}-{way[1]}-{way[2].name}")
def test_floats_become_the_nearest(device: dmlvk.Device, way: tuple[NumberFormat, bool, FormatRounding]) -> None:
    format_, saturate, rounding = way
    fields: dict[str, Any] = {"format": format_, "saturate": saturate, "rounding": rounding}
    line = TensorDesc(F32, FLOATS.shape)
    desc = FormatCast(input_tensor=line, output_tensor=TensorDesc(_bits_type(format_), FLOATS.shape), **fields)
    desc.validate()
    expected = format_cast(desc, FLOATS)
    found = _run(device, desc, FLOATS)
    differ = found != expected
    assert not differ.any(), [found[differ][:8], expected[differ][:8], FLOATS[differ][:8]]
    rounded = _run(device, FormatCast(input_tensor=line, output_tensor=line, **fields), FLOATS)
    np.testing.assert_array_equal(rounded, numbers(format_)[expected].astype(np.float32))


def test_float16_is_rounded_once(device: dmlvk.Device) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    tensors = {"input_tensor": TensorDesc(F16, x.shape), "output_tensor": TensorDesc(U8, x.shape)}
    desc = FormatCast(**tensors, format=NumberFormat.FLOAT8E4M3FN)
    np.testing.assert_array_equal(_run(device, desc, x), format_cast(desc, x))


@pytest.mark.parametrize("sizes", [(3, 64), (5, 7)], ids=["groups", "elements"])
def test_rules_and_strides(device: dmlvk.Device, sizes: tuple[int, int]) -> None:
    x = FLOATS[: sizes[0] * sizes[1]].reshape(sizes)
    whole = TensorDesc(U16, sizes)
    turned = TensorDesc(F32, sizes, (1, sizes[0]))
    for tensor in (TensorDesc(F32, sizes), turned):
        desc = FormatCast(input_tensor=tensor, output_tensor=whole, format=NumberFormat.BFLOAT16)
        assert possible_rules(desc, device.capabilities) == ["groups", "elements"]
        np.testing.assert_array_equal(_run(device, desc, x), format_cast(desc, x))


BROKEN: dict[str, dict[str, Any]] = {
    "bits of both": {"input_tensor": TensorDesc(U8, (4,))},
    "too many bits": {"output_tensor": TensorDesc(U16, (4,))},
    "floats of two types": {"output_tensor": TensorDesc(F16, (4,))},
    "rounded up": {"rounding": FormatRounding.UP},
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_refused(changes: dict[str, Any]) -> None:
    desc = FormatCast(input_tensor=TensorDesc(F32, (4,)), output_tensor=TensorDesc(U8, (4,)), format=NumberFormat.FLOAT8E5M2)
    desc.validate()
    with pytest.raises(dmlvk.InvalidArgumentError, match="FormatCast"):
        desc.replace(**changes).validate()
