"""Recognising arithmetic whatever way round it is written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

_MOST_FACTORS: Final = 16
"""No pattern has as many: a product of more is not followed to its end, so that each step is looked at a few times."""


class Operand(NamedTuple):
    """A storage as a step sees it."""

    storage: Storage | None
    tensor: TensorDesc


@dataclass(frozen=True)
class Factors:
    """A number times operands.

    Attributes:
        number: The constants in it, multiplied.
        operands: The others.
    """

    number: float
    operands: tuple[Operand, ...]


def operand(step: Step, field: str) -> Operand:
    """The operand in a field."""
    return Operand(step.storage(field), step.desc.tensor(field))


def computed_by(graph: StepGraph, part: Operand) -> Step | None:
    """The step that computes an operand, as just this tensor; None for another view of what it computes, and for FLOAT64,
    whose numbers are not to be taken for others that are near."""
    step = graph.writer(part.storage)
    if step is None or part.tensor.data_type is TensorDataType.FLOAT64:
        return None
    if len(step.outputs) != 1 or step.desc.output_slots()[0].tensor != part.tensor:
        return None
    return step


def product(graph: StepGraph, part: Operand) -> Factors:
    """The product that computes an operand: the nearest few factors, through multiplications and divisions by numbers."""
    number, operands = 1.0, []
    waiting = [part]
    looked_at = 0
    while waiting:
        own = waiting.pop()
        constant = graph.number(*own)
        step = computed_by(graph, own) if constant is None and looked_at < _MOST_FACTORS else None
        looked_at += 1
        if constant is not None:
            number *= constant
        elif step is not None and isinstance(step.desc, ops.ElementWiseMultiply):
            waiting += (operand(step, "b_tensor"), operand(step, "a_tensor"))
        elif (
            step is not None
            and isinstance(step.desc, ops.ElementWiseDivide)
            and (divisor := graph.number(*operand(step, "b_tensor")))
        ):
            number /= divisor
            waiting.append(operand(step, "a_tensor"))
        else:
            operands.append(own)
    return Factors(number, tuple(operands))


def plus_number(graph: StepGraph, part: Operand) -> tuple[Operand, float] | None:
    """An operand that is another plus a number, as those two."""
    step = computed_by(graph, part)
    if step is None or not isinstance(step.desc, ops.ElementWiseAdd):
        return None
    for own, other in pairs(step):
        number = graph.number(*other)
        if number is not None:
            return own, number
    return None


def pairs(step: Step) -> Iterator[tuple[Operand, Operand]]:
    """Both operands of a commutative step, either way round."""
    a, b = operand(step, "a_tensor"), operand(step, "b_tensor")
    yield a, b
    yield b, a


def is_near(number: float, wanted: float) -> bool:
    """Whether a constant of a model means a number: float16 has 11 bits, and exporters print six digits."""
    return math.isclose(number, wanted, rel_tol=1e-3)


def row_of_c(desc: ops.Gemm) -> TensorDesc | None:
    """The row that a GEMM's C repeats; None where there is no C, or it has several rows."""
    c = desc.c_tensor
    if c is None or any(c.effective_strides[:-1]):
        return None
    return TensorDesc(c.data_type, c.sizes[-1:], c.effective_strides[-1:])
