"""Softmax as frameworks export it of masked rows: where it is NaN, 0 is taken."""

from __future__ import annotations

import math

from dmlvk.graph.passes.match import Operand, computed_by, operand
from dmlvk.graph.step import Step
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec import ops
from dmlvk.spec.ops.activation import SoftmaxOrZero


def recognise_softmax_or_zero(graph: StepGraph) -> None:
    """The choice between 0 and a softmax that is NaN, and otherwise the softmax, becomes a SoftmaxOrZero.

    A row of which a mask leaves nothing is NaN; PyTorch's attention makes it 0. On an H100 the choice took 5 us for 12 heads
    of 128 keys, and 52 us for 12 heads of 1214, beside 7 and 60 us of the softmax.
    """
    for step in graph.steps:
        softmax = _chosen_softmax(graph, step) if isinstance(step.desc, ops.ElementWiseIf) else None
        if softmax is None:
            continue
        assert isinstance(softmax.desc, ops.ActivationSoftmax1), "it is one"
        source = operand(softmax, "input_tensor")
        desc = SoftmaxOrZero(
            input_tensor=source.tensor, output_tensor=step.desc.tensor("output_tensor"), axes=softmax.desc.axes
        )
        storages = {"input_tensor": source.storage, "output_tensor": step.outputs[0]}
        graph.replace((step,), Step.of(step.origin, desc, storages))


def _chosen_softmax(graph: StepGraph, choice: Step) -> Step | None:
    """The softmax that a choice makes 0 where it is NaN, if nothing else reads it."""
    zero = graph.number(*operand(choice, "a_tensor"))
    if zero != 0.0 or math.copysign(1.0, zero) < 0.0:
        return None
    share = operand(choice, "b_tensor")
    softmax, asked = computed_by(graph, share), _asked(graph, choice)
    if softmax is None or share.storage is None or type(softmax.desc) is not ops.ActivationSoftmax1:
        return None
    if asked is None or asked[1] != share or share.storage in graph.outputs:
        return None
    return softmax if set(graph.readers(share.storage)) == {choice, asked[0]} else None


def _asked(graph: StepGraph, choice: Step) -> tuple[Step, Operand] | None:
    """The step that asks where a tensor is NaN, for a choice, and that tensor."""
    step = computed_by(graph, operand(choice, "condition_tensor"))
    return None if step is None or not isinstance(step.desc, ops.ElementWiseIsNan) else (step, operand(step, "input_tensor"))
