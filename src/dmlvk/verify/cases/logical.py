"""Cases of logic, comparisons, predicates and bits. All of it is exact."""

from __future__ import annotations

from typing import Final

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import IsInfinityMode
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.elementwise import QUICK, SHAPES, input_names
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, normal, special

THOROUGH: Final = (ops.ElementWiseLogicalAnd, ops.ElementWiseLogicalGreaterThan, ops.ElementWiseBitCount)
"""The operators that run in every layout: one of arithmetic in a type, and of either kernel one that changes the type. The
others differ from them in one line."""


def shift_operands(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Bits to shift and counts below, at and far above the type's width, whichever operand they become."""
    kind = NUMPY_TYPES[data_type]
    width = 8 * kind.itemsize
    values = normal(rng, sizes, data_type)
    counts = rng.choice(np.array([0, 1, 7, width - 1, width, width + 1, np.iinfo(kind).max], kind), sizes)
    return np.where(rng.random(sizes) < 0.5, values, counts)


def truths(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """0 as often as numbers whose only bit is anywhere."""
    kind = NUMPY_TYPES[data_type]
    bits: Array = kind.type(1) << rng.integers(0, 8 * kind.itemsize, sizes).astype(kind)
    return np.where(rng.random(sizes) < 0.5, bits, kind.type(0))


def exact(
    operator: type[OperatorDesc], domain: Domain, *other_domains: Domain, outputs: tuple[T, ...] = ()
) -> OperatorCases:
    """Values of the domain, with the first output type in every layout if the operator is one of the thorough; the other
    output types, and further domains."""
    first, *others = outputs or (None,)
    made = [_case(operator, SHAPES[QUICK], domain, first, layouts=operator in THOROUGH, quick=True)]
    made += [_case(operator, (3, 7, 29), domain, output) for output in others]
    made += [_case(operator, (3, 7, 29), other, first) for other in other_domains]
    return OperatorCases(operator, {}, tuple(made), every_rule=operator in THOROUGH)


def _case(
    operator: type[OperatorDesc],
    sizes: tuple[int, ...],
    domain: Domain,
    output: T | None,
    *,
    layouts: bool = False,
    quick: bool = False,
) -> Case:
    return Case(
        domain.__name__ if output is None else f"{domain.__name__} to {output.name}",
        dict.fromkeys(input_names(operator), sizes),
        data_types={} if output is None else {"output_tensor": output},
        domains={"": domain},
        layouts=layouts,
        quick=quick,
    )


TRUTH: Final = (T.UINT8, T.UINT32)

CASES: Final = (
    exact(ops.ElementWiseLogicalAnd, truths),
    exact(ops.ElementWiseLogicalOr, truths),
    exact(ops.ElementWiseLogicalXor, truths),
    exact(ops.ElementWiseLogicalNot, truths),
    exact(ops.ElementWiseLogicalEquals, special, outputs=TRUTH),
    exact(ops.ElementWiseLogicalGreaterThan, special, normal, outputs=TRUTH),
    exact(ops.ElementWiseLogicalLessThan, special, outputs=TRUTH),
    exact(ops.ElementWiseLogicalGreaterThanOrEqual, special, outputs=TRUTH),
    exact(ops.ElementWiseLogicalLessThanOrEqual, special, outputs=TRUTH),
    exact(ops.ElementWiseIsNan, special, outputs=TRUTH),
    OperatorCases(
        ops.ElementWiseIsInfinity,
        {},
        tuple(
            Case(
                mode.name,
                {"input_tensor": (3, 67)},
                {"infinity_mode": mode},
                data_types={"output_tensor": T.UINT8},
                domains={"": special},
                layouts=mode is IsInfinityMode.NEGATIVE,
                quick=mode is IsInfinityMode.POSITIVE,
            )
            for mode in IsInfinityMode
        ),
    ),
    exact(ops.ElementWiseBitAnd, special, normal),
    exact(ops.ElementWiseBitOr, special),
    exact(ops.ElementWiseBitXor, special),
    exact(ops.ElementWiseBitNot, special),
    exact(ops.ElementWiseBitShiftLeft, shift_operands),
    exact(ops.ElementWiseBitShiftRight, shift_operands),
    exact(ops.ElementWiseBitCount, special, normal, outputs=TRUTH),
)
