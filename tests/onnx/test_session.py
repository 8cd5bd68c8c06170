"""The session itself: shapes, plans, threads, memory, reports and errors."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import COMPUTED, MERGED, Network
from dmlvk.onnx.versions import CHECKED

pytestmark = pytest.mark.quick
f32, i64 = np.float32, np.int64


@pytest.fixture(scope="module")
def network(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """Two convolutions with a residual, a flatten by shape arithmetic and a matrix product; every size open but the
    channels."""
    rng = np.random.default_rng(7)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "v", "bias"], ["c"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "x"], ["d"], name="residual"),
        helper.make_node("GlobalAveragePool", ["d"], ["p"], name="pool"),
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"], name="batch"),
        helper.make_node("Concat", ["n", "minus"], ["t"], name="target", axis=0),
        helper.make_node("Reshape", ["p", "t"], ["f"], name="flatten"),
        helper.make_node("Mul", ["m", "m"], ["mm"], name="fold"),
        helper.make_node("MatMul", ["f", "mm"], ["y"], name="head"),
        helper.make_node("Abs", ["d"], ["unused"], name="dead"),
    ]
    constants = {
        "w": rng.standard_normal((6, 3, 3, 3)).astype(f32),
        "v": rng.standard_normal((3, 6, 3, 3)).astype(f32),
        "bias": rng.standard_normal(3).astype(f32),
        "m": rng.standard_normal((3, 5)).astype(f32),
        "zero": np.array([0], i64),
        "one": np.array([1], i64),
        "minus": np.array([-1], i64),
    }
    model = make_model(nodes, {"x": (f32, ("N", 3, "H", "W"))}, ("y",), constants)
    model.metadata_props.add(key="classes", value="a,b,c")
    return model


def _feed(*sizes: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(f32)}


def test_what_the_model_says(network: onnx.ModelProto, make_session: Callable[..., InferenceSession]) -> None:
    session = make_session(network)
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.shape, x.type) == ("x", ["N", 3, "H", "W"], "tensor(float)")
    assert (y.name, y.shape, y.type) == ("y", None, "tensor(float)")
    assert session.get_modelmeta().custom_metadata_map == {"classes": "a,b,c"}


def test_several_shapes(
    network: onnx.ModelProto,
    make_session: Callable[..., InferenceSession],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
    count_dispatches: Callable[..., Any],
) -> None:
    session = make_session(network, options=SessionOptions(plan_cache_size=3))
    weights = set()
    for sizes in [(1, 3, 8, 8), (2, 3, 5, 9), (1, 3, 8, 8), (4, 3, 16, 16), (1, 3, 3, 3), (2, 3, 5, 9)]:
        feeds = _feed(*sizes)
        with count_dispatches() as count:
            (y,) = session.run(None, feeds)
        (wanted,) = reference(network, feeds, "onnxruntime")
        assert_close(y, wanted, 2e-5)
        report = session.report()
        assert report.input_shapes == {"x": sizes}
        assert count.dispatches == report.dispatches == len(report.gpu_nodes) == 4
        weights.add(report.weights_bytes)
    assert report.plans == 3
    assert len(weights) == 1, "weights are uploaded once for all plans"


def test_report(network: onnx.ModelProto, make_session: Callable[..., InferenceSession]) -> None:
    session = make_session(network)
    assert session.report().plans == 0
    session.run(None, _feed(1, 3, 8, 8))
    report = session.report()
    assert [record.name for record in report.gpu_nodes] == ["first", "second", "pool", "head"]
    reasons = {record.name: record.reason for record in report.host_nodes}
    assert reasons == {
        "fold": "constant, folded when the model was loaded",
        "shape": "shape arithmetic",
        "batch": "shape arithmetic",
        "target": "shape arithmetic",
    }
    removed = {record.name: record.reason for record in report.removed_nodes}
    assert removed == {
        "relu": MERGED,
        "residual": MERGED,
        "flatten": "a view of its input",
        "dead": "nothing reads its outputs",
    }
    assert report.weights_bytes == 4 * (6 * 3 * 9 + 3 * 6 * 9 + 3 + 15)
    json.dumps(report.to_dict())
    for text in (report.device, "4 nodes", "shape arithmetic", "plans", "4 dispatches"):
        assert text in str(report)


def test_memory_is_weights_and_the_largest_arena(
    network: onnx.ModelProto, device: dmlvk.Device, make_session: Callable[..., InferenceSession]
) -> None:
    before = device.memory()
    session = make_session(network)
    for sizes in [(1, 3, 8, 8), (4, 3, 32, 32), (2, 3, 16, 16)]:
        session.run(None, _feed(*sizes))
    report = session.report()
    now = device.memory()
    assert now["weights"] - before["weights"] == report.weights_bytes
    assert now["temporary"] - before["temporary"] == report.activation_bytes
    largest = 4 * 4 * 32 * 32
    assert report.activation_bytes < largest * (3 + 6 + 6) + 4096, "the sum runs in place, and dead tensors make room"


def test_threads(
    network: onnx.ModelProto,
    make_session: Callable[..., InferenceSession],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    session = make_session(network)
    feeds = [_feed(1 + i % 3, 3, 6 + i % 2, 7) for i in range(12)]
    found: list[np.ndarray | None] = [None] * len(feeds)

    def work(first: int) -> None:
        for index in range(first, len(feeds), 4):
            (found[index],) = session.run(["y"], feeds[index])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for feed, y in zip(feeds, found, strict=True):
        assert_close(y, reference(network, feed, "onnxruntime")[0], 2e-5)


def test_same_bits_every_time(network: onnx.ModelProto, make_session: Callable[..., InferenceSession]) -> None:
    session = make_session(network)
    first = session.run(None, _feed(2, 3, 9, 9))[0]
    session.run(None, _feed(1, 3, 20, 20))
    np.testing.assert_array_equal(session.run(None, _feed(2, 3, 9, 9))[0], first)


def test_wrong_feeds_leave_the_session_usable(
    network: onnx.ModelProto, make_session: Callable[..., InferenceSession]
) -> None:
    session = make_session(network)
    good = _feed(1, 3, 8, 8)
    wanted = session.run(None, good)[0]
    x = good["x"]
    for feeds, words in [
        ({}, "missing: 'x'"),
        ({"x": x, "z": x}, "unknown: 'z'"),
        ({"x": x.astype(np.float64)}, "float64"),
        ({"x": x[0]}, "shape"),
        ({"x": x[:, :2]}, r"\[1, 2, 8, 8\]"),
    ]:
        with pytest.raises(dmlvk.ModelError, match=words):
            session.run(None, feeds)
    with pytest.raises(dmlvk.InvalidArgumentError, match="mapping from input names to arrays"):
        session.run(None, [x])  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(dmlvk.ModelError, match="no output 'q'"):
        session.run(["q"], good)
    for wrong in (5, "y"):
        with pytest.raises(dmlvk.InvalidArgumentError, match="list of names"):
            session.run(wrong, good)  # type: ignore[arg-type]  # what the test is about
    np.testing.assert_array_equal(session.run(None, good)[0], wanted)


def test_sizes_of_one_name_may_differ(
    make_model: Callable[..., Any], make_session: Callable[..., InferenceSession], reference: Callable[..., Any]
) -> None:
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
    model = make_model(node, {"a": (f32, ("N", "?")), "b": (f32, ("N", "?"))})
    session = make_session(model)
    for sizes in [((3, 2), (4, 2)), ((5, 5), (5, 5)), ((1, 3), (2, 3)), ((6, 7), (8, 7))]:  # traced, then filled
        feeds = {name: np.random.default_rng(0).random(own, f32) for name, own in zip("ab", sizes, strict=True)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], *reference(model, feeds, "onnxruntime"))


def test_constants_are_computed_by_the_device_when_the_session_is_made(
    make_model: Callable[..., Any],
    make_session: Callable[..., InferenceSession],
    reference: Callable[..., Any],
    assert_close: Callable[..., None],
) -> None:
    """What the host has no rules for: products, a softmax, quantized weights; in a branch too, and where a size follows."""
    branch = helper.make_graph(
        [helper.make_node("Softmax", ["m"], ["soft"])], "b", [], [helper.make_tensor_value_info("soft", 1, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["product"], ["same"])], "b", [], [helper.make_tensor_value_info("same", 1, None)]
    )
    nodes = [
        helper.make_node("MatMul", ["m", "m"], ["product"], name="product"),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["w"], name="weights"),
        helper.make_node("TopK", ["sizes", "one"], ["most", "at"], name="most"),
        helper.make_node("ArgMax", ["m"], ["place"], name="place", axis=0, keepdims=0),
        helper.make_node("If", ["c"], ["chosen"], then_branch=branch, else_branch=other),
        helper.make_node("Add", ["x", "chosen"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Gather", ["b", "place"], ["g"]),
        helper.make_node("Concat", ["most", "minus"], ["shape"], axis=0),
        helper.make_node("Reshape", ["g", "shape"], ["y"]),
    ]
    constants = {
        "m": np.random.default_rng(3).random((3, 3), f32),
        "q": np.arange(12, dtype=np.int8).reshape(3, 4),
        "scale": np.array(0.5, f32),
        "sizes": np.array([2, 6, 4], i64),
        "one": np.array([1], i64),
        "minus": np.array([-1], i64),
    }
    inputs = {"x": (f32, ("N", 3, 3)), "c": (np.bool_, ())}
    model = make_model(nodes, inputs, constants=constants, opset=19)
    session = make_session(model)
    for count, chosen in ((3, True), (5, False), (4, True)):
        feeds = {"x": np.random.default_rng(count).random((count, 3, 3), f32), "c": np.array(chosen)}
        assert_close(session.run(None, feeds)[0], *reference(model, feeds, "onnx"))
        report = session.report()
        computed = [label for label in report.gpu_nodes if label.reason == COMPUTED]
        assert {label.op_type for label in computed} == {
            *("MatMul", "DequantizeLinear", "TopK", "ArgMax", "Softmax"),
            *("Identity", "Concat"),  # of what those make
        }
        assert report.dispatches <= 4  # none of them is launched again


def test_nothing_imports_the_reference_of_onnx() -> None:
    """Its faults would be ours."""
    sources = Path(dmlvk.__file__).parent.rglob("*.py")
    assert not [path for path in sources if "onnx.reference" in path.read_text("utf-8")]


def test_unsupported_nodes_fail_at_load(
    make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]
) -> None:
    node = helper.make_node("ImageDecoder", ["x"], ["y"], name="decoder")
    with pytest.raises(dmlvk.UnsupportedNodeError, match="decoder") as caught:
        make_session(make_model(node, {"x": (np.uint8, ("N",))}, output_types={"y": np.uint8}, opset=20))
    error = caught.value
    assert (error.node, error.op_type, error.domain, error.version) == ("decoder", "ImageDecoder", "", 20)
    assert error.reason == "the operator has no converter"

    node = helper.make_node("LRN", ["x"], ["y"], size=3)
    with pytest.raises(dmlvk.UnsupportedNodeError, match="FLOAT64"):
        make_session(make_model(node, {"x": (np.float64, ("N",))}, output_types={"y": np.float64}))

    node = helper.make_node("RoiAlign", ["x", "boxes", "batch"], ["y"], mode="max")
    inputs = {"x": (f32, ("N", "C", "H", "W")), "boxes": (f32, ("R", 4)), "batch": (i64, ("R",))}
    with pytest.raises(dmlvk.UnsupportedNodeError, match="mode 'max'"):
        make_session(make_model(node, inputs))


def test_broken_models(network: onnx.ModelProto, make_session: Callable[..., InferenceSession], tmp_path: Path) -> None:
    with pytest.raises(dmlvk.ModelError, match="cannot be read"):
        make_session(tmp_path / "missing.onnx")
    with pytest.raises(dmlvk.ModelError):
        make_session(b"no model at all")
    with pytest.raises(dmlvk.ModelError):
        make_session(network.SerializeToString()[:100])
    with pytest.raises(dmlvk.ModelError, match="no graph"):
        make_session(b"")
    for name in ("model.onnx", "model.json", "model.onnxtxt", "model.textproto"):
        (tmp_path / name).write_text("no model at all")
        with pytest.raises(dmlvk.ModelError, match=name):
            make_session(tmp_path / name)
    broken = onnx.ModelProto()
    broken.CopyFrom(network)
    broken.graph.node[1].input[0] = "nowhere"
    with pytest.raises(dmlvk.ModelError, match="nowhere"):
        make_session(broken)


def test_sizes_that_do_not_fit(make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]) -> None:
    session = make_session(make_model(helper.make_node("MatMul", ["a", "b"], ["y"]), {
        "a": (f32, ("M", "K")), "b": (f32, ("L", "N"))}))  # fmt: skip
    with pytest.raises(dmlvk.ModelError, match="as many rows as A has columns; expected 3, got 4"):
        session.run(None, {"a": np.ones((2, 3), f32), "b": np.ones((4, 5), f32)})
    (y,) = session.run(None, {"a": np.ones((2, 3), f32), "b": np.ones((3, 5), f32)})
    np.testing.assert_array_equal(y, np.full((2, 5), 3, f32))


def test_paths_devices_and_options(
    network: onnx.ModelProto, device: dmlvk.Device, make_session: Callable[..., InferenceSession], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network, path)
    wanted = make_session(network).run(None, _feed(1, 3, 8, 8))[0]
    own = InferenceSession(str(path), device.info.index)
    assert own.device is not device
    np.testing.assert_array_equal(own.run(None, _feed(1, 3, 8, 8))[0], wanted)
    with pytest.raises(dmlvk.InvalidArgumentError, match="plan_cache_size"):
        make_session(network, options=SessionOptions(plan_cache_size=0))


def test_outputs_that_no_step_computes(
    make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]
) -> None:
    """An input passed through, a view of it, a constant, a shape: nothing is dispatched, everything is returned."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Identity", ["c"], ["constant"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
    ]
    model = make_model(
        nodes, {"x": (f32, ("A", "B", "C"))}, ("same", "flat", "constant", "sizes"),
        {"c": np.array([1, 2], f32)}, output_types={"sizes": i64},
    )  # fmt: skip
    session = make_session(model)
    x = np.arange(24, dtype=f32).reshape(2, 3, 4)
    same, flat, constant, sizes = session.run(None, {"x": x})
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(flat, x.reshape(2, 12))
    np.testing.assert_array_equal(constant, [1, 2])
    np.testing.assert_array_equal(sizes, [2, 3, 4])
    assert session.report().dispatches == 0
    constant[:] = 0
    np.testing.assert_array_equal(session.run(["constant"], {"x": x})[0], [1, 2])


