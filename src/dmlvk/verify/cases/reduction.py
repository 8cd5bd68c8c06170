"""Cases of the reductions: every function and type, every way that kept and reduced dimensions can lie."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, ReduceFunction, TensorDataType
from dmlvk.spec.ops.reduction import FUNCTION_TYPES
from dmlvk.verify.cases.model import Case, Domain, OperatorCases, Tolerance, normal, special, uniform

T = TensorDataType
_TOLERANCE: Final = {
    # Sums of more than a few elements are compensated; what remains are the roundings of those few, of squares, of the
    # division, the root and the logarithm, and of a product each factor's. The oracle gives a sum's magnitude.
    T.FLOAT64: Tolerance(3),
    T.FLOAT32: Tolerance(3),
    T.FLOAT16: Tolerance(0.51),
}


def _few(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """Few different numbers, so that many are equal."""
    return rng.integers(0, 4, sizes).astype(normal(rng, (1,), data_type).dtype)


def _near_one(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """Factors whose product stays in range; odd integers, whose products do not become 0."""
    if data_type in (T.FLOAT32, T.FLOAT16):
        return uniform(0.75, 1.3125)(rng, sizes, data_type)
    return normal(rng, sizes, data_type) | 1


def _special_terms(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """Special values, but without those whose squares or sums leave float32 on the way and come back in float64."""
    values = special(rng, sizes, data_type)
    if values.dtype != np.float32:
        return values
    size = np.abs(values)
    leaves = np.isfinite(values) & (values != 0) & ((size > 1e18) | (size < 1e-18))
    return np.where(leaves, np.float32(2), values)


def _infinities(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """The first row with infinity at several places, the second of -infinity alone, the others with some of it; one NaN."""
    values = np.where(rng.random(sizes) < 0.5, -np.inf, rng.standard_normal(sizes))
    values[0, ::7], values[1], values[4, 50] = np.inf, -np.inf, np.nan
    return values.astype(normal(rng, (1,), data_type).dtype)


_EXTREMES = (ReduceFunction.MAX, ReduceFunction.MIN)
_DOMAINS: Final[dict[ReduceFunction, Domain]] = {
    ReduceFunction.LOG_SUM: uniform(0.125, 4),
    ReduceFunction.MULTIPLY: _near_one,
}

_SHAPES: Final[tuple[tuple[str, tuple[int, ...], tuple[int, ...], tuple[TensorDataType, ...]], ...]] = (
    # (name, sizes, axes, the types it is tried with if the function takes them; empty for all)
    ("rows", (5, 37), (1,), ()),
    ("columns", (37, 20), (0,), (T.FLOAT32, T.FLOAT16, T.UINT64, T.INT8)),
    ("channels", (3, 4, 5, 8), (0, 2, 3), (T.FLOAT32, T.INT64, T.UINT16)),
)
_LAYOUTS: Final[tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]] = (
    ("everything", (5, 7, 11), (0, 1, 2)),
    ("nothing", (3, 5), ()),
    ("one element", (1,), (0,)),
    ("one dimension", (131,), (0,)),
    ("long rows", (3, 4133), (1,)),
    ("long rows of whole words", (2, 8, 640), (1, 2)),
    ("long columns", (531, 3), (0,)),
    ("long columns of whole words", (2, 300, 32), (1,)),
    ("every other axis", (2, 3, 4, 5, 6), (0, 2, 4)),
    ("the others", (2, 3, 4, 5, 6), (1, 3)),
    ("eight dimensions", (2, 1, 3, 2, 1, 2, 3, 2), (7, 1, 3, 6)),
    ("many short rows", (1031, 8), (1,)),
    ("many columns", (8, 1031), (0,)),
)


def _functions() -> tuple[Case, ...]:
    found = []
    for function, types in FUNCTION_TYPES.items():
        domains = {"input_tensor": _DOMAINS[function]} if function in _DOMAINS else {}
        is_argument = function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN)
        data_types = {"output_tensor": T.UINT32} if is_argument else {}
        for name, sizes, axes, some in _SHAPES:
            found.append(
                Case(
                    f"{function.name}, {name}",
                    {"input_tensor": sizes},
                    {"function": function, "axes": axes},
                    data_types=data_types,
                    domains=domains,
                    only=tuple(kind for kind in types if not some or kind in some),
                    layouts=name == "channels" and function in (ReduceFunction.SUM, ReduceFunction.LOG_SUM_EXP),
                    quick=name == "rows" and function in (ReduceFunction.SUM, ReduceFunction.MAX),
                )
            )
        if not is_argument:
            found.append(
                Case(
                    f"{function.name}, special values",
                    {"input_tensor": (97, 3)},
                    {"function": function, "axes": (1,)},
                    domains={"input_tensor": special if function in _EXTREMES else _special_terms},
                    only=types,
                    layouts=False,
                )
            )
    for name, sizes, axes in _LAYOUTS:
        found.append(
            Case(
                f"SUM, {name}",
                {"input_tensor": sizes},
                {"function": ReduceFunction.SUM, "axes": axes},
                only=(T.FLOAT32, T.FLOAT16),
                layouts=name in ("long rows", "long columns of whole words"),
            )
        )
    far = {"input_tensor": uniform(30000, 30010)}
    found += [
        Case("SUM, far from 0", {"input_tensor": (2, 40009)}, _sum(1), domains=far, only=(T.FLOAT32,), layouts=False),
        Case(
            "LOG_SUM_EXP, large",
            {"input_tensor": (5, 70)},
            {"function": ReduceFunction.LOG_SUM_EXP, "axes": (1,)},
            domains={"input_tensor": uniform(-10000, 10000)},
            only=(T.FLOAT32, T.FLOAT16),
            layouts=False,
        ),
        Case(
            "LOG_SUM_EXP, infinities",
            {"input_tensor": (5, 70)},
            {"function": ReduceFunction.LOG_SUM_EXP, "axes": (1,)},
            domains={"input_tensor": _infinities},
            only=(T.FLOAT32,),
            layouts=False,
        ),
        Case(
            "LOG_SUM_EXP, across bases",  # of glsl/include/powers.glsl, where the largest so far passes 224 and 240
            {"input_tensor": (5, 70)},
            {"function": ReduceFunction.LOG_SUM_EXP, "axes": (1,)},
            domains={"input_tensor": uniform(218, 242)},
            only=(T.FLOAT32,),
            layouts=False,
        ),
    ]
    return tuple(found)


def _sum(*axes: int) -> dict[str, object]:
    return {"function": ReduceFunction.SUM, "axes": axes}


def _places() -> tuple[Case, ...]:
    found = []
    for direction in AxisDirection:
        output = T.INT64 if direction == AxisDirection.INCREASING else T.UINT32
        for name, sizes, axes, domain in (
            ("rows", (5, 37), (1,), normal),
            ("rows of equals", (5, 70), (1,), _few),
            ("columns of equals", (70, 20), (0,), _few),
            ("axes out of order", (4, 3, 5, 8), (3, 0), _few),
            ("special values", (97, 5), (1,), special),
            ("long rows of equals", (2, 4133), (1,), _few),
        ):
            found.append(
                Case(
                    f"{direction.name}, {name}",
                    {"input_tensor": sizes},
                    {"axes": axes, "axis_direction": direction},
                    data_types={"output_tensor": output},
                    domains={"input_tensor": domain},
                    only=()
                    if name in ("rows", "special values", "columns of equals")
                    else (T.FLOAT32, T.FLOAT16, T.INT64, T.UINT8),
                    layouts=name == "axes out of order",
                    quick=name == "rows",
                )
            )
    found += [
        Case(
            f"index {index.name}",
            {"input_tensor": (3, 7)},
            {"axes": (0, 1)},
            data_types={"output_tensor": index},
            only=(T.FLOAT32,),
            layouts=False,
        )
        for index in (T.INT32, T.UINT64)
    ]
    return tuple(found)


CASES: Final = (
    OperatorCases(ops.Reduce, _TOLERANCE, _functions()),
    OperatorCases(ops.Argmax, {}, _places()),
    OperatorCases(ops.Argmin, {}, _places(), every_rule=False),
)
