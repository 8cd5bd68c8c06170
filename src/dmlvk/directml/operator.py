"""``IDMLOperator``, ``IDMLCompiledOperator`` and ``IDMLOperatorInitializer``.

A compiled operator owns a plan and its pipelines. It is initialised exactly once, by executing an initialiser that
names it, before it is executed. "Once" counts submissions: an initialiser may be recorded in several lists, earlier in
the one that executes the operator among them, and the first of these that is submitted initialises it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from dmlvk.engine.operator import initialization_scratch, keep_owned_inputs, owned_inputs
from dmlvk.html.elements import element, facts, notebook, shortened, table
from dmlvk.html.words import size
from dmlvk.kernels.common.plan import Plan
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer
from dmlvk.runtime.recorder import BoundRange, PreparedLaunches
from dmlvk.spec.enums import ExecutionFlags, member
from dmlvk.spec.errors import StateError, other_device
from dmlvk.spec.schema import OperatorDesc, Slot
from dmlvk.spec.tensor import TensorDesc

_MOST_BINDINGS: Final = 50
"""The most bindings that a notebook shows."""


class BindingProperties(NamedTuple):
    """``DML_BINDING_PROPERTIES``: what a binding table for a dispatchable must hold.

    Attributes:
        required_descriptor_count: Bindings that the dispatchable may use. Descriptors themselves are the library's.
        temporary_resource_size: Bytes of scratch, 0 for none.
        persistent_resource_size: Bytes that initialisation leaves for executions, 0 for none and for initialisers.
    """

    required_descriptor_count: int
    temporary_resource_size: int
    persistent_resource_size: int


class TensorSlot(NamedTuple):
    """One binding slot: its name in the specification and its tensor, None where an optional tensor is absent."""

    name: str
    tensor: TensorDesc | None


@dataclass(frozen=True)
class Signature:
    """The binding slots of an operator, for its binding table.

    Attributes:
        operator: Name for messages.
        inputs, outputs: The binding slots in order.
        in_place: Input slots whose exact range an output of the same layout may share.
    """

    operator: str
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    in_place: frozenset[int]

    @staticmethod
    def of(desc: OperatorDesc) -> Signature:
        """The signature of a single operator."""
        return Signature(
            desc.dml_name,
            tuple(map(_tensor_slot, desc.input_slots())),
            tuple(map(_tensor_slot, desc.output_slots())),
            desc.in_place_slots(),
        )

    @cached_property
    def owned_inputs(self) -> tuple[int, ...]:
        """Input slots that are bound at initialisation only."""
        return owned_inputs([slot.tensor for slot in self.inputs])


def _tensor_slot(slot: Slot) -> TensorSlot:
    is_array = slot.field.kind.name.endswith("_ARRAY")
    return TensorSlot(f"{slot.field.dml_name}[{slot.element}]" if is_array else slot.field.dml_name, slot.tensor)


class Operator:
    """``IDMLOperator``: a desc that has been validated for a device. Made by ``Device.create_operator``.

    Attributes:
        device: Its device.
        desc: The description.
    """

    def __init__(self, device: ComputeDevice, desc: OperatorDesc) -> None:
        self.device = device
        self.desc = desc


class CompiledOperator:
    """``IDMLCompiledOperator``: a plan with its pipelines, executable once initialised. Shared freely between threads.

    Made by ``Device.compile_operator``.

    Attributes:
        device: Its device.
        signature: Its binding slots.
        flags: The flags that it was compiled with.
        plan: The plan of its kernels.
        execution, initialization: The plan's two programs.
        constants: The buffers that it brings along, as a graph of constant nodes does.
        initialized: Whether its initialiser has been submitted.
        persistent_home: The range to which the initialiser that was submitted writes the persistent resource.
        recorded_homes: The ranges to which the recorded ones do, one for each, until one of them is submitted.
    """

    def __init__(
        self,
        device: ComputeDevice,
        signature: Signature,
        plan: Plan,
        flags: ExecutionFlags,
        constants: Sequence[Buffer] = (),
    ) -> None:
        self.device: Final = device
        self.constants: Final = tuple(BoundRange(buffer, 0, buffer.size_in_bytes) for buffer in constants)
        self.signature: Final = signature
        self.flags: Final = member(ExecutionFlags, flags, "flags")
        self.plan: Final = keep_owned_inputs([slot.tensor for slot in signature.inputs], plan)
        temporary, persistent = self.plan.temporary_bytes, self.plan.persistent_bytes
        count = len(signature.inputs) + len(signature.outputs) + (temporary > 0) + (persistent > 0)
        self._properties: Final = BindingProperties(count, temporary, persistent)
        self.execution: Final = PreparedLaunches(device, signature.operator, self.plan.dispatches)
        self.initialization: Final = PreparedLaunches(device, signature.operator, self.plan.initialize)
        self.initialized = False
        self.persistent_home: BoundRange | None = None
        self.recorded_homes: tuple[BoundRange | None, ...] = ()

    def _repr_html_(self) -> str:
        slots = (("input", self.signature.inputs), ("output", self.signature.outputs))
        tensors = [(slot.name, what, str(slot.tensor or "none")) for what, own in slots for slot in own]
        launches = self.plan.dispatches
        known = facts(
            (
                ("device", self.device.info.name),
                ("initialized", "yes" if self.initialized else "not yet"),
                ("launches", f"{len(launches):,}"),
                ("kernels", shortened(", ".join(dict.fromkeys(launch.name for launch in launches)))),
                ("memory", f"{size(self.plan.temporary_bytes)} temporary, {size(self.plan.persistent_bytes)} persistent"),
            )
        )
        names = table(("binding", "", "tensor"), tensors[:_MOST_BINDINGS])
        return notebook(type(self).__name__, self.signature.operator, known, element("div", names, class_="scroll"))

    def get_binding_properties(self) -> BindingProperties:
        """``IDMLDispatchable::GetBindingProperties``: the bytes of the temporary and persistent resources to bind."""
        return self._properties

    def require_uninitialized(self) -> None:
        """Raises StateError if it has been initialised."""
        if self.initialized:
            raise StateError(f"{self.signature.operator}: a compiled operator can be initialised only once")

    def note_recorded(self, home: BoundRange | None) -> None:
        """Called when an initialiser with this target has been recorded, with the range that it writes."""
        self.recorded_homes = (*self.recorded_homes, home)

    def note_submitted(self, home: BoundRange | None) -> None:
        """Called when an initialiser with this target has been submitted, with the range that it writes."""
        self.persistent_home = home
        self.initialized = True
        self.recorded_homes = ()


class OperatorInitializer:
    """``IDMLOperatorInitializer``: initialises compiled operators when dispatched; does nothing without targets.

    Made by ``Device.create_operator_initializer``.

    Attributes:
        device: Its device.
        operators: The targets.
        generation: Counts resets; a binding table serves the generation that it was made for.
    """

    def __init__(self, device: ComputeDevice, operators: Sequence[CompiledOperator]) -> None:
        self.device: Final = device
        self.operators: tuple[CompiledOperator, ...] = ()
        self.generation = 0
        self.reset(operators)

    def reset(self, operators: Sequence[CompiledOperator] = ()) -> None:
        """``IDMLOperatorInitializer::Reset``: takes other targets. Tables made for the old ones must be reset too.

        What has been recorded stays as it was: lists hold what they need.

        Raises:
            StateError: a target of another device, initialised already or named twice.
        """
        operators = tuple(operators)
        for operator in operators:
            if operator.device is not self.device:
                raise other_device(operator.signature.operator, operator.device, "the initialiser", self.device)
            operator.require_uninitialized()
        if len(set(operators)) != len(operators):
            raise StateError("an initialiser can name each operator only once")
        self.operators = operators
        self.generation += 1

    def get_binding_properties(self) -> BindingProperties:
        """``IDMLDispatchable::GetBindingProperties``; may change with ``reset``."""
        slots = sum(len(operator.signature.inputs) + 1 for operator in self.operators)
        temporary = max((initialization_scratch(operator.plan) for operator in self.operators), default=0)
        return BindingProperties(slots + (temporary > 0), temporary, 0)


Dispatchable = CompiledOperator | OperatorInitializer
"""``IDMLDispatchable``: what can be recorded."""
