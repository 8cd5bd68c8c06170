"""``IDMLBindingTable``: the buffers of one dispatch, checked against every rule of the specification.

What one bind call can decide raises there, and the call then changes nothing: counts, kinds, devices, alignment, ranges
and outputs that intersect each other. What takes several calls raises when the table is recorded, so that the order of
the calls does not matter: missing bindings, and ranges that intersect across calls. The rules for those, where a range
is [offset, offset + size) with a tensor's ``total_tensor_size_in_bytes`` or the size that the resource must have:

- Two reads never conflict.
- Outputs never intersect each other, nor the persistent resource. The temporary resource never intersects anything.
- At execution an input may share an output's buffer; their ranges may intersect only when they are the same range, the
  operator runs in place for that input, and both tensors have the same data type, sizes, strides and total size.
- At initialisation an input never shares an output's buffer at all.
"""

from __future__ import annotations

import abc
import numbers
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from dmlvk.directml.operator import CompiledOperator, Dispatchable, OperatorInitializer, TensorSlot
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.runtime.recorder import BoundRange, Command, Resources, copy_between
from dmlvk.spec.errors import BindingError, StateError, other_device
from dmlvk.spec.tensor import (
    MINIMUM_BUFFER_TENSOR_ALIGNMENT,
    PERSISTENT_BUFFER_ALIGNMENT,
    TEMPORARY_BUFFER_ALIGNMENT,
    TensorDesc,
)

_INITIALIZER = "OperatorInitializer"
_B = TypeVar("_B")
_INTEGERS = (int, numbers.Integral)  # int first: asking an abstract class is slow


class BufferArrayBinding(NamedTuple):
    """``DML_BUFFER_ARRAY_BINDING``: the inputs of one target of an initialiser.

    Attributes:
        bindings: One entry for each input of the operator, None where the input is not OWNED_BY_DML.
    """

    bindings: Iterable[BufferBinding | None]


Binding = BufferBinding | BufferArrayBinding | None
"""``DML_BINDING_DESC``; None is ``DML_BINDING_TYPE_NONE``."""


class BindingTable:
    """``IDMLBindingTable``: serves one dispatchable at a time. Not for several threads at once.

    Made by ``Device.create_binding_table``. The table keeps its buffers alive until they are rebound or it is reset.

    Attributes:
        device: Its device.
        bindings: The bindings; None while the table serves nothing. A reset leaves the old object to the lists that
            recorded it.
    """

    def __init__(self, device: ComputeDevice, dispatchable: Dispatchable | None = None) -> None:
        self.device = device
        self.bindings: OperatorBindings | InitializerBindings | None = None
        self.reset(dispatchable)

    def reset(self, dispatchable: Dispatchable | None = None) -> None:
        """``IDMLBindingTable::Reset``: drops all bindings and serves another dispatchable, or none.

        Raises:
            StateError: the dispatchable belongs to another device.
        """
        if dispatchable is None:
            self.bindings = None
            return
        if dispatchable.device is not self.device:
            raise other_device("the dispatchable", dispatchable.device, "the binding table", self.device)
        if isinstance(dispatchable, CompiledOperator):
            self.bindings = OperatorBindings(dispatchable)
        else:
            self.bindings = InitializerBindings(dispatchable)

    def bind_inputs(self, bindings: Iterable[Binding] | None) -> None:
        """``IDMLBindingTable::BindInputs``. None or no bindings unbind all.

        Args:
            bindings: One for each input slot of a compiled operator, None for an absent optional tensor and for one
                that is OWNED_BY_DML. For an initialiser one ``BufferArrayBinding`` for each target, None or an empty
                one where the target owns no input.

        Raises:
            BindingError: naming operator, field, rule and value; the table keeps what it had.
            StateError: a buffer of another device, or a table that serves nothing.
        """
        self._serving().bind_inputs(_listed("Inputs", bindings))

    def bind_outputs(self, bindings: Iterable[Binding] | None) -> None:
        """``IDMLBindingTable::BindOutputs``. None or no bindings unbind all.

        Args:
            bindings: One for each output slot of a compiled operator, None for an absent optional tensor. For an
                initialiser the persistent resource of each target, None where it needs none.

        Raises:
            BindingError, StateError: as ``bind_inputs``.
        """
        self._serving().bind_outputs(_listed("Outputs", bindings))

    def bind_temporary_resource(self, binding: BufferBinding | None) -> None:
        """``IDMLBindingTable::BindTemporaryResource``: scratch of at least ``temporary_resource_size`` bytes.

        Raises:
            BindingError, StateError: as ``bind_inputs``.
        """
        serving = self._serving()
        serving.temporary = serving.resource("TemporaryResource", binding, TEMPORARY_BUFFER_ALIGNMENT)
        serving.changed()

    def bind_persistent_resource(self, binding: BufferBinding | None) -> None:
        """``IDMLBindingTable::BindPersistentResource``: the range that the operator's initialiser wrote.

        Raises:
            BindingError, StateError: as ``bind_inputs``.
        """
        serving = self._serving()
        serving.persistent = serving.resource("PersistentResource", binding, PERSISTENT_BUFFER_ALIGNMENT)
        serving.changed()

    def _serving(self) -> OperatorBindings | InitializerBindings:
        if self.bindings is None:
            raise StateError("the binding table serves no dispatchable; call reset with a dispatchable first")
        return self.bindings


