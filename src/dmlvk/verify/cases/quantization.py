"""Cases of the quantization operators. All are exact: the oracle rounds where the specification's float32 does."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import QuantizationType
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.verify.cases.elementwise import without_subnormals
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, normal, special, uniform

_SCALE: Final = "quantization_tensors[0]"
_ZERO_POINT: Final = "quantization_tensors[1]"
_REAL: Final = (T.FLOAT32, T.FLOAT16)
_BYTES: Final = (T.UINT8, T.INT8)
_BLOCKS: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "one scale": ((3, 5, 7, 29), (1, 1, 1, 1)),
    "a scale for each channel": ((2, 3, 4, 8), (1, 3, 1, 1)),
    "channels across groups": ((2, 5, 7, 7), (1, 5, 1, 1)),
    "a scale for each column": ((5, 48), (1, 48)),
    "columns across groups": ((5, 13), (1, 13)),
    "blocks of columns": ((3, 64), (3, 2)),
    "small blocks": ((4, 9), (4, 3)),
    "blocks of rows": ((6, 16), (2, 16)),
    "a scale for each element": ((4, 33), (4, 33)),
    "one element": ((1,), (1,)),
    "eight dimensions of blocks": ((4, 2, 4, 3, 1, 2, 2, 4), (2, 2, 2, 1, 1, 1, 2, 1)),
}
"""Sizes of the data and of the scale."""
_QUICK: Final = "channels across groups"
_LAYOUTS: Final = ("one scale", _QUICK, "blocks of columns", "eight dimensions of blocks")


def scales(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Scales of either sign, powers of two among them, of which quotients are halves."""
    return rng.choice(np.array([0.25, 0.1, 0.3, 1.0, 1.7, -0.5], NUMPY_TYPES[data_type]), sizes)


