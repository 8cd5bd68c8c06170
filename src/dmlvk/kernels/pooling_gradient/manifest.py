"""The kernels of the gradients of pooling."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS
from dmlvk.kernels.pooling.manifest import POSITION_CONSTANTS, POSITION_PARAMS

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "pooling_gradient",
        "pooling_gradient.comp",
        buffers=("input_gradient", "indices", "output_gradient:w"),
        params=(*POSITION_PARAMS, "uint window_counts[3]"),
        constants=(*POSITION_CONSTANTS, ("FUNCTION", 2)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "pooling_gradient_lanes",
        "pooling_gradient_lanes.comp",
        buffers=("input", "input_gradient", "output_gradient:w"),
        params=(
            "uint count",
            "uint sizes[4]",
            "uint divisors[8]",
            "uint channels",
            "uint height",
            "uint width",
            "uint windows[2]",
            "uint end_padding[2]",
            "uint include_padding",
            "uint input_strides[4]",
            "uint gradient_strides[4]",
            "uint output_strides[4]",
        ),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("FUNCTION", 2),
            ("CHANNELS", 0),
            ("LANES", 4),
            ("ROWS", 1),
            ("COLUMNS", 4),
            ("WINDOW_H", 3),
            ("WINDOW_W", 3),
            ("STRIDE_H", 1),
            ("STRIDE_W", 1),
            ("WINDOWS_H", 1),
            ("WINDOWS_W", 1),
            ("FIRST_H", 0),
            ("FIRST_W", 0),
            ("LEAD_H", 0),
            ("LEAD_W", 0),
            ("COLUMNS_WHOLE", 0),
            ("INPUT_MODE", 0),
            ("GRADIENT_MODE", 0),
            ("OUTPUT_MODE", 0),
            ("RANK", 4),
        ),
        variants=(("T", FLOATS),),
    ),
)
