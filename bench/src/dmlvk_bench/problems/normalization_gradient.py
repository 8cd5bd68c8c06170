"""Gradients of normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.cases.model import uniform
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, FLOATS, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

_IMAGE = (32, 256, 56, 56)
_EPSILON = 1e-5


def _given(torch: Any, x: Any, dy: Any, mean: Any, variance: Any, scale: Any) -> Sequence[Any]:
    """The inputs of PyTorch's gradient: float32 statistics and scale, and 1 / sqrt(variance + epsilon)."""
    mean, variance, scale = (value.reshape(-1).float() for value in (mean, variance, scale))
    return x, dy, mean, variance, scale, torch.rsqrt(variance + _EPSILON)


def _batch(
    scale: Scale, data_type: TensorDataType, sizes: Sizes, layout: str, copy_target: float, *, training: bool
) -> Problem:
    """Statistics a channel. The rival is PyTorch's own kernel; its autograd, which takes cuDNN's, was between 0.7 and
    1.3 times as fast on an H200 (large images)."""
    sizes = scale.fit(sizes, *((0, 1) if len(sizes) == 4 else (0,)))
    strides = calculate_strides(layout, sizes) if layout == "NHWC" else None
    x = TensorDesc(data_type, sizes, strides)
    own = TensorDesc(data_type, (1, sizes[1], *(1 for _ in sizes[2:])))
    row = dmlvk.BatchNormalizationTrainingGrad if training else dmlvk.BatchNormalizationGrad

    def rival(torch: Any, x: Any, dy: Any, mean: Any, variance: Any, scale: Any, reciprocal: Any) -> Any:
        statistics = (mean, variance, mean, reciprocal)
        gradients = torch.ops.aten.native_batch_norm_backward(dy, x, scale, *statistics, training, _EPSILON, [True] * 3)
        return gradients[0]

    kind = "batch norm training" if training else "batch norm"
    return Problem(
        f"{kind} gradient, {layout} {data_type.name} {'x'.join(map(str, sizes))}",
        row(
            input_tensor=x,
            input_gradient_tensor=x,
            mean_tensor=own,
            variance_tensor=own,
            scale_tensor=own,
            output_gradient_tensor=x,
            output_scale_gradient_tensor=own,
            output_bias_gradient_tensor=own,
            epsilon=_EPSILON,
        ),
        rival,
        0.0,
        nbytes(x, x, own, own, own, x, own, own),
        copy_target,
        domains={"variance_tensor": uniform(0.5, 1.5)},
        tolerance=1e-5 if data_type is FLOAT32 else 2e-3,
        prepare=_given,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        for layout in ("NCHW", "NHWC"):
            found += [_batch(scale, data_type, _IMAGE, layout, 0.8, training=training) for training in (False, True)]
        found.append(_batch(scale, data_type, (65536, 1024), "NC", 0.8, training=True))
    found += [
        _batch(scale, FLOAT32, (128, 256, 28, 28), "NCHW", 0.8, training=True),
        _batch(scale, FLOAT32, (256, 1024, 14, 14), "NCHW", 0.8, training=True),
        _batch(scale, FLOAT16, (64, 2048, 7, 7), "NCHW", 0.0, training=True),
        _batch(scale, FLOAT16, (256, 1024, 14, 14), "NHWC", 0.8, training=True),
    ]
    return found
