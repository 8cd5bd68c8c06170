"""Steps, storages and places: a graph once sizes are known is operators in order, and the memory between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dmlvk.spec.schema import OperatorDesc


class Place(NamedTuple):
    """A place in a storage.

    Attributes:
        storage: The storage.
        offset: The offset from its start, in bytes.
    """

    storage: Storage
    offset: int


@dataclass(frozen=True, eq=False)
class JoinedArrays:
    """Arrays whose bytes come one after the other, as one constant. The host puts them together only for who asks for an
    array."""

    arrays: tuple[npt.NDArray[np.generic], ...]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in self.arrays])


@dataclass(eq=False)
class Storage:
    """Bytes on the device that operators write and read; two storages are equal only if they are the same.

    What lies in them, and how, is said by the tensor descs of those operators, so that a view of a tensor is the same
    storage under another desc.

    Attributes:
        nbytes: Length, a multiple of 4.
        constant: The content, if that is known before the run; it is then uploaded once. A step may write to it all the
            same: then that is what it holds before the first run, and any other finds what the last one wrote.
        part_of: The bytes of another storage that are its own, where it has none for itself; said by the passes.
    """

    nbytes: int
    constant: npt.NDArray[np.generic] | JoinedArrays | None = field(default=None, repr=False)
    part_of: Place | None = field(default=None, repr=False)

    def content(self) -> Iterator[npt.NDArray[np.generic]]:
        """The constant as contiguous arrays that come one after the other; none of a storage that is no constant."""
        own = self.constant
        arrays = own.arrays if isinstance(own, JoinedArrays) else () if own is None else (own,)
        return map(np.ascontiguousarray, arrays)

    @property
    def place(self) -> Place:
        """The place in the storage that is part of no other; a storage that is part of none is at the start of itself."""
        whole, path = self, []
        while whole.part_of is not None:
            path.append(whole)
            whole = whole.part_of.storage
        place = Place(whole, 0)
        for part in reversed(path):  # parts of parts become parts of the whole: the way is short from now on
            assert part.part_of is not None, "it is on the way"
            place = part.part_of = Place(whole, place.offset + part.part_of.offset)
        return place


class Origin(Protocol):
    """The part of a door's network that asked for a step, as errors and reports name it.

    Attributes:
        name: Its own name.
        op_type: The name of its operator.
    """

    @property
    def name(self) -> str: ...

    @property
    def op_type(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Step:
    """One operator to run.

    Attributes:
        origin: The part of a door's network that asked for it.
        desc: The operator, validated.
        inputs, outputs: Its bindings in slot order, None for an absent optional tensor.
        runs_once: Whether what it computes is the same in every run, and is kept from before the first one on.
        merged: Other parts of the network whose work it does, or some of it, since passes made one step of several.
    """

    origin: Origin
    desc: OperatorDesc
    inputs: tuple[Storage | None, ...]
    outputs: tuple[Storage | None, ...]
    runs_once: bool = False
    merged: tuple[Origin, ...] = ()

    @staticmethod
    def of(origin: Origin, desc: OperatorDesc, storages: Mapping[str, Storage | None]) -> Step:
        """A step of an operator without tensor arrays, from the storages of its fields."""
        return Step(
            origin,
            desc,
            tuple(storages.get(slot.field.name) for slot in desc.input_slots()),
            tuple(storages.get(slot.field.name) for slot in desc.output_slots()),
        )

    def storage(self, field: str) -> Storage | None:
        """The storage of a single tensor, by field."""
        return self.storages()[field]

    def storages(self) -> dict[str, Storage | None]:
        """The storages of single tensors, by field."""
        slots = (*self.desc.input_slots(), *self.desc.output_slots())
        return {slot.field.name: own for slot, own in zip(slots, (*self.inputs, *self.outputs), strict=True)}

    def read(self) -> Iterator[Storage]:
        """The storages that it reads."""
        return (storage for storage in self.inputs if storage is not None)

    def written(self) -> Iterator[Storage]:
        """The storages that it writes."""
        return (storage for storage in self.outputs if storage is not None)
