"""Compiled plans: what a session has ready for each set of input shapes that it has met."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from dmlvk.directml.binding import BufferBinding
from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device
from dmlvk.directml.operator import CompiledOperator, Signature
from dmlvk.engine.explanation import OperatorExplanation, explain_operator
from dmlvk.engine.progress import COMPILING, UPLOADING, Count, Progress, silent
from dmlvk.graph.assemble import constant_slots, owning
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Step, Storage
from dmlvk.kernels.common.plan import BlockCopy, KernelVariant
from dmlvk.kernels.common.plan import Plan as KernelPlan
from dmlvk.kernels.common.plan import Source as PlanSource
from dmlvk.kernels.lowering import lower
from dmlvk.onnx.device_weights import DeviceWeights, Target
from dmlvk.onnx.model import Array
from dmlvk.onnx.network import Network, Spec, Trace
from dmlvk.onnx.program import Region
from dmlvk.onnx.values import Value
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.spec.errors import UnsupportedError, UnsupportedNodeError
from dmlvk.spec.schema import OperatorDesc

_Key = tuple[Region, tuple[Spec, ...], tuple[tuple[Any, ...], ...]]
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

    def __init__(self, trace: Trace, operators: Sequence[CompiledOperator]) -> None:
        self.trace = trace
        self.operators = operators
        outputs = [result.storage for result in trace.outputs.values() if isinstance(result, Value)]
        inputs = [value.storage for value in trace.inputs.values()]
        works = [(step, operator.plan) for step, operator in zip(trace.steps, operators, strict=True)]
        self.made_once = [storage for step in trace.steps if step.runs_once for storage in step.written()]
        scratch = [0 if step.runs_once else plan.temporary_bytes for step, plan in works]
        self.placement = Placement(trace.steps, inputs, outputs, scratch, apart=frozenset(self.made_once))
        self.commands: CommandList | None = None
        self.seconds = 0.0
        self.dispatches = sum(len(plan.dispatches) for step, plan in works if not step.runs_once)


class Plans:
    """The plans of a model on a device, the weights that they share, and the arena in which they take turns. Not for
    several threads at once.

    Args:
        device: Where they run.
        network: The model.
        capacity: Plans kept for each region; the one unused longest goes first.
        progress: Told how far the making of a plan is.

    Attributes:
        weights: What is on the device for all plans.
        cached: The plans, the newest last.
        newest: The plan that was asked for last, None before there is one.
    """

    def __init__(self, device: Device, network: Network, capacity: int, progress: Progress = silent) -> None:
        self._device = device
        self._network = network
        self._capacity = capacity
        self._progress = progress
        self._recorder = device.create_command_recorder()
        # Plans keep alive what they use: with the last of them go its operators and its own constants.
        self._operators: weakref.WeakValueDictionary[_Work, CompiledOperator] = weakref.WeakValueDictionary()
        self.weights = DeviceWeights(device)
        self._arena: Buffer | None = None
        self.cached: OrderedDict[_Key, Plan] = OrderedDict()
        self.newest: Plan | None = None

    @property
    def arena_bytes(self) -> int:
        """Device memory of everything else."""
        return self._arena.size_in_bytes if self._arena else 0

    def get(
        self,
        region: Region,
        specs: Mapping[str, Spec],
        host_feeds: Mapping[str, Array],
        trace: Trace | None = None,
    ) -> Plan:
        """The plan of a region for inputs of these types and sizes and these values of the host's inputs: from the cache, or
        made now, from its ``trace`` where there is one.

        Raises:
            ModelError: a node does not fit the sizes.
            UnsupportedNodeError: a node cannot run with them.
        """
        values = tuple((array.dtype, array.shape, array.tobytes()) for array in host_feeds.values())
        key = (region, tuple(specs.values()), values)
        plan = self.cached.get(key)
        if plan is None:
            start = time.perf_counter()
            trace = trace or self._network.trace_region(region, specs, host_feeds)
            plan = Plan(trace, self._compile(trace))
            self.cached[key] = plan
            self.recorded(plan)
            plan.seconds = time.perf_counter() - start
            while len(self.cached) > self._capacity * self._network.region_count:
                self.cached.popitem(last=False)
        self.cached.move_to_end(key)
        self.newest = plan
        return plan

    def _compile(self, trace: Trace) -> list[CompiledOperator]:
        """An initialised operator for each step; those of equal descs with the same weights share one, in all plans."""
        known: dict[_Work, CompiledOperator] = dict(self._operators)
        lowered: dict[OperatorDesc, KernelPlan] = {}
        works = []
        missing: dict[_Work, Step] = {}
        creating: set[KernelVariant] = set()
        for step in trace.steps:
            with naming(step):
                work = self._work(step, lowered)
                if work not in known:
                    missing.setdefault(work, step)
                    creating.update(self._device.prepare_kernels(_kernels(self._lowered(work[0], lowered))))
            works.append(work)
        steps = [(step, desc, owned) for step, (desc, owned) in zip(trace.steps, works, strict=True)]
        bound = [item for step, desc, _ in steps if not step.runs_once for item in _bound(step, desc)]
        everything = {item for step, desc, owned in steps for item in (*_bound(step, desc), *owned)}
        uploading = Count(self._progress, UPLOADING, self.weights.missing_bytes(everything))
        runs_once = any(step.runs_once for step in trace.steps)
        if not runs_once and not any(owned for _, owned in missing):
            self.weights.upload(bound, uploading)  # while pipelines are created
        compiling = Count(self._progress, COMPILING, len(creating))
        fresh = {}
        for work, step in missing.items():
            plan = lowered[work[0]]
            with naming(step):
                fresh[work] = self._device.compile_plan(Signature.of(work[0]), plan)
            ready = creating.intersection(_kernels(plan))
            creating -= ready
            if ready:
                compiling(len(ready))
        self._operators.update(fresh)
        operators = [fresh.get(work) or known[work] for work in works]
        targets = [Target(operator, owned) for operator, (_, owned) in zip(operators, works, strict=True)]
        later = dict.fromkeys(
            target
            for step, target in zip(trace.steps, targets, strict=True)
            if not step.runs_once and not target.operator.initialized
        )
        # What is twice on the device for a moment comes first.
        self.weights.initialize(list(later), uploading, self.weights.missing_bytes({*bound}))
        if runs_once:
            self._run_once(trace, targets, uploading)
        self.weights.upload(bound, uploading)
        return operators

    def _work(self, step: Step, lowered: dict[OperatorDesc, KernelPlan]) -> _Work:
        """The step's desc, with those constants OWNED_BY_DML that its initialisation would repack."""
        constants = constant_slots(step)
        if not constants:
            return step.desc, ()
        plan = self._lowered(owning(step.desc, constants), lowered)
        repacked = {part.slot for launch in plan.initialize for part in launch.bindings if part.source is PlanSource.INPUT}
        return owning(step.desc, repacked), tuple(storage for slot in sorted(repacked) if (storage := step.inputs[slot]))

    def _lowered(self, desc: OperatorDesc, lowered: dict[OperatorDesc, KernelPlan]) -> KernelPlan:
        """The plan of an operator, made once for those of equal descs."""
        if desc not in lowered:
            lowered[desc] = lower(self._device.create_operator(desc).desc, self._device.capabilities)
        return lowered[desc]

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
            if not step.runs_once:
                self._record_step(commands, plan.placement, step, operator, self._arena, plan.placement.scratch[index])
            ends.append(commands.command_count)
        commands.close()
        return commands, ends

    def _run_once(self, trace: Trace, targets: Sequence[Target], uploading: Count) -> None:
        """Computes what is the same in every run, into memory that lives as long as the plan. What is of no use afterwards
        is freed: in batches, which take no more for that than the weights that are still to come, but where a batch is a
        single chain of steps."""
        others = [step for step in trace.steps if not step.runs_once]
        kept = {item.place.storage for step in others for item in (*step.read(), *step.written())}
        kept.update(value.storage.place.storage for value in trace.outputs.values() if isinstance(value, Value))
        owners = dict(zip(trace.steps, targets, strict=True))
        chains = _chains(step for step in trace.steps if step.runs_once)
        made = {step: [item for item in step.written() if item in kept] for chain in chains for step in chain}
        to_come = self.weights.missing_bytes(kept) + sum(item.nbytes for own in made.values() for item in own)
        batch: list[Step] = []
        taken = 0
        for chain in chains:
            passing = {item for step in chain for item in (*step.read(), *step.written())} - kept
            nbytes = sum(item.nbytes for item in passing)
            to_come -= sum(item.nbytes for step in chain for item in made[step])
            if batch and taken + nbytes > to_come:
                self._run_batch(batch, owners, kept, uploading)
                batch, taken = [], 0
            batch += chain
            taken += nbytes
        self._run_batch(batch, owners, kept, uploading)

    def _run_batch(self, steps: Sequence[Step], owners: Mapping[Step, Target], kept: Set[Storage], uploading: Count) -> None:
        """Runs steps that read no more than constants and what others of them make, which is freed unless it is kept."""
        targets = {step: owners[step] for step in steps}
        outputs = {item for step in steps for item in step.written() if item in kept}
        for step in steps:
            self.weights.upload(step.read(), uploading)
        for storage in outputs:
            self.weights.reserve(storage)
        fresh = dict.fromkeys(target for target in targets.values() if not target.operator.initialized)
        self.weights.initialize(list(fresh), uploading)
        scratch = [target.operator.plan.temporary_bytes for target in targets.values()]
        placement = Placement(steps, (), (), scratch, apart=outputs)
        nbytes = placement.nbytes
        arena = self._device.create_buffer(nbytes, purpose=Purpose.TEMPORARY) if nbytes else None
        commands = self._device.create_command_list()
        for step, offset in zip(steps, placement.scratch, strict=True):
            self._record_step(commands, placement, step, targets[step].operator, arena, offset)
        self._device.execute(commands)
        self.weights.release(item for step in steps for item in step.read() if item not in kept)

    def _record_step(
        self,
        commands: CommandList,
        placement: Placement,
        step: Step,
        operator: CompiledOperator,
        arena: Buffer | None,
        scratch: int,
    ) -> None:
        def binding(storage: Storage | None) -> BufferBinding | None:
            if storage is None:
                return None
            buffer, offset = self._located(placement, arena, storage)
            return BufferBinding(buffer, offset, storage.nbytes)

        table = self._device.create_binding_table(operator)
        owned = operator.signature.owned_inputs
        table.bind_inputs([None if slot in owned else binding(storage) for slot, storage in enumerate(step.inputs)])
        table.bind_outputs([binding(storage) for storage in step.outputs])
        properties = operator.get_binding_properties()
        if properties.temporary_resource_size:
            table.bind_temporary_resource(BufferBinding(arena, scratch, properties.temporary_resource_size))
        if properties.persistent_resource_size:
            table.bind_persistent_resource(BufferBinding(self.weights.persistent(operator)))
        self._recorder.record_dispatch(commands, operator, table)

    def explained(self, operator: CompiledOperator) -> OperatorExplanation:
        """Why an operator of a plan runs as it does."""
        desc = next(desc for (desc, _), known in self._operators.items() if known is operator)
        return explain_operator(desc, operator.plan, self._device.capabilities)

    def locate(self, plan: Plan, storage: Storage) -> tuple[Buffer, int]:
        """The bytes of a storage; a constant is uploaded when it is first asked for."""
        return self._located(plan.placement, self._arena, storage)

    def _located(self, placement: Placement, arena: Buffer | None, storage: Storage) -> tuple[Buffer, int]:
        whole, offset = storage.place
        buffer = self.weights.known(whole)
        if buffer is not None:
            return buffer, offset
        assert arena is not None, "a plan with tensors has an arena"
        return arena, placement.offset(storage)


