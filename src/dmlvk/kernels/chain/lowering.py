"""PointwiseChain: several pointwise operators as one launch, their program as specialisation constants; MultiTensorChain:
the same for several tensors."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.chain.rules import CHAIN, MULTI_TENSOR, MultiTensorProblem
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.common.shapes import linear_grid
from dmlvk.kernels.elementwise.lowering import launch, number_attributes, pointwise_problem
from dmlvk.kernels.elementwise.manifest import WORKGROUP
from dmlvk.kernels.elementwise.rules import ElementwiseProblem
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.enums import OperatorType, TensorDataType
from dmlvk.spec.ops.chain import (
    FIRST_RESULT,
    MOST_INPUTS,
    NONE,
    ROUND_TO_BFLOAT16,
    MultiTensorChain,
    PointwiseChain,
    rounds_to_bfloat16,
)
from dmlvk.spec.schema import OperatorDesc


def _problem(desc: PointwiseChain) -> ElementwiseProblem:
    """The problem of a chain, with as many inputs as the kernel binds: those that are not there do not vary."""
    output = desc.tensor("output_tensor")
    is_of_bits = output.data_type is TensorDataType.UINT16
    input_type = TensorDataType.FLOAT32 if is_of_bits else output.data_type
    inputs = [tensor.effective_strides for tensor in desc.input_tensors]
    absent = [(0,) * output.dimension_count] * (MOST_INPUTS - len(inputs))
    return pointwise_problem(input_type, output.data_type, output.sizes, [*inputs, *absent, output.effective_strides])


def _schedule(rule: str) -> Callable[[PointwiseChain, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: PointwiseChain, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        return Plan((_launch(desc, rule, problem, caps, 0, 0),))

    return schedule


def _launch(
    desc: PointwiseChain, rule: str, problem: ElementwiseProblem, caps: Capabilities, first: int, output: int
) -> Dispatch:
    """The launch of a chain whose inputs are the operator's from the slot ``first`` on."""
    program, numbers = _program(desc)
    constants = {"INPUTS": len(desc.input_tensors), **program}
    slots = [first + (index if index < len(desc.input_tensors) else 0) for index in range(MOST_INPUTS)]
    bindings = (*map(input_range, slots), output_range(output))
    return launch("pointwise_chain", rule, problem, caps, bindings, constants, numbers)


def _program(desc: PointwiseChain | MultiTensorChain) -> tuple[dict[str, int], dict[str, Any]]:
    """The constants and the parameters that the operations of a chain are."""
    constants = {"OPERATIONS": len(desc.operator_descs)}
    numbers: list[float] = []
    for index, operation in enumerate(desc.operator_descs):
        a, b, c = desc.operands[3 * index : 3 * index + 3]
        constants[f"OPERATION_{index}"] = _selected(operation, a)
        constants[f"OPERANDS_{index}"] = a | b << 4 | c << 8
        own = (*number_attributes(operation), 0.0, 0.0) if b == NONE else desc.numbers[2 * index :]
        numbers += own[:2]
    return constants, {"numbers": tuple(numbers), "zero": 0}


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


def _kernel(inputs: int) -> str:
    return f"multi_tensor_chain_{inputs}"


def _multi_tensor_problem(desc: MultiTensorChain) -> MultiTensorProblem:
    inputs = len(desc.input_tensors) // len(desc.output_tensors)
    return MultiTensorProblem(tuple(map(_problem, desc.chains())), inputs, len(KERNELS[_kernel(inputs)].buffers))


def _together(desc: MultiTensorChain, problem: MultiTensorProblem, caps: Capabilities) -> Plan:
    """One launch, whose workgroups each have a piece of one tensor. Buffers for which there is no tensor are the first's."""
    name = _kernel(problem.inputs)
    constants, params = _program(desc)
    broadcast, each = problem.broadcast, problem.inputs + 1
    assert broadcast is not None, "the rule has shown it to be there"
    lanes = problem.chains[0].group_lanes
    counts = tuple(math.prod(chain.walk.sizes) for chain in problem.chains)
    ends = tuple(itertools.accumulate(-(-count // (WORKGROUP * lanes)) for count in counts))
    bindings = []
    for place in range(problem.buffers // each):
        tensor = place if place < len(counts) else 0
        bindings += [input_range(tensor * problem.inputs + index) for index in range(problem.inputs)]
        bindings.append(output_range(tensor))
    data_type = problem.chains[0].output_type.name
    dispatch = make_dispatch(
        name,
        bindings,
        linear_grid(ends[-1], caps),
        variant={"LANES": lanes, "T": data_type},
        constants={**constants, "BROADCAST": broadcast, "LOCAL_SIZE_X": WORKGROUP},
        tensors=len(counts),
        counts=counts,
        ends=ends,
        **params,
    )
    return Plan((dispatch,))


def _apart(desc: MultiTensorChain, problem: MultiTensorProblem, caps: Capabilities) -> Plan:
    launches = []
    for index, (chain, own) in enumerate(zip(desc.chains(), problem.chains, strict=True)):
        rule = choose(CHAIN, own, caps).name
        made = _launch(chain, rule, own, caps, index * problem.inputs, index)
        launches.append(dataclasses.replace(made, beside_previous=index > 0))
    return Plan(tuple(launches))


register(
    MultiTensorChain,
    problem=_multi_tensor_problem,
    rules=MULTI_TENSOR,
    schedules={"together": _together, "apart": _apart},
)
