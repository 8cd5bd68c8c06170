"""An operator made ready in one step: compiled, given its resources and initialised.

For callers that run one desc, such as ``eager``, ``verify`` and the benchmarks; the steps are those of ``Device``.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.directml.binding import BufferArrayBinding
from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device
from dmlvk.directml.operator import CompiledOperator, Signature
from dmlvk.kernels.common.plan import Plan
from dmlvk.kernels.lowering import lower
from dmlvk.runtime.memory import BufferBinding, Purpose
from dmlvk.spec.schema import OperatorDesc


def initialize(
    device: Device, compiled: CompiledOperator, inputs: Sequence[BufferBinding | None] = ()
) -> BufferBinding | None:
    """Runs the initialiser of an operator; returns its persistent resource, None for none.

    Args:
        device: The device that runs it.
        compiled: The operator.
        inputs: A binding for each slot, where it has OWNED_BY_DML inputs; only theirs are looked at.

    Returns without waiting: what is submitted later finds the operator initialised.
    """
    initializer = device.create_operator_initializer([compiled])
    table = device.create_binding_table(initializer)
    owned = compiled.signature.owned_inputs
    if owned:
        table.bind_inputs([BufferArrayBinding(tuple(part if slot in owned else None for slot, part in enumerate(inputs)))])
    persistent = _resource(device, compiled.get_binding_properties().persistent_resource_size, Purpose.WEIGHTS)
    table.bind_outputs([persistent])
    scratch = initializer.get_binding_properties().temporary_resource_size
    table.bind_temporary_resource(_resource(device, scratch, Purpose.TEMPORARY))
    commands = device.create_command_list()
    device.create_command_recorder().record_dispatch(commands, initializer, table)
    commands.submit()
    return persistent


def _resource(device: Device, nbytes: int, purpose: Purpose) -> BufferBinding | None:
    return BufferBinding(device.create_buffer(nbytes, purpose=purpose)) if nbytes else None


class ReadyOperator:
    """A desc that can be recorded. Its one temporary resource serves one list at a time.

    Args:
        device: The device that runs it.
        desc: The operator.
        rule: The rule of its family to use instead of the one that would be chosen.
        owned: A binding for each slot, where it has OWNED_BY_DML inputs; only theirs are looked at.
        plan: The plan of the desc, where it has been lowered already.

    Attributes:
        compiled: The compiled operator.

    Raises:
        InvalidArgumentError, UnsupportedError: as ``Device.create_operator`` and ``compile_operator``.
    """

    def __init__(
        self,
        device: Device,
        desc: OperatorDesc,
        rule: str = "",
        owned: Sequence[BufferBinding | None] = (),
        *,
        plan: Plan | None = None,
    ) -> None:
        if plan is None:
            plan = lower(device.create_operator(desc).desc, device.capabilities, force=rule)
        self._device = device
        self.compiled = device.compile_plan(Signature.of(desc), plan)
        temporary = self.compiled.get_binding_properties().temporary_resource_size
        self._temporary = _resource(device, temporary, Purpose.TEMPORARY)
        self._persistent = initialize(device, self.compiled, owned)

    def record(
        self,
        commands: CommandList,
        inputs: Sequence[BufferBinding | None],
        outputs: Sequence[BufferBinding | None],
    ) -> None:
        """Records one execution over these bindings, one for each slot; those of OWNED_BY_DML inputs are left out.

        Raises:
            BindingError: as ``BindingTable`` and ``CommandRecorder``.
        """
        device = self._device
        table = device.create_binding_table(self.compiled)
        owned = self.compiled.signature.owned_inputs
        table.bind_inputs([None if slot in owned else part for slot, part in enumerate(inputs)])
        table.bind_outputs(list(outputs))
        table.bind_temporary_resource(self._temporary)
        table.bind_persistent_resource(self._persistent)
        device.create_command_recorder().record_dispatch(commands, self.compiled, table)
