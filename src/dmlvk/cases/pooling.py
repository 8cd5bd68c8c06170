"""Cases of ``ops.pooling``."""

from __future__ import annotations

import dataclasses

import numpy as np

from dmlvk.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance, special, uniform
from dmlvk.enums import TensorDataType
from dmlvk.ops.pooling import AveragePooling, AveragePooling1, MaxPooling, MaxPooling1, MaxPooling2

_FLOAT32, _FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
_UINT32, _UINT64 = TensorDataType.UINT32, TensorDataType.UINT64

# Rows are summed first, then their sums, or in a tree: at most rows + columns roundings of half an ULP in a line, at
# the magnitude of the mean absolute value, and 2.5 ULP for the division. float16 rounds once, at the end.
_AVERAGE = {_FLOAT32: Tolerance(8), _FLOAT16: Tolerance(1)}


def _infinities(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Mostly ordinary numbers, some infinities and NaN: each must show in exactly the windows that hold it."""
    values = np.array([np.inf, -np.inf, np.nan, *rng.standard_normal(37)])
    return rng.choice(values, sizes).astype(NUMPY_TYPES[data_type])


def _case(
    name: str,
    sizes: tuple[int, ...],
    window: tuple[int, ...],
    *,
    strides: tuple[int, ...] = (),
    start: tuple[int, ...] = (),
    end: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    round_up: bool = False,
    indices: TensorDataType | None = None,
    domain: Domain | None = None,
    layouts: bool = True,
    only: tuple[TensorDataType, ...] = (),
    quick: bool = False,
    **attributes: object,
) -> Case:
    """A case of the newest operators; the sizes of the output are rounded down unless said otherwise."""
    rank = len(window)
    arrays = {
        "strides": strides or (1,) * rank,
        "window_size": window,
        "start_padding": start or (0,) * rank,
        "end_padding": end or (0,) * rank,
        "dilations": dilations or (1,) * rank,
    }
    output = sizes[:2]
    for size, step, taps, before, after, dilation in zip(sizes[2:], *arrays.values(), strict=True):
        room = size + before + after - ((taps - 1) * dilation + 1)
        output += (-(-room // step) + 1 if round_up else room // step + 1,)
    outputs = {"output_tensor": output}
    if indices is not None:
        outputs["output_indices_tensor"] = output
    return Case(
        name,
        inputs={"input_tensor": sizes},
        attributes={**arrays, **attributes},
        outputs=outputs,
        data_types={} if indices is None else {"output_indices_tensor": indices},
        domains={} if domain is None else {"": domain},
        layouts=layouts,
        only=only,
        quick=quick,
    )


def _undilated(case: Case) -> Case:
    """The same case for an operator without dilations."""
    attributes = {name: value for name, value in case.attributes.items() if name != "dilations"}
    return dataclasses.replace(case, attributes=attributes)


_PADDED = _case("padding", (2, 3, 7, 11), (3, 3), strides=(2, 1), start=(1, 1), end=(1, 2), quick=True)
_VOLUME = _case("volume", (1, 2, 5, 6, 7), (2, 3, 2), strides=(1, 2, 3), start=(0, 1, 0), end=(1, 0, 1))
_WINDOWS = (
    _PADDED,
    _VOLUME,
    _case("volumes, dilated", (2, 3, 7, 5, 6), (2, 2, 3), dilations=(3, 2, 1), end=(0, 1, 0)),
    _case("dilated", (2, 3, 13, 11), (3, 2), strides=(1, 2), dilations=(2, 5), start=(2, 1), end=(1, 4)),
    _case("sizes rounded up", (1, 3, 8, 10), (3, 3), strides=(2, 4), start=(1, 0), round_up=True, quick=True),
    _case("windows in the padding", (1, 2, 3, 4), (2, 2), strides=(1, 3), start=(3, 2), end=(0, 5), layouts=False),
    _case("taps around the input", (1, 2, 1, 2), (2, 2), dilations=(2, 3), start=(1, 1), end=(2, 3), layouts=False),
    _case("one row", (3, 5, 1, 257), (1, 3), strides=(1, 2)),
    _case("whole planes", (2, 17, 7, 7), (7, 7)),
    _case("large whole planes", (1, 3, 37, 41), (37, 41)),
    _case("large windows far apart", (1, 2, 17, 40), (8, 9), strides=(8, 16), start=(1, 2), end=(0, 1)),
)
# Windows are the same for every type: these have all that differs, two signs, two widths and floats.
_SOME_TYPES = (_FLOAT32, TensorDataType.INT64, TensorDataType.UINT8)
_AVERAGES = (
    *(
        dataclasses.replace(case, name=f"{case.name}, counted", attributes={**case.attributes, "include_padding": True})
        for case in _WINDOWS[:7]
    ),
    *_WINDOWS,
    _case("infinities and NaN", (2, 3, 9, 11), (3, 2), domain=_infinities),
)
_INDEXED = _case("indices", (2, 3, 7, 11), (3, 3), strides=(2, 1), start=(1, 1), end=(1, 2), indices=_UINT32, quick=True)
_MAXIMA = (
    *(dataclasses.replace(case, only=_SOME_TYPES) for case in _WINDOWS),
    _INDEXED,
    _case("64-bit indices of equals", (2, 3, 9, 10), (3, 3), dilations=(2, 1), domain=uniform(0, 3), indices=_UINT64),
    _case(
        "indices in volumes",
        (2, 2, 4, 5, 6),
        (2, 3, 2),
        strides=(2, 1, 2),
        domain=uniform(0, 9),
        indices=_UINT32,
        only=_SOME_TYPES,
    ),
    _case("indices of whole planes", (2, 5, 9, 8), (9, 8), domain=uniform(0, 5), indices=_UINT64, only=_SOME_TYPES),
    _case("special values", (2, 3, 19, 11), (3, 3), domain=special, indices=_UINT32),
    _case("special values of whole planes", (31, 5, 3, 4), (3, 4), domain=special, indices=_UINT32, only=_SOME_TYPES),
    _case(
        "windows in the padding, indices",
        (1, 2, 3, 4),
        (2, 2),
        start=(2, 2),
        end=(2, 2),
        indices=_UINT64,
        layouts=False,
        only=_SOME_TYPES,
    ),
)

CASES = (
    OperatorCases(AveragePooling, _AVERAGE, (_undilated(_PADDED), _undilated(_VOLUME))),
    OperatorCases(AveragePooling1, _AVERAGE, _AVERAGES),
    OperatorCases(MaxPooling, {}, (_undilated(dataclasses.replace(_PADDED, only=_SOME_TYPES)),)),
    OperatorCases(MaxPooling1, {}, (_undilated(dataclasses.replace(_INDEXED, only=_SOME_TYPES)),)),
    OperatorCases(MaxPooling2, {}, _MAXIMA),
)
