"""The largest or smallest elements."""

from __future__ import annotations

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection
from dmlvk.spec.schema import FLOATS, NUMERIC


@converts("TopK", 1, types=FLOATS)
def top_k_of_attribute(node: Conversion) -> tuple[Value, Value]:
    return _top_k(node, int(node.attribute("k", 0)))


@converts("TopK", 10, types=FLOATS, host_inputs=(1,))
@converts("TopK", 11, 24, types=NUMERIC, host_inputs=(1,))
def top_k(node: Conversion) -> tuple[Value, Value]:
    """Sorted whether the model asks for it or not; equal elements in the order of their positions."""
    return _top_k(node, node.size(1))


def _top_k(node: Conversion, k: int) -> tuple[Value, Value]:
    x = node[0]
    axis = node.axis(node.attribute("axis", -1), x.rank)
    if not 0 <= k <= x.sizes[axis]:
        raise node.invalid(f"k must be from 0 to the {x.sizes[axis]} elements along axis {axis}", k)
    sizes = (*x.sizes[:axis], k, *x.sizes[axis + 1 :])
    values, indices = node.new(sizes, x.dtype), node.new(sizes, np.dtype(np.int64))
    node.launch(
        ops.TopK1,
        x,
        output_value_tensor=values,
        output_index_tensor=indices.reinterpret(np.dtype(np.uint64)),
        axis=axis,
        k=k,
        axis_direction=AxisDirection.DECREASING if node.attribute("largest", 1) else AxisDirection.INCREASING,
    )
    return values, indices
