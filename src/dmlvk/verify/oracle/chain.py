"""Chains of pointwise operators in float64: the operators' own oracles, one after the other, nothing rounded between."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops import Cast
from dmlvk.spec.ops.chain import FIRST_NUMBER, FIRST_RESULT, NONE, MultiTensorChain, PointwiseChain
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.verify.oracle import Scaled, oracle
from dmlvk.verify.oracle.activation import FORMULAS, activated
from dmlvk.verify.oracle.number_format import format_cast


def pointwise_chain(desc: PointwiseChain, *inputs: NDArray[Any]) -> NDArray[Any]:
    """``PointwiseChain``, whose operators have no tensors."""
    known: dict[int, Any] = {index: values.astype(np.float64) for index, values in enumerate(inputs)}
    for index, operator in enumerate(desc.operator_descs):
        for place in range(2):
            known[FIRST_NUMBER + place] = np.float64(np.float32(desc.numbers[2 * index + place]))
        given = [known[operand] for operand in desc.operands[3 * index : 3 * index + 3] if operand != NONE]
        function = oracle(type(operator))
        if isinstance(operator, Cast):  # of truth values and INT32, to FLOAT32
            result: Any = np.asarray(given[0]).astype(np.float32).astype(np.float64)
        elif type(operator) in FORMULAS:
            result = activated(operator, *given)
        else:
            assert function is not None, f"{type(operator).__name__} has no oracle"
            result = function(operator, *given)
        known[FIRST_RESULT + index] = result.value if isinstance(result, Scaled) else result
    last: NDArray[Any] = np.asarray(known[FIRST_RESULT + len(desc.operator_descs) - 1])
    if desc.tensor("output_tensor").data_type is TensorDataType.UINT16:
        return format_cast(FormatCast(output_tensor=desc.output_tensor, format=NumberFormat.BFLOAT16), last)
    return last


def multi_tensor_chain(desc: MultiTensorChain, *inputs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """``MultiTensorChain``: each output by itself."""
    each = len(inputs) // len(desc.output_tensors)
    return tuple(
        pointwise_chain(chain, *inputs[index * each : (index + 1) * each]) for index, chain in enumerate(desc.chains())
    )
