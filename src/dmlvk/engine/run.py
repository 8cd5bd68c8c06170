"""One run of a network: regions by compiled graphs on the device, and what stands between them by the host."""

from __future__ import annotations

import itertools
import weakref
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from dmlvk.engine.compiled_graphs import CompiledGraph
from dmlvk.engine.copies import Copies, Copy, recorded_copies
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.profile import RunStep, StepReport, step_report
from dmlvk.engine.tensors import Carrier, Item, Tensor
from dmlvk.engine.trace import Label, Region
from dmlvk.engine.transfer import Array, empty_on_device, packed_bytes, to_bytes
from dmlvk.graph.views import Sizes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import BoundRange
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import ModelError

Scope = ChainMap[str, Item]
"""Values by name: those of a body, and those around it."""


class Driven(Protocol):
    """A part of a program that the host drives between regions.

    Attributes:
        inputs, outputs: Names of values, "" for one that is left out.
        host_inputs: The inputs that a run brings to the host before, with what others need.
        labels: The labels that reports give its parts, by the keys under which they count them.
    """

    @property
    def inputs(self) -> Sequence[str]: ...

    @property
    def outputs(self) -> Sequence[str]: ...

    @property
    def host_inputs(self) -> Collection[str]: ...

    @property
    def labels(self) -> Mapping[Any, Label]: ...

    def run(self, run: Run, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
        """Makes the outputs; the scope has the values that its bodies may read."""


@dataclass(frozen=True, eq=False)
class Program:
    """Regions, and what the host drives between them.

    Attributes:
        parts: The regions and driven parts in order, each with the names that nothing reads after it.
        outputs: The names of the values that it makes.
    """

    parts: tuple[tuple[Region | Driven, frozenset[str]], ...]
    outputs: tuple[str, ...]


class Account:
    """An account of a run, for the report: launches, graphs, labels, times.

    Args:
        input_shapes: The sizes of the inputs, by name.
        timed: Whether the run has timestamps.

    Attributes:
        input_shapes: The sizes of the inputs, by name.
        timed: Whether the run has timestamps.
        dispatches: Kernel launches.
        host_reads: Times that the host waited for what it had to read before the run could go on.
        planning_seconds: The time to compile the run's graphs, whenever that was.
        largest_live_bytes: The most that a step of them needs in the arena at the same time.
    """

    def __init__(self, input_shapes: Mapping[str, Sizes], *, timed: bool = False) -> None:
        self.input_shapes = dict(input_shapes)
        self.timed = timed
        self.dispatches = 0
        self.host_reads = 0
        self.planning_seconds = 0.0
        self.largest_live_bytes = 0
        self._device: dict[Hashable, Label] = {}
        self._host: dict[Hashable, Label] = {}
        self._removed: dict[Hashable, Label] = {}
        self._bytes: Counter[tuple[Hashable, str]] = Counter()
        self._graphs: weakref.WeakKeyDictionary[CompiledGraph, None] = weakref.WeakKeyDictionary()
        self._timed: list[StepReport] = []
        self._end = 0.0

    @property
    def device_labels(self) -> tuple[Label, ...]:
        """The labels of what ran on the device."""
        return tuple(self._device.values())

    @property
    def host_labels(self) -> tuple[Label, ...]:
        """The labels of what ran on the host, each with why; a part that ran on both is the device's."""
        return tuple(
            label._replace(from_device=self._bytes[part, "from"], to_device=self._bytes[part, "to"])
            for part, label in self._host.items()
            if part not in self._device
        )

    @property
    def removed_labels(self) -> tuple[Label, ...]:
        """The labels of what needed no work in any graph, each with why."""
        return tuple(label for part, label in self._removed.items() if part not in self._device and part not in self._host)

    def steps(self) -> tuple[StepReport, ...]:
        """The operators of a timed run, in order; of another, those of its graphs as far as they are still there."""
        if self.timed:
            return tuple(self._timed)
        return tuple(map(step_report, self.runs()))

    def runs(self) -> Iterator[RunStep]:
        """The steps of the graphs that ran, as far as they are still there."""
        exact = (graph.exact() if graph.exact else graph for graph in self._graphs)
        return itertools.chain.from_iterable(graph.runs() for graph in exact)

    def add(self, graph: CompiledGraph) -> None:
        """Notes that a graph runs."""
        self.dispatches += graph.dispatches
        if graph not in self._graphs:
            self._graphs[graph] = None
            self.planning_seconds += graph.seconds
            self.largest_live_bytes = max(self.largest_live_bytes, *graph.placement.live_bytes)
            self._device.update(graph.trace.device_labels)
            self._host.update(graph.trace.host_labels)
            self._removed.update(graph.trace.removed_labels)

    def add_driven(self, labels: Mapping[Any, Label], dispatches: int) -> None:
        """Notes what the host drove, and what that launched beside the graphs."""
        self.dispatches += dispatches
        (self._device if dispatches else self._host).update(labels)

    def add_bytes(self, part: Hashable, direction: Literal["from", "to"], nbytes: int) -> None:
        """Notes bytes that the host read from the device, or wrote to it, for a part that it ran."""
        self._bytes[part, direction] += nbytes

    def add_times(self, steps: Sequence[StepReport]) -> None:
        """Notes when a graph's kernels ran, after those before; what the host did in between is left out."""
        start = self._end
        for step in steps:
            times = tuple(time._replace(start=time.start + start, end=time.end + start) for time in step.times or ())
            self._timed.append(replace(step, times=times))
            self._end = max((time.end for time in times), default=self._end)


class Run:
    """One run.

    Args:
        device: The device that it runs on.
        graphs: The compiled graphs of the network.
        account: The account to keep.
        data_type_of: The type on the device of elements of a numpy type; None for text.

    Attributes:
        account: As given.
        carrier: Moves tensors on the device.
    """

    def __init__(
        self,
        device: ComputeDevice,
        graphs: CompiledGraphs,
        account: Account,
        data_type_of: Callable[[np.dtype[Any]], TensorDataType | None],
    ) -> None:
        self.carrier = Carrier(device, data_type_of)
        self._device = device
        self._graphs = graphs
        self.account = account

    def constants(self, arrays: Mapping[str, Array]) -> Scope:
        """A scope of constants, each of which becomes a tensor when it is first asked for."""
        return ChainMap(_Constants(arrays, self.carrier))

    def program(self, program: Program, inputs: Mapping[str, Item], around: Scope) -> list[Item]:
        """The outputs of a program.

        Args:
            program: The program to run.
            inputs: Its inputs.
            around: Values that it may read.
        """
        own = dict(inputs)
        scope = around.new_child(own)
        for index, (part, unread) in enumerate(program.parts):
            if part.host_inputs:
                self._read_ahead(program, index, scope)
            own.update(self._region(part, scope) if isinstance(part, Region) else self._driven(part, scope))
            for name in unread:
                own.pop(name, None)
        return [scope[name] for name in program.outputs]

    def _read_ahead(self, program: Program, index: int, scope: Scope) -> None:
        """Brings what a part needs on the host there, and with it all that there is already of what later parts need."""

        def missing(names: Iterable[str]) -> dict[Tensor, None]:
            items = [scope[name] for name in names if name in scope]
            return {item: None for item in items if isinstance(item, Tensor) and not item.is_on_host}

        if missing(program.parts[index][0].host_inputs):
            self.read(*missing(name for part, _ in program.parts[index:] for name in part.host_inputs))

    def read(self, *tensors: Tensor) -> None:
        """Brings tensors that are only on the device to the host, and waits for the device once."""
        Tensor.bring_to_host(tensors)
        self.account.host_reads += 1

    # -- regions

    def submit(
        self,
        graph: CompiledGraph,
        feeds: Mapping[str, Array | DeviceArray],
        feeding: Copies | None = None,
        *,
        defer: bool = True,
    ) -> None:
        """Feeds a graph and hands its commands to the device.

        Args:
            graph: The graph to run.
            feeds: Its inputs, but those that are bound where they lie.
            feeding: Records copies of those that are on the device.
            defer: Whether the commands may wait for what is submitted next, and go with that.
        """
        feeding = feeding or Copies(self._device)
        if self.account.timed:
            recording, ends = self._graphs.record(graph, timestamps=True)
            self._feed(graph, feeds, feeding)
            recording.submit()
            recording.wait()
            timings = recording.timings()
            parts = [timings[first:end] for first, end in itertools.pairwise((0, *ends))]
            self.account.add_times([step_report(*run) for run in zip(graph.runs(), parts, strict=True)])
        else:
            recording = self._graphs.recorded(graph)
            self._feed(graph, feeds, feeding)
            if graph.dispatches:
                recording.submit(defer=defer)
        self.account.add(graph)

    def _feed(self, graph: CompiledGraph, feeds: Mapping[str, Array | DeviceArray], feeding: Copies) -> None:
        """Puts the feeds where the graph reads them, which a run overwrites with what it computes later."""
        copies = []
        for name, value in graph.trace.inputs.items():
            array = feeds.get(name)
            if array is not None and value.storage.nbytes:
                place = self._graphs.locate(graph, value.storage)
                if isinstance(array, DeviceArray):
                    nbytes = packed_bytes(array)
                    source, target = BoundRange(array.buffer, array.offset, nbytes), place._replace(nbytes=nbytes)
                    if source != target:  # else the graph reads it where it is
                        copies.append(Copy(source, target))
                else:
                    place.buffer.write(np.ascontiguousarray(to_bytes(array, value.data_type)), place.offset)
        if copies:
            feeding.of(copies).submit(defer=True)

    def _region(self, region: Region, scope: Scope) -> dict[str, Item]:
        inputs = {name: self._tensor(name, scope[name]) for name in region.inputs}
        specs = {name: (item.dtype, item.shape) for name, item in inputs.items() if name not in region.host_inputs}
        known = {name: inputs[name].on_host() for name in sorted(region.host_inputs)}
        graph = self._graphs.get(region, specs, known, exact=self.account.timed)
        self.submit(graph, {name: inputs[name].feed() for name in graph.trace.inputs})
        made: dict[str, Item] = {}
        copies = []
        for name in region.outputs:
            result = graph.trace.outputs[name]
            if isinstance(result, np.ndarray):
                made[name] = self.carrier.tensor(result)
                continue
            target = empty_on_device(self._device, result.sizes, result.data_type)
            if nbytes := packed_bytes(target):
                source = self._graphs.locate(graph, result.storage)._replace(nbytes=nbytes)
                copies.append(Copy(source, BoundRange(target.buffer, 0, nbytes)))
            made[name] = Tensor(self._device, result.data_type, result.dtype, result.sizes, target)
        recorded_copies(self._device, copies).submit(defer=True)
        return made

    def _tensor(self, name: str, item: Item) -> Tensor:
        if not isinstance(item, Tensor):
            found = "empty" if item is None else "a sequence" if isinstance(item, tuple) else "no tensor"
            raise ModelError(f"{name!r} is {found}, where a tensor is read")
        return item

    # -- what the host drives

    def _driven(self, driven: Driven, scope: Scope) -> dict[str, Item]:
        operands = [scope[name] if name else None for name in driven.inputs]
        before = self.carrier.dispatches
        results = driven.run(self, operands, scope)
        self.account.add_driven(driven.labels, self.carrier.dispatches - before)
        return {name: item for name, item in zip(driven.outputs, results, strict=False) if name}


class _Constants(dict[str, Item]):
    """Constants as tensors, each made when it is first asked for."""

    def __init__(self, arrays: Mapping[str, Array], carrier: Carrier) -> None:
        self._arrays, self._carrier = arrays, carrier

    def __missing__(self, name: str) -> Tensor:
        made = self[name] = self._carrier.tensor(self._arrays[name])
        return made
