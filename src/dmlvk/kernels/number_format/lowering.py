"""FormatCast: launched as the other pointwise rows, the format's layout as specialisation constants."""

from __future__ import annotations

from collections.abc import Callable

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.elementwise.lowering import launch, pointwise_problem
from dmlvk.kernels.elementwise.rules import ELEMENTWISE_ITEMS, ElementwiseProblem
from dmlvk.spec.ops.number_format import FormatCast


def _problem(desc: FormatCast) -> ElementwiseProblem:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    return pointwise_problem(x.data_type, output.data_type, output.sizes, [x.effective_strides, output.effective_strides])


def _schedule(rule: str) -> Callable[[FormatCast, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: FormatCast, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        layout = desc.format.layout
        constants = {f"FORMAT_{name.upper()}": int(value) for name, value in layout._asdict().items()}
        constants |= {"SATURATE": desc.saturate, "FORMAT_ROUNDING": desc.rounding}
        return Plan((launch("number_format", rule, problem, caps, (input_range(0), output_range()), constants, {}),))

    return schedule


register(
    FormatCast,
    problem=_problem,
    rules=ELEMENTWISE_ITEMS,
    schedules={rule.name: _schedule(rule.name) for rule in ELEMENTWISE_ITEMS},
)
