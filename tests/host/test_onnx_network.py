"""Loading and tracing without a device: folding, versions, dead nodes and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk.engine.trace import Region
from dmlvk.onnx import functions
from dmlvk.onnx.control import names_of
from dmlvk.onnx.model import load_model, read_node
from dmlvk.onnx.network import Network
from dmlvk.onnx.program import DRIVEN, find_driven
from dmlvk.onnx.registry import COUNTING, ROWS, find_counting, find_row
from dmlvk.onnx.values import Value
from dmlvk.onnx.versions import CHECKED, serving_version
from dmlvk.spec import ops


def _network(nodes: list[Any], constants: dict[str, np.ndarray] | None = None, opset: int = 17) -> Network:
    return Network(load_model(_model(nodes, constants, opset)))


def _model(
    nodes: list[Any], constants: dict[str, np.ndarray] | None = None, opset: int = 17, ir_version: int = 8
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def test_rows_name_versions_that_onnx_defines() -> None:
    """A version in the table that onnx knows the operator without would never be found."""
    newest = onnx.defs.onnx_opset_version()
    for domain, op_type, since in ROWS:
        if since <= newest and domain in ("", COUNTING) and onnx.defs.has(op_type):
            assert onnx.defs.get_schema(op_type, since, "").since_version == since, (op_type, since)


def test_every_opset_from_7_on_is_covered() -> None:
    """An operator that has a row has one for each of its definitions from opset 7 on, but for those that say the same."""
    covered = {op_type for domain, op_type, _ in ROWS if domain in ("", COUNTING)} | {op_type for op_type, _ in DRIVEN}
    oldest: dict[str, int] = {}
    missing = []
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda schema: -schema.since_version):
        if schema.domain == "" and schema.name in covered and oldest.get(schema.name, 8) > 7:
            oldest[schema.name] = schema.since_version
            if not schema.deprecated and not _is_served(schema.name, schema.since_version):
                missing.append((schema.name, schema.since_version))
    assert not missing
    assert onnx.defs.onnx_opset_version() <= CHECKED, "the rows were held against a newer opset: say so"


def _is_served(op_type: str, opset: int) -> bool:
    node = read_node(helper.make_node(op_type, ["x"], ["y"]), {"": opset})
    return any(row is not None for row in (find_row(node), find_counting(node), find_driven(node)))


def test_a_new_version_is_not_run_by_old_rules() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    with pytest.raises(dmlvk.UnsupportedNodeError, match="versions 6, 13, 14 have"):
        _network([node], opset=5)


def test_a_version_that_says_the_same_is_served_by_an_older_row() -> None:
    assert serving_version("MaxPool", "", 22, [12]) is None, "its text was changed"
    assert serving_version("Relu", "", 14, [13]) == 13, "only types were added"
    assert serving_version("Transpose", "", 13, [1]) == 1
    assert serving_version("Reshape", "", 14, [5, 13]) is None, "an attribute was added"
    assert serving_version("ReduceSum", "", 13, [1, 11]) is None, "an attribute became an input"
    assert serving_version("Upsample", "", 10, [9]) is None, "it is deprecated"
    assert serving_version("Relu", "", 6, [13, 14]) is None, "rows are for newer versions"
    assert serving_version("NoSuchOperator", "", 2, [1]) is None, "onnx does not define it"
    assert serving_version("NoSuchOperator", "", 2, [1, 2]) == 2


@pytest.fixture
def old_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """An onnx that knows opset 22 at most."""
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: 22)


@pytest.mark.usefixtures("old_onnx")
def test_an_older_onnx_loads_what_it_can_check() -> None:
    nodes = [helper.make_node("Mod", ["x", "x"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    with pytest.raises(dmlvk.ModelError, match="fmod must be 1 for floating-point types before version 28"):
        _network(nodes, opset=22).trace_whole({"x": (1, 3, 4, 4)}, {})
    network = Network(load_model(_model(nodes, opset=28)), without=("all",))
    modulus, relu = network.trace_whole({"x": (1, 3, 4, 4)}, {}).steps
    assert isinstance(modulus.desc, ops.ElementWiseModulusFloor), "as its row for version 28 has it"
    assert isinstance(relu.desc, ops.ActivationRelu)


@pytest.mark.usefixtures("old_onnx")
@pytest.mark.parametrize(("op_type", "attributes"), [("Relu", {"slope": 1}), ("NoSuchOperator", {})])
def test_an_older_onnx_refuses_what_it_cannot_check(op_type: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(dmlvk.UnsupportedError, match="opset 28; the installed onnx knows 22: install a newer one"):
        _network([helper.make_node(op_type, ["x"], ["y"], **attributes)], opset=28)


def test_a_newer_format_of_files() -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], ir_version=onnx.IR_VERSION + 1)
    assert len(load_model(model).nodes) == 1
    assert model.ir_version == onnx.IR_VERSION + 1


@pytest.fixture
def without_converters(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node has a converter but those that functions are made of."""
    made_of = ("Add", "Constant", "Div", "Mul", "Pow", "ReduceMean", "Sqrt", "Sub")
    monkeypatch.setattr(functions, "_is_itself", lambda node: node.op_type in made_of)


