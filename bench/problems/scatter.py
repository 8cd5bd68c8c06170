"""Elements and rows that replace others at random places, none of them twice: a rival without an order of updates gives
the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dmlvk
from bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk import TensorDataType, TensorDesc
from dmlvk.schema import OperatorDesc

_INDICES = TensorDataType.INT64
Sizes = tuple[int, ...]


def _problem(name: str, desc: OperatorDesc, rival: Callable[..., Any], fill: Callable[..., Any]) -> Problem:
    indices, updates, output = (desc.tensor(f"{field}_tensor") for field in ("indices", "updates", "output"))
    sizes = "x".join(map(str, output.sizes))
    return Problem(
        f"{name}, {updates.element_count} into {sizes} {output.data_type.name}",
        desc,
        rival,
        0.0,
        2 * nbytes(output) + nbytes(indices),  # an element comes from the input or from the updates
        fill={"indices_tensor": fill},
        tolerance=0.0,
    )


def _elements(data_type: TensorDataType, sizes: Sizes, count: int) -> Problem:
    """Along the last dimension."""
    axis = len(sizes) - 1
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

    def places(torch: Any, own: Sizes, kind: Any) -> Any:
        rows = math.prod(own[:-1])
        chosen = [torch.randperm(sizes[axis], dtype=kind)[:count] for _ in range(rows)]
        return torch.stack(chosen).reshape(own)

    return _problem("scatter elements", desc, rival, places)


def _rows(data_type: TensorDataType, sizes: Sizes, count: int) -> Problem:
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

    def places(torch: Any, own: Sizes, kind: Any) -> Any:
        return torch.randperm(sizes[0], dtype=kind)[:count].clone().reshape(own)

    return _problem("scatter rows", desc, rival, places)


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _elements(FLOAT32, (2**26,), 2**24),
        _elements(FLOAT32, (2**26,), 2**20),
        _elements(FLOAT16, (2**26,), 2**24),
        _elements(FLOAT32, (8192, 8192), 8192),
        _rows(FLOAT32, (2**17, 1024), 2**15),
        _rows(FLOAT32, (2**17, 1024), 2**10),
        _rows(FLOAT16, (50257, 768), 2**13),
        _rows(FLOAT16, (2**19, 128), 1),
    ]
