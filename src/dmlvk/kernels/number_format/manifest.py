"""The kernel of formats of numbers that no tensor has."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, lanes
from dmlvk.kernels.elementwise.manifest import ITEM_PARAMS, steps
from dmlvk.spec.formats import FormatRounding, Scheme

_BITS = ("UINT8", "UINT16")
_TYPES = (
    *((number, bits) for number in FLOATS for bits in _BITS),
    *((bits, number) for number in FLOATS for bits in _BITS),
    ("FLOAT32", "FLOAT32"),
)
"""(input, output): to a format, from it, and rounded to its numbers."""

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="number_format",
        source="number_format.comp",
        buffers=("x", "output:w"),
        params=(*ITEM_PARAMS, *steps("x", "output")),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("FORMAT_SCHEME", 0),
            ("FORMAT_BITS", 8),
            ("FORMAT_SIGNED", 1),
            ("FORMAT_MANTISSA", 3),
            ("FORMAT_BIAS", 7),
            ("FORMAT_LARGEST", 0),
            ("FORMAT_INFINITY", 0),
            ("FORMAT_NAN", 0),
            ("SATURATE", 1),
            ("FORMAT_ROUNDING", 0),
            ("RANK", 1),
            ("ITEMS", 1),
            ("X_MODE", 0),
            ("OUTPUT_MODE", 0),
        ),
        shared=(("SCHEME", Scheme), ("ROUND", FormatRounding)),
        variants=(("LANES T U", lanes(_TYPES)),),
    ),
)
