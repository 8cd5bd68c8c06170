"""Pooling: small windows in both layouts, with indices, and whole planes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import dmlvk
from bench.problems.model import FLOAT16, FLOATS, Problem, nbytes
from dmlvk import TensorDataType, TensorDesc
from dmlvk.schema import OperatorDesc
from dmlvk.tensor import calculate_strides

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
    data_type: TensorDataType,
    stride: int,
    functions: Mapping[str, _Function],
    goal: Mapping[str, float],
    layout: str = "NCHW",
) -> list[Problem]:
    """Square windows of 3 over padded planes."""
    size = (_IMAGE[2] - 1) // stride + 1

    def tensor(kind: TensorDataType, sizes: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(kind, sizes, calculate_strides(layout, sizes) if layout != "NCHW" else None)

    found = []
    for name, (row, rival, more) in functions.items():
        tensors = {"input_tensor": tensor(data_type, _IMAGE), "output_tensor": tensor(data_type, (*_IMAGE[:2], size, size))}
        if rival is _maximum_and_indices:
            tensors["output_indices_tensor"] = tensor(UINT32, (*_IMAGE[:2], size, size))
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


def _global_average(data_type: TensorDataType, sizes: tuple[int, ...]) -> Problem:
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


_PLAIN: dict[str, _Function] = {
    "average pooling": (dmlvk.AveragePooling1, _average, {"include_padding": False}),
    "max pooling": (dmlvk.MaxPooling2, _maximum, {}),
}
_INDEXED: dict[str, _Function] = {"max pooling with indices": (dmlvk.MaxPooling2, _maximum_and_indices, {})}


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        for stride in (1, 2):
            found += _planes(data_type, stride, _PLAIN, _COPY)
        found += _planes(data_type, 1, _INDEXED, {"target": 1.0})
        found += [_global_average(data_type, sizes) for sizes in ((32, 2048, 7, 7), (32, 256, 128, 128))]
    for stride in (1, 2):
        found += _planes(FLOAT16, stride, _PLAIN, _COPY, "NHWC")
    return found
