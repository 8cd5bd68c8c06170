"""Every problem that is measured, small, against the float64 oracle."""

from __future__ import annotations

import pytest

from dmlvk import Device
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import EXACT
from dmlvk_bench.check import difference
from dmlvk_bench.measure import Loaded
from dmlvk_bench.problems import FAMILIES, all_problems
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.problems.scale import QUICK


def tolerance(problem: Problem) -> float:
    """None where the operator's cases want the oracle's own bits, and the problem has no check of its own."""
    entry = all_cases().get(type(problem.desc))
    types = [slot.tensor.data_type for slot in problem.desc.output_slots() if slot.tensor is not None]
    exact = entry is not None and all(entry.tolerance.get(data_type, EXACT).ulp == 0 for data_type in types)
    return 0.0 if exact and problem.check is None else problem.tolerance


@pytest.mark.parametrize("every_problem", [pytest.param(True, marks=pytest.mark.full, id="every problem"), False])
@pytest.mark.parametrize("family", FAMILIES)
def test_small_problems_are_right(device: Device, family: str, every_problem: bool) -> None:
    """One problem of each operator; or all of them."""
    problems = [problem for problem in all_problems(QUICK) if problem.family == family]
    one_each = {type(problem.desc): problem for problem in reversed(problems)}
    wrong = []
    for problem in problems if every_problem else one_each.values():
        inputs = problem.inputs()
        loaded = Loaded(device, problem, inputs)
        before = device.dispatches
        loaded.run()
        assert device.dispatches > before, problem.name
        found = difference(problem, inputs, loaded.outputs(), by_oracle=True)
        if not found <= tolerance(problem):
            wrong.append(f"{problem.name}: off by {found:.2g}, at most {tolerance(problem):g}")
    assert not wrong, "\n".join(wrong)


def test_a_wrong_output_is_seen(device: Device) -> None:
    """One that the check of a problem's own sees, and the oracle's."""
    for name in ("random bits", "nonzero", "average pooling gradient 3x3 stride 1 NHWC", "GEMM"):
        problem = next(problem for problem in all_problems(QUICK, name) if problem.check or name == "GEMM")
        inputs = problem.inputs()
        loaded = Loaded(device, problem, inputs)
        loaded.run()
        outputs = loaded.outputs()
        for by_oracle in (True, False) if problem.check else (True,):
            assert difference(problem, inputs, outputs, by_oracle=by_oracle) <= problem.tolerance
            spoilt = [output.copy() for output in outputs]
            spoilt[0][:4] ^= 0x15
            assert difference(problem, inputs, spoilt, by_oracle=by_oracle) > problem.tolerance, name
