"""Chains of pointwise operators as one: contiguous, with numbers a channel, with a residual. Rivals run them one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.chain import FIRST_NUMBER, FIRST_RESULT, NONE, MultiTensorChain, PointwiseChain
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits
from dmlvk_bench.problems.model import FLOAT32, FLOATS, Problem, nbytes
from dmlvk_bench.problems.scale import Scale

Operation = tuple[OperatorDesc, tuple[int, ...], float]
"""An operator without tensors, its operands and its number."""
_LAST = -1
"""The operand that stands for the result of the operation before."""


def _chain(
    name: str, tensors: Sequence[TensorDesc], operations: Sequence[Operation], rival: Callable[..., Any], target: float
) -> Problem:
    *inputs, output = tensors
    operands: list[int] = []
    for index, (_, own, _) in enumerate(operations):
        named = [FIRST_RESULT + index - 1 if operand == _LAST else operand for operand in own]
        operands += (*named, NONE, NONE)[:3]
    desc = PointwiseChain(
        input_tensors=tuple(inputs),
        output_tensor=output,
        operator_descs=tuple(operation for operation, _, _ in operations),
        operands=tuple(operands),
        numbers=tuple(value for _, _, number in operations for value in (number, 0.0)),
    )
    sizes = "x".join(map(str, output.sizes))
    tolerance = 1e-5 if output.data_type is FLOAT32 else 1e-3
    name = f"{name} {output.data_type.name} {sizes}"
    return Problem(name, desc, rival, target, nbytes(*tensors), copy_target=0.95, tolerance=tolerance)


def _of_type(scale: Scale, data_type: TensorDataType) -> list[Problem]:
    count = 2**33 // element_bits(data_type)
    line = TensorDesc(data_type, scale.fit((count,), 0))
    quarter = TensorDesc(data_type, scale.fit((count // 4,), 0))
    image = TensorDesc(data_type, scale.fit((count // (256 * 3136), 256, 3136), 0, 1))
    channels = TensorDesc(data_type, image.sizes, (0, 1, 0))
    rows = TensorDesc(data_type, scale.fit((count // 1024, 1024), 0))
    row = TensorDesc(data_type, rows.sizes, (0, 1))
    add, multiply, subtract = dmlvk.ElementWiseAdd(), dmlvk.ElementWiseMultiply(), dmlvk.ElementWiseSubtract()
    relu, swish = dmlvk.ActivationRelu(), dmlvk.ActivationHardSwish(alpha=1 / 6, beta=0.5)
    number = FIRST_NUMBER
    return [
        _chain(
            "a x + b and relu",
            (line, line),
            ((multiply, (0, number), 1.25), (add, (_LAST, number), 0.5), (relu, (_LAST,), 0)),
            lambda torch, x: torch.relu(x * 1.25 + 0.5),
            2.8,
        ),
        _chain(
            "eight sums and products",
            (line, line),
            [((add, multiply)[index % 2], (_LAST if index else 0, number), 0.5 + index / 8) for index in range(8)],
            lambda torch, x: ((((x + 0.5) * 0.625 + 0.75) * 0.875 + 1.0) * 1.125 + 1.25) * 1.375,
            7.0,
        ),
        _chain(
            "four inputs, (x a + b) c - x",
            (quarter,) * 5,
            ((multiply, (0, 1), 0), (add, (_LAST, 2), 0), (multiply, (_LAST, 3), 0), (subtract, (_LAST, 0), 0)),
            lambda torch, x, a, b, c: (x * a + b) * c - x,
            2.2,
        ),
        _chain(
            "affine of channels and hard swish",
            (image, channels, channels, image),
            ((multiply, (0, 1), 0), (add, (_LAST, 2), 0), (swish, (_LAST,), 0)),
            lambda torch, x, a, b: torch.nn.functional.hardswish(x * a + b),
            2.8,
        ),
        _chain(
            "affine of columns and a residual",
            (rows, row, row, rows, rows),
            ((multiply, (0, 1), 0), (add, (_LAST, 2), 0), (add, (_LAST, 3), 0)),
            lambda torch, x, a, b, r: x * a + b + r,
            2.2,
        ),
    ]


def _of_lists(scale: Scale, data_type: TensorDataType, elements: int) -> Problem:
    """What an optimiser does to the averages of seven parameters, in one launch: m + (g - m) / 16 w."""
    lines = [TensorDesc(data_type, scale.fit((elements + 64 * index,), 0)) for index in range(7)]
    number = FIRST_NUMBER
    desc = MultiTensorChain(
        input_tensors=tuple(line for line in lines for _ in range(3)),
        output_tensors=tuple(lines),
        operator_descs=(
            dmlvk.ElementWiseSubtract(),
            dmlvk.ElementWiseMultiply(),
            dmlvk.ElementWiseMultiply(),
            dmlvk.ElementWiseAdd(),
        ),
        operands=(1, 0, NONE, FIRST_RESULT, 2, NONE, FIRST_RESULT + 1, number, NONE, 0, FIRST_RESULT + 2, NONE),
        numbers=(0.0, 0.0, 0.0, 0.0, 1 / 16, 0.0, 0.0, 0.0),
    )

    def rival(torch: Any, *inputs: Any) -> Any:
        averages, gradients, weights = (list(inputs[index::3]) for index in range(3))
        differences = torch._foreach_mul(torch._foreach_sub(gradients, averages), weights)
        return torch._foreach_add(averages, torch._foreach_mul(differences, 1 / 16))[0]

    moved = sum(4 * nbytes(line) for line in lines)
    tolerance = 1e-5 if data_type is FLOAT32 else 1e-3
    return Problem(
        f"seven tensors' averages {data_type.name} {lines[0].sizes[0]}",
        desc,
        rival,
        2.0,
        moved,
        copy_target=0.9 if elements > 2**20 else 0.0,
        tolerance=tolerance,
    )


def problems(scale: Scale) -> list[Problem]:
    """The problems of this family."""
    chains = [problem for data_type in FLOATS for problem in _of_type(scale, data_type)]
    return chains + [_of_lists(scale, data_type, elements) for data_type in FLOATS for elements in (2**25, 2**12)]
