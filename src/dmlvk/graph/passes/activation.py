"""Activations become the last thing that the operator before them does."""

from __future__ import annotations

from dmlvk.graph.passes.match import Operand, computed_by, is_near, operand, plus_number, product
from dmlvk.graph.step import Step
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import same_elements, seen_as
from dmlvk.spec import ops
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.schema import FLOATS, OperatorDesc


def recognise_swish(graph: StepGraph) -> None:
    """x * sigmoid(x) becomes a Swish. x * hard_sigmoid(x) becomes a HardSwish, and so does x * clip(x + b, 0, c) / c, as
    which exporters write it, its factors in any order."""
    for step in graph.steps:
        if not isinstance(step.desc, ops.ElementWiseMultiply | ops.ElementWiseDivide):
            continue
        whole = product(graph, operand(step, "output_tensor"))
        if len(whole.operands) != 2:
            continue
        for x, gate in (whole.operands, whole.operands[::-1]):
            swish = _swish(graph, x, gate, whole.number)
            if swish is not None:
                swish = swish.replace(input_tensor=x.tensor, output_tensor=step.desc.tensor("output_tensor"))
                storages = {"input_tensor": x.storage, "output_tensor": step.outputs[0]}
                graph.replace((step,), Step.of(step.origin, swish, storages))
                break


def _swish(graph: StepGraph, x: Operand, gate: Operand, number: float) -> OperatorDesc | None:
    """The Swish that number * x * gate is, as a desc without tensors; None if it is none of x."""
    step = computed_by(graph, gate)
    if step is None or graph.only_reader(gate.storage) is None:
        return None
    desc = step.desc
    if isinstance(desc, ops.ElementWiseClip1) and desc.min == 0.0 and desc.max > 0.0 and desc.scale_bias is None:
        inner = plus_number(graph, operand(step, "input_tensor"))
        if inner is not None and inner[0] == x and is_near(number * desc.max, 1.0):
            return ops.ActivationHardSwish(alpha=1.0 / desc.max, beta=inner[1] / desc.max)
        return None
    if number != 1.0 or not isinstance(desc, ops.ActivationSigmoid | ops.ActivationHardSigmoid):
        return None
    if step.inputs[0] is not x.storage or desc.input_tensor != x.tensor:
        return None
    if isinstance(desc, ops.ActivationSigmoid):
        return ops.ActivationSwish(sigmoid_input_scale=1.0)
    return ops.ActivationHardSwish(alpha=desc.alpha, beta=desc.beta)


def fuse_activations(graph: StepGraph) -> None:
    """An activation whose input an operator computes for it alone becomes that operator's ``FusedActivation``."""
    for step in graph.steps:
        activation = _activation(step.desc)
        producer = graph.writer(step.inputs[0]) if step.inputs else None
        if activation is None or producer is None or graph.only_reader(producer.outputs[0]) is not step:
            continue
        desc = _accepting(producer.desc, activation)
        if desc is None or len(list(producer.written())) > 1:
            continue
        result = step.desc.output_slots()[0].tensor
        between = step.desc.input_slots()[0].tensor
        output = desc.tensor("output_tensor")
        assert result is not None and between is not None, "an activation has both tensors"
        seen = seen_as(result, output.sizes)
        if seen is None or not same_elements(output, between) or result.data_type != output.data_type:
            continue
        if output.data_type not in FLOATS:  # of FLOAT64 no operator has an activation
            continue
        fused = desc.replace(output_tensor=seen, fused_activation=activation)
        storages = {**producer.storages(), "output_tensor": step.outputs[0]}
        graph.replace((producer, step), Step.of(producer.origin, fused, storages))


def _activation(desc: OperatorDesc) -> OperatorDesc | None:
    """The desc without tensors, if it may be fused somewhere."""
    if isinstance(desc, ops.ElementWiseClip1) and desc.min_max_data_type in FLOATS:
        desc = ops.ElementWiseClip(scale_bias=desc.scale_bias, min=desc.min, max=desc.max)
    if not desc.fusable and not isinstance(desc, ops.ElementWiseClip):
        return None
    return desc.replace(input_tensor=None, output_tensor=None)


def _accepting(desc: OperatorDesc, activation: OperatorDesc) -> OperatorDesc | None:
    """The desc as one that may have the activation; None where there is none."""
    if isinstance(desc, ops.ElementWiseAdd) and desc.tensor("output_tensor").data_type in FLOATS:
        tensors = {name: getattr(desc, name) for name in ("a_tensor", "b_tensor", "output_tensor")}
        desc = ops.ElementWiseAdd1(**tensors)
    if getattr(desc, "fused_activation", activation) is not None:
        return None
    if activation.type == OperatorType.ELEMENT_WISE_CLIP and activation.type not in desc.accepts:
        return None
    return desc
