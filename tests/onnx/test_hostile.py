"""Broken and hostile models and feeds: each ends in an error of dmlvk's, soon and in little memory, and a session works
after it."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.spec import ops

f32, i64 = np.float32, np.int64
X = {"x": (f32, (2, 3))}
IMAGE = {"x": (f32, (1, 3, 8, 8))}
node = helper.make_node


def load(model: Any) -> None:
    """Loads a model, and traces it, as far as it comes without a device."""
    source = model if isinstance(model, (bytes, Path)) else model.SerializeToString()
    network = Network(load_model(source))
    network.trace_whole({info.name: info.shape for info in network.model.inputs}, {})  # type: ignore[misc]


def refused(model: Any, words: str) -> None:
    start = time.process_time()  # a busy machine does not add to it
    with pytest.raises((dmlvk.ModelError, dmlvk.UnsupportedNodeError), match=words):
        load(model)
    assert time.process_time() - start < 5


# -- the file


@pytest.mark.parametrize("length", [1, 2, 20, 100, 150, 200])
def test_truncated(length: int, make_model: Callable[..., onnx.ModelProto]) -> None:
    constants = {"w": np.ones((4, 3, 3, 3), f32)}
    data = make_model(node("Conv", ["x", "w"], ["y"]), IMAGE, constants=constants).SerializeToString()
    with pytest.raises(dmlvk.ModelError):
        load(data[:length])


def test_graphs_in_graphs(make_model: Callable[..., onnx.ModelProto]) -> None:
    """Deeper than a file can be read: as bytes, and as a message that was never bytes."""
    data = b""
    for number in (7, *([6, 5, 1] * 400)):  # graph; attribute's g, node's attribute, graph's node
        size, prefix = len(data), bytearray([number << 3 | 2])
        while size > 127:
            prefix.append(size & 127 | 128)
            size >>= 7
        data = bytes([*prefix, size]) + data
    refused(data, "no ONNX model|broken|no graph")
    model = make_model(node("If", ["x"], ["y"]), {"x": (np.bool_, ())})
    graph = model.graph
    for _ in range(120):
        attribute = graph.node[0].attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        attribute.g.node.add(op_type="If", input=["x"], output=["z"])
        graph = attribute.g
    with pytest.raises(dmlvk.ModelError, match="broken"):
        load_model(model)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])], "sorted"),
        ([node("Add", ["x", "y"], ["y"])], "sorted"),
        ([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], "'y'"),
        ([node("Relu", ["x"], ["x"]), node("Neg", ["x"], ["y"])], "'x'"),
        ([node("Relu", ["nowhere"], ["y"])], "nowhere"),
        ([node("Relu", ["x"], ["z"])], "'y'"),
        ([node("Relu", [], ["y"])], "input size 0"),
        ([node("Relu", ["x"], ["y"], alpha=1.0)], "alpha"),
        ([node("Softmax", ["x"], ["y"], axis=1.5)], "attribute type"),
        ([node("Softmax", ["x"], ["y"], axis=7)], "axis"),
        ([node("Transpose", ["x"], ["y"], perm=[0, 0])], "perm"),
        ([node("Einsum", ["x"], ["y"], equation="ij..jk")], "equation|ij..jk"),
        ([node("Concat", ["x"], ["y"], axis=2**40)], "axis"),
        ([node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], strides=[0, 1])], "AveragePool"),
        ([node("DepthToSpace", ["x"], ["y"], blocksize=0)], "DepthToSpace"),
        ([node("Split", ["x"], ["y", "z"], num_outputs=2**31)], "num_outputs"),
    ],
)
def test_broken_graphs(nodes: list[onnx.NodeProto], words: str, make_model: Callable[..., onnx.ModelProto]) -> None:
    refused(make_model(nodes, X, opset=18), words)


def test_text_that_is_no_text(make_model: Callable[..., onnx.ModelProto]) -> None:
    model = make_model(node("Gelu", ["x"], ["y"], approximate="none"), X, opset=20)
    model.graph.node[0].attribute[0].s = b"\xff\xfe"
    refused(model, "UTF-8")


def test_names_in_models_past_the_checker(
    make_model: Callable[..., onnx.ModelProto], monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnx's checker is not asked about models of more than 2 GiB."""
    monkeypatch.setattr(onnx.checker, "MAXIMUM_PROTOBUF", 10)
    refused(make_model(node("Add", ["x", "nowhere"], ["y"]), X), "reads 'nowhere' before it is made")
    refused(make_model([node("Neg", ["x"], ["y"]), node("Relu", ["x"], ["y"])], X), "'y' is made by node 'y' .Neg. and made")
    refused(make_model(node("Relu", ["x"], ["z"]), X), "nothing makes its output 'y'")
    model = make_model(node("Add", ["x", "c"], ["y"]), X, constants={"c": np.ones(3, f32)})
    model.graph.initializer.append(model.graph.initializer[0])
    refused(model, "'c' is an initializer and an initializer")


