"""Normalization, by statistics of the input or given ones."""

from __future__ import annotations

from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.cases.model import uniform
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, FLOATS, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

_IMAGE = (32, 256, 56, 56)


def _normalization(
    scale: Scale,
    name: str,
    data_type: TensorDataType,
    sizes: Sizes,
    axes: tuple[int, ...],
    rival: Any,
    target: float = 0.0,
    copy_target: float = 0.0,
    *,
    layout: str = "",
    use_mean: bool = True,
) -> Problem:
    sizes = scale.fit(sizes, *_free(sizes))
    tensor = TensorDesc(data_type, sizes, calculate_strides(layout, sizes) if layout else None)
    return Problem(
        f"{name} {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.MeanVarianceNormalization2(
            input_tensor=tensor, output_tensor=tensor, axes=axes, use_mean=use_mean, use_variance=True, epsilon=1e-5
        ),
        rival,
        target,
        nbytes(tensor, tensor),
        copy_target,
        tolerance=_tolerance(data_type),
    )


def _layer_norm(scale: Scale, data_type: TensorDataType, rows: int) -> Problem:
    def rival(torch: Any, x: Any) -> Any:
        return torch.nn.functional.layer_norm(x, x.shape[1:])

    return _normalization(scale, "layer norm, last axis", data_type, (rows, 8192), (1,), rival, 1.5)


def _free(sizes: Sizes) -> tuple[int, ...]:
    """Rows of a matrix, batch and channels of images."""
    return (0,) if len(sizes) == 2 else (0, 1)


def _tolerance(data_type: TensorDataType) -> float:
    return 1e-5 if data_type is FLOAT32 else 2e-3


def _batch(scale: Scale, data_type: TensorDataType, layout: str, copy_target: float, sizes: Sizes = _IMAGE) -> Problem:
    """Batch normalization with given statistics, one of each a channel."""
    sizes = scale.fit(sizes, *_free(sizes))
    tensor = TensorDesc(data_type, sizes, calculate_strides(layout, sizes))
    own = TensorDesc(data_type, (1, sizes[1], 1, 1))
    fields: dict[str, Any] = dict.fromkeys(("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor"), own)
    return Problem(
        f"batch norm, {layout} {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.BatchNormalization(input_tensor=tensor, output_tensor=tensor, **fields),
        lambda torch, x, *given: torch.nn.functional.batch_norm(x, *(value.reshape(-1) for value in given)),
        0.0,
        nbytes(tensor, own, own, own, own, tensor),
        copy_target,
        domains={"variance_tensor": uniform(0.5, 1.5)},
        tolerance=_tolerance(data_type),
    )


def _training(scale: Scale, data_type: TensorDataType, layout: str, *, add: bool = False) -> Problem:
    sizes = scale.fit(_IMAGE, *_free(_IMAGE))
    tensor = TensorDesc(data_type, sizes, calculate_strides(layout, sizes))
    own = TensorDesc(data_type, (1, sizes[1], 1, 1))

    def rival(torch: Any, x: Any, scale: Any, bias: Any, *added: Any) -> Any:
        y = torch.nn.functional.batch_norm(x, None, None, scale.reshape(-1), bias.reshape(-1), training=True)
        return y + added[0] if added else y

    return Problem(
        f"batch norm training, {layout}{', fused add' * add} {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.BatchNormalizationTraining(
            input_tensor=tensor,
            scale_tensor=own,
            bias_tensor=own,
            fused_add_tensor=tensor if add else None,
            output_tensor=tensor,
            output_mean_tensor=own,
            output_variance_tensor=own,
        ),
        rival,
        0.0,
        nbytes(tensor, *[tensor] * add, own, own, tensor, own, own),
        tolerance=_tolerance(data_type),
    )


def _local(scale: Scale, data_type: TensorDataType, *, cross_channel: bool) -> Problem:
    """PyTorch has the one across channels only; the other is compared with an average pooling of the squares."""
    sizes = scale.fit(_IMAGE, *_free(_IMAGE))
    tensor = TensorDesc(data_type, sizes)

    def rival(torch: Any, x: Any) -> Any:
        nn = torch.nn.functional
        if cross_channel:
            return nn.local_response_norm(x, 5, 1e-4, 0.75, 1.0)
        return x / (1.0 + 1e-4 * 5 * nn.avg_pool2d(x * x, 5, 1, 2)) ** 0.75

    return Problem(
        f"local response norm, {'channels' if cross_channel else 'space'} {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.LocalResponseNormalization(
            input_tensor=tensor,
            output_tensor=tensor,
            cross_channel=cross_channel,
            local_size=5,
            alpha=1e-4,
            beta=0.75,
            bias=1.0,
        ),
        rival,
        0.0,
        nbytes(tensor, tensor),
        tolerance=_tolerance(data_type),
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    image = (32, 256, 128, 128)
    found = []
    for data_type in FLOATS:
        found += [
            _layer_norm(scale, data_type, 16384),
            _normalization(
                scale,
                "RMS norm, last axis",
                data_type,
                (16384, 8192),
                (1,),
                lambda torch, x: torch.nn.functional.rms_norm(x, x.shape[1:], eps=1e-5),
                use_mean=False,
            ),
            _normalization(
                scale,
                "instance norm, axes {2,3}",
                data_type,
                image,
                (2, 3),
                lambda torch, x: torch.nn.functional.instance_norm(x),
                2.0,
            ),
            _normalization(
                scale,
                "instance norm, NHWC",
                data_type,
                _IMAGE,
                (2, 3),
                lambda torch, x: torch.nn.functional.instance_norm(x),
                layout="NHWC",
            ),
            _normalization(
                scale,
                "one-group norm, axes {1,2,3}",
                data_type,
                image,
                (1, 2, 3),
                lambda torch, x: torch.nn.functional.group_norm(x, 1),
                10.0,
            ),
            _normalization(
                scale,
                "norm over the channels, NCHW",
                data_type,
                _IMAGE,
                (1,),
                lambda torch, x: torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2]).permute(0, 3, 1, 2),
            ),
            _batch(scale, data_type, "NCHW", 0.85),
            _batch(scale, data_type, "NHWC", 0.85),
            _training(scale, data_type, "NCHW"),
            _training(scale, data_type, "NHWC"),
            _training(scale, data_type, "NHWC", add=True),
            _local(scale, data_type, cross_channel=True),
        ]
    return [
        *found,
        _local(scale, FLOAT32, cross_channel=False),
        _batch(scale, FLOAT16, "NCHW", 0.0, (64, 2048, 7, 7)),
        _layer_norm(scale, FLOAT32, 32768),
    ]
