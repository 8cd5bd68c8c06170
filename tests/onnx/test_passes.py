"""What the passes over a graph make of a model, each alone; and that results agree with and without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.graph.passes import PASSES
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import IN_PLACE, MERGED, Network
from dmlvk.spec.errors import InvalidArgumentError

f16, f32, i64 = np.float16, np.float32, np.int64
NAMES = [item.name for item in PASSES]
Nodes = Sequence[tuple[str, str, str] | tuple[str, str, str, dict[str, Any]]]
IMAGE = (2, 4, 5, 6)
rng = np.random.default_rng(3)


def normal(*sizes: int) -> np.ndarray:
    return rng.standard_normal(sizes).astype(f32)


BATCH = {"scale": normal(6), "shift": normal(6), "mean": normal(6), "variance": np.abs(normal(6)) + 0.1}
NUMBERS = {
    "half": np.array(0.5, f32),
    "one": np.array(1, f32),
    "two": np.array(2, f32),
    "three": np.array(3, f32),
    "six": np.array(6, f32),
    "zero": np.array(0, f32),
    "root": np.array(np.sqrt(2), f32),
    "inverse": np.array(np.sqrt(0.5), f32),
    "epsilon": np.array(1e-5, f32),
}
ANGLES = normal(5, 3)
TABLES = {
    "cosines": np.tile(np.cos(ANGLES), (1, 2)),
    "sines": np.tile(np.sin(ANGLES), (1, 2)),
    "cosine_pairs": np.repeat(np.cos(ANGLES), 2, axis=1),
    "sine_pairs": np.repeat(np.sin(ANGLES), 2, axis=1),
    "four_cosines": np.tile(np.cos(ANGLES[:, :2]), (1, 2)),
    "four_sines": np.tile(np.sin(ANGLES[:, :2]), (1, 2)),
}
WEIGHTS = {
    "w": normal(6, 4, 3, 3),
    "b": normal(6),
    "grouped": normal(4, 3, 2, 2),
    "matrix": normal(6, 5),
    "row": normal(5),
    "gamma": normal(6),
    "beta": normal(6),
    "channels": normal(6, 1, 1),
    "plane": normal(3, 4),
    "eight_five": normal(8, 5),
    "queries": normal(12, 12),
    "keys": normal(12, 12),
    "values": normal(12, 12),
    "all_three": normal(12, 36),
    "positions": normal(1, 3, 10, 10),
    "few_keys": normal(12, 6),
    "few_values": normal(12, 6),
    "gate": normal(6, 8),
    "inner": normal(6, 8),
    "skip": normal(6, 8),
    "twelve": normal(12),
    "twelve_six": normal(12, 6),
    "six_twelve": normal(6, 12),
    "six_one": normal(6, 1),
    "one_number": normal(1),
    "five_twelve": normal(5, 12),
    "four": normal(4),
    "one_to_four": np.arange(1, 5).astype(f32),
    "nothing": np.array([0, -np.inf], f32).reshape(2, 1, 1, 1),
    "mask": np.where(rng.random((2, 1, 1, 10)) < 0.3, -1e4, 0.0).astype(f32),
    "eight_channels": normal(8, 1, 1),
    "five_rows": normal(5, 1),
    **TABLES,
    **BATCH,
    **NUMBERS,
}
SHAPES = {
    "image": np.array(IMAGE, i64),
    **{f"at{place}": np.array([place], i64) for place in range(7)},
    "shape": np.array([2, 100], i64),
    "rows": np.array([2, 10, 12], i64),
    "heads": np.array([2, 10, 3, 4], i64),
    "three_heads": np.array([2, 10, 3, 3, 4], i64),
    **{f"index{place}": np.array(place, i64) for place in range(3)},
    "crossed_heads": np.array([2, 10, 3, 2, 2], i64),
    "six_heads": np.array([2, 10, 6, 2], i64),
    "few_heads": np.array([2, 10, 3, 2], i64),
    "repeated": np.array([2, 3, 2, 10, 2], i64),
    "all_heads": np.array([2, 6, 10, 2], i64),
    "in_one_axis": np.array([6, 10, 4], i64),
    "keys_in_one_axis": np.array([6, 4, 10], i64),
    "scores_in_one_axis": np.array([6, 10, 10], i64),
    "in_two_axes": np.array([2, 3, 10, 4], i64),
    "scores_in_two_axes": np.array([2, 3, 10, 10], i64),
    "rows_first": np.array([10, 2, 12], i64),
    "rows_of_heads": np.array([10, 6, 4], i64),
    "one_image": np.array([1, 8, 5, 6], i64),
    "table": np.array([20, 12], i64),
    "second": np.array([1], i64),
    "third": np.array([2], i64),
    "channel": np.array([1], i64),
    "batch": np.array([0], i64),
    "even": np.array([-5, -3, -1], i64),
}
NORMALIZE = ("BatchNormalization", "c scale shift mean variance", "y", {"epsilon": 1e-3})

CASES: dict[str, tuple[Nodes, str, list[str]]] = {
    # name: nodes as (operator, inputs, output, attributes), the pass, the operators that remain with it
    "batch normalization": ([("Conv", "x w", "c"), NORMALIZE], "batch_normalization", ["CONVOLUTION"]),
    "batch normalization of a bias": ([("Conv", "x w b", "c"), NORMALIZE], "batch_normalization", ["CONVOLUTION"]),
    "batch normalization, transposed": (
        [("ConvTranspose", "x grouped", "c", {"group": 2, "strides": [2, 1]}), NORMALIZE],
        "batch_normalization",
        ["CONVOLUTION"],
    ),
    "batch normalization of what is read twice": (
        [("Conv", "x w", "c"), (*NORMALIZE[:2], "n", NORMALIZE[3]), ("Sub", "c n", "y")],
        "batch_normalization",
        ["CONVOLUTION", "BATCH_NORMALIZATION", "ELEMENT_WISE_SUBTRACT"],
    ),
    "batch normalization of a product": (
        [
            ("Reshape", "x table", "t"),
            ("MatMul", "t twelve_six", "p"),
            ("BatchNormalization", "p scale shift mean variance", "y", {"epsilon": 1e-3}),
        ],
        "batch_normalization",
        ["GEMM"],
    ),
    "batch normalization of a product with C": (
        [
            ("Reshape", "x table", "t"),
            ("Gemm", "t twelve_six gamma", "p", {"alpha": 0.5, "beta": 2.0}),
            ("BatchNormalization", "p scale shift mean variance", "n", {"epsilon": 1e-3}),
            ("Relu", "n", "y"),
        ],
        "batch_normalization",
        ["GEMM", "ACTIVATION_RELU"],
    ),
    "batch normalization of a transposed product": (
        [
            ("Reshape", "x table", "t"),
            ("Gemm", "t six_twelve", "p", {"transB": 1}),
            ("BatchNormalization", "p scale shift mean variance", "y", {"epsilon": 1e-3}),
        ],
        "batch_normalization",
        ["GEMM"],
    ),
    "batch normalization of a product's rows": (
        [("MatMul", "x matrix", "p"), ("BatchNormalization", "p four four four one_to_four", "y")],
        "batch_normalization",
        ["GEMM", "BATCH_NORMALIZATION"],
    ),
    "bias": ([("Conv", "x w", "c"), ("Add", "c channels", "y")], "addition", ["CONVOLUTION"]),
    "bias, on the left": ([("Conv", "x w", "c"), ("Add", "channels c", "y")], "addition", ["CONVOLUTION"]),
    "one number for all channels": ([("Conv", "x w", "c"), ("Add", "c two", "y")], "addition", ["CONVOLUTION"]),
    "a second bias": ([("Conv", "x w b", "c"), ("Add", "c channels", "y")], "addition", ["CONVOLUTION", "ELEMENT_WISE_ADD"]),
    "no bias, a plane": ([("Conv", "x w", "c"), ("Add", "c plane", "y")], "addition", ["CONVOLUTION", "ELEMENT_WISE_ADD"]),
    "a tensor added to a convolution": (
        [("Conv", "x w b", "c"), ("Conv", "x w", "d"), ("Add", "d c", "y")],
        "residual",
        ["CONVOLUTION", "ConvolutionAdd"],
    ),
    "a tensor added to what is read twice": (
        [("Conv", "x w b", "c"), ("Sigmoid", "c", "d"), ("Add", "d c", "y")],
        "residual",
        ["CONVOLUTION", "ACTIVATION_SIGMOID", "ELEMENT_WISE_ADD"],
    ),
    "a plane added to a convolution": (
        [("Conv", "x w b", "c"), ("Add", "c plane", "y")],
        "residual",
        ["CONVOLUTION", "ELEMENT_WISE_ADD"],
    ),
    "a tensor added to a product with C": (
        [
            ("Reshape", "x table", "t"),
            ("Gemm", "t twelve_six gamma", "p"),
            ("Sigmoid", "p", "s"),
            ("Gemm", "t twelve_six gamma", "q"),
            ("Add", "s q", "y"),
        ],
        "residual",
        ["GEMM", "ACTIVATION_SIGMOID", "GemmAdd"],
    ),
    "a tensor added to a product whose columns are its channels": (
        [
            ("Reshape", "x one_image", "r"),
            ("MatMul", "r six_twelve", "p"),
            ("Transpose", "p", "q", {"perm": [0, 3, 1, 2]}),
            ("Sigmoid", "q", "s"),
            ("MatMul", "r six_twelve", "m"),
            ("Transpose", "m", "t", {"perm": [0, 3, 1, 2]}),
            ("Add", "s t", "y"),
        ],
        "residual",
        ["GEMM", "ACTIVATION_SIGMOID", "GemmAdd"],
    ),
    "a tensor added to products of several images": (
        [
            ("MatMul", "x six_twelve", "p"),
            ("Transpose", "p", "q", {"perm": [0, 3, 1, 2]}),
            ("Sigmoid", "q", "s"),
            ("MatMul", "x six_twelve", "m"),
            ("Transpose", "m", "t", {"perm": [0, 3, 1, 2]}),
            ("Add", "s t", "y"),
        ],
        "residual",
        ["GEMM", "ACTIVATION_SIGMOID", "GEMM", "ELEMENT_WISE_ADD"],
    ),
    "a plane added to a product whose columns are its channels": (
        [
            ("Reshape", "x one_image", "r"),
            ("MatMul", "r six_twelve", "m"),
            ("Transpose", "m", "t", {"perm": [0, 3, 1, 2]}),
            ("Add", "t eight_five", "y"),
        ],
        "residual",
        ["GemmAdd"],
    ),
    "rows of a product": (
        [("MatMul", "x six_twelve", "m"), ("LayerNormalization", "m twelve twelve", "y")],
        "rows_of_products",
        ["GemmNormalization"],
    ),
    "rows of a product that is read by others": (
        [("MatMul", "x six_twelve", "m"), ("LayerNormalization", "m twelve", "n"), ("Add", "m n", "y")],
        "rows_of_products",
        ["GemmNormalization", "ELEMENT_WISE_ADD"],
    ),
    "rows of a product that was read before": (
        [
            ("MatMul", "x six_twelve", "m"),
            ("Sigmoid", "m", "e"),
            ("LayerNormalization", "m twelve", "n"),
            ("Add", "e n", "y"),
        ],
        "rows_of_products",
        ["GemmNormalization", "ACTIVATION_SIGMOID", "ELEMENT_WISE_ADD"],
    ),
    "rows of a product, of one number": (
        [("MatMul", "x six_one", "m"), ("LayerNormalization", "m one_number", "y")],
        "rows_of_products",
        ["GemmNormalization"],
    ),
    "matrices of products": (
        [("MatMul", "x six_twelve", "m"), ("LayerNormalization", "m five_twelve", "y", {"axis": -2})],
        "rows_of_products",
        ["GEMM", "MEAN_VARIANCE_NORMALIZATION2"],
    ),
    "rows of a product, scaled by what is computed": (
        [
            ("MatMul", "x six_twelve", "m"),
            ("ReduceMax", "m", "r", {"axes": [0, 1, 2], "keepdims": 0}),
            ("LayerNormalization", "m r", "y"),
        ],
        "rows_of_products",
        ["GEMM", "REDUCE", "MEAN_VARIANCE_NORMALIZATION2"],
    ),
    "a row added to a product": ([("MatMul", "x matrix", "p"), ("Add", "row p", "y")], "residual", ["GemmAdd"]),
    "alpha": ([("MatMul", "x matrix", "p"), ("Div", "p six", "y")], "scale", ["GEMM"]),
    "alpha in two steps": (
        [("MatMul", "x matrix", "p"), ("Mul", "half p", "q"), ("Div", "q six", "y")],
        "scale",
        ["GEMM"] * 1,
    ),
    "no alpha, one number a column": (
        [("MatMul", "x matrix", "p"), ("Mul", "p row", "y")],
        "scale",
        ["GEMM", "ELEMENT_WISE_MULTIPLY"],
    ),
    "alpha of factors": (
        [
            ("Mul", "x half", "p"),
            ("Transpose", "x", "t", {"perm": [0, 1, 3, 2]}),
            ("Div", "t six", "q"),
            ("MatMul", "p q", "y"),
        ],
        "operand_scale",
        ["GEMM"],
    ),
    "no alpha of a factor that is read twice": (
        [("Mul", "x half", "p"), ("MatMul", "p matrix", "y"), ("Relu", "p", "z")],
        "operand_scale",
        ["ELEMENT_WISE_MULTIPLY", "GEMM", "ACTIVATION_RELU"],
    ),
    "no alpha of one number a column": (
        [("Mul", "x gamma", "p"), ("MatMul", "p matrix", "y")],
        "operand_scale",
        ["ELEMENT_WISE_MULTIPLY", "GEMM"],
    ),
    "a known index": ([("Gather", "x second", "g", {"axis": 0}), ("Relu", "g", "y")], "split", ["ACTIVATION_RELU"]),
    "products of one tensor": (
        [
            ("MatMul", "x gate", "p"),
            ("MatMul", "x inner", "q"),
            ("MatMul", "x skip", "r"),
            ("Mul", "p q", "m"),
            ("Add", "m r", "y"),
        ],
        "products",
        ["GEMM", "SPLIT", "ELEMENT_WISE_MULTIPLY", "ELEMENT_WISE_ADD"],
    ),
    "products with and without C": (
        [
            ("Reshape", "x table", "t"),
            ("Gemm", "t queries twelve", "p"),
            ("Gemm", "t keys", "q", {"transB": 0}),
            ("Gemm", "t values half", "r"),
            ("Mul", "p q", "m"),
            ("Add", "m r", "y"),
        ],
        "products",
        ["GEMM", "SPLIT", "ELEMENT_WISE_MULTIPLY", "ELEMENT_WISE_ADD"],
    ),
    "products whose constants lie otherwise": (
        [
            ("Reshape", "x table", "t"),
            ("Gemm", "t queries", "p", {"transB": 1}),
            ("Gemm", "t keys", "q"),
            ("Mul", "p q", "y"),
        ],
        "products",
        ["GEMM", "GEMM", "ELEMENT_WISE_MULTIPLY"],
    ),
    "products one of which reads no part of a row": (
        [("MatMul", "x gate", "p"), ("MatMul", "x inner", "q"), ("Softmax", "p", "s"), ("Mul", "s q", "y")],
        "products",
        ["GEMM", "GEMM", "ACTIVATION_SOFTMAX1", "ELEMENT_WISE_MULTIPLY"],
    ),
    "C": ([("MatMul", "x matrix", "p"), ("Add", "p row", "y")], "addition", ["GEMM"]),
    "C of a product whose columns are its channels": (
        [
            ("Reshape", "x one_image", "r"),
            ("MatMul", "r six_twelve", "m"),
            ("Transpose", "m", "t", {"perm": [0, 3, 1, 2]}),
            ("Add", "t eight_five", "y"),
        ],
        "addition",
        ["GEMM"],
    ),
    "no bias of a convolution that is seen with its channels last": (
        [("Conv", "x w", "c"), ("Transpose", "c", "t", {"perm": [0, 2, 3, 1]}), ("Add", "t gamma", "y")],
        "addition",
        ["CONVOLUTION", "ELEMENT_WISE_ADD"],
    ),
    "a residual": (
        [("MatMul", "x matrix", "p"), ("MatMul", "x matrix", "q"), ("Add", "p q", "y")],
        "addition",
        ["GEMM", "GEMM"],
    ),
    "relu": ([("Conv", "x w", "c"), ("Relu", "c", "y")], "activation", ["CONVOLUTION"]),
    "clip": ([("Conv", "x w", "c"), ("Clip", "c zero six", "y")], "activation", ["CONVOLUTION"]),
    "hard swish": ([("Conv", "x w", "c"), ("HardSwish", "c", "y")], "activation", ["CONVOLUTION"]),
    "sum and relu": ([("Add", "x x", "c"), ("Relu", "c", "y")], "activation", ["ELEMENT_WISE_ADD1"]),
    "relu of a product seen otherwise": (
        [("MatMul", "x matrix", "p"), ("Reshape", "p shape", "r"), ("Relu", "r", "y")],
        "activation",
        ["GEMM"],
    ),
    "relu of a transposed product": (
        [("MatMul", "x matrix", "p"), ("Transpose", "p", "r", {"perm": [0, 3, 1, 2]}), ("Relu", "r", "y")],
        "activation",
        ["GEMM", "ACTIVATION_RELU"],
    ),
    "relu of what is read twice": (
        [("Conv", "x w", "c"), ("Relu", "c", "r"), ("Sub", "c r", "y")],
        "activation",
        ["CONVOLUTION", "ACTIVATION_RELU", "ELEMENT_WISE_SUBTRACT"],
    ),
    "relu of an output": (
        [("Conv", "x w", "z"), ("Relu", "z", "y")],
        "activation",
        ["CONVOLUTION", "ACTIVATION_RELU"],
    ),
    "softmax or zero": (
        [("Softmax", "x", "p", {"axis": -1}), ("IsNaN", "p", "n"), ("Where", "n zero p", "y")],
        "softmax_or_zero",
        ["SoftmaxOrZero"],
    ),
    "no softmax or zero, another number": (
        [("Softmax", "x", "p", {"axis": -1}), ("IsNaN", "p", "n"), ("Where", "n half p", "y")],
        "softmax_or_zero",
        ["ACTIVATION_SOFTMAX1", "ELEMENT_WISE_IS_NAN", "ELEMENT_WISE_IF"],
    ),
    "no softmax or zero, the other way round": (
        [("Softmax", "x", "p", {"axis": -1}), ("IsNaN", "p", "n"), ("Where", "n p zero", "y")],
        "softmax_or_zero",
        ["ACTIVATION_SOFTMAX1", "ELEMENT_WISE_IS_NAN", "ELEMENT_WISE_IF"],
    ),
    "no softmax or zero, another's NaN": (
        [("Softmax", "x", "p", {"axis": -1}), ("IsNaN", "x", "n"), ("Where", "n zero p", "y")],
        "softmax_or_zero",
        ["ACTIVATION_SOFTMAX1", "ELEMENT_WISE_IS_NAN", "ELEMENT_WISE_IF"],
    ),
    "no softmax or zero, read elsewhere": (
        [("Softmax", "x", "p", {"axis": -1}), ("IsNaN", "p", "n"), ("Where", "n zero p", "y"), ("Neg", "p", "z")],
        "softmax_or_zero",
        ["ACTIVATION_SOFTMAX1", "ELEMENT_WISE_IS_NAN", "ELEMENT_WISE_IF", "ELEMENT_WISE_NEGATE"],
    ),
    "no softmax or zero, an output": (
        [("Softmax", "x", "z", {"axis": -1}), ("IsNaN", "z", "n"), ("Where", "n zero z", "y")],
        "softmax_or_zero",
        ["ACTIVATION_SOFTMAX1", "ELEMENT_WISE_IS_NAN", "ELEMENT_WISE_IF"],
    ),
    "swish": ([("Sigmoid", "x", "s"), ("Mul", "s x", "y")], "swish", ["ACTIVATION_SWISH"]),
    "hard swish in two": (
        [("HardSigmoid", "x", "s", {"alpha": 0.1}), ("Mul", "x s", "y")],
        "swish",
        ["ACTIVATION_HARD_SWISH"],
    ),
    "hard swish in four": (
        [("Add", "x three", "a"), ("Clip", "a zero six", "c"), ("Mul", "x c", "p"), ("Div", "p six", "y")],
        "swish",
        ["ACTIVATION_HARD_SWISH"],
    ),
    "no swish, another's sigmoid": (
        [("Neg", "x", "n"), ("Sigmoid", "n", "s"), ("Mul", "s x", "y")],
        "swish",
        ["ELEMENT_WISE_NEGATE", "ACTIVATION_SIGMOID", "ELEMENT_WISE_MULTIPLY"],
    ),
    "gelu": (
        [("Div", "x root", "d"), ("Erf", "d", "e"), ("Add", "e one", "a"), ("Mul", "x a", "p"), ("Mul", "p half", "y")],
        "gelu",
        ["ACTIVATION_GELU"],
    ),
    "gelu, halved first": (
        [("Mul", "x inverse", "d"), ("Erf", "d", "e"), ("Add", "one e", "a"), ("Mul", "half x", "h"), ("Mul", "h a", "y")],
        "gelu",
        ["ACTIVATION_GELU"],
    ),
    "no gelu, another number": (
        [("Div", "x two", "d"), ("Erf", "d", "e"), ("Add", "e one", "a"), ("Mul", "x a", "p"), ("Mul", "p half", "y")],
        "gelu",
        ["ELEMENT_WISE_DIVIDE", "ELEMENT_WISE_ERF", "ELEMENT_WISE_ADD", "ELEMENT_WISE_MULTIPLY", "ELEMENT_WISE_MULTIPLY"],
    ),
}
CHAIN = [("Mul", "x gamma", "p"), ("Sub", "p two", "s"), ("Sigmoid", "s", "g"), ("Mul", "g x", "y")]
CHAINED = "PointwiseChain(ElementWiseMultiply, ElementWiseSubtract, ActivationSigmoid, ElementWiseMultiply)"
CASES |= {
    "chain": (CHAIN, "chain", [CHAINED]),
    "a chain behind a product": (
        [("MatMul", "x matrix", "c"), ("Neg", "c", "n"), ("Abs", "n", "y")],
        "chain",
        ["GEMM", "PointwiseChain(ElementWiseNegate, ElementWiseAbs)"],
    ),
    "no chain, an output between": (
        [("Neg", "x", "z"), ("Abs", "z", "y")],
        "chain",
        ["ELEMENT_WISE_NEGATE", "ELEMENT_WISE_ABS"],
    ),
}
COMPUTED = [("Relu", "x", "r"), ("Neg", "x", "n")]
TWO_HALVES = [("Slice", "x at0 at3 at3", "left"), ("Slice", "x at3 at6 at3", "right")]
CASES |= {
    "halves that are joined again": (
        [*TWO_HALVES, ("Concat", "left right", "j", {"axis": 3}), ("Relu", "j", "y")],
        "identity",
        ["ACTIVATION_RELU"],
    ),
    "parts of a half, joined again": (
        [
            *TWO_HALVES,
            ("Slice", "right at0 at1 at3", "c"),
            ("Slice", "right at1 at3 at3", "d"),
            ("Concat", "c d", "e", {"axis": 3}),
            ("Concat", "left e", "j", {"axis": 3}),
            ("Relu", "j", "y"),
        ],
        "identity",
        ["ACTIVATION_RELU"],
    ),
    "no identity, halves that change places": (
        [*TWO_HALVES, ("Concat", "right left", "j", {"axis": 3}), ("Relu", "j", "y")],
        "identity",
        ["SLICE1", "JOIN", "ACTIVATION_RELU"],
    ),
    "no identity, a half of something else": (
        [
            ("Neg", "x", "n"),
            TWO_HALVES[0],
            ("Slice", "n at3 at6 at3", "right"),
            ("Concat", "left right", "j", {"axis": 3}),
            ("Abs", "j", "y"),
        ],
        "identity",
        ["ELEMENT_WISE_NEGATE", "SLICE1", "JOIN", "ELEMENT_WISE_ABS"],
    ),
    "no identity, joined along another axis": (
        [*TWO_HALVES, ("Concat", "left right", "j", {"axis": 2}), ("Relu", "j", "y")],
        "identity",
        ["SLICE1", "JOIN", "ACTIVATION_RELU"],
    ),
    "no identity, an output": (
        [*TWO_HALVES, ("Concat", "left right", "y", {"axis": 3})],
        "identity",
        ["SLICE1", "JOIN"],
    ),
    "joined batches": ([*COMPUTED, ("Concat", "r n", "y", {"axis": 0})], "join", ["ACTIVATION_RELU", "ELEMENT_WISE_NEGATE"]),
    "joined channels": (
        [*COMPUTED, ("Concat", "r n", "y", {"axis": 1})],
        "join",
        ["ACTIVATION_RELU", "ELEMENT_WISE_NEGATE", "JOIN"],
    ),
    "joined with an input": (
        [*COMPUTED[:1], ("Concat", "r x", "y", {"axis": 0})],
        "join",
        ["ACTIVATION_RELU", "JOIN"],
    ),
    "a batch": ([("Slice", "x second third batch", "s"), ("Relu", "s", "y")], "split", ["ACTIVATION_RELU"]),
    "a channel": ([("Slice", "x second third channel", "s"), ("Relu", "s", "y")], "split", ["SLICE1", "ACTIVATION_RELU"]),
    "a batch as an output": (
        [("Slice", "x second third batch", "y"), ("Relu", "y", "z")],
        "split",
        ["SLICE1", "ACTIVATION_RELU"],
    ),
}
CASES |= {
    "column scale": ([("MatMul", "x matrix", "m"), ("Mul", "m row", "y")], "column_scale", ["GEMM"]),
    "column scale of a product with C": (
        [
            ("Reshape", "x table", "t"),
            ("Gemm", "t twelve_six gamma", "p", {"alpha": 0.5, "beta": 2.0}),
            ("Mul", "scale p", "n"),
            ("Relu", "n", "y"),
        ],
        "column_scale",
        ["GEMM", "ACTIVATION_RELU"],
    ),
    "column scale of a transposed product": (
        [("Reshape", "x table", "t"), ("Gemm", "t six_twelve", "p", {"transB": 1}), ("Mul", "p shift", "y")],
        "column_scale",
        ["GEMM"],
    ),
    "column scale of what is transposed": (
        [
            ("MatMul", "x gate", "m"),
            ("Transpose", "m", "t", {"perm": [0, 3, 1, 2]}),
            ("Mul", "t eight_channels", "s"),
            ("Relu", "s", "y"),
        ],
        "column_scale",
        ["GEMM", "ELEMENT_WISE_IDENTITY", "ACTIVATION_RELU"],
    ),
    "column scale of what is transposed and added": (
        [
            ("MatMul", "x inner", "i"),
            ("Transpose", "i", "o", {"perm": [0, 3, 1, 2]}),
            ("Relu", "o", "r"),
            ("MatMul", "x gate", "m"),
            ("Transpose", "m", "t", {"perm": [0, 3, 1, 2]}),
            ("Mul", "eight_channels t", "s"),
            ("Add", "s r", "y"),
        ],
        "column_scale",
        ["GEMM", "ACTIVATION_RELU", "GEMM", "ELEMENT_WISE_ADD"],
    ),
    "no column scale, of rows": (
        [("MatMul", "x matrix", "m"), ("Mul", "m five_rows", "y")],
        "column_scale",
        ["GEMM", "ELEMENT_WISE_MULTIPLY"],
    ),
    "no column scale, of what is read twice": (
        [("MatMul", "x matrix", "m"), ("Mul", "m row", "s"), ("Sub", "s m", "y")],
        "column_scale",
        ["GEMM", "ELEMENT_WISE_MULTIPLY", "ELEMENT_WISE_SUBTRACT"],
    ),
}
LAYER = [
    ("ReduceMean", "x", "m", {"axes": [-1]}),
    ("Sub", "x m", "d"),
    ("Pow", "d two", "q"),
    ("ReduceMean", "q", "v", {"axes": [-1]}),
    ("Add", "v epsilon", "e"),
    ("Sqrt", "e", "s"),
]
SQUARES = [
    ("Pow", "x two", "q"),
    ("ReduceMean", "q", "v", {"axes": [-1]}),
    ("Add", "v epsilon", "e"),
    ("Sqrt", "e", "s"),
]
CASES |= {
    "layer normalization": (
        [*LAYER, ("Div", "d s", "n"), ("Mul", "n gamma", "g"), ("Add", "g beta", "y")],
        "layer_normalization",
        ["MEAN_VARIANCE_NORMALIZATION1"],
    ),
    "layer normalization without weights": (
        [*LAYER, ("Div", "d s", "y")],
        "layer_normalization",
        ["MEAN_VARIANCE_NORMALIZATION1"],
    ),
    "layer normalization by a product": (
        [*LAYER[:2], ("Mul", "d d", "q"), *LAYER[3:], ("Div", "d s", "n"), ("Mul", "gamma n", "y")],
        "layer_normalization",
        ["MEAN_VARIANCE_NORMALIZATION1"],
    ),
    "no layer normalization, other axes": (
        [*LAYER[:3], ("ReduceMean", "q", "v", {"axes": [-2, -1]}), *LAYER[4:], ("Div", "d s", "y")],
        "layer_normalization",
        [
            *("REDUCE", "ELEMENT_WISE_SUBTRACT", "ELEMENT_WISE_CONSTANT_POW", "REDUCE"),
            *("ELEMENT_WISE_ADD", "ELEMENT_WISE_SQRT", "ELEMENT_WISE_DIVIDE"),
        ],
    ),
    "root mean square": (
        [*SQUARES, ("Reciprocal", "s", "i"), ("Mul", "x i", "n"), ("Mul", "gamma n", "y")],
        "root_mean_square",
        ["MEAN_VARIANCE_NORMALIZATION2"],
    ),
    "root mean square of what is read once more": (
        [*SQUARES, ("Div", "one s", "i"), ("Mul", "i x", "n"), ("Mul", "n gamma", "g"), ("Add", "g x", "y")],
        "root_mean_square",
        ["MEAN_VARIANCE_NORMALIZATION2"],
    ),
    "root mean square, divided by": (
        [*SQUARES, ("Div", "x s", "n"), ("Mul", "n gamma", "g"), ("Relu", "g", "y")],
        "root_mean_square",
        ["MEAN_VARIANCE_NORMALIZATION2", "ACTIVATION_RELU"],
    ),
    "no root mean square of another tensor": (
        [*SQUARES, ("Neg", "x", "m"), ("Div", "m s", "y")],
        "root_mean_square",
        [
            *("ELEMENT_WISE_CONSTANT_POW", "REDUCE", "ELEMENT_WISE_ADD"),
            *("ELEMENT_WISE_SQRT", "ELEMENT_WISE_NEGATE", "ELEMENT_WISE_DIVIDE"),
        ],
    ),
}
TURNED = [
    ("Slice", "x at0 at3 at3", "a"),
    ("Slice", "x at3 at6 at3", "l"),
    ("Neg", "l", "n"),
    ("Concat", "n a", "r", {"axis": -1}),
]
CASES |= {
    "rotary": (
        [*TURNED, ("Mul", "x cosines", "p"), ("Mul", "r sines", "q"), ("Add", "p q", "y")],
        "rotary",
        ["RotaryEmbedding"],
    ),
    "rotary, the other way round": (
        [*TURNED, ("Mul", "sines r", "q"), ("Mul", "cosines x", "p"), ("Add", "q p", "y")],
        "rotary",
        ["RotaryEmbedding"],
    ),
    "rotary by computed angles": (
        [
            *TURNED,
            ("ReduceMean", "a", "f", {"axes": [0, 1]}),
            ("Concat", "f f", "t", {"axis": -1}),
            ("Cos", "t", "c"),
            ("Sin", "t", "s"),
            ("Mul", "s two", "d"),
            ("Mul", "x c", "p"),
            ("Mul", "r d", "q"),
            ("Add", "p q", "y"),
        ],
        "rotary",
        ["REDUCE", "JOIN", "ELEMENT_WISE_COS", "ELEMENT_WISE_SIN", "ELEMENT_WISE_MULTIPLY", "RotaryEmbedding"],
    ),
    "rotary of pairs": (
        [
            ("Slice", "x at0 at6 at3 at2", "a"),
            ("Slice", "x at1 at6 at3 at2", "l"),
            ("Neg", "l", "n"),
            ("Unsqueeze", "n at4", "u"),
            ("Unsqueeze", "a at4", "v"),
            ("Concat", "u v", "k", {"axis": -1}),
            ("Reshape", "k image", "r"),
            ("Mul", "x cosine_pairs", "p"),
            ("Mul", "r sine_pairs", "q"),
            ("Add", "p q", "y"),
        ],
        "rotary",
        ["RotaryEmbedding"],
    ),
    "rotary of the first elements": (
        [
            ("Slice", "x at0 at4 at3", "h"),
            ("Slice", "x at4 at6 at3", "e"),
            ("Slice", "h at0 at2 at3", "a"),
            ("Slice", "h at2 at4 at3", "l"),
            ("Neg", "l", "n"),
            ("Concat", "n a", "r", {"axis": -1}),
            ("Mul", "h four_cosines", "p"),
            ("Mul", "r four_sines", "q"),
            ("Add", "p q", "t"),
            ("Concat", "t e", "y", {"axis": -1}),
        ],
        "rotary",
        ["RotaryEmbedding"],
    ),
    "no rotary, angles that differ": (
        [*TURNED, ("Mul", "x cosine_pairs", "p"), ("Mul", "r sines", "q"), ("Add", "p q", "y")],
        "rotary",
        ["SLICE1", "ELEMENT_WISE_NEGATE", "JOIN", *("ELEMENT_WISE_MULTIPLY",) * 2, "ELEMENT_WISE_ADD"],
    ),
    "no rotary, another tensor": (
        [*TURNED, ("Relu", "x", "o"), ("Mul", "o cosines", "p"), ("Mul", "r sines", "q"), ("Add", "p q", "y")],
        "rotary",
        [
            *("SLICE1", "ELEMENT_WISE_NEGATE", "JOIN", "ACTIVATION_RELU"),
            *("ELEMENT_WISE_MULTIPLY", "ELEMENT_WISE_MULTIPLY", "ELEMENT_WISE_ADD"),
        ],
    ),
}
HEADS = {"perm": [0, 2, 1, 3]}
ATTENTION = [
    ("Reshape", "x rows", "r"),
    ("MatMul", "r queries", "q0"),
    ("MatMul", "r keys", "k0"),
    ("MatMul", "r values", "v0"),
    ("Reshape", "q0 heads", "q1"),
    ("Reshape", "k0 heads", "k1"),
    ("Reshape", "v0 heads", "v1"),
    ("Transpose", "q1", "q", HEADS),
    ("Transpose", "k1", "k", {"perm": [0, 2, 3, 1]}),
    ("Transpose", "v1", "v", HEADS),
    ("MatMul", "q k", "s"),
]
GATHER = [("MatMul", "p v", "a"), ("Transpose", "a", "t", HEADS), ("Reshape", "t rows", "y")]
GEMMS = ["GEMM"] * 3
TURNED = [
    *ATTENTION[:7],
    ("Transpose", "q1", "q2", HEADS),
    ("Mul", "q2 three", "q"),
    ("Transpose", "k1", "k2", HEADS),
    ("Sigmoid", "k2", "k3"),
    ("Transpose", "k3", "k", {"perm": [0, 1, 3, 2]}),
    *ATTENTION[9:],
]
"""Queries and keys on which something is done when their heads lie one after the other."""
SHARED = [
    ("Reshape", "x rows", "r"),
    ("MatMul", "r queries", "q0"),
    ("MatMul", "r few_keys", "k0"),
    ("MatMul", "r few_values", "v0"),
    ("Reshape", "q0 six_heads", "q1"),
    ("Transpose", "q1", "q", HEADS),
    *(
        node
        for own in "kv"
        for node in (
            ("Reshape", f"{own}0 few_heads", f"{own}1"),
            ("Transpose", f"{own}1", f"{own}2", HEADS),
            ("Unsqueeze", f"{own}2 third", f"{own}3"),
            ("Expand", f"{own}3 repeated", f"{own}4"),
            ("Reshape", f"{own}4 all_heads", f"{own}5"),
        )
    ),
    ("Transpose", "k5", "k", {"perm": [0, 1, 3, 2]}),
    ("Identity", "v5", "v"),
    ("MatMul", "q k", "s"),
]
"""Two heads of queries for one of keys and values."""
IN_ONE_AXIS = [
    *ATTENTION[:7],
    *(("Transpose", f"{own}1", f"{own}2", HEADS) for own in "qv"),
    ("Transpose", "k1", "k2", {"perm": [0, 2, 3, 1]}),
    *(("Reshape", f"{own}2 in_one_axis", own) for own in "qv"),
    ("Reshape", "k2 keys_in_one_axis", "k"),
    ("MatMul", "q k", "s"),
]
"""Batch entries and their heads in one axis, as torch.bmm wants them."""
FROM_ONE_AXIS = [("MatMul", "p v", "a0"), ("Reshape", "a0 in_two_axes", "a"), *GATHER[1:]]
ROWS_FIRST = [
    ("Reshape", "x rows_first", "r"),
    *(("MatMul", f"r {name}", f"{name[0]}0") for name in ("queries", "keys", "values")),
    *(("Reshape", f"{own}0 rows_of_heads", f"{own}1") for own in "qkv"),
    *(("Transpose", f"{own}1", own, {"perm": [1, 0, 2]}) for own in "qv"),
    ("Transpose", "k1", "k", {"perm": [1, 2, 0]}),
    ("MatMul", "q k", "s"),
]
"""The same with rows before the entries, as torch.nn.MultiheadAttention has them."""
FROM_ROWS_FIRST = [
    ("MatMul", "p v", "a"),
    ("Transpose", "a", "t", {"perm": [1, 0, 2]}),
    ("Reshape", "t rows_first", "y"),
]
PARTS = [
    ("Reshape", "x rows", "r"),
    ("MatMul", "r all_three", "a0"),
    ("Reshape", "a0 three_heads", "a1"),
    ("Transpose", "a1", "a2", {"perm": [2, 0, 3, 1, 4]}),
    *(("Gather", f"a2 index{place}", own, {"axis": 0}) for place, own in enumerate(("q", "k2", "v"))),
    ("Transpose", "k2", "k", {"perm": [0, 1, 3, 2]}),
    ("MatMul", "q k", "s"),
]
"""Queries, keys and values in one tensor, as Swin has them."""
CASES |= {
    "attention": (
        [*ATTENTION, ("Div", "s two", "d"), ("Softmax", "d", "p", {"axis": -1}), *GATHER],
        "attention",
        [*GEMMS, "MULTIHEAD_ATTENTION1"],
    ),
    "attention, rows before the batch": (
        [*ATTENTION, ("Softmax", "s", "p", {"axis": -1}), GATHER[0], ("Transpose", "a", "y", {"perm": [2, 0, 1, 3]})],
        "attention",
        [*GEMMS, "MULTIHEAD_ATTENTION1"],
    ),
    "no attention, heads do not come to lie side by side": (
        [*ATTENTION, ("Softmax", "s", "p", {"axis": -1}), GATHER[0], ("Transpose", "a", "y", {"perm": [0, 2, 3, 1]})],
        "attention",
        [*GEMMS, "GEMM", "ACTIVATION_SOFTMAX1", "GEMM", "ELEMENT_WISE_IDENTITY"],
    ),
    "attention, entries and heads in one axis": (
        [*IN_ONE_AXIS, ("Softmax", "s", "p", {"axis": -1}), *FROM_ONE_AXIS],
        "attention",
        [*GEMMS, *["ELEMENT_WISE_IDENTITY"] * 3, "MULTIHEAD_ATTENTION1"],
    ),
    "attention, entries and heads in one axis, but of a mask": (
        [
            *IN_ONE_AXIS,
            ("Reshape", "s scores_in_two_axes", "t0"),
            ("Add", "t0 mask", "t1"),
            ("Reshape", "t1 scores_in_one_axis", "m"),
            ("Softmax", "m", "p", {"axis": -1}),
            *FROM_ONE_AXIS,
        ],
        "attention",
        [*GEMMS, *["ELEMENT_WISE_IDENTITY"] * 3, "MULTIHEAD_ATTENTION1"],
    ),
    "attention, rows before entries and heads": (
        [*ROWS_FIRST, ("Softmax", "s", "p", {"axis": -1}), *FROM_ROWS_FIRST],
        "attention",
        [*GEMMS, "MULTIHEAD_ATTENTION1"],
    ),
    "attention of one head": (
        [
            *ATTENTION[:4],
            ("Transpose", "k0", "k", {"perm": [0, 2, 1]}),
            ("MatMul", "q0 k", "s"),
            ("Softmax", "s", "p", {"axis": -1}),
            ("MatMul", "p v0", "y"),
        ],
        "attention",
        [*GEMMS, "MULTIHEAD_ATTENTION1"],
    ),
    "no attention, products in one axis of a sum in two": (
        [
            *ROWS_FIRST,
            ("Reshape", "s scores_in_two_axes", "s2"),
            ("Add", "s2 s2", "e"),
            ("Add", "e mask", "m"),
            ("Softmax", "m", "n", {"axis": -1}),
            ("Reshape", "n scores_in_one_axis", "p"),
            *FROM_ROWS_FIRST,
        ],
        "attention",
        [*GEMMS, "GEMM", *["ELEMENT_WISE_ADD"] * 2, "ACTIVATION_SOFTMAX1", "GEMM", "ELEMENT_WISE_IDENTITY"],
    ),
    "attention with a mask": (
        [*ATTENTION, ("Mul", "half s", "d"), ("Add", "d mask", "m"), ("Softmax", "m", "p", {"axis": -1}), *GATHER],
        "attention",
        [*GEMMS, "MULTIHEAD_ATTENTION1"],
    ),
    "attention of what is turned": (
        [*TURNED, ("Softmax", "s", "p", {"axis": -1}), *GATHER],
        "attention",
        [*GEMMS, "ELEMENT_WISE_MULTIPLY", "ACTIVATION_SIGMOID", "MULTIHEAD_ATTENTION1"],
    ),
    "attention of shared heads": (
        [*SHARED, ("Softmax", "s", "p", {"axis": -1}), *GATHER],
        "attention",
        [*GEMMS, "MULTIHEAD_ATTENTION1"],
    ),
    "attention of parts of a product, with positions and a mask": (
        [*PARTS, ("Add", "s positions", "e"), ("Add", "e mask", "m"), ("Softmax", "m", "p", {"axis": -1}), *GATHER],
        "attention",
        ["GEMM", *["SLICE1"] * 2, "ELEMENT_WISE_ADD", "MULTIHEAD_ATTENTION1"],
    ),
    "no attention, two are added that are not constant": (
        [*ATTENTION, ("Add", "s s", "e"), ("Add", "e mask", "m"), ("Softmax", "m", "p", {"axis": -1}), *GATHER],
        "attention",
        [*GEMMS, "GEMM", *["ELEMENT_WISE_ADD"] * 2, "ACTIVATION_SOFTMAX1", "GEMM", "ELEMENT_WISE_IDENTITY"],
    ),
    "no attention, over the other axis": (
        [*ATTENTION, ("Softmax", "s", "p", {"axis": 2}), *GATHER],
        "attention",
        [*GEMMS, "GEMM", "ACTIVATION_SOFTMAX1", "GEMM", "ELEMENT_WISE_IDENTITY"],
    ),
    "no attention, its probabilities are an output": (
        [*ATTENTION, ("Softmax", "s", "z", {"axis": -1}), ("MatMul", "z v", "a"), *GATHER[1:]],
        "attention",
        [*GEMMS, "GEMM", "ACTIVATION_SOFTMAX1", "GEMM", "ELEMENT_WISE_IDENTITY"],
    ),
}


@pytest.fixture(scope="module")
def make(make_model: Callable[..., onnx.ModelProto]) -> Callable[..., onnx.ModelProto]:
    """A function from a case's nodes to a model of an element type."""

    def build(nodes: Nodes, dtype: type = f32) -> onnx.ModelProto:
        protos = [
            helper.make_node(op_type, inputs.split(), [output], name=output, **(rest[0] if rest else {}))
            for op_type, inputs, output, *rest in nodes
        ]
        read = {name for node in protos for name in node.input}
        constants = {name: array.astype(dtype) for name, array in WEIGHTS.items() if name in read}
        constants |= {name: array for name, array in SHAPES.items() if name in read}
        outputs = [name for name in ("y", "z") if any(name in node.output for node in protos)]
        types = dict.fromkeys(outputs, dtype)
        return make_model(protos, {"x": (dtype, IMAGE)}, outputs, constants, output_types=types)

    return build


