"""The same chain of pointwise operators of many tensors becomes a few launches: an optimiser's step of all parameters."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dmlvk.graph.passes.chain import as_chain
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec.ops.chain import MultiTensorChain, PointwiseChain, together
from dmlvk.spec.schema import FLOATS, OperatorDesc
from dmlvk.spec.tensor import TensorDesc, packed_strides

_FEWEST: Final = 4
"""So many chains are worth a launch of their own: launches that wait for nothing cost little, and fewer are no list."""


def join_tensors(graph: StepGraph) -> None:
    """Chains of the same operations become ``MultiTensorChain``s, where as many steps lie before each of them, so that none
    needs another's result.

    Their tensors lie packed, or are one element for a whole tensor. Steps that lie between them move behind or before them.
    """
    steps = graph.steps
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, step in enumerate(steps):
        if not step.runs_once and len(step.outputs) == 1:
            alike.setdefault(_first_glance(step.desc), []).append(place)
    if not any(len(places) >= _FEWEST for places in alike.values()):
        return
    before = _before(steps)
    depths: list[int] = []
    for own in before:
        depths.append(max((depths[place] for place in own), default=-1) + 1)
    groups: dict[tuple[int, ...], Step] = {}
    for places in alike.values():
        by_depth: dict[int, list[int]] = {}
        for place in places:
            by_depth.setdefault(depths[place], []).append(place)
        for level in by_depth.values():
            if len(level) >= _FEWEST:
                groups |= _groups(graph, steps, level)
    if groups:
        graph.reorder(_in_order(steps, before, groups))


def _first_glance(desc: OperatorDesc) -> tuple[Any, ...]:
    """What is equal for all chains of a kind, and for few others."""
    return type(desc), desc.operator_descs if isinstance(desc, PointwiseChain) else ()


def _before(steps: Sequence[Step]) -> list[set[int]]:
    """The places of the steps that must come before each: those that write what it reads or writes, and those that read what
    it writes over."""
    found: list[set[int]] = []
    writers: dict[Storage, set[int]] = {}
    readers: dict[Storage, set[int]] = {}
    for place, step in enumerate(steps):
        read = {storage.place.storage for storage in step.read()}
        written = {storage.place.storage for storage in step.written()}
        own = set().union(*(writers.get(storage, ()) for storage in read | written))
        own.update(*(readers.get(storage, ()) for storage in written))
        for storage in read:
            readers.setdefault(storage, set()).add(place)
        for storage in written:
            writers.setdefault(storage, set()).add(place)
        found.append(own - {place})
    return found


def _groups(graph: StepGraph, steps: Sequence[Step], places: Sequence[int]) -> Mapping[tuple[int, ...], Step]:
    """The joined steps of some that do not need each other, each by the places of those that it is for."""
    kinds: dict[tuple[Any, ...], list[tuple[int, Step]]] = {}
    for place in places:
        chain = as_chain(graph, steps[place])
        kind = None if chain is None else _kind(_chain_of(chain))
        if chain is not None and kind is not None:
            kinds.setdefault(kind, []).append((place, chain))
    found: dict[tuple[int, ...], Step] = {}
    for members in kinds.values():
        if len(members) < _FEWEST:
            continue
        most = together(len(members[0][1].inputs))
        for start in range(0, len(members), most):
            group = members[start : start + most]
            if len(group) > 1:
                found[tuple(place for place, _ in group)] = _joined([chain for _, chain in group])
    return found


def _chain_of(step: Step) -> PointwiseChain:
    assert isinstance(step.desc, PointwiseChain), "as_chain makes these"
    return step.desc


def _kind(desc: PointwiseChain) -> tuple[Any, ...] | None:
    """What chains of one launch have in common; None where tensors lie otherwise than packed, or one element for all, and of
    chains that make bits."""
    output = desc.tensor("output_tensor")
    if output.data_type not in FLOATS:
        return None
    repeated = [_is_one_element(tensor) and output.element_count > 1 for tensor in desc.input_tensors]
    tensors = [output, *(tensor for tensor, is_one in zip(desc.input_tensors, repeated, strict=True) if not is_one)]
    if not all(tensor.effective_strides == packed_strides(tensor.sizes) for tensor in tensors):
        return None
    types = tuple(tensor.data_type for tensor in (output, *desc.input_tensors))
    return desc.operator_descs, desc.operands, desc.numbers, types, tuple(repeated)


def _is_one_element(tensor: TensorDesc) -> bool:
    return all(size == 1 or not step for size, step in zip(tensor.sizes, tensor.effective_strides, strict=True))


def _joined(chains: Sequence[Step]) -> Step:
    first = _chain_of(chains[0])
    desc = MultiTensorChain(
        input_tensors=tuple(slot.tensor for chain in chains for slot in chain.desc.input_slots() if slot.tensor is not None),
        output_tensors=tuple(
            slot.tensor for chain in chains for slot in chain.desc.output_slots() if slot.tensor is not None
        ),
        operator_descs=first.operator_descs,
        operands=first.operands,
        numbers=first.numbers,
    )
    inputs = tuple(storage for chain in chains for storage in chain.inputs)
    return dataclasses.replace(
        chains[0], desc=desc, inputs=inputs, outputs=tuple(storage for chain in chains for storage in chain.outputs)
    )


def _in_order(
    steps: Sequence[Step], before: Sequence[set[int]], groups: Mapping[tuple[int, ...], Step]
) -> Iterator[tuple[list[Step], Step]]:
    """All steps in an order in which each comes after what it needs, else in the one in which they are: those that go, and
    what stands for them.

    Steps of one group have as many before them, so that of two groups at most one needs the other.
    """
    lead = {place: places[0] for places in groups for place in places}
    members = {places[0]: places for places in groups}
    needs: dict[int, set[int]] = {}
    needed_by: dict[int, set[int]] = {}
    for place, own in enumerate(before):
        unit = lead.get(place, place)
        needs.setdefault(unit, set()).update(lead.get(other, other) for other in own)
    for unit, own in needs.items():
        for other in own:
            needed_by.setdefault(other, set()).add(unit)
    ready = [unit for unit, own in needs.items() if not own]
    heapq.heapify(ready)
    while ready:
        unit = heapq.heappop(ready)
        places = members.get(unit, (unit,))
        yield [steps[place] for place in places], groups.get(places, steps[unit])
        for other in needed_by.get(unit, ()):
            needs[other].discard(unit)
            if not needs[other]:
                heapq.heappush(ready, other)
