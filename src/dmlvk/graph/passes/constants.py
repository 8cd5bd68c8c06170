"""Steps whose results are the same in every run are computed before the first."""

from __future__ import annotations

import dataclasses
from typing import Final

from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec.size import is_symbolic

_KEPT_FILLS: Final = 1 << 20
"""So many bytes a step may fill that reads nothing, to be worth memory for as long as the graph lives: the places and
numbers that others compute with. Larger ones are mostly zeros to which something is added, and cost less than what adds."""


def run_constants_once(graph: StepGraph) -> None:
    """A step that reads only constants, inputs that are OWNED_BY_DML and what such steps compute runs once, on the device;
    so does one that reads nothing and fills little.

    Not one whose result the caller reads, who wants it written in every run.
    """
    known: set[Storage] = set()
    for step in graph.steps:
        if _is_constant(graph, step, known):
            graph.replace((step,), dataclasses.replace(step, runs_once=True))
            known.update(step.written())


def _is_constant(graph: StepGraph, step: Step, known: set[Storage]) -> bool:
    if any(storage in graph.outputs or storage.constant is not None for storage in step.written()):
        return False
    if any(graph.writer(storage) is not step for storage in step.written()):  # a later one writes a part anew in every run
        return False
    if is_symbolic(step.desc):  # other sizes make it another step
        return False
    read = [
        storage in known
        or (storage.constant is not None and not graph.outlives_a_run(storage))
        or (slot.tensor is not None and slot.tensor.owned_by_dml)
        for storage, slot in zip(step.inputs, step.desc.input_slots(), strict=True)
        if storage is not None
    ]
    return all(read) and (bool(read) or sum(storage.nbytes for storage in step.written()) <= _KEPT_FILLS)
