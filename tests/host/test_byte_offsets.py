"""What a pipeline reads where no range starts behind the address that is bound."""

from __future__ import annotations

import pytest
from spirv_modules import OP_VARIABLE, instructions, validate

from dmlvk.kernels.common.kernel import KernelSpec, module_name
from dmlvk.kernels.common.library import spirv
from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Range, Source
from dmlvk.kernels.manifest import KERNELS
from dmlvk.runtime.byte_offsets import without_byte_offsets
from dmlvk.spec.size import SizeTrace

OP_ACCESS_CHAIN, OP_COPY_OBJECT = 65, 83
PUSH_CONSTANT = 9


def _pushed(module: bytes) -> set[int]:
    """The variables of push constants."""
    return {
        operands[1] for opcode, operands in instructions(module) if opcode == OP_VARIABLE and operands[2] == PUSH_CONSTANT
    }


def _count(module: bytes, wanted: int) -> int:
    return sum(opcode == wanted for opcode, _ in instructions(module))


def test_no_module_needs_push_constants() -> None:
    modules = {
        module_name(spec.name, variant): without_byte_offsets(spirv(spec.name, variant))
        for spec in KERNELS.values()
        for variant in spec.combinations()
    }
    assert not validate(modules)


@pytest.mark.parametrize("spec", list(KERNELS.values())[::7], ids=lambda spec: spec.name)
def test_each_offset_is_0(spec: KernelSpec) -> None:
    whole = spirv(spec.name, next(spec.combinations()))
    (variable,) = _pushed(whole)
    reads = sum(opcode == OP_ACCESS_CHAIN and operands[2] == variable for opcode, operands in instructions(whole))
    module = without_byte_offsets(whole)
    assert not _pushed(module)
    assert reads > 0
    assert _count(module, OP_ACCESS_CHAIN) == _count(whole, OP_ACCESS_CHAIN) - reads
    assert _count(module, OP_COPY_OBJECT) == _count(whole, OP_COPY_OBJECT) + reads
    assert without_byte_offsets(module) is module


def _launch(*offsets: int) -> Dispatch:
    return Dispatch(KernelVariant("fake"), tuple(Range(Source.TEMPORARY, 0, own, 64) for own in offsets), b"", (1, 1, 1))


@pytest.mark.parametrize(
    ("offsets", "alignment", "has_byte_offsets"),
    [
        ((0, 0), 16, False),
        ((0, 256), 16, False),
        ((0, 8), 16, True),
        ((4, 8), 4, False),
        ((0, 0), 32, True),  # a tensor starts at any multiple of 16
        ((0, 0), 256, True),
        ((), 16, False),
    ],
)
def test_a_launch_reads_offsets_that_may_not_be_0(offsets: tuple[int, ...], alignment: int, has_byte_offsets: bool) -> None:
    launch = _launch(*offsets)
    assert launch.pipeline(alignment) == launch.kernel._replace(has_byte_offsets=has_byte_offsets)


def test_an_offset_that_depends_on_sizes_is_read() -> None:
    assert _launch(16 * SizeTrace().symbol("n", 4)).pipeline(16).has_byte_offsets
