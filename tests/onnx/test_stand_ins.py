"""Types that converters do not know: bfloat16 goes through them as float32, rounded after each node, products read its bits,
and what only moves keeps its bits, two to a byte too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlvk.onnx import SessionOptions
from dmlvk.onnx.model import element_type

BF16, F32 = TensorProto.BFLOAT16, TensorProto.FLOAT
Node = onnx.NodeProto


def _type(code: int) -> np.dtype[Any]:
    dtype = element_type(code)[1]
    assert dtype is not None
    return dtype


def rounded(x: Any) -> np.ndarray:
    """To bfloat16, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def narrow(x: np.ndarray) -> np.ndarray:
    return (rounded(x).view(np.uint32) >> 16).astype(np.uint16).view(_type(BF16))


def wide(x: np.ndarray) -> np.ndarray:
    return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _model(
    nodes: list[Node],
    inputs: dict[str, tuple[int, tuple[int, ...]]],
    outputs: dict[str, int],
    weights: Any = (),
    opset: int = 21,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, code, sizes) for name, (code, sizes) in inputs.items()],
        [helper.make_tensor_value_info(name, code, None) for name, code in outputs.items()],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _known(values: dict[str, list[int]]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.array(item, np.int64), name) for name, item in values.items()]


def _numbers(*sizes: int, seed: int = 0) -> np.ndarray:
    return rounded(np.random.default_rng(seed).standard_normal(sizes))


def test_each_node_rounds(make_session: Any) -> None:
    """Of what is read twice nothing is widened twice, and between nodes nothing is narrowed: one chain rounds in between,
    and makes the bits of the last."""
    x, y = _numbers(5, 64), _numbers(5, 64, seed=1)
    nodes = [
        helper.make_node("Add", ["x", "y"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("Div", ["b", "y"], ["z"]),
    ]
    session = make_session(_model(nodes, {"x": (BF16, x.shape), "y": (BF16, y.shape)}, {"z": BF16}))
    (found,) = session.run(None, {"x": narrow(x), "y": narrow(y)})
    assert found.dtype == _type(BF16)
    np.testing.assert_array_equal(wide(found), rounded(rounded(rounded(x + y) * x) / y))
    assert session.report().dispatches == 3


def test_products_and_what_moves_between_them(make_session: Any) -> None:
    x, w = _numbers(4, 8), _numbers(6, 8, seed=1)
    weights = helper.make_tensor("w", BF16, w.shape, narrow(w).view(np.uint16).tobytes(), raw=True)
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"]),
        helper.make_node("Slice", ["s", "from", "to"], ["p"]),
        helper.make_node("Concat", ["p", "x"], ["z"], axis=1),
    ]
    places = [
        numpy_helper.from_array(np.array(values, np.int64), name) for name, values in (("from", [0, 1]), ("to", [4, 5]))
    ]
    model = _model(nodes, {"x": (BF16, x.shape)}, {"m": BF16, "z": BF16}, [weights, *places])
    m, z = make_session(model).run(None, {"x": narrow(x)})
    product = wide(m)
    np.testing.assert_allclose(product, rounded(x.astype(np.float64) @ w.T), rtol=2**-7)
    powers = np.exp(product - product.max(-1, keepdims=True))
    expected = np.concatenate([(powers / powers.sum(-1, keepdims=True))[:, 1:5], x], axis=1)
    np.testing.assert_allclose(wide(z), rounded(expected), rtol=2**-7)


@pytest.mark.parametrize("rows", [1, 24])
def test_products_read_and_write_bits(rows: int, make_session: Any) -> None:
    """Nothing is widened but the bias, once, and what products read takes two bytes a number."""
    x, b = _numbers(rows, 64), _numbers(48)
    weights = {"v": _numbers(64, 48, seed=1), "w": _numbers(48, 40, seed=2), "u": _numbers(40, 8, seed=3), "b": b}
    tensors = [
        helper.make_tensor(name, BF16, own.shape, narrow(own / 8).view(np.uint16).tobytes(), raw=True)
        for name, own in weights.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["n"]),
        helper.make_node("MatMul", ["n", "u"], ["z"]),
    ]
    model = _model(nodes, {"x": (BF16, x.shape)}, {"z": BF16}, tensors)
    session, plain = make_session(model), make_session(model, options=SessionOptions(without_passes=("all",)))
    (found,), (expected,) = (own.run(None, {"x": narrow(x)}) for own in (session, plain))
    np.testing.assert_allclose(wide(found), wide(expected), atol=float(np.abs(wide(expected)).max()) * 2**-6)
    assert [step.operator.partition("(")[0] for step in session.report().steps if not step.runs_once] == [
        "FormatGemm",
        "PointwiseChain",
        "FormatGemm",
        "FormatGemm",
    ]


