"""Cases of ``ops.resample_gradient``: dy has the sizes of the forward output, dx those of the forward input."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlvk.spec.enums import AxisDirection, InterpolationMode, TensorDataType
from dmlvk.spec.ops.resample_gradient import ResampleGrad, ResampleGrad1
from dmlvk.verify.cases.model import Case, Domain, OperatorCases, Tolerance
from dmlvk.verify.cases.resample import sparse_special

_NEAREST, _LINEAR = InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR
_DOWN, _UP = AxisDirection.DECREASING, AxisDirection.INCREASING

# Positions are exact. A weight has two roundings a dimension, products of weights one more each, and sums are compensated
# where they are long; errors count at the magnitudes that are added. float16 rounds once.
_TOLERANCE = {TensorDataType.FLOAT32: Tolerance(6), TensorDataType.FLOAT16: Tolerance(0.6)}


def _case(
    name: str,
    sizes: tuple[int, ...],
    gradient: tuple[int, ...],
    *,
    mode: InterpolationMode = _LINEAR,
    scales: Sequence[float] | None = None,
    offsets: tuple[float | tuple[float, ...], float | tuple[float, ...]] = (0.5, -0.5),
    domain: Domain | None = None,
    layouts: bool = False,
    only: tuple[TensorDataType, ...] = (TensorDataType.FLOAT32,),
    quick: bool = False,
    **attributes: object,
) -> Case:
    """A case of ``ResampleGrad1``; the forward operator takes ``sizes`` to ``gradient``, by their scales unless given."""
    before, after = (own if isinstance(own, tuple) else (own,) * len(sizes) for own in offsets)
    ratios = [new / old for new, old in zip(gradient, sizes, strict=True)]
    return Case(
        name,
        inputs={"input_gradient_tensor": gradient},
        attributes={
            "interpolation_mode": mode,
            "scales": tuple(ratios if scales is None else scales),
            "input_pixel_offsets": before,
            "output_pixel_offsets": after,
            **attributes,
        },
        outputs={"output_gradient_tensor": sizes},
        domains={} if domain is None else {"": domain},
        layouts=layouts,
        only=only,
        quick=quick,
    )


_FLOATS = (TensorDataType.FLOAT32, TensorDataType.FLOAT16)
_HALF = _FLOATS[1:]

_TWICE = _case("twice", (2, 3, 5, 16), (2, 3, 10, 32), only=_FLOATS, quick=True)
_PLAIN = (
    _TWICE,
    _case("odd factors", (2, 3, 7, 11), (2, 3, 13, 37), only=_FLOATS, quick=True),
    _case("twice, nearest", (2, 3, 5, 16), (2, 3, 10, 32), mode=_NEAREST, only=_FLOATS),
    _case("odd factors, nearest", (2, 3, 7, 11), (2, 3, 13, 37), mode=_NEAREST, only=_FLOATS),
    _case("half as large", (1, 3, 18, 40), (1, 3, 9, 20), only=_FLOATS),
    _case("smaller", (1, 3, 17, 29), (1, 3, 5, 8)),
    _case("smaller, nearest", (1, 3, 17, 29), (1, 3, 5, 8), mode=_NEAREST),
)
_SHARED = (
    dataclasses.replace(_TWICE, name="twice, however it lies", layouts=True, only=_HALF, quick=False),
    _case("odd factors, however they lie", (2, 3, 7, 11), (2, 3, 13, 37), layouts=True),
    _case("rows of whole multiples and a rest", (3, 2, 7, 19), (3, 2, 7, 57)),
    _case("more rows than a workgroup has, twice", (3, 19, 70), (3, 38, 140), only=_FLOATS),
    _case("more columns than a workgroup has, 1.5 times", (2, 5, 600), (2, 7, 900), only=_FLOATS),
    _case("four times, but one column more than there is", (5, 3, 17), (5, 3, 71), scales=(1, 1, 4)),
    _case("channels last", (2, 3, 5, 32), (2, 6, 8, 32), only=_HALF, layouts=True),
    _case("channels last, twice", (1, 5, 9, 64), (1, 10, 18, 64), only=_FLOATS),
    _case("channels last, nearest, a rest of channels", (1, 3, 5, 35), (1, 6, 8, 35), mode=_NEAREST),
    _case("channels last, many", (1, 3, 4, 518), (1, 6, 8, 518), only=_HALF),
    _case("four times", (2, 3, 6, 16), (2, 3, 24, 64), only=_FLOATS),
    _case("four times rows, twice columns, channels last", (1, 5, 6, 16), (1, 20, 12, 16), only=_FLOATS),
    _case("half as large, channels last", (1, 5, 7, 16), (1, 2, 3, 16), scales=(1, 0.5, 0.5, 1), only=_FLOATS),
    _case("a quarter as large", (3, 9, 32), (3, 2, 8), scales=(1, 0.25, 0.25), domain=sparse_special, only=_FLOATS),
    _case("half as large, nearest, a row that none reads", (3, 9, 16), (3, 4, 8), scales=(1, 0.5, 0.5), mode=_NEAREST),
    _case("half as wide", (5, 3, 32), (5, 3, 16), only=_FLOATS),
    _case("twice, short words", (3, 7, 14), (3, 14, 28), only=_FLOATS),
    _case("four times, short words", (3, 5, 4), (3, 20, 16), only=_HALF),
    _case("half as large, short words", (3, 8, 14), (3, 4, 7), only=_FLOATS),
    _case("a plane of two rows of a word", (2, 3, 2, 8), (2, 3, 4, 16), only=_FLOATS),
    _case("rows alone", (2, 3, 5, 16), (2, 3, 11, 16), only=_FLOATS),
    _case("columns alone", (2, 3, 5, 16), (2, 3, 5, 40), only=_FLOATS),
    _case("all four dimensions", (2, 3, 4, 5), (3, 5, 7, 9)),
    _case("three dimensions", (2, 3, 4, 5), (2, 6, 8, 10)),
    _case("one dimension", (37,), (101,)),
    _case("no change", (2, 3, 5, 16), (2, 3, 5, 16)),
    _case("of one element", (1, 3, 1, 1), (1, 3, 4, 9)),
    _case("of one element, many outputs", (3, 1), (3, 5003)),
    _case("from one element", (1, 3, 4, 9), (1, 3, 1, 1)),
    _case("far enlarged", (2, 3, 4), (2, 60, 83), only=_FLOATS),
    _case("far enlarged, tiles of some columns", (2, 2, 21), (2, 16, 600), only=_FLOATS),
)
_SHIFTED = (
    _case("corners", (1, 2, 5, 9), (1, 2, 11, 23), scales=(1, 1, 2.5, 2.75), offsets=(0.0, 0.0)),
    _case("asymmetric", (1, 2, 5, 16), (1, 2, 15, 32), offsets=(0.0, 0.0)),
    _case("asymmetric, nearest", (1, 2, 5, 16), (1, 2, 15, 48), mode=_NEAREST, offsets=(0.0, 0.0)),
    _case(
        "cropped and clamped",
        (2, 3, 9, 16),
        (2, 3, 30, 16),
        scales=(1, 1, 2, 3),
        offsets=((0.0, 0.0, 2.25, -3.5), (0.0, 0.0, 0.75, -1.0)),
        layouts=True,
    ),
    _case("cropped alone", (2, 9, 16), (2, 5, 12), scales=(1, 1, 1), offsets=(0.0, 0.0)),
    _case("a shift alone", (1, 4, 33), (1, 4, 33), offsets=((0.0, 1.0, -0.25), 0.0)),
    _case("a shift of words", (2, 3, 7, 16), (2, 3, 7, 16), scales=(1, 1, 1, 1), offsets=((0, 0, 0.25, 0.5), 0.0)),
    _case("twice, shifted", (3, 7, 16), (3, 14, 32), offsets=((0.0, 0.25, 0.125), 0.0), only=_FLOATS),
    _case("twice, too far shifted", (3, 7, 16), (3, 14, 32), offsets=((0.0, 2.25, -1.125), 0.0)),
    _case("twice at corners, infinities and NaN", (3, 7, 16), (3, 14, 32), domain=sparse_special, offsets=(0.0, 0.0)),
    _case("four times, infinities and NaN", (3, 7, 16), (3, 28, 64), domain=sparse_special, only=_FLOATS),
    _case("all outside", (2, 6), (2, 40), scales=(1, 1), offsets=(0.0, (0.0, 90.0))),
    _case("mirrored", (1, 2, 6, 21), (1, 2, 6, 42), scales=(1, 1, -1, -2), offsets=((0, 0, -5, -20), 0.0)),
    _case(
        "mirrored, nearest",
        (1, 2, 6, 21),
        (1, 2, 6, 42),
        mode=_NEAREST,
        scales=(1, 1, -1, -2),
        offsets=((0, 0, -5, -20), 0.0),
    ),
    _case("infinities and NaN", (1, 3, 9, 16), (1, 3, 17, 32), domain=sparse_special, only=_FLOATS),
    _case(
        "infinities and NaN at whole positions",
        (1, 3, 9, 16),
        (1, 3, 18, 32),
        domain=sparse_special,
        offsets=(0.0, 0.0),
        only=_FLOATS,
    ),
)
_ROUNDED = tuple(
    _case(
        f"nearest, {direction.name}, {' '.join(map(str, offsets))}",
        (1, 3, 6, 10),
        (1, 3, 9, 25),
        mode=_NEAREST,
        rounding_direction=direction,
        offsets=offsets,
    )
    for direction in (_UP, _DOWN)
    for offsets in ((0.5, -0.5), (1.0, -0.5), (0.0, 0.0), (0.25, 1.0))
)

CASES = (
    OperatorCases(
        ResampleGrad,
        _TOLERANCE,
        (
            *_PLAIN[:4],
            *(
                dataclasses.replace(
                    case,
                    attributes={name: value for name, value in case.attributes.items() if name != "rounding_direction"},
                )
                for case in _ROUNDED[:4]
            ),
        ),
        every_rule=False,
    ),
    OperatorCases(ResampleGrad1, _TOLERANCE, (*_PLAIN, *_SHARED, *_SHIFTED, *_ROUNDED)),
)
