"""A graph cut into what one plan can compute and what the host does in between.

A *region* is a run of nodes that a trace can follow and a plan can compile. Nodes that the host drives, such as a Loop, or
what works on sequences, stand between regions, and their bodies are programs of their own. A model that needs none of it is
one region.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import onnx

from dmlvk.engine.run import Program, Run, Scope
from dmlvk.engine.tensors import Item
from dmlvk.engine.trace import Label, Region
from dmlvk.onnx.host_nodes import HostEvaluator
from dmlvk.onnx.model import Node
from dmlvk.onnx.model_run import ModelRun
from dmlvk.onnx.node_facts import unsupported_node
from dmlvk.onnx.registry import Row
from dmlvk.onnx.values import Value
from dmlvk.onnx.versions import serving_version

Driver = Callable[[ModelRun, "DrivenNode", Sequence[Item], Scope], Sequence[Item]]
"""Makes a node's outputs of its inputs; the scope has the values that its bodies may read."""


@dataclass(frozen=True)
class DrivenRow:
    """An operator of ONNX's own domain that the host drives around the device's graphs.

    Attributes:
        reason: Why, for the report.
        host_inputs: Inputs that the host reads, by index.
        always: Whether nothing else runs it.
        run: The function that runs the node on the host.
    """

    reason: str
    host_inputs: tuple[int, ...]
    always: bool
    run: Driver = field(repr=False)


DRIVEN: dict[tuple[str, int], DrivenRow] = {}
"""(operator, since-version) -> row, filled by ``dmlvk.onnx.loops`` and ``dmlvk.onnx.sequences``."""


def drives(
    op_type: str, *since: int, reason: str, host_inputs: tuple[int, ...] = (), always: bool = True
) -> Callable[[Driver], Driver]:
    """Registers the decorated function for an operator's since-versions; see ``DrivenRow``."""

    def register(run: Driver) -> Driver:
        DRIVEN.update(((op_type, version), DrivenRow(reason, host_inputs, always, run)) for version in since)
        return run

    return register


def find_driven(node: Node) -> DrivenRow | None:
    """The row of a node that the host may drive, or None."""
    return _serving(node.op_type, node.version) if node.domain == "" else None


@functools.cache
def _serving(op_type: str, version: int) -> DrivenRow | None:
    since = serving_version(op_type, "", version, (key[1] for key in DRIVEN if key[0] == op_type))
    return None if since is None else DRIVEN[op_type, since]


Placed = tuple[Node, Row | None]
"""A node with its row; None for shape arithmetic, and for control flow that a trace follows."""


class State(NamedTuple):
    """An input that is changed in place.

    Attributes:
        output: The name of what it is after a run.
        value: The input.
    """

    output: str
    value: Value


@dataclass(frozen=True, eq=False)
class NodeRegion(Region):
    """Nodes for one compiled graph.

    Attributes:
        nodes: The nodes in order, each with its row.
        states: Inputs that lie where a run has them, by name, each with the output that goes to the same memory.
    """

    nodes: Sequence[Placed]
    states: Mapping[str, State] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DrivenNode:
    """A node that the host drives.

    Attributes:
        node: The node.
        row: The row of its operator.
        bodies: Its bodies by attribute.
    """

    node: Node
    row: DrivenRow
    bodies: Mapping[str, GraphProgram]

    @property
    def inputs(self) -> Sequence[str]:
        """Names of its operands, "" for one that is left out."""
        return self.node.inputs

    @property
    def outputs(self) -> Sequence[str]:
        """Names of what it makes, "" for what nothing reads."""
        return self.node.outputs

    @functools.cached_property
    def host_inputs(self) -> Collection[str]:
        """Names of the operands that the host reads."""
        return [name for index, name in enumerate(self.node.inputs) if name and index in self.row.host_inputs]

    @property
    def labels(self) -> Mapping[Any, Label]:
        """The label of the node that reports name."""
        whole = self.node.whole or self.node
        return {whole: Label(whole.name, whole.op_type, self.row.reason)}

    def run(self, run: Run, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
        """The outputs for these operands, in their order in the model."""
        assert isinstance(run, ModelRun), "a model runs as one"
        return self.row.run(run, self, operands, scope)


@dataclass(frozen=True, eq=False)
class HostNumbers:
    """Nodes that the host computes in each round of values that it has, for regions that want to know them.

    Attributes:
        nodes: The nodes in order.
        inputs: Names of what they read.
        outputs: Names of what is read of them.
    """

    nodes: Sequence[Node]
    inputs: Sequence[str]
    outputs: Sequence[str]

    @property
    def host_inputs(self) -> Collection[str]:
        """Names of what the host reads: all."""
        return self.inputs

    @property
    def labels(self) -> Mapping[Any, Label]:
        """The label of each node."""
        wholes = (node.whole or node for node in self.nodes)
        return {whole: Label(whole.name, whole.op_type, "numbers that the host wants in each round") for whole in wholes}

    def run(self, run: Run, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
        """The outputs for these operands, in their order in the model."""
        assert isinstance(run, ModelRun), "a model runs as one"
        given = zip(self.inputs, operands, strict=True)
        values = {name: run.required(self.nodes[0], 0, item).on_host() for name, item in given}
        evaluator = HostEvaluator(run.limits)
        for node in self.nodes:
            made = evaluator.evaluate(node, [values[name] if name else None for name in node.inputs])
            if made is None:
                raise unsupported_node(node, "the host wants what it makes, and has no numbers of its type")
            values.update(zip(node.outputs, made, strict=True))
        return [run.carrier.tensor(values[name]) for name in self.outputs]


@dataclass(frozen=True, eq=False)
class GraphProgram(Program):
    """A graph or a body.

    Attributes:
        inputs: The names of the values that a body is handed.
        types: The types of inputs and outputs, as far as the file has them.
        reads: Values from outside.
        host_reads: The values from outside and the inputs that the host reads.
    """

    inputs: tuple[str, ...]
    types: Mapping[str, onnx.TypeProto]
    reads: frozenset[str]
    host_reads: frozenset[str]

    def count_regions(self) -> int:
        """Regions, those of bodies among them."""
        return sum(
            sum(body.count_regions() for body in part.bodies.values())
            if isinstance(part, DrivenNode)
            else isinstance(part, NodeRegion)
            for part, _ in self.parts
        )
