"""Compiled graphs: what is ready for each set of input sizes that a network has met.

A graph comes to a device in three phases. *Compile* finds an operator with kernels for each step and brings the weights.
*Shape* gives parameters, grids and places in memory for certain sizes. *Run* records the commands once and replays them.
"""

from __future__ import annotations

import functools
import time
from collections import ChainMap, OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from dmlvk.engine.compiled_graphs import CompiledGraph, Compiler, Places
from dmlvk.engine.failures import frees_what_it_made
from dmlvk.engine.progress import Progress, silent
from dmlvk.engine.shapes import RegionShapes
from dmlvk.engine.trace import Numbers, Region, Spec, Trace, Tracer
from dmlvk.engine.transfer import Array
from dmlvk.graph.step import Storage
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.runtime.recorder import BoundRange, Recording

_Values = tuple[tuple[Any, ...], ...]
"""The host's values as part of a key."""
_Key = tuple[Region, tuple[Spec, ...], _Values]
_ShapesKey = tuple[Region, tuple[tuple[np.dtype[Any], int], ...], tuple[tuple[Any, ...], ...], _Values]
_ROOM: Final = 3
"""Halves of the bytes of a filled graph that the arena has when it grows: with the next sizes it mostly does for them."""
_MOST_NUMBERS: Final = 8
"""The most elements of a host's input of whole numbers that count as sizes, such as those of a resized image."""


