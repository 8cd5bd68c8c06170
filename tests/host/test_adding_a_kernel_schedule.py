"""docs/adding-a-kernel-schedule.md shows a schedule as it really is in the sources: its kernel, row, rule and plan."""

from __future__ import annotations

import re

from guides import ROOT, additions, assert_the_sources_hold, guide, lines_that_name

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

PAGE = guide("adding-a-kernel-schedule.md")
ADDED = additions(PAGE)
(KERNEL,) = re.findall(r"^\+\s+KernelSpec\(\n\+\s+\"(\w+)\"", PAGE, re.MULTILINE)
(RULE,) = re.findall(r"^\+\s+Rule\(\n\+\s+\"(\w+)\"", PAGE, re.MULTILINE)


def test_the_sources_hold_what_the_page_shows() -> None:
    assert_the_sources_hold(ADDED)
    (registered,) = re.findall(r"^ +schedules=.*\n", PAGE, re.MULTILINE)
    assert registered in (ROOT / list(ADDED)[-1]).read_text()


def test_the_page_shows_all_that_there_is_of_the_kernel() -> None:
    for path, lines in lines_that_name(re.compile(rf'"{KERNEL}"'), "src/dmlvk").items():
        assert set(lines) <= set(ADDED[path]), path


def test_the_rule_launches_the_kernel() -> None:
    assert KERNELS[KERNEL].source in {path.removeprefix("glsl/") for path in ADDED}
    desc = ops.NonzeroCoordinates(
        input_tensor=TensorDesc(TensorDataType.FLOAT32, (64,)),
        output_count_tensor=TensorDesc(TensorDataType.UINT32, (1,)),
        output_coordinates_tensor=TensorDesc(TensorDataType.UINT32, (64, 1)),
    )
    (launch,) = lower(desc, Capabilities(), force=RULE).dispatches
    assert isinstance(launch, Dispatch)
    assert launch.kernel.kernel == KERNEL
