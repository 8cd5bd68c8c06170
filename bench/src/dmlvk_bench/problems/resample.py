"""Resampling: enlarged by 2 in both layouts, by another factor, and made smaller with antialiasing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import dmlvk
from dmlvk.spec.enums import InterpolationMode, TensorDataType
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk_bench.problems.model import FLOATS, Problem, tensors_problem
from dmlvk_bench.problems.scale import Scale, Sizes

_COPY = {"target": 1.0, "copy_target": 0.8}
_IMAGE = (32, 64, 256, 256)


def shrunk(scale: Scale, image: Sizes, size: int) -> tuple[Sizes, int]:
    """Images and the size to which they are resampled, or come from, at a scale."""
    edge = scale.pick(image[2], image[2], min(image[2], 64))
    size = size * edge // image[2]
    batch, channels, *_ = scale.fit(
        (*image[:2], edge, edge), 0, 1, elements=lambda own: own[0] * own[1] * max(size, edge) ** 2
    )
    return (batch, channels, edge, edge), size


def _resample(
    scale: Scale,
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

    image, size = shrunk(scale, _IMAGE, size)
    output = (*image[:2], size, size)
    return tensors_problem(
        f"{name} {layout}",
        dmlvk.Resample3,
        (tensor(image), tensor(output)),
        functools.partial(rival, size=size),
        goal,
        interpolation_mode=mode,
        scales=tuple(new / old for new, old in zip(output, image, strict=True)),
        input_pixel_offsets=(0.5 + 0.5 * (mode == InterpolationMode.NEAREST_NEIGHBOR),) * 4,
        output_pixel_offsets=(-0.5,) * 4,
        **attributes,
    )


def _bilinear(torch: Any, x: Any, size: int) -> Any:
    return torch.nn.functional.interpolate(x, (size, size), mode="bilinear")


def _nearest(torch: Any, x: Any, size: int) -> Any:
    return torch.nn.functional.interpolate(x, (size, size), mode="nearest")


def _antialiased(torch: Any, x: Any, size: int) -> Any:
    """Halves images with the edges repeated outside: PyTorch leaves out what is there."""
    functional = torch.nn.functional
    padded = functional.pad(x, (4, 4, 4, 4), mode="replicate")
    return functional.interpolate(padded, (size + 4, size + 4), mode="bilinear", antialias=True)[..., 2:-2, 2:-2]


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        found += [
            _resample(scale, "bilinear 2x", data_type, 512, _bilinear, _COPY),
            _resample(scale, "bilinear 2x", data_type, 512, _bilinear, _COPY, layout="NHWC"),
            _resample(scale, "nearest 2x", data_type, 512, _nearest, _COPY, InterpolationMode.NEAREST_NEIGHBOR),
            # (PyTorch's positions are float32 numbers up to 256: its weights are off by 10^-5.)
            _resample(scale, "bilinear 1.5x", data_type, 384, _bilinear, {"target": 1.0, "tolerance": 1e-3}),
            _resample(scale, "antialiased by half", data_type, 128, _antialiased, {"target": 1.0}, antialiased=True),
        ]
    return found
