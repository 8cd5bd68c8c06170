"""The weights of compiled graphs on a device: constants as they are, and what operators have made of theirs.

Uploads go through staging memory of a fixed size and are not waited for, so that they run while pipelines are created. A
constant that an operator repacks is on the device twice until that is done. So operators are initialised in batches, the
largest first, whose originals take no more than what is still to come: no moment of loading takes more memory than all
weights do in the end, unless a single original is larger than all that comes after it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from dmlvk.engine.operator import PreparedOperator, initialization_scratch
from dmlvk.engine.progress import Count
from dmlvk.graph.step import Storage
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.runtime.recorder import BoundRange, Recording


class Target(NamedTuple):
    """An operator to initialise.

    Attributes:
        operator: The operator.
        owned: The constants that are OWNED_BY_DML in it, in slot order.
    """

    operator: PreparedOperator
    owned: tuple[Storage, ...]


class Weights:
    """Buffers of constants and persistent resources; each lives as long as a compiled graph has its storage or operator.

    Args:
        device: The device that they are on.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self._device = device
        self._constants: weakref.WeakKeyDictionary[Storage, Buffer] = weakref.WeakKeyDictionary()
        self._persistent: weakref.WeakKeyDictionary[PreparedOperator, Buffer] = weakref.WeakKeyDictionary()

    @property
    def nbytes(self) -> int:
        """Device memory of all of them."""
        return sum(buffer.size_in_bytes for buffer in {*self._constants.values(), *self._persistent.values()})

    def known(self, storage: Storage) -> Buffer | None:
        """The buffer of a storage that is no part of the arena: a constant, uploaded when it is first asked for, or what
        is kept."""
        buffer = self._constants.get(storage)
        if buffer is None and storage.constant is not None:
            buffer = self._constants[storage] = self._uploaded(storage)
        return buffer

    def holds(self, storage: Storage) -> bool:
        """Whether a storage has memory here."""
        return storage in self._constants

    def reserved(self, storage: Storage) -> Buffer:
        """Memory for a storage that is written once: computed, or given. To be kept once what writes it is submitted."""
        return self._device.create_buffer(storage.nbytes, purpose=Purpose.WEIGHTS)

    def keep(self, buffers: Mapping[Storage, Buffer]) -> None:
        """Notes where storages lie that ``reserved`` has made memory for."""
        self._constants.update(buffers)

    def release(self, storages: Iterable[Storage]) -> None:
        """Frees constants that nothing reads any more; one that something does read after all is uploaded again."""
        for storage in storages:
            self._constants.pop(storage, None)

    def missing_bytes(self, storages: Set[Storage]) -> int:
        """Bytes of the constants among some storages that are not on the device."""
        return sum(item.nbytes for item in storages if item.constant is not None and item not in self._constants)

    def upload(self, storages: Iterable[Storage], count: Count) -> None:
        """Starts to upload the constants among some storages that are not on the device. Does not wait.

        Args:
            storages: Any storages.
            count: The count of the bytes that are uploaded.
        """
        for storage in storages:
            if storage.constant is not None and storage not in self._constants:
                self._constants[storage] = self._uploaded(storage)
                count(storage.nbytes)

    def _uploaded(self, storage: Storage) -> Buffer:
        buffer = self._device.create_buffer(storage.nbytes, purpose=Purpose.WEIGHTS)
        write_content(buffer, storage)
        return buffer

    def initialize(self, targets: Sequence[Target], count: Count, to_come: int = 0) -> None:
        """Initialises operators, and waits for it.

        Args:
            targets: The operators that are not yet initialised.
            count: The count of the bytes that are uploaded for it.
            to_come: Bytes of weights that will be there in the end, and are not yet.
        """
        sizes = {target.operator: self._original_bytes(target) for target in targets}
        for batch in _batches(targets, sizes, to_come):
            self._initialize(batch)
            count(sum(sizes[target.operator] for target in batch))

    def share(self, initialized: PreparedOperator, other: PreparedOperator) -> None:
        """Lets an operator use what the initialisation of another one has left."""
        if initialized.persistent is not None:
            self._persistent[other] = initialized.persistent.buffer
        other.keep(initialized.persistent)

    def _original_bytes(self, target: Target) -> int:
        return sum(storage.nbytes for storage in target.owned if storage not in self._constants)

    def _initialize(self, targets: Sequence[Target]) -> None:
        """Initialises operators, one after the other over the same scratch."""
        temporary = self._created(max(initialization_scratch(target.operator.plan) for target in targets), Purpose.TEMPORARY)
        homes = [self._created(target.operator.plan.persistent_bytes, Purpose.WEIGHTS) for target in targets]
        recording = Recording(self._device, timestamps=False)
        for (operator, owned), home in zip(targets, homes, strict=True):
            ranges: list[BoundRange | None] = [None] * len(operator.desc.input_slots())
            for slot, storage in zip(operator.owned_inputs, owned, strict=True):
                buffer = self._constants.get(storage) or self._uploaded(storage)
                ranges[slot] = BoundRange(buffer, 0, storage.nbytes)
            recording.add(operator.initialization(ranges, temporary, home))
        recording.submit()
        for (operator, _), home in zip(targets, homes, strict=True):
            if home is not None:
                self._persistent[operator] = home.buffer
            operator.keep(home)
        recording.wait()

    def _created(self, nbytes: int, purpose: Purpose) -> BoundRange | None:
        return BoundRange(self._device.create_buffer(nbytes, purpose=purpose), 0, nbytes) if nbytes else None


def write_content(buffer: Buffer, storage: Storage) -> None:
    """Starts to write a constant into memory of its own."""
    end = 0
    for array in storage.content():
        buffer.write(array, end)
        end += array.nbytes


def _batches(targets: Sequence[Target], sizes: Mapping[PreparedOperator, int], to_come: int) -> Iterator[list[Target]]:
    """The targets, those with the largest originals first; the originals of a batch are no larger than those after it and
    what is to come, but where a batch is a single target."""
    rest = sum(sizes.values()) + to_come
    batch: list[Target] = []
    taken = 0
    for target in sorted(targets, key=lambda target: -sizes[target.operator]):
        size = sizes[target.operator]
        if batch and size and taken + size > rest - size:
            yield batch
            batch, taken = [], 0
        batch.append(target)
        taken += size
        rest -= size
    if batch:
        yield batch
