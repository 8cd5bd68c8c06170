"""Control flow that the host runs around the device's graphs: branches on computed values, and loops.

A body's values stay on the device from round to round. The host reads a condition where it is computed, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dmlvk.engine.run import Scope
from dmlvk.engine.tensors import Item, Tensor
from dmlvk.onnx.control import handed_number, stack_of_nothing
from dmlvk.onnx.model import Node
from dmlvk.onnx.model_run import ModelRun
from dmlvk.onnx.node_facts import invalid_axis, invalid_node
from dmlvk.onnx.program import DrivenNode, GraphProgram, drives

_REASON: Final = "control flow, run by the host around the device's graphs"


@drives("If", 1, 11, 13, 16, 19, 21, 23, 24, 25, reason=_REASON, host_inputs=(0,), always=False)
def branch(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """The branch that is taken."""
    taken = run.number(driven.node, 0, operands[0])
    return run.program(driven.bodies["then_branch" if taken else "else_branch"], {}, scope)


@drives("Loop", 1, 11, 13, 16, 19, 21, 23, 24, 25, reason=_REASON, host_inputs=(0, 1))
def loop(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """While the condition is true, as often as the first operand says; outputs beside the states are stacked."""
    node, body = driven.node, driven.bodies["body"]
    most, goes_on = (operands[index] if index < len(operands) else None for index in (0, 1))
    rounds = None if most is None else run.number(node, 0, most)
    more = goes_on is None or bool(run.number(node, 1, goes_on))
    states = list(operands[2:])
    stacks: list[list[Item]] = [[] for _ in body.outputs[1 + len(states) :]]
    done = 0
    while more and (rounds is None or done < rounds):
        run.count_round(node)
        numbers = zip(body.inputs, (np.int64(done), np.True_), strict=False)
        handed = [run.carrier.tensor(handed_number(body.types, name, number)) for name, number in numbers]
        results = run.program(body, dict(zip(body.inputs, (*handed, *states), strict=True)), scope)
        more = bool(run.number(node, 1, results[0]))
        states = results[1 : 1 + len(states)]
        for stack, item in zip(stacks, results[1 + len(states) :], strict=True):
            stack.append(item)
        done += 1
    names = body.outputs[1 + len(states) :]
    return [*states, *(_stacked(run, node, body, name, stack) for name, stack in zip(names, stacks, strict=True))]


@drives("Scan", 9, 11, 16, 19, 21, 23, 24, 25, reason=_REASON, always=False)
def scan(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """One that has too many elements for a plan, or whose body needs the host."""
    node, body = driven.node, driven.bodies["body"]
    items = [run.required(node, index, item) for index, item in enumerate(operands)]
    count = node.attributes.get("num_scan_inputs", 0)
    states = len(items) - count
    if count < 1 or not 0 <= states <= len(body.outputs):
        raise invalid_node(node, f"num_scan_inputs must be from 1 to the {len(items)} inputs, and states outputs", count)
    made = len(body.outputs) - states
    axes = _list(node, "scan_input_axes", count)
    pieces = [
        _elements(run, node, item, axis, backwards)
        for item, axis, backwards in zip(items[states:], axes, _list(node, "scan_input_directions", count), strict=True)
    ]
    lasts, stacks = _scanned(run, driven, items[:states], pieces, scope)
    outputs = []
    axes, directions = _list(node, "scan_output_axes", made), _list(node, "scan_output_directions", made)
    for name, stack, axis, backwards in zip(body.outputs[states:], stacks, axes, directions, strict=True):
        outputs.append(_stacked(run, node, body, name, stack[::-1] if backwards else stack, axis))
    return [*lasts, *outputs]


@drives("Scan", 8, reason=_REASON, always=False)
def batched_scan(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """Each sequence of a batch, as far as it goes; what is beyond is 0."""
    node, body = driven.node, driven.bodies["body"]
    items = [run.required(node, index + 1, item) for index, item in enumerate(operands[1:])]
    count = node.attributes.get("num_scan_inputs", 0)
    states = len(items) - count
    directions = _list(node, "directions", count)
    made = len(body.outputs) - states
    if count < 1 or states < 0 or made < 0 or any(len(item.shape) < 1 + (at >= states) for at, item in enumerate(items)):
        rule = "num_scan_inputs must be from 1 to the number of inputs, and inputs must have a batch and elements"
        raise invalid_node(node, rule, (count, [item.shape for item in items]))
    batch, longest = items[-1].shape[:2]
    if any(item.shape[0] != batch for item in items) or any(item.shape[1] != longest for item in items[states:]):
        rule = "all inputs must have the same batch, and those that are scanned the same number of elements"
        raise invalid_node(node, rule, [item.shape for item in items])
    lengths = [longest] * batch
    if operands[0] is not None:
        lengths = run.required(node, 0, operands[0]).on_host().reshape(-1).tolist()
    if len(lengths) != batch or not all(0 < length <= longest for length in lengths):
        rule = f"sequence_lens must have a length from 1 to {longest} for each of {batch} sequences"
        raise invalid_node(node, rule, lengths)
    rows = [run.carrier.split(item, 0, [1] * batch, keep=False) for item in items]
    lasts: list[list[Tensor]] = [[] for _ in range(states)]
    stacks: list[list[Tensor]] = [[] for _ in range(made)]
    for number, length in enumerate(lengths):
        own = [row[number] for row in rows]
        pieces = []
        for item, backwards in zip(own[states:], directions, strict=True):
            elements = _elements(run, node, item, 0, False)[:length]
            pieces.append(elements[::-1] if backwards else elements)
        ends, results = _scanned(run, driven, own[:states], pieces, scope)
        for last, end in zip(lasts, ends, strict=True):
            last.append(run.required(node, 0, end))
        for stack, result in zip(stacks, results, strict=True):
            found = [run.required(node, 0, item) for item in result]
            zero = run.carrier.tensor(np.zeros(found[0].shape, found[0].dtype))
            stack.append(_alike(run, node, [*found, *[zero] * (longest - length)], 0))
    return [_alike(run, node, tensors, 0) for tensors in (*lasts, *stacks)]


@drives("SequenceMap", 17, reason=_REASON)
def sequence_map(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """The body for each tensor of a sequence, and for those at the same place of the others."""
    node, body = driven.node, driven.bodies["body"]
    lengths = {len(item) for item in operands if isinstance(item, tuple)}
    if not isinstance(operands[0], tuple) or len(lengths) != 1:
        rule = "the first input must be a sequence, and all sequences must have as many tensors"
        raise invalid_node(node, rule, sorted(lengths))
    made: list[list[Tensor]] = [[] for _ in body.outputs]
    for index in range(len(operands[0])):
        run.count_round(node)
        handed = [item[index] if isinstance(item, tuple) else item for item in operands]
        results = run.program(body, dict(zip(body.inputs, handed, strict=True)), scope)
        for items, result in zip(made, results, strict=True):
            items.append(run.required(node, 0, result))
    return [tuple(items) for items in made]


def _scanned(
    run: ModelRun, driven: DrivenNode, states: Sequence[Item], pieces: Sequence[Sequence[Tensor]], scope: Scope
) -> tuple[list[Item], list[list[Item]]]:
    """The last states of a scan, and each round's other outputs."""
    body = driven.bodies["body"]
    if len({len(piece) for piece in pieces}) != 1:
        rule = "all scanned inputs must have the same number of elements"
        raise invalid_node(driven.node, rule, [len(piece) for piece in pieces])
    lasts = list(states)
    stacks: list[list[Item]] = [[] for _ in body.outputs[len(states) :]]
    for elements in zip(*pieces, strict=True):
        run.count_round(driven.node)
        results = run.program(body, dict(zip(body.inputs, (*lasts, *elements), strict=True)), scope)
        lasts = results[: len(states)]
        for stack, item in zip(stacks, results[len(states) :], strict=True):
            stack.append(item)
    return lasts, stacks


