"""Cases of ``ops.number_format``."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.formats import FormatRounding, NumberFormat
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, OperatorCases, any_bits, special


def _numbers(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Numbers of every size that formats have, one in four special."""
    with np.errstate(over="ignore"):
        values = np.ldexp(rng.standard_normal(sizes), rng.integers(-20, 20, sizes)).astype(NUMPY_TYPES[data_type])
    return np.where(rng.random(sizes) < 0.25, special(rng, sizes, data_type), values)


def _bits(format_: NumberFormat) -> T:
    return T.UINT16 if format_.layout.bits > 8 else T.UINT8


def _to(format_: NumberFormat, *, quick: bool = False, **attributes: object) -> Case:
    return Case(
        f"to {format_.name}" + "".join(f", {name} {value!s}" for name, value in attributes.items()),
        {"input_tensor": (3, 5, 17)},
        {"format": format_, **attributes},
        data_types={"output_tensor": _bits(format_)},
        domains={"": _numbers},
        layouts=False,  # output and input are of two types, and so never in one place
        only=(T.FLOAT32, T.FLOAT16),
        quick=quick,
    )


def _from(format_: NumberFormat, *, quick: bool = False) -> Case:
    return Case(
        f"from {format_.name}",
        {"input_tensor": (3, 5, 17)},
        {"format": format_},
        data_types={"output_tensor": T.FLOAT32},
        domains={"": any_bits},
        layouts=False,
        only=(_bits(format_),),
        quick=quick,
    )


def _within(format_: NumberFormat) -> Case:
    return Case(
        f"rounded to {format_.name}",
        {"input_tensor": (3, 5, 17)},
        {"format": format_},
        domains={"": _numbers},
        only=(T.FLOAT32,),
        quick=format_ is NumberFormat.BFLOAT16,
    )


_QUICK = (NumberFormat.BFLOAT16, NumberFormat.FLOAT8E4M3FN)
_POWERS = NumberFormat.FLOAT8E8M0

CASES = (
    OperatorCases(
        FormatCast,
        {},
        (
            *(_to(format_, quick=format_ in _QUICK) for format_ in NumberFormat),
            *(_from(format_, quick=format_ in _QUICK) for format_ in NumberFormat),
            *(_to(format_, saturate=False) for format_ in NumberFormat),
            _to(_POWERS, rounding=FormatRounding.UP),
            _to(_POWERS, rounding=FormatRounding.DOWN),
            *map(_within, _QUICK),
        ),
    ),
)
