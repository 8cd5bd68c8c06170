"""Sequences and optional values: the host keeps the lists, their tensors stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dmlvk.engine.run import Scope
from dmlvk.engine.tensors import Item, Tensor
from dmlvk.onnx.model import Node
from dmlvk.onnx.model_run import ModelRun
from dmlvk.onnx.node_facts import invalid_axis, invalid_node
from dmlvk.onnx.program import DrivenNode, drives

_REASON: Final = "sequences and optional values, kept by the host"


@drives("SequenceEmpty", 11, reason=_REASON)
def empty(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    return [()]


@drives("SequenceConstruct", 11, reason=_REASON)
def construct(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    return [tuple(run.required(driven.node, index, item) for index, item in enumerate(operands))]


@drives("SequenceInsert", 11, reason=_REASON, host_inputs=(2,))
def insert(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """Puts a tensor into a sequence, in front of a place or at the end."""
    items, tensor = _sequence(driven.node, operands[0]), run.required(driven.node, 1, operands[1])
    place = _place(run, driven.node, operands, 2, len(items) + 1, len(items))
    run.limits.check_pieces(driven.node, len(items) + 1)
    return [(*items[:place], tensor, *items[place:])]


@drives("SequenceErase", 11, reason=_REASON, host_inputs=(1,))
def erase(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """Takes the tensor at a place out of a sequence, or the last one."""
    items = _sequence(driven.node, operands[0])
    place = _place(run, driven.node, operands, 1, len(items), len(items) - 1)
    return [(*items[:place], *items[place + 1 :])]


@drives("SequenceAt", 11, reason=_REASON, host_inputs=(1,))
def at(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    items = _sequence(driven.node, operands[0])
    return [items[_place(run, driven.node, operands, 1, len(items), 0)]]


@drives("SequenceLength", 11, reason=_REASON)
def length(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    return [run.carrier.tensor(np.array(len(_sequence(driven.node, operands[0])), np.int64))]


@drives("SplitToSequence", 11, 24, reason=_REASON, host_inputs=(1,))
def split(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """Splits a tensor into parts of given sizes, of one size, the last of which may be smaller, or of one element."""
    node, tensor = driven.node, run.required(driven.node, 0, operands[0])
    axis = _axis(node, len(tensor.shape))
    size = tensor.shape[axis]
    if len(operands) < 2 or operands[1] is None:
        keep = bool(node.attributes.get("keepdims", 1))
        run.limits.check_pieces(node, size)
        return [tuple(run.carrier.split(tensor, axis, [1] * size, keep=keep))]
    given = run.required(node, 1, operands[1]).on_host()
    sizes = [int(number) for number in given.reshape(-1)]
    if given.ndim == 0 and sizes[0] > 0:
        run.limits.check_pieces(node, -(-size // sizes[0]))
        sizes = [min(sizes[0], size - start) for start in range(0, size, sizes[0])]
    if any(part < 0 for part in sizes) or sum(sizes) != size:
        raise invalid_node(node, f"the parts must be {size} elements together, and none negative", given.tolist())
    run.limits.check_pieces(node, len(sizes))
    return [tuple(run.carrier.split(tensor, axis, sizes))]


@drives("ConcatFromSequence", 11, reason=_REASON)
def concat(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    node, items = driven.node, _sequence(driven.node, operands[0])
    if not items:
        raise invalid_node(node, "the sequence must have a tensor", 0)
    stacks = node.attributes.get("new_axis", 0)
    axis = _axis(node, len(items[0].shape) + bool(stacks))
    shapes = [(item.dtype, item.shape if stacks else (*item.shape[:axis], *item.shape[axis + 1 :])) for item in items]
    if any(shape != shapes[0] for shape in shapes) or len({len(item.shape) for item in items}) != 1:
        rule = "the tensors of the sequence must have one type and equal sizes, except along the axis"
        raise invalid_node(node, rule, [(item.dtype, item.shape) for item in items])
    return [run.carrier.stack(items, axis) if stacks else run.carrier.concat(items, axis)]


@drives("Identity", 14, 16, 19, 21, 23, 24, 25, reason=_REASON, always=False)
def identity(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    """Hands a sequence or an optional value on."""
    return operands


@drives("Optional", 15, reason=_REASON)
def optional(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    return operands or [None]


@drives("OptionalHasElement", 15, 18, reason=_REASON)
def has_element(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    return [run.carrier.tensor(np.array(bool(operands) and operands[0] is not None))]


@drives("OptionalGetElement", 15, 18, reason=_REASON)
def get_element(run: ModelRun, driven: DrivenNode, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
    if operands[0] is None:
        raise invalid_node(driven.node, "the optional value must have an element", None)
    return operands


def _sequence(node: Node, item: Item) -> tuple[Tensor, ...]:
    if not isinstance(item, tuple):
        raise invalid_node(node, "input 0 must be a sequence", None if item is None else Tensor)
    return item


def _place(run: ModelRun, node: Node, operands: Sequence[Item], index: int, count: int, default: int) -> int:
    """A place among ``count``, counted from the front; a negative one is counted from the end of the tensors."""
    place = default
    if index < len(operands) and operands[index] is not None:
        place = int(run.number(node, index, operands[index]))
    size = len(_sequence(node, operands[0]))
    if not -size <= place < count:
        raise invalid_node(node, f"a place must be from {-size} to {count - 1}, for a sequence of {size} tensors", place)
    return place if place >= 0 else place + size


def _axis(node: Node, rank: int) -> int:
    axis = int(node.attributes.get("axis", 0))
    if not -rank <= axis < rank:
        raise invalid_axis(node, axis, rank)
    return axis % rank
