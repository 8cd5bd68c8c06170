"""Shares out a graph: which nodes the device takes, and in how few parts.

A node is taken if a session of ``dmlvk.onnx`` could run it. ONNX Runtime runs a part as one node, so that no value may
leave it and come back. Each node has a *level*: how often the longest way to it changes from nodes that are taken to
nodes that are not. Nodes of one level that are taken are a part. Whatever lies between two of them is of that level too,
so no way leaves a part and comes back, and there are no more parts than some way through the graph needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import onnx

from dmlvk.onnx.control import names_of
from dmlvk.onnx.external import nodes_within
from dmlvk.onnx.functions import expanded
from dmlvk.onnx.host_nodes import may_run_on_host
from dmlvk.onnx.model import Node, element_kind, read_node
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.program import find_driven
from dmlvk.onnx.registry import find_counting, find_row, missing_reason
from dmlvk.onnx.saved_by_runtime import adopt
from dmlvk.onnx.weights import SplitModel
from dmlvk.spec.errors import DmlvkError

NAME: Final = "DmlvkExecutionProvider"
_WHOLE_NUMBERS: Final = frozenset(
    {onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL, onnx.TensorProto.UINT8}
)
_FEW: Final = 4
"""Nodes that are not worth the copies to the device and back, where none of them is ``_HEAVY``."""
_HEAVY: Final = ("Conv", "Gemm", "MatMul", "Attention", "LSTM", "GRU", "RNN", "Einsum", "Loop", "Scan", "DFT", "STFT")
"""Parts of names of operators that do much with each element: ConvTranspose, QLinearConv and MatMulNBits among them."""


@dataclass
class SharedGraph:
    """A graph of ONNX Runtime's that is to be shared out.

    Args:
        proto: The graph, with the types of all its values.
        weights: The bytes of its large constants.
        opsets: Domain -> version.
        format_version: Of ONNX's file format.

    Attributes:
        refused: Why the device does not take a node, by its place.
    """

    proto: onnx.GraphProto
    weights: Mapping[str, memoryview]
    opsets: Mapping[str, int]
    format_version: int
    refused: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in nodes_within(self.proto.node):
            adopt(node, self.opsets.get("", self.opsets.get("ai.onnx", 0)))
        for node in self.proto.node:
            _leave_out_defaults(node, self.opsets)
        self.types = {item.name: item.type for item in self.proto.value_info}
        self.constants = {item.name: item for item in self.proto.initializer}
        self._reads = [_reads(node) for node in self.proto.node]
        self._makers = {name: at for at, node in enumerate(self.proto.node) for name in node.output if name}
        self._outputs = {item.name for item in self.proto.output}
        opsets = {"" if domain == "ai.onnx" else domain: version for domain, version in self.opsets.items()}
        codes = {name: type.tensor_type.elem_type for name, type in self.types.items() if type.HasField("tensor_type")}
        for at, node in enumerate(self.proto.node):
            if reason := self._refusal(node, opsets, codes):
                self.refused[at] = reason

    def _refusal(self, proto: onnx.NodeProto, opsets: Mapping[str, int], codes: Mapping[str, int]) -> str:
        """Why the device cannot take a node, as far as its operator and the types tell; "" where it may."""
        try:
            node = read_node(proto, opsets)
            kinds = {at: element_kind(codes[name]) for at, name in enumerate(node.inputs) if name in codes}
            row = find_row(node) or find_counting(node)
            if row is not None:
                row.refuse(NodeFacts(node, kinds))
            elif not _runs(node) and expanded(node, codes, {*self.types}) is None:
                return missing_reason(node)
        except DmlvkError as error:
            return getattr(error, "reason", "") or str(error)
        except UnicodeDecodeError as error:  # an attribute of another's
            return str(error)
        for name in (*proto.input, *proto.output):
            if name in codes and element_kind(codes[name]) is None:
                kind = onnx.TensorProto.DataType.Name(codes[name]).lower()
                return f"{name!r} has elements of type {kind}, which no device tensor can hold"
        return ""

    # -- parts

    def parts(self) -> list[tuple[int, ...]]:
        """The parts that the device takes, each the places of its nodes in order."""
        while True:
            parts = self._levels()
            parting = {at for part in parts for at in self._parted(part)}
            if not parting:
                return parts
            for at in parting:
                self.refused[at] = "it hands on what is no tensor, which ONNX Runtime does not take from a provider"

    def _levels(self) -> list[tuple[int, ...]]:
        levels: list[int] = []
        parts: defaultdict[int, list[int]] = defaultdict(list)
        for at in range(len(self.proto.node)):
            before = [self._makers[name] for name in self._reads[at] if self._makers.get(name, at) < at]
            if at in self.refused:
                levels.append(max((levels[maker] + (maker not in self.refused) for maker in before), default=0))
            else:
                levels.append(max((levels[maker] for maker in before), default=0))
                parts[levels[at]].append(at)
        return [tuple(part) for _, part in sorted(parts.items())]

    def _parted(self, part: Sequence[int]) -> list[int]:
        """The nodes of a part that read or make, across its border, what is no tensor."""
        names = {name for name in self.crossing(part) if not self.types[name].HasField("tensor_type")}
        return [at for at in part if not names.isdisjoint((*self._reads[at], *self.proto.node[at].output))]

    def crossing(self, part: Collection[int]) -> list[str]:
        """The names of the values that a part is given and gives."""
        return [*self.inputs(part), *self.outputs(part)]

    def inputs(self, part: Collection[int]) -> list[str]:
        """The names of the values that a part is given, constants aside."""
        made = self._made(part)
        read = dict.fromkeys(name for at in part for name in self._reads[at])
        return [name for name in read if name not in made and name not in self.constants]

    def outputs(self, part: Collection[int]) -> list[str]:
        """The names of the values of a part that others read."""
        inside = set(part)
        outside = {name for at, names in enumerate(self._reads) if at not in inside for name in names}
        return [name for name in self._made(part) if name in outside or name in self._outputs]

    def _made(self, part: Collection[int]) -> dict[str, None]:
        return dict.fromkeys(name for at in part for name in self.proto.node[at].output if name)

    def is_worth_it(self, part: Collection[int]) -> bool:
        """Whether a part is worth the copies that it costs: not a few light nodes, and no arithmetic of whole numbers alone,
        which is mostly that of shapes."""
        if len(part) == len(self.proto.node):
            return True
        nodes = [self.proto.node[at] for at in part]
        made = {self.types[name].tensor_type.elem_type for name in self._made(part) if name in self.types}
        if any(word in node.op_type for node in nodes for word in _HEAVY):
            return True
        return len(nodes) > _FEW and not made <= _WHOLE_NUMBERS

    def model(self, part: Collection[int], names: Mapping[int, str]) -> SplitModel:
        """A part as a model by itself, with weights that ONNX Runtime still has.

        Args:
            part: The places of its nodes.
            names: The names that they are to have.
        """
        graph = onnx.GraphProto(name=self.proto.name or "part")
        for at in part:
            node = graph.node.add()
            node.CopyFrom(self.proto.node[at])
            node.name = names[at]
        inputs, outputs = self.inputs(part), self.outputs(part)
        graph.input.extend(onnx.ValueInfoProto(name=name, type=self.types[name]) for name in inputs)
        graph.output.extend(onnx.ValueInfoProto(name=name, type=self.types[name]) for name in outputs)
        read = dict.fromkeys(name for at in part for name in self._reads[at])
        graph.initializer.extend(self.constants[name] for name in read if name in self.constants)
        known = {*inputs, *outputs, *self.constants}
        graph.value_info.extend(
            onnx.ValueInfoProto(name=name, type=self.types[name])
            for name in self._made(part)
            if name not in known and name in self.types
        )
        light = onnx.ModelProto(ir_version=self.format_version, graph=graph)
        light.opset_import.extend(onnx.helper.make_opsetid(*item) for item in self.opsets.items())
        return SplitModel(light, {name: self.weights[name] for name in read if name in self.weights})

    def names(self) -> dict[int, str]:
        """A name for each node, by its place: its own where it is the only one with it."""
        names: dict[int, str] = {}
        taken: set[str] = set()
        for at, node in enumerate(self.proto.node):
            name = node.name or next((name for name in node.output if name), "")
            names[at] = name if name and name not in taken else f"{name}#{at}"
            taken.add(names[at])
        return names

    def place_of(self, name: str, part: Collection[int], names: Mapping[int, str]) -> int | None:
        """The place of the node of a part with a name, or with a node of that name inside."""
        for at in part:
            if names[at] == name or name in self.proto.node[at].output or name in _inner_names(self.proto.node[at]):
                return at
        return None


def _leave_out_defaults(node: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
    """Takes away attributes that say what their operator's definition says without them: ONNX Runtime writes those of all
    its nodes, and of an RNN they are too many for one direction."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 0), node.domain)
    except onnx.defs.SchemaError:
        return
    kept = [item for item in node.attribute if not _is_default(item, schema)]
    if len(kept) < len(node.attribute):
        del node.attribute[:]
        node.attribute.extend(kept)


def _is_default(attribute: onnx.AttributeProto, schema: onnx.defs.OpSchema) -> bool:
    definition = schema.attributes.get(attribute.name)
    if definition is None or not definition.default_value.name:
        return False
    found = onnx.helper.get_attribute_value(attribute)
    return bool(found == onnx.helper.get_attribute_value(definition.default_value))


def _runs(node: Node) -> bool:
    """Whether something but a row runs the node as it is."""
    return find_driven(node) is not None or may_run_on_host(node)


def _reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """The names of the values that a node and the graphs inside it read from outside."""
    read = dict.fromkeys(filter(None, node.input))
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            read.update(dict.fromkeys(sorted(names_of(attribute.g)[1])))
    return tuple(read)


def _inner_names(node: onnx.NodeProto) -> set[str]:
    """The names of the nodes in a node's graphs, and of what they make."""
    found: set[str] = set()
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                found.update((inner.name, *inner.output), _inner_names(inner))
    return found
