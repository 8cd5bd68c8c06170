"""Arithmetic becomes part of the product before it: a convolution's bias, a GEMM's alpha and C, and what is added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dmlvk.graph.passes.layout import elsewhere
from dmlvk.graph.passes.match import Operand, operand, pairs
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import same_elements, seen_as
from dmlvk.spec import ops
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.spec.ops.matmul import GemmAdd
from dmlvk.spec.schema import FLOATS, OperatorDesc, fits_float32
from dmlvk.spec.tensor import TensorDesc

_MOST_SCALED: Final = 2.0**16
"""The most that a number, or one divided by it, may be so that it need not be multiplied before a sum."""


def fuse_additions(graph: StepGraph) -> None:
    """An addition to a product's output that nothing else reads becomes a part of the product, before it rounds.

    A convolution without a bias takes a number a channel; a GEMM without C takes anything of its sizes, broadcast or not,
    and where it is added to a transposed view of the output, too.
    """
    for step, product, own, other in _additions(graph):
        fused = _with_addend(product, step.desc, own, other, step.storage(other))
        if fused is not None:
            desc, storages = fused
            storages["output_tensor"] = step.outputs[0]
            graph.replace((product, step), Step.of(product.origin, desc, storages))


def _additions(graph: StepGraph) -> Iterator[tuple[Step, Step, str, str]]:
    """Each addition with the step that makes one of its operands for it alone, and the fields of this operand and the other.
    One with two such operands comes twice, unless it is gone by then."""
    for step in graph.steps:
        if not isinstance(step.desc, ops.ElementWiseAdd | ops.ElementWiseAdd1):
            continue
        for own, other in (("a_tensor", "b_tensor"), ("b_tensor", "a_tensor")):
            writer = graph.writer(step.storage(own)) if step in graph else None
            if writer is not None and graph.only_reader(writer.outputs[0]) is step:
                yield step, writer, own, other


def _with_addend(
    product: Step, addition: OperatorDesc, own: str, other: str, storage: Storage | None
) -> tuple[OperatorDesc, dict[str, Storage | None]] | None:
    """The product as one that adds as well; None where it cannot."""
    desc = product.desc
    found = _as_the_product(desc, addition, own, other)
    if found is None:
        return None
    addend, output = found
    changes = {"output_tensor": output, "fused_activation": getattr(addition, "fused_activation", None)}
    if isinstance(desc, ops.Gemm):
        if desc.c_tensor is not None:
            return None
        return desc.replace(**changes, c_tensor=addend, beta=1.0), {**product.storages(), "c_tensor": storage}
    assert isinstance(desc, ops.Convolution), "there are two kinds of products"
    sizes = output.sizes
    varies = [axis for axis, step in enumerate(addend.effective_strides) if step and sizes[axis] > 1]
    if desc.bias_tensor is not None or varies not in ([], [1]) or any(desc.output_padding):
        return None
    per_channel = tuple(size if axis == 1 else 1 for axis, size in enumerate(sizes))
    bias = TensorDesc(addend.data_type, per_channel, addend.effective_strides)
    return desc.replace(**changes, bias_tensor=bias), {**product.storages(), "bias_tensor": storage}


def _as_the_product(
    desc: OperatorDesc, addition: OperatorDesc, own: str, other: str
) -> tuple[TensorDesc, TensorDesc] | None:
    """An addition's other operand and its result, as the output of the product that makes its own; None where that is no
    product, or strides cannot say it. The addition may see a Gemm's output in another order, channels first where columns
    are channels: y is written so, and its kernels are those of y^T."""
    if not isinstance(desc, ops.Convolution | ops.Gemm) or desc.fused_activation is not None:
        return None
    made, seen = desc.tensor("output_tensor"), addition.tensor(own)
    in_order = same_elements(made, seen)
    if not in_order and not isinstance(desc, ops.Gemm):
        return None
    tensors = addition.tensor(other), addition.tensor("output_tensor")
    addend, output = (seen_as(each, made.sizes) if in_order else elsewhere(made, seen, each) for each in tensors)
    return None if addend is None or output is None else (addend, output)


def fuse_residuals(graph: StepGraph) -> None:
    """A tensor that is added to a product's output, which nothing else reads, is added by the product, beside its bias; by a
    GEMM also where the addition sees its output transposed, as the residual of a ConvNeXt's block."""
    for step, product, own, other in _additions(graph):
        desc = _with_residual(product.desc, step.desc, own, other)
        if desc is not None:
            added = {"addend_tensor": step.storage(other), "output_tensor": step.outputs[0]}
            graph.replace((product, step), Step.of(product.origin, desc, {**product.storages(), **added}))


