"""Turns a ``GraphDesc`` into steps, and checks every rule of DirectML's graphs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dmlvk.graph.desc import (
    ConstantDataGraphNodeDesc,
    GraphDesc,
    InputGraphEdgeDesc,
    IntermediateGraphEdgeDesc,
    OperatorGraphNodeDesc,
    OutputGraphEdgeDesc,
)
from dmlvk.graph.step import Step, Storage
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import Slot
from dmlvk.spec.tensor import TensorDesc

_GRAPH: Final = "DML_GRAPH_DESC"


@dataclass(frozen=True)
class NodeLabel:
    """A node of a graph as messages name it.

    Attributes:
        index: Its place among the nodes.
        name: Its own name, "" for none.
        op_type: Its operator's DirectML name, or that of the node type.
    """

    index: int
    name: str
    op_type: str

    def __str__(self) -> str:
        return f"node {self.index}{f' {self.name!r}' if self.name else ''} ({self.op_type})"


@dataclass(frozen=True)
class Wiring:
    """A graph whose rules hold.

    Attributes:
        steps: The steps in an order in which each comes after what it reads.
        inputs: The storage of each graph input; None for one that no edge leaves.
        outputs: The storage of each graph output. One storage may be several outputs, and a constant may be one.
        input_tensors, output_tensors: Their descs.
    """

    steps: tuple[Step, ...]
    inputs: tuple[Storage | None, ...]
    outputs: tuple[Storage, ...]
    input_tensors: tuple[TensorDesc | None, ...]
    output_tensors: tuple[TensorDesc, ...]


class _End(NamedTuple):
    """An input or output of a node."""

    node: int
    slot: int


class _Source(NamedTuple):
    """The source of node inputs: an output of a node, or with node -1 an input of the graph."""

    node: int
    slot: int


def wire(graph: GraphDesc) -> Wiring:
    """Checks a graph and puts its nodes in order.

    Raises:
        InvalidArgumentError: a rule of graphs is broken; field is the edge or node, and the message names the nodes.
    """
    return _Wirer(graph).wiring()


class _Wirer:
    def __init__(self, graph: GraphDesc) -> None:
        self.graph = graph
        self._check_counts()
        self.labels = [self._label(index) for index in range(len(graph.nodes))]
        self.inputs: list[tuple[Slot, ...]] = []
        self.outputs: list[tuple[Slot, ...]] = []
        for node in graph.nodes:
            desc = node.operator.desc if isinstance(node, OperatorGraphNodeDesc) else None
            self.inputs.append(desc.input_slots() if desc else ())
            self.outputs.append(desc.output_slots() if desc else ())
        self.feeds: dict[_End, _Source] = {}
        self.shown: dict[int, _Source] = {}
        self._follow_edges()
        self._check_connected()
        self._check_tensors()

    # -- counts and edges

    def _check_counts(self) -> None:
        graph = self.graph
        for field, count, least in (("InputCount", graph.input_count, 0), ("OutputCount", graph.output_count, 1)):
            if not isinstance(count, int) or count < least:
                raise _error(field, f"must be an integer of at least {least}", count)
        if not graph.nodes:
            raise _error("Nodes", "must have at least one node", len(graph.nodes))
        kinds: tuple[tuple[str, Sequence[object], type], ...] = (
            ("InputEdges", graph.input_edges, InputGraphEdgeDesc),
            ("OutputEdges", graph.output_edges, OutputGraphEdgeDesc),
            ("IntermediateEdges", graph.intermediate_edges, IntermediateGraphEdgeDesc),
        )
        for field, edges, kind in kinds:
            for index, edge in enumerate(edges):
                if not isinstance(edge, kind):
                    raise _error(f"{field}[{index}]", f"must be an {kind.__name__}", edge)
        for index, node in enumerate(graph.nodes):
            if not isinstance(node, OperatorGraphNodeDesc | ConstantDataGraphNodeDesc):
                raise _error(f"Nodes[{index}]", "must be an OperatorGraphNodeDesc or a ConstantDataGraphNodeDesc", node)

    def _label(self, index: int) -> NodeLabel:
        node = self.graph.nodes[index]
        if isinstance(node, ConstantDataGraphNodeDesc):
            return NodeLabel(index, node.name, "DML_GRAPH_NODE_TYPE_CONSTANT")
        return NodeLabel(index, node.name, node.operator.desc.type.dml_name)

    def _follow_edges(self) -> None:
        graph = self.graph
        for index, edge in enumerate(graph.input_edges):
            field = f"InputEdges[{index}]"
            _check_index(f"{field}.GraphInputIndex", edge.graph_input_index, graph.input_count, "graph inputs")
            self._feed(field, _Source(-1, edge.graph_input_index), edge.to_node_index, edge.to_node_input_index)
        for index, between in enumerate(graph.intermediate_edges):
            field = f"IntermediateEdges[{index}]"
            source = self._source(field, between.from_node_index, between.from_node_output_index)
            self._feed(field, source, between.to_node_index, between.to_node_input_index)
        for index, out in enumerate(graph.output_edges):
            field = f"OutputEdges[{index}]"
            _check_index(f"{field}.GraphOutputIndex", out.graph_output_index, graph.output_count, "graph outputs")
            source = self._source(field, out.from_node_index, out.from_node_output_index)
            if out.graph_output_index in self.shown:
                first = self.labels[self.shown[out.graph_output_index].node]
                raise _error(
                    field, f"graph output {out.graph_output_index} must have one producer, and {first} is it already", out
                )
            self.shown[out.graph_output_index] = source

    def _source(self, field: str, node: int, slot: int) -> _Source:
        _check_index(f"{field}.FromNodeIndex", node, len(self.graph.nodes), "nodes")
        if isinstance(self.graph.nodes[node], ConstantDataGraphNodeDesc):
            _check_index(f"{field}.FromNodeOutputIndex", slot, 1, f"outputs of {self.labels[node]}")
        else:
            slots = self.outputs[node]
            _check_index(f"{field}.FromNodeOutputIndex", slot, len(slots), f"outputs of {self.labels[node]}")
            if slots[slot].tensor is None:
                name = self._named(_End(node, slot), slots)
                raise _error(field, f"the edge must start at a tensor of the operator's desc, which has no {name}", slot)
        return _Source(node, slot)

    def _feed(self, field: str, source: _Source, node: int, slot: int) -> None:
        _check_index(f"{field}.ToNodeIndex", node, len(self.graph.nodes), "nodes")
        slots = self.inputs[node]
        _check_index(f"{field}.ToNodeInputIndex", slot, len(slots), f"inputs of {self.labels[node]}")
        end = _End(node, slot)
        tensor = slots[slot].tensor
        if tensor is None:
            raise _error(
                field, f"the edge must end at a tensor of the operator's desc, which has no {self._named(end, slots)}", slot
            )
        if end in self.feeds:
            raise _error(
                field,
                f"{self._named(end, slots)} must have one edge, and {self._spelled(self.feeds[end])} feeds it already",
                slot,
            )
        if tensor.owned_by_dml and source.node >= 0:
            raise _error(
                field,
                f"{self._named(end, slots)} is OWNED_BY_DML, so an input of the graph must feed it",
                str(self._spelled(source)),
            )
        self.feeds[end] = source

    def _check_connected(self) -> None:
        used = {*self.feeds.values(), *self.shown.values()}
        for node, label in enumerate(self.labels):
            for slot, item in enumerate(self.inputs[node]):
                if item.tensor is not None and _End(node, slot) not in self.feeds:
                    raise _error(
                        f"Nodes[{node}]", f"an edge must feed {self._named(_End(node, slot), self.inputs[node])}", None
                    )
            for slot, item in enumerate(self.outputs[node]):
                if not item.field.optional and _Source(node, slot) not in used:
                    raise _error(
                        f"Nodes[{node}]", f"an edge must leave {self._named(_End(node, slot), self.outputs[node])}", None
                    )
            if not self.outputs[node] and _Source(node, 0) not in used:
                raise _error(f"Nodes[{node}]", f"an edge must leave {label}", None)
        for index in range(self.graph.output_count):
            if index not in self.shown:
                raise _error("OutputEdges", f"an edge must lead to graph output {index}", None)

    # -- tensors

    def _check_tensors(self) -> None:
        firsts: dict[_Source, _End] = {}
        for end, source in self.feeds.items():
            tensor = self._tensor(end)
            if source.node >= 0:
                self._check_size(end, self._source_bytes(source), self._spelled(source))
                continue
            first = firsts.setdefault(source, end)
            self._check_size(end, self._tensor(first).total_tensor_size_in_bytes, self._spelled(source))
            if tensor.owned_by_dml != self._tensor(first).owned_by_dml:
                raise _error(
                    f"Nodes[{end.node}]",
                    f"the inputs fed by graph input {source.slot} must all be OWNED_BY_DML, or none; "
                    f"{self._named(first, self.inputs[first.node])} and {self._named(end, self.inputs[end.node])} differ",
                    tensor.flags,
                )

    def _check_size(self, end: _End, nbytes: int, source: str) -> None:
        own = self._tensor(end).total_tensor_size_in_bytes
        if own != nbytes:
            raise _error(
                f"Nodes[{end.node}]",
                f"{self._named(end, self.inputs[end.node])} must have the TotalTensorSizeInBytes of {source}, "
                "which feeds it",
                own,
                nbytes,
            )

    def _tensor(self, end: _End) -> TensorDesc:
        tensor = self.inputs[end.node][end.slot].tensor
        assert tensor is not None, "no edge leads to an absent tensor"
        return tensor

    def _source_tensor(self, source: _Source) -> TensorDesc | None:
        """The desc of a node's output; None for a constant, which has none."""
        slots = self.outputs[source.node]
        return slots[source.slot].tensor if slots else None

    def _source_bytes(self, source: _Source) -> int:
        tensor = self._source_tensor(source)
        if tensor is not None:
            return tensor.total_tensor_size_in_bytes
        node = self.graph.nodes[source.node]
        assert isinstance(node, ConstantDataGraphNodeDesc), "an operator's outputs have tensors"
        return node.content().nbytes

    # -- steps

    def wiring(self) -> Wiring:
        order = self._order()
        storages: dict[_Source, Storage] = {}
        steps = []
        input_tensors: list[TensorDesc | None] = [None] * self.graph.input_count
        for end, source in self.feeds.items():
            if source.node < 0:
                input_tensors[source.slot] = _strictest(input_tensors[source.slot], self._tensor(end))
                storages.setdefault(source, Storage(self._tensor(end).total_tensor_size_in_bytes))
        for node in order:
            desc = self.graph.nodes[node]
            if isinstance(desc, ConstantDataGraphNodeDesc):
                data = desc.content()
                storages[_Source(node, 0)] = Storage(data.nbytes, data)
                continue
            outputs = []
            for slot, item in enumerate(self.outputs[node]):
                storage = None if item.tensor is None else Storage(item.tensor.total_tensor_size_in_bytes)
                outputs.append(storage)
                if storage is not None:
                    storages[_Source(node, slot)] = storage
            inputs = [
                None if item.tensor is None else storages[self.feeds[_End(node, slot)]]
                for slot, item in enumerate(self.inputs[node])
            ]
            steps.append(Step(self.labels[node], desc.operator.desc, tuple(inputs), tuple(outputs)))
        shown = [self.shown[index] for index in range(self.graph.output_count)]
        return Wiring(
            tuple(steps),
            tuple(storages.get(_Source(-1, index)) for index in range(self.graph.input_count)),
            tuple(storages[source] for source in shown),
            tuple(input_tensors),
            tuple(self._shown_tensor(source) for source in shown),
        )

    def _shown_tensor(self, source: _Source) -> TensorDesc:
        tensor = self._source_tensor(source)
        if tensor is not None:
            return tensor
        fed = next((end for end, other in self.feeds.items() if other == source), None)
        if fed is None:
            raise _error(
                f"Nodes[{source.node}]",
                f"{self.labels[source.node]} must feed a node, whose desc says what its data is",
                None,
            )
        return self._tensor(fed)

    def _order(self) -> list[int]:
        """The nodes, each after those that feed it; among those that could come next, the one with the lowest index."""
        before: list[set[int]] = [set() for _ in self.graph.nodes]
        for end, source in self.feeds.items():
            if source.node >= 0:
                before[end.node].add(source.node)
        order: list[int] = []
        ready = [node for node, needed in enumerate(before) if not needed]
        after: dict[int, set[int]] = {}
        for node, needed in enumerate(before):
            for other in needed:
                after.setdefault(other, set()).add(node)
        while ready:
            node = heapq.heappop(ready)
            order.append(node)
            for other in after.get(node, ()):
                before[other].discard(node)
                if not before[other]:
                    heapq.heappush(ready, other)
        if len(order) < len(before):
            raise self._cycle_error(_cycle(before))
        return order

    def _cycle_error(self, cycle: Sequence[int]) -> InvalidArgumentError:
        names = " -> ".join(str(self.labels[node]) for node in (*cycle, cycle[0]))
        return _error("IntermediateEdges", f"must have no cycle, and here is one: {names}", list(cycle))

    # -- names

    def _named(self, end: _End, slots: tuple[Slot, ...]) -> str:
        return f"{slots[end.slot].field.dml_name} of {self.labels[end.node]}"

    def _spelled(self, source: _Source) -> str:
        if source.node < 0:
            return f"graph input {source.slot}"
        slots = self.outputs[source.node]
        return self._named(_End(*source), slots) if slots else str(self.labels[source.node])


def _strictest(known: TensorDesc | None, other: TensorDesc) -> TensorDesc:
    """The tensor of a graph input from those of the node inputs that it feeds: the first, with the largest of their
    guaranteed alignments."""
    if known is None:
        return other
    most = max(known.guaranteed_base_offset_alignment, other.guaranteed_base_offset_alignment)
    return replace(known, guaranteed_base_offset_alignment=most)


def _cycle(before: Sequence[set[int]]) -> list[int]:
    """A cycle among nodes that still wait for others: walking back from any of them comes round to one."""
    node = next(index for index, needed in enumerate(before) if needed)
    walked: list[int] = []
    while node not in walked:
        walked.append(node)
        node = min(before[node])
    return walked[walked.index(node) :][::-1]


def _check_index(field: str, index: object, count: int, what: str) -> None:
    if not isinstance(index, int) or not 0 <= index < count:
        raise _error(field, f"must be an index of the {count} {what}", index)


def _error(field: str, rule: str, value: object, expected: object = None) -> InvalidArgumentError:
    return InvalidArgumentError(rule, operator=_GRAPH, field=field, value=value, expected=expected)
