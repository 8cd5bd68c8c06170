"""Tells which devices multiply by cooperative matrices, as the rules of several families ask."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix

_FEATURES = frozenset(
    {"cooperative_matrix", "vulkan_memory_model", "float16", "int16", "storage16", "subgroup_size_control", "full_subgroups"}
)


def cooperative_matrix(caps: Capabilities, operands: str, sums: str) -> CooperativeMatrix | None:
    """The largest shape of these component types that divides every tile: 8 or 16 rows and columns, at most 32 of the depth.
    None where the device has none, or lacks something else that the kernels need: a feature, workgroups of 4 subgroups."""
    if not caps.features.issuperset(_FEATURES) or caps.workgroup_invocations < 4 * caps.subgroup_size:
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
