"""ElementWiseIf: a choice between elements as raw bits, launched as the other pointwise rows."""

from __future__ import annotations

from collections.abc import Callable

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.elementwise.lowering import launch, pointwise_problem
from dmlvk.kernels.elementwise.rules import ELEMENTWISE_ITEMS, ElementwiseProblem
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops import ElementWiseIf
from dmlvk.spec.tensor import element_bits


def _problem(desc: ElementWiseIf) -> ElementwiseProblem:
    """The condition's type and that of the elements' bits; elements of 64 bits as twice 32 under one condition."""
    condition, *others = (desc.tensor(f"{name}_tensor") for name in ("condition", "a", "b", "output"))
    bits, sizes = element_bits(others[-1].data_type), condition.sizes
    strides = [tensor.effective_strides for tensor in (condition, *others)]
    if bits == 64:
        bits, sizes = 32, (*sizes, 2)
        strides = [(*strides[0], 0), *((*(2 * step for step in steps), 1) for steps in strides[1:])]
    return pointwise_problem(condition.data_type, TensorDataType[f"UINT{bits}"], sizes, strides)


def _schedule(rule: str) -> Callable[[ElementWiseIf, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: ElementWiseIf, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        bindings = (*(input_range(slot) for slot in range(3)), output_range())
        return Plan((launch("elementwise_select", rule, problem, caps, bindings, {}, {}),))

    return schedule


register(
    ElementWiseIf,
    problem=_problem,
    rules=ELEMENTWISE_ITEMS,
    schedules={rule.name: _schedule(rule.name) for rule in ELEMENTWISE_ITEMS},
)
