"""Plans for multi-head attention."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.attention.manifest import MaskBounds, PastLengths, Turn
from dmlvk.kernels.attention.matrix_tiles import ATTENTION_SHAPES, in_place, matrix_parts, matrix_shape, whole_matrices
from dmlvk.kernels.attention.problem import AttentionProblem
from dmlvk.kernels.attention.rules import (
    ATTENTION,
    ATTENTION_SPLIT_KEYS,
    MOST_MASK_FILTER,
    PARTS_TOGETHER,
)
from dmlvk.kernels.attention.tiles import BLOCK_DEPTH, attention_block, fastest_tile
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Resource, Source, aligned, input_range, output_range
from dmlvk.kernels.common.registry import Schedule, register
from dmlvk.kernels.common.shapes import WORD_BITS, check_rounds, linear_grid, most_invocations, power_of_two
from dmlvk.kernels.matmul import lowering as matmul
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, TensorDataType
from dmlvk.spec.enums import MultiheadAttentionMaskType as MaskType
from dmlvk.spec.ops.activation import SoftmaxOrZero
from dmlvk.spec.ops.attention import AttentionSizes, attention_sizes
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import decided, is_plain
from dmlvk.spec.tensor import TensorDesc, element_bits

Strides = tuple[int, int, int, int]
"""Strides in elements of (batch entry, row, head, element)."""

OperandsOf = Callable[[Any, Capabilities], "Operands"]
"""(desc, capabilities) -> where the operands of its attention lie."""
_RELATIVE_BINDING = 2
"""The place of the relative position bias among the bindings of ``Around``."""

_PRESENTS = (("key", "output_present_key_tensor"), ("value", "output_present_value_tensor"))


@dataclass(frozen=True)
class Rows:
    """Rows of heads in memory: from element ``start`` of a range on."""

    where: Range
    start: int
    strides: Strides

    def in_groups(self, count: int) -> bool:
        """Whether rows are contiguous and start on groups of so many elements."""
        return self.strides[3] == 1 and all(step % count == 0 for step in (self.start, *self.strides[:3]))


class Around(NamedTuple):
    """What is done to scores beside scaling them, and which keys count, as the kernels are told it.

    Attributes:
        bindings: Ranges of bias, mask, relative position bias, lengths and sinks; that of the queries for what is absent.
        constants, params: Those of the kernels that say more of them.
    """

    bindings: tuple[Range, ...]
    constants: Mapping[str, int]
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Operands:
    """The operands of the kernels, wherever the desc has them.

    Attributes:
        data_type: The type of all floating tensors.
        sizes: The sizes of the desc; ``keys`` of them stand where k and v are.
        q, k, v, y: Queries, keys, values, output.
        keys: Rows of k and v of an entry.
        q_bias, kv_bias: Whether the bias is to be added to q, and to k and v.
        before: Launches that make k and v, and the desc's present outputs.
        temporary_bytes: The temporary memory that these launches need.
        around: What is done to scores beside scaling them.
    """

    data_type: TensorDataType
    sizes: AttentionSizes
    q: Rows
    k: Rows
    v: Rows
    y: Rows
    keys: int
    q_bias: bool
    kv_bias: bool
    before: tuple[Launch, ...]
    temporary_bytes: int
    around: Around


def _slot(desc: ops.MultiheadAttention1, name: str) -> Range:
    """The range of a tensor, which the desc has."""
    for slots, make in ((desc.input_slots(), input_range), (desc.output_slots(), output_range)):
        for index, slot in enumerate(slots):
            if slot.field.name == name:
                return make(index)
    raise AssertionError(f"{name} is no tensor")


def _steps(tensor: TensorDesc, count: int) -> tuple[int, ...]:
    """The strides of the last dimensions; 0 of those of one element, whose own says nothing of where others are."""
    last = zip(tensor.sizes[-count:], tensor.effective_strides[-count:], strict=True)
    return tuple(0 if size == 1 else step for size, step in last)


def _separate(desc: ops.MultiheadAttention1, name: str, tensor: TensorDesc, head_size: int) -> Rows:
    """A tensor {batch, rows, heads * size}."""
    entry, row, element = _steps(tensor, 3)
    return Rows(_slot(desc, name), 0, (entry, row, element * head_size, element))


def _beside(desc: ops.MultiheadAttention1, name: str, tensor: TensorDesc, place: int) -> Rows:
    """One of those that stand side by side in a tensor {batch, rows, heads, 2 or 3, size}."""
    entry, row, head, kind, element = _steps(tensor, 5)
    return Rows(_slot(desc, name), place * kind, (entry, row, head, element))


def _by_head(desc: ops.MultiheadAttention1, name: str, tensor: TensorDesc) -> Rows:
    """A tensor {batch, heads, rows, size}: past or present."""
    entry, head, row, element = _steps(tensor, 4)
    return Rows(_slot(desc, name), 0, (entry, row, head, element))


def _given(desc: ops.MultiheadAttention1, sizes: AttentionSizes) -> dict[str, Rows]:
    """The rows of queries, keys and values that the desc's tensors hold, without the past."""
    found = {}
    for name, size in (("query", sizes.head_size), ("key", sizes.head_size), ("value", sizes.value_head_size)):
        tensor: TensorDesc | None = getattr(desc, f"{name}_tensor")
        if tensor is not None:
            found[name] = _separate(desc, f"{name}_tensor", tensor, size)
    for field, names in (
        ("stacked_query_key_tensor", ("query", "key")),
        ("stacked_key_value_tensor", ("key", "value")),
        ("stacked_query_key_value_tensor", ("query", "key", "value")),
    ):
        tensor = getattr(desc, field)
        if tensor is not None:
            found.update({name: _beside(desc, field, tensor, place) for place, name in enumerate(names)})
    return found


