"""The kernels of sampling."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS
from dmlvk.spec.ops.sample_token import CONTROL_WORDS

CHUNK = 1024
"""Tokens of a workgroup."""
MOST_CHUNKS = 512
"""Chunks of the largest vocabulary."""
BINS = 256
"""Bins of a histogram of tokens; groups of so many as a group has."""
BIN_WORDS = 3
"""Words of a bin: how many tokens, and their mass of 64 bits."""

_PARAMS = ("uint sequences", "uint vocabulary", "uint chunks")
_SHARED = (("CHUNK", CHUNK), ("BINS", BINS), ("BIN_WORDS", BIN_WORDS), ("CONTROL_WORDS", CONTROL_WORDS))

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "sample_prepare",
        "sample_prepare.comp",
        buffers=("logits", "controls", "history", "lengths", "values:w", "bests:w", "bins:w"),
        params=(*_PARAMS, "uint room", "uint pending"),
        constants=(("LOCAL_SIZE_X", 128),),
        shared=(*_SHARED, ("AT_ONCE", 4)),
        variants=(("T", FLOATS),),
    ),
    KernelSpec(
        "sample_choose",
        "sample_choose.comp",
        buffers=("controls", "lengths", "values", "bests", "bins:w", "tokens:w", "new_history:w", "new_lengths:w"),
        params=(*_PARAMS, "uint room", "uint pending"),
        constants=(("LOCAL_SIZE_X", 128), ("HAS_HISTORY", 0), ("HAS_LENGTHS", 0), ("AT_ONCE", 1)),
        shared=(*_SHARED, ("MOST_CHUNKS", MOST_CHUNKS), ("GROUP", 16)),
        variants=(("T", ("FLOAT32",)),),
    ),
)
