"""Cases of ``ops.resample``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dmlvk.spec.enums import AxisDirection, InterpolationMode, TensorDataType
from dmlvk.spec.ops.resample import Resample, Resample1, Resample2, Resample3, ResampleWeights, Upsample2d
from dmlvk.spec.schema import Size2D
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance

_NEAREST, _LINEAR = InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR
_DOWN, _UP = AxisDirection.DECREASING, AxisDirection.INCREASING

# Positions are exact. A weight has two roundings a dimension, products of weights and values one more each, and a sum of up
# to 16 terms some; errors count at the averaged magnitudes. Four dimensions showed 4.4 ULP, two 3.5. float16 rounds once.
_TOLERANCE = {TensorDataType.FLOAT32: Tolerance(6), TensorDataType.FLOAT16: Tolerance(0.6)}


def sparse_special(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Mostly ordinary numbers, some infinities and NaN: each must show in exactly the outputs that read it."""
    values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, *rng.standard_normal(35)])
    return rng.choice(values, sizes).astype(NUMPY_TYPES[data_type])


def _case(
    name: str,
    sizes: tuple[int, ...],
    output: tuple[int, ...],
    *,
    mode: InterpolationMode = _LINEAR,
    scales: Sequence[float] | None = None,
    offsets: tuple[float | tuple[float, ...], float | tuple[float, ...]] = (0.5, -0.5),
    domain: Domain | None = None,
    layouts: bool = True,
    only: tuple[TensorDataType, ...] = (),
    quick: bool = False,
    **attributes: object,
) -> Case:
    """A case of ``Resample3``; the scales are those of the sizes unless given."""
    before, after = (own if isinstance(own, tuple) else (own,) * len(sizes) for own in offsets)
    ratios = [new / old for new, old in zip(output, sizes, strict=True)]
    return Case(
        name,
        inputs={"input_tensor": sizes},
        attributes={
            "interpolation_mode": mode,
            "scales": tuple(ratios if scales is None else scales),
            "input_pixel_offsets": before,
            "output_pixel_offsets": after,
            **attributes,
        },
        outputs={"output_tensor": output},
        domains={} if domain is None else {"": domain},
        layouts=layouts,
        only=only,
        quick=quick,
    )


def _without(case: Case, *names: str) -> Case:
    """The case for an operator that lacks attributes."""
    kept = {name: value for name, value in case.attributes.items() if name not in names}
    return dataclasses.replace(case, attributes=kept)


_FLOATS = (TensorDataType.FLOAT32, TensorDataType.FLOAT16)
_SINGLE, _HALF = _FLOATS[:1], _FLOATS[1:]

