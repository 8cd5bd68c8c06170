"""The kernels of recurrent networks."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import COOPERATIVE_EXTENSIONS, FIRST_BITS, FLOATS

_CELL_BUFFERS = ("bias", "peephole", "lengths", "state:w", "sequence:w", "single:w", "cell_single:w")
_CELL_PARAMS = (
    "uint steps",
    "uint batch",
    "uint hidden",
    "uint row",
    "uint first_reversed",
    "uint previous",
    "uint cell",
    "uint bias_strides[2]",
    "uint peephole_strides[2]",
    "uint lengths_stride",
    "uint sequence_strides[4]",
    "uint single_strides[3]",
    "uint cell_single_strides[3]",
    "float clip",
    "float activation_params[12]",
)
_CELL = (
    ("CELL", 0),
    ("ACTIVATION_F", 0),
    ("ACTIVATION_G", 0),
    ("ACTIVATION_H", 0),
    ("ACTIVATION_F1", 0),
    ("ACTIVATION_G1", 0),
    ("ACTIVATION_H1", 0),
    ("HAS_CELL", 0),
    ("HAS_BIAS", 0),
    ("HAS_PEEPHOLE", 0),
    ("HAS_LENGTHS", 0),
    ("HAS_SEQUENCE", 0),
    ("HAS_SINGLE", 0),
    ("HAS_CELL_SINGLE", 0),
    ("CLIPPED", 0),
    ("COUPLED", 0),
)
"""The constants of ``glsl/include/recurrent.glsl``; its buffers are ``_CELL_BUFFERS``, its parameters ``_CELL_PARAMS``."""
_STEP_PARAMS = ("uint step", "uint next", "uint vector")
"""The parameters for the step that a dispatch takes, and for the places where it finds and leaves the state."""
_PRODUCT_PARAMS = ("uint quads", "uint r_strides[2]")
"""The recurrence matrix's rows: words of 16 bytes, and steps between directions and between rows."""
_BLOCK_PARAMS = ("uint first", "uint last", "uint xw_steps", "uint xw_first[2]")
"""The parameters for the steps that a dispatch takes, and for those that it finds the input's products of."""
_SHUFFLE = ("GL_KHR_shader_subgroup_shuffle",)

_PARTED = (("REST_SCALE", 2048), FIRST_BITS, ("SIZE_BITS", 0x7FFFFFFF), ("LEAST_NORMAL", 0x38800000))
"""Of a float32 that is parted: the factor that brings what FLOAT16 leaves of it into its range, a mask of all bits but the
sign, and the bits of 2^-14, the least FLOAT16 of full precision."""

MOST_ENTRIES = 16
"""Sequences that share a read of the recurrence matrix: more need more registers than there are."""
MOST_GATES = 4
"""The most gates of a cell: an LSTM's."""


class Cell(enum.IntEnum):
    """The work of a dispatch of a step: a whole cell, or one of the two products of a GRU."""

    RNN = 0
    LSTM = 1
    GRU = 2
    GRU_RESET = 3
    GRU_STATE = 4


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "recurrent_stage",
        "recurrent_stage.comp",
        buffers=("x", "y:w"),
        params=("uint count", "uint given", "uint columns", "uint row", "uint rows[2]", "uint strides[4]"),
        constants=(("LOCAL_SIZE_X", 128),),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "recurrent_naive",
        "recurrent_naive.comp",
        buffers=("x", "w", "r", *_CELL_BUFFERS),
        params=(
            *_CELL_PARAMS,
            *_STEP_PARAMS,
            "uint count",
            "uint inputs",
            "uint x_strides[3]",
            "uint w_strides[3]",
            "uint r_strides[3]",
        ),
        constants=(("LOCAL_SIZE_X", 128), *_CELL),
        shared=(("CELL", Cell), ("MOST_GATES", MOST_GATES)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "recurrent_step",
        "recurrent_step.comp",
        buffers=("xw", "r", *_CELL_BUFFERS),
        params=(*_CELL_PARAMS, *_STEP_PARAMS, *_PRODUCT_PARAMS),
        constants=(("LOCAL_SIZE_X", 128), ("LANES", 32), ("ENTRIES", 1), ("IN_FLIGHT", 4), *_CELL),
        shared=(("CELL", Cell), ("MOST_GATES", MOST_GATES), ("MOST_ENTRIES", MOST_ENTRIES)),
        variants=(("T", FLOATS),),
        extensions=_SHUFFLE,
    ),
    KernelSpec(
        "recurrent_cooperative",
        "recurrent_cooperative.comp",
        buffers=("xw", "r", *_CELL_BUFFERS),
        params=(*_CELL_PARAMS, *_STEP_PARAMS, *_PRODUCT_PARAMS),
        constants=(
            *(("LOCAL_SIZE_X", 256), ("SUBGROUP", 32), ("MAT_M", 16), ("MAT_N", 16), ("MAT_K", 16)),
            *(("ENTRIES", 16), ("UNITS", 8), ("DEPTH", 256)),
            *_CELL,
        ),
        shared=(("CELL", Cell), ("MOST_GATES", MOST_GATES), *_PARTED),
        variants=(("T", ("FLOAT16",)),),
        extensions=COOPERATIVE_EXTENSIONS,
    ),
    KernelSpec(
        "recurrent_whole",
        "recurrent_whole.comp",
        buffers=("xw", "r", *_CELL_BUFFERS),
        params=(*_CELL_PARAMS, *_PRODUCT_PARAMS, *_BLOCK_PARAMS),
        constants=(("LOCAL_SIZE_X", 256), ("LANES", 4), ("SHARE", 4), ("CAPACITY", 64), *_CELL),
        shared=(("CELL", Cell), ("MOST_GATES", MOST_GATES)),
        variants=(("T", FLOATS),),
        extensions=_SHUFFLE,
    ),
    KernelSpec(
        "recurrent_block",
        "recurrent_block.comp",
        buffers=("xw", "r", *_CELL_BUFFERS),
        params=(*_CELL_PARAMS, *_PRODUCT_PARAMS, *_BLOCK_PARAMS),
        constants=(("LOCAL_SIZE_X", 128), ("LANES", 8), ("CAPACITY", 16), *_CELL),
        shared=(("CELL", Cell), ("MOST_GATES", MOST_GATES)),
        variants=(("T", FLOATS),),
        extensions=_SHUFFLE,
    ),
)
