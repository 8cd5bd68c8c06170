"""Where images lie with their channels side by side, and where they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from dmlvk.graph.step import Step
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.spec.tensor import calculate_strides

SIZES = (2, 16, 10, 12)
rng = np.random.default_rng(6)
Nodes = list[onnx.NodeProto]


def conv(x: str, y: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Conv", [x, "w"], [y], name=y, pads=[1, 1, 1, 1], **attributes)


def op(op_type: str, inputs: str, y: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [y], name=y, **attributes)


def rows(x: str, y: str) -> Nodes:
    """The channels of each pixel as a row."""
    return [
        helper.make_node("Reshape", [x, "shape"], [f"{y} apart"]),
        helper.make_node("Transpose", [f"{y} apart"], [y], perm=[0, 2, 1]),
    ]


POOL: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
CASES: dict[str, tuple[Nodes, str]] = {
    # nodes, and those whose output moves
    "convolutions": ([conv("x", "a"), conv("a", "b"), conv("b", "y")], "a b"),
    "a block": ([conv("x", "a"), conv("a", "b"), op("Add", "a b", "c"), conv("c", "y")], "a b c"),
    "pooling": ([conv("x", "a"), op("MaxPool", "a", "b", **POOL), conv("b", "y")], "a b"),
    "squeezed": (
        [conv("x", "a"), op("GlobalAveragePool", "a", "p"), op("Mul", "a p", "b"), conv("b", "y")],
        "a b",
    ),
    "for nobody": ([conv("x", "a"), op("Sigmoid", "a", "b"), op("MaxPool", "b", "y", **POOL)], ""),
    "an output": ([conv("x", "z"), conv("z", "y")], ""),
    "with what was fed": ([conv("x", "a"), op("Mul", "a x", "b"), conv("b", "y")], ""),
    "rows of what moved": ([conv("x", "a"), conv("a", "b"), *rows("b", "t"), op("Softmax", "t", "y")], "a b"),
    "rows of planes": ([conv("x", "a"), *rows("a", "t"), op("Softmax", "t", "y")], ""),
    "rows and an image": (
        [
            *(
                conv("x", "a"),
                conv("a", "b"),
                *rows("b", "t"),
                op("Softmax", "t", "s"),
                op("ReduceSum", "s", "q", keepdims=0),
            ),
            *(op("Sigmoid", "b", "c"), op("Mul", "c q", "y")),
        ],
        "a",
    ),
    "joined": ([conv("x", "a"), conv("a", "b"), op("Concat", "a b", "c", axis=2), conv("c", "y")], ""),
}


def made(make_model: Callable[..., onnx.ModelProto], nodes: Nodes, dtype: type) -> onnx.ModelProto:
    weights = {"w": (rng.standard_normal((16, 16, 3, 3)) / 12).astype(dtype), "shape": np.array([2, 16, -1])}
    outputs = [name for name in ("y", "z") if any(name in node.output for node in nodes)]
    return make_model(nodes, {"x": (dtype, SIZES)}, outputs, weights, output_types=dict.fromkeys(outputs, dtype))


def moved(step: Step) -> bool:
    output = step.desc.tensor("output_tensor")
    is_image = output.dimension_count == 4 and output.sizes[2:] != (1, 1)
    return is_image and output.effective_strides == calculate_strides("NHWC", output.sizes)


@pytest.mark.parametrize("name", CASES)
def test_what_lies_with_its_channels_side_by_side(
    name: str, make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    nodes, wanted = CASES[name]
    model = made(make_model, nodes, np.float16)
    steps = Network(load_model(model), ["residual", "activation"]).trace_whole({"x": SIZES}, {}).steps
    assert [step.origin.name for step in steps if moved(step)] == wanted.split()
    wide = Network(load_model(made(make_model, nodes, np.float32)))
    assert not any(map(moved, wide.trace_whole({"x": SIZES}, {}).steps))

    x = rng.standard_normal(SIZES).astype(np.float16)
    sessions = [make_session(model, options=SessionOptions(without_passes=off)) for off in ((), ("channels_last",))]
    for found, plain in zip(*(session.run(None, {"x": x}) for session in sessions), strict=True):
        limit = 4 * float(np.finfo(np.float16).eps)
        np.testing.assert_allclose(found, plain, rtol=limit, atol=limit * float(np.abs(plain).max()))


@pytest.mark.parametrize(
    ("channels", "wide", "is_moved"), [(3, False, True), (3, True, False), (2, False, False), (8, False, False)]
)
def test_patches_lie_as_rows(
    channels: int,
    wide: bool,
    is_moved: bool,
    make_model: Callable[..., onnx.ModelProto],
    make_session: Callable[..., InferenceSession],
) -> None:
    """As a vision transformer has them, behind a row of its own: of channels that fill no words, and of many terms."""
    dtype, sizes = np.float32 if wide else np.float16, (2, channels, 32, 48)
    weights = {
        "w": (rng.standard_normal((16, channels, 8, 8)) / 8).astype(dtype),
        "class": rng.standard_normal((2, 1, 16)).astype(dtype),
        "shape": np.array([2, 16, -1]),
    }
    if channels == 2:
        weights["w"] = weights["w"][:, :, :7, :8]  # of 112 terms
    patches = helper.make_node("Conv", ["x", "w"], ["a"], name="a", strides=[8, 8])
    nodes = [patches, *rows("a", "t"), op("Concat", "class t", "j", axis=1), op("Softmax", "j", "y")]
    model = make_model(nodes, {"x": (dtype, sizes)}, ["y"], weights, output_types={"y": dtype})
    steps = Network(load_model(model)).trace_whole({"x": sizes}, {}).steps
    assert [step.origin.name for step in steps if moved(step)] == (["a"] if is_moved else [])
    x = rng.standard_normal(sizes).astype(dtype)
    sessions = [make_session(model, options=SessionOptions(without_passes=off)) for off in ((), ("channels_last",))]
    (found,), (plain,) = (session.run(None, {"x": x}) for session in sessions)
    limit = 2 * float(np.finfo(found.dtype).eps)  # of shares of 1
    np.testing.assert_allclose(found, plain, rtol=0, atol=limit)


@pytest.mark.parametrize("space", [(40,), (4, 5, 6)], ids=["lines", "volumes"])
def test_lines_and_volumes_move_too(
    space: tuple[int, ...], make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., InferenceSession]
) -> None:
    """As the sound that a transformer hears comes through two convolutions to rows."""
    sizes, pads = (2, 16, *space), [1] * 2 * len(space)
    weights = {
        "w": (rng.standard_normal((16, 16) + (3,) * len(space)) / 12).astype(np.float16),
        "shape": np.array([2, 16, -1]),
    }
    nodes = [
        *(helper.make_node("Conv", ["x", "w"], ["a"], name="a", pads=pads), op("Sigmoid", "a", "b")),
        *(helper.make_node("Conv", ["b", "w"], ["c"], name="c", pads=pads), *rows("c", "t"), op("Softmax", "t", "y")),
    ]
    model = make_model(nodes, {"x": (np.float16, sizes)}, ["y"], weights, output_types={"y": np.float16})
    steps = Network(load_model(model), ["activation"]).trace_whole({"x": sizes}, {}).steps
    images = {step.origin.name: step.desc.tensor("output_tensor") for step in steps[:3]}
    assert {name: image.effective_strides[1] for name, image in images.items()} == {"a": 1, "b": 1, "c": 1}
    x = rng.standard_normal(sizes).astype(np.float16)
    sessions = [make_session(model, options=SessionOptions(without_passes=off)) for off in ((), ("channels_last",))]
    (found,), (plain,) = (session.run(None, {"x": x}) for session in sessions)
    limit = 2 * float(np.finfo(found.dtype).eps)  # of shares of 1
    np.testing.assert_allclose(found, plain, rtol=0, atol=limit)
