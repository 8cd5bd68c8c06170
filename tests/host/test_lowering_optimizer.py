"""Plans of the optimizer, without a device."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch, Source
from dmlvk.kernels.lowering import explain, lower
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.tensor import TensorDesc

GPU = Capabilities(workgroup_invocations=1024, features=frozenset({"storage16"}))
STEP = TensorDesc(TensorDataType.UINT32, (1, 1, 1, 1))
WEIGHTS = TensorDesc(TensorDataType.FLOAT32, (64, 32, 3, 3))
TENSORS = [field.name for field in ops.AdamOptimizer.fields if field.kind.is_tensor and "step" not in field.name]


def adam(tensor: TensorDesc = WEIGHTS, **changes: object) -> ops.AdamOptimizer:
    fields = {**dict.fromkeys(TENSORS, tensor), "training_step_tensor": STEP, "learning_rate": 0.01, **changes}
    return ops.AdamOptimizer(**fields)


def dispatch(desc: ops.AdamOptimizer) -> Dispatch:
    desc.validate()
    plan = lower(desc, GPU)
    assert not plan.temporary_bytes
    (made,) = plan.dispatches
    assert isinstance(made, Dispatch)
    return made


def parameter(made: Dispatch, name: str) -> float:
    """A float of the parameter block."""
    at = 0
    for member in KERNELS["adam"].members:
        if member.name == name:
            (value,) = struct.unpack_from("<f", made.params, at)
            return float(value)
        at += 4 * max(member.length, 1)
    raise AssertionError(name)


def test_all_packed_sizes_run_on_one_pipeline() -> None:
    shapes = [(64, 32, 3, 3), (1, 1, 1, 1000), (1, 64, 1, 1), (7, 11, 1, 1)]
    made = [dispatch(adam(TensorDesc(TensorDataType.FLOAT16, sizes))) for sizes in shapes]
    assert len({one.kernel for one in made}) == 1
    assert dict(made[0].kernel.variant)["LANES"] == "8"
    assert [one.grid for one in made] == [(18, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)]


def test_bindings_follow_the_kernels_buffers() -> None:
    bound = [(part.source, part.slot) for part in dispatch(adam()).bindings]
    inputs, outputs = ([(source, slot) for slot in range(5)] for source in (Source.INPUT, Source.OUTPUT))
    assert bound == [*inputs[:4], *outputs[:3], inputs[4]]


def test_a_gradient_of_another_layout_is_read_by_elements() -> None:
    turned = TensorDesc(TensorDataType.FLOAT32, WEIGHTS.sizes, (1, 64, 2048, 6144))
    desc = adam(gradient_tensor=turned)
    assert next(rule.name for rule, holds in explain(desc, GPU) if holds) == "elements"
    constants = dict(dispatch(desc).kernel.constants)
    assert constants["RANK"] > 1 and constants["GRADIENT_MODE"] == 0


def test_rates_are_of_float32() -> None:
    made = dispatch(adam(beta1=0.9, beta2=0.0))
    beta = float(np.float32(0.9))
    assert parameter(made, "beta1") == beta
    assert parameter(made, "rest1") == 1 - beta  # exact: no bit of 1 - beta is lost
    assert parameter(made, "log_beta1") == pytest.approx(math.log(beta), rel=6e-8)
    assert parameter(made, "log_beta2") == -math.inf


def test_rates_that_float32_makes_1_are_refused() -> None:
    adam(beta1=1 - 2.0**-24).validate()
    for name in ("beta1", "beta2"):
        with pytest.raises(InvalidArgumentError, match="below 1"):
            adam(**{name: 1 - 2.0**-26}).validate()
        with pytest.raises(InvalidArgumentError, match="at least 0"):
            adam(**{name: -0.5}).validate()
