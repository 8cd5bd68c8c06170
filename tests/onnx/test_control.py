"""If, Loop and Scan. A trace follows a branch that is known to be taken and repeats a body a known number of times; else the
host runs the bodies. All arithmetic is on the device."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import SessionOptions, control
from dmlvk.onnx.network import CONTROL

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
    used = {node.op_type for node in (*report.gpu_nodes, *report.removed_nodes)}
    assert {"Mul", "Relu"} <= used and not {"Add", "Transpose"} & used, "the other branch is not in the plan"


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


def _sign(x: str) -> list[onnx.NodeProto]:
    """c: whether the sum of x is positive."""
    return [
        helper.make_node("ReduceSum", [x], ["sum"], "sum", keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["c"], "compare"),
    ]


ZERO = {"zero": np.array(0, f32)}
DRIVEN = "control flow, run by the host around the device's graphs"


def test_branch_by_a_computed_value(make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]) -> None:
    """Both branches, one of which reads what is computed outside, and one inside the other; plans stay for each."""
    inner = _if(
        "d",
        _graph([helper.make_node("Exp", ["t"], ["z"])], ["z"]),
        _graph([helper.make_node("Mul", ["t", "w"], ["z"])], ["z"], constants={"w": _numbers(3)}),
        ["z"],
    )
    compare = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0), helper.make_node("Less", ["most", "one"], ["d"])]
    then = _graph([helper.make_node("Tanh", ["s"], ["t"]), *compare, inner], ["z"])
    other = _graph([helper.make_node("Neg", ["s"], ["t"])], ["t"])
    nodes = [helper.make_node("Add", ["x", "x"], ["s"]), *_sign("x"), _if("c", then, other, ["u"])]
    model = make_model(
        [*nodes, helper.make_node("Sub", ["u", "s"], ["y"])],
        {"x": (f32, (None, 3))},
        constants={**ZERO, "one": np.array(1, f32)},
    )
    feeds = [{"x": np.full((2, 3), number, f32)} for number in (0.5, 3, -2, 0.25)]
    session = agrees(model, *feeds)
    report = session.report()
    assert [(node.op_type, node.reason) for node in report.host_nodes] == [("If", DRIVEN)] * 2
    assert not {"Neg", "Mul"} & {node.op_type for node in report.gpu_nodes}, "the other branches did not run"
    plans = report.plans
    session.run(None, feeds[0])
    assert session.report().plans == plans


def test_what_only_the_host_reads_of_a_branch(
    make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]
) -> None:
    """A computed If says a shape; one branch is a value from outside, the other a constant."""
    then = _graph([helper.make_node("Identity", ["one"], ["a"])], ["a"], dtype=i64)
    other = _graph([helper.make_node("Shape", ["x"], ["b"])], ["b"], dtype=i64)
    model = make_model(
        [*_sign("x"), _if("c", then, other, ["to"]), helper.make_node("Reshape", ["x", "to"], ["y"])],
        {"x": (f32, (2, 3))},
        constants={**ZERO, "one": np.array([3, -1], i64)},
    )
    session = agrees(model, {"x": np.ones((2, 3), f32)}, {"x": -np.ones((2, 3), f32)})
    assert session.run(None, {"x": np.ones((2, 3), f32)})[0].shape == (3, 2)


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
    with pytest.raises(dmlvk.ModelError, match=r"same number of elements; got \[2, 4\]"):
        session.run(None, {"s": _numbers(3), "x": _numbers(4, 3), "z": _numbers(2, 3)})
    assert len(session.run(["last"], {"s": _numbers(3), "x": _numbers(2, 3), "z": _numbers(2, 3)})) == 1


def test_a_long_scan_is_run_by_the_host(
    make_model: Callable[..., onnx.ModelProto],
    agrees: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that would be too many operators for a plan; and shorter ones after it."""
    monkeypatch.setitem(control._LONGEST, "Scan", 30)
    settings = {"num_scan_inputs": 2, "scan_input_axes": [0, 1], "scan_output_axes": [1], "scan_output_directions": [1]}
    nodes = [helper.make_node("Neg", ["x"], ["n"]), _scan(RUNNING, ["s", "n", "z"], ["last", "y"], **settings)]
    inputs = {"s": (f32, (3,)), "x": (f32, (None, 3)), "z": (f32, (3, None))}
    model = make_model(nodes, inputs, ["last", "y"], {"w": _numbers(3)})
    lengths = (5, 20, 1)
    session = agrees(model, *({"s": _numbers(3), "x": _numbers(n, 3), "z": _numbers(3, n)} for n in lengths))
    assert DRIVEN in [node.reason for node in session.report().host_nodes]


