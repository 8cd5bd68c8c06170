"""The kernel of normalization by the root mean square."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, SUBGROUP_SUMS


class AddendType(enum.IntEnum):
    """Which tensor has the type of what is added, or that it is FLOAT16 where neither is."""

    NONE = 0
    OUTPUT = 1
    INPUT = 2
    HALF = 3


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "root_mean_square",
        "root_mean_square.comp",
        buffers=("x", "addend", "scale", "y:w", "sum:w"),
        params=(
            *("uint rows", "uint width", "uint sizes[3]"),
            *(f"uint {name}_strides[4]" for name in ("x", "addend", "y", "sum")),
            *("uint scale_stride", "float epsilon", "uint zero"),
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("LANES", 1), ("HELD", 0), ("ADDEND_TYPE", 0), ("HAS_SCALE", 0), ("HAS_SUM", 0)),
            ("QUADS", 0),
        ),
        shared=(("ADDEND_TYPE", AddendType),),
        variants=(("T U", tuple(f"{t} {u}" for t in FLOATS for u in FLOATS)),),
        extensions=SUBGROUP_SUMS,
    ),
)