def _kernels(plan: KernelPlan) -> list[KernelVariant]:
    """What a plan launches; first what its initialisation does, which comes first."""
    return [launch.kernel for launch in plan.initialize + plan.dispatches if not isinstance(launch, BlockCopy)]


def _chains(steps: Iterable[Step]) -> list[list[Step]]:
    """The steps in chains that have no storages in common, those with the most bytes first."""
    chains: list[tuple[list[Step], set[Storage]]] = []
    for step in steps:
        own = {*step.read(), *step.written()}
        joined = [chain for chain in chains if not own.isdisjoint(chain[1])]
        chains = [chain for chain in chains if chain not in joined]
        chains.append(([*(item for chain, _ in joined for item in chain), step], own.union(*(used for _, used in joined))))
    chains.sort(key=lambda chain: -sum(item.nbytes for item in chain[1]))
    return [chain for chain, _ in chains]


def _bound(step: Step, desc: OperatorDesc) -> list[Storage]:
    """The storages that a step's commands name once it has this desc, whose OWNED_BY_DML tensors they do not."""
    slots = zip(step.inputs, desc.input_slots(), strict=True)
    inputs = [storage for storage, slot in slots if slot.tensor is not None and not slot.tensor.owned_by_dml]
    return [storage.place.storage for storage in (*inputs, *step.outputs) if storage is not None]
