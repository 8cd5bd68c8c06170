"""Cases, and how their inputs are made.

A case is one desc-to-be: sizes, attributes and the domain of its inputs. The runner crosses it with the operator's data
types and with layouts (packed, strided, broadcast, offset, in place), so a case says nothing about those.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import cast_scalar

Array = NDArray[Any]
Domain = Callable[[np.random.Generator, tuple[int, ...], TensorDataType], Array]
"""(generator, sizes, data type) -> values in numpy's type for the data type."""

NUMPY_TYPES: Final[dict[TensorDataType, np.dtype[Any]]] = {
    TensorDataType.FLOAT64: np.dtype(np.float64),
    TensorDataType.FLOAT32: np.dtype(np.float32),
    TensorDataType.FLOAT16: np.dtype(np.float16),
    TensorDataType.INT64: np.dtype(np.int64),
    TensorDataType.INT32: np.dtype(np.int32),
    TensorDataType.INT16: np.dtype(np.int16),
    TensorDataType.INT8: np.dtype(np.int8),
    TensorDataType.UINT64: np.dtype(np.uint64),
    TensorDataType.UINT32: np.dtype(np.uint32),
    TensorDataType.UINT16: np.dtype(np.uint16),
    TensorDataType.UINT8: np.dtype(np.uint8),
    TensorDataType.INT4: np.dtype(np.int8),
    TensorDataType.UINT4: np.dtype(np.uint8),
}
"""numpy's type for the logical values of each type; numpy has none of 4 bits."""


def integer_limits(data_type: TensorDataType) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    return int(cast_scalar(-math.inf, data_type)), int(cast_scalar(math.inf, data_type))


@dataclass(frozen=True)
class Tolerance:
    """The largest error of an output against the oracle's float64 result rounded once.

    Attributes:
        ulp: Units in the last place of the output's type; 0 is bit-exact (any NaN equals any NaN).
        magnitude: ULPs are counted at no smaller a magnitude than this: where a result is a difference of values of
            about this size, an error in ULPs of the tiny difference says nothing. The oracle may give one per element
            instead (``oracle.Scaled``).
        block: The rows and columns of blocks, along the last two dimensions, whose elements are made of the same
            intermediate numbers: an element's magnitude is the largest one of its block.
        bits: Whether every bit counts, of NaN the payload and of 0 the sign: for operators that move elements. Their
            oracles give the output's own type, not float64.
    """

    ulp: float
    magnitude: float = 0.0
    block: int = 1
    bits: bool = False


EXACT: Final = Tolerance(0)
MOVED: Final = dict.fromkeys(
    (TensorDataType.FLOAT64, TensorDataType.FLOAT32, TensorDataType.FLOAT16), Tolerance(0, bits=True)
)
"""The tolerances of an operator that moves elements."""


@dataclass(frozen=True)
class Case:
    """One case of an operator.

    Attributes:
        name: Unique within the operator; says what is special about it.
        inputs: Sizes of each input tensor by field name; an optional input left out is absent. An array's elements are
            named here and below as "quantization_tensors[0]".
        attributes: The other fields; those with a default may be left out.
        outputs: Sizes of each output by field name, where the row does not infer them.
        data_types: Types per field that do not follow the case's data type, such as index tensors.
        domains: The values that inputs are filled with, by field name; "" stands for all others. The default is ``normal``.
        layouts: Whether the runner also runs it strided, broadcast, offset and in place.
        only: Data types it is meant for; empty for all of the operator's.
        quick: Whether it belongs to the quick tier.
    """

    name: str
    inputs: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, object] = field(default_factory=dict)
    outputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    data_types: Mapping[str, TensorDataType] = field(default_factory=dict)
    domains: Mapping[str, Domain] = field(default_factory=dict)
    layouts: bool = True
    only: tuple[TensorDataType, ...] = ()
    quick: bool = False


@dataclass(frozen=True)
class OperatorCases:
    """All cases of an operator.

    Attributes:
        operator: The row.
        tolerance: The tolerance of each output data type; types left out are exact.
        cases: The cases.
        data_types: The types to cross with: those of the first input tensor unless given.
        every_rule: Whether the runner also forces the rules that are possible but not chosen. Not for operators that share
            their kernels with others and differ from them in a line of arithmetic.
        rule_tolerance: The tolerance of rules whose arithmetic has larger errors, instead of ``tolerance``.
    """

    operator: type[OperatorDesc]
    tolerance: Mapping[TensorDataType, Tolerance]
    cases: tuple[Case, ...]
    data_types: tuple[TensorDataType, ...] = ()
    every_rule: bool = True
    rule_tolerance: Mapping[str, Mapping[TensorDataType, Tolerance]] = field(default_factory=dict)

    @property
    def crossed_types(self) -> tuple[TensorDataType, ...]:
        """The data types that every case runs with."""
        return self.data_types or self.operator.fields[0].data_types


