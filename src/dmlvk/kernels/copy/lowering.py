"""Copies bit for bit, from any strides to any strides: what moves elements without looking at them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import BlockCopy, Dispatch, Launch, Plan, Range, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.common.shapes import (
    MOST_ITEMS,
    WAVES_OF_ITEMS,
    WORD_BITS,
    Coalesced,
    check_launches,
    coalesce,
    divisors,
    linear_grid,
    part_starts,
)
from dmlvk.kernels.copy.rules import COPY, CopyProblem
from dmlvk.kernels.elementwise.lowering import launch
from dmlvk.spec.enums import OperatorType, TensorDataType
from dmlvk.spec.ops import ActivationIdentity, Cast, ElementWiseIdentity
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import decided
from dmlvk.spec.tensor import element_bits

_WORD_BYTES = WORD_BITS // 8
_WORKGROUP = 128
_LONG_ROW = 16
"""Words of a row from which on an invocation makes two, where there are many. H200: rows of 61 float16 in 153 us with one
and 197 with two, of 253 in 158 and 147."""
_SECTOR_BITS = 256
"""The bits that memory moves at least, whatever an access asks for."""
_NEIGHBOURS = 32
"""Invocations whose accesses are made together."""
COPIED = frozenset({"input_tensor", "output_tensor"})
"""The tensors of an operator that is a copy: its schedules take any size."""
_STAGED_BYTES = 8192
"""The bytes of strips in shared memory, to which an eighth is added."""


def copy(
    source: Range,
    destination: Range,
    data_type: TensorDataType,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    caps: Capabilities,
) -> Launch:
    """The copy of a tensor's elements; ``strides`` are the source's and the destination's in elements."""
    problem = copy_problem(element_bits(data_type), sizes, strides)
    return copy_launch(problem, (source, destination), caps)


def copy_problem(
    bits: int, sizes: Sequence[int], strides: Sequence[Sequence[int]], starts: tuple[int, int] = (0, 0)
) -> CopyProblem:
    """The problem of elements of so many bits.

    Args:
        bits: The bits of an element: 8, 16, 32 or 64.
        sizes: The sizes of the elements to copy.
        strides: The source's and the destination's in elements; the source's may be 0 or negative.
        starts: The first element of either.

    Units are as wide as all places allow; those of a block are elements, so that its length chooses no other pipeline.
    """
    order = sorted(range(len(sizes)), key=lambda axis: -strides[1][axis])
    walk = coalesce([sizes[axis] for axis in order], [[steps[axis] for axis in order] for steps in strides])
    problem = CopyProblem(bits, walk, starts)
    while problem.bits < WORD_BITS and problem.is_even and not problem.is_block:
        problem = _rescaled(problem, 2, 1)
    return problem


