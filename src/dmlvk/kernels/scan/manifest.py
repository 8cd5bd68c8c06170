"""The kernels of running sums and products."""

from __future__ import annotations

import enum

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import SUBGROUP_SUMS

_SCAN_TYPES = (
    "FLOAT64",
    "FLOAT32",
    "FLOAT16",
    "UINT64",
    "UINT32",
)  # sums and products of integers have the same bits with a sign
_SCAN_BUFFERS = ("x", "y:w", "partials:w")
_SCAN_PARAMS = (
    *("uint rows", "uint units", "uint chunks", "uint chunk_units", "uint reverse", "uint exclusive"),
    *("uint x_step", "uint y_step", "uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]"),
    *("uint kept_x[8]", "uint kept_y[8]"),
)
_SCAN_CONSTANTS = (("LOCAL_SIZE_X", 128), ("PRODUCT", 0), ("PHASE", 0), ("UNITS", 1))


class ScanPhase(enum.IntEnum):
    """The work of a dispatch: whole rows, the totals of chunks, or the chunks with what comes before them."""

    WHOLE = 0
    TOTALS = 1
    APPLY = 2


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        "scan_rows",
        "scan_rows.comp",
        buffers=_SCAN_BUFFERS,
        params=_SCAN_PARAMS,
        constants=(*_SCAN_CONSTANTS, ("LANES", 1)),
        shared=(("PHASE", ScanPhase),),
        variants=(("T", _SCAN_TYPES), ("WORDS", ("0", "1"))),
        extensions=SUBGROUP_SUMS,
    ),
    KernelSpec(
        "scan_columns",
        "scan_columns.comp",
        buffers=_SCAN_BUFFERS,
        params=_SCAN_PARAMS,
        constants=(*_SCAN_CONSTANTS, ("COLUMNS", 1)),
        shared=(("PHASE", ScanPhase),),
        variants=(("T", _SCAN_TYPES), ("WORDS", ("0",))),
        extensions=SUBGROUP_SUMS,
    ),
)
