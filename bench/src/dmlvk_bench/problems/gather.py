"""Elements, rows and blocks chosen by random indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import indices_below
from dmlvk_bench.problems.data import tiled
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

_INDICES_32, _INDICES_64 = TensorDataType.UINT32, TensorDataType.INT64


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
    # Tuples have places; what is drawn for large tensors and repeated has none.
    chosen = indices_below(*bounds) if len(bounds) > 1 else tiled(indices_below(*bounds))
    # What is chosen is read, not all of the input.
    moved = 2 * nbytes(output) + nbytes(indices)
    return Problem(
        f"{name} of {sizes} to {'x'.join(map(str, output.sizes))} {x.data_type.name}",
        desc,
        rival,
        target,
        moved,
        copy_target=copy_target,
        domains={"indices_tensor": chosen},
        tolerance=0.0,
    )


def _gather(
    scale: Scale, data_type: TensorDataType, sizes: Sizes, count: int, axis: int, target: float, copy_target: float = 0.0
) -> Problem:
    sizes, count = (
        scale.fit(sizes, 0),
        scale.fit((count,), 0, elements=lambda own: own[0] * math.prod(sizes) // sizes[axis])[0],
    )
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


def _elements(scale: Scale, data_type: TensorDataType, sizes: Sizes, axis: int, target: float) -> Problem:
    sizes = scale.fit(sizes, 0, 1)
    desc = dmlvk.GatherElements(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(_INDICES_64, sizes),
        output_tensor=TensorDesc(data_type, sizes),
        axis=axis,
    )

    def rival(torch: Any, x: Any, indices: Any) -> Any:
        return torch.gather(x, axis, indices)

    return _problem(f"gather elements along {axis}", desc, (sizes[axis],), rival, target)


def _pairs(scale: Scale, data_type: TensorDataType, sizes: Sizes, count: int, target: float) -> Problem:
    sizes = scale.fit(sizes, 0, 1)
    count, *_ = scale.fit((count, *sizes[2:]), 0, elements=lambda own: own[0] * max(2, math.prod(own[1:])))
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


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _gather(scale, FLOAT32, (2**18, 1024), 2**17, 0, 1.0, 0.85),
        _gather(scale, FLOAT16, (50257, 768), 2**18, 0, 1.0),
        _gather(scale, FLOAT16, (50257, 773), 2**18, 0, 0.0),
        _gather(scale, FLOAT32, (2**26,), 2**26, 0, 1.0),
        _gather(scale, FLOAT32, (2**16, 1024), 1024, 1, 0.0),
        _elements(scale, FLOAT32, (8192, 8192), 1, 1.0),
        _elements(scale, FLOAT32, (8192, 8192), 0, 0.0),
        _elements(scale, FLOAT16, (8192, 8192), 1, 0.0),
        _pairs(scale, FLOAT32, (512, 512, 256), 2**18, 1.0),
        _pairs(scale, FLOAT32, (8192, 8192), 2**25, 0.0),
    ]
