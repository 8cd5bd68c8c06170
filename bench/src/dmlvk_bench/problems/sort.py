"""The largest or smallest elements."""

from __future__ import annotations

import math
from typing import Any

import dmlvk
from dmlvk.spec.enums import AxisDirection, TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk_bench.problems.model import FLOATS, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes


def _top_k(scale: Scale, data_type: TensorDataType, sizes: Sizes, axis: int, k: int, target: float) -> Problem:
    # Sorting whole rows takes a CPU many times as long as finding a few elements.
    sizes = scale.fit(sizes, 0, elements=lambda own: math.prod(own) * max(1, k // 512))
    source = TensorDesc(data_type, sizes)
    chosen = (*sizes[:axis], k, *sizes[axis + 1 :])
    values, indices = TensorDesc(data_type, chosen), TensorDesc(TensorDataType.UINT32, chosen)

    def rival(torch: Any, x: Any) -> Any:
        return torch.topk(x, k, axis)[0]

    return Problem(
        f"top-k {k} of {'x'.join(map(str, sizes))} along {axis} {data_type.name}",
        dmlvk.TopK1(
            input_tensor=source,
            output_value_tensor=values,
            output_index_tensor=indices,
            axis=axis,
            k=k,
            axis_direction=AxisDirection.DECREASING,
        ),
        rival,
        target,
        nbytes(source, values, indices),
        tolerance=1e-5 if data_type is TensorDataType.FLOAT32 else 1e-3,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        found += [
            _top_k(scale, data_type, (4096, 32768), 1, 100, 1.0),
            _top_k(scale, data_type, (65536, 1000), 1, 5, 0.0),
            _top_k(scale, data_type, (64, 2**20), 1, 100, 0.0),
            _top_k(scale, data_type, (2**26,), 0, 10, 0.0),
            _top_k(scale, data_type, (32768, 1024), 0, 100, 0.0),
            _top_k(scale, data_type, (1024, 8192), 1, 8192, 0.0),
        ]
    return found
