"""Where the tensors of a trace lie in the arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlvk.graph.memory import Lifetime, plan_arena
from dmlvk.onnx.conversion import Step
from dmlvk.onnx.network import Trace
from dmlvk.onnx.values import Storage, Value


class Placement:
    """Offsets in one buffer for everything that a trace computes or is fed; constants have buffers of their own.

    A tensor that a step may write over one of its inputs lies where that input was, if nothing reads it later.

    Args:
        trace: The trace.
        temporary_bytes: Scratch of each step.

    Attributes:
        nbytes: Length of the arena.
        scratch: Offset of each step's scratch.
    """

    def __init__(self, trace: Trace, temporary_bytes: Sequence[int]) -> None:
        first, last = _lifetimes(trace)
        self._home = {storage: storage for storage in first}
        for index, step in enumerate(trace.steps):
            output = step.outputs[0]
            home = _overwritten(step, {storage for storage in _in_arena(step.inputs) if last[storage] == index}, self._home)
            if home is not None and output is not None:
                self._home[output.storage] = home
                last[home] = last[output.storage]
        homes = list(dict.fromkeys(self._home.values()))
        lifetimes = [Lifetime(storage.nbytes, first[storage], last[storage]) for storage in homes]
        lifetimes += [Lifetime(nbytes, index, index) for index, nbytes in enumerate(temporary_bytes)]
        arena = plan_arena(lifetimes)
        self.nbytes = arena.nbytes
        self.scratch = arena.offsets[len(homes) :]
        self._offsets = dict(zip(homes, arena.offsets, strict=False))

    def offset(self, storage: Storage) -> int:
        """Where a storage starts."""
        return self._offsets[self._home[storage]]


def _in_arena(values: Sequence[Value | None]) -> list[Storage]:
    """The storages of values, but for those with buffers of their own."""
    return [value.storage for value in values if value is not None and value.storage.constant is None]


def _lifetimes(trace: Trace) -> tuple[dict[Storage, int], dict[Storage, int]]:
    """First and last step of each storage of the arena: the model's inputs are written before the first step, its
    outputs read after the last."""
    first = {value.storage: -1 for value in trace.inputs.values()}
    last = dict(first)
    for index, step in enumerate(trace.steps):
        for storage in _in_arena(step.inputs) + _in_arena(step.outputs):
            first.setdefault(storage, index)
            last[storage] = index
    for result in trace.outputs.values():
        if isinstance(result, Value) and result.storage in last:
            last[result.storage] = len(trace.steps)
    return first, last


def _overwritten(step: Step, dying: set[Storage], home: Mapping[Storage, Storage]) -> Storage | None:
    """What the step's only output may take over: the place of an input that the operator allows for it, of the same
    layout, not read later, and not read by the step in any other layout."""
    output = step.outputs[0]
    if output is None or len(step.outputs) > 1:
        return None
    allowed = step.desc.in_place_slots()
    for slot in sorted(allowed):
        value = step.inputs[slot]
        if value is None or value.storage not in dying or value.storage.nbytes != output.storage.nbytes:
            continue
        place = home[value.storage]
        if all(
            other is None
            or other.storage.constant is not None
            or home[other.storage] is not place
            or (index in allowed and other.desc() == output.desc())
            for index, other in enumerate(step.inputs)
        ):
            return place
    return None
