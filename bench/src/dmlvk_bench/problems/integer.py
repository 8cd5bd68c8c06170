"""Products of 8-bit integers, against what PyTorch has for them: its product of INT8 matrices, and float16 else."""

from __future__ import annotations

import math
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType, TensorFlags
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import constant, uniform
from dmlvk_bench.problems.data import tiled
from dmlvk_bench.problems.model import Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

SUITE = "matmul"
INT8, INT32 = TensorDataType.INT8, TensorDataType.INT32
_LEAST_ROWS = 17
"""The fewest rows of a matrix that PyTorch multiplies in INT8."""


_SCALE = constant(1 / 64)
_FEW = tiled(uniform(0, 2))
"""Numbers of which float16 can add up a few thousand products."""


def _in_float16(torch: Any, *inputs: Any) -> list[Any]:
    return [tensor.half() for tensor in inputs]


def _largest(sizes: Sizes) -> int:
    """Elements of the largest matrix."""
    return math.prod(sizes) // min(sizes)


def _operations(sizes: Sizes) -> int:
    """The operations of a product with these rows, depth and columns."""
    return 2 * math.prod(sizes)


def _product(scale: Scale, rows: int, depth: int, columns: int, *, kept: bool) -> Problem:
    """``kept``: B is OWNED_BY_DML, so packed once."""
    free = [axis for axis, size in enumerate((rows, depth, columns)) if size >= _LEAST_ROWS]
    rows, depth, columns = scale.fit((rows, depth, columns), *free, elements=_largest, operations=_operations)
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
        domains={} if integer else {"": _FEW},
        prepare=None if integer else _in_float16,
        tolerance=1e-6 if integer else 1e-3,
        operations=_operations((rows, depth, columns)),
    )


def _rescaled(scale: Scale, rows: int, depth: int, columns: int, *, quantized: bool) -> Problem:
    """A product that becomes real numbers, or 8-bit ones again."""
    rows, depth, columns = scale.fit((rows, depth, columns), 0, 1, 2, elements=_largest, operations=_operations)
    one = TensorDesc(TensorDataType.FLOAT32, (1, 1))
    a, b = TensorDesc(INT8, (rows, depth)), TensorDesc(INT8, (depth, columns), flags=TensorFlags.OWNED_BY_DML)
    y = TensorDesc(INT8 if quantized else TensorDataType.FLOAT32, (rows, columns))
    fields: dict[str, Any] = {"a_tensor": a, "b_tensor": b, "a_scale_tensor": one, "b_scale_tensor": one, "output_tensor": y}

    def rival(torch: Any, a: Any, a_scale: Any, b: Any, b_scale: Any, *output_scale: Any) -> Any:
        sums = torch._int_mm(a, b) * (a_scale * b_scale)
        return (sums / output_scale[0]).round().clamp(-128, 127).to(torch.int8) if quantized else sums

    desc: OperatorDesc
    if quantized:
        desc = dmlvk.QuantizedLinearMatrixMultiply(**fields, output_scale_tensor=one)
    else:
        desc = dmlvk.MatrixMultiplyIntegerToFloat(**fields)
    return Problem(
        f"integer product, {'quantized' if quantized else 'to floats'}, depth {depth} {y.data_type.name} {rows}x{columns}",
        desc,
        rival,
        0.0,
        nbytes(a, b, y, *(one,) * (3 if quantized else 2)),
        domains={
            "": tiled(uniform(-100, 100)),
            "a_scale_tensor": _SCALE,
            "b_scale_tensor": _SCALE,
            "output_scale_tensor": constant(1),
        },
        operations=_operations((rows, depth, columns)),
    )


def _convolution(scale: Scale, batch: int, channels: int, size: int, window: int, *, depthwise: bool = False) -> Problem:
    """A convolution with as many channels out as in, and an output as large as the input."""

    def operations(sizes: Sizes) -> int:
        batch, size, channels = sizes
        return 2 * batch * (size * window) ** 2 * channels * (1 if depthwise else channels)

    for free, least in enumerate((1, 7, 1)):
        batch, size, channels = scale.fit(
            (batch, size, channels),
            free,
            elements=lambda own: own[0] * own[1] ** 2 * own[2],
            operations=operations,
            least=least,
        )
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
        domains={"": _FEW},
        prepare=_in_float16,
        tolerance=1e-3,
        operations=2 * math.prod(y.sizes) * math.prod(w.sizes[1:]),
        suite="conv",
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _product(scale, 4096, 4096, 4096, kept=True),
        _product(scale, 4096, 4096, 4096, kept=False),
        _product(scale, 8192, 8192, 8192, kept=True),
        _product(scale, 1024, 1024, 1024, kept=True),
        _product(scale, 128, 768, 3072, kept=True),
        _product(scale, 1, 4096, 4096, kept=True),
        _convolution(scale, 32, 256, 56, 3),
        _convolution(scale, 32, 256, 56, 1),
        _convolution(scale, 1, 256, 14, 3),
        _convolution(scale, 32, 256, 56, 3, depthwise=True),
        *(_rescaled(scale, 4096, 4096, 4096, quantized=quantized) for quantized in (False, True)),
    ]
