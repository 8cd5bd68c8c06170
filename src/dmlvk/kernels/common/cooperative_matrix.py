"""Tells which devices multiply by cooperative matrices, and on which that pays, as the rules of several families ask."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix

_FEATURES = frozenset(
    {"cooperative_matrix", "vulkan_memory_model", "float16", "int16", "storage16", "subgroup_size_control", "full_subgroups"}
)

_GAINS = {"float16": 1.5, "int8": 2.8}
"""From how many multiply-adds of matrices on, for one of float32, tiles of matrices are faster than others. H200: they reach
half of what matrices can do, others 0.78 of what float32 can do and, of packed int8, 1.4 times that."""


def cooperative_matrix(caps: Capabilities, operands: str, sums: str) -> CooperativeMatrix | None:
    """The largest shape of these component types that divides every tile: 8 or 16 rows and columns, at most 32 of the depth.
    None where the device has none, or lacks something else that the kernels need: a feature, workgroups of 4 subgroups."""
    features = _FEATURES | {"bfloat16"} if operands == "bfloat16" else _FEATURES
    if not caps.features.issuperset(features) or caps.workgroup_invocations < 4 * caps.subgroup_size:
        return None
    shapes = [
        shape
        for shape in caps.cooperative_matrices
        if (shape.operands, shape.sums) == (operands, sums)
        and shape.m in (8, 16)
        and shape.n in (8, 16)
        and shape.k in (8, 16, 32)
    ]
    return max(shapes, key=lambda shape: shape.m * shape.n * shape.k, default=None)


def matrices_pay(caps: Capabilities, operands: str) -> bool:
    """Whether tiles of matrices of float16 or int8 are faster than others: never on a CPU, and on a GPU unless their rate is
    known to be too low, as where the units of float32 multiply them."""
    model = caps.model
    rate = model.half_products_per_microsecond if operands == "float16" else model.byte_products_per_microsecond
    return not caps.is_cpu and (rate is None or rate >= _GAINS[operands] * model.products_per_microsecond)