def _with_residual(desc: OperatorDesc, addition: OperatorDesc, own: str, other: str) -> ConvolutionAdd | GemmAdd | None:
    """The product as one that adds the addition's other operand as well; None where it cannot."""
    found = _as_the_product(desc, addition, own, other)
    if found is None:
        return None
    addend, output = found
    fields = {spec.name: getattr(desc, spec.name) for spec in desc.fields}
    fields |= {"output_tensor": output, "fused_activation": getattr(addition, "fused_activation", None)}
    if type(desc) is ops.Gemm and output.data_type in FLOATS:
        return GemmAdd(**fields, addend_tensor=addend)
    if type(desc) is not ops.Convolution or any(desc.output_padding):
        return None
    is_depthwise = desc.group_count == desc.tensor("input_tensor").sizes[1]
    steps = zip(output.sizes, addend.effective_strides, output.effective_strides, strict=True)
    if is_depthwise or any(size > 1 and step != wanted for size, step, wanted in steps):
        return None
    return ConvolutionAdd(**fields, addend_tensor=addend)


def fuse_scales(graph: StepGraph) -> None:
    """A number that a GEMM's output is multiplied with or divided by, and that nothing else reads, goes into its alpha."""
    for step in graph.steps:
        found = _factor(graph, step)
        gemm = graph.writer(found[0].storage) if found else None
        if found is None or gemm is None or graph.only_reader(gemm.outputs[0]) is not step:
            continue
        part, number = found
        desc = gemm.desc
        if not isinstance(desc, ops.Gemm) or desc.c_tensor is not None or desc.fused_activation is not None:
            continue
        output = desc.tensor("output_tensor")
        result = seen_as(step.desc.tensor("output_tensor"), output.sizes)
        alpha = desc.alpha * number
        if result is not None and same_elements(output, part.tensor) and fits_float32(alpha):
            storages = {**gemm.storages(), "output_tensor": step.outputs[0]}
            scaled = desc.replace(alpha=alpha, output_tensor=result)
            graph.replace((gemm, step), Step.of(gemm.origin, scaled, storages))


def fuse_operand_scales(graph: StepGraph) -> None:
    """A number that a factor of a GEMM is multiplied with or divided by, for it alone, goes into its alpha.

    PyTorch's exporter writes attention so, with a root of the scale on either side. Only numbers of an ordinary size: one
    that keeps sums from overflowing stays where it is.
    """
    for step in graph.steps:
        for field in ("a_tensor", "b_tensor"):
            if step not in graph or not isinstance(step.desc, ops.Gemm):
                break
            storage, tensor = operand(step, field)
            scaling = None if storage is None else graph.writer(storage)
            found = None if scaling is None else _factor(graph, scaling)
            if scaling is None or found is None or graph.only_reader(scaling.outputs[0]) is not step:
                continue
            part, number = found
            plain = seen_as(part.tensor, tensor.sizes)
            if (
                plain is None
                or not _MOST_SCALED >= abs(number) >= 1 / _MOST_SCALED
                or not same_elements(scaling.desc.tensor("output_tensor"), tensor)
            ):
                continue
            desc = step.desc.replace(**{field: plain, "alpha": step.desc.alpha * number})
            scaled = Step.of(step.origin, desc, {**step.storages(), field: part.storage})
            graph.replace((scaling, step), scaled)
            step = scaled


def _factor(graph: StepGraph, step: Step) -> tuple[Operand, float] | None:
    """The operand that a step multiplies with a number, and the number; None for a step that does not."""
    if isinstance(step.desc, ops.ElementWiseDivide):
        divisor = graph.number(*operand(step, "b_tensor"))
        return (operand(step, "a_tensor"), 1.0 / divisor) if divisor else None
    if isinstance(step.desc, ops.ElementWiseMultiply):
        for own, other in pairs(step):
            number = graph.number(*other)
            if number is not None:
                return own, number
    return None
