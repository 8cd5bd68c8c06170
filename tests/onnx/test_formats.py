"""Casts of every type to narrow ones, and back from all their bits; initializers of narrow types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto, helper

from dmlvk import TensorDataType, TensorDesc
from dmlvk.onnx.model import element_type, format_of
from dmlvk.spec.formats import FormatRounding, NumberFormat, Scheme
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.verify.oracle.number_format import format_cast, numbers

f32 = np.float32
OPSET = onnx.defs.onnx_opset_version()
CODES = {
    name: code
    for name, code in TensorProto.DataType.items()
    if element_type(code)[1] is not None and not (OPSET < 28 and name.startswith("FLOAT6"))
}
FLOATS = np.array([0.0, -0.0, 0.4, -0.5, 0.5, 1.5, 2.5, -3.5, 7.4, -8.5, 15.6, 100.0, 300.0, -5e4, 1e-3, 1e-9], f32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 3e38, 2.0**-127], f32)
WHOLE = np.array([0, 1, -1, 2, 3, -2, 7, 8, -8, 15, 16, 100, 127, -128, 200], np.int64)


def _type(code: int) -> np.dtype[Any]:
    dtype = element_type(code)[1]
    assert dtype is not None
    return dtype


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def _elements(dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Elements of a type, and the numbers that they are: all there are of a format, of bfloat16 every 13th."""
    kind = format_of(dtype)
    if kind is None:
        values = np.concatenate([FLOATS, SPECIAL]) if dtype.kind == "f" else np.abs(WHOLE) if dtype.kind == "u" else WHOLE
        with np.errstate(over="ignore"):
            array = values.astype(dtype)
        return array, array.astype(np.float64)
    codes = np.arange(0, 1 << kind.layout.bits, 13 if kind is NumberFormat.BFLOAT16 else 1)
    known = numbers(kind)[codes]
    if kind in (NumberFormat.INT4, NumberFormat.INT2):  # by the number: onnx 1.17 has int8 for them
        return known.astype(np.int8).astype(dtype), known
    return codes.astype(f"u{dtype.itemsize}").view(dtype), known


def _cast(x: np.ndarray, before: int, after: list[int], make_session: Any, **attributes: Any) -> list[np.ndarray]:
    nodes = [helper.make_node("Cast", ["x"], [f"y{code}"], to=code, **attributes) for code in after]
    outputs = [helper.make_tensor_value_info(f"y{code}", code, x.shape) for code in after]
    graph = helper.make_graph(nodes, "test", [helper.make_tensor_value_info("x", before, x.shape)], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = min(model.ir_version, 10)
    found = make_session(model).run(None, {"x": x})
    assert [array.dtype for array in found] == [_type(code) for code in after]
    return list(found)


def _is_whole(dtype: np.dtype[Any]) -> bool:
    kind = format_of(dtype)
    return dtype.kind in "biu" if kind is None else kind.layout.scheme is Scheme.INTEGER


def _as_format(known: np.ndarray, kind: NumberFormat, *, of_whole: bool) -> np.ndarray:
    """The bits of a format for numbers."""
    is_whole = kind.layout.scheme is Scheme.INTEGER
    if is_whole and of_whole:
        return known.astype(np.int64) & ((1 << kind.layout.bits) - 1)
    rounding = FormatRounding.UP if kind.layout.scheme is Scheme.EXPONENT else FormatRounding.NEAREST
    bits = TensorDesc(TensorDataType.UINT16 if kind.layout.bits > 8 else TensorDataType.UINT8, (1,))
    saturate = not is_whole or OPSET < 24
    with np.errstate(over="ignore"):
        desc = FormatCast(format=kind, saturate=saturate, rounding=rounding, output_tensor=bits)
        return format_cast(desc, known.astype(np.float32))


def _checked(found: np.ndarray, known: np.ndarray, *, of_whole: bool) -> None:
    """Holds a cast against what the numbers are in its type; not of floats beyond whole numbers, which ONNX leaves open."""
    kind = format_of(found.dtype)
    if kind is not None:
        expected = _as_format(known, kind, of_whole=of_whole)
        np.testing.assert_array_equal(_bits(found) & ((1 << kind.layout.bits) - 1), expected)
    elif found.dtype.kind == "b":
        np.testing.assert_array_equal(found, known != 0)
    elif found.dtype.kind == "f":
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found, known.astype(found.dtype))
    elif of_whole:
        np.testing.assert_array_equal(found, known.astype(np.int64).astype(found.dtype))
    else:
        limits = np.iinfo(found.dtype)
        fits = np.isfinite(known) & (np.trunc(known) >= float(limits.min)) & (known < float(limits.max))
        np.testing.assert_array_equal(found[fits], known[fits].astype(found.dtype))


@pytest.mark.parametrize("name", CODES)
def test_cast(name: str, make_session: Any) -> None:
    dtype = _type(CODES[name])
    x, known = _elements(dtype)
    is_narrow = format_of(dtype) is not None  # from one of numpy's types to another: test_converters.py and tests/device
    after = [code for code in CODES.values() if code != CODES[name] and (is_narrow or format_of(_type(code)) is not None)]
    for found in _cast(x, CODES[name], after, make_session):
        _checked(found, known, of_whole=_is_whole(dtype))


@pytest.mark.parametrize("name", [name for name in CODES if name.startswith("FLOAT8E") and name != "FLOAT8E8M0"])
def test_what_is_too_large(name: str, make_session: Any) -> None:
    """Infinity, or no number where there is none, if it is not to be cut."""
    x = np.concatenate([FLOATS, SPECIAL[:-1], -SPECIAL])
    kind = format_of(_type(CODES[name]))
    assert kind is not None
    (found,) = _cast(x, TensorProto.FLOAT, [CODES[name]], make_session, saturate=0)
    bits = TensorDesc(TensorDataType.UINT8, (1,))
    np.testing.assert_array_equal(_bits(found), format_cast(FormatCast(format=kind, saturate=False, output_tensor=bits), x))


@pytest.mark.parametrize("raw", [False, True])
def test_initializers_keep_their_bits(raw: bool, make_session: Any) -> None:
    codes = np.array([[0x38, 0xB8, 0x01], [0x7E, 0x40, 0xC4]], np.uint8)
    weights = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT8E4M3FN, dims=codes.shape)
    if raw:
        weights.raw_data = codes.tobytes()
    else:
        weights.int32_data.extend(codes.reshape(-1).tolist())
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["y"])],
        "test",
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, codes.shape)],
        [weights],
    )
    session = make_session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    (found,) = session.run(None, {"s": np.array(0.5, f32)})
    np.testing.assert_array_equal(found, np.array([[1, -1, 2**-9], [448, 2, -3]], f32) / 2)
