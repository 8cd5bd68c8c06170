"""The gradient of local response normalization."""

from __future__ import annotations

from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk_bench.problems.model import FLOAT32, FLOATS, Problem, tensors_problem
from dmlvk_bench.problems.scale import Scale

_IMAGE = (32, 256, 56, 56)
_SIZE, _ALPHA, _BETA = 5, 1e-4, 0.75


def _gradient(scale: Scale, data_type: TensorDataType, layout: str, *, cross_channel: bool) -> Problem:
    """PyTorch has no kernel of its own for it: what its derivative comes to, with average pooling for the sums."""
    image = scale.fit(_IMAGE, 0, 1)
    tensor = TensorDesc(data_type, image, calculate_strides(layout, image))

    def rival(torch: Any, x: Any, gradient: Any) -> Any:
        def mean(values: Any) -> Any:
            """Over the region's size: of channels, or a _SIZE-th of the sum over a square."""
            pool = torch.nn.functional.avg_pool2d
            if cross_channel:
                return pool(values.reshape(*image[:2], -1), (_SIZE, 1), 1, (_SIZE // 2, 0)).reshape(image)
            return pool(values, _SIZE, 1, _SIZE // 2) * _SIZE

        base = 1.0 + _ALPHA * mean(x * x)
        through = gradient * base**-_BETA
        return through - 2 * _ALPHA * _BETA * x * mean(through * x / base)

    where = "channels" if cross_channel else "space"
    return tensors_problem(
        f"local response norm gradient, {where}, {layout}",
        dmlvk.LocalResponseNormalizationGrad,
        (tensor, tensor, tensor),
        rival,
        {},
        cross_channel=cross_channel,
        local_size=_SIZE,
        alpha=_ALPHA,
        beta=_BETA,
        bias=1.0,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = [_gradient(scale, kind, layout, cross_channel=True) for kind in FLOATS for layout in ("NCHW", "NHWC")]
    return [*found, _gradient(scale, FLOAT32, "NCHW", cross_channel=False)]
