"""Elements and rows that replace others at random places, none of them twice: a rival without an order of updates gives
the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import distinct_indices
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

_INDICES = TensorDataType.INT64


def _problem(name: str, desc: OperatorDesc, rival: Callable[..., Any], axis: int) -> Problem:
    """``axis``: that of the indices along which none comes twice."""
    indices, updates, output = (desc.tensor(f"{field}_tensor") for field in ("indices", "updates", "output"))
    sizes = "x".join(map(str, output.sizes))
    return Problem(
        f"{name}, {updates.element_count} into {sizes} {output.data_type.name}",
        desc,
        rival,
        0.0,
        2 * nbytes(output) + nbytes(indices),  # an element comes from the input or from the updates
        domains={"indices_tensor": distinct_indices(output.sizes[axis], axis)},
        tolerance=0.0,
    )


def _elements(scale: Scale, data_type: TensorDataType, sizes: Sizes, count: int) -> Problem:
    """Along the last dimension."""
    axis = len(sizes) - 1
    share = sizes[axis] // count
    sizes = scale.fit(sizes, *range(len(sizes)))
    count = sizes[axis] // share
    own = (*sizes[:axis], count)
    desc = dmlvk.ScatterElements(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(_INDICES, own),
        updates_tensor=TensorDesc(data_type, own),
        output_tensor=TensorDesc(data_type, sizes),
        axis=axis,
    )

    def rival(torch: Any, x: Any, indices: Any, updates: Any) -> Any:
        return torch.scatter(x, axis, indices, updates)

    return _problem("scatter elements", desc, rival, axis)


def _rows(scale: Scale, data_type: TensorDataType, sizes: Sizes, count: int) -> Problem:
    share = sizes[0] // count
    sizes = scale.fit(sizes, 0)
    count = max(1, sizes[0] // share) if scale.elements else count
    desc = dmlvk.ScatterNd(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(_INDICES, (count, 1)),
        updates_tensor=TensorDesc(data_type, (count, sizes[1])),
        output_tensor=TensorDesc(data_type, sizes),
        input_dimension_count=2,
        indices_dimension_count=2,
    )

    def rival(torch: Any, x: Any, indices: Any, updates: Any) -> Any:
        return torch.index_put(x, (indices.reshape(-1),), updates)

    return _problem("scatter rows", desc, rival, 0)


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _elements(scale, FLOAT32, (2**26,), 2**24),
        _elements(scale, FLOAT32, (2**26,), 2**20),
        _elements(scale, FLOAT16, (2**26,), 2**24),
        _elements(scale, FLOAT32, (8192, 8192), 8192),
        _rows(scale, FLOAT32, (2**17, 1024), 2**15),
        _rows(scale, FLOAT32, (2**17, 1024), 2**10),
        _rows(scale, FLOAT16, (50257, 768), 2**13),
        _rows(scale, FLOAT16, (2**19, 128), 1),
    ]
