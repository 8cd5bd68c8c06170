"""Every SPIR-V module is valid for Vulkan 1.3, and declares exactly what its manifest row says."""

from __future__ import annotations

import pytest
from spirv_modules import OP_CAPABILITY, OP_DECORATE, OP_VARIABLE, SPEC_ID, instructions, validate

from dmlvk.kernels.common.kernel import KernelSpec, Variant, module_name
from dmlvk.kernels.common.library import module_names, spirv
from dmlvk.kernels.manifest import KERNELS

MODULES = [(spec, variant) for spec in KERNELS.values() for variant in spec.combinations()]

BINDING, DESCRIPTOR_SET = 33, 34
STORAGE_BUFFER, UNIFORM = 12, 2

CAPABILITIES = {
    **dict.fromkeys((1, 61), ""),  # Shader and GroupNonUniform: every device of Vulkan 1.3 has them
    9: "float16",
    10: "float64",
    11: "int64",
    22: "int16",
    39: "int8",
    63: "subgroup_arithmetic",
    65: "subgroup_shuffle",
    4433: "storage16",
    4448: "storage8",
    5345: "vulkan_memory_model",
    6022: "cooperative_matrix",
    **dict.fromkeys((5116, 5118), "bfloat16"),
    **dict.fromkeys((6017, 6018, 6019), "integer_dot_product"),
    **dict.fromkeys((5430, 5431, 5432), "matrix_reductions"),
}
"""The device feature that each capability of SPIR-V stands for."""


def test_the_pack_holds_the_manifest_and_nothing_else() -> None:
    assert sorted(module_names()) == sorted(module_name(spec.name, variant) for spec, variant in MODULES)


@pytest.mark.slow
def test_every_module_is_valid() -> None:
    complaints = validate({module_name(spec.name, variant): spirv(spec.name, variant) for spec, variant in MODULES})
    assert not complaints, "\n".join(complaints)


def test_a_module_that_is_not_valid_is_named() -> None:
    spec, variant = MODULES[0]
    module = bytearray(spirv(spec.name, variant))
    module[20] ^= 0xFF  # the first instruction's opcode
    (complaint,) = validate({"broken.spv": bytes(module), "right.spv": spirv(spec.name, variant)})
    assert complaint.startswith("broken.spv: error: ")


def test_modules_declare_what_their_rows_say() -> None:
    for spec, variant in MODULES:
        check_declarations(spec, variant, f"{module_name(spec.name, variant)} differs from its row")


def check_declarations(spec: KernelSpec, variant: Variant, what: str) -> None:
    """Bindings, specialisation constants and capabilities of a module."""
    bindings: dict[int, int] = {}
    classes: dict[int, int] = {}
    spec_ids: set[int] = set()
    needed: set[str] = set()
    for opcode, operands in instructions(spirv(spec.name, variant)):
        if opcode == OP_CAPABILITY:
            needed.add(CAPABILITIES[operands[0]])
        elif opcode == OP_DECORATE and operands[1] == BINDING:
            bindings[operands[0]] = operands[2]
        elif opcode == OP_DECORATE and operands[1] == DESCRIPTOR_SET:
            assert operands[2] == 0, what
        elif opcode == OP_DECORATE and operands[1] == SPEC_ID:
            spec_ids.add(operands[2])
        elif opcode == OP_VARIABLE:
            classes[operands[1]] = operands[2]
    used = {bindings[variable]: kind for variable, kind in classes.items() if variable in bindings}
    for binding, kind in used.items():
        assert kind == (STORAGE_BUFFER if binding < len(spec.buffers) else UNIFORM), what
        assert binding <= len(spec.buffers) - (not spec.params), what
    assert spec_ids <= set(range(len(spec.constants))), what
    assert needed - {""} <= set(spec.required_features(variant)), what


def test_rows_name_each_constant_once_and_bind_few_buffers() -> None:
    for spec in KERNELS.values():
        assert len(spec.constants) == len({name for name, _ in spec.constants}), spec.name
        assert 4 * len(spec.buffers) <= 128, f"{spec.name}: byte offsets are push constants, Vulkan guarantees 128 bytes"
