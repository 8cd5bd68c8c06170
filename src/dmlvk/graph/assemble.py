"""Joins steps into one plan: the launches of each operator, with their ranges moved to where the graph's storages lie."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from typing import Final

from dmlvk.devices.capabilities import Capabilities
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.kernels.common.plan import BlockCopy, Launch, Plan, Range, Source
from dmlvk.kernels.lowering import lower
from dmlvk.spec.enums import TensorFlags
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import FieldKind, OperatorDesc
from dmlvk.spec.tensor import PERSISTENT_BUFFER_ALIGNMENT, TensorDesc

_ALIGNMENT: Final = PERSISTENT_BUFFER_ALIGNMENT


@dataclass(frozen=True)
class Assembly:
    """A graph ready to be compiled.

    Attributes:
        plan: The plan; its slots of INPUT and OUTPUT are the graph's, those of CONSTANT index ``constants``.
        constants: The storages to upload once.
        steps: The operators whose launches the plan has, in order.
    """

    plan: Plan
    constants: tuple[Storage, ...]
    steps: tuple[Step, ...]


def assemble(
    steps: Sequence[Step], inputs: Sequence[Storage | None], outputs: Sequence[Storage], caps: Capabilities
) -> Assembly:
    """One plan for steps in order.

    Args:
        steps: Validated operators.
        inputs: The storage of each graph input, None for one that nothing reads.
        outputs: The storage of each graph output; several may be the same, or a constant.
        caps: The device.

    Raises:
        UnsupportedError: an operator has no kernel on the device.
    """
    return _Assembler(steps, inputs, outputs, caps).assembly()


class _Assembler:
    def __init__(
        self, steps: Sequence[Step], inputs: Sequence[Storage | None], outputs: Sequence[Storage], caps: Capabilities
    ) -> None:
        self.outputs = outputs
        self.steps = [step for step in steps if not step.runs_once]
        self.first_steps = [step for step in steps if step.runs_once]
        known = {storage for step in self.first_steps for storage in step.written()}
        known.update(_owned(steps))
        self.plans = [_lowered(step, owning(step.desc, constant_slots(step, known)), caps) for step in self.steps]
        self.first_plans = [_lowered(step, disowning(step.desc), caps) for step in self.first_steps]
        self.homes: dict[Storage, Range] = {}
        for slot, storage in enumerate(inputs):
            if storage is not None:
                self.homes[storage] = Range(Source.INPUT, slot)
        for slot, storage in enumerate(outputs):
            if storage.constant is None:
                self.homes.setdefault(storage, Range(Source.OUTPUT, slot))
        self.persistent_bytes = 0
        for storage in dict.fromkeys(storage.place.storage for step in self.steps for storage in step.read()):
            if storage in known and storage not in self.homes:
                self.homes[storage] = Range(Source.PERSISTENT, 0, self._kept(storage.nbytes))
        self.constants: dict[Storage, int] = {}
        self.placement = Placement(self.steps, (), (), _scratch(self.plans), apart=self.homes)
        self.first_placement = Placement(self.first_steps, (), (), _scratch(self.first_plans), apart=self.homes)

    def _kept(self, nbytes: int) -> int:
        """The offset of so many more bytes of the persistent resource."""
        offset = self.persistent_bytes
        self.persistent_bytes += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return offset

    def assembly(self) -> Assembly:
        launches: list[Launch] = []
        initialize: list[Launch] = []
        temporary = max(self.placement.nbytes, self.first_placement.nbytes)
        for step, plan, scratch in zip(self.first_steps, self.first_plans, self.first_placement.scratch, strict=True):
            persistent = self._kept(plan.persistent_bytes)
            for launch in (*plan.initialize, *plan.dispatches):
                initialize.append(self._moved(launch, step, self.first_placement, scratch, persistent))
        for step, plan, scratch in zip(self.steps, self.plans, self.placement.scratch, strict=True):
            persistent = self._kept(plan.persistent_bytes)
            launches += [self._moved(launch, step, self.placement, scratch, persistent) for launch in plan.dispatches]
            initialize += [self._moved(launch, step, self.placement, 0, persistent) for launch in plan.initialize]
            assert not plan.persistent_inputs, "what is kept as it is, is kept for the whole graph"
            if plan.initialize:
                temporary = max(temporary, plan.temporary_bytes)
        launches += self._copies()
        plan = Plan(tuple(launches), temporary, self.persistent_bytes, tuple(initialize))
        return Assembly(plan, tuple(self.constants), (*self.first_steps, *self.steps))

    def _moved(self, launch: Launch, step: Step, placement: Placement, scratch: int, persistent: int) -> Launch:
        """A launch of one operator as one of the graph's."""
        bindings = []
        for part in launch.bindings:
            if part.source is Source.TEMPORARY:
                part = part._replace(offset=scratch + part.offset)
            elif part.source is Source.PERSISTENT:
                part = part._replace(offset=persistent + part.offset)
            elif part.source is not Source.COUNTERS:
                read = part.source is Source.INPUT
                storage = (step.inputs if read else step.outputs)[part.slot]
                slot = (step.desc.input_slots() if read else step.desc.output_slots())[part.slot]
                assert storage is not None and slot.tensor is not None, "kernels touch tensors that are there"
                nbytes = part.nbytes or slot.tensor.total_tensor_size_in_bytes - part.offset
                home = self._home(storage, placement)
                part = Range(home.source, home.slot, home.offset + part.offset, nbytes)
            bindings.append(part)
        return dataclasses.replace(launch, bindings=tuple(bindings))

    def _home(self, storage: Storage, placement: Placement) -> Range:
        """The range of a storage: in a slot of the graph, among what is kept, in a constant, or in the arena."""
        whole, offset = storage.place
        if whole in self.homes:
            home = self.homes[whole]
            return home._replace(offset=home.offset + offset)
        if whole.constant is not None:
            return Range(Source.CONSTANT, self.constants.setdefault(whole, len(self.constants)), offset)
        return Range(Source.TEMPORARY, 0, placement.offset(storage))

    def _copies(self) -> list[Launch]:
        """The outputs that no operator writes: a constant, and a storage that another output shows already."""
        copies: list[Launch] = []
        for slot, storage in enumerate(self.outputs):
            home = self._home(storage, self.placement)
            if home != Range(Source.OUTPUT, slot):
                parts = (home._replace(nbytes=storage.nbytes), Range(Source.OUTPUT, slot, 0, storage.nbytes))
                copies.append(BlockCopy(parts))
        return copies