def _elements(run: ModelRun, node: Node, tensor: Tensor, axis: int, backwards: int) -> list[Tensor]:
    if not -len(tensor.shape) <= axis < len(tensor.shape):
        rank = len(tensor.shape)
        raise invalid_axis(node, axis, rank)
    axis %= len(tensor.shape)
    run.limits.check_pieces(node, tensor.shape[axis])
    elements = run.carrier.split(tensor, axis, [1] * tensor.shape[axis], keep=False)
    return elements[::-1] if backwards else elements


def _list(node: Node, attribute: str, count: int) -> list[int]:
    numbers = list(node.attributes.get(attribute, [0] * count))
    if len(numbers) != count:
        raise invalid_node(node, f"{attribute} must have one entry for each tensor", len(numbers), count)
    return numbers


def _stacked(run: ModelRun, node: Node, body: GraphProgram, name: str, items: Sequence[Item], axis: int = 0) -> Tensor:
    """An output of all rounds as one tensor; without rounds an empty one of the sizes that the file has for it."""
    if items:
        return _alike(run, node, [run.required(node, index, item) for index, item in enumerate(items)], axis)
    return run.carrier.tensor(stack_of_nothing(node, body.types, name, axis))


def _alike(run: ModelRun, node: Node, tensors: Sequence[Tensor], axis: int) -> Tensor:
    first = tensors[0]
    if any((item.shape, item.dtype) != (first.shape, first.dtype) for item in tensors):
        rule = "an output of the body must have the same sizes and type in every round"
        raise invalid_node(node, rule, list(dict.fromkeys((item.dtype, item.shape) for item in tensors)))
    rank = len(first.shape) + 1
    if not -rank <= axis < rank:
        raise invalid_axis(node, axis, rank)
    return run.carrier.stack(tensors, axis % rank)
