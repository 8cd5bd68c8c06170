"""Makes SPIR-V modules that reduce matrices those of every maker's devices.

glslang of the build knows reductions, conversions and operations of elements as parts of ``SPV_NV_cooperative_matrix2``.
``SPV_EXT_cooperative_matrix_maintenance1`` has them with the same instructions: all that differs is the extension's name and
the capability of conversions.
"""

from __future__ import annotations

import functools
from typing import Final

from dmlvk.kernels.common.words import HEADER_WORDS, words_of

_OP_EXTENSION, _OP_CAPABILITY = 10, 17
_CONVERSIONS_NV, _CONVERSIONS_EXT = 5431, 5429
_NVIDIA: Final = b"SPV_NV_cooperative_matrix2"
_PORTABLE: Final = b"SPV_EXT_cooperative_matrix_maintenance1"


@functools.cache
def with_portable_reductions(module: bytes) -> bytes:
    """The module with ``SPV_EXT_cooperative_matrix_maintenance1`` in the place of NVIDIA's extension; it must use no more of
    that than both have."""
    words = words_of(module)
    found = words[:HEADER_WORDS]
    start = HEADER_WORDS
    while start < len(words):
        opcode, end = words[start] & 0xFFFF, start + (words[start] >> 16)
        instruction = words[start:end]
        start = end
        if opcode == _OP_CAPABILITY and instruction[1] == _CONVERSIONS_NV:
            instruction[1] = _CONVERSIONS_EXT
        elif opcode == _OP_EXTENSION and instruction[1:].tobytes().rstrip(b"\0") == _NVIDIA:
            name = words_of(_PORTABLE + b"\0" * (4 - len(_PORTABLE) % 4))
            instruction = words_of(b"")
            instruction.append((1 + len(name)) << 16 | _OP_EXTENSION)
            instruction += name
        found += instruction
    return found.tobytes()
