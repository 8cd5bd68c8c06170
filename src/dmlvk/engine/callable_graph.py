"""A compiled graph that is called with arrays: its inputs and outputs lie in memory that each call names anew.

Steps that touch none of that memory are recorded once, and so are those that read arrays which every call names, such as
weights, or write outputs to memory that an earlier call had. Others are recorded at each call, and no more than these.

A caller that reads each result before it asks for the next gets those results with the call: copies to the host go with its
commands, and all of it is one submission that native code makes.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

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
from dmlvk.runtime.memory import Buffer, HostReading, Purpose
from dmlvk.runtime.prepared_run import prepared_run
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
"""Where storages lie that calls name."""


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
        key = _key([ranges[storage] for storage in self.outside])
        kept = self.kept.get(key)
        if kept is None and self.outside:
            self.kept = dict([*self.kept.items(), (key, [])][-_IN_TURN:])
            return []
        self.kept.pop(key, None)
        return self.kept.setdefault(key, [] if kept is None else kept)


class _Result:
    """The memory of an output, which callers have one after the other.

    Args:
        home: The memory, as the graph has it.

    Attributes:
        home: The memory.
        reading: How the last caller to whom it was given reads it.
    """

    def __init__(self, home: Buffer) -> None:
        self.home = home
        self.reading = HostReading()
        self._given: weakref.ref[Buffer] | None = None

    def is_free(self) -> bool:
        """Whether no caller has it."""
        return self._given is None or self._given() is None

    def given(self) -> Buffer:
        """The memory for one caller."""
        self.reading.restart()
        given = self.home.again(self.reading)
        self._given = weakref.ref(given)
        return given


class _Repeat:
    """Calls over the same memory, as native code repeats them.

    Args:
        native: The ``_native.PreparedRun``: its feeds are the inputs on the host, its results what callers read.
        inputs: The inputs of such a call.
        results: The memory of each output.
        read: The names of those that callers read.
    """

    def __init__(
        self, native: Any, inputs: Mapping[Storage, BoundRange | Array], results: Mapping[str, _Result], read: Sequence[str]
    ) -> None:
        self._native = native
        self._places = {
            storage: (weakref.ref(given.buffer), given.offset) if isinstance(given, BoundRange) else None
            for storage, given in inputs.items()
        }
        self._results = results
        self._read = [(results[name].reading, (weakref.ref(native), index)) for index, name in enumerate(read)]

    def call(self, inputs: Mapping[Storage, BoundRange | Array]) -> dict[str, Buffer] | None:
        """The outputs of a call; None where it is none over this memory, or where the host has read nothing of what the call
        before left there: such a caller does not wait for the device, as native code would have to."""
        for result in self._results.values():
            if not result.is_free():
                return None
        for reading, _ in self._read:
            if reading.was_read:
                break
        else:
            return None
        arrays = []
        for storage, place in self._places.items():
            given = inputs[storage]
            if isinstance(given, BoundRange):
                if place is None or place[0]() is not given.buffer or place[1] != given.offset:
                    return None
            elif place is not None:
                return None
            else:
                arrays.append(given)
        are_brought = self._native.start(arrays)
        outputs = {name: result.given() for name, result in self._results.items()}
        if are_brought:
            for reading, source in self._read:
                reading.source = source
        return outputs


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
        self._outside = tuple(trace.outside)
        self._repeats: dict[_Key, _Repeat | None] = {}
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

    def call(self, inputs: Mapping[Storage, BoundRange | Array]) -> dict[str, Buffer]:
        """A buffer for each output that nobody else has; returns without waiting for the device.

        Args:
            inputs: Each input that is outside: where it lies, or contiguous bytes of the host, for which memory is kept.

        Raises:
            StateError: what is given later is not there yet.
        """
        self._device.require_alive()
        with self._lock:
            if not self._is_ready:
                raise StateError("a function with inputs that are OWNED_BY_DML must be initialised before it is called")
            for repeat in self._repeats.values():
                if repeat is not None and (found := repeat.call(inputs)) is not None:
                    return found
            return self._called(inputs)

    @frees_what_it_made
    def _called(self, inputs: Mapping[Storage, BoundRange | Array]) -> dict[str, Buffer]:
        """The outputs of a call that is no repetition."""
        trace = self.graph.trace
        ranges: dict[Storage, BoundRange] = {}
        for storage, given in inputs.items():
            ranges[storage] = given if isinstance(given, BoundRange) else self._written(storage, given)
        results: dict[str, _Result] = {}
        copied = []
        for name, output in trace.outputs.items():
            assert not isinstance(output, np.ndarray), "a graph that is called computes its outputs"
            storage = output.storage
            results[name] = self._result(name, storage.nbytes)
            target = BoundRange(results[name].home, 0, storage.nbytes)
            if storage in trace.outside and storage not in ranges:
                ranges[storage] = target
            else:
                copied.append((storage, target))
        recordings = self._submitted(ranges, copied)
        if not self._keeps_results:
            return {name: result.home for name, result in results.items()}
        key = _key([*[ranges[storage] for storage in self._outside], *[target for _, target in copied]])
        self._note(key, inputs, results, recordings)
        return {name: result.given() for name, result in results.items()}

    def _submitted(
        self, ranges: Mapping[Storage, BoundRange], copied: Sequence[tuple[Storage, BoundRange]]
    ) -> list[Recording]:
        """The recordings of a call, which are submitted.

        Args:
            ranges: Where what lies outside is.
            copied: What is copied in the end, and where to.
        """
        if self._arena is None and self.graph.placement.nbytes:
            self._arena = self._device.create_buffer(self.graph.placement.nbytes, purpose=Purpose.TEMPORARY)
        places = Places(self._compiler.weights, self.graph.placement, self._arena, ranges)
        recordings = []
        for segment in self._segments:
            recordings.append(self._recorded(segment, places, segment.recordings(ranges)))
            recordings[-1].submit(defer=True)
        if copied:
            copies = [Copy(places.locate(storage), target) for storage, target in copied]
            recordings.append(recorded_copies(self._device, copies))
            recordings[-1].submit(defer=True)
        self._device.flush()
        return recordings

    def _note(
        self,
        key: _Key,
        inputs: Mapping[Storage, BoundRange | Array],
        results: Mapping[str, _Result],
        recordings: Sequence[Recording],
    ) -> None:
        """Notes where a call's memory was. A call that comes the second time, and whose results were read, is kept.

        Args:
            key: Where it was.
            inputs, results, recordings: What the call had.
        """
        if key not in self._repeats:
            self._repeats = dict([*self._repeats.items(), (key, None)][-_IN_TURN:])
            return
        read = [name for name, result in results.items() if result.reading.was_read]
        if read and self._repeats[key] is None:
            feeds = [
                self._homes[storage]._replace(nbytes=given.nbytes)
                for storage, given in inputs.items()
                if not isinstance(given, BoundRange)
            ]
            homes = [results[name].home for name in read]
            native = prepared_run(
                self._device, feeds, recordings, [BoundRange(home, 0, home.size_in_bytes) for home in homes]
            )
            self._repeats[key] = _Repeat(native, inputs, results, read)

    def _written(self, storage: Storage, array: Array) -> BoundRange:
        """The range on the device with a host array's bytes: memory that each call writes anew."""
        if storage not in self._homes:
            self._homes[storage] = BoundRange(self._device.create_buffer(storage.nbytes), 0, storage.nbytes)
        self._homes[storage].buffer.write(array)
        return self._homes[storage]

    def _result(self, name: str, nbytes: int) -> _Result:
        """An output's memory: what an earlier caller is done with, or new."""
        kept = self._results[name]
        free = next((result for result in kept if result.is_free()), None)
        result = _Result(self._device.create_buffer(nbytes)) if free is None else free
        if self._keeps_results:
            self._results[name] = [*[other for other in kept if other is not free], result][-_IN_TURN:]
        return result

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


def _key(ranges: Sequence[BoundRange]) -> _Key:
    return tuple([(weakref.ref(part.buffer), part.offset) for part in ranges])


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
