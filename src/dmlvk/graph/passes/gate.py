"""A product that gates another: both become one product, which multiplies its columns before it stores them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from dmlvk.graph.passes.match import Operand, computed_by, is_near, operand, pairs
from dmlvk.graph.passes.products import are_alike, is_joinable, joined
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec import ops
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import BlockQuantizedGemm
from dmlvk.spec.ops.matmul import GemmGate
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

_TO_SIGMOID: Final = 2 * math.sqrt(2 / math.pi)
_MULTIPLE: Final = 8
"""Columns of which a gated output has a multiple."""
_MOST_BYTES: Final = 2**27
"""The most bytes of a product before its gate: as many as every device binds."""


class _Activated(NamedTuple):
    """What goes through a gate.

    Attributes:
        gate: The activation.
        x: What it is of.
        steps: The steps that compute it, which compute it for nobody else.
    """

    gate: Gate
    x: Operand
    steps: tuple[Step, ...]


def fuse_gates(graph: StepGraph) -> None:
    """SiLU or GELU, by its tanh, of a product with constant weights times another product of the same tensor, or of the two
    halves of one product, becomes a product with a gate."""
    for step in graph.steps:
        if step not in graph or not isinstance(step.desc, ops.ElementWiseMultiply):
            continue
        for own, other in pairs(step):
            activated = _activated(graph, own)
            fused = activated and _fused(graph, step, activated, other)
            if fused:
                graph.replace(*fused)
                break


def _activated(graph: StepGraph, part: Operand) -> _Activated | None:
    step = computed_by(graph, part)
    if step is None or graph.only_reader(part.storage) is None:
        return None
    if isinstance(step.desc, ops.ActivationSwish) and step.desc.sigmoid_input_scale == 1.0:
        return _Activated(Gate.SILU, operand(step, "input_tensor"), (step,))
    if not isinstance(step.desc, ops.ElementWiseMultiply):
        return None
    for x, share in pairs(step):
        steps = _gelu_share(graph, x, share)
        if steps:
            return _Activated(Gate.GELU, x, (*steps, step))
    return None


def _gelu_share(graph: StepGraph, x: Operand, share: Operand) -> tuple[Step, ...]:
    """The steps that compute sigmoid(2 a), a = sqrt(2 / pi) * (x + 0.044715 x^3), for one reader alone; none if they compute
    something else."""
    sigmoid = computed_by(graph, share)
    if sigmoid is None or not isinstance(sigmoid.desc, ops.ActivationSigmoid):
        return ()
    angle = computed_by(graph, operand(sigmoid, "input_tensor"))
    if angle is None or not isinstance(angle.desc, ops.ElementWiseMultiply):
        return ()
    for one, slope in pairs(angle):
        line = computed_by(graph, slope)
        square = line and _is_slope(line) and computed_by(graph, operand(line, "input_tensor"))
        if not line or not square or not isinstance(square.desc, ops.ElementWiseMultiply):
            continue
        steps = (square, line, angle, sigmoid)
        if one == x and set(pairs(square)) == {(x, x)} and all(graph.only_reader(own.outputs[0]) for own in steps):
            return steps
    return ()


def _is_slope(step: Step) -> bool:
    """Whether a step computes sqrt(8 / pi) * (1 + 0.044715 y) of y."""
    match step.desc:
        case ops.ActivationLinear() as line:
            numbers = line.alpha, line.beta
        case ops.ElementWiseIdentity(scale_bias=scaling) if scaling is not None:
            numbers = scaling.scale, scaling.bias
        case _:
            return False
    return is_near(numbers[0], _TO_SIGMOID * 0.044715) and is_near(numbers[1], _TO_SIGMOID)


def _fused(graph: StepGraph, multiply: Step, activated: _Activated, other: Operand) -> tuple[tuple[Step, ...], Step] | None:
    """The steps that a product with a gate replaces, ``multiply`` at the end, and the product; None where there is none."""
    x, inner = activated.x, (*activated.steps, multiply)
    result = multiply.desc.tensor("output_tensor")
    if x.storage is None or other.storage is None or x.storage in graph.outputs or other.storage in graph.outputs:
        return None
    if not set(graph.readers(x.storage)) <= {*activated.steps}:
        return None
    if graph.only_reader(other.storage) is not multiply or not _are_packed((x.tensor, other.tensor, result)):
        return None
    writers = graph.writer(x.storage), graph.writer(other.storage)
    if None in writers:
        return None
    first, second = writers
    assert first is not None and second is not None, "just asked"
    if first is second:
        product = _halved(graph, first, (x.storage, other.storage))
        old = (*filter(None, (product,)), first, *inner)
    else:
        both = [first, second]
        if not all(_takes_a_gate(own.desc) and is_joinable(graph, own) for own in both) or not are_alike(both):
            return None
        product, _ = joined(graph, both)
        old = (first, second, *inner)
    if product is None:
        return None
    *rows, columns = product.desc.tensor("output_tensor").sizes
    whole = product.desc.tensor("output_tensor").total_tensor_size_in_bytes
    if columns // 2 % _MULTIPLE or whole > _MOST_BYTES:
        return None
    output = TensorDesc(result.data_type, (*rows, columns // 2))
    desc: OperatorDesc
    if isinstance(product.desc, ops.Gemm):
        fields = {name: getattr(product.desc, name) for name in ("a_tensor", "b_tensor", "trans_a", "trans_b")}
        desc = GemmGate(**fields, output_tensor=output, gate=activated.gate)
    else:
        desc = product.desc.replace(gate=activated.gate, output_tensor=output)
    return old, Step.of(product.origin, desc, {**product.storages(), "output_tensor": multiply.outputs[0]})


def _are_packed(tensors: Iterable[TensorDesc]) -> bool:
    """Whether all are of one size, and lie without gaps, each in the order of its dimensions."""
    one, *others = tensors
    plain = (TensorDesc(own.data_type, own.sizes).effective_strides == own.effective_strides for own in (one, *others))
    return all(plain) and all(other.sizes == one.sizes for other in others)


def _halved(graph: StepGraph, split: Step, halves: tuple[Storage, Storage]) -> Step | None:
    """The product whose output a step splits into these halves, for nobody else."""
    desc = split.desc
    if not isinstance(desc, ops.Split) or desc.axis != desc.tensor("input_tensor").dimension_count - 1:
        return None
    product = graph.writer(split.inputs[0])
    if split.outputs != halves or product is None or graph.only_reader(split.inputs[0]) is not split:
        return None
    one, other = desc.output_tensors
    if one.sizes != other.sizes or not _takes_a_gate(product.desc):
        return None
    return product if product.desc.tensor("output_tensor").strides is None else None


def _takes_a_gate(desc: OperatorDesc) -> bool:
    """Whether an operator is a product that a gate may end: with weights in blocks, or one to which nothing else is done."""
    if isinstance(desc, BlockQuantizedGemm):
        return not desc.gate and desc.addend_tensor is None
    return type(desc) is ops.Gemm and desc.c_tensor is None and desc.fused_activation is None and desc.alpha == 1.0
