"""The kernel of linear attention."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, SUBGROUP_SUMS

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "linear_attention",
        "linear_attention.comp",
        buffers=("q", "k", "v", "past", "decay", "rate", "y:w", "state:w"),
        params=(
            *("uint heads", "uint group", "uint size", "uint value_size", "uint tiles"),
            *("uint workgroups", "uint first_row", "uint end_row"),
            *(f"uint {name}_strides[4]" for name in ("q", "k", "v", "past", "decay", "y", "state")),
            *("uint rate_strides[3]", "float scale"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("LANES", 1), ("HELD", 1), ("HAS_PAST", 0), ("HAS_DECAY", 0), ("HAS_RATE", 0)),
        variants=(("T U", tuple(f"{t} {u}" for t in FLOATS for u in FLOATS)),),
        extensions=SUBGROUP_SUMS,
    ),
)
