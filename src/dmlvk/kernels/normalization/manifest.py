"""The kernels of normalization."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, SUBGROUP_SUMS, lanes

_MEAN_VARIANCE_BUFFERS = ("x", "scale", "bias", "add", "y:w", "mean:w", "variance:w")
_MEAN_VARIANCE_PARAMS = (
    "uint rows",
    "uint row_units",
    "float epsilon",
    "float activation_param0",
    "float activation_param1",
    *("uint kept_rank", "uint side_rank"),
    *("uint kept_sizes[8]", "uint kept_divisors[16]"),
    *(f"uint kept_{name}[8]" for name in ("x", "scale", "bias", "add", "y", "mean", "variance")),
    *("uint row_sizes[8]", "uint row_divisors[16]"),
    *(f"uint row_{name}[8]" for name in ("x", "add", "y")),
    *("uint side_sizes[8]", "uint side_divisors[16]"),
    *(f"uint side_{name}[8]" for name in ("scale", "bias")),
    *(f"uint neighbour_{name}" for name in ("scale", "bias", "mean", "variance")),
)
_MEAN_VARIANCE_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("UNITS", 1),
    ("ROW_RANK", 1),
    ("HAS_SCALE", 0),
    ("HAS_BIAS", 0),
    ("HAS_ADD", 0),
    ("HAS_STATISTICS", 0),
    ("SIDE_SHARED", 0),
    ("SIDE_WORDS", 0),
    ("USE_MEAN", 1),
    ("USE_VARIANCE", 1),
    ("ACTIVATION", 0),
)
COLUMN_INVOCATIONS = 256
"""The most invocations of a workgroup that has rows side by side."""
_BATCH_TENSORS = ("x", "mean", "variance", "scale", "bias", "output")

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "mean_variance_row",
        "mean_variance_row.comp",
        buffers=_MEAN_VARIANCE_BUFFERS,
        params=_MEAN_VARIANCE_PARAMS,
        constants=(*_MEAN_VARIANCE_CONSTANTS, ("LANES", 1)),
        variants=(("T", FLOATS), ("WORDS", ("0", "1"))),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "mean_variance_split",
        "mean_variance_split.comp",
        buffers=(*_MEAN_VARIANCE_BUFFERS, "partials:w"),
        params=(*_MEAN_VARIANCE_PARAMS, "uint tiles", "uint chunks"),
        constants=_MEAN_VARIANCE_CONSTANTS,
        variants=(("T", FLOATS), ("WORDS", ("0", "1")), ("APPLY", ("0", "1"))),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "mean_variance_column",
        "mean_variance_column.comp",
        buffers=_MEAN_VARIANCE_BUFFERS,
        params=_MEAN_VARIANCE_PARAMS,
        constants=(*_MEAN_VARIANCE_CONSTANTS, ("COLUMNS", 1)),
        shared=(("COLUMN_INVOCATIONS", COLUMN_INVOCATIONS),),
        variants=(("T", FLOATS), ("WORDS", ("0", "1"))),
    ),
    KernelSpec(
        "mean_variance_column_split",
        "mean_variance_column_split.comp",
        buffers=(*_MEAN_VARIANCE_BUFFERS, "partials:w"),
        params=(*_MEAN_VARIANCE_PARAMS, "uint tiles", "uint chunks", "uint blocks"),
        constants=(*_MEAN_VARIANCE_CONSTANTS, ("COLUMNS", 1)),
        shared=(("COLUMN_INVOCATIONS", COLUMN_INVOCATIONS),),
        variants=(("T", FLOATS), ("WORDS", ("0", "1")), ("STAGE", ("0", "1", "2"))),
    ),
    KernelSpec(
        "batch_normalization",
        "batch_normalization.comp",
        buffers=(*_BATCH_TENSORS[:-1], "output:w"),
        params=(
            "uint count",
            "float epsilon",
            "float activation_param0",
            "float activation_param1",
            *("uint sizes[8]", "uint divisors[16]", "uint inner_size"),
            *("uint repeated", "uint repeat_size", "uint repeat_step", "uint x_repeat", "uint output_repeat"),
            *("uint run_size", "uint run_divisor[2]", "uint run_steps[4]"),
            *(f"uint {name}_strides[8]" for name in _BATCH_TENSORS),
            *(f"uint {name}_step" for name in _BATCH_TENSORS),
        ),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("RANK", 1),
            ("ITEMS", 1),
            ("RUNS", 0),
            ("ACTIVATION", 0),
            *((f"{name.upper()}_MODE", 0) for name in _BATCH_TENSORS),
        ),
        variants=(("LANES T U", lanes((name, name) for name in FLOATS)),),
    ),
)
