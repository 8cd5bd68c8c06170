"""The kernels of multi-head attention."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import COOPERATIVE_EXTENSIONS, FLOATS, SUBGROUP_SUMS

_AROUND = ("bias", "mask", "relative", "lengths", "sinks")
_BUFFERS = ("q", "k", "v", *_AROUND, "y:w")
_PARAMS = (
    *("uint batch", "uint queries", "uint keys", "uint new_keys", "uint most_past", "uint key_heads"),
    *("uint head_size", "uint value_size", "uint q_start", "uint k_start", "uint v_start"),
    *(f"uint {name}_strides[4]" for name in ("q", "k", "v", "y", "mask", "relative")),
    *("uint bias_stride", "uint k_bias", "uint v_bias", "uint lengths_stride", "uint sinks_stride"),
    *("float scale", "float softcap", "uint window", "uint both_ways", "float mask_filter"),
)
"""The parameters of every attention kernel; see ``glsl/include/attention.glsl``."""
_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("GROUP", 1),
    ("Q_BIAS", 0),
    ("KV_BIAS", 0),
    ("MASK_BOUNDS", 0),
    ("MASK_BOOLEAN", 0),
    ("HAS_RELATIVE", 0),
    ("LENGTHS", 0),
    ("UNPADDED", 0),
    ("WINDOWED", 0),
    ("CAPPED", 0),
    ("HAS_SINKS", 0),
    ("QUADS", 0),
)
_TURN_BUFFERS = ("cosines", "sines", "positions")
_TURN_PARAMS = (
    *("uint pairs", "uint places"),
    *(f"uint {name}_strides[2]" for name in _TURN_BUFFERS),
)
"""What ``glsl/include/attention_turn.glsl`` needs."""


BAND_WORKGROUPS = 512
"""The workgroups of a band of heads whose tiles with most keys come first, see ``glsl/include/attention.glsl``: a few for
each processor."""
BLOCK_SIDE = 8
"""The rows and keys of an invocation's scores in ``glsl/attention_blocks.comp``."""


class PastLengths(enum.IntEnum):
    """The type of the lengths of the past, one for each batch entry."""

    NONE = 0
    INT32 = 1
    FLOAT32 = 2
    FLOAT16 = 3


class MaskBounds(enum.IntEnum):
    """What the mask holds for each batch entry: where its keys end, or also where they start."""

    NONE = 0
    ENDS = 1
    ENDS_AND_STARTS = 2


class Turn(enum.IntEnum):
    """Whether elements are turned by rotary embedding, and where the second of a pair stands."""

    NONE = 0
    HALVES = 1
    NEIGHBOURS = 2