def test_types_that_an_operator_does_not_take(make_model: Callable[..., onnx.ModelProto]) -> None:
    refused(
        make_model(node("ReduceSum", ["x", "a"], ["y"]), X, constants={"a": np.ones(1, f32)}),
        r"input 1, 'a', is a tensor\(float\); axes takes tensor\(int64\)",
    )
    refused(
        make_model(node("Add", ["x", "a"], ["y"]), X, constants={"a": np.ones(1, i64)}),
        r"input 1, 'a', is a tensor\(int64\), but an input that must have the same type is a tensor\(float\)",
    )


def _functions(calls: dict[str, list[str]], make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """A model that calls the first of some functions, each of which calls others in a row."""
    model = make_model(node(next(iter(calls)), ["x"], ["y"], domain="own"), X)
    model.opset_import.append(helper.make_opsetid("own", 1))
    for name, others in calls.items():
        names = ["a", *(f"t{index}" for index in range(1, len(others))), "b"]
        nodes = [
            node(other, [source], [target], domain="" if other == "Relu" else "own")
            for other, source, target in zip(others, names, names[1:], strict=False)
        ]
        model.functions.append(helper.make_function("own", name, ["a"], ["b"], nodes, list(model.opset_import)))
    return model


def test_functions(make_model: Callable[..., onnx.ModelProto]) -> None:
    """Native code would follow functions that call each other until the stack or the memory ends."""
    refused(_functions({"f": ["f"]}, make_model), "'f' calls itself")
    refused(_functions({"f": ["Relu", "g"], "g": ["f"]}, make_model), "calls itself")
    doubling = {f"f{index}": [f"f{index + 1}"] * 2 for index in range(30)}
    refused(
        _functions({**doubling, "f30": ["Relu"]}, make_model),
        "stand for more nodes than SessionOptions.max_function_nodes allows, 65536",
    )
    load(_functions({"f": ["g", "Relu", "g"], "g": ["Relu"]}, make_model))


# -- constants and sizes


def _tensor(sizes: list[int], data: bytes, data_type: int = TensorProto.FLOAT) -> onnx.TensorProto:
    return TensorProto(name="c", dims=sizes, raw_data=data, data_type=data_type)


@pytest.mark.parametrize(
    "constant",
    [
        _tensor([-1, 3], bytes(24)),
        _tensor([2**62, 4], bytes(24)),
        _tensor([2**40], bytes(24)),
        _tensor([0, 2**62, 2**62], b""),
        _tensor([2, 3], bytes(20)),
        _tensor([3], bytes(12), 99),
        _tensor([2**30], bytes(1), TensorProto.INT4),
        _tensor([2], bytes(2), TensorProto.BFLOAT16),
        helper.make_tensor("c", TensorProto.STRING, [3], ["a", "b", "c"]),
    ],
    ids=lambda tensor: f"{list(tensor.dims)} of type {tensor.data_type}",
)
def test_constants(constant: onnx.TensorProto, make_model: Callable[..., onnx.ModelProto]) -> None:
    model = make_model(node("Add", ["x", "c"], ["y"]), X, opset=21)
    model.graph.initializer.append(constant)
    refused(model, "'c'|name: c")


ONE, ROW, COLUMN = np.ones(1024, f32), np.ones((1, 10**5), f32), np.ones((10**5, 1), f32)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("ConstantOfShape", ["s"], ["c"])], {"s": np.array([2**20, 2**20], i64)}),
        ([node("Expand", ["o", "s"], ["c"])], {"o": ONE[:1], "s": np.array([2**20, 2**20], i64)}),
        ([node("Range", ["a", "b", "d"], ["c"])], {"a": f32(0), "b": f32(1e13), "d": f32(1)}),
        ([node("Add", ["r", "k"], ["c"])], {"r": ROW, "k": COLUMN}),
        ([node("MatMul", ["k", "r"], ["c"])], {"r": ROW, "k": COLUMN}),
        ([node("Einsum", ["k", "r"], ["c"], equation="ai,ib->ab")], {"r": ROW, "k": COLUMN}),
        ([node("Pad", ["o", "p"], ["c"])], {"o": ONE, "p": np.array([0, 2**50], i64)}),
        ([node("Tile", [f"t{i}", "s"], [f"t{i + 1}"]) for i in range(40)], {"t0": ONE, "s": np.array([4], i64)}),
        ([node("Concat", [f"t{i}"] * 16, [f"t{i + 1}"], axis=0) for i in range(9)], {"t0": ONE}),
        ([node("Tile", ["x", "s"], ["c"])], {"s": np.array([2**40, 2**40], i64)}),
        ([node("Concat", [f"t{i}" if i else "x"] * 16, [f"t{i + 1}"], axis=0) for i in range(14)], {}),
    ],
    ids=lambda value: value[0].op_type if isinstance(value, list) else "",
)
def test_small_files_of_large_models(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], make_model: Callable[..., onnx.ModelProto]
) -> None:
    nodes = [*nodes, node("ReduceSum", [nodes[-1].output[0]], ["sum"], keepdims=0), node("Add", ["x", "sum"], ["y"])]
    constants = {name: np.asarray(array) for name, array in constants.items()}
    refused(make_model(nodes, X, constants=constants), "elements|at most 2")


