"""Cases of ``ops.chain``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops.chain import FIRST_NUMBER, FIRST_RESULT, NONE, MultiTensorChain, PointwiseChain
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, OperatorCases, Tolerance, uniform

_A, _B, _C = range(3)
_NUMBER = FIRST_NUMBER


class _Operation(NamedTuple):
    """An operation of a chain, its operands, and its number."""

    desc: OperatorDesc
    operands: tuple[int, ...]
    number: float = 0.0


def _program(operations: Sequence[_Operation]) -> dict[str, object]:
    return {
        "operator_descs": tuple(own.desc for own in operations),
        "operands": tuple(name for own in operations for name in (*own.operands, NONE, NONE)[:3]),
        "numbers": tuple(number for own in operations for number in (own.number, 0.0)),
    }


def _result(index: int) -> int:
    return FIRST_RESULT + index


_SCALED = (
    _Operation(ops.ElementWiseMultiply(), (_A, _B)),
    _Operation(ops.ElementWiseAdd(), (_result(0), _C)),
    _Operation(ops.ActivationTanh(), (_result(1),)),
    _Operation(ops.ElementWiseMultiply(), (_result(2), _NUMBER), 0.75),
)
"""0.75 tanh(a b + c)."""
_GELU = (
    _Operation(ops.ActivationGelu(), (_A,)),
    _Operation(ops.ElementWiseMultiply(), (_result(0), _B)),
)
_LARGEST = (
    _Operation(ops.ElementWiseMax(), (_A, _B)),
    _Operation(ops.ElementWiseMin(), (_result(0), _NUMBER), 3.5),
)
"""Nothing is rounded."""
_ROUNDED = (
    _Operation(ops.ElementWiseMultiply(), (_A, _NUMBER), 3.0),
    _Operation(FormatCast(format=NumberFormat.BFLOAT16), (_result(0),)),
)
_STEP = (
    _Operation(ops.ElementWiseMultiply(), (_B, _NUMBER), -0.125),
    _Operation(ops.ElementWiseAdd(), (_A, _result(0))),
)
"""a - b / 8: a step of an optimiser."""


def _chain(
    name: str,
    operations: Sequence[_Operation],
    inputs: int,
    sizes: tuple[int, ...],
    *,
    only: tuple[T, ...] = (),
    quick: bool = False,
) -> Case:
    """Of numbers of one sign, so that nothing cancels."""
    return Case(
        name,
        {f"input_tensors[{index}]": sizes for index in range(inputs)},
        _program(operations),
        {"output_tensor": sizes},
        domains={"": uniform(0.5, 2)},
        only=only,
        quick=quick,
    )


def _to_bits(name: str, sizes: tuple[int, ...], *, quick: bool = False) -> Case:
    """Of a number of inputs that are no wider than its digits, so that nothing is rounded before."""
    case = _chain(name, _ROUNDED, 1, sizes, only=(T.FLOAT32,), quick=quick)
    return dataclasses.replace(case, data_types={"output_tensor": T.UINT16}, domains={"": _short}, layouts=False)


def _short(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Numbers of up to 12 bits, whole or with up to 4 places: three times as much is what FLOAT32 has."""
    return (rng.integers(-4096, 4096, sizes) / 16).astype(NUMPY_TYPES[data_type])


def _of_several(name: str, tensors: Sequence[tuple[int, ...]], *, quick: bool = False) -> Case:
    return Case(
        name,
        {
            f"input_tensors[{index}]": sizes
            for index, sizes in enumerate(size for sizes in tensors for size in (sizes, sizes))
        },
        _program(_STEP),
        {f"output_tensors[{index}]": sizes for index, sizes in enumerate(tensors)},
        domains={"": uniform(0.5, 2)},
        quick=quick,
    )


CASES = (
    OperatorCases(
        PointwiseChain,
        # The errors of the operations, one after the other; of FLOAT16 only the last result is rounded.
        {T.FLOAT32: Tolerance(8), T.FLOAT16: Tolerance(1)},
        (
            _chain("a fused tanh", _SCALED, 3, (3, 5, 33), quick=True),
            _chain("GELU of quads", _GELU, 2, (4, 64)),
            _chain("the largest", _LARGEST, 2, (7, 29)),
            _chain("rounded to BFLOAT16", _ROUNDED, 1, (5, 37), only=(T.FLOAT32,)),
            _to_bits("bits of BFLOAT16", (5, 37)),
            _to_bits("bits of BFLOAT16, whole quads", (3, 64), quick=True),
        ),
        data_types=(T.FLOAT32, T.FLOAT16),
    ),
    OperatorCases(
        MultiTensorChain,
        {T.FLOAT32: Tolerance(2), T.FLOAT16: Tolerance(1)},
        (
            _of_several("two tensors", ((5, 7), (33, 3)), quick=True),
            _of_several("ten tensors", tuple((size, 4) for size in (1, 2, 3, 8, 9, 16, 33, 64, 5, 100))),
        ),
        data_types=(T.FLOAT32, T.FLOAT16),
    ),
)