# A pipeline takes long to compile on a CPU, most of all for groups of 16 bytes: few cases have every type, or every layout.
_TWICE = _case("twice", (2, 3, 5, 32), (2, 3, 10, 64), layouts=False, quick=True)
_ODD = _case("odd factors", (2, 3, 7, 11), (2, 3, 13, 37), layouts=False, quick=True)
_PLAIN = (
    _TWICE,
    _ODD,
    _case("twice, nearest", (2, 3, 5, 32), (2, 3, 10, 64), mode=_NEAREST, layouts=False),
    _case("odd factors, nearest", (2, 3, 7, 11), (2, 3, 13, 37), mode=_NEAREST, layouts=False),
)
_SHARED = (
    *_PLAIN,
    dataclasses.replace(_TWICE, name="twice, however it lies", layouts=True, only=_HALF, quick=False),
    dataclasses.replace(_ODD, name="odd factors, however they lie", layouts=True, only=_SINGLE, quick=False),
    _case("smaller", (1, 3, 17, 29), (1, 3, 5, 8), layouts=False, only=_SINGLE),
    _case("smaller, nearest", (1, 3, 17, 29), (1, 3, 5, 8), mode=_NEAREST, only=_SINGLE, layouts=False),
    _case("rows of whole multiples and a rest", (3, 2, 7, 19), (3, 2, 7, 57), layouts=False, only=_SINGLE),
    _case(
        "four times, but one column more than there is",
        (5, 3, 17),
        (5, 3, 71),
        scales=(1, 1, 4),
        only=_SINGLE,
        layouts=False,
    ),
    _case("channels last", (2, 3, 5, 64), (2, 6, 8, 64), only=_HALF),
    _case("channels last, nearest", (1, 3, 5, 35), (1, 6, 8, 35), mode=_NEAREST, only=_SINGLE, layouts=False),
    _case("all four dimensions", (2, 3, 4, 5), (3, 5, 7, 9), layouts=False, only=_SINGLE),
    _case("one dimension", (37,), (101,), layouts=False, only=_SINGLE),
    _case("no change", (2, 3, 5, 16), (2, 3, 5, 16), layouts=False, only=_SINGLE),
    _case("from one element", (1, 3, 1, 1), (1, 3, 4, 9), only=_SINGLE, layouts=False),
    _case("to one element", (1, 3, 4, 9), (1, 3, 1, 1), layouts=False, only=_SINGLE),
)
_SHIFTED = (
    _case(
        "corners", (1, 2, 5, 9), (1, 2, 11, 23), scales=(1, 1, 2.5, 2.75), offsets=(0.0, 0.0), layouts=False, only=_SINGLE
    ),
    _case("asymmetric", (1, 2, 5, 16), (1, 2, 15, 32), offsets=(0.0, 0.0), layouts=False, only=_SINGLE),
    _case(
        "asymmetric, nearest", (1, 2, 5, 16), (1, 2, 15, 48), mode=_NEAREST, offsets=(0.0, 0.0), only=_SINGLE, layouts=False
    ),
    _case(
        "cropped and clamped",
        (2, 3, 9, 16),
        (2, 3, 30, 16),
        scales=(1, 1, 2, 3),
        offsets=((0.0, 0.0, 2.25, -3.5), (0.0, 0.0, 0.75, -1.0)),
        only=_SINGLE,
    ),
    _case("a shift alone", (1, 4, 33), (1, 4, 33), offsets=((0.0, 1.0, -0.25), 0.0), only=_SINGLE, layouts=False),
    _case(
        "mirrored",
        (1, 2, 6, 21),
        (1, 2, 6, 42),
        scales=(1, 1, -1, -2),
        offsets=((0, 0, -5, -20), 0.0),
        layouts=False,
        only=_SINGLE,
    ),
    _case("infinities and NaN", (1, 3, 9, 16), (1, 3, 17, 32), domain=sparse_special, only=_FLOATS, layouts=False),
    _case(
        "infinities and NaN at whole positions",
        (1, 3, 9, 16),
        (1, 3, 18, 32),
        domain=sparse_special,
        offsets=(0.0, 0.0),
        only=_FLOATS,
        layouts=False,
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
        layouts=False,
        only=_SINGLE,
    )
    for direction in (_UP, _DOWN)
    for offsets in ((0.5, -0.5), (1.0, -0.5), (0.0, 0.0), (0.25, 1.0))
)
_ANTIALIASED = (
    _case("antialiased", (2, 3, 17, 29), (2, 3, 5, 8), antialiased=True, layouts=False, quick=True),
    _case("antialiased channels last", (1, 17, 23, 32), (1, 5, 7, 32), antialiased=True, only=_HALF, layouts=False),
    _case("antialiased one way", (2, 21, 10), (2, 6, 25), antialiased=True, only=_SINGLE),
    _case("antialiased enlargement", (1, 2, 5, 8), (1, 2, 10, 16), antialiased=True, only=_SINGLE, layouts=False),
    _case("antialiased in four dimensions", (7, 5, 6, 8), (2, 3, 2, 5), antialiased=True, only=_SINGLE, layouts=False),
    _case("antialiased nearest", (1, 2, 15, 8), (1, 2, 5, 3), mode=_NEAREST, antialiased=True, only=_SINGLE, layouts=False),
    _case(
        "antialiased, positions outside",
        (3, 9),
        (3, 7),
        scales=(1, 0.3),
        offsets=((0.0, -11.0), (0.0, 2.0)),
        antialiased=True,
        only=_SINGLE,
        layouts=False,
    ),
    _case(
        "antialiased, wider than the input", (2, 5), (2, 2), scales=(1, 0.05), antialiased=True, only=_SINGLE, layouts=False
    ),
    _case(
        "antialiased infinities and NaN",
        (1, 2, 13, 40),
        (1, 2, 7, 15),
        domain=sparse_special,
        antialiased=True,
        only=_FLOATS,
        layouts=False,
    ),
    _case(
        "antialiased mirror",
        (1, 2, 13, 16),
        (1, 2, 5, 4),
        scales=(1, 1, -0.4, -0.25),
        offsets=(-6.0, 0.0),
        antialiased=True,
        only=_SINGLE,
        layouts=False,
    ),
)
_OFFSETS = ("input_pixel_offsets", "output_pixel_offsets")
_UPSAMPLED = tuple(
    Case(
        f"{'x'.join(map(str, size))} of {len(sizes)} dimensions, {mode.name}",
        inputs={"input_tensor": sizes},
        attributes={"scale_size": size, "interpolation_mode": mode},
        quick=len(sizes) == 4,
    )
    for mode in (_NEAREST, _LINEAR)
    for sizes, size in (((2, 3, 5, 7), Size2D(2, 3)), ((2, 3, 2, 3, 16), Size2D(4, 1)))
)


def _weights(name: str, inputs: int, outputs: int, *, filter_scale: float = 1.0, quick: bool = False, **flags: bool) -> Case:
    attributes: dict[str, object] = {
        "scale": outputs / inputs,
        "input_pixel_offset": 0.5,
        "output_pixel_offset": -0.5,
        "filter_scale": filter_scale,
        "coefficient": -0.75,
        **dict.fromkeys(("cubic", "inside_only", "normalized"), False),
        **flags,
    }
    return Case(name, {}, attributes, {"output_tensor": (outputs, inputs)}, quick=quick)


CASES = (
    OperatorCases(Upsample2d, _TOLERANCE, _UPSAMPLED, every_rule=False),
    OperatorCases(Resample, _TOLERANCE, tuple(_without(case, *_OFFSETS) for case in _PLAIN), every_rule=False),
    OperatorCases(
        Resample1,
        _TOLERANCE,
        (*_PLAIN, *(_without(case, "rounding_direction") for case in _ROUNDED[:4])),
        every_rule=False,
    ),
    OperatorCases(Resample2, _TOLERANCE, (_TWICE, *_ROUNDED[:2]), every_rule=False),
    OperatorCases(Resample3, _TOLERANCE, (*_SHARED, *_SHIFTED, *_ROUNDED, *_ANTIALIASED)),
    OperatorCases(
        ResampleWeights,
        # At the size of the kernel's terms, which cancel.
        {TensorDataType.FLOAT32: Tolerance(16), TensorDataType.FLOAT16: Tolerance(1)},
        (
            _weights("cubic", 7, 11, cubic=True, quick=True),
            _weights("cubic, cut off", 13, 5, cubic=True, inside_only=True, normalized=True),
            _weights("cubic, widened", 13, 5, filter_scale=5 / 13, cubic=True, normalized=True),
            _weights("linear, widened", 12, 4, filter_scale=1 / 3, inside_only=True, normalized=True),
        ),
    ),
)