# -- Loop


def _loop(body: onnx.GraphProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
    return helper.make_node("Loop", list(inputs), list(outputs), "loop", body=body)


def _body(
    nodes: Sequence[onnx.NodeProto], states: Sequence[tuple[str, Any]], outputs: Sequence[tuple[str, Any]], condition: str
) -> onnx.GraphProto:
    """A loop's body: i and before are the round and the condition that it is handed."""
    handed = [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [])]
    handed.append(helper.make_tensor_value_info("before", onnx.TensorProto.BOOL, []))
    made = [_tensor(condition, np.bool_), *(_tensor(name, dtype) for name, dtype in outputs)]
    return helper.make_graph(list(nodes), "body", [*handed, *(_tensor(name, dtype) for name, dtype in states)], made)


KEEPS = helper.make_node("Identity", ["before"], ["more"])


def test_collatz(make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]) -> None:
    """While a computed condition is true; every number on the way is an output. One plan serves all rounds."""
    nodes = [
        helper.make_node("Mod", ["n", "two"], ["odd"]),
        helper.make_node("Cast", ["odd"], ["is_odd"], to=onnx.TensorProto.BOOL),
        helper.make_node("Mul", ["n", "three"], ["tripled"]),
        helper.make_node("Add", ["tripled", "one"], ["up"]),
        helper.make_node("Div", ["n", "two"], ["down"]),
        helper.make_node("Where", ["is_odd", "up", "down"], ["next"]),
        helper.make_node("Greater", ["next", "one"], ["more"]),
        helper.make_node("Identity", ["next"], ["seen"]),
    ]
    body = _body(nodes, [("n", np.int32)], [("next", np.int32), ("seen", np.int32)], "more")
    constants = {name: np.array(value, np.int32) for name, value in (("one", 1), ("two", 2), ("three", 3))}
    starts = [helper.make_node("Identity", ["x"], ["n0"]), helper.make_node("Greater", ["n0", "one"], ["first"])]
    model = make_model(
        [*starts, _loop(body, ["", "first", "n0"], ["last", "path"])],
        {"x": (np.int32, ())},
        ["last", "path"],
        constants,
        output_types={"last": np.int32, "path": np.int32},
    )
    session = agrees(model, *({"x": np.array(x, np.int32)} for x in (6, 1, 27, 7)))
    assert session.run(["path"], {"x": np.array(6, np.int32)})[0].tolist() == [3, 10, 5, 16, 8, 4, 2, 1]
    report = session.report()
    assert report.plans == 2
    short = report.dispatches
    session.run(None, {"x": np.array(27, np.int32)})
    report = session.report()
    assert report.plans == 2, "one for the body, whatever the number"
    assert (report.dispatches - 1) * 8 == (short - 1) * 111, "the rounds of 6 and of 27, and what comes before them"
    assert [(node.op_type, node.reason) for node in report.host_nodes] == [("Loop", DRIVEN)]


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_a_state_that_grows(rounds: int, make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]) -> None:
    """Joined with what the round computes of values from outside; the trip count is fed, and the condition stays true."""
    nodes = [
        KEEPS,
        helper.make_node("Cast", ["i"], ["number"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "number"], ["row"]),
        helper.make_node("Concat", ["state", "row"], ["longer"], axis=0),
        helper.make_node("ReduceSum", ["longer"], ["total"], keepdims=0),
    ]
    body = _body(nodes, [("state", f32)], [("longer", f32), ("total", f32)], "more")
    del body.output[2].type.tensor_type.shape.dim[:]
    body.output[2].type.tensor_type.shape.SetInParent()
    model = make_model(_loop(body, ["m", "", "x"], ["y", "totals"]), {"m": (i64, ()), "x": (f32, (1, 3))}, ["y", "totals"])
    feeds = {"m": np.array(rounds), "x": _numbers(1, 3)}
    session = agrees(model, feeds)
    y, totals = session.run(None, feeds)
    assert (y.shape, totals.shape) == ((1 + rounds, 3), (rounds,))
    assert session.report().plans == rounds