class _Bindings(abc.ABC):
    """The common part of the bindings of operators and initialisers: the two resources and the cached commands."""

    name: str
    dispatchable: Dispatchable

    def __init__(self) -> None:
        self.temporary: BoundRange | None = None
        self.persistent: BoundRange | None = None
        self._commands: list[Command] | None = None

    def changed(self) -> None:
        """Forgets the commands made of the old bindings."""
        self._commands = None

    def commands(self) -> list[Command]:
        """The commands of a complete table.

        Raises:
            BindingError: a binding is missing, or ranges conflict.
        """
        commands = self._commands
        if commands is None:
            self._check()
            commands = self._commands = self._make_commands()
        return commands

    def resource(self, field: str, binding: object, alignment: int) -> BoundRange | None:
        """The range of a temporary or persistent resource."""
        properties = self.dispatchable.get_binding_properties()
        is_temporary = field == "TemporaryResource"
        size = properties.temporary_resource_size if is_temporary else properties.persistent_resource_size
        if _is_empty(binding):
            return None
        return _range(self.dispatchable.device, self.name, field, binding, size, alignment)

    def _require_temporary(self) -> None:
        size = self.dispatchable.get_binding_properties().temporary_resource_size
        if size and self.temporary is None:
            raise BindingError(_must_be_bound(size), operator=self.name, field="TemporaryResource")

    @abc.abstractmethod
    def _check(self) -> None:
        """Raises BindingError for what only all bindings together can break."""

    @abc.abstractmethod
    def _make_commands(self) -> list[Command]:
        """The commands that recording these bindings adds to a list."""


