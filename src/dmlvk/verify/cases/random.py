"""Cases of ``ops.random``. Every type is UINT32."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.random import RandomGenerator
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases

_ALL_BITS = 0xFFFFFFFF


def counting(*counter: int) -> Domain:
    """A state whose counter starts with these words, the rest of it and the key at random."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        state = rng.integers(0, _ALL_BITS, sizes, dtype=NUMPY_TYPES[data_type], endpoint=True)
        state[..., : len(counter)] = counter
        return state

    return domain


def _case(
    name: str,
    sizes: tuple[int, ...],
    domain: Domain,
    *,
    state: tuple[int, ...] = (1, 1, 1, 6),
    output_state: bool = True,
    layouts: bool = False,
    quick: bool = False,
) -> Case:
    outputs = {"output_tensor": sizes, **({"output_state_tensor": state} if output_state else {})}
    return Case(name, {"input_state_tensor": state}, outputs=outputs, domains={"": domain}, layouts=layouts, quick=quick)


CASES = (
    OperatorCases(
        RandomGenerator,
        {},
        (
            _case("a tail after whole blocks", (3, 5, 7, 11), counting(), layouts=True, quick=True),
            _case("rows of whole blocks", (5, 3, 12), counting(), state=(6,), output_state=False, layouts=True, quick=True),
            _case("one element", (1,), counting(0, 0, 0, 0), state=(1, 6)),
            _case("eight dimensions", (2, 1, 3, 2, 1, 5, 3, 2), counting(), state=(1,) * 7 + (6,), layouts=True),
            _case("a carry into the second word", (64,), counting(_ALL_BITS - 5)),
            _case("a carry through every word", (1, 63), counting(*(_ALL_BITS,) * 4)),
            _case("more than a workgroup", (2, 4099), counting(_ALL_BITS - 700, _ALL_BITS)),
        ),
        data_types=(TensorDataType.UINT32,),
    ),
)
