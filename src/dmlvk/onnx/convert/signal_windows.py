"""Windows of signal processing: sums of cosines over a counter."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import ScaleBias

_COEFFICIENTS = {"HannWindow": (0.5, 0.5), "HammingWindow": (25 / 46, 21 / 46), "BlackmanWindow": (0.42, 0.5, 0.08)}
"""The a of a[0] - a[1] cos(x) + a[2] cos(2 x)."""


def _output_type(node: NodeFacts) -> np.dtype[Any]:
    return node.element_type("output_datatype", np.dtype(np.float32))


def _register(op_type: str) -> None:
    @converts(op_type, 17, types=(TensorDataType.INT64, TensorDataType.INT32), host_inputs=(0,), check=_output_type)
    def window(node: Conversion) -> Value:
        """x goes from 0 towards 2 pi, and where the window is not ``periodic`` all the way."""
        size = node.known(0).item()
        if size < 1:
            raise node.invalid("a window must have at least 1 element", size)
        steps = size if node.attribute("periodic", 1) else max(size - 1, 1)
        angles = node.launch(
            ops.FillValueSequence,
            output_tensor=node.new((size,), np.dtype(np.float32)),
            value_data_type=TensorDataType.FLOAT32,
            value_start=0.0,
            value_delta=2 * math.pi / steps,
        )
        return cast_to(node, _sum_of_cosines(node, angles, *_COEFFICIENTS[op_type]), _output_type(node))


def _sum_of_cosines(node: Conversion, angles: Value, constant: float, *coefficients: float) -> Value:
    parts = []
    for index, coefficient in enumerate(coefficients):
        cosines = node.elementwise(ops.ElementWiseCos, angles, scale_bias=ScaleBias(index + 1, 0))
        scaled = ScaleBias(coefficient * (-1) ** (index + 1), 0 if index else constant)
        parts.append(node.elementwise(ops.ElementWiseIdentity, cosines, scale_bias=scaled))
    return functools.reduce(lambda a, b: node.elementwise(ops.ElementWiseAdd, a, b), parts)


for _op_type in _COEFFICIENTS:
    _register(_op_type)