def near_halves(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Half of them half-integer multiples of the scales, as far as the type has them; the rest normal."""
    kind = NUMPY_TYPES[data_type]
    if kind.kind != "f":
        return rng.integers(-400, 400, sizes).astype(kind)
    halves = (rng.integers(-150, 150, sizes) + 0.5) * scales(rng, sizes, data_type).astype(np.float64)
    return np.where(rng.random(sizes) < 0.5, halves, 30 * rng.standard_normal(sizes)).astype(kind)


def _blocks(operator: type[ops.Quantize] | type[ops.Dequantize], name: str, real: T, integer: T) -> Case:
    """A case of a block size; every second one is without zero point."""
    sizes, blocks = _BLOCKS[name]
    quantizes = operator is ops.Quantize
    has_zero_point = list(_BLOCKS).index(name) % 2 == 0
    inputs = {"input_tensor": sizes, _SCALE: blocks} | ({_ZERO_POINT: blocks} if has_zero_point else {})
    return Case(
        f"{name}, {'to' if quantizes else 'from'} {integer.name}, {real.name}",
        inputs,
        {"quantization_type": QuantizationType.SCALE_ZERO_POINT if has_zero_point else QuantizationType.SCALE},
        data_types={_SCALE: real, _ZERO_POINT: integer, "output_tensor": integer if quantizes else real},
        domains={_SCALE: scales} | ({"input_tensor": near_halves} if quantizes else {}),
        layouts=name in _LAYOUTS,
        only=(real if quantizes else integer,),
        quick=name == _QUICK,
    )


def _all_blocks(operator: type[ops.Quantize] | type[ops.Dequantize]) -> tuple[Case, ...]:
    """Every block size with an integer type of 8 bits and one of 4, their signs and the real types in turn."""
    integers = ((T.UINT8, T.INT4), (T.INT8, T.UINT4), (T.UINT8, T.UINT4), (T.INT8, T.INT4))
    return tuple(
        _blocks(operator, name, _REAL[(row + row // 2 + row // 4 + column) % 2], integer)
        for row, name in enumerate(_BLOCKS)
        for column, integer in enumerate(integers[row % 4])
    )


def _element_wise(
    name: str,
    sizes: tuple[int, ...],
    types: dict[str, T],
    *,
    domains: dict[str, Domain],
    has_zero_point: bool = True,
    layouts: bool = True,
    quick: bool = False,
) -> Case:
    fields = ("input_tensor", "scale_tensor") + ("zero_point_tensor",) * has_zero_point
    return Case(
        f"{name}, {types['input_tensor'].name} to {types['output_tensor'].name}",
        dict.fromkeys(fields, sizes),
        data_types=types,
        domains=domains,
        layouts=layouts,
        only=(types["input_tensor"],),
        quick=quick,
    )


def _quantize_linear() -> tuple[Case, ...]:
    cases = []
    for source, target in itertools.product((*_REAL, T.INT32), _BYTES):
        scale = T.FLOAT32 if source is T.INT32 else source
        types = {"input_tensor": source, "scale_tensor": scale, "zero_point_tensor": target, "output_tensor": target}
        usual: dict[str, Domain] = {"input_tensor": near_halves, "scale_tensor": scales}
        first = (source, target) == (T.FLOAT32, T.UINT8)
        cases += [
            _element_wise("a tail", (2, 3, 5, 7), types, domains=usual, layouts=target is T.UINT8, quick=first),
            _element_wise("no zero point", (521,), types, domains=usual, has_zero_point=False, layouts=False),
        ]
        if source is not T.INT32:
            odd: dict[str, Domain] = {"input_tensor": without_subnormals, "scale_tensor": without_subnormals}
            cases.append(_element_wise("special values", (3, 7, 29), types, domains=odd, layouts=False))
    return tuple(cases)


def _dequantize_linear() -> tuple[Case, ...]:
    cases = []
    for source, target in itertools.product(ops.ElementWiseDequantizeLinear.fields[0].data_types, _REAL):
        types = {"input_tensor": source, "scale_tensor": target, "zero_point_tensor": source, "output_tensor": target}
        edges: dict[str, Domain] = {"": special, "scale_tensor": scales}
        odd: dict[str, Domain] = {"scale_tensor": without_subnormals}
        cases += [
            _element_wise("a tail", (2, 3, 5, 7), types, domains={"scale_tensor": scales}, quick=source is T.INT8),
            _element_wise("edges", (521,), types, domains=edges, layouts=False),
            _element_wise("special scales", (521,), types, domains=odd, has_zero_point=False, layouts=False),
        ]
    return tuple(cases)


def _quantized_add() -> tuple[Case, ...]:
    """Each tensor of either sign; no zero points; scales of which quotients are often half integers."""
    zero_points = ("a_zero_point_tensor", "b_zero_point_tensor", "output_zero_point_tensor")
    cases = []
    for number, (a, b) in enumerate(itertools.product(_BYTES, repeat=2)):
        target = _BYTES[number % 2]
        sizes, one = ((7, 31), (1, 1, 1, 1)) if number == 0 else ((521,), (1,))
        given = zero_points if number != 2 else ()
        types = {"a_zero_point_tensor": a, "b_tensor": b, "b_zero_point_tensor": b}
        types |= {"output_zero_point_tensor": target, "output_tensor": target}
        scale_tensors = dict.fromkeys(("a_scale_tensor", "b_scale_tensor", "output_scale_tensor"), T.FLOAT32)
        cases.append(
            Case(
                f"{a.name} + {b.name} to {target.name}{'' if given else ', no zero points'}",
                {"a_tensor": sizes, "b_tensor": sizes, **dict.fromkeys((*scale_tensors, *given), one)},
                data_types=types | scale_tensors,
                domains=dict.fromkeys(scale_tensors, scales),
                layouts=number == 0,
                only=(a,),
                quick=number == 0,
            )
        )
    return tuple(cases)


def _halves_of_the_scale(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Multiples of a quarter, of a range whose scale is a half: a half of the quotients are half integers."""
    values = rng.integers(-200, 311, sizes) / 4
    values.flat[0], values.flat[-1] = -50, 77.5
    return values.astype(NUMPY_TYPES[data_type])


def _one_infinity(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    values = rng.standard_normal(sizes).astype(NUMPY_TYPES[data_type])
    values.flat[values.size // 2] = -np.inf
    return values


def _dynamic() -> tuple[Case, ...]:
    """Ranges on either side of 0 and of both signs, of no element but 0, with infinity and NaN; one chunk and many."""
    given: dict[str, tuple[tuple[int, ...], Domain]] = {
        "a tail": ((2, 3, 5, 7), _halves_of_the_scale),
        "many chunks": ((3, 4133), normal),
        "positive": ((521,), uniform(0.25, 3)),
        "negative": ((5, 29), uniform(-7, -6.5)),
        "zeros": ((37,), uniform(0, 0)),
        "one element": ((1,), normal),
        "tiny": ((37,), uniform(-1e-37, 1e-37)),
        "small": ((37,), uniform(-1e-7, 2e-7)),
        "beyond float32": ((37,), uniform(-3e38, 3e38)),
        "infinity": ((37,), _one_infinity),
        "special values": ((3, 7, 29), without_subnormals),
        "eight dimensions": ((2, 3, 1, 2, 3, 2, 1, 5), _halves_of_the_scale),
    }
    cases = []
    for source, target in itertools.product(_REAL, _BYTES):
        types = {"output_tensor": target, "output_scale_tensor": T.FLOAT32, "output_zero_point_tensor": target}
        for name, (sizes, domain) in given.items():
            if source is T.FLOAT16 and name in ("tiny", "beyond float32"):
                continue
            cases.append(
                Case(
                    f"{name}, {source.name} to {target.name}",
                    {"input_tensor": sizes},
                    data_types=types,
                    domains={"input_tensor": domain},
                    layouts=name == "a tail" or (name == "many chunks" and target is T.UINT8),
                    only=(source,),
                    quick=name == "a tail",
                )
            )
    return tuple(cases)


CASES: Final = (
    OperatorCases(ops.ElementWiseQuantizedLinearAdd, {}, _quantized_add()),
    OperatorCases(ops.ElementWiseQuantizeLinear, {}, _quantize_linear()),
    OperatorCases(ops.ElementWiseDequantizeLinear, {}, _dequantize_linear()),
    OperatorCases(ops.DynamicQuantizeLinear, {}, _dynamic()),
    OperatorCases(ops.Quantize, {}, _all_blocks(ops.Quantize)),
    OperatorCases(ops.Dequantize, {}, _all_blocks(ops.Dequantize)),
)
