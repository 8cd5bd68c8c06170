"""From a model to operators: what is folded when the model is loaded, and the trace of one set of input shapes.

Loading finds every node's converter, folds the constants and refuses what cannot run. A trace then walks the nodes
with concrete shapes: shape arithmetic runs on the host, everything else becomes ``Step``s of DirectML operators. All of
it is pure Python; nothing here needs a device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dmlvk.errors import ModelError, UnsupportedNodeError
from dmlvk.graph.flow import Memory
from dmlvk.graph.passes import optimized
from dmlvk.graph.step import Step, Storage
from dmlvk.onnx import convert  # noqa: F401  # fills the registry
from dmlvk.onnx.control import Body, bodies_of, flattened, has_bodies, scan_outputs, scan_rounds, without_bodies
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.host import SHAPE_OPERATORS, HostEvaluator, may_run_on_host, shape_of
from dmlvk.onnx.model import Array, ElementKind, Model, Node, kind_of
from dmlvk.onnx.registry import Row, find_row, missing_reason
from dmlvk.onnx.values import Sizes, Value, constant_value, packed_value

FOLDED: Final = "constant, folded when the model was loaded"
SHAPE: Final = "shape arithmetic"
MERGED: Final = "part of another node's operator"
CONTROL: Final = "control flow, followed when planning"


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
        host_nodes: Nodes evaluated on the host, shape arithmetic and control flow all of them.
        removed_nodes: Nodes that became views, or parts of the operators of others, or whose outputs nothing reads.
    """

    steps: tuple[Step, ...]
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value | Array]
    device_nodes: tuple[NodeRecord, ...]
    host_nodes: tuple[NodeRecord, ...]
    removed_nodes: tuple[NodeRecord, ...]


