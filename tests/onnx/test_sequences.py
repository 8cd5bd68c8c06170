"""Sequences and optional values: the host keeps the lists, and their tensors stay on the device; against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk.onnx.sequences import _REASON

f32, i64 = np.float32, np.int64
FLOAT = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
FLOATS = helper.make_sequence_type_proto(FLOAT)
Feeds = Mapping[str, Any]


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, onnx.TypeProto],
    outputs: Mapping[str, onnx.TypeProto],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_value_info(name, proto) for name, proto in inputs.items()],
        [helper.make_value_info(name, proto) for name, proto in outputs.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _numbers(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(f32)


@pytest.fixture
def agrees(make_session: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a model and compares with onnxruntime, list by list and bit by bit."""

    def check(model: onnx.ModelProto, feeds: Feeds) -> Any:
        session = make_session(model)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        other = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for mine, theirs in zip(session.run(None, feeds), other.run(None, dict(feeds)), strict=True):
            assert isinstance(mine, list) == isinstance(theirs, list)
            pairs = zip(mine, theirs, strict=True) if isinstance(mine, list) else [(mine, theirs)]
            for found, wanted in pairs:
                assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
                np.testing.assert_array_equal(found, wanted)
        return session

    return check


NODE = helper.make_node


@pytest.mark.parametrize(
    ("axis", "sizes", "keep"),
    [(0, None, 0), (0, None, 1), (0, [1, 3], 1), (0, 3, 1), (1, [2, 0, 4], 1), (-1, 4, 1), (1, None, 0), (1, None, 1)],
    ids=str,
)
def test_split_and_join(axis: int, sizes: Any, keep: int, agrees: Callable[..., Any]) -> None:
    """What is computed is split along any axis, and joined again along any."""
    inputs = ["p"] if sizes is None else ["p", "sizes"]
    nodes = [
        NODE("Neg", ["x"], ["p"]),
        NODE("SplitToSequence", inputs, ["parts"], axis=axis, keepdims=keep),
        NODE("SequenceAt", ["parts", "last"], ["part"]),
        NODE("Abs", ["part"], ["z"]),
        NODE("SequenceInsert", ["parts", "z"], ["more"]),
        NODE("ConcatFromSequence", ["more"], ["y"], axis=axis if keep else 0),
    ]
    constants = {"last": np.array(-1), **({} if sizes is None else {"sizes": np.array(sizes)})}
    model = _model(nodes, {"x": helper.make_tensor_type_proto(1, [4, 6])}, {"y": FLOAT, "parts": FLOATS}, constants)
    report = agrees(model, {"x": _numbers(4, 6)}).report()
    driven = {node.op_type for node in report.host_nodes if node.reason == _REASON}
    assert {"SequenceAt", "SequenceInsert"} <= driven
    assert {"Neg", "Abs"} <= {node.op_type for node in report.gpu_nodes}
    assert (report.dispatches == 2) == (axis == 0), "other axes take copies by kernels"


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stack(axis: int, agrees: Callable[..., Any]) -> None:
    nodes = [NODE("Exp", ["a"], ["e"]), NODE("SequenceConstruct", ["e", "a", "b"], ["s"])]
    nodes.append(NODE("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=1))
    model = _model(nodes, dict.fromkeys("ab", FLOAT), {"y": FLOAT})
    a = np.zeros((2, 3), f32)  # of which the exponential is exact
    agrees(model, {"a": a, "b": _numbers(2, 3)})


def test_places(agrees: Callable[..., Any]) -> None:
    """Counted from both ends; the list that a node changes is another one."""
    nodes = [
        NODE("SequenceInsert", ["s", "x", "minus_two"], ["more"]),
        NODE("SequenceInsert", ["more", "x", "three"], ["most"]),
        NODE("SequenceErase", ["most", "minus_two"], ["less"]),
        NODE("SequenceErase", ["less"], ["least"]),
        NODE("SequenceErase", ["most", "minus_one"], ["fewer"]),
        NODE("SequenceLength", ["most"], ["n"]),
    ]
    constants = {"minus_one": np.array(-1), "minus_two": np.array(-2), "three": np.array(3, np.int32)}
    outputs = {"s_out": FLOATS, **dict.fromkeys(("more", "most", "less", "least", "fewer"), FLOATS)}
    outputs["n"] = helper.make_tensor_type_proto(TensorProto.INT64, [])
    nodes.append(NODE("Identity", ["s"], ["s_out"]))
    model = _model(nodes, {"s": FLOATS, "x": FLOAT}, outputs, constants)
    agrees(model, {"s": [_numbers(2), _numbers(3, 1)], "x": _numbers(4)})


def test_types_and_arrays(make_session: Callable[..., Any], device: dmlvk.Device) -> None:
    """What inputs and outputs are, as onnxruntime says it; tensors of a sequence may be on the device."""
    optional = helper.make_optional_type_proto(FLOATS)
    nodes = [
        NODE("OptionalHasElement", ["o"], ["has"]),
        NODE("SequenceLength", ["s"], ["n"]),
        NODE("Identity", ["o"], ["same"]),
        NODE("Identity", ["s"], ["copy"]),
    ]
    outputs = {"has": helper.make_tensor_type_proto(TensorProto.BOOL, []), "same": optional, "copy": FLOATS}
    model = _model(nodes, {"o": optional, "s": FLOATS}, {**outputs, "n": helper.make_tensor_type_proto(7, [])})
    session = make_session(model)
    assert [info.type for info in session.get_inputs()] == ["optional(seq(tensor(float)))", "seq(tensor(float))"]
    assert [info.type for info in session.get_outputs()[:3]] == [
        "tensor(bool)",
        "optional(seq(tensor(float)))",
        "seq(tensor(float))",
    ]
    assert session.get_inputs()[1].dtype == f32 and session.get_inputs()[1].shape is None
    x = _numbers(3, 4)
    strided = dmlvk.DeviceArray.from_numpy(x, device).T
    has, same, copy, n = session.run(None, {"o": None, "s": (x, strided)})
    assert (has.item(), same, n.item()) == (False, None, 2)
    np.testing.assert_array_equal(copy[0], x)
    np.testing.assert_array_equal(copy[1], x.T)
    has, same = session.run(["has", "same"], {"o": [x], "s": []})
    assert has.item() and len(same) == 1
    (n,) = session.run_with_device_arrays(["n"], {"o": None, "s": [x]})
    assert n.numpy().item() == 1
    with pytest.raises(
        dmlvk.UnsupportedError, match=r"'copy' is a seq\(tensor\(float\)\), and only tensors of numbers can be bound"
    ):
        session.run_with_device_arrays(["copy"], {"o": None, "s": [x]})
    with pytest.raises(
        dmlvk.ModelError, match=r"'s' is a seq\(tensor\(float\)\) and must be fed as a list or tuple of arrays; got ndarray"
    ):
        session.run(None, {"o": None, "s": x})
    with pytest.raises(dmlvk.ModelError, match=r"'s\[1\]' is a tensor\(float\).*float64"):
        session.run(None, {"o": None, "s": [x, x.astype(np.float64)]})
    with pytest.raises(dmlvk.ModelError, match=r"'s'.*got NoneType"):
        session.run(None, {"o": None, "s": None})
    binding = session.io_binding()
    with pytest.raises(dmlvk.UnsupportedError, match="'s' is a seq"):
        binding.bind_cpu_input("s", x)
    assert len(session.run(["copy"], {"o": None, "s": [x]})[0]) == 1, "it works after all that"


def test_map(agrees: Callable[..., Any]) -> None:
    """A body for each tensor of two sequences, of other sizes each, with a tensor from outside."""
    body = helper.make_graph(
        [NODE("Sub", ["a", "b"], ["d"]), NODE("Mul", ["d", "w"], ["m"]), NODE("Shape", ["m"], ["size"])],
        "body",
        [helper.make_value_info(name, FLOAT) for name in "ab"],
        [helper.make_value_info("m", FLOAT), helper.make_tensor_value_info("size", TensorProto.INT64, None)],
    )
    nodes = [NODE("Neg", ["x"], ["w"]), NODE("SequenceMap", ["s", "t"], ["y", "sizes"], "map", body=body)]
    sizes = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.INT64, None))
    model = _model(nodes, {"s": FLOATS, "t": FLOATS, "x": FLOAT}, {"y": FLOATS, "sizes": sizes})
    s, t = ([_numbers(n, 2) + shift for n in (1, 3, 3)] for shift in (0, 1))
    session = agrees(model, {"s": s, "t": t, "x": np.array([2, 0.5], f32)})
    assert session.report().plans == 3, "for what comes before, and for two sizes"
    assert session.run(None, {"s": [], "t": [], "x": np.array([2, 0.5], f32)}) == [[], []]
    with pytest.raises(dmlvk.ModelError, match=r"'map'.*must have as many tensors; got \[2, 3\]"):
        session.run(None, {"s": s[:2], "t": t, "x": np.array([2, 0.5], f32)})


