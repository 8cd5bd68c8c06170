"""The places of a graph's storages in the arena."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from dmlvk.graph.arena import Arena, Lifetime, Stacking, live_bytes, plan_arena
from dmlvk.graph.step import Step, Storage

_SPARE: Final = 2**16
"""Bytes that blocks may waste beside a quarter: what they are rounded up by is most of it where they are small."""


class Lifetimes:
    """Which storages lie over each other in the arena, and from which step to which each is in use.

    A tensor that a step may write over one of its inputs lies where that input was, if nothing reads it later. What is part
    of another storage lies there.

    Args:
        steps: The steps in order.
        inputs: Storages that are written before the first step.
        outputs: Storages that are read after the last.
        apart: Storages that lie elsewhere, as constants do, and what is part of them.

    Attributes:
        first, last: The first and the last step that uses a storage; -1 for inputs, the number of steps for outputs.
        homes: The storage at whose place each storage lies that is part of no other.
        members: The storages of each such place, parts among them.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        inputs: Iterable[Storage],
        outputs: Iterable[Storage],
        apart: Collection[Storage] = (),
    ) -> None:
        def in_arena(storages: Iterable[Storage | None]) -> list[Storage]:
            present = [(item, item.place.storage) for item in storages if item is not None]
            return [item for item, whole in present if whole.constant is None and whole not in apart]

        self.first = dict.fromkeys(in_arena(inputs), -1)
        self.last = dict(self.first)
        for index, step in enumerate(steps):
            for storage in in_arena(step.inputs) + in_arena(step.outputs):
                self.first.setdefault(storage, index)
                self.last[storage] = index
        for storage in in_arena(outputs):
            self.first.setdefault(storage, len(steps))  # of which steps see only parts
            self.last[storage] = len(steps)
        parts: dict[Storage, list[Storage]] = {}
        for storage in self.first:
            parts.setdefault(storage.place.storage, []).append(storage)

        ends = {whole: max(self.last[part] for part in own) for whole, own in parts.items()}

        self.homes = {whole: whole for whole in parts}
        for index, step in enumerate(steps):
            dying = {whole for whole in in_arena(step.inputs) if whole.part_of is None}
            dying = {whole for whole in dying if ends[whole] == index}
            home = _overwritten(step, dying, self.homes)
            output = step.outputs[0]
            if home is not None and output in self.homes:
                self.homes[output] = home
        self.members: dict[Storage, list[Storage]] = {}
        for whole, home in self.homes.items():
            self.members.setdefault(home, []).extend(parts[whole])


class Placement:
    """Offsets in one buffer for everything that the steps compute or are fed; constants have buffers of their own.

    The bytes of a storage, or of a part of one, are taken from their own first use to their own last.

    Args:
        steps: In order.
        inputs: Storages that are written before the first step.
        outputs: Storages that are read after the last.
        temporary_bytes: Scratch of each step.
        apart: Storages that lie elsewhere, as constants do, and what is part of them.

    Attributes:
        nbytes: Length of the arena.
        live_bytes: The bytes in use before the first step, at each step and after the last, scratch included.
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
        lifetimes = Lifetimes(steps, inputs, outputs, apart)
        first, last = lifetimes.first, lifetimes.last
        blocks = [
            _block([Lifetime(item.nbytes, first[item], last[item], item.place.offset) for item in storages])
            for storages in lifetimes.members.values()
        ]
        blocks += [[Lifetime(nbytes, index, index)] for index, nbytes in enumerate(temporary_bytes)]
        arena = plan_arena(blocks)
        self.nbytes = arena.nbytes
        self.live_bytes = live_bytes(blocks, len(steps))
        self.scratch = arena.offsets[len(lifetimes.members) :]
        self._homes = lifetimes.homes
        self._offsets = dict(zip(lifetimes.members, arena.offsets, strict=False))

    def offset(self, storage: Storage) -> int:
        """The offset in the arena of a storage's first byte."""
        whole, offset = storage.place
        return self._offsets[self._homes[whole]] + offset

    def start(self, whole: Storage) -> int | None:
        """The offset in the arena of a storage that is part of no other; None of one that lies elsewhere."""
        home = self._homes.get(whole)
        return None if home is None else self._offsets[home]

    def extent(self, storage: Storage) -> tuple[Storage, int, int]:
        """The storage that is part of no other in which one lies, its offset there, and its bytes."""
        return *storage.place, storage.nbytes


class StackedArena:
    """Places for the blocks of a graph whose sizes change.

    They are planned once, and stacked alike for all other sizes, as long as little is wasted.

    Args:
        lifetimes: The graph's storages.
        steps: The number of its steps, each of which may have scratch.

    Attributes:
        plans: How often they were planned.
    """

    def __init__(self, lifetimes: Lifetimes, steps: int) -> None:
        first, last = lifetimes.first, lifetimes.last
        self._lives = [
            (min(first[item] for item in own), max(last[item] for item in own)) for own in lifetimes.members.values()
        ]
        self._lives += [(index, index) for index in range(steps)]
        edges = np.array(self._lives, np.intp).reshape(-1, 2)
        self._starts, self._ends = edges[:, 0] + 1, edges[:, 1] + 2  # inputs are there from step -1 on
        self._steps = steps
        self._stacking: Stacking | None = None
        self._wasteful = 0
        self.plans = 0

    def fitted(self, lengths: Sequence[int]) -> tuple[Arena, Sequence[int]]:
        """The offsets of blocks of these lengths, and the bytes in use before the first step, at each and after the last.

        Args:
            lengths: Those of ``Lifetimes.members``, then the scratch of each step.
        """
        live = self._live_bytes(lengths)
        if self._stacking is not None:
            arena = self._stacking.arena(lengths)
            if 4 * arena.nbytes <= 5 * max(live) + _SPARE:
                return arena, live
            self._wasteful += 1
            if (
                self._wasteful.bit_count() > 1
            ):  # the 1st, 2nd, 4th, 8th: sizes for which no plan does better are not many plans
                return arena, live
        self._stacking = Stacking(self._lives, lengths)
        self.plans += 1
        return self._stacking.arena(lengths), live

    def _live_bytes(self, lengths: Sequence[int]) -> list[int]:
        slots = self._steps + 3
        changes = np.zeros(slots, np.int64)
        np.add.at(changes, self._starts, lengths)
        np.subtract.at(changes, self._ends, lengths)
        live: list[int] = changes.cumsum()[:-1].tolist()
        return live


def _block(uses: Sequence[Lifetime]) -> list[Lifetime]:
    """One block of bytes that lie over each other: each from the first use of any to the last use of any."""
    starting: dict[int, list[Lifetime]] = {}
    for use in uses:
        starting.setdefault(use.offset, []).append(use)
    edges = sorted({edge for use in uses for edge in (use.offset, use.offset + use.nbytes)})
    block: list[Lifetime] = []
    # Of the uses over the bytes, each with its end: the first to begin and the last to go on are on top. One that ends below
    # goes when it comes to the top, so that many parts of a whole cost no more each than few.
    firsts: list[tuple[int, int]] = []
    lasts: list[tuple[int, int]] = []
    for start, end in itertools.pairwise(edges):
        for use in starting.get(start, ()):
            heapq.heappush(firsts, (use.first, use.offset + use.nbytes))
            heapq.heappush(lasts, (-use.last, use.offset + use.nbytes))
        for heap in (firsts, lasts):
            while heap and heap[0][1] < end:
                heapq.heappop(heap)
        if not firsts:
            continue
        first, last = firsts[0][0], -lasts[0][0]
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
    allowed = step.desc.overwritable(0)
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
