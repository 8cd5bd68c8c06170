"""The kernels of the largest and smallest elements."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import SUBGROUP_SUMS

_TOP_K_TYPES = ("UINT8 1", "UINT16 1", "UINT32 1", "UINT32 2")
_TOP_K_BUFFERS = ("x", "values:w", "indices:w")
_TOP_K_PARAMS = (
    *("uint rows", "uint k", "uint flip[2]", "uint x_step", "uint value_step", "uint index_step", "uint index_words"),
    *("uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]"),
    *("uint kept_x[8]", "uint kept_values[8]", "uint kept_indices[8]"),
)
_TOP_K_CONSTANTS = (("LOCAL_SIZE_X", 128), ("IS_FLOAT", 0), ("CAPACITY", 512))


RADIX_BITS = 11
"""The bits of a digit by which ``top_k_select`` counts keys."""
BINS = 1 << RADIX_BITS
"""The counts of a digit, one for each of its values."""


class MemoryPhase(enum.IntEnum):
    """The work of a dispatch of the sort in memory."""

    BLOCKS = 0
    EXCHANGE = 1
    MERGE = 2
    OUTPUT = 3


class SelectPhase(enum.IntEnum):
    """The work of a dispatch of the selection: whole rows, the candidates of chunks, or the best of those."""

    WHOLE = 0
    CANDIDATES = 1
    MERGE = 2


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "top_k_sort",
        "top_k_sort.comp",
        buffers=_TOP_K_BUFFERS,
        params=(*_TOP_K_PARAMS, "uint row_size", "uint side_by_side"),
        constants=(*_TOP_K_CONSTANTS, ("SEGMENT", 512)),
        variants=(("T HALVES", _TOP_K_TYPES),),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "top_k_select",
        "top_k_select.comp",
        buffers=(*_TOP_K_BUFFERS, "origins"),
        params=(*_TOP_K_PARAMS, "uint units", "uint chunks", "uint position_shift"),
        constants=(*_TOP_K_CONSTANTS, ("UNITS", 1), ("PHASE", 0)),
        shared=(("PHASE", SelectPhase), ("RADIX_BITS", RADIX_BITS), ("BINS", BINS)),
        variants=(("T HALVES", _TOP_K_TYPES), ("WORDS", ("0", "1"))),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "top_k_memory",
        "top_k_memory.comp",
        buffers=(*_TOP_K_BUFFERS, "entry_keys:w", "entry_positions:w"),
        params=(*_TOP_K_PARAMS, "uint row_size", "uint first_row", "uint items", "uint mirrored", "uint reach"),
        constants=(*_TOP_K_CONSTANTS, ("PHASE", 0)),
        shared=(("PHASE", MemoryPhase),),
        variants=(("T HALVES", _TOP_K_TYPES),),
        extensions=SUBGROUP_SUMS,
    ),
)
