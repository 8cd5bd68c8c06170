"""Every operator that accepts a fused activation, with every activation that may be fused."""

from __future__ import annotations

import dataclasses

import pytest
from crossed import crossed

import dmlvk
from dmlvk.kernels.common.registry import has_kernels
from dmlvk.kernels.lowering import possible_rules
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import REGISTRY, FieldKind, OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.elementwise import FUSABLE
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check

ACCEPTORS = [
    row
    for row in sorted(REGISTRY.values(), key=lambda row: row.type)
    if has_kernels(row) and any(field.kind is FieldKind.FUSED_ACTIVATION for field in row.fields)
]


def test_there_are_acceptors() -> None:
    assert {row.__name__ for row in ACCEPTORS} >= {"ElementWiseAdd1", "BatchNormalization", "Convolution", "Gemm"}
    assert len(FUSABLE) == 17


@pytest.mark.parametrize(("row", "activation"), crossed(ACCEPTORS, FUSABLE, name=lambda operator: operator.type.name))
def test_fused_activation(device: dmlvk.Device, row: type[OperatorDesc], activation: OperatorDesc) -> None:
    entry = all_cases()[row]
    case = next(case for case in entry.cases if case.quick)
    fused = dataclasses.replace(case, attributes={**case.attributes, "fused_activation": activation})
    for data_type in (TensorDataType.FLOAT32, TensorDataType.FLOAT16):
        outcome = check(device, entry, Variation(fused, data_type, "packed"))
        assert outcome.passed, outcome.detail


SCALED_CLIP = dmlvk.ElementWiseClip(min=-1.5, max=2.25, scale_bias=dmlvk.ScaleBias(0.75, -0.3))


@pytest.mark.parametrize("row", [dmlvk.Convolution, dmlvk.Gemm], ids=lambda row: row.__name__)
def test_a_fused_clip_scales_first_in_every_rule(device: dmlvk.Device, row: type[OperatorDesc]) -> None:
    """Its bounds are met from both sides, and no case of one rule alone would reach every kernel's epilogue."""
    entry = all_cases()[row]
    rules: set[str] = set()
    types = [TensorDataType.FLOAT32, TensorDataType.FLOAT16]
    for case in entry.cases:
        fused = dataclasses.replace(case, attributes={**case.attributes, "fused_activation": SCALED_CLIP}, layouts=False)
        types.reverse()
        for data_type in types:
            variation = Variation(fused, data_type, "packed")
            for rule in possible_rules(build(row, variation).desc, device.capabilities):
                if rule in rules:
                    continue
                rules.add(rule)
                outcome = check(device, entry, dataclasses.replace(variation, rule=rule))
                assert outcome.passed, (str(outcome.variation), outcome.detail)
    assert len(rules) > 4