def test_what_is_made_for_one_plan_does_not_count_for_the_next(
    make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    nodes = [
        node("Range", ["zero", "n", "one"], ["r"]),
        node("Gather", ["r", "i"], ["g"]),
        node("Expand", ["x", "g"], ["y"]),
    ]
    constants = {"zero": np.array(0, i64), "one": np.array(1, i64), "i": np.array([2], i64)}
    model = make_model(nodes, {"x": (f32, (1,)), "n": (i64, ())}, constants=constants)
    session = make_session(
        model, options=SessionOptions(max_host_elements=100)
    )  # two of the plans below are too much together
    for count in (60, 5, 61):
        assert session.run(None, {"x": np.ones(1, f32), "n": np.array(count, i64)})[0].shape == (2,)
    with pytest.raises(dmlvk.UnsupportedNodeError, match="elements before the run"):
        session.run(None, {"x": np.ones(1, f32), "n": np.array(2**50, i64)})
    assert session.run(None, {"x": np.ones(1, f32), "n": np.array(5, i64)})[0].shape == (2,)


@pytest.mark.parametrize("sizes", [(2**31, 2**31), (2**62, 2**62), (1,) * 40])
def test_sizes_past_any_device(sizes: tuple[int, ...], make_model: Callable[..., onnx.ModelProto]) -> None:
    refused(make_model(node("Relu", ["x"], ["y"]), {"x": (f32, sizes)}), "Relu")


# -- limits: what a small file may cost, and how to raise it


def _body(op_type: str, own: str, **attributes: Any) -> onnx.GraphProto:
    """A body that goes on, with a node that makes the next state of the state; its names begin with ``own``."""
    handed = [("round", TensorProto.INT64, []), ("goes_on", TensorProto.BOOL, []), ("state", TensorProto.FLOAT, None)]
    made = [("still", TensorProto.BOOL, []), ("next", TensorProto.FLOAT, None)]
    infos = ([helper.make_tensor_value_info(own + name, *info) for name, *info in part] for part in (handed, made))
    reads = ["many", "true", f"{own}state"] if attributes else [f"{own}state"]
    nodes = [node("Identity", [f"{own}goes_on"], [f"{own}still"]), node(op_type, reads, [f"{own}next"], **attributes)]
    return helper.make_graph(nodes, f"{own}body", *infos)


ENDLESS = [node("Loop", ["many", "true", "x"], ["y"], body=_body("Loop", "outer_", body=_body("Neg", "inner_")))]
LONG = [node("Expand", ["one", "count"], ["long"])]
SCAN = helper.make_graph(
    [node("Add", ["sum", "part"], ["next"])],
    "body",
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in ("sum", "part")],
    [helper.make_tensor_value_info("next", TensorProto.FLOAT, [])],
)
PIECES = [*LONG, node("SplitToSequence", ["long"], ["pieces"]), node("ConcatFromSequence", ["pieces"], ["y"], axis=0)]
GROWS = helper.make_graph(
    [node("Identity", ["goes_on"], ["still"]), node("SequenceInsert", ["state", "one"], ["next"])],
    "body",
    [
        helper.make_tensor_value_info("round", TensorProto.INT64, []),
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
        helper.make_tensor_sequence_value_info("state", TensorProto.FLOAT, None),
    ],
    [
        helper.make_tensor_value_info("still", TensorProto.BOOL, []),
        helper.make_tensor_sequence_value_info("next", TensorProto.FLOAT, None),
    ],
)
GROWING = [
    *(node("SequenceEmpty", [], ["none"]), node("Loop", ["", "true", "none"], ["grown"], body=GROWS)),
    node("ConcatFromSequence", ["grown"], ["y"], axis=0),
]


