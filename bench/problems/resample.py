"""Resampling: enlarged by 2 in both layouts, by another factor, and made smaller with antialiasing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dmlvk
from bench.problems.model import FLOATS, Problem, tensors_problem
from dmlvk import InterpolationMode, TensorDataType, TensorDesc, calculate_strides

_COPY = {"target": 1.0, "copy_target": 0.8}
_IMAGE = (32, 64, 256, 256)


def _resample(
    name: str,
    data_type: TensorDataType,
    size: int,
    rival: Callable[..., Any],
    goal: Mapping[str, float],
    mode: InterpolationMode = InterpolationMode.LINEAR,
    layout: str = "NCHW",
    **attributes: Any,
) -> Problem:
    def tensor(sizes: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(data_type, sizes, calculate_strides(layout, sizes) if layout != "NCHW" else None)

    output = (*_IMAGE[:2], size, size)
    return tensors_problem(
        f"{name} {layout}",
        dmlvk.Resample3,
        (tensor(_IMAGE), tensor(output)),
        rival,
        goal,
        interpolation_mode=mode,
        scales=tuple(new / old for new, old in zip(output, _IMAGE, strict=True)),
        input_pixel_offsets=(0.5 + 0.5 * (mode == InterpolationMode.NEAREST_NEIGHBOR),) * 4,
        output_pixel_offsets=(-0.5,) * 4,
        **attributes,
    )


def _interpolate(size: int, mode: str) -> Callable[..., Any]:
    return lambda torch, x: torch.nn.functional.interpolate(x, (size, size), mode=mode)


def _antialiased(torch: Any, x: Any) -> Any:
    """By half, with the edges repeated outside: PyTorch leaves out what is there."""
    functional = torch.nn.functional
    padded = functional.pad(x, (4, 4, 4, 4), mode="replicate")
    size = padded.shape[-1] // 2
    return functional.interpolate(padded, (size, size), mode="bilinear", antialias=True)[..., 2:-2, 2:-2]


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        twice = _interpolate(512, "bilinear")
        found += [
            _resample("bilinear 2x", data_type, 512, twice, _COPY),
            _resample("bilinear 2x", data_type, 512, twice, _COPY, layout="NHWC"),
            _resample("nearest 2x", data_type, 512, _interpolate(512, "nearest"), _COPY, InterpolationMode.NEAREST_NEIGHBOR),
            # (PyTorch's positions are float32 numbers up to 256: its weights are off by 10^-5.)
            _resample("bilinear 1.5x", data_type, 384, _interpolate(384, "bilinear"), {"target": 1.0, "tolerance": 1e-3}),
            _resample("antialiased by half", data_type, 128, _antialiased, {"target": 1.0}, antialiased=True),
        ]
    return found
