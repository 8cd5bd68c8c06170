"""What a driver tells of a pipeline that it compiled."""

from __future__ import annotations

import pytest

import dmlvk
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.spec.schema import OperatorDesc


def assert_in_registers(device: dmlvk.Device, desc: OperatorDesc, rule: str, kernel: str) -> None:
    """Asserts that the rule's dispatch of this kernel keeps nothing in local memory; skips where the rule is not possible,
    and where the driver does not tell. The upper half of its number is no size."""
    caps = device.capabilities
    if "executable_properties" not in caps.features or rule not in possible_rules(desc, caps):
        pytest.skip("the driver does not tell, or multiplies no matrices")
    launches = lower(desc, caps, force=rule).dispatches
    dispatch = next(item for item in launches if isinstance(item, Dispatch) and item.kernel.kernel == kernel)
    told = [item for program in device.programs(dispatch) for item in program.statistics]
    local = [int(item.value) & 0xFFFFFFFF for item in told if item.name == "Local Memory Size"]
    if not local:
        pytest.skip("the driver does not tell of local memory")
    assert local == [0] * len(local)
