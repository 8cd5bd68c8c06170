"""The kernels of softmax and its relatives."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, SUBGROUP_SUMS


class OrZero(enum.IntEnum):
    """What becomes 0 instead of NaN."""

    NEVER = 0
    NAN = 1
    NOTHING = 2
    """Sets of -infinity alone."""


_SHARED = (("OR_ZERO", OrZero),)
_SOFTMAX_PARAMS = (
    "uint groups",
    "uint row_units",
    "uint row_elements",
    "float epsilon",
    "uint kept_rank",
    "uint row_rank",
    *(f"uint {which}_{name}" for which in ("kept", "row") for name in ("sizes[8]", "divisors[16]", "x[8]", "y[8]")),
)
_SOFTMAX_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("OPERATION", 0),
    ("POWER", 2),
    ("ROW_RUNS", 0),
    ("LANES", 1),
    ("COLUMNS", 1),
    ("UNITS", 1),
    ("MERGED", 1),
    ("PACKED", 0),
    ("SHELF", 0),
    ("OR_ZERO", 0),
)

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "softmax",
        "softmax.comp",
        buffers=("x", "y:w"),
        params=_SOFTMAX_PARAMS,
        constants=(*_SOFTMAX_CONSTANTS, ("WHOLE", 0)),
        variants=(("T", FLOATS), ("UNIT", ("0", "1", "2", "3"))),
        extensions=SUBGROUP_SUMS,
        shared=_SHARED,
    ),
    KernelSpec(
        "softmax_split",
        "softmax_split.comp",
        buffers=("x", "y:w", "partials:w"),
        params=(*_SOFTMAX_PARAMS, "uint tiles", "uint chunks"),
        constants=_SOFTMAX_CONSTANTS,
        variants=(("T", FLOATS), ("UNIT", ("0", "1", "2", "3")), ("APPLY", ("0", "1"))),
        extensions=SUBGROUP_SUMS,
        shared=_SHARED,
    ),
)