class OperatorBindings(_Bindings):
    """The bindings of a compiled operator."""

    def __init__(self, operator: CompiledOperator) -> None:
        super().__init__()
        self.dispatchable: CompiledOperator = operator
        self.name = operator.signature.operator
        self.inputs: list[BoundRange | None] | None = None
        self.outputs: list[BoundRange | None] | None = None

    def bind_inputs(self, bindings: Sequence[Binding]) -> None:
        """See ``BindingTable.bind_inputs``."""
        self.inputs = self._tensors("Inputs", self.dispatchable.signature.inputs, bindings) if bindings else None
        self.changed()

    def bind_outputs(self, bindings: Sequence[Binding]) -> None:
        """See ``BindingTable.bind_outputs``."""
        bound = None
        if bindings:
            slots = self.dispatchable.signature.outputs
            bound = self._tensors("Outputs", slots, bindings)
            _check_disjoint(self.name, [(slot.name, part) for slot, part in zip(slots, bound, strict=True)])
        self.outputs = bound
        self.changed()

    def _tensors(self, field: str, slots: Sequence[TensorSlot], bindings: Sequence[Binding]) -> list[BoundRange | None]:
        _check_count(self.name, field, len(slots), bindings)
        return [self._tensor(slot, binding) for slot, binding in zip(slots, bindings, strict=True)]

    def _tensor(self, slot: TensorSlot, binding: Binding) -> BoundRange | None:
        name, tensor = slot
        if tensor is None or tensor.owned_by_dml:
            if not _is_empty(binding):
                owned = "an OWNED_BY_DML tensor must be None here: it is bound at initialisation only"
                rule = "must be None, because the desc does not have this optional tensor" if tensor is None else owned
                raise BindingError(rule, operator=self.name, field=name, value=binding)
            return None
        return _tensor_range(self.dispatchable.device, self.name, name, tensor, binding)

    def _check(self) -> None:
        signature, size = self.dispatchable.signature, self.dispatchable.plan.persistent_bytes
        inputs = self._complete("Inputs", signature.inputs, self.inputs)
        outputs = self._complete("Outputs", signature.outputs, self.outputs)
        self._require_temporary()
        if size and self.persistent is None:
            raise BindingError(_must_be_bound(size), operator=self.name, field="PersistentResource")

        for index, read in enumerate(inputs):
            for target, written in enumerate(outputs):
                if read and written and read.intersects(written) and not self._runs_in_place(index, target):
                    raise BindingError(
                        f"may share bytes with {signature.outputs[target].name} only as the same range, where the operator "
                        "runs in place and both tensors have the same layout",
                        operator=self.name,
                        field=signature.inputs[index].name,
                        value=(read, written),
                    )
        if self.persistent is None and self.temporary is None:
            return
        written_tensors = _named(signature.outputs, outputs)
        tensors = _named(signature.inputs, inputs) + written_tensors
        _check_apart(self.name, "PersistentResource", self.persistent, written_tensors)
        others = [*tensors, ("PersistentResource", self.persistent)]
        _check_apart(self.name, "TemporaryResource", self.temporary, others)

    def _complete(
        self, field: str, slots: Sequence[TensorSlot], bound: list[BoundRange | None] | None
    ) -> list[BoundRange | None]:
        """A range for each slot. A bind call has seen to it that all which are required are there; without a call,
        none may be required."""
        if bound is None:
            needed = [slot.name for slot in slots if slot.tensor is not None and not slot.tensor.owned_by_dml]
            if needed:
                raise BindingError(f"{', '.join(needed)} must be bound before recording", operator=self.name, field=field)
            return [None] * len(slots)
        return bound

    def _runs_in_place(self, index: int, target: int) -> bool:
        signature = self.dispatchable.signature
        read, written = signature.inputs[index].tensor, signature.outputs[target].tensor
        assert self.inputs and self.outputs and read and written, "only bound slots intersect"
        return (
            index in signature.in_place
            and self.inputs[index] == self.outputs[target]
            and read.data_type == written.data_type
            and read.sizes == written.sizes
            and read.effective_strides == written.effective_strides
        )

    def _make_commands(self) -> list[Command]:
        operator = self.dispatchable
        signature = operator.signature
        resources = Resources(
            self.inputs or [None] * len(signature.inputs),
            self.outputs or [None] * len(signature.outputs),
            self.temporary,
            self.persistent,
            operator.constants,
        )
        return operator.execution.resolve(resources)