def _scratch(plans: Sequence[Plan]) -> list[int]:
    return [plan.temporary_bytes for plan in plans]


def _owned(steps: Sequence[Step]) -> set[Storage]:
    """The graph inputs that are OWNED_BY_DML."""
    return {
        storage
        for step in steps
        for storage, slot in zip(step.inputs, step.desc.input_slots(), strict=True)
        if storage is not None and slot.tensor is not None and slot.tensor.owned_by_dml
    }


def _lowered(step: Step, desc: OperatorDesc, caps: Capabilities) -> Plan:
    try:
        return lower(desc, caps)
    except UnsupportedError as error:
        raise refusal(step.origin, error) from error


def refusal(origin: Origin, error: UnsupportedError) -> UnsupportedError:
    """The error of a device about an operator, with the origin of its step."""
    reason = f"{error.reason} ({origin})"
    return UnsupportedError(reason, operator=error.operator, limitation=error.limitation, features=error.features)


def constant_slots(step: Step, known: Collection[Storage] = ()) -> frozenset[int]:
    """The input slots of single tensors that are constants, or lie in storages known at initialisation: what repacks them
    may do so then."""
    return frozenset(
        index
        for index, (storage, slot) in enumerate(zip(step.inputs, step.desc.input_slots(), strict=True))
        if storage is not None
        and (storage.constant is not None or storage.place.storage in known)
        and slot.field.kind is FieldKind.INPUT_TENSOR
    )


def owning(desc: OperatorDesc, slots: Set[int]) -> OperatorDesc:
    """The desc with the tensors of these input slots OWNED_BY_DML."""
    fields = [desc.input_slots()[slot].field.name for slot in slots]
    owned = {field: dataclasses.replace(desc.tensor(field), flags=TensorFlags.OWNED_BY_DML) for field in fields}
    return desc.replace(**owned)


def disowning(desc: OperatorDesc) -> OperatorDesc:
    """The desc without tensors that are OWNED_BY_DML."""
    owned = {slot.field.name for slot in desc.input_slots() if slot.tensor is not None and slot.tensor.owned_by_dml}
    return desc.replace(**{name: _disowned(getattr(desc, name)) for name in owned}) if owned else desc


def _disowned(tensors: TensorDesc | tuple[TensorDesc, ...]) -> TensorDesc | tuple[TensorDesc, ...]:
    if isinstance(tensors, TensorDesc):
        return dataclasses.replace(tensors, flags=TensorFlags.NONE)
    return tuple(dataclasses.replace(tensor, flags=TensorFlags.NONE) for tensor in tensors)