@pytest.mark.parametrize("known", [True, False], ids=["known", "fed"])
def test_loops_in_loops(known: bool, make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]) -> None:
    """The inner one, of as many rounds as the outer one has made, reads values of both bodies around it; what it makes is
    stacked twice. Where the rounds are known, a plan has all of them."""
    steps = [
        helper.make_node("Identity", ["before2"], ["more2"]),
        helper.make_node("Add", ["inner", "half"], ["next"]),
        helper.make_node("Mul", ["next", "x"], ["seen"]),
    ]
    handed = [helper.make_tensor_value_info("j", onnx.TensorProto.INT64, [])]
    handed += [helper.make_tensor_value_info("before2", onnx.TensorProto.BOOL, []), _tensor("inner")]
    within = helper.make_graph(steps, "inner", handed, [_tensor("more2", np.bool_), _tensor("next"), _tensor("seen")])
    nodes = [
        KEEPS,
        helper.make_node("Mul", ["state", "w"], ["half"]),
        helper.make_node("Add", ["i", "one"], ["count"]),
        helper.make_node("Loop", ["count", "", "half"], ["sum", "all"], "inner", body=within),
        helper.make_node("ReduceMax", ["all"], ["most"], keepdims=0, axes=[0]),
    ]
    body = _body(nodes, [("state", f32)], [("sum", f32), ("most", f32)], "more")
    model = make_model(
        _loop(body, ["m", "", "x"], ["last", "y"]),
        {"x": (f32, (3,))} if known else {"m": (i64, ()), "x": (f32, (3,))},
        ["last", "y"],
        {**({"m": np.array(4)} if known else {}), "one": np.array(1), "w": np.array([0.5, 0.25, -0.5], f32)},
    )
    session = agrees(model, {"x": _numbers(3)} if known else {"m": np.array(4), "x": _numbers(3)})
    report = session.report()
    driven = {node.name for node in report.host_nodes if node.reason == DRIVEN}
    assert driven == (set() if known else {"loop", "inner"})
    assert report.plans == 1 if known else report.plans < 8, "rounds share plans"