class InitializerBindings(_Bindings):
    """The bindings of an initialiser: for each target its owned inputs and its persistent resource."""

    def __init__(self, initializer: OperatorInitializer) -> None:
        super().__init__()
        self.dispatchable: OperatorInitializer = initializer
        self.name = _INITIALIZER
        self.operators = initializer.operators
        self.generation = initializer.generation
        self.inputs: list[list[BoundRange | None]] | None = None
        self.outputs: list[BoundRange | None] | None = None

    def bind_inputs(self, bindings: Sequence[Binding]) -> None:
        """See ``BindingTable.bind_inputs``."""
        bound = None
        if bindings:
            _check_count(self.name, "Inputs", len(self.operators), bindings)
            bound = [self._owned(*pair) for pair in zip(self.operators, bindings, strict=True)]
        self.inputs = bound
        self.changed()

    def _owned(self, operator: CompiledOperator, binding: Binding) -> list[BoundRange | None]:
        signature = operator.signature
        name = signature.operator
        if binding is not None and not isinstance(binding, BufferArrayBinding):
            raise BindingError("must be a BufferArrayBinding or None", operator=name, field="Inputs", value=binding)
        entries = _listed("Inputs", None if binding is None else binding.bindings)
        if not entries and not signature.owned_inputs:
            return [None] * len(signature.inputs)
        _check_count(name, "Inputs", len(signature.inputs), entries)
        bound: list[BoundRange | None] = []
        for slot, entry in zip(signature.inputs, entries, strict=True):
            if slot.tensor is not None and slot.tensor.owned_by_dml:
                bound.append(_tensor_range(operator.device, name, slot.name, slot.tensor, entry))
            elif _is_empty(entry):
                bound.append(None)
            else:
                rule = "must be None, because only OWNED_BY_DML tensors are bound at initialisation"
                raise BindingError(rule, operator=name, field=slot.name, value=entry)
        return bound

    def bind_outputs(self, bindings: Sequence[Binding]) -> None:
        """See ``BindingTable.bind_outputs``."""
        bound: list[BoundRange | None] | None = None
        if bindings:
            _check_count(self.name, "Outputs", len(self.operators), bindings)
            bound = [self._home(*pair) for pair in zip(self.operators, bindings, strict=True)]
            _check_disjoint(self.name, [(_home_name(op), part) for op, part in zip(self.operators, bound, strict=True)])
        self.outputs = bound
        self.changed()

    def _home(self, operator: CompiledOperator, binding: Binding) -> BoundRange | None:
        size = operator.plan.persistent_bytes
        if _is_empty(binding) and not size:
            return None
        return _range(operator.device, self.name, _home_name(operator), binding, size, PERSISTENT_BUFFER_ALIGNMENT)

    def _check(self) -> None:
        if self.generation != self.dispatchable.generation:
            raise StateError("the initialiser was reset after the binding table; reset the table too")
        for operator in self.operators:
            if self.inputs is None and operator.signature.owned_inputs:
                rule = f"the OWNED_BY_DML inputs of {operator.signature.operator} must be bound before recording"
                raise BindingError(rule, operator=self.name, field="Inputs")
            if self.outputs is None and operator.plan.persistent_bytes:
                rule = f"{_home_name(operator)} must be bound before recording"
                raise BindingError(rule, operator=self.name, field="Outputs")
        self._require_temporary()

        homes = [(_home_name(op), home) for op, home in zip(self.operators, self._homes(), strict=True)]
        reads: list[tuple[str, BoundRange | None]] = []
        for operator, owned in zip(self.operators, self._owned_inputs(), strict=True):
            signature = operator.signature
            reads += [(f"{signature.operator}.{name}", part) for name, part in _named(signature.inputs, owned)]
        for name, read in reads:
            for home_name, home in homes:
                if read and home and read.buffer == home.buffer:
                    raise BindingError(
                        f"at initialisation an input may not share a buffer with the output {home_name}",
                        operator=self.name,
                        field=name,
                        value=(read, home),
                    )
        _check_apart(self.name, "TemporaryResource", self.temporary, reads + homes)

    def _homes(self) -> list[BoundRange | None]:
        return self.outputs or [None] * len(self.operators)

    def _owned_inputs(self) -> list[list[BoundRange | None]]:
        return self.inputs or [[None] * len(operator.signature.inputs) for operator in self.operators]

    def targets(self) -> list[tuple[CompiledOperator, BoundRange | None]]:
        """Each target with its persistent resource."""
        return list(zip(self.operators, self._homes(), strict=True))

    def _make_commands(self) -> list[Command]:
        commands = []
        for (operator, home), owned in zip(self.targets(), self._owned_inputs(), strict=True):
            resources = Resources(owned, (), self.temporary, home, operator.constants)
            for slot, offset in operator.plan.persistent_inputs:
                source = owned[slot]
                assert source is not None and home is not None, "owned inputs and their home are bound"
                target = BoundRange(home.buffer, home.offset + offset, source.nbytes)
                commands.append(copy_between(operator.signature.operator, source, target))
            commands += operator.initialization.resolve(resources)
        return commands


