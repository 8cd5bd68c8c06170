"""From steps to one plan: what each operator launches, with its ranges moved to where the graph's storages lie."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from dmlvk.enums import TensorFlags
from dmlvk.errors import UnsupportedError
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Step, Storage
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.plan import BlockCopy, Launch, Plan, Range, Source
from dmlvk.schema import FieldKind, OperatorDesc
from dmlvk.tensor import PERSISTENT_BUFFER_ALIGNMENT

_ALIGNMENT: Final = PERSISTENT_BUFFER_ALIGNMENT


@dataclass(frozen=True)
class Assembly:
    """A graph ready to be compiled.

    Attributes:
        plan: What it launches; slots of INPUT and OUTPUT are the graph's, those of CONSTANT index ``constants``.
        constants: What to upload once.
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
        outputs: What each graph output shows; several may show the same, or a constant.
        caps: The device.

    Raises:
        UnsupportedError: an operator has no kernel on the device.
    """
    return _Assembler(steps, inputs, outputs, caps).assembly()


class _Assembler:
    def __init__(
        self, steps: Sequence[Step], inputs: Sequence[Storage | None], outputs: Sequence[Storage], caps: Capabilities
    ) -> None:
        self.steps = steps
        self.outputs = outputs
        self.plans = [_lowered(step, caps) for step in steps]
        self.homes: dict[Storage, Range] = {}
        for slot, storage in enumerate(inputs):
            if storage is not None:
                self.homes[storage] = Range(Source.INPUT, slot)
        for slot, storage in enumerate(outputs):
            if storage.constant is None:
                self.homes.setdefault(storage, Range(Source.OUTPUT, slot))
        self.constants: dict[Storage, int] = {}
        scratch = [plan.temporary_bytes for plan in self.plans]
        self.placement = Placement(steps, (), (), scratch, apart=self.homes)

    def assembly(self) -> Assembly:
        launches: list[Launch] = []
        initialize: list[Launch] = []
        persistent = 0
        scratch = 0
        for index, (step, plan) in enumerate(zip(self.steps, self.plans, strict=True)):
            offset = self.placement.scratch[index]
            launches += [self._moved(launch, step, offset, persistent) for launch in plan.dispatches]
            initialize += [self._moved(launch, step, 0, persistent) for launch in plan.initialize]
            assert not plan.persistent_inputs, "what is kept as it is, is kept for the whole graph"
            persistent += -(-plan.persistent_bytes // _ALIGNMENT) * _ALIGNMENT
            if plan.initialize:
                scratch = max(scratch, plan.temporary_bytes)
        launches += self._copies()
        plan = Plan(tuple(launches), max(self.placement.nbytes, scratch), persistent, tuple(initialize))
        return Assembly(plan, tuple(self.constants), tuple(self.steps))

    def _moved(self, launch: Launch, step: Step, scratch: int, persistent: int) -> Launch:
        """A launch of one operator as one of the graph's."""
        bindings = []
        for part in launch.bindings:
            if part.source is Source.TEMPORARY:
                part = part._replace(offset=scratch + part.offset)
            elif part.source is Source.PERSISTENT:
                part = part._replace(offset=persistent + part.offset)
            else:
                read = part.source is Source.INPUT
                storage = (step.inputs if read else step.outputs)[part.slot]
                slot = (step.desc.input_slots() if read else step.desc.output_slots())[part.slot]
                assert storage is not None and slot.tensor is not None, "kernels touch tensors that are there"
                nbytes = part.nbytes or slot.tensor.total_tensor_size_in_bytes - part.offset
                home = self._home(storage)
                part = Range(home.source, home.slot, home.offset + part.offset, nbytes)
            bindings.append(part)
        return dataclasses.replace(launch, bindings=tuple(bindings))

    def _home(self, storage: Storage) -> Range:
        """Where a storage lies: a slot of the graph, a constant, or a place in the arena."""
        if storage in self.homes:
            return self.homes[storage]
        if storage.constant is not None:
            return Range(Source.CONSTANT, self.constants.setdefault(storage, len(self.constants)))
        return Range(Source.TEMPORARY, 0, self.placement.offset(storage))

    def _copies(self) -> list[Launch]:
        """The outputs that no operator writes: a constant, and a storage that another output shows already."""
        copies: list[Launch] = []
        for slot, storage in enumerate(self.outputs):
            home = self._home(storage)
            if home != Range(Source.OUTPUT, slot):
                parts = (home._replace(nbytes=storage.nbytes), Range(Source.OUTPUT, slot, 0, storage.nbytes))
                copies.append(BlockCopy(parts))
        return copies


def _lowered(step: Step, caps: Capabilities) -> Plan:
    try:
        return lower(_owning_constants(step), caps)
    except UnsupportedError as error:
        reason = f"{error.reason} ({step.origin})"
        raise UnsupportedError(
            reason, operator=error.operator, limitation=error.limitation, features=error.features
        ) from error


def _owning_constants(step: Step) -> OperatorDesc:
    """The step's desc with its constants OWNED_BY_DML, so that what repacks them does so at initialisation."""
    return owning(step.desc, constant_slots(step))


def constant_slots(step: Step) -> frozenset[int]:
    """The input slots of single tensors that are constants."""
    return frozenset(
        index
        for index, (storage, slot) in enumerate(zip(step.inputs, step.desc.input_slots(), strict=True))
        if storage is not None and storage.constant is not None and slot.field.kind is FieldKind.INPUT_TENSOR
    )


def owning(desc: OperatorDesc, slots: Set[int]) -> OperatorDesc:
    """The desc with the tensors of these input slots OWNED_BY_DML."""
    fields = [desc.input_slots()[slot].field.name for slot in slots]
    owned = {field: dataclasses.replace(desc.tensor(field), flags=TensorFlags.OWNED_BY_DML) for field in fields}
    return desc.replace(**owned)
