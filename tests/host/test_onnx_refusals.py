"""What a converter does not do of its operator is refused when the model is loaded, whatever the sizes of its inputs."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from typing import Any

import onnx.defs
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk.onnx import attribute_rules
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.onnx.registry import COUNTING, ROWS, TAKING

F32, F16, F64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
I64, I32, U8 = TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8
MICROSOFT = "com.microsoft"
GROUPED = {"num_heads": 4, "kv_num_heads": 2}
GROUPED_INPUTS = (F16, F16, F16, F16, F16, I32, I32)
VOCABULARY = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 1,
    "max_skip_count": 0,
    "ngram_counts": [0],
    "ngram_indexes": [0, 0],
    "pool_int64s": [1, 2],
}
PREVIEW = "ai.onnx.preview.training"


def _load(
    op_type: str, types: tuple[int, ...], outputs: int, opset: int, domain: str, attributes: dict[str, Any]
) -> Network:
    """Loads a model of one node of whose inputs only the types are known; a type of 0 is an input that is left out."""
    names = [f"x{index}" if code else "" for index, code in enumerate(types)]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op_type, names, results, name="node", domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info(name, code, None) for name, code in zip(names, types, strict=True) if name],
        [helper.make_tensor_value_info(name, F32, None) for name in results],
    )
    opsets = [helper.make_opsetid("", 17 if domain else opset)] + ([helper.make_opsetid(domain, opset)] if domain else [])
    return Network(load_model(helper.make_model(graph, opset_imports=opsets, ir_version=8)))


REFUSED: list[tuple[str, tuple[int, ...], int, int, str, dict[str, Any], str]] = [
    ("GroupQueryAttention", GROUPED_INPUTS, 3, 1, MICROSOFT, {**GROUPED, "do_rotary": 1}, "do_rotary without"),
    ("GroupQueryAttention", GROUPED_INPUTS, 3, 1, MICROSOFT, {**GROUPED, "qk_output": 1}, "qk_output 1"),
    ("GroupQueryAttention", GROUPED_INPUTS, 3, 1, MICROSOFT, {**GROUPED, "novelty": 1}, "attribute 'novelty'"),
    ("GroupQueryAttention", GROUPED_INPUTS, 4, 1, MICROSOFT, GROUPED, "output 3"),
    ("GroupQueryAttention", (*GROUPED_INPUTS, 0, 0, 0, 0, 0, F32), 1, 1, MICROSOFT, GROUPED, "input 12"),
    ("FusedConv", (F32, F32), 1, 1, MICROSOFT, {"activation": "Unheard"}, "activation 'Unheard'"),
    ("MatMulNBits", (F32, U8, F32), 1, 1, MICROSOFT, {"K": 16, "N": 2, "block_size": 16, "bits": 2}, "bits 2"),
    ("MatMulNBits", (F32, U8, F32, 0, I32), 1, 1, MICROSOFT, {"K": 16, "N": 2, "block_size": 16}, "g_idx"),
    ("GatherBlockQuantized", (U8, I64, F32), 1, 1, MICROSOFT, {"bits": 2}, "bits 2"),
    ("RotaryEmbedding", (F32, I64, F32, F32), 1, 1, MICROSOFT, {"is_packed_batching": 1}, "is_packed_batching 1"),
    ("SkipLayerNormalization", (F32, F32, F32), 3, 1, MICROSOFT, {}, "only training"),
    ("QAttention", (U8, U8, F32, F32, F32), 1, 1, MICROSOFT, {"num_heads": 2, "do_rotary": 1}, "rotary embedding"),
    ("GroupNorm", (F32, F32, F32), 1, 1, MICROSOFT, {"groups": 2, "activation": 2}, "activation 2"),
    ("Attention", (F32, F32, F32), 1, 1, MICROSOFT, {"num_heads": 2, "do_rotary": 1}, "rotary embedding"),
    ("MultiHeadAttention", (F32,) * 3 + (0,) * 6 + (I32,), 1, 1, MICROSOFT, {"num_heads": 2}, "input 9"),
    ("BatchNormalization", (F32,) * 5, 5, 9, "", {}, "outputs beside the first"),
    ("BatchNormalization", (F32,) * 5, 1, 6, "", {}, "unless is_test is set"),
    ("BatchNormalization", (F16, F16, F16, F32, F32), 1, 15, "", {}, "input 3 is FLOAT32.* FLOAT16$"),
    ("LayerNormalization", (F32, F32), 2, 17, "", {"stash_type": F16}, "statistics of type float16"),
    ("GRU", (F32, F32, F32), 1, 14, "", {"hidden_size": 2, "clip": 1.0}, "clip"),
    ("LSTM", (F32, F32, F32), 1, 14, "", {"hidden_size": 2, "activations": ["Sine"] * 3}, "activation 'Sine'"),
    ("RoiAlign", (F32, F32, I64), 1, 16, "", {"mode": "max"}, "sampling_ratio 0"),
    ("GridSample", (I32, F32), 1, 16, "", {}, "mode 'linear' takes FLOAT32, FLOAT16"),
    ("Resize", (U8, 0, F32), 1, 13, "", {"mode": "cubic"}, "interpolation by weights takes"),
    ("ScatterElements", (F64, I64, F64), 1, 16, "", {"reduction": "add"}, "reduction 'add' takes"),
    ("Einsum", (TensorProto.INT16,) * 2, 1, 12, "", {"equation": "ij,jk->ik"}, "first input is INT16; sums take"),
    ("Bernoulli", (F32,), 1, 15, "", {"dtype": TensorProto.STRING}, "dtype is string"),
    ("RandomNormalLike", (F32,), 1, 1, "", {"dtype": I64}, "random numbers of type int64"),
    ("RandomNormalLike", (I32,), 1, 1, "", {}, "first input is INT32"),
    ("Adam", (F32, I64, F64, F64, F64, F64), 3, 1, PREVIEW, {}, "input 2 is FLOAT64"),
    ("TfIdfVectorizer", (I32,), 1, 9, "", VOCABULARY, "share a place"),
]


@pytest.mark.parametrize(("op_type", "types", "outputs", "opset", "domain", "attributes", "reason"), REFUSED)
def test_refused_at_load(
    op_type: str, types: tuple[int, ...], outputs: int, opset: int, domain: str, attributes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(dmlvk.UnsupportedNodeError, match=reason):
        _load(op_type, types, outputs, opset, domain, attributes)


BROKEN: list[tuple[str, tuple[int, ...], int, dict[str, Any], str]] = [
    ("Conv", (F32, F32), 11, {"group": -1}, "group must be at least 1; got -1"),
    ("Conv", (F32, F32), 11, {"auto_pad": "SAME"}, "auto_pad must be one of 'NOTSET', .*; got 'SAME'"),
    ("MaxPool", (F32,), 12, {"kernel_shape": [2, 2], "strides": [1, 0]}, r"strides must be at least 1; got \[1, 0\]"),
    ("Transpose", (F32,), 13, {"perm": [0, 2]}, r"perm must name each dimension once; got \[0, 2\]"),
    ("BitShift", (U8, U8), 11, {"direction": "UP"}, "direction must be one of 'LEFT', 'RIGHT'; got 'UP'"),
    ("DepthToSpace", (F32,), 13, {"blocksize": 2, "mode": "RCD"}, "mode must be one of 'DCR', 'CRD'; got 'RCD'"),
    ("Pad", (F32, I64), 18, {"mode": "wrap"}, "mode 'wrap' must be of opset 19 or newer; got 18"),
]


@pytest.mark.parametrize(("op_type", "types", "opset", "attributes", "reason"), BROKEN)
def test_what_no_sizes_make_right_is_refused_at_load(
    op_type: str, types: tuple[int, ...], opset: int, attributes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(dmlvk.ModelError, match=rf"node 'node' \({op_type}\): {reason}"):
        _load(op_type, types, 1, opset, "", attributes)


@pytest.mark.parametrize(
    ("operator", "name"),
    [("GRU", "layout"), ("LSTM", "layout"), ("RNN", "layout"), ("LSTM", "input_forget"), ("GRU", "linear_before_reset")],
)
def test_a_flag_is_0_or_1(operator: str, name: str) -> None:
    attributes = {"hidden_size": 4}
    for flag in (0, 1):
        _load(operator, (F32, F32, F32), 1, 14, "", attributes | {name: flag})
    for wrong in (3, -1):
        with pytest.raises(dmlvk.ModelError, match=f"{name} must be 0 or 1; got {wrong}"):
            _load(operator, (F32, F32, F32), 1, 14, "", attributes | {name: wrong})


@pytest.mark.parametrize(("name", "operators"), attribute_rules.CHOICES.items())
def test_choices_are_of_attributes_that_operators_have(name: str, operators: dict[str, tuple[str, ...]]) -> None:
    """A default that is no choice would be refused as soon as a model writes it down."""
    assert operators.keys() <= {op_type for _, op_type, _ in ROWS}
    for op_type, choices in operators.items():
        if onnx.defs.has(op_type):
            schema = onnx.defs.get_schema(op_type, min(onnx.defs.onnx_opset_version(), 9 if op_type == "Upsample" else 99))
            default = schema.attributes[name].default_value.s.decode() if name in schema.attributes else ""
            assert not default or default in choices


def test_what_is_left_at_its_default_loads() -> None:
    for attributes in ({}, {"do_rotary": 0, "softcap": 0.0, "local_window_size": -1, "rotary_interleaved": 0}):
        _load("GroupQueryAttention", GROUPED_INPUTS, 3, 1, MICROSOFT, {**GROUPED, **attributes})
    _load("Einsum", (F64,), 1, 12, "", {"equation": "ij->ji"})
    _load("ScatterElements", (F64, I64, F64), 1, 16, "", {})


UNREAD = {
    "broadcast": "Gemm of opset 6: C broadcasts with or without it",
    "hidden_size": "the sizes of the weights say it",
    "pool_strings": "of text, which the types rule out",
    "ratio": "Dropout before opset 12, which only training has",
    "sorted": "TopK: sorted is one of the orders that are allowed without",
    "stash_type": "GroupNormalization: in which type it is computed on the way",
    **dict.fromkeys(("detect_negative", "detect_positive", "activation_alpha", "activation_beta"), "read by f-strings"),
}


@functools.cache
def _texts(module: str) -> frozenset[str]:
    """The strings in a module of converters and in those that it imports from."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    texts = {item.value for item in ast.walk(tree) if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    imported = {item.module for item in ast.walk(tree) if isinstance(item, ast.ImportFrom) and item.module}
    return frozenset(texts.union(*(_texts(name) for name in imported if name.startswith("dmlvk.onnx.convert."))))


def test_every_attribute_is_read() -> None:
    """Those of ONNX's definitions; a row of another domain declares what its converter reads."""
    unread = set()
    for (domain, op_type, since), row in ROWS.items():
        known = "" if domain in (COUNTING, TAKING) else domain
        if row.declared is None and onnx.defs.has(op_type, known):
            texts = _texts(inspect.unwrap(row.convert).__module__)
            attributes = onnx.defs.get_schema(op_type, min(since, onnx.defs.onnx_opset_version()), known).attributes
            unread |= {name for name in attributes if name not in texts}
    assert unread <= UNREAD.keys()
