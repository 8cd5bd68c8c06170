"""A graph cut into what one plan can compute and what the host does in between.

A *region* is a run of nodes that a trace can follow and a plan can compile. Nodes that the host drives, such as a Loop, or
what works on sequences, stand between regions, and their bodies are programs of their own. A model that needs none of it is
one region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from dmlvk.onnx.model import Node
from dmlvk.onnx.registry import Row

Placed = tuple[Node, Row | None]
"""A node with its row; None for shape arithmetic, and for control flow that a trace follows."""


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes for one plan.

    Attributes:
        nodes: In order.
        inputs: Names of the values that they read and others make.
        host_inputs: Those of them that are read before a plan is made, not by the device.
        outputs: Names of what is read outside.
    """

    nodes: Sequence[Placed]
    inputs: tuple[str, ...]
    host_inputs: frozenset[str]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Driven:
    """A node that the host drives.

    Attributes:
        node: The node.
        bodies: Its bodies by attribute.
    """

    node: Node
    bodies: Mapping[str, Program]


@dataclass(frozen=True, eq=False)
class Program:
    """A graph or a body.

    Attributes:
        parts: In order, each with the names that nothing reads after it.
        inputs: What a body is handed.
        outputs: What it makes.
        types: What the file says of inputs and outputs.
        reads: Values from outside.
        host_reads: Those of them and of the inputs that the host reads.
    """

    parts: tuple[tuple[Region | Driven, frozenset[str]], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, onnx.TypeProto]
    reads: frozenset[str]
    host_reads: frozenset[str]

    def count_regions(self) -> int:
        """Regions, those of bodies among them."""
        return sum(
            1 if isinstance(part, Region) else sum(body.count_regions() for body in part.bodies.values())
            for part, _ in self.parts
        )
