"""Each converter on a small graph: the device's result against onnxruntime's CPU and ONNX's reference, with the number
of dispatches it may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.defs
import pytest
from node_cases import ENVIRONMENT_OPSET, IS_BESIDE
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk.onnx.registry import IN_BLOCKS, MICROSOFT, ROWS

f32, f16, i64, i32, u8 = np.float32, np.float16, np.int64, np.int32, np.uint8
f64, u64, u32, i16, u16, i8, boolean = np.float64, np.uint64, np.uint32, np.int16, np.uint16, np.int8, np.bool_
BOTH = ("onnxruntime", "onnx")


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        op_type, opset: The operator.
        inputs: Sizes of each input of random values, or an array that is fed; None leaves an optional input out.
        attributes: The node's attributes.
        constants: Inputs that are initializers, by index.
        outputs: Number of outputs.
        dispatches: The dispatches of a run.
        against: The runtimes to compare with; one of them is left out where it does not implement the case or
            contradicts the specification, as ``why`` says.
        dtype: The type of the random inputs.
        positive: Whether they are above 0.
        output_types: The types of outputs that differ from that of the first input.
        relative: Tolerance over the largest magnitude.
    """

    op_type: str
    opset: int
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    outputs: int = 1
    dispatches: int = 1
    against: tuple[str, ...] = BOTH
    why: str = ""
    dtype: Any = f32
    positive: bool = False
    output_types: tuple[Any, ...] = ()
    relative: float = 1e-5

    @property
    def name(self) -> str:
        attributes = "-".join(f"{key}={value}" for key, value in self.attributes.items())
        sizes = "x".join(str(getattr(item, "shape", item)) for item in self.inputs)
        return f"{self.op_type}-{self.opset}-{np.dtype(self.dtype)}-{sizes}-{attributes}".replace(" ", "")


def ints(*values: int) -> np.ndarray:
    return np.array(values, i64)


def numbers(dtype: Any, *values: float) -> np.ndarray:
    return np.array(values, dtype)


IMAGE = (2, 3, 9, 7)
SPECIAL = numbers(f32, 0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 3.5, -2.5, 2.5, 0.5)
BITS = (np.array([[0], [1], [0x80], [0xFF]], u8), np.array([0, 1, 7, 8], u8))
I4, U4 = (numpy_helper.to_array(TensorProto(data_type=code, dims=[0])).dtype for code in (22, 21))
NIBBLES = (np.arange(15) - 8).reshape(3, 5)
BYTES = np.arange(24, dtype=u8).reshape(2, 3, 4)
POSITIONS = np.array([[3, 1, 4, 1, 5], [49, 0, 2, 6, 5]], i64)
ONLY_ORT = {"against": ("onnxruntime",)}
ONLY_ONNX = {"against": ("onnx",)}

