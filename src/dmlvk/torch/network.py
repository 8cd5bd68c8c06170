"""A graph of PyTorch's as the engine knows a network: its nodes become operators for one set of sizes."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch import fx

from dmlvk.engine.trace import Label, Numbers, Region, Spec, Trace
from dmlvk.engine.transfer import Array
from dmlvk.engine.values import Value
from dmlvk.graph.passes import optimized
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.graph.step_graph import DerivedConstants, needed_steps
from dmlvk.graph.views import Sizes
from dmlvk.spec import ops
from dmlvk.spec.errors import DmlvkError, UnsupportedError
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.torch import convert  # noqa: F401  # fills the registry
from dmlvk.torch.conversion import Conversion, Part, packed_value, unsupported
from dmlvk.torch.facts import (
    ASSERTIONS,
    WRITES,
    Facts,
    Symbols,
    TensorFacts,
    bind,
    facts_of,
    is_host_node,
    missing_operators,
    number_of,
    operator_name,
    sizes_of,
)
from dmlvk.torch.in_place import written_back
from dmlvk.torch.memory import is_on_device, on_host, to_host
from dmlvk.torch.registry import ROWS, Row
from dmlvk.torch.types import computed_as

VIEW: Final = "a view of its input"
MERGED: Final = "part of another node's operator"
UNREAD: Final = "nothing reads its outputs"
SHAPE: Final = "shape arithmetic"
RANDOM_STATE: Final = "random state"
"""The name of the input with the counter and the key of a run's random numbers."""
_STATE_WORDS: Final = 6
_FLOAT, _UINT16, _UINT32 = np.dtype(np.float32), np.dtype(np.uint16), np.dtype(np.uint32)


@dataclass(frozen=True, eq=False)
class GraphRegion(Region):
    """A graph for inputs that lie in memory in certain ways.

    Attributes:
        orders: The order of each input's dimensions in memory, by name; sizes are given in that order.
        kept: Names of inputs that are bound where they lie, and not copied.
    """

    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()


@dataclass
class _Walk:
    """A trace on its way through the nodes.

    Attributes:
        values: What each node has made.
        symbols: The values of symbols.
        steps: Operators so far.
        state: The state of random numbers that the next node with some reads.
    """

    values: dict[fx.Node, Any] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    state: Value | None = None


