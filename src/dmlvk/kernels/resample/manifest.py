"""The kernels of resampling."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.shapes import group_lanes
from dmlvk.kernels.common.terms import FLOATS, bits

_RESAMPLE_PARAMS = (
    "uint count",
    "uint inner_size",
    "uint sizes[5]",
    "uint divisors[10]",
    "uint x_strides[5]",
    "uint y_strides[5]",
    "uint x_step",
    "uint y_step",
    "uint unit_size",
    "uint input_sizes[5]",
    "int start_whole[5]",
    "uint start_part[5]",
    "int step_whole[5]",
    "uint step_part[5]",
    "uint step_estimate[5]",
    "uint parts[5]",
    "float weight_of_part[5]",
    "float filter_scales[5]",
    "float filter_reaches[5]",
)
_RESAMPLE_CONSTANTS = (
    *(("LOCAL_SIZE_X", 128), ("RANK", 1), ("MAPPED", 0), ("LINEAR", 1)),
    *(("X_MODE", 0), ("Y_MODE", 0)),
)
_RESAMPLE_TYPES = (*FLOATS, "INT8", "UINT8")
"""The data types of every resampling. ``glsl/include/resample.glsl`` says what the parameters and constants are."""
MOST_UNITS = 2
"""The most groups of outputs that an invocation makes."""
MOST_MAPPED = 4
"""The most dimensions whose positions are worked out."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "resample",
        "resample.comp",
        buffers=("x", "y:w"),
        params=_RESAMPLE_PARAMS,
        constants=(*_RESAMPLE_CONSTANTS, ("CORNERS", 1), ("COLUMNS", 0), ("UNITS", 1)),
        shared=(("MOST_UNITS", MOST_UNITS),),
        variants=(("LANES T", tuple(f"{n} {t}" for t in _RESAMPLE_TYPES for n in (1, group_lanes(bits(t))))),),
    ),
    KernelSpec(
        "resample_whole",
        "resample_whole.comp",
        buffers=("x", "y:w"),
        params=_RESAMPLE_PARAMS,
        constants=(
            *_RESAMPLE_CONSTANTS,
            *(("CORNERS", 1), ("FACTOR", 2), ("STEP", 1), ("START", 0), ("LEFT", 0), ("UNITS", 1)),
        ),
        shared=(("MOST_UNITS", MOST_UNITS),),
        variants=(("LANES T", tuple(f"{group_lanes(bits(t))} {t}" for t in _RESAMPLE_TYPES)),),
    ),
    KernelSpec(
        "resample_antialiased",
        "resample_antialiased.comp",
        buffers=("x", "y:w"),
        params=_RESAMPLE_PARAMS,
        constants=_RESAMPLE_CONSTANTS,
        shared=(("MOST_MAPPED", MOST_MAPPED),),
        variants=(("LANES T", tuple(f"{n} {t}" for t in _RESAMPLE_TYPES for n in (1, group_lanes(bits(t))))),),
    ),
)