@dataclass
class _Walk:
    """A trace on its way through the nodes.

    Attributes:
        values: What is known so far, by name.
        uploads: Device values of what the host knows in this trace only, by name.
        steps: Operators so far.
        walked: The nodes that it came by, each once, with their rows.
    """

    values: dict[str, Value | Array]
    uploads: dict[str, Value]
    steps: list[Step]
    walked: dict[Node, Row | None]


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
        self._evaluator = HostEvaluator(model.opsets)
        self._bodies: dict[Node, dict[str, Body]] = {}
        self._placed: dict[Body, list[tuple[Node, Row | None]]] = {}
        taken = {*model.initializers, *(info.name for info in model.inputs)}
        taken.update(name for node in model.nodes for name in node.outputs)
        nodes = self._fold(model.nodes, model.opsets, taken)
        self.model = replace(model, nodes=tuple(nodes))
        self.host_inputs = _host_inputs(model, nodes, self._bodies)
        self._nodes = self._find_rows(nodes, {*self.constants, *self.host_inputs})

    # -- loading

    def _fold(self, nodes: Iterable[Node], opsets: Mapping[str, int], taken: set[str]) -> list[Node]:
        """Evaluates nodes of constants, inside of others too; returns the others. ``taken`` are the names of all values."""
        rest = []
        for node in nodes:
            if has_bodies(node):
                bare = without_bodies(node)
                self._bodies[bare] = {
                    name: self._folded(body, opsets, taken) for name, body in bodies_of(node, opsets, taken).items()
                }
                rest.append(bare)
            elif may_run_on_host(node) and all(name in self.constants for name in node.inputs if name):
                inputs = [self.constants[name] if name else None for name in node.inputs]
                self.constants.update(_evaluate(self._evaluator, node, inputs))
                self.folded.append(NodeRecord(node.name, node.op_type, FOLDED))
            else:
                rest.append(node)
        return rest

    def _folded(self, body: Body, opsets: Mapping[str, int], taken: set[str]) -> Body:
        self.constants.update(body.constants)
        return replace(body, nodes=tuple(self._fold(body.nodes, opsets, taken)), constants={})

    def _find_rows(
        self, nodes: Sequence[Node], known: set[str], on_host: Iterable[str] = ()
    ) -> list[tuple[Node, Row | None]]:
        """Each node with its row, None for shape arithmetic and control flow, once all of them are known to be supported.

        Args:
            nodes: Of the model, or of a body.
            known: Names of what is known before the run; what the nodes add to it is added.
            on_host: Names of what they make that the host may read outside.
        """
        found: list[tuple[Node, Row | None]] = []
        for node in nodes:
            if node in self._bodies:
                self._find_rows_inside(node, known)
                found.append((node, None))
            elif _is_shape_arithmetic(node, known):
                known.update(node.outputs)
                found.append((node, None))
            else:
                found.append((node, self._supported_row(node, known)))
        return self._generated_on_device(found, {*on_host})

    def _find_rows_inside(self, node: Node, known: set[str]) -> None:
        """Rows for the bodies; the outputs of an If are known if they are in both branches."""
        if node.op_type == "If" and node.inputs[0] not in known:
            raise _unsupported(node, f"its condition, {node.inputs[0]!r}, must be known before the run, but it is computed")
        bodies = self._bodies[node].values()
        for body in bodies:
            self._placed[body] = self._find_rows(body.nodes, known, body.outputs)
        if node.op_type == "If":
            branches = zip(*(body.outputs for body in bodies), strict=False)
            known.update(name for name, made in zip(node.outputs, branches, strict=False) if known.issuperset(made))

    def _generated_on_device(self, found: list[tuple[Node, Row | None]], on_host: set[str]) -> list[tuple[Node, Row | None]]:
        """Gives nodes such as Range back their rows where only the device reads what they make: it makes it where it is
        wanted, and no plan keeps a copy."""
        placed: list[tuple[Node, Row | None]] = []
        for node, row in reversed(found):
            own = find_row(node)
            if own is not None and own.generates(node) and on_host.isdisjoint(node.outputs):
                known_type = self.model.inferred_types.get(node.inputs[0])
                row = own if known_type in own.types else row
            wanted = range(len(node.inputs)) if row is None else row.host_inputs
            on_host.update(name for index, name in enumerate(node.inputs) if index in wanted)
            for body in self._bodies.get(node, {}).values():
                on_host.update(body.outputs)
                on_host.update(name for inner in flattened(body.nodes, self._bodies) for name in inner.inputs)
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
        walk = _Walk({**self.constants, **host_feeds, **inputs}, {}, [], {})
        self._follow(self._nodes, walk)
        self._pack_outputs(walk)
        outputs = {info.name: walk.values[info.name] for info in self.model.outputs}
        return self._finished(walk, inputs, outputs)

    def _follow(self, nodes: Iterable[tuple[Node, Row | None]], walk: _Walk) -> None:
        """Takes a trace through nodes."""
        values = walk.values
        for node, row in nodes:
            operands = [values[name] if name else None for name in node.inputs]
            walk.walked[node] = row
            if node in self._bodies:
                inner = self._follow_branch(node, walk) if node.op_type == "If" else self._unroll(node, operands, walk)
                values.update(zip(node.outputs, inner, strict=False))  # the last ones may be left out
                continue
            if row is None:
                values.update(self._on_host(node, operands))
                continue
            if operands and operands[0] is not None:
                _check_type(node, row, kind_of(operands[0].dtype))
            conversion = self._conversion(node, operands, walk)
            result = row.convert(conversion)
            results = result if isinstance(result, tuple) else (result,)
            walk.steps += conversion.steps
            made = {name: value for name, value in zip(node.outputs, results, strict=False) if value is not None}
            for index, name in enumerate(node.outputs):
                if name and name not in made:
                    raise _unsupported(node, f"output {index}, {name!r}, has no implementation")
            values.update(made)

    def _conversion(self, node: Node, operands: Sequence[Value | Array | None], walk: _Walk) -> Conversion:
        def upload(name: str, array: Array) -> Value:
            known = self.uploads if name in self.constants else walk.uploads
            if not name:
                return constant_value(array)
            if name not in known:
                known[name] = constant_value(array)
            return known[name]

        return Conversion(node, operands, upload, self._keep)

    def _follow_branch(self, node: Node, walk: _Walk) -> list[Value | Array]:
        condition = walk.values[node.inputs[0]]
        assert not isinstance(condition, Value), "a condition is known before the run"
        if condition.size != 1:
            raise ModelError(f"node {node.name!r} (If): a condition of sizes {condition.shape}")
        body = self._bodies[node]["then_branch" if condition.item() else "else_branch"]
        self._follow(self._placed[body], walk)
        return [walk.values[name] for name in body.outputs]

    def _unroll(self, node: Node, operands: Sequence[Value | Array | None], walk: _Walk) -> list[Value | Array]:
        """A Scan, its body once for each element; every tensor is on the device."""
        (body,) = self._bodies[node].values()
        conversion = self._conversion(node, operands, walk)
        rounds = scan_rounds(conversion, body)
        states = [walk.values[name] for name in node.inputs[: len(body.inputs) - len(rounds[0])]]
        made: list[list[Value | Array]] = []
        walk.steps += conversion.steps
        for elements in rounds:
            walk.values.update(zip(body.inputs, (*states, *elements), strict=True))
            self._follow(self._placed[body], walk)
            results = [walk.values[name] for name in body.outputs]
            states = results[: len(states)]
            made.append(results[len(states) :])
        conversion = self._conversion(node, [*states, *(item for results in made for item in results)], walk)
        stacked = scan_outputs(conversion, len(states), len(rounds))
        walk.steps += conversion.steps
        return [*states, *stacked]

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

    def _pack_outputs(self, walk: _Walk) -> None:
        """Copies model outputs that are strided views: what the caller downloads is row-major."""
        makers = {name: node for node, _ in self._nodes for name in node.outputs}
        for info in self.model.outputs:
            value = walk.values[info.name]
            if isinstance(value, Value) and not value.is_packed and 0 not in value.sizes:
                conversion = self._conversion(makers[info.name], (), walk)
                walk.values[info.name] = conversion.copy(value)
                walk.steps += conversion.steps

    def _finished(self, walk: _Walk, inputs: Mapping[str, Value], outputs: Mapping[str, Value | Array]) -> Trace:
        needed: set[Storage] = {value.storage for value in outputs.values() if isinstance(value, Value)}
        kept: list[Step] = []
        for step in reversed(walk.steps):
            if not needed.isdisjoint(step.written()):
                needed.update(step.read())
                kept.append(step)
        results = [value.storage for value in outputs.values() if isinstance(value, Value)]
        optimal = optimized(reversed(kept), results, without=self._without, memory=self._derived)
        read = {step.origin for step in kept}
        launches = {step.origin for step in optimal}
        dropped = {step.origin for step in walk.steps}
        device_nodes, host_nodes, removed_nodes = [], [], []
        for node, row in walk.walked.items():
            if node in launches:
                device_nodes.append(NodeRecord(node.name, node.op_type))
            elif row is None:
                host_nodes.append(NodeRecord(node.name, node.op_type, CONTROL if node in self._bodies else SHAPE))
            else:
                reason = (
                    MERGED if node in read else "nothing reads its outputs" if node in dropped else "a view of its input"
                )
                removed_nodes.append(NodeRecord(node.name, node.op_type, reason))
        return Trace(optimal, inputs, outputs, tuple(device_nodes), tuple(host_nodes), tuple(removed_nodes))


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


