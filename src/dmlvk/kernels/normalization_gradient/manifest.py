"""The kernels of the gradients of normalizations."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, SUBGROUP_SUMS
from dmlvk.kernels.normalization.manifest import COLUMN_INVOCATIONS

_BATCH_GIVEN = ("mean", "variance", "scale")
_BATCH_SUMS = ("scale_gradient", "bias_gradient")
_BATCH_BUFFERS = ("x", "dy", *_BATCH_GIVEN, "dx:w", *(f"{name}:w" for name in _BATCH_SUMS))
_BATCH_PARAMS = (
    *("uint rows", "uint row_units", "uint row_elements", "float epsilon"),
    *("uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]"),
    *(f"uint kept_{name}[8]" for name in ("x", "dy", "dx", *_BATCH_GIVEN, *_BATCH_SUMS)),
    *("uint row_sizes[8]", "uint row_divisors[16]"),
    *(f"uint row_{name}[8]" for name in ("x", "dy", "dx")),
    *(f"uint neighbour_{name}" for name in (*_BATCH_GIVEN, *_BATCH_SUMS)),
)
_BATCH_CONSTANTS = (("LOCAL_SIZE_X", 128), ("UNITS", 1), ("ROW_RANK", 1), ("TRAINING", 0))
_BATCH_COLUMN_CONSTANTS = (*_BATCH_CONSTANTS, ("COLUMNS", 1), ("GIVEN_WORDS", 0))
_BATCH_VARIANTS = (("T", FLOATS), ("WORDS", ("0", "1")))

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "batch_gradient_row",
        "batch_gradient_row.comp",
        buffers=_BATCH_BUFFERS,
        params=_BATCH_PARAMS,
        constants=(*_BATCH_CONSTANTS, ("LANES", 1)),
        variants=_BATCH_VARIANTS,
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "batch_gradient_split",
        "batch_gradient_split.comp",
        buffers=(*_BATCH_BUFFERS, "partials:w"),
        params=(*_BATCH_PARAMS, "uint tiles", "uint chunks"),
        constants=_BATCH_CONSTANTS,
        variants=(*_BATCH_VARIANTS, ("STAGE", ("0", "1"))),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "batch_gradient_together",
        "batch_gradient_together.comp",
        buffers=(*_BATCH_BUFFERS, "partials:w"),
        params=(*_BATCH_PARAMS, "uint tiles", "uint chunks", "uint patience"),
        constants=_BATCH_CONSTANTS,
        variants=(*_BATCH_VARIANTS, ("STAGE", ("0", "1"))),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "batch_gradient_column",
        "batch_gradient_column.comp",
        buffers=_BATCH_BUFFERS,
        params=_BATCH_PARAMS,
        constants=_BATCH_COLUMN_CONSTANTS,
        shared=(("COLUMN_INVOCATIONS", COLUMN_INVOCATIONS),),
        variants=_BATCH_VARIANTS,
    ),
    KernelSpec(
        "batch_gradient_column_split",
        "batch_gradient_column_split.comp",
        buffers=(*_BATCH_BUFFERS, "partials:w"),
        params=(*_BATCH_PARAMS, "uint tiles", "uint chunks", "uint blocks"),
        constants=(*_BATCH_COLUMN_CONSTANTS, ("COMPENSATED", 0)),
        shared=(("COLUMN_INVOCATIONS", COLUMN_INVOCATIONS),),
        variants=(*_BATCH_VARIANTS, ("STAGE", ("0", "1", "2"))),
    ),
)