def generator(*key: object) -> np.random.Generator:
    """A generator seeded by what the numbers are for: the same on every machine."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def normal(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Standard normal floats; integers over the type's full range."""
    kind = NUMPY_TYPES[data_type]
    if kind.kind == "f":
        return rng.standard_normal(sizes).astype(kind)
    least, most = integer_limits(data_type)
    return rng.integers(least, most, sizes, dtype=kind, endpoint=True)


def uniform(low: float, high: float) -> Domain:
    """Values between low and high."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        kind = NUMPY_TYPES[data_type]
        if kind.kind == "f":
            return rng.uniform(low, high, sizes).astype(kind)
        return rng.integers(int(low), int(high), sizes, dtype=kind, endpoint=True)

    return domain


def constant(value: float) -> Domain:
    """A domain whose values are all one number."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        return np.full(sizes, value, NUMPY_TYPES[data_type])

    return domain


def fixed(*values: Any) -> Domain:
    """Exactly these values."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        return np.array(values, NUMPY_TYPES[data_type]).reshape(sizes)

    return domain


def special(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """0, -0, 1, -1, infinities, NaN, extremes and subnormals of a float type, or an integer type's edges, in a random
    order (so that two inputs meet in many pairs)."""
    kind = NUMPY_TYPES[data_type]
    values: list[Any]
    if kind.kind == "f":
        info = np.finfo(kind)
        values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny]
        values += [info.smallest_subnormal, -info.smallest_subnormal, info.tiny * 0.75, info.eps, 7.0, -3.0]
    else:
        least, most = integer_limits(data_type)
        values = [0, 1, 2, 3, 7, 10, most, most - 1, least, least + 1]
        values += [-1, -2, -3, -7, -10] if least < 0 else [5, 11]
        values = [value for value in values if least <= value <= most]
    return rng.choice(np.array(values, dtype=kind), sizes)


def any_bits(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Elements of random bits, one in four of them a NaN of any payload or a zero of either sign where there are such."""
    kind = NUMPY_TYPES[data_type]
    unsigned = np.dtype(f"u{kind.itemsize}")
    bits = rng.integers(0, np.iinfo(unsigned).max, sizes, dtype=unsigned, endpoint=True)
    if kind.kind == "f":
        infinity, sign = (np.array(value, kind).view(unsigned) for value in (np.inf, -0.0))
        chosen = rng.integers(0, 8, sizes)
        bits = np.where(chosen == 0, bits | infinity, np.where(chosen == 1, bits & sign, bits))
    return bits.view(kind)


def indices_around(*dimensions: int) -> Domain:
    """Indices of a dimension of so many elements, from the end too where they are signed, and one in four out of range.

    Of several dimensions: tuples along the last dimension of the index tensor, an index for each.
    """

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        if len(dimensions) > 1:
            return np.stack([indices_around(size)(rng, sizes[:-1], data_type) for size in dimensions], axis=-1)
        (size,) = dimensions
        least, most = integer_limits(data_type)
        inside = rng.integers(-size if least else 0, size, sizes)
        edges = [least, most, size, max(least, -size - 1)]
        if most >= 2**32:  # what a reader of 32 bits would take for an index
            edges += [2**32, 2**32 + 1] + [-(2**32), -(2**32) - 1] * (least < 0)
        outside = np.array(edges, NUMPY_TYPES[data_type])
        return np.where(rng.integers(0, 4, sizes) == 0, rng.choice(outside, sizes), inside.astype(outside.dtype))

    return domain


def indices_below(*bounds: int) -> Domain:
    """Indices in range: below a bound or, of several, tuples along the last dimension, each index below its own."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        kind = NUMPY_TYPES[data_type]
        if len(bounds) == 1:
            return rng.integers(0, bounds[0], sizes, dtype=kind)
        return np.stack([rng.integers(0, bound, sizes[:-1], dtype=kind) for bound in bounds], -1)

    return domain


def distinct_indices(bound: int, axis: int) -> Domain:
    """Indices below a bound, none of them twice along an axis of the index tensor."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        lines = (*sizes[:axis], *sizes[axis + 1 :])
        every = np.broadcast_to(np.arange(bound, dtype=NUMPY_TYPES[data_type]), (*lines, bound))
        return np.moveaxis(rng.permuted(every, axis=-1)[..., : sizes[axis]], -1, axis)

    return domain