def _operands(desc: ops.MultiheadAttention1, caps: Capabilities) -> Operands:
    """Keys and values are read where they are, unless a past of another place or of lengths of its own stands before them:
    then from the present tensors, or from temporary memory where the desc has none."""
    sizes = attention_sizes(desc)
    rows = _given(desc, sizes)
    y = desc.tensor("output_tensor")
    lengths = desc.past_sequence_lengths_tensor is not None
    joined = bool(sizes.new) and (desc.past_key_tensor is not None or lengths)
    before: list[Launch] = []
    temporary_bytes = 0
    for name, present in _PRESENTS:
        target: TensorDesc | None = getattr(desc, present)
        past: TensorDesc | None = getattr(desc, f"past_{name}_tensor")
        size = sizes.head_size if name == "key" else sizes.value_head_size
        made: Rows | None = None
        if target is not None:
            made = _by_head(desc, present, target)
        elif joined:
            nbytes = math.prod((sizes.batch, sizes.key_heads, sizes.total, size)) * element_bits(y.data_type) // 8
            where = Range(Source.TEMPORARY, 0, temporary_bytes, -(-nbytes // 4) * 4)
            temporary_bytes += aligned(nbytes)
            head = sizes.total * size
            made = Rows(where, 0, (sizes.key_heads * head, size, head, 1))
        if made is not None:
            before.append(_present(desc, sizes, name, rows.get(name), made, caps))
        if joined and made is not None:
            rows[name] = made
        elif name not in rows:
            assert past is not None, "keys and values are the past alone"
            rows[name] = _by_head(desc, f"past_{name}_tensor", past)
    return Operands(
        data_type=y.data_type,
        sizes=sizes,
        q=rows["query"],
        k=rows["key"],
        v=rows["value"],
        y=_separate(desc, "output_tensor", y, sizes.value_head_size),
        keys=sizes.total,
        q_bias=desc.bias_tensor is not None,
        kv_bias=desc.bias_tensor is not None and not joined and sizes.new > 0,
        before=tuple(before),
        temporary_bytes=temporary_bytes,
        around=_around(desc, rows["query"].where, sizes),
    )


def _around(desc: ops.MultiheadAttention1, absent: Range, sizes: AttentionSizes) -> Around:
    bounds = {
        MaskType.KEY_SEQUENCE_LENGTH: MaskBounds.ENDS,
        MaskType.KEY_SEQUENCE_END_START: MaskBounds.ENDS_AND_STARTS,
    }
    lengths, relative = desc.past_sequence_lengths_tensor, desc.relative_position_bias_tensor
    names = ("bias_tensor", "mask_tensor", "relative_position_bias_tensor", "past_sequence_lengths_tensor")
    bindings = (absent if getattr(desc, name) is None else _slot(desc, name) for name in names)
    filter_value = desc.mask_filter_value
    return Around(
        (*bindings, absent),
        {
            "MASK_BOUNDS": bounds.get(desc.mask_type, MaskBounds.NONE),
            "MASK_BOOLEAN": int(desc.mask_type is MaskType.BOOLEAN),
            "HAS_RELATIVE": int(relative is not None),
            "LENGTHS": PastLengths[lengths.data_type.name if lengths else "NONE"],
            "UNPADDED": int(desc.mask_type is MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END),
        },
        {
            "mask_strides": last_strides(desc.mask_tensor, 4),
            "relative_strides": last_strides(relative, 4),
            "bias_stride": last_strides(desc.bias_tensor, 1)[0],
            "k_bias": sizes.query_heads * sizes.head_size,
            "v_bias": (sizes.query_heads + sizes.key_heads) * sizes.head_size,
            "most_past": sizes.total - sizes.new,
            "lengths_stride": last_strides(lengths, 1)[0],
            "sinks_stride": 0,
            "scale": desc.scale,
            "softcap": 0.0,
            "window": 0,
            "both_ways": 0,
            "mask_filter": filter_value,
        },
    )


def last_strides(tensor: TensorDesc | None, count: int) -> tuple[int, ...]:
    """Strides of a tensor's last dimensions, those that it lacks and those of size 1 as 0."""
    if tensor is None:
        return (0,) * count
    own = [0 if size == 1 else step for size, step in zip(tensor.sizes, tensor.effective_strides, strict=True)]
    return (0,) * (count - len(own)) + tuple(own[-count:])


def _present(
    desc: ops.MultiheadAttention1, sizes: AttentionSizes, name: str, new: Rows | None, made: Rows, caps: Capabilities
) -> Dispatch:
    """The past and the new rows in one tensor; where that tensor holds the past already, the new rows alone."""
    bias, lengths = desc.bias_tensor, desc.past_sequence_lengths_tensor
    past: TensorDesc | None = getattr(desc, f"past_{name}_tensor")
    size, bias_start = sizes.head_size, sizes.query_heads * sizes.head_size
    if name == "value":
        size, bias_start = sizes.value_head_size, (sizes.query_heads + sizes.key_heads) * sizes.head_size
    return made_rows(
        caps,
        desc.tensor("output_tensor").data_type,
        (sizes.batch, sizes.key_heads, sizes.total, size),
        sizes.new,
        made,
        new=new,
        old=None if past is None else _by_head(desc, f"past_{name}_tensor", past),
        append=lengths is not None and past is None,
        most_past=sizes.total - sizes.new,
        lengths=None if lengths is None else (_slot(desc, "past_sequence_lengths_tensor"), lengths),
        bias=None if bias is None or new is None else (_slot(desc, "bias_tensor"), bias, bias_start),
    )


_GROUPS_EACH = 2
"""Most groups of four elements that an invocation of ``attention_present`` makes. H200 (driver 580, 2026-11-29), us of a
copy with one, two and four: 32 heads of 2048 rows of 128 FLOAT16 12.7, 8.1 and 15.9, 128 of 2048 45, 36 and 45, 32 of 512
5.2, 4.1 and 4.8."""


class Turning(NamedTuple):
    """Rotary embedding, as ``glsl/include/attention_turn.glsl`` has it.

    Attributes:
        bindings: Ranges of cosines, sines and positions.
        constants, params: Those of the kernels.
    """

    bindings: tuple[Range, ...]
    constants: Mapping[str, int]
    params: Mapping[str, Any]


def no_turning(absent: Range) -> Turning:
    """Heads that stay as they are; the range is bound and not read."""
    params = {"pairs": 0, "places": 0} | dict.fromkeys(("cosines_strides", "sines_strides", "positions_strides"), (0, 0))
    return Turning((absent,) * 3, {"TURN": Turn.NONE}, params)


def made_rows(
    caps: Capabilities,
    data_type: TensorDataType,
    sizes: tuple[int, int, int, int],
    new_rows: int,
    made: Rows,
    *,
    new: Rows | None,
    old: Rows | None = None,
    append: bool = False,
    most_past: int = 0,
    lengths: tuple[Range, TensorDesc] | None = None,
    bias: tuple[Range, TensorDesc, int] | None = None,
    turning: Turning | None = None,
) -> Dispatch:
    """The launch of ``glsl/attention_present.comp``.

    Args:
        caps, data_type: The device, and the type of all rows.
        sizes: (batch, heads, rows, elements) of what is made.
        new_rows: How many of the rows are new.
        made, new, old: Where these lie; None for those that there are not.
        append: Whether what is made holds the old rows already.
        most_past: The most old rows; new ones that there is no room for behind them are dropped.
        lengths: The tensor that says how many rows are old.
        bias: A tensor that is added to new rows, from an element on.
        turning: What turns new rows.
    """
    batch, heads, rows, size = sizes
    quads = size % 4 == 0 and all(own is None or own.in_groups(4) for own in (new, old, made))
    quads = quads and (bias is None or last_strides(bias[1], 1) == (1,))
    each = math.gcd(_GROUPS_EACH, size // 4) if quads else 1
    count = batch * heads * (new_rows if append else rows) * -(-size // (4 * each))
    local = min(128, most_invocations(caps))
    some = old if new is None else new
    assert some is not None, "there are keys"
    turning = turning or no_turning(some.where)
    return make_dispatch(
        "attention_present",
        (
            some.where,
            some.where if old is None else old.where,
            some.where if bias is None else bias[0],
            some.where if lengths is None else lengths[0],
            *turning.bindings,
            made.where,
        ),
        linear_grid(-(-count // local), caps),
        variant={"T": data_type.name},
        constants={
            "LOCAL_SIZE_X": local,
            "HAS_PAST": int(old is not None),
            "HAS_BIAS": int(bias is not None),
            "LENGTHS": PastLengths[lengths[1].data_type.name if lengths else "NONE"],
            "APPEND": int(append),
            "QUADS": int(quads),
            "EACH": each,
            **turning.constants,
        },
        count=count,
        rows=rows,
        new_rows=new_rows,
        most_past=most_past,
        heads=heads,
        size=size,
        x_start=0 if new is None else new.start,
        x_strides=(0, 0, 0, 0) if new is None else new.strides,
        past_strides=_in_memory_order(old),
        y_strides=_in_memory_order(made),
        bias_start=0 if bias is None else bias[2],
        bias_stride=0 if bias is None else last_strides(bias[1], 1)[0],
        lengths_stride=last_strides(None if lengths is None else lengths[1], 1)[0],
        **turning.params,
    )


def _in_memory_order(rows: Rows | None) -> Strides:
    """Strides of (batch entry, head, row, element)."""
    if rows is None:
        return (0, 0, 0, 0)
    entry, row, head, element = rows.strides
    return (entry, head, row, element)


def _problem(desc: ops.MultiheadAttention1) -> AttentionProblem:
    operands = _operands(desc, Capabilities())
    problem = AttentionProblem(**problem_fields(operands))
    if desc.bias_tensor is not None and last_strides(desc.bias_tensor, 1) != (1,):
        problem = replace(problem, quads=False)
    return replace(problem, words=problem.words and not operands.q_bias)


def problem_fields(operands: Operands) -> dict[str, Any]:
    """The fields of the problem of an attention with these operands."""
    sizes = operands.sizes
    rows = (operands.q, operands.k, operands.v, operands.y)
    bits = element_bits(operands.data_type)
    bias = bool(operands.around.constants["HAS_RELATIVE"])
    bias_sizes = (sizes.batch, sizes.query_heads, sizes.queries, operands.keys)
    bias_strides = operands.around.params["relative_strides"]
    bias_elements = math.prod(size for size, stride in zip(bias_sizes, bias_strides, strict=True) if stride)

    def grouped(count: int) -> bool:
        wide = sizes.head_size % count == 0 and sizes.value_head_size % count == 0
        return wide and all(own.in_groups(count) for own in rows)

    return {
        "bits": bits,
        "batch": sizes.batch,
        "queries": sizes.queries,
        "keys": operands.keys,
        "key_heads": sizes.key_heads,
        "group": sizes.query_heads // sizes.key_heads,
        "head_size": sizes.head_size,
        "value_size": sizes.value_head_size,
        "quads": grouped(4),
        "words": grouped(WORD_BITS // bits),
        "unpadded": bool(operands.around.constants.get("UNPADDED", 0)),
        "plain": _is_plain(operands),
        "causal": bool(operands.around.constants.get("LENGTHS", 0)) and not operands.around.params["both_ways"],
        "scale": operands.around.params["scale"],
        "bias": bias,
        "bias_words": _in_words(bias_strides, operands.keys, WORD_BITS // bits),
        "bias_bytes": bias_elements * bits // 8 if bias else 0,
    }


_BEYOND_SCORES = ("MASK_BOOLEAN", "UNPADDED", "WINDOWED", "CAPPED", "HAS_SINKS")


def _is_plain(operands: Operands) -> bool:
    """Whether products and a softmax say the attention; see ``AttentionProblem.plain``."""
    constants = operands.around.constants
    bounds = constants.get("MASK_BOUNDS", MaskBounds.NONE), constants.get("LENGTHS", PastLengths.NONE)
    more = operands.q_bias or operands.kv_bias or operands.before or any(constants.get(name, 0) for name in _BEYOND_SCORES)
    of_word = WORD_BITS // element_bits(operands.data_type)
    starts = any(rows.start % of_word for rows in (operands.q, operands.k, operands.v, operands.y))
    return not (more or starts) and bounds == (MaskBounds.NONE, PastLengths.NONE)


def _in_words(strides: Strides, keys: int, count: int) -> bool:
    """Whether rows of a bias of scores consist of aligned groups of so many."""
    return strides[3] == 1 and all(step % count == 0 for step in (keys, *strides[:3]))


class _Kernel(NamedTuple):
    """A dispatch of a kernel of attention, but for what it shares with the others."""

    name: str
    constants: dict[str, int]
    grid: tuple[int, int, int]
    params: Mapping[str, Any]
    bindings: tuple[Range, ...] = ()
    variant: Mapping[str, int] = {}
    subgroup_size: int = 0


def shared_params(problem: AttentionProblem, operands: Operands) -> dict[str, Any]:
    """The parameters that all kernels of attention have."""
    sizes = operands.sizes
    return {
        "batch": sizes.batch,
        "queries": sizes.queries,
        "keys": operands.keys,
        "new_keys": sizes.new,
        "key_heads": sizes.key_heads,
        "head_size": sizes.head_size,
        "value_size": sizes.value_head_size,
        "q_start": operands.q.start,
        "k_start": operands.k.start,
        "v_start": operands.v.start,
        "q_strides": operands.q.strides,
        "k_strides": operands.k.strides,
        "v_strides": operands.v.strides,
        "y_strides": operands.y.strides,
        **operands.around.params,
    }


def _dispatch(problem: AttentionProblem, operands: Operands, kernel: _Kernel) -> Dispatch:
    around = operands.around
    constants = {
        "GROUP": problem.group,
        "Q_BIAS": int(operands.q_bias),
        "KV_BIAS": int(operands.kv_bias),
        **around.constants,
        "QUADS": int(problem.quads),
        **kernel.constants,
    }
    return make_dispatch(
        kernel.name,
        (operands.q.where, operands.k.where, operands.v.where, *around.bindings, operands.y.where, *kernel.bindings),
        kernel.grid,
        kernel.subgroup_size,
        variant={"T": operands.data_type.name, **kernel.variant},
        constants=constants,
        **{**shared_params(problem, operands), **kernel.params},
    )


def _zeros(y: TensorDesc, caps: Capabilities) -> tuple[Launch, ...]:
    """The launches that write 0 into the rows of y that belong to no sequence."""
    fill = ops.FillValueConstant(output_tensor=y, value_data_type=y.data_type, value=0)
    return chosen_plan(fill, caps).dispatches


def _naive(desc: OperatorDesc, problem: AttentionProblem, caps: Capabilities, operands_of: OperandsOf) -> Plan:
    check_rounds(problem.keys * -(-problem.head_size // 4) + problem.batch, caps, desc.dml_name)
    operands = operands_of(desc, caps)
    count = desc.tensor("output_tensor").element_count
    local = min(128, most_invocations(caps))
    grid = linear_grid(-(-count // local), caps)
    kernel = _Kernel("attention_naive", {"LOCAL_SIZE_X": local, "QUADS": 0}, grid, {"count": count})
    return Plan((*operands.before, _dispatch(problem, operands, kernel)), temporary_bytes=operands.temporary_bytes)


def _are_products(operands: Operands) -> bool:
    """Whether scores, but for a bias, are products times the scale."""
    return not any(operands.around.constants.get(name) for name in ("CAPPED", "MASK_BOUNDS", "MASK_BOOLEAN"))


def _matrices(
    desc: OperatorDesc,
    problem: AttentionProblem,
    caps: Capabilities,
    operands_of: OperandsOf,
    *,
    way: str,
    split: bool = False,
) -> Plan:
    operands = operands_of(desc, caps)
    if split:
        found = matrix_parts(problem, caps, way)
        assert found is not None, "the rule is possible"
        shape, matrix, wanted = found
    else:
        fitting = matrix_shape(problem, caps, way)
        assert fitting is not None, "the rule is possible"
        (shape, matrix), wanted = fitting, 1
    filter_value = operands.around.params["mask_filter"]
    if math.isfinite(filter_value):
        filter_value = max(-MOST_MASK_FILTER, min(filter_value, MOST_MASK_FILTER))
    rows = matrix.m * shape.blocks
    row_tiles = -(-problem.rows // (shape.subgroups * rows))
    wanted = wanted or _enough_parts(problem, row_tiles, _MATRIX_WORKGROUPS * caps.model.processors)
    parts = _parts(problem, operands, shape.keys, wanted, split=split)
    head, value = (whole_matrices(size, matrix) for size in (problem.head_size, problem.value_size))
    constants = {
        "LOCAL_SIZE_X": shape.subgroups * caps.subgroup_size,
        "SUBGROUP": caps.subgroup_size,
        "MAT_M": matrix.m,
        "MAT_N": matrix.n,
        "MAT_K": matrix.k,
        "TILE_ROWS": shape.subgroups * rows,
        "SUB_ROWS": rows,
        "TILE_KEYS": shape.keys,
        "HEAD": head,
        "VALUE": value,
        "HELD": min(shape.held, head),
        "TOGETHER": shape.together,
        "SETS": shape.sets(matrix, head, value, caps.shared_memory_bytes, in_place=in_place(way), bias=problem.bias),
        "WHOLE": int((head, value) == (problem.head_size, problem.value_size)),
        "RELATIVE_WORDS": int(problem.bias_words),
        "PLAIN": int(_are_products(operands)),
        "SPLIT": int(split),
    }
    kernel = _Kernel(
        f"attention_{way}",
        constants,
        (row_tiles, problem.heads, parts.number),
        {"mask_filter": filter_value, "part_tiles": parts.tiles, "summaries": parts.summaries},
        (parts.where if split else operands.y.where,),
        variant={"IN_PLACE": in_place(way), "FRAGMENTS": way == "fragments"},
        subgroup_size=caps.subgroup_size,
    )
    return _plan(desc, problem, operands, caps, kernel, parts if split else None)


class Parts(NamedTuple):
    """The parts into which keys are shared out.

    Attributes:
        number: The number of parts.
        tiles: The tiles of keys in each part.
        where: Temporary memory for what they leave, see ``glsl/attention_merge.comp``.
        summaries: The place in it where peaks and sums of weights start, in numbers.
    """

    number: int
    tiles: int
    where: Range
    summaries: int


_MATRIX_WORKGROUPS = 4
_TILE_WORKGROUPS = 16
"""The workgroups for each processor that parts of the keys should make, in the kernel of matrices where its shapes were not
measured, and in that of tiles."""


def _enough_parts(problem: AttentionProblem, tiles: int, workgroups: int) -> int:
    """Parts that together make about so many workgroups. ``tiles``: those of one head's rows and columns."""
    return min(-(-workgroups // (problem.heads * tiles)), max(-(-problem.keys // ATTENTION_SPLIT_KEYS), 2))


def _parts(problem: AttentionProblem, operands: Operands, tile_keys: int, wanted: int, *, split: bool) -> Parts:
    """About as many parts as are wanted; one that is not ``split`` needs no memory."""
    key_tiles = -(-problem.keys // tile_keys)
    tiles = -(-key_tiles // max(min(wanted, key_tiles), 1))
    count = -(-key_tiles // tiles)
    all_rows = count * problem.heads * problem.rows
    nbytes = 4 * all_rows * (problem.value_size + 2) if split else 0
    where = Range(Source.TEMPORARY, 0, operands.temporary_bytes, nbytes)
    return Parts(count, tiles, where, all_rows * problem.value_size if split else 0)


def _plan(
    desc: OperatorDesc,
    problem: AttentionProblem,
    operands: Operands,
    caps: Capabilities,
    kernel: _Kernel,
    parts: Parts | None,
) -> Plan:
    """The kernel between what it needs before and after."""
    launches = (*operands.before, _dispatch(problem, operands, kernel))
    if problem.unpadded:
        launches = (*_zeros(desc.tensor("output_tensor"), caps), *launches)
    if parts is None:
        return Plan(launches, temporary_bytes=operands.temporary_bytes)
    merge = merge_parts(problem, operands, caps, parts)
    return Plan((*launches, merge), temporary_bytes=operands.temporary_bytes + aligned(parts.where.nbytes))


def _tiled(
    desc: OperatorDesc, problem: AttentionProblem, caps: Capabilities, operands_of: OperandsOf, *, split: bool = False
) -> Plan:
    tile = fastest_tile(problem, caps, split=split)
    shape = tile.shape
    operands = operands_of(desc, caps)
    column_tiles = -(-problem.value_size // tile.columns)
    row_tiles = -(-problem.rows // shape.rows)
    wanted = _enough_parts(problem, row_tiles * column_tiles, _TILE_WORKGROUPS * caps.model.processors) if split else 1
    parts = _parts(problem, operands, shape.keys, wanted, split=split)
    chunks = -(-problem.head_size // shape.depth) + shape.keys // shape.depth
    staged = -(-(shape.rows + shape.keys) * shape.depth // 4 // shape.invocations)
    check_rounds(parts.tiles * chunks * (staged + shape.depth // 4), caps, desc.dml_name)
    constants = {
        "LOCAL_SIZE_X": shape.invocations,
        "ACROSS": tile.across,
        "STEP": tile.step,
        "TILE_ROWS": shape.rows,
        "TILE_KEYS": shape.keys,
        "TILE_COLUMNS": tile.columns,
        "DEPTH": shape.depth,
        "HEAD": tile.head,
        "SPLIT": int(split),
    }
    kernel = _Kernel(
        "attention_tiles",
        constants,
        (row_tiles, problem.heads, parts.number * column_tiles),
        {"part_tiles": parts.tiles, "summaries": parts.summaries},
        (parts.where if split else operands.y.where,),
    )
    return _plan(desc, problem, operands, caps, kernel, parts if split else None)


def _blocks(desc: OperatorDesc, problem: AttentionProblem, caps: Capabilities, operands_of: OperandsOf) -> Plan:
    shape = attention_block(problem, caps)
    assert shape is not None, "the rule is possible"
    operands = operands_of(desc, caps)
    columns = shape.columns(problem.value_size)
    chunks = -(-problem.head_size // BLOCK_DEPTH) + shape.keys // BLOCK_DEPTH
    check_rounds(-(-problem.keys // shape.keys) * chunks * BLOCK_DEPTH, caps, desc.dml_name)
    constants = {
        "LOCAL_SIZE_X": shape.invocations,
        "TILE_ROWS": shape.rows,
        "TILE_KEYS": shape.keys,
        "TILE_COLUMNS": columns,
        "DEPTH": BLOCK_DEPTH,
        "WHOLE": int(problem.head_size % BLOCK_DEPTH == 0 and problem.value_size == columns),
    }
    grid = -(-problem.rows // shape.rows), problem.heads, 1
    return _plan(desc, problem, operands, caps, _Kernel("attention_blocks", constants, grid, {}), None)


_SCORES_BYTES = 1 << 28
"""Temporary memory of all scores that are there at a time, where sizes are known; more queries come in blocks."""
_LEAST_BLOCK = 64
"""Queries of a block that tiles of products are for, where a storage buffer has room for their scores."""


def _products(desc: OperatorDesc, problem: AttentionProblem, caps: Capabilities, operands_of: OperandsOf) -> Plan:
    """Scores, their softmax and the weighted values as operators of their own, for a block of queries after the other.
    Scores are FLOAT32; FLOAT16 heads multiply weights that are rounded to it, as in every other kernel of theirs."""
    operands = operands_of(desc, caps)
    queries, of_query = problem.queries, problem.heads * problem.group * problem.keys
    blocks = [(0, queries)]
    if is_plain((queries, of_query)):
        most = max(_SCORES_BYTES // (4 * of_query), _LEAST_BLOCK)
        most = max(min(most, caps.storage_buffer_bytes // (4 * of_query)), 1)
        blocks = [(first, min(most, queries - first)) for first in range(0, queries, most)]
    temporary = Resource(Source.TEMPORARY)
    raw, weights = (temporary.take(bits // 8 * of_query * blocks[0][1]) for bits in (32, problem.bits))
    scratch = aligned(temporary.end)
    launches: list[Launch] = []
    needed = 0
    for block in blocks:
        for plan, inputs, output in _block_of_products(operands, problem, caps, block, raw, weights, desc.dml_name):
            launches += placed(plan, inputs=inputs, outputs=(output,), temporary=scratch)
            needed = max(needed, plan.temporary_bytes)
    return Plan(tuple(launches), temporary_bytes=scratch + needed)


def _block_of_products(
    operands: Operands,
    problem: AttentionProblem,
    caps: Capabilities,
    block: tuple[int, int],
    raw: Range,
    made: Range,
    name: str,
) -> Iterator[tuple[Plan, tuple[Range | None, ...], Range]]:
    """The plans of a block of queries, the first and how many, each with where its inputs and its output are: scores go to
    ``raw``, and what they make to ``made``."""
    first, queries = block
    # {batch, heads, rows, size}; where query heads share those of keys, and there is one batch entry, {heads of keys, query
    # heads of each, rows, size}
    leading = (problem.batch, problem.key_heads) if problem.group == 1 else (problem.key_heads, problem.group)
    own = operands.data_type

    def tensor(rows: int, size: int, strides: Strides, *, of_keys: bool = False) -> TensorDesc:
        entry, row, head, element = strides
        if problem.group > 1:
            entry, head = (head, 0) if of_keys else (problem.group * head, head)
        return TensorDesc(own, (*leading, rows, size), (entry, head, row, element))

    def begin(rows: Rows, row: int = 0) -> Range:
        elements = rows.start + row * rows.strides[1]
        return rows.where._replace(offset=rows.where.offset + elements * (element_bits(own) // 8))

    keys, values = problem.keys, problem.value_size
    scores, weights = (TensorDesc(data_type, (*leading, queries, keys)) for data_type in (TensorDataType.FLOAT32, own))
    a = tensor(queries, problem.head_size, operands.q.strides)
    b = tensor(keys, problem.head_size, operands.k.strides, of_keys=True)
    q, k, v, y = begin(operands.q, first), begin(operands.k), begin(operands.v), begin(operands.y, first)
    softmax = chosen_plan(SoftmaxOrZero(input_tensor=scores, output_tensor=scores, axes=(3,), keeps_nan=True), caps, name)
    if own is TensorDataType.FLOAT16:
        yield matmul.products_of_halves(a, b, scores, caps, alpha=problem.scale), (q, k), raw
        yield softmax, (raw,), raw
        yield chosen_plan(ops.Cast(input_tensor=scores, output_tensor=weights), caps, name), (raw,), made
    else:
        added, relative = None, None
        if operands.around.constants["HAS_RELATIVE"]:
            entry, head, row, key = operands.around.params["relative_strides"]
            added = tensor(queries, keys, (entry, row, head, key))
            where = operands.around.bindings[_RELATIVE_BINDING]
            relative = where._replace(offset=where.offset + first * row * (element_bits(own) // 8))
        product = ops.Gemm(
            a_tensor=a,
            b_tensor=b,
            c_tensor=added,
            output_tensor=scores,
            trans_b=MatrixTransform.TRANSPOSE,
            alpha=problem.scale,
            beta=1.0,
        )
        yield chosen_plan(product, caps, name), (q, k, relative), raw
        yield softmax, (raw,), made
    weighted = ops.Gemm(
        a_tensor=weights,
        b_tensor=tensor(keys, values, operands.v.strides, of_keys=True),
        output_tensor=tensor(queries, values, operands.y.strides),
    )
    yield chosen_plan(weighted, caps, name), (made, v, None), y


def parts_together(caps: Capabilities) -> int:
    """The parts that are brought together at once: a CPU's driver takes seconds to compile unrolled loops."""
    return 1 if caps.is_cpu else PARTS_TOGETHER


def _merged_together(parts: int, most: int) -> int:
    """Of few parts no more are loaded than there are, but for a power of 2."""
    return min(power_of_two(parts), most)


def merge_parts(problem: AttentionProblem, operands: Operands, caps: Capabilities, parts: Parts) -> Dispatch:
    """Brings the sums of the parts together."""
    count = problem.heads * problem.rows * problem.value_size
    local = min(128, most_invocations(caps))
    return make_dispatch(
        "attention_merge",
        (parts.where, operands.y.where),
        linear_grid(-(-count // local), caps),
        variant={"T": operands.data_type.name},
        constants={
            "LOCAL_SIZE_X": local,
            "GROUP": problem.group,
            "PARTS_TOGETHER": decided(_merged_together, parts.number, parts_together(caps)),
        },
        count=count,
        parts=parts.number,
        summaries=parts.summaries,
        queries=problem.queries,
        key_heads=problem.key_heads,
        value_size=problem.value_size,
        y_strides=operands.y.strides,
    )


def schedules(operands_of: OperandsOf) -> dict[str, Schedule]:
    """The schedules of ``ATTENTION`` for an operator whose operands lie where the function says."""
    named: dict[str, Callable[..., Plan]] = {
        "products": _products,
        "split": functools.partial(_tiled, split=True),
        "blocks": _blocks,
        "tiles": _tiled,
        "naive": _naive,
    }
    for way in ATTENTION_SHAPES:
        named[way] = functools.partial(_matrices, way=way)
        named[f"{way} split"] = functools.partial(_matrices, way=way, split=True)
    return {name: functools.partial(schedule, operands_of=operands_of) for name, schedule in named.items()}


register(
    ops.MultiheadAttention1,
    problem=_problem,
    rules=ATTENTION,
    schedules=schedules(_operands),
    limitations=(LOOP_ROUNDS,),
)
