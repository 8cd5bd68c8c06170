"""Steps with their connections, to be rewritten: who writes a storage, and who reads it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.graph.step import JoinedArrays, Origin, Place, Step, Storage
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

_DTYPES: Final[dict[TensorDataType, npt.DTypeLike]] = {
    TensorDataType.FLOAT32: np.float32,
    TensorDataType.FLOAT16: np.float16,
}


DerivedConstants = dict[tuple[object, ...], Storage]
"""Constants that have been derived from others, to be used again where the same steps come with other sizes."""


def needed_steps(steps: Sequence[Step], outputs: Iterable[Storage]) -> list[Step]:
    """The steps, in their order, of which something is read in the end."""
    needed = set(outputs)
    kept: list[Step] = []
    for step in reversed(steps):
        if not needed.isdisjoint(step.written()):
            needed.update(step.read())
            kept.append(step)
    return kept[::-1]


class StepGraph:
    """Steps in an order in which each comes after what it reads.

    A pass looks for steps that it can do without and ``replace``s them. Each byte has one writer at most: a storage whose
    parts have writers has none itself.

    Args:
        steps: The steps.
        outputs: Storages that are read after the last of them.
        memory: The mapping that keeps derived constants.
        keeps_dead_steps: Whether steps stay whose results nobody reads to begin with.

    Attributes:
        outputs: The storages that are read after the last step, or that dead steps write which are kept.

    A change costs as much as what it changes, however many steps there are.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        outputs: Iterable[Storage],
        memory: DerivedConstants | None = None,
        *,
        keeps_dead_steps: bool = False,
    ) -> None:
        self._memory = {} if memory is None else memory
        self.outputs = frozenset(outputs)
        self._after: dict[Step | None, Step | None] = {None: None}  # a ring of the steps; None lies between last and first
        self._before: dict[Step | None, Step | None] = {None: None}
        self._writers: dict[Storage, Step] = {}
        self._readers: dict[Storage, Counter[Step]] = {}
        self._parts: dict[Storage, list[Storage]] = {}
        self._guarantees: dict[Step, dict[Storage, int]] = {}
        self._numbers: dict[tuple[object, ...], float | None] = {}
        self._originals = list(steps)
        self._heirs: dict[Step, tuple[Step, ...]] = {}
        self._last_readers: dict[Storage, Step] = {}
        self._steps: tuple[Step, ...] | None = None  # in order, until one comes or goes
        self._has_no_dead_steps = False  # for sure
        for step in self._originals:
            self._insert(step, None)
        if keeps_dead_steps:
            self.outputs |= {storage for storage in self._writers if not self.readers(storage)}

    def _insert(self, step: Step, after: Step | None) -> None:
        """Puts a step before another, or, before None, at the end."""
        self._steps, self._has_no_dead_steps = None, False
        before = self._before[after]
        self._after[before], self._before[step] = step, before
        self._after[step], self._before[after] = after, step
        self._writers.update(dict.fromkeys(step.written(), step))
        for storage in step.read():
            self._readers.setdefault(storage, Counter())[step] += 1

    def _remove(self, step: Step) -> Step | None:
        """Takes a step out; returns the one behind it, None at the end."""
        self._steps, self._has_no_dead_steps = None, False
        before, after = self._before.pop(step), self._after.pop(step)
        self._guarantees.pop(step, None)
        self._after[before], self._before[after] = after, before
        for storage in step.written():
            if self._writers[storage] is step:  # and no later one, which writes a part of it anew
                del self._writers[storage]
        for storage in step.read():
            self._readers[storage].pop(step, None)
            self._last_readers[storage] = step
        return after

    # -- questions

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps as they are now, in order."""
        if self._steps is None:
            found = []
            step = self._after[None]
            while step is not None:
                found.append(step)
                step = self._after[step]
            self._steps = tuple(found)
        return self._steps

    def __contains__(self, step: Step) -> bool:
        return step in self._after

    def writer(self, storage: Storage | None) -> Step | None:
        """The step that writes a storage."""
        return None if storage is None else self._writers.get(storage)

    def readers(self, storage: Storage) -> Mapping[Step, int]:
        """The steps that read a storage, each with how many times it does."""
        return self._readers.get(storage, {})

    def only_reader(self, storage: Storage | None) -> Step | None:
        """The one step that reads a storage, once, where nothing else does: then it need not exist."""
        if storage is None or storage in self.outputs or any(other is not storage for other in self._sharing(storage)):
            return None
        readers = self.readers(storage)
        return next(iter(readers)) if len(readers) == 1 and 1 in readers.values() else None

    def outlives_a_run(self, storage: Storage) -> bool:
        """Whether a storage is a constant that steps write over, for the next run to find."""
        return storage.constant is not None and storage in self._writers

    def alignment(self, storage: Storage) -> int:
        """The bytes on which tensors start that steps see in a storage, as their descs guarantee; 0 for no guarantee."""
        steps = {*self.readers(storage), *filter(None, (self.writer(storage),))}
        return max((self._guarantees_of(step).get(storage, 0) for step in steps), default=0)

    def _guarantees_of(self, step: Step) -> Mapping[Storage, int]:
        """What ``alignment`` says of a step's storages for that step alone, worked out once: a join has many."""
        if step not in self._guarantees:
            found = self._guarantees[step] = {}
            slots = zip((*step.desc.input_slots(), *step.desc.output_slots()), (*step.inputs, *step.outputs), strict=True)
            for slot, storage in slots:
                if storage is not None and slot.tensor is not None:
                    found[storage] = max(found.get(storage, 0), slot.tensor.guaranteed_base_offset_alignment)
        return self._guarantees[step]

    def constant(self, storage: Storage | None, tensor: TensorDesc | None) -> npt.NDArray[Any] | None:
        """The numbers that a storage holds in every run, as a tensor sees it; None if they are not known, or no floats."""
        if storage is None or tensor is None or storage.constant is None or storage in self._writers:
            return None
        dtype = _DTYPES.get(tensor.data_type)
        if dtype is None:
            return None
        memory = np.ascontiguousarray(storage.constant).reshape(-1).view(dtype)
        steps = tuple(step * memory.itemsize for step in tensor.effective_strides)
        return np.lib.stride_tricks.as_strided(memory, tensor.sizes, steps, writeable=False)

    def number(self, storage: Storage | None, tensor: TensorDesc | None) -> float | None:
        """The one number that all elements of a constant are; None where there is none."""
        if storage is None or tensor is None or storage.constant is None:
            return None
        steps = zip(tensor.sizes, tensor.effective_strides, strict=True)
        once = tuple((size, step) for size, step in steps if step) or ((1, 1),)  # each element once
        key = (storage, tensor.data_type, once)
        if key not in self._numbers:
            sizes, strides = zip(*once, strict=True)
            self._numbers[key] = _only_number(self.constant(storage, TensorDesc(tensor.data_type, sizes, strides)))
        return self._numbers[key]

    def finished(self) -> tuple[Step, ...]:
        """The steps in order, each with the origins of all whose work it does: of those that it replaced, and of those that
        nothing reads since it replaced their readers."""
        merged: dict[Step, dict[Origin, None]] = {}
        for original in self._originals:
            waiting, met = [original], {original}
            while waiting:
                step = waiting.pop()
                if step not in self:
                    further = [heir for heir in self._heirs[step] if heir not in met]
                    waiting += further
                    met.update(further)
                elif step.origin is not original.origin:
                    merged.setdefault(step, {})[original.origin] = None
        return tuple(
            dataclasses.replace(step, merged=tuple(merged[step])) if step in merged else step for step in self.steps
        )

    # -- changes

    def remove_dead_steps(self) -> None:
        """Removes the steps whose results nobody reads, and those that only they read. Costs nothing where no step has come
        or gone since there were none, as after a pass that changed nothing."""
        if self._has_no_dead_steps:
            return
        dead = []
        for step in reversed(self.steps):
            if not any(self._is_needed(storage) for storage in step.written()):
                dead.append(step)
                self._remove(step)
                readers = (self._last_readers.get(storage) for storage in step.written())
                self._heirs[step] = tuple(dict.fromkeys(filter(None, readers)))
        self._has_no_dead_steps = not dead

    def _is_needed(self, storage: Storage) -> bool:
        """Whether a storage is read: by a step, by the caller, or, where it outlives a run, by the next one; or others are
        that have bytes in common with it."""
        return any(map(self._is_read, self._sharing(storage)))

    def _sharing(self, storage: Storage) -> Iterator[Storage]:
        """The storage, and others that have bytes in common with it."""
        yield storage
        whole, start = storage.place
        for other in (whole, *self._parts.get(whole, ())) if self._parts else ():
            if (
                other is not storage
                and other.place.offset < start + storage.nbytes
                and start < other.place.offset + other.nbytes
            ):
                yield other

    def _is_read(self, storage: Storage) -> bool:
        return storage in self.outputs or storage.constant is not None or bool(self.readers(storage))

    def derived(
        self, name: str, sources: Sequence[Storage | None], data_type: TensorDataType, make: Callable[[], npt.NDArray[Any]]
    ) -> Storage:
        """A new constant of floats, packed: computed on the host, once for all graphs with these memories.

        Args:
            name: A name for what is computed, equal only where the same is computed.
            sources: The storages that it is computed of.
            data_type: The type of its elements.
            make: Computes it.
        """
        key = (name, data_type, *sources)
        if key not in self._memory:
            array = make().astype(_DTYPES[data_type], copy=False).reshape(-1)
            self._memory[key] = Storage(-(-array.nbytes // 4) * 4, array)
        return self._memory[key]

    def joined(self, sources: Sequence[Storage]) -> Storage:
        """The bytes of constants one after the other, as a new constant of which the host makes no copy."""
        key = ("joined", *sources)
        if key not in self._memory:
            arrays = tuple(array for source in sources for array in source.content())
            self._memory[key] = Storage(-(-sum(array.nbytes for array in arrays) // 4) * 4, JoinedArrays(arrays))
        return self._memory[key]

    def replace(self, old: Sequence[Step], *new: Step, early: bool = False) -> None:
        """Puts steps where the last of ``old`` was, which is the last of them in the graph, too; with ``early`` where the
        first was, which is the first there."""
        after = None
        for step in reversed(old) if early else old:
            after = self._remove(step)
            self._heirs[step] = new
        for step in new:
            self._insert(step, after)

    def reorder(self, order: Iterable[tuple[Sequence[Step], Step]]) -> None:
        """Puts all steps in another order, in which each comes after what it needs, and steps in the place of some.

        Args:
            order: The steps that are there, with what stands for them from now on: themselves, or another.
        """
        for old, new in list(order):
            for step in old:
                self._remove(step)
                if step is not new:
                    self._heirs[step] = (new,)
            self._insert(new, None)

    def rename(self, names: Mapping[Storage, Storage]) -> None:
        """Lets steps read and write other storages in the place of some."""
        writers = filter(None, map(self.writer, names))
        changed = dict.fromkeys((*writers, *(step for storage in names for step in self.readers(storage))))
        for step in changed:
            renamed = dataclasses.replace(
                step,
                inputs=tuple(item and names.get(item, item) for item in step.inputs),
                outputs=tuple(item and names.get(item, item) for item in step.outputs),
            )
            self.replace((step,), renamed)

    def place(self, storage: Storage, place: Place) -> None:
        """Makes a storage, with what is part of it, part of another."""
        storage.part_of = place
        parts = self._parts.setdefault(storage.place.storage, [])
        parts += [storage, *self._parts.pop(storage, ())]


def _only_number(values: npt.NDArray[Any] | None) -> float | None:
    """The one number that all elements are; None where there is none."""
    if values is None or values.size == 0:
        return None
    if not np.all(values == values.flat[0]):
        return None
    return float(values.flat[0])
