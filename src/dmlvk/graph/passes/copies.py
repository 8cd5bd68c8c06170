"""Steps that only copy: what they show of their input could be read there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence, Set
from typing import Final, NamedTuple

from dmlvk.graph.step import Place, Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.kernels.copy.lowering import is_copy
from dmlvk.kernels.lowering import newest
from dmlvk.spec import ops
from dmlvk.spec.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT, TensorDesc, element_bits

PLACE_ALIGNMENT: Final = MINIMUM_BUFFER_TENSOR_ALIGNMENT
"""Bytes on which a part of a storage starts: kernels rely on it for their widest accesses, as bindings do."""


def remove_identities(graph: StepGraph) -> None:
    """A copy with the layout of all that it copies goes: its readers read what it reads. Where the caller reads it, the step
    that computes what it copies writes there. So does a join of all parts of a tensor, as PyTorch writes y[1:] += x: it
    assigns what it has just assigned once more."""
    names: dict[Storage, Storage] = {}

    def final(storage: Storage) -> Storage:
        while storage in names:
            storage = names[storage]
        return storage

    for step in graph.steps:
        repeated = _taken_apart(graph, step, final) if isinstance(step.desc, ops.Join) else _repeated(step)
        output = step.outputs[0]
        if repeated is None or output is None or graph.writer(output) is not step:
            continue  # a later step may write over a part of the copy, and what is copied must stay
        source = final(repeated)
        if source.nbytes != output.nbytes or output.constant is not None or graph.outlives_a_run(source):
            continue
        if output not in graph.outputs and graph.alignment(output) <= PLACE_ALIGNMENT:
            names[output] = source
        elif source.constant is None and source not in graph.outputs and graph.writer(source) is not None:
            names[source] = output
        else:
            continue
        graph.replace((step,))
    if names:
        graph.rename({storage: final(storage) for storage in names})


def _repeated(step: Step) -> Storage | None:
    """The storage all of which a copy repeats, in its layout."""
    places = shown_places(step)
    if places is None or len(places) != 1 or places[0] is None or places[0].offset:
        return None
    return places[0].storage


def _taken_apart(graph: StepGraph, join: Step, final: Callable[[Storage], Storage]) -> Storage | None:
    """The storage whose parts a join brings together again, in its layout: parts of which copies may have been made, and
    which may have another name by now."""
    desc = join.desc
    assert isinstance(desc, ops.Join), "the caller has looked"
    whole = desc.tensor("output_tensor")
    sources, start = set(), 0
    for tensor, storage in zip(desc.input_tensors, join.inputs, strict=True):
        assert storage is not None, "a join has all its inputs"
        place, seen = _copied_window(graph, final(storage), tensor)
        if 8 * place.offset != start * element_bits(whole.data_type) or not same_steps(seen, whole, tensor.sizes):
            return None
        sources.add(final(place.storage))
        start += tensor.sizes[desc.axis] * whole.effective_strides[desc.axis]
    return sources.pop() if len(sources) == 1 else None


def _copied_window(graph: StepGraph, storage: Storage, tensor: TensorDesc) -> Window:
    """What a copy made a tensor of; the tensor where it lies, if no copy made just this."""
    writer = graph.writer(storage)
    windows = None if writer is None else windows_of(writer)
    if writer is not None and windows is not None and storage in writer.outputs:
        index = writer.outputs.index(storage)
        written = writer.desc.output_slots()[index].tensor
        if written is not None and written.sizes == tensor.sizes and same_steps(written, tensor, tensor.sizes):
            return windows[index]
    return Window(Place(storage, 0), tensor)


def share_ranges(graph: StepGraph) -> None:
    """Makes the output of a copy a part of its input, if it is bytes of that in their order. The other pieces of a split are
    copied each by itself."""
    for step in graph.steps:
        if step.runs_once:
            continue
        places = shown_places(step)
        if places is None:
            continue
        shared = {
            output: place
            for output, place in zip(step.outputs, places, strict=True)
            if output is not None
            and graph.writer(output) is step
            and place is not None
            and _may_be_part(graph, output, place)
        }
        if shared:
            graph.replace((step,), *slices_without(step, shared.keys()))
            for output, place in shared.items():
                graph.place(output, place)


def _may_be_part(graph: StepGraph, output: Storage, place: Place) -> bool:
    source, offset = place
    return (
        output not in graph.outputs
        and output.constant is None
        and offset % PLACE_ALIGNMENT == 0
        and offset + output.nbytes <= source.nbytes
        and not graph.outlives_a_run(source)
        and graph.alignment(output) <= PLACE_ALIGNMENT
    )


def slices_without(step: Step, shared: Set[Storage]) -> list[Step]:
    """The copies that are left of a split without some of its outputs, one a piece; none for other steps."""
    if len(shared) == len(step.outputs):
        return []
    desc = step.desc
    assert isinstance(desc, ops.Split), "nothing else has several outputs"
    x, axis = desc.tensor("input_tensor"), desc.axis
    slices = []
    for tensor, start, output in zip(desc.output_tensors, _starts(desc), step.outputs, strict=True):
        if output in shared:
            continue
        piece = ops.Slice1(
            input_tensor=x,
            output_tensor=tensor,
            input_window_offsets=tuple(start if index == axis else 0 for index in range(x.dimension_count)),
            input_window_sizes=tensor.sizes,
            input_window_strides=(1,) * x.dimension_count,
        )
        slices.append(Step(step.origin, piece, step.inputs, (output,)))
    return slices


class Window(NamedTuple):
    """The elements that a copy reads for one of its outputs.

    Attributes:
        place: The place of the first element.
        tensor: Its elements there, in the output's sizes.
    """

    place: Place
    tensor: TensorDesc


def windows_of(step: Step) -> list[Window] | None:
    """The windows that a step copies, one an output; None if it does more than copy, or starts within a byte."""
    source, x = (step.inputs[0], step.desc.input_slots()[0].tensor) if step.inputs else (None, None)
    walk = None if x is None else _walk_of_copy(step, x)
    if walk is None or source is None or x is None:
        return None
    windows = []
    for slot, start in zip(step.desc.output_slots(), walk[0], strict=True):
        assert slot.tensor is not None, "a copy writes all that it has"
        offset, rest = divmod(start * element_bits(x.data_type), 8)
        if rest:
            return None
        tensor = TensorDesc(slot.tensor.data_type, slot.tensor.sizes, walk[1])
        windows.append(Window(Place(source, offset), tensor))
    return windows


def shown_places(step: Step) -> list[Place | None] | None:
    """The place in its input of each output of a step; None for an output of another layout. None for a step that does more
    than copy."""
    windows = windows_of(step)
    if windows is None:
        return None
    outputs = (slot.tensor for slot in step.desc.output_slots())
    return [
        window.place if tensor is not None and same_steps(window.tensor, tensor, tensor.sizes) else None
        for window, tensor in zip(windows, outputs, strict=True)
    ]


def same_steps(one: TensorDesc, other: TensorDesc, sizes: Sequence[int]) -> bool:
    """Whether elements of so many in each dimension lie as far from each other in two tensors."""
    strides = zip(sizes, one.effective_strides, other.effective_strides, strict=True)
    return all(size == 1 or step == wanted for size, step, wanted in strides)


def _walk_of_copy(step: Step, x: TensorDesc) -> tuple[list[int], tuple[int, ...]] | None:
    """The element of its input with which each output of a step starts that only copies, and the strides of what follows."""
    steps = x.effective_strides
    desc = newest(step.desc)
    match desc:
        case ops.ElementWiseIdentity() | ops.ActivationIdentity() | ops.Cast():
            return ([0], steps) if is_copy(desc) else None
        case ops.Tile():
            return ([0], steps) if set(desc.repeats) == {1} else None
        case ops.Padding1():
            return None if any(desc.start_padding) or any(desc.end_padding) else ([0], steps)
        case ops.Slice1() if min(desc.input_window_strides) > 0:
            start = sum(offset * own for offset, own in zip(desc.input_window_offsets, steps, strict=True))
            return [start], tuple(own * wide for own, wide in zip(steps, desc.input_window_strides, strict=True))
        case ops.Split():
            return [start * steps[desc.axis] for start in _starts(desc)], steps
        case ops.Join() if len(desc.input_tensors) == 1:
            return [0], steps
        case _:
            return None


def _starts(desc: ops.Split) -> list[int]:
    """The first element of each piece along the axis."""
    lengths = (tensor.sizes[desc.axis] for tensor in desc.output_tensors)
    return list(itertools.accumulate(lengths, initial=0))[:-1]
