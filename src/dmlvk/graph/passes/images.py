"""Images that convolutions of FLOAT16 make lie with their channels side by side, where their readers want them so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Final

from dmlvk.graph.passes.layout import elsewhere, seeing
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, packed_strides

_WORD: Final = 8
"""Channels that a cooperative convolution reads at a time."""
_DIMENSIONS: Final = (3, 4, 5)
"""Those of a batch of images: of lines, planes and volumes."""
_FEWEST_TERMS: Final = 128
"""The fewest products of an element of a convolution of an image whose channels fill no words, for which matrices are faster
whatever the layout: those of fewer have kernels that write channels apart."""


def lay_channels_last(graph: StepGraph) -> None:
    """Lays out the output of a FLOAT16 convolution that another reads, directly or through pointwise operators and pooling,
    with its channels innermost (NHWC, NWC, NDHWC): cooperative matrices want an input's channels side by side, and copy one
    that has them elsewhere.

    Only intermediate tensors of such steps change, all those together that pointwise operators combine; what anything else
    reads or writes stays as it is, but for rows of patches (``_lay_rows``). H200, the kernels of ResNet-50 of batch 32 in
    2.8 ms instead of 4.5, of batch 1 in 0.65 instead of 0.99; without cooperative matrices, which a graph does not know of,
    of batch 4 in 1.95 instead of 1.80.
    """
    images = _images(graph)
    groups = {storage: storage for storage in images}

    def home(storage: Storage) -> Storage:
        while groups[storage] is not storage:
            storage = groups[storage]
        return storage

    stuck: set[Storage] = set()
    wanted: set[Storage] = set()
    for step in graph.steps:
        together = list(_together(step))
        known = [home(storage) for storage in together if storage in images]
        for storage in known[1:]:
            groups[home(storage)] = home(known[0])
        if len(known) < len(together):
            stuck.update(known)
        if step.desc.prefers_channels_last() and step.inputs[0] in images:
            wanted.add(step.inputs[0])
    fixed, useful = ({home(storage) for storage in some} for some in (stuck, wanted))
    moved = {storage for storage in images if home(storage) in useful - fixed}
    for step in graph.steps:
        desc = _channels_last(step, moved)
        if desc is not step.desc:
            graph.replace((step,), dataclasses.replace(step, desc=desc))
    for step in graph.steps:
        _lay_rows(graph, step)


def _lay_rows(graph: StepGraph, step: Step) -> None:
    """Lays out so, too, what a FLOAT16 convolution makes of an image for readers that all see the channels of a pixel
    as a row, as a transformer sees its patches. The image's channels fill no words, as those of colours, or lie side by
    side: others would be copied instead of what is made of them."""
    output, desc = step.outputs[0], step.desc
    if type(desc) is not ops.Convolution or not desc.prefers_channels_last() or step.runs_once:
        return
    source, window, image = (desc.tensor(name) for name in ("input_tensor", "filter_tensor", "output_tensor"))
    if output is None or output in graph.outputs or not _is_image(output, image):
        return
    if source.sizes[1] % _WORD == 0:
        pays = source.effective_strides == _turned(source).effective_strides
    else:
        pays = math.prod(window.sizes[1:]) >= _FEWEST_TERMS
    if not pays:
        return

    def rows(tensor: TensorDesc) -> TensorDesc | None:
        found = elsewhere(tensor, image, _turned(image))
        return found if found is not None and found.effective_strides[-1] == 1 != tensor.effective_strides[-1] else None

    readers = [*graph.readers(output)]
    descs = [seeing(reader, output, rows) if output in reader.inputs else None for reader in readers]
    if None in descs:
        return
    for reader, other in zip(readers, descs, strict=True):
        assert other is not None, "just asked"
        graph.replace((reader,), dataclasses.replace(reader, desc=other))
    graph.replace((step,), dataclasses.replace(step, desc=desc.replace(output_tensor=_turned(image))))


def _turned(image: TensorDesc) -> TensorDesc:
    """An image with its channels innermost."""
    batch, channels, *space = image.sizes
    outer, *inner = packed_strides((batch, *space, channels))
    return dataclasses.replace(image, strides=(outer, inner[-1], *inner[:-1]))


def _operands(step: Step) -> Iterator[tuple[str, Storage, TensorDesc]]:
    """The field, the storage and the tensor of each operand and result."""
    slots = zip((*step.desc.input_slots(), *step.desc.output_slots()), (*step.inputs, *step.outputs), strict=True)
    for slot, storage in slots:
        if storage is not None and slot.tensor is not None:
            yield slot.field.name, storage, slot.tensor


def _images(graph: StepGraph) -> set[Storage]:
    """The storages that steps compute which take any layout, for such steps only, and that all see as the same packed image
    of FLOAT16 with whole words of channels."""
    seen: dict[Storage, tuple[int, ...]] = {}
    others: set[Storage] = set()
    for step in graph.steps:
        traits = step.desc.traits
        known = (traits.pointwise or bool(traits.alike)) and not step.runs_once
        for _, storage, tensor in _operands(step):
            if not known or not _is_image(storage, tensor) or seen.setdefault(storage, tensor.sizes) != tensor.sizes:
                others.add(storage)
    return {
        storage
        for storage in seen
        if storage not in others and storage not in graph.outputs and graph.writer(storage) is not None
    }


def _is_image(storage: Storage, tensor: TensorDesc) -> bool:
    return (
        tensor.data_type == TensorDataType.FLOAT16
        and tensor.dimension_count in _DIMENSIONS
        and tensor.sizes[1] % _WORD == 0
        and math.prod(tensor.sizes[2:]) > 1
        and tensor.effective_strides == packed_strides(tensor.sizes)
        and storage.constant is None
        and storage.part_of is None
    )


def _together(step: Step) -> Iterator[Storage]:
    """The operands and results of a step for which a layout matters: not what is broadcast, nor what has one pixel."""
    for field, storage, tensor in _operands(step):
        broadcast = any(size > 1 and not own for size, own in zip(tensor.sizes, tensor.effective_strides, strict=True))
        follows = step.desc.traits.pointwise or field in step.desc.traits.alike
        if follows and not broadcast and math.prod(tensor.sizes[2:]) > 1:
            yield storage


def _channels_last(step: Step, moved: set[Storage]) -> OperatorDesc:
    """The step's desc with the tensors that move."""
    changes = {field: _turned(tensor) for field, storage, tensor in _operands(step) if storage in moved}
    return step.desc.replace(**changes) if changes else step.desc
