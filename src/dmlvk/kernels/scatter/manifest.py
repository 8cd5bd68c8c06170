"""The kernels of scatters."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec

_UNITS = ("UINT8", "UINT16", "UINT32", "BITS64", "BITS128")
"""The types that stand for elements as bits."""
_SCATTER_PARAMS = ("uint count", "uint index_step", "uint chosen_sizes[8]", "uint chosen_entries[8]")
_SCATTER_CONSTANTS = (("LOCAL_SIZE_X", 128), ("RANK", 1), ("TUPLE", 1), ("INDEX_WORDS", 1), ("INDEX_SIGNED", 0))


class MarkPhase(enum.IntEnum):
    """The work of a dispatch of ``scatter_mark``: every entry is cleared, those of the updates are, or those are marked."""

    CLEAR_ALL = 0
    CLEAR = 1
    MARK = 2


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "scatter_mark",
        "scatter_mark.comp",
        buffers=("indices", "table:w"),
        params=(
            *_SCATTER_PARAMS,
            *("uint first", "uint places", "uint sizes[8]", "uint divisors[16]"),
            *("uint index_strides[8]", "uint entry_strides[8]", "uint position_strides[8]"),
        ),
        constants=(*_SCATTER_CONSTANTS, ("PHASE", 0)),
        shared=(("PHASE", MarkPhase),),
    ),
    KernelSpec(
        "scatter_write",
        "scatter_write.comp",
        buffers=("indices", "updates", "table", "output:w"),
        params=(
            *_SCATTER_PARAMS,
            *("uint chosen_outputs[8]", "uint sizes[8]", "uint divisors[16]", "uint index_strides[8]"),
            *("uint update_strides[8]", "uint output_strides[8]", "uint entry_strides[8]", "uint position_strides[8]"),
        ),
        constants=(*_SCATTER_CONSTANTS, ("TABLE", 1)),
        variants=(("T", _UNITS),),
    ),
    KernelSpec(
        "scatter_merge",
        "scatter_merge.comp",
        buffers=("input", "updates", "table", "output:w"),
        params=(
            *("uint count", "uint first", "uint places", "uint sizes[8]", "uint divisors[16]"),
            *("uint input_strides[8]", "uint update_strides[8]", "uint output_strides[8]", "uint entry_strides[8]"),
            *("uint update_sizes[8]", "uint update_divisors[16]", "uint update_places[8]"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("ITEMS", 1), ("RANK", 1), ("UPDATE_RANK", 1)),
        variants=(("T", _UNITS),),
    ),
)
