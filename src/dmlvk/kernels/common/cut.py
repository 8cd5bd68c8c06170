"""Operators with a tensor that no storage binding holds, cut into parts that fit, one after the other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.parts import placed
from dmlvk.kernels.common.plan import Launch, Plan, Range, Resource, Source, aligned
from dmlvk.kernels.common.shapes import check_launches, part_starts
from dmlvk.spec.enums import TensorFlags
from dmlvk.spec.schema import Cut, OperatorDesc, Slot
from dmlvk.spec.tensor import TensorDesc, element_bits

_STEP_BITS = 128
"""Kernels rely on ranges that start at a multiple of 16 bytes."""


class Slab(NamedTuple):
    """The elements of a tensor that a part of an operator reads or writes, where the part cannot bind them as they lie: they
    are copied into packed memory before, or out of it afterwards.

    Attributes:
        tensor: The elements: their sizes, and the strides of the whole tensor.
        whole: The range of the whole tensor.
        start: The element of the whole tensor with which the slab begins.
        packed: Where the copy lies.
    """

    tensor: TensorDesc
    whole: Range
    start: int
    packed: Range


class Part(NamedTuple):
    """A part of an operator.

    Attributes:
        desc: An operator on fewer elements. None of its inputs is OWNED_BY_DML.
        inputs, outputs: The range of the tensor of each slot; None of one that is absent.
        before, after: What is copied before and after it.
        once: What is copied when the operator is initialised.
        scratch: The bytes of temporary memory that the copies take: those of the part come after them.
    """

    desc: OperatorDesc
    inputs: tuple[Range | None, ...]
    outputs: tuple[Range | None, ...]
    before: tuple[Slab, ...]
    after: tuple[Slab, ...]
    once: tuple[Slab, ...]
    scratch: int


class _Operand(NamedTuple):
    """A tensor that is cut, of the slot with this number: inputs first, then outputs."""

    number: int
    field: str
    tensor: TensorDesc
    dimension: int

    @property
    def step_bits(self) -> int:
        return self.tensor.effective_strides[self.dimension] * element_bits(self.tensor.data_type)

    @property
    def multiple(self) -> int:
        """The number of steps after which a range may start."""
        return _STEP_BITS // math.gcd(_STEP_BITS, self.step_bits)

    @property
    def is_outermost(self) -> bool:
        """Whether fewer elements along the dimension make fewer bytes: no other one takes longer steps."""
        strides = self.tensor.effective_strides
        own = strides[self.dimension]
        return own > 0 and all(step <= own for step, size in zip(strides, self.tensor.sizes, strict=True) if size > 1)

    def slab(self, count: int) -> TensorDesc:
        """So many elements along the dimension, where they lie."""
        sizes = list(self.tensor.sizes)
        sizes[self.dimension] = count
        return TensorDesc(self.tensor.data_type, tuple(sizes), self.tensor.effective_strides)


class _Choice(NamedTuple):
    """A cut that makes the tensors smaller that are too large.

    Attributes:
        cut: The cut.
        each: The elements of a part along it.
        size: All elements along it.
        packed: The numbers of the slots whose tensors are copied for each part.
    """

    cut: Cut
    each: int
    size: int
    packed: frozenset[int]


def parts(
    desc: OperatorDesc, most_bytes: Callable[[TensorDesc], int], free: Collection[str], caps: Capabilities
) -> list[Part]:
    """The parts of a desc by the first of its ``cuts`` along which each tensor that is too large and cut gets smaller. Where
    there is no such cut, by the first with parts that are copied into packed memory. None where there is neither. A part may
    have to be cut again.

    Args:
        desc: A desc with a tensor that is too large.
        most_bytes: The most bytes that a tensor may have, by its type.
        free: The fields whose tensors may have any size.
        caps: The device.

    Raises:
        UnsupportedError: there are more parts than the device may have launches.
    """
    choices = [found for cut in desc.cuts() if (found := _choice(desc, cut, most_bytes, free)) is not None]
    choices.sort(key=lambda choice: bool(choice.packed))
    if not choices:
        return []
    check_launches(-(-choices[0].size // choices[0].each), caps, desc.dml_name)
    return _cut(desc, choices[0])


def _choice(desc: OperatorDesc, cut: Cut, most_bytes: Callable[[TensorDesc], int], free: Collection[str]) -> _Choice | None:
    operands = _operands(desc, cut)
    size = operands[0].tensor.sizes[operands[0].dimension]
    too_large = {
        own.number
        for own in operands
        if own.field not in free and own.tensor.total_tensor_size_in_bytes > most_bytes(own.tensor)
    }
    if size == 1 or not too_large:
        return None
    packed = {own.number for own in operands if own.number in too_large and not own.is_outermost}
    multiple = math.lcm(*(own.multiple for own in operands if own.number not in packed))
    if multiple >= size:
        packed |= {own.number for own in operands if own.multiple > 1}
        multiple = 1
    # No copy knows half bytes.
    if packed and not (cut.packs and all(element_bits(own.tensor.data_type) >= 8 for own in operands)):
        return None
    fits = min(_fitting(own, own.number in packed, most_bytes) for own in operands if own.number in too_large)
    each = min(max(fits // multiple, 1) * multiple, size)
    # Copies of all elements may fit where their strides leave gaps.
    return _Choice(cut, each, size, frozenset(packed)) if each < size or packed & too_large else None


def _operands(desc: OperatorDesc, cut: Cut) -> list[_Operand]:
    slots = desc.input_slots() + desc.output_slots()
    return [
        _Operand(number, slot.field.name, slot.tensor, cut.dimensions[slot.field.name])
        for number, slot in enumerate(slots)
        if slot.tensor is not None and slot.field.name in cut.dimensions
    ]


def _fitting(own: _Operand, packed: bool, most_bytes: Callable[[TensorDesc], int]) -> int:
    """The steps along a dimension that fit."""
    bits = element_bits(own.tensor.data_type) * (own.tensor.element_count // own.tensor.sizes[own.dimension])
    return 8 * most_bytes(own.tensor) // (bits if packed else own.step_bits)


def _cut(desc: OperatorDesc, choice: _Choice) -> list[Part]:
    persistent = Resource(Source.PERSISTENT)
    firsts = part_starts(choice.size, choice.each)
    return [_part(desc, choice, first, min(choice.each, choice.size - first), persistent) for first in firsts]


def _part(desc: OperatorDesc, choice: _Choice, first: int, count: int, persistent: Resource) -> Part:
    operands = {own.number: own for own in _operands(desc, choice.cut)}
    temporary = Resource(Source.TEMPORARY)
    before, after, once = list[Slab](), list[Slab](), list[Slab]()
    changes: dict[str, Any] = {}

    def bound(number: int, slot: Slot, whole: Range) -> Range | None:
        tensor, place = slot.tensor, whole
        if tensor is not None and number in operands:
            own = operands[number]
            tensor = own.slab(count)
            if number in choice.packed:
                is_kept = own.tensor.owned_by_dml
                packed = TensorDesc(tensor.data_type, tensor.sizes)
                place = (persistent if is_kept else temporary).take(packed.total_tensor_size_in_bytes)
                slabs = after if whole.source is Source.OUTPUT else once if is_kept else before
                all_of_it = whole._replace(nbytes=own.tensor.total_tensor_size_in_bytes)
                slabs.append(Slab(tensor, all_of_it, first * tensor.effective_strides[own.dimension], place))
                tensor = packed
            else:
                place = whole._replace(offset=first * own.step_bits // 8)
        if tensor is not None:
            tensor = dataclasses.replace(tensor, flags=TensorFlags.NONE)
            place = place._replace(nbytes=tensor.total_tensor_size_in_bytes)
        is_array = isinstance(getattr(desc, slot.field.name), tuple)
        changes[slot.field.name] = (*changes.get(slot.field.name, ()), tensor) if is_array else tensor
        return None if tensor is None else place

    slots = desc.input_slots()
    inputs = tuple(bound(index, slot, Range(Source.INPUT, index)) for index, slot in enumerate(slots))
    outputs = tuple(
        bound(len(slots) + index, slot, Range(Source.OUTPUT, index)) for index, slot in enumerate(desc.output_slots())
    )
    changes |= {} if choice.cut.changes is None else choice.cut.changes(first, count)
    part = desc.replace(**changes)
    return Part(part, inputs, outputs, tuple(before), tuple(after), tuple(once), aligned(temporary.end))


def joined(
    cut: list[Part],
    lower: Callable[[OperatorDesc], Plan],
    copied: Callable[[Slab], tuple[Launch, ...]],
    caps: Capabilities,
) -> Plan:
    """The plan of an operator of those of its parts, which share temporary memory.

    Args:
        cut: The parts; all but the last are equally large.
        lower: The plan of a part's desc.
        copied: The launches that copy a slab, into packed memory if it is of an input.
        caps: The device.

    Raises:
        UnsupportedError: there are more launches than the device may have.
    """
    launches, initialize = list[Launch](), list[Launch]()
    temporary = persistent = 0
    for part in cut:
        plan = lower(part.desc)
        launches += _copies(part.before, copied)
        launches += placed(plan, inputs=part.inputs, outputs=part.outputs, temporary=part.scratch)
        launches += _copies(part.after, copied)
        if part is cut[0]:
            check_launches(len(launches) * (len(cut) - 1), caps, part.desc.dml_name)
        initialize += _copies(part.once, copied)
        temporary = max(temporary, part.scratch + plan.temporary_bytes)
        persistent = max([persistent, *(slab.packed.offset + slab.packed.nbytes for slab in part.once)])
    return Plan(tuple(launches), temporary, persistent, tuple(initialize))


def _copies(slabs: tuple[Slab, ...], copied: Callable[[Slab], tuple[Launch, ...]]) -> Iterator[Launch]:
    for slab in slabs:
        yield from copied(slab)