def _listed(field: str, bindings: Iterable[_B] | None) -> list[_B]:
    if bindings is None:
        return []
    if not isinstance(bindings, Iterable):
        raise BindingError("must be a sequence of bindings, or None", field=field, value=bindings)
    return list(bindings)


def _home_name(operator: CompiledOperator) -> str:
    return f"{operator.signature.operator}.PersistentResource"


def _is_empty(binding: object) -> bool:
    return binding is None or (isinstance(binding, BufferBinding) and binding.buffer is None)


def _named(slots: Sequence[TensorSlot], bound: Sequence[BoundRange | None]) -> list[tuple[str, BoundRange | None]]:
    return [(slot.name, part) for slot, part in zip(slots, bound, strict=True)]


def _check_count(operator: str, field: str, expected: int, bindings: Sequence[object]) -> None:
    if len(bindings) != expected:
        rule = "must have one binding for each tensor, None for an absent optional one"
        raise BindingError(rule, operator=operator, field=field, value=len(bindings), expected=expected)


def _tensor_range(device: ComputeDevice, operator: str, field: str, tensor: TensorDesc, binding: object) -> BoundRange:
    bound = _range(device, operator, field, binding, tensor.total_tensor_size_in_bytes, MINIMUM_BUFFER_TENSOR_ALIGNMENT)
    guaranteed = tensor.guaranteed_base_offset_alignment
    if guaranteed and bound.offset % guaranteed:
        rule = f"the offset must be a multiple of the guaranteed base offset alignment, {guaranteed} bytes"
        raise BindingError(rule, operator=operator, field=field, value=bound.offset)
    return bound


def _range(device: ComputeDevice, operator: str, field: str, binding: object, needed: int, alignment: int) -> BoundRange:
    """The first ``needed`` bytes of a binding, which must be a buffer range that holds them."""

    def error(rule: str, value: object) -> BindingError:
        return BindingError(rule, operator=operator, field=field, value=value)

    buffer, offset, size = binding if isinstance(binding, BufferBinding) else (None, 0, None)
    if not isinstance(buffer, Buffer):
        raise error("must be a BufferBinding with a buffer", binding)
    if buffer.device is not device:
        raise other_device(f"{operator}.{field}: the buffer", buffer.device, "the binding table", device)
    if not isinstance(offset, _INTEGERS) or offset < 0 or offset % alignment:
        raise error(f"the offset must be a multiple of {alignment} bytes", offset)
    if size is not None and not isinstance(size, _INTEGERS):
        raise error("the size must be a number of bytes", size)
    offset = int(offset)
    length = buffer.size_in_bytes - offset if size is None else int(size)
    if length < 0 or offset + length > buffer.size_in_bytes:
        raise error(f"offset and size must lie inside the buffer's {buffer.size_in_bytes} bytes", (offset, length))
    if length < needed:
        raise error(f"must have at least {needed} bytes", length)
    return BoundRange(buffer, offset, needed)


def _check_disjoint(operator: str, ranges: Sequence[tuple[str, BoundRange | None]]) -> None:
    """No two outputs intersect."""
    for index, (name, part) in enumerate(ranges):
        _check_apart(operator, name, part, ranges[:index])


def _check_apart(
    operator: str, field: str, part: BoundRange | None, others: Iterable[tuple[str, BoundRange | None]]
) -> None:
    for name, other in others:
        if part is not None and other is not None and part.intersects(other):
            raise BindingError(f"may not share bytes with {name}", operator=operator, field=field, value=(part, other))


def _must_be_bound(size: int) -> str:
    return f"must be bound, with at least {size} bytes"
