"""The kernel of the weights of a resampling."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "resample_weights",
        "resample_weights.comp",
        buffers=("y:w",),
        params=(
            *("uint count", "uint sizes[2]", "uint divisors[4]", "uint y_strides[2]", "uint input_sizes[1]"),
            *("int start_whole[1]", "uint start_part[1]", "int step_whole[1]", "uint step_part[1]", "uint step_estimate[1]"),
            *("uint parts[1]", "float weight_of_part[1]", "float filter_scale", "float coefficient", "int reach"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("CUBIC", 0), ("INSIDE_ONLY", 0), ("NORMALIZED", 0)),
        variants=(("T", FLOATS),),
    ),
)
