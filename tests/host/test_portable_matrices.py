"""SPIR-V modules that reduce matrices, for devices without NVIDIA's extension."""

from __future__ import annotations

import pytest
from spirv_modules import instructions

from dmlvk.kernels.common.library import pipeline_spirv, spirv
from dmlvk.kernels.common.plan import KernelVariant
from dmlvk.kernels.common.portable_matrices import with_portable_reductions
from dmlvk.kernels.manifest import KERNELS

OP_EXTENSION, OP_CAPABILITY = 10, 17
CONVERSIONS_NV, CONVERSIONS_EXT = 5431, 5429
REDUCING = [
    (spec.name, variant)
    for spec in KERNELS.values()
    for variant in spec.combinations()
    if "matrix_reductions" in spec.required_features(variant)
]


def extensions(module: bytes) -> list[bytes]:
    return [
        b"".join(word.to_bytes(4, "little") for word in operands).rstrip(b"\0")
        for opcode, operands in instructions(module)
        if opcode == OP_EXTENSION
    ]


def test_attention_reduces_matrices() -> None:
    assert [name for name, _ in REDUCING] == ["attention_reductions", "attention_fragments"]


@pytest.mark.parametrize(("name", "variant"), REDUCING, ids=[name for name, _ in REDUCING])
def test_names_differ_and_instructions_do_not(name: str, variant: tuple[tuple[str, str], ...]) -> None:
    """Both extensions have the same numbers for what modules use of them, but for the capability of conversions."""
    module = spirv(name, variant)
    portable = with_portable_reductions(module)
    assert b"SPV_NV_cooperative_matrix2" in extensions(module)
    assert b"SPV_EXT_cooperative_matrix_maintenance1" in extensions(portable)
    assert not any(extension.startswith(b"SPV_NV") for extension in extensions(portable))
    before, after = (list(instructions(code)) for code in (module, portable))
    differing = [(own, other) for own, other in zip(before, after, strict=True) if own != other]
    assert [own[0] for own, _ in differing] == [OP_CAPABILITY, OP_EXTENSION]
    assert [list(pair[1]) for pair in differing[0]] == [[CONVERSIONS_NV], [CONVERSIONS_EXT]]
    assert module[:20] == portable[:20], "the header, with its bound of identifiers"


def test_pipelines_get_what_their_device_knows() -> None:
    name, variant = REDUCING[0]
    reducing, other = KernelVariant(name, variant), KernelVariant("matrix_fragments", ())
    assert pipeline_spirv(reducing) == spirv(name, variant)
    assert pipeline_spirv(reducing, portable_reductions=True) == with_portable_reductions(spirv(name, variant))
    assert pipeline_spirv(other, portable_reductions=True) == pipeline_spirv(other)
