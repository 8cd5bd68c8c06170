"""Cases of ``ops.scan``."""

from __future__ import annotations

import dataclasses

import numpy as np

from dmlvk.spec.enums import AxisDirection, TensorDataType
from dmlvk.spec.ops.scan import CumulativeProduct, CumulativeSummation
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance, normal

_FLOAT64, _FLOAT32, _FLOAT16 = TensorDataType.FLOAT64, TensorDataType.FLOAT32, TensorDataType.FLOAT16
_FLOATS = (_FLOAT32, _FLOAT16)
_DECREASING = AxisDirection.DECREASING


def _infinities(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Mostly ordinary numbers, some infinities, NaN and zeros: each must show from its place on."""
    values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, *rng.standard_normal(37)])
    chosen: Array = rng.choice(values, sizes).astype(NUMPY_TYPES[data_type])
    return chosen


def _cancelling(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Numbers of very different size, many of which are taken away again further on."""
    values = rng.standard_normal(sizes) * 10.0 ** rng.uniform(-3, 3, sizes)
    values[..., 1::2] = -values[..., ::2][..., : values[..., 1::2].shape[-1]]
    return rng.permuted(values, axis=-1).astype(NUMPY_TYPES[data_type])


def _odd(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Odd integers, whose products do not become 0."""
    values: Array = normal(rng, sizes, data_type) | NUMPY_TYPES[data_type].type(1)
    return values


def _factors(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Floating factors near a power of two, whose products wander; odd integers."""
    kind = NUMPY_TYPES[data_type]
    if kind.kind != "f":
        return _odd(rng, sizes, data_type)
    factors: Array = rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], sizes) * rng.uniform(0.9, 1.1, sizes)
    return factors.astype(kind)


def _powers_of_two(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Floating powers of two, whose products are exact and leave every range and come back; odd integers."""
    kind = NUMPY_TYPES[data_type]
    if kind.kind != "f":
        return _odd(rng, sizes, data_type)
    exponents = rng.integers(-14, 15, sizes)
    exponents[..., 1::2] = -exponents[..., ::2][..., : exponents[..., 1::2].shape[-1]]
    exponents = np.concatenate((np.sort(exponents[..., :40]), exponents[..., 40:]), -1)
    factors: Array = rng.choice([-1.0, 1.0], sizes) * 2.0**exponents
    return factors.astype(kind)


def _case(
    name: str,
    sizes: tuple[int, ...],
    axis: int,
    exclusive: str = "",
    *,
    decreasing: bool = False,
    domain: Domain | None = None,
    layouts: bool = True,
    only: tuple[TensorDataType, ...] = (),
    quick: bool = False,
) -> Case:
    """Cases about values, with a domain of their own, are not crossed with layouts. ``exclusive`` names the field to set."""
    attributes: dict[str, object] = {"axis": axis}
    if decreasing:
        attributes["axis_direction"] = _DECREASING
    if exclusive:
        attributes[exclusive] = True
    domains = {"": domain} if domain else {}
    return Case(
        name, {"input_tensor": sizes}, attributes, domains=domains, layouts=layouts and not domain, only=only, quick=quick
    )


def _cases(exclusive: str) -> tuple[Case, ...]:
    return (
        _case("last axis", (5, 37), 1, quick=True),
        _case("last axis, whole words, exclusive, from the end", (6, 64), 1, exclusive, decreasing=True, quick=True),
        _case("channels of an image, exclusive", (2, 21, 5, 7), 1, exclusive),
        _case("first axis, from the end", (31, 4), 0, decreasing=True, layouts=False),
        _case("axis of size 1", (3, 1, 4), 1, layouts=False),
        _case("one element, exclusive", (1,), 0, exclusive, layouts=False),
        _case("eight dimensions", (2, 1, 3, 2, 1, 2, 3, 2), 5),
    )


# A sum takes part in at most 4 additions inside a unit (8 of FLOAT16), one for each doubling of the workgroup's
# invocations and one for each unit that they hold, all at the magnitude of the sum of absolute values; what is carried from
# tile to tile loses nothing. Half a ULP each, and they seldom point the same way.
# Devices may flush subnormal numbers to 0: an error of up to 2^-126 an element; float64 has the same steps, and 2^-1022.
_SUMS = {_FLOAT64: Tolerance(4, 2.0**-967), _FLOAT32: Tolerance(4, 2.0**-100), _FLOAT16: Tolerance(1)}
# Every factor brings half a ULP at most, and all of them do where one factor is broadcast over the row: at most 37 of them
# here, for all others are powers of two.
_PRODUCTS = {_FLOAT64: Tolerance(19, 2.0**-973), _FLOAT32: Tolerance(19, 2.0**-106), _FLOAT16: Tolerance(1)}

CASES = (
    OperatorCases(
        CumulativeSummation,
        _SUMS,
        (
            *_cases("has_exclusive_sum"),
            _case("several tiles", (2, 2053), 1, "has_exclusive_sum", layouts=False),
            _case("several tiles of words, from the end", (2, 8208), 1, decreasing=True, layouts=False),
            _case("several tiles of columns", (1031, 3), 0, "has_exclusive_sum", layouts=False),
            _case("several tiles of columns, from the end", (2, 517, 40), 1, decreasing=True, layouts=False),
            _case("several chunks", (65543,), 0, "has_exclusive_sum", layouts=False),
            _case("several chunks that cancel", (65552,), 0, domain=_cancelling, only=_FLOATS),
            _case("infinities", (40, 3), 0, domain=_infinities, only=_FLOATS),
            _case("infinities in words", (24, 64), 1, decreasing=True, domain=_infinities, only=_FLOATS),
            _case("infinities in tiles", (16, 4099), 1, domain=_infinities, only=_FLOATS),
        ),
    ),
    OperatorCases(
        CumulativeProduct,
        _PRODUCTS,
        (
            *(dataclasses.replace(case, domains={"": _factors}) for case in _cases("has_exclusive_product")),
            _case("several tiles", (2, 2053), 1, "has_exclusive_product", domain=_powers_of_two),
            _case("several tiles of words, from the end", (2, 8208), 1, decreasing=True, domain=_powers_of_two),
            _case("several tiles of columns", (1031, 3), 0, "has_exclusive_product", domain=_powers_of_two),
            _case("infinities", (40, 3), 0, domain=_infinities, only=_FLOATS),
            _case("infinities in words", (24, 64), 1, decreasing=True, domain=_infinities, only=_FLOATS),
        ),
    ),
)