def _rescaled(problem: CopyProblem, wider: int, narrower: int) -> CopyProblem:
    """The problem in units that are ``wider`` times as large, or ``narrower`` times as small; rows are contiguous."""
    *outer, inner = problem.walk.sizes

    def scaled(number: int) -> int:
        return number * narrower // wider

    strides = tuple((*map(scaled, steps[:-1]), 1) for steps in problem.walk.strides)
    walk = Coalesced((*outer, scaled(inner)), strides)
    first, second = problem.starts
    return CopyProblem(problem.bits * wider // narrower, walk, (scaled(first), scaled(second)))


def copy_launch(problem: CopyProblem, bindings: tuple[Range, Range], caps: Capabilities, rule: str = "") -> Launch:
    """The launch of a copy by a rule, without one by the rule that is chosen."""
    return _LAUNCHES[rule or choose(COPY, problem, caps).name](problem, bindings, caps)


def copy_launches(
    problem: CopyProblem,
    bindings: tuple[Range, Range],
    nbytes: tuple[int, int],
    caps: Capabilities,
    operator: str,
    rule: str = "",
) -> tuple[Launch, ...]:
    """The launches of a copy of tensors of any size: one, or one for each part whose bytes two bindings hold.

    Args:
        problem: The copy.
        bindings: Where the source and the target lie, from a multiple of 16 bytes on.
        nbytes: The bytes of either tensor.
        caps: The device.
        operator: The DirectML name of the operator that copies.
        rule: The rule to use for each part that it suits, without one the rule that is chosen.

    Raises:
        UnsupportedError: there are more parts than the device may have launches.
    """
    if max(nbytes) <= caps.storage_buffer_bytes:
        return (copy_launch(problem, bindings, caps, rule),)
    by_name = {each.name: each for each in COPY}
    launches = list[Launch]()
    for part in _fitting(problem, caps, operator):
        check_launches(len(launches) + 1, caps, operator)
        moved, ranges = part, []
        for index, (binding, (low, high)) in enumerate(zip(bindings, map(part.extent, (0, 1)), strict=True)):
            base = low * part.bits // WORD_BITS
            words = (high * part.bits - 1) // WORD_BITS + 1 - base
            end = min(words * _WORD_BYTES, nbytes[index] - base * _WORD_BYTES)
            ranges.append(binding._replace(offset=binding.offset + base * _WORD_BYTES, nbytes=end))
            starts = list(moved.starts)
            starts[index] -= base * WORD_BITS // part.bits
            moved = dataclasses.replace(moved, starts=(starts[0], starts[1]))
        suits = rule and by_name[rule].possible(moved, caps)
        launches.append(copy_launch(moved, (ranges[0], ranges[1]), caps, rule if suits else ""))
    return tuple(launches)


def _fitting(problem: CopyProblem, caps: Capabilities, operator: str) -> Iterator[CopyProblem]:
    """The parts of a copy that touch so many bytes at most of either tensor, each cut along its longest steps."""
    most = caps.storage_buffer_bytes // _WORD_BYTES * WORD_BITS // problem.bits
    for tensor in (0, 1):
        low, high = problem.extent(tensor)
        strides, in_word = problem.walk.strides[tensor], WORD_BITS // problem.bits
        room = most - low % in_word
        if high - low <= room:
            continue
        sizes = problem.walk.sizes
        axis = max((axis for axis, size in enumerate(sizes) if size > 1), key=lambda axis: abs(strides[axis]))
        step = abs(strides[axis])
        each = max((most - in_word - (high - low - step * (sizes[axis] - 1))) // step + 1, 1)
        each = max(each // in_word * in_word, min(each, in_word))
        check_launches(-(-sizes[axis] // each), caps, operator)
        for first in part_starts(sizes[axis], each):
            own = (*sizes[:axis], min(each, sizes[axis] - first), *sizes[axis + 1 :])
            starts = [start + first * steps[axis] for start, steps in zip(problem.starts, problem.walk.strides, strict=True)]
            walk = coalesce(own, problem.walk.strides)
            yield from _fitting(CopyProblem(problem.bits, walk, (starts[0], starts[1])), caps, operator)
        return
    yield problem


def _block(problem: CopyProblem, bindings: tuple[Range, Range], caps: Capabilities) -> Launch:
    nbytes = problem.walk.sizes[0] * problem.bits // 8
    source, target = (
        part._replace(offset=part.offset + start * problem.bits // 8, nbytes=nbytes)
        for part, start in zip(bindings, problem.starts, strict=True)
    )
    return BlockCopy((source, target))


def _tiles(problem: CopyProblem, bindings: tuple[Range, Range], caps: Capabilities) -> Launch:
    tiled = problem.elementwise
    assert tiled is not None, "the rule has shown it to be there"
    constants = {"OPERATION": OperatorType.ELEMENT_WISE_IDENTITY, "HAS_SCALE_BIAS": 0}
    params = dict.fromkeys(("scale", "bias", "param0", "param1"), (0, 0))
    starts = {"x_start": problem.starts[0], "output_start": problem.starts[1]}
    return launch("elementwise_unary", "tiles", tiled, caps, bindings, constants, {**params, **starts})


def _strips(shared: bool) -> Callable[[CopyProblem, tuple[Range, Range], Capabilities], Launch]:
    return lambda problem, bindings, caps: _strip_dispatch(problem, bindings, shared, caps)


def _strip_dispatch(problem: CopyProblem, bindings: tuple[Range, Range], shared: bool, caps: Capabilities) -> Dispatch:
    strip = problem.strip
    assert strip is not None, "the rule has shown it to be there"
    problem, bindings = _narrowed(problem, bindings)
    units = strip.word_bits // problem.bits
    dimensions = [axis for axis in range(len(problem.walk.sizes)) if axis not in (strip.short, strip.long)] + [strip.long]
    sizes = [problem.walk.sizes[axis] for axis in dimensions]
    sizes[-1] //= units
    # A run's next word lies next to it, that of a strip beyond those of the short dimension.
    runs, strips = problem.walk.strides if strip.interleaves else problem.walk.strides[::-1]
    of_runs = [runs[axis] // units for axis in dimensions[:-1]] + [1]
    of_strips = [strips[axis] // units for axis in dimensions[:-1]] + [strip.size]
    x, output = (of_runs, of_strips) if strip.interleaves else (of_strips, of_runs)
    workgroup = _strip_workgroup(strip.size * strip.word_bits // 8) if shared else _WORKGROUP
    count = math.prod(sizes)
    constants = {
        "LOCAL_SIZE_X": workgroup,
        "RANK": len(sizes),
        "SHORT": strip.size,
        "INTERLEAVES": int(strip.interleaves),
        "STAGED": int(shared),
    }
    return make_dispatch(
        "copy_strips",
        bindings,
        linear_grid(-(-count // workgroup), caps),
        variant={"BITS": problem.bits, "T": unit_type(strip.word_bits)},
        constants=constants,
        count=count,
        x_start=problem.starts[0] // units,
        output_start=problem.starts[1] // units,
        run_step=runs[strip.short] // units % 2**32,
        sizes=tuple(sizes),
        divisors=divisors(sizes),
        x_strides=tuple(step % 2**32 for step in x),
        output_strides=tuple(output),
    )


def _strip_workgroup(nbytes: int) -> int:
    """Invocations that share strips of which each moves so many bytes."""
    workgroup = _WORKGROUP
    while workgroup * nbytes > _STAGED_BYTES:
        workgroup //= 2
    return workgroup


def _rows(problem: CopyProblem, bindings: tuple[Range, Range], caps: Capabilities) -> Launch:
    if problem.bits > 32:
        problem = _rescaled(problem, 1, problem.bits // 32)
    problem, bindings = _narrowed(problem, bindings)
    in_line = problem.output_is_packed and problem.starts[1] == 0
    return _dispatch(problem, bindings, caps, in_words=True, packed=in_line)


def _units(problem: CopyProblem, bindings: tuple[Range, Range], caps: Capabilities) -> Launch:
    problem, bindings = _narrowed(problem, bindings)
    return _dispatch(dataclasses.replace(problem, walk=_cheaper_walk(problem)), bindings, caps, in_words=False)


def _narrowed(problem: CopyProblem, bindings: tuple[Range, Range]) -> tuple[CopyProblem, tuple[Range, Range]]:
    """The copy with only those bytes of the target bound that are written, where they follow each other and start on a word:
    pieces of one output then need no barrier between them."""
    start = problem.starts[1] * problem.bits
    if not problem.output_is_packed or start % WORD_BITS:
        return problem, bindings
    source, target = bindings
    nbytes = math.prod(problem.walk.sizes) * problem.bits // 8
    target = target._replace(offset=target.offset + start // 8, nbytes=nbytes)
    return dataclasses.replace(problem, starts=(problem.starts[0], 0)), (source, target)


def _cheaper_walk(problem: CopyProblem) -> Coalesced:
    """The order of the dimensions in which neighbouring invocations touch less memory: the output's, or the input's."""
    walk = problem.walk
    order = sorted(range(len(walk.sizes)), key=lambda axis: -abs(walk.strides[0][axis]))
    by_input = coalesce([walk.sizes[axis] for axis in order], [[own[axis] for axis in order] for own in walk.strides])
    return by_input if decided(_touches_less, problem.bits, by_input, walk) else walk


def _touches_less(bits: int, walk: Coalesced, other: Coalesced) -> bool:
    """Whether a walk's first neighbouring invocations touch less memory than another's."""
    return _sectors(bits, *walk) < _sectors(bits, *other)


def _sectors(bits: int, sizes: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> int:
    """Sectors of memory that those of a walk touch."""
    touched = 0
    for own in strides:
        if sizes[-1] >= _NEIGHBOURS and own[-1] >= 0:  # a row holds them all
            apart = own[-1] * bits
            touched += _NEIGHBOURS if apart >= _SECTOR_BITS else (_NEIGHBOURS - 1) * apart // _SECTOR_BITS + 1
            continue
        places = [0]
        for size, step in zip(reversed(sizes), reversed(own), strict=True):
            if len(places) >= _NEIGHBOURS:
                break
            count = min(size, -(-_NEIGHBOURS // len(places)))
            places = [place + step * index for index in range(count) for place in places]
        touched += len({place * bits // _SECTOR_BITS for place in places[:_NEIGHBOURS]})
    return touched


def _dispatch(
    problem: CopyProblem, bindings: tuple[Range, Range], caps: Capabilities, *, in_words: bool, packed: bool = False
) -> Dispatch:
    *outer, inner = problem.walk.sizes
    x, output = problem.walk.strides
    outer = outer or [1]
    return rows_dispatch(
        "copy",
        RowUnits(problem.bits, math.prod(outer), inner, x[-1], output[-1]),
        bindings,
        caps,
        in_words=in_words,
        packed=packed,
        constants={"RANK": len(outer)},
        params={
            "x_start": problem.starts[0],
            "output_start": problem.starts[1],
            "sizes": tuple(outer),
            "divisors": divisors(outer),
            "x_strides": tuple(step % 2**32 for step in x[:-1]),
            "output_strides": output[:-1],
        },
    )


@dataclasses.dataclass(frozen=True)
class RowUnits:
    """The rows of a kernel that includes ``rows.glsl``.

    Attributes:
        bits: The bits of a unit: 8 to 128, or 8 to 32 for words.
        rows: The number of rows.
        size: Units of a row of the output.
        x_step, output_step: Units from one to the next.
        fill: The bits of a unit that comes from nowhere: two words, that repeat.
    """

    bits: int
    rows: int
    size: int
    x_step: int = 1
    output_step: int = 1
    fill: tuple[int, int] = (0, 0)


def rows_dispatch(
    kernel: str,
    units: RowUnits,
    bindings: tuple[Range, ...],
    caps: Capabilities,
    *,
    in_words: bool,
    packed: bool = True,
    constants: dict[str, int],
    params: dict[str, Any],
) -> Dispatch:
    """A dispatch of a kernel that includes ``rows.glsl``.

    Args:
        kernel: Its name.
        units: The rows.
        bindings: The ranges of its buffers.
        caps: The device's.
        in_words: Whether an invocation makes 16 bytes of the output (ROWS 1), or moves single units.
        packed: Whether words of the output's rows follow each other from the start of its binding on.
        constants, params: The kernel's own.
    """
    total = units.rows * units.size
    of_word = WORD_BITS // units.bits
    row_words = (units.size + of_word - 2) // of_word + 1
    if not in_words:
        count, items = total, unit_items(units.bits, total, caps)
    else:
        count = -(-total // of_word) if packed else units.rows * row_words
        items = word_items(row_words, count, caps)
    constants = {
        "LOCAL_SIZE_X": _WORKGROUP,
        "ITEMS": items,
        "PACKED": int(packed and in_words),
        **constants,
    }
    grid = linear_grid(-(-count // (_WORKGROUP * items)), caps)
    return make_dispatch(
        kernel,
        bindings,
        grid,
        variant={"ROWS": in_words, "T": unit_type(units.bits)},
        constants=constants,
        count=count,
        units=total,
        inner_size=units.size,
        inner_divisor=divisors([units.size]),
        row_words=row_words,
        row_words_divisor=divisors([row_words]),
        x_step=units.x_step % 2**32,
        output_step=units.output_step,
        fill=units.fill,
        **params,
    )


def unit_type(bits: int) -> str:
    """The variant's type for units of so many bits."""
    return f"UINT{bits}" if bits <= 32 else f"BITS{bits}"


def unit_items(bits: int, count: int, caps: Capabilities) -> int:
    """Units an invocation: several where they are small and there are enough of them to fill the device."""
    if caps.is_cpu or count < caps.model.invocations(WAVES_OF_ITEMS):
        return 1
    return MOST_ITEMS if bits < WORD_BITS else 2


def word_items(row_words: int, count: int, caps: Capabilities) -> int:
    """Words an invocation: two of long rows, where there are enough of them."""
    return 1 if caps.is_cpu or count < caps.model.invocations(WAVES_OF_ITEMS) or row_words < _LONG_ROW else 2


_LAUNCHES: dict[str, Callable[[CopyProblem, tuple[Range, Range], Capabilities], Launch]] = {
    "block": _block,
    "strips_shared": _strips(shared=True),
    "strips": _strips(shared=False),
    "tiles": _tiles,
    "rows": _rows,
    "units": _units,
}

# -- operators that are a copy


def is_copy(desc: OperatorDesc) -> bool:
    """Whether a pointwise desc computes nothing: an identity, or a cast that keeps all bits."""
    if getattr(desc, "scale_bias", None) is not None:
        return False
    if not isinstance(desc, Cast):
        return True
    # A cast between integers keeps low bits.
    source, target = desc.tensor("input_tensor").data_type, desc.tensor("output_tensor").data_type
    floats = source.name.startswith("FLOAT") or target.name.startswith("FLOAT")
    return source is target or (not floats and element_bits(source) == element_bits(target))


def _problem(desc: OperatorDesc) -> CopyProblem:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    return copy_problem(element_bits(x.data_type), output.sizes, (x.effective_strides, output.effective_strides))


def copy_schedules(
    plan: Callable[[Any, CopyProblem, str, Capabilities], Plan],
) -> dict[str, Callable[[Any, CopyProblem, Capabilities], Plan]]:
    """The functions that build a plan, by rule of COPY; ``plan`` is given the name of the rule."""

    def schedule(rule: str) -> Callable[[Any, CopyProblem, Capabilities], Plan]:
        return lambda desc, problem, caps: plan(desc, problem, rule, caps)

    return {rule.name: schedule(rule.name) for rule in COPY}


def copy_plan(desc: OperatorDesc, problem: CopyProblem, rule: str, caps: Capabilities) -> Plan:
    """The plan of an operator that is one copy of its first input."""
    nbytes = (
        desc.tensor("input_tensor").total_tensor_size_in_bytes,
        desc.tensor("output_tensor").total_tensor_size_in_bytes,
    )
    return Plan(copy_launches(problem, (input_range(0), output_range(0)), nbytes, caps, desc.dml_name, rule))


register(
    ElementWiseIdentity,
    ActivationIdentity,
    Cast,
    when=is_copy,
    problem=_problem,
    rules=COPY,
    schedules=copy_schedules(copy_plan),
    any_size=COPIED,
)
