"""ONNX Runtime's own operators, each a model of one node: against its CPU, or where that has no kernel, against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from runtime_nodes import Array, Case, check, f16, f32, i8, i32, i64, random, u8, whole

from dmlvk.onnx.registry import MICROSOFT, ROWS


def gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def gelu_by_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def group_normalized(x: Array, groups: int, epsilon: float) -> Array:
    """Of images with their channels last."""
    grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    return normalized(grouped, (1, 3), epsilon).reshape(x.shape)


IMAGE, FILTER, BIAS = random(2, 4, 7, 9), random(6, 4, 3, 3), random(6)
PADDED = {"pads": [1, 1, 1, 1], "strides": [2, 1]}
ROWS_OF_8 = random(2, 5, 8)
GAMMA, BETA, OFFSET = random(8, seed=1), random(8, seed=2), random(8, seed=3)
PICTURE = random(2, 3, 5, 8)
WORDS = np.array([[1, 2, 0], [3, 1, 1]], i32)
TABLES = tuple(random(6, 8, seed=seed) for seed in range(3))
MASK = np.array([[1, 0, 1], [1, 1, 1]], i32)

FUSED = [
    Case("FusedConv", (IMAGE, FILTER, BIAS), {"activation": "Relu", **PADDED}),
    Case("FusedConv", (IMAGE, FILTER, BIAS, random(2, 6, 4, 9)), {"activation": "Relu", **PADDED}, label="sum-"),
    Case("FusedConv", (IMAGE, FILTER), {"activation": "Clip", "activation_params": [0.0, 6.0]}),
    Case("FusedConv", (IMAGE, FILTER), {"activation": "LeakyRelu", "activation_params": [0.3]}),
    Case("FusedConv", (IMAGE, FILTER), {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    *(Case("FusedConv", (IMAGE, FILTER), {"activation": name}) for name in ("Tanh", "Sigmoid")),
    Case(
        "NhwcConv",
        (IMAGE.transpose(0, 2, 3, 1).copy(), random(6, 4, 1, 1), BIAS),
        by_hand=lambda x, w, b: x @ w[:, :, 0, 0].T + b,
    ),
    Case(
        "NhwcFusedConv",
        (IMAGE.transpose(0, 2, 3, 1).copy(), random(6, 4, 1, 1), BIAS, random(2, 7, 9, 6)),
        {"activation": "Relu"},
        by_hand=lambda x, w, b, z: np.maximum(x @ w[:, :, 0, 0].T + b + z, 0),
    ),
    Case(
        "ConvTransposeWithDynamicPads", (IMAGE, random(4, 3, 3, 3), np.array([1, 0, 1, 2], i64), random(3)), constants=(2,)
    ),
    Case("FusedGemm", (random(5, 3), random(7, 3), random(7)), {"transB": 1, "activation": "Relu", "alpha": 0.5}),
    Case("FusedGemm", (random(5, 3), random(3, 7)), {"activation": "LeakyRelu", "activation_alpha": 0.2}),
    Case("FusedMatMul", (random(2, 3, 5, 4), random(2, 3, 7, 4)), {"transB": 1, "alpha": 0.125}),
    Case("FusedMatMul", (random(2, 3, 4, 5), random(2, 1, 4, 7)), {"transA": 1}),
    Case("FusedMatMul", (random(5, 2, 3, 4), random(7, 2, 3, 4)), {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    Case("FusedMatMul", (random(4), random(4, 5))),
    Case("FusedMatMul", (random(3, 4).astype(np.float64), random(5, 4).astype(np.float64)), {"transB": 1}, (np.float64,)),
    Case("TransposeMatMul", (random(4, 5), random(4, 7)), {"transA": 1, "alpha": 2.0}),
    Case(
        "FusedMatMulActivation",
        (random(2, 5, 4), random(4, 7)),
        {"alpha": 0.5, "activation": "Tanh"},
        by_hand=lambda a, b: np.tanh(0.5 * (a @ b)),
    ),
    Case("GemmFastGelu", (random(2, 5, 4), random(4, 7), random(7)), by_hand=lambda x, w, b: gelu_by_tanh(x @ w + b)),
]

ACTIVATIONS = [
    Case("Gelu", (ROWS_OF_8,)),
    Case("BiasGelu", (ROWS_OF_8, GAMMA)),
    Case("FastGelu", (ROWS_OF_8,)),
    Case("FastGelu", (ROWS_OF_8, GAMMA), label="bias"),
    Case("QuickGelu", (ROWS_OF_8,)),
    Case("QuickGelu", (ROWS_OF_8,), {"alpha": 1.0}),
    Case("BiasSplitGelu", (ROWS_OF_8, GAMMA), by_hand=lambda x, b: (x + b)[..., :4] * gelu((x + b)[..., 4:])),
    Case("BiasAdd", (ROWS_OF_8, GAMMA, random(2, 5, 8, seed=1)), by_hand=lambda x, b, skip: x + b + skip),
]

NORMALIZATIONS = [
    Case("LayerNormalization", (ROWS_OF_8, GAMMA, BETA), domain=""),
    Case("LayerNormalization", (ROWS_OF_8, random(5, 8)), {"axis": 1, "epsilon": 0.1}, (f32,) * 3, domain=""),
    Case("SimplifiedLayerNormalization", (ROWS_OF_8, GAMMA), domain=""),
    Case("SimplifiedLayerNormalization", (ROWS_OF_8, random(5, 8)), {"axis": 1, "epsilon": 0.1}, domain=""),
    Case("SkipLayerNormalization", (ROWS_OF_8, random(2, 5, 8, seed=4), GAMMA, BETA), {"epsilon": 0.01}),
    Case("SkipLayerNormalization", (ROWS_OF_8, random(5, 8), GAMMA, None, OFFSET), {}, (f32,) * 4, (1, 2), label="sum"),
    Case(
        "SkipSimplifiedLayerNormalization",
        (ROWS_OF_8, random(2, 5, 8, seed=4), GAMMA, OFFSET),
        {"epsilon": 0.01},
        (f32,) * 4,
        (1, 2),
    ),
    Case("SkipSimplifiedLayerNormalization", (ROWS_OF_8, random(2, 5, 8, seed=4), GAMMA)),
    Case("EmbedLayerNormalization", (WORDS, WORDS % 2, *TABLES, GAMMA, BETA, MASK), {}, (f32, i32, f32)),
    Case(
        "EmbedLayerNormalization",
        (WORDS, None, *TABLES[:2], None, GAMMA, BETA, None, WORDS[::-1].copy()),
        {"epsilon": 0.1},
        (f32, i32),
        label="places",
    ),
    Case(
        "GroupNorm",
        (PICTURE, GAMMA, BETA),
        {"groups": 2, "activation": 1},
        by_hand=lambda x, g, b: (y := group_normalized(x, 2, 1e-5) * g + b) / (1 + np.exp(-y)),
    ),
    Case(
        "GroupNorm",
        (PICTURE.transpose(0, 3, 1, 2).copy(), GAMMA, BETA),
        {"groups": 4, "activation": 0, "channels_last": 0, "epsilon": 0.1},
        by_hand=lambda x, g, b: (group_normalized(x.transpose(0, 2, 3, 1), 4, 0.1) * g + b).transpose(0, 3, 1, 2),
    ),
    Case(
        "SkipGroupNorm",
        (PICTURE, GAMMA, BETA, random(2, 8), OFFSET),
        {"groups": 2, "activation": 0},
        (f32, f32),
        by_hand=lambda x, g, b, skip, offset: (
            group_normalized(total := x + skip[:, None, None] + offset, 2, 1e-5) * g + b,
            total,
        ),
    ),
]


def of_blocks(packed: Array, scale: Array) -> Array:
    """What packed numbers of 4 bits stand for, of 70 a row."""
    numbers = np.stack([packed % 16, packed // 16], -1).reshape(*packed.shape[:2], -1) - 8
    return (numbers * scale[..., None]).reshape(len(packed), -1)[:, :70].T


def number(dtype: Any, value: float) -> Array:
    return np.array(value, dtype)


def scaled(dtype: Any, scale: float, zero_point: int | None) -> tuple[Array, Array | None]:
    return number(f32, scale), None if zero_point is None else number(dtype, zero_point)


U8, I8 = whole(u8, 2, 3, 8), whole(i8, 2, 3, 8, low=-128, high=128)
# Signed weights are of 7 bits: without VNNI, ONNX Runtime's products of unsigned and signed bytes end at 16 bits.
BYTES = (whole(u8, 2, 4, 7, 6), *scaled(u8, 0.02, 120))
BYTES_LAST = (whole(u8, 2, 7, 6, 4), *scaled(u8, 0.02, 120))
WEIGHTS = (whole(i8, 6, 4, 3, 3, low=-64, high=65), np.linspace(0.01, 0.02, 6).astype(f32), np.zeros(6, i8))
COLUMNS = (whole(u8, 7, 5), np.linspace(0.01, 0.02, 5).astype(f32), whole(u8, 5))
QUANTIZED_INPUT = (whole(u8, 2, 3, 8), whole(i8, 8, 24, low=-64, high=65), random(24), number(f32, 0.02))
BY_COLUMN = np.linspace(0.01, 0.02, 24).astype(f32)

QUANTIZED = [
    Case("QuantizeLinear", (random(3, 5), random(3) ** 2 + 0.01, whole(i8, 3)), {"axis": 0}, (i8,)),
    Case("QuantizeLinear", (random(3, 5), number(f32, 0.02), number(np.uint16, 300)), {}, (np.uint16,)),
    Case("DequantizeLinear", (U8, random(8) ** 2 + 0.01, whole(u8, 8)), {"axis": 2}),
    Case("DequantizeLinear", (whole(i32, 3, 5, low=-999), number(f32, 0.02))),
    Case("QLinearAdd", (U8, *scaled(u8, 0.1, 128), U8[:1, ::-1].copy(), *scaled(u8, 0.07, 3), *scaled(u8, 0.15, 100)),
         types=(u8,), steps=1),
    Case("QLinearMul", (I8, *scaled(i8, 0.1, 5), I8[0].copy(), *scaled(i8, 0.07, 7), *scaled(i8, 0.5, 10)),
         types=(i8,), steps=1),
    Case("QLinearSigmoid", (U8, *scaled(u8, 0.03, 128), *scaled(u8, 1 / 256, 0)), types=(u8,)),
    Case("QLinearSigmoid", (I8, *scaled(i8, 0.03, None), *scaled(i8, 1 / 256, -128)), types=(i8,)),
    Case("QLinearLeakyRelu", (U8, *scaled(u8, 0.03, 128), *scaled(u8, 0.03, 100)), {"alpha": 0.3}, (u8,)),
    Case("QLinearSoftmax", (U8, *scaled(u8, 0.03, 128), *scaled(u8, 1 / 256, 0)), {"opset": 13, "axis": -1}, (u8,), steps=1),
    Case("QLinearSoftmax", (I8, *scaled(i8, 0.03, 0), *scaled(i8, 1 / 512, -128)), {"opset": 11, "axis": 1}, (i8,), steps=1),
    Case("QLinearWhere", (U8 > 99, U8, *scaled(u8, 0.03, 128), U8[0].copy(), *scaled(u8, 0.02, 99), *scaled(u8, 0.04, 5)),
         types=(u8,), steps=1),
    Case("QLinearConcat", (*scaled(u8, 0.04, 99), U8, *scaled(u8, 0.03, 128), U8[:, :2].copy(), *scaled(u8, 0.04, 99)),
         {"axis": 1}, (u8,), steps=1),
    Case("QLinearGlobalAveragePool", (*BYTES, *scaled(u8, 0.01, 99)), {}, (u8,), steps=1),
    Case("QLinearGlobalAveragePool", (*BYTES_LAST, *scaled(u8, 0.01, 99)), {"channels_last": 1}, (u8,), steps=1),
    Case("QLinearConv", (*BYTES, *WEIGHTS, *scaled(u8, 0.05, 99), whole(i32, 6, low=-999, high=999)), {"pads": [1, 0, 1, 2]},
         (u8,), steps=1, constants=(3, 4, 5)),
    Case("QLinearConv", (*BYTES_LAST, *WEIGHTS, *scaled(u8, 0.05, 99)), {"channels_last": 1, "strides": [2, 1]}, (u8,),
         steps=1, constants=(3, 4, 5)),
    Case("NhwcMaxPool", (BYTES_LAST[0],), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]}, (u8,)),
    Case("NhwcMaxPool", (whole(i8, 1, 9, 3, low=-128, high=128),), {"kernel_shape": [3]}, (i8,)),
    Case("QGemm", (whole(u8, 3, 7), *scaled(u8, 0.02, 7), *COLUMNS, whole(i32, 5, low=-99, high=99)), {"alpha": 0.5}),
    Case("QGemm", (whole(u8, 7, 3), *scaled(u8, 0.02, 7), COLUMNS[0].T.copy(), *COLUMNS[1:], None, *scaled(u8, 0.3, 99)),
         {"transA": 1, "transB": 1}, (u8,), steps=1),
    Case("QAttention", (*QUANTIZED_INPUT, number(f32, 0.03), None, number(u8, 120), number(i8, 3)), {"num_heads": 2}),
    Case("QAttention", (*QUANTIZED_INPUT, BY_COLUMN, np.array([2, 3], i32), number(u8, 120), np.zeros(24, i8)),
         {"num_heads": 2, "unidirectional": 1}),
    Case("Trilu", (random(2, 5, 6), np.array(1, i64)), {"upper": 0}, constants=(1,)),
]  # fmt: skip

NIBBLES = (random(3, 5, 70), whole(u8, 12, 3, 16), random(12, 3))
FLAT = {"K": 70, "N": 12, "block_size": 32}
ROWS_OF_4 = (whole(u8, 6, 32), np.array([[3, 0], [5, 3]], i64), random(6, 2))
CHOSEN = {"block_size": 32, "bits": 4}

FEW_BITS = [
    Case("MatMulNBits", NIBBLES, {**FLAT, "accuracy_level": 1}, constants=(1, 2)),
    Case("MatMulNBits", (*NIBBLES, whole(u8, 12, 2), None, random(12)), FLAT, constants=(1, 2, 3), label="packed"),
    Case("MatMulNBits", (*NIBBLES, random(12, 3)), FLAT, constants=(1, 2, 3), label="real"),
    Case("MatMulNBits", (random(70), *NIBBLES[1:]), FLAT, label="vector",
         by_hand=lambda a, q, scale: a @ of_blocks(q, scale)),
    Case("MatMulNBits", (random(3, 64, dtype=f16), whole(u8, 5, 4, 16), random(5, 4, dtype=f16), whole(u8, 5, 4)),
         {"K": 64, "N": 5, "block_size": 16, "bits": 8}, (f16,), constants=(1, 2, 3), relative=2e-3),
    Case("MatMulNBits", (random(3, 256), whole(u8, 5, 1, 256), random(5, 1)),
         {"K": 256, "N": 5, "block_size": 256, "bits": 8}, constants=(1, 2)),
    Case("GatherBlockQuantized", ROWS_OF_4, CHOSEN, constants=(0, 2)),
    Case("GatherBlockQuantized", (*ROWS_OF_4, whole(u8, 6, 1)), CHOSEN, constants=(0, 2, 3), label="zero"),
    Case("GatherBlockQuantized", (whole(u8, 6, 64), ROWS_OF_4[1], random(6, 2, dtype=f16)), {**CHOSEN, "bits": 8}, (f16,),
         constants=(0, 2), relative=1e-3),
]  # fmt: skip

ROTARY = [
    Case("RotaryEmbedding", (random(2, 3, 16), whole(i64, 2, 3, high=9), random(9, 4), random(9, 4, seed=1))),
    Case("RotaryEmbedding", (random(2, 3, 16), np.array([2], i64), random(9, 4), random(9, 4, seed=1)), {"interleaved": 1}),
    Case("RotaryEmbedding", (random(2, 2, 3, 8), whole(i64, 2, 3, high=9), random(9, 4), random(9, 4, seed=1))),
    Case("RotaryEmbedding", (random(2, 3, 16), whole(i64, 2, 3, high=9), random(9, 2), random(9, 2, seed=1)),
         {"num_heads": 2, "rotary_embedding_dim": 4}),
    Case("RotaryEmbedding", (random(2, 3, 16).astype(f16), whole(i64, 2, 3, high=9), random(9, 2).astype(f16),
         random(9, 2, seed=1).astype(f16)), {"num_heads": 2, "rotary_embedding_dim": 4, "interleaved": 1}, (f16,),
         relative=2e-3),
]  # fmt: skip
GROUPS = {"num_heads": 4, "kv_num_heads": 2}
COSINES, SINES = random(12, 8), random(12, 8, seed=1)
BIASES = random(1, 4, 3, 8)
HEADS = random(4)


def grouped(
    label: str, batch: int, rows: int, past: int, lengths: list[int], total: int, *rest: Array | None, **attributes: Any
) -> Case:
    """Grouped queries of 4 heads of 16 elements after rows of a past; lengths are those of keys less one. The
    cache is compared where all batch entries fill it."""
    new = (random(batch, rows, 64), random(batch, rows, 32, seed=1), random(batch, rows, 32, seed=2))
    if label == "packed":
        new = (np.concatenate(new, -1), None, None)
    before = (random(batch, 2, past, 16), random(batch, 2, past, 16, seed=1)) if past else (None, None)
    counts = np.array(lengths, i32), np.array(total, i32)
    inputs = (*new, *before, *counts, *rest)
    compared = None if past < total and set(lengths) == {total - 1} else 1
    settings = {**GROUPS, **attributes}
    return Case("GroupQueryAttention", inputs, settings, (f32,) * 3, (), compared, constants=(6,), label=f"{label}-")


GROUPED = [
    grouped("prompt", 2, 3, 0, [2, 2], 3, COSINES, SINES, do_rotary=1),
    grouped("packed", 2, 1, 9, [9, 6], 10, COSINES, SINES, do_rotary=1, rotary_interleaved=1),
    grouped("chunk", 1, 3, 5, [7], 8, COSINES, SINES, do_rotary=1),
    grouped("places", 2, 1, 5, [5, 3], 6, COSINES, SINES, np.array([[7], [2]], i64), do_rotary=1),
    grouped("places-of-prompt", 1, 3, 0, [2], 3, COSINES, SINES, np.array([[4, 5, 6]], i64), do_rotary=1),
    grouped("window", 2, 1, 9, [9, 7], 10, local_window_size=4),
    grouped("window", 2, 7, 0, [6, 6], 7, local_window_size=3, softcap=2.0),
    grouped("shared", 2, 1, 9, [5, 3], 6, softcap=2.0),
    grouped("bias", 1, 3, 5, [7], 8, None, None, None, BIASES, softcap=2.0, scale=0.5),
    grouped("bias-and-window", 1, 3, 5, [7], 8, None, None, None, BIASES, local_window_size=4),
    grouped("smooth", 1, 3, 5, [7], 8, smooth_softmax=1),
    grouped("sink", 2, 1, 5, [5, 3], 6, None, None, None, None, HEADS),
    grouped("shared-bias", 2, 1, 9, [5, 3], 6, None, None, None, BIASES[:, :, :1, :6], local_window_size=4),
    grouped("shared-bias", 2, 1, 9, [5, 3], 6, None, None, None, BIASES[:, :, :1, :6], softcap=2.0),
    grouped("both-ways", 2, 3, 0, [2, 2], 3, causal=0),
]

CASES = [*FUSED, *ACTIVATIONS, *NORMALIZATIONS, *QUANTIZED, *FEW_BITS, *ROTARY, *GROUPED]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_operator(
    case: Case, make_session: Callable[..., Any], reference: Callable[..., list[Array]], assert_close: Callable[..., None]
) -> None:
    check(case, make_session, reference, assert_close)


@pytest.mark.parametrize(
    ("kind", "gathered", "quantized", "has_zero_points"),
    [("UINT4", 0, 2, True), ("INT4", 1, 0, False), ("UINT4", 2, 1, True), ("INT4", 0, 1, True)],
)
def test_tables_of_4_bits(
    kind: str,
    gathered: int,
    quantized: int,
    has_zero_points: bool,
    make_session: Callable[..., Any],
    reference: Callable[..., list[Array]],
    assert_close: Callable[..., None],
) -> None:
    """Rows are chosen before they are dequantized or after; blocks of 16 of 3 rows are not full."""
    rng, sizes, code = np.random.default_rng(0), (32, 3, 48), TensorProto.DataType.Value(kind)
    low = 0 if kind == "UINT4" else -8
    blocks = tuple(-(-size // 16) if axis == quantized else size for axis, size in enumerate(sizes))

    def numbers(name: str, own: tuple[int, ...]) -> TensorProto:
        return helper.make_tensor(name, code, own, rng.integers(low, low + 16, own).ravel().tolist())

    constants = [numbers("table", sizes), numpy_helper.from_array(random(*blocks), "scale")]
    constants += [numbers("zero", blocks)] if has_zero_points else []
    names = ["table", "at", *(item.name for item in constants[1:])]
    settings = {"gather_axis": gathered, "quantize_axis": quantized, "block_size": 16}
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain=MICROSOFT, **settings)
    at = helper.make_tensor_value_info("at", TensorProto.INT64, (2, 2))
    graph = helper.make_graph([node], "test", [at], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    feeds = {"at": rng.integers(0, sizes[gathered], (2, 2))}
    assert_close(make_session(model).run(None, feeds)[0], reference(model, feeds, "onnxruntime")[0])


def test_every_operator_has_a_case() -> None:
    elsewhere = {
        "QLinearAveragePool",  # tests/device/test_pooling.py
        *("DynamicQuantizeMatMul", "MatMulIntegerToFloat"),  # tests/device/test_integer.py
        "DynamicQuantizeLSTM",  # test_quantized_lstm.py
        *("Attention", "MultiHeadAttention"),  # tests/device/test_attention.py
    }
    assert {op_type for domain, op_type, _ in ROWS if domain == MICROSOFT} - elsewhere == {case.op_type for case in CASES}
