"""Orders, and the largest or least elements."""

from __future__ import annotations

from typing import Final

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.registry import converter

_INDEX: Final = np.dtype(np.int64)


@converter("aten.sort.default")
def sort(node: Conversion, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return ordered(node, x, dim, None, descending)


@converter("aten.sort.stable")
def sort_stable(
    node: Conversion, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return ordered(node, x, dim, None, descending)


@converter("aten.topk.default")
def topk(
    node: Conversion, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    return ordered(node, x, dim, k, largest)


def ordered(node: Conversion, x: Value, dim: int, k: int | None, decreasing: bool) -> tuple[Value, Value]:
    """The first elements in an order, all where ``k`` is None, and their places. Equal ones stay in their order."""
    line = x if x.rank else node.reshape(x, (1,))
    axis = dim % line.rank
    count = line.sizes[axis] if k is None else k
    sizes = (*line.sizes[:axis], count, *line.sizes[axis + 1 :])
    values, places = node.new(sizes, line.dtype), node.new(sizes, _INDEX)
    node.launch(
        ops.TopK1,
        line,
        output_value_tensor=values,
        output_index_tensor=places.reinterpret(np.dtype(np.uint64)),
        axis=axis,
        k=count,
        axis_direction=AxisDirection.DECREASING if decreasing else AxisDirection.INCREASING,
    )
    own = node.results[0][1]
    return node.reshape(values, own), node.reshape(places, own)
