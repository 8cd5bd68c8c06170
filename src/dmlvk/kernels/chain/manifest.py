"""The kernel of several pointwise operators in a row."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, lanes
from dmlvk.kernels.elementwise.manifest import ITEM_PARAMS, steps
from dmlvk.spec.ops.chain import FIRST_NUMBER, FIRST_RESULT, MOST_INPUTS, MOST_OPERATIONS, NONE, ROUND_TO_BFLOAT16

_INPUTS = tuple(f"x{index}" for index in range(MOST_INPUTS))
_NUMBERED = range(MOST_OPERATIONS)

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="pointwise_chain",
        source="pointwise_chain.comp",
        buffers=(*_INPUTS, "output:w"),
        params=(*ITEM_PARAMS, *steps(*_INPUTS, "output"), f"float numbers[{2 * MOST_OPERATIONS}]", "uint zero"),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("OPERATIONS", 1),
            ("INPUTS", 1),
            *((f"OPERATION_{number}", 0) for number in _NUMBERED),
            *((f"OPERANDS_{number}", 0) for number in _NUMBERED),
            *(("RANK", 1), ("ITEMS", 1), ("RUNS", 0)),
            *((f"{name.upper()}_MODE", 0) for name in (*_INPUTS, "output")),
        ),
        shared=(
            *(("FIRST_NUMBER", FIRST_NUMBER), ("FIRST_RESULT", FIRST_RESULT), ("NONE", NONE)),
            ("ROUND_TO_BFLOAT16", ROUND_TO_BFLOAT16),
        ),
        selectors=tuple(f"OPERATION_{number}" for number in _NUMBERED),
        variants=(("LANES T U", lanes((name, name) for name in FLOATS)),),
    ),
)
