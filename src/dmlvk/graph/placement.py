"""Where the storages of a graph lie in the arena."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from dmlvk.graph.memory import Lifetime, plan_arena
from dmlvk.graph.step import Step, Storage


class Placement:
    """Offsets in one buffer for everything that the steps compute or are fed; constants have buffers of their own.

    A tensor that a step may write over one of its inputs lies where that input was, if nothing reads it later.

    Args:
        steps: In order.
        inputs: Storages that are written before the first step.
        outputs: Storages that are read after the last.
        temporary_bytes: Scratch of each step.
        apart: Storages that lie elsewhere, as constants do.

    Attributes:
        nbytes: Length of the arena.
        scratch: Offset of each step's scratch.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        inputs: Iterable[Storage],
        outputs: Iterable[Storage],
        temporary_bytes: Sequence[int],
        apart: Collection[Storage] = (),
    ) -> None:
        def in_arena(storages: Iterable[Storage | None]) -> list[Storage]:
            return [item for item in storages if item is not None and item.constant is None and item not in apart]

        first = dict.fromkeys(in_arena(inputs), -1)
        last = dict(first)
        for index, step in enumerate(steps):
            for storage in in_arena(step.inputs) + in_arena(step.outputs):
                first.setdefault(storage, index)
                last[storage] = index
        for storage in in_arena(outputs):
            last[storage] = len(steps)

        self._home = {storage: storage for storage in first}
        for index, step in enumerate(steps):
            home = _overwritten(step, {storage for storage in in_arena(step.inputs) if last[storage] == index}, self._home)
            output = step.outputs[0]
            if home is not None and output in self._home:
                self._home[output] = home
                last[home] = last[output]
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


def _overwritten(step: Step, dying: set[Storage], home: Mapping[Storage, Storage]) -> Storage | None:
    """What the step's only output may take over: the place of an input that the operator allows for it, of the same
    layout, not read later, and not read by the step in any other layout."""
    output = step.outputs[0]
    if output is None or len(step.outputs) > 1:
        return None
    allowed = step.desc.in_place_slots()
    slots = step.desc.input_slots()
    layout = step.desc.output_slots()[0].tensor
    for slot in sorted(allowed):
        storage = step.inputs[slot]
        if storage is None or storage not in dying or storage.nbytes != output.nbytes:
            continue
        place = home[storage]
        if all(
            other is None or home.get(other) is not place or (index in allowed and slots[index].tensor == layout)
            for index, other in enumerate(step.inputs)
        ):
            return place
    return None