def _operators(model: onnx.ModelProto, without: Sequence[str]) -> list[str]:
    trace = Network(load_model(model), without).trace_whole({"x": IMAGE}, {})
    return [step.desc.type.name if step.desc.type else step.desc.title for step in trace.steps]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_pass_alone(case: tuple[Nodes, str, list[str]], make: Callable[..., onnx.ModelProto]) -> None:
    nodes, name, wanted = case
    model = make(nodes)
    others = [other for other in NAMES if other != name]
    assert _operators(model, others) == wanted
    without = _operators(model, NAMES)
    assert (without == wanted) == _stays(case)
    assert _operators(model, ["all"]) == without


@pytest.mark.parametrize(
    ("dtype", "factors", "folds"),
    [
        (f16, np.full(5, 1e-6), True),
        (f16, np.array([1, 1e-6, 1, 1, 1]), False),
        (f16, np.array([1, 0, 2, 1, 1]), True),
        (f32, np.array([1, 1e-6, 1, 1, 1]), True),
        (f32, np.array([1, 1e-38, 1, 1, 1]), False),
        (f32, np.array([1, 1e38, 1, 1, 1]), False),
        (f32, np.zeros(5), False),
    ],
)
def test_weights_are_scaled_where_no_column_loses_digits(
    dtype: type, factors: np.ndarray, folds: bool, make_model: Callable[..., onnx.ModelProto]
) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Mul", ["m", "g"], ["y"])]
    constants = {"w": WEIGHTS["matrix"].astype(dtype), "g": factors.astype(dtype)}
    model = make_model(nodes, {"x": (dtype, IMAGE)}, ["y"], constants, output_types={"y": dtype})
    kept = _operators(model, [name for name in NAMES if name != "column_scale"])
    assert kept == (["GEMM"] if folds else ["GEMM", "ELEMENT_WISE_MULTIPLY"])