@pytest.mark.parametrize(
    ("nodes", "limit", "options"),
    [
        (ENDLESS, "SessionOptions.max_loop_rounds", {"max_loop_rounds": 30}),
        (GROWING, "SessionOptions.max_sequence_length", {"max_sequence_length": 30}),
        (PIECES, "SessionOptions.max_sequence_length", {}),
        ([*LONG, node("Scan", ["zero", "long"], ["y"], body=SCAN, num_scan_inputs=1)], "max_sequence_length", {}),
        ([node("MelWeightMatrix", ["bands", "bins", "rate", "zero", "one"], ["y"])], "SessionOptions.max_host_elements", {}),
        ([node("ConstantOfShape", ["huge"], ["y"])], "SessionOptions.max_host_elements", {}),
    ],
    ids=lambda value: value[-1].op_type if isinstance(value, list) else None,
)
def test_a_small_file_costs_little(
    nodes: list[onnx.NodeProto],
    limit: str,
    options: dict[str, int],
    make_model: Callable[..., onnx.ModelProto],
    make_session: Callable[..., Any],
) -> None:
    """The error names the limit that it takes to go on."""
    constants = {
        "true": np.array(True),
        "many": np.array(2**60, i64),
        "one": f32(1),
        "zero": f32(0),
        "count": np.array([2**22], i64),
        "shape": np.array([1, 1, 2, 3], i64),
        "wide": np.array([1, 1, 2**28, 3], i64),
        "huge": np.array([2**36], i64),
        "bands": np.array(2**16, i64),
        "bins": np.array(2**18, i64),
        "rate": np.array(16000, i64),
    }
    read = {name for item in nodes for name in item.input} | {"true", "one"} | ({"three"} if nodes[0] is ENDLESS else set())
    model = make_model(nodes, X, constants={name: np.asarray(value) for name, value in constants.items() if name in read})
    with pytest.raises(dmlvk.UnsupportedNodeError, match=f"{limit}.*allow"):
        make_session(model, options=SessionOptions(**options)).run(None, {"x": np.ones((2, 3), f32)})