def test_views_of_views(
    make_model: Callable[..., Any],
    make_session: Callable[..., InferenceSession],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    """Transposed tensors go into elementwise operators, products and convolutions as they are; a reshape that strides
    cannot express makes the one copy."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Conv", ["t", "w"], ["c"]),
        helper.make_node("Add", ["r", "c"], ["s"]),
        helper.make_node("Transpose", ["s"], ["u"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["u", "shape"], ["y"]),
    ]
    constants = {
        "w": np.random.default_rng(1).standard_normal((3, 3, 1, 1)).astype(f32),
        "shape": np.array([0, -1], i64),
    }
    model = make_model(nodes, {"x": (f32, (2, 5, 4, 3))}, ("y",), constants)
    session = make_session(model)
    feeds = _feed(2, 5, 4, 3)
    assert_close(session.run(None, feeds)[0], reference(model, feeds, "onnxruntime")[0], 1e-5)
    assert session.report().dispatches == 3
    assert [record.op_type for record in session.report().removed_nodes] == ["Transpose", "Add", "Transpose"]


def test_empty_tensors(make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]) -> None:
    session = make_session(make_model(helper.make_node("Relu", ["x"], ["y"]), {"x": (f32, ("N", 3))}))
    (y,) = session.run(None, {"x": np.zeros((0, 3), f32)})
    assert y.shape == (0, 3)
    (y,) = session.run(None, {"x": -np.ones((2, 3), f32)})
    np.testing.assert_array_equal(y, np.zeros((2, 3), f32))


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Conv", {"x": (0, 3, 5, 5), "w": (4, 3, 3, 3)}, {}),
        ("ConvTranspose", {"x": (0, 3, 5, 5), "w": (3, 4, 3, 3)}, {}),
        ("MaxPool", {"x": (0, 3, 5, 5)}, {"kernel_shape": [2, 2]}),
        ("GlobalAveragePool", {"x": (0, 3, 5, 5)}, {}),
        ("MatMul", {"x": (0, 4), "w": (4, 3)}, {}),
        ("MatMul", {"x": (0, 2, 4), "w": (1, 4, 3)}, {}),
        ("Gemm", {"x": (0, 4), "w": (4, 3)}, {}),
        ("Softmax", {"x": (0, 4)}, {}),
        ("BatchNormalization", {"x": (0, 3, 2), "s": (3,), "b": (3,), "m": (3,), "v": (3,)}, {}),
        ("InstanceNormalization", {"x": (0, 3, 2), "s": (3,), "b": (3,)}, {}),
        ("LayerNormalization", {"x": (0, 3), "s": (3,)}, {}),
        ("PRelu", {"x": (0, 3), "s": (3,)}, {}),
    ],
)
def test_empty_batches(
    op_type: str,
    inputs: dict[str, tuple[int, ...]],
    attributes: dict[str, Any],
    make_model: Callable[..., Any],
    make_session: Callable[..., InferenceSession],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    """A detector that found nothing hands on a batch of nothing."""
    node = helper.make_node(op_type, list(inputs), ["y"], **attributes)
    model = make_model(node, {name: (f32, sizes) for name, sizes in inputs.items()})
    feeds = {name: np.ones(sizes, f32) for name, sizes in inputs.items()}
    assert_close(make_session(model).run(None, feeds)[0], reference(model, feeds, "onnxruntime")[0])


@pytest.mark.parametrize(
    ("node", "sizes", "weights"),
    [
        (helper.make_node("Conv", ["x", "w"], ["y"]), (1, 3, 5, 5), (4, 3, 3, 3)),
        (helper.make_node("Conv", ["x", "w"], ["y"], group=3), (1, 3, 5, 5), (3, 1, 3, 3)),
        (helper.make_node("LayerNormalization", ["x", "w"], ["y"]), (2, 3, 5), (5,)),
        (helper.make_node("Add", ["x", "w"], ["y"]), (2, 2, 2, 2, 2, 2), (2,)),
    ],
)
def test_open_sizes_that_the_weights_decide(
    node: onnx.NodeProto,
    sizes: tuple[int, ...],
    weights: tuple[int, ...],
    make_model: Callable[..., Any],
    make_session: Callable[..., InferenceSession],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    """The sizes on which a model is tried when it is loaded do not fit it, or would be larger than the device."""
    symbols = tuple(f"size{axis}" for axis in range(len(sizes)))
    model = make_model(node, {"x": (f32, symbols)}, constants={"w": np.ones(weights, f32)})
    feeds = _feed(*sizes)
    assert_close(make_session(model).run(None, feeds)[0], reference(model, feeds, "onnxruntime")[0])


def test_an_opset_that_onnx_does_not_know(
    make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]
) -> None:
    newer = max(onnx.defs.onnx_opset_version(), CHECKED) + 1
    with pytest.raises(dmlvk.UnsupportedError, match=f"opset {newer}; the installed onnx"):
        make_session(make_model(helper.make_node("Relu", ["x"], ["y"]), {"x": (f32, (2,))}, opset=newer))


def test_a_slope_that_is_larger_than_the_input(
    make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]
) -> None:
    with pytest.raises(dmlvk.ModelError, match="must broadcast to those of the input"):
        make_session(make_model(helper.make_node("PRelu", ["x", "s"], ["y"]), {"x": (f32, (1, 3)), "s": (f32, (4, 3))}))


def test_a_loaded_model_keeps_no_second_copy_of_its_weights(make_model: Callable[..., Any]) -> None:
    weights = onnx.numpy_helper.from_array(np.ones(1000, f32))
    nodes = [helper.make_node("Constant", [], ["c"], value=weights), helper.make_node("Add", ["x", "c"], ["y"])]
    network = Network(load_model(make_model(nodes, {"x": (f32, (1000,))})))
    assert [node.op_type for node in network.model.nodes] == ["Add"]


def test_inputs_that_say_shapes(make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]) -> None:
    """The shape of a Reshape may be fed; each value has its own plan."""
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    session = make_session(make_model(node, {"x": (f32, (4, 3)), "s": (i64, (2,))}))
    x = np.arange(12, dtype=f32).reshape(4, 3)
    for shape in [(2, 6), (3, 4), (2, 6)]:
        (y,) = session.run(None, {"x": x, "s": np.array(shape, i64)})
        np.testing.assert_array_equal(y, x.reshape(shape))
    assert session.report().plans == 2


def test_fills_are_made_where_they_are_read(
    make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]
) -> None:
    """Shape arithmetic makes on the host what it reads itself; what only the device reads is a number of the chain that
    ends with the expansion."""
    constant = {name: helper.make_tensor("", code, (1,), [value]) for name, code, value in [("c", 1, 2.5), ("k", 7, 1)]}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="sizes"),
        helper.make_node("ConstantOfShape", ["s"], ["c"], name="numbers", value=constant["c"]),
        helper.make_node("Add", ["x", "c"], ["a"], name="sum"),
        helper.make_node("Shape", ["s"], ["t"], name="rank"),
        helper.make_node("ConstantOfShape", ["t"], ["k"], name="ones", value=constant["k"]),
        helper.make_node("Mul", ["k", "three"], ["m"], name="wanted"),
        helper.make_node("Expand", ["a", "m"], ["y"], name="expansion"),
    ]
    session = make_session(make_model(nodes, {"x": (f32, ("N", 1))}, constants={"three": np.array(3, i64)}))
    x = np.arange(3, dtype=f32).reshape(3, 1)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.tile(x + f32(2.5), (1, 3)))
    report = session.report()
    assert [record.name for record in report.gpu_nodes] == ["expansion"]
    assert [record.name for record in report.host_nodes] == ["sizes", "rank", "ones", "wanted"]


def test_counts_that_are_fed(make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]) -> None:
    """A range's ends may be fed; its length is no shape of an input, so each set of ends has its own plan."""
    node = helper.make_node("Range", ["start", "limit", "delta"], ["y"])
    ends = dict.fromkeys(node.input, (f32, ()))
    session = make_session(make_model(node, ends))
    for start, limit, delta in [(0, 5, 1), (4, -2, -1.5), (3, 3, 1)]:
        feeds = {"start": start, "limit": limit, "delta": delta}
        (y,) = session.run(None, {name: np.array(value, f32) for name, value in feeds.items()})
        np.testing.assert_array_equal(y, np.arange(start, limit, delta, f32))
    assert session.report().plans == 3


def test_inputs_from_which_shapes_follow(
    make_model: Callable[..., Any], make_session: Callable[..., InferenceSession]
) -> None:
    """A count that is fed and goes through arithmetic to a shape."""
    nodes = [
        helper.make_node("Unsqueeze", ["n", "zero"], ["s"]),
        helper.make_node("Concat", ["s", "minus"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = {"zero": np.array([0], i64), "minus": np.array([-1], i64)}
    session = make_session(make_model(nodes, {"x": (f32, (4, 3)), "n": (i64, ())}, constants=constants))
    x = np.arange(12, dtype=f32).reshape(4, 3)
    for count in (2, 6):
        np.testing.assert_array_equal(session.run(None, {"x": x, "n": np.array(count, i64)})[0], x.reshape(count, -1))


def test_without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    for name in [name for name in sys.modules if name.startswith("dmlvk.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(dmlvk.DmlvkError, match=r"pip install dmlvk\[onnx\]") as caught:
        importlib.import_module("dmlvk.onnx")
    assert isinstance(caught.value, ImportError)


def test_weights_are_repacked_once(
    make_model: Callable[..., onnx.ModelProto],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    """On a GPU, which prefers them in another order; two equal convolutions keep weights of their own, and a third shares
    those of the first."""
    device = dmlvk.Device()
    device.capabilities = dataclasses.replace(device.capabilities, is_cpu=False)
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("Conv", [source, weights], [target], pads=[1, 1, 1, 1])
        for source, weights, target in (("x", "w", "a"), ("a", "v", "b"), ("b", "w", "y"))
    ]
    constants = {name: 0.1 * rng.standard_normal((32, 32, 3, 3)).astype(f32) for name in "wv"}
    model = make_model(nodes, {"x": (f32, ("N", 32, "H", "W"))}, ("y",), constants)
    session = InferenceSession(model, device)
    for sizes in ((1, 32, 12, 12), (2, 32, 9, 8), (1, 32, 12, 12)):
        feeds = {"x": rng.standard_normal(sizes).astype(f32)}
        (found,) = session.run(None, feeds)
        assert_close(found, reference(model, feeds, "onnxruntime")[0], 2e-5)
    operators = {id(operator): operator for plan in session._loaded.graphs.cached.values() for operator in plan.operators}
    assert len(operators) == 4, "two for each size"
    assert all(len(operator.plan.initialize) == 1 for operator in operators.values())
    assert session.report().weights_bytes == sum(operator.plan.persistent_bytes for operator in operators.values())


def test_integer_weights_are_packed_once(make_model: Callable[..., onnx.ModelProto]) -> None:
    """Whichever operator has them: what its plan's initialisation reads is OWNED_BY_DML."""
    rng = np.random.default_rng(4)
    weights = rng.integers(-128, 128, (40, 24), np.int8)
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    session = InferenceSession(make_model(nodes, {"x": (np.int8, ("N", 40))}, ("y",), {"w": weights}))
    for rows in (16, 33):
        values = rng.integers(-128, 128, (rows, 40), np.int8)
        (found,) = session.run(None, {"x": values})
        np.testing.assert_array_equal(found, values.astype(np.int32) @ weights.astype(np.int32))
    for plan in session._loaded.graphs.cached.values():
        (operator,) = plan.operators
        assert operator.owned_inputs and operator.plan.initialize
        assert session.report().weights_bytes >= operator.plan.persistent_bytes > 0