@pytest.mark.usefixtures("without_converters")
@pytest.mark.parametrize(("given", "axes"), [({}, [0, 2, 3]), ({"axes": [1]}, [1])])
def test_an_operator_without_a_converter_is_the_function_that_defines_it(given: dict[str, Any], axes: list[int]) -> None:
    network = _network([helper.make_node("MeanVarianceNormalization", ["x"], ["y"], "norm", **given)], opset=13)
    nodes = network.model.nodes
    assert {node.attributes["axes"] == axes for node in nodes if node.op_type == "ReduceMean"} == {True}
    assert {(node.whole.name, node.whole.op_type) for node in nodes if node.whole} == {("norm", "MeanVarianceNormalization")}
    assert nodes[-1].outputs == ("y",)
    assert len({name for node in nodes for name in node.outputs}) == len(nodes), "a name each"


@pytest.mark.usefixtures("without_converters")
def test_a_function_of_types_needs_to_know_them() -> None:
    node = read_node(helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"]), {"": 13})
    with pytest.raises(dmlvk.UnsupportedNodeError, match="asks for the type of 'labels', which is unknown"):
        functions.expanded(node, {"x": TensorProto.FLOAT}, set())


def test_what_a_graph_reads_from_outside_is_told_from_what_it_has() -> None:
    graph = onnx.parser.parse_graph(
        "g (float z) => (float w) { c = Less (z, most) w = If (c) <then_branch = t () => (v) "
        "{ v = Add (z, more) }, else_branch = e () => (z) {}> }"
    )
    assert names_of(graph) == ({"z", "c", "w", "v"}, {"most", "more"})


def test_constants_fold_in_the_references_types() -> None:
    nodes = [
        helper.make_node("Constant", [], ["two"], value_int=2),
        helper.make_node("Cast", ["two"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "c"], ["g"]),
        helper.make_node("Mul", ["x", "g"], ["y"]),
    ]
    network = _network(nodes, {"c": np.array([1.5], np.float32)})
    assert [record.op_type for record in network.folded] == ["Constant", "Cast", "Mul"]
    trace = network.trace_whole({"x": (1, 3, 4, 4)}, {})
    (step,) = trace.steps
    assert isinstance(step.desc, ops.ElementWiseMultiply)
    constant = step.inputs[1]
    assert constant is not None and constant.constant is not None
    assert (constant.constant.dtype, constant.constant.tolist()) == (np.float32, [3.0])
    assert step.desc.tensor("b_tensor").effective_strides == (0, 0, 0, 0)


def test_shape_arithmetic_follows_the_sizes() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=2),
        helper.make_node("ReduceProd", ["s"], ["area"], keepdims=1),
        helper.make_node("Concat", ["head", "area"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    network = _network(nodes, {"head": np.array([0, 0], np.int64)})
    for sizes in [(1, 3, 4, 5), (2, 3, 6, 1)]:
        trace = network.trace_whole({"x": sizes}, {})
        y = trace.outputs["y"]
        assert isinstance(y, Value)
        assert y.sizes == (sizes[0], 3, sizes[2] * sizes[3])
        assert [record.op_type for record in trace.host_labels] == ["Shape", "ReduceProd", "Concat"]
        assert not trace.steps


def test_uploads_are_shared_between_traces() -> None:
    network = _network([helper.make_node("Mul", ["x", "c"], ["y"])], {"c": np.ones(1, np.float32)})
    first, second = (network.trace_whole({"x": (1, 3, size, 4)}, {}).steps[0].inputs[1] for size in (4, 5))
    assert first is not None
    assert first is second


def test_dead_nodes_are_not_launched() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Log", ["e"], ["l"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    trace = _network(nodes).trace_whole({"x": (1, 3, 2, 2)}, {})
    assert [step.origin.op_type for step in trace.steps] == ["Relu"]
    assert [record.op_type for record in trace.removed_labels] == ["Exp", "Log"]


def test_a_device_value_where_a_constant_must_be() -> None:
    """The graph is cut before its reader: the host reads it back."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Cast", ["r"], ["sizes"], to=TensorProto.INT64),
        helper.make_node("Expand", ["x", "sizes"], ["y"]),
    ]
    program = _network(nodes).program
    before, after = (part for part, _ in program.parts)
    assert isinstance(before, Region) and isinstance(after, Region)
    assert "sizes" in before.outputs
    assert after.host_inputs == {"sizes"}


def test_ceil_mode_windows_start_inside() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, pads=[0, 0, 1, 1])
    network = _network([node])
    for size, windows in [(4, 2), (5, 3), (6, 3), (7, 4)]:
        y = network.trace_whole({"x": (1, 3, size, size)}, {}).outputs["y"]
        assert isinstance(y, Value)
        assert y.sizes[2:] == (windows, windows)


def test_function_bodies_are_inlined() -> None:
    body = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Neg", ["b"], ["c"])]
    function = helper.make_function("local", "Twice", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="local")],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    trace = Network(load_model(model), without=("all",)).trace_whole({"x": (2,)}, {})
    assert [step.origin.op_type for step in trace.steps] == ["Relu", "Neg"]