def test_known_indices_in_even_steps_are_a_view(make: Callable[..., onnx.ModelProto]) -> None:
    model = make([("Gather", "x even", "g", {"axis": 2}), ("Relu", "g", "y")])
    assert _operators(model, ["all"]) == ["ACTIVATION_RELU"]


def _stays(case: tuple[Nodes, str, list[str]]) -> bool:
    """Whether a case is about what a pass must leave alone: as many operators as nodes that are no views."""
    nodes, _, wanted = case
    views = [node for node in nodes if node[0] in ("Reshape", "Transpose") or node[:2] == ("Slice", "x at0 at3 at3")]
    copies = [name for name in wanted if name == "ELEMENT_WISE_IDENTITY"]
    return len(wanted) - len(copies) == len(nodes) - len(views)


@pytest.mark.parametrize("dtype", [f32, f16])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_results_agree(
    case: tuple[Nodes, str, list[str]],
    dtype: type,
    make: Callable[..., onnx.ModelProto],
    make_session: Callable[..., InferenceSession],
) -> None:
    """Results with all passes and with none agree, within what the values in between lose by being rounded."""
    model = make(case[0], dtype)
    sessions = [make_session(model, options=SessionOptions(without_passes=without)) for without in ((), ("all",))]
    x = np.random.default_rng(5).standard_normal(IMAGE).astype(dtype)
    for with_passes, without in zip(*(session.run(None, {"x": x}) for session in sessions), strict=True):
        scale = float(np.abs(without.astype(f32)).max())
        limit = 8 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(with_passes.astype(f32), without.astype(f32), rtol=limit, atol=limit * scale)
    assert sessions[0].report().dispatches <= sessions[1].report().dispatches


