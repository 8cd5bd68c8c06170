"""The manifest row of a kernel, and the packing of its parameter block.

The row is the only place where a kernel's buffers, parameters and constants are declared: the build script writes the
GLSL declarations from it (see ``tools/build_kernels.py``) and the host packs and binds by the same names.
"""

from __future__ import annotations

import enum
import itertools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

from dmlvk.spec.size import Deferred, RealSize, Size


class GlslType(NamedTuple):
    """The GLSL of a tensor data type.

    Attributes:
        storage: Type of a buffer element.
        arithmetic: Type to compute in.
        features: Device features that loading, storing and computing it need.
        extensions: GLSL extensions that this needs.
    """

    storage: str
    arithmetic: str
    features: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


_INT64 = ("GL_EXT_shader_explicit_arithmetic_types_int64",)
_STORAGE16 = ("GL_EXT_shader_16bit_storage",)
_STORAGE8 = ("GL_EXT_shader_8bit_storage",)

GLSL_TYPES: dict[str, GlslType] = {
    "FLOAT32": GlslType("float", "float"),
    "FLOAT16": GlslType("float16_t", "float", ("storage16",), _STORAGE16),
    "FLOAT64": GlslType("double", "double", ("float64", "int64"), _INT64),  # whose bits are a uint64_t
    "INT64": GlslType("int64_t", "int64_t", ("int64",), _INT64),
    "UINT64": GlslType("uint64_t", "uint64_t", ("int64",), _INT64),
    "INT32": GlslType("int", "int"),
    "UINT32": GlslType("uint", "uint"),
    "INT16": GlslType("int16_t", "int", ("storage16",), _STORAGE16),
    "UINT16": GlslType("uint16_t", "uint", ("storage16",), _STORAGE16),
    "INT8": GlslType("int8_t", "int", ("storage8",), _STORAGE8),
    "UINT8": GlslType("uint8_t", "uint", ("storage8",), _STORAGE8),
    "BFLOAT16": GlslType("uint16_t", "float", ("storage16",), _STORAGE16),  # its bits
    "BITS64": GlslType("uvec2", "uvec2"),
    "BITS128": GlslType("uvec4", "uvec4"),
}
"""The GLSL types by ``TensorDataType`` name, by that of a format, and by two names for bits of no type. A variant macro
whose value is one of these names is a data type macro."""

_EXTENSION_FEATURES = {
    "GL_KHR_shader_subgroup_arithmetic": "subgroup_arithmetic",
    "GL_KHR_shader_subgroup_shuffle": "subgroup_shuffle",
    "GL_EXT_shader_explicit_arithmetic_types_float16": "float16",
    "GL_EXT_shader_explicit_arithmetic_types_int16": "int16",
    "GL_EXT_integer_dot_product": "integer_dot_product",
    "GL_KHR_cooperative_matrix": "cooperative_matrix",
    "GL_EXT_bfloat16": "bfloat16",
    "GL_NV_cooperative_matrix2": "matrix_reductions",
    "GL_KHR_memory_scope_semantics": "vulkan_memory_model",
}
"""Device features that GLSL extensions stand for."""

Variant = tuple[tuple[str, str], ...]
"""A SPIR-V variant: (macro, value) pairs in the manifest row's order."""

_SYMBOLIC = frozenset((Size, RealSize))
_CODES = {"uint": "I", "int": "i", "float": "f"}
_PARAM = re.compile(r"(uint|int|float) (\w+)(?:\[(\d+)\])?")


class Param(NamedTuple):
    """One member of a parameter block: 32-bit scalars, ``length`` of them (0 for a plain scalar)."""

    type: str
    name: str
    length: int


