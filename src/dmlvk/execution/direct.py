"""An operator made ready in one step: compiled, given its resources and initialised. For callers that run one desc, such
as ``verify`` and the benchmarks; the steps themselves are those of ``Device``."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.execution.binding import BufferBinding
from dmlvk.execution.command import CommandList
from dmlvk.execution.device import Device
from dmlvk.execution.operator import Signature
from dmlvk.kernels.lowering import lower
from dmlvk.runtime.memory import Purpose
from dmlvk.schema import OperatorDesc


class ReadyOperator:
    """A desc that can be recorded. Its one temporary resource serves one list at a time.

    Args:
        device: Where it runs.
        desc: The operator; none of its inputs is OWNED_BY_DML.
        rule: The rule of its family to use instead of the one that would be chosen.

    Raises:
        InvalidArgumentError, UnsupportedError: as ``Device.create_operator`` and ``compile_operator``.
    """

    def __init__(self, device: Device, desc: OperatorDesc, rule: str = "") -> None:
        self.device = device
        plan = lower(device.create_operator(desc).desc, device.capabilities, force=rule)
        self.compiled = device.compile_plan(Signature.of(desc), plan)
        self._recorder = device.create_command_recorder()
        properties = self.compiled.get_binding_properties()
        self._temporary = self._resource(properties.temporary_resource_size, Purpose.TEMPORARY)
        self._persistent = self._resource(properties.persistent_resource_size, Purpose.WEIGHTS)
        initializer = device.create_operator_initializer([self.compiled])
        table = device.create_binding_table(initializer)
        table.bind_outputs([self._persistent])
        scratch = initializer.get_binding_properties().temporary_resource_size
        table.bind_temporary_resource(self._resource(scratch, Purpose.TEMPORARY))
        commands = device.create_command_list()
        self._recorder.record_dispatch(commands, initializer, table)
        commands.submit()

    def _resource(self, nbytes: int, purpose: Purpose) -> BufferBinding | None:
        return BufferBinding(self.device.create_buffer(nbytes, purpose=purpose)) if nbytes else None

    def record(
        self,
        commands: CommandList,
        inputs: Sequence[BufferBinding | None],
        outputs: Sequence[BufferBinding | None],
    ) -> None:
        """Records one execution over these bindings, one for each slot.

        Raises:
            BindingError: as ``BindingTable`` and ``CommandRecorder``.
        """
        table = self.device.create_binding_table(self.compiled)
        table.bind_inputs(list(inputs))
        table.bind_outputs(list(outputs))
        table.bind_temporary_resource(self._temporary)
        table.bind_persistent_resource(self._persistent)
        self._recorder.record_dispatch(commands, self.compiled, table)