def test_what_is_constant_runs_once(
    make: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    """What the host has no rules for is for the device, even of what is known before the run."""
    known = [("Shape", "x", "s"), ("Cast", "s", "f", {"to": 1}), ("Softmax", "f", "p"), ("ReduceMax", "p", "e")]
    model = make([*known, ("Mul", "x e", "m"), ("Relu", "m", "y")])
    session, plain = (make_session(model, options=SessionOptions(without_passes=off)) for off in ((), ("constants",)))
    for _ in range(2):
        x = normal(*IMAGE)
        (found,), (wanted,) = (each.run(None, {"x": x}) for each in (session, plain))
        np.testing.assert_array_equal(found, wanted)
        assert session.report().dispatches == plain.report().dispatches - 2
    first, second, third = session.profile({"x": x}).steps
    assert not first.times and not second.times and third.times


@pytest.mark.parametrize(("entries", "is_attention"), [(65535, True), (65536, False)])
def test_more_heads_than_workgroups_stay_products(
    entries: int, is_attention: bool, make_model: Callable[..., onnx.ModelProto]
) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    sizes = (entries, 2, 4)
    steps = Network(load_model(make_model(nodes, {"x": (f32, sizes)}))).trace_whole({"x": sizes}, {}).steps
    assert (len(steps) == 1) == is_attention


@pytest.mark.parametrize("dtype", [f32, f16])
def test_masked_rows_are_attention_too(
    dtype: type, make: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    """As PyTorch exports it: where a mask leaves nothing of a row, its softmax is NaN, and 0 is taken."""
    zero = [("IsNaN", "n", "i"), ("Where", "i zero n", "p")]
    nodes = [*ATTENTION, ("Add", "s nothing", "m"), ("Softmax", "m", "n", {"axis": -1}), *zero, *GATHER]
    model = make(nodes, dtype)
    others = [name for name in NAMES if name not in ("softmax_or_zero", "attention")]
    assert _operators(model, others) == [*GEMMS, "MULTIHEAD_ATTENTION1"]
    x = normal(*IMAGE).astype(dtype)
    found, plain = (
        make_session(model, options=SessionOptions(without_passes=off)).run(None, {"x": x})[0] for off in ((), ("all",))
    )
    limit = 4 * float(np.finfo(dtype).eps)  # in FLOAT16 two drivers came to 1.5, for scores are rounded without passes
    scale = float(np.abs(plain.astype(f32)).max())
    np.testing.assert_allclose(found.astype(f32), plain.astype(f32), rtol=limit, atol=limit * scale)
    assert not found[1].any()
    assert found[0].all()


@pytest.mark.parametrize("is_shared", [False, True], ids=["values of their own", "values for two heads"])
def test_copied_heads_are_not_taken_for_shared_ones(
    is_shared: bool, make: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    """Keys whose heads are copied to another order; values so, too, or repeated, which attention cannot have beside that."""

    def crossed(own: str) -> Nodes:
        return [
            ("Reshape", f"{own}0 crossed_heads", f"{own}1"),
            ("Transpose", f"{own}1", f"{own}2", {"perm": [0, 3, 2, 1, 4]}),
            ("Reshape", f"{own}2 all_heads", f"{own}5"),
        ]

    nodes = [
        ("Reshape", "x rows", "r"),
        ("MatMul", "r queries", "q0"),
        ("MatMul", "r keys", "k0"),
        ("MatMul", "r few_values" if is_shared else "r values", "v0"),
        ("Reshape", "q0 six_heads", "q1"),
        ("Transpose", "q1", "q", HEADS),
        *crossed("k"),
        *(SHARED[11:16] if is_shared else crossed("v")),
        *SHARED[16:],
        ("Softmax", "s", "p", {"axis": -1}),
        *GATHER,
    ]
    model = make(nodes)
    found = _operators(model, [name for name in NAMES if name != "attention"])
    assert found.count("MULTIHEAD_ATTENTION1") == int(not is_shared)
    x = normal(*IMAGE)
    with_passes, plain = (
        make_session(model, options=SessionOptions(without_passes=off)).run(None, {"x": x})[0] for off in ((), ("all",))
    )
    np.testing.assert_allclose(with_passes, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("are_values", [False, True], ids=["keys alone", "values, too"])
def test_turned_keys_of_several_products(
    are_values: bool, make: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    """As PyTorch scales and turns them once for several: they are written with their heads side by side, for all products.
    Where values are the same elements, the other way round, they stay as they are."""
    turned = [("Transpose", "k1", "k2", {"perm": [0, 2, 3, 1]}), ("Mul", "k2 three", "k")]
    values = [("Transpose", "k", "v", {"perm": [0, 1, 3, 2]})] if are_values else [ATTENTION[9]]
    other = [
        ("Sigmoid", "q", "other"),
        ("MatMul", "other k", "scores2"),
        ("Softmax", "scores2", "weights2", {"axis": -1}),
        ("MatMul", "weights2 v", "sums2"),
    ]
    gathered = [("Transpose", "sums2", "turned2", HEADS), ("Reshape", "turned2 rows", "z")]
    model = make(
        [*ATTENTION[:8], *turned, *values, ATTENTION[10], ("Softmax", "s", "p", {"axis": -1}), *GATHER, *other, *gathered]
    )
    steps = Network(load_model(model), [name for name in NAMES if name != "attention"]).trace_whole({"x": IMAGE}, {}).steps
    keys = [step.desc.key_tensor for step in steps if isinstance(step.desc, dmlvk.MultiheadAttention1)]
    assert len(keys) == 2 and all((tensor.effective_strides[-1] == 1) != are_values for tensor in keys)
    x = normal(*IMAGE)
    with_passes, plain = (
        make_session(model, options=SessionOptions(without_passes=off)).run(None, {"x": x}) for off in ((), ("all",))
    )
    for found, wanted in zip(with_passes, plain, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_heads_are_written_side_by_side(
    make: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    model = make([*ATTENTION, ("Softmax", "s", "p", {"axis": -1}), *GATHER])
    off = ["attention", "products"]
    assert _operators(model, ["layout", *off]) == [*_operators(model, off), "ELEMENT_WISE_IDENTITY"]
    x = normal(*IMAGE)
    found, plain = (
        make_session(model, options=SessionOptions(without_passes=off)).run(None, {"x": x})[0]
        for off in (("attention",), ("attention", "layout"))
    )
    np.testing.assert_array_equal(found, plain)


@pytest.mark.quick
def test_what_became_part_of_a_step_is_named_there(make: Callable[..., onnx.ModelProto]) -> None:
    """Of all cases: each node that passes left without a step of its own, but for what is read or written where it lies."""
    in_place = []
    for case, (nodes, _, _) in CASES.items():
        trace = Network(load_model(make(nodes))).trace_whole({"x": IMAGE}, {})
        merged = {origin.name for step in trace.steps for origin in step.merged}
        removed = {label.name: label.reason for label in trace.removed_labels.values()}
        assert {name for name, reason in removed.items() if reason == MERGED} == merged - {
            label.name for label in trace.device_labels.values()
        }, case
        in_place += [(case, name) for name, reason in removed.items() if reason == IN_PLACE]
    parts = "attention of parts of a product, with positions and a mask"
    in_one_axis = [f"attention, entries and heads in one axis{more}" for more in ("", ", but of a mask")]
    assert sorted(in_place) == [
        ("a batch", "s"),
        ("a known index", "g"),
        *((parts, own) for own in ("k2", "v")),
        *((name, own) for name in in_one_axis for own in "kqv"),
        *(("halves that are joined again", own) for own in ("j", "right")),
        ("joined batches", "y"),
        *(("parts of a half, joined again", own) for own in ("d", "e", "j", "right")),
    ]


@pytest.mark.quick
def test_the_report_says_what_became_part_of_another(
    make: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    session = make_session(make([("Conv", "x w", "c"), (*NORMALIZE[:2], "n", {}), ("Relu", "n", "y")]))
    session.run(None, {"x": np.zeros(IMAGE, f32)})
    report = session.report()
    assert report.dispatches == 1
    assert [record.op_type for record in report.gpu_nodes] == ["Conv"]
    assert [(record.op_type, record.reason) for record in report.removed_nodes] == [
        ("BatchNormalization", MERGED),
        ("Relu", MERGED),
    ]


def test_the_report_names_the_operators_of_a_chain(
    make: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    session = make_session(make(CHAIN))
    session.run(None, {"x": np.zeros(IMAGE, f32)})
    report = session.report()
    assert [step.operator for step in report.steps] == [CHAINED]
    assert [record.name for record in report.gpu_nodes] == ["y"]
    assert [(record.name, record.reason) for record in report.removed_nodes] == [(name, MERGED) for name in "psg"]


def test_folded_weights_are_shared_between_shapes(make: Callable[..., onnx.ModelProto]) -> None:
    network = Network(load_model(make([("Conv", "x w", "c"), NORMALIZE])))
    first, second = (network.trace_whole({"x": (1, 4, size, 6)}, {}).steps[0].inputs for size in (5, 7))
    assert first[1] is second[1] and first[2] is second[2]


def test_an_unknown_pass_is_refused(make: Callable[..., onnx.ModelProto]) -> None:
    with pytest.raises(InvalidArgumentError, match="must name passes, which are activation, addition"):
        Network(load_model(make(CASES["relu"][0])), ["relu"]).trace_whole({"x": IMAGE}, {})
