"""bfloat16 and 8-bit floats: every byte read, and float32 numbers of every exponent written, against onnx's own bit by bit
conversion; and initializers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from onnx import TensorProto, helper

from dmlvk.onnx.model import element_type

f32, f16 = np.float32, np.float16
BYTES = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ)


def _type(code: int) -> np.dtype[Any]:
    dtype = element_type(code)[1]
    assert dtype is not None
    return dtype


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def _cast(x: np.ndarray, before: int, after: int, make_session: Any, **attributes: int) -> np.ndarray:
    node = helper.make_node("Cast", ["x"], ["y"], to=after, **attributes)
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info("x", before, x.shape)],
        [helper.make_tensor_value_info("y", after, x.shape)],
    )
    session = make_session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    (found,) = session.run(None, {"x": x})
    assert [record.op_type for record in session.report().gpu_nodes] == ["Cast"]
    assert found.dtype == _type(after)
    return found


def _numbers() -> np.ndarray:
    """Numbers of every exponent: mantissas at and around the middles between narrow numbers, and random ones; both signs."""
    rng = np.random.default_rng(1)
    middles = np.array([[half - 1, half, half + 1] for half in (1 << np.arange(15, 23))]).reshape(-1)
    mantissas = np.concatenate(
        [[0, 1, 2**23 - 1], middles, *(middles | 1 << bit for bit in range(19, 23)), rng.integers(0, 2**23, 40)]
    )
    bits = (np.arange(256)[:, None] << 23 | mantissas).reshape(-1).astype(np.uint32)
    return np.concatenate([bits, bits | 1 << 31]).astype(np.uint32).view(f32)


def _written(x: float, code: int, saturate: bool) -> int:
    """onnx's conversion. Just past the largest number it contradicts the table of Cast's definition, which has infinity
    there, or no number where there is none: it cuts 480 to 496 down to 448, and says of 61440 to 65536 that it is none."""
    if not saturate and code == TensorProto.FLOAT8E4M3FN and abs(x) > 464:
        return 0x7F if x > 0 else 0xFF
    if not saturate and code == TensorProto.FLOAT8E5M2 and abs(x) >= 61440:
        return 0x7C if x > 0 else 0xFC
    fn, uz = code != TensorProto.FLOAT8E5M2, code in (TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ)
    if code in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ):
        return onnx.helper.float32_to_float8e4m3(x, fn=fn, uz=uz, saturate=saturate)
    return onnx.helper.float32_to_float8e5m2(x, fn=fn, uz=uz, saturate=saturate)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("code", BYTES, ids=TensorProto.DataType.Name)
@pytest.mark.filterwarnings("ignore")
def test_written_bytes(code: int, saturate: int, make_session: Any) -> None:
    x = _numbers()
    x = x[~np.isnan(x)]
    found = _bits(_cast(x, TensorProto.FLOAT, code, make_session, saturate=saturate))
    wanted = np.array([_written(number, code, bool(saturate)) for number in x], np.uint8)
    differ = found != wanted
    assert not differ.any(), [found[differ][:8], wanted[differ][:8], x[differ][:8]]


@pytest.mark.parametrize("code", BYTES, ids=TensorProto.DataType.Name)
def test_what_is_no_number(code: int, make_session: Any) -> None:
    found = _bits(_cast(np.array([np.nan, -np.nan], f32), TensorProto.FLOAT, code, make_session))
    uz = code in (TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ)
    np.testing.assert_array_equal(found, [0x80, 0x80] if uz else [0x7F, 0xFF])


@pytest.mark.parametrize("code", BYTES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("after", [TensorProto.FLOAT, TensorProto.FLOAT16], ids=TensorProto.DataType.Name)
def test_read_bytes(after: int, code: int, make_session: Any) -> None:
    codes = np.arange(256, dtype=np.uint8)
    found = _cast(codes.view(_type(code)), code, after, make_session)
    fn, uz = code != TensorProto.FLOAT8E5M2, code in (TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ)
    e4 = code in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ)
    read = onnx.numpy_helper.float8e4m3_to_float32 if e4 else onnx.numpy_helper.float8e5m2_to_float32
    wanted = np.array([read(np.array(int(number)), fn=fn, uz=uz) for number in codes], f32)
    np.testing.assert_array_equal(found, wanted.astype(found.dtype))


def test_bfloat16_both_ways(make_session: Any) -> None:
    x = _numbers()
    found = _bits(_cast(x, TensorProto.FLOAT, TensorProto.BFLOAT16, make_session))
    wanted = np.array([onnx.helper.float32_to_bfloat16(number) for number in x], np.uint16)
    np.testing.assert_array_equal(found, wanted)
    codes = np.arange(65536, dtype=np.uint16)
    numbers = _cast(codes.view(_type(TensorProto.BFLOAT16)), TensorProto.BFLOAT16, TensorProto.FLOAT, make_session)
    np.testing.assert_array_equal(_bits(numbers), codes.astype(np.uint32) << 16)


def test_from_one_narrow_type_to_another(make_session: Any) -> None:
    """bfloat16 to bytes, with float32 between them."""
    numbers = np.array([1.0, -3.1, 448.0, 1e5, 2.0**-9], f32)
    x = (numbers.view(np.uint32) >> 16).astype(np.uint16).view(_type(TensorProto.BFLOAT16))
    found = _bits(_cast(x, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, make_session))
    cut = ((numbers.view(np.uint32) >> 16) << 16).astype(np.uint32).view(f32)
    np.testing.assert_array_equal(found, [onnx.helper.float32_to_float8e4m3(number) for number in cut])


@pytest.mark.parametrize("raw", [False, True])
def test_initializers_keep_their_bits(raw: bool, make_session: Any) -> None:
    codes = np.array([[0x38, 0xB8, 0x01], [0x7E, 0x40, 0xC4]], np.uint8)
    values: Any = (
        codes.tobytes() if raw else [float(onnx.numpy_helper.float8e4m3_to_float32(np.array(int(c)))) for c in codes.flat]
    )
    weights = helper.make_tensor("w", TensorProto.FLOAT8E4M3FN, codes.shape, values, raw=raw)
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["y"])
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, codes.shape)],
        [weights],
    )
    session = make_session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    (found,) = session.run(None, {"s": np.array(0.5, f32)})
    np.testing.assert_array_equal(found, np.array([[1, -1, 2**-9], [448, 2, -3]], f32) / 2)