def test_a_sequence_that_a_loop_makes(agrees: Callable[..., Any]) -> None:
    body = helper.make_graph(
        [NODE("Identity", ["before"], ["more"]), NODE("Add", ["v", "x"], ["w"]), NODE("SequenceInsert", ["s", "w"], ["t"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("before", TensorProto.BOOL, []),
            helper.make_value_info("s", FLOATS),
            helper.make_value_info("v", FLOAT),
        ],
        [
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            helper.make_value_info("t", FLOATS),
            helper.make_value_info("w", FLOAT),
        ],
    )
    nodes = [NODE("SequenceEmpty", [], ["none"]), NODE("Loop", ["m", "", "none", "x"], ["all", "last"], body=body)]
    model = _model(nodes, {"x": FLOAT}, {"all": FLOATS, "last": FLOAT}, {"m": np.array(4)})
    report = agrees(model, {"x": np.arange(3, dtype=f32)}).report()
    assert (report.plans, report.dispatches) == (1, 4)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (NODE("SequenceAt", ["s", "place"], ["y"], "n"), r"'n'.*from -1 to 0, .*1 tensors; got 2"),
        (NODE("SequenceErase", ["s", "place"], ["t"], "n"), r"'n'.*from -1 to 0, .*1 tensors; got 2"),
        (NODE("SequenceInsert", ["s", "x", "place"], ["t"], "n"), r"'n'.*from -1 to 1, .*1 tensors; got 2"),
        (NODE("ConcatFromSequence", ["s"], ["y"], "n", axis=5), r"'n'.*an axis must be from -1 to 0 .*; got 5"),
        (NODE("SplitToSequence", ["x", "place"], ["t"], "n", axis=3), r"'n'.*an axis must be from -1 to 0 .*; got 3"),
        (NODE("OptionalGetElement", ["o"], ["y"], "n"), r"'n'.*must have an element; got None"),
    ],
    ids=lambda case: getattr(case, "op_type", ""),
)
def test_what_does_not_fit(node: onnx.NodeProto, words: str, make_session: Callable[..., Any]) -> None:
    inputs = {"s": FLOATS, "x": FLOAT, "place": helper.make_tensor_type_proto(TensorProto.INT64, [])}
    inputs["o"] = helper.make_optional_type_proto(FLOAT)
    session = make_session(_model([node], inputs, {node.output[0]: FLOATS if node.output[0] == "t" else FLOAT}))
    feeds = {"s": [_numbers(4)], "x": _numbers(5), "place": np.array(2), "o": None}
    with pytest.raises(dmlvk.ModelError, match=words):
        session.run(None, feeds)
    with pytest.raises(dmlvk.ModelError, match=words):
        session.run(None, feeds)


def test_a_tensor_is_no_sequence(make_session: Callable[..., Any]) -> None:
    for node in (NODE("Add", ["s", "x"], ["y"], "n"), NODE("Reshape", ["x", "s"], ["y"], "n")):
        with pytest.raises(dmlvk.ModelError, match=r"'n'|'s'"):
            make_session(_model([node], {"s": FLOATS, "x": FLOAT}, {"y": FLOAT}))
    sparse = helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [3])
    with pytest.raises(dmlvk.UnsupportedError, match="'x' is a sparse_tensor_type"):
        make_session(_model([NODE("Identity", ["x"], ["y"])], {"x": sparse}, {"y": FLOAT}))