def test_limits_can_be_raised(make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]) -> None:
    model = make_model(
        [node("Expand", ["one", "count"], ["long"]), *PIECES[1:]], {"count": (i64, (1,))}, constants={"one": f32(1)}
    )
    for length, fits in ((30, True), (31, False)):
        session = make_session(model, options=SessionOptions(max_sequence_length=30))
        if fits:
            assert session.run(None, {"count": np.array([length], i64)})[0].shape == (length,)
        else:
            with pytest.raises(dmlvk.UnsupportedNodeError, match="31 tensors one by one"):
                session.run(None, {"count": np.array([length], i64)})
    for name in ("max_loop_rounds", "max_sequence_length", "max_host_elements"):
        for wrong in (0, -1, 2.5, "many"):
            with pytest.raises(dmlvk.InvalidArgumentError, match=f"{name}: must be a whole number of at least 1"):
                make_session(model, options=SessionOptions(**{name: wrong}))


def test_memory_and_launches_of_a_device(device: dmlvk.Device, make_model: Callable[..., onnx.ModelProto]) -> None:
    """A limit is met before anything is allocated, and the device goes on."""
    small = dmlvk.Device(device.info, max_memory_bytes=1 << 20, max_launches=8)
    assert small.reopened().max_memory_bytes == 1 << 20
    assert small.reopened().capabilities.max_launches == 8
    live = small.memory()["live"]
    with pytest.raises(dmlvk.OutOfDeviceMemoryError, match=r"Device\(max_memory_bytes=\.\.\.\) allows"):
        small.create_buffer(1 << 21)
    model = make_model([node("Expand", ["x", "count"], ["y"])], {"x": (f32, (1,)), "count": (i64, (1,))})
    session = InferenceSession(model.SerializeToString(), small)
    for count in (1 << 20, 7):
        feeds = {"x": np.ones(1, f32), "count": np.array([count], i64)}
        if count > 100:
            with pytest.raises(dmlvk.OutOfDeviceMemoryError):
                session.run(None, feeds)
            assert small.memory()["live"] - live < 1 << 20
        else:
            assert session.run(None, feeds)[0].shape == (count,)
    cell = {"weight_tensor": np.ones((1, 1, 1, 1), f32), "recurrence_tensor": np.ones((1, 1, 1, 1), f32)}
    activations = (ops.ActivationTanh(),)
    for steps in (8, 2**19 + 1):  # where steps are many, a launch takes up to 2^16 of them
        call = functools.partial(
            dmlvk.eager.rnn, np.ones((1, steps, 1, 1), f32), **cell, activation_descs=activations, direction=0,
            outputs=("output_single_tensor",), output_sizes=((1, 1, 1, 1),), device=small,
        )  # fmt: skip
        if steps > 8:
            with pytest.raises(
                dmlvk.UnsupportedError, match=r"524289 steps take \d+ launches; Device\(max_launches=\.\.\.\) allows 8"
            ):
                call()
        else:
            assert call().shape == (1, 1, 1, 1)
    for name in ("max_memory_bytes", "max_launches"):
        with pytest.raises(dmlvk.InvalidArgumentError, match=f"{name}: must be an integer of at least 1, or None; got 0"):
            dmlvk.Device(device.info, **{name: 0})


# -- external data


