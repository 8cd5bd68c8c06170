"""A normalization of a product's rows becomes a part of the product, which may have them at hand."""

from __future__ import annotations

import math
from typing import Any

from dmlvk.graph.passes.products import MOST_BOUND
from dmlvk.graph.step import Step
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import same_elements, seen_as
from dmlvk.kernels.lowering import newest
from dmlvk.spec import ops
from dmlvk.spec.ops.matmul import GemmAdd, GemmNormalization
from dmlvk.spec.schema import FLOATS
from dmlvk.spec.tensor import TensorDesc

_SIDES = {"norm_scale_tensor": "scale_tensor", "norm_bias_tensor": "bias_tensor"}
"""The fields of a product with a normalization behind it, and those of the normalization."""


def normalize_products(graph: StepGraph) -> None:
    """A normalization of each row of a product by its mean and variance becomes a part of the product. What else reads the
    product still can."""
    for step in graph.steps:
        norm = newest(step.desc)
        product = graph.writer(step.inputs[0]) if isinstance(norm, ops.MeanVarianceNormalization2) else None
        if product is None or any(graph.writer(step.storage(own)) is not None for own in _SIDES.values()):
            continue
        keeps = graph.only_reader(product.outputs[0]) is not step
        desc = _with_normalization(product.desc, norm, keeps=keeps)
        if desc is not None:
            storages = product.storages() | {name: step.storage(own) for name, own in _SIDES.items()}
            storages |= {"output_tensor": step.outputs[0], "product_tensor": product.outputs[0] if keeps else None}
            graph.replace((product, step), Step.of(step.origin, desc, storages), early=True)  # other readers come later


def _with_normalization(product: Any, norm: Any, *, keeps: bool) -> GemmNormalization | None:
    """The product that normalizes its rows as well; None where a normalization is of something else.

    Args:
        product: The step before the normalization.
        norm: The normalization.
        keeps: Whether something else reads the product.
    """
    if type(product) not in (ops.Gemm, GemmAdd) or product.fused_activation is not None:
        return None
    if norm.fused_activation is not None or not norm.use_variance:
        return None
    if product.tensor("b_tensor").total_tensor_size_in_bytes > MOST_BOUND:  # only a GEMM by itself is cut by its columns
        return None
    made, seen = product.tensor("output_tensor"), norm.tensor("input_tensor")
    if made.data_type not in FLOATS or not same_elements(made, seen):
        return None
    columns = made.sizes[-1]
    outer = seen.sizes[: min(norm.axes, default=len(seen.sizes))]
    if math.prod(outer) * columns != made.element_count or any(
        size != 1 for axis, size in enumerate(seen.sizes) if axis >= len(outer) and axis not in norm.axes
    ):
        return None
    fields: dict[str, Any] = {name: getattr(norm, own) for name, own in _SIDES.items()}
    for name, side in fields.items():
        fields[name] = side and seen_as(side, (columns,))
        if side is not None and fields[name] is None:
            return None
    output: TensorDesc | None = seen_as(norm.tensor("output_tensor"), made.sizes)
    if output is None:
        return None
    names = ("a_tensor", "b_tensor", "c_tensor", "trans_a", "trans_b", "alpha", "beta")
    fields |= {name: getattr(product, name) for name in names}
    return GemmNormalization(
        **fields,
        addend_tensor=product.addend_tensor if isinstance(product, GemmAdd) else None,
        output_tensor=output,
        product_tensor=made if keeps else None,
        epsilon=norm.epsilon,
        use_mean=norm.use_mean,
    )
