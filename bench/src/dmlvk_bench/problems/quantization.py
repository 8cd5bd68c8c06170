"""DynamicQuantizeLinear: the input is read twice, and a quarter of its bytes is written."""

from __future__ import annotations

from typing import Any

import dmlvk
from dmlvk.spec.tensor import TensorDesc
from dmlvk_bench.problems.model import FLOAT32, FLOATS, UINT8, Problem, nbytes
from dmlvk_bench.problems.scale import Scale


def _quantized(torch: Any, x: Any) -> Any:
    """PyTorch's steps; its own operator for it has no CUDA kernel."""
    least, largest = torch.aminmax(x)
    least, largest = least.clamp(max=0).float(), largest.clamp(min=0).float()
    scale = (largest - least) / 255
    zero_point = (-least / scale).round()
    return ((x.float() / scale).round() + zero_point).clamp(0, 255).to(torch.uint8)


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        sizes = scale.fit((1 << 28,), 0)
        x, y = TensorDesc(data_type, sizes), TensorDesc(UINT8, sizes)
        desc = dmlvk.DynamicQuantizeLinear(
            input_tensor=x,
            output_tensor=y,
            output_scale_tensor=TensorDesc(FLOAT32, (1,)),
            output_zero_point_tensor=TensorDesc(UINT8, (1,)),
        )
        found.append(
            Problem(
                f"dynamic quantization {data_type.name} {x.element_count}",
                desc,
                _quantized,
                0.0,
                nbytes(x, x, y),
                0.85,
                tolerance=1 / 200,  # a number next to a half integer may be rounded otherwise
            )
        )
    return found
