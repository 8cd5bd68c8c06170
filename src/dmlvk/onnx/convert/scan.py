"""Running sums and products."""

from __future__ import annotations

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection
from dmlvk.spec.schema import OperatorDesc

_TYPES = ops.CumulativeSummation.fields[0].data_types


@converts("CumSum", 11, 14, types=_TYPES, doubles=True, host_inputs=(1,))
def cumulative_sum(node: Conversion) -> Value:
    return _accumulated(node, ops.CumulativeSummation, "has_exclusive_sum")


@converts("CumProd", 26, types=_TYPES, doubles=True, host_inputs=(1,))
def cumulative_product(node: Conversion) -> Value:
    return _accumulated(node, ops.CumulativeProduct, "has_exclusive_product")


def _accumulated(node: Conversion, row: type[OperatorDesc], exclusive: str) -> Value:
    x = node[0]
    direction = AxisDirection.DECREASING if node.attribute("reverse", 0) else AxisDirection.INCREASING
    return node.launch(
        row,
        x,
        axis=node.axis(int(node.known(1).item()), x.rank),
        axis_direction=direction,
        **{exclusive: bool(node.attribute("exclusive", 0))},
    )
