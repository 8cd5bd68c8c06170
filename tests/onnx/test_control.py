"""If and Scan: a trace follows the branch that is taken and repeats the body, so that all arithmetic is on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import SessionOptions

f32, i64 = np.float32, np.int64


def _tensor(name: str, dtype: Any = f32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)


def _graph(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    inputs: Sequence[str] = (),
    constants: dict[str, np.ndarray] | None = None,
    dtype: Any = f32,
) -> onnx.GraphProto:
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(
        list(nodes), "body", [_tensor(name) for name in inputs], [_tensor(name, dtype) for name in outputs], initializers
    )


def _if(condition: str, then: onnx.GraphProto, other: onnx.GraphProto, outputs: Sequence[str] = ("y",)) -> onnx.NodeProto:
    return helper.make_node("If", [condition], list(outputs), "choice", then_branch=then, else_branch=other)


def _numbers(*sizes: int) -> np.ndarray:
    return np.random.default_rng(len(sizes)).standard_normal(sizes).astype(f32)


@pytest.fixture
def agrees(
    make_session: Callable[..., Any], reference: Callable[..., list[np.ndarray]], assert_close: Callable[..., None]
) -> Callable[..., Any]:
    """Runs a model on each set of feeds, with all passes and with none, and compares with onnxruntime."""

    def check(model: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> Any:
        sessions = [make_session(model), make_session(model, options=SessionOptions(without_passes=("all",)))]
        for given in feeds:
            wanted = reference(model, given, "onnxruntime")
            for session in sessions:
                for mine, theirs in zip(session.run(None, given), wanted, strict=True):
                    assert_close(mine, theirs)
        return sessions[0]

    return check


def _choice_by_shape() -> list[onnx.NodeProto]:
    return [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Equal", ["rows", "one"], ["single"]),
    ]


def test_branch_by_shape(make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]) -> None:
    """Both branches make values of the same names and read others from outside."""
    then = _graph(
        [helper.make_node("Mul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y1"])],
        ["y1"],
        constants={"w": _numbers(4)},
    )
    added = [helper.make_node("Add", ["s", "w"], ["t"]), helper.make_node("Transpose", ["t"], ["y"])]
    other = _graph(added, ["y"], constants={"w": np.array([5, 6, 7, 8], f32)})
    model = make_model(
        [*_choice_by_shape(), helper.make_node("Sigmoid", ["x"], ["s"]), _if("single", then, other)],
        {"x": (f32, (None, 4))},
        constants={"zero": np.array(0, i64), "one": np.array(1, i64)},
    )
    session = agrees(model, {"x": _numbers(1, 4)}, {"x": _numbers(3, 4)}, {"x": _numbers(1, 4)})
    report = session.report()
    assert [(node.name, node.reason) for node in report.host_nodes if node.op_type == "If"] == [
        ("choice", "control flow, followed when planning")
    ]
    assert report.dispatches == 2
    assert [node.op_type for node in report.gpu_nodes] == ["Mul", "Relu"], "the other branch is not in the plan"


def test_branch_by_a_fed_value(make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]) -> None:
    """One If inside another, whose branches read what the outer branch makes; each value of the condition has its plan."""
    inner = _if(
        "b",
        _graph([helper.make_node("Neg", ["t"], ["y"])], ["y"]),
        _graph([helper.make_node("Add", ["t", "c"], ["y"])], ["y"], constants={"c": _numbers(3)}),
        ["z"],
    )
    then = _graph([helper.make_node("Exp", ["x"], ["t"]), inner], ["z"])
    other = _graph([helper.make_node("Tanh", ["x"], ["t"])], ["t"])
    model = make_model(_if("a", then, other), {"a": (np.bool_, ()), "b": (np.bool_, ()), "x": (f32, (2, 3))})
    x = _numbers(2, 3)
    session = agrees(model, *({"a": np.array(a), "b": np.array(b), "x": x} for a in (True, False) for b in (True, False)))
    assert session.report().plans == 4


@pytest.mark.parametrize("rows", [1, 2])
def test_what_is_known_before_the_run_stays_known(
    rows: int, make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]
) -> None:
    """A shape that comes out of an If, and a Range inside one that only the host reads."""
    branches = [
        _graph(
            [helper.make_node("Concat", [*order, "end"], ["to"], axis=0)],
            ["to"],
            constants={"end": np.array([1], i64)},
            dtype=i64,
        )
        for order in (("two", "rest"), ("rest", "two"))
    ]
    model = make_model(
        [*_choice_by_shape(), _if("single", *branches, outputs=["to"]), helper.make_node("Reshape", ["x", "to"], ["y"])],
        {"x": (f32, (None, 4))},
        constants={
            "zero": np.array(0, i64),
            "one": np.array(1, i64),
            "two": np.array([2], i64),
            "rest": np.array([-1], i64),
        },
    )
    agrees(model, {"x": _numbers(rows, 4)})


def test_a_computed_condition_is_refused(
    make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    branch = _graph([helper.make_node("Neg", ["x"], ["z"])], ["z"])
    model = make_model(
        [
            helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
            helper.make_node("Greater", ["most", "zero"], ["c"]),
            _if("c", branch, branch),
        ],
        {"x": (f32, (4,))},
        constants={"zero": np.array(0, f32)},
    )
    with pytest.raises(dmlvk.UnsupportedNodeError, match="its condition, 'c', must be known before the run"):
        make_session(model)


def test_an_operator_without_converter_in_a_branch_is_refused(
    make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    good = _graph([helper.make_node("Neg", ["x"], ["z"])], ["z"])
    bad = _graph([helper.make_node("Unknown", ["x"], ["z"], domain="elsewhere")], ["z"])
    model = make_model(_if("a", good, bad), {"a": (np.bool_, ()), "x": (f32, (4,))})
    model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    with pytest.raises(dmlvk.UnsupportedNodeError, match="elsewhere::Unknown"):
        make_session(model)


def _scan(body: onnx.GraphProto, inputs: Sequence[str], outputs: Sequence[str], **settings: Any) -> onnx.NodeProto:
    return helper.make_node("Scan", list(inputs), list(outputs), "scan", body=body, **settings)


RUNNING = _graph(
    [
        helper.make_node("Mul", ["a", "b"], ["p"]),
        helper.make_node("Add", ["state", "p"], ["next"]),
        helper.make_node("Sub", ["next", "w"], ["seen"]),
    ],
    ["next", "seen"],
    ["state", "a", "b"],
)


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("backwards", [0, 1])
def test_scan(length: int, backwards: int, make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]) -> None:
    """A running sum of products of two tensors scanned along different axes and in different directions."""
    settings = {
        "num_scan_inputs": 2,
        "scan_input_axes": [0, 1],
        "scan_input_directions": [0, 1 - backwards],
        "scan_output_axes": [-1],
        "scan_output_directions": [backwards],
    }
    model = make_model(
        _scan(RUNNING, ["s", "x", "z"], ["last", "y"], **settings),
        {"s": (f32, (3,)), "x": (f32, (None, 3)), "z": (f32, (3, None))},
        ["last", "y"],
        {"w": _numbers(3)},
    )
    agrees(model, {"s": _numbers(3), "x": _numbers(length, 3), "z": _numbers(3, length)})


def test_scan_refuses_what_does_not_fit(
    make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    model = make_model(
        _scan(RUNNING, ["s", "x", "z"], ["last", "y"], num_scan_inputs=2),
        {"s": (f32, (3,)), "x": (f32, (None, 3)), "z": (f32, (None, 3))},
        ["last", "y"],
        {"w": _numbers(3)},
    )
    session = make_session(model)
    with pytest.raises(dmlvk.ModelError, match="scanned inputs of 2, 4 elements"):
        session.run(None, {"s": _numbers(3), "x": _numbers(4, 3), "z": _numbers(2, 3)})
    with pytest.raises(dmlvk.ModelError, match="a scan of no elements"):
        session.run(None, {"s": _numbers(3), "x": _numbers(0, 3), "z": _numbers(0, 3)})
    with pytest.raises(dmlvk.UnsupportedNodeError, match="30000 elements are too many for a body of 3 nodes"):
        session.run(None, {"s": _numbers(3), "x": _numbers(30000, 3), "z": _numbers(30000, 3)})
    assert len(session.run(["last"], {"s": _numbers(3), "x": _numbers(2, 3), "z": _numbers(2, 3)})) == 1
