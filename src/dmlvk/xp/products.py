"""Products of arrays, beside ``matmul``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlvk.engine.array_functions import common_sizes, reshaped
from dmlvk.engine.device_array import DeviceArray
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.xp.operands import numpys, one_axis, together


@numpys("tensordot")
def tensordot(x1: DeviceArray, x2: DeviceArray, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> DeviceArray:
    """The sums of the products over some axes of each array: so many last and first ones, or those that are named."""
    a, b = together("tensordot", (x1, x2))
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    first, second = (
        [one_axis("tensordot", axis, item.ndim) for axis in own] for item, own in zip((a, b), axes, strict=True)
    )
    rest_a, rest_b = ([at for at in range(item.ndim) if at not in own] for item, own in ((a, first), (b, second)))
    inner = [a.shape[at] for at in first]
    if inner != [b.shape[at] for at in second]:
        rule = "must be of axes with the same sizes in both arrays"
        raise InvalidArgumentError(rule, operator="tensordot", field="axes", value=axes)
    sizes = tuple(a.shape[at] for at in rest_a), tuple(b.shape[at] for at in rest_b)
    left = reshaped(a.transpose(*rest_a, *first) if a.ndim else a, (math.prod(sizes[0]), math.prod(inner)))
    right = reshaped(b.transpose(*second, *rest_b) if b.ndim else b, (math.prod(inner), math.prod(sizes[1])))
    return reshaped(left @ right, sizes[0] + sizes[1])


def vecdot(x1: DeviceArray, x2: DeviceArray, *, axis: int = -1) -> DeviceArray:
    """The sums of the products along an axis, counted from the end."""
    a, b = together("vecdot", (x1, x2))
    if not -min(a.ndim, b.ndim) <= axis < 0:
        rule = "must be a dimension of both arrays, counted from the end"
        raise InvalidArgumentError(rule, operator="vecdot", field="axis", value=axis)
    if a.shape[axis] != b.shape[axis]:
        raise InvalidArgumentError(
            "must be equal along the axis", operator="vecdot", field="shape", value=b.shape, expected=a.shape
        )
    sizes = common_sizes("vecdot", a.shape, b.shape)
    return (a * b).sum(len(sizes) + axis, dtype=a.dtype)
