"""One run of a model: regions by their plans on the device, and what stands between them by the host."""

from __future__ import annotations

import itertools
import math
import weakref
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dmlvk.directml.device import Device
from dmlvk.directml.operator import CompiledOperator
from dmlvk.engine.copies import Copies
from dmlvk.engine.copies import Region as CopyRegion
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.profile import StepReport, step_report
from dmlvk.graph.step import Step
from dmlvk.onnx.model import Array, Node
from dmlvk.onnx.network import Network, NodeRecord
from dmlvk.onnx.plans import Plan, Plans
from dmlvk.onnx.program import Driven, Program, Region
from dmlvk.onnx.registry import find_driven
from dmlvk.onnx.tensors import Carrier, Item, Tensor
from dmlvk.onnx.transfer import empty_on_device, packed_bytes, to_bytes
from dmlvk.onnx.values import Sizes, Value
from dmlvk.spec.errors import ModelError

Scope = ChainMap[str, Item]
"""Values by name: those of a body, and those around it."""


class Account:
    """What a run came to, for the report.

    Args:
        input_shapes: Of what was fed, by name.
        timed: Whether the run has timestamps.

    Attributes:
        input_shapes: As given.
        timed: As given.
        dispatches: Kernel launches.
        planning_seconds: What the plans of the run took to make, whenever they were made.
        largest_live_bytes: The most that a step of them needs in the arena at the same time.
    """

    def __init__(self, input_shapes: Mapping[str, Sizes], *, timed: bool = False) -> None:
        self.input_shapes = dict(input_shapes)
        self.timed = timed
        self.dispatches = 0
        self.planning_seconds = 0.0
        self.largest_live_bytes = 0
        self._device: dict[Node, NodeRecord] = {}
        self._host: dict[Node, NodeRecord] = {}
        self._removed: dict[Node, NodeRecord] = {}
        self._plans: weakref.WeakKeyDictionary[Plan, None] = weakref.WeakKeyDictionary()
        self._timed: list[StepReport] = []
        self._end = 0.0

    @property
    def device_nodes(self) -> tuple[NodeRecord, ...]:
        """Nodes that ran on the device."""
        return tuple(self._device.values())

    @property
    def host_nodes(self) -> tuple[NodeRecord, ...]:
        """Nodes that ran on the host, each with why; of those that ran on both the device's are not among them."""
        return tuple(record for node, record in self._host.items() if node not in self._device)

    @property
    def removed_nodes(self) -> tuple[NodeRecord, ...]:
        """Nodes that needed no work in any plan, each with why."""
        return tuple(record for node, record in self._removed.items() if node not in self._device and node not in self._host)

    def steps(self) -> tuple[StepReport, ...]:
        """The operators of a timed run, in order; of another, those of its plans as far as they are still there."""
        if self.timed:
            return tuple(self._timed)
        return tuple(step_report(*work) for work in self.works())

    def works(self) -> Iterator[tuple[Step, CompiledOperator]]:
        """The steps and operators of the plans that ran, as far as they are still there."""
        return (work for plan in self._plans for work in zip(plan.trace.steps, plan.operators, strict=True))

    def add(self, plan: Plan) -> None:
        """Notes that a plan runs."""
        self.dispatches += plan.dispatches
        if plan not in self._plans:
            self._plans[plan] = None
            self.planning_seconds += plan.seconds
            self.largest_live_bytes = max(self.largest_live_bytes, plan.placement.largest_live_set)
            self._device.update(plan.trace.device_nodes)
            self._host.update(plan.trace.host_nodes)
            self._removed.update(plan.trace.removed_nodes)

    def add_driven(self, node: Node, reason: str, dispatches: int) -> None:
        """Notes that the host drove a node, and what that launched beside the plans."""
        self.dispatches += dispatches
        whole = node.whole or node
        (self._device if dispatches else self._host)[whole] = NodeRecord(whole.name, whole.op_type, reason)

    def add_times(self, steps: Sequence[StepReport]) -> None:
        """Notes when a plan's kernels ran, after those before; what the host did in between is left out."""
        start = self._end
        for step in steps:
            times = tuple(time._replace(start=time.start + start, end=time.end + start) for time in step.times or ())
            self._timed.append(replace(step, times=times))
            self._end = max((time.end for time in times), default=self._end)


