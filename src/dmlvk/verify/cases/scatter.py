"""Cases of ``ops.scatter``. All are exact. There are more updates than places that they may have, so that many meet, and one
index in four is out of range."""

from __future__ import annotations

from typing import Final

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.verify.cases.model import MOVED, Case, OperatorCases, any_bits, indices_around

_SOME: Final = (T.FLOAT64, T.FLOAT32, T.FLOAT16, T.UINT8)
"""A type of each size."""


def _case(
    name: str,
    inputs: dict[str, tuple[int, ...]],
    chosen: tuple[int, ...],
    attributes: dict[str, object],
    index_type: T,
    *,
    only: tuple[T, ...] = (),
    layouts: bool = True,
    quick: bool = False,
) -> Case:
    """``chosen`` are the sizes that indices are for."""
    return Case(
        f"{name}, {index_type.name}",
        inputs,
        attributes,
        data_types={"indices_tensor": index_type},
        domains={"": any_bits, "indices_tensor": indices_around(*chosen)},
        only=only,
        layouts=layouts,
        quick=quick,
    )


def _elements(
    name: str,
    sizes: tuple[int, ...],
    axis: int,
    length: int,
    index_type: T,
    *,
    only: tuple[T, ...] = (),
    layouts: bool = True,
    quick: bool = False,
) -> Case:
    own = (*sizes[:axis], length, *sizes[axis + 1 :])
    inputs = {"input_tensor": sizes, "indices_tensor": own, "updates_tensor": own}
    options = {"layouts": layouts, "quick": quick}
    return _case(name, inputs, (sizes[axis],), {"axis": axis}, index_type, only=only, **options)


_ELEMENTS: Final = (
    _elements("along the last dimension", (5, 7), 1, 13, T.INT64, quick=True),
    _elements("along the first dimension", (6, 3, 8), 0, 11, T.INT32, only=_SOME, quick=True),
    _elements("along a middle dimension", (2, 5, 1, 4), 1, 9, T.UINT64, only=_SOME),
    _elements("one along the dimension", (3, 17, 4), 1, 1, T.UINT32, only=_SOME),
    _elements("one dimension, few updates", (1031,), 0, 3, T.INT64, only=_SOME, layouts=False),
    _elements("one dimension, many updates", (257,), 0, 1031, T.UINT32, only=_SOME, layouts=False),
    _elements("a dimension of one element", (3, 1, 4), 1, 5, T.INT32, only=_SOME, layouts=False),
    _elements("eight dimensions", (2, 1, 3, 2, 1, 3, 2, 3), 5, 4, T.INT64, only=_SOME, layouts=False),
)


def _nd(
    name: str,
    sizes: tuple[int, ...],
    array: tuple[int, ...],
    length: int,
    counts: tuple[int, int],
    index_type: T,
    *,
    only: tuple[T, ...] = (),
    layouts: bool = True,
    quick: bool = False,
) -> Case:
    """An array of tuples of so many indices; ``counts`` are the dimensions that are meant of the input and the indices."""
    meant = sizes[len(sizes) - counts[0] :]
    own = (*array, length), (*array, *meant[length:])
    indices, updates = ((*(1,) * (len(sizes) - len(tensor)), *tensor) for tensor in own)
    inputs = {"input_tensor": sizes, "indices_tensor": indices, "updates_tensor": updates}
    attributes: dict[str, object] = dict(zip(("input_dimension_count", "indices_dimension_count"), counts, strict=True))
    options = {"layouts": layouts, "quick": quick}
    return _case(name, inputs, meant[:length], attributes, index_type, only=only, **options)


_ND: Final = (
    _nd("single indices choose rows of whole words", (7, 48), (19,), 1, (2, 2), T.INT64, quick=True),
    _nd("pairs choose elements", (1, 6, 7), (5, 9), 2, (2, 3), T.UINT64, only=_SOME, quick=True),
    _nd("pairs choose rows that straddle words", (3, 4, 37), (2, 11), 2, (3, 3), T.INT32, only=_SOME),
    _nd("blocks of two dimensions", (1, 5, 3, 8), (6,), 1, (3, 2), T.UINT32, only=_SOME),
    _nd("a lone tuple", (3, 4, 18), (), 2, (3, 1), T.INT64, only=_SOME),
    _nd("a lone block", (1, 5, 16), (1, 1), 1, (2, 3), T.INT32, only=_SOME, layouts=False),
    _nd("few of many rows", (1031, 3), (2,), 1, (2, 2), T.INT32, only=_SOME, layouts=False),
    _nd("long rows", (3, 1033), (5,), 1, (2, 2), T.UINT32, only=_SOME, layouts=False),
    _nd("rows of eight dimensions", (2, 1, 3, 2, 1, 5, 2, 3), (4, 2), 3, (8, 3), T.INT64, only=_SOME, layouts=False),
    _nd("a tuple of eight", (2, 1, 3, 2, 1, 2, 2, 3), (9, 4), 8, (8, 3), T.INT32, only=_SOME, layouts=False),
    _nd("one dimension", (7,), (), 1, (1, 1), T.UINT64, only=_SOME, layouts=False),
)

CASES: Final = (
    OperatorCases(ops.ScatterElements, MOVED, _ELEMENTS),
    OperatorCases(ops.ScatterNd, MOVED, _ND),
)
