"""Cases of ``ops.pooling``."""

from __future__ import annotations

import dataclasses

import numpy as np

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.pooling import (
    AveragePooling,
    AveragePooling1,
    LpPooling,
    LpPooling1,
    MaxPooling,
    MaxPooling1,
    MaxPooling2,
    MaxUnpooling,
    QuantizedLinearAveragePooling,
)
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance, special, uniform
from dmlvk.verify.cases.quantization import scales

_FLOAT32, _FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
_UINT32, _UINT64 = TensorDataType.UINT32, TensorDataType.UINT64

# Rows are summed first, then their sums, or in a tree: at most rows + columns roundings of half an ULP in a line, at
# the magnitude of the mean absolute value, and 2.5 ULP for the division. float16 rounds once, at the end.
_AVERAGE = {_FLOAT32: Tolerance(8), _FLOAT16: Tolerance(1)}
# A root halves the relative error of the sum, at least; what is left is its own, the scale's and that of one more product.
_NORM = {_FLOAT32: Tolerance(4), _FLOAT16: Tolerance(1)}


def infinities(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Mostly ordinary numbers, some infinities and NaN: each must show in exactly the windows that hold it."""
    values = np.array([np.inf, -np.inf, np.nan, *rng.standard_normal(37)])
    return rng.choice(values, sizes).astype(NUMPY_TYPES[data_type])


def _of_all_sizes(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Zeros, and numbers whose powers are beyond the type, at both ends."""
    most = float(np.finfo(NUMPY_TYPES[data_type]).max)
    values: Array = np.array([0.0, 0.0, 0.13 * most, -0.04 * most, 1.0, -1.0, 30 / most, 70 / most])
    rows = rng.integers(0, 2, (*sizes[:-1], 1)) * 4  # large numbers would hide all others
    chosen: Array = values[rng.integers(0, 4, sizes) + rows]
    return chosen.astype(NUMPY_TYPES[data_type])


def pooling_case(
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


def undilated(case: Case) -> Case:
    """The case for an operator that has no dilations."""
    attributes = {name: value for name, value in case.attributes.items() if name != "dilations"}
    return dataclasses.replace(case, attributes=attributes)


_PADDED = pooling_case("padding", (2, 3, 7, 11), (3, 3), strides=(2, 1), start=(1, 1), end=(1, 2), quick=True)
_VOLUME = pooling_case(
    "volume", (1, 2, 5, 6, 7), (2, 3, 2), strides=(1, 2, 3), start=(0, 1, 0), end=(1, 0, 1), layouts=False
)
WINDOWS = (
    _PADDED,
    _VOLUME,
    pooling_case("volumes, dilated", (2, 3, 7, 5, 6), (2, 2, 3), dilations=(3, 2, 1), end=(0, 1, 0)),
    pooling_case(
        "dilated", (2, 3, 13, 11), (3, 2), strides=(1, 2), dilations=(2, 5), start=(2, 1), end=(1, 4), layouts=False
    ),
    pooling_case(
        "sizes rounded up", (1, 3, 8, 10), (3, 3), strides=(2, 4), start=(1, 0), round_up=True, quick=True, layouts=False
    ),
    pooling_case("windows in the padding", (1, 2, 3, 4), (2, 2), strides=(1, 3), start=(3, 2), end=(0, 5), layouts=False),
    pooling_case("taps around the input", (1, 2, 1, 2), (2, 2), dilations=(2, 3), start=(1, 1), end=(2, 3), layouts=False),
    pooling_case("groups", (2, 3, 8, 24), (3, 3), start=(1, 1), end=(1, 1), layouts=False),
    pooling_case("groups, every other", (1, 2, 7, 48), (3, 3), strides=(2, 2), start=(1, 1), end=(1, 1), layouts=False),
    pooling_case("whole planes", (2, 17, 7, 7), (7, 7), layouts=False),
    pooling_case(
        "large windows far apart", (1, 2, 17, 40), (8, 9), strides=(8, 16), start=(1, 2), end=(0, 1), layouts=False
    ),
)
# Windows are the same for every type: these have all that differs, two signs, two widths and floats.
_SOME_TYPES = (_FLOAT32, TensorDataType.INT64, TensorDataType.UINT8)
_AVERAGES = (
    *(
        dataclasses.replace(
            case,
            name=f"{case.name}, counted",
            attributes={**case.attributes, "include_padding": True},
            layouts=False,
            quick=False,
        )
        for case in WINDOWS[:7]
    ),
    *WINDOWS,
    pooling_case("large whole planes", (1, 3, 37, 41), (37, 41), layouts=False),
    pooling_case("infinities and NaN", (2, 3, 9, 11), (3, 2), domain=infinities, layouts=False),
)
_INDEXED = pooling_case(
    "indices", (2, 3, 7, 11), (3, 3), strides=(2, 1), start=(1, 1), end=(1, 2), indices=_UINT32, quick=True
)
_MAXIMA = (
    *(dataclasses.replace(case, only=_SOME_TYPES if "padding" in case.name else (_FLOAT32,)) for case in WINDOWS),
    dataclasses.replace(_INDEXED, only=_SOME_TYPES),
    pooling_case("64-bit indices of equals", (2, 3, 9, 10), (3, 3), domain=uniform(0, 3), indices=_UINT64, layouts=False),
    pooling_case(
        "in groups", (1, 3, 4, 16), (3, 3), start=(1, 1), end=(1, 1), indices=_UINT32, domain=special, layouts=False
    ),
    pooling_case(
        "indices in volumes",
        (2, 2, 4, 5, 6),
        (2, 3, 2),
        strides=(2, 1, 2),
        domain=uniform(0, 9),
        indices=_UINT32,
        only=_SOME_TYPES,
        layouts=False,
    ),
    pooling_case(
        "indices of whole planes",
        (2, 5, 9, 8),
        (9, 8),
        domain=uniform(0, 5),
        indices=_UINT64,
        only=_SOME_TYPES,
        layouts=False,
    ),
    pooling_case("special values", (2, 3, 9, 11), (3, 3), domain=special, layouts=False),
    pooling_case("special values of whole planes", (31, 5, 3, 4), (3, 4), domain=special, only=_SOME_TYPES, layouts=False),
    pooling_case(
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


def _of_order(case: Case, order: int, **changes: object) -> Case:
    """The case for an operator that takes a norm of each window."""
    changes = {"name": f"{case.name}, order {order}", "attributes": {**case.attributes, "p": order}, **changes}
    return dataclasses.replace(case, **changes)  # type: ignore[arg-type]


_NORMS = (
    *(_of_order(_PADDED, order, layouts=order == 2) for order in (1, 2, 3)),
    _of_order(_VOLUME, 2),
    *(_of_order(case, order) for case, order in zip(WINDOWS[3:7], (2, 1, 3, 2), strict=True)),
    *(_of_order(WINDOWS[9], order) for order in (1, 2, 5)),
    *(
        _of_order(pooling_case(name, (1, 3, 9, 11), (3, 2), domain=domain, layouts=False), order)
        for order in (1, 2, 3, 300)
        for name, domain in {"numbers of all sizes": _of_all_sizes, "infinities and NaN": infinities}.items()
    ),
)


def _quantized() -> tuple[Case, ...]:
    """Each sign to each; without zero points; one scale for all, and one a channel."""
    shapes = (_PADDED, _VOLUME, WINDOWS[3], WINDOWS[4], WINDOWS[5], WINDOWS[6], WINDOWS[9])
    pairs = tuple(
        (a, b) for a in (TensorDataType.INT8, TensorDataType.UINT8) for b in (TensorDataType.INT8, TensorDataType.UINT8)
    )
    sides = ("input_scale_tensor", "input_zero_point_tensor", "output_scale_tensor", "output_zero_point_tensor")
    cases = []
    for number, (case, includes) in enumerate((case, includes) for case in shapes for includes in (False, True)):
        source, target = pairs[number % 4]
        sizes = case.inputs["input_tensor"]
        side = (1, sizes[1], *(1,) * (len(sizes) - 2)) if number % 3 != 1 else (1,)
        given = sides if number % 5 != 2 else sides[::2]
        types = {
            "input_scale_tensor": _FLOAT32,
            "output_scale_tensor": _FLOAT32,
            "input_zero_point_tensor": source,
            "output_zero_point_tensor": target,
            "output_tensor": target,
        }
        cases.append(
            dataclasses.replace(
                case,
                name=f"{case.name}, {source.name} to {target.name}{', counted' if includes else ''}",
                inputs={**case.inputs, **dict.fromkeys(given, side)},
                attributes={**case.attributes, "include_padding": includes},
                data_types=types,
                domains={"": special, "input_scale_tensor": scales, "output_scale_tensor": scales},
                only=(source,),
                layouts=number == 0,
            )
        )
    return tuple(cases)


def _positions(count: int) -> Domain:
    """Positions below a count, few enough to come several times, and some beyond it."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        beyond = [count, 2**32 - 1, *([2**32, 2**63 + 1] if data_type is _UINT64 else [])]
        values = np.concatenate([np.arange(0, count, 2, dtype=np.uint64), np.array(beyond, np.uint64)])
        return rng.choice(values, sizes).astype(NUMPY_TYPES[data_type])

    return domain


def _unpooling(
    name: str,
    sizes: tuple[int, ...],
    output: tuple[int, ...],
    indices: TensorDataType,
    *,
    layouts: bool = True,
    quick: bool = False,
) -> Case:
    return Case(
        name,
        inputs={"input_tensor": sizes, "indices_tensor": sizes},
        outputs={"output_tensor": output},
        data_types={"indices_tensor": indices},
        domains={"input_tensor": special, "indices_tensor": _positions(int(np.prod(output)))},
        layouts=layouts,
        quick=quick,
    )


_UNPOOLINGS = (
    _unpooling("positions that meet", (2, 3, 5, 4), (2, 3, 7, 5), _UINT32, quick=True),
    _unpooling("64-bit positions", (1, 2, 9, 7), (2, 1, 17, 3), _UINT64, layouts=False),
)

CASES = (
    OperatorCases(AveragePooling, _AVERAGE, (undilated(_PADDED), undilated(_VOLUME)), every_rule=False),
    OperatorCases(AveragePooling1, _AVERAGE, _AVERAGES),
    OperatorCases(LpPooling, _NORM, (undilated(_NORMS[1]),), every_rule=False),
    OperatorCases(LpPooling1, _NORM, _NORMS),
    OperatorCases(MaxPooling, {}, (undilated(dataclasses.replace(_PADDED, only=_SOME_TYPES)),), every_rule=False),
    OperatorCases(MaxPooling1, {}, (undilated(dataclasses.replace(_INDEXED, only=_SOME_TYPES)),), every_rule=False),
    OperatorCases(MaxPooling2, {}, _MAXIMA),
    OperatorCases(MaxUnpooling, {}, _UNPOOLINGS),
    OperatorCases(QuantizedLinearAveragePooling, {}, _quantized()),
)
