"""Each converter on a small graph: the device's result against onnxruntime's CPU and ONNX's reference, with the number
of dispatches it may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper

from dmlvk.onnx.registry import ROWS

f32, f16, i64, i32, u8 = np.float32, np.float16, np.int64, np.int32, np.uint8
BOTH = ("onnxruntime", "onnx")


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        op_type, opset: The operator.
        inputs: Sizes of each input of random values, or an array that is fed; None leaves an optional input out.
        attributes: Of the node.
        constants: Inputs that are initializers, by index.
        outputs: Number of outputs.
        dispatches: What a run takes.
        against: Which runtimes to compare with; one of them is left out where it does not implement the case or
            contradicts the specification, as ``why`` says.
        dtype: Of the random inputs.
        positive: Whether they are above 0.
        output_types: Of outputs that have not the type of the first input.
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


IMAGE = (2, 3, 9, 7)
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
    Case("Gelu", 20, (IMAGE,), {"approximate": "tanh"}, dispatches=5),
    Case("Mish", 18, (IMAGE,), dispatches=3),
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
    Case("Max", 8, (IMAGE, IMAGE, (1,)), dispatches=2),
    Case("Max", 13, ((3, 4),), dispatches=0),
    Case("Min", 13, ((3, 1), (1, 4))),
    Case("Min", 12, ((3, 4), (3, 4)), dtype=i32),
    Case("Sum", 13, (IMAGE, IMAGE, IMAGE), dispatches=2),
    Case("Mean", 13, (IMAGE, IMAGE, IMAGE), dispatches=3),
    Case("Clip", 7, (IMAGE,), {"min": -0.5, "max": 0.5}),
    Case("Clip", 7, (IMAGE,), {"max": 0.5}),
    Case("Clip", 13, (IMAGE, (), ()), constants={1: np.array(-0.3, f32), 2: np.array(0.4, f32)}),
    Case("Clip", 13, (IMAGE, None, ()), constants={2: np.array(0.4, f32)}),
    Case("Clip", 13, (IMAGE, (), ()), constants={1: np.array(0.9, f32), 2: np.array(0.4, f32)}),
    Case("Clip", 13, (IMAGE, np.array(-0.3, f32), np.array(0.4, f32)), dispatches=2),
    Case("Clip", 12, ((4, 5), (), ()), constants={1: np.array(-3, i32), 2: np.array(4, i32)}, dtype=i32),
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
    Case("GlobalAveragePool", 7, (IMAGE,)),
    Case("GlobalAveragePool", 7, ((2, 3, 11),)),
    Case("GlobalAveragePool", 7, ((1, 2, 5, 6, 7),)),
    Case("GlobalMaxPool", 7, (IMAGE,)),
    # -- matrix multiplication
    Case("Gemm", 7, ((4, 5), (5, 6), (6,)), {"alpha": 0.5, "beta": 2.0}),
    Case("Gemm", 11, ((5, 4), (6, 5), (4, 1)), {"transA": 1, "transB": 1}),
    Case("Gemm", 13, ((4, 5), (5, 6))),
    Case("Gemm", 13, ((4, 5), (5, 6), ())),
    Case("MatMul", 9, ((4, 5), (5, 6))),
    Case("MatMul", 13, ((2, 3, 4, 5), (5, 6))),
    Case("MatMul", 13, ((2, 1, 4, 5), (3, 5, 6))),
    Case("MatMul", 13, ((2, 3, 2, 4, 5), (2, 3, 2, 5, 6))),
    Case("MatMul", 13, ((2, 1, 2, 4, 5), (3, 1, 5, 6)), dispatches=3),
    Case("MatMul", 13, ((5,), (5, 6))),
    Case("MatMul", 13, ((2, 4, 5), (5,))),
    Case("MatMul", 13, ((5,), (5,))),
    Case("MatMul", 13, ((4, 5), (5, 6)), dtype=f16, relative=2e-3, **ONLY_ONNX, why="no float16 on onnxruntime's CPU"),
    # -- normalization
    Case("BatchNormalization", 7, (IMAGE, (3,), (3,), (3,), (3,)), positive=True, **ONLY_ORT,
         why="the reference fails"),
    Case("BatchNormalization", 9, (IMAGE, (3,), (3,), (3,), (3,)), {"epsilon": 1e-3}, positive=True, **ONLY_ORT,
         why="the reference trains"),
    Case("BatchNormalization", 15, ((4, 3), (3,), (3,), (3,), (3,)), positive=True),
    Case("BatchNormalization", 15, (IMAGE, (3,), (3,), (3,), (3,)), {"training_mode": 1, "momentum": 0.7}, outputs=3,
         dispatches=13, positive=True),
    Case("InstanceNormalization", 7, (IMAGE, (3,), (3,))),
    Case("InstanceNormalization", 7, ((2, 3, 11), (3,), (3,)), {"epsilon": 1e-2}),
    Case("LayerNormalization", 17, ((2, 3, 8), (8,), (8,))),
    Case("LayerNormalization", 17, ((2, 3, 8), (3, 8)), {"axis": 1}),
    Case("LayerNormalization", 17, ((2, 3, 8), (8,), (8,)), outputs=3, dispatches=7),
    Case("GroupNormalization", 21, ((2, 6, 5, 3), (6,), (6,)), {"num_groups": 3}, **ONLY_ONNX,
         why="onnxruntime accepts opset 21 models of a newer IR version only"),
    Case("MeanVarianceNormalization", 13, (IMAGE,)),
    Case("MeanVarianceNormalization", 9, (IMAGE,), {"axes": [1, 2]}),
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
    # -- resampling
    Case("RoiAlign", 16, ((2, 3, 9, 7), np.array([[0, 0, 6, 8], [1, 2, 5, 5.5], [2, 2, 2.5, 2.5]], f32), ints(1, 0, 1)),
         {"output_height": 3, "output_width": 2, "sampling_ratio": 2}, **ONLY_ORT,
         why="the reference reads batch 0 for an odd index"),
    Case("RoiAlign", 10, ((2, 3, 9, 7), np.array([[0, 0, 6, 8], [1, 2, 5, 5.5], [2, 2, 2.5, 2.5]], f32), ints(1, 0, 1)),
         {"output_height": 2, "output_width": 2, "spatial_scale": 0.5}, **ONLY_ORT, dispatches=3, why="as above"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
    if np.dtype(case.dtype).kind != "f":
        return rng.integers(0 if np.dtype(case.dtype).kind == "u" else -9, 9, sizes).astype(case.dtype)
    values = rng.uniform(0.2, 3, sizes) if case.positive else rng.standard_normal(sizes)
    return np.asarray(values).astype(case.dtype)


def test_every_operator_has_a_case() -> None:
    assert {op_type for _, op_type, _ in ROWS} - {"Swish"} == {case.op_type for case in CASES}, (
        "Swish is of opset 24, newer than the onnx that the tests may run with"
    )