class Network:
    """A graph of PyTorch's.

    Args:
        module: The graph, of core operators, with what the compiler knows of its values.
        constants: Inputs that are always the same, by name.
        lent_from: The output from which on all lie outside of the arena, if they can. None if none do.
        expect: Is told which storages those are.

    Attributes:
        inputs: The nodes of its inputs in order, without those that are constants.
        outputs: What it returns: nodes, whole numbers or None.
        facts: What is known of each node's value.
        written: The node of what each input holds after a run, for those that a run changes.
        uses_random: Whether it makes random numbers.

    Raises:
        UnsupportedError: it has operators without a converter; the message names them all.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        constants: Mapping[str, torch.Tensor] = MappingProxyType({}),
        lent_from: int | None = None,
        expect: Callable[[Iterable[Storage]], None] = lambda _: None,
    ) -> None:
        graph = module.graph
        lacking = missing_operators(graph)
        if lacking:
            listed = ", ".join(lacking)
            hint = "options={'allow_fallback': True} lets PyTorch run them"
            raise UnsupportedError(f"no converter for the operators {listed}; {hint}")
        self._module = module
        self._lent_from, self._expect = lent_from, expect
        self._nodes = tuple(graph.nodes)
        self._parts = {node: Part(node.name, operator_name(node)) for node in self._nodes if node.op == "call_function"}
        self._derived: DerivedConstants = {}
        self._constants: dict[str, Value] = {name: _constant(tensor) for name, tensor in constants.items()}
        self._states: dict[tuple[str, Sizes], Storage] = {}
        self._regions: dict[Any, GraphRegion] = {}
        placeholders = [node for node in self._nodes if node.op == "placeholder"]
        self._fixed = tuple(node for node in placeholders if node.name in constants)
        self.inputs = tuple(node for node in placeholders if node.name not in constants)
        (returned,) = (node.args[0] for node in self._nodes if node.op == "output")
        self.outputs: tuple[Any, ...] = tuple(returned) if isinstance(returned, list | tuple) else (returned,)
        self.facts: dict[fx.Node, Facts] = {node: facts_of(node.meta.get("val")) for node in self._nodes}
        names = set(self.inputs)
        self.written: dict[fx.Node, fx.Node] = {
            node.args[0]: node.args[1]
            for node in self._nodes
            if node.op == "call_function" and operator_name(node) == WRITES and node.args[0] in names
        }
        self._is_read = {node for node in self.inputs if node.users}
        self.uses_random = any(part.op_type in ROWS and ROWS[part.op_type].random for part in self._parts.values())

    @property
    def region_count(self) -> int:
        return max(len(self._regions), 1)

    def region(self, orders: Mapping[str, tuple[int, ...]], kept: frozenset[str]) -> GraphRegion:
        """The region for inputs that lie so; the same one for the same."""
        key = (tuple(orders.items()), kept)
        if key not in self._regions:
            numbers = frozenset(node.name for node in self.inputs if not isinstance(self.facts[node], TensorFacts))
            names = (*(node.name for node in self.inputs), *((RANDOM_STATE,) * self.uses_random))
            made = tuple(f"output {index}" for index in range(len(self.outputs)))
            self._regions[key] = GraphRegion(names, numbers, made, dict(orders), kept)
        return self._regions[key]

    def storage(self, name: str, sizes: Sizes, dtype: np.dtype[Any]) -> Storage:
        """The storage of an input that is bound where it lies; the same one in all traces."""
        key = (name, sizes)
        if key not in self._states:
            self._states[key] = packed_value(dtype, sizes).storage
        return self._states[key]

    def number(self, node: fx.Node, given: Mapping[fx.Node, Any]) -> int | None:
        """A size that the graph returns, for some inputs; None for what is no size."""
        expression = self.facts[node]
        if expression is None or isinstance(expression, list | TensorFacts):
            return None
        symbols: Symbols = {}
        for own, value in given.items():
            facts = self.facts[own]
            if isinstance(facts, TensorFacts):
                bind(symbols, facts.sizes, tuple(value.shape))
            elif facts is not None and not isinstance(facts, list):
                bind(symbols, (facts,), (int(value),))
        return number_of(expression, symbols)

    def refusal(self, origin: Origin, error: UnsupportedError) -> UnsupportedError:
        return unsupported(Part(origin.name, origin.op_type), str(error))

    # -- tracing

    def trace(self, region: Region, specs: Mapping[str, Spec], host_values: Mapping[str, Array | Numbers]) -> Trace:
        assert isinstance(region, GraphRegion), "the network's regions are of graphs"
        walk = _Walk()
        inputs = self._read_inputs(region, walk, specs, host_values)
        for node in self._fixed:
            walk.values[node] = self._numbers(walk, node, self._constants[node.name])
        for node in self._nodes:
            if node.op == "get_attr":
                walk.values[node] = self._numbers(walk, node, self._constant(str(node.target)))
            elif node.op == "call_function":
                self._follow(node, walk)
        outputs = self._finish(walk)
        changes = self._changes(walk, region, inputs)
        read = [value.storage for value in (*outputs.values(), *(own for _, _, own in changes)) if isinstance(value, Value)]
        steps = optimized(needed_steps(walk.steps, read), read, memory=self._derived)
        kept = _Kept({target.storage for _, target, _ in changes})
        outputs = {name: kept.of(self._made_by(name), value) for name, value in outputs.items()}
        changes = [(origin, target, kept.of(origin, value)) for origin, target, value in changes if value != target]
        results = [value.storage for value in outputs.values() if isinstance(value, Value)]
        steps = written_back((*kept.steps, *steps), changes, results)
        labels: dict[str, Any] = self._labels(walk, steps)
        outside = frozenset(inputs[name].storage for name in region.kept if name in inputs)
        lent = self._lendable(steps, outputs) - {value.storage for value in inputs.values()}
        self._expect(lent)
        return Trace(
            steps,
            {name: value for name, value in inputs.items() if not isinstance(value, int)},
            outputs,
            outside=outside | lent,
            **labels,
        )

    def _read_inputs(
        self, region: GraphRegion, walk: _Walk, specs: Mapping[str, Spec], host_values: Mapping[str, Array | Numbers]
    ) -> dict[str, Value]:
        """The inputs on the device, as they lie in memory; notes what nodes read, and the symbols."""
        inputs: dict[str, Value] = {}
        for node in self.inputs:
            facts = self.facts[node]
            if not isinstance(facts, TensorFacts):
                number = _number(host_values[node.name])
                walk.values[node] = number
                bind(walk.symbols, (facts,) if facts is not None and not isinstance(facts, list) else (), (number,))
                continue
            dtype, sizes = specs[node.name]
            if node.name in region.kept:
                sizes = tuple(int(size) for size in sizes)
                own = packed_value(dtype, sizes)
                own = Value(self.storage(node.name, sizes, dtype), dtype, sizes, own.strides)
            else:
                own = packed_value(dtype, sizes)
            if node in self._is_read:
                inputs[node.name] = own
            order = region.orders[node.name]
            value = own.transpose([order.index(axis) for axis in range(len(order))])
            bind(walk.symbols, facts.sizes, value.sizes)
            walk.values[node] = self._numbers(walk, node, value) if node in self._is_read else value
        if self.uses_random:
            walk.state = inputs[RANDOM_STATE] = packed_value(_UINT32, (1, 1, 1, _STATE_WORDS))
        return inputs

    def _constant(self, name: str) -> Value:
        if name not in self._constants:
            tensor: Any = operator.attrgetter(name)(self._module)
            self._constants[name] = _constant(tensor.detach())
        return self._constants[name]

    def _numbers(self, walk: _Walk, node: fx.Node, value: Value) -> Value:
        """What nodes compute with of a tensor as memory has it."""
        facts = self.facts[node]
        if isinstance(facts, TensorFacts) and facts.dtype is torch.bfloat16:
            return self._launched(walk, Part(node.name, node.op), _widened, value)
        return value

    def _launched(self, walk: _Walk, part: Part, launch: Callable[..., Value], *operands: Any) -> Value:
        conversion = Conversion(part, (), self._random_bits(walk))
        value = launch(conversion, *operands)
        walk.steps += conversion.steps
        return value

    def _follow(self, node: fx.Node, walk: _Walk) -> None:
        name = operator_name(node)
        if name in ASSERTIONS or name == WRITES:
            walk.values[node] = None
            return
        args = fx.map_arg(node.args, walk.values.__getitem__)
        options = fx.map_arg(node.kwargs, walk.values.__getitem__)
        if is_host_node(node):
            walk.values[node] = self._on_host(node, args, walk)
            return
        facts = self.facts[node]
        several = facts if isinstance(facts, list) else [facts]
        specs = [
            (computed_as(own.dtype), sizes_of(own, walk.symbols)) if isinstance(own, TensorFacts) else (_FLOAT, ())
            for own in several
        ]
        part = self._parts[node]
        conversion = Conversion(part, specs, self._random_bits(walk))
        row = ROWS[name]
        result = _converted(row, conversion, args, options)
        made = list(result) if isinstance(result, tuple | list) else [result]
        for index, (own, value) in enumerate(zip(several, made, strict=False)):
            if value is None or not isinstance(own, TensorFacts):
                continue
            _check(conversion, value, specs[index])
            if own.dtype is torch.bfloat16 and not row.moves:
                made[index] = conversion.elementwise(FormatCast, value, format=NumberFormat.BFLOAT16)
        walk.steps += conversion.steps
        walk.values[node] = made if isinstance(facts, list) else made[0]

    def _on_host(self, node: fx.Node, args: Any, walk: _Walk) -> Any:
        """A node that computes with sizes, or takes one of several outputs."""
        facts = self.facts[node]
        if node.target is operator.getitem:
            return args[0][args[1]]
        if facts is not None and not isinstance(facts, list | TensorFacts):
            return number_of(facts, walk.symbols)
        target: Any = node.target
        return target(*args, **node.kwargs)

    def _random_bits(self, walk: _Walk) -> Callable[[Conversion, Sizes], Value]:
        def bits(node: Conversion, sizes: Sizes) -> Value:
            assert walk.state is not None, "the graph is known to make random numbers"
            words, following = node.new(sizes, _UINT32), node.new(walk.state.sizes, _UINT32)
            node.launch(ops.RandomGenerator, walk.state, output_tensor=words, output_state_tensor=following)
            walk.state = following
            return words

        return bits

    def _finish(self, walk: _Walk) -> dict[str, Value | Array]:
        """The outputs on the device, packed with their dimensions in the order of their strides."""
        outputs: dict[str, Value | Array] = {}
        for index, node in enumerate(self.outputs):
            if not isinstance(node, fx.Node) or self.is_returned_as_it_is(node):
                continue
            facts = self.facts[node]
            value = walk.values[node]
            if isinstance(facts, TensorFacts) and isinstance(value, Value):
                name = f"output {index}"
                outputs[name] = self._launched(walk, self._made_by(name), _stored, value, facts)
        return outputs

    def _made_by(self, output: str) -> Part:
        """The node of an output, by the name that the output has in traces."""
        node = self.outputs[int(output.removeprefix("output "))]
        return self._parts.get(node, Part(node.name, "output"))

    def _lendable(self, steps: Sequence[Step], outputs: Mapping[str, Value | Array]) -> frozenset[Storage]:
        """The storages of outputs that may lie outside: those of a known size that each run writes, for one output."""
        if self._lent_from is None:
            return frozenset()
        values = {name: value for name, value in outputs.items() if isinstance(value, Value)}
        counts = Counter(value.storage for value in values.values())
        names = {f"output {index}" for index in range(self._lent_from, len(self.outputs))}
        written = {storage for step in steps if not step.runs_once for storage in step.written()}
        return frozenset(
            own
            for own in (values[name].storage for name in names & values.keys())
            if own in written and counts[own] == 1 and own.part_of is None and isinstance(own.nbytes, int)
        )

    def is_returned_as_it_is(self, node: fx.Node) -> bool:
        """Whether an output is an input."""
        return bool(node.op == "placeholder")

    def _changes(self, walk: _Walk, region: GraphRegion, inputs: Mapping[str, Value]) -> list[tuple[Origin, Value, Value]]:
        """What each input that a run changes holds afterwards, packed as the input is."""
        found: list[tuple[Origin, Value, Value]] = []
        for node, source in self.written.items():
            facts, value = self.facts[node], walk.values[source]
            assert isinstance(facts, TensorFacts) and isinstance(value, Value), "a tensor is written"
            part, target = Part(node.name, WRITES), inputs[node.name]
            known = facts._replace(order=region.orders[node.name])
            value = self._launched(walk, part, Conversion.cast, value, computed_as(known.dtype))
            value = value.broadcast_to(sizes_of(known, walk.symbols))
            found.append((part, target, self._launched(walk, part, _stored, value, known)))
        return found

    def _labels(self, walk: _Walk, steps: Sequence[Step]) -> dict[str, dict[Any, Label]]:
        launches = {step.origin for step in steps}
        merged = {origin for step in steps for origin in step.merged}
        asked = {step.origin for step in walk.steps}
        device: dict[Any, Label] = {}
        host: dict[Any, Label] = {}
        removed: dict[Any, Label] = {}
        for node, part in self._parts.items():
            if part in launches:
                device[part] = Label(*part)
            elif is_host_node(node):
                if node.target is not operator.getitem:
                    host[part] = Label(*part, SHAPE)
            elif part.op_type not in ASSERTIONS and part.op_type != WRITES:
                removed[part] = Label(*part, MERGED if part in merged else UNREAD if part in asked else VIEW)
        return {"device_labels": device, "host_labels": host, "removed_labels": removed}


class _Kept:
    """What inputs hold before a run changes them, copied at its start where something needs it afterwards.

    Args:
        changed: The storages of these inputs.

    Attributes:
        steps: The copies.
    """

    def __init__(self, changed: Collection[Storage]) -> None:
        self._changed = changed
        self._values: dict[Value, Value] = {}
        self.steps: list[Step] = []

    def of(self, origin: Origin, value: Any) -> Any:
        """A value, or its copy."""
        if not isinstance(value, Value) or value.storage.place.storage not in self._changed:
            return value
        if value not in self._values:
            copy = self._values[value] = packed_value(value.dtype, value.sizes)
            desc = ops.ElementWiseIdentity(input_tensor=value.desc(), output_tensor=copy.desc())
            desc.validate()
            self.steps.append(Step(origin, desc, (value.storage,), (copy.storage,)))
        return self._values[value]


def _converted(row: Row, conversion: Conversion, args: Any, options: Any) -> Any:
    """What a converter makes; what it trips over in arguments that it does not expect becomes the node's error."""
    try:
        return row.convert(conversion, *args, **options)
    except DmlvkError:
        raise
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise conversion.unsupported(
            f"its converter does not take these arguments: {type(error).__name__}: {error}"
        ) from error