CASES = [
    # -- activations
    Case("Relu", 7, (IMAGE,)),
    Case("Relu", 13, (IMAGE,), dtype=f16, **ONLY_ONNX, why="onnxruntime's CPU has no float16 Relu"),
    Case("Relu", 14, ((5, 7),), dtype=i32),
    Case("Relu", 14, ((),)),
    Case("LeakyRelu", 7, (IMAGE,)),
    Case("LeakyRelu", 16, (IMAGE,), {"alpha": 0.3}),
    Case("Elu", 7, (IMAGE,), {"alpha": 1.5}),
    Case("Selu", 7, (IMAGE,)),
    Case("Celu", 12, (IMAGE,), {"alpha": 0.7}),
    Case("HardSigmoid", 7, (IMAGE,)),
    Case("HardSigmoid", 7, (IMAGE,), {"alpha": 0.3, "beta": 0.4}),
    Case("HardSwish", 14, (IMAGE,)),
    Case("Sigmoid", 13, (IMAGE,)),
    Case("Tanh", 7, (IMAGE,)),
    Case("Softplus", 7, (IMAGE,)),
    Case("Softsign", 7, (IMAGE,)),
    Case("ThresholdedRelu", 10, (IMAGE,), {"alpha": 0.5}),
    Case("Shrink", 9, (IMAGE,), {"bias": 0.2, "lambd": 0.6}),
    Case("Gelu", 20, (IMAGE,)),
    Case("Gelu", 20, (IMAGE,), {"approximate": "tanh"}),
    Case("Mish", 18, (IMAGE,)),
    Case("PRelu", 7, (IMAGE, (3, 1, 1))),
    Case("PRelu", 9, (IMAGE, (1,))),
    Case("PRelu", 16, (IMAGE, IMAGE)),
    Case("Softmax", 7, ((3, 4, 5),), **ONLY_ORT, why="the reference has opset 13's meaning for every opset"),
    Case("Softmax", 11, ((3, 4, 5),), {"axis": 2}),
    Case("Softmax", 12, ((3, 4, 5),), {"axis": 0}, **ONLY_ORT, why="as above"),
    Case("Softmax", 12, ((3, 4, 5),), {"axis": -2}, **ONLY_ORT, why="as above"),
    Case("Softmax", 13, ((3, 4, 5),)),
    Case("Softmax", 13, ((3, 4, 5),), {"axis": 1}),
    Case("LogSoftmax", 11, ((3, 4, 5),), **ONLY_ORT, why="as above"),
    Case("LogSoftmax", 13, ((3, 4, 5),), {"axis": 0}),
    Case("Hardmax", 11, ((3, 4, 5),), **ONLY_ORT, why="as above"),
    Case("Hardmax", 12, ((3, 4, 5),), {"axis": 0}, **ONLY_ORT, why="as above"),
    Case("Hardmax", 13, ((3, 4, 5),)),
    Case("Hardmax", 13, ((3, 4, 5),), {"axis": 1}),
    Case("LpNormalization", 1, ((3, 4, 5),)),
    Case("LpNormalization", 1, ((3, 4, 5),), {"axis": 1, "p": 1}, **ONLY_ORT, why="the reference adds x, not abs(x)"),
    Case("LpNormalization", 22, ((3, 4, 5),), {"axis": -2, "p": 2}),
    # -- language models
    Case("Swish", 24, (IMAGE,), {"alpha": 1.75}, **ONLY_ONNX, why="onnxruntime's CPU has no Swish"),
    Case("CumProd", 26, ((5, 7), np.array(-1, i32)), {"reverse": 1, "exclusive": 1}, constants={1: np.array(-1, i32)},
         **ONLY_ONNX, why="onnxruntime's CPU has no CumProd"),
    Case("RMSNormalization", 23, ((2, 5, 64), (64,))),
    Case("RMSNormalization", 23, ((2, 3, 5, 7), (3, 1, 7)), {"axis": 1, "epsilon": 0.1}),
    Case("RMSNormalization", 23, ((3, 33), (33,)), dtype=f16, relative=1e-3),
    Case("RotaryEmbedding", 23, ((2, 3, 5, 8), (50, 4), (50, 4), POSITIONS)),
    Case("RotaryEmbedding", 23, ((2, 5, 24), (50, 4), (50, 4), POSITIONS), {"num_heads": 3, "interleaved": 1}),
    Case("RotaryEmbedding", 23, ((2, 5, 33), (2, 5, 3), (2, 5, 3)), {"num_heads": 3, "rotary_embedding_dim": 6}),
    Case("RotaryEmbedding", 23, ((2, 3, 5, 9), (2, 5, 3), (2, 5, 3)), {"rotary_embedding_dim": 6, "interleaved": 1}),
    Case("RotaryEmbedding", 23, ((2, 3, 5, 16), (2, 5, 8), (2, 5, 8)), dtype=f16, relative=1e-3),
    Case("LinearAttention", 27, ((2, 5, 4 * 33), (2, 5, 2 * 33), (2, 5, 2 * 3), (2, 2, 33, 3), (2, 5, 2 * 33), (2, 5, 1)),
         {"q_num_heads": 4, "kv_num_heads": 2}, outputs=2, **ONLY_ONNX, why="onnxruntime has it as its own operator"),
    Case("LinearAttention", 27, ((2, 7, 12), (2, 7, 12), (2, 7, 15), None, (2, 7, 3)),
         {"q_num_heads": 3, "kv_num_heads": 3, "update_rule": "gated"}, outputs=2, **ONLY_ONNX, why="as above"),
    Case("LinearAttention", 27, ((1, 1, 8), (1, 1, 8), (1, 1, 70), (1, 1, 8, 70), None, (1, 1, 1)),
         {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "delta", "scale": 0.5}, outputs=2,
         **ONLY_ONNX, why="as above"),
    Case("LinearAttention", 27, ((2, 3, 16), (2, 3, 8), (2, 3, 9), np.full((2, 1, 8, 9), 0.3, f32)),
         {"q_num_heads": 2, "kv_num_heads": 1, "update_rule": "linear"}, outputs=2, dtype=f16, output_types=(f16, f32),
         relative=1e-3, **ONLY_ONNX, why="as above"),
    Case("TensorScatter", 24, ((2, 3, 6, 4), (2, 3, 2, 4), ints(4, 0)), dispatches=4),
    Case("TensorScatter", 24, ((2, 3, 6, 4), (2, 3, 1, 4), ints(4, 0)), dispatches=2),
    Case("TensorScatter", 24, ((2, 6, 4), (2, 3, 4), ints(5, 2)), {"axis": 1, "mode": "circular"}, dispatches=5),
    Case("TensorScatter", 24, ((2, 6, 4), (2, 3, 4)), dispatches=3),
    Case("CausalConvWithState", 27, ((2, 3, 7), (3, 1, 4), (3,), (2, 3, 3)), {"activation": "silu"}, outputs=2, dispatches=4,
         **ONLY_ONNX, why="onnxruntime has it as its own operator"),
    Case("CausalConvWithState", 27, ((2, 3, 2), (3, 1, 4)), outputs=2, dispatches=2, **ONLY_ONNX, why="as above"),
    # -- elementwise
    Case("Add", 7, (IMAGE, (3, 1, 1))),
    Case("Add", 14, ((4, 1), (1, 5))),
    Case("Add", 14, ((), (2, 3))),
    Case("Add", 14, ((2, 3), (2, 3)), dtype=i64),
    Case("Sub", 7, (IMAGE, (7,))),
    Case("Sub", 14, ((2, 3), (2, 3)), dtype=u8, **ONLY_ONNX, why="onnxruntime's CPU has no uint8 Sub"),
    Case("Mul", 14, (IMAGE, (2, 3, 1, 1))),
    Case("Div", 14, (IMAGE, IMAGE), positive=True),
    Case("Div", 14, (np.array([7, -7, 5, 2147483647], i32), np.array([2, 2, -3, 1], i32)), **ONLY_ORT,
         why="the reference rounds down, the specification toward zero", dtype=i32),
    Case("Abs", 13, (IMAGE,)),
    Case("Neg", 13, (IMAGE,)),
    Case("Ceil", 13, (IMAGE,)),
    Case("Floor", 7, (IMAGE,)),
    Case("Exp", 13, (IMAGE,)),
    Case("Log", 13, (IMAGE,), positive=True),
    Case("Sqrt", 13, (IMAGE,), positive=True),
    Case("Reciprocal", 13, (IMAGE,), positive=True),
    Case("Erf", 13, (IMAGE,)),
    Case("Mod", 13, (np.array([7, -7, 7, -7], i64), np.array([3, 3, -3, -3], i64)), dtype=i64),
    Case("Mod", 13, (np.array([7, -7, 7, -7], i64), np.array([3, 3, -3, -3], i64)), {"fmod": 1}, dtype=i64),
    Case("Mod", 10, ((3, 5), (5,)), {"fmod": 1}, positive=True),
    Case("Max", 8, (IMAGE, IMAGE, (1,))),
    Case("Max", 13, ((3, 4),), dispatches=0),
    Case("Min", 13, ((3, 1), (1, 4))),
    Case("Min", 12, ((3, 4), (3, 4)), dtype=i32),
    Case("Sum", 13, (IMAGE, IMAGE, IMAGE)),
    Case("Mean", 13, (IMAGE, IMAGE, IMAGE)),
    Case("Mean", 13, (IMAGE, (7,))),
    Case("Clip", 7, (IMAGE,), {"min": -0.5, "max": 0.5}),
    Case("Clip", 7, (IMAGE,), {"max": 0.5}),
    Case("Clip", 13, (IMAGE, (), ()), constants={1: np.array(-0.3, f32), 2: np.array(0.4, f32)}),
    Case("Clip", 13, (IMAGE, None, ()), constants={2: np.array(0.4, f32)}),
    Case("Clip", 13, (IMAGE, (), ()), constants={1: np.array(0.9, f32), 2: np.array(0.4, f32)}),
    Case("Clip", 13, (IMAGE, np.array(-0.3, f32), np.array(0.4, f32))),
    Case("Clip", 12, ((4, 5), (), ()), constants={1: np.array(-3, i32), 2: np.array(4, i32)}, dtype=i32),
    # -- trigonometry and the like
    Case("Acos", 7, (np.linspace(-1, 1, 21, dtype=f32),)),
    Case("Acosh", 9, (np.linspace(1, 30, 21, dtype=f32),)),
    Case("Asin", 7, (np.linspace(-1, 1, 21, dtype=f32),)),
    Case("Asinh", 9, (IMAGE,)),
    Case("Atan", 7, (IMAGE,)),
    Case("Atanh", 9, (np.linspace(-1, 1, 21, dtype=f32),)),
    Case("Cos", 7, (IMAGE,)),
    Case("Cosh", 9, (IMAGE,)),
    Case("Sin", 7, (IMAGE,)),
    Case("Sinh", 9, (IMAGE,)),
    Case("Tan", 7, (IMAGE,)),
    Case("Round", 11, (SPECIAL,)),
    Case("Sign", 13, ((4, 5),), dtype=i64),
    Case("Sign", 9, (SPECIAL[np.isfinite(SPECIAL)],)),
    # -- powers
    Case("Pow", 7, (IMAGE, (7,)), positive=True),
    Case("Pow", 13, ((4, 1), numbers(f32, 2.0, -1.0, 0.0))),
    Case("Pow", 13, ((4, 5), ()), constants={1: np.array(2, i64)}),
    Case("Pow", 13, ((4, 5), ()), constants={1: numbers(f32, 0.5)}, positive=True),
    Case("Pow", 13, ((4, 3), ()), constants={1: np.array(2**40 + 1, i64)}),
    Case("Pow", 13, ((4, 3), ()), constants={1: numbers(i64, 3, 2**40, -(2**40) - 1)}),
    Case("Pow", 13, ((4, 3), numbers(i64, 3, 2**40, -(2**40) - 1)), dispatches=5),
    Case("Pow", 13, ((4, 3), numbers(u64, 3, 2**40 + 1, 2**63)), dispatches=5, **ONLY_ONNX,
         why="onnxruntime has no uint64 exponent"),
    Case("Pow", 13, ((4, 2), numbers(i8, 3, -2)), **ONLY_ONNX, why="onnxruntime has no int8 exponent"),
    Case("Pow", 13, ((4, 3), numbers(f32, 3, 0.5, -2)), dtype=f16, positive=True, relative=2e-3, **ONLY_ONNX,
         why="onnxruntime's CPU has no float16 Pow"),
    Case("Pow", 13, ((4, 3), ints(3, 0, 5)), dtype=i32, dispatches=5),
    Case("Pow", 13, ((4, 2), numbers(f32, 3, 2)), dtype=i32),
    Case("Pow", 13, ((4, 5), ()), constants={1: np.array(2, i64)}, dtype=i64),
    Case("Pow", 13, ((4, 5), ()), constants={1: np.array(7.0, f32)}, dtype=i64, dispatches=4),
    Case("Pow", 13, ((4, 5), ()), constants={1: np.array(0, i64)}, dtype=i64),
    Case("Pow", 13, (np.array([[2**33 + 1], [-3], [1], [0]], i64), ints(1, 0, 2, 9, 63)), dtype=i64, dispatches=35,
         **ONLY_ONNX, why="onnxruntime goes through float64"),
    Case("Pow", 13, (np.array([[7], [-2], [1], [-1]], i64), ints(-1, -2, -(2**40) - 1)), dtype=i64, dispatches=35,
         **ONLY_ORT, why="the reference refuses negative exponents"),
    Case("Pow", 13, (np.array([[1], [-1], [0]], i64), numbers(u64, 2**63, 2**40 + 1, 64)), dtype=i64, dispatches=32,
         **ONLY_ONNX, why="onnxruntime has no uint64 exponent"),
    Case("Pow", 13, (ints(2, 9, 3, 10, -3), numbers(f32, 0.5, 0.5, 3, -1, 3)), dtype=i64, dispatches=42),
    Case("Pow", 13, (ints(2, 9, 3, 10, -3), numbers(f64, 0.5, 0.5, 3, -1, 3)), dtype=i64, dispatches=43),
    # -- comparisons, logic and bits
    Case("And", 7, ((3, 4), (4,)), dtype=boolean),
    Case("Or", 7, ((3, 1), (4,)), dtype=boolean),
    Case("Xor", 7, ((3, 4), (3, 4)), dtype=boolean),
    Case("Not", 1, ((3, 4),), dtype=boolean),
    Case("Equal", 7, ((3, 4), (4,)), dtype=i64, output_types=(boolean,)),
    Case("Equal", 13, (SPECIAL[:, None], SPECIAL), output_types=(boolean,)),
    Case("Equal", 19, ((3, 4), (3, 4)), dtype=boolean, output_types=(boolean,)),
    Case("Greater", 9, ((3, 4), (4,)), dtype=i32, output_types=(boolean,)),
    Case("Greater", 13, (SPECIAL[:, None], SPECIAL), output_types=(boolean,)),
    Case("GreaterOrEqual", 12, (SPECIAL[:, None], SPECIAL), output_types=(boolean,)),
    Case("Less", 7, ((3, 1), (4,)), output_types=(boolean,)),
    Case("Less", 13, (numbers(u64, 2**63, 1, 5), numbers(u64, 1, 2**63, 5)), dtype=u64, output_types=(boolean,)),
    Case("LessOrEqual", 16, (SPECIAL[:, None], SPECIAL), output_types=(boolean,)),
    Case("IsNaN", 13, (SPECIAL,), output_types=(boolean,)),
    Case("IsInf", 10, (SPECIAL,), output_types=(boolean,)),
    Case("IsInf", 10, (SPECIAL,), {"detect_negative": 0}, output_types=(boolean,)),
    Case("IsInf", 10, (SPECIAL,), {"detect_positive": 0}, output_types=(boolean,)),
    Case("IsInf", 10, (SPECIAL,), {"detect_positive": 0, "detect_negative": 0}, output_types=(boolean,)),
    Case("BitShift", 11, BITS, {"direction": "LEFT"}, dtype=u8),
    Case("BitShift", 11, BITS, {"direction": "RIGHT"}, dtype=u8),
    Case("BitwiseAnd", 18, BITS, dtype=u8),
    Case("BitwiseOr", 18, BITS, dtype=u8),
    Case("BitwiseXor", 18, ((3, 4), (4,)), dtype=i64),
    Case("BitwiseNot", 18, ((3, 4),), dtype=i32),
    Case("Where", 9, ((np.arange(12) % 3 == 0).reshape(3, 4), ints(1, 2, 3, 2**40), ints(-1)), output_types=(i64,)),
    Case("Where", 16, (np.array([[True], [False]]), SPECIAL, np.arange(11, dtype=f32)), output_types=(f32,)),
    Case("Where", 16, (np.array([True, False]), (3, 1), (2,)), dtype=f64),
    # -- changes of type
    Case("Cast", 6, (SPECIAL,), {"to": 9}, dispatches=2, output_types=(boolean,)),
    Case("Cast", 9, (SPECIAL.astype(f16),), {"to": 9}, dispatches=2, output_types=(boolean,)),
    Case("Cast", 13, (SPECIAL.astype(f64),), {"to": 9}, dispatches=2, output_types=(boolean,)),
    Case("Cast", 13, (ints(0, 1, -1, 256, 2**32, -(2**63)),), {"to": 9}, output_types=(boolean,)),
    Case("Cast", 13, (BITS[1],), {"to": 9}, output_types=(boolean,)),
    Case("Cast", 13, ((3, 4),), {"to": 1}, dtype=boolean, output_types=(f32,)),
    Case("Cast", 13, ((3, 4),), {"to": 7}, dtype=boolean, output_types=(i64,)),
    Case("Cast", 13, ((3, 4),), {"to": 2}, dtype=boolean, output_types=(u8,), dispatches=0),
    Case("Cast", 13, ((3, 4),), {"to": 9}, dtype=boolean, output_types=(boolean,), dispatches=0),
    Case("Cast", 13, ((3, 4),), {"to": 12}, dtype=i32, output_types=(u32,), dispatches=0),
    Case("Cast", 13, (ints(1, -1, 2**40 + 7, -(2**35) - 3),), {"to": 6}, dtype=i64, output_types=(i32,)),
    Case("Cast", 13, ((3, 4),), {"to": 1}, dtype=i64, output_types=(f32,)),
    Case("Cast", 13, (numbers(f32, 2.9, -2.9, 0.5, -0.0),), {"to": 7}, output_types=(i64,)),
    Case("Cast", 13, ((3, 4),), {"to": 10}, output_types=(f16,)),
    Case("Cast", 13, ((3, 4),), {"to": 11}, output_types=(f64,)),
    Case("CastLike", 15, ((3, 4), numbers(i32, 1)), output_types=(i32,)),
    Case("CastLike", 15, ((3, 4), ()), constants={1: np.array(True)}, dispatches=2, output_types=(boolean,)),
    Case("Cast", 21, (numbers(i8, -8, 7, -1, 3, 0),), {"to": 22}, output_types=(I4,), dispatches=2, **ONLY_ONNX,
         why="onnxruntime accepts opset 21 models of a newer IR version only"),
    Case("Cast", 21, (numbers(i8, 7, 0, 3).astype(I4),), {"to": 21}, output_types=(U4,), dispatches=0, **ONLY_ONNX,
         why="as above"),
    Case("Cast", 21, (NIBBLES.astype(I4),), {"to": 9}, output_types=(boolean,), dispatches=3, **ONLY_ONNX, why="as above"),
    Case("CastLike", 21, (NIBBLES.astype(I4), numbers(f16, 1)), output_types=(f16,), **ONLY_ONNX, why="as above"),
    # -- quantization
    Case("BitCast", 26, ((3, 4),), {"to": 6}, output_types=(i32,), dispatches=0, **ONLY_ONNX, why="as above"),
    Case("QuantizeLinear", 10, (np.linspace(-300, 300, 31, dtype=f32), np.array(2, f32)),
         output_types=(u8,)),
    Case("QuantizeLinear", 10, (np.linspace(-300, 300, 31, dtype=f32), np.array(2, f32), np.array(-7, i8)),
         output_types=(i8,)),
    Case("QuantizeLinear", 13, ((2, 3, 4), numbers(f32, 0.1, 0.02, 0.3), numbers(u8, 0, 128, 255)), output_types=(u8,),
         **ONLY_ORT, why="the reference of this version wants an axis"),
    Case("QuantizeLinear", 13, ((2, 3, 4), numbers(f32, 0.1, 0.02), numbers(i8, 0, 12)), {"axis": -3},
         output_types=(i8,)),
    Case("QuantizeLinear", 13, (np.arange(-400, 400, 7, dtype=i32), np.array(3, f32), np.array(5, u8)), dtype=i32,
         output_types=(u8,), **ONLY_ONNX, why="onnxruntime's CPU quantizes floats only"),
    Case("QuantizeLinear", 21, ((2, 5, 3), np.full((2, 2, 3), 0.3, f32)), {"axis": 1, "block_size": 3, "output_dtype": 3},
         output_types=(i8,), dispatches=2, **ONLY_ONNX,
         why="onnxruntime accepts opset 21 models of a newer IR version only"),
    Case("QuantizeLinear", 21, ((2, 6), np.array(0.01, f32), np.array(40000, u16)), output_types=(u16,), dispatches=3,
         **ONLY_ONNX, why="as above"),
    Case("DequantizeLinear", 10, (BYTES, np.array(0.3, f32), np.array(7, u8)), output_types=(f32,), **ONLY_ORT,
         why="the reference begins with opset 19"),
    Case("DequantizeLinear", 10, (np.arange(-5, 5, dtype=i32), np.array(0.3, f32)), output_types=(f32,), **ONLY_ORT,
         why="as above"),
    Case("DequantizeLinear", 13, (BYTES, numbers(f32, 0.3, 2, 5), numbers(u8, 1, 2, 3)), output_types=(f32,), **ONLY_ORT,
         why="as above"),
    Case("DequantizeLinear", 19, (BYTES, numbers(f16, 0.3, 2, 5, 1)), {"axis": 2}, output_types=(f16,), relative=1e-3),
    Case("DequantizeLinear", 21, (BYTES, np.linspace(1, 2, 16, dtype=f32).reshape(2, 2, 4), np.full((2, 2, 4), 3, u8)),
         {"axis": 1, "block_size": 2}, output_types=(f32,), dispatches=3, **ONLY_ONNX, why="as above"),
    Case("DequantizeLinear", 21, (BYTES, np.linspace(1, 2, 12, dtype=f32).reshape(2, 3, 2), np.full((2, 3, 2), 3, u8)),
         {"axis": -1, "block_size": 2}, output_types=(f32,), **ONLY_ONNX, why="as above"),
    Case("DequantizeLinear", 21, (BYTES.astype(i16) * 1000, np.array(0.3, f32)), output_types=(f32,), **ONLY_ONNX,
         why="as above"),
    Case("DequantizeLinear", 21, (NIBBLES.astype(I4), numbers(f32, 0.3, 2, 5), NIBBLES[:, 2].astype(I4)), {"axis": 0},
         output_types=(f32,), **ONLY_ONNX, why="as above"),
    Case("DequantizeLinear", 21, ((BYTES % 16).astype(U4), np.linspace(1, 2, 12, dtype=f16).reshape(2, 3, 2)),
         {"axis": 2, "block_size": 2}, output_types=(f16,), relative=1e-3, **ONLY_ONNX, why="as above"),
    Case("DequantizeLinear", 21, (NIBBLES[:, 1:].astype(I4), numbers(f32, 1, 2, 3, 4), ()),
         constants={2: numbers(i8, -8, 7, 0, -1).astype(I4)}, output_types=(f32,), **ONLY_ONNX, why="as above"),
    Case("QuantizeLinear", 21, ((3, 5), numbers(f32, 0.3, 2, 0.01), numbers(i8, 3, -8, 0).astype(I4)), {"axis": 0},
         output_types=(I4,), **ONLY_ONNX, why="as above"),
    Case("QuantizeLinear", 21, ((3, 5), np.array(0.1, f32)), {"output_dtype": 21}, output_types=(U4,), **ONLY_ONNX,
         why="as above"),
    Case("DynamicQuantizeLinear", 11, (IMAGE,), outputs=3, output_types=(u8, f32, u8), dispatches=3),
    Case("DynamicQuantizeLinear", 11, (np.linspace(-3, -1, 7, dtype=f32),), outputs=3, output_types=(u8, f32, u8),
         dispatches=3),
    Case("DynamicQuantizeLinear", 11, (numbers(f32, 0, 0, 0),), outputs=3, output_types=(u8, f32, u8), dispatches=3,
         **ONLY_ORT, why="the reference divides by a scale of 0"),
    Case("DynamicQuantizeLinear", 11, ((),), outputs=3, output_types=(u8, f32, u8), dispatches=3),
    Case("DynamicQuantizeLinear", 11, ((2, 0),), outputs=3, output_types=(u8, f32, u8), dispatches=2, against=(),
         why="neither has a range of nothing"),
    # -- made from little
    Case("ConstantOfShape", 9, (ints(2, 3),)),
    Case("ConstantOfShape", 20, (ints(2, 3),), {"value": helper.make_tensor("", 9, (1,), [True])},
         output_types=(boolean,)),
    Case("ConstantOfShape", 9, (ints(2, 0),), {"value": helper.make_tensor("", 7, (1,), [2**40])}, dispatches=0,
         output_types=(i64,)),
    Case("Range", 11, (np.array(1, f32), np.array(2, f32), np.array(0.1, f32))),
    Case("Range", 11, (np.array(9, i64), np.array(-8, i64), np.array(-3, i64)), dtype=i64),
    Case("Range", 11, (np.array(3, i16), np.array(2, i16), np.array(1, i16)), dispatches=0, dtype=i16),
    Case("EyeLike", 9, ((4, 5),)),
    Case("EyeLike", 9, ((4, 5),), {"k": -2, "dtype": 9}, output_types=(boolean,), **ONLY_ONNX,
         why="onnxruntime's CPU has no bool EyeLike"),
    Case("EyeLike", 9, ((4, 5),), {"k": 2**40, "dtype": 11}, output_types=(f64,)),
    Case("Trilu", 14, ((2, 1, 2, 4, 5),)),
    Case("Trilu", 14, ((4, 5), np.array(-2, i64)), {"upper": 0}, dtype=i64),
    Case("Trilu", 14, ((4, 5), ()), constants={1: np.array(1, i64)}, dtype=boolean),
    Case("OneHot", 9, (np.array([[0, 2], [4, 5]], i64), np.array(5, i64), numbers(f32, 3, -1)), output_types=(f32,),
         **ONLY_ORT, why="the reference takes indices out of range modulo the depth"),
    Case("OneHot", 11, (np.array([[0, -1], [4, 5]], i64), np.array(5, i64), numbers(i64, 3, -1)), {"axis": 0},
         output_types=(i64,), **ONLY_ORT, why="as above"),
    Case("OneHot", 11, (numbers(f32, 0, -1, -6, 9), np.array(5, f32), numbers(f32, 0, 1)), {"axis": -2}, dispatches=2,
         output_types=(f32,), **ONLY_ORT, why="as above"),
    Case("HannWindow", 17, (np.array(10, i64),), dispatches=1),
    Case("HammingWindow", 17, (np.array(9, i32),), {"periodic": 0}, dispatches=1),
    Case("BlackmanWindow", 17, (np.array(9, i32),), {"output_datatype": 11}, dispatches=1, output_types=(f64,)),
    # -- convolution
    Case("Conv", 7, (IMAGE, (4, 3, 3, 3), (4,)), {"pads": [1, 1, 1, 1]}),
    Case("Conv", 11, (IMAGE, (4, 3, 3, 2)), {"pads": [0, 1, 2, 0], "strides": [2, 1], "kernel_shape": [3, 2]}),
    Case("Conv", 11, (IMAGE, (6, 1, 3, 3), (6,)), {"group": 3, "dilations": [2, 2]}),
    Case("Conv", 11, (IMAGE, (4, 3, 3, 3)), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, **ONLY_ORT,
         why="the reference gives auto_pad other output sizes where there are strides"),
    Case("Conv", 11, (IMAGE, (4, 3, 4, 4)), {"auto_pad": "SAME_LOWER"}),
    Case("Conv", 11, (IMAGE, (4, 3, 4, 4)), {"auto_pad": "VALID", "strides": [2, 2]}, **ONLY_ORT, why="as above"),
    Case("Conv", 22, ((2, 3, 11), (4, 3, 5), (4,)), {"pads": [2, 1]}, **ONLY_ONNX,
         why="onnxruntime accepts opset 22 models of a newer IR version only"),
    Case("Conv", 11, ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2)), {"strides": [1, 2, 2]}),
    Case("ConvTranspose", 11, ((1, 3, 5, 4), (3, 2, 3, 3), (2,)), {"strides": [2, 2], "pads": [1, 0, 1, 1]}),
    Case("ConvTranspose", 11, ((1, 3, 5, 4), (3, 2, 3, 3)), {"strides": [3, 2], "output_padding": [2, 1]}),
    Case("ConvTranspose", 11, ((1, 4, 5, 4), (4, 2, 3, 3)), {"group": 2, "dilations": [2, 1]}, **ONLY_ORT,
         why="the reference has no groups"),
    Case("ConvTranspose", 11, ((1, 3, 5, 4), (3, 2, 3, 3)), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    Case("ConvTranspose", 11, ((1, 3, 5, 4), (3, 2, 3, 3)), {"strides": [2, 2], "output_shape": [10, 8]}, **ONLY_ORT,
         why="the reference pads the other side"),
    # -- pooling
    Case("MaxPool", 7, (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 2]}),
    Case("MaxPool", 10, (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    Case("MaxPool", 12, (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "dilations": [2, 1]}),
    Case("MaxPool", 12, (IMAGE,), {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
         **ONLY_ORT, why="the reference gives auto_pad other output sizes where there are strides"),
    Case("MaxPool", 12, ((2, 3, 11),), {"kernel_shape": [4], "strides": [3]}),
    Case("MaxPool", 12, ((1, 2, 5, 6, 7),), {"kernel_shape": [2, 3, 2]}),
    Case("MaxPool", 12, (IMAGE,), {"kernel_shape": [2, 2], "strides": [2, 2]}, outputs=2, output_types=(f32, i64)),
    Case("MaxPool", 12, ((2, 3, 11),), {"kernel_shape": [2]}, outputs=2, output_types=(f32, i64), **ONLY_ORT,
         why="the reference counts indices from each channel's start"),
    Case("MaxPool", 12, (IMAGE,), {"kernel_shape": [2, 2]}, dtype=u8, **ONLY_ORT, why="the reference pads with NaN"),
    Case("MaxPool", 12, ((1, 1, 2, 2),), {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1,
                                          "pads": [0, 0, 0, 0]}, **ONLY_ORT, why="the reference has a window too many"),
    Case("AveragePool", 7, (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case("AveragePool", 7, (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case("AveragePool", 10, (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}, **ONLY_ORT,
         why="the reference averages other windows"),
    Case("AveragePool", 19, (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1,
                                       "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case("AveragePool", 19, (IMAGE,), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    Case("AveragePool", 11, ((2, 3, 11),), {"kernel_shape": [4], "strides": [3]}),
    Case("AveragePool", 22, ((1, 1, 9, 8),), {"kernel_shape": [4, 3], "strides": [3, 4], "ceil_mode": 1,
                                               "count_include_pad": 1}, **ONLY_ORT, why="onnx 1.17 counts the overhang"),
    Case("AveragePool", 19, ((1, 2, 7, 5),), {"kernel_shape": [10, 2], "strides": [13, 1], "ceil_mode": 1,
                                              "count_include_pad": 1, "pads": [1, 0, 1, 0]}, **ONLY_ORT,
         why="the reference has no window that is larger than the input"),
    Case("MaxPool", 12, ((1, 2, 7, 5),), {"kernel_shape": [5, 2], "dilations": [2, 1], "strides": [4, 1], "ceil_mode": 1},
         **ONLY_ORT, why="the reference has no window that is larger than the input"),
    Case("GlobalAveragePool", 7, (IMAGE,)),
    Case("GlobalAveragePool", 7, ((2, 3, 11),)),
    Case("GlobalAveragePool", 7, ((1, 2, 5, 6, 7),)),
    Case("GlobalMaxPool", 7, (IMAGE,)),
    Case("MaxPool", 12, (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 1], "storage_order": 1}, outputs=2,
         output_types=(f32, i64), **ONLY_ORT, why="the reference counts indices from each channel's start"),
    Case("LpPool", 11, (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    Case("LpPool", 18, (IMAGE,), {"kernel_shape": [3, 2], "dilations": [2, 3], "p": 3}),
    Case("LpPool", 18, (IMAGE,), {"kernel_shape": [2, 2], "strides": [2, 3], "ceil_mode": 1, "p": 1}, **ONLY_ORT,
         why="the reference has other windows"),
    Case("LpPool", 11, ((2, 3, 11),), {"kernel_shape": [4], "strides": [3], "auto_pad": "SAME_UPPER"}, **ONLY_ORT,
         why="the reference gives auto_pad other output sizes where there are strides"),
    Case("GlobalLpPool", 2, (IMAGE,), **ONLY_ORT, why="the reference has no GlobalLpPool"),
    Case("GlobalLpPool", 2, ((1, 2, 5, 6, 7),), {"p": 3}, **ONLY_ORT, why="as above"),
    Case("MaxUnpool", 11, ((1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]], i64)), {"kernel_shape": [2, 2], "strides": [2, 2]},
         dispatches=3),
    Case("MaxUnpool", 9, ((1, 2, 3), np.array([[[0, 3, 5], [6, 9, 11]]], i64)), {"kernel_shape": [2], "strides": [2]},
         dispatches=3),
    Case("MaxUnpool", 11, ((1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]], i64), (4,)),
         {"kernel_shape": [2, 2], "strides": [2, 2]}, constants={2: ints(1, 1, 5, 6)}, **ONLY_ONNX, dispatches=5,
         why="onnxruntime counts indices in the sizes given"),
    Case("Col2Im", 18, ((2, 12, 20), (2,), (2,)), {"pads": [0, 1, 0, 0]},
         constants={1: ints(5, 6), 2: ints(2, 3)}),
    Case("Col2Im", 18, ((1, 8, 15), (2,), (2,)), {"strides": [2, 3], "dilations": [3, 2], "pads": [1, 2, 0, 1]},
         constants={1: ints(8, 12), 2: ints(2, 2)}),
    Case("Col2Im", 18, ((1, 10, 4), (1,), (1,)), {"strides": [3]}, constants={1: ints(14), 2: ints(5)}),
    Case("Col2Im", 18, ((1, 12, 8), (3,), (3,)), constants={1: ints(3, 4, 3), 2: ints(2, 3, 2)}, dtype=f16, **ONLY_ONNX,
         why="onnxruntime's CPU has no float16 Col2Im", relative=1e-3),
    # -- matrix multiplication
    Case("Gemm", 7, ((4, 5), (5, 6), (6,)), {"alpha": 0.5, "beta": 2.0}),
    Case("Gemm", 11, ((5, 4), (6, 5), (4, 1)), {"transA": 1, "transB": 1}),
    Case("Gemm", 13, ((4, 5), (5, 6))),
    Case("Gemm", 13, ((4, 5), (5, 6), ())),
    Case("Gemm", 13, ((4, 0), (0, 6), (6,)), {"alpha": 0.5, "beta": 2.0}, **ONLY_ONNX,
         why="onnxruntime's CPU leaves beta out of sums of nothing"),
    Case("Gemm", 13, ((4, 0), (0, 6))),
    Case("MatMul", 9, ((4, 5), (5, 6))),
    Case("MatMul", 13, ((2, 3, 4, 5), (5, 6))),
    Case("MatMul", 13, ((2, 1, 4, 5), (3, 5, 6))),
    Case("MatMul", 13, ((2, 3, 2, 4, 5), (2, 3, 2, 5, 6))),
    Case("MatMul", 13, ((2, 1, 2, 4, 5), (3, 1, 5, 6)), dispatches=3),
    Case("MatMul", 13, ((5,), (5, 6))),
    Case("MatMul", 13, ((2, 4, 5), (5,))),
    Case("MatMul", 13, ((5,), (5,))),
    Case("MatMul", 13, ((2, 1, 4, 0), (3, 0, 6)), **ONLY_ONNX, why="onnxruntime's CPU does not broadcast sums of nothing"),
    Case("MatMul", 13, ((0,), (0,))),
    Case("MatMul", 13, ((4, 5), (5, 6)), dtype=f16, relative=2e-3, **ONLY_ONNX, why="no float16 on onnxruntime's CPU"),
    # -- normalization
    Case("BatchNormalization", 7, (IMAGE, (3,), (3,), (3,), (3,)), positive=True, **ONLY_ORT,
         why="the reference fails"),
    Case("BatchNormalization", 9, (IMAGE, (3,), (3,), (3,), (3,)), {"epsilon": 1e-3}, positive=True, **ONLY_ORT,
         why="the reference trains"),
    Case("BatchNormalization", 15, ((4, 3), (3,), (3,), (3,), (3,)), positive=True),
    Case("BatchNormalization", 15, (IMAGE, (3,), (3,), (3,), (3,)), {"training_mode": 1, "momentum": 0.7}, outputs=3,
         dispatches=3, positive=True),
    Case("InstanceNormalization", 7, (IMAGE, (3,), (3,))),
    Case("InstanceNormalization", 7, ((2, 3, 11), (3,), (3,)), {"epsilon": 1e-2}),
    Case("LayerNormalization", 17, ((2, 3, 8), (8,), (8,))),
    Case("LayerNormalization", 17, ((2, 3, 8), (3, 8)), {"axis": 1}),
    Case("LayerNormalization", 17, ((2, 3, 8), (8,), (8,)), outputs=3, dispatches=3),
    Case("LayerNormalization", 17, ((2, 3, 8), (8,), (8,)), outputs=3, dispatches=4, dtype=f16, output_types=(f16, f32, f32),
         relative=2e-3, **ONLY_ORT, why="the reference gives statistics in float16"),
    Case("LRN", 13, ((2, 7, 3, 4),), {"size": 3, "alpha": 0.5}, **ONLY_ORT,
         why="the reference takes as many channels as there are images"),
    Case("LRN", 1, ((7, 7, 2, 3),), {"size": 4, "alpha": 0.5, "beta": 0.6, "bias": 2.0}, **ONLY_ONNX,
         why="onnxruntime refuses an even size"),
    Case("GroupNormalization", 21, ((2, 6, 5, 3), (6,), (6,)), {"num_groups": 3}, **ONLY_ONNX,
         why="onnxruntime accepts opset 21 models of a newer IR version only"),
    Case("MeanVarianceNormalization", 13, (IMAGE,)),
    Case("MeanVarianceNormalization", 9, (IMAGE,), {"axes": [1, 2]}),
    # -- reductions
    Case("ReduceSum", 7, (IMAGE,), {"axes": [-1, 1]}),
    Case("ReduceSum", 11, (IMAGE,), {"axes": [0, 2, 3], "keepdims": 0}, dtype=i32),
    Case("ReduceSum", 13, (IMAGE, ints(2, -3)), {"keepdims": 0}),
    Case("ReduceSum", 13, (IMAGE,), {"keepdims": 0}, dtype=u64, **ONLY_ONNX, why="onnxruntime's CPU has no uint64 sum"),
    Case("ReduceSum", 13, (IMAGE, ints()), {"noop_with_empty_axes": 1}, dispatches=0),
    Case("ReduceSum", 13, ((3, 0, 2), ints(1))),
    Case("ReduceSum", 13, ((0, 3), ints(1)), dispatches=0),
    Case("ReduceSum", 13, ((3, 1, 2), ints(1)), {"keepdims": 0}, dispatches=0),
    Case("ReduceSum", 13, ((),), dispatches=0),
    Case("ReduceMean", 11, (IMAGE,), {"axes": [2, 3]}),
    Case("ReduceMean", 13, (IMAGE,)),
    Case("ReduceMean", 18, (IMAGE, ints(1)), dtype=f16, relative=1e-3),
    Case("ReduceMean", 18, ((2, 0), ints(1)), **ONLY_ORT, why="undefined: nan by the reference"),
    Case("ReduceMax", 11, (IMAGE,), {"axes": [1]}),
    Case("ReduceMax", 12, (IMAGE,), {"axes": [0, 3], "keepdims": 0}, dtype=u8),
    Case("ReduceMax", 13, (IMAGE,), {"axes": [2]}, dtype=i8),
    Case("ReduceMax", 18, (IMAGE, ints(0, 1)), dtype=i64),
    Case("ReduceMax", 20, (IMAGE, ints(3)), dtype=boolean),
    Case("ReduceMax", 20, ((2, 0), ints(1)), dtype=i32),
    Case("ReduceMin", 11, (IMAGE,), {"axes": [1]}, dtype=i32),
    Case("ReduceMin", 12, (IMAGE,), dtype=i8),
    Case("ReduceMin", 13, (IMAGE,), {"axes": [2]}, dtype=u8),
    Case("ReduceMin", 18, (IMAGE, ints(2, 3)), {"keepdims": 0}),
    Case("ReduceMin", 20, (IMAGE, ints(3)), dtype=boolean),
    Case("ReduceMin", 20, ((2, 0), ints(1)), dtype=boolean, **ONLY_ONNX, why="onnxruntime fails"),
    Case("ReduceMin", 20, ((2, 0), ints(1))),
    Case("ReduceProd", 11, ((3, 4, 5),), {"axes": [1]}, positive=True),
    Case("ReduceProd", 13, ((3, 4),), {"axes": [1]}, dtype=i32),
    Case("ReduceProd", 18, ((3, 4, 5), ints(2, 0)), positive=True, relative=3e-5),
    Case("ReduceProd", 18, ((2, 0), ints(1))),
    Case("ReduceL1", 11, (IMAGE,), {"axes": [1, 2]}),
    Case("ReduceL1", 13, (IMAGE,), dtype=i32),
    Case("ReduceL1", 18, (IMAGE, ints()), {"noop_with_empty_axes": 1}, **ONLY_ORT, why="the reference reduces all"),
    Case("ReduceL2", 11, (IMAGE,), {"axes": [1, 2]}),
    Case("ReduceL2", 13, (IMAGE,), {"axes": [3], "keepdims": 0}),
    Case("ReduceL2", 18, (IMAGE, ints(0))),
    Case("ReduceLogSum", 11, (IMAGE,), {"axes": [1, 2]}, positive=True),
    Case("ReduceLogSum", 13, (IMAGE,), positive=True),
    Case("ReduceLogSum", 18, (IMAGE, ints()), {"noop_with_empty_axes": 1}, positive=True, **ONLY_ORT, why="as above"),
    Case("ReduceLogSum", 18, ((2, 0), ints(1))),
    Case("ReduceLogSumExp", 11, (IMAGE,), {"axes": [1, 2]}),
    Case("ReduceLogSumExp", 13, (numbers(f32, 90, 100, -200, 100),)),
    Case("ReduceLogSumExp", 18, (IMAGE, ints(-1)), {"keepdims": 0}),
    Case("ReduceSumSquare", 11, (IMAGE,), {"axes": [1, 2]}),
    Case("ReduceSumSquare", 13, (IMAGE,), {"axes": [0]}, dtype=i64),
    Case("ReduceSumSquare", 18, ((), ints())),
    # -- scans and sorts
    Case("CumSum", 11, (IMAGE, np.array(1, i64))),
    Case("CumSum", 14, ((5, 7), np.array(-1, i32)), {"reverse": 1, "exclusive": 1}, dtype=i64),
    Case("TopK", 1, (IMAGE,), {"k": 4, "axis": 2}, outputs=2, output_types=(f32, i64)),
    Case("TopK", 10, (IMAGE, ints(3)), outputs=2, output_types=(f32, i64)),
    Case("TopK", 11, ((5, 30), ints(7)), {"axis": 1, "largest": 0}, outputs=2, output_types=(f32, i64)),
    Case("ArgMax", 7, (IMAGE,), output_types=(i64,)),
    Case("ArgMax", 11, (IMAGE,), {"axis": -2, "keepdims": 0}, output_types=(i64,)),
    Case("ArgMax", 13, (IMAGE,), {"axis": 3, "select_last_index": 1}, dtype=i32, output_types=(i64,)),
    Case("ArgMax", 13, ((0, 3),), {"axis": 1}, dispatches=0, output_types=(i64,)),
    Case("ArgMin", 11, (IMAGE,), {"axis": 1}, output_types=(i64,)),
    Case("ArgMin", 12, (IMAGE,), {"axis": 1}, dtype=u8, output_types=(i64,)),
    Case("ArgMin", 13, (IMAGE,), {"axis": 0, "select_last_index": 1, "keepdims": 0}, dtype=i64, output_types=(i64,)),
    # -- views
    Case("Identity", 13, (IMAGE,), dispatches=0),
    Case("Dropout", 7, (IMAGE,), dispatches=0),
    Case("Dropout", 13, ((3, 4),), outputs=2, dispatches=0, output_types=(f32, np.bool_)),
    Case("Reshape", 13, (IMAGE, ()), constants={1: ints(0, -1, 7)}, dispatches=0),
    Case("Reshape", 14, ((0, 3), ()), {"allowzero": 1}, constants={1: ints(3, 0)}, dispatches=0),
    Case("Reshape", 13, (IMAGE, ints(6, -1)), dispatches=0),
    Case("Flatten", 9, (IMAGE,), {"axis": 2}, dispatches=0),
    Case("Flatten", 13, (IMAGE,), {"axis": -1}, dispatches=0),
    Case("Squeeze", 11, ((1, 3, 1, 2),), {"axes": [0, -2]}, dispatches=0, **ONLY_ORT,
         why="the reference needs opset 13"),
    Case("Squeeze", 13, ((1, 3, 1, 2),), dispatches=0),
    Case("Squeeze", 13, ((1, 3, 1, 2), ()), constants={1: ints(2)}, dispatches=0),
    Case("Unsqueeze", 11, ((3, 2),), {"axes": [0, 3]}, dispatches=0),
    Case("Unsqueeze", 13, ((3, 2), ()), constants={1: ints(-1, 1)}, dispatches=0),
    Case("Transpose", 13, (IMAGE,), {"perm": [0, 2, 3, 1]}),
    Case("Transpose", 13, ((3, 4),), dtype=i64),
    Case("Transpose", 13, (np.array([[True, False, True], [False, False, True]]),), dtype=np.bool_),
    Case("Transpose", 13, ((5, 7),), dtype=np.float64),
    Case("Transpose", 13, ((3, 1, 4),), {"perm": [1, 0, 2]}, dispatches=0),
    Case("Expand", 13, ((3, 1), ()), constants={1: ints(2, 1, 4)}),
    # -- movement
    Case("Slice", 7, (IMAGE,), {"starts": [1, -3], "ends": [9, 2**31 - 1], "axes": [2, -1]}),
    Case("Slice", 9, (IMAGE,), {"starts": [0, 1], "ends": [1, -1]}),
    Case("Slice", 10, ((7, 5), (), ()), constants={1: ints(0, 0), 2: ints(3, 99)}, dispatches=0),
    Case("Slice", 11, (IMAGE, (), (), None, ()), constants={1: ints(0, 0, 0, 0), 2: ints(2, 3, 9, 7), 4: ints(1, 2, 4, 3)}),
    Case("Slice", 13, (IMAGE, (), (), (), ()), dtype=i8,
         constants={1: ints(-1, 7), 2: ints(-100, 0), 3: ints(-2, 3), 4: ints(-2, -1)}),
    Case("Slice", 13, (np.arange(6, dtype=f64), (), (), (), ()), dtype=f64,
         constants={1: ints(2**63 - 1), 2: ints(-(2**63)), 3: ints(0), 4: ints(-1)}),
    Case("Slice", 13, (np.arange(6, dtype=f32), (), (), (), ()), **ONLY_ORT,
         why="the reference starts before the first element, the specification at it", dispatches=0,
         constants={1: ints(-9), 2: ints(-20), 3: ints(0), 4: ints(-1)}),
    Case("Slice", 13, ((4, 5), (), ()), constants={1: ints(3), 2: ints(2)}, dispatches=0),
    Case("Slice", 13, ((4, 5, 2, 6), (), (), ()), constants={index: np.array([index], i32) for index in (1, 2, 3)},
         dtype=boolean),
    Case("Split", 7, ((5, 7),), {"split": [3, 2]}, outputs=2, dispatches=2),
    Case("Split", 11, (IMAGE,), {"axis": -3}, outputs=3, dispatches=3),
    Case("Split", 13, ((6, 4), ()), {"axis": 1}, constants={1: ints(1, 0, 3)}, outputs=3, dtype=i64, dispatches=2),
    Case("Split", 13, ((6, 4), ()), {"axis": 1}, constants={1: ints(0, 4)}, outputs=2, dispatches=0),
    Case("Split", 13, ((0, 4),), {"axis": 1}, outputs=2, dispatches=0),
    Case("Split", 18, ((7, 3),), {"num_outputs": 3}, outputs=3, dtype=f64, dispatches=3),
    Case("Concat", 7, ((2, 3), (2, 4)), {"axis": 1}, dispatches=2),
    Case("Concat", 11, (IMAGE, IMAGE, (2, 3, 0, 7)), {"axis": -2}, dispatches=2),
    Case("Concat", 13, ((3, 5), (4, 5)), {"axis": 0}, dtype=boolean, dispatches=2),
    Case("Concat", 13, ((3, 5), (0, 5)), {"axis": 0}, dtype=f16, dispatches=0),
    Case("Concat", 13, ((3, 0), (3, 0)), {"axis": 0}, dispatches=0),
    Case("Pad", 7, ((3, 5),), {"pads": [1, 0, 2, 3], "value": -1.5}),
    Case("Pad", 10, ((3, 5),), {"pads": [0, 2, 0, 4], "mode": "reflect"}),
    Case("Pad", 11, (IMAGE, ()), {"mode": "edge"}, constants={1: ints(0, 0, 1, 2, 0, 0, 3, 0)}),
    Case("Pad", 13, (IMAGE, (), ()), constants={1: ints(0, 0, 1, 2, 0, 0, 3, 0), 2: np.array(7, i64)}, dtype=i64),
    Case("Pad", 13, ((4, 9), ()), constants={1: ints(-1, 2, 0, -3)}, dispatches=2, **ONLY_ORT,
         why="the reference knows no negative pads"),
    Case("Pad", 13, ((4, 9), ()), {"mode": "reflect"}, constants={1: ints(-1, 0, 2, -3)}, dispatches=2, **ONLY_ORT,
         why="as above"),
    Case("Pad", 13, ((4, 9), ()), constants={1: ints(0, 0, -1, -3)}, **ONLY_ORT, why="as above"),
    Case("Pad", 13, ((4, 0), ()), constants={1: ints(0, 1, 0, 2)}),
    Case("Pad", 13, ((4, 3), ()), constants={1: ints(0, 0, 0, 0)}, dispatches=0),
    Case("Pad", 18, ((3, 4, 5), (), (), ()), dtype=boolean,
         constants={1: ints(2, 1, 0, 1), 2: np.array(True), 3: ints(-1, 0)}),
    Case("Pad", 19, ((4, 9), (), None, ()), {"mode": "wrap"}, constants={1: ints(7, 1), 3: np.array([0], i32)},
         **ONLY_ONNX, why="onnxruntime wraps no more than once"),
    Case("CenterCropPad", 18, (IMAGE, ()), {"axes": [-1, 2]}, constants={1: ints(4, 14)}, dispatches=2),
    Case("CenterCropPad", 18, ((5, 4), ()), constants={1: ints(8, 7)}, dtype=i32),
    Case("Tile", 7, (IMAGE, ()), constants={1: ints(1, 2, 1, 3)}),
    Case("Tile", 13, ((3, 5), ()), constants={1: ints(2, 2)}, dtype=f64),
    Case("Tile", 13, ((3, 1, 1), ()), constants={1: ints(1, 5, 2)}, dispatches=1),
    Case("Tile", 13, ((3, 4), ()), constants={1: ints(1, 0)}, dispatches=0),
    Case("DepthToSpace", 7, ((2, 8, 3, 5),), {"blocksize": 2}),
    Case("DepthToSpace", 11, ((2, 18, 3, 5),), {"blocksize": 3, "mode": "CRD"}),
    Case("DepthToSpace", 13, ((2, 8, 3, 5),), {"blocksize": 2, "mode": "DCR"}, dtype=f64),
    Case("SpaceToDepth", 7, ((2, 3, 4, 6),), {"blocksize": 2}),
    Case("SpaceToDepth", 13, ((2, 3, 6, 9),), {"blocksize": 3}, dtype=f64),
    Case("ReverseSequence", 10, ((7, 4, 3), ints(7, 1, 3, 2))),
    Case("ReverseSequence", 10, ((4, 7), ()), {"batch_axis": 0, "time_axis": 1}, constants={1: ints(7, 1, 3, 2)}, dtype=i64),
    # -- recurrent networks: the reference has no lengths, no clip, no last cell and one direction; layout 1 is below
    Case("RNN", 7, ((4, 2, 3), (1, 5, 3), (1, 5, 5)), {"hidden_size": 5}, outputs=2, dispatches=7, **ONLY_ORT,
         why="the reference takes the layout from version 14 on"),
    Case("RNN", 14, ((4, 2, 3), (2, 5, 3), (2, 5, 5), (2, 10), np.array([4, 0], i32), (2, 2, 5)),
         {"hidden_size": 5, "direction": "bidirectional", "activations": ["LeakyRelu", "Affine"],
          "activation_alpha": [0.25, 0.5], "activation_beta": [0.125]}, outputs=2, dispatches=7, **ONLY_ORT,
         why="two directions and lengths"),
    Case("RNN", 22, ((4, 2, 3), (1, 8, 3), (1, 8, 8), None, None, (1, 2, 8)), {"hidden_size": 8}, outputs=2, dispatches=6),
    Case("LSTM", 7, ((4, 2, 3), (1, 20, 3), (1, 20, 5), (1, 40)), {"hidden_size": 5}, outputs=2, dispatches=8),
    Case("LSTM", 14, ((4, 2, 3), (1, 16, 3), (1, 16, 4), None, None, (1, 2, 4), (1, 2, 4), (1, 12)),
         {"hidden_size": 4}, outputs=2, dispatches=7),
    Case("LSTM", 14, ((4, 2, 3), (1, 16, 3), (1, 16, 4), (1, 32), np.array([3, 4], i32), None, None, (1, 12)),
         {"hidden_size": 4, "direction": "reverse", "clip": 0.5, "input_forget": 1}, outputs=3, dispatches=7,
         **ONLY_ORT, why="lengths and clip"),
    Case("LSTM", 14, ((5, 1, 3), (2, 16, 3), (2, 16, 4)), {"hidden_size": 4, "direction": "bidirectional",
          "activations": ["HardSigmoid", "Softsign", "ScaledTanh", "Sigmoid", "Relu", "Softplus"],
          "activation_alpha": [0.25, 1.5], "activation_beta": [0.5, 0.75]}, outputs=3, dispatches=8, **ONLY_ORT,
         why="two directions"),
    Case("LSTM", 22, ((2, 1, 3), (1, 20, 3), (1, 20, 5), (1, 40)), {"hidden_size": 5}, outputs=2, dispatches=6),
    Case("GRU", 7, ((4, 2, 3), (1, 12, 3), (1, 12, 4), (1, 24)), {"hidden_size": 4, "linear_before_reset": 1},
         outputs=2, dispatches=6),
    Case("GRU", 14, ((4, 2, 3), (1, 12, 3), (1, 12, 4), (1, 24), None, (1, 2, 4)), {"hidden_size": 4}, outputs=2,
         dispatches=10),
    Case("GRU", 14, ((4, 2, 3), (2, 12, 3), (2, 12, 4), (2, 24), np.array([2, 3], i32)),
         {"hidden_size": 4, "direction": "bidirectional"}, outputs=2, dispatches=10, **ONLY_ORT,
         why="two directions and lengths"),
    Case("GRU", 22, ((2, 3, 5), (1, 12, 5), (1, 12, 4)), {"hidden_size": 4}, outputs=2, dispatches=6),
    # -- gathers
    Case("Gather", 1, (IMAGE, ints(2, 0, 0)), {"axis": 1}),
    Case("Gather", 11, ((5, 7), np.array([[1, -1], [-5, 4]], i64))),
    Case("Gather", 13, (IMAGE, np.array([[1, -1, 0]], i32)), {"axis": -2}, dtype=i16),
    Case("Gather", 13, (IMAGE, np.array(-2, i64)), {"axis": 2}, dtype=f64),
    Case("Gather", 13, ((11,), np.array(3, i32)), dtype=u8),
    Case("Gather", 13, ((3, 4), np.zeros((2, 0), i64)), dispatches=0, **ONLY_ORT,
         why="the reference gives sizes (0,) wherever there are no indices"),
    Case("GatherElements", 11, ((3, 5), np.array([[1, 2, 0, -1, 0], [2, -3, 0, 1, 1]], i64)), dtype=i64),
    Case("GatherElements", 13, ((3, 5, 4), np.array([[[4], [-5], [0], [1], [1], [2]]], i32)), {"axis": -2}, **ONLY_ORT,
         why="the reference needs as many indices as elements along the other axes"),
    Case("GatherND", 11, (IMAGE, np.array([[[0, 2], [1, -3]]], i64)), dtype=u16, **ONLY_ONNX,
         why="onnxruntime's CPU has no uint16 GatherND"),
    Case("GatherND", 12, ((2, 3, 4), np.array([[[1]], [[-1]]], i64)), {"batch_dims": 1}),
    Case("GatherND", 13, ((2, 3, 4), np.array([[[1, 3], [0, -4], [2, 2]], [[0, 0], [1, 1], [2, 2]]], i64)),
         {"batch_dims": 1}),
    Case("GatherND", 13, ((2, 3), np.array([[0, 1], [1, 2], [-1, 0]], i64)), dtype=np.bool_),
    Case("GatherND", 13, ((2, 3, 4), np.array([1, 0, 3], i64))),
    # -- scatters
    Case("Scatter", 9, ((3, 4), np.array([[1, 0, 2, 1]], i64), (1, 4)), dispatches=2, **ONLY_ORT,
         why="the reference has no Scatter"),
    Case("ScatterElements", 11, ((5, 7), np.array([[1, 2, 6, -1, 0]] * 5, i64), (5, 5)), {"axis": 1}, dispatches=3),
    Case("ScatterElements", 13, ((3, 5), np.array([[1, -2]], i32), (1, 2)), {"axis": 1}, dispatches=4, dtype=f64),
    Case("ScatterElements", 16, (IMAGE, np.array([[[[2], [0]]]], i64), (1, 1, 2, 1)), {"axis": -3}, dispatches=3, dtype=u8,
         **ONLY_ORT, why="the reference needs as many indices as elements along the other axes"),
    Case("ScatterElements", 18, (IMAGE, np.zeros((2, 0, 9, 7), i64), (2, 0, 9, 7)), {"axis": 1}, dispatches=0),
    Case("ScatterND", 11, ((4, 5, 6), np.array([[0], [2]], i64), (2, 5, 6)), dispatches=3),
    Case("ScatterND", 13, ((4, 5, 6), np.array([[[1, -1], [3, 2]]], i64), (1, 2, 6)), dispatches=3, dtype=i64),
    Case("ScatterND", 16, ((8,), np.array([[[4], [3]], [[1], [7]]], i64), (2, 2)), dispatches=3),
    Case("ScatterND", 18, ((4, 5), np.array([-1, 2], i64), ()), dispatches=2, dtype=np.bool_),
    # -- resampling
    Case("RoiAlign", 16, ((2, 3, 9, 7), np.array([[0, 0, 6, 8], [1, 2, 5, 5.5], [2, 2, 2.5, 2.5]], f32), ints(1, 0, 1)),
         {"output_height": 3, "output_width": 2, "sampling_ratio": 2}, **ONLY_ORT,
         why="the reference reads batch 0 for an odd index"),
    Case("RoiAlign", 10, ((2, 3, 9, 7), np.array([[0, 0, 6, 8], [1, 2, 5, 5.5], [2, 2, 2.5, 2.5]], f32), ints(1, 0, 1)),
         {"output_height": 2, "output_width": 2, "spatial_scale": 0.5}, **ONLY_ORT, dispatches=3, why="as above"),
    Case("Resize", 19, ((1, 2, 5, 8), None, ()), {"mode": "linear"}, constants={2: numbers(f32, 1, 1, 2, 2)}),
    Case("Resize", 13, ((1, 2, 5, 8), None, None, ()), {"mode": "linear"}, constants={3: ints(1, 2, 11, 5)}, dtype=f16,
         relative=1e-3),
    Case("Resize", 13, ((1, 2, 5, 8), None, None, ()), {"mode": "nearest", "nearest_mode": "floor"},
         constants={3: ints(1, 2, 11, 20)}, dtype=u8),
    Case("Resize", 13, ((1, 1, 5, 8), None, None, ()),
         {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, constants={3: ints(1, 1, 9, 3)}),
    Case("Resize", 11, ((1, 1, 5, 8), (), (), ()),
         {"nearest_mode": "ceil", "coordinate_transformation_mode": "tf_half_pixel_for_nn"},
         constants={1: numbers(f32), 2: numbers(f32), 3: ints(1, 1, 9, 3)}, **ONLY_ORT,
         why="the reference does not have tf_half_pixel_for_nn"),
    Case("Resize", 19, ((1, 3, 5, 8), None, ()), {"coordinate_transformation_mode": "asymmetric", "axes": [3, -2],
         "nearest_mode": "round_prefer_ceil"}, constants={2: numbers(f32, 1.5, 2.5)}, **ONLY_ORT,
         why="the reference has no negative axes"),
    Case("Resize", 19, ((1, 1, 5, 8), None, ()), {"coordinate_transformation_mode": "half_pixel_symmetric",
         "mode": "linear"}, constants={2: numbers(f32, 1, 1, 0.7, 1.45)}),
    Case("Resize", 18, ((1, 1, 5, 8), None, None, ()), {"coordinate_transformation_mode": "pytorch_half_pixel",
         "mode": "linear", "axes": [2, 3]}, constants={3: ints(7, 1)}),
    Case("Resize", 18, ((1, 2, 11, 9), None, None, ()), {"mode": "linear", "antialias": 1},
         constants={3: ints(1, 2, 4, 6)}),
    Case("Resize", 18, ((1, 2, 11, 9), None, None, ()), {"mode": "linear", "axes": [2, 3],
         "keep_aspect_ratio_policy": "not_larger"}, constants={3: ints(7, 8)}),
    Case("Resize", 18, ((2, 1, 3, 2, 5, 4), None, None, ()), {"axes": [4], "nearest_mode": "ceil"},
         constants={3: ints(7)}, **ONLY_ONNX, why="onnxruntime has at most 5 dimensions here"),
    Case("Resize", 13, ((1, 1, 5, 8), (), None, ()), {"mode": "linear",
         "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0},
         constants={1: numbers(f32, 0, 0, 0.25, -0.125, 1, 1, 0.75, 1.25), 3: ints(1, 1, 4, 9)}, dispatches=2),
    Case("Resize", 13, ((1, 1, 5, 8), (), None, ()), {"coordinate_transformation_mode": "tf_crop_and_resize"},
         constants={1: numbers(f32, 0, 0, 1, 0.5, 1, 1, 0, 0.5), 3: ints(1, 1, 4, 3)}),
    Case("Resize", 10, ((1, 2, 5, 9), ()), {"mode": "linear"}, constants={1: numbers(f32, 1, 1, 2, 1.5)}, **ONLY_ORT,
         why="the reference has no opset 10"),
    Case("Resize", 10, ((1, 2, 5, 9), ()), {}, constants={1: numbers(f32, 1, 1, 0.5, 0.7)}, **ONLY_ORT, why="as above"),
    Case("Upsample", 7, ((1, 2, 5, 9),), {"scales": [1.0, 1.0, 2.0, 3.0]}, **ONLY_ORT, why="the reference has no opset 7"),
    Case("Upsample", 9, ((1, 2, 5, 9), ()), {"mode": "linear"}, constants={1: numbers(f32, 1, 1, 2, 1.5)}, **ONLY_ORT,
         why="the reference does not have the mode"),
    Case("MaxRoiPool", 1, ((2, 3, 9, 7), np.array([[0, 0, 0, 6, 8], [1, 1, 2, 5, 5.5], [0, 3, 3, 30, 40]], f32)),
         {"pooled_shape": [3, 2], "spatial_scale": 0.75}, **ONLY_ORT, why="the reference does not have it"),
    Case("MatMulInteger", 10, ((2, 3, 7, 37), (37, 11), (), ()), dtype=u8, output_types=(i32,)),
    Case("MatMulInteger", 10, ((37,), (2, 37, 11), (), np.arange(11, dtype=i8)), dtype=i8, output_types=(i32,), **ONLY_ONNX,
         why="onnxruntime's A is UINT8 where it has a zero point"),
    Case("MatMulInteger", 10, ((3, 2, 2, 5, 6), (3, 1, 2, 6, 4)), dtype=u8, output_types=(i32,), dispatches=2),
    Case("MatMulInteger", 10, ((5, 6), (6, 4), (5, 1)), dtype=u8, output_types=(i32,), **ONLY_ONNX,
         why="onnxruntime has one zero point for all of A"),
    Case("QLinearMatMul", 21, ((2, 5, 19), numbers(f32, 0.5), (), (19, 7), numbers(f32, 0.25), (), numbers(f32, 0.7), ()),
         dtype=u8, **ONLY_ORT, why="the reference wraps what does not fit"),
    Case("QLinearMatMul", 10, ((5, 19), numbers(f32, 0.5), (), (19, 7), numbers(f32, *np.arange(1, 8) / 9),
         np.arange(7, dtype=i8), numbers(f32, 0.7), ()), dtype=i8, **ONLY_ORT, why="as above"),
    Case("ConvInteger", 10, ((1, 4, 9, 8), (6, 2, 3, 2), (), ()), {"group": 2, "auto_pad": "SAME_LOWER"}, dtype=u8,
         output_types=(i32,), **ONLY_ORT, why="the reference does not compute SAME_LOWER"),
    Case("ConvInteger", 10, ((1, 4, 9), (6, 4, 3), (), ()), {"pads": [2, 0], "dilations": [2]}, dtype=u8,
         output_types=(i32,)),
    Case("QLinearConv", 10, ((2, 4, 7, 8), numbers(f32, 0.5), (), (6, 4, 3, 3), numbers(f32, 0.25), (), numbers(f32, 1.7),
         (), np.arange(-3, 3, dtype=i32)), {"strides": [2, 1]}, dtype=u8),
]  # fmt: skip


def _parameter(case: Case) -> Any:
    """A case, which needs an onnx that knows its opset."""
    newest = onnx.defs.onnx_opset_version()
    reason = f"the installed onnx knows opset {newest}"
    return pytest.param(case, id=case.name, marks=pytest.mark.skipif(case.opset > newest, reason=reason))


@pytest.mark.parametrize("case", [_parameter(case) for case in CASES if case.opset > ENVIRONMENT_OPSET or not IS_BESIDE])
def test_converter(
    case: Case,
    make_model: Callable[..., Any],
    make_session: Callable[..., Any],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
    count_dispatches: Callable[..., Any],
) -> None:
    rng = np.random.default_rng(len(case.name))
    names, feeds = [], {}
    for index, item in enumerate(case.inputs):
        names.append("" if item is None else f"x{index}")
        if item is not None and index not in case.constants:
            feeds[f"x{index}"] = item if isinstance(item, np.ndarray) else _random(rng, item, case)
    outputs = [f"y{index}" for index in range(case.outputs)]
    types = case.output_types or (case.dtype,) * case.outputs
    model = make_model(
        helper.make_node(case.op_type, names, outputs, **case.attributes),
        {name: (array.dtype, array.shape) for name, array in feeds.items()},
        outputs,
        {f"x{index}": array for index, array in case.constants.items()},
        case.opset,
        dict(zip(outputs, types, strict=True)),
    )
    session = make_session(model)
    session.run(None, feeds)  # what is the same in every run is computed in the first
    with count_dispatches() as count:
        found = session.run(None, feeds)
    report = session.report()
    assert report.device == session.device.info.name
    assert (count.dispatches, report.dispatches) == (case.dispatches, case.dispatches)
    assert len(report.gpu_nodes) == min(case.dispatches, 1)
    assert not report.host_nodes
    for runtime in case.against:
        for mine, theirs in zip(found, reference(model, feeds, runtime), strict=True):
            assert_close(mine, theirs, case.relative)


def _random(rng: np.random.Generator, sizes: tuple[int, ...], case: Case) -> np.ndarray:
    if np.dtype(case.dtype).kind == "b":
        return rng.integers(0, 2, sizes).astype(case.dtype)
    if np.dtype(case.dtype).kind != "f":
        return rng.integers(0 if np.dtype(case.dtype).kind == "u" else -9, 9, sizes).astype(case.dtype)
    values = rng.uniform(0.2, 3, sizes) if case.positive else rng.standard_normal(sizes)
    return np.asarray(values).astype(case.dtype)


SCALAR, BLOCKS = np.array(2, i64), {"axis": 0, "block_size": 2}
CELL = (np.ones((2, 1, 3), f32), np.ones((1, 4, 3), f32), np.ones((1, 4, 4), f32))

REFUSED = [
    ("BitShift", {"direction": "UP"}, (BYTES, BYTES), dmlvk.ModelError, "direction must be .*; got 'UP'"),
    ("Cast", {"to": 14}, (SPECIAL,), dmlvk.UnsupportedNodeError, "to is complex64"),
    ("Cast", {"to": 99}, (SPECIAL,), dmlvk.DmlvkError, "99"),
    ("ConstantOfShape", {}, (ints(2, -1),), dmlvk.ModelError, r"\[2, -1\]"),
    ("Concat", {"axis": 1}, (BYTES, BYTES[:1]), dmlvk.ModelError, "along axis 1"),
    ("Concat", {"axis": 3}, (BYTES, BYTES), dmlvk.ModelError, "axis must be from -3 to 2 .*; got 3"),
    ("CenterCropPad", {"axes": [1, 1]}, (BYTES, ints(2, 2)), dmlvk.ModelError, "a dimension only once; got"),
    ("CenterCropPad", {}, (BYTES, ints(2, 2)), dmlvk.ModelError, r"one size of at least 0 for each .*; got \[2, 2\]"),
    ("DepthToSpace", {"blocksize": 2}, (np.ones((1, 6, 2, 2), f32),), dmlvk.ModelError, "square of blocksize, 2; got 6"),
    ("DepthToSpace", {"blocksize": 2}, (BYTES,), dmlvk.ModelError, "input must have 4 dimensions; got"),
    ("DepthToSpace", {"blocksize": 1, "mode": "RCD"}, (np.ones((1, 6, 2, 2), f32),), dmlvk.ModelError, "'RCD'"),
    ("Pad", {}, (BYTES, ints(1, 2, 3)), dmlvk.ModelError, r"two entries for each of 3 axes; got \[1, 2, 3\]"),
    ("Pad", {}, (BYTES, ints(-1, 0, 0, -2, 0, 0)), dmlvk.ModelError, "cut off more"),
    ("Pad", {"mode": "fold"}, (BYTES, ints(0, 0, 0, 0, 0, 0)), dmlvk.ModelError, "'fold'"),
    ("Pad", {"mode": "edge"}, (np.ones((2, 0), f32), ints(0, 1, 0, 0)), dmlvk.ModelError, "without elements.*; got 'edge'"),
    ("ReverseSequence", {}, (BYTES, ints(1, 2)), dmlvk.ModelError, r"of the batch; expected \(3,\), got \(2,\)"),
    ("Slice", {}, (BYTES, ints(1), ints(2), ints(0), ints(0)), dmlvk.ModelError, "no step may be 0"),
    ("Slice", {}, (BYTES, ints(1), ints(2, 3)), dmlvk.ModelError, "starts"),
    ("Slice", {}, (BYTES, ints(1), ints(2), ints(3)), dmlvk.ModelError, "axis must be from -3 to 2 .*; got 3"),
    ("SpaceToDepth", {"blocksize": 2}, (np.ones((1, 1, 3, 2), f32),), dmlvk.ModelError, r"blocksize, 2; got \(3, 2\)"),
    ("Split", {"axis": 1}, (BYTES, ints(2)), dmlvk.ModelError, "each of 1 outputs, 3 elements together"),
    ("Tile", {}, (BYTES, ints(2, 1)), dmlvk.ModelError, r"repeats must .*; got \(2, 1\)"),
    ("DequantizeLinear", {}, (BYTES, numbers(f32, 1, 2)), dmlvk.ModelError, r"along axis 1; expected \(3,\), got \(2,\)"),
    ("DequantizeLinear", {}, (BYTES, np.array(1, f32), numbers(u8, 1, 2)), dmlvk.ModelError, "sizes of the scale; expected"),
    ("DequantizeLinear", BLOCKS, (BYTES, np.ones((2, 3, 4), f32)), dmlvk.ModelError, "block of 2 along axis 0"),
    ("DequantizeLinear", {"axis": 3}, (BYTES, numbers(f32, 1, 2)), dmlvk.ModelError, "axis must be from -3 to 2 .*; got 3"),
    ("EyeLike", {"dtype": 14}, (np.ones((2, 2), f32),), dmlvk.UnsupportedNodeError, "dtype is complex64"),
    ("EyeLike", {"dtype": 22}, (np.ones((2, 2), f32),), dmlvk.UnsupportedNodeError, "dtype is int4"),
    ("EyeLike", {}, (np.ones(2, f32),), dmlvk.UnsupportedNodeError, "2 to 4 dimensions"),
    ("Gather", {"axis": 3}, (BYTES, ints(1)), dmlvk.ModelError, "axis must be from -3 to 2 .*; got 3"),
    ("Gather", {}, (BYTES, BYTES), dmlvk.ModelError, "indices takes tensor"),
    ("GatherElements", {}, (BYTES, ints(1, 2)), dmlvk.ModelError, "sizes of the indices must"),
    ("GatherElements", {"axis": 1}, (BYTES, np.zeros((3, 3, 4), i64)), dmlvk.ModelError, "sizes of the indices must"),
    ("GatherND", {"batch_dims": 2}, (BYTES, np.zeros((2, 1), i64)), dmlvk.ModelError, "batch_dims must be .*; got 2"),
    ("GatherND", {}, (BYTES, np.zeros((2, 4), i64)), dmlvk.ModelError, "last size of the indices .*; got 4"),
    ("HannWindow", {}, (np.array(0, i64),), dmlvk.ModelError, "at least 1 element; got 0"),
    ("OneHot", {}, (ints(1), np.array(0, i64), numbers(f32, 0, 1)), dmlvk.ModelError, "depth must be at least 1; got 0"),
    ("OneHot", {}, (ints(1), SCALAR, numbers(f32, 0, 1, 2)), dmlvk.ModelError, "must be two; got"),
    ("QuantizeLinear", {}, (BYTES.astype(f32), np.array(1, f16)), dmlvk.ModelError, "must have the same type"),
    ("Range", {}, (SCALAR, SCALAR, np.array(0, i64)), dmlvk.ModelError, r"delta not 0; got \(2, 2, 0\)"),
    ("Range", {}, tuple(numbers(f32, 0, np.inf, 1)), dmlvk.ModelError, "must be finite"),
    ("ReduceMean", {}, (ints(1, 2),), dmlvk.UnsupportedNodeError, "first input is INT64"),
    ("ReduceSum", {}, (BYTES,), dmlvk.ModelError, "data takes tensor"),
    ("ReduceMax", {}, (BYTES, ints(3)), dmlvk.ModelError, "axis must be from -3 to 2 for 3 dimensions; got 3"),
    ("ReduceMax", {}, (BYTES, ints(1, -2)), dmlvk.ModelError, "a dimension only once; got"),
    ("ArgMax", {"axis": 1}, (np.ones((2, 0), f32),), dmlvk.ModelError, "must be elements along axis 1"),
    ("RNN", {"clip": 1.0}, CELL, dmlvk.UnsupportedNodeError, "clip, which DirectML has for LSTM only"),
    ("RNN", {"direction": "up"}, CELL, dmlvk.ModelError, "direction must be .*; got 'up'"),
    ("RNN", {"activations": ["Gelu"]}, CELL, dmlvk.UnsupportedNodeError, "the activation 'Gelu'"),
    ("RNN", {"activations": ["Tanh", "Tanh"]}, CELL, dmlvk.UnsupportedNodeError, "1 activations for each direction"),
    ("RNN", {}, (CELL[0][0], *CELL[1:]), dmlvk.ModelError, "X, W and R must have 3 dimensions"),
    ("GRU", {}, CELL, dmlvk.UnsupportedNodeError, "the inputs must fit together"),
    ("RNN", {}, (*CELL, np.ones((1, 8), f32), np.array([2, 2, 2, 2, 2], i32)), dmlvk.ModelError, "an int32 for each"),
    ("ScatterElements", {}, (BYTES, ints(1), np.zeros(1, u8)), dmlvk.ModelError, "sizes of the indices must"),
    ("ScatterElements", {}, (ints(5), ints(0, 0), ints(1)), dmlvk.ModelError, r"indices; expected \(2,\), got \(1,\)"),
    ("ScatterND", {}, (BYTES, np.zeros((2, 4), i64), np.zeros(2, u8)), dmlvk.ModelError, "size of the indices .*; got 4"),
    ("ScatterND", {}, (BYTES, np.zeros((2, 1), i64), np.zeros((2, 3), u8)), dmlvk.ModelError, "updates must fit the input"),
    ("Trilu", {}, (ints(1, 2),), dmlvk.ModelError, "at least 2 dimensions"),
    ("Where", {}, (np.array([True]), SPECIAL, SPECIAL.astype(f64)), dmlvk.ModelError, "must have the same type"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "attributes", "inputs", "error", "message"), REFUSED)
def test_refused(
    op_type: str,
    attributes: dict[str, Any],
    inputs: tuple[np.ndarray, ...],
    error: type[Exception],
    message: str,
    make_model: Callable[..., Any],
    make_session: Callable[..., Any],
) -> None:
    """What a converter cannot run, or nothing could, in a typed error that says what is wrong."""
    feeds = {f"x{index}": np.asarray(array) for index, array in enumerate(inputs)}
    node = helper.make_node(op_type, list(feeds), ["unread"], **attributes)
    feeds["z"] = np.zeros(1, f32)
    other = helper.make_node("Abs", ["z"], ["y"])
    model = make_model([node, other], {name: (array.dtype, array.shape) for name, array in feeds.items()}, opset=21)
    with pytest.raises(error, match=message):
        make_session(model).run(None, feeds)


@pytest.mark.parametrize(("opset", "hot"), [(9, 0), (11, 1)])
def test_negative_indices_count_since_opset_11(
    opset: int, hot: int, make_model: Callable[..., Any], make_session: Callable[..., Any]
) -> None:
    """The specification's text; onnxruntime has opset 11's meaning for 9 and the reference wraps every index."""
    node = helper.make_node("OneHot", ["indices", "depth", "values"], ["y"])
    inputs = {"indices": (i64, (2,)), "values": (f32, (2,))}
    session = make_session(make_model(node, inputs, constants={"depth": np.array(3, i64)}, opset=opset))
    (y,) = session.run(None, {"indices": ints(1, -1), "values": numbers(f32, 0, 1)})
    np.testing.assert_array_equal(y, numbers(f32, 0, 1, 0, 0, 0, hot).reshape(2, 3))


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("LSTM", 4), ("GRU", 3)])
def test_a_recurrent_network_with_the_batch_first(
    op_type: str, gates: int, make_model: Callable[..., Any], make_session: Callable[..., Any]
) -> None:
    """Layout 1 gives what layout 0 does, transposed. onnxruntime has no layout 1, and the reference only one step of it."""
    states = ["h", "c"][: 2 if op_type == "LSTM" else 1]
    sizes = {"x": (5, 3, 4), "w": (2, gates * 6, 4), "r": (2, gates * 6, 6), **dict.fromkeys(states, (2, 3, 6))}
    rng = np.random.default_rng(gates)
    feeds = {name: rng.standard_normal(size).astype(f32) for name, size in sizes.items()}
    found = []
    for layout in (0, 1):
        names, outputs = ["x", "w", "r", "", "", *states], ["y", *(f"last_{name}" for name in states)]
        node = helper.make_node(op_type, names, outputs, hidden_size=6, direction="bidirectional", layout=layout)
        given = {name: array.swapaxes(0, 1) if layout and name in "xhc" else array for name, array in feeds.items()}
        given = {name: np.ascontiguousarray(array) for name, array in given.items()}
        model = make_model(node, {name: (f32, array.shape) for name, array in given.items()}, outputs, opset=14)
        found.append(make_session(model).run(None, given))
    np.testing.assert_array_equal(found[1][0], found[0][0].transpose(2, 0, 1, 3))
    for batch_first, plain in zip(found[1][1:], found[0][1:], strict=True):
        np.testing.assert_array_equal(batch_first, plain.swapaxes(0, 1))


def test_every_operator_has_a_case() -> None:
    elsewhere = {  # those of ONNX Runtime's domains are in test_microsoft.py
        *("Bernoulli", "Multinomial"),  # at random: test_random.py
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("AffineGrid", "DeformConv", "GridSample"),  # test_sampling.py
        *("DFT", "MelWeightMatrix", "STFT"),  # test_fourier.py
        *("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),  # test_loss.py
        *("Adagrad", "Adam", "Momentum"),  # test_training.py
        *("Det", "TfIdfVectorizer"),  # test_determinants_and_vocabulary.py
        *("Compress", "NonMaxSuppression", "NonZero", "Unique"),  # test_computed_sizes.py
        "Attention",  # test_attention.py
        "Einsum",  # test_einsum.py
    }
    assert {op_type for domain, op_type, _ in ROWS if domain not in (MICROSOFT, IN_BLOCKS)} - elsewhere == {
        case.op_type for case in CASES
    }
