"""Slices, splits, joins, tiles, and depth to space: each a copy, or several, with strides that say where elements go."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.copy.lowering import COPIED, copy_launches, copy_plan, copy_problem, copy_schedules
from dmlvk.kernels.copy.rules import COPY, CopyProblem
from dmlvk.spec.enums import DepthSpaceOrder
from dmlvk.spec.ops import DepthToSpace1, Join, Slice1, SpaceToDepth1, Split, Tile
from dmlvk.spec.tensor import TensorDesc, element_bits


def _slice(desc: Slice1) -> CopyProblem:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=True)
    firsts = (offset + (size - 1 if step < 0 else 0) for offset, size, step in windows)
    start = sum(first * own for first, own in zip(firsts, x.effective_strides, strict=True))
    steps = [step * own for step, own in zip(desc.input_window_strides, x.effective_strides, strict=True)]
    return copy_problem(element_bits(x.data_type), output.sizes, (steps, output.effective_strides), (start, 0))


def _tile(desc: Tile) -> CopyProblem:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    dimensions = list(zip(desc.repeats, x.sizes, x.effective_strides, output.effective_strides, strict=True))
    sizes = [part for repeats, size, _, _ in dimensions for part in (repeats, size)]
    from_x = [step for _, _, own, _ in dimensions for step in (0, own)]
    to_output = [step for _, size, _, own in dimensions for step in (size * own, own)]
    return copy_problem(element_bits(x.data_type), sizes, (from_x, to_output))


def _depth_and_space(
    depth: TensorDesc, space: TensorDesc, block: int, order: DepthSpaceOrder
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Sizes of (batch, channel, y, y in the block, x, x in the block), and strides of both tensors."""
    batch, channels, height, width = space.sizes
    channel_step = depth.effective_strides[1]
    # Of the tensor with the many channels: a step of the channel and of either place in the block.
    own, row, column = (1, block * channels, channels) if order == DepthSpaceOrder.DEPTH_COLUMN_ROW else (block**2, block, 1)
    n, _, y, x = depth.effective_strides
    of_depth = (n, own * channel_step, y, row * channel_step, x, column * channel_step)
    n, channel, y, x = space.effective_strides
    of_space = (n, channel, block * y, y, block * x, x)
    return (batch, channels, height // block, block, width // block, block), of_depth, of_space


def _depth_to_space(desc: DepthToSpace1) -> CopyProblem:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    sizes, of_depth, of_space = _depth_and_space(x, output, desc.block_size, desc.order)
    return copy_problem(element_bits(x.data_type), sizes, (of_depth, of_space))


def _space_to_depth(desc: SpaceToDepth1) -> CopyProblem:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    sizes, of_depth, of_space = _depth_and_space(output, x, desc.block_size, desc.order)
    return copy_problem(element_bits(x.data_type), sizes, (of_space, of_depth))


for _row, _problem in (
    (Slice1, _slice),
    (Tile, _tile),
    (DepthToSpace1, _depth_to_space),
    (SpaceToDepth1, _space_to_depth),
):
    register(_row, problem=_problem, rules=COPY, schedules=copy_schedules(copy_plan), any_size=COPIED)


# -- several pieces


class _Piece(NamedTuple):
    """One of the copies that a split or a join is made of.

    Attributes:
        whole: The tensor that is split or joined.
        part: The part of it that is copied.
        start: The element of the whole at which the part starts.
        slot: The slot of the part, an input or an output.
        is_split: Whether the whole is the input.
    """

    whole: TensorDesc
    part: TensorDesc
    start: int
    slot: int
    is_split: bool

    @property
    def tensors(self) -> tuple[TensorDesc, ...]:
        """The whole tensor and its piece."""
        return self.whole, self.part

    @property
    def problem(self) -> CopyProblem:
        """The copy of the piece, as its rules see it."""
        strides, starts = (self.whole.effective_strides, self.part.effective_strides), (self.start, 0)
        if not self.is_split:
            strides, starts = strides[::-1], starts[::-1]
        return copy_problem(element_bits(self.whole.data_type), self.part.sizes, strides, starts)

    def launches(self, caps: Capabilities, rule: str = "") -> tuple[Launch, ...]:
        """The copy's launches by a rule, without one by that which suits it."""
        slots = (0, self.slot) if self.is_split else (self.slot, 0)
        nbytes = (self.whole.total_tensor_size_in_bytes, self.part.total_tensor_size_in_bytes)
        ordered = nbytes if self.is_split else nbytes[::-1]
        operator = (Split if self.is_split else Join).dml_name
        return copy_launches(self.problem, (input_range(slots[0]), output_range(slots[1])), ordered, caps, operator, rule)

    def plan(self, caps: Capabilities) -> Plan:
        """A plan of the launches, without memory of its own."""
        return Plan(self.launches(caps))


def _pieces(desc: Split | Join) -> list[_Piece]:
    is_split = isinstance(desc, Split)
    slots = desc.output_slots() if is_split else desc.input_slots()
    whole = desc.tensor("input_tensor" if is_split else "output_tensor")
    parts = [slot.tensor for slot in slots if slot.tensor is not None]
    step = whole.effective_strides[desc.axis]
    starts = itertools.accumulate((part.sizes[desc.axis] for part in parts), initial=0)
    return [
        _Piece(whole, part, start * step, index, is_split)
        for index, (part, start) in enumerate(zip(parts, starts, strict=False))
    ]


def _largest(desc: Split | Join) -> CopyProblem:
    return max((piece.problem for piece in _pieces(desc)), key=lambda problem: math.prod(problem.walk.sizes) * problem.bits)


def _plan_pieces(desc: Split | Join, problem: CopyProblem, rule: str, caps: Capabilities) -> Plan:
    """Each piece by the rule that suits it; by another one only where the largest was made to use that."""
    forced = rule != choose(COPY, problem, caps).name
    by_name = {each.name: each for each in COPY}
    launches: list[Launch] = []
    for piece in _pieces(desc):
        possible = by_name[rule].possible(piece.problem, caps)
        own = piece.launches(caps, rule if forced and possible else "")
        if launches and piece.problem.bits >= 32:  # smaller elements of two pieces may share a word
            own = tuple(replace(launch, beside_previous=True) if isinstance(launch, Dispatch) else launch for launch in own)
        launches += own
    return Plan(tuple(launches))


register(
    Split,
    Join,
    problem=_largest,
    rules=COPY,
    schedules=copy_schedules(_plan_pieces),
    pieces=_pieces,
    any_size=frozenset({*COPIED, "input_tensors", "output_tensors"}),
)
