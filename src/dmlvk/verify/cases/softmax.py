"""Cases of softmax and its relatives, which share kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.activation import SoftmaxOrZero
from dmlvk.verify.cases.model import NUMPY_TYPES, Case, Domain, OperatorCases, Tolerance, normal, special, uniform


def _case(
    name: str,
    sizes: tuple[int, ...],
    axes: tuple[int, ...],
    domain: Domain | None = None,
    *,
    layouts: bool = False,
    quick: bool = False,
) -> Case:
    domains = {"": domain} if domain else {}
    return Case(name, {"input_tensor": sizes}, {"axes": axes}, domains=domains, layouts=layouts, quick=quick)


# Crossed with layouts is one case of each way that rows can lie.
_CASES = (
    _case("last axis", (5, 37), (1,), layouts=True, quick=True),
    _case("last axis, whole words", (6, 64), (1,), layouts=True),
    _case("channels of an image", (2, 21, 5, 7), (1,), layouts=True, quick=True),
    _case("channels of an image of whole words", (2, 21, 4, 10), (1,), layouts=True),
    _case("many channels of a small image", (1, 259, 2, 3), (1,)),
    _case("many channels, whole words", (1, 1031, 16), (1,)),
    _case("first axis", (31, 4), (0,)),
    _case("two axes apart", (3, 4, 5, 6), (1, 3), layouts=True),
    _case("the two last axes", (3, 7, 13), (1, 2)),
    _case("every axis", (3, 5, 7), (0, 1, 2)),
    _case("no axis", (2, 3), ()),
    _case("axis of size 1", (3, 1, 4), (1,)),
    _case("a row read in tiles", (2, 8209), (1,)),
    _case("a row of words read in tiles", (2, 16384), (1,)),
    _case("rows that start anywhere in words", (3, 1031), (1,), layouts=True),
    _case("a row of two runs read in tiles", (2, 131, 3, 67), (1, 3)),
    _case("a row with a processor to itself", (2, 33001), (1,)),
    _case("a row of words with a processor to itself", (2, 33008), (1,)),
    _case("large values", (7, 19), (1,), uniform(-80.0, 80.0)),
    _case("values that overflow without shifting", (3, 11), (1,), uniform(1000.0, 1010.0)),
    _case("special values", (40, 3), (1,), special),
    _case("eight dimensions", (2, 1, 3, 2, 1, 2, 3, 2), (2, 5), layouts=True),
)

# The kernels and their walks are softmax's: only what concerns values again.
_LOG_CASES = (
    "last axis",
    "last axis, whole words",
    "channels of an image of whole words",
    "a row read in tiles",
    "a row with a processor to itself",
    "large values",
    "values that overflow without shifting",
    "special values",
)


def _with_ties(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """Few different values, so that most rows have several largest ones; 0 and -0 among them."""
    values = rng.integers(-3, 1, sizes).astype(NUMPY_TYPES[data_type])
    return np.where(rng.random(sizes) < 0.5, values, -values * 0)


def _nothing(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """-infinity, which is also what stands for the elements around a row."""
    return np.full(sizes, -np.inf, NUMPY_TYPES[data_type])


def _nothing_of_some(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """Normal values, and -infinity in every third place of the first dimension: rows there are NaN."""
    values = normal(rng, sizes, data_type)
    values[::3] = -np.inf
    return values


_PARTLY_MASKED = (
    ("last axis", (7, 37), (1,)),
    ("last axis, whole words", (6, 64), (1,)),
    ("channels of an image of whole words", (4, 21, 4, 10), (1,)),
    ("a row read in tiles", (4, 8209), (1,)),
    ("a row with a processor to itself", (4, 33001), (1,)),
)

# The kernels are softmax's with one constant, so that softmax alone has quick cases.
_OR_ZERO_CASES = (
    *(_case(f"{name}, rows of NaN", sizes, axes, _nothing_of_some) for name, sizes, axes in _PARTLY_MASKED),
    _case("special values", (40, 3), (1,), special),
    Case(
        "NaN that are kept",
        {"input_tensor": (40, 3)},
        {"axes": (1,), "keeps_nan": True},
        domains={"": special},
    ),
    Case(
        "NaN that are kept, rows of nothing",
        {"input_tensor": (6, 64)},
        {"axes": (1,), "keeps_nan": True},
        domains={"": _nothing_of_some},
    ),
)

_HARDMAX_CASES = (
    _case("last axis", (5, 37), (1,), quick=True),
    _case("two axes apart", (3, 4, 5, 6), (1, 3), layouts=True),
    _case("no axis", (2, 3), ()),
    _case("equal elements of a row", (19, 43), (1,), _with_ties),
    _case("equal elements of the two last axes", (3, 7, 8), (1, 2), _with_ties),
    _case("equal elements of channels", (2, 9, 4, 10), (1,), _with_ties),
    _case("equal elements of a row read in tiles", (2, 8209), (1,), _with_ties),
    _case("equal elements of a row with a processor to itself", (2, 33001), (1,), _with_ties),
    _case("rows of -infinity that start anywhere in words", (5, 1031), (1,), _nothing),
    _case("special values", (40, 3), (1,), special),
)


def _lp(name: str, sizes: tuple[int, ...], axis: int, p: int, domain: Domain | None = None, **more: Any) -> Case:
    attributes = {"axis": axis, "p": p, "epsilon": more.pop("epsilon", 1e-5)}
    more = {"layouts": False, **more}
    return Case(name, {"input_tensor": sizes}, attributes, domains={"": domain} if domain else {}, **more)


def _rows_of_zeros(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """Normal values, but every other row is 0."""
    values = normal(rng, sizes, data_type)
    values[::2] = 0
    return values


def _far_apart(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """Rows of normal numbers of every magnitude, whose squares float32 cannot hold."""
    least, most = (-13, 15) if data_type is TensorDataType.FLOAT16 else (-120, 125)
    magnitudes = np.exp2(rng.integers(least, most, (sizes[0], 1)))
    return np.asarray(rng.uniform(0.5, 1.0, sizes) * magnitudes, NUMPY_TYPES[data_type])


_LP_CASES = (
    _lp("P 2, last axis", (5, 37), 1, 2, layouts=True, quick=True),
    _lp("P 1, last axis, whole words", (6, 64), 1, 1),
    _lp("P 2, channels", (2, 21, 5, 7), 1, 2),
    _lp("P 1, channels, whole words", (2, 21, 4, 10), 1, 1),
    _lp("P 2, a row read in tiles", (2, 8209), 1, 2),
    _lp("P 1, a row with a processor to itself", (2, 33001), 1, 1),
    _lp("axis of size 1", (3, 1, 4), 1, 2),
    _lp("epsilon above norms", (7, 9), 1, 2, normal, epsilon=3.0),
    _lp("epsilon 0, rows of zeros", (7, 9), 1, 2, _rows_of_zeros, epsilon=0.0),
    _lp("P 2 without overflow and underflow", (64, 19), 1, 2, _far_apart, epsilon=0.0),
    _lp("P 1 without underflow", (64, 19), 1, 1, _far_apart, epsilon=0.0),
    # (With a smaller epsilon what a device makes of subnormal numbers would show: they may count as 0.)
    _lp("special values", (40, 3), 1, 2, special, epsilon=1.0),
)


def _last_axis_cases() -> tuple[Case, ...]:
    return (
        Case("matrix", {"input_tensor": (5, 37)}, quick=True),
        Case("leading ones", {"input_tensor": (1, 1, 4, 19)}),
        Case("vector", {"input_tensor": (23,)}),
    )


# Exponential, sum, reciprocal and product err by a ULP or two each, whatever the row's range and length.
# Devices may flush subnormal results to 0: an error of up to 2^-126, which is 8 ULP at the magnitude of 2^-106.
_SOFTMAX = {TensorDataType.FLOAT32: Tolerance(8, 2.0**-106), TensorDataType.FLOAT16: Tolerance(1)}
# At the magnitude of the two terms of the difference.
_LOG_SOFTMAX = {TensorDataType.FLOAT32: Tolerance(6), TensorDataType.FLOAT16: Tolerance(1)}
# The sum, its root, the reciprocal and the product err by a ULP each at most. Devices may flush subnormal results to 0: an
# error of up to 2^-126, which is 4 ULP at the magnitude of 2^-105 (H200, 8.8e-39).
_LP = {TensorDataType.FLOAT32: Tolerance(4, 2.0**-105), TensorDataType.FLOAT16: Tolerance(1)}

CASES = (
    OperatorCases(ops.ActivationSoftmax1, _SOFTMAX, _CASES),
    OperatorCases(SoftmaxOrZero, _SOFTMAX, _OR_ZERO_CASES),
    OperatorCases(ops.ActivationLogSoftmax1, _LOG_SOFTMAX, tuple(case for case in _CASES if case.name in _LOG_CASES)),
    OperatorCases(ops.ActivationSoftmax, _SOFTMAX, _last_axis_cases()),
    OperatorCases(ops.ActivationLogSoftmax, _LOG_SOFTMAX, _last_axis_cases()),
    OperatorCases(ops.ActivationHardmax1, {}, _HARDMAX_CASES),
    OperatorCases(ops.ActivationHardmax, {}, _last_axis_cases()),
    OperatorCases(ops.LpNormalization, _LP, _LP_CASES),
)
