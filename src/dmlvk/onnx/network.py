"""Turns a model into operators: folds constants when it is loaded, and makes the trace of one set of input shapes.

Loading finds every node's converter, folds the constants, cuts the rest into a program and refuses what cannot run. A trace
then walks the nodes of a region with concrete shapes: shape arithmetic runs on the host, everything else becomes ``Step``s
of DirectML operators. All of it is pure Python; nothing here needs a device. Constants that take one are a network of their
own, which the session runs once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dmlvk.engine.trace import Label, Numbers, Region, Spec, Trace
from dmlvk.graph.collector import collector_waits
from dmlvk.graph.connected import connected
from dmlvk.graph.passes import optimized
from dmlvk.graph.step import Origin, Step
from dmlvk.graph.step_graph import DerivedConstants, needed_steps
from dmlvk.graph.views import Sizes
from dmlvk.kernels.common.kernel import GLSL_TYPES
from dmlvk.onnx import convert, loops, sequences  # noqa: F401  # fill the registry
from dmlvk.onnx.control import (
    Body,
    bodies_of,
    check_rounds,
    flattened,
    handed_number,
    has_bodies,
    scan_rounds,
    stack_of_nothing,
    stacked_outputs,
    without_bodies,
)
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.cut import Cutter
from dmlvk.onnx.fallback import Fallback
from dmlvk.onnx.functions import Expansion, expanded
from dmlvk.onnx.host_nodes import HostEvaluator, always_makes_the_same, may_run_on_host, needs_shape_only, shape_of
from dmlvk.onnx.host_values import is_always_driven, wanted_on_host
from dmlvk.onnx.limits import LIMITS, Limits
from dmlvk.onnx.model import TEXT, Array, Model, Node, element_kind
from dmlvk.onnx.node_facts import invalid_node, unsupported_node
from dmlvk.onnx.program import GraphProgram, NodeRegion, Placed, State
from dmlvk.onnx.registry import Row, find_counting, find_row, missing_reason
from dmlvk.onnx.shape_arithmetic import NotPlainError, element_of, plain, records, whole_numbers
from dmlvk.onnx.stand_ins import StandIns
from dmlvk.onnx.states import write_in_place
from dmlvk.onnx.values import Operand, Postponed, Value, constant_value, packed_value
from dmlvk.spec.errors import UnsupportedError, UnsupportedNodeError

FOLDED: Final = "constant, folded when the model was loaded"
COMPUTED: Final = "constant, computed when the session was made"
SHAPE: Final = "shape arithmetic"
MERGED: Final = "part of another node's operator"
IN_PLACE: Final = "in place: its bytes are read or written where they lie"
CONTROL: Final = "control flow, followed when planning"
_SAME_ON_HOST: Final = frozenset(
    {
        *("Abs", "Add", "Cast", "CastLike", "Concat", "ConstantOfShape", "Expand", "Gather", "GatherND", "Identity", "Max"),
        *("Min", "Mul", "Neg", "Reshape", "Slice", "Squeeze", "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
    }
)
"""Operators that move floats, or round once: host and device give the same bits. Of sizes that record, others compute on the
host, as they do of plain ones."""
_AT_ONCE: Final = 1 << 26
"""Bytes of constants that the device computes with at once when a session is made."""
READ_BACK: Final = "for which the host reads computed values"


@dataclass
class _Walk:
    """A trace on its way through the nodes.

    Attributes:
        values: The values so far, by name.
        uploads: Device values of what the host knows in this trace only, by name.
        steps: Operators so far.
        stand_ins: What stands for formats that no tensor has.
        walked: The nodes that it came by, each once, with their rows.
    """

    values: dict[str, Operand]
    uploads: dict[str, Value]
    steps: list[Step]
    stand_ins: StandIns
    walked: dict[Node, Row | None]


@dataclass(frozen=True)
class _Cut:
    """The program of a model with what belongs to it, replaced in one piece: a cut that fails leaves the one before.

    Attributes:
        program, whole, region_count, host_inputs: The properties of ``Network``.
        placed: The nodes of each body that a trace follows, each with its row.
        reading: Nodes for which the host reads computed values.
        doubles: Nodes that compute with 64-bit floats on the device.
        without_traces: Loops that have turned out to be too long for a trace.
    """

    program: GraphProgram
    whole: NodeRegion | None
    region_count: int
    host_inputs: frozenset[str]
    placed: Mapping[Body, Sequence[Placed]]
    reading: Collection[Node]
    doubles: Sequence[Node]
    without_traces: frozenset[Node]


class Network:
    """A loaded model: constants folded, every other node with its converter.

    Args:
        model: The model.
        without: Passes that traces leave out (see ``dmlvk.graph.passes``).
        compute: Runs a network that has no inputs, and gives what it makes by name: of constants, what the host has no rules
            for. Where it is None, such nodes stay nodes.
        outputs: The names of what it makes, the model's outputs where None.
        hosts: Whether nodes that no device can do run in ONNX Runtime, on the host.
        limits: What the model may cost the host.

    Attributes:
        model: The model, without the nodes that are folded: their attributes may hold all the weights once more.
        folded: Nodes evaluated on the host once and for all.
        computed: Nodes of constants that the device has computed.
        uploads: Device values of constants, by name, shared by all traces.
        kept: Device values that nodes keep from one run to the next, shared by all traces.

    Raises:
        UnsupportedNodeError: a node that no converter, or no row of DirectML's, can run.
        ModelError: a node that does not fit its constants.
    """

    @collector_waits
    def __init__(
        self,
        model: Model,
        without: Collection[str] = (),
        compute: Callable[[Network], Mapping[str, Array]] | None = None,
        outputs: Sequence[str] | None = None,
        *,
        hosts: bool = False,
        limits: Limits = LIMITS,
    ) -> None:
        self._limits = limits
        self._without = frozenset(without)
        self._derived: DerivedConstants = {}
        self.constants: dict[str, Array] = dict(model.initializers)
        self._fallback = Fallback(model, self.constants) if hosts else None
        self.uploads: dict[str, Value] = {}
        self.kept: dict[Node, Value] = {}
        self.folded: list[Label] = []
        self.computed: list[Label] = []
        self._evaluator = HostEvaluator(limits)
        self._outputs = tuple(info.name for info in model.outputs) if outputs is None else tuple(outputs)
        self._computing: dict[str, Node] | None = None if compute is None else {}
        self._bodies: dict[Node, dict[str, Body]] = {}
        self._sharing: dict[tuple[Any, ...], NodeRegion] = {}
        self._types = dict(model.types)
        taken = {*model.initializers, *(info.name for info in model.inputs)}
        taken.update(name for node in model.nodes for name in node.outputs)
        self.model = replace(model, nodes=tuple(self._fold(model.nodes, taken)))
        if compute is not None and self._computing:
            self._compute(compute, dict.fromkeys(self._computing.values()))
        self._cut = self._made_cut(frozenset())

    @property
    def program(self) -> GraphProgram:
        """The model as regions, and what the host drives between them."""
        return self._cut.program

    @property
    def whole(self) -> NodeRegion | None:
        """The only region of a model that is one; None where the host drives it."""
        return self._cut.whole

    @property
    def region_count(self) -> int:
        """Regions, those of bodies among them, at least 1."""
        return self._cut.region_count

    @property
    def host_inputs(self) -> frozenset[str]:
        """Inputs that only say shapes or the like and are read before a plan is made, not by the device."""
        return self._cut.host_inputs

    # -- loading

    def _fold(self, nodes: Iterable[Node], taken: set[str]) -> list[Node]:
        """Evaluates nodes of constants, inside of others too; returns the others. ``taken`` are the names of all values."""
        rest = []
        waiting = deque(nodes)
        while waiting:
            node = waiting.popleft()
            expansion = self._expanded(node, taken)
            if expansion is not None:
                self._types.update(expansion.types)
                waiting.extendleft(reversed(expansion.nodes))
            elif has_bodies(node):
                bare = without_bodies(node)
                self._bodies[bare] = {
                    name: self._folded(body, node.whole, taken) for name, body in bodies_of(node, taken).items()
                }
                rest.append(bare)
            elif not self._is_constant(node):
                rest.append(node)
            elif self._folds(node):
                if node.whole is None:
                    self.folded.append(Label(node.name, node.op_type, FOLDED))
            elif self._computing is None:
                rest.append(node)
            else:
                self._computing.update((name, node) for name in node.outputs if name)
        return rest

    def _expanded(self, node: Node, taken: set[str]) -> Expansion | None:
        """The nodes that stand for a node; None for one that stands for itself, or that ONNX Runtime may know."""
        try:
            return expanded(node, self._types, taken)
        except UnsupportedNodeError:
            if self._fallback is None:
                raise
            return None

    def _is_constant(self, node: Node) -> bool:
        """Whether the node makes the same of constants in every run."""
        known = self._computing or {}
        reads_constants = all(name in self.constants or name in known for name in node.inputs if name)
        return reads_constants and always_makes_the_same(node) and not is_always_driven(node) and not self._is_hosted(node)

    def _is_hosted(self, node: Node) -> bool:
        """Whether ONNX Runtime runs the node, which folds constants of its own."""
        if self._fallback is None or (node.domain, node.op_type) == ("", "Constant"):
            return False
        has_row = may_run_on_host(node) or find_row(node) is not None or find_counting(node) is not None
        return not has_row or self._fallback.has_text(node)

    def _folds(self, node: Node) -> bool:
        """Whether the host evaluates a node of constants."""
        if any(name not in self.constants or self.constants[name].dtype == TEXT for name in node.inputs if name):
            return False
        inputs = [self.constants[name] if name else None for name in node.inputs]
        made = _evaluate(self._evaluator, node, inputs) if may_run_on_host(node) else None
        self.constants.update(made or {})
        return made is not None

    def _parts(self, nodes: Iterable[Node]) -> Iterator[list[Node]]:
        """Nodes of constants in parts that read nothing of each other, of few enough bytes for the device to have them and
        what they make beside each other."""
        made = self._computing or {}
        chains = connected(
            (node, [*filter(None, node.outputs), *(name for name in node.inputs if name in made)]) for node in nodes
        )
        part: list[Node] = []
        taken = 0
        for chain in chains:
            nbytes = sum(self.constants[name].nbytes for node in chain for name in node.inputs if name in self.constants)
            if part and taken + nbytes > _AT_ONCE:
                yield part
                part, taken = [], 0
            part += chain
            taken += nbytes
        yield part

    def _compute(self, compute: Callable[[Network], Mapping[str, Array]], nodes: Iterable[Node]) -> None:
        """Has nodes of constants computed, for whatever reads what they make."""
        assert self._computing is not None, "there are some"
        read = {*self._outputs}
        for node in flattened(self.model.nodes, self._bodies):
            read.update(node.inputs)
            for body in self._bodies.get(node, {}).values():
                read.update(body.outputs)
        for part in self._parts(nodes):
            model = replace(self.model, nodes=tuple(part), initializers=self.constants, inputs=(), outputs=())
            wanted = [name for node in part for name in node.outputs if name in read]
            hosts = self._fallback is not None
            self.constants.update(compute(Network(model, self._without, outputs=wanted, hosts=hosts, limits=self._limits)))
        wholes = dict.fromkeys(node.whole or node for node in nodes)
        self.computed = [Label(node.name, node.op_type, COMPUTED) for node in wholes]

    def _folded(self, body: Body, whole: Node | None, taken: set[str]) -> Body:
        """A body with its nodes folded, which are part of what the node around them is part of."""
        self.constants.update(body.constants)
        nodes = [replace(node, whole=whole) if whole else node for node in body.nodes]
        return replace(body, nodes=tuple(self._fold(nodes, taken)), constants={})

    def cut(self, without_trace: Node) -> None:
        """Makes the program anew.

        Args:
            without_trace: A loop that has turned out to be too long for a trace.
        """
        self._cut = self._made_cut(self._cut.without_traces | {without_trace})

    def _made_cut(self, without_traces: frozenset[Node]) -> _Cut:
        model, inputs = self.model, {info.name: info.shape == [] for info in self.model.inputs}
        outputs = self._outputs
        host_inputs = wanted_on_host(inputs, model.nodes, outputs, self._bodies)
        types = {name: element_kind(code) for name, code in self._types.items()}
        cutter = Cutter(self._bodies, types, self.constants, inputs, without_traces, self._fallback)
        cutter.note_kinds({info.name: info.type for info in model.inputs})
        known = {*self.constants, *host_inputs}
        program = cutter.program(model.nodes, tuple(inputs), outputs, known, {})
        host_inputs |= program.host_reads & inputs.keys()
        whole: NodeRegion | None = None
        parts = [part for part, _ in program.parts]
        if all(info.is_tensor for info in (*model.inputs, *model.outputs)) and not parts[1:]:
            if not parts:
                whole = NodeRegion(tuple(inputs), host_inputs, outputs, ())
            elif isinstance(parts[0], NodeRegion):
                whole = replace(parts[0], inputs=tuple(inputs), host_inputs=host_inputs, outputs=outputs)
        count = max(program.count_regions(), 1)
        return _Cut(program, whole, count, host_inputs, cutter.placed, cutter.reading, cutter.doubles, without_traces)

    def check_device(self, features: Collection[str]) -> None:
        """Refuses what a device with these features cannot compute, as far as types tell.

        Raises:
            UnsupportedNodeError: a node computes with 64-bit floats, and the device does not.
        """
        missing = sorted({*GLSL_TYPES["FLOAT64"].features}.difference(features))
        if self._cut.doubles and missing:
            reason = f"its first input is FLOAT64, with which the device does not compute: it lacks {', '.join(missing)}"
            raise unsupported_node(self._cut.doubles[0], reason)

    # -- tracing

    def trace_whole(self, sizes: Mapping[str, Sizes], host_feeds: Mapping[str, Array]) -> Trace:
        """The trace of a model that is one region, for inputs of these sizes.

        Args:
            sizes: The sizes of every model input that is not among ``host_inputs``.
            host_feeds: Values of those that are.

        Raises:
            What ``trace`` does.
        """
        assert self.whole is not None, "the model is one region"
        types = {info.name: info.dtype for info in self.model.inputs}
        specs = {name: (types[name], sizes[name]) for name in self.whole.inputs if name not in self.host_inputs}
        return self.trace(self.whole, specs, host_feeds)

    @collector_waits
    def trace(self, region: Region, specs: Mapping[str, Spec], host_values: Mapping[str, Array | Numbers]) -> Trace:
        """The trace of a region for inputs of these types and sizes.

        Args:
            region: A region of the program.
            specs: The type and sizes of every input that is not among the region's ``host_inputs``.
            host_values: Values of those that are; a few whole numbers may be sizes that record.

        Raises:
            ModelError: a node does not fit the sizes.
            UnsupportedNodeError: a node needs more than its DirectML operator allows.
            LongLoopError: one that ``cut`` can help.
        """
        assert isinstance(region, NodeRegion), "the program's regions are of nodes"
        inputs = {
            name: region.states[name].value if name in region.states else packed_value(dtype, sizes)
            for name, (dtype, sizes) in specs.items()
        }
        known = {
            name: whole_numbers(value.values, value.dtype, value.sizes) if isinstance(value, Numbers) else value
            for name, value in host_values.items()
        }
        walk = _Walk({**self.constants, **known, **inputs}, {}, [], StandIns(), {})
        self._follow(region.nodes, walk)
        outputs, numbers = self._packed_outputs(region, walk)
        write_in_place(walk.steps, outputs, region.states)
        trace = self._finished(walk, inputs, outputs, numbers)
        return replace(trace, outside=frozenset(state.value.storage for state in region.states.values()))

    def sharing(self, region: NodeRegion, shared: Mapping[str, tuple[str, Sizes]]) -> NodeRegion:
        """The region with inputs that are changed in place, the same one for the same inputs, outputs and sizes."""
        key = (region, *((name, *output) for name, output in sorted(shared.items())))
        if key not in self._sharing:
            types = {info.name: info.dtype for info in self.model.inputs}
            states = {name: State(output, packed_value(types[name], sizes)) for name, (output, sizes) in shared.items()}
            self._sharing[key] = replace(region, states=states)
        return self._sharing[key]

    def refusal(self, origin: Origin, error: UnsupportedError) -> UnsupportedNodeError:
        """The device's error about an operator, as an error of its node."""
        assert isinstance(origin, Node), "steps come from nodes"
        return unsupported_node(origin, str(error))

    def _follow(self, nodes: Iterable[tuple[Node, Row | None]], walk: _Walk) -> None:
        """Takes a trace through nodes."""
        values = walk.values
        for node, row in nodes:
            operands = [values[name] if name else None for name in node.inputs]
            walk.walked[node] = row
            if node in self._bodies:
                follow = {"If": self._follow_branch, "Loop": self._unroll_loop, "Scan": self._unroll_scan}[node.op_type]
                values.update(zip(node.outputs, follow(node, operands, walk), strict=False))  # the last may be left out
                continue
            if row is None:
                values.update(self._on_host(node, operands, walk))
                continue
            values.update(self._on_device(node, row, operands, walk))

    def _on_device(self, node: Node, row: Row, operands: Sequence[Operand | None], walk: _Walk) -> dict[str, Operand]:
        conversion = self._conversion(node, operands, walk)
        given = walk.stand_ins.read(row, conversion, operands)
        walk.steps += conversion.steps
        conversion = self._conversion(node, given, walk)
        row.refuse(conversion)
        result = row.convert(conversion)
        results = result if isinstance(result, tuple) else (result,)
        made: dict[str, Operand] = {
            name: value for name, value in zip(node.outputs, results, strict=False) if value is not None
        }
        made = walk.stand_ins.made(conversion, operands, row, made)
        walk.steps += conversion.steps
        for index, name in enumerate(node.outputs):
            if name and name not in made:
                raise unsupported_node(node, f"output {index}, {name!r}, has no implementation")
        return made

    def _conversion(self, node: Node, operands: Sequence[Operand | None], walk: _Walk) -> Conversion:
        def upload(name: str, array: Array) -> Value:
            known = self.uploads if name in self.constants else walk.uploads
            if name in known:
                return known[name]
            value = self._recorded(node, array, walk) if records(array) else constant_value(array)
            if name:
                known[name] = value
            return value

        return Conversion(node, operands, upload, self._keep, self._limits)

    def _recorded(self, node: Node, array: Array, walk: _Walk) -> Value:
        conversion = self._conversion(node, (), walk)
        value = conversion.recorded(array)
        walk.steps += conversion.steps
        return value

    def _follow_branch(self, node: Node, operands: Sequence[Operand | None], walk: _Walk) -> list[Operand]:
        body = self._bodies[node]["then_branch" if _number(node, 0, operands[0]) else "else_branch"]
        self._follow(self._cut.placed[body], walk)
        return [walk.values[name] for name in body.outputs]

    def _unroll_loop(self, node: Node, operands: Sequence[Operand | None], walk: _Walk) -> list[Operand]:
        """A Loop whose rounds and conditions are known, its body once for each round."""
        (body,) = self._bodies[node].values()
        most, condition = (*operands[:2], None, None)[:2]
        rounds = None if most is None else _number(node, 0, most)
        goes_on = condition is None or _number(node, 1, condition)
        states = [walk.values[name] for name in node.inputs[2:]]
        count, before = len(states), len(walk.steps)
        inside = {*body.inputs}.union(*(inner.outputs for inner in flattened(body.nodes, self._bodies)))
        made: list[list[Operand]] = []
        while goes_on and (rounds is None or len(made) < rounds):
            check_rounds(node, body, len(made) + 1, len(walk.steps) - before)
            for name in inside:  # of which the host may know others in each round
                walk.uploads.pop(name, None)
            numbers = zip(body.inputs, (np.int64(len(made)), np.True_), strict=False)
            handed = [handed_number(body.types, name, number) for name, number in numbers]
            walk.values.update(zip(body.inputs, (*handed, *states), strict=True))
            self._follow(self._cut.placed[body], walk)
            results = [walk.values[name] for name in body.outputs]
            goes_on, states = _number(node, 1, results[0]), results[1 : 1 + count]
            made.append(results[1 + count :])
        if not made:
            return [*states, *(stack_of_nothing(node, body.types, name) for name in body.outputs[1 + count :])]
        conversion = self._conversion(node, [item for results in made for item in results], walk)
        stacked = stacked_outputs(conversion, 0, len(made))
        walk.steps += conversion.steps
        return [*states, *stacked]

    def _unroll_scan(self, node: Node, operands: Sequence[Operand | None], walk: _Walk) -> list[Operand]:
        """A Scan, its body once for each element; every tensor is on the device."""
        (body,) = self._bodies[node].values()
        conversion = self._conversion(node, operands, walk)
        rounds = scan_rounds(conversion, body)
        initial = states = [walk.values[name] for name in node.inputs[: len(body.inputs) - len(rounds.elements[0])]]
        made: list[list[Operand]] = []
        walk.steps += conversion.steps
        first = len(walk.steps)
        for elements in rounds.elements:
            walk.values.update(zip(body.inputs, (*states, *elements), strict=True))
            self._follow(self._cut.placed[body], walk)
            results = [walk.values[name] for name in body.outputs]
            states = results[: len(states)]
            made.append(results[len(states) :])
        if not rounds.number:
            states = initial
            del walk.steps[first:]
        conversion = self._conversion(node, [*states, *(item for results in made for item in results)], walk)
        stacked = stacked_outputs(conversion, len(states), rounds.number)
        walk.steps += conversion.steps
        return [*states, *stacked]

    def _keep(self, node: Node, initial: Callable[[], Array]) -> Value:
        if node not in self.kept:
            self.kept[node] = constant_value(initial())
        return self.kept[node]

    def _on_host(self, node: Node, operands: Sequence[Operand | None], walk: _Walk) -> Mapping[str, Operand]:
        if needs_shape_only(node):
            operand = operands[0]
            assert operand is not None, "ONNX's checker has seen to required inputs"
            value = operand.device() if isinstance(operand, Postponed) else operand
            return {node.outputs[0]: shape_of(node, value.sizes if isinstance(value, Value) else value.shape)}
        arrays = [item for item in operands if not isinstance(item, Value | Postponed)]
        if any(isinstance(item, Value) for item in operands):  # made by a node of such types
            return self._of_the_devices_types(node, operands, walk)
        if len(arrays) == len(operands):
            try:
                made = _evaluate(self._evaluator, node, arrays)
            except NotPlainError:
                pass
            else:
                return self._of_the_devices_types(node, operands, walk) if made is None else made

        def evaluated() -> Mapping[str, Array]:
            made = _evaluate(self._evaluator, node, [None if item is None else _known(item) for item in operands])
            assert made is not None, "sizes that record are numpy's numbers"
            return made

        return evaluated() if len(node.outputs) > 1 else self._postponed(node, operands, evaluated, walk)

    def _of_the_devices_types(self, node: Node, operands: Sequence[Operand | None], walk: _Walk) -> dict[str, Operand]:
        """A node of known tensors of types with which numpy does not compute."""
        row = find_row(node)
        if row is None:
            raise unsupported_node(node, missing_reason(node))
        return self._on_device(node, row, operands, walk)

    def _postponed(
        self, node: Node, operands: Sequence[Operand | None], evaluated: Callable[[], Mapping[str, Array]], walk: _Walk
    ) -> dict[str, Operand]:
        (name,) = node.outputs

        def on_device() -> Value:
            row = find_row(node)
            if row is not None:
                with suppress(UnsupportedNodeError):  # of the device; the host can
                    made = self._on_device(node, row, operands, walk)[name]
                    if isinstance(made, Value) and (made.dtype.kind != "f" or self._is_same_on_host(node, operands, walk)):
                        return made
            return self._conversion(node, (), walk).upload(postponed.host())

        postponed = Postponed(lambda: evaluated()[name], on_device)
        return {name: postponed}

    def _is_same_on_host(self, node: Node, operands: Sequence[Operand | None], walk: _Walk) -> bool:
        """Whether host and device give the same bits of floats."""
        if node.op_type != "Range":
            return node.op_type in _SAME_ON_HOST
        conversion = self._conversion(node, operands, walk)
        return all(conversion.whole(index) is not None for index in range(len(operands)))

    def _packed_outputs(self, region: NodeRegion, walk: _Walk) -> tuple[dict[str, Value | Array], dict[str, Numbers]]:
        """The outputs, of strided views copies: what is downloaded or handed on is row-major; and those whose numbers
        record."""
        makers = {name: node for node, _ in region.nodes for name in node.outputs}
        outputs: dict[str, Value | Array] = {}
        numbers: dict[str, Numbers] = {}
        for name in region.outputs:
            value = walk.values[name]
            # What the host knows of plain sizes it knows of others, too.
            if isinstance(value, Postponed):
                value = value.host()
            if not isinstance(value, Value) and records(value):
                numbers[name] = Numbers(element_of(value), value.shape, tuple(value.reshape(-1).tolist()))
                continue
            if isinstance(value, Value) and not value.is_packed and 0 not in value.sizes:
                conversion = self._conversion(makers[name], (), walk)
                value = conversion.copy(value)
                walk.steps += conversion.steps
            outputs[name] = value
        return outputs, numbers

    def _finished(
        self,
        walk: _Walk,
        inputs: Mapping[str, Value],
        outputs: Mapping[str, Value | Array],
        numbers: Mapping[str, Numbers],
    ) -> Trace:
        results = [value.storage for value in outputs.values() if isinstance(value, Value)]
        kept = needed_steps(walk.steps, results)
        optimal = optimized(kept, results, without=self._without, memory=self._derived)
        read: set[Origin] = {step.origin for step in kept}
        launches = {step.origin for step in optimal}
        merged = {origin for step in optimal for origin in step.merged}
        dropped = {step.origin for step in walk.steps}
        device_nodes: dict[Node, Label] = {}
        host_nodes: dict[Node, Label] = {}
        removed_nodes: dict[Node, Label] = {}
        for node, row in walk.walked.items():
            if node in launches and (row is not None or node in self._bodies):
                place, reason = device_nodes, READ_BACK if node in self._cut.reading else ""
            elif row is None:
                place, reason = host_nodes, CONTROL if node in self._bodies else SHAPE
            else:
                if node in read:
                    reason = MERGED if node in merged else IN_PLACE
                else:
                    reason = "nothing reads its outputs" if node in dropped else "a view of its input"
                place = removed_nodes
            whole = node.whole or node
            place[whole] = Label(whole.name, whole.op_type, reason)
        return Trace(
            optimal,
            inputs,
            outputs,
            numbers=numbers,
            device_labels=device_nodes,
            host_labels=host_nodes,
            removed_labels=removed_nodes,
        )


def _evaluate(evaluator: HostEvaluator, node: Node, inputs: Sequence[Array | None]) -> dict[str, Array] | None:
    results = evaluator.evaluate(node, inputs)
    if results is None:
        return None
    return {name: array for name, array in zip(node.outputs, results, strict=True) if name}


def _number(node: Node, index: int, operand: Operand | None) -> Any:
    """The only element of an operand that is known before the run."""
    known = None if operand is None else _known(operand)
    assert known is not None, "what control flow follows is known before the run"
    if known.size != 1:
        raise invalid_node(node, f"value {index} must have one element", known.shape)
    return known.item()


def _known(operand: Operand) -> Array | None:
    """The operand as plain numbers; None for one on the device."""
    if isinstance(operand, Value):
        return None
    return operand.host() if isinstance(operand, Postponed) else plain(operand)
