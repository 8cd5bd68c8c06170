"""Products of 8-bit integers, against what PyTorch has for them: its product of INT8 matrices, and float16 else."""

from __future__ import annotations

import math
from typing import Any

import dmlvk
from bench.problems.model import Problem, nbytes
from dmlvk import TensorDataType, TensorDesc, TensorFlags

INT8, INT32 = TensorDataType.INT8, TensorDataType.INT32
_LEAST_ROWS = 17
"""Of a matrix that PyTorch multiplies in INT8."""


def _few(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
    """Numbers of which float16 can add up a few thousand products."""
    return torch.randint(0, 3, sizes, dtype=kind)


def _in_float16(torch: Any, *inputs: Any) -> list[Any]:
    return [tensor.half() for tensor in inputs]


def _product(rows: int, depth: int, columns: int, *, kept: bool) -> Problem:
    """``kept``: B is OWNED_BY_DML, so packed once."""
    integer = rows >= _LEAST_ROWS

    def rival(torch: Any, a: Any, b: Any) -> Any:
        return torch._int_mm(a, b) if integer else a @ b

    a, y = TensorDesc(INT8, (rows, depth)), TensorDesc(INT32, (rows, columns))
    b = TensorDesc(INT8, (depth, columns), flags=TensorFlags.OWNED_BY_DML if kept else TensorFlags.NONE)
    return Problem(
        f"integer product{' with kept B' * kept} depth {depth} INT8 {rows}x{columns}",
        dmlvk.MatrixMultiplyInteger(a_tensor=a, b_tensor=b, output_tensor=y),
        rival,
        0.0,
        nbytes(a, b, y),
        fill={} if integer else {"a_tensor": _few, "b_tensor": _few},
        prepare=None if integer else _in_float16,
        tolerance=1e-6 if integer else 1e-3,
        operations=2 * rows * depth * columns,
    )


def _convolution(batch: int, channels: int, size: int, window: int, *, depthwise: bool = False) -> Problem:
    """As many channels out as in, and the output as large as the input."""
    groups, pad = channels if depthwise else 1, window // 2

    def rival(torch: Any, x: Any, w: Any) -> Any:
        return torch.nn.functional.conv2d(x, w, padding=pad, groups=groups)

    x, y = (TensorDesc(kind, (batch, channels, size, size)) for kind in (INT8, INT32))
    w = TensorDesc(INT8, (channels, channels // groups, window, window), flags=TensorFlags.OWNED_BY_DML)
    desc = dmlvk.ConvolutionInteger(
        input_tensor=x,
        filter_tensor=w,
        output_tensor=y,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(pad, pad),
        end_padding=(pad, pad),
        group_count=groups,
    )
    return Problem(
        f"integer convolution{' depthwise' * depthwise} {window}x{window} INT8 {'x'.join(map(str, y.sizes))}",
        desc,
        rival,
        0.0,
        nbytes(x, w, y),
        fill={"input_tensor": _few, "filter_tensor": _few},
        prepare=_in_float16,
        tolerance=1e-3,
        operations=2 * math.prod(y.sizes) * math.prod(w.sizes[1:]),
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _product(4096, 4096, 4096, kept=True),
        _product(4096, 4096, 4096, kept=False),
        _product(8192, 8192, 8192, kept=True),
        _product(1024, 1024, 1024, kept=True),
        _product(128, 768, 3072, kept=True),
        _product(1, 4096, 4096, kept=True),
        _convolution(32, 256, 56, 3),
        _convolution(32, 256, 56, 1),
        _convolution(1, 256, 14, 3),
        _convolution(32, 256, 56, 3, depthwise=True),
    ]