def test_what_is_no_bfloat16_stays(make_session: Any) -> None:
    """Comparisons give bools, statistics are float32 where they are said to be, and casts are exact."""
    x = _numbers(3, 8)
    nodes = [
        helper.make_node("LayerNormalization", ["x", "s"], ["y", "mean"]),
        helper.make_node("Greater", ["x", "s"], ["g"]),
        helper.make_node("Where", ["g", "x", "s"], ["w"]),
        helper.make_node("EyeLike", ["g"], ["e"], dtype=BF16),
    ]
    weights = [helper.make_tensor("s", BF16, (8,), np.full(8, 0x3F80, np.uint16).tobytes(), raw=True)]
    outputs = {"mean": F32, "g": TensorProto.BOOL, "w": BF16, "e": BF16}
    mean, g, w, e = make_session(_model(nodes, {"x": (BF16, x.shape)}, outputs, weights)).run(None, {"x": narrow(x)})
    assert (mean.dtype, g.dtype) == (np.float32, np.bool_)
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(g, x > 1)
    np.testing.assert_array_equal(wide(w), np.where(x > 1, x, 1))
    np.testing.assert_array_equal(wide(e), np.eye(3, 8))


MOVED = {
    "bfloat16": (BF16, 2**16),
    "float8": (TensorProto.FLOAT8E4M3FN, 256),
    "int4": (TensorProto.INT4, 16),
    "uint4": (TensorProto.UINT4, 16),
}


@pytest.mark.parametrize("name", MOVED)
def test_bits_are_moved(name: str, make_session: Any) -> None:
    code, count = MOVED[name]
    x = np.random.default_rng(2).integers(0, count, (3, 5))
    dtype = _type(code)
    array = (
        np.where(x > 7, x - 16, x).astype(np.int8).astype(dtype)
        if name == "int4"
        else x.astype(f"u{dtype.itemsize}").view(dtype)
    )
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("Pad", ["r", "pads"], ["z"]),
        helper.make_node("Identity", ["x"], ["i"]),
    ]
    known = _known({"shape": [15], "pads": [1, 2]})
    z, i = make_session(_model(nodes, {"x": (code, x.shape)}, {"z": code, "i": code}, known)).run(None, {"x": array})
    assert z.dtype == i.dtype == dtype
    bits = f"u{dtype.itemsize}"
    np.testing.assert_array_equal(i.view(bits), array.view(bits))
    np.testing.assert_array_equal(z.view(bits), np.pad(array.view(bits).T.reshape(-1), (1, 2)))


def test_scales_of_bfloat16(make_session: Any) -> None:
    """Of tensors of another type, too, and for blocks of which the last is not full, with zero points of 4 bits."""
    x, scale = _numbers(3, 8), np.abs(_numbers(3, 3, seed=1)) + 0.25
    zero = np.array([[-8, 0, 7]] * 3, np.int8)
    block = {"axis": 1, "block_size": 3}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **block),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **block),
        helper.make_node("Cast", ["q"], ["i"], to=TensorProto.INT8),
    ]
    scale = rounded(scale)
    known = [
        helper.make_tensor("s", BF16, scale.shape, narrow(scale).tobytes(), raw=True),
        helper.make_tensor("z", TensorProto.INT4, zero.shape, zero.reshape(-1).tolist()),
    ]
    outputs = {"y": BF16, "i": TensorProto.INT8}
    y, i = make_session(_model(nodes, {"x": (BF16, x.shape)}, outputs, known)).run(None, {"x": narrow(x)})
    scales, zeros = (np.repeat(array, 3, axis=1)[:, :8] for array in (scale, zero.astype(np.float32)))
    expected = np.clip(np.rint(x / scales) + zeros, -8, 7)
    np.testing.assert_array_equal(i, expected)
    np.testing.assert_array_equal(wide(y), rounded((expected - zeros) * scales))
