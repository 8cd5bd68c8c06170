"""GELU as frameworks export it: 0.5 * x * (1 + erf(x / sqrt(2))) in five operators."""

from __future__ import annotations

import math

from dmlvk.graph.passes.match import Operand, computed_by, is_near, operand, plus_number, product
from dmlvk.graph.step import Step
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec import ops


def recognise_gelu(graph: StepGraph) -> None:
    """The formula, its factors in any order, becomes an ActivationGelu of x."""
    for step in graph.steps:
        if not isinstance(step.desc, ops.ElementWiseMultiply):
            continue
        whole = product(graph, operand(step, "output_tensor"))
        if len(whole.operands) != 2 or not is_near(whole.number, 0.5):
            continue
        for x, other in (whole.operands, whole.operands[::-1]):
            if _is_one_plus_erf(graph, other, x):
                gelu = ops.ActivationGelu(input_tensor=x.tensor, output_tensor=step.desc.tensor("output_tensor"))
                storages = {"input_tensor": x.storage, "output_tensor": step.outputs[0]}
                graph.replace((step,), Step.of(step.origin, gelu, storages))
                break


def _is_one_plus_erf(graph: StepGraph, part: Operand, x: Operand) -> bool:
    """Whether an operand is 1 + erf(x / sqrt(2))."""
    found = plus_number(graph, part)
    if found is None or found[1] != 1.0:
        return False
    erf = computed_by(graph, found[0])
    if erf is None or not isinstance(erf.desc, ops.ElementWiseErf) or erf.desc.scale_bias is not None:
        return False
    inner = product(graph, operand(erf, "input_tensor"))
    return inner.operands == (x,) and is_near(inner.number, math.sqrt(0.5))
