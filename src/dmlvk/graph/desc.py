"""``DML_GRAPH_DESC``: operators as nodes, and the edges between them. ``Device.compile_graph`` makes one compiled operator
of it, whose binding slots are the graph's inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dmlvk.spec.schema import OperatorDesc


class DescribedOperator(Protocol):
    """The parts of an ``Operator`` that a graph needs."""

    device: Any
    desc: OperatorDesc


@dataclass(frozen=True)
class OperatorGraphNodeDesc:
    """``DML_OPERATOR_GRAPH_NODE_DESC``.

    Attributes:
        operator: Made by ``Device.create_operator``; not looked at again once the graph is compiled.
        name: A name for messages.
    """

    operator: DescribedOperator
    name: str = ""


@dataclass(frozen=True, eq=False)
class ConstantDataGraphNodeDesc:
    """``DML_CONSTANT_DATA_GRAPH_NODE_DESC``: data that is known when the graph is compiled; its one output has index 0.

    Attributes:
        data: The data: as many bytes as the tensors that are connected to it have; copied when the graph is compiled.
        name: A name for messages.
    """

    data: bytes | npt.NDArray[Any]
    name: str = ""

    def content(self) -> npt.NDArray[np.uint8]:
        """The bytes, copied."""
        data = self.data.tobytes() if isinstance(self.data, np.ndarray) else bytes(self.data)
        return np.frombuffer(data, np.uint8)


@dataclass(frozen=True)
class InputGraphEdgeDesc:
    """``DML_INPUT_GRAPH_EDGE_DESC``: from an input of the graph to an input of a node. All indices count from 0."""

    graph_input_index: int
    to_node_index: int
    to_node_input_index: int
    name: str = ""


@dataclass(frozen=True)
class OutputGraphEdgeDesc:
    """``DML_OUTPUT_GRAPH_EDGE_DESC``: from an output of a node to an output of the graph."""

    from_node_index: int
    from_node_output_index: int
    graph_output_index: int
    name: str = ""


@dataclass(frozen=True)
class IntermediateGraphEdgeDesc:
    """``DML_INTERMEDIATE_GRAPH_EDGE_DESC``: from an output of a node to an input of a node."""

    from_node_index: int
    from_node_output_index: int
    to_node_index: int
    to_node_input_index: int
    name: str = ""


GraphNodeDesc = OperatorGraphNodeDesc | ConstantDataGraphNodeDesc


@dataclass(frozen=True)
class GraphDesc:
    """``DML_GRAPH_DESC``. The index of a node's input or output is that of its operator's binding slot.

    Attributes:
        input_count: Number of the graph's inputs; one that no edge leaves is not bound.
        output_count: Number of its outputs, at least 1.
        nodes: The nodes.
        input_edges, output_edges, intermediate_edges: Each with edges of its own kind only, in any order.
    """

    input_count: int
    output_count: int
    nodes: Sequence[GraphNodeDesc]
    input_edges: Sequence[InputGraphEdgeDesc]
    output_edges: Sequence[OutputGraphEdgeDesc]
    intermediate_edges: Sequence[IntermediateGraphEdgeDesc] = ()

    def __post_init__(self) -> None:
        for name in ("nodes", "input_edges", "output_edges", "intermediate_edges"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
