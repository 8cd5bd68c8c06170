"""From a model to operators: what is folded when the model is loaded, and the trace of one set of input shapes.

Loading finds every node's converter, folds the constants and refuses what cannot run. A trace then walks the nodes
with concrete shapes: shape arithmetic runs on the host, everything else becomes ``Step``s of DirectML operators. All of
it is pure Python; nothing here needs a device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dmlvk.errors import UnsupportedNodeError
from dmlvk.graph.flow import Memory
from dmlvk.graph.passes import optimized
from dmlvk.graph.step import Step, Storage
from dmlvk.onnx import convert  # noqa: F401  # fills the registry
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.host import SHAPE_OPERATORS, HostEvaluator, may_run_on_host, shape_of
from dmlvk.onnx.model import Array, ElementKind, Model, Node, kind_of
from dmlvk.onnx.registry import Row, find_row, missing_reason
from dmlvk.onnx.values import Sizes, Value, constant_value, packed_value

FOLDED: Final = "constant, folded when the model was loaded"
SHAPE: Final = "shape arithmetic"
MERGED: Final = "part of another node's operator"


class NodeRecord(NamedTuple):
    """Where a node went.

    Attributes:
        name, op_type: The node.
        reason: Why it did not run on the device; "" where it did.
    """

    name: str
    op_type: str
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Trace:
    """What one set of input shapes takes.

    Attributes:
        steps: Operators in order.
        inputs: Model inputs on the device, by name; those that no step reads are there too.
        outputs: Model outputs by name: on the device, or known before the run.
        device_nodes: Nodes that became operators.
        host_nodes: Nodes evaluated on the host, shape arithmetic all of them.
        removed_nodes: Nodes that became views, or parts of the operators of others, or whose outputs nothing reads.
    """

    steps: tuple[Step, ...]
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value | Array]
    device_nodes: tuple[NodeRecord, ...]
    host_nodes: tuple[NodeRecord, ...]
    removed_nodes: tuple[NodeRecord, ...]


class Network:
    """A loaded model: constants folded, every other node with its converter.

    Args:
        model: The model.
        without: Passes that traces leave out (see ``dmlvk.graph.passes``).

    Attributes:
        model: The model, without the nodes that are folded: their attributes may hold all the weights once more.
        host_inputs: Inputs that only say shapes or the like and are read before a plan is made, not by the device.
        folded: Nodes evaluated once and for all.
        uploads: Device values of constants, by name, shared by all traces.
        kept: Device values that nodes keep from one run to the next, shared by all traces.

    Raises:
        UnsupportedNodeError: a node that no converter, or no row of DirectML's, can run.
        ModelError: a node that does not fit its constants.
    """

    def __init__(self, model: Model, without: Collection[str] = ()) -> None:
        self._without = frozenset(without)
        self._derived: Memory = {}
        self.constants: dict[str, Array] = dict(model.initializers)
        self.uploads: dict[str, Value] = {}
        self.kept: dict[Node, Value] = {}
        self.folded: list[NodeRecord] = []
        nodes = self._fold(model)
        self.model = replace(model, nodes=tuple(nodes))
        self._evaluator = HostEvaluator(model.opsets)
        self.host_inputs = _host_inputs(model, nodes)
        self._nodes = self._find_rows(nodes)

    # -- loading

    def _fold(self, model: Model) -> list[Node]:
        """Evaluates nodes of constants; returns the others."""
        evaluator = HostEvaluator(model.opsets)
        rest = []
        for node in model.nodes:
            if may_run_on_host(node) and all(name in self.constants for name in node.inputs if name):
                inputs = [self.constants[name] if name else None for name in node.inputs]
                self.constants.update(_evaluate(evaluator, node, inputs))
                self.folded.append(NodeRecord(node.name, node.op_type, FOLDED))
            else:
                rest.append(node)
        return rest

    def _find_rows(self, nodes: Sequence[Node]) -> list[tuple[Node, Row | None]]:
        """Each node with its row, None for shape arithmetic, once all of them are known to be supported."""
        known = {*self.constants, *self.host_inputs}
        found: list[tuple[Node, Row | None]] = []
        for node in nodes:
            if _is_shape_arithmetic(node, known):
                known.update(node.outputs)
                found.append((node, None))
            else:
                found.append((node, self._supported_row(node, known)))
        return self._generated_on_device(found)

    def _generated_on_device(self, found: list[tuple[Node, Row | None]]) -> list[tuple[Node, Row | None]]:
        """Gives nodes such as Range back their rows where only the device reads what they make: it makes it where it is
        wanted, and no plan keeps a copy."""
        on_host: set[str] = set()
        placed: list[tuple[Node, Row | None]] = []
        for node, row in reversed(found):
            own = find_row(node)
            if own is not None and own.generates(node) and on_host.isdisjoint(node.outputs):
                known_type = self.model.inferred_types.get(node.inputs[0])
                row = own if known_type in own.types else row
            wanted = range(len(node.inputs)) if row is None else row.host_inputs
            on_host.update(name for index, name in enumerate(node.inputs) if index in wanted)
            placed.append((node, row))
        return placed[::-1]

    def _supported_row(self, node: Node, known: set[str]) -> Row:
        row = find_row(node)
        if row is None:
            raise _unsupported(node, missing_reason(node))
        first = node.inputs[0] if node.inputs else ""
        if first in self.model.inferred_types:
            _check_type(node, row, self.model.inferred_types[first])
        for index in row.host_inputs:
            name = node.inputs[index] if index < len(node.inputs) else ""
            if name and name not in known:
                raise _unsupported(node, f"input {index}, {name!r}, must be known before the run, but it is computed")
        return row

    # -- tracing

    def trace(self, sizes: Mapping[str, Sizes], host_feeds: Mapping[str, Array]) -> Trace:
        """What runs for inputs of these sizes.

        Args:
            sizes: Of every model input that is not among ``host_inputs``.
            host_feeds: Values of those that are.

        Raises:
            ModelError: a node does not fit the sizes.
            UnsupportedNodeError: a node needs more than its DirectML operator allows.
        """
        inputs = {
            info.name: packed_value(info.dtype, sizes[info.name])
            for info in self.model.inputs
            if info.name not in self.host_inputs
        }
        values: dict[str, Value | Array] = {**self.constants, **host_feeds, **inputs}
        uploads: dict[str, Value] = {}

        def upload(name: str, array: Array) -> Value:
            known = self.uploads if name in self.constants else uploads
            if not name:
                return constant_value(array)
            if name not in known:
                known[name] = constant_value(array)
            return known[name]

        steps: list[Step] = []
        host_nodes = []
        for node, row in self._nodes:
            operands = [values[name] if name else None for name in node.inputs]
            if row is None:
                values.update(self._on_host(node, operands))
                host_nodes.append(NodeRecord(node.name, node.op_type, SHAPE))
                continue
            if operands and operands[0] is not None:
                _check_type(node, row, kind_of(operands[0].dtype))
            conversion = Conversion(node, operands, upload, self._keep)
            result = row.convert(conversion)
            results = result if isinstance(result, tuple) else (result,)
            steps += conversion.steps
            made = {name: value for name, value in zip(node.outputs, results, strict=False) if value is not None}
            for index, name in enumerate(node.outputs):
                if name and name not in made:
                    raise _unsupported(node, f"output {index}, {name!r}, has no implementation")
            values.update(made)
        self._pack_outputs(values, steps)
        outputs = {info.name: values[info.name] for info in self.model.outputs}
        return self._finished(steps, inputs, outputs, tuple(host_nodes))

    def _keep(self, node: Node, initial: Callable[[], Array]) -> Value:
        if node not in self.kept:
            self.kept[node] = constant_value(initial())
        return self.kept[node]

    def _on_host(self, node: Node, operands: Sequence[Value | Array | None]) -> dict[str, Array]:
        if _needs_shape_only(node):
            operand = operands[0]
            assert operand is not None, "ONNX's checker has seen to required inputs"
            return {node.outputs[0]: shape_of(node, operand.sizes if isinstance(operand, Value) else operand.shape)}
        return _evaluate(self._evaluator, node, [None if isinstance(item, Value) else item for item in operands])

    def _pack_outputs(self, values: dict[str, Value | Array], steps: list[Step]) -> None:
        """Copies model outputs that are strided views: what the caller downloads is row-major."""
        makers = {name: node for node, _ in self._nodes for name in node.outputs}
        for info in self.model.outputs:
            value = values[info.name]
            if isinstance(value, Value) and not value.is_packed and 0 not in value.sizes:
                conversion = Conversion(makers[info.name], (), lambda name, array: constant_value(array), self._keep)
                values[info.name] = conversion.copy(value)
                steps += conversion.steps

    def _finished(
        self,
        steps: list[Step],
        inputs: Mapping[str, Value],
        outputs: Mapping[str, Value | Array],
        host_nodes: tuple[NodeRecord, ...],
    ) -> Trace:
        needed: set[Storage] = {value.storage for value in outputs.values() if isinstance(value, Value)}
        kept: list[Step] = []
        for step in reversed(steps):
            if not needed.isdisjoint(step.written()):
                needed.update(step.read())
                kept.append(step)
        results = [value.storage for value in outputs.values() if isinstance(value, Value)]
        optimal = optimized(reversed(kept), results, without=self._without, memory=self._derived)
        read = {step.origin for step in kept}
        launches = {step.origin for step in optimal}
        dropped = {step.origin for step in steps}
        device_nodes, removed_nodes = [], []
        for node, row in self._nodes:
            if node in launches:
                device_nodes.append(NodeRecord(node.name, node.op_type))
            elif row is not None:
                reason = (
                    MERGED if node in read else "nothing reads its outputs" if node in dropped else "a view of its input"
                )
                removed_nodes.append(NodeRecord(node.name, node.op_type, reason))
        return Trace(optimal, inputs, outputs, tuple(device_nodes), host_nodes, tuple(removed_nodes))


def _evaluate(evaluator: HostEvaluator, node: Node, inputs: Sequence[Array | None]) -> dict[str, Array]:
    results = evaluator.evaluate(node, inputs)
    return dict(zip((name for name in node.outputs if name), results, strict=True))


def _unsupported(node: Node, reason: str) -> UnsupportedNodeError:
    return UnsupportedNodeError(node.name, node.op_type, node.domain, node.version, reason)


def _check_type(node: Node, row: Row, data_type: ElementKind | None) -> None:
    if data_type not in row.types:
        listed = ", ".join(item.name for item in row.types)
        found = data_type.name if data_type is not None else "of a type that no device tensor can have"
        raise _unsupported(node, f"its first input is {found}; the data types that have kernels are {listed}")


def _is_shape_arithmetic(node: Node, known: set[str]) -> bool:
    """Whether the node's outputs follow from shapes and constants."""
    return _needs_shape_only(node) or (may_run_on_host(node) and all(name in known for name in node.inputs if name))


def _needs_shape_only(node: Node) -> bool:
    return node.domain == "" and node.op_type in SHAPE_OPERATORS


def _host_inputs(model: Model, nodes: Sequence[Node]) -> frozenset[str]:
    """Model inputs that converters must know before the run, such as the shape of a Reshape, or from which only such
    values follow, and that nothing else reads; scalars, such as the length of a Range, whatever else reads them. Each of
    their values has a plan of its own."""
    wanted: set[str] = set()
    leading: set[str] = set()  # what leads to a wanted value, other readers or not
    other = {info.name for info in model.outputs}
    for node in reversed(nodes):
        row = find_row(node)
        made = {name for name in node.outputs if name}
        may_precede = may_run_on_host(node) and not _needs_shape_only(node)
        precedes = may_precede and made <= wanted and made.isdisjoint(other)
        leads = may_precede and not made.isdisjoint(leading)
        for index, name in enumerate(node.inputs):
            is_wanted = row is not None and index in row.host_inputs
            (wanted if precedes or is_wanted else other).add(name)
            if leads or is_wanted:
                leading.add(name)
    scalars = {info.name for info in model.inputs if info.shape == ()}
    return frozenset(info.name for info in model.inputs if info.name in (wanted - other) | (leading & scalars))
