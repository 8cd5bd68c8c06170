"""Terms that the rows of several families are written in: data types, variants, extensions."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from dmlvk.kernels.common.shapes import group_lanes
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import element_bits

FLOATS = ("FLOAT32", "FLOAT16")
NUMERIC = (
    "FLOAT32",
    "FLOAT16",
    "INT64",
    "INT32",
    "INT16",
    "INT8",
    "UINT64",
    "UINT32",
    "UINT16",
    "UINT8",
)


def lanes(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The variants "LANES T U" (or R) of a pointwise kernel: one element at a time, and a group."""
    return tuple(f"{count} {t} {u}" for t, u in pairs for count in (1, group_lanes(bits(t), bits(u))))


def bits(data_type: str) -> int:
    """The bits of an element of a data type, by its name."""
    return element_bits(TensorDataType[data_type])


SUBGROUP_SUMS = ("GL_KHR_shader_subgroup_arithmetic", "GL_KHR_shader_subgroup_shuffle")
"""Extensions of a kernel that sums or scans over a subgroup."""

COOPERATIVE_TILE = (
    ("LOCAL_SIZE_X", 256),
    ("TILE_M", 128),
    ("TILE_N", 128),
    ("TILE_K", 32),
    ("SUB_M", 64),
    ("SUB_N", 32),
    ("MAT_M", 16),
    ("MAT_N", 16),
    ("MAT_K", 16),
    ("BUFFERS", 1),
    ("AHEAD", 1),
    ("SPREAD", 1),
    ("A_ALONG_K", 1),
    ("B_ALONG_K", 0),
)
"""Constants of a kernel that multiplies with ``glsl/include/cooperative_tile.glsl``."""


class WordAccess(enum.IntEnum):
    """How a kernel reads 8 neighbours of a factor: one by one, as a word, or as the two words that they lie in."""

    ELEMENTS = 0
    WORDS = 1
    SHIFTED = 2


COOPERATIVE_EXTENSIONS = (
    "GL_KHR_cooperative_matrix",
    "GL_KHR_memory_scope_semantics",
    "GL_KHR_shader_subgroup_basic",
    "GL_EXT_shader_explicit_arithmetic_types_float16",
    "GL_EXT_shader_explicit_arithmetic_types_int16",
)
"""Extensions of a kernel that multiplies cooperative matrices."""

FIRST_BITS = ("FIRST_BITS", 0xFFFFE000)
"""A mask of the bits of a float32 that a FLOAT16 has room for, where a kernel parts a number into two of these. A number
that is made FLOAT16 and float32 again is no such part: NVIDIA's driver (580) takes that for the number itself."""

PRODUCT_TILE = (
    ("LOCAL_SIZE_X", 256),
    ("SLICES", 1),
    ("TILE_M", 128),
    ("TILE_N", 128),
    ("TILE_K", 16),
    ("BLOCK_M", 8),
    ("BLOCK_N", 8),
    ("WHOLE_ROUNDS", 0),
)
"""Constants of a kernel that multiplies with ``glsl/include/product_tile.glsl``."""
