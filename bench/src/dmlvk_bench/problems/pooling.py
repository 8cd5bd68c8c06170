"""Pooling: small windows in both layouts, with indices, and whole planes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.cases.model import NUMPY_TYPES, Array
from dmlvk_bench.problems.model import FLOAT16, FLOATS, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

UINT32 = TensorDataType.UINT32
_COPY = {"copy_target": 0.85}
_IMAGE = (32, 256, 56, 56)
_Function = tuple[type[OperatorDesc], Callable[..., Any], Mapping[str, Any]]
"""The row, what a rival computes for it, and attributes of its own."""


def _average(torch: Any, x: Any, window: int, stride: int) -> Any:
    return torch.nn.functional.avg_pool2d(x, window, stride, window // 2, count_include_pad=False)


def _maximum(torch: Any, x: Any, window: int, stride: int) -> Any:
    return torch.nn.functional.max_pool2d(x, window, stride, window // 2)


def _maximum_and_indices(torch: Any, x: Any, window: int, stride: int) -> Any:
    return torch.nn.functional.max_pool2d(x, window, stride, window // 2, return_indices=True)[0]


def _norm(torch: Any, x: Any, window: int, stride: int) -> Any:
    return torch.nn.functional.lp_pool2d(torch.nn.functional.pad(x, (window // 2,) * 4), 2.0, window, stride)


def _pooling(
    name: str,
    row: type[OperatorDesc],
    tensors: Mapping[str, TensorDesc],
    rival: Callable[..., Any],
    goal: Mapping[str, float],
    **attributes: Any,
) -> Problem:
    source, output = tensors["input_tensor"], tensors["output_tensor"]
    fields: dict[str, Any] = {**tensors, **attributes, "dilations": (1, 1)}
    return Problem(
        f"{name} {output.data_type.name} {'x'.join(map(str, source.sizes))}",
        row(**fields),
        rival=rival,
        bytes_moved=nbytes(*tensors.values()),
        tolerance=1e-3 if output.data_type is FLOAT16 else 1e-5,
        target=goal.get("target", 0.0),
        copy_target=goal.get("copy_target", 0.0),
    )


def _planes(
    scale: Scale,
    data_type: TensorDataType,
    stride: int,
    functions: Mapping[str, _Function],
    goal: Mapping[str, float],
    layout: str = "NCHW",
) -> list[Problem]:
    """Square windows of 3 over padded planes."""
    image = scale.fit(_IMAGE, 0, 1)
    size = (image[2] - 1) // stride + 1

    def tensor(kind: TensorDataType, sizes: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(kind, sizes, calculate_strides(layout, sizes) if layout != "NCHW" else None)

    found = []
    for name, (row, rival, more) in functions.items():
        tensors = {"input_tensor": tensor(data_type, image), "output_tensor": tensor(data_type, (*image[:2], size, size))}
        if rival is _maximum_and_indices:
            tensors["output_indices_tensor"] = tensor(UINT32, (*image[:2], size, size))
        found.append(
            _pooling(
                f"{name} 3x3 stride {stride} {layout}",
                row,
                tensors,
                functools.partial(rival, window=3, stride=stride),
                goal,
                window_size=(3, 3),
                strides=(stride, stride),
                start_padding=(1, 1),
                end_padding=(1, 1),
                **more,
            )
        )
    return found


def _global_average(scale: Scale, data_type: TensorDataType, sizes: Sizes) -> Problem:
    sizes = scale.fit(sizes, 0, 1)
    return _pooling(
        "global average pooling",
        dmlvk.AveragePooling1,
        {"input_tensor": TensorDesc(data_type, sizes), "output_tensor": TensorDesc(data_type, (*sizes[:2], 1, 1))},
        lambda torch, x: torch.nn.functional.adaptive_avg_pool2d(x, 1),
        {"target": 1.0},
        window_size=sizes[2:],
        strides=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 0),
        include_padding=False,
    )


def _unpooling(scale: Scale, data_type: TensorDataType) -> Problem:
    """Each element goes somewhere into a window of its own, 2x2."""
    batch, channels, height, width = scale.fit(_IMAGE, 0, 1)
    output = TensorDesc(data_type, (batch, channels, height, width))
    x, indices = (TensorDesc(kind, (batch, channels, height // 2, width // 2)) for kind in (data_type, UINT32))

    def places(rng: np.random.Generator, sizes: Sizes, kind: TensorDataType) -> Array:
        plane, row, column = (np.arange(size) for size in (batch * channels, height // 2, width // 2))
        inside = rng.integers(0, 2, (2, plane.size, row.size, column.size))
        rows = plane[:, None, None] * height + 2 * row[:, None] + inside[0]
        found: Array = (rows * width + 2 * column + inside[1]).astype(NUMPY_TYPES[kind]).reshape(sizes)
        return found

    def prepare(torch: Any, x: Any, indices: Any) -> Sequence[Any]:
        """PyTorch's indices are those in a plane."""
        return x, indices.long() % (height * width)

    return Problem(
        f"max unpooling 2x2 {data_type.name} {'x'.join(map(str, output.sizes))}",
        dmlvk.MaxUnpooling(input_tensor=x, indices_tensor=indices, output_tensor=output),
        lambda torch, x, indices: torch.nn.functional.max_unpool2d(x, indices, 2),
        0.0,
        nbytes(x, indices, output),
        domains={"indices_tensor": places},
        tolerance=0.0,
        prepare=prepare,
    )


_PLAIN: dict[str, _Function] = {
    "average pooling": (dmlvk.AveragePooling1, _average, {"include_padding": False}),
    "max pooling": (dmlvk.MaxPooling2, _maximum, {}),
}
_NORM: dict[str, _Function] = {"L2 pooling": (dmlvk.LpPooling1, _norm, {"p": 2})}
_INDEXED: dict[str, _Function] = {"max pooling with indices": (dmlvk.MaxPooling2, _maximum_and_indices, {})}


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        for stride in (1, 2):
            found += _planes(scale, data_type, stride, _PLAIN, _COPY)
        found += _planes(scale, data_type, 1, _INDEXED, {"target": 1.0})
        found += [_global_average(scale, data_type, sizes) for sizes in ((32, 2048, 7, 7), (32, 256, 128, 128))]
    for stride in (1, 2):
        found += _planes(scale, FLOAT16, stride, _PLAIN, _COPY, "NHWC")
    for data_type in FLOATS:
        found += [*_planes(scale, data_type, 1, _NORM, {}), _unpooling(scale, data_type)]
    return found
