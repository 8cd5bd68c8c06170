"""Every rule of DirectML's graphs, broken once: an error that names the edge or the nodes, before there is a device."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import dmlvk
from dmlvk.graph.desc import (
    ConstantDataGraphNodeDesc,
    GraphDesc,
    InputGraphEdgeDesc,
    IntermediateGraphEdgeDesc,
    OperatorGraphNodeDesc,
    OutputGraphEdgeDesc,
)
from dmlvk.graph.wiring import wire
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import OperatorDesc

FLOATS = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (2, 3))
HALVES = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT16, (2, 6))
LARGER = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (2, 4))
OWNED = dataclasses.replace(FLOATS, flags=dmlvk.TensorFlags.OWNED_BY_DML)


class Made(NamedTuple):
    """An operator without a device."""

    desc: OperatorDesc
    device: Any = None


def node(desc: OperatorDesc, name: str = "") -> OperatorGraphNodeDesc:
    desc.validate()
    return OperatorGraphNodeDesc(Made(desc), name)


def relu(tensor: dmlvk.TensorDesc = FLOATS, name: str = "relu") -> OperatorGraphNodeDesc:
    output = dataclasses.replace(tensor, flags=dmlvk.TensorFlags.NONE)
    return node(dmlvk.ActivationRelu(input_tensor=tensor, output_tensor=output), name)


def add(a: dmlvk.TensorDesc = FLOATS, b: dmlvk.TensorDesc = FLOATS, name: str = "sum") -> OperatorGraphNodeDesc:
    return node(dmlvk.ElementWiseAdd(a_tensor=a, b_tensor=b, output_tensor=FLOATS), name)


def gemm() -> OperatorGraphNodeDesc:
    """Has an optional input, C, that the desc leaves out."""
    square = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (1, 1, 2, 2))
    return node(dmlvk.Gemm(a_tensor=square, b_tensor=square, output_tensor=square, alpha=1.0, beta=0.0))


IN, OUT, BETWEEN = InputGraphEdgeDesc, OutputGraphEdgeDesc, IntermediateGraphEdgeDesc

CHAIN = GraphDesc(1, 1, [relu(name="first"), relu(name="second")], [IN(0, 0, 0)], [OUT(1, 0, 0)], [BETWEEN(0, 0, 1, 0)])
"""A graph that is right."""


def changed(**fields: Any) -> GraphDesc:
    return dataclasses.replace(CHAIN, **fields)


SUM_OF_TWO = GraphDesc(2, 1, [add()], [IN(0, 0, 0), IN(1, 0, 1)], [OUT(0, 0, 0)])

BROKEN: dict[str, tuple[GraphDesc, str]] = {
    "no nodes": (changed(nodes=[]), "at least one node"),
    "no outputs": (changed(output_count=0), "integer of at least 1"),
    "a node of another kind": (changed(nodes=[relu(), "relu"]), r"Nodes\[1\].*OperatorGraphNodeDesc"),
    "an edge of another kind": (changed(output_edges=[IN(0, 0, 0)]), r"OutputEdges\[0\].*OutputGraphEdgeDesc"),
    "no such graph input": (changed(input_edges=[IN(1, 0, 0)]), r"InputEdges\[0\].GraphInputIndex.*1 graph inputs.*got 1"),
    "no such graph output": (changed(output_edges=[OUT(1, 0, 1)]), r"GraphOutputIndex.*1 graph outputs"),
    "no such node to feed": (changed(input_edges=[IN(0, 2, 0)]), r"ToNodeIndex.*2 nodes"),
    "no such node to read": (changed(output_edges=[OUT(2, 0, 0)]), r"FromNodeIndex.*2 nodes"),
    "a negative index": (changed(output_edges=[OUT(-1, 0, 0)]), r"FromNodeIndex"),
    "no such node input": (changed(input_edges=[IN(0, 0, 1)]), r"ToNodeInputIndex.*1 inputs of node 0 'first' \(DML_OP"),
    "no such node output": (changed(output_edges=[OUT(1, 1, 0)]), r"1 outputs of node 1 'second'"),
    "a second output of a constant": (
        changed(
            nodes=[ConstantDataGraphNodeDesc(bytes(24)), relu()], input_edges=[], intermediate_edges=[BETWEEN(0, 1, 1, 0)]
        ),
        r"FromNodeOutputIndex.*outputs of node 0 \(DML_GRAPH_NODE_TYPE_CONSTANT\)",
    ),
    "an absent optional input": (
        GraphDesc(3, 1, [gemm()], [IN(0, 0, 0), IN(1, 0, 1), IN(2, 0, 2)], [OUT(0, 0, 0)]),
        r"desc, which has no CTensor of node 0 \(DML_OPERATOR_GEMM\)",
    ),
    "an input fed twice": (
        changed(input_edges=[IN(0, 0, 0), IN(0, 1, 0)]),
        r"InputTensor of node 1 'second'.*must have one edge, and graph input 0 feeds it already",
    ),
    "an input fed by nothing": (
        changed(intermediate_edges=[], output_count=2, output_edges=[OUT(1, 0, 0), OUT(0, 0, 1)]),
        r"an edge must feed InputTensor of node 1 'second'",
    ),
    "an output that nothing reads": (
        GraphDesc(1, 1, [relu(name="a"), relu(name="b")], [IN(0, 0, 0), IN(0, 1, 0)], [OUT(1, 0, 0)]),
        r"an edge must leave OutputTensor of node 0 'a'",
    ),
    "a constant that nothing reads": (
        changed(nodes=[*CHAIN.nodes, ConstantDataGraphNodeDesc(bytes(4), "unused")]),
        r"an edge must leave node 2 'unused'",
    ),
    "a constant that no node reads": (
        GraphDesc(0, 1, [ConstantDataGraphNodeDesc(bytes(4))], [], [OUT(0, 0, 0)]),
        r"must feed a node",
    ),
    "a graph output without producer": (changed(output_count=2), r"an edge must lead to graph output 1"),
    "a graph output with two producers": (
        changed(output_edges=[OUT(1, 0, 0), OUT(0, 0, 0)]),
        r"graph output 0 must have one producer, and node 1 'second'",
    ),
    "sizes that differ": (
        changed(nodes=[relu(FLOATS, "first"), relu(LARGER, "second")]),
        r"InputTensor of node 1 'second'.*OutputTensor of node 0 'first' \(DML_OPERATOR_.*expected 24, got 32",
    ),
    "a constant of another size": (
        changed(nodes=[ConstantDataGraphNodeDesc(bytes(20)), relu()], input_edges=[]),
        r"node 0 \(DML_GRAPH_NODE_TYPE_CONSTANT\).*expected 20, got 24",
    ),
    "sizes that differ at a graph input": (
        GraphDesc(1, 2, [relu(), relu(LARGER)], [IN(0, 0, 0), IN(0, 1, 0)], [OUT(0, 0, 0), OUT(1, 0, 1)]),
        r"graph input 0, which feeds it; expected 24, got 32",
    ),
    "owned at one of two": (
        GraphDesc(1, 1, [add(FLOATS, OWNED)], [IN(0, 0, 0), IN(0, 0, 1)], [OUT(0, 0, 0)]),
        r"the inputs fed by graph input 0 must all be OWNED_BY_DML, or none; ATensor of node 0 'sum'.*BTensor",
    ),
    "owned but computed": (
        changed(nodes=[relu(name="first"), relu(OWNED, "second")]),
        r"InputTensor of node 1 'second'.*OWNED_BY_DML, so an input of the graph must feed it",
    ),
    "a cycle": (
        GraphDesc(
            1, 1, [add(name="a"), relu(name="b")], [IN(0, 0, 0)], [OUT(1, 0, 0)], [BETWEEN(0, 0, 1, 0), BETWEEN(1, 0, 0, 1)]
        ),
        r"must have no cycle, and here is one: node \d '(a|b)'.* -> node \d '(a|b)'.* -> node",
    ),
    "a node that feeds itself": (
        GraphDesc(1, 1, [add(name="self")], [IN(0, 0, 0)], [OUT(0, 0, 0)], [BETWEEN(0, 0, 0, 1)]),
        r"node 0 'self' .* -> node 0 'self'",
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("graph, message", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_named(graph: GraphDesc, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        wire(graph)
    assert caught.value.operator == "DML_GRAPH_DESC"


def test_graphs_that_are_right() -> None:
    assert len(wire(CHAIN).steps) == 2
    assert len(wire(SUM_OF_TWO).steps) == 1


def test_nodes_come_after_what_feeds_them() -> None:
    graph = GraphDesc(
        1,
        1,
        [relu(name="last"), relu(name="first"), relu(name="middle")],
        [IN(0, 1, 0)],
        [OUT(0, 0, 0)],
        [BETWEEN(1, 0, 2, 0), BETWEEN(2, 0, 0, 0)],
    )
    assert [step.origin.name for step in wire(graph).steps] == ["first", "middle", "last"]


def test_connected_tensors_may_differ_in_all_but_their_bytes() -> None:
    wire(changed(nodes=[relu(FLOATS), relu(HALVES)]))


def test_a_graph_input_that_no_edge_leaves_is_absent() -> None:
    wiring = wire(changed(input_count=2))
    assert (wiring.inputs[1], wiring.input_tensors[1]) == (None, None)


def test_a_graph_input_promises_what_its_strictest_reader_asks_for() -> None:
    aligned = dataclasses.replace(FLOATS, guaranteed_base_offset_alignment=64)
    graph = GraphDesc(1, 1, [add(FLOATS, aligned)], [IN(0, 0, 0), IN(0, 0, 1)], [OUT(0, 0, 0)])
    tensor = wire(graph).input_tensors[0]
    assert tensor is not None and tensor.guaranteed_base_offset_alignment == 64


def test_constant_data_is_copied() -> None:
    data = np.arange(6, dtype=np.float32)
    graph = GraphDesc(1, 1, [ConstantDataGraphNodeDesc(data), add()], [IN(0, 1, 0)], [OUT(1, 0, 0)], [BETWEEN(0, 0, 1, 1)])
    wiring = wire(graph)
    data[:] = 0
    constant = wiring.steps[0].inputs[1]
    assert constant is not None and constant.constant is not None
    assert constant.constant.view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
