"""Cases of ``ops.movement``, all compared bit for bit.

The kernels know an element's size only, so most cases run with one data type of each size; those that the others need to
prove that they are mapped to a size run with all.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import DepthSpaceOrder, PaddingMode
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.verify.cases.model import MOVED, NUMPY_TYPES, Array, Case, OperatorCases, any_bits, integer_limits

_Sizes = tuple[int, ...]

_OF_EACH_SIZE: Final = (T.INT8, T.FLOAT16, T.FLOAT32, T.INT64)
_INPUT: Final = "input_tensor"


def _case(
    name: str,
    inputs: Mapping[str, _Sizes],
    attributes: Mapping[str, object],
    outputs: Mapping[str, _Sizes],
    *,
    every: bool = False,
    layouts: bool = False,
    quick: bool = False,
) -> Case:
    """``every``: with every data type."""
    only = () if every else _OF_EACH_SIZE
    return Case(name, inputs, attributes, outputs, domains={"": any_bits}, layouts=layouts, only=only, quick=quick)


# -- Slice


def _slice1(
    name: str,
    sizes: _Sizes,
    offsets: _Sizes,
    window: _Sizes,
    strides: tuple[int, ...],
    output: _Sizes | None = None,
    *,
    every: bool = False,
    layouts: bool = False,
    quick: bool = False,
) -> Case:
    attributes = {"input_window_offsets": offsets, "input_window_sizes": window, "input_window_strides": strides}
    outputs = {} if output is None else {"output_tensor": output}
    return _case(name, {_INPUT: sizes}, attributes, outputs, every=every, layouts=layouts, quick=quick)


_SLICE1: Final = (
    _slice1("rows from one element on", (7, 67), (2, 1), (4, 65), (1, 1), every=True, layouts=True, quick=True),
    _slice1("whole words of rows", (6, 80), (0, 16), (6, 48), (1, 1), layouts=True, quick=True),
    _slice1("whole rows", (9, 37), (3, 0), (5, 37), (1, 1)),
    _slice1("rows of three", (23, 7), (1, 2), (21, 3), (1, 1), layouts=True),
    _slice1("pairs of pairs", (41, 10), (3, 4), (38, 4), (1, 1)),
    _slice1("more than a tile, which a layout turns", (151, 160), (16, 16), (131, 144), (1, 1), layouts=True),
    _slice1("single elements of rows", (37, 5), (0, 4), (37, 1), (1, 1)),
    _slice1("elements in reverse", (3, 37), (0, 0), (3, 37), (1, -1), every=True, layouts=True),
    _slice1("rows in reverse", (17, 33), (1, 0), (16, 33), (-1, 1), layouts=True),
    _slice1("every third element of every other row", (9, 41), (1, 2), (8, 39), (2, 3)),
    _slice1("steps back, not all of the window", (11, 29), (2, 1), (9, 28), (-2, -3), (3, 7), layouts=True),
    _slice1("the beginning of the window alone", (5, 40), (1, 3), (4, 37), (1, 1), (2, 11)),
    _slice1("a step beyond the window", (4, 9), (3, 2), (1, 5), (7, -100)),
    _slice1("a middle dimension", (2, 9, 5, 8), (0, 2, 0, 0), (2, 6, 5, 8), (1, 1, 1, 1)),
    _slice1("one dimension", (101,), (3,), (97,), (1,)),
    _slice1("one element", (1,), (0,), (1,), (-1,)),
    _slice1("a long row from one element on", (2, 5003), (0, 1), (2, 5001), (1, 1)),
    _slice1("four dimensions", (2, 3, 7, 19), (0, 1, 2, 3), (2, 2, 5, 13), (-1, 1, -2, 1), layouts=True),
    _slice1(
        "eight dimensions",
        (3, 2, 3, 2, 3, 2, 3, 5),
        (1, 0, 0, 1, 0, 0, 1, 1),
        (2, 2, 3, 1, 3, 2, 2, 4),
        (1, -1, 2, 1, 1, -1, 1, 1),
    ),
)

_SLICE: Final = (
    _case(
        "rows from one element on",
        {_INPUT: (7, 67)},
        {"offsets": (2, 1), "sizes": (4, 65), "strides": (1, 1)},
        {},
        every=True,
        quick=True,
    ),
    _case(
        "steps",
        {_INPUT: (2, 9, 41)},
        {"offsets": (1, 1, 2), "sizes": (1, 4, 13), "strides": (9, 2, 3)},
        {},
        layouts=True,
    ),
)


def _slice_grad(case: Case) -> Case:
    """The case that puts back what a case of Slice1 took."""
    desc = ops.Slice1(**case.attributes)  # type: ignore[arg-type]
    taken = case.outputs.get("output_tensor") or desc.inferred_output_sizes()[0]
    sizes = {"output_gradient_tensor": case.inputs[_INPUT]}
    return dataclasses.replace(case, inputs={"input_gradient_tensor": taken}, outputs=sizes)


_BACK: Final = (
    _slice1("every other element of whole words", (5, 96), (0, 0), (5, 96), (1, 2), layouts=True, quick=True),
    _slice1("every other row of whole words", (12, 48), (1, 0), (11, 48), (2, 1), layouts=True),
    _slice1("the other way round, to whole words", (6, 64), (1, 16), (4, 32), (-1, 1)),
    _slice1("steps along all dimensions", (7, 5, 9, 11), (1, 0, 2, 1), (6, 5, 7, 10), (2, -3, 1, 4)),
    _slice1("one dimension in steps", (103,), (2,), (98,), (5,), every=True),
    _slice1(
        "steps along eight dimensions",
        (3, 2, 3, 2, 3, 2, 3, 4),
        (0,) * 8,
        (3, 2, 3, 2, 3, 2, 3, 4),
        (2, -1, 2, 1, -2, 1, 1, 3),
    ),
)

_SLICE_GRAD: Final = tuple(map(_slice_grad, (*_SLICE1, *_BACK)))


# -- Split and Join


def _pieces(sizes: _Sizes, axis: int, parts: _Sizes) -> list[_Sizes]:
    return [(*sizes[:axis], length, *sizes[axis + 1 :]) for length in parts]


_PARTS: Final = {
    "rows": ((13, 29), 0, (4, 1, 8)),
    "the last dimension, unaligned": ((7, 67), 1, (1, 33, 33)),
    "the last dimension, whole words": ((5, 112), 1, (16, 32, 64)),
    "a single piece": ((5, 13), 1, (13,)),
    "a middle dimension": ((3, 10, 4, 4), 1, (1, 2, 3, 1, 3)),
    "pieces of one element": ((19, 5), 1, (1, 1, 1, 1, 1)),
    "pieces of three elements": ((3, 3, 12), 2, (3, 3, 6)),
    "one dimension": ((103,), 0, (97, 1, 5)),
    "two long rows": ((2, 5003), 1, (2500, 2503)),
    "eight dimensions": ((2, 1, 3, 2, 5, 2, 1, 3), 4, (2, 1, 2)),
}
"""The sizes of a whole, the axis along which it is split or joined, and the lengths of the pieces."""
_EVERY_TYPE: Final = ("the last dimension, unaligned",)
_LAYOUTS: Final = ("rows", "the last dimension, unaligned", "the last dimension, whole words", "a middle dimension")


def _parted(make: Callable[[_Sizes, list[_Sizes]], tuple[dict[str, _Sizes], dict[str, _Sizes]]]) -> tuple[Case, ...]:
    """The cases of Split or Join: ``make`` names the inputs and the outputs, given the whole's sizes and the pieces'."""
    cases = []
    for name, (sizes, axis, parts) in _PARTS.items():
        inputs, outputs = make(sizes, _pieces(sizes, axis, parts))
        every, quick = name in _EVERY_TYPE, name in _LAYOUTS[:2]
        cases.append(_case(name, inputs, {"axis": axis}, outputs, every=every, layouts=name in _LAYOUTS, quick=quick))
    return tuple(cases)


def _numbered(name: str, sizes: list[_Sizes]) -> dict[str, _Sizes]:
    return {f"{name}[{index}]": own for index, own in enumerate(sizes)}


_SPLIT: Final = _parted(lambda whole, pieces: ({_INPUT: whole}, _numbered("output_tensors", pieces)))
_JOIN: Final = _parted(lambda whole, pieces: (_numbered("input_tensors", pieces), {}))


# -- Padding

_PADDED: Final = {
    "height and width": ((2, 3, 5, 7), (0, 0, 1, 1), (0, 0, 1, 1)),
    "whole rows": ((3, 5, 16), (1, 2, 0), (0, 1, 0)),
    "whole words in the last dimension": ((3, 48), (0, 16), (1, 32)),
    "the end of the last dimension": ((11, 13), (0, 0), (0, 4)),
    "rows of three": ((17, 3), (0, 2), (0, 1)),
    "one dimension, more than once the input": ((5,), (23,), (17,)),
    "more than once the input": ((3, 2, 7), (7, 5, 0), (4, 0, 31)),
    "dimensions of one element": ((1, 3, 1), (2, 1, 3), (1, 0, 2)),
    "nothing": ((3, 5, 7), (0, 0, 0), (0, 0, 0)),
    "long rows": ((2, 2503), (0, 1), (0, 3)),
    "eight dimensions": ((2, 1, 3, 2, 1, 2, 2, 3), (0, 1, 0, 1, 0, 0, 1, 2), (1, 0, 0, 0, 1, 0, 0, 1)),
}
_PADDED_LAYOUTS: Final = ("height and width", "more than once the input")


def _value(data_type: T) -> float:
    """A number with as many different bytes as the type has."""
    if NUMPY_TYPES[data_type].kind == "f":
        return -1.2345678901234567
    return 0x123456789ABCDEF0 % (integer_limits(data_type)[1] + 1)


def _padding1(name: str, data_type: T, mode: PaddingMode, value: float, *, layouts: bool, quick: bool) -> Case:
    sizes, start, end = _PADDED[name]
    return Case(
        f"{data_type.name}, {mode.name}, {name}" + f", {value}" * math.isnan(value),
        {_INPUT: sizes},
        {
            "padding_mode": mode,
            "padding_value_data_type": data_type,
            "padding_value": value,
            "start_padding": start,
            "end_padding": end,
        },
        domains={"": any_bits},
        layouts=layouts,
        only=(data_type,),
        quick=quick,
    )


def _padded_types(mode: PaddingMode, name: str) -> tuple[T, ...]:
    if mode == PaddingMode.CONSTANT and name == "height and width":
        return ops.Padding1.fields[0].data_types
    # Which element is repeated where does not depend on how large it is.
    return _OF_EACH_SIZE if mode in (PaddingMode.CONSTANT, PaddingMode.REFLECTION) else (T.INT8, T.FLOAT32)


def _padded_cases() -> Iterator[Case]:
    for mode, name in itertools.product(PaddingMode, _PADDED):
        for data_type in _padded_types(mode, name):
            common = data_type in _OF_EACH_SIZE
            layouts, quick = common and name in _PADDED_LAYOUTS, common and name == "height and width"
            yield _padding1(name, data_type, mode, _value(data_type), layouts=layouts, quick=quick)
    for data_type in MOVED:
        yield _padding1("rows of three", data_type, PaddingMode.CONSTANT, math.nan, layouts=False, quick=False)


_PADDING: Final = tuple(
    Case(
        f"{mode.name}, {value}",
        {_INPUT: (2, 3, 5)},
        {"padding_mode": mode, "padding_value": value, "start_padding": (0, 1, 2), "end_padding": (1, 0, 1)},
        domains={"": any_bits},
        layouts=False,
        quick=value == 300.75,
    )
    for mode, value in (
        (PaddingMode.CONSTANT, 300.75),
        (PaddingMode.CONSTANT, -1.5),
        (PaddingMode.CONSTANT, math.inf),
        (PaddingMode.EDGE, 1.0),
        (PaddingMode.WRAP, 1.0),
    )
)


# -- Tile


def _tile(name: str, sizes: _Sizes, repeats: _Sizes, *, every: bool = False, layouts: bool = False) -> Case:
    return _case(name, {_INPUT: sizes}, {"repeats": repeats}, {}, every=every, layouts=layouts, quick=every)


_TILE: Final = (
    _tile("the last dimension", (7, 13), (1, 3), every=True, layouts=True),
    _tile("the first dimension", (3, 29), (5, 1), layouts=True),
    _tile("whole words", (2, 48), (3, 2), layouts=True),
    _tile("all of four dimensions", (2, 3, 5, 7), (2, 1, 3, 2), layouts=True),
    _tile("single elements", (5, 1, 1), (1, 11, 13)),
    _tile("rows of three", (4, 3), (2, 17)),
    _tile("once", (3, 7), (1, 1)),
    _tile("one dimension", (7,), (31,)),
    _tile("a long row", (1, 2503), (2, 2)),
    _tile("eight dimensions", (2, 1, 3, 1, 2, 1, 2, 3), (1, 2, 1, 3, 1, 2, 1, 2)),
)


# -- SpaceToDepth and DepthToSpace

_BLOCKS: Final = {
    "blocks of 2": ((2, 3, 5, 7), 2),
    "blocks of 3": ((1, 2, 3, 11), 3),
    "blocks of 1": ((2, 3, 4, 5), 1),
    "whole words": ((1, 4, 3, 16), 2),
    "many columns": ((1, 2, 2, 131), 4),
    "single pixels": ((3, 5, 1, 1), 2),
    "strips of 2 for several workgroups": ((1, 4, 9, 64), 2),
    "strips of 3": ((2, 2, 5, 48), 3),
    "strips of 4, in 4 or 8 bytes": ((1, 3, 7, 36), 4),
    "a long strip, one word past a workgroup": ((1, 1, 1, 2064), 2),
}
"""The sizes {N, channels, rows, columns} that the operators move between, and the size of the blocks."""


def _block_case(name: str, order: DepthSpaceOrder | None, *, to_space: bool) -> Case:
    (batch, channels, height, width), block = _BLOCKS[name]
    deep, wide = (batch, channels * block**2, height, width), (batch, channels, height * block, width * block)
    main = name == "blocks of 2"
    attributes = {"block_size": block} | ({} if order is None else {"order": order})
    return _case(
        name if order is None else f"{name}, {order.name}",
        {_INPUT: deep if to_space else wide},
        attributes,
        {},
        every=main and order != DepthSpaceOrder.COLUMN_ROW_DEPTH,
        layouts=name in ("blocks of 2", "whole words", "strips of 3") and order is not None,
        quick=main,
    )


def _blocks(*, to_space: bool) -> tuple[Case, ...]:
    return tuple(_block_case(name, order, to_space=to_space) for name in _BLOCKS for order in DepthSpaceOrder)


# -- ReverseSubsequences


def lengths(rng: np.random.Generator, sizes: _Sizes, data_type: T) -> Array:
    """Lengths from 0 to a little above what the cases have along their axes, and now and then one far above."""
    most = integer_limits(data_type)[1]
    far = np.array([most, 2**31 + 1, most - most // 3], NUMPY_TYPES[data_type])
    near = rng.integers(0, 20, sizes).astype(far.dtype)
    return np.where(rng.integers(0, 6, sizes) == 0, rng.choice(far, sizes), near)


def _above_32_bits(rng: np.random.Generator, sizes: _Sizes, data_type: T) -> Array:
    """Lengths that a reader of 32 bits would take for 0 to 3."""
    return 2**32 + rng.integers(0, 4, sizes).astype(NUMPY_TYPES[data_type])


def _reverse(
    name: str,
    sizes: _Sizes,
    axis: int,
    length_type: T = T.UINT32,
    *,
    domain: Callable[[np.random.Generator, _Sizes, T], Array] = lengths,
    every: bool = False,
    layouts: bool = False,
) -> Case:
    field = "sequence_lengths_tensor"
    return Case(
        name,
        {_INPUT: sizes, field: (*sizes[:axis], 1, *sizes[axis + 1 :])},
        {"axis": axis},
        data_types={field: length_type},
        domains={"": any_bits, field: domain},
        layouts=layouts,
        only=() if every else _OF_EACH_SIZE,
        quick=every,
    )


_REVERSE: Final = (
    _reverse("the last axis", (11, 19), 1, every=True, layouts=True),
    _reverse("the first axis", (17, 5, 7), 0, T.UINT64, every=True, layouts=True),
    _reverse("a middle axis, whole words", (3, 13, 2, 32), 1, layouts=True),
    _reverse("an axis of one element", (5, 1, 7), 1, T.UINT64),
    _reverse("one dimension", (23,), 0),
    _reverse("lengths above 32 bits", (37, 9), 1, T.UINT64, domain=_above_32_bits),
    _reverse("a long axis", (3, 2503), 1),
    _reverse("a long axis of rows", (1301, 3), 0),
    _reverse("eight dimensions", (2, 1, 3, 2, 5, 1, 2, 3), 4, T.UINT64),
)


CASES = (
    OperatorCases(ops.Slice1, MOVED, _SLICE1),
    OperatorCases(ops.Slice, MOVED, _SLICE, every_rule=False),
    OperatorCases(ops.SliceGrad, MOVED, _SLICE_GRAD),
    OperatorCases(ops.Split, MOVED, _SPLIT),
    OperatorCases(ops.Join, MOVED, _JOIN),
    OperatorCases(ops.Padding1, MOVED, tuple(_padded_cases())),
    OperatorCases(ops.Padding, MOVED, _PADDING, every_rule=False),
    OperatorCases(ops.Tile, MOVED, _TILE),
    OperatorCases(ops.SpaceToDepth1, MOVED, _blocks(to_space=False)),
    OperatorCases(ops.SpaceToDepth, MOVED, (_block_case("blocks of 2", None, to_space=False),), every_rule=False),
    OperatorCases(ops.DepthToSpace1, MOVED, _blocks(to_space=True)),
    OperatorCases(ops.DepthToSpace, MOVED, (_block_case("blocks of 2", None, to_space=True),), every_rule=False),
    OperatorCases(ops.ReverseSubsequences, MOVED, _REVERSE),
)
