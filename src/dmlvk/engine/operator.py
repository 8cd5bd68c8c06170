"""One operator made ready for a device, in the engine's own light way.

The engine places all memory itself, so there is no binding table here, and nothing is checked for aliasing: commands are
made of byte ranges that the caller vouches for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

from dmlvk.devices.capabilities import Capabilities
from dmlvk.engine.recipe import FilledPlan
from dmlvk.kernels.common.plan import Launch, Plan, Source
from dmlvk.kernels.lowering import check_data_types, lower
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import ParameterBlock
from dmlvk.runtime.recorder import BoundRange, Command, PreparedLaunches, Resources, copy_between
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import PERSISTENT_BUFFER_ALIGNMENT, TEMPORARY_BUFFER_ALIGNMENT, TensorDesc

Ranges = Sequence[BoundRange | None]
"""A range for each slot, None where nothing is bound."""

SECONDS_BETWEEN_SAVES: Final = 5.0


class PreparedOperator:
    """A desc with its plan, pipelines and parameter blocks on a device.

    Args:
        device: The device that runs it.
        desc: A validated desc.
        plan: The plan of the desc.

    Attributes:
        desc: The desc.
        plan: The plan, with a place in the persistent resource for every OWNED_BY_DML input.
        temporary_bytes: The scratch of an execution; of a filled operator, whose plan says other sizes, too.
        owned_inputs: The slots of those, which are bound at initialisation only.
        persistent: The range that initialisation leaves for executions; None before it, and where the plan needs none.
        initialized: Whether initialisation is submitted.
    """

    def __init__(self, device: ComputeDevice, desc: OperatorDesc, plan: Plan) -> None:
        tensors = [slot.tensor for slot in desc.input_slots()]
        self.desc = desc
        self.owned_inputs = owned_inputs(tensors)
        self.plan = keep_owned_inputs(tensors, plan)
        self.temporary_bytes = self.plan.temporary_bytes
        self.persistent: BoundRange | None = None
        self.initialized = False
        self._execution = PreparedLaunches(device, desc.dml_name, self.plan.dispatches, self.plan.repetition)
        self._initialization = PreparedLaunches(device, desc.dml_name, self.plan.initialize)
        device.save_pipeline_cache(at_most_every=SECONDS_BETWEEN_SAVES)

    @property
    def launches(self) -> int:
        """The launches of an execution."""
        return self._execution.count

    def initialization(self, owned: Ranges, temporary: BoundRange | None, persistent: BoundRange | None) -> list[Command]:
        """The commands of the initialisation; ``keep`` what they write once they are submitted.

        Args:
            owned: The range of each input slot that is OWNED_BY_DML; others are not looked at.
            temporary: ``initialization_scratch(plan)`` bytes at least, None for none.
            persistent: ``plan.persistent_bytes``, None for none.
        """
        commands = []
        for slot, offset in self.plan.persistent_inputs:
            source = owned[slot]
            assert source is not None and persistent is not None, "owned inputs and their home are there"
            target = BoundRange(persistent.buffer, persistent.offset + offset, source.nbytes)
            commands.append(copy_between(self.desc.dml_name, source, target))
        return commands + self._initialization.resolve(Resources(owned, (), temporary, persistent))

    def keep(self, persistent: BoundRange | None) -> None:
        """Notes that the initialisation is submitted, and where it leaves what executions read."""
        self.persistent = persistent
        self.initialized = True

    def uninitialized(self) -> PreparedOperator:
        """The same operator before its initialisation."""
        made = object.__new__(PreparedOperator)
        made.__dict__.update(self.__dict__, persistent=None, initialized=False)
        return made

    def varying(self, plan: FilledPlan) -> list[bytes]:
        """The parameter blocks of a filled plan that the operator does not have yet."""
        return self._execution.varying(plan.dispatches)

    def filled(self, plan: FilledPlan, placed: Iterator[ParameterBlock]) -> PreparedOperator:
        """The same operator, initialised as it is, for certain sizes.

        Args:
            plan: What of the operator's plan depends on sizes.
            placed: The blocks of ``varying`` on the device, as many as this takes.
        """
        made = object.__new__(PreparedOperator)
        made.__dict__.update(self.__dict__)  # as copy.copy, which takes ten times as long
        made.temporary_bytes = plan.temporary_bytes
        made._execution = self._execution.filled(plan.dispatches, placed)
        return made

    def commands(self, inputs: Ranges, outputs: Ranges, temporary: BoundRange | None) -> list[Command]:
        """The commands of one execution.

        Args:
            inputs, outputs: The range of each slot; those of OWNED_BY_DML inputs are not looked at.
            temporary: ``temporary_bytes`` at least, None for none.
        """
        return self._execution.resolve(Resources(inputs, outputs, temporary, self.persistent))


def lowered(device: ComputeDevice, desc: OperatorDesc, caps: Capabilities | None = None) -> Plan:
    """The plan of a desc on a device.

    Args:
        device: The device that is to run it.
        desc: Any desc.
        caps: The capabilities that its kernels may rely on, the device's where None.

    Raises:
        InvalidArgumentError: the desc breaks a rule.
        UnsupportedError: no kernel, or the device lacks a data type, feature or limit that the desc needs.
    """
    desc.validate()
    check_data_types(desc, device.capabilities)
    return lower(desc, caps or device.capabilities)


def owned_inputs(tensors: Sequence[TensorDesc | None]) -> tuple[int, ...]:
    """The input slots whose tensors are OWNED_BY_DML."""
    return tuple(slot for slot, tensor in enumerate(tensors) if tensor is not None and tensor.owned_by_dml)


def initialization_scratch(plan: Plan) -> int:
    """Bytes of temporary memory that a plan's initialisation uses."""
    uses = any(part.source is Source.TEMPORARY for launch in plan.initialize for part in launch.bindings)
    return plan.temporary_bytes if uses else 0


def keep_owned_inputs(tensors: Sequence[TensorDesc | None], plan: Plan) -> Plan:
    """The plan with a place in the persistent resource for every OWNED_BY_DML input that its execution reads, with
    executions redirected there, and with resource sizes rounded up to their alignment."""
    offsets = dict(plan.persistent_inputs)
    end = plan.persistent_bytes
    read = {part.slot for launch in plan.dispatches for part in launch.bindings if part.source is Source.INPUT}
    for slot in owned_inputs(tensors):
        tensor = tensors[slot]
        assert tensor is not None, "owned inputs are present"
        if slot in read and slot not in offsets:
            offsets[slot] = _round_up(end, PERSISTENT_BUFFER_ALIGNMENT)
            end = offsets[slot] + tensor.total_tensor_size_in_bytes

    def redirect(launch: Launch) -> Launch:
        bindings = []
        for part in launch.bindings:
            if part.source is Source.INPUT and part.slot in offsets:
                tensor = tensors[part.slot]
                assert tensor is not None, "owned inputs are present"
                part = part._replace(
                    source=Source.PERSISTENT,
                    slot=0,
                    offset=offsets[part.slot] + part.offset,
                    nbytes=part.nbytes or tensor.total_tensor_size_in_bytes - part.offset,
                )
            bindings.append(part)
        return dataclasses.replace(launch, bindings=tuple(bindings))

    return dataclasses.replace(
        plan,
        dispatches=tuple(map(redirect, plan.dispatches)) if offsets else plan.dispatches,
        temporary_bytes=_round_up(plan.temporary_bytes, TEMPORARY_BUFFER_ALIGNMENT),
        persistent_bytes=_round_up(end, PERSISTENT_BUFFER_ALIGNMENT),
        persistent_inputs=tuple(offsets.items()),
    )


def _round_up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
