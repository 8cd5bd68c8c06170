"""Parts of a join are written where they are to lie, so that the join copies nothing."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from dmlvk.graph.passes.copies import PLACE_ALIGNMENT, same_steps
from dmlvk.graph.step import Place, Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec import ops
from dmlvk.spec.tensor import TensorDesc, element_bits


class _Run(NamedTuple):
    """Neighbouring pieces of a join.

    Attributes:
        first, end: The first of them, and the one after the last.
        whole: The storage that consists of just these pieces and may lie in the join's output; None where they are copied.
    """

    first: int
    end: int
    whole: Storage | None


def join_in_place(graph: StepGraph) -> None:
    """The inputs of a join that are ranges of its output become parts of it: then their writers write there.

    So do pieces that are all of a storage, in their order, as those of a split, or of another join, may be. What the graph
    is fed, what is constant and what lies elsewhere already is copied still.
    """
    _flatten(graph)
    joined: set[Storage] = set()
    for step in graph.steps:
        if not isinstance(step.desc, ops.Join) or step.runs_once:
            continue
        output, starts = step.outputs[0], _starts(step.desc)
        if output is None or output.constant is not None or starts is None:
            continue
        runs = _on_places(_runs(graph, step, starts, joined), starts)
        if all(run.whole is None for run in runs):
            continue
        parts = [run.whole or Storage(starts[run.end] - starts[run.first]) for run in runs]
        copies = [_copied(step, run, part) for run, part in zip(runs, parts, strict=True) if run.whole is None]
        graph.replace((step,), *copies)
        for run, part in zip(runs, parts, strict=True):
            graph.place(part, Place(output, starts[run.first]))
        joined.add(output)


def _flatten(graph: StepGraph) -> None:
    """Joins that only another one along the same dimension reads become part of that, each step in one go."""
    joins = [step for step in graph.steps if isinstance(step.desc, ops.Join)]
    inner = {storage: step for reader in joins for storage, step in _inner(graph, reader)}
    for step in joins:
        if step.outputs[0] in inner:
            continue
        pieces: list[tuple[TensorDesc, Storage | None]] = []
        absorbed = []
        waiting = _pieces(step)
        while waiting:
            tensor, storage = waiting.pop()
            if storage in inner:
                absorbed.append(inner[storage])
                waiting += _pieces(inner[storage])
            else:
                pieces.append((tensor, storage))
        if absorbed:
            tensors, inputs = zip(*pieces, strict=True)
            merged = dataclasses.replace(step, desc=step.desc.replace(input_tensors=tensors), inputs=inputs)
            graph.replace((*absorbed, step), merged)


def _pieces(step: Step) -> list[tuple[TensorDesc, Storage | None]]:
    """The inputs of a join, the last one first."""
    assert isinstance(step.desc, ops.Join), "the caller looks for one"
    return [*zip(step.desc.input_tensors, step.inputs, strict=True)][::-1]


def _inner(graph: StepGraph, reader: Step) -> Iterator[tuple[Storage, Step]]:
    """The joins that may become part of a join that reads them, each with its output."""
    for read, storage in _pieces(reader):
        step = graph.writer(storage)
        if storage is None or step is None or not isinstance(step.desc, ops.Join) or step.runs_once != reader.runs_once:
            continue
        written = step.desc.tensor("output_tensor")
        if (
            step.desc.axis == reader.desc.axis  # type: ignore[attr-defined]  # it is a join, too
            and written.sizes == read.sizes
            and same_steps(written, read, read.sizes)
            and graph.only_reader(storage) is reader
            and not any(map(graph.outlives_a_run, step.read()))
        ):
            yield storage, step


def _starts(desc: ops.Join) -> list[int] | None:
    """The byte of the output at which each piece starts, and the one behind the last, at the end of a word of 4; None where
    pieces are no ranges of it that follow each other."""
    output = desc.tensor("output_tensor")
    bits, step = element_bits(output.data_type), output.effective_strides[desc.axis]
    for tensor in desc.input_tensors:
        of_piece = math.prod(tensor.sizes)
        is_range = tensor.sizes[desc.axis] * step == of_piece and _is_dense(tensor.sizes, output.effective_strides)
        if not is_range or of_piece * bits % 8:
            return None
    lengths = (math.prod(tensor.sizes) * bits // 8 for tensor in desc.input_tensors)
    *starts, end = itertools.accumulate(lengths, initial=0)
    return [*starts, -(-end // 4) * 4]


def _is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie without gaps, in any order of the dimensions."""
    wanted = 1
    for step, size in sorted((step, size) for size, step in zip(sizes, strides, strict=True) if size > 1):
        if step != wanted:
            return False
        wanted *= size
    return True


def _runs(graph: StepGraph, step: Step, starts: Sequence[int], joined: Collection[Storage]) -> list[_Run]:
    """The pieces: those together that make up a storage, and the others one by one."""
    runs: list[_Run] = []
    moving: set[Storage] = set()
    first = 0
    while first < len(step.inputs):
        storage = step.inputs[first]
        assert storage is not None, "a join has all its inputs"
        whole = storage.place.storage
        end = _end_of(step, starts, first, whole)
        if end is None or whole in moving or not _may_move(graph, whole, joined):
            runs.append(_Run(first, first + 1, None))
        else:
            runs.append(_Run(first, end, whole))
            moving.add(whole)
        first = runs[-1].end
    return runs


def _end_of(step: Step, starts: Sequence[int], first: int, whole: Storage) -> int | None:
    """The piece behind those from the first on that make up a storage; None where they do not."""
    output = step.desc.output_slots()[0].tensor
    for index in range(first, len(step.inputs)):
        storage, tensor = step.inputs[index], step.desc.input_slots()[index].tensor
        assert storage is not None and tensor is not None and output is not None, "a join has all its tensors"
        if storage.place != (whole, starts[index] - starts[first]) or not same_steps(tensor, output, tensor.sizes):
            return None
        if starts[index + 1] - starts[first] == whole.nbytes:
            return index + 1
    return None


def _may_move(graph: StepGraph, whole: Storage, joined: Collection[Storage]) -> bool:
    """Whether a storage that is part of no other may become part of one."""
    writer = graph.writer(whole)
    is_computed = whole in joined or (writer is not None and not writer.runs_once)
    is_own = whole not in graph.outputs and whole.constant is None
    return is_computed and is_own and graph.alignment(whole) <= PLACE_ALIGNMENT


def _on_places(runs: Sequence[_Run], starts: Sequence[int]) -> list[_Run]:
    """The runs, those copied that another follows where no storage may start; what is copied side by side is one."""
    found: list[_Run] = []
    for run in runs:
        together = found and run.whole is None and found[-1].whole is None
        if together or starts[run.first] % PLACE_ALIGNMENT:
            found[-1] = _Run(found[-1].first, run.end, None)
        else:
            found.append(run)
    return found


def _copied(step: Step, run: _Run, part: Storage) -> Step:
    """The join of some of the pieces, into their part of the output."""
    desc, output = step.desc, step.desc.tensor("output_tensor")
    assert isinstance(desc, ops.Join), "the caller looks for one"
    tensors = desc.input_tensors[run.first : run.end]
    length = sum(tensor.sizes[desc.axis] for tensor in tensors)
    sizes = (*output.sizes[: desc.axis], length, *output.sizes[desc.axis + 1 :])
    joined = ops.Join(
        input_tensors=tensors, output_tensor=TensorDesc(output.data_type, sizes, output.strides), axis=desc.axis
    )
    return Step(step.origin, joined, step.inputs[run.first : run.end], (part,))
