"""Cases of ``ops.gather``. Every bit counts, and in all of them one index in four is out of range."""

from __future__ import annotations

from typing import Final

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.verify.cases.model import MOVED, Case, OperatorCases, any_bits, indices_around


def _case(
    name: str,
    sizes: tuple[int, ...],
    indices: tuple[int, ...],
    chosen: tuple[int, ...],
    attributes: dict[str, object],
    index_type: T,
    *,
    layouts: bool = True,
    quick: bool = False,
) -> Case:
    """``chosen`` are the input's dimensions that indices are for."""
    return Case(
        f"{name}, {index_type.name}",
        {"input_tensor": sizes, "indices_tensor": indices},
        attributes,
        data_types={"indices_tensor": index_type},
        domains={"": any_bits, "indices_tensor": indices_around(*(sizes[axis] for axis in chosen))},
        layouts=layouts,
        quick=quick,
    )


def _gather(
    name: str,
    sizes: tuple[int, ...],
    indices: tuple[int, ...],
    axis: int,
    index_dimensions: int,
    index_type: T,
    *,
    layouts: bool = True,
    quick: bool = False,
) -> Case:
    attributes: dict[str, object] = {"axis": axis, "index_dimensions": index_dimensions}
    return _case(name, sizes, indices, (axis,), attributes, index_type, layouts=layouts, quick=quick)


_GATHER: Final = (
    _gather("rows of whole words", (7, 48), (1, 11), 0, 1, T.INT64, quick=True),
    _gather("rows that straddle words", (1, 5, 37), (1, 3, 4), 1, 2, T.INT32),
    _gather("rows shorter than a word", (9, 3), (1, 23), 0, 1, T.UINT32, layouts=False),
    _gather("single elements along the last dimension", (1, 5, 17), (1, 3, 5), 2, 2, T.UINT64, quick=True),
    _gather("a middle dimension", (2, 6, 3, 5), (1, 1, 1, 4), 1, 1, T.INT32, layouts=False),
    _gather("a middle dimension by a matrix", (1, 4, 6, 16), (1, 1, 2, 3), 2, 2, T.UINT64),
    _gather("a single index", (3, 5, 7), (1, 1, 1), 1, 0, T.INT64),
    _gather("one dimension", (29,), (13,), 0, 1, T.INT64, layouts=False),
    _gather("a dimension of one element", (1, 1, 33), (1, 2, 3), 1, 2, T.INT32, layouts=False),
    _gather("eight dimensions", (1, 2, 3, 2, 1, 5, 2, 3), (1, 1, 1, 1, 1, 1, 2, 2), 3, 2, T.INT64, layouts=False),
    _gather("long rows", (3, 2057), (1, 5), 0, 1, T.UINT32, layouts=False),
    _gather("more rows than a workgroup has invocations", (11, 2), (1, 1031), 0, 1, T.INT32, layouts=False),
)


def _elements(
    name: str, sizes: tuple[int, ...], length: int, axis: int, index_type: T, *, layouts: bool = True, quick: bool = False
) -> Case:
    indices = (*sizes[:axis], length, *sizes[axis + 1 :])
    return _case(name, sizes, indices, (axis,), {"axis": axis}, index_type, layouts=layouts, quick=quick)


_ELEMENTS: Final = (
    _elements("along the last dimension", (5, 17), 29, 1, T.INT64, quick=True),
    _elements("along the first dimension", (7, 3, 16), 5, 0, T.INT32, quick=True),
    _elements("along a middle dimension", (2, 11, 1, 5), 3, 1, T.UINT64),
    _elements("one dimension", (37,), 1, 0, T.UINT32, layouts=False),
    _elements("a dimension of one element", (3, 1, 4), 7, 1, T.INT32, layouts=False),
    _elements("eight dimensions", (2, 1, 3, 2, 1, 5, 2, 3), 4, 5, T.INT64, layouts=False),
    _elements("many", (3, 1031), 1033, 1, T.INT32, layouts=False),
)


def _nd(
    name: str,
    sizes: tuple[int, ...],
    indices: tuple[int, ...],
    counts: tuple[int, int, int],
    index_type: T,
    *,
    layouts: bool = True,
    quick: bool = False,
) -> Case:
    """``counts``: the dimensions that are meant of the input and of the indices, and those of the batches."""
    first = len(sizes) - counts[0] + counts[2]
    names = ("input_dimension_count", "indices_dimension_count", "batch_dimension_count")
    attributes: dict[str, object] = dict(zip(names, counts, strict=True))
    chosen = tuple(range(first, first + indices[-1]))
    return _case(name, sizes, indices, chosen, attributes, index_type, layouts=layouts, quick=quick)


_ND: Final = (
    _nd("pairs choose rows", (4, 5, 36), (2, 7, 2), (3, 3, 0), T.INT64, quick=True),
    _nd("pairs choose elements", (1, 6, 7), (1, 29, 2), (2, 2, 0), T.UINT64, quick=True),
    _nd("pairs in batches", (3, 5, 7, 6), (3, 2, 4, 2), (4, 4, 1), T.INT32),
    _nd("two batch dimensions, single indices", (2, 3, 5, 19), (2, 3, 4, 1), (4, 4, 2), T.UINT32),
    _nd(
        "triples of eight dimensions", (2, 1, 3, 2, 1, 5, 2, 3), (1, 1, 1, 1, 1, 1, 4, 3), (8, 2, 0), T.INT64, layouts=False
    ),
    _nd("a tuple of eight", (2, 1, 3, 2, 1, 5, 2, 3), (1, 1, 1, 1, 1, 1, 6, 8), (8, 2, 0), T.INT32, layouts=False),
    _nd("a lone tuple", (3, 4, 18), (1, 1, 2), (3, 1, 0), T.INT64, layouts=False),
    _nd("a block chosen", (5, 3, 8), (1, 6, 1), (3, 2, 0), T.INT32, layouts=False),
    _nd("one dimension", (7,), (1,), (1, 1, 0), T.UINT64, layouts=False),
)


def _unbatched(case: Case) -> Case:
    """A case of GatherNd1 as one of GatherNd."""
    names = ("input_dimension_count", "indices_dimension_count")
    attributes = {name: case.attributes[name] for name in names}
    return Case(
        case.name, case.inputs, attributes, data_types=case.data_types, domains=case.domains, layouts=False, quick=True
    )


CASES: Final = (
    OperatorCases(ops.Gather, MOVED, _GATHER),
    OperatorCases(ops.GatherElements, MOVED, _ELEMENTS),
    OperatorCases(ops.GatherNd, MOVED, tuple(map(_unbatched, _ND[:2])), every_rule=False),
    OperatorCases(ops.GatherNd1, MOVED, _ND),
)