@pytest.mark.parametrize(("rounds", "longest"), [(0, 2048), (91, 2048), (91, 100)])
def test_known_rounds_are_one_plan(
    rounds: int,
    longest: int,
    make_model: Callable[..., onnx.ModelProto],
    agrees: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a loop over classes, say: each round reads other columns. The number in a known state is the host's as well, and
    the condition ends the loop before its time. More nodes than a plan shall have are the host's to drive."""
    monkeypatch.setitem(control._LONGEST, "Loop", longest)
    nodes = [
        helper.make_node("Add", ["number", "one"], ["next"]),
        helper.make_node("Less", ["next", "end"], ["more"]),
        helper.make_node("Mod", ["number", "four"], ["column"]),
        helper.make_node("Gather", ["x", "column"], ["row"], axis=1),
        helper.make_node("Add", ["sum", "row"], ["sum2"]),
        helper.make_node("ReduceMax", ["sum2"], ["most"], keepdims=0),
    ]
    body = _body(nodes, [("number", i64), ("sum", f32)], [("next", i64), ("sum2", f32), ("most", f32)], "more")
    body.output[3].type.tensor_type.shape.SetInParent()
    constants = {"m": np.array(rounds), "first": np.array(2), "one": np.array(1), "four": np.array(4)}
    constants |= {"end": np.array(60), "zeros": np.zeros(2, f32)}
    model = make_model(
        _loop(body, ["m", "", "first", "zeros"], ["number_", "y", "all"]),
        {"x": (f32, (2, 4))},
        ["number_", "y", "all"],
        constants,
        output_types={"number_": i64},
    )
    session = agrees(model, {"x": _numbers(2, 4)})
    report = session.report()
    labels = [node.reason for node in report.host_nodes + report.gpu_nodes if node.op_type == "Loop"]
    if longest == 2048:
        assert labels == ([""] if rounds else [CONTROL]), "it joins what rounds make"
        assert (report.host_reads, report.plans) == (0, 1)
    else:
        assert (labels, report.host_reads) == ([DRIVEN], 58), "a condition a round"


def test_branches_in_a_loop(make_model: Callable[..., onnx.ModelProto], agrees: Callable[..., Any]) -> None:
    """Each round's number chooses the branch, and the slice that the branch reads."""
    then, other = (_graph([helper.make_node(op, ["state", "row"], ["z"])], ["z"]) for op in ("Add", "Mul"))
    nodes = [
        KEEPS,
        helper.make_node("Unsqueeze", ["i", "at"], ["start"]),
        helper.make_node("Add", ["start", "one"], ["end"]),
        helper.make_node("Slice", ["x", "start", "end"], ["row"]),
        helper.make_node("Equal", ["end", "one"], ["c"]),
        _if("c", then, other, ["next"]),
    ]
    body = _body(nodes, [("state", f32)], [("next", f32)], "more")
    constants = {"at": np.array([0]), "one": np.array([1]), "m": np.array(3), "start0": np.ones((1, 4), f32)}
    model = make_model(_loop(body, ["m", "", "start0"], ["y"]), {"x": (f32, (3, 4))}, constants=constants)
    agrees(model, {"x": _numbers(3, 4)})


def _sums() -> onnx.NodeProto:
    """y = x * (m + 1), in m rounds."""
    nodes = [KEEPS, helper.make_node("Add", ["state", "x"], ["next"])]
    return _loop(_body(nodes, [("state", f32)], [("next", f32)], "more"), ["m", "", "x"], ["y"])


def test_a_loop_that_does_not_end(make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]) -> None:
    model = make_model(_sums(), {"m": (i64, ()), "x": (f32, (3,))})
    session = make_session(model, options=SessionOptions(max_loop_rounds=20))
    x = _numbers(3)
    with pytest.raises(
        dmlvk.UnsupportedNodeError, match=r"'loop'.*goes on after 20 rounds; SessionOptions\.max_loop_rounds"
    ):
        session.run(None, {"m": np.array(2**62), "x": x})
    np.testing.assert_allclose(session.run(None, {"m": np.array(20), "x": x})[0], 21 * x, rtol=1e-5)
    with pytest.raises(dmlvk.InvalidArgumentError, match="max_loop_rounds"):
        make_session(model, options=SessionOptions(max_loop_rounds=0))


def test_errors_in_a_body(make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]) -> None:
    """Name its node; the session works after them. So do outputs of rounds that do not fit each other."""
    nodes = [
        KEEPS,
        helper.make_node("Concat", ["state", "x"], ["next"], axis=0),
        helper.make_node("Add", ["state", "x"], ["sum"], "unequal"),
    ]
    body = _body(nodes, [("state", f32)], [("next", f32), ("sum", f32)], "more")
    model = make_model(_loop(body, ["m", "", "x"], ["y", "sums"]), {"m": (i64, None), "x": (f32, (None,))}, ["y", "sums"])
    session = make_session(model)
    one, two = _numbers(1), _numbers(2)
    with pytest.raises(dmlvk.ModelError, match=r"'unequal'.*must broadcast"):
        session.run(None, {"m": np.array(3), "x": two})
    with pytest.raises(
        dmlvk.ModelError,
        match=r"'loop'.*the same sizes and type in every round; got \[\(float32, \(1,\)\), \(float32, \(2,\)\)\]",
    ):
        session.run(None, {"m": np.array(2), "x": one})
    with pytest.raises(dmlvk.ModelError, match=r"'loop'.*must have one element; got \(2,\)"):
        session.run(None, {"m": np.array([2, 3]), "x": one})
    y, sums = session.run(None, {"m": np.array([1]), "x": two})
    np.testing.assert_array_equal(y, np.concatenate([two, two]))
    np.testing.assert_array_equal(sums, [two + two])