_TURN_CONSTANTS = (("TURN", 0), ("POSITION_WORDS", 0))
_SHARED = (("LENGTHS", PastLengths), ("MASK_BOUNDS", MaskBounds), ("BAND_WORKGROUPS", BAND_WORKGROUPS))

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "attention_naive",
        "attention_naive.comp",
        buffers=_BUFFERS,
        params=(*_PARAMS, "uint count"),
        constants=_CONSTANTS,
        shared=_SHARED,
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "attention_tiles",
        "attention_tiles.comp",
        buffers=(*_BUFFERS, "partials:w"),
        params=(*_PARAMS, "uint part_tiles", "uint summaries"),
        constants=(
            *_CONSTANTS,
            *(
                ("ACROSS", 16),
                ("STEP", 1),
                ("TILE_ROWS", 32),
                ("TILE_KEYS", 32),
                ("TILE_COLUMNS", 64),
                ("DEPTH", 16),
                ("HEAD", 0),
            ),
            ("SPLIT", 0),
        ),
        shared=_SHARED,
        variants=(("T", FLOATS),),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "attention_blocks",
        "attention_blocks.comp",
        buffers=_BUFFERS,
        params=_PARAMS,
        constants=(
            *_CONSTANTS,
            *(("TILE_ROWS", 64), ("TILE_KEYS", 64), ("TILE_COLUMNS", 64), ("DEPTH", 8), ("WHOLE", 0)),
        ),
        shared=(*_SHARED, ("BLOCK", BLOCK_SIDE), ("UNROLLED", 4)),
        variants=(("T", FLOATS),),
        extensions=SUBGROUP_SUMS,
    ),
    *(
        KernelSpec(
            name,
            "attention_cooperative.comp",
            buffers=(*_BUFFERS, "partials:w"),
            params=(*_PARAMS, "uint part_tiles", "uint summaries"),
            constants=(
                *_CONSTANTS,
                *(("SUBGROUP", 32), ("MAT_M", 16), ("MAT_N", 16), ("MAT_K", 16)),
                *(("TILE_ROWS", 64), ("SUB_ROWS", 16), ("TILE_KEYS", 32), ("HEAD", 128), ("VALUE", 128)),
                *(
                    ("HELD", 128),
                    ("TOGETHER", 1),
                    ("SETS", 1),
                    ("WHOLE", 1),
                    ("RELATIVE_WORDS", 0),
                    ("PLAIN", 1),
                    ("SPLIT", 0),
                ),
            ),
            shared=_SHARED,
            variants=(("T", ("FLOAT16",)), ("IN_PLACE", (in_place,)), ("FRAGMENTS", (fragments,))),
            extensions=(*COOPERATIVE_EXTENSIONS, *SUBGROUP_SUMS, *extensions),
        )
        for name, in_place, fragments, extensions in (
            ("attention_cooperative", "0", "0", ()),
            ("attention_reductions", "1", "0", ("GL_NV_cooperative_matrix2",)),
            ("attention_fragments", "1", "1", ("GL_NV_cooperative_matrix2",)),
        )
    ),
    KernelSpec(
        "attention_step",
        "attention_step.comp",
        buffers=("q", "k:w", "v:w", *_AROUND, "y:w", "new_k", "new_v", *_TURN_BUFFERS, "partials:w", "counters:w"),
        params=(
            *_PARAMS,
            *_TURN_PARAMS,
            *("uint new_k_strides[4]", "uint new_v_strides[4]", "uint parts", "uint part_keys", "uint summaries"),
        ),
        constants=(
            *_CONSTANTS,
            *_TURN_CONSTANTS,
            *(
                ("LANES", 1),
                ("ROWS", 1),
                ("NEW_ROWS", 1),
                ("KEYS", 1),
                ("TOGETHER", 1),
                ("HEAD_CHUNKS", 1),
                ("VALUE_CHUNKS", 1),
                ("SPLIT", 0),
                ("PARTS_TOGETHER", 1),
            ),
        ),
        shared=(*_SHARED, ("TURN", Turn)),
        variants=(("T", FLOATS),),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "attention_merge",
        "attention_merge.comp",
        buffers=("partials", "y:w"),
        params=(
            *("uint count", "uint parts", "uint summaries", "uint queries", "uint key_heads"),
            *("uint value_size", "uint y_strides[4]"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("GROUP", 1), ("PARTS_TOGETHER", 1)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "attention_present",
        "attention_present.comp",
        buffers=("x", "past", "bias", "lengths", *_TURN_BUFFERS, "y:w"),
        params=(
            *("uint count", "uint rows", "uint new_rows", "uint most_past", "uint heads", "uint size"),
            *("uint x_start", "uint x_strides[4]"),
            *("uint past_strides[4]", "uint y_strides[4]", "uint bias_start", "uint bias_stride", "uint lengths_stride"),
            *_TURN_PARAMS,
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("HAS_PAST", 0), ("HAS_BIAS", 0), ("LENGTHS", 0), ("APPEND", 0), ("QUADS", 0)),
            ("EACH", 1),
            *_TURN_CONSTANTS,
        ),
        shared=(("LENGTHS", PastLengths), ("TURN", Turn)),
        variants=(("T", FLOATS),),
    ),
)