@pytest.fixture
def with_external(tmp_path: Path, make_model: Callable[..., onnx.ModelProto]) -> Callable[..., Path]:
    """A function from the entries that say where the constant is, 12 bytes, to the path of a model."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_bytes(np.arange(4, dtype=f32).tobytes())
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inner").symlink_to(tmp_path, target_is_directory=True)
    (folder / "second name").hardlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")

    def make(**entries: str) -> Path:
        model = make_model(node("Add", ["x", "c"], ["y"]), X)
        constant = model.graph.initializer.add(name="c", dims=[3], data_type=TensorProto.FLOAT)
        constant.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            constant.external_data.add(key=key, value=value)
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return make


def test_external_data(with_external: Callable[..., Path], make_session: Callable[..., Any]) -> None:
    session = make_session(with_external(location="weights", offset="4", length="12"))
    np.testing.assert_array_equal(session.run(None, {"x": np.zeros((2, 3), f32)})[0], [[1, 2, 3]] * 2)
    with pytest.raises(dmlvk.ModelError, match="in another file"):
        make_session(with_external(location="weights", length="12").read_bytes())


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "location ''"),
        ({"location": "../secret"}, "no path below"),
        ({"location": "a/../../secret"}, "no path below"),
        ({"location": "..\\secret"}, "no path below"),
        ({"location": "/etc/hostname"}, "no path below"),
        ({"location": "C:\\weights"}, "no path below"),
        ({"location": "/dev/zero"}, "no path below"),
        ({"location": "link"}, "leads out"),
        ({"location": "inner/secret"}, "leads out"),
        ({"location": "second name"}, "hard link"),
        ({"location": "pipe"}, "no file"),
        ({"location": "missing"}, "no file"),
        ({"location": "."}, "no file"),
        ({"location": "wei\0ghts"}, "location"),
        ({"location": "w" * 5000}, "cannot be read"),
        ({"location": "weights", "offset": "-4"}, "from -4"),
        ({"location": "weights", "offset": "8", "length": "12"}, "which has 16"),
        ({"location": "weights", "length": str(2**62)}, "which has 16"),
        ({"location": "weights", "length": "-1"}, "-1 bytes"),
        ({"location": "weights", "length": "many"}, "no number"),
        ({"location": "weights"}, "initializer 'c'"),
    ],
)
def test_external_data_that_is_refused(entries: dict[str, str], words: str, with_external: Callable[..., Path]) -> None:
    refused(with_external(**entries), words)


def test_external_data_read_many_times(with_external: Callable[..., Path]) -> None:
    path = with_external(location="weights", length="12")
    model = onnx.load(path, load_external_data=False)
    for index in range(20):
        constant = model.graph.initializer.add()
        constant.CopyFrom(model.graph.initializer[0])
        constant.name = f"c{index}"
    path.write_bytes(model.SerializeToString())
    refused(path, "read twice")


# -- feeds


class _Broken:
    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        raise RuntimeError("no numbers here")


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, "missing: 'x'"),
        ({"x": np.ones((2, 3), f32), "q": 1}, "unknown: 'q'"),
        ({"x": np.ones((2, 3), f32), 5: 1}, "unknown: 5"),
        ({"x": np.ones((2, 3))}, "got float64"),
        ({"x": np.ones((2, 3), ">f4")}, "got >f4"),
        ({"x": np.ones((2, 3), object)}, "got object"),
        ({"x": [["a"] * 3] * 2}, "got <U1"),
        ({"x": None}, "got object"),
        ({"x": [[1.0], [1.0, 2.0]]}, "must be fed as an array"),
        ({"x": _Broken()}, "no numbers here"),
        ({"x": np.ones((2, 3, 1), f32)}, r"got \[2, 3, 1\]"),
        ({"x": np.ones((3, 2), f32)}, r"got \[3, 2\]"),
        ({"x": np.float32(1)}, r"got \[\]"),
    ],
)
def test_feeds(
    feeds: dict[Any, Any], words: str, make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    session = make_session(make_model(node("Relu", ["x"], ["y"]), X))
    with pytest.raises(dmlvk.ModelError, match=words):
        session.run(None, feeds)
    np.testing.assert_array_equal(session.run(None, {"x": -np.ones((2, 3), f32)})[0], np.zeros((2, 3), f32))


def test_sources_that_are_no_model(make_session: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(dmlvk.InvalidArgumentError, match="path, bytes or a ModelProto"):
        make_session(5)
    for path in (tmp_path, "a\0b"):
        with pytest.raises(dmlvk.ModelError, match="cannot be read"):
            make_session(path)
