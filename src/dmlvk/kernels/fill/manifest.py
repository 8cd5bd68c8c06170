"""The kernels of fills."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec

_FILL_PARAMS = (
    "uint count",
    "uint sizes[8]",
    "uint divisors[16]",
    "uint inner_size",
    "uint position",
    "uint position_strides[8]",
    "uint source_strides[8]",
    "uint output_strides[8]",
    "uint position_step",
    "uint source_step",
)
_FILL_CONSTANTS = (("LOCAL_SIZE_X", 128), ("RANK", 1), ("HALVES", 1))
_FILL_VARIANTS = (("WORDS", ("0", "1")), ("T", ("UINT32", "UINT16", "UINT8")))
"""The parameters, constants and variants of every fill; see ``glsl/include/fill.glsl``."""


class SequenceArithmetic(enum.IntEnum):
    """The numbers in which a sequence is computed."""

    INTEGERS = 0
    FLOAT16 = 16
    FLOAT32 = 32


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "fill_value_constant",
        "fill_value_constant.comp",
        buffers=("output:w",),
        params=(*_FILL_PARAMS, "uint value[2]"),
        constants=_FILL_CONSTANTS,
        variants=_FILL_VARIANTS,
    ),
    KernelSpec(
        "fill_value_sequence",
        "fill_value_sequence.comp",
        buffers=("output:w",),
        params=(*_FILL_PARAMS, "uint start[2]", "uint delta[2]"),
        constants=(*_FILL_CONSTANTS, ("ARITHMETIC", 0)),
        shared=(("ARITHMETIC", SequenceArithmetic),),
        variants=_FILL_VARIANTS,
    ),
    KernelSpec(
        "diagonal_matrix",
        "diagonal_matrix.comp",
        buffers=("input", "output:w"),
        params=(*_FILL_PARAMS, "uint value[2]", "uint begin", "uint end"),
        constants=(*_FILL_CONSTANTS, ("HAS_INPUT", 0), ("OUTSIDE", 0)),
        variants=_FILL_VARIANTS,
    ),
    KernelSpec(
        "one_hot",
        "one_hot.comp",
        buffers=("indices", "values", "output:w"),
        params=(*_FILL_PARAMS, "uint axis_size", "uint on"),
        constants=(*_FILL_CONSTANTS, ("INDEX_WORDS", 1), ("INDEX_SIGNED", 0)),
        variants=_FILL_VARIANTS,
    ),
)
