"""Leaves out of a SPIR-V module what a pipeline cannot reach: the cases of operators that its constants do not name.

A driver folds a switch over a specialisation constant to one case, but only after it has read and inlined them all: half a
second for a chain of eight operators, on an H200 as on a CPU, and a tenth of that for what is left here.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import NamedTuple

from dmlvk.kernels.common.words import HEADER_WORDS, words_of

_OP_TYPE_INT, _OP_CONSTANT, _OP_FUNCTION_CALL, _OP_STORE, _OP_SWITCH = 21, 43, 57, 62, 251


class _Switches(NamedTuple):
    """The facts about a module that trimming needs.

    Attributes:
        places: The words of each switch, from its first to the one behind its last.
        named: The integer constants that functions are called with.
    """

    places: tuple[tuple[int, int], ...]
    named: frozenset[int]


def with_cases(module: bytes, chosen: Collection[int]) -> bytes:
    """The module with only some cases of its switches; the rest goes the way of their defaults.

    Args:
        module: One whose switches are all over the same numbers, those that specialisation constants have.
        chosen: The numbers. Those that a function is called with by name are kept as well.
    """
    words = words_of(module)
    switches = _switches(module)
    trimmed = words_of(b"")
    copied = 0
    for start, end in switches.places:
        pairs = (words[at : at + 2] for at in range(start + 3, end, 2))
        cases = [word for pair in pairs if pair[0] in chosen or pair[0] in switches.named for word in pair]
        trimmed += words[copied:start]
        trimmed.extend(((len(cases) + 3) << 16 | _OP_SWITCH, words[start + 1], words[start + 2], *cases))
        copied = end
    return (trimmed + words[copied:]).tobytes()


@functools.cache
def _switches(module: bytes) -> _Switches:
    words = words_of(module).tolist()
    places = []
    integers: set[int] = set()
    constants: dict[int, int] = {}
    stored: list[tuple[int, int]] = []
    arguments: set[int] = set()
    start = HEADER_WORDS
    while start < len(words):
        opcode, end = words[start] & 0xFFFF, start + (words[start] >> 16)
        if opcode == _OP_STORE:
            if words[start + 2] in constants:
                stored.append((words[start + 1], constants[words[start + 2]]))
        elif opcode == _OP_SWITCH:
            places.append((start, end))
        elif opcode == _OP_FUNCTION_CALL:
            arguments.update(words[start + 4 : end])
        elif opcode == _OP_CONSTANT:
            if words[start + 1] in integers:
                constants[words[start + 2]] = words[start + 3]
        elif opcode == _OP_TYPE_INT:
            integers.add(words[start + 1])
        start = end
    named = {value for variable, value in stored if variable in arguments}
    return _Switches(tuple(places), frozenset(named | {constants[item] for item in arguments if item in constants}))