@pytest.mark.parametrize("fault", ["an input", "an output", "an operator", "a name"])
def test_broken_loops(fault: str, make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]) -> None:
    node = _sums()
    body = node.attribute[0].g
    if fault == "an input":
        del body.input[2]
        body.node[1].input[0] = "x"
    elif fault == "an output":
        del body.output[1]
    elif fault == "an operator":
        body.node[1].op_type, body.node[1].domain = "Unknown", "elsewhere"
    else:
        body.node[1].input[0] = "nowhere"
    model = make_model(node, {"m": (i64, ()), "x": (f32, (3,))})
    model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    with pytest.raises((dmlvk.ModelError, dmlvk.UnsupportedNodeError), match=r"loop|elsewhere|nowhere"):
        make_session(model)


# -- what a session does besides


@pytest.fixture
def loop_session(make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]) -> Any:
    """s = -y as well."""
    nodes = [_sums(), helper.make_node("Neg", ["y"], ["s"])]
    return make_session(make_model(nodes, {"m": (i64, ()), "x": (f32, (3,))}, ["y", "s"]))


def test_profile(loop_session: Any) -> None:
    """Each round's kernels, one after the other."""
    report = loop_session.profile({"m": np.array(5), "x": _numbers(3)})
    assert [step.op_type for step in report.steps] == ["Add"] * 5 + ["Neg"]
    assert report.dispatches == 6 == sum(len(step.kernels) for step in report.steps)
    starts = [time.start for step in report.steps for time in step.times]
    assert starts == sorted(set(starts)) and report.gpu_seconds > 0
    assert [node.op_type for node in report.host_nodes] == ["Identity", "Loop"], "the condition is known to be true"
    assert len([event for event in json.loads(report.chrome_trace())["traceEvents"] if event.get("cat") == "kernels"]) == 6
    assert "1 Loop" in str(report) and len(report.table().splitlines()) == 7
    report = loop_session.report()
    assert (report.input_shapes, report.dispatches) == ({"m": (), "x": (3,)}, 6)


def test_arrays_on_the_device(loop_session: Any, device: dmlvk.Device) -> None:
    """Fed, returned, and bound; an output that is an input is a copy of it."""
    x = _numbers(3)
    on_device = dmlvk.DeviceArray.from_numpy(x, device)
    for m in (np.array(3), dmlvk.DeviceArray.from_numpy(np.array(3), device)):
        y, s = loop_session.run_with_device_arrays(["y", "s"], {"m": m, "x": on_device})
        np.testing.assert_allclose(y.numpy(), 4 * x, rtol=1e-6)
        np.testing.assert_allclose(s.numpy(), -4 * x, rtol=1e-6)
    (same,) = loop_session.run_with_device_arrays(["y"], {"m": np.array(0), "x": on_device})
    assert same.buffer is not on_device.buffer
    np.testing.assert_array_equal(same.numpy(), x)
    binding = loop_session.io_binding()
    binding.bind_cpu_input("m", np.array(2))
    binding.bind_input("x", on_device)
    target = dmlvk.DeviceArray.from_numpy(np.zeros(3, f32), device)
    binding.bind_output("y", target)
    loop_session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_allclose(target.numpy(), 3 * x, rtol=1e-6)
    binding.bind_output("s", dmlvk.DeviceArray.from_numpy(np.zeros(2, f32), device))
    with pytest.raises(dmlvk.InvalidArgumentError, match="output 's'"):
        loop_session.run_with_iobinding(binding)


def test_several_threads(loop_session: Any) -> None:
    x = _numbers(3)

    def run(m: int) -> np.ndarray:
        return loop_session.run(["y"], {"m": np.array(m), "x": x})[0]

    with ThreadPoolExecutor(4) as pool:
        for m, y in enumerate(pool.map(run, range(12))):
            np.testing.assert_allclose(y, x * (m + 1), rtol=1e-5)
