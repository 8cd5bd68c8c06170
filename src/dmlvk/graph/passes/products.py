"""Products of one tensor with several constants become one product: as queries, keys and values are, or a gate and what it
gates."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.graph.passes.copies import windows_of
from dmlvk.graph.passes.match import operand, row_of_c
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform
from dmlvk.spec.tensor import TensorDesc

_MOST_BYTES: Final = 2**24
"""The most bytes of a constant that is joined with others: a product with a larger one fills a device by itself, and the
host would keep a second copy of much."""


def join_products(graph: StepGraph) -> None:
    """GEMMs of one A with constants, and with constant rows as C, become one whose output their readers see in part.

    Only where all readers can read a part of a row where it lies, or copy it themselves. The constants are joined on the
    host, once for all sizes.
    """
    of_source: dict[Storage, list[Step]] = {}
    for step in graph.steps:
        if _is_joinable(graph, step):
            source = step.storage("a_tensor")
            assert source is not None, "a GEMM has its A"
            of_source.setdefault(source, []).append(step)
    for waiting in of_source.values():
        while waiting:
            first, *others = waiting
            alike = [first, *(other for other in others if _are_alike(first, other))]
            waiting = [other for other in others if other not in alike]
            if len(alike) > 1:
                graph.replace(alike, *_joined(graph, alike), early=True)  # so that all readers come later


def _is_joinable(graph: StepGraph, step: Step) -> bool:
    """Whether a step is a GEMM with one constant matrix, whose output is read where it lies or copied."""
    desc = step.desc
    if not isinstance(desc, ops.Gemm) or desc.fused_activation is not None:
        return False
    output, weights = desc.tensor("output_tensor"), desc.tensor("b_tensor")
    if any(size != 1 for size in output.sizes[:-2]) or output.strides is not None:
        return False
    if graph.constant(*operand(step, "b_tensor")) is None or weights.total_tensor_size_in_bytes > _MOST_BYTES:
        return False
    if desc.c_tensor is not None and (desc.beta != 1.0 or graph.constant(step.storage("c_tensor"), row_of_c(desc)) is None):
        return False
    storage = step.outputs[0]
    return storage is not None and storage not in graph.outputs and all(map(_reads_parts, graph.readers(storage)))


def _reads_parts(reader: Step) -> bool:
    return reader.desc.traits.pointwise or reader.desc.traits.strided or windows_of(reader) is not None


def _are_alike(one: Step, other: Step) -> bool:
    """Whether two GEMMs of one storage see it alike, and do the same with it."""
    names = ("a_tensor", "trans_a", "trans_b", "alpha")
    return all(getattr(one.desc, name) == getattr(other.desc, name) for name in names)


def _joined(graph: StepGraph, products: list[Step]) -> tuple[Step, Step]:
    """The product with all constants, and the split of what it makes."""
    first = products[0]
    descs = [product.desc for product in products if isinstance(product.desc, ops.Gemm)]
    output, along = descs[0].tensor("output_tensor"), -1 if descs[0].trans_b is MatrixTransform.NONE else -2
    matrices = [product.desc.tensor("b_tensor") for product in products]
    sources = [product.storage("b_tensor") for product in products]
    pieces = tuple(desc.tensor("output_tensor") for desc in descs)
    width = sum(piece.sizes[-1] for piece in pieces)
    sizes = list(matrices[0].sizes)
    sizes[along] = width

    def new_weights() -> npt.NDArray[Any]:
        known = [graph.constant(source, matrix) for source, matrix in zip(sources, matrices, strict=True)]
        return np.concatenate([matrix for matrix in known if matrix is not None], axis=along)

    storages = {
        "a_tensor": first.storage("a_tensor"),
        "b_tensor": graph.derived(f"joined along {along}: {matrices}", sources, output.data_type, new_weights),
    }
    changes: dict[str, Any] = {"b_tensor": TensorDesc(output.data_type, tuple(sizes))}
    if any(desc.c_tensor is not None for desc in descs):
        rows = [row_of_c(desc) for desc in descs]
        biases = [product.storage("c_tensor") for product in products]

        def new_row() -> npt.NDArray[Any]:
            known = zip(map(graph.constant, biases, rows), pieces, strict=True)
            return np.concatenate([np.zeros(piece.sizes[-1]) if row is None else row for row, piece in known])

        storages["c_tensor"] = graph.derived(f"joined rows: {rows}", biases, output.data_type, new_row)
        repeated = (0,) * (output.dimension_count - 1)
        changes |= {"c_tensor": TensorDesc(output.data_type, (*output.sizes[:-1], width), (*repeated, 1)), "beta": 1.0}
    whole = TensorDesc(output.data_type, (*output.sizes[:-1], width))
    storages["output_tensor"] = Storage(whole.total_tensor_size_in_bytes)
    joined = Step.of(first.origin, descs[0].replace(output_tensor=whole, **changes), storages)
    split = ops.Split(input_tensor=whole, output_tensors=pieces, axis=output.dimension_count - 1)
    return joined, Step(first.origin, split, joined.outputs, tuple(product.outputs[0] for product in products))
