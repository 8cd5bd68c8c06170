"""Cases of ``ops.fill``. All are exact: fills move bits, and a sequence's rounding is part of its row."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.verify.cases.model import NUMPY_TYPES, Case, OperatorCases, indices_around, special

QUICK: Final = (T.FLOAT32, T.INT64, T.UINT8)
"""Data types whose cases are quick: one of each way of writing."""

_LIMITS: Final = {data_type: np.iinfo(kind) for data_type, kind in NUMPY_TYPES.items() if kind.kind != "f"}
_FLOATS: Final = (T.FLOAT64, T.FLOAT32, T.FLOAT16)


def _constants(data_type: T) -> list[float]:
    """Numbers with as many different bytes as the type has, and its edges."""
    if data_type in _FLOATS:
        return [-1.2345678901234567, math.nan, -math.inf, -0.0]
    limits = _LIMITS[data_type]
    return [0x123456789ABCDEF0 % (int(limits.max) + 1), int(limits.min)]


def _filled(data_type: T) -> list[Case]:
    sizes = {"a tail after whole words": (2, 3, 5, 7), "eight dimensions": (2, 1, 3, 1, 2, 2, 1, 5), "one element": (1,)}
    first, *others = _constants(data_type)
    cases = [
        Case(
            f"{data_type.name}, {name}",
            {},
            {"value_data_type": data_type, "value": first},
            outputs={"output_tensor": own},
            only=(data_type,),
            quick=data_type in QUICK and name == "a tail after whole words",
        )
        for name, own in sizes.items()
    ]
    for value in others:
        attributes = {"value_data_type": data_type, "value": value}
        outputs = {"output_tensor": (4, 33)}
        cases.append(Case(f"{data_type.name}, {value}", {}, attributes, outputs=outputs, only=(data_type,), layouts=False))
    return cases


def _steps(data_type: T) -> list[tuple[float, float]]:
    """Starts and deltas: one that rounds at every element, or that wraps at most of them."""
    if data_type in _FLOATS:
        return [(-3.1, 0.7), (0.0, math.inf), (math.nan, 1.0), (1e4, -1 / 3)]
    limits = _LIMITS[data_type]
    largest = int(limits.max)
    return [(largest - 3, largest // 3), (5, -2 if limits.min == 0 else int(limits.min)), (0, 1)]


def _sequences(data_type: T) -> list[Case]:
    first, *others = _steps(data_type)
    sizes = {"a tail after whole words": (2, 3, 5, 7), "eight dimensions": (2, 1, 3, 1, 2, 2, 1, 5), "one element": (1,)}
    cases = [
        Case(
            f"{data_type.name}, {name}",
            {},
            {"value_data_type": data_type, "value_start": first[0], "value_delta": first[1]},
            outputs={"output_tensor": own},
            only=(data_type,),
            quick=data_type in QUICK and name == "a tail after whole words",
        )
        for name, own in sizes.items()
    ]
    for start, delta in others:
        attributes = {"value_data_type": data_type, "value_start": start, "value_delta": delta}
        outputs = {"output_tensor": (3, 347)}
        name = f"{data_type.name}, {start} and {delta}"
        cases.append(Case(name, {}, attributes, outputs=outputs, only=(data_type,), layouts=False))
    return cases


_DIAGONALS: Final = {
    "the main diagonal": (0, 1),
    "a band": (-2, 5),
    "all but a band": (4, -3),
    "nothing": (3, 3),
    "below and on the diagonal": (-(2**31), 1),
    "everything": (-(2**31), 2**31 - 1),
    "all but an empty band outside": (2**31 - 1, -(2**31)),
}


def _diagonals(data_type: T) -> list[Case]:
    cases = []
    for name, (begin, end) in _DIAGONALS.items():
        for background in (False, True):
            sizes = (2, 3, 13, 16) if background else (19, 11)
            cases.append(
                Case(
                    f"{data_type.name}, {name}{', on a background' * background}",
                    {"input_tensor": sizes} if background else {},
                    {
                        "value_data_type": data_type,
                        "value": _constants(data_type)[0],
                        "diagonal_fill_begin": begin,
                        "diagonal_fill_end": end,
                    },
                    outputs={"output_tensor": sizes},
                    domains={"": special},
                    layouts=name == "a band",
                    only=(data_type,),
                    quick=data_type in QUICK and name == "all but a band",
                )
            )
    return cases


def _single_diagonals() -> tuple[Case, ...]:
    offsets = (((7, 5), 0, 1.0), ((2, 3, 9, 16), 4, -3.75), ((2, 1, 16, 3), -6, 300.5), ((3, 4), 2**31 - 1, 1.0))
    return tuple(
        Case(
            f"diagonal {offset}",
            {},
            {"offset": offset, "value": value},
            outputs={"output_tensor": sizes},
            quick=offset == 4,
        )
        for sizes, offset, value in offsets
    )


def _one_hots() -> tuple[Case, ...]:
    shapes = (
        ("along the last dimension", (3, 7, 12), 2, (1, 1, 2)),
        ("along the first dimension", (5, 3, 8), 0, (2, 1, 1)),
        ("along a middle dimension, more values than two", (2, 11, 1, 5), 1, (2, 1, 3, 2)),
        ("one dimension", (29,), 0, (2,)),
    )
    return tuple(
        Case(
            f"{index_type.name}, {name}",
            {"indices_tensor": (*sizes[:axis], 1, *sizes[axis + 1 :]), "values_tensor": values},
            {"axis": axis},
            outputs={"output_tensor": sizes},
            data_types={"indices_tensor": index_type},
            domains={"indices_tensor": indices_around(sizes[axis])},
            layouts=index_type is T.INT64 or axis == 1,
            quick=index_type is T.INT32 and axis == 2,
        )
        for index_type in (T.INT64, T.INT32, T.UINT64, T.UINT32)
        for name, sizes, axis, values in shapes
    )


_TYPES: Final = ops.FillValueConstant.fields[0].data_types

CASES: Final = (
    OperatorCases(ops.FillValueConstant, {}, tuple(case for kind in _TYPES for case in _filled(kind))),
    OperatorCases(
        ops.FillValueSequence,
        {},
        tuple(case for kind in ops.FillValueSequence.fields[0].data_types for case in _sequences(kind)),
    ),
    OperatorCases(ops.DiagonalMatrix, {}, _single_diagonals()),
    OperatorCases(ops.DiagonalMatrix1, {}, tuple(case for kind in _TYPES for case in _diagonals(kind))),
    OperatorCases(ops.OneHot, {}, _one_hots(), data_types=_TYPES),
)
