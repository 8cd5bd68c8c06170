"""Compiled plans: what a session has ready for each set of input shapes that it has met."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from dmlvk.errors import UnsupportedError, UnsupportedNodeError
from dmlvk.execution.binding import Binding, BufferArrayBinding, BufferBinding
from dmlvk.execution.command import CommandList
from dmlvk.execution.device import Device
from dmlvk.execution.operator import CompiledOperator
from dmlvk.graph.assemble import constant_slots, owning
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Step, Storage
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.plan import Source as PlanSource
from dmlvk.onnx.model import Array
from dmlvk.onnx.network import Network, Trace
from dmlvk.onnx.transfer import to_bytes
from dmlvk.onnx.values import Sizes, Value
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.schema import OperatorDesc

_Key = tuple[tuple[Sizes, ...], tuple[bytes, ...]]
_Work = tuple[OperatorDesc, tuple[Storage, ...]]
"""What an operator is: its desc, and the constants that are OWNED_BY_DML in it."""


@contextlib.contextmanager
def naming(step: Step) -> Iterator[None]:
    """Names the node in what a device says of its operator."""
    try:
        yield
    except UnsupportedError as error:
        node = step.origin
        raise UnsupportedNodeError(node.name, node.op_type, node.domain, node.version, str(error)) from error


class Plan:
    """A trace, compiled: operators, places and, once there is an arena, the recorded commands."""

    def __init__(self, sizes: Mapping[str, Sizes], trace: Trace, operators: Sequence[CompiledOperator]) -> None:
        self.sizes = dict(sizes)
        self.trace = trace
        self.operators = operators
        outputs = [result.storage for result in trace.outputs.values() if isinstance(result, Value)]
        scratch = [operator.plan.temporary_bytes for operator in operators]
        self.placement = Placement(trace.steps, [value.storage for value in trace.inputs.values()], outputs, scratch)
        self.commands: CommandList | None = None
        self.seconds = 0.0
        self.dispatches = sum(len(operator.plan.dispatches) for operator in operators)


class Plans:
    """The plans of a model on a device, the weights that they share, and the arena in which they take turns. Not for
    several threads at once.

    Args:
        device: Where they run.
        network: The model.
        capacity: Plans kept; the one unused longest goes first.

    Attributes:
        cached: The plans, the newest last.
        newest: The plan of the last run, None before there is one.
    """

    def __init__(self, device: Device, network: Network, capacity: int) -> None:
        self._device = device
        self._network = network
        self._capacity = capacity
        self._recorder = device.create_command_recorder()
        # Plans keep alive what they use: with the last of them go its operators and its own constants.
        self._operators: weakref.WeakValueDictionary[_Work, CompiledOperator] = weakref.WeakValueDictionary()
        self._persistent: weakref.WeakKeyDictionary[CompiledOperator, Buffer] = weakref.WeakKeyDictionary()
        self._constants: weakref.WeakKeyDictionary[Storage, Buffer] = weakref.WeakKeyDictionary()
        self._arena: Buffer | None = None
        self.cached: OrderedDict[_Key, Plan] = OrderedDict()
        self.newest: Plan | None = None

    @property
    def weights_bytes(self) -> int:
        """Device memory of constants."""
        return sum(buffer.size_in_bytes for buffer in (*self._constants.values(), *self._persistent.values()))

    @property
    def arena_bytes(self) -> int:
        """Device memory of everything else."""
        return self._arena.size_in_bytes if self._arena else 0

    def get(self, sizes: Mapping[str, Sizes], host_feeds: Mapping[str, Array]) -> Plan:
        """The plan for inputs of these sizes and these values of the host's inputs: from the cache, or made now.

        Raises:
            ModelError: a node does not fit the sizes.
            UnsupportedNodeError: a node cannot run with them.
        """
        key = (tuple(sizes.values()), tuple(array.tobytes() for array in host_feeds.values()))
        plan = self.cached.get(key)
        if plan is None:
            start = time.perf_counter()
            trace = self._network.trace(sizes, host_feeds)
            plan = Plan(sizes, trace, self._compile(trace))
            self.cached[key] = plan
            self.recorded(plan)
            plan.seconds = time.perf_counter() - start
            while len(self.cached) > self._capacity:
                self.cached.popitem(last=False)
        self.cached.move_to_end(key)
        self.newest = plan
        return plan

    def _compile(self, trace: Trace) -> list[CompiledOperator]:
        """An initialised operator for each step; those of equal descs with the same weights share one, in all plans."""
        known: dict[_Work, CompiledOperator] = dict(self._operators)
        fresh: dict[_Work, CompiledOperator] = {}
        works = []
        for step in trace.steps:
            with naming(step):
                work = self._work(step)
                if work not in known:
                    operator = self._device.compile_operator(self._device.create_operator(work[0]))
                    known[work] = fresh[work] = operator
            works.append(work)
        self._initialize(fresh)
        self._operators.update(fresh)
        return [known[work] for work in works]

    def _work(self, step: Step) -> _Work:
        """The step's desc, with those constants OWNED_BY_DML that its initialisation would repack."""
        constants = constant_slots(step)
        if not constants:
            return step.desc, ()
        plan = lower(self._device.create_operator(owning(step.desc, constants)).desc, self._device.capabilities)
        repacked = {part.slot for launch in plan.initialize for part in launch.bindings if part.source is PlanSource.INPUT}
        return owning(step.desc, repacked), tuple(storage for slot in sorted(repacked) if (storage := step.inputs[slot]))

    def _initialize(self, operators: Mapping[_Work, CompiledOperator]) -> None:
        if not operators:
            return
        initializer = self._device.create_operator_initializer(list(operators.values()))
        table = self._device.create_binding_table(initializer)
        homes: list[BufferBinding | None] = []
        inputs: list[Binding] = []
        for (_, owned), operator in operators.items():
            size = operator.get_binding_properties().persistent_resource_size
            if size:
                self._persistent[operator] = self._device.create_buffer(size, purpose=Purpose.WEIGHTS)
            homes.append(BufferBinding(self._persistent[operator]) if size else None)
            bindings: list[BufferBinding | None] = [None] * len(operator.signature.inputs)
            for slot, storage in zip(operator.signature.owned_inputs, owned, strict=True):
                bindings[slot] = BufferBinding(self._constants.get(storage) or self._uploaded(storage))
            inputs.append(BufferArrayBinding(bindings) if owned else None)
        table.bind_inputs(inputs)
        table.bind_outputs(homes)
        scratch = initializer.get_binding_properties().temporary_resource_size
        if scratch:
            table.bind_temporary_resource(BufferBinding(self._device.create_buffer(scratch, purpose=Purpose.TEMPORARY)))
        commands = self._device.create_command_list()
        self._recorder.record_dispatch(commands, initializer, table)
        self._device.execute(commands)

    def _uploaded(self, storage: Storage) -> Buffer:
        buffer = self._device.create_buffer(storage.nbytes, purpose=Purpose.WEIGHTS)
        assert storage.constant is not None, "constants have a value"
        buffer.write(to_bytes(storage.constant))
        return buffer

    def recorded(self, plan: Plan) -> CommandList:
        """The plan's commands over the arena, which all plans share: when one needs a larger arena, the others are
        recorded again at their next run."""
        needed = plan.placement.nbytes
        if needed > (self._arena.size_in_bytes if self._arena else 0):
            for other in self.cached.values():
                other.commands = None
            self._arena = None  # free before the larger one is allocated
            self._arena = self._device.create_buffer(needed, purpose=Purpose.TEMPORARY)
        if plan.commands is None:
            plan.commands, _ = self.record(plan)
        return plan.commands

    def record(self, plan: Plan, *, timestamps: bool = False) -> tuple[CommandList, list[int]]:
        """The plan's commands, over the arena as it is now, and how many there are up to the end of each step."""
        commands = self._device.create_command_list(timestamps=timestamps)
        ends = []
        for index, (step, operator) in enumerate(zip(plan.trace.steps, plan.operators, strict=True)):
            table = self._device.create_binding_table(operator)
            owned = operator.signature.owned_inputs
            table.bind_inputs(
                [None if slot in owned else self._binding(plan, storage) for slot, storage in enumerate(step.inputs)]
            )
            table.bind_outputs([self._binding(plan, storage) for storage in step.outputs])
            properties = operator.get_binding_properties()
            if properties.temporary_resource_size:
                offset = plan.placement.scratch[index]
                table.bind_temporary_resource(BufferBinding(self._arena, offset, properties.temporary_resource_size))
            if properties.persistent_resource_size:
                table.bind_persistent_resource(BufferBinding(self._persistent[operator]))
            self._recorder.record_dispatch(commands, operator, table)
            ends.append(commands.command_count)
        commands.close()
        return commands, ends

    def _binding(self, plan: Plan, storage: Storage | None) -> BufferBinding | None:
        if storage is None:
            return None
        buffer, offset = self.locate(plan, storage)
        return BufferBinding(buffer, offset, storage.nbytes)

    def locate(self, plan: Plan, storage: Storage) -> tuple[Buffer, int]:
        """The bytes of a storage; a constant is uploaded when it is first asked for."""
        if storage.constant is None:
            assert self._arena is not None, "a plan with tensors has an arena"
            return self._arena, plan.placement.offset(storage)
        buffer = self._constants.get(storage)
        if buffer is None:
            buffer = self._constants[storage] = self._uploaded(storage)
        return buffer, 0
