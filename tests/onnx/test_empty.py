"""Tensors of size 0: what operators make of them has the shapes and values that ONNX Runtime gives, and launches nothing
where there is nothing to compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import helper

f32, i32, i64, u8 = np.float32, np.int32, np.int64, np.uint8


@dataclass(frozen=True)
class Case:
    """A node with inputs, None for an absent one.

    Attributes:
        op_type: Its operator.
        inputs: Its inputs.
        attributes: Its attributes.
        outputs: How many outputs it has.
        dispatches: How many launches it may take.
        opset: The opset.
        types: numpy's types of its outputs, as far as they are not float32.
    """

    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    dispatches: int = 0
    opset: int = 17
    types: dict[str, type] = field(default_factory=dict)


def ones(*sizes: int, dtype: type = f32) -> np.ndarray:
    return np.ones(sizes, dtype)


IMAGE, NONE, IMAGES = ones(1, 2, 8, 8), np.zeros(0, i64), ones(0, 3, 8, 8)
CASES = [
    *(
        Case("RoiAlign", (IMAGE, ones(0, 4), NONE), {"output_height": 2, "output_width": 3}, opset=opset)
        for opset in (10, 16)
    ),
    Case("RoiAlign", (IMAGE, ones(0, 4), NONE), {"mode": "max", "sampling_ratio": 2}, opset=16),
    Case("MaxRoiPool", (IMAGE, ones(0, 5)), {"pooled_shape": [2, 2]}),
    Case("Gemm", (ones(0, 4), ones(4, 3), ones(3))),
    Case("Gemm", (ones(2, 0), ones(0, 3), ones(3)), dispatches=2),
    Case("MatMul", (ones(2, 0), ones(0, 3)), dispatches=1),
    Case("Conv", (IMAGES, ones(4, 3, 3, 3))),
    Case("Conv", (ones(1, 3, 0, 8), ones(4, 3, 3, 3), np.arange(4, dtype=f32)), {"pads": [2, 2, 2, 2]}, dispatches=1),
    Case("MaxPool", (IMAGES,), {"kernel_shape": [2, 2]}),
    Case("LRN", (IMAGES,), {"size": 3}),
    Case("BatchNormalization", (IMAGES, *(ones(3) for _ in range(4)))),
    Case("LayerNormalization", (ones(0, 3), ones(3), ones(3))),
    Case("Softmax", (ones(3, 0),)),
    Case("ReduceSum", (ones(2, 0),), dispatches=1),
    Case("ReduceMean", (ones(2, 0),), dispatches=1),
    Case("ReduceMax", (ones(2, 0, 3),), {"axes": [1]}, dispatches=1),
    Case("ArgMax", (ones(0, 2),), {"axis": 1}, types={"y0": i64}),
    Case("GlobalAveragePool", (IMAGES,)),
    Case("MaxUnpool", (ones(0, 1, 2, 2), np.zeros((0, 1, 2, 2), i64)), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("ConvTranspose", (ones(1, 2, 0, 4), ones(2, 3, 3, 3), np.arange(3, dtype=f32)), dispatches=1),
    Case("Unique", (ones(0, 3),), {"axis": 0}, outputs=4, types=dict.fromkeys(("y1", "y2", "y3"), i64)),
    Case("DFT", (ones(1, 0, 2),), {"axis": 1}),
    Case("TopK", (ones(2, 3), np.array([0])), outputs=2, types={"y1": i64}),
    Case("GatherND", (np.arange(3, dtype=f32), np.zeros((2, 0), i64)), dispatches=1),
    Case("Concat", (ones(0, 3), ones(2, 3)), {"axis": 0}, dispatches=1),
    Case("Split", (ones(0, 4),), {"axis": 1}, outputs=2),
    Case("Gather", (ones(3, 4), NONE)),
    Case("GatherElements", (ones(3, 4), np.zeros((0, 4), i64))),
    Case("ScatterND", (ones(3, 4), np.zeros((0, 1), i64), ones(0, 4)), dispatches=1),
    Case("Tile", (ones(2, 3), np.array([0, 1]))),
    Case("Einsum", (ones(2, 0), ones(0, 2)), {"equation": "ij,jk->ik"}, dispatches=1),
    Case("NegativeLogLikelihoodLoss", (ones(0, 5), NONE), {"reduction": "sum"}, dispatches=1),
    Case("NegativeLogLikelihoodLoss", (ones(0, 5), NONE), dispatches=1),
    Case("SoftmaxCrossEntropyLoss", (ones(3, 5, 0), np.zeros((3, 0), i64)), {"reduction": "none"}),
    Case("Compress", (ones(0, 3), np.zeros(0, np.bool_)), {"axis": 0}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op_type)
def test_as_onnxruntime(
    case: Case, make_model: Callable[..., Any], make_session: Callable[..., Any], reference: Callable[..., Any]
) -> None:
    arrays = {f"x{index}": np.asarray(array) for index, array in enumerate(case.inputs) if array is not None}
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(case.inputs)]
    outputs = [f"y{index}" for index in range(case.outputs)]
    node = helper.make_node(case.op_type, names, outputs, **case.attributes)
    model = make_model(
        node,
        {name: (array.dtype, array.shape) for name, array in arrays.items()},
        outputs,
        opset=case.opset,
        output_types=case.types,
    )
    session = make_session(model)
    for found, wanted in zip(session.run(None, arrays), reference(model, arrays, "onnxruntime"), strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)
    assert session.report().dispatches <= case.dispatches


ONE, A, B = np.array(1, f32), ones(2, 0, dtype=u8), ones(0, 3, dtype=u8)


@pytest.mark.parametrize(
    ("op_type", "parts", "attributes", "wanted"),
    [
        ("QLinearMatMul", (A, ONE, u8(3), B, ONE, u8(1), ONE, u8(7)), {}, np.full((2, 3), 7, u8)),
        ("MatMulInteger", (A, B), {}, np.zeros((2, 3), i32)),
        (
            "ConvInteger",
            (ones(1, 1, 0, 3, dtype=u8), ones(1, 1, 2, 2, dtype=u8)),
            {"pads": [1] * 4},
            np.zeros((1, 1, 1, 4), i32),
        ),
    ],
)
def test_quantized_sums_of_nothing(
    op_type: str,
    parts: tuple[Any, ...],
    attributes: dict[str, Any],
    wanted: np.ndarray,
    make_model: Callable[..., Any],
    make_session: Callable[..., Any],
) -> None:
    """ONNX Runtime leaves there whatever lay in memory."""
    feeds = {f"x{index}": np.asarray(array) for index, array in enumerate(parts)}
    inputs = {name: (array.dtype, array.shape) for name, array in feeds.items()}
    node = helper.make_node(op_type, list(feeds), ["y"], **attributes)
    (y,) = make_session(make_model(node, inputs, output_types={"y": wanted.dtype})).run(None, feeds)
    np.testing.assert_array_equal(y, wanted, strict=True)


@pytest.mark.parametrize(("op_type", "gates", "states"), [("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)])
@pytest.mark.parametrize("layout", [0, 1])
def test_sequences_of_no_steps(
    op_type: str, gates: int, states: int, layout: int, make_model: Callable[..., Any], make_session: Callable[..., Any]
) -> None:
    """ONNX Runtime ends the process at some of these: no states, and as the last ones the initial ones, or zeros."""
    last = (2, 1, 4) if layout else (1, 2, 4)
    inputs = {"x": ones(*((2, 0, 3) if layout else (0, 2, 3))), "w": ones(1, gates * 4, 3), "r": ones(1, gates * 4, 4)}
    initial = np.random.default_rng(1).random(last, f32)
    outputs = ["y", "h", "c"][: 1 + states]
    for given in (False, True):
        feeds = {**inputs, **({"initial": initial} if given else {})}
        names = [*inputs, *(["", "", "initial"] if given else [])]
        node = helper.make_node(op_type, names, outputs, hidden_size=4, layout=layout)
        model = make_model(node, {name: (f32, array.shape) for name, array in feeds.items()}, outputs)
        y, h, *c = make_session(model).run(None, feeds)
        assert y.shape == ((2, 0, 1, 4) if layout else (0, 1, 2, 4))
        np.testing.assert_array_equal(h, initial if given else np.zeros(last, f32), strict=True)
        for state in c:
            np.testing.assert_array_equal(state, np.zeros(last, f32), strict=True)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("trace", [True, False])
def test_loops_of_no_rounds(axis: int, trace: bool, make_session: Callable[..., Any]) -> None:
    """Outputs of no rounds have the sizes of those of one. ONNX Runtime refuses a Scan of nothing, or ends the process."""
    body = "round (float[2] a, float[2] b) => (float[2] c, float[4] d) { c = Add (a, b) d = Concat <axis = 0> (b, b) }"
    if not trace:  # the host drives what a trace cannot follow
        body = body.replace(
            "c = Add (a, b)", "n = NonZero (b) f = Cast <to = 1> (n) r = ReduceSum <keepdims = 0> (f) c = Add (a, r)"
        )
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    scan (float[2] s, float[M,N] x) => (float[2] y, float[K,L] z) {{
        y, z = Scan (s, x) <num_scan_inputs = 1, scan_input_axes = [{axis}], scan_output_axes = [{axis}], body = {body}>
    }}"""
    session = make_session(onnx.parser.parse_model(text))
    y, z = session.run(None, {"s": ones(2), "x": ones(2, 0) if axis else ones(0, 2)})
    np.testing.assert_array_equal(y, ones(2), strict=True)
    assert (z.dtype, z.shape) == (f32, (4, 0) if axis else (0, 4))
    assert session.report().dispatches == 0
