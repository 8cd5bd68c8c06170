"""A compiled graph that is called with arrays: its inputs and outputs lie in memory that each call names anew.

Steps that touch none of that memory are recorded once, and so are those that read arrays which every call names, such as
weights, or write outputs to memory that an earlier call had. Others are recorded at each call, and no more than these.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from dmlvk.devices.capabilities import Capabilities
from dmlvk.engine.compiled_graphs import CompiledGraph, Compiler, Places
from dmlvk.engine.copies import Copy, recorded_copies
from dmlvk.engine.failures import frees_what_it_made
from dmlvk.engine.operator import PreparedOperator
from dmlvk.engine.trace import Trace
from dmlvk.engine.transfer import Array
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.runtime.recorder import BoundRange, Recording
from dmlvk.spec.errors import StateError, UnsupportedError

_FEWEST: Final = 8
"""Steps that are worth a recording of their own: fewer are recorded with their neighbours."""
_IN_FLIGHT: Final = 2
"""Recordings of the same commands, so that a call need not wait for the one before it."""
_IN_TURN: Final = 2
"""The buffers that an output takes in turn, and the memory in turn for which a segment keeps recordings: a caller mostly has
one result while it asks for the next."""
_MOST_KEPT: Final = 2 << 20
"""The most bytes of all outputs of a call for which their memory is kept. To make as much anew takes a small part of a call
that computes more."""


class _Work(NamedTuple):
    """A step with its operator, and the offset of its scratch."""

    step: Step
    operator: PreparedOperator
    scratch: int


_Key = tuple[tuple[weakref.ref[Buffer], int], ...]
"""Where the storages of a segment lie that calls name."""


class _Segment:
    """Steps in a row that are recorded together.

    Args:
        works: The steps.
        outside: Storages among theirs that lie in memory which calls name.

    Attributes:
        kept: Where the last calls had those, the oldest first, and commands over them, which are kept from the second call
            on that names the same memory: what a caller passes once is not kept alive.
    """

    def __init__(self, works: Sequence[_Work], outside: frozenset[Storage]) -> None:
        self.works = works
        self.outside = outside
        self.kept: dict[_Key, list[Recording]] = {}

    def recordings(self, ranges: Mapping[Storage, BoundRange]) -> list[Recording]:
        """Those over the memory of this call; a list that nobody keeps where it is named the first time."""
        key = tuple((weakref.ref(ranges[storage].buffer), ranges[storage].offset) for storage in self.outside)
        kept = self.kept.get(key)
        if kept is None and self.outside:
            self.kept = dict([*self.kept.items(), (key, [])][-_IN_TURN:])
            return []
        self.kept.pop(key, None)
        return self.kept.setdefault(key, [] if kept is None else kept)


class _Result(NamedTuple):
    """The memory of an output, and what the last caller to whom it was given has of it."""

    home: Buffer
    given: weakref.ref[Buffer]


class CallableGraph:
    """A graph ready to be called. May be called from several threads; they take turns.

    Args:
        device: The device that runs it.
        trace: The trace to run. Its inputs and outputs that are outside are bound at each call.
        refusal: The error to raise for an operator that the device cannot run.
        caps: The capabilities that kernels may rely on, the device's where None.

    Attributes:
        graph: The operators and their places.

    Raises:
        UnsupportedError: as ``refusal`` makes it.
    """

    def __init__(
        self,
        device: ComputeDevice,
        trace: Trace,
        refusal: Callable[[Origin, UnsupportedError], UnsupportedError],
        caps: Capabilities | None = None,
    ) -> None:
        self._device = device
        self._compiler = Compiler(device, refusal, caps=caps)
        self._prepared = self._compiler.prepared(trace)
        self.graph = CompiledGraph.of(trace, self._prepared.operators)
        self._segments = _segments(self.graph)
        self._lock = threading.Lock()
        self._arena: Buffer | None = None
        self._homes: dict[Storage, BoundRange] = {}
        sizes = [result.storage.nbytes for result in trace.outputs.values() if not isinstance(result, np.ndarray)]
        self._keeps_results = sum(sizes) <= _MOST_KEPT
        self._results: dict[str, list[_Result]] = {name: [] for name in trace.outputs}
        self._is_ready = False
        if not trace.given:
            self.give({})

    @frees_what_it_made
    def give(self, given: Mapping[Storage, BoundRange]) -> None:
        """Copies what the trace says is given later, and computes what follows from it.

        Raises:
            StateError: it has been given.
        """
        self._device.require_alive()
        with self._lock:
            if self._is_ready:
                raise StateError("a function can be initialised only once")
            weights = self._compiler.weights
            homes = {storage: weights.reserved(storage) for storage in given}
            copies = [
                Copy(source._replace(nbytes=storage.nbytes), BoundRange(homes[storage], 0, storage.nbytes))
                for storage, source in given.items()
            ]
            recorded_copies(self._device, copies).submit()
            weights.keep(homes)
            # A call that fails leaves no operator initialised: the next one may bring other weights.
            renewed = self._compiler.renewed(self._prepared)
            self._compiler.bring_weights(renewed)
            bound = set(renewed.bound())
            weights.release(storage for storage in given if storage not in bound)
            for operator, made in zip(self._prepared.operators, renewed.operators, strict=True):
                if made.initialized:
                    weights.share(made, operator)
            self._is_ready = True

    @frees_what_it_made
    def call(self, inputs: Mapping[Storage, BoundRange | Array]) -> dict[str, Buffer]:
        """A buffer for each output that nobody else has; returns without waiting for the device.

        Args:
            inputs: Each input that is outside: where it lies, or contiguous bytes of the host, for which memory is kept.

        Raises:
            StateError: what is given later is not there yet.
        """
        self._device.require_alive()
        trace = self.graph.trace
        with self._lock:
            if not self._is_ready:
                raise StateError("a function with inputs that are OWNED_BY_DML must be initialised before it is called")
            outputs: dict[str, Buffer] = {}
            ranges: dict[Storage, BoundRange] = {}
            for storage, given in inputs.items():
                ranges[storage] = given if isinstance(given, BoundRange) else self._written(storage, given)
            copied = []
            for name, result in trace.outputs.items():
                assert not isinstance(result, np.ndarray), "a graph that is called computes its outputs"
                storage = result.storage
                home, outputs[name] = self._for_result(name, storage.nbytes)
                target = BoundRange(home, 0, storage.nbytes)
                if storage in trace.outside and storage not in ranges:
                    ranges[storage] = target
                else:
                    copied.append((storage, target))
            if self._arena is None and self.graph.placement.nbytes:
                self._arena = self._device.create_buffer(self.graph.placement.nbytes, purpose=Purpose.TEMPORARY)
            places = Places(self._compiler.weights, self.graph.placement, self._arena, ranges)
            for segment in self._segments:
                self._recorded(segment, places, segment.recordings(ranges)).submit(defer=True)
            if copied:
                copies = [Copy(places.locate(storage), target) for storage, target in copied]
                recorded_copies(self._device, copies).submit(defer=True)
            self._device.flush()
            return outputs

    def _written(self, storage: Storage, array: Array) -> BoundRange:
        """The range on the device with a host array's bytes: memory that each call writes anew."""
        if storage not in self._homes:
            self._homes[storage] = BoundRange(self._device.create_buffer(storage.nbytes), 0, storage.nbytes)
        self._homes[storage].buffer.write(array)
        return self._homes[storage]

    def _for_result(self, name: str, nbytes: int) -> tuple[Buffer, Buffer]:
        """An output's memory, as the graph has it and as the caller gets it: what an earlier caller is done with, or new."""
        free = next((result for result in self._results[name] if result.given() is None), None)
        home = self._device.create_buffer(nbytes) if free is None else free.home
        if not self._keeps_results:
            return home, home
        given = home.again()
        others = [result for result in self._results[name] if result is not free]
        self._results[name] = [*others, _Result(home, weakref.ref(given))][-_IN_TURN:]
        return home, given

    def _recorded(self, segment: _Segment, places: Places, kept: list[Recording]) -> Recording:
        """A segment's commands: a recording that the device is done with where one is there, else a new one.

        Args:
            segment: The segment.
            places: Where its storages lie.
            kept: Its recordings over that memory, to which a new one is added.
        """
        for recording in kept:
            if recording.wait(0.0):
                return recording
        if len(kept) == _IN_FLIGHT:
            kept.append(kept.pop(0))
            return kept[-1]
        recording = Recording(self._device, timestamps=False)
        for work in segment.works:
            recording.add(places.commands(*work))
        kept.append(recording)
        return recording


def _segments(graph: CompiledGraph) -> list[_Segment]:
    """The steps in rows that touch the same memory outside; few in a row go with their neighbours."""
    outside = graph.trace.outside
    works = [
        _Work(*work)
        for work in zip(graph.trace.steps, graph.operators, graph.placement.scratch, strict=True)
        if not work[0].runs_once
    ]

    def touched(work: _Work) -> frozenset[Storage]:
        storages = (*work.step.read(), *work.step.written())
        return frozenset(storage.place.storage for storage in storages) & outside

    segments: list[_Segment] = []
    for own, row in itertools.groupby(works, key=touched):
        segment = _Segment([*row], own)
        last = segments[-1] if segments else None
        if last is not None and len(last.works) < _FEWEST and len(segment.works) < _FEWEST:
            segments[-1] = _Segment([*last.works, *segment.works], last.outside | own)
        else:
            segments.append(segment)
    return segments