@dataclass(frozen=True)
class KernelSpec:
    """A manifest row.

    Attributes:
        name: The kernel's name, which plans, rules and reports use.
        source: File in ``glsl/``.
        buffers: Storage buffers in binding order, "name" read only or "name:w" written (and perhaps read).
        params: Members of the parameter block in order, such as "uint count", "uint sizes[8]", "float epsilon".
        constants: Specialisation constants by name with their defaults (an int is a uint, a float a float); the id is
            the position. LOCAL_SIZE_X, LOCAL_SIZE_Y and LOCAL_SIZE_Z are the workgroup's size.
        variants: Macro -> values; every combination is a SPIR-V module. Macros that go together are one entry:
            ("T U", ("FLOAT32 UINT8", ...)). Beside data types, a macro LANES says how many elements an invocation
            handles at once (``glsl/include/lanes.glsl``).
        features: Device features beyond those that the data types need.
        extensions: GLSL extensions likewise.
        shared: The source's whole numbers, by the name that they have in GLSL: ("PLACES", 36), or ("PHASE", Phase) for
            PHASE_WHOLE and the other members of an enumeration. No GLSL gives a number above 1 a name itself, and the host
            takes them from where the row does.
        selectors: Constants whose values are operators or numbers of ``shared``, if every switch of the source is over such:
            a pipeline's module has no cases of others (``dmlvk.kernels.common.trim``).
    """

    name: str
    source: str
    buffers: tuple[str, ...]
    params: tuple[str, ...] = ()
    constants: tuple[tuple[str, int | float], ...] = ()
    variants: tuple[tuple[str, tuple[str, ...]], ...] = ()
    features: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    shared: tuple[tuple[str, int | type[enum.IntEnum]], ...] = ()
    selectors: tuple[str, ...] = ()

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """Names of the storage buffers in binding order."""
        return tuple(buffer.partition(":")[0] for buffer in self.buffers)

    @property
    def writes(self) -> int:
        """Bit i is set where storage buffer i is written."""
        return sum(1 << i for i, buffer in enumerate(self.buffers) if buffer.endswith(":w"))

    @cached_property
    def macros(self) -> tuple[str, ...]:
        """Names of the variants' macros, in order."""
        return tuple(macro for group, _ in self.variants for macro in group.split())

    @cached_property
    def defaults(self) -> dict[str, int | float]:
        """The constants' defaults by name."""
        return dict(self.constants)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The numbers that ``shared`` defines in GLSL, by name."""
        found: dict[str, int] = {}
        for name, value in self.shared:
            found |= {name: value} if isinstance(value, int) else {f"{name}_{item.name}": item.value for item in value}
        return found

    @cached_property
    def members(self) -> tuple[Param, ...]:
        """The parameter block's members."""
        parsed = []
        for text in self.params:
            match = _PARAM.fullmatch(text)
            assert match, f"{self.name}: parameter {text!r} is not a scalar or array of uint, int or float"
            parsed.append(Param(match[1], match[2], int(match[3] or 0)))
        return tuple(parsed)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(member.name for member in self.members)

    @cached_property
    def _codes(self) -> str:
        """The code of each word of the parameter block, as ``struct`` has it."""
        return "".join(_CODES[member.type] * max(member.length, 1) for member in self.members)

    @cached_property
    def _block(self) -> struct.Struct:
        return struct.Struct(f"<{self._codes}")

    def combinations(self) -> Iterator[Variant]:
        """Every SPIR-V variant, as (macro, value) pairs in the row's order."""
        for groups in itertools.product(*(values for _, values in self.variants)):
            yield tuple(zip(self.macros, (value for group in groups for value in group.split()), strict=True))

    def required_features(self, variant: Variant) -> tuple[str, ...]:
        """Device features that a variant needs."""
        needed = [*self.features]
        needed += [_EXTENSION_FEATURES[name] for name in self.extensions if name in _EXTENSION_FEATURES]
        for _, value in variant:
            if value in GLSL_TYPES:
                needed += GLSL_TYPES[value].features
        return tuple(dict.fromkeys(needed))

    def pack(self, **values: int | float | tuple[int, ...] | tuple[float, ...]) -> bytes:
        """The parameter block's bytes. Arrays shorter than declared are padded with zeros.

        Of Sizes, a ``Deferred`` call that makes them.
        """
        assert self._names == values.keys(), f"{self.name} takes {self.members}, got {sorted(values)}"
        words: list[int | float] = []
        for member in self.members:
            value = values[member.name]
            items = value if isinstance(value, tuple) else (value,)
            missing = (member.length or 1) - len(items)
            assert missing >= 0, f"{self.name}: {member.name} has {member.length or 1} entries, got {items}"
            words += items
            if missing:
                words += (0,) * missing
        if _SYMBOLIC.isdisjoint(map(type, words)):
            return self._block.pack(*words)
        return self._deferred(words)

    def place_of(self, name: str) -> int:
        """The place of a member in the parameter block, in bytes."""
        before = itertools.takewhile(lambda member: member.name != name, self.members)
        return 4 * sum(max(member.length, 1) for member in before)

    def _deferred(self, words: list[int | float]) -> bytes:
        """The call that packs the words that vary between runs of bytes that do not."""
        layout, arguments = "<", list[Any]()
        for varies, run in itertools.groupby(zip(self._codes, words, strict=True), lambda word: type(word[1]) in _SYMBOLIC):
            codes, items = zip(*run, strict=True)
            if varies:
                layout += "".join(codes)
                arguments += items
            else:
                block = struct.pack("<" + "".join(codes), *items)
                layout += f"{len(block)}s"
                arguments.append(block)
        deferred: Any = Deferred(struct.Struct(layout).pack, tuple(arguments))
        return cast(bytes, deferred)


def module_name(kernel: str, variant: Variant) -> str:
    """The module's file name in the SPIR-V pack."""
    return "-".join([kernel, *(f"{macro}.{value}" for macro, value in variant)]) + ".spv"
