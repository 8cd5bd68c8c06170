"""The kernel of ElementWiseIf."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import lanes
from dmlvk.kernels.elementwise.manifest import ITEM_PARAMS, steps

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="elementwise_select",
        source="elementwise_select.comp",
        buffers=("condition", "a", "b", "output:w"),
        params=(*ITEM_PARAMS, *steps("condition", "a", "b", "output")),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("RANK", 1),
            ("ITEMS", 1),
            ("CONDITION_MODE", 0),
            ("A_MODE", 0),
            ("B_MODE", 0),
            ("OUTPUT_MODE", 0),
        ),
        variants=(("LANES T U", lanes(("UINT8", name) for name in ("UINT8", "UINT16", "UINT32"))),),
    ),
)
