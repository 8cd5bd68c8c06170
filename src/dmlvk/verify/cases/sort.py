"""Cases of ``ops.sort``."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.enums import AxisDirection, TensorDataType
from dmlvk.spec.ops.sort import TopK, TopK1
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, special, uniform

_UINT32, _UINT64 = TensorDataType.UINT32, TensorDataType.UINT64
_INCREASING = AxisDirection.INCREASING


def _few(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Three values, so that the K-th is one of many equal ones."""
    values = np.array([1, 2, 3], NUMPY_TYPES[data_type])
    return rng.choice(values, sizes)


def _case(
    name: str,
    sizes: tuple[int, ...],
    axis: int,
    k: int,
    *,
    increasing: bool = False,
    indices: TensorDataType = _UINT32,
    domain: Domain | None = None,
    layouts: bool = True,
    only: tuple[TensorDataType, ...] = (),
    quick: bool = False,
) -> Case:
    """Cases about values, with a domain of their own, are not crossed with layouts."""
    attributes: dict[str, object] = {"axis": axis, "k": k}
    if increasing:
        attributes["axis_direction"] = _INCREASING
    return Case(
        name,
        {"input_tensor": sizes},
        attributes,
        data_types={"output_index_tensor": indices},
        domains={"": domain} if domain else {},
        layouts=layouts and not domain,
        only=only,
        quick=quick,
    )


_CASES = (
    _case("last axis", (5, 37), 1, 4, layouts=False, quick=True),
    _case("whole words, the smallest, 64-bit indices", (6, 64), 1, 7, increasing=True, indices=_UINT64, quick=True),
    _case("channels of an image", (2, 21, 5, 7), 1, 3),
    _case("everything", (3, 100), 1, 100, increasing=True, layouts=False),
    _case("one of one", (3, 1, 4), 1, 1, layouts=False),
    _case("eight dimensions", (2, 1, 3, 2, 1, 5, 3, 2), 5, 2, layouts=False),
    _case("special values, largest", (2, 61), 1, 61, domain=special),
    _case("special values, smallest", (2, 61), 1, 61, increasing=True, domain=special),
    _case("many equal ones", (2, 64), 1, 30, domain=_few),
    _case("a long row", (2, 5003), 1, 9, layouts=False),
    _case("a long row of words, the smallest", (2, 4608), 1, 9, increasing=True, indices=_UINT64, layouts=False),
    _case("a long column", (4500, 3), 0, 5, layouts=False),
    _case("a long row of few values", (1, 4800), 1, 6, domain=_few),
    _case("a long row of few values, many wanted", (1, 4800), 1, 400, domain=_few),
    _case("a long row of close values", (1, 8192), 1, 12, domain=uniform(1.0, 1.5)),
    _case("a whole long row sorted", (2, 1500), 1, 1500, layouts=False),
)

CASES = (
    OperatorCases(TopK1, {}, _CASES),
    OperatorCases(
        TopK,
        {},
        (
            _case("last axis", (5, 37), 1, 4, quick=True),
            _case("first axis", (9, 3, 2), 0, 9, indices=_UINT64, layouts=False),
        ),
        every_rule=False,
    ),
)
