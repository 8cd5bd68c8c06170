"""PointwiseChain: several pointwise operators as one launch, their program as specialisation constants."""

from __future__ import annotations

from collections.abc import Callable

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.chain.rules import CHAIN
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.elementwise.lowering import launch, number_attributes, pointwise_problem
from dmlvk.kernels.elementwise.rules import ElementwiseProblem
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.ops.chain import (
    FIRST_RESULT,
    MOST_INPUTS,
    NONE,
    ROUND_TO_BFLOAT16,
    PointwiseChain,
    rounds_to_bfloat16,
)
from dmlvk.spec.schema import OperatorDesc


def _problem(desc: PointwiseChain) -> ElementwiseProblem:
    """The problem of a chain, with as many inputs as the kernel binds: those that are not there do not vary."""
    output = desc.tensor("output_tensor")
    inputs = [tensor.effective_strides for tensor in desc.input_tensors]
    absent = [(0,) * output.dimension_count] * (MOST_INPUTS - len(inputs))
    return pointwise_problem(output.data_type, output.data_type, output.sizes, [*inputs, *absent, output.effective_strides])


def _schedule(rule: str) -> Callable[[PointwiseChain, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: PointwiseChain, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        constants = {"OPERATIONS": len(desc.operator_descs), "INPUTS": len(desc.input_slots())}
        numbers: list[float] = []
        for index, operation in enumerate(desc.operator_descs):
            a, b, c = desc.operands[3 * index : 3 * index + 3]
            constants[f"OPERATION_{index}"] = _selected(operation, a)
            constants[f"OPERANDS_{index}"] = a | b << 4 | c << 8
            own = (*number_attributes(operation), 0.0, 0.0) if b == NONE else desc.numbers[2 * index :]
            numbers += own[:2]
        slots = [index if index < len(desc.input_slots()) else 0 for index in range(MOST_INPUTS)]
        bindings = (*map(input_range, slots), output_range())
        params = {"numbers": tuple(numbers), "zero": 0}
        return Plan((launch("pointwise_chain", rule, problem, caps, bindings, constants, params),))

    return schedule


def _selected(operation: OperatorDesc, operand: int) -> int:
    """The number by which the shader knows an operation: a truth value needs no cast, for it is a number there."""
    if rounds_to_bfloat16(operation):
        return ROUND_TO_BFLOAT16
    is_needless = operation.type is OperatorType.CAST and operand >= FIRST_RESULT
    return OperatorType.ELEMENT_WISE_IDENTITY if is_needless else operation.type


register(
    PointwiseChain,
    problem=_problem,
    rules=CHAIN,
    schedules={rule.name: _schedule(rule.name) for rule in CHAIN},
)
