"""Gradients of pooling: small windows in both layouts, and whole planes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.oracle.pooling_gradient import average_pooling_grad
from dmlvk_bench.problems.model import FLOAT16, FLOATS, Arrays, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

_IMAGE = (32, 256, 56, 56)
_WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 1))
"""Edge, stride and padding of the windows in use: halving, the first layers of residual networks, inception's."""


def _with_indices(torch: Any, x: Any, dy: Any, *, window: int, stride: int, padding: int) -> Sequence[Any]:
    """The inputs of PyTorch's gradient: ours, and the indices that its forward kernel keeps."""
    indices = torch.nn.functional.max_pool2d(x, window, stride, padding, return_indices=True)[1]
    return x, dy, indices


def _maximum(torch: Any, x: Any, dy: Any, indices: Any, *, window: int, stride: int, padding: int) -> Any:
    edges = [[edge, edge] for edge in (window, stride, padding, 1)]
    return torch.ops.aten.max_pool2d_with_indices_backward(dy, x, *edges, False, indices)


def _with_input(torch: Any, dy: Any, *, sizes: Sequence[int]) -> Sequence[Any]:
    """PyTorch reads the sizes of the gradient from the forward input."""
    last = dy.stride(1) == 1 and dy.shape[1] > 1
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty(tuple(sizes), dtype=dy.dtype, device=dy.device).to(memory_format=layout), dy


def _average(torch: Any, x: Any, dy: Any, *, window: int, stride: int, padding: int) -> Any:
    edges = [[edge, edge] for edge in (window, stride, padding)]
    return torch.ops.aten.avg_pool2d_backward(dy, x, *edges, False, False, None)


def _against_oracle(desc: dmlvk.AveragePoolingGrad, inputs: Arrays, outputs: Arrays) -> float:
    """The difference from the oracle: with channels last and padding, PyTorch 2.11 gives another gradient on CUDA, which is
    wrong by as much as its largest element."""
    expected = average_pooling_grad(desc, *inputs).value
    return float(np.abs(outputs[0] - expected).max() / np.abs(expected).max())


def _problems(
    scale: Scale, data_type: TensorDataType, sizes: Sizes, window: int, stride: int, padding: int, layout: str
) -> list[Problem]:
    """Both gradients for square windows."""
    sizes = scale.fit(sizes, 0, 1)
    size = (sizes[2] + 2 * padding - window) // stride + 1

    def tensor(sizes: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(data_type, sizes, calculate_strides(layout, sizes) if layout != "NCHW" else None)

    x, dy = tensor(sizes), tensor((*sizes[:2], size, size))
    fields: dict[str, Any] = {
        "input_gradient_tensor": dy,
        "output_gradient_tensor": x,
        "window_size": (window, window),
        "strides": (stride, stride),
        "start_padding": (padding, padding),
        "end_padding": (padding, padding),
    }
    square = {"window": window, "stride": stride, "padding": padding}
    title = f"{window}x{window} stride {stride} {layout} {data_type.name} {'x'.join(map(str, sizes))}"

    def problem(name: str, desc: OperatorDesc, rival: Any, prepare: Any, *read: TensorDesc, check: Any = None) -> Problem:
        return Problem(
            f"{name} pooling gradient {title}",
            desc,
            rival=functools.partial(rival, **square),
            target=0.0,
            bytes_moved=nbytes(x, *read),
            copy_target=0.8,
            prepare=prepare,
            check=check,
            tolerance=1e-3 if data_type is FLOAT16 else 1e-5,
        )

    average = dmlvk.AveragePoolingGrad(**fields, include_padding=False)
    check = functools.partial(_against_oracle, average) if layout == "NHWC" and padding else None
    found = [problem("average", average, _average, functools.partial(_with_input, sizes=sizes), dy, check=check)]
    if window < sizes[2]:
        maximum = dmlvk.MaxPoolingGrad(**fields, input_tensor=x, dilations=(1, 1))
        found.append(problem("max", maximum, _maximum, functools.partial(_with_indices, **square), x, dy))
    return found


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        for layout in ("NCHW", "NHWC"):
            for window, stride, padding in _WINDOWS:
                found += _problems(scale, data_type, _IMAGE, window, stride, padding, layout)
            found += _problems(scale, data_type, (128, 2048, 7, 7), 7, 1, 0, layout)
    found += _problems(scale, FLOAT16, (64, 256, 28, 28), 3, 1, 1, "NCHW")
    return found