def _check(conversion: Conversion, value: Value, spec: Spec) -> None:
    """A converter that makes another tensor than PyTorch would is a bug of ours."""
    if (
        value.dtype != spec[0]
        or len(value.sizes) != len(spec[1])
        or any(a != b for a, b in zip(value.sizes, spec[1], strict=True))
    ):
        raise conversion.unsupported(f"its converter makes {value.dtype} {value.sizes}, and PyTorch {spec[0]} {spec[1]}")


def _number(value: Array | Numbers) -> int:
    if isinstance(value, Numbers):
        return value.values[0]
    number: int = value.item()
    return number


def _widened(node: Conversion, bits: Value) -> Value:
    """The numbers of bfloat16's bits, float32."""
    return node.elementwise(FormatCast, bits, dtype=_FLOAT, format=NumberFormat.BFLOAT16)


def _stored(node: Conversion, value: Value, facts: TensorFacts) -> Value:
    """A value as memory has it, packed with its dimensions in the order of PyTorch's strides."""
    value = value.transpose(facts.order)
    if facts.dtype is torch.bfloat16:
        return node.elementwise(FormatCast, value, dtype=_UINT16, format=NumberFormat.BFLOAT16)
    if value.is_packed and value.storage.nbytes == packed_value(value.dtype, value.sizes).storage.nbytes:
        return value
    return node.copy(value)


def _constant(tensor: torch.Tensor) -> Value:
    tensor = to_host(tensor) if is_on_device(tensor) else tensor
    array = on_host(tensor.contiguous())
    return packed_value(array.dtype, array.shape, np.array(array))
