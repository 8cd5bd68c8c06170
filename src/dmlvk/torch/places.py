"""Places of what a graph's runs read and make: in a step of training they are mostly those of the step before."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dmlvk.graph.step import Storage
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer
from dmlvk.runtime.recorder import BoundRange

_MOST_MOVES: Final = 3
"""How often commands are recorded again for an input that has moved; then it is copied to memory of the graph's."""


@dataclass
class _Output:
    """Memory that a graph writes an output to.

    Attributes:
        buffer: The memory.
        is_copied: Whether runs copy from it. Else the tensor of a run has it.
        lent: What the last tensor has of it.
    """

    buffer: Buffer
    is_copied: bool
    lent: weakref.ref[Buffer] | None = None


class OutputPlaces(Mapping[Storage, BoundRange]):
    """The memory of outputs that lie outside of their graph's arena.

    The tensor that a run returns has it, without a copy, and the next run writes there again if that tensor and all that
    share its memory are gone by then. Else the output gets other memory, from which runs copy from then on.

    Args:
        device: The device with the memory.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self._device = device
        self._places: weakref.WeakKeyDictionary[Storage, _Output | None] = weakref.WeakKeyDictionary()

    def expect(self, storages: Iterable[Storage]) -> None:
        """Notes outputs that are to have places here."""
        for storage in storages:
            self._places.setdefault(storage)

    def __getitem__(self, storage: Storage) -> BoundRange:
        place = self._places[storage] or self._new(storage, is_copied=False)
        return BoundRange(place.buffer, 0, place.buffer.size_in_bytes)

    def __contains__(self, storage: object) -> bool:
        return storage in self._places

    def __iter__(self) -> Iterator[Storage]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def lend(self, storage: Storage) -> Buffer | None:
        """What the tensor of the coming run has of an output's memory, which may be other memory than before; None where the
        run copies from it."""
        place = self._places[storage] or self._new(storage, is_copied=False)
        if place.lent is not None and place.lent() is not None:
            place = self._new(storage, is_copied=True)
        if place.is_copied:
            return None
        lent = place.buffer.again()
        place.lent = weakref.ref(lent)
        return lent

    def _new(self, storage: Storage, *, is_copied: bool) -> _Output:
        made = self._places[storage] = _Output(self._device.create_buffer(storage.nbytes), is_copied)
        return made


@dataclass
class _Input:
    place: BoundRange
    moves: int = 0
    is_copied: bool = False


class InputPlaces:
    """Places of inputs that most likely lie where they lay in the last run: there, or after some moves elsewhere.

    Args:
        device: The device with the memory.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self._device = device
        self._inputs: dict[str, _Input] = {}

    def of(self, name: str, given: BoundRange) -> BoundRange:
        """Where the graph reads an input that lies in a place; it is to be copied where that is another."""
        known = self._inputs.get(name)
        if known is not None and known.place.nbytes != given.nbytes:
            known = None
        if known is None:
            known = self._inputs[name] = _Input(given)
        elif known.place != given and not known.is_copied:
            known.moves += 1
            known.is_copied = known.moves > _MOST_MOVES
            buffer = self._device.create_buffer(given.nbytes) if known.is_copied else given.buffer
            known.place = BoundRange(buffer, 0, given.nbytes) if known.is_copied else given
        return known.place
