"""FLOAT32 is computed in float32 unless the operator is compiled with ALLOW_HALF_PRECISION_COMPUTATION, on devices that
multiply float16 matrices as on others."""

from __future__ import annotations

import dataclasses

import pytest

from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.kernels.common.plan import Dispatch, Plan
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import Variation, build

FEATURES = {"float16", "int16", "storage16", "cooperative_matrix", "vulkan_memory_model", "subgroup_size_control"}
EXACT = Capabilities(
    features=SUBGROUPS | FEATURES | {"full_subgroups"},
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
    cooperative_matrices=(CooperativeMatrix(16, 16, 16, "float16", "float32"),),
)
ALLOWED = dataclasses.replace(EXACT, allow_half_precision=True)


def product(data_type: TensorDataType) -> ops.Gemm:
    square = TensorDesc(data_type, (1024, 1024))
    return ops.Gemm(a_tensor=square, b_tensor=square, output_tensor=square)


def multiplies_halves(plan: Plan) -> bool:
    """Whether a plan launches a kernel of cooperative matrices."""
    kernels = [launch.kernel for launch in (*plan.initialize, *plan.dispatches) if isinstance(launch, Dispatch)]
    return any("cooperative_matrix" in KERNELS[kernel.kernel].required_features(kernel.variant) for kernel in kernels)


def chosen(desc: OperatorDesc, caps: Capabilities) -> str:
    return next(rule.name for rule, holds in explain(desc, caps) if holds)


def test_it_is_asked_for() -> None:
    assert multiplies_halves(lower(product(TensorDataType.FLOAT16), EXACT))
    assert not multiplies_halves(lower(product(TensorDataType.FLOAT32), EXACT))
    assert multiplies_halves(lower(product(TensorDataType.FLOAT32), ALLOWED))


def test_the_rules_say_so() -> None:
    assert chosen(product(TensorDataType.FLOAT32), EXACT) != "cooperative"
    assert chosen(product(TensorDataType.FLOAT32), ALLOWED) == "cooperative"


def test_it_changes_nothing_on_a_device_without_such_matrices() -> None:
    desc = product(TensorDataType.FLOAT32)
    without = dataclasses.replace(EXACT, features=EXACT.features - {"cooperative_matrix"}, cooperative_matrices=())
    assert lower(desc, without) == lower(desc, dataclasses.replace(without, allow_half_precision=True))


@pytest.mark.parametrize(
    "operator",
    [ops.Gemm, ops.Convolution, ops.MultiheadAttention1, ops.Rnn, ops.Lstm, ops.Gru],
    ids=lambda operator: operator.__name__,
)
def test_no_rule_rounds_float32_unasked(operator: type[OperatorDesc]) -> None:
    for case in all_cases()[operator].cases:
        desc = build(operator, Variation(case, TensorDataType.FLOAT32, "packed")).desc
        for rule in possible_rules(desc, EXACT):
            assert not multiplies_halves(lower(desc, EXACT, force=rule)), (case.name, rule)
