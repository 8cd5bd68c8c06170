"""A pipeline's module has the cases of its own operators and no others."""

from __future__ import annotations

import pytest
from spirv_modules import instructions, validate

from dmlvk.kernels.common.kernel import GLSL_TYPES, KernelSpec
from dmlvk.kernels.common.library import pipeline_spirv, spirv
from dmlvk.kernels.common.plan import KernelVariant
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.enums import OperatorType

OP_SWITCH = 251
TRIMMED = [spec for spec in KERNELS.values() if spec.selectors]


def _cases(module: bytes) -> set[int]:
    return {case for opcode, operands in instructions(module) if opcode == OP_SWITCH for case in operands[2::2]}


def _float32(spec: KernelSpec) -> KernelVariant:
    types = {item: {value for _, value in item if value in GLSL_TYPES} for item in spec.combinations()}
    variant = next(item for item in reversed(types) if types[item] == {"FLOAT32"})
    return KernelVariant(spec.name, variant, ((spec.selectors[0], OperatorType.ELEMENT_WISE_CLIP1),))


def test_kernels_of_many_operators_are_trimmed() -> None:
    assert {spec.name for spec in TRIMMED} >= {"elementwise_unary", "elementwise_binary", "pointwise_chain"}


@pytest.mark.parametrize("spec", TRIMMED, ids=lambda spec: spec.name)
def test_what_is_left_is_valid_and_no_more_than_is_needed(spec: KernelSpec) -> None:
    variant = _float32(spec)
    module, whole = pipeline_spirv(variant), spirv(variant.kernel, variant.variant)
    assert len(module) < len(whole)
    assert _cases(module) < _cases(whole)
    if OperatorType.ELEMENT_WISE_CLIP1 in _cases(whole):  # which calls the activation by name
        assert {OperatorType.ELEMENT_WISE_CLIP1, OperatorType.ELEMENT_WISE_CLIP} <= _cases(module)
    assert OperatorType.ACTIVATION_GELU in _cases(whole) - _cases(module)
    assert not validate({spec.name: module})


@pytest.mark.parametrize("spec", TRIMMED, ids=lambda spec: spec.name)
def test_every_case_is_an_operator_or_a_number_of_the_row(spec: KernelSpec) -> None:
    for variant in spec.combinations():
        assert _cases(spirv(spec.name, variant)) <= {*OperatorType, *spec.numbers.values()}


def test_other_modules_stay_as_they_are() -> None:
    spec = KERNELS["elementwise_select"]
    variant = next(spec.combinations())
    assert pipeline_spirv(KernelVariant(spec.name, variant)) is spirv(spec.name, variant)