def _host_inputs(model: Model, nodes: Sequence[Node], bodies: Mapping[Node, Mapping[str, Body]]) -> frozenset[str]:
    """Model inputs that converters must know before the run, such as the shape of a Reshape or the condition of an If, or
    from which only such values follow, and that nothing else reads; scalars, such as the length of a Range, whatever else
    reads them. Each of their values has a plan of its own."""
    wanted: set[str] = set()
    leading: set[str] = set()  # what leads to a wanted value, other readers or not
    other = {info.name for info in model.outputs}
    for node in reversed([*flattened(nodes, bodies)]):
        row = find_row(node)
        made = {name for name in node.outputs if name}
        may_precede = may_run_on_host(node) and not _needs_shape_only(node)
        precedes = may_precede and made <= wanted and made.isdisjoint(other)
        leads = may_precede and not made.isdisjoint(leading)
        for body in bodies.get(node, {}).values():
            other.update(body.outputs)
        decides = (0,) if node in bodies and node.op_type == "If" else row.host_inputs if row is not None else ()
        for index, name in enumerate(node.inputs):
            is_wanted = index in decides
            (wanted if precedes or is_wanted else other).add(name)
            if leads or is_wanted:
                leading.add(name)
    scalars = {info.name for info in model.inputs if info.shape == ()}
    return frozenset(info.name for info in model.inputs if info.name in (wanted - other) | (leading & scalars))
