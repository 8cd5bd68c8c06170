"""Operators with a tensor that no storage binding holds, cut into parts that fit, one after the other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from dmlvk.kernels.common.plan import BlockCopy, Dispatch, Launch, Plan, Range, Source
from dmlvk.spec.enums import TensorFlags
from dmlvk.spec.schema import OperatorDesc, Slot
from dmlvk.spec.tensor import TensorDesc, element_bits

_STEP_BITS = 128
"""Kernels rely on ranges that start at a multiple of 16 bytes."""


class Part(NamedTuple):
    """A part of an operator.

    Attributes:
        desc: The operator on fewer elements. None of its inputs is OWNED_BY_DML.
        input_starts, output_starts: The bytes at which the tensor of each slot starts in the whole one.
    """

    desc: OperatorDesc
    input_starts: tuple[int, ...]
    output_starts: tuple[int, ...]


def parts(desc: OperatorDesc, most_bytes: Callable[[TensorDesc], int]) -> list[Part]:
    """The parts of a desc by the first of its ``cuts`` along which each tensor that is too large and cut gets smaller; none
    where there is no such cut. A part may have to be cut again.

    Args:
        desc: A desc with a tensor that is too large.
        most_bytes: The most bytes that a tensor may have, by its type.
    """
    for cut in desc.cuts():
        tensors = [(tensor, cut[name]) for name, tensor in _named(desc) if name in cut]
        size = tensors[0][0].sizes[tensors[0][1]]
        too_large = [pair for pair in tensors if pair[0].total_tensor_size_in_bytes > most_bytes(pair[0])]
        if size == 1 or not too_large or not all(_outermost(*pair) for pair in too_large):
            continue
        multiple = math.lcm(*(_STEP_BITS // math.gcd(_STEP_BITS, _step_bits(*pair)) for pair in tensors))
        fits = min(8 * most_bytes(tensor) // _step_bits(tensor, dimension) for tensor, dimension in too_large)
        each = max(fits // multiple, 1) * multiple
        if each < size:
            return list(_cut(desc, cut, size, each))
    return []


def joined(plans: list[tuple[Part, Plan]]) -> Plan:
    """The plan of an operator of those of its parts, which share temporary memory."""
    assert not any(plan.initialize or plan.persistent_bytes for _, plan in plans), "a part owns nothing"
    launches = tuple(_moved(part, launch) for part, plan in plans for launch in plan.dispatches)
    return Plan(launches, max(plan.temporary_bytes for _, plan in plans))


def _named(desc: OperatorDesc) -> Iterator[tuple[str, TensorDesc]]:
    for slot in desc.input_slots() + desc.output_slots():
        if slot.tensor is not None:
            yield slot.field.name, slot.tensor


def _step_bits(tensor: TensorDesc, dimension: int) -> int:
    return tensor.effective_strides[dimension] * element_bits(tensor.data_type)


def _outermost(tensor: TensorDesc, dimension: int) -> bool:
    """Whether fewer elements along a dimension make fewer bytes: no other one takes longer steps."""
    strides = tensor.effective_strides
    return strides[dimension] > 0 and all(
        step <= strides[dimension] for step, size in zip(strides, tensor.sizes, strict=True) if size > 1
    )


def _cut(desc: OperatorDesc, cut: Mapping[str, int], size: int, each: int) -> Iterator[Part]:
    for first in range(0, size, each):
        count = min(each, size - first)

        def part_of(slot: Slot, count: int = count) -> TensorDesc | None:
            whole = slot.tensor
            if whole is None or slot.field.name not in cut:
                return whole and dataclasses.replace(whole, flags=TensorFlags.NONE)
            sizes = list(whole.sizes)
            sizes[cut[slot.field.name]] = count
            strides = whole.effective_strides
            return TensorDesc(whole.data_type, tuple(sizes), strides)

        def start_of(slot: Slot, first: int = first) -> int:
            dimension = cut.get(slot.field.name)
            return 0 if slot.tensor is None or dimension is None else first * _step_bits(slot.tensor, dimension) // 8

        inputs, outputs = desc.input_slots(), desc.output_slots()
        changes: dict[str, Any] = {}
        for slot in inputs + outputs:
            found = part_of(slot)
            is_array = isinstance(getattr(desc, slot.field.name), tuple)
            changes[slot.field.name] = (*changes.get(slot.field.name, ()), found) if is_array else found
        yield Part(desc.replace(**changes), tuple(map(start_of, inputs)), tuple(map(start_of, outputs)))


def _moved(part: Part, launch: Launch) -> Launch:
    bindings = tuple(_range(part, binding) for binding in launch.bindings)
    if isinstance(launch, BlockCopy):
        return BlockCopy(bindings)
    return Dispatch(launch.kernel, bindings, launch.params, launch.grid)


def _range(part: Part, binding: Range) -> Range:
    """A part's range in the whole operator's resources."""
    if binding.source not in (Source.INPUT, Source.OUTPUT):
        return binding
    is_input = binding.source is Source.INPUT
    tensor = (part.desc.input_slots() if is_input else part.desc.output_slots())[binding.slot].tensor
    start = (part.input_starts if is_input else part.output_starts)[binding.slot]
    assert tensor is not None, "a launch reads and writes what is there"
    nbytes = binding.nbytes or tensor.total_tensor_size_in_bytes - binding.offset
    return binding._replace(offset=binding.offset + start, nbytes=nbytes)
