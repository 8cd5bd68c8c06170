"""The kernels of resampling's gradients."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.shapes import convolution_lanes, group_lanes
from dmlvk.kernels.common.terms import FLOATS, bits
from dmlvk.kernels.resample.manifest import MOST_MAPPED
from dmlvk.kernels.resample_gradient.rules import PATTERN_FACTORS, PATTERN_TAPS

_POSITIONS = (
    "uint input_sizes[4]",
    "uint output_sizes[4]",
    "int start_whole[4]",
    "uint start_part[4]",
    "int step_whole[4]",
    "uint step_part[4]",
    "uint step_estimate[4]",
    "uint parts[4]",
    "float weight_of_part[4]",
    "float enlargement[4]",
    "float enlargement_start[4]",
)
"""The parameters for the places of outputs; see ``glsl/include/resample_gradient.glsl``."""

WHOLE_ROWS = 4
"""Rows of dx that an invocation of the kernel of whole enlargements makes at most."""
_BATCH = 4
"""Rows of dy that an invocation of the kernel of tiles loads before it needs the first of them."""
_HELD_TAPS = 16
"""Taps of a column that such an invocation holds in registers."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "resample_gradient",
        "resample_gradient.comp",
        buffers=("x", "y:w"),
        params=(
            *("uint count", "uint inner_size", "uint sizes[4]", "uint divisors[8]"),
            *("uint x_strides[4]", "uint y_strides[4]", "uint x_start", "uint x_step", "uint y_step"),
            *_POSITIONS,
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("RANK", 1), ("MAPPED", 0), ("LINEAR", 1)),
            *(("X_MODE", 0), ("Y_MODE", 0)),
        ),
        shared=(("MOST_MAPPED", MOST_MAPPED),),
        variants=(("LANES T", tuple(f"{n} {t}" for t in FLOATS for n in (1, group_lanes(bits(t))))),),
    ),
    KernelSpec(
        "resample_gradient_tiles",
        "resample_gradient_tiles.comp",
        buffers=("x", "y:w"),
        params=(
            *("uint count", "uint x_start", "uint planes", "uint inner_size"),
            *("uint outer_sizes[3]", "uint outer_divisors[6]", "uint outer_x[3]", "uint outer_y[3]"),
            *("uint row_step", "uint column_step", "uint y_row_step", "uint y_column_step"),
            *("uint rows", "uint columns", "uint chunk", "uint together", "uint rounds"),
            *("uint row_tiles", "uint column_tiles", "uint chunks", "uint width", "uint words"),
            *("uint word_divisor[2]", "uint chunk_divisor[2]", "uint line_divisor[2]"),
            *_POSITIONS,
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("LINEAR", 1), ("FLAT", 1), ("X_MODE", 0), ("Y_MODE", 0), ("TAPS", 4)),
            *(("TILE", 2048), ("PLANE_TABLE", 128), ("ROW_TABLE", 64), ("COLUMN_TABLE", 256), ("WEIGHT_TABLE", 512)),
        ),
        shared=(("BATCH", _BATCH), ("HELD_TAPS", _HELD_TAPS)),
        variants=(("LANES T", tuple(f"{group_lanes(bits(t))} {t}" for t in FLOATS)),),
    ),
    KernelSpec(
        "resample_gradient_whole",
        "resample_gradient_whole.comp",
        buffers=("x", "y:w"),
        params=(
            *("uint count", "uint x_start", "uint sizes[5]", "uint divisors[10]", "uint x_strides[5]", "uint y_strides[5]"),
            *("uint rows", "uint columns", "uint row_step", "uint y_row_step", "uint column_step", "uint y_column_step"),
            *(f"float row_weights[{3 * PATTERN_TAPS}]", f"float column_weights[{3 * PATTERN_TAPS}]"),
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("RANK", 3), ("COLUMNS", 1), ("ROWS", 2)),
            *(("ROW_FACTOR", 2), ("ROW_LEFT", 1), ("ROW_TAPS", 4)),
            *(("COLUMN_FACTOR", 2), ("COLUMN_LEFT", 1), ("COLUMN_TAPS", 4)),
        ),
        shared=(("MOST_ROWS", WHOLE_ROWS), ("MOST_TAPS", PATTERN_TAPS), ("MOST_FACTOR", max(PATTERN_FACTORS))),
        variants=(("LANES T", tuple(f"{n} {t}" for t in FLOATS for n in convolution_lanes(bits(t)))),),
    ),
    KernelSpec(
        "resample_gradient_spread",
        "resample_gradient_spread.comp",
        buffers=("x", "y:w"),
        params=(
            *("uint count", "uint x_start", "uint sizes[5]", "uint divisors[10]", "uint x_strides[5]", "uint y_strides[5]"),
            *("uint rows", "uint read_rows", "uint read_columns"),
            *("uint row_step", "uint y_row_step", "uint column_step", "uint y_column_step"),
            *("float row_weights[4]", "float column_weights[4]"),
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("RANK", 3), ("COLUMNS", 1), ("X_MODE", 0)),
            *(("ROW_FACTOR", 2), ("COLUMN_FACTOR", 2)),
        ),
        variants=(("LANES T", tuple(f"{n} {t}" for t in FLOATS for n in convolution_lanes(bits(t)))),),
    ),
)
