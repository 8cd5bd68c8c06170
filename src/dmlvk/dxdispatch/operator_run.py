"""DirectML operators and graphs: compiled, initialised, bound and dispatched as ``IDMLDevice`` would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device
from dmlvk.directml.operator import CompiledOperator, Operator, TensorSlot
from dmlvk.directml.ready_operator import initialize
from dmlvk.directml.serialized_graph import load_serialized_graph
from dmlvk.dxdispatch.buffers import Buffers
from dmlvk.dxdispatch.document import Place
from dmlvk.dxdispatch.model import BindingSource, GraphDispatchable, OperatorDispatchable
from dmlvk.dxdispatch.operators import located
from dmlvk.dxdispatch.options import Options
from dmlvk.graph.desc import GraphDesc, InputGraphEdgeDesc, OperatorGraphNodeDesc, OutputGraphEdgeDesc
from dmlvk.kernels.lowering import check_data_types
from dmlvk.runtime.memory import BufferBinding, Purpose
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import Slot
from dmlvk.spec.tensor import TensorDesc


class Bound(Protocol):
    """A dispatchable with its resources."""

    def run(self) -> float | None:
        """Dispatches as often as the options' ``repeat`` says, and waits; returns the milliseconds on the device of all of
        them, None where they were not taken."""


class Run(Protocol):
    """A dispatchable that is ready.

    Attributes:
        bind_points: The names that bindings may have.
    """

    @property
    def bind_points(self) -> tuple[str, ...]: ...

    def bound(
        self, place: Place, bindings: Mapping[str, tuple[BindingSource, ...]], buffers: Buffers, options: Options
    ) -> Bound:
        """The dispatchable with these resources."""

    def end(self) -> str:
        """Ends it; returns the file that it has left, "" for none."""


class BindPoint(NamedTuple):
    """A tensor, or an array of tensors, that resources are bound to.

    Attributes:
        name: Its name in the file.
        tensors: Their number.
    """

    name: str
    tensors: int = 1


class OperatorRun:
    """A compiled operator or graph.

    Args:
        device: The device.
        compiled: The operator.
        inputs, outputs: Its bind points, in the order of its slots.
        place: Where the file has it.
        owned: The ranges that its initialisation reads, by input slot.
        fills: Whether a tensor that nothing is bound to gets zeros of its own.
    """

    def __init__(
        self,
        device: Device,
        compiled: CompiledOperator,
        inputs: Sequence[BindPoint],
        outputs: Sequence[BindPoint],
        place: Place,
        owned: Sequence[BufferBinding | None] = (),
        *,
        fills: bool = False,
    ) -> None:
        self._fills = fills
        self.device, self.compiled, self.inputs, self.outputs = device, compiled, tuple(inputs), tuple(outputs)
        try:
            self.persistent = initialize(device, compiled, owned)
        except InvalidArgumentError as error:
            raise located(error, place) from None
        nbytes = compiled.get_binding_properties().temporary_resource_size
        self.temporary = BufferBinding(device.create_buffer(nbytes, purpose=Purpose.TEMPORARY)) if nbytes else None

    @property
    def bind_points(self) -> tuple[str, ...]:
        """The names that bindings may have."""
        return tuple(point.name for point in self.inputs + self.outputs)

    def bound(
        self, place: Place, bindings: Mapping[str, tuple[BindingSource, ...]], buffers: Buffers, options: Options
    ) -> Bound:
        """The operator with these resources, recorded.

        Raises:
            BindingError: a rule of binding tables is broken; names the path of the bindings.
        """
        device = self.device
        commands = device.create_command_list()
        table = device.create_binding_table(self.compiled)
        timed = device.has_timestamps and options.gpu_times > 0
        try:
            signature = self.compiled.signature
            table.bind_inputs(self._filled(signature.inputs, ranges(self.inputs, bindings, buffers)))
            table.bind_outputs(self._filled(signature.outputs, ranges(self.outputs, bindings, buffers)))
            table.bind_temporary_resource(self.temporary)
            table.bind_persistent_resource(self.persistent)
            if timed:
                commands.timestamp()
            for _ in range(options.repeat):
                device.create_command_recorder().record_dispatch(commands, self.compiled, table)
            if timed:
                commands.timestamp()
        except InvalidArgumentError as error:
            raise error if error.field.startswith("$") else located(error, place) from None
        return _Recorded(device, commands, timed=timed)

    def end(self) -> str:
        """See ``Run``."""
        return ""

    def _filled(self, slots: Sequence[TensorSlot], found: Sequence[BufferBinding | None]) -> list[BufferBinding | None]:
        if not self._fills:
            return list(found)
        return [
            self._zeros(slot.tensor) if part is None and slot.tensor is not None else part
            for slot, part in zip(slots, found, strict=True)
        ]

    def _zeros(self, tensor: TensorDesc) -> BufferBinding:
        buffer = self.device.create_buffer(tensor.total_tensor_size_in_bytes)
        buffer.write(np.zeros(buffer.size_in_bytes, np.uint8))
        return BufferBinding(buffer)


class _Recorded:
    def __init__(self, device: Device, commands: CommandList, *, timed: bool) -> None:
        self._device, self._commands, self._timed = device, commands, timed

    def run(self) -> float | None:
        """See ``Bound``."""
        self._device.execute(self._commands)
        if not self._timed:
            return None
        start, end = self._commands.timestamps()
        return (end - start) / 1e6


def ranges(
    points: Sequence[BindPoint], bindings: Mapping[str, tuple[BindingSource, ...]], buffers: Buffers
) -> list[BufferBinding | None]:
    """A binding for each slot, None where nothing is bound."""
    found: list[BufferBinding | None] = []
    for point in points:
        sources = bindings.get(point.name)
        if sources is None:
            found += [None] * point.tensors
            continue
        if len(sources) != point.tensors:
            where = sources[0].place if sources else Place(None, f"bindings.{point.name}")
            where.refuse(f"{point.name} must have a resource for each tensor", len(sources), point.tensors)
        found += map(buffers.binding, sources)
    return found


def operator_run(device: Device, item: OperatorDispatchable, buffers: Buffers) -> OperatorRun:
    """The operator of a file, compiled by itself or as a graph of one node. Data types beyond DirectML's are taken, too."""
    desc = item.desc
    check_data_types(desc, device.capabilities)
    operator = Operator(device, desc)
    inputs, outputs = desc.input_slots(), desc.output_slots()
    if item.as_graph:
        node = OperatorGraphNodeDesc(operator, item.place.path)
        fed = [InputGraphEdgeDesc(index, 0, index) for index, slot in enumerate(inputs) if slot.tensor is not None]
        there = [index for index, slot in enumerate(outputs) if slot.tensor is not None]
        left = [OutputGraphEdgeDesc(0, index, place) for place, index in enumerate(there)]
        graph = GraphDesc(len(inputs), len(there), [node], fed, left)
        compiled = device.compile_graph(graph, item.flags)
        outputs = tuple(outputs[index] for index in there)
    else:
        compiled = device.compile_operator(operator, item.flags)
    points = _points(inputs)
    return OperatorRun(device, compiled, points, _points(outputs), item.place, ranges(points, item.bindings, buffers))


def _points(slots: Sequence[Slot]) -> list[BindPoint]:
    return [BindPoint(name, count) for name, count in Counter(slot.field.dml_name for slot in slots).items()]


def graph_run(device: Device, item: GraphDispatchable) -> OperatorRun:
    """The serialised graph of a file. A tensor that no command names is bound to zeros of its own."""
    try:
        graph = load_serialized_graph(device, item.path)
        compiled = device.compile_graph(graph.desc, item.flags)
    except InvalidArgumentError as error:
        raise located(error, item.place) from None
    inputs, outputs = (list(map(BindPoint, names)) for names in (graph.input_names, graph.output_names))
    return OperatorRun(device, compiled, inputs, outputs, item.place, fills=True)
