"""Copies to another layout: who writes the tensor writes it so, or who reads it reads it as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dmlvk.graph.passes.copies import PLACE_ALIGNMENT, Window, same_steps, slices_without, windows_of
from dmlvk.graph.step import Place, Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import same_elements, seen_as
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides


def avoid_layout_copies(graph: StepGraph) -> None:
    """Products and pointwise operators whose result is only copied to another layout write it in that, as the heads of
    attention side by side; and they read where it is what would be copied for them, as one of several tensors whose heads
    lie in turns. Rows stay rows, so that their kernels stay the same."""
    for step in graph.steps:
        _write_through(graph, step)
    seen: set[Step] = set()
    # Again for new steps: a reader of a copy has become another, and may be a copy itself.
    while waiting := [step for step in graph.steps if step not in seen]:
        seen.update(waiting)
        for step in waiting:
            if step in graph:
                _read_through(graph, step)


def _write_through(graph: StepGraph, copy: Step) -> None:
    windows = windows_of(copy)
    writer = graph.writer(copy.inputs[0]) if windows else None
    if not windows or len(windows) > 1 or writer is None or not takes_strides(writer):
        return
    if graph.only_reader(writer.outputs[0]) is not copy or any(map(graph.outlives_a_run, writer.read())):
        return
    target, written = copy.desc.output_slots()[0].tensor, writer.desc.output_slots()[0].tensor
    assert target is not None and written is not None, "both write something"
    output = moved(written, windows[0].tensor, target)
    if output is not None:
        outputs = (copy.outputs[0], *writer.outputs[1:])
        graph.replace(
            (writer, copy),
            dataclasses.replace(writer, desc=writer.desc.replace(output_tensor=output), outputs=outputs),
        )


def _read_through(graph: StepGraph, copy: Step) -> None:
    windows = windows_of(copy)
    if windows is None or copy.runs_once:
        return
    avoided = set()
    for output, slot, window in zip(copy.outputs, copy.desc.output_slots(), windows, strict=True):
        assert output is not None and slot.tensor is not None, "a copy writes all that it has"
        if not same_steps(window.tensor, slot.tensor, slot.tensor.sizes) and _is_avoided(graph, output, slot.tensor, window):
            avoided.add(output)
    if avoided:
        graph.replace((copy,), *slices_without(copy, avoided))


def _is_avoided(graph: StepGraph, output: Storage, copied: TensorDesc, window: Window) -> bool:
    """Whether the readers of an output read the window instead, from now on."""
    source, offset = window.place
    nbytes = window.tensor.total_tensor_size_in_bytes
    is_there = offset % PLACE_ALIGNMENT == 0 and offset + nbytes <= source.nbytes and not graph.outlives_a_run(source)
    is_own = output not in graph.outputs and output.constant is None and graph.alignment(output) <= PLACE_ALIGNMENT
    readers = list(graph.readers(output))
    if not readers or not is_there or not is_own:
        return False
    part = Storage(nbytes)
    reading = [_reading(reader, output, part, copied, window.tensor) for reader in readers]
    if None in reading:
        return False
    for reader, other in zip(readers, reading, strict=True):
        assert other is not None, "just asked"
        graph.replace((reader,), other)
    graph.place(part, Place(source, offset))
    return True


def _reading(reader: Step, output: Storage, part: Storage, copied: TensorDesc, window: TensorDesc) -> Step | None:
    """A reader of a copy as one of its source; None where it cannot be one."""
    desc = seeing(reader, output, lambda tensor: moved(tensor, copied, window)) if takes_strides(reader) else None
    if desc is None:
        return None
    inputs = tuple(part if storage is output else storage for storage in reader.inputs)
    return dataclasses.replace(reader, desc=desc, inputs=inputs)


def seeing(reader: Step, read: Storage, other: Callable[[TensorDesc], TensorDesc | None]) -> OperatorDesc | None:
    """The desc of a step with other tensors in the place of those that it reads a storage as; None where there is none."""
    fields: dict[str, Any] = {}
    for slot, storage in zip(reader.desc.input_slots(), reader.inputs, strict=True):
        if storage is read and slot.tensor is not None:
            tensor = other(slot.tensor)
            if tensor is None:
                return None
            name = slot.field.name
            own = fields.get(name, getattr(reader.desc, name))
            is_array = isinstance(own, tuple)
            fields[name] = (*own[: slot.element], tensor, *own[slot.element + 1 :]) if is_array else tensor
    return reader.desc.replace(**fields)


def takes_strides(step: Step) -> bool:
    """Whether a step's tensors may lie otherwise, without a loss where neighbours stay neighbours."""
    traits = step.desc.traits
    return (traits.pointwise or traits.strided) and not step.runs_once


def moved(view: TensorDesc, before: TensorDesc, after: TensorDesc) -> TensorDesc | None:
    """As ``elsewhere``; None too where rows are no rows any more."""
    found = elsewhere(view, before, after)
    if found is None or _has_rows(view) > _has_rows(found) or _is_on_words(view) > _is_on_words(found):
        return None
    return found


def elsewhere(view: TensorDesc, before: TensorDesc, after: TensorDesc) -> TensorDesc | None:
    """A view of a tensor that has moved; None where strides cannot say it.

    Args:
        view: The view before the move.
        before: The tensor where it lay.
        after: The tensor where it lies now.
    """
    order = _outermost_first(before)
    if len(order) < sum(size > 1 for size in before.sizes):
        return None  # it repeats elements
    there, here = (TensorDesc(tensor.data_type, *_chosen(tensor, order)) for tensor in (before, after))
    kept = _outermost_first(view)
    once = TensorDesc(view.data_type, *_chosen(view, kept))
    seen = seen_as(here, once.sizes) if same_elements(there, once) else None
    if seen is None:
        return None
    new = seen.effective_strides
    strides = list(packed_strides(view.sizes))
    for axis, size in enumerate(view.sizes):
        if size > 1:
            strides[axis] = new[kept.index(axis)] if axis in kept else 0
    return TensorDesc(view.data_type, view.sizes, None if tuple(strides) == packed_strides(view.sizes) else tuple(strides))


def _outermost_first(tensor: TensorDesc) -> list[int]:
    """The dimensions in which elements differ, from the largest stride to the smallest."""
    steps = tensor.effective_strides
    return sorted(
        (axis for axis, size in enumerate(tensor.sizes) if size > 1 and steps[axis]), key=lambda axis: -steps[axis]
    )


def _chosen(tensor: TensorDesc, axes: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides of some dimensions."""
    if not axes:
        return (1,), (1,)
    return tuple(tensor.sizes[axis] for axis in axes), tuple(tensor.effective_strides[axis] for axis in axes)


def _has_rows(tensor: TensorDesc) -> bool:
    """Whether neighbours in the last dimension are neighbours."""
    return tensor.effective_strides[-1] == 1


def _is_on_words(tensor: TensorDesc) -> bool:
    """Whether all rows start on words of 16 bytes."""
    of_word = 8 * PLACE_ALIGNMENT // element_bits(tensor.data_type)
    return all(step % of_word == 0 for step in tensor.effective_strides[:-1])
