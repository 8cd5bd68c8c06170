"""ElementWisePow, whose inputs may be of two types: a kernel of its own, launched as those of the other pointwise rows."""

from __future__ import annotations

from collections.abc import Callable

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.elementwise.lowering import launch, pointwise_problem, scale_bias_words
from dmlvk.kernels.elementwise.rules import ELEMENTWISE_ITEMS, ElementwiseProblem
from dmlvk.spec.ops import ElementWisePow
from dmlvk.spec.tensor import element_bits


def _problem(desc: ElementWisePow) -> ElementwiseProblem:
    x, exponent, output = (desc.tensor(name) for name in ("input_tensor", "exponent_tensor", "output_tensor"))
    strides = [tensor.effective_strides for tensor in (x, exponent, output)]
    return pointwise_problem(x.data_type, output.data_type, output.sizes, strides)


def _schedule(rule: str) -> Callable[[ElementWisePow, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: ElementWisePow, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        exponent = desc.tensor("exponent_tensor").data_type
        constants = {
            "EXPONENT_BYTES": element_bits(exponent) // 8,
            "EXPONENT_IS_FLOAT": exponent.name.startswith("FLOAT"),
            "EXPONENT_IS_SIGNED": not exponent.name.startswith("UINT"),
            "HAS_SCALE_BIAS": desc.scale_bias is not None,
        }
        bindings = (input_range(0), input_range(1), output_range())
        params = scale_bias_words(desc.scale_bias, problem.input_type)
        return Plan((launch("elementwise_power", rule, problem, caps, bindings, constants, params),))

    return schedule


register(
    ElementWisePow,
    problem=_problem,
    rules=ELEMENTWISE_ITEMS,
    schedules={rule.name: _schedule(rule.name) for rule in ELEMENTWISE_ITEMS},
)