class Run:
    """One run.

    Args:
        network: The model.
        plans: Its plans on a device.
        account: Where to note what it comes to.
        most_rounds: Of a loop.

    Attributes:
        carrier: Moves tensors on the device.
        most_rounds: As given.
    """

    def __init__(self, device: Device, network: Network, plans: Plans, account: Account, most_rounds: int) -> None:
        self.carrier = Carrier(device)
        self.most_rounds = most_rounds
        self._device = device
        self._network = network
        self._plans = plans
        self._account = account

    def whole(self, feeds: Mapping[str, Item]) -> list[Item]:
        """The model's outputs."""
        return self.program(self._network.program, feeds, ChainMap(_Constants(self._network.constants, self.carrier)))

    def program(self, program: Program, inputs: Mapping[str, Item], around: Scope) -> list[Item]:
        """The outputs of a program.

        Args:
            program: What to run.
            inputs: Its inputs.
            around: Values that it may read.
        """
        own = dict(inputs)
        scope = around.new_child(own)
        for part, unread in program.parts:
            own.update(self._region(part, scope) if isinstance(part, Region) else self._driven(part, scope))
            for name in unread:
                own.pop(name, None)
        return [scope[name] for name in program.outputs]

    # -- regions

    def plan(self, region: Region, inputs: Mapping[str, Tensor]) -> Plan:
        """The plan of a region."""
        specs = {name: (item.dtype, item.shape) for name, item in inputs.items() if name not in region.host_inputs}
        return self._plans.get(region, specs, {name: inputs[name].on_host() for name in sorted(region.host_inputs)})

    def submit(self, plan: Plan, feeds: Mapping[str, Array | DeviceArray], feeding: Copies | None = None) -> None:
        """Feeds a plan and hands its commands to the device.

        Args:
            plan: What to run.
            feeds: Its inputs.
            feeding: Records copies of those that are on the device.
        """
        feeding = feeding or Copies(self._device)
        if self._account.timed:
            commands, ends = self._plans.record(plan, timestamps=True)
            self._feed(plan, feeds, feeding)
            self._device.execute(commands)
            timings = commands.timings()
            parts = [timings[first:end] for first, end in itertools.pairwise((0, *ends))]
            works = zip(plan.trace.steps, plan.operators, parts, strict=True)
            self._account.add_times([step_report(*work) for work in works])
        else:
            commands = self._plans.recorded(plan)
            self._feed(plan, feeds, feeding)
            if plan.dispatches:
                commands.submit(defer=True)
        self._account.add(plan)

    def _feed(self, plan: Plan, feeds: Mapping[str, Array | DeviceArray], feeding: Copies) -> None:
        """Puts the feeds where the plan reads them, which a run overwrites with what it computes later."""
        regions = []
        for name, value in plan.trace.inputs.items():
            array = feeds[name]
            if value.storage.nbytes:
                place = self._plans.locate(plan, value.storage)
                if isinstance(array, DeviceArray):
                    regions.append(CopyRegion(*place, array.buffer, array.offset, packed_bytes(array)))
                else:
                    place[0].write(to_bytes(array), place[1])
        if regions:
            feeding.of(regions).submit(defer=True)

    def _region(self, region: Region, scope: Scope) -> dict[str, Item]:
        inputs = {name: self._tensor(name, scope[name]) for name in region.inputs}
        plan = self.plan(region, inputs)
        self.submit(plan, {name: inputs[name].feed() for name in plan.trace.inputs})
        made: dict[str, Item] = {}
        copies = self._device.create_command_list()
        for name in region.outputs:
            result = plan.trace.outputs[name]
            if isinstance(result, Value):
                target = empty_on_device(self._device, result.sizes, result.dtype)
                if nbytes := packed_bytes(target):
                    copies.copy_buffer_region(target.buffer, 0, *self._plans.locate(plan, result.storage), nbytes)
                made[name] = Tensor(self._device, result.dtype, result.sizes, target)
            else:
                made[name] = self.carrier.tensor(result)
        copies.submit(defer=True)
        return made

    def _tensor(self, name: str, item: Item) -> Tensor:
        if not isinstance(item, Tensor):
            raise ModelError(f"{name!r} is {'empty' if item is None else 'a sequence'}, where a tensor is read")
        return item

    # -- what the host drives

    def _driven(self, driven: Driven, scope: Scope) -> dict[str, Item]:
        node, row = driven.node, find_driven(driven.node)
        assert row is not None, "the node has been cut out for it"
        operands = [scope[name] if name else None for name in node.inputs]
        before = self.carrier.dispatches
        results = row.run(self, driven, operands, scope)
        self._account.add_driven(node, row.reason, self.carrier.dispatches - before)
        return {name: item for name, item in zip(node.outputs, results, strict=False) if name}

    def required(self, node: Node, index: int, item: Item) -> Tensor:
        """An operand that must be a tensor.

        Raises:
            ModelError: it is a sequence or an empty optional value.
        """
        if not isinstance(item, Tensor):
            found = "empty" if item is None else "a sequence"
            raise ModelError(f"node {node.name!r} ({node.op_type}): value {index} is {found}, not a tensor")
        return item

    def number(self, node: Node, index: int, item: Item) -> Any:
        """The only element of an operand, which the host reads.

        Raises:
            ModelError: there is not just one.
        """
        tensor = self.required(node, index, item)
        if math.prod(tensor.shape) != 1:
            sizes = list(tensor.shape)
            raise ModelError(f"node {node.name!r} ({node.op_type}): value {index} has the sizes {sizes}, not one element")
        return tensor.on_host().item()


class _Constants(dict[str, Item]):
    """The model's constants as tensors, each made when it is first asked for."""

    def __init__(self, arrays: Mapping[str, Array], carrier: Carrier) -> None:
        self._arrays, self._carrier = arrays, carrier

    def __missing__(self, name: str) -> Tensor:
        made = self[name] = self._carrier.tensor(self._arrays[name])
        return made
