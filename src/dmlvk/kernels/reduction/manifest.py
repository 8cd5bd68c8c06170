"""The kernels of reductions."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.shapes import WORD_BITS
from dmlvk.kernels.common.terms import NUMERIC, bits

ACCUMULATOR_PARAMS = ("uint decreasing", "uint index_words", "uint divisor")
_REDUCE_PARAMS = (
    *ACCUMULATOR_PARAMS,
    "uint row_elements",
    "uint chunks",
    "uint chunk_units",
    *("uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]", "uint kept_x[8]", "uint kept_output[8]"),
    *("uint row_rank", "uint row_sizes[8]", "uint row_divisors[16]", "uint row_x[8]"),
)
_REDUCE_CONSTANTS = (("LOCAL_SIZE_X", 128), ("FUNCTION", 10), ("SPLIT", 0))
_TYPES = ("FLOAT64", *NUMERIC)
_WORD_LANES = tuple(f"{count} {name}" for name in _TYPES for count in (1, WORD_BITS // bits(name)))
"""The variants "LANES T" of a kernel of one data type: one element at a time, and 16 bytes."""

WORKGROUP = 128
"""The most invocations of a workgroup."""
FEW_LANES = 4
"""The most lanes of a column that has ``MANY_TOGETHER`` elements of each row in flight; a wider one has ``FEW_TOGETHER``."""
MANY_TOGETHER, FEW_TOGETHER = 8, 4
RANGE = 256
"""A function of accumulators that is none of ``ReduceFunction``: the smallest and the largest number."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "reduce_rows",
        "reduce_rows.comp",
        buffers=("x", "output:w", "partials:w"),
        params=("uint rows", "uint row_units", *_REDUCE_PARAMS),
        constants=(*_REDUCE_CONSTANTS, ("TEAM", 1), ("UNITS", 1), ("ROW_RUNS", 0)),
        shared=(("RANGE", RANGE),),
        variants=(("LANES T", _WORD_LANES),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "reduce_columns",
        "reduce_columns.comp",
        buffers=("x", "output:w", "partials:w"),
        params=("uint columns", "uint inner_size", "uint output_step", *_REDUCE_PARAMS),
        constants=(*_REDUCE_CONSTANTS, ("COLUMNS", 1), ("ROW_RUNS", 0)),
        shared=(
            *(("RANGE", RANGE), ("COLUMN_INVOCATIONS", WORKGROUP)),
            *(("FEW_LANES", FEW_LANES), ("MANY_TOGETHER", MANY_TOGETHER), ("FEW_TOGETHER", FEW_TOGETHER)),
        ),
        variants=(("LANES T", _WORD_LANES),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "reduce_partials",
        "reduce_partials.comp",
        buffers=("output:w", "partials"),
        params=(
            *ACCUMULATOR_PARAMS,
            *("uint rows", "uint chunks"),
            *("uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]", "uint kept_output[8]"),
        ),
        constants=(*_REDUCE_CONSTANTS, ("TEAM", 1)),
        shared=(("RANGE", RANGE),),
        variants=(("LANES T", tuple(f"1 {name}" for name in _TYPES)),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
)
