"""Gates of products that do not end with them: a chain of operators behind the product."""

from __future__ import annotations

import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Launch, Range
from dmlvk.spec import ops
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.chain import FIRST_RESULT, NONE, PointwiseChain
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides

_TO_SIGMOID = 2 * math.sqrt(2 / math.pi)
_GATES: dict[Gate, tuple[tuple[OperatorDesc, ...], tuple[int, ...]]] = {
    Gate.SILU: ((ops.ActivationSwish(sigmoid_input_scale=1.0),), (0, NONE, NONE)),
    Gate.GELU: (
        (
            ops.ElementWiseMultiply(),
            ops.ActivationLinear(alpha=_TO_SIGMOID * 0.044715, beta=_TO_SIGMOID),
            ops.ElementWiseMultiply(),
            ops.ActivationSigmoid(),
            ops.ElementWiseMultiply(),
        ),
        tuple(
            operand if operand in (0, NONE) else FIRST_RESULT + operand - 1
            for operand in (0, 0, NONE, 1, NONE, NONE, 0, 2, NONE, 3, NONE, NONE, 0, 4, NONE)
        ),
    ),
}
"""The operations of a chain that each gate is, and their operands, as ``PointwiseChain`` counts them."""


def gate_launches(
    gate: Gate, y: TensorDesc, product: Range, output: Range, caps: Capabilities, taken: int
) -> tuple[Launch, ...]:
    """The gate of a product's first columns times the others.

    Args:
        gate: The gate.
        y: The output, {..., columns}.
        product: Where the product lies, packed: {..., 2 * columns}.
        output: Where the output lies.
        caps: The device.
        taken: The bytes of temporary memory that are taken.
    """
    operations, operands = _GATES[gate]
    columns, nbytes = y.sizes[-1], element_bits(y.data_type) // 8
    half = TensorDesc(y.data_type, y.sizes, packed_strides((*y.sizes[:-1], 2 * columns)))
    chain = PointwiseChain(
        input_tensors=(half, half),
        output_tensor=TensorDesc(y.data_type, y.sizes, y.effective_strides),
        operator_descs=(*operations, ops.ElementWiseMultiply()),
        operands=(*operands, FIRST_RESULT + len(operations) - 1, 1, NONE),
        numbers=(0.0,) * 2 * (len(operations) + 1),
    )
    halves = tuple(
        product._replace(offset=product.offset + first * nbytes, nbytes=half.total_tensor_size_in_bytes)
        for first in (0, columns)
    )
    return placed(chosen_plan(chain, caps), inputs=halves, outputs=(output,), temporary=taken)
