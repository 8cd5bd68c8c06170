"""Blocks of images: windows that overlap, and patches side by side."""

from __future__ import annotations

import math
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk_bench.problems.model import FLOATS, Problem, nbytes
from dmlvk_bench.problems.scale import Scale


def _blocks(
    scale: Scale, data_type: TensorDataType, sizes: tuple[int, ...], window: int, stride: int, padding: int
) -> list[Problem]:
    """Both operators with square windows."""
    sizes = scale.fit(sizes, 0, 1, elements=lambda own: math.prod(own) * window**2 // stride**2)
    count = math.prod((size + 2 * padding - window) // stride + 1 for size in sizes[2:])
    image = TensorDesc(data_type, sizes)
    columns = TensorDesc(data_type, (sizes[0], sizes[1] * window**2, count))
    attributes: dict[str, Any] = {
        "window_sizes": (window, window),
        "strides": (stride, stride),
        "dilations": (1, 1),
        "start_padding": (padding, padding),
        "end_padding": (padding, padding),
    }
    named = {"kernel_size": window, "stride": stride, "padding": padding}
    what = f"{window}x{window} stride {stride} {data_type.name} {'x'.join(map(str, sizes))}"
    return [
        Problem(
            f"unfold {what}",
            dmlvk.Unfold(input_tensor=image, output_tensor=columns, **attributes),
            lambda torch, x: torch.nn.functional.unfold(x, **named),
            1.0,
            nbytes(image, columns),
            tolerance=0.0,
        ),
        Problem(
            f"fold {what}",
            dmlvk.Fold(input_tensor=columns, output_tensor=image, **attributes),
            lambda torch, x: torch.nn.functional.fold(x, sizes[2:], **named),
            1.0,
            nbytes(image, columns),
            tolerance=1e-5 if data_type is TensorDataType.FLOAT32 else 1e-3,
        ),
    ]


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        found += _blocks(scale, data_type, (32, 64, 56, 56), 3, 1, 1)
        found += _blocks(scale, data_type, (32, 64, 56, 56), 3, 2, 1)
        found += _blocks(scale, data_type, (64, 3, 224, 224), 16, 16, 0)
    return found
