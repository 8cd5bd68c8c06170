"""Cases of softmax and its logarithm."""

from __future__ import annotations

from dmlvk import ops
from dmlvk.cases.model import Case, Domain, OperatorCases, Tolerance, special, uniform
from dmlvk.enums import TensorDataType


def _case(
    name: str, sizes: tuple[int, ...], axes: tuple[int, ...], domain: Domain | None = None, *, quick: bool = False
) -> Case:
    """Cases about values, with a domain of their own, are not crossed with layouts."""
    domains = {"": domain} if domain else {}
    return Case(name, {"input_tensor": sizes}, {"axes": axes}, domains=domains, layouts=not domain, quick=quick)


_CASES = (
    _case("last axis", (5, 37), (1,), quick=True),
    _case("last axis, whole words", (6, 64), (1,)),
    _case("channels of an image", (2, 21, 5, 7), (1,), quick=True),
    _case("many channels of a small image", (1, 259, 2, 3), (1,)),
    _case("first axis", (31, 4), (0,)),
    _case("two axes apart", (3, 4, 5, 6), (1, 3)),
    _case("the two last axes", (3, 7, 13), (1, 2)),
    _case("every axis", (3, 5, 7), (0, 1, 2)),
    _case("no axis", (2, 3), ()),
    _case("axis of size 1", (3, 1, 4), (1,)),
    _case("a row read in tiles", (2, 8209), (1,)),
    _case("a row of words read in tiles", (2, 16384), (1,)),
    _case("large values", (7, 19), (1,), uniform(-80.0, 80.0)),
    _case("values that overflow without shifting", (3, 11), (1,), uniform(1000.0, 1010.0)),
    _case("special values", (40, 3), (1,), special),
    _case("eight dimensions", (2, 1, 3, 2, 1, 2, 3, 2), (2, 5)),
)

# The kernel and its walks are softmax's: only what concerns values again.
_LOG_CASES = (
    "last axis",
    "last axis, whole words",
    "channels of an image",
    "two axes apart",
    "a row read in tiles",
    "large values",
    "values that overflow without shifting",
    "special values",
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

CASES = (
    OperatorCases(ops.ActivationSoftmax1, _SOFTMAX, _CASES),
    OperatorCases(ops.ActivationLogSoftmax1, _LOG_SOFTMAX, tuple(case for case in _CASES if case.name in _LOG_CASES)),
    OperatorCases(ops.ActivationSoftmax, _SOFTMAX, _last_axis_cases()),
    OperatorCases(ops.ActivationLogSoftmax, _LOG_SOFTMAX, _last_axis_cases()),
)
