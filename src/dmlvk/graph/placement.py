"""The places of a graph's storages in the arena."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from dmlvk.graph.arena import Lifetime, largest_live_set, plan_arena
from dmlvk.graph.step import Step, Storage


class Placement:
    """Offsets in one buffer for everything that the steps compute or are fed; constants have buffers of their own.

    A tensor that a step may write over one of its inputs lies where that input was, if nothing reads it later. What is part
    of another storage lies there; the bytes of either are taken from their own first use to their own last.

    Args:
        steps: The steps in order.
        inputs: Storages that are written before the first step.
        outputs: Storages that are read after the last.
        temporary_bytes: Scratch of each step.
        apart: Storages that lie elsewhere, as constants do, and what is part of them.

    Attributes:
        nbytes: Length of the arena.
        largest_live_set: The most bytes in use at one step, scratch included.
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
            present = [(item, item.place.storage) for item in storages if item is not None]
            return [item for item, whole in present if whole.constant is None and whole not in apart]

        first = dict.fromkeys(in_arena(inputs), -1)
        last = dict(first)
        for index, step in enumerate(steps):
            for storage in in_arena(step.inputs) + in_arena(step.outputs):
                first.setdefault(storage, index)
                last[storage] = index
        for storage in in_arena(outputs):
            first.setdefault(storage, len(steps))  # of which steps see only parts
            last[storage] = len(steps)
        parts: dict[Storage, list[Storage]] = {}
        for storage in first:
            parts.setdefault(storage.place.storage, []).append(storage)

        ends = {whole: max(last[part] for part in own) for whole, own in parts.items()}

        self._home = {whole: whole for whole in parts}
        for index, step in enumerate(steps):
            dying = {whole for whole in in_arena(step.inputs) if whole.part_of is None}
            dying = {whole for whole in dying if ends[whole] == index}
            home = _overwritten(step, dying, self._home)
            output = step.outputs[0]
            if home is not None and output in self._home:
                self._home[output] = home
        members: dict[Storage, list[Storage]] = {}
        for whole, home in self._home.items():
            members.setdefault(home, []).extend(parts[whole])
        blocks = [
            _block([Lifetime(item.nbytes, first[item], last[item], item.place.offset) for item in storages])
            for storages in members.values()
        ]
        blocks += [[Lifetime(nbytes, index, index)] for index, nbytes in enumerate(temporary_bytes)]
        arena = plan_arena(blocks)
        self.nbytes = arena.nbytes
        self.largest_live_set = largest_live_set(blocks)
        self.scratch = arena.offsets[len(members) :]
        self._offsets = dict(zip(members, arena.offsets, strict=False))

    def offset(self, storage: Storage) -> int:
        """The offset of a storage in the arena, in bytes."""
        whole, offset = storage.place
        return self._offsets[self._home[whole]] + offset


def _block(uses: Sequence[Lifetime]) -> list[Lifetime]:
    """One block of bytes that lie over each other: each from the first use of any to the last use of any."""
    starting: dict[int, list[Lifetime]] = {}
    for use in uses:
        starting.setdefault(use.offset, []).append(use)
    edges = sorted({edge for use in uses for edge in (use.offset, use.offset + use.nbytes)})
    block: list[Lifetime] = []
    over: list[Lifetime] = []
    for start, end in itertools.pairwise(edges):
        over = [use for use in (*over, *starting.get(start, ())) if end <= use.offset + use.nbytes]
        if not over:
            continue
        first, last = min(use.first for use in over), max(use.last for use in over)
        before = block[-1] if block else None
        if before is not None and (before.first, before.last, before.offset + before.nbytes) == (first, last, start):
            block[-1] = before._replace(nbytes=before.nbytes + end - start)
        else:
            block.append(Lifetime(end - start, first, last, start))
    return block or [uses[0]]  # of no bytes


def _overwritten(step: Step, dying: Collection[Storage], home: Mapping[Storage, Storage]) -> Storage | None:
    """The input whose place the step's only output may take: one that the operator allows for it, of the same layout, no
    part of which is read later, and which the step reads in no other layout. None if there is none."""
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
            other is None
            or home.get(other.place.storage) is not place
            or (other.part_of is None and index in allowed and slots[index].tensor == layout)
            for index, other in enumerate(step.inputs)
        ):
            return place
    return None
