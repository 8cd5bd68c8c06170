"""Elements, rows and blocks chosen by random indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dmlvk
from bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk import TensorDataType, TensorDesc
from dmlvk.schema import OperatorDesc

_INDICES_32, _INDICES_64 = TensorDataType.UINT32, TensorDataType.INT64
Sizes = tuple[int, ...]


def _random(*bounds: int) -> Callable[..., Any]:
    """Indices below a bound, or tuples of indices, each below its own."""

    def fill(torch: Any, sizes: Sizes, kind: Any) -> Any:
        if len(bounds) == 1:
            return torch.randint(0, bounds[0], sizes, dtype=kind)
        columns = [torch.randint(0, bound, sizes[:-1], dtype=kind) for bound in bounds]
        return torch.stack(columns, -1)

    return fill


def _problem(
    name: str,
    desc: OperatorDesc,
    bounds: Sizes,
    rival: Callable[[Any, Any, Any], Any],
    target: float,
    copy_target: float = 0.0,
) -> Problem:
    x, indices, output = (desc.tensor(f"{field}_tensor") for field in ("input", "indices", "output"))
    sizes = "x".join(map(str, x.sizes))
    # What is chosen is read, not all of the input.
    moved = 2 * nbytes(output) + nbytes(indices)
    return Problem(
        f"{name} of {sizes} to {'x'.join(map(str, output.sizes))} {x.data_type.name}",
        desc,
        rival,
        target,
        moved,
        copy_target=copy_target,
        fill={"indices_tensor": _random(*bounds)},
        tolerance=0.0,
    )


def _gather(
    data_type: TensorDataType, sizes: Sizes, count: int, axis: int, target: float, copy_target: float = 0.0
) -> Problem:
    chosen = (*sizes[:axis], count, *sizes[axis + 1 :])
    desc = dmlvk.Gather(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(_INDICES_32, (*(1,) * (len(sizes) - 1), count)),
        output_tensor=TensorDesc(data_type, chosen),
        axis=axis,
        index_dimensions=1,
    )

    def rival(torch: Any, x: Any, indices: Any) -> Any:
        return torch.index_select(x, axis, indices.reshape(-1))

    return _problem(f"gather along {axis}", desc, (sizes[axis],), rival, target, copy_target)


def _elements(data_type: TensorDataType, sizes: Sizes, axis: int, target: float) -> Problem:
    desc = dmlvk.GatherElements(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(_INDICES_64, sizes),
        output_tensor=TensorDesc(data_type, sizes),
        axis=axis,
    )

    def rival(torch: Any, x: Any, indices: Any) -> Any:
        return torch.gather(x, axis, indices)

    return _problem(f"gather elements along {axis}", desc, (sizes[axis],), rival, target)


def _pairs(data_type: TensorDataType, sizes: Sizes, count: int, target: float) -> Problem:
    ones = (1,) * (len(sizes) - 2)
    desc = dmlvk.GatherNd1(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(_INDICES_64, (*ones, count, 2)),
        output_tensor=TensorDesc(data_type, (1, count, *sizes[2:])),
        input_dimension_count=len(sizes),
        indices_dimension_count=2,
    )

    def rival(torch: Any, x: Any, indices: Any) -> Any:
        pairs = indices.reshape(-1, 2)
        return x[pairs[:, 0], pairs[:, 1]]

    return _problem("gather pairs", desc, sizes[:2], rival, target)


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _gather(FLOAT32, (2**18, 1024), 2**17, 0, 1.0, 0.85),
        _gather(FLOAT16, (50257, 768), 2**18, 0, 1.0),
        _gather(FLOAT16, (50257, 773), 2**18, 0, 0.0),
        _gather(FLOAT32, (2**26,), 2**26, 0, 1.0),
        _gather(FLOAT32, (2**16, 1024), 1024, 1, 0.0),
        _elements(FLOAT32, (8192, 8192), 1, 1.0),
        _elements(FLOAT32, (8192, 8192), 0, 0.0),
        _elements(FLOAT16, (8192, 8192), 1, 0.0),
        _pairs(FLOAT32, (512, 512, 256), 2**18, 1.0),
        _pairs(FLOAT32, (8192, 8192), 2**25, 0.0),
    ]
