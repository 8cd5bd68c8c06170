"""Takes the push constants out of a SPIR-V module: the byte offset of each storage buffer, 0 where every range starts at an
address that the device binds."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from dmlvk.kernels.common.words import HEADER_WORDS

_BOUND: Final = 3
"""The word of the header that is above all identifiers."""
_OP_NAME, _OP_ENTRY_POINT, _OP_TYPE_VOID, _OP_CONSTANT, _OP_EXECUTION_MODE_ID = 5, 15, 19, 43, 331
_OP_VARIABLE, _OP_LOAD, _OP_ACCESS_CHAIN, _OP_COPY_OBJECT = 59, 61, 65, 83
_PUSH_CONSTANT: Final = 9

Words = npt.NDArray[np.uint32]
Places = npt.NDArray[np.intp]


def without_byte_offsets(module: bytes) -> bytes:
    """The module with 0 in the place of each byte offset; itself where there are none.

    glslang reads one by two instructions: its place in the block, and its load.
    """
    words = np.frombuffer(module, np.uint32).copy()
    declared = _instructions(words, _OP_VARIABLE, 4, 3, np.array([_PUSH_CONSTANT]))
    if not declared.size:
        return module
    at = int(declared[0])
    variable = words[at + 2]
    chains = _instructions(words, _OP_ACCESS_CHAIN, 6, 3, variable)
    loads = _instructions(words, _OP_LOAD, 4, 3, words[chains + 2])
    left_out = [*range(at, at + 4), *_mentions(words, variable)]
    kept = np.ones(words.size, np.bool_)
    kept[left_out] = kept[(chains[:, np.newaxis] + np.arange(6)).ravel()] = False
    if not loads.size:
        return words[kept].tobytes()
    zero = words[_BOUND]
    words[_BOUND] += 1
    words[loads], words[loads + 3] = 4 << 16 | _OP_COPY_OBJECT, zero
    constant = np.array([4 << 16 | _OP_CONSTANT, words[loads[0] + 1], zero, 0], np.uint32)  # behind all types
    return b"".join(part.tobytes() for part in (words[:at][kept[:at]], constant, words[at:][kept[at:]]))


def _instructions(words: Words, opcode: int, length: int, index: int, operands: Words) -> Places:
    """The first words of instructions with one of some operands at an index."""
    first = words[: words.size - length + 1]
    found = np.flatnonzero(first == (length << 16 | opcode))
    return found[np.isin(words[found + index], operands)]


def _mentions(words: Words, variable: np.uint32) -> list[int]:
    """The words that name a variable before there are types: those of its name, and that in the entry point's list, which is
    made shorter."""
    found: list[int] = []
    start = HEADER_WORDS
    while (opcode := int(words[start]) & 0xFFFF) < _OP_TYPE_VOID or opcode == _OP_EXECUTION_MODE_ID:
        end = start + (int(words[start]) >> 16)
        if opcode == _OP_NAME and words[start + 1] == variable:
            found += range(start, end)
        if opcode == _OP_ENTRY_POINT:
            listed = start + 3 + np.flatnonzero(words[start + 3 : end] == variable)
            found += listed.tolist()
            words[start] -= len(listed) << 16
        start = end
    return found
