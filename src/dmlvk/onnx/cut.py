"""Cuts graphs into programs, and finds each node's row.

A node that needs a computed value on the host, such as the shape of a Reshape, comes after the region that computes it, and
so does what reads the node's outputs. All others go into that region, whatever their order in the file: so the host reads at
once what many nodes need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx

from dmlvk.onnx.control import Body, can_be_traced, control_inputs, flattened, unused
from dmlvk.onnx.fallback import Fallback, HostGroup, HostNode
from dmlvk.onnx.host_nodes import needs_shape_only
from dmlvk.onnx.host_values import Ahead, computed_ahead, is_shape_arithmetic, read_by_driver, wanted_on_host
from dmlvk.onnx.model import ElementKind, Node
from dmlvk.onnx.node_facts import NodeFacts, invalid_node, unsupported_node
from dmlvk.onnx.program import DrivenNode, GraphProgram, HostNumbers, NodeRegion, Placed, find_driven
from dmlvk.onnx.registry import COUNTING, TAKING, Row, find_counting, find_row, missing_reason
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import ModelError, UnsupportedNodeError

_SEQUENCE, _OPTIONAL = "seq", "optional"
_MAKES_SEQUENCE: Final = frozenset(
    {"SequenceMap", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SplitToSequence"}
)


class _ComputedError(Exception):
    """A node needs a value on the host that is not known there."""

    def __init__(self, name: str) -> None:
        self.name = name


class Cutter:
    """Finds each node's row and cuts graphs into programs.

    Args:
        bodies: The bodies of the nodes that have some.
        types: The types of the graph's values, as far as they are known.
        constants: Names of constants.
        inputs: Names of the graph's inputs.
        without_traces: Nodes whose bodies no trace shall follow.
        fallback: Runs on the host what no device can do; None where that is refused.

    Attributes:
        placed: The nodes of those bodies that a trace follows, with their rows.
        reading: Nodes for which the host reads back what the device has computed.
        doubles: Nodes that compute with 64-bit floats on the device, as far as types are known.
    """

    def __init__(
        self,
        bodies: Mapping[Node, Mapping[str, Body]],
        types: Mapping[str, ElementKind | None],
        constants: Collection[str],
        inputs: Collection[str],
        without_traces: Collection[Node] = (),
        fallback: Fallback | None = None,
    ) -> None:
        self.placed: dict[Body, list[Placed]] = {}
        self.reading: set[Node] = set()
        self.doubles: list[Node] = []
        self._bodies = bodies
        self._types = types
        self._constants, self._inputs = constants, inputs
        self._defined = {*constants, *inputs}
        self._without_traces = without_traces
        self._fallback = fallback
        self._kinds: dict[str, str] = {}
        """Values that are no tensors: "seq", "optional" or "optional seq"."""

    def note_kinds(self, types: Mapping[str, str]) -> None:
        """Notes which inputs are no tensors.

        Args:
            types: ONNX's names of their types.
        """
        kinds = {name: " ".join(text.split("tensor")[0].split("(")).strip() for name, text in types.items()}
        self._kinds.update((name, kind) for name, kind in kinds.items() if kind)

    def program(
        self,
        nodes: Iterable[Node],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        known: Iterable[str],
        types: Mapping[str, onnx.TypeProto],
        ahead: Sequence[Node] = (),
    ) -> GraphProgram:
        """A graph as a program.

        Args:
            nodes: The graph's nodes.
            inputs: The names of its inputs.
            outputs: The names of its outputs.
            known: Names of what the host knows before it runs.
            types: The types of inputs and outputs, as far as the file has them.
            ahead: Nodes that the host computes before all others.

        Raises:
            UnsupportedNodeError: a node that no converter, or no row of DirectML's, can run.
            ModelError: a node that does not fit what it reads.
        """
        known = {*known}
        parts: list[list[Placed] | tuple[HostNode, ...] | DrivenNode | HostNumbers] = []
        if ahead:
            made = {name for node in ahead for name in node.outputs}
            parts.append(HostNumbers(ahead, sorted({name for node in ahead for name in node.inputs if name} - made), ()))
            known |= made
            self._defined |= made
        hosted: list[HostNode] = []
        waiting = deque(nodes)

        def release() -> None:
            if hosted:
                parts.append((*hosted,))
            hosted.clear()

        while waiting:  # a region a time, and in front of it what of the host reads nothing of it
            found: list[Placed] = []
            in_region, wanted, late = set[str](), set[str](), set[str]()
            later: list[Node] = []
            while waiting:
                node = waiting.popleft()
                read = self._read(node)
                if not read.isdisjoint(late):
                    later.append(node)
                    late.update(node.outputs)
                    continue
                self._check_inputs(node)
                is_driven = self._is_driven(node, known)
                reason = "" if is_driven or self._fallback is None else self._host_reason(self._fallback, node, known)
                if (is_driven or reason) and not read.isdisjoint(in_region):
                    later.append(node)
                    late.update(node.outputs)
                    continue
                if is_driven:
                    release()
                    parts.append(self._driven(node, known))
                    self._note_outputs(node)
                    continue
                if self._fallback is not None and reason:
                    if hosted and hosted[0].node.opsets != node.opsets:
                        release()
                    hosted.append(self._fallback.opened(node, reason))
                    self.note_kinds(self._fallback.types_made(node))
                    self._defined.update(node.outputs)
                    continue
                halves = () if is_shape_arithmetic(node, known) else self._halves(node)
                if halves:
                    waiting.extendleft(reversed(halves))
                    continue
                try:
                    row = self._row(node, known)
                except _ComputedError as computed:
                    if computed.name not in self._inputs:
                        self.reading.add(node)
                    if computed.name in in_region:
                        wanted.add(computed.name)
                        later.append(node)
                        late.update(node.outputs)
                    else:
                        known.add(computed.name)
                        waiting.appendleft(node)
                    continue
                found.append((node, row))
                self._defined.update(node.outputs)
                in_region.update(filter(None, node.outputs))
            release()
            if found:
                parts.append(found)
            known |= wanted
            waiting.extend(later)
        self._check_made(outputs)
        return self._finished(parts, inputs, outputs, known, types)

    # -- one node

    def _read(self, node: Node) -> set[str]:
        """The values that a node and those inside it read, some of which they make themselves."""
        read = {*filter(None, node.inputs)}
        for body in self._bodies.get(node, {}).values():
            read.update(body.outputs, *map(self._read, body.nodes))
        return read

    def _check_inputs(self, node: Node) -> None:
        for name in node.inputs:
            if name and name not in self._defined:
                raise ModelError(f"node {node.name!r} ({node.op_type}) reads {name!r} before it is made")

    def _check_made(self, outputs: Iterable[str]) -> None:
        for name in outputs:
            if name not in self._defined:
                raise ModelError(f"the model is broken: nothing makes the output {name!r} of a graph")

    def _host_reason(self, fallback: Fallback, node: Node, known: set[str]) -> str:
        """Why no device can run a node that nothing drives; "" where one can, as far as types are known."""
        fallback.note(node)
        if node in self._bodies:
            return ""
        if fallback.has_text(node):
            return "text, which no device tensor can hold"
        if not self._kinds.keys().isdisjoint(node.inputs):
            return "it reads what is no tensor"
        if is_shape_arithmetic(node, known):
            return ""
        row = find_counting(node) or find_row(node)
        if row is None:
            return missing_reason(node)
        try:
            row.refuse(self._facts(node))
        except UnsupportedNodeError as error:
            return error.reason
        return ""

    def _facts(self, node: Node) -> NodeFacts:
        return NodeFacts(node, {index: self._types[name] for index, name in enumerate(node.inputs) if name in self._types})

    def _is_driven(self, node: Node, known: set[str]) -> bool:
        """Whether no trace can follow the node, but the host must. One with bodies that a trace can follow is placed."""
        row = find_driven(node)
        if row is None:
            return False
        if node not in self._bodies:
            return row.always or not self._kinds.keys().isdisjoint(node.inputs)
        if not can_be_traced(node) or node in self._without_traces:
            return True
        try:
            self._place_inside(node, known)
        except _ComputedError:
            self._forget_inside(node, known)
            return True
        return False

    def _forget_inside(self, node: Node, known: set[str]) -> None:
        """Takes back what was noted of a node's bodies, whose values have names of their own."""
        for body in self._bodies.get(node, {}).values():
            names = {*body.inputs}.union(*(inner.outputs for inner in body.nodes))
            known -= names
            self._defined -= names
            self.placed.pop(body, None)
            for inner in body.nodes:
                self._forget_inside(inner, known)

    def _place_inside(self, node: Node, known: set[str]) -> None:
        """Rows for a node's bodies; the outputs of an If are known if they are in both branches, the last states of a Loop
        where each round makes known ones of known ones."""
        bodies = self._bodies[node]
        self._check_bodies(node)
        for name in control_inputs(node):
            if name not in known:
                raise _ComputedError(name)
        if node.op_type == "Loop":
            (body,) = bodies.values()
            states = [*zip(node.inputs[2:], body.inputs[2:], body.outputs[1:], node.outputs, strict=False)]
            kept = [state for state in states if state[0] in known]
            while True:
                known.update(body.inputs[:2], (inside for _, inside, _, _ in kept))
                self._place_body(node, body, known)
                still = [state for state in kept if state[2] in known]
                if still == kept:
                    break
                self._forget_inside(node, known)
                kept = still
            if body.outputs[0] not in known:
                raise _ComputedError(body.outputs[0])
            known.update(made for _, _, _, made in kept if made)
            return
        for body in bodies.values():
            self._place_body(node, body, known)
        if node.op_type == "If":
            branches = zip(*(body.outputs for body in bodies.values()), strict=False)
            known.update(name for name, made in zip(node.outputs, branches, strict=False) if known.issuperset(made))

    def _place_body(self, node: Node, body: Body, known: set[str]) -> None:
        """Rows for a body that a trace follows."""
        self._defined.update(body.inputs)
        self._note_inside(node, body)
        placed: list[Placed] = []
        for inner in body.nodes:
            self._check_inputs(inner)
            if self._fallback is not None and self._host_reason(self._fallback, inner, known):
                raise _ComputedError(inner.name)
            if self._is_driven(inner, known) or not self._kinds.keys().isdisjoint(inner.inputs):
                raise _ComputedError(inner.name)
            if not is_shape_arithmetic(inner, known) and find_counting(inner) is not None:
                raise _ComputedError(inner.name)
            placed.append((inner, self._row(inner, known)))
            self._defined.update(inner.outputs)
        self._check_made(body.outputs)
        if not self._kinds.keys().isdisjoint((*node.inputs, *body.inputs, *body.outputs)):
            raise _ComputedError(node.name)
        self.placed[body] = self._generated_on_device(placed, {*body.outputs})

    def _check_bodies(self, node: Node) -> None:
        """Whether the node's bodies take what it hands them and make what it makes."""
        bodies, given = self._bodies[node], len(node.inputs)
        wanted = ["else_branch", "then_branch"] if node.op_type == "If" else ["body"]
        if sorted(bodies) != wanted:
            raise invalid_node(node, "the node must have its operator's bodies", sorted(bodies), wanted)
        taken, least = given, len(node.outputs)
        if node.op_type == "If":
            taken = 0
        elif node.op_type == "Loop":  # the condition, and as many states as go in
            taken, least = max(given, 2), 1 + max(least, given - 2)
        elif node.op_type == "Scan" and node.version == 8:  # the lengths stay outside
            taken = given - 1
        for body in bodies.values():
            if len(body.inputs) != taken or len(body.outputs) < least:
                rule = f"a body must have as many inputs as it is handed, and at least {least} outputs"
                raise invalid_node(node, rule, (len(body.inputs), len(body.outputs)), (taken, least))

    def _row(self, node: Node, known: set[str]) -> Row | None:
        """The node's row, None for shape arithmetic, whose outputs are known too, and control flow."""
        if node in self._bodies:
            return None
        for name in node.inputs:
            if name in self._kinds:
                raise invalid_node(node, "every input must be a tensor", name)
        if is_shape_arithmetic(node, known):
            known.update(node.outputs)
            return None
        row = find_row(node)
        if row is None:
            raise unsupported_node(node, missing_reason(node))
        facts = self._facts(node)
        row.refuse(facts)
        if row.doubles and facts.kinds.get(0) is TensorDataType.FLOAT64:
            self.doubles.append(node)
        for index in row.host_inputs:
            name = node.inputs[index] if index < len(node.inputs) else ""
            if name and name not in known:
                raise _ComputedError(name)
        return row

    def _halves(self, node: Node) -> tuple[Node, ...]:
        """A node whose outputs have as many elements as it finds as two: what finds and counts them, and what has the count
        on the host and makes the outputs. No nodes for any other."""
        row = find_counting(node)
        if row is None:
            return ()
        between = []
        for index in range(1 + row.temporaries):
            name = f"{next(filter(None, node.outputs), node.name)}/{'found' if index else 'count'}{index or ''}"
            between.append(unused(name, self._defined))
        inputs = (*between, *(node.inputs[index] for index in row.handed))
        return (
            replace(node, domain=COUNTING, outputs=tuple(between), whole=node.whole or node),
            replace(node, domain=TAKING, inputs=inputs, whole=node.whole or node),
        )

    # -- what the host drives

    def _driven(self, node: Node, known: set[str]) -> DrivenNode:
        row = find_driven(node)
        assert row is not None, "only what has a row is driven"
        return DrivenNode(node, row, self._programs(node, known))

    def _programs(self, node: Node, known: set[str]) -> dict[str, GraphProgram]:
        """The bodies of a node that the host drives."""
        bodies = self._bodies.get(node, {})
        if bodies:
            self._check_bodies(node)
        programs = {}
        for attribute, body in bodies.items():
            handed: dict[str, bool] = {name: _is_scalar(body.types.get(name)) for name in body.inputs}
            inside = {*known}
            if node.op_type == "Loop":
                handed[body.inputs[0]] = True
                inside.add(body.inputs[1])  # while the loop goes on, it is true
                for name, outer in zip(body.inputs[2:], node.inputs[2:], strict=True):
                    if outer in self._kinds:
                        self._kinds[name] = self._kinds[outer]
            self._kinds.update((name, kind) for name in body.inputs if (kind := _kind(body.types.get(name))))
            ahead, nodes = self._parted(node, body, inside)
            inside |= wanted_on_host(handed, nodes, body.outputs, self._bodies, branches=False)
            self._defined.update(body.inputs)
            self._note_inside(node, body)
            programs[attribute] = self.program(nodes, body.inputs, body.outputs, inside, body.types, ahead)
        return programs

    def _parted(self, node: Node, body: Body, known: Collection[str]) -> Ahead:
        """The nodes of a body, those of a loop without what the host computes in each round."""
        if node.op_type == "If":
            return Ahead((), body.nodes)
        read = {name for inner in body.nodes for name in inner.inputs}
        given = (read & self._defined).difference(known, body.inputs, self._kinds)
        if node.op_type == "Loop":
            given.add(body.inputs[0])
        return computed_ahead(body.nodes, body.outputs, self._bodies, known, given, lambda name: unused(name, self._defined))

    def _note_types(self, fallback: Fallback, node: Node) -> None:
        fallback.note(node)
        for body in self._bodies.get(node, {}).values():
            fallback.note_made(node.outputs, body.outputs[node.op_type == "Loop" :])
        if node not in self._bodies:
            fallback.ask(node)

    def _note_inside(self, node: Node, body: Body) -> None:
        """Notes the types of what a node hands to its body, where they are needed."""
        if self._fallback is None:
            return
        if node.op_type == "Loop":
            self._fallback.note_inside(body, ("", "", *node.inputs[2:]))
        else:  # of an old Scan, the lengths stay outside; the branches of an If are handed nothing
            self._fallback.note_inside(body, node.inputs[len(node.inputs) - len(body.inputs) :])

    def _note_outputs(self, node: Node) -> None:
        """Notes what the host makes, and what of it is no tensor."""
        self._defined.update(node.outputs)
        if self._fallback is not None:
            self._note_types(self._fallback, node)
        first = self._kinds.get(node.inputs[0], "") if node.inputs else ""
        if node.op_type in _MAKES_SEQUENCE:
            kinds = [_SEQUENCE] * len(node.outputs)
        elif node.op_type == "Identity":
            kinds = [first]
        elif node.op_type == "Optional":
            declared = node.attributes.get("type")
            kinds = [f"{_OPTIONAL} {first or _kind(declared)}".strip()]
        elif node.op_type == "OptionalGetElement":
            kinds = [first.removeprefix(_OPTIONAL).strip()]
        elif node.op_type in ("If", "Loop"):
            body = next(iter(self._bodies[node].values()))
            made = body.outputs[node.op_type == "Loop" :]
            kinds = [self._kinds.get(name) or _kind(body.types.get(name)) for name in made]
        else:
            kinds = []
        self._kinds.update((name, kind) for name, kind in zip(node.outputs, kinds, strict=False) if kind)

    # -- all of a graph

    def _finished(
        self,
        parts: Sequence[list[Placed] | tuple[HostNode, ...] | DrivenNode | HostNumbers],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        known: set[str],
        types: Mapping[str, onnx.TypeProto],
    ) -> GraphProgram:
        """The program of these parts: which values each hands on, and to whom."""
        read, on_host = {*outputs}, set[str]()  # by what comes later
        finished: list[tuple[NodeRegion | HostGroup | DrivenNode | HostNumbers, frozenset[str]]] = []
        for part in reversed(parts):
            whole: NodeRegion | HostGroup | DrivenNode | HostNumbers
            if isinstance(part, DrivenNode):
                whole = part
                reads = {*filter(None, part.node.inputs)}.union(*(body.reads for body in part.bodies.values()))
                on_host.update(read_by_driver(part.node))
                on_host.update(*(body.host_reads for body in part.bodies.values()))
                made: set[str] = {*part.node.outputs}
            elif isinstance(part, HostNumbers):
                made = {name for node in part.nodes for name in node.outputs}
                reads = {name for name in part.inputs if name not in self._constants}
                on_host |= reads
                whole = replace(part, outputs=sorted(made & read))
            elif isinstance(part, tuple):
                assert self._fallback is not None, "it has opened the nodes"
                made = {name for host, _ in part for name in host.outputs}
                reads = {name for host, _ in part for name in host.inputs if name and name not in self._constants} - made
                whole = self._fallback.group(part, sorted(reads), sorted(made & read))
            else:
                nodes = self._generated_on_device(part, {*on_host})
                read_here, host_here, made = self._operands(nodes)
                reads = {name for name in read_here - made if name not in self._constants}
                host_inputs = frozenset(reads & host_here & known)
                whole = NodeRegion(tuple(sorted(reads)), host_inputs, tuple(sorted(made & read)), nodes)
                on_host |= host_inputs
            finished.append((whole, frozenset(reads - read)))
            read = (read | reads) - made
        return GraphProgram(
            tuple(reversed(finished)), outputs, inputs, types, frozenset(read - {*inputs}), frozenset(on_host & read)
        )

    def _operands(self, nodes: Iterable[Placed]) -> tuple[set[str], set[str], set[str]]:
        """The values that nodes and those inside them read, those among them that the host reads, and the values made."""
        read: set[str] = set()
        on_host: set[str] = set()
        made: set[str] = set()
        for node, row in nodes:
            read.update(filter(None, node.inputs))
            made.update(filter(None, node.outputs))
            if node in self._bodies:
                on_host.update(node.inputs if node.op_type == "Loop" else control_inputs(node))
                for body in self._bodies[node].values():
                    inner = self._operands(self.placed[body])
                    read |= inner[0].union(body.outputs)
                    on_host |= inner[1]
                    made |= inner[2].union(body.inputs)
            elif row is not None:
                on_host.update(name for index, name in enumerate(node.inputs) if index in row.host_inputs)
            elif not needs_shape_only(node):
                on_host.update(node.inputs)
        return read, on_host, made

    def _generated_on_device(self, found: Sequence[Placed], on_host: set[str]) -> list[Placed]:
        """Gives nodes such as Range back their rows where only the device reads what they make: it makes it where it is
        wanted, and no plan keeps a copy."""
        placed: list[Placed] = []
        for node, row in reversed(found):
            own = find_row(node)
            if own is not None and own.generates(node) and on_host.isdisjoint(node.outputs):
                row = own if own.stands_in(node, 0, self._types.get(node.inputs[0])) in own.types else row
            wanted = range(len(node.inputs)) if row is None else row.host_inputs
            on_host.update(name for index, name in enumerate(node.inputs) if index in wanted)
            for body in self._bodies.get(node, {}).values():
                on_host.update(body.outputs)
                on_host.update(name for inner in flattened(body.nodes, self._bodies) for name in inner.inputs)
            placed.append((node, row))
        return placed[::-1]


def _kind(proto: onnx.TypeProto | None) -> str:
    """The kind of value that is no tensor, such as "sequence"; "" for a tensor and where nothing is known."""
    which = None if proto is None else proto.WhichOneof("value")
    if proto is not None and which == "optional_type":
        return f"{_OPTIONAL} {_kind(proto.optional_type.elem_type)}".strip()
    return _SEQUENCE if which == "sequence_type" else ""


def _is_scalar(proto: onnx.TypeProto | None) -> bool:
    return proto is not None and proto.tensor_type.HasField("shape") and not proto.tensor_type.shape.dim