class CompiledGraphs:
    """The compiled graphs of a network on a device, the weights that they share, and the arena in which they take turns. Not
    for several threads at once.

    Args:
        device: The device that runs them.
        tracer: The network.
        capacity: Graphs kept for each region; the one unused longest goes first.
        progress: Told how far the making of a graph is.
        outside: Where what traces say is outside lies, for all runs.

    Attributes:
        compiler: The compiler that makes them.
        cached: The graphs, the newest last.
    """

    def __init__(
        self,
        device: ComputeDevice,
        tracer: Tracer,
        capacity: int,
        progress: Progress = silent,
        outside: Mapping[Storage, BoundRange] = MappingProxyType({}),
    ) -> None:
        self._device = device
        self._outside = outside
        self._bound: dict[Storage, BoundRange] = {}
        self._tracer = tracer
        self._capacity = capacity
        self.compiler = Compiler(device, tracer.refusal, progress)
        self._arena: Buffer | None = None
        self.cached: OrderedDict[_Key, CompiledGraph] = OrderedDict()
        self._shapes: OrderedDict[_ShapesKey, RegionShapes] = OrderedDict()

    @property
    def weights_bytes(self) -> int:
        """Device memory of what is kept on the device for all graphs."""
        return self.compiler.weights.nbytes

    @property
    def arena_bytes(self) -> int:
        """Device memory of everything else."""
        return self._arena.size_in_bytes if self._arena else 0

    @frees_what_it_made
    def get(
        self,
        region: Region,
        specs: Mapping[str, Spec],
        host_values: Mapping[str, Array],
        trace: Trace | None = None,
        *,
        exact: bool = False,
    ) -> CompiledGraph:
        """The graph of a region for these types and sizes of its inputs and these values of the host's: from the cache, or
        made now.

        Args:
            region: The region.
            specs: The types and sizes of its inputs on the device, by name.
            host_values: The values of the host's inputs.
            trace: The trace, if there is one already.
            exact: Whether the steps must say these sizes, as profiles want it: then the region is traced.

        Raises:
            What the tracer's ``trace`` and ``refusal`` say.
        """
        key = (region, tuple(specs.values()), _values(host_values))
        graph = self.cached.get(key)
        if graph is None or (exact and graph.exact is not None):
            start = time.perf_counter()
            traced = functools.partial(_traced, self.compiler, self._tracer, region, specs, host_values)
            shapes, numbers = (None, {}) if exact or trace else self._shapes_of(region, specs, host_values)
            graph = None if shapes is None else shapes.graph(specs, numbers)
            if graph is None:
                graph = self.compiler.compiled(trace) if trace else traced()
            else:
                graph.exact = traced
            self.recorded(graph)
            graph.seconds = time.perf_counter() - start
            graph.key = key
            self.cached[key] = graph  # only now that nothing of it can fail any more
            if shapes is not None and graph.exact is None:
                shapes.note(specs, numbers)
            while len(self.cached) > self._capacity * self._tracer.region_count:
                self.cached.popitem(last=False)
        self.cached.move_to_end(key)
        self.recorded(graph)
        return graph

    def use(self, graph: CompiledGraph) -> bool:
        """Makes a graph the one that was used last; whether it is here still."""
        if next(reversed(self.cached.values()), None) is not graph:
            if self.cached.get(graph.key) is not graph:
                return False
            self.cached.move_to_end(graph.key)
        return True

    def _shapes_of(
        self, region: Region, specs: Mapping[str, Spec], host_values: Mapping[str, Array]
    ) -> tuple[RegionShapes, dict[str, Numbers]]:
        """What is known of the sizes of a region, and the numbers among the host's values, which may be symbols as well."""
        numbers = {
            name: Numbers(array.dtype, array.shape, tuple(array.reshape(-1).tolist()))
            for name, array in host_values.items()
            if array.dtype.kind in "iu" and array.size <= _MOST_NUMBERS
        }
        others = {name: array for name, array in host_values.items() if name not in numbers}
        ranks = tuple((dtype, len(sizes)) for dtype, sizes in specs.values())
        key = (region, ranks, tuple(known[:2] for known in numbers.values()), _values(others))
        if key not in self._shapes:
            trace = functools.partial(_traced_with, self._tracer, region, others)
            self._shapes[key] = RegionShapes(self._device, self.compiler, trace)
            while len(self._shapes) > self._capacity * self._tracer.region_count:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(key)
        return self._shapes[key], numbers

    def recorded(self, graph: CompiledGraph) -> Recording:
        """The graph's commands over the arena, which all graphs share: when one needs a larger arena, the others are
        recorded again at their next run."""
        self._reserve(graph)
        if graph.recording is None:
            graph.recording, _ = self.record(graph)
        return graph.recording

    def _reserve(self, graph: CompiledGraph) -> None:
        """Makes the arena as large as a graph needs it; for one that is filled, whose sizes change, with room for larger
        ones. Without room for it there is none, and the next run of any graph makes its own."""
        nbytes = graph.placement.nbytes
        if nbytes > self.arena_bytes:
            for other in self.cached.values():
                other.recording = None
            self._arena = None  # free before the larger one is allocated
            room = nbytes if graph.exact is None else nbytes * _ROOM // 2
            self._arena = self._device.create_buffer(room, purpose=Purpose.TEMPORARY)

    def record(self, graph: CompiledGraph, *, timestamps: bool = False) -> tuple[Recording, list[int]]:
        """The graph's commands over the arena, and how many there are up to the end of each step."""
        self._reserve(graph)
        recording = Recording(self._device, timestamps=timestamps)
        places = self._places(graph)
        ends = []
        for step, operator, scratch in zip(graph.trace.steps, graph.operators, graph.placement.scratch, strict=True):
            if not step.runs_once:
                recording.add(places.commands(step, operator, scratch))
            ends.append(len(recording.labels))
        return recording, ends

    def locate(self, graph: CompiledGraph, storage: Storage) -> BoundRange:
        """The bytes of a storage; a constant is uploaded when it is first asked for."""
        return self._places(graph).locate(storage)

    def bind(self, ranges: Mapping[Storage, BoundRange]) -> None:
        """Says where storages that traces say are outside lie from now on. Graphs with one that has moved are recorded again
        at their next run."""
        moved = {storage for storage, place in ranges.items() if self._bound.get(storage) != place}
        if moved:
            for graph in self.cached.values():
                if not moved.isdisjoint(graph.trace.outside):
                    graph.recording = None
            self._bound.update(ranges)  # last: if this is interrupted, they count as moved at the next run, too

    def _places(self, graph: CompiledGraph) -> Places:
        return Places(self.compiler.weights, graph.placement, self._arena, ChainMap(self._bound, self._outside))  # type: ignore[arg-type]  # only read


def _values(arrays: Mapping[str, Array]) -> _Values:
    return tuple((array.dtype, array.shape, array.tobytes()) for array in arrays.values())


def _traced_with(
    tracer: Tracer, region: Region, others: Mapping[str, Array], specs: Mapping[str, Spec], numbers: Mapping[str, Numbers]
) -> Trace:
    return tracer.trace(region, specs, {**others, **numbers})


def _traced(
    compiler: Compiler, tracer: Tracer, region: Region, specs: Mapping[str, Spec], host_values: Mapping[str, Array]
) -> CompiledGraph:
    """The graph of a trace of these sizes. A function, not a method: a graph that keeps it does not keep the cache alive."""
    return compiler.compiled(tracer.trace(region, specs, host_values))
