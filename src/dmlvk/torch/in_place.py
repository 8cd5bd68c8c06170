"""Inputs that a run changes: what is computed of them is written where they lie, or copied there at the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from dmlvk.engine.values import Value
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.spec import ops


def written_back(
    steps: Sequence[Step], changes: Sequence[tuple[Origin, Value, Value]], results: Collection[Storage]
) -> tuple[Step, ...]:
    """Steps that also leave in inputs what these hold after the run.

    Args:
        steps: The steps of a trace, after all passes. None writes to an input.
        changes: What asks for a change, the input, and the packed value that it holds afterwards.
        results: Storages that are read after the run.
    """
    made = list(steps)
    copies = []
    sources = [value.storage for _, _, value in changes]
    for origin, target, value in changes:
        is_read_again = value.storage in results or sources.count(value.storage) > 1
        if is_read_again or not _write_directly(made, target, value):
            desc = ops.ElementWiseIdentity(input_tensor=value.desc(), output_tensor=target.desc())
            desc.validate()
            copies.append(Step(origin, desc, (value.storage,), (target.storage,)))
    return (*made, *copies)


def _write_directly(steps: list[Step], target: Value, value: Value) -> bool:
    """Has the step that makes a value write it to its place, where no step needs what is there, and the bytes are nobody
    else's. Returns whether it does."""
    whole, place = value.storage, target.storage
    if whole.part_of is not None or whole.constant is not None or whole.nbytes != place.nbytes:
        return False
    touching = [step for step in steps for item in (*step.read(), *step.written()) if item.place.storage is whole]
    if any(
        item.part_of is not None and item.place.storage is whole
        for step in touching
        for item in (*step.read(), *step.written())
    ):
        return False
    makers = [index for index, step in enumerate(steps) if whole in step.outputs]
    if len(makers) != 1 or steps[makers[0]].runs_once:
        return False
    maker = steps[makers[0]]
    output = maker.outputs.index(whole)
    if any(item.place.storage is place for step in steps[makers[0] + 1 :] for item in step.read()) or not _may_overwrite(
        maker, output, place
    ):
        return False
    for index, step in enumerate(steps):
        if whole in step.outputs or whole in step.inputs:
            steps[index] = dataclasses.replace(
                step,
                inputs=tuple(place if item is whole else item for item in step.inputs),
                outputs=tuple(place if item is whole else item for item in step.outputs),
            )
    return True


def _may_overwrite(step: Step, output: int, place: Storage) -> bool:
    """Whether a step may write an output where it reads, if it does."""
    reads = [index for index, item in enumerate(step.inputs) if item is not None and item.place.storage is place]
    allowed, slots = step.desc.overwritable(output), step.desc.input_slots()
    layout = step.desc.output_slots()[output].tensor
    return all(index in allowed and slots[index].tensor == layout and step.inputs[index] is place for index in reads)
