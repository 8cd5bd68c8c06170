"""Cases of ``ops.pooling_gradient``: those of pooling, run backwards."""

from __future__ import annotations

import dataclasses

import numpy as np

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.pooling_gradient import AveragePoolingGrad, MaxPoolingGrad
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, OperatorCases, Tolerance, special
from dmlvk.verify.cases.pooling import WINDOWS, infinities, pooling_case, undilated

_FLOAT32, _FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16

# A gradient is a sum over windows, lines first: at most rows + columns of windows roundings of half an ULP at the magnitude
# of the absolute values, and of an average 2.5 ULP for each division. float16 rounds once, at the end.
_AVERAGE = {_FLOAT32: Tolerance(8), _FLOAT16: Tolerance(1)}
_MAXIMUM = {_FLOAT32: Tolerance(4), _FLOAT16: Tolerance(1)}


def equals(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Few numbers, so that windows hold their largest several times."""
    return rng.integers(0, 3, sizes).astype(NUMPY_TYPES[data_type])


def _average(case: Case, *, included: bool = False) -> Case:
    """A case of pooling as one of an average's gradient."""
    case = undilated(case)
    return dataclasses.replace(
        case,
        name=f"{case.name}, counted" if included else case.name,
        inputs={"input_gradient_tensor": case.outputs["output_tensor"]},
        outputs={"output_gradient_tensor": case.inputs["input_tensor"]},
        attributes={**case.attributes, "include_padding": included},
        layouts=case.layouts and not included,
        quick=case.quick and not included,
    )


def _maximum(case: Case) -> Case:
    """A case of pooling as one of a maximum's gradient."""
    sizes = case.inputs["input_tensor"]
    gradient = case.outputs["output_tensor"]
    return dataclasses.replace(
        case,
        inputs={"input_tensor": sizes, "input_gradient_tensor": gradient},
        outputs={"output_gradient_tensor": sizes},
        domains={"input_tensor": case.domains[""]} if case.domains else {},
    )


_SMALL = (
    pooling_case("halves", (2, 3, 8, 16), (2, 2), strides=(2, 2), quick=True),
    pooling_case("halves of odd planes", (1, 3, 9, 13), (2, 2), strides=(2, 2), round_up=True, layouts=False),
    pooling_case("gaps between windows", (1, 2, 11, 24), (2, 1), strides=(3, 2), layouts=False),
    pooling_case("groups, every fourth", (1, 2, 9, 32), (3, 5), strides=(4, 4), start=(0, 2), end=(1, 1), layouts=False),
)
# Those of pooling whose windows have no gaps between their taps, as an average's gradient has none.
_DENSE = tuple(case for case in (*WINDOWS, *_SMALL) if set(case.attributes["dilations"]) == {1})  # type: ignore[call-overload]
_AVERAGES = (
    *(_average(case) for case in _DENSE),
    *(_average(case, included=True) for case in _DENSE),
    _average(pooling_case("larger than the plane", (1, 3, 5, 4), (7, 9), start=(1, 2), end=(1, 3))),
    _average(pooling_case("larger than the plane", (1, 3, 5, 4), (9, 12), start=(1, 2), end=(3, 6)), included=True),
    _average(pooling_case("infinities and NaN", (2, 3, 9, 11), (3, 2), domain=infinities, layouts=False)),
)
_MAXIMA = (
    *map(_maximum, (*WINDOWS, *_SMALL)),
    *(
        _maximum(
            pooling_case(
                f"{name}, {sizes} by {window}", sizes, window, strides=steps, start=start, domain=domain, layouts=False
            )
        )
        for name, domain in {"equals": equals, "special values": special}.items()
        for sizes, window, steps, start in (
            ((2, 3, 9, 10), (3, 3), (1, 1), (1, 1)),
            ((1, 3, 8, 16), (3, 3), (2, 2), (1, 1)),
            ((1, 3, 8, 16), (2, 2), (2, 2), (0, 0)),
            ((2, 2, 4, 5, 6), (2, 3, 2), (2, 1, 2), (0, 1, 0)),
        )
    ),
)

CASES = (
    OperatorCases(AveragePoolingGrad, _AVERAGE, _AVERAGES),
    OperatorCases(MaxPoolingGrad, _MAXIMUM, _MAXIMA),
)
