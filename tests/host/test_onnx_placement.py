"""Where a trace's tensors lie: in place where that is allowed, apart wherever both are needed."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlvk.engine.trace import Trace
from dmlvk.graph.placement import Placement
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.onnx.values import Value

TENSOR = 4 * 3 * 16 * 16
ALONG_AXIS = ("Concat", "Split")
THIRDS = ("Split", "x", "p q r")


def _trace(*nodes: tuple[str, str, str], outputs: tuple[str, ...] = ("y",)) -> Trace:
    """Nodes as (operator, inputs, output); x is fed, w a pointwise filter. Concat and Split are along channels."""
    graph = helper.make_graph(
        [
            helper.make_node(op_type, inputs.split(), output.split(), **({"axis": 1} if op_type in ALONG_AXIS else {}))
            for op_type, inputs, output in nodes
        ],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.ones((3, 3, 1, 1), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Network(load_model(model), ["chain"]).trace_whole({"x": (1, 3, 16, 16)}, {})


def _placement(trace: Trace, first_scratch: int = 0) -> Placement:
    outputs = [value.storage for value in trace.outputs.values() if isinstance(value, Value)]
    scratch = [first_scratch] + [0] * (len(trace.steps) - 1)
    return Placement(trace.steps, [value.storage for value in trace.inputs.values()], outputs, scratch)


def _offsets(trace: Trace) -> list[int]:
    """Offsets of the input and of each step's output."""
    placement = _placement(trace)
    storages = [trace.inputs["x"].storage]
    storages += [storage for step in trace.steps for storage in step.written()]
    return [placement.offset(storage) for storage in storages]


def test_elementwise_chains_stay_in_place() -> None:
    trace = _trace(("Relu", "x", "a"), ("Exp", "a", "b"), ("Tanh", "b", "y"))
    assert _offsets(trace) == [0, 0, 0, 0]
    assert _placement(trace).nbytes == TENSOR


def test_what_is_read_later_is_not_overwritten() -> None:
    x, a, b, y = _offsets(_trace(("Conv", "x w", "a"), ("Relu", "a", "b"), ("Add", "a b", "y")))
    assert len({x, a}) == 2 and len({a, b}) == 2
    assert y in (a, b)


def test_convolutions_do_not_run_in_place() -> None:
    x, y = _offsets(_trace(("Conv", "x w", "y")))
    assert x != y


def test_an_input_read_twice_by_one_step() -> None:
    assert _offsets(_trace(("Add", "x x", "y"))) == [0, 0]


def test_outputs_of_the_model_stay() -> None:
    _, a, y = _offsets(_trace(("Relu", "x", "a"), ("Exp", "a", "y"), outputs=("a", "y")))
    assert a != y


def test_an_input_in_another_layout_is_left_alone() -> None:
    trace = _trace(("Transpose", "x", "t"), ("Conv", "x w", "c"), outputs=("t", "c"))
    x, *rest = _offsets(trace)
    assert x not in rest


@pytest.mark.parametrize("scratch", [256, 4096])
def test_scratch_lies_apart(scratch: int) -> None:
    trace = _trace(("Conv", "x w", "a"), ("Conv", "a w", "y"))
    placement = _placement(trace, scratch)
    assert placement.nbytes == 2 * TENSOR + scratch or placement.nbytes == 3 * TENSOR
    taken = {placement.offset(trace.inputs["x"].storage), placement.scratch[0]}
    assert len(taken) == 2


# -- parts of others


def test_what_is_joined_lies_side_by_side() -> None:
    trace = _trace(("Exp", "x", "a"), ("Neg", "x", "b"), ("Concat", "a b", "c"), ("Relu", "c", "y"))
    assert [step.desc.type.name for step in trace.steps] == ["ELEMENT_WISE_EXP", "ELEMENT_WISE_NEGATE", "ACTIVATION_RELU"]
    _, a, b, y = _offsets(trace)
    assert (b - a, y) == (TENSOR, a)
    assert _placement(trace).nbytes == 3 * TENSOR


def test_a_part_is_kept_until_the_whole_is_read() -> None:
    """The output that no step reads, and what is computed meanwhile."""
    nodes = ("Exp", "x", "a"), ("Neg", "x", "b"), ("Abs", "x", "c"), ("Sqrt", "c", "d"), ("Concat", "a d", "y")
    trace = _trace(*nodes, ("Sin", "b", "z"), outputs=("y", "z"))
    assert trace.outputs["y"].storage not in [storage for step in trace.steps for storage in step.written()]
    _, a, b, c, d, z = _offsets(trace)
    assert d - a == TENSOR
    assert not {b, c, z} & {a, d}


def test_a_part_takes_no_room_before_it_is_written() -> None:
    """A skip connection: what is computed meanwhile lies where the other half will be."""
    nodes = [("Exp", "x", "s"), ("Conv", "s w", "a0"), *(("Conv", f"a{i} w", f"a{i + 1}") for i in range(3))]
    trace = _trace(*nodes, ("Conv", "a3 w", "b"), ("Concat", "s b", "c"), ("Relu", "c", "y"))
    assert _placement(trace).nbytes == 3 * TENSOR


def test_an_output_is_no_part_of_another_storage() -> None:
    """The caller of a compiled graph says where it lies."""
    trace = _trace(("Exp", "x", "a"), ("Neg", "x", "b"), ("Concat", "a b", "y"), THIRDS, outputs=("a", "y", "p"))
    assert all(isinstance(value, Value) and value.storage.part_of is None for value in trace.outputs.values())


def test_a_tensor_whose_part_is_read_later_is_not_overwritten() -> None:
    x, a, y = _offsets(_trace(THIRDS, ("Relu", "x", "a"), ("Add", "a p", "y")))
    assert (x != a, y) == (True, a)


def test_a_tensor_whose_part_is_read_otherwise_is_not_overwritten() -> None:
    x, y = _offsets(_trace(THIRDS, ("Add", "x p", "y")))
    assert x != y


def test_a_tensor_whose_parts_have_been_read_is_overwritten() -> None:
    x, a, b, y = _offsets(_trace(THIRDS, ("Exp", "p", "a"), ("Relu", "x", "b"), ("Add", "a b", "y")))
    assert (a != x, b, y) == (True, x, x)
