"""Gradients of resampling: enlargements by 2 in both layouts, by another factor, and of half as large images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dmlvk
from dmlvk.spec.enums import InterpolationMode, TensorDataType
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk_bench.problems.model import FLOATS, Problem, tensors_problem
from dmlvk_bench.problems.resample import shrunk
from dmlvk_bench.problems.scale import Scale, Sizes

_COPY = {"target": 1.0, "copy_target": 0.8}
_IMAGE = (32, 64, 256, 256)
_NEAREST = InterpolationMode.NEAREST_NEIGHBOR


def _gradient(
    scale: Scale,
    name: str,
    data_type: TensorDataType,
    size: int,
    goal: Mapping[str, float] = _COPY,
    mode: InterpolationMode = InterpolationMode.LINEAR,
    layout: str = "NCHW",
    image: Sizes = _IMAGE,
) -> Problem:
    """The gradient of resampling images to a size."""

    def tensor(sizes: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(data_type, sizes, calculate_strides(layout, sizes) if layout != "NCHW" else None)

    image, size = shrunk(scale, image, size)
    forward = (*image[:2], size, size)
    return tensors_problem(
        f"gradient of {name} {layout}",
        dmlvk.ResampleGrad1,
        (tensor(forward), tensor(image)),
        _rival(image, size, "nearest" if mode == _NEAREST else "bilinear"),
        goal,
        interpolation_mode=mode,
        rounding_direction=dmlvk.AxisDirection.DECREASING,
        scales=tuple(new / old for new, old in zip(forward, image, strict=True)),
        input_pixel_offsets=(0.0 if mode == _NEAREST else 0.5,) * 4,
        output_pixel_offsets=(0.0 if mode == _NEAREST else -0.5,) * 4,
    )


def _rival(image: Sizes, size: int, mode: str) -> Callable[..., Any]:
    if mode == "nearest":
        return lambda torch, dy: torch.ops.aten.upsample_nearest2d_backward(dy, (size, size), image)
    return lambda torch, dy: torch.ops.aten.upsample_bilinear2d_backward(dy, (size, size), image, False)


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        # (PyTorch's positions are float32 numbers up to 256: its weights are off by 10^-5.)
        inexact = {"target": 1.0, "tolerance": 1e-3}
        found += [
            _gradient(scale, "bilinear 2x", data_type, 512),
            _gradient(scale, "bilinear 2x", data_type, 512, layout="NHWC"),
            _gradient(scale, "nearest 2x", data_type, 512, mode=_NEAREST),
            _gradient(scale, "nearest 2x", data_type, 512, mode=_NEAREST, layout="NHWC"),
            _gradient(scale, "bilinear 1.5x", data_type, 384, inexact),
            _gradient(scale, "bilinear by half", data_type, 128),
            _gradient(scale, "bilinear by half", data_type, 128, layout="NHWC"),
            _gradient(scale, "bilinear 2x", data_type, 28, image=(32, 512, 14, 14)),
            _gradient(scale, "bilinear 4x", data_type, 512, image=(32, 64, 128, 128)),
        ]
    return found
